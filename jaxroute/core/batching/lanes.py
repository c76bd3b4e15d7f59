"""Batching of functions over runs, with the run axis last.

`lanes(fn)` computes what `jax.vmap(fn, in_axes=-1, out_axes=-1)` computes, but the run axis stays last in every operation. `vmap` moves it to the
front wherever a mapped and an unmapped array meet. That costs a transposition each time and leaves a short axis (models, slots) innermost, where a
compiler for CPUs cannot vectorise. With thousands of runs on the last axis, each elementwise operation and each small reduction is one pass over
contiguous runs. So policies and environments are written for one run and still execute like hand-batched code.

The function is traced once without the run axis. The jaxpr is then evaluated for all runs by rules for the primitives that occur in step functions.
A primitive without a rule goes through `jax.vmap` with the run axis last, so every function works.
"""

import collections
import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jaxroute.core import arithmetic, rounding, xla
from jaxroute.core.batching import dependence, indexing
from jaxroute.core.batching.dependence import BARRIERS, CALLS, carry_dependence, is_key, which_depend
from jaxroute.core.batching.indexing import Tables, Value, enter, leave, spread
from jaxroute.core.rounding import Trait, trait_of
from jaxroute.core.xla import bind

# Operations on operands of equal shape, or scalars; the run axis is an additional trailing axis.
# fmt: off
_ELEMENTWISE = frozenset([
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e", "bitcast_convert_type", "cbrt", "ceil", "clamp", "clz", "convert_element_type", "copy", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma",
    "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "log2", "logistic", "lt", "max", "min", "mul", "ne", "neg",
    "nextafter", "not", "one_minus_square", "or", "polynomial", "population_count", "pow", "reduce_precision", "rem", "round", "rsqrt", "select_n",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh", "threefry_2x32", "xor",
])
# Operations whose parameters count axes from the front, so that a trailing run axis does not change them.
_FRONT_AXES = frozenset([
    "argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "first_best", "reduce_and", "reduce_max",
    "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor", "rev", "split", "squeeze", "stack",
])
# fmt: on
# Functions with a custom derivative, and the name of the parameter that contains their jaxpr.
_OWN_DERIVATIVE = {**dependence.OWN_DERIVATIVE, "custom_linear_solve": "jaxprs"}
# Functions that sum numbers of which at most one is not zero, so that the sum is exact in any order.
_PICKS = ("pick",)
_any_order: ContextVar[bool] = ContextVar("any_order", default=False)
# Number of runs for which a rare branch is computed at a time.
_GATHERED = 32


def lanes(fn: Callable[..., Any], size: int, fixed: int = 0) -> "Lanes":
    """Returns a function that computes `fn` for `size` runs, the last axis of each array in its arguments and results. It traces `fn` once.

    All runs share the last `fixed` arguments, and whatever `fn` closes over. Typed key arrays are mapped over their last (only) axis.
    """
    return Lanes(fn, size, fixed)


def exactly(fn: Callable[..., Any]) -> "Lanes":
    """Returns a function like `fn`, without a run axis, in exact arithmetic: each operation is rounded once, in a fixed order. Traces `fn` once."""
    return Lanes(fn, None, 0)


