"""Which arrays of the states have the numbers of a run side by side, where several runs are played at once.

Most arrays have those of all runs side by side, number by number. One of which each run reads and writes a row of its own would then be
read from and written to a line of memory for each number and each run.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxroute.engine.batching.dependence import BARRIERS, CALLS, is_key, scan_sizes
from jaxroute.kernels.operations import CALLED_WIDE
from jaxroute.kernels.values import is_row

# Rows of fewer numbers are few lines of memory in any case.
_SHORT_ROW = 32
_TYPES = ("float32", "int32", "int16", "int8")


@dataclasses.dataclass(frozen=True)
class _Known:
    """What is known of a value: whether it differs between runs, and which array of the states it is, if it is one."""

    varies: bool
    leaf: int | None = None


_SHARED = _Known(False)


def by_rows(closed: Any, given: Sequence[bool], leaves: Sequence[int | None]) -> set[int]:
    """The arrays of which a function uses rows only, or single numbers, and a row at another place in each run.

    Args:
      closed: the function, a closed jaxpr.
      given: whether each of its arguments differs between runs.
      leaves: number of the array that each argument is, None for others.
    """
    may = [n if _has_long_rows(v.aval) else None for v, n in zip(closed.jaxpr.invars, leaves, strict=True)]
    if not any(n is not None for n in may):
        return set()
    uses = _Uses()
    uses.of(closed.jaxpr, [_Known(varies, n) for varies, n in zip(given, may, strict=True)])
    return uses.rows - uses.others


def _has_long_rows(aval: Any) -> bool:
    long = aval.ndim > 1 and aval.shape[0] > 1 and math.prod(aval.shape[1:]) >= _SHORT_ROW
    return long and not is_key(aval) and np.dtype(aval.dtype).name in _TYPES


class _Uses:
    """Follows arrays through a jaxpr. rows: those with a row at a place of each run. others: those that are used in another way."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.others: set[int] = set()

    def of(self, jaxpr: Any, args: Sequence[_Known]) -> list[_Known]:
        """What is known of the results of a jaxpr."""
        known = dict(zip(jaxpr.invars, args, strict=True))

        def read(var: Any) -> _Known:
            return _SHARED if hasattr(var, "val") else known.get(var, _SHARED)

        for eqn in jaxpr.eqns:
            known.update(zip(eqn.outvars, self._equation(eqn, [read(v) for v in eqn.invars]), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _equation(self, eqn: Any, args: list[_Known]) -> list[_Known]:
        name, params = eqn.primitive.name, eqn.params
        if name in BARRIERS:
            return args
        if name in CALLS and params.get("name", "") not in CALLED_WIDE:
            inner = params[CALLS[name]]
            return self.of(getattr(inner, "jaxpr", inner), args)
        if name == "cond":
            return self._cond(params, args)
        if name == "while":
            return self._while(params, args)
        if name == "scan":
            return self._scan(params, args)
        varies = any(arg.varies for arg in args) and name != "largest_over_runs"
        if name == "dynamic_slice":
            self._part(args[0], eqn.invars[0].aval, params["slice_sizes"], args[1:])
            self._used(args[1:])
        elif name == "dynamic_update_slice":
            self._part(args[0], eqn.invars[0].aval, eqn.invars[1].aval.shape, args[2:])
            self._used(args[1:])
            return [_Known(varies, args[0].leaf)]
        elif params.get("name", "") != "has_nan":
            self._used(args)
        return [_Known(varies)] * len(eqn.outvars)

    def _part(self, array: _Known, aval: Any, sizes: Sequence[int], starts: Sequence[_Known]) -> None:
        """A part of an array is read or written."""
        if array.leaf is None:
            return
        if is_row(aval.shape, sizes):
            self.rows |= {array.leaf} if starts[0].varies else set()
        elif math.prod(sizes) > 1:
            self.others.add(array.leaf)

    def _used(self, args: Sequence[_Known]) -> None:
        self.others |= {arg.leaf for arg in args if arg.leaf is not None}

    def _carried(self, step: Any, start: Sequence[_Known]) -> list[_Known]:
        """What is known of carried values behind a loop."""
        now = list(start)
        while True:
            after = step(now)
            for before, arg in zip(now, after, strict=True):
                if before.leaf != arg.leaf:
                    self._used([before, arg])
            grown = [_Known(b.varies or a.varies, b.leaf) for b, a in zip(now, after, strict=True)]
            if grown == now:
                return now
            now = grown

    def _cond(self, params: Any, args: list[_Known]) -> list[_Known]:
        merged = []
        for several in zip(*(self.of(branch.jaxpr, args[1:]) for branch in params["branches"]), strict=True):
            same = len({one.leaf for one in several}) == 1
            if not same:
                self._used(several)
            merged.append(_Known(args[0].varies or any(one.varies for one in several), several[0].leaf if same else None))
        return merged

    def _while(self, params: Any, args: list[_Known]) -> list[_Known]:
        first = params["cond_nconsts"]
        behind = first + params["body_nconsts"]
        carry = self._carried(lambda now: self.of(params["body_jaxpr"].jaxpr, [*args[first:behind], *now]), args[behind:])
        test = self.of(params["cond_jaxpr"].jaxpr, [*args[:first], *carry])[0]
        return [_Known(one.varies or test.varies, one.leaf) for one in carry]

    def _scan(self, params: Any, args: list[_Known]) -> list[_Known]:
        num_consts, num_carry = scan_sizes(params)
        consts, start, scanned = args[:num_consts], args[num_consts : num_consts + num_carry], args[num_consts + num_carry :]
        self._used(scanned)
        rows = [_Known(one.varies) for one in scanned]
        made: list[list[_Known]] = []

        def step(now: list[_Known]) -> list[_Known]:
            outs = self.of(params["jaxpr"].jaxpr, [*consts, *now, *rows])
            made.append(outs[num_carry:])
            return outs[:num_carry]

        carry = self._carried(step, start)
        for outs in made:
            self._used(outs)
        return [*carry, *(_Known(one.varies) for one in made[-1])]
