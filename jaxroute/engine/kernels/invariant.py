"""What all runs share in every round is computed once, before: operations of a function on nothing but what it closes over."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from jaxroute.engine.batching.dependence import CALLS, bind

# Fewer operations than these are done in every round.
_FEWEST = 40


def with_invariants(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function, which closes over results of its operations on what it closes over, in place of these operations."""
    if _number(closed.jaxpr, _traced(closed)) < _FEWEST:
        return closed
    flat = _inlined(closed)
    fixed = _traced(flat)
    values = dict(zip(flat.jaxpr.constvars, flat.consts, strict=True))
    always = set(flat.jaxpr.constvars)  # What does not depend on the arguments.
    rest = []
    for eqn in flat.jaxpr.eqns:
        own = _variables(eqn.invars)
        if all(var in always for var in own) and not eqn.effects:
            always.update(eqn.outvars)
            outs = bind(eqn, [v.val if hasattr(v, "val") else values[v] for v in eqn.invars])
            values.update(zip(eqn.outvars, outs, strict=True))
            if any(var in fixed for var in own):
                fixed.update(eqn.outvars)
                continue
        rest.append(eqn)
    made = {var for eqn in rest for var in eqn.outvars}
    needed = {v for vs in (*(eqn.invars for eqn in rest), flat.jaxpr.outvars) for v in _variables(vs)}
    more = [var for var in values if var in needed and var not in made]
    return ClosedJaxpr(flat.jaxpr.replace(constvars=more, eqns=rest), [values[var] for var in more])


def _variables(some: Sequence[Any]) -> list[Any]:
    return [v for v in some if not hasattr(v, "val")]


def _traced(closed: ClosedJaxpr) -> set[Any]:
    """Variables of what is not known yet, which does not depend on the arguments."""
    return {var for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True) if isinstance(const, Tracer)}


def _number(jaxpr: Any, fixed: set[Any]) -> int:
    """Number of operations on nothing but these, literals, and constants."""
    always, count = {*jaxpr.constvars, *fixed}, 0
    fixed = set(fixed)
    for eqn in jaxpr.eqns:
        own = _variables(eqn.invars)
        if any(var in fixed for var in own) and all(var in always for var in own):
            fixed.update(eqn.outvars)
            always.update(eqn.outvars)
            inner = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
            several = eqn.primitive.name in ("scan", "while", "cond")
            count += len(inner.jaxpr.eqns) if inner is not None else _FEWEST if several else 1
        elif not own or all(var in always for var in own):
            always.update(eqn.outvars)
        elif eqn.primitive.name in CALLS:
            inner = eqn.params[CALLS[eqn.primitive.name]].jaxpr
            pairs = zip(inner.invars, eqn.invars, strict=True)
            given = {var for var, outer in pairs if not hasattr(outer, "val") and outer in fixed}
            count += _number(inner, given)
    return count


def _inlined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function without calls of others."""

    def play(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        for eqn in jaxpr.eqns:
            given = [v.val if hasattr(v, "val") else env[v] for v in eqn.invars]
            inner = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
            outs = bind(eqn, given) if inner is None else play(inner.jaxpr, inner.consts, given)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [v.val if hasattr(v, "val") else env[v] for v in jaxpr.outvars]

    return jax.make_jaxpr(lambda *args: play(closed.jaxpr, closed.consts, args))(*closed.in_avals)
