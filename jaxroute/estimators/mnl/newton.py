"""Newton's method, for small dimensions."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import solve
from jaxroute.estimators.mnl.newest import New
from jaxroute.estimators.mnl.types import Derivatives, Sums

# A full Newton step lowers the loss if no logit moves further than this: exp(z) - z - 1 < z^2.
SAFE_MOVE = 1.79


def safe(steps: jax.Array, longest: jax.Array, *, single: bool) -> jax.Array:
    """Newton steps, each shortened to a length at which the loss falls, whatever features and ridge are.

    Source: Sun and Tran-Dinh (2019), "Generalized self-concordant functions".

    Args:
      steps: `[N, d]`, one per item.
      longest: `[]`, norm of the longest features.
      single: rows show one item each, so that every item has a loss of its own; otherwise all steps are shortened alike.
    """
    squares = jnp.sum(jnp.square(steps), axis=1, keepdims=True)
    # With several items the third derivative is bounded by the range of the logits' moves.
    reach = longest * jnp.sqrt(squares) if single else 2.0 * longest * jnp.sqrt(jnp.max(squares))
    return steps * jnp.where(reach > SAFE_MOVE, jnp.log1p(reach) / jnp.maximum(reach, 1.0), 1.0)


@struct.dataclass
class NewtonState:
    """State of `Newton`.

    Attributes:
      curvature: `[N, d, d]`, of the observations of each item, at the last fit.
      longest: `[]`, norm of the longest features so far.
    """

    curvature: jax.Array
    longest: jax.Array


@struct.dataclass
class Newton:
    """A step on the new observation with the stored curvature, then Newton steps; for small dimensions.

    The first step needs no pass over the data: the gradient of the old ones is zero where the last fit ended. A step that
    may move a logit by more than 1.79 is shortened to the length at which every step lowers the loss, whatever the features
    and the ridge.

    Source: Sun and Tran-Dinh (2019), "Generalized self-concordant functions", for the length of steps.

    Attributes:
      passes: Newton steps, each a pass over the data (static).
      polish: further steps, with the last curvature, that compute the gradient alone (static).
      search: a Newton step that raises the loss all the same, by rounding, is cut to a quarter; with several passes for a
        ridge far below 1 (static).
    """

    passes: int = struct.field(pytree_node=False, default=2)
    polish: int = struct.field(pytree_node=False, default=0)
    search: bool = struct.field(pytree_node=False, default=False)

    needs_hessian: ClassVar[bool] = True

    def check(self) -> None:
        checks.count("passes", self.passes)
        checks.count("polish", self.polish, minimum=0)

    def init(self, num: int, dim: int, ridge: Leaf) -> NewtonState:
        """Nothing observed."""
        del ridge
        return NewtonState(jnp.zeros((num, dim, dim), jnp.float32), jnp.zeros((), jnp.float32))

    def fit(
        self, state: NewtonState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, NewtonState]:
        """New parameters, at which the derivative of the loss with the ridge, eq. (4), is zero; see `Solver.fit`."""
        dim, num = theta.shape[1], chosen.shape[0]
        longest = jnp.maximum(state.longest, jnp.sqrt(jnp.max(jnp.sum(jnp.square(new.x), axis=1))))
        masks = [numerics.one_hot(chosen[a], theta.shape[0]) for a in range(num)]
        # With several items the third derivative is bounded by the range of the logits' moves.
        spread = 1.0 if new.x.shape[0] == 1 else 2.0

        def cut(move: jax.Array) -> jax.Array:
            """A step of a length that is safe."""
            reach = spread * longest * jnp.sqrt(jnp.max(jnp.sum(jnp.square(move.reshape(-1, dim)), axis=1)))
            return move * jnp.where(reach > SAFE_MOVE, jnp.log1p(reach) / jnp.maximum(reach, 1.0), 1.0)

        # A step on the new observation alone, with the curvature of the old ones.
        start = _picked(masks, theta)
        before = _picked(masks, state.curvature)
        trial = start - cut(solve(before + new.curvature + ridge * jnp.eye(dim, dtype=jnp.float32), new.gradient))
        ridges = ridge * jnp.eye(num * dim, dtype=jnp.float32)

        def newton(_: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            """One pass: point to try, best point so far, its loss, the move from it, its second derivatives."""
            trial, best, best_loss, move, hessian = carry
            found = sums(_placed(masks, theta, trial), loss=self.search)
            gradient = (found.gradient + ridge * trial).reshape(-1)  # eq. (4)
            second = _hessian(found)
            # An item of -1 has no data, and keeps its place.
            towards = -cut(solve(second + ridges, gradient))
            if self.search:
                value = found.loss + 0.5 * ridge * jnp.sum(trial * trial)
                better = value <= best_loss + 1e-6 * (1.0 + jnp.abs(best_loss))
                best, best_loss = jnp.where(better, trial, best), jnp.where(better, value, best_loss)
                move = jnp.where(better, towards, 0.25 * move)
                hessian = jnp.where(better, second, hessian)
            else:
                best, move, hessian = trial, towards, second
            return best + move.reshape(num, dim), best, best_loss, move, hessian

        nothing = jnp.zeros((num * dim,), trial.dtype), jnp.zeros((num * dim, num * dim), trial.dtype)
        carry = numerics.repeat(self.passes, newton, (trial, start, jnp.full((), jnp.inf, trial.dtype), *nothing))
        trial, _, _, _, hessian = carry
        for _ in range(self.polish):
            gradient = (sums(_placed(masks, theta, trial), hessian=False).gradient + ridge * trial).reshape(-1)
            trial = trial - cut(solve(hessian + ridges, gradient)).reshape(num, dim)
        blocks = jnp.stack([hessian[a * dim : (a + 1) * dim, a * dim : (a + 1) * dim] for a in range(num)])
        curvature = state.curvature
        for mask, block in zip(masks, blocks, strict=True):
            curvature = jnp.where(mask[:, None, None], block, curvature)
        return _placed(masks, theta, trial), NewtonState(curvature, longest)


def _picked(masks: list[jax.Array], values: jax.Array) -> jax.Array:
    """The elements `[A, ...]` of `values` `[N, ...]` where the one-hot masks are True, zero for an empty mask."""
    axes = tuple(range(1, values.ndim))
    return jnp.stack([jnp.sum(jnp.where(jnp.expand_dims(mask, axes), values, 0.0), axis=0) for mask in masks])


def _placed(masks: list[jax.Array], theta: jax.Array, values: jax.Array) -> jax.Array:
    """`theta` `[N, d]` with the `values` `[A, d]` where the masks are True."""
    for mask, value in zip(masks, list(values), strict=True):
        theta = jnp.where(mask[:, None], value, theta)
    return numerics.kept(theta)


def _hessian(found: Sums) -> jax.Array:
    if found.hessian is None:
        raise TypeError("Newton needs second derivatives, which these observations do not give: use Majorise or Online")
    return found.hessian
