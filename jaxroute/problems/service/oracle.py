"""Oracles: policies that apply the optima of `optimum` request by request."""

import abc
from typing import final

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.problems.service.baselines import Mixture, StaticPolicy, serve_with
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.optimum import PRICE_STEP
from jaxroute.problems.service.parts.predictors import Labels, Predictor, TrueProbabilities
from jaxroute.problems.service.types import Action, Observation, Params, Price, ServiceSpec


@final
@struct.dataclass
class OracleBlind(Mixture):
    """Best blind mixture of models."""

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleBlind":
        """Returns the oracle of an environment."""
        return cls(probabilities=env.blind_choice)


@struct.dataclass
class PricedOracle(StaticPolicy):
    """Policy of least `cost - price * probability`, at prices just above and below the shadow price, which mix the best two choices.

    The subclasses `OracleInformed` and `OracleClairvoyant` provide price and probabilities.

    Attributes:
      price: shadow price.
      predictor: `TrueProbabilities` or `Labels`.
    """

    price: Price
    predictor: Predictor

    @classmethod
    @abc.abstractmethod
    def of(cls, env: ServiceEnv) -> "PricedOracle":
        """Returns the oracle of an environment."""

    def check_spec(self, spec: ServiceSpec) -> None:
        if isinstance(self.predictor, TrueProbabilities):
            self.predictor.check_spec(spec)

    def init(self, key: jax.Array, spec: ServiceSpec) -> Params:
        if not spec.knows_cost:
            raise ValueError("this oracle needs an environment with knows_cost=True")
        return self.predictor.init(key, spec)

    def act(self, key: jax.Array, state: Params, obs: Observation, t: jax.Array) -> tuple[Action, dict[str, jax.Array]]:
        del t
        above = draws.uniform(key) < self.price.part
        price = self.price.price * jnp.where(above, 1.0 + PRICE_STEP, 1.0 - PRICE_STEP)
        price = jnp.maximum(price, 1e-5 * jnp.max(obs.cost))  # Among equally expensive models the more satisfying one.
        return serve_with(numerics.argmin(obs.cost - price * self.predictor.probabilities(state, obs))), {}


@final
@struct.dataclass
class OracleInformed(PricedOracle):
    """Best stationary policy with known probabilities of each model given the features, the benchmark of Theorem 2.

    Source: MESS+, Theorem 2, "a stationary policy with full statistical knowledge".
    """

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleInformed":
        """Returns the oracle of an environment; a table has none."""
        return cls(price=env.best, predictor=TrueProbabilities(env.requests))


@final
@struct.dataclass
class OracleClairvoyant(PricedOracle):
    """Best policy that knows the satisfaction of each request; the environment needs `reveals_labels=True`."""

    @classmethod
    def of(cls, env: ServiceEnv) -> "OracleClairvoyant":
        """Returns the oracle of an environment."""
        return cls(price=env.clairvoyant, predictor=Labels())
