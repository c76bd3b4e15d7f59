"""Routers: one model for each query, chosen by predicted scores and mean costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .candidates import cheapest, multipliers
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


@dataclass(frozen=True, eq=False)
class Prices:
    """Routers with many prices, with the quality and cost of each on the fitting part.

    Attributes:
      models: names of the models.
      predictor: predictor of scores.
      costs: `[N]` mean costs.
      prices: `[L]` prices.
      reached: `[L]` mean scores.
      spent: `[L]` mean costs.
    """

    models: tuple[str, ...]
    predictor: Predictor
    costs: np.ndarray
    prices: np.ndarray
    reached: np.ndarray
    spent: np.ndarray

    def tuned(self, target: float) -> Router:
        """The router that reaches the target at the least cost."""
        best = cheapest(self.reached, self.spent, target)
        return Router(self.models, self.predictor, self.costs, float(self.prices[best]))


@dataclass(frozen=True)
class Routers:
    """A strategy: a predictor of scores, and the price of cost that reaches the target.

    Attributes:
      name: name of the strategy.
      line: Python code that fits it.
      predictor: selects the predictor of a fitting part.
      needs: requirements in production.
    """

    name: str
    line: str
    predictor: Callable[[Part], Prediction]
    needs: tuple[str, ...] = ("scores of all models on a recorded sample", "features of each query before it is served")

    def fit(self, part: Part) -> Prices:
        """Evaluates every price on predictions made without the query's own scores."""
        (predictor, predicted), sample = self.predictor(part), part.sample
        costs = sample.costs.mean(0)
        prices, rows = multipliers(costs, _PRICES), np.arange(sample.num_queries)
        reached, spent = np.empty(len(prices)), np.empty(len(prices))
        for i, price in enumerate(prices):
            chosen = np.argmax(predicted - price * costs, axis=1)
            reached[i], spent[i] = sample.scores[rows, chosen].mean(), sample.costs[rows, chosen].mean()
        return Prices(sample.models, predictor, costs, prices, reached, spent)


NEIGHBOURS = Routers("Nearest neighbours", 'fit_router(log.table, {target}, by="neighbours")', lambda part: part.neighbours)
LOGISTIC = Routers("Logistic regression", 'fit_router(log.table, {target}, by="logistic")', lambda part: part.logistic)
