"""Stochastic gradient descent against a float64 one written out, and the gradient of the loss of heads."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import service as ref

from jaxroute.estimators.heads import SGD, TheorySteps, binary_cross_entropy
from jaxroute.problems import service as sv


def cross_entropy_without_bias(params, x, s):
    return binary_cross_entropy(jnp.sum(params["w"] * x, axis=-1), s)


def test_two_steps_of_section_4_6():
    params = {"w": jnp.array([[0.2, 0.0], [0.0, -0.4]])}
    transform = SGD(0.5, 0.9, 0.1).transform()
    state = transform.init(params)
    printed = [
        ((1.0, 2.0), (1.0, 0.0), 0.4846198, [[0.3025415, 0.2250830], [-0.0775064, -0.5350128]]),
        ((1.0, -1.0), (0.0, 1.0), 0.6114796, [[0.2498630, 0.5462423], [-0.0464924, -0.7266680]]),
    ]
    for x, s, loss, w in printed:
        value, gradients = jax.value_and_grad(cross_entropy_without_bias)(params, jnp.array(x), jnp.array(s))
        updates, state = transform.update(gradients, state, params)
        params = {"w": params["w"] + updates["w"]}
        assert float(value) == pytest.approx(loss, abs=2e-7)
        np.testing.assert_allclose(params["w"], w, atol=2e-7)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("rate", [0.07, TheorySteps(0.2, 1.5)])
def test_sgd_is_that_of_torch(rate, clip):
    """Fifty steps with momentum and weight decay on noisy gradients, of which some are clipped."""
    sgd = SGD(rate, 0.9, 0.05, clip)
    transform = sgd.transform()
    rng = np.random.default_rng(3)
    start = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start)
    state, expected = transform.init(params), start
    velocity = jax.tree.map(np.zeros_like, start)
    norms = []
    for k in range(1, 51):
        gradients = {n: rng.normal(size=p.shape) * rng.choice([0.01, 0.2]) for n, p in start.items()}
        norms.append(math.sqrt(sum((g**2).sum() for g in gradients.values())))
        updates, state = transform.update(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), gradients), state, params)
        params = jax.tree.map(jnp.add, params, updates)
        eta = 0.07 if rate == 0.07 else ref.theory_step_size(k, 0.2, 1.5)
        expected, velocity = ref.sgd_step(expected, velocity, gradients, eta, 0.9, 0.05, math.inf if clip is None else clip)
        for name in start:
            np.testing.assert_allclose(params[name], expected[name], rtol=1e-4, atol=1e-5)
    assert min(norms) < 0.3 < max(norms)


def test_a_plain_function_is_no_learning_rate():
    with pytest.raises(ValueError, match="learning_rate must be a number or a struct"):
        sv.SGD(lambda step: 0.1).check()


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("logit", [0.0, 1e-3, -1e-3, 2.0, -3.0, 60.0, -60.0])
def test_gradient_of_the_cross_entropy(logit, label):
    gradient = jax.grad(binary_cross_entropy)(jnp.full(2, logit, jnp.float32), jnp.full(2, label))
    np.testing.assert_allclose(gradient, np.full(2, (1 / (1 + math.exp(-logit)) - label) / 2), rtol=1e-5, atol=1e-7)
