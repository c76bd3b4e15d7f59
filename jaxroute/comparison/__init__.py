"""Comparison of routing strategies on a log of queries: finds the strategy that reaches a quality at the least cost, with standard errors."""

from jaxroute.core.exports import public_names

from . import drawing
from .comparing import Comparison, compare
from .learning import setting_of
from .points import Estimate, Learning, Measures, Point
from .served import ServedComparison, compare_served
from .serving import Strategy, load_strategy

__all__ = ["Comparison", "Estimate", "Learning", "Measures", "Point", "ServedComparison", "Strategy"]
__all__ += ["compare", "compare_served", "drawing", "load_strategy", "setting_of"]
__dir__ = public_names(__name__)
