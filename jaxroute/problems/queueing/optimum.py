"""The queue of the optimal policy, simulated beside every policy's with common random numbers: the benchmark of `queue_regret`.

The optimal policy serves the query and the assortment with the largest true departure rate. Of each waiting query it needs only the rate of the
best assortment; with the uniform number of the round that rate decides whether the query leaves.
"""

from typing import Any

from jax import Array

from jaxroute.core import xla
from jaxroute.problems.queueing.parts.backlog import Backlog
from jaxroute.problems.queueing.parts.scheduling import best_place
from jaxroute.problems.queueing.sources.contexts import Round


def step(backlog: Backlog, state: Any, drawn: Round, t: Array) -> tuple[Any, Array]:
    """A round of the optimal policy's queue.

    Source: ACQB, section 2 and appendix D.1.

    Args:
      backlog: buffer of the queries.
      state: state of the buffer, with rows `Query.for_optimum()`.
      drawn: random draws of the round.
      t: `[]`, the round.

    Returns:
      the state after the round; `[]` bool, whether a query was lost because the buffer was full.
    """
    place, rate = best_place(lambda rate: rate, state.rows.best_rate, backlog.view(state))
    place, rate, state = xla.barrier((place, rate, state))
    departed = (state.length > 0) & (drawn.uniform <= rate)
    return backlog.move(state, place, departed, drawn.row.for_optimum(), drawn.arrived, t)
