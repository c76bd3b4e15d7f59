"""Fits: the search of cascades against enumeration, predictors against plain optimisers."""

from dataclasses import replace

import numpy as np
import pytest
from offline_cases import random_sample, world
from reference import offline as reference

from jaxroute.comparison.offline import cascade
from jaxroute.comparison.offline.cascade import PERFECT, least_dominated, search, thresholds_of
from jaxroute.comparison.offline.crossfit import between, cheapest, multipliers
from jaxroute.comparison.offline.part import Part, TrueScores
from jaxroute.comparison.offline.router import LOGISTIC
from jaxroute.comparison.offline.sample import sample_of
from jaxroute.data.predictors import (
    MOST_FEATURES,
    Sample,
    design,
    fit_each,
    fit_logistic,
    fit_neighbours,
    fit_weights,
    random_folds,
    sigmoid,
)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("perfect", [True, False])
def test_the_search_finds_what_all_cascades_have(seed, perfect):
    sample = random_sample(seed, 9, 4 if seed % 2 else 3)
    values = sample.scores if perfect else np.random.default_rng(seed).random(sample.scores.shape)
    everything = reference.all_cascades(sample.scores, sample.costs, values)
    numbers = np.arange(sample.num_models)
    found = search(sample, TrueScores(), values, numbers, 8)
    assert np.isfinite(found.spent).sum() == len(everything)
    for target in (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.95, 1.0):
        rule = found.tuned(target)
        quality, cost, _ = reference.cascade(sample.scores, sample.costs, values, rule.stages, rule.thresholds)
        expected = reference.cheapest(everything, target)
        assert (quality.mean(), cost.mean()) == pytest.approx(expected, abs=1e-10)


def test_every_candidate_is_what_it_says():
    """Not only the winners: quality and cost of all of them, played."""
    sample = random_sample(3, 10, 3)
    found = PERFECT.fit(Part(sample))
    seen = set()
    for c in np.flatnonzero(np.isfinite(found.spent)):
        rule = found.rule(c)
        played = rule.evaluate(sample)
        assert (played.quality.mean(), played.cost.mean()) == pytest.approx((found.reached[c], found.spent[c]), abs=1e-12)
        seen.add((rule.stages, rule.thresholds))
    assert len(seen) == np.isfinite(found.spent).sum()


def test_thresholds():
    np.testing.assert_array_equal(thresholds_of(np.array([0.0, 1.0, 1.0]), 3), [0.5, np.nan, np.nan])
    assert np.isnan(thresholds_of(np.ones(5), 3)).all()
    many = thresholds_of(np.arange(1000) / 999, 9)
    np.testing.assert_allclose(many, np.arange(1, 10) / 10, atol=2e-3)
    mostly = thresholds_of(np.append(np.zeros(900), np.linspace(0.1, 1, 100)), 9)
    assert np.nanmin(mostly) == pytest.approx(0.05)  # A frequent value is separated from the rest.


def test_models_that_others_beat_are_left_out_first():
    cost, quality = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.4, 0.8, 0.7])
    assert least_dominated(cost, quality, 2).tolist() == [0, 2]
    assert least_dominated(cost, quality, 3).tolist() == [0, 1, 2] or least_dominated(cost, quality, 3).tolist() == [0, 2, 3]
    assert least_dominated(cost, quality).tolist() == [0, 1, 2, 3]


def test_more_models_than_are_searched():
    rng = np.random.default_rng(0)
    scores = (rng.random((60, 30)) < np.linspace(0.2, 0.9, 30)).astype(float)
    sample = Sample(tuple(map(str, range(30))), scores, np.tile(np.linspace(1, 30, 30), (60, 1)))
    found = PERFECT.fit(Part(sample))
    assert [len(found.rule(i).stages) for i in (cascade.MOST_MODELS - 1, cascade.MOST_MODELS)] == [1, 2]
    rule = found.tuned(0.8)
    assert rule.evaluate(sample).quality.mean() >= 0.8


def test_the_cheapest_candidate():
    quality, cost = np.array([0.2, 0.6, 0.6, 0.7, 0.7]), np.array([1.0, 3.0, 2.0, 2.0, 5.0])
    assert [cheapest(quality, cost, t) for t in (0.0, 0.5, 0.65, 0.9)] == [0, 3, 3, 3]
    assert cheapest(quality + 1e-15 * np.arange(5), cost, 0.6) == 3
    assert cheapest(np.array([0.5, 0.5]), np.array([0.0, 0.0]), 0.4) == 0


def test_prices():
    assert multipliers(np.zeros(3), 10).tolist() == [0.0]
    prices = multipliers(np.array([0.0, 1.0, 4.0]), 10)
    assert len(prices) == 10 and prices[0] == 0 and (np.diff(prices) > 0).all()
    further = between(np.array([0.0, 1.0, 10.0]), np.array([0.9, 0.8, 0.2]), 4)
    assert len(further) == 4 and ((further > 1) & (further < 10)).all()
    assert between(np.array([0.0]), np.array([0.5]), 4).size == 0


