"""Queries to which predictors are fitted, and on which they are evaluated."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from ..table import RoutingTable


@dataclass(frozen=True, eq=False)
class Sample:
    """Some queries of a table, in float64: fields as in `RoutingTable`, and `latency`, `[Q, N]` seconds or None."""

    models: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    latency: np.ndarray | None = None
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    prompts: np.ndarray | None = None

    @classmethod
    def of(cls, table: RoutingTable) -> "Sample":
        """Returns all queries of a table."""
        features = None if table.features is None else table.features.astype(float)
        scores, costs = table.scores.astype(float), table.costs.astype(float)
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
        """Whether there are features or categories, which are known before a query is served."""
        return self.features is not None or self.groups is not None

    def take(self, rows: np.ndarray) -> "Sample":
        """Returns the queries of some rows, a mask or numbers."""
        part = (None if a is None else a[rows] for a in (self.latency, self.features, self.groups, self.prompts))
        return Sample(self.models, self.scores[rows], self.costs[rows], *part)

    def numbered(self) -> np.ndarray:
        """Returns the `[Q]` number of each query's prompt, from 0 in the order of appearance: 0, 1, ... without copies."""
        return np.arange(self.num_queries) if self.prompts is None else pd.factorize(self.prompts)[0]


class Predictor(Protocol):
    """Predicts the score of each model on each query."""

    def predict(self, sample: Sample) -> np.ndarray:
        """Returns `[Q, N]` predicted scores."""
        ...


def random_folds(sample: Sample, number: int, seed: int | tuple[int, ...] | np.random.Generator) -> np.ndarray:
    """Returns the random `[Q]` fold of each query: copies of a prompt in one fold, the same number of prompts in each, or one more."""
    prompts = sample.numbered()
    return np.random.default_rng(seed).permutation(np.arange(prompts.max() + 1) % number)[prompts]
