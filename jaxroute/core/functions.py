"""Elementary float32 functions in basic operations: the same bits on every processor and from every compiler.

A definition uses `+ - * /`, square root, rounding to integers, comparison, selection and bit operations, each rounded at most once,
in the order written. A compiler of these functions must not contract, reassociate or fold them. Integers wrap around.

- Subnormal arguments and results count as zero. No other result depends on whether the processor flushes them.
- NaN gives NaN. At zeros, infinities and ends of domains `pow` and `atan2` are those of IEEE 754 and C, the others those of XLA.
- Errors are in units in the last place (ulp) of the true value: the largest over all float32 arguments unless stated otherwise;
  `tests/core/test_functions.py` lists the worst arguments. Coefficients without a source are minimax fits, rounded to float32.
- Helpers take and return an exponent n as the integer `k = n * 2^23`: n at its place in the bits of a float32.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array
f32 = np.float32

INF, NAN, LEAST = f32(np.inf), f32(np.nan), f32(2.0**-126)  # The least normal number.
LN2 = f32(np.log(2))
LN2_HIGH, LN2_LOW = f32(0.693145751953125), f32(1.42860682e-06)  # log(2): its first 15 bits, and the remainder.
LN2_FIRST, LN2_REST = f32(0.693115234375), f32(3.19461833e-05)  # log(2): its first 12 bits, and the remainder.
PI, PI_LOW = f32(np.pi), f32(np.pi - float(f32(np.pi)))
HALF_PI, HALF_PI_LOW = f32(np.pi / 2), f32(np.pi / 2 - float(f32(np.pi / 2)))
SHIFT = f32(1.5 * 2**23)  # The last bits of x + SHIFT are x, rounded to an integer.


def rarely(condition: Array, costly: Callable[[], Any], cheap: Any) -> Any:
    """Returns `costly()` where `condition` holds, else `cheap`. For a scalar `condition` that is False, `costly` is not computed."""
    if not condition.ndim:
        return lax.cond(condition, costly, lambda: cheap)
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), costly(), cheap)


def polynomial(x: Array, coefficients: Sequence[float]) -> Any:
    """Evaluates a polynomial at `x` by Horner's rule. The coefficients begin with that of the highest power."""
    total: Any = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + f32(coefficient)
    return total


def bits(x: Array) -> Array:
    """Returns the bits of a float32 as an int32."""
    return lax.bitcast_convert_type(x, jnp.int32)


def number(x: Array) -> Array:
    """Returns the float32 that has the same bits as an int32."""
    return lax.bitcast_convert_type(x, jnp.float32)


def with_sign(magnitude: Array, x: Array) -> Array:
    """Returns `magnitude`, which is not negative, with the sign of `x`."""
    return number(bits(magnitude) | (bits(x) & -0x80000000))


def upper(x: Array) -> Array:
    """Returns `x` cut to the first 12 of its 24 significant bits; products of two such numbers are exact."""
    return number(bits(x) & -0x1000)


def nearest(x: Array) -> Array:
    """Rounds to the nearest integer, ties to even."""
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def scaled(x: Array, k: Array) -> Array:
    """Returns `x * 2^(k / 2^23)` if both `x` and the result are normal numbers; `k` is a multiple of 2^23."""
    return number(bits(x) + k)


def power_of_two(k: Array, minus: int = 0) -> Array:
    """Returns `2^(k / 2^23 - minus)` if it is a normal number; `k` is a multiple of 2^23."""
    return number(k + ((127 - minus) << 23))


# Logarithms

LOG = (-0.12882076, 0.13988008, -0.12186583, 0.14005138, -0.1668031, 0.20010452, -0.24999802, 0.33333215)


def exponent(x: Array) -> Array:
    """Returns `k = -n * 2^23` for a positive normal x: n is the exponent for which `x * 2^-n`, or `scaled(x, k)`, is in [2/3, 4/3)."""
    return (0x3FAAAAAA - bits(x)) & -0x800000


def log_from(m: Array, k: Array) -> Array:
    """Returns `log((1 + m) * 2^(-k / 2^23))` for 1 + m in [2/3, 4/3), by the series of Cephes' `logf`. It is -0 for m = -0 and k = 0."""
    square, n = m * m, k.astype(jnp.float32)
    y = (polynomial(m, LOG) * m) * square - n * f32(LN2_LOW * 2.0**-23)
    return (m + (y - f32(0.5) * square)) - n * f32(LN2_HIGH * 2.0**-23)


