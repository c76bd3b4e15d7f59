"""Reading logs of answers of any kind as complete tables."""

from jaxroute.data.logs.complete import Log
from jaxroute.data.logs.log import read_answers, read_log

__all__ = ["Log", "read_answers", "read_log"]
