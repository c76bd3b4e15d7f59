"""Computes the expected reward of the best feasible routing, relative to which regret is measured; in float64 on the host."""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# Largest number of sets that are compared; more are searched by HiGHS, which is then faster.
_MOST_SETS = 2_000
# HiGHS stops at an absolute gap of 1e-6 of its objective.
_SCALE = 1e4


def max_support(capacity: ArrayLike) -> int:
    """Returns the largest number of models that an optimal routing can need: `ceil(1 / smallest capacity) + 1`.

    A vertex of the routing polytope has at most two shares strictly between 0 and the capacity. Shares at their capacity sum to at most 1, so that
    there are at most `1 / smallest capacity` of them.
    """
    return math.ceil(1.0 / float(np.min(capacity)) - 1e-6) + 1


def routing_values(
    reward: ArrayLike, cost: ArrayLike, capacity: ArrayLike, budget: float, sets: ArrayLike | Sequence[Sequence[int]]
) -> np.ndarray:
    """Returns the best expected reward per query of a routing over each of `S` sets of models, `[S]` float64; 0 for an infeasible set.

    By duality the value is the minimum over `lam >= 0` of `lam * budget + max over p of (reward - lam * cost) . p`, where `p` are shares of the
    queries, with sum 1 and at most the capacities. The minimum is at 0 or where two models have equal `reward - lam * cost`. Source: StageRoute, eq.
    (1), for a fixed set.

    Args:
      reward, cost: `[N]` true mean rewards and costs.
      capacity: `[N]` largest share of the queries that each model may serve.
      budget: mean cost that a query may have.
      sets: `[S, n]` indices of the `n` models of each set.
    """
    u, c, a = (np.asarray(x, np.float64)[np.asarray(sets)] for x in (reward, cost, capacity))
    du, dc = u[:, :, None] - u[:, None, :], c[:, :, None] - c[:, None, :]
    crossing = np.where(du * dc > 0, du / np.where(dc == 0, 1.0, dc), 0.0).reshape(len(u), -1)
    lam = np.concatenate([np.zeros((len(u), 1)), crossing], axis=1)

    def best(score: np.ndarray) -> np.ndarray:
        order = np.argsort(-score, axis=-1, kind="stable")
        cap = np.take_along_axis(np.broadcast_to(a[:, None, :], score.shape), order, -1)
        before = np.cumsum(cap, axis=-1) - cap
        return np.sum(np.take_along_axis(score, order, -1) * np.clip(1.0 - before, 0.0, cap), axis=-1)

    value = np.min(lam * budget + best(u[:, None, :] - lam[:, :, None] * c[:, None, :]), axis=1)
    cheapest = -best(-c[:, None, :])[:, 0]
    feasible = (a.sum(axis=1) >= 1.0 - 1e-9) & (cheapest <= budget * (1 + 1e-9))
    return np.where(feasible, value, 0.0)


def pool_value(
    reward: ArrayLike, cost: ArrayLike, capacity: ArrayLike, budget: float, pool: Iterable[int], max_deployed: int
) -> float:
    """Returns `V(budget, pool)`: the best expected reward per query if at most `max_deployed` models of `pool` are deployed, 0 if infeasible.

    Source: StageRoute, eq. (1).

    Args:
      reward, cost, capacity: `[N]` true mean rewards and costs, and largest share of the queries that each model may serve.
      budget: mean cost that a query may have.
      pool: indices of the models to choose from.
      max_deployed: number of slots `M`.
    """
    pool = tuple(int(m) for m in pool)
    if not pool:
        return 0.0
    size = min(max_deployed, len(pool))
    if size == len(pool) or size >= max_support(np.asarray(capacity)[list(pool)]):
        return float(routing_values(reward, cost, capacity, budget, [pool])[0])
    u, c, a = (np.asarray(x, np.float64)[list(pool)] for x in (reward, cost, capacity))
    if math.comb(len(pool), size) > _MOST_SETS:
        chosen = _best_set(u, c, a, budget, size)
        return 0.0 if chosen is None else float(routing_values(u, c, a, budget, [chosen])[0])
    sets = np.asarray(list(itertools.combinations(range(len(pool)), size)))
    blocks = np.array_split(sets, max(1, len(sets) // 4096))
    return float(max(routing_values(u, c, a, budget, block).max() for block in blocks))


def _best_set(reward: np.ndarray, cost: np.ndarray, capacity: np.ndarray, budget: float, size: int) -> list[int] | None:
    """Returns the `size` models of the best routing within `budget` and capacities, as indices, by mixed-integer programming; None if infeasible."""
    from scipy import optimize

    count = len(reward)
    ones, none, each = np.ones(count), np.zeros(count), np.eye(count)
    top: Any = np.append(capacity, ones)
    found = optimize.milp(
        _SCALE * np.append(-reward, none),
        constraints=[
            optimize.LinearConstraint(np.append(ones, none), 1.0, 1.0),
            optimize.LinearConstraint(np.append(cost, none), -np.inf, budget),
            optimize.LinearConstraint(np.append(none, ones), -np.inf, size),
            optimize.LinearConstraint(np.hstack([each, -np.diag(capacity)]), -np.inf, 0.0),
        ],
        integrality=np.append(none, ones),
        bounds=optimize.Bounds(0.0, top),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    first = np.argsort(-found.x[:count], kind="stable")[:size]
    return sorted(int(m) for m in first)


def optimum_steps(
    reward: ArrayLike,
    cost: ArrayLike,
    capacity: ArrayLike,
    arrival: ArrayLike,
    budget: float,
    max_deployed: int,
    stage_length: int,
    continuous: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best expected reward per query with the models available in a round, as a step function of the round.

    The first array has the rounds (0-based) at which the value changes, `[N + 1]` int32, padded with the largest int32; the second the values,
    float64. A model is available from the first stage start at or after its arrival, or with `continuous` from its arrival.

    Args:
      reward, cost, capacity: `[N]` true mean rewards and costs, and largest share of the queries that each model may serve.
      budget, max_deployed: mean cost that a query may have, and number of slots `M`.
      arrival: `[N]` first round of each model, 1-based.
      stage_length: number of rounds `I` of a stage.
    """
    first = np.asarray(arrival, np.int64) - 1
    visible = first if continuous else -(-first // stage_length) * stage_length
    starts = np.unique(np.append(visible, 0))
    value = functools.cache(lambda pool: pool_value(reward, cost, capacity, budget, pool, max_deployed))
    values = [value(tuple(np.flatnonzero(visible <= start))) for start in starts]
    pad = len(first) + 1 - len(starts)
    never = np.iinfo(np.int32).max
    return np.append(starts, [never] * pad).astype(np.int32), np.append(values, [0.0] * pad)
