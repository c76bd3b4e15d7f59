"""jaxroute: vectorised batch simulation of online routing, selection, scheduling and cascading of language models."""

from jaxroute.grid import Grid, grid, instances
from jaxroute.hosts import HostsError
from jaxroute.locks import StoreInUseError
from jaxroute.results import load
from jaxroute.stores import StoreMismatchError
from jaxroute.sweep import run_bytes, simulate, trace_count
from jaxroute.types import Metric, Spec

__version__ = "0.1.0"

__all__ = [
    "Grid",
    "HostsError",
    "Metric",
    "Spec",
    "StoreInUseError",
    "StoreMismatchError",
    "grid",
    "instances",
    "load",
    "run_bytes",
    "simulate",
    "trace_count",
]
