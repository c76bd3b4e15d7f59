"""C2MAB-V in plain float64 NumPy: the reference that the simulator is compared with.

Written from the specification `c2mabv.md` and the paper (Dai, Li, Liu, Yu and Lui, "Cost-Effective Online Multi-LLM
Selection with Versatile Reward Models"), without looking at the simulator. Loops and enumerations instead of tricks;
section signs mean the specification, equations, algorithms, figures and tables the paper. Models are `0..K-1`, rounds
`1..T`. The three rewards are named "AWC" (any win), "SUC" (sum up) and "AIC" (all in). A set is a bool mask `[K]`,
except in the rounding distributions, where it is a frozenset.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import beta as beta_distribution

REWARDS = ("AWC", "SUC", "AIC")
ALPHA = {"AWC": 1 - 1 / math.e, "SUC": 1.0, "AIC": 1.0}  # Ratio of the offline oracle; Section 5, spec 2.5.
TOLERANCE = 1e-9  # Slack of a budget; a coordinate closer than this to 0 or 1 is integral.
FLOOR = 1e-6  # Smallest conditioned index, which keeps ln w finite; spec 3.1.

# Table 3 and the stand-in `sciq9` (spec 6.1, 6.2), in the order of the table.
SCIQ9_NAMES = [
    "ChatGLM2-6B-32K",
    "ChatGPT-3.5",
    "Claude 2",
    "ERNIE 3.5-8K",
    "Llama 2-7B",
    "Llama 2-13B",
    "Llama 2-70B",
    "Mixtral-8x7B-Instruct",
    "ChatGPT-4",
]
SCIQ9_PRICE = [0.005, 0.02, 0.08, 0.015, 0.005, 0.008, 0.05, 0.05, 0.12]  # USD per 1,000 tokens.
SCIQ9_MU = [0.024, 0.326, 0.366, 0.294, 0.170, 0.210, 0.282, 0.336, 0.398]
SCIQ9_LEVELS = [  # p_ok, p_fmt, p_empty of the graded outcomes.
    [0.02, 0.03, 0.05],
    [0.60, 0.08, 0.02],
    [0.68, 0.08, 0.02],
    [0.52, 0.10, 0.04],
    [0.26, 0.12, 0.04],
    [0.34, 0.12, 0.04],
    [0.50, 0.10, 0.02],
    [0.62, 0.08, 0.02],
    [0.732, 0.10, 0.02],
]
SCIQ9_MU_OFFLINE = [0.02, 0.15, 0.40, 0.12, 0.08, 0.10, 0.30, 0.62, 0.70]  # The shift of Fig. 13; spec 6.2.
SCIQ9_BUDGET = {"AWC": 0.45, "SUC": 0.5, "AIC": 0.3}  # Section 6.
SETTINGS = {"a": (0.3, 0.05), "b": (1.0, 0.05), "c": (0.3, 0.01), "d": (1.0, 0.01)}  # (a_mu, a_c); Section 6.

QUERY_TOKENS, QUERY_LAW = (60.0, 90.0, 120.0, 160.0, 220.0), (0.2, 0.2, 0.2, 0.2, 0.2)  # Spec 2.3, "tokens".
OUTPUT_MEAN, OUTPUT_CV, OUTPUT_RANGE = 180.0, 0.5, (10.0, 600.0)


# --- Rewards -----------------------------------------------------------------------------------------------------


def set_reward(reward, selected, mu):
    """r(S; mu) of the set `selected` `[K]` bool; the empty set has 0 (AWC, SUC) or 1 (AIC).

    Source: Section 3, "Versatile Reward Models"; spec 2.1.
    """
    mu = np.asarray(mu, float)[np.asarray(selected, bool)]
    if reward == "AWC":
        return 1.0 - float(np.prod(1.0 - mu))
    if reward == "SUC":
        return float(np.sum(mu))
    if reward == "AIC":
        return float(np.prod(mu))
    raise ValueError(reward)


def realised_reward(reward, selected, outcome):
    """Largest, summed or multiplied outcome of the set; the empty set as in `set_reward`. Source: spec 2.2."""
    outcome = np.asarray(outcome, float)[np.asarray(selected, bool)]
    if reward == "AWC":
        return float(np.max(outcome, initial=0.0))
    return float(np.sum(outcome)) if reward == "SUC" else float(np.prod(outcome))


def relaxed_reward(reward, z, w):
    """r~(z; w): 1 - prod(1 - w z), sum w z, or prod w^z, of z `[K]` in [0, 1]. Source: Eqs. 3-5; spec 3.1."""
    z, w = np.asarray(z, float), np.asarray(w, float)
    if reward == "AWC":
        return 1.0 - float(np.prod(1.0 - w * z))
    if reward == "SUC":
        return float(w @ z)
    if reward == "AIC":
        return float(np.prod(w**z))
    raise ValueError(reward)


def multilinear(reward, z, mu):
    """The mean of r(S; mu) under independent coins z: sum over all 2^K sets of prod_S z_k prod_{not S} (1 - z_k) r(S; mu).

    Equal to `relaxed_reward` for AWC and SUC, at least as large for AIC.

    Source: Section 4.1, "AWC" (printed there without the factor r(S)); spec 8-5.
    """
    z, total = np.asarray(z, float), 0.0
    for bits in itertools.product([False, True], repeat=len(z)):
        mask = np.array(bits)
        total += float(np.prod(np.where(mask, z, 1 - z))) * set_reward(reward, mask, mu)
    return total


def graded_means(levels):
    """mu = .5 p_ok + .3 p_fmt + .1 p_empty `[K]` of `levels` `[K, 3]`. Source: Appendix E.1; spec 2.2."""
    return np.asarray(levels, float) @ np.array([0.5, 0.3, 0.1])


# --- Confidence bounds -------------------------------------------------------------------------------------------


def confidence_radius(count, t, num_models, delta):
    """sqrt(ln(2 pi^2 K t^3 / (3 delta)) / (2 n)) of one model in round t >= 1; infinite for n = 0.

    Source: Section 4.1, "Confidence Bound for Reward and Cost"; spec 3.1.
    """
    if count == 0:
        return math.inf
    return math.sqrt((math.log(2 * math.pi**2 * num_models / (3 * delta)) + 3 * math.log(t)) / (2 * count))


def reward_ucb(mean, count, t, num_models, delta, width):
    """min(mean + width * radius, 1), and 1 for an unseen model. Source: Algorithm 1, line 4; spec 3.1."""
    return 1.0 if count == 0 else min(mean + width * confidence_radius(count, t, num_models, delta), 1.0)


def cost_lcb(mean, count, t, num_models, delta, width):
    """max(mean - width * radius, 0), and 0 for an unseen model. Source: Algorithm 1, line 5; spec 3.1."""
    return 0.0 if count == 0 else max(mean - width * confidence_radius(count, t, num_models, delta), 0.0)


def bounds(statistics, t, num_models, delta, reward_width, cost_width):
    """(reward UCB, cost LCB), two `[K]` arrays, of all models in round t (from 1).

    num_models: the K of the radius, which is the number of allowed models in a two-tier run (spec 3.6).
    """
    s = statistics
    pairs = list(zip(s.reward_mean, s.reward_pulls, strict=True))
    ucb = [reward_ucb(m, n, t, num_models, delta, reward_width) for m, n in pairs]
    pairs = list(zip(s.cost_mean, s.cost_pulls, strict=True))
    lcb = [cost_lcb(m, n, t, num_models, delta, cost_width) for m, n in pairs]
    return np.array(ucb), np.array(lcb)


def conditioned(index, tie_uniform, cap=0.999, noise=1e-4):
    """w = clip(min(index, cap) - noise * U, 1e-6, cap) `[K]`: what every optimiser sees in place of the index.

    The literal mode is cap=1, noise=0. Source: spec 3.1, "Index conditioning".
    """
    return np.clip(np.minimum(index, cap) - noise * np.asarray(tie_uniform, float), FLOOR, cap)


# --- Sets --------------------------------------------------------------------------------------------------------


def mask_of(members, num_models):
    """Bool mask `[K]` of an iterable of indices."""
    mask = np.zeros(num_models, bool)
    mask[list(members)] = True
    return mask


def top(score, size, available=None):
    """Mask of the `size` available models of largest score, lower index first; all of them if there are fewer."""
    pool = [k for k in range(len(score)) if available is None or available[k]]
    return mask_of(sorted(pool, key=lambda k: (-score[k], k))[:size], len(score))


def cheapest(w, c, size, available=None):
    """Mask of the `size` cheapest available models, equal costs by larger w, then lower index. Source: spec 3.1."""
    pool = [k for k in range(len(c)) if available is None or available[k]]
    return mask_of(sorted(pool, key=lambda k: (c[k], -w[k], k))[:size], len(c))


@lru_cache(maxsize=64)
def subsets(num_models, size):
    """All masks `[C(K, size), K]` of one size, in lexicographic order of their members."""
    members = list(itertools.combinations(range(num_models), size))
    masks = np.zeros((len(members), num_models), bool)
    for row, chosen in enumerate(members):
        masks[row, list(chosen)] = True
    return masks


@lru_cache(maxsize=64)
def one_fractional(num_models, size):
    """Patterns (A, i): masks `[P, K]` of at most size - 1 models, and a model i `[P]` outside. Source: spec 4.2."""
    rows = [(a, i) for n in range(size) for a in subsets(num_models, n) for i in range(num_models) if not a[i]]
    return np.array([a for a, _ in rows]).reshape(-1, num_models), np.array([i for _, i in rows], int)


@lru_cache(maxsize=64)
def two_fractional(num_models, size):
    """Patterns (A, i, j): masks `[P, K]` of size - 1 models, and models i < j outside. Source: spec 4.2."""
    rows = []
    for a in subsets(num_models, size - 1):
        rows += [(a, i, j) for i, j in itertools.combinations([k for k in range(num_models) if not a[k]], 2)]
    masks = np.array([a for a, _, _ in rows]).reshape(-1, num_models)
    return masks, np.array([i for _, i, _ in rows], int), np.array([j for _, _, j in rows], int)


def vertices(c, size, budget, exact_size):
    """All vertices `[V, K]` of {0 <= z <= 1, sum z = size (or <= size), c.z <= budget}.

    Three kinds, in this order: no fractional coordinate; one, where the budget is tight ("<=" only); two, where both
    rows are tight. Practical for small K (K=9, size=4: at most 2,353).

    Source: spec 4.2.
    """
    c = np.asarray(c, float)
    K, size = len(c), min(size, len(c))
    sets = np.concatenate([subsets(K, n) for n in ([size] if exact_size else range(size + 1))])
    found = [sets[sets @ c <= budget + TOLERANCE].astype(float)]
    with np.errstate(divide="ignore", invalid="ignore"):
        if not exact_size and size > 0:
            base, i = one_fractional(K, size)
            share = (budget - base @ c) / c[i]
            inside = (share > 0) & (share < 1)
            z = base[inside].astype(float)
            z[np.arange(len(z)), i[inside]] = share[inside]
            found.append(z)
        if size > 0:
            base, i, j = two_fractional(K, size)
            share = (budget - base @ c - c[j]) / (c[i] - c[j])
            inside = (share > 0) & (share < 1)
            z = base[inside].astype(float)
            z[np.arange(len(z)), i[inside]] = share[inside]
            z[np.arange(len(z)), j[inside]] = 1 - share[inside]
            found.append(z)
    return np.concatenate(found)


# --- Relaxed problems --------------------------------------------------------------------------------------------


class Relaxed(NamedTuple):
    """A relaxed solution: z `[K]`, the two sets that it mixes, and what the solver says about it.

    dear, cheap: masks with z = theta * dear + (1 - theta) * cheap; None where z has more than two fractional
    coordinates and the solver does not know the sets. shadow_price: multiplier of the budget, NaN if unknown.
    feasible: False where z is the fallback to the cheapest models.
    """

    z: np.ndarray
    dear: np.ndarray | None
    cheap: np.ndarray | None
    theta: float
    shadow_price: float
    feasible: bool


def coin_sets(z, c):
    """(dear, cheap, theta) with z = theta * dear + (1 - theta) * cheap, for z with at most two fractional coordinates.

    Two of them sum to 1, and the dear set holds the costlier; a lone one is in the dear set. Source: spec 3.3, 4.1.
    """
    z = np.asarray(z, float)
    loose = [k for k in range(len(z)) if TOLERANCE < z[k] < 1 - TOLERANCE]
    dear, cheap = z >= 1 - TOLERANCE, z >= 1 - TOLERANCE
    if len(loose) > 2 or (len(loose) == 2 and abs(z[loose].sum() - 1) > 1e-7):
        raise ValueError(f"not a mixture of two neighbouring sets: {z}")
    loose.sort(key=lambda k: (-c[k], k))
    if not loose:
        return dear, cheap, 1.0
    dear[loose[0]] = True
    cheap[loose[1:]] = True
    return dear, cheap, float(z[loose[0]])


def _with_sets(z, c, price, feasible):
    z = np.where(z < TOLERANCE, 0.0, np.where(z > 1 - TOLERANCE, 1.0, z))
    try:
        dear, cheap, theta = coin_sets(z, c)
    except ValueError:
        dear, cheap, theta = None, None, math.nan
    return Relaxed(z, dear, cheap, theta, price, feasible)


def lp_highs(w, c, size, budget, exact_size):
    """max w.z over the polytope by SciPy's HiGHS: (z `[K]`, multiplier of the budget), or (None, NaN) if infeasible."""
    w, c = np.asarray(w, float), np.asarray(c, float)
    K, size = len(w), min(size, len(w))
    rows, limits = ([c], [budget]) if exact_size else ([c, np.ones(K)], [budget, size])
    equal = {"A_eq": np.ones((1, K)), "b_eq": [size]} if exact_size else {}
    # The default tolerance of 1e-7 would pick wrong vertices among indices that differ by the noise of 1e-4.
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(-w, A_ub=np.array(rows), b_ub=limits, bounds=(0, 1), method="highs", options=options, **equal)
    if not answer.success:
        return None, math.nan
    return np.clip(answer.x, 0, 1), max(-float(answer.ineqlin.marginals[0]), 0.0)


