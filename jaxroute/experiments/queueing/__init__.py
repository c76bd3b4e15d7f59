"""Figures and theory of ACQB, and its queue of prompts from the user's own table."""

from jaxroute.experiments.queueing import figures, prompts, theory

EXPERIMENTS = (*figures.FIGURES, *prompts.FIGURES, prompts.TABLE, theory.THEORY)
