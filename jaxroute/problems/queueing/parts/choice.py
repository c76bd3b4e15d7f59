"""Choice of the components of ACQB by the sizes of the environment, where the policy leaves them open."""

from typing import Any, NamedTuple

import numpy as np

from jaxroute.estimators import mnl
from jaxroute.estimators.gaussian import WRITTEN_OUT, ByCholesky, ByFactors, ByRoot, Sampler
from jaxroute.problems.queueing.parts.memory import Memory, ModelRows, PromptCounts, SharedRows
from jaxroute.problems.queueing.parts.scheduling import PromptQueries, Queries, QueueQueries
from jaxroute.problems.queueing.theory import num_samples
from jaxroute.problems.queueing.types import QueueSpec

# From this dimension on quasi-Newton steps and updates of a square root take less time than Newton steps and Cholesky factors. CPU seconds of both,
# for 64 runs of 600 rounds with five models and one answer: .35 and .32 at 8 features, .32 and .41 at 9, .56 and .90 at 12.
LARGE_DIM = 9
# Up to this number of answers per round, counts per prompt of a pool contain all data of a run, in less memory than a row per round.
FEW_ANSWERS = 2


class Parts(NamedTuple):
    """Components of `ACQB` in an environment.

    Attributes:
      solver: rule that updates the estimate of the parameters, ACQB eqs. (1) and (4).
      sampler: rule that draws parameters around the estimate.
      num_samples: number of samples in a round, `M`.
      memory: `Memory` object, which defines how parameters and observations are stored.
      queries: `QueueQueries` or `PromptQueries`, whose methods read features of queries and find the best waiting query.
    """

    solver: mnl.Solver
    sampler: Sampler
    num_samples: int
    memory: Memory
    queries: Queries


def choose_parts(policy: Any, spec: QueueSpec) -> Parts:
    """Returns the components that the `ACQB` policy specifies; for those that are None, defaults chosen by the environment's sizes `spec`."""
    dim = spec.dim if policy.features is None else np.shape(policy.features)[0]
    if spec.prompts and spec.num_offered <= FEW_ANSWERS:
        memory: Memory = PromptCounts(spec, dim)
    else:
        memory = SharedRows(spec, dim) if spec.pair_features else ModelRows(spec, dim, policy.joint)
    large = memory.dim >= LARGE_DIM
    newton = mnl.Tracked() if spec.num_offered == 1 and not policy.joint else mnl.Newton()
    # The factors of all rounds may be fewer numbers than the square roots of large matrices.
    numbers = memory.num_parameters * memory.dim
    few = spec.rounds * spec.num_offered < numbers and numbers * memory.dim >= WRITTEN_OUT
    return Parts(
        solver=policy.solver or (mnl.BFGS() if large or not memory.has_hessian else newton),
        sampler=policy.sampler or ((ByFactors() if few else ByRoot()) if large else ByCholesky()),
        num_samples=policy.num_samples or num_samples(spec.num_offered),
        memory=memory,
        queries=PromptQueries(policy.features) if spec.prompts else QueueQueries(),
    )
