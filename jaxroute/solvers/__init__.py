"""Optimisation problems shared by several papers, exact and without branches."""
