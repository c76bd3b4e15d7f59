"""Experiments on MESS+, a policy that satisfies a target share of requests at low cost: figures, tables, theory, and runs on the user's table."""

from jaxroute.experiments.service import paper, theory

EXPERIMENTS = (*paper.FIGURES, *theory.EXPLORATION, *paper.TABLES, *theory.EXPERIMENTS, paper.OWN)
