"""A quadratic model of the loss that is kept up to date by each observation, and made anew from all of them now and then."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

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


class Schedule(NamedTuple):
    """When Newton steps on all of the data come: the same rounds in all runs.

    rounds: `[]` int32, observations so far.
    due: `[]` int32, after how many of them the next Newton steps come.
    """

    rounds: jax.Array
    due: jax.Array

    @classmethod
    def begun(cls) -> "Schedule":
        return cls(jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32))

    def next(self, first: int, share: int) -> tuple[jax.Array, "Schedule"]:
        """Whether they come after this observation, `[]` bool, the same in all runs; and the schedule after it."""
        rounds, due = numerics.largest_over_runs(self.rounds + 1), numerics.largest_over_runs(self.due)
        now = rounds >= due
        distance = jnp.where(rounds < first, 1, jnp.maximum(rounds // share, 1))
        return now, Schedule(rounds, jnp.where(now, rounds + distance, due))


Model = TypeVar("Model")


class _Steps(NamedTuple, Generic[Model]):
    """Between two Newton steps; `steps` are the same in all runs, `needed` says whether this one needs another."""

    theta: jax.Array
    model: Model
    needed: jax.Array
    steps: jax.Array


def _newton_steps(
    step: Callable[[jax.Array], tuple[jax.Array, Model, jax.Array]], theta: jax.Array, model: Model
) -> tuple[jax.Array, Model]:
    """Newton steps on all of the data until utilities stand still, in each run as many as it needs.

    Args:
      step: from the parameters `[N, d]`; returns them after a step, the model made on the way, and how far a utility may have moved, `[]`.
      theta: first parameters.
      model: a value like those, which nobody looks at.
    """

    def goes_on(values: _Steps[Model]) -> jax.Array:
        return (numerics.largest_over_runs(values.needed.astype(jnp.int32)) > 0) & (values.steps < _MOST_STEPS)

    def one(values: _Steps[Model]) -> _Steps[Model]:
        theta, model, moved = step(values.theta)
        new, old = (theta, model), (values.theta, values.model)
        theta, model = jax.tree.map(functools.partial(jnp.where, values.needed), new, old)
        theta, model = numerics.kept((theta, model))
        return _Steps(theta, model, values.needed & (moved > _CLOSE), values.steps + 1)

    done = lax.while_loop(goes_on, one, _Steps(theta, model, jnp.bool_(True), jnp.int32(0)))
    return done.theta, done.model


def _farthest(features: jax.Array, before: jax.Array) -> jax.Array:
    """The norm of the longest features `[R, d]` up to now."""
    return jnp.maximum(before, jnp.sqrt(jnp.max(jnp.sum(jnp.square(features), axis=1))))


@struct.dataclass
class _Following:
    """What both kinds have: when Newton steps on all of the data come.

    Attributes:
      first: so many rounds all end with Newton steps (static).
      share: from then on they come after at most one in so many of the rounds so far (static).
    """

    first: int = struct.field(pytree_node=False, default=64)
    share: int = struct.field(pytree_node=False, default=32)

    needs_hessian: ClassVar[bool] = True

    def check(self) -> None:
        checks.count("first", self.first)
        checks.count("share", self.share)


@struct.dataclass
class TrackedState:
    """State of `Tracked`.

    Attributes:
      inverse: `[N, d, d]`, of the second derivatives of each parameter's loss with the ridge.
      longest: `[]`, norm of the longest features so far.
      schedule: of Newton steps on all of the data.
    """

    inverse: jax.Array
    longest: jax.Array
    schedule: Schedule


@struct.dataclass
class Tracked(_Following):
    """The minimum of a quadratic model of the old observations' loss plus the exact loss of the newest one; for small dimensions.

    For rows that bear on one parameter: those of one item each, or of pairs of query and item. See `TrackedBlocks` for others.

    The model is the loss to second order around the last fit. With one more observation its minimum moves along that one's
    features alone, by what one or two equations in its utilities say, and its second derivatives change by a matrix of rank one
    or two. A round thus costs no pass over the data. After each of the first rounds, and then at growing distances, Newton steps on all of
    the data make the model anew.

    There the estimate was within 1e-4 of the maximum-likelihood one in a logit, mostly 1e-6, over 1,000 rounds with 5 items of 5 features.
    Between them it was off by 3e-4 (median) and up to .004 where features had norms up to 1 and the ridge was 1; by .006 and up to .1 with
    norms up to 3 or a ridge of .1, and with both by .02, in one case by 1.

    Attributes:
      first: so many rounds all end with Newton steps (static).
      share: from then on they come after at most one in so many of the rounds so far (static).
    """

    def init(self, num: int, dim: int, ridge: Leaf) -> TrackedState:
        """Nothing observed."""
        inverse = jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / ridge, (num, dim, dim))
        return TrackedState(inverse, jnp.zeros((), jnp.float32), Schedule.begun())

    def fit(
        self, state: TrackedState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, TrackedState]:
        """See `Solver.fit`."""
        num, dim = theta.shape
        mask = numerics.one_hot(chosen[0], num)
        inverse, start = _picked(mask, state.inverse), _picked(mask, theta)
        rows = list(new.x)
        ways = [numerics.kept(numerics.combine(row, inverse)) for row in rows]
        newest = _Newest.of(new, rows, start, ways)
        # Where its loss and the model together are least, and the second derivatives there.
        utilities = numerics.kept(newest.settled())
        missed, weights = numerics.kept((newest.missed(utilities), newest.weights(utilities)))
        moved = start - sum(way * miss for way, miss in zip(ways, missed, strict=True))
        places = range(len(rows))
        grown = inverse - sum(ways[k][:, None] * (weights[k][n] * ways[n]) for k in places for n in places)
        theta = jnp.where(mask[:, None], moved, theta)
        inverses = jnp.where(mask[:, None, None], grown, state.inverse)
        longest = _farthest(new.x, state.longest)

        def step(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            found = sums(theta, everyone=True)
            assert found.hessian is not None
            inverses = inverted(found.hessian + ridge * jnp.eye(dim, dtype=jnp.float32))
            gradient = found.gradient + ridge * theta
            full = jnp.stack([numerics.combine(gradient[j], inverses[j]) for j in range(num)])
            moves = safe(full, longest, single=len(rows) == 1)
            return theta - moves, inverses, longest * jnp.sqrt(jnp.max(jnp.sum(jnp.square(moves), axis=1)))

        due, schedule = state.schedule.next(self.first, self.share)
        values = numerics.kept((theta, inverses))
        theta, inverses = lax.cond(due, functools.partial(_newton_steps, step), lambda theta, model: (theta, model), *values)
        return numerics.kept(theta), TrackedState(numerics.kept(inverses), longest, schedule)


@struct.dataclass
class BlocksState:
    """State of `TrackedBlocks`: a quadratic model of the loss with the ridge, around the parameters.

    Attributes:
      hessian: `[N d, N d]`, its second derivatives.
      gradient: `[N d]`, of all items: not zero for those that were not shown lately.
      longest: `[]`, norm of the longest features so far.
      schedule: of Newton steps on all of the data.
    """

    hessian: jax.Array
    gradient: jax.Array
    longest: jax.Array
    schedule: Schedule


@struct.dataclass
class TrackedBlocks(_Following):
    """`Tracked` for rows that show two items with a parameter each: the two are estimated together, the others stay what they are.

    The quadratic model is one of all parameters, since an item's loss depends on those that it was shown with. Its gradient is followed
    too: in the block of the two items it is what other rounds have changed since they were estimated.

    Against block estimates by exact steps errors are like those of `Tracked`.

    Source: ACQB, Algorithm 2, lines 17 and 18.

    Attributes:
      first: so many rounds all end with Newton steps (static).
      share: from then on they come after at most one in so many of the rounds so far (static).
    """

    def init(self, num: int, dim: int, ridge: Leaf) -> BlocksState:
        """Nothing observed."""
        size = num * dim
        hessian = jnp.asarray(ridge, jnp.float32) * jnp.eye(size, dtype=jnp.float32)
        zero = jnp.zeros((), jnp.float32)
        return BlocksState(hessian, jnp.zeros((size,), jnp.float32), zero, Schedule.begun())

    def fit(
        self, state: BlocksState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, BlocksState]:
        """See `Solver.fit`."""
        num, dim = theta.shape
        shown = chosen.shape[0]
        block = _Block([numerics.one_hot(chosen[k], num) for k in range(shown)])
        longest = _farthest(new.x, state.longest)

        # The newest observation's loss and the model of the others are least together; then the model has the new one too.
        inverse = block.inverse(state.hessian)
        rows = [_padded(new.x[k], k, shown) for k in range(shown)]
        ways = [numerics.kept(numerics.combine(row, inverse)) for row in rows]
        back = numerics.kept(numerics.combine(block.of(state.gradient), inverse))
        newest = _Newest.of(new, rows, block.of(theta.reshape(-1)) - back, ways)
        utilities = numerics.kept(newest.settled())
        missed, weights = numerics.kept((newest.missed(utilities), newest.weights_of(utilities)))
        move = -block.to_all(back + sum(way * miss for way, miss in zip(ways, missed, strict=True)))
        move = numerics.kept(move)
        all_rows = [block.to_all(row) for row in rows]
        gradient = state.gradient + numerics.combine(move, state.hessian)
        gradient += sum(row * miss for row, miss in zip(all_rows, missed, strict=True))
        places = range(shown)
        grown = sum(all_rows[k][:, None] * (weights[k][n] * all_rows[n]) for k in places for n in places)
        theta, model = theta + move.reshape(num, dim), (state.hessian + grown, gradient)

        def step(theta: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array], jax.Array]:
            found = sums(theta, everyone=True)
            assert found.hessian is not None
            hessian = numerics.kept(found.hessian[0] + ridge * jnp.eye(num * dim, dtype=jnp.float32))
            gradient = (found.gradient + ridge * theta).reshape(-1)
            full = numerics.combine(block.of(gradient), block.inverse(hessian)).reshape(shown, dim)
            moves = safe(full, longest, single=False)
            move = numerics.kept(-block.to_all(moves.reshape(-1)))
            moved = longest * jnp.sqrt(jnp.max(jnp.sum(jnp.square(moves), axis=1)))
            return theta + move.reshape(num, dim), (hessian, gradient + numerics.combine(move, hessian)), moved

        due, schedule = state.schedule.next(self.first, self.share)
        values = numerics.kept((theta, model))
        theta, model = lax.cond(due, functools.partial(_newton_steps, step), lambda theta, model: (theta, model), *values)
        hessian, gradient = numerics.kept(model)
        return numerics.kept(theta), BlocksState(hessian, gradient, longest, schedule)


class _Block(NamedTuple):
    """The parameters of the items shown, among those of all: `S = K d` numbers of `N d`.

    masks: `[N]` of each item, all False for one that is missing.
    """

    masks: list[jax.Array]

    def of(self, values: jax.Array) -> jax.Array:
        """Numbers `[N d]` of the block, `[S]`."""
        table = values.reshape(self.masks[0].shape[0], -1)
        return jnp.concatenate([numerics.pick(mask, table.T) for mask in self.masks])

    def to_all(self, values: jax.Array) -> jax.Array:
        """`[S]` at their places among all, `[N d]`, with zeros elsewhere."""
        parts = values.reshape(len(self.masks), -1)
        return sum(jnp.where(m[:, None], part, 0.0) for m, part in zip(self.masks, parts, strict=True)).reshape(-1)

    def inverse(self, matrix: jax.Array) -> jax.Array:
        """Inverse `[S, S]` of the block of a matrix `[N d, N d]`; a missing item has that of one."""
        num, size = self.masks[0].shape[0], matrix.shape[-1]
        rows = self._picked(matrix.reshape(num, -1, size), lambda mask: mask[:, None, None], 0)
        block = self._picked(rows.reshape(-1, num, size // num), lambda mask: mask[None, :, None], 1)
        missing = jnp.repeat(jnp.stack([~jnp.any(mask) for mask in self.masks]), size // num)
        return inverted((block + jnp.where(missing, 1.0, 0.0) * jnp.eye(block.shape[0], dtype=jnp.float32))[None])[0]

    def _picked(self, table: jax.Array, broadcast: Callable[[jax.Array], jax.Array], axis: int) -> jax.Array:
        """The items' slices of an axis, one after another."""
        return numerics.kept(
            jnp.concatenate([jnp.sum(jnp.where(broadcast(m), table, 0.0), axis=axis) for m in self.masks], axis=axis)
        )


