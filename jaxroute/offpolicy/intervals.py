"""Standard errors and confidence intervals of means over queries, which may come in clusters, such as users."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
_LARGEST_EXPONENT = 500.0


@dataclass(frozen=True)
class Interval:
    """Confidence interval.

    Attributes:
      low, high: ends of the interval.
    """

    low: float
    high: float


def cluster_sums(contributions: np.ndarray, clusters: np.ndarray | None) -> np.ndarray:
    """Returns deviations of contributions `[E, Q]` from their means, divided by `Q` and added up within clusters, `[E, C]`."""
    deviations = (contributions - contributions.mean(1, keepdims=True)) / contributions.shape[1]
    if clusters is None:
        return deviations
    return np.stack([np.bincount(clusters, row, int(clusters.max()) + 1) for row in deviations])


def covariance(contributions: np.ndarray, clusters: np.ndarray | None = None) -> np.ndarray:
    """Returns the covariance matrix `[E, E]` of the means of `E` rows of contributions, `[E, Q]`; `clusters` `[Q]` are indices of users, or None.

    Source: Liang and Zeger (1986), with the factor `C / (C - 1)` for `C` clusters.
    """
    sums = cluster_sums(contributions, clusters)
    number = sums.shape[1]
    return sums @ sums.T * (number / max(number - 1, 1))


def standard_error(contributions: np.ndarray, clusters: np.ndarray | None = None) -> float:
    """Returns the standard error of the mean of contributions `[Q]`; `clusters` `[Q]` are indices of users, or None."""
    return math.sqrt(float(covariance(contributions[None], clusters)[0, 0]))


def degrees_of_freedom(contributions: np.ndarray, clusters: np.ndarray | None = None) -> float:
    """Returns the degrees of freedom of the standard error of a mean: those of a chi-squared variance with the same relative spread.

    They are `2 C / (kurtosis - 1)` for `C` clusters, and at most `C - 1`: few if a few contributions determine the error.

    Source: Satterthwaite (1946), with the variance of a sample variance.
    """
    sums = cluster_sums(contributions[None], clusters)[0]
    square = float(np.square(sums).mean())
    if not square > 0:
        return math.inf
    kurtosis = float(np.mean((np.square(sums) / square) ** 2))
    return min(2 * len(sums) / max(kurtosis - 1, 1e-12), len(sums) - 1.0)


def quantile(degrees: float, level: float = LEVEL) -> float:
    """Returns the two-sided quantile of Student's distribution; infinite without degrees of freedom."""
    return float(stats.t.ppf((1 + level) / 2, degrees)) if degrees > 0 else math.inf


def score_interval(value: float, error: float, multiple: float, degrees: float) -> Interval:
    """Returns Wilson's interval of a mean in [0, 1] that was estimated with a standard error.

    The number of observations in Wilson's formula is `value (1 - value) / error^2`, that of independent zeros and ones with the same error.

    Args:
      value: estimated mean.
      error: its standard error.
      multiple: multiple of the standard error, such as 1.96.
      degrees: degrees of freedom of the standard error, which count as observations if the error is 0.

    Source: Wilson (1927); Korn and Graubard (1998) for effective numbers.
    """
    if not math.isfinite(multiple):
        return Interval(0.0, 1.0)
    value, square = min(max(value, 0.0), 1.0), multiple * multiple
    number = value * (1 - value) / error**2 if error > 0 and 0 < value < 1 else degrees
    if not number > 0:
        return Interval(0.0, 1.0)
    middle = (value + square / (2 * number)) / (1 + square / number)
    half = multiple / (1 + square / number) * math.sqrt(value * (1 - value) / number + square / (4 * number**2))
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))


def positive_interval(value: float, error: float, multiple: float, degrees: float = math.inf) -> Interval:
    """Returns the interval of a mean of at least 0, such as a cost: that of its logarithm, by the delta method. `degrees` are not used."""
    del degrees
    if not value > 0 or not math.isfinite(multiple):
        return Interval(0.0, math.inf if error > 0 else 0.0)
    factor = math.exp(min(multiple * error / value, _LARGEST_EXPONENT))
    return Interval(value / factor, value * factor)


def simultaneous_quantile(correlation: np.ndarray, level: float = LEVEL, draws: int = 20_000) -> float:
    """Returns the multiple of standard errors within which `E` normal estimates with this correlation `[E, E]` lie together, with probability `level`.

    Source: the max-t method of Hothorn, Bretz and Westfall (2008); the maximum is simulated with a fixed seed.
    """
    normal = np.random.default_rng(0).multivariate_normal(np.zeros(len(correlation)), correlation, draws, method="eigh")
    return float(np.quantile(np.abs(normal).max(1), level))
