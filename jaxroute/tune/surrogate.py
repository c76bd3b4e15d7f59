"""A model of all that was played of a structure, which tells leaves from luck: a Gaussian process over the unit cube.

    mean over the seeds of a batch = level + f(point) + luck of the batch + noise

Candidates of a batch share their seeds, so that a part of their luck is common to them; what is left is each one's own. The runs show the
variances of both. How much neighbours tell of each other (a Matern kernel, with a length by leaf) is what the evaluations make most likely.

Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, eqs. (2.41), (2.42), (2.45), (4.17) and (5.9).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize

from jaxroute.tune.ranking import Estimate, Goal

# Evaluations by which a model is worth a try, those for each dimension besides, and how many times as many there must be for new lengths.
_FEWEST, _EACH, _MORE = 8, 4, 1.25
# The best evaluations, which a model is fitted to: a fit takes the cube of their number.
_MOST = 256
# Prior of the logarithm of a length (mean and standard deviation), and bounds of the logarithms of lengths and of the kernel's size, the
# latter in units of the variance of the values.
_LENGTH, _SPREAD = np.log(0.5), 1.0
_LENGTHS, _SIZES = (np.log(0.05), np.log(5.0)), (np.log(0.01), np.log(100.0))
# A value counts as at most so many times as far below the better half as the best fifth of that begins above its end: how bad the bad ones are
# says nothing of the good ones.
_FLOOR = 3.0
# A variance of few seeds is drawn to the mean of its batch, as if that were so many seeds more.
_SHARED = 4.0
_ROOT = np.sqrt(5.0)


class Knowledge:
    """What was played of a structure, and what that says of any of its points.

    Args:
      goal: what is searched for.
    """

    def __init__(self, goal: Goal):
        self.goal = goal
        # Points `[n, d]` of a batch, and runs `[n, seed]` of the score and of each metric with a bound.
        self._batches: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._known: list[Estimate] = []
        self._lengths: tuple[int, list[np.ndarray]] = (0, [])

    def add(self, points: np.ndarray, values: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
        """Points `[n, d]` that were played on the same seeds, values `[n, seed]` by metric, and which runs are valid `[n, seed]`.

        Of a single seed nobody knows how lucky it was: it teaches nothing, as do runs that are invalid.
        """
        each = [{name: runs[i] for name, runs in values.items()} for i in range(len(points))]
        runs = [np.array([self.goal.scores(one) for one in each]), *(values[name] for name in self.goal.limited)]
        sound = valid.all(axis=1) & np.isfinite(runs).all(axis=(0, 2))
        if sound.any() and valid.shape[1] > 1:
            self._batches.append((points[sound], [one[sound] for one in runs]))
            self._known += [self.goal.estimate(each[i], valid[i]) for i in np.flatnonzero(sound)]

    def at(self, points: np.ndarray) -> list[Estimate] | None:
        """What is known of points `[k, d]`, valid or not; None if too little was played for a model."""
        if not points.shape[1] or len(self._known) < _FEWEST + _EACH * points.shape[1]:
            return None
        score, *limited = [list(zip(*model.predict(points), strict=True)) for model in self._models()]
        each = zip(*limited, strict=True) if limited else [()] * len(points)
        return [
            Estimate(one, dict(zip(self.goal.limited, more, strict=True)), True)
            for one, more in zip(score, each, strict=True)
        ]

    def _models(self) -> list["Model"]:
        """Of the score, and of each metric with a bound."""
        every = [evaluations([(at, runs[i]) for at, runs in self._batches]) for i in range(1 + len(self.goal.limited))]
        order = np.array(self.goal.order(self._known))
        every[0] = without_depths(every[0], order[: -(-len(order) // 2)], 1.0 if self.goal.maximise else -1.0)
        best = np.sort(order[:_MOST])
        seen = [Evaluations(*(column[best] for column in one)) for one in every]
        size, logs = self._lengths
        if len(best) <= _MORE * size:
            return [Model(one, log) for one, log in zip(seen, logs, strict=True)]
        models = [Model(one) for one in seen]
        self._lengths = len(best), [one.logs for one in models]
        return models


class Evaluations(NamedTuple):
    """Means of candidates over the seeds of a batch.

    points: `[n, d]`.
    values: `[n]`.
    noise: `[n]` variance of what is a candidate's own luck.
    batch: `[n]` number of its batch.
    luck: `[n]` variance of what is common to that.
    """

    points: np.ndarray
    values: np.ndarray
    noise: np.ndarray
    batch: np.ndarray
    luck: np.ndarray


def evaluations(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> Evaluations:
    """What batches of points `[n, d]` and runs `[n, seed]` say; at least two seeds each."""
    points, means, noise, batch, seeds, lucks = [], [], [], [], [], []
    for number, (at, runs) in enumerate(batches):
        variance, luck = _variances(runs)
        points.append(at)
        means.append(runs.mean(axis=1))
        noise.append(variance / runs.shape[1])
        batch.append(np.full(len(runs), number))
        seeds.append(np.full(len(runs), runs.shape[1]))
        lucks.append((luck, runs.shape[1] - 1))
    common = max(0.0, float(np.average([luck for luck, _ in lucks], weights=[free for _, free in lucks])))
    columns = [np.concatenate(column) for column in (points, means, noise, batch)]
    return Evaluations(*columns, luck=common / np.concatenate(seeds))


def _variances(runs: np.ndarray) -> tuple[np.ndarray, float]:
    """Variances between seeds of runs `[n, seed]`: of each candidate `[n]`, and of what is common to all, which probability may make negative.

    That of a single candidate is its own.
    """
    count, seeds = runs.shape
    common = runs.mean(axis=0) if count > 1 else np.full(seeds, runs.mean())
    left = runs - runs.mean(axis=1, keepdims=True) - (common - common.mean())
    own = np.sum(left**2, axis=1) / ((seeds - 1) * (1.0 - 1.0 / count if count > 1 else 1.0))
    own = ((seeds - 1) * own + _SHARED * own.mean()) / (seeds - 1 + _SHARED)
    return own, float(np.var(common, ddof=1) - own.mean() / count) if count > 1 else 0.0


class Model:
    """The distribution of the mean at any point, given evaluations.

    Args:
      seen: the evaluations.
      logs: logarithms of lengths and size, such as those of a model of a little fewer evaluations (default: the most likely).
    """

    def __init__(self, seen: Evaluations, logs: np.ndarray | None = None):
        self.points, self._scale = seen.points, float(np.std(seen.values)) or 1.0
        self._middle = float(np.mean(seen.values))
        self._values = (seen.values - self._middle) / self._scale
        same = seen.batch[:, None] == seen.batch
        self._noise = (np.diag(seen.noise) + np.where(same, seen.luck, 0.0)) / self._scale**2
        self._noise += 1e-6 * np.eye(len(self._values))
        self.logs = self._most_likely() if logs is None else logs
        self._solved = self._solve(self._kernel(self.logs, self.points))

    def _most_likely(self) -> np.ndarray:
        number = self.points.shape[1]
        start, bounds = np.append(np.full(number, _LENGTH), 0.0), [*[_LENGTHS] * number, _SIZES]
        return optimize.minimize(self._unlikely, start, jac=True, method="L-BFGS-B", bounds=bounds).x

    def _apart(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Squared distances `[n, k, d]` of the evaluated points and some others, in lengths."""
        return ((self.points[:, None] - points) / np.exp(logs[:-1])) ** 2

    def _kernel(self, logs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Covariances `[n, k]` of the evaluated points and some others. Source: eq. (4.17), with a length by dimension."""
        r = _ROOT * np.sqrt(self._apart(logs, points).sum(axis=-1))
        return np.exp(logs[-1]) * (1.0 + r + r**2 / 3.0) * np.exp(-r)

    def _solve(self, kernel: np.ndarray):
        """Cholesky factor, what it makes of ones, the level's precision, the level, and the weights of the evaluations."""
        factor = linalg.cho_factor(kernel + self._noise, lower=True)
        ones = linalg.cho_solve(factor, np.ones(len(self._values)))
        precision = float(ones.sum())
        level = float(ones @ self._values) / precision
        return factor, ones, precision, level, linalg.cho_solve(factor, self._values - level)

    def _unlikely(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Less the logarithm of the likelihood, for any level, and of the prior; and its gradient. Source: eqs. (2.45) and (5.9)."""
        apart, kernel = self._apart(logs, self.points), self._kernel(logs, self.points)
        factor, ones, precision, level, weights = self._solve(kernel)
        away = (logs[:-1] - _LENGTH) / _SPREAD
        value = 0.5 * float((self._values - level) @ weights) + float(np.log(np.diag(factor[0])).sum())
        value += 0.5 * float(np.log(precision) + away @ away)
        r = _ROOT * np.sqrt(apart.sum(axis=-1))
        slope = np.exp(logs[-1]) * (5.0 / 3.0) * (1.0 + r) * np.exp(-r)
        inverse = linalg.cho_solve(factor, np.eye(len(ones))) - np.outer(ones, ones) / precision
        pull = 0.5 * (inverse - np.outer(weights, weights))
        lengths = np.einsum("ij,ij,ijd->d", pull, slope, apart) + away / _SPREAD
        return value, np.append(lengths, np.sum(pull * kernel))

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations `[k]` at points `[k, d]`, without the luck of any seeds. Source: eqs. (2.41) and (2.42)."""
        factor, ones, precision, level, weights = self._solved
        across = self._kernel(self.logs, points)
        mean = level + across.T @ weights
        variance = np.exp(self.logs[-1]) - np.sum(across * linalg.cho_solve(factor, across), axis=0)
        variance += (1.0 - across.T @ ones) ** 2 / precision
        return self._middle + self._scale * mean, self._scale * np.sqrt(np.maximum(variance, 0.0))


def without_depths(seen: Evaluations, good: np.ndarray, better: float) -> Evaluations:
    """Evaluations among which those that are far worse than the good ones are less so.

    Args:
      seen: the evaluations.
      good: numbers of the better half.
      better: 1 if more is better, -1 if less is.
    """
    values = better * seen.values
    low, high = np.quantile(values[good], [0.0, 0.8])
    return seen._replace(values=better * np.maximum(values, low - _FLOOR * (high - low)))
