"""Estimates by hand and against a plain optimiser, after observations that come one by one.

Section numbers are those of `spec/acqb.md`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import BFGS, EXACT, TRACKED, follow, logistic, no_news, observations
from reference import queueing as ref

from jaxroute.estimators import mnl

slow = pytest.mark.slow


X1, ACCEPTED1 = np.array([[1.0], [1.0], [-1.0]]), np.array([1, 0, 0])


X2, ACCEPTED2 = np.array([[1, 0], [0, 1], [0.6, -0.8], [0.6, 0.8]]), np.array([1, 0, 1, 0])


def test_estimates_by_hand(double_precision):
    """4.2, examples (i) and (ii) with the iterates of Newton's method from zero."""
    arm = jnp.zeros((1,), jnp.int32)
    for X, taken, expected in ((X1, ACCEPTED1, [0.2865477]), (X2, ACCEPTED2, [0.3551224, -0.8433650])):
        rows, d = logistic(X, taken), X.shape[1]
        unknown = mnl.NewtonState(jnp.zeros(()), jnp.zeros(()))  # No features so far: no step is shortened.

        def sums(theta, rows=rows, X=X, **wanted):
            return rows.sums(theta, arm, len(X), **wanted)

        def fit(solver, start, d=d, sums=sums):
            return jax.jit(lambda: solver.fit(start, sums, jnp.zeros((1, d)), arm, 1.0, no_news(1, d)))()

        for passes in (1, 2, 3) if d == 2 else (4,):
            theta, _ = fit(mnl.Newton(tolerance=-1.0, passes=passes), unknown)
            np.testing.assert_allclose(theta[0], ref.newton_iterates(X, taken, 1.0, passes)[-1], atol=1e-12)
        np.testing.assert_allclose(theta[0], expected, atol=5e-8)


FITS = {
    # problems, rows, K, N, ridge, solver, slow or not
    "K1": (500, 30, 1, 2, 1.0, TRACKED, ()),
    "K1, ridge 0.1": (300, 30, 1, 2, 0.1, EXACT, ()),
    "K2, pairs": (200, 30, 2, 3, 1.0, EXACT, ()),
    "K1, ridge 5": (200, 60, 1, 3, 5.0, TRACKED, slow),
    "K1, many rows, ridge 0.1": (300, 150, 1, 3, 0.1, TRACKED, slow),
    "K1, BFGS": (200, 60, 1, 3, 1.0, BFGS, slow),
    "K2, joint": (200, 60, 2, 3, 1.0, EXACT, slow),
    "K2, joint, ridge 0.1": (200, 60, 2, 3, 0.1, EXACT, slow),
    "K3, joint": (200, 60, 3, 4, 1.0, EXACT, slow),
    "K2, pairs, ridge 0.1": (300, 60, 2, 3, 0.1, EXACT, slow),
    "K2, pairs, BFGS": (200, 60, 2, 3, 1.0, BFGS, slow),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=f[-1]) for n, f in FITS.items()])
def test_fits_row_by_row_equal_a_plain_optimiser(name, double_precision):
    """1,000 fits, with the slow ones 2,800, each after observations that came one by one."""
    problems, H, K, N, ridge, solver, _ = FITS[name]
    d = 2
    rng = np.random.default_rng(0)
    given = [observations(rng, H, N, K, d) for _ in range(problems)]
    X, F, items, accepted = (np.stack([g[i] for g in given]) for i in range(4))
    F = 2 * F if "pairs" in name else None
    run = jax.jit(jax.vmap(lambda X, i, a, F: follow(solver, X, i, a, N, ridge, "joint" in name, F)[-1]))
    ours = np.asarray(run(X, jnp.asarray(items, jnp.int32), accepted, F))
    worst = 0.0
    for p, (x, f, _, _, offered, chosen) in enumerate(given):
        theirs = (
            ref.fit_disjoint(x, offered, chosen, ridge) if F is None else ref.fit_shared(2 * f, offered, chosen, ridge)[None]
        )
        worst = max(worst, np.abs(ours[p] - theirs).max())
    assert worst < 1e-6, worst
