"""K-armed stochastic bandit: each model has a fixed reward law, and only the chosen model's reward is seen."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Spec
from jaxroute.problems.stochastic.types import METRICS


def bernoulli_law(key, mean, scale):
    """Reward 1 with probability `mean`, else 0; one uniform drives all models. Shapes: mean `[K]`; returns `[K]`."""
    del scale
    return (draws.uniform(key) < mean).astype(jnp.float32)


def gaussian_law(key, mean, scale):
    """Normal rewards with standard deviation `scale`; one shock drives all models. Shapes: mean `[K]`; returns `[K]`."""
    return mean + scale * draws.normal(key)


@struct.dataclass
class Bandit:
    """A K-armed bandit with fixed means.

    The rewards of all models are drawn in every round from one shared shock. As only one of them is seen, the law of a run is that
    of independent rewards, while two policies that differ in a few rounds meet the same luck (smaller error of differences).

    mean: `[K]` expected reward of each model.
    scale: `[]` standard deviation of the noise (Gaussian law).
    law: reward law, `(key, mean, scale) -> rewards [K]` (static).
    """

    mean: Leaf
    scale: Leaf
    law: Callable = struct.field(pytree_node=False, default=bernoulli_law)

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

    def init(self, key):
        del key
        return ()

    def observe(self, key, state, t):
        del key, state, t
        return ()

    def step(self, key, state, action, t):
        del t
        chosen = numerics.one_hot(action, self.mean.shape[-1])
        reward = numerics.pick(chosen, self.law(key, self.mean, self.scale))
        flows = {
            "regret": jnp.max(self.mean) - numerics.pick(chosen, self.mean),
            "reward": reward,
            "pulls": chosen.astype(jnp.float32),
        }
        return state, reward, flows


def bernoulli(mean: Sequence[float]) -> Bandit:
    """Bernoulli bandit with the given success probabilities `[K]`."""
    env = Bandit(mean=checks.numbers("mean", mean).astype(np.float32), scale=np.float32(0.0), law=bernoulli_law)
    env.check()
    return env


def gaussian(mean: Sequence[float], scale: float = 1.0) -> Bandit:
    """Gaussian bandit with the given means `[K]` and a common standard deviation."""
    means, noise = checks.numbers("mean", mean), checks.non_negative("scale", scale, ())
    env = Bandit(mean=means.astype(np.float32), scale=np.float32(noise), law=gaussian_law)
    env.check()
    return env
