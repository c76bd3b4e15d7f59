"""Bounds of the regret (float64, in units of reward), and the least number of samples of best-arm identification."""

import functools
import math

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks
from jaxroute.problems.stochastic.env import BanditEnv
from jaxroute.sources.distributions import Beta, Distribution

# Bisection steps in float64.
_HALVINGS = 60


def lai_robbins(env: BanditEnv, t: ArrayLike) -> np.ndarray:
    """Returns the asymptotic lower bound on the regret of Lai and Robbins: `sum over suboptimal k of (best - mean_k) / KL(mean_k, best) * log t`.

    The regret of every consistent policy grows at least like this line as `t` goes to infinity; at a finite `t` a policy may be below it. Source: Lai
    and Robbins (1985).

    Args:
      env: bandit with fixed means; for beta rewards `KL` is between beta distributions of the same concentration.
      t: numbers of rounds, an array of any shape, at least 1.
    """
    mean = np.asarray(env.mean, np.float64)
    best = mean.max()
    worse = mean[mean < best]
    return np.sum((best - worse) / _divergence(env, worse, best)) * np.log(np.asarray(t, np.float64))


def _divergence(env: BanditEnv, mean: np.ndarray, other: ArrayLike) -> np.ndarray:
    """Returns the Kullback-Leibler divergence of the environment's reward distribution with mean `mean` from that with mean `other`, elementwise."""
    if not isinstance(env.distribution, Distribution):
        raise ValueError(f"distribution must be one of jaxroute.sources.distributions, got {checks.show(env.distribution)}")
    return env.distribution.divergence(mean, other, float(env.scale))


def auer_bound(env: BanditEnv, t: ArrayLike) -> np.ndarray:
    """Returns UCB1's regret bound after `t` rounds: `sum over suboptimal k of 8 log t / gap_k + (1 + pi^2 / 3) sum of gap_k`.

    A gap is the best mean less the model's mean; rewards are in [0, 1]. Source: Auer, Cesa-Bianchi and Fischer (2002), Theorem 1.
    """
    mean = np.asarray(env.mean, np.float64)
    gaps = mean.max() - mean
    gaps = gaps[gaps > 0]
    return np.sum(8.0 / gaps) * np.log(np.asarray(t, np.float64)) + (1 + np.pi**2 / 3) * gaps.sum()


def minimax_bound(num_models: int, t: ArrayLike) -> np.ndarray:
    """Returns MOSS's regret bound `49 sqrt(K T)` for `K` models, horizons `T = t` and any rewards in [0, 1]. Source: Audibert and Bubeck (2009)."""
    return 49.0 * np.sqrt(checks.count("num_models", num_models) * np.asarray(t, np.float64))


def minimax_lower_bound(num_models: int, t: ArrayLike) -> np.ndarray:
    """Returns the lower bound `min(sqrt(K T), T) / 20`: every policy has at least this regret for some means in [0, 1].

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), Theorem 5.1.

    Args:
      num_models: number of models `K`, at least 2.
      t: numbers of rounds `T`, an array of any shape.
    """
    rounds = np.asarray(t, np.float64)
    return np.minimum(np.sqrt(checks.count("num_models", num_models, 2) * rounds), rounds) / 20.0


def exp3_bound(num_models: int, t: ArrayLike) -> np.ndarray:
    """Returns Exp3's regret bound `2 sqrt((e - 1) T K log K)` for the horizons `T = t` for which it is tuned, for any rewards in [0, 1].

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), Corollary 3.2.
    """
    size = checks.count("num_models", num_models)
    return 2.0 * np.sqrt((math.e - 1.0) * np.asarray(t, np.float64) * size * math.log(size))


def characteristic_time(env: BanditEnv) -> float:
    """Returns the factor `T*` of best-arm identification: an error probability of `delta` requires `T* kl(delta, 1 - delta)` samples on average.

    For small `delta` this is about `T* log(1 / delta)`, which Track-and-Stop reaches. Let model 1 be the best and `w` the `optimal_weights`. The
    inverse of `T*` is the least of `w_1 kl(mean_1, m) + w_k kl(mean_k, m)` over the other models `k`, with `m = (w_1 mean_1 + w_k mean_k) / (w_1 +
    w_k)`. The bandit needs fixed means, one best model, and a distribution with one parameter. Source: Garivier and Kaufmann (2016), Theorem 1 and
    Lemma 3.
    """
    mean, kl = np.asarray(env.mean, np.float64), functools.partial(_divergence, env)
    weight = optimal_weights(env)
    best = int(mean.argmax())
    others = np.arange(mean.size) != best
    middle = (weight[best] * mean[best] + weight * mean) / (weight[best] + weight)
    cost = weight[best] * kl(np.full_like(mean, mean[best]), middle) + weight * kl(mean, middle)
    return float(1.0 / cost[others].min())


def optimal_weights(env: BanditEnv) -> np.ndarray:
    """Returns the shares of samples, summing to 1, with which the best model is identified soonest, by two nested bisections in float64.

    The bandit needs fixed means, one best model, and a distribution with one parameter. Source: Garivier and Kaufmann (2016), Theorem 5.
    """
    if isinstance(env.distribution, Beta):
        raise ValueError("distribution must be one of an exponential family of one parameter, got Beta()")
    mean, kl = np.asarray(env.mean, np.float64), functools.partial(_divergence, env)
    best = int(mean.argmax())
    if mean.size < 2 or np.sum(mean == mean[best]) > 1:
        raise ValueError(f"mean must have one largest of at least two values, got {mean.tolist()}")
    others = np.delete(mean, best)
    top = np.full_like(others, mean[best])

    def middle(part: np.ndarray) -> np.ndarray:
        return (1.0 - part) * mean[best] + part * others

    def parts(y: float) -> np.ndarray:
        # Per model `k` but the best, 1: `x / (1 + x)` for the root `x = w_k / w_1` of `kl(mean_1, m) + x kl(mean_k, m) = y`, `m` from `middle`.
        low, high = np.zeros_like(others), np.ones_like(others)
        for _ in range(_HALVINGS):
            part = (low + high) / 2.0
            with np.errstate(divide="ignore", invalid="ignore"):  # For a mean of 0 or 1 the share may round to 1.
                below = kl(top, middle(part)) + part / (1.0 - part) * kl(others, middle(part)) < y
            low, high = np.where(below, part, low), np.where(below, high, part)
        return (low + high) / 2.0

    low, high = 0.0, float(np.min(kl(top, others)))
    if not np.isfinite(high):  # For a mean of 0 or 1 the cost has no bound.
        high = float(np.min(kl(top, (top + others) / 2.0))) * 1e6
    for _ in range(_HALVINGS):
        y = (low + high) / 2.0
        at = middle(parts(y))
        with np.errstate(divide="ignore"):
            below = np.sum(kl(top, at) / kl(others, at)) < 1.0
        low, high = (y, high) if below else (low, y)
    part = parts(low)
    weight = np.insert(part / (1.0 - part), best, 1.0)
    return weight / weight.sum()
