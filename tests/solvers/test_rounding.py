"""Roundings against the enumerated distribution, and coin by coin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import combinatorial as plain

from jaxroute.core.batching.lanes import lanes
from jaxroute.solvers import rounding

FRACTIONS = (
    [0.3, 0.6, 0.5, 0.6],
    [0.5, 0.4, 0.7, 0.2],
    [0.7, 0.55],
    [1.0, 0.0, 0.25, 0.75],
    [0.2, 0.2, 0.2, 0.2, 0.2],
    [0.9],
)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def round_many(z, key, kind, count, whole_sum):
    size = z.shape[-1]
    k_first, k_second = jax.random.split(key)
    if kind == "pairwise":
        return jax.vmap(lambda u: rounding.pairwise(z, u, whole_sum=whole_sum))(jax.random.uniform(k_first, (count, size)))
    uniforms = jax.random.uniform(k_first, (count, size, size)), jax.random.uniform(k_second, (count, size))
    return jax.vmap(lambda u, g: rounding.swap(z, u, g))(*uniforms)


@pytest.mark.parametrize("kind", ["pairwise", "swap"])
@pytest.mark.parametrize("z", FRACTIONS)
def test_rounding_follows_the_enumerated_distribution(kind, z):
    """Every set as often as the enumeration of all coins says, within 5 standard errors of 200,000 draws."""
    count, whole_sum = 200_000, round(sum(z), 6) % 1 == 0
    sets = np.asarray(round_many(jnp.asarray(z), jax.random.key(3), kind, count, whole_sum))
    distribution = (plain.pairwise_distribution if kind == "pairwise" else plain.swap_distribution)(np.asarray(z))
    codes = sets @ (1 << np.arange(len(z)))
    assert set(np.unique(codes)) <= {
        sum(1 << k for k in members) for members, probability in distribution.items() if probability > 0
    }
    for members, probability in distribution.items():
        seen = np.mean(codes == sum(1 << k for k in members))
        assert abs(seen - probability) <= 5 * np.sqrt(probability * (1 - probability) / count) + 1e-9, (
            members,
            seen,
            probability,
        )
    assert set(np.unique(sets.sum(1))) <= {int(np.floor(sum(z) + 1e-6)), int(np.ceil(sum(z) - 1e-6))}


def test_roundings_equal_the_reference_coin_by_coin():
    """The same uniforms give the same set, at vertices, at ties and in the middle."""
    rng = np.random.default_rng(20)
    pairwise = jax.jit(functools.partial(rounding.pairwise, whole_sum=False))
    swap = jax.jit(rounding.swap)
    for row in range(300):
        z = np.round(rng.random(6), int(rng.integers(1, 4)))
        if row % 3 == 0:
            z = np.where(rng.random(6) < 0.5, np.round(z), z)
        u, trades, group = rng.random(6), rng.random((6, 6)), rng.random(6)
        np.testing.assert_array_equal(pairwise(z, u), plain.round_pairwise(z, u), err_msg=f"pairwise {z}")
        np.testing.assert_array_equal(swap(z, trades, group), plain.round_swap(z, trades, group), err_msg=f"swap {z}")


def test_swap_of_vertices_is_the_reference_s_for_one_run_and_for_many():
    """One fraction, or two that sum to one wherever they stand, take the branch of one merge; others among them take that of all."""
    rng = np.random.default_rng(22)
    size, runs = 7, 200
    z = np.round(rng.random((runs, size)))
    for row, fraction in zip(z, np.round(rng.uniform(0.02, 0.98, runs), 2), strict=True):
        i, j = rng.permutation(size)[:2]
        row[i] = fraction
        if rng.random() < 0.7:
            row[j] = 1.0 - row[i]
    z[::20] = np.round(rng.random((runs // 20, size)), 2)
    trades, surplus = rng.random((runs, size, size)).astype(np.float32), rng.random((runs, size)).astype(np.float32)
    expected = [plain.round_swap(*row) for row in zip(z, trades, surplus, strict=True)]
    one = jax.jit(rounding.swap)
    np.testing.assert_array_equal([one(*row) for row in zip(z, trades, surplus, strict=True)], expected)
    last = [jnp.moveaxis(jnp.asarray(x), 0, -1) for x in (z.astype(np.float32), trades, surplus)]
    np.testing.assert_array_equal(np.asarray(jax.jit(lanes(rounding.swap, runs))(*last)).T, expected)
