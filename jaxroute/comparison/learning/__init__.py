"""Online policies on recorded queries: the five systems and a contextual bandit, with common metrics."""

from .metered import Metered
from .simulate import looks, simulate
from .strategies import STRATEGIES, OnlineStrategy, setting_of, strategies_for
from .traffic import Traffic

__all__ = ["STRATEGIES", "Metered", "OnlineStrategy", "Traffic", "looks", "setting_of", "simulate", "strategies_for"]
