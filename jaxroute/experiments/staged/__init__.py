"""Figures of StageRoute, and studies of its theory."""

from jaxroute.experiments.staged import figures, studies

EXPERIMENTS = (*figures.EXPERIMENTS, *studies.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
