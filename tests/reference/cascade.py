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
    """G, G' and G^-1."""

    value: callable
    slope: callable
    inverse: callable


REWARD_LINKS = {
    "logistic": RewardLink(expit, lambda s: expit(s) * expit(-s), logit),
    "probit": RewardLink(ndtr, lambda s: np.exp(-(np.asarray(s) ** 2) / 2) / math.sqrt(2 * math.pi), ndtri),
    "identity": RewardLink(lambda s: s, np.ones_like, lambda p: p),  # Not clipped to [0, 1] in scores and decisions.
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
    return np.append(math.inf, np.broadcast_to(tau, len(rank) - 1))[rank]


def cost_rank(inst):
    """`[K]` place of each box by increasing mean cost (at x = 0), ties to the lower id."""
    return np.argsort(np.argsort(inst.mean_cost, kind="stable"))


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
    """`[K]` index at the mean request."""
    grid, weights = context_grid(inst, 2)
    return optimal_index(inst, weights @ grid)


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
    """Makes the statistics of one box: the window of (psi, M, c, phi) and the frozen H0, g0, C0."""
    return {"window": [], "H0": np.zeros((m, m)), "g0": np.zeros(m), "C0": np.zeros((m, d))}


def window_add(box, sample, rho, theta, W, link, G):
    """Appends a sample. The oldest samples beyond W leave the window and are frozen at the current rho and theta.

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


def location_index(mean, residuals, cost):
    """Root of mean_i (mean + e_i - sigma)^+ = cost on [-1, 1]."""
    low, high = -1.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        too_low = np.mean(np.maximum(mean + np.asarray(residuals) - middle, 0)) > cost
        low, high = (middle, high) if too_low else (low, middle)
    return (low + high) / 2


# --- Evaluator -----------------------------------------------------------------------------------------------------


def fit_glm(phi, r, eta0, G, start=None):
    """Root `[d]` of eq. (19)'s score without the ball: the ridge-penalised (quasi) maximum likelihood estimate."""
    ridge = eta0 * np.eye(phi.shape[1])

    def gradient(theta):
        return phi.T @ (G.value(phi @ theta) - r) + ridge @ theta

    def curvature(theta):
        return phi.T @ (G.slope(phi @ theta)[:, None] * phi) + ridge

    return _minimise_convex(gradient, curvature, np.zeros(phi.shape[1]) if start is None else start, 1e-12 * (1 + len(r)))


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


def _inner(C_psi, k):
    return 144 / (k.kappa * k.mu1) + 2 * min(2 * k.iota, C_psi * k.d_B) + 6


def theory_radius_known(n, T, m, K, C_psi, eta1, delta, k=Constants()):
    """B*_at. Source: eq. (51)."""
    km, gamma = k.kappa * k.mu1, log_complexity(n, T, m, K, C_psi, delta, k)
    return math.sqrt(8 / (3 * km) * _inner(C_psi, k) * gamma + 40 / (3 * km) + 1 / 3 + eta1 * k.d_B**2)


def _reward_radius(t, d, C_phi2, eta0, odds, k):
    """(2 / min(1, mu)) (gamma0 sqrt(d log(1 + t C^2 / eta0) + 2 log odds) + sqrt(eta0) alpha)."""
    root = math.sqrt(d * math.log(1 + t * C_phi2 / eta0) + 2 * math.log(odds))
    return 2 / min(1, k.mu_low) * (k.gamma0 * root + math.sqrt(eta0) * k.alpha)


def theory_beta(t, d, C_phi2, eta0, delta, k=Constants()):
    """beta_t. Source: eq. (61)."""
    return _reward_radius(t, d, C_phi2, eta0, 2 / delta, k)


def _first_root(n, T, m, K, C_psi, eta1, delta, k):
    km, gamma = k.kappa * k.mu1, log_complexity(n, T, m, K, C_psi, delta, k)
    return math.sqrt(4 * gamma / km * _inner(C_psi, k) + 20 / km + 0.5 + eta1 * k.d_B**2)


def theory_radius_unknown(n, t, T, m, K, d, C_psi, C_phi2, eta1, eta0, delta, trace, k=Constants()):
    """B_at, a sum of two roots. Source: Prop. 11.2."""
    C_t = _reward_radius(t, d, C_phi2, eta0, 3 / delta, k) ** 2
    second = 2 * math.sqrt(2) * k.L / (k.kappa * k.mu1) * math.sqrt(C_t * trace)
    return _first_root(n, T, m, K, C_psi, eta1, delta, k) + second


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


def regret_bound_unknown(T, m, K, d, C_psi, C_phi2, eta1, eta0, polylog, k=Constants()):
    """Eq. (86) with C_mu (81), C_sigma (83), tau_0, delta = 1 / sqrt(T); Gamma and C as in the radii, which are below those of (83)."""
    delta, km = T**-0.5, k.kappa * k.mu1
    C_a = _reward_radius(T, d, C_phi2, eta0, 3 / delta, k) ** 2
    first = _first_root(T, T, m, K, C_psi, eta1, delta, k)
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
    "kind": "cosmos",  # or a baseline
    "estimator": "window",  # exact, window, stream, gmm
    "evaluator": None,  # known, exact, stream, offline; None: known if the instance has no theta, else exact
    "radius": "practical",  # practical, theory, bootstrap, thompson
    "b": 0.10, "c_p": 0.03, "c_r": 0.30, "eta1": 1.0, "eta0": 1.0,
    "horizon": None,  # T of the logarithms; None: the length of the run
    "constants": Constants(),
    "R_B": 2.0, "R_theta": 4.0,
    "ridge": 1e-4, "W": 32, "floor": 0.1, "A0": 0.1,
    "refit_every": 1,  # r of 4.3.2: refit while t <= 20, then when r divides t
    "warm": 0, "deploy_optimism": True,
    "explore": None,  # eps: epsilon-greedy, etc: explore then commit
    "eps0": 1.0,
    "z": 2.0, "copies": 20, "boot_floor": 0.0,  # 3.6; boot_floor: b of the radius that is a floor
    "v": 0.1,  # spread of Thompson sampling
    "theta_offline": None,  # of an evaluator fitted before
    "full_information": False,  # unopened outputs are shown afterwards
    "tau": 0.53,  # of frugal and random cascades
    "alpha": 0.5, "lam": 1.0,  # LinUCB; ridge of the location family
}  # fmt: skip


