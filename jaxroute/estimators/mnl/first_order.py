"""First-order steps with a bound of the curvature, for large dimensions, and one on-line step."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.types import Leaf
from jaxroute.estimators.gaussian import sherman_morrison
from jaxroute.estimators.mnl.newest import New
from jaxroute.estimators.mnl.types import Derivatives


def _inverse_ridge(num: int, dim: int, ridge: Leaf) -> numerics.Sum:
    """`I / ridge` for each parameter, `[N, d, d]`."""
    return numerics.Sum.of(jnp.broadcast_to(jnp.eye(dim, dtype=jnp.float32) / ridge, (num, dim, dim)))


@struct.dataclass
class Majorise:
    """Steps `theta_j <- theta_j - B_j^-1 gradient` with `B_j = ridge I + b sum x x'`; for large dimensions.

    `B_j` is a bound of the curvature, so that every step lowers the loss. `B_j^-1` is kept by rank-one updates. `b = 1/4` if
    one item is shown, else `1/2`.

    A fixed number of steps follows the maximum-likelihood estimate at some distance: with five steps, 64 features, a ridge
    of .1 and a pool of prompts the logits of the worst model were off by .04 (root mean square).

    Source: Boehning (1992); Boehning and Lindsay (1988).

    Attributes:
      steps: number of steps per observation (static).
    """

    steps: int = struct.field(pytree_node=False, default=5)

    needs_hessian: ClassVar[bool] = False

    def check(self) -> None:
        checks.count("steps", self.steps)

    def init(self, num: int, dim: int, ridge: Leaf) -> numerics.Sum:
        """`B_j^-1` `[N, d, d]`."""
        return _inverse_ridge(num, dim, ridge)

    def fit(
        self, state: Any, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, Any]:
        """See `Solver.fit`; state: `B_j^-1` `[N, d, d]`."""
        bound = 0.25 if new.x.shape[0] == 1 else 0.5
        masks = [numerics.one_hot(chosen[a], theta.shape[0]) for a in range(chosen.shape[0])]
        inverses = []
        for a in range(len(masks)):
            # An item of -1 has no features: nothing changes where it is written.
            inverse = state.at(chosen[a])
            for k in new.rows_of(a, len(masks)):
                inverse = sherman_morrison(inverse, new.x[k], bound)
            inverse = numerics.kept(inverse)
            inverses.append(inverse.total)
            state = state.put(chosen[a], inverse)
        for _ in range(self.steps):
            gradient = sums(theta, hessian=False).gradient
            for a, mask in enumerate(masks):
                now = jnp.sum(jnp.where(mask[:, None], theta, 0.0), axis=0)
                # B_j^-1 times eq. (4), computed once and not for each item anew.
                moved = numerics.kept(now - numerics.combine(gradient[a] + ridge * now, inverses[a]))
                theta = jnp.where(mask[:, None], moved, theta)
            theta = numerics.kept(theta)
        return theta, state


@struct.dataclass
class Online:
    """One step on the new observation alone: `theta_j <- theta_j - B_j^-1 (p_j - y_j) x`, which forgets the other data.

    An approximation for horizons at which passes over all data are too dear; not the maximum-likelihood estimate.

    Source: the online Newton step; Zhang and Sugiyama (2023) for the multinomial-logit model. Not in ACQB.
    """

    needs_hessian: ClassVar[bool] = False

    def check(self) -> None:
        pass

    def init(self, num: int, dim: int, ridge: Leaf) -> tuple[numerics.Sum, jax.Array]:
        """`B_j^-1` `[N, d, d]`, and what rounding has left out of `theta` `[N, d]`."""
        return _inverse_ridge(num, dim, ridge), jnp.zeros((num, dim), jnp.float32)

    def fit(
        self, state: Any, sums: Derivatives, theta: jax.Array, chosen: jax.Array, ridge: Leaf, new: New
    ) -> tuple[jax.Array, Any]:
        """See `Solver.fit`; state: `B_j^-1` `[N, d, d]`, and what rounding has left out of `theta` `[N, d]`."""
        del sums, ridge
        state, error = state
        for a in range(chosen.shape[0]):
            inverse = state.at(chosen[a])
            for k in new.rows_of(a, chosen.shape[0]):
                inverse = sherman_morrison(inverse, new.x[k], new.weight[k])
            inverse = numerics.kept(inverse)
            step = numerics.kept(numerics.combine(new.gradient[a], inverse.total))
            mask = numerics.one_hot(chosen[a], len(theta))
            theta, error = numerics.add_up(theta, error, -step, mask[:, None])
            state = state.put(chosen[a], inverse)
        return theta, (state, error)
