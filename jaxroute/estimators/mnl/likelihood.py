"""Loss that all solvers of the multinomial-logit model minimise, its derivatives, and the interface of the solvers."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxroute.core import numerics, xla
from jaxroute.core.types import Leaf


def negative_log_likelihood(theta: Array, features: Array, offered: Array, chosen: Array, ridge: Leaf) -> Array:
    """Returns the regularised negative log-likelihood `[]`. It defines the loss and serves tests; the solvers use its derivatives (`Sums`) alone.

    `ridge / 2 |theta|^2 - sum_i sum_{j in S_i or j = 0} y_ij log p_j(x_i, S_i)` with `p_j = exp(v_j) / (1 + sum_{k in S_i} exp(v_k))`,
    where `y_ij` is 1 if round `i` accepted item `j`, else 0, and `j = 0` means that no item was accepted.

    Source: ACQB, eq. (1); with a parameter per item, the display above eq. (4). Eq. (4) sets its derivative in `theta_j` to zero:
    `ridge theta_j - sum_i 1{j in S_i} (y_ij - p_j(x_i, S_i)) x_i`.

    Differs from the paper: eq. (4) lacks the factor `x_i`.

    Args:
      theta: `[N, d]` parameters, or `[d]` one parameter for all items.
      features: `[H, N, d]` features of each observation and item; `[H, d]` if all items share them.
      offered: `[H, N]` bool, which of `N` items each of `H` observations shows (`S_i`).
      chosen: `[H]` int32 accepted item, -1 for none.
      ridge: `[]` the paper's lambda_0.
    """
    rows, items = offered.shape
    x = features if features.ndim == 3 else jnp.broadcast_to(features[:, None], (rows, items, features.shape[-1]))
    utility = jnp.sum(x * theta, axis=-1)
    log_none = -jnp.log1p(jnp.sum(jnp.where(offered, jnp.exp(utility), 0.0), axis=1))  # log p_0
    log_accepted = jnp.sum(jnp.where(jnp.arange(items) == chosen[:, None], utility, 0.0), axis=1) + log_none
    return 0.5 * ridge * jnp.sum(theta**2) - jnp.sum(log_accepted)


def probabilities(logits: Array, present: Array) -> Array:
    """Returns the probabilities `[K, C]` that each of `K` shown items is accepted in `C` observations, from the utilities `logits` `[K, C]`.

    Places without an item, where `present` `[K, C]` is False, get 0; one minus a column's sum is the probability of none. Large utilities do not
    overflow.
    """
    top = jnp.maximum(jnp.max(jnp.where(present, logits, -jnp.inf), axis=0), 0.0)
    weight = jnp.where(present, jnp.exp(logits - top), 0.0)
    return weight / xla.compute_once(jnp.exp(-top) + jnp.sum(weight, axis=0))


@struct.dataclass
class NewestObservation:
    """Contribution of the last observation to the derivatives of the loss in the parameters of `A` items, evaluated before they are updated.

    With one parameter vector for all items, `A` is 1, and `x` and `weight` have a row for each of the `K` shown items instead.

    Attributes:
      x: `[A, d]` features of each item, zero if it was not shown; `[K, d]` with one parameter vector for all items.
      gradient: `[A, d]` gradient `(p_j - y_j) x`, with the probability `p_j` that item `j` is accepted, and `y_j` 1 if it was, else 0.
      weight: variance `p_j (1 - p_j)` of the acceptance of the item in each row of `x`, `[A]` or `[K]`.
      took: `[K]` float32, 1 for the accepted item, else 0; None if the solver does not use it.
      shown: `[K]` bool, whether each place shows an item; None if the solver does not use it.
    """

    x: Array
    gradient: Array
    weight: Array
    took: Array | None = None
    shown: Array | None = None


def new_row(logits: Array, x: Array, items: Array, accepted: Array, chosen: Array) -> NewestObservation:
    """Returns the contribution of an observation to the derivatives, for a model with a parameter per item.

    Args:
      logits: `[N]` utilities of all `N` items for the query, at the parameters before the observation.
      x: `[d]` features of the query.
      items: `[K]` shown items, -1 for none.
      accepted: `[]` position of the accepted item in `items`, `K` for none.
      chosen: `[A]` items for whose parameters derivatives are returned, whether shown in this round or not; -1 for none.
    """
    number = logits.shape[0]
    shown = jnp.stack([numerics.pick(numerics.one_hot(items[k], number), logits) for k in range(items.shape[0])])
    probability = probabilities(shown[:, None], (items >= 0)[:, None])
    probability = xla.compute_once(probability[:, 0])
    took = jnp.arange(items.shape[0]) == accepted
    mine = (items == chosen[:, None]) & (items >= 0)
    share = jnp.sum(jnp.where(mine, probability, 0.0), axis=1)
    missed = share - jnp.sum(jnp.where(mine & took, 1.0, 0.0), axis=1)
    seen = jnp.where(jnp.any(mine, axis=1)[:, None], x, 0.0)
    weight = share * (1.0 - share)
    present = items >= 0
    return NewestObservation(seen, missed[:, None] * seen, weight, (took & present).astype(jnp.float32), present)


def new_pair(theta: Array, x: Array, present: Array, accepted: Array) -> NewestObservation:
    """Returns the contribution of an observation to the derivatives, for a model with one parameter for all items.

    Args:
      theta: `[d]` parameter before the observation.
      x: `[K, d]` features of the query with each shown item.
      present: `[K]` bool, whether each place shows an item.
      accepted: `[]` place of the accepted item, `K` for none.
    """
    x = jnp.where(present[:, None], x, 0.0)
    probability = probabilities(jnp.sum(x * theta, axis=1)[:, None], present[:, None])
    probability = xla.compute_once(probability[:, 0])
    took = present & (jnp.arange(x.shape[0]) == accepted)
    gradient = jnp.sum((probability - took)[:, None] * x, axis=0)
    return NewestObservation(x, gradient[None], probability * (1.0 - probability), took.astype(jnp.float32), present)


@struct.dataclass
class Sums:
    """Derivatives of the loss, without its ridge term, in the parameters of `A` items: sums over observations `i`, each with shown items `S_i`.

    Attributes:
      gradient: `[A, d]` sums `sum_i 1{j in S_i} (p_j - y_ij) x_i`: item `j` is accepted with probability `p_j`; `y_ij` is 1 if it was, else 0.
      hessian: `[A d, A d]` second derivatives; None if they were not requested.
    """

    gradient: Array
    hessian: Array | None


# Function `(theta, *, hessian=True) -> Sums` of the parameters `[N, d]` of all items; second derivatives only if `hessian` and if available.
Derivatives = Callable[..., Sums]


class Solver(Protocol):
    """Interface of the methods that update the estimate of a multinomial-logit model after each observation.

    Attributes:
      needs_hessian: whether `fit` needs second derivatives, which `Counts` and `PairCounts` do not provide.
    """

    needs_hessian: ClassVar[bool]

    def check(self) -> None:
        """Raises `ValueError` if a field is out of range."""

    def init(self, num: int, dim: int, ridge: Leaf) -> Any:
        """Returns the state before the first observation, for `num` parameters of dimension `dim` and the weight `ridge` of their squared norm."""
        ...

    def residual(self, state: Any) -> Array:
        """Returns the largest error of a logit over all fits so far, `[]`: a bound or an estimate, depending on the solver; NaN if unknown."""
        return state.residual

    def fit(
        self, state: Any, sums: Derivatives, theta: Array, chosen: Array, ridge: Leaf, new: NewestObservation
    ) -> tuple[Array, Any]:
        """Returns the parameters `[N, d]` and the solver's state after the last observation.

        Args:
          state: state from `init` or the last fit.
          sums: function of `theta` that returns derivatives of the loss without the ridge in the parameters of items `chosen`, over all observations.
          theta: `[N, d]` parameters after the last fit.
          chosen: `[A]` int32 items whose parameters may change; -1 for none.
          ridge: `[]` weight of the squared norm in the loss.
          new: contribution of the last observation to the derivatives.
        """
        ...
