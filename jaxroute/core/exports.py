"""Public names of packages."""

import sys
from collections.abc import Callable
from types import ModuleType


def public_names(package: str) -> Callable[[], list[str]]:
    """Returns a `__dir__` for a package: the names of `__all__`, or else all names without an underscore except modules."""

    def names() -> list[str]:
        module = sys.modules[package]
        own = (name for name, value in vars(module).items() if not (name[0] == "_" or isinstance(value, ModuleType)))
        return sorted(getattr(module, "__all__", None) or own)

    return names
