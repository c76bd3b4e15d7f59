"""A quadratic model of the loss that is kept up to date by each observation, and made anew from all of them now and then."""

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.mnl.newest import New
from jaxroute.estimators.mnl.newton import SAFE_MOVE, safe
from jaxroute.estimators.mnl.types import Derivatives

# Newton steps for the utilities of the newest observation: one to three numbers, so that they cost next to nothing.
_STEPS = 5
# Newton steps on all of the data end after one that moved no utility further than this, since the next would move it by the square, or after
# so many.
_CLOSE, _MOST_STEPS = 0.03, 12


@struct.dataclass
class TrackedState:
    """State of `Tracked`.

    `G` groups of parameters that are estimated together, `D` numbers in each: every item alone (`G = N`, `D = d`), or all of them
    (`G = 1`, `D = N d`) where rows show several.

    Attributes:
      inverse: `[G, D, D]`, of the second derivatives of the loss with the ridge.
      longest: `[]`, norm of the longest features so far.
      rounds: `[]` int32, observations so far, the same in all runs.
      due: `[]` int32, after how many observations the next Newton step comes, the same in all runs.
    """

    inverse: jax.Array
    longest: jax.Array
    rounds: jax.Array
    due: jax.Array


class _Steps(NamedTuple):
    """Between two Newton steps; `steps` are the same in all runs, `needed` says whether this one needs another."""

    theta: jax.Array
    inverses: jax.Array
    needed: jax.Array
    steps: jax.Array


