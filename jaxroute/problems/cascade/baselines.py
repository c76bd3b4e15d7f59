"""Baseline policies: variants of COSMOS, cascades with fixed thresholds, and policies that call one model or all models."""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.glm import GLM, FrozenGLM, OnlineGLM
from jaxroute.problems.cascade.cosmos import COSMOS
from jaxroute.problems.cascade.env import CascadeEnv
from jaxroute.problems.cascade.optimum import best_list, cost_order, tuned_threshold
from jaxroute.problems.cascade.parts import evaluator as evaluators
from jaxroute.problems.cascade.parts.exploration import (
    BlockExploration,
    DecayingExploration,
    Exploration,
    ExplorationPhase,
    WarmUp,
)
from jaxroute.problems.cascade.parts.indices import (
    GradientDescent,
    IndexEstimator,
    LocationFamily,
    StreamingNewton,
    change_of_inverse,
    first_inverse,
)
from jaxroute.problems.cascade.parts.radii import BootstrapRadius, PracticalRadius, Radius, SampledRadius
from jaxroute.problems.cascade.parts.search import Decision, IndexSearch, Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Feedback, Observation


@struct.dataclass
class Greedy(COSMOS):
    """COSMOS without bonuses: it searches by the estimated reservation indices themselves. An index that starts too low may never be corrected."""

    radius: Radius = struct.field(default_factory=lambda: PracticalRadius(index=0.0, plug_in=0.0, optimism=0.0))


@struct.dataclass
class EpsilonGreedy(Greedy):
    """COSMOS without bonuses (`Greedy`) that calls all models at the `t`-th request with probability `min(1, t^-(1/3))`."""

    exploration: Exploration = struct.field(default_factory=DecayingExploration)


@struct.dataclass
class ExploreThenCommit(Greedy):
    """COSMOS without bonuses (`Greedy`) that calls all models in the first `T^(2/3)` of `T` requests, and keeps its estimates afterwards."""

    exploration: Exploration = struct.field(default_factory=ExplorationPhase)


@struct.dataclass
class OnlineGradient(Greedy):
    """COSMOS without bonuses (`Greedy`) that calls all models at one random request of each block of `T^(1/6)` requests, for a horizon `T`.

    It estimates the indices by gradient descent on their loss, and only from these requests. Source: in the spirit of Atsidakou et al. (2024); not
    their exact algorithm.
    """

    fit: IndexEstimator = struct.field(default_factory=GradientDescent)
    exploration: Exploration = struct.field(default_factory=BlockExploration)


@struct.dataclass
class DistributionLearner(COSMOS):
    """COSMOS that computes indices from an estimated linear model of scores (`LocationFamily`). Source: in the spirit of Liu et al. (2025)."""

    fit: IndexEstimator = struct.field(default_factory=LocationFamily)
    radius: Radius = struct.field(default_factory=lambda: PracticalRadius(plug_in=0.0, optimism=0.0))


@struct.dataclass
class ThompsonSampling(COSMOS):
    """COSMOS that draws indices and estimated scores at random around the estimates (Thompson sampling) instead of adding bonuses. Not in the paper.

    Where scores are not seen, `fit=Window()` is better: it updates the estimated scores of past outputs, which the default `fit` never does.
    """

    fit: IndexEstimator = struct.field(default_factory=StreamingNewton)
    radius: Radius = struct.field(default_factory=SampledRadius)


@struct.dataclass
class BootstrapCOSMOS(COSMOS):
    """COSMOS whose bonuses are proportional to the standard deviation of several copies of the index estimate (bootstrap).

    Each copy weights the samples at random. The default `exploration` calls all models at the first ten requests. By default the index estimate and
    its copies are computed by `StreamingNewton`. Where scores are not seen, this estimator never updates the estimated score of a past output.
    """

    fit: IndexEstimator = struct.field(default_factory=StreamingNewton)
    radius: Radius = struct.field(default_factory=BootstrapRadius)
    exploration: Exploration = struct.field(default_factory=lambda: WarmUp(10))


@struct.dataclass
class SearchState:
    """State of a `FixedSearch`: the estimate of the function that scores outputs (None if true scores are seen), and the environment's sizes."""

    evaluation: evaluators.EvaluatorState | None
    spec: CascadeSpec = struct.field(pytree_node=False)


