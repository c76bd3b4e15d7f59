"""The compiled rival of ACQB: its estimate is the reference's, and its regret is jaxroute's."""

import importlib

import numpy as np
import pytest
from reference import queueing as reference

import jaxroute
from jaxroute.problems import queueing

comparators = importlib.import_module("comparators")


def test_the_warm_estimate_follows_the_maximum_likelihood_one():
    dim, ridge, rng = 5, 1.0, np.random.default_rng(0)
    fit, _ = comparators._queue_loops(5, dim)
    rows, truth = rng.uniform(-1, 1, (60, dim)), rng.uniform(-1, 1, dim)
    took = rng.random(60) < 1 / (1 + np.exp(-rows @ truth))
    theta, curvature, accepted = np.zeros(dim), np.zeros((dim, dim)), np.zeros(dim)
    matrix, move, passes = np.zeros((dim, dim)), np.zeros(dim), []
    for n in range(1, 61):
        accepted += took[n - 1] * rows[n - 1]
        longest = np.linalg.norm(rows[:n], axis=1).max()
        passes.append(fit(theta, curvature, rows, n, accepted, float(took[n - 1]), ridge, longest, matrix, move))
        np.testing.assert_allclose(theta, reference.fit_logistic(rows[:n], took[:n], ridge), atol=1e-6)
    assert set(passes) == {1, 2}  # The second is left out where the first has moved next to nothing.


def test_its_regret_is_that_of_jaxroute():
    pytest.importorskip("numba")
    rounds, seeds = 300, 512
    made = comparators.COMPARATORS["numba_acqb"].run(rounds, 1024, 1)
    data = jaxroute.simulate(
        queueing.RandomQueues(horizon=rounds),
        {"ACQB": queueing.ACQB()},
        horizon=rounds,
        seeds=seeds,
        record=["routing_regret"],
        progress=False,
    )
    ours = np.asarray(data["routing_regret"].isel(time=-1, policy=0)).ravel()
    error = np.hypot(made["standard_error"], ours.std(ddof=1) / np.sqrt(seeds))
    assert abs(made["mean_regret"] - ours.mean()) < 4 * error, (made, ours.mean(), error)
    assert error < 0.03 * ours.mean()


def test_it_is_for_one_answer():
    with pytest.raises(ValueError, match="num_offered must be 1, got 2"):
        comparators.numba_acqb(comparators.QueueSetting(num_offered=2), 10, 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [n for n in comparators._SMPYBANDITS if f"vectorised_{n}" in comparators.COMPARATORS])
def test_the_shelfs_regret_in_numpy_is_that_of_jaxroute(policy):
    if policy == "bayes_ucb":
        pytest.importorskip("scipy")
    rounds, runs = 500, 1024
    made = comparators.COMPARATORS[f"vectorised_{policy}"].run(rounds, runs, 1)
    bench = importlib.import_module("bench")
    (name,) = (n for n, other in bench.PROBLEMS["stochastic"]["comparators"].items() if other == policy)
    parts = bench.PROBLEMS["stochastic"]
    data = jaxroute.simulate(
        parts["env"](), {name: parts["policies"][name]}, horizon=rounds, seeds=runs, record=["regret"], progress=False
    )
    ours = data["regret"].isel(time=-1, policy=0).values
    error = np.hypot(made["standard_error"], ours.std(ddof=1) / np.sqrt(runs))
    assert abs(made["mean_regret"] - ours.mean()) < 4 * error, (made, ours.mean(), error)


def test_every_rival_of_the_bench_is_there():
    """Of each policy that the bench compares, at least one; what departs from its law says in what."""
    bench = importlib.import_module("bench")
    known = {(c.problem, c.policy) for c in comparators.COMPARATORS.values()}
    for problem, parts in bench.PROBLEMS.items():
        assert {(problem, policy) for policy in parts.get("comparators", {}).values()} <= known
    assert all(c.same_law or c.note for c in comparators.COMPARATORS.values())
