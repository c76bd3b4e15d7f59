"""Branch and bound: against mixed-integer programs and enumeration, ties, limits of nodes, and the size of the program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import by_c
from helpers import x64
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from search_cases import chances, markets, problems

from jaxroute.core.batching.lanes import lanes
from jaxroute.kernels import host
from jaxroute.problems.combinatorial import optimum
from jaxroute.solvers import branching_any_win, exact_any_win, sparse_fill
from jaxroute.solvers.selection import any_win, num_vertices

NUMBERS = [60, pytest.param(500, marks=pytest.mark.slow)]  # Of instances, of ten kinds in turn.


def mixed_integer_value(value, cost, capacity, budget, most):
    """HiGHS: amounts, and whether each model has one; -inf if nothing is feasible. The scale is for its absolute gap of 1e-6.

    Two values: that of the linear program over its models, which is feasible, and its own, in which amounts may be below zero by its tolerance
    of 1e-6: of a model whose price is a hundred thousand times the budget that buys more than rounding.
    """
    count = len(value)
    ones, none, each = np.ones(count), np.zeros(count), np.eye(count)
    found = milp(
        -1e4 * np.append(value, none),
        constraints=[
            LinearConstraint(np.append(ones, none), 1, 1),
            LinearConstraint(np.append(cost, none), -np.inf, budget),
            LinearConstraint(np.append(none, ones), -np.inf, most),
            LinearConstraint(np.hstack([each, -np.diag(capacity)]), -np.inf, 0),
        ],
        integrality=np.append(none, ones),
        bounds=Bounds(0, np.append(capacity, ones)),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return -np.inf, -np.inf
    own = np.flatnonzero(found.x[count:] > 0.5)
    bounds = list(zip(none[own], capacity[own], strict=True))
    alone = linprog(-1e4 * value[own], cost[own][None], [budget], ones[own][None], [1.0], bounds)
    return -np.inf if alone.x is None else -alone.fun / 1e4, -found.fun / 1e4


def padded(width, *arrays):
    """Arrays with models that may not be used, so that few programs are compiled; and which may be."""
    size = len(arrays[0])
    return *(np.append(x, np.full(width - size, 0.5)) for x in arrays), np.arange(width) < size


@functools.cache
def mix_solver(dtype):
    del dtype
    return jax.jit(lambda u, c, a, b, m, valid: sparse_fill(u, c, a, b, m, valid=valid))


def check_mixes(cases, dtype, error, may_be_unfinished=0):
    cases = list(cases)
    solve, feasible, branched, unfinished = mix_solver(dtype), 0, 0, 0
    width = max(len(case[0]) for case in cases)
    for row, (u, c, a, b, most) in enumerate(cases):
        u, c, a = (x.astype(dtype) for x in (u, c, a))
        expected, most_of_all = mixed_integer_value(*(x.astype(float) for x in (u, c, a)), float(dtype(b)), most)
        *arrays, valid = padded(width, u, c, a)
        found = jax.tree.map(np.asarray, solve(*(x.astype(dtype) for x in arrays), dtype(b), most, valid))
        assert (found.value > -np.inf) == (expected > -np.inf), row
        if not found.converged:  # Its residual bounds what is missing.
            unfinished += 1
            assert expected - error <= found.value + found.residual, row
            continue
        assert found.residual == 0, row
        if expected == -np.inf:
            continue
        feasible, branched = feasible + 1, branched + (found.nodes > 1)
        assert expected - error <= found.value <= most_of_all + error, row
        x = found.x[: len(u)].astype(float)
        assert not (x[~found.members[: len(u)]] > 1e-5).any() and found.members.sum() <= most, row
        assert (
            x.sum() == pytest.approx(1, abs=1e-5)
            and c @ x <= b * (1 + (1e-12 if dtype == np.float64 else 1e-5))
            and (x <= a + 1e-6).all()
            and (x >= 0).all()
        ), row
    assert unfinished <= may_be_unfinished
    assert feasible > 0.4 * len(cases)
    assert branched > 0.1 * len(cases)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mixes_against_mixed_integer_programs(dtype, number):
    with x64(dtype == np.float64):
        check_mixes(problems(markets, 1, number), dtype, *((1e-9, 0) if dtype == np.float64 else (2e-5, number // 100)))


@functools.cache
def selection_solver(dtype):
    del dtype
    return jax.jit(lambda w, c, b, m, allowed: branching_any_win(w, c, b, m, allowed=allowed))


def check_selections(cases, dtype, error):
    cases = list(cases)
    solve, branched, width = selection_solver(dtype), 0, max(len(case[0]) for case in cases)
    for row, (w, c, b, places) in enumerate(cases):
        w, c, b = w.astype(dtype), c.astype(dtype), dtype(b)
        plain = w.astype(float), c.astype(float), float(b), np.array([places]), np.ones((1, len(w)), bool)
        expected = optimum._any_win_by_chords(*plain)
        *arrays, allowed = padded(width, w, c)
        found = jax.tree.map(np.asarray, solve(*(x.astype(dtype) for x in arrays), b, dtype(places), allowed))
        z = found.x[: len(w)].astype(float)
        branched += found.nodes > 1
        assert found.converged and not found.x[len(w) :].any(), row
        assert (z >= 0).all() and (z <= 1).all() and z.sum() <= places * (1 + 1e-5) and c @ z <= b * (1 + 1e-5) + 1e-7, row
        assert any_win(plain[0], z) == pytest.approx(any_win(plain[0], expected), abs=error), row
    assert branched > 0.4 * len(cases)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_win_against_mixed_integer_programs(dtype, number):
    with x64(dtype == np.float64):
        check_selections(problems(chances, 1, number), dtype, 1e-9 if dtype == np.float64 else 2e-6)


@pytest.mark.parametrize(("groups", "size"), [(None, 4), ((0, 0, 0, 0, 1, 1, 1, 1, 1), (2, 2))])
def test_any_win_against_enumeration(groups, size):
    """100 instances of nine models, with zero costs, equal models and models that are not allowed."""
    rng = np.random.default_rng(4)
    total = int(np.sum(size))
    searched = jax.jit(functools.partial(branching_any_win, groups=groups))
    compared = jax.jit(functools.partial(exact_any_win, groups=groups, sizes=(total, total)))
    assert num_vertices(9, total) < 250_000  # This one enumerates.
    for row in range(100):
        w, c = rng.random((2, 9)).astype(np.float32)
        if row % 4 == 1:
            c[rng.random(9) < 0.4] = 0
        if row % 4 == 2:
            w[4:], c[4:] = w[4], c[4]
        allowed = rng.random(9) < (0.8 if row % 2 else 1.0)
        problem = (w, c, np.float32(rng.random() * 2), np.float32(size))
        mine, other = searched(*problem, allowed=allowed), compared(*problem, allowed=allowed)
        assert mine.converged and not np.asarray(mine.x)[~allowed].any(), row
        assert float(any_win(w, mine.x)) == pytest.approx(float(any_win(w, other.z)), abs=2e-6), row


def test_mixes_of_equal_models():
    """Models that nobody has tried yet have the same bounds: one node is enough, and the first by priority are used."""
    same = jnp.full(40, 0.5)
    found = sparse_fill(same, same, jnp.full(40, 0.11), 1.0, 10)
    assert int(found.nodes) == 1 and float(found.value) == pytest.approx(0.5, abs=1e-6)
    # A better model than the others, and of the others two in a mix of three.
    value = same.at[17].set(0.9)
    for order in (jnp.arange(40, dtype=jnp.int32), jnp.arange(40, dtype=jnp.int32)[::-1]):
        found = sparse_fill(value, same, jnp.full(40, 0.35), 1.0, 3, priority=order)
        assert float(found.value) == pytest.approx(0.35 * 0.9 + 0.65 * 0.5, abs=1e-6) and found.members[17]


def test_rows_that_are_nearly_parallel():
    """25 models, two places, each half of the traffic, but a little less of some: a basis is nearly singular, and its solution off by more
    than a tolerance. The two models of the best mix were taken for impossible."""
    *arrays, budget, most = list(problems(markets, 1, 155))[-1]
    value, cost, capacity = (np.asarray(x, np.float32) for x in arrays)
    best, _ = mixed_integer_value(*(x.astype(float) for x in (value, cost, capacity)), float(np.float32(budget)), int(most))
    found = sparse_fill(*map(jnp.asarray, (value, cost, capacity)), jnp.float32(budget), int(most))
    assert found.converged and float(found.value) == pytest.approx(best, abs=2e-5)
    np.testing.assert_array_equal(np.flatnonzero(found.members), [19, 24])


def hard(count, most):
    """Values are prices plus a constant: of 1 to 1000 in whole numbers no set's mean is the budget, and no bound is good enough."""
    cost = np.random.default_rng(0).integers(1, 1000, count).astype(float)
    return (cost + 100) / 1100, cost, np.full(count, 1.0 / most), float(np.sort(cost)[:most].mean() * 1.7) + 0.3 / most


