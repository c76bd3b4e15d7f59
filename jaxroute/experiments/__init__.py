"""Every figure and table of the papers, as data."""

from jaxroute.experiments import combinatorial, service, staged, stochastic
from jaxroute.experiments.base import Case, Claim, Experiment, redraw, run

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e for e in (*stochastic.EXPERIMENTS, *staged.EXPERIMENTS, *combinatorial.EXPERIMENTS, *service.EXPERIMENTS)
}

__all__ = ["EXPERIMENTS", "Case", "Claim", "Experiment", "redraw", "run"]
