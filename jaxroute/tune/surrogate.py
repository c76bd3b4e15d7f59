"""Gaussian-process model of all evaluations of a structure, which separates the effect of the hyperparameters from noise.

    mean over the seeds of a batch = level + f(point) + noise of the batch + noise of the candidate

Candidates of a batch share their seeds, so they share a part of their noise. Variances of both kinds of noise come from the runs; the lengths
and the size of the Matern kernel are the most likely ones.

Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, eqs. (2.41), (2.42), (2.45), (4.17) and (5.9).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize

from jaxroute.tune.ranking import Estimate, Goal

# Fewest evaluations for a model, and how many more for each dimension. Lengths are fitted again when there are `_GROWTH` times as many.
_FEWEST, _PER_DIMENSION, _GROWTH = 8, 4, 1.25
_MOST = 256  # A model is fitted to the best evaluations: its time grows with the cube of their number.
# Prior of the logarithm of a length (mean and standard deviation), and bounds of the logarithms of lengths and of the kernel's size, the
# latter in units of the variance of the values.
_LENGTH, _SPREAD = np.log(0.5), 1.0
_LENGTHS, _SIZES = (np.log(0.05), np.log(5.0)), (np.log(0.01), np.log(100.0))
# Largest distance of a value below the better half, in units of the range of that half without its best fifth. Differences among poor
# candidates carry no information about good ones.
_FLOOR = 3.0
_PRIOR_SEEDS = 4.0  # Weight of the batch's mean variance in the variance of a candidate, in seeds.
_ROOT = np.sqrt(5.0)


class Surrogate:
    """Models the score and the bounded metrics of one structure (a combination of choices) from all its evaluations."""

    def __init__(self, goal: Goal):
        self.goal = goal
        # Points `[n, d]` of a batch, and runs `[n, seed]` of the score and of each bounded metric.
        self._batches: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._estimates: list[Estimate] = []
        self._fitted: tuple[int, list[np.ndarray]] = (0, [])

    def add(self, points: np.ndarray, values: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
        """Adds a batch: points `[n, d]`, values `[n, seed]` by metric, and validity `[n, seed]`.

        A single seed and invalid runs are ignored, because their noise is unknown.
        """
        each = [{name: runs[i] for name, runs in values.items()} for i in range(len(points))]
        runs = [np.array([self.goal.scores(one) for one in each]), *(values[name] for name in self.goal.bounded)]
        sound = valid.all(axis=1) & np.isfinite(runs).all(axis=(0, 2))
        if sound.any() and valid.shape[1] > 1:
            self._batches.append((points[sound], [one[sound] for one in runs]))
            self._estimates += [self.goal.estimate(each[i], valid[i]) for i in np.flatnonzero(sound)]

    def at(self, points: np.ndarray) -> list[Estimate] | None:
        """Returns estimates at points `[k, d]`; None if there are too few evaluations for a model."""
        if not points.shape[1] or len(self._estimates) < _FEWEST + _PER_DIMENSION * points.shape[1]:
            return None
        score, *bounded = [list(zip(*model.predict(points), strict=True)) for model in self._models()]
        each = zip(*bounded, strict=True) if bounded else [()] * len(points)
        return [Estimate(one, dict(zip(self.goal.bounded, more)), True) for one, more in zip(score, each, strict=True)]

    def _models(self) -> list["GaussianProcess"]:
        """Returns the models of the score and of each bounded metric, fitted to the best evaluations."""
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
    """Mean of each candidate over the seeds of its batch, with its noise.

    Attributes:
      points: `[n, d]` points of the unit cube.
      values: `[n]` means.
      noise: `[n]` variance of the candidate's own noise.
      batch: `[n]` index of the batch.
      common: `[n]` variance of the noise that is common to the batch.
    """

    points: np.ndarray
    values: np.ndarray
    noise: np.ndarray
    batch: np.ndarray
    common: np.ndarray


def observations_of(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> Observations:
    """Converts batches of points `[n, d]` and runs `[n, seed]`, of at least two seeds each, to observations."""
    variances = [_variances(runs) for _, runs in batches]
    counts, seeds = zip(*(runs.shape for _, runs in batches), strict=True)
    common = max(0.0, float(np.average([shared for _, shared in variances], weights=np.array(seeds) - 1)))
    points = np.concatenate([points for points, _ in batches])
    values = np.concatenate([runs.mean(axis=1) for _, runs in batches])
    noise = np.concatenate([own / number for (own, _), number in zip(variances, seeds)])
    return Observations(points, values, noise, np.repeat(np.arange(len(batches)), counts), common / np.repeat(seeds, counts))


def _variances(runs: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns variances between seeds of runs `[n, seed]`: of each candidate's own noise, `[n]`, and of the noise common to all.

    The second is an estimate that may be negative. All noise of a single candidate is its own.
    """
    count, seeds = runs.shape
    common = runs.mean(axis=0) if count > 1 else np.full(seeds, runs.mean())
    left = runs - runs.mean(axis=1, keepdims=True) - (common - common.mean())
    own = np.sum(left**2, axis=1) / ((seeds - 1) * (1.0 - 1.0 / count if count > 1 else 1.0))
    own = ((seeds - 1) * own + _PRIOR_SEEDS * own.mean()) / (seeds - 1 + _PRIOR_SEEDS)
    return own, float(np.var(common, ddof=1) - own.mean() / count) if count > 1 else 0.0


