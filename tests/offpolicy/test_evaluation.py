"""Evaluation of rules on served logs: what is estimated, what is shown, and what is claimed."""

import numpy as np
import pytest

from jaxroute.data import RoutingTable, serve
from jaxroute.offpolicy import Evaluator, balance, estimate, verdicts
from jaxroute.offpolicy.crossfit import Fits, folds_of


def small_table(queries=3000, seed=0):
    """Three models whose scores depend on two features and on the category."""
    rng = np.random.default_rng(seed)
    features, groups = rng.normal(size=(queries, 2)), rng.integers(3, size=queries)
    level = (
        0.4
        + 0.1 * np.arange(3)
        + 0.15 * features[:, :1] * np.array([1.0, 0.0, -1.0])
        + 0.1 * (groups[:, None] == np.arange(3))
    )
    scores = (rng.random((queries, 3)) < np.clip(level, 0.02, 0.98)).astype(float)
    costs = np.array([1.0, 3.0, 9.0]) * rng.lognormal(0, 0.3, (queries, 1))
    return RoutingTable(scores, costs, ("small", "middle", "large"), features.astype(np.float32), groups, ("a", "b", "c"))


TABLE = small_table()
UNIFORM = np.full((3000, 3), 1 / 3)


def always(model, queries=3000):
    return np.tile(np.eye(3)[model], (queries, 1))


