"""Every public solver at the boundary of what it can solve: too few models, budgets at and below the cheapest selection, costs of every unit.

Failures are counted by kind, against the vertices or faces of each instance, in float64 (`reference.selection`).
"""

import collections
import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import x64
from reference import selection as plain
from scipy.optimize import linprog

from jaxroute import solvers

K = 4
# What a flag of feasibility promises, relative to the budget, the size and each capacity; a value may be below the best one by as much.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-8}
# Of projections the value to ten times as much: amounts are rounded relative to the weights over the temperature.
TEMPERATURE = 0.1
NAMES = ("too few", "budget", "violation", "unsolved", "value", "units", "derivative")


def flags(found):
    feasible = getattr(found, "feasible", None)
    feasible = found.value > -jnp.inf if feasible is None else feasible
    return feasible, jnp.asarray(getattr(found, "converged", True))


def of_selection(solve):
    def solved(w, c, b, n, u):
        found = solve(w, c, b, n, u)
        z = next(getattr(found, name) for name in ("z", "amount", "x") if hasattr(found, name))
        return (z, *flags(found), getattr(found, "sum_multiplier", jnp.nan))

    return solved


def of_any_win(solve):
    def solved(w, c, b, n, u):
        return solve(w, c, b, n, allowed=u > 0)

    return solved


def ascent(w, c, b, n, u):
    return solvers.projected_gradient(lambda z: w - z, c, b, n, upper=u, optimizer=optax.sgd(0.5), steps=150)


def greedy(w, c, b, n, **rules):
    return solvers.continuous_greedy_any_win(w, c, b, n, **rules)


def polished(w, c, b, n, **rules):
    return solvers.polish_any_win(greedy(w, c, b, n, **rules), w, c, b, n, **rules)


def best_of(w, c, b, n, **rules):
    return solvers.best_any_win([solvers.log_any_win(w, c, b, n, **rules), polished(w, c, b, n, **rules)], w)


def selected(reward, temperature, at_most=None):
    def solve(w, c, b, n, u):
        return solvers.select(reward, w, c, b, n, temperature=temperature, allowed=u > 0, at_most=at_most)

    return solve


def set_of(exact_size):
    def solve(w, c, b, n, u):
        return solvers.best_subset(w, c, b, n, allowed=u > 0, exact_size=exact_size, sizes=(0, K))

    return solve


# Name -> (solver of `(w, cost, budget, size, upper)`, may the sum be smaller, upper bounds, the objective); of a selection the bounds are 0
# or 1, and sizes are whole numbers. The objective is "sum" (linear), "all" (of logarithms), "any", "set", "sparse" (at most 2 amounts), the
# same with a quadratic term ("+"), or None of what promises nothing.
CASES = {
    "budgeted_fill": (lambda w, c, b, n, u: solvers.budgeted_fill(w, c, u, b, n), False, "capacity", "sum"),
    "sparse_fill": (lambda w, c, b, n, u: solvers.sparse_fill(w, c, u, b, 2), False, "share", "sparse"),
    "linear_selection": (lambda w, c, b, n, u: solvers.linear_selection(w, c, b, n, allowed=u > 0), False, "mask", "sum"),
    "linear_selection, at most": (
        lambda w, c, b, n, u: solvers.linear_selection(w, c, b, n, allowed=u > 0, exact_size=False), True, "mask", "sum",
    ),
    "best_subset": (set_of(True), False, "mask", "set"),
    "best_subset, at most": (set_of(False), True, "mask", "set"),
    "exact_any_win": (of_any_win(solvers.exact_any_win), True, "mask", "any"),
    "branching_any_win": (of_any_win(solvers.branching_any_win), True, "mask", "any"),
    "log_any_win": (of_any_win(solvers.log_any_win), True, "mask", None),
    "continuous_greedy_any_win": (of_any_win(greedy), True, "mask", None),
    "polish_any_win": (of_any_win(polished), True, "mask", None),
    "best_any_win": (of_any_win(best_of), True, "mask", None),
    "project": (lambda w, c, b, n, u: solvers.project(w / TEMPERATURE, c, b, n, upper=u), False, "capacity", "sum+"),
    "project, at most": (
        lambda w, c, b, n, u: solvers.project(w / TEMPERATURE, c, b, n, upper=u, at_most=True), True, "capacity", "sum+",
    ),
    "smoothed_lp": (lambda w, c, b, n, u: solvers.smoothed_lp(w, c, b, n, TEMPERATURE, upper=u), False, "capacity", "sum+"),
    "differentiable_lp": (lambda w, c, b, n, u: solvers.differentiable_lp(w, c, b, n, capacity=u), False, "capacity", "sum+"),
    "projected_gradient": (ascent, False, "capacity", None),
    "select, sum": (selected("sum", TEMPERATURE), False, "mask", "sum+"),
    "select, all": (selected("all", TEMPERATURE), False, "mask", "all+"),
    "select, any": (selected("any", TEMPERATURE), True, "mask", None),
    "select, sum, exact": (selected("sum", 0), False, "mask", "sum"),
    "select, all, exact": (selected("all", 0), False, "mask", "all"),
    "select, any, exact": (selected("any", 0), True, "mask", "any"),
}  # fmt: skip
# Solvers that have no budget and size, whose tests are elsewhere.
ELSEWHERE = """annealed best_models best_pair discrete_index index_by_bisection linear_index log_weight_of_best pairwise perturbed swap
two_point_index uniform_index"""
# Those whose derivative in the size is promised.
DIFFERENTIABLE = ("project", "smoothed_lp", "differentiable_lp", "select, sum", "select, all", "project, at most")


