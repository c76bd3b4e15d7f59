"""Problems of online routing, one subpackage each, and functions that list the problems and their policies."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from jaxroute.core import plugins
from jaxroute.core.exports import public_names

__dir__ = public_names(__name__)


def problems() -> dict[str, ModuleType]:
    """Returns the modules of all problems by name, those of plugins last. A module has the tuples `ENVIRONMENTS` and `POLICIES` of constructors."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    own = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    others = {name: plugins.load("problems", name) for name in plugins.plugins("problems") if name not in own}
    for name, module in others.items():
        if not (hasattr(module, "ENVIRONMENTS") and hasattr(module, "POLICIES")):
            expected = "a module with tuples ENVIRONMENTS and POLICIES"
            raise ValueError(f"entry point {name!r} in jaxroute.problems must be {expected}, got {module!r}")
    return own | others


def policies_of(name: str, problem: ModuleType) -> dict[str, Any]:
    """Returns the constructors of a problem's policies by class name; policies that plugins add to the problem `name` come last."""
    own = {made.__name__: made for made in problem.POLICIES}
    found = (one for one in plugins.plugins("policies") if one.rpartition(".")[0] == name)
    return own | {
        one.rpartition(".")[2]: plugins.load("policies", one) for one in found if one.rpartition(".")[2] not in own
    }


def default_policies(problem: ModuleType) -> dict[str, Any]:
    """Returns a problem's policies with default settings by name; a policy that needs the environment is a function `environment -> policy`."""
    return {made.__name__: made.of if hasattr(made, "of") else made() for made in problem.POLICIES}
