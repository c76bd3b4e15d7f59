"""Cascade routing: after each answer, a rule either calls another model or serves the best answer so far."""

import itertools
from dataclasses import dataclass

import numpy as np

from ..points import JUDGE, RECORDED
from .crossfit import Candidates, OfflineStrategy, between, multipliers
from .part import Part, Predictor
from .sample import Outcomes, Sample, several_calls

_PRICES, _FURTHER = 14, 22  # Number of prices in the first grid, and in the second one where quality falls most.
_ROWS = 8192  # Number of queries that are computed together.
_MOST_FOR_PAIRS = 16  # Largest number of models for which two further calls are considered at once.


@dataclass(frozen=True, eq=False)
class CascadeRouting:
    """Calls further models while the best set of one or two more answers is expected to be worth its cost, and serves the best answer.

    With the best score so far, `b`, a set `M` of further models is worth `(1 - b)(1 - prod_j (1 - p_j)) - price * sum_j c_j`, where `c_j` is the mean
    cost. An answer is assumed right or wrong; it is right with probability `p_j`, the conditional mean of its score given the scores so far under a
    normal distribution. The cheapest model of the best set is called, or none if no set is worth more than 0. One model is always called.

    Source: Dekoninck et al. (2024), "A unified strategy to routing and cascading for LLMs", Section 4.

    Differs from the paper: only sets ("supermodels") of one or two further models are considered; the judge is perfect, so past scores lack noise.

    Attributes:
      models: names of the models, in increasing order of mean cost.
      predictor: predictor of scores before any call.
      covariance: `[N, N]` covariance of the predictor's residuals.
      costs: `[N]` mean costs.
      price: price of a unit of cost, in units of score.
    """

    models: tuple[str, ...]
    predictor: Predictor
    covariance: np.ndarray
    costs: np.ndarray
    price: float

    def evaluate(self, sample: Sample) -> Outcomes:
        prices = np.full(sample.num_queries, self.price)
        called = calls(self.predictor.predict(sample), sample.scores, self.covariance, self.costs, prices)
        return several_calls(sample, called, np.where(called, sample.scores, 0.0).max(1))

    def __str__(self) -> str:
        return f"continues while the expected gain in score exceeds {self.price:.3g} x mean cost"


def calls(
    before: np.ndarray, scores: np.ndarray, covariance: np.ndarray, costs: np.ndarray, prices: np.ndarray
) -> np.ndarray:
    """Returns which of `N` models cascade routing calls for each of `Q` queries, `[Q, N]` booleans.

    Args:
      before: `[Q, N]` predicted scores before any call.
      scores: `[Q, N]` scores, each used only after its model is called.
      covariance: `[N, N]` covariance of `scores - before`.
      costs: `[N]` mean costs.
      prices: `[Q]` price of a unit of cost for each query, in units of score.
    """
    if len(scores) > _ROWS:
        blocks = [slice(start, start + _ROWS) for start in range(0, len(scores), _ROWS)]
        return np.concatenate([calls(before[b], scores[b], covariance, costs, prices[b]) for b in blocks])
    num_models = scores.shape[1]
    sets = [(i, i) for i in range(num_models)]
    if num_models <= _MOST_FOR_PAIRS:
        sets += itertools.combinations(range(num_models), 2)
    one, other = np.array(sets).T
    set_costs = np.where(one == other, costs[one], costs[one] + costs[other])
    called = np.zeros(scores.shape, bool)
    rows, best = np.arange(len(scores)), np.zeros(len(scores))
    for step in range(num_models):
        p = conditional(before[rows], scores[rows], called[rows], covariance)
        missed = 1 - p
        right = 1 - np.where(one == other, missed[:, one], missed[:, one] * missed[:, other])
        worth = (1 - best[rows])[:, None] * right - prices[rows, None] * set_costs
        worth[called[rows][:, one] | called[rows][:, other]] = -np.inf
        # Rounding must not decide; the first of equal sets has the fewest and cheapest models.
        top = worth.max(1)
        chosen = np.argmax(worth >= top[:, None] - 1e-12, axis=1)
        on = np.ones(len(rows), bool) if step == 0 else top > 1e-12
        rows, cheapest = rows[on], one[chosen[on]]  # Models are sorted by cost, so the first of a set is the cheapest.
        if not rows.size:
            break
        called[rows, cheapest] = True
        best[rows] = np.maximum(best[rows], scores[rows, cheapest])
    return called


