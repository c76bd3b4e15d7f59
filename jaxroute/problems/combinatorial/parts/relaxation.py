"""Solvers of the relaxed problem, which selects a fraction in [0, 1] of each model instead of a set.

If all groups of models share one budget, a solver handles them together; if each has a budget, `solve_by_group` calls the solver once per group.

The `multiplier` of a `Selection` is the shadow price of the budget: the gain in total weight per additional unit of budget. The total weight is the
reward for `SumUp`, its logarithm for `AllIn`, and minus the logarithm of the probability that no model succeeds for `AnyWin`.
"""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Metric
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Info, Observation
from jaxroute.solvers import selection
from jaxroute.solvers.branching import MOST_NODES
from jaxroute.solvers.projection import projected_gradient, smoothed_lp
from jaxroute.solvers.selection import Selection

# Largest number of vertices for an exact default solver.
_MOST_VERTICES = 10_000

RELAXATION_METRICS = (
    Metric("shadow_price", "shadow price of the budget", "weight per cost", "average", default=False),
    Metric("infeasible_share", "share of rounds without a selection within the budget", "", "average", default=False),
    Metric("unfinished_share", "share of rounds whose search stopped early", "", "average", default=False, limit=0.0,
           violation="not always the best selection"),
)  # fmt: skip


class Solver(Protocol):
    """Solver of the relaxed problem, which finds the best fraction in [0, 1] of each model under the budget."""

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        """Returns the best fractions of the models `[K]` (`z`), and the gain in total weight per additional unit of budget (`multiplier`).

        Args:
          spec: sizes, groups and the reward.
          w: `[K]` success probabilities in (0, 1), from `conditioned`.
          cost: `[K]` non-negative costs.
          obs: observation with the budget and the set size `N`.
          allowed: `[K]` bool, models that may be selected.
        """
        ...


@struct.dataclass
class Linear:
    """Solver by a linear program: maximises the sum of the selected models' weights within budget and set size. Source: C2MAB-V, eqs. (4), (5).

    A model's weight is its success probability for `SumUp`, and the logarithm of it for `AllIn`. For `AnyWin` it is `-log(1 - w)`, whose sum is not
    the relaxed reward, so that the result need not be the best one.

    Attributes:
      steps: number of iterations for the budget's dual variable (static); None chooses it by the number of models.
    """

    steps: int | None = struct.field(pytree_node=False, default=None)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        task = (spec.reward.weight(w), cost, obs.budget, _size(spec, obs, allowed))
        rules = {"allowed": allowed, "groups": spec.groups, "exact_size": spec.reward.exact_size, "steps": self.steps}
        return selection.linear_selection(*task, **rules)


@struct.dataclass
class Vertices:
    """Exact solver for `AnyWin`: enumerates the vertices of the feasible set if they are few, otherwise searches by branch and bound.

    Source: C2MAB-V, eq. (3).

    Attributes:
      most_nodes: number of nodes after which a search stops with its best selection so far; `unfinished_share` counts such rounds (static).
    """

    most_nodes: int = struct.field(pytree_node=False, default=MOST_NODES)

    def check(self) -> None:
        checks.count("most_nodes", self.most_nodes)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        _require_any_win(spec, "Vertices")
        sizes = (spec.min_size, spec.max_size)
        rules = {"allowed": allowed, "groups": spec.groups, "sizes": sizes, "most_nodes": self.most_nodes}
        return selection.exact_any_win(w, cost, obs.budget, obs.size, **rules)


@struct.dataclass
class ContinuousGreedy:
    """Continuous greedy algorithm for `AnyWin`: averages solutions of linear programs, and reaches at least `1 - 1/e` of the optimum.

    Source: C2MAB-V, section 4, "common greedy algorithms"; Calinescu, Chekuri, Pal and Vondrak (2011).

    Attributes:
      steps: number of linear programs (static).
      polish: number of Frank-Wolfe steps (`polish_any_win`) that improve the result (static).
    """

    steps: int = struct.field(pytree_node=False, default=10)
    polish: int = struct.field(pytree_node=False, default=0)

    def check(self) -> None:
        checks.count("steps", self.steps)
        checks.count("polish", self.polish, minimum=0)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        _require_any_win(spec, "ContinuousGreedy")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        found = selection.continuous_greedy_any_win(*task, **rules, steps=self.steps)
        return selection.polish_any_win(found, *task, **rules, steps=self.polish) if self.polish else found


