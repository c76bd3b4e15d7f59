"""Queueing with retrials (ACQB): which waiting query to serve next, with which models, when a dissatisfied user tries again."""

from jaxroute.estimators.confidence import mnl_radius
from jaxroute.estimators.gaussian import ByCholesky, ByRoot
from jaxroute.problems.queueing.acqb import ACQB, CQBEpsilon, acqb
from jaxroute.problems.queueing.backlog import ByArrival, Compact, PoolCounts
from jaxroute.problems.queueing.baselines import QUCB, QThS, Random
from jaxroute.problems.queueing.contexts import PoolContexts, RandomContexts, RecordedContexts, RecordedPrompts
from jaxroute.problems.queueing.env import RetrialQueue
from jaxroute.problems.queueing.oracle import Optimal, SwitchAt
from jaxroute.problems.queueing.queues import (
    RandomQueues,
    fixed_queue,
    pool_queue,
    recorded_queue,
    standin_queue,
    table_queue,
)
from jaxroute.problems.queueing.theory import (
    Theory,
    expected_explorations,
    explore_chance,
    extra_query_survives,
    num_samples,
)
from jaxroute.problems.queueing.triggers import Decaying, PhaseThenCoin
from jaxroute.problems.queueing.utility import departure_chance, describe_chances, divide_costs

POLICIES = (ACQB, CQBEpsilon, QUCB, QThS, Random, Optimal)
ENVIRONMENTS = (RandomQueues, fixed_queue, recorded_queue, pool_queue, table_queue, standin_queue)

__all__ = [
    "ACQB",
    "ENVIRONMENTS",
    "POLICIES",
    "QUCB",
    "ByArrival",
    "ByCholesky",
    "ByRoot",
    "CQBEpsilon",
    "Compact",
    "Decaying",
    "Optimal",
    "PhaseThenCoin",
    "PoolContexts",
    "PoolCounts",
    "QThS",
    "Random",
    "RandomContexts",
    "RandomQueues",
    "RecordedContexts",
    "RecordedPrompts",
    "RetrialQueue",
    "SwitchAt",
    "Theory",
    "acqb",
    "departure_chance",
    "describe_chances",
    "divide_costs",
    "expected_explorations",
    "explore_chance",
    "extra_query_survives",
    "fixed_queue",
    "mnl_radius",
    "num_samples",
    "pool_queue",
    "recorded_queue",
    "standin_queue",
    "table_queue",
]
