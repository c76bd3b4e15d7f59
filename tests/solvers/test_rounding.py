"""Roundings against the reference, coin by coin."""

import jax
import jax.numpy as jnp
import numpy as np
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


def test_sets_are_as_frequent_as_the_enumeration_of_all_coins_says():
    """Within 5 standard errors; the test below compares more selections coin by coin."""
    z, count, rng = np.array(FRACTIONS[1]), 100_000, np.random.default_rng(3)
    trades, coins = rng.random((count, 4, 4)), rng.random((count, 4))
    sets = jax.jit(jax.vmap(lambda t, c: (rounding.pairwise(z, c, whole_sum=False), rounding.swap(z, t, c))))(trades, coins)
    for found, distribution in zip(sets, (plain.pairwise_distribution(z), plain.swap_distribution(z)), strict=True):
        frequency, probability = np.bincount(np.asarray(found) @ (1 << np.arange(4)), minlength=16) / count, np.zeros(16)
        for members, mass in distribution.items():
            probability[sum(1 << k for k in members)] = mass
        assert (np.abs(frequency - probability) <= 5 * np.sqrt(probability * (1 - probability) / count) + 1e-9).all()


def test_roundings_equal_the_reference_coin_by_coin():
    """The same uniforms give the same set, at vertices, at ties and in the middle."""
    rng = np.random.default_rng(20)
    pairwise = jax.jit(rounding.pairwise, static_argnames="whole_sum")
    swap = jax.jit(rounding.swap)
    drawn = [np.round(rng.random(6), int(rng.integers(1, 4))) for _ in range(300)]
    drawn[::3] = [np.where(rng.random(6) < 0.5, np.round(z), z) for z in drawn[::3]]
    for z, whole_sum in [*((z, round(sum(z), 6) % 1 == 0) for z in FRACTIONS * 30), *((z, False) for z in drawn)]:
        u, trades, group = (rng.random(shape) for shape in (len(z), (len(z), len(z)), len(z)))
        found = pairwise(np.array(z), u, whole_sum=whole_sum)
        np.testing.assert_array_equal(found, plain.round_pairwise(z, u), err_msg=f"pairwise {z}")
        np.testing.assert_array_equal(
            swap(np.array(z), trades, group), plain.round_swap(z, trades, group), err_msg=f"swap {z}"
        )


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
