"""Simulates online policies (StageRoute, MESS+, C2MAB-V, COSMOS, ACQB, LinUCB) on recorded queries, with common metrics such as quality and cost."""

from .simulate import simulate
from .strategies import STRATEGIES, Metered, OnlineStrategy, setting_of, strategies_for
from .traffic import Traffic

__all__ = ["STRATEGIES", "Metered", "OnlineStrategy", "Traffic", "setting_of", "simulate", "strategies_for"]