@pytest.mark.parametrize("penalty", [0.3, 5.0])
def test_logistic_regression_against_a_plain_optimiser(penalty):
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((80, 4)) + 1.0
    scores = np.clip(sigmoid(columns @ [1.0, -1.0, 0.5, 0.0]) + 0.3 * rng.standard_normal(80), 0, 1)
    both = np.stack([scores, (scores > 0.5).astype(float)], axis=1)
    fast = fit_weights(columns, both, np.array([penalty, 100.0]), steps=300)
    each = fit_each(np.stack([columns.T, columns.T], axis=2), both, penalty)
    for i in range(2):
        expected = reference.logistic(columns, both[:, i], penalty)
        np.testing.assert_allclose(fast[0, :, i], expected, atol=1e-4)
        np.testing.assert_allclose(each[i], expected, atol=1e-4)
    # As many steps as are made: predictions to the third digit.
    quick = fit_weights(columns, both, np.array([penalty]))[0]
    predicted = [sigmoid(w[0] + columns @ w[1:]) for w in (quick, fast[0])]
    np.testing.assert_allclose(*predicted, atol=1e-3)


def test_newton_does_not_fail_on_answers_that_are_all_right():
    columns = np.stack([np.arange(20.0)[:, None], np.zeros((20, 1))])
    for scores in (np.ones((20, 1)), (columns[0] > 9.5).astype(float)):
        weights = fit_each(columns, scores)
        assert np.isfinite(weights).all()
        p = sigmoid(weights[:, 0] + weights[:, 1] * columns[0])
        assert np.abs(p - scores).mean() < 0.1


def test_neighbours_against_loops():
    sample = sample_of(world(0, 60))
    predictor, left_out = fit_neighbours(sample)
    new = sample_of(world(1, 10))
    columns = predictor.design.columns(new)
    expected = reference.neighbours(columns, predictor.columns, sample.scores, predictor.size)
    np.testing.assert_allclose(predictor.predict(new), expected, atol=1e-12)
    others = np.arange(60) != 7
    alone = reference.neighbours(predictor.columns[[7]], predictor.columns[others], sample.scores[others], predictor.size)
    np.testing.assert_allclose(left_out[7], alone[0], atol=1e-12)


def test_neighbours_leave_out_all_copies_of_a_prompt():
    sample = replace(sample_of(world(0, 60)), prompts=np.arange(60) // 3)
    predictor, left_out = fit_neighbours(sample)
    others = np.arange(60) // 3 != 2
    alone = reference.neighbours(predictor.columns[[7]], predictor.columns[others], sample.scores[others], predictor.size)
    np.testing.assert_allclose(left_out[7], alone[0], atol=1e-12)
    few = sample.take(np.flatnonzero(np.arange(60) < 30))
    mostly_one = replace(few, prompts=np.where(np.arange(30) < 27, 0, np.arange(30)))
    assert fit_neighbours(mostly_one)[0].size <= 3


def test_a_column_in_another_unit_changes_no_prediction():
    """Columns of unlike size are standardised; columns of like size, those of an embedding, are not."""
    table = world(3, 200)
    sizes, unit = np.array([1.0, 1.0, 1.0, 1e-3]), np.array([1.0, 1e6, 1.0, 1.0])
    fitted = [replace(sample_of(table), features=table.features * sizes * u + 5.0 * u) for u in (1.0, unit)]
    folds = random_folds(fitted[0], 4, 0)
    for fit in (fit_neighbours, lambda sample: fit_logistic(sample, folds)):
        (one, before), (other, after) = (fit(sample) for sample in fitted)
        np.testing.assert_allclose(before, after, atol=1e-9)
        np.testing.assert_allclose(one.predict(fitted[0]), other.predict(fitted[1]), atol=1e-9)
    made = design(sample_of(table))
    assert made.turn is not None and np.ptp(np.diag(made.turn)) == 0


@pytest.mark.parametrize("kind", ["neighbours", "logistic", "judge"])
def test_predictions_of_the_fitting_part_do_not_know_the_querys_own_scores(kind):
    sample = sample_of(world(2, 80))
    _, before = getattr(Part(sample), kind)
    turned = np.array(sample.scores)
    turned[11] = 1 - turned[11]
    changed = Sample(sample.models, turned, sample.costs, None, sample.features, sample.groups)
    part = Part(changed)
    after = getattr(part, kind)[1]
    if kind != "judge":
        same = part.folds == part.folds[11] if kind == "logistic" else [11]
        np.testing.assert_allclose(after[same], before[same])
    assert not np.array_equal(after, before)


def test_many_features_become_their_main_directions():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 200)) + 1e-3 * rng.standard_normal((300, 200))
    sample = Sample(("a",), np.zeros((300, 1)), np.ones((300, 1)), None, features, np.repeat([0, 1, 2], [150, 147, 3]))
    made = design(sample)
    columns = made.columns(sample)
    assert columns.shape == (300, MOST_FEATURES + 2)  # The third category has too few queries for a column.
    assert np.square(columns[:, :MOST_FEATURES]).sum(1).mean() == pytest.approx(1.0)
    constant = Sample(("a",), np.zeros((30, 1)), np.ones((30, 1)), None, np.ones((30, 2)))
    assert not design(constant).columns(constant).any()


def test_routers_find_the_categories():
    """The router that reaches 80 % with much data calls the expensive model only where the others are bad."""
    table = world(5, 3000)
    sample = sample_of(table)
    rule = LOGISTIC.fit(Part(sample)).tuned(0.8)
    chosen = rule.choose(sample)
    share = [np.mean(chosen[table.groups == g] == 2) for g in range(4)]
    assert share[2] > 0.8 and max(share[0], share[1]) < 0.1