def _padded(x: jax.Array, place: int, number: int) -> jax.Array:
    """Features of one item of a block as features of the whole block."""
    nothing = jnp.zeros_like(x)
    return jnp.concatenate([x if k == place else nothing for k in range(number)])


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

    @classmethod
    def of(cls, new: New, rows: list[jax.Array], start: jax.Array, ways: list[jax.Array]) -> "_Newest":
        """From its features in a block of parameters, those parameters, and `B x_k`.

        Args:
          new: the observation.
          rows: `[S]` of each item.
          start: `[S]`, the parameters at the minimum of the model of the others.
          ways: `[S]` of each item.
        """
        if new.took is None or new.shown is None:
            raise TypeError("new must be as new_row and new_pair make it: with what was shown and accepted")
        return cls(
            before=[numerics.kept(jnp.sum(row * start)) for row in rows],
            reach=[[numerics.kept(jnp.sum(row * way)) for way in ways] for row in rows],
            took=[new.took[k] for k in range(len(rows))],
            shown=[new.shown[k] for k in range(len(rows))],
        )

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

    def _slope(self, utilities: list[jax.Array]) -> tuple[list[list[Any]], Any, list[list[Any]]]:
        """Adjugate and determinant of `I + reach W`, and `W = diag(p) - p p'`."""
        p = self.chances(utilities)
        if len(p) == 1:
            weight = p[0] * (1.0 - p[0])
            return [[1.0]], 1.0 + self.reach[0][0] * weight, [[weight]]
        w = [[p[0] * (1.0 - p[0]), -p[0] * p[1]], [-p[0] * p[1], p[1] * (1.0 - p[1])]]
        (a, b), (c, d) = ((sum(q[n] * w[n][k] for n in range(2)) for k in range(2)) for q in self.reach)
        return [[1.0 + d, -b], [-c, 1.0 + a]], (1.0 + a) * (1.0 + d) - b * c, w

    def weights_of(self, utilities: list[jax.Array]) -> list[list[Any]]:
        """`W`, the second derivatives in the utilities."""
        return self._slope(utilities)[2]

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
