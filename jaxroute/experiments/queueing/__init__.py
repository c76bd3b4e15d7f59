"""Figures and theory of ACQB, and its queue on a table of the user's own."""

from jaxroute.experiments.queueing import figures, prompts, theory

EXPERIMENTS = (*figures.FIGURES, *prompts.FIGURES, prompts.TABLE, theory.THEORY)
