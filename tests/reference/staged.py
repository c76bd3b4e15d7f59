"""StageRoute in plain float64 Python: the reference that the simulator is compared with.

Written from the specification `stageroute.md` and the paper (Li and Li, "Keeping Up with the Models: Online
Deployment and Routing of LLMs at Scale", arXiv 2506.17254v1), without looking at the simulator. Loops instead of
arrays, no tricks; section and equation numbers are those of the two texts. Models are `0..N-1`, rounds `1..T`.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

TOLERANCE = 1e-9  # Slack of the budget (relative) and of the total capacity; threshold of a support.
TIE = 1e-12  # Values of two deployment sets, or two breakpoints, closer than this are one.

# Table 1 (spec 6.1), in release order.
TABLE1_NAMES = [
    "GPT-4o",
    "Gemini-1.5-pro-002",
    "Yi-Lightning",
    "o1-mini",
    "Llama 3.3 70B Instruct",
    "DeepSeek-R1",
    "Gemini 2.0 Flash",
    "Claude 3.7 Sonnet",
    "Hunyuan-turbos",
    "Deepseek-v3",
    "Llama-4-Maveric",
    "GPT-4.1",
    "Grok-3-preview",
    "o3 by OpenAI",
    "Gemini-2.5-Pro (Preview-05-06)",
]
TABLE1_SCORES = [1336, 1302, 1287, 1304, 1257, 1358, 1380, 1300, 1296, 1373, 1417, 1366, 1403, 1413, 1446]
TABLE1_COSTS = [10.0, 5.0, 0.14, 0.60, 0.40, 0.55, 1.50, 15.0, 0.28, 0.28, 0.82, 8.0, 15.0, 40.0, 10.0]


@dataclass
class Params:
    """One setting: the environment, the stage structure and the constants of the confidence bounds.

    mu, cost: `[N]` true mean reward and mean cost per query.
    capacity: `[N]` largest routing probability alpha_m.
    arrival: `[N]` 1-based round t_m at which a model becomes available.
    reward_noise: standard deviation of a reward. cost_noise: the same for a cost, relative to its mean.
    deploy_fee: `[N]` charged when a model enters D_k and was not in D_{k-1}; None means no fees.
    """

    mu: list
    cost: list
    capacity: list
    arrival: list
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
    deploy_fee: list | None = None


def table1_params(max_deployed, stage_length, horizon=10_000, normalisation="minmax", **changes):
    """The synthetic setting: Table 1, six models at t=1, one more every 1,000 rounds.

    Source: paper Section 6.1; spec 6.2. `changes` replaces fields of `Params`.
    """
    low, high = min(TABLE1_SCORES), max(TABLE1_SCORES)
    if normalisation == "minmax":
        mu = [(score - low) / (high - low) for score in TABLE1_SCORES]
    elif normalisation == "max":
        mu = [score / high for score in TABLE1_SCORES]
    else:
        raise ValueError(normalisation)
    capacity = [1.0 if name == "Yi-Lightning" else 0.4 for name in TABLE1_NAMES]
    arrival = [1] * 6 + [1000 * j + 1 for j in range(1, 10)]
    fields = {"mu": mu, "cost": list(TABLE1_COSTS), "capacity": capacity, "arrival": arrival, "budget": 2.0}
    fields |= {"max_deployed": max_deployed, "stage_length": stage_length, "total_rounds": horizon}
    return Params(**(fields | changes))


# --- Confidence bounds -------------------------------------------------------------------------------------------


def confidence_radius(value, count, gamma):
    """f_rad(v, n) = sqrt(gamma v / n) + gamma / n, with v clamped at 0. Source: Eqs. 4-5; spec 3.1."""
    return math.sqrt(gamma * max(value, 0.0) / count) + gamma / count


def bounds_of_one(pulls, reward_sum, cost_sum, gamma, cost_floor, cost_ceiling, radius_multiplier=2.0, estimator="mean"):
    """(reward UCB, cost LCB) of one model from its sums. Source: Eqs. 4-5; estimators of spec 3.1."""
    if estimator == "mean":
        if pulls == 0:
            return 1.0, float(cost_floor)
        reward, cost = reward_sum / pulls, cost_sum / pulls
    elif estimator == "lemma3":
        reward, cost = reward_sum / (pulls + 1), cost_sum / (pulls + 1)
    elif estimator == "pseudo":
        reward, cost = (1.0 + reward_sum) / (pulls + 1), (cost_floor + cost_sum) / (pulls + 1)
    else:
        raise ValueError(estimator)
    ucb = reward + radius_multiplier * confidence_radius(reward, pulls + 1, gamma)
    lcb = cost - radius_multiplier * confidence_radius(cost, pulls + 1, gamma)
    return min(max(ucb, 0.0), 1.0), min(max(lcb, cost_floor), cost_ceiling)


def bounds(pulls, reward_sum, cost_sum, gamma, cost_floor, cost_ceiling, radius_multiplier=2.0, estimator="mean"):
    """`bounds_of_one` for every model: two `[N]` arrays (ucb, lcb)."""
    constants = (gamma, cost_floor, cost_ceiling, radius_multiplier, estimator)
    pairs = [bounds_of_one(n, r, c, *constants) for n, r, c in zip(pulls, reward_sum, cost_sum, strict=True)]
    return np.array([u for u, _ in pairs]), np.array([c for _, c in pairs])


# --- RouteOPT ----------------------------------------------------------------------------------------------------


def fill(score, tie_cost, capacity):
    """The distribution within `capacity` of largest score: best models first, each up to its capacity.

    Equal scores: lower `tie_cost` first, then lower index. Sums to 1 if the capacities allow it.

    Source: spec 4.1, "Fill".
    """
    p, left = [0.0] * len(score), 1.0
    for m in sorted(range(len(score)), key=lambda m: (-score[m], tie_cost[m], m)):
        p[m] = min(capacity[m], left)
        left -= p[m]
    return p


def route_lp(u, c, capacity, budget):
    """RouteOPT: max u.p with c.p <= budget, sum p = 1, 0 <= p <= capacity, by sorted breakpoints.

    Infeasible budget: the cheapest distribution, equal costs by larger u. Capacities that sum to less than 1:
    p = capacity / sum(capacity). Both return the largest breakpoint as the multiplier (0 if there is none).

    Source: Eq. 7; spec 3.2, Proposition 1 of 4.1, pitfall 15.

    Returns:
      p `[n]`, the multiplier lambda* of the budget row, and whether the LP is feasible.
    """
    u, c, capacity = [float(x) for x in u], [float(x) for x in c], [float(x) for x in capacity]
    n, limit = len(u), budget + TOLERANCE * abs(budget)

    def cost_of(p):
        return sum(c[m] * p[m] for m in range(n))

    slopes = []
    for i, j in itertools.combinations(range(n), 2):
        du, dc = u[i] - u[j], c[i] - c[j]
        if (du > 0 and dc > 0) or (du < 0 and dc < 0):
            slopes.append(du / dc)
    breakpoints = []  # l_1 < l_2 < ...; equal up to rounding counts once.
    for slope in sorted(slopes):
        if not breakpoints or slope > breakpoints[-1] * (1 + TIE):
            breakpoints.append(slope)
    top = breakpoints[-1] if breakpoints else 0.0

    total = sum(capacity)
    if total < 1.0 - TOLERANCE:
        return np.array([a / total if total > 0 else 0.0 for a in capacity]), top, False
    before = fill(u, c, capacity)  # p^(0): lambda -> 0+
    if cost_of(before) <= limit:
        return np.array(before), 0.0, True  # (i)
    cheapest = fill([-x for x in c], [-x for x in u], capacity)  # p^(P): lambda above every breakpoint
    if cost_of(cheapest) > limit:
        return np.array(cheapest), top, False  # (iii)
    for k, lam in enumerate(breakpoints):  # (ii): `after` is the fill between this breakpoint and the next.
        if k + 1 < len(breakpoints):
            middle = (lam + breakpoints[k + 1]) / 2
            after = fill([u[m] - middle * c[m] for m in range(n)], c, capacity)
        else:
            after = cheapest
        if cost_of(after) <= limit:
            theta = (budget - cost_of(after)) / (cost_of(before) - cost_of(after))
            theta = min(max(theta, 0.0), 1.0)
            return (
                np.array([theta * x + (1 - theta) * y for x, y in zip(before, after, strict=True)]),
                lam,
                True,
            )
        before = after
    raise AssertionError("unreachable: the last interval is the cheapest fill")


def route_lp_highs(u, c, capacity, budget):
    """RouteOPT by HiGHS: (value, feasible, multiplier), with NaN numbers where it is infeasible."""
    n = len(u)
    answer = linprog(
        -np.asarray(u, float),
        A_ub=np.asarray(c, float).reshape(1, n),
        b_ub=[budget],
        A_eq=np.ones((1, n)),
        b_eq=[1.0],
        bounds=[(0.0, a) for a in capacity],
        method="highs",
    )
    if not answer.success:
        return math.nan, False, math.nan
    return -answer.fun, True, -float(answer.ineqlin.marginals[0])


# --- DeployOPT ---------------------------------------------------------------------------------------------------


def sparse_lp(u, c, capacity, available, budget, max_deployed):
    """The LP of RouteOPT over the available models with at most `max_deployed` of them in use.

    The relaxed LP first; where it uses too many models, every set of `max_deployed` models in lexicographic order,
    of which the first best is kept.

    Source: Eqs. 1 and 3; spec 4.2, Proposition 3 (i) and "Procedure".

    Returns:
      p `[N]`, multiplier, feasible.
    """
    pool = [m for m in range(len(u)) if available[m]]

    def solve(subset):
        part, lam, ok = route_lp([u[m] for m in subset], [c[m] for m in subset], [capacity[m] for m in subset], budget)
        p = np.zeros(len(u))
        p[list(subset)] = part
        return p, lam, ok

    p, lam, feasible = solve(pool)
    if not feasible or np.sum(p > TOLERANCE) <= max_deployed:
        return p, lam, feasible
    best, best_value = None, -math.inf
    for subset in itertools.combinations(pool, max_deployed):
        p, lam, ok = solve(subset)
        value = sum(u[m] * p[m] for m in subset)
        if ok and value > best_value + TIE:
            best, best_value = (p, lam, True), value
    return best if best is not None else (np.zeros(len(u)), 0.0, False)


def deploy(u, l, capacity, available, budget, max_deployed, filler="reduced"):
    """DeployOPT: the models that go live for a stage.

    The support of the best sparse solution, then fillers up to `max_deployed`: by u - lambda* l ("reduced"), by index
    ("index"), or not at all ("none"). Infeasible: the cheapest models by l.

    Source: Eqs. 3 and 6; spec 3.2 and 4.2.

    Returns:
      deployed `[N]` bool, feasible.
    """
    pool = [m for m in range(len(u)) if available[m]]
    p, lam, feasible = sparse_lp(u, l, capacity, available, budget, max_deployed)
    support = [m for m in pool if p[m] > TOLERANCE]
    if not feasible:
        chosen = sorted(pool, key=lambda m: (l[m], m))[:max_deployed]
    elif filler == "none":
        chosen = support
    elif filler in ("reduced", "index"):
        others = [m for m in pool if m not in support]
        if filler == "reduced":
            others.sort(key=lambda m: (-(u[m] - lam * l[m]), l[m], m))
        chosen = (support + others)[:max_deployed]
    else:
        raise ValueError(filler)
    deployed = np.zeros(len(u), bool)
    deployed[chosen] = True
    return deployed, feasible


def deploy_milp(u, l, capacity, available, budget, max_deployed, eps=0.0):
    """DeployOPT by HiGHS' branch and bound, with d_m >= eps on exactly min(max_deployed, pool) chosen models.

    With eps=0 its value is that of "at most max_deployed models".

    Source: Eq. 3; spec 4.2, Proposition 3.

    Returns:
      value, chosen `[N]` bool, feasible; (NaN, all False, False) where it is infeasible.
    """
    u, l, capacity = np.asarray(u, float), np.asarray(l, float), np.asarray(capacity, float)
    available = np.asarray(available, bool)
    n, identity, zero = len(u), np.eye(len(u)), np.zeros(len(u))
    size = min(max_deployed, int(available.sum()))
    rows = [  # Variables: d (n of them), then the 0/1 choice z (n).
        LinearConstraint(np.r_[np.ones(n), zero], 1.0, 1.0),
        LinearConstraint(np.r_[l, zero], -np.inf, budget),
        LinearConstraint(np.r_[zero, np.ones(n)], size, size),
        LinearConstraint(np.c_[identity, -np.diag(capacity)], -np.inf, 0.0),
        LinearConstraint(np.c_[identity, -eps * identity], 0.0, np.inf),
    ]
    answer = milp(
        np.r_[-u, zero],
        integrality=np.r_[zero, np.ones(n)],
        bounds=Bounds(np.zeros(2 * n), np.r_[capacity, available.astype(float)]),
        constraints=rows,
        options={"mip_rel_gap": 0.0},
    )
    if not answer.success:
        return math.nan, np.zeros(n, bool), False
    return -answer.fun, answer.x[n:] > 0.5, True


# --- Benchmark ---------------------------------------------------------------------------------------------------


def stage_starts(total_rounds, stage_length):
    """1-based first rounds tau_k; the last stage may be shorter. Source: spec 1 and A13."""
    return list(range(1, total_rounds + 1, stage_length))


def stage_values(mu, cost, capacity, arrival, budget, max_deployed, stage_starts):
    """V(b, M_tau_k) for every stage, 0 where the pool is empty or infeasible. Source: Eq. 1; spec 2.3."""
    known, values = {}, []
    for start in stage_starts:
        pool = tuple(t <= start for t in arrival)
        if pool not in known:
            p, _, feasible = sparse_lp(mu, cost, capacity, pool, budget, max_deployed)
            known[pool] = sum(mu[m] * p[m] for m in range(len(mu))) if feasible else 0.0
        values.append(known[pool])
    return np.array(values)


# --- Simulation --------------------------------------------------------------------------------------------------


def choose(p, uniform):
    """Index of the model drawn from p by inverse CDF, never one of probability zero. Source: spec 4.4."""
    total, running, index = sum(p), 0.0, 0
    for mass in p:
        running += mass
        index += running <= uniform * total
    return min(index, max(i for i in range(len(p)) if p[i] > 0))


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
    one shared shock per round (spec 11). A round without service ("stop" after the budget is gone, or an empty pool)
    has model -1 and zeros; a stage that begins after the stop deploys nothing.

    Source: Algorithm 1; spec 3.2 (scope), 3.5 (budget_mode), 5 (policies), 2.4 (regret).

    Returns:
      Dictionary. Per round `[T]`: model, reward, cost, mean_reward mu_m, expected_reward p.mu, feasible (RouteOPT;
      True where not served), multiplier, served, p `[T, N]`, and the cumulative regret (pseudo), conditional_regret,
      realised_regret. Per stage `[K]`: deployed `[K, N]`, deploy_feasible, fee, value V(b, M_tau_k).
    """
    if policy not in ("StageRoute", "Greedy", "Oracle") or scope not in ("run", "routing", "stage"):
        raise ValueError((policy, scope))
    if greedy_route not in ("lp", "ratio", "argmax") or budget_mode not in ("lp", "stop", "pace"):
        raise ValueError((greedy_route, budget_mode))
    mu, cost, capacity = ([float(x) for x in v] for v in (params.mu, params.cost, params.capacity))
    n, rounds, budget = len(mu), params.total_rounds, params.budget
    starts = stage_starts(rounds, params.stage_length)
    fees = [0.0] * n if params.deploy_fee is None else list(params.deploy_fee)
    constants = (params.gamma, params.cost_floor, params.cost_ceiling, params.radius_multiplier, estimator)

    model, served, feasible = np.full(rounds, -1), np.zeros(rounds, bool), np.ones(rounds, bool)
    reward, paid, mean_reward, expected_reward, multiplier = (np.zeros(rounds) for _ in range(5))
    p = np.zeros((rounds, n))
    deployed, deploy_feasible = np.zeros((len(starts), n), bool), np.ones(len(starts), bool)
    fee, spent = np.zeros(len(starts)), 0.0

    # [pulls, reward sum, cost sum] of every model: what DeployOPT sees and, in scope "routing", what RouteOPT sees.
    book = [[0, 0.0, 0.0] for _ in range(n)]
    for k, start in enumerate(starts):
        if budget_mode == "stop" and spent >= budget * rounds:
            break

        # Stage start: bounds from all recorded plays, then D_k (lines 4-6).
        if policy == "Oracle":
            ucb, lcb = list(mu), list(cost)
        else:
            ucb, lcb = map(list, zip(*[bounds_of_one(*book[m], *constants) for m in range(n)], strict=True))
        available = [t <= start for t in params.arrival]
        if policy == "Greedy":
            ranking = sorted((m for m in range(n) if available[m]), key=lambda m: (-ucb[m] / lcb[m], lcb[m], m))
            deployed[k, ranking[: params.max_deployed]] = True
        else:
            deployed[k], deploy_feasible[k] = deploy(ucb, lcb, capacity, available, budget, params.max_deployed, filler)
        live = [m for m in range(n) if deployed[k, m]]
        fee[k] = sum(fees[m] for m in live if k == 0 or not deployed[k - 1, m])
        spent += fee[k]

        # What RouteOPT sees at first: everything, or nothing.
        if scope == "stage":
            book = [[0, 0.0, 0.0] for _ in range(n)]
        routing_book = [[0, 0.0, 0.0] for _ in range(n)] if scope == "routing" else book
        if policy != "Oracle":
            for m in live:
                ucb[m], lcb[m] = bounds_of_one(*routing_book[m], *constants)

        for t in range(start, min(start + params.stage_length, rounds + 1)):
            if not live or (budget_mode == "stop" and spent >= budget * rounds):
                continue
            # Route (line 9).
            u, l, alpha = [ucb[m] for m in live], [lcb[m] for m in live], [capacity[m] for m in live]
            if policy == "Greedy" and greedy_route != "lp":
                ratio = [u[i] / l[i] for i in range(len(live))]
                if greedy_route == "argmax":
                    alpha = [1.0] * len(live)
                ok, lam, part = sum(alpha) >= 1 - TOLERANCE, 0.0, fill(ratio, l, alpha)
                part = part if ok else [a / sum(alpha) for a in alpha]
            else:
                this_budget = budget
                if budget_mode == "pace":
                    this_budget = min(max((budget * rounds - spent) / (rounds - t + 1), 0.0), 5 * budget)
                part, lam, ok = route_lp(u, l, alpha, this_budget)
            m = live[choose(part, choice_uniform[t - 1])]

            # Observe (line 10).
            r = mu[m] + params.reward_noise * reward_shock[t - 1]
            x = cost[m] * (1 + params.cost_noise * cost_shock[t - 1])
            spent += x
            model[t - 1], reward[t - 1], paid[t - 1], served[t - 1] = m, r, x, True
            p[t - 1, live], feasible[t - 1], multiplier[t - 1] = part, ok, lam
            mean_reward[t - 1] = mu[m]
            expected_reward[t - 1] = sum(q * mu[i] for q, i in zip(part, live, strict=True))

            # Learn (lines 11-12).
            for record in (book, routing_book) if scope == "routing" else (book,):
                record[m] = [record[m][0] + 1, record[m][1] + r, record[m][2] + x]
            if policy != "Oracle":
                ucb[m], lcb[m] = bounds_of_one(*routing_book[m], *constants)

    value = stage_values(mu, cost, capacity, params.arrival, budget, params.max_deployed, starts)
    best = np.array([value[(t - 1) // params.stage_length] for t in range(1, rounds + 1)])
    return {
        "model": model,
        "reward": reward,
        "cost": paid,
        "mean_reward": mean_reward,
        "expected_reward": expected_reward,
        "feasible": feasible,
        "multiplier": multiplier,
        "served": served,
        "p": p,
        "deployed": deployed,
        "deploy_feasible": deploy_feasible,
        "fee": fee,
        "value": value,
        "regret": np.cumsum(best - mean_reward),
        "conditional_regret": np.cumsum(best - expected_reward),
        "realised_regret": np.cumsum(best - reward),
    }
