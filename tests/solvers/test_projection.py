"""The projection, the differentiable linear program and projected gradient ascent, against the reference and against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from selection_cases import TIED, instances

from jaxroute.solvers import projection
from jaxroute.solvers.projection import differentiable_lp, project, projected_gradient, smoothed_lp
from jaxroute.solvers.selection import linear_selection


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
    assert (
        residual(y, c, budget, 4, *map(np.asarray, (found.z, found.sum_multiplier, found.budget_multiplier)), at_most).max()
        < 1e-9
    )


@pytest.mark.parametrize(
    "budget_factor", [0.8, 1.0, 1.0001, 1.2], ids=["infeasible", "just feasible", "hardly more", "easy"]
)
def test_costs_that_differ_by_one_unit_in_the_last_place(budget_factor):
    """20,000 instances in float32: the budget's multiplier may have to be huge, and the sum is kept all the same."""
    rng, count = np.random.default_rng(15), 20_000
    y, c = -33 * rng.random((count, 9)).astype(np.float32), rng.random((count, 9)).astype(np.float32)
    y[::2] *= 1e-3
    one, other = rng.integers(0, 9, (2, count))
    c[np.arange(count), one] = np.nextafter(c[np.arange(count), other], np.float32(2))
    budget = (budget_factor * np.sort(c, axis=1)[:, :4].sum(1)).astype(np.float32)
    found = jax.jit(jax.vmap(lambda y, c, b: project(y, c, b, 4.0)))(y, c, budget)
    z = np.asarray(found.z, np.float64)
    assert np.abs(z.sum(1) - 4).max() < 1e-5 and z.min() >= 0 and z.max() <= 1
    if budget_factor >= 1:
        assert np.all(found.feasible) and np.mean(found.converged) > 0.999
        over = (z * c).sum(1) - budget
        assert over[np.asarray(found.converged)].max() < 4e-5
    else:
        assert not np.any(found.feasible)
        np.testing.assert_allclose((z * c).sum(1), np.sort(c, axis=1)[:, :4].sum(1), atol=2e-5)


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
def test_gap_of_the_smoothed_program(temperature, mean, largest):
    """Falls with the temperature as in the notes, whose instances are not printed: bounds are twice their figures."""
    w, c, budget = instances("uniform", 500, 9, 4, seed=17)
    z = jax.jit(jax.vmap(lambda w, c, b: smoothed_lp(w, c, b, 4.0, temperature).z))(w, c, budget)
    best = jax.jit(jax.vmap(lambda w, c, b: linear_selection(w, c, b, 4.0).z))(w, c, budget)
    gap = 1 - (w * z).sum(1) / (w * best).sum(1)
    assert gap.min() >= -5e-6
    assert gap.mean() <= mean and gap.max() <= largest, (gap.mean(), gap.max())


@pytest.mark.parametrize("at_most", [False, True])
def test_certificate(at_most):
    """Every feasible instance converges; one without a point, or with NaN, does not."""
    _, c, budget = instances("uniform", 1300, 9, 4, seed=11)
    y = (3.0 * np.random.default_rng(12).standard_normal(c.shape)).astype(np.float32)
    found = jax.jit(jax.vmap(lambda y, c, b: project(y, c, b, 4.0, at_most=at_most)))(y, c, budget)
    assert np.all(found.converged) and np.all(found.residual >= 0) and np.max(found.residual) < 5e-5
    arrays = [np.asarray(x, np.float64) for x in (y, c, budget, found.z, found.sum_multiplier, found.budget_multiplier)]
    moved = np.abs(arrays[3] - np.clip(arrays[0] - arrays[4][:, None] - arrays[5][:, None] * arrays[1], 0, 1)).max(1)
    np.testing.assert_allclose(np.maximum(found.residual, 1e-5), np.maximum(moved, 1e-5), atol=2e-5)
    if not at_most:
        assert not project(jnp.array([0.0, 0.0, 5.0]), jnp.array([0.1, 0.2, 0.9]), 0.2, 2.0).converged
    assert not jax.jit(lambda y: project(y, jnp.ones(2), 1.0, 1.0, at_most=at_most))(jnp.array([jnp.nan, 0.5])).converged


@pytest.mark.parametrize("at_most", [False, True])
def test_many_models_are_projected_as_few(at_most, double_precision, monkeypatch):
    """The way of more than 64 models against the one without sorting and loops, on 90 models; ties and free models too."""
    rng = np.random.default_rng(31)
    y, c = 3.0 * rng.standard_normal((60, 90)), rng.random((60, 90))
    c[20:40] = np.round(c[20:40], 1)
    c[40:] *= rng.random((20, 90)) < 0.5
    budget = np.sort(c, axis=1)[:, :30].sum(1) * 1.3 + 1e-3

    def solve():
        return jax.jit(jax.vmap(lambda y, c, b: project(y, c, b, 30.0, at_most=at_most)))(y, c, budget)

    many = solve()
    monkeypatch.setattr(projection, "_MANY", 1000)
    few = solve()
    assert many.converged.all() and many.feasible.all()
    np.testing.assert_allclose(many.z, few.z, atol=1e-9)
    np.testing.assert_allclose(many.budget_multiplier, few.budget_multiplier, atol=1e-8)


