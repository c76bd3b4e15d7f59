"""Worked cases and numbers of the cascade problem's notes: indices, searches, estimators, radii, values, and the first study.

Section numbers are those of `spec/pandora.md`.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64
from scipy import integrate

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.estimators import links
from jaxroute.estimators.glm import ExactGLM, OnlineGLM, fit_glm, project_exactly
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade import index_fit
from jaxroute.problems.cascade.radii import Now
from jaxroute.problems.cascade.search import best_opened, opened_in_order
from jaxroute.problems.cascade.types import CascadeSpec, Outputs
from jaxroute.solvers.reservation import discrete_index, index_by_bisection, two_point_index, uniform_index


def f32(x):
    return jnp.asarray(x, jnp.float32)


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


# --- 2.4 Environments ----------------------------------------------------------------------------------------------


def constants(env):
    """Mean costs, quantiles, widths `[K]` at `x = 0` and index coefficients `[K, m]`."""
    psi = f32(np.eye(env.spec.context_dim)[0])
    return env.boxes.base_cost, env.boxes.quantile, env.boxes.width(psi, env.base_index(psi)), env.index


def test_constants_of_ref():
    cost, quantile, width, index = constants(ca.uniform_cascade())
    np.testing.assert_allclose(cost, [0.015, 0.033541, 0.075], atol=6e-7)
    np.testing.assert_allclose(quantile, [0.7, 0.5, 0.3], atol=1e-7)
    np.testing.assert_allclose(width, [0.333333, 0.268328, 0.306122], atol=6e-7)
    rows = [[0.57, -0.101466, -0.098534], [0.483130, -0.082676, 0.117324], [0.524375, 0.099928, -0.100072]]
    np.testing.assert_allclose(index, rows, atol=6e-7)
    theta = ca.uniform_cascade(evaluator=5).evaluator.theta
    np.testing.assert_allclose(theta, [0.626224, -0.751469, 0.876714, -1.001959, 1.127204], atol=6e-7)


def test_constants_of_ref5():
    cost, quantile, width, index = constants(ca.uniform_cascade(5, 5))
    np.testing.assert_allclose(cost, [0.015, 0.02243, 0.03354, 0.05016, 0.075], atol=6e-6)
    np.testing.assert_allclose(quantile, [0.7, 0.6, 0.5, 0.4, 0.3], atol=1e-7)
    np.testing.assert_allclose(width, [0.33333, 0.28038, 0.26833, 0.27864, 0.30612], atol=6e-6)
    np.testing.assert_allclose(index[:, 0], [0.57, 0.48313, 0.52437, 0.55042, 0.47077], atol=6e-6)


@pytest.mark.parametrize("size", [(2, 1), (4, 2), (10, 7)])
def test_constants_of_any_size(size):
    K, m = size
    cost, quantile, width, index = constants(ca.uniform_cascade(K, m))
    for a in range(K):
        f = a / (K - 1)
        c, q = 0.015 * 5**f, 0.7 - 0.4 * f
        wave = [math.cos(1.3 * a + 2.1 * j + 0.7 * a * j) for j in range(1, m)]
        row = [0.52 + 0.05 * math.cos(2.4 * a)] + [0.20 * v / sum(map(abs, wave)) for v in wave]
        np.testing.assert_allclose([cost[a], quantile[a], width[a]], [c, q, 2 * c / (1 - q) ** 2], atol=1e-6)
        np.testing.assert_allclose(index[a], row, atol=1e-6)


def score_range(env, requests):
    """Least and largest score that a box can have for these requests `[n, m]`, for uniform scores."""

    def ends(psi):
        base = env.base_index(psi)
        width = env.boxes.width(psi, base)
        low = base - width * env.boxes.quantile
        return low, low + width

    low, high = jax.vmap(ends)(f32(requests))
    return float(low.min()), float(high.max())


def corners(env):
    """Requests of the cube at which a score may be extreme: with both signs of `x_1`, the others along or against an index."""
    rows = np.where(np.asarray(env.index)[:, 2:] > 0, 1, -1)
    return np.array([(1, first, *(sign * row)) for row in rows for first in (-1, 1) for sign in (-1, 1)])


RANGES = {
    "LOC 3": (lambda: ca.uniform_cascade(3, 4), 0.137, 0.939),
    "LOC 5": (lambda: ca.uniform_cascade(5, 4), 0.115, 0.918),
    "LOC 10": (lambda: ca.uniform_cascade(10, 3), 0.085, 0.958),
    "HET 3": (lambda: ca.uniform_cascade(3, 3, tilt=0.25), 0.078, 0.992),
    "HET 5": (lambda: ca.uniform_cascade(5, 20, tilt=0.25), 0.073, 0.951),
    "HET 10": (lambda: ca.uniform_cascade(10, 3, tilt=0.25), 0.035, 1.006),
    "HET 10, less": (lambda: ca.uniform_cascade(10, 3, tilt=0.20), 0.045, 0.997),
    "HET 3, more": (lambda: ca.uniform_cascade(3, 3, tilt=0.5), None, 1.046),
}


@pytest.mark.parametrize("name", RANGES)
def test_scores_stay_in_their_range(name):
    make, low, high = RANGES[name]
    env = make()
    found = score_range(env, corners(env))
    for value, expected in zip(found, (low, high)):
        assert expected is None or value == pytest.approx(expected, abs=6e-4)


def test_ranges_of_groups_misfits_and_spikes():
    assert score_range(ca.group_cascade(), np.eye(6)) == (pytest.approx(0.142, abs=6e-4), pytest.approx(0.884, abs=6e-4))
    requests = np.array([(1, x, y) for x in np.linspace(-1, 1, 201) for y in (-1, 1)])
    for K in (3, 5, 10):
        low, high = score_range(ca.uniform_cascade(K, bend=0.05), requests)
        assert low > 0 and high <= 0.990
        env = ca.uniform_cascade(K, link="tanh")
        assert score_range(env, corners(env))[0] >= 0.0775
        env = ca.spike_cascade(K)
        width = jax.vmap(lambda psi, env=env: env.boxes.width(psi, env.base_index(psi)))(f32(corners(env)))
        assert width.min() >= 0.188
    psi, gap = f32([1.0]), 0.1
    env = ca.safe_and_risky(gap)
    np.testing.assert_allclose(env.boxes.width(psi, env.base_index(psi)), [0.1, 0.4], rtol=1e-6)
    np.testing.assert_allclose(env.true_index(psi), [0.5, 0.5 - gap], rtol=1e-6)


def test_numbers_of_pass_and_fail_and_of_groups():
    env = ca.pass_fail_cascade()
    psi = f32([1.0, 0.5, -1.0])
    np.testing.assert_allclose(env.boxes.chance(psi), [0.30, 0.55, 0.80], atol=1e-6)
    loc = np.asarray(ca.uniform_cascade().index, float)
    np.testing.assert_allclose(env.index[:, 0], 0.78 + 0.4 * (loc[:, 0] - 0.52), atol=1e-6)
    np.testing.assert_allclose(env.index[:, 1:], loc[:, 1:] / 2, atol=1e-6)
    base = np.asarray(env.base_index(psi))
    np.testing.assert_allclose(env.boxes.mean_cost(psi, base), np.array([0.3, 0.55, 0.8]) * (0.95 - base), rtol=1e-5)
    group = ca.group_cascade()
    table = [[0.52 + 0.15 * math.cos(2.4 * a + 1.7 * g + 0.9 * a * g) for g in range(6)] for a in range(3)]
    np.testing.assert_allclose(group.index, table, atol=1e-6)
    np.testing.assert_allclose(group.contexts.chance, [0.40, 0.30, 0.15, 0.10, 0.04, 0.01], atol=1e-7)
    assert (group.context_bound, ca.uniform_cascade(3, 7).context_bound) == (1.0, pytest.approx(math.sqrt(7)))


def test_features_are_not_longer_than_said():
    """The bound is the root of `d + 3` where the score's share of the length is at most 3."""
    assert ca.uniform_cascade(evaluator=5).feature_bound == pytest.approx(math.sqrt(8), rel=1e-6)
    for make in (ca.spike_cascade, functools.partial(ca.uniform_cascade, tilt=0.25)):
        env = make(evaluator=5)
        play = jax.jit(jax.vmap(lambda t, env=env: env.draw(draws.fold_in(draws.key(1), t), (), t).features))
        assert np.linalg.norm(play(jnp.arange(5000)), axis=-1).max() <= env.feature_bound


