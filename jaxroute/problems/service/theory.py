"""Bounds of the theory of MESS+ (Theorem 1, Corollary 1, Lemma A.3), and the margin to add to a target so that it is met in time."""

import math

import numpy as np

from jaxroute.core import checks
from jaxroute.problems.service.sources import Contexts


def admissible_probability(contexts: Contexts, slack: float) -> float:
    """Returns `q` of Theorem 1: the least probability of satisfaction by an admissible model, averaged over contexts.

    A model is admissible in a context if its probability is at most `slack` below that of the best model.

    Source: MESS+, assumption 1. Differs from the paper: `q` is the mean over requests, as the proof requires. For single requests the assumption
    fails if some are hard for all models.
    """
    weight, success, _ = contexts
    worst = np.where(success >= success.max(axis=1, keepdims=True) - slack - 1e-12, success, np.inf).min(axis=1)
    return float(np.sum(weight * worst))


def safety_margin(V: float, cost_range: float, slack: float, horizon: int) -> float:
    """Returns the margin to add to a target, so that it is met after `T` requests: `V cost_range / (slack T) + 1 / sqrt(T)`.

    Source: MESS+, after Corollary 1.

    Args:
      V: `[]` weight of cost, requests per J.
      cost_range: difference of the largest and smallest cost of a request, J.
      slack: how far a served model's probability of satisfaction may be below that of the best model (`beta` of assumption 1). The mean
        `admissible_probability` for this slack must exceed target plus margin.
      horizon: number of requests `T` until the target must be met.
    """
    checks.positive("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    return V * cost_range / (slack * checks.count("horizon", horizon)) + 1.0 / math.sqrt(horizon)


def bound_queue(V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0, alpha: float = 1) -> float:
    """Returns Theorem 1's bound of the expected virtual queue: `gamma + sqrt(T)` requests, `gamma = max(alpha warm_up, V cost_range / slack)`.

    Args:
      V, cost_range: weight of cost, requests per J, and largest minus smallest cost of a request, J.
      slack: how far a served model's probability of satisfaction may be below that of the best model (`beta` of assumption 1).
      horizon: number of requests `T`.
      warm_up: number of requests `psi` until the predictor is so good that assumption 1 holds.
      alpha: required share of satisfied requests.
    """
    return _gamma(V, cost_range, slack, warm_up, alpha) + math.sqrt(checks.count("horizon", horizon))


def bound_mean_queue(
    V: float, cost_range: float, slack: float, excess: float, warm_up: float = 0, alpha: float = 1
) -> float:
    """Returns Theorem 1's bound of the expected virtual queue, averaged over requests: `max(alpha warm_up, V cost_range / slack) + 1 / (2 excess)`.

    Args:
      V, cost_range, slack, warm_up, alpha: as for `bound_queue`.
      excess: difference `q - alpha` of `admissible_probability` and the target.
    """
    return _gamma(V, cost_range, slack, warm_up, alpha) + 0.5 / float(checks.positive("excess", excess, ()))


def _gamma(V: float, cost_range: float, slack: float, warm_up: float, alpha: float) -> float:
    checks.non_negative("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    checks.non_negative("warm_up", warm_up, ())
    return max(alpha * warm_up, V * cost_range / slack)


def bound_violation(V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0, alpha: float = 1) -> float:
    """Returns Corollary 1's bound of alpha minus the expected share of satisfied requests, `bound_queue / horizon`; arguments as in `bound_queue`."""
    return bound_queue(V, cost_range, slack, horizon, warm_up, alpha) / horizon


def expected_explorations(c: float, horizon: int, power: float = 0.25, explores_first: bool = True) -> float:
    """Returns the expected number of explored requests of `horizon`, if request `t >= 1` is explored with probability `min(1, c t^-power)`.

    For power 1/4 it is about `(4 c / 3) horizon^(3/4)`. With `explores_first` request 1 is always explored. Source: MESS+, Lemma A.3.
    """
    probability = np.minimum(1.0, checks.non_negative("c", c, ()) * np.arange(1, horizon + 1, dtype=np.float64) ** -power)
    return float(probability[1:].sum() + (1.0 if explores_first else probability[0]))
