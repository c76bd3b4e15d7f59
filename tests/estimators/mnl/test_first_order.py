"""First-order steps lower the loss, and on-line estimates are close."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import double, follow, no_news, observations, pair_rows_of, rows_of
from scipy.special import expit

from jaxroute.estimators import mnl

slow = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["K2, pairs", *[pytest.param(n, marks=slow) for n in ("K1", "K2", "K2, joint", "K3", "K1, pairs", "K3, pairs")]]
)
def test_majorise_lowers_the_loss_with_every_step(name, double_precision):
    """From arbitrary points, with the bound that a run has gathered, of the items shown last (or all)."""
    K, N, d, H, steps = int(name[1]), 4, 3, 60, 40
    pairs = "pairs" in name
    rng = np.random.default_rng(K)
    X, F, items, accepted, _, _ = observations(rng, H, N, K, d)
    F = 2 * F
    rows = pair_rows_of(F, items, accepted) if pairs else rows_of(X, items, accepted, N)
    num = 1 if pairs else N
    arms = jnp.zeros((1,), jnp.int32) if pairs else jnp.arange(N) if "joint" in name else jnp.asarray(items[-1])
    solver = mnl.Majorise(steps=1)

    @jax.jit
    def losses(start, ridge):
        def gather(inverse, h):
            """The bound with one more observation; with no gradient the estimate stays."""
            if pairs:
                block, new = arms, mnl.new_pair(jnp.zeros(d), jnp.asarray(F)[h][jnp.asarray(items)[h]], jnp.ones(K, bool), K)
            else:
                shown = jnp.asarray(items)[h]
                block = arms if "joint" in name else shown
                new = mnl.new_row(jnp.zeros(N), jnp.asarray(X)[h], shown, K, block)
            empty = mnl.Sums(jnp.zeros(()), jnp.zeros((len(block), d)), None)
            theta, inverse = solver.fit(inverse, lambda *_, **__: empty, jnp.zeros((num, d)), block, ridge, new)
            return inverse, jnp.abs(theta).max()

        inverse, moved = jax.lax.scan(gather, double(solver.init(num, d, ridge)), jnp.arange(H))

        def sums(theta, **wanted):
            return rows.sums(theta, arms, H, **wanted)

        def step(theta, _):
            after, _ = solver.fit(inverse, sums, theta, arms, ridge, no_news(1 if pairs else len(arms), d))
            return after, sums(theta, loss=True, hessian=False).loss + 0.5 * ridge * (theta**2).sum()

        return jax.lax.scan(step, start, length=steps)[1], moved, inverse

    for ridge, start in itertools.product((0.1, 1.0), rng.normal(size=(5, num, d)) * 4):
        path, moved, inverse = losses(start, ridge)
        assert not np.any(moved)
        for j in range(num):
            x = F[np.arange(H)[:, None], items].reshape(-1, d) if pairs else X[(items == j).any(axis=1)]
            bound = ridge * np.eye(d) + (0.25 if K == 1 else 0.5) * x.T @ x
            np.testing.assert_allclose(inverse.total[j], np.linalg.inv(bound), atol=1e-12)
        assert (np.diff(path) <= 1e-12 * path[0]).all() and path[-1] < path[0]


@slow
def test_online_estimates_are_close_but_approximate(double_precision):
    rng, N, d, H, problems = np.random.default_rng(1), 3, 2, 120, 60
    theta = rng.uniform(-1, 1, (problems, N, d))
    given = [observations(rng, H, N, 1, d) for _ in range(problems)]
    X, _, items, _ = (np.stack([g[i] for g in given]) for i in range(4))
    odds = np.take_along_axis(np.einsum("phd,pnd->phn", X, theta), items, axis=2)[..., 0]
    accepted = np.where(rng.random(odds.shape) < expit(odds), 0, 1)
    run = {s: jax.jit(jax.vmap(lambda X, i, a, s=s: follow(s, X, i, a, N, 1.0)[-1])) for s in (mnl.Newton(), mnl.Online())}
    exact, online = (np.asarray(f(X, jnp.asarray(items, jnp.int32), accepted)) for f in run.values())
    off = np.abs(exact - online)
    assert 1e-3 < off.mean() < 0.1
    # It learns about as well: errors against the truth.
    errors = [np.sqrt(((estimate - theta) ** 2).mean()) for estimate in (exact, online)]
    assert errors[1] < 1.25 * errors[0] and errors[0] < 0.6 * np.sqrt((theta**2).mean()) * 1.5
