"""Routing rules that a served log can compare: single models, mixtures of two, and routers by predicted scores.

A router consists of five, each fitted to four fifths of the queries and evaluated on the other fifth, so that no query is routed by a rule that its
own answer has influenced. A new query is sent to one of the five, drawn at random: what is saved is what was evaluated.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxroute.offpolicy import Evaluated, Evaluator

from ..offline.crossfit import multipliers
from ..offline.router import BEST_MIXTURE, Mixture, RandomRouter, Router, hull

ROUTER = "Regression router"
_FEATURES = "features of each query before it is served"
_PRICES, _ROUTERS = (
    200,
    24,
)  # Number of prices of a unit of cost, and largest number of routers, which have some of these prices.
_WEIGHTS = np.arange(1, 10) / 10  # Shares of the better model in a mixture.


@dataclass(frozen=True, eq=False)
class Candidate:
    """Routing rule that is compared.

    Attributes:
      strategy: name of the kind of rule; for a single model its name.
      setting: the rule in words; empty for a single model.
      evaluated: its quality and cost on the log.
      rule: the rule.
      needs: requirements in production, in words.
    """

    strategy: str
    setting: str
    evaluated: Evaluated
    rule: Mixture | RandomRouter
    needs: tuple[str, ...] = ()


def single_models(evaluator: Evaluator) -> list[Candidate]:
    """Evaluates "always this model" for each model."""
    models = evaluator.log.models
    rules = [Mixture(models, number, number, 0.0) for number in range(len(models))]
    return [
        Candidate(name, "", evaluator.rule(name, _target(evaluator, rule)), rule)
        for name, rule in zip(models, rules, strict=True)
    ]


def fitted_rules(evaluator: Evaluator, singles: Sequence[Candidate]) -> list[Candidate]:
    """Evaluates mixtures of two models and routers between the models that the log supports, of those in `singles`; equal rules are listed once.

    Mixtures are those of neighbours on the convex hull of quality over cost, in steps of a tenth. Routers have different prices of a unit of cost.
    """
    used = [single for single in singles if single.evaluated.known != "extrapolated"]
    used.sort(key=lambda single: single.evaluated.cost.value)
    if len(used) < 2:
        return []
    models = evaluator.log.models
    order = [models.index(single.strategy) for single in used]
    quality, cost = (np.array([getattr(single.evaluated, name).value for single in used]) for name in ("quality", "cost"))
    corners = [order[i] for i in hull(cost, quality)]
    rules: list[tuple[str, Mixture | RandomRouter]] = []
    for first, second in itertools.pairwise(corners):
        rules += [(BEST_MIXTURE.name, Mixture(models, first, second, float(weight))) for weight in _WEIGHTS]
    if evaluator.log.sample.described:
        fits = [evaluator.scores.predictor(fold) for fold in range(evaluator.num_folds)]
        fits = [replace(fit, weights=fit.weights[:, order]) for fit in fits]
        names = tuple(models[m] for m in order)
        for price in _prices(evaluator.scores.predicted()[:, order], cost):
            rules.append((ROUTER, RandomRouter(tuple(Router(names, fit, cost, price) for fit in fits))))
    found: list[Candidate] = []
    distinct = {hash(_target(evaluator, single.rule).tobytes()) for single in singles}
    for strategy, rule in rules:
        target = _target(evaluator, rule, order)
        if (digest := hash(target.tobytes())) not in distinct:
            distinct.add(digest)
            needs = (_FEATURES,) if strategy == ROUTER else ()
            found.append(Candidate(strategy, str(rule), evaluator.rule(f"{strategy} ({rule})", target), rule, needs))
    return found


def _prices(predicted: np.ndarray, cost: np.ndarray) -> list[float]:
    """Returns prices of a unit of cost whose routers differ and have about evenly spaced mean costs. They depend on no query's own answer.

    `predicted` are cross-fitted scores `[Q, N]`, and `cost` mean costs `[N]`.
    """
    prices = multipliers(cost, _PRICES)
    spent = np.array([cost[np.argmax(predicted - price * cost, axis=1)].mean() for price in prices])
    places = np.linspace(spent.min(), spent.max(), _ROUTERS)
    return prices[np.unique([np.argmin(np.abs(spent - place)) for place in places])].tolist()


def _target(evaluator: Evaluator, rule: Mixture | RandomRouter, order: Sequence[int] = ()) -> np.ndarray:
    """Returns the probability of each model for each query, `[Q, N]`; each query goes to the router of its fold, between the models `order`."""
    log = evaluator.log
    found = np.zeros((log.num_queries, log.num_models))
    if isinstance(rule, Mixture):
        found[:, rule.first] += 1 - rule.weight
        found[:, rule.second] += rule.weight
        return found
    router = rule.routers[0]
    best = np.argmax(evaluator.scores.predicted()[:, order] - router.price * router.costs, axis=1)
    found[np.arange(len(found)), np.array(order)[best]] = 1.0
    return found
