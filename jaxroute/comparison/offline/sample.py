"""What a rule is fitted to and judged on, and what it leaves behind."""

from dataclasses import dataclass

import numpy as np

from jaxroute.data import RoutingTable


@dataclass(frozen=True, eq=False)
class Sample:
    """Some queries of a table, in float64.

    Attributes:
      models: the `N` names, from the lowest mean cost of the table on.
      scores: `[Q, N]` in [0, 1].
      costs: `[Q, N]` in the unit of the table.
      latency: `[Q, N]` seconds, or None.
      features: `[Q, d]`, or None.
      groups: `[Q]` numbers of categories, or None.
    """

    models: tuple[str, ...]
    scores: np.ndarray
    costs: np.ndarray
    latency: np.ndarray | None = None
    features: np.ndarray | None = None
    groups: np.ndarray | None = None

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
        """Whether anything is known of a query before it is served."""
        return self.features is not None or self.groups is not None

    def take(self, rows: np.ndarray) -> "Sample":
        """The queries of some rows, a mask or numbers."""
        part = (None if a is None else a[rows] for a in (self.latency, self.features, self.groups))
        return Sample(self.models, self.scores[rows], self.costs[rows], *part)


def sample_of(table: RoutingTable, latency: np.ndarray | None = None) -> Sample:
    """All queries of a table, its models from the lowest mean cost on: no result depends on the order of the models in the table.

    Args:
      table: the table.
      latency: `[Q, N]` seconds of each call, or None.

    Raises:
      ValueError: there are fewer than eight queries, or the latencies do not fit the table.
    """
    if table.num_queries < 8:
        raise ValueError(
            f"table has {table.num_queries} queries; rules are fitted to one part and judged on another from 8 on"
        )
    order = np.argsort(table.mean_costs(), kind="stable")
    if latency is not None:
        latency = np.asarray(latency, np.float64)
        if latency.shape != table.scores.shape:
            raise ValueError(f"latency has shape {latency.shape}; expected {table.scores.shape}, the shape of scores")
        if not (np.isfinite(latency) & (latency >= 0)).all():
            raise ValueError("latency must be finite and at least 0")
        latency = latency[:, order]
    return Sample(
        tuple(table.models[i] for i in order),
        table.scores[:, order].astype(np.float64),
        table.costs[:, order].astype(np.float64),
        latency,
        None if table.features is None else table.features.astype(np.float64),
        table.groups,
    )


@dataclass(frozen=True, eq=False)
class Played:
    """What a rule did with each query, `[Q]` each.

    Attributes:
      quality: score of the answer that was served.
      cost: of all calls.
      calls: number of models called.
      sent: `[N]` number of queries for which each model was called.
      latency: seconds, calls one after the other; None where the sample has none.
    """

    quality: np.ndarray
    cost: np.ndarray
    calls: np.ndarray
    sent: np.ndarray
    latency: np.ndarray | None = None


def play_single(sample: Sample, chosen: np.ndarray) -> Played:
    """One call for each query.

    Args:
      sample: the queries.
      chosen: `[Q]` number of the model of each.
    """
    rows = np.arange(sample.num_queries)
    latency = None if sample.latency is None else sample.latency[rows, chosen]
    sent = np.bincount(chosen, minlength=sample.num_models).astype(np.float64)
    return Played(sample.scores[rows, chosen], sample.costs[rows, chosen], np.ones(len(rows)), sent, latency)


def play_called(sample: Sample, called: np.ndarray, quality: np.ndarray) -> Played:
    """Several calls for each query, one after the other.

    Args:
      sample: the queries.
      called: `[Q, N]` whether each model was called.
      quality: `[Q]` score of the answer that was served.
    """
    latency = None if sample.latency is None else np.where(called, sample.latency, 0.0).sum(1)
    calls, sent = (called.sum(axis).astype(np.float64) for axis in (1, 0))
    return Played(quality, np.where(called, sample.costs, 0.0).sum(1), calls, sent, latency)
