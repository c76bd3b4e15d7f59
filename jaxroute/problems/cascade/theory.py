"""Bounds and rules of the paper for comparison, with constants that are not sharp, and probes that measure the quantities of its proofs.

A probe measures a quantity that depends on both the truth and the policy's state: `simulate(..., probes={"error": index_error})`, for policies of the
`COSMOS` family. Source: Belloni, Chen and Wei (2026), sections 4, 5, 8 to 12.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.cosmos import CosmosState
from jaxroute.problems.cascade.env import CascadeEnv
from jaxroute.problems.cascade.parts.evaluator import EvaluatorState
from jaxroute.problems.cascade.parts.indices import Evaluator, IndexEstimator, LocationFamily
from jaxroute.problems.cascade.parts.radii import RadiusInputs, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import SampleWindow
from jaxroute.problems.cascade.types import CascadeSpec


class Ridges(NamedTuple):
    """Ridges of the design matrices: `eta1` of requests, eq. (13), and `eta0` of deployed outputs, eq. (20)."""

    eta1: float
    eta0: float


def ridge_rule(num_models: int, dim: int, feature_dim: int, *, corrected: bool = False) -> Ridges:
    """Returns the ridges of theorem 5.5: `eta1 = max(m^(1/2), (d m)^(1/4), d^(1/3))` and `eta0 = min(r, r^(2/3))` with `r = d / (K sqrt(m))`.

    Args:
      num_models: number of models, `K`.
      dim: number of features of a request, `m`.
      feature_dim: number of features of an output, `d`.
      corrected: whether `r = d / (sqrt(d) + K sqrt(m))`, with a term that the derivation drops; in simulations the difference does not matter.
    """
    for name, value in (("num_models", num_models), ("dim", dim), ("feature_dim", feature_dim)):
        checks.count(name, value)
    m, d = dim, feature_dim
    ratio = d / (num_models * math.sqrt(m) + (math.sqrt(d) if corrected else 0.0))
    return Ridges(max(m**0.5, (d * m) ** 0.25, d ** (1.0 / 3.0)), min(ratio, ratio ** (2.0 / 3.0)))


def potential_bound(number: Leaf, dim: int, longest: float, ridge: float) -> np.ndarray:
    """Returns a bound of the sum of `x' V^-1 x` over `n` samples with features `x`, where `V` is the design matrix before each sample.

    It is `(1 + C^2 / eta) m log(1 + n C^2 / (eta m))`. Source: Belloni, Chen and Wei (2026), section 12.

    Args:
      number: number of samples `n`, a number or an array.
      dim: number of features, `m`.
      longest: largest norm of the features, `C`.
      ridge: ridge of the design matrix, `eta`.
    """
    checks.non_negative("number", number)
    checks.count("dim", dim)
    for name, value in (("longest", longest), ("ridge", ridge)):
        checks.positive(name, value, ())
    square = longest**2
    return (1.0 + square / ridge) * dim * np.log1p(np.asarray(number, float) * square / (ridge * dim))


def regret_bound(
    spec: CascadeSpec,
    horizon: int,
    radius: TheoreticalRadius = TheoreticalRadius(),
    *,
    eta1: float = 1.0,
    eta0: float = 1.0,
    index_bound: float = 2.0,
    evaluator_bound: float = 4.0,
    growth: float | None = None,
) -> float:
    """Returns the paper's regret bound after `horizon` periods with all constants; at any simulated horizon it is far above the trivial bound.

    Source: eq. (58) with a known evaluator, otherwise eq. (86).

    Differs from the paper: the logarithms of eq. (83) differ from those of proposition 11.2, which are used here.

    Args:
      spec: sizes and links of the environment (`env.spec`).
      horizon: number of periods, `T`.
      radius: constants of the proofs, such as the least slope of a link.
      eta1, eta0: ridges of the design matrices of requests, and of deployed outputs.
      index_bound, evaluator_bound: largest lengths of the coefficients of indices, `rho`, and of the evaluator, `theta`.
      growth: the paper's `polylog T`, which its assumption 5.2 leaves open, None for `K^2`, its least value.
    """
    checks.instance("spec", spec, CascadeSpec)
    checks.instance("radius", radius, TheoreticalRadius).check()
    T, K, m, d = checks.count("horizon", horizon), spec.num_models, spec.context_dim, spec.feature_dim
    sizes = {"eta1": eta1, "eta0": eta0, "index_bound": index_bound, "evaluator_bound": evaluator_bound}
    sizes = {name: jnp.float32(checks.positive(name, value, ())) for name, value in sizes.items()}
    growth = float(checks.positive("growth", K * K if growth is None else growth, ()))
    L, square = float(radius.lipschitz), spec.feature_bound**2
    spread = math.sqrt(T * float(potential_bound(T, m, spec.context_bound, eta1)))
    inputs = RadiusInputs(
        t=jnp.float32(T),
        log_horizon=jnp.log(jnp.float32(T)),
        number=jnp.full((1,), T, jnp.float32),
        psi=jnp.zeros((m,)),
        norm=jnp.ones((1,)),
        trace=jnp.full((1,), 16.0 * square * growth, jnp.float32) if d else None,
        spec=spec,
        **sizes,
    )
    index = 2.0 * L * float(radius.bonus(draws.key(0), (), inputs)[0]) * K * spread
    if not d:
        return index
    width = float(radius.scoring(draws.key(0), inputs, jnp.zeros(d), jnp.eye(d))[1])
    mean = 2.0 * L * width * math.sqrt((1.0 + square / eta0) * math.log1p(T * square / (eta0 * d)))
    start = 100.0 * square * growth * math.log(6.0 * T * K * d * math.sqrt(T))
    first = mean * math.sqrt(d) + 4.0 * L * float(radius.reward_bound) * math.sqrt(eta0) * evaluator_bound + 4.0 * K + 2.0
    return first * math.sqrt(T) + 2.0 * K * start + index


def _learned(name: str, state: Any) -> EvaluatorState:
    """Returns the evaluator's estimate in a policy's state, or raises `ValueError` if there is none. `name` is the probe that needs it."""
    evaluation = getattr(state, "evaluation", None)
    if evaluation is None:
        raise ValueError(f"{name} needs a policy that learns an evaluator, got one with the state {type(state).__name__}")
    return evaluation


def index_error(env: CascadeEnv, policy: Any, env_state: Any, state: CosmosState, t: Array) -> Array:
    """Returns for each model, `[K]`, the distance of index coefficients in `state` from those of `env`. `ValueError` if `policy` learns none."""
    del env_state, t
    fit = getattr(policy, "fit", None)
    if not isinstance(fit, IndexEstimator) or isinstance(fit, LocationFamily):
        raise ValueError(f"index_error needs a policy with an estimator of linear indices, got {checks.show(fit)}")
    difference = state.rho - jnp.swapaxes(jnp.asarray(env.index, jnp.float32), 0, 1)
    return jnp.sqrt(jnp.sum(jnp.square(difference), axis=0))


def evaluator_error(env: CascadeEnv, policy: Any, env_state: Any, state: Any, t: Array) -> Array:
    """Returns the distance `|theta_hat - theta|`, a scalar, of the evaluator's coefficients estimated in `state` from the true ones of `env`."""
    del policy, env_state, t
    theta = _learned("evaluator_error", state).state.theta
    assert env.evaluator is not None
    difference = theta - jnp.asarray(env.evaluator.theta, jnp.float32)
    return jnp.sqrt(jnp.sum(jnp.square(difference)))


