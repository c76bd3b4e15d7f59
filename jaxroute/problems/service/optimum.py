"""Computes the cheapest stationary policies that meet a target of satisfaction, in float64 on the host."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks
from jaxroute.problems.service.sources import Contexts, RequestSource

# Relative difference of the two prices that an oracle mixes from the shadow price.
PRICE_STEP = 1e-3
# Shortfall up to which a target counts as reachable, because probabilities are float32.
_REACH = 1e-6


class Optimum(NamedTuple):
    """Solution: the cheapest randomised choice of models that reaches a required mean satisfaction.

    Attributes:
      value: mean cost, J per request; NaN if infeasible.
      price: shadow price of the constraint, J per unit of satisfaction; infinite if infeasible.
      part: share of requests to decide at the price `price * (1 + PRICE_STEP)`, the rest at `price * (1 - PRICE_STEP)`, to meet the target exactly.
      cost: mean cost of `choice`, J per request; equal to `value` if feasible.
      choice: `[W, M]` probability of each of `M` models for each of `W` contexts (groups of like requests); the most satisfying choice if infeasible.
      satisfaction: mean satisfaction that `choice` reaches.
      feasible: whether some choice reaches the target.
    """

    value: float
    price: float
    part: float
    cost: float
    choice: np.ndarray
    satisfaction: float
    feasible: bool


def cheapest_choice(contexts: Contexts, alpha: float) -> Optimum:
    """Returns the cheapest randomised choice of a model for each context that reaches the mean satisfaction `alpha`.

    It minimises `sum_i w_i y_i . E_i` over `y_i` in the simplex subject to `sum_i w_i y_i . P_i >= alpha`; context `i` has weight `w_i`, costs `E_i`
    and probabilities of satisfaction `P_i`, and `y_i` are the probabilities of its models. The solution is exact: each context starts at its cheapest
    model and climbs the lower convex hull of its points (satisfaction, cost). The steps of all contexts are taken in order of cost per satisfaction
    until the target is met, the last one partially. Source: MESS+, eq. (1) for stationary policies; the dual variable of section 3.2 is the price.
    """
    weight, success, cost = (np.asarray(x, np.float64) for x in contexts)
    number, models = success.shape
    every = np.arange(number)
    # The cheapest model; among equally cheap ones the most satisfying.
    start = now = np.lexsort((-success, cost), axis=-1)[:, 0]
    steps = []
    steepest = np.full(number, -np.inf)
    for _ in range(models - 1):
        gain = success - success[every, now][:, None]
        extra = cost - cost[every, now][:, None]
        slope = np.where(gain > 0, extra / np.where(gain > 0, gain, 1.0), np.inf)
        least = slope.min(axis=1)
        # The last of collinear models.
        after = np.where(slope == least[:, None], gain, -np.inf).argmax(axis=1)
        # Slopes increase along a hull; rounding must not change the order of collinear steps.
        steepness = steepest = np.maximum(least, steepest)
        climbs = np.isfinite(steepness)
        if not climbs.any():
            break
        after = np.where(climbs, after, now)
        steps.append((every[climbs], now[climbs], after[climbs], steepness[climbs]))
        now = after
    which, before, after, slope = (np.concatenate(x) for x in zip(*steps, strict=True)) if steps else (every[:0],) * 4
    order = np.argsort(slope, kind="stable")
    which, before, after, slope = (x[order] for x in (which, before, after, slope))
    gain = weight[which] * (success[which, after] - success[which, before])
    missing = alpha - float(np.sum(weight * success[every, start]))
    reached = np.cumsum(gain)
    most = float(reached[-1]) if len(gain) else 0.0
    feasible = missing <= most + _REACH
    missing = min(missing, most)
    taken = int(np.searchsorted(reached, missing)) if missing > 0 else 0
    serves = start.copy()
    serves[which[:taken]] = after[:taken]  # The steps of a context are in order: the last one counts.
    choice = np.zeros((number, models))
    choice[every, serves] = 1.0
    price, part = 0.0, 1.0
    if missing > 0:
        share = float(np.clip((missing - (reached[taken] - gain[taken])) / gain[taken], 0.0, 1.0))
        choice[which[taken], before[taken]] = 1.0 - share
        choice[which[taken], after[taken]] = share
        price = float(slope[taken])
        cheaper = slope < price * (1.0 - PRICE_STEP)
        alike = ~cheaper & (slope <= price * (1.0 + PRICE_STEP))
        part = float(np.clip((missing - gain[cheaper].sum()) / gain[alike].sum(), 0.0, 1.0))
    cost, satisfaction = (float(np.sum(weight[:, None] * choice * x)) for x in (cost, success))
    value, price = (cost, price) if feasible else (np.nan, np.inf)
    return Optimum(value, price, part, cost, choice, satisfaction, bool(feasible))


def best_blind(requests: RequestSource, alpha: float) -> Optimum:
    """Returns the cheapest mixture of models that satisfies a share `alpha` of the requests, for a policy that observes nothing about a request."""
    return cheapest_choice(requests.average(), alpha)


def best_informed(requests: RequestSource, alpha: float, knows_cost: bool = True) -> Optimum:
    """Returns the cheapest policy that satisfies a share `alpha` of requests and knows each model's probability of satisfaction given the features.

    If `knows_cost` is True, the policy also observes the costs of a request. This is the benchmark of Theorem 2. On a table, where the probabilities
    are unknown, the result equals `best_blind`.
    """
    return cheapest_choice(requests.contexts(knows_cost), alpha)


def best_clairvoyant(requests: RequestSource, alpha: float) -> Optimum:
    """Returns the cheapest policy that satisfies a share `alpha` of requests and knows which models satisfy a request.

    It also knows the costs of each request for `ProbitRequests` and `TableRequests`, and only mean costs for `TypeRequests` and `CellRequests`.
    `ServiceEnv.clairvoyant` follows the environment instead: it uses the costs of each request if `knows_cost=True`, otherwise mean costs.
    """
    return cheapest_choice(requests.label_contexts(), alpha)


def best_in_hindsight(satisfied: ArrayLike, cost: ArrayLike, alpha: float) -> Optimum:
    """Returns the cheapest choice for given requests, for example the requests of one run, from which the caller can compute regret.

    Args:
      satisfied: `[T, M]` satisfaction of each request by each model, in [0, 1]; simulation results do not store it.
      cost: `[T, M]` costs, J.
      alpha: required share of satisfied requests.
    """
    success = checks.probability("satisfied", satisfied)
    if success.ndim != 2:
        raise ValueError(f"satisfied must have shape [requests, models], got {success.shape}")
    costs = checks.non_negative("cost", cost, success.shape)
    return cheapest_choice(Contexts(np.full(len(costs), 1.0 / len(costs)), success, costs), alpha)
