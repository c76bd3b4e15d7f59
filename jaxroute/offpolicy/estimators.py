"""Estimators of the value of a routing rule from a log in which each query was answered by a model that another rule chose.

Notation: `Q` queries, `A` answers (usually one for each query), `N` models. The weight of an answer is the probability of its model under the
evaluated rule divided by its propensity, the probability with which the log's rule let this model answer. A value is the mean of the
contributions of the queries, whose spread gives the standard error.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxroute.core import checks


@dataclass(frozen=True, eq=False)
class Evidence:
    """Answers of a log as seen by a rule: everything that an estimator needs.

    Attributes:
      target: `[Q, N]` probability of each model under the evaluated rule.
      query: `[A]` index of each answer's query.
      model: `[A]` index of each answer's model.
      propensity: `[A]` probability with which the log's rule let this model answer this query, in (0, 1].
      outcome: `[A]` score, cost or latency of each answer.
      predicted: `[Q, N]` predicted outcomes, which do not depend on the query's own answers (cross-fitting); None for estimators without them.
    """

    target: np.ndarray
    query: np.ndarray
    model: np.ndarray
    propensity: np.ndarray
    outcome: np.ndarray
    predicted: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """Weight of each answer, `[A]`."""
        return self.target[self.query, self.model] / self.propensity

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Adds up values of answers, `[A]`, for each query, `[Q]`."""
        return np.bincount(self.query, values, len(self.target))

    @property
    def direct(self) -> np.ndarray:
        """Predicted outcome of each query under the rule, `[Q]`."""
        return (self.target * self._predictions).sum(1)

    @property
    def residuals(self) -> np.ndarray:
        """Differences between the outcomes of answers and their predictions, `[A]`."""
        return self.outcome - self._predictions[self.query, self.model]

    @property
    def _predictions(self) -> np.ndarray:
        if self.predicted is None:
            raise ValueError("predicted must be [Q, N] predicted outcomes, which this estimator uses, got None")
        return self.predicted


def direct_method(seen: Evidence) -> np.ndarray:
    """Returns the contributions `[Q]` of the direct method: predicted outcomes. They are biased wherever the predictions are.

    Source: Dudik, Langford and Li (2011), section 2.1.
    """
    return seen.direct


def inverse_propensity(seen: Evidence) -> np.ndarray:
    """Returns the contributions `[Q]` of inverse propensity scores: `sum_j w_j r_j` over the answers to a query. Unbiased.

    Source: Horvitz and Thompson (1952); Dudik, Langford and Li (2011), section 2.2.
    """
    return seen.sums(seen.weights * seen.outcome)


def clipped(seen: Evidence, limit: float | None = None) -> np.ndarray:
    """Returns the contributions `[Q]` of inverse propensity scores with weights of at most `limit`. Biased downwards, for outcomes of at least 0.

    The default is the square root of the number of queries, the rate at which bias and variance are balanced.

    Source: Ionides (2008), "Truncated importance sampling", section 2.
    """
    most = math.sqrt(len(seen.target)) if limit is None else float(checks.positive("limit", limit, ()))
    return seen.sums(np.minimum(seen.weights, most) * seen.outcome)


def self_normalised(seen: Evidence) -> np.ndarray:
    """Returns the contributions `[Q]` of the self-normalised estimator, whose mean is `V = sum w r / sum w`; NaN if no weight is above 0.

    The contribution of a query is `V + sum_j w_j (r_j - V) / m`, with `m` the mean of the weights per query (first-order expansion of the ratio).

    Source: Swaminathan and Joachims (2015), equation 5.
    """
    weights = seen.weights
    total = weights.sum()
    if not total > 0:
        return np.full(len(seen.target), np.nan)
    value = (weights * seen.outcome).sum() / total
    return value + seen.sums(weights * (seen.outcome - value)) * (len(seen.target) / total)


def doubly_robust(seen: Evidence) -> np.ndarray:
    """Returns the contributions `[Q]` of the doubly robust estimator: predicted outcomes plus the weighted residuals of the answers.

    Unbiased if the propensities are right, whatever the predictions are.

    Source: Dudik, Langford and Li (2011), equation 3; Dudik et al. (2014).
    """
    return seen.direct + seen.sums(seen.weights * seen.residuals)


