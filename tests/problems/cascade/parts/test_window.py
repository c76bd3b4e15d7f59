"""Index estimators that keep samples: worked cases, exactness until the window is full, Newton steps."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import COST, PSI, SCORE, f32, fed, play, random_samples, slow, study
from helpers import x64
from reference import cascade as ref

from jaxroute.estimators import links
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts import loss as index_loss
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.streaming import ConstantCurvature, StreamingNewton
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


@pytest.mark.slow
@pytest.mark.parametrize("link", links.INDEX_LINKS.values(), ids=str)
def test_exact_estimate_is_a_root_of_the_moments(link):
    psi, score, cost = random_samples(80)
    estimator = Window.exact(80, ridge=0.0)
    fit, rho = fed(estimator, psi, score, cost, link)
    u = psi @ rho[-1]
    moments = psi.T @ (cost - np.maximum(score - np.asarray(link.value(f32(u)), float), 0))
    np.testing.assert_allclose(moments, 0.0, atol=2e-3)
    with x64():
        slope = estimator.slope(fit, rho[-1][:, None], None, link)
    np.testing.assert_allclose(slope[:, 0], moments, atol=1e-4)


def test_moment_equations_find_the_exact_estimate_of_the_example():
    _, rho = fed(MomentEquations(size=8, ridge=0.0))
    np.testing.assert_allclose(rho[-1], [0.59481464, 0.22440169], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH])
def test_moment_equations_find_the_exact_estimate(link):
    psi, score, cost = random_samples(60)
    _, exact = fed(Window.exact(60), psi, score, cost, link)
    _, moments = fed(MomentEquations(size=61), psi, score, cost, link)
    np.testing.assert_allclose(moments[30:], exact[30:], atol=2e-3)


@pytest.mark.parametrize("link", [links.LOGISTIC, slow(links.PROBIT)])
def test_old_outputs_are_scored_again_by_a_later_evaluator(link):
    """Of samples in the window exactly, of those that have left to first order around the evaluator of that time."""
    rng = np.random.default_rng(3)
    n, m, d, size = 12, 2, 3, 4
    psi, cost = np.column_stack([np.ones(n), rng.uniform(-1, 1, n)]), rng.uniform(0.02, 0.1, n)
    phi, theta = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, (n, d))
    estimator = Window(size=size, ridge=0.0)

    @jax.jit
    def update(fit, rho, sample, theta):
        return estimator.update(fit, rho, sample, index_loss.Evaluator(theta, link), links.IDENTITY)

    fit = estimator.init(index_loss.Sizes(1, m, d))
    rho, left = jnp.zeros((m, 1), jnp.float32), []
    for t in range(n):
        if t >= size:  # Leaves with the evaluator and the estimate of this time.
            old, before = t - size, np.asarray(rho[:, 0], float)
            s = theta[t] @ phi[old]
            value, slope = (float(f(f32(s))) for f in (link.value, link.slope))
            left.append((old, float(value > psi[old] @ before), value, slope, s))
        one = slice(t, t + 1)
        sample = index_loss.Sample(jnp.int32(t), f32(psi[t]), jnp.ones(1, bool), f32(cost[one]), jnp.zeros(1), f32(phi[one]))
        fit, rho = update(fit, rho, sample, f32(theta[t]))
    later, at = rng.uniform(-1, 1, d), np.array([0.4, 0.2])
    expected = np.zeros(m)
    for old, h, value, slope, s in left:
        expected += psi[old] * (cost[old] - h * (value + slope * (later @ phi[old] - s) - psi[old] @ at))
    for t in range(n - size, n):
        score = float(link.value(f32(later @ phi[t])))
        expected += psi[t] * (cost[t] - max(score - psi[t] @ at, 0))
    found = estimator.slope(fit, f32(at)[:, None], index_loss.Evaluator(f32(later), link), links.IDENTITY)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)
    assert len(left) == n - size and 0 < sum(h for _, h, *_ in left) < len(left)


@pytest.mark.slow
def test_window_stays_near_the_exact_estimator():
    """The same runs, with 2000 samples or with 32 of them: the longer the window the nearer."""
    fits = {"exact": Window.exact(2000), "64": Window(size=64), "32": Window()}
    fits |= {"8": Window(size=8), "stream": StreamingNewton(), "constant": ConstantCurvature()}
    data = study(ca.uniform_cascade(), {n: ca.COSMOS(fit=f) for n, f in fits.items()}, seeds=24).isel(time=-1)["regret"]
    gap = {n: float(np.abs(data.sel(policy=n) - data.sel(policy="exact")).mean()) for n in fits}
    assert gap["64"] < gap["32"] < gap["8"] < gap["stream"] < 0.1 * gap["constant"], gap
    assert gap["32"] < 0.05 * float(data.sel(policy="exact").mean())


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


@pytest.mark.slow
def test_estimates_may_be_renewed_less_often():
    """Every round, or every 10, 50 or 200."""
    fits = {str(r): Window.exact(600, every=r) for r in (1, 10, 50, 200)}
    regret = study(ca.uniform_cascade(), {n: ca.COSMOS(fit=f) for n, f in fits.items()}, horizon=600, seeds=24)[
        "regret"
    ].isel(time=-1)
    assert len(np.unique(regret.isel(seed=0))) == 4
    for name in fits:
        gap = regret.sel(policy=name) - regret.sel(policy="1")
        assert abs(float(gap.mean())) < 0.5 + 3 * float(gap.std(ddof=1)) / math.sqrt(24) and abs(float(gap.mean())) < 1.0, (
            name
        )
