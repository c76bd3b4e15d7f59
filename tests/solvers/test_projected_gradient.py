"""Projected gradient ascent against the exact linear program, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from selection_cases import TIED, instances

from jaxroute.solvers.projected_gradient import projected_gradient
from jaxroute.solvers.selection import linear_selection


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


def test_certificate():
    """A linear objective is climbed to a point that does not move any more; a single short step still moves."""
    weight, cost = jnp.asarray(TIED["w"]), jnp.asarray(TIED["c"])

    def climb(rate, steps, budget=1.1):
        return projected_gradient(lambda z: weight, cost, budget, 3.0, optimizer=optax.sgd(rate), steps=steps)

    still, moving = climb(10.0, 20), climb(0.1, 1)
    assert still.converged and still.feasible and float(still.residual) < 1e-6
    assert not moving.converged and float(moving.residual) > 1e-3
    assert not climb(10.0, 20, budget=0.2).feasible