def log_of_normal(x: Array) -> Array:
    """Returns the natural logarithm of a positive normal number."""
    k = exponent(x)
    return log_from(scaled(x, k) - f32(1), k)


def log(x: Array) -> Array:
    """Natural logarithm, with an error of at most 0.84 ulp."""
    y = jnp.where(x < LEAST, jnp.where(x <= -LEAST, NAN, -INF), log_of_normal(x))
    return jnp.where(x < INF, y, x)


def log1p(x: Array) -> Array:
    """log(1 + x), with an error of at most 1.59 ulp. It scales x and 1 separately, so that the rounding of 1 + x causes no error."""
    k = exponent(x + f32(1))
    m = number(bits(x) + k) - (f32(1) - f32(0.25) * number(0x40800000 + k))
    y = jnp.where(x > f32(-1), log_from(m, k), jnp.where(x == f32(-1), -INF, NAN))
    return jnp.where(x < INF, y, x)


# Exponentials

EXP = (0.0013941878, 0.008368679, 0.04166639, 0.16666521, 0.5)
EXP2 = (0.00015462883, 0.0013390984, 0.0096180625, 0.055503596, 0.2402265, 0.6931472)
EXP_LEAST, EXP_MOST = f32(-87.33654), f32(88.72283)  # Below or above, exp is less than the least normal number or infinite.


def exponential(x: Array, low: Array | None = None) -> tuple[Array, Array]:
    """Returns r in [-0.3, 0.42] and k with `exp(x + low) = (1 + r) * 2^(k / 2^23)`, as in Cephes' `expf`. `low`: small correction of x, or None."""
    shifted = x * f32(1 / np.log(2)) + SHIFT
    n = shifted - SHIFT
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    if low is not None:
        r = r + low
    return polynomial(r, EXP) * (r * r) + r, bits(shifted) << 23


def exp(x: Array) -> Array:
    """Exponential, with an error of at most 1.01 ulp."""
    r, k = exponential(x)
    return jnp.where(x <= EXP_MOST, jnp.where(x >= EXP_LEAST, scaled(r + f32(1), k), f32(0)), x * INF)


def exp2(x: Array) -> Array:
    """2^x, with an error of at most 1.09 ulp."""
    shifted = x + SHIFT
    r = x - (shifted - SHIFT)
    y = scaled(polynomial(r, EXP2) * r + f32(1), bits(shifted) << 23)
    return jnp.where(x < f32(128), jnp.where(x >= f32(-126), y, f32(0)), x * INF)


