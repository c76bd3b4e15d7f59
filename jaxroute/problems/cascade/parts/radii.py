"""Radii: rules for the optimism of COSMOS, which add a bonus to each estimated index and to each estimated score."""

import abc
import math
from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf, PyTree
from jaxroute.estimators.gaussian import cholesky
from jaxroute.estimators.links import Link
from jaxroute.problems.cascade.parts.indices import Sample, Sizes, StreamingNewton, StreamState
from jaxroute.problems.cascade.types import CascadeSpec


class RadiusInputs(NamedTuple):
    """Quantities of a period from which a `Radius` computes the bonuses of COSMOS.

    Attributes:
      t: `[]` period.
      log_horizon: `[]` logarithm of the number of periods.
      number: `[K]` numbers of samples of the boxes, the paper's `n_at`.
      psi: `[m]` features of the request.
      norm: `[K]` norms of `psi` in the boxes' inverse design matrices, eq. (14).
      trace: `[K]` `tr(Phi^-1 Psi_a)`, proposition 5.4, for design matrices `Psi_a` of opened and `Phi` of deployed outputs; None if scores are seen.
      eta1, eta0: `[]` ridges of the design matrices of requests, and of deployed outputs.
      index_bound, evaluator_bound: `[]` largest lengths of the coefficients of indices, `rho`, and of the evaluator, `theta`.
      spec: sizes and links of the environment.
    """

    t: Array
    log_horizon: Array
    number: Array
    psi: Array
    norm: Array
    trace: Array | None
    eta1: Array
    eta0: Array
    index_bound: Array
    evaluator_bound: Array
    spec: CascadeSpec

    @property
    def log_inverse_delta(self) -> Array:
        """Returns `log(1 / delta)` for the failure probability delta: `1 / T` if scores are seen, otherwise `1 / sqrt(T)`."""
        return self.log_horizon * (1.0 if self.trace is None else 0.5)

    @property
    def rounds(self) -> Array:
        return jnp.maximum(self.t, 1).astype(jnp.float32)


class Radius(abc.ABC):
    """Base class of rules that compute the bonuses added to estimated indices and scores, by default without a state."""

    def init(self, sizes: Sizes) -> PyTree:
        """Returns the state of this rule before the first period, by default an empty tuple."""
        del sizes
        return ()

    def update(self, key: Array, state: PyTree, sample: Sample, link: Link) -> PyTree:
        """Returns the new state of this rule after a period with the outputs `sample`; `link` is the link of the indices."""
        del key, sample, link
        return state

    @abc.abstractmethod
    def bonus(self, key: Array, state: PyTree, inputs: RadiusInputs) -> Array:
        """Returns the bonus `[K]` added to the estimated indices before their link, eq. (14), from this rule's `state` and a period's `inputs`."""

    @abc.abstractmethod
    def scoring(self, key: Array, inputs: RadiusInputs, theta: Array, inverse: Array) -> tuple[Array, Array]:
        """Returns the coefficients `[d]` by which outputs are scored, and `beta_t` `[]` of eq. (21), the factor of a score's bonus.

        The bonus is `beta_t`, computed from `inputs`, times the norm of the output's features in `inverse` `[d, d]`, the inverse of the design matrix
        of deployed outputs. The coefficients are the estimate `theta` `[d]`, or are drawn around it with `key`.
        """


def _growth(inputs: RadiusInputs) -> Array:
    """Returns `d log(1 + t C^2 / eta0)`, a bound of `log det(V / eta0)` for the design matrix `V` of `t` outputs (`d` features, norm up to `C`)."""
    return inputs.spec.feature_dim * jnp.log1p(inputs.rounds * inputs.spec.feature_bound**2 / inputs.eta0)


