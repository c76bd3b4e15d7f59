"""Queueing with retrials (ACQB): which waiting query to serve next, with which models, when a dissatisfied user tries again.

`acqb` holds the paper's policy, put together from `parts`: how waiting queries are kept and which is served, what is
remembered, when to explore. `env` is the queue, `sources` where queries and answers come from, `instances` ready-made
queues, `optimum` the optimal policy's queue that regret is measured against, `baselines` and `oracle` the other policies,
`theory` the paper's bounds, `types` what passes between them.
"""

from jaxroute.estimators.confidence import mnl_radius
from jaxroute.estimators.factors import ByFactors
from jaxroute.estimators.gaussian import ByCholesky, ByRoot
from jaxroute.problems.queueing.acqb import ACQB
from jaxroute.problems.queueing.baselines import QUCB, CQBEpsilon, QThS, Random
from jaxroute.problems.queueing.env import QueueEnv
from jaxroute.problems.queueing.instances import (
    RandomQueues,
    describe_contexts,
    fixed_queue,
    pool_queue,
    recorded_queue,
    standin_queue,
    table_queue,
)
from jaxroute.problems.queueing.oracle import Optimal, SwitchAt
from jaxroute.problems.queueing.parts.backlog import ByArrival, Compact
from jaxroute.problems.queueing.parts.triggers import Decaying, PhaseThenCoin, RecordedCoins
from jaxroute.problems.queueing.parts.waiting import waiting_percentiles
from jaxroute.problems.queueing.sources.arrivals import Bursts, Rates, Slots
from jaxroute.problems.queueing.sources.contexts import PoolContexts, RandomContexts, RecordedContexts, RecordedPrompts
from jaxroute.problems.queueing.sources.utility import departure_probability, describe_probabilities, divide_costs
from jaxroute.problems.queueing.theory import (
    Theory,
    expected_explorations,
    explore_probability,
    num_samples,
)

POLICIES = (ACQB, CQBEpsilon, QUCB, QThS, Random, Optimal)
ENVIRONMENTS = (RandomQueues, fixed_queue, recorded_queue, pool_queue, table_queue, standin_queue)

__all__ = [
    "ACQB",
    "ENVIRONMENTS",
    "POLICIES",
    "QUCB",
    "Bursts",
    "ByArrival",
    "ByCholesky",
    "ByFactors",
    "ByRoot",
    "CQBEpsilon",
    "Compact",
    "Decaying",
    "Optimal",
    "PhaseThenCoin",
    "PoolContexts",
    "QThS",
    "QueueEnv",
    "Random",
    "RandomContexts",
    "RandomQueues",
    "Rates",
    "RecordedCoins",
    "RecordedContexts",
    "RecordedPrompts",
    "Slots",
    "SwitchAt",
    "Theory",
    "departure_probability",
    "describe_contexts",
    "describe_probabilities",
    "divide_costs",
    "expected_explorations",
    "explore_probability",
    "fixed_queue",
    "mnl_radius",
    "num_samples",
    "pool_queue",
    "recorded_queue",
    "standin_queue",
    "table_queue",
    "waiting_percentiles",
]
