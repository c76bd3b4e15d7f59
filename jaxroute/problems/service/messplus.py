"""MESS+: explores now and then to train a predictor of satisfaction, and otherwise weighs cost against a virtual queue."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.heads import binary_cross_entropy, squared_norm
from jaxroute.estimators.sgd import SGD
from jaxroute.problems.service.costs import KnownCost
from jaxroute.problems.service.predictors import Learned
from jaxroute.problems.service.queue import VirtualQueue
from jaxroute.problems.service.types import Action

LEARNER_METRICS = (
    Metric("decision_queue", "virtual queue that decides", "requests", "gauge", default=False),
    Metric("training_loss", "mean loss of explored requests", "nats", "gauge", default=False),
    Metric("training_steps", "explored requests with feedback", "requests", "gauge", default=False),
)


@struct.dataclass
class LearnerState:
    """State of a policy that predicts satisfaction.

    queue: the virtual queue that decides. params, optimiser: of the predictor, empty if it does not train. cost: of the cost model.
    num_steps: `[]` int32, explored requests trained on. loss: `[]` mean of their losses.
    """

    queue: VirtualQueue
    params: Any
    optimiser: Any
    cost: Any
    num_steps: jax.Array
    loss: jax.Array


@struct.dataclass
class Learner:
    """Explores with a falling chance, trains a predictor on what it sees, and serves the model of the lowest score.

    Which requests are explored depends on nothing but `c`, `explore_power` and the seed, and only explored requests train: the
    predictor is the same for all values of `V` and `alpha`, and a grid over these computes it once.

    predictor: `Learned`, `TrueChances` or `Labels`. optimiser: `SGD`.
    c: `[]` exploration coefficient: request `t = 1, 2, ...` is explored with the chance `min(1, c t^-explore_power)`; a very large
    one explores always, and 0 only the first request. explore_power: `[]`, 1/4 in the paper.
    l2: `[]` weight of half the squared norm of the parameters in the loss.
    margin: `[]` added to the target that the agreement names. energy: `[]`, J per request that the predictor takes.
    costs: `KnownCost`, `LastCost` or `RunningMeanCost`.
    explores_first: the first request is always explored; repeats: steps per explored request (both static).
    """

    c: Leaf = 0.1
    explore_power: Leaf = 0.25
    l2: Leaf = 0.0
    margin: Leaf = 0.0
    energy: Leaf = 0.0
    predictor: Any = struct.field(default_factory=Learned)
    optimiser: Any = struct.field(default_factory=SGD)
    costs: Any = struct.field(default_factory=KnownCost)
    explores_first: bool = struct.field(pytree_node=False, default=True)
    repeats: int = struct.field(pytree_node=False, default=1)

    metrics = LEARNER_METRICS

    def check(self) -> None:
        for name in ("c", "explore_power", "l2", "energy"):
            checks.non_negative(name, getattr(self, name), ())
        checks.numbers("margin", self.margin, ())
        checks.count("repeats", self.repeats)
        if not hasattr(self.predictor, "chances"):
            raise ValueError(f"predictor must be Learned(), TrueChances(...) or Labels(), got {checks.show(self.predictor)}")
        self.predictor.check()
        if not hasattr(self.costs, "estimate"):
            raise ValueError(f"costs must be KnownCost(), LastCost() or RunningMeanCost(), got {checks.show(self.costs)}")
        if not hasattr(self.optimiser, "transform"):
            raise ValueError(f"optimiser must be SGD(...), got {checks.show(self.optimiser)}")
        self.optimiser.check()

    def init(self, key, spec) -> LearnerState:
        params = self.predictor.init(key, spec)
        return LearnerState(
            queue=VirtualQueue.empty(),
            params=params,
            optimiser=self.optimiser.transform().init(params) if self.predictor.trains else (),
            cost=self.costs.init(spec),
            num_steps=jnp.zeros((), jnp.int32),
            loss=jnp.zeros((), jnp.float32),
        )

    def score(self, queue, cost, chance, alpha) -> jax.Array:
        """Score `[M]` of serving with each model, given the length of the queue; the lowest serves."""
        raise NotImplementedError

    def explore_chance(self, t) -> jax.Array:
        """The chance that round `t` (from 0) is explored. Source: MESS+, Algorithm 1, line 3."""
        chance = jnp.minimum(1.0, self.c * jnp.power((t + 1).astype(jnp.float32), -self.explore_power))
        return jnp.where(t == 0, 1.0, chance) if self.explores_first else chance

    def act(self, key, state: LearnerState, obs, t):
        p = self.explore_chance(t)
        explore = draws.uniform(key) < p
        chance = self.predictor.chances(state.params, obs)
        score = self.score(state.queue.length, self.costs.estimate(state.cost, obs), chance, obs.alpha + self.margin)
        largest = score.shape[-1] - 1
        serve = jnp.where(explore, largest, numerics.argmin(score)).astype(jnp.int32)
        action = Action(explore=explore, serve=serve, energy=jnp.asarray(self.energy, jnp.float32))
        return action, {"explore_chance": p, "chance": chance, "score": score}

    def loss(self, key, params, features, labels) -> jax.Array:
        """Loss of one request. Source: MESS+, eq. (4)."""
        logits = self.predictor.training_logits(key, params, features)
        return binary_cross_entropy(logits, labels) + 0.5 * self.l2 * squared_norm(params)

    def _trained(self, key, params, optimiser, obs, feedback):
        """Parameters and optimiser after the steps on this request, and the loss before them."""
        transform = self.optimiser.transform()
        losses = []
        for repeat in range(self.repeats):
            k_step = key if self.repeats == 1 else draws.fold_in(key, repeat)
            loss, gradients = jax.value_and_grad(self.loss, argnums=1)(k_step, params, obs.features, feedback.labels)
            updates, optimiser = transform.update(gradients, optimiser, params)
            params = jax.tree.map(jnp.add, params, updates)
            losses.append(loss)
        return params, optimiser, losses[0]

    def update(self, key, state: LearnerState, obs, action, feedback, t) -> LearnerState:
        del t
        alpha = obs.alpha + self.margin
        after = state.queue.served(alpha, feedback.satisfied)
        state = state.replace(
            queue=jax.tree.map(lambda a, b: jnp.where(feedback.arrived, a, b), after, state.queue),
            cost=self.costs.update(state.cost, action, feedback),
        )
        if not self.predictor.trains:
            return state
        words = jax.random.key_data(key)

        def learn(learned):
            params, optimiser, mean, steps = learned
            params, optimiser, loss = self._trained(
                jax.random.wrap_key_data(words, impl=draws.KEY_IMPL), params, optimiser, obs, feedback
            )
            return params, optimiser, mean + (loss - mean) / (steps + 1).astype(jnp.float32), steps + 1

        # Only what is learned passes through the branch, so that it depends on nothing that V and alpha change.
        learned = (state.params, state.optimiser, state.loss, state.num_steps)
        learned = jax.lax.cond(action.explore & feedback.arrived, learn, lambda learned: learned, learned)
        params, optimiser, loss, steps = learned
        return state.replace(params=params, optimiser=optimiser, loss=loss, num_steps=steps)

    def gauges(self, state: LearnerState):
        return {
            "decision_queue": state.queue.length,
            "training_loss": state.loss,
            "training_steps": state.num_steps.astype(jnp.float32),
        }


@struct.dataclass
class MessPlus(Learner):
    """Serves the model with the least `V cost + queue (alpha - predicted satisfaction)`; the queue counts missed satisfaction.

    Source: MESS+, Algorithm 1 with eqs. (2), (3) and (4).

    Differs from the paper: nothing where it is explicit. Which answer an explored request gets is the environment's choice
    (`Service`). Ties go to the cheaper model. The encoder is a fixed map from text to a vector, which the features stand for.

    V: `[]` weight of cost, requests per J. The paper uses 1e-2 to 1e-5; `V = v0 sqrt(T)` lets both gaps vanish.
    """

    V: Leaf = struct.field(default=1e-3, kw_only=True)

    def check(self) -> None:
        Learner.check(self)
        checks.non_negative("V", self.V, ())

    def score(self, queue, cost, chance, alpha):
        return self.V * cost + queue * (alpha - chance)


def safety_margin(V: float, cost_range: float, slack: float, horizon: int) -> float:
    """What to add to a target so that it is met after `horizon` requests: `V cost_range / (slack horizon) + 1 / sqrt(horizon)`.

    Source: MESS+, after Corollary 1.

    Args:
      V: `[]`. cost_range: difference of the largest and smallest cost, J. slack: `beta` of assumption 1, taken so that `q(slack)`
        (`admissible_chance`) is still above the raised target. horizon: requests until the target is to be met.
    """
    checks.positive("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    return V * cost_range / (slack * checks.count("horizon", horizon)) + 1.0 / math.sqrt(horizon)


def bound_queue(V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0.0, alpha: float = 1.0) -> float:
    """Theorem 1's bound of the mean virtual queue after `horizon` requests: `max(alpha warm_up, V cost_range / slack) + sqrt(T)`.

    Args:
      V, cost_range, slack: as for `safety_margin`. warm_up: `psi`, requests after which assumption 1 holds. alpha: the target.

    Returns:
      Requests.
    """
    return _floor(V, cost_range, slack, warm_up, alpha) + math.sqrt(checks.count("horizon", horizon))


def bound_mean_queue(
    V: float, cost_range: float, slack: float, excess: float, warm_up: float = 0.0, alpha: float = 1.0
) -> float:
    """Theorem 1's bound of the mean over requests of the mean virtual queue: `gamma + 1 / (2 excess)` with `excess = q - alpha`.

    Other arguments as for `bound_queue`.
    """
    return _floor(V, cost_range, slack, warm_up, alpha) + 0.5 / float(checks.positive("excess", excess, ()))


def _floor(V, cost_range, slack, warm_up, alpha) -> float:
    """Theorem 1's `gamma`."""
    checks.non_negative("V", V, ())
    checks.non_negative("cost_range", cost_range, ())
    checks.positive("slack", slack, ())
    checks.non_negative("warm_up", warm_up, ())
    return max(alpha * warm_up, V * cost_range / slack)


def bound_violation(
    V: float, cost_range: float, slack: float, horizon: int, warm_up: float = 0.0, alpha: float = 1.0
) -> float:
    """Corollary 1's bound of the mean violation after `horizon` requests; arguments as for `bound_queue`."""
    return bound_queue(V, cost_range, slack, horizon, warm_up, alpha) / horizon


def expected_explorations(c: float, horizon: int, power: float = 0.25, explores_first: bool = True) -> float:
    """Expected number of explored requests, about `(4 c / 3) T^(3/4)`. Source: MESS+, Lemma A.3."""
    chance = np.minimum(1.0, checks.non_negative("c", c, ()) * np.arange(1, horizon + 1, dtype=np.float64) ** -power)
    return float(chance[1:].sum() + (1.0 if explores_first else chance[0]))
