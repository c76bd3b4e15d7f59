"""Features `phi` of outputs whose score is not seen, with `score = G(theta . phi)` for a link `G`, and noisy rewards."""

import abc
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.links import IDENTITY, LOGISTIC, Link
from jaxroute.problems.cascade.sources.boxes import Boxes, QueryBoxes, RecordedBoxes

# Scores are clipped to this distance from 0 and 1 before their link is inverted.
_MARGIN = 1e-4
# Half width of the uniform rewards around a score; near 0 the score itself.
_REWARD_SPREAD = 0.2


class OutputFeatures(abc.ABC):
    """Distribution of an output's `d` (`dim`) features `phi`. The true score is `G(theta . phi)`, eq. (17), with a link `G` and `theta` `[d]`."""

    @abc.abstractmethod
    def bound(self, largest: float) -> float:
        """Returns a bound on the norm of features `phi`. It assumes `|theta . phi| <= 2 largest`, where `theta . phi` is `G^-1(score)`."""

    @abc.abstractmethod
    def check_spec(self, boxes: Boxes, dim: int) -> None:
        """Raises `ValueError` if these features do not fit the boxes (models), or requests with `dim` features."""

    @abc.abstractmethod
    def draw(self, key: Array, score: Array, psi: Array, row: Array | None) -> Array:
        """Draws features `[K, d]` of outputs with scores `[K]` for a request `psi` `[m]`; `row` `[K]` has the rows of recorded outputs, else None."""


def reward_of(link: Link, score: Array, coin: Array) -> Array:
    """Returns the reward of an output with this `score`, by the random number `coin`, which is uniform on [0, 1); all are scalars.

    It is 1 with probability `score`, else 0. With the identity link it is uniform from `score - w` to `score + w`, with `w = min(.2, score)`.
    """
    if link is IDENTITY:
        return score + jnp.minimum(_REWARD_SPREAD, score) * (2.0 * coin - 1.0)
    return (coin < score).astype(jnp.float32)


@struct.dataclass
class CubeNoise:
    """Independent uniform noise on `[-1, 1]^d` in the `d` features of an output."""

    def bound(self, dim: int) -> float:
        return float(np.sqrt(dim))

    def draw(self, key: Array, shape: tuple[int, int]) -> Array:
        return 2.0 * draws.uniform(key, shape) - 1.0


@struct.dataclass
class RadialNoise:
    """Noise with a uniform direction and a random length, given by its quantiles `[n]` at equally spaced probabilities (`normal`, `student`).

    Source: Belloni, Chen and Wei (2026), lemmas 10.3 to 10.7: distributions that fulfil assumption 5.2.
    """

    quantiles: Leaf

    @classmethod
    def normal(cls, dim: int, longest: float = 3.0, scale: float = 1.0) -> "RadialNoise":
        """Returns noise of `dim` normal entries with standard deviation `scale`, conditioned on a length (norm) of at most `longest`."""
        from scipy import stats

        return cls._of(stats.chi(checks.count("dim", dim), scale=float(checks.positive("scale", scale, ()))), longest)

    @classmethod
    def student(cls, dim: int, freedom: float = 3.0, longest: float = 3.0) -> "RadialNoise":
        """Returns Student noise in `dim` dimensions with `freedom` degrees of freedom, conditioned on a length (norm) of at most `longest`."""
        from scipy import stats

        distribution = stats.f(checks.count("dim", dim), float(checks.positive("freedom", freedom, ())))
        return cls._of(distribution, longest, lambda length: length**2 / dim, lambda ratio: np.sqrt(dim * ratio))

    @classmethod
    def _of(cls, distribution: Any, longest: float, to: Callable = np.asarray, back: Callable = np.asarray) -> "RadialNoise":
        """Returns noise whose `to(length)` has a scipy.stats `distribution`, truncated at the length `longest`. The function `back` inverts `to`."""
        longest = float(checks.positive("longest", longest, ()))
        lengths = back(distribution.ppf(np.linspace(0.0, distribution.cdf(to(longest)), 1025)))
        # A probability that rounds to 1, or nearly, has an infinite quantile.
        return cls(np.minimum(lengths, longest).astype(np.float32))

    def check(self) -> None:
        quantiles = checks.non_negative("quantiles", self.quantiles, ("lengths",))
        if len(quantiles) < 2 or (np.diff(quantiles) < 0).any():
            raise ValueError(
                f"quantiles must be two lengths or more that do not fall, got {checks.show(quantiles.tolist())}"
            )

    def bound(self, dim: int) -> float:
        del dim
        return float(np.max(self.quantiles))

    def draw(self, key: Array, shape: tuple[int, int]) -> Array:
        k_direction, k_length = draws.split(key)
        direction = draws.normal(k_direction, shape)
        direction = direction / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(direction), axis=-1, keepdims=True), 1e-12))
        table = jnp.asarray(self.quantiles, jnp.float32)
        place = draws.uniform(k_length, shape[:-1]) * (table.shape[0] - 1)
        low = jnp.minimum(place.astype(jnp.int32), table.shape[0] - 2)
        part = place - low
        length = table[low] * (1.0 - part) + table[low + 1] * part
        return length[..., None] * direction


