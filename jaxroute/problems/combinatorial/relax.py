"""How a policy finds a relaxed selection, rounds it to a set, and orders a cascade: choices of behaviour, as small objects.

A solver's `solve(spec, w, cost, obs, allowed)` returns a `Selection` for the reward of the spec: `w` `[K]` are chances in (0, 1),
`cost` `[K]` is non-negative, `allowed` `[K]` bool.
"""

from typing import Any

import jax.numpy as jnp
import optax
from flax import struct

from jaxroute import draws, numerics
from jaxroute.solvers import rounding, selection
from jaxroute.solvers.projected_gradient import projected_gradient
from jaxroute.solvers.projection import smoothed_lp
from jaxroute.types import Leaf

# Beyond this many vertices the best of two approximations replaces their comparison.
_MOST_VERTICES = 10_000


@struct.dataclass
class Linear:
    """One linear programme with the reward's additive weights: exact for `SumUp` and `AllIn`, without guarantee for `AnyWin`.

    Source: C2MAB-V, eqs. (4) and (5). steps: dual steps of the solver (static; default by the number of models).
    """

    steps: int | None = struct.field(pytree_node=False, default=None)

    def solve(self, spec, w, cost, obs, allowed):
        return selection.linear_selection(
            spec.reward.weight(w),
            cost,
            obs.budget,
            obs.size,
            allowed=allowed,
            exact_size=spec.reward.exact_size,
            steps=self.steps,
        )


@struct.dataclass
class Vertices:
    """All vertices compared: exact for `AnyWin` with few models. Source: C2MAB-V, eq. (3)."""

    def solve(self, spec, w, cost, obs, allowed):
        return selection.exact_any_win(w, cost, obs.budget, obs.size, allowed=allowed, max_size=spec.max_size)


@struct.dataclass
class ContinuousGreedy:
    """Continuous greedy for `AnyWin`: at least `1 - 1/e` of the optimum. polish: unit steps afterwards (static)."""

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=0)

    def solve(self, spec, w, cost, obs, allowed):
        del spec
        task = (w, cost, obs.budget, obs.size)
        found = selection.continuous_greedy_any_win(*task, allowed=allowed, steps=self.steps)
        return selection.polish_any_win(found, *task, allowed=allowed, steps=self.polish) if self.polish else found


@struct.dataclass
class BestOf:
    """The better of a polished linear programme and a polished continuous greedy, for `AnyWin` with many models."""

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=2)

    def solve(self, spec, w, cost, obs, allowed):
        del spec
        task = (w, cost, obs.budget, obs.size)
        starts = (
            selection.log_any_win(*task, allowed=allowed),
            selection.continuous_greedy_any_win(*task, allowed=allowed, steps=self.steps),
        )
        polished = [selection.polish_any_win(s, *task, allowed=allowed, steps=self.polish) for s in starts]
        return selection.best_any_win(polished, w)


@struct.dataclass
class Smoothed:
    """The differentiable linear programme: one projection of the weights over `temperature` `[]`, scaled to at most one.

    For `AnyWin` the weights are those of the linear programme, which has no guarantee.
    """

    temperature: Leaf = 0.01

    def solve(self, spec, w, cost, obs, allowed):
        found = smoothed_lp(
            _scaled(jnp.where(allowed, spec.reward.weight(w), 0.0)),
            cost,
            obs.budget,
            _room(spec, obs, allowed),
            self.temperature,
            upper=allowed.astype(w.dtype),
            at_most=not spec.reward.exact_size,
        )
        return selection.Selection(found.z, found.budget_multiplier * self.temperature, found.feasible)