@struct.dataclass
class BestOf(ContinuousGreedy):
    """Solver for `AnyWin` with many models: polishes the solutions of a linear program and of `ContinuousGreedy`, and returns the better one."""

    polish: int = struct.field(pytree_node=False, default=2)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        _require_any_win(spec, "BestOf")
        task, rules = (w, cost, obs.budget, obs.size), {"allowed": allowed, "groups": spec.groups}
        greedy = selection.continuous_greedy_any_win
        starts = (selection.log_any_win(*task, **rules), greedy(*task, **rules, steps=self.steps))
        polished = [selection.polish_any_win(s, *task, **rules, steps=self.polish) for s in starts]
        return selection.best_any_win(polished, w)


@struct.dataclass
class BestSet:
    """Solver that returns the best set by enumeration, instead of fractions. Source: C2MAB-V, appendix E.3, eq. (48).

    Differs from the paper: by default sets have the environment's size (`AnyWin`: at most this size). Eq. (48) allows any size; then the best set of
    `AllIn` would be empty.

    Attributes:
      any_size: whether all sets except the empty one are allowed, for an environment with `any_size=True` (static).
    """

    any_size: bool = struct.field(pytree_node=False, default=False)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        weight = spec.reward.weight(w)
        if self.any_size:
            size, rules = spec.num_models, {"groups": None, "exact_size": False, "sizes": (1, spec.num_models)}
        else:
            exact = spec.reward.exact_size
            size, sizes = _size(spec, obs, allowed), (spec.min_size if exact and spec.always_available else 0, spec.max_size)
            rules = {"groups": spec.groups, "exact_size": exact, "sizes": sizes}
        return selection.best_subset(weight, cost, obs.budget, size, allowed=allowed, **rules)


@struct.dataclass
class Smoothed:
    """Differentiable approximation of `Linear`: projects the weights, scaled to at most 1 and divided by `temperature`, onto the feasible selections.

    Attributes:
      temperature: `[]` degree of smoothing. At the default the selection nearly equals the linear program's, and most derivatives are zero; use
        .1 or more to tune by gradients (see the table of `solvers.smoothed_lp`).
    """

    temperature: Leaf = 0.01

    def check(self) -> None:
        checks.positive("temperature", self.temperature, ())

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        _require_one_group(spec, "Smoothed")
        weight, scale = _scaled(jnp.where(allowed, spec.reward.weight(w), 0.0))
        size, limits = _size(spec, obs, allowed), {"upper": allowed.astype(w.dtype), "at_most": not spec.reward.exact_size}
        found = smoothed_lp(weight, cost, obs.budget, size, self.temperature, **limits)
        return Selection(found.z, found.budget_multiplier * self.temperature * scale, found.feasible)


@struct.dataclass
class ProjectedGradient:
    """Solver by projected gradient ascent on the sum of the models' weights (`Reward.weight`). Its shadow price (`multiplier`) is always 0.

    Attributes:
      learning_rate: `[]` step size for gradients scaled to at most 1.
      steps: number of steps (static).
    """

    learning_rate: Leaf = 10.0
    steps: int = struct.field(pytree_node=False, default=10)

    def check(self) -> None:
        checks.positive("learning_rate", self.learning_rate, ())
        checks.count("steps", self.steps)

    def solve(self, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array) -> Selection:
        _require_one_group(spec, "ProjectedGradient")
        exact = spec.reward.exact_size
        w = jnp.where(allowed, w, 1e-6)
        weight, _ = _scaled(spec.reward.weight(w))

        def gradient(z: Array) -> Array:
            return weight if exact else _scaled(selection.any_win_gradient(w, z))[0]

        total = _size(spec, obs, allowed)
        options = {"optimizer": optax.sgd(self.learning_rate), "steps": self.steps}
        options["implicit"] = False  # Ten steps need not have converged.
        limits = {"upper": allowed.astype(w.dtype), "at_most": not exact}
        found = projected_gradient(gradient, cost, obs.budget, total, **limits, **options)
        return Selection(found.z, jnp.zeros(()), found.feasible)


def _scaled(weight: Array) -> tuple[Array, Array]:
    """Returns `weight` `[K]` divided by its largest absolute value (at least 1e-6), and this value, a scalar."""
    size = jnp.abs(weight)
    # Not `jnp.max`: its derivative is NaN if XLA computes the weights again and, by rounding, none equals the maximum.
    first = numerics.one_hot(jnp.argmax(size), size.shape[-1])
    largest = jnp.maximum(numerics.pick(first, size), 1e-6)
    return weight / largest, largest


