"""Draws: the bits of their namesakes in `jax.random`, the published Threefry vectors, and the distributions of what has no namesake."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, x64
from scipy import stats

from jaxroute.core import draws
from jaxroute.core.batching.lanes import exactly, lanes
from jaxroute.engine.compiling import compile_lanes

SHAPES = [(), (7,), (3, 5), (2, 0, 3), (1000,)]
SEEDS = [0, 1, 2**31, 2**32 - 1]
NAMESAKES = ["bits", "uniform", "normal", "gumbel", "exponential"]


def words(key):
    return np.asarray(jax.random.key_data(key))


def assert_same_bits(ours, theirs):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_array_equal(ours, theirs)


# Threefry.


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # Known answers of the Random123 library, "threefry2x32 20".
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_threefry_gives_the_published_vectors(key, counter, expected, jit):
    block = jax.jit(draws.threefry_2x32) if jit else draws.threefry_2x32
    assert tuple(int(x) for x in block(*map(jnp.uint32, (*key, *counter)))) == expected


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 0)])
def test_words_of_children_in_every_batch(axes):
    """Keys and addresses that differ between the elements of a batch, or do not."""
    keys = np.random.default_rng(1).integers(0, 2**32, (4, 2), dtype=np.uint32)
    addresses = np.arange(12, dtype=np.uint32).reshape(4, 3)
    k, a = (one if axis == 0 else one[0] for one, axis in zip((keys, addresses), axes, strict=True))

    def each(words, address):
        return draws.child_words(words[0], words[1], address)

    found = np.asarray(jax.jit(jax.vmap(each, in_axes=axes))(k, a))
    for i, j in np.ndindex(4, 3):
        word, address = k if axes[0] is None else k[i], (a if axes[1] is None else a[i])[j]
        child = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(word), impl=draws.KEY_IMPL), address)
        np.testing.assert_array_equal(found[i, :, j], words(child))
    if axes == (0, 0):
        np.testing.assert_array_equal(jax.jit(lanes(each, 4))(keys.T, addresses.T), np.moveaxis(found, 0, -1))


# Keys.


@pytest.mark.parametrize("address", [0, 517, 2**31 - 1, 2**31, 2**32 - 1, np.uint32(2**32 - 1), np.uint8(200)])
def test_fold_in_equals_jax(address):
    for seed in SEEDS:
        key = draws.key(seed)
        np.testing.assert_array_equal(words(draws.fold_in(key, address)), words(jax.random.fold_in(key, address)))


def test_fold_in_takes_addresses_modulo_two_to_the_32():
    key = draws.key(5)
    np.testing.assert_array_equal(words(draws.fold_in(key, -1)), words(draws.fold_in(key, np.uint32(2**32 - 1))))
    with x64():
        above = draws.fold_in(key, jnp.asarray(2**32 + 3, jnp.int64))
    np.testing.assert_array_equal(words(above), words(draws.fold_in(key, 3)))


@pytest.mark.parametrize("num", [1, 2, 3, 9])
def test_split_equals_jax(num):
    for seed in SEEDS:
        children = draws.split(draws.key(seed), num)
        assert isinstance(children, tuple)
        theirs = jax.random.split(jax.random.key(seed), num)
        np.testing.assert_array_equal(np.stack([words(c) for c in children]), words(theirs))


# Draws with a namesake in `jax.random`.


def all_of(module, **options):
    """One function that makes every draw with a namesake."""

    def draw(key, shape):
        drawn = {name: getattr(module, name)(key, shape, **options) for name in NAMESAKES}
        return drawn | {"bernoulli": module.bernoulli(key, 0.3, shape)}

    return draw


def assert_all_same_bits(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, drawn in theirs.items():
        assert_same_bits(ours[name], drawn)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compiled_draws_have_the_bits_of_their_namesakes(shape):
    ours = jax.jit(lambda key: all_of(draws)(key, shape))
    theirs = jax.jit(lambda key: all_of(jax.random)(key, shape))
    for seed in SEEDS:
        assert_all_same_bits(ours(draws.key(seed)), theirs(jax.random.key(seed)))


def test_draws_stay_float32_in_double_precision():
    with x64():
        key = draws.key(1)
        ours = jax.jit(lambda key: (draws.uniform(key, (50,)), draws.normal(key, (50,))))(key)
        theirs = jax.jit(lambda key: [f(key, (50,), jnp.float32) for f in (jax.random.uniform, jax.random.normal)])(key)
        for one, other in zip(ours, theirs, strict=True):
            assert_same_bits(one, other)
        dtypes = jax.eval_shape(lambda key: (draws.gumbel(key), draws.exponential(key), draws.gamma(key, 2.0)), key)
        assert [d.dtype for d in dtypes] == 3 * [jnp.float32]
        of_integers = draws.bits, lambda key: draws.randint(key, 9), lambda key: draws.categorical(key, jnp.ones(4))
        assert [jax.eval_shape(draw, key).dtype for draw in of_integers] == [jnp.uint32, jnp.int32, jnp.int32]


def test_bernoulli_broadcasts_as_in_jax():
    p = np.linspace(0, 1, 40, dtype=np.float32)
    ours, theirs = (
        jax.jit(lambda key, module=module: (module.bernoulli(key, p), module.bernoulli(key, p, (30, 40))))(draws.key(2))
        for module in (draws, jax.random)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert_same_bits(one, other)
    assert not ours[1][:, 0].any()
    assert ours[1][:, -1].all()


def test_categorical_equals_jax():
    logits = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    logits[:, 2] = -np.inf
    ours = jax.jit(draws.categorical)(draws.key(4), logits)
    np.testing.assert_array_equal(ours, jax.jit(jax.random.categorical)(draws.key(4), logits))
    assert ours.dtype == jnp.int32


def test_the_number_of_addresses_is_checked():
    with pytest.raises(ValueError, match=r"shape \(65536, 65536\) has 2\*\*32 or more elements"):
        draws.bits(draws.key(0), (2**16, 2**16))


# Batches.


@pytest.mark.parametrize("shape", [(), (3, 5)], ids=str)
def test_a_batch_of_keys_draws_what_each_key_draws(shape):
    """One program per key, against `vmap`; and `lanes` and one program per key with the exact arithmetic, also of `jax.random`."""
    size = 48
    keys = jax.random.split(draws.key(11), size)

    def ours(key):
        return all_of(draws)(key, shape)

    def theirs(key):
        return all_of(jax.random)(key, shape)

    def each(function):
        return jax.tree.map(lambda *x: np.stack(x, -1), *map(function, keys))

    def compiled(function, *args):
        return compile_lanes(jax.jit(function).lower(*args), "cpu")

    expected = each(jax.jit(theirs))
    assert_all_same_bits(jax.jit(jax.vmap(ours, out_axes=-1))(keys), expected)
    exact = each(compiled(exactly(ours), keys[0]))
    chex.assert_trees_all_close(exact, expected, rtol=3e-6, atol=3e-6)
    for function in (ours, theirs):
        assert_all_same_bits(compiled(lanes(function, size), keys)(keys), exact)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (None, 1)], ids=str)
def test_keys_and_addresses_are_batched_apart(axes):
    """Addresses `[3, 4]` of one key or of several, mapped along one axis or the other."""
    keys = jax.random.split(draws.key(13), 3)
    places = jnp.arange(12, dtype=jnp.uint32).reshape(3, 4)
    whole = [np.asarray(draws.uniform(key, (12,))).reshape(3, 4) for key in keys]
    key = keys if axes[0] == 0 else keys[0]
    rows = places.T if axes[1] == 1 else places
    drawn = jax.jit(jax.vmap(draws.uniform_at, in_axes=axes))(key, places if axes[1] is None else rows)
    own, first = np.stack(whole), whole[0]
    expected = {(0, None): own, (None, 0): first, (0, 0): own[np.arange(3), np.arange(3)], (None, 1): first}[axes]
    assert_same_bits(drawn, expected)
    assert_same_bits(jax.grad(lambda x: jnp.sum(x * draws.normal(keys[0], (2,))))(1.0), jnp.sum(draws.normal(keys[0], (2,))))


# Draws without a namesake.


@pytest.mark.parametrize("maxval", [1, 2, 7, 100, 2**20, 2**24 + 7, 2**31 - 1])
def test_randint_stays_in_range(maxval):
    drawn = np.asarray(draws.randint(draws.key(3), maxval, (20_000,)))
    assert drawn.dtype == np.int32
    assert drawn.min() >= 0
    assert drawn.max() < maxval


@pytest.mark.parametrize("maxval", [1, 2, 3, 7, 10, 1000, 65_537])
def test_randint_has_the_bias_that_it_claims(maxval, monkeypatch):
    """Every value of the 23-bit uniform, once: the exact distribution of the integers."""
    grid = np.arange(2**23, dtype=np.float32) / np.float32(2**23)
    monkeypatch.setattr(draws, "uniform", lambda key, shape: jnp.asarray(grid))
    counts = np.bincount(np.asarray(draws.randint(draws.key(0), maxval, grid.shape)), minlength=maxval)
    assert counts.size == maxval
    bias = np.abs(counts / 2**23 - 1 / maxval).max() * maxval
    assert bias <= 2 * maxval / 2**23


def test_gamma_has_the_gamma_distribution():
    shapes = [1.0, 1.5, 4.0, 40.0, 300.0, 2e4]
    full = jnp.broadcast_to(jnp.asarray(shapes, jnp.float32)[:, None], (6, 20_000))
    drawn = np.asarray(jax.jit(draws.gamma)(draws.key(6), full))
    assert drawn.dtype == np.float32
    for a, sample in zip(shapes, drawn, strict=True):
        assert stats.kstest(sample.astype(np.float64), stats.gamma(a).cdf).pvalue > 1e-5, a
        assert_mean_close(sample, a)


@pytest.mark.parametrize("tries", [1, 2, 3, 6])
def test_gamma_is_the_first_accepted_of_all_candidates(tries):
    """Some of 60,000 draws need a third candidate, which are drawn for few runs only; the candidates are those of one draw."""
    a = np.tile(np.array([1.0, 1.3, 4.0], np.float32)[:, None], (1, 20_000))
    k_normal, k_uniform = draws.split(draws.key(9))
    x = np.asarray(draws.normal(k_normal, (6, *a.shape)), np.float64)
    u = np.asarray(draws.uniform(k_uniform, (6, *a.shape)), np.float64)
    d = a - 1 / 3
    v = (1 + x / np.sqrt(9 * d)) ** 3
    with np.errstate(invalid="ignore", divide="ignore"):
        accepted = ((v > 0) & (np.log(u) < 0.5 * x * x + d - d * v + d * np.log(v)))[:tries]
    assert (~accepted[:2].any(axis=0)).any()  # Two are not enough for all.
    first = accepted.argmax(axis=0)
    expected = np.where(accepted.any(axis=0), d * np.take_along_axis(v, first[None], axis=0)[0], a)
    drawn = jax.jit(lambda key: draws.gamma(key, jnp.asarray(a), tries=tries))(draws.key(9))
    assert np.mean(np.abs(drawn - expected) > 1e-4 * expected) < 1e-4  # Rounding decides about a candidate now and then.


def test_gamma_of_many_runs_is_that_of_each():
    """Runs that need a third candidate are computed apart."""
    keys, a = jax.random.split(draws.key(10), 6000), jnp.array([1.0, 1.1, 30.0])
    got = jax.jit(lanes(lambda key: draws.gamma(key, a), 6000))(keys)
    two_tries = jax.jit(lanes(lambda key: draws.gamma(key, a, tries=2), 6000))(keys)
    assert 0 < np.sum(np.any(got != two_tries, axis=0)) < 200
    np.testing.assert_allclose(got, jax.jit(jax.vmap(lambda key: draws.gamma(key, a), out_axes=-1))(keys), rtol=1e-5)


def test_beta_has_the_beta_distribution():
    pairs = np.array([(1.0, 1.0), (1.0, 5.0), (30.0, 12.0), (1.0, 30.0), (400.0, 25.0), (6000.0, 4000.0)])
    full = (jnp.broadcast_to(jnp.asarray(x, jnp.float32)[:, None], (6, 20_000)) for x in pairs.T)
    drawn = np.asarray(jax.jit(draws.beta)(draws.key(8), *full))
    for (a, b), sample in zip(pairs, drawn, strict=True):
        assert stats.kstest(sample.astype(np.float64), stats.beta(a, b).cdf).pvalue > 1e-5, (a, b)
        assert_mean_close(sample, a / (a + b))


def test_beta_and_gamma_in_double_precision_have_the_same_words():
    # Some of the first candidates are not accepted.
    key, shape = draws.key(3), np.linspace(1.0, 8.0, 200, dtype=np.float32)
    single = [jax.jit(draws.gamma)(key, shape), jax.jit(draws.beta)(key, shape, shape[::-1])]
    with x64():
        wide = shape.astype(float)
        double = [jax.jit(draws.gamma)(key, wide), jax.jit(draws.beta)(key, wide, wide[::-1])]
        for one, other in zip(single, double, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_beta_is_the_share_of_two_gammas():
    """They are drawn at once, each from a key of its own."""
    a, b, key = jnp.asarray([1.0, 2.5, 40.0]), jnp.asarray([3.0, 1.0, 7.0]), draws.key(10)
    x, y = (draws.gamma(k, p) for k, p in zip(draws.split(key), (a, b), strict=True))
    np.testing.assert_allclose(draws.beta(key, a, b), x / (x + y), rtol=1e-6)
    np.testing.assert_allclose(draws.beta(key, a, 2.0), draws.beta(key, a, jnp.full(3, 2.0)), rtol=1e-6)