@struct.dataclass
class PracticalRadius(Radius):
    """Radii of the theory's form with tuned constants; a bonus is the radius times a norm. If all constants are 0, the policy is greedy.

    The radius of an index is `sqrt(index^2 (m log T + log(K T / delta)) + plug_in^2 (d log t + log(1 / delta)) trace)`, that of the evaluator is
    `optimism sqrt(d log(1 + t C^2 / eta0) + 2 log(2 / delta))`. Here `t` is the period of `T`, `K` the number of boxes, and `trace` that of
    `RadiusInputs`. `m` and `d` are the numbers of features of a request and of an output, `C` is the largest norm of the latter, and delta the
    failure probability.

    Source: Belloni, Chen and Wei (2026), eqs. (14), (26) and (61).

    Differs from the paper: it leaves the constants open. With those of its proofs (`TheoreticalRadius`) the policy opens every box.

    Attributes:
      index, plug_in: `[]` factors of the first and the second term of an index's radius.
      optimism: `[]` factor of the evaluator's radius.
    """

    index: Leaf = 0.10
    plug_in: Leaf = 0.03
    optimism: Leaf = 0.30

    def check(self) -> None:
        for name in ("index", "plug_in", "optimism"):
            checks.non_negative(name, getattr(self, name), ())

    def bonus(self, key: Array, state: tuple[()], inputs: RadiusInputs) -> Array:
        del key, state
        spec, log_t = inputs.spec, inputs.log_horizon
        index = spec.context_dim * log_t + math.log(spec.num_models) + log_t + inputs.log_inverse_delta
        plug_in = spec.feature_dim * jnp.log(inputs.rounds) + inputs.log_inverse_delta
        square = jnp.square(self.index) * index
        if inputs.trace is not None:
            square = square + jnp.square(self.plug_in) * plug_in * inputs.trace
        return jnp.sqrt(square) * inputs.norm

    def scoring(self, key: Array, inputs: RadiusInputs, theta: Array, inverse: Array) -> tuple[Array, Array]:
        del key, inverse
        return theta, self.optimism * jnp.sqrt(_growth(inputs) + 2.0 * (math.log(2.0) + inputs.log_inverse_delta))


@struct.dataclass
class TheoreticalRadius(Radius):
    """Radii of the proofs, which are so large that every box is opened at any horizon that can be simulated.

    Source: Belloni, Chen and Wei (2026), eq. (51) with a known evaluator, otherwise proposition 11.2 and eq. (61).

    Attributes:
      mass: `[]` kappa, least probability that a score is above an index.
      slope: `[]` mu_1, least slope of the index link.
      reach: `[]` iota, largest size of an index before its link.
      score_slope: `[]` least slope of the evaluator's link.
      reward_bound: `[]` gamma_0, largest reward.
      lipschitz: `[]` Lipschitz constant of the links.
    """

    mass: Leaf = 0.3
    slope: Leaf = 1.0
    reach: Leaf = 0.8
    score_slope: Leaf = 0.05
    reward_bound: Leaf = 1.0
    lipschitz: Leaf = 1.0

    def check(self) -> None:
        checks.share("mass", self.mass, ())
        for name in ("slope", "reach", "score_slope", "reward_bound", "lipschitz"):
            checks.positive(name, getattr(self, name), ())

    def bonus(self, key: Array, state: tuple[()], inputs: RadiusInputs) -> Array:
        del key, state
        spec, strength = inputs.spec, self.mass * self.slope
        diameter = 2.0 * inputs.index_bound
        longest = spec.context_bound * diameter
        rounds = inputs.number.astype(jnp.float32)
        levels = jnp.ceil(jnp.log2(1.0 + rounds * jnp.minimum(9.0 * self.reach**2, longest**2)))
        horizon = jnp.exp(inputs.log_horizon)
        gamma = spec.context_dim * jnp.log1p(2.0 * longest * horizon) + jnp.log(levels + 1.0)
        gamma = gamma + math.log(6.0 * spec.num_models) + inputs.log_horizon + inputs.log_inverse_delta
        bracket = 144.0 / strength + 2.0 * jnp.minimum(2.0 * self.reach, longest) + 6.0
        start = inputs.eta1 * diameter**2
        if inputs.trace is None:
            radius = jnp.sqrt(8.0 / (3.0 * strength) * bracket * gamma + 40.0 / (3.0 * strength) + 1.0 / 3.0 + start)
        else:
            radius = jnp.sqrt(4.0 * gamma / strength * bracket + 20.0 / strength + 0.5 + start)
            width = 2.0 * math.sqrt(2.0) * self.lipschitz / strength * self._width(inputs, 3.0)
            radius = radius + width * jnp.sqrt(inputs.trace)
        return radius * inputs.norm

    def _width(self, inputs: RadiusInputs, union: float) -> Array:
        """Returns the factor of a score's bonus, a scalar, eq. (61). `union` is the number of bounds that share the failure probability delta."""
        inside = _growth(inputs) + 2.0 * (math.log(union) + inputs.log_inverse_delta)
        start = jnp.sqrt(inputs.eta0) * inputs.evaluator_bound
        return 2.0 / jnp.minimum(1.0, self.score_slope) * (self.reward_bound * jnp.sqrt(inside) + start)

    def scoring(self, key: Array, inputs: RadiusInputs, theta: Array, inverse: Array) -> tuple[Array, Array]:
        del key, inverse
        return theta, self._width(inputs, 2.0)


