"""The competitors of the benchmark: the same problem as jaxroute's, and one for each policy that the benchmark compares."""

import importlib

import numpy as np
import pytest

import jaxroute

bench = importlib.import_module("bench")


@pytest.mark.parametrize("tool", ["vectorised", "loop"])
def test_the_regret_of_ucb1_is_that_of_jaxroute(tool):
    rounds, runs = 500, 512 if tool == "vectorised" else 64
    other = bench.COMPARATORS[tool, "stochastic", "UCB1"].run(rounds, runs, 1)
    parts = bench.PROBLEMS["stochastic"]
    data = jaxroute.simulate(
        parts.env(), {"UCB1": parts.policies["UCB1"]}, horizon=rounds, seeds=512, record=["regret"], progress=False
    )
    regret = data["regret"].isel(time=-1, policy=0).values
    error = np.hypot(other["standard_error"], regret.std(ddof=1) / np.sqrt(512))
    assert abs(other["mean_regret"] - regret.mean()) < 4 * error


@pytest.mark.parametrize("name", [n for n in bench.COMPARATORS if n[0] == "loop"], ids="-".join)
def test_every_loop_works(name):
    pytest.importorskip("scipy")
    assert not bench.COMPARATORS[name].warm_up()
    made = bench.COMPARATORS[name].run(20, 2, 1)
    assert made["decisions"] == 40 and np.isfinite(made["mean_regret"])


def test_each_comparator_is_of_a_policy_of_the_benchmark():
    assert all(policy in bench.PROBLEMS[problem].policies for _, problem, policy in bench.COMPARATORS)
