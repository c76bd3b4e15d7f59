"""Gaussian-process model of all evaluations of a structure, which separates the effect of the hyperparameters from noise.

    mean over the seeds of a batch = level + f(point) + noise of the batch + noise of the candidate

Here `level` is a constant and `f` a Gaussian process with a Matern kernel. Candidates of a batch share their seeds, so they share a part of their
noise. Both noise variances are estimated from the runs; length scales and variance of the kernel maximise the posterior density.

Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, eqs. (2.41), (2.42), (2.45), (4.17) and (5.9).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize

from jaxroute.tune.ranking import Estimate, Goal

# A model needs `_FEWEST` evaluations and `_PER_DIMENSION` more per dimension. Its kernel is fitted again when their number has grown by `_GROWTH`.
_FEWEST, _PER_DIMENSION, _GROWTH = 8, 4, 1.25
_MOST = 256  # A model is fitted to the best evaluations: its time grows with the cube of their number.
# Prior of the logarithm of a length scale (mean and standard deviation); bounds of the logarithms of length scales and kernel variance, the
# latter in units of the variance of the values.
_LENGTH, _SPREAD = np.log(0.5), 1.0
_LENGTHS, _SIZES = (np.log(0.05), np.log(5.0)), (np.log(0.01), np.log(100.0))
# Values are clipped this far below the better half, in units of the range of that half without its best fifth. Differences among poor
# candidates carry no information about good ones.
_FLOOR = 3.0
_PRIOR_SEEDS = 4.0  # Weight of the batch's mean variance in the variance of a candidate, in seeds.
_ROOT = np.sqrt(5.0)


class Surrogate:
    """Predicts the score and the bounded metrics at any point of one structure (combination of choices) from all its evaluations."""

    def __init__(self, goal: Goal):
        self.goal = goal
        # For each batch: points `[n, d]`, and a list of values `[n, seed]`, first of the score, then of each bounded metric.
        self._batches: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._estimates: list[Estimate] = []
        self._fitted: tuple[int, list[np.ndarray]] = (0, [])

    def add(self, points: np.ndarray, values: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
        """Adds a batch of `n` candidates.

        `points` `[n, d]` have `d` hyperparameters, scaled to [0, 1]; `values` hold `[n, seed]` for each metric, and `valid` is `[n, seed]`. Batches
        of a single seed and candidates with invalid runs are ignored, because their noise is unknown.
        """
        each = [{name: runs[i] for name, runs in values.items()} for i in range(len(points))]
        runs = [np.array([self.goal.scores(one) for one in each]), *(values[name] for name in self.goal.bounded)]
        sound = valid.all(axis=1) & np.isfinite(runs).all(axis=(0, 2))
        if sound.any() and valid.shape[1] > 1:
            self._batches.append((points[sound], [one[sound] for one in runs]))
            self._estimates += [self.goal.estimate(each[i], valid[i]) for i in np.flatnonzero(sound)]

    def at(self, points: np.ndarray) -> list[Estimate] | None:
        """Returns the predicted score and bounded metrics at points `[k, d]`; None if there are too few evaluations for a model."""
        if not points.shape[1] or len(self._estimates) < _FEWEST + _PER_DIMENSION * points.shape[1]:
            return None
        score, *bounded = [list(zip(*model.predict(points), strict=True)) for model in self._models()]
        each = zip(*bounded, strict=True) if bounded else [()] * len(points)
        return [Estimate(one, dict(zip(self.goal.bounded, more)), True) for one, more in zip(score, each, strict=True)]

    def _models(self) -> list["GaussianProcess"]:
        """Returns a Gaussian process for the score and one for each bounded metric, fitted to the best 256 candidates (in the order of the goal)."""
        every = [observations_of([(at, runs[i]) for at, runs in self._batches]) for i in range(1 + len(self.goal.bounded))]
        order = np.array(self.goal.order(self._estimates))
        every[0] = without_outliers(every[0], order[: -(-len(order) // 2)], 1.0 if self.goal.maximise else -1.0)
        best = np.sort(order[:_MOST])
        seen = [Observations(*(column[best] for column in one)) for one in every]
        number, logs = self._fitted
        if len(best) <= _GROWTH * number:
            return [GaussianProcess(one, log) for one, log in zip(seen, logs, strict=True)]
        models = [GaussianProcess(one) for one in seen]
        self._fitted = len(best), [one.logs for one in models]
        return models


class Observations(NamedTuple):
    """Data of a Gaussian process: one row for each evaluated candidate. The noise of a mean over seeds has two parts.

    Attributes:
      points: `[n, d]` numeric hyperparameters, scaled to [0, 1].
      values: `[n]` means over the seeds.
      noise: `[n]` variance of the mean due to the part of the noise that is independent between candidates.
      batch: `[n]` index of the candidate's batch.
      common: `[n]` variance of the mean due to the part of the noise that all candidates of the batch share.
    """

    points: np.ndarray
    values: np.ndarray
    noise: np.ndarray
    batch: np.ndarray
    common: np.ndarray


def observations_of(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> Observations:
    """Converts batches to observations. A batch is a pair: points `[n, d]`, and values `[n, seed]` of at least two seeds."""
    variances = [_variances(runs) for _, runs in batches]
    counts, seeds = zip(*(runs.shape for _, runs in batches), strict=True)
    common = max(0.0, float(np.average([shared for _, shared in variances], weights=np.array(seeds) - 1)))
    points = np.concatenate([points for points, _ in batches])
    values = np.concatenate([runs.mean(axis=1) for _, runs in batches])
    noise = np.concatenate([own / number for (own, _), number in zip(variances, seeds)])
    return Observations(points, values, noise, np.repeat(np.arange(len(batches)), counts), common / np.repeat(seeds, counts))


def _variances(runs: np.ndarray) -> tuple[np.ndarray, float]:
    """Splits the variance of `runs` `[n, seed]` over seeds into a part of each of the `n` candidates, `[n]`, and a part that is common to all.

    The common part is an estimate that may be negative. It is 0 for a single candidate.
    """
    count, seeds = runs.shape
    common = runs.mean(axis=0) if count > 1 else np.full(seeds, runs.mean())
    left = runs - runs.mean(axis=1, keepdims=True) - (common - common.mean())
    own = np.sum(left**2, axis=1) / ((seeds - 1) * (1.0 - 1.0 / count if count > 1 else 1.0))
    own = ((seeds - 1) * own + _PRIOR_SEEDS * own.mean()) / (seeds - 1 + _PRIOR_SEEDS)
    return own, float(np.var(common, ddof=1) - own.mean() / count) if count > 1 else 0.0


class GaussianProcess:
    """Predicts the mean of a metric at any point from the observations `seen`.

    `logs` are `[d + 1]` logarithms of the length scales and of the kernel variance, such as those of an earlier model; None fits them.
    """

    def __init__(self, seen: Observations, logs: np.ndarray | None = None):
        self.points, self._scale = seen.points, float(np.std(seen.values)) or 1.0
        self._middle = float(np.mean(seen.values))
        self._values = (seen.values - self._middle) / self._scale
        same = seen.batch[:, None] == seen.batch
        self._noise = (np.diag(seen.noise) + np.where(same, seen.common, 0.0)) / self._scale**2
        self._noise += 1e-6 * np.eye(len(self._values))
        if logs is None:  # Those with the largest posterior density.
            number = self.points.shape[1]
            start, bounds = np.append(np.full(number, _LENGTH), 0.0), [*[_LENGTHS] * number, _SIZES]
            logs = optimize.minimize(self._negative_log_posterior, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        self.logs: np.ndarray = logs
        self._solved = self._solve(self._kernel(self.logs, self.points))

    def _squared_distances(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Returns squared differences `[n, k, d]` between the `n` observed points and `points` `[k, d]`, in units of the length scales in `logs`."""
        return ((self.points[:, None] - points) / np.exp(logs[:-1])) ** 2

    def _kernel(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Returns covariances `[n, k]` of the `n` observed points with `points` `[k, d]`. Source: eq. (4.17), one length scale per dimension."""
        r = _ROOT * np.sqrt(self._squared_distances(logs, points).sum(axis=-1))
        return np.exp(logs[-1]) * (1.0 + r + r**2 / 3.0) * np.exp(-r)

    def _solve(self, kernel: np.ndarray) -> tuple[Any, np.ndarray, float, float, np.ndarray]:
        """Returns, for `C = kernel + noise`: its Cholesky factor, `C^-1 ones`, precision and mean of `level`, and `C^-1 (values - level)`."""
        factor = linalg.cho_factor(kernel + self._noise, lower=True)
        ones = linalg.cho_solve(factor, np.ones(len(self._values)))
        precision = float(ones.sum())
        level = float(ones @ self._values) / precision
        return factor, ones, precision, level, linalg.cho_solve(factor, self._values - level)

    def _negative_log_posterior(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the negative log-posterior of the kernel parameters (`level` is integrated out) and its gradient. Source: eqs. (2.45) and (5.9)."""
        squares, kernel = self._squared_distances(logs, self.points), self._kernel(logs, self.points)
        factor, ones, precision, level, weights = self._solve(kernel)
        away = (logs[:-1] - _LENGTH) / _SPREAD
        value = 0.5 * float((self._values - level) @ weights) + float(np.log(np.diag(factor[0])).sum())
        value += 0.5 * float(np.log(precision) + away @ away)
        r = _ROOT * np.sqrt(squares.sum(axis=-1))
        slope = np.exp(logs[-1]) * (5.0 / 3.0) * (1.0 + r) * np.exp(-r)
        inverse = linalg.cho_solve(factor, np.eye(len(ones))) - np.outer(ones, ones) / precision
        pull = 0.5 * (inverse - np.outer(weights, weights))
        lengths = np.einsum("ij,ij,ijd->d", pull, slope, squares) + away / _SPREAD
        return value, np.append(lengths, np.sum(pull * kernel))

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the predicted mean, without noise, and its standard deviation at points `[k, d]`, `[k]` each. Source: eqs. (2.41) and (2.42)."""
        factor, ones, precision, level, weights = self._solved
        across = self._kernel(self.logs, points)
        mean = level + across.T @ weights
        variance = np.exp(self.logs[-1]) - np.sum(across * linalg.cho_solve(factor, across), axis=0)
        variance += (1.0 - across.T @ ones) ** 2 / precision
        return self._middle + self._scale * mean, self._scale * np.sqrt(np.maximum(variance, 0.0))


def without_outliers(seen: Observations, good: np.ndarray, sign: float) -> Observations:
    """Returns the observations with very bad values clipped, because they would dominate a fit.

    `sign` is 1 if more is better, else -1. `good` has the indices of the better half of the candidates: of their values times `sign`, `low` is the
    least and `high` the 80 % quantile. All values times `sign` are raised to at least `low - 3 (high - low)`.
    """
    values = sign * seen.values
    low, high = np.quantile(values[good], [0.0, 0.8])
    return seen._replace(values=sign * np.maximum(values, low - _FLOOR * (high - low)))
