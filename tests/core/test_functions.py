"""Definitions of elementary functions against float64 and mpmath, operation by operation; never under `jit`, which contracts them on a CPU."""

import itertools
import zlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from scipy import special

from jaxroute.core.functions import DEFINITIONS

f32 = np.float32
INF, NAN, LEAST, LARGEST = f32(np.inf), f32(np.nan), f32(2.0**-126), np.finfo(f32).max
ENDS = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 100, -100]
SUBNORMAL = f32([1e-40, -1e-40, 1.1754942e-38, -1.1754942e-38, 1e-45, -1e-45])


def within(domain, function, elsewhere):
    """SciPy's function where it has values; elsewhere it takes microseconds for each."""

    def complete(x):
        y, inside = np.full(x.shape, elsewhere), domain(x)
        y[inside] = function(x[inside])
        return y

    return complete


def no_pole(x):
    return (x > 0) | (np.floor(x) < x)


def erf_inv(x):
    return np.copysign(np.where(np.abs(x) == 1, np.inf, within(lambda x: np.abs(x) < 1, special.erfinv, np.nan)(x)), x)


def lgamma(x):
    return np.where(np.isnan(x), x, within(no_pole, special.gammaln, np.inf)(x))


def bessel_i0e(x):
    return np.where(np.isinf(x), 0.0, special.i0e(x))


def bessel_i1e(x):
    return np.copysign(np.where(np.isinf(x), 0.0, special.i1e(np.abs(x))), x)


# In float64, the largest error in ulp (that of the docstring), the argument that has it, and points around which arguments are dense.
CASES = {
    "log": (np.log, 0.84, 1.3335307836532593, (2 / 3, 1, 4 / 3, LARGEST)),
    "exp": (np.exp, 1.01, 59.310489654541016, (0.34657359, 87.33654, 88.72283)),
    "exp2": (np.exp2, 1.09, 0.5001106262207031, (0.5, 126, 128)),
    "log1p": (np.log1p, 1.59, 0.3335307538509369, (1 / 3, 1, LARGEST)),
    "expm1": (np.expm1, 1.65, 0.3860994875431061, (2.0**-25, 0.34657359, 20, 88.72283)),
    "tanh": (np.tanh, 2.01, 0.2031034529209137, (0.17328679, 0.3, 10)),
    "logistic": (special.expit, 2.49, -16.635704040527344, (0, 87.33654, 88.72283)),
    "sin": (np.sin, 1.15, 3.468804173066928e37, (2.0**-12, np.pi / 4, np.pi / 2, np.pi, 3 * np.pi, 710 * np.pi)),
    "cos": (np.cos, 1.12, 291623600128.0, (np.pi / 4, np.pi / 2, np.pi, 1.5 * np.pi, 709.5 * np.pi)),
    "tan": (np.tan, 1.59, 5.293310715402325e30, (2.0**-13, np.pi / 4, np.pi / 2, np.pi, 1.5 * np.pi, 709.5 * np.pi)),
    "asin": (np.arcsin, 2.03, 0.8412723541259766, (0.5, 1)),
    "acos": (np.arccos, 1.16, 0.5413200259208679, (0.5, 1)),
    "atan": (np.arctan, 0.86, 0.7077754735946655, (14 / 32, 23 / 32, 39 / 32, 78 / 32)),
    "sinh": (np.sinh, 2.36, 0.12399138510227203, (2.0**-12, 89.415985)),
    "cosh": (np.cosh, 1.45, 4.56349515914917, (0.34657359, 89.415985)),
    "asinh": (np.arcsinh, 1.96, 0.31353676319122314, (1e8, 1.8446743e19)),
    "acosh": (np.arccosh, 2.42, 1.007729172706604, (1, 1e8)),
    "atanh": (np.arctanh, 2.14, 0.15711596608161926, (2.0**-12, 1)),
    "erf": (special.erf, 1.21, 0.9023820757865906, (0.9, 4)),
    "erfc": (special.erfc, 3.89, 1.7113126516342163, (0.8125, 9.1946, 9.2)),
    "erf_inv": (erf_inv, 3.76, 0.2717893719673157, (0.99662536, 1)),
    "lgamma": (lgamma, 13.2, -7.999972343444824, (2.0**-20, 1, 2, 3, 4, 2.457024, 2.0**23, 4.0850034e36)),
    "digamma": (within(no_pole, special.digamma, np.nan), 24.0, -1047661.9375, (1, 1.4616321, 2, 3, 0.50408304, 2.0**23)),
    "cbrt": (np.cbrt, 0.83, 1.1893056886165193e-38, (1, LARGEST)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5, 1.1827658286835154e-38, (1, LARGEST)),
    "bessel_i0e": (bessel_i0e, 4.5, 5.203802108764648, (6,)),
    "bessel_i1e": (bessel_i1e, 4.14, 4.744593620300293, (6,)),
}
PAIRS = {"pow": (np.power, 0.8), "atan2": (np.arctan2, 1.5)}
# Primitives since jax 0.12: in float64, and the arguments after the first.
NEWER = {
    "log2": (np.log2, ()),
    "one_minus_square": (lambda x: 1 - x * x, ()),
    "polynomial": (lambda x, *c: np.polyval(c[::-1], x), (0.5, -2.0, 3.0)),
}
# Functions whose error is absolute near their zeros: in ulp of 1.
ABSOLUTE = ("lgamma", "digamma")
# Those that state a smaller error for positive arguments.
POSITIVE = {"lgamma": 3.05, "digamma": 1.65}

