"""The paper's baselines, ablations of MESS+, and policies that know the environment."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.service.benchmark import PRICE_STEP
from jaxroute.problems.service.env import Service
from jaxroute.problems.service.messplus import Learner
from jaxroute.problems.service.predictors import Labels, TrueChances
from jaxroute.problems.service.types import Action, Price

_THRESHOLDS = np.round(np.arange(0.9, 0.05, -0.1), 1)


@struct.dataclass
class Fixed:
    """A policy that learns nothing and never explores."""

    def init(self, key, spec) -> tuple:
        del key, spec
        return ()

    def update(self, key, state, obs, action, feedback, t) -> tuple:
        del key, obs, action, feedback, t
        return state


def serve_with(model, energy: Leaf = 0.0) -> Action:
    """The answer of one model, without exploring; energy: J that the decision took."""
    return Action(explore=jnp.zeros((), bool), serve=jnp.asarray(model, jnp.int32), energy=jnp.asarray(energy, jnp.float32))


@struct.dataclass
class Single(Fixed):
    """Always the same model. Source: MESS+, section 4.1.

    model: `[]` index, -1 for the largest.
    """

    model: Leaf = -1

    def check(self) -> None:
        value = checks.numbers("model", self.model, ())
        if value != np.round(value) or value < -1:
            raise ValueError(f"model must be a whole number of at least -1, got {checks.show(self.model)}")

    def act(self, key, state, obs, t):
        del key, state, t
        models = obs.cost.shape[-1]
        model = jnp.asarray(self.model, jnp.int32)
        return serve_with(jnp.where(model < 0, models - 1, model)), {}


@struct.dataclass
class RandomMix(Fixed):
    """Each request goes to a model drawn with fixed chances.

    chances: `[M]`, in proportion; default equal ones.
    """

    chances: Leaf | None = None

    def check(self) -> None:
        if self.chances is not None:
            chances = checks.non_negative("chances", self.chances)
            if chances.ndim != 1 or chances.sum() <= 0:
                raise ValueError(f"chances must be [M] numbers of at least 0, not all 0, got {checks.show(self.chances)}")

    def act(self, key, state, obs, t):
        del state, t
        models = obs.cost.shape[-1]
        chances = jnp.ones(models) if self.chances is None else jnp.asarray(self.chances, jnp.float32)
        if chances.shape != (models,):
            raise ValueError(f"chances must have one entry per model ({models}), got shape {chances.shape}")
        return serve_with(numerics.inverse_cdf(chances, draws.uniform(key))), {}


@struct.dataclass
class EducatedGuessing(RandomMix):
    """A model at random, with chances moved by 1 % at a time until the expected satisfaction reaches the target.

    Source: MESS+, appendix B, the listing "random with constraint". Its target and accuracies are those of the benchmark.
    """

    @classmethod
    def of(cls, env: Service) -> "EducatedGuessing":
        """With the accuracies and the target of an environment."""
        return cls(chances=_guess(jnp.asarray(env.accuracy), jnp.asarray(env.alpha)))


@jax.jit
def _guess(accuracy, alpha):
    """Chances `[M]` of `educated_guess`, traceable."""
    models = accuracy.shape[-1]

    def unmet(state):
        p, sweeps = state
        return (jnp.sum(p * accuracy) < alpha - 1e-6) & (sweeps < 5000)

    def sweep(state):
        p, sweeps = state
        moved = p * jnp.where(accuracy > jnp.sum(p * accuracy), 1.01, 0.99)
        return moved / jnp.sum(moved), sweeps + 1

    start = jnp.full((models,), 1.0 / models, accuracy.dtype)
    p, _ = jax.lax.while_loop(unmet, sweep, (start, jnp.int32(0)))
    # What the listing does if the sweeps do not get there: most of what is left to each better model in turn.
    best, worst = jnp.max(accuracy), jnp.min(accuracy)
    span = jnp.where(best > worst, best - worst, 1.0)
    rank = numerics.rank(accuracy)
    left, rest = 1.0 - models * 1e-10, jnp.full((models,), 1e-10, accuracy.dtype)
    for place in range(models):
        mine = rank == place
        part = left if place == models - 1 else left * 0.8 * (numerics.pick(mine, accuracy) - worst) / span
        rest = jnp.where(mine, part, rest)
        left = left - part
    return jnp.where(unmet((p, jnp.int32(0))), rest / jnp.sum(rest), p)


def educated_guess(accuracy, alpha: float) -> np.ndarray:
    """Chances `[M]` of educated guessing for accuracies `[M]` and a target.

    Source: MESS+, appendix B: all chances equal; while the expected satisfaction is short of `alpha`, those of models that are
    better than it grow by 1 % and the others shrink by 1 %, at most 5,000 times.

    Raises:
      ValueError: `alpha` is above the best accuracy, or a value is not in [0, 1].
    """
    accuracy = checks.probability("accuracy", accuracy)
    if accuracy.ndim != 1 or not accuracy.size:
        raise ValueError(f"accuracy must have shape [models], got {accuracy.shape}")
    alpha = float(checks.probability("alpha", alpha, ()))
    if alpha > accuracy.max():
        raise ValueError(f"alpha must be at most the best accuracy {accuracy.max():g}, got {alpha:g}")
    with jax.enable_x64(True):
        return np.asarray(_guess(jnp.asarray(accuracy, jnp.float64), jnp.float64(alpha)))


@struct.dataclass
class RouteLLM(Fixed):
    """The largest model if a router's score reaches a threshold, else the smallest.

    A stand-in for the paper's router: `sigmoid(offset + spread z + advantage h)` with standard normal `z` and `h` how much better than
    usual the largest model is on this request, in standard deviations. By default the score knows nothing about the request, as in
    Table 2, where it does no better than chance; `knowing` makes one that does.

    Source: MESS+, section 4.1 and appendix B, RouteLLM with thresholds .1 to .9.

    threshold, offset, spread, advantage: `[]`. energy: `[]`, J per request that the router takes.
    usual, deviation: `[]`, mean and standard deviation of the largest model's chance minus the smallest's.
    predictor: `TrueChances`, needed if `advantage` is to count.
    """

    threshold: Leaf = 0.6
    offset: Leaf = 0.94
    spread: Leaf = 0.5
    advantage: Leaf = 0.0
    energy: Leaf = 0.0
    usual: Leaf = 0.0
    deviation: Leaf = 1.0
    predictor: Any = None

    def check(self) -> None:
        checks.probability("threshold", self.threshold, ())
        checks.numbers("offset", self.offset, ())
        checks.positive("spread", self.spread, ())
        checks.numbers("advantage", self.advantage, ())
        checks.non_negative("energy", self.energy, ())
        if self.predictor is None and np.any(np.asarray(self.advantage) != 0):
            raise ValueError("advantage needs a predictor, TrueChances(env.requests)")
        checks.positive("deviation", self.deviation, ())
        if self.predictor is not None and (not hasattr(self.predictor, "chances") or self.predictor.trains):
            raise ValueError(f"predictor must be TrueChances(...), got {checks.show(self.predictor)}")

    def init(self, key, spec) -> tuple:
        return () if self.predictor is None else self.predictor.init(key, spec)

    def act(self, key, state, obs, t):
        del t
        lean = self.offset + self.spread * draws.normal(key)
        if self.predictor is not None:
            chance = self.predictor.chances(state, obs)
            lean = lean + self.advantage * (chance[-1] - chance[0] - self.usual) / self.deviation
        score = jax.nn.sigmoid(lean)
        return serve_with(jnp.where(score >= self.threshold, obs.cost.shape[-1] - 1, 0), self.energy), {"score": score}

    @classmethod
    def knowing(cls, env: Service, advantage: float, **options: Any) -> "RouteLLM":
        """A router whose score rises by `advantage` with each standard deviation of the largest model's advantage; not for tables."""
        contexts = env.requests.contexts()
        gain = contexts.success[:, -1] - contexts.success[:, 0]
        usual = float(contexts.weight @ gain)
        deviation = float(np.sqrt(contexts.weight @ (gain - usual) ** 2))
        if deviation < 1e-9:
            raise ValueError("env must tell requests apart: the largest model's advantage is the same on all of them")
        predictor = TrueChances(env.requests)
        return cls(
            advantage=advantage, usual=np.float32(usual), deviation=np.float32(deviation), predictor=predictor, **options
        )

    @classmethod
    def of(cls, env: Service, **options: Any) -> "RouteLLM":
        """Calibrated: the largest threshold of .9, .8, ..., .1 at which a router without `advantage` satisfies often enough.

        The paper's own thresholds are often lower (Table 5): with them it calls the large model more than it would have to.
        """
        router = cls(**options)
        strong = strong_share(jnp.asarray(_THRESHOLDS, jnp.float32), router.offset, router.spread)
        satisfied = strong * env.accuracy[-1] + (1.0 - strong) * env.accuracy[0]
        good = jnp.where(satisfied >= env.alpha, jnp.asarray(_THRESHOLDS, jnp.float32), 0.0)
        return router.replace(threshold=jnp.max(good))


