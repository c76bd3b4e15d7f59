"""Computes in double precision although the code of policies and environments names float32.

If `jax_enable_x64` is set, their methods are traced in 32 bits, and the traced operations are evaluated in 64. Random bits do not change.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn

from jaxroute.core.batching import dependence
from jaxroute.core.batching.dependence import BARRIERS, CALLS, is_key, scan_parts, while_parts
from jaxroute.core.rounding import within
from jaxroute.core.xla import bind

_SCATTERS: dict[str, Callable[..., Any]] = {
    f"scatter{joint}{name}": getattr(lax, f"scatter_{name}") for name in ("add", "mul", "min", "max") for joint in "-_"
}
_SCATTERS["scatter"] = lax.scatter
_AS_WRITTEN = ContextVar("as_written", default=False)


def in_64_bits() -> bool:
    """Whether jax computes in double precision (`jax_enable_x64`)."""
    return bool(jax.config.read("jax_enable_x64"))


def as_written() -> AbstractContextManager[None]:
    """Context manager within which `widened` changes nothing. Derivatives need it, because `widened` would lose custom derivative rules."""
    return within(_AS_WRITTEN, True)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of pytrees compute in float64 if `jax_enable_x64` is set. The function must not close over traced values."""
    if not in_64_bits() or _AS_WRITTEN.get():
        return function

    def wide(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        leaves = [leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf) for leaf in leaves]
        narrow = [jax.ShapeDtypeStruct(leaf.shape, _narrow(leaf.dtype)) for leaf in leaves]
        with jax.enable_x64(False):
            closed, out = jax.make_jaxpr(lambda *a: function(*jax.tree.unflatten(structure, a)), return_shape=True)(*narrow)
        return jax.tree.unflatten(
            jax.tree.structure(out), _replay(closed.jaxpr, closed.consts, [_widen(leaf) for leaf in leaves])
        )

    return wide


def _narrow(dtype: Any) -> Any:
    shorter = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32}
    return shorter.get(getattr(dtype, "name", ""), dtype)


def _wide(dtype: Any) -> Any:
    return jnp.dtype(jnp.float64) if dtype == jnp.float32 else dtype


def _widen(leaf: Any) -> Any:
    """Converts an array to the types with which rounds are computed: floats to float64, integers to 32 bits; random keys are returned unchanged."""
    if is_key(leaf):
        return leaf
    return lax.convert_element_type(leaf, _wide(_narrow(leaf.dtype)))


def _replay(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_widen, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(var: Any) -> Any:
        return _widen(jnp.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else env[var]

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _apply(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _called(closed: Any) -> Callable[..., list[Any]]:
    return lambda *args: _replay(getattr(closed, "jaxpr", closed), getattr(closed, "consts", []), args)


def _apply(eqn: JaxprEqn, args: list[Any]) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    if called := (CALLS | dependence.OWN_DERIVATIVE).get(name):
        return _called(params[called])(*args)
    if name in BARRIERS:
        return bind(eqn, args)
    if name in _LOOPS:
        return _LOOPS[name](params, args)
    if name == "bitcast_convert_type":  # The bits are those of float32.
        narrow = [lax.convert_element_type(a, jnp.float32) if a.dtype == jnp.float64 else a for a in args]
        return [_widen(out) for out in bind(eqn, narrow)]
    if name == "reduce_precision" and (params["exponent_bits"], params["mantissa_bits"]) == (8, 23):
        return args
    if name in _SCATTERS:
        kept = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return [_SCATTERS[name](*args, **{key: params[key] for key in kept})]
    if name == "custom_linear_solve":
        return _called(params["jaxprs"].solve)(*dependence.solver_operands(params, args))
    types = {
        key: _wide(params[key]) for key in ("new_dtype", "dtype", "preferred_element_type") if params.get(key) is not None
    }
    return bind(eqn, args, **types)


def _scan(params: Any, args: list[Any]) -> list[Any]:
    step, (consts, start, xs) = _called(params["jaxpr"]), scan_parts(params, args)

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = step(*consts, *carry, *x)
        return outs[: len(start)], outs[len(start) :]

    options = {key: params[key] for key in ("length", "reverse", "unroll")}
    final, ys = lax.scan(body, start, xs, **options)
    return [*final, *ys]


def _while(params: Any, args: list[Any]) -> list[Any]:
    for_cond, for_body, carry = while_parts(params, args)
    goes_on, step = _called(params["cond_jaxpr"]), _called(params["body_jaxpr"])
    return lax.while_loop(lambda c: goes_on(*for_cond, *c)[0], lambda c: step(*for_body, *c), carry)


def _cond(params: Any, args: list[Any]) -> list[Any]:
    return dependence.switch(params, list(map(_called, params["branches"])), *args)


_LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
