"""What a policy knows about an evaluator that must be learned from rewards: its estimate, and how sure it is of an output's
score.

Source: Belloni, Chen and Wei (2026), section 5.1, eqs. (19) to (21).
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.glm import GLM, GLMState
from jaxroute.problems.cascade.parts.search import Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Feedback


@struct.dataclass
class Evaluation:
    """Knowledge about an evaluator.

    Attributes:
      state: of the estimator, with `theta` `[d]`, eq. (19).
      design: `[d, d]`, inverse of the design matrix of deployed outputs, eq. (20).
    """

    state: GLMState
    design: numerics.Sum

    @property
    def inverse(self) -> jax.Array:
        """Inverse `[d, d]` itself."""
        return self.design.total


def check(estimator: Any) -> None:
    """That a policy's evaluator is one."""
    needs = ("add", "check", "check_spec", "learns")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needs):
        raise ValueError(f"evaluator must be OnlineGLM(), ExactGLM(...) or FrozenGLM(...), got {checks.show(estimator)}")
    estimator.check()


def check_spec(estimator: GLM, spec: CascadeSpec) -> None:
    """That it suits the environment and the run."""
    if not spec.feature_dim:
        if not estimator.learns:
            raise ValueError("evaluator must not be frozen where scores are seen: the environment has no evaluator")
        return
    estimator.check_spec(spec.feature_dim, spec.horizon or 0)


def start(estimator: GLM, spec: CascadeSpec, ridge: Leaf) -> Evaluation | None:
    """Before the first reward; None where scores are seen."""
    if not spec.feature_dim:
        return None
    ridge = jnp.asarray(ridge, jnp.float32)
    inverse = jnp.eye(spec.feature_dim, dtype=jnp.float32) / ridge
    return Evaluation(state=estimator.init(spec.feature_dim, ridge), design=numerics.Sum.of(inverse))


def learned(
    evaluation: Evaluation, estimator: GLM, spec: CascadeSpec, feedback: Feedback, ridge: Leaf, bound: Leaf
) -> Evaluation:
    """With the reward of the deployed output, if there was one: eqs. (19) and (20)."""
    assert feedback.features is not None
    seen = jnp.any(feedback.deployed)
    phi = numerics.pick(feedback.deployed, jnp.swapaxes(feedback.features, 0, 1))
    phi = xla.compute_once(phi)
    ridge, bound = jnp.asarray(ridge, jnp.float32), jnp.asarray(bound, jnp.float32)
    state = estimator.add(evaluation.state, phi, feedback.reward, seen, ridge, spec.score_link, bound)
    return Evaluation(state=state, design=sherman_morrison(evaluation.design, phi, seen.astype(jnp.float32)))


def square_norm(evaluation: Evaluation, feedback: Feedback) -> jax.Array:
    """Squared norm `[]` of the deployed output in the inverse design matrix, 0 if there is none."""
    assert feedback.features is not None
    phi = numerics.pick(feedback.deployed, jnp.swapaxes(feedback.features, 0, 1))
    return jnp.maximum(jnp.sum(phi * numerics.combine(phi, evaluation.inverse)), 0.0)


def mean_scoring(evaluation: Evaluation | None, spec: CascadeSpec) -> Scoring | None:
    """Scores by the estimate alone; None where scores are seen."""
    if evaluation is None:
        return None
    zero = jnp.zeros((), jnp.float32)
    return Scoring(evaluation.state.theta, evaluation.inverse, zero, zero, link=spec.score_link)


def estimated_scores(evaluation: Evaluation, spec: CascadeSpec, features: jax.Array) -> jax.Array:
    """Scores `[K]` of features `[K, d]`: `G(theta . phi)`, the plug-in scores of eq. (22)."""
    return spec.score_link.value(numerics.combine(evaluation.state.theta, jnp.swapaxes(features, 0, 1)))
