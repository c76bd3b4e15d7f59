"""StageRoute in plain float64 Python: the reference that the simulator is compared with.

Written from the paper (Li and Li, "Keeping Up with the Models: Online Deployment and Routing of LLMs at Scale", arXiv 2506.17254v1) and from a
description in words (spec) of the choices that it leaves open, without looking at the simulator. Models are `0..N-1`, rounds `1..T`.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

TOLERANCE = 1e-9  # Slack of the budget (relative) and of the total capacity; threshold of a support.
TIE = 1e-12  # Values of two deployment sets, or two breakpoints, closer than this are one.

# Table 1 in release order; model 2 (Yi-Lightning) alone may take all queries.
TABLE1_SCORES = [1336, 1302, 1287, 1304, 1257, 1358, 1380, 1300, 1296, 1373, 1417, 1366, 1403, 1413, 1446]
TABLE1_COSTS = [10.0, 5.0, 0.14, 0.60, 0.40, 0.55, 1.50, 15.0, 0.28, 0.28, 0.82, 8.0, 15.0, 40.0, 10.0]


@dataclass
class Params:
    """One setting: the environment, the stage structure and the constants of the confidence bounds.

    mu, cost: `[N]` true mean reward and mean cost per query.
    capacity: `[N]` largest routing probability alpha_m.
    arrival: `[N]` 1-based round t_m at which a model becomes available.
    reward_noise: standard deviation of a reward. cost_noise: the same for a cost, relative to its mean.
    deploy_fee: `[N]` charged when a model enters D_k and was not in D_{k-1}.
    """

    mu: np.ndarray
    cost: np.ndarray
    capacity: np.ndarray
    arrival: np.ndarray
    budget: float
    max_deployed: int
    stage_length: int
    total_rounds: int
    gamma: float = 0.2
    radius_multiplier: float = 2.0
    cost_floor: float = 0.1
    cost_ceiling: float = 50.0
    reward_noise: float = 0.1
    cost_noise: float = 0.1
    deploy_fee: tuple = (0.0,) * 15


def table1_params(max_deployed, stage_length, horizon=10_000, normalisation="minmax", **changes):
    """The synthetic setting of Section 6.1: Table 1, six models at t=1, one more every 1,000 rounds."""
    scores = np.array(TABLE1_SCORES, float)
    mu = scores / scores.max() if normalisation == "max" else (scores - scores.min()) / np.ptp(scores)
    capacity = np.where(np.arange(15) == 2, 1.0, 0.4)
    arrival = np.array([1] * 6 + [1000 * j + 1 for j in range(1, 10)])
    return Params(mu, np.array(TABLE1_COSTS), capacity, arrival, 2.0, max_deployed, stage_length, horizon, **changes)


# --- Confidence bounds -------------------------------------------------------------------------------------------


def bounds(pulls, reward_sum, cost_sum, gamma, cost_floor, cost_ceiling, radius_multiplier=2.0, estimator="mean"):
    """(reward UCB, cost LCB) `[N]` of sums, with f_rad(v, n) = sqrt(gamma v / n) + gamma / n. Source: Eqs. 4-5; estimators of spec 3.1."""
    pulls, reward_sum, cost_sum = (np.asarray(x, float) for x in (pulls, reward_sum, cost_sum))
    first = estimator == "pseudo"
    count = np.maximum(pulls, 1) if estimator == "mean" else pulls + 1
    reward, cost = (first + reward_sum) / count, (first * cost_floor + cost_sum) / count

    def radius(value):
        return radius_multiplier * (np.sqrt(gamma * np.maximum(value, 0) / (pulls + 1)) + gamma / (pulls + 1))

    ucb, lcb = np.clip(reward + radius(reward), 0, 1), np.clip(cost - radius(cost), cost_floor, cost_ceiling)
    unseen = (pulls == 0) & (estimator == "mean")
    return np.where(unseen, 1.0, ucb), np.where(unseen, cost_floor, lcb)


# --- RouteOPT ----------------------------------------------------------------------------------------------------


def fill(score, tie_cost, capacity):
    """`[n]` distribution within `capacity` of largest score: best models first; equal scores: lower `tie_cost`, then index. Source: spec 4.1."""
    p, left = np.zeros(len(score)), 1.0
    for m in sorted(range(len(score)), key=lambda m: (-score[m], tie_cost[m], m)):
        p[m] = min(capacity[m], left)
        left -= p[m]
    return p


def route_lp(u, c, capacity, budget):
    """RouteOPT: max u.p with c.p <= budget, sum p = 1, 0 <= p <= capacity, by sorted breakpoints of the multiplier.

    Infeasible budget: the cheapest distribution, equal costs by larger u. Capacities that sum to less than 1:
    p = capacity / sum(capacity). Both return the largest breakpoint as the multiplier (0 if there is none).

    Source: Eq. 7; spec 3.2, Proposition 1 of 4.1.

    Returns:
      p `[n]`, the multiplier lambda* of the budget row, and whether the LP is feasible.
    """
    u, c, capacity = (np.asarray(x, float) for x in (u, c, capacity))
    limit = budget + TOLERANCE * abs(budget)
    pairs = [(u[i] - u[j], c[i] - c[j]) for i, j in itertools.combinations(range(len(u)), 2)]
    breakpoints = []  # l_1 < l_2 < ...; equal up to rounding counts once.
    for slope in sorted(du / dc for du, dc in pairs if du * dc > 0):
        if not breakpoints or slope > breakpoints[-1] * (1 + TIE):
            breakpoints.append(slope)
    top = breakpoints[-1] if breakpoints else 0.0

    if capacity.sum() < 1.0 - TOLERANCE:
        return capacity / max(capacity.sum(), 1e-300), top, False
    before, cheapest = fill(u, c, capacity), fill(-c, -u, capacity)  # lambda -> 0+, and lambda above every breakpoint.
    if c @ before <= limit:
        return before, 0.0, True
    if c @ cheapest > limit:
        return cheapest, top, False
    middles = [(a + b) / 2 for a, b in itertools.pairwise(breakpoints)]
    fills = [fill(u - middle * c, c, capacity) for middle in middles] + [cheapest]
    for lam, after in zip(breakpoints, fills):  # `after` is the fill between this breakpoint and the next.
        if c @ after <= limit:
            theta = np.clip((budget - c @ after) / (c @ before - c @ after), 0.0, 1.0)
            return theta * before + (1 - theta) * after, lam, True
        before = after
    raise AssertionError("unreachable: the last interval is the cheapest fill")


# --- DeployOPT ---------------------------------------------------------------------------------------------------


def sparse_lp(u, c, capacity, available, budget, max_deployed):
    """(p `[N]`, multiplier, feasible) of RouteOPT over the available models with at most `max_deployed` of them in use.

    The relaxed LP first; where it uses too many models, every set of `max_deployed` models in lexicographic order,
    of which the first best is kept. Source: Eqs. 1 and 3; spec 4.2, Proposition 3 (i).
    """
    u, c, capacity, pool = np.asarray(u, float), np.asarray(c, float), np.asarray(capacity, float), np.flatnonzero(available)

    def solve(subset):
        p = np.zeros(len(u))
        p[subset], lam, feasible = route_lp(u[subset], c[subset], capacity[subset], budget)
        return p, lam, feasible

    relaxed = solve(pool)
    if not relaxed[2] or np.sum(relaxed[0] > TOLERANCE) <= max_deployed:
        return relaxed
    best, best_value = (np.zeros(len(u)), 0.0, False), -math.inf
    for subset in itertools.combinations(pool, max_deployed):
        found = solve(list(subset))
        if found[2] and u @ found[0] > best_value + TIE:
            best, best_value = found, u @ found[0]
    return best


def deploy(u, l, capacity, available, budget, max_deployed, filler="reduced"):
    """(deployed `[N]` bool, feasible) of DeployOPT: the models that go live for a stage.

    The support of the best sparse solution, then fillers up to `max_deployed`: by u - lambda* l ("reduced"), by index
    ("index"), or not at all ("none"). Infeasible: the cheapest models by l. Source: Eqs. 3 and 6; spec 3.2 and 4.2.
    """
    pool = np.flatnonzero(available)
    p, lam, feasible = sparse_lp(u, l, capacity, available, budget, max_deployed)
    support = [m for m in pool if p[m] > TOLERANCE]
    others = [m for m in pool if p[m] <= TOLERANCE and filler != "none"]
    if filler == "reduced":
        others.sort(key=lambda m: (-(u[m] - lam * l[m]), l[m], m))
    if not feasible:
        support, others = [], sorted(pool, key=lambda m: (l[m], m))
    deployed = np.zeros(len(u), bool)
    deployed[(support + others)[:max_deployed]] = True
    return deployed, feasible


def deploy_milp(u, l, capacity, available, budget, max_deployed, eps=0.0):
    """DeployOPT by HiGHS' branch and bound, with d_m >= eps on exactly min(max_deployed, pool) chosen models.

    With eps=0 its value is that of "at most max_deployed models". Source: Eq. 3; spec 4.2, Proposition 3.

    Returns:
      value, chosen `[N]` bool, feasible; (NaN, all False, False) where it is infeasible.
    """
    n, identity, zero = len(u), np.eye(len(u)), np.zeros(len(u))
    size = min(max_deployed, int(np.sum(available)))
    rows = [  # Variables: d (n of them), then the 0/1 choice z (n).
        LinearConstraint(np.r_[np.ones(n), zero], 1.0, 1.0),
        LinearConstraint(np.r_[l, zero], -np.inf, budget),
        LinearConstraint(np.r_[zero, np.ones(n)], size, size),
        LinearConstraint(np.c_[identity, -np.diag(capacity)], -np.inf, 0.0),
        LinearConstraint(np.c_[identity, -eps * identity], 0.0, np.inf),
    ]
    answer = milp(
        np.r_[-np.asarray(u), zero],
        integrality=np.r_[zero, np.ones(n)],
        bounds=Bounds(np.zeros(2 * n), np.r_[capacity, np.asarray(available, float)]),
        constraints=rows,
        options={"mip_rel_gap": 0.0},
    )
    return (-answer.fun, answer.x[n:] > 0.5, True) if answer.success else (math.nan, np.zeros(n, bool), False)


# --- Benchmark and simulation ------------------------------------------------------------------------------------


def stage_values(mu, cost, capacity, arrival, budget, max_deployed, stage_starts):
    """`[K]` V(b, M_tau_k), 0 where the pool is empty or infeasible. Source: Eq. 1; spec 2.3."""
    known = {}
    for start in stage_starts:
        pool = tuple(t <= start for t in arrival)
        if pool not in known:
            p, _, feasible = sparse_lp(mu, cost, capacity, pool, budget, max_deployed)
            known[pool] = mu @ p if feasible else 0.0
    return np.array([known[tuple(t <= start for t in arrival)] for start in stage_starts])


def choose(p, uniform):
    """Index of the model drawn from p by inverse CDF, never one of probability zero. Source: spec 4.4."""
    running = np.cumsum(p)
    return min(int(np.sum(running <= uniform * running[-1])), int(np.flatnonzero(p)[-1]))


def simulate(
    params,
    reward_shock,
    cost_shock,
    choice_uniform,
    policy="StageRoute",
    estimator="mean",
    scope="run",
    filler="reduced",
    greedy_route="lp",
    budget_mode="lp",
):
    """One run of StageRoute, Greedy or the Oracle on given draws (all `[T]`).

    In round t model m would pay mu_m + reward_noise * reward_shock[t] and cost c_m (1 + cost_noise * cost_shock[t]):
    one shared shock per round. A round without service ("stop" after the budget is gone, or an empty pool)
    has model -1 and zeros; a stage that begins after the stop deploys nothing.

    Source: Algorithm 1; spec 3.2 (scope), 3.5 (budget_mode), 5 (policies), 2.4 (regret).

    Returns:
      Dictionary. Per round `[T]`: model, cost, feasible (RouteOPT; True where not served), multiplier, served, and the cumulative regret (pseudo),
      conditional_regret, realised_regret. Per stage `[K]`: deployed `[K, N]`, fee.
    """
    mu, cost, capacity = (np.asarray(x, float) for x in (params.mu, params.cost, params.capacity))
    n, rounds, budget = len(mu), params.total_rounds, params.budget
    starts = range(1, rounds + 1, params.stage_length)
    constants = (params.gamma, params.cost_floor, params.cost_ceiling, params.radius_multiplier, estimator)

    model, served, feasible = np.full(rounds, -1), np.zeros(rounds, bool), np.ones(rounds, bool)
    reward, paid, mean_reward, expected_reward, multiplier = (np.zeros(rounds) for _ in range(5))
    deployed, fee, spent = np.zeros((len(starts), n), bool), np.zeros(len(starts)), 0.0

    # (pulls, reward sum, cost sum) of every model: what DeployOPT sees and, in scope "routing", what RouteOPT sees.
    book = np.zeros((3, n))
    for k, start in enumerate(starts):
        if budget_mode == "stop" and spent >= budget * rounds:
            break

        # Stage start: bounds from all recorded plays, then D_k (lines 4-6).
        ucb, lcb = (mu.copy(), cost.copy()) if policy == "Oracle" else bounds(*book, *constants)
        available = params.arrival <= start
        if policy == "Greedy":
            ranking = sorted(np.flatnonzero(available), key=lambda m: (-ucb[m] / lcb[m], lcb[m], m))
            deployed[k, ranking[: params.max_deployed]] = True
        else:
            deployed[k], _ = deploy(ucb, lcb, capacity, available, budget, params.max_deployed, filler)
        live = np.flatnonzero(deployed[k])
        fee[k] = sum(params.deploy_fee[m] for m in live if k == 0 or not deployed[k - 1, m])
        spent += fee[k]

        # What RouteOPT sees at first: everything, or nothing.
        if scope == "stage":
            book = np.zeros((3, n))
        routing_book = np.zeros((3, n)) if scope == "routing" else book
        if policy != "Oracle":
            ucb, lcb = bounds(*routing_book, *constants)

        for t in range(start, min(start + params.stage_length, rounds + 1)):
            if not len(live) or (budget_mode == "stop" and spent >= budget * rounds):
                continue
            # Route (line 9).
            u, l, alpha = ucb[live], lcb[live], capacity[live]
            if policy == "Greedy" and greedy_route != "lp":
                alpha = np.ones(len(live)) if greedy_route == "argmax" else alpha
                ok, lam = alpha.sum() >= 1 - TOLERANCE, 0.0
                p = fill(u / l, l, alpha) if ok else alpha / alpha.sum()
            else:
                this_budget = budget
                if budget_mode == "pace":
                    this_budget = min(max((budget * rounds - spent) / (rounds - t + 1), 0.0), 5 * budget)
                p, lam, ok = route_lp(u, l, alpha, this_budget)
            m = live[choose(p, choice_uniform[t - 1])]

            # Observe (line 10).
            r = mu[m] + params.reward_noise * reward_shock[t - 1]
            x = cost[m] * (1 + params.cost_noise * cost_shock[t - 1])
            spent += x
            model[t - 1], reward[t - 1], paid[t - 1], served[t - 1] = m, r, x, True
            feasible[t - 1], multiplier[t - 1], mean_reward[t - 1], expected_reward[t - 1] = ok, lam, mu[m], p @ mu[live]

            # Learn (lines 11-12).
            for record in (book, routing_book) if scope == "routing" else (book,):
                record[:, m] += (1, r, x)
            if policy != "Oracle":
                one = [[value] for value in routing_book[:, m]]
                ucb[m], lcb[m] = (x[0] for x in bounds(*one, *constants))

    best = stage_values(mu, cost, capacity, params.arrival, budget, params.max_deployed, starts)
    best = np.repeat(best, params.stage_length)[:rounds]
    return {
        "model": model,
        "cost": paid,
        "feasible": feasible,
        "multiplier": multiplier,
        "served": served,
        "deployed": deployed,
        "fee": fee,
        "regret": np.cumsum(best - mean_reward),
        "conditional_regret": np.cumsum(best - expected_reward),
        "realised_regret": np.cumsum(best - reward),
    }
