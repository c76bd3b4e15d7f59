"""Listing of the public names of a package."""

import sys
from collections.abc import Callable
from types import ModuleType


def public_names(package: str) -> Callable[[], list[str]]:
    """Returns a `__dir__` function for a module. It lists `__all__` or else the public names, without modules and what other packages define."""

    def names() -> list[str]:
        found = vars(sys.modules[package])
        own = (n for n, v in found.items() if getattr(v, "__module__", package).startswith("jaxroute"))
        kept = (n for n in own if n[0] != "_" and n != "public_names" and not isinstance(found[n], ModuleType))
        return sorted(found.get("__all__") or kept)

    return names