@struct.dataclass
class Tracked:
    """The minimum of a quadratic model of the old observations' loss plus the exact loss of the newest one; for small dimensions.

    The model is the loss to second order around the last fit. With one more observation its minimum moves along that one's
    features alone, by what one or two equations in its utilities say, and its second derivatives change by a matrix of rank one
    or two. A round thus costs no pass over the data. In the first rounds and then every so many, at growing distances, a Newton
    step on all of the data makes the model anew.

    All items are estimated together, with several shown too.

    Attributes:
      first: so many rounds all end with a Newton step (static).
      share: from then on a Newton step comes after at most one in so many of the rounds so far (static).
      together: rows show several items with a parameter each (static); `ACQB` sees to it.
    """

    first: int = struct.field(pytree_node=False, default=64)
    share: int = struct.field(pytree_node=False, default=32)
    together: bool = struct.field(pytree_node=False, default=False)

    needs_hessian: ClassVar[bool] = True

    def check(self) -> None:
        checks.count("first", self.first)
        checks.count("share", self.share)

    def init(self, num: int, dim: int, ridge: Leaf) -> TrackedState:
        """Nothing observed."""
        groups, size = (1, num * dim) if self.together else (num, dim)
        inverse = jnp.broadcast_to(jnp.eye(size, dtype=jnp.float32) / ridge, (groups, size, size))
        return TrackedState(inverse, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32))

    def fit(
        self, state: TrackedState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, TrackedState]:
        """See `Solver.fit`."""
        if new.took is None or new.shown is None:
            raise TypeError("Tracked needs the newest observation as `new_row` and `new_pair` make it")
        num, dim = theta.shape
        groups, size, _ = state.inverse.shape
        shown = new.took.shape[0]
        own = groups == num  # Features stand in the parameters' own coordinates.
        rows = list(new.x) if own else [
            (numerics.one_hot(chosen[k], num)[:, None] * new.x[k]).reshape(size) for k in range(shown)
        ]
        mask = numerics.one_hot(chosen[0] if groups > 1 else 0, groups)
        inverse = _picked(mask, state.inverse)
        start = _picked(mask, theta.reshape(groups, size))
        ways = [numerics.kept(numerics.combine(row, inverse)) for row in rows]

        def inner(x: jax.Array, y: jax.Array) -> jax.Array:
            return jnp.sum(x * y)

        newest = _Newest(
            before=[numerics.kept(inner(row, start)) for row in rows],
            reach=[[numerics.kept(inner(row, way)) for way in ways] for row in rows],
            took=[new.took[k] for k in range(shown)],
            shown=[new.shown[k] for k in range(shown)],
        )
        # Where its loss and the model together are least, and the second derivatives there.
        utilities = numerics.kept(newest.settled())
        missed, weights = numerics.kept((newest.missed(utilities), newest.weights(utilities)))
        moved = start - sum(way * miss for way, miss in zip(ways, missed, strict=True))
        grown = inverse - sum(
            ways[k][:, None] * (weights[k][n] * ways[n]) for k in range(shown) for n in range(shown)
        )
        theta = jnp.where(mask[:, None], moved, theta.reshape(groups, size)).reshape(num, dim)
        inverses = jnp.where(mask[:, None, None], grown, state.inverse)

        longest = jnp.maximum(state.longest, jnp.sqrt(jnp.max(jnp.sum(jnp.square(new.x), axis=1))))

        def step(values: _Steps) -> _Steps:
            """A Newton step on all of the data, in the runs that need one."""
            found = sums(values.theta, everyone=True)
            assert found.hessian is not None
            inverses = inverted(found.hessian + ridge * jnp.eye(size, dtype=jnp.float32))
            gradient = (found.gradient + ridge * values.theta).reshape(groups, size)
            full = jnp.stack([numerics.combine(gradient[g], inverses[g]) for g in range(groups)]).reshape(num, dim)
            moves = safe(full, longest, single=shown == 1)
            far = longest * jnp.sqrt(jnp.max(jnp.sum(jnp.square(moves), axis=1))) > _CLOSE
            theta = jnp.where(values.needed, values.theta - moves, values.theta)
            inverses = jnp.where(values.needed, inverses, values.inverses)
            return _Steps(*numerics.kept((theta, inverses)), values.needed & far, values.steps + 1)

        def anew(theta: jax.Array, inverses: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Newton steps until utilities stand still."""

            def goes_on(values: _Steps) -> jax.Array:
                return (numerics.largest_over_runs(values.needed.astype(jnp.int32)) > 0) & (values.steps < _MOST_STEPS)

            begun = _Steps(theta, inverses, jnp.bool_(True), jnp.int32(0))
            done = lax.while_loop(goes_on, step, begun)
            return done.theta, done.inverses

        rounds, due = numerics.largest_over_runs(state.rounds + 1), numerics.largest_over_runs(state.due)
        theta, inverses = lax.cond(
            rounds >= due, anew, lambda theta, inverses: (theta, inverses), *numerics.kept((theta, inverses))
        )
        distance = jnp.where(rounds < self.first, 1, jnp.maximum(rounds // self.share, 1))
        due = jnp.where(rounds >= due, rounds + distance, due)
        return numerics.kept(theta), TrackedState(numerics.kept(inverses), longest, rounds, due)


def _picked(mask: jax.Array, values: jax.Array) -> jax.Array:
    """The element of `values` `[G, ...]` where a one-hot mask is True."""
    if values.shape[0] == 1:
        return values[0]
    return jnp.sum(jnp.where(jnp.expand_dims(mask, tuple(range(1, values.ndim))), values, 0.0), axis=0)


class _Newest(NamedTuple):
    """The newest observation of one or two items, seen from their utilities.

    Attributes:
      before: utilities at the last fit.
      reach: how far they move with the parameters, `x_k' B x_n` with the inverse second derivatives `B`.
      took: 1 for the item that was accepted.
      shown: whether there is such an item.
    """

    before: list[jax.Array]
    reach: list[list[jax.Array]]
    took: list[jax.Array]
    shown: list[jax.Array]

    def chances(self, utilities: list[jax.Array]) -> list[jax.Array]:
        top = functools.reduce(jnp.maximum, (jnp.where(s, v, 0.0) for v, s in zip(utilities, self.shown, strict=True)), 0.0)
        weights = [jnp.where(s, jnp.exp(v - top), 0.0) for v, s in zip(utilities, self.shown, strict=True)]
        total = jnp.exp(-top) + sum(weights)
        return [weight / total for weight in weights]

    def missed(self, utilities: list[jax.Array]) -> list[jax.Array]:
        """`p - y`."""
        return [p - y for p, y in zip(self.chances(utilities), self.took, strict=True)]

    def settled(self) -> list[jax.Array]:
        """The utilities `v` at the minimum, where `v - before + reach (p(v) - y) = 0`, by Newton steps of a safe length."""
        now = self.before
        for _ in range(_STEPS):
            missed = self.missed(now)
            wrong = [
                v - b + sum(q * m for q, m in zip(row, missed, strict=True))
                for v, b, row in zip(now, self.before, self.reach, strict=True)
            ]
            adjugate, determinant, _ = self._slope(now)
            steps = [sum(a * w for a, w in zip(row, wrong, strict=True)) / determinant for row in adjugate]
            longest = functools.reduce(jnp.maximum, map(jnp.abs, steps)) * len(steps)
            length = jnp.where(longest > SAFE_MOVE, jnp.log1p(longest) / jnp.maximum(longest, 1.0), 1.0)
            now = [v - length * step for v, step in zip(now, steps, strict=True)]
        return now

    def _slope(self, utilities: list[jax.Array]) -> tuple[list[list[Any]], jax.Array, list[list[Any]]]:
        """Adjugate and determinant of `I + reach W`, and `W = diag(p) - p p'`."""
        p = self.chances(utilities)
        if len(p) == 1:
            weight = p[0] * (1.0 - p[0])
            return [[1.0]], 1.0 + self.reach[0][0] * weight, [[weight]]
        w = [[p[0] * (1.0 - p[0]), -p[0] * p[1]], [-p[0] * p[1], p[1] * (1.0 - p[1])]]
        (a, b), (c, d) = ((sum(q[n] * w[n][k] for n in range(2)) for k in range(2)) for q in self.reach)
        return [[1.0 + d, -b], [-c, 1.0 + a]], (1.0 + a) * (1.0 + d) - b * c, w

    def weights(self, utilities: list[jax.Array]) -> list[list[Any]]:
        """`W (I + reach W)^-1`: what the inverse second derivatives lose in `B x_k (B x_n)'`."""
        adjugate, determinant, w = self._slope(utilities)
        size = range(len(w))
        return [[sum(w[k][m] * adjugate[m][n] for m in size) / determinant for n in size] for k in size]


def inverted(matrices: jax.Array) -> jax.Array:
    """Inverses of symmetric and positive definite matrices `[G, D, D]`, by sweeps: a step per row, the same for all."""
    size = matrices.shape[-1]

    def sweep(place: jax.Array, a: jax.Array) -> jax.Array:
        here = numerics.one_hot(place, size)
        row = lax.dynamic_index_in_dim(a, place, 1, keepdims=False)
        pivot = 1.0 / jnp.sum(jnp.where(here, row, 0.0), axis=-1, keepdims=True)
        row = numerics.kept(jnp.where(here, -1.0, row))
        # The column is the row but for a sign: rows that were swept before have the other one.
        column = lax.dynamic_index_in_dim(a, place, 2, keepdims=False)
        column = numerics.kept(jnp.where(here, -1.0, column) * pivot)
        inner = a - column[:, :, None] * row[:, None, :]
        outside = jnp.where(here[:, None], -row[:, None, :] * pivot[:, None], jnp.where(here, -column[:, :, None], inner))
        return jnp.where(here[:, None] & here, -pivot[:, None], outside)

    return -lax.fori_loop(0, size, sweep, matrices)
