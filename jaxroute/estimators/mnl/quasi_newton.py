"""A quasi-Newton method that computes gradients alone, for large dimensions, and one on-line step."""

from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.mnl.newest import New
from jaxroute.estimators.mnl.newton import longest_of, safe
from jaxroute.estimators.mnl.types import Derivatives

# An update of the second derivatives needs a change of the gradient along the step of this share of both norms.
_LEAST_CURVATURE = 1e-6
# So many steps of each parameter without a smaller error than before are taken for rounding.
_PATIENCE = 4
# State of `Online`: `B_j^-1` `[N, d, d]`, and what rounding has left out of the parameters `[N, d]`.
OnlineState: TypeAlias = tuple[numerics.Sum, jax.Array]


@struct.dataclass
class Online:
    """One step on the new observation alone: `theta_j <- theta_j - B_j^-1 (p_j - y_j) x`, which forgets the other data.

    An approximation for horizons at which passes over all data are too expensive; not the maximum-likelihood estimate.

    Source: the online Newton step; Zhang and Sugiyama (2023) for the multinomial-logit model. Not in ACQB.
    """

    needs_hessian: ClassVar[bool] = False

    def check(self) -> None:
        pass

    def init(self, num: int, dim: int, ridge: Leaf) -> OnlineState:
        """Nothing observed."""
        return numerics.Sum.of(_inverse_ridge(num, dim, ridge)), jnp.zeros((num, dim), jnp.float32)

    def fit(
        self, state: OnlineState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, OnlineState]:
        """See `Solver.fit`."""
        del sums, ridge
        estimate, inverses = _online(numerics.Sum(theta, state[1]), state[0], chosen, new, None)
        return estimate.total, (inverses, estimate.error)

    def residual(self, state: OnlineState) -> jax.Array:
        """Not known: NaN."""
        return jnp.full((), jnp.nan, state[1].dtype)


@struct.dataclass
class BFGSState:
    """State of `BFGS`.

    Attributes:
      inverse: `[N, d, d]`, estimates of the inverse second derivatives of each parameter's loss with the ridge.
      longest: `[]`, norm of the longest features so far.
      residual: `[]`, the largest estimate, over all fits, of the error of a logit.
    """

    inverse: jax.Array
    longest: jax.Array
    residual: jax.Array


class _Point(NamedTuple):
    """Between two steps.

    Attributes:
      theta: `[N, d]`.
      inverse: `[N, d, d]`.
      gradient: `[A, d]`, with the ridge.
      moves: `[A, d]`, `B_j^-1` times that.
      least: `[]`, the smallest estimate of the error of a logit so far.
      since: `[]` int32, steps since then.
      wanted: `[]` bool, whether another step is.
      steps: `[]` int32, the same in all runs.
    """

    theta: jax.Array
    inverse: jax.Array
    gradient: jax.Array
    moves: jax.Array
    least: jax.Array
    since: jax.Array
    wanted: jax.Array
    steps: jax.Array


