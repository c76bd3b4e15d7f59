"""Figures, tables and theory of C2MAB-V, and the tasks on a table of the user's own."""

from jaxroute.experiments.combinatorial import figures, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *theory.EXPERIMENTS)
