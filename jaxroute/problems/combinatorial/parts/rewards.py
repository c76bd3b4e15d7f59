"""Rewards of a set of models: any success, the sum of successes, or all successes; policies, solvers and the environment evaluate them."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jaxroute.problems.combinatorial.types import AnyArray, Reward
from jaxroute.solvers.selection import any_win, any_win_weight


@dataclass(frozen=True)
class AnyWin(Reward):
    """Any win (AWC): at most `N` models are asked in sequence, a cascade, until one succeeds. Source: C2MAB-V, section 3, eq. (3)."""

    exact_size = False
    cascade = True
    approximation = 1.0 - 1.0 / math.e

    def value(self, chosen: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the probability that any model of the set `chosen` (mask) succeeds, `1 - prod (1 - mean)`; 0 for the empty set."""
        return 1.0 - xp.prod(xp.where(chosen, 1.0 - mean, 1.0), axis=-1)

    def relaxed(self, z: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the expected reward for fractions `z` of the models, the multilinear extension `1 - prod_k (1 - mean_k z_k)`."""
        del xp
        return any_win(mean, z)

    def weight(self, w: AnyArray, xp: Any = jnp) -> Any:
        """Returns the weights `-log(1 - w)` for success probabilities `w`. A set with a larger sum of weights has a larger `value`."""
        return any_win_weight(w, xp)


@dataclass(frozen=True)
class SumUp(Reward):
    """Sum up (SUC): the models work on parallel sub-tasks, and the reward is the sum of successes. Source: C2MAB-V, section 3, eq. (4)."""

    def value(self, chosen: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the sum of the success probabilities `mean` over the set `chosen` (mask); 0 for the empty set."""
        return xp.sum(xp.where(chosen, mean, 0.0), axis=-1)

    def relaxed(self, z: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the expected reward for fractions `z` of the models, `sum_k mean_k z_k`."""
        return xp.sum(mean * z, axis=-1)

    def weight(self, w: AnyArray, xp: Any = jnp) -> Any:
        """Returns the success probabilities `w`, which are additive weights already."""
        return w


@dataclass(frozen=True)
class AllIn(Reward):
    """All in (AIC): the models write the modules of a project, and all must succeed. Source: C2MAB-V, section 3, eq. (5)."""

    def value(self, chosen: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the product of the success probabilities `mean` over the set `chosen` (mask); 1 for the empty set."""
        return xp.prod(xp.where(chosen, mean, 1.0), axis=-1)

    def relaxed(self, z: AnyArray, mean: AnyArray, xp: Any = jnp) -> Any:
        """Returns the expected reward for fractions `z` of the models, `prod_k mean_k ** z_k`."""
        possible = mean > 0.0  # 0 ** 0 is 1; explicit, so that derivatives in `z` are finite
        return xp.prod(xp.where(possible, xp.where(possible, mean, 1.0) ** z, xp.where(z > 0.0, 0.0, 1.0)), axis=-1)

    def weight(self, w: AnyArray, xp: Any = jnp) -> Any:
        """Returns the weights `log w` for success probabilities `w`. A set with a larger sum of weights has a larger `value`."""
        return xp.log(w)


REWARDS: dict[str, Reward] = {"awc": AnyWin(), "suc": SumUp(), "aic": AllIn()}
