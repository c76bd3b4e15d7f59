"""What the theory of MESS+ promises: Theorem 1, Corollary 1, Lemma A.3 and the margin that makes up for the bound."""

import math

import numpy as np

from jaxroute.core import checks
from jaxroute.problems.service.sources import Contexts


def admissible_probability(contexts: Contexts, slack: float) -> float:
    """Theorem 1's `q`: the mean probability of the worst model whose probability is within `slack` of the best.

    Source: MESS+, assumption 1. Differs from the paper: averaged over requests, which is what the proof needs; for every
    single request it fails as soon as some are hard for all models.
    """
    weight, success, _ = contexts
    worst = np.where(success >= success.max(axis=1, keepdims=True) - slack - 1e-12, success, np.inf).min(axis=1)
    return float(np.sum(weight * worst))


def safety_margin(V: float, cost_range: float, slack: float, horizon: int) -> float:
    """What to add to a target so that it is met after `T` requests: `V cost_range / (slack T) + 1 / sqrt(T)`.

    Source: MESS+, after Corollary 1.

    Args:
      V: `[]` weight of cost, requests per J.
      cost_range: difference of the largest and smallest cost, J.
      slack: `beta` of assumption 1, taken so that `q(slack)` (`admissible_probability`) is still above the raised target.
      horizon: `T`, requests until the target is to be met.
    """
    checks.positive("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    return V * cost_range / (slack * checks.count("horizon", horizon)) + 1.0 / math.sqrt(horizon)


def bound_queue(V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0.0, alpha: float = 1.0) -> float:
    """Theorem 1's bound of the mean virtual queue: `gamma + sqrt(T)`, `gamma = max(alpha warm_up, V cost_range / slack)`.

    Args:
      V: as for `safety_margin`.
      cost_range, slack: likewise.
      horizon: `T`.
      warm_up: `psi`, requests after which assumption 1 holds.
      alpha: the target.

    Returns:
      Requests.
    """
    return _gamma(V, cost_range, slack, warm_up, alpha) + math.sqrt(checks.count("horizon", horizon))


def bound_mean_queue(
    V: float, cost_range: float, slack: float, excess: float, warm_up: float = 0.0, alpha: float = 1.0
) -> float:
    """Theorem 1's bound of the mean over requests of the mean virtual queue: `gamma + 1 / (2 excess)`.

    Args:
      V: as for `bound_queue`.
      cost_range, slack: likewise.
      excess: `q - alpha`, with the `q` of `admissible_probability`.
      warm_up, alpha: likewise.
    """
    return _gamma(V, cost_range, slack, warm_up, alpha) + 0.5 / float(checks.positive("excess", excess, ()))


def _gamma(V: float, cost_range: float, slack: float, warm_up: float, alpha: float) -> float:
    """Theorem 1's `gamma`."""
    checks.non_negative("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    checks.non_negative("warm_up", warm_up, ())
    return max(alpha * warm_up, V * cost_range / slack)


def bound_violation(
    V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0.0, alpha: float = 1.0
) -> float:
    """Corollary 1's bound of the mean violation after `horizon` requests; arguments as for `bound_queue`."""
    return bound_queue(V, cost_range, slack, horizon, warm_up, alpha) / horizon


def expected_explorations(c: float, horizon: int, power: float = 0.25, explores_first: bool = True) -> float:
    """Expected number of explored requests, about `(4 c / 3) T^(3/4)`. Source: MESS+, Lemma A.3."""
    probability = np.minimum(1.0, checks.non_negative("c", c, ()) * np.arange(1, horizon + 1, dtype=np.float64) ** -power)
    return float(probability[1:].sum() + (1.0 if explores_first else probability[0]))