def expm1(x: Array) -> Array:
    """exp(x) - 1, with an error of at most 1.65 ulp."""
    r, k = exponential(x)
    half = power_of_two(k, minus=1)
    y = half * r + (half - f32(0.5))
    y = jnp.where(x <= EXP_MOST, jnp.where(x >= f32(-20), y + y, f32(-1)), x * INF)
    return jnp.where(jnp.abs(x) < f32(2.0**-25), x, y)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), with an error of at most 2.49 ulp."""
    return f32(1) / (exp(-x) + f32(1))


def tanh(x: Array) -> Array:
    """Hyperbolic tangent, with an error of at most 2.01 ulp: `h / (1 + h)` with `h = expm1(2|x|) / 2`, for small h as `h - h^2 / (1 + h)`."""
    a = jnp.abs(x)
    clipped = jnp.where(a > f32(10), f32(10), a)
    r, k = exponential(clipped + clipped)
    half = power_of_two(k, minus=1)
    h = half * r + (half - f32(0.5))
    y = h / (h + f32(1))
    return with_sign(jnp.where(a < f32(0.3), h - h * y, y), x)


def sinh(x: Array) -> Array:
    """Hyperbolic sine, with an error of at most 2.36 ulp: `h + h / (1 + 2h)` with `h = expm1(|x|) / 2`."""
    a = jnp.abs(x)
    r, k = exponential(a)
    quarter = power_of_two(k, minus=2)
    h = quarter * r + (quarter - f32(0.25))
    h = h + h
    y = h + h / ((h + h) + f32(1))
    return with_sign(jnp.where(a <= f32(89.415985), jnp.where(a < f32(2.0**-12), a, y), a * INF), x)


def cosh(x: Array) -> Array:
    """Hyperbolic cosine, with an error of at most 1.45 ulp."""
    a = jnp.abs(x)
    r, k = exponential(a)
    quarter = scaled(r + f32(1), k - (2 << 23))
    half = quarter + f32(0.0625) / quarter
    return jnp.where(a <= f32(89.415985), half + half, a * INF)


def asinh(x: Array) -> Array:
    """Inverse hyperbolic sine, with an error of at most 1.96 ulp: `log1p(|x| + x^2 / (1 + sqrt(1 + x^2)))`, as in FDLIBM."""
    a = jnp.abs(x)
    square, large = a * a, a > f32(1e8)
    y = log1p(jnp.where(large, a, a + square / (jnp.sqrt(square + f32(1)) + f32(1))))
    return with_sign(jnp.where(large, y + LN2, y), x)


def acosh(x: Array) -> Array:
    """Inverse hyperbolic cosine, with an error of at most 2.42 ulp: `log1p(t + sqrt(t^2 + 2t))` with t = x - 1."""
    t, large = x - f32(1), x > f32(1e8)
    y = log1p(jnp.where(large, t, t + jnp.sqrt(t * (t + f32(2)))))
    return jnp.where(x < f32(1), NAN, jnp.where(large, y + LN2, y))


def atanh(x: Array) -> Array:
    """Inverse hyperbolic tangent, with an error of at most 2.14 ulp: `log1p(2|x| / (1 - |x|)) / 2` with the sign of x."""
    a = jnp.abs(x)
    y = f32(0.5) * log1p((a + a) / (f32(1) - a))
    return with_sign(jnp.where(a < f32(2.0**-12), a, y), x)


# Powers

LOG2 = (0.35817638, 0.42787972, 0.6000059)


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x), with an error of at most 1.5 ulp."""
    return f32(1) / jnp.sqrt(x)


def cbrt(x: Array) -> Array:
    """Cube root, with an error of at most 0.83 ulp: two Halley steps; before each the estimate is rounded to 8 bits, so that its cube is exact."""
    a = jnp.abs(x)
    small = a < f32(1)
    a = a * jnp.where(small, f32(2.0**63), f32(2.0**-63))
    y = number((bits(a).astype(jnp.float32) * f32(1 / 3)).astype(jnp.int32) + 0x2A512CE3)
    for _ in range(2):
        y = number((bits(y) + 0x8000) & -0x10000)
        cube = y * y * y
        third = (a - cube) * f32(1 / 3)
        y = y + y * (third / (cube + third))
    y = with_sign(y * jnp.where(small, f32(2.0**-21), f32(2.0**21)), x)
    return jnp.where((a > f32(0)) & (a < INF), y, x)


def log2_in_two(x: Array) -> tuple[Array, Array]:
    """Returns log2(x) of a normal x > 0 as two summands, the first with 12 significant bits; the relative error is at most 2^-32 (FDLIBM `powf`)."""
    k = exponent(x)
    m = scaled(x, k)
    u, d = m - f32(1), m + f32(1)
    inverse = f32(1) / d
    # s = u / d and its square in two parts, log(m) = 2/3 s (3 + s^2 + r).
    s1, d1 = upper(u * inverse), upper(d)
    s2 = inverse * ((u - s1 * d1) - s1 * (m - (d1 - f32(1))))
    s = s1 + s2
    square1, square2 = s1 * s1, s2 * (s1 + s)
    square = square1 + square2
    r = polynomial(square, LOG2) * (square * square) + square2
    t1 = upper((square1 + f32(3)) + r)
    t2 = r - ((t1 - f32(3)) - square1)
    u, v = s1 * t1, s2 * t1 + t2 * s
    p1 = upper(u + v)
    p2 = v - (p1 - u)
    # times 2 / (3 log 2)
    u, v = p1 * f32(0.9619140625), p1 * f32(-0.00011736857) + p2 * f32(0.9617967)
    n = k.astype(jnp.float32) * f32(-(2.0**-23))
    high = upper((u + v) + n)
    return high, v - ((high - n) - u)


