"""MESS+: explores now and then to train a predictor of satisfaction, and otherwise weighs cost against a virtual queue.

`Learner` is Algorithm 1 with its decision rule left open, `MessPlus` fills in eq. (3). Lines of Algorithm 1 are counted from
its first statement, "Initialize", which is line 1; the last, line 17, updates the virtual queue. What of it the provider
does not decide (lines 6, 7, 9, 10, 14 and 16: who satisfies, whose answer an explored request gets, what is paid) is
`ServiceEnv.step`.
"""

import abc
from typing import final

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.heads import binary_cross_entropy, squared_norm
from jaxroute.estimators.sgd import SGD
from jaxroute.problems.service.parts.costs import CostModel, CostState, KnownCost
from jaxroute.problems.service.parts.predictors import Learned, Predictor, TrueProbabilities
from jaxroute.problems.service.parts.virtual_queue import VirtualQueue
from jaxroute.problems.service.types import Action, Feedback, Observation, Params, ServiceSpec

# Parameters, state of the optimiser, mean loss, number of steps.
Trained = tuple[Params, optax.OptState, numerics.Sum, jax.Array]

LEARNER_METRICS = (
    Metric("decision_queue", "virtual queue that decides", "requests", "gauge", default=False),
    Metric("training_loss", "mean loss of explored requests", "nats", "gauge", default=False),
    Metric("training_steps", "explored requests with feedback", "requests", "gauge", default=False),
)


@struct.dataclass
class LearnerState:
    """State of a policy that predicts satisfaction.

    queue: the virtual queue `Q_t` that decides.
    params: of the predictor, `z_t`.
    optimiser: its state, empty if the predictor does not train.
    cost: what the cost model remembers.
    num_steps: `[]` int32, explored requests trained on.
    loss: `[]` mean of their losses.
    """

    queue: VirtualQueue
    params: Params
    optimiser: optax.OptState
    cost: CostState
    num_steps: jax.Array
    loss: numerics.Sum


