"""The budgeted fill (RouteOPT) against HiGHS, worked examples, and its own certificate."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from helpers import x64
from scipy.optimize import linprog

from jaxroute.core.batching.lanes import lanes
from jaxroute.solvers.budgeted_fill import budgeted_fill

SIZES = (*range(1, 16), 30)
PER_SIZE = 1200
DTYPES = ("float32", "float64")


def in_dtype(dtype):
    return x64(dtype == "float64")


@functools.cache
def solver(dtype, steps):
    """The jitted and vmapped solver; one per precision, as the two must not share a trace."""
    del dtype
    return jax.jit(jax.vmap(lambda u, c, cap, b, valid: budgeted_fill(u, c, cap, b, valid=valid, steps=steps)))


def solve(problem, dtype, steps=None):
    """A batch of instances in the given precision, as NumPy arrays of float64."""
    with in_dtype(dtype):
        u, c, cap, b, valid = problem
        args = (*(jnp.asarray(x, dtype) for x in (u, c, cap, b)), jnp.asarray(valid))
        answer = solver(dtype, steps)(*args)
        assert answer.amount.dtype == dtype
        return type(answer)(*(np.asarray(x) if x.dtype == bool else np.asarray(x, np.float64) for x in answer))


def random_problems(rng, count, size):
    """Instances in float32: a third random, a third with costs (and often values) equal bit for bit, a third on a
    concave price-quality frontier; a tenth with little capacity, a third with a random mask."""
    kind = (np.arange(count) % 3)[:, None]
    shape = (count, size)
    uniform = rng.uniform(0, 1, shape)
    coarse = np.where(rng.random(shape) < 0.3, 1.0, rng.integers(0, 8, shape) / 7)
    spread = 10.0 ** rng.uniform(-1, 1.3, shape)
    prices = np.array([0.1, 0.1, 0.28, 0.55, 0.82, 2.0, 10.0, 15.0])[rng.integers(0, 8, shape)]
    noise = rng.choice([0.0, 1e-3, 0.03], (count, 1)) * rng.normal(size=shape)
    frontier = (spread / 20) ** rng.uniform(0.1, 0.9, (count, 1)) + noise
    u = np.select([kind == 0, kind == 1], [uniform, np.where(rng.random((count, 1)) < 0.5, coarse, uniform)], frontier)
    c = np.where(kind == 1, prices, spread)
    cap = np.where(rng.random((count, 1)) < 0.4, 0.4, rng.uniform(0.05, 1, shape))
    cap = np.where(rng.random((count, 1)) < 0.1, rng.uniform(0.02, 1.2 / size, shape), cap)
    cap = np.where(rng.random((count, 1)) < 0.8 * (size < 3), np.maximum(cap, 1.1 / size), cap)
    cap = np.minimum(cap, 1.0)
    valid = rng.random(shape) < rng.choice([1.0, 1.0, 0.7], (count, 1))
    some = valid.any(1)
    costliest = np.where(some, np.where(valid, c, -np.inf).max(1), 1.0)
    cheap = np.where(some, np.where(valid, c, np.inf).min(1), 1.0)
    b = cheap * (costliest / cheap) ** rng.uniform(-0.05, 0.9, count)
    return (*(x.astype(np.float32) for x in (u, c, cap, b)), valid)


def fill_by_score(score, tie, cap):
    """Largest score first, equal scores by larger `tie`; by sorting, in float64, `[n, K]`."""
    order = np.lexsort((-tie, -score), axis=1)
    room = np.take_along_axis(cap, order, 1)
    amount = np.clip(1.0 - (np.cumsum(room, 1) - room), 0.0, room)
    return np.take_along_axis(amount, np.argsort(order, 1, kind="stable"), 1)


def cheapest_cost(problem):
    """Least possible cost `[n]`, and whether the capacities carry everything, in float64."""
    u, c, cap, _, valid = (np.asarray(x, np.float64) for x in problem)
    cap = cap * valid
    return (c * fill_by_score(-c, u, cap)).sum(1), cap.sum(1) >= 1.0


def highs(problem, block=400):
    """Optimal values and budget multipliers of feasible instances: blocks of them as one block-diagonal program."""
    u, c, cap, b, valid = (np.asarray(x, np.float64) for x in problem)
    values, multipliers = [], []
    for first in range(0, len(b), block):
        part = slice(first, first + block)
        n, k = u[part].shape
        rows, columns = np.repeat(np.arange(n), k), np.arange(n * k)
        answer = linprog(
            -u[part].ravel(),
            A_ub=scipy.sparse.csr_matrix((c[part].ravel(), (rows, columns)), shape=(n, n * k)),
            b_ub=b[part],
            A_eq=scipy.sparse.csr_matrix((np.ones(n * k), (rows, columns)), shape=(n, n * k)),
            b_eq=np.ones(n),
            bounds=np.stack([np.zeros(n * k), (cap * valid)[part].ravel()], axis=1),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert answer.success, answer.message
        values.append((u[part] * answer.x.reshape(n, k)).sum(1))
        multipliers.append(-answer.ineqlin.marginals)
    return np.concatenate(values), np.concatenate(multipliers)


@functools.cache
def reference(size):
    """Random problems of one size, which of them are feasible, and HiGHS' values and multipliers (NaN elsewhere)."""
    problem = random_problems(np.random.default_rng(1000 + size), PER_SIZE, size)
    least, enough = cheapest_cost(problem)
    feasible = enough & (least <= problem[3].astype(np.float64))
    value, multiplier = np.full((2, PER_SIZE), np.nan)
    value[feasible], multiplier[feasible] = highs(tuple(x[feasible] for x in problem))
    return problem, feasible, value, multiplier


