"""Rules that round a relaxed selection (a fraction of each model) to a set of models, and the selection of the models with the largest scores."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import draws, numerics
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation
from jaxroute.solvers import rounding


@struct.dataclass
class Pairwise:
    """Pairwise rounding: repeatedly shifts weight between two fractions until one of them is 0 or 1. Source: C2MAB-V, Algorithm 3."""

    def round(self, key: Array, z: Array, spec: CombinatorialSpec) -> Array:
        """Draws a random set, a `[K]` bool mask that contains each model with probability `z` `[K]`; `spec` must have one group."""
        return rounding.pairwise(z, draws.uniform(key, z.shape), whole_sum=spec.reward.exact_size)


@struct.dataclass
class Swap:
    """Swap rounding: writes the fractions as a mixture of sets, and merges two sets at random until one is left. Source: C2MAB-V, Algorithm 2."""

    def round(self, key: Array, z: Array, spec: CombinatorialSpec) -> Array:
        # Keys as words: a branch over keys would be taken by all runs.
        words = [jax.random.key_data(k) for k in draws.split(key)]
        trade = np.arange(spec.max_size)

        def uniforms(stream: int, places: np.ndarray) -> Array:
            return draws.uniform_at(jax.random.wrap_key_data(words[stream], impl=draws.KEY_IMPL), places)

        return rounding.swap_with(
            z, lambda merges: uniforms(0, merges[:, None] * spec.max_size + trade), lambda merges: uniforms(1, merges)
        )


@struct.dataclass
class Indicator:
    """Converts a selection of zeros and ones, such as the result of `BestSet`, to a bool mask."""

    def round(self, key: Array, z: Array, spec: CombinatorialSpec) -> Array:
        del key, spec
        return z > 0.5


Rounding = Pairwise | Swap | Indicator


def round_by_group(rounding: Rounding | None, key: Array, z: Array, spec: CombinatorialSpec) -> Array:
    """Draws a random set `[K]` bool that contains each model with probability `z` `[K]`, by `rounding`.

    Each group is rounded alone, to preserve its size. None for `rounding` is the paper's choice: `Pairwise` for sets of exact size, else `Swap`.
    """
    if rounding is None:
        rounding = Pairwise() if spec.reward.exact_size else Swap()
    if spec.groups is None:
        return rounding.round(key, z, spec)
    chosen: list[Array] = [z] * spec.num_models
    for group, member in enumerate(numerics.members(spec.groups)):
        inside = np.flatnonzero(member)
        own_spec = dataclasses.replace(spec, num_models=len(inside), max_size=min(spec.max_size, len(inside)), groups=None)
        part = rounding.round(draws.fold_in(key, group), jnp.stack([z[k] for k in inside]), own_spec)
        for place, k in enumerate(inside):
            chosen[k] = part[place]
    return jnp.stack(chosen)


def top_models(score: Array, obs: Observation, spec: CombinatorialSpec, allowed: Array | None = None) -> Array:
    """Returns the mask `[K]` of the `N` models (of each group) with the largest `score` `[K]`; ties go to the lower index.

    `N` is `obs.size`; `allowed` `[K]` bool marks the models to choose from, None all available ones. `spec` has the groups.
    """
    allowed = obs.available if allowed is None else allowed
    if spec.groups is None:
        return allowed & (numerics.rank(allowed, score).astype(jnp.result_type(obs.size)) < obs.size)
    place = numerics.rank(allowed, score, together=np.equal.outer(spec.groups, spec.groups))
    return allowed & (place < numerics.of_group(spec.groups, obs.size))
