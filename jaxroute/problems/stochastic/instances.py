"""Functions that build ready-made bandits with fixed or changing means, or with the rewards of a log."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxroute.core import checks
from jaxroute.data import ServedLog
from jaxroute.problems.stochastic.env import BanditEnv, ChangingEnv, ServedEnv
from jaxroute.problems.stochastic.sources import BrownianMotion, MarkovChains, Pieces, Sinusoid
from jaxroute.sources.distributions import Bernoulli, Beta, Distribution, Exponential, Gaussian, Poisson
from jaxroute.sources.served import ServedRequests


def bernoulli(mean: ArrayLike) -> BanditEnv:
    """Builds a Bernoulli bandit with the given success probabilities `[K]`."""
    return _fixed(Bernoulli(), mean)


def gaussian(mean: ArrayLike, scale: float = 1.0) -> BanditEnv:
    """Builds a Gaussian bandit with the given means `[K]` and the common standard deviation `scale`."""
    return _fixed(Gaussian(), mean, float(checks.non_negative("scale", scale, ())))


def beta(mean: ArrayLike, concentration: float = 10.0) -> BanditEnv:
    """Builds a bandit with beta rewards in [0, 1], with the given means `[K]` and a common concentration `a + b` of the beta parameters `a` and `b`.

    Here `a = mean (a + b)`, and both must be at least 1 for every model. The variance is `mean (1 - mean) / (concentration + 1)`.
    """
    return _fixed(Beta(), mean, float(checks.positive("concentration", concentration, ())))


def poisson(mean: ArrayLike) -> BanditEnv:
    """Builds a bandit with Poisson rewards (counts) of the given means `[K]`, at most 64."""
    means = checks.non_negative("mean", mean, ("K",)).astype(np.float32)
    Poisson(1).check_mean("mean", means, 0.0)
    return _fixed(Poisson.of(means), mean)


def exponential(mean: ArrayLike) -> BanditEnv:
    """Builds a bandit with exponential rewards of the given means `[K]`, above 0."""
    return _fixed(Exponential(), mean)


def piecewise(means: ArrayLike, starts: ArrayLike) -> ChangingEnv:
    """Builds a Bernoulli bandit with abrupt changes of the success probabilities.

    Args:
      means: `[P, K]` probabilities in each of `P` pieces.
      starts: `[P]` first round of each piece, rising from 0.
    """
    path = Pieces(checks.probability("means", means).astype(np.float32), checks.numbers("starts", starts))
    path.check()
    return _changing(path.replace(starts=np.asarray(path.starts, np.int32)))


def garivier_moulines() -> ChangingEnv:
    """Builds the bandit with abrupt changes of Garivier and Moulines (2011): three models and 10,000 rounds.

    The third model has mean .4, and .9 from round 3,000 to round 5,000; the others have .5 and .3 throughout.
    """
    return piecewise([[0.5, 0.3, 0.4], [0.5, 0.3, 0.9], [0.5, 0.3, 0.4]], [0, 3000, 5000])


def drifting(mean: ArrayLike, step: float = 0.005) -> ChangingEnv:
    """Builds a Bernoulli bandit whose success probabilities are Gaussian random walks, reflected at 0 and 1.

    Args:
      mean: `[K]` probabilities of the first round.
      step: standard deviation of a round's step, above 0 and at most 1/8.
    """
    start = checks.probability("mean", mean, ("K",)).astype(np.float32)
    return _changing(BrownianMotion(start, np.float32(checks.positive("step", step, ()))))


def sinusoidal(mean: ArrayLike, amplitude: float = 0.3, period: float = 2000.0) -> ChangingEnv:
    """Builds a Bernoulli bandit with sinusoidal success probabilities; the phases of the models are equally spaced.

    Args:
      mean: `[K]` average probabilities.
      amplitude: largest distance from the averages; all probabilities must stay in [0, 1].
      period: number of rounds of a period.
    """
    centre = checks.probability("mean", mean, ("K",)).astype(np.float32)
    swing = np.float32(checks.non_negative("amplitude", amplitude, ()))
    checks.probability("mean - amplitude", np.round(centre - swing, 6))
    checks.probability("mean + amplitude", np.round(centre + swing, 6))
    phase = (np.arange(centre.size) / centre.size).astype(np.float32)
    return _changing(Sinusoid(centre, np.full_like(centre, swing), phase, np.float32(period)))


def restless(low: ArrayLike, high: ArrayLike, up: ArrayLike, down: ArrayLike) -> ChangingEnv:
    """Builds a restless Bernoulli bandit: the success probability of each model jumps between two values, whether it is used or not.

    Regret is measured against the best model of each round, which no policy can know.

    Args:
      low, high: `[K]` lower and higher success probability of each model.
      up, down: `[K]` probability, after each round, of a change from `low` to `high`, and from `high` to `low`.
    """
    values = (checks.probability(name, v, ("K",)) for name, v in (("low", low), ("high", high)))
    probabilities = (checks.share(name, v, ("K",)) for name, v in (("up", up), ("down", down)))
    return _changing(MarkovChains(*(x.astype(np.float32) for x in (*values, *probabilities))))


def served_routing(
    log: ServedLog, *, cost_weight: float = 0.0, floor: float | None = None, bootstrap: bool = False
) -> ServedEnv:
    """Builds an environment that evaluates policies on a log of served queries (see `ServedEnv` for the conditions).

    Simulate a horizon that all runs reach: the total of `accepted` is then the number of rounds.

    Args:
      log: served log with propensities.
      cost_weight: score per unit of cost; the reward is the score minus `cost_weight` times the cost.
      floor: least probability of any model on any query, at most the smallest propensity; None for the smallest propensity of each model.
      bootstrap: whether each run draws `Q` events with replacement; otherwise it has each event once, in a random order.
    """
    checks.instance("log", log, ServedLog)
    return ServedEnv(ServedRequests.of(log, floor=floor, by_model=True, cost_weight=cost_weight, bootstrap=bootstrap))


def _fixed(distribution: Distribution, mean: ArrayLike, scale: float = 0.0) -> BanditEnv:
    means = checks.numbers("mean", mean, ("K",)).astype(np.float32)
    env = BanditEnv(mean=means, scale=np.float32(scale), distribution=distribution)
    env.check()
    return env


def _changing(path: Any) -> ChangingEnv:
    env = ChangingEnv(path=path, scale=np.float32(0.0))
    env.check()
    return env
