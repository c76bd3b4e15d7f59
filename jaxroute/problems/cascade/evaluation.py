"""What a policy knows about an evaluator that must be learned from rewards: its estimate, and how sure it is of an output's score."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.glm import ExactGLM, FrozenGLM
from jaxroute.problems.cascade.search import Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Feedback


@struct.dataclass
class Evaluation:
    """state: of the estimator, with `theta` `[d]`. inverse: `[d, d]` of the design matrix of deployed outputs."""

    state: Any
    inverse: jax.Array


def check(estimator: Any) -> None:
    """That a policy's evaluator is one."""
    if isinstance(estimator, type) or not hasattr(estimator, "add") or not hasattr(estimator, "check"):
        raise ValueError(f"evaluator must be OnlineGLM(), ExactGLM(...) or FrozenGLM(...), got {checks.show(estimator)}")
    estimator.check()


def check_for(estimator: Any, spec: CascadeSpec) -> None:
    """That it suits the environment and the run."""
    if isinstance(estimator, FrozenGLM):
        if not spec.feature_dim:
            raise ValueError("evaluator must not be frozen where scores are seen: the environment has no evaluator")
        if np.shape(estimator.theta) != (spec.feature_dim,):
            raise ValueError(f"theta must have shape ({spec.feature_dim},), got {np.shape(estimator.theta)}")
    if isinstance(estimator, ExactGLM) and spec.feature_dim and (spec.horizon or 0) > estimator.capacity:
        raise ValueError(f"capacity must be at least the horizon of the run, {spec.horizon}, got {estimator.capacity}")


def start(estimator: Any, spec: CascadeSpec, ridge) -> Evaluation | None:
    """Before the first reward; None where scores are seen."""
    if not spec.feature_dim:
        return None
    ridge = jnp.asarray(ridge, jnp.float32)
    return Evaluation(
        state=estimator.init(spec.feature_dim, ridge), inverse=jnp.eye(spec.feature_dim, dtype=jnp.float32) / ridge
    )


def learned(evaluation: Evaluation, estimator: Any, spec: CascadeSpec, feedback: Feedback, ridge, bound) -> Evaluation:
    """With the reward of the deployed output, if there was one."""
    seen = jnp.any(feedback.deployed)
    phi = numerics.pick(feedback.deployed, jnp.swapaxes(feedback.features, 0, 1))
    phi = numerics.kept(phi)
    ridge, bound = jnp.asarray(ridge, jnp.float32), jnp.asarray(bound, jnp.float32)
    state = estimator.add(evaluation.state, phi, feedback.reward, seen, ridge, spec.score_link, bound)
    return Evaluation(state=state, inverse=sherman_morrison(evaluation.inverse, phi, seen.astype(jnp.float32)))


def square_norm(evaluation: Evaluation, feedback: Feedback) -> jax.Array:
    """Squared norm `[]` of the deployed output in the inverse design matrix, 0 if there is none."""
    phi = numerics.pick(feedback.deployed, jnp.swapaxes(feedback.features, 0, 1))
    return jnp.maximum(jnp.sum(phi * numerics.combine(phi, evaluation.inverse)), 0.0)


def mean_scoring(evaluation: Evaluation | None, spec: CascadeSpec) -> Scoring | None:
    """Scores by the estimate alone; None where scores are seen."""
    if evaluation is None:
        return None
    zero = jnp.zeros((), jnp.float32)
    return Scoring(evaluation.state.theta, evaluation.inverse, zero, zero, link=spec.score_link)


def estimated_scores(evaluation: Evaluation, spec: CascadeSpec, features) -> jax.Array:
    """Scores `[K]` of features `[K, d]`."""
    return spec.score_link.value(numerics.combine(evaluation.state.theta, jnp.swapaxes(features, 0, 1)))