# --- 2.5 Cost weight -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_index_with_a_cost_weight(weight):
    env = ca.uniform_cascade(cost_weight=weight)
    psi = f32([1.0, 0.3, -0.8])
    sigma = np.asarray(env.base_index(psi), float)
    c, q = np.asarray(env.boxes.base_cost, float), np.asarray(env.boxes.quantile, float)
    w = 2 * c / (1 - q) ** 2
    low = sigma - w * q
    inside = low + w - np.sqrt(2 * w * weight * c)
    expected = np.where(weight * c <= w / 2, inside, low + w / 2 - weight * c)
    np.testing.assert_allclose(env.true_index(psi), expected, atol=2e-6)
    if weight == 1.0:
        np.testing.assert_allclose(env.true_index(psi), sigma, atol=2e-6)


@pytest.mark.parametrize("weight", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("make", [ca.spike_cascade, ca.pass_fail_cascade, ca.group_cascade])
def test_index_with_a_cost_weight_of_other_laws(make, weight):
    """`E(M - index)^+` is the weighted mean cost."""
    env = make(cost_weight=weight)
    for psi in np.eye(env.spec.context_dim)[:3] if make is ca.group_cascade else ([1, 0.5, -0.5], [1, -0.9, 0.8]):
        psi = f32(psi)
        base = env.base_index(psi)
        worth = env.boxes.excess(psi, base, env.true_index(psi))
        np.testing.assert_allclose(worth, weight * env.boxes.mean_cost(psi, base), atol=1e-5)


# --- 4.1 Reservation index -----------------------------------------------------------------------------------------


def test_index_cases():
    assert float(uniform_index(0.3, 0.4, 0.05)) == pytest.approx(0.5)
    assert float(uniform_index(0.3, 0.4, 0.35)) == pytest.approx(0.15)
    assert float(two_point_index(0.0, 1.0, 0.1, 0.01)) == pytest.approx(0.9)
    assert float(two_point_index(0.2, 0.9, 0.5, 0.05)) == pytest.approx(0.8)
    assert float(two_point_index(0.2, 0.9, 0.5, 0.5)) == pytest.approx(0.05)
    assert discrete_index([0.2, 0.9], [0.5, 0.5], 0.05) == pytest.approx(0.8, abs=1e-12)
    assert discrete_index([0, 1], [9, 1], 0.01) == pytest.approx(0.9, abs=1e-12)
    assert float(uniform_index(0.3, 0.4, 0.2)) == pytest.approx(0.3)  # Where the two branches meet.


def test_index_of_discrete_laws_is_the_root():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 6))
        values, weights = np.round(rng.random(n), int(rng.integers(1, 4))), rng.random(n) * (rng.random(n) < 0.8)
        weights[0] += 0.1
        cost = rng.random()
        root = discrete_index(values, weights, cost)
        assert weights @ np.maximum(values - root, 0) / weights.sum() == pytest.approx(cost, abs=1e-12)


def test_bisection_equals_the_closed_forms():
    rng = np.random.default_rng(1)
    low, width = rng.uniform(0, 0.5, 500), rng.uniform(0.05, 0.5, 500)
    cost = rng.uniform(0.001, 0.4, 500)

    def excess(level):
        inside = jnp.clip(low + width - level, 0.0, width)
        return 0.5 * inside**2 / width + jnp.maximum(low - level, 0.0)

    np.testing.assert_allclose(index_by_bisection(excess, f32(cost)), uniform_index(low, width, cost), atol=2e-6)
    high, chance = rng.uniform(0.6, 1.0, 500), rng.uniform(0.1, 0.9, 500)

    def two(level):
        return chance * jnp.maximum(high - level, 0) + (1 - chance) * jnp.maximum(low - level, 0)

    np.testing.assert_allclose(index_by_bisection(two, f32(cost)), two_point_index(low, high, chance, cost), atol=2e-6)


# --- 4.2 Searches --------------------------------------------------------------------------------------------------


def searched(priority, threshold, score, cost=None):
    outputs = Outputs(score=f32(score), features=None, cost=f32(np.zeros(len(score)) if cost is None else cost))
    found = ca.IndexSearch(f32(priority), f32(threshold)).run(outputs)
    return np.flatnonzero(found.opened).tolist(), np.flatnonzero(found.deployed).tolist()


def test_search_traces():
    u = [0.62, 0.71, 0.71, 0.40]
    assert searched(u, u, [0.55, 0.65, 0.30, 0.90]) == ([1, 2], [1])
    assert searched([0.5] * 3, [0.5] * 3, [0.2, 0.5, 0.9]) == ([0, 1], [1])
    assert searched(u, [math.inf] * 4, [0.9, 0.9, 0.3, 0.9]) == ([0, 1, 2, 3], [0])
    assert searched(u, [-math.inf] * 4, [0.1, 0.0, 0.3, 0.9]) == ([1], [1])
    # Thresholds that rise: after the first miss of a threshold nothing more is opened.
    assert searched([3, 2, 1], [0.0, 0.4, 0.9], [0.5, 0.1, 0.2]) == ([0], [0])
    assert searched([3, 2, 1], [0.0, 0.6, 0.4], [0.5, 0.1, 0.2]) == ([0, 1], [0])
    assert searched([3, 2, 1], [0.0, 0.6, 0.9], [0.5, 0.1, 0.2]) == ([0, 1, 2], [0])


