"""Families of reward distributions with one parameter, the mean: divergences and upper confidence bounds of means.

Index policies and tests need the Kullback-Leibler divergence `kl(x, y)` between the distributions of means `x` and `y`, and the largest `y` above
`x` with `kl(x, y) <= level`. Both take a fixed number of elementwise operations.

Source: Garivier and Cappe (2011), sections 2 and 5; Cappe, Garivier, Maillard, Munos and Stoltz (2013), section 4.
"""

from typing import Protocol

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf

# Number of Newton steps after which the error of a bound is that of float32 (a test measures it). For Bernoulli and beta distributions two steps with
# plain logarithms, which take half the time of `log1p`, precede an exact one.
_STEPS, _ROUGH_STEPS = 5, 2
# -log(1 - q) of the largest q below 1 in float32.
_MOST = 16.6
_TINY = 1e-30
_OTHER_FAMILY = "give the family of the rewards, for example family=families.Gaussian(scale), or scale them to [0, 1]"


class Family(Protocol):
    """Family of reward distributions whose only parameter is the mean; for example `Bernoulli`."""

    def divergence(self, mean: Array, other: Array) -> Array:
        """Returns the Kullback-Leibler divergence `kl(mean, other)` between the distributions with these two means, elementwise."""
        ...

    def upper(self, mean: Array, level: Array) -> Array:
        """Returns the upper bound of a mean: the largest `q >= mean` whose divergence `kl(mean, q)` is at most `level`, elementwise."""
        ...

    def variance(self, mean: Array) -> Array:
        """Returns the variance of the distribution with this mean, elementwise."""
        ...


def _part(mean: Array, change: Array) -> Array:
    """Returns `mean log(mean / other)` for `other = mean + change`, elementwise. It is accurate for small changes, and 0 where `mean` is 0."""
    ratio = jnp.maximum(change / jnp.maximum(mean, _TINY), -1.0)
    return jnp.where(mean > 0, -mean * jnp.log1p(ratio), 0.0)


@struct.dataclass
class Bernoulli:
    """Family of rewards that are 0 or 1. The bounds also hold for rewards in [0, 1]: `kl(x, y) = x log(x / y) + (1 - x) log((1 - x) / (1 - y))`.

    The upper bound `q` comes from Newton's method in the variable `-log(1 - q)`, of which the divergence is a convex, nearly linear function. A mean
    that rounding errors put outside [0, 1] counts as 0 or 1.
    """

    assumes = Assumptions(low=0.0, high=1.0, remedy=_OTHER_FAMILY)

    def divergence(self, mean: Array, other: Array) -> Array:
        mean, other = jnp.clip(mean, 0.0, 1.0), jnp.clip(other, 0.0, 1.0)
        change = other - mean
        return _part(mean, change) + _part(1.0 - mean, -change)

    def upper(self, mean: Array, level: Array) -> Array:
        mean = jnp.clip(mean, 0.0, 1.0)
        rest = 1.0 - mean
        share, part = jnp.maximum(mean, _TINY), jnp.maximum(rest, 1e-12)
        least = jnp.where(mean > 0, mean * jnp.log(share), 0.0) + jnp.where(rest > 0, rest * jnp.log(part), 0.0)
        # Starting points above the root: the asymptote, for -mean log q >= 0, and Pinsker's inequality; near it an expansion in sqrt(level).
        asymptote = jnp.minimum((level - least) / part, _MOST)
        spread = jnp.sqrt(2.0 * mean * rest * level)
        near = jnp.maximum(spread + (2.0 / 3.0) * (1.0 - 2.0 * mean) * level, 0.7 * spread)
        left = rest - jnp.minimum(near, jnp.sqrt(0.5 * level))
        high = jnp.where(left > 0, jnp.minimum(asymptote, -jnp.log(jnp.maximum(left, _TINY))), asymptote)
        for _ in range(_ROUGH_STEPS):
            bound = jnp.maximum(1.0 - jnp.exp(-high), _TINY)
            excess = least - mean * jnp.log(bound) + rest * high - level
            slope = (bound - mean) / bound
            high = jnp.clip(jnp.where(slope > 1e-6, high - excess / jnp.maximum(slope, 1e-6), high), 0.0, _MOST)
        # The last step avoids cancellation.
        bound = -jnp.expm1(-high)
        change = jnp.clip(bound - mean, 0.0, rest * (1.0 - 1e-6))
        excess = jnp.where(mean > 0, -mean * jnp.log1p(change / share), 0.0) - rest * jnp.log1p(-change / part) - level
        slope = change / jnp.maximum(bound, _TINY)
        high = jnp.clip(jnp.where(slope > 0, high - excess / jnp.maximum(slope, 1e-12), high), 0.0, _MOST)
        return jnp.where((level > 0) & (rest > 0), jnp.maximum(-jnp.expm1(-high), mean), mean)

    def variance(self, mean: Array) -> Array:
        mean = jnp.clip(mean, 0.0, 1.0)
        return mean * (1.0 - mean)


