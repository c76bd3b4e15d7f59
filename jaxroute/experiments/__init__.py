"""Every figure and table of the papers, as data."""

from jaxroute.experiments import cascade, combinatorial, queueing, service, staged, stochastic
from jaxroute.experiments.base import Case, Claim, Experiment, redraw, run

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e for problem in (stochastic, staged, combinatorial, service, queueing, cascade) for e in problem.EXPERIMENTS
}

__all__ = ["EXPERIMENTS", "Case", "Claim", "Experiment", "redraw", "run"]
