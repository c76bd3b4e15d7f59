"""Listing of the public names of a package."""

import sys
from collections.abc import Callable
from types import ModuleType


def public_names(package: str) -> Callable[[], list[str]]:
    """Returns a `__dir__` function for a package: it lists `__all__` or, without one, all public names except submodules."""

    def names() -> list[str]:
        module = sys.modules[package]
        inner = {n for n, v in vars(module).items() if isinstance(v, ModuleType) and v.__name__ == f"{package}.{n}"}
        return sorted(getattr(module, "__all__", None) or (n for n in vars(module) if n[0] != "_" and n not in inner))

    return names
