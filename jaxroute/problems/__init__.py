"""The problems: one folder each; none knows another."""

import importlib
import pkgutil
from types import ModuleType


def problems() -> dict[str, ModuleType]:
    """The problem packages by name. Each has `ENVIRONMENTS` and `POLICIES`, tuples of constructors."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}
