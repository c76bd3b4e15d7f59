"""The contextual bandit: a query is seen before its model is chosen; LinUCB, Thompson sampling, SquareCB, and routing of recorded queries.

`env` has bandits whose expected rewards are generalised linear in what is seen, and the routing of a user's recorded queries, whose
features are the context. Contexts are `[K, d]`, one for each model, or `[1, d]`, the same for all; `Disjoint` and
`Shared` say whether each model has a separate parameter, or all have the same. `sources` are distributions of contexts and rewards,
`instances` the ready-made environments, `types` what is measured. `policies` holds LinUCB, OFUL, linear and logistic Thompson sampling,
epsilon-greedy and SquareCB; `baselines` those that do not look at contexts; `oracle` the one that knows the parameters; `theory` bounds.

    env = contextual.linear(theta, scale=0.1)  # theta [K, d]
    jr.simulate(env, {"LinUCB": contextual.LinUCB(alpha=0.5)}, horizon=2000, seeds=1024)
"""

from jaxroute.problems.contextual.baselines import BestSingle, Uniform
from jaxroute.problems.contextual.env import ContextualEnv, TableEnv
from jaxroute.problems.contextual.instances import linear, logistic, table_routing
from jaxroute.problems.contextual.oracle import Oracle
from jaxroute.problems.contextual.policies.greedy import EpsilonGreedy
from jaxroute.problems.contextual.policies.linucb import OFUL, LinUCB
from jaxroute.problems.contextual.policies.logistic import LogisticThompson
from jaxroute.problems.contextual.policies.parameters import Disjoint, Shared
from jaxroute.problems.contextual.policies.squarecb import SquareCB, square_regret
from jaxroute.problems.contextual.policies.thompson import LinearThompson
from jaxroute.problems.contextual.theory import oful_bound, squarecb_bound

POLICIES = (LinUCB, OFUL, LinearThompson, LogisticThompson, EpsilonGreedy, SquareCB, Uniform, BestSingle, Oracle)
ENVIRONMENTS = (linear, logistic, table_routing)

__all__ = [
    "ENVIRONMENTS",
    "OFUL",
    "POLICIES",
    "BestSingle",
    "ContextualEnv",
    "Disjoint",
    "EpsilonGreedy",
    "LinUCB",
    "LinearThompson",
    "LogisticThompson",
    "Oracle",
    "Shared",
    "SquareCB",
    "TableEnv",
    "Uniform",
    "linear",
    "logistic",
    "oful_bound",
    "square_regret",
    "squarecb_bound",
    "table_routing",
]
