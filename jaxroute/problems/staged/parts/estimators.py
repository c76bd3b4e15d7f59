"""Means in the confidence bounds, also of a model that was never used, for which the paper gives no value."""

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxroute.core.types import Leaf
from jaxroute.problems.staged.types import Statistics

Pair = tuple[jax.Array, jax.Array]


class Estimator(abc.ABC):
    """Estimator of mean rewards and mean costs."""

    @abc.abstractmethod
    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        """Returns mean rewards and mean costs `[...]`, finite for a model that was never used."""

    def start(self, statistics: Statistics, upper: jax.Array, lower: jax.Array, cost_floor: Leaf) -> Pair:
        """Returns the bounds `[...]` of rewards and of costs, replaced for models that were never used."""
        del statistics, cost_floor
        return upper, lower


def _per_pull(statistics: Statistics, reward_prior: Leaf, cost_prior: Leaf, weight: Leaf) -> Pair:
    """Returns the sums with a prior, divided by the pulls plus its weight."""
    total = statistics.pulls.astype(jnp.float32) + weight
    return (reward_prior + statistics.reward_sum) / total, (cost_prior + statistics.cost_sum) / total


def _empirical(statistics: Statistics) -> Pair:
    """Returns empirical means, 0 for a model that was never used."""
    return _per_pull(statistics, 0.0, 0.0, jnp.where(statistics.pulls > 0, 0.0, 1.0))


@dataclass(frozen=True)
class EmpiricalMean(Estimator):
    """Empirical means; a model that was never used has reward bound 1 and cost bound `cost_floor`.

    Source: StageRoute, eqs. (4) and (5). The paper gives no start values; these are ours.
    """

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        return _empirical(statistics)

    def start(self, statistics: Statistics, upper: jax.Array, lower: jax.Array, cost_floor: Leaf) -> Pair:
        used = statistics.pulls > 0
        return jnp.where(used, upper, 1.0), jnp.where(used, lower, cost_floor)


@dataclass(frozen=True)
class Lemma3(Estimator):
    """Sums divided by pulls plus one: a new model starts at mean 0, with little optimism.

    Source: StageRoute, Lemma 3. `staged/open-choices` measures the effect.
    """

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        return _per_pull(statistics, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class PseudoObservation(Estimator):
    """Means with one virtual observation of reward 1 and cost `cost_floor`, as the `N + 1` in the radius. Not in the paper."""

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        return _per_pull(statistics, 1.0, cost_floor, 1.0)


@dataclass(frozen=True)
class Prior(Estimator):
    """Empirical means; a model that was never used has the given means.

    No experiment uses it: with reward 1 and a cost of at most the floor it equals `EmpiricalMean`.

    Source: StageRoute, appendix, before Lemma 7.

    Attributes:
      reward: mean reward before the first use.
      cost: mean cost before the first use, in the currency of the budget.
    """

    reward: float = 1.0
    cost: float = 0.0

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        used = statistics.pulls > 0
        reward, cost = _empirical(statistics)
        return jnp.where(used, reward, self.reward), jnp.where(used, cost, self.cost)
