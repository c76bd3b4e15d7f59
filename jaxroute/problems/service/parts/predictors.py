"""Predictors of a request's satisfaction and cost with each model, and the fit of their parameters before a run."""

from typing import Protocol

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, draws, numerics
from jaxroute.estimators.heads import SGD, Head, Logistic, binary_cross_entropy
from jaxroute.estimators.running import RunningMean
from jaxroute.problems.service.env import ServiceEnv
from jaxroute.problems.service.sources import NO_PROBABILITIES, RequestSource, TableRequests, draw_requests, fingerprint
from jaxroute.problems.service.types import Action, Feedback, Observation, Params, Request, ServiceSpec


class Predictor(Protocol):
    """Predictor of each model's probability of satisfying a request.

    If `trains` is True, it also has the method `training_logits(key, params, x)`, which returns the logits `[M]` for features `x` `[d]` in a training
    step, where `key` is for dropout.

    Attributes:
      trains: whether explored requests train its parameters (static).
    """

    trains: bool

    def check(self) -> None:
        """Raises `ValueError` if a field is out of range."""

    def init(self, key: Array, spec: ServiceSpec) -> Params:
        """Returns the parameters before the first request; an empty tuple for a predictor without parameters."""

    def probabilities(self, params: Params, obs: Observation) -> Array:
        """Returns the predicted probability `[M]` that each of `M` models satisfies the observed request."""
        ...


@struct.dataclass
class Learned(Predictor):
    """Classifier (head) that predicts satisfaction from features and is trained online.

    Attributes:
      head: classifier, `Logistic` or `Mlp`.
      params: initial parameters, for example from `pretrain`; None lets the head draw them.
      trains: whether explored requests train the parameters (static).
    """

    head: Head = struct.field(default_factory=Logistic)
    params: Params = None
    trains: bool = struct.field(pytree_node=False, default=True)

    def check(self) -> None:
        checks.part("head", self.head, "training_logits", "Logistic()")

    def init(self, key: Array, spec: ServiceSpec) -> Params:
        fresh = self.head.init(key, spec.num_features, spec.num_models)
        if self.params is None:
            return fresh
        expected, given = (jax.tree.map(jnp.shape, tree) for tree in (fresh, self.params))
        if expected != given:
            raise ValueError(f"params must have the shapes {expected} for this environment, got {given}")
        return jax.tree.map(jnp.asarray, self.params)

    def probabilities(self, params: Params, obs: Observation) -> Array:
        return jax.nn.sigmoid(self.head.logits(params, obs.features))

    def training_logits(self, key: Array, params: Params, x: Array) -> Array:
        return self.head.training_logits(key, params, x)


@struct.dataclass
class TrueProbabilities(Predictor):
    """Predictor that knows the true probability of satisfaction by each model, given the features.

    Attributes:
      requests: the environment's `env.requests`. To simulate several environments, pass `simulate` a function that builds a policy for each `env`.
    """

    requests: RequestSource
    trains: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        if not hasattr(self.requests, "success"):
            raise ValueError(f"requests must be those of an environment, got {checks.show(self.requests)}")
        if isinstance(self.requests, TableRequests):
            raise ValueError(NO_PROBABILITIES)

    def check_spec(self, spec: ServiceSpec) -> None:
        mine = fingerprint(self.requests)
        if mine and spec.fingerprint and mine != spec.fingerprint:
            expected = "those of this environment, TrueProbabilities(env.requests)"
            raise ValueError(f"requests must be {expected}; these are of another")

    def init(self, key: Array, spec: ServiceSpec) -> tuple[()]:
        del key
        if (mine := self.requests.num_features) != spec.num_features:
            raise ValueError(f"requests must be those of this environment, with {spec.num_features} features, got {mine}")
        return ()

    def probabilities(self, params: Params, obs: Observation) -> Array:
        del params
        return self.requests.success(obs.features)


@struct.dataclass
class Labels(Predictor):
    """Predictor, never trained, that knows which models satisfy each request; the environment must have `reveals_labels=True`."""

    trains: bool = struct.field(pytree_node=False, default=False)

    def init(self, key: Array, spec: ServiceSpec) -> tuple[()]:
        del key
        if not spec.reveals_labels:
            raise ValueError("Labels needs an environment with reveals_labels=True")
        return ()

    def probabilities(self, params: Params, obs: Observation) -> Array:
        del params
        return obs.labels


def pretrain(env: ServiceEnv, head: Head, *, steps: int, optimiser: SGD = SGD(), seed: int = 0) -> Params:
    """Trains a head before a run, by SGD on requests whose satisfaction by all models is known; returns parameters for `Learned(head, params=...)`.

    Args:
      env: environment with the source of requests.
      head: classifier, `Logistic` or `Mlp`.
      steps: number of requests; each is used for one step.
      optimiser: optimiser of the parameters, as in a run.
      seed: seed of requests, initial parameters and dropout.
    """
    checks.part("head", head, "training_logits", "Logistic()")
    k_requests, k_init, k_step = draws.split(draws.key(checks.count("seed", seed, minimum=0)), 3)
    requests = draw_requests(env.requests, k_requests, checks.count("steps", steps))
    transform = optimiser.transform()
    params = head.init(k_init, env.spec.num_features, env.spec.num_models)

    def step(carry: tuple[Params, optax.OptState, Array], request: Request):
        params, state, number = carry

        def loss(params: Params) -> Array:
            logits = head.training_logits(draws.fold_in(k_step, number), params, request.features)
            return binary_cross_entropy(logits, request.satisfied.astype(jnp.float32))

        updates, state = transform.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state, number + 1), None

    (params, _, _), _ = lax.scan(step, (params, transform.init(params), jnp.int32(0)), requests)
    return params


@struct.dataclass
class KnownCost:
    """Estimates the costs of a request by its true costs, which are observed before the decision. Source: MESS+, section 2.2."""

    def init(self, spec: ServiceSpec) -> tuple[()]:
        if not spec.knows_cost:
            raise ValueError("KnownCost needs an environment with knows_cost=True; use LastCost() or RunningMeanCost()")
        return ()

    def estimate(self, state: tuple[()], obs: Observation) -> Array:
        """Returns the expected cost of the request with each of `M` models, `[M]`, J."""
        del state
        return obs.cost

    def update(self, state: tuple[()], action: Action, feedback: Feedback) -> tuple[()]:
        del action, feedback
        return state


@struct.dataclass
class LastCost:
    """Estimates each model's cost by its cost on the latest explored request; 1 J before the first. Source: MESS+ authors' later code."""

    def init(self, spec: ServiceSpec) -> Array:
        return jnp.ones((spec.num_models,), jnp.float32)

    def estimate(self, state: Array, obs: Observation) -> Array:
        del obs
        return state

    def update(self, state: Array, action: Action, feedback: Feedback) -> Array:
        return jnp.where(action.explore, feedback.costs, state)


@struct.dataclass
class RunningMeanCost:
    """Estimates the cost of each model by its mean cost on served and explored requests so far; 1e-6 J before the model's first request."""

    def init(self, spec: ServiceSpec) -> RunningMean:
        return RunningMean.empty(spec.num_models)

    def estimate(self, state: RunningMean, obs: Observation) -> Array:
        del obs
        return jnp.where(state.count > 0, state.mean, 1e-6)

    def update(self, state: RunningMean, action: Action, feedback: Feedback) -> RunningMean:
        seen = action.explore | numerics.one_hot(action.serve, state.mean.shape[-1])
        return state.add(seen, jnp.where(action.explore, feedback.costs, feedback.cost))


CostModel = KnownCost | LastCost | RunningMeanCost