def lp_vertices(w, c, size, budget, exact_size):
    """The same maximum by enumeration of all vertices, the first best of them: (z, NaN), or (None, NaN)."""
    z = vertices(c, size, budget, exact_size)
    return (None, math.nan) if len(z) == 0 else (z[np.argmax(z @ np.asarray(w, float))], math.nan)


def lp_fill(w, c, size, budget, exact_size):
    """The same maximum by the secant on its one-dimensional dual, with the tie rules of the specification.

    For a multiplier lam the best set is the `size` largest w - lam c. From the best and the cheapest set, lam moves to
    where their Lagrangians meet, until no set is better there. "<=" appends slack items of weight and cost 0.

    Source: spec 4.1, "Secant form".

    Returns:
      dear, cheap masks `[K]`, theta, lam; None in place of the first if infeasible.
    """
    K, size = len(w), min(size, len(w))
    slack = 0 if exact_size else size
    w, c = np.r_[np.asarray(w, float), np.zeros(slack)], np.r_[np.asarray(c, float), np.zeros(slack)]
    dear, cheap = top(w, size), cheapest(w, c, size)
    if c[cheap].sum() > budget + TOLERANCE:
        return None, cheap[:K], 0.0, math.nan
    if c[dear].sum() <= budget + TOLERANCE:
        return dear[:K], dear[:K], 1.0, 0.0
    while True:
        lam = (w[dear].sum() - w[cheap].sum()) / (c[dear].sum() - c[cheap].sum())
        score = w - lam * c
        best = top(score, size)
        if score[best].sum() <= max(score[dear].sum(), score[cheap].sum()) + 1e-13 * max(1.0, np.abs(score).max()):
            break
        if c[best].sum() > budget + TOLERANCE:
            dear = best
        else:
            cheap = best
    theta = (budget - c[cheap].sum()) / (c[dear].sum() - c[cheap].sum())
    return dear[:K], cheap[:K], min(max(float(theta), 0.0), 1.0), float(lam)


