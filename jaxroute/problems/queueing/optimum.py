"""The queue of the optimal policy, played beside every policy's with the same luck: what `queue_regret` is measured against.

The optimal policy serves the query and the assortment with the largest true departure rate. Of each waiting query it needs
the rate of the best assortment alone, and with the uniform number of a round that rate decides whether the query leaves.
"""

from typing import Any

import jax

from jaxroute.core import xla
from jaxroute.problems.queueing.parts.backlog import Backlog
from jaxroute.problems.queueing.parts.scheduling import best_place
from jaxroute.problems.queueing.sources.contexts import Round


def play_round(backlog: Backlog, state: Any, drawn: Round, t: jax.Array) -> tuple[Any, jax.Array]:
    """A round of the optimal policy's queue.

    Source: ACQB, section 2 and appendix D.1.

    Args:
      backlog: how queries are kept.
      state: of the backlog, with rows `Query.for_optimum()`.
      drawn: what probability decides in the round.
      t: `[]`, the round.

    Returns:
      the state after the round; `[]` bool, whether a query was lost for want of space.
    """
    seen = backlog.view(state, t)
    place, rate = best_place(lambda rate: rate, backlog.rows(state).best_rate, seen)
    place, rate, state = xla.barrier((place, rate, state))
    departed = (state.length > 0) & (drawn.uniform <= rate)
    return backlog.move(state, place, departed, drawn.row.for_optimum(), drawn.arrived, t)