@struct.dataclass
class FixedSearch(abc.ABC):
    """Base class of policies that call models by fixed priorities and thresholds. They learn only to estimate scores that are not seen.

    Attributes:
      evaluator: estimator of scores from features of outputs, used where scores are not seen.
      eta0, evaluator_bound: `[]` ridge of the evaluator's design matrix, and largest norm of the evaluator's coefficients.
    """

    evaluator: GLM = struct.field(default_factory=OnlineGLM, kw_only=True)
    eta0: Leaf = struct.field(default=1.0, kw_only=True)
    evaluator_bound: Leaf = struct.field(default=4.0, kw_only=True)

    def check(self) -> None:
        checks.part("evaluator", self.evaluator, "learns", "OnlineGLM()")
        for name in ("eta0", "evaluator_bound"):
            checks.positive(name, getattr(self, name), ())

    def check_spec(self, spec: CascadeSpec) -> None:
        evaluators.check_spec(self.evaluator, spec)

    def init(self, key: Array, spec: CascadeSpec) -> SearchState:
        del key
        return SearchState(evaluation=evaluators.initial(self.evaluator, spec, self.eta0), spec=spec)

    @abc.abstractmethod
    def _rule(self, key: Array, number: int) -> tuple[Array, Array]:
        """Returns priorities and thresholds `[number]`. Models are called by falling priority until the best score reaches the next threshold."""

    def act(self, key: Array, state: SearchState, obs: Observation, t: Array) -> Decision:
        del obs, t
        priority, threshold = self._rule(key, state.spec.num_models)
        return IndexSearch(priority, threshold, evaluators.mean_scoring(state.evaluation, state.spec)), {}

    def update(
        self, key: Array, state: SearchState, obs: Observation, action: IndexSearch, feedback: Feedback, t: Array
    ) -> SearchState:
        del key, obs, action, t
        if state.evaluation is None:
            return state
        args = self.evaluator, state.spec, feedback, self.eta0, self.evaluator_bound
        return state.replace(evaluation=evaluators.updated(state.evaluation, *args))


@struct.dataclass
class QueryAll(FixedSearch):
    """Policy that calls every model and deploys the output with the largest score."""

    def _rule(self, key: Array, number: int) -> tuple[Array, Array]:
        del key
        return jnp.zeros((number,)), jnp.full((number,), jnp.inf)


@struct.dataclass
class Frugal(FixedSearch):
    """Policy that calls models (opens boxes) in a fixed order (a cascade) and stops as soon as the best score reaches a threshold.

    `Frugal.of` orders boxes from the cheapest to the most expensive. `Frugal.tuned` also sets the threshold that is best on simulated periods.
    `Frugal.fit` chooses models, their order and a threshold for each. Source: FrugalGPT (Chen, Zaharia and Zou, 2023), with thresholds on scores.

    Attributes:
      threshold: `[]` score that ends the search; or `[K]`, one for each box, which is opened only if the best score so far is below it. The first box
        is always opened; a box with the threshold `-inf` is never opened, nor any box after it.
      order: `[K]` place of each box in the cascade, 0 for the first; None to open boxes in the order of their indices, whatever they cost.
    """

    threshold: Leaf = 0.53
    order: Leaf | None = None

    def check(self) -> None:
        super().check()
        try:
            threshold = np.asarray(self.threshold, float)
        except (TypeError, ValueError):
            threshold = np.asarray(np.nan)
        if threshold.ndim > 1 or np.isnan(threshold).any():  # It may be infinite.
            raise ValueError(f"threshold must be a number, or one for each box, got {checks.show(self.threshold)}")
        if self.order is not None:
            order = checks.numbers("order", self.order)
            if order.ndim != 1 or sorted(order.tolist()) != list(range(len(order))):
                raise ValueError(f"order must be a permutation of 0 to K - 1, got {checks.show(self.order)}")

    def check_spec(self, spec: CascadeSpec) -> None:
        super().check_spec(spec)
        for name, value in (("threshold", self.threshold), ("order", self.order)):
            if value is not None and np.ndim(value) and np.shape(value)[-1] != spec.num_models:
                raise ValueError(f"{name} must have one entry per model ({spec.num_models}), got {np.shape(value)[-1]}")

    @classmethod
    def of(cls, env: CascadeEnv, threshold: Leaf = 0.53, **options: Any) -> "Frugal":
        """Returns the cascade that calls the models of `env`, the cheapest first, until a score reaches `threshold`; `options` are other fields."""
        return cls(threshold=threshold, order=cost_order(env), **options)

    @classmethod
    def tuned(cls, env: CascadeEnv, number: int = 20_000, **options: Any) -> "Frugal":
        """Returns the cascade from the cheapest to the most expensive model with the best threshold in `number` simulated periods of `env`.

        Where scores are not seen, the policy computes them from outputs with the true coefficients of the environment, and the threshold is tuned for
        these scores, as FrugalGPT trains its scorer beforehand. `options` are other fields of the policy.
        """
        if env.evaluator is not None:
            options = {"evaluator": FrozenGLM(np.asarray(env.evaluator.theta)), **options}
        return cls.of(env, tuned_threshold(env, number)[0], **options)

    @classmethod
    def fit(cls, scores: Leaf, costs: Leaf, seen: Leaf | None = None, **options: Any) -> "Frugal":
        """Returns the cascade whose models, order and thresholds have the largest mean score less cost that `best_list` finds on training queries.

        Args:
          scores: `[N, K]` scores of the outputs of `K` models on `N` training queries, by which a cascade is judged.
          costs: `[N, K]` costs of these outputs, multiplied by the `cost_weight` of the environment in which the policy will run.
          seen: `[N, K]` scores with which thresholds are compared: estimates by a scorer trained beforehand, which the policy then needs
            (`evaluator=FrozenGLM(...)`); None for `scores`.
          options: other fields of the policy.
        """
        models, thresholds, _ = best_list(scores, costs, seen)
        number = np.shape(scores)[1]
        order, threshold = np.empty(number, np.float32), np.full(number, -np.inf, np.float32)
        order[[*models, *(a for a in range(number) if a not in models)]] = np.arange(number)
        threshold[models] = thresholds
        return cls(threshold=threshold, order=order, **options)

    def _rule(self, key: Array, number: int) -> tuple[Array, Array]:
        del key
        order = jnp.arange(number) if self.order is None else jnp.asarray(self.order)
        return -order.astype(jnp.float32), jnp.broadcast_to(jnp.asarray(self.threshold, jnp.float32), (number,))


