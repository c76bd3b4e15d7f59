"""Interface between observations and solvers."""

from typing import Any, ClassVar, Protocol

from flax import struct
from jax import Array

from jaxroute.core.types import Leaf
from jaxroute.estimators.mnl.newest import NewestObservation


@struct.dataclass
class Sums:
    """Derivatives of the loss in the parameters of some items: sums over the observations, without the ridge.

    Attributes:
      gradient: `[A, d]` gradient `sum_i 1{j in S_i} (p_j - y_ij) x_i` of each item `j`: eq. (4) without its first term.
      hessian: `[A d, A d]` second derivatives; None if not requested.
    """

    gradient: Array
    hessian: Array | None


class Derivatives(Protocol):
    """Derivatives of the loss of all observations, as a function of the parameters."""

    def __call__(self, theta: Array, *, hessian: bool = True) -> Sums:
        """Returns the derivatives at `theta` `[N, d]`.

        Args:
          theta: parameters.
          hessian: whether to return second derivatives.
        """
        ...


class Solver(Protocol):
    """Solver of the estimate after each observation.

    Attributes:
      needs_hessian: whether it needs second derivatives, which counts of a pool do not provide.
    """

    needs_hessian: ClassVar[bool]

    def check(self) -> None: ...

    def init(self, num: int, dim: int, ridge: Leaf) -> Any:
        """Returns the state before the first observation.

        Args:
          num: number of parameters.
          dim: dimension, `d`.
          ridge: `[]` ridge.
        """
        ...

    def residual(self, state: Any) -> Array:
        """Returns the largest remaining error of a logit, over all fits, by the stopping criterion, `[]`; NaN without a criterion."""
        ...

    def fit(
        self, state: Any, sums: Derivatives, theta: Array, chosen: Array, ridge: Leaf, new: NewestObservation
    ) -> tuple[Array, Any]:
        """Returns new parameters and state.

        Args:
          state: state from `init` or the last fit.
          sums: derivatives in the parameters of the items `chosen`, with the new observation.
          theta: `[N, d]` last fit.
          chosen: `[A]` int32 items whose parameters move; -1 for none.
          ridge: `[]` ridge.
          new: contribution of the last observation to the derivatives.
        """
        ...
