"""Figures, tables and theory of MESS+, and the problem on a table of the user's own."""

from jaxroute.experiments.service import curves, exploration, own_table, tables, theory

EXPERIMENTS = tuple(one for part in (curves, exploration, tables, theory, own_table) for one in part.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
