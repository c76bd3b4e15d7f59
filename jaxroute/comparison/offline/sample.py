"""Queries that rules are fitted to and judged on, and what a rule does with them."""

from dataclasses import dataclass, replace

import numpy as np

from jaxroute.data import RoutingTable
from jaxroute.data.predictors import Sample


def sample_of(table: RoutingTable, latency: np.ndarray | None = None) -> Sample:
    """All queries of a table, its models from the lowest mean cost on: no result depends on the order of the models in the table.

    Args:
      table: the table.
      latency: `[Q, N]` seconds of each call, or None.

    Raises:
      ValueError: there are fewer than eight queries with different prompts, or the latencies do not fit the table.
    """
    sample = Sample.of(table.order_by_cost())
    number = sample.numbered().max() + 1
    if number < 8:
        which = "queries" if sample.prompts is None else "queries with different prompts"
        raise ValueError(f"table has {number} {which}; rules are fitted to one part and judged on another from 8 on")
    if latency is not None:
        latency = np.asarray(latency, np.float64)
        if latency.shape != table.scores.shape:
            raise ValueError(f"latency has shape {latency.shape}; expected {table.scores.shape}, the shape of scores")
        if not (np.isfinite(latency) & (latency >= 0)).all():
            raise ValueError("latency must be finite and at least 0")
        latency = latency[:, [table.models.index(name) for name in sample.models]]
    return replace(sample, latency=latency)


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
