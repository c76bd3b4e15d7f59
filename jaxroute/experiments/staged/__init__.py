"""Figures and theorems of StageRoute, and its market on a table of the user's own."""

from jaxroute.experiments.staged import figures, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *theory.EXPERIMENTS)
