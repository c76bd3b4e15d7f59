"""COSMOS in plain float64 NumPy: the reference that the simulator is compared with.

Written from the paper ("Online Pandora's Box for Contextual LLM Cascading") and, for instances, baselines and estimators that it does not
have, from a description in words, without looking at the simulator. Loops, no tricks; "eq.", "Prop." and "Theorem" are the paper's.

Conventions. Boxes are 0..K-1. Period 0 is the free initial round: every box is opened, nothing is deployed or charged.
Periods 1..T are charged, and the search of period t sees the samples of periods 0..t-1 only. Draws are arrays indexed by
the period in which they are used (`run` lists them). Scores, costs and indices are in units of utility. Everything
about the world (`outcomes` and what it uses) takes any leading axes; the learner is one run, one period at a time.

Where the paper leaves a choice, the choice is an option of `run` (see `DEFAULTS`) or said in one comment.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

# --- Links ---------------------------------------------------------------------------------------------------------


class IndexLink(NamedTuple):
    """Lambda, its derivative, inverse (+-inf outside the range) and integral from 0."""

    value: callable
    slope: callable
    inverse: callable
    integral: callable
    saturates: bool


def _log_cosh(v):
    return np.logaddexp(v, -v) - math.log(2)


def index_link(name, iota0=0.8):
    """Lambda of A1: `identity` (never clipped), `tanh`, or `flat`: identity up to iota0, then tanh."""
    if name == "identity":
        return IndexLink(lambda u: u, lambda u: np.ones_like(u), lambda s: s, lambda u: u * u / 2, False)
    if name == "tanh":
        iota0 = 0.0
    elif name != "flat":
        raise ValueError(name)
    rest = 1 - iota0

    def value(u):
        size = np.abs(u)
        return np.where(size <= iota0, u, np.sign(u) * (iota0 + rest * np.tanh(np.maximum(size - iota0, 0) / rest)))

    def slope(u):
        return 1 - np.tanh(np.maximum(np.abs(u) - iota0, 0) / rest) ** 2

    def inverse(s):
        size = np.abs(s)
        inside = np.clip((size - iota0) / rest, 0, 1 - 1e-16)
        beyond = np.where(size >= 1, np.inf, iota0 + rest * np.arctanh(inside))
        return np.where(size <= iota0, s, np.sign(s) * beyond)

    def integral(u):
        size = np.abs(u)
        past = np.maximum(size - iota0, 0)
        return np.minimum(size, iota0) ** 2 / 2 + iota0 * past + rest**2 * _log_cosh(past / rest)

    return IndexLink(value, slope, inverse, integral, True)


class RewardLink(NamedTuple):
    """G, G', G^-1 and b with b' = G (for a probit G, b is only the potential of the quasi-score: 8.21)."""

    value: callable
    slope: callable
    inverse: callable
    potential: callable


def _density(s):
    return np.exp(-(np.asarray(s) ** 2) / 2) / math.sqrt(2 * math.pi)


REWARD_LINKS = {
    "logistic": RewardLink(expit, lambda s: expit(s) * expit(-s), logit, lambda s: np.logaddexp(0, s)),
    "probit": RewardLink(ndtr, _density, ndtri, lambda s: s * ndtr(s) + _density(s)),
    # Not clipped to [0, 1] in scores and decisions.
    "identity": RewardLink(lambda s: s, lambda s: np.ones_like(s), lambda p: p, lambda s: s * s / 2),
}

# --- Instances of the catalogue ------------------------------------------------------------------------------------

GROUP_PROBABILITY = np.array([0.40, 0.30, 0.15, 0.10, 0.04, 0.01])
LOW, HIGH = 0.10, 0.95  # PASSFAIL
JACKPOT, JACKPOT_CHANCE = 0.97, 0.01  # SPIKE


class Instance(NamedTuple):
    """Constants of one environment.

    rho: `[K, m]` index coefficients at cost weight 1. mean_cost, quantile, width: `[K]` at x = 0 (quantile and width are
    0 where the distribution has none). theta: `[d]`, empty with a known evaluator. spread: gamma. weight: lambda of 2.5.
    amplitude: of x_1 in the mean cost of HET. shift: `[K, d]` added to z. C_psi, C_phi2: bounds (the latter squared).
    """

    distribution: str
    rho: np.ndarray
    mean_cost: np.ndarray
    quantile: np.ndarray
    width: np.ndarray
    link: str
    iota0: float
    reward_link: str
    theta: np.ndarray
    spread: float
    weight: float
    amplitude: float
    shift: np.ndarray
    C_psi: float
    C_phi2: float


def loc_constants(K, m):
    """(c `[K]`, q `[K]`, w `[K]`, rho `[K, m]`) of LOC."""
    a = np.arange(K)
    f = a / (K - 1)
    c, q = 0.015 * 5**f, 0.7 - 0.4 * f
    j = np.arange(1, m)
    v = np.cos(1.3 * a[:, None] + 2.1 * j + 0.7 * a[:, None] * j)
    slopes = 0.20 * v / np.abs(v).sum(1, keepdims=True) if m > 1 else v
    return c, q, 2 * c / (1 - q) ** 2, np.column_stack([0.52 + 0.05 * np.cos(2.4 * a), slopes])


def evaluator_coefficients(d):
    """`[d]` theta*_i = 2 h_i / |h|, h_i = (-1)^i (1 + i / d), i from 0."""
    i = np.arange(d)
    h = (-1.0) ** i * (1 + i / d)
    return 2 * h / np.linalg.norm(h)


def instance(
    distribution, K=3, m=3, d=0, link=None, iota0=0.8, reward_link="logistic", weight=1.0, gap=0.0, spread=0.5, shift=None
):
    """The instance `distribution` of table 2.4; d = 0 is the known evaluator. `gap` is Delta of SAFE_RISKY.

    GROUP, SAFE_RISKY, TWOBOX and FROZEN_X fix their own K and m.
    """
    theta = evaluator_coefficients(d) if d else np.zeros(0)
    link = link or ("tanh" if distribution == "TANH" else "identity")
    amplitude = 0.0
    if distribution in ("LOC", "HET", "SPIKE", "TANH", "MISSPEC"):
        c, q, w, rho = loc_constants(K, m)
        if distribution == "HET":
            amplitude = 0.20 if K == 10 else 0.25
        if distribution == "SPIKE":  # the width at x = 0
            w = _spike_width(index_link(link, iota0).value(rho[:, 0]), c, q)
    elif distribution == "PASSFAIL":
        rho = loc_constants(K, m)[3]
        rho = np.column_stack([0.78 + 0.4 * (rho[:, 0] - 0.52), rho[:, 1:] / 2])
        c = (0.25 + 0.5 * np.arange(K) / (K - 1)) * (HIGH - rho[:, 0])
        q = w = np.zeros(K)
    elif distribution == "GROUP":
        K, m = 3, 6
        c, q, w, _ = loc_constants(K, m)
        a, g = np.arange(K)[:, None], np.arange(m)
        rho = 0.52 + 0.15 * np.cos(2.4 * a + 1.7 * g + 0.9 * a * g)
    elif distribution == "SAFE_RISKY":
        K, m = 2, 1
        c, q, w = np.array([0.05, 0.05]), np.array([0.0, 0.5]), np.array([0.1, 0.4])
        rho = np.array([[0.5], [0.5 - gap]])
    elif distribution == "TWOBOX":
        if d:
            raise ValueError("TWOBOX has a known evaluator")
        K, m = 2, 1
        c, q, w = np.array([0.5, 0.01]), np.zeros(2), np.zeros(2)
        rho = np.array([[0.5], [0.9]])
    elif distribution == "FROZEN_X":
        K, m = 3, 2
        c, q, w, rho = loc_constants(K, 1)
        rho = np.column_stack([rho[:, 0], np.full(K, 0.1)])
        theta, reward_link = np.array([0.1, 1.0]), "identity"
    else:
        raise ValueError(distribution)
    size = len(theta)
    return Instance(
        distribution, rho, c, q, w, link, iota0, reward_link, theta, spread, weight, amplitude,
        np.zeros((K, size)) if shift is None else np.asarray(shift, float),
        1.0 if distribution == "GROUP" else math.sqrt(m), size + 3.0,
    )  # fmt: skip


def context(x):
    """psi = (1, x_1, .., x_{m-1})."""
    x = np.asarray(x, float)
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)


def group_context(u):
    """psi = e_g of GROUP, g by inverse distribution function of the uniforms u."""
    g = np.searchsorted(np.cumsum(GROUP_PROBABILITY)[:-1], np.asarray(u, float), side="right")
    return np.eye(len(GROUP_PROBABILITY))[g]


def frozen_context(u, T):
    """`[T + 1, 2]` contexts of FROZEN_X: x ~ Bernoulli(1/2) once, u < 1/2 gives x = 1. Source: Remark 5.2."""
    return np.tile([1.0, float(u < 0.5)], (T + 1, 1))


def draw_contexts(inst, rng, T):
    """`[T + 1, m]` contexts of the instance's own distribution."""
    if inst.distribution == "GROUP":
        return group_context(rng.random(T + 1))
    if inst.distribution == "FROZEN_X":
        return frozen_context(rng.random(), T)
    return context(rng.uniform(-1, 1, (T + 1, inst.rho.shape[1] - 1)))


