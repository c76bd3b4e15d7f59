"""Data-flow analysis of a jaxpr: derives a property of each result, such as whether it differs between runs, from those of the arguments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

# Operations that call a jaxpr once, with the name of the parameter that contains the jaxpr.
CALLS = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr"}
# Operations that call a jaxpr, but have a separate derivative, with the name of the parameter that contains the jaxpr.
OWN_DERIVATIVE = {
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr",
}  # fmt: skip
# Operations that return their operands unchanged.
BARRIERS = ("optimization_barrier", "computed_once")

Fact = TypeVar("Fact")


class Flow(Generic[Fact]):
    """Base class of analyses that derive a fact about each value of a jaxpr, for example whether the value depends on a certain argument.

    An analysis enters calls and branches, and repeats loops until no fact changes. `nothing` is the fact about constants.
    """

    def __init__(self, nothing: Fact):
        self._nothing = nothing

    def operation(self, eqn: JaxprEqn, args: list[Fact]) -> list[Fact]:
        """Returns the facts about the results of the operation `eqn` (no call, loop or branch) from the facts `args` about its operands."""
        raise NotImplementedError

    def joined(self, facts: Sequence[Fact], deciding: Fact) -> Fact:
        """Returns the fact about a value that is one of several. `facts` are about these; `deciding` is about the condition that selects one."""
        raise NotImplementedError

    def row(self, fact: Fact) -> Fact:
        """Converts the fact about an array to that about a row which a scan reads, or that about a row to the stacked array; by default unchanged."""
        return fact

    def is_opaque(self, eqn: JaxprEqn) -> bool:
        """Whether the analysis treats `eqn`, which contains a jaxpr, as one simple operation (`operation`), without entering the jaxpr."""
        raise NotImplementedError

    def results(self, jaxpr: Any, args: Sequence[Fact]) -> list[Fact]:
        """Returns the facts about the results of a jaxpr (open or closed) from the facts `args` about its arguments."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        facts = dict(zip(jaxpr.invars, args, strict=True))

        def read(variables: Sequence[Any]) -> list[Fact]:
            return [self._nothing if isinstance(v, Literal) else facts.get(v, self._nothing) for v in variables]

        for eqn in jaxpr.eqns:
            facts.update(zip(eqn.outvars, self._equation(eqn, read(eqn.invars)), strict=True))
        return read(jaxpr.outvars)

    def _equation(self, eqn: JaxprEqn, args: list[Fact]) -> list[Fact]:
        name, params = eqn.primitive.name, eqn.params
        if name in BARRIERS:
            return args
        if self.is_opaque(eqn):
            return self.operation(eqn, args)
        if name in CALLS:
            return self.results(params[CALLS[name]], args)
        if name == "cond":
            several = zip(*(self.results(branch, args[1:]) for branch in params["branches"]), strict=True)
            return [self.joined(facts, args[0]) for facts in several]
        if name == "while":
            of_test, consts, start = while_parts(params, args)
            carry = self.carried(start, lambda now: self.results(params["body_jaxpr"], [*consts, *now]))
            test = self.results(params["cond_jaxpr"], [*of_test, *carry])[0]
            return [self.joined([one], test) for one in carry]
        if name == "scan":
            consts, start, arrays = scan_parts(params, args)
            inner, rows, number = params["jaxpr"], list(map(self.row, arrays)), len(start)
            carry = self.carried(start, lambda now: self.results(inner, [*consts, *now, *rows])[:number])
            return [*carry, *map(self.row, self.results(inner, [*consts, *carry, *rows])[number:])]
        return self.operation(eqn, args)

    def carried(self, start: Sequence[Fact], step: Callable[[list[Fact]], Sequence[Fact]]) -> list[Fact]:
        """Returns the facts about a loop's values after any number of iterations, from those at its `start`; `step` maps facts over one iteration."""
        now = list(start)
        while True:
            grown = [self.joined(pair, self._nothing) for pair in zip(now, step(now), strict=True)]
            if grown == now:
                return now
            now = grown


class _Dependence(Flow[bool]):
    def operation(self, eqn: JaxprEqn, args: list[bool]) -> list[bool]:
        # The maximum over runs is the same in all runs; it only bounds masked loops.
        return [any(args) and eqn.primitive.name != "largest_over_runs"] * len(eqn.outvars)

    def joined(self, facts: Sequence[bool], deciding: bool) -> bool:
        return deciding or any(facts)

    def is_opaque(self, eqn: JaxprEqn) -> bool:
        return eqn.primitive.name not in CALLS and handles_keys(eqn)


_DEPENDENCE = _Dependence(False)


def which_depend(closed: ClosedJaxpr, given: Sequence[bool]) -> list[bool]:
    """Returns for each result of the jaxpr `closed` whether it depends on any argument whose flag in `given` is True."""
    return _DEPENDENCE.results(closed, given)


def carry_dependence(given: Sequence[bool], step: Callable[[list[bool]], Sequence[bool]]) -> list[bool]:
    """Returns the flags of a loop's values after any number of iterations. `given` has their first flags; `step` maps flags over one iteration."""
    return _DEPENDENCE.carried(given, step)


def scan_parts(params: Mapping[str, Any], operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Divides `operands` of a scan with parameters `params`, or facts about them, into constants, carried values, and arrays read by rows."""
    if "num_carry" in params:
        first, second = params["num_consts"], params["num_carry"]
    else:  # Since jax 0.11.
        consts, carry, _ = params["ft_in"].unpack()
        first, second = len(list(consts.vals)), len(list(carry.vals))
    return list(operands[:first]), list(operands[first : first + second]), list(operands[first + second :])


def while_parts(params: Mapping[str, Any], operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Divides `operands` of a `while` with parameters `params`, or facts about them, into constants of condition and body, and carried values."""
    first, second = params["cond_nconsts"], params["body_nconsts"]
    return list(operands[:first]), list(operands[first : first + second]), list(operands[first + second :])


def solver_operands(params: Mapping[str, Any], operands: Sequence[Any]) -> list[Any]:
    """Selects the `operands` of a `custom_linear_solve` that its jaxpr `params["jaxprs"].solve` takes: its constants, then the right-hand sides."""
    lengths = params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    return [*operands[first : first + lengths.solve], *operands[sum(lengths) :]]


def switch(params: Mapping[str, Any], branches: Sequence[Callable[..., Any]], index: Any, *operands: Any) -> Any:
    """Runs one branch of a `cond` on `operands`: the one at `index` or, if `params` assigns branches to platforms, the one for this platform."""
    if (platforms := params.get("branches_platforms")) is None:
        return lax.switch(index, branches, *operands)
    named = {name: one for one, names in zip(branches, platforms, strict=True) for name in names or ("default",)}
    return lax.platform_dependent(*operands, **named)


def is_key(value: Any) -> bool:
    """Whether an array, or an array type, has typed random keys as elements."""
    return not isinstance(value.dtype, np.dtype) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def handles_keys(eqn: JaxprEqn) -> bool:
    """Whether the operation `eqn` reads or returns typed random keys."""
    return any(is_key(v.aval) for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, "dtype"))