def literal_loop(priority, threshold, score):
    """The rule as it is told, one step after another, for many cases `[n, K]` side by side."""
    n, K = priority.shape
    rows, opened = np.arange(n), np.zeros((n, K), bool)
    best, deployed, running = np.full(n, -np.inf), np.full(n, -1), np.ones(n, bool)
    for step in range(K):
        candidates = np.where(opened, -np.inf, priority)
        # The largest priority among closed boxes, the lowest number among equals; -inf may be a priority too.
        equal = (candidates == candidates.max(axis=1, keepdims=True)) & ~opened
        following = equal.argmax(axis=1)
        running &= (best < threshold[rows, following]) | (step == 0)
        opened[rows[running], following[running]] = True
        found = score[rows, following]
        better = running & ((found > best) | ((found == best) & (following < deployed)))
        best, deployed = np.where(better, found, best), np.where(better, following, deployed)
    return opened, np.eye(K, dtype=bool)[deployed]


def sort_form(u, score):
    """Weitzman's rule by a sort and a running maximum."""
    n, K = u.shape
    order = np.argsort(-u, axis=1, kind="stable")
    running = np.maximum.accumulate(np.take_along_axis(score, order, axis=1), axis=1)
    following = np.concatenate([np.take_along_axis(u, order, axis=1)[:, 1:], np.full((n, 1), -np.inf)], axis=1)
    number = np.argmax(running >= following, axis=1) + 1
    opened = np.zeros((n, K), bool)
    np.put_along_axis(opened, order, np.arange(K) < number[:, None], axis=1)
    return opened, np.eye(K, dtype=bool)[np.argmax(np.where(opened, score, -np.inf), axis=1)]


def tie_rich(K, n, seed=0):
    """Priorities, thresholds and scores `[n, K]` of a few levels, infinite ones among them."""
    rng = np.random.default_rng(seed + K)
    levels = np.array([0.0, 0.25, 0.5, 0.75, 1.0], np.float32)
    ends = np.array([-np.inf, 0.0, 0.25, 0.5, 0.75, 1.0, np.inf], np.float32)
    return rng.choice(levels, (n, K)), rng.choice(ends, (n, K)), rng.choice(levels, (n, K))


@jax.jit
@jax.vmap
def by_pairs(priority, threshold, score):
    opened = opened_in_order(priority, threshold, score)
    return opened, best_opened(opened, score)


@pytest.mark.parametrize(("K", "n"), [(1, 100), (2, 20_000), (3, 30_000), (5, 30_000), (6, 30_000)])
def test_search_equals_the_literal_loop(K, n):
    priority, threshold, score = tie_rich(K, n)
    for limit in (priority, threshold):  # Weitzman's rule, and thresholds that may rise.
        expected = literal_loop(priority, limit, score)
        found = by_pairs(priority, limit, score)
        for a, b in zip(found, expected):
            np.testing.assert_array_equal(a, b)
        assert (found[0].sum(axis=1) >= 1).all() and (found[1].sum(axis=1) == 1).all()
    for a, b in zip(sort_form(priority, score), literal_loop(priority, priority, score)):
        np.testing.assert_array_equal(a, b)


def weitzman_loop(size):
    """A user's search that follows given priorities and thresholds, as a `LoopSearch`."""

    def next_box(memory, opened, seen):
        priority, threshold = memory
        left = jnp.where(opened, -jnp.inf, priority)
        box = jnp.argmax((left == jnp.max(left)) & ~opened)
        return box, jnp.max(jnp.where(opened, seen.score, -jnp.inf)) >= threshold[box]

    def pick(memory, opened, seen):
        del memory
        return jnp.argmax(jnp.where(opened, seen.score, -jnp.inf))

    return functools.partial(ca.LoopSearch, next_box=next_box, pick=pick)


@pytest.mark.parametrize(("K", "n"), [(3, 60_000), (5, 60_000)])
def test_loop_search_equals_index_search(K, n):
    loop = weitzman_loop(K)

    @jax.jit
    @jax.vmap
    def both(priority, threshold, score):
        outputs = Outputs(score=score, features=None, cost=score)
        return ca.IndexSearch(priority, threshold).run(outputs), loop((priority, threshold)).run(outputs)

    one, other = both(*tie_rich(K, n, seed=100))
    np.testing.assert_array_equal(one.opened, other.opened)
    np.testing.assert_array_equal(one.deployed, other.deployed)


BOXES = [(0.05, [0.2, 0.9], [0.5, 0.5]), (0.10, [0.5, 0.7, 1.0], [0.4, 0.3, 0.3]), (0.02, [0.1, 0.6, 0.8], [0.7, 0.2, 0.1])]
TWO = [(0.5, [1.0], [1.0]), (0.01, [0.0, 1.0], [0.9, 0.1])]


def best_value(boxes, closed=None, best=None):
    """Value of the best plan that opens boxes one by one, by backward induction over all of them."""
    closed = tuple(range(len(boxes))) if closed is None else closed
    options = [] if best is None else [best]
    for a in closed:
        cost, values, chances = boxes[a]
        rest = tuple(b for b in closed if b != a)
        after = [best_value(boxes, rest, v if best is None else max(best, v)) for v in values]
        options.append(float(np.dot(chances, after)) - cost)
    return max(options)


def by_outcomes(boxes):
    """All joint outcomes of the boxes: chances `[n]` and scores `[n, K]`."""
    scores = np.array(list(itertools.product(*(values for _, values, _ in boxes))))
    return np.array([math.prod(c) for c in itertools.product(*(chances for _, _, chances in boxes))]), scores


def search_value(boxes, index):
    """Value of Weitzman's search, summed over all joint outcomes, and `E max min(M, index)`."""
    chance, score = by_outcomes(boxes)
    many = np.broadcast_to(index, score.shape).astype(np.float32)
    opened, deployed = (np.asarray(x) for x in by_pairs(many, np.minimum(many, 1), score.astype(np.float32)))
    earned = np.where(deployed, score, 0).sum(axis=1) - opened @ np.array([cost for cost, _, _ in boxes])
    return chance @ earned, chance @ np.minimum(score, index).max(axis=1)


def test_weitzmans_search_is_optimal_in_the_examples():
    index = [discrete_index(v, p, c) for c, v, p in BOXES]
    np.testing.assert_allclose(index, [0.8, 0.68333, 0.6], atol=5e-6)
    np.testing.assert_allclose([best_value(BOXES), *search_value(BOXES, index)], 0.711, atol=1e-12)
    index = [discrete_index(v, p, c) for c, v, p in TWO]
    np.testing.assert_allclose(index, [0.5, 0.9], atol=1e-12)
    np.testing.assert_allclose([best_value(TWO), *search_value(TWO, index)], 0.54, atol=1e-12)
    np.testing.assert_allclose(ca.two_boxes().true_index(f32([1.0])), [0.5, 0.9], atol=1e-6)
    assert max(np.dot(v, p) - c for c, v, p in TWO) == pytest.approx(0.5)  # What one call earns.