# --- The distribution of the scores at a context; reservation indices -------------------------------------------------------
# A score distribution is a list of pieces (probability, lowest value, width), each broadcast to `[..., K]`; width 0 is an atom.


def _spike_width(sigma, c, q):
    """w(x) of SPIKE: 2 (c - k0 (0.97 - sigma)) / ((1 - k0) (1 - q)^2)."""
    return 2 * (c - JACKPOT_CHANCE * (JACKPOT - sigma)) / ((1 - JACKPOT_CHANCE) * (1 - q) ** 2)


def unit_index(inst, psi):
    """`[..., K]` sigma* at cost weight 1: Lambda(rho.psi), plus the bend of MISSPEC."""
    sigma = index_link(inst.link, inst.iota0).value(psi @ inst.rho.T)
    if inst.distribution == "MISSPEC":
        sigma = sigma + 0.05 * np.cos(3 * psi[..., 1:2] + np.arange(len(inst.rho)))
    return sigma


def pass_probability(inst, psi):
    """`[..., K]` p_a(x) of PASSFAIL."""
    K = len(inst.rho)
    return 0.25 + 0.5 * np.arange(K) / (K - 1) + 0.1 * psi[..., 1:2]


def mean_costs(inst, psi):
    """`[..., K]` exact E[c | x], before the weight lambda."""
    shape = np.broadcast_shapes((*psi.shape[:-1], 1), inst.mean_cost.shape)
    if inst.distribution == "HET":
        return inst.mean_cost * (1 + inst.amplitude * psi[..., 1:2])
    if inst.distribution == "PASSFAIL":
        return pass_probability(inst, psi) * (HIGH - unit_index(inst, psi))
    return np.broadcast_to(inst.mean_cost, shape)


def widths(inst, psi):
    """`[..., K]` width of the uniform piece."""
    if inst.distribution == "HET":
        return 2 * mean_costs(inst, psi) / (1 - inst.quantile) ** 2
    if inst.distribution == "SPIKE":
        return _spike_width(unit_index(inst, psi), inst.mean_cost, inst.quantile)
    return np.broadcast_to(inst.width, np.broadcast_shapes((*psi.shape[:-1], 1), inst.width.shape))


def score_distribution(inst, psi):
    """The pieces of P(M_a | x) for every box."""
    sigma = unit_index(inst, psi)
    one, zero = np.ones_like(sigma), np.zeros_like(sigma)
    if inst.distribution == "TWOBOX":
        return [(one * [0.0, 0.9], zero, zero), (one * [1.0, 0.1], one, zero)]
    if inst.distribution == "PASSFAIL":
        p = pass_probability(inst, psi)
        return [(1 - p, LOW * one, zero), (p, HIGH * one, zero)]
    w = widths(inst, psi)
    low = sigma - w * inst.quantile
    if inst.distribution == "SPIKE":
        return [(JACKPOT_CHANCE * one, JACKPOT * one, zero), ((1 - JACKPOT_CHANCE) * one, low, w)]
    return [(one, low, w)]


def distribution_mean(pieces):
    """E[M]."""
    return sum(p * (low + w / 2) for p, low, w in pieces)


def distribution_cdf(pieces, z):
    """P(M <= z)."""
    return sum(p * np.where(w > 0, np.clip((z - low) / np.where(w > 0, w, 1), 0, 1), z >= low) for p, low, w in pieces)


def distribution_excess(pieces, sigma):
    """E[(M - sigma)^+], the left side of eq. (2)."""
    total = 0.0
    for p, low, w in pieces:
        above = np.clip(low + w - sigma, 0, None)
        inside = above**2 / (2 * np.where(w > 0, w, 1))
        total = total + p * np.where((w > 0) & (sigma > low), inside, np.maximum(low + w / 2 - sigma, 0))
    return total


def index_bisection(pieces, cost, halvings=40, low=-1.0, high=1.0):
    """Root of eq. (2) by bisection on [low, high]."""
    shape = np.broadcast(cost, *(part for piece in pieces for part in piece)).shape
    low, high = np.full(shape, float(low)), np.full(shape, float(high))
    for _ in range(halvings):
        middle = (low + high) / 2
        too_low = distribution_excess(pieces, middle) > cost
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return (low + high) / 2


def index_uniform(low, w, cost):
    """Index of Uniform[low, low + w]."""
    return np.where(cost <= w / 2, low + w - np.sqrt(np.maximum(2 * w * cost, 0)), low + w / 2 - cost)


def index_two_point(low, high, p, cost):
    """Index of {low w.p. 1 - p, high w.p. p}."""
    sigma = high - cost / p
    return np.where(sigma >= low, sigma, (1 - p) * low + p * high - cost)


def index_discrete(values, probabilities, cost):
    """Index of a discrete distribution, exactly: try each stretch between sorted atoms."""
    order = np.argsort(values)
    v, p = np.asarray(values, float)[order], np.asarray(probabilities, float)[order]
    for k in range(len(v)):  # sigma at or below v[k] and above v[k - 1]: atoms k.. are active
        sigma = (p[k:] @ v[k:] - cost) / p[k:].sum()
        if sigma <= v[k] and (k == 0 or sigma >= v[k - 1]):
            return float(sigma)
    raise ArithmeticError("no stretch holds the root")


def optimal_index(inst, psi):
    """`[..., K]` sigma* of eq. (2) when costs are multiplied by the weight lambda.

    At lambda = 1 it is Lambda(rho.psi) by construction; else the closed form of the distribution (SPIKE: bisection).
    """
    if inst.weight == 1.0:
        return unit_index(inst, psi)
    pieces, cost = score_distribution(inst, psi), inst.weight * mean_costs(inst, psi)
    if inst.distribution == "TWOBOX":
        return np.where(np.arange(2) == 0, 1 - cost, index_two_point(0.0, 1.0, 0.1, cost))
    if inst.distribution == "PASSFAIL":
        return index_two_point(LOW, HIGH, pass_probability(inst, psi), cost)
    if inst.distribution == "SPIKE":
        return index_bisection(pieces, cost, halvings=60, low=-9.0)
    _, low, w = pieces[0]
    return index_uniform(low, w, cost)


def index_coefficients(inst):
    """`[K, m]` true rho at the weight lambda, or NaN where the index is no longer Lambda(rho.psi)."""
    if inst.weight == 1.0:
        return inst.rho
    constant_width = inst.distribution in ("LOC", "GROUP", "SAFE_RISKY", "FROZEN_X")
    if inst.distribution == "TWOBOX":
        return optimal_index(inst, np.ones(1))[:, None]
    if not constant_width or inst.link != "identity":
        return np.full(inst.rho.shape, np.nan)
    move = index_uniform(-inst.width * inst.quantile, inst.width, inst.weight * inst.mean_cost)
    shift = move[:, None] * (np.ones(inst.rho.shape[1]) if inst.distribution == "GROUP" else np.eye(inst.rho.shape[1])[0])
    return inst.rho + shift


# --- One period of the world ---------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What nature has drawn: sigma*, M, c and mean costs `[..., K]`, phi `[..., K, d]`; costs are without lambda."""

    sigma: np.ndarray
    score: np.ndarray
    cost: np.ndarray
    mean_cost: np.ndarray
    phi: np.ndarray


def outcomes(inst, psi, U, L, z=None, jackpot=None):
    """Outcomes of all boxes from the draws.

    U in [0, 1) drives the score, L in [-1, 1] the rest of the cost. An atom's coin is `U < p` (PASSFAIL, TWOBOX: success)
    and `jackpot < 0.01` (SPIKE). TWOBOX has no spread of costs; PASSFAIL has l = L / 2.
    """
    sigma, bar = optimal_index(inst, psi), mean_costs(inst, psi)
    length = (2 * U - 1) / 2 + L / 2
    if inst.distribution == "TWOBOX":
        M, length = (np.array([1.0, 0.1]) > U).astype(float), np.zeros_like(U)
        M[..., 0] = 1.0
    elif inst.distribution == "PASSFAIL":
        M, length = np.where(pass_probability(inst, psi) > U, HIGH, LOW), L / 2
    else:
        M = unit_index(inst, psi) + widths(inst, psi) * (U - inst.quantile)
        if inst.distribution == "SPIKE":
            M = np.where(jackpot < JACKPOT_CHANCE, JACKPOT, M)
    cost = bar * (1 + inst.spread * length)
    return Outcome(sigma, M, cost, bar, features(inst, psi, M, z))


