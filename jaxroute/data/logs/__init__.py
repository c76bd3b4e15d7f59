"""Logs of answers as people have them: any file, any names of columns, as a complete table with an account of how it was read."""

from jaxroute.data.logs.log import Log, read_log

__all__ = ["Log", "read_log"]