def test_weitzmans_search_is_optimal_on_random_boxes():
    """Proposition 3.1, with its value `E max min(M, index)`."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        boxes = [(rng.uniform(0.01, 0.2), rng.random(3).tolist(), rng.dirichlet(np.ones(3)).tolist()) for _ in range(3)]
        index = [discrete_index(v, p, c) for c, v, p in boxes]
        np.testing.assert_allclose(search_value(boxes, index), best_value(boxes), atol=1e-9)


# --- 4.3 Index estimation ------------------------------------------------------------------------------------------

X = np.array([-0.9, -0.6, -0.3, 0.0, 0.2, 0.5, 0.7, 0.95])
PSI = np.column_stack([np.ones(8), X])
SCORE = np.array([0.35, 0.62, 0.41, 0.70, 0.33, 0.81, 0.55, 0.90])
COST = np.array([0.05, 0.07, 0.04, 0.06, 0.05, 0.08, 0.05, 0.06])


@functools.cache
def feeder(estimator, link):
    """A compiled function of samples: the state in the end, and the estimates `[n, m]` of one box after each of them."""

    double = in_double(estimator)

    def run(psi, score, cost):
        fit = double.init(index_fit.Sizes(1, psi.shape[1], 0))

        def one(carry, sample):
            t, x, m, c = sample
            new = index_fit.Sample(t, x, jnp.ones(1, bool), c[None], m[None], None)
            fit, rho = double.update(carry[0], carry[1], new, None, link)
            return (fit, rho), rho[:, 0]

        start = (fit, jnp.zeros((psi.shape[1], 1)))
        (fit, _), rho = jax.lax.scan(one, start, (jnp.arange(psi.shape[0]), psi, score, cost))
        return fit, rho

    return jax.jit(run)


def fed(estimator, psi=PSI, score=SCORE, cost=COST, link=links.IDENTITY):
    """In double precision: only the sizes of a few last steps differ in single precision, and the estimates by about 1e-4."""
    with x64():
        fit, rho = feeder(estimator, link)(psi, score, cost)
    return fit, np.asarray(rho)


def test_exact_estimate_with_the_identity_link():
    _, rho = fed(ca.Window.exact(8, 5, ridge=0.0, floor=0.01))
    np.testing.assert_allclose(rho[-1], [0.59481464, 0.22440169], atol=1e-6)
    u = PSI @ rho[-1]
    assert (np.flatnonzero(u < SCORE) + 1).tolist() == [2, 4, 6, 8]
    loss = np.asarray(index_fit.loss(links.IDENTITY, f32(u), f32(SCORE), f32(COST)), float)
    assert (loss + SCORE**2 / 2).sum() == pytest.approx(0.31110347, abs=1e-6)
    other = index_fit.loss(links.IDENTITY, f32(PSI @ [0.4, 0.3]), f32(SCORE), f32(COST))
    assert float(other.sum()) == pytest.approx(-1.1132375, abs=1e-6)


def test_exact_estimate_with_tanh():
    _, rho = fed(ca.Window.exact(8, 5, ridge=0.0, floor=0.01), link=links.TANH)
    np.testing.assert_allclose(rho[-1], [0.71225578, 0.38600143], atol=1e-6)
    loss = index_fit.loss(links.TANH, f32(PSI @ rho[-1]), f32(SCORE), f32(COST))
    assert float(loss.sum()) == pytest.approx(-1.31645936, abs=2e-6)


def test_streaming_estimate():
    _, rho = fed(ca.Streaming())
    np.testing.assert_allclose(rho[-1], [0.57280608, 0.23136920], atol=1e-8)
    _, rho = fed(ca.Streaming(floor=0.0))
    np.testing.assert_allclose(rho[-1], [0.57481026, 0.23064624], atol=1e-8)


def random_samples(n, seed=0, m=3):
    """Requests, scores and costs of a box with a linear index of which it is not always above."""
    rng = np.random.default_rng(seed)
    psi = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, m - 1))])
    return psi, psi @ [0.5, 0.1, -0.1][:m] + 0.3 * (rng.random(n) - 0.6), rng.uniform(0.02, 0.08, n)


def test_streaming_without_a_floor_solves_the_frozen_normal_equations():
    """`(A0 I + sum h psi psi') rho = sum psi (h M - c)`, each indicator `h` at the estimate of its time."""
    psi, score, cost = random_samples(60)
    _, rho = fed(ca.Streaming(floor=0.0, bound=100.0), psi, score, cost)
    active = score > np.einsum("nm,nm->n", psi, np.vstack([np.zeros(3), rho[:-1]]))
    assert 10 < active.sum() < 50
    for n in (1, 5, 60):
        h = active[:n].astype(float)
        matrix = 0.1 * np.eye(3) + (psi[:n].T * h) @ psi[:n]
        np.testing.assert_allclose(rho[n - 1], np.linalg.solve(matrix, psi[:n].T @ (h * score[:n] - cost[:n])), atol=1e-7)


@pytest.mark.parametrize("link", [links.IDENTITY, slow(links.TANH), slow(links.FLAT)])
def test_one_sample_gives_the_shortest_solution(link):
    """The link of the index is `M - c` at the request: with the identity, `rho = (M - c) psi / |psi|^2`."""
    for row in (1, 3, 7):
        _, rho = fed(ca.Window.exact(1, 10, ridge=1e-6), PSI[row : row + 1], SCORE[row : row + 1], COST[row : row + 1], link)
        value = float(link.inverse(f32(SCORE[row] - COST[row])))
        np.testing.assert_allclose(rho[0], value * PSI[row] / (PSI[row] @ PSI[row]), atol=1e-4)


@pytest.mark.parametrize("link", [links.IDENTITY, slow(links.TANH), slow(links.FLAT)])
def test_window_is_exact_until_it_is_full(link):
    psi, score, cost = random_samples(80)
    _, exact = fed(ca.Window.exact(80), psi, score, cost, link)
    _, window = fed(ca.Window(size=32, iterations=3), psi, score, cost, link)
    np.testing.assert_allclose(window[:32], exact[:32], atol=1e-7)
    late = np.abs(window[32:] - exact[32:]).max()
    assert 1e-6 < late < 0.02  # Afterwards it differs, and little.


@pytest.mark.slow
@pytest.mark.parametrize("link", links.INDEX_LINKS.values(), ids=str)
def test_exact_estimate_is_a_root_of_the_moments(link):
    psi, score, cost = random_samples(80)
    estimator = ca.Window.exact(80, ridge=0.0)
    fit, rho = fed(estimator, psi, score, cost, link)
    u = psi @ rho[-1]
    moments = psi.T @ (cost - np.maximum(score - np.asarray(link.value(f32(u)), float), 0))
    np.testing.assert_allclose(moments, 0.0, atol=2e-3)
    with x64():
        slope = estimator.slope(fit, rho[-1][:, None], None, link)
    np.testing.assert_allclose(slope[:, 0], moments, atol=1e-4)


def test_moment_equations_find_the_exact_estimate_of_the_example():
    _, rho = fed(ca.MomentEquations(size=8, ridge=0.0))
    np.testing.assert_allclose(rho[-1], [0.59481464, 0.22440169], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH])
def test_moment_equations_find_the_exact_estimate(link):
    psi, score, cost = random_samples(60)
    _, exact = fed(ca.Window.exact(60), psi, score, cost, link)
    _, moments = fed(ca.MomentEquations(size=61), psi, score, cost, link)
    np.testing.assert_allclose(moments[30:], exact[30:], atol=2e-3)


@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH, links.FLAT])
def test_loss_is_the_integral_of_its_slope(link):
    for score in (0.2, 0.7):
        for u in (-1.1, -0.3, 0.1, 0.6, 0.95, 1.3):

            def slope(v, score=score):
                return float(index_fit.moment(link, f32(v), f32(score), f32(0.05)))

            start, end = (float(index_fit.loss(link, f32(v), f32(score), f32(0.05))) for v in (0.0, u))
            places = [p for p in (0.9, -0.9, float(link.inverse(f32(score)))) if min(0, u) < p < max(0, u)]
            total = integrate.quad(slope, 0.0, u, points=places or None, limit=40)[0]
            assert end - start == pytest.approx(total, abs=2e-6)


@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH, links.FLAT, links.LOGISTIC, slow(links.PROBIT)], ids=str)
def test_links(link):
    s = f32(np.linspace(-1.6, 1.6, 65))
    value, slope = link.value(s), link.slope(s)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(link.value))(s), atol=2e-6)
    np.testing.assert_allclose(value, jax.vmap(jax.grad(link.integral))(s), atol=2e-6)
    np.testing.assert_allclose((link.inverse(value) - s) * slope, 0.0, atol=1e-6)  # Values are rounded.
    assert float(link.integral(f32(0.0))) == pytest.approx(0, abs=1e-7)
    assert (np.diff(value) > 0).all() and (slope > 0).all()
    assert link is links.IDENTITY or (np.abs(value) < 1).all()


def test_flat_link_is_smooth_and_below_one():
    u = f32([0.3, 0.9 - 1e-4, 0.9, 0.9 + 1e-4, 1.3, 30.0])
    value = links.FLAT.value(u)
    np.testing.assert_allclose(value[:4], u[:4], atol=1e-6)
    assert 0.99 < value[4] < 1.0 and value[5] == 1.0
    np.testing.assert_allclose(links.FLAT.value(-u), -value)


@pytest.mark.parametrize("link", [links.LOGISTIC, slow(links.PROBIT)])
def test_old_outputs_are_scored_again_by_a_later_evaluator(link):
    """Of samples in the window exactly, of those that have left to first order around the evaluator of that time."""
    rng = np.random.default_rng(3)
    n, m, d, size = 12, 2, 3, 4
    psi, cost = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)]), rng.uniform(0.02, 0.1, n)
    phi, theta = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, (n, d))
    estimator = ca.Window(size=size, ridge=0.0)

    @jax.jit
    def update(fit, rho, sample, theta):
        return estimator.update(fit, rho, sample, index_fit.Evaluator(theta, link), links.IDENTITY)

    fit = estimator.init(index_fit.Sizes(1, m, d))
    rho, left = jnp.zeros((m, 1), jnp.float32), []
    for t in range(n):
        if t >= size:  # Leaves with the evaluator and the estimate of this time.
            old, before = t - size, np.asarray(rho[:, 0], float)
            s = theta[t] @ phi[old]
            value, slope = (float(f(f32(s))) for f in (link.value, link.slope))
            left.append((old, float(value > psi[old] @ before), value, slope, s))
        one = slice(t, t + 1)
        sample = index_fit.Sample(jnp.int32(t), f32(psi[t]), jnp.ones(1, bool), f32(cost[one]), jnp.zeros(1), f32(phi[one]))
        fit, rho = update(fit, rho, sample, f32(theta[t]))
    later, at = rng.uniform(-1, 1, d), np.array([0.4, 0.2])
    expected = np.zeros(m)
    for old, h, value, slope, s in left:
        expected += psi[old] * (cost[old] - h * (value + slope * (later @ phi[old] - s) - psi[old] @ at))
    for t in range(n - size, n):
        score = float(link.value(f32(later @ phi[t])))
        expected += psi[t] * (cost[t] - max(score - psi[t] @ at, 0))
    found = estimator.slope(fit, f32(at)[:, None], index_fit.Evaluator(f32(later), link), links.IDENTITY)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)
    assert len(left) == n - size and 0 < sum(h for _, h, *_ in left) < len(left)


def test_constant_curvature_overshoots():
    """The first step is too long, as with any curvature that is far below the sample's own."""
    psi, score, cost = random_samples(80)
    _, exact = fed(ca.Window.exact(80), psi, score, cost)
    errors = [np.abs(fed(fit, psi, score, cost)[1] - exact)[5:60].max() for fit in (ca.Streaming(), ca.ConstantCurvature())]
    assert errors[1] > 2 * errors[0]


