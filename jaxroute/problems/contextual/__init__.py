"""The contextual bandit: a context is observed before the model is chosen; also routing of recorded queries with features.

`env` has bandits with generalised linear rewards, and recorded queries as a bandit. Contexts are `[K, d]`, one for each model, or `[1, d]`, the
same for all; `DisjointParameters` and `SharedParameters` give each model a separate parameter, or all the same one. `sources` has the distribution
of contexts, `instances` the ready-made environments. `policies` holds LinUCB, OFUL, linear and logistic Thompson sampling, epsilon-greedy and
SquareCB; `baselines` ignore contexts; `oracle` knows the parameters; `theory` has bounds; `types` sizes and metrics.

    env = contextual.linear(theta, scale=0.1)  # theta [K, d]
    jr.simulate(env, {"LinUCB": contextual.LinUCB(alpha=0.5)}, horizon=2000, seeds=1024)
"""

from jaxroute.core.exports import public_names as _public_names

from .baselines import BestSingle as BestSingle
from .baselines import Uniform as Uniform
from .env import ContextualEnv as ContextualEnv
from .env import TableEnv as TableEnv
from .instances import linear as linear
from .instances import logistic as logistic
from .instances import table_routing as table_routing
from .oracle import Oracle as Oracle
from .policies.greedy import EpsilonGreedy as EpsilonGreedy
from .policies.linucb import OFUL as OFUL
from .policies.linucb import LinUCB as LinUCB
from .policies.logistic import LogisticThompson as LogisticThompson
from .policies.parameters import DisjointParameters as DisjointParameters
from .policies.parameters import SharedParameters as SharedParameters
from .policies.squarecb import SquareCB as SquareCB
from .policies.squarecb import square_regret as square_regret
from .policies.thompson import LinearThompson as LinearThompson
from .theory import oful_bound as oful_bound
from .theory import squarecb_bound as squarecb_bound

POLICIES = (LinUCB, OFUL, LinearThompson, LogisticThompson, EpsilonGreedy, SquareCB, Uniform, BestSingle, Oracle)
ENVIRONMENTS = (linear, logistic, table_routing)
__dir__ = _public_names(__name__)