@struct.dataclass
class BFGS:
    """Quasi-Newton steps until no logit is further than a tolerance from the maximum-likelihood one; for large dimensions.

    Of each parameter an estimate `B^-1` of the inverse second derivatives is carried from round to round. A new observation adds its own
    second derivatives to `B`, and makes a first step that needs no pass over the data, as in `Online`. Then come steps
    `theta_j <- theta_j - B_j^-1 gradient`, of one parameter after the other, after each of which `B_j^-1` is corrected by what the gradient has
    changed (Broyden, Fletcher, Goldfarb and Shanno). They end where `sqrt(gradient' B^-1 gradient / ridge)` times the norm of the longest features
    is within the tolerance, or where rounding keeps it from falling; one more step follows, whose gradient is not computed. Steps are shortened as
    in `Newton`.

    Differs from `Newton`: the decrement is an estimate, as the second derivatives are.

    Source: Nocedal and Wright (2006), "Numerical Optimization", eq. (6.17).

    Attributes:
      tolerance: largest error of a logit (static).
      passes: steps after an observation at most, each a pass over the data (static).
    """

    tolerance: float = struct.field(pytree_node=False, default=1e-3)
    passes: int = struct.field(pytree_node=False, default=256)

    needs_hessian: ClassVar[bool] = False

    def check(self) -> None:
        checks.non_negative("tolerance", self.tolerance, ())
        checks.count("passes", self.passes)

    def init(self, num: int, dim: int, ridge: Leaf) -> BFGSState:
        """Nothing observed."""
        zero = jnp.zeros((), jnp.float32)
        return BFGSState(_inverse_ridge(num, dim, ridge), zero, zero)

    def residual(self, state: BFGSState) -> jax.Array:
        """The largest estimate, over all fits, of the error of a logit, `[]`."""
        return state.residual

    def fit(
        self, state: BFGSState, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, BFGSState]:
        """See `Solver.fit`."""
        number, size = chosen.shape[0], theta.shape[0]
        longest = longest_of(state.longest, new)
        spread = longest if new.x.shape[0] == 1 else 2.0 * longest
        scale = longest / jnp.sqrt(jnp.asarray(ridge, theta.dtype))

        def gradients(theta: jax.Array) -> jax.Array:
            """Eq. (4) of the chosen parameters, zero for one of -1."""
            own = jnp.stack([numerics.pick(numerics.one_hot(chosen[a], size), theta.T) for a in range(number)])
            found = sums(theta, hessian=False).gradient + ridge * own
            return xla.compute_once(jnp.where((chosen >= 0)[:, None], found, 0.0))

        def moves(inverse: jax.Array, gradient: jax.Array) -> jax.Array:
            each = [numerics.at(inverse, (jnp.maximum(chosen[a], 0),)) for a in range(number)]
            return xla.compute_once(jnp.stack([numerics.combine(g, b) for g, b in zip(list(gradient), each, strict=True)]))

        def residual(gradient: jax.Array, ways: jax.Array) -> jax.Array:
            return scale * jnp.sqrt(jnp.maximum(jnp.sum(gradient * ways), 0.0))

        def one(now: _Point) -> _Point:
            mine = numerics.one_hot(now.steps % number, number)
            item = numerics.pick(mine, chosen)
            move, before = numerics.pick(mine, now.moves.T), numerics.pick(mine, now.gradient.T)
            reach = spread * jnp.sqrt(jnp.sum(jnp.square(move)))
            step = xla.compute_once(jnp.where(now.wanted, -safe(reach), 0.0) * move)
            theta = xla.compute_once(now.theta + jnp.where(numerics.one_hot(item, size)[:, None], step, 0.0))
            gradient = jnp.where(now.wanted, gradients(theta), now.gradient)
            change = xla.compute_once(numerics.pick(mine, gradient.T) - before)
            along, norms = jnp.sum(step * change), jnp.sum(jnp.square(step)) * jnp.sum(jnp.square(change))
            place = (jnp.maximum(item, 0),)
            old = numerics.at(now.inverse, place)
            image = xla.compute_once(numerics.combine(change, old))
            usable = now.wanted & (along > _LEAST_CURVATURE * jnp.sqrt(norms))
            share = jnp.where(usable, 1.0 / jnp.where(usable, along, 1.0), 0.0)
            towards = xla.compute_once(0.5 * (1.0 + share * jnp.sum(change * image)) * step - image)
            grown = old + share * (step[:, None] * towards + towards[:, None] * step)
            inverse = numerics.put(now.inverse, place, xla.compute_once(grown))
            if number == 1:  # The same without another product with the matrix.
                along_both = jnp.sum(towards * gradient[0]), jnp.sum(step * gradient[0])
                ways = now.moves + image + share * (step * along_both[0] + towards * along_both[1])
            else:
                ways = moves(inverse, gradient)
            left = residual(gradient, ways)
            since = jnp.where(left < now.least, 0, now.since + 1)
            wanted = now.wanted & (left > self.tolerance) & (since < _PATIENCE * number)
            least = jnp.minimum(left, now.least)
            return xla.compute_once(_Point(theta, inverse, gradient, ways, least, since, wanted, now.steps + 1))

        def again(now: _Point) -> jax.Array:
            return (xla.largest_over_runs(now.wanted.astype(jnp.int32)) > 0) & (now.steps < self.passes)

        estimate, inverses = _online(numerics.Sum.of(theta), numerics.Sum.of(state.inverse), chosen, new, spread)
        theta, inverse = estimate.total, inverses.total
        gradient = gradients(theta)
        ways = moves(inverse, gradient)
        left = residual(gradient, ways)
        start = _Point(theta, inverse, gradient, ways, left, jnp.int32(0), left > self.tolerance, jnp.int32(0))
        end = lax.while_loop(again, one, xla.compute_once(start))
        theta = end.theta
        for a in range(number):
            move = end.moves[a]
            length = safe(spread * jnp.sqrt(jnp.sum(jnp.square(move))))
            theta = jnp.where(numerics.one_hot(chosen[a], size)[:, None], theta - length * move, theta)
        return xla.compute_once(theta), BFGSState(
            end.inverse, longest, jnp.maximum(state.residual, residual(end.gradient, end.moves))
        )


def _inverse_ridge(num: int, dim: int, ridge: Leaf) -> jax.Array:
    """`I / ridge` for each parameter, `[N, d, d]`."""
    return jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / ridge, (num, dim, dim))


def _online(
    theta: numerics.Sum, inverses: numerics.Sum, chosen: jax.Array, new: New, spread: jax.Array | None
) -> tuple[numerics.Sum, numerics.Sum]:
    """A step on the new observation alone, and `B_j^-1` with its second derivatives.

    Args:
      theta: `[N, d]`.
      inverses: `B_j^-1` `[N, d, d]`.
      chosen: `[A]`.
      new: the observation.
      spread: `[]`, how far logits move with a parameter, by which steps are shortened; None for full steps.
    """
    for a in range(chosen.shape[0]):
        # An item of -1 has no features: nothing changes where it is written.
        inverse = inverses.at(chosen[a])
        for k in new.rows_of(a, chosen.shape[0]):
            inverse = sherman_morrison(inverse, new.x[k], new.weight[k])
        inverse = xla.compute_once(inverse)
        move = xla.compute_once(numerics.combine(new.gradient[a], inverse.total))
        if spread is not None:
            move = xla.compute_once(move * safe(spread * jnp.sqrt(jnp.sum(jnp.square(move)))))
        theta = theta.add(-move, numerics.one_hot(chosen[a], len(theta.total))[:, None])
        inverses = inverses.put(chosen[a], inverse)
    return theta, inverses
