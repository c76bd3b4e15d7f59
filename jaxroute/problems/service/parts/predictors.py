"""Predictors of satisfaction: trained heads, fixed heads, and predictors with access to the truth."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks
from jaxroute.estimators.heads import Logistic
from jaxroute.problems.service.sources import RequestSource, TableRequests
from jaxroute.problems.service.sources.source import fingerprint
from jaxroute.problems.service.sources.table import NO_TRUE_CHANCES
from jaxroute.problems.service.types import Observation, Params, ServiceSpec


class Predictor(Protocol):
    """Predictor of satisfaction; one that `trains` also has `training_logits(key, params, x)`."""

    @property
    def trains(self) -> bool:
        """Whether explored requests train its parameters (static)."""
        ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array, spec: ServiceSpec) -> Params:
        """Returns the parameters before the first request."""
        ...

    def probabilities(self, params: Params, obs: Observation) -> jax.Array:
        """Returns the predicted probability `[M]` that each model satisfies."""
        ...


class Head(Protocol):
    """Small classifier with several binary outputs, such as `Logistic` or `Mlp`."""

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array, num_features: int, num_outputs: int) -> Params:
        """Returns the initial parameters."""
        ...

    def logits(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits `[M]` of features `[d]`."""
        ...

    def training_logits(self, key: jax.Array, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits in training, with dropout if the head has it."""
        ...


@struct.dataclass
class Learned:
    """Head that is trained online.

    Attributes:
      head: `Logistic` or `Mlp`.
      params: initial parameters, for example from `pretrain`; drawn by the head by default.
      trains: whether they are trained (static).
    """

    head: Head = struct.field(default_factory=Logistic)
    params: Params = None
    trains: bool = struct.field(pytree_node=False, default=True)

    def check(self) -> None:
        if not hasattr(self.head, "training_logits"):
            raise ValueError(f"head must be Logistic() or Mlp(), got {checks.show(self.head)}")
        self.head.check()

    def init(self, key: jax.Array, spec: ServiceSpec) -> Params:
        fresh = self.head.init(key, spec.num_features, spec.num_models)
        if self.params is None:
            return fresh
        expected, given = (jax.tree.map(jnp.shape, tree) for tree in (fresh, self.params))
        if expected != given:
            raise ValueError(f"params must have the shapes {expected} for this environment, got {given}")
        return jax.tree.map(jnp.asarray, self.params)

    def probabilities(self, params: Params, obs: Observation) -> jax.Array:
        return jax.nn.sigmoid(self.head.logits(params, obs.features))

    def training_logits(self, key: jax.Array, params: Params, x: jax.Array) -> jax.Array:
        return self.head.training_logits(key, params, x)


@struct.dataclass
class TrueProbabilities:
    """True probability that each model satisfies, given the features.

    Attributes:
      requests: source of requests of the environment; for a swept environment use a function `env -> policy`.
    """

    requests: RequestSource
    trains: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        if not hasattr(self.requests, "success"):
            raise ValueError(f"requests must be those of an environment, got {checks.show(self.requests)}")
        if isinstance(self.requests, TableRequests):
            raise ValueError(NO_TRUE_CHANCES)

    def check_spec(self, spec: ServiceSpec) -> None:
        mine = fingerprint(self.requests)
        if mine and spec.fingerprint and mine != spec.fingerprint:
            raise ValueError(
                "requests must be those of this environment, TrueProbabilities(env.requests); these are of another"
            )

    def init(self, key: jax.Array, spec: ServiceSpec) -> tuple[()]:
        del key
        if self.requests.num_features != spec.num_features:
            raise ValueError(
                f"requests must be those of this environment, with {spec.num_features} features, "
                f"got {self.requests.num_features}"
            )
        return ()

    def probabilities(self, params: Params, obs: Observation) -> jax.Array:
        del params
        return self.requests.success(obs.features)


@struct.dataclass
class Labels:
    """True satisfaction of each request, which the environment must reveal."""

    trains: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        pass

    def init(self, key: jax.Array, spec: ServiceSpec) -> tuple[()]:
        del key
        if not spec.reveals_labels:
            raise ValueError("Labels needs an environment with reveals_labels=True")
        return ()

    def probabilities(self, params: Params, obs: Observation) -> jax.Array:
        del params
        return obs.labels