def instances(count, bounds, at_most, dtype, seed):
    """Probabilities, costs, budgets, sizes and upper bounds, of float64 that `dtype` holds exactly: a third has no point."""
    rng = np.random.default_rng(seed)
    w, c = rng.uniform(0.05, 0.95, (count, K)), rng.random((count, K))
    kind = rng.integers(0, 6, (count, 1))
    c = np.select(
        [kind == 1, kind == 2, kind == 3, kind == 4],
        [np.round(3 * c) / 3, c * (rng.random(c.shape) < 0.5), 10.0 ** (-6 * c), c[:, :1] + 0 * c],
        c,
    )
    w = np.where(rng.random((count, 1)) < 0.1, np.round(3 * w + 0.5) / 4, w)
    mask = (rng.random((count, K)) < np.where(rng.random((count, 1)) < 0.7, 1.0, 0.5)).astype(float)
    if bounds == "mask":
        upper, size = mask, rng.integers(0, K + 2, count).astype(float)
    else:
        upper = mask * rng.uniform(0.1, 1.0, (count, K)) ** (rng.random((count, 1)) < 0.7)
        size = np.where(rng.random(count) < 0.3, np.round(rng.uniform(0.5, 2.5, count)), rng.uniform(0.2, 2.5, count))
        size = np.ones(count) if bounds == "share" else size
    w, c, upper, size = (x.astype(dtype).astype(float) for x in (w, c, upper, size))
    least = plain.least_cost(c, size, upper, False)
    most = -plain.least_cost(-c, size, upper, False)
    budget = least + (most - least) * rng.random(count)
    other = rng.integers(0, 6, count)
    budget = np.select(
        [other == 1, other == 2, other == 3, other == 4],
        [
            least,
            rng.random(count) * least,
            0.01 * c.max(1) * rng.random(count),
            (c * upper * (rng.random(c.shape) < 0.5)).sum(1),
        ],
        budget,
    )
    budget = np.where(rng.random(count) < 0.03, 0.0, np.where(rng.random(count) < 0.05, 10 * most, budget))
    return w, c, budget.astype(dtype).astype(float), size, upper


def objective(name, w):
    w = {"all": np.log(w)}.get(name.rstrip("+"), w)

    def value(z):
        if name == "any":
            return 1 - np.prod(1 - w * z, axis=1)
        if name in ("set", "sparse"):
            z = np.where(np.abs(z) < 1e-7, 0, z)
            fits = (z == np.round(z)).all(1) if name == "set" else (z > 0).sum(1) <= 2
            return np.where(fits, (w * z).sum(1), -np.inf)
        return (w * z).sum(1) - (TEMPERATURE / 2 * (z**2).sum(1) if name.endswith("+") else 0.0)

    return value


