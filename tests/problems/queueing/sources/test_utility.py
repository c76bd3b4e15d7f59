"""Departure probabilities of recorded prompts, and what simple routers achieve with them."""

import itertools

import numpy as np
import pytest

from jaxroute.problems.queueing.sources import utility
from jaxroute.problems.queueing.sources.utility import departure_probability, describe_probabilities, divide_costs


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
