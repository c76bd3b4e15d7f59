"""Solvers of the relaxed selection: programme, projection, projected gradient, any-win solvers and roundings."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_mean_close, x64
from reference import combinatorial as plain
from scipy.optimize import linprog

from jaxroute.engine.batching.compiling import compile_lanes
from jaxroute.engine.batching.lanes import lanes
from jaxroute.problems.combinatorial import relax
from jaxroute.problems.combinatorial.rewards import REWARDS
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation
from jaxroute.solvers import rounding
from jaxroute.solvers.projected_gradient import projected_gradient
from jaxroute.solvers.projection import project, smoothed_lp
from jaxroute.solvers.selection import (
    Selection,
    any_win,
    best_any_win,
    best_subset,
    continuous_greedy_any_win,
    exact_any_win,
    linear_selection,
    log_any_win,
    polish_any_win,
    subsets,
)

MU = np.array([0.024, 0.326, 0.366, 0.294, 0.170, 0.210, 0.282, 0.336, 0.398], np.float32)
COST = (np.array([0.005, 0.02, 0.08, 0.015, 0.005, 0.008, 0.05, 0.05, 0.12]) / 0.12).astype(np.float32)
TIED = {"w": np.array([0.9, 0.5, 0.8, 0.3, 0.6], np.float32), "c": np.array([0.7, 0.2, 0.6, 0.1, 0.4], np.float32)}


def instances(kind, count, num_models, size, seed):
    """Weights, costs and budgets of feasible random instances, float32."""
    rng = np.random.default_rng(seed)
    w, c = rng.random((2, count, num_models))
    if kind == "duplicated":
        w, c = (np.repeat(x[:, : (num_models + 2) // 3], 3, axis=1)[:, :num_models] for x in (w, c))
    elif kind == "half free":
        c = c * (rng.random(c.shape) < 0.5)
    elif kind == "tiny costs":
        c = 1e-4 * c
    elif kind == "logarithms":
        w = np.log(np.clip(w, 1e-6, 0.999))
    ordered = np.sort(c, axis=1)
    least, most = ordered[:, :size].sum(1), ordered[:, -size:].sum(1)
    budget = least + (most - least) * rng.uniform(0.0, 1.1, count)
    return w.astype(np.float32), c.astype(np.float32), np.nextafter(budget, np.inf).astype(np.float32)


# The linear programme.


def test_worked_examples_of_the_programme():
    sums = linear_selection(MU, COST, jnp.float32(0.5), 4.0)
    np.testing.assert_allclose(sums.z, [0, 1, 0, 1, 0.733333, 1, 0, 0.266667, 0], atol=1e-6)
    assert float(MU @ sums.z) == pytest.approx(1.0442667, abs=1e-6)
    assert float(sums.multiplier) == pytest.approx(0.4426667, abs=1e-6)
    product = linear_selection(np.log(MU), COST, jnp.float32(0.3), 4.0)
    np.testing.assert_allclose(product.z, [0.8, 0.2, 0, 1, 1, 1, 0, 0, 0], atol=1e-6)
    assert float(np.log(MU) @ product.z) == pytest.approx(-7.7647128, abs=1e-5)
    assert float(product.multiplier) == pytest.approx(20.870748, rel=1e-6)
    assert float(TIED["w"] @ linear_selection(TIED["w"], TIED["c"], jnp.float32(1.1), 3.0).z) == pytest.approx(1.8, abs=1e-6)


@pytest.mark.parametrize("num_models", [9, 25])
@pytest.mark.parametrize("kind", ["uniform", "duplicated", "half free", "tiny costs", "logarithms"])
@pytest.mark.parametrize("exact_size", [True, False])
def test_programme_against_highs(kind, exact_size, num_models):
    """600 instances of each of 20 kinds: 12,000 in all."""
    if kind == "logarithms" and not exact_size:
        pytest.skip("negative weights are those of all in, which has an exact size")
    size = 4 if num_models == 9 else 8
    w, c, budget = instances(kind, 600, num_models, size, seed=num_models)
    if not exact_size:
        budget = (budget * np.random.default_rng(1).uniform(0, 1.2, len(budget))).astype(np.float32)
    solve = jax.jit(jax.vmap(lambda w, c, b: linear_selection(w, c, b, float(size), exact_size=exact_size)))
    found = solve(w, c, budget)
    z = np.asarray(found.z, np.float64)
    assert np.all(z >= 0) and np.all(z <= 1)
    sums = z.sum(1)
    assert np.max(np.abs(sums - size) if exact_size else sums - size) <= 5e-6
    scale = np.maximum(1.0, budget)
    assert np.max(((c * z).sum(1) - budget) / scale) <= 1e-6
    assert np.all(found.feasible)
    for row in range(len(w)):
        sides = {"A_eq": np.ones((1, num_models)), "b_eq": [size]} if exact_size else {}
        top = [np.ones(num_models)] * (not exact_size)
        best = linprog(
            -w[row].astype(float),
            A_ub=np.stack([c[row].astype(float), *top]),
            b_ub=[float(budget[row]), *([size] * len(top))],
            bounds=(0, 1),
            method="highs",
            **sides,
        )
        gap = -best.fun - float(w[row].astype(float) @ z[row])
        assert gap <= 5e-6 * max(1.0, np.abs(w[row]).max()), (row, gap)


@pytest.mark.parametrize("exact_size", [True, False])
@pytest.mark.parametrize(("labels", "limits"), [((0, 0, 0, 1, 1, 1, 2, 2, 2), (2, 1, 1)), ((0, 1) * 6, (4, 3))])
def test_programme_with_groups_against_highs(labels, limits, exact_size):
    """A partition matroid under one budget: 300 instances each, a third with equal or zero costs."""
    rng = np.random.default_rng(11)
    solve = jax.jit(functools.partial(linear_selection, groups=labels, exact_size=exact_size))
    member = np.array([np.array(labels) == g for g in range(len(limits))])
    worst = 0.0
    for row in range(300):
        w, c = rng.random((2, len(labels))).astype(np.float32)
        if row % 6 == 1:
            c = np.round(c * 3).astype(np.float32) / 3
        if row % 6 == 3:
            c[rng.random(len(c)) < 0.5] = 0
        budget = np.float32(rng.random() * 4)
        found = solve(w, c, budget, np.array(limits, np.float32))
        z = np.asarray(found.z, float)
        best = plain.partition_linear_program(w, c, member, limits, float(budget), exact_size)
        assert bool(found.feasible) == (best is not None), row
        if best is None:
            continue
        assert z.min() >= -1e-6 and z.max() <= 1 + 1e-6 and c @ z <= budget + 5e-6, row
        filled = member @ z
        assert (np.abs(filled - limits) < 5e-6).all() if exact_size else (filled <= np.array(limits) + 5e-6).all(), row
        worst = max(worst, w @ best - w @ z)
    assert worst <= 5e-6


def _all_vertices(c, budget, member, limits):
    """Every vertex of `{0 <= z <= 1, member z <= limits, c . z <= budget}`, by solving every choice of active constraints."""
    size = len(c)
    rows = np.r_[np.eye(size), -np.eye(size), member.astype(float), c[None]]
    ends = np.r_[np.ones(size), np.zeros(size), limits, budget]
    active = np.array(list(itertools.combinations(range(len(rows)), size)))
    systems = rows[active]
    usable = np.abs(np.linalg.det(systems)) > 1e-9
    points = np.linalg.solve(systems[usable], ends[active[usable]][..., None])[..., 0]
    return points[(points @ rows.T <= ends + 1e-9).all(1)]


def test_exact_any_win_with_groups_against_all_vertices():
    labels, limits = (0, 0, 0, 1, 1), (2, 1)
    rng = np.random.default_rng(12)
    solve = jax.jit(functools.partial(exact_any_win, groups=labels, sizes=(3, 3)))
    member = np.array([np.array(labels) == g for g in range(2)])
    for row in range(40):
        w, c = rng.random((2, 5)).astype(np.float32)
        budget = np.float32(rng.random() * 2)
        z = np.asarray(solve(w, c, budget, np.array(limits, np.float32)).z, float)
        assert (member @ z <= np.array(limits) + 1e-5).all() and c @ z <= budget + 3e-6, row
        points = _all_vertices(c.astype(float), float(budget), member, np.array(limits, float))
        best = np.max(1 - np.prod(1 - w * points, axis=1))
        assert any_win(w.astype(float), z) == pytest.approx(best, abs=3e-6), row


def test_infeasible_budget_takes_the_cheapest_and_the_better_of_equals():
    found = linear_selection(jnp.array([0.1, 0.9, 0.5, 0.7]), jnp.array([0.3, 0.3, 0.1, 0.3]), jnp.float32(0.2), 2.0)
    assert not found.feasible
    np.testing.assert_array_equal(found.z, [0, 1, 1, 0])


def test_fewer_allowed_models_than_places():
    allowed = jnp.array([True, False, False, True, False])
    found = linear_selection(TIED["w"], TIED["c"], jnp.float32(5.0), 3.0, allowed=allowed)
    np.testing.assert_array_equal(found.z, [1, 0, 0, 1, 0])
    found = linear_selection(TIED["w"], TIED["c"], jnp.float32(0.45), 3.0, allowed=allowed, exact_size=False)
    np.testing.assert_allclose(found.z, [0.5, 0, 0, 1, 0], atol=1e-6)


# Any win.


def test_worked_example_of_any_win():
    for found in (
        exact_any_win(MU, COST, jnp.float32(0.45), 4.0, sizes=(4, 4)),
        continuous_greedy_any_win(MU, COST, jnp.float32(0.45), 4.0, steps=20),
    ):
        np.testing.assert_allclose(found.z, [0, 1, 0, 1, 0.866667, 1, 0, 0.133333, 0], atol=2e-6)
        assert float(any_win(MU, found.z)) == pytest.approx(0.6938281, abs=1e-6)


def any_win_solvers(size):
    def polished(start):
        return lambda w, c, b: polish_any_win(start(w, c, b), w, c, b, size, steps=3)

    def greedy(w, c, b):
        return continuous_greedy_any_win(w, c, b, size)

    def logarithm(w, c, b):
        return log_any_win(w, c, b, size)

    def ascent(w, c, b):
        def gradient(z):
            return w / jnp.maximum(1.0 - w * z, 1e-6)

        z = projected_gradient(gradient, c, b, size, at_most=True, optimizer=optax.sgd(1.0), steps=50)
        return Selection(z, jnp.zeros(()), jnp.asarray(True))

    return {
        "exact": lambda w, c, b: exact_any_win(w, c, b, size, sizes=(int(size), int(size))),
        "greedy": greedy,
        "logarithm": logarithm,
        "polished greedy": polished(greedy),
        "best": lambda w, c, b: best_any_win([polished(logarithm)(w, c, b), polished(greedy)(w, c, b)], w),
        "ascent": ascent,
    }


@pytest.mark.slow
def test_exact_any_win_is_never_beaten():
    """1,500 instances, a third of them with small budgets; the guarantees of the approximations hold."""
    rng = np.random.default_rng(3)
    w, c = rng.random((2, 1500, 9)).astype(np.float32)
    budget = (rng.random(1500) * np.repeat([0.3, 1.0, 3.0], 500)).astype(np.float32)
    values = {}
    for name, solve in any_win_solvers(4.0).items():
        z = np.asarray(jax.jit(jax.vmap(solve))(w, c, budget).z, np.float64)
        assert z.min() >= -1e-7 and z.max() <= 1 + 1e-6, name
        assert ((c * z).sum(1) <= budget + 3e-6).all() and (z.sum(1) <= 4 + 1e-5).all(), name
        values[name] = 1 - np.prod(1 - w.astype(float) * z, axis=1)
    for name, value in values.items():
        assert np.max(value - values["exact"]) <= 2e-6, name
    assert (values["greedy"] >= (1 - 1 / np.e) * values["exact"]).all()
    assert (values["best"] >= (1 - 1 / np.e) * values["exact"]).all()
    assert (values["ascent"] >= 0.5 * values["exact"] - 1e-6).all()
    assert (values["polished greedy"] >= values["greedy"] - 1e-6).all()
    mean = {name: float(np.mean(value / values["exact"])) for name, value in values.items()}
    assert mean["best"] > 0.999 and mean["greedy"] > 0.99 and mean["ascent"] > 0.98, mean


def test_exact_any_win_against_the_reference():
    """Other sizes than the largest, an unavailable model, chances of one, equal and zero costs."""
    rng = np.random.default_rng(5)
    solve = jax.jit(functools.partial(exact_any_win, sizes=(1, 4)))
    for row in range(120):
        w, c = rng.random((2, 6)).astype(np.float32)
        if row % 4 == 0:
            c[:3] = c[0]
        if row % 4 == 1:
            c[rng.random(6) < 0.5] = 0
        if row % 4 == 2:
            w[0] = 0.999
        size, budget, allowed = int(rng.integers(1, 5)), np.float32(rng.random() * 2), rng.random(6) < 0.8
        found = solve(w, c, budget, float(size), allowed=allowed)
        expected = plain.any_win_exact(w.astype(float), c.astype(float), size, float(budget), available=allowed)
        z = np.asarray(found.z, float)
        assert not z[~allowed].any() and z.sum() <= size + 1e-6 and c @ z <= budget + 1e-6
        value = [1 - np.prod(1 - w.astype(float) * x) for x in (z, expected.z)]
        assert value[0] == pytest.approx(value[1], abs=2e-6), row


def test_linear_weights_have_no_guarantee_for_any_win():
    w, c = jnp.array([0.999, 0.49]), jnp.array([1.0, 0.1])
    found = log_any_win(w, c, jnp.float32(0.1), 2.0)
    assert float(any_win(w, found.z)) == pytest.approx(0.0999, abs=1e-5)
    assert float(any_win(w, exact_any_win(w, c, jnp.float32(0.1), 2.0, sizes=(2, 2)).z)) == pytest.approx(0.49, abs=1e-6)


# Sets.


@pytest.mark.parametrize(
    ("weight", "budget", "exact_size", "expected"),
    [
        (-np.log1p(-MU), 0.45, False, (1, 3, 4, 5)),
        (MU, 0.5, True, (1, 3, 4, 5)),
        (np.log(MU), 0.3, True, (0, 3, 4, 5)),
    ],
)
def test_worked_examples_of_the_best_set(weight, budget, exact_size, expected):
    found = best_subset(weight, COST, jnp.float32(budget), 4.0, exact_size=exact_size, sizes=(4 if exact_size else 0, 4))
    assert tuple(np.flatnonzero(found.z)) == expected
    assert found.feasible


@pytest.mark.parametrize("exact_size", [True, False])
def test_best_set_against_enumeration(exact_size):
    """In one block and in many; with unavailable models; infeasible budgets give the cheapest set."""
    rng = np.random.default_rng(8)
    for num_models, sizes in ((6, (0, 3)), (14, (0, 7))):
        solve = jax.jit(functools.partial(best_subset, exact_size=exact_size, sizes=sizes))
        table = subsets(num_models, sizes[1])
        for row in range(25):
            w, c = rng.random((2, num_models)).astype(np.float32)
            size, budget = int(rng.integers(1, sizes[1] + 1)), np.float32(rng.random() * (0.2 if row % 3 == 0 else 3))
            allowed = rng.random(num_models) < 0.8
            number = table.sum(1)
            room = min(size, allowed.sum())
            usable = ~(table & ~allowed).any(1) & ((number == room) if exact_size else (number <= room))
            spend, value = table @ c.astype(float), table @ w.astype(float)
            fits = usable & (spend <= budget)
            found = solve(w, c, budget, float(size), allowed=allowed)
            assert bool(found.feasible) == fits.any()
            best = value[fits].max() if fits.any() else None
            if best is None:
                assert float(c @ np.asarray(found.z)) == pytest.approx(spend[usable].min(), abs=1e-6)
            else:
                assert float(w @ np.asarray(found.z)) == pytest.approx(best, abs=1e-5)


# Projection.


def residual(y, c, budget, total, z, nu, lam, at_most):
    """Largest violation of the optimality conditions, in float64, with the multipliers that fit the free coordinates best."""
    worst = np.zeros(len(z))
    for row in range(len(z)):
        free = (z[row] > 0) & (z[row] < 1)
        sum_on, budget_on = int(not at_most or nu[row] > 0), int(lam[row] > 0)
        rows = [np.ones(free.sum())] * sum_on + [c[row][free]] * budget_on
        found = [nu[row]] * sum_on + [lam[row]] * budget_on
        if rows and free.sum() >= len(rows) and np.linalg.matrix_rank(np.stack(rows, 1)) == len(rows):
            found = list(np.linalg.lstsq(np.stack(rows, 1), (y[row] - z[row])[free], rcond=None)[0])
        level = found.pop(0) if sum_on else 0.0
        price = found.pop(0) if budget_on else 0.0
        stationary = np.abs(z[row] - np.clip(y[row] - level - price * c[row], 0, 1)).max()
        short = z[row].sum() - total
        spare = c[row] @ z[row] - budget[row]
        parts = [stationary, max(short, 0) if at_most else abs(short), max(spare, 0), min(price, abs(spare)), -price]
        worst[row] = max([*parts, min(level, abs(short)) if at_most else 0.0])
    return worst


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize(("num_models", "size"), [(9, 4), (25, 8)])
def test_projection_residual(scale, at_most, num_models, size):
    """1,300 instances of each of 8 kinds: 10,400 in all."""
    _, c, budget = instances("uniform", 1300, num_models, size, seed=11)
    y = (scale * np.random.default_rng(12).standard_normal(c.shape)).astype(np.float32)
    found = jax.jit(jax.vmap(lambda y, c, b: project(y, c, b, float(size), at_most=at_most)))(y, c, budget)
    arrays = [np.asarray(x, np.float64) for x in (y, c, budget, found.z, found.sum_multiplier, found.budget_multiplier)]
    assert residual(*arrays[:3], size, *arrays[3:], at_most).max() <= 5e-6
    assert np.all(found.feasible)


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("kind", ["duplicated", "half free", "tiny costs"])
def test_projection_of_awkward_costs(kind, at_most, double_precision):
    w, c, budget = (x.astype(np.float64) for x in instances(kind, 300, 9, 4, seed=13))
    y = 2 * w - 1 + np.random.default_rng(14).standard_normal(w.shape)
    found = jax.jit(jax.vmap(lambda y, c, b: project(y, c, b, 4.0, at_most=at_most)))(y, c, budget)
    for row in range(len(y)):
        z, *_ = plain.project(y[row], c[row], 4, budget[row], not at_most)
        np.testing.assert_allclose(found.z[row], z, atol=1e-6, err_msg=f"{kind} {row}")


def test_projection_by_hand():
    y, c = jnp.array([0.9, 0.1, 1.4, -0.3, 0.6]), jnp.asarray(TIED["c"])
    found = project(y, c, 0.8, 2.0)
    np.testing.assert_allclose(found.z, [0.0446154, 0.4369231, 0.7830769, 0.2753846, 0.46], atol=1e-6)
    assert float(found.sum_multiplier) == pytest.approx(-0.8138462, abs=1e-6)
    assert float(found.budget_multiplier) == pytest.approx(2.3846154, abs=1e-6)
    slopes = [1.1538462, -0.7692308, 0.7692308, -1.1538462, 0]
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(lambda b: project(y, c, b, 2.0).z)(0.8), slopes, atol=1e-5)
    cheapest = project(jnp.array([0.0, 0.0, 5.0]), jnp.array([0.1, 0.2, 0.9]), 0.2, 2.0)
    assert not cheapest.feasible
    np.testing.assert_allclose(cheapest.z, [1, 1, 0], atol=0.05)
    inside = project(jnp.array([0.5, 0.2, 0.3]), jnp.full(3, 0.1), 1.0, 1.0)
    np.testing.assert_allclose(inside.z, [0.5, 0.2, 0.3], atol=1e-7)
    assert float(inside.budget_multiplier) == 0.0


@pytest.mark.slow
def test_projection_with_upper_bounds(double_precision):
    """Scaled to the unit box in the only way that a projection allows: equal bounds, and bounds of zero drop a model."""
    rng = np.random.default_rng(15)
    y, c = rng.standard_normal((2, 7))
    c = np.abs(c)
    half = project(y, c, 1.0, 1.5, upper=jnp.full(7, 0.5)).z
    np.testing.assert_allclose(half, 0.5 * project(2 * y, c, 2.0, 3.0).z, atol=1e-9)
    keep = np.arange(7) != 2
    part = project(y, c, 1.0, 2.0, upper=jnp.asarray(keep, float)).z
    np.testing.assert_allclose(part[keep], project(y[keep], c[keep], 1.0, 2.0).z, atol=1e-9)
    assert part[2] == 0


@pytest.mark.parametrize("at_most", [False, True])
def test_projection_derivatives_against_differences(at_most, double_precision):
    """Forward and reverse, in the point, the costs, the budget, the sum and the bounds."""
    rng, h = np.random.default_rng(16), 1e-6
    function = jax.jit(lambda *a: project(*a[:4], upper=a[4], at_most=at_most).z)
    jacobians = [jax.jit(d(function, argnums=(0, 1, 2, 3, 4))) for d in (jax.jacfwd, jax.jacrev)]
    worst = 0.0
    for _ in range(60):
        y, c = rng.standard_normal(6), rng.random(6)
        budget = rng.uniform(np.sort(c)[:3].sum() * 1.05, np.sort(c)[-3:].sum())
        problem = [y, c, budget, 3.0 if not at_most else 2.5, np.ones(6)]
        z = function(*problem)
        margin = np.min(np.where((z > 0) & (z < 1), np.minimum(z, 1 - z), 1.0))
        forward, reverse = (j(*problem) for j in jacobians)
        for which, (a, b) in enumerate(zip(forward, reverse, strict=True)):
            np.testing.assert_allclose(a, b, atol=1e-9)
            for k in range(np.size(problem[which])):
                direction = np.eye(6)[k] if np.ndim(problem[which]) else 1.0
                ends = [
                    function(*[p + s * h * direction if i == which else p for i, p in enumerate(problem)]) for s in (-1, 1)
                ]
                numeric, exact = (ends[1] - ends[0]) / (2 * h), np.asarray(a)[..., k] if np.ndim(problem[which]) else a
                one_sided = [(ends[1] - z) / h, (z - ends[0]) / h]
                if margin > 1e-4 and np.allclose(*one_sided, atol=1e-4):  # Not at a kink.
                    worst = max(worst, float(np.max(np.abs(numeric - exact))))
    assert worst <= 1e-6


@pytest.mark.parametrize(
    ("temperature", "mean", "largest"),
    [(1.0, 0.15, 0.35), (0.3, 0.03, 0.12), (0.1, 6e-3, 0.05), (0.03, 1e-3, 0.02), (0.01, 2e-4, 5e-3)],
)
def test_gap_of_the_smoothed_programme(temperature, mean, largest):
    """Falls with the temperature as in the notes, whose instances are not printed: bounds are twice their figures."""
    w, c, budget = instances("uniform", 500, 9, 4, seed=17)
    z = jax.jit(jax.vmap(lambda w, c, b: smoothed_lp(w, c, b, 4.0, temperature).z))(w, c, budget)
    best = jax.jit(jax.vmap(lambda w, c, b: linear_selection(w, c, b, 4.0).z))(w, c, budget)
    gap = 1 - (w * z).sum(1) / (w * best).sum(1)
    assert gap.min() >= -5e-6
    assert gap.mean() <= mean and gap.max() <= largest, (gap.mean(), gap.max())


def test_smoothed_programme_by_hand():
    for temperature, value in ((1.0, 1.774154), (0.3, 1.789231), (0.1, 1.8)):
        z = smoothed_lp(TIED["w"], TIED["c"], 1.1, 3.0, temperature).z
        assert float(TIED["w"] @ z) == pytest.approx(value, abs=2e-6)
    np.testing.assert_allclose(smoothed_lp(TIED["w"], TIED["c"], 1.1, 3.0, 0.05).z, [0.5, 1, 0.5, 0.5, 0.5], atol=5e-6)


@pytest.mark.parametrize(("rate", "steps", "mean", "largest"), [(10.0, 10, 5e-5, 1e-3), (1.0, 100, 5e-5, 5e-3)])
def test_projected_gradient_reaches_the_programme(rate, steps, mean, largest):
    w, c, budget = instances("uniform", 300, 9, 4, seed=18)
    w = w / w.max(axis=1, keepdims=True)

    def climb(w, c, b):
        return projected_gradient(lambda z: w, c, b, 4.0, optimizer=optax.sgd(rate), steps=steps)

    z = jax.jit(jax.vmap(climb))(w, c, budget)
    best = jax.jit(jax.vmap(lambda w, c, b: linear_selection(w, c, b, 4.0).z))(w, c, budget)
    gap = 1 - (w * z).sum(1) / (w * best).sum(1)
    assert gap.mean() <= mean and gap.max() <= largest, (gap.mean(), gap.max())


def test_projected_gradient_is_differentiable_end_to_end(double_precision):
    w, c = np.asarray(TIED["w"], float), np.asarray(TIED["c"], float)

    def value(weights, budget):
        z = projected_gradient(lambda z: weights - 0.3 * z, c, budget, 2.0, optimizer=optax.sgd(0.5), steps=7)
        return w @ z

    value = jax.jit(value)
    gradient = jax.grad(value, argnums=(0, 1))(w, 0.8)
    h = 1e-6
    for k in range(5):
        ends = [float(value(w + s * h * np.eye(5)[k], 0.8)) for s in (-1, 1)]
        assert float(gradient[0][k]) == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-6)
    ends = [float(value(w, 0.8 + s * h)) for s in (-1, 1)]
    assert float(gradient[1]) == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-6)


# Rounding.

FRACTIONS = (
    [0.3, 0.6, 0.5, 0.6],
    [0.5, 0.4, 0.7, 0.2],
    [0.7, 0.55],
    [1.0, 0.0, 0.25, 0.75],
    [0.2, 0.2, 0.2, 0.2, 0.2],
    [0.9],
)


@functools.partial(jax.jit, static_argnums=(2, 3))
def round_many(z, key, kind, count):
    size = z.shape[-1]
    k_first, k_second = jax.random.split(key)
    if kind == "pairwise":
        return jax.vmap(lambda u: rounding.pairwise(z, u, whole_sum=False))(jax.random.uniform(k_first, (count, size)))
    uniforms = jax.random.uniform(k_first, (count, size, size)), jax.random.uniform(k_second, (count, size))
    return jax.vmap(lambda u, g: rounding.swap(z, u, g))(*uniforms)


@pytest.mark.parametrize("kind", ["pairwise", "swap"])
@pytest.mark.parametrize("z", FRACTIONS)
def test_rounding_follows_the_enumerated_law(kind, z):
    """Every set as often as the enumeration of all coins says, within 5 standard errors of 200,000 draws."""
    count = 200_000
    sets = np.asarray(round_many(jnp.asarray(z), jax.random.key(3), kind, count))
    law = (plain.pairwise_law if kind == "pairwise" else plain.swap_law)(np.asarray(z))
    codes = sets @ (1 << np.arange(len(z)))
    assert set(np.unique(codes)) <= {sum(1 << k for k in members) for members, chance in law.items() if chance > 0}
    for members, chance in law.items():
        seen = np.mean(codes == sum(1 << k for k in members))
        assert abs(seen - chance) <= 5 * np.sqrt(chance * (1 - chance) / count) + 1e-9, (members, seen, chance)
    assert set(np.unique(sets.sum(1))) <= {int(np.floor(sum(z) + 1e-6)), int(np.ceil(sum(z) - 1e-6))}


def test_roundings_equal_the_reference_coin_by_coin():
    """The same uniforms give the same set, at vertices, at ties and in the middle."""
    rng = np.random.default_rng(20)
    pairwise = jax.jit(functools.partial(rounding.pairwise, whole_sum=False))
    swap = jax.jit(rounding.swap)
    for row in range(300):
        z = np.round(rng.random(6), int(rng.integers(1, 4)))
        if row % 3 == 0:
            z = np.where(rng.random(6) < 0.5, np.round(z), z)
        u, trades, group = rng.random(6), rng.random((6, 6)), rng.random(6)
        np.testing.assert_array_equal(pairwise(z, u), plain.round_pairwise(z, u), err_msg=f"pairwise {z}")
        np.testing.assert_array_equal(swap(z, trades, group), plain.round_swap(z, trades, group), err_msg=f"swap {z}")


def test_decomposition_by_hand():
    weight, members = rounding.decompose(jnp.array([0.3, 0.6, 0.5, 0.6]))
    sets = {tuple(np.flatnonzero(m)): float(w) for w, m in zip(weight, members, strict=True) if w > 1e-6}
    assert sets == pytest.approx({(0, 2): 0.3, (1, 2): 0.1, (1, 3): 0.5, (2, 3): 0.1}, abs=1e-6)


@pytest.mark.parametrize("kind", ["pairwise", "swap"])
def test_rounding_gains_on_convex_rewards(kind):
    """E r(S) >= r(z) for any win and all in, and equal for sums: by the enumerated law, and by a million rounded sets."""
    z, mu = np.array([0.3, 0.6, 0.5, 0.6], np.float32), np.array([0.5, 0.2, 0.8, 0.4], np.float32)
    law = (plain.pairwise_law if kind == "pairwise" else plain.swap_law)(z.astype(float))
    rng = np.random.default_rng(21)
    if kind == "pairwise":
        sets = jax.jit(jax.vmap(lambda u: rounding.pairwise(z, u, whole_sum=True)))(rng.random((1_000_000, 4), np.float32))
    else:
        coins = (rng.random(shape, np.float32) for shape in ((1_000_000, 4, 2), (1_000_000, 4)))
        sets = jax.jit(jax.vmap(lambda u, s: rounding.swap(z, u, s)))(*coins)
    expected = {"awc": (0.722, 0.658912), "suc": (0.91, 0.91), "aic": (0.188, 0.159621)}
    for name, (rounded, relaxed) in expected.items():
        reward = REWARDS[name]
        assert plain.expected_reward(law, name.upper(), mu) == pytest.approx(rounded, abs=1e-6)
        assert float(reward.relaxed(z, mu)) == pytest.approx(relaxed, abs=1e-6)
        assert_mean_close(np.asarray(reward.value(sets, mu)), rounded, what=name)
        assert rounded >= relaxed - 1e-9


@pytest.mark.parametrize("size", [6, 9, 17])
def test_a_fill_is_full_also_when_rounded_gains_go_in_circles(size):
    """Models on one line, up to rounding: of three of them each may gain on the next. The sum must be right all the same."""
    rng = np.random.default_rng(size)
    count, number = 20_000, size // 2
    cost = rng.random((count, size)).astype(np.float32)
    line = 0.5 + 3 * rng.random((count, 1)) * (cost - cost.mean(1, keepdims=True))
    value = np.where(rng.random((count, size)) < 0.3, line + rng.choice([-0.3, 0.3], (count, size)), line).astype(np.float32)
    budget = (number * cost.mean(1) * rng.uniform(0.7, 1.2, count)).astype(np.float32)

    def solve(value, cost, budget):
        return linear_selection(value, cost, budget, jnp.float32(number)).z

    compiled = compile_lanes(jax.jit(lanes(solve, count)).lower(value.T, cost.T, budget), "cpu")
    for z in (np.asarray(compiled(value.T, cost.T, budget)).T, np.asarray(jax.jit(jax.vmap(solve))(value, cost, budget))):
        np.testing.assert_allclose(z.astype(float).sum(1), number, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "log", "smoothed", "sum", "all in"])
def test_shadow_prices_against_differences(name, double_precision):
    """The multiplier is the derivative of the solver's objective in the budget."""
    w, c = MU.astype(float), COST.astype(float)
    task = {"sum": "suc", "smoothed": "suc", "all in": "aic"}.get(name, "awc")
    reward, budget = REWARDS[task], 0.3 if name == "all in" else 0.45
    spec = CombinatorialSpec(num_models=9, reward=reward, min_size=4, max_size=4)
    solver = {"exact": relax.Vertices(), "smoothed": relax.Smoothed(1e-4)}.get(name, relax.Linear())

    def solve(budget):
        obs = Observation(c, jnp.ones(9, bool), jnp.asarray(budget), jnp.asarray(4.0))
        return solver.solve(spec, jnp.asarray(w), jnp.asarray(c), obs, obs.available)

    def objective(z):
        return -np.log1p(-reward.relaxed(z, w, np)) if name == "exact" else reward.weight(w, np) @ np.asarray(z)

    ends = [objective(solve(budget + d).z) for d in (-1e-4, 1e-4)]
    assert float(solve(budget).multiplier) == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-3)
    if name == "all in":
        assert float(solve(budget).multiplier) == pytest.approx(20.870748, rel=1e-5)
    if name == "sum":
        assert float(solve(0.5).multiplier) == pytest.approx(0.4426667, rel=1e-5)


def test_more_models_than_bits_are_refused():
    with pytest.raises(ValueError, match="at most 31 models can be compared, got 40"):
        best_subset(jnp.ones(40), jnp.ones(40), 1.0, 2.0, exact_size=True, sizes=(2, 2))
    with pytest.raises(ValueError, match="at most 5,000,000 sets, got 155,117,520 sets of 15 to 15 of 30 models"):
        subsets(30, 15, 15)


def test_solvers_run_in_double_precision():
    with x64():
        w, c = MU.astype(float), COST.astype(float)
        assert linear_selection(w, c, 0.5, 4.0).z.dtype == np.float64
        assert float(w @ linear_selection(w, c, 0.5, 4.0).z) == pytest.approx(1.04426666667, abs=1e-7)
        assert exact_any_win(w, c, 0.45, 4.0, sizes=(4, 4)).z.dtype == np.float64
