"""Simulates online policies on recorded queries: StageRoute, MESS+, C2MAB-V, COSMOS, ACQB and the contextual bandit LinUCB.

All of them have the same metrics: quality, cost, number of calls and latency of the served queries.
"""

from .simulate import num_grids, simulate
from .strategies import STRATEGIES, Metered, OnlineStrategy, setting_of, strategies_for
from .traffic import Traffic

__all__ = ["STRATEGIES", "Metered", "OnlineStrategy", "Traffic", "num_grids", "setting_of", "simulate", "strategies_for"]
