"""COSMOS (Belloni, Chen and Wei, 2026): Weitzman's search by optimistic estimates of reservation indices and scores.

Line numbers are those of Algorithm 2, for scores that must be learned; the initialisation is line 1. Algorithm 1 has the same lines.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.types import Leaf, Metric, PyTree
from jaxroute.estimators.glm import GLM, OnlineGLM
from jaxroute.estimators.links import IDENTITY
from jaxroute.problems.cascade.parts import evaluator as evaluators
from jaxroute.problems.cascade.parts.exploration import Exploration, WarmUp
from jaxroute.problems.cascade.parts.indices import (
    Evaluator,
    IndexEstimator,
    Sample,
    Sizes,
    change_of_inverse,
    first_inverse,
    square_norm,
)
from jaxroute.problems.cascade.parts.radii import PracticalRadius, Radius, RadiusInputs
from jaxroute.problems.cascade.parts.search import Decision, IndexSearch, Scoring
from jaxroute.problems.cascade.parts.window import Window
from jaxroute.problems.cascade.types import CascadeSpec, Feedback, Observation

# An estimated index above this may be 1 by rounding: no score stops the search then.
_SATURATED = 1.0 - 1e-6


@struct.dataclass
class CosmosState:
    """State of COSMOS before a request, for `K` boxes (models), `m` features of a request and `d` features of an output.

    Attributes:
      number: `[K]` int32, number of samples from which the index of each box is estimated, `n_at`.
      rho: `[m, K]` estimated coefficients of the indices, eqs. (10) and (23).
      fit: state of the index estimator.
      design: `[m, m, K]` inverses of the design matrices `V_at`, eq. (13).
      evaluation: estimate of the evaluator, eqs. (19) and (20); None if scores are seen.
      opened: `[d, d, K]` for each box the sum of `phi phi'` over its outputs so far, with features `phi`; None if scores are seen.
      potential: `[K]` elliptical potential, eq. (16): sum over past requests of `psi' V^-1 psi`, with the design matrix `V` before the request.
      score_potential: `[]` sum over deployed outputs of `phi' V^-1 phi`, with features `phi` and the evaluator's design matrix `V` before the output.
      errors: rounding errors of the sums by name of the field, for which `numerics.accumulate` corrects.
      radius: state of the policy's `Radius`, which computes the bonuses.
      exploration: state of the policy's `Exploration`, which chooses the periods in which all boxes are opened.
      spec: sizes and links of the environment (static).
    """

    number: Array
    rho: Array
    fit: PyTree
    design: Array
    evaluation: evaluators.EvaluatorState | None
    opened: Array | None
    potential: Array
    score_potential: Array
    errors: dict[str, Array]
    radius: PyTree
    exploration: PyTree
    spec: CascadeSpec = struct.field(pytree_node=False)


@struct.dataclass
class COSMOS:
    """Online contextual Pandora's box: estimates the reservation indices of all boxes, adds a bonus to each, and searches by Weitzman's rule.

    Before a request every box has an estimated index, made optimistic by a radius times the norm of the request in the box's inverse design matrix.
    Boxes are opened by falling index until the best score so far reaches the next index. Where scores are not seen, outputs have an optimistic
    estimate of their score, learned from the rewards of deployed outputs.

    To sweep constants of a component, take a grid over a function that builds the policy:
    `jr.grid(lambda index: COSMOS(radius=PracticalRadius(index=index)), index=[.03, .1, .3])`.

    Source: Belloni, Chen and Wei (2026), Algorithm 1 (known evaluator: scores are seen) and Algorithm 2 (unknown evaluator).

    Differs from the paper: constants of the radii are tuned (`PracticalRadius`): with those of the proofs every box would be opened. Indices minimise
    the loss of the latest samples only, with a small ridge (`Window`; `Window.exact` stores all). The evaluator takes one Newton step per deployed
    output instead of solving eq. (19) (`OnlineGLM`; `ExactGLM` solves it). Estimates of too large a norm are scaled down, not projected. If scores
    are seen, a score of 1 ends the search. If a nonlinear link estimates them, a box with an index of 1 up to rounding is opened whatever the scores.

    Attributes:
      fit: index estimator, such as `Window`, `StreamingNewton` or `MomentEquations`.
      evaluator: estimator of scores where they are not seen, `OnlineGLM`, `ExactGLM` or `FrozenGLM`.
      radius: rule for bonuses, `PracticalRadius`, `TheoreticalRadius`, `BootstrapRadius` or `SampledRadius`.
      exploration: rule for periods that open all boxes, `WarmUp`, `DecayingExploration`, `ExplorationPhase` or `BlockExploration`.
      eta1, eta0: `[]` ridges of the design matrices of requests, and of deployed outputs.
      evaluator_bound: `[]` largest norm of the evaluator's coefficients `theta`.
      deploy_optimism: `[]` factor in [0, 1] of a score's bonus in the choice of the output to deploy; 0 for the plain estimates.
      horizon: `[]` number of periods `T` in the radii, None for the horizon of the run.
    """

    fit: IndexEstimator = struct.field(default_factory=Window)
    evaluator: GLM = struct.field(default_factory=OnlineGLM)
    radius: Radius = struct.field(default_factory=PracticalRadius)
    exploration: Exploration = struct.field(default_factory=WarmUp)
    eta1: Leaf = 1.0
    eta0: Leaf = 1.0
    evaluator_bound: Leaf = 4.0
    deploy_optimism: Leaf = 1.0
    horizon: Leaf | None = None

    metrics = (
        Metric("samples", "outputs behind a model's estimates", "outputs", "gauge", ("model",), default=False),
        Metric("potential", "elliptical potential of the requests", "", "gauge", ("model",), default=False),
        Metric("score_potential", "elliptical potential of the deployed outputs", "", "gauge", default=False),
    )

    def init(self, key: Array, spec: CascadeSpec) -> CosmosState:
        # Algorithm 2, line 1. The environment opens all boxes in period 0, which is free; `update` learns from it.
        number, dim, features = spec.num_models, spec.context_dim, spec.feature_dim
        learns = self._learns_scores(spec)
        sizes = Sizes(number, dim, features if learns else 0)
        sums: dict[str, Array] = {
            "design": first_inverse(self.eta1, dim, number),
            "potential": jnp.zeros((number,), jnp.float32),
            "score_potential": jnp.zeros((), jnp.float32),
        }
        if learns:
            sums["opened"] = jnp.zeros((features, features, number), jnp.float32)
        return CosmosState(
            number=jnp.zeros((number,), jnp.int32),
            rho=jnp.zeros((dim, number), jnp.float32),
            fit=self.fit.init(sizes),
            evaluation=evaluators.initial(self.evaluator, spec, self.eta0),
            errors=numerics.no_errors(**sums),
            radius=self.radius.init(sizes),
            exploration=self.exploration.init(key),
            spec=spec,
            **{"opened": None, **sums},
        )

    def act(self, key: Array, state: CosmosState, obs: Observation, t: Array) -> Decision:
        k_index, k_score, k_forced = draws.split(key, 3)
        spec, psi = state.spec, obs.context  # Algorithm 2, line 3.
        inputs = self._radius_inputs(state, psi, t)
        # Algorithm 2, line 4: optimistic indices `L(rho . psi + B |psi|)`, eqs. (15) and (27).
        middle, index_of = self.fit.predict(state.fit, state.rho, psi, spec.index_link)
        bonus = self.radius.bonus(k_index, state.radius, inputs)
        u = xla.compute_once(middle + bonus)
        index = index_of(u)
        # A score of 1 ends a search, unless it is an estimate, which may be 1 by rounding, like the link.
        if not spec.feature_dim:
            threshold = jnp.minimum(index, 1.0)
        elif spec.index_link is IDENTITY:
            threshold = index
        else:
            threshold = jnp.where(index >= _SATURATED, jnp.inf, index)
        forced = self.exploration.forced(k_forced, state.exploration, t, self._horizon(spec))
        # Algorithm 2, lines 5 to 13: boxes by falling `u`, the order of the indices, until `M_t` reaches the next index; the best is deployed.
        scoring = self._scoring(k_score, state, inputs)
        action = IndexSearch(
            priority=u,
            threshold=jnp.where(forced, jnp.inf, threshold),
            scoring=scoring,
            index=index,
            bounded=~forced & (jnp.asarray(self.deploy_optimism) == 1.0),
            forced=forced,
            order=draws.order(draws.fold_in(key, 3), u.shape[0]),
        )
        info = {"index": index, "bonus": bonus, "forced": forced.astype(jnp.float32)}
        if inputs.trace is not None:
            info |= {"trace": inputs.trace}
        return action, info

    def update(
        self, key: Array, state: CosmosState, obs: Observation, action: IndexSearch, feedback: Feedback, t: Array
    ) -> CosmosState:
        spec, psi, seen, score = state.spec, obs.context, feedback.seen, feedback.score
        evaluation, newest = state.evaluation, None
        if evaluation is not None:
            # The reward of Algorithm 2, line 13: `theta_hat` and `Phi` of the next period, eqs. (19) and (20), and their scores, eq. (22).
            assert feedback.features is not None
            state = numerics.accumulate(state, score_potential=evaluators.deployed_square_norm(evaluation, feedback))
            evaluation = evaluators.updated(evaluation, self.evaluator, spec, feedback, self.eta0, self.evaluator_bound)
            score = spec.score_link.value(numerics.combine(evaluation.state.theta, jnp.swapaxes(feedback.features, 0, 1)))
            newest = Evaluator(evaluation.state.theta, spec.score_link) if self._learns_scores(spec) else None
        assert score is not None and action.forced is not None
        learns = self.exploration.learns(action.forced, t, self._horizon(spec))
        seen = seen & learns
        more = {"design": change_of_inverse(state.design, psi), "potential": square_norm(state.design, psi)}
        if state.opened is not None:
            assert feedback.features is not None
            phi = jnp.where(seen, jnp.swapaxes(feedback.features, 0, 1), 0.0)
            more["opened"] = phi[:, None] * phi[None]
        # `rho_hat` and `V` of the next period's line 4: eq. (10) or (23), and eq. (13).
        sample = Sample(t, psi, seen, feedback.cost, score, feedback.features)
        radius = self.radius.update(key, state.radius, sample, spec.index_link)
        fit, rho = self.fit.update(state.fit, state.rho, sample, newest, spec.index_link)
        return numerics.accumulate(state, seen, **more).replace(
            number=state.number + seen.astype(jnp.int32),
            rho=jnp.where(learns, rho, state.rho),
            fit=fit,
            evaluation=evaluation,
            radius=radius,
        )

    def gauges(self, state: CosmosState) -> dict[str, Array]:
        return {"samples": state.number, "potential": state.potential, "score_potential": state.score_potential}

    def check(self) -> None:
        checks.part("fit", self.fit, "predict", "Window(...), StreamingNewton(...), ...")
        checks.part("radius", self.radius, "bonus", "PracticalRadius(...), TheoreticalRadius(...), ...")
        checks.part("exploration", self.exploration, "forced", "WarmUp(...), DecayingExploration(...), ...")
        checks.part("evaluator", self.evaluator, "learns", "OnlineGLM()")
        for name in ("eta1", "eta0", "evaluator_bound"):
            checks.positive(name, getattr(self, name), ())
        checks.probability("deploy_optimism", self.deploy_optimism, ())
        if self.horizon is not None:
            checks.at_least("horizon", self.horizon, 1.0)

    def check_spec(self, spec: CascadeSpec) -> None:
        evaluators.check_spec(self.evaluator, spec)

    def _learns_scores(self, spec: CascadeSpec) -> bool:
        return bool(spec.feature_dim) and self.evaluator.learns

    def _horizon(self, spec: CascadeSpec) -> Array:
        horizon = spec.horizon if self.horizon is None else self.horizon
        if horizon is None:
            raise ValueError("horizon must be given outside a run")
        return jnp.asarray(horizon, jnp.float32)

    def _radius_inputs(self, state: CosmosState, psi: Array, t: Array) -> RadiusInputs:
        """Returns the quantities from which the bonuses for a request `psi` `[m]` in period `t` are computed, such as the norms of eq. (14)."""
        norm = jnp.sqrt(square_norm(state.design, psi))
        trace = None
        if state.opened is not None:
            assert state.evaluation is not None
            size = state.opened.shape[0]
            rows = [numerics.combine(state.evaluation.inverse[i], state.opened[i]) for i in range(size)]
            trace = jnp.maximum(sum(rows[1:], rows[0]), 0.0)
        return RadiusInputs(
            t=t,
            log_horizon=jnp.log(self._horizon(state.spec)),
            number=state.number,
            psi=psi,
            norm=norm,
            trace=trace,
            eta1=jnp.asarray(self.eta1, jnp.float32),
            eta0=jnp.asarray(self.eta0, jnp.float32),
            index_bound=jnp.asarray(self.fit.bound, jnp.float32),
            evaluator_bound=jnp.asarray(self.evaluator_bound, jnp.float32),
            spec=state.spec,
        )

    def _scoring(self, key: Array, state: CosmosState, inputs: RadiusInputs) -> Scoring | None:
        """Returns the rule that estimates scores of outputs, eq. (21), with a bonus (unless the evaluator is frozen); None if scores are seen."""
        if not self._learns_scores(state.spec):
            return evaluators.mean_scoring(state.evaluation, state.spec)
        assert state.evaluation is not None
        theta, width = self.radius.scoring(key, inputs, state.evaluation.state.theta, state.evaluation.inverse)
        width = jnp.asarray(width, jnp.float32)
        return Scoring(theta, state.evaluation.inverse, width, width * self.deploy_optimism, link=state.spec.score_link)
