"""Problems, one package each, independent of each other."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from jaxroute.core import plugins


def problems() -> dict[str, ModuleType]:
    """Returns the problems by name, those of other packages last. Each has tuples `ENVIRONMENTS` and `POLICIES` of constructors."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    own = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    others = {name: plugins.load("problems", name) for name in plugins.plugins("problems") if name not in own}
    for name, module in others.items():
        if not (hasattr(module, "ENVIRONMENTS") and hasattr(module, "POLICIES")):
            raise ValueError(
                f"entry point {name!r} in jaxroute.problems must be a module with tuples ENVIRONMENTS and POLICIES, got {module!r}"
            )
    return own | others


def policies_of(name: str, problem: ModuleType) -> dict[str, Any]:
    """Returns the constructors of a problem's policies by name, those of other packages last.

    Args:
      name: name of the problem.
      problem: the problem.
    """
    own = {made.__name__: made for made in problem.POLICIES}
    found = (one for one in plugins.plugins("policies") if one.rpartition(".")[0] == name)
    return own | {
        one.rpartition(".")[2]: plugins.load("policies", one) for one in found if one.rpartition(".")[2] not in own
    }


def default_policies(problem: ModuleType) -> dict[str, Any]:
    """Returns each policy of a problem with default settings by name; a function `environment -> policy` where it needs one."""
    return {made.__name__: made.of if hasattr(made, "of") else made() for made in problem.POLICIES}
