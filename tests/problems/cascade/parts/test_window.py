"""Index estimators that keep samples: worked cases, exactness until the window is full, Newton steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import fed, play, random_samples, slow
from reference import cascade as ref

from jaxroute.estimators import links
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts import indices as index_loss
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.window import MomentEquations, Window
from jaxroute.problems.cascade.theory import residual


@pytest.mark.slow
def test_no_run_of_256_freezes():
    """At the end of a run every estimate solves its equation."""
    options = {"horizon": 1000, "seeds": 256, "probes": {"residual": residual}, "record": ("regret",)}
    for policy in (ca.COSMOS(), ca.Greedy(exploration=WarmUp(3))):
        left = play(ca.uniform_cascade(), policy, **options)["residual"].isel(policy=0).sel(time=slice(100, None))
        assert left.shape[:1] == (256,) and left.shape[-1] == 3
        assert float(left.max()) < 0.01 and float(left.median()) < 1e-4


@pytest.mark.parametrize("kind", ["uniform", "at 0 and 1", "collinear", "little cost"])
def test_estimates_are_the_minimum_from_the_first_sample_on(kind):
    """In single precision, for samples as a policy meets them: few, collinear, scores at 0 and 1. Errors of an index at all requests."""
    number, n, m, link = 24, 32, 3, ref.index_link("identity")
    rng = np.random.default_rng(0)
    psi = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, m - 1))], axis=1)
    if kind == "collinear":
        psi[:, 2] = 0.7 * psi[:, 1] + 0.01 * rng.normal(size=n)
    score = rng.random((n, number))
    score = np.round(score) if kind == "at 0 and 1" else score
    cost = np.full((n, number), 0.01) if kind == "little cost" else rng.uniform(0.02, 0.1, (n, number))
    psi, score, cost = (np.float32(x) for x in (psi, score, cost))
    estimator = Window()

    @jax.jit
    def fitted(psi, score, cost):
        def one(carry, now):
            t, x, m, c = now
            carry = estimator.update(
                *carry, index_loss.Sample(t, x, jnp.ones(number, bool), c, m, None), None, links.IDENTITY
            )
            return carry, carry[1]

        start = estimator.init(index_loss.Sizes(number, m, 0)), jnp.zeros((m, number))
        return jax.lax.scan(one, start, (jnp.arange(n), psi, score, cost))[1]

    rho, worst = np.asarray(fitted(psi, score, cost), float), 0.0
    psi, score, cost = (np.asarray(x, float) for x in (psi, score, cost))
    for a in range(number):
        for t in range(1, n + 1):
            least = ref.fit_index(psi[:t], score[:t, a], cost[:t, a], link, radius=np.inf)
            worst = max(worst, np.abs(psi @ (rho[t - 1, :, a] - ref.shorten(least, 2.0))).max())
    assert worst < 1e-4, worst


IDENTITY_RHO, TANH_RHO = [0.59481464, 0.22440169], [0.71225578, 0.38600143]


@pytest.mark.parametrize(
    ("fit", "link", "expected", "atol"),
    [
        (Window.exact(8, ridge=0.0), links.IDENTITY, IDENTITY_RHO, 1e-6),
        (Window.exact(8, ridge=0.0), links.TANH, TANH_RHO, 1e-6),
        (MomentEquations(size=8, ridge=0.0), links.IDENTITY, IDENTITY_RHO, 1e-3),
    ],
)
def test_exact_estimates_of_the_example(fit, link, expected, atol):
    np.testing.assert_allclose(fed(fit, link=link)[1][-1], expected, atol=atol)


@pytest.mark.parametrize("link", [links.IDENTITY, slow(links.TANH), slow(links.FLAT)])
def test_window_is_exact_until_it_is_full(link):
    psi, score, cost = random_samples(80)
    _, exact = fed(Window.exact(80), psi, score, cost, link)
    _, window = fed(Window(size=32), psi, score, cost, link)
    np.testing.assert_allclose(window[:32], exact[:32], atol=1e-7)
    late = np.abs(window[32:] - exact[32:]).max()
    assert 1e-6 < late < 0.02  # Afterwards it differs, and little.
