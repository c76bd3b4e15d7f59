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


def test_the_warm_estimate_of_two_models_is_that_of_their_block():
    """Those of the others stay what they are: the gradient of the reference's loss is zero in the block, the other models have not moved."""
    models, dim, ridge, rng = 4, 3, 1.0, np.random.default_rng(1)
    fit, _ = comparators._pair_loops(models, dim, 9)
    number = 60
    rows, truth = rng.uniform(-1, 1, (number, dim)), rng.uniform(-1, 1, (models, dim))
    shown = np.stack([np.sort(rng.permutation(models)[:2]) for _ in range(number)])
    weights = np.exp(np.einsum("hd,hkd->hk", rows, truth[shown]))
    edges = np.cumsum(weights / (1 + weights.sum(axis=1, keepdims=True)), axis=1)
    took = (rng.random(number)[:, None] >= edges).sum(axis=1)
    theta, about, counts = np.zeros((models, dim)), np.zeros((models, number), int), np.zeros(models, int)
    offered, chosen, gradients = np.zeros((number, models), bool), np.full(number, -1), []
    for h in range(number):
        first, second = (int(j) for j in shown[h])
        for model in (first, second):
            about[model, counts[model]] = h
            counts[model] += 1
        offered[h, shown[h]], chosen[h] = True, -1 if took[h] == 2 else shown[h, took[h]]
        before, room = theta.copy(), (np.zeros((2 * dim, 2 * dim)), np.zeros(2 * dim))
        fit(theta, rows, shown, took, about, counts, first, second, ridge, np.sqrt(dim), *room)
        others = [j for j in range(models) if j not in (first, second)]
        np.testing.assert_array_equal(theta[others], before[others])
        data = rows[: h + 1], offered[: h + 1], chosen[: h + 1]
        gradients.append(np.abs(reference.disjoint_loss(theta, *data, ridge, (first, second))[1]).max())
    assert max(gradients) < 2e-3 and np.median(gradients) < 1e-6, gradients  # Of sums over the rows.


@pytest.mark.parametrize(("name", "answers"), [("numba_acqb", 1), ("numba_acqb_pairs", 2)])
def test_its_regret_is_that_of_jaxroute(name, answers):
    pytest.importorskip("numba")
    rounds, seeds = 300, 512
    made = comparators.COMPARATORS[name].run(rounds, 1024, 1)
    data = jaxroute.simulate(
        queueing.RandomQueues(horizon=rounds, num_offered=answers),
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


def test_each_is_for_its_number_of_answers():
    for rival, wrong, right in ((comparators.numba_acqb, 2, 1), (comparators.numba_acqb_pairs, 1, 2)):
        with pytest.raises(ValueError, match=f"num_offered must be {right}, got {wrong}"):
            rival(comparators.QueueSetting(num_offered=wrong), 10, 2, 0)


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
