"""What the policies of the combinatorial problem do alike: statistics per model, a relaxed selection, and its rounding to a set."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.running import RunningMean
from jaxroute.problems.combinatorial.relax import default_rounding, default_solver, round_by_group, solve_by_group
from jaxroute.problems.combinatorial.rules import ByPrice
from jaxroute.problems.combinatorial.types import Action, CombinatorialSpec

RELAXATION_METRICS = (
    Metric("shadow_price", "shadow price of the budget", "weight per cost", "average", default=False),
    Metric("infeasible_share", "share of rounds without a selection within the budget", "", "average", default=False),
)


@struct.dataclass
class BookState:
    """State of every learning policy: running means of outcomes and costs, and what is held between two batches.

    outcome, cost: of `K` models. held: `[K]` bool, the last set. held_relaxed: `[K]`, the last relaxed selection.
    arrived: `[]` int32, rounds since the last decision whose feedback arrived. spec: what is known in advance (static).
    """

    outcome: RunningMean
    cost: RunningMean
    held: jax.Array
    held_relaxed: jax.Array
    arrived: jax.Array
    spec: CombinatorialSpec = struct.field(pytree_node=False)


def empty_book(spec: CombinatorialSpec) -> BookState:
    """A book in which nothing has been seen."""
    size = spec.num_models
    return BookState(
        outcome=RunningMean.empty(size),
        cost=RunningMean.empty(size),
        held=jnp.zeros((size,), bool),
        held_relaxed=jnp.zeros((size,), jnp.float32),
        arrived=jnp.zeros((), jnp.int32),
        spec=spec,
    )


@struct.dataclass
class Learner:
    """Base of the policies that keep a `BookState`: each says in `act` what it selects.

    order: how a cascade is asked, an object of `rules`.
    """

    order: Any = struct.field(default_factory=ByPrice, kw_only=True)

    def check(self) -> None:
        if not hasattr(self.order, "order"):
            raise ValueError(f"order must be an object such as ByPrice(), got {checks.show(self.order)}")

    def init(self, key, spec: CombinatorialSpec) -> BookState:
        del key
        return empty_book(spec)

    def action(self, key, obs, selected, relaxed, value, cost) -> Action:
        """The action of a set, less what is not available; `value` and `cost` are the policy's beliefs, for a cascade's order."""
        return Action(
            selected=selected & obs.available,
            order=self.order.order(key, obs, value, cost),
            relaxed=relaxed,
            held=selected,
        )

    def update(self, key, state: BookState, obs, action, feedback, t) -> BookState:
        del key, obs, t
        return state.replace(
            outcome=state.outcome.add(feedback.observed, feedback.outcome),
            cost=state.cost.add(feedback.cost_observed, feedback.cost),
            held=action.held,
            held_relaxed=action.relaxed.astype(state.held_relaxed.dtype),
        )


@struct.dataclass
class Relaxer(Learner):
    """Base of the policies that solve the relaxed problem and round it.

    solver, rounding: objects of `relax` (default: exact where that is cheap, and the paper's rounding).
    cap: `[]` largest chance that the solver sees. noise: `[]` size of random tie-breaks: bounds that are still 1 tie for hundreds of
    rounds. With `cap=1` and `noise=0` bounds are taken as they are, and ties go to the lower index.
    """

    solver: Any = struct.field(default=None, kw_only=True)
    rounding: Any = struct.field(default=None, kw_only=True)
    cap: Leaf = struct.field(default=0.999, kw_only=True)
    noise: Leaf = struct.field(default=1e-4, kw_only=True)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return RELAXATION_METRICS

    def check(self) -> None:
        Learner.check(self)
        checks.share("cap", self.cap, ())
        checks.probability("noise", self.noise, ())
        for part in (self.solver, self.rounding):
            if hasattr(part, "check"):
                part.check()

    def told(self, found) -> dict[str, jax.Array]:
        """Info of a selection."""
        return {
            "shadow_price": jnp.where(found.feasible, found.multiplier, 0.0),
            "infeasible_share": 1.0 - found.feasible.astype(jnp.float32),
            "relaxed": found.z,
        }

    def condition(self, key, value):
        """Chances `[K]` that the solvers take, from reward indices: capped, with ties broken at random."""
        tie = self.noise * draws.uniform(key, value.shape)
        return jnp.clip(jnp.minimum(value, self.cap) - tie, 1e-6, self.cap)

    def relax(self, key, value, cost, obs, allowed, spec):
        """The relaxed selection for reward indices `value` and cost indices `cost`."""
        return solve_by_group(self.solve, spec, self.condition(key, value), cost, obs, allowed)

    def solve(self, spec, w, cost, obs, allowed):
        """The relaxed selection for conditioned chances `w`."""
        solver = default_solver(spec) if self.solver is None else self.solver
        return solver.solve(spec, w, cost, obs, allowed)

    def round(self, key, z, spec):
        """A random set whose marginals are `z`."""
        rounding = default_rounding(spec) if self.rounding is None else self.rounding
        return round_by_group(rounding, key, z, spec)
