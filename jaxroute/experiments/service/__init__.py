"""Figures, tables and theory of MESS+, and the problem on the user's own table."""

from jaxroute.experiments.service import figures, tables, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *tables.EXPERIMENTS, *theory.EXPERIMENTS, tables.OWN)
