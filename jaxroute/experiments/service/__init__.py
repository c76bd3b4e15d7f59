"""Experiments on MESS+, a policy that satisfies a target share of requests at low cost: figures, tables, theory, and runs on the user's table."""

from jaxroute.experiments.service import figures, tables, theory

EXPERIMENTS = (*figures.EXPERIMENTS, *tables.EXPERIMENTS, *theory.EXPERIMENTS, tables.OWN)
