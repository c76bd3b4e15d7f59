"""Index estimators of one step per sample: worked cases."""

import math

import numpy as np
from cascade_cases import fed, random_samples

from jaxroute.problems.cascade.parts.streaming import ConstantCurvature, GradientDescent, StreamingNewton
from jaxroute.problems.cascade.parts.window import Window


def test_streaming_estimate():
    _, rho = fed(StreamingNewton())
    np.testing.assert_allclose(rho[-1], [0.57280608, 0.23136920], atol=1e-8)
    _, rho = fed(StreamingNewton(floor=0.0))
    np.testing.assert_allclose(rho[-1], [0.57481026, 0.23064624], atol=1e-8)


def test_inverse_is_symmetric_to_the_last_bit():
    """What differs from that would stay while the rest shrinks."""
    psi, score, cost = random_samples(2000)
    state, _ = fed(StreamingNewton(), psi, score, cost)
    inverse = np.asarray(state.inverse.total[:, :, 0])
    assert inverse.max() < 0.1
    np.testing.assert_array_equal(inverse, inverse.T)


def test_constant_curvature_overshoots():
    """The first step is too long, as with any curvature that is far below the sample's own."""
    psi, score, cost = random_samples(80)
    _, exact = fed(Window.exact(80), psi, score, cost)
    errors = [np.abs(fed(fit, psi, score, cost)[1] - exact)[5:60].max() for fit in (StreamingNewton(), ConstantCurvature())]
    assert errors[1] > 2 * errors[0]


def test_projected_gradient_steps():
    """`rho - psi (c - (M - u)^+) / sqrt(s)` at the s-th sample, shortened to the ball."""
    psi, score, cost = random_samples(30)
    for bound in (2.0, 0.3):
        _, rho = fed(GradientDescent(bound=bound), psi, score, cost)
        own = np.zeros(3)
        for s in range(30):
            own = own - psi[s] * (cost[s] - max(score[s] - psi[s] @ own, 0)) / math.sqrt(s + 1)
            own *= min(1, bound / np.linalg.norm(own))
            np.testing.assert_allclose(rho[s], own, atol=1e-5)
