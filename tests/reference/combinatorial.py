"""C2MAB-V in plain float64 NumPy: the reference that the simulator is compared with.

Written from the paper (Dai, Li, Liu, Yu and Lui, "Cost-Effective Online Multi-LLM Selection with Versatile Reward Models") and from a description
in words of the choices that it leaves open, without looking at the simulator. Enumerations instead of tricks; equations, algorithms, figures and
tables are the paper's. Models are `0..K-1`, rounds `1..T`. The three rewards are named "AWC" (any win), "SUC" (sum up) and "AIC" (all in). A set is
a bool mask `[K]`, except in the distributions of roundings, where it is a frozenset.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

ALPHA = {"AWC": 1 - 1 / math.e, "SUC": 1.0, "AIC": 1.0}  # Ratio of the offline oracle; Section 5.
TOLERANCE = 1e-9  # Slack of a budget; a coordinate closer than this to 0 or 1 is integral.
FLOOR = 1e-6  # Smallest conditioned index, which keeps ln w finite.

# Table 3, and means of success of the stand-in for SciQ.
SCIQ9_PRICE = [0.005, 0.02, 0.08, 0.015, 0.005, 0.008, 0.05, 0.05, 0.12]  # USD per 1,000 tokens.
SCIQ9_MU = [0.024, 0.326, 0.366, 0.294, 0.170, 0.210, 0.282, 0.336, 0.398]


# --- Rewards and bounds ------------------------------------------------------------------------------------------


def set_reward(reward, selected, mu):
    """r(S; mu); the empty set has 0 (AWC, SUC) or 1 (AIC). Source: Section 3, "Versatile Reward Models"."""
    mu = np.asarray(mu, float)[selected]
    return {"AWC": 1 - np.prod(1 - mu), "SUC": np.sum(mu), "AIC": np.prod(mu)}[reward]


def realised_reward(reward, selected, outcome):
    """Largest, summed or multiplied outcome of the set."""
    outcome = outcome[selected]
    return {"AWC": np.max(outcome, initial=0.0), "SUC": np.sum(outcome), "AIC": np.prod(outcome)}[reward]


def relaxed_reward(reward, z, w):
    """r~(z; w) of z `[K]` in [0, 1]. Source: Eqs. 3-5."""
    return {"AWC": 1 - np.prod(1 - w * z), "SUC": w @ z, "AIC": np.prod(w**z)}[reward]


class Statistics:
    """Pulls and means of rewards and costs, `[K]` each, from a warm start (pulls, mean reward, mean cost); Eq. 6."""

    def __init__(self, num_models, prior=(0, 0, 0)):
        pulls, reward, cost = (np.array(np.broadcast_to(x, num_models), float) for x in prior)
        self.reward_pulls, self.cost_pulls, self.reward_mean, self.cost_mean = pulls, pulls.copy(), reward, cost

    def learn(self, reward_seen, cost_seen, outcome, paid):
        """Adds the observations of a round; the masks say which models were observed."""
        for seen, pulls, mean, value in (
            (reward_seen, self.reward_pulls, self.reward_mean, outcome),
            (cost_seen, self.cost_pulls, self.cost_mean, paid),
        ):
            pulls[seen] += 1
            mean[seen] += (value[seen] - mean[seen]) / pulls[seen]

    def bounds(self, t, num_models, delta, reward_width, cost_width):
        """(reward UCB, cost LCB) in round t: mean -+ width sqrt(ln(2 pi^2 K t^3 / (3 delta)) / (2 n)), in [0, 1].

        An unseen model has 1 and 0; num_models is the number of allowed ones. Source: Algorithm 1, lines 4 and 5.
        """
        level = math.log(2 * math.pi**2 * num_models / (3 * delta)) + 3 * math.log(t)
        with np.errstate(divide="ignore"):
            reward_radius, cost_radius = (np.sqrt(level / (2 * n)) for n in (self.reward_pulls, self.cost_pulls))
        return (
            np.minimum(self.reward_mean + reward_width * reward_radius, 1),
            np.maximum(self.cost_mean - cost_width * cost_radius, 0),
        )


def conditioned(index, tie_uniform, cap=0.999, noise=1e-4):
    """w = clip(min(index, cap) - noise * U, 1e-6, cap) `[K]`: what every optimiser sees instead of the index."""
    return np.clip(np.minimum(index, cap) - noise * np.asarray(tie_uniform), FLOOR, cap)


# --- Sets and relaxed sets ---------------------------------------------------------------------------------------


def mask_of(members, num_models):
    """Mask `[K]` of a set of indices."""
    return np.isin(np.arange(num_models), list(members))


def first(keys, size, usable):
    """Mask of the `size` usable models with the smallest keys (tuples), lower index first."""
    order = sorted(np.flatnonzero(usable), key=lambda k: (*(key[k] for key in keys), k))
    return mask_of(order[:size], len(usable))


@lru_cache(maxsize=64)
def subsets(num_models, size):
    """All masks `[C(K, size), K]` of one size, in lexicographic order of their members."""
    members = list(itertools.combinations(range(num_models), size))
    return np.array([mask_of(chosen, num_models) for chosen in members]).reshape(len(members), num_models)


@lru_cache(maxsize=64)
def patterns(num_models, sizes, number):
    """(masks `[P, K]` of these sizes, `number` models outside of each in increasing order `[number, P]`)."""
    inside = [a for n in sizes for a in subsets(num_models, n)]
    rows = [(a, outside) for a in inside for outside in itertools.combinations(np.flatnonzero(~a), number)]
    masks, outside = np.array([a for a, _ in rows], bool), np.array([i for _, i in rows], int)
    return masks.reshape(len(rows), num_models), outside.reshape(len(rows), number).T


def vertices(c, size, budget, exact_size):
    """All vertices `[V, K]` of {0 <= z <= 1, sum z = size (or <= size), c.z <= budget}.

    Three kinds: no fractional coordinate; one, where the budget is tight ("<=" only); two, where both rows are tight.
    """
    K = len(c)
    sets = np.concatenate([subsets(K, n) for n in ([size] if exact_size else range(size + 1))])
    found = [sets[sets @ c <= budget + TOLERANCE].astype(float)]
    with np.errstate(divide="ignore", invalid="ignore"):
        if not exact_size and size:
            base, (i,) = patterns(K, tuple(range(size)), 1)
            found.append(mixed(base, (i,), (budget - base @ c) / c[i]))
        if size:
            base, (i, j) = patterns(K, (size - 1,), 2)
            found.append(mixed(base, (i, j), (budget - base @ c - c[j]) / (c[i] - c[j])))
    return np.concatenate(found)


def mixed(base, places, share):
    """The sets `base` with the shares, and what is left to 1, at one or two places; those strictly inside (0, 1)."""
    inside = (share > 0) & (share < 1)
    z, rows = base[inside].astype(float), np.arange(inside.sum())
    for place, value in zip(places, (share, 1 - share)):
        z[rows, place[inside]] = value[inside]
    return z


def relaxed_optimum(reward, w, c, size, budget, usable=None, solver="exact"):
    """z `[K]`, the first best of all vertices. Source: Eqs. 3, 4 and 5.

    SUC and AIC (on ln w) are linear with sum z = size; AWC maximises the convex sum of -log(1 - w z) with sum z <= size. If not even the cheapest
    `size` models fit, they are taken, equal costs by larger w. Solver "greedy" (AWC): z moves by 1/10 of the best vertex for the weights
    w / (1 - w z), ten times; Section 4.1.
    """
    usable = np.ones(len(w), bool) if usable is None else usable
    size = min(size, usable.sum())
    fallback = first((c, -w), size, usable)
    z, w, exact_size = np.zeros(len(w)), w[usable], reward != "AWC"
    if exact_size and c[fallback].sum() > budget + TOLERANCE:
        return fallback.astype(float)
    points = vertices(c[usable], size, budget, exact_size)
    if solver == "greedy":
        part = np.zeros(len(w))
        for _ in range(10):
            part += points[np.argmax(points @ (w / (1 - w * part)))] / 10
        z[usable] = part
    else:
        with np.errstate(divide="ignore"):
            values = (
                -np.log1p(-points * w).sum(axis=1) if reward == "AWC" else points @ (w if reward == "SUC" else np.log(w))
            )
        z[usable] = points[np.argmax(values)]
    return np.where(z < TOLERANCE, 0.0, np.where(z > 1 - TOLERANCE, 1.0, z))


def partition_linear_program(w, c, groups, limits, budget, exact_size):
    """max w.z with sum of z over each group = (or <=) its limit and one common budget, by HiGHS; None if infeasible.

    groups: `[M, K]` bool, disjoint. limits: `[M]`. Source: Appendix C.1.
    """
    w, c, groups = np.asarray(w, float), np.asarray(c, float), np.asarray(groups, float)
    rows, ends = (c[None], [budget]) if exact_size else (np.r_[c[None], groups], [budget, *limits])
    equal = {"A_eq": groups, "b_eq": limits} if exact_size else {}
    answer = linprog(-w, A_ub=rows, b_ub=ends, bounds=(0, 1), method="highs", **equal)
    return np.clip(answer.x, 0, 1) if answer.success else None


def integer_optimum(reward, w, c, size, budget, usable):
    """Mask of the best affordable set: at most `size` models for AWC, else exactly so many; the cheapest if none is. Source: Eq. 48."""
    size = min(size, usable.sum())
    gain = {"AWC": -np.log1p(-w), "SUC": w, "AIC": np.log(w)}[reward]
    sets = np.concatenate([subsets(len(w), n) for n in (range(size + 1) if reward == "AWC" else [size])])
    sets = sets[~(sets & ~usable).any(axis=1) & (sets @ c <= budget + TOLERANCE)]
    return sets[np.argmax(sets @ gain)] if len(sets) else first((c, -w), size, usable)


# --- Rounding ----------------------------------------------------------------------------------------------------


def round_pairwise(z, uniforms):
    """Algorithm 3 on the two lowest-indexed fractional coordinates k < j, until at most one is left; mask `[K]`.

    The step that treats the pair (k, j) uses uniforms[j - 1]: below q / (p + q) it moves p from j to k, else q from k to
    j. A lone survivor is 1 if uniforms[K - 1] is below it.
    """
    z = np.array(z, float)
    while True:
        z[z < TOLERANCE], z[z > 1 - TOLERANCE] = 0.0, 1.0
        loose = np.flatnonzero((z > 0) & (z < 1))
        if len(loose) < 2:
            break
        k, j = loose[:2]
        p, q = min(1 - z[k], z[j]), min(z[k], 1 - z[j])
        if uniforms[j - 1] < q / (p + q):
            z[k], z[j] = z[k] + p, z[j] - p
        else:
            z[k], z[j] = z[k] - q, z[j] + q
    if len(loose) == 1:
        z[loose[0]] = float(uniforms[len(z) - 1] < z[loose[0]])
    return z == 1.0


def pairwise_distribution(z):
    """The exact distribution of `round_pairwise`: {frozenset: probability}, by following both sides of every coin."""
    z = np.array(z, float)
    z[z < TOLERANCE], z[z > 1 - TOLERANCE] = 0.0, 1.0
    loose = np.flatnonzero((z > 0) & (z < 1))
    if len(loose) == 0:
        return {frozenset(np.flatnonzero(z).tolist()): 1.0}
    move = np.zeros((2, len(z)))
    if len(loose) == 1:
        move[:, loose[0]] = 1 - z[loose[0]], -z[loose[0]]
        chance = z[loose[0]]
    else:
        k, j = loose[:2]
        p, q = min(1 - z[k], z[j]), min(z[k], 1 - z[j])
        move[:, [k, j]] = (p, -p), (-q, q)
        chance = q / (p + q)
    distribution = {}
    for step, probability in zip(move, (chance, 1 - chance)):
        for members, mass in pairwise_distribution(z + step).items():
            distribution[members] = distribution.get(members, 0.0) + float(probability * mass)
    return distribution


def decompose(z):
    """z = sum_m v_m 1_{B_m} with K + 1 sets by a systematic sweep: weights v `[K + 1]`, masks `[K + 1, K]`.

    The K + 2 breakpoints are 0, 1 and the fractional parts of the running sums, sorted; B_m is read at the midpoint of an interval. Empty intervals
    stay, with weight 0. Running sums within 1e-9 of an integer count as that integer. Source: Algorithm 2, line 2.
    """
    sums = np.r_[0.0, np.cumsum(np.asarray(z, float))]
    sums = np.where(np.abs(sums - np.round(sums)) < TOLERANCE, np.round(sums), sums)
    points = np.sort(np.r_[0.0, 1.0, sums[1:] % 1.0])
    middles = (points[:-1] + points[1:]) / 2
    return np.diff(points), np.array([np.ceil(sums[1:] - u) - np.ceil(sums[:-1] - u) == 1 for u in middles])


def round_swap(z, uniforms, leave):
    """Algorithm 2: merges the sets of a decomposition one after the other, by swaps that keep the marginals; mask `[K]`.

    Merge m (from 1) uses uniforms[m - 1, s] for its s-th swap (s from 0) and leave[m - 1] (or leave[m - 1, g]) for the g-th element of G; a coin
    below p2 / (p1 + p2) replaces in B_1 (or removes from it). i, j and G are the lowest indices that qualify.
    """
    weights, masks = decompose(z)
    leave = np.reshape(leave, (len(leave), -1))
    current, p1 = set(np.flatnonzero(masks[0])), weights[0]
    for m in range(1, len(weights)):
        p2, other = weights[m], set(np.flatnonzero(masks[m]))
        if min(p1, p2) <= 1e-12:  # A set of no weight changes nothing, whatever its size.
            current, p1 = (other, p2) if p1 <= 1e-12 else (current, p1)
            continue
        b1, b2, probability, extra = pair_of(current, other, p1, p2)
        swaps = 0
        while b1 != b2:
            i, j = min(b1 - b2), min(b2 - b1)
            if uniforms[m - 1][swaps] < probability:
                b1 = b1 - {i} | {j}
            else:
                b2 = b2 - {j} | {i}
            swaps += 1
        current, p1 = b1 - {i for g, i in enumerate(extra) if leave[m - 1, g] < probability}, p1 + p2
    return mask_of(current, len(z))


def pair_of(current, other, p1, p2):
    """(B_1, B_2 with G, probability of a change in B_1, G) of a merge; B_1 is the larger set."""
    b1, q1, b2, q2 = (current, p1, other, p2) if len(current) >= len(other) else (other, p2, current, p1)
    extra = sorted(b1 - b2)[: len(b1) - len(b2)]
    return b1, b2 | set(extra), q2 / (q1 + q2) if q1 + q2 > 0 else 0.0, extra


def swap_distribution(z):
    """The exact distribution of `round_swap`: {frozenset: probability}, by following every coin."""
    weights, masks = decompose(z)
    distribution, p1 = {frozenset(np.flatnonzero(masks[0]).tolist()): 1.0}, weights[0]
    for p2, mask in zip(weights[1:], masks[1:]):
        merged = {}
        for current, mass in distribution.items():
            b1, b2, probability, extra = pair_of(current, frozenset(np.flatnonzero(mask).tolist()), p1, p2)
            for result, share in _swap_outcomes(b1, b2, probability).items():
                for gone in itertools.product([False, True], repeat=len(extra)):
                    coins = math.prod(probability if out else 1 - probability for out in gone)
                    left = result - set(itertools.compress(extra, gone))
                    merged[left] = merged.get(left, 0.0) + float(mass * share * coins)
        distribution, p1 = {members: mass for members, mass in merged.items() if mass > 0}, p1 + p2
    return distribution


def _swap_outcomes(b1, b2, probability):
    """Distribution of the common set in which the while loop of Algorithm 2 ends."""
    if b1 == b2:
        return {b1: 1.0}
    i, j = min(b1 - b2), min(b2 - b1)
    distribution = {}
    for pair, weight in (((b1 - {i} | {j}, b2), probability), ((b1, b2 - {j} | {i}), 1 - probability)):
        for members, mass in _swap_outcomes(*pair, probability).items():
            distribution[members] = distribution.get(members, 0.0) + weight * mass
    return distribution


# --- Simulation --------------------------------------------------------------------------------------------------


@dataclass
class Params:
    """One environment: true means `[K]` of outcome and cost, N, rho per round, price (order of the cascade).

    levels: `[K, 3]` probabilities of the graded outcomes .5, .3 and .1 (Appendix E.1); None means successes with probability mu. Costs are uniform on
    [.5, 1.5] times their mean, or fixed. available_probability: of each model in each round; None means always.
    """

    reward: str
    mu: np.ndarray
    cost: np.ndarray
    size: int
    budget: float
    price: np.ndarray
    levels: np.ndarray | None = None
    fixed_costs: bool = False
    available_probability: float | None = None


def queried(reward, selected, success, priority):
    """The models that are really called, F_t: all of S for SUC and AIC; for AWC those up to the first success.

    priority: `[K]`, ascending order of the cascade, ties by index. Source: Section 3, "Partial LLM Feedback".
    """
    called = np.array(selected)
    if reward == "AWC":
        order = sorted(np.flatnonzero(selected), key=lambda k: (priority[k], k))
        won = [i for i, k in enumerate(order) if success[k]]
        called[order[won[0] + 1 :] if won else []] = False
    return called


def simulate(
    params,
    draws,
    policy="C2MAB-V",
    *,
    delta,
    rounding="pairwise",
    reward_width=0.3,
    cost_width=0.01,
    solver="exact",
    order="price",
    cost_feedback="observed",
    batch=1,
    hold="action",
    allowed=None,
    prior=(0, 0, 0),
    start="none",
    cucb_radius="wang-chen",
    graded_update="fraction",
):
    """One run of one policy on given draws; a dictionary of `[T]` and `[T, K]` arrays.

    Order within a round: availability, bounds, index conditioning, decision (or the held one), cascade, feedback, statistics. An unavailable model is
    never called, not even from a held set. Source: Algorithms 1-3, Section 6, Appendix E.3.

    Args:
      draws: uniforms, a row a round: outcome, cost, available, tie (index noise), pair (pairwise rounding), subset (random sets), graded_coin `[T, K]`;
        swap `[T, K, N]`, leave `[T, K]` (swap rounding); explore `[T]` (epsilon-greedy); theta `[T, K]` normals (Thompson); arrives `[T]` bool or None.
      policy: "C2MAB-V", "Direct", "CUCB", "Thompson", "EpsGreedy" or "Random".
      order: of the cascade: "price", "index", "ucb" (descending) or "lcb_cost".
      cost_feedback: "observed" (F_t) or "action" (S_t).
      batch: new decision at t = 1, 1 + B, ... (with draws["arrives"]: after B rounds whose feedback arrived); hold: "action" keeps S_t in between,
        "relaxed" keeps z and rounds it again.
      start: "round_robin" plays ceil(K/N) rounds of N models in index order first.
      cucb_radius: "wang-chen", or "c2mabv" for the radius of C2MAB-V.
      graded_update: "fraction" (wins += X) or "coin" (wins += 1 with probability X).
    """
    reward, size, budget, K, T = params.reward, params.size, params.budget, len(params.mu), len(draws["tie"])
    allowed = np.ones(K, bool) if allowed is None else allowed
    s, wins, losses = Statistics(K, prior), np.zeros(K), np.zeros(K)
    safe = np.maximum(params.mu, FLOOR)
    benchmarks, rows, held, arrived = {}, [], None, 0

    def rounded(z):
        if rounding == "pairwise":
            return round_pairwise(z, draws["pair"][row])
        return round_swap(z, draws["swap"][row], draws["leave"][row])

    for row in range(T):
        t, tie = row + 1, draws["tie"][row]
        available = np.ones(K, bool)
        if params.available_probability is not None:
            available = draws["available"][row] < params.available_probability
        usable = available & allowed

        # Indices (Algorithm 1, lines 4 and 5), decision (lines 6 and 7).
        ucb, lcb = s.bounds(t, allowed.sum(), delta, reward_width, cost_width)
        if policy in ("C2MAB-V", "Direct"):
            if start == "round_robin" and t <= math.ceil(K / size):
                selected = mask_of([(row * size + i) % K for i in range(size)], K) & usable
            elif held is None or arrived >= batch:
                w, arrived = conditioned(ucb, tie), 0
                if policy == "Direct":
                    selected = integer_optimum(reward, w, lcb, size, budget, usable)
                else:
                    z = relaxed_optimum(reward, w, lcb, size, budget, usable, solver)
                    selected = rounded(z)
                held = selected
            else:
                selected = (rounded(z) if hold == "relaxed" else held) & usable
        elif policy == "CUCB":  # Wang and Chen (2017)
            width = np.sqrt(3 * math.log(t) / (2 * np.maximum(s.reward_pulls, 1)))
            index = np.where(s.reward_pulls > 0, np.minimum(s.reward_mean + width, 1), 1.0)
            selected = first((1e-4 * tie - (ucb if cucb_radius == "c2mabv" else index),), size, usable)
        elif policy == "Thompson":  # A normal with the moments of Beta(1 + wins, 1 + losses)
            a, b = 1 + wins, 1 + losses
            theta = a / (a + b) + np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))) * draws["theta"][row]
            selected = first((-theta,), size, usable)
        elif policy == "Random" or draws["explore"][row] < 2 * math.sqrt(allowed.sum() / t):  # Section 6
            selected = first((draws["subset"][row],), size, usable)
        else:
            selected = rounded(relaxed_optimum(reward, conditioned(s.reward_mean, tie), s.cost_mean, size, budget, usable))

        # Cascade and feedback (line 8).
        u = draws["outcome"][row]
        outcome = (u < params.mu).astype(float)
        if params.levels is not None:
            outcome = np.array([0.5, 0.3, 0.1, 0.0])[(u[:, None] >= np.cumsum(params.levels, axis=1)).sum(axis=1)]
        paid = params.cost * (1.0 if params.fixed_costs else 0.5 + draws["cost"][row])
        priority = {"price": params.price, "index": np.zeros(K), "ucb": -ucb, "lcb_cost": lcb}[order]
        observed = queried(reward, selected, outcome >= (1.0 if params.levels is None else 0.5), priority)

        # Benchmarks S* and Z* at the true means.
        if (key := available.tobytes()) not in benchmarks:
            best = set_reward(reward, integer_optimum(reward, safe, params.cost, size, budget, available), params.mu)
            relaxed = relaxed_reward(reward, relaxed_optimum(reward, safe, params.cost, size, budget, available), params.mu)
            benchmarks[key] = best, relaxed
        rows.append((
            observed, selected.sum(), observed.sum(), set_reward(reward, selected, params.mu),
            realised_reward(reward, selected, outcome), paid[observed].sum(), paid[selected].sum(), *benchmarks[key],
        ))  # fmt: skip

        # Update (line 9, Eq. 6).
        if draws["arrives"] is None or draws["arrives"][row]:
            arrived += 1
            s.learn(observed, observed if cost_feedback == "observed" else selected, outcome, paid)
            win = outcome if graded_update == "fraction" else draws["graded_coin"][row] < outcome
            wins += np.where(observed, win, 0)
            losses += np.where(observed, 1 - np.asarray(win, float), 0)
    return measured(rows, reward, budget)


def measured(rows, reward, budget):
    """Computes each round's regrets, violations (of the round, and of the mean so far, Eq. 1) and ratios of Section 6."""
    names = ("observed", "num_selected", "num_observed", "reward", "realised", "spent", "spent_selected", "best", "relaxed")
    run = {name: np.array(column) for name, column in zip(names, zip(*rows))}
    rounds, value = np.arange(1, len(rows) + 1), run["reward"]
    run |= {
        "regret": run["best"] - value,
        "alpha_regret": ALPHA[reward] * run["best"] - value,
        "relaxed_regret": run["relaxed"] - value,
        "violation": np.maximum(run["spent"] - budget, 0),
        "violation_selected": np.maximum(run["spent_selected"] - budget, 0),
        "violation_mean": np.maximum(np.cumsum(run["spent"]) / rounds - budget, 0),
        "over_budget": run["spent"] > budget,
    }
    with np.errstate(divide="ignore"):
        run["ratio_inst"] = np.cumsum(value) / np.cumsum(run["violation"])
        run["ratio_eq1"] = np.cumsum(value) / np.cumsum(run["violation_mean"])
    return run