def features(inst, psi, M, z):
    """`[..., K, d]` phi with G(theta*.phi) = M exactly."""
    theta = inst.theta
    if theta.size == 0:
        return np.zeros((*M.shape, 0))
    if inst.distribution == "FROZEN_X":
        x = np.broadcast_to(psi[..., 1:2], M.shape)
        return np.stack([x, M - 0.1 * x], axis=-1)
    if inst.reward_link != "identity":
        M = np.clip(M, 1e-4, 1 - 1e-4)
    along = theta / (theta @ theta)
    z = z + inst.shift
    return REWARD_LINKS[inst.reward_link].inverse(M)[..., None] * along + z - (z @ theta)[..., None] * along


def noisy_reward(inst, M, coin):
    """r of a deployed score: 1[coin < M], or M + min(0.2, M) (2 coin - 1) with the identity link."""
    if inst.reward_link == "identity" and inst.theta.size:
        return M + min(0.2, M) * (2 * coin - 1)
    return float(coin < M)


def ceil_power(T, power):
    """ceil(T^power), safe where T^power is an integer."""
    return math.ceil(round(T**power, 9))


def offline_evaluator(inst, psi, U, L, z, box, coin, jackpot=None, eta0=1.0):
    """theta of an evaluator fitted before: one exact fit on the rewards of n pairs; `box` `[n]` says whose output was deployed."""
    world, rows = outcomes(inst, psi, U, L, z, jackpot), np.arange(len(box))
    r = np.array([noisy_reward(inst, M, c) for M, c in zip(world.score[rows, box], coin)])
    return fit_glm(world.phi[rows, box], r, eta0, REWARD_LINKS[inst.reward_link])


