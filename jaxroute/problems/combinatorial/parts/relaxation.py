"""Solvers of the relaxed problem, as small objects.

A solver's `solve(spec, w, cost, obs, allowed)` returns a `Selection` for the reward of the spec: `w` `[K]` are probabilities in (0, 1), `cost` `[K]` is
non-negative, `allowed` `[K]` bool. Solvers handle groups only with a common budget (otherwise each group is a separate problem, see `solve_by_group`).

The multiplier of a `Selection` is the gain of the reward's additive weight (see `rewards`) per unit of the budget: of the
reward itself for `SumUp`, of its logarithm for `AllIn`, and of minus the logarithm of the probability that none wins for
`AnyWin`.
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Metric
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Info, Observation
from jaxroute.solvers import selection
from jaxroute.solvers.branching import MOST_NODES
from jaxroute.solvers.projected_gradient import projected_gradient
from jaxroute.solvers.projection import smoothed_lp
from jaxroute.solvers.selection import Selection

# Number of vertices from which on the best of two approximations replaces enumeration.
_MOST_VERTICES = 10_000

RELAXATION_METRICS = (
    Metric("shadow_price", "shadow price of the budget", "weight per cost", "average", default=False),
    Metric("infeasible_share", "share of rounds without a selection within the budget", "", "average", default=False),
    Metric(
        "unfinished_share",
        "share of rounds whose search stopped early",
        "",
        "average",
        default=False,
        limit=0.0,
        violation="not always the best selection",
    ),
)


class Solver(Protocol):
    """Solver of the relaxed problem."""

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        """Returns the relaxed selection for probabilities `w` `[K]` and costs `cost` `[K]` of the allowed models `[K]`."""
        ...


@struct.dataclass
class Linear:
    """Linear program with the reward's additive weights: exact for `SumUp` and `AllIn`, without guarantee for `AnyWin`.

    Source: C2MAB-V, eqs. (4) and (5).

    Attributes:
      steps: number of dual steps (static; default by the number of models).
    """

    steps: int | None = struct.field(pytree_node=False, default=None)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        return selection.linear_selection(
            spec.reward.weight(w),
            cost,
            obs.budget,
            _size(spec, obs, allowed),
            allowed=allowed,
            groups=spec.groups,
            exact_size=spec.reward.exact_size,
            steps=self.steps,
        )


@struct.dataclass
class Vertices:
    """Exact solver for `AnyWin`: enumeration of vertices, or branch and bound for many. Source: C2MAB-V, eq. (3).

    Attributes:
      most_nodes: number of nodes after which a search returns its best selection; the metric `unfinished_share` counts such rounds (static).
    """

    most_nodes: int = struct.field(pytree_node=False, default=MOST_NODES)

    def check(self) -> None:
        checks.count("most_nodes", self.most_nodes)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        _require_any_win(spec, "Vertices")
        sizes = (spec.min_size, spec.max_size)
        rules = {"allowed": allowed, "groups": spec.groups, "sizes": sizes, "most_nodes": self.most_nodes}
        return selection.exact_any_win(w, cost, obs.budget, obs.size, **rules)


@struct.dataclass
class ContinuousGreedy:
    """Continuous greedy for `AnyWin`: at least `1 - 1/e` of the optimum.

    Source: C2MAB-V, section 4, "common greedy algorithms"; Calinescu, Chekuri, Pal and Vondrak (2011).

    Attributes:
      steps: number of linear programs (static).
      polish: number of unit steps afterwards (static).
    """

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=0)

    def check(self) -> None:
        checks.count("steps", self.steps)
        checks.count("polish", self.polish, minimum=0)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        _require_any_win(spec, "ContinuousGreedy")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        found = selection.continuous_greedy_any_win(*task, **rules, steps=self.steps)
        return selection.polish_any_win(found, *task, **rules, steps=self.polish) if self.polish else found


@struct.dataclass
class BestOf:
    """Better of a polished linear program and a polished continuous greedy, for `AnyWin` with many models.

    Attributes:
      steps: number of linear programs of the continuous greedy (static).
      polish: number of unit steps afterwards (static).
    """

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=2)

    def check(self) -> None:
        checks.count("steps", self.steps)
        checks.count("polish", self.polish, minimum=0)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        _require_any_win(spec, "BestOf")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        starts = (
            selection.log_any_win(*task, **rules),
            selection.continuous_greedy_any_win(*task, **rules, steps=self.steps),
        )
        polished = [selection.polish_any_win(s, *task, **rules, steps=self.polish) for s in starts]
        return selection.best_any_win(polished, w)


@struct.dataclass
class BestSet:
    """Best set instead of a relaxed selection, by enumeration.

    Source: C2MAB-V, appendix E.3, eq. (48).

    Differs from the paper: eq. (48) has no bound on the size; without one the best set of `AllIn` would be empty.

    Attributes:
      any_size: whether the size is unbounded, for an environment with `any_size=True`; only the empty set is excluded (static).
    """

    any_size: bool = struct.field(pytree_node=False, default=False)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        return selection.best_subset(
            spec.reward.weight(w),
            cost,
            obs.budget,
            spec.num_models if self.any_size else _size(spec, obs, allowed),
            allowed=allowed,
            groups=None if self.any_size else spec.groups,
            exact_size=spec.reward.exact_size and not self.any_size,
            sizes=(1, spec.num_models) if self.any_size else (spec.smallest_set, spec.max_size),
        )


@struct.dataclass
class Smoothed:
    """Differentiable linear program: one projection of the weights over the temperature, with weights scaled to at most one.

    For `AnyWin` the weights are those of the linear program, without guarantee.

    Attributes:
      temperature: `[]` temperature for weights scaled to at most one. At the default the selection is nearly that of the linear program, and most
        derivatives are zero; tune with .1 or more (see the table of `solvers.smoothed_lp`).
    """

    temperature: Leaf = 0.01

    def check(self) -> None:
        checks.positive("temperature", self.temperature, ())

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        _require_one_group(spec, "Smoothed")
        weight, scale = _scaled(jnp.where(allowed, spec.reward.weight(w), 0.0))
        found = smoothed_lp(
            weight,
            cost,
            obs.budget,
            _size(spec, obs, allowed),
            self.temperature,
            upper=allowed.astype(w.dtype),
            at_most=not spec.reward.exact_size,
        )
        return Selection(found.z, found.budget_multiplier * self.temperature * scale, found.feasible)


@struct.dataclass
class ProjectedGradient:
    """Projected gradient ascent on the relaxed reward.

    It uses the logarithm of the reward for `AllIn`, and minus that of the probability of no win for `AnyWin`. The returned multiplier is zero.

    Attributes:
      learning_rate: `[]` step size for weights scaled to at most one.
      steps: number of steps (static).
    """

    learning_rate: Leaf = 10.0
    steps: int = struct.field(pytree_node=False, default=10)

    def check(self) -> None:
        checks.positive("learning_rate", self.learning_rate, ())
        checks.count("steps", self.steps)

    def solve(
        self, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
    ) -> Selection:
        _require_one_group(spec, "ProjectedGradient")
        exact = spec.reward.exact_size
        w = jnp.where(allowed, w, 1e-6)
        weight, _ = _scaled(spec.reward.weight(w))

        def gradient(z: jax.Array) -> jax.Array:
            return weight if exact else _scaled(selection.any_win_gradient(w, z))[0]

        total = _size(spec, obs, allowed)
        found = projected_gradient(
            gradient,
            cost,
            obs.budget,
            total,
            upper=allowed.astype(w.dtype),
            at_most=not exact,
            optimizer=optax.sgd(self.learning_rate),
            steps=self.steps,
            implicit=False,  # Ten steps need not have converged.
        )
        return Selection(found.z, jnp.zeros(()), found.feasible)


def _scaled(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Divides weights by the largest, and returns it.

    The derivative of `jnp.max` searches the position of the maximum again, and fails if the compiler rounds the second copy differently; here the
    position is computed once.
    """
    size = jnp.abs(weight)
    first = numerics.one_hot(jnp.argmax(size), size.shape[-1])
    largest = jnp.maximum(numerics.pick(first, size), 1e-6)
    return weight / largest, largest