@struct.dataclass
class Gaussian:
    """Family of normal rewards of known standard deviation: `kl(x, y) = (x - y)^2 / (2 scale^2)`.

    Attributes:
      scale: `[]` standard deviation of one reward. For rewards that are not normal, give their sub-Gaussian constant (at most 1/2 on [0, 1]).
    """

    scale: Leaf = 1.0

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(
            noise=float(self.scale), remedy="give families.Gaussian(scale) the standard deviation of a reward"
        )

    def check(self) -> None:
        checks.positive("scale", self.scale, ())

    def divergence(self, mean: Array, other: Array) -> Array:
        return jnp.square((mean - other) / self.scale) * 0.5

    def upper(self, mean: Array, level: Array) -> Array:
        return mean + self.scale * jnp.sqrt(2.0 * level)

    def variance(self, mean: Array) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.scale, mean.dtype) ** 2, mean.shape)


@struct.dataclass
class Poisson:
    """Family of Poisson-distributed rewards: `kl(x, y) = y - x + x log(x / y)`.

    The upper bound comes from Newton's method, which decreases to the bound because the divergence `kl(x, q)` is convex in `q`.
    """

    assumes = Assumptions(low=0.0, distributions=("Poisson", "Bernoulli"), remedy=_OTHER_FAMILY)

    def divergence(self, mean: Array, other: Array) -> Array:
        change = other - mean
        return jnp.maximum(change + _part(mean, change), 0.0)

    def upper(self, mean: Array, level: Array) -> Array:
        # kl(x, q) >= (q - x)^2 / (2 q): above the root.
        change = level + jnp.sqrt(level * (level + 2.0 * mean))
        for _ in range(_STEPS):
            excess = change + _part(mean, change) - level
            slope = change / jnp.maximum(mean + change, _TINY)
            change = jnp.where(slope > 0, jnp.maximum(change - excess / jnp.maximum(slope, 1e-12), 0.0), change)
        return mean + change

    def variance(self, mean: Array) -> Array:
        return mean


@struct.dataclass
class Exponential:
    """Family of exponentially distributed rewards: `kl(x, y) = x / y - 1 - log(x / y)`. The upper bound of a mean of zero is infinite.

    The upper bound comes from Newton's method in `log(q / x)`, in which the divergence `kl(x, q)` is convex.
    """

    assumes = Assumptions(low=0.0, distributions=("exponential",), remedy=_OTHER_FAMILY)

    def divergence(self, mean: Array, other: Array) -> Array:
        relative = jnp.maximum((mean - other) / other, -1.0)
        return jnp.maximum(relative - jnp.log1p(relative), 0.0)

    def upper(self, mean: Array, level: Array) -> Array:
        # With v = log(q / x): kl = exp(-v) - 1 + v, below v^2 / 2; and above v - 1, so that 1 + level is above the root.
        log_ratio = jnp.minimum(1.0 + level, jnp.sqrt(2.0 * level) + level)
        for _ in range(_STEPS):
            slope = -jnp.expm1(-log_ratio)
            excess = log_ratio - slope - level
            log_ratio = jnp.where(slope > 0, jnp.maximum(log_ratio - excess / jnp.maximum(slope, 1e-12), 0.0), log_ratio)
        return jnp.where(mean > 0, mean * jnp.exp(log_ratio), jnp.inf)

    def variance(self, mean: Array) -> Array:
        return jnp.square(mean)


