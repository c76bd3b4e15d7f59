"""Chooses the state arrays that kernels for several runs at once store run by run, so that the elements of each run are side by side.

In all other arrays, the numbers of all runs for one element are side by side. If each run used a different row of such an array, every number would
be in another cache line.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import JaxprEqn

from jaxroute.core.batching.dependence import Flow, is_key
from jaxroute.kernels.ir import is_row
from jaxroute.kernels.rules import CALLED_WIDE

# Smallest number of elements of a row: shorter rows touch few cache lines in any case.
_SHORT_ROW = 32
_TYPES = ("float32", "int32", "int16", "int8")


class _Array(NamedTuple):
    """Facts about an array: whether it differs between runs, and the index of the state array whose memory it shares; None if it shares none."""

    varies: bool
    leaf: int | None = None


def by_rows(closed: Any, given: Sequence[bool], leaves: Sequence[int | None]) -> set[int]:
    """Returns the indices of state arrays of which a jaxpr uses only long rows and elements, and some row at an index that differs between runs.

    `given` has for each argument whether it differs between runs, `leaves` its index among the state arrays, or None if it is not a state array.
    """
    may = [n if _has_long_rows(v.aval) else None for v, n in zip(closed.jaxpr.invars, leaves, strict=True)]
    if not any(n is not None for n in may):
        return set()
    uses = _Uses()
    uses.results(closed, [_Array(varies, n) for varies, n in zip(given, may, strict=True)])
    return uses.rows - uses.others


def _has_long_rows(aval: Any) -> bool:
    long = aval.ndim > 1 and aval.shape[0] > 1 and math.prod(aval.shape[1:]) >= _SHORT_ROW
    return long and not is_key(aval) and np.dtype(aval.dtype).name in _TYPES


class _Uses(Flow[_Array]):
    """Finds state arrays with a row used at an index that differs between runs (`rows`), and those not used by rows or elements alone (`others`)."""

    def __init__(self) -> None:
        super().__init__(_Array(False))
        self.rows: set[int] = set()
        self.others: set[int] = set()

    def is_opaque(self, eqn: JaxprEqn) -> bool:
        return eqn.params.get("name", "") in CALLED_WIDE

    def operation(self, eqn: JaxprEqn, args: list[_Array]) -> list[_Array]:
        name = eqn.primitive.name
        varies = any(one.varies for one in args) and name != "largest_over_runs"
        if name in ("dynamic_slice", "dynamic_update_slice"):
            written = name == "dynamic_update_slice"
            sizes = getattr(eqn.invars[1].aval, "shape", ()) if written else eqn.params["slice_sizes"]
            if not is_row(getattr(eqn.invars[0].aval, "shape", ()), sizes):
                self._use(args[:1] if math.prod(sizes) > 1 else [])
            elif args[0].leaf is not None and args[2 if written else 1].varies:
                self.rows.add(args[0].leaf)
            self._use(args[1:])
            return [_Array(varies, args[0].leaf if written else None)]
        if not self.is_opaque(eqn):
            self._use(args)
        return [_Array(varies)] * len(eqn.outvars)

    def joined(self, facts: Sequence[_Array], deciding: _Array) -> _Array:
        leaves = {one.leaf for one in facts}
        if len(leaves) > 1:
            self._use(facts)
        return _Array(deciding.varies or any(one.varies for one in facts), leaves.pop() if len(leaves) == 1 else None)

    def row(self, fact: _Array) -> _Array:
        self._use([fact])
        return _Array(fact.varies)

    def _use(self, args: Sequence[_Array]) -> None:
        self.others |= {one.leaf for one in args if one.leaf is not None}
