"""Selection of a set of models under a budget (C2MAB-V), rewarded for any success, the sum of successes, or success of all.

`c2mabv` is the paper's Algorithm 1, composed of `parts`; `baselines` and `oracle` are the other policies. `env` is the environment, a cloud of models
with outcomes and costs from `sources`; `instances` builds it. `optimum` has the best set and the best relaxed selection that define regret, `theory`
the paper's bounds, and `types` the types that environment and policies exchange.
"""

from jaxroute.core.exports import public_names as _public_names

from .baselines import CUCB, ConstrainedThompson, Direct, EpsilonGreedy, Everything, OfflineFixed, RandomSet, Thompson
from .c2mabv import C2MABV, two_tier
from .env import CloudEnv, relaxed_objective
from .instances import cloud, copies_of, parametric_cloud, sciq_cloud, table_cloud, uniform_cloud
from .optimum import best_relaxed, best_set
from .oracle import OracleInteger, OracleRelaxed
from .parts.beliefs import BetaPosterior, CountByCoin, CountInPart, NormalPosterior, PlainRadius, UnionRadius
from .parts.relaxation import BestOf, BestSet, ContinuousGreedy, Linear, ProjectedGradient, Smoothed, Vertices
from .parts.rewards import AllIn, AnyWin, SumUp
from .parts.rounding import Indicator, Pairwise, Swap
from .parts.rounds import ByCost, ByIndex, ByPrice, ByProbability, ByReward, HoldAction, HoldRelaxed, Optimistic, RoundRobin
from .sources import (
    BernoulliOutcomes,
    CopulaOutcomes,
    FixedCosts,
    GradedOutcomes,
    ParametricOutcomes,
    ScaledCosts,
    TableOutcomes,
    TokenCosts,
)
from .theory import bound_regret, bound_violation, least_observed

POLICIES = (
    C2MABV, Direct, CUCB, Thompson, ConstrainedThompson, EpsilonGreedy, RandomSet, Everything, OfflineFixed, OracleRelaxed,
    OracleInteger,
)  # fmt: skip
ENVIRONMENTS = (sciq_cloud, uniform_cloud, parametric_cloud, table_cloud)

__all__ = [
    "C2MABV", "CUCB", "ENVIRONMENTS", "POLICIES", "AllIn", "AnyWin", "BernoulliOutcomes", "BestOf", "BestSet",
    "BetaPosterior", "ByCost", "ByIndex", "ByPrice", "ByProbability", "ByReward", "CloudEnv", "ConstrainedThompson",
    "ContinuousGreedy", "CopulaOutcomes", "CountByCoin", "CountInPart", "Direct", "EpsilonGreedy", "Everything",
    "FixedCosts", "GradedOutcomes", "HoldAction", "HoldRelaxed", "Indicator", "Linear", "NormalPosterior", "OfflineFixed",
    "Optimistic", "OracleInteger", "OracleRelaxed", "Pairwise", "ParametricOutcomes", "PlainRadius", "ProjectedGradient",
    "RandomSet", "RoundRobin", "ScaledCosts", "Smoothed", "SumUp", "Swap", "TableOutcomes", "Thompson", "TokenCosts",
    "UnionRadius", "Vertices", "best_relaxed", "best_set", "bound_regret", "bound_violation", "cloud", "copies_of",
    "least_observed", "parametric_cloud", "relaxed_objective", "sciq_cloud", "table_cloud", "two_tier", "uniform_cloud",
]  # fmt: skip
__dir__ = _public_names(__name__)