def conditional(before: np.ndarray, scores: np.ndarray, called: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Predicts each model's score from the query's known scores: the conditional mean under a normal distribution, `[Q, N]`, clipped to [0, 1].

    `before` are the unconditional means, `[Q, N]`, and `covariance` is `[N, N]`. Scores `[Q, N]` are known where `called` is true.
    """
    if not called.any():
        return np.clip(before, 0.0, 1.0)
    bits = np.packbits(called, axis=1)
    codes = bits.view(f"S{bits.shape[1]}")[:, 0]  # Sorting strings of bytes is faster than sorting rows.
    _, first, which, sizes = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    patterns = called[first]
    seen = patterns[:, :, None] & patterns[:, None, :]
    identity = np.eye(covariance.shape[0])
    # Rows of models that were not called are rows of the identity matrix; the ridge separates copies of a model.
    ridge = 1e-6 * max(float(np.trace(covariance)), 1e-6) * identity
    system = np.where(seen, covariance + ridge, identity * ~patterns[:, :, None])
    gains = np.linalg.solve(system, np.where(patterns[:, :, None], covariance, 0.0))  # [U, seen, N]
    surprise = np.where(called, scores - before, 0.0)
    mean = np.array(before)
    order = np.argsort(which, kind="stable")
    for gain, rows in zip(gains, np.split(order, np.cumsum(sizes)[:-1])):
        mean[rows] += surprise[rows] @ gain
    return np.clip(mean, 0.0, 1.0)


def shrunk_covariance(missed: np.ndarray) -> np.ndarray:
    """Returns mean products `[N, N]` of the models' residuals `missed` `[Q, N]`. Entries off the diagonal are scaled by `Q / (Q + 10 N)`."""
    num_queries, num_models = missed.shape
    moments = missed.T @ missed / num_queries
    part = num_models / (num_models + num_queries / 10)
    return (1 - part) * moments + part * np.diag(np.diag(moments))


def _fit(part: Part) -> Candidates:
    """Fits cascade routing at a grid of prices (score per unit of cost), then at 22 more prices in gaps where the mean score changes most."""
    sample = part.sample
    predictor, before = part.logistic if sample.described else part.means
    missed, costs = sample.scores - before, sample.costs.mean(0)
    prices = multipliers(costs, _PRICES)
    reached, spent = _evaluate(part, before, prices)
    further = between(prices, reached, _FURTHER)
    if further.size:
        parts = zip((prices, reached, spent), (further, *_evaluate(part, before, further)))
        prices, reached, spent = (np.concatenate(both) for both in parts)
    about = sample.models, predictor, shrunk_covariance(missed), costs
    return Candidates(lambda i: CascadeRouting(*about, float(prices[i])), reached, spent)


def _evaluate(part: Part, before: np.ndarray, prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cross-validates cascade routing with predicted scores `before` `[Q, N]` at `L` prices. Returns mean scores and mean costs, `[L]` each."""
    sample, missed = part.sample, part.sample.scores - before
    reached, spent = np.zeros(len(prices)), np.zeros(len(prices))
    for fold in np.unique(part.folds):
        rows, others = np.flatnonzero(part.folds == fold), part.folds != fold
        every, price = np.tile(rows, len(prices)), np.repeat(prices, len(rows))
        covariance, costs = shrunk_covariance(missed[others]), sample.costs[others].mean(0)
        called = calls(before[every], sample.scores[every], covariance, costs, price)
        called = called.reshape(len(prices), len(rows), -1)
        reached += np.where(called, sample.scores[rows], 0.0).max(2).sum(1) / sample.num_queries
        spent += np.where(called, sample.costs[rows], 0.0).sum((1, 2)) / sample.num_queries
    return reached, spent


_CALL = "fit_cascade_routing(log.table, {target})"
PERFECT_ROUTING = OfflineStrategy("Cascade routing, perfect judge", _CALL, (RECORDED, JUDGE), _fit)
