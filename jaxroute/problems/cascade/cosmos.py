"""COSMOS: Weitzman's search on optimistic estimates of reservation indices and scores; and its relatives, which differ in one part."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, Metric
from jaxroute.estimators.glm import FrozenGLM, OnlineGLM
from jaxroute.estimators.links import IDENTITY
from jaxroute.problems.cascade import evaluation as ev
from jaxroute.problems.cascade.exploration import Coins, OncePerBlock, ThenCommit, WarmUp
from jaxroute.problems.cascade.index_fit import (
    Evaluator,
    GradientDescent,
    LocationFamily,
    Sample,
    Sizes,
    Streaming,
    Window,
    grown_inverse,
)
from jaxroute.problems.cascade.radii import Bootstrap, Now, Practical, Sampled
from jaxroute.problems.cascade.search import IndexSearch, Scoring
from jaxroute.problems.cascade.types import CascadeSpec

# A link that comes closer to 1 than this has rounded: no score stops the search then.
_SATURATED = 1.0 - 1e-6


@struct.dataclass
class CosmosState:
    """number: `[K]` int32 samples that the estimates of each box rest on. rho: `[m, K]` and fit: state of the index estimator. design: `[m, m, K]`, inverse of the
    design matrices `V`. evaluation: what is known of the evaluator, opened: `[d, d, K]`, sum of `phi phi'` over seen outputs, both
    None with a known evaluator. potential: `[K]`, sum of squared norms of the requests of seen samples in the inverse design matrices
    before them; score_potential: `[]` of deployed outputs. radius, exploration: states of these parts. spec: what was known in advance
    (static)."""

    number: jax.Array
    rho: jax.Array
    fit: Any
    design: jax.Array
    evaluation: ev.Evaluation | None
    opened: jax.Array | None
    potential: jax.Array
    score_potential: jax.Array
    radius: Any
    exploration: Any
    spec: CascadeSpec = struct.field(pytree_node=False)


_GAUGES = (
    Metric("samples", "outputs that a model's estimates rest on", "outputs", "gauge", ("model",), default=False),
    Metric("potential", "elliptical potential of the requests", "", "gauge", ("model",), default=False),
    Metric("score_potential", "elliptical potential of the deployed outputs", "", "gauge", default=False),
)


def _square_norm(design, psi) -> jax.Array:
    """Squared norm `[K]` of `psi` `[m]` in matrices `[m, m, K]`."""
    return jnp.maximum(numerics.combine(psi, numerics.combine(psi, design)), 0.0)


@struct.dataclass
class COSMOS:
    """Online contextual Pandora's box: estimates the indices of all boxes, adds a bonus to each, and searches by Weitzman's rule.

    Before a request every box has an estimated index, made optimistic by a radius times the norm of the request in the box's inverse
    design matrix. Boxes are opened by falling index until the best score found reaches the next index. Where scores are not seen, an
    output counts with an optimistic estimate of its score, learned from the rewards of deployed outputs.

    Source: Belloni, Chen and Wei (2026), Algorithm 1 (known evaluator) and Algorithm 2 (unknown).

    Differs from the paper: constants of the radii are tuned (`Practical`) because those of the proofs open every box. Indices are
    fitted exactly on the latest samples only, with a small ridge (`Window`; `Window.exact` keeps all), and the evaluator by one Newton
    step per pair, each linearised once, in place of eq. (19) (`OnlineGLM`; `ExactGLM` keeps all); what is too long is shortened, not
    projected. A score of 1 ends a search whatever the indices; where the estimate's link has rounded to 1, none does.

    fit: index estimator, `Window`, `Streaming`, `MomentEquations`, .... evaluator: `OnlineGLM`, `ExactGLM` or `FrozenGLM`, used where
    scores are not seen. radius: `Practical`, `Theoretical`, `Bootstrap` or `Sampled`. exploration: `WarmUp`, `Coins`, `ThenCommit` or
    `OncePerBlock`. eta1, eta0: `[]` ridges of the design matrices of requests and of deployed outputs. evaluator_bound: `[]` longest
    `theta`. deploy_optimism: `[]`, 1 if the output with the largest optimistic score is deployed, 0 if by the plain estimate.
    horizon: `[]` T in the radii, None for the run's.
    """

    fit: Any = struct.field(default_factory=Window)
    evaluator: Any = struct.field(default_factory=OnlineGLM)
    radius: Any = struct.field(default_factory=Practical)
    exploration: Any = struct.field(default_factory=WarmUp)
    eta1: Leaf = 1.0
    eta0: Leaf = 1.0
    evaluator_bound: Leaf = 4.0
    deploy_optimism: Leaf = 1.0
    horizon: Leaf | None = None

    def check(self) -> None:
        parts = {
            "fit": ("predict", "Window(...), Streaming(...), ..."),
            "radius": ("bonus", "Practical(...), Theoretical(...), ..."),
            "exploration": ("forced", "WarmUp(...), Coins(...), ..."),
        }
        for name, (needs, examples) in parts.items():
            part = getattr(self, name)
            if isinstance(part, type) or not hasattr(part, needs) or not hasattr(part, "check"):
                raise ValueError(f"{name} must be {examples}, got {checks.show(part)}")
            part.check()
        ev.check(self.evaluator)
        for name in ("eta1", "eta0", "evaluator_bound"):
            checks.positive(name, getattr(self, name), ())
        checks.probability("deploy_optimism", self.deploy_optimism, ())
        if self.horizon is not None and float(checks.positive("horizon", self.horizon, ())) < 1:
            raise ValueError(f"horizon must be at least 1, got {float(self.horizon):g}")

    def check_for(self, spec: CascadeSpec) -> None:
        ev.check_for(self.evaluator, spec)

    def init(self, key, spec: CascadeSpec) -> CosmosState:
        number, dim, features = spec.num_models, spec.context_dim, spec.feature_dim
        learns = self._learns_scores(spec)
        sizes = Sizes(number, dim, features if learns else 0)
        eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(self.eta1, jnp.float32)
        return CosmosState(
            number=jnp.zeros((number,), jnp.int32),
            rho=jnp.zeros((dim, number), jnp.float32),
            fit=self.fit.init(sizes),
            design=jnp.broadcast_to(eye, (dim, dim, number)),
            evaluation=ev.start(self.evaluator, spec, self.eta0),
            opened=jnp.zeros((features, features, number), jnp.float32) if learns else None,
            potential=jnp.zeros((number,), jnp.float32),
            score_potential=jnp.zeros((), jnp.float32),
            radius=self.radius.init(sizes),
            exploration=self.exploration.init(key),
            spec=spec,
        )

    def _learns_scores(self, spec: CascadeSpec) -> bool:
        return bool(spec.feature_dim) and not isinstance(self.evaluator, FrozenGLM)

    def _horizon(self, spec: CascadeSpec):
        horizon = spec.horizon if self.horizon is None else self.horizon
        if horizon is None:
            raise ValueError("horizon must be given where no run gives it")
        return jnp.asarray(horizon, jnp.float32)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return _GAUGES

    def gauges(self, state: CosmosState) -> dict[str, jax.Array]:
        return {"samples": state.number, "potential": state.potential, "score_potential": state.score_potential}

    def _now(self, state: CosmosState, psi, t) -> Now:
        norm = jnp.sqrt(_square_norm(state.design, psi))
        trace = None
        if state.opened is not None:
            assert state.evaluation is not None
            size = state.opened.shape[0]
            rows = [numerics.combine(state.evaluation.inverse[i], state.opened[i]) for i in range(size)]
            trace = jnp.maximum(sum(rows[1:], rows[0]), 0.0)
        return Now(
            t=t,
            log_horizon=jnp.log(self._horizon(state.spec)),
            number=state.number,
            psi=psi,
            norm=norm,
            trace=trace,
            eta1=jnp.asarray(self.eta1, jnp.float32),
            eta0=jnp.asarray(self.eta0, jnp.float32),
            index_bound=jnp.asarray(getattr(self.fit, "bound", 2.0), jnp.float32),
            evaluator_bound=jnp.asarray(self.evaluator_bound, jnp.float32),
            spec=state.spec,
        )

    def _scoring(self, key, state: CosmosState, now: Now) -> Scoring | None:
        if not self._learns_scores(state.spec):
            return ev.mean_scoring(state.evaluation, state.spec)
        assert state.evaluation is not None
        theta, width = self.radius.evaluator(key, now, state.evaluation.state.theta, state.evaluation.inverse)
        width = jnp.asarray(width, jnp.float32)
        return Scoring(theta, state.evaluation.inverse, width, width * self.deploy_optimism, link=state.spec.score_link)

    def act(self, key, state, obs, t):
        k_index, k_score, k_forced = draws.split(key, 3)
        spec = state.spec
        now = self._now(state, obs.context, t)
        middle, index_of = self.fit.predict(state.fit, state.rho, obs.context, spec.index_link)
        bonus = self.radius.bonus(k_index, state.radius, now)
        u = numerics.kept(middle + bonus)
        index = index_of(u)
        # A score of 1 ends a search, unless it is an estimate that has rounded, as the link may have.
        if not spec.feature_dim:
            threshold = jnp.minimum(index, 1.0)
        elif spec.index_link is IDENTITY:
            threshold = index
        else:
            threshold = jnp.where(index >= _SATURATED, jnp.inf, index)
        forced = self.exploration.forced(k_forced, state.exploration, t, self._horizon(spec))
        scoring = self._scoring(k_score, state, now)
        action = IndexSearch(
            priority=u,
            threshold=jnp.where(forced, jnp.inf, threshold),
            scoring=scoring,
            index=index,
            bounded=~forced & (jnp.asarray(self.deploy_optimism) == 1.0),
            forced=forced,
        )
        info = {"index": index, "bonus": bonus, "forced": forced.astype(jnp.float32)}
        if now.trace is not None:
            info |= {"trace": now.trace}
        return action, info

    def update(self, key, state, obs, action, feedback, t):
        spec, psi, seen = state.spec, obs.context, feedback.seen
        evaluation, opened, newest = state.evaluation, state.opened, None
        score = feedback.score
        score_potential = state.score_potential
        if evaluation is not None:
            score_potential = score_potential + ev.square_norm(evaluation, feedback)
            evaluation = ev.learned(evaluation, self.evaluator, spec, feedback, self.eta0, self.evaluator_bound)
            score = ev.estimated_scores(evaluation, spec, feedback.features)
            newest = Evaluator(evaluation.state.theta, spec.score_link) if self._learns_scores(spec) else None
        learns = self.exploration.learns(action.forced, t, self._horizon(spec))
        seen = seen & learns
        if opened is not None:
            phi = jnp.where(seen, jnp.swapaxes(feedback.features, 0, 1), 0.0)
            opened = opened + phi[:, None] * phi[None]
        sample = Sample(t, psi, seen, feedback.cost, score, feedback.features)
        radius = self.radius.update(key, state.radius, sample, spec.index_link)
        fit, rho = self.fit.update(state.fit, state.rho, sample, newest, spec.index_link)
        return CosmosState(
            number=state.number + seen.astype(jnp.int32),
            rho=jnp.where(learns, rho, state.rho),
            fit=fit,
            design=grown_inverse(state.design, psi, seen),
            evaluation=evaluation,
            opened=opened,
            potential=state.potential + jnp.where(seen, _square_norm(state.design, psi), 0.0),
            score_potential=score_potential,
            radius=radius,
            exploration=state.exploration,
            spec=spec,
        )


def _no_bonus() -> Practical:
    return Practical(index=0.0, plug_in=0.0, optimism=0.0)


@struct.dataclass
class Greedy(COSMOS):
    """COSMOS without bonuses: Weitzman's search on the estimates themselves. Some runs never correct an index that starts too low."""

    radius: Any = struct.field(default_factory=_no_bonus)


