"""Figures of StageRoute, and studies of its theory."""

from jaxroute.experiments.staged import bounds, figures, studies

EXPERIMENTS = (*figures.EXPERIMENTS, *studies.EXPERIMENTS, *bounds.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
