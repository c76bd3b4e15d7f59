"""Selection of the cheapest rule that reaches a target, and grids of prices."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

RuleT = TypeVar("RuleT", bound=Any)


def cheapest(quality: np.ndarray, cost: np.ndarray, target: float) -> int:
    """Returns the index of the candidate that reaches a target at the least cost; of equal costs the better, then the first.

    If no candidate reaches it, the best one is returned; of equal ones the cheapest, then the first.

    Args:
      quality: `[C]` mean scores.
      cost: `[C]` mean costs.
      target: target of the quality.
    """
    # Sums in different orders differ in their last digits, which must not decide between equal candidates.
    good = np.flatnonzero(quality >= min(target, float(quality.max())) - 1e-12)
    least = good[cost[good] <= cost[good].min() * (1 + 1e-12)]
    return int(least[np.argmax(quality[least] >= quality[least].max() - 1e-12)])


@dataclass(frozen=True, eq=False)
class PriceGrid(Generic[RuleT]):
    """One rule at `L` prices of cost, with its quality and cost on the fitting part at each price.

    Attributes:
      rule: rule at a price of 0.
      prices: `[L]` prices.
      reached: `[L]` mean scores.
      spent: `[L]` mean costs.
    """

    rule: RuleT
    prices: np.ndarray
    reached: np.ndarray
    spent: np.ndarray

    def tuned(self, target: float) -> RuleT:
        """Returns the rule at the price that reaches the target at the least cost."""
        return replace(self.rule, price=float(self.prices[cheapest(self.reached, self.spent, target)]))


def multipliers(costs: np.ndarray, number: int) -> np.ndarray:
    """Returns prices of a unit of cost: 0, then from prices that hardly matter to prices at which cost alone decides.

    Args:
      costs: `[N]` mean cost of each model.
      number: number of prices; one if all models are free.
    """
    paid = costs[costs > 0]
    if not paid.size:
        return np.zeros(1)
    gaps = np.diff(np.sort(paid))
    least = min(float(paid.min()), float(gaps[gaps > 1e-9 * paid.max()].min(initial=np.inf)))
    return np.append(0.0, np.geomspace(3e-3 / paid.max(), 2.0 / least, number - 1))


def between(prices: np.ndarray, reached: np.ndarray, number: int) -> np.ndarray:
    """Returns `number` further prices, in the gaps between prices where quality falls most.

    Args:
      prices: `[L]` increasing prices.
      reached: `[L]` mean scores.
      number: number of further prices; none if there is one price.
    """
    gaps = np.abs(np.diff(reached))
    pieces = np.ones(len(gaps))
    for _ in range(number if len(gaps) else 0):
        pieces[np.argmax(gaps / pieces)] += 1
    further = []
    for lower, upper, count in zip(prices[:-1], prices[1:], pieces.astype(int)):
        further.append(np.geomspace(lower if lower > 0 else upper / 100, upper, count + 1)[1:-1])
    return np.concatenate(further) if further else np.zeros(0)
