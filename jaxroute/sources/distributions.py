"""Distributions of the rewards or costs of all models in one round, given their means.

One random number per round determines the values of all models (two for `TokenCost`). A run then has the same distribution as with independent
models, because only one model is observed per round. Few numbers are drawn, and policies that choose the same model in a round see the same value.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike
from scipy import special

from jaxroute.core import checks, draws
from jaxroute.core.rewards import Rewards
from jaxroute.core.types import Leaf

# Function `(key, mean, scale) -> values [K]` that draws a round, such as any `Distribution`.
DrawFunction = Callable[[Array, Leaf, Leaf], Array]
# Largest mean of Poisson rewards; a larger mean would need hundreds of terms in every round.
MOST_COUNTS = 64


class Distribution(abc.ABC):
    """Distribution of the rewards or costs of all models in a round, given their means."""

    @abc.abstractmethod
    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        """Draws the values `[K]` of a round.

        Args:
          key: key of the round.
          mean: `[K]` expected values.
          scale: scalar measure of the noise, which each distribution defines, for example the standard deviation of normal values.
        """

    def check_mean(self, name: str, mean: ArrayLike, scale: float) -> None:
        """Raises `ValueError`, for the argument `name`, if the distribution with the noise measure `scale` cannot have these means."""
        del name, mean, scale

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards | None:
        """Returns bounds and noise of rewards whose means lie from `least_mean` to `largest_mean`, at noise `scale`; None if they are unknown."""
        del least_mean, largest_mean, scale
        return None

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        """Returns, elementwise, the Kullback-Leibler divergence `KL(mean, other)` for these means and noise `scale`; `ValueError` if unknown."""
        del mean, other, scale
        raise ValueError(f"distribution must have a known divergence, got {self}")


class NormalTransform(Distribution):
    """Distribution whose values are a function of a few standard normal numbers, `num_normals` per round."""

    num_normals: ClassVar[int] = 1

    @abc.abstractmethod
    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        """Returns the values `[K]` of a round, given the standard normal numbers `[num_normals]`, the means `[K]` and the scalar `scale`."""

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        return self.from_normal(draws.normal(key, (self.num_normals,)), mean, scale)


@dataclass(frozen=True)
class Gaussian(NormalTransform):
    """Normal values `mean + scale * z`, with a standard normal number `z`; they may lie outside [0, 1].

    Attributes:
      relative: whether the noise `scale * z` is multiplied by the mean.
      clip: bounds to which values are clipped, None for no bounds.
    """

    relative: bool = False
    clip: tuple[float, float] | None = None

    def _value(self, z: Array, mean: Leaf, scale: Leaf) -> Array:
        value = mean * (1.0 + scale * z) if self.relative else mean + scale * z
        return value if self.clip is None else jnp.clip(value, *self.clip)

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        return self._value(draws.normal(key), mean, scale)

    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        return self._value(normal[0], mean, scale)

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards | None:
        plain = self == Gaussian()
        return Rewards.normal(least_mean, largest_mean, scale) if plain else None

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        return (mean - other) ** 2 / (2.0 * scale**2)


@dataclass(frozen=True)
class Bernoulli(NormalTransform):
    """Values that are 1 with probability `mean`, else 0. `scale` is not used."""

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        del scale
        return (draws.uniform(key) < mean).astype(jnp.float32)

    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        del scale
        return (ndtr(normal[0]) < mean).astype(jnp.float32)

    def check_mean(self, name: str, mean: ArrayLike, scale: float) -> None:
        checks.probability(name, mean)

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards:
        return Rewards.unit("Bernoulli", largest_mean)

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        return special.rel_entr(mean, other) + special.rel_entr(1.0 - mean, 1.0 - np.asarray(other))


@dataclass(frozen=True)
class LogNormal(NormalTransform):
    """Log-normal values whose standard deviation is `scale` times the mean."""

    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        variance = jnp.log1p(scale**2)
        return mean * jnp.exp(jnp.sqrt(variance) * normal[0] - variance / 2)


@dataclass(frozen=True)
class Constant(NormalTransform):
    """Values that equal the mean, without noise."""

    num_normals: ClassVar[int] = 0

    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        del normal, scale
        return mean


@dataclass(frozen=True)
class TokenCost(NormalTransform):
    """Cost proportional to the numbers of tokens of a query and its answer (capped). Both are log-normal with coefficient of variation `scale`.

    The cost is scaled so that its mean is the given one. All models share the numbers of tokens. No experiment uses this cost. Source: the cost model
    of StageRoute (arXiv 2506.17254), section 3; as Table 1 gives only one price per model, the log-normal distribution is our choice.

    Attributes:
      mean_input: mean number of tokens of a query.
      mean_output: mean number of tokens of an answer, before the cap.
      cap_output: largest number of tokens of an answer.
    """

    mean_input: float = 300.0
    mean_output: float = 500.0
    cap_output: float = 4096.0
    num_normals: ClassVar[int] = 2

    def from_normal(self, normal: Array, mean: Leaf, scale: Leaf) -> Array:
        variance = jnp.log1p(scale**2)
        sigma = jnp.sqrt(variance)
        tokens_in = self.mean_input * jnp.exp(sigma * normal[0] - variance / 2)
        tokens_out = jnp.minimum(self.mean_output * jnp.exp(sigma * normal[1] - variance / 2), self.cap_output)
        # Mean of min(X, cap) for a log-normal X.
        z = (math.log(self.cap_output / self.mean_output) + variance / 2) / jnp.maximum(sigma, 1e-6)
        mean_out = self.mean_output * ndtr(z - sigma) + self.cap_output * (1.0 - ndtr(z))
        return mean * (tokens_in + tokens_out) / (self.mean_input + mean_out)


@dataclass(frozen=True)
class Beta(Distribution):
    """Beta values in [0, 1] of parameters `mean * scale` and `(1 - mean) * scale`, so a larger `scale` is less noise.

    Each model's value is drawn separately, because inverting the distribution function is expensive. Both parameters must be at least 1.
    """

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        return draws.beta(key, mean * scale, (1.0 - mean) * scale)

    def check_mean(self, name: str, mean: ArrayLike, scale: float) -> None:
        least = np.min(np.minimum(checks.probability(name, mean), 1.0 - np.asarray(mean, np.float64))) * scale
        if least < 1.0 - 1e-5:
            products = f"concentration times {name}, and times 1 - {name},"
            raise ValueError(f"{products} must be at least 1, got {least:g} with concentration {scale:g}")

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards:
        return Rewards.unit("beta", largest_mean)

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        a, b, c, d = mean * scale, (1.0 - mean) * scale, np.asarray(other) * scale, (1.0 - np.asarray(other)) * scale
        return special.betaln(c, d) - special.betaln(a, b) + (a - c) * special.digamma(a) + (b - d) * special.digamma(b)


@dataclass(frozen=True)
class Exponential(Distribution):
    """Exponentially distributed values. `scale` is not used."""

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        del scale
        return mean * draws.exponential(key)

    def check_mean(self, name: str, mean: ArrayLike, scale: float) -> None:
        checks.positive(name, mean)

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards:
        return Rewards("exponential", 0.0, np.inf, np.inf, np.inf, largest_mean)

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        return mean / other - 1.0 - np.log(mean / other)


@dataclass(frozen=True)
class Poisson(Distribution):
    """Poisson counts, drawn by the inverse of the distribution function. `scale` is not used.

    The largest count is `terms`, which `of` makes so large that larger counts are less probable than the smallest uniform draw, `2^-23`.
    """

    terms: int

    @classmethod
    def of(cls, mean: np.ndarray) -> "Poisson":
        """Creates the distribution for the given means. Chernoff's inequality gives a number `terms` that is large enough."""
        top, terms = float(np.max(mean)), 1
        while top - terms + terms * np.log(terms / max(top, 1e-30)) < 24 * np.log(2.0) or terms <= top:
            terms += 1
        return cls(terms)

    def __call__(self, key: Array, mean: Leaf, scale: Leaf) -> Array:
        del scale
        uniform = draws.uniform(key)
        mean = jnp.asarray(mean)
        probability = jnp.exp(-mean)
        below, count = probability, jnp.zeros_like(mean)
        for number in range(1, self.terms + 1):
            count = count + (uniform >= below).astype(count.dtype)
            probability = probability * (mean / number)
            below = below + probability
        return count

    def check_mean(self, name: str, mean: ArrayLike, scale: float) -> None:
        if np.max(checks.non_negative(name, mean)) > MOST_COUNTS:
            raise ValueError(f"{name} must be at most {MOST_COUNTS} for counts, got {np.max(mean):g}")

    def rewards(self, least_mean: float, largest_mean: float, scale: float) -> Rewards:
        return Rewards("Poisson", 0.0, np.inf, np.inf, np.inf, largest_mean)

    def divergence(self, mean: np.ndarray, other: ArrayLike, scale: float) -> np.ndarray:
        return special.kl_div(mean, other)