def linear_program(w, c, size, budget, exact_size, available=None, method="highs"):
    """max w.z subject to sum z = size (or <= size), c.z <= budget, 0 <= z <= 1, over the available models.

    With fewer than `size` models available all of them are meant. If not even the cheapest `size` fit the budget, z is
    their indicator and `feasible` is False (never so for "<=").

    Source: Eqs. 4 and 5; spec 3.1 "Infeasible", 4.1.

    Args:
      method: "highs", "vertices" or "fill".
    """
    w, c = np.asarray(w, float), np.asarray(c, float)
    K = len(w)
    pool = np.flatnonzero(np.ones(K, bool) if available is None else np.asarray(available, bool))
    size = min(size, len(pool))
    fallback = cheapest(w, c, size, available)
    if exact_size and (size == 0 or c[fallback].sum() > budget + TOLERANCE):
        return Relaxed(fallback.astype(float), fallback, fallback, 1.0, math.nan, size == 0)

    def whole(part):
        full = np.zeros(K, np.asarray(part).dtype)
        full[pool] = part
        return full

    if method == "fill":
        dear, cheap, theta, lam = lp_fill(w[pool], c[pool], size, budget, exact_size)
        dear, cheap = whole(dear), whole(cheap)
        return Relaxed(theta * dear + (1 - theta) * cheap, dear, cheap, theta, lam, True)
    solve = {"highs": lp_highs, "vertices": lp_vertices}[method]
    z, lam = solve(w[pool], c[pool], size, budget, exact_size)
    if z is None:  # The budget is within the tolerance of the cheapest cost.
        return Relaxed(fallback.astype(float), fallback, fallback, 1.0, math.nan, True)
    return _with_sets(whole(z), c, lam, True)


def any_win_exact(w, c, size, budget, available=None):
    """max 1 - prod(1 - w z) over sum z <= size, c.z <= budget: the first best of all vertices.

    The objective is compared as sum of -log(1 - w_k z_k), a sum of convex functions, so that a vertex is optimal; the
    product form loses its digits when several w are near 1.

    Source: Eq. 3; spec 4.2, "exact".
    """
    w, c = np.asarray(w, float), np.asarray(c, float)
    pool = np.flatnonzero(np.ones(len(w), bool) if available is None else np.asarray(available, bool))
    points = vertices(c[pool], min(size, len(pool)), budget, exact_size=False)
    with np.errstate(divide="ignore"):
        best = np.argmax(-np.log1p(-points * w[pool]).sum(axis=1))
    z = np.zeros(len(w))
    z[pool] = points[best]
    return _with_sets(z, c, math.nan, True)


def any_win_log(w, c, size, budget, available=None, method="highs"):
    """One LP with weights -log(1 - w); 1 - exp(-value) bounds the relaxed optimum from above. Source: spec 4.2, "loglp"."""
    return linear_program(-np.log1p(-np.asarray(w, float)), c, size, budget, False, available, method)


def any_win_greedy(w, c, size, budget, steps=10, available=None, method="highs"):
    """Continuous greedy: z moves by 1/steps of the LP solution for weights w / (1 - w z), `steps` times.

    Source: Section 4.1 ("common greedy algorithms"); spec 4.2, "cgreedy".
    """
    w, z = np.asarray(w, float), np.zeros(len(w))
    for _ in range(steps):
        z = z + linear_program(w / (1 - w * z), c, size, budget, False, available, method).z / steps
    return _with_sets(z, c, math.nan, True)


def any_win_polish(z, w, c, size, budget, steps=3, available=None, method="highs"):
    """Unit Frank-Wolfe steps z <- LP(w / (1 - w z)): never worse on sum -log(1 - w z). Source: spec 4.2, "polish"."""
    w, z = np.asarray(w, float), np.asarray(z, float)
    for _ in range(steps):
        z = linear_program(w / (1 - w * z), c, size, budget, False, available, method).z
    return _with_sets(z, c, math.nan, True)


def any_win_best(w, c, size, budget, greedy_steps=10, polish_steps=3, available=None, method="highs"):
    """The best of continuous greedy, the log LP and both polished, earlier ones first. Source: spec 4.2."""
    starts = [any_win_greedy(w, c, size, budget, greedy_steps, available, method)]
    starts.append(any_win_log(w, c, size, budget, available, method))
    ends = [any_win_polish(s.z, w, c, size, budget, polish_steps, available, method) for s in starts]
    w = np.asarray(w, float)
    return max(starts + ends, key=lambda s: float(-np.log1p(-w * s.z).sum()))  # `max` keeps the first of equals.


def relaxed_optimum(reward, w, c, size, budget, available=None, solver=None):
    """The local server's problem for (conditioned) indices w and costs c, as a `Relaxed`.

    Source: Eqs. 3, 4 and 5; spec 3.1, 4.1, 4.2.

    Args:
      solver: for SUC and AIC (on ln w) "highs" (default), "vertices" or "fill"; for AWC "exact" (default), "cgreedy",
        "loglp" or "best".
    """
    if reward == "AWC":
        known = {"exact": any_win_exact, "cgreedy": any_win_greedy, "loglp": any_win_log, "best": any_win_best}
        return known[solver or "exact"](w, c, size, budget, available=available)
    weights = np.asarray(w, float) if reward == "SUC" else np.log(w)
    return linear_program(weights, c, size, budget, True, available, solver or "highs")


def partition_linear_program(w, c, groups, limits, budget, exact_size):
    """max w.z with sum of z over each group = (or <=) its limit and one common budget, by HiGHS; None if infeasible.

    groups: `[M, K]` bool, disjoint. limits: `[M]`. Source: Appendix C.1; spec 3.6, "Partition matroid".
    """
    w, c, groups = np.asarray(w, float), np.asarray(c, float), np.asarray(groups, float)
    rows, ends = (c[None], [budget]) if exact_size else (np.r_[c[None], groups], [budget, *limits])
    equal = {"A_eq": groups, "b_eq": limits} if exact_size else {}
    answer = linprog(-w, A_ub=rows, b_ub=ends, bounds=(0, 1), method="highs", **equal)
    return np.clip(answer.x, 0, 1) if answer.success else None


# --- Integer program -------------------------------------------------------------------------------------------


def integer_optimum(reward, w, c, size, budget, available=None, cardinality=True):
    """(mask, feasible) of the best affordable set by enumeration: |S| <= size for AWC, |S| = size for SUC and AIC.

    Equal values: the smaller set, then the lexicographically first. None affordable: the cheapest `size`. Without
    `cardinality` (Eq. 48 as printed) any size is allowed, except the empty set for AIC.

    Source: Eq. 48; spec 2.5, 3.5, 4.3.
    """
    w, c = np.asarray(w, float), np.asarray(c, float)
    pool = np.flatnonzero(np.ones(len(w), bool) if available is None else np.asarray(available, bool))
    size = min(size, len(pool))
    sizes = range(size + 1) if reward == "AWC" else [size]
    if not cardinality:
        sizes = range(1 if reward == "AIC" else 0, len(pool) + 1)
    with np.errstate(divide="ignore"):
        gain = {"AWC": -np.log1p(-w), "SUC": w, "AIC": np.log(w)}[reward][pool]
    best, best_value = None, -math.inf
    for n in sizes:
        masks = subsets(len(pool), n)
        values = np.array([gain[mask].sum() for mask in masks])  # Not a product: 0 * inf.
        values[masks @ c[pool] > budget + TOLERANCE] = -math.inf
        first = int(np.argmax(values))
        if values[first] > best_value:
            best, best_value = masks[first], values[first]
    if best is None:
        return cheapest(w, c, size, available), False
    mask = np.zeros(len(w), bool)
    mask[pool] = best
    return mask, True


# --- Projection --------------------------------------------------------------------------------------------------


def _shift(u, size, exact_size):
    """nu with sum clip(u - nu, 0, 1) = size, exactly by its breakpoints; 0 for "<=" if the sum is small without it."""
    if not exact_size and np.clip(u, 0, 1).sum() <= size:
        return 0.0
    points = np.sort(np.r_[u, u - 1])
    sums = np.clip(u - points[:, None], 0, 1).sum(axis=1)  # Falls from K to 0.
    k = int(np.flatnonzero(sums >= size)[-1]) if sums[0] >= size else 0
    if k + 1 == len(points) or sums[k] == sums[k + 1]:
        return float(points[k])
    share = (sums[k] - size) / (sums[k] - sums[k + 1])
    return float(points[k] + share * (points[k + 1] - points[k]))


