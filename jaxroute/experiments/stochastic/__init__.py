"""The plain bandit."""

from jaxroute.experiments.stochastic import best_arm, figures, shelf

EXPERIMENTS = (*figures.EXPERIMENTS, *shelf.EXPERIMENTS, *best_arm.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
