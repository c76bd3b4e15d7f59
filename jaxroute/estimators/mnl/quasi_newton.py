"""Solvers without second derivatives of all observations: a quasi-Newton method for large dimensions (`BFGS`), and a single step (`Online`)."""

from typing import ClassVar, NamedTuple, TypeAlias

import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.mnl.likelihood import Derivatives, NewestObservation, Solver
from jaxroute.estimators.mnl.newton import inverse_ridge, longest_of, safe

# Smallest cosine between the step and the change of the gradient for an update of the second derivatives.
_LEAST_CURVATURE = 1e-6
# Number of steps of each parameter without a smaller error after which only rounding remains.
_PATIENCE = 4
# State of `Online`: inverses `B_j^-1` `[N, d, d]`, and the rounding errors of the parameters `[N, d]`.
OnlineState: TypeAlias = tuple[numerics.Sum, Array]


@struct.dataclass
class Online(Solver):
    """Solver that takes one step, on the new observation (features `x`) alone: `theta_j <- theta_j - B_j^-1 (p_j - y_j) x`.

    `p_j` is the predicted probability of acceptance, `y_j` the outcome (1 or 0), and `B_j` the ridge plus the second derivatives of all observations,
    each evaluated at the estimate just before that observation. It approximates maximum likelihood where passes over all data are too expensive.

    Source: the online Newton step; Zhang and Sugiyama (2023) for the multinomial-logit model. Not in ACQB.
    """

    needs_hessian: ClassVar[bool] = False

    def init(self, num: int, dim: int, ridge: Leaf) -> OnlineState:
        return numerics.Sum.of(inverse_ridge(num, dim, ridge)), jnp.zeros((num, dim), jnp.float32)

    def fit(
        self, state: OnlineState, sums: Derivatives, theta: Array, chosen: Array, ridge: Leaf, new: NewestObservation
    ) -> tuple[Array, OnlineState]:
        del sums, ridge
        estimate, inverses = _online(numerics.Sum(theta, state[1]), state[0], chosen, new, None)
        return estimate.total, (inverses, estimate.error)

    def residual(self, state: OnlineState) -> Array:
        """Returns NaN: unlike other solvers, `Online` does not know the largest error of a logit."""
        return jnp.full((), jnp.nan, state[1].dtype)


@struct.dataclass
class BFGSState:
    """State of the solver `BFGS` between two fits.

    Attributes:
      inverse: `[N, d, d]` estimates, for each of `N` parameters, of the inverse second derivatives of the loss with the ridge.
      longest: `[]` norm of the longest features so far.
      residual: `[]` largest estimate, over all fits, of the error of a logit.
    """

    inverse: Array
    longest: Array
    residual: Array


class _Point(NamedTuple):
    """State between two steps of `BFGS`, for the `A` entries of `chosen` (-1: no item) among `N` items. A batch of runs (`vmap`) steps together.

    Attributes:
      theta: `[N, d]` parameters.
      inverse: `[N, d, d]` estimates `B_j^-1` of the inverse second derivatives.
      gradient: `[A, d]` gradient of the loss, including the ridge, in the chosen parameters.
      moves: `[A, d]` products of `B_j^-1` and the gradient: the next steps with the opposite sign.
      least: `[]` smallest value so far of the estimated largest error of a logit.
      since: `[]` int32 number of steps since `least` last decreased; at `4 A` steps the fit ends, as only rounding errors remain.
      active: `[]` bool, whether this run needs another step.
      steps: `[]` int32 number of steps so far, the same in all runs of a batch.
    """

    theta: Array
    inverse: Array
    gradient: Array
    moves: Array
    least: Array
    since: Array
    active: Array
    steps: Array