def _require_any_win(spec: CombinatorialSpec, name: str) -> None:
    if spec.reward.exact_size:
        raise ValueError(f"solver {name} is for AnyWin, the reward of the environment is {type(spec.reward).__name__}")


def _require_one_group(spec: CombinatorialSpec, name: str) -> None:
    if spec.groups is not None:
        raise ValueError(f"solver {name} projects onto one size and one budget: with groups each must have its own budget")


def _size(spec: CombinatorialSpec, obs: Observation, allowed: Array) -> Array:
    """Returns how many models to select, in all or per group `[M]`: `obs.size`, for sets of exact size at most the number of `allowed` models."""
    count = selection.group_sums(spec.groups, allowed.astype(jnp.float32))
    return jnp.minimum(obs.size, count) if spec.reward.exact_size else obs.size


def default_solver(spec: CombinatorialSpec) -> Solver:
    """Returns the solver for a policy without one: `Linear` if sets have an exact size, otherwise `Vertices` (few models) or `BestOf` (many)."""
    if spec.reward.exact_size:
        return Linear()
    return Vertices() if selection.num_vertices(spec.num_models, spec.max_size) <= _MOST_VERTICES else BestOf()


def metrics_of(solver: Solver | None) -> tuple[Metric, ...]:
    """Returns the metrics that a policy with `solver` can record. `Vertices`, whose search may stop early, records `unfinished_share` by default."""
    shown = isinstance(solver, Vertices)
    return tuple(dataclasses.replace(m, default=shown) if m.name == "unfinished_share" else m for m in RELAXATION_METRICS)


def solve_by_group(
    solver: Solver | None, spec: CombinatorialSpec, w: Array, cost: Array, obs: Observation, allowed: Array
) -> Selection:
    """Solves the relaxed problem of models with success probabilities `w` `[K]` and costs `cost` `[K]` by `solver`, None for `default_solver`.

    Budget and size are in `obs`; `allowed` `[K]` bool marks models that may be selected. If each group has a budget, each is solved separately. The
    result's multiplier is then the sum over groups, the gain from raising every budget by one unit. Source: C2MAB-V, appendix C.1.
    """

    def solve(spec: CombinatorialSpec, obs: Observation, allowed: Array) -> Selection:
        return (default_solver(spec) if solver is None else solver).solve(spec, w, cost, obs, allowed)

    if spec.groups is None or not spec.group_budgets:
        return solve(spec, obs, allowed)
    members = numerics.members(spec.groups)
    largest = min(spec.max_size, int(members.sum(1).max()))
    group_spec = dataclasses.replace(spec, groups=None, group_budgets=False, min_size=1, max_size=largest)

    def one(member: Array, budget: Array, size: Array) -> Selection:
        return solve(group_spec, obs.replace(budget=budget, size=size), allowed & member)

    parts = jax.vmap(one)(jnp.asarray(members), obs.budget, obs.size)
    return Selection(
        z=jnp.sum(parts.z, axis=0),
        multiplier=jnp.sum(parts.multiplier),
        feasible=jnp.all(parts.feasible),
        residual=jnp.sum(jnp.asarray(parts.residual)),
        converged=jnp.all(jnp.asarray(parts.converged)),
        nodes=jnp.sum(jnp.asarray(parts.nodes)),
    )


def conditioned(key: Array, value: Array, cap: Leaf, noise: Leaf) -> Array:
    """Returns success probabilities `[K]` for a solver: `value` minus random numbers up to `noise`, which break ties, clipped to [1e-6, cap]."""
    tie = noise * draws.uniform(key, value.shape)
    return jnp.clip(jnp.minimum(value, cap) - tie, 1e-6, cap)


def check(solver: Solver | None, rounding: Any, cap: Leaf, noise: Leaf) -> None:
    """Raises `ValueError` if a field of a policy that solves the relaxed problem is invalid: `solver`, `rounding`, `cap` or `noise`."""
    if solver is not None:
        checks.part("solver", solver, "solve", "BestOf()")
    if rounding is not None:
        checks.part("rounding", rounding, "round", "Swap()")
    checks.share("cap", cap, ())
    checks.probability("noise", noise, ())


def info_of(found: Selection) -> Info:
    """Returns the values of a relaxed solution that a policy can record, by name: `RELAXATION_METRICS`, and the fractions `[K]` as "relaxed"."""
    return {
        "shadow_price": jnp.where(found.feasible, found.multiplier, 0.0),
        "infeasible_share": 1.0 - found.feasible.astype(jnp.float32),
        "unfinished_share": 1.0 - jnp.asarray(found.converged, jnp.float32),
        "relaxed": found.z,
    }
