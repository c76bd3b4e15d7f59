"""Registry of the rules of operations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxroute.core.batching.dependence import is_key
from jaxroute.kernels.values import Value

Rule = Callable[..., list[Value]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function `(writer, eqn, *args) -> values` as the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def shape_of(aval: Any) -> tuple[int, ...]:
    """Returns the shape of a value's numbers; keys are two words."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def dtype_of(aval: Any) -> np.dtype:
    """Returns the type of a value's numbers."""
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


def aval_of(eqn: Any, place: int = 0) -> tuple[tuple[int, ...], np.dtype]:
    """Returns shape and type of a result's numbers."""
    aval = eqn.outvars[place].aval
    return (shape_of(aval), dtype_of(aval)) if is_key(aval) else (tuple(aval.shape), aval.dtype)
