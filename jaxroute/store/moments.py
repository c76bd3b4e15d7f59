"""Results without single runs: statistics over the seeds, which grow and merge as runs do.

Statistics of 256 seeds are merged with those of their neighbours as in a binary counter (`cells.ranges`). The order of additions, and so
the bits, depends on the seeds alone: not on blocks, processes, interruptions or the order in which they were simulated. Each policy
has statistics, and so has the difference of each pair of policies, seed by seed. Seeds whose granule is not full are stored as
single runs until it is.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from jaxroute.core import reductions
from jaxroute.core.statistics import RELATIVE_ACCURACY, Histogram, Moments, middles
from jaxroute.store import cells
from jaxroute.store.cells import GRANULE, STATISTICS, Request
from jaxroute.store.packs import Store, digest_of
from jaxroute.store.provenance import memory_limit
from jaxroute.store.runs import Runs, Tile

# Bytes of a number's statistics: its moments, and a histogram of some 150 bins, while they are merged.
_BYTES_PER_NUMBER = 4 * (48 + 150 * 16)
# Seconds after which statistics are written.
_WRITE_S = 5.0
# Granules, at most, that are put together from single runs of earlier calls.
_MOST_FROM_RUNS = 64
_NEVER = np.iinfo(np.int64).max

# The numbers of one policy, or of two for their difference.
Key = tuple[int, ...]
Curves = Mapping[str, Any]  # Arrays of NumPy, or of jax on a device.


@dataclasses.dataclass(frozen=True)
class Summary:
    """Statistics of some seeds of one policy (or of a difference) at one setting.

    Attributes:
      moments: of all recorded numbers `[C]`, quantity after quantity.
      histogram: a row for each of them; none of a difference.
      flags: int64 `[3 + Z]`: the first seed whose run is invalid, number of runs, of invalid ones, and for each flow that must be zero of those
        in which it is not.
    """

    moments: Moments
    histogram: Histogram
    flags: np.ndarray

    def merged(self, other: "Summary") -> "Summary":
        """Statistics of both."""
        flags = np.concatenate([np.minimum(self.flags[:1], other.flags[:1]), self.flags[1:] + other.flags[1:]])
        return Summary(self.moments.merged(other.moments), self.histogram.merged(other.histogram), flags)

    def cell(self) -> dict[str, np.ndarray]:
        """The arrays of a cell."""
        arrays = {"moments": self.moments.packed(), "flags": self.flags}
        if self.histogram.keys.size:
            arrays |= {"keys": self.histogram.keys, "counts": self.histogram.counts}
        return arrays

    @staticmethod
    def of_cell(arrays: Mapping[str, np.ndarray]) -> "Summary":
        """The statistics that `cell` made."""
        histogram = Histogram(arrays["keys"], arrays["counts"]) if "keys" in arrays else Histogram.empty()
        return Summary(Moments.unpacked(arrays["moments"]), histogram, arrays["flags"])


class _Known(NamedTuple):
    """Addresses of a family in a store or in memory."""

    where: Container[bytes]
    nodes: Mapping[tuple[int, int], Summary]

    def __contains__(self, one: object) -> bool:
        assert isinstance(one, bytes)
        return one in self.where or cells.range_of(one) in self.nodes


def check_size(request: Request) -> None:
    """Refuses statistics that would not fit into half of the memory.

    Raises:
      ValueError: they would not.
    """
    number = len(request.policies)
    numbers = sum(math.prod(shape) for _, shape in request.variables.values()) * len(request.times)
    numbers *= math.prod(len(v) for v in request.axes.values())
    needed = numbers * (number * _BYTES_PER_NUMBER + number * (number - 1) // 2 * 4 * 48)
    memory = memory_limit(jax.local_devices(backend="cpu")[0])
    if needed > memory // 2:
        raise ValueError(
            f"the statistics would take about {needed / 2**30:,.1f} GiB, more than half of the memory ({memory / 2**30:,.1f} GiB): record fewer "
            "points (record_every) or fewer metrics (record)"
        )


def summarise(
    curves: Sequence[Curves],
    names: Sequence[str],
    zero_flows: Sequence[str],
    seeds: np.ndarray,
    spans: Sequence[tuple[int, int]],
) -> list[list[Summary]]:
    """Returns the statistics of each span of seeds, for each setting, of one policy or of the difference of two.

    Args:
      curves: of one policy or two, arrays `[settings..., R, ...]` with the same number of axes, of size 1 where a policy does not differ, and
        `valid`.
      names: quantities, in order.
      zero_flows: names of flows that must be zero.
      seeds: `[R]`.
      spans: first and last position, each of a power of two granules, or within one granule.
    """
    place = curves[0]["valid"].ndim - 1
    device = all(isinstance(one["valid"], jax.Array) for one in curves)
    packed, histograms = (reductions.reduced if device else _reduced)(curves, names, place, spans)
    flags = [np.zeros(0, np.int64)] * len(spans)
    settings = packed[0].shape[1]
    if len(curves) == 1:
        told = {name: np.asarray(curves[0][name]) for name in ("valid", *zero_flows)}
        bad = ~np.moveaxis(told["valid"], place, -1).reshape(settings, len(seeds))
        broken = [(told[name] != 0).reshape(settings, len(seeds)) for name in zero_flows]
        flags = [_flags(bad[:, a:b], [one[:, a:b] for one in broken], seeds[a:b]) for a, b in spans]
    else:
        flags = [np.full((settings, 1), _NEVER) for _ in spans]
    return [
        [
            Summary(
                Moments.unpacked(packed[i][:, s]),
                histograms[i].rows(s * packed[i].shape[2], (s + 1) * packed[i].shape[2]),
                flags[i][s],
            )
            for s in range(settings)
        ]
        for i in range(len(spans))
    ]


def _flags(bad: np.ndarray, broken: Sequence[np.ndarray], seeds: np.ndarray) -> np.ndarray:
    first = np.where(bad, seeds, _NEVER).min(axis=1)
    return np.stack([first, np.full(len(bad), len(seeds)), *(one.sum(axis=1) for one in (bad, *broken))], axis=1).astype(
        np.int64
    )


def _reduced(
    curves: Sequence[Curves], names: Sequence[str], place: int, spans: Sequence[tuple[int, int]]
) -> tuple[list[np.ndarray], list[Histogram]]:
    """Moments `[6, settings, C]` and histograms of each span; what `reductions.reduced` computes on a device."""
    with np.errstate(invalid="ignore"):
        parts = [_masked(curves[0], name, place) for name in names]
        if len(curves) == 2:
            parts = [part - _masked(curves[1], name, place) for part, name in zip(parts, names, strict=True)]
    runs = parts[0].shape[-1] if parts else 0
    lead = math.prod(np.broadcast_shapes(*(one["valid"].shape[:place] for one in curves)))
    values = np.concatenate([np.zeros((lead, 0, runs)), *(part.reshape(lead, -1, runs) for part in parts)], axis=1)
    packed, histograms = [], []
    for start, stop in spans:
        part = np.ascontiguousarray(values[:, :, start:stop])
        leaves = part.reshape(*part.shape[:2], max(1, (stop - start) // GRANULE), -1)
        moments = Moments.of(leaves)
        while moments.mean.shape[-1] > 1:
            both = moments.packed()
            moments = Moments.unpacked(both[..., 0::2]).merged(Moments.unpacked(both[..., 1::2]))
        packed.append(moments.packed()[..., 0])
        histograms.append(Histogram.of(part.reshape(-1, stop - start)) if len(curves) == 1 else Histogram.empty())
    return packed, histograms


def _masked(curves: Curves, name: str, place: int) -> np.ndarray:
    """A quantity `[settings..., ..., R]`, NaN where a run is not valid."""
    values = np.moveaxis(np.asarray(curves[name], np.float64), place, -1)
    good = np.moveaxis(np.asarray(curves["valid"]), place, -1)
    good = good.reshape(good.shape[:-1] + (1,) * (values.ndim - good.ndim) + good.shape[-1:])
    return values if good.all() else np.where(good, values, np.nan)


class Statistics:
    """The statistics of a result, from the cells that are there and from the runs that are simulated.

    Args:
      request: what the result consists of.
      store: where cells are read and written; None keeps the result in memory alone.
      check: refuses statistics that may not fit into memory.

    Attributes:
      runs: the single runs of granules that are not full, and of those that become full by this call.
    """

    def __init__(self, request: Request, store: Store | None, check: bool = True):
        if check:
            check_size(request)
        self.request, self.store = request, store
        by_name = sorted(range(len(request.policies)), key=request.policies.__getitem__)  # A pair is the same in any order.
        self.keys: list[Key] = [*((p,) for p in range(len(by_name))), *itertools.combinations(by_name, 2)]
        self._axes = {
            key: [a for a in request.axes if any(a in request.policy_axes[request.policies[p]] for p in key)]
            for key in self.keys
        }
        self._names = {
            key: sorted(n for n in request.variables if all(n in request.recorded[request.policies[p]] for p in key))
            for key in self.keys
        }
        own = {policy: request.families(STATISTICS, policy) for policy in request.policies}
        self._families = {key: self._families_of(key, own) for key in self.keys}
        self._nodes: dict[tuple[Key, int], dict[tuple[int, int], Summary]] = {}
        self._read: dict[bytes, Summary] = {}  # From the store, by address.
        self._written_s = time.monotonic()
        self._new: set[tuple[Key, int, tuple[int, int]]] = set()
        self.full = set(request.cut.full)
        self._there: dict[tuple[Key, int], set[int]] = {}
        self.find(len(request.seeds))
        from_runs = self._with_runs()
        self.full -= from_runs
        rest = [part for number, part in request.cut.granules.items() if number not in self.full]
        positions = np.sort(np.concatenate([np.zeros(0, np.int64), *rest]))
        self.rest = positions
        self.runs = Runs(request.with_seeds(request.seeds[positions]), store) if len(positions) else None

    def _families_of(self, key: Key, own: Mapping[str, Sequence[bytes]]) -> list[bytes]:
        """Families of a key, for each setting along its axes."""
        request, axes = self.request, self._axes[key]
        policies = [request.policies[p] for p in key]
        if len(key) == 1:
            return list(own[policies[0]])
        found = []
        for place in np.ndindex(*(len(request.axes[a]) for a in axes)):
            both = [own[policy][self._number(policy, dict(zip(axes, place, strict=True)))] for policy in policies]
            found.append(digest_of(*(one[:16] for one in both)) + digest_of(*(one[16:] for one in both))[:8])
        return found

    def _number(self, policy: str, place: Mapping[str, int]) -> int:
        shape = self.request.shape(policy)
        return int(np.ravel_multi_index([place[a] for a in self.request.policy_axes[policy]], shape)) if shape else 0

    @property
    def families(self) -> list[bytes]:
        """The families of all cells that the result consists of."""
        found = [family for some in self._families.values() for family in some]
        return found + (self.runs.families if self.runs else [])

    def families_in(self, tile: Tile, policies: Sequence[str]) -> list[bytes]:
        """Returns the families of what the runs of some policies on a tile of all axes give."""
        own = {self.request.policies.index(policy) for policy in policies}
        return [self._families[key][n] for key in self.keys if own.issuperset(key) for n in self._numbers(key, tile)]

    # What is there.

    def fill(self) -> None:
        """Looks what is there."""
        self.find(len(self.request.seeds))
        if self.runs is not None:
            self.runs.fill()

    def find(self, seeds: int) -> None:
        """Reads the statistics from which those of the first seeds can be made; from damaged ones no granule counts as there."""
        full = self.full & set(self._cut(seeds).full)
        wanted = cells.ranges(full)
        while True:
            where = {} if self.store is None else self.store.where
            there: dict[tuple[Key, int], set[int]] = {}
            addresses: list[bytes] = []
            for key, families in self._families.items():
                for number, family in enumerate(families):
                    known = _Known(where, self._nodes.get((key, number), {}))
                    if known.nodes or (self.store is not None and family[:16] in self.store.families):
                        covers = [cells.cover(known, family, *one) for one in wanted]
                        there[key, number] = full.difference(*(lost for _, lost in covers))
                        some = [one for found, _ in covers for one in found if cells.range_of(one) not in known.nodes]
                        addresses += [one for one in some if one not in self._read]
            found = {} if self.store is None else {one: Summary.of_cell(a) for one, a in self.store.read(addresses)}
            self._read |= found
            if len(found) == len(addresses):
                break  # Otherwise others may hold what a damaged one does.
        self._there |= there

    def _cut(self, seeds: int) -> cells.Seeds:
        return self.request.cut if seeds == len(self.request.seeds) else cells.Seeds(self.request.seeds[:seeds])

    def _with_runs(self) -> set[int]:
        """Full granules without statistics of which some runs are there."""
        if self.store is None:
            return set()
        found: set[int] = set()
        for p, policy in enumerate(self.request.policies):
            for number, family in enumerate(self.request.families(cells.CURVES, policy)):
                if family[:16] in self.store.families:
                    lacking = self.full - self._there.get(((p,), number), set())
                    found |= {g for g in lacking if cells.group(family, g) in self.store.groups}
        return found if len(found) <= _MOST_FROM_RUNS else set()

    def left(self, granules: Iterable[int]) -> np.ndarray:
        """Returns of which settings, along all axes, something of some full granules is to be simulated."""
        wanted = set(granules)
        found = np.zeros([len(values) for values in self.request.axes.values()], bool)
        for key, families in self._families.items():
            for number in range(len(families)):
                if wanted - self._there.get((key, number), set()):
                    found[self._region(key, number)] = True
        return found

    # What is simulated.

    def add(self, tile: Tile, seeds: np.ndarray, curves: Mapping[str, Curves]) -> None:
        """Computes the statistics of full granules from the curves of the policies that are needed.

        Args:
          tile: positions along all axes.
          seeds: positions in the seeds of the request, in the order of the seeds.
          curves: by policy, arrays `[tiled axes of the policy..., seeds, ...]` by name.
        """
        request = self.request
        values = request.cut.values[seeds]
        granules = values[::GRANULE] // GRANULE
        spans, firsts = [], []
        for first, size in cells.ranges(granules.tolist()):
            start = int(np.searchsorted(granules, first)) * GRANULE
            spans.append((start, start + size * GRANULE))
            firsts.append((first, size))
        axes = list(request.axes)
        full = {}
        for policy, own in curves.items():
            lacking = [i for i, axis in enumerate(axes) if axis not in request.policy_axes[policy]]
            full[policy] = {name: _expanded(array, lacking) for name, array in own.items()}
        jobs = [
            key for key in self.keys if all(request.policies[p] in full for p in key) and self._wants(key, tile, granules)
        ]

        def found(key: Key) -> list[list[Summary]]:
            some = [full[request.policies[p]] for p in key]
            return summarise(some, self._names[key], request.zero_flows, values, spans)

        with ThreadPoolExecutor(4) as pool:
            for key, by_span in zip(jobs, pool.map(found, jobs), strict=True):
                numbers = self._numbers(key, tile)
                for node, summaries in zip(firsts, by_span, strict=True):
                    for number, one in zip(numbers, summaries, strict=True):
                        if not self._covered(key, number, node):
                            self._insert(key, number, node, one)
        if time.monotonic() - self._written_s > _WRITE_S:
            self.write()

    def _numbers(self, key: Key, tile: Tile) -> list[int]:
        """Numbers of the settings of a tile among those of a key, in its order."""
        axes = self._axes[key]
        shape = [len(self.request.axes[a]) for a in axes]
        if not axes:
            return [0]
        grid = np.meshgrid(*(tile[a] for a in axes), indexing="ij")
        return np.ravel_multi_index([one.ravel() for one in grid], shape).tolist()

    def _wants(self, key: Key, tile: Tile, granules: np.ndarray) -> bool:
        wanted = set(granules.tolist())
        return any(wanted - self._there.get((key, number), set()) for number in self._numbers(key, tile))

    def needed(self, policy: str, tile: Tile, granules: Iterable[int]) -> bool:
        """Says whether a policy is to be simulated on a tile of all axes and some full granules."""
        p, wanted = self.request.policies.index(policy), np.fromiter(granules, np.int64)
        return any(p in key and self._wants(key, tile, wanted) for key in self.keys)

    def _covered(self, key: Key, number: int, node: tuple[int, int]) -> bool:
        there = self._there.get((key, number), set())
        return bool(there) and all(g in there for g in range(node[0], node[0] + node[1]))

    def _insert(self, key: Key, number: int, node: tuple[int, int], summary: Summary) -> None:
        """Adds statistics, and merges them with those of their neighbours."""
        nodes = self._nodes.setdefault((key, number), {})
        there = self._there.setdefault((key, number), set())
        first, size = node
        there.update(range(first, first + size))
        while True:
            nodes[first, size] = summary
            self._new.add((key, number, (first, size)))
            left = first - first % (2 * size)
            other = (left + size if left == first else left), size
            if left == 0 or other not in nodes:
                return
            a, b = (nodes.pop((left, size)), nodes.pop((left + size, size)))
            self._new -= {(key, number, (left, size)), (key, number, (left + size, size))}
            summary, first, size = a.merged(b), left, 2 * size

    def write(self) -> None:
        """Puts what is new into cells."""
        self._written_s = time.monotonic()
        if self.store is None:
            return
        for key, number, node in sorted(self._new):
            if node not in self._nodes[key, number]:  # An interrupt came while it was merged.
                continue
            self.store.put(cells.address(self._families[key][number], *node), self._nodes[key, number][node].cell())
        self._new.clear()

    # The result.

    def complete(self, seeds: int) -> None:
        """Makes statistics of those granules of the first seeds that have become full of single runs."""
        if self.runs is None:
            return
        inside = self._cut(seeds).masks
        for number, mask in self.runs.request.cut.masks.items():
            if mask == inside.get(number) == cells.ALL and number not in self.full:
                self._from_runs(number)

    def _from_runs(self, granule: int) -> None:
        assert self.runs is not None
        if not self.runs.done[..., self.runs.request.cut.granules[granule]].all():
            return
        for (key, number), one in self._summaries_of_runs(granule).items():
            if granule not in self._there.get((key, number), set()):
                self._insert(key, number, (granule, 1), one)
        self.full.add(granule)

    def _summaries_of_runs(self, granule: int) -> dict[tuple[Key, int], Summary]:
        """Statistics of the runs of a granule, of those seeds that all policies have at all settings."""
        assert self.runs is not None
        request, runs = self.request, self.runs
        part = runs.request.cut.granules[granule]
        part = part[runs.done[..., part].all(axis=tuple(range(runs.done.ndim - 1)))]
        values, found = runs.request.cut.values[part], {}
        for key in self.keys if len(part) else ():
            some = []
            for p in key:
                policy = request.policies[p]
                index: list[Any] = [p]
                for axis in request.axes:
                    index.append(slice(None) if axis in request.policy_axes[policy] else slice(1))
                names = ("valid", *request.recorded[policy], *request.zero_flows)
                some.append({name: runs.data[name][tuple(index)].take(part, axis=len(request.axes)) for name in names})
            summaries = summarise(some, self._names[key], request.zero_flows, values, [(0, len(part))])[0]
            found |= {(key, number): one for number, one in enumerate(summaries)}
        return found

    def totals(self, seeds: int, keys: Sequence[Key] | None = None, so_far: bool = False) -> dict[tuple[Key, int], Summary]:
        """Returns the statistics of the first seeds, by key and number of the setting; those that are not there are left out.

        `so_far`: of a simulation that continues, perhaps with a look at fewer seeds.
        """
        cut = self._cut(seeds)
        if not so_far:
            self.complete(seeds)
        full = self.full & set(cut.full)
        wanted = cells.ranges(full)
        of_runs = (
            {number: self._summaries_of_runs(number) for number in cut.granules if number not in full} if self.runs else {}
        )
        order = sorted([*wanted, *((number, 0) for number in of_runs)])
        found = {}
        for key in keys or self.keys:
            for number in range(len(self._families[key])):
                total: Summary | None = None
                for node in order:
                    own = self._node(key, number, node) if node[1] else of_runs[node[0]].get((key, number))
                    if own is not None:
                        total = own if total is None else total.merged(own)
                if total is not None:
                    found[key, number] = total
        return found

    def _node(self, key: Key, number: int, node: tuple[int, int]) -> Summary | None:
        """Statistics of a range, from the largest parts that there are."""
        address = cells.address(self._families[key][number], *node)
        here = self._nodes.get((key, number), {}).get(node) or self._read.get(address)
        if here is not None or node[1] == 1:
            return here
        half = node[1] // 2
        a, b = (self._node(key, number, (first, half)) for first in (node[0], node[0] + half))
        return a.merged(b) if a is not None and b is not None else a or b

    def errors(self, metric: str, policies: Sequence[str], seeds: int) -> np.ndarray:
        """Returns the standard errors of a metric at the horizon over the first seeds, of some policies and all settings."""
        keys: list[Key] = [(self.request.policies.index(policy),) for policy in policies]
        found = []
        for (key, _), one in self.totals(seeds, keys).items():
            start, shape = self._rows(key)[metric]
            errors = one.moments.standard_errors()[start : start + math.prod(shape)].reshape(shape)
            found.append(errors[-1].ravel())
        return np.concatenate(found) if found else np.full(1, np.nan)

    def _rows(self, key: Key) -> dict[str, tuple[int, tuple[int, ...]]]:
        """First number and shape of each quantity of a key."""
        found, start = {}, 0
        for name in self._names[key]:
            shape = (len(self.request.times), *self.request.variables[name][1])
            found[name] = start, shape
            start += math.prod(shape)
        return found

    def missing(self, seeds: int) -> str:
        """Says what of the first seeds is not there; empty if all is."""
        self.find(seeds)
        full = self.full & set(self._cut(seeds).full)
        lost: set[int] = set()
        for key, families in self._families.items():
            for number in range(len(families)):
                lost |= full - self._there.get((key, number), set())
        gone = np.concatenate([np.zeros(0, np.int64), *(self.request.cut.granules[one] for one in sorted(lost))])
        if self.runs is not None:
            undone = ~self.runs.done.reshape(-1, len(self.rest)).all(axis=0)
            gone = np.concatenate([gone, self.rest[undone & (self.rest < seeds)]])
        if not len(gone):
            return ""
        return f"{len(gone):,} of {seeds:,} seeds are missing, of some policies at least, the first of them {self.request.seeds[gone].min()}"

    def dataset(self, seeds: int, so_far: bool = False) -> xr.Dataset:
        """Returns the labelled result of the first seeds.

        For each metric the variables `_count`, `_mean`, `_variance` (ddof=1), `_minimum` and `_maximum` of its valid runs, of dimensions
        `(policy, settings..., time, ...)`; the same of `_difference`, seed by seed, of each policy to each `baseline`; and `_histogram`, counts
        over `NAME_bin`, the numbers in the middle of the bins. Besides, the numbers of `runs` and of `invalid` ones, `first_invalid` (the first
        seed of them, or -1), and `_runs` of each flow that must be zero, the number of runs in which it is not.
        """
        request, totals = self.request, self.totals(seeds, so_far=so_far)
        lead = {"policy": len(request.policies)} | {a: len(v) for a, v in request.axes.items()}
        coords: dict[str, Any] = {
            "policy": np.asarray(request.policies),
            **request.axes,
            "time": request.times.astype(np.int64),
        }
        several = len(request.policies) > 1
        if several:
            coords["baseline"] = np.asarray(request.policies)
        variables: dict[str, Any] = {}
        for name, (metric, shape) in request.variables.items():
            sizes = lead | {"time": len(request.times)} | dict(zip(metric.dims, shape, strict=True))
            if "model" in sizes and len(request.model_names) == sizes["model"]:
                coords["model"] = np.asarray(request.model_names)
            alone, apart = self._filled(name, totals, sizes)
            about = metric.attributes
            variables |= _labelled(name, about, tuple(sizes), alone)
            if several:
                label = about | {"long_name": f"{metric.label}, difference to the baseline", "kind": "difference"}
                variables |= _labelled(f"{name}_difference", label, ("policy", "baseline", *list(sizes)[1:]), apart)
            counts, bins = self._histogram(name, totals, sizes)
            attributes = {
                "long_name": f"runs by {metric.label}",
                "units": "runs",
                "kind": "histogram",
                "relative_accuracy": RELATIVE_ACCURACY,
            }
            variables[f"{name}_histogram"] = ((*sizes, f"{name}_bin"), counts, attributes)
            coords[f"{name}_bin"] = middles(bins)
        variables |= self._flag_variables(totals, lead)
        return xr.Dataset(variables, coords={name: (name, values) for name, values in coords.items()})

    def so_far(self) -> xr.Dataset:
        """Returns the statistics of what all policies have played."""
        return self.dataset(len(self.request.seeds), so_far=True)

    def _region(self, key: Key, number: int) -> tuple[Any, ...]:
        """Position of a setting of a key along all axes."""
        axes = self._axes[key]
        place = (
            dict(zip(axes, np.unravel_index(number, [len(self.request.axes[a]) for a in axes]), strict=True)) if axes else {}
        )
        return tuple(place.get(axis, slice(None)) for axis in self.request.axes)

    def _filled(self, name: str, totals: Mapping[tuple[Key, int], Summary], sizes: Mapping[str, int]):
        """Statistics of a metric, and of its differences, over all settings."""
        shape, number = tuple(sizes.values()), len(self.request.policies)
        nothing = Moments(*(np.full((), v) for v in (0.0, 0.0, 0.0, 0.0, np.inf, -np.inf))).statistics()
        alone = {s: np.full(shape, v) for s, v in nothing.items()}
        apart = {s: np.full((number, *shape), v) for s, v in nothing.items()} if number > 1 else {}
        for (key, setting), total in totals.items():
            if name not in self._names[key]:
                continue
            start, own = self._rows(key)[name]
            moments = Moments.unpacked(total.moments.packed()[:, start : start + math.prod(own)].reshape(6, *own))
            where = self._region(key, setting)
            if len(key) == 1:
                for s, values in moments.statistics().items():
                    alone[s][(key[0], *where)] = values
                continue
            for place, one in ((key, moments), (key[::-1], moments.reversed())):
                for s, values in one.statistics().items():
                    apart[s][(*place, *where)] = values
        return alone, apart

    def _histogram(self, name: str, totals: Mapping[tuple[Key, int], Summary], sizes: Mapping[str, int]):
        """Counts `[..., bins]` of a metric over all settings, and the bins that hold something anywhere."""
        found = []
        for (key, number), total in totals.items():
            if len(key) == 1 and name in self._names[key]:
                start, shape = self._rows(key)[name]
                found.append(
                    ((key[0], *self._region(key, number)), shape, total.histogram.rows(start, start + math.prod(shape)))
                )
        bins = np.unique(np.concatenate([np.zeros(0, np.int64), *(rows.bins() for *_, rows in found)]))
        bins = bins if len(bins) else np.zeros(1, np.int64)  # Some formats of files have no dimension of length 0.
        counts = np.zeros((*sizes.values(), len(bins)), np.uint32)
        for where, shape, rows in found:
            counts[where] = rows.dense(math.prod(shape), bins).reshape(*shape, len(bins))
        return counts, bins

    def _flag_variables(self, totals: Mapping[tuple[Key, int], Summary], lead: Mapping[str, int]) -> dict[str, Any]:
        """Numbers of runs that are not valid, and why."""
        flows = self.request.zero_flows
        names = ["first_invalid", "runs", "invalid", *(f"{name}_runs" for name in flows)]
        arrays = {name: np.full(tuple(lead.values()), -1 if name == "first_invalid" else 0, np.int64) for name in names}
        for (key, number), total in totals.items():
            if len(key) == 1:
                for name, value in zip(names, total.flags.tolist(), strict=True):
                    arrays[name][(key[0], *self._region(key, number))] = -1 if value == _NEVER else value
        labels = {
            "runs": ("runs", "runs"),
            "invalid": ("runs that are not valid", "runs"),
            "first_invalid": ("first seed of a run that is not valid", ""),
            **{f"{name}_runs": (f"runs in which {name} is not zero", "runs") for name in flows},
        }
        return {
            n: (tuple(lead), arrays[n], {"long_name": label, "units": unit, "kind": "flag"})
            for n, (label, unit) in labels.items()
        }


def _expanded(array: Any, places: Sequence[int]) -> Any:
    """An array with axes of length 1 at these places."""
    rest = iter(array.shape)
    return array.reshape(tuple(1 if i in places else next(rest) for i in range(array.ndim + len(places))))


def _labelled(
    name: str, about: Mapping[str, Any], dims: tuple[str, ...], statistics: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Variables of a metric's statistics."""
    variables = {}
    for statistic, values in statistics.items():
        label = dict(about)
        if statistic != "mean":
            unit = about["units"]
            unit = {"count": "seeds", "variance": f"({unit})^2" if unit else ""}.get(statistic, unit)
            label = {"long_name": f"{statistic} of {about['long_name']}", "units": unit, "kind": "statistic"}
        variables[f"{name}_{statistic}"] = (dims, values, label)
    return variables