def strong_share(threshold, offset, spread):
    """Share of requests whose score `sigmoid(offset + spread z)` reaches a threshold in (0, 1)."""
    logit = jnp.log(threshold) - jnp.log1p(-threshold)
    return jax.scipy.stats.norm.sf((logit - offset) / spread)


def calibrate_threshold(satisfaction, alpha: float, thresholds=_THRESHOLDS) -> float:
    """The largest threshold at which the share of satisfied requests is at least `alpha`, 0 if there is none.

    Source: MESS+, appendix B: thresholds .1 to .9 in steps of .1. satisfaction: `[n]`, of each threshold.
    """
    thresholds = checks.probability("thresholds", thresholds)
    good = thresholds[checks.probability("satisfaction", satisfaction, thresholds.shape) >= alpha]
    return float(good.max()) if good.size else 0.0


@struct.dataclass
class ShadowPrice(Learner):
    """MESS+ with the queue held at its long-run level: the least `cost - price * predicted satisfaction`.

    price: `[]`, J per unit of satisfaction.
    """

    price: Leaf = struct.field(default=1000.0, kw_only=True)

    def check(self) -> None:
        Learner.check(self)
        checks.non_negative("price", self.price, ())

    def score(self, queue, cost, chance, alpha):
        del queue, alpha
        return cost - self.price * chance


