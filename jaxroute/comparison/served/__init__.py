"""Compares routing rules on a log of served queries, in which another rule chose one model for each query."""

from .comparing import ServedComparison, answerable, compare_served

__all__ = ["ServedComparison", "answerable", "compare_served"]
