"""Runs that stop when a standard error is small enough: when they look, where they stop, what they say."""

from types import SimpleNamespace

import numpy as np
import pytest
from store_cases import KEEPS, assert_same, run_three
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core.attributes import decoded
from jaxroute.engine.schedule import compare, seed_numbers
from jaxroute.store.cells import Seeds


def test_looks_double():
    """After whole granules of 256 seeds, in whatever order these are given."""
    for seeds, expected in (
        (range(5000), [256, 512, 1024, 2048, 4096, 5000]),
        (range(256), [256]),
        (range(200), [200]),
        (range(999, -1, -1), [488, 744, 1000]),
        (range(0, 10_000, 10), [256, 512, 1000]),
    ):
        assert seed_numbers({"x": 1.0}, Seeds(np.asarray(seeds))) == expected


UNTIL = {"seeds": 5000, "execution": jr.Execution(block=64), "until_stderr": {"regret": 0.12}}


def test_a_run_stops_when_it_knows_enough():
    kept, moments = run_three(keep="runs", **UNTIL), run_three(**UNTIL)
    number = kept.attrs["seeds_played"]
    assert number in (512, 1024, 2048) and kept.sizes["seed"] == number and kept["valid"].all()
    assert moments.attrs["seeds_played"] == number and (moments["runs"] == number).all()
    assert_same(run_three(seeds=number, execution=jr.Execution(block=64)), moments)
    assert_same(run_three(seeds=number, keep="runs"), kept)
    errors = metrics.stderr(kept, "regret").isel(time=-1)
    assert (errors < 0.12).all()
    half = metrics.stderr(kept.isel(seed=slice(number // 2)), "regret").isel(time=-1)
    assert not (half < 0.12).all()
    for data in (kept, moments):
        ended = decoded(data.attrs)["until_stderr"]
        assert ended["reached"] is True and ended["goal"] == {"regret": 0.12}
        assert ended["stderr"]["regret"] == pytest.approx(float(errors.max()), rel=1e-12)
        assert 0 <= data.attrs["decisions"] - 3 * number * 40 <= 64 * 40  # One block may have been simulated ahead.


@KEEPS
def test_a_goal_that_is_not_reached_is_said(keep):
    with pytest.warns(UserWarning, match="standard errors after 310 seeds are not below the goal, until_stderr=.*0.001"):
        data = run_three(keep=keep, until_stderr={"regret": 0.001, "reward": 1.0})
    assert decoded(data.attrs)["until_stderr"]["reached"] is False and data.attrs["seeds_played"] == 310
    assert_same(run_three(keep=keep), data)


def test_a_policy_whose_runs_are_all_invalid_has_no_mean_and_reaches_no_goal():
    with pytest.warns(UserWarning, match="not below the goal") as said:
        options = {"record": ["reward"], "until_stderr": {"reward": 1.0}, "seeds": 20}
        data = run_three(Clock(broken_at=3, broken=np.nan), {"one": Cycle()}, **options)
    assert any("20 of 20 runs are invalid" in str(w.message) for w in said)
    assert decoded(data.attrs)["until_stderr"] == {"goal": {"reward": 1.0}, "reached": False, "stderr": {"reward": None}}
    assert data["reward_mean"].isnull().all() and (data["reward_count"] == 0).all() and (data["invalid"] == 20).all()
    assert metrics.quantiles(data, "reward").isnull().all()
    assert "-" in metrics.table(data).splitlines()[3]


@KEEPS
def test_a_metric_of_one_policy_is_enough(keep):
    """`plans` is only the planner's; it has no variance at all."""
    policies = {"grid": jr.grid(Cycle, first=[0, 1, 2]), "planner": Planner(stage_length=5)}
    env, options = jr.grid(Clock, slope=[0.5, 1.0, 2.0]), {"record": ["reward", "plans"], "seeds": 1000, "keep": keep}
    data = run_three(env, policies, until_stderr={"plans": 0.1}, **options)
    assert data.attrs["seeds_played"] == 256 and decoded(data.attrs)["until_stderr"]["reached"]


WRONG = {
    "no dict": (0.5, r"until_stderr must be a dict of metric and standard error, as \{'regret': 0.5\}, got 0.5"),
    "nothing": ({}, "until_stderr must be a dict"),
    "an unknown metric": ({"regert": 0.5}, "until_stderr must be one of .*did you mean 'regret'"),
    "a metric that is not recorded": ({"luck": 0.5}, "until_stderr must be one of 'regret', 'reward', 'pulls', got 'luck'"),
    "zero": ({"regret": 0.0}, r"until_stderr\['regret'\] must be above 0, got 0"),
    "a word": ({"regret": "small"}, r"until_stderr\['regret'\] must be a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_goals_are_refused(name):
    goal, message = WRONG[name]
    before = jr.trace_count()
    with pytest.raises(ValueError, match=message):
        run_three(until_stderr=goal)
    assert jr.trace_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["normal", "skewed"])
def test_stopping_does_not_bias_the_mean(distribution):
    """Two thousand repetitions of a run whose goal lies just where a look is made: the worst place.

    Of symmetric rewards the mean is unbiased. Of skewed ones it is too small by at most 0.2 r standard errors, where r is the
    correlation of the mean and the variance of a sample: skewness / sqrt(excess kurtosis + 2), for exponential rewards 0.71.
    """
    rng, number = np.random.default_rng(0), 2000
    draw = rng.standard_normal if distribution == "normal" else rng.standard_exponential
    truth, goal = (0.0, 1.0 / np.sqrt(512)) if distribution == "normal" else (1.0, 1.0 / np.sqrt(512))
    gaps, stopped = [], []
    for _ in range(number):
        sample = draw(4096)
        for seeds in seed_numbers({"x": goal}, Seeds(np.arange(4096))):
            seen = sample[:seeds]
            error = np.asarray([seen.std(ddof=1) / np.sqrt(len(seen))])
            result = SimpleNamespace(request=SimpleNamespace(recorded={"p": ["x"]}), errors=lambda *_, error=error: error)
            if compare({"x": goal}, result, seeds).met:
                break
        gaps.append((seen.mean() - truth) / goal)
        stopped.append(len(seen))
    assert 0.3 < np.mean(np.asarray(stopped) == 512) < 0.7
    bias, error = np.mean(gaps), np.std(gaps, ddof=1) / np.sqrt(number)
    low = 0.0 if distribution == "normal" else -0.2 * 2.0 / np.sqrt(8.0)
    assert low - 4.0 * error < bias < 4.0 * error, (bias, error)
    if distribution == "skewed":
        assert bias < -4.0 * error  # As the docstring warns.