@struct.dataclass
class Learner(abc.ABC):
    """Algorithm 1 without its decision rule: the model of the lowest `score` serves what is not explored.

    Which requests are explored depends on nothing but `c`, `explore_power` and the seed, and only explored requests train:
    the predictor is the same for all values of `V` and `alpha`, and a grid over these computes it once.

    Source: MESS+, Algorithm 1 with eqs. (2) and (4).

    c: `[]` exploration coefficient: request `t = 1, 2, ...` is explored with the probability `min(1, c t^-explore_power)`; a very
      large one explores always, and 0 only the first request.
    explore_power: `[]`, 1/4 in the paper.
    l2: `[]` weight of half the squared norm of the parameters in the loss.
    margin: `[]` added to the target that the agreement names.
    energy: `[]`, J per request that the predictor takes.
    predictor: `Learned`, `TrueProbabilities` or `Labels`.
    optimiser: `SGD`.
    costs: `KnownCost`, `LastCost` or `RunningMeanCost`.
    explores_first: the first request is always explored (static).
    repeats: steps per explored request (static).
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

    metrics = LEARNER_METRICS

    def check(self) -> None:
        for name in ("c", "explore_power", "l2", "energy"):
            checks.non_negative(name, getattr(self, name), ())
        checks.numbers("margin", self.margin, ())
        checks.count("repeats", self.repeats)
        if not hasattr(self.predictor, "probabilities"):
            raise ValueError(
                f"predictor must be Learned(), TrueProbabilities(...) or Labels(), got {checks.show(self.predictor)}"
            )
        self.predictor.check()
        if not hasattr(self.costs, "estimate"):
            raise ValueError(f"costs must be KnownCost(), LastCost() or RunningMeanCost(), got {checks.show(self.costs)}")
        if not hasattr(self.optimiser, "transform"):
            raise ValueError(f"optimiser must be SGD(...), got {checks.show(self.optimiser)}")
        self.optimiser.check()

    def check_spec(self, spec: ServiceSpec) -> None:
        if isinstance(self.predictor, TrueProbabilities):
            self.predictor.check_spec(spec)

    def init(self, key: jax.Array, spec: ServiceSpec) -> LearnerState:
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
    def score(self, queue: jax.Array, cost: jax.Array, probability: jax.Array, alpha: jax.Array) -> jax.Array:
        """Score `[M]` of serving with each model; the lowest serves.

        Args:
          queue: `[]` length of the virtual queue.
          cost: `[M]` expected cost, J.
          probability: `[M]` predicted probability that a model satisfies.
          alpha: `[]` target with the margin.
        """

    def explore_probability(self, t: jax.Array) -> jax.Array:
        """The probability that round `t` (from 0) is explored. Source: MESS+, Algorithm 1, lines 3 and 5."""
        probability = jnp.minimum(1.0, self.c * jnp.power((t + 1).astype(jnp.float32), -self.explore_power))  # Line 3.
        return jnp.where(t == 0, 1.0, probability) if self.explores_first else probability  # Line 5, "or t = 1".

    def act(
        self, key: jax.Array, state: LearnerState, obs: Observation, t: jax.Array
    ) -> tuple[Action, dict[str, jax.Array]]:
        p = self.explore_probability(t)
        explore = draws.uniform(key) < p  # Algorithm 1, lines 4 and 5.
        probability = self.predictor.probabilities(state.params, obs)  # Line 12.
        cost = self.costs.estimate(state.cost, obs)
        score = self.score(state.queue.length, cost, probability, obs.alpha + self.margin)
        models = score.shape[-1]
        # Of equal scores the cheaper first: the number of cheaper models is in the highest bits of the order.
        cheaper = xla.sum_over_better(jnp.ones(models, jnp.int32), [cost], lambda other, own: other[0] < own[0])
        rest = 31 - models.bit_length()
        order = cheaper << rest | draws.order(draws.fold_in(key, 0), models) & (2**rest - 1)
        cheapest = numerics.argmin(score, order=order)
        serve = jnp.where(explore, models - 1, cheapest).astype(jnp.int32)  # Section 2.3 for line 9; line 13.
        action = Action(explore=explore, serve=serve, energy=jnp.asarray(self.energy, jnp.float32))
        return action, {"explore_probability": p, "probability": probability, "score": score}

    def update(
        self, key: jax.Array, state: LearnerState, obs: Observation, action: Action, feedback: Feedback, t: jax.Array
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
        words = jax.random.key_data(key)  # A branch takes a key as plain words.

        def learn(trained: Trained) -> Trained:
            params, optimiser, mean, steps = trained
            params, optimiser, loss = self.descend(
                jax.random.wrap_key_data(words, impl=draws.KEY_IMPL), params, optimiser, obs, feedback
            )
            return params, optimiser, mean.add((loss - mean.total) / (steps + 1).astype(jnp.float32)), steps + 1

        # Line 8 of an explored request, line 15 of another. Only what is learned passes through the branch, so that it
        # depends on nothing that V and alpha change.
        before = (state.params, state.optimiser, state.loss, state.num_steps)
        params, optimiser, loss, steps = jax.lax.cond(
            action.explore & feedback.arrived, learn, lambda trained: trained, before
        )
        return state.replace(params=params, optimiser=optimiser, loss=loss, num_steps=steps)

    def loss(self, key: jax.Array, params: Params, features: jax.Array, labels: jax.Array) -> jax.Array:
        """Loss of one request. Source: MESS+, eq. (4)."""
        logits = self.predictor.training_logits(key, params, features)
        return binary_cross_entropy(logits, labels) + 0.5 * self.l2 * squared_norm(params)

    def descend(
        self, key: jax.Array, params: Params, optimiser: optax.OptState, obs: Observation, feedback: Feedback
    ) -> tuple[Params, optax.OptState, jax.Array]:
        """Parameters and state of the optimiser after the steps on this request, and the loss before them.

        Source: MESS+, Algorithm 1, line 8.
        """
        transform = self.optimiser.transform()
        losses = []
        for repeat in range(self.repeats):
            k_step = key if self.repeats == 1 else draws.fold_in(key, repeat)
            loss, gradients = jax.value_and_grad(self.loss, argnums=1)(k_step, params, obs.features, feedback.labels)
            updates, optimiser = transform.update(gradients, optimiser, params)
            params = jax.tree.map(jnp.add, params, updates)
            losses.append(loss)
        return params, optimiser, losses[0]

    def gauges(self, state: LearnerState) -> dict[str, jax.Array]:
        return {
            "decision_queue": state.queue.length,
            "training_loss": state.loss.total,
            "training_steps": state.num_steps.astype(jnp.float32),
        }


@final
@struct.dataclass
class MessPlus(Learner):
    """Serves the model with the least `V cost + queue (alpha - probability)`; the queue counts missed satisfaction.

    Source: MESS+, Algorithm 1 with eqs. (2), (3) and (4).

    Differs from the paper: nothing where it is explicit. Which answer an explored request gets is the environment's choice
    (`ServiceEnv`). Ties go to the cheaper model, of equal costs by `numerics.argmax`. The encoder is a fixed map from text to a vector, which the features stand
    for.

    V: `[]` weight of cost, requests per J. The paper uses 1e-2 to 1e-5; `V = v0 sqrt(T)` lets both gaps vanish.
    """

    V: Leaf = struct.field(default=1e-3, kw_only=True)

    def check(self) -> None:
        super().check()
        checks.non_negative("V", self.V, ())

    def score(self, queue: jax.Array, cost: jax.Array, probability: jax.Array, alpha: jax.Array) -> jax.Array:
        return self.V * cost + queue * (alpha - probability)  # Eq. (3); Algorithm 1, line 13.
