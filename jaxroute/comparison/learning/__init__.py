"""Policies that learn while they serve, on recorded queries: the five systems and a contextual bandit, all metered alike."""

from .approaches import APPROACHES, Approach, approaches_for, setting_of
from .metered import Metered
from .play import looks, play
from .traffic import Traffic

__all__ = ["APPROACHES", "Approach", "Metered", "Traffic", "approaches_for", "looks", "play", "setting_of"]