@struct.dataclass
class ProjectedGradient:
    """Projected gradient ascent on the relaxed reward (its logarithm for `AllIn`, that of the chance of no win for `AnyWin`).

    learning_rate: `[]`, for weights scaled to at most one. steps: how many (static).
    """

    learning_rate: Leaf = 10.0
    steps: int = struct.field(pytree_node=False, default=10)

    def solve(self, spec, w, cost, obs, allowed):
        exact = spec.reward.exact_size
        w = jnp.where(allowed, w, 1e-6)
        weight = _scaled(spec.reward.weight(w))

        def gradient(z):
            return weight if exact else _scaled(selection.any_win_gradient(w, z))

        total = _room(spec, obs, allowed)
        z = projected_gradient(
            gradient,
            cost,
            obs.budget,
            total,
            upper=allowed.astype(w.dtype),
            at_most=not exact,
            optimizer=optax.sgd(self.learning_rate),
            steps=self.steps,
        )
        return selection.Selection(z, jnp.zeros(()), jnp.sum(cost * z) <= obs.budget * (1 + 1e-5))


def _scaled(weight):
    """Weights over the largest.

    The derivative of `jnp.max` looks for the place of the maximum again, and finds none if the compiler rounds the second copy
    otherwise; here it is that of the place found once.
    """
    size = jnp.abs(weight)
    first = numerics.one_hot(jnp.argmax(size), size.shape[-1])
    return weight / jnp.maximum(numerics.pick(first, size), 1e-6)


def _room(spec, obs, allowed):
    count = jnp.sum(allowed.astype(jnp.float32))
    return jnp.minimum(obs.size, count) if spec.reward.exact_size else obs.size


def default_solver(spec) -> Any:
    """Exact where that is cheap: `Linear`, or `Vertices` for few models; otherwise `BestOf`."""
    if spec.reward.exact_size:
        return Linear()
    pairs = spec.num_models * (spec.num_models + 1) // 2
    sets = len(selection.subsets(spec.num_models, spec.max_size - 1)) if spec.num_models <= 12 else _MOST_VERTICES
    return Vertices() if sets * pairs <= _MOST_VERTICES else BestOf()


@struct.dataclass
class Pairwise:
    """Pairwise rounding. Source: C2MAB-V, Algorithm 3."""

    def round(self, key, z, spec):
        return rounding.pairwise(z, draws.uniform(key, z.shape), whole_sum=spec.reward.exact_size)


@struct.dataclass
class Swap:
    """Swap rounding. Source: C2MAB-V, Algorithm 2."""

    def round(self, key, z, spec):
        k_trade, k_group = draws.split(key)
        size = z.shape[-1]
        return rounding.swap(z, draws.uniform(k_trade, (size, spec.max_size)), draws.uniform(k_group, (size,)))


def default_rounding(spec) -> Any:
    """The paper's: `Swap` for any win, `Pairwise` for sets of exact size."""
    return Pairwise() if spec.reward.exact_size else Swap()


@struct.dataclass
class ByPrice:
    """Cheap models first. The paper gives no order; its Fig. 2 goes from cheap to dear."""

    def order(self, key, obs, value, cost):
        del key, value, cost
        return obs.price


@struct.dataclass
class ByReward:
    """Models of large reward bound first."""

    def order(self, key, obs, value, cost):
        del key, obs, cost
        return -value


@struct.dataclass
class ByCost:
    """Models of small cost bound first."""

    def order(self, key, obs, value, cost):
        del key, obs, value
        return cost


@struct.dataclass
class ByIndex:
    """In the order of the models."""

    def order(self, key, obs, value, cost):
        del key, obs, value
        return jnp.zeros_like(cost)


@struct.dataclass
class ByChance:
    """In a new random order each round."""

    def order(self, key, obs, value, cost):
        del obs, value
        return draws.uniform(key, cost.shape)


@struct.dataclass
class HoldAction:
    """Between two batches the set stays. Source: C2MAB-V, appendix E.3."""

    def hold(self, fresh, new, held):
        """`(selected, relaxed)` of this round, from those of a new decision and those held."""
        return tuple(jnp.where(fresh, n, h) for n, h in zip(new, held, strict=True))

    def relaxed(self, fresh, z, held_z):
        del fresh, held_z
        return z


@struct.dataclass
class HoldRelaxed:
    """Between two batches the relaxed selection stays and is rounded anew in every round."""

    def hold(self, fresh, new, held):
        """`(selected, relaxed)` of this round, from those of a new decision and those held."""
        del fresh, held
        return new

    def relaxed(self, fresh, z, held_z):
        return jnp.where(fresh, z, held_z)
