"""Figures, tables and theory of MESS+, and studies that go beyond the paper."""

from jaxroute.experiments.service import curves, exploration, study, tables
from jaxroute.experiments.service.theory import THEORY

EXPERIMENTS = (*curves.EXPERIMENTS, *exploration.EXPERIMENTS, *tables.EXPERIMENTS, THEORY, *study.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
