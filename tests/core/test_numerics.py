"""Choices, ranks and sampling against NumPy, on inputs full of ties, as the engine compiles them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.core import numerics, xla
from jaxroute.core.batching.lanes import lanes
from jaxroute.engine.compiling import compile_lanes

RUNS = 96
SIZES = [1, 2, 5, 16]
MODES = ["jit", "vmap", "lanes", "engine"]


def compiled(fn, mode, *args):
    """`fn` of one run, over the last axis of the arguments: one by one, or in a batch."""
    if mode == "jit":
        one = jax.jit(fn)
        return np.stack([np.asarray(one(*(a[..., r] for a in args))) for r in range(RUNS)], axis=-1)
    batched = jax.jit(jax.vmap(fn, in_axes=-1, out_axes=-1) if mode == "vmap" else lanes(fn, RUNS))
    lowered = batched.lower(*args)
    return np.asarray((lowered.compile() if mode == "lanes" else compile_lanes(lowered, "cpu"))(*args))


def tie_rich(rng, size):
    """`[size, RUNS]` of small integers, signed zeros and infinities: most runs have ties, some nothing else."""
    values = rng.choice(np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf], np.float32), (size, RUNS))
    values[:, :8] = rng.choice(values[0], 8)
    return values


def reference_argmax(score, allowed):
    if np.isnan(score[allowed]).any() or not allowed.any():
        return len(score)
    return np.flatnonzero(allowed & (score == score[allowed].max()))[0]


def reference_rank(*keys):
    order = sorted(range(len(keys[0])), key=lambda i: (*(-float(k[i]) for k in keys), i))
    return np.argsort(order)


# argmax and argmin.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_argmax_and_argmin_take_the_first_of_the_best_allowed(mode, size):
    rng = np.random.default_rng(size)
    score, allowed = tie_rich(rng, size), rng.random((size, RUNS)) < 0.6

    def choose(score, allowed):
        return jnp.stack([numerics.argmax(score), numerics.argmin(score), numerics.argmax(score, allowed)])

    best, worst, masked = compiled(choose, mode, score, allowed)
    np.testing.assert_array_equal(best, np.argmax(score, axis=0))
    np.testing.assert_array_equal(worst, np.argmin(score, axis=0))
    np.testing.assert_array_equal(masked, [reference_argmax(s, a) for s, a in zip(score.T, allowed.T, strict=True)])
    assert (size > 2) or (masked == size).any()  # Runs in which nothing is allowed did occur.


@pytest.mark.parametrize("mode", MODES)
def test_argmax_of_nan_is_out_of_range_unless_it_is_masked_out(mode):
    score = np.random.default_rng(0).normal(size=(6, RUNS)).astype(np.float32)
    score[3, ::2] = np.nan
    allowed = np.ones((6, RUNS), bool)
    allowed[3] = False

    def choose(score, allowed):
        return jnp.stack([numerics.argmax(score), numerics.argmin(score), numerics.argmax(score, allowed)])

    best, worst, masked = compiled(choose, mode, score, allowed)
    assert (best[::2] == 6).all()
    assert (worst[::2] == 6).all()
    np.testing.assert_array_equal(best[1::2], score[:, 1::2].argmax(axis=0))
    np.testing.assert_array_equal(masked, np.where(allowed, score, -np.inf).argmax(axis=0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [4, 15])
def test_a_computed_score_picks_exactly_one_and_the_first_of_equal_models(mode, size):
    """The trap: a score `reward - multiplier * cost` that two loops round differently. Half of the models are copies."""
    rng = np.random.default_rng(size)
    reward, cost = (rng.random((size, RUNS)).astype(np.float32) for _ in range(2))
    original = np.arange(size) % ((size + 1) // 2)
    reward, cost = reward[original], cost[original]
    multiplier = rng.random((1, RUNS)).astype(np.float32)

    def choose(reward, cost, multiplier):
        score = reward - multiplier * cost
        first = numerics.one_hot(numerics.argmax(score), size)
        last = numerics.one_hot(numerics.argmin(score), size)
        ranks = numerics.rank(score)
        return jnp.stack([first.astype(jnp.int32), last.astype(jnp.int32), ranks, numerics.rank(cost > 0.5, -score)])

    first, last, ranks, mixed = compiled(choose, mode, reward, cost, multiplier)
    assert (first.sum(axis=0) == 1).all()
    assert (last.sum(axis=0) == 1).all()
    np.testing.assert_array_equal(first.argmax(axis=0), ranks.argmin(axis=0))
    assert first.argmax(axis=0).max() < (size + 1) // 2
    for found in (ranks, mixed):
        np.testing.assert_array_equal(np.sort(found, axis=0), np.broadcast_to(np.arange(size)[:, None], found.shape))
    copies = np.arange((size + 1) // 2, size)
    np.testing.assert_array_equal(ranks[copies], ranks[original[copies]] + 1)


def test_one_hot_and_pick():
    for index in range(4):
        mask = np.asarray(numerics.one_hot(index, 4))
        np.testing.assert_array_equal(mask, np.arange(4) == index)
        values = np.arange(12).reshape(3, 4)
        picked = numerics.pick(mask, values)
        np.testing.assert_array_equal(picked, values[:, index])
        assert picked.dtype == np.int32
    for outside in (-1, 4):
        assert not numerics.one_hot(outside, 4).any()
        assert float(numerics.pick(numerics.one_hot(outside, 4), jnp.full(4, 7.0))) == 0.0
    hidden = jnp.asarray([np.nan, 2.0, np.inf])
    assert float(numerics.pick(numerics.one_hot(1, 3), hidden)) == 2.0


# Ranks.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_rank_is_the_lexicographic_order_with_ties_to_the_lower_index(mode, size):
    rng = np.random.default_rng(100 + size)
    keys = (rng.random((size, RUNS)) < 0.5, tie_rich(rng, size), rng.integers(-2, 2, (size, RUNS)).astype(np.int32))

    values = rng.integers(1, 9, (size, RUNS)).astype(np.float32)
    together = np.equal.outer(np.arange(size) % 2, np.arange(size) % 2)

    def order(values, *keys):
        amounts = [xla.weighted_sum_over_better(values, *keys, together=pairs) for pairs in (None, together)]
        return jnp.stack([numerics.rank(*keys).astype(jnp.float32), *amounts])

    found = compiled(order, mode, values, *keys)
    expected = np.stack([reference_rank(*(k[:, r] for k in keys)) for r in range(RUNS)], axis=-1)
    np.testing.assert_array_equal(found[0], expected)
    ahead = expected[None, :] < expected[:, None]  # [i, j]: j is ahead of i
    np.testing.assert_array_equal(found[1], (ahead * values[None]).sum(1))
    np.testing.assert_array_equal(found[2], (ahead * together[:, :, None] * values[None]).sum(1))


# Sampling from probabilities.


def random_probabilities(rng, size):
    """`[size, RUNS]` with about half of the entries zero, over many magnitudes; at least one positive per run."""
    p = rng.random((size, RUNS)) * 10.0 ** rng.integers(-8, 2, (size, RUNS))
    keep = rng.random((size, RUNS)) < 0.5
    keep[rng.integers(0, size, RUNS), np.arange(RUNS)] = True
    return np.where(keep, p, 0.0).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_prefix_sums(mode, size):
    values = random_probabilities(np.random.default_rng(size), size)
    found = compiled(numerics.prefix_sums, mode, values)
    np.testing.assert_allclose(found, np.cumsum(values.astype(np.float64), axis=0), rtol=2e-6)
    steps = np.diff(found, axis=0)
    assert (steps >= 0).all()
    assert (steps[values[1:] == 0] == 0).all()
    whole = np.random.default_rng(1).integers(0, 1000, (size, RUNS)).astype(np.float32)
    np.testing.assert_array_equal(compiled(numerics.prefix_sums, mode, whole), np.cumsum(whole, axis=0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_inverse_cdf_is_the_inverse_and_never_picks_a_zero(mode, size):
    rng = np.random.default_rng(200 + size)
    p = random_probabilities(rng, size)
    for u in (np.zeros(RUNS), np.full(RUNS, 1 - 2.0**-24), rng.random(RUNS), (p[0] / p.sum(axis=0)).clip(0, 1 - 2.0**-24)):
        u = u.astype(np.float32)
        index = compiled(numerics.inverse_cdf, mode, p, u)
        assert index.min() >= 0
        assert index.max() < size
        assert (p[index, np.arange(RUNS)] > 0).all()
        cdf = np.cumsum(p.astype(np.float64), axis=0) / p.astype(np.float64).sum(axis=0)
        upper = cdf[index, np.arange(RUNS)]
        lower = upper - p[index, np.arange(RUNS)] / p.astype(np.float64).sum(axis=0)
        assert (lower - 1e-6 <= u).all()
        assert (u <= upper + 1e-6).all()


@pytest.mark.parametrize("mode", MODES)
def test_inverse_cdf_of_dyadic_probabilities_is_exact(mode):
    """Multiples of 1/64 add up without rounding, so the boundaries themselves are decided exactly: `[F(j - 1), F(j))` is `j`."""
    rng = np.random.default_rng(9)
    weights = np.stack([rng.multinomial(64, rng.dirichlet(np.full(7, 0.4))) for _ in range(RUNS)], axis=-1)
    for u in (rng.integers(0, 64, RUNS) / 64, rng.integers(0, 2**23, RUNS) / 2**23):
        index = compiled(numerics.inverse_cdf, mode, (weights / 64).astype(np.float32), u.astype(np.float32))
        np.testing.assert_array_equal(index, [np.argmax(np.cumsum(w) / 64 > x) for w, x in zip(weights.T, u, strict=True)])


@pytest.mark.parametrize("mode", MODES)
def test_inverse_cdf_without_any_probability_is_zero(mode):
    uniform = np.linspace(0, 0.999, RUNS, dtype=np.float32)
    assert (compiled(numerics.inverse_cdf, mode, np.zeros((4, RUNS), np.float32), uniform) == 0).all()


@pytest.mark.parametrize("size", [1, 5, 64, 65])
def test_combine_is_a_matrix_product_with_its_derivatives(size):
    rng = np.random.default_rng(size)
    x, rows = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((size,), (size, 3)))
    np.testing.assert_allclose(numerics.combine(x, rows), np.asarray(x) @ np.asarray(rows), rtol=1e-4, atol=1e-5)
    ours = jax.grad(lambda x, r: jnp.sum(jnp.sin(numerics.combine(x, r))), (0, 1))(x, rows)
    plain = jax.grad(lambda x, r: jnp.sum(jnp.sin(x @ r)), (0, 1))(x, rows)
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0.1, 0.7])
def test_a_compensated_sum_of_a_million_equal_numbers_does_not_drift(value):
    """Compiled: no rewriting of sums takes the compensation away. A plain sum is off by about a percent."""
    value = jnp.float32(value)

    @jax.jit
    def sums(value):
        def one(carry, _):
            plain, total, rest = carry
            return (plain + value, *numerics.add_up(total, rest, value)), None

        zero = jnp.zeros_like(value)
        return jax.lax.scan(one, (zero, zero, zero), None, length=1_000_000)[0]

    plain, total, _ = (float(x) / 1e6 / float(value) - 1.0 for x in sums(value))
    assert abs(plain) > 5e-3
    assert abs(total) < 1e-6


@pytest.mark.parametrize("size", [20, 64, 160])
def test_a_table_is_rewritten_up_to_what_is_in_use(size):
    """Chunks in use get what the step says; the others keep what they had."""
    rng, width = np.random.default_rng(0), xla.chunked_size(size)
    table, number = rng.random((3, width)).astype(np.float32), rng.integers(0, size, 5).astype(np.int32)
    for in_use in (1, 33, size):

        def run(place, in_use=in_use):
            def step(part, first):
                here = first + jnp.arange(part[0].shape[-1]) == place
                return jnp.where(here, 7.0, part[0]), jnp.where(here, 1, part[1])

            leaves = jnp.asarray(table), jnp.zeros((width,), jnp.int32)
            return xla.chunked_map_inplace(leaves, jnp.int32(in_use), step)

        changed, counts = jax.jit(jax.vmap(run))(number)
        reached = width if width <= 32 else -(-min(in_use, width) // 32) * 32
        for r, place in enumerate(number):
            expected = table.copy()
            expected[:, place] = 7.0 if place < reached else expected[:, place]
            np.testing.assert_array_equal(changed[r], expected)
            assert int(counts[r].sum()) == int(place < reached)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("shape", [(3,), (64,), (4, 5, 7), (1024,), (128, 1024), (2, 128, 1024), (3, 400, 321)])
def test_nan_is_found_wherever_it_is(shape, runs):
    """In tables of all sizes, those that are looked through as vectors too; infinite numbers are none. As the engine compiles: in jax 0.10
    the largest number of 4,096 and more, as XLA compiles it by default on a CPU, is not NaN if one of them is."""
    size, last = int(np.prod(shape)), runs - 1
    values = np.full((size, runs), -np.inf, np.float32)

    def given():
        return jnp.asarray(values.reshape(*shape, runs))

    found = compile_lanes(jax.jit(lanes(numerics.has_nan, runs)).lower(given()), "cpu")
    assert not found(given()).any()
    for place in sorted({0, 1, size // 3, size - 2, size - 1}):
        values[place, last] = np.nan
        assert np.asarray(found(given())).tolist() == [run == last for run in range(runs)], place
        values[place, last] = np.inf
    assert not found(given()).any()
