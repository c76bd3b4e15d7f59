"""Routers: one model for each query, chosen by predicted scores and mean costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..points import RECORDED
from .candidates import PriceGrid, multipliers
from .crossfit import OfflineStrategy
from .part import Part, Prediction, Predictor
from .sample import Outcomes, Sample, single_call

_PRICES = 80


@dataclass(frozen=True, eq=False)
class Router:
    """Calls the model with the highest `predicted score - price * mean cost`; of equal ones the cheapest.

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
        """`[Q]` index of the model of each query."""
        return np.argmax(self.predictor.predict(sample) - self.price * self.costs, axis=1)

    def evaluate(self, sample: Sample) -> Outcomes:
        """Outcome of each query."""
        return single_call(sample, self.choose(sample))

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """The model to call next for the query of a sample, or None; see `serving.Rule`."""
        del draw  # Nothing is drawn.
        return None if asked else int(self.choose(sample)[0])

    def __str__(self) -> str:
        return f"highest predicted score - {self.price:.3g} x mean cost"


def _fit(part: Part, prediction: Prediction) -> PriceGrid[Router]:
    """Evaluates every price on predictions made without the query's own scores."""
    (predictor, predicted), sample = prediction, part.sample
    costs = sample.costs.mean(0)
    prices, rows = multipliers(costs, _PRICES), np.arange(sample.num_queries)
    reached, spent = np.empty(len(prices)), np.empty(len(prices))
    for i, price in enumerate(prices):
        chosen = np.argmax(predicted - price * costs, axis=1)
        reached[i], spent[i] = sample.scores[rows, chosen].mean(), sample.costs[rows, chosen].mean()
    return PriceGrid(Router(sample.models, predictor, costs, 0.0), prices, reached, spent)


_NEEDS = (RECORDED, "features of each query before it is served")
NEIGHBOURS = OfflineStrategy(
    "Nearest neighbours",
    'fit_router(log.table, {target}, by="neighbours")',
    _NEEDS,
    lambda part: _fit(part, part.neighbours),
)
LOGISTIC = OfflineStrategy(
    "Logistic regression", 'fit_router(log.table, {target}, by="logistic")', _NEEDS, lambda part: _fit(part, part.logistic)
)
