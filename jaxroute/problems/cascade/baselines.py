"""Baselines: one call per request, cascades with fixed thresholds, and all boxes at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.glm import OnlineGLM
from jaxroute.problems.cascade import evaluation as ev
from jaxroute.problems.cascade.env import Cascade
from jaxroute.problems.cascade.index_fit import grown_inverse
from jaxroute.problems.cascade.search import IndexSearch
from jaxroute.problems.cascade.truth import cost_order, tuned_threshold
from jaxroute.problems.cascade.types import CascadeSpec


@struct.dataclass
class SearchState:
    """evaluation: what is known of the evaluator, None with a known one. spec: what was known in advance (static)."""

    evaluation: ev.Evaluation | None
    spec: CascadeSpec = struct.field(pytree_node=False)


@struct.dataclass
class FixedSearch:
    """A search that depends on nothing that was seen before but, where scores are not seen, the evaluator that is learned on the way.

    evaluator, eta0, evaluator_bound: as in `COSMOS`.
    """

    evaluator: Any = struct.field(default_factory=OnlineGLM, kw_only=True)
    eta0: Leaf = struct.field(default=1.0, kw_only=True)
    evaluator_bound: Leaf = struct.field(default=4.0, kw_only=True)

    def check(self) -> None:
        ev.check(self.evaluator)
        for name in ("eta0", "evaluator_bound"):
            checks.positive(name, getattr(self, name), ())

    def check_for(self, spec: CascadeSpec) -> None:
        ev.check_for(self.evaluator, spec)

    def init(self, key, spec: CascadeSpec) -> SearchState:
        del key
        return SearchState(evaluation=ev.start(self.evaluator, spec, self.eta0), spec=spec)

    def _rule(self, key, psi, number: int) -> tuple[jax.Array, jax.Array]:
        """Priorities and thresholds `[K]`."""
        raise NotImplementedError

    def act(self, key, state, obs, t):
        del t
        priority, threshold = self._rule(key, obs.context, state.spec.num_models)
        return IndexSearch(priority, threshold, ev.mean_scoring(state.evaluation, state.spec)), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, t
        if state.evaluation is None:
            return state
        args = self.evaluator, state.spec, feedback, self.eta0, self.evaluator_bound
        return state.replace(evaluation=ev.learned(state.evaluation, *args))


@struct.dataclass
class QueryAll(FixedSearch):
    """Opens every box and deploys the best output."""

    def _rule(self, key, psi, number: int):
        del key, psi
        return jnp.zeros((number,)), jnp.full((number,), jnp.inf)


@struct.dataclass
class Frugal(FixedSearch):
    """A cascade from the cheapest box to the dearest that stops as soon as the best score reaches a threshold.

    Source: FrugalGPT (Chen, Zaharia and Zou, 2023), as a rule on scores. `Frugal.tuned` finds the threshold on draws of its own.

    threshold: `[]`, or `[K]` for the level that must be missed before each box is opened (of the first one it does not matter).
    order: `[K]`, place of each box in the cascade, 0 first; None for the order of their numbers.
    """

    threshold: Leaf = 0.53
    order: Leaf | None = None

    def check(self) -> None:
        FixedSearch.check(self)
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

    def check_for(self, spec: CascadeSpec) -> None:
        FixedSearch.check_for(self, spec)
        for name, value in (("threshold", self.threshold), ("order", self.order)):
            if value is not None and np.ndim(value) and np.shape(value)[-1] != spec.num_models:
                raise ValueError(f"{name} must have one entry per model ({spec.num_models}), got {np.shape(value)[-1]}")

    @classmethod
    def tuned(cls, env: Cascade, **options: Any) -> "Frugal":
        """From the cheapest model to the dearest, with the best single threshold (`tuned_threshold`)."""
        return cls(threshold=tuned_threshold(env)[0], order=cost_order(env), **options)

    def _rule(self, key, psi, number: int):
        del key, psi
        order = jnp.arange(number) if self.order is None else jnp.asarray(self.order)
        return -order.astype(jnp.float32), jnp.broadcast_to(jnp.asarray(self.threshold, jnp.float32), (number,))


@struct.dataclass
class RandomCascade(FixedSearch):
    """Opens boxes in random order until the best score reaches a threshold.

    threshold: `[]`.
    """

    threshold: Leaf = 0.53

    def check(self) -> None:
        FixedSearch.check(self)
        checks.numbers("threshold", self.threshold, ())

    def _rule(self, key, psi, number: int):
        del psi
        return draws.uniform(key, (number,)), jnp.broadcast_to(jnp.asarray(self.threshold, jnp.float32), (number,))


@struct.dataclass
class LinUCBState:
    """inverse: `[m, m, K]` of the design matrices. target: `[m, K]`, sum of `y psi`. spec: (static)."""

    inverse: jax.Array
    target: jax.Array
    spec: CascadeSpec = struct.field(pytree_node=False)


@struct.dataclass
class LinUCB:
    """One call per request, of the model with the largest upper bound on score less cost: what a router does that never cascades.

    With an unknown evaluator it learns from rewards, and so nothing in the free first period.

    Source: Li et al. (2010).

    alpha: `[]` width of the bonus. ridge: `[]`.
    """

    alpha: Leaf = 0.5
    ridge: Leaf = 1.0

    def check(self) -> None:
        checks.non_negative("alpha", self.alpha, ())
        checks.positive("ridge", self.ridge, ())

    def init(self, key, spec: CascadeSpec) -> LinUCBState:
        del key
        number, dim = spec.num_models, spec.context_dim
        eye = jnp.eye(dim, dtype=jnp.float32)[:, :, None] / jnp.asarray(self.ridge, jnp.float32)
        return LinUCBState(
            inverse=jnp.broadcast_to(eye, (dim, dim, number)), target=jnp.zeros((dim, number), jnp.float32), spec=spec
        )

    def act(self, key, state, obs, t):
        del key, t
        psi, spec = obs.context, state.spec
        image = numerics.combine(psi, state.inverse)
        mean = sum(image[i] * state.target[i] for i in range(spec.context_dim))
        norm = jnp.sqrt(jnp.maximum(numerics.combine(psi, image), 0.0))
        never = jnp.full((spec.num_models,), -jnp.inf)
        features = None
        if spec.feature_dim:  # One box is opened: its score decides nothing.
            zero = jnp.zeros((), jnp.float32)
            flat = jnp.zeros((spec.feature_dim,), jnp.float32)
            features = ev.Scoring(flat, jnp.outer(flat, flat), zero, zero, link=spec.score_link)
        return IndexSearch(mean + self.alpha * norm, never, features), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, action, t
        known = not state.spec.feature_dim
        learned = feedback.seen if known else feedback.deployed
        y = (feedback.score if known else feedback.reward) - feedback.cost
        target = state.target + jnp.where(learned, y, 0.0) * obs.context[:, None]
        return state.replace(inverse=grown_inverse(state.inverse, obs.context, learned), target=target)
