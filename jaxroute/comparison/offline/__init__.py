"""Routing strategies without online learning: single models, mixtures, routers, cascades, and upper bounds for comparison."""

from .measure import fit_cascade, fit_cascade_routing, fit_mixture, fit_router, offline, partitions, strategies
from .sample import sample_of

__all__ = ["fit_cascade", "fit_cascade_routing", "fit_mixture", "fit_router"]
__all__ += ["offline", "partitions", "sample_of", "strategies"]
