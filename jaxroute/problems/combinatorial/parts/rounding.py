"""Rounding of a relaxed selection to a set of models, and selection by scores.

A rounding's `round(key, z, spec)` returns a random set `[K]` bool with marginals `z`, for one group at a time (`round_by_group`).
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation
from jaxroute.solvers import rounding


class Rounding(Protocol):
    """Rounding of a relaxed selection to a set."""

    def round(self, key: jax.Array, z: jax.Array, spec: CombinatorialSpec) -> jax.Array:
        """Draws a random set `[K]` bool with marginals `z` `[K]`."""
        ...


@struct.dataclass
class Pairwise:
    """Pairwise rounding. Source: C2MAB-V, Algorithm 3."""

    def round(self, key: jax.Array, z: jax.Array, spec: CombinatorialSpec) -> jax.Array:
        return rounding.pairwise(z, draws.uniform(key, z.shape), whole_sum=spec.reward.exact_size)


@struct.dataclass
class Swap:
    """Swap rounding. Source: C2MAB-V, Algorithm 2."""

    def round(self, key: jax.Array, z: jax.Array, spec: CombinatorialSpec) -> jax.Array:
        # Keys as words: a branch over keys would be taken by all runs.
        words = [jax.random.key_data(k) for k in draws.split(key)]
        trade = np.arange(spec.max_size)

        def uniforms(stream: int, places: np.ndarray) -> jax.Array:
            return draws.uniform_at(jax.random.wrap_key_data(words[stream], impl=draws.KEY_IMPL), places)

        return rounding.swap_with(
            z,
            lambda merges: uniforms(0, merges[:, None] * spec.max_size + trade),
            lambda merges: uniforms(1, merges),
        )


@struct.dataclass
class Indicator:
    """Identity, for selections that are sets, such as those of `BestSet`."""

    def round(self, key: jax.Array, z: jax.Array, spec: CombinatorialSpec) -> jax.Array:
        del key, spec
        return z > 0.5


def default_rounding(spec: CombinatorialSpec) -> Rounding:
    """Returns the paper's rounding: `Swap` for any win, `Pairwise` for sets of exact size."""
    return Pairwise() if spec.reward.exact_size else Swap()


def round_by_group(rounding: Rounding | None, key: jax.Array, z: jax.Array, spec: CombinatorialSpec) -> jax.Array:
    """Draws a random set `[K]` bool with marginals `z`; each group is rounded separately, which preserves its size.

    Args:
      rounding: `Pairwise()` or `Swap()`; None for the paper's.
      key: key of the rounding.
      z: `[K]` relaxed selection in [0, 1].
      spec: sizes and groups.
    """
    rounding = default_rounding(spec) if rounding is None else rounding
    if spec.groups is None:
        return rounding.round(key, z, spec)
    chosen: list[jax.Array] = [z] * spec.num_models
    for group, member in enumerate(numerics.members(spec.groups)):
        inside = np.flatnonzero(member)
        alone = dataclasses.replace(spec, num_models=len(inside), max_size=min(spec.max_size, len(inside)), groups=None)
        part = rounding.round(draws.fold_in(key, group), jnp.stack([z[k] for k in inside]), alone)
        for place, k in enumerate(inside):
            chosen[k] = part[place]
    return jnp.stack(chosen)


def top_models(score: jax.Array, obs: Observation, spec: CombinatorialSpec, allowed: jax.Array | None = None) -> jax.Array:
    """Returns the mask `[K]` of the `N` available models (of each group) with the largest scores; ties go to the lower index.

    Args:
      score: `[K]` scores.
      obs: observation with the available models and `N`.
      spec: the groups.
      allowed: `[K]` bool, candidates instead of all available models.
    """
    allowed = obs.available if allowed is None else allowed
    if spec.groups is None:
        return allowed & (numerics.rank(allowed, score).astype(jnp.result_type(obs.size)) < obs.size)
    place = numerics.rank(allowed, score, together=np.equal.outer(spec.groups, spec.groups))
    return allowed & (place < numerics.of_group(spec.groups, obs.size))