@struct.dataclass
class EpsilonGreedy(Greedy):
    """`Greedy` that opens all boxes with chance `min(1, scale t^-(1/3))`."""

    exploration: Any = struct.field(default_factory=Coins)


@struct.dataclass
class ExploreThenCommit(Greedy):
    """Opens all boxes in the first `T^(2/3)` periods, then searches by the indices that it has."""

    exploration: Any = struct.field(default_factory=ThenCommit)


@struct.dataclass
class OnlineGradient(Greedy):
    """Opens all boxes once per block of `T^(1/6)` periods, and descends the loss with the samples of these periods alone.

    Source: in the spirit of Atsidakou et al. (2024); not their exact algorithm.
    """

    fit: Any = struct.field(default_factory=GradientDescent)
    exploration: Any = struct.field(default_factory=OncePerBlock)


@struct.dataclass
class DistributionLearner(COSMOS):
    """Takes each box's scores to be a linear mean plus noise of one law, learns both, and solves for the index.

    Source: in the spirit of Liu et al. (2025); the details are ours (`LocationFamily`).
    """

    fit: Any = struct.field(default_factory=LocationFamily)
    radius: Any = struct.field(default_factory=lambda: Practical(plug_in=0.0, optimism=0.0))


@struct.dataclass
class ThompsonSampling(COSMOS):
    """COSMOS that draws its estimates at random around themselves in place of bonuses. Not in the paper.

    Its estimator is `Streaming`: with an unknown evaluator its warning applies.
    """

    fit: Any = struct.field(default_factory=Streaming)
    radius: Any = struct.field(default_factory=Sampled)


