"""Figures, tables and theory of C2MAB-V, and the tasks on a table of the user's own."""

from jaxroute.experiments.combinatorial import figures, own_table, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *own_table.EXPERIMENTS, *theory.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