@struct.dataclass
class RandomCascade(FixedSearch):
    """Policy that opens boxes (calls models) in random order until the best score reaches `threshold` `[]`."""

    threshold: Leaf = 0.53

    def check(self) -> None:
        super().check()
        checks.numbers("threshold", self.threshold, ())

    def _rule(self, key: Array, number: int) -> tuple[Array, Array]:
        return draws.uniform(key, (number,)), jnp.broadcast_to(jnp.asarray(self.threshold, jnp.float32), (number,))


@struct.dataclass
class LinUCBState:
    """State of `LinUCB`: a ridge regression of score less cost on the `m` features of requests, for each of `K` models.

    Attributes:
      inverse: `[m, m, K]` inverses of the design matrices.
      target: `[m, K]` sums of score less cost, times the features.
      errors: rounding errors of these sums by name, for which `numerics.accumulate` corrects.
      spec: sizes and links of the environment (static).
    """

    inverse: Array
    target: Array
    errors: dict[str, Array]
    spec: CascadeSpec = struct.field(pytree_node=False)


@struct.dataclass
class LinUCB:
    """Router without a cascade: calls one model per request, the one with the largest upper confidence bound on score less cost.

    In the first period the environment calls all models and deploys no output, whatever the policy. Where scores are not seen, this policy learns
    from rewards of deployed outputs, thus nothing in the first period.

    Source: Li et al. (2010).

    Attributes:
      alpha: `[]` factor of the bonus, which is the norm of the request's features in the inverse design matrix.
      ridge: `[]` ridge of the regressions.
    """

    alpha: Leaf = 0.5
    ridge: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("alpha", self.alpha, ())
        checks.positive("ridge", self.ridge, ())

    def init(self, key: Array, spec: CascadeSpec) -> LinUCBState:
        del key
        number, dim = spec.num_models, spec.context_dim
        inverse, target = first_inverse(self.ridge, dim, number), jnp.zeros((dim, number), jnp.float32)
        return LinUCBState(inverse, target, numerics.no_errors(inverse=inverse, target=target), spec)

    def act(self, key: Array, state: LinUCBState, obs: Observation, t: Array) -> Decision:
        del t
        psi, spec = obs.context, state.spec
        image = numerics.combine(psi, state.inverse)
        mean = sum(image[i] * state.target[i] for i in range(spec.context_dim))
        norm = jnp.sqrt(jnp.maximum(numerics.combine(psi, image), 0.0))
        never = jnp.full((spec.num_models,), -jnp.inf)
        scoring = None
        if spec.feature_dim:  # One box is opened: its score decides nothing.
            zero = jnp.zeros((), jnp.float32)
            flat = jnp.zeros((spec.feature_dim,), jnp.float32)
            scoring = Scoring(flat, jnp.outer(flat, flat), zero, zero, link=spec.score_link)
        return IndexSearch(mean + self.alpha * norm, never, scoring, order=draws.order(key, spec.num_models)), {}

    def update(
        self, key: Array, state: LinUCBState, obs: Observation, action: IndexSearch, feedback: Feedback, t: Array
    ) -> LinUCBState:
        del key, action, t
        if state.spec.feature_dim:
            learned, gain = feedback.deployed, feedback.reward
        else:
            assert feedback.score is not None
            learned, gain = feedback.seen, feedback.score
        target = jnp.where(learned, gain - feedback.cost, 0.0) * obs.context[:, None]
        return numerics.accumulate(state, learned, inverse=change_of_inverse(state.inverse, obs.context), target=target)
