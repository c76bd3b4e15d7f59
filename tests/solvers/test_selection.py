"""Relaxed selection: the linear program, any win, and the best set."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import combinatorial as plain
from scipy.optimize import linprog
from selection_cases import COST, MU, TIED, instances

from jaxroute.core.batching.lanes import lanes
from jaxroute.engine.compiling import compile_lanes
from jaxroute.solvers.projection import projected_gradient
from jaxroute.solvers.selection import (
    Selection,
    any_win,
    best_any_win,
    best_subset,
    continuous_greedy_any_win,
    exact_any_win,
    linear_selection,
    log_any_win,
    num_vertices,
    polish_any_win,
    subsets,
)

# Negative weights, logarithms, are those of all in, which has an exact size.
PROGRAMS = [*itertools.product(("uniform", "duplicated", "half free", "tiny costs"), (True, False)), ("logarithms", True)]


@pytest.mark.parametrize("num_models", [9, 25])
@pytest.mark.parametrize(("kind", "exact_size"), PROGRAMS)
def test_program_against_highs(kind, exact_size, num_models):
    """600 instances of each of 18 kinds: 10,800 in all."""
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
def test_program_with_groups_against_highs(labels, limits, exact_size):
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


def test_fewer_allowed_models_than_places():
    allowed = jnp.array([True, False, False, True, False])
    found = linear_selection(TIED["w"], TIED["c"], jnp.float32(5.0), 3.0, allowed=allowed)
    np.testing.assert_array_equal(found.z, [1, 0, 0, 1, 0])
    found = linear_selection(TIED["w"], TIED["c"], jnp.float32(0.45), 3.0, allowed=allowed, exact_size=False)
    np.testing.assert_allclose(found.z, [0.5, 0, 0, 1, 0], atol=1e-6)


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

        found = projected_gradient(gradient, c, b, size, at_most=True, optimizer=optax.sgd(1.0), steps=50)
        return Selection(found.z, jnp.zeros(()), jnp.asarray(True))

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
    """Other sizes than the largest, an unavailable model, probabilities of one, equal and zero costs."""
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
        expected = plain.relaxed_optimum("AWC", w.astype(float), c.astype(float), size, float(budget), allowed)
        z = np.asarray(found.z, float)
        assert not z[~allowed].any() and z.sum() <= size + 1e-6 and c @ z <= budget + 1e-6
        value = [1 - np.prod(1 - w.astype(float) * x) for x in (z, expected)]
        assert value[0] == pytest.approx(value[1], abs=2e-6), row


@pytest.mark.parametrize("num_models", [31, 32, 33, 40, 63, 70])
def test_any_win_of_two_among_many_models(num_models):
    """So few sets are enumerated whatever the number of models; the reference tries every pair, and every mix of two."""
    assert num_vertices(num_models, 2) < 250_000
    solve = jax.jit(functools.partial(exact_any_win, sizes=(2, 2)))
    rng = np.random.default_rng(num_models)
    for row in range(12):
        w, c = rng.random((2, num_models)).astype(np.float32)
        w[-1 - row :] = 1 - 0.1 * (1 - w[-1 - row :])  # The best models have the last numbers.
        budget = np.float32(rng.uniform(0.1, 2))
        z = np.asarray(solve(w, c, budget, 2.0).z, float)
        assert z.sum() <= 2 + 1e-6 and c @ z <= budget + 1e-6, row
        expected = plain.relaxed_optimum("AWC", w.astype(float), c.astype(float), 2, float(budget))
        assert 1 - np.prod(1 - w.astype(float) * z) == pytest.approx(
            1 - np.prod(1 - w.astype(float) * expected), abs=2e-6
        ), row


def test_linear_weights_have_no_guarantee_for_any_win():
    w, c = jnp.array([0.999, 0.49]), jnp.array([1.0, 0.1])
    found = log_any_win(w, c, jnp.float32(0.1), 2.0)
    assert float(any_win(w, found.z)) == pytest.approx(0.0999, abs=1e-5)
    assert float(any_win(w, exact_any_win(w, c, jnp.float32(0.1), 2.0, sizes=(2, 2)).z)) == pytest.approx(0.49, abs=1e-6)


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


def test_more_models_than_bits_are_refused():
    with pytest.raises(ValueError, match="at most 31 models can be compared, got 40"):
        best_subset(jnp.ones(40), jnp.ones(40), 1.0, 2.0, exact_size=True, sizes=(2, 2))
    with pytest.raises(ValueError, match="at most 5,000,000 sets, got 155,117,520 sets of 15 to 15 of 30 models"):
        subsets(30, 15, 15)