@pytest.mark.parametrize("unit", [1e-6])
def test_differentiable_lp_is_a_router_with_derivatives(unit, double_precision):
    """Shares, the multiplier and derivatives against differences, with costs in units of any size."""
    at = np.array([0.4, 0.6, 0.9, 0.7, 0.1, 0.5, 2.0, 0.9, 0.8, 1.0])  # rewards, costs, budget, total
    capacity, side = np.array([1.0, 0.8, 0.8, 0.8]), np.array([0.3, -0.2, 0.5, 0.9])

    def solve(x):
        return differentiable_lp(x[:4], unit * x[4:8], unit * x[8], x[9], capacity=capacity)

    def both(x):
        z = solve(x).z
        return jnp.stack([z @ side, x[:4] @ z - 0.05 * z @ z])

    h = 1e-6
    moved = np.concatenate([at + s * h * np.eye(10) for s in (-1, 1)])
    found, slopes, ends = jax.jit(lambda x: (solve(at), jax.jacrev(both)(at), jax.vmap(both)(x)))(moved)
    assert bool(found.converged) and bool(found.feasible)
    np.testing.assert_allclose(slopes.T, (ends[10:] - ends[:10]) / (2 * h), rtol=1e-5, atol=1e-7)
    # The multiplier is what the smoothed objective gains per unit of the budget.
    assert float(found.budget_multiplier) * unit == pytest.approx(float(slopes[1, 8]), rel=1e-9)


@pytest.mark.parametrize(("rate", "steps", "mean", "largest"), [(10.0, 10, 5e-5, 1e-3), (1.0, 100, 5e-5, 5e-3)])
def test_projected_gradient_reaches_the_program(rate, steps, mean, largest):
    w, c, budget = instances("uniform", 300, 9, 4, seed=18)
    w = w / w.max(axis=1, keepdims=True)

    def climb(w, c, b):
        return projected_gradient(lambda z: w, c, b, 4.0, optimizer=optax.sgd(rate), steps=steps).z

    z = jax.jit(jax.vmap(climb))(w, c, budget)
    best = jax.jit(jax.vmap(lambda w, c, b: linear_selection(w, c, b, 4.0).z))(w, c, budget)
    gap = 1 - (w * z).sum(1) / (w * best).sum(1)
    assert gap.mean() <= mean and gap.max() <= largest, (gap.mean(), gap.max())


@pytest.mark.parametrize(("implicit", "steps"), [(False, 7), (True, 80)])
def test_projected_gradient_is_differentiable(implicit, steps, double_precision):
    """Through a few steps, or by the fixed point that many steps have reached."""
    w, c = np.asarray(TIED["w"], float), np.asarray(TIED["c"], float)

    def value(weights, budget):
        options = {"optimizer": optax.sgd(0.5), "steps": steps, "implicit": implicit}
        z = projected_gradient(lambda z: weights - 0.3 * z, c, budget, 2.0, **options).z
        return w @ z

    value = jax.jit(value)
    gradient = jax.grad(value, argnums=(0, 1))(w, 0.8)
    h = 1e-6
    for k in range(5):
        ends = [float(value(w + s * h * np.eye(5)[k], 0.8)) for s in (-1, 1)]
        assert float(gradient[0][k]) == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-6)
    ends = [float(value(w, 0.8 + s * h)) for s in (-1, 1)]
    forward = jax.jacfwd(value, argnums=(0, 1))(w, 0.8)
    np.testing.assert_allclose(forward[0], gradient[0], atol=1e-9)
    assert np.abs(gradient[0]).max() > 0.1
    assert float(gradient[1]) == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=1e-6)


def test_certificate_of_the_ascent():
    """A linear objective is climbed to a point that does not move any more; a single short step still moves."""
    weight, cost = jnp.asarray(TIED["w"]), jnp.asarray(TIED["c"])

    def climb(rate, steps, budget=1.1):
        return projected_gradient(lambda z: weight, cost, budget, 3.0, optimizer=optax.sgd(rate), steps=steps)

    still, moving = climb(10.0, 20), climb(0.1, 1)
    assert still.converged and still.feasible and float(still.residual) < 1e-6
    assert not moving.converged and float(moving.residual) > 1e-3
    assert not climb(10.0, 20, budget=0.2).feasible
