"""One arithmetic: whatever a program is made of, each operation is rounded once, and sums have one order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import by_c
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from one_by_one import evaluated

from jaxroute.core import rounding
from jaxroute.core.batching.lanes import exactly, lanes
from jaxroute.core.quick import quick_jit
from jaxroute.engine.compiling import compile_lanes
from jaxroute.kernels import host

RUNS, MODELS = 37, 5
needs_compiler = pytest.mark.skipif(host.compiler(wide=True) is None, reason="there is no C++ compiler")


def protected(fn):
    """A function of words, which protect it, and of its arguments."""

    def call(words, *args):
        with rounding.protected(words):
            return fn(*args)

    return call


def compiled(fn, *args):
    """A function of `R` runs by a program of the engine."""
    words = np.arange(RUNS, dtype=np.uint32)
    return compile_lanes(jax.jit(protected(fn)).lower(words, *args), "cpu")(words, *args)


def by_lanes(fn, *args):
    return compiled(lanes(fn, RUNS), *args)


def by_reference(fn, *args):
    return compiled(jax.vmap(exactly(fn), in_axes=-1, out_axes=-1), *args)


def by_hand(fn, *args):
    """Run by run, operation by operation."""
    runs = [evaluated(fn, *(x[..., r] for x in args)) for r in range(RUNS)]
    return [np.stack(each, axis=-1) for each in zip(*runs, strict=True)]


def assert_same_bits(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = (np.where(np.isnan(x), 0, np.asarray(x)).view(np.int32) * ~np.isnan(np.asarray(x)) for x in (a, b))
        np.testing.assert_array_equal(a, b)


# Steps of a random program, on vectors `[K]` and numbers `[]`: each takes some of what there is, and adds a result.
UNARY = {
    "negative": lambda x: -x,
    "absolute": jnp.abs,
    "square": lambda x: x * x,
    "cube": lambda x: x**3,
    "root": lambda x: jnp.sqrt(jnp.abs(x)),
    "reciprocal root": lambda x: jax.lax.rsqrt(jnp.abs(x) + 1.0),
    "logarithm": lambda x: jnp.log(jnp.abs(x) + 0.5),
    "exponential": lambda x: jnp.exp(-jnp.abs(x)),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "sum": lambda x: jnp.sum(x),
    "mean": lambda x: jnp.mean(x),
    "product": lambda x: jnp.prod(x),
    "cumulative": lambda x: jnp.cumsum(jnp.atleast_1d(x))[: x.size].reshape(x.shape),
    "largest": lambda x: jnp.max(x),
    "least of zeros": lambda x: 1.0 / jnp.min(jnp.where(x > 0, 0.0, -0.0)),
    "sine": lambda x: jnp.sin(x) * jnp.cos(1e6 * x),
    "error function": jax.scipy.special.erf,
    "expm1": lambda x: jnp.expm1(-jnp.abs(x)),
    "power": lambda x: jnp.abs(x) ** 0.3,
    "digamma": lambda x: jax.scipy.special.digamma(jnp.abs(x) + 0.1),
    "quantile": lambda x: jax.scipy.special.ndtri(jax.nn.sigmoid(x)),
    "softmax": lambda x: jax.nn.softmax(jnp.atleast_1d(x)).reshape(x.shape),
    "pairs": lambda x: jnp.sum(jnp.atleast_1d(x)[:, None] * jnp.atleast_1d(x)[None, :], axis=1).reshape(x.shape),
}
BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "fused": lambda x, y: x * y + x,
    "difference of products": lambda x, y: x * x - y * y,
    "root of a ratio": lambda x, y: x / jnp.sqrt(jnp.abs(y) + 0.1),
    "ratio of ratios": lambda x, y: (x / y) / (y / 3.0),
    "chosen": lambda x, y: jnp.where(x > y, x * y, y) + x,
    "maximum": jnp.maximum,
    "dot": lambda x, y: jnp.dot(jnp.broadcast_to(x, (MODELS,)), jnp.broadcast_to(y, (MODELS,))),
}
CONSTANT = {
    "plus": lambda x, c: x + c,
    "minus": lambda x, c: c - x,
    "times": lambda x, c: x * c,
    "over": lambda x, c: x / c,
    "under": lambda x, c: c / x,
    "there and back": lambda x, c: (x + c) - c,
    "complement": lambda x, c: 1.0 - (1.0 - x * c),
}
constants = st.sampled_from([0.1, 0.3, 1.0, 1.7, 3.0, 10.0, 1e-3])
place = st.integers(0, 100)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), place),
        st.tuples(st.sampled_from(sorted(BINARY)), place, place),
        st.tuples(st.sampled_from(sorted(CONSTANT)), place, constants),
    ),
    min_size=3,
    max_size=14,
)


def program(steps):
    """The function of a vector, two numbers and a table that steps make."""
    table = np.linspace(0.2, 3.1, MODELS).astype(np.float32)

    def fn(x, a, b):
        values = [x, a, b, jnp.asarray(table), jnp.float32(0.7)]
        for name, first, *rest in steps:
            value = values[first % len(values)]
            if name in UNARY:
                values.append(UNARY[name](value))
            elif name in BINARY:
                values.append(BINARY[name](value, values[rest[0] % len(values)]))
            else:
                values.append(CONSTANT[name](value, np.float32(rest[0])))
        return values[5:]

    return fn


def inputs(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*shape, RUNS)).astype(np.float32) for shape in ((MODELS,), (), ())]


def check_program(steps, seed):
    fn, args = program(steps), inputs(seed)
    right = by_hand(fn, *args)
    assert_same_bits(by_lanes(fn, *args), right)
    assert_same_bits(by_reference(fn, *args), right)
    if host.compiler(wide=True):
        assert_same_bits(by_c(fn, *args, wide=True), right)
        assert_same_bits(by_c(fn, *args, wide=False), right)


SETTINGS = settings(deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@settings(SETTINGS, max_examples=6)
@given(steps, st.integers(0, 10))
def test_random_programs_have_the_bits_of_one_operation_at_a_time(steps, seed):
    check_program(steps, seed)


@pytest.mark.slow
@settings(SETTINGS, max_examples=300)
@given(steps, st.integers(0, 1000))
def test_many_random_programs_have_the_bits_of_one_operation_at_a_time(steps, seed):
    check_program(steps, seed)


@pytest.mark.parametrize("name", sorted({*UNARY, *BINARY, *CONSTANT}))
def test_each_step_has_the_bits_of_one_operation_at_a_time(name):
    """Each of them on vectors and on numbers, twice, so that the first result is an operand."""
    rest = {"0.3": 0.3}.values() if name in CONSTANT else [1] if name in BINARY else []
    later = list(rest) if name in CONSTANT else [0] if name in BINARY else []
    check_program([(name, 0, *rest), (name, 5, *rest), (name, 1, *rest), (name, 7, *later), (name, 3, *rest)], 3)


LONG = 1 << 14
ACROSS = ("sum", "mean", "product", "cumulative", "largest", "softmax", "pairs")


@pytest.mark.parametrize("name", [one for one in sorted(UNARY) if one not in ACROSS])
def test_programs_without_loops_have_the_bits_of_one_operation_at_a_time(name):
    """Of many numbers, whatever XLA's options: a compiler that knows what protects them changes few of them."""
    fn, x = UNARY[name], np.random.default_rng(0).normal(0, 2, LONG).astype(np.float32)
    right = evaluated(fn, x)
    for one in (exactly(fn), lanes(fn, LONG)):
        assert_same_bits(compiled(one, x), right)
        assert_same_bits(jax.jit(protected(one))(np.zeros(1, np.uint32), x), right)
    assert_same_bits(quick_jit(fn)(x), right)
    assert_same_bits(quick_jit(fn, often=True)(x), right)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 200, 4096, 4161])
