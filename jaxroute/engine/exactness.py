"""Operations of a simulation on which CPUs and back ends may round differently."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn

from jaxroute.core import arithmetic
from jaxroute.engine.components import Variant
from jaxroute.engine.rounds import Record, one_run, traced_once

# Operations on float32 that are exact, or are computed by `arithmetic`, or hold others.
# fmt: off
_EXACT = frozenset([
    *("abs", "add", "add_any", "argmax", "argmin", "bitcast_convert_type", "broadcast_in_dim", "ceil", "checkpoint", "clamp", "closed_call"),
    *("computed_once", "concatenate", "cond", "convert_element_type", "copy", "copy_p", "cummax", "cummin", "cumprod", "cumsum"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "div", "dot_general", "dynamic_slice", "dynamic_update_slice"),
    *("expand_dims", "first_best", "floor", "gather", "iota", "is_finite", "jit", "max", "min", "mul", "neg", "nextafter"),
    *("optimization_barrier", "pad", "pjit", "reduce_max", "reduce_min", "reduce_precision", "reduce_prod", "reduce_sum", "rem", "remat2"),
    *("reshape", "rev", "round", "scan", "scatter", "scatter-add", "scatter-max", "scatter-min", "scatter-mul", "scatter-sub", "select_n"),
    *("sign", "slice", "sort", "split", "sqrt", "square", "squeeze", "stack", "stop_gradient", "sub", "top_k", "transpose", "while"),
])
# fmt: on


def inexact_by_policy(variants: Sequence[Variant], records: Mapping[str, Record]) -> dict[str, list[str]]:
    """Returns the operations of each policy that are not exact; policies without such operations are left out."""
    found: dict[str, list[str]] = {}
    for one in variants:
        if operations := inexact_operations(*one.example, one.spec.horizon or 0, records[one.policy]):
            found[one.policy] = sorted({*found.get(one.policy, []), *operations})
    return found


def inexact_operations(env: Any, policy: Any, horizon: int, record: Record) -> list[str]:
    """Operations of a run on which CPUs and back ends may round differently, in words; none for nearly all policies.

    Args:
      env: environment.
      policy: policy.
      horizon: counted rounds.
      record: what is written.
    """
    names = ("instance", "env_init", "env", "policy_init", "plan", "act", "update")

    def whole(env: Any, policy: Any, streams: dict[str, jax.Array], t: jax.Array) -> Any:
        run = one_run(env, policy, streams, horizon, record)
        own = jax.tree.map(lambda x: x[..., 0], (run.instance, run.words))
        states = run.start(*own)
        if run.stage_length:
            states = run.plan(*own, states, t)
        states, flows = run.round(*own, states, t)
        return flows, run.read(*own, states, t)

    def trace(env: Any, policy: Any) -> list[str]:
        words, t = jax.ShapeDtypeStruct((2, 1), jnp.uint32), jax.ShapeDtypeStruct((), jnp.int32)
        return sorted(set(_inexact(jax.make_jaxpr(whole)(env, policy, dict.fromkeys(names, words), t).jaxpr)))

    return traced_once(("inexact", horizon, record), trace, env, policy)


def _inexact(jaxpr: Jaxpr) -> Generator[str, None, None]:
    for eqn in jaxpr.eqns:
        if any(getattr(v.aval, "dtype", None) == jnp.float32 for v in eqn.outvars) and (why := _reason(eqn)):
            yield why
        for inner in _held(list(eqn.params.values())):
            yield from _inexact(inner)


def _held(values: Sequence[Any]) -> Generator[Jaxpr, None, None]:
    """The jaxprs among parameters of an operation."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _held(list(value))
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)


def _reason(eqn: JaxprEqn) -> str:
    name = eqn.primitive.name
    if name == "dot_general" and (terms := arithmetic.terms_of(eqn)) > arithmetic.MOST_TERMS:
        return f"products of matrices with sums of {terms:,} terms"
    return (
        ""
        if name in _EXACT
        or arithmetic.definition(eqn) is not None
        or name in ("rounded_product", "rounded_quotient", "defined")
        else name
    )