def test_folds_keep_users_together_and_predictions_ignore_the_own_answer():
    log = serve(TABLE, UNIFORM, 1)
    log = log.take(np.arange(300))
    log = type(log)(**{**vars(log), "users": np.arange(300) // 3})
    folds = folds_of(log)
    assert (folds.reshape(-1, 3) == folds.reshape(-1, 3)[:, :1]).all()
    before = Fits(log, log.scores, folds).predicted()
    changed = np.where(folds[log.query] == folds[0], 1 - log.scores, log.scores)
    after = Fits(log, changed, folds).predicted()
    assert np.array_equal(before[folds == folds[0]], after[folds == folds[0]])
    assert not np.allclose(before[folds != folds[0]], after[folds != folds[0]])


def test_a_full_information_log_gives_the_table_s_means():
    """Where every query got its model with certainty, the value of "always this model" is its mean score."""
    log = serve(TABLE, always(1), 0)
    found = Evaluator(log).rule("middle", always(1))
    assert found.quality.value == pytest.approx(TABLE.mean_scores()[1], abs=1e-9)
    assert found.cost.value == pytest.approx(TABLE.mean_costs()[1], rel=1e-9)
    assert found.known == "reweighted" and found.size == 3000
    other = Evaluator(log).rule("large", always(2))
    assert other.known == "extrapolated" and other.quality.interval is None and np.isnan(other.quality.error)


def test_the_log_s_own_rule_is_observed():
    log = serve(TABLE, UNIFORM, 2)
    found = Evaluator(log).logged()
    assert found.known == "observed" and found.quality.value == pytest.approx(log.scores.mean())
    assert found.quality.error == pytest.approx(log.scores.std(ddof=1) / np.sqrt(3000), rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_intervals_contain_the_truth_as_often_as_they_say(share):
    """Over 150 logs, with the binomial error of that many; small logs, so that the test is quick. The study has 2,000 of three sizes."""
    probability = (1 - share) * always(2) + share * UNIFORM
    truth, inside, shown = TABLE.scores.astype(float).mean(0), [], 0
    for seed in range(150):
        rows = np.random.default_rng((seed, 3)).integers(3000, size=1500)
        evaluator = Evaluator(serve(TABLE, probability[rows], (seed, 4), rows))
        for model in range(3):
            found = evaluator.rule("", always(model, 1500)).quality
            if found.interval is not None:
                shown += 1
                inside.append(found.interval.low <= truth[model] <= found.interval.high)
    error = np.sqrt(0.95 * 0.05 / 150)
    assert shown > 200 and abs(np.mean(inside) - 0.95) < 4 * error


def test_rare_models_get_no_interval():
    probability = 0.99 * always(2) + 0.01 * UNIFORM
    evaluator = Evaluator(serve(TABLE, probability, 5))
    assert [evaluator.rule("", always(m)).known for m in range(3)] == ["extrapolated", "extrapolated", "reweighted"]
    router = np.where(TABLE.features[:, :1] > 0, always(0), always(2))  # Half of its choices are rare in the log.
    found = evaluator.rule("router", router)
    assert found.known == "extrapolated" and found.quality.interval is None


def test_verdicts_are_wider_than_single_intervals_and_savings_relative_to_the_log():
    log = serve(TABLE, UNIFORM, 6)
    evaluator = Evaluator(log)
    rules, own = [evaluator.rule(str(m), always(m)) for m in range(3)], evaluator.logged()
    found = verdicts(rules, own, None)
    assert len(found) == 3
    for rule, verdict in zip(rules, found, strict=True):
        assert verdict.quality.low < rule.quality.interval.low and verdict.quality.high > rule.quality.interval.high
        assert verdict.saved == pytest.approx(1 - rule.cost.value / own.cost.value)
        assert verdict.saving.low < verdict.saved < verdict.saving.high
    assert verdicts([], own, None) == []


def test_a_model_without_costs_saves_everything():
    free = RoutingTable(TABLE.scores, TABLE.costs * [0, 1, 1], TABLE.models)
    log = serve(free, UNIFORM, 9)
    evaluator = Evaluator(log)
    (found,) = verdicts([evaluator.rule("", always(0))], evaluator.logged(), None)
    assert found.saved == pytest.approx(1.0, abs=1e-9) and found.saving.low > 0.99


def test_propensities_that_are_wrong_by_a_factor_are_noticed():
    log = serve(TABLE, UNIFORM, 7)
    right = balance(log)
    assert not right.wrong and abs(right.share - 1) < 4 * right.error
    half = balance(type(log)(**{**vars(log), "propensity": log.propensity / 2}))
    assert half.wrong and half.share == pytest.approx(2, abs=0.2)
    # Too large ones look like queries that a model could not get, which shows in the missing share of the rule.
    twice = type(log)(**{**vars(log), "propensity": log.propensity * 2})
    assert not balance(twice).wrong
    found = Evaluator(twice).rule("", always(0))
    assert found.known == "extrapolated" and found.missing == pytest.approx(0.5, abs=0.1)


def test_estimated_propensities_are_calibrated_and_give_the_same_values():
    pytest.importorskip("sklearn")
    rule = np.where(TABLE.features[:, :1] > 0, [[0.7, 0.2, 0.1]], [[0.2, 0.2, 0.6]])
    log = serve(TABLE, rule, 8)
    fitted, calibration = estimate(type(log)(**{**vars(log), "propensity": None}))
    assert calibration.gap < 0.04 and fitted.source == "estimated from features and the category"
    truth = TABLE.scores.mean(0)
    for model in range(3):
        known, guessed = (Evaluator(one).rule("", always(model)).quality for one in (log, fitted))
        assert abs(guessed.value - truth[model]) < 5 * guessed.error
        assert guessed.error < 1.5 * known.error


def test_wrong_arguments_are_named():
    log = serve(TABLE, UNIFORM, 0)
    with pytest.raises(ValueError, match="log must be a ServedLog with propensities"):
        Evaluator(TABLE)
    with pytest.raises(ValueError, match=r"target must be in \[0, 1\]|target must have shape"):
        Evaluator(log).rule("", always(0, 10))
    with pytest.raises(ValueError, match=r"target.sum\(1\) must be 1, got 0.5"):
        Evaluator(log).rule("", always(0) / 2)
    with pytest.raises(ValueError, match="probabilities must sum to 1 in each row"):
        serve(TABLE, 2 / 3 * UNIFORM)
    with pytest.raises(ValueError, match=r"propensity must be in \(0, 1\]"):
        type(log)(**{**vars(log), "propensity": np.zeros(3000)})
    with pytest.raises(ValueError, match="model must be from 0 to 2, got 0 to 3"):
        type(log)(**{**vars(log), "model": np.full(3000, 3) * (np.arange(3000) == 5)})