def best_value(name, w, c, b, n, u, at_most):
    if name.endswith("+"):
        y = {"all+": np.log(w)}.get(name, w) / TEMPERATURE
        return TEMPERATURE * (0.5 * (y**2).sum(1) - plain.nearest_face(y, c, b, n, u, at_most))
    return plain.best_vertex(c, b, n, u, at_most, objective(name, w))


@cache
def compiled(name, dtype):
    del dtype  # Types of JAX depend on it.
    return jax.jit(jax.vmap(of_selection(CASES[name][0])))


def solve_all(name, dtype, *arrays):
    return [np.asarray(x) for x in compiled(name, dtype)(*(jnp.asarray(x, dtype) for x in arrays))]


def failures(name, dtype, count, seed):
    """Number of failures of each kind in `count` instances."""
    with x64() if dtype is np.float64 else jax.default_matmul_precision("float32"):
        _, at_most, bounds, goal = CASES[name]
        w, c, b, n, u = instances(count, bounds, at_most, dtype, seed)
        rng = np.random.default_rng(seed + 1)
        z, feasible, converged, price = solve_all(name, dtype, w, c, b, n, u)
        tol = TOLERANCE[dtype]
        close = tol * (10 if goal is not None and goal.endswith("+") else 1)
        room, least = u.sum(1), plain.least_cost(c, n, u, at_most)
        few = (~np.bool_(at_most)) & (room < n * (1 - tol))
        poor = ~few & (least > b * (1 + tol))
        sound = ~few & ~poor
        clear = sound & (at_most | (room >= n)) & ((least <= b * (1 - tol)) | (b == 0) & (least == 0))
        best = None if goal is None else best_value(goal, w, c, b, n, u, at_most)
        if goal in ("set", "sparse"):  # A cheap enough set of the right size need not be there.
            exists = best_value(goal, w, c, b * (1 + tol), n * (1 + tol / 10) if at_most else n, u, at_most) > -np.inf
            poor |= sound & ~exists
            sound, clear = sound & exists, clear & (best_value(goal, w, c, b * (1 - tol), n, u, at_most) > -np.inf)
        over = np.maximum((c * z).sum(1) - b * (1 + tol), 0) > 0
        missed = z.sum(1) - n
        over |= (missed if at_most else np.abs(missed)) > tol * np.maximum(n, 1)
        over |= (z < 0).any(1) | (z > u * (1 + tol)).any(1) | ~np.isfinite(z).all(1)
        told = np.zeros((len(NAMES), count), bool)
        told[0], told[1] = few & feasible, poor & feasible
        told[2] = feasible & sound & over
        told[3] = clear & ~(feasible & (converged | (goal is None)))
        if goal is not None:
            scale = np.maximum(np.abs({"all": np.log(w)}.get(goal.rstrip("+"), w)).max(1) * np.maximum(n, 1), 1e-3)
            told[4] = clear & feasible & ~(objective(goal, w)(z.astype(float)) >= best - close * scale)
        # In other units: exactly the same for powers of two, and the same flags and value for powers of ten.
        for power in (2.0 ** rng.integers(-40, 41, count), 10.0 ** rng.integers(-12, 13, count)):
            other, feasible2, converged2, _ = solve_all(name, dtype, w, c * power[:, None], b * power, n, u)
            same = (feasible2 == feasible) & (converged2 == converged)
            exact = (np.log2(power) % 1 == 0) | (goal is not None and goal.endswith("+"))
            told[5] |= (clear | few | poor) & ~same | clear & exact & ~np.isclose(other, z, atol=close).all(1)
            if goal is not None:
                told[5] |= clear & ~(objective(goal, w)(other.astype(float)) >= best - close * scale)
        if name in DIFFERENTIABLE:
            solve = CASES[name][0]

            def slope(w, c, b, n, u):
                return jax.jvp(lambda n: solve(w, c, b, n, u).z, (n,), (jnp.ones_like(n),))[1]

            d = np.asarray(jax.jit(jax.vmap(slope))(*(jnp.asarray(x, dtype) for x in (w, c, b, n, u))))
            binds = (price > 100 * tol) if at_most else np.ones(count, bool)
            told[6] = clear & binds & (room > 0) & ~(np.abs(d.sum(1) - 1) < 1e-3)
        return collections.Counter({k: int(told[i].sum()) for i, k in enumerate(NAMES) if told[i].any()})


