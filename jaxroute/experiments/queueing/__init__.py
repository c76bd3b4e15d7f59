"""Figures, studies and theory of ACQB."""

from jaxroute.experiments.queueing.figures import FIGURES
from jaxroute.experiments.queueing.prompts import FIGURES as PROMPTS
from jaxroute.experiments.queueing.studies import STUDIES
from jaxroute.experiments.queueing.theory import THEORY

EXPERIMENTS = (*FIGURES, *PROMPTS, *STUDIES, THEORY)

__all__ = ["EXPERIMENTS"]
