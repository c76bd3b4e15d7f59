"""Bounds of regret and violation from the paper's theorems, with all constants; on the host."""

import math

import numpy as np

from jaxroute.core import checks
from jaxroute.core.types import Leaf


def least_observed(success: Leaf, order: Leaf, size: int) -> float:
    """Returns `o` of Theorem 1: the least probability, over all sets of `size` models, that a cascade asks every model of the set.

    A cascade asks every model if all except the last one fail. For rewards without a cascade use 1 instead.

    Args:
      success: `[K]` success probabilities.
      order: `[K]` numbers; models are asked in ascending order, ties by index.
      size: number of models of a set.
    """
    checks.count("size", size)
    lose = 1.0 - checks.probability("success", success)
    ranked = lose[np.argsort(checks.numbers("order", order, lose.shape), kind="stable")]
    return min(float(np.prod(np.sort(ranked[:last])[: size - 1])) for last in range(len(ranked)))


def bound_regret(num_models: int, size: int, horizon: int, least_observed: float, best: float, power: int = 1) -> float:
    """Returns Theorem 1's bound of the regret: `(2 / o) sqrt(2 N K T log(2 pi^2 K T^power / 3)) + (K + 1) r*`.

    Args:
      num_models: number of models, `K`.
      size: size of a set, `N`.
      horizon: number of rounds, `T`.
      least_observed: `o`, least probability that all models of a set are asked, from the function `least_observed`.
      best: largest reward of a set, `r*`.
      power: exponent of `T`, 1 as published; the proof gives 4.
    """
    checks.share("least_observed", least_observed, ())
    log_term = math.log(2.0 * math.pi**2 * num_models * horizon**power / 3.0)
    return 2.0 / least_observed * math.sqrt(2.0 * size * num_models * horizon * log_term) + (num_models + 1) * best


def bound_violation(num_models: int, size: int, horizon: int, power: int = 1) -> float:
    """Returns Theorem 2's bound of how much the mean cost of `horizon` (`T`) rounds exceeds the budget, eq. (1), if all selected models are paid.

    It is `s (2 sqrt(2 log(2 pi^2 K T^power / 3)) + s)`, `s = sqrt(N K / T)`, if sets have `size` (`N`) of `num_models` (`K`) models. The exponent
    `power` is 1 as published; the proof gives 4.
    """
    share = math.sqrt(size * num_models / horizon)
    log_term = math.log(2.0 * math.pi**2 * num_models * horizon**power / 3.0)
    return share * (2.0 * math.sqrt(2.0 * log_term) + share)
