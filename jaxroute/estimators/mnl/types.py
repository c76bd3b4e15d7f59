"""Values that pass between observations and solvers."""

from typing import Any, ClassVar, Protocol

import jax
from flax import struct

from jaxroute.core.types import Leaf
from jaxroute.estimators.mnl.newest import New


@struct.dataclass
class Sums:
    """Derivatives of the loss in the parameters of some items: sums over the observations, without the ridge.

    Attributes:
      gradient: `[A, d]`, `sum_i 1{j in S_i} (p_j - y_ij) x_i` of each item `j`: eq. (4) without its first term.
      hessian: `[A d, A d]`, None if it was not asked for.
    """

    gradient: jax.Array
    hessian: jax.Array | None


class Derivatives(Protocol):
    """The observations so far, as a function of the parameters."""

    def __call__(self, theta: jax.Array, *, hessian: bool = True) -> Sums:
        """Derivatives at `theta` `[N, d]`.

        Args:
          theta: parameters.
          hessian: whether second derivatives are wanted.
        """
        ...


class Solver(Protocol):
    """How the estimate follows the observations.

    Attributes:
      needs_hessian: whether it asks for second derivatives, which counts of a pool do not give.
    """

    needs_hessian: ClassVar[bool]

    def check(self) -> None: ...

    def init(self, num: int, dim: int, ridge: Leaf) -> Any:
        """State of the solver before the first observation.

        Args:
          num: parameters.
          dim: `d`.
          ridge: `[]`.
        """
        ...

    def residual(self, state: Any) -> jax.Array:
        """The largest error of a logit, over all fits, that the criterion for ending left, `[]`; NaN without a criterion."""
        ...

    def fit(
        self, state: Any, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, Any]:
        """New parameters and state.

        Args:
          state: from `init` or the last fit.
          sums: derivatives in the parameters of the items `chosen`, with the new observation.
          theta: `[N, d]`, the last fit.
          chosen: `[A]` int32, items whose parameters move; -1 for none.
          ridge: `[]`.
          new: what the last observation adds to the derivatives.
        """
        ...