def test_a_limit_of_nodes_is_reported():
    """The answer is feasible, and its residual bounds what was missed."""
    with x64():
        u, c, a, b = hard(40, 10)
        best, _ = mixed_integer_value(u, c, a, np.floor(b * 10) / 10, 10)
        solve = jax.jit(lambda limit: sparse_fill(u, c, a, b, 10, most_nodes=limit))
        for limit in (1, 20, 2000):
            found = jax.tree.map(np.asarray, solve(limit))
            assert not found.converged and limit <= found.nodes <= limit + 41
            assert c @ found.x <= b * (1 + 1e-9) and found.x.sum() == pytest.approx(1) and found.members.sum() <= 10
            assert found.value <= best + 1e-9 <= found.value + found.residual + 2e-9
        assert found.residual < 1e-3
        w, c = np.random.default_rng(0).random((2, 40))
        full, early = (branching_any_win(jnp.asarray(w), jnp.asarray(c), 0.7, 8.0, most_nodes=n) for n in (10_000, 2))
        assert full.converged and int(full.nodes) > 2 and int(early.nodes) == 2 and not early.converged
        assert float(c @ early.x) <= 0.7 + 1e-9
        assert float(early.value) <= float(full.value) <= float(early.value + early.residual) + 1e-9


def test_no_node_without_need():
    u, c, a, b = hard(20, 5)
    found = sparse_fill(jnp.asarray(u), jnp.asarray(c), jnp.asarray(a), b, 5, needed=False)
    assert int(found.steps) == 0 and not found.members.any() and found.converged