@struct.dataclass
class BFGS(Solver):
    """Solver with quasi-Newton steps until all logits are within a tolerance of the maximum-likelihood ones; for large dimensions.

    An estimate `B^-1` of each parameter vector's inverse second derivatives is carried from round to round. A new observation's second derivatives
    are added to `B`, and a first step needs no pass over the data, as in `Online`. Steps `theta_j <- theta_j - B_j^-1 gradient` follow, one item
    after the other. Each of these steps computes the gradient in one pass over the data; the gradient's change updates `B_j^-1` (Broyden, Fletcher,
    Goldfarb and Shanno). Steps end when `sqrt(gradient' B^-1 gradient / ridge)` times the norm of the longest features, an estimate of a logit's
    error, is within the tolerance, or when rounding prevents a decrease. After the stop, the last gradient is used for one more step. Steps are
    shortened as in `Newton`.

    Source: Nocedal and Wright (2006), "Numerical Optimization", eq. (6.17).

    Attributes:
      tolerance: largest error of a logit (static).
      passes: largest number of steps with a pass over the data after an observation (static).
    """

    tolerance: float = struct.field(pytree_node=False, default=1e-3)
    passes: int = struct.field(pytree_node=False, default=256)

    needs_hessian: ClassVar[bool] = False

    def check(self) -> None:
        checks.non_negative("tolerance", self.tolerance, ())
        checks.count("passes", self.passes)

    def init(self, num: int, dim: int, ridge: Leaf) -> BFGSState:
        zero = jnp.zeros((), jnp.float32)
        return BFGSState(inverse_ridge(num, dim, ridge), zero, zero)

    def fit(
        self, state: BFGSState, sums: Derivatives, theta: Array, chosen: Array, ridge: Leaf, new: NewestObservation
    ) -> tuple[Array, BFGSState]:
        number, size = chosen.shape[0], theta.shape[0]
        longest = longest_of(state.longest, new)
        spread = longest if new.x.shape[0] == 1 else 2.0 * longest
        scale = longest / jnp.sqrt(jnp.asarray(ridge, theta.dtype))

        def gradients(theta: Array) -> Array:
            """Returns the loss's gradient, with the ridge, in the parameters of `chosen` items, `[A, d]`; the row of a -1 (no item) is zero."""
            own = jnp.stack([numerics.pick(numerics.one_hot(chosen[a], size), theta.T) for a in range(number)])
            found = sums(theta, hessian=False).gradient + ridge * own
            return xla.compute_once(jnp.where((chosen >= 0)[:, None], found, 0.0))

        def moves(inverse: Array, gradient: Array) -> Array:
            each = [numerics.at(inverse, (jnp.maximum(chosen[a], 0),)) for a in range(number)]
            return xla.compute_once(jnp.stack([numerics.combine(g, b) for g, b in zip(list(gradient), each, strict=True)]))

        def residual(gradient: Array, ways: Array) -> Array:
            return scale * jnp.sqrt(jnp.maximum(jnp.sum(gradient * ways), 0.0))

        def one(now: _Point) -> _Point:
            mine = numerics.one_hot(now.steps % number, number)
            item = numerics.pick(mine, chosen)
            move, before = numerics.pick(mine, now.moves.T), numerics.pick(mine, now.gradient.T)
            reach = spread * jnp.sqrt(jnp.sum(jnp.square(move)))
            step = xla.compute_once(jnp.where(now.active, -safe(reach), 0.0) * move)
            theta = xla.compute_once(now.theta + jnp.where(numerics.one_hot(item, size)[:, None], step, 0.0))
            gradient = jnp.where(now.active, gradients(theta), now.gradient)
            change = xla.compute_once(numerics.pick(mine, gradient.T) - before)
            along, norms = jnp.sum(step * change), jnp.sum(jnp.square(step)) * jnp.sum(jnp.square(change))
            place = (jnp.maximum(item, 0),)
            old = numerics.at(now.inverse, place)
            image = xla.compute_once(numerics.combine(change, old))
            usable = now.active & (along > _LEAST_CURVATURE * jnp.sqrt(norms))
            share = jnp.where(usable, 1.0 / jnp.where(usable, along, 1.0), 0.0)
            towards = xla.compute_once(0.5 * (1.0 + share * jnp.sum(change * image)) * step - image)
            grown = old + share * (step[:, None] * towards + towards[:, None] * step)
            inverse = numerics.put(now.inverse, place, xla.compute_once(grown))
            if number == 1:  # Equal, without another product with the matrix.
                along_both = jnp.sum(towards * gradient[0]), jnp.sum(step * gradient[0])
                ways = now.moves + image + share * (step * along_both[0] + towards * along_both[1])
            else:
                ways = moves(inverse, gradient)
            left = residual(gradient, ways)
            since = jnp.where(left < now.least, 0, now.since + 1)
            active = now.active & (left > self.tolerance) & (since < _PATIENCE * number)
            least = jnp.minimum(left, now.least)
            return xla.compute_once(_Point(theta, inverse, gradient, ways, least, since, active, now.steps + 1))

        def again(now: _Point) -> Array:
            return (xla.largest_over_runs(now.active.astype(jnp.int32)) > 0) & (now.steps < self.passes)

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


def _online(
    theta: numerics.Sum, inverses: numerics.Sum, chosen: Array, new: NewestObservation, spread: Array | None
) -> tuple[numerics.Sum, numerics.Sum]:
    """Takes a step on the observation `new` alone, in the parameters of the items `chosen` `[A]`. Returns the new `theta` and `inverses`.

    `theta` `[N, d]` are the parameters, `inverses` `[N, d, d]` each item's inverse second derivatives, both with rounding errors. If `spread` is
    given, steps are shortened to a `safe` length: a step of norm `s` moves a difference of logits by at most `spread * s`.
    """
    for a in range(chosen.shape[0]):
        # Item -1 has zero features: writing it changes nothing.
        inverse = inverses.at(chosen[a])
        for k in range(new.x.shape[0]) if chosen.shape[0] == 1 else [a]:
            inverse = sherman_morrison(inverse, new.x[k], new.weight[k])
        inverse = xla.compute_once(inverse)
        move = xla.compute_once(numerics.combine(new.gradient[a], inverse.total))
        if spread is not None:
            move = xla.compute_once(move * safe(spread * jnp.sqrt(jnp.sum(jnp.square(move)))))
        theta = theta.add(-move, numerics.one_hot(chosen[a], len(theta.total))[:, None])
        inverses = inverses.put(chosen[a], inverse)
    return theta, inverses