def design_growth(env: CascadeEnv, policy: Any, env_state: Any, state: Any, t: Array) -> Array:
    """Returns the least eigenvalue, a scalar, of the design matrix `eta_0 I + sum phi phi'` in `state`, of deployed outputs with features `phi`."""
    del env, policy, env_state, t
    return 1.0 / jnp.linalg.eigvalsh(_learned("design_growth", state).inverse)[-1]


def residual(env: CascadeEnv, policy: Any, env_state: Any, state: CosmosState, t: Array) -> Array:
    """Returns for each model, `[K]`, the largest absolute entry of the mean loss's gradient at the estimate in `state`, 0 at the minimum.

    Raises `ValueError` unless the index estimator of `policy` stores samples (`Window`, `MomentEquations`).
    """
    del env_state, t
    fit = getattr(policy, "fit", None)
    if not isinstance(fit, SampleWindow):
        shown = checks.show(fit)
        raise ValueError(f"residual needs a policy with an index estimator that stores samples (Window), got {shown}")
    evaluator = None
    if state.fit.features is not None:
        evaluator = Evaluator(_learned("residual", state).state.theta, env.spec.score_link)
    slope = fit.slope(state.fit, state.rho, evaluator, env.spec.index_link)
    return jnp.max(jnp.abs(slope), axis=0) / jnp.maximum(state.number, 1)
