"""Samples of queries for fitting and evaluating rules, and outcomes of a rule on a sample.

Upper bounds on the quality of any rule at a given cost come from rules that know the score of every model on a query before any call.
"""

from dataclasses import dataclass, replace

import numpy as np

from jaxroute.data import RoutingTable
from jaxroute.data.predictors import Sample


def sample_of(table: RoutingTable, latency: np.ndarray | None = None) -> Sample:
    """Converts a table to a sample of all its queries. Models are sorted by mean cost, so no result depends on their order in the table.

    `latency` is `[Q, N]` seconds of each call, or None. Raises `ValueError` if fewer than eight queries have different prompts, or if the latencies
    do not fit the table.
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
    """Quality, cost, calls and latency of each query under a rule; expected values if the rule chooses at random.

    Attributes:
      quality: `[Q]` score of the served answer.
      cost: `[Q]` cost of all calls.
      calls: `[Q]` number of models called.
      sent: `[N]` number of queries for which each model was called.
      latency: `[Q]` seconds of successive calls; None if the sample has no latencies.
    """

    quality: np.ndarray
    cost: np.ndarray
    calls: np.ndarray
    sent: np.ndarray
    latency: np.ndarray | None = None


def single_call(sample: Sample, chosen: np.ndarray) -> Outcomes:
    """Returns the outcomes if each query is answered by a single model; `chosen` has the indices of the models, `[Q]`."""
    rows = np.arange(sample.num_queries)
    latency = None if sample.latency is None else sample.latency[rows, chosen]
    sent = np.bincount(chosen, minlength=sample.num_models).astype(np.float64)
    return Outcomes(sample.scores[rows, chosen], sample.costs[rows, chosen], np.ones(len(rows)), sent, latency)


def several_calls(sample: Sample, called: np.ndarray, quality: np.ndarray) -> Outcomes:
    """Returns the outcomes of successive calls: `called` marks the called models, `[Q, N]`; `quality` are the scores of served answers, `[Q]`."""
    latency = None if sample.latency is None else np.where(called, sample.latency, 0.0).sum(1)
    calls, sent = (called.sum(axis).astype(np.float64) for axis in (1, 0))
    return Outcomes(quality, np.where(called, sample.costs, 0.0).sum(1), calls, sent, latency)


def best_of_each(sample: Sample) -> np.ndarray:
    """Returns the index of the model with the highest score on each query, `[Q]`. Ties go to the cheapest, then to the first."""
    top = sample.scores >= sample.scores.max(1, keepdims=True)
    return np.argmin(np.where(top, sample.costs, np.inf), axis=1)


def steps(sample: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lists the steps from one model to the next better one on the upper convex hull of score over cost, for all queries.

    Returns:
      `[Q]` index of each query's cheapest model (ties go to the best). Then four arrays over the steps of all queries together,
      in decreasing order of gain per cost: index of the query, model before the step, model after it, and gain in score.
    """
    scores, costs, rows = sample.scores, sample.costs, np.arange(sample.num_queries)
    least = costs <= costs.min(1, keepdims=True)
    first = np.argmax(np.where(least, scores, -np.inf), axis=1)
    at, moves = first, [(np.zeros(0, int),) * 4]
    for _ in range(sample.num_models):
        gain, more = scores - scores[rows, at][:, None], costs - costs[rows, at][:, None]
        better = gain > 0
        if not better.any():
            break
        # Better models cost more: the cheapest model is the best of its cost, and later ones are on the hull.
        steepness = np.where(better, gain / np.where(better, np.maximum(more, 1e-300), 1.0), -np.inf)
        steepest = steepness >= steepness.max(1, keepdims=True) * (1 - 1e-12)
        following = np.argmax(np.where(steepest & better, scores, -np.inf), axis=1)
        moving = np.flatnonzero(better.any(1))
        moves.append((moving, at[moving], following[moving], steepness[moving, following[moving]]))
        at = np.where(better.any(1), following, at)
    query, before, after, slope = map(np.concatenate, zip(*moves))
    order = np.argsort(-slope, kind="stable")
    query, before, after = query[order], before[order], after[order]
    return first, query, before, after, scores[query, after] - scores[query, before]


def cheapest_right(sample: Sample, target: float) -> Outcomes:
    """Returns the outcomes of the cheapest choice of a model per query, knowing all scores, whose mean score on this sample reaches the target.

    This linear program is solved exactly: the `steps` of all queries are taken in order of gain per cost until the target is reached, the last with a
    probability below 1. If the target is out of reach, every query gets its best model.
    """
    first, query, before, after, gains = steps(sample)
    found = single_call(sample, first)  # Its arrays are updated below.
    missing = target * sample.num_queries - found.quality.sum()
    reached = np.cumsum(gains)
    parts = np.clip((missing - (reached - gains)) / np.where(gains > 0, gains, 1.0), 0.0, 1.0)
    for total, values in ((found.quality, sample.scores), (found.cost, sample.costs), (found.latency, sample.latency)):
        if total is not None and values is not None:
            np.add.at(total, query, parts * (values[query, after] - values[query, before]))
    np.add.at(found.sent, before, -parts)
    np.add.at(found.sent, after, parts)
    return found
