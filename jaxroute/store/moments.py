"""Results without single runs: statistics over the seeds of each policy, and of the difference of each pair of policies, seed by seed.

Statistics of a granule (256 consecutive seeds) are merged with those of its neighbours as in a binary counter (`cells.ranges`). The order of
additions, and so the bits, depends on the seeds alone: not on blocks, processes, interruptions or the order of simulation. Seeds of an incomplete
granule are stored as single runs.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core import statistics
from jaxroute.core.statistics import RELATIVE_ACCURACY, Histogram, Moments, middles
from jaxroute.store import cells
from jaxroute.store.cells import GRANULE, STATISTICS, Range, Request, Tile
from jaxroute.store.packs import PackStore, digest_of
from jaxroute.store.runs import Runs, check_size

# Bytes that the moments of a recorded number, and a histogram of some 150 bins, need while they are merged.
_MOMENTS_BYTES, _HISTOGRAM_BYTES = 4 * 48, 4 * 150 * 16
# Seconds between two times at which new statistics are written.
_WRITE_S = 5.0
# Largest number of complete granules whose statistics are computed from stored single runs, and number of granules of all 32-bit seeds.
_MOST_FROM_RUNS, _MOST_GRANULES = 64, 2**32 // GRANULE
_NEVER = np.iinfo(np.int64).max

Curves = Mapping[str, Any]  # Arrays of NumPy, or of JAX on a device, by name.


@dataclasses.dataclass(frozen=True)
class Summary:
    """Statistics over some seeds of one policy, or of the difference of two policies, at one setting.

    Attributes:
      moments: `[C]` moments over the seeds of each of the `C` numbers that a run records: of each quantity in turn, at all times.
      histogram: for each of the `C` numbers, the number of seeds in each bin of `statistics.bins_of`; empty for a difference.
      flags: int64 `[3 + Z]` smallest seed of an invalid run (largest int64: none); number of all runs; number of invalid runs; and, for each of `Z`
        counts of errors (`Request.zero_flows`), the number of runs in which it is not zero.
    """

    moments: Moments
    histogram: Histogram
    flags: np.ndarray

    def merged(self, other: "Summary") -> "Summary":
        flags = np.concatenate([np.minimum(self.flags[:1], other.flags[:1]), self.flags[1:] + other.flags[1:]])
        return Summary(self.moments.merged(other.moments), self.histogram.merged(other.histogram), flags)

    def cell(self) -> dict[str, np.ndarray]:
        arrays = {"moments": self.moments.packed(), "flags": self.flags}
        if self.histogram.keys.size:
            arrays |= {"keys": self.histogram.keys, "counts": self.histogram.counts}
        return arrays

    @staticmethod
    def of_cell(arrays: Mapping[str, np.ndarray]) -> "Summary":
        histogram = Histogram(arrays["keys"], arrays["counts"]) if "keys" in arrays else Histogram.empty()
        return Summary(Moments(*arrays["moments"]), histogram, arrays["flags"])


def summarise(
    curves: Sequence[Curves],
    names: Sequence[str],
    zero_flows: Sequence[str],
    seeds: np.ndarray,
    spans: Sequence[tuple[int, int]],
) -> list[list[Summary]]:
    """Computes the statistics of one policy, or of the difference of two. Returns a list for each span of seeds with a `Summary` for each setting.

    Args:
      curves: arrays `[settings..., R, ...]` by name, including "valid", for each of one or two policies; axes of settings along which the runs of
        a policy do not differ have size 1.
      names: names of the recorded quantities, in the order of their numbers in a summary.
      zero_flows: names of counts of errors that must be zero.
      seeds: `[R]` seeds, in the order of the arrays.
      spans: pairs (start, stop) that stand for `seeds[start:stop]`, in any order; a span has 2**k whole granules (of 256 seeds), or a part of one.
    """
    place, found = curves[0]["valid"].ndim - 1, []
    reduced = statistics.reduced(curves, names, place, spans)
    for (start, stop), (packed, histogram) in zip(spans, reduced, strict=True):
        settings, numbers = packed.shape[1:]
        flags = np.full((settings, 1), _NEVER)
        if len(curves) == 1:
            columns = [np.asarray(curves[0][name]) for name in ("valid", *zero_flows)]
            good, *flows = (one.reshape(settings, -1)[:, start:stop] for one in columns)
            first = np.where(good, _NEVER, seeds[start:stop]).min(axis=1)
            counts = [np.full(settings, stop - start), *(one.sum(axis=1) for one in (~good, *(flow != 0 for flow in flows)))]
            flags = np.stack([first, *counts], axis=1).astype(np.int64)
        rows = [histogram.rows(s * numbers, (s + 1) * numbers) for s in range(settings)]
        found.append([Summary(Moments(*packed[:, s]), rows[s], flags[s]) for s in range(settings)])
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class SummaryTree:
    """Statistics of one policy, or of the difference of two, at each setting, as a binary tree over ranges of 2**k granules (256 consecutive seeds).

    Attributes:
      policies: index in the request of the policy, or of the two policies.
      axes: number of settings along each axis on which the runs depend, by the name of the axis.
      numbers: for each quantity that all `policies` record, by name, its slice of the `C` numbers of a `Summary`, and its shape `(times, ...)`.
      families: family (first 24 bytes of addresses) of the cells of each setting.
      nodes: for each setting the statistics of ranges, by range (first granule, number of granules).
      new: pairs (setting, range) of statistics that are not written to the store yet.
    """

    policies: tuple[int, ...]
    axes: dict[str, int]
    numbers: dict[str, tuple[slice, tuple[int, ...]]]
    families: list[bytes]
    nodes: list[dict[Range, Summary]]
    new: set[tuple[int, Range]] = dataclasses.field(default_factory=set)

    def settings(self, tile: Tile) -> list[int]:
        """Returns the flat indices of the settings in a tile (a block of settings, by axis)."""
        return cells.numbers(tuple(self.axes.values()), [tile[axis] for axis in self.axes])

    def region(self, setting: int, axes: Iterable[str]) -> tuple[Any, ...]:
        """Returns one index per axis in `axes`, as a tuple: the position of the setting along an axis of this tree, a full slice along any other."""
        place = dict(zip(self.axes, np.unravel_index(setting, tuple(self.axes.values())), strict=True)) if self.axes else {}
        return tuple(place.get(axis, slice(None)) for axis in axes)

    def lacks(self, setting: int, ranges: Iterable[Range], needed: Container[Range]) -> bool:
        """Whether any of `ranges` (of granules) has no statistics at a setting. `needed` are the ranges whose statistics a result needs.

        A range has statistics if `nodes` has it, all its parts, or a larger range that contains it and lies within a needed range.
        """
        return any(not self._holds(setting, *one, needed) for one in ranges)

    def _holds(self, setting: int, first: int, size: int, needed: Container[Range]) -> bool:
        nodes = self.nodes[setting]
        if not nodes:
            return False
        if not cells.cover(nodes.__contains__, (first, size))[1]:
            return True
        while (first, size) not in needed and size < _MOST_GRANULES:
            size *= 2
            first -= first % size
            if (first, size) in nodes:
                return True
        return False

    def insert(self, setting: int, node: Range, summary: Summary) -> None:
        """Adds the statistics of the range `node` (first granule, number of granules), and merges neighbouring ranges as far as possible."""
        nodes, (first, size) = self.nodes[setting], node
        while True:
            nodes[first, size] = summary
            self.new.add((setting, (first, size)))
            left = first - first % (2 * size)
            other = (left + size if left == first else left), size
            if left == 0 or other not in nodes:
                return
            self.new.difference_update([(setting, (first, size)), (setting, other)])
            a, b = nodes.pop((left, size)), nodes.pop((left + size, size))
            summary, first, size = a.merged(b), left, 2 * size

    def node(self, setting: int, node: Range) -> Summary | None:
        """Returns the merged statistics of those granules in the range `node` that have any; None if none has."""
        found, (first, size) = self.nodes[setting].get(node), node
        if found is not None or size == 1:
            return found
        a, b = (self.node(setting, (start, size // 2)) for start in (first, first + size // 2))
        return a.merged(b) if a is not None and b is not None else a or b


# Triples of a tree, the index of a setting, and the statistics there.
_Totals = Sequence[tuple[SummaryTree, int, Summary]]


class Statistics:
    """Statistics of a result, from stored cells and from simulated runs.

    Args:
      store: store of the cells; None if nothing is stored.
      check: whether to raise a `ValueError` if the statistics may not fit into half of the memory.

    Attributes:
      full: indices of the granules (256 consecutive seeds) that were requested as a whole and need only statistics, whether or not these exist yet.
      rest: positions, among the seeds of the request, of the seeds of all granules that are not in `full` when this object is created.
      runs: single runs of the seeds at `rest`; None if there are none.
    """

    def __init__(self, request: Request, store: PackStore | None, check: bool = True):
        number = len(request.policies)
        pairs = number * (number - 1) // 2
        if check:
            needed = request.numbers * (_MOMENTS_BYTES + _HISTOGRAM_BYTES)
            needed += request.numbers * pairs // number * _MOMENTS_BYTES
            check_size("statistics", needed, "record fewer points (record_every) or fewer metrics (record)")
        self.request, self.store = request, store
        by_name = sorted(range(number), key=request.policies.__getitem__)  # A pair is the same in any order of policies.
        self._trees = [self._tree(key) for key in [*((p,) for p in range(number)), *itertools.combinations(by_name, 2)]]
        self._written_s = time.monotonic()
        self.full = set(request.cut.full)
        self._ranges: set[Range] = set()
        self.find(len(request.seeds))
        self.full -= self._stored_as_runs()
        rest = [part for granule, part in request.cut.granules.items() if granule not in self.full]
        self.rest = np.sort(np.concatenate([np.zeros(0, np.int64), *rest]))
        self.runs = Runs(request.with_seeds(request.seeds[self.rest]), store) if rest else None

    def _tree(self, key: tuple[int, ...]) -> SummaryTree:
        request, policies = self.request, [self.request.policies[p] for p in key]
        axes = {a: len(v) for a, v in request.axes.items() if any(a in request.policy_axes[p] for p in policies)}
        own, start, numbers = [], 0, {}
        for policy in policies:  # Family of the policy at each setting of the tree.
            families = np.array([None, *request.families(STATISTICS, policy)])[1:].reshape(request.shape(policy))
            lacking = [i for i, axis in enumerate(axes) if axis not in request.policy_axes[policy]]
            own.append(np.broadcast_to(np.expand_dims(families, lacking), tuple(axes.values())).ravel().tolist())
        families = own[0]
        if len(key) == 2:
            parts = [([a[:16], b[:16]], [a[16:], b[16:]]) for a, b in zip(*own, strict=True)]
            families = [digest_of(*identities) + digest_of(*codes)[:8] for identities, codes in parts]
        for name in sorted(request.variables):
            if all(name in request.recorded[policy] for policy in policies):
                shape = (len(request.times), *request.variables[name][1])
                numbers[name] = slice(start, start := start + math.prod(shape)), shape
        return SummaryTree(key, axes, numbers, families, [{} for _ in families])

    @property
    def families(self) -> list[bytes]:
        """Families (first 24 bytes of addresses) of all cells of the result, of statistics and of single runs."""
        return [one for tree in self._trees for one in tree.families] + (self.runs.families if self.runs else [])

    def families_in(self, tile: Tile, policies: Sequence[str]) -> list[bytes]:
        """Returns the families (24 bytes) of the cells with statistics of each of `policies`, and of each pair of them, at the settings of a tile."""
        own = {self.request.policies.index(policy) for policy in policies}
        return [tree.families[n] for tree in self._trees if own.issuperset(tree.policies) for n in tree.settings(tile)]

    # Stored statistics.

    def fill(self) -> None:
        """Reads statistics and runs that have been stored since the last call."""
        self.find(len(self.request.seeds))
        if self.runs is not None:
            self.runs.fill()

    def find(self, seeds: int) -> None:
        """Reads stored statistics of the first `seeds` seeds. Later calls of `left` and `needed` refer to these seeds."""
        requested = cells.ranges(self._full(seeds))
        self._ranges = set(requested)
        while self.store is not None:  # Repeated after damaged cells: other cells may be copies or parts of them.
            left: dict[bytes, list[tuple[dict[Range, Summary], Range]]] = {}
            for family, nodes in (one for tree in self._trees for one in zip(tree.families, tree.nodes, strict=True)):
                for one in self._stored(family, nodes, requested):
                    left.setdefault(cells.address(family, *one), []).append((nodes, one))
            for address, arrays in self.store.read(list(left)):
                for nodes, one in left.pop(address):
                    nodes[one] = Summary.of_cell(arrays)
            if not left:
                return

    def _stored(self, family: bytes, nodes: Mapping[Range, Summary], requested: Sequence[Range]) -> list[Range]:
        """Returns the largest stored ranges of a family's granules within `requested` ranges, without those in `nodes` and their parts."""
        if self.store is None or family[:16] not in self.store.families:
            return []
        stored = cells.stored(self.store, family)
        covers = (cells.cover(lambda some: some in nodes or stored(some), one)[0] for one in requested)
        return [one for found in covers for one in found if one not in nodes]

    def _full(self, seeds: int) -> set[int]:
        """Returns the granules in `full` whose seeds are all among the first `seeds` seeds."""
        return self.full & set(self._cut(seeds).full)

    def _cut(self, seeds: int) -> cells.Seeds:
        return self.request.cut if seeds == len(self.request.seeds) else cells.Seeds(self.request.seeds[:seeds])

    def _stored_as_runs(self) -> set[int]:
        """Returns the granules of `full` without statistics, but with stored runs to compute them from; an empty set if more than 64 are found."""
        found: set[int] = set()
        for policy, tree in zip(self.request.policies, self._trees, strict=False):
            for setting, family in enumerate(self.request.families(cells.CURVES, policy)):
                if self.store is not None and family[:16] in self.store.families:
                    there = {g for g in self.full if cells.group(family, g) in self.store.groups}
                    found |= {g for g in there if tree.lacks(setting, [(g, 1)], self._ranges)}
        return found if len(found) <= _MOST_FROM_RUNS else set()

    def left(self, granule: int) -> np.ndarray:
        """Returns a bool array `[settings...]`, True where a granule lacks the statistics of a policy, or of a difference between policies."""
        found = np.zeros([len(values) for values in self.request.axes.values()], bool)
        for tree in self._trees:
            own = [tree.lacks(setting, [(granule, 1)], self._ranges) for setting in range(len(tree.families))]
            found |= np.reshape(own, [tree.axes.get(axis, 1) for axis in self.request.axes])
        return found

    def needed(self, policy: str, tile: Tile, granules: Iterable[int]) -> bool:
        """Whether statistics are missing that need the runs of a policy, at the settings of a tile and for the seeds of these granules."""
        p, requested = self.request.policies.index(policy), cells.ranges(granules)
        own = (tree for tree in self._trees if p in tree.policies)
        return any(tree.lacks(setting, requested, self._ranges) for tree in own for setting in tree.settings(tile))

    # Simulated runs.

    def add(self, tile: Tile, seeds: np.ndarray, curves: Mapping[str, Curves]) -> None:
        """Computes missing statistics from simulated curves, by granules (256 consecutive seeds), and every few seconds stores the new ones.

        Args:
          tile: positions of the simulated settings along all axes.
          seeds: positions, in the request, of the simulated seeds in ascending order; they form whole granules.
          curves: arrays `[tiled axes of the policy..., seeds, ...]` by policy and name.
        """
        request = self.request
        values = request.cut.values[seeds]
        granules = values[::GRANULE] // GRANULE
        ranges = cells.ranges(granules.tolist())
        starts = [int(np.searchsorted(granules, first)) * GRANULE for first, _ in ranges]
        spans = [(start, start + size * GRANULE) for start, (_, size) in zip(starts, ranges, strict=True)]
        full = {}
        for policy, own in curves.items():
            along = tuple(slice(None) if axis in request.policy_axes[policy] else None for axis in request.axes)
            full[request.policies.index(policy)] = {name: array[along] for name, array in own.items()}

        def found(tree: SummaryTree) -> list[list[Summary]]:
            return summarise([full[p] for p in tree.policies], list(tree.numbers), request.zero_flows, values, spans)

        jobs = [tree for tree in self._trees if full.keys() >= set(tree.policies)]
        jobs = [tree for tree in jobs if any(tree.lacks(setting, ranges, self._ranges) for setting in tree.settings(tile))]
        with ThreadPoolExecutor(4) as pool:
            for tree, by_span in zip(jobs, pool.map(found, jobs), strict=True):
                for node, summaries in zip(ranges, by_span, strict=True):
                    for setting, one in zip(tree.settings(tile), summaries, strict=True):
                        if tree.lacks(setting, [node], self._ranges):
                            tree.insert(setting, node, one)
        if time.monotonic() - self._written_s > _WRITE_S:
            self.write()

    def write(self) -> None:
        """Writes new statistics to the store as cells."""
        self._written_s = time.monotonic()
        if self.store is None:
            return
        for tree in self._trees:
            for setting, node in sorted(tree.new):
                if node in tree.nodes[setting]:  # It is missing if an interrupt came during its merge.
                    self.store.put(cells.address(tree.families[setting], *node), tree.nodes[setting][node].cell())
            tree.new.clear()

    # The result.

    def totals(self, seeds: int, parts: Sequence[SummaryTree] | None = None) -> Iterator[tuple[SummaryTree, int, Summary]]:
        """Yields (tree, flat index of a setting, statistics over the first `seeds` seeds) for the trees `parts` (None: all), where runs exist."""
        cut, of_runs = self._cut(seeds), {}
        for granule in self.runs.request.cut.granules if self.runs else ():
            if granule in cut.granules and granule not in self.full:
                of_runs[granule], whole = self._of_runs(granule)
                if whole and cut.masks[granule] == cells.ALL:  # Its single runs are now complete.
                    self._take_full(granule, of_runs.pop(granule))
        order = sorted([*cells.ranges(self._full(seeds)), *((granule, 0) for granule in of_runs)])
        for number, tree in enumerate(self._trees):
            for setting in range(len(tree.families)) if parts is None or tree in parts else ():
                total: Summary | None = None
                for granule, size in order:
                    own = tree.node(setting, (granule, size)) if size else of_runs[granule].get((number, setting))
                    if own is not None:
                        total = own if total is None else total.merged(own)
                if total is not None:
                    yield tree, setting, total

    def _of_runs(self, granule: int) -> tuple[dict[tuple[int, int], Summary], bool]:
        """Computes statistics of the single runs of a granule, from the seeds that all policies have finished at all settings.

        Returns a dict from (index of the tree, index of the setting) to statistics, and whether all runs of the granule are finished.
        """
        assert self.runs is not None
        request, runs = self.request, self.runs
        every = runs.request.cut.granules[granule]
        seeds = every[runs.done[..., every].all(axis=tuple(range(runs.done.ndim - 1)))]
        values, found = runs.request.cut.values[seeds], {}
        for number, tree in enumerate(self._trees if len(seeds) else ()):
            some = []
            for p in tree.policies:
                policy = request.policies[p]
                where = (p, *(slice(None) if axis in request.policy_axes[policy] else slice(1) for axis in request.axes))
                names = ("valid", *request.recorded[policy], *request.zero_flows)
                some.append({name: runs.data[name][where].take(seeds, axis=len(request.axes)) for name in names})
            (summaries,) = summarise(some, list(tree.numbers), request.zero_flows, values, [(0, len(seeds))])
            found |= {(number, setting): one for setting, one in enumerate(summaries)}
        return found, len(seeds) == len(every)

    def _take_full(self, granule: int, summaries: Mapping[tuple[int, int], Summary]) -> None:
        """Adds the statistics of a granule (256 seeds) whose runs are all finished, and its index to `full`. `summaries` comes from `_of_runs`."""
        for (number, setting), one in summaries.items():
            tree, node = self._trees[number], (granule, 1)
            if tree.lacks(setting, [node], self._ranges):
                tree.nodes[setting][node] = one
                tree.new.add((setting, node))
        self.full.add(granule)

    def errors(self, metric: str, policies: Sequence[str], seeds: int) -> np.ndarray:
        """Returns a metric's standard errors at the horizon over the first `seeds` seeds, one per setting of `policies`; `[nan]` without runs."""
        trees = [self._trees[self.request.policies.index(policy)] for policy in policies]
        found = []
        for tree, _, one in self.totals(seeds, trees):
            rows, shape = tree.numbers[metric]
            found.append(one.moments.standard_errors()[rows].reshape(shape)[-1].ravel())
        return np.concatenate(found) if found else np.full(1, np.nan)

    def missing(self, seeds: int) -> str:
        """Describes in words which of the first `seeds` seeds are missing; an empty text means none."""
        self.find(seeds)
        requested, lost = cells.ranges(self._full(seeds)), set[Range]()
        for nodes in (nodes for tree in self._trees for nodes in tree.nodes):
            lost.update(*(cells.cover(nodes.__contains__, one)[1] if nodes else [one] for one in requested))
        granules = self.request.cut.granules
        gone = [granules[granule] for first, size in lost for granule in range(first, first + size)]
        if self.runs is not None:
            undone = ~self.runs.done.reshape(-1, len(self.rest)).all(axis=0)
            gone.append(self.rest[undone & (self.rest < seeds)])
        if not (number := len(positions := np.unique(np.concatenate([np.zeros(0, np.int64), *gone])))):
            return ""
        first = self.request.seeds[positions].min()
        return f"{number:,} of {seeds:,} seeds are missing, of some policies at least, the first of them {first}"

    def dataset(self, seeds: int) -> xr.Dataset:
        """Returns the labelled result of the first `seeds` seeds.

        Each metric has variables that end in `_count`, `_mean`, `_variance` (ddof=1), `_minimum` and `_maximum`, over its valid runs, of dimensions
        `(policy, settings..., time, ...)`. The same variables of NAME_difference concern the difference of each policy to each `baseline`, seed by
        seed. NAME_histogram has the number of runs in each bin, NAME_bin the middles of the bins. `runs` and `invalid` are numbers of runs,
        `first_invalid` is the smallest seed of an invalid run, or -1. FLOW_runs is the number of runs in which a flow that must be zero is not.
        """
        request, totals = self.request, list(self.totals(seeds))
        lead = {"policy": len(request.policies)} | {a: len(v) for a, v in request.axes.items()}
        coords: dict[str, Any] = {"policy": np.asarray(request.policies), **request.axes}
        coords["time"] = request.times.astype(np.int64)
        if several := len(request.policies) > 1:
            coords["baseline"] = np.asarray(request.policies)
        variables: dict[str, Any] = {}
        for name, (metric, shape) in request.variables.items():
            sizes = lead | {"time": len(request.times)} | dict(zip(metric.dims, shape, strict=True))
            if "model" in sizes and len(request.model_names) == sizes["model"]:
                coords["model"] = np.asarray(request.model_names)
            about = metric.attributes
            single, paired = self._moments(name, totals, tuple(sizes.values()))
            variables |= _labelled(name, about, tuple(sizes), single)
            if several:
                label = about | {"long_name": f"{metric.label}, difference to the baseline", "kind": "difference"}
                variables |= _labelled(f"{name}_difference", label, ("policy", "baseline", *list(sizes)[1:]), paired)
            counts, bins = self._histogram(name, totals, tuple(sizes.values()))
            label = {"long_name": f"runs by {metric.label}", "units": "runs", "kind": "histogram"}
            label |= {"relative_accuracy": RELATIVE_ACCURACY}
            variables[f"{name}_histogram"] = ((*sizes, f"{name}_bin"), counts, label)
            coords[f"{name}_bin"] = middles(bins)
        variables |= self._flags(totals, lead)
        return xr.Dataset(variables, coords={name: (name, values) for name, values in coords.items()})

    def so_far(self) -> xr.Dataset:
        """Returns the labelled statistics of the runs simulated so far."""
        return self.dataset(len(self.request.seeds))

    def _moments(self, name: str, totals: _Totals, shape: tuple[int, ...]) -> tuple[Moments, Moments]:
        """Returns moments of a metric, in arrays of `shape`, and moments of its differences between two policies, in arrays `(policies, *shape)`.

        `totals` comes from the method `totals`; `shape` is `(policies, settings..., times, ...)`.
        """
        single = np.tile([0.0, 0.0, 0.0, 0.0, np.inf, -np.inf], (*shape, 1))
        paired = np.stack([single] * shape[0])
        for tree, setting, total in totals:
            if name in tree.numbers:
                rows, own = tree.numbers[name]
                where, packed = tree.region(setting, self.request.axes), total.moments.packed()
                moments = Moments(*(one[rows].reshape(own) for one in packed))
                if len(tree.policies) == 1:
                    single[(*tree.policies, *where)] = np.moveaxis(moments.packed(), 0, -1)
                else:
                    paired[(*tree.policies, *where)] = np.moveaxis(moments.packed(), 0, -1)
                    paired[(*tree.policies[::-1], *where)] = np.moveaxis(moments.reversed().packed(), 0, -1)
        return Moments(*np.moveaxis(single, -1, 0)), Moments(*np.moveaxis(paired, -1, 0))

    def _histogram(self, name: str, totals: _Totals, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Returns counts `[*shape, B]` of the runs whose metric `name` is in each of `B` bins, and the indices of these bins, ascending.

        Bins that are empty in all entries are left out, except bin 0 if no other is left. `totals` and `shape` are as for `_moments`.
        """
        found = []
        for tree, setting, total in totals:
            if len(tree.policies) == 1 and name in tree.numbers:
                rows, own = tree.numbers[name]
                where = (*tree.policies, *tree.region(setting, self.request.axes))
                found.append((where, own, total.histogram.rows(rows.start, rows.stop)))
        bins = np.unique(np.concatenate([np.zeros(0, np.int64), *(rows.bins() for *_, rows in found)]))
        bins = bins if len(bins) else np.zeros(1, np.int64)  # Some formats of files have no dimension of length 0.
        counts = np.zeros((*shape, len(bins)), np.uint32)
        for where, own, rows in found:
            counts[where] = rows.dense(math.prod(own), bins).reshape(*own, len(bins))
        return counts, bins

    def _flags(self, totals: _Totals, lead: Mapping[str, int]) -> dict[str, Any]:
        labels = {
            "first_invalid": ("first seed of a run that is not valid", ""),
            "runs": ("runs", "runs"),
            "invalid": ("runs that are not valid", "runs"),
            **{f"{name}_runs": (f"runs in which {name} is not zero", "runs") for name in self.request.zero_flows},
        }
        flags = np.tile([_NEVER, *[0] * (len(labels) - 1)], (*lead.values(), 1))
        for tree, setting, total in totals:
            if len(tree.policies) == 1:
                flags[(*tree.policies, *tree.region(setting, self.request.axes))] = total.flags
        flags[flags == _NEVER] = -1
        return {
            name: (tuple(lead), flags[..., i], {"long_name": label, "units": unit, "kind": "flag"})
            for i, (name, (label, unit)) in enumerate(labels.items())
        }


def _labelled(name: str, about: Mapping[str, Any], dims: tuple[str, ...], moments: Moments) -> dict[str, Any]:
    variables, unit = {}, about["units"]
    units = {"count": "seeds", "variance": f"({unit})^2" if unit else ""}
    for statistic, values in moments.statistics().items():
        label = {"long_name": f"{statistic} of {about['long_name']}", "units": units.get(statistic, unit)}
        label = dict(about) if statistic == "mean" else label | {"kind": "statistic"}
        variables[f"{name}_{statistic}"] = (dims, values, label)
    return variables
