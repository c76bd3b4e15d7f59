"""Observations of the multinomial-logit model, and fits that follow them one by one."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.estimators import mnl


def no_news(A, d):
    return mnl.NewestObservation(jnp.zeros((A, d)), jnp.zeros((A, d)), jnp.zeros((A,)))


# Solvers that end where rounding does, in double precision.
EXACT, TRACKED, BFGS = mnl.Newton(tolerance=1e-11), mnl.Tracked(tolerance=1e-11), mnl.BFGS(tolerance=1e-11)


def observations(rng, H, N, K, d, missing=0.0):
    """(X `[H, d]`, F `[H, N, d]`, items `[H, K]` rising then -1, accepted place `[H]`, offered `[H, N]`, chosen arm `[H]`)."""
    items, accepted = np.full((H, K), -1), np.full(H, K)
    offered, chosen = np.zeros((H, N), bool), np.full(H, -1)
    for h in range(H):
        k = K if rng.random() >= missing else int(rng.integers(0, K))
        items[h, :k] = np.sort(rng.choice(N, k, replace=False))
        offered[h, items[h, :k]] = True
        place = int(rng.integers(0, k + 1))
        if place < k:
            accepted[h], chosen[h] = place, items[h, place]
    return rng.uniform(-1, 1, (H, d)), rng.uniform(-1, 1, (H, N, d)), items, accepted, offered, chosen


def rows_of(X, items, accepted, N):
    H, K = items.shape
    rows = mnl.Rows.empty(H, N, K, X.shape[1])
    wide = rows.accepted.shape[0] - H
    return mnl.Rows(
        features=jnp.asarray(np.pad(X.T, ((0, 0), (0, wide)))),
        items=jnp.asarray(np.pad(items.T, ((0, 0), (0, wide)), constant_values=-1), rows.items.dtype),
        accepted=jnp.asarray(np.pad(accepted, (0, wide), constant_values=K), rows.accepted.dtype),
    )


def pair_rows_of(F, items, accepted):
    H, K = items.shape
    wide = mnl.PairRows.empty(H, K, F.shape[2]).accepted.shape[0] - H
    shown = items >= 0
    x = np.where(shown[..., None], F[np.arange(H)[:, None], items], 0.0)
    return mnl.PairRows(
        features=jnp.asarray(np.pad(np.moveaxis(x, 0, -1), ((0, 0), (0, 0), (0, wide)))),
        shown=jnp.asarray(np.pad(shown.T, ((0, 0), (0, wide)))),
        accepted=jnp.asarray(np.pad(accepted, (0, wide), constant_values=K), jnp.int8),
    )


def logistic(X, taken):
    """Rows of one item that is always shown."""
    return rows_of(np.asarray(X, float), np.zeros((len(X), 1), int), np.where(taken, 0, 1), 1)


def double(state):
    return jax.tree.map(lambda x: x.astype(float), state)


def follow(solver, X, items, accepted, N, ridge, joint=False, F=None):
    """Estimates after the observations, added one by one as in a run: `[N, d]`, with pair features `F` `[H, N, d]` `[1, d]`."""
    H, K = items.shape
    d = X.shape[1] if F is None else F.shape[2]
    num = N if F is None else 1
    theta, fit = jnp.zeros((num, d)), double(solver.init(num, d, ridge))
    empty = mnl.Rows.empty(H, N, K, d) if F is None else mnl.PairRows.empty(H, K, d)
    data = empty.replace(features=empty.features.astype(float))

    def add(carry, h):
        theta, fit, data = carry
        shown = items[h]
        if F is None:
            block = jnp.arange(N, dtype=jnp.int32) if joint else shown
            new = mnl.new_row(theta @ X[h], X[h], shown, accepted[h], block)
            data = data.write(h, X[h], shown, accepted[h], True)
        else:
            block, x = jnp.zeros((1,), jnp.int32), F[h][shown]
            new = mnl.new_pair(theta[0], x, shown >= 0, accepted[h])
            data = data.write(h, jnp.where((shown >= 0)[:, None], x, 0.0), shown >= 0, accepted[h], True)

        def sums(theta, **wanted):
            return data.sums(theta, block, h + 1, **wanted)

        theta, fit = solver.fit(fit, sums, theta, block, ridge, new)
        return (theta, fit, data), theta

    return jax.lax.scan(add, (theta, fit, data), jnp.arange(H, dtype=jnp.int32))[1]
