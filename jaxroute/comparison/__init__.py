"""From a log of queries to one answer: which way of routing reaches a quality for the least money, and how sure that is."""

from . import drawing
from .comparing import Comparison, compare
from .learning import setting_of
from .points import Estimate, Learning, Measures, Point
from .serving import Way, load_way

__all__ = ["Comparison", "Estimate", "Learning", "Measures", "Point", "Way", "compare", "drawing", "load_way", "setting_of"]
