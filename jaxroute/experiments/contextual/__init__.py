"""The contextual bandit: regret beside its bounds, and routing of recorded queries."""

from jaxroute.experiments.contextual.regret import REGRET
from jaxroute.experiments.contextual.table import TABLE

EXPERIMENTS = (REGRET, TABLE)

__all__ = ["EXPERIMENTS"]