def project(y, c, size, budget, exact_size):
    """Euclidean projection of y `[K]` onto {0 <= z <= 1, sum z = size (or <= size), c.z <= budget}.

    z = clip(y - nu - lam c, 0, 1): nu exactly for every lam, lam by bisection on the cost, both then recomputed on the
    final active set and kept if that lowers the KKT residual. An infeasible polytope gives the cheapest `size`.

    Source: spec 4.4, "Projection".

    Returns:
      z `[K]`, nu, lam, feasible; NaN multipliers where it is infeasible.
    """
    y, c = np.asarray(y, float), np.asarray(c, float)
    lowest = np.zeros(len(y))  # The cheapest point; `size` may be a fraction, so that it can be differentiated.
    for rank, k in enumerate(sorted(range(len(y)), key=lambda k: (c[k], -y[k], k))):
        lowest[k] = min(max(size - rank, 0.0), 1.0)
    if exact_size and c @ lowest > budget + 1e-12:
        return lowest, math.nan, math.nan, False

    def point(lam):
        nu = _shift(y - lam * c, size, exact_size)
        return np.clip(y - lam * c - nu, 0, 1), nu

    lam = 0.0
    if c @ point(0.0)[0] > budget:
        low, high = 0.0, 1.0
        while c @ point(high)[0] > budget + 1e-14 and high < 1e15:
            low, high = high, 2 * high
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if c @ point(middle)[0] > budget else (low, middle)
        lam = high
    z, nu = point(lam)

    # The multipliers solve a small linear system on the free coordinates.
    free = (z > 0) & (z < 1)
    rows, targets, which = [], [], []
    if exact_size or nu > 0:
        rows, targets, which = [np.ones(len(y))], [size], ["nu"]
    if lam > 0:
        rows, targets, which = [*rows, c], [*targets, budget], [*which, "lam"]
    if rows and free.any():
        A = np.array(rows)
        gram = A[:, free] @ A[:, free].T
        if np.linalg.cond(gram) < 1e12:
            right = A[:, free] @ y[free] + A[:, z >= 1].sum(axis=1) - np.array(targets, float)
            found = dict(zip(which, np.linalg.solve(gram, right), strict=True))
            nu2, lam2 = float(found.get("nu", 0.0)), float(found.get("lam", 0.0))
            z2 = np.clip(y - nu2 - lam2 * c, 0, 1)
            problem = (y, c, size, budget, exact_size)
            if kkt_residual(z2, nu2, lam2, *problem) < kkt_residual(z, nu, lam, *problem):
                z, nu, lam = z2, nu2, lam2
    return z, nu, lam, True


def kkt_residual(z, nu, lam, y, c, size, budget, exact_size):
    """Largest violation of the optimality conditions of `project` by (z, nu, lam); 0 exactly at the projection.

    Stationarity z = clip(y - nu - lam c, 0, 1), sum z = size or min(nu, size - sum z) = 0, and
    min(lam, budget - c.z) = 0. Source: spec 4.4.
    """
    z, y, c = np.asarray(z, float), np.asarray(y, float), np.asarray(c, float)
    stationarity = float(np.max(np.abs(z - np.clip(y - nu - lam * c, 0, 1))))
    gap = size - float(z.sum())
    cardinality = abs(gap) if exact_size else abs(min(nu, gap))
    return max(stationarity, cardinality, abs(min(lam, budget - float(c @ z))))


def project_vjp(z, nu, lam, c, cotangent, exact_size):
    """Pulls a cotangent `[K]` of z back through `project`: (y_bar `[K]`, c_bar `[K]`, budget_bar, size_bar).

    Source: spec 4.4, "Implicit gradient".
    """
    z, c, g = np.asarray(z, float), np.asarray(c, float), np.asarray(cotangent, float)
    free = (z > 0) & (z < 1)
    names = (["size"] if exact_size or nu > 0 else []) + (["budget"] if lam > 0 else [])
    multiplier = {"size": 0.0, "budget": 0.0}
    y_bar = np.where(free, g, 0.0)
    if names and free.any():
        A = np.array([np.ones(len(z)) if name == "size" else c for name in names]) * free
        m = np.linalg.lstsq(A @ A.T, A @ g, rcond=None)[0]
        y_bar = np.where(free, g - A.T @ m, 0.0)
        multiplier |= dict(zip(names, m, strict=True))
    c_bar = -lam * y_bar - multiplier["budget"] * z
    return y_bar, c_bar, float(multiplier["budget"]), float(multiplier["size"])


def smoothed_lp(w, c, size, budget, exact_size, tau):
    """argmax w.z - tau/2 |z|^2 = project(w / tau): the differentiable LP. Source: spec 4.4."""
    return project(np.asarray(w, float) / tau, c, size, budget, exact_size)[0]


def gradient_lp(w, c, size, budget, exact_size, eta=10.0, steps=10):
    """Projected gradient for the LP: from the projection of size/K, z <- project(z + eta w / max|w|). Source: spec 4.4."""
    w = np.asarray(w, float) / np.max(np.abs(w))
    z = project(np.full(len(w), size / len(w)), c, size, budget, exact_size)[0]
    for _ in range(steps):
        z = project(z + eta * w, c, size, budget, exact_size)[0]
    return z


def gradient_any_win(w, c, size, budget, eta=1.0, steps=50):
    """Projected gradient on sum -log(1 - w z), gradient w / (1 - w z), from the projection of size/K. Source: spec 4.4."""
    w = np.asarray(w, float)
    z = project(np.full(len(w), size / len(w)), c, size, budget, False)[0]
    for _ in range(steps):
        z = project(z + eta * w / (1 - w * z), c, size, budget, False)[0]
    return z


# --- Rounding ----------------------------------------------------------------------------------------------------


def round_coin(dear, cheap, theta, uniform):
    """The dear set if uniform < theta, else the cheap one. Source: spec 3.3, last paragraph."""
    return dear.copy() if uniform < theta else cheap.copy()


def round_pairwise(z, uniforms, tolerance=TOLERANCE):
    """Algorithm 3 on the two lowest-indexed fractional coordinates k < j, until at most one is left.

    The step that treats the pair (k, j) uses uniforms[j - 1]: below q / (p + q) it moves p from j to k, else q from k to
    j. A lone survivor is 1 if uniforms[K - 1] is below it.

    Source: Algorithm 3; spec 3.3, 4.5.

    Args:
      z: `[K]` in [0, 1]. uniforms: `[K]`.

    Returns:
      mask `[K]`.
    """
    z = np.array(z, float)
    while True:
        z[z < tolerance], z[z > 1 - tolerance] = 0.0, 1.0
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


def pairwise_distribution(z, tolerance=TOLERANCE):
    """The exact distribution of `round_pairwise`: {frozenset: probability}, by following both sides of every coin."""
    z = np.array(z, float)
    z[z < tolerance], z[z > 1 - tolerance] = 0.0, 1.0
    loose = np.flatnonzero((z > 0) & (z < 1))
    distribution = {}

    def follow(next_z, probability):
        if probability > 0:
            for members, mass in pairwise_distribution(next_z, tolerance).items():
                distribution[members] = distribution.get(members, 0.0) + probability * mass

    if len(loose) == 0:
        return {frozenset(np.flatnonzero(z == 1).tolist()): 1.0}
    k = loose[0]
    if len(loose) == 1:
        for value, probability in ((1.0, z[k]), (0.0, 1 - z[k])):
            z_next = z.copy()
            z_next[k] = value
            follow(z_next, float(probability))
        return distribution
    j = loose[1]
    p, q = min(1 - z[k], z[j]), min(z[k], 1 - z[j])
    up, down = z.copy(), z.copy()
    up[k], up[j] = z[k] + p, z[j] - p
    down[k], down[j] = z[k] - q, z[j] + q
    follow(up, float(q / (p + q)))
    follow(down, float(p / (p + q)))
    return distribution


def decompose(z):
    """z = sum_m v_m 1_{B_m} with K + 1 sets by a systematic sweep: weights v `[K + 1]`, masks `[K + 1, K]`.

    The K + 2 breakpoints are 0, 1 and the fractional parts of the running sums, sorted; B_m is read at the midpoint of
    an interval. Empty intervals stay, with weight 0. All sets have floor(sum z) or ceil(sum z) members. Running sums
    within 1e-9 of an integer count as that integer, so that the order of the sets does not hang on a rounding.

    Source: Algorithm 2, line 2; spec 4.5, "Decomposition", 8-8.
    """
    sums = np.r_[0.0, np.cumsum(np.asarray(z, float))]
    sums = np.where(np.abs(sums - np.round(sums)) < TOLERANCE, np.round(sums), sums)
    points = np.sort(np.r_[0.0, 1.0, sums[1:] % 1.0])
    weights, middles = np.diff(points), (points[:-1] + points[1:]) / 2
    masks = [np.ceil(sums[1:] - u) - np.ceil(sums[:-1] - u) == 1 for u in middles]
    return weights, np.array(masks)


