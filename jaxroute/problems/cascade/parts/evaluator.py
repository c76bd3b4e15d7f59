"""Estimates the evaluator, an output's score as a function of its features. Source: Belloni, Chen and Wei (2026), section 5.1, eqs. (19) to (21)."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.glm import GLM
from jaxroute.problems.cascade.parts.search import Scoring
from jaxroute.problems.cascade.types import CascadeSpec, Feedback


@struct.dataclass
class EvaluatorState:
    """Estimate of the score of an output from its `d` features.

    Attributes:
      state: state of the estimator (`GLM`), with coefficients `theta` `[d]`, eq. (19).
      design: inverse of the design matrix `[d, d]`, eq. (20).
    """

    state: Any
    design: numerics.Sum

    @property
    def inverse(self) -> Array:
        return self.design.total


def check_spec(estimator: GLM, spec: CascadeSpec) -> None:
    """Raises `ValueError` if the `estimator` of scores does not fit the sizes in `spec`, or is a `FrozenGLM` although scores are seen."""
    if spec.feature_dim:
        estimator.check_spec(spec.feature_dim, spec.horizon or 0)
    elif not estimator.learns:
        raise ValueError("evaluator must not be frozen where scores are seen: the environment has no evaluator")


def initial(estimator: GLM, spec: CascadeSpec, ridge: Leaf) -> EvaluatorState | None:
    """Returns the state of `estimator` before the first reward, with the design matrix `ridge` times the identity; None where scores are seen."""
    if not spec.feature_dim:
        return None
    ridge = jnp.asarray(ridge, jnp.float32)
    inverse = jnp.eye(spec.feature_dim, dtype=jnp.float32) / ridge
    return EvaluatorState(state=estimator.init(spec.feature_dim, ridge), design=numerics.Sum.of(inverse))


def updated(
    evaluator: EvaluatorState, estimator: GLM, spec: CascadeSpec, feedback: Feedback, ridge: Leaf, bound: Leaf
) -> EvaluatorState:
    """Returns the state `evaluator` after a period's `feedback`, eqs. (19) and (20), unchanged if nothing was deployed.

    The `estimator` fits the score's coefficients `theta` to the rewards of all periods so far, with the given `ridge` and a norm of at most `bound`.
    """
    seen = jnp.any(feedback.deployed)
    phi = xla.compute_once(_deployed_features(feedback))
    ridge, bound = jnp.asarray(ridge, jnp.float32), jnp.asarray(bound, jnp.float32)
    state = estimator.add(evaluator.state, phi, feedback.reward, seen, ridge, spec.score_link, bound)
    return EvaluatorState(state=state, design=sherman_morrison(evaluator.design, phi, seen.astype(jnp.float32)))


def deployed_square_norm(evaluator: EvaluatorState, feedback: Feedback) -> Array:
    """Returns the squared norm, a scalar, of the deployed output's features in `evaluator`'s inverse design matrix; 0 if nothing was deployed."""
    phi = _deployed_features(feedback)
    return jnp.maximum(jnp.sum(phi * numerics.combine(phi, evaluator.inverse)), 0.0)


def _deployed_features(feedback: Feedback) -> Array:
    assert feedback.features is not None
    return numerics.pick(feedback.deployed, jnp.swapaxes(feedback.features, 0, 1))


def mean_scoring(evaluator: EvaluatorState | None, spec: CascadeSpec) -> Scoring | None:
    """Returns a rule that scores outputs by the estimate `evaluator` alone, without a bonus; None if `evaluator` is None, where scores are seen."""
    if evaluator is None:
        return None
    zero = jnp.zeros((), jnp.float32)
    return Scoring(evaluator.state.theta, evaluator.inverse, zero, zero, link=spec.score_link)
