"""Who predicts which models will satisfy: heads that learn, heads that are fixed, and predictors that see the truth."""

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
    """Predicts who satisfies; one that `trains` also has `training_logits(key, params, x)`."""

    @property
    def trains(self) -> bool:
        """Whether its parameters learn from explored requests (static)."""
        ...

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array, spec: ServiceSpec) -> Params:
        """Parameters before the first request."""
        ...

    def probabilities(self, params: Params, obs: Observation) -> jax.Array:
        """Predicted probability `[M]` that each model satisfies."""
        ...


class Head(Protocol):
    """A small classifier of several yes-or-no answers, such as `Logistic` or `Mlp`."""

    def check(self) -> None:
        """Raises `ValueError` on values out of range."""
        ...

    def init(self, key: jax.Array, num_features: int, num_outputs: int) -> Params:
        """First parameters."""
        ...

    def logits(self, params: Params, x: jax.Array) -> jax.Array:
        """Logits `[M]` of features `[d]`."""
        ...

    def training_logits(self, key: jax.Array, params: Params, x: jax.Array) -> jax.Array:
        """The same in training, with dropout if the head has it."""
        ...


@struct.dataclass
class Learned:
    """A head that is trained on line, from its first parameters or from given ones.

    head: `Logistic` or `Mlp`.
    params: parameters to begin with, from `pretrain`; default those that the head draws.
    trains: False keeps them as they are (static).
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
    """The probability that each model satisfies, given the features, from the environment itself.

    requests: of the environment; where that is swept, a function `env -> policy` gives each setting its own.
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
    """Who satisfies, seen beforehand; the environment must reveal it."""

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
