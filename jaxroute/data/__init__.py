"""Recorded answers of models to queries: numbers from papers, logs from files, loaders of public data, and tables of synthetic queries."""

from jaxroute.core.exports import public_names

from . import papers
from .describe import Description, describe
from .features import main_directions
from .files import load_embeddings
from .logs.complete import Log
from .logs.log import load_columns, load_table, read_answers, read_log, read_recorded, read_served
from .logs.presets import costs_by_size
from .papers import *  # noqa: F403
from .pickles import UnsafePickleError
from .served import ServedLog, serve
from .standin import standin
from .table import RoutingTable

__all__ = [
    "Description", "Log", "RoutingTable", "ServedLog", "UnsafePickleError", "costs_by_size", "describe", "load_columns", "load_embeddings", "load_table",
    "main_directions", "read_answers", "read_log", "read_recorded", "read_served", "serve", "standin",
]  # fmt: skip
__all__ += papers.__all__
__dir__ = public_names(__name__)
