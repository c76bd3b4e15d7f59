"""How a policy finds a relaxed selection and rounds it to a set: choices of behaviour, as small objects.

A solver's `solve(spec, w, cost, obs, allowed)` returns a `Selection` for the reward of the spec: `w` `[K]` are chances in (0, 1),
`cost` `[K]` is non-negative, `allowed` `[K]` bool. Solvers meet groups only with a common budget (otherwise there is one problem for
each group, see `solve_by_group`), and roundings see one group at a time (`round_by_group`).

The multiplier of a `Selection` is the gain of the reward's additive weight (see `rewards`) per unit of the budget: of the reward
itself for `SumUp`, of its logarithm for `AllIn`, and of minus the logarithm of the chance that none wins for `AnyWin`.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.solvers import rounding, selection
from jaxroute.solvers.projected_gradient import projected_gradient
from jaxroute.solvers.projection import smoothed_lp

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
            groups=spec.groups,
            exact_size=spec.reward.exact_size,
            steps=self.steps,
        )


@struct.dataclass
class Vertices:
    """All vertices compared: exact for `AnyWin` with few models. Source: C2MAB-V, eq. (3)."""

    def solve(self, spec, w, cost, obs, allowed):
        _require_any_win(spec, "Vertices")
        sizes = (spec.min_size, spec.max_size)
        return selection.exact_any_win(w, cost, obs.budget, obs.size, allowed=allowed, groups=spec.groups, sizes=sizes)


@struct.dataclass
class ContinuousGreedy:
    """Continuous greedy for `AnyWin`: at least `1 - 1/e` of the optimum. polish: unit steps afterwards (static)."""

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=0)

    def check(self) -> None:
        checks.count("steps", self.steps)
        checks.count("polish", self.polish, minimum=0)

    def solve(self, spec, w, cost, obs, allowed):
        _require_any_win(spec, "ContinuousGreedy")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        found = selection.continuous_greedy_any_win(*task, **rules, steps=self.steps)
        return selection.polish_any_win(found, *task, **rules, steps=self.polish) if self.polish else found


@struct.dataclass
class BestOf:
    """The better of a polished linear programme and a polished continuous greedy, for `AnyWin` with many models."""

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=2)

    def check(self) -> None:
        checks.count("steps", self.steps)
        checks.count("polish", self.polish, minimum=0)

    def solve(self, spec, w, cost, obs, allowed):
        _require_any_win(spec, "BestOf")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        starts = (
            selection.log_any_win(*task, **rules),
            selection.continuous_greedy_any_win(*task, **rules, steps=self.steps),
        )
        polished = [selection.polish_any_win(s, *task, **rules, steps=self.polish) for s in starts]
        return selection.best_any_win(polished, w)


@struct.dataclass
class Smoothed:
    """The differentiable linear programme: one projection of the weights over `temperature` `[]`, scaled to at most one.

    For `AnyWin` the weights are those of the linear programme, which has no guarantee.
    """

    temperature: Leaf = 0.01

    def check(self) -> None:
        checks.positive("temperature", self.temperature, ())

    def solve(self, spec, w, cost, obs, allowed):
        _require_one_group(spec, "Smoothed")
        weight, scale = _scaled(jnp.where(allowed, spec.reward.weight(w), 0.0))
        found = smoothed_lp(
            weight,
            cost,
            obs.budget,
            _room(spec, obs, allowed),
            self.temperature,
            upper=allowed.astype(w.dtype),
            at_most=not spec.reward.exact_size,
        )
        return selection.Selection(found.z, found.budget_multiplier * self.temperature * scale, found.feasible)


@struct.dataclass
class ProjectedGradient:
    """Projected gradient ascent on the relaxed reward (its logarithm for `AllIn`, that of the chance of no win for `AnyWin`).

    It knows no multiplier: the one that it returns is zero.

    learning_rate: `[]`, for weights scaled to at most one. steps: how many (static).
    """

    learning_rate: Leaf = 10.0
    steps: int = struct.field(pytree_node=False, default=10)

    def check(self) -> None:
        checks.positive("learning_rate", self.learning_rate, ())
        checks.count("steps", self.steps)

    def solve(self, spec, w, cost, obs, allowed):
        _require_one_group(spec, "ProjectedGradient")
        exact = spec.reward.exact_size
        w = jnp.where(allowed, w, 1e-6)
        weight, _ = _scaled(spec.reward.weight(w))

        def gradient(z):
            return weight if exact else _scaled(selection.any_win_gradient(w, z))[0]

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
    """Weights over the largest, and the largest.

    The derivative of `jnp.max` looks for the place of the maximum again, and finds none if the compiler rounds the second copy
    otherwise; here it is that of the place found once.
    """
    size = jnp.abs(weight)
    first = numerics.one_hot(jnp.argmax(size), size.shape[-1])
    largest = jnp.maximum(numerics.pick(first, size), 1e-6)
    return weight / largest, largest


def _require_any_win(spec, name: str):
    if spec.reward.exact_size:
        raise ValueError(f"solver {name} is for AnyWin, the reward of the environment is {type(spec.reward).__name__}")


def _require_one_group(spec, name: str):
    if spec.groups is not None:
        raise ValueError(f"solver {name} projects onto one size and one budget: with groups each must have its own budget")


def _room(spec, obs, allowed):
    count = jnp.sum(allowed.astype(jnp.float32))
    return jnp.minimum(obs.size, count) if spec.reward.exact_size else obs.size


def default_solver(spec) -> Any:
    """Exact where that is cheap: `Linear`, or `Vertices` for few models; otherwise `BestOf`."""
    if spec.reward.exact_size:
        return Linear()
    pairs = math.comb(spec.num_models + 1, 2)
    sets = sum(math.comb(spec.num_models, size) for size in range(spec.max_size))
    return Vertices() if sets * pairs <= _MOST_VERTICES else BestOf()


def solve_by_group(solve, spec, w, cost, obs, allowed) -> selection.Selection:
    """`solve(spec, w, cost, obs, allowed)`; where each group has its own budget, once for each group, put together.

    Source: C2MAB-V, appendix C.1. The multiplier is then the sum of the groups', the price of raising every budget.
    """
    if not spec.group_budgets:
        return solve(spec, w, cost, obs, allowed)
    members = numerics.members(spec.groups)
    alone = dataclasses.replace(
        spec, groups=None, group_budgets=False, min_size=1, max_size=min(spec.max_size, int(members.sum(1).max()))
    )

    def one(member, budget, size):
        return solve(alone, w, cost, obs.replace(budget=budget, size=size), allowed & member)

    parts = jax.vmap(one)(jnp.asarray(members), obs.budget, obs.size)
    return selection.Selection(jnp.sum(parts.z, axis=0), jnp.sum(parts.multiplier), jnp.all(parts.feasible))


def round_by_group(rounding, key, z, spec):
    """A random set `[K]` bool with marginals `z`; each group is rounded by itself, so that its size is kept."""
    if spec.groups is None:
        return rounding.round(key, z, spec)
    chosen = [None] * spec.num_models
    for group, member in enumerate(numerics.members(spec.groups)):
        inside = np.flatnonzero(member)
        alone = dataclasses.replace(spec, num_models=len(inside), max_size=min(spec.max_size, len(inside)), groups=None)
        part = rounding.round(draws.fold_in(key, group), jnp.stack([z[k] for k in inside]), alone)
        for place, k in enumerate(inside):
            chosen[k] = part[place]
    return jnp.stack(chosen)


@struct.dataclass
class Pairwise:
    """Pairwise rounding. Source: C2MAB-V, Algorithm 3."""

    def round(self, key, z, spec):
        return rounding.pairwise(z, draws.uniform(key, z.shape), whole_sum=spec.reward.exact_size)


@struct.dataclass
class Swap:
    """Swap rounding. Source: C2MAB-V, Algorithm 2."""

    def round(self, key, z, spec):
        k_trade, k_surplus = draws.split(key)
        size = z.shape[-1]
        return rounding.swap(z, draws.uniform(k_trade, (size, spec.max_size)), draws.uniform(k_surplus, (size,)))


def default_rounding(spec) -> Any:
    """The paper's: `Swap` for any win, `Pairwise` for sets of exact size."""
    return Pairwise() if spec.reward.exact_size else Swap()
