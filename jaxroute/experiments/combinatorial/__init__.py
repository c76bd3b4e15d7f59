"""Figures and tables of C2MAB-V."""

from jaxroute.experiments.combinatorial.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