def make_draws(inst, rng, T, block=None):
    """A dictionary of draws for `run`, from a NumPy generator (a convenience for tests)."""
    (K, _m), d = inst.rho.shape, inst.theta.size
    block = block or ceil_power(T, 1 / 6)
    return {
        "psi": draw_contexts(inst, rng, T),
        "U": rng.random((T + 1, K)),
        "L": rng.uniform(-1, 1, (T + 1, K)),
        "z": rng.uniform(-1, 1, (T + 1, K, d)),
        "coin": rng.random(T + 1),
        "jackpot": rng.random((T + 1, K)),
        "eps": rng.random(T + 1),
        "priority": rng.random((T + 1, K)),
        "explore": rng.integers(0, block, T // block + 1),
        "boot": rng.exponential(size=(T + 1, K, 20)),
        "normal": rng.standard_normal((T + 1, K)),
        "normal_theta": rng.standard_normal((T + 1, d)),
    }


# --- Search --------------------------------------------------------------------------------------------------------


def search(priority, threshold, score, deploy_score=None, ties=None):
    """(opened `[K]` bool, deployed, order of opening): the loop of Algorithm 1.

    Boxes are taken by falling priority, equal ones by `ties` (`[K]`, the least is first; ids by default). Before a box that
    is not the first, stop if the best opened score is at least its threshold; the first stop ends the search, whatever
    later thresholds are. Of the opened boxes the best `deploy_score` is deployed, by `ties` among equals. A masked box has
    priority = threshold = -inf.
    """
    K = len(priority)
    ties = range(K) if ties is None else ties
    deploy_score = score if deploy_score is None else deploy_score
    opened, sequence, best = np.zeros(K, bool), [], -math.inf
    for a in sorted(range(K), key=lambda a: (-priority[a], ties[a])):
        if sequence and best >= threshold[a]:
            break
        opened[a] = True
        sequence.append(a)
        best = max(best, score[a])
    deployed = min(sequence, key=lambda a: (-deploy_score[a], ties[a]))
    return opened, deployed, sequence


def stage_thresholds(rank, tau):
    """`[K]` threshold per box of a fixed order. tau: a number, or `[K - 1]`: tau[k] is for stopping after k + 1 openings."""
    K = len(rank)
    tau = np.broadcast_to(np.asarray(tau, float), (K - 1,)) if np.ndim(tau) == 0 else np.asarray(tau, float)
    return np.array([math.inf if rank[a] == 0 else tau[rank[a] - 1] for a in range(K)])


def cost_rank(inst):
    """`[K]` place of each box by increasing mean cost (at x = 0), ties to the lower id."""
    rank = np.empty(len(inst.mean_cost), int)
    rank[np.argsort(inst.mean_cost, kind="stable")] = np.arange(len(rank))
    return rank


def dynamic_program(boxes):
    """Value of the optimal search of discrete boxes [(values, probabilities, mean cost)] by enumeration.

    At least one box is opened; the opened set and the best score are the state.
    """

    def value(closed, best):
        options = [best] if best is not None else []
        for a in closed:
            rest = tuple(b for b in closed if b != a)
            values, probabilities, cost = boxes[a]
            after = sum(p * value(rest, v if best is None else max(v, best)) for v, p in zip(values, probabilities))
            options.append(after - cost)
        return max(options)

    return value(tuple(range(len(boxes))), None)


def expected_max_min(boxes):
    """E max_a min(M_a, sigma_a) of discrete boxes. Source: eq. (3)."""
    sigma = [index_discrete(*box) for box in boxes]
    total = 0.0
    for choice in itertools.product(*(range(len(box[0])) for box in boxes)):
        probability = math.prod(box[1][k] for box, k in zip(boxes, choice))
        total += probability * max(min(box[0][k], s) for box, k, s in zip(boxes, choice, sigma))
    return total


def search_value(boxes, priority, threshold):
    """Exact utility of `search` with given priorities and thresholds on discrete boxes."""
    total = 0.0
    for choice in itertools.product(*(range(len(box[0])) for box in boxes)):
        probability = math.prod(box[1][k] for box, k in zip(boxes, choice))
        score = np.array([box[0][k] for box, k in zip(boxes, choice)])
        opened, deployed, _ = search(priority, threshold, score)
        total += probability * (score[deployed] - sum(box[2] for a, box in enumerate(boxes) if opened[a]))
    return total


def oracle_value(inst, psi):
    """U*(x) = E max_a min(M_a, sigma*_a) at one context: top - int_bottom^top prod_a F_a(z) dz. Source: eq. (3).

    The integrand is a polynomial of degree K between the ends of the pieces, so Gauss-Legendre is exact.
    """
    sigma, pieces = optimal_index(inst, psi), score_distribution(inst, psi)
    ends = np.concatenate([sigma] + [end for _, low, w in pieces for end in (low, low + w)])
    top, bottom = sigma.max(), min(ends.min(), sigma.min())
    nodes, weights = np.polynomial.legendre.leggauss(len(sigma) // 2 + 2)
    integral = 0.0
    for left, right in itertools.pairwise(np.unique(ends[ends <= top])):
        for node, weight in zip(nodes, weights):
            z = (left + right) / 2 + (right - left) / 2 * node
            integral += (right - left) / 2 * weight * np.prod(np.where(z >= sigma, 1.0, distribution_cdf(pieces, z)))
    return float(max(top, bottom) - integral)


def context_grid(inst, nodes=5):
    """(psi `[N, m]`, weights `[N]`): the context distribution as a product Gauss-Legendre rule (GROUP, FROZEN_X: exact)."""
    m = inst.rho.shape[1]
    if inst.distribution == "GROUP":
        return np.eye(m), GROUP_PROBABILITY
    if inst.distribution == "FROZEN_X":
        return np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([0.5, 0.5])
    x, w = np.polynomial.legendre.leggauss(nodes)
    grid = np.array(list(itertools.product(x, repeat=m - 1))).reshape(nodes ** (m - 1), m - 1)
    weights = np.array([math.prod(row) for row in itertools.product(w / 2, repeat=m - 1)])
    return context(grid), weights


def single_values(inst, psi):
    """`[..., K]` E[M_a - lambda c_a | x]."""
    return distribution_mean(score_distribution(inst, psi)) - inst.weight * mean_costs(inst, psi)


def best_single(inst):
    """The box with the largest mean net score. Source: B1 (exact where the net score is a polynomial of x)."""
    psi, weights = context_grid(inst, 5 if inst.rho.shape[1] <= 6 else 2)
    return int(np.argmax(weights @ single_values(inst, psi)))


def static_index(inst):
    """`[K]` intercept-only index Lambda(rho_a0) (GROUP, without intercept: the mean over groups)."""
    rho = index_coefficients(inst)
    if inst.distribution == "GROUP":
        return rho @ GROUP_PROBABILITY
    return index_link(inst.link, inst.iota0).value(rho[:, 0])


def frugal_utilities(inst, grid, psi, U, L, jackpot=None):
    """`[len(grid)]` mean utility of one threshold for all over offline draws, one threshold at a time."""
    world = outcomes(inst, psi, U, L, np.zeros((*U.shape, inst.theta.size)), jackpot)
    order = np.argsort(cost_rank(inst))
    M, c = world.score[:, order], inst.weight * world.cost[:, order]
    values = []
    for tau in grid:
        running, best, utility = np.ones(len(M), bool), np.full(len(M), -np.inf), np.zeros(len(M))
        for k in range(M.shape[1]):
            running &= best < tau
            utility -= np.where(running, c[:, k], 0)
            best = np.where(running, np.maximum(best, M[:, k]), best)
        values.append(np.mean(utility + best))
    return np.array(values)


def tune_frugal(inst, psi, U, L, jackpot=None):
    """(tau, mean utility): the best single threshold of the grid .30, .31, .., .90."""
    grid = np.arange(30, 91) / 100
    values = frugal_utilities(inst, grid, psi, U, L, jackpot)
    return float(grid[np.argmax(values)]), float(values.max())


# --- Index estimation ----------------------------------------------------------------------------------------------
# A box's data are psi `[n, m]`, M `[n]` (or plug-in scores) and c `[n]`.


def index_losses(rho, psi, M, c, link):
    """`[n]` losses int_0^{rho.psi} [c - (M - Lambda(v))^+] dv. Source: eq. (8), (22)."""
    # A score below the link's range is above no index: any edge below u and 0 is as good.
    u, edge = psi @ rho, np.maximum(link.inverse(M), -1e3)

    def primitive(v):
        return M * v - link.integral(v)

    return c * u - primitive(np.minimum(u, edge)) + primitive(np.minimum(0.0, edge))


def index_moments(rho, psi, M, c, link):
    """`[n]` c - (M - Lambda(rho.psi))^+. Source: eq. (7)."""
    return c - np.maximum(M - link.value(psi @ rho), 0)


def index_gradient(rho, psi, M, c, link):
    """`[m]` gradient of the summed loss. Source: eq. (9)."""
    return psi.T @ index_moments(rho, psi, M, c, link)


def index_curvature(rho, psi, M, link, floor=0.0):
    """`[m, m]` generalised Hessian, with the indicator at least `floor`."""
    u = psi @ rho
    weight = np.maximum((link.value(u) < M).astype(float), floor) * link.slope(u)
    return psi.T @ (weight[:, None] * psi)


def shorten(v, radius):
    """Radial projection on the ball."""
    size = np.linalg.norm(v)
    return v if size <= radius else v * (radius / size)


def _minimise_convex(gradient, curvature, start, tolerance, steps=1000):
    """Minimiser of a C^1 strongly convex function: Newton directions, then bisection of the slope along them."""
    x = np.array(start, float)
    for _ in range(steps):
        g = gradient(x)
        if np.abs(g).max() <= tolerance:
            return x
        direction = -np.linalg.solve(curvature(x), g)
        step = 1.0
        if gradient(x + direction) @ direction > tolerance * np.abs(direction).max():  # overshoots: minimum on the line
            low, high = 0.0, 1.0
            for _ in range(60):
                step = (low + high) / 2
                low, high = (step, high) if gradient(x + step * direction) @ direction < 0 else (low, step)
        x = x + step * direction
    raise ArithmeticError(f"no convergence: gradient {np.abs(gradient(x)).max():.2e}")


def fit_index(psi, M, c, link, start=None, ridge=1e-4, radius=2.0):
    """argmin over |rho| <= radius of the summed loss + ridge/2 |rho|^2, to convergence. Source: eq. (10), (23).

    If the ball binds, the multiplier of |rho|^2 / 2 is found by bisection.
    """
    start = np.zeros(psi.shape[1]) if start is None else start
    tolerance = 1e-12 * (1 + len(M))

    def minimiser(penalty, start):
        def gradient(rho):
            return index_gradient(rho, psi, M, c, link) + penalty * rho

        def curvature(rho):
            return index_curvature(rho, psi, M, link) + max(penalty, 1e-9) * np.eye(len(rho))

        return _minimise_convex(gradient, curvature, start, tolerance)

    rho = minimiser(ridge, start)
    if np.linalg.norm(rho) <= radius:
        return rho
    low, high = ridge, max(1.0, 2 * ridge)
    while np.linalg.norm(minimiser(high, rho)) > radius:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        rho = minimiser(middle, rho)
        low, high = (middle, high) if np.linalg.norm(rho) > radius else (low, middle)
    return shorten(minimiser(high, rho), radius)


def empty_box(m, d):
    """Statistics of one box: the window of (psi, M, c, phi) and the frozen H0, g0, C0."""
    return {"window": [], "H0": np.zeros((m, m)), "g0": np.zeros(m), "C0": np.zeros((m, d))}


def window_add(box, sample, rho, theta, W, link, G):
    """Append a sample; what then exceeds W leaves, oldest first, frozen at the current rho and theta.

    G None: the score M of the sample is final (known evaluator). `box` is changed in place.
    """
    box["window"].append(sample)
    while len(box["window"]) > W:
        psi, M, c, phi = box["window"].pop(0)
        if G is not None:
            s = theta @ phi
            M, w = float(G.value(s)), float(G.slope(s))
        u = psi @ rho
        level, slope = float(link.value(u)), float(link.slope(u))
        h = float(level < M)
        box["H0"] += h * slope * np.outer(psi, psi)
        if G is None:
            box["g0"] += psi * (c - h * (M - level) - h * slope * u)
        else:
            box["g0"] += psi * (c - h * (M - w * s - level) - h * slope * u)
            box["C0"] += h * w * np.outer(psi, phi)


def window_fit(box, rho, theta, link, G, ridge=1e-4, radius=2.0):
    """The minimum of window loss + frozen part + ridge, found from rho, then shortened."""
    psi = np.array([sample[0] for sample in box["window"]])
    c = np.array([sample[2] for sample in box["window"]])
    M = np.array([sample[1] if G is None else G.value(theta @ sample[3]) for sample in box["window"]])
    linear = box["g0"] - (box["C0"] @ theta if G is not None else 0)

    def gradient(r):
        return index_gradient(r, psi, M, c, link) + box["H0"] @ r + linear + ridge * r

    def hessian(r):
        return index_curvature(r, psi, M, link) + box["H0"] + max(ridge, 1e-9) * np.eye(len(r))

    return shorten(_minimise_convex(gradient, hessian, rho, 1e-11 * (1 + len(box["window"]) + np.abs(linear).max())), radius)


def stream_update(A, rho, psi, M, c, link, floor=0.1, radius=2.0, weight=1.0):
    """(A, rho) after one sample; `weight` is a bootstrap weight of gradient and curvature."""
    u = psi @ rho
    level = link.value(u)
    A = A + weight * max(float(level < M), floor) * link.slope(u) * np.outer(psi, psi)
    rho = rho - np.linalg.solve(A, psi) * weight * (c - max(M - level, 0.0))
    return A, shorten(rho, radius)


def frozen_normal_equations(psi, M, c, A0):
    """rho of (A0 I + sum h psi psi') rho = sum psi (h M - c), h frozen at the previous rho: 4.3.4 without floor."""
    m = psi.shape[1]
    matrix, target, rho = A0 * np.eye(m), np.zeros(m), np.zeros(m)
    for row, score, cost in zip(psi, M, c):
        h = float(score > row @ rho)
        matrix += h * np.outer(row, row)
        target += row * (h * score - cost)
        rho = np.linalg.solve(matrix, target)
    return rho


def fit_gmm(psi, M, c, link, start=None, iterations=5, radius=2.0):
    """Gauss-Newton on g'Wg, g the mean vector moment, W = (sum psi psi' / n)^-1. Source: paper 4.1.

    Least squares takes the shortest step where the Jacobian is singular.
    """
    n, m = psi.shape
    rho = np.zeros(m) if start is None else np.array(start, float)
    root = np.linalg.cholesky(np.linalg.pinv(psi.T @ psi / n) + 1e-12 * np.eye(m)).T  # W = root' root
    for _ in range(iterations):
        mean = index_gradient(rho, psi, M, c, link) / n
        jacobian = index_curvature(rho, psi, M, link) / n
        rho = rho - np.linalg.lstsq(root @ jacobian, root @ mean, rcond=1e-10)[0]
    return shorten(rho, radius)


def ogd_update(rho, psi, M, c, link, count, radius=2.0):
    """Projected gradient step 1 / sqrt(count) on the loss."""
    return shorten(rho - psi * (c - max(M - link.value(psi @ rho), 0.0)) / math.sqrt(count), radius)


def location_index(mean, residuals, cost, halvings=30):
    """Root of mean_i (mean + e_i - sigma)^+ = cost on [-1, 1]."""
    low, high = -1.0, 1.0
    for _ in range(halvings):
        middle = (low + high) / 2
        if np.mean(np.maximum(mean + np.asarray(residuals) - middle, 0)) > cost:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def plug_in_perturbation(rho_hat, rho, theta_hat, theta, psi, phi, c, link, G):
    """(-J(rho_hat), sum (psi.(rho_hat - rho))^2, sum ((theta_hat - theta).phi)^2) of Lemma 5.3, eq. (24)."""
    fitted, true = G.value(phi @ theta_hat), G.value(phi @ theta)

    def gap(r):
        return (index_losses(r, psi, fitted, c, link) - index_losses(r, psi, true, c, link)).sum()

    quadratic, error = psi @ (rho_hat - rho), phi @ (theta_hat - theta)
    return gap(rho) - gap(rho_hat), float(quadratic @ quadratic), float(error @ error)


# --- Evaluator -----------------------------------------------------------------------------------------------------


def glm_score(theta, phi, r, eta0, G):
    """`[d]` sum (r - G(theta.phi)) phi - eta0 theta. Source: eq. (19)."""
    return phi.T @ (r - G.value(phi @ theta)) - eta0 * theta


def fit_glm(phi, r, eta0, G, start=None):
    """Root of eq. (19)'s score without the ball: the ridge-penalised (quasi) maximum likelihood estimate."""
    d = phi.shape[1]

    def curvature(theta):
        return phi.T @ (G.slope(phi @ theta)[:, None] * phi) + eta0 * np.eye(d)

    start = np.zeros(d) if start is None else start
    return _minimise_convex(lambda theta: -glm_score(theta, phi, r, eta0, G), curvature, start, 1e-12 * (1 + len(r)))


def _ball_quadratic(Q, p, radius):
    """argmin of x'Qx/2 - p.x over |x| <= radius."""
    x = np.linalg.solve(Q, p)
    if np.linalg.norm(x) <= radius:
        return x
    low, high = 0.0, 1.0
    while np.linalg.norm(np.linalg.solve(Q + high * np.eye(len(p)), p)) > radius:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        x = np.linalg.solve(Q + middle * np.eye(len(p)), p)
        low, high = (middle, high) if np.linalg.norm(x) > radius else (low, middle)
    return x


def project_glm(theta, phi, r, eta0, G, radius, steps=200):
    """argmin over the ball of the score's norm in Phi^-1: Gauss-Newton steps with the ball kept. Source: eq. (19)."""
    if np.linalg.norm(theta) <= radius:
        return theta
    theta = shorten(theta, radius)
    inverse = np.linalg.inv(eta0 * np.eye(len(theta)) + phi.T @ phi)

    def value(x):
        score = glm_score(x, phi, r, eta0, G)
        return score @ inverse @ score

    for _ in range(steps):
        score = glm_score(theta, phi, r, eta0, G)
        jacobian = -(phi.T @ (G.slope(phi @ theta)[:, None] * phi) + eta0 * np.eye(len(theta)))
        goal = _ball_quadratic(jacobian @ inverse @ jacobian, jacobian @ inverse @ (jacobian @ theta - score), radius)
        step = 1.0
        while step > 1e-6 and value(theta + step * (goal - theta)) > value(theta):
            step /= 2
        new = theta + step * (goal - theta)
        if np.abs(new - theta).max() < 1e-14:
            break
        theta = new
    return theta


def irls_update(H, z, theta, phi, r, G, radius=4.0):
    """(H, z, theta) after one deployed output: frozen IRLS, then shortened."""
    s = theta @ phi
    w = G.slope(s)
    H, z = H + w * np.outer(phi, phi), z + phi * (w * s + r - G.value(s))
    return H, z, shorten(np.linalg.solve(H, z), radius)


# --- Radii and bounds ----------------------------------------------------------------------------------------------


class Constants(NamedTuple):
    """Constants of the assumptions, for the theory radii. d_B: diameter of the index ball. alpha: bound on |theta*|."""

    kappa: float = 0.3
    mu1: float = 1.0
    iota: float = 0.8
    d_B: float = 4.0
    L: float = 1.0
    mu_low: float = 0.05
    gamma0: float = 1.0
    alpha: float = 4.0


def log_complexity(n, T, m, K, C_psi, delta, k):
    """Gamma_at = m log(1 + 2 d_B C T) + log(Q + 1) + log(6 K T / delta). Source: Prop. 8.8, 11.2."""
    Q = math.ceil(math.log2(1 + n * min(9 * k.iota**2, k.d_B**2 * C_psi**2)))
    return m * math.log(1 + 2 * k.d_B * C_psi * T) + math.log(Q + 1) + math.log(6 * K * T / delta)


def theory_radius_known(n, T, m, K, C_psi, eta1, delta, k=Constants()):
    """B*_at. Source: eq. (51)."""
    km = k.kappa * k.mu1
    inner = 144 / km + 2 * min(2 * k.iota, C_psi * k.d_B) + 6
    gamma = log_complexity(n, T, m, K, C_psi, delta, k)
    return math.sqrt(8 / (3 * km) * inner * gamma + 40 / (3 * km) + 1 / 3 + eta1 * k.d_B**2)


def _reward_radius(t, d, C_phi2, eta0, odds, k):
    """(2 / min(1, mu)) (gamma0 sqrt(d log(1 + t C^2 / eta0) + 2 log odds) + sqrt(eta0) alpha)."""
    root = math.sqrt(d * math.log(1 + t * C_phi2 / eta0) + 2 * math.log(odds))
    return 2 / min(1, k.mu_low) * (k.gamma0 * root + math.sqrt(eta0) * k.alpha)


def theory_beta(t, d, C_phi2, eta0, delta, k=Constants()):
    """beta_t. Source: eq. (61)."""
    return _reward_radius(t, d, C_phi2, eta0, 2 / delta, k)


def theory_radius_unknown(n, t, T, m, K, d, C_psi, C_phi2, eta1, eta0, delta, trace, k=Constants()):
    """B_at, a sum of two roots. Source: Prop. 11.2."""
    km = k.kappa * k.mu1
    inner = 144 / km + 2 * min(2 * k.iota, C_psi * k.d_B) + 6
    gamma = log_complexity(n, T, m, K, C_psi, delta, k)
    first = math.sqrt(4 * gamma / km * inner + 20 / km + 0.5 + eta1 * k.d_B**2)
    C_t = _reward_radius(t, d, C_phi2, eta0, 3 / delta, k) ** 2
    return first + 2 * math.sqrt(2) * k.L / km * math.sqrt(C_t * trace)


def practical_radius(b, c_p, t, T, m, K, d, log_inverse_delta, trace):
    """sqrt(b^2 (m log T + log(K T / delta)) + c_p^2 (d log t + log(1 / delta)) trace)."""
    index = m * math.log(T) + math.log(K * T) + log_inverse_delta
    return math.sqrt(b**2 * index + c_p**2 * (d * math.log(max(t, 1)) + log_inverse_delta) * trace)


def practical_beta(c_r, t, d, C_phi2, eta0, log_inverse_delta):
    """c_r sqrt(d log(1 + t C^2 / eta0) + 2 log(2 / delta))."""
    return c_r * math.sqrt(d * math.log(1 + t * C_phi2 / eta0) + 2 * (math.log(2) + log_inverse_delta))


def plug_in_trace(Phi, Psi):
    """tr(Phi^-1 Psi)."""
    return float(np.trace(np.linalg.solve(Phi, Psi))) if len(Phi) else 0.0


def regret_bound_known(T, m, K, C_psi, eta1, k=Constants()):
    """2 L B*_T K sqrt(T (1 + C^2 / eta1) m log(1 + T C^2 / (eta1 m))), delta = 1/T. Source: eq. (58)."""
    B = theory_radius_known(T, T, m, K, C_psi, eta1, 1 / T, k)
    return 2 * k.L * B * K * math.sqrt(T * potential_bound(T, m, C_psi**2, eta1))


def regret_bound_unknown(T, m, K, d, C_psi, C_phi2, eta1, eta0, polylog, k=Constants(), printed=True):
    """Eq. (86) with C_mu (81), C_sigma (83), tau_0, delta = 1 / sqrt(T).

    printed: Gamma with log(2Q + 2) and C with log(6 / delta), as in the paper's (83); else 3.5's shorter n -> T, t -> T.
    """
    delta, km = T**-0.5, k.kappa * k.mu1
    inner = 144 / km + 2 * min(2 * k.iota, C_psi * k.d_B) + 6
    gamma = log_complexity(T, T, m, K, C_psi, delta, k) + (math.log(2) if printed else 0)
    first = math.sqrt(4 * gamma / km * inner + 20 / km + 0.5 + eta1 * k.d_B**2)
    C_a = _reward_radius(T, d, C_phi2, eta0, (6 if printed else 3) / delta, k) ** 2
    C_sigma = 2 * k.L * (first + 8 * math.sqrt(2) * k.L / km * math.sqrt(C_phi2 * C_a * polylog))
    C_mu = 2 * k.L * theory_beta(T, d, C_phi2, eta0, delta, k)
    C_mu *= math.sqrt((1 + C_phi2 / eta0) * math.log(1 + T * C_phi2 / (eta0 * d)))
    tau0 = 100 * C_phi2 * polylog * math.log(6 * T * K * d / delta)
    rest = 4 * k.L * k.gamma0 * math.sqrt(eta0) * k.alpha + 4 * K + 2
    index = K * C_sigma * math.sqrt(T * potential_bound(T, m, C_psi**2, eta1))
    return (C_mu * math.sqrt(d) + rest) * math.sqrt(T) + 2 * K * tau0 + index


def potential_bound(n, m, C2, eta):
    """(1 + C^2 / eta) m log(1 + n C^2 / (eta m)): bound of the elliptical potential. Source: paper Sec. 12."""
    return (1 + C2 / eta) * m * math.log(1 + n * C2 / (eta * m))


def eta_rule(d, m, K, corrected=False):
    """(eta1, eta0) of Theorem 5.5; corrected: with the factor sqrt(d) kept."""
    ratio = d / (math.sqrt(d) + K * math.sqrt(m)) if corrected else d / (K * math.sqrt(m))
    return max(m**0.5, (d * m) ** 0.25, d ** (1 / 3)), min(ratio, ratio ** (2 / 3))


# --- One run -------------------------------------------------------------------------------------------------------

DEFAULTS = {
    "kind": "cosmos",  # or one of BASELINES
    "estimator": "window",  # exact, window, stream, gmm
    "evaluator": None,  # known, exact, stream, offline; None: known if the instance has no theta, else exact
    "radius": "practical",  # practical, theory, bootstrap, thompson
    "b": 0.10, "c_p": 0.03, "c_r": 0.30, "eta1": 1.0, "eta0": 1.0,
    "horizon": None,  # T of the logarithms; None: the length of the run
    "log_inverse_delta": None,  # None: log T with a known (or offline) evaluator, log(T) / 2 else
    "constants": Constants(),
    "R_B": 2.0, "R_theta": 4.0, "theta_ball": "radial",  # or exact: eq. (19) itself, with evaluator exact
    "ridge": 1e-4, "W": 32, "floor": 0.1, "A0": 0.1,
    "refit_every": 1,  # r of 4.3.2: refit while t <= 20, then when r divides t
    "warm": 0, "deploy_optimism": True,
    "explore": None,  # eps: epsilon-greedy, etc: explore then commit
    "eps0": 1.0, "N0": None,
    "z": 2.0, "copies": 20, "boot_floor": 0.0, "boot_ddof": 0,  # 3.6; boot_floor: b of the radius that is a floor
    "v": 0.1,  # spread of Thompson sampling
    "theta_offline": None,  # of an evaluator fitted before
    "full_information": False,  # unopened outputs are shown afterwards
    "tau": 0.53,  # of frugal and random cascades
    "alpha": 0.5, "lam": 1.0,  # LinUCB; ridge of the location family
    "block": None, "ogd_initial": False,  # exploration once per block: length; is period 0 the first exploration?
    "ring": 64, "halvings": 30, "residual": "after",  # location family: residual with the ridge fit after or before the sample
}  # fmt: skip

ORACLES = ("oracle", "static_index", "best_single", "ctx_single_oracle")
BASELINES = (*ORACLES, "query_all", "frugal", "random_cascade", "linucb", "ogd_explore", "location_family")


def policy(name, **options):
    """Options of a policy by the name, on top of which `options` may be laid."""
    zero = {"b": 0.0, "c_p": 0.0, "c_r": 0.0}
    named = {
        "cosmos": {},
        "greedy": zero,
        "greedy_warm": {**zero, "warm": 10},
        "eps_greedy": {**zero, "explore": "eps"},
        "etc": {**zero, "explore": "etc"},
        "cosmos_theory": {"radius": "theory"},
        "thompson": {"radius": "thompson", "estimator": "stream"},
        "bootstrap": {"radius": "bootstrap", "estimator": "stream", "warm": 10},
        **{kind: {"kind": kind} for kind in BASELINES},
    }
    return {**named[name], **options}


def _start(inst, o):
    """The state before period 0: estimates 0, designs eta I."""
    (K, m), d = inst.rho.shape, inst.theta.size
    return {
        "n": np.zeros(K, int),
        "rho": np.zeros((K, m)),
        "V": np.tile(o["eta1"] * np.eye(m), (K, 1, 1)),
        "data": [{"psi": [], "M": [], "c": [], "phi": []} for _ in range(K)],
        "box": [empty_box(m, d) for _ in range(K)],
        "A": np.tile(o["A0"] * np.eye(m), (K, 1, 1)),
        "boot_rho": np.zeros((K, o["copies"], m)),
        "boot_A": np.tile(o["A0"] * np.eye(m), (K, o["copies"], 1, 1)),
        "theta": np.zeros(d) if o["theta_offline"] is None else np.array(o["theta_offline"], float),
        "Phi": o["eta0"] * np.eye(d),
        "Psi": np.zeros((K, d, d)),
        "H": o["eta0"] * np.eye(d),
        "z": np.zeros(d),
        "phi_deployed": [],
        "r": [],
        "explorations": 0,
        "arm_V": np.tile(o["lam"] * np.eye(m), (K, 1, 1)),
        "arm_y": np.zeros((K, m)),
        "residuals": [[] for _ in range(K)],
        "cost_sum": np.zeros(K),
    }


def _norms(matrices, v):
    """`[K]` |v|_{A_k^-1}."""
    return np.array([math.sqrt(max(v @ np.linalg.solve(A, v), 0.0)) for A in matrices])


def _forced(o, t, T, draws):
    """Is everything opened in period t whatever is seen?"""
    if t <= o["warm"]:
        return True
    if o["explore"] == "eps":
        return bool(draws["eps"][t] < min(1.0, o["eps0"] * t ** (-1 / 3)))
    if o["explore"] == "etc":
        return t <= (o["N0"] or ceil_power(T, 2 / 3))
    if o["kind"] == "ogd_explore":
        block = o["block"] or ceil_power(T, 1 / 6)
        return (t - 1) % block == draws["explore"][(t - 1) // block]
    return False


def _teaching(o, seen, t, T, explored):
    """`[K]` the boxes whose outputs of period t the index estimates learn from: radii shrink with these."""
    if o["kind"] == "ogd_explore":
        return seen & bool(explored)
    return seen & (not _frozen(o, t, T))


def _frozen(o, t, T):
    """Do index estimates stay as they are?"""
    return o["explore"] == "etc" and t > (o["N0"] or ceil_power(T, 2 / 3))


def _radii(inst, o, s, t, T, traces):
    """`[K]` radii B_at of the confidence bounds. Source: eq. (15), (27)."""
    (K, m), d = inst.rho.shape, inst.theta.size
    online, k = o["evaluator"] in ("exact", "stream"), o["constants"]
    log_delta = o["log_inverse_delta"]
    if o["kind"] == "cosmos" and o["radius"] == "theory":
        delta = math.exp(-log_delta)
        if not online:
            return np.array([theory_radius_known(n, T, m, K, inst.C_psi, o["eta1"], delta, k) for n in s["n"]])
        sizes = (t, T, m, K, d, inst.C_psi, inst.C_phi2, o["eta1"], o["eta0"], delta)
        return np.array([theory_radius_unknown(n, *sizes, trace, k) for n, trace in zip(s["n"], traces)])
    b, c_p = o["b"], o["c_p"] if online and o["kind"] == "cosmos" else 0.0
    if o["kind"] == "cosmos" and o["radius"] == "bootstrap":
        b = o["boot_floor"]  # with the plug-in term only if a floor is asked for
        c_p = c_p if b else 0.0
    return np.array([practical_radius(b, c_p, t, T, m, K, d, log_delta, trace) for trace in traces])


def _indices(inst, o, s, psi, t, T, traces, draws):
    """(u `[K]` before the link, B `[K]`, |psi|_{V^-1} `[K]`) of the learners with indices."""
    norms = _norms(s["V"], psi)
    B = _radii(inst, o, s, t, T, traces)
    centre = s["rho"] @ psi
    if o["kind"] == "ogd_explore":
        return centre, 0 * B, norms
    if o["kind"] == "location_family":
        index = []
        for a in range(len(centre)):
            mean = np.linalg.solve(s["arm_V"][a], s["arm_y"][a]) @ psi
            index.append(location_index(mean, s["residuals"][a], s["cost_sum"][a] / s["n"][a], o["halvings"]))
        return np.array(index) + B * norms, B, norms
    if o["radius"] == "bootstrap":
        spread = (s["boot_rho"] @ psi).std(axis=1, ddof=o["boot_ddof"])
        return centre + np.maximum(o["z"] * spread, B * norms), B, norms
    if o["radius"] == "thompson":  # one normal per box: 11.3
        return centre + o["v"] * norms * draws["normal"][t], 0 * B, norms
    return centre + B * norms, B, norms


def _scores(inst, o, s, world, t, draws):
    """(score for the search, score by the mean, beta): M, or G of the estimate plus its bonus. Source: eq. (21)."""
    if o["evaluator"] == "known" or o["kind"] in ("oracle", "static_index"):
        return world.score, world.score, 0.0
    G, phi, d = REWARD_LINKS[inst.reward_link], world.phi, inst.theta.size
    mean, beta = G.value(phi @ s["theta"]), 0.0
    if o["evaluator"] == "offline" or o["kind"] != "cosmos":
        return mean, mean, beta
    if o["radius"] == "thompson":  # theta + v C e, C the lower Cholesky factor of Phi^-1
        theta = s["theta"] + o["v"] * np.linalg.cholesky(np.linalg.inv(s["Phi"])) @ draws["normal_theta"][t]
        return G.value(phi @ theta), mean, beta
    if o["radius"] == "theory":
        beta = theory_beta(t, d, inst.C_phi2, o["eta0"], math.exp(-o["log_inverse_delta"]), o["constants"])
    else:
        beta = practical_beta(o["c_r"], t, d, inst.C_phi2, o["eta0"], o["log_inverse_delta"])
    norms = np.array([math.sqrt(max(f @ np.linalg.solve(s["Phi"], f), 0.0)) for f in phi])
    return G.value(phi @ s["theta"] + beta * norms), mean, beta


def _thresholds(inst, o, u):
    """`[K]` level that the best score must reach to leave a box closed.

    Known evaluator: min(Lambda(u), 1), so that a score of 1 stops. Else Lambda(u), and never stop where a link that
    saturates is within 1e-6 of 1.
    """
    link = index_link(inst.link, inst.iota0)
    level = u if o["kind"] == "location_family" else link.value(u)
    if o["evaluator"] == "known":
        return np.minimum(level, 1.0)
    return np.where(link.saturates & (level >= 1 - 1e-6), np.inf, level)


def _fixed(inst, o, s, psi, world, t, draws):
    """(priority, threshold, u) of the policies without reservation indices of their own."""
    K, nothing = len(inst.rho), np.full(len(inst.rho), -np.inf)
    kind = o["kind"]
    if kind == "oracle":
        return world.sigma, world.sigma
    if kind == "static_index":
        return static_index(inst), static_index(inst)
    if kind == "best_single":
        return np.where(np.arange(K) == best_single(inst), 1.0, 0.0), nothing
    if kind == "ctx_single_oracle":
        return single_values(inst, psi), nothing
    if kind == "query_all":
        return np.zeros(K), np.full(K, np.inf)
    if kind == "frugal":
        rank = cost_rank(inst)
        return -rank.astype(float), stage_thresholds(rank, o["tau"])
    if kind == "random_cascade":
        return draws["priority"][t], np.full(K, float(o["tau"]))
    if kind == "linucb":
        estimate = np.array([np.linalg.solve(V, y) @ psi for V, y in zip(s["arm_V"], s["arm_y"])])
        return estimate + o["alpha"] * _norms(s["arm_V"], psi), nothing
    raise ValueError(kind)


def _learn_evaluator(inst, o, s, phi, r):
    """theta_hat_t and Phi_t from the deployed output of period t. Source: eq. (19), (20)."""
    G = REWARD_LINKS[inst.reward_link]
    s["Phi"] = s["Phi"] + np.outer(phi, phi)
    s["phi_deployed"].append(phi)
    s["r"].append(r)
    if o["evaluator"] == "stream":
        s["H"], s["z"], s["theta"] = irls_update(s["H"], s["z"], s["theta"], phi, r, G, o["R_theta"])
    elif o["evaluator"] == "exact":
        rows, rewards = np.array(s["phi_deployed"]), np.array(s["r"])
        theta = fit_glm(rows, rewards, o["eta0"], G, s["theta"])
        if o["theta_ball"] == "exact":
            theta = project_glm(theta, rows, rewards, o["eta0"], G, o["R_theta"])
        s["theta"] = shorten(theta, o["R_theta"])


def _learn_indices(inst, o, s, psi, world, seen, t, T, draws, explored):
    """rho_hat_{a,t+1} from the boxes seen in period t, with scores of theta_hat_t."""
    link, G = index_link(inst.link, inst.iota0), REWARD_LINKS[inst.reward_link]
    known = o["evaluator"] == "known"
    fixed = None if known or o["evaluator"] == "offline" else G  # scores of stored samples do not move
    M = world.score if known else G.value(world.phi @ s["theta"])
    cost = inst.weight * world.cost
    frozen = _frozen(o, t, T)
    K = len(seen)

    if o["kind"] == "location_family":
        for a in np.flatnonzero(seen):
            before = np.linalg.solve(s["arm_V"][a], s["arm_y"][a])
            s["arm_V"][a] += np.outer(psi, psi)
            s["arm_y"][a] += M[a] * psi
            after = np.linalg.solve(s["arm_V"][a], s["arm_y"][a])
            residual = M[a] - (after if o["residual"] == "after" else before) @ psi
            s["residuals"][a] = [*s["residuals"][a], residual][-o["ring"] :]
            s["cost_sum"][a] += cost[a]
    elif o["kind"] == "ogd_explore":
        if explored:
            s["explorations"] += 1
            for a in range(K):
                s["rho"][a] = ogd_update(s["rho"][a], psi, M[a], cost[a], link, s["explorations"], o["R_B"])
    elif o["kind"] == "cosmos":
        for a in np.flatnonzero(seen):
            for name, item in zip(("psi", "M", "c", "phi"), (psi, M[a], cost[a], world.phi[a])):
                s["data"][a][name].append(item)
            if o["estimator"] == "window":
                sample = (psi, M[a], cost[a], world.phi[a])
                window_add(s["box"][a], sample, s["rho"][a], s["theta"], o["W"], link, fixed)
            elif o["estimator"] == "stream" and not frozen:
                s["A"][a], s["rho"][a] = stream_update(
                    s["A"][a], s["rho"][a], psi, M[a], cost[a], link, o["floor"], o["R_B"]
                )
            if o["radius"] == "bootstrap":
                for i in range(o["copies"]):
                    s["boot_A"][a, i], s["boot_rho"][a, i] = stream_update(
                        s["boot_A"][a, i], s["boot_rho"][a, i], psi, M[a], cost[a], link,
                        o["floor"], o["R_B"], draws["boot"][t, a, i],
                    )  # fmt: skip
        due = t <= 20 or t % o["refit_every"] == 0
        if o["estimator"] != "stream" and due and not frozen:
            # Every score moves with theta_hat, so every box is refitted; else only what was seen, since the last time.
            for a in range(K) if fixed is not None or o["refit_every"] > 1 else np.flatnonzero(seen):
                s["rho"][a] = _refit(o, s, a, link, fixed)

    for a in np.flatnonzero(_teaching(o, seen, t, T, explored)):
        s["V"][a] += np.outer(psi, psi)
        s["Psi"][a] += np.outer(world.phi[a], world.phi[a])
        s["n"][a] += 1


def _refit(o, s, a, link, G):
    """rho_hat of box a from all its data. G None: stored scores are final."""
    data, rho, theta = s["data"][a], s["rho"][a], s["theta"]
    if o["estimator"] == "window":
        return window_fit(s["box"][a], rho, theta, link, G, o["ridge"], o["R_B"])
    psi, c = np.array(data["psi"]), np.array(data["c"])
    M = np.array(data["M"]) if G is None else G.value(np.array(data["phi"]) @ theta)
    if o["estimator"] == "exact":
        return fit_index(psi, M, c, link, rho, o["ridge"], o["R_B"])
    if o["estimator"] == "gmm":
        return fit_gmm(psi, M, c, link, rho, radius=o["R_B"])
    raise ValueError(o["estimator"])


def _learn_arms(inst, o, s, psi, world, opened, deployed, r, t):
    """Per-arm ridge of LinUCB on M - c (known) or r - c (unknown; nothing in period 0, which has no reward)."""
    cost = inst.weight * world.cost
    if o["evaluator"] == "known":
        chosen, y = np.flatnonzero(opened), world.score - cost
    else:
        chosen, y = ([deployed] if t else []), r - cost
    for a in chosen:
        s["arm_V"][a] += np.outer(psi, psi)
        s["arm_y"][a] += y[a] * psi


def regrets(inst, world, opened, deployed):
    """(amortised, mean_cost, realised, oracle's opened set, oracle's choice) of one period."""
    sigma, M = world.sigma, world.score
    best_opened, best, _ = search(sigma, sigma, M)

    def utility(mask, choice, price):
        return M[choice] - inst.weight * price[mask].sum()

    excess = np.maximum(M - sigma, 0)
    amortised = np.minimum(M, sigma).max() - (M[deployed] - excess[opened].sum())
    by_mean = utility(best_opened, best, world.mean_cost) - utility(opened, deployed, world.mean_cost)
    realised = utility(best_opened, best, world.cost) - utility(opened, deployed, world.cost)
    return amortised, by_mean, realised, best_opened, best


def run(inst, options, draws, T=None):
    """One run of one policy, period by period; returns a dictionary of arrays whose row t is period t.

    Args:
      inst: an `Instance`.
      options: a dictionary over `DEFAULTS` (see `policy`).
      draws: dictionary of arrays, row t used in period t: psi `[T+1, m]`, U `[T+1, K]` in [0, 1), L `[T+1, K]` in
        [-1, 1]; z `[T+1, K, d]` and coin `[T+1]` (with features), jackpot `[T+1, K]` (SPIKE), eps `[T+1]`, priority
        `[T+1, K]`, explore `[blocks]` offset in 0..block-1, boot `[T+1, K, copies]`, normal `[T+1, K]`
        and normal_theta `[T+1, d]`; ties and ties_linucb `[T+1, K]` order equal boxes, by id where they are absent.
      T: last period; the length of psi by default.

    Returns:
      Row 0 is the free round: all opened, deployed -1, flows 0. `rho_hat`, `theta_hat`, `u`, `B`, `norm`, `trace`, `beta`,
      `n`, `mu_opt` of row t are those that the search of period t used; "state" is what is left after period T.
    """
    o = {**DEFAULTS, **options}
    unknown_options = set(options) - set(DEFAULTS)
    if unknown_options:
        raise ValueError(unknown_options)
    (K, m), d = inst.rho.shape, inst.theta.size
    T = len(draws["psi"]) - 1 if T is None else T
    horizon = T if o["horizon"] is None else o["horizon"]
    if o["evaluator"] is None:
        o["evaluator"] = "exact" if d else "known"
    online = o["evaluator"] in ("exact", "stream")
    if o["log_inverse_delta"] is None:
        o["log_inverse_delta"] = math.log(horizon) * (0.5 if online else 1.0)
    with_indices = o["kind"] in ("cosmos", "ogd_explore", "location_family")
    learns = with_indices or o["kind"] == "linucb"
    link, rho_true, s = index_link(inst.link, inst.iota0), index_coefficients(inst), _start(inst, o)

    shapes = {
        "opened": (K,), "seen": (K,), "deployed": (), "reward": (), "noisy_reward": (), "cost": (), "queries": (),
        "regret": (), "regret_mean_cost": (), "regret_realised": (), "oracle_opened": (K,), "oracle_deployed": (),
        "u": (K,), "B": (K,), "norm": (K,), "sigma_opt": (K,), "sigma": (K,), "priority": (K,), "threshold": (K,),
        "M": (K,), "c": (K,), "mean_cost": (K,), "phi": (K, d), "mu_opt": (K,), "mu_mean": (K,), "beta": (),
        "trace": (K,), "n": (K,), "rho_hat": (K, m), "theta_hat": (d,), "rho_error": (K,), "theta_error": (),
        "lambda_min": (), "optimistic": (), "optimistic_score": (), "bound": (), "violation": (), "forced": (),
        "potential": (K,), "reward_potential": (),
    }  # fmt: skip
    flags = ("opened", "seen", "oracle_opened", "optimistic", "optimistic_score", "violation", "forced")
    out = {name: np.full((T + 1, *shape), np.nan) for name, shape in shapes.items()}
    for name in flags:
        out[name] = np.zeros(out[name].shape, bool)
    for name in ("deployed", "oracle_deployed", "queries", "n"):
        out[name] = np.zeros(out[name].shape, int)

    for t in range(T + 1):
        psi = draws["psi"][t]
        world = outcomes(inst, psi, draws["U"][t], draws["L"][t], draws["z"][t] if d else None, _row(draws, "jackpot", t))
        traces = np.array([plug_in_trace(s["Phi"], Psi) if online else 0.0 for Psi in s["Psi"]])
        row = {
            "sigma": world.sigma, "M": world.score, "c": world.cost, "mean_cost": world.mean_cost, "phi": world.phi,
            "n": s["n"], "trace": traces, "rho_hat": s["rho"], "theta_hat": s["theta"],
            "rho_error": np.linalg.norm(s["rho"] - rho_true, axis=1),
            "theta_error": np.linalg.norm(s["theta"] - inst.theta),
            "lambda_min": np.linalg.eigvalsh(s["Phi"])[0] if d else np.nan,
        }  # fmt: skip
        explored = _forced(o, t, horizon, draws) if t else o["ogd_initial"]

        if t == 0:  # 8.1: all opened, none deployed, uncharged
            opened, deployed = np.ones(K, bool), -1
            row |= {"deployed": -1, "oracle_deployed": -1, "forced": True}
            row |= dict.fromkeys(("reward", "noisy_reward", "cost", "regret", "regret_mean_cost", "regret_realised"), 0.0)
        else:
            score, mean, beta = _scores(inst, o, s, world, t, draws)
            if with_indices:
                u, B, norms = _indices(inst, o, s, psi, t, horizon, traces, draws)
                priority, threshold = u, _thresholds(inst, o, u)
                if explored:
                    threshold = np.full(K, np.inf)
                sigma_opt = u if o["kind"] == "location_family" else link.value(u)
                row |= {"u": u, "B": B, "norm": norms, "sigma_opt": sigma_opt}
            else:
                priority, threshold = _fixed(inst, o, s, psi, world, t, draws)
                sigma_opt = priority if o["kind"] in ("oracle", "static_index") else np.full(K, np.nan)
            ties = _row(draws, {"linucb": "ties_linucb"}.get(o["kind"], "ties"), t) if learns else None
            opened, deployed, _ = search(priority, threshold, score, score if o["deploy_optimism"] else mean, ties)
            amortised, by_mean, realised, best_opened, best = regrets(inst, world, opened, deployed)
            # Theorem 3.3 path by path: only where the search itself stopped, and by the optimistic score.
            bound = score[deployed] - world.score[deployed] + (sigma_opt - world.sigma)[opened].sum()
            optimistic = bool(np.all(sigma_opt >= world.sigma))
            optimistic_score = bool(np.all(score >= world.score))
            applies = optimistic and optimistic_score and o["deploy_optimism"] and not explored
            r = noisy_reward(inst, world.score[deployed], draws["coin"][t]) if d else world.score[deployed]
            row |= {
                "deployed": deployed, "reward": world.score[deployed], "noisy_reward": r, "cost": world.cost[opened].sum(),
                "queries": opened.sum(), "regret": amortised, "regret_mean_cost": by_mean, "regret_realised": realised,
                "oracle_opened": best_opened, "oracle_deployed": best, "priority": priority, "threshold": threshold,
                "mu_opt": score, "mu_mean": mean, "beta": beta, "bound": bound, "forced": explored,
                # What is reported leaves room for rounding.
                "optimistic": bool(np.all(sigma_opt >= world.sigma - 1e-5)),
                "optimistic_score": bool(np.all(score >= world.score - 1e-5)),
                "violation": applies and amortised > bound + 1e-9,
            }  # fmt: skip
        seen = np.ones(K, bool) if o["full_information"] else opened
        teaching = _teaching(o, seen, t, horizon, explored)
        row |= {"opened": opened, "seen": seen, "potential": np.where(teaching, _norms(s["V"], psi) ** 2, 0.0)}
        row["reward_potential"] = 0.0
        if online and t:
            f = world.phi[deployed]
            row["reward_potential"] = f @ np.linalg.solve(s["Phi"], f)
        for name, value in row.items():
            out[name][t] = value

        if online and t:
            _learn_evaluator(inst, o, s, world.phi[deployed], r)
        if o["kind"] == "linucb":
            _learn_arms(inst, o, s, psi, world, seen, deployed, r if t else 0.0, t)
        _learn_indices(inst, o, s, psi, world, seen, t, horizon, draws, explored)

    return {**out, "state": s, "options": o}


def _row(draws, name, t):
    return draws[name][t] if name in draws else None
