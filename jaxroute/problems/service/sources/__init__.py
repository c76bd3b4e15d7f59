"""Where requests come from: finite types, calibrated cells, a probit model, or a table of recorded ones.

Each is a `RequestSource`: it draws requests, tells the probability that each model satisfies, and lists the contexts that a
policy of some knowledge tells apart, from which `optimum` computes the cheapest policy. Costs are in J, models in rising
order of cost.
"""

from jaxroute.problems.service.sources.cells import CellRequests
from jaxroute.problems.service.sources.probit import ProbitRequests
from jaxroute.problems.service.sources.source import Contexts, RequestSource, all_labels, draw_requests
from jaxroute.problems.service.sources.table import TableRequests
from jaxroute.problems.service.sources.typed import TypeRequests

__all__ = [
    "CellRequests",
    "Contexts",
    "ProbitRequests",
    "RequestSource",
    "TableRequests",
    "TypeRequests",
    "all_labels",
    "draw_requests",
]
