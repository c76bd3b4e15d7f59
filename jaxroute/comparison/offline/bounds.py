"""Upper bounds for comparison: choices that know the score of every model on a query before any model is called."""

import numpy as np

from .sample import Outcomes, Sample, single_call


def best_of_each(sample: Sample) -> np.ndarray:
    """Returns the index of the model with the highest score on each query, `[Q]`; of equal scores the cheapest, then the first."""
    top = sample.scores >= sample.scores.max(1, keepdims=True)
    return np.argmin(np.where(top, sample.costs, np.inf), axis=1)


def steps(sample: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lists the models of each query along the upper convex hull of score over cost, as steps from its cheapest model to its best one.

    Returns:
      `[Q]` index of the cheapest model, of equal ones the best. Then four arrays over the steps of all queries, in decreasing order of gain
      per cost: index of the query, model before the step, model after it, and gain in score.
    """
    scores, costs, rows = sample.scores, sample.costs, np.arange(sample.num_queries)
    least = costs <= costs.min(1, keepdims=True)
    first = np.argmax(np.where(least, scores, -np.inf), axis=1)
    at, query, before, after, slope = first, [], [], [], []
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
        query.append(moving)
        before.append(at[moving])
        after.append(following[moving])
        slope.append(steepness[moving, following[moving]])
        at = np.where(better.any(1), following, at)
    if not query:
        none = np.zeros(0, int)
        return first, none, none, none, np.zeros(0)
    query, before, after, slope = (np.concatenate(a) for a in (query, before, after, slope))
    order = np.argsort(-slope, kind="stable")
    query, before, after = query[order], before[order], after[order]
    return first, query, before, after, scores[query, after] - scores[query, before]


def cheapest_right(sample: Sample, target: float) -> Outcomes:
    """Solves the linear program of one choice per query exactly: the least cost at which the mean score of this sample reaches the target.

    Steps along the hulls are taken in order of gain per cost until the target is reached, the last one with a probability below 1.

    Args:
      sample: the queries.
      target: mean score; if it is out of reach, every query gets its best model.
    """
    first, query, before, after, gains = steps(sample)
    start = single_call(sample, first)
    missing = target * sample.num_queries - start.quality.sum()
    reached = np.cumsum(gains)
    parts = np.clip((missing - (reached - gains)) / np.where(gains > 0, gains, 1.0), 0.0, 1.0)
    latency = None if start.latency is None else start.latency.copy()
    quality, cost = start.quality.copy(), start.cost.copy()
    for total, values in ((quality, sample.scores), (cost, sample.costs), (latency, sample.latency)):
        if total is not None and values is not None:
            np.add.at(total, query, parts * (values[query, after] - values[query, before]))
    sent = start.sent.copy()
    np.add.at(sent, before, -parts)
    np.add.at(sent, after, parts)
    return Outcomes(quality, cost, start.calls, sent, latency)