CAST = {"bitcast_convert_type", "convert_element_type"}
COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
ALLOWED = {
    "float32": CAST | COMPARISONS | {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "floor", "round"},
    "int32": CAST | COMPARISONS | {"add", "sub", "neg", "and", "or", "xor", "shift_left", "shift_right_arithmetic"},
    "uint32": CAST | COMPARISONS | {"add", "sub", "mul", "and", "or", "shift_left", "shift_right_logical"},
    "bool": {"and", "or", "not", "select_n"},
}
AS_NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt,
    "floor": np.floor, "round": np.rint, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift, "shift_right_logical": np.right_shift,
}  # fmt: skip


def traced(name, **parameters):
    """The definition of a function of scalars as a jaxpr."""
    scalars = [jnp.float32(1)] * (2 if name in PAIRS else 1)
    return jax.make_jaxpr(lambda *x: DEFINITIONS[name](*x, **parameters))(*scalars).jaxpr


def inner(eqn):
    """What a call or the branches of a choice compute; nothing of an operation."""
    return [closed.jaxpr for closed in eqn.params.get("branches", [eqn.params["jaxpr"]] if "jaxpr" in eqn.params else [])]


def equations(jaxpr):
    """Operations, those of calls included; without the number of a branch."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "convert_element_type" and eqn.invars[0].aval.dtype == bool:
            assert any(other.primitive.name == "cond" and other.invars[0] is eqn.outvars[0] for other in jaxpr.eqns)
        elif inner(eqn):
            yield from itertools.chain.from_iterable(map(equations, inner(eqn)))
        else:
            yield eqn


def replayed(jaxpr, *arrays):
    """A jaxpr of scalars, applied to arrays by NumPy, whose operations are rounded once each and flush nothing."""
    known = dict(zip(jaxpr.invars, arrays, strict=True))

    def read(v):
        return np.dtype(v.aval.dtype).type(v.val) if hasattr(v, "val") else known[v]

    last = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if not hasattr(v, "val")}
    for i, eqn in enumerate(jaxpr.eqns):
        name, operands, out = eqn.primitive.name, list(map(read, eqn.invars)), eqn.outvars[0]
        if name == "cond":
            pairs = zip(*(replayed(branch, *operands[1:]) for branch in inner(eqn)), strict=True)
            known.update(zip(eqn.outvars, (np.where(operands[0] > 0, b, a) for a, b in pairs), strict=True))
        elif inner(eqn):
            known.update(zip(eqn.outvars, replayed(*inner(eqn), *operands), strict=True))
        elif name == "select_n":
            known[out] = np.where(operands[0], operands[2], operands[1])
        elif name == "bitcast_convert_type":
            known[out] = operands[0].view(out.aval.dtype)
        elif name == "convert_element_type":
            known[out] = operands[0].astype(out.aval.dtype)
        else:
            known[out] = AS_NUMPY[name](*operands)
        for v in eqn.invars:
            if not hasattr(v, "val") and last[v] == i and v not in jaxpr.outvars:
                known.pop(v, None)
    return list(map(read, jaxpr.outvars))


def by_numpy(name, *arrays, **parameters):
    with np.errstate(all="ignore"):
        return replayed(traced(name, **parameters), *arrays)[0]


def eagerly(name, *arrays, **parameters):
    """Each operation a program of its own, subnormal numbers flushed."""
    return np.asarray(DEFINITIONS[name](*map(jnp.asarray, arrays), **parameters))


def errors(found, true, absolute=False):
    """In units in the last place of the true value; infinity is 2^128, and what is below the least normal number may be zero."""
    size = np.clip(np.abs(true), 1.0 if absolute else LEAST, LARGEST)
    unit = (size.view(np.int64) & 0x7FF0000000000000).view(np.float64) * 2.0**-23
    found, limit = found.astype(np.float64), 2.0**128
    error = np.abs(np.clip(found, -limit, limit) - np.clip(true, -limit, limit)) / unit
    vanishing = (np.abs(true) < LEAST * (1 + 2.0**-22)) & (np.abs(found) <= LEAST)
    return np.where(np.isnan(found) != np.isnan(true), np.inf, np.where(np.isnan(true) | vanishing, 0.0, error))


def error_of(name, found, *arrays):
    function = CASES[name][0] if name in CASES else PAIRS[name][0]
    with np.errstate(all="ignore"):
        return errors(found, function(*(x.astype(np.float64) for x in arrays)), name in ABSOLUTE)


def normal(x):
    """Zeros, normal numbers and infinities among numbers."""
    return x[(np.abs(x) >= LEAST) | (x == 0)]


def around(points, count):
    """Neighbours of points, `count` on each side, of both signs."""
    near = (f32(points).view(np.int32)[:, None] + np.arange(-count, count + 1, dtype=np.int32)).ravel().view(f32)
    return np.concatenate([near, -near])


def arguments(name):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    _, _, worst, points = CASES[name]
    everywhere = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(f32)
    moderate = f32(rng.choice([-1, 1], 100_000) * np.exp2(rng.uniform(-12, 8, 100_000)))
    near = around([LEAST, worst, *map(abs, points)], 2000)
    return normal(np.concatenate([everywhere, moderate, near, f32([0.0, -0.0, np.inf, -np.inf])]))


def pairs(name, count):
    """Arguments of both signs whose results are in range."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    spread = 10.0 ** rng.uniform(-6, 1.5, count)
    if name == "atan2":
        x = np.exp2(rng.uniform(-60, 60, count))
        pair = x, x * np.exp2(rng.normal(0, 1, count) * spread).clip(2.0**-60, 2.0**60)
        return [f32(v * rng.choice([-1, 1], count)) for v in pair]
    x = np.exp(rng.normal(0, 1, count) * spread).clip(LEAST, LARGEST).astype(f32)
    logarithm = np.log2(x.astype(np.float64))
    some, few = rng.random(count) < 0.3, rng.normal(0, 3, count)
    return [x, f32(np.where(some, few, rng.uniform(-126, 128, count) / np.where(logarithm == 0, 1, logarithm)))]


