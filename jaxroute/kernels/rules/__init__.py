"""Rules: functions that translate an operation of a jaxpr to C. Each module has the rules of similar operations."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.kernels import ir
from jaxroute.kernels.ir import Value
from jaxroute.kernels.rules import elementwise, reductions
from jaxroute.kernels.rules import moving as moving  # It registers its rules.
from jaxroute.kernels.rules.elementwise import RULES, rule
from jaxroute.kernels.writer import Writer

# Jitted functions that the emitter recognises by name if several runs are simulated at once, and the rules that replace them.
CALLED_WIDE = {"has_nan": reductions.has_nan}

_JAX = os.path.dirname(jax.__file__)


def raise_for_user(error: ir.Unsupported, name: str, called: Any) -> None:
    """Raises an `Unsupported` that names the function `name`, whose jaxpr `called` caused `error`. Does nothing if it is no function of JAX's own."""
    debug = getattr(getattr(called, "jaxpr", called), "debug_info", None)
    name = name.removeprefix("_")
    module = next((one for one in (jax.random, jnp.linalg, jnp.fft, jnp) if hasattr(one, name)), None)
    if module is None or not str(getattr(debug, "func_filename", "")).startswith(_JAX):
        return
    cause = error.__cause__ or error
    if module is jax.random and hasattr(draws, name):
        raise ir.Unsupported(f"jax.random.{name}; draws.{name} has a kernel") from cause
    raise ir.Unsupported(f"{module.__name__}.{name}" + (f": {cause}" if " " in str(cause) else "")) from cause


def write(writer: Writer, eqn: Any, args: list[Value]) -> list[Value]:
    """Writes C statements for `eqn`, an operation on `args` other than a loop, a branch or a call. Returns its results."""
    name = eqn.primitive.name
    if name in elementwise.NAMES:
        return elementwise.write(writer, eqn, args)
    if name not in RULES:
        raise ir.Unsupported(f"jax.lax.{name}" if hasattr(jax.lax, name) else name)
    return RULES[name](writer, eqn, *args)


@rule("platform_index")
def _platform_index(writer: Writer, eqn: Any, *_: Value) -> list[Value]:
    return [writer.constant(np.int32(eqn.params["platforms"].index(None)))]
