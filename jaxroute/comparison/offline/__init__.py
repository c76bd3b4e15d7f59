"""Ways of routing that do not learn while they serve: models, mixtures, routers, cascades, and bounds for scale."""

from .fitting import fit_cascade, fit_cascade_routing, fit_mixture, fit_router
from .measure import approaches, offline, partings
from .sample import Played, Sample, sample_of

__all__ = [
    "Played",
    "Sample",
    "approaches",
    "fit_cascade",
    "fit_cascade_routing",
    "fit_mixture",
    "fit_router",
    "offline",
    "partings",
    "sample_of",
]