def assert_same(found, expected, what=""):
    """The same numbers to a relative 1e-5, and the same NaN, infinities and zeros with their signs."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=what)
    special_ones = (expected == 0) | np.isinf(expected)
    np.testing.assert_array_equal(found[special_ones], expected[special_ones], what)
    np.testing.assert_array_equal(np.signbit(found[special_ones]), np.signbit(expected[special_ones]), what)


def flushed(x):
    return np.where(np.abs(x) < LEAST, np.copysign(f32(0), x), x)


@pytest.mark.parametrize("name", [*CASES, *PAIRS, "integer_pow"])
def test_a_definition_has_operations_only_that_are_rounded_once(name):
    for eqn in equations(traced(name, **({"y": -5} if name == "integer_pow" else {}))):
        operation, kind = eqn.primitive.name, eqn.invars[0].aval.dtype.name
        assert operation in ALLOWED[kind], f"{operation} of {kind}"
        assert all(v.aval.shape == () for v in (*eqn.invars, *eqn.outvars))
        assert eqn.outvars[0].aval.dtype in ("float32", "int32", "uint32", "bool")
        if operation == "round":
            assert eqn.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN


def test_every_definition_is_named_after_a_primitive_and_looked_at_here():
    assert set(DEFINITIONS) == {*CASES, *PAIRS, *NEWER, "integer_pow"}
    for name in DEFINITIONS.keys() - NEWER.keys():
        assert getattr(lax, f"{name}_p").name == name


@pytest.mark.parametrize("name", NEWER)
def test_primitives_of_newer_versions_of_jax(name):
    true, more = NEWER[name]
    x = np.random.default_rng(0).uniform(0.1, 3, 1000).astype(np.float32)
    np.testing.assert_allclose(eagerly(name, x, *map(f32, more)), true(x.astype(float), *more), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_errors_are_as_small_as_stated(name):
    x = arguments(name)
    found = eagerly(name, x)
    assert found.dtype == np.float32 and found.shape == x.shape
    error = error_of(name, found, x)
    assert error.max() <= CASES[name][1], x[error.argmax()]
    assert f"{CASES[name][1]:g} ulp" in (DEFINITIONS[name].__doc__ or "")


@pytest.mark.parametrize("name", POSITIVE)
def test_errors_are_smaller_for_positive_arguments(name):
    x = np.concatenate([np.abs(arguments(name)), np.linspace(1e-3, 16, 300_000, dtype=np.float32)])
    error = error_of(name, eagerly(name, x), x)
    assert error.max() <= POSITIVE[name], x[error.argmax()]
    assert f"{POSITIVE[name]:g} for x > 0" in (DEFINITIONS[name].__doc__ or "")


@pytest.mark.parametrize("name", PAIRS)
def test_errors_of_functions_of_two_arguments_are_as_small_as_stated(name):
    x, y = pairs(name, 1 << 19)
    error = error_of(name, eagerly(name, x, y), x, y)
    assert error.max() <= PAIRS[name][1], (x[error.argmax()], y[error.argmax()])
    assert f"{PAIRS[name][1]:g} ulp" in (DEFINITIONS[name].__doc__ or "")


@pytest.mark.parametrize("name", [*CASES, *PAIRS])
def test_no_result_depends_on_whether_subnormal_numbers_are_flushed(name):
    """JAX flushes them on a CPU, NumPy does not: the same bits, but for results that are subnormal."""
    arrays = [arguments(name)] if name in CASES else pairs(name, 1 << 17)
    one, other = flushed(eagerly(name, *arrays)), flushed(by_numpy(name, *arrays))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.signbit(one[one == 0]), np.signbit(other[one == 0]))


@pytest.mark.parametrize("name", CASES)
def test_special_values_are_those_of_ieee(name):
    x = f32([*ENDS, 1e4, -1e4, LARGEST, -LARGEST, LEAST, -LEAST])
    with np.errstate(all="ignore"):
        true = CASES[name][0](x.astype(np.float64)).astype(np.float32)
    for found in (eagerly(name, x), by_numpy(name, x)):
        assert_same(flushed(found), flushed(true))


@pytest.mark.parametrize("name", CASES)
def test_subnormal_numbers_are_zero(name):
    """Where nothing flushes them a result may be accurate instead."""
    expected = eagerly(name, np.copysign(f32(0), SUBNORMAL))
    assert_same(flushed(eagerly(name, SUBNORMAL)), expected)
    found = flushed(by_numpy(name, SUBNORMAL))
    accurate = error_of(name, found, SUBNORMAL) <= CASES[name][1]
    assert_same(np.where(accurate, expected, found), expected)


@pytest.mark.parametrize("name", CASES)
def test_special_values_are_those_of_xla(name):
    x = f32(ENDS)[2 if name == "digamma" else 0 :]  # At zero it is NaN, and -inf since jax 0.12.
    assert_same(eagerly(name, x), np.asarray(getattr(lax, name)(x)))


@pytest.mark.parametrize("name", PAIRS)
def test_special_values_of_two_arguments(name):
    """Those of C, and of XLA where no argument is subnormal."""
    ends = [0, 1e-40, LEAST, 0.5, 1, 1.5, 2, 3, 4, 5, 2.0**24 - 1, 2.0**24, 1e30, LARGEST, np.inf]
    x, y = np.array(list(itertools.product([*ends, *(-v for v in ends), np.nan], repeat=2)), np.float32).T
    with np.errstate(all="ignore"):
        true = flushed(PAIRS[name][0](*(flushed(v).astype(np.float64) for v in (x, y))).astype(np.float32))
    assert_same(flushed(eagerly(name, x, y)), true)
    usual = (x == flushed(x)) & (y == flushed(y))
    x, y, true = x[usual], y[usual], true[usual]
    assert_same(flushed(by_numpy(name, x, y)), true)
    assert_same(flushed(np.asarray(getattr(lax, name)(x, y))), true)


@pytest.mark.parametrize("y", [0, 1, 2, 3, 5, 8, 31, -1, -2, -7])
def test_integer_powers(y):
    x = np.concatenate([np.linspace(-4, 4, 10_001, dtype=np.float32), f32([*ENDS[:5], 1e30, -1e-30])])
    found = eagerly("integer_pow", x, y=y)
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.float64), float(y))
    in_range = (true == 0) | (np.abs(true) >= LEAST)
    assert errors(found, true)[in_range].max() <= abs(y)
    other = np.broadcast_to(by_numpy("integer_pow", x, y=y), x.shape)
    np.testing.assert_array_equal(flushed(found)[in_range], other[in_range])
    np.testing.assert_array_equal(np.signbit(found[true == 0]), np.signbit(true[true == 0]))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_array_has_the_numbers_of_its_elements(name):
    parameters = {"y": 3} if name == "integer_pow" else {}
    x = f32(np.random.default_rng(1).uniform(0.1, 0.9, (2, 3, 2)))
    arrays = [x, x[::-1].copy()] if name in PAIRS or name == "polynomial" else [x]
    whole = eagerly(name, *arrays, **parameters)
    assert whole.shape == x.shape
    for place in np.ndindex(x.shape):
        alone = eagerly(name, *(v[place] for v in arrays), **parameters)
        assert alone.shape == ()
        np.testing.assert_array_equal(alone, whole[place])


def test_quotients_are_ieee_where_each_operation_is_a_program():
    """Except by a constant, by whose reciprocal XLA multiplies: no definition divides by one."""
    x, y = f32(np.random.default_rng(0).uniform(1, 2, (2, 10_000)))
    np.testing.assert_array_equal(jnp.asarray(x) / jnp.asarray(y), x / y)
    np.testing.assert_array_equal(f32(1) / jnp.sqrt(jnp.asarray(x)), f32(1) / np.sqrt(x))
    for name in (*CASES, *PAIRS):
        assert not any(e.primitive.name == "div" and hasattr(e.invars[1], "val") for e in equations(traced(name)))


@pytest.mark.parametrize("name", CASES)
def test_the_worst_argument_against_forty_digits(name):
    """The stated error is that of one argument at least, to a tenth."""
    others = {
        "log1p": lambda x: mpmath.log(1 + x),
        "exp2": lambda x: mpmath.mpf(2) ** x,
        "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
        "erf_inv": mpmath.erfinv,
        "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
        "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
        "bessel_i0e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
        "bessel_i1e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
    }
    _, stated, worst, _ = CASES[name]
    worst = f32(worst)
    with mpmath.workdps(40):
        true = others.get(name, getattr(mpmath, name, None))(mpmath.mpf(float(worst)))
        unit = mpmath.mpf(2) ** (int(mpmath.floor(mpmath.log(max(abs(true), 1) if name in ABSOLUTE else abs(true), 2))) - 23)
        error = float(abs(mpmath.mpf(float(eagerly(name, worst))) - true) / unit)
    assert 0.9 * stated <= error <= stated


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_errors_over_all_arguments(name):
    """All 2^32 bit patterns but NaN and subnormal numbers, by NumPy."""
    jaxpr, stated = traced(name), CASES[name][1]
    size = 1 << 16
    for start in range(0, 1 << 32, size):
        x = normal(np.arange(start, start + size, dtype=np.uint32).view(f32))
        if not x.size:
            continue
        with np.errstate(all="ignore"):
            (found,) = replayed(jaxpr, x)
        error = error_of(name, found, x)
        assert error.max() <= stated, x[error.argmax()]
