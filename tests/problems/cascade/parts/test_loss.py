"""The loss of the indices, and links."""

import jax
import numpy as np
import pytest
from cascade_cases import f32, slow

from jaxroute.estimators import links


@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH, links.FLAT, links.LOGISTIC, slow(links.PROBIT)], ids=str)
def test_links(link):
    s = f32(np.linspace(-1.6, 1.6, 65))
    value, slope = link.value(s), link.slope(s)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(link.value))(s), atol=2e-6)
    np.testing.assert_allclose(value, jax.vmap(jax.grad(link.integral))(s), atol=2e-6)
    np.testing.assert_allclose((link.inverse(value) - s) * slope, 0.0, atol=1e-6)  # Values are rounded.
    assert float(link.integral(f32(0.0))) == pytest.approx(0, abs=1e-7)
    assert (np.diff(value) > 0).all() and (slope > 0).all()
    assert link is links.IDENTITY or (np.abs(value) < 1).all()


def test_flat_link_is_smooth_and_below_one():
    u = f32([0.3, 0.9 - 1e-4, 0.9, 0.9 + 1e-4, 1.3, 30.0])
    value = links.FLAT.value(u)
    np.testing.assert_allclose(value[:4], u[:4], atol=1e-6)
    assert 0.99 < value[4] < 1.0 and value[5] == 1.0
    np.testing.assert_allclose(links.FLAT.value(-u), -value)
