"""Ready-made bandits."""

from collections.abc import Sequence

import numpy as np

from jaxroute.core import checks
from jaxroute.problems.stochastic.env import BanditEnv
from jaxroute.problems.stochastic.sources import bernoulli_law, gaussian_law


def bernoulli(mean: Sequence[float]) -> BanditEnv:
    """Bernoulli bandit with the given success probabilities `[K]`."""
    env = BanditEnv(mean=checks.numbers("mean", mean).astype(np.float32), scale=np.float32(0.0), law=bernoulli_law)
    env.check()
    return env


def gaussian(mean: Sequence[float], scale: float = 1.0) -> BanditEnv:
    """Gaussian bandit with the given means `[K]` and a common standard deviation."""
    means, noise = checks.numbers("mean", mean), checks.non_negative("scale", scale, ())
    env = BanditEnv(mean=means.astype(np.float32), scale=np.float32(noise), law=gaussian_law)
    env.check()
    return env
