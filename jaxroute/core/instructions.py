"""Digests of functions by their instructions."""

import dis
import functools
import hashlib
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

# Instructions without effect.
_PADDING = frozenset({"RESUME", "NOP", "CACHE", "EXTENDED_ARG", "NOT_TAKEN"})


def plain_constant(value: Any) -> Any:
    """Converts a constant to a value whose `repr` is the same in every process."""
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        return (
            str(array.dtype),
            array.shape,
            hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest(),
        )
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (tuple, list)):
        return [plain_constant(v) for v in value]
    if isinstance(value, Mapping):
        return [(str(k), plain_constant(v)) for k, v in value.items()]
    return value


def short_digest(value: Any) -> str:
    """Returns a digest of a value from `plain_constant`, or of a structure of them."""
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()


@functools.lru_cache(maxsize=8192)
def digest_of_code(code: types.CodeType) -> str:
    """Returns a digest of the instructions, with local variables by number, jumps by the number of their target, and constants by value."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in _PADDING]
    places = {one.offset: number for number, one in enumerate(instructions)}
    offsets = sorted(places)
    parts: list[Any] = [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags & 0x0C]
    for one in instructions:
        if one.opcode in dis.hasconst or one.opname == "KW_NAMES":
            constant = one.argval
            parts.append(
                (one.opname, digest_of_code(constant) if isinstance(constant, types.CodeType) else plain_constant(constant))
            )
        elif one.opcode in dis.hasname:
            parts.append((one.opname, one.argval))
        elif one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            # The target may be padding; the instruction behind it counts.
            behind = next((o for o in offsets if o >= one.argval), -1)
            parts.append((one.opname, places.get(behind, -1)))
        else:
            parts.append((one.opname, one.arg))
    return short_digest(parts)
