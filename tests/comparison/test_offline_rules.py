"""Rules that were fitted, played query by query: by hand, and as the plain reference plays them."""

import numpy as np
import pytest
from offline_cases import random_sample
from reference import offline as reference

from jaxroute.comparison.offline.cascade import Cascade
from jaxroute.comparison.offline.cascade_routing import CascadeRouting, calls, shrunk_covariance
from jaxroute.comparison.offline.part import Constant, Part, TrueScores
from jaxroute.comparison.offline.router import BEST_MIXTURE, Hull, Router, hull
from jaxroute.comparison.offline.sample import Sample, best_of_each, cheapest_right

TWO = ("small", "large")
SCORES = np.array([[1.0, 1.0], [0.0, 1.0], [0.5, 0.0], [0.0, 0.0]])
COSTS = np.array([[1.0, 10.0], [2.0, 20.0], [1.0, 10.0], [2.0, 20.0]])
SECONDS = np.array([[0.1, 1.0], [0.2, 2.0], [0.1, 1.0], [0.2, 2.0]])
SAMPLE = Sample(TWO, SCORES, COSTS, SECONDS)


def test_a_mixture_by_hand():
    # Small has 0.375 for 1.5, large 0.5 for 15: half-way, 0.4375 for 8.25.
    part = Part(SAMPLE)
    rule = BEST_MIXTURE.fit(part).tuned(0.4375)
    assert (rule.first, rule.second) == (0, 1) and rule.weight == pytest.approx(0.5)
    played = rule.evaluate(SAMPLE)
    np.testing.assert_allclose(played.quality, [1.0, 0.5, 0.25, 0.0])
    np.testing.assert_allclose(played.cost, [5.5, 11.0, 5.5, 11.0])
    np.testing.assert_allclose(played.latency, [0.55, 1.1, 0.55, 1.1])
    np.testing.assert_array_equal(played.calls, 1)
    assert str(rule) == "large for 50 % of queries, else small"
    assert str(BEST_MIXTURE.fit(part).tuned(0.2)) == "small"
    assert str(BEST_MIXTURE.fit(part).tuned(0.9)) == "large"


@pytest.mark.parametrize("seed", range(20))
def test_the_mixture_is_the_optimum_of_its_linear_program(seed):
    rng = np.random.default_rng(seed)
    quality, cost = rng.random(6), rng.random(6)
    found = Hull(tuple("abcdef"), hull(cost, quality), quality)
    for target in np.linspace(quality.min(), quality.max(), 7):
        rule = found.tuned(target)
        spent = (1 - rule.weight) * cost[rule.first] + rule.weight * cost[rule.second]
        assert spent == pytest.approx(reference.best_mixture(quality, cost, target - 1e-12), abs=1e-9)


def test_models_of_equal_cost_or_quality_on_the_hull():
    assert hull(np.array([1.0, 1.0, 2.0]), np.array([0.3, 0.5, 0.5])) == (1,)
    assert hull(np.array([0.0, 0.0, 0.0]), np.array([0.3, 0.5, 0.4])) == (1,)
    assert hull(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.5, 1.0])) in ((0, 2), (0, 1, 2))


class Given:
    """Predictions that are given."""

    def __init__(self, predicted):
        self.predicted = predicted

    def predict(self, sample):
        return self.predicted


@pytest.mark.parametrize("price", [0.0, 0.2, 1.0])
def test_a_router_as_the_reference_plays_it(price):
    sample, predicted = random_sample(1), np.random.default_rng(1).random((12, 3))
    rule = Router(sample.models, Given(predicted), sample.costs.mean(0), price)
    assert rule.choose(sample).tolist() == reference.router(predicted, sample.costs.mean(0), price)


@pytest.mark.parametrize("seed", range(6))
def test_a_cascade_as_the_reference_plays_it(seed):
    assert str(Cascade(TWO, TrueScores(), (0, 1), (0.25,))) == "small -> large below 0.25"
    sample, values = random_sample(seed, 15, 4), np.random.default_rng(seed).random((15, 4))
    for stages, thresholds in (((2,), ()), ((1, 3), (0.4,)), ((3, 0, 2), (0.7, 0.5))):
        played = Cascade(sample.models, Given(values), stages, thresholds).evaluate(sample)
        quality, cost, called = reference.cascade(sample.scores, sample.costs, values, stages, thresholds)
        np.testing.assert_allclose(played.quality, quality)
        np.testing.assert_allclose(played.cost, cost)
        np.testing.assert_array_equal(played.calls, [len(c) for c in called])
        np.testing.assert_allclose(played.latency, [sum(sample.latency[q, m] for m in c) for q, c in enumerate(called)])