def test_projected_gradient_steps():
    """`rho - psi (c - (M - u)^+) / sqrt(s)` at the s-th sample, shortened to the ball."""
    psi, score, cost = random_samples(30)
    for bound in (2.0, 0.3):
        _, rho = fed(ca.GradientDescent(bound=bound), psi, score, cost)
        own = np.zeros(3)
        for s in range(30):
            own = own - psi[s] * (cost[s] - max(score[s] - psi[s] @ own, 0)) / math.sqrt(s + 1)
            own *= min(1, bound / np.linalg.norm(own))
            np.testing.assert_allclose(rho[s], own, atol=1e-5)


# --- 4.4 Evaluator -------------------------------------------------------------------------------------------------

F = np.array(
    [
        [1, 0.2, -0.5],
        [0.3, -1, 0.8],
        [-0.7, 0.4, 1],
        [0.5, 0.5, 0.5],
        [-1, -0.2, 0.1],
        [0.9, -0.6, 0.3],
        [0, 1, -1],
        [0.2, 0.1, 0.9],
    ]
)
R = np.array([1, 0, 1, 1, 0, 1, 0, 1.0])
THETA = [0.74693892, 0.42215979, 0.68518392]


def learned(model, features, rewards, link, bound=10.0, ridge=1.0):
    """Estimates `[n, d]` after each pair."""

    @jax.jit
    def run(features, rewards):
        def one(state, pair):
            state = model.add(state, *pair, jnp.ones((), bool), f32(ridge), link, f32(bound))
            return state, state.theta

        return jax.lax.scan(one, model.init(features.shape[1], f32(ridge)), (features, rewards))[1]

    return np.asarray(run(f32(features), f32(rewards)), float)


def test_evaluator_of_the_example():
    np.testing.assert_allclose(fit_glm(F, R, links.LOGISTIC), THETA, atol=1e-5)
    assert np.linalg.norm(THETA) == pytest.approx(1.0980, abs=5e-5)
    np.testing.assert_allclose(learned(ExactGLM(capacity=8), F, R, links.LOGISTIC)[-1], THETA, atol=1e-5)
    # A pair that was not seen changes nothing.
    model = ExactGLM(capacity=8)
    state = model.init(3, f32(1.0))
    same = model.add(state, f32(F[0]), f32(1.0), jnp.zeros((), bool), f32(1.0), links.LOGISTIC, f32(4.0))
    np.testing.assert_array_equal(same.theta, 0.0)


