"""Descriptions of environments, policies and other settings as plain JSON, and digests of a function's instructions."""

import dataclasses
import dis
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from jax import Array

from jaxroute.core.checks import show


def digest_of_setting(description: Any) -> str:
    """Returns a digest that identifies an environment or policy by its description (see `describe`)."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


# Types that are left out of a description: the device uses float32 and int32 for all of them.
_USUAL = ("float32", "float64", "int32", "int64", "uint32", "bool")


@functools.singledispatch
def describe(value: Any) -> Any:
    """Describes `value`, such as a policy or its field, as plain JSON: classes and fields with all numbers; arrays of over 32 elements as a hash."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"type": type(value).__qualname__, **{k: describe(getattr(value, k)) for k in cast(Any, value)._fields}}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic, Array)):
        array = np.asarray(value)
        if array.size <= 32 and str(array.dtype) in _USUAL and all(array.shape):
            return array.tolist()
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if isinstance(value, range):
        return repr(value)
    if callable(value):
        return _describe_function(value)
    fields = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)}
    fields |= getattr(value, "__dict__", {})
    if fields:  # The object's repr may omit the fields or contain its address.
        return {"type": type(value).__qualname__, **{name: describe(one) for name, one in fields.items()}}
    return repr(value)


def _describe_function(function: Any) -> Any:
    if isinstance(function, functools.partial):
        parts = {"arguments": describe(function.args), "keywords": describe(function.keywords)}
        return {"partial": _describe_function(function.func), **parts}
    if hasattr(function, "__wrapped__"):  # A compiled or decorated function.
        return {"wrapped": _describe_function(function.__wrapped__)}
    if inspect.ismethod(function):
        return {"method": _describe_function(function.__func__), "of": describe(function.__self__)}
    code = getattr(function, "__code__", None)
    if code is None and hasattr(function, "__qualname__"):  # A class, or a function written in C.
        return f"{function.__module__}.{function.__qualname__}"
    if code is None:
        attributes = {k: describe(v) for k, v in getattr(function, "__dict__", {}).items()}
        return {"type": type(function).__qualname__, **attributes}
    name = f"{function.__module__}.{function.__qualname__}"
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    inside += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    made_with = [name if thing is function else describe(thing) for thing in inside]
    if code.co_name == "<lambda>":  # All lambdas of one scope have the same name.
        name = f"{name} {digest_of_code(code)}"
    return {"function": name, **({"made_with": made_with} if made_with else {})}


def first_difference(stored: Any, current: Any, where: str = "") -> str:
    """Describes the first difference between two JSON values, of a stored result and of this run; "" if there is none. `where` is their path."""
    if isinstance(stored, dict) and isinstance(current, dict):
        for key in [*stored, *(k for k in current if k not in stored)]:
            place = f"{where}.{key}" if where else key
            if key not in stored or key not in current:
                return f"{place} is only in {'the store' if key in stored else 'this run'}"
            found = first_difference(stored[key], current[key], place)
            if found:
                return found
        return ""
    if isinstance(stored, list) and isinstance(current, list) and len(stored) == len(current):
        found = (first_difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(stored, current, strict=True)))
        return next(filter(None, found), "")
    return "" if json.dumps(stored) == json.dumps(current) else f"{where} is {show(stored)} there and {show(current)} here"


# Instructions without effect, which differ between versions of Python.
_PADDING = frozenset({"RESUME", "NOP", "CACHE", "EXTENDED_ARG", "NOT_TAKEN"})


def plain_constant(value: Any) -> Any:
    """Converts a constant to a value whose `repr` is the same in every process: sets are sorted, arrays replaced by a hash."""
    if isinstance(value, (np.ndarray, np.generic, Array)):
        array = np.asarray(value)
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()
        return str(array.dtype), array.shape, digest
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (tuple, list)):
        return [plain_constant(v) for v in value]
    if isinstance(value, Mapping):
        return [(str(k), plain_constant(v)) for k, v in value.items()]
    return value


def short_digest(value: Any) -> str:
    """Returns a digest, twelve hexadecimal digits, of a value with a stable `repr`; `plain_constant` converts constants to such values."""
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()


@functools.lru_cache(maxsize=8192)
def digest_of_code(code: types.CodeType) -> str:
    """Returns a digest of the instructions in a function's `code`, with local variables and jump targets given by index, constants by value."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in _PADDING]
    places = {one.offset: number for number, one in enumerate(instructions)}
    offsets = sorted(places)
    parts: list[Any] = [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags & 0x0C]
    for one in instructions:
        if one.opcode in dis.hasconst or one.opname == "KW_NAMES":
            is_code = isinstance(one.argval, types.CodeType)
            parts.append((one.opname, digest_of_code(one.argval) if is_code else plain_constant(one.argval)))
        elif one.opcode in dis.hasname:
            parts.append((one.opname, one.argval))
        elif one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            # If the target is padding, the next instruction after it counts.
            behind = next((o for o in offsets if o >= one.argval), -1)
            parts.append((one.opname, places.get(behind, -1)))
        else:
            parts.append((one.opname, one.arg))
    return short_digest(parts)
