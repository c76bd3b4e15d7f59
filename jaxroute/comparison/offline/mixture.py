"""A query-blind random choice between at most two models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..points import RECORDED
from .crossfit import OfflineStrategy
from .part import Part
from .sample import Outcomes, Sample, single_call


@dataclass(frozen=True)
class Mixture:
    """Calls `second` with probability `weight`, else `first`.

    Attributes:
      models: names of the models.
      first: index of the cheaper model.
      second: index of the better model; the same if one model is enough.
      weight: probability in [0, 1].
    """

    models: tuple[str, ...]
    first: int
    second: int
    weight: float

    def evaluate(self, sample: Sample) -> Outcomes:
        """Expected outcome of each query."""
        one, other = (single_call(sample, np.full(sample.num_queries, i)) for i in (self.first, self.second))

        def mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return (1 - self.weight) * a + self.weight * b

        latency = None if one.latency is None or other.latency is None else mean(one.latency, other.latency)
        quality, cost, sent = (mean(getattr(one, name), getattr(other, name)) for name in ("quality", "cost", "sent"))
        return Outcomes(quality, cost, one.calls, sent, latency)

    def next_model(self, sample: Sample, asked: Sequence[int], draw: float) -> int | None:
        """The model to call next for the query of a sample, or None; see `serving.Rule`."""
        if asked:
            return None
        return self.second if draw < self.weight else self.first

    def __str__(self) -> str:
        if self.first == self.second or self.weight == 0:
            return self.models[self.first]
        if self.weight == 1:
            return self.models[self.second]
        return f"{self.models[self.second]} for {100 * self.weight:.3g} % of queries, else {self.models[self.first]}"


@dataclass(frozen=True, eq=False)
class Hull:
    """Models that no mixture of others dominates, from the cheapest to the best.

    Attributes:
      models: names of all models.
      corners: indices of the models on the hull.
      quality: `[N]` mean scores of all models.
    """

    models: tuple[str, ...]
    corners: tuple[int, ...]
    quality: np.ndarray

    def tuned(self, target: float) -> Mixture:
        """The cheapest mixture that reaches the target on the fitting part; the best model if none does."""
        quality = self.quality[list(self.corners)]
        upper = int(np.searchsorted(quality, target - 1e-12))
        if upper == 0 or upper == len(quality):
            corner = self.corners[min(upper, len(quality) - 1)]
            return Mixture(self.models, corner, corner, 0.0)
        weight = (target - quality[upper - 1]) / (quality[upper] - quality[upper - 1])
        return Mixture(self.models, self.corners[upper - 1], self.corners[upper], float(np.clip(weight, 0.0, 1.0)))


def hull(cost: np.ndarray, quality: np.ndarray) -> tuple[int, ...]:
    """Corners of the upper hull of quality over cost, from the cheapest to the best model.

    Args:
      cost: `[N]` mean costs.
      quality: `[N]` mean scores.
    """
    at = min(range(len(cost)), key=lambda i: (cost[i], -quality[i], i))
    corners = [at]
    while (quality > quality[at]).any():
        # No better model is cheaper than a corner, so no gap is negative; equal costs cannot occur after the first corner.
        better = np.flatnonzero(quality > quality[at])
        slopes = (quality[better] - quality[at]) / (cost[better] - cost[at])
        steepest = better[slopes >= slopes.max() * (1 - 1e-12)]
        at = int(steepest[np.argmax(quality[steepest])])
        corners.append(at)
    return tuple(corners)


def _fit(part: Part) -> Hull:
    sample = part.sample
    quality = sample.scores.mean(0)
    return Hull(sample.models, hull(sample.costs.mean(0), quality), quality)


BEST_MIXTURE = OfflineStrategy("Best mixture", "fit_mixture(log.table, {target})", (RECORDED,), _fit)