def power(x: Array, y: Array) -> Array:
    """x^y, with an error of at most 0.8 ulp over 2^24 random pairs whose result neither overflows nor underflows."""
    a = jnp.abs(x)
    high, low = log2_in_two(a)
    first, half = upper(y), y * f32(0.5)
    z1, z2 = first * high, (y - first) * high + y * low
    shifted = (z1 + z2) + SHIFT
    r = (z1 - (shifted - SHIFT)) + z2
    # 2^r = 1 + r log(2) + r^2 q(r); the rounding error of 1 plus the larger part of r log(2) is added to the remainder.
    start = upper(r)
    larger = start * LN2_FIRST
    rest = ((r - start) * LN2_FIRST + r * LN2_REST) + polynomial(r, EXP2[:-1]) * (r * r)
    total = larger + f32(1)
    magnitude = scaled(total + ((larger - (total - f32(1))) + rest), bits(shifted) << 23)
    rough = y * jnp.where(a < LEAST, -INF, jnp.where(a < INF, high, a))
    z = jnp.where(jnp.abs(rough) < f32(200), z1 + z2, rough)
    in_range = (z < f32(128)) | ((z == f32(128)) & (r < f32(0)))
    magnitude = jnp.where(in_range, jnp.where(z >= f32(-126), magnitude, f32(0)), z * INF)
    whole, odd = jnp.floor(y) == y, jnp.floor(half) != half
    signed = jnp.where((bits(x) < 0) & whole & odd, -magnitude, magnitude)
    signed = jnp.where((x <= -LEAST) & (x > -INF) & ~whole, NAN, signed)
    one = (x == f32(1)) | (jnp.abs(y) < LEAST) | ((x == f32(-1)) & (jnp.abs(y) == INF))
    return jnp.where(one, f32(1), signed)


def integer_pow(x: Array, *, y: int) -> Array:
    """Returns `x**y` for an integer `y` by repeated squaring. A negative `y` is computed as `1 / x**-y`. The error is at most `|y|` ulp."""
    if y == 0:
        return jnp.ones_like(x)
    count, total, square = abs(y), None, x
    while count:
        if count & 1:
            total = square if total is None else total * square
        count >>= 1
        if count:
            square = square * square
    assert total is not None
    return f32(1) / total if y < 0 else total


# Trigonometric functions

# Words of 32 bits: 0, and the first 224 bits of 2 / pi.
TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
HALF_PI_PARTS = (1.5703125, 0.0004837513, 7.5495336e-08, 2.563283e-12, 6.1232343e-17)
SIN = (-0.00019518276, 0.008332189, -0.16666655)
COS = (2.4430668e-05, -0.0013887301, 0.041666646)
TAN = (0.0043728817, 9.794697e-05, 0.010827618, 0.021286165, 0.054058917, 0.13332675, 0.3333335)
ASIN = (0.042158306, 0.024184778, 0.04546915, 0.074953094, 0.16666752)
ATAN = (-0.058256384, 0.104941085, -0.14230172, 0.19997782, -0.33333305)


def quadrant(x: Array) -> tuple[Array, Array, Array]:
    """Reduces an angle x by a multiple n of pi / 2 to at most pi / 4. Returns two numbers whose sum is the result, and an int32 equal to n modulo 4.

    Cody and Waite (1980): pi / 2 is a sum of 11-bit numbers, whose products with n are exact for `|x| <= 12,800`. `far_quadrant` reduces larger x.
    """
    shifted = x * f32(2 / np.pi) + SHIFT
    n = shifted - SHIFT
    first, second, third, fourth, fifth = map(f32, HALF_PI_PARTS)
    before = (x - n * first) - n * second
    middle = before - n * third
    high = middle - n * fourth
    low = ((before - middle) - n * third) + ((middle - high) - n * fourth)
    return rarely(jnp.abs(x) > f32(12_800), lambda: far_quadrant(x), (high, low - n * fifth, bits(shifted)))


