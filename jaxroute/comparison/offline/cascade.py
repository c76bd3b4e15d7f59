"""FrugalGPT, a cascade: cheap models are called first, and the next model is called only if a judge rejects the answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..points import JUDGE, RECORDED
from .crossfit import Candidates, OfflineStrategy
from .part import Part, Prediction, Predictor
from .sample import Outcomes, Sample, several_calls

THRESHOLDS = 16  # Number of candidate thresholds of each model.
MOST_MODELS = 12  # Largest number of models in a search.


@dataclass(frozen=True, eq=False)
class Cascade:
    """Calls models in order until the judge's value of an answer is at least the model's threshold; the last model's answer is always served.

    Source: Chen et al. (2023), FrugalGPT, eq. (2) and Section 3, "LLM cascade".

    Attributes:
      models: names of the models.
      judge: predicts the probability that each answer is right, `[Q, N]`, from a query and the answers' costs (`predict(sample)`).
      stages: indices of the one to three models to call, in order.
      thresholds: thresholds of all called models except the last.
    """

    models: tuple[str, ...]
    judge: Predictor
    stages: tuple[int, ...]
    thresholds: tuple[float, ...]

    def evaluate(self, sample: Sample) -> Outcomes:
        value = self.judge.predict(sample)
        called, asking = np.zeros(sample.scores.shape, bool), np.ones(sample.num_queries, bool)
        quality = np.empty(sample.num_queries)
        for stage, threshold in zip(self.stages, (*self.thresholds, -np.inf)):
            called[asking, stage] = True
            quality[asking] = sample.scores[asking, stage]
            asking = asking & (value[:, stage] < threshold)
        return several_calls(sample, called, quality)

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        del draw
        stage = len(asked)
        if tuple(asked) != self.stages[:stage]:
            due = " -> ".join(self.models[k] for k in self.stages)
            raise ValueError(f"asked must follow the cascade {due}, got {', '.join(self.models[k] for k in asked)}")
        if stage == len(self.stages):
            return None
        if stage and self.judge.predict(sample)[0, asked[-1]] >= self.thresholds[stage - 1]:
            return None
        return self.stages[stage]

    def __str__(self) -> str:
        parts = [self.models[self.stages[0]]]
        for stage, threshold in zip(self.stages[1:], self.thresholds):
            parts.append(f"-> {self.models[stage]} below {threshold:.2g}")
        return " ".join(parts)


def thresholds_of(values: np.ndarray, number: int = THRESHOLDS) -> np.ndarray:
    """Returns `number` ascending thresholds: midpoints between neighbouring distinct `values`, at evenly spaced quantiles. NaN fills missing ones."""
    seen, counts = np.unique(values, return_counts=True)
    cuts = (seen[1:] + seen[:-1]) / 2
    if len(cuts) > number:
        below = np.cumsum(counts)[:-1] / len(values)
        quantiles = np.arange(1, number + 1) / (number + 1)
        cuts = cuts[np.unique(np.minimum(np.searchsorted(below, quantiles), len(cuts) - 1))]
    return np.append(cuts, np.full(number - len(cuts), np.nan))


def least_dominated(cost: np.ndarray, quality: np.ndarray, most: int = MOST_MODELS) -> np.ndarray:
    """Returns ascending indices of the `most` models that fewest others dominate in mean `cost` and `quality` `[N]`; ties go to higher quality."""
    worse = (cost[:, None] >= cost) & (quality[:, None] <= quality) & ((cost[:, None] > cost) | (quality[:, None] < quality))
    return np.sort(np.lexsort((-quality, worse.sum(1)))[:most])


def search(
    sample: Sample, judge: Predictor, values: np.ndarray, numbers: np.ndarray, number: int = THRESHOLDS
) -> Candidates:
    """Returns all cascades of up to three models, at all thresholds, with their qualities and costs, computed by sums over queries.

    A triple (i, j, k) at thresholds (t, u) serves score `s_i` if the judge's value `v_i >= t`, else `s_j` if `v_j >= u`, else `s_k`. Means need only
    sums of scores and costs over the queries with values below `t` and `u`: cumulative histograms for each pair of models.

    Args:
      sample: the queries for fitting.
      judge: predictor of an answer's score after the call, which the cascades use for new queries.
      values: `[Q, N]` judge's value of each answer, cross-validated if the judge was fitted to `sample`.
      numbers: `[M]` indices of the searched models.
      number: `T`, the number of thresholds of each model.

    Returns:
      Rules in a flat order: `M` single models; pairs `[M, T, M]` (first model, its threshold, second model); triples `[M, M, T, M, T]` (third
      model, then first and second model, each followed by its threshold). The cost is infinite if a model is called twice.
    """
    scores, costs, values = (a[:, numbers].T for a in (sample.scores, sample.costs, values))
    num_models = len(scores)
    cuts = np.stack([thresholds_of(v, number) for v in values])
    cuts = cuts[:, : max(1, int(np.isfinite(cuts).sum(1).max()))]
    one, two = _below(cuts, values, np.concatenate([scores, costs]))
    absent, same = np.isnan(cuts), np.eye(num_models, dtype=bool)

    # `[M, T]` quality of answers that are served at once.
    serve = scores.mean(1)[:, None] - np.einsum("iit->it", one[:num_models])
    pair_quality = serve[:, :, None] + one[:num_models].transpose(1, 2, 0)
    pair_cost = costs.mean(1)[:, None, None] + one[num_models:].transpose(1, 2, 0)
    pair_cost[same[:, None, :] | absent[:, :, None]] = np.inf

    # `[M, T, M, T]` quality of the first two models: j serves the queries that i rejects and j accepts.
    rejected = np.einsum("jijtu->itju", two[:num_models])
    before = pair_quality[..., None] - rejected
    triple_quality = before + two[:num_models].transpose(0, 1, 3, 2, 4)
    triple_cost = pair_cost[..., None] + two[num_models:].transpose(0, 1, 3, 2, 4)
    triple_cost[:, absent[:, :, None, None] | absent[None, None] | same[:, None, :, None]] = np.inf
    triple_cost[np.broadcast_to(same[:, :, None, None, None] | same[:, None, None, :, None], triple_cost.shape)] = np.inf
    reached = np.concatenate([scores.mean(1), pair_quality.reshape(-1), triple_quality.reshape(-1)])
    spent = np.concatenate([costs.mean(1), pair_cost.reshape(-1), triple_cost.reshape(-1)])
    pairs, triples = pair_cost.shape, triple_cost.shape

    def rule(index: int) -> Cascade:
        if index < num_models:
            stages, thresholds = (index,), ()
        elif index < num_models + math.prod(pairs):
            i, t, j = np.unravel_index(index - num_models, pairs)
            stages, thresholds = (i, j), (cuts[i, t],)
        else:
            k, i, t, j, u = np.unravel_index(index - num_models - math.prod(pairs), triples)
            stages, thresholds = (i, j, k), (cuts[i, t], cuts[j, u])
        return Cascade(sample.models, judge, tuple(int(numbers[s]) for s in stages), tuple(map(float, thresholds)))

    return Candidates(rule, np.where(np.isfinite(spent), reached, -np.inf), spent)


def _below(cuts: np.ndarray, values: np.ndarray, amounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums `amounts` `[A, Q]`, such as scores, over the queries whose judged `values` lie below thresholds, and divides by the number of queries `Q`.

    `cuts` `[M, T]` are ascending thresholds of `M` models, padded with NaN; `values` `[M, Q]` are those of the models' answers. Returns sums
    `[A, M, T]` for each model, and `[A, M, M, T, T]` for each pair of models, whose values must both lie below their thresholds.
    """
    (num_models, number), (num_amounts, num_queries) = cuts.shape, amounts.shape
    edges = np.where(np.isnan(cuts), np.inf, cuts)
    # A value in bin b is below the thresholds b, b + 1, ...
    bins = np.stack([np.searchsorted(e, v, side="right") for e, v in zip(edges, values)])
    two = np.empty((num_amounts, num_models, num_models, number + 1, number + 1))
    for i in range(num_models):
        for j in range(i, num_models):
            places = bins[i] * (number + 1) + bins[j]
            for a in range(num_amounts):
                counts = np.bincount(places, weights=amounts[a], minlength=(number + 1) ** 2).reshape(number + 1, number + 1)
                two[a, i, j], two[a, j, i] = counts, counts.T
    two = np.cumsum(np.cumsum(two, axis=3), axis=4)[:, :, :, :number] / num_queries
    return np.einsum("aiit->ait", two[..., -1]), two[..., :number]


def _fit(part: Part, prediction: Prediction) -> Candidates:
    (judge, values), sample = prediction, part.sample
    numbers = least_dominated(sample.costs.mean(0), sample.scores.mean(0))
    return search(sample, judge, values, numbers)


_NEEDS = (RECORDED, "features of each query before it is served", "the cost of each answer")
_NAME, _CALL = "FrugalGPT cascade", 'fit_cascade(log.table, {{target}}, judge="{}")'
LEARNED = OfflineStrategy(_NAME, _CALL.format("learned"), _NEEDS, lambda p: _fit(p, p.judge))
_BY_SCORES = _CALL.format("perfect")
PERFECT = OfflineStrategy(f"{_NAME}, perfect judge", _BY_SCORES, (RECORDED, JUDGE), lambda p: _fit(p, p.perfect))
