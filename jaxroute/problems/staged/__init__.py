"""Staged deployment and routing (StageRoute): a few models are deployed per stage, and each query is routed to one of them.

`stageroute` is the paper's Algorithm 1, composed of `parts`; `baselines` and `oracle` are the other policies. `env` is the environment, a market with
rewards and costs from `sources`; `instances` builds it. `optimum` has the best feasible routing, relative to which regret is measured, `theory`
splits the regret as the paper's proof does, and `types` has the types that environment and policies exchange.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.sources import distributions

from .baselines import CheapestModels, FirstDeployment, Greedy, RandomDeploy, Uniform
from .env import MarketEnv, optimum_total
from .instances import arena_market, discovery_market, lower_bound_market, market, routerbench_market, table_market
from .oracle import Oracle
from .parts import budgets, estimators, fillers, routing, scopes, ties
from .sources import ParametricOutcomes, TableOutcomes
from .stageroute import StageRoute
from .theory import decompose, lower_bound, violation

POLICIES = (StageRoute, Greedy, Oracle, CheapestModels, RandomDeploy, Uniform, FirstDeployment)
ENVIRONMENTS = (arena_market, routerbench_market, table_market, discovery_market, lower_bound_market)

__all__ = [
    "ENVIRONMENTS", "POLICIES", "CheapestModels", "FirstDeployment", "Greedy", "MarketEnv", "Oracle", "ParametricOutcomes", "RandomDeploy",
    "StageRoute", "TableOutcomes", "Uniform", "arena_market", "budgets", "decompose", "discovery_market", "distributions", "estimators",
    "fillers", "lower_bound", "lower_bound_market", "market", "optimum_total", "routerbench_market", "routing", "scopes", "table_market",
    "ties", "violation",
]  # fmt: skip
__dir__ = _public_names(__name__)