class GaussianProcess:
    """Predicts the mean at any point from observations.

    Args:
      seen: the observations.
      logs: logarithms of lengths and size, such as those of a model of slightly fewer observations (default: the most likely).
    """

    def __init__(self, seen: Observations, logs: np.ndarray | None = None):
        self.points, self._scale = seen.points, float(np.std(seen.values)) or 1.0
        self._middle = float(np.mean(seen.values))
        self._values = (seen.values - self._middle) / self._scale
        same = seen.batch[:, None] == seen.batch
        self._noise = (np.diag(seen.noise) + np.where(same, seen.common, 0.0)) / self._scale**2
        self._noise += 1e-6 * np.eye(len(self._values))
        self.logs = self._fit() if logs is None else logs
        self._solved = self._solve(self._kernel(self.logs, self.points))

    def _fit(self) -> np.ndarray:
        """Returns the most likely logarithms of lengths and size."""
        number = self.points.shape[1]
        start, bounds = np.append(np.full(number, _LENGTH), 0.0), [*[_LENGTHS] * number, _SIZES]
        return optimize.minimize(self._negative_log_posterior, start, jac=True, method="L-BFGS-B", bounds=bounds).x

    def _squared_distances(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Returns squared distances of observed and other points in units of the lengths, `[n, k, d]`."""
        return ((self.points[:, None] - points) / np.exp(logs[:-1])) ** 2

    def _kernel(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Returns covariances of observed and other points, `[n, k]`. Source: eq. (4.17), with a length for each dimension."""
        r = _ROOT * np.sqrt(self._squared_distances(logs, points).sum(axis=-1))
        return np.exp(logs[-1]) * (1.0 + r + r**2 / 3.0) * np.exp(-r)

    def _solve(self, kernel: np.ndarray) -> tuple[Any, np.ndarray, float, float, np.ndarray]:
        """Returns the Cholesky factor, the solution for ones, the level's precision, the level, and the weights of the observations."""
        factor = linalg.cho_factor(kernel + self._noise, lower=True)
        ones = linalg.cho_solve(factor, np.ones(len(self._values)))
        precision = float(ones.sum())
        level = float(ones @ self._values) / precision
        return factor, ones, precision, level, linalg.cho_solve(factor, self._values - level)

    def _negative_log_posterior(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the negative log-posterior (likelihood for any level, times prior) and its gradient. Source: eqs. (2.45) and (5.9)."""
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
        """Returns means and standard deviations without noise at points `[k, d]`, `[k]` each. Source: eqs. (2.41) and (2.42)."""
        factor, ones, precision, level, weights = self._solved
        across = self._kernel(self.logs, points)
        mean = level + across.T @ weights
        variance = np.exp(self.logs[-1]) - np.sum(across * linalg.cho_solve(factor, across), axis=0)
        variance += (1.0 - across.T @ ones) ** 2 / precision
        return self._middle + self._scale * mean, self._scale * np.sqrt(np.maximum(variance, 0.0))


def without_outliers(seen: Observations, good: np.ndarray, sign: float) -> Observations:
    """Raises values far below the good ones to a floor. `good` are the indices of the better half, and `sign` is -1 if less is better."""
    values = sign * seen.values
    low, high = np.quantile(values[good], [0.0, 0.8])
    return seen._replace(values=sign * np.maximum(values, low - _FLOOR * (high - low)))