def round_swap(z, uniforms, leave, sets=None):
    """Algorithm 2: merges the sets of a decomposition one after the other, by swaps that keep the marginals.

    Merge m (from 1) uses uniforms[m - 1, s] for its s-th swap (s from 0) and leave[m - 1] (or leave[m - 1, g]) for the
    g-th element of G; a coin below p2 / (p1 + p2) replaces in B_1 (or removes from it). i, j and G are the lowest
    indices that qualify.

    Source: Algorithm 2; spec 3.2, 4.5, 8-9 (independent coins for G).

    Args:
      z: `[K]`. uniforms: `[K, N]` for K merges of at most N swaps. leave: `[K]`, or `[K, G]`.
      sets: (weights, masks) in place of `decompose(z)`.

    Returns:
      mask `[K]`.
    """
    K = len(z)
    weights, masks = decompose(z) if sets is None else sets
    leave = np.reshape(leave, (len(leave), -1))
    current, p1 = set(np.flatnonzero(masks[0])), float(weights[0])
    for m in range(1, len(weights)):
        p2, other = float(weights[m]), set(np.flatnonzero(masks[m]))
        if min(p1, p2) <= 1e-12:  # A set of no weight changes nothing, whatever its size.
            current, p1 = (other, p2) if p1 <= 1e-12 else (current, p1)
            continue
        b1, q1, b2, q2 = (current, p1, other, p2) if len(current) >= len(other) else (other, p2, current, p1)
        probability = q2 / (q1 + q2) if q1 + q2 > 0 else 0.0
        extra = sorted(b1 - b2)[: len(b1) - len(b2)]
        b1, b2 = set(b1), b2 | set(extra)
        swaps = 0
        while b1 != b2:
            i, j = min(b1 - b2), min(b2 - b1)
            if uniforms[m - 1][swaps] < probability:
                b1 = b1 - {i} | {j}
            else:
                b2 = b2 - {j} | {i}
            swaps += 1
        for g, i in enumerate(extra):
            if leave[m - 1, g] < probability:
                b1 = b1 - {i}
        current, p1 = b1, p1 + p2
    return mask_of(current, K)


def swap_distribution(z, sets=None):
    """The exact distribution of `round_swap`: {frozenset: probability}, by following every coin."""
    weights, masks = decompose(z) if sets is None else sets
    distribution, p1 = {frozenset(np.flatnonzero(masks[0]).tolist()): 1.0}, float(weights[0])
    for m in range(1, len(weights)):
        p2, other = float(weights[m]), frozenset(np.flatnonzero(masks[m]).tolist())
        merged = {}
        for current, mass in distribution.items():
            b1, q1, b2, q2 = (current, p1, other, p2) if len(current) >= len(other) else (other, p2, current, p1)
            probability = q2 / (q1 + q2) if q1 + q2 > 0 else 0.0
            extra = sorted(b1 - b2)[: len(b1) - len(b2)]
            for result, share in _swap_outcomes(b1, b2 | frozenset(extra), probability).items():
                for gone in itertools.product([False, True], repeat=len(extra)):
                    share_of_coins = math.prod(probability if out else 1 - probability for out in gone)
                    left = result - {i for i, out in zip(extra, gone, strict=True) if out}
                    merged[left] = merged.get(left, 0.0) + mass * share * share_of_coins
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


def coin_distribution(dear, cheap, theta):
    """The exact distribution of `round_coin`."""
    distribution = {frozenset(np.flatnonzero(dear).tolist()): theta}
    key = frozenset(np.flatnonzero(cheap).tolist())
    distribution[key] = distribution.get(key, 0.0) + 1 - theta
    return {members: mass for members, mass in distribution.items() if mass > 0}


def expected_reward(distribution, reward, mu):
    """E r(S; mu) under a distribution {frozenset: probability}."""
    return sum(mass * set_reward(reward, mask_of(members, len(mu)), mu) for members, mass in distribution.items())


def marginals(distribution, num_models):
    """P(k in S) `[K]` under a distribution."""
    return np.array([sum(mass for members, mass in distribution.items() if k in members) for k in range(num_models)])


# --- Environment -------------------------------------------------------------------------------------------------


@dataclass
class Params:
    """One environment.

    mu, cost: `[K]` true means of outcome and cost, or `[G, K]` with drift.
    starts: `[G]` first round (from 1) of every drift segment; starts[0] = 1.
    price: `[K]` known price, the order of the cascade; None means the costs of the first segment.
    size: N. budget: rho per round.
    outcome: "bernoulli", "graded" (needs `levels` `[K, 3]`, and mu = graded_means(levels)), "copula" (needs
      `correlation` q) or "replay" (needs `outcome_log` and `cost_log` `[n, K]`).
    cost_distribution: "scaled", "fixed" or "tokens"; without meaning in a replay.
    available_probability: probability that a model is available in a round; None means always.

    Source: spec 2.2, 2.3, 11.
    """

    reward: str
    mu: list
    cost: list
    size: int
    budget: float
    price: list | None = None
    outcome: str = "bernoulli"
    cost_distribution: str = "scaled"
    levels: list | None = None
    correlation: float = 0.0
    outcome_log: list | None = None
    cost_log: list | None = None
    starts: list | None = None
    available_probability: float | None = None


def sciq9(reward, **changes):
    """The stand-in `sciq9` with the paper's N = 4 and budget; `changes` replaces fields. Source: spec 6.2."""
    cost = [p / max(SCIQ9_PRICE) for p in SCIQ9_PRICE]
    values = {"mu": SCIQ9_MU, "cost": cost, "price": SCIQ9_PRICE, "size": 4, "budget": SCIQ9_BUDGET[reward]}
    return Params(**({"reward": reward, "levels": SCIQ9_LEVELS} | values | changes))


def replay(reward, outcome_log, cost_log, size, budget):
    """An environment that plays back a log; its means are the column means. Source: spec 6.2, 8-26."""
    outcome_log, cost_log = np.asarray(outcome_log, float), np.asarray(cost_log, float)
    logs = {"outcome": "replay", "outcome_log": outcome_log, "cost_log": cost_log}
    return Params(reward, outcome_log.mean(axis=0), cost_log.mean(axis=0), size, budget, **logs)


def copies_of(params, model, copies=None):
    """The environment with `copies` (default N) identical models, for the baselines Always-k. Source: spec 5, 8-12, 11."""
    copies = params.size if copies is None else copies

    def repeat(field):
        return None if field is None else np.repeat(np.asarray(field, float)[..., [model]], copies, axis=-1)

    levels = None if params.levels is None else np.repeat(np.asarray(params.levels, float)[[model]], copies, axis=0)
    changes = {name: repeat(getattr(params, name)) for name in ("mu", "cost", "price", "outcome_log", "cost_log")}
    return replace(params, size=copies, levels=levels, **changes)


@dataclass
class Draws:
    """The luck of one run, one row per round; fields that a run does not need may stay None. Source: spec 11, "Draws".

    Environment. outcome: `[T, K]` uniforms (bernoulli, graded) or `[T, 1 + K]` normals (copula: common, then own).
    cost: `[T, K]` uniforms (scaled) or normals (tokens). query: `[T]` uniforms (tokens). available: `[T, K]` uniforms.
    offset: first row of a replay.
    Policy. tie: `[T, K]` uniforms of the index noise. coin: `[T]`, pair: `[T, K]`, swap: `[T, K, N]` and leave: `[T, K]`
    uniforms of the three roundings. explore: `[T]`, subset: `[T, K]` uniforms (epsilon-greedy; subset also Random).
    theta: `[T, K]` normals (Thompson), or uniforms with thompson="beta". graded_coin: `[T, K]` uniforms. order: `[T, K]`
    uniforms of the random cascade order. arrives: `[T]` bool, whether the feedback of a round arrives.
    """

    rounds: int
    outcome: np.ndarray | None = None
    cost: np.ndarray | None = None
    query: np.ndarray | None = None
    available: np.ndarray | None = None
    offset: int = 0
    tie: np.ndarray | None = None
    coin: np.ndarray | None = None
    pair: np.ndarray | None = None
    swap: np.ndarray | None = None
    leave: np.ndarray | None = None
    explore: np.ndarray | None = None
    subset: np.ndarray | None = None
    theta: np.ndarray | None = None
    graded_coin: np.ndarray | None = None
    order: np.ndarray | None = None
    arrives: np.ndarray | None = None


