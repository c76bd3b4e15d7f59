"""Index estimators that keep samples: worked cases, exactness until the window is full, Newton steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import COST, PSI, SCORE, f32, fed, play, random_samples, slow
from reference import cascade as ref

from jaxroute.estimators import links
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts import indices as index_loss
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
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


def test_exact_estimate_with_the_identity_link():
    _, rho = fed(Window.exact(8, ridge=0.0))
    np.testing.assert_allclose(rho[-1], [0.59481464, 0.22440169], atol=1e-6)
    u = PSI @ rho[-1]
    assert (np.flatnonzero(u < SCORE) + 1).tolist() == [2, 4, 6, 8]
    loss = np.asarray(index_loss.loss(links.IDENTITY, f32(u), f32(SCORE), f32(COST)), float)
    assert (loss + SCORE**2 / 2).sum() == pytest.approx(0.31110347, abs=1e-6)
    other = index_loss.loss(links.IDENTITY, f32(PSI @ [0.4, 0.3]), f32(SCORE), f32(COST))
    assert float(other.sum()) == pytest.approx(-1.1132375, abs=1e-6)


def test_exact_estimate_with_tanh():
    _, rho = fed(Window.exact(8, ridge=0.0), link=links.TANH)
    np.testing.assert_allclose(rho[-1], [0.71225578, 0.38600143], atol=1e-6)
    loss = index_loss.loss(links.TANH, f32(PSI @ rho[-1]), f32(SCORE), f32(COST))
    assert float(loss.sum()) == pytest.approx(-1.31645936, abs=2e-6)


@pytest.mark.parametrize("link", [links.IDENTITY, slow(links.TANH), slow(links.FLAT)])
def test_one_sample_gives_the_shortest_solution(link):
    """The link of the index is `M - c` at the request: with the identity, `rho = (M - c) psi / |psi|^2`."""
    for row in (1, 3, 7):
        _, rho = fed(Window.exact(1, ridge=1e-6), PSI[row : row + 1], SCORE[row : row + 1], COST[row : row + 1], link)
        value = float(link.inverse(f32(SCORE[row] - COST[row])))
        np.testing.assert_allclose(rho[0], value * PSI[row] / (PSI[row] @ PSI[row]), atol=1e-4)


@pytest.mark.parametrize("link", [links.IDENTITY, slow(links.TANH), slow(links.FLAT)])
def test_window_is_exact_until_it_is_full(link):
    psi, score, cost = random_samples(80)
    _, exact = fed(Window.exact(80), psi, score, cost, link)
    _, window = fed(Window(size=32), psi, score, cost, link)
    np.testing.assert_allclose(window[:32], exact[:32], atol=1e-7)
    late = np.abs(window[32:] - exact[32:]).max()
    assert 1e-6 < late < 0.02  # Afterwards it differs, and little.


def test_moment_equations_find_the_exact_estimate_of_the_example():
    _, rho = fed(MomentEquations(size=8, ridge=0.0))
    np.testing.assert_allclose(rho[-1], [0.59481464, 0.22440169], atol=1e-3)


RHO = {links.IDENTITY: [0.59481464, 0.22440169], links.TANH: [0.71225578, 0.38600143]}


def test_one_example_in_single_precision():
    """What runs really use."""

    def one(carry, sample):
        t, x, m, c = sample
        new = index_loss.Sample(t, x, jnp.ones(1, bool), c[None], m[None], None)
        return fit.update(*carry, new, None, links.IDENTITY), None

    for fit, expected, atol in (
        (StreamingNewton(), [0.57280608, 0.23136920], 1e-6),
        (Window.exact(8, ridge=0.0), RHO[links.IDENTITY], 1e-5),
    ):
        start = fit.init(index_loss.Sizes(1, 2, 0)), jnp.zeros((2, 1))
        (_, rho), _ = jax.jit(lambda *rows, start=start: jax.lax.scan(one, start, rows))(
            jnp.arange(8), f32(PSI), f32(SCORE), f32(COST)
        )
        np.testing.assert_allclose(rho[:, 0], expected, atol=atol)
