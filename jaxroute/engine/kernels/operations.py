"""What each operation of a traced function is in C: the rules of all, by the names of operations."""

from typing import Any

import numpy as np

from jaxroute.engine.kernels.rules import elementwise, indexing, keys, linear, moving, reductions, sorting
from jaxroute.engine.kernels.rules.registry import RULES, rule
from jaxroute.engine.kernels.values import Unsupported, Value
from jaxroute.engine.kernels.writer import Writer

# Modules whose rules are registered where they are imported.
FAMILIES = (elementwise, keys, moving, reductions, sorting, indexing, linear)


# Functions that are called by their names, and have loops of their own in place of what they are written in; and where several runs are played
# at once.
CALLED = {"outer_sums": linear.outer_sums}
CALLED_WIDE = CALLED | {"has_nan": reductions.has_nan}


def write(writer: Writer, eqn: Any, args: list[Value]) -> list[Value]:
    """Writes an operation that is neither a loop nor a branch nor a call; its results."""
    name = eqn.primitive.name
    if name in elementwise.EXPRESSIONS:
        return elementwise.write(writer, eqn, args)
    if name not in RULES:
        raise Unsupported(name)
    return RULES[name](writer, eqn, *args)


@rule("platform_index")
def _platform_index(writer: Writer, eqn: Any, *_: Value) -> list[Value]:
    """The default of a choice by platform."""
    return [writer.constant(np.int32(eqn.params["platforms"].index(None)))]
