"""`negative_log_likelihood` is the definition: the reference has the same loss, all observations its derivatives, and solvers its minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from mnl_cases import BFGS, EXACT, follow, observations
from reference import queueing as ref

from jaxroute.estimators import mnl
from jaxroute.estimators.mnl import negative_log_likelihood

N, D, H = 4, 2, 40


def given(K, missing=0.2, seed=0):
    """(features of rows, features of pairs, items, accepted place, offered, accepted item) of some rounds."""
    return observations(np.random.default_rng(seed + K), H, N, K, D, missing)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_the_reference_has_the_same_loss(K, double_precision):
    X, F, _, _, offered, chosen = given(K)
    rng = np.random.default_rng(9)
    theta, w = rng.normal(size=(N, D)), rng.normal(size=D)
    for ridge in (0.0, 0.7):
        each = jax.value_and_grad(negative_log_likelihood)(jnp.asarray(theta), X, offered, chosen, ridge)
        theirs = ref.disjoint_loss(theta, X, offered, chosen, ridge, range(N))
        shared = jax.value_and_grad(negative_log_likelihood)(jnp.asarray(w), F, offered, chosen, ridge)
        others = ref.shared_loss(w, F, offered, chosen, ridge)
        for ours, plain in ((each, theirs), (shared, others)):
            assert float(ours[0]) == pytest.approx(plain[0], abs=1e-11)
            np.testing.assert_allclose(np.ravel(ours[1]), plain[1], atol=1e-11)


SOLVERS = {"Newton": EXACT, "BFGS": BFGS}


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_end_at_its_minimum(name, pairs, double_precision):
    """After observations one by one its gradient is zero in the parameters that were estimated last: eq. (4), or that of eq. (1)."""
    K, ridge = 2, 1.0
    X, F, items, accepted, offered, chosen = given(K, missing=0.0)
    data = jnp.asarray(X), jnp.asarray(items, jnp.int32), jnp.asarray(accepted)
    fits = jax.jit(lambda: follow(SOLVERS[name], *data, N, ridge, F=jnp.asarray(F) if pairs else None))
    theta = fits()[-1]
    if pairs:
        gradient = jax.grad(negative_log_likelihood)(theta[0], F, offered, chosen, ridge)
        assert np.abs(gradient).max() < 1e-7
        return
    gradient = np.asarray(jax.grad(negative_log_likelihood)(theta, X, offered, chosen, ridge))
    assert np.abs(gradient[items[-1]]).max() < 1e-7
    assert np.abs(gradient).max() < 1.0  # Those of the others are near zero: theirs were estimated a few rounds before.


def test_on_line_estimates_are_near_its_minimum():
    """An approximation: its loss is higher than the minimum by a little of what the minimum is below the start."""
    X, _, items, accepted, offered, chosen = given(1, missing=0.0)
    with x64():
        run = jax.jit(
            lambda solver: follow(solver, jnp.asarray(X), jnp.asarray(items, jnp.int32), jnp.asarray(accepted), N, 1.0)[-1],
            static_argnums=0,
        )
        best, online = (run(solver) for solver in (EXACT, mnl.Online()))
        at = [float(negative_log_likelihood(theta, X, offered, chosen, 1.0)) for theta in (best, online, jnp.zeros((N, D)))]
    assert at[0] < at[1] < at[0] + 0.2 * (at[2] - at[0])
