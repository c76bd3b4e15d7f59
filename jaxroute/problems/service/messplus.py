"""MESS+: explores occasionally to train a predictor of satisfaction, and otherwise weighs cost against a virtual queue.

`Learner` is Algorithm 1 except its decision rule; `MessPlus` adds this rule, eq. (3). Lines of Algorithm 1 are counted from its first statement,
"Initialize" (line 1), to the update of the virtual queue (line 17). `ServiceEnv.step` has the lines that the provider does not decide: 6, 7, 9, 10,
14 and 16 (satisfaction, the answer of an explored request, payment).
"""

import abc
from typing import Any, final

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.protocols import Info, optional
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.heads import SGD, binary_cross_entropy, squared_norm
from jaxroute.problems.service.parts.predictors import CostModel, KnownCost, Learned, Predictor
from jaxroute.problems.service.types import Action, Feedback, Observation, Params, ServiceSpec, VirtualQueue


@struct.dataclass
class LearnerState:
    """State of a policy that predicts satisfaction.

    Attributes:
      queue: virtual queue `Q_t` on which decisions depend. It counts only requests with feedback; the one in `ServiceState` counts all requests.
      params: parameters `z_t` of the predictor.
      optimiser: state of the optimiser; empty if the predictor is not trained.
      cost: state of the cost model.
      num_steps: `[]` int32 number of training requests, which are explored requests with feedback.
      loss: mean loss of the training requests, each before its own training step.
    """

    queue: VirtualQueue
    params: Params
    optimiser: optax.OptState
    cost: Any
    num_steps: Array
    loss: numerics.Sum