# Terms of the continued fraction in the steps with plain logarithms, and in the last step.
_TERMS = 2, 4


def upper_quantile(a: Array, b: Array, log_tail: Array, deviate: Array) -> Array:
    """Returns the `x` that a Beta(a, b) variable exceeds with a given small probability: `P(X > x) = exp(log_tail)`.

    Newton's method on the logarithm of the tail, with a fixed number of steps. The continued fraction of the tail converges in a few terms above the
    mean, and also gives the slope. The error is that of float32 (a test measures it) if the probability is at most `min(1/2, 1 / (a + b - 2))`. Index
    policies meet this condition, except in about the first `a + b` rounds after a strong prior Beta(a, b): in those rounds the error is at most
    2.5e-4 standard deviations for a prior with `a + b = 20`, and .08 for one with `a + b = 200`.

    Source: DiDonato and Morris (1992), eq. (9), the continued fraction; Wilson and Hilferty (1931), the starting point.

    Args:
      a, b: `[...]` parameters of the distributions, at least 1.
      log_tail: `[]` logarithm of the probability.
      deviate: `[]` number that a standard normal variable exceeds with the same probability; the starting point depends on it.

    Returns:
      `[...]` quantiles in [0, 1].
    """
    total = a + b
    mean, rest = a / total, b / total
    scale = 0.5 * jnp.log(a * rest / (2.0 * jnp.pi)) + _stirling(total) - _stirling(a) - _stirling(b)
    least = a * jnp.log(mean) + b * jnp.log(rest)
    third = deviate * jnp.sqrt(mean / b) / 3.0
    left = rest * jnp.maximum(1.0 - third, 0.0) ** 3
    # Starting point for -log(1 - x): Wilson and Hilferty's cube, or where it is near 0 or below, the tail of few failures.
    high = -jnp.log(jnp.where(left > 0.1 * rest, left, rest * jnp.exp(log_tail / b)))

    for _ in range(_ROUGH_STEPS):
        below = jnp.exp(-high)
        fraction = _fraction(below, b, a, _TERMS[0])
        log_x = jnp.log(jnp.maximum(1.0 - below, 1e-30))
        high = _moved(high, scale - least + a * log_x - b * high + jnp.log(fraction) - log_tail, (1.0 - below) * fraction)
    # The last step avoids cancellation.
    x = -jnp.expm1(-high)
    change = jnp.clip(x - mean, -mean * (1.0 - 1e-6), rest * (1.0 - 1e-6))
    fraction = _fraction(jnp.exp(-high), b, a, _TERMS[1])
    divergence = mean * jnp.log1p(change / mean) + rest * jnp.log1p(-change / rest)
    high = _moved(high, scale + total * divergence + jnp.log(fraction) - log_tail, x * fraction)
    return -jnp.expm1(-high)


def _moved(high: Array, excess: Array, step: Array) -> Array:
    return jnp.clip(high + excess * step, 1e-7, 80.0)


def _fraction(x: Array, a: Array, b: Array, terms: int) -> Array:
    """Returns `I_x(a, b) B(a, b) / (x^a (1 - x)^b)`, with the incomplete beta function `I_x`, by `terms` terms of a continued fraction."""
    y = 1.0 - x
    below = jnp.zeros_like(x)
    for n in range(terms, 0, -1):
        left, right = 1.0 / (a + (2.0 * n - 1.0)), 1.0 / (a + (2.0 * n + 1.0))
        over = (a + (n - 1.0)) * (a + b + (n - 1.0)) * n * (b - n) * jnp.square(x * left)
        middle = n + n * (b - n) * x * left + (a + n) * (a * y - b * x + 1.0 + n * (2.0 - x)) * right
        below = over / (middle + below)
    return 1.0 / (a * (a * y - b * x + 1.0) / (a + 1.0) + below)


def _stirling(a: Array) -> Array:
    """Returns `log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2` for `a >= 1` by Stirling's series; its last coefficient makes it exact at 1."""
    inverse = 1.0 / a
    square = jnp.square(inverse)
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square * 2.8774e-4)))
