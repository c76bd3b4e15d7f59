"""What kernels are made of: C for every operation, that computes what `jax.vmap` computes."""

import jax
import jax.numpy as jnp
import lane_cases
import numpy as np
import pytest
from c_functions import by_c, emitted, operations_of, source_of_function, statements_of
from jax import lax
from lane_cases import R, assert_same, floats, integers, keys

from jaxroute.core import arithmetic, numerics, xla
from jaxroute.kernels import host, ir
from jaxroute.kernels.ir import Unsupported

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")

HALVES = np.linspace(-3, 3, 13 * R, dtype=np.float32).reshape(13, R).round(1)
HALVES[:, 0] = np.arange(-6, 7) / 2
WITH_NAN = np.where(floats(5) > 0.6, np.float32(np.nan), floats(5))
TIED = np.where(floats(6) > 1.2, np.float32(np.nan), np.round(floats(6)))
ORDERS = integers(2**27, 6) * 8 + np.arange(6, dtype=np.int32)[:, None]
EXTREMES = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 3e9, -3e9, 1e-30, 2.5, -2.5]).repeat(R).reshape(10, R)
WHOLE = np.int32([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 31, 32, 33]).repeat(R).reshape(10, R)
SHIFTS = lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical

# Cases of `test_lanes` that have no C, and the operation that is named.
REFUSED = {
    "rounding": "reduce_precision",
    "conversions": "bfloat16",
    "bitcast to bytes": "bitcast_convert_type",
    "convolution": "jax.numpy.convolve",
    "window": "reduce_window_max",
    "apply a function": "scatter that applies a function",
    "rejection": "jax.random.gamma; draws.gamma has a kernel",
}
MORE = {
    "rounding, whole numbers": (lambda x: (jnp.floor(x), jnp.round(9 * x), jnp.sign(x), x % 0.7), floats(4)),
    "halves": (lambda x: (jnp.round(x), lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)), HALVES),
    "sorting": (lambda x: (jnp.sort(x), jnp.argsort(x[:, 0]), lax.sort((x[:, 0], x[:, 1]), num_keys=1)), floats(4, 3)),
    "sorting with ties": (lambda i: (jnp.argsort(i), lax.sort((i % 2, i // 2, i), num_keys=2)), integers(4, 7)),
    "NaN": (lambda x: (jnp.max(x), jnp.min(x), jnp.maximum(x, 0), jnp.argmax(x), jnp.argmin(x), jnp.sort(x)), WITH_NAN),
    "whether there is NaN": (lambda x: tuple(numerics.has_nan(y) for y in (x, x[:4], x[2:3], x[0], 2 * x, jnp.tile(x, 64).reshape(4, 80))), WITH_NAN),
    "infinities are no NaN": (lambda x: (numerics.has_nan(x[:4]), numerics.has_nan(x)), EXTREMES),
    "products of many terms": (
        lambda x, y: (jnp.dot(x, y, precision="highest"), x[0] @ y, x @ y[:, 0], x[1] @ y[:, 2], jnp.einsum("ki,kj->kij", x, x)),
        floats(3, 11), floats(11, 21),
    ),
    "products of stacks": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), floats(2, 3, 9), floats(2, 9, 10)),
    "NaN and ties": (lambda x: (xla.first_best(x), xla.first_best(x, x < 1), lax.top_k(x, 3)), WITH_NAN),
    "ties by an order": (lambda x, i: (xla.first_best(x, None, i), xla.first_best(x, x < 1, i)), TIED, ORDERS),
    "ties of stacks": (lambda x, i: xla.first_best(jnp.stack([x, -x]), None, jnp.stack([i, i])), TIED, ORDERS),
    "extremes": (lambda x: (x.astype(jnp.int32), x.astype(jnp.uint32), jnp.isfinite(x), jnp.sign(x), jnp.abs(x)), EXTREMES),
    "order of all floats": (lambda x: jnp.searchsorted(jnp.float32([-1.0, 0.0, 1.0]), x), EXTREMES),
    "order of whole numbers": (lambda i: jnp.searchsorted(jnp.int32([-7, 0, 31]), i, side="right"), WHOLE),
    "integers at their ends": (lambda i, j: (i + j, i - j, i * j, -i, abs(i), lax.div(i, j), lax.rem(i, j)), WHOLE, WHOLE[::-1].copy()),
    "shifts": (lambda i, j: [shift(i, j) for shift in SHIFTS], WHOLE[3:], np.abs(WHOLE[-7:])),
    "scatter without places": (lambda x, i: (x.at[i + 3].add(1.0), x.at[i].min(0.0, mode="clip")), floats(4, 3), integers(4, 2)),
    "scatter of the array itself": (lambda x, i: x.at[i].set(x[::-1][:2]).at[0].add(x[1]), floats(4, 3), integers(4, 2)),
    "swap in a loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (x, 2 * x)), floats(3)),
    "a choice that hands on": (lambda x, p: lax.cond(p > 0, lambda y: y.at[1].set(0.0), lambda y: y, x), floats(4), floats()),
    "lengths of one": (lambda x, y: lax.mul(x, y), floats(3, 2), floats(3, 1)),
    "keys without draws": (lambda k: (jax.random.bits(k, (3,)), jax.random.uniform(k), jax.random.bernoulli(k, 0.3)), keys()),
    "singular values": (lambda x: jnp.linalg.norm(x, ord=2), floats(4, 3)),
    "a matrix without a root": (lambda x: jnp.linalg.cholesky(x - 5 * jnp.eye(3)), floats(3, 3)),
}  # fmt: skip
TAKEN = {name: case for name, case in (lane_cases.CASES | lane_cases.DIFFERENTIABLE).items() if name not in REFUSED} | MORE


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide"])
@pytest.mark.parametrize("name", TAKEN)
def test_the_c_of_a_function_equals_vmap(name, wide):
    fn, *args = TAKEN[name]
    theirs = jax.jit(jax.vmap(fn, in_axes=-1, out_axes=-1, axis_size=R))(*args)
    # Sums are taken in another order.
    assert_same(by_c(fn, *args, wide=wide), theirs)


def test_looking_for_nan_takes_no_maximum():
    look, *_ = emitted(numerics.has_nan, floats(9), wide=True)
    operations = operations_of(look.block)
    assert operations.count("ne") == 2 and "max" not in operations  # Of a number, and of what was found.
    one_by_one, *_ = emitted(numerics.has_nan, floats(9))
    assert "max" in operations_of(one_by_one.block)  # As it is written: on a GPU a loop of its own would need a stack.


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_c_is_named(name):
    fn, *args = lane_cases.CASES[name]
    with pytest.raises(Unsupported, match=REFUSED[name]):
        source_of_function(fn, *args)


def test_an_array_that_nobody_needs_any_more_is_written_in_place():
    """No copy of a long array in a loop that writes one element at a time."""

    def fill(x, i):
        return lax.fori_loop(0, 7, lambda t, c: c.at[(i + t) % 500].add(1.0), x)

    statements = statements_of(emitted(fill, floats(500), integers(500))[0].block)
    assert len([one for one in statements if isinstance(one, ir.Declare) and one.storage.size == 500]) == 1
    tests = [one.test for one in statements if isinstance(one, ir.Loop)]
    assert len([one for one in tests if one.operands[1].number == 500]) == 2  # It is read once and written once.
    assert_same(by_c(fill, floats(500), integers(500)), jax.vmap(fill, -1, -1)(floats(500), integers(500)))


def test_operations_on_arrays_of_one_shape_share_a_loop():
    block = emitted(lambda x, y: jnp.sum(jnp.exp(-x * y) + 3 * x), floats(50), floats(50))[0].block
    # Two that read, one that computes and sums.
    assert len([one for one in statements_of(block) if isinstance(one, ir.Loop)]) == 3


def log(x):
    """A logarithm in basic operations: a power of two, and a series of the rest."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    power, rest = (bits >> 23) - 127, lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F800000, jnp.float32)
    ratio = (rest - 1) / (rest + 1)
    terms = [ratio ** (2 * n + 1) / (2 * n + 1) for n in range(7)]
    return jnp.where(x > 0, power * jnp.float32(np.log(2)) + 2 * sum(terms), jnp.nan)


def whole_power(x, n):
    """By a loop whose length differs between runs."""
    return lax.fori_loop(jnp.int32(0), n.astype(jnp.int32), lambda _, total: total * x, jnp.float32(1))


NUMBER = jax.ShapeDtypeStruct((), jnp.float32)
DEFINED = {
    "log": jax.make_jaxpr(log)(NUMBER),
    "log1p": jax.make_jaxpr(lambda x: jnp.log(1 + x))(NUMBER),
    "pow": jax.make_jaxpr(whole_power)(NUMBER, NUMBER),
    "cumsum": jax.make_jaxpr(lambda x: x @ jnp.triu(jnp.ones((5, 5))))(jax.ShapeDtypeStruct((5,), jnp.float32)),
}


@pytest.fixture
def defined(monkeypatch):
    monkeypatch.setattr(arithmetic, "definition", lambda eqn: DEFINED.get(eqn.primitive.name))


def of_definitions(x, i):
    shared = jnp.log(jnp.sum(jnp.full(3, 2.0))) + jnp.log(jnp.sum(jnp.full(2, 2.0)))
    return jnp.log(x) + shared, jnp.sum(jnp.log1p(x)), jnp.cumsum(x), lax.pow(x, i.astype(jnp.float32))


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide"])
def test_an_operation_with_a_definition_is_a_function_that_is_written_once(wide, defined):
    """One of numbers is called; for several runs at once there is one of vectors, and one of what they share. Any other is written in line."""
    given = np.abs(floats(5)) + np.float32(0.1), integers(4, 5)
    emitter, *_ = emitted(of_definitions, *given, wide=wide)
    called = [name for name, *_ in emitter.functions]
    assert sorted(called) == ["log", "log", "log1p", "pow"] if wide else sorted(called) == ["log", "log1p", "pow"]
    assert operations_of(emitter.block).count("call") == 5 and "log" not in operations_of(emitter.block)
    assert_same(by_c(of_definitions, *given, wide=wide), jax.vmap(of_definitions, -1, -1)(*given), rtol=2e-5)


def test_a_gpu_has_fast_functions_of_its_own(defined):
    fast, *_ = emitted(of_definitions, np.abs(floats(5)), integers(4, 5), fast=True)
    assert not fast.functions and {"log", "log1p", "pow"} <= set(operations_of(fast.block))
    exact, fast = (source_of_function(lambda x: 1 / x, floats(5), fast=fast)[0].for_device() for fast in (False, True))
    assert "#define EXACT" in exact and "#define EXACT" not in fast
