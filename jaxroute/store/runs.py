"""Results of single runs: the arrays that cells are put into, and the labelled result.

A result has dimensions `(policy, settings..., seed, time)`, and `model` for vector metrics. `time` counts rounds played. Each variable says in
its attributes what it is (`long_name`, `units`, `kind`): a "total" is the cumulative sum up to `time`, an "average" the mean per round up
to `time`, a "gauge" the state's value at `time`. `valid` is False for a run in which a flow that must be zero was not, or a value was not
finite.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

from jaxroute.core.statistics import Moments
from jaxroute.store import cells
from jaxroute.store.cells import CURVES, STATES, Request
from jaxroute.store.packs import Store
from jaxroute.store.provenance import memory_limit

Arrays = Mapping[str, np.ndarray]
# Positions along each axis that a policy has.
Tile = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Kept:
    """State from which runs are continued; arrays `[settings..., seeds, ...]` by name.

    Attributes:
      rounds: that have been played.
      states: their leaves.
      totals: float64 sums of what was recorded.
      curves: up to there.
    """

    rounds: int
    states: Arrays
    totals: Arrays
    curves: Arrays = dataclasses.field(default_factory=dict)


def bytes_of(request: Request, seeds: int) -> int:
    """Returns how many bytes the curves of some seeds of a result take."""
    numbers = sum(math.prod(shape) for _, shape in request.variables.values()) * len(request.times)
    return 8 * numbers * seeds * len(request.policies) * math.prod(len(v) for v in request.axes.values())


def is_large(request: Request) -> bool:
    """Says whether the curves of a result take more than an eighth of the memory."""
    return bytes_of(request, len(request.seeds)) > memory_limit(jax.local_devices(backend="cpu")[0]) // 8


def check_size(numbers: int, seeds: int) -> None:
    """Refuses a result of single runs that would not fit into half of the memory.

    Args:
      numbers: of a seed, over all policies, settings and times.
      seeds: number.

    Raises:
      ValueError: it would not.
    """
    needed, memory = 8 * numbers * seeds, memory_limit(jax.local_devices(backend="cpu")[0])
    if needed > memory // 2:
        raise ValueError(
            f"the result would take {needed / 2**30:,.1f} GiB, more than half of the memory ({memory / 2**30:,.1f} GiB): keep statistics over "
            "the seeds in place of the runs (keep='moments', --keep moments), record fewer points (record_every) or fewer metrics (record), or "
            "ask for fewer seeds"
        )


class Runs:
    """The arrays of a result, filled with the cells that are there and those that are simulated.

    Args:
      request: what the result consists of.
      store: where cells are read and written; None keeps the result in memory alone.

    Attributes:
      data: arrays `[policy, settings..., seeds, ...]` by name.
      done: `[policy, settings..., seeds]`, whether a run is there.
    """

    def __init__(self, request: Request, store: Store | None):
        self.request, self.store = request, store
        check_size(request.numbers, len(request.seeds))
        self.lead = (len(request.policies), *(len(v) for v in request.axes.values()), len(request.seeds))
        self.data: dict[str, np.ndarray] = {}
        for name, (_, shape) in request.variables.items():
            self.data[name] = np.full((*self.lead, len(request.times), *shape), np.nan)
        self.data |= {name: np.full(self.lead, np.nan) for name in request.zero_flows}
        self.data["valid"] = np.zeros(self.lead, bool)
        self.done = np.zeros(self.lead, bool)
        self._families = {policy: request.families(CURVES, policy) for policy in request.policies}
        self.fill()

    @property
    def families(self) -> list[bytes]:
        """The families of all cells that the result consists of."""
        return [family for some in self._families.values() for family in some]

    def fill(self) -> int:
        """Reads the cells that are there and not in the arrays yet; returns their number."""
        if self.store is None:
            return 0
        wanted: dict[bytes, list[tuple[str, tuple[int, ...], int]]] = {}
        for policy, families in self._families.items():
            shape = self.request.shape(policy)
            for number, family in enumerate(families):
                if family[:16] not in self.store.families:
                    continue
                place = tuple(int(i) for i in np.unravel_index(number, shape)) if shape else ()
                for granule, mask in self._lacking(policy, place).items():
                    for one in cells.chosen(self.store, family, granule, mask):
                        wanted.setdefault(one, []).append((policy, place, granule))
        if not wanted:
            return 0
        found = 0
        for one, arrays in self.store.read(wanted):
            found += 1
            for policy, place, granule in wanted[one]:
                tile = {axis: np.asarray([at]) for axis, at in zip(self.request.policy_axes[policy], place, strict=True)}
                own = cells.bits(cells.extent_of(one))
                part = self.request.cut.granules[granule]
                at = np.searchsorted(own, self.request.cut.values[part] % cells.GRANULE)
                there = (at < len(own)) & (
                    own[np.minimum(at, len(own) - 1)] == self.request.cut.values[part] % cells.GRANULE
                )
                chosen = {name: array[at[there]][(None,) * len(place)] for name, array in arrays.items()}
                self._place(policy, tile, part[there], chosen)
        return found

    def _lacking(self, policy: str, place: tuple[int, ...]) -> dict[int, int]:
        """Masks of the seeds of a setting that are not there, by granule."""
        done = self.done[(self.request.policies.index(policy), *self._whole(policy, place))]
        if not done.any():
            return self.request.cut.masks
        if done.all():
            return {}
        return {number: mask for number, mask, _ in self.request.cut.cut(np.flatnonzero(~done))}

    def _whole(self, policy: str, place: tuple[int, ...]) -> tuple[int, ...]:
        """A setting of a policy as one of all axes; any value of the axes that it does not have."""
        own = dict(zip(self.request.policy_axes[policy], place, strict=True))
        return tuple(own.get(axis, 0) for axis in self.request.axes)

    def lacking(self, policy: str) -> list[dict[int, int]]:
        """Masks of the seeds that are to be simulated, by granule, for each setting of a policy."""
        return [self._lacking(policy, tuple(map(int, place))) for place in np.ndindex(*self.request.shape(policy))]

    def _place(self, policy: str, tile: Tile, seeds: np.ndarray, values: Arrays) -> None:
        axes = list(self.request.axes)
        spans = [tile[axis] if axis in tile else np.arange(len(self.request.axes[axis])) for axis in axes]
        where: Any = tuple(map(_as_slice, (*spans, seeds)))
        if not all(isinstance(one, slice) for one in where):
            where = np.ix_(*spans, seeds)
        lacking = [i for i, axis in enumerate(axes) if axis not in tile]
        row = self.request.policies.index(policy)
        for name, array in values.items():
            if name in self.data:  # Of a part of a result, not all are wanted.
                self.data[name][row][where] = np.expand_dims(np.asarray(array), lacking)
        self.done[row][where] = True

    def take(self, policy: str, tile: Tile, seeds: np.ndarray, curves: Arrays, kept: Kept | None = None) -> None:
        """Takes the curves of a tile of settings and some seeds, and writes their cells.

        Args:
          policy: name.
          tile: positions along each axis that the policy has.
          seeds: positions in the seeds of the request.
          curves: arrays `[tiled axes..., seeds, ...]` by name.
          kept: what the runs are continued from if they are to be longer.
        """
        self._place(policy, tile, seeds, curves)
        if self.store is None:
            return
        self._write(self._families[policy], policy, tile, seeds, curves)
        if kept is not None:
            some = {f"state/{name}": v for name, v in kept.states.items()} | {
                f"total/{n}": v for n, v in kept.totals.items()
            }
            self._write(self.request.families(STATES, policy, kept.rounds), policy, tile, seeds, some)

    def _write(self, families: Sequence[bytes], policy: str, tile: Tile, seeds: np.ndarray, values: Arrays) -> None:
        assert self.store is not None
        write(self.store, self.request, families, policy, tile, seeds, values)

    def begun(self, policy: str, tile: Tile, seeds: np.ndarray, rounds: int) -> Kept | None:
        """Returns the first rounds of some runs, None if they cannot be read."""
        assert self.store is not None
        states = gathered(self.store, self.request, self.request.families(STATES, policy, rounds), policy, tile, seeds)
        curves = gathered(self.store, self.request, self.request.families(CURVES, policy, rounds), policy, tile, seeds)
        if states is None or curves is None:
            return None
        parts = {
            kind: {n.partition("/")[2]: v for n, v in states.items() if n.startswith(kind)} for kind in ("state/", "total/")
        }
        return Kept(rounds, parts["state/"], parts["total/"], curves)

    def errors(self, metric: str, policies: Sequence[str], seeds: int) -> np.ndarray:
        """Returns the standard errors of a metric at the horizon over the first seeds, of some policies and all settings."""
        place = 1 + len(self.request.axes)
        lead = (slice(None),) * place
        ends = np.moveaxis(self.data[metric][(*lead, slice(seeds), -1)], place, -1)
        valid = self.data["valid"][(*lead, slice(seeds))]
        valid = valid.reshape(valid.shape[:-1] + (1,) * (ends.ndim - valid.ndim) + valid.shape[-1:])
        errors = Moments.of(np.where(valid, ends, np.nan)).standard_errors()
        return errors[[self.request.policies.index(p) for p in policies]].ravel()

    def missing(self, seeds: int) -> str:
        """Says which runs of the first seeds are not there; empty if all are."""
        left = ~self.done[..., :seeds]
        if not left.any():
            return ""
        first = np.argwhere(left)[0]
        words = [f"{axis} {values[i]}" for (axis, values), i in zip(self.request.axes.items(), first[1:], strict=False)]
        where = ", ".join([f"policy {self.request.policies[first[0]]}", *words, f"seed {self.request.seeds[first[-1]]}"])
        return f"{int(left.sum()):,} of {left.size:,} runs are missing, the first that of {where}"

    def dataset(self, seeds: int) -> xr.Dataset:
        """Returns the labelled result of the first seeds; runs that are not there are NaN, and not valid."""
        request = self.request
        coords: dict[str, Any] = {"policy": np.asarray(request.policies), **request.axes}
        coords |= {"seed": request.seeds[:seeds].astype(np.int64), "time": request.times.astype(np.int64)}
        lead = ("policy", *request.axes, "seed")
        variables: dict[str, Any] = {}
        for name, (metric, shape) in request.variables.items():
            variables[name] = ((*lead, "time", *metric.dims), self._first(name, seeds), metric.attributes)
            sizes = dict(zip(metric.dims, shape, strict=True))
            if "model" in sizes and len(request.model_names) == sizes["model"]:
                coords["model"] = np.asarray(request.model_names)
        for name in request.zero_flows:
            about = {"long_name": f"{name} (must be zero)", "units": "rounds", "kind": "total"}
            variables[name] = (lead, self._first(name, seeds), about)
        variables["valid"] = (lead, self._first("valid", seeds), {"long_name": "run is valid", "units": "", "kind": "flag"})
        return xr.Dataset(variables, coords={name: (name, values) for name, values in coords.items()})

    def _first(self, name: str, seeds: int) -> Any:
        """A variable of the first seeds."""
        return self.data[name][(slice(None),) * (len(self.lead) - 1) + (slice(seeds),)]

    def so_far(self) -> xr.Dataset:
        """Returns the result so far, with the seeds of which something has been played."""
        played = self.done.any(axis=tuple(range(self.done.ndim - 1)))
        return self.dataset(int(np.flatnonzero(played).max(initial=-1)) + 1).copy(deep=True)


def _as_slice(positions: np.ndarray) -> Any:
    """Consecutive positions as a slice, others as they are."""
    first = int(positions[0])
    if int(positions[-1]) - first + 1 == len(positions) and (len(positions) < 3 or (np.diff(positions) == 1).all()):
        return slice(first, first + len(positions))
    return positions


def numbers_of(request: Request, policy: str, tile: Tile) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Yields the number of each setting of a tile among those of its policy, and its place in the tile."""
    spans = [tile[axis] for axis in request.policy_axes[policy]]
    for place in np.ndindex(*map(len, spans)):
        at = tuple(int(span[i]) for span, i in zip(spans, place, strict=True))
        yield (int(np.ravel_multi_index(at, request.shape(policy))) if at else 0), place


