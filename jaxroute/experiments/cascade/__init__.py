"""Experiments of COSMOS: statements of the paper, and recorded queries.

The paper has no experiment, figure or table; its only example is `cascade/two-boxes`.
"""

from jaxroute.experiments.cascade import paper, replay

EXPERIMENTS = (*paper.PAPER, replay.REPLAY, replay.QUERIES)