def far_quadrant(x: Array) -> tuple[Array, Array, Array]:
    """Reduces an angle with the same results as `quadrant`, for a large `x = m * 2^e` with a 24-bit integer m. Source: Payne and Hanek (1983).

    Multiplies m by 96 bits of 2 / pi, whose position depends on e. The product modulo 2^96 has the quadrant in its first two bits and the fraction of
    a quadrant in the others. Earlier bits of 2 / pi only add multiples of 2 pi to the angle.
    """
    word = np.uint32
    mantissa = lax.bitcast_convert_type(x, jnp.uint32) & word(0x7FFFFF) | word(0x800000)
    first = ((bits(x) >> 23) & 0xFF) - (150 + 2 - 32)  # Position of the window in `TWO_OVER_PI`, which begins with 32 zeros.
    shift, place = (first & 31).astype(jnp.uint32), first >> 5

    def whole(i: int) -> Array:
        found = jnp.full_like(mantissa, word(TWO_OVER_PI[i]))
        for k in range(1, 5):
            found = jnp.where(place == k, word(TWO_OVER_PI[i + k]), found)
        return found

    words = [whole(i) for i in range(4)]
    w0, w1, w2 = ((a << shift) | ((b >> word(1)) >> (word(31) - shift)) for a, b in itertools.pairwise(words))
    middle = mantissa * w1
    p1 = middle + upper_word(mantissa, w2)
    carry = jnp.where(p1 < middle, word(1), word(0))
    p0, p2 = mantissa * w0 + upper_word(mantissa, w1) + carry, mantissa * w2
    # The fraction of a quadrant, from -1/2 to 1/2, in parts of 16, 16 and 24 bits.
    f0, f1 = (p0 << word(2)) | (p1 >> word(30)), (p1 << word(2)) | (p2 >> word(30))
    signed = lax.bitcast_convert_type(f0, jnp.int32)
    n = (p0 >> word(30)).astype(jnp.int32) - (signed >> 31)
    a, b = (signed >> 16).astype(jnp.float32) * f32(2.0**-16), (signed & 0xFFFF).astype(jnp.float32) * f32(2.0**-32)
    r = a + b
    rest = ((a - r) + b) + (f1 >> word(8)).astype(jnp.int32).astype(jnp.float32) * f32(2.0**-56)
    high = r * HALF_PI
    r1, c1 = upper(r), f32(1.5703125)
    r2, c2 = r - r1, HALF_PI - c1
    low = ((((r1 * c1 - high) + r1 * c2) + r2 * c1) + r2 * c2) + (r * HALF_PI_LOW + rest * HALF_PI)
    negative = x < 0
    signed_high = jnp.where(jnp.abs(x) < INF, jnp.where(negative, -high, high), NAN)
    return signed_high, jnp.where(negative, -low, low), jnp.where(negative, -n, n)


def upper_word(a: Array, b: Array) -> Array:
    """Returns the upper 32 of the 64 bits of the product of two uint32, `a` below 2^24 and `b`, for `far_quadrant`."""
    word = np.uint32
    a1, a0, b1, b0 = a >> word(12), a & word(0xFFF), b >> word(16), b & word(0xFFFF)
    low, middle, cross, top = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    last = (low & word(0xFFFF)) + ((cross & word(15)) << word(12))
    sum_ = middle + (low >> word(16)) + (cross >> word(4)) + ((top & word(15)) << word(12)) + (last >> word(16))
    return (top >> word(4)) + (sum_ >> word(16))


def sine_or_cosine(x: Array, turns: int) -> Array:
    """Returns `sin(x + turns * pi / 2)`: the sine for `turns = 0` quarter turns, the cosine for `turns = 1`."""
    r, low, n = quadrant(x)
    n, square = n + turns, r * r
    sine = r + (low + (polynomial(square, SIN) * square) * r)
    cosine = f32(1) - (f32(0.5) * square - (polynomial(square, COS) * (square * square) - r * low))
    return number(bits(jnp.where((n & 1) == 0, sine, cosine)) ^ ((n & 2) << 30))


def sin(x: Array) -> Array:
    """Sine, with an error of at most 1.15 ulp (1.04 ulp for `|x|` up to 1e4)."""
    return jnp.where(jnp.abs(x) < f32(2.0**-12), x, sine_or_cosine(x, 0))