def test_cascade_routing_by_hand():
    # Before: 0.5 and 0.8, independent, price 0.05. Sets: {small} 0.5 - 0.05 = 0.45, {large} 0.8 - 0.4 = 0.4, both 0.9 - 0.45 = 0.45: small.
    # A wrong answer: large is worth 0.8 - 0.4 > 0, asked. One of 0.5: 0.5 * 0.8 - 0.4 = 0, not asked. A right one: never.
    rule = CascadeRouting(TWO, Constant(np.array([0.5, 0.8])), np.eye(2), np.array([1.0, 8.0]), 0.05)
    played = rule.evaluate(SAMPLE)
    np.testing.assert_array_equal(played.calls, [1, 2, 1, 2])
    np.testing.assert_array_equal(played.quality, [1.0, 1.0, 0.5, 0.0])
    np.testing.assert_array_equal(played.cost, [1.0, 22.0, 1.0, 22.0])


@pytest.mark.parametrize("num_models", [1, 2, 3, 5])
@pytest.mark.parametrize("price", [0.0, 0.05, 0.3, 2.0])
def test_cascade_routing_as_the_reference_plays_it(num_models, price):
    rng = np.random.default_rng(num_models)
    sample = random_sample(num_models, 40, num_models)
    before = np.clip(sample.scores.mean(0) + 0.2 * rng.standard_normal((40, num_models)), 0.05, 0.95)
    covariance, costs = shrunk_covariance(sample.scores - before), sample.costs.mean(0)
    called = calls(before, sample.scores, covariance, costs, np.full(40, price))
    for q in range(40):
        expected = reference.cascade_routing(before[q], sample.scores[q], covariance, costs, price)
        assert sorted(expected) == np.flatnonzero(called[q]).tolist()


def test_queries_of_several_prices_do_not_disturb_each_other():
    sample, prices = random_sample(3, 30, 4), np.repeat([0.0, 0.1, 1.0], 30)
    before, costs = np.full((30, 4), 0.5), sample.costs.mean(0)
    covariance = shrunk_covariance(sample.scores - before)
    both = calls(np.tile(before, (3, 1)), np.tile(sample.scores, (3, 1)), covariance, costs, prices)
    for i, price in enumerate((0.0, 0.1, 1.0)):
        alone = calls(before, sample.scores, covariance, costs, np.full(30, price))
        np.testing.assert_array_equal(both[30 * i : 30 * i + 30], alone)


def test_the_cheapest_right_model_by_hand():
    # Small everywhere has 1.5 of 4 for 6. The one step up is query 2, which gains 1 for 18: at 0.5 it is taken in half.
    played = cheapest_right(SAMPLE, 0.5)
    np.testing.assert_allclose(played.quality, [1.0, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(played.cost, [1.0, 11.0, 1.0, 2.0])
    np.testing.assert_allclose(played.latency, [0.1, 1.1, 0.1, 0.2])
    np.testing.assert_allclose(cheapest_right(SAMPLE, 0.9).quality, [1.0, 1.0, 0.5, 0.0])
    assert best_of_each(SAMPLE).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_the_optimum_of_its_linear_program(seed):
    sample = random_sample(seed, 10, 4, levels=3 + seed)
    if seed % 3 == 0:
        sample.costs[:, 1] = sample.costs[:, 0]
    if seed % 3 == 1:
        sample.costs[:5] = 0.0
    best = sample.scores.max(1).mean()
    for target in np.linspace(0.0, best, 7):
        played = cheapest_right(sample, target)
        assert played.quality.mean() >= target - 1e-12
        assert played.cost.mean() == pytest.approx(
            reference.cheapest_right(sample.scores, sample.costs, target - 1e-12), abs=1e-9
        )