@struct.dataclass
class ScoredFeatures(OutputFeatures):
    """Features `phi = s theta / |theta|^2 + P z`, so that `theta . phi` is `s = G^-1(score)`, with noise `z`, which `P` makes orthogonal to `theta`.

    Attributes:
      theta, link: `[d]` coefficients of the evaluator, and its link `G` (static).
      shift: `[K, d]` added to the noise of each box, None for 0.
      noise: distribution of `z`, `CubeNoise` or `RadialNoise`.
    """

    theta: Leaf
    shift: Leaf | None = None
    noise: CubeNoise | RadialNoise = struct.field(default_factory=CubeNoise)
    link: Link = struct.field(pytree_node=False, default=LOGISTIC)

    @property
    def dim(self) -> int:
        return np.shape(self.theta)[-1]

    def bound(self, largest: float) -> float:
        largest = largest * 2.0 / float(np.linalg.norm(self.theta))
        shift = 0.0 if self.shift is None else float(np.linalg.norm(self.shift, axis=-1).max())
        return float(np.hypot(self.noise.bound(self.dim) + shift, largest))

    def check(self) -> None:
        theta = checks.numbers("theta", self.theta, ("d",))
        if not np.any(theta):
            raise ValueError(f"theta must not be zero, got {theta.tolist()}")
        checks.part("noise", self.noise, "draw", "CubeNoise()")
        if self.shift is not None:
            checks.numbers("shift", self.shift)
        checks.instance("link", self.link, Link)

    def check_spec(self, boxes: Boxes, dim: int) -> None:
        del dim
        if self.shift is not None:
            checks.numbers("shift", self.shift, (boxes.num_boxes, self.dim))

    def draw(self, key: Array, score: Array, psi: Array, row: Array | None) -> Array:
        del psi, row
        theta = jnp.asarray(self.theta, jnp.float32)
        square = jnp.sum(jnp.square(theta))
        limits = () if self.link is IDENTITY else (_MARGIN, 1.0 - _MARGIN)
        s = self.link.inverse(jnp.clip(score, *limits) if limits else score)
        z = self.noise.draw(key, (score.shape[0], self.dim))
        if self.shift is not None:
            z = z + jnp.asarray(self.shift, jnp.float32)
        along = numerics.combine(theta, jnp.swapaxes(z, 0, 1))
        return z + ((s - along) / square)[:, None] * theta


@struct.dataclass
class FrozenFeatures(OutputFeatures):
    """Features `phi = (x, score - c x)` for the context `psi = (1, x)`; with the identity link `theta` is `(c, 1)`. The field `weight` is `c`.

    Source: Belloni, Chen and Wei (2026), remark 5.2: if `x` is always 0, no reward contains information about `c`.
    """

    dim = 2
    weight: Leaf = 0.1
    link: Link = struct.field(pytree_node=False, default=IDENTITY)

    @property
    def theta(self) -> Array:
        return jnp.stack([jnp.asarray(self.weight, jnp.float32), jnp.ones((), jnp.float32)])

    def bound(self, largest: float) -> float:
        del largest
        return float(np.hypot(1.0, 1.0 + max(-float(self.weight), 0.0)))

    def check(self) -> None:
        checks.numbers("weight", self.weight, ())

    def check_spec(self, boxes: Boxes, dim: int) -> None:
        del boxes
        if dim < 2:
            raise ValueError(f"evaluator must not be FrozenFeatures where requests have {dim} feature: it needs x_1")

    def draw(self, key: Array, score: Array, psi: Array, row: Array | None) -> Array:
        del key, row
        x = jnp.broadcast_to(psi[1], score.shape)
        return jnp.stack([x, score - jnp.asarray(self.weight) * x], axis=-1)


@struct.dataclass
class RecordedFeatures(OutputFeatures):
    """Features of real outputs. Rewards are noisy recorded scores (`reward_of`), of which `G(theta . phi)` is only a fit.

    Attributes:
      table: `[N, K, d]` features, rows as in `RecordedBoxes` or `QueryBoxes`.
      theta, link: `[d]` coefficients of the fit, and its link `G` (static).
    """

    table: Leaf
    theta: Leaf
    link: Link = struct.field(pytree_node=False, default=LOGISTIC)

    @property
    def dim(self) -> int:
        return np.shape(self.table)[-1]

    def bound(self, largest: float) -> float:
        del largest
        return float(np.linalg.norm(np.asarray(self.table, np.float64), axis=-1).max())

    def check(self) -> None:
        checks.numbers("features", self.table, ("N", "K", "d"))
        checks.numbers("theta", self.theta, (self.dim,))

    def check_spec(self, boxes: Boxes, dim: int) -> None:
        del dim
        if not isinstance(boxes, RecordedBoxes | QueryBoxes):
            kind = type(boxes).__name__
            raise ValueError(f"evaluator must not be RecordedFeatures without RecordedBoxes or QueryBoxes, got {kind}")
        checks.numbers("features", self.table, (*np.shape(boxes.score), "d"))

    def draw(self, key: Array, score: Array, psi: Array, row: Array | None) -> Array:
        del key, psi
        assert row is not None
        table = jnp.asarray(self.table, jnp.float32)
        return jnp.stack([numerics.at(table, (row[a], a)) for a in range(score.shape[0])])
