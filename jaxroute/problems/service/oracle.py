"""Oracles: policies that serve each request by an optimal choice of models, computed in the module `optimum`."""

from typing import final

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import draws, numerics
from jaxroute.core.protocols import Info, optional
from jaxroute.core.types import FixedPolicy
from jaxroute.problems.service.baselines import RandomMix, serve_with
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.optimum import PRICE_STEP
from jaxroute.problems.service.parts.predictors import Labels, Predictor, TrueProbabilities
from jaxroute.problems.service.types import Action, Observation, Params, Price, ServiceSpec


@final
@struct.dataclass
class OracleBlind(RandomMix):
    """Policy that draws models with the probabilities of the cheapest mixture that meets the target without observing requests (`best_blind`)."""

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleBlind":
        return cls(probabilities=env.blind_choice)


@struct.dataclass
class PricedOracle(FixedPolicy):
    """Policy that serves with the model of least `cost - price * probability`, for the model's probability of satisfying the request.

    The price of a request is drawn: just above or just below the shadow price (by a factor of `1 +- PRICE_STEP`). This mixes the two choices that are
    optimal at the shadow price, so that the target is met exactly.

    Attributes:
      price: `Price` with the shadow price of satisfaction (field `price`), and the probability that a request uses the higher price (field `part`).
      predictor: source of the probabilities, `TrueProbabilities` or `Labels`.
    """

    price: Price
    predictor: Predictor

    def check_spec(self, spec: ServiceSpec) -> None:
        optional(self.predictor, "check_spec", spec)

    def init(self, key: Array, spec: ServiceSpec) -> Params:
        if not spec.knows_cost:
            raise ValueError("this oracle needs an environment with knows_cost=True")
        return self.predictor.init(key, spec)

    def act(self, key: Array, state: Params, obs: Observation, t: Array) -> tuple[Action, Info]:
        del t
        above = draws.uniform(key) < self.price.part
        price = self.price.price * jnp.where(above, 1.0 + PRICE_STEP, 1.0 - PRICE_STEP)
        price = jnp.maximum(price, 1e-5 * jnp.max(obs.cost))  # Among equally expensive models the more satisfying one.
        return serve_with(numerics.argmin(obs.cost - price * self.predictor.probabilities(state, obs))), {}


@final
@struct.dataclass
class OracleInformed(PricedOracle):
    """Best stationary policy that knows each model's probability of satisfaction given the features (`best_informed`).

    Source: MESS+, Theorem 2, "a stationary policy with full statistical knowledge".
    """

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleInformed":
        """Returns the best informed policy of `env`. With requests of a table its simulation raises `ValueError`: their probabilities are unknown."""
        return cls(price=env.best, predictor=TrueProbabilities(env.requests))


@final
@struct.dataclass
class OracleClairvoyant(PricedOracle):
    """Cheapest policy that meets the target, knowing which models satisfy a request and their costs. The environment needs `reveals_labels=True`."""

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleClairvoyant":
        return cls(price=env.clairvoyant, predictor=Labels())
