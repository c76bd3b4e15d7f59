"""Figures, tables and theory of MESS+."""

from jaxroute.experiments.service.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
