"""Cascades (COSMOS): an online contextual Pandora's box of models, called one after another until an output is good enough.

`cosmos` has the paper's policy (Algorithms 1 and 2), `parts` its components. `env` simulates a request, `sources` draws requests, outputs and
features, and `instances` builds environments. `baselines` has policies that need not know the environment, `oracle` those that know it, `optimum` the
benchmarks of the regret. `theory` has the paper's bounds, and probes, which measure quantities of its proofs during a run.
"""

from jaxroute.core.exports import public_names as _public_names

from .baselines import BootstrapCOSMOS as BootstrapCOSMOS
from .baselines import DistributionLearner as DistributionLearner
from .baselines import EpsilonGreedy as EpsilonGreedy
from .baselines import ExploreThenCommit as ExploreThenCommit
from .baselines import Frugal as Frugal
from .baselines import Greedy as Greedy
from .baselines import LinUCB as LinUCB
from .baselines import OnlineGradient as OnlineGradient
from .baselines import QueryAll as QueryAll
from .baselines import RandomCascade as RandomCascade
from .baselines import ThompsonSampling as ThompsonSampling
from .cosmos import COSMOS as COSMOS
from .env import CascadeEnv as CascadeEnv
from .instances import custom_cascade as custom_cascade
from .instances import frozen_cascade as frozen_cascade
from .instances import group_cascade as group_cascade
from .instances import pass_fail_cascade as pass_fail_cascade
from .instances import query_cascade as query_cascade
from .instances import replay_cascade as replay_cascade
from .instances import safe_and_risky as safe_and_risky
from .instances import spike_cascade as spike_cascade
from .instances import token_costs as token_costs
from .instances import two_boxes as two_boxes
from .instances import uniform_cascade as uniform_cascade
from .optimum import best_list as best_list
from .optimum import best_threshold as best_threshold
from .optimum import joint_plan as joint_plan
from .optimum import oracle_value as oracle_value
from .optimum import tuned_threshold as tuned_threshold
from .oracle import BestSingle as BestSingle
from .oracle import ContextSingle as ContextSingle
from .oracle import JointOracle as JointOracle
from .oracle import Oracle as Oracle
from .oracle import StaticIndex as StaticIndex
from .oracle import TrueIndexSearch as TrueIndexSearch
from .sources.rows import query_groups as query_groups
from .sources.rows import recorded_rows as recorded_rows
from .theory import regret_bound as regret_bound

_GREEDY = (Greedy, EpsilonGreedy, ExploreThenCommit, OnlineGradient)
_VARIANTS = (DistributionLearner, ThompsonSampling, BootstrapCOSMOS)
_BASELINES = (LinUCB, QueryAll, Frugal, RandomCascade)
_ORACLES = (Oracle, TrueIndexSearch, ContextSingle, StaticIndex, BestSingle)
POLICIES = (COSMOS, *_GREEDY, *_VARIANTS, *_BASELINES, *_ORACLES)
_RECORDED = (replay_cascade, query_cascade)
_SMALL = (safe_and_risky, two_boxes, frozen_cascade)
ENVIRONMENTS = (uniform_cascade, spike_cascade, pass_fail_cascade, group_cascade, *_SMALL, custom_cascade, *_RECORDED)
__dir__ = _public_names(__name__)
