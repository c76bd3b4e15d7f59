"""Results of single runs: arrays that are filled from stored cells and simulated runs, and the labelled result.

A result has dimensions `(policy, settings..., seed, time)`, and `model` for vector metrics. `time` is a number of rounds. Each variable has the
attributes `long_name`, `units` and `kind`: a "total" is the cumulative sum up to `time`, an "average" the mean per round up to `time`, a "gauge" the
state's value at `time`. `valid` is False for a run with a value that is not finite, or with a non-zero count of errors, such as illegal actions.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from jaxroute.core.provenance import memory_limit
from jaxroute.core.statistics import Moments
from jaxroute.store import cells
from jaxroute.store.cells import CURVES, STATES, Request, Seeds, Tile
from jaxroute.store.packs import PackStore

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """State from which runs can continue, in arrays `[settings..., seeds, ...]` by name.

    Attributes:
      rounds: number of counted rounds.
      states: states of environment and policy after these rounds.
      totals: float64 sums of the recorded quantities over these rounds.
      curves: recorded curves of these rounds, if `Runs.checkpoint` has read them from the store; empty in a checkpoint that a simulation returns.
    """

    rounds: int
    states: Arrays
    totals: Arrays
    curves: Arrays = dataclasses.field(default_factory=dict)


def is_large(request: Request) -> bool:
    """Whether the curves of a result take more than an eighth of the memory."""
    return 8 * request.numbers * len(request.seeds) > memory_limit(jax.local_devices(backend="cpu")[0]) // 8


def check_runs(numbers: int, seeds: int) -> None:
    """Raises `ValueError` if the runs of `seeds` seeds, with `numbers` recorded numbers per seed, do not fit into half of the memory."""
    advice = "keep statistics over the seeds in place of the runs (keep='moments', --keep moments), record fewer points (record_every) or fewer "
    check_size("result", 8 * numbers * seeds, f"{advice}metrics (record), or ask for fewer seeds")


def check_size(what: str, needed: int, advice: str) -> None:
    """Raises `ValueError` if `needed` bytes exceed half of the memory; the message names their use (`what`) and gives `advice`."""
    memory = memory_limit(jax.local_devices(backend="cpu")[0])
    if needed > memory // 2:
        sizes = f"{needed / 2**30:,.1f} GiB, more than half of the memory ({memory / 2**30:,.1f} GiB)"
        raise ValueError(f"the {what} would take about {sizes}: {advice}")


class Runs:
    """Arrays of a result with single runs, filled from cells of `store` (None: nothing is stored) and with simulated runs.

    Attributes:
      lead: lengths of the axes `policy, settings..., seeds`.
      data: arrays `[policy, settings..., seeds, ...]` by name; NaN where a run is missing.
      done: `[policy, settings..., seeds]` bool, whether `data` has the run.
    """

    def __init__(self, request: Request, store: PackStore | None):
        check_runs(request.numbers, len(request.seeds))
        self._begin(request, store)
        self.data: dict[str, np.ndarray] = {}
        for name, (_, shape) in request.variables.items():
            self.data[name] = np.full((*self.lead, len(request.times), *shape), np.nan)
        self.data |= {name: np.full(self.lead, np.nan) for name in request.zero_flows}
        self.data["valid"] = np.zeros(self.lead, bool)
        self.fill()

    def _begin(self, request: Request, store: PackStore | None) -> None:
        self.request, self.store = request, store
        self.lead = (len(request.policies), *(len(v) for v in request.axes.values()), len(request.seeds))
        self.done = np.zeros(self.lead, bool)
        self._families = {policy: request.families(CURVES, policy) for policy in request.policies}

    @property
    def families(self) -> list[bytes]:
        """Families of the result, one for each policy and setting: the 24 bytes with which the addresses of all its cells with curves begin."""
        return [family for some in self._families.values() for family in some]

    def fill(self) -> None:
        """Reads stored runs that the arrays lack, and writes them into the arrays."""
        if self.store is None:
            return
        lookups = []
        for policy, families in self._families.items():
            for place, family in zip(np.ndindex(self.request.shape(policy)), families, strict=True):
                if family[:16] in self.store.families:
                    lookups.append(((policy, place), family, self._lacking(policy, place)))
        for (policy, place), seeds, arrays in read(self.store, self.request.cut, lookups):
            tile = {axis: np.asarray([at]) for axis, at in zip(self.request.policy_axes[policy], place, strict=True)}
            # A part of a result does not need all arrays of a cell.
            used = {name: array[(None,) * len(place)] for name, array in arrays.items() if name in self.data}
            self._place(policy, tile, seeds, used)

    def _lacking(self, policy: str, place: tuple[int, ...]) -> dict[int, int]:
        """Returns bit masks of a policy's missing seeds, by granule (256 seeds), at the setting with the index `place` along the policy's axes."""
        own = dict(zip(self.request.policy_axes[policy], place, strict=True))  # Runs do not differ along the other axes.
        done = self.done[(self.request.policies.index(policy), *(own.get(axis, 0) for axis in self.request.axes))]
        if not done.any():
            return self.request.cut.masks
        if done.all():
            return {}
        return {number: mask for number, mask, _ in self.request.cut.cut(np.flatnonzero(~done))}

    def lacking(self, policy: str) -> list[dict[int, int]]:
        """Returns for each setting of a policy a dict from granule (256 consecutive seeds) to the bit mask of its missing seeds."""
        return [self._lacking(policy, place) for place in np.ndindex(self.request.shape(policy))]

    def _place(self, policy: str, tile: Tile, seeds: np.ndarray, values: Arrays) -> None:
        axes = list(self.request.axes)
        spans = [tile[axis] if axis in tile else np.arange(len(self.request.axes[axis])) for axis in axes]
        where: Any = tuple(map(_as_slice, (*spans, seeds)))
        if not all(isinstance(one, slice) for one in where):
            where = np.ix_(*spans, seeds)
        lacking = [i for i, axis in enumerate(axes) if axis not in tile]
        row = self.request.policies.index(policy)
        for name, array in values.items():
            self.data[name][row][where] = np.expand_dims(np.asarray(array), lacking)
        self.done[row][where] = True

    def take(self, policy: str, tile: Tile, seeds: np.ndarray, curves: Arrays, checkpoint: Checkpoint | None = None) -> None:
        """Adds simulated curves to the arrays, and writes them, with the checkpoint if there is one, to the store.

        Args:
          policy: name of the policy.
          tile: positions of the simulated settings along each axis on which the policy depends.
          seeds: positions of the simulated seeds among the seeds of the request.
          curves: arrays `[tiled axes..., seeds, ...]` by name.
          checkpoint: state from which the runs can continue; None if states are not stored.
        """
        self._place(policy, tile, seeds, curves)
        if self.store is None:
            return
        write(self.store, self.request, self._families[policy], policy, tile, seeds, curves)
        if checkpoint is not None:
            some = {f"state/{n}": v for n, v in checkpoint.states.items()}
            some |= {f"total/{n}": v for n, v in checkpoint.totals.items()}
            families = self.request.families(STATES, policy, checkpoint.rounds)
            write(self.store, self.request, families, policy, tile, seeds, some)

    def checkpoint(self, policy: str, tile: Tile, seeds: np.ndarray, rounds: int) -> Checkpoint | None:
        """Reads the checkpoint of some runs after `rounds` rounds; returns None if any of its cells is missing or damaged."""
        request = self.request
        found = [self._gathered(request.families(kind, policy, rounds), policy, tile, seeds) for kind in (STATES, CURVES)]
        if not all(found):
            return None
        states, totals = (
            {n.removeprefix(kind): v for n, v in found[0].items() if n.startswith(kind)} for kind in ("state/", "total/")
        )
        return Checkpoint(rounds, states, totals, found[1])

    def _gathered(self, families: Sequence[bytes], policy: str, tile: Tile, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Reads cells of `families` (one per setting) as arrays `[tiled axes..., seeds, ...]` by name; an empty dict if any is missing or damaged."""
        assert self.store is not None
        cut, numbers = Seeds(self.request.seeds[seeds]), self.request.numbers_in(policy, tile)
        found: dict[str, np.ndarray] = {}
        done = np.zeros((len(numbers), len(seeds)), bool)
        for place, own, arrays in read(self.store, cut, [(i, families[n], cut.masks) for i, n in enumerate(numbers)]):
            for name, array in arrays.items():
                found.setdefault(name, np.empty((*done.shape, *array.shape[1:]), array.dtype))[place, own] = array
            done[place, own] = True
        lead = [len(tile[axis]) for axis in self.request.policy_axes[policy]]
        return {n: v.reshape(*lead, *v.shape[1:]) for n, v in found.items()} if done.all() else {}

    def errors(self, metric: str, policies: Sequence[str], seeds: int) -> np.ndarray:
        """Returns a vector of standard errors of a metric at the horizon over the first `seeds` seeds: one for each policy and setting."""
        place = 1 + len(self.request.axes)
        lead = (slice(None),) * place
        ends = np.moveaxis(self.data[metric][(*lead, slice(seeds), -1)], place, -1)
        valid = self.data["valid"][(*lead, slice(seeds))]
        valid = valid.reshape(valid.shape[:-1] + (1,) * (ends.ndim - valid.ndim) + valid.shape[-1:])
        errors = Moments.of(np.where(valid, ends, np.nan)).standard_errors()
        return errors[[self.request.policies.index(p) for p in policies]].ravel()

    def missing(self, seeds: int) -> str:
        """Describes in words which runs of the first `seeds` seeds are missing; an empty text means none."""
        left = ~self.done[..., :seeds]
        if not left.any():
            return ""
        first = np.argwhere(left)[0]
        words = [f"{axis} {values[i]}" for (axis, values), i in zip(self.request.axes.items(), first[1:], strict=False)]
        where = ", ".join([f"policy {self.request.policies[first[0]]}", *words, f"seed {self.request.seeds[first[-1]]}"])
        return f"{int(left.sum()):,} of {left.size:,} runs are missing, the first that of {where}"

    def dataset(self, seeds: int) -> xr.Dataset:
        """Returns the labelled result of the first `seeds` seeds; missing runs are NaN, with `valid` False."""
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
        return self.data[name][(slice(None),) * (len(self.lead) - 1) + (slice(seeds),)]

    def so_far(self) -> xr.Dataset:
        """Returns a copy of the labelled result so far, up to the last seed with a finished run."""
        finished = self.done.any(axis=tuple(range(self.done.ndim - 1)))
        return self.dataset(int(np.flatnonzero(finished).max(initial=-1)) + 1).copy(deep=True)