@struct.dataclass
class Learner(abc.ABC):
    """Policy that learns to predict satisfaction, and serves unexplored requests with the model of lowest `score`, which subclasses define.

    Exploration depends only on `c`, `explore_power` and the seed, and only explored requests train the predictor. The predictor is therefore the same
    for all values of `V` and `alpha`, and a grid over these values needs only one training. Source: MESS+, Algorithm 1, eqs. (2) and (4).

    Attributes:
      c: `[]` coefficient: request `t >= 1` is explored (sent to all models) with probability `min(1, c t^-explore_power)`; 0 explores only the first.
      explore_power: `[]` exponent, 1/4 in the paper.
      l2: `[]` weight of half the squared norm of the parameters in the loss.
      margin: `[]` number that the policy adds to the required share of satisfied requests in its decisions and its virtual queue.
      energy: `[]` cost of the predictor itself, J per request.
      predictor: predictor of satisfaction: `Learned`, `TrueProbabilities` or `Labels`.
      optimiser: `SGD`, which trains the predictor.
      costs: estimator of costs: `KnownCost`, `LastCost` or `RunningMeanCost`.
      explores_first: whether the first request is always explored (static).
      repeats: number of optimiser steps per explored request (static).
    """

    c: Leaf = 0.1
    explore_power: Leaf = 0.25
    l2: Leaf = 0.0
    margin: Leaf = 0.0
    energy: Leaf = 0.0
    predictor: Predictor = struct.field(default_factory=Learned)
    optimiser: SGD = struct.field(default_factory=SGD)
    costs: CostModel = struct.field(default_factory=KnownCost)
    explores_first: bool = struct.field(pytree_node=False, default=True)
    repeats: int = struct.field(pytree_node=False, default=1)

    metrics = (
        Metric("decision_queue", "virtual queue that decides", "requests", "gauge", default=False),
        Metric("training_loss", "mean loss of explored requests", "nats", "gauge", default=False),
        Metric("training_steps", "explored requests with feedback", "requests", "gauge", default=False),
    )

    def check(self) -> None:
        for name in ("c", "explore_power", "l2", "energy"):
            checks.non_negative(name, getattr(self, name), ())
        checks.numbers("margin", self.margin, ())
        checks.count("repeats", self.repeats)
        checks.part("predictor", self.predictor, "probabilities", "Learned()")
        checks.part("costs", self.costs, "estimate", "KnownCost()")
        checks.part("optimiser", self.optimiser, "transform", "SGD()")

    def check_spec(self, spec: ServiceSpec) -> None:
        optional(self.predictor, "check_spec", spec)

    def init(self, key: Array, spec: ServiceSpec) -> LearnerState:
        params = self.predictor.init(key, spec)
        return LearnerState(  # Algorithm 1, line 1: Q_1 = 0 and z_1.
            queue=VirtualQueue.empty(),
            params=params,
            optimiser=self.optimiser.transform().init(params) if self.predictor.trains else (),
            cost=self.costs.init(spec),
            num_steps=jnp.zeros((), jnp.int32),
            loss=numerics.Sum.of(jnp.zeros((), jnp.float32)),
        )

    @abc.abstractmethod
    def score(self, queue: Array, cost: Array, probability: Array, alpha: Array) -> Array:
        """Returns the score of each model, `[M]`; the model with the lowest score serves.

        `queue` is the length of the virtual queue, `cost` `[M]` the expected costs in J, `probability` `[M]` the predictions, `alpha` the target plus
        `margin`.
        """

    def act(self, key: Array, state: LearnerState, obs: Observation, t: Array) -> tuple[Action, Info]:
        p = jnp.minimum(1.0, self.c * jnp.power((t + 1).astype(jnp.float32), -self.explore_power))  # Algorithm 1, line 3.
        p = jnp.where(t == 0, 1.0, p) if self.explores_first else p  # Line 5, "or t = 1".
        explore = draws.uniform(key) < p  # Lines 4 and 5.
        probability = self.predictor.probabilities(state.params, obs)  # Line 12.
        cost = self.costs.estimate(state.cost, obs)
        score = self.score(state.queue.length, cost, probability, obs.alpha + self.margin)
        models = score.shape[-1]
        # Ties go to the cheaper model: the number of cheaper models is in the highest bits of the order.
        cheaper = xla.sum_over_better(jnp.ones(models, jnp.int32), [cost], lambda other, own: other[0] < own[0])
        rest = 31 - models.bit_length()
        order = cheaper << rest | draws.order(draws.fold_in(key, 0), models) & (2**rest - 1)
        cheapest = numerics.argmin(score, order=order)
        serve = jnp.where(explore, models - 1, cheapest).astype(jnp.int32)  # Section 2.3 for line 9; line 13.
        action = Action(explore=explore, serve=serve, energy=jnp.asarray(self.energy, jnp.float32))
        return action, {"explore_probability": p, "probability": probability, "score": score}

    def update(
        self, key: Array, state: LearnerState, obs: Observation, action: Action, feedback: Feedback, t: Array
    ) -> LearnerState:
        del t
        alpha = obs.alpha + self.margin
        after = state.queue.served(alpha, feedback.satisfied)  # Algorithm 1, line 17, eq. (2).
        state = state.replace(
            queue=jax.tree.map(lambda a, b: jnp.where(feedback.arrived, a, b), after, state.queue),
            cost=self.costs.update(state.cost, action, feedback),
        )
        if not self.predictor.trains:
            return state
        words = jax.random.key_data(key)  # Branches take keys as plain words.

        def learn(trained: tuple) -> tuple:
            params, optimiser, mean, steps = trained
            key, transform = jax.random.wrap_key_data(words, impl=draws.KEY_IMPL), self.optimiser.transform()
            losses = []
            for repeat in range(self.repeats):
                k_step = key if self.repeats == 1 else draws.fold_in(key, repeat)
                loss, gradients = jax.value_and_grad(self.loss, argnums=1)(k_step, params, obs.features, feedback.labels)
                updates, optimiser = transform.update(gradients, optimiser, params)
                params = jax.tree.map(jnp.add, params, updates)
                losses.append(loss)
            return params, optimiser, mean.add((losses[0] - mean.total) / (steps + 1).astype(jnp.float32)), steps + 1

        # Line 8 for an explored request, line 15 otherwise. Only learned values pass through the branch, so that they do not depend
        # on V and alpha.
        before = (state.params, state.optimiser, state.loss, state.num_steps)
        params, optimiser, loss, steps = jax.lax.cond(
            action.explore & feedback.arrived, learn, lambda trained: trained, before
        )
        return state.replace(params=params, optimiser=optimiser, loss=loss, num_steps=steps)

    def loss(self, key: Array, params: Params, features: Array, labels: Array) -> Array:
        """Returns the loss for one request: the mean binary cross-entropy over the models, plus `l2 / 2` times the squared norm of `params`.

        A request has `features` `[d]` and satisfaction `labels` `[M]`; `key` is for dropout. Source: MESS+, eq. (4).
        """
        logits = self.predictor.training_logits(key, params, features)
        return binary_cross_entropy(logits, labels) + 0.5 * self.l2 * squared_norm(params)

    def gauges(self, state: LearnerState) -> dict[str, Array]:
        return {
            "decision_queue": state.queue.length,
            "training_loss": state.loss.total,
            "training_steps": state.num_steps.astype(jnp.float32),
        }


@final
@struct.dataclass
class MessPlus(Learner):
    """Policy that serves with the model of least `V cost + queue (alpha - probability)`; the queue counts missing satisfaction.

    Source: MESS+, Algorithm 1 with eqs. (2), (3) and (4).

    Differs from the paper: only in what the paper leaves open. The environment chooses the answer of an explored request (`ServiceEnv`). Ties go to
    the cheaper model, then by the rule of `numerics.argmax`. The features represent the output of the fixed text encoder.

    Attributes:
      V: `[]` weight of cost, requests per J. The paper uses 1e-2 to 1e-5. If V grows as `sqrt(horizon)`, the mean cost
        approaches the optimal cost, and the mean satisfaction the target.
    """

    V: Leaf = struct.field(default=1e-3, kw_only=True)

    def check(self) -> None:
        super().check()
        checks.non_negative("V", self.V, ())

    def score(self, queue: Array, cost: Array, probability: Array, alpha: Array) -> Array:
        return self.V * cost + queue * (alpha - probability)  # Eq. (3); Algorithm 1, line 13.