class Lanes:
    """Function of one run that `lanes` batches over runs, or that `exactly` computes in exact arithmetic; called like the original function."""

    def __init__(self, fn: Callable[..., Any], size: int | None, fixed: int):
        self._fn, self._size, self._fixed = fn, size, fixed
        self._traced: dict[Any, tuple[ClosedJaxpr, Any]] = {}

    def __call__(self, *args: Any) -> Any:
        mapped, fixed = self._parted(args)
        closed, out_shape = self._trace(args)
        values = [*map(enter, jax.tree.leaves(mapped)), *(Value(leaf, False) for leaf in jax.tree.leaves(fixed))]
        outs = _replay(closed.jaxpr, closed.consts, values, self._size or 1)
        leaves = [v.array if self._size is None else leave(spread(v, self._size)) for v in outs]
        return jax.tree.unflatten(jax.tree.structure(out_shape), leaves)

    def shapes(self, *args: Any) -> Any:
        """Returns the shapes and types of the results for these arguments without computing them, as `jax.eval_shape` does."""
        _, out_shape = self._trace(args)
        return jax.tree.map(lambda out: jax.ShapeDtypeStruct((*out.shape, self._size), out.dtype), out_shape)

    def _parted(self, args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        number = 0 if self._size is None else len(args) - self._fixed
        return args[:number], args[number:]

    def _trace(self, args: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
        """Traces the function for one run, whose arguments lack the run axis of `args`. Returns its jaxpr and the shapes of its results."""
        mapped, fixed = (jax.tree.flatten(part) for part in self._parted(args))
        shapes = [jax.ShapeDtypeStruct(x.shape[:-1], x.dtype) for x in mapped[0]]
        shapes += [jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in fixed[0]]
        key = (mapped[1], fixed[1], *((x.shape, x.dtype) for x in shapes))
        if key not in self._traced:

            def flat(*leaves: Any) -> Any:
                own, shared = leaves[: len(mapped[0])], leaves[len(mapped[0]) :]
                return self._fn(*jax.tree.unflatten(mapped[1], own), *jax.tree.unflatten(fixed[1], shared))

            self._traced[key] = jax.make_jaxpr(flat, return_shape=True)(*shapes)
        return self._traced[key]


def _replay(jaxpr: Jaxpr, consts: Sequence[Any], args: list[Value], size: int, tables: Tables | None = None) -> list[Value]:
    """Evaluates one run's jaxpr on `args` for `size` runs, which share `consts`. `tables` records reads of long arrays (None: no reads so far)."""
    tables = Tables() if tables is None else tables
    env: dict[Any, Value] = {}
    fixed = Trait.CONSTANT | Trait.EVEN
    uses = collections.Counter(v for eqn in jaxpr.eqns for v in eqn.invars if not hasattr(v, "val"))
    uses.update(2 * [v for v in jaxpr.outvars if not hasattr(v, "val")])

    def read(var: Any) -> Value:
        return Value(jnp.asarray(var.val, var.aval.dtype), False, trait=fixed) if hasattr(var, "val") else env[var]

    known = [Value(c, False, trait=Trait.NONE if isinstance(c, Tracer) else fixed) for c in consts]
    env.update(zip(jaxpr.constvars, known, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        outs = _apply(eqn, values, size, tables)
        if eqn.primitive.name not in _INSIDE:
            trait = trait_of(eqn, [v.trait for v in values], eqn.primitive.name in _ELEMENTWISE)
            outs = [out._replace(trait=trait) for out in outs]
        # XLA regards a definition as cheap and would recompute it in each consumer.
        if arithmetic.is_defined(eqn) and (not outs[0].mapped or uses[eqn.outvars[0]] > 1):
            outs = [out._replace(array=xla.compute_once(out.array)) for out in outs]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(eqn: JaxprEqn, values: list[Value], size: int, tables: Tables) -> list[Value]:
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        inner = params[CALLS[name]]
        with rounding.within(_any_order, _any_order.get() or params.get("name") in _PICKS):
            return _replay(inner.jaxpr, inner.consts, values, size, tables)
    if name in _OWN_DERIVATIVE and rounding.is_exact():
        return _own_derivative(eqn, values, size)
    whole = None if _any_order.get() or not rounding.is_exact() else arithmetic.whole_definition(eqn)
    if whole is not None:
        return _in_place_of(eqn, whole, range(len(values)), values, size)
    if name in _LOOPS:
        return _LOOPS[name](eqn, values, size)
    if not any(v.mapped for v in values):
        arrays = [v.array for v in values]
        outs = _exact(eqn, arrays, [v.trait for v in values], (False,) * len(arrays))
        return [Value(out, False) for out in (bind(eqn, arrays) if outs is None else outs)]
    if name == "random_wrap":
        return [Value(values[0].array, True, True)]
    if name == "random_unwrap":
        return [Value(values[0].array, True)]
    if name in BARRIERS:
        return [Value(out, v.mapped, v.is_key) for out, v in zip(bind(eqn, [v.array for v in values]), values, strict=True)]
    if name == "largest_over_runs":  # Batching over settings then takes the maximum over settings.
        return [Value(bind(eqn, [jnp.max(values[0].array, axis=-1)])[0], False)]
    if dependence.handles_keys(eqn):
        return _fallback(eqn, values, size)
    if name in indexing.WRITES:
        values = [tables.write(values[0]), *values[1:]]
        rule = indexing.WRITES[name](eqn, values, size)
    elif name in indexing.READS:
        rule = indexing.READS[name](eqn, values, size)
        rule = rule and [tables.read(values[0], out) for out in rule]
    else:
        rule = _rule(name, eqn, values, size)
    return _fallback(eqn, values, size) if rule is None else [Value(out, True) for out in rule]


def _exact(eqn: JaxprEqn, arrays: list[Any], traits: list[Trait], runs: tuple[bool, ...]) -> list[Any] | None:
    """Computes `eqn` on `arrays` exactly; None if XLA's result will do. `traits`: what XLA knows of each array; `runs`: whether it has a run axis."""
    name, params = eqn.primitive.name, eqn.params
    if not rounding.is_exact() or getattr(eqn.outvars[0].aval, "dtype", None) != jnp.float32:
        return None
    if name in ("reduce_sum", "reduce_prod"):
        if _any_order.get():
            return None
        return [arithmetic.reduced(name, arrays[0], params["axes"])]
    if name in ("reduce_max", "reduce_min"):  # A zero result becomes +0, whatever the order.
        return [bind(eqn, arrays)[0] - rounding.unknown_zero()]
    if name in ("cumsum", "cumprod"):
        return [arithmetic.cumulative(name, arrays[0], params["axis"], params["reverse"])]
    if name == "dot_general":
        a, b = arrays
        few = arithmetic.terms_of(eqn) <= arithmetic.MOST_TERMS and {a.dtype, b.dtype} == {jnp.dtype(jnp.float32)}
        return [arithmetic.dot(a, b, params["dimension_numbers"], (runs[0], runs[1]))] if few else None
    return arithmetic.elementwise(eqn, arrays, traits)


def _rule(name: str, eqn: JaxprEqn, values: list[Value], size: int) -> list[Any] | None:
    """Computes `eqn`, an operation called `name`, on `values` for `R = size` runs. Returns results `[..., R]`, or None if it needs `jax.vmap`."""
    params, shape = eqn.params, getattr(eqn.outvars[0].aval, "shape", ())
    rank = len(shape)
    arrays = [v.array for v in values]
    if name in _ELEMENTWISE:
        if name == "bitcast_convert_type" and getattr(eqn.invars[0].aval, "shape", ()) != shape:
            return None
        wide = _wide(values, shape, size)
        whole = (*shape, size)
        traits = [v.trait if jnp.shape(v.array) == whole else v.trait | Trait.EVEN for v in values]
        outs = _exact(eqn, wide, traits, ())
        return bind(eqn, wide) if outs is None else outs
    if name == "child_words":  # Two words of a key for each element.
        return bind(eqn, _wide(values, shape[1:], size))
    if name in _FRONT_AXES:
        arrays = [spread(v, size).array for v in values]
        outs = _exact(eqn, arrays, [], ())
        return bind(eqn, arrays) if outs is None else outs
    if name == "dot_general":
        return _exact(eqn, arrays, [], tuple(v.mapped for v in values))
    if name == "broadcast_in_dim" and len(arrays) == 1:
        dims = (*params["broadcast_dimensions"], rank)
        return [lax.broadcast_in_dim(arrays[0], (*shape, size), dims)]
    if name == "reshape" and len(arrays) == 1:
        return [lax.reshape(arrays[0], (*params["new_sizes"], size))]
    if name == "expand_dims":
        return [lax.expand_dims(arrays[0], params["dimensions"])]
    if name == "transpose":
        return [lax.transpose(arrays[0], (*params["permutation"], rank))]
    if name == "slice":
        strides = params["strides"] or (1,) * rank
        return [lax.slice(arrays[0], (*params["start_indices"], 0), (*params["limit_indices"], size), (*strides, 1))]
    if name == "concatenate":
        wide = [spread(v, size).array for v in values]
        return [lax.concatenate(wide, params["dimension"])]
    if name == "pad":
        if values[1].mapped:
            return None
        return [lax.pad(spread(values[0], size).array, arrays[1], (*params["padding_config"], (0, 0, 0)))]
    return None


def _wide(values: list[Value], shape: tuple[int, ...], size: int) -> list[Any]:
    """Broadcasts the operands `values` of an elementwise operation to `[*shape, size]`, for `size` runs; `shape` is that of the result in one run."""
    full, rank = (*shape, size), len(shape)
    return [
        v.array if v.mapped and jnp.ndim(v.array) == rank + 1
        # Broadcasts a mapped scalar [R], or an unmapped operand [...], to [..., R].
        else lax.broadcast_in_dim(v.array, full, (rank,) if v.mapped else tuple(range(jnp.ndim(v.array))))
        for v in values
    ]  # fmt: skip


def _fallback(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    arrays = [leave(v) if v.mapped else v.array for v in values]
    axes = [(jnp.ndim(a) - 1) if v.mapped else None for a, v in zip(arrays, values, strict=True)]
    outs = jax.vmap(lambda *a: bind(eqn, a), in_axes=axes, out_axes=-1, axis_size=size)(*arrays)
    return [enter(out) for out in outs]


def _own_derivative(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    inner, places = eqn.params[_OWN_DERIVATIVE[eqn.primitive.name]], list(range(len(values)))
    if eqn.primitive.name == "custom_linear_solve":  # Replays the solver among its parameters.
        inner, places = inner.solve, dependence.solver_operands(eqn.params, places)
    inner = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, [])
    return _in_place_of(eqn, inner, places, values, size)


def _in_place_of(eqn: JaxprEqn, inner: ClosedJaxpr, places: Sequence[int], values: list[Value], size: int) -> list[Value]:
    """Computes `eqn` for `size` runs by the equivalent jaxpr `inner`, with operands `values[i]`, i in `places`. Derivatives are those of `eqn`."""
    mapped = any(v.mapped for v in values)

    def again(arrays: Sequence[Any]) -> list[Value]:
        return [v._replace(array=a) for v, a in zip(values, arrays, strict=True)]

    def original(*arrays: Any) -> list[Any]:
        return [v.array for v in _fallback(eqn, again(arrays), size)] if mapped else bind(eqn, arrays)

    @jax.custom_jvp
    def call(*arrays: Any) -> list[Any]:
        given = again(arrays)
        outs = _replay(inner.jaxpr, inner.consts, [given[i] for i in places], size)
        return [(spread(v, size) if mapped else v).array for v in outs]

    call.defjvp(lambda primals, tangents: (call(*primals), jax.jvp(original, primals, tangents)[1]))
    return [Value(out, mapped) for out in call(*(v.array for v in values))]


def _values(arrays: Sequence[Any], mapped: Sequence[bool], variables: Sequence[Any]) -> list[Value]:
    return [Value(a, m, m and is_key(v.aval)) for a, m, v in zip(arrays, mapped, variables, strict=True)]


def _unchanged(now: list[Value], start: Sequence[Value], variables: Sequence[Any], body: ClosedJaxpr) -> list[Value]:
    """Returns the values `now` of a loop. Those that `body` returns unchanged (its inputs are `variables`) get their `Trait` from `start`."""
    same = [v is out for v, out in zip(variables, body.jaxpr.outvars, strict=False)][: len(start)]
    kept = [v._replace(trait=old.trait) if is_same else v for v, old, is_same in zip(now, start, same, strict=False)]
    return [*kept, *now[len(start) :]]


def _scan(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    params = eqn.params
    consts, carry, xs = dependence.scan_parts(params, values)
    inner, num_carry = params["jaxpr"], len(carry)
    # The scanned axis is the first and the run axis the last, so they do not interfere.
    before, own, behind = ([v.mapped for v in part] for part in (consts, carry, xs))
    mapped = carry_dependence(own, lambda now: which_depend(inner, [*before, *now, *behind])[:num_carry])
    carry = [spread(v, size) if m else v for v, m in zip(carry, mapped, strict=True)]
    variables = inner.jaxpr.invars[len(consts) :]
    flags, ys_mapped = [*mapped, *behind], [False] * (len(eqn.outvars) - num_carry)

    def body(c: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        args = _unchanged(_values([*c, *x], flags, variables), carry, variables, inner)
        outs = _replay(inner.jaxpr, inner.consts, [*consts, *args], size)
        new = [(spread(v, size) if m else v).array for v, m in zip(outs[:num_carry], mapped, strict=True)]
        ys_mapped[:] = [v.mapped for v in outs[num_carry:]]
        return new, [v.array for v in outs[num_carry:]]

    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    final, ys = lax.scan(body, [v.array for v in carry], [v.array for v in xs], **options)
    return _values([*final, *ys], [*mapped, *ys_mapped], eqn.outvars)


def _cond(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    index, *operands = values
    if index.mapped:
        return _rarely(eqn, values, size)
    masks = (which_depend(b, [v.mapped for v in operands]) for b in eqn.params["branches"])
    mapped = list(map(any, zip(*masks, strict=True)))

    def branch(inner: ClosedJaxpr) -> Callable[..., list[Any]]:
        def call(*arrays: Any) -> list[Any]:
            args = [v._replace(array=a) for a, v in zip(arrays, operands, strict=True)]
            outs = _replay(inner.jaxpr, inner.consts, args, size)
            return [(spread(v, size) if m else v).array for v, m in zip(outs, mapped, strict=True)]

        return call

    outs = dependence.switch(eqn.params, list(map(branch, eqn.params["branches"])), *(v.array for v in values))
    return _values(outs, mapped, eqn.outvars)


def _rarely(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    """Computes `eqn`, a `cond` on `values` whose condition differs between `size` runs, fast on a CPU if few runs take the expensive branch.

    For `lax.cond(rare, expensive, cheap, x)` it computes the cheap branch for all runs and the expensive one only for runs that need it, gathered in
    groups of fixed size, so that a run's arithmetic does not depend on other runs. If all runs need it, this is a few times slower than computing
    both branches for all runs. In derivatives, and on other devices, where loops of unknown length are slow, both branches are computed for all runs.
    """
    index, *operands = values
    branches = eqn.params["branches"]

    def evaluate(inner: ClosedJaxpr, arrays: Sequence[Any], width: int) -> list[Any]:
        args = _values(arrays, [v.mapped for v in operands], inner.jaxpr.invars)
        return [spread(v, width).array for v in _replay(inner.jaxpr, inner.consts, args, width)]

    def select(index: Any, *arrays: Any) -> list[Any]:
        def chosen(first: Any, *others: Any) -> Any:
            return functools.reduce(lambda a, b: jnp.where(index == b[0], b[1], a), enumerate(others, 1), first)

        return list(map(chosen, *(evaluate(inner, arrays, size) for inner in branches)))

    def gather(index: Any, *arrays: Any) -> list[Any]:
        takes = index == 1
        place = jnp.cumsum(takes.astype(jnp.int32)) - 1
        number = place[-1] + 1
        # Indices of the runs that take the branch, in order, padded with `size`.
        beyond = jnp.full(size + _GATHERED, size, jnp.int32)
        runs = beyond.at[jnp.where(takes, place, size + _GATHERED)].set(jnp.arange(size, dtype=jnp.int32), mode="drop")

        def some(carry: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
            start, outs = carry
            chosen = lax.dynamic_slice(runs, (start,), (_GATHERED,))
            part = [jnp.take(a, chosen, -1, mode="clip") if v.mapped else a for a, v in zip(arrays, operands, strict=True)]
            new = evaluate(branches[1], part, _GATHERED)
            outs = [o.at[..., chosen].set(n, mode="drop") for o, n in zip(outs, new, strict=True)]
            return start + _GATHERED, outs

        first = evaluate(branches[0], arrays, size)
        return lax.while_loop(lambda carry: carry[0] < number, some, (jnp.int32(0), first))[1]

    if len(branches) != 2:
        return _values(select(index.array, *(v.array for v in operands)), [True] * len(eqn.outvars), eqn.outvars)

    @jax.custom_jvp
    def choose(index: Any, *arrays: Any) -> Any:
        return lax.platform_dependent(index, *arrays, cpu=gather, default=select)

    choose.defjvp(lambda primals, tangents: jax.jvp(select, primals, tangents))
    return _values(choose(index.array, *(v.array for v in operands)), [True] * len(eqn.outvars), eqn.outvars)


def _while(eqn: JaxprEqn, values: list[Value], size: int) -> list[Value]:
    """Computes the `while` loop `eqn` on `values` for `size` runs. A run's values no longer change once its condition is False."""
    params = eqn.params
    cond_consts, body_consts, carry = dependence.while_parts(params, values)
    inner = params["body_jaxpr"]
    variables = inner.jaxpr.invars[len(body_consts) :]
    before = [v.mapped for v in body_consts]
    mapped = carry_dependence([v.mapped for v in carry], lambda now: which_depend(inner, before + now))
    divergent = which_depend(params["cond_jaxpr"], [v.mapped for v in cond_consts] + mapped)[0]
    if divergent:
        mapped = [True] * len(mapped)

    def goes_on(c: Sequence[Any]) -> Any:
        args = cond_consts + _unchanged(_values(c, mapped, variables), carry, variables, inner)
        return _replay(params["cond_jaxpr"].jaxpr, params["cond_jaxpr"].consts, args, size)[0].array

    def step(c: Sequence[Any]) -> list[Any]:
        args = body_consts + _unchanged(_values(c, mapped, variables), carry, variables, inner)
        outs = _replay(inner.jaxpr, inner.consts, args, size)
        return [(spread(v, size) if m else v).array for v, m in zip(outs, mapped, strict=True)]

    def masked(state: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        live, old = state
        new = [jnp.where(live, b, a) for a, b in zip(old, step(old), strict=True)]
        return live & goes_on(new), new

    carry = [spread(v, size) if m else v for v, m in zip(carry, mapped, strict=True)]
    start = [v.array for v in carry]
    if not divergent:
        return _values(lax.while_loop(goes_on, step, start), mapped, eqn.outvars)
    last = lax.while_loop(lambda state: jnp.any(state[0]), masked, (goes_on(start), start))[1]
    return _values(last, mapped, eqn.outvars)


_LOOPS = {"scan": _scan, "cond": _cond, "while": _while}
# Operations that are evaluated by their jaxpr, which determines the traits of the results.
_INSIDE = frozenset([*CALLS, *_OWN_DERIVATIVE, *_LOOPS])
