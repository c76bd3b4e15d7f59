"""Linear Thompson sampling."""

import jax
from flax import struct

from jaxroute.core import checks, numerics
from jaxroute.core.rewards import Assumptions
from jaxroute.core.types import Leaf
from jaxroute.estimators.ridge import Ridge
from jaxroute.problems.contextual.policies.base import RidgePolicy
from jaxroute.problems.contextual.types import Choice


@struct.dataclass
class LinearThompson(RidgePolicy):
    """Draws the parameters from their normal posterior, and uses the model that is best for the draw.

    The distribution is `N(theta, scale^2 B^-1)` with the ridge estimate `theta` and its design matrix `B`.

    Source: Agrawal and Goyal (2013b), Algorithm 1 with `SharedParameters()`, `ridge = 1` and, for its proof, a `scale` of the order of
    `noise sqrt(d log(t / delta))`.

    Differs from the paper: with `DisjointParameters()` each model has a separate posterior.

    Attributes:
      scale: `[]` the paper's v, in units of reward; the standard deviation of one reward makes it the posterior of a normal prior.
      ridge: `[]` weight of the squared norm, above 0.
      parameters: `DisjointParameters()` for a separate parameter of each model, or `SharedParameters()` for the same one.
    """

    scale: Leaf = 0.5

    @property
    def assumes(self) -> Assumptions:
        return Assumptions(noise=max(float(self.scale), 0.5), remedy="give scale, the standard deviation of a reward")

    def check(self) -> None:
        super().check()
        checks.non_negative("scale", self.scale, ())

    def act(self, key: jax.Array, state: Ridge, obs: jax.Array, t: jax.Array) -> Choice:
        del t
        x = self.parameters.columns(obs)
        sample = state.predict(x) + self.scale * self.parameters.errors(key, x, state)
        return numerics.argmax(sample), {"sample": sample}