def _require_any_win(spec: CombinatorialSpec, name: str) -> None:
    if spec.reward.exact_size:
        raise ValueError(f"solver {name} is for AnyWin, the reward of the environment is {type(spec.reward).__name__}")


def _require_one_group(spec: CombinatorialSpec, name: str) -> None:
    if spec.groups is not None:
        raise ValueError(f"solver {name} projects onto one size and one budget: with groups each must have its own budget")


def _size(spec: CombinatorialSpec, obs: Observation, allowed: jax.Array) -> jax.Array:
    """Returns the size `[]` or `[M]`; with an exact size and fewer allowed models, their number."""
    count = selection.group_sums(spec.groups, allowed.astype(jnp.float32))
    return jnp.minimum(obs.size, count) if spec.reward.exact_size else obs.size


def default_solver(spec: CombinatorialSpec) -> Solver:
    """Returns an exact solver if that is cheap (`Linear`, or `Vertices` for few models), otherwise `BestOf`."""
    if spec.reward.exact_size:
        return Linear()
    return Vertices() if selection.num_vertices(spec.num_models, spec.max_size) <= _MOST_VERTICES else BestOf()


def metrics_of(solver: Solver | None) -> tuple[Metric, ...]:
    """Returns the metrics of a solver; only `Vertices` may stop early, which is then recorded by default."""
    shown = isinstance(solver, Vertices)
    return tuple(dataclasses.replace(m, default=shown) if m.name == "unfinished_share" else m for m in RELAXATION_METRICS)


