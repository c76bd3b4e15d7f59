"""Reading logs of answers of any kind as complete tables."""

from .complete import Log
from .log import read_answers, read_log

__all__ = ["Log", "read_answers", "read_log"]
