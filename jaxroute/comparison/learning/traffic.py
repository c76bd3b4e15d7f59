"""Prepares recorded queries for online policies."""

from dataclasses import dataclass

import numpy as np

from jaxroute.data import RoutingTable, main_directions

_MOST_MODELS = 16  # Largest number of models for online policies.
_DIRECTIONS, _GROUPS = 8, 8  # Largest numbers of principal directions of the features, and of groups, in a context.
# The least cost of a call, in mean calls of the most expensive model: policies need positive costs.
_LEAST_COST = 1e-6


@dataclass(frozen=True)
class Traffic:
    """Recorded queries, prepared for online policies.

    Attributes:
      table: scores and costs of the available models. Features, if the log has some, have mean 0, and a query's vector has mean squared length 1.
      unit: table like `table`, but with costs in mean calls of the most expensive model, the unit in which policies see costs.
      contexts: `[Q, m]` context of each query: 1, and the principal directions of its features or indicators of its group.
      latency: `[Q, N]` seconds, or None.
      signals: `[Q, N]` self-reported quality of each answer, such as confidence, or None.
    """

    table: RoutingTable
    unit: RoutingTable
    contexts: np.ndarray
    latency: np.ndarray | None = None
    signals: np.ndarray | None = None

    @property
    def num_queries(self) -> int:
        return self.table.num_queries

    @property
    def binary(self) -> bool:
        """Whether all scores are 0 or 1."""
        return bool(np.isin(self.table.scores, (0.0, 1.0)).all())

    @classmethod
    def of(cls, table: RoutingTable, latency: np.ndarray | None = None, signals: np.ndarray | None = None) -> "Traffic":
        """Prepares the queries of a table, with optional latencies and signals `[Q, N]`. Raises ValueError if no model has a positive cost.

        At most 16 models are used: those on the Pareto frontier of mean score and cost, then those of the highest mean scores among the others. If
        the frontier alone has more than 16 models, 16 of them, evenly spaced in their order by cost, are used.
        """
        available = _available(table)
        if len(available) < table.num_models:
            latency, signals = (None if values is None else values[:, available] for values in (latency, signals))
            table = table.subset(models=[table.models[k] for k in available])
        if table.features is None and table.groups is not None:
            # Indicators of the largest groups.
            largest = np.argsort(-np.bincount(table.groups), kind="stable")[:_GROUPS]
            table = table.with_features((table.groups[:, None] == largest).astype(np.float32))
        if table.features is not None:
            # Mean 0 and mean squared length 1, so that gradient steps do not depend on the scale of features.
            features = np.asarray(table.features, np.float64)
            features = features - features.mean(axis=0)
            length = float(np.sqrt(np.square(features).sum(axis=1).mean()))
            table = table.with_features(features / length if length > 0 else features)
        most_expensive = float(table.mean_costs().max())
        if not most_expensive > 0:
            raise ValueError("costs must be above 0 for some model, got none: there is nothing to save")
        costs = np.maximum(table.costs / most_expensive, _LEAST_COST)
        cost_unit = "mean calls of the most expensive model"
        unit = RoutingTable(table.scores, costs, table.models, table.features, cost_unit=cost_unit)
        contexts = np.ones((table.num_queries, 1))
        if table.features is not None:
            contexts = main_directions(table.features, min(_DIRECTIONS, table.features.shape[1]))
        return cls(table, unit, contexts, latency, signals)

    def blind_cost(self, quality: float) -> float:
        """Returns the least mean cost of reaching the mean score `quality` by a random choice between models, without looking at the query.

        `quality` is clipped to the range of the models' mean scores. The cost is in mean calls of the most expensive model.
        """
        score, cost = self.unit.mean_scores(), self.unit.mean_costs()
        quality = float(np.clip(quality, score.min(), score.max()))
        below, above = np.meshgrid(np.arange(len(score)), np.arange(len(score)), indexing="ij")
        span = score[above] - score[below]
        part = np.where(span > 0, (quality - score[below]) / np.where(span > 0, span, 1.0), 0.0)
        fits = (score[below] <= quality) & (score[above] >= quality)
        return float(np.where(fits, cost[below] + part * (cost[above] - cost[below]), np.inf).min())


def _available(table: RoutingTable) -> list[int]:
    """Returns the indices of the models that are used (at most 16, see `Traffic.of`), in the order of the table."""
    score, cost = table.mean_scores(), table.mean_costs()
    beaten = [bool(((cost <= c) & (score > s)).any()) for s, c in zip(score, cost, strict=True)]
    front = sorted((k for k in range(table.num_models) if not beaten[k]), key=lambda k: cost[k])
    if len(front) > _MOST_MODELS:
        return sorted(front[i] for i in np.linspace(0, len(front) - 1, _MOST_MODELS).round().astype(int))
    by_rank = sorted(range(table.num_models), key=lambda k: (beaten[k], -score[k]))
    return sorted(by_rank[:_MOST_MODELS])