def write(
    store: Store, request: Request, families: Sequence[bytes], policy: str, tile: Tile, seeds: np.ndarray, values: Arrays
) -> None:
    """Puts arrays `[tiled axes..., seeds, ...]` into cells, except the seeds that are there."""
    parts = list(request.cut.cut(seeds))
    for number, place in numbers_of(request, policy, tile):
        for granule, mask, part in parts:
            there = cells.held(store, families[number], granule)
            if mask & there:
                if not mask & ~there:
                    continue
                own = request.cut.values[seeds[part]] % cells.GRANULE
                part = part[np.isin(own, cells.bits(mask & ~there))]
                mask &= ~there
            chosen = _as_slice(part)
            store.put(
                cells.address(families[number], granule, mask),
                {name: array[place][chosen] for name, array in values.items()},
            )


def gathered(
    store: Store, request: Request, families: Sequence[bytes], policy: str, tile: Tile, seeds: np.ndarray
) -> dict[str, np.ndarray] | None:
    """Returns arrays `[tiled axes..., seeds, ...]` from cells, None if some are missing or damaged."""
    parts, rows = list(request.cut.cut(seeds)), []
    numbers = [number for number, _ in numbers_of(request, policy, tile)]
    wanted = {(n, g): cells.chosen(store, families[n], g, mask) for n in numbers for g, mask, _ in parts}
    found = store.get(one for some in wanted.values() for one in some)
    for number in numbers:
        row: dict[str, list[np.ndarray]] = {}
        for granule, mask, _ in parts:
            joined = joined_cells([(one, found[one]) for one in wanted[number, granule] if one in found], mask)
            if joined is None:
                return None
            for name, array in joined.items():
                row.setdefault(name, []).append(array)
        rows.append({name: np.concatenate(arrays) for name, arrays in row.items()})
    order = np.argsort(np.concatenate([part for *_, part in parts]))
    lead = tuple(len(tile[axis]) for axis in request.policy_axes[policy])
    return {
        name: np.stack([row[name][order] for row in rows]).reshape(*lead, len(seeds), *rows[0][name].shape[1:])
        for name in rows[0]
    }


def joined_cells(found: Sequence[tuple[bytes, Arrays]], mask: int) -> dict[str, np.ndarray] | None:
    """Returns the arrays of the seeds of a mask, in their order, from cells of one granule; None if some are missing."""
    places, arrays, there = [], [], 0
    for one, cell in found:
        own = cells.bits(cells.extent_of(one))
        take = np.isin(own, cells.bits(mask & ~there))
        there |= cells.extent_of(one)
        places.append(own[take])
        arrays.append({name: array[take] for name, array in cell.items()})
    if mask & ~there or not arrays:
        return None
    order = np.argsort(np.concatenate(places))
    return {name: np.concatenate([one[name] for one in arrays])[order] for name in arrays[0]}
