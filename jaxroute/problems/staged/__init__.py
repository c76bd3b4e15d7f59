"""Staged deployment and routing (StageRoute): which models are live at each maintenance window, and which one serves a query."""

from jaxroute.problems.staged.analysis import decompose, violation
from jaxroute.problems.staged.baselines import (
    Cheapest,
    Greedy,
    RandomDeploy,
    RouteByLP,
    RouteByRatio,
    RouteToBest,
    Static,
    Uniform,
)
from jaxroute.problems.staged.benchmark import benchmark_total, max_support, pool_value, routing_values
from jaxroute.problems.staged.deploy import (
    IndexFiller,
    IndexTie,
    MinimumShare,
    NewestTie,
    NoFiller,
    RandomFiller,
    RandomTie,
    Reduced,
)
from jaxroute.problems.staged.env import Market, market
from jaxroute.problems.staged.laws import Bernoulli, Fixed, Gaussian, LawOutcomes, LogNormal, TableOutcomes, TokenCost
from jaxroute.problems.staged.markets import (
    arena_market,
    discovery_market,
    lower_bound_market,
    routerbench_market,
    table_market,
)
from jaxroute.problems.staged.oracle import Oracle
from jaxroute.problems.staged.slots import FixedBudget, Lemma3, Mean, Pace, Prior, Pseudo, RoutingScope, RunScope, StageScope
from jaxroute.problems.staged.stageroute import StageRoute

POLICIES = (StageRoute, Greedy, Oracle, Cheapest, RandomDeploy, Uniform, Static)
ENVIRONMENTS = (arena_market, routerbench_market, table_market, discovery_market, lower_bound_market)

__all__ = [
    "ENVIRONMENTS",
    "POLICIES",
    "Bernoulli",
    "Cheapest",
    "Fixed",
    "FixedBudget",
    "Gaussian",
    "Greedy",
    "IndexFiller",
    "IndexTie",
    "LawOutcomes",
    "Lemma3",
    "LogNormal",
    "Market",
    "Mean",
    "MinimumShare",
    "NewestTie",
    "NoFiller",
    "Oracle",
    "Pace",
    "Prior",
    "Pseudo",
    "RandomDeploy",
    "RandomFiller",
    "RandomTie",
    "Reduced",
    "RouteByLP",
    "RouteByRatio",
    "RouteToBest",
    "RoutingScope",
    "RunScope",
    "StageRoute",
    "StageScope",
    "Static",
    "TableOutcomes",
    "TokenCost",
    "Uniform",
    "arena_market",
    "benchmark_total",
    "decompose",
    "discovery_market",
    "lower_bound_market",
    "market",
    "max_support",
    "pool_value",
    "routerbench_market",
    "routing_values",
    "table_market",
    "violation",
]
