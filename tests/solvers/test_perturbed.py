"""Perturbed solvers against the closed form of two models, and against the quadratic regulariser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from selection_cases import instances

from jaxroute.solvers import linear_selection, perturbed, smoothed_lp


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


def test_what_is_refused():
    with pytest.raises(ValueError, match="samples must be even"):
        perturbed(better, 3, 0.1)
    with pytest.raises(ValueError, match="sigma must be above 0"):
        perturbed(better, 4, 0.0)
    with pytest.raises(Exception, match="closed-over|leak|closure|side effect"):
        jax.grad(lambda c: perturbed(lambda w: w * c, 4, 0.1)(jnp.ones(2), jax.random.key(0))[0])(1.0)
