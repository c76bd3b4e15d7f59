"""Rules that call one model for each query: a mixture ignores the query, a router predicts the score of each model's answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..points import RECORDED
from .crossfit import Candidates, OfflineStrategy, multipliers
from .part import Part, Prediction, Predictor
from .sample import Outcomes, Sample, single_call, steps

_PRICES = 80


@dataclass(frozen=True)
class Mixture:
    """Calls the model `second` with probability `weight`, otherwise the model `first`.

    Attributes:
      models: names of the models.
      first: index of the cheaper model.
      second: index of the better model; equal to `first` if one model is enough.
      weight: probability in [0, 1].
    """

    models: tuple[str, ...]
    first: int
    second: int
    weight: float

    def evaluate(self, sample: Sample) -> Outcomes:
        """Returns the expected outcomes of each query."""
        one, other = (single_call(sample, np.full(sample.num_queries, i)) for i in (self.first, self.second))

        def mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return (1 - self.weight) * a + self.weight * b

        latency = None if one.latency is None or other.latency is None else mean(one.latency, other.latency)
        quality, cost, sent = (mean(getattr(one, name), getattr(other, name)) for name in ("quality", "cost", "sent"))
        return Outcomes(quality, cost, one.calls, sent, latency)

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """Returns the index of the model to call next; None if the last answer is to be served.

        `sample` is one query with the costs of the answers so far; its other costs and its scores are not used. `asked` has the indices of the models
        that answered, in order. The random number `draw`, in [0, 1), selects the model of a mixture.
        """
        if asked:
            return None
        return self.second if draw < self.weight else self.first

    def __str__(self) -> str:
        if self.first == self.second or self.weight == 0:
            return self.models[self.first]
        if self.weight == 1:
            return self.models[self.second]
        return f"{self.models[self.second]} for {100 * self.weight:.3g} % of queries, else {self.models[self.first]}"


@dataclass(frozen=True, eq=False)
class Hull:
    """Finds the cheapest mixture of two models that reaches a target, among the models on the upper convex hull of quality over cost.

    Attributes:
      models: names of all models.
      corners: indices of the models for mixtures, from the cheapest to the best.
      quality: `[N]` mean scores of all models.
    """

    models: tuple[str, ...]
    corners: tuple[int, ...]
    quality: np.ndarray

    def tuned(self, target: float) -> Mixture:
        """Returns the cheapest mixture that reaches the target on the queries for fitting, or the best model if none does."""
        quality = self.quality[list(self.corners)]
        upper = int(np.searchsorted(quality, target - 1e-12))
        if upper == 0 or upper == len(quality):
            corner = self.corners[min(upper, len(quality) - 1)]
            return Mixture(self.models, corner, corner, 0.0)
        weight = (target - quality[upper - 1]) / (quality[upper] - quality[upper - 1])
        return Mixture(self.models, self.corners[upper - 1], self.corners[upper], float(np.clip(weight, 0.0, 1.0)))


def hull(cost: np.ndarray, quality: np.ndarray) -> tuple[int, ...]:
    """Returns the indices of the models on the upper convex hull of mean `quality` over mean `cost`, `[N]` each, from the cheapest to the best."""
    first, _, _, after, _ = steps(Sample((), quality[None], cost[None]))
    return (int(first[0]), *map(int, after))


def _fit_mixture(part: Part) -> Hull:
    sample = part.sample
    quality = sample.scores.mean(0)
    return Hull(sample.models, hull(sample.costs.mean(0), quality), quality)


BEST_MIXTURE = OfflineStrategy("Best mixture", "fit_mixture(log.table, {target})", (RECORDED,), _fit_mixture)


@dataclass(frozen=True, eq=False)
class Router:
    """Calls the model with the highest `predicted score - price * mean cost`; the cheapest of several such models.

    Attributes:
      models: names of the models.
      predictor: predictor of scores.
      costs: `[N]` mean costs.
      price: price of a unit of cost, in units of score.
    """

    models: tuple[str, ...]
    predictor: Predictor
    costs: np.ndarray
    price: float

    def choose(self, sample: Sample) -> np.ndarray:
        """Returns the index of the model that each query is sent to, `[Q]`."""
        return np.argmax(self.predictor.predict(sample) - self.price * self.costs, axis=1)

    def evaluate(self, sample: Sample) -> Outcomes:
        return single_call(sample, self.choose(sample))

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        del draw
        return None if asked else int(self.choose(sample)[0])

    def __str__(self) -> str:
        return f"highest predicted score - {self.price:.3g} x mean cost"


@dataclass(frozen=True, eq=False)
class RandomRouter:
    """Sends a query to the choice of one of several routers, drawn with equal probabilities.

    Attributes:
      routers: the routers, with equal models, costs and prices.
    """

    routers: tuple[Router, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return self.routers[0].models

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """Returns the index of the model to call for a query (`sample`); `draw`, in [0, 1), selects the router. None if a model has answered."""
        return self.routers[int(draw * len(self.routers))].next_model(sample, asked, draw)

    def probabilities(self, sample: Sample) -> np.ndarray:
        """Returns the probability with which each query is sent to each model, `[Q, N]`."""
        chosen = np.array([router.choose(sample) for router in self.routers])
        return (chosen[:, :, None] == np.arange(len(self.models))).mean(0)

    def __str__(self) -> str:
        return str(self.routers[0])


def _fit(part: Part, prediction: Prediction) -> Candidates:
    """Returns a router for each price of a grid, with its mean score and cost on `part` by the cross-validated predictions in `prediction`."""
    (predictor, predicted), sample = prediction, part.sample
    costs = sample.costs.mean(0)
    prices, rows = multipliers(costs, _PRICES), np.arange(sample.num_queries)
    reached, spent = np.empty(len(prices)), np.empty(len(prices))
    for i, price in enumerate(prices):
        chosen = np.argmax(predicted - price * costs, axis=1)
        reached[i], spent[i] = sample.scores[rows, chosen].mean(), sample.costs[rows, chosen].mean()
    return Candidates(lambda i: Router(sample.models, predictor, costs, float(prices[i])), reached, spent)


_NEEDS = (RECORDED, "features of each query before it is served")
_CALL = 'fit_router(log.table, {{target}}, by="{}")'
NEIGHBOURS = OfflineStrategy("Nearest neighbours", _CALL.format("neighbours"), _NEEDS, lambda p: _fit(p, p.neighbours))
LOGISTIC = OfflineStrategy("Logistic regression", _CALL.format("logistic"), _NEEDS, lambda p: _fit(p, p.logistic))
