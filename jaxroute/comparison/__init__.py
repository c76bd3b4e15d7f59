"""From a log of queries to one answer: which way of routing reaches a quality for the least money, and how sure that is."""

from . import drawing
from .comparing import Comparison, compare
from .learning import setting_of
from .points import Estimate, Learning, Measures, Point

__all__ = ["Comparison", "Estimate", "Learning", "Measures", "Point", "compare", "drawing", "setting_of"]