def _start(inst, o):
    """The state before period 0: estimates 0, designs eta I."""
    (K, m), d = inst.rho.shape, inst.theta.size
    return {
        "n": np.zeros(K, int),
        "rho": np.zeros((K, m)),
        "V": np.tile(o["eta1"] * np.eye(m), (K, 1, 1)),
        "data": [[] for _ in range(K)],
        "box": [empty_box(m, d) for _ in range(K)],
        "A": np.tile(o["A0"] * np.eye(m), (K, 1, 1)),
        "boot_rho": np.zeros((K, o["copies"], m)),
        "boot_A": np.tile(o["A0"] * np.eye(m), (K, o["copies"], 1, 1)),
        "theta": np.zeros(d) if o["theta_offline"] is None else np.array(o["theta_offline"], float),
        "Phi": o["eta0"] * np.eye(d),
        "Psi": np.zeros((K, d, d)),
        "H": o["eta0"] * np.eye(d),
        "z": np.zeros(d),
        "pairs": [],
        "explorations": 0,
        "arm_V": np.tile(o["lam"] * np.eye(m), (K, 1, 1)),
        "arm_y": np.zeros((K, m)),
        "residuals": [[] for _ in range(K)],
        "cost_sum": np.zeros(K),
    }


def _norms(matrices, vectors):
    """`[K]` |v|_{A^-1} of each matrix and vector; a single one of either serves for all."""
    solved = np.linalg.solve(matrices, vectors[..., None])[..., 0]
    return np.sqrt(np.maximum((vectors * solved).sum(axis=-1), 0.0))


