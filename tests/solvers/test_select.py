"""The best relaxed selection: optimum against SciPy, derivatives against differences, errors; perturbed solvers against a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.optimize import minimize
from selection_cases import instances

from jaxroute.solvers import annealed, exact_any_win, linear_selection, perturbed, select, smoothed_lp
from jaxroute.solvers.selection import any_win

K, SIZE = 6, 3


def cases(count, seed):
    w, c, budget = (x.astype(np.float64) for x in instances("uniform", count, K, SIZE, seed=seed))
    return 0.05 + 0.9 * w, c, budget


def loss(z, w):
    """Minus the objective of any win at a temperature of .1."""
    return np.log(1 - w) @ z + 0.05 * z @ z


def test_optimum_of_any_win_against_scipy(double_precision):
    w, c, budget = cases(20, seed=41)
    found = jax.jit(jax.vmap(lambda w, c, b: select("any", w, c, b, SIZE, temperature=0.1)))(w, c, budget)
    assert found.converged.all() and found.feasible.all()
    options = {"bounds": [(0, 1)] * K, "method": "SLSQP", "options": {"ftol": 1e-13, "maxiter": 300}}
    for z, own, cost, limit in zip(np.asarray(found.z), w, c, budget, strict=True):
        rules = [lambda z: SIZE - z.sum(), lambda z, cost=cost, limit=limit: limit - cost @ z]
        constraints = [{"type": "ineq", "fun": rule} for rule in rules]
        other = minimize(loss, np.full(K, SIZE / K), (own,), constraints=constraints, **options)
        assert min(rule(z) for rule in rules) >= -1e-9 and loss(z, own) <= other.fun + 1e-8


@pytest.mark.parametrize("reward", ["sum", "any", "all"])
def test_derivatives_against_differences(reward, double_precision):
    """In weights, costs, budget, size and temperature, forward and reverse, on 200 instances; kinks by one-sided differences."""
    w, c, budget = cases(200, seed=42)
    rest = np.tile([SIZE, 0.2], (len(w), 1))
    at = np.concatenate([w, c, budget[:, None] * 1.02, rest], axis=1)
    side = np.random.default_rng(43).standard_normal(K)

    def value(x):
        found = select(reward, x[:K], x[K : 2 * K], x[2 * K], x[2 * K + 1] - 0.5, temperature=x[2 * K + 2])
        return found.z @ side + found.budget_multiplier

    h = 1e-6
    value_of = jax.jit(jax.vmap(value))
    slopes = [np.asarray(jax.jit(jax.vmap(d(value)))(at)) for d in (jax.jacfwd, jax.grad)]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-7)
    middle, checked, worst = np.asarray(value_of(at)), 0, 0.0
    for k in range(at.shape[1]):
        ends = [np.asarray(value_of(at + s * h * np.eye(at.shape[1])[k])) for s in (-1, 1)]
        smooth = np.abs((ends[1] - middle) - (middle - ends[0])) / h < 1e-3 * (1 + np.abs(slopes[1][:, k]))
        gap = np.abs((ends[1] - ends[0]) / (2 * h) - slopes[1][:, k]) / (1 + np.abs(slopes[1][:, k]))
        checked, worst = checked + smooth.sum(), max(worst, gap[smooth].max())
    assert checked > 0.98 * at.size, checked / at.size
    assert worst < 1e-4, worst
    assert (slopes[1] != 0).mean() > 0.1


def test_any_win_is_hardly_less_than_the_exact_one(double_precision):
    """At the default temperature, where the probability itself in place of its logarithm would lose a sixth."""
    w, c, budget = cases(100, seed=45)
    found = jax.jit(jax.vmap(lambda w, c, b: select("any", w, c, b, SIZE)))(w, c, budget)
    best = jax.jit(jax.vmap(lambda w, c, b: select("any", w, c, b, SIZE, temperature=0)))(w, c, budget)
    lost = 1 - any_win(w, np.asarray(found.z)) / any_win(w, np.asarray(best.z))
    assert lost.min() > -1e-9 and lost.mean() < 2e-3 and lost.max() < 0.05


def test_temperature_of_zero_is_exact_and_has_no_derivative():
    w, c, budget = (x[0].astype(np.float32) for x in cases(1, seed=44))
    linear = jax.jit(lambda: select("sum", w, c, budget, SIZE, temperature=0))()
    best = jax.jit(lambda: linear_selection(jnp.asarray(w), jnp.asarray(c), budget, SIZE))()
    np.testing.assert_array_equal(linear.z, best.z)
    found = jax.jit(lambda: select("any", w, c, budget, SIZE, temperature=0))()
    np.testing.assert_array_equal(found.z, jax.jit(lambda: exact_any_win(jnp.asarray(w), jnp.asarray(c), budget, SIZE))().z)
    with pytest.raises(TypeError, match="no derivative at a temperature of 0"):
        jax.grad(lambda w: select("sum", w, c, budget, SIZE, temperature=0).z[0])(jnp.asarray(w))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "some"}, "reward must be one of"),
        ({"weight": [np.nan, 0.5]}, "weight must not be NaN"),
        ({"weight": [1.5, 0.5], "reward": "any"}, r"weight must be in \[0, 1\] for 'any', got 1.5"),
        ({"weight": [[0.5, 0.5]]}, "weight must have shape"),
        ({"cost": [-1.0, 1.0]}, "cost must be at least 0"),
        ({"cost": [1.0]}, "cost must have shape"),
        ({"budget": "much"}, "budget must be a number"),
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"budget": 0.5}, "budget and size must leave a selection"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, message):
    given = {"reward": "sum", "weight": [0.5, 0.6], "cost": [1.0, 2.0], "budget": 1.5, "size": 1, **change}
    with pytest.raises(ValueError, match=message):
        select(**given)


def test_annealed():
    temperature = annealed(1.0, 0.01, steps=20)
    found = np.array([float(np.asarray(temperature(step))) for step in (0, 10, 20, 99)])
    np.testing.assert_allclose(found, [1, 0.1, 0.01, 0.01], rtol=1e-5)
    with pytest.raises(ValueError, match="last must be at most"):
        annealed(0.1, 1.0, steps=5)


def better(w):
    return jnp.stack([w[0] > w[1], w[0] <= w[1]]).astype(w.dtype)


@pytest.mark.parametrize("antithetic", [False, True])
def test_mean_and_derivative_of_the_better_of_two(antithetic):
    """The probability that the first is better is normal: 400 keys, within five of their standard errors."""
    weight, sigma = jnp.array([0.6, 0.5]), 0.2
    smooth = perturbed(better, 32, sigma, antithetic=antithetic)
    keys = jax.random.split(jax.random.key(5), 400)
    values = np.asarray(jax.jit(jax.vmap(lambda k: smooth(weight, k)[0]))(keys))
    slopes = np.asarray(jax.jit(jax.vmap(lambda k: jax.grad(lambda w: smooth(w, k)[0])(weight)))(keys))
    forward = jax.jacfwd(lambda w: smooth(w, keys[0])[0])(weight)
    np.testing.assert_allclose(forward, slopes[0], rtol=1e-5)
    spread = sigma * np.sqrt(2)
    slope = float(norm.pdf(0.1 / spread) / spread)
    for samples, expected in ((values, float(norm.cdf(0.1 / spread))), (slopes[:, 0], slope), (slopes[:, 1], -slope)):
        assert abs(samples.mean() - expected) < 5 * samples.std(ddof=1) / np.sqrt(len(samples))


def test_fewer_derivatives_are_zero_and_pairs_have_the_smaller_variance():
    """256 instances of the table of `smoothed_lp`, at a temperature and a deviation of .1."""
    w, c, budget = instances("uniform", 256, 9, 4, seed=21)
    w, side = w / w.max(axis=1, keepdims=True), np.random.default_rng(22).random(w.shape).astype(np.float32)
    keys = jax.random.split(jax.random.key(6), (8, len(w)))

    def slopes(antithetic):
        def slope(w, c, b, side, key):
            smooth = perturbed(lambda w: linear_selection(w, c, b, 4.0).z, 32, 0.1, antithetic=antithetic)
            return jax.grad(lambda w: smooth(w, key) @ side)(w)

        return np.asarray(jax.jit(jax.vmap(jax.vmap(slope), in_axes=(None, None, None, None, 0)))(w, c, budget, side, keys))

    pairs, single = slopes(True), slopes(False)
    quadratic = jax.vmap(jax.grad(lambda w, c, b, side: smoothed_lp(w, c, b, 4.0, 0.1).z @ side))
    zero = (np.asarray(jax.jit(quadratic)(w, c, budget, side)) == 0).all(axis=1).mean()
    assert (np.abs(pairs[0]) < 1e-6).all(axis=1).mean() < 0.1 < zero
    assert pairs.var(axis=0, ddof=1).mean() < 0.8 * single.var(axis=0, ddof=1).mean()


def test_what_perturbed_refuses():
    with pytest.raises(ValueError, match="samples must be even"):
        perturbed(better, 3, 0.1)
    with pytest.raises(ValueError, match="sigma must be above 0"):
        perturbed(better, 4, 0.0)
    with pytest.raises(Exception, match="closed-over|leak|closure|side effect"):
        jax.grad(lambda c: perturbed(lambda w: w * c, 4, 0.1)(jnp.ones(2), jax.random.key(0))[0])(1.0)
