"""Roundings against the enumerated distribution, and coin by coin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from reference import combinatorial as plain

from jaxroute.core.batching.lanes import lanes
from jaxroute.problems.combinatorial.parts.rewards import REWARDS
from jaxroute.solvers import rounding

FRACTIONS = (
    [0.3, 0.6, 0.5, 0.6],
    [0.5, 0.4, 0.7, 0.2],
    [0.7, 0.55],
    [1.0, 0.0, 0.25, 0.75],
    [0.2, 0.2, 0.2, 0.2, 0.2],
    [0.9],
)


@functools.partial(jax.jit, static_argnums=(2, 3))
def round_many(z, key, kind, count):
    size = z.shape[-1]
    k_first, k_second = jax.random.split(key)
    if kind == "pairwise":
        return jax.vmap(lambda u: rounding.pairwise(z, u, whole_sum=False))(jax.random.uniform(k_first, (count, size)))
    uniforms = jax.random.uniform(k_first, (count, size, size)), jax.random.uniform(k_second, (count, size))
    return jax.vmap(lambda u, g: rounding.swap(z, u, g))(*uniforms)


@pytest.mark.parametrize("kind", ["pairwise", "swap"])
@pytest.mark.parametrize("z", FRACTIONS)
def test_rounding_follows_the_enumerated_distribution(kind, z):
    """Every set as often as the enumeration of all coins says, within 5 standard errors of 200,000 draws."""
    count = 200_000
    sets = np.asarray(round_many(jnp.asarray(z), jax.random.key(3), kind, count))
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


@pytest.mark.parametrize("kind", ["pairwise", "swap"])
def test_rounding_gains_on_convex_rewards(kind):
    """E r(S) >= r(z) for any win and all in, and equal for sums: by the enumerated distribution, and by a million rounded sets."""
    z, mu = np.array([0.3, 0.6, 0.5, 0.6], np.float32), np.array([0.5, 0.2, 0.8, 0.4], np.float32)
    distribution = (plain.pairwise_distribution if kind == "pairwise" else plain.swap_distribution)(z.astype(float))
    rng = np.random.default_rng(21)
    if kind == "pairwise":
        sets = jax.jit(jax.vmap(lambda u: rounding.pairwise(z, u, whole_sum=True)))(rng.random((1_000_000, 4), np.float32))
    else:
        coins = (rng.random(shape, np.float32) for shape in ((1_000_000, 4, 2), (1_000_000, 4)))
        sets = jax.jit(jax.vmap(lambda u, s: rounding.swap(z, u, s)))(*coins)
    expected = {"awc": (0.722, 0.658912), "suc": (0.91, 0.91), "aic": (0.188, 0.159621)}
    for name, (rounded, relaxed) in expected.items():
        reward = REWARDS[name]
        assert plain.expected_reward(distribution, name.upper(), mu) == pytest.approx(rounded, abs=1e-6)
        assert float(reward.relaxed(z, mu)) == pytest.approx(relaxed, abs=1e-6)
        assert_mean_close(np.asarray(reward.value(sets, mu)), rounded, what=name)
        assert rounded >= relaxed - 1e-9