def test_sums_and_products_of_many_terms(count):
    """Blocks of 64, then their results, then what is left: by each way to run."""
    x = np.random.default_rng(count).uniform(0.9, 1.1, (count, 3, RUNS)).astype(np.float32)

    def fn(x):
        whole = jnp.arange(3 * count).reshape(count, 3)
        picked = jnp.sum(jnp.where(jnp.arange(count) == count // 2, x[:, 0], 0.0))
        return jnp.sum(x), jnp.sum(x, axis=0), jnp.prod(x, axis=0), jnp.mean(x[:, 0]), picked, jnp.sum(whole, axis=0)

    right = [np.stack(each, axis=-1) for each in zip(*(evaluated(fn, x[..., i]) for i in range(3)), strict=True)]
    found = [by_lanes(fn, x)]
    if host.compiler(wide=True) is not None:
        found += [by_c(fn, x), by_c(fn, x, wide=True)]
    for one in found:
        for ours, theirs in zip(one, right, strict=True):
            np.testing.assert_array_equal(np.asarray(ours)[..., :3], theirs)
    np.testing.assert_allclose(found[0][0], x.sum(axis=(0, 1), dtype=np.float64), rtol=1e-6)


def test_a_mean_of_many_equal_numbers():
    """One after the other, 20,000 terms would end in .35006."""
    np.testing.assert_allclose(quick_jit(jnp.mean)(np.full(20_000, 0.35, np.float32)), 0.35, rtol=3e-6)


def test_a_branch_that_is_mapped_divides():
    """What is divided by is the same in all runs there, and JAX broadcasts it; see `rounding`."""
    x, y, takes = np.random.default_rng(0).normal(0, 2, (3, 3, LONG)).astype(np.float32)

    def fn(x, y, takes):
        return jax.lax.cond(takes[0] > 0, lambda x, y: jnp.mean(x - y), lambda x, y: x[0] / 3, x, y)

    right = np.where(takes[0] > 0, ((x - y)[0] + (x - y)[1] + (x - y)[2]) / np.float32(3), x[0] / np.float32(3))
    for one in (lanes(fn, LONG), jax.vmap(exactly(fn), in_axes=-1, out_axes=-1)):
        np.testing.assert_array_equal(compiled(one, x, y, takes), right)


def test_a_sum_that_several_loops_read_is_computed_once():
    def consumers(table, x):
        sums = table @ x
        return [jnp.max(jnp.where(sums[:, i] > 0.5, sums[:, 0] / sums[:, i], -1.0)) for i in range(1, 4)]

    program = jax.jit(protected(lanes(consumers, RUNS)))
    lowered = program.lower(jnp.zeros(RUNS, jnp.uint32), jnp.ones((20, 6, RUNS)), jnp.ones((6, 4, RUNS)))
    # Six products; 18 if each of three loops computes them again.
    assert compile_lanes(lowered, "cpu").as_text().count(" multiply(") < 12
