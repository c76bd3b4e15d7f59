"""The rules of operations: what each one of a traced function is in C."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxroute.engine.batching.dependence import is_key
from jaxroute.kernels.values import (
    Value,
)

Rule = Callable[..., list[Value]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Makes a function `(writer, eqn, *args) -> values` the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def aval_of(eqn: Any, place: int = 0) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a result's numbers."""
    aval = eqn.outvars[place].aval
    return ((*aval.shape, 2), np.dtype(np.uint32)) if is_key(aval) else (tuple(aval.shape), np.dtype(aval.dtype))


def kind_of(dtype: Any) -> str:
    """f: float32, i: int32 and shorter, u: uint32 and shorter, b: bool, d, l, m: the same of 64 bits."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return "b"
    return {"f": "fd", "i": "il", "u": "um"}[dtype.kind][dtype.itemsize == 8]


def mirrored(index: Any, size: int) -> Any:
    """The same place, counted from the end."""
    return size - 1 - index if isinstance(index, int) else f"({size - 1} - {index})"
