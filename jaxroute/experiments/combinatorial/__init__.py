"""Figures, tables and theory of C2MAB-V, and its three tasks on the user's own table."""

from jaxroute.experiments.combinatorial import figures, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *theory.EXPERIMENTS)
