"""Heads: their loss and its gradient."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.estimators.heads import binary_cross_entropy


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("logit", [0.0, 1e-3, -1e-3, 2.0, -3.0, 60.0, -60.0])
def test_gradient_of_the_cross_entropy(logit, label):
    gradient = jax.grad(binary_cross_entropy)(jnp.full(2, logit, jnp.float32), jnp.full(2, label))
    np.testing.assert_allclose(gradient, np.full(2, (1 / (1 + math.exp(-logit)) - label) / 2), rtol=1e-5, atol=1e-7)