def cos(x: Array) -> Array:
    """Cosine, with an error of at most 1.12 ulp (1.02 ulp for `|x|` up to 1e4)."""
    return sine_or_cosine(x, 1)


def tan(x: Array) -> Array:
    """Tangent, with an error of at most 1.59 ulp (1.35 ulp for `|x|` up to 1e4), computed like FDLIBM's `k_tanf`."""
    r, low, n = quadrant(x)
    square = r * r
    low = polynomial(square, TAN) * (square * r) + low * (square + f32(1))
    y = r + low
    inverse = f32(-1) / y
    y1, top = upper(y), upper(inverse)
    inverse = top + inverse * ((top * y1 + f32(1)) + top * (low - (y1 - r)))
    return jnp.where(jnp.abs(x) < f32(2.0**-13), x, jnp.where((n & 1) == 0, y, inverse))


def arcsine(x: Array) -> tuple[Array, Array, Array]:
    """Returns the mask `|x| > 1/2` and two summands of `asin(x)`, or of `asin(sqrt((1 - |x|) / 2))` where the mask is True (Cephes' `asinf`)."""
    a = jnp.abs(x)
    large = a > f32(0.5)
    square = jnp.where(large, (f32(1) - a) * f32(0.5), x * x)
    s = jnp.where(large, jnp.sqrt(square), x)
    return large, s, (polynomial(square, ASIN) * square) * s


def asin(x: Array) -> Array:
    """Arc sine, with an error of at most 2.03 ulp."""
    large, s, rest = arcsine(x)
    y = (HALF_PI - (s + s)) - ((rest + rest) - HALF_PI_LOW)
    return jnp.where(large, jnp.where(x < f32(0), -y, y), s + rest)


def acos(x: Array) -> Array:
    """Arc cosine, with an error of at most 1.16 ulp."""
    large, s, rest = arcsine(x)
    y = s + rest
    y = y + y
    return jnp.where(large, jnp.where(x < f32(0), PI - (y - PI_LOW), y), HALF_PI - (s + (rest - HALF_PI_LOW)))


def atan(x: Array) -> Array:
    """Arc tangent, with an error of at most 0.86 ulp: for x >= 0, arctan c + arctan((x - c) / (1 + c x)), where c is 0, .5, 1, 1.5 or infinity."""
    a = jnp.abs(x)
    centre, high, low = f32(0), f32(0), f32(0)
    for bound, c in ((14 / 32, 0.5), (23 / 32, 1.0), (39 / 32, 1.5)):
        beyond, value = a > f32(bound), f32(np.arctan(c))
        centre, high = jnp.where(beyond, f32(c), centre), jnp.where(beyond, value, high)
        low = jnp.where(beyond, f32(np.arctan(c) - float(value)), low)
    beyond = a > f32(78 / 32)
    high, low = jnp.where(beyond, HALF_PI, high), jnp.where(beyond, HALF_PI_LOW, low)
    t = jnp.where(beyond, f32(-1), a - centre) / jnp.where(beyond, a, centre * a + f32(1))
    square = t * t
    return with_sign(high + (t + ((polynomial(square, ATAN) * square) * t + low)), x)


def atan2(y: Array, x: Array) -> Array:
    """Angle between the x axis and the point (x, y), with an error of at most 1.5 ulp over 2^24 random pairs."""
    a, b = jnp.abs(y), jnp.abs(x)
    angle = atan(jnp.where(a == b, jnp.where(a < LEAST, f32(0), f32(1)), a / b))
    return with_sign(jnp.where(bits(x) < 0, PI - (angle - PI_LOW), angle), y)


# Error functions

ERF = (-0.0006053446, 0.005004346, -0.026773399, 0.11281978, -0.37612507, 0.12837915)
ERF_FAR = (0.00021460291, -0.0032200406, 0.022906234, -0.10528716, -0.63569915, -1.12852)
ERFC = (-0.0013243129, 0.00095435133, 0.008698929, -0.0079514785, -0.054219633, 0.16404325, -0.16603023, -0.09276363, 1.2769784)  # fmt: skip
ERF_INV = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
ERF_INV_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def erf_near(x: Array) -> Array:
    """Computes erf(x) for `|x| < 0.9`. Scaling ensures that the term 0.128 x of a tiny x is not flushed to zero."""
    large = x * f32(2.0**24)
    return (large * polynomial(x * x, ERF) + large) * f32(2.0**-24)


