"""Sources of requests: finite types, calibrated cells, a probit model, or a table of recorded requests.

Each is a `RequestSource`: it draws requests, returns the probability that each model satisfies, and lists the contexts that a policy with some
information can distinguish, from which `optimum` computes the cheapest policy. Costs are in J, models in ascending order of cost.
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