def random_draws(generator, rounds, params, thompson="normal"):
    """All fields of `Draws` that any policy could need in this environment, from a NumPy generator (arrives: None)."""
    K, N, T = np.shape(params.mu)[-1], params.size, rounds
    normal_outcome, normal_cost = params.outcome == "copula", params.cost_distribution == "tokens"
    return Draws(
        rounds=rounds,
        outcome=generator.standard_normal((T, 1 + K)) if normal_outcome else generator.random((T, K)),
        cost=generator.standard_normal((T, K)) if normal_cost else generator.random((T, K)),
        query=generator.random(T),
        available=generator.random((T, K)),
        tie=generator.random((T, K)),
        coin=generator.random(T),
        pair=generator.random((T, K)),
        swap=generator.random((T, K, N)),
        leave=generator.random((T, K)),
        explore=generator.random(T),
        subset=generator.random((T, K)),
        theta=generator.standard_normal((T, K)) if thompson == "normal" else generator.random((T, K)),
        graded_coin=generator.random((T, K)),
        order=generator.random((T, K)),
    )


def bernoulli_outcome(mu, uniforms):
    """X = 1 where the uniform is below mu `[K]`. Source: spec 2.2."""
    return (np.asarray(uniforms) < np.asarray(mu)).astype(float)


def graded_outcome(levels, uniforms):
    """0.5, 0.3, 0.1 or 0 `[K]`: the uniform falls below p_ok, p_ok + p_fmt, p_ok + p_fmt + p_empty, or above.

    Source: Appendix E.1; spec 2.2.
    """
    edges = np.cumsum(np.asarray(levels, float), axis=1)
    outcome = []
    for u, (ok, formatted, empty) in zip(uniforms, edges, strict=True):
        outcome.append(0.5 if u < ok else 0.3 if u < formatted else 0.1 if u < empty else 0.0)
    return np.array(outcome)


def copula_outcome(mu, correlation, normals):
    """X_k = 1 where Phi^-1(mu_k) > sqrt(q) d + sqrt(1 - q) e_k; normals `[1 + K]` = (d, e). Source: spec 2.2."""
    difficulty = math.sqrt(correlation) * normals[0] + math.sqrt(1 - correlation) * np.asarray(normals[1:])
    return (ndtri(np.asarray(mu, float)) > difficulty).astype(float)


def scaled_cost(cost, uniforms):
    """y = c (0.5 + u) `[K]`: uniform on [0.5 c, 1.5 c]. Source: spec 2.3."""
    return np.asarray(cost, float) * (0.5 + np.asarray(uniforms))


def _output_distribution():
    """(mean of the logarithm, its standard deviation) of the output length before clipping."""
    sigma = math.sqrt(math.log(1 + OUTPUT_CV**2))
    return math.log(OUTPUT_MEAN) - sigma**2 / 2, sigma


def reference_length():
    """Mean of input plus clipped output tokens, 309.72. Source: spec 2.3, "tokens"."""
    location, sigma = _output_distribution()
    low, high = ((math.log(edge) - location) / sigma for edge in OUTPUT_RANGE)
    inside = OUTPUT_MEAN * (ndtr(high - sigma) - ndtr(low - sigma))
    clipped = OUTPUT_RANGE[0] * ndtr(low) + inside + OUTPUT_RANGE[1] * (1 - ndtr(high))
    return float(np.dot(QUERY_TOKENS, QUERY_LAW) + clipped)


def token_cost(cost, query_uniform, normals):
    """y = c (input + output tokens) / mean length `[K]`: one query for all models, own lognormal output, clipped.

    Source: Section 3, "Statistically-Based Cost Model"; spec 2.3.
    """
    query = min(int(np.searchsorted(np.cumsum(QUERY_LAW), query_uniform, side="right")), len(QUERY_LAW) - 1)
    location, sigma = _output_distribution()
    output = np.clip(np.exp(location + sigma * np.asarray(normals)), *OUTPUT_RANGE)
    return np.asarray(cost, float) * (QUERY_TOKENS[query] + output) / reference_length()


def segment(params, t):
    """(mu, cost), `[K]` each, that hold in round t (from 1)."""
    mu, cost = np.atleast_2d(np.asarray(params.mu, float)), np.atleast_2d(np.asarray(params.cost, float))
    g = 0 if params.starts is None else sum(t >= s for s in params.starts) - 1
    return mu[min(g, len(mu) - 1)], cost[min(g, len(cost) - 1)]


def round_outcome(params, draws, t):
    """What every model would answer and cost in round t (from 1): outcome, success (bool) and cost, `[K]` each.

    Source: spec 2.2, 2.3, 11.
    """
    mu, cost = segment(params, t)
    row = t - 1
    if params.outcome == "replay":
        at = (draws.offset + row) % len(params.outcome_log)
        outcome = np.asarray(params.outcome_log, float)[at]
        return outcome, outcome >= 1.0, np.asarray(params.cost_log, float)[at]
    if params.outcome == "bernoulli":
        outcome = bernoulli_outcome(mu, draws.outcome[row])
    elif params.outcome == "graded":
        outcome = graded_outcome(params.levels, draws.outcome[row])
    elif params.outcome == "copula":
        outcome = copula_outcome(mu, params.correlation, draws.outcome[row])
    else:
        raise ValueError(params.outcome)
    success = outcome >= (0.5 if params.outcome == "graded" else 1.0)
    if params.cost_distribution == "scaled":
        paid = scaled_cost(cost, draws.cost[row])
    elif params.cost_distribution == "fixed":
        paid = cost.copy()
    elif params.cost_distribution == "tokens":
        paid = token_cost(cost, draws.query[row], draws.cost[row])
    else:
        raise ValueError(params.cost_distribution)
    return outcome, success, paid


def queried(reward, selected, success, priority):
    """The models that are really called, F_t: all of S for SUC and AIC; for AWC those up to the first success.

    priority: `[K]`, ascending order of the cascade, ties by index. Source: Section 3, "Partial LLM Feedback"; spec 2.4.
    """
    selected = np.asarray(selected, bool)
    if reward != "AWC":
        return selected.copy()
    called = np.zeros(len(selected), bool)
    for k in sorted(np.flatnonzero(selected), key=lambda k: (priority[k], k)):
        called[k] = True
        if success[k]:
            break
    return called


# --- Benchmarks and theory ---------------------------------------------------------------------------------------


class Benchmark(NamedTuple):
    """S* `[K]` bool with its reward r*, Z* `[K]` with its relaxed reward, at the true means. Source: spec 2.5."""

    best_set: np.ndarray
    best: float
    relaxed: Relaxed
    best_relaxed: float


def benchmark(reward, mu, cost, size, budget, available=None, solver=None):
    """The integer and the relaxed optimum at known means (not conditioned, except that AIC needs mu >= 1e-6)."""
    safe = np.maximum(mu, FLOOR) if reward == "AIC" else np.asarray(mu, float)
    best_set, _ = integer_optimum(reward, safe, cost, size, budget, available)
    relaxed = relaxed_optimum(reward, safe, cost, size, budget, available, solver)
    return Benchmark(best_set, set_reward(reward, best_set, mu), relaxed, relaxed_reward(reward, relaxed.z, mu))


def offline_set(reward, sample, cost, size, budget):
    """The set that is best for the means of an offline sample `[n, K]` of outcomes and the true costs.

    Source: Appendix E.3 (Fig. 13); spec 3.6, 11.
    """
    return integer_optimum(reward, np.mean(np.asarray(sample, float), axis=0), cost, size, budget)[0]


def observation_probability(success, price, size):
    """o*: the smallest probability, over all sets of at most `size`, that a price-ordered cascade calls all of it.

    success: `[K]` probability to stop the cascade. Source: Section 5; spec 7.
    """
    order = sorted(range(len(price)), key=lambda k: (price[k], k))
    smallest = 1.0
    for n in range(1, size + 1):
        for members in itertools.combinations(order, n):
            smallest = min(smallest, math.prod(1 - success[k] for k in members[:-1]))
    return smallest


def theorem1_bound(num_models, size, horizon, o_star, r_star, power=1):
    """(2/o*) sqrt(2 N K T ln(2 pi^2 K T^power / 3)) + (K + 1) r*; power 4 is the logarithm of the proof.

    Source: Theorem 1; spec 7, 8-3.
    """
    log = math.log(2 * math.pi**2 * num_models / 3) + power * math.log(horizon)
    return 2 / o_star * math.sqrt(2 * size * num_models * horizon * log) + (num_models + 1) * r_star


