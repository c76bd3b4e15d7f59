"""DeployOPT, the mixed-integer program that selects the models to deploy for a stage."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxroute.core import draws, numerics, xla
from jaxroute.problems.staged.parts.fillers import Filler, ReducedValue
from jaxroute.problems.staged.parts.ties import IndexTie, Tie
from jaxroute.problems.staged.types import Observation, StagedSpec
from jaxroute.solvers.branching import MOST_NODES, sparse_fill
from jaxroute.solvers.budgeted_fill import budgeted_fill

# Sets per block of the enumeration, which bounds its memory.
_BLOCK = 128
# Largest enumeration; more sets are searched by branch and bound, which is faster from about 500 sets on.
_MOST_SETS = 500
# Largest enumeration if every model must have a share, for which there is no search.
_MOST_SHARED = 100_000


class Deployment(NamedTuple):
    """Models to deploy, with diagnostics of the search for them.

    Attributes:
      deployed: `[N]` bool, True for the models to deploy: `M`, or all available models if there are fewer; `NoFiller` may deploy fewer.
      feasible: `[]` bool, whether some set meets budget and capacities; otherwise the `M` cheapest models are deployed.
      residual: `[]` upper bound of how much more reward per query another set could have; 0 unless the search stopped early.
      converged: `[]` bool, False if the search stopped early.
      nodes: `[]` int32, number of nodes that the search visited.
    """

    deployed: Array
    feasible: Array | bool = True
    residual: Array | float = 0.0
    converged: Array | bool = True
    nodes: Array | int = 0


def deploy(
    key: Array,
    value: Array,
    cost: Array,
    obs: Observation,
    spec: StagedSpec,
    filler: Filler = ReducedValue(),
    tie: Tie = IndexTie(),
    most_nodes: Array | int = MOST_NODES,
) -> Deployment:
    """Selects the models of a stage: those of the best routing with at most `M` models, and fillers (by the rule `filler`) for the free slots.

    The linear program without the limit of `M` models has a solution with at most `max_support` models; if `M >= max_support`, these models are
    deployed. Otherwise all sets of `M` models are compared, or searched by branch and bound if there are more than 500. Among equally good sets a
    comparison chooses the first in lexicographic order, branch and bound any. Of models with equal value, cost and capacity, the first in the order
    of `tie` gets the largest share.

    Source: StageRoute, DeployOPT, eqs. (3) and (6).

    Args:
      key: key of random fillers and ties.
      value, cost: `[N]` upper bounds of mean rewards, and lower bounds of mean costs.
      obs: observation with availability, capacities and budget.
      spec: sizes of the market.
      filler, tie: rule that fills the free slots, and rule that breaks ties between equal models.
      most_nodes: `[]` number of nodes after which a search returns its best set so far.

    Raises:
      ValueError: the filler demands a share for every model, and there are too many sets to enumerate.
    """
    k_tie, k_fill = draws.split(key)
    value, priority = tie.apply(k_tie, value)
    available = obs.available
    relaxed = budgeted_fill(value, cost, obs.capacity, obs.budget, valid=available, priority=priority)
    amount, multiplier, feasible = relaxed.amount, relaxed.multiplier, relaxed.feasible
    share = filler.share
    threshold = 1e-6 if value.dtype == jnp.float32 else 1e-9
    slots = min(spec.max_deployed, spec.num_models)
    residual, converged, nodes = jnp.zeros((), value.dtype), jnp.asarray(True), jnp.zeros((), jnp.int32)
    if share or slots < spec.max_support:
        too_many = jnp.sum((amount > threshold).astype(jnp.int32)) > slots
        number = math.comb(spec.num_models, slots)
        if share and number > _MOST_SHARED:
            allowed = f"at most {_MOST_SHARED:,} sets if each model must have a share"
            got = f"{number:,} sets of {slots} of {spec.num_models} models"
            raise ValueError(f"max_deployed and the number of models must give {allowed}, got {got}")
        if share or number <= _MOST_SETS:
            best, best_amount, best_multiplier = _best_set(value, cost, obs, priority, slots, share)
        else:
            limits, needed = (obs.capacity, obs.budget, slots), too_many & feasible
            found = sparse_fill(
                value, cost, *limits, valid=available, priority=priority, most_nodes=most_nodes, needed=needed
            )
            # The search's own amounts are less precise.
            routed = budgeted_fill(value, cost, obs.capacity, obs.budget, valid=found.members, priority=priority)
            reward = jnp.sum(jnp.where(found.members, value * routed.amount, 0.0))
            best, best_amount, best_multiplier = (
                jnp.where(found.value > -jnp.inf, reward, -1.0),
                routed.amount,
                routed.multiplier,
            )
            residual, converged, nodes = found.residual, found.converged, found.nodes
        best_amount = _first_of_equals(best_amount, value, cost, obs, priority)
        use = (best >= 0.0) if share else (too_many & feasible)
        amount = jnp.where(use, best_amount, amount)
        multiplier = jnp.where(use, best_multiplier, multiplier)
        feasible = jnp.where(use, best >= 0.0, feasible)
    support = available & (amount > threshold)
    ranked = numerics.rank(available, support, *filler.keys(k_fill, value, cost, multiplier), -priority)
    chosen = filler.deployed(available & (ranked < slots), support)
    cheapest = available & (numerics.rank(available, -cost, value, -priority) < slots)
    return Deployment(jnp.where(feasible, chosen, cheapest), feasible, residual, converged, nodes)


def _first_of_equals(amount: Array, value: Array, cost: Array, obs: Observation, priority: Array) -> Array:
    """Returns the shares `amount` `[N]`, sorted within each group of models of equal value, cost and capacity: lower `priority`, larger share."""
    # Otherwise rounding errors, which depend on the order of summation, would decide between sets that differ only by equal models.
    value, cost = xla.barrier((value, cost))
    same = (value, cost, obs.capacity, obs.available)

    def together(other: Sequence[Array], this: Sequence[Array]) -> Array:
        return (other[0] == this[0]) & (other[1] == this[1]) & (other[2] == this[2]) & (other[3] == this[3])

    def before(other: Sequence[Array], this: Sequence[Array]) -> Array:
        return together(other, this) & (other[4] < this[4])

    def more(other: Sequence[Array], this: Sequence[Array]) -> Array:
        return together(other, this) & ((other[5] > this[5]) | ((other[5] == this[5]) & (other[4] < this[4])))

    def at(other: Sequence[Array], this: Sequence[Array]) -> Array:
        return together(other, this) & (other[4] == this[5])

    ones = jnp.ones(amount.shape, jnp.int32)
    place = xla.sum_over_better(ones, (*same, priority), before)
    order = xla.sum_over_better(ones, (*same, priority, amount), more)
    return xla.sum_over_better(amount, (*same, order, place), at)


def _best_set(
    value: Array, cost: Array, obs: Observation, priority: Array, slots: int, share: float
) -> tuple[Array, Array, Array]:
    """Compares all sets of `slots` models. Returns the best set's reward (-1 if none is feasible), shares `[N]`, and shadow price of the budget.

    The first of equally good sets wins. Each of its models gets at least the fraction `share` of the queries.
    """
    sets = np.asarray(list(itertools.combinations(range(value.shape[-1]), slots)), np.int32)
    pad = -len(sets) % _BLOCK if len(sets) > _BLOCK else 0
    rows = np.concatenate([sets, np.repeat(sets[:1], pad, axis=0)]).reshape(-1, min(_BLOCK, len(sets)), slots)
    real = (np.arange(rows.shape[0] * rows.shape[1]) < len(sets)).reshape(rows.shape[:2])

    value, cost, priority, obs = jax.tree.map(jnp.asarray, (value, cost, priority, obs))

    def solve(members: Array):
        u, c, cap, order = (x[members] for x in (value, cost, obs.capacity, priority))
        inside = jnp.all(obs.available[members])
        solution = budgeted_fill(
            u, c, cap - share, obs.budget - share * jnp.sum(c), total=1.0 - slots * share, priority=order
        )
        amount = solution.amount + share
        ok = inside & solution.feasible & jnp.all(cap >= share)
        return jnp.where(ok, jnp.sum(u * amount), -1.0), amount, solution.multiplier

    def block(best: tuple, args: tuple):
        members, is_real = args
        values, amounts, multipliers = jax.vmap(solve)(members)
        first = numerics.argmax(values, is_real)
        here = numerics.one_hot(first, len(values))
        top = numerics.pick(here, values)
        in_set = here[:, None, None] & (members[:, :, None] == lax.iota(jnp.int32, value.shape[-1]))
        spread = jnp.sum(jnp.where(in_set, amounts[:, :, None], 0.0), axis=(0, 1))
        better = top > best[0]
        new = (top, spread, numerics.pick(here, multipliers))
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), new, best), None

    start = (jnp.full((), -1.0, value.dtype), jnp.zeros_like(value), jnp.zeros((), value.dtype))
    best, _ = lax.scan(block, start, (jnp.asarray(rows), jnp.asarray(real)))
    return best
