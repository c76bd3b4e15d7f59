"""The plain bandit."""

from jaxroute.experiments.stochastic import best_arm, classics, figures

EXPERIMENTS = (*figures.EXPERIMENTS, *classics.EXPERIMENTS, *best_arm.EXPERIMENTS)

__all__ = ["EXPERIMENTS"]
