"""Cascades (COSMOS): an online contextual Pandora's box of models that are called one after another until an answer is good
enough.

`env` plays a period, `sources` holds the distributions of requests, outputs and their features, `instances` makes environments from
them. `cosmos` is the paper's policy and reads as its Algorithms 1 and 2; `parts` are what it is put together from: the
search, the index estimators, the radii, the evaluator, the exploration. `baselines` are the policies that it is compared
with, `oracle` those that know the environment. `optimum` computes what regret is measured against, `theory` the paper's
bounds and rules, and probes of what its proofs speak about. `types` are the values that pass between environment and
policies.
"""

from jaxroute.estimators.glm import ExactGLM, FrozenGLM, OnlineGLM
from jaxroute.problems.cascade.baselines import (
    BootstrapCOSMOS,
    DistributionLearner,
    EpsilonGreedy,
    ExploreThenCommit,
    Frugal,
    Greedy,
    LinUCB,
    OnlineGradient,
    QueryAll,
    RandomCascade,
    ThompsonSampling,
)
from jaxroute.problems.cascade.cosmos import COSMOS
from jaxroute.problems.cascade.env import CascadeEnv, reward_pairs
from jaxroute.problems.cascade.instances import (
    custom_cascade,
    frozen_cascade,
    group_cascade,
    pass_fail_cascade,
    query_cascade,
    replay_cascade,
    safe_and_risky,
    spike_cascade,
    token_costs,
    two_boxes,
    uniform_cascade,
)
from jaxroute.problems.cascade.optimum import (
    TooManyHistoriesError,
    best_list,
    best_threshold,
    cost_order,
    joint_plan,
    oracle_value,
    single_values,
    tuned_threshold,
)
from jaxroute.problems.cascade.oracle import (
    BestSingle,
    ContextSingle,
    JointOracle,
    Oracle,
    StaticIndex,
    TrueIndexSearch,
)
from jaxroute.problems.cascade.parts.exploration import Coins, OncePerBlock, ThenCommit, WarmUp
from jaxroute.problems.cascade.parts.location import LocationFamily
from jaxroute.problems.cascade.parts.radii import Bootstrap, Practical, Sampled, Theoretical
from jaxroute.problems.cascade.parts.search import IndexSearch, LoopSearch
from jaxroute.problems.cascade.parts.streaming import ConstantCurvature, GradientDescent, Streaming
from jaxroute.problems.cascade.parts.window import MomentEquations, Window
from jaxroute.problems.cascade.sources.boxes import PassFailBoxes, QueryBoxes, RecordedBoxes, SpikeBoxes, UniformBoxes
from jaxroute.problems.cascade.sources.contexts import (
    FrozenContexts,
    GroupContexts,
    RecordedContexts,
    ShuffledContexts,
    TwoTimesContexts,
    UniformContexts,
)
from jaxroute.problems.cascade.sources.features import (
    CubeNoise,
    FrozenFeatures,
    RadialNoise,
    RecordedFeatures,
    ScoredFeatures,
)
from jaxroute.problems.cascade.sources.rows import RecordedRows, query_groups, recorded_rows
from jaxroute.problems.cascade.theory import (
    design_growth,
    evaluator_error,
    index_error,
    potential_bound,
    regret_bound,
    residual,
    ridge_rule,
)

POLICIES = (
    COSMOS,
    Greedy,
    EpsilonGreedy,
    ExploreThenCommit,
    OnlineGradient,
    DistributionLearner,
    ThompsonSampling,
    BootstrapCOSMOS,
    LinUCB,
    QueryAll,
    Frugal,
    RandomCascade,
    Oracle,
    TrueIndexSearch,
    ContextSingle,
    StaticIndex,
    BestSingle,
)
ENVIRONMENTS = (
    uniform_cascade,
    spike_cascade,
    pass_fail_cascade,
    group_cascade,
    safe_and_risky,
    two_boxes,
    frozen_cascade,
    custom_cascade,
    replay_cascade,
    query_cascade,
)

__all__ = [
    "COSMOS",
    "ENVIRONMENTS",
    "POLICIES",
    "BestSingle",
    "Bootstrap",
    "BootstrapCOSMOS",
    "CascadeEnv",
    "Coins",
    "ConstantCurvature",
    "ContextSingle",
    "CubeNoise",
    "DistributionLearner",
    "EpsilonGreedy",
    "ExactGLM",
    "ExploreThenCommit",
    "FrozenContexts",
    "FrozenFeatures",
    "FrozenGLM",
    "Frugal",
    "GradientDescent",
    "Greedy",
    "GroupContexts",
    "IndexSearch",
    "JointOracle",
    "LinUCB",
    "LocationFamily",
    "LoopSearch",
    "MomentEquations",
    "OncePerBlock",
    "OnlineGLM",
    "OnlineGradient",
    "Oracle",
    "PassFailBoxes",
    "Practical",
    "QueryAll",
    "QueryBoxes",
    "RadialNoise",
    "RandomCascade",
    "RecordedBoxes",
    "RecordedContexts",
    "RecordedFeatures",
    "RecordedRows",
    "Sampled",
    "ScoredFeatures",
    "ShuffledContexts",
    "SpikeBoxes",
    "StaticIndex",
    "Streaming",
    "ThenCommit",
    "Theoretical",
    "ThompsonSampling",
    "TooManyHistoriesError",
    "TrueIndexSearch",
    "TwoTimesContexts",
    "UniformBoxes",
    "UniformContexts",
    "WarmUp",
    "Window",
    "best_list",
    "best_threshold",
    "cost_order",
    "custom_cascade",
    "design_growth",
    "evaluator_error",
    "frozen_cascade",
    "group_cascade",
    "index_error",
    "joint_plan",
    "oracle_value",
    "pass_fail_cascade",
    "potential_bound",
    "query_cascade",
    "query_groups",
    "recorded_rows",
    "regret_bound",
    "replay_cascade",
    "residual",
    "reward_pairs",
    "ridge_rule",
    "safe_and_risky",
    "single_values",
    "spike_cascade",
    "token_costs",
    "tuned_threshold",
    "two_boxes",
    "uniform_cascade",
]
