"""Digests of the code that can influence a result, one for each function or constant that policies, environments, samplers or probes use.

A digest covers the instructions that Python runs, not the text: comments, formatting, docstrings and names of local variables do not count.
The search follows the methods of a class and of its bases, and the global functions and constants that they name. It stops at libraries:
modules in `site-packages` (unless the class itself is there) and Python's own.
"""

import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jax import Array

from jaxroute.core.description import describe, digest_of_code, plain_constant, short_digest

# Entries of a class that Python or a decorator adds, and methods that only validate.
_GIVEN = frozenset(
    {"__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__", "__match_args__", "__slots__"}
)
_CHECKS = frozenset({"check", "check_spec"})
_CHECKING = "jaxroute.core.checks"
_LIBRARIES = frozenset({*sys.stdlib_module_names, *sys.builtin_module_names, ""})
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def code_of(values: Iterable[Any]) -> dict[str, str]:
    """Returns a digest, by name, of each function and constant that the objects `values` may use, including fields, closures and defaults."""
    roots = list(values)
    found = _Search({"jaxroute", *map(_home, roots)})
    for value in roots:
        found.value(value)
    return dict(sorted(found.digests.items()))


def changes(stored: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Returns the names of functions and constants whose digests in `stored` and `here` differ, then the names that only one of them has."""
    both = [name for name in stored if name in here and stored[name] != here[name]]
    return both + [name for name in (*stored, *here) if (name in stored) != (name in here)]


def python() -> str:
    """Returns the running Python version, such as "3.12". Digests of different versions cannot be compared, because the instructions differ."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


class _Search:
    """Search for all functions and constants that an object's code may use; the attribute `digests` has the digest of each one by its name."""

    def __init__(self, homes: set[str]) -> None:
        """Prepares a search. `homes` are the top-level packages of the objects at which it begins; it enters no other installed library."""
        self.digests: dict[str, str] = {}
        self._homes = homes
        self._seen: dict[int, Any] = {}  # Visited objects by id, kept alive so that their ids are not reused.

    def value(self, value: Any) -> None:
        """Adds the digests that belong to `value`: a function's code, closure and defaults, or any other object's fields and its class's methods."""
        if isinstance(value, (*_PLAIN, np.ndarray, np.generic, Array, types.ModuleType)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, functools.partial):
            self._all([value.func, *value.args, *value.keywords.values()])
        elif isinstance(value, Mapping):
            self._all(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            self._all(value)
            if hasattr(value, "_fields"):
                self._class(type(value))
        elif isinstance(value, type):
            self._class(value)
        elif inspect.ismethod(value):
            self._all([value.__func__, value.__self__])
        elif inspect.isfunction(value):
            self._function(value)
        elif hasattr(value, "__wrapped__"):
            self.value(value.__wrapped__)
        elif callable(value) or dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
            self._class(type(value))
            if not _is_foreign(type(value).__module__, self._homes):
                self._all(vars(value).values() if hasattr(value, "__dict__") else ())

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.value(value)

    def _class(self, cls: type) -> None:
        for one in cls.__mro__:
            if _is_foreign(one.__module__, self._homes):
                continue
            fields = getattr(one, "__dataclass_fields__", None) or getattr(one, "_fields", ())
            for name, entry in vars(one).items():
                if name in _CHECKS:
                    continue
                place = f"{one.__module__}.{one.__qualname__}.{name}"
                if inspect.isfunction(inner := _function_in(entry)):
                    self._function(inner)
                # The values of fields are settings, which `describe` covers.
                if name not in _GIVEN and name not in fields and not name.startswith(("__", "_flax")):
                    self._constant(place, entry)

    def _function(self, function: Any) -> None:
        function = inspect.unwrap(function)
        if not inspect.isfunction(function):
            return self.value(function)
        code, module = function.__code__, function.__module__ or ""
        # Dataclasses compile their methods from "<string>".
        if module == _CHECKING or _is_foreign(module, self._homes) or code.co_filename == "<string>":
            return None
        name = f"{module}.{function.__qualname__}"
        known = self.digests.get(name)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        digest = short_digest([digest_of_code(code), [plain_constant(v) for v in defaults if _is_constant(v)]])
        if known == digest and id(function) in self._seen:
            return None
        self._seen[id(function)] = function
        self.digests[name] = digest if known in (None, digest) else short_digest([known, digest])
        self._all(defaults)
        self._all(_contents_of(function.__closure__ or ()))
        names = set(_names_in(code))
        for used in sorted(names & function.__globals__.keys()):
            self._used(f"{module}.{used}", function.__globals__[used], names)
        return None

    def _used(self, place: str, value: Any, names: set[str], through: tuple[str, ...] = ()) -> None:
        """Adds the digests of `value`, a global object that a function uses. Its dotted name is `place` ("package.module.name").

        Of a module, only attributes in `names`, all names in the function's code, are added. A module in `through` is being searched, and is skipped.
        """
        if isinstance(value, types.ModuleType):
            if not _is_foreign(value.__name__, self._homes) and value.__name__ not in through:
                for name in sorted(n for n in names & vars(value).keys() if not n.startswith("__")):
                    self._used(f"{value.__name__}.{name}", vars(value)[name], names, (*through, value.__name__))
        elif _is_constant(value):
            self._constant(place, value)
        else:
            self.value(value)
            if isinstance(value, functools.partial) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
                self.digests[place] = short_digest(describe(value))
            elif inside := _constants_in(value):
                self.digests[place] = short_digest(plain_constant(inside))

    def _constant(self, place: str, value: Any) -> None:
        if _is_constant(value):
            self.digests[place] = short_digest(plain_constant(value))


def _home(value: Any) -> str:
    while isinstance(value, functools.partial) or hasattr(value, "__wrapped__"):
        value = value.func if isinstance(value, functools.partial) else value.__wrapped__
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    return (getattr(named, "__module__", None) or "").partition(".")[0]


def _is_foreign(module: str | None, homes: set[str]) -> bool:
    top = (module or "").partition(".")[0]
    if top in homes or top == "__main__":
        return False
    return top in _LIBRARIES or _lies_in_a_library(top)


@functools.cache
def _lies_in_a_library(top: str) -> bool:
    module = sys.modules.get(top)
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any("site-packages" in place or "dist-packages" in place for place in places)


def _function_in(entry: Any) -> Any:
    """Returns the plain function behind `entry`, an attribute of a class (method, property, class method, cached function); None if there is none."""
    for name in ("__func__", "fget", "fset", "func", "__wrapped__"):
        inner = getattr(entry, name, None) if not isinstance(entry, type) else None
        if callable(inner):
            return inspect.unwrap(inner)
    return inspect.unwrap(entry) if inspect.isfunction(entry) else None


def _contents_of(cells: Iterable[Any]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # An empty cell.
            continue


def _is_constant(value: Any) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_is_constant, value))
    if isinstance(value, Mapping):
        return all(map(_is_constant, value.values()))
    return isinstance(value, (*_PLAIN, np.ndarray, np.generic, Array))


def _constants_in(value: Any) -> dict[str, Any]:
    """Returns constants by name: those in a function's closure (by number), or in the fields of an object of a user's class; {} for other values."""
    if inspect.isfunction(value):
        found = dict(enumerate(_contents_of(value.__closure__ or ())))
    elif isinstance(value, type) or (type(value).__module__ or "").partition(".")[0] == "jaxroute":
        found = {}
    else:
        found = vars(value) if hasattr(value, "__dict__") and not callable(value) else {}
    return {str(name): one for name, one in sorted(found.items(), key=str) if _is_constant(one)}


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
