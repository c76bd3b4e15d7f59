"""Simulates online policies on recorded queries: five routing systems and a contextual bandit, with common metrics."""

from .simulate import num_grids, simulate
from .strategies import STRATEGIES, Metered, OnlineStrategy, setting_of, strategies_for
from .traffic import Traffic

__all__ = ["STRATEGIES", "Metered", "OnlineStrategy", "Traffic", "num_grids", "setting_of", "simulate", "strategies_for"]
