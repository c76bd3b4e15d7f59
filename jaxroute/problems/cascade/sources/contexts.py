"""Distributions from which the features `psi` of the requests are drawn; a policy sees them before it calls a model."""

import abc

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, PyTree
from jaxroute.sources.rows import random_order, row_in_order


class Contexts(abc.ABC):
    """Distribution of contexts, the features `psi` of requests, by default without a state.

    Attributes:
      dim: number `m` of features.
      bound: largest norm of `psi`.
      mean: `[m]` mean of `psi`.
    """

    def init(self, key: Array) -> PyTree:
        """Returns the state of the distribution before the first period, by default an empty tuple."""
        del key
        return ()

    @abc.abstractmethod
    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        """Draws the features `psi` `[m]` of the request in the period `t`; `state` comes from `init`."""


@struct.dataclass
class UniformContexts(Contexts):
    """Contexts `psi = (1, x)` with `x` independent and uniform on `[low, high]^(m - 1)`; the field `dim` is `m`."""

    dim: int = struct.field(pytree_node=False)
    low: Leaf = -1.0
    high: Leaf = 1.0

    @property
    def bound(self) -> float:
        return float(np.sqrt(1.0 + (self.dim - 1) * np.max(np.square([self.low, self.high]))))

    @property
    def mean(self) -> Array:
        middle = 0.5 * (jnp.asarray(self.low, jnp.float32) + jnp.asarray(self.high, jnp.float32))
        return jnp.concatenate([jnp.ones((1,), jnp.float32), jnp.full((self.dim - 1,), middle)])

    def check(self) -> None:
        checks.count("dim", self.dim)
        low, high = (float(checks.numbers(name, x, ())) for name, x in (("low", self.low), ("high", self.high)))
        if not low <= high:
            raise ValueError(f"low must not be above high, got {low:g} and {high:g}")

    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        del state, t
        low, high = (jnp.asarray(x, jnp.float32) for x in (self.low, self.high))
        x = low + (high - low) * draws.uniform(key, (self.dim - 1,))
        return jnp.concatenate([jnp.ones((1,), jnp.float32), x])


@struct.dataclass
class GroupContexts(Contexts):
    """Contexts that show the group of a request as a unit vector; each request draws one of `m` groups with `probabilities` `[m]`."""

    bound = 1.0
    probabilities: Leaf

    @property
    def dim(self) -> int:
        return np.shape(self.probabilities)[-1]

    @property
    def mean(self) -> Array:
        return jnp.asarray(self.probabilities, jnp.float32)

    def check(self) -> None:
        given = checks.probability("probabilities", self.probabilities, ("groups",))
        if abs(given.sum() - 1.0) > 1e-5:
            raise ValueError(f"probabilities must sum to 1, got the sum {given.sum():g}")

    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        del state, t
        group = numerics.inverse_cdf(jnp.asarray(self.probabilities, jnp.float32), draws.uniform(key))
        return numerics.one_hot(group, self.dim).astype(jnp.float32)


@struct.dataclass
class RecordedContexts(Contexts):
    """Contexts (features of requests) read from the `P` rows of `table` `[P, m]` in their order, and from the first row again after the last."""

    table: Leaf

    @property
    def dim(self) -> int:
        return np.shape(self.table)[-1]

    @property
    def bound(self) -> float:
        return float(np.linalg.norm(np.asarray(self.table, np.float64), axis=-1).max())

    @property
    def mean(self) -> Array:
        return jnp.mean(jnp.asarray(self.table, jnp.float32), axis=0)

    def check(self) -> None:
        checks.numbers("table", self.table, ("periods", "m"))

    def row(self, state: PyTree, t: Array) -> Array:
        """Returns the index of the row of `table` that is the request of period `t`, a scalar."""
        del state
        return t % np.shape(self.table)[0]

    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        del key
        return jnp.asarray(self.table, jnp.float32)[self.row(state, t)]


@struct.dataclass
class ShuffledContexts(RecordedContexts):
    """Contexts (features of requests) read from the rows of `table` `[P, m]` in an order drawn once per run; all are used before any is repeated."""

    def init(self, key: Array) -> Array:
        return random_order(key, np.shape(self.table)[0])

    def row(self, state: PyTree, t: Array) -> Array:
        return row_in_order(state, t)


@struct.dataclass
class TwoTimesContexts(Contexts):
    """Contexts that change from one distribution to another after `length` periods, once or repeatedly, to test changing distributions.

    Source: Belloni, Chen and Wei (2026), remark 4.6.

    Attributes:
      first, second: contexts of the same dimension.
      length: `[]` number of periods with contexts from `first`; period 0, in which all models are called to prepare the policy, counts.
      in_turns: whether `first` and `second` alternate, each for `length` periods (static).
    """

    first: Contexts
    second: Contexts
    length: Leaf
    in_turns: bool = struct.field(pytree_node=False, default=False)

    @property
    def dim(self) -> int:
        return self.first.dim

    @property
    def bound(self) -> float:
        return max(self.first.bound, self.second.bound)

    @property
    def mean(self) -> Array:
        return 0.5 * (self.first.mean + self.second.mean)

    def check(self) -> None:
        for name, part in (("first", self.first), ("second", self.second)):
            if not isinstance(part, Contexts) or type(part).init is not Contexts.init:
                raise ValueError(f"{name} must be contexts that do not depend on earlier ones, got {checks.show(part)}")
            part.check()
        checks.whole("length", float(checks.positive("length", self.length, ())))
        if self.first.dim != self.second.dim:
            raise ValueError(f"first and second must have one dimension, got {self.first.dim} and {self.second.dim}")

    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        turn = t // jnp.asarray(self.length, jnp.int32)
        later = turn % 2 == 1 if self.in_turns else turn >= 1
        return jnp.where(later, self.second.draw(key, (), t), self.first.draw(key, (), t))


@struct.dataclass
class FrozenContexts(Contexts):
    """Contexts `psi = (1, x)` with `x` 0 or 1, drawn once per run; if it is 0, nothing reveals an evaluator's coefficient of `x` (remark 5.2)."""

    dim = 2
    bound = 2.0**0.5

    @property
    def mean(self) -> Array:
        return jnp.asarray([1.0, 0.5], jnp.float32)

    def init(self, key: Array) -> Array:
        return draws.bernoulli(key).astype(jnp.float32)

    def draw(self, key: Array, state: PyTree, t: Array) -> Array:
        del key, t
        return jnp.stack([jnp.ones((), jnp.float32), state])