def erf(x: Array) -> Array:
    """Error function, with an error of at most 1.21 ulp. For `|x| >= 0.9` it is one minus the exponential of a polynomial."""
    a = jnp.abs(x)
    clipped = jnp.where(a > f32(4), f32(4), a)
    r, k = exponential(polynomial(clipped, ERF_FAR) * clipped)
    return jnp.where(a < f32(0.9), erf_near(x), with_sign(f32(1) - (r + f32(1)) * power_of_two(k), x))


def erfc(x: Array) -> Array:
    """1 - erf(x), with an error of at most 3.89 ulp: `exp(-x^2) / (1 + 2|x|)` times a polynomial of `(|x| - 2) / (|x| + 2)`."""
    a = jnp.abs(x)
    first = upper(a)
    r, k = exponential(-(first * first), -((a - first) * (a + first)))
    y = polynomial((a - f32(2)) / (a + f32(2)), ERFC) / ((a + a) + f32(1))
    y = jnp.where(a > f32(9.2), f32(0), ((r + f32(1)) * y) * power_of_two(k))
    return jnp.where(a < f32(0.8125), f32(1) - erf_near(x), jnp.where(x < f32(0), f32(2) - y, y))


def erf_inv(x: Array) -> Array:
    """Inverse of erf, with an error of at most 3.76 ulp. Source: Giles (2010), "Approximating the erfinv function": polynomials of a logarithm."""
    left = (f32(1) - x) * (f32(1) + x)
    w = -log_of_normal(left)

    def far() -> Array:
        a = jnp.abs(x)
        return jnp.where(a < f32(1), polynomial(jnp.sqrt(w) - f32(3), ERF_INV_FAR), jnp.where(a == f32(1), INF, NAN))

    return rarely(~(left > f32(0.0067379470)), far, polynomial(w - f32(2.5), ERF_INV)) * x


# Gamma and Bessel functions

SIN_PI = (0.024715936, -0.19044323, 0.81171584, -1.6449333)
LGAMMA = (0.0024644965, -0.003923224, 0.0053120162, -0.009300121, 0.016811846, -0.031315606, 0.06291066, -0.14595984, 0.48312896)  # fmt: skip
LGAMMA_FAR = (0.0007356732, -0.002776068, 0.08333332)
DIGAMMA = (-0.01616262, 0.0238252, -0.025906503, 0.039417118, -0.06203328, 0.09510717, -0.14840047, 0.24053909, -0.42362747, 0.9510559)  # fmt: skip
DIGAMMA_FAR = (-0.003264926, 0.008291668, -0.083332606)
I0 = (1.4530083e-14, 2.0824499e-12, 4.8107157e-10, 6.763927e-8, 6.7834185e-6, 0.0004340189, 0.01562502, 0.24999999, 1)
I0_FAR = (-0.39363465, 0.767117, -0.10825029, 0.043276433, 0.027494477, 0.049875684, 0.39894226)
I1 = (7.731102e-16, 1.3468277e-13, 3.4120907e-11, 5.643202e-9, 6.7824385e-7, 5.4253134e-5, 0.0026041672, 0.0625, 0.5)
I1_FAR = (-0.88245845, -0.2474430, 0.0033610198, -0.04762657, -0.046459083, -0.14960784, 0.3989423)


def sin_pi(x: Array) -> Array:
    """Returns `sin(pi x) / pi` for `|x| <= 1/2`: `x` plus a small polynomial. The error bounds of `lgamma` and `digamma` include its error."""
    square = x * x
    return (polynomial(square, SIN_PI) * square) * x + x