def test_evaluator_in_a_ball():
    projected = [0.34178259, 0.18368593, 0.31534766]
    np.testing.assert_allclose(project_exactly(THETA, F, R, links.LOGISTIC, 1.0, 0.5), projected, atol=1e-5)
    np.testing.assert_allclose(project_exactly(THETA, F, R, links.LOGISTIC, 1.0, 2.0), THETA, atol=1e-12)
    for model in (ExactGLM(capacity=8), OnlineGLM()):
        short = learned(model, F, R, links.LOGISTIC, bound=0.5)[-1]
        assert np.linalg.norm(short) == pytest.approx(0.5, abs=1e-5)
        assert np.linalg.norm(short - projected) < 0.05  # The radial projection is near the exact one.


def test_evaluator_with_the_identity_is_ridge_regression():
    rng = np.random.default_rng(4)
    features, rewards = rng.normal(size=(40, 4)), rng.random(40)
    for n, theta in zip((1, 7, 40), learned(OnlineGLM(), features, rewards, links.IDENTITY, ridge=0.7)[[0, 6, 39]]):
        design = 0.7 * np.eye(4) + features[:n].T @ features[:n]
        np.testing.assert_allclose(theta, np.linalg.solve(design, features[:n].T @ rewards[:n]), atol=1e-4)


@pytest.mark.parametrize("link", [links.LOGISTIC, slow(links.PROBIT)])
def test_online_evaluator_is_frozen_reweighted_least_squares(link):
    rng = np.random.default_rng(5)
    features, rewards = rng.uniform(-1, 1, (60, 3)), (rng.random(60) < 0.6).astype(float)
    found = learned(OnlineGLM(), features, rewards, link)
    H, z, theta = np.eye(3), np.zeros(3), np.zeros(3)
    for t, (phi, r) in enumerate(zip(features, rewards)):
        s = float(theta @ phi)
        value, w = (float(f(f32(s))) for f in (link.value, link.slope))
        z, H = z + phi * (w * s + r - value), H + w * np.outer(phi, phi)
        theta = np.linalg.solve(H, z)
        np.testing.assert_allclose(found[t], theta, atol=1e-4)


@pytest.mark.parametrize("link", [slow(links.LOGISTIC), links.PROBIT, links.IDENTITY])
def test_fitted_evaluator_solves_its_equation(link):
    rng = np.random.default_rng(6)
    features = rng.uniform(-1, 1, (200, 4))
    rewards = np.asarray(link.value(f32(0.4 + 0.3 * features[:, 0])), float)
    theta = fit_glm(features, rewards, link, ridge=0.5)
    residual = rewards - np.asarray(link.value(f32(features @ theta)), float)
    np.testing.assert_allclose(features.T @ residual, 0.5 * theta, atol=1e-4)


# --- 3.5 Radii -----------------------------------------------------------------------------------------------------


def moment_of(K=3, m=3, T=10_000, n=5000, t=1000, d=0, trace=None, square=8.0, eta0=1.0, bound=2.0):
    spec = CascadeSpec(K, context_dim=m, feature_dim=d, context_bound=math.sqrt(m), feature_bound=math.sqrt(square))
    return Now(
        t=jnp.int32(t),
        log_horizon=f32(math.log(T)),
        number=jnp.full((K,), n, jnp.int32),
        psi=jnp.ones(m),
        norm=jnp.full(K, 0.5, jnp.float32),
        trace=None if trace is None else jnp.full(K, trace, jnp.float32),
        eta1=f32(1.0),
        eta0=f32(eta0),
        index_bound=f32(2.0),
        evaluator_bound=f32(bound),
        spec=spec,
    )


def test_radii_of_the_proofs():
    theory = ca.Theoretical(mass=0.3, slope=1.0, reach=0.8, score_slope=0.05, reward_bound=1.0, lipschitz=1.0)
    now = moment_of(n=5000, T=10_000)
    np.testing.assert_allclose(theory.index_radius(now), 509.15, atol=0.006)
    np.testing.assert_allclose(theory.bonus(None, (), now), 0.5 * 509.15, atol=0.003)
    now = moment_of(n=500, t=1000, T=10_000, d=5, trace=3.0)  # delta = 1 / sqrt(T) = .01.
    theta, width = theory.evaluator(draws.key(0), now, jnp.ones(5), jnp.eye(5))
    assert float(width) == pytest.approx(378.08, abs=0.006)
    np.testing.assert_array_equal(theta, 1.0)
    np.testing.assert_allclose(theory.index_radius(now), 6807.3, atol=0.06)


def test_practical_radii():
    b, c_p, c_r = 0.10, 0.03, 0.30
    now = moment_of(T=2000)
    radius = b * math.sqrt(3 * math.log(2000) + math.log(3 * 2000 * 2000))
    assert radius == pytest.approx(0.625, abs=5e-4)
    np.testing.assert_allclose(ca.Practical().bonus(None, (), now), 0.5 * radius, rtol=1e-6)
    now = moment_of(T=400, t=50, d=5, trace=2.5, eta0=0.7)
    log_delta = 0.5 * math.log(400)
    square = b**2 * (3 * math.log(400) + math.log(3 * 400) + log_delta)
    square += c_p**2 * (5 * math.log(50) + log_delta) * 2.5
    np.testing.assert_allclose(ca.Practical().bonus(None, (), now), 0.5 * math.sqrt(square), rtol=1e-6)
    width = c_r * math.sqrt(5 * math.log(1 + 50 * 8 / 0.7) + 2 * (math.log(2) + log_delta))
    assert float(ca.Practical().evaluator(draws.key(0), now, jnp.ones(5), None)[1]) == pytest.approx(width, rel=1e-6)


def test_rule_of_the_ridges():
    rule = ca.ridge_rule
    np.testing.assert_allclose(rule(num_models=3, dim=3, feature_dim=5), [1.968, 0.9623], atol=5e-4)
    np.testing.assert_allclose(rule(num_models=3, dim=5, feature_dim=16), [2.991, 1.785], atol=5e-4)
    assert rule(3, 3, 5, corrected=True).eta0 == pytest.approx(0.673, abs=5e-4)
    assert rule(3, 5, 16, corrected=True).eta0 == pytest.approx(1.307, abs=5e-4)
    assert rule(3, 3, 5, corrected=True).eta1 == rule(3, 3, 5).eta1


def test_bound_of_the_regret():
    """Far above the trivial bound `(2 K + 1) T`."""
    known = ca.regret_bound(ca.uniform_cascade().spec, 10_000)
    assert known == pytest.approx(3.2e6, rel=0.02)
    potential = 4 * 3 * math.log(1 + 10_000)
    assert float(ca.potential_bound(10_000, 3, math.sqrt(3), 1.0)) == pytest.approx(potential)
    B = float(ca.Theoretical().index_radius(moment_of(n=10_000))[0])
    assert known == pytest.approx(2 * B * 3 * math.sqrt(10_000 * potential), rel=1e-5)


