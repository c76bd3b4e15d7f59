"""Best-arm identification: Track-and-Stop, and uniform sampling with the same stopping rule."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.estimators.families import Bernoulli, Family, check_family
from jaxroute.problems.stochastic.parts.allocation import evidence, optimal_shares
from jaxroute.problems.stochastic.types import ArmStatistics, Choice

_METRICS = (
    Metric("decided", "share of runs that have decided", "share", "gauge"),
    Metric("samples", "samples before the decision", "rounds", "gauge"),
)
# Least distance of means in [0, 1] from both ends, where a divergence has no bound.
_MARGIN = 1e-4


def proven_threshold(rounds: jax.Array, num_models: int, delta: Leaf) -> jax.Array:
    """Returns `log(2 t (K - 1) / delta)`, for an error probability of at most `delta` (Bernoulli rewards).

    Source: Garivier and Kaufmann (2016), Theorem 10.
    """
    return jnp.log(2.0 * rounds * max(num_models - 1, 1) / delta)


def practical_threshold(rounds: jax.Array, num_models: int, delta: Leaf) -> jax.Array:
    """Returns `log((log t + 1) / delta)`, which is lower and has no proof.

    Source: Garivier and Kaufmann (2016), their experiments.
    """
    del num_models
    return jnp.log((jnp.log(rounds) + 1.0) / delta)


@struct.dataclass
class IdentificationState:
    """Statistics of every model, constant after the decision.

    Attributes:
      arms: statistics of every model.
      decided: `[]` bool, whether the policy has decided.
    """

    arms: ArmStatistics
    decided: jax.Array


@struct.dataclass
class TrackAndStop:
    """Identifies the best model with few samples, and with an error probability of at most `delta`.

    The shares of its samples track those that are optimal for the empirical means (D-tracking: the model with the largest `t share - pulls`;
    one with fewer than `sqrt(t) - K / 2` pulls comes first), until the generalised likelihood ratio of the best model exceeds a threshold.
    From then on it uses the recommended model, as a run has a fixed horizon. Samples grow like `T* log(1 / delta)`, see `characteristic_time`.

    Source: Garivier and Kaufmann (2016), section 3: D-tracking, and Chernoff's stopping rule.

    Differs from the paper: for the shares, means are moved at least 1e-4 away from 0 and 1 (Bernoulli family).

    Attributes:
      delta: `[]` largest probability of a wrong recommendation.
      family: family of reward distributions; see `KLUCB`.
      threshold: threshold of the likelihood ratio, `(rounds, K, delta) -> []` (static): `proven_threshold` or `practical_threshold`.
    """

    delta: Leaf = 0.1
    family: Family = Bernoulli()
    threshold: Callable[[jax.Array, int, Leaf], jax.Array] = struct.field(pytree_node=False, default=proven_threshold)

    def check(self) -> None:
        checks.share("delta", self.delta, ())
        check_family("family", self.family)
        checks.takes("threshold", self.threshold, "rounds", "num_models", "delta")

    metrics = _METRICS

    def init(self, key: jax.Array, spec: Spec) -> IdentificationState:
        return IdentificationState(ArmStatistics.empty(key, spec.num_models), jnp.zeros((), bool))

    def _next(self, pulls: jax.Array, mean: jax.Array, t: jax.Array, order: jax.Array | None) -> jax.Array:
        """Returns the model to sample in round `t`, before a decision."""
        if isinstance(self.family, Bernoulli):
            mean = jnp.clip(mean, _MARGIN, 1.0 - _MARGIN)
        rounds = jnp.asarray(t, mean.dtype)
        starved = pulls < jnp.maximum(jnp.sqrt(rounds) - 0.5 * pulls.shape[-1], 0.5)
        short = rounds * optimal_shares(mean, self.family) - pulls
        most = jnp.max(pulls, axis=-1) + rounds + 1.0
        return numerics.argmax(jnp.where(starved, most - pulls, short), order=order)

    def act(self, key: jax.Array, state: IdentificationState, obs: tuple[()], t: jax.Array) -> Choice:
        del key, obs
        pulls = state.arms.pulls.astype(jnp.float32)
        mean = xla.compute_once(state.arms.reward_sum / jnp.maximum(pulls, 1.0))
        order = state.arms.order
        best = numerics.argmax(mean, order=order)
        return jnp.where(state.decided, best, self._next(pulls, mean, t, order)), {"mean": mean}

    def update(
        self,
        key: jax.Array,
        state: IdentificationState,
        obs: tuple[()],
        action: jax.Array,
        feedback: jax.Array,
        t: jax.Array,
    ) -> IdentificationState:
        del key, obs
        more = state.arms.add(action, feedback)
        arms = jax.tree.map(lambda old, new: jnp.where(state.decided, old, new), state.arms, more)
        pulls = arms.pulls.astype(jnp.float32)
        rounds = jnp.asarray(t, pulls.dtype) + 1.0
        ratio = evidence(jnp.maximum(pulls, 1.0), arms.reward_sum / jnp.maximum(pulls, 1.0), self.family)
        sure = ratio > self.threshold(rounds, pulls.shape[-1], self.delta)
        return IdentificationState(arms, state.decided | (sure & (jnp.min(arms.pulls, axis=-1) > 0)))

    def gauges(self, state: IdentificationState) -> dict[str, jax.Array]:
        return {"decided": state.decided.astype(jnp.float32), "samples": jnp.sum(state.arms.pulls, axis=-1)}

    def recommendation(self, state: IdentificationState) -> jax.Array:
        """Returns the model with the largest empirical mean, int32 `[]`."""
        mean = state.arms.reward_sum / jnp.maximum(state.arms.pulls, 1).astype(jnp.float32)
        return numerics.argmax(mean, order=state.arms.order)


@struct.dataclass
class UniformAndStop(TrackAndStop):
    """Samples the models in turn until `TrackAndStop`'s stopping rule decides, and then uses the best one.

    Source: ours as a baseline; the stopping rule is that of Garivier and Kaufmann (2016), who compare with other policies.
    """

    def _next(self, pulls: jax.Array, mean: jax.Array, t: jax.Array, order: jax.Array | None) -> jax.Array:
        del mean, t
        return numerics.argmin(pulls, order=order)