def dual_value(problem, multiplier):
    """The Lagrangian bound `multiplier * budget + max over distributions of (u - multiplier c) . p`."""
    u, c, cap, b, valid = (np.asarray(x, np.float64) for x in problem)
    score = u - multiplier[:, None] * c
    return multiplier * b + (score * fill_by_score(score, -c, cap * valid)).sum(1)


def steepest(problem):
    """The largest multiplier at which two models change order."""
    u, c, _, _, valid = (np.asarray(x, np.float64) for x in problem)
    du, dc = u[:, :, None] - u[:, None, :], c[:, :, None] - c[:, None, :]
    both = (valid[:, :, None] * valid[:, None, :] > 0) & (du * dc > 0)
    return np.where(both, du / np.where(dc == 0, 1.0, dc), 0.0).max((1, 2))


# Random instances.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_against_highs(size, dtype):
    problem, feasible, value, _ = reference(size)
    u, c, cap, b, valid = (np.asarray(x, np.float64) for x in problem)
    assert 0.15 < feasible.mean() < 0.95
    answer = solve(problem, dtype)
    tolerance = 2e-6 if dtype == "float32" else 1e-9
    np.testing.assert_array_equal(answer.feasible, feasible)
    assert answer.converged.all() and answer.residual.min() >= 0.0  # The default number of steps suffices.
    # A distribution within the capacities; of the best value, within the budget.
    assert np.isfinite(answer.amount).all()
    assert answer.amount.min() >= 0.0
    assert (answer.amount * (valid == 0)).max() == 0.0
    _, enough = cheapest_cost(problem)
    used, sums = answer.amount[enough], answer.amount.sum(1)
    assert (used - (cap * valid)[enough]).max() <= (1e-7 if dtype == "float32" else 1e-15)
    np.testing.assert_allclose(sums[enough], 1.0, atol=1e-6 if dtype == "float32" else 1e-12)
    cost = (c * answer.amount).sum(1)
    assert (cost[feasible] / b[feasible]).max() <= 1.0 + tolerance
    gap = np.abs((u * answer.amount).sum(1) - value)[feasible]
    assert gap.max() <= tolerance, f"value off by {gap.max():.2g} in instance {np.flatnonzero(feasible)[gap.argmax()]}"
    # Elsewhere the cheapest distribution, the best of those, or the capacities scaled to 1.
    dear = enough & ~feasible
    cheapest = fill_by_score(np.where(valid > 0, -c, -np.inf), u, cap * valid)
    np.testing.assert_allclose(answer.amount[dear], cheapest[dear], atol=1e-6 if dtype == "float32" else 1e-12)
    multiplier = answer.multiplier[~feasible]
    assert (multiplier >= 0.0).all()
    assert (multiplier <= steepest(problem)[~feasible] * 1.01 + 1e-6).all()
    room = (cap * valid).sum(1, keepdims=True)
    scaled = cap * valid / np.maximum(room, 1e-30)
    np.testing.assert_allclose(answer.amount[~enough], scaled[~enough], atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_multiplier(size, dtype):
    """The multiplier proves optimality, and is HiGHS' own where that is unique."""
    problem, feasible, value, marginal = reference(size)
    answer = solve(problem, dtype)
    some = tuple(x[feasible] for x in problem)
    multiplier = answer.multiplier[feasible]
    assert (multiplier >= 0).all()
    bound = dual_value(some, multiplier)
    tolerance = 1e-5 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(bound, value[feasible], atol=tolerance)
    np.testing.assert_allclose(dual_value(some, marginal[feasible]), value[feasible], atol=1e-9)
    same = np.isclose(multiplier, marginal[feasible], rtol=1e-3 if dtype == "float32" else 1e-8, atol=1e-6)
    assert same.mean() > 0.9
    # Where they differ, the optimum is degenerate: any multiplier between the two proves it as well.
    middle = dual_value(some, (multiplier + marginal[feasible]) / 2)
    np.testing.assert_allclose(middle, value[feasible], atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [6, 10, 15])
def test_certificate(size, dtype):
    """With too few steps `converged` tells what is optimal from what is not; the residual bounds what is missing."""
    problem, feasible, value, _ = reference(size)
    u, _, _, b, _ = (np.asarray(x, np.float64) for x in problem)
    for steps in (1, 2):
        answer = solve(problem, dtype, steps)
        np.testing.assert_array_equal(answer.feasible, feasible)
        gap = (value - (u * answer.amount).sum(1))[feasible]
        residual, converged = answer.residual[feasible], answer.converged[feasible]
        # Rounding of values and of multiplier times costs, both of the size at the optimum.
        noise = 64 * np.finfo(dtype).eps * (np.abs(u).max(1) + answer.multiplier * b)[feasible]
        assert (gap[converged] <= noise[converged]).all(), f"converged with a gap of {(gap - noise)[converged].max():.2g}"
        assert (gap <= residual + noise).all()
        if steps == 1:
            assert (~converged).mean() > 0.1
            assert np.mean(gap[~converged] > noise[~converged]) > 0.5


def test_certificate_flags_frontiers_that_need_more_steps():
    """Prices in geometric progression over six decades: the default eight steps fall short here and there, and say so."""
    rng = np.random.default_rng(2)
    count, size = 20_000, 10
    c = np.repeat(10.0 ** (-2 + 0.6 * np.arange(size))[None], count, axis=0)
    u = (c / c.max()) ** rng.uniform(0.02, 0.98, (count, 1))
    cap = rng.uniform(0.02, 1.0, (count, size))
    cap = np.minimum(np.maximum(cap, 1.05 * cap / cap.sum(1, keepdims=True)), 1.0)
    least, most = ((c * fill_by_score(score, -c, cap)).sum(1) for score in (-c, u))
    problem = (u, c, cap, least * (most / least) ** rng.uniform(0.001, 1, count), np.ones(u.shape, bool))
    short, full = solve(problem, "float64"), solve(problem, "float64", 40)
    assert full.converged.all()
    gap = (u * (full.amount - short.amount)).sum(1)
    assert gap[short.converged].max() <= 1e-9
    assert (gap <= short.residual + 1e-9).all()
    assert gap.max() > 1e-4
    assert 0 < (~short.converged).sum() < 0.05 * count


@pytest.mark.parametrize("dtype", DTYPES)
def test_relabelling_models(dtype):
    """With the old index as priority, a permuted problem has the permuted solution, ties included."""
    u, c, cap, b, valid = reference(8)[0]
    order = np.random.default_rng(3).permutation(8)
    with in_dtype(dtype):
        u, c, cap, b = (jnp.asarray(x, dtype) for x in (u, c, cap, b))

        def run(*arrays, priority):
            return jax.jit(jax.vmap(lambda *a: budgeted_fill(*a[:4], valid=a[4], priority=priority).amount))(*arrays)

        plain = run(u, c, cap, b, valid, priority=None)
        moved = run(u[:, order], c[:, order], cap[:, order], b, valid[:, order], priority=jnp.asarray(order))
        tolerance = 1e-5 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(moved, plain[:, order], atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lanes_agree_with_vmap(dtype):
    problem = reference(7)[0]
    plain = solve(problem, dtype)
    with in_dtype(dtype):
        args = [jnp.moveaxis(jnp.asarray(x, dtype if x.dtype != bool else bool), 0, -1) for x in problem]
        mapped = lanes(lambda u, c, cap, b, valid: budgeted_fill(u, c, cap, b, valid=valid), PER_SIZE)
        last = jax.jit(mapped)(*args)
    np.testing.assert_array_equal(last.feasible, plain.feasible)
    np.testing.assert_array_equal(last.converged, plain.converged)
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    u = np.float64(problem[0])
    np.testing.assert_allclose((u * np.asarray(last.amount).T).sum(1), (u * plain.amount).sum(1), atol=tolerance)
    np.testing.assert_allclose(np.asarray(last.amount).T, plain.amount, atol=2 * tolerance)


# Ties.


@pytest.mark.parametrize("dtype", DTYPES)
def test_unseen_models_are_taken_in_index_order(dtype):
    # All at value 1 and the cost floor: .4, .4 and .2 of the first three, or of the last three by priority.
    cost = np.full((1, 6), 0.1)
    problem = (np.ones((1, 6)), cost, np.full((1, 6), 0.4), np.array([2.0]), np.ones((1, 6), bool))
    tolerance = 1e-7 if dtype == "float32" else 1e-15
    np.testing.assert_allclose(solve(problem, dtype).amount, [[0.4, 0.4, 0.2, 0, 0, 0]], atol=tolerance)
    masked = (*problem[:4], np.array([[False, True, False, True, True, True]]))
    np.testing.assert_allclose(solve(masked, dtype).amount, [[0, 0.4, 0, 0.4, 0.2, 0]], atol=tolerance)
    with in_dtype(dtype):
        arrays = [jnp.asarray(x[0], dtype) for x in problem[:4]]
        newest = jax.jit(lambda *a: budgeted_fill(*a, priority=-jnp.arange(6)).amount)(*arrays)
    np.testing.assert_allclose(newest, [0, 0, 0, 0.2, 0.4, 0.4], atol=tolerance)
    # Equal values: the cheaper first, whatever its index.
    cheaper = (problem[0], np.array([[0.3, 0.2, 0.3, 0.1, 0.2, 0.1]]), *problem[2:])
    np.testing.assert_allclose(solve(cheaper, dtype).amount, [[0, 0.2, 0, 0.4, 0, 0.4]], atol=tolerance)


# Derivatives.


def test_derivatives_against_finite_differences():
    """The optimal value changes by the amounts, by minus the multiplier times them, and by the multiplier."""
    u, c, cap, b, valid = reference(6)[0]
    feasible = reference(6)[1]
    answer = solve((u, c, cap, b, valid), "float64")
    binding = np.flatnonzero(feasible & (np.arange(PER_SIZE) % 3 == 0) & (answer.multiplier > 1e-3))[:20]
    assert len(binding) == 20
    with x64():

        def best(u, c, b, cap, valid):
            return jnp.sum(u * budgeted_fill(u, c, cap, b, valid=valid).amount)

        gradient, value = jax.jit(jax.grad(best, argnums=(0, 1, 2))), jax.jit(best)
        step = 1e-6
        for i in binding:
            point = [np.float64(x[i]) for x in (u, c, b)]
            rest = (np.float64(cap[i]), valid[i])
            found = [np.asarray(g) for g in gradient(*point, *rest)]
            numeric = [np.zeros_like(x) for x in found]
            for leaf, flat in enumerate(numeric):
                for place in np.ndindex(flat.shape):
                    up, down = ([np.array(x) for x in point] for _ in range(2))
                    up[leaf][place] += step
                    down[leaf][place] -= step
                    numeric[leaf][place] = (value(*up, *rest) - value(*down, *rest)) / (2 * step)
            envelope = (answer.amount[i], -answer.multiplier[i] * answer.amount[i], answer.multiplier[i])
            for one, other, theory in zip(found, numeric, envelope, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)
                np.testing.assert_allclose(one, theory, atol=1e-8)


def test_values_that_are_computed_in_the_same_program():
    """Outside the engine a compiler drops barriers, computes values twice and rounds them in two ways: nobody may be ahead of himself."""
    k_world, k_features, _ = jax.random.split(jax.random.split(jax.random.key(0), 8)[5], 3)
    cost = jnp.array([0.05, 0.15, 0.3, 0.6, 1.0])

    def solve(k_world, k_features):
        k_bend, k_level = jax.random.split(k_world)
        bend, features = jax.random.uniform(k_bend, (5, 2)), jax.random.uniform(k_features, (1200, 2))
        level = 0.3 + 0.5 * jnp.sqrt(cost) + 0.1 * jax.random.normal(k_level, (5,))
        value = level + 0.3 * jnp.sin(4 * features @ (2 * bend - 1).T + 6 * bend[:, 0])
        return value, jax.vmap(lambda v: budgeted_fill(v, cost, jnp.ones(5), 0.35).amount)(value)

    value, amount = jax.jit(solve)(k_world, k_features)
    np.testing.assert_allclose(amount.sum(axis=1), 1.0, atol=1e-6)
    alone = jax.jit(jax.vmap(lambda v: budgeted_fill(v, cost, jnp.ones(5), 0.35).amount))(value)
    np.testing.assert_allclose((amount * value).sum(axis=1), (alone * value).sum(axis=1), atol=1e-6)
