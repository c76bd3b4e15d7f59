"""Translates the jaxpr of one run into statements: operations by their rules, loops and branches into those of C."""

import contextlib
import copy
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from jaxroute.core import arithmetic
from jaxroute.core.batching import dependence
from jaxroute.core.batching.dependence import BARRIERS, CALLS, carry_dependence, is_key, which_depend
from jaxroute.kernels import ir, rules
from jaxroute.kernels.ir import Value, aval_of, dtype_of, mirrored, shape_of
from jaxroute.kernels.printer import FORMATS, Function
from jaxroute.kernels.rules import elementwise
from jaxroute.kernels.writer import Writer

_CALLS = {**CALLS, **dependence.OWN_DERIVATIVE, "core_call": "call_jaxpr"}
# Operations that return their operand.
_SAME = frozenset([*BARRIERS, "copy", "copy_p", "reshard", "stop_gradient", "random_wrap", "random_unwrap", "random_clone"])


class Emitter(Writer):
    """Writer that translates traced functions (jaxprs) into statements of C.

    Args:
      wide: whether several runs are simulated at once.
      fast: whether a GPU's library functions may replace the slower definitions in `core.arithmetic`, which give the same bits on every platform.

    Attributes:
      functions: C functions that the statements call, each before the functions that call it.
    """

    def __init__(self, wide: bool = False, fast: bool = False):
        super().__init__(wide)
        self.fast = fast
        self.functions: dict[Any, Function] = {}

    # Jaxprs

    def call(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """Writes C statements that compute a jaxpr with its constants (a `ClosedJaxpr`) of the arguments `args`, and returns its results."""
        if any(isinstance(const, Tracer) for const in closed.consts):
            raise ir.Unsupported("a function that closes over a traced value within a loop or a branch")
        consts = [self.constant(jax.random.key_data(const) if is_key(const) else const) for const in closed.consts]
        return self.replay(closed.jaxpr, consts, args)

    def replay(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """Writes C statements that compute a jaxpr of its constants `consts` and its arguments `args`, and returns its results."""
        env: dict[Any, Value] = {}
        last = _last_uses(jaxpr)

        def bind(variables: Sequence[Any], values: Sequence[Value]) -> None:
            for var, value in zip(variables, values, strict=True):
                assert value.shape == shape_of(var.aval), (value.shape, var.aval)
                env[var] = value
                _count_readers([value], int(var in last))

        def read(var: Any) -> Value:
            return self.constant(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else env[var]

        bind([*jaxpr.constvars, *jaxpr.invars], [*consts, *args])
        for number, eqn in enumerate(jaxpr.eqns):
            if not any(var in last for var in eqn.outvars):
                continue
            values = [read(v) for v in eqn.invars]
            _count_readers([env[v] for v in set(filter(_is_variable, eqn.invars)) if last[v] == number], -1)
            bind(eqn.outvars, self._equation(eqn, values))
        outs = [read(v) for v in jaxpr.outvars]
        _count_readers([env[v] for v in set(filter(_is_variable, jaxpr.outvars))], -1)
        return outs

    def _equation(self, eqn: Any, args: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in _CALLS:
            called = rules.CALLED_WIDE if self.wide else {}
            if known := called.get(eqn.params.get("name", "")):
                return [known(self, *args)]
            inner = eqn.params[_CALLS[name]]
            try:
                return self.call(inner, args) if hasattr(inner, "consts") else self.replay(inner, [], args)
            except ir.Unsupported as error:
                rules.raise_for_user(error, eqn.params.get("name", ""), inner)
                raise
        if name in _SAME:
            return args
        if name == "largest_over_runs":
            return [self._largest(args[0])]
        if name in ("scan", "cond", "while"):
            return getattr(self, f"_{name}")(eqn, args)
        if name == "custom_linear_solve":
            return self.call(eqn.params["jaxprs"].solve, dependence.solver_operands(eqn.params, args))
        single = name == "reduce_sum" and args[0].chosen is not None  # The sum has one term that is not zero.
        if not (single or (self.fast and name in FORMATS)) and (definition := arithmetic.definition(eqn)) is not None:
            return self._defined(eqn, definition, args)
        return rules.write(self, eqn, args)

    def _defined(self, eqn: Any, definition: ClosedJaxpr, args: list[Value]) -> list[Value]:
        """Writes the operation `eqn` by its definition: inline if that takes arrays, otherwise as a C function of numbers. Returns the results."""
        if any(v.aval.shape for v in definition.jaxpr.invars):
            return self.call(definition, args)

        def at(place: ir.Place) -> ir.Expr:
            numbers = [elementwise.element(x, place) for x in args]
            function = self._function(eqn, definition, any(one.varies for one in numbers))
            return ir.Expr("call", tuple(numbers), function.result.dtype, number=function.name)

        return [self.pointwise(*aval_of(eqn), at)]

    def _function(self, eqn: Any, definition: ClosedJaxpr, varies: bool) -> Function:
        """Returns the C function that computes an element of `eqn` by its definition. If `varies`, its numbers are vectors with an entry per run."""
        key = (eqn.primitive.name, str(eqn.params), str(definition.in_avals), varies)
        if key not in self.functions:
            inner = copy.copy(self)  # Shares tables and functions.
            inner.wide, inner.masks, inner.block, inner._groups, inner._building = varies, [], [], {}, None
            given = [inner.storage("x", v.aval.dtype, 0) for v in definition.jaxpr.invars]
            for one in given:
                one.writable = False
            (result,) = inner.call(definition, [inner.value_of(one, ()) for one in given])
            value = result.at(())
            inner.finish()
            self.functions[key] = Function(self.name(f"{eqn.primitive.name}_"), given, inner.block, value)
        return self.functions[key]

    # Loops and branches

    @contextlib.contextmanager
    def held(self, values: Sequence[Value]) -> Generator[None, None, None]:
        """Context manager inside which no statement that is written overwrites the memory of the arrays `values`."""
        _count_readers(values, 1)
        yield
        _count_readers(values, -1)

    def _which_vary(self, values: Sequence[Value]) -> list[bool]:
        return [any(storage.varying for storage in value.storages) for value in values]

    def _largest(self, value: Value) -> Value:
        if not self._which_vary([value])[0]:
            return value
        if value.shape or value.dtype != np.int32:
            raise ir.Unsupported(f"the largest over runs of {value.dtype}{list(value.shape)}")
        storage = self.array(value.dtype, (), varying=False)
        self.add(ir.Assign(ir.variable(storage), ir.apply("largest", value.at(()), self.meant(), dtype=value.dtype)))
        return self.value_of(storage, ())

    def carry_on(self, storages: Sequence[ir.Storage], values: Sequence[Value]) -> None:
        """Assigns `values`, the results of a step or branch, to `storages`. Values that would read a storage already changed are copied first."""
        others, ready = set(storages), list[Value]()
        for storage, value in zip(storages, values, strict=True):
            mixed = value.storage is not storage and bool(value.storages & others)
            ready.append(self.copied(value, storage.varying) if mixed else value)
        self.finish()
        for storage, value, made in zip(storages, ready, self.made_in(storages, ready), strict=True):
            if not made:
                self.write(storage, value)

    def repeat(
        self,
        statement: ir.Loop | ir.If,
        body: Callable[[list[Value]], list[Value]],
        start: Sequence[Value],
        varying: Sequence[bool] | None = None,
        test: Callable[[list[Value]], None] | None = None,
        mask: ir.Expr | None = None,
    ) -> list[Value]:
        """Writes a C loop that computes `carry = body(carry)`, or a C branch that computes it once; returns the final values.

        Args:
          statement: the loop or branch, with an empty body.
          body: function that writes one step and returns the new values.
          start: initial values.
          varying: for each value, whether it differs between the runs that are simulated at once; None means that all do.
          test: function that writes, before each step, statements that leave a finished loop ("break"); None if `statement` has an end condition.
          mask: condition under which a run takes a step, while other runs wait; None if all runs take the same steps.
        """
        storages: list[ir.Storage] = []
        for value, varies in zip(start, [True] * len(start) if varying is None else varying, strict=True):
            storage = value.storage
            if storage is not None and storage not in storages and self.may_take(value, varies):
                self.ready(value)
            else:
                storage = self.array(value.dtype, value.shape, varies)
                self.write(storage, value)
            storages.append(storage)
        shapes = [value.shape for value in start]
        self.finish()
        self.add(statement)
        with self.inside(statement.body):
            now = [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]
            if test is not None:
                with self.held(now):
                    test(now)
            with self.masked(mask) if mask is not None else contextlib.nullcontext():
                self.carry_on(storages, body(now))
                self.finish()
        return [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]

    def _scan(self, eqn: Any, args: list[Value]) -> list[Value]:
        inner, length = eqn.params["jaxpr"], eqn.params["length"]
        consts, carry, arrays = dependence.scan_parts(eqn.params, args)
        xs, num_carry = [self.stored(x) if x.known is None else x for x in arrays], len(carry)
        outs = [((length, *shape_of(v.aval)), dtype_of(v.aval)) for v in inner.jaxpr.outvars[num_carry:]]
        ys = [self.array(dtype, shape) if math.prod(shape) else None for shape, dtype in outs]
        loop, index = self.counting(length)
        step = mirrored(index, length) if eqn.params["reverse"] else index

        def body(now: list[Value]) -> list[Value]:
            new = self.call(inner, [*consts, *now, *(self.row(x, step) for x in xs)])
            for y, (shape, _), value in zip(ys, outs, new[num_carry:], strict=True):
                if y is not None:
                    self.write_part(y, shape, (step, *(0,) * len(value.shape)), value, (1, *value.shape))
            return new[:num_carry]

        before, own, after = dependence.scan_parts(eqn.params, self._which_vary(args))
        varying = carry_dependence(own, lambda now: which_depend(inner, [*before, *now, *after])[:num_carry])
        with self.held([*consts, *xs]):
            last = self.repeat(loop, body, carry, varying)
        whole = (self.nothing(*out) if y is None else self.value_of(y, out[0]) for y, out in zip(ys, outs, strict=True))
        return [*last, *whole]

    def _cond(self, eqn: Any, args: list[Value]) -> list[Value]:
        index, operands = args[0], args[1:]
        branches = eqn.params["branches"]
        last = len(branches) - 1
        if index.known is not None:
            return self.call(branches[min(max(int(index.known), 0), last)], operands)
        shapes = [(shape_of(v.aval), dtype_of(v.aval)) for v in eqn.outvars]
        which, (divergent, *flags) = index.at(()), self._which_vary(args)
        self.finish()
        varying = [divergent or any(own) for own in zip(*(which_depend(branch, flags) for branch in branches), strict=True)]
        taken: list[ir.Storage | None] = [None] * len(shapes)
        # An operand that a branch returns unchanged, and that no other value needs, is the storage of the result.
        for branch in branches:
            own = dict(zip(branch.jaxpr.invars, operands, strict=True))
            for place, var in enumerate(branch.jaxpr.outvars):
                operand = None if hasattr(var, "val") else own.get(var)
                if operand is not None and taken[place] is None and operand.storage not in taken:
                    taken[place] = operand.storage if self.may_take(operand, varying[place]) else None
        kinds = zip(taken, shapes, varying, strict=True)
        outs = [self.array(dtype, shape, varies) if own is None else own for own, (shape, dtype), varies in kinds]
        if index.dtype == np.bool_:
            tests = [~which, which]
        else:
            tests = [which <= 0, *(which.equals(n) for n in range(1, last)), which >= last]
        # If runs may take different branches, these are written one after the other; otherwise all runs take the same branch.
        masks = [self.local(self.masks[-1] & test if self.masks else test) for test in tests] if divergent else []
        block = self.block
        with self.held([value for value, varies in zip(operands, flags, strict=True) if divergent and not varies]):
            for number, branch in enumerate(branches):
                inner = block
                if divergent or number < last:
                    block.append(one := ir.If(ir.apply("any", masks[number]) if divergent else tests[number]))
                    inner, block = one.body, block if divergent else one.otherwise
                with self.inside(inner), self.masked(masks[number]) if divergent else contextlib.nullcontext():
                    self.carry_on(outs, self.call(branch, operands))
                    self.finish()
        return [self.value_of(out, shape) for out, (shape, _) in zip(outs, shapes, strict=True)]

    def _while(self, eqn: Any, args: list[Value]) -> list[Value]:
        cond, step = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        of_test, of_step, start = dependence.while_parts(eqn.params, args)
        test_flags, step_flags, flags = dependence.while_parts(eqn.params, self._which_vary(args))
        varying = carry_dependence(flags, lambda now: which_depend(step, [*step_flags, *now]))
        divergent = self.wide and which_depend(cond, [*test_flags, *varying])[0]
        going = self.local(self.meant()) if divergent else None  # Runs that continue.

        def test(now: list[Value]) -> None:
            goes_on = self.call(cond, [*of_test, *now])[0].at(())
            self.finish()
            if going is not None:
                self.add(ir.Assign(going, going & goes_on))
                goes_on = ir.apply("any", going)
            elif goes_on.varies:
                goes_on = ir.apply("first_lane", goes_on)
            self.add(ir.If(~goes_on, [ir.Call("break")]))

        varies = None if divergent else varying
        with self.held([*of_test, *of_step]):
            return self.repeat(ir.Loop(), lambda now: self.call(step, [*of_step, *now]), start, varies, test, going)


def _count_readers(values: Sequence[Value], more: int) -> None:
    for storage in (storage for value in values for storage in value.storages):
        storage.readers += more


def _is_variable(v: Any) -> bool:
    return not hasattr(v, "val")


def _last_uses(jaxpr: Any) -> dict[Any, int]:
    last = dict.fromkeys(filter(_is_variable, jaxpr.outvars), len(jaxpr.eqns))
    for number, eqn in reversed(list(enumerate(jaxpr.eqns))):
        if any(var in last for var in eqn.outvars):
            for var in filter(_is_variable, eqn.invars):
                last.setdefault(var, number)
    return last
