"""DeployOPT: which models to deploy for a stage."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxroute.core import draws, numerics
from jaxroute.problems.staged.types import Observation, StagedSpec
from jaxroute.solvers.budgeted_fill import budgeted_fill

# Sets of one block of the enumeration: bounds its memory.
_BLOCK = 128


@dataclass(frozen=True)
class Reduced:
    """Fills free slots with the models of largest reduced value `U - multiplier * L`: the limit of demanding a tiny share of each.

    Source: StageRoute, eq. (3), reads the number of deployed models as an equality; the limit is ours (Proposition 3 of the notes
    to `deploy`).
    """

    def keys(self, key, value, cost, multiplier):
        del key
        return value - multiplier * cost, -cost


@dataclass(frozen=True)
class NoFiller:
    """Deploys only the models that the optimal routing uses: "at most M" in place of "exactly M". Not the paper's rule."""

    def keys(self, key, value, cost, multiplier):
        del key, multiplier
        return value, -cost


@dataclass(frozen=True)
class RandomFiller:
    """Fills free slots at random, as an arbitrary tie of a mixed-integer solver would. Not the paper's rule."""

    def keys(self, key, value, cost, multiplier):
        del cost, multiplier
        random = draws.uniform(key, value.shape)
        return random, random


@dataclass(frozen=True)
class IndexFiller:
    """Fills free slots with the models of lowest index. Not the paper's rule."""

    def keys(self, key, value, cost, multiplier):
        del key, cost, multiplier
        return jnp.zeros_like(value), jnp.zeros_like(value)


@dataclass(frozen=True)
class MinimumShare:
    """Demands a finite share of the traffic for each of the M models and enumerates all sets: exact and slow, for cross-checks."""

    share: float = 1e-4

    def keys(self, key, value, cost, multiplier):
        del key
        return value - multiplier * cost, -cost


@dataclass(frozen=True)
class IndexTie:
    """Remaining ties go to the lower index."""

    def apply(self, key, value):
        del key
        return value, lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class NewestTie:
    """Remaining ties go to the higher index, that is to the model that arrived last."""

    def apply(self, key, value):
        del key
        return value, -lax.iota(jnp.int32, value.shape[-1])


@dataclass(frozen=True)
class RandomTie:
    """Ties are broken by a uniform perturbation of the values, drawn once per stage."""

    size: float = 1e-6

    def apply(self, key, value):
        return value + self.size * draws.uniform(key, value.shape), lax.iota(jnp.int32, value.shape[-1])


def deploy(key, value, cost, obs: Observation, spec: StagedSpec, filler=Reduced(), tie=IndexTie()):
    """The models to deploy: those of the best routing with at most `M` models, and fillers for the slots that are left.

    The relaxed programme over all available models has at most `max_support` positive entries, so it solves the problem whenever
    `M` is that large; for fewer slots all sets of `M` models are compared. With a tiny share demanded of every deployed model,
    the value changes by the models' reduced values, hence the fillers.

    Source: StageRoute, eqs. (3) and (6).

    Args:
      key: for random fillers and ties.
      value, cost: `[N]` upper bounds of rewards and lower bounds of costs.
      obs: availability, capacities and budget.
      spec: sizes.
      filler, tie: rules of this module.

    Returns:
      `(deployed, feasible)`: `[N]` bool with `min(M, available)` True entries (fewer with `NoFiller`), and `[]` bool. If no set
      can meet budget and capacities, the `M` cheapest models are deployed.
    """
    k_tie, k_fill = draws.split(key)
    value, priority = tie.apply(k_tie, value)
    available = obs.available
    relaxed = budgeted_fill(value, cost, obs.capacity, obs.budget, valid=available, priority=priority)
    amount, multiplier, feasible = relaxed.amount, relaxed.multiplier, relaxed.feasible
    share = filler.share if isinstance(filler, MinimumShare) else 0.0
    threshold = 1e-6 if value.dtype == jnp.float32 else 1e-9
    slots = min(spec.max_deployed, spec.num_models)
    if share or slots < spec.max_support:
        best, best_amount, best_multiplier = _best_set(value, cost, obs, priority, slots, share)
        too_many = jnp.sum((amount > threshold).astype(jnp.int32)) > slots
        use = (best >= 0.0) if share else (too_many & feasible)
        amount = jnp.where(use, best_amount, amount)
        multiplier = jnp.where(use, best_multiplier, multiplier)
        feasible = jnp.where(use, best >= 0.0, feasible)
    support = available & (amount > threshold)
    ranked = numerics.rank(available, support, *filler.keys(k_fill, value, cost, multiplier), -priority)
    chosen = available & (ranked < slots)
    if isinstance(filler, NoFiller):
        chosen &= support
    cheapest = available & (numerics.rank(available, -cost, value, -priority) < slots)
    return jnp.where(feasible, chosen, cheapest), feasible


def _best_set(value, cost, obs, priority, slots: int, share: float):
    """The best routing with exactly the models of one set, over all sets of `slots` available models; first set on ties.

    Returns its value (-1 if none is feasible), the amounts `[N]` and the multiplier.
    """
    sets = np.asarray(list(itertools.combinations(range(value.shape[-1]), slots)), np.int32)
    pad = -len(sets) % _BLOCK if len(sets) > _BLOCK else 0
    rows = np.concatenate([sets, np.repeat(sets[:1], pad, axis=0)]).reshape(-1, min(_BLOCK, len(sets)), slots)
    real = (np.arange(rows.shape[0] * rows.shape[1]) < len(sets)).reshape(rows.shape[:2])

    value, cost, priority, obs = jax.tree.map(jnp.asarray, (value, cost, priority, obs))

    def solve(members):
        u, c, cap, order = (x[members] for x in (value, cost, obs.capacity, priority))
        inside = jnp.all(obs.available[members])
        solution = budgeted_fill(
            u, c, cap - share, obs.budget - share * jnp.sum(c), total=1.0 - slots * share, priority=order
        )
        amount = solution.amount + share
        ok = inside & solution.feasible & jnp.all(cap >= share)
        return jnp.where(ok, jnp.sum(u * amount), -1.0), amount, solution.multiplier

    def block(best, args):
        members, is_real = args
        values, amounts, multipliers = jax.vmap(solve)(members)
        first = numerics.argmax(values, is_real)
        here = numerics.one_hot(first, len(values))
        top = numerics.pick(here, values)
        spread = jnp.sum(
            jnp.where(
                here[:, None, None] & (members[:, :, None] == lax.iota(jnp.int32, value.shape[-1])), amounts[:, :, None], 0.0
            ),
            axis=(0, 1),
        )
        better = top > best[0]
        new = (top, spread, numerics.pick(here, multipliers))
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), new, best), None

    start = (jnp.full((), -1.0, value.dtype), jnp.zeros_like(value), jnp.zeros((), value.dtype))
    best, _ = lax.scan(block, start, (jnp.asarray(rows), jnp.asarray(real)))
    return best
