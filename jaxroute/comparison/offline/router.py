"""Routers: one model for each query, chosen by predicted scores and mean costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .candidates import cheapest, multipliers
from .part import Known, Part, Predictor
from .sample import Played, Sample, play_single

_PRICES = 80


@dataclass(frozen=True, eq=False)
class Router:
    """Asks the model with the highest `predicted score - price * mean cost`; of equal ones the cheapest.

    Attributes:
      models: names.
      predictor: of scores, from what is known of a query.
      costs: `[N]` mean costs.
      price: of a unit of cost, in units of score.
    """

    models: tuple[str, ...]
    predictor: Predictor
    costs: np.ndarray
    price: float

    def choose(self, sample: Sample) -> np.ndarray:
        """`[Q]` number of the model of each query."""
        return np.argmax(self.predictor.predict(sample) - self.price * self.costs, axis=1)

    def play(self, sample: Sample) -> Played:
        """What it does with each query."""
        return play_single(sample, self.choose(sample))

    def following(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """The model to ask next for the one query of a sample, None where the last answer is served; see `Way`."""
        del draw  # Nothing is drawn.
        return None if asked else int(self.choose(sample)[0])

    def __str__(self) -> str:
        return f"highest predicted score - {self.price:.3g} x mean cost"


@dataclass(frozen=True, eq=False)
class Prices:
    """Routers of many prices, with what each reaches on the fitting part.

    Attributes:
      models: names.
      predictor: of scores.
      costs: `[N]` mean costs.
      prices: `[L]`.
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
        """The router that reaches the target at least cost."""
        best = cheapest(self.reached, self.spent, target)
        return Router(self.models, self.predictor, self.costs, float(self.prices[best]))


@dataclass(frozen=True)
class Routers:
    """An approach: a predictor of scores, and the price of cost that reaches the target.

    Attributes:
      name: of the approach.
      line: of Python that fits it.
      predictor: which of the part's predictors.
      needs: in production.
    """

    name: str
    line: str
    predictor: Callable[[Part], Known]
    needs: tuple[str, ...] = ("scores of all models on a recorded sample", "features of each query before it is served")

    def fit(self, part: Part) -> Prices:
        """Plays every price on predictions that do not know the query's own scores."""
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
