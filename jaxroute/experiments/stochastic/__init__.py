"""The plain bandit."""

from jaxroute.experiments.stochastic.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
