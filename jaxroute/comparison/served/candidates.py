"""Routing rules that a served log can compare: single models, a mixture of two, and a router by predicted scores, tuned to target qualities.

Rules are fitted and tuned on four fifths of the queries and used on the other fifth, for each fifth, so that every query is routed by a rule that
its own answer has not influenced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxroute.data.predictors import Sample
from jaxroute.offpolicy import Evaluated, Evaluator

from ..offline.part import CachedPredictor
from ..offline.router import BEST_MIXTURE, Mixture, Router, fit_hull, fit_prices
from ..page.numbers import share

ROUTER = "Regression router"
_FEATURES = "features of each query before it is served"


@dataclass(frozen=True, eq=False)
class Candidate:
    """Routing rule that is compared.

    Attributes:
      strategy: name of the kind of rule; for a single model its name.
      setting: the rule in words, as fitted to the whole log.
      evaluated: its quality and cost on the log.
      rule: the rule fitted to the whole log; None for the log's own rule.
      needs: requirements in production, in words.
      tuned: quality to which it was tuned, or None.
    """

    strategy: str
    setting: str
    evaluated: Evaluated
    rule: Mixture | Router | None
    needs: tuple[str, ...] = ()
    tuned: float | None = None


def outcome_table(evaluator: Evaluator, held_out: int | None = None) -> Sample:
    """Returns doubly robust outcomes of every model on every query, as a sample with models sorted by mean cost.

    The outcome of a model is its prediction, plus the residual of its answer over the propensity if it answered. Means over queries are unbiased
    estimates of the model's mean score and cost, so that rules can be fitted to it as to a table in which all models answered. Predictions come from
    other folds than the query's own and `held_out`.
    """
    log = evaluator.log
    assert log.propensity is not None
    place = (log.query, log.model)
    sample = log.sample

    def outcomes(predicted: np.ndarray, observed: np.ndarray) -> np.ndarray:
        table = predicted.copy()
        np.add.at(table, place, (observed - predicted[place]) / log.propensity)
        return table

    scores = outcomes(evaluator.scores.predicted(held_out), log.scores)
    costs = outcomes(evaluator.costs.predicted(held_out), log.costs)
    return replace(sample, scores=scores, costs=costs)


def single_models(evaluator: Evaluator) -> list[Candidate]:
    """Evaluates "always this model" for each model."""
    log = evaluator.log
    found = []
    for number, name in enumerate(log.models):
        target = np.zeros((log.num_queries, log.num_models))
        target[:, number] = 1.0
        rule = Mixture(log.models, number, number, 0.0)
        found.append(Candidate(name, "", evaluator.rule(name, target), rule))
    return found


def tuned_rules(
    evaluator: Evaluator, targets: Sequence[float], models: Sequence[int], progress: Callable[[str], None]
) -> list[Candidate]:
    """Returns mixtures and routers between some `models` (indices), tuned to each of the target qualities; of equal rules the first is listed."""
    log, folds = evaluator.log, evaluator.folds
    if len(models) < 2:
        return []
    whole = outcome_table(evaluator)
    order = sorted(models, key=lambda m: float(whole.costs[:, m].mean()))
    names = tuple(log.models[m] for m in order)
    described = whole.described
    chosen: dict[tuple[str, float], np.ndarray] = {}
    rules: dict[tuple[str, float], Mixture | Router] = {}
    for fold in (None, *range(int(folds.max()) + 1)):
        progress(
            "rules fitted to the whole log" if fold is None else f"fitted rules: part {fold + 1} of {int(folds.max()) + 1}"
        )
        table = whole if fold is None else outcome_table(evaluator, fold)
        train = np.ones(log.num_queries, bool) if fold is None else folds != fold
        part = _of(table.take(train), names, order)
        fits: dict[str, Any] = {BEST_MIXTURE.name: fit_hull(part)}
        if described:
            predicted = evaluator.scores.predicted(fold)[train][:, order]
            predictor = evaluator.scores.predictor(fold)
            predictor = replace(predictor, weights=predictor.weights[:, order])
            fits[ROUTER] = fit_prices(part, (predictor if fold is None else CachedPredictor(predictor), predicted))
        judged = _of(table.take(~train), names, order)
        for strategy, fit in fits.items():
            for target in targets:
                rule = fit.tuned(target)
                if fold is None:
                    rules[strategy, target] = rule
                    chosen[strategy, target] = np.zeros((log.num_queries, log.num_models))
                else:
                    chosen[strategy, target][np.ix_(~train, np.array(order))] = probabilities_of(rule, judged)
    found: list[Candidate] = []
    distinct = [np.eye(log.num_models)[np.full(log.num_queries, model)] for model in range(log.num_models)]
    for (strategy, target), probabilities in chosen.items():
        rule = rules[strategy, target]
        if any(np.array_equal(known, probabilities) for known in distinct):
            continue
        distinct.append(probabilities)
        setting = f"tuned for {share(target)}: {rule}"
        needs = (_FEATURES,) if strategy == ROUTER else ()
        found.append(
            Candidate(strategy, setting, evaluator.rule(f"{strategy} ({share(target)})", probabilities), rule, needs, target)
        )
    return found


def _of(sample: Sample, names: tuple[str, ...], order: Sequence[int]) -> Sample:
    """Returns a sample with only the models `order` (indices), named `names`."""
    return replace(sample, models=names, scores=sample.scores[:, order], costs=sample.costs[:, order])


def probabilities_of(rule: Mixture | Router, sample: Sample) -> np.ndarray:
    """Returns the probability with which a rule sends each query to each model, `[Q, N]`."""
    found = np.zeros(sample.scores.shape)
    if isinstance(rule, Router):
        found[np.arange(len(found)), rule.choose(sample)] = 1.0
        return found
    found[:, rule.first] += 1 - rule.weight
    found[:, rule.second] += rule.weight
    return found
