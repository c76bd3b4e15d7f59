"""Best-arm identification: Track-and-Stop, and uniform sampling with the same stopping rule."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.estimators.families import Bernoulli, Family
from jaxroute.problems.stochastic.types import ArmStatistics, Choice

# Newton steps from the solution for normal distributions, and Newton steps to that solution.
_STEPS, _START_STEPS = 5, 5


def optimal_shares(mean: Array, family: Family) -> Array:
    """Returns the shares of samples, summing to 1, with which the best model is identified soonest; `mean` `[K]` must be in the range of the family.

    Let 1 be the best model and `w` the shares. For each other model, of mean `mean_k`, let `x = w_k / w_1` and `m = (mean_1 + x mean_k) / (1 + x)`.
    At the optimum the costs `kl(mean_1, m) + x kl(mean_k, m)` of all other models equal one number `y`, and their `kl(mean_1, m) / kl(mean_k, m)` sum
    to 1. Newton's method in `log x` solves for all `x` and `y` together. It starts at the solution for normal distributions and takes five steps; the
    shares then have errors of at most 1e-4 (a test measures them). Several best models get equal shares.

    Source: Garivier and Kaufmann (2016), Theorem 5.
    """
    size = mean.shape[-1]
    mean = xla.barrier(mean)
    best = jnp.max(mean, axis=-1)
    first = mean == best
    ties = jnp.sum(first.astype(mean.dtype), axis=-1)
    if size == 1:
        return jnp.ones_like(mean)
    others = ~first
    gap = jnp.where(others, best - mean, 1.0)
    cost = jnp.square(gap) / family.variance(0.5 * (best + jnp.where(others, mean, best - 1e-3)))
    cost = jnp.where(others, cost, jnp.inf)
    cost = xla.compute_once(cost)
    relative = xla.compute_once(cost / jnp.min(cost, axis=-1))

    # Normal distributions: x = u / (relative (1 + u) - u), with u that of the closest model, and the sum of squares 1.
    def ratio(u: Array) -> Array:
        return jnp.where(others, u / (jnp.where(others, relative, 1.0) * (1.0 + u) - jnp.where(others, u, 0.0)), 0.0)

    u = jnp.ones_like(best)
    least = (size - 1.0) ** -0.5
    for _ in range(_START_STEPS):
        x = ratio(u)
        squares, slopes = xla.compute_once((jnp.square(x), 2.0 * x * jnp.square(x / u) * jnp.where(others, relative, 0.0)))
        u = jnp.clip(u - (jnp.sum(squares, axis=-1) - 1.0) / jnp.sum(slopes, axis=-1), least, 1.0)
    log_x = jnp.log(jnp.where(others, ratio(u), 1.0))

    low = jnp.where(others, mean, best - gap)
    for _ in range(_STEPS):
        x = jnp.exp(log_x)
        share = 1.0 / (1.0 + x)
        middle = best - x * share * gap
        above = jnp.broadcast_to(best, mean.shape)
        from_best, from_other = family.divergence(above, middle), jnp.maximum(family.divergence(low, middle), 1e-30)
        quotient = from_best / from_other
        slope = x * from_other  # of the cost in log x
        bend = jnp.square(gap) * share**3 / (family.variance(middle) * from_other) * (x + quotient) * x  # of the quotient
        ahead = bend / slope
        # Stored before the sum: a sum that computes its terms is not vectorised over runs.
        parts = xla.compute_once([jnp.where(others, part, 0.0) for part in (ahead * (from_best + slope), quotient, ahead)])
        level, total, pull = (jnp.sum(part, axis=-1) for part in parts)
        y = (1.0 - total + level) / pull
        log_x = xla.compute_once(log_x + jnp.clip((y - from_best - slope) / slope, -1.5, 1.5))
    weight = jnp.where(others, jnp.exp(log_x), 1.0)
    unique = ties == 1.0
    weight = xla.compute_once(jnp.where(unique, weight, first.astype(mean.dtype)))
    return weight / jnp.sum(weight, axis=-1)


def evidence(pulls: Array, mean: Array, family: Family) -> Array:
    """Returns the generalised log-likelihood ratio, a scalar, for the hypothesis that the model with the largest empirical mean is the best.

    Let 1 be the best model. The ratio is the least of `pulls_1 kl(mean_1, m) + pulls_k kl(mean_k, m)` over the other models `k`, where `m` is the
    mean of all rewards of models 1 and `k`. The ratio is 0 if several models share the largest mean, infinite if `K` is 1. `pulls` `[K]` are at least
    1, `mean` `[K]` are empirical means. Source: Garivier and Kaufmann (2016), section 3.2.
    """
    mean = xla.barrier(mean)
    place = numerics.argmax(mean)
    first = numerics.one_hot(place, mean.shape[-1])
    best, times = numerics.pick(first, mean), numerics.pick(first, pulls)
    middle = (times * best + pulls * mean) / (times + pulls)
    above = jnp.broadcast_to(best, mean.shape)
    cost = times * family.divergence(above, middle) + pulls * family.divergence(mean, middle)
    cost = jnp.where(first, jnp.inf, jnp.where(mean < best, cost, 0.0))
    return jnp.min(xla.compute_once(cost), axis=-1)


_METRICS = (
    Metric("decided", "share of runs that have decided", "share", "gauge"),
    Metric("samples", "samples before the decision", "rounds", "gauge"),
)
# Least distance of means in [0, 1] from both ends, where a divergence has no bound.
_MARGIN = 1e-4


def proven_threshold(rounds: Array, num_models: int, delta: Leaf) -> Array:
    """Returns the `evidence` needed to stop after `rounds`: `log(2 rounds (K - 1) / delta)` for `K` models and the error probability `delta`.

    Source: Garivier and Kaufmann (2016), Theorem 10, for Bernoulli rewards.
    """
    return jnp.log(2.0 * rounds * max(num_models - 1, 1) / delta)


def practical_threshold(rounds: Array, num_models: int, delta: Leaf) -> Array:
    """Returns the `evidence` needed to stop after `rounds` at the error probability `delta`: `log((log rounds + 1) / delta)`.

    `num_models` is not used. Source: Garivier and Kaufmann (2016), experiments; there is no proof.
    """
    del num_models
    return jnp.log((jnp.log(rounds) + 1.0) / delta)


@struct.dataclass
class IdentificationState:
    """State of `TrackAndStop`: statistics `arms` of the models up to the decision, and whether a best model has been declared (`decided`, a bool)."""

    arms: ArmStatistics
    decided: Array


@struct.dataclass
class TrackAndStop:
    """Identifies the best model with few samples, and with an error probability of at most `delta`.

    The shares of its samples track the optimal shares for the empirical means (D-tracking: the model with the largest `t share - pulls` is next;
    a model with fewer than `sqrt(t) - K / 2` pulls comes first), until the generalised log-likelihood ratio of the best model exceeds a threshold.
    From then on it uses the recommended model until the run ends. The number of samples grows like `T* log(1 / delta)`, see `characteristic_time`.

    Source: Garivier and Kaufmann (2016), section 3: D-tracking, and Chernoff's stopping rule.

    Differs from the paper: for the shares, means are moved at least 1e-4 away from 0 and 1 (Bernoulli family).

    Attributes:
      delta: `[]` largest probability of a wrong recommendation.
      family: family of reward distributions, for example `families.Gaussian(scale=0.5)`; the default suits rewards in [0, 1].
      threshold: function `(rounds, K, delta)` that returns the threshold (static): `proven_threshold` or `practical_threshold`.
    """

    delta: Leaf = 0.1
    family: Family = Bernoulli()
    threshold: Callable[[Array, int, Leaf], Array] = struct.field(pytree_node=False, default=proven_threshold)

    def check(self) -> None:
        checks.share("delta", self.delta, ())
        checks.part("family", self.family, "variance", "families.Bernoulli()")
        checks.takes("threshold", self.threshold, "rounds", "num_models", "delta")

    metrics = _METRICS

    def init(self, key: Array, spec: Spec) -> IdentificationState:
        return IdentificationState(ArmStatistics.empty(key, spec.num_models), jnp.zeros((), bool))

    def _next(self, pulls: Array, mean: Array, t: Array, order: Array | None) -> Array:
        """Returns the model to sample in round `t` of an undecided run, given its uses `pulls` and mean rewards `mean` `[K]`; `order` breaks ties."""
        if isinstance(self.family, Bernoulli):
            mean = jnp.clip(mean, _MARGIN, 1.0 - _MARGIN)
        rounds = jnp.asarray(t, mean.dtype)
        starved = pulls < jnp.maximum(jnp.sqrt(rounds) - 0.5 * pulls.shape[-1], 0.5)
        short = rounds * optimal_shares(mean, self.family) - pulls
        most = jnp.max(pulls, axis=-1) + rounds + 1.0
        return numerics.argmax(jnp.where(starved, most - pulls, short), order=order)

    def act(self, key: Array, state: IdentificationState, obs: tuple[()], t: Array) -> Choice:
        del key, obs
        pulls = state.arms.pulls.astype(jnp.float32)
        mean = xla.compute_once(state.arms.reward_sum / jnp.maximum(pulls, 1.0))
        order = state.arms.order
        best = numerics.argmax(mean, order=order)
        return jnp.where(state.decided, best, self._next(pulls, mean, t, order)), {"mean": mean}

    def update(
        self, key: Array, state: IdentificationState, obs: tuple[()], action: Array, feedback: Array, t: Array
    ) -> IdentificationState:
        del key, obs
        more = state.arms.add(action, feedback)
        arms = jax.tree.map(lambda old, new: jnp.where(state.decided, old, new), state.arms, more)
        pulls = arms.pulls.astype(jnp.float32)
        rounds = jnp.asarray(t, pulls.dtype) + 1.0
        ratio = evidence(jnp.maximum(pulls, 1.0), arms.reward_sum / jnp.maximum(pulls, 1.0), self.family)
        sure = ratio > self.threshold(rounds, pulls.shape[-1], self.delta)
        return IdentificationState(arms, state.decided | (sure & (jnp.min(arms.pulls, axis=-1) > 0)))

    def gauges(self, state: IdentificationState) -> dict[str, Array]:
        return {"decided": state.decided.astype(jnp.float32), "samples": jnp.sum(state.arms.pulls, axis=-1)}

    def recommendation(self, state: IdentificationState) -> Array:
        """Returns the index of the model with the largest empirical mean, which the policy recommends, an int32 scalar."""
        mean = state.arms.reward_sum / jnp.maximum(state.arms.pulls, 1).astype(jnp.float32)
        return numerics.argmax(mean, order=state.arms.order)


@struct.dataclass
class UniformAndStop(TrackAndStop):
    """Samples models in turn until `TrackAndStop`'s stopping rule holds, then uses the one of largest mean reward. A baseline of ours."""

    def _next(self, pulls: Array, mean: Array, t: Array, order: Array | None) -> Array:
        del mean, t
        return numerics.argmin(pulls, order=order)
