"""Logs of answers of any kind and with any names of columns, as complete tables with an account of how they were read."""

from jaxroute.data.logs.log import Log, read_answers, read_log

__all__ = ["Log", "read_answers", "read_log"]
