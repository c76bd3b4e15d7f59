"""Means of the observed outcomes and costs, for all learning policies."""

from typing import Self

from flax import struct

from jaxroute.estimators.running import RunningMean
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Feedback


@struct.dataclass
class Statistics:
    """Running means of outcomes and costs.

    Source: C2MAB-V, Algorithm 1, lines 2 and 9; eq. (6).

    Attributes:
      outcome: means of the outcomes of `K` models.
      cost: means of the costs of `K` models.
      spec: information about the environment (static).
    """

    outcome: RunningMean
    cost: RunningMean
    spec: CombinatorialSpec = struct.field(pytree_node=False)

    @classmethod
    def empty(cls, spec: CombinatorialSpec) -> "Statistics":
        """Returns the statistics without observations."""
        return Statistics(RunningMean.empty(spec.num_models), RunningMean.empty(spec.num_models), spec)

    def add(self, feedback: Feedback) -> Self:
        """Returns the statistics with the feedback of a round, eq. (6)."""
        return self.replace(
            outcome=self.outcome.add(feedback.observed, feedback.outcome),
            cost=self.cost.add(feedback.cost_observed, feedback.cost),
        )
