"""Staged deployment and routing (StageRoute): which models are live at each maintenance window, and which one serves a query.

`stageroute` is the paper's Algorithm 1 and `parts` what it is put together from; `baselines` and `oracle` are the policies to compare it
with. `env` is the market, `sources` its rewards and costs, `instances` the ready-made markets, `types` what passes between market and
policy, and what is measured. `optimum` is the best feasible routing, against which regret is counted; `theory` splits the regret as the
paper's proof does.
"""

from jaxroute.problems.staged.baselines import Cheapest, Greedy, RandomDeploy, Static, Uniform
from jaxroute.problems.staged.env import MarketEnv, optimum_total
from jaxroute.problems.staged.instances import (
    arena_market,
    discovery_market,
    lower_bound_market,
    market,
    routerbench_market,
    table_market,
)
from jaxroute.problems.staged.optimum import max_support, pool_value, routing_values
from jaxroute.problems.staged.oracle import Oracle
from jaxroute.problems.staged.parts.budgets import FixedBudget, Pace
from jaxroute.problems.staged.parts.estimators import Lemma3, Mean, Prior, Pseudo
from jaxroute.problems.staged.parts.fillers import IndexFiller, MinimumShare, NoFiller, RandomFiller, Reduced
from jaxroute.problems.staged.parts.routing import RouteByLP, RouteByRatio, RouteToBest
from jaxroute.problems.staged.parts.scopes import RoutingScope, RunScope, StageScope
from jaxroute.problems.staged.parts.ties import DrawnTie, IndexTie, NewestTie, RandomTie
from jaxroute.problems.staged.sources import (
    Bernoulli,
    Fixed,
    Gaussian,
    LogNormal,
    ParametricOutcomes,
    TableOutcomes,
    TokenCost,
)
from jaxroute.problems.staged.stageroute import StageRoute
from jaxroute.problems.staged.theory import decompose, lower_bound, violation

POLICIES = (StageRoute, Greedy, Oracle, Cheapest, RandomDeploy, Uniform, Static)
ENVIRONMENTS = (arena_market, routerbench_market, table_market, discovery_market, lower_bound_market)

__all__ = [
    "ENVIRONMENTS",
    "POLICIES",
    "Bernoulli",
    "Cheapest",
    "DrawnTie",
    "Fixed",
    "FixedBudget",
    "Gaussian",
    "Greedy",
    "IndexFiller",
    "IndexTie",
    "Lemma3",
    "LogNormal",
    "MarketEnv",
    "Mean",
    "MinimumShare",
    "NewestTie",
    "NoFiller",
    "Oracle",
    "Pace",
    "ParametricOutcomes",
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
    "decompose",
    "discovery_market",
    "lower_bound",
    "lower_bound_market",
    "market",
    "max_support",
    "optimum_total",
    "pool_value",
    "routerbench_market",
    "routing_values",
    "table_market",
    "violation",
]
