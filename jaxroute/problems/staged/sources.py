"""Sources of the rewards and costs of a query: parametric distributions, or the rows of a table."""

from typing import Any, Protocol

import numpy as np
from flax import struct
from jax import Array

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.sources.distributions import Gaussian, NormalTransform
from jaxroute.sources.rows import random_order, row_in_order


class Outcomes(Protocol):
    """Source of the rewards and costs of all models, round by round.

    Attributes:
      reward_mean, cost_mean: `[N]` expected reward and expected cost of each model.
    """

    reward_mean: Leaf
    cost_mean: Leaf

    def check(self) -> None:
        """Raises `ValueError` if a field is out of range."""

    def init(self, key: Array) -> Any:
        """Returns the state of the source before the first round; by default an empty tuple."""
        del key
        return ()

    def draw(self, key: Array, state: Any, t: Array) -> tuple[Array, Array]:
        """Draws the rewards `[N]` and costs `[N]` of all `N` models in round `t`."""
        ...


@struct.dataclass
class ParametricOutcomes(Outcomes):
    """Source that draws rewards and costs from parametric distributions around fixed means.

    Attributes:
      reward_mean, cost_mean: `[N]` expected reward and expected cost of each model.
      reward_noise, cost_noise: `[]` scale parameter of the distribution, for example the standard deviation of `Gaussian`.
      reward_distribution, cost_distribution: distributions of rewards and costs (static).
    """

    reward_mean: Leaf
    cost_mean: Leaf
    reward_noise: Leaf
    cost_noise: Leaf
    reward_distribution: NormalTransform = struct.field(pytree_node=False, default=Gaussian())
    cost_distribution: NormalTransform = struct.field(pytree_node=False, default=Gaussian(relative=True))

    def check(self) -> None:
        size = np.shape(self.reward_mean)
        checks.probability("reward_mean", self.reward_mean)  # Policies know that mean rewards are in [0, 1].
        checks.non_negative("cost_mean", self.cost_mean, size)
        checks.non_negative("reward_noise", self.reward_noise, ())
        checks.non_negative("cost_noise", self.cost_noise, ())

    def draw(self, key: Array, state: tuple[()], t: Array) -> tuple[Array, Array]:
        del state, t
        split = self.reward_distribution.num_normals
        normal = draws.normal(key, (split + self.cost_distribution.num_normals,))
        reward = self.reward_distribution.from_normal(normal[:split], self.reward_mean, self.reward_noise)
        return reward, self.cost_distribution.from_normal(normal[split:], self.cost_mean, self.cost_noise)


@struct.dataclass
class TableOutcomes(Outcomes):
    """Source that replays rewards and costs of recorded queries, one row of a table per round.

    Attributes:
      scores, costs: `[Q, N]` reward and cost of every model on every query.
      reward_mean, cost_mean: `[N]` column means of `scores` and of `costs`.
      one_pass: whether each row is used once, in a random order, before any is repeated; otherwise rows are drawn with replacement (static).
    """

    scores: Leaf
    costs: Leaf
    reward_mean: Leaf
    cost_mean: Leaf
    one_pass: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        checks.probability("scores", self.scores)
        checks.non_negative("costs", self.costs, np.shape(self.scores))

    def init(self, key: Array) -> Array | tuple[()]:
        return random_order(key, self.scores.shape[0]) if self.one_pass else ()

    def draw(self, key: Array, state: Any, t: Array) -> tuple[Array, Array]:
        row = row_in_order(state, t) if self.one_pass else draws.randint(key, self.scores.shape[0])
        return self.scores[row], self.costs[row]
