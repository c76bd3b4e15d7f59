"""Contexts of random instances; the user's choice by hand, against the reference, and its frequencies; recorded departure probabilities."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from queueing_cases import play
from reference import queueing as ref

from jaxroute.core import draws
from jaxroute.core.batching.lanes import lanes
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing.sources import utility
from jaxroute.problems.queueing.sources.choice import best_rate, choose, shortfall
from jaxroute.problems.queueing.sources.utility import departure_probability, describe_probabilities, divide_costs


@pytest.mark.parametrize("pairs", [False, True])
def test_a_context_is_the_first_good_one_of_all_candidates(pairs):
    """In some runs none of the first sixteen is good."""
    env = qu.RandomQueues(num_models=3, dim=2, pair_features=pairs)(draws.key(4))
    spec, runs, lead = env.spec, 2000, (3, 2) if pairs else (2,)
    keys = jax.random.split(draws.key(8), runs)
    u = jax.vmap(lambda key: draws.uniform(draws.split(key, 3)[1], (*lead, 64)))(keys)
    x = env.contexts.scale * (2.0 * u - 1.0)
    rate = np.asarray(jax.vmap(lambda x: best_rate(env.contexts.utility(x, pairs), spec.num_offered))(x))
    contexts = env.contexts.replace(arrival_rate=np.float32(np.quantile(rate, 0.85)), slack=np.float32(0.0))
    drawn = jax.jit(lanes(lambda key: contexts.draw(key, jnp.int32(0), spec), runs))(keys)
    good = rate >= contexts.arrival_rate
    first = np.where(good.any(axis=1), good.argmax(axis=1), 63)
    assert (first >= 16).any() and (first < 16).any()
    np.testing.assert_array_equal(drawn.infeasible, ~good.any(axis=1))
    expected = np.take_along_axis(np.asarray(x), first.reshape(-1, *(1,) * len(lead), 1), axis=-1)[..., 0]
    np.testing.assert_allclose(np.moveaxis(np.asarray(drawn.row.features), -1, 0), expected, atol=1e-6)
    np.testing.assert_allclose(drawn.row.best_rate, np.take_along_axis(rate, first[:, None], axis=1)[:, 0], atol=1e-5)


@pytest.mark.slow
def test_rounds_without_a_context_are_counted_and_flagged():
    with pytest.warns(UserWarning, match="runs are invalid"):
        data = play(qu.RandomQueues(horizon=60, slack=0.25, candidates=2), qu.Random(), horizon=60)
    assert (data["infeasible"].isel(policy=0) > 0).any()


def test_choices_equal_the_reference_and_are_coupled(double_precision):
    """A larger rate departs whenever a smaller one does; with utilities beyond the range of exp as well."""
    rng, N, n = np.random.default_rng(0), 5, 4000
    v = rng.normal(size=(n, 2, N)) * rng.choice([1.0, 3.0, 400.0], size=(n, 1, 1))
    offered = rng.random((n, 2, N)) < 0.5
    offered[..., 0] |= ~offered.any(-1)
    u = rng.random(n)
    chosen, rate = jax.jit(jax.vmap(jax.vmap(choose, (0, 0, None))))(v, offered, u)
    chosen, rate = np.asarray(chosen), np.asarray(rate)
    for i in range(n):
        for side in range(2):
            S = np.flatnonzero(offered[i, side])
            place = ref.coupled_choice(v[i, side], S, u[i])
            assert np.flatnonzero(chosen[i, side]).tolist() == S[place : place + 1].tolist()
            assert rate[i, side] == pytest.approx(ref.departure_rate(v[i, side], S), abs=1e-14)
    left = chosen.any(-1)
    np.testing.assert_array_equal(left, u[:, None] <= rate)
    first, second = np.argsort(rate, axis=1).T
    rows = np.arange(n)
    assert (left[rows, first] <= left[rows, second]).all() and (left[:, 0] != left[:, 1]).any()


@pytest.mark.fast
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_best_assortment_loses_nothing_and_others_what_they_lack(size):
    """The best rate is a sum in order of size, a shown answer's one in the order of the models: their rounding is no regret."""
    utility = np.random.default_rng(size).normal(0.0, 3.0, (4000, 7)).astype(np.float32)
    offered = np.argsort(np.argsort(-utility, axis=1), axis=1) < size
    best = best_rate(utility.T, size)
    rate = jax.vmap(choose)(utility, offered, np.zeros(4000, np.float32))[1]
    weight = np.exp(utility.astype(np.float64))
    true = (np.where(offered, weight, 0.0).sum(1) / (1.0 + np.where(offered, weight, 0.0).sum(1))).astype(np.float32)
    assert size == 1 or (np.asarray(best) != np.asarray(rate)).any()
    for largest in (best, true):  # Of drawn contexts, and of pools, whose rates are summed in double precision.
        np.testing.assert_array_equal(shortfall(largest, rate), 0.0)
    np.testing.assert_allclose(shortfall(best, rate - 0.01), 0.01, atol=1e-6)


