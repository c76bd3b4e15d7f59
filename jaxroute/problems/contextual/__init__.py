"""The contextual bandit: a context is observed before the model is chosen. Contexts are random, or features of recorded queries.

Contexts are `[K, d]`, one for each model, or `[1, d]`, the same for all. A policy learns a parameter vector per model (`DisjointParameters`) or a
single one for all models (`SharedParameters`). `env` simulates generalised linear rewards or recorded queries, and replays served requests, where only
one model has answered each query; `instances` builds ready-made environments. `policies` holds the learning policies, `baselines` those that learn nothing, `theory` bounds of the regret.

    env = contextual.linear(theta, scale=0.1)  # theta [K, d]
    jr.simulate(env, {"LinUCB": contextual.LinUCB(alpha=0.5)}, horizon=2000, seeds=1024)
"""

from jaxroute.core.exports import public_names as _public_names

from .baselines import BestSingle as BestSingle
from .baselines import Oracle as Oracle
from .baselines import Uniform as Uniform
from .env import ContextualEnv as ContextualEnv
from .env import ServedEnv as ServedEnv
from .env import TableEnv as TableEnv
from .instances import linear as linear
from .instances import logistic as logistic
from .instances import served_routing as served_routing
from .instances import table_routing as table_routing
from .policies.linear import OFUL as OFUL
from .policies.linear import EpsilonGreedy as EpsilonGreedy
from .policies.linear import LinearThompson as LinearThompson
from .policies.linear import LinUCB as LinUCB
from .policies.logistic import LogisticThompson as LogisticThompson
from .policies.parameters import DisjointParameters as DisjointParameters
from .policies.parameters import SharedParameters as SharedParameters
from .policies.replayed import ReplayedPolicy as ReplayedPolicy
from .policies.squarecb import SquareCB as SquareCB
from .policies.squarecb import square_regret as square_regret
from .theory import oful_bound as oful_bound
from .theory import squarecb_bound as squarecb_bound

POLICIES = (LinUCB, OFUL, LinearThompson, LogisticThompson, EpsilonGreedy, SquareCB, Uniform, BestSingle, Oracle)
ENVIRONMENTS = (linear, logistic, table_routing, served_routing)
__dir__ = _public_names(__name__)
