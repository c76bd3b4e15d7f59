"""Rewards of a set of models: any win, the sum of wins, or all wins.

`chosen` is a mask `[..., K]`, `z` a relaxed selection in [0, 1], and `mean` has the models' success probabilities `[..., K]`. With `xp=numpy` each
function works in NumPy, for optima in float64.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jaxroute.problems.combinatorial.types import Array, Reward
from jaxroute.solvers.selection import any_win, any_win_weight


@dataclass(frozen=True)
class AnyWin:
    """Cascade (AWC): at most `N` models are asked in sequence until one succeeds.

    Source: C2MAB-V, section 3, eq. (3).
    """

    exact_size = False
    cascade = True
    approximation = 1.0 - 1.0 / math.e

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns `1 - prod over the set of (1 - mean)`; 0 for the empty set."""
        return 1.0 - xp.prod(xp.where(chosen, 1.0 - mean, 1.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns `1 - prod (1 - mean_k z_k)`, the multilinear extension."""
        del xp
        return any_win(mean, z)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Returns additive weights `-log(1 - w)`, which order sets like `value`."""
        return any_win_weight(w, xp)


@dataclass(frozen=True)
class SumUp:
    """Parallel sub-tasks (SUC): successes add up. Source: C2MAB-V, section 3, eq. (4)."""

    exact_size = True
    cascade = False
    approximation = 1.0

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns the sum of `mean` over the set; 0 for the empty set."""
        return xp.sum(xp.where(chosen, mean, 0.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns `sum mean_k z_k`."""
        return xp.sum(mean * z, axis=-1)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Returns additive weights `w`."""
        return w


@dataclass(frozen=True)
class AllIn:
    """Modules of a project (AIC): all must succeed. Source: C2MAB-V, section 3, eq. (5)."""

    exact_size = True
    cascade = False
    approximation = 1.0

    def value(self, chosen: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns the product of `mean` over the set; 1 for the empty set."""
        return xp.prod(xp.where(chosen, mean, 1.0), axis=-1)

    def relaxed(self, z: Array, mean: Array, xp: Any = jnp) -> Any:
        """Returns `prod mean_k ** z_k`."""
        possible = mean > 0.0  # 0 ** 0 is 1; explicit, so that derivatives in `z` are finite
        return xp.prod(xp.where(possible, xp.where(possible, mean, 1.0) ** z, xp.where(z > 0.0, 0.0, 1.0)), axis=-1)

    def weight(self, w: Array, xp: Any = jnp) -> Any:
        """Returns additive weights `log w`, which order sets like `value`."""
        return xp.log(w)


REWARDS: dict[str, Reward] = {"awc": AnyWin(), "suc": SumUp(), "aic": AllIn()}
