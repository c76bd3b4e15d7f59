"""Figures and theory of ACQB."""

from jaxroute.experiments.queueing.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
