"""StageRoute: staged deployment and routing under a budget and capacities."""

from flax import struct

from jaxroute.core import checks
from jaxroute.core.types import Leaf
from jaxroute.problems.staged.slots import SlotRouter


@struct.dataclass
class Optimist(SlotRouter):
    """Base of the policies that learn by optimistic bounds.

    gamma: `[]` confidence parameter of the radius. radius_multiplier: `[]` factor in front of the radius.
    cost_floor, cost_ceiling: `[]` known bounds of the cost per query, in the currency of the budget; a model that was never used
    is taken to cost `cost_floor`.
    """

    gamma: Leaf = 0.2
    radius_multiplier: Leaf = 2.0
    cost_floor: Leaf = 0.1
    cost_ceiling: Leaf = 50.0

    def check(self) -> None:
        checks.positive("gamma", self.gamma, ())
        checks.positive("radius_multiplier", self.radius_multiplier, ())
        floor = checks.positive("cost_floor", self.cost_floor, ())
        ceiling = checks.positive("cost_ceiling", self.cost_ceiling, ())
        if floor > ceiling:
            raise ValueError(f"cost_floor must be at most cost_ceiling = {ceiling:g}, got {floor:g}")


@struct.dataclass
class StageRoute(Optimist):
    """At each stage deploys the best `M` models for optimistic rewards and costs; routes each query by the same programme.

    Deployment maximises `U . d` over `L . d <= budget`, `sum d = 1`, `0 <= d <= capacity` with exactly `M` models used
    (DeployOPT); routing solves the same programme over the deployed models, for every query (RouteOPT), and samples a model.
    `U` is the upper bound of the mean reward, `L` the lower bound of the mean cost.

    Source: StageRoute (arXiv 2506.17254), Algorithm 1, eqs. (3) to (7).

    Differs from the paper: nothing where it is explicit. It leaves open the start values (see `Mean`), which models fill the slots
    that the optimal routing does not use (see `Reduced`), ties (lower cost, then lower index), and what to do when the bounds of
    the deployed models admit no routing within the budget (the cheapest routing).
    """