def solve_by_group(
    solver: Solver | None, spec: CombinatorialSpec, w: jax.Array, cost: jax.Array, obs: Observation, allowed: jax.Array
) -> Selection:
    """Returns the relaxed selection; if each group has a budget, the union of their selections.

    Source: C2MAB-V, appendix C.1. The multiplier is then the sum over the groups, the price of raising every budget.

    Args:
      solver: a solver of this module; None for `default_solver`.
      spec: sizes, groups and the reward.
      w: `[K]` probabilities, see `conditioned`.
      cost: `[K]` non-negative.
      obs: budget and `N`.
      allowed: `[K]` bool.
    """

    def solve(spec: CombinatorialSpec, obs: Observation, allowed: jax.Array) -> Selection:
        return (default_solver(spec) if solver is None else solver).solve(spec, w, cost, obs, allowed)

    if spec.groups is None or not spec.group_budgets:
        return solve(spec, obs, allowed)
    members = numerics.members(spec.groups)
    alone = dataclasses.replace(
        spec, groups=None, group_budgets=False, min_size=1, max_size=min(spec.max_size, int(members.sum(1).max()))
    )

    def one(member: jax.Array, budget: jax.Array, size: jax.Array) -> Selection:
        return solve(alone, obs.replace(budget=budget, size=size), allowed & member)

    parts = jax.vmap(one)(jnp.asarray(members), obs.budget, obs.size)
    return Selection(
        z=jnp.sum(parts.z, axis=0),
        multiplier=jnp.sum(parts.multiplier),
        feasible=jnp.all(parts.feasible),
        residual=jnp.sum(jnp.asarray(parts.residual)),
        converged=jnp.all(jnp.asarray(parts.converged)),
        nodes=jnp.sum(jnp.asarray(parts.nodes)),
    )


def conditioned(key: jax.Array, value: jax.Array, cap: Leaf, noise: Leaf) -> jax.Array:
    """Converts reward indices to probabilities `[K]` for the solvers: capped, with ties broken at random.

    Args:
      key: key of the tie-breaks.
      value: `[K]` reward indices.
      cap: `[]` largest probability.
      noise: `[]` magnitude of the tie-breaks.
    """
    tie = noise * draws.uniform(key, value.shape)
    return jnp.clip(jnp.minimum(value, cap) - tie, 1e-6, cap)


def info_of(found: Selection) -> Info:
    """Returns the diagnostics of a selection."""
    return {
        "shadow_price": jnp.where(found.feasible, found.multiplier, 0.0),
        "infeasible_share": 1.0 - found.feasible.astype(jnp.float32),
        "unfinished_share": 1.0 - jnp.asarray(found.converged, jnp.float32),
        "relaxed": found.z,
    }