def lgamma(x: Array) -> Array:
    """`log|gamma(x)|`, with an error of at most 13.2 ulp (3.05 for x > 0). If the value is below 1, the unit is the ulp of 1.

    A polynomial gives the values on [1, 2], recurrence those up to 4, Stirling's series those above, and the reflection formula those below zero.
    """
    a = jnp.abs(x)
    one, two, three, four = (a > f32(bound) for bound in (1, 2, 3, 4))
    t = a - jnp.where(three, f32(3.5), jnp.where(two, f32(2.5), jnp.where(one, f32(1.5), f32(0.5))))
    near = (polynomial(t, LGAMMA) * (t + f32(0.5))) * (t - f32(0.5))
    below = a - f32(1)
    product = jnp.where(three, below * (a - f32(2)), jnp.where(two, below, f32(1)))
    logarithm, inverse = log(jnp.where(one & ~four, product, a)), f32(1) / a
    far = polynomial(inverse * inverse, LGAMMA_FAR) * inverse + f32(np.log(2 * np.pi) / 2 - 0.5)
    far = (a - f32(0.5)) * (logarithm - f32(1)) + far
    y = jnp.where(four, far, near + jnp.where(one, logarithm, -logarithm))

    def reflected() -> Array:
        sine = jnp.abs(sin_pi(a - nearest(a)))
        return jnp.where(a < f32(2.0**23), -log(sine * a) - y, INF)

    return rarely(x < f32(-(2.0**-20)), reflected, y)


def digamma(x: Array) -> Array:
    """Derivative of lgamma, with an error of at most 24 ulp (1.65 for x > 0). If the value is below 1, the unit is the ulp of 1."""
    negative = x < f32(0)
    a = jnp.where(negative, f32(1) - x, x)
    one, two, three = a >= f32(1), a > f32(2), a > f32(3)
    t = a - jnp.where(two, f32(2.5), jnp.where(one, f32(1.5), f32(0.5)))
    near = polynomial(t, DIGAMMA) * ((t + f32(0.03836785)) + f32(5.0309e-09))  # distance of a from the zero of digamma
    inverse = f32(1) / jnp.where(two & ~three, a - f32(1), a)
    square = inverse * inverse
    far = log(a) + (polynomial(square, DIGAMMA_FAR) * square - f32(0.5) * inverse)
    y = jnp.where(three, far, jnp.where(two, near + inverse, jnp.where(one, near, near - inverse)))

    def reflected() -> Array:
        part = x - nearest(x)
        cotangent = sin_pi(f32(0.5) - jnp.abs(part)) / sin_pi(part)
        return jnp.where(part == f32(0), NAN, y - PI * cotangent)

    return jnp.where(jnp.abs(x) < LEAST, NAN, rarely(negative, reflected, y))


def bessel(a: Array, near: Sequence[float], far: Sequence[float]) -> tuple[Array, Array]:
    """Returns `exp(-a) p(a^2)`, valid for a < 6, and `q(1 / a) / sqrt(a)`, valid for a > 6. `near`, `far`: coefficients of the polynomials p, q."""
    r, k = exponential(-a)
    return polynomial(a * a, near) * ((r + f32(1)) * power_of_two(k)), polynomial(f32(1) / a, far) / jnp.sqrt(a)


def bessel_i0e(x: Array) -> Array:
    """Modified Bessel function of order 0, scaled: `exp(-|x|) I_0(x)`, with an error of at most 4.5 ulp."""
    a = jnp.abs(x)
    near, far = bessel(a, I0, I0_FAR)
    return jnp.where(a < f32(6), near, far)


def bessel_i1e(x: Array) -> Array:
    """Modified Bessel function of order 1, scaled: `exp(-|x|) I_1(x)`, with an error of at most 4.14 ulp."""
    a = jnp.abs(x)
    near, far = bessel(a, I1, I1_FAR)
    return with_sign(jnp.where(a < f32(6), a * near, far), x)


_FUNCTIONS = (
    log, exp, exp2, log1p, expm1, tanh, logistic, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, asinh, acosh, atanh,
    erf, erfc, erf_inv, lgamma, digamma, cbrt, rsqrt, bessel_i0e, bessel_i1e, integer_pow,
)  # fmt: skip
# Definition of each of JAX's primitives, by its name. The last three are primitives since jax 0.12.
DEFINITIONS: dict[str, Callable[..., Array]] = {function.__name__: function for function in _FUNCTIONS} | {
    "pow": power, "log2": lambda x: log(x) * f32(1 / np.log(2)), "one_minus_square": lambda x: (f32(1) + x) * (f32(1) - x),
    "polynomial": lambda x, *coefficients: functools.reduce(lambda total, c: total * x + c, coefficients[::-1]),
}  # fmt: skip
