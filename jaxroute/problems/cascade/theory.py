"""The paper's bounds and rules, for comparison: none of the constants is sharp.

Source: Belloni, Chen and Wei (2026), sections 4, 5, 8 to 12.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxroute import checks, draws
from jaxroute.problems.cascade.radii import Now, Theoretical
from jaxroute.problems.cascade.types import CascadeSpec


class Ridges(NamedTuple):
    """eta1, eta0: of the design matrices of requests and of deployed outputs."""

    eta1: float
    eta0: float


def ridge_rule(num_models: int, dim: int, feature_dim: int, *, corrected: bool = False) -> Ridges:
    """`eta1 = max(m^(1/2), (d m)^(1/4), d^(1/3))` and `eta0 = min(r, r^(2/3))` with `r = d / (K sqrt(m))`.

    Source: Belloni, Chen and Wei (2026), theorem 5.5.

    Args:
      num_models: `K`. dim: `m`. feature_dim: `d`. corrected: `r = d / (sqrt(d) + K sqrt(m))`, which keeps a factor that the derivation
        drops; in simulations neither matters.
    """
    for name, value in (("num_models", num_models), ("dim", dim), ("feature_dim", feature_dim)):
        checks.count(name, value)
    m, d = dim, feature_dim
    ratio = d / (num_models * math.sqrt(m) + (math.sqrt(d) if corrected else 0.0))
    return Ridges(max(m**0.5, (d * m) ** 0.25, d ** (1.0 / 3.0)), min(ratio, ratio ** (2.0 / 3.0)))


def potential_bound(number, dim: int, longest: float, ridge: float):
    """Most that `sum |psi_s|^2` in the inverse design matrix of the samples before can be after `number` samples: an array like it.

    `(1 + C^2 / eta) m log(1 + n C^2 / (eta m))`. Source: section 12.
    """
    checks.non_negative("number", number)
    checks.count("dim", dim)
    for name, value in (("longest", longest), ("ridge", ridge)):
        checks.positive(name, value, ())
    square = longest**2
    return (1.0 + square / ridge) * dim * np.log1p(np.asarray(number, float) * square / (ridge * dim))


class Sizes(NamedTuple):
    """What the regret bounds depend on: num_models, dim and feature_dim (`K`, `m`, `d`), horizon, longest request and output, ridges."""

    num_models: int
    dim: int
    horizon: int
    context_bound: float
    eta1: float = 1.0
    feature_dim: int = 0
    feature_bound: float = 1.0
    eta0: float = 1.0


def _now(sizes: Sizes, index_bound: float, evaluator_bound: float, trace: float | None) -> Now:
    spec = CascadeSpec(
        num_models=sizes.num_models,
        context_dim=sizes.dim,
        feature_dim=sizes.feature_dim,
        context_bound=sizes.context_bound,
        feature_bound=sizes.feature_bound,
    )
    horizon = jnp.float32(sizes.horizon)
    return Now(
        t=horizon,
        log_horizon=jnp.log(horizon),
        number=horizon[None],
        psi=jnp.zeros((sizes.dim,)),
        norm=jnp.ones((1,)),
        trace=None if trace is None else jnp.full((1,), trace, jnp.float32),
        eta1=jnp.float32(sizes.eta1),
        eta0=jnp.float32(sizes.eta0),
        index_bound=jnp.float32(index_bound),
        evaluator_bound=jnp.float32(evaluator_bound),
        spec=spec,
    )


def regret_bound(
    sizes: Sizes,
    radius: Theoretical | None = None,
    *,
    index_bound: float = 2.0,
    evaluator_bound: float = 4.0,
    growth: float = 3.0,
) -> float:
    """The bound on the regret after `horizon` periods, with all its constants: far above the trivial bound at any simulated horizon.

    Source: eq. (58) with a known evaluator (`feature_dim` 0), otherwise eq. (86).

    Differs from the paper: eq. (83) is printed with other logarithms than proposition 11.2, whose are used here.

    Args:
      sizes: of the problem. radius: its constants. index_bound, evaluator_bound: longest `rho` and `theta`. growth: the paper's
        `polylog T`, which its assumption 5.2 leaves open.
    """
    radius = Theoretical() if radius is None else radius
    if not isinstance(sizes, Sizes) or not isinstance(radius, Theoretical):
        wrong = radius if isinstance(sizes, Sizes) else sizes
        raise ValueError(f"sizes and radius must be Sizes(...) and Theoretical(...), got {checks.show(wrong)}")
    radius.check()
    checks.count("horizon", sizes.horizon)
    for name, value in (("index_bound", index_bound), ("evaluator_bound", evaluator_bound), ("growth", growth)):
        checks.positive(name, value, ())
    potential = potential_bound(sizes.horizon, sizes.dim, sizes.context_bound, sizes.eta1)
    spread = float(np.sqrt(sizes.horizon * potential))
    K, L = sizes.num_models, float(radius.lipschitz)
    if not sizes.feature_dim:
        now = _now(sizes, index_bound, evaluator_bound, None)
        return 2.0 * L * float(radius.index_radius(now)[0]) * K * spread
    square, d, T = sizes.feature_bound**2, sizes.feature_dim, sizes.horizon
    now = _now(sizes, index_bound, evaluator_bound, 16.0 * square * growth)
    width = float(radius.evaluator(draws.key(0), now, jnp.zeros(d), jnp.eye(d))[1])
    mean = 2.0 * L * width * math.sqrt((1.0 + square / sizes.eta0) * math.log1p(T * square / (sizes.eta0 * d)))
    delta = 1.0 / math.sqrt(T)
    start = 100.0 * square * growth * math.log(6.0 * T * K * d / delta)
    first = (
        mean * math.sqrt(d) + 4.0 * L * float(radius.reward_bound) * math.sqrt(sizes.eta0) * evaluator_bound + 4.0 * K + 2.0
    )
    index = 2.0 * L * float(radius.index_radius(now)[0])
    return first * math.sqrt(T) + 2.0 * K * start + K * index * spread
