"""jaxroute: vectorised batch simulation of online routing, selection, scheduling and cascading of language models."""

import importlib
from typing import TYPE_CHECKING, Any

from jaxroute.analysis import metrics, plot, tune
from jaxroute.core import draws, numerics
from jaxroute.core.protocols import Environment, Policy
from jaxroute.core.types import Metric, Spec
from jaxroute.core.wrapper import Wrapper
from jaxroute.engine.errors import CannotPlayError
from jaxroute.engine.grid import Grid, grid, instances
from jaxroute.engine.hosts import HostsError
from jaxroute.engine.programs import trace_count
from jaxroute.engine.simulate import run_bytes, simulate
from jaxroute.store.description import StoreMismatchError
from jaxroute.store.locks import StoreInUseError
from jaxroute.store.results import load

if TYPE_CHECKING:
    from jaxroute import comparison, data
    from jaxroute.comparison import compare

__version__ = "0.1.0"

__all__ = [
    "CannotPlayError",
    "Environment",
    "Grid",
    "HostsError",
    "Metric",
    "Policy",
    "Spec",
    "StoreInUseError",
    "StoreMismatchError",
    "Wrapper",
    "compare",
    "comparison",
    "data",
    "draws",
    "grid",
    "instances",
    "load",
    "metrics",
    "numerics",
    "plot",
    "run_bytes",
    "simulate",
    "trace_count",
    "tune",
]


def __getattr__(name: str) -> Any:
    """What takes long to import, when it is asked for."""
    if name in ("comparison", "data"):
        return importlib.import_module(f"jaxroute.{name}")
    if name == "compare":
        return importlib.import_module("jaxroute.comparison").compare
    raise AttributeError(f"module 'jaxroute' has no attribute {name!r}")
