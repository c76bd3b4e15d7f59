"""The least regret that any consistent policy can have, and the most that UCB1 can."""

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.problems.stochastic.env import BanditEnv
from jaxroute.problems.stochastic.sources import bernoulli_law


def lai_robbins(env: BanditEnv, t: ArrayLike) -> np.ndarray:
    """The Lai-Robbins line: `sum over suboptimal k of (best - mean_k) / KL(mean_k, best) * log t`.

    The regret of every consistent policy grows at least like this line (as `t` goes to infinity; at a finite `t` a policy may be
    below it).

    Source: Lai and Robbins (1985), Theorem 2.

    Args:
      env: a bandit with the Bernoulli or the Gaussian law.
      t: rounds, array of any shape, at least 1.

    Returns:
      The line at `t`, float64, in units of reward.
    """
    mean = np.asarray(env.mean, np.float64)
    best = mean.max()
    worse = mean[mean < best]
    if env.law is bernoulli_law:
        with np.errstate(divide="ignore", invalid="ignore"):
            kl = np.where(worse > 0, worse * np.log(worse / best), 0.0)
            kl += np.where(worse < 1, (1 - worse) * np.log((1 - worse) / (1 - best)), 0.0)
    else:
        kl = (best - worse) ** 2 / (2 * float(env.scale) ** 2)
    return np.sum((best - worse) / kl) * np.log(np.asarray(t, np.float64))


def auer_bound(env: BanditEnv, t: ArrayLike) -> np.ndarray:
    """UCB1's bound: `sum over suboptimal k of 8 log t / gap_k + (1 + pi^2 / 3) sum of gap_k`, for rewards in [0, 1].

    Source: Auer, Cesa-Bianchi and Fischer (2002), Theorem 1.

    Args:
      env: a bandit.
      t: rounds, array of any shape, at least 1.

    Returns:
      The bound at `t`, float64, in units of reward.
    """
    mean = np.asarray(env.mean, np.float64)
    gaps = mean.max() - mean
    gaps = gaps[gaps > 0]
    return np.sum(8.0 / gaps) * np.log(np.asarray(t, np.float64)) + (1 + np.pi**2 / 3) * gaps.sum()