def test_bound_of_the_regret_with_an_evaluator():
    """Eq. (86) written out."""
    T, K, m, d, square, growth, bound = 10_000, 3, 3, 5, 8.0, 2.0, 4.0
    spec = CascadeSpec(K, context_dim=m, context_bound=math.sqrt(3), feature_dim=d, feature_bound=math.sqrt(square))
    delta, theory = 1 / math.sqrt(T), ca.Theoretical()
    now = moment_of(n=T, t=T, T=T, d=d, trace=16 * square * growth, bound=bound)
    beta = float(theory.evaluator(draws.key(0), now, jnp.ones(d), jnp.eye(d))[1])
    c_mu = 2 * beta * math.sqrt((1 + square) * math.log(1 + T * square / d))
    c_sigma = 2 * float(theory.index_radius(now)[0])
    start = 100 * square * growth * math.log(6 * T * K * d / delta)
    expected = (c_mu * math.sqrt(d) + 4 * bound + 4 * K + 2) * math.sqrt(T) + 2 * K * start
    expected += K * c_sigma * math.sqrt(T * 4 * m * math.log(1 + T))
    found = ca.regret_bound(spec, T, growth=growth, evaluator_bound=bound)
    assert found == pytest.approx(expected, rel=1e-4) and found > 7e4


# --- 4.6 Values, and the study of section 6 --------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "value"), [((0, 0), 0.5356009), ((0.5, -0.5), 0.6113105), ((-0.9, 0.8), 0.6207554)])
def test_oracle_value_of_a_request(x, value):
    assert ca.oracle_value(ca.uniform_cascade(), (1, *x)) == pytest.approx(value, abs=2e-6)


def test_oracle_value_of_the_two_boxes():
    assert ca.oracle_value(ca.two_boxes(), [1.0]) == pytest.approx(0.54, abs=1e-6)


LEARNERS = {
    "COSMOS": ca.cosmos(fit="streaming"),
    "LinUCB": ca.LinUCB(),
    "epsilon": ca.EpsilonGreedy(fit=ca.Streaming()),
    "etc": ca.ExploreThenCommit(fit=ca.Streaming()),
    "warm greedy": ca.Greedy(fit=ca.Streaming(), exploration=ca.WarmUp(10)),
    "greedy": ca.Greedy(fit=ca.Streaming()),
    "window": ca.COSMOS(),
}
RULES = {
    "oracle": ca.Oracle.of,
    "one call": ca.ContextSingle.of,
    "static": ca.StaticIndex.of,
    "frugal": ca.Frugal(),
    "all": ca.QueryAll(),
    "best": ca.BestSingle.of,
    "random": ca.RandomCascade(),
}


