"""Square roots of design matrices as products of factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.estimators.factors import ByFactors
from jaxroute.estimators.gaussian import ByRoot

N, D, RIDGE = 5, 12, 0.3


def observations(seed, number=150):
    """Parameters (-1 for none) and features: most are of two parameters, so that these fill several pages; one has none."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice([-1, 0, 1, 2, 3], size=(number, 2), p=[0.1, 0.4, 0.35, 0.1, 0.05]).astype(np.int32)
    return chosen, (rng.normal(size=(number, 2, D)) / np.sqrt(D)).astype(np.float32)


def filled(sampler, chosen, x):
    def add(spread, row):
        return sampler.add(spread, *row), None

    return jax.lax.scan(add, sampler.init(N, D, RIDGE, 2 * len(chosen)), (chosen, x))[0]


@pytest.fixture(scope="module")
def runs():
    """Spread after the observations of three runs: by factors, each alone and side by side, and by roots."""
    data = [observations(seed) for seed in range(3)]
    alone = [jax.jit(lambda c, x: filled(ByFactors(), c, x))(*d) for d in data]
    together = jax.tree.map(lambda *xs: jnp.stack(xs, -1), *data)
    beside = jax.jit(jax.vmap(lambda c, x: filled(ByFactors(), c, x), in_axes=-1, out_axes=-1))(*together)
    roots = [jax.jit(lambda c, x: filled(ByRoot(), c, x))(*d) for d in data]
    return data, alone, beside, roots


@pytest.mark.parametrize("number", [1, 3])
def test_samples_are_those_of_roots(runs, number):
    _, alone, beside, roots = runs
    noise = np.random.default_rng(9).normal(size=(N, number, D, 3)).astype(np.float32)
    of_roots = [ByRoot().sample(r, noise[..., i]) for i, r in enumerate(roots)]
    for i, spread in enumerate(alone):
        np.testing.assert_allclose(jax.jit(ByFactors().sample)(spread, noise[..., i]), of_roots[i], rtol=1e-4, atol=2e-5)
    side_by_side = jax.jit(jax.vmap(ByFactors().sample, in_axes=-1, out_axes=-1))(beside, noise)
    np.testing.assert_allclose(side_by_side, np.stack(of_roots, -1), rtol=1e-4, atol=2e-5)


def test_covariance(runs):
    (data, *_), (alone, *_), *_ = runs
    chosen, x = data
    eye = jnp.broadcast_to(jnp.eye(D), (N, D, D))
    root = np.swapaxes(np.asarray(ByFactors().sample(alone, eye), float), 1, 2)
    V = np.stack([RIDGE * np.eye(D) + x[chosen == j].T.astype(float) @ x[chosen == j] for j in range(N)])
    assert (chosen == 0).sum() > 100 and not (chosen == 4).any()
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2) @ V, np.broadcast_to(np.eye(D), V.shape), atol=1e-4)
    np.testing.assert_allclose(ByFactors().min_eigenvalue(alone), np.linalg.eigvalsh(V)[:, 0], rtol=1e-4)


def test_memory_goes_with_the_observations():
    state = ByFactors().init(112, 384, 1.0, 1000)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state)) < ByRoot().init(112, 384, 1.0, 1000).total.nbytes / 10
    assert ByFactors().init(3, 4, 1.0, 0).rows.shape[0] == 1


def test_room_is_enough_in_the_worst_case():
    """Every parameter has one observation in its last page, one of them all others."""
    chosen = np.concatenate([np.arange(N), np.zeros(200, int)]).astype(np.int32)[:, None]
    x = np.random.default_rng(0).normal(size=(*chosen.shape, D)).astype(np.float32)
    spread = jax.jit(
        lambda c, x: jax.lax.scan(lambda s, r: (ByFactors().add(s, *r), None), ByFactors().init(N, D, 1.0, len(c)), (c, x))[
            0
        ]
    )(chosen, x)
    assert spread.in_use < spread.owner.shape[0]
    assert not np.asarray(spread.rows[-1]).any() and not np.asarray(spread.mix[-1]).any()
    assert (np.asarray(spread.pages) == [-(-201 // 16), 1, 1, 1, 1]).all()
