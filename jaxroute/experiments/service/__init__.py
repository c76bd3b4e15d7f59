"""Figures, tables and theory of MESS+, and studies that go beyond the paper."""

from jaxroute.experiments.service import curves, exploration, study, tables, theory

EXPERIMENTS = tuple(one for part in (curves, exploration, tables, theory, study) for one in part.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
