"""What a set of models earns: any win, the sum of wins, or all of them.

`chosen` is a mask `[..., K]`, `z` a relaxed selection in [0, 1], `mean` the models' success probabilities `[..., K]`. Each
function also works in NumPy, for optima in float64: pass `xp=numpy`.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jaxroute.problems.combinatorial.types import Array, Reward
from jaxroute.solvers.selection import any_win, any_win_weight


@dataclass(frozen=True)
class AnyWin:
    """Cascade (AWC): the models are asked one after another until one succeeds; at most `N`.

    Source: C2MAB-V, section 3, eq. (3).
    """

    exact_size = False
    cascade = True
    approximation = 1.0 - 1.0 / math.e

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """`1 - prod over the set of (1 - mean)`; 0 for the empty set."""
        return 1.0 - xp.prod(xp.where(chosen, 1.0 - mean, 1.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """`1 - prod (1 - mean_k z_k)`, the multilinear extension."""
        del xp
        return any_win(mean, z)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Additive weights of sets: `-log(1 - w)`, which order sets as `value` does."""
        return any_win_weight(w, xp)


@dataclass(frozen=True)
class SumUp:
    """Parallel sub-tasks (SUC): successes add up. Source: C2MAB-V, section 3, eq. (4)."""

    exact_size = True
    cascade = False
    approximation = 1.0

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Sum over the set of `mean`; 0 for the empty set."""
        return xp.sum(xp.where(chosen, mean, 0.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """`sum mean_k z_k`."""
        return xp.sum(mean * z, axis=-1)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Additive weights of sets: `w`."""
        return w


@dataclass(frozen=True)
class AllIn:
    """Modules of a project (AIC): all must succeed. Source: C2MAB-V, section 3, eq. (5)."""

    exact_size = True
    cascade = False
    approximation = 1.0

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Product over the set of `mean`; 1 for the empty set."""
        return xp.prod(xp.where(chosen, mean, 1.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """`prod mean_k ** z_k`."""
        possible = mean > 0.0  # 0 ** 0 is 1; written out, so that derivatives in `z` are finite
        return xp.prod(xp.where(possible, xp.where(possible, mean, 1.0) ** z, xp.where(z > 0.0, 0.0, 1.0)), axis=-1)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Additive weights of sets: `log w`, which order sets as `value` does."""
        return xp.log(w)


REWARDS: dict[str, Reward] = {"awc": AnyWin(), "suc": SumUp(), "aic": AllIn()}