def study(env, policies, horizon=2000, seeds=256, **options):
    return jr.simulate(
        env, policies, **{"horizon": horizon, "seeds": seeds, "record_every": horizon // 4, "progress": False} | options
    )


@functools.cache
def first_study():
    """Some policies on REF, all on the same luck."""
    names = ("oracle", "one call", "all")
    return study(ca.uniform_cascade(), {n: RULES[n] for n in names} | {"COSMOS": LEARNERS["COSMOS"]})


def assert_near(values, expected, error, what, num_sigma=4.0, slack=0.0):
    """The mean over seeds is what somebody else measured with the given standard error."""
    own = float(values.std(ddof=1)) / math.sqrt(values.size)
    gap, width = abs(float(values.mean()) - expected), math.hypot(own, error)
    assert gap < num_sigma * width + slack, f"{what}: {float(values.mean()):.5g} is {gap / width:.1f} errors from {expected}"


@pytest.mark.slow
def test_values_with_full_information():
    """First row of the table of section 2.4; its standard errors are about .0003 (queries: two digits)."""
    data = first_study().isel(time=-1)
    row = {"oracle": 0.5807, "one call": 0.5705, "all": 0.5228}
    for name, value in row.items():
        assert_near(data["utility"].sel(policy=name), value, 0.0003, name)
    assert_near(data["queries"].sel(policy="oracle"), 1.312, 0.001, "queries")
    assert data["valid"].all()


REGRET = {"one call": (19.87, 0.07), "all": (115.7, 0.2), "COSMOS": (8.88, 0.05)}


@pytest.mark.slow
def test_regrets_of_the_first_study():
    data = first_study()
    for name, (value, error) in REGRET.items():
        assert_near(data["regret"].sel(policy=name).isel(time=-1), value, error, name)
    ours = data["regret"].sel(policy="COSMOS")
    for place, value in ((0, 5.46), (1, 7.04)):
        assert_near(ours.isel(time=place), value, 0.05, f"COSMOS at {int(ours.time[place])}")
    assert_near(data["queries"].sel(policy="COSMOS").isel(time=-1), 1.572, 0.002, "queries of COSMOS")
    assert float(np.abs(data["regret"].sel(policy="oracle")).max()) < 1e-3


@pytest.mark.slow
def test_three_measures_of_regret_have_one_mean():
    data = first_study().isel(time=-1)
    for name in ("COSMOS", "all", "one call"):
        one, mean, real = (data[f].sel(policy=name) for f in ("regret", "mean_cost_regret", "realised_regret"))
        for other in (mean, real):
            assert_near(other - one, 0.0, 0.0, name)
    spread = {f: float(data[f].sel(policy="COSMOS").std()) for f in ("regret", "mean_cost_regret", "realised_regret")}
    assert spread["mean_cost_regret"] < spread["regret"]  # Common draws cancel.


@pytest.mark.slow
def test_the_cascade_beats_every_single_call():
    """Section 2.1: two boxes, and .04 per request between the cascade and the best single call."""
    env = ca.two_boxes()
    data = study(env, {"oracle": ca.Oracle.of, "one call": ca.ContextSingle.of}, horizon=400).isel(time=-1)
    assert_near(data["utility"].sel(policy="oracle"), 0.54, 0.0, "cascade")
    assert_near(data["regret"].sel(policy="one call"), 0.04 * 400, 0.0, "one call")
    assert float(np.abs(data["regret"].sel(policy="oracle")).max()) < 1e-3


def test_tuned_threshold_of_ref():
    threshold, value = ca.tuned_threshold(ca.uniform_cascade(), number=50_000)
    assert threshold == pytest.approx(0.53, abs=0.021)
    assert value == pytest.approx(0.5599, abs=0.003)


TABLE = {
    (3, 3): (0.5807, 1.31, 0.5106, 0.5705, 0.5228, 0.5599, 0.53, 0.5571),
    (3, 5): (0.5582, 1.46, 0.5106, 0.5429, 0.5063, 0.5440, 0.52, 0.5435),
    (3, 10): (0.5474, 1.53, 0.5105, 0.5290, 0.4988, 0.5350, 0.52, 0.5404),
    (5, 5): (0.5856, 1.50, 0.5282, 0.5703, 0.4601, 0.5547, 0.54, 0.5679),
    (5, 10): (0.5669, 1.60, 0.5282, 0.5481, 0.4455, 0.5428, 0.53, 0.5566),
    (10, 5): (0.6051, 1.70, 0.5496, 0.5838, 0.3135, 0.5576, 0.54, 0.5741),
    (10, 10): (0.5925, 1.67, 0.5496, 0.5742, 0.3002, 0.5469, 0.53, 0.5704),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", TABLE)
def test_values_with_full_information_of_all_sizes(size):
    env = ca.uniform_cascade(*size)
    oracle, queries, best, one, everything, frugal, threshold, static = TABLE[size]
    policies = {n: RULES[n] for n in ("oracle", "best", "one call", "all", "static")}
    data = study(env, policies | {"frugal": ca.Frugal(threshold=threshold)}).isel(time=-1)
    expected = {"oracle": oracle, "best": best, "one call": one, "all": everything, "frugal": frugal, "static": static}
    for name, value in expected.items():
        assert_near(data["utility"].sel(policy=name), value, 0.0003, name)
    assert_near(data["queries"].sel(policy="oracle"), queries, 0.0015, "queries", slack=0.005)
    assert ca.tuned_threshold(env)[0] == pytest.approx(threshold, abs=0.021)


@pytest.mark.slow
def test_regrets_of_the_learners_of_the_first_study():
    names = ("LinUCB", "epsilon", "etc", "warm greedy", "greedy", "window")
    rules = {n: RULES[n] for n in ("random", "static", "best", "frugal")}
    data = study(ca.uniform_cascade(), {n: LEARNERS[n] for n in names} | rules, seeds=512)
    expected = {
        "LinUCB": (23.61, 0.07),
        "epsilon": (14.39, 0.07),
        "etc": (9.82, 0.04),
        "warm greedy": (1.61, 0.04),
        "greedy": (95.7, 5.2),
        "window": (9.43, 0.11),
        "random": (61.4, 0.1),
        "static": (47.3, 0.1),
        "best": (139.5, 0.2),
        "frugal": (41.9, 0.1),
    }
    assert data["valid"].all()
    for name, (value, error) in expected.items():
        assert_near(data["regret"].sel(policy=name).isel(time=-1), value, error, name)


@pytest.mark.slow
def test_five_models():
    env = ca.uniform_cascade(5, 5)
    data = study(env, {"COSMOS": LEARNERS["COSMOS"], "all": ca.QueryAll(), "one call": ca.ContextSingle.of})
    for place, value in ((0, 20.5), (1, 27.4), (3, 35.2)):
        assert_near(data["regret"].sel(policy="COSMOS").isel(time=place), value, 0.23, "COSMOS")
    assert_near(data["regret"].sel(policy="all").isel(time=-1), 251.2, 0.4, "all")
    assert_near(data["regret"].sel(policy="one call").isel(time=-1), 30.5, 0.14, "one call")


@pytest.mark.slow
def test_window_stays_near_the_exact_estimator():
    """Table 4.3.5: the same runs, with 2000 samples or with 32 of them."""
    fits = {"exact": ca.Window.exact(2000), "64": ca.Window(size=64, iterations=3), "32": ca.Window()}
    fits |= {"8": ca.Window(size=8), "stream": ca.Streaming(), "constant": ca.ConstantCurvature()}
    data = study(ca.uniform_cascade(), {n: ca.COSMOS(fit=f) for n, f in fits.items()}, seeds=24).isel(time=-1)["regret"]
    gap = {n: float(np.abs(data.sel(policy=n) - data.sel(policy="exact")).mean()) for n in fits}
    for name, value in {"64": 0.059, "32": 0.140, "8": 0.243, "stream": 0.644}.items():
        assert value / 4 < gap[name] < 4 * value, (name, gap)
    assert gap["constant"] > 10
    assert_near(data.sel(policy="exact"), 9.71, 0.26, "exact")


@pytest.mark.slow
def test_two_boxes_need_a_large_bonus():
    """S0: with the bonus that suits the main cascade the second box is given up for ever; a score of 1 ends a search."""
    env = ca.two_boxes()
    data = study(env, {"window": jr.grid(ca.cosmos, index=[0.1, 0.3, 0.6, 1.0, 2.0])}, seeds=512)
    regret = data["regret"].isel(policy=0)
    for place, value in ((0, 18.0), (1, 35.9), (3, 71.7)):
        assert_near(regret.sel(index=0.1).isel(time=place), value, 1.3, "b = .1")
    assert_near(regret.sel(index=1.0).isel(time=-1), 1.47, 0.29, "b = 1")
    assert float(regret.sel(index=2.0).isel(time=-1).mean()) < 1.0


@pytest.mark.slow
def test_unknown_evaluator():
    """S7, and the sweep of the evaluator's bonus."""
    env = ca.uniform_cascade(evaluator=5)
    policies = {
        "streaming": ca.cosmos(fit="streaming"),
        "window": jr.grid(ca.cosmos, optimism=[0.0, 0.1, 0.3, 0.6, 1.0]),
    }
    data = study(env, {"streaming": policies["streaming"]}, horizon=4000)
    for place, value in ((0, 18.2), (1, 21.2), (3, 24.3)):
        assert_near(data["regret"].isel(policy=0, time=place), value, 1.9, "streaming")
    regret = study(env, {"window": policies["window"]}, horizon=4000)["regret"].isel(policy=0, time=-1)
    for width, value in ((0.0, 29.6), (0.1, 24.9), (0.3, 18.6), (0.6, 16.8), (1.0, 21.6)):
        assert_near(regret.sel(optimism=width), value, 1.6, f"c_r = {width}")


@pytest.mark.slow
def test_design_of_deployed_outputs_grows():
    """S14: its least eigenvalue grows by about .124 per period."""
    probes = {"growth": ca.design_growth}
    env = ca.uniform_cascade(evaluator=5)
    data = study(env, ca.cosmos(fit="streaming"), horizon=4000, seeds=64, probes=probes)
    assert_near(data["growth"].isel(policy=0, time=-1), 497.0, 3.0, "least eigenvalue")


@pytest.mark.slow
def test_bootstrap_needs_a_warm_up():
    """Section 3.6: without one the spread of the copies vanishes with the first sample or two."""
    policies = {str(w): ca.BootstrapCOSMOS(exploration=ca.WarmUp(w)) for w in (0, 10, 30)}
    regret = study(ca.uniform_cascade(), policies, horizon=10_000, seeds=128)["regret"].isel(time=-1)
    assert float(regret.sel(policy="0").mean()) > 100
    assert_near(regret.sel(policy="10"), 2.44, 0.12, "10 rounds")
    assert_near(regret.sel(policy="30"), 3.23, 0.16, "30 rounds")


@pytest.mark.slow
def test_double_precision_has_the_same_regret():
    policy, options = ca.cosmos(fit="streaming"), {"horizon": 2000, "seeds": 128}
    single = study(ca.uniform_cascade(), policy, **options)["regret"].isel(policy=0, time=-1)
    with x64():
        double = study(in_double(ca.uniform_cascade()), in_double(policy), **options)["regret"].isel(policy=0, time=-1)
    assert float(double.mean()) == pytest.approx(float(single.mean()), rel=0.02)
