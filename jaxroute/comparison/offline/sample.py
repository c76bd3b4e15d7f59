"""Samples of queries for fitting and evaluating rules, and the outcomes of a rule on a sample."""

from dataclasses import dataclass, replace

import numpy as np

from jaxroute.data import RoutingTable
from jaxroute.data.predictors import Sample


def sample_of(table: RoutingTable, latency: np.ndarray | None = None) -> Sample:
    """Converts a table to a sample of all its queries. Models are sorted by mean cost, so no result depends on their order in the table.

    Args:
      table: the table.
      latency: `[Q, N]` seconds of each call, or None.

    Raises:
      ValueError: fewer than eight queries have different prompts, or the latencies do not fit the table.
    """
    sample = Sample.of(table.order_by_cost())
    number = sample.numbered().max() + 1
    if number < 8:
        which = "queries" if sample.prompts is None else "queries with different prompts"
        raise ValueError(f"table has {number} {which}; fitting and evaluation on different parts needs at least 8")
    if latency is not None:
        latency = np.asarray(latency, np.float64)
        if latency.shape != table.scores.shape:
            raise ValueError(f"latency has shape {latency.shape}; expected {table.scores.shape}, the shape of scores")
        if not (np.isfinite(latency) & (latency >= 0)).all():
            raise ValueError("latency must be finite and at least 0")
        latency = latency[:, [table.models.index(name) for name in sample.models]]
    return replace(sample, latency=latency)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Quality, cost, calls and latency of each query under a rule.

    Attributes:
      quality: `[Q]` score of the served answer.
      cost: `[Q]` cost of all calls.
      calls: `[Q]` number of models called.
      sent: `[N]` number of queries for which each model was called.
      latency: `[Q]` seconds of successive calls; None if the sample has none.
    """

    quality: np.ndarray
    cost: np.ndarray
    calls: np.ndarray
    sent: np.ndarray
    latency: np.ndarray | None = None


def single_call(sample: Sample, chosen: np.ndarray) -> Outcomes:
    """Returns the outcomes if each query is answered by one model, whose index is `chosen`, `[Q]`."""
    rows = np.arange(sample.num_queries)
    latency = None if sample.latency is None else sample.latency[rows, chosen]
    sent = np.bincount(chosen, minlength=sample.num_models).astype(np.float64)
    return Outcomes(sample.scores[rows, chosen], sample.costs[rows, chosen], np.ones(len(rows)), sent, latency)


def several_calls(sample: Sample, called: np.ndarray, quality: np.ndarray) -> Outcomes:
    """Returns the outcomes of several successive calls for each query.

    Args:
      sample: the queries.
      called: `[Q, N]` mask of the called models.
      quality: `[Q]` score of the served answer.
    """
    latency = None if sample.latency is None else np.where(called, sample.latency, 0.0).sum(1)
    calls, sent = (called.sum(axis).astype(np.float64) for axis in (1, 0))
    return Outcomes(quality, np.where(called, sample.costs, 0.0).sum(1), calls, sent, latency)