def test_less_is_rounding_in_double_precision(double_precision):
    assert float(shortfall(jnp.float64(0.5), jnp.float64(0.5) - 1e-9)) == pytest.approx(1e-9)
    assert float(shortfall(jnp.float64(0.5), jnp.float64(0.5) - 1e-16)) == 0.0


def test_worked_example():
    # raw = (1 - .25 * .8, 0 - .25 * .1, .5 - .25 * .3) = (.8, -.025, .425); norm = (1, 0, .45 / .825).
    probability, degenerate = departure_probability([[1, 0, 0.5]], [[0.8, 0.1, 0.3]], cost_weight=0.25)
    np.testing.assert_allclose(probability, [[0.99, 0.1, 0.5854545454545454]], rtol=1e-14)
    assert probability.dtype == np.float64
    assert degenerate.tolist() == [False]
    odds = probability / (1 - probability)
    np.testing.assert_allclose(odds, [[99, 0.111111, 1.412281]], rtol=1e-5)
    np.testing.assert_allclose(odds[0, [0, 2]] / (1 + odds[0, 0] + odds[0, 2]), [0.9762131, 0.0139261], atol=1e-7)
    described = describe_probabilities(probability, size=2)
    np.testing.assert_allclose(described["best_fixed"], 0.9901393, atol=1e-7)
    assert described["best_fixed_models"] == (0, 2)


def test_every_prompt_has_a_best_and_a_worst_model():
    rng = np.random.default_rng(0)
    scores, costs = rng.random((50, 6)), rng.random((50, 6))
    probability, degenerate = departure_probability(scores, costs, cost_weight=0.3, low=0.2, high=0.7)
    np.testing.assert_array_equal(probability.min(axis=1), 0.2)
    np.testing.assert_array_equal(probability.max(axis=1), 0.7)
    assert not degenerate.any()
    np.testing.assert_array_equal(probability.argsort(axis=1), (scores - 0.3 * costs).argsort(axis=1))


def test_degenerate_prompts_are_served_well_by_all_and_reported():
    # The second prompt's utilities are .8 - .1 and .7: equal but for a rounding error, which must not be stretched to [low, high].
    assert 0.8 - 0.1 != 0.7
    probability, degenerate = departure_probability([[1, 1], [0.8, 0.7], [0.8, 0.6]], [[0, 0], [1, 0], [1, 0]])
    np.testing.assert_allclose(probability, [[0.99, 0.99], [0.99, 0.99], [0.99, 0.1]])
    assert degenerate.tolist() == [True, True, False]
    assert departure_probability([[0.3]], [[0.2]])[1].tolist() == [True]  # One model leaves nothing to compare.


def test_divide_costs():
    np.testing.assert_array_equal(divide_costs([[1, 4], [2, 0]]), [[0.25, 1], [0.5, 0]])
    np.testing.assert_array_equal(divide_costs(np.zeros((2, 3))), np.zeros((2, 3)))
    assert divide_costs(np.ones((1, 1), np.float32)).dtype == np.float64


def brute_force(probability, size):
    """Rate of every assortment on every prompt `[subsets, P]`, one at a time."""
    subsets = list(itertools.combinations(range(probability.shape[1]), size))
    rates = np.empty((len(subsets), len(probability)))
    for s, subset in enumerate(subsets):
        for p, row in enumerate(probability):
            total = sum(row[j] / (1 - row[j]) for j in subset)
            rates[s, p] = total / (1 + total)
    return subsets, rates


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_descriptions_against_every_assortment(size):
    probability = np.random.default_rng(size).uniform(0, 0.99, (9, 5))
    described = describe_probabilities(probability, size=size)
    subsets, rates = brute_force(probability, size)
    mean = rates.mean(axis=1)
    np.testing.assert_allclose(described["random"], rates.mean())
    np.testing.assert_allclose(described["best_fixed"], mean.max())
    assert described["best_fixed_models"] == subsets[mean.argmax()]
    np.testing.assert_allclose(described["oracle"], rates.max(axis=0).mean())
    assert described["exact"]
    if size == 1:
        np.testing.assert_allclose(described["random"], probability.mean())


def test_many_assortments_are_sampled_and_built_greedily(monkeypatch):
    probability = np.random.default_rng(1).uniform(0.1, 0.99, (30, 8))
    exact = describe_probabilities(probability, size=3)
    monkeypatch.setattr(utility, "_MOST_SUBSETS", 10)
    rough = describe_probabilities(probability, size=3)
    assert (exact["exact"], rough["exact"]) == (True, False)
    assert abs(rough["random"] - exact["random"]) < 0.005  # 2,000 draws of rates with spread of at most .1
    assert exact["random"] < rough["best_fixed"] <= exact["best_fixed"] + 1e-12
    assert len(set(rough["best_fixed_models"])) == 3
    odds = (probability / (1 - probability))[:, list(rough["best_fixed_models"])].sum(axis=1)
    np.testing.assert_allclose(rough["best_fixed"], (odds / (1 + odds)).mean())
    assert rough["oracle"] == exact["oracle"]
    assert rough == describe_probabilities(probability, size=3)
