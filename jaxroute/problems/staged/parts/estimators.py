"""Estimators of the mean rewards and costs in the confidence bounds, also of unused models, for which the paper gives no value."""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from jaxroute.core.types import Leaf
from jaxroute.problems.staged.types import Statistics

Pair = tuple[Array, Array]


class Estimator(abc.ABC):
    """Estimator of the mean reward and the mean cost of each model."""

    @abc.abstractmethod
    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        """Returns estimates of the mean rewards and costs from `statistics`, finite for unused models; `cost_floor` is the least cost of a query."""

    def start(self, statistics: Statistics, upper: Array, lower: Array, cost_floor: Leaf) -> Pair:
        """Returns the reward bounds `upper` and cost bounds `lower`. Subclasses may change those of unused models; `cost_floor` is the least cost."""
        del statistics, cost_floor
        return upper, lower


def _per_pull(statistics: Statistics, reward_prior: Leaf, cost_prior: Leaf, weight: Leaf) -> Pair:
    """Returns mean rewards and costs as if each model had served `weight` more queries of total reward `reward_prior` and total cost `cost_prior`."""
    total = statistics.pulls.astype(jnp.float32) + weight
    return (reward_prior + statistics.reward_sum) / total, (cost_prior + statistics.cost_sum) / total


def _empirical(statistics: Statistics) -> Pair:
    return _per_pull(statistics, 0.0, 0.0, jnp.where(statistics.pulls > 0, 0.0, 1.0))


@dataclass(frozen=True)
class EmpiricalMean(Estimator):
    """Estimates means by averages; an unused model has reward bound 1 and cost bound `cost_floor`.

    Source: StageRoute, eqs. (4) and (5). The paper gives no start values; these are ours.
    """

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        return _empirical(statistics)

    def start(self, statistics: Statistics, upper: Array, lower: Array, cost_floor: Leaf) -> Pair:
        used = statistics.pulls > 0
        return jnp.where(used, upper, 1.0), jnp.where(used, lower, cost_floor)


@dataclass(frozen=True)
class Lemma3(Estimator):
    """Estimates a mean as the sum divided by the number of uses plus one. By the default radius an unused model has reward bound 0.4, not 1.

    Source: StageRoute, Lemma 3. The study `staged/open-choices` in `scripts/studies` measures how much this increases regret.
    """

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        return _per_pull(statistics, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class PseudoObservation(Estimator):
    """Estimates means as if each model had served one more query, of reward 1 and cost `cost_floor` (the least cost). Not in the paper."""

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        return _per_pull(statistics, 1.0, cost_floor, 1.0)


@dataclass(frozen=True)
class Prior(Estimator):
    """Estimates means by averages; an unused model has the means `reward` and `cost`. Source: StageRoute, appendix, before Lemma 7.

    With reward 1 and a cost of at most `cost_floor` the bounds equal those of `EmpiricalMean`; no experiment uses `Prior`.

    Attributes:
      reward, cost: mean reward, and mean cost in the currency of the budget, of a model until its first use.
    """

    reward: float = 1.0
    cost: float = 0.0

    def means(self, statistics: Statistics, cost_floor: Leaf) -> Pair:
        del cost_floor
        used = statistics.pulls > 0
        reward, cost = _empirical(statistics)
        return jnp.where(used, reward, self.reward), jnp.where(used, cost, self.cost)