def switch(seen: Evidence, threshold: float | None = None) -> np.ndarray:
    """Returns the contributions `[Q]` of the switch estimator: doubly robust where weights are at most `threshold`, predictions elsewhere.

    Without a threshold, that of 20 quantiles of the weights, or infinity, is used whose variance plus squared bound of the bias is least.

    Source: Wang, Agarwal and Dudik (2017), section 3. Differs from the paper: the bias is bounded as in `shrunk`.
    """

    def weights(limit: float) -> np.ndarray:
        return np.where(seen.weights <= limit, seen.weights, 0.0)

    if threshold is not None:
        return _corrected(seen, weights(float(checks.non_negative("threshold", threshold, ()))))
    return _least_error(seen, [weights(limit) for limit in _thresholds(seen.weights)])


def shrunk(seen: Evidence, strength: float | None = None) -> np.ndarray:
    """Returns the contributions `[Q]` of the doubly robust estimator with shrunk weights `lambda w / (w^2 + lambda)`, where lambda is `strength`.

    Without a strength, that of the squares of 20 quantiles of the weights, or infinity, is used whose variance plus squared bound of the bias is least.
    The bound is an estimate of the bias plus its error by Bernstein's inequality.

    Source: Su, Dimakopoulou, Krishnamurthy and Dudik (2020), section 3 (optimistic shrinkage); Saito et al. (2021), Open Bandit Pipeline, for the bound.
    """

    def weights(strength: float) -> np.ndarray:
        return strength * seen.weights / (np.square(seen.weights) + strength) if np.isfinite(strength) else seen.weights

    if strength is not None:
        return _corrected(seen, weights(float(checks.positive("strength", strength, ()))))
    return _least_error(seen, [weights(square) for square in np.square(_thresholds(seen.weights))])


def _corrected(seen: Evidence, weights: np.ndarray) -> np.ndarray:
    """Returns predicted outcomes plus the residuals of the answers, weighted by `weights` `[A]`, `[Q]`."""
    return seen.direct + seen.sums(weights * seen.residuals)


def _thresholds(weights: np.ndarray) -> np.ndarray:
    """Returns 20 quantiles of the positive weights, and infinity, for no change of any weight."""
    positive = weights[weights > 0]
    quantiles = np.quantile(positive, np.linspace(0.05, 1.0, 20)) if positive.size else np.zeros(0)
    return np.unique(np.append(quantiles, np.inf))


def _least_error(seen: Evidence, candidates: list[np.ndarray]) -> np.ndarray:
    """Returns the contributions by the weights, of several `candidates` `[A]`, with the least bound of the squared error."""
    found = [_corrected(seen, weights) for weights in candidates]
    errors = [c.var() / len(c) + bias_bound(seen, weights) ** 2 for c, weights in zip(found, candidates, strict=True)]
    return found[int(np.argmin(errors))]


def bias_bound(seen: Evidence, weights: np.ndarray, doubt: float = 0.05) -> float:
    """Returns an upper bound of the bias that `weights` `[A]` cause instead of the right ones; it is exceeded with probability `doubt`."""
    number, right = len(seen.target), seen.weights
    estimate = abs(seen.sums((right - weights) * seen.residuals).mean())
    logarithm = math.log(2 / doubt)
    spread = math.sqrt(2 * float(np.square(right).sum()) / number * logarithm / number)
    return float(estimate + spread + 2 * right.max(initial=0.0) * logarithm / (3 * number))


def effective_size(weights: np.ndarray) -> float:
    """Returns the number of equally weighted answers that carry as much information as answers with these weights; 0 if all weights are 0.

    Source: Kish (1965): `(sum w)^2 / sum w^2`.
    """
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


# Estimators by name. Each takes `Evidence` and returns the contributions of the queries, `[Q]`.
ESTIMATORS: dict[str, Callable[[Evidence], np.ndarray]] = {
    "direct method": direct_method,
    "inverse propensity": inverse_propensity,
    "clipped": clipped,
    "self-normalised": self_normalised,
    "doubly robust": doubly_robust,
    "switch": switch,
    "shrunk": shrunk,
}
