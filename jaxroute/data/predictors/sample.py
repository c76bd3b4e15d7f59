"""Queries that predictors are fitted to and judged on."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jaxroute.data.table import RoutingTable


@dataclass(frozen=True, eq=False)
class Sample:
    """Some queries of a table, in float64.

    Attributes:
      models: the `N` names, in the order of the columns.
      scores: `[Q, N]` in [0, 1].
      costs: `[Q, N]` in the unit of the table.
      latency: `[Q, N]` seconds, or None.
      features: `[Q, d]`, or None.
      groups: `[Q]` numbers of categories, or None.
      prompts: `[Q]` numbers of prompts, equal for copies of one, or None.
    """

    models: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    latency: np.ndarray | None = None
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    prompts: np.ndarray | None = None

    @classmethod
    def of(cls, table: RoutingTable) -> "Sample":
        """All queries of a table."""
        features = None if table.features is None else table.features.astype(np.float64)
        scores, costs = table.scores.astype(np.float64), table.costs.astype(np.float64)
        return cls(table.models, scores, costs, None, features, table.groups, table.prompts)

    @property
    def num_queries(self) -> int:
        """`Q`."""
        return self.scores.shape[0]

    @property
    def num_models(self) -> int:
        """`N`."""
        return self.scores.shape[1]

    @property
    def described(self) -> bool:
        """Whether the table has features or categories, which are available before a query is served."""
        return self.features is not None or self.groups is not None

    def take(self, rows: np.ndarray) -> "Sample":
        """The queries of some rows, a mask or numbers."""
        part = (None if a is None else a[rows] for a in (self.latency, self.features, self.groups, self.prompts))
        return Sample(self.models, self.scores[rows], self.costs[rows], *part)

    def numbered(self) -> np.ndarray:
        """`[Q]` number of the prompt of each query, from 0 in the order in which prompts appear: 0, 1, ... without copies."""
        if self.prompts is None:
            return np.arange(self.num_queries)
        _, first, number = np.unique(self.prompts, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[number]


class Predictor(Protocol):
    """Predicts the score of each model on each query."""

    def predict(self, sample: Sample) -> np.ndarray:
        """`[Q, N]` predicted scores."""
        ...


def random_folds(sample: Sample, number: int, seed: int | tuple[int, ...] | np.random.Generator) -> np.ndarray:
    """`[Q]` number of the fold of each query, at random: copies of a prompt in one fold, the same number of prompts in each, or one more.

    Args:
      sample: the queries, of which only the number and the prompts matter.
      number: of folds.
      seed: of the draw.
    """
    prompts = sample.numbered()
    return np.random.default_rng(seed).permutation(np.arange(prompts.max() + 1) % number)[prompts]
