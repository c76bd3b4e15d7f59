"""A traced function of one run, written as C: its operations by their rules, its loops and branches as those of C."""

import contextlib
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxroute.engine.batching.dependence import BARRIERS, CALLS, is_key, scan_sizes
from jaxroute.engine.kernels import operations
from jaxroute.engine.kernels.values import Storage, Unsupported, Value, counting
from jaxroute.engine.kernels.writer import Writer

_MORE_CALLS = {
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
_CALLS = {**CALLS, **_MORE_CALLS}
# Operations that hand their operand on.
_SAME = frozenset([*BARRIERS, "copy", "copy_p", "stop_gradient", "largest_over_runs", "random_wrap", "random_unwrap"])


def shape_of(aval: Any) -> tuple[int, ...]:
    """Shape of a value's numbers: keys are two words."""
    return (*aval.shape, 2) if is_key(aval) else tuple(aval.shape)


def dtype_of(aval: Any) -> np.dtype:
    """Type of a value's numbers."""
    return np.dtype(np.uint32) if is_key(aval) else np.dtype(aval.dtype)


class Emitter(Writer):
    """Writes the C of traced functions, one after the other, into `lines`."""

    # Jaxprs

    def call(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        """The results of a closed jaxpr."""
        consts = [self._closed_over(c) for c in closed.consts]
        return self.replay(closed.jaxpr, consts, args)

    def _closed_over(self, const: Any) -> Value:
        if isinstance(const, Tracer):
            raise Unsupported("a function that closes over a traced value within a loop or a branch")
        return self.constant(jax.random.key_data(const) if is_key(const) else const)

    def replay(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        """Writes a jaxpr; values of its outputs."""
        env: dict[Any, Value] = {}
        last = _last_uses(jaxpr)

        def bind(var: Any, value: Value) -> None:
            env[var] = value
            for storage in value.storages:
                storage.readers += 1

        def release(var: Any) -> None:
            for storage in env[var].storages:
                storage.readers -= 1

        def read(var: Any) -> Value:
            return self.constant(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else env[var]

        for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True):
            bind(var, value)
            if var not in last:
                release(var)
        for number, eqn in enumerate(jaxpr.eqns):
            values = [read(v) for v in eqn.invars]
            for var in {v for v in eqn.invars if not hasattr(v, "val")}:
                if last.get(var) == number:
                    release(var)
            outs = self._equation(eqn, values)
            for var, value in zip(eqn.outvars, outs, strict=True):
                assert value.shape == shape_of(var.aval), (eqn.primitive.name, value.shape, var.aval)
                bind(var, value)
                if var not in last:
                    release(var)
        outs = [read(v) for v in jaxpr.outvars]
        for var in {v for v in jaxpr.outvars if not hasattr(v, "val")}:
            release(var)
        return outs

    def _equation(self, eqn: Any, args: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]]
            return self.call(inner, args) if hasattr(inner, "consts") else self.replay(inner, [], args)
        if name in _SAME:
            return args
        if name in ("scan", "cond", "while"):
            return getattr(self, f"_{name}")(eqn, args)
        if name == "custom_linear_solve":  # By the solver that it holds.
            lengths = eqn.params["const_lengths"]
            first = lengths.matvec + lengths.vecmat
            return self.call(eqn.params["jaxprs"].solve, [*args[first : first + lengths.solve], *args[sum(lengths) :]])
        return operations.write(self, eqn, args)

    # Loops and branches

    @contextlib.contextmanager
    def held(self, values: Sequence[Value]) -> Generator[None, None, None]:
        """Values that are needed again in the next step: nothing may be written over them."""
        storages = [s for value in values for s in value.storages]
        for storage in storages:
            storage.readers += 1
        yield
        for storage in storages:
            storage.readers -= 1

    def carried(self, values: Sequence[Value]) -> list[Storage]:
        """Storages of what a loop carries, with their first values: those that are free, or new ones."""
        taken: set[Storage] = set()
        storages: list[Storage] = []
        for value in values:
            storage = value.storage
            if (
                storage is not None
                and self.may_overwrite(value)
                and storage not in taken
                and bool(value.shape) == bool(storage.size)
            ):
                self.ready(value)
            else:
                storage = self.variable(value.dtype, value.size if value.shape else 0)
                self.write(storage, value)
            taken.add(storage)
            storages.append(storage)
        return storages

    def carry_on(self, storages: Sequence[Storage], values: Sequence[Value]) -> None:
        """At the end of a step: gives what is carried its new values, all at once."""
        others = set(storages)
        ready = []
        for storage, value in zip(storages, values, strict=True):
            mixed = value.storage is not storage and bool(value.storages & others)
            ready.append(self.copied(value) if mixed else value)
        for storage, value in zip(storages, ready, strict=True):
            self.write(storage, value)

    def repeat(self, head: str, body: Callable[[list[Value]], list[Value]], start: Sequence[Value]) -> list[Value]:
        """`carry = body(carry)` in a loop with this head; the last values.

        Args:
          head: of the loop, such as `for (...)`.
          body: writes one step.
          start: first values.
        """
        storages = self.carried(start)
        shapes = [value.shape for value in start]
        for storage in storages:
            storage.reads += 1
        with self.block(head):
            now = [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]
            self.carry_on(storages, body(now))
        return [self.value_of(storage, shape) for storage, shape in zip(storages, shapes, strict=True)]

    def _scan(self, eqn: Any, args: list[Value]) -> list[Value]:
        params = eqn.params
        inner, length = params["jaxpr"], params["length"]
        num_consts, num_carry = scan_sizes(params)
        consts, carry = args[:num_consts], args[num_consts : num_consts + num_carry]
        xs = [self.stored(x) if x.known is None else x for x in args[num_consts + num_carry :]]
        outs = [(shape_of(v.aval), dtype_of(v.aval)) for v in inner.jaxpr.outvars[num_carry:]]
        ys = [
            self.variable(dtype, length * math.prod(shape)) if math.prod(shape) * length else None for shape, dtype in outs
        ]
        t = self.name("i")
        step = f"({length - 1} - {t})" if params["reverse"] else t

        def body(now: list[Value]) -> list[Value]:
            rows = [self.row(x, step) for x in xs]
            new = self.call(inner, [*consts, *now, *rows])
            for y, (shape, _), value in zip(ys, outs, new[num_carry:], strict=True):
                if y is not None:
                    self.write_part(y, (length, *shape), (step, *(0,) * len(shape)), value, (1, *shape))
            return new[:num_carry]

        with self.held([*consts, *xs]):
            last = self.repeat(counting(t, length), body, carry)
        whole = [
            Value((length, *shape), dtype, lambda place: "0") if y is None else self.value_of(y, (length, *shape))
            for y, (shape, dtype) in zip(ys, outs, strict=True)
        ]
        return [*last, *whole]

    def _cond(self, eqn: Any, args: list[Value]) -> list[Value]:
        index, operands = args[0], args[1:]
        branches = eqn.params["branches"]
        if index.known is not None:
            return self.call(branches[min(max(int(index.known), 0), len(branches) - 1)], operands)
        shapes = [(shape_of(v.aval), dtype_of(v.aval)) for v in eqn.outvars]
        which = index.at(())
        self.finish()
        outs = self._handed_on(eqn, operands)
        for place, (shape, dtype) in enumerate(shapes):
            if outs[place] is None:
                outs[place] = self.variable(dtype, math.prod(shape) if shape else 0)
        for number, branch in enumerate(branches):
            if number == 0:
                test = f"!({which})" if index.dtype == np.bool_ else f"{which} <= 0" if len(branches) > 1 else "true"
                head = f"if ({test})"
            else:
                head = "else" if number == len(branches) - 1 else f"else if ({which} == {number})"
            with self.block(head):
                self.carry_on(outs, self.call(branch, operands))
        return [self.value_of(out, shape) for out, (shape, _) in zip(outs, shapes, strict=True)]

    def _handed_on(self, eqn: Any, operands: Sequence[Value]) -> list[Any]:
        """For each result of a choice the storage of an operand that some branch returns as it is, if nobody else needs that; else None."""
        outs: list[Any] = [None] * len(eqn.outvars)
        for branch in eqn.params["branches"]:
            inner = branch.jaxpr
            for place, var in enumerate(inner.outvars):
                if hasattr(var, "val") or var not in inner.invars or outs[place] is not None:
                    continue
                operand = operands[inner.invars.index(var)]
                if (
                    self.may_overwrite(operand)
                    and operand.storage not in outs
                    and bool(operand.shape) == bool(operand.storage.size)
                ):
                    outs[place] = operand.storage
                    operand.storage.reads += 1
        return outs

    def _while(self, eqn: Any, args: list[Value]) -> list[Value]:
        params = eqn.params
        num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts = args[:num_cond], args[num_cond : num_cond + num_body]

        def body(now: list[Value]) -> list[Value]:
            with self.held(now):
                goes_on = self.call(params["cond_jaxpr"], [*cond_consts, *now])[0]
                text = goes_on.at(())
                self.finish()
                self.line(f"if (!({text})) break;")
            return self.call(params["body_jaxpr"], [*body_consts, *now])

        with self.held([*cond_consts, *body_consts]):
            return self.repeat("for (;;)", body, args[num_cond + num_body :])


def _last_uses(jaxpr: Any) -> dict[Any, int]:
    """Number of the equation that uses each variable last; of outputs, one behind the last."""
    last = {}
    for number, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not hasattr(var, "val"):
                last[var] = number
    for var in jaxpr.outvars:
        if not hasattr(var, "val"):
            last[var] = len(jaxpr.eqns)
    return last
