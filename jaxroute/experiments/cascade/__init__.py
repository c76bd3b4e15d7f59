"""The study of cascades: S0 to S15, and recorded queries."""

from jaxroute.experiments.cascade.regret import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