class LazyRuns(Runs):
    """Runs of a large result in a store that stays open. The arrays of `dataset` read their cells when they are indexed.

    If `partial`, missing and damaged runs are NaN, with `valid` False; otherwise reading them raises a `ValueError`.
    """

    def __init__(self, request: Request, store: PackStore, partial: bool):
        self._begin(request, store)
        self.partial = partial
        for policy, families in self._families.items():
            for number, place in enumerate(np.ndindex(*request.shape(policy))):
                held = {g: m & cells.held(store, families[number], g) for g, m in request.cut.masks.items()}
                tile = {axis: np.asarray([at]) for axis, at in zip(request.policy_axes[policy], place, strict=True)}
                if any(held.values()):
                    self._place(policy, tile, request.cut.of(held), {})

    def _first(self, name: str, seeds: int) -> Any:
        return indexing.LazilyIndexedArray(_LazyArray(self, name, (*self.lead[:-1], seeds)))

    def read(self, name: str, chosen: Sequence[np.ndarray]) -> np.ndarray:
        """Reads a variable at the positions `chosen` along each dimension; raises `ValueError` if it is too large, or if runs are missing."""
        lead = [np.unique(places, return_inverse=True) for places in chosen[: len(self.lead)]]
        part = self._part(name, *(span for span, _ in lead))
        assert self.store is not None
        runs = Runs(part, self.store)
        if not self.partial and (missing := runs.missing(len(part.seeds))):
            raise ValueError(f"the result in {str(self.store.place)!r} is not complete any more: {missing}")
        return runs.data[name][np.ix_(*(places for _, places in lead), *chosen[len(self.lead) :])]

    def _part(self, name: str, policies: np.ndarray, *spans: np.ndarray) -> Request:
        """Returns a request for the variable `name` of some runs. Indices select `policies`, and in `spans` settings along each axis, then seeds."""
        whole, identities = self.request, {}
        axes, seeds = dict(zip(whole.axes, spans, strict=False)), spans[-1]
        for policy in (names := [whole.policies[i] for i in policies]):
            own = np.asarray(whole.identities[policy]).reshape(whole.shape(policy))
            for place, axis in enumerate(whole.policy_axes[policy]):
                own = own.take(axes[axis], place)
            identities[policy] = own.ravel().tolist()
        return dataclasses.replace(
            whole,
            policies=names,
            axes={axis: values[axes[axis]] for axis, values in whole.axes.items()},
            seeds=whole.seeds[seeds],
            variables={one: about for one, about in whole.variables.items() if one == name},
            zero_flows=[one for one in whole.zero_flows if one == name],
            identities=identities,
        )


