"""Estimators of generalised linear models, `E[r] = G(theta . phi)`, from a stream of pairs: features `phi` `[d]` and a reward `r`.

The estimate `theta` `[d]` solves `sum (r - G(theta . phi)) phi = ridge theta`, where `G` is the link function; if its norm exceeds a bound, it is
scaled down to it. `GLM` is the common interface.

Source: Filippi et al. (2010); Belloni, Chen and Wei (2026), eqs. (19) and (20), section 5.1.

Differs from the paper: an estimate outside the ball is scaled down, not projected in the norm of the design matrix.
"""

import functools
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from numpy.typing import ArrayLike

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison, solve
from jaxroute.estimators.links import IDENTITY, Link


def shortened(vector: Array, bound: Leaf) -> Array:
    """Scales `vector`, or each column of a matrix, down to a norm of `bound` if it is longer."""
    length = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(vector), axis=0, keepdims=True), 1e-30))
    return vector * jnp.minimum(1.0, bound / length)


class GLM(Protocol):
    """Interface of the estimators of a generalised linear model, `E[reward] = G(theta . features)`.

    Attributes:
      learns: whether added pairs (features, reward) change the estimate.
    """

    learns: ClassVar[bool] = True

    def check(self) -> None:
        """Raises `ValueError` if a field of the estimator is out of range."""

    def check_spec(self, dim: int, rounds: int) -> None:
        """Raises `ValueError` if the estimator cannot be used with `dim` features or for a run of `rounds` rounds."""

    def init(self, dim: int, ridge: Leaf) -> Any:
        """Returns the state before the first pair, for `dim` (`d`) features and the weight `ridge` of the penalty on the squared norm.

        The state has the estimate as the field `theta` `[d]`.
        """
        ...

    def add(self, state: Any, phi: Array, reward: Array, seen: Array, ridge: Leaf, link: Link, bound: Leaf) -> Any:
        """Returns the state after a round, which adds a pair of features and reward if `seen` is True.

        Args:
          state: state from `init` or `add`.
          phi: `[d]` features.
          reward: `[]` reward.
          seen: `[]` bool, whether the pair is added.
          ridge: `[]` weight of the penalty on the squared norm.
          link: link function `G`.
          bound: `[]` largest norm of the estimate.
        """
        ...


@struct.dataclass
class OnlineState:
    """State of `OnlineGLM`. In its sums over pairs, `s = theta . phi` is the linear predictor at the estimate just before each pair was added.

    Attributes:
      theta: `[d]` newest estimate: the product of `inverse` and `target`, scaled down to the bound.
      inverse: `[d, d]` inverse of `ridge I + sum G'(s) phi phi'`.
      target: `[d]` sum of `(G'(s) s + r - G(s)) phi`.
    """

    theta: Array
    inverse: numerics.Sum
    target: numerics.Sum


@struct.dataclass
class OnlineGLM(GLM):
    """Estimator with one Newton step per pair (features, reward), with the link linearised at the previous estimate; exact for the identity link."""

    def init(self, dim: int, ridge: Leaf) -> OnlineState:
        zero = jnp.zeros((dim,), jnp.float32)
        inverse = jnp.eye(dim, dtype=jnp.float32) / ridge
        return OnlineState(theta=zero, inverse=numerics.Sum.of(inverse), target=numerics.Sum.of(zero))

    def add(
        self, state: OnlineState, phi: Array, reward: Array, seen: Array, ridge: Leaf, link: Link, bound: Leaf
    ) -> OnlineState:
        del ridge
        s = jnp.sum(state.theta * phi)
        weight = jnp.where(seen, link.slope(s), 0.0)
        inverse = xla.compute_once(sherman_morrison(state.inverse, phi, weight))
        residual = jnp.where(seen, reward - link.value(s), 0.0)
        target = state.target.add(phi * (weight * s + residual))
        theta = shortened(numerics.combine(target.total, inverse.total), bound)
        return OnlineState(theta=theta, inverse=inverse, target=target)


@struct.dataclass
class ExactState:
    """State of the estimator `ExactGLM` between two rounds.

    Attributes:
      theta: `[d]` estimate.
      features: `[n, d]` features of the pairs so far, with `n` the capacity.
      rewards: `[n]` rewards of the pairs so far.
      number: `[]` int32 number of pairs; the remaining rows are zero.
    """

    theta: Array
    features: Array
    rewards: Array
    number: Array