def _forced(o, t, draws):
    """Tells whether period t opens every box whatever is seen."""
    if t <= o["warm"]:
        return t > 0
    if o["explore"] == "eps":
        return bool(draws["eps"][t] < min(1.0, o["eps0"] * t ** (-1 / 3)))
    if o["explore"] == "etc":
        return t <= ceil_power(o["horizon"], 2 / 3)
    if o["kind"] == "ogd_explore":
        block = ceil_power(o["horizon"], 1 / 6)
        return (t - 1) % block == draws["explore"][(t - 1) // block]
    return False


def _frozen(o, t):
    """Tells whether index estimates stay as they are."""
    return o["explore"] == "etc" and t > ceil_power(o["horizon"], 2 / 3)


def _radii(inst, o, s, t, traces):
    """`[K]` radii B_at of the confidence bounds. Source: eq. (15), (27)."""
    (K, m), d, T, k = inst.rho.shape, inst.theta.size, o["horizon"], o["constants"]
    if o["radius"] == "theory":
        delta = math.exp(-o["log_inverse_delta"])
        if not o["online"]:
            return np.array([theory_radius_known(n, T, m, K, inst.C_psi, o["eta1"], delta, k) for n in s["n"]])
        sizes = (t, T, m, K, d, inst.C_psi, inst.C_phi2, o["eta1"], o["eta0"], delta)
        return np.array([theory_radius_unknown(n, *sizes, trace, k) for n, trace in zip(s["n"], traces)])
    b, c_p = o["b"], o["c_p"] if o["online"] and o["kind"] == "cosmos" else 0.0
    if o["radius"] == "bootstrap":
        b, c_p = o["boot_floor"], c_p if o["boot_floor"] else 0.0  # with the plug-in term only if a floor is asked for
    return np.array([practical_radius(b, c_p, t, T, m, K, d, o["log_inverse_delta"], trace) for trace in traces])


def _indices(inst, o, s, psi, t, traces, draws):
    """(u `[K]` before the link, B `[K]`, |psi|_{V^-1} `[K]`) of the learners with indices."""
    norms, B, centre = _norms(s["V"], psi), _radii(inst, o, s, t, traces), s["rho"] @ psi
    if o["kind"] == "ogd_explore":
        return centre, 0 * B, norms
    if o["kind"] == "location_family":
        means = np.linalg.solve(s["arm_V"], s["arm_y"][..., None])[..., 0] @ psi
        index = [location_index(*of_arm) for of_arm in zip(means, s["residuals"], s["cost_sum"] / s["n"])]
        return np.array(index) + B * norms, B, norms
    if o["radius"] == "bootstrap":
        return centre + np.maximum(o["z"] * (s["boot_rho"] @ psi).std(axis=1), B * norms), B, norms
    if o["radius"] == "thompson":  # one normal per box
        return centre + o["v"] * norms * draws["normal"][t], 0 * B, norms
    return centre + B * norms, B, norms


def _scores(inst, o, s, world, t, draws):
    """(score for the search, score by the mean, beta): M, or G of the estimate plus its bonus. Source: eq. (21)."""
    if o["evaluator"] == "known" or o["kind"] in ("oracle", "static_index"):
        return world.score, world.score, 0.0
    G, phi, d = REWARD_LINKS[inst.reward_link], world.phi, inst.theta.size
    mean = G.value(phi @ s["theta"])
    if o["evaluator"] == "offline" or o["kind"] != "cosmos":
        return mean, mean, 0.0
    if o["radius"] == "thompson":  # theta + v C e, C the lower Cholesky factor of Phi^-1
        theta = s["theta"] + o["v"] * np.linalg.cholesky(np.linalg.inv(s["Phi"])) @ draws["normal_theta"][t]
        return G.value(phi @ theta), mean, 0.0
    if o["radius"] == "theory":
        beta = theory_beta(t, d, inst.C_phi2, o["eta0"], math.exp(-o["log_inverse_delta"]), o["constants"])
    else:
        beta = practical_beta(o["c_r"], t, d, inst.C_phi2, o["eta0"], o["log_inverse_delta"])
    return G.value(phi @ s["theta"] + beta * _norms(s["Phi"][None], phi)), mean, beta


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
    """(priority, threshold) of the policies without reservation indices of their own."""
    K, kind = len(inst.rho), o["kind"]
    nothing = np.full(K, -np.inf)
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
        estimate = np.linalg.solve(s["arm_V"], s["arm_y"][..., None])[..., 0] @ psi
        return estimate + o["alpha"] * _norms(s["arm_V"], psi), nothing
    raise ValueError(kind)


def _learn_evaluator(inst, o, s, phi, r):
    """Computes theta_hat_t and Phi_t from the deployed output of period t. Source: eq. (19), (20)."""
    G = REWARD_LINKS[inst.reward_link]
    s["Phi"] = s["Phi"] + np.outer(phi, phi)
    s["pairs"].append((phi, r))
    if o["evaluator"] == "stream":
        s["H"], s["z"], s["theta"] = irls_update(s["H"], s["z"], s["theta"], phi, r, G, o["R_theta"])
    elif o["evaluator"] == "exact":
        rows, rewards = (np.array(column) for column in zip(*s["pairs"]))
        s["theta"] = shorten(fit_glm(rows, rewards, o["eta0"], G, s["theta"]), o["R_theta"])


def _learn_indices(inst, o, s, psi, world, seen, t, draws, explored):
    """Computes rho_hat_{a,t+1} from the boxes seen in period t, with scores of theta_hat_t."""
    link, G = index_link(inst.link, inst.iota0), REWARD_LINKS[inst.reward_link]
    fixed = None if o["evaluator"] in ("known", "offline") else G  # scores of stored samples do not move
    M = world.score if o["evaluator"] == "known" else G.value(world.phi @ s["theta"])
    cost, frozen = inst.weight * world.cost, _frozen(o, t)
    boxes = np.flatnonzero(seen)

    if o["kind"] == "location_family":
        for a in boxes:
            s["arm_V"][a] += np.outer(psi, psi)
            s["arm_y"][a] += M[a] * psi
            residual = M[a] - np.linalg.solve(s["arm_V"][a], s["arm_y"][a]) @ psi
            s["residuals"][a] = [*s["residuals"][a], residual][-64:]
            s["cost_sum"][a] += cost[a]
    elif o["kind"] == "ogd_explore" and explored:
        s["explorations"] += 1
        for a in range(len(seen)):
            s["rho"][a] = ogd_update(s["rho"][a], psi, M[a], cost[a], link, s["explorations"], o["R_B"])
    elif o["kind"] == "cosmos":
        for a in boxes:
            sample = (psi, M[a], cost[a], world.phi[a])
            s["data"][a].append(sample)
            if o["estimator"] == "window":
                window_add(s["box"][a], sample, s["rho"][a], s["theta"], o["W"], link, fixed)
            elif o["estimator"] == "stream" and not frozen:
                s["A"][a], s["rho"][a] = stream_update(s["A"][a], s["rho"][a], *sample[:3], link, o["floor"], o["R_B"])
            for i in range(o["copies"] if o["radius"] == "bootstrap" else 0):
                s["boot_A"][a, i], s["boot_rho"][a, i] = stream_update(
                    s["boot_A"][a, i], s["boot_rho"][a, i], *sample[:3], link, o["floor"], o["R_B"], draws["boot"][t, a, i]
                )
        due = t <= 20 or t % o["refit_every"] == 0
        if o["estimator"] != "stream" and due and not frozen:
            # Every score moves with theta_hat, so every box is refitted; else only what was seen, since the last time.
            for a in range(len(seen)) if fixed is not None or o["refit_every"] > 1 else boxes:
                s["rho"][a] = _refit(o, s, a, link, fixed)

    # Radii shrink with the boxes whose outputs the index estimates learn from.
    for a in np.flatnonzero(_teaching(o, seen, t, explored)):
        s["V"][a] += np.outer(psi, psi)
        s["Psi"][a] += np.outer(world.phi[a], world.phi[a])
        s["n"][a] += 1


def _teaching(o, seen, t, explored):
    return seen & (bool(explored) if o["kind"] == "ogd_explore" else not _frozen(o, t))


def _refit(o, s, a, link, G):
    """Fits rho_hat of box a to all its data. With G None the stored scores are final."""
    rho, theta = s["rho"][a], s["theta"]
    if o["estimator"] == "window":
        return window_fit(s["box"][a], rho, theta, link, G, o["ridge"], o["R_B"])
    psi, M, c, phi = (np.array(column) for column in zip(*s["data"][a]))
    M = M if G is None else G.value(phi @ theta)
    if o["estimator"] == "exact":
        return fit_index(psi, M, c, link, rho, o["ridge"], o["R_B"])
    return fit_gmm(psi, M, c, link, rho, radius=o["R_B"])


def _learn_arms(inst, o, s, psi, world, opened, deployed, r, t):
    """Updates LinUCB's ridge regression of each arm on M - c (known) or r - c (unknown; period 0 has no reward)."""
    known = o["evaluator"] == "known"
    y = (world.score if known else r) - inst.weight * world.cost
    for a in np.flatnonzero(opened) if known else [deployed] * (t > 0):
        s["arm_V"][a] += np.outer(psi, psi)
        s["arm_y"][a] += y[a] * psi


def run(inst, options, draws):
    """One run of one policy, period by period; returns a dictionary of arrays whose row t is period t.

    Args:
      inst: an `Instance`.
      options: a dictionary over `DEFAULTS`.
      draws: dictionary of arrays, row t used in period t: psi `[T+1, m]`, U `[T+1, K]` in [0, 1), L `[T+1, K]` in
        [-1, 1]; z `[T+1, K, d]` and coin `[T+1]` (with features), jackpot `[T+1, K]` (SPIKE), eps `[T+1]`, priority
        `[T+1, K]`, explore `[blocks]` offset in 0..block-1, boot `[T+1, K, copies]`, normal `[T+1, K]`
        and normal_theta `[T+1, d]`; ties and ties_linucb `[T+1, K]` order equal boxes.

    Returns:
      Row 0 is the free round: all opened, deployed -1, flows 0. `rho_hat`, `theta_hat`, `u`, `B`, `norm`, `trace`, `beta` and `n` of row t are those
      that the search of period t used; "state" is what is left after period T.
    """
    o = {**DEFAULTS, **options}
    K, d, T = len(inst.rho), inst.theta.size, len(draws["psi"]) - 1
    o["horizon"] = o["horizon"] or T
    o["evaluator"] = o["evaluator"] or ("exact" if d else "known")
    o["online"] = o["evaluator"] in ("exact", "stream")
    o["log_inverse_delta"] = math.log(o["horizon"]) * (0.5 if o["online"] else 1.0)
    with_indices = o["kind"] in ("cosmos", "ogd_explore", "location_family")
    link, s, rows = index_link(inst.link, inst.iota0), _start(inst, o), []

    for t in range(T + 1):
        psi, r = draws["psi"][t], 0.0
        world = outcomes(inst, psi, draws["U"][t], draws["L"][t], draws["z"][t] if d else None, draws["jackpot"][t])
        traces = np.array([plug_in_trace(s["Phi"], Psi) if o["online"] else 0.0 for Psi in s["Psi"]])
        row = {"n": s["n"].copy(), "trace": traces, "rho_hat": s["rho"].copy(), "theta_hat": s["theta"].copy()}
        explored = _forced(o, t, draws)

        if t == 0:  # all opened, none deployed, uncharged
            opened, deployed = np.ones(K, bool), -1
            row |= dict.fromkeys(("reward", "noisy_reward", "cost", "regret", "regret_mean_cost", "regret_realised"), 0.0)
        else:
            score, mean, beta = _scores(inst, o, s, world, t, draws)
            if with_indices:
                u, B, norms = _indices(inst, o, s, psi, t, traces, draws)
                priority, threshold = u, np.full(K, np.inf) if explored else _thresholds(inst, o, u)
                sigma_opt = u if o["kind"] == "location_family" else link.value(u)
                row |= {"u": u, "B": B, "norm": norms, "sigma_opt": sigma_opt}
            else:
                priority, threshold = _fixed(inst, o, s, psi, world, t, draws)
                sigma_opt = priority if o["kind"] in ("oracle", "static_index") else np.full(K, np.nan)
            in_order = "ties_linucb" if o["kind"] == "linucb" else "ties" if with_indices else None
            ties = draws[in_order][t] if in_order else None
            opened, deployed, _ = search(priority, threshold, score, score if o["deploy_optimism"] else mean, ties)

            # Regrets: amortised, by mean and by realised costs.
            sigma, M = world.sigma, world.score
            best_opened, best, _ = search(sigma, sigma, M)
            amortised = np.minimum(M, sigma).max() - (M[deployed] - np.maximum(M - sigma, 0)[opened].sum())
            extra = opened.astype(float) - best_opened
            prices = world.mean_cost, world.cost
            by_mean, realised = (M[best] - M[deployed] + inst.weight * price @ extra for price in prices)
            # Theorem 3.3 path by path: only where the search itself stopped, and by the optimistic score.
            bound = score[deployed] - M[deployed] + (sigma_opt - sigma)[opened].sum()
            applies = np.all(sigma_opt >= sigma) and np.all(score >= M) and o["deploy_optimism"] and not explored
            r = noisy_reward(inst, M[deployed], draws["coin"][t]) if d else M[deployed]
            row |= {
                "reward": M[deployed], "noisy_reward": r, "cost": world.cost[opened].sum(), "regret": amortised, "beta": beta,
                "regret_mean_cost": by_mean, "regret_realised": realised, "priority": priority, "threshold": threshold,
                "optimistic": np.all(sigma_opt >= sigma - 1e-5), "optimistic_score": np.all(score >= M - 1e-5),
                "violation": applies and amortised > bound + 1e-9,
            }  # fmt: skip
        seen = np.ones(K, bool) if o["full_information"] else opened
        teaching = _teaching(o, seen, t, explored)
        f = world.phi[deployed]
        row |= {"opened": opened, "seen": seen, "deployed": deployed, "queries": opened.sum()}
        row |= {"potential": np.where(teaching, _norms(s["V"], psi) ** 2, 0.0)}
        row |= {"reward_potential": f @ np.linalg.solve(s["Phi"], f) if o["online"] and t else 0.0}
        rows.append(row)

        if o["online"] and t:
            _learn_evaluator(inst, o, s, f, r)
        if o["kind"] == "linucb":
            _learn_arms(inst, o, s, psi, world, seen, deployed, r, t)
        _learn_indices(inst, o, s, psi, world, seen, t, draws, explored)

    blank = {name: np.zeros_like(value) for name, value in rows[1].items()}
    return {name: np.array([(blank | row)[name] for row in rows]) for name in blank} | {"state": s, "options": o}