@pytest.mark.parametrize("solver", ["mix", "selection"])
def test_the_program_does_not_grow(solver):
    """The number of operations, and so the time to compile, is the same for 8 and 256 models; memory grows with their square."""

    def lowered(size):
        half = jnp.full(size, 0.5)
        if solver == "mix":
            return jax.jit(lambda u, c, a: sparse_fill(u, c, a, 1.0, 3)).lower(half, half, half)
        return jax.jit(lambda w, c: branching_any_win(w, c, 1.0, 3.0)).lower(half, half)

    small, large = (lowered(size).as_text().count("stablehlo.") for size in (8, 256))
    assert small == large


@pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")
def test_kernels_search_too():
    """Runs on the last axis, and the C of the function, find what `vmap` finds; sums in another order may take another way there."""
    rng, runs = np.random.default_rng(6), 7
    u, c = rng.random((2, 12, runs)).astype(np.float32)
    capacity = np.full(12, 0.3, np.float32)

    def mix(u, c):
        found = sparse_fill(u, c, jnp.asarray(capacity), 0.3, 4)
        return found.members, found.nodes, found.converged

    def selection(u, c):
        found = branching_any_win(u, c, 0.7, 4.0)
        return found.x > 0.5, found.nodes, found.converged

    for fn in (mix, selection):
        theirs = jax.jit(jax.vmap(fn, in_axes=-1, out_axes=-1))(u, c)
        for mine in (by_c(fn, u, c), jax.jit(lanes(fn, runs))(u, c)):
            for place in (0, 2):
                np.testing.assert_array_equal(np.asarray(mine[place]), np.asarray(theirs[place]))
            assert np.mean(np.asarray(mine[1]) == np.asarray(theirs[1])) > 0.5
        assert np.asarray(theirs[2]).all() and np.asarray(theirs[1]).max() > 1
