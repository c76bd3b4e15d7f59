"""Experiments of COSMOS: what the paper says (`paper`), a study of ours (`study`), and recorded queries (`replay`).

The paper has no experiment, figure or table; its one example is `cascade/two-boxes`. That policies and environments are what the
paper says is shown elsewhere, round by round against plain loops (`tests/reference/cascade.py`).
"""

from jaxroute.experiments.cascade.paper import PAPER
from jaxroute.experiments.cascade.replay import QUERIES, REPLAY
from jaxroute.experiments.cascade.study import STUDY

EXPERIMENTS = (*PAPER, *STUDY, REPLAY, QUERIES)

__all__ = ["EXPERIMENTS"]
