"""FrugalGPT: ask cheap models first, and the next only where the judge doubts the answer."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .candidates import cheapest
from .part import Known, Part, Predictor
from .sample import Played, Sample, play_called

# Thresholds that are tried for each model.
THRESHOLDS = 16
# Of more models than these, those are searched that fewest others beat in both quality and cost.
MOST_MODELS = 12


@dataclass(frozen=True, eq=False)
class Cascade:
    """Asks `stages` one after the other until the judge's value of an answer is at least the stage's threshold; the last is always served.

    Source: Chen et al. (2023), FrugalGPT, eq. (2) and Section 3, "LLM cascade".

    Attributes:
      models: names.
      judge: of answers, a value in [0, 1] each.
      stages: numbers of one to three models.
      thresholds: of all stages but the last.
    """

    models: tuple[str, ...]
    judge: Predictor
    stages: tuple[int, ...]
    thresholds: tuple[float, ...]

    def play(self, sample: Sample) -> Played:
        """What it does with each query."""
        value = self.judge.predict(sample)
        called, asking = np.zeros(sample.scores.shape, bool), np.ones(sample.num_queries, bool)
        quality = np.empty(sample.num_queries)
        for stage, threshold in zip(self.stages, (*self.thresholds, -np.inf)):
            called[asking, stage] = True
            quality[asking] = sample.scores[asking, stage]
            asking = asking & (value[:, stage] < threshold)
        return play_called(sample, called, quality)

    def __str__(self) -> str:
        parts = [self.models[self.stages[0]]]
        for stage, threshold in zip(self.stages[1:], self.thresholds):
            parts.append(f"-> {self.models[stage]} below {threshold:.2g}")
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Searched:
    """All cascades of up to three models, with what each reaches on the fitting part.

    Attributes:
      models: names.
      judge: of answers.
      numbers: `[M]` of the models that were searched.
      thresholds: `[M, T]` of each.
      reached: `[C]` mean scores: of single models, then pairs `[M, T, M]`, then triples `[k, i, T, j, T]` with `k` last to be asked.
      spent: `[C]` mean costs; infinite where a model would come twice.
    """

    models: tuple[str, ...]
    judge: Predictor
    numbers: np.ndarray
    thresholds: np.ndarray
    reached: np.ndarray
    spent: np.ndarray

    def tuned(self, target: float) -> Cascade:
        """The cascade that reaches the target at least cost."""
        best = int(cheapest(self.reached, self.spent, target))
        num_models, num_thresholds = self.thresholds.shape
        pairs = num_models * num_thresholds * num_models
        if best < num_models:
            stages, cuts = (best,), ()
        elif best < num_models + pairs:
            i, t, j = np.unravel_index(best - num_models, (num_models, num_thresholds, num_models))
            stages, cuts = (i, j), (self.thresholds[i, t],)
        else:
            shape = (num_models, num_models, num_thresholds, num_models, num_thresholds)
            k, i, t, j, u = np.unravel_index(best - num_models - pairs, shape)
            stages, cuts = (i, j, k), (self.thresholds[i, t], self.thresholds[j, u])
        return Cascade(self.models, self.judge, tuple(int(self.numbers[s]) for s in stages), tuple(map(float, cuts)))


def thresholds_of(values: np.ndarray, number: int = THRESHOLDS) -> np.ndarray:
    """`[number]` thresholds that part the values differently: halfway between neighbours, at quantiles where there are many; NaN fills up."""
    seen, counts = np.unique(values, return_counts=True)
    cuts = (seen[1:] + seen[:-1]) / 2
    if len(cuts) > number:
        below = np.cumsum(counts)[:-1] / len(values)
        wanted = np.arange(1, number + 1) / (number + 1)
        cuts = cuts[np.unique(np.minimum(np.searchsorted(below, wanted), len(cuts) - 1))]
    return np.append(cuts, np.full(number - len(cuts), np.nan))


def sensible(cost: np.ndarray, quality: np.ndarray, most: int = MOST_MODELS) -> np.ndarray:
    """Numbers of at most `most` models: first those that no model beats in both, then those that one beats, and so on."""
    worse = (cost[:, None] >= cost) & (quality[:, None] <= quality) & ((cost[:, None] > cost) | (quality[:, None] < quality))
    return np.sort(np.lexsort((-quality, worse.sum(1)))[:most])


def search(sample: Sample, values: np.ndarray, numbers: np.ndarray, number: int = THRESHOLDS) -> tuple[np.ndarray, ...]:
    """Quality and cost of all cascades of up to three of some models, at all thresholds, by sums over queries.

    A triple (i, j, k) at thresholds (t, u) serves `s_i` where `v_i >= t`, else `s_j` where `v_j >= u`, else `s_k`. With `A` the indicators of
    `v < threshold`, the second term is a product of `A` and `(1 - A) s` over queries, the third of `A` and `A s_k`.

    Args:
      sample: the fitting part.
      values: `[Q, N]` of the judge.
      numbers: `[M]` models.
      number: `T`, thresholds of each.

    Returns:
      thresholds `[M, T]`, then quality and cost `[C]` as in `Searched`.
    """
    scores, costs, values = (a[:, numbers].T for a in (sample.scores, sample.costs, values))
    num_models, num_queries = scores.shape
    cuts = np.stack([thresholds_of(v, number) for v in values])
    cuts = cuts[:, : max(1, int(np.isfinite(cuts).sum(1).max()))]
    number = cuts.shape[1]
    doubted = (values[:, None] < cuts[:, :, None]).astype(np.float64)  # [M, T, Q]
    flat = doubted.reshape(-1, num_queries)
    serve = ((1 - doubted) * scores[:, None]).mean(2)  # [M, T] served at once
    pair_quality = serve[:, :, None] + (flat @ scores.T / num_queries).reshape(num_models, number, num_models)
    second_cost = (flat @ costs.T / num_queries).reshape(num_models, number, num_models)
    pair_cost = costs.mean(1)[:, None, None] + second_cost
    absent = np.isnan(cuts)
    same = np.eye(num_models, dtype=bool)
    pair_cost[same[:, None, :] | absent[:, :, None]] = np.inf

    second = flat @ ((1 - doubted) * scores[:, None]).reshape(-1, num_queries).T / num_queries
    before = serve.reshape(-1)[:, None] + second
    shape = (num_models, number, num_models, number)
    triple_quality, triple_cost = np.empty((num_models, *shape)), np.empty((num_models, *shape))
    never = same[:, None, :, None] | absent[:, :, None, None] | absent[None, None]
    for k in range(num_models):
        triple_quality[k] = (before + (flat * scores[k]) @ flat.T / num_queries).reshape(shape)
        third = ((flat * costs[k]) @ flat.T / num_queries).reshape(shape)
        triple_cost[k] = pair_cost[..., None] + third
        triple_cost[k][never | same[k][:, None, None, None] | same[k][None, None, :, None]] = np.inf
    reached = np.concatenate([scores.mean(1), pair_quality.reshape(-1), triple_quality.reshape(-1)])
    spent = np.concatenate([costs.mean(1), pair_cost.reshape(-1), triple_cost.reshape(-1)])
    return cuts, np.where(np.isfinite(spent), reached, -np.inf), spent


@dataclass(frozen=True)
class Cascades:
    """An approach: a judge, and the models, their order and the thresholds that reach the target.

    Attributes:
      name: of the approach.
      line: of Python that fits it.
      judge: which of the part's judges.
      needs: in production.
    """

    name: str
    line: str
    judge: Callable[[Part], Known]
    needs: tuple[str, ...]

    def fit(self, part: Part) -> Searched:
        """Searches all cascades of the sensible models."""
        (judge, values), sample = self.judge(part), part.sample
        numbers = sensible(sample.costs.mean(0), sample.scores.mean(0))
        return Searched(sample.models, judge, numbers, *search(sample, values, numbers))


_RECORDED, _JUDGE = "scores of all models on a recorded sample", "a judge of each answer before it is served"
LEARNED = Cascades(
    "FrugalGPT cascade",
    'fit_cascade(table, {target}, judge="learned")',
    lambda part: part.judge,
    (_RECORDED, "features of each query before it is served", _JUDGE),
)
PERFECT = Cascades(
    "FrugalGPT cascade, perfect judge",
    'fit_cascade(table, {target}, judge="perfect")',
    lambda part: part.perfect,
    (_RECORDED, _JUDGE),
)
