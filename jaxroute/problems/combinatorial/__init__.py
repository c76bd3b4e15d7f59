"""Selection of a set of models under a budget (C2MAB-V): any win, sum up, all in.

`c2mabv` is the paper's Algorithm 1, composed of `parts`. `env` is the cloud of models, `sources` has its outcomes and costs, `instances` constructors of
environments. `baselines` and `oracle` are the other policies. `optimum` has the best set and the best relaxed selection that define regret, `theory`
the paper's bounds, and `types` the interfaces between environment and policies.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.problems.combinatorial.baselines import (
    CUCB,
    ConstrainedThompson,
    Direct,
    EpsilonGreedy,
    Everything,
    OfflineFixed,
    RandomSet,
    Thompson,
)
from jaxroute.problems.combinatorial.c2mabv import C2MABV, two_tier
from jaxroute.problems.combinatorial.env import CloudEnv, relaxed_objective
from jaxroute.problems.combinatorial.instances import (
    cloud,
    copies_of,
    parametric_cloud,
    sciq_cloud,
    table_cloud,
    uniform_cloud,
)
from jaxroute.problems.combinatorial.optimum import best_relaxed, best_set
from jaxroute.problems.combinatorial.oracle import OracleInteger, OracleRelaxed
from jaxroute.problems.combinatorial.parts.batches import HoldAction, HoldRelaxed
from jaxroute.problems.combinatorial.parts.cascade_order import ByCost, ByIndex, ByPrice, ByProbability, ByReward
from jaxroute.problems.combinatorial.parts.posteriors import BetaPosterior, CountByCoin, CountInPart, NormalPosterior
from jaxroute.problems.combinatorial.parts.radii import PlainRadius, UnionRadius
from jaxroute.problems.combinatorial.parts.relaxation import (
    BestOf,
    BestSet,
    ContinuousGreedy,
    Linear,
    ProjectedGradient,
    Smoothed,
    Vertices,
)
from jaxroute.problems.combinatorial.parts.rewards import AllIn, AnyWin, SumUp
from jaxroute.problems.combinatorial.parts.rounding import Indicator, Pairwise, Swap
from jaxroute.problems.combinatorial.parts.starts import Optimistic, RoundRobin
from jaxroute.problems.combinatorial.sources import (
    BernoulliOutcomes,
    CopulaOutcomes,
    FixedCosts,
    GradedOutcomes,
    ParametricOutcomes,
    ScaledCosts,
    TableOutcomes,
    TokenCosts,
)
from jaxroute.problems.combinatorial.theory import bound_regret, bound_violation, least_observed

POLICIES = (
    C2MABV,
    Direct,
    CUCB,
    Thompson,
    ConstrainedThompson,
    EpsilonGreedy,
    RandomSet,
    Everything,
    OfflineFixed,
    OracleRelaxed,
    OracleInteger,
)
ENVIRONMENTS = (sciq_cloud, uniform_cloud, parametric_cloud, table_cloud)

__all__ = [
    "C2MABV",
    "CUCB",
    "ENVIRONMENTS",
    "POLICIES",
    "AllIn",
    "AnyWin",
    "BernoulliOutcomes",
    "BestOf",
    "BestSet",
    "BetaPosterior",
    "ByCost",
    "ByIndex",
    "ByPrice",
    "ByProbability",
    "ByReward",
    "CloudEnv",
    "ConstrainedThompson",
    "ContinuousGreedy",
    "CopulaOutcomes",
    "CountByCoin",
    "CountInPart",
    "Direct",
    "EpsilonGreedy",
    "Everything",
    "FixedCosts",
    "GradedOutcomes",
    "HoldAction",
    "HoldRelaxed",
    "Indicator",
    "Linear",
    "NormalPosterior",
    "OfflineFixed",
    "Optimistic",
    "OracleInteger",
    "OracleRelaxed",
    "Pairwise",
    "ParametricOutcomes",
    "PlainRadius",
    "ProjectedGradient",
    "RandomSet",
    "RoundRobin",
    "ScaledCosts",
    "Smoothed",
    "SumUp",
    "Swap",
    "TableOutcomes",
    "Thompson",
    "TokenCosts",
    "UnionRadius",
    "Vertices",
    "best_relaxed",
    "best_set",
    "bound_regret",
    "bound_violation",
    "cloud",
    "copies_of",
    "least_observed",
    "parametric_cloud",
    "relaxed_objective",
    "sciq_cloud",
    "table_cloud",
    "two_tier",
    "uniform_cloud",
]
__dir__ = _public_names(__name__)
