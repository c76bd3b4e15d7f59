"""Figures of StageRoute, and studies of its theory."""

from jaxroute.experiments.staged.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
