"""What each operation of a traced function is in C: the rules of all, by the names of operations."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxroute.engine.kernels.rules import elementwise, indexing, keys, linear, moving, reductions, sorting
from jaxroute.engine.kernels.rules.registry import RULES, rule
from jaxroute.engine.kernels.values import Unsupported, Value

if TYPE_CHECKING:
    from jaxroute.engine.kernels.emitter import Emitter

# Modules whose rules are registered where they are imported.
FAMILIES = (elementwise, keys, moving, reductions, sorting, indexing, linear)


def write(emitter: "Emitter", eqn: Any, args: list[Value]) -> list[Value]:
    """Writes an operation that is neither a loop nor a branch nor a call; its results."""
    name = eqn.primitive.name
    if name in elementwise.EXPRESSIONS:
        return elementwise.write(emitter, eqn, args)
    if name not in RULES:
        raise Unsupported(name)
    return RULES[name](emitter, eqn, *args)


@rule("custom_linear_solve")
def _custom_linear_solve(emitter: "Emitter", eqn: Any, *args: Value) -> list[Value]:
    """By the solver that it holds."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = args[first : first + lengths.solve]
    given = args[sum(lengths) :]
    return emitter.call(jaxprs.solve, [*consts, *given])


@rule("platform_index")
def _platform_index(emitter: "Emitter", eqn: Any, *_: Value) -> list[Value]:
    """The default of a choice by platform."""
    return [emitter.constant(np.int32(eqn.params["platforms"].index(None)))]