class _LazyArray(BackendArray):
    def __init__(self, runs: LazyRuns, name: str, lead: tuple[int, ...]):
        self._runs, self._name = runs, name
        _, inner = runs.request.variables.get(name, (None, None))
        self.shape = lead if inner is None else (*lead, len(runs.request.times), *inner)
        self.dtype = np.dtype(bool if name == "valid" else np.float64)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        chosen = [np.arange(size)[one] for one, size in zip(key, self.shape, strict=True)]
        found = self._runs.read(self._name, [np.atleast_1d(one) for one in chosen])
        return found[tuple(0 if one.ndim == 0 else slice(None) for one in chosen)]

    def __deepcopy__(self, memo: Any) -> "_LazyArray":  # Stored numbers do not change.
        return self


def _as_slice(positions: np.ndarray) -> Any:
    """Converts positions to a slice if they are consecutive; otherwise returns them unchanged."""
    first = int(positions[0])
    if int(positions[-1]) - first + 1 == len(positions) and (len(positions) < 3 or (np.diff(positions) == 1).all()):
        return slice(first, first + len(positions))
    return positions


def write(
    store: PackStore, request: Request, families: Sequence[bytes], policy: str, tile: Tile, seeds: np.ndarray, values: Arrays
) -> None:
    """Stores arrays `[tiled axes..., seeds, ...]` by name, except for seeds already stored. `families` has each setting's family of cells."""
    parts = list(request.cut.cut(seeds))
    lead = [len(tile[axis]) for axis in request.policy_axes[policy]]
    for number, place in zip(request.numbers_in(policy, tile), np.ndindex(*lead), strict=True):
        for granule, mask, part in parts:
            new = mask & ~cells.held(store, families[number], granule)
            if not new:
                continue
            if new != mask:
                part = part[np.isin(request.cut.values[seeds[part]] % cells.GRANULE, cells.bits(new))]
            chosen = _as_slice(part)
            cell = {name: array[place][chosen] for name, array in values.items()}
            store.put(cells.address(families[number], granule, new), cell)


