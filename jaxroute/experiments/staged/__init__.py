"""Figures and theorems of StageRoute, and its market on the user's own table."""

from jaxroute.experiments.staged import figures, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *theory.EXPERIMENTS)
