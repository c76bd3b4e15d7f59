"""Figures, tables and theory of MESS+, and the problem on a table of the user's own."""

from jaxroute.experiments.service import figures, tables, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *tables.EXPERIMENTS, *theory.EXPERIMENTS, tables.OWN)