@struct.dataclass
class BootstrapCOSMOS(COSMOS):
    """COSMOS whose bonuses are the spread of weighted copies of the estimate, after a warm-up of ten periods.

    Estimate and copies are `Streaming`: with an unknown evaluator its warning applies.
    """

    fit: Any = struct.field(default_factory=Streaming)
    radius: Any = struct.field(default_factory=Bootstrap)
    exploration: Any = struct.field(default_factory=lambda: WarmUp(10))


# Short names of the index estimators.
_FITS = {"window": Window, "streaming": Streaming}


def cosmos(
    *,
    index: Leaf = 0.10,
    plug_in: Leaf = 0.03,
    optimism: Leaf = 0.30,
    warm: Leaf = 0,
    fit: Any = "window",
    **settings: Any,
) -> COSMOS:
    """`COSMOS` with the constants of its parts as arguments, for grids.

    Args:
      index, plug_in, optimism: of `Practical`. warm: periods of `WarmUp`. fit: "window", "streaming", or an estimator. settings:
        others of `COSMOS`.

    Raises:
      ValueError: an estimator of another name, or `radius` or `exploration`, which are made here.
    """
    for name, made in (("radius", "index, plug_in and optimism"), ("exploration", "warm")):
        if name in settings:
            raise ValueError(f"{name} must not be given beside {made}: use COSMOS({name}=...)")
    if isinstance(fit, str):
        fit = _FITS[checks.one_of("fit", fit, _FITS)]()
    return COSMOS(fit=fit, radius=Practical(index, plug_in, optimism), exploration=WarmUp(warm), **settings)