def read(
    store: PackStore, cut: Seeds, lookups: Iterable[tuple[Any, bytes, Mapping[int, int]]]
) -> Iterator[tuple[Any, np.ndarray, dict[str, np.ndarray]]]:
    """Reads cells of single runs. Yields, for each readable cell, its label, positions of its seeds in `cut`, and arrays `[seeds, ...]` by name.

    Args:
      cut: all seeds of the result.
      lookups: triples (label, family, bit masks of the wanted seeds by granule of 256 seeds). The label, any value, marks the cells of its family.
    """
    cells_of: dict[bytes, list[tuple[Any, int]]] = {}
    for who, family, masks in lookups:
        for granule, mask in masks.items():
            for one in cells.chosen(store, family, granule, mask):
                cells_of.setdefault(one, []).append((who, granule))
    for one, arrays in store.read(cells_of):
        own = cells.bits(cells.extent_of(one))
        for who, granule in cells_of[one]:
            if cells.extent_of(one) == cut.masks[granule]:
                yield who, cut.granules[granule], arrays
                continue
            places = cut.values[cut.granules[granule]] % cells.GRANULE
            there = np.isin(places, own)
            at = np.searchsorted(own, places[there])
            yield who, cut.granules[granule][there], {name: array[at] for name, array in arrays.items()}
