"""Probes of the cascade problem: what only somebody who knows both the truth and a policy's state can measure.

For `simulate(..., probes={"index_error": index_error})`, for policies of the `COSMOS` family.
"""

import jax
import jax.numpy as jnp

from jaxroute.core import checks
from jaxroute.problems.cascade.index_fit import Evaluator, LinearIndex, Window


def _learned(name: str, state):
    """What a policy knows of an evaluator that it must learn."""
    evaluation = getattr(state, "evaluation", None)
    if evaluation is None:
        raise ValueError(f"{name} needs a policy that learns an evaluator, got one with the state {type(state).__name__}")
    return evaluation


def index_error(env, policy, env_state, state, t) -> jax.Array:
    """`|rho_hat - rho|` `[K]` of each model's index. Exact where the index is linear in the request before its link."""
    del env_state, t
    fit = getattr(policy, "fit", None)
    if not isinstance(fit, LinearIndex):
        raise ValueError(f"index_error needs a policy with an estimator of linear indices, got {checks.show(fit)}")
    difference = state.rho - jnp.swapaxes(jnp.asarray(env.index, jnp.float32), 0, 1)
    return jnp.sqrt(jnp.sum(jnp.square(difference), axis=0))


def evaluator_error(env, policy, env_state, state, t) -> jax.Array:
    """`|theta_hat - theta|` `[]`."""
    del policy, env_state, t
    difference = _learned("evaluator_error", state).state.theta - jnp.asarray(env.evaluator.theta, jnp.float32)
    return jnp.sqrt(jnp.sum(jnp.square(difference)))


def design_growth(env, policy, env_state, state, t) -> jax.Array:
    """Least eigenvalue `[]` of the design matrix of deployed outputs, `eta_0 I + sum phi phi'`."""
    del env, policy, env_state, t
    return 1.0 / jnp.linalg.eigvalsh(_learned("design_growth", state).inverse)[-1]


def residual(env, policy, env_state, state, t) -> jax.Array:
    """Largest entry of the estimating equation `[K]` at the estimate, per sample: far from 0 in a run that has frozen.

    For index estimators that keep samples (`Window`).
    """
    del env_state, t
    fit = getattr(policy, "fit", None)
    if not isinstance(fit, Window):
        raise ValueError(
            f"residual needs a policy with an index estimator that keeps samples (Window), got {checks.show(fit)}"
        )
    evaluator = None if state.fit.features is None else Evaluator(state.evaluation.state.theta, env.spec.score_link)
    slope = fit.slope(state.fit, state.rho, evaluator, env.spec.index_link)
    return jnp.max(jnp.abs(slope), axis=0) / jnp.maximum(state.number, 1)
