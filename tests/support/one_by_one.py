"""A jaxpr computed one operation at a time, so that no compiler sees two of them: each is rounded once."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import xla
from jaxroute.core.functions import DEFINITIONS

_IEEE = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt, "square": np.square}


def evaluated(fn, *args):
    """The results of a function of arrays, sums and products in the order of the elements (more than 64 in blocks), functions by their definitions."""
    return _evaluate(jax.make_jaxpr(fn)(*args), args)


def _evaluate(closed, args):
    env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(var):
        return jnp.asarray(var.val, var.aval.dtype) if hasattr(var, "val") else env[var]

    for eqn in closed.jaxpr.eqns:
        env.update(zip(eqn.outvars, _results(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [np.asarray(read(v)) for v in closed.jaxpr.outvars]


def _together(step, terms, first):
    """One after the other; more than 64 by 64, their results likewise, and what is left."""
    if len(terms) <= 64:
        return functools.reduce(step, terms, first)
    whole = len(terms) // 64 * 64
    total = _together(step, [_together(step, terms[i : i + 64], first) for i in range(0, whole, 64)], first)
    return step(total, _together(step, terms[whole:], first)) if terms[whole:] else total


def _results(eqn, args):
    name = eqn.primitive.name
    if name in ("jit", "custom_jvp_call"):
        return _evaluate(eqn.params["jaxpr" if name == "jit" else "call_jaxpr"], args)
    if name == "scan":
        consts, count = eqn.params["num_consts"], eqn.params["num_carry"]
        carry, made = args[consts : consts + count], []
        for i in range(eqn.params["length"]):
            outs = _evaluate(eqn.params["jaxpr"], [*args[:consts], *carry, *(x[i] for x in args[consts + count :])])
            carry, _ = outs[:count], made.append(outs[count:])
        return [*carry, *(np.stack(each) for each in zip(*made, strict=True))]
    if name in DEFINITIONS:
        own = {key: eqn.params[key] for key in ("y",) if key in eqn.params}
        # For a single number it may have a branch.
        results = evaluated(functools.partial(DEFINITIONS[name], **own), *map(jnp.atleast_1d, args))
        return [jnp.reshape(result, args[0].shape) for result in results]
    floats = all(getattr(v.aval, "dtype", None) == jnp.float32 for v in eqn.invars)
    if floats and name in ("reduce_sum", "reduce_prod"):
        axes, shape = eqn.params["axes"], eqn.outvars[0].aval.shape
        step = jnp.add if name == "reduce_sum" else jnp.multiply
        terms = []
        for place in itertools.product(*(range(args[0].shape[axis]) for axis in axes)):
            where = dict(zip(axes, place, strict=True))
            terms.append(args[0][tuple(where.get(axis, slice(None)) for axis in range(args[0].ndim))])
        return [_together(step, terms, jnp.full(shape, 0.0 if name == "reduce_sum" else 1.0, jnp.float32))]
    if floats and name == "dot_general":
        ((a_axis,), (b_axis,)), _ = eqn.params["dimension_numbers"]
        total = jnp.zeros(eqn.outvars[0].aval.shape, jnp.float32)
        for k in range(args[0].shape[a_axis]):
            a, b = jnp.take(args[0], k, a_axis), jnp.take(args[1], k, b_axis)
            product = a[(..., *[None] * b.ndim)] * b
            total = total + product
        return [total]
    if name in ("reduce_max", "reduce_min") and floats:
        return [out + jnp.float32(0) for out in xla.bind(eqn, args)]
    if name in ("max", "min") and floats:
        a, b = args
        return [jnp.where((a != a) | (a > b if name == "max" else a < b), a, b)]
    if floats and name in _IEEE:  # XLA makes a product of a quotient, even of one alone, if the divisor is broadcast.
        with np.errstate(all="ignore"):
            return [jnp.asarray(_IEEE[name](*map(np.asarray, args)))]
    return xla.bind(eqn, args)