@struct.dataclass
class ExactGLM(GLM):
    """Estimator that takes Newton steps on all pairs (features, reward) so far, from the last estimate. It is slow, for tests and short runs.

    Attributes:
      capacity: largest number of stored pairs; `check_spec` raises `ValueError` for longer runs (static).
      iterations: number of Newton steps per round (static).
    """

    capacity: int = struct.field(pytree_node=False)
    iterations: int = struct.field(pytree_node=False, default=3)

    def check(self) -> None:
        checks.count("capacity", self.capacity)
        checks.count("iterations", self.iterations)

    def check_spec(self, dim: int, rounds: int) -> None:
        del dim
        if rounds > self.capacity:
            raise ValueError(f"capacity must be at least the horizon of the run, {rounds:,}, got {self.capacity:,}")

    def init(self, dim: int, ridge: Leaf) -> ExactState:
        del ridge
        return ExactState(
            theta=jnp.zeros((dim,), jnp.float32),
            features=jnp.zeros((self.capacity, dim), jnp.float32),
            rewards=jnp.zeros((self.capacity,), jnp.float32),
            number=jnp.zeros((), jnp.int32),
        )

    def add(
        self, state: ExactState, phi: Array, reward: Array, seen: Array, ridge: Leaf, link: Link, bound: Leaf
    ) -> ExactState:
        place = numerics.one_hot(state.number, self.capacity) & seen
        features = jnp.where(place[:, None], phi, state.features)
        rewards = jnp.where(place, reward, state.rewards)
        number = state.number + seen.astype(jnp.int32)
        there = jnp.arange(self.capacity) < number
        theta = state.theta
        for _ in range(self.iterations):
            theta = theta + newton_step(theta, features, rewards, there, ridge, link)
        return ExactState(theta=shortened(theta, bound), features=features, rewards=rewards, number=number)


@struct.dataclass
class FrozenGLM(GLM):
    """Estimator with a known estimate that never changes, such as one from `fit_glm` on offline data. Its state is a `FrozenGLM` with this estimate.

    Attributes:
      theta: `[d]` estimate.
    """

    theta: Leaf

    learns = False

    def check(self) -> None:
        checks.numbers("theta", self.theta)

    def check_spec(self, dim: int, rounds: int) -> None:
        del rounds
        if np.shape(self.theta) != (dim,):
            raise ValueError(f"theta must have shape ({dim},), got {np.shape(self.theta)}")

    def init(self, dim: int, ridge: Leaf) -> "FrozenGLM":
        del ridge
        self.check_spec(dim, 0)
        return FrozenGLM(theta=jnp.asarray(self.theta, jnp.float32))

    def add(self, state: Any, phi: Array, reward: Array, seen: Array, ridge: Leaf, link: Link, bound: Leaf) -> Any:
        del phi, reward, seen, ridge, link, bound
        return state


def newton_step(theta: Array, features: Array, rewards: Array, seen: Array, ridge: Leaf, link: Link) -> Array:
    """Returns the change `[d]` of `theta` in a Newton step on those pairs of `features` `[n, d]` and `rewards` `[n]` whose mask `seen` `[n]` is True.

    `ridge` is the weight of the penalty, `link` the function `G`. A step far beyond the minimum is halved: a probit fit might oscillate otherwise.
    """

    def score_at(theta: Array) -> tuple[Array, Array]:
        s = jnp.dot(features, theta, precision="highest")
        return s, jnp.dot(jnp.where(seen, rewards - link.value(s), 0.0), features, precision="highest") - ridge * theta

    s, score = score_at(theta)
    weight = jnp.where(seen, link.slope(s), 0.0)
    hessian = jnp.dot((features * weight[:, None]).T, features, precision="highest")
    step = solve(hessian + ridge * jnp.eye(theta.shape[0], dtype=theta.dtype), score)
    rise = jnp.sum(score * step)

    def goes_too_far(size: Array) -> Array:
        there = jnp.sum(score_at(theta + size * step)[1] * step)
        return (rise > 0.01) & (there < -0.5 * rise)  # Rounding halves no small step.

    return step * jax.lax.while_loop(goes_too_far, lambda size: 0.5 * size, jnp.ones((), theta.dtype))


def fit_glm(features: ArrayLike, rewards: ArrayLike, link: Link, ridge: float = 1.0, iterations: int = 25) -> np.ndarray:
    """Fits the penalised estimate `[d]` to given pairs on the host, to full float32 precision.

    Args:
      features: `[n, d]` features of `n` pairs.
      rewards: `[n]` rewards of these pairs.
      link: link function `G`.
      ridge: weight of the penalty on the squared norm, above 0.
      iterations: number of Newton steps.

    Raises:
      ValueError: shapes do not fit, or a reward is outside the range of the link.
    """
    if not isinstance(link, Link):
        raise ValueError(f"link must be a Link, got {checks.show(link)}")
    checks.count("iterations", iterations)
    if link is not IDENTITY:
        checks.probability("rewards", rewards)
    x, r = (jnp.asarray(checks.numbers(name, x), jnp.float32) for name, x in (("features", features), ("rewards", rewards)))
    if x.ndim != 2 or r.shape != x.shape[:1]:
        raise ValueError(f"features and rewards must have shapes [n, d] and [n], got {x.shape} and {r.shape}")
    checks.positive("ridge", ridge, ())
    return np.asarray(_fitted(x, r, jnp.float32(ridge), link, iterations))


@functools.partial(jax.jit, static_argnames=("link", "iterations"))
def _fitted(features: Array, rewards: Array, ridge: Array, link: Link, iterations: int) -> Array:
    everything = jnp.ones(rewards.shape, bool)

    def step(_: Array, theta: Array) -> Array:
        return theta + newton_step(theta, features, rewards, everything, ridge, link)

    return jax.lax.fori_loop(0, iterations, step, jnp.zeros((features.shape[1],), features.dtype))
