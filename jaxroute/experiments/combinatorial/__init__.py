"""Figures and tables of C2MAB-V, and studies of it."""

from jaxroute.experiments.combinatorial import figures, studies

EXPERIMENTS = (*figures.EXPERIMENTS, *studies.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
