"""Which results of a traced function depend on which of its arguments: a walk over the flow of data in its jaxpr."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

# Operations that hold a jaxpr which is called once, and the parameter that is this jaxpr.
CALLS = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr"}
# Operations that hand each operand on as it is.
BARRIERS = ("optimization_barrier", "computed_once")


def which_depend(closed: ClosedJaxpr, given: Sequence[bool]) -> list[bool]:
    """Which results of a jaxpr depend on the given arguments.

    Args:
      closed: the jaxpr.
      given: for each argument, whether it is asked about.

    Returns:
      For each result, whether it depends on one of them.
    """
    depends: dict[Var, bool] = dict(zip(closed.jaxpr.invars, given, strict=True))

    def flags(variables: Sequence[Any]) -> list[bool]:
        return [not isinstance(v, Literal) and depends.get(v, False) for v in variables]

    for eqn in closed.jaxpr.eqns:
        depends.update(zip(eqn.outvars, _which_of(eqn, flags(eqn.invars)), strict=True))
    return flags(closed.jaxpr.outvars)


def carry_dependence(given: Sequence[bool], step: Callable[[list[bool]], Sequence[bool]]) -> list[bool]:
    """Which carried values of a loop depend on something, found by iterating until nothing changes.

    Args:
      given: whether each carried value depends on it before the first step.
      step: whether each does after a step, from whether each did before.
    """
    now = list(given)
    while True:
        grown = [a or b for a, b in zip(now, step(now), strict=True)]
        if grown == now:
            return now
        now = grown


def scan_sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many constants and carried values a scan has; since jax 0.11 its parameters hold them as trees."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts.vals)), len(list(carry.vals))


def bind(eqn: JaxprEqn, arrays: Sequence[Any], **others: Any) -> list[Any]:
    """The results of an operation on other operands, and with other parameters where some are given."""
    bound = eqn.primitive.get_bind_params(eqn.params)  # a pair in jax 0.9, the parameters alone since 0.10
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    outs = eqn.primitive.bind(*functions, *arrays, **{**params, **others})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def is_key(value: Any) -> bool:
    """Whether an array or its type is one of typed keys."""
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def handles_keys(eqn: JaxprEqn) -> bool:
    """Whether an operation takes or makes typed keys."""
    return any(is_key(v.aval) for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, "dtype"))


def _which_of(eqn: JaxprEqn, given: list[bool]) -> list[bool]:
    """Which results of one operation depend on the given operands."""
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        return which_depend(params[CALLS[name]], given)
    if name in BARRIERS:
        return given
    if name == "largest_over_runs":  # The same in all runs; it only bounds loops over what is masked.
        return [False]
    if handles_keys(eqn):
        return [any(given)] * len(eqn.outvars)
    if name == "cond" and not given[0]:
        return [any(flags) for flags in zip(*(which_depend(b, given[1:]) for b in params["branches"]), strict=True)]
    if name == "scan":
        num_consts, num_carry = scan_sizes(params)
        consts, carry, scanned = (
            given[:num_consts],
            given[num_consts : num_consts + num_carry],
            given[num_consts + num_carry :],
        )

        def step(now: list[bool]) -> list[bool]:
            return which_depend(params["jaxpr"], [*consts, *now, *scanned])

        final = carry_dependence(carry, lambda now: step(now)[:num_carry])
        return final + step(final)[num_carry:]
    return [any(given)] * len(eqn.outvars)
