"""jaxroute: vectorised batch simulation of online routing, selection, scheduling and cascading of language models."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxroute import comparison, data, experiments, metrics, offpolicy, plot, problems, solvers, testing, tune
    from jaxroute.comparison import compare
    from jaxroute.core import draws, numerics
    from jaxroute.core.protocols import Environment, Policy, Wrapper
    from jaxroute.core.types import CostHint, Metric, Spec
    from jaxroute.engine.compiling import trace_count
    from jaxroute.engine.execution import Execution, Store
    from jaxroute.engine.grid import Grid, grid, instances
    from jaxroute.engine.progress import Progress
    from jaxroute.engine.rounds import SimulationError
    from jaxroute.engine.simulate import run_bytes, simulate
    from jaxroute.store.packs import StoreMismatchError
    from jaxroute.store.results import load

__version__ = "0.2.0"

# Modules of the public names, imported at first use: jax, xarray and SciPy take seconds to import.
_MODULES = ("comparison", "data", "experiments", "metrics", "offpolicy", "plot", "problems", "solvers", "testing", "tune")
_NAMES = {
    "comparison": ("compare",),
    "core": ("draws", "numerics"),
    "core.protocols": ("Environment", "Policy", "Wrapper"),
    "core.types": ("CostHint", "Metric", "Spec"),
    "engine.compiling": ("trace_count",),
    "engine.execution": ("Execution", "Store"),
    "engine.grid": ("Grid", "grid", "instances"),
    "engine.progress": ("Progress",),
    "engine.rounds": ("SimulationError",),
    "engine.simulate": ("run_bytes", "simulate"),
    "store.packs": ("StoreMismatchError",),
    "store.results": ("load",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = ["CostHint", "Environment", "Execution", "Grid", "Metric", "Policy", "Progress", "SimulationError", "Spec"]
__all__ += ["Store", "StoreMismatchError", "Wrapper", "compare", "comparison", "data", "draws", "experiments", "grid"]
__all__ += [
    "instances",
    "load",
    "metrics",
    "numerics",
    "offpolicy",
    "plot",
    "problems",
    "run_bytes",
    "simulate",
    "solvers",
    "testing",
]
__all__ += ["trace_count", "tune"]


def __getattr__(name: str) -> Any:
    """Imports a public name of jaxroute at its first use, because importing jax, xarray and SciPy takes seconds."""
    if name in _MODULES:
        value: Any = importlib.import_module(f"jaxroute.{name}")
    elif name in _HOMES:
        home = importlib.import_module(f"jaxroute.{_HOMES[name]}")
        value = getattr(home, name, None) or importlib.import_module(f"{home.__name__}.{name}")
    else:
        # With name and object Python suggests similar names.
        raise AttributeError(f"module 'jaxroute' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
