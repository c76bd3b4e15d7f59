"""Thompson sampling for rewards of 0 or 1, by logistic regression with a diagonal Laplace approximation of the posterior."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf
from jaxroute.problems.contextual.policies.parameters import ParameterPolicy
from jaxroute.problems.contextual.types import Choice, ContextualSpec

# Newton steps in one dimension, enough for variances up to 10,000.
_STEPS = 10


@struct.dataclass
class LaplacePosterior:
    """Normal posteriors of the weights of `G` logistic regressions, with independent entries: `w_i ~ N(m_i, 1 / q_i)`.

    Attributes:
      mean: `[d, G]` means `m`.
      precision: `[d, G]` precisions `q`.
      errors: rounding errors of both fields, which are sums over rounds, see `numerics.accumulate`.
    """

    mean: Array
    precision: Array
    errors: dict[str, Array]

    def square_deviation(self, x: Array) -> Array:
        """Returns the variance `[K]` of each model's prediction `w . x`, given its features in `x` `[d, K]`; `[d, 1]` if all models have the same."""
        return numerics.combine(jnp.square(x), 1.0 / self.precision)

    def sample(self, noise: Array) -> Array:
        """Returns a random deviation `[d]` of the weights from their mean, made from standard normal `noise` `[d]`. It needs `G = 1`."""
        return noise * lax.rsqrt(self.precision[:, 0])


def newest_slope(level: Array, variance: Array, label: Array) -> Array:
    """Returns the factor `c` of an update: an observation with features `x` moves the means `m` of logistic weights to `m + c x / q`.

    Here `q` are the precisions of the weights, `level = m . x` is the prediction, `variance = sum_i x_i^2 / q_i`, and `label` in [0, 1] is observed.
    The factor solves `c = label - sigmoid(level + c variance)`.
    """
    # Newton's method for `s = level + c variance`: from 0, the inflection of the sigmoid, its steps never pass the root.
    target = level + variance * label
    s = jnp.zeros_like(target)
    for _ in range(_STEPS):
        probability = jax.nn.sigmoid(s)
        s = s - (s + variance * probability - target) / (1.0 + variance * probability * (1.0 - probability))
    return label - jax.nn.sigmoid(s)


@struct.dataclass
class LogisticThompson(ParameterPolicy):
    """Draws the weights of logistic regressions from an approximate posterior, and uses the model with the largest prediction by this draw.

    After each round the posterior becomes the normal distribution around the weights that minimise
    `1/2 sum_i q_i (w_i - m_i)^2 + log loss(w . x, y)`, and `q_i` grows by `x_i^2 p (1 - p)` with `p = sigmoid(w . x)`. The minimum lies on
    the line `m + c x / q`, so only `c` has to be found.

    Source: Chapelle and Li (2011), Algorithm 3 (batches of one), and their reshaping of the posterior for the factor `scale`.

    Differs from the paper: rewards between 0 and 1 count as that fraction of a success.

    Attributes:
      scale: `[]` factor of the standard deviations, the paper's alpha.
      ridge: `[]` initial precision, the paper's lambda, above 0.
      low, high: `[]` least and largest reward; rewards are mapped from `[low, high]` to [0, 1].
      parameters: `DisjointParameters()` for a separate parameter vector of each model, or `SharedParameters()` for one of all models.
    """

    scale: Leaf = 1.0
    ridge: Leaf = 1.0
    low: Leaf = 0.0
    high: Leaf = 1.0

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(float(self.low), float(self.high), remedy="give low and high, the least and the largest reward")

    def check(self) -> None:
        checks.non_negative("scale", self.scale, ())
        checks.positive("ridge", self.ridge, ())
        low, high = (float(checks.numbers(name, getattr(self, name), ())) for name in ("low", "high"))
        if not low < high:
            raise ValueError(f"high must be above low, got {high:g} and {low:g}")
        super().check()

    def init(self, key: Array, spec: ContextualSpec) -> LaplacePosterior:
        del key
        size = self.parameters.sizes(spec)
        mean, precision = jnp.zeros(size, jnp.float32), jnp.broadcast_to(jnp.asarray(self.ridge, jnp.float32), size)
        return LaplacePosterior(mean, precision, numerics.no_errors(mean=mean, precision=precision))

    def act(self, key: Array, state: LaplacePosterior, obs: Array, t: Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        sample = numerics.combine(x, state.mean) + self.scale * self.parameters.errors(key, x, state)
        return numerics.argmax(sample), {"sample": sample}

    def update(
        self, key: Array, state: LaplacePosterior, obs: Array, action: Array, feedback: Array, t: Array
    ) -> LaplacePosterior:
        del key, t
        x, seen = self.parameters.of_chosen(self.parameters.columns(obs), action, state.mean.shape[-1])
        direction = x / state.precision
        level, variance = (numerics.pick(seen, numerics.combine(x, y)) for y in (state.mean, direction))
        label = jnp.clip((feedback - self.low) / (self.high - self.low), 0.0, 1.0)
        c = newest_slope(level, variance, label)
        probability = jax.nn.sigmoid(level + c * variance)
        return numerics.accumulate(
            state, seen, mean=c * direction, precision=jnp.square(x) * (probability * (1.0 - probability))
        )