@struct.dataclass
class SampledRadius(Radius):
    """Thompson sampling instead of bonuses: draws around the estimates with the covariances `spread^2` times the inverse design matrices.

    For an index only its value at the request is drawn, by one normal number per box. Not in Belloni, Chen and Wei (2026).
    """

    spread: Leaf = 0.1

    def check(self) -> None:
        checks.non_negative("spread", self.spread, ())

    def bonus(self, key: Array, state: tuple[()], inputs: RadiusInputs) -> Array:
        del state
        return self.spread * inputs.norm * draws.normal(key, (inputs.spec.num_models,))

    def scoring(self, key: Array, inputs: RadiusInputs, theta: Array, inverse: Array) -> tuple[Array, Array]:
        noise = draws.normal(key, theta.shape)
        lower = cholesky(inverse)
        return theta + self.spread * jnp.sum(lower * noise, axis=1), jnp.zeros((), jnp.float32)


@struct.dataclass
class BootstrapState:
    """State of `BootstrapRadius`: estimates `rho` `[m, K B]` of `m` coefficients of `K` boxes by `B` copies of an estimator, and its state `fit`."""

    rho: Array
    fit: StreamState


@struct.dataclass
class BootstrapRadius(Radius):
    """Radius by bootstrap: the bonus is proportional to the standard deviation of copies of the estimate, each with other sample weights.

    The weights are random with an exponential distribution. Without a warm-up of at least ten rounds, or a `floor`, copies hardly differ after one or
    two samples, and the policy stops learning. Belloni, Chen and Wei (2026) mention the idea after eq. (15); the details are ours.

    Attributes:
      factor: `[]` number of standard deviations in the bonus.
      floor: `PracticalRadius` whose bonus of an index is a lower limit of the bootstrap's, and whose bonus of a score is used unchanged.
      fit: estimator of the copies.
      copies: number of copies, `B` (static).
    """

    factor: Leaf = 2.0
    floor: PracticalRadius = struct.field(default_factory=lambda: PracticalRadius(index=0.0, plug_in=0.0))
    fit: StreamingNewton = struct.field(default_factory=StreamingNewton)
    copies: int = struct.field(pytree_node=False, default=20)

    def check(self) -> None:
        checks.non_negative("factor", self.factor, ())
        checks.count("copies", self.copies, minimum=2)
        checks.instance("floor", self.floor, PracticalRadius).check()
        checks.instance("fit", self.fit, StreamingNewton).check()

    def init(self, sizes: Sizes) -> BootstrapState:
        number = sizes.num_boxes * self.copies
        return BootstrapState(
            rho=jnp.zeros((sizes.dim, number), jnp.float32), fit=self.fit.init(sizes._replace(num_boxes=number))
        )

    def update(self, key: Array, state: BootstrapState, sample: Sample, link: Link) -> BootstrapState:
        number = sample.score.shape[0]
        weight = draws.exponential(key, (number, self.copies)).reshape(-1)
        score, cost, seen = (jnp.repeat(x, self.copies) for x in (sample.score, sample.cost, sample.seen))
        copies = sample._replace(score=score, cost=cost)
        fit, rho = self.fit.weighted(state.fit, state.rho, copies, jnp.where(seen, weight, 0.0), link)
        return BootstrapState(rho=rho, fit=fit)

    def bonus(self, key: Array, state: BootstrapState, inputs: RadiusInputs) -> Array:
        u = numerics.combine(inputs.psi, state.rho).reshape(-1, self.copies)
        mean = jnp.mean(u, axis=1, keepdims=True)
        spread = jnp.sqrt(jnp.mean(jnp.square(u - mean), axis=1))
        return jnp.maximum(self.factor * spread, self.floor.bonus(key, (), inputs))

    def scoring(self, key: Array, inputs: RadiusInputs, theta: Array, inverse: Array) -> tuple[Array, Array]:
        return self.floor.scoring(key, inputs, theta, inverse)
