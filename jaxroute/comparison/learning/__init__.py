"""Policies that learn while they serve, on recorded queries: the five systems and a contextual bandit, all metered alike."""

from .approaches import APPROACHES, Approach, approaches, setting_of
from .metered import Metered
from .play import play
from .traffic import Traffic

__all__ = ["APPROACHES", "Approach", "Metered", "Traffic", "approaches", "play", "setting_of"]
