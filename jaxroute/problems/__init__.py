"""The problems: one folder each; none knows another."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def problems() -> dict[str, ModuleType]:
    """The problem packages by name. Each has `ENVIRONMENTS` and `POLICIES`, tuples of constructors."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def default_policies(problem: ModuleType) -> dict[str, Any]:
    """Every policy of a problem with its default settings, by name; a function `environment -> policy` where it needs that."""
    return {made.__name__: made.of if hasattr(made, "of") else made() for made in problem.POLICIES}
