"""Temporary."""
import jax.numpy as jnp
import numpy as np
from jax import lax

f = np.float32

def bits(x): return lax.bitcast_convert_type(x, jnp.int32)
def flt(x): return lax.bitcast_convert_type(x, jnp.float32)

def log_of_normal(x):
    b = bits(x)
    power = ((b >> 23) & 0xFF) - 126
    m = flt((b & 0x007FFFFF) | 0x3F000000)
    small = m < f(0.707106781186547524)
    power = power - small.astype(jnp.int32)
    m = jnp.where(small, m + m, m) - f(1)
    q = m * m
    p = jnp.full_like(m, f(7.0376836292e-2))
    for c in (-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1):
        p = p * m + f(c)
    e = power.astype(jnp.float32)
    y = e * f(-2.12194440e-4) + (p * m) * q
    return e * f(0.693359375) + (m + (q * f(-0.5) + y))

def log(x):
    y = jnp.where(x < f(2.0**-126), jnp.where(x < 0, f(np.nan), f(-np.inf)), log_of_normal(x))
    return jnp.where(x < f(np.inf), y, x)

def exponential(x):
    n = jnp.floor(x * f(1.44269504088896341) + f(0.5))
    r = n * f(2.12194440e-4) + (n * f(-0.693359375) + x)
    p = jnp.full_like(x, f(1.9875691500e-4))
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + f(c)
    rest = p * (r * r) + r
    power = n.astype(jnp.int32)
    half = power >> 1
    return rest, flt((half + 127) << 23), flt((power - half + 127) << 23)

def within(x): return jnp.where(x > f(89), f(89), jnp.where(x < f(-104), f(-104), x))

def exp(x):
    rest, one, other = exponential(within(x))
    return jnp.where(x == x, (rest + f(1)) * one * other, x)

def expm1(x):
    rest, one, other = exponential(within(x))
    y = jnp.where(x > f(20), (rest + f(1)) * one * other, rest * one * other + (one * other - f(1)))
    return jnp.where(x == x, y, x)

def log1p(x):
    u = x + f(1)
    y = log(u) * (x / (u - f(1)))
    return jnp.where(u == f(1), x, jnp.where(u < f(np.inf), y, u))

def tanh(x):
    i = jnp.where(x > f(10), f(10), jnp.where(x < f(-10), f(-10), x))
    y = expm1(i + i)
    return jnp.where(x == x, y / (y + f(2)), x)

def logistic(x): return f(1) / (f(1) + exp(-x))

def rsqrt(x): return f(1) / jnp.sqrt(x)

def erf_inv(x):
    left = (f(1) - x) * (f(1) + x)
    w = -log_of_normal(left)
    near = w - f(2.5)
    p = jnp.full_like(x, f(2.81022636e-08))
    for c in (3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941):
        p = p * near + f(c)
    far = jnp.sqrt(w) - f(3)
    q = jnp.full_like(x, f(-0.000200214257))
    for c in (0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406):
        q = q * far + f(c)
    a = jnp.abs(x)
    q = jnp.where(a < f(1), f(2.83297682) + q * far, jnp.where(a == f(1), f(np.inf), f(np.nan)))
    return jnp.where(~(left > f(0.0067379470)), q, p) * x

def integer_pow(x, *, y):
    if y == 0: return jnp.ones_like(x)
    count, total, square = abs(y), None, x
    while count:
        if count & 1:
            total = square if total is None else total * square
        count >>= 1
        if count: square = square * square
    return f(1) / total if y < 0 else total

def power(x, y):
    return exp(y * log(x))

DEFINITIONS = {"log": log, "exp": exp, "expm1": expm1, "log1p": log1p, "tanh": tanh, "logistic": logistic, "rsqrt": rsqrt, "erf_inv": erf_inv, "integer_pow": integer_pow, "pow": power}