def theorem2_bound(num_models, size, horizon, power=1):
    """sqrt(NK/T) (2 sqrt(2 ln(2 pi^2 K T^power / 3)) + sqrt(NK/T)). Source: Theorem 2; spec 7."""
    log = math.log(2 * math.pi**2 * num_models / 3) + power * math.log(horizon)
    ratio = math.sqrt(size * num_models / horizon)
    return ratio * (2 * math.sqrt(2 * log) + ratio)


def expected_excess(cost, budget, cost_distribution="scaled"):
    """E[(sum y - budget)^+] of a set with mean costs `cost`, exactly, for "scaled" (a sum of uniforms) and "fixed".

    E(sum a_i U_i - s)^+ = sum over J of (-1)^(n - |J|) (a(J) - s)_+^(n + 1) / ((n + 1)! prod a).
    """
    cost = [float(x) for x in cost]
    if cost_distribution == "fixed":
        return max(sum(cost) - budget, 0.0)
    n, level, total = len(cost), budget - sum(cost) / 2, 0.0
    for bits in itertools.product([0, 1], repeat=n):
        part = sum(x for x, b in zip(cost, bits, strict=True) if b) - level
        total += (-1) ** (n - sum(bits)) * max(part, 0.0) ** (n + 1)
    return total / (math.factorial(n + 1) * math.prod(cost))


def steady_state(reward, mu, cost, size, budget, cost_distribution="scaled"):
    """Mean reward, cost and per-round violation of the relaxed oracle, in closed form; SUC and AIC.

    Source: spec 4.6.
    """
    mu, cost = np.asarray(mu, float), np.asarray(cost, float)
    relaxed = relaxed_optimum(reward, mu, cost, size, budget)
    totals = np.zeros(3)
    for mask, weight in ((relaxed.dear, relaxed.theta), (relaxed.cheap, 1 - relaxed.theta)):
        excess = expected_excess(cost[mask], budget, cost_distribution)
        totals += weight * np.array([set_reward(reward, mask, mu), cost[mask].sum(), excess])
    return {"reward": totals[0], "cost": totals[1], "violation": totals[2]}


# --- Simulation --------------------------------------------------------------------------------------------------


@dataclass
class Statistics:
    """Counts and means of what was observed, `[K]` each, and the Beta counts of Thompson sampling."""

    reward_pulls: np.ndarray
    cost_pulls: np.ndarray
    reward_mean: np.ndarray
    cost_mean: np.ndarray
    wins: np.ndarray
    losses: np.ndarray


def initial_statistics(num_models, prior=None):
    """Zeros, or a warm start `prior` = (pulls, reward means, cost means), `[K]` each. Source: Algorithm 1, line 2."""
    if prior is None:
        prior = (np.zeros(num_models), np.zeros(num_models), np.zeros(num_models))
    pulls, reward, cost = (np.array(x, float) for x in prior)
    return Statistics(pulls, pulls.copy(), reward, cost, np.zeros(num_models), np.zeros(num_models))


def learn(statistics, reward_seen, cost_seen, outcome, paid):
    """Eq. 6, as incremental means, in place. reward_seen, cost_seen: masks `[K]` of what was observed."""
    s = statistics
    for k in np.flatnonzero(reward_seen):
        s.reward_pulls[k] += 1
        s.reward_mean[k] += (outcome[k] - s.reward_mean[k]) / s.reward_pulls[k]
    for k in np.flatnonzero(cost_seen):
        s.cost_pulls[k] += 1
        s.cost_mean[k] += (paid[k] - s.cost_mean[k]) / s.cost_pulls[k]


def cucb_index(mean, count, t):
    """min(mean + sqrt(3 ln t / (2 n)), 1), 1 for an unseen model. Source: Wang and Chen (2017); spec 5."""
    return 1.0 if count == 0 else min(mean + math.sqrt(3 * math.log(t) / (2 * count)), 1.0)


def epsilon(t, num_models):
    """min(1, 2 sqrt(K) / sqrt(t)). Source: Section 6, "Comparison Benchmarks"; spec 5."""
    return min(1.0, 2 * math.sqrt(num_models) / math.sqrt(t))


def thompson_sample(wins, losses, draw, distribution="normal"):
    """theta `[K]` of Beta(1 + wins, 1 + losses): by inverse CDF of uniforms ("beta"), or a normal of the same moments.

    Source: spec 5.
    """
    a, b = 1 + wins, 1 + losses
    if distribution == "beta":
        return beta_distribution.ppf(draw, a, b)
    return a / (a + b) + np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))) * draw


def round_relaxed(relaxed, rounding, draws, t):
    """S_t `[K]` from a relaxed solution in round t, by "coin", "pairwise" or "swap". Source: spec 3.2, 3.3, 11."""
    if rounding == "coin":
        if relaxed.dear is None:
            raise ValueError("more than two fractional coordinates: the coin needs the two sets")
        return round_coin(relaxed.dear, relaxed.cheap, relaxed.theta, draws.coin[t - 1])
    if rounding == "pairwise":
        return round_pairwise(relaxed.z, draws.pair[t - 1])
    if rounding == "swap":
        return round_swap(relaxed.z, draws.swap[t - 1], draws.leave[t - 1])
    raise ValueError(rounding)


POLICIES = ("C2MAB-V", "Direct", "CUCB", "Thompson", "EpsGreedy", "Random", "Fixed", "OracleRelaxed", "OracleInteger")


