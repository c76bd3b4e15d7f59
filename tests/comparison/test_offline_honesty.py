"""Rules are evaluated on held-out queries, and confidence intervals cover."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_mean_close
from offline_cases import noise, world

from jaxroute.comparison.offline import fit_mixture, offline, router, sample_of
from jaxroute.comparison.offline.cascade import LEARNED
from jaxroute.comparison.offline.crossfit import crossfit, estimate
from jaxroute.comparison.offline.measure import strategies
from jaxroute.comparison.offline.part import Part
from jaxroute.comparison.offline.router import BEST_MIXTURE
from jaxroute.data.predictors import Sample, random_folds


def test_every_query_is_held_out_once_in_each_partition():
    for num_queries, num_folds in ((8, 2), (9, 4), (365, 4)):
        sample = sample_of(noise(0, num_queries))
        folds = [random_folds(sample, num_folds, (7, p)) for p in range(3)]
        for each in folds:
            assert np.ptp(np.bincount(each, minlength=num_folds)) <= 1
        assert not np.array_equal(folds[0], folds[1])
        numbered = replace(sample, prompts=np.arange(num_queries)[::-1])
        np.testing.assert_array_equal(random_folds(numbered, num_folds, (7, 0)), folds[0])


def test_copies_of_a_prompt_are_in_the_same_fold():
    table = replace(world(0, 60), prompts=np.random.default_rng(0).integers(0, 20, 60) * 7)
    sample, parts = sample_of(table), []

    def watched(part):
        parts.append(part.sample.prompts)
        return BEST_MIXTURE.fit(part)

    crossfit(sample, [replace(BEST_MIXTURE, fit=watched)], (0.7,), 2, 3)
    for partition in (parts[:3], parts[3:]):
        left_out = [set(sample.prompts) - set(fitted) for fitted in partition]
        assert sorted(prompt for fold in left_out for prompt in fold) == sorted(set(sample.prompts))
        assert sum(np.isin(sample.prompts, fitted).sum() - fitted.size for fitted in partition) == 0
    folds = Part(sample).folds
    assert all(np.ptp(folds[sample.prompts == prompt]) == 0 for prompt in set(sample.prompts))
    with pytest.raises(ValueError, match="table has 7 queries with different prompts; fitting and evaluation"):
        sample_of(replace(table, prompts=np.arange(60) % 7))


def spied(strategy, said):
    """A strategy that also writes its rules in words to a list."""

    def fit(part):
        fitted = strategy.fit(part)
        said.append([str(fitted.tuned(target)) for target in (0.5, 0.7, 0.8)])
        return fitted

    return replace(strategy, fit=fit)


def test_scores_of_held_out_queries_do_not_change_fitted_rules():
    sample = sample_of(world(0, 60))
    judged = random_folds(sample, 2, (7, 0)) == 0
    scores = np.array(sample.scores)
    scores[judged] = np.random.default_rng(0).permutation(scores[judged])
    changed = Sample(sample.models, scores, sample.costs, None, sample.features, sample.groups)
    said = [[], []]
    for each, what in zip((sample, changed), said):
        crossfit(each, [spied(a, what) for a in strategies(sample)], (0.7,), 1, 2)
    number = len(strategies(sample))
    assert said[0][:number] == said[1][:number]
    assert said[0][number:] != said[1][number:]  # Those of the other half were fitted to them.


def test_noise_gains_nothing():
    """Tuned rules seem better than the models on the fitting part, but not on held-out queries. Perfect judges are better, since they see scores."""
    used, targets = [BEST_MIXTURE, router.NEIGHBOURS, router.LOGISTIC, LEARNED], (0.6,)
    judged = np.empty((len(used), 40))
    seeming = []
    for seed in range(40):
        sample = sample_of(noise(seed, 60))
        for i, of_targets in enumerate(crossfit(sample, used, targets, 2, 2)):
            judged[i, seed] = of_targets[0].values["quality"].mean()
        seeming.append(max(sample.scores[:30].mean(0)))
    assert np.mean(seeming) > 0.53
    for strategy, each in zip(used, judged):
        assert_mean_close(each, 0.5, num_sigma=3.5, what=strategy.name)


def test_the_error_has_both_parts():
    values = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    rules = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    # Of the second partition 0.75, variance of its queries 1/4 over 4 of them. From the mean of both, the first partition is -1/2 on query 1, so
    # its rules are -1/4 and 0 away; those of the second 1/4 and 0: (1/16 + 1/16) / 4 on average, doubled for two partitions.
    found = estimate(values, rules, 1)
    assert found.value == 0.75
    assert found.error == pytest.approx(np.sqrt(0.25 / 4 + 2 / 32))
    assert estimate(values, rules, 0).value == 0.5
    alone = estimate(values[:1], rules[:1], 1)
    assert (alone.value, alone.error) == (0.5, pytest.approx(np.sqrt(1 / 3 / 4)))


def _z(found, truth):
    return (found.value - truth) / found.error


def test_errors_of_models_and_mixtures_cover():
    """Against the distribution that the tables are drawn from: models, and the mixture that the whole table gives."""
    right, costs = np.array([[0.9, 0.3, 0.2, 0.6], [0.9, 0.9, 0.9, 0.7]]).T, np.array([0.1, 2.0])
    singles, mixtures = [], []
    for seed in range(120):
        table = world(seed, 100, right, costs, features=False)
        points = crossfit(sample_of(table), [BEST_MIXTURE], (0.7,), 4, 3)[0][0].measures(1)
        rule = fit_mixture(table, 0.7)
        quality = right.mean(0)
        truth = (1 - rule.weight) * quality[rule.first] + rule.weight * quality[rule.second]
        mixtures.append(_z(points.quality, truth))
        singles.append(_z(estimate(table.scores[:, :1].T.astype(float), np.zeros((1, 100), int)), quality[0]))
    for z in (np.array(singles), np.array(mixtures)):
        assert 0.88 <= np.mean(np.abs(z) < 2) <= 1.0
        assert 0.5 < np.mean(z**2) < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Nearest neighbours", "Logistic regression", "FrugalGPT cascade", "FrugalGPT cascade, perfect judge"])  # fmt: skip
def test_errors_of_fitted_rules_cover(name):
    """Judged quality and cost against what the rule of the whole table has on many fresh queries of the same distribution."""
    fresh, z = sample_of(world(10**6, 10_000)), []
    for seed in range(80):
        sample = sample_of(world(seed, 200))
        strategy = next(a for a in strategies(sample) if a.name == name)
        judged = crossfit(sample, [strategy], (0.7,), 4, 3)[0][0].measures(1)
        outcomes = strategy.fit(Part(sample, 0)).tuned(0.7).evaluate(fresh)
        z.append((_z(judged.quality, outcomes.quality.mean()), _z(judged.cost, outcomes.cost.mean())))
    within, mean = np.mean(np.abs(np.array(z)) < 2, axis=0), np.mean(z, axis=0)
    assert (within >= [0.88, 0.8]).all(), within
    assert (mean**2 < 0.5).all(), mean


def test_the_two_halves_of_the_partitions_are_different_but_agree():
    points = [p for p in offline(world(1, 200), (0.7,)) if p.kind == "offline"]
    for point in points:
        gap = point.chosen_by.quality.value - point.judged.quality.value
        assert abs(gap) < 2 * point.judged.quality.error
    assert any(p.chosen_by != p.judged for p in points)
