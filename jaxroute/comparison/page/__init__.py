"""The page of a comparison: one file that opens anywhere, and the same numbers as JSON and CSV beside it."""

from .write import write

__all__ = ["write"]
