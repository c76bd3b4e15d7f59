"""Staged deployment and routing (StageRoute): a few models are deployed per stage, and each query is routed to one of them.

`stageroute` is the paper's Algorithm 1, composed of `parts`; `baselines` and `oracle` are the other policies. `env` is the environment, a market with
rewards and costs from `sources`; `instances` builds it. `optimum` has the best feasible routing, relative to which regret is measured, `theory`
splits the regret as the paper's proof does, and `types` has the types that environment and policies exchange.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.sources import distributions as distributions

from .baselines import CheapestModels as CheapestModels
from .baselines import FirstDeployment as FirstDeployment
from .baselines import Greedy as Greedy
from .baselines import RandomDeploy as RandomDeploy
from .baselines import Uniform as Uniform
from .env import MarketEnv as MarketEnv
from .env import optimum_total as optimum_total
from .instances import arena_market as arena_market
from .instances import discovery_market as discovery_market
from .instances import lower_bound_market as lower_bound_market
from .instances import market as market
from .instances import routerbench_market as routerbench_market
from .instances import table_market as table_market
from .oracle import Oracle as Oracle
from .parts import budgets as budgets
from .parts import estimators as estimators
from .parts import fillers as fillers
from .parts import routing as routing
from .parts import scopes as scopes
from .parts import ties as ties
from .sources import ParametricOutcomes as ParametricOutcomes
from .sources import TableOutcomes as TableOutcomes
from .stageroute import StageRoute as StageRoute
from .theory import decompose as decompose
from .theory import lower_bound as lower_bound
from .theory import violation as violation

POLICIES = (StageRoute, Greedy, Oracle, CheapestModels, RandomDeploy, Uniform, FirstDeployment)
ENVIRONMENTS = (arena_market, routerbench_market, table_market, discovery_market, lower_bound_market)
__dir__ = _public_names(__name__)