@struct.dataclass
class MostSatisfying(Learner):
    """The model that is most likely to satisfy, whatever it costs: MESS+ with V = 0 while the queue is not empty."""

    def score(self, queue, cost, chance, alpha):
        del queue, cost, alpha
        return -chance


@struct.dataclass
class CheapestAbove(Learner):
    """The cheapest model whose predicted satisfaction reaches the target on this very request, else the one likeliest to satisfy."""

    def score(self, queue, cost, chance, alpha):
        del queue
        above = chance >= alpha
        return jnp.where(jnp.any(above), jnp.where(above, cost, jnp.inf), -chance)


@struct.dataclass
class OracleBlind(RandomMix):
    """The best mixture of models that does not look at requests."""

    @classmethod
    def of(cls, env: Service) -> "OracleBlind":
        """The oracle of an environment."""
        return cls(chances=env.blind_choice)


@struct.dataclass
class _Priced(Fixed):
    """The least `cost - price * chance` at a price a little above or below the shadow price, which mixes the best two choices.

    price: the shadow price. predictor: `TrueChances` or `Labels`.
    """

    price: Price
    predictor: Any

    def init(self, key, spec) -> tuple:
        if not spec.knows_cost:
            raise ValueError("this oracle needs an environment with knows_cost=True")
        return self.predictor.init(key, spec)

    def act(self, key, state, obs, t):
        del t
        above = draws.uniform(key) < self.price.part
        price = self.price.price * jnp.where(above, 1.0 + PRICE_STEP, 1.0 - PRICE_STEP)
        price = jnp.maximum(price, 1e-5 * jnp.max(obs.cost))  # Of models that cost the same the one that satisfies more.
        return serve_with(numerics.argmin(obs.cost - price * self.predictor.chances(state, obs))), {}


@struct.dataclass
class OracleInformed(_Priced):
    """The best stationary policy that knows each model's chance given the features: the benchmark of Theorem 2.

    Source: MESS+, Theorem 2, "a stationary policy with full statistical knowledge".
    """

    @classmethod
    def of(cls, env: Service) -> "OracleInformed":
        """The oracle of an environment; a table has none."""
        return cls(price=env.best, predictor=TrueChances(env.requests))


@struct.dataclass
class OracleClairvoyant(_Priced):
    """The best policy that sees who will satisfy. The environment must be made with `reveals_labels=True`."""

    @classmethod
    def of(cls, env: Service) -> "OracleClairvoyant":
        """The oracle of an environment."""
        return cls(price=env.clairvoyant, predictor=Labels())
