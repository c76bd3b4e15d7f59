"""jaxroute: vectorised batch simulation of online routing, selection, scheduling and cascading of language models."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxroute import comparison, data
    from jaxroute.analysis import metrics, plot, tune
    from jaxroute.comparison import compare
    from jaxroute.core import draws, numerics
    from jaxroute.core.protocols import Environment, Policy
    from jaxroute.core.types import Metric, Spec
    from jaxroute.core.wrapper import Wrapper
    from jaxroute.engine.errors import CannotPlayError
    from jaxroute.engine.execution import Execution
    from jaxroute.engine.grid import Grid, grid, instances
    from jaxroute.engine.programs import trace_count
    from jaxroute.engine.progress import Progress
    from jaxroute.engine.simulate import run_bytes, simulate
    from jaxroute.store.packs import StoreMismatchError
    from jaxroute.store.results import load

__version__ = "0.2.0"

# Where each name is; imported when it is asked for, because jax, xarray and SciPy take seconds.
_MODULES = {
    "comparison": "jaxroute.comparison",
    "data": "jaxroute.data",
    "draws": "jaxroute.core.draws",
    "metrics": "jaxroute.analysis.metrics",
    "numerics": "jaxroute.core.numerics",
    "plot": "jaxroute.analysis.plot",
    "tune": "jaxroute.analysis.tune",
}
_NAMES = {
    "CannotPlayError": "jaxroute.engine.errors",
    "Environment": "jaxroute.core.protocols",
    "Execution": "jaxroute.engine.execution",
    "Grid": "jaxroute.engine.grid",
    "Metric": "jaxroute.core.types",
    "Policy": "jaxroute.core.protocols",
    "Progress": "jaxroute.engine.progress",
    "Spec": "jaxroute.core.types",
    "StoreMismatchError": "jaxroute.store.packs",
    "Wrapper": "jaxroute.core.wrapper",
    "compare": "jaxroute.comparison",
    "grid": "jaxroute.engine.grid",
    "instances": "jaxroute.engine.grid",
    "load": "jaxroute.store.results",
    "run_bytes": "jaxroute.engine.simulate",
    "simulate": "jaxroute.engine.simulate",
    "trace_count": "jaxroute.engine.programs",
}

__all__ = [
    "CannotPlayError",
    "Environment",
    "Execution",
    "Grid",
    "Metric",
    "Policy",
    "Progress",
    "Spec",
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
    """A public name, imported when it is asked for."""
    if name in _MODULES:
        found: Any = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        found = getattr(importlib.import_module(_NAMES[name]), name)
    else:
        # With name and object Python says what else may be meant.
        raise AttributeError(f"module 'jaxroute' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
