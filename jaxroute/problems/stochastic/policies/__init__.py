"""Policies of the stochastic bandit, a file for each method."""
