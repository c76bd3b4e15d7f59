"""K-armed stochastic bandit: each model has a fixed reward law, and only the chosen model's reward is seen."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.sources import bernoulli_law
from jaxroute.problems.stochastic.types import METRICS


@struct.dataclass
class BanditEnv:
    """A K-armed bandit with fixed means.

    The rewards of all models are drawn in every round from one shared shock. As only one of them is seen, the law of a run is that
    of independent rewards, while two policies that differ in a few rounds meet the same luck (smaller error of differences).

    Attributes:
      mean: `[K]` expected reward of each model.
      scale: `[]` standard deviation of the noise (Gaussian law).
      law: reward law, `(key, mean, scale) -> rewards [K]` (static).
    """

    mean: Leaf
    scale: Leaf
    law: Callable[[jax.Array, Leaf, Leaf], jax.Array] = struct.field(pytree_node=False, default=bernoulli_law)

    @property
    def spec(self) -> Spec:
        return Spec(num_models=self.mean.shape[-1], metrics=METRICS)

    def check(self) -> None:
        if np.ndim(self.mean) != 1 or np.size(self.mean) < 1:
            raise ValueError(f"mean must have shape [K] with K >= 1, got shape {np.shape(self.mean)}")
        if self.law is bernoulli_law:
            checks.probability("mean", self.mean)
        checks.numbers("mean", self.mean)
        checks.non_negative("scale", self.scale, ())

    def init(self, key: jax.Array) -> tuple[()]:
        del key
        return ()

    def observe(self, key: jax.Array, state: tuple[()], t: jax.Array) -> tuple[()]:
        del key, state, t
        return ()

    def step(
        self, key: jax.Array, state: tuple[()], action: jax.Array, t: jax.Array
    ) -> tuple[tuple[()], jax.Array, dict[str, jax.Array]]:
        del t
        chosen = numerics.one_hot(action, self.mean.shape[-1])
        reward = numerics.pick(chosen, self.law(key, self.mean, self.scale))
        flows = {
            "regret": jnp.max(self.mean) - numerics.pick(chosen, self.mean),
            "reward": reward,
            "pulls": chosen.astype(jnp.float32),
        }
        return state, reward, flows