def test_no_solver_is_forgotten():
    functions = {name for name in solvers.__all__ if not inspect.isclass(getattr(solvers, name))}
    assert {name.split(",")[0] for name in CASES} | set(ELSEWHERE.split()) == functions


@pytest.mark.parametrize(("count", "seed"), [(200, 1), pytest.param(2200, 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_no_failures(name, dtype, count, seed):
    assert not failures(name, dtype, count, seed)


def test_the_referee_agrees_with_highs():
    w, c, b, n, u = instances(100, "capacity", False, np.float64, seed=3)
    for at_most in (False, True):
        best = best_value("sum", w, c, b, n, u, at_most)
        for row in range(len(w)):
            rows = {"A_eq": np.ones((1, K)), "b_eq": n[row]} if not at_most else {}
            limits = [(c[row], b[row]), *([(np.ones(K), n[row])] * at_most)]
            found = linprog(-w[row], *map(np.array, zip(*limits, strict=True)), bounds=np.c_[0 * u[row], u[row]], **rows)
            if found.status == 0:
                assert best[row] == pytest.approx(-found.fun, abs=1e-6), row
            else:
                assert best[row] == -np.inf or b[row] < 1e-6, row


AT = {"w": [0.3, 0.9, 0.5, 0.6], "cost": [0.5, 1.0, 0.2, 0.7], "budget": 1.4, "size": 1.0, "upper": [1.0, 1.0, 1.0, 1.0]}


@pytest.mark.parametrize("name", CASES)
def test_nan_and_infinity_are_no_numbers(name):
    """Of each argument of each solver: refused where known, flagged under `jit`; but a budget may be infinite, which is no limit."""
    solve = jax.jit(of_selection(CASES[name][0]))
    at = {k: jnp.asarray(v, jnp.float32) for k, v in AT.items()}
    assert all(map(bool, solve(*at.values())[1:3]))
    unlimited, large = (solve(*(at | {"budget": jnp.float32(b)}).values()) for b in (jnp.inf, 1e6))
    np.testing.assert_allclose(unlimited[0], large[0], atol=1e-6)
    assert all(map(bool, unlimited[1:3]))
    for argument in AT:
        if argument == "upper" and CASES[name][2] == "mask":
            continue
        for bad in (np.nan, np.inf, -np.inf):
            if argument == "budget" and bad == np.inf:
                continue
            given = at | {argument: at[argument].at[(0,) * at[argument].ndim].set(bad)}
            if argument == "size" and name == "sparse_fill":  # Its amounts sum to one.
                continue
            feasible = solve(*given.values())[1]
            assert not bool(feasible), (argument, bad)
            if argument == "w" and name == "projected_gradient":  # Only its gradient knows.
                continue
            with pytest.raises(ValueError, match=r"must (not be NaN|be finite|be at least 0|be in .*), got -?(nan|inf)"):
                CASES[name][0](*given.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_models_that_are_not_allowed_may_be_anything(dtype):
    with x64() if dtype is np.float64 else jax.default_matmul_precision("float32"):
        w, c, mask = (np.array(x, dtype) for x in ([0.5, 0.7, np.nan, 0.6], [1.0, 2.0, np.inf, 1.0], [1, 1, 0, 1]))
        for solve in (
            lambda w, c, mask: solvers.linear_selection(w, c, 3.0, 2, allowed=mask).z,
            lambda w, c, mask: solvers.exact_any_win(w, c, 3.0, 2, allowed=mask).z,
            lambda w, c, mask: solvers.branching_any_win(w, c, 3.0, 2, allowed=mask).x,
            lambda w, c, mask: solvers.best_subset(w, c, 3.0, 2, allowed=mask, exact_size=True, sizes=(2, 2)).z,
            lambda w, c, mask: solvers.select("sum", w, c, 3.0, 2, allowed=mask).z,
        ):
            for z in (solve(w, c, mask > 0), jax.jit(solve)(w, c, mask > 0)):
                np.testing.assert_allclose(z, [0, 1, 0, 1], atol=1e-6)


@pytest.mark.parametrize("temperature", [0, 0.1, 1.0])
@pytest.mark.parametrize("reward", ["sum", "all"])
def test_too_few_models_are_refused(reward, temperature):
    for change, message in (
        ({"size": 3}, "got budget 5 and size 3, of models with a capacity of 2"),
        ({"allowed": [False, False]}, "got budget 5 and size 1, of models with a capacity of 0"),
        ({"budget": 0.5}, "got budget 0.5 and size 1,"),
    ):
        given = {"weight": [0.3, 0.9], "cost": [1.0, 1.0], "budget": 5, "size": 1, **change}
        with pytest.raises(ValueError, match=f"budget and size must leave a selection, {message}"):
            solvers.select(reward, **given, temperature=temperature)
        found = jax.jit(lambda b, given=given: solvers.select(reward, **{**given, "budget": b}, temperature=temperature))(
            float(given["budget"])
        )
        assert not found.feasible and not found.converged
    with pytest.raises(
        ValueError, match="budget and total must leave a selection, got budget 5 and total 2, .* capacity of 1"
    ):
        solvers.differentiable_lp([0.3, 0.9], [1.0, 1.0], 5, 2, capacity=[0.5, 0.5])
    with pytest.raises(ValueError, match="cost must be finite, got inf at index .1,"):
        solvers.select(reward, [0.3, 0.9], [1.0, np.inf], 5, 1, temperature=temperature)


def test_a_size_that_is_not_whole_or_not_covered_has_not_converged():
    w, c = jnp.array([0.5, 0.7, 0.6]), jnp.array([1.0, 2.0, 1.0])
    solve = partial(solvers.exact_any_win, w, c, 3.0)
    assert solve(2.0).converged and solve(5.0).converged and solve(2.0, sizes=(1, 2)).converged
    assert not solve(1.5).converged and not solve(3.0, sizes=(1, 2)).converged and not solve(1.0, sizes=(2, 3)).converged
    np.testing.assert_array_equal(solve(0.0).z, 0.0)


def test_the_derivative_in_the_size_is_the_one_from_below():
    """At a vertex the model that falls first has it: here the third; from above it would be the second."""
    w, c = jnp.array([0.9, 0.5, 0.7, 0.2, 0.1]), jnp.full(5, 0.1)
    for derivative in (jax.jacfwd, jax.jacrev):
        d = derivative(lambda n: solvers.select("sum", w, c, 1.0, n, temperature=0.05).z)(2.0)
        np.testing.assert_allclose(d, [0, 0, 1, 0, 0], atol=1e-6)
        d = derivative(lambda n: solvers.select("sum", w, c, 1.0, n, temperature=0.05).z)(0.0)
        np.testing.assert_allclose(d, [1, 0, 0, 0, 0], atol=1e-6)


def test_the_derivative_in_the_size_is_one_sided(double_precision):
    """Of 2,000 instances, with vertices; where budget and size bind at one vertex it need not be."""
    w, c, b, n, u = instances(2000, "mask", False, np.float64, seed=5)

    def solve(w, c, b, n, u):
        return solvers.project(w / TEMPERATURE, c, b, n, upper=u)

    def slope(*at):
        return jax.jvp(lambda n: solve(*at[:3], n, at[4]).z, (at[3],), (1.0,))[1]

    h = 1e-6
    found, below, above = (jax.jit(jax.vmap(solve))(w, c, b, n + s * h, u) for s in (0, -1, 1))
    d = np.asarray(jax.jit(jax.vmap(slope))(w, c, b, n, u))
    sides = [
        np.abs((found.z - below.z) / h - d).max(1),
        np.where(above.feasible, np.abs((above.z - found.z) / h - d).max(1), np.inf),
    ]
    near = np.minimum(*sides) < 1e-3
    z, inner = np.asarray(found.z), plain.least_cost(c, n, u, False) < b * (1 - 1e-9)
    twice = ((z < 1e-9) | (z > 1 - 1e-9)).all(1) & ((c * z).sum(1) > b * (1 - 1e-9))
    clear = np.asarray(found.converged) & (n > 0) & inner & ~twice & np.asarray(below.converged)
    assert clear.sum() > 300 and near[clear].all(), (clear.sum(), np.flatnonzero(clear & ~near)[:5])
