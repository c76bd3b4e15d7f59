"""Selects the components of `ACQB` by the sizes of an environment."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxroute.core.types import CostHint
from jaxroute.estimators import mnl
from jaxroute.estimators.factors import ByFactors
from jaxroute.estimators.gaussian import WRITTEN_OUT, ByCholesky, ByRoot, Sampler
from jaxroute.problems.queueing.parts.memory import Memory, ModelRows, PromptCounts, SharedRows
from jaxroute.problems.queueing.parts.scheduling import PromptQueries, Queries, QueueQueries
from jaxroute.problems.queueing.theory import num_samples
from jaxroute.problems.queueing.types import QueueSpec

if TYPE_CHECKING:
    from jaxroute.problems.queueing.acqb import ACQB

# From this dimension on quasi-Newton steps and updates of a square root take less time than Newton steps and Cholesky factors. CPU seconds of both, for 64
# runs of 600 rounds with five models and one answer: .35 and .32 at 8 features, .32 and .41 at 9, .56 and .90 at 12.
LARGE_DIM = 9
# Up to this number of answers per round, counts per prompt of a pool contain all data of a run, in less memory than a row per round.
FEW_ANSWERS = 2


class Parts(NamedTuple):
    """Components of `ACQB` in an environment.

    Attributes:
      solver: rule that updates the estimate, eqs. (1) and (4).
      sampler: rule that draws parameters around the estimate.
      num_samples: number of samples in a round, `M`.
      memory: form in which parameters and observations are stored.
      queries: functions that read the queries' features and find the best query.
    """

    solver: mnl.Solver
    sampler: Sampler
    num_samples: int
    memory: Memory
    queries: Queries


def choose_parts(policy: "ACQB", spec: QueueSpec) -> Parts:
    """Returns the components that the policy specifies, and for the others defaults chosen by the environment's sizes."""
    dim = spec.dim if policy.features is None else np.shape(policy.features)[0]
    if spec.prompts and spec.num_offered <= FEW_ANSWERS:
        memory: Memory = PromptCounts(spec, dim)
    else:
        memory = SharedRows(spec, dim) if spec.pair_features else ModelRows(spec, dim, policy.joint)
    large = memory.dim >= LARGE_DIM
    newton = mnl.Tracked() if spec.num_offered == 1 and not policy.joint else mnl.Newton()
    # The factors of all rounds may be fewer numbers than the square roots of large matrices.
    few = spec.rounds * spec.num_offered < memory.num_parameters * memory.dim and _matrix_size(memory) >= WRITTEN_OUT
    return Parts(
        solver=policy.solver or (mnl.BFGS() if large or not memory.has_hessian else newton),
        sampler=policy.sampler or ((ByFactors() if few else ByRoot()) if large else ByCholesky()),
        num_samples=policy.num_samples or num_samples(spec.num_offered),
        memory=memory,
        queries=PromptQueries(policy.features) if spec.prompts else QueueQueries(),
    )


def _matrix_size(memory: Memory) -> int:
    return memory.num_parameters * memory.dim**2


def cost_hint_of(memory: Memory) -> CostHint:
    """Returns the sizes of a run's matrices in bytes, by which the engine chooses how to simulate. `PromptCounts` multiplies no large matrices."""
    size = 4 * _matrix_size(memory)
    return CostHint(matrix_bytes=size, product_bytes=0 if isinstance(memory, PromptCounts) else size)