def simulate(
    params,
    draws,
    policy="C2MAB-V",
    *,
    reward_width=0.3,
    cost_width=0.01,
    delta=None,
    cap=0.999,
    noise=1e-4,
    solver=None,
    rounding="coin",
    order="price",
    cost_feedback="observed",
    batch=1,
    hold="action",
    allowed=None,
    prior=None,
    start="none",
    cardinality=True,
    cucb_radius="wang-chen",
    thompson="normal",
    graded_update="fraction",
    fixed=None,
):
    """One run of one policy on given draws.

    Order within a round: availability, bounds, index conditioning, decision (or the held one), cascade, feedback,
    statistics. An unavailable model is never called, not even from a held or fixed set.

    Source: Algorithms 1-3, Section 6, Appendix E.3; spec 2.4, 2.5, 3, 5, 11.

    Args:
      policy: one of POLICIES. Two-tier is "C2MAB-V" with `allowed`; Always-k is "Fixed" with everything in
        `copies_of(params, k)`; Offline fixed is "Fixed" with `offline_set(...)`.
      reward_width, cost_width: a_mu, a_c. delta: None means 1/T.
      solver: of `relaxed_optimum`. rounding: of `round_relaxed`.
      order: of the cascade: "price", "index", "random", or, for C2MAB-V and Direct, "ucb" (descending) and "lcb_cost".
      cost_feedback: "observed" (F_t) or "action" (S_t).
      batch: B; a new decision at t = 1, 1 + B, ... (with draws.arrives: after B rounds whose feedback arrived).
      hold: "action" keeps S_t in between, "relaxed" keeps z and rounds it again.
      allowed: `[K]` bool. prior: see `initial_statistics`.
      start: "round_robin" plays ceil(K/N) rounds of N models in index order first (C2MAB-V and Direct).
      cardinality: of `integer_optimum`, for Direct. cucb_radius: "wang-chen", or "c2mabv" for the radius of C2MAB-V.
      thompson: "normal" or "beta". graded_update: "fraction" (wins += X) or "coin" (wins += 1 with probability X).
      fixed: `[K]` bool, the set of "Fixed".

    Returns:
      Dictionary of `[T]` arrays: reward r(S;mu), realised, spent (over F), spent_selected (over S), regret r* - r,
      alpha_regret, relaxed_regret, violation and violation_selected (hinges of the round), mean_spent and
      mean_spent_selected (running means), violation_mean (hinge of mean_spent), over_budget, num_selected,
      num_observed, best, best_relaxed, optimistic_reward r(S;ucb), shadow_price, feasible; and `[T, K]` arrays:
      selected, observed, relaxed, ucb, lcb (NaN where the policy has none), outcome, cost.
    """
    if policy not in POLICIES or hold not in ("action", "relaxed") or cost_feedback not in ("observed", "action"):
        raise ValueError((policy, hold, cost_feedback))
    reward, size, budget, rounds = params.reward, params.size, params.budget, draws.rounds
    K = np.shape(params.mu)[-1]
    price = np.asarray(segment(params, 1)[1] if params.price is None else params.price, float)
    allowed = np.ones(K, bool) if allowed is None else np.asarray(allowed, bool)
    num_allowed = int(allowed.sum())
    delta = 1 / rounds if delta is None else delta
    statistics = initial_statistics(K, prior)
    s = statistics

    scalars = ["reward", "realised", "spent", "spent_selected", "regret", "alpha_regret", "relaxed_regret", "violation"]
    scalars += ["violation_selected", "violation_mean", "mean_spent", "mean_spent_selected", "num_selected"]
    scalars += ["num_observed", "best", "best_relaxed", "optimistic_reward", "shadow_price"]
    run = {name: np.full(rounds, math.nan) for name in scalars}
    run |= {name: np.zeros(rounds, bool) for name in ("over_budget", "feasible")}
    run |= {name: np.zeros((rounds, K), bool) for name in ("selected", "observed")}
    run |= {name: np.full((rounds, K), math.nan) for name in ("relaxed", "ucb", "lcb", "outcome", "cost")}

    benchmarks, oracles = {}, {}
    held, held_relaxed, arrived = None, None, 0
    for t in range(1, rounds + 1):
        row = t - 1
        mu, cost = segment(params, t)
        available = np.ones(K, bool)
        if params.available_probability is not None:
            available = draws.available[row] < params.available_probability
        usable = available & allowed

        # Indices (Algorithm 1, lines 4 and 5).
        ucb, lcb = bounds(statistics, t, num_allowed, delta, reward_width, cost_width)
        relaxed, feasible = None, True

        # Decision (lines 6 and 7).
        if policy in ("C2MAB-V", "Direct"):
            if start == "round_robin" and t <= math.ceil(K / size):
                selected = mask_of([((t - 1) * size + i) % K for i in range(size)], K) & usable
            elif t == 1 or arrived >= batch or held is None:
                w = conditioned(ucb, draws.tie[row], cap, noise)
                if policy == "Direct":
                    selected, feasible = integer_optimum(reward, w, lcb, size, budget, usable, cardinality)
                else:
                    relaxed = relaxed_optimum(reward, w, lcb, size, budget, usable, solver)
                    selected = round_relaxed(relaxed, rounding, draws, t)
                held, held_relaxed, arrived = selected, relaxed, 0
            else:
                selected, relaxed = held, held_relaxed
                if hold == "relaxed" and policy == "C2MAB-V":
                    selected = round_relaxed(relaxed, rounding, draws, t)
                selected = selected & usable
        elif policy == "CUCB":
            index = [cucb_index(m, n, t) for m, n in zip(s.reward_mean, s.reward_pulls, strict=True)]
            index = ucb if cucb_radius == "c2mabv" else np.array(index)
            selected = top(index - noise * draws.tie[row], size, usable)
        elif policy == "Thompson":
            selected = top(thompson_sample(s.wins, s.losses, draws.theta[row], thompson), size, usable)
        elif policy == "Random":
            selected = top(-draws.subset[row], size, usable)
        elif policy == "EpsGreedy":
            if draws.explore[row] < epsilon(t, num_allowed):
                selected = top(-draws.subset[row], size, usable)
            else:
                w = conditioned(s.reward_mean, draws.tie[row], cap, noise)
                relaxed = relaxed_optimum(reward, w, s.cost_mean, size, budget, usable, solver)
                selected = round_relaxed(relaxed, rounding, draws, t)
        elif policy == "Fixed":
            selected = np.asarray(fixed, bool) & usable
        else:
            best = _benchmark(oracles, params, mu, cost, usable, solver)
            if policy == "OracleInteger":
                selected = best.best_set
            else:
                relaxed = best.relaxed
                selected = round_relaxed(relaxed, rounding, draws, t)

        # Cascade and feedback (line 8).
        priority = {"price": price, "index": np.zeros(K), "ucb": -ucb, "lcb_cost": lcb}.get(order)
        if order == "random":
            priority = draws.order[row]
        if priority is None or (order in ("ucb", "lcb_cost") and policy not in ("C2MAB-V", "Direct")):
            raise ValueError((order, policy))
        outcome, success, paid = round_outcome(params, draws, t)
        observed = queried(reward, selected, success, priority)

        # Measurement (spec 2.5), before anything is learned from the round.
        best = _benchmark(benchmarks, params, mu, cost, available, None)
        value = set_reward(reward, selected, mu)
        spent, spent_selected = float(paid[observed].sum()), float(paid[selected].sum())
        run["reward"][row], run["realised"][row] = value, realised_reward(reward, selected, outcome)
        run["spent"][row], run["spent_selected"][row] = spent, spent_selected
        run["best"][row], run["best_relaxed"][row] = best.best, best.best_relaxed
        run["regret"][row] = best.best - value
        run["alpha_regret"][row] = ALPHA[reward] * best.best - value
        run["relaxed_regret"][row] = best.best_relaxed - value
        run["violation"][row] = max(spent - budget, 0.0)
        run["violation_selected"][row] = max(spent_selected - budget, 0.0)
        run["over_budget"][row] = spent > budget
        run["mean_spent"][row] = run["spent"][:t].mean()
        run["mean_spent_selected"][row] = run["spent_selected"][:t].mean()
        run["violation_mean"][row] = max(run["mean_spent"][row] - budget, 0.0)
        run["num_selected"][row], run["num_observed"][row] = selected.sum(), observed.sum()
        run["selected"][row], run["observed"][row] = selected, observed
        run["outcome"][row], run["cost"][row] = outcome, paid
        if policy in ("C2MAB-V", "Direct"):
            run["ucb"][row], run["lcb"][row] = ucb, lcb
            run["optimistic_reward"][row] = set_reward(reward, selected, ucb)
        run["feasible"][row] = feasible if relaxed is None else relaxed.feasible
        if relaxed is not None:
            run["relaxed"][row], run["shadow_price"][row] = relaxed.z, relaxed.shadow_price

        # Update (line 9, Eq. 6).
        if draws.arrives is not None and not draws.arrives[row]:
            continue
        arrived += 1
        learn(statistics, observed, observed if cost_feedback == "observed" else selected, outcome, paid)
        for k in np.flatnonzero(observed):
            win = outcome[k] if graded_update == "fraction" else float(draws.graded_coin[row, k] < outcome[k])
            s.wins[k] += win
            s.losses[k] += 1 - win
    return run


def _benchmark(known, params, mu, cost, available, solver):
    """`benchmark` of one round, remembered per (means, available models)."""
    key = (mu.tobytes(), cost.tobytes(), available.tobytes())
    if key not in known:
        known[key] = benchmark(params.reward, mu, cost, params.size, params.budget, available, solver)
    return known[key]


# --- Metrics -----------------------------------------------------------------------------------------------------


def metrics(run, budget):
    """Numbers of a whole run and its running ratios.

    V_eq1: hinge of the mean cost (Eq. 1). V_inst, V_instS: mean per-round hinge over F_t, over S_t. ratio_inst,
    ratio_eq1, ratio_last `[T]`: mean reward over the mean per-round hinge, over the mean of Eq. 1 so far, over Eq. 1
    now; infinite where the denominator is 0. overestimation: sum of r(S;ucb) - r(S;mu).

    Source: Eqs. 1 and 2, Section 6 "Performance Metric"; spec 2.5.
    """
    rounds = np.arange(1, len(run["reward"]) + 1)

    def running_mean(values):
        return np.cumsum(values) / rounds

    def ratio(bottom):
        return np.divide(mean, bottom, out=np.full(len(mean), np.inf), where=bottom > 0)

    mean = running_mean(run["reward"])
    return {
        "mean_reward": float(mean[-1]),
        "V_eq1": max(float(np.mean(run["spent"])) - budget, 0.0),
        "V_eq1_selected": max(float(np.mean(run["spent_selected"])) - budget, 0.0),
        "V_inst": float(np.mean(run["violation"])),
        "V_instS": float(np.mean(run["violation_selected"])),
        "ratio_inst": ratio(running_mean(run["violation"])),
        "ratio_eq1": ratio(running_mean(run["violation_mean"])),
        "ratio_last": ratio(run["violation_mean"]),
        "regret": float(np.sum(run["regret"])),
        "alpha_regret": float(np.sum(run["alpha_regret"])),
        "relaxed_regret": float(np.sum(run["relaxed_regret"])),
        "overestimation": float(np.sum(run["optimistic_reward"] - run["reward"])),
        "fraction_over_budget": float(np.mean(run["over_budget"])),
        "pulls": run["observed"].sum(axis=0),
    }
