"""Results without single runs: statistics of each block of seeds, merged as the blocks come, in memory or in a store of fixed size.

Counts, minima, maxima and histograms are the same in whatever order blocks are merged; means and variances are not, in their last bits.
So the blocks belong to a fixed number of strands (block `b` to strand `b % 16`), each is merged in order, and the strands are merged in
order when the result is made. The bits then do not depend on how many processes play, nor on interruptions.

In a store, each process rewrites one file per tile of settings after each block: its strands, its histogram, and which blocks they
cover. A file carries a digest, is flushed to the disk and takes its place in one step, so that a process that dies loses the block that
it plays, and a power cut at most the one before.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import xarray as xr

from jaxroute.store import integrity, provenance, reductions
from jaxroute.store.description import DONE, Contents
from jaxroute.store.places import Place
from jaxroute.store.sink import Sink, Task, writes
from jaxroute.store.states import Kept
from jaxroute.store.statistics import RELATIVE_ACCURACY, Histogram, Moments, middles

STRANDS = 16
# Bytes of a number's statistics: moments in each strand, and a histogram of some 150 bins, twice.
_BYTES_PER_CELL = STRANDS * 48 + 2 * 150 * 16
_NEVER = np.iinfo(np.int64).max

Key = tuple[Any, ...]
Curves = Mapping[str, Any]  # Arrays of NumPy, or of jax on a device.


@dataclasses.dataclass(frozen=True)
class Frame:
    """What is measured, without the measurements.

    policies: names. axes: coordinates of the settings by axis; own_axes: the axes of each policy. times: of records.
    variables: attributes of each metric, with its own `dims` and `shape`. block, tile: seeds and settings of a block. seeds: number.
    """

    policies: list[str]
    axes: dict[str, np.ndarray]
    own_axes: dict[str, list[str]]
    times: np.ndarray
    variables: dict[str, dict[str, Any]]
    model_names: list[str]
    zero_flows: list[str]
    block: int
    tile: dict[str, int]
    seeds: int

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["axes"] = {name: {"dtype": v.dtype.str, "values": v.tolist()} for name, v in self.axes.items()}
        return json.loads(json.dumps({**fields, "times": self.times.tolist()}))

    @staticmethod
    def made_of(plain: Mapping[str, Any]) -> "Frame":
        """The frame that `plain` wrote."""
        axes = {name: np.asarray(v["values"], v["dtype"]) for name, v in plain["axes"].items()}
        return Frame(**{**plain, "axes": axes, "times": np.asarray(plain["times"], np.int64)})

    @property
    def blocks(self) -> int:
        return -(-self.seeds // self.block)

    def tiles(self) -> list[dict[str, int]]:
        """First setting of each tile along each axis."""
        starts = [range(0, len(v), self.tile[a]) for a, v in self.axes.items()]
        return [dict(zip(self.axes, place, strict=True)) for place in itertools.product(*starts)]

    def tile_values(self) -> list[tuple[Any, ...]]:
        """The values of the settings of each tile along each axis."""
        values = {a: v.tolist() for a, v in self.axes.items()}
        return [tuple(tuple(values[a][i : i + self.tile[a]]) for a, i in start.items()) for start in self.tiles()]

    def tile_name(self, number: int) -> str:
        """A tile in words."""
        if not self.axes:
            return "all policies"
        words = []
        for axis, start in self.tiles()[number].items():
            values = self.axes[axis][start : start + self.tile[axis]]
            words.append(f"{axis} {values[0]}" if len(values) == 1 else f"{axis} {values[0]} to {values[-1]}")
        return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Statistics of a block or of many.

    cells: key and shape of each array of numbers, in order: `(metric, policy)`, then `(metric, policy, other policy)` for differences.
    moments: of all cells `[C]`. histogram: a row per cell of a single policy. flags: int64 `[4 + Z, ...]` for each policy and its
    settings: place among the seeds of the first invalid run, its seed, number of runs, of invalid ones, and for each flow that must
    be zero of those in which it is not.
    """

    cells: list[tuple[Key, tuple[int, ...]]]
    moments: Moments
    histogram: Histogram
    flags: np.ndarray

    def arrays(self):
        """`(key, moments of its shape, first row in the histogram)` of each array of numbers."""
        start = 0
        for key, shape in self.cells:
            stop = start + math.prod(shape)
            yield key, Moments.unpacked(self.moments.packed()[:, start:stop].reshape(6, *shape)), start
            start = stop


def summarise(curves: Sequence[Curves], zero_flows: Sequence[str], first: int, seeds: np.ndarray) -> Summary:
    """Statistics of one block of seeds and one tile of settings, computed where the curves are.

    Args:
      curves: of each policy, arrays `[settings..., R, ...]` with all axes of settings, of size 1 where a policy does not have them, and
        `valid`. first: place of the first seed among all. seeds: `[R]`.
    """
    names = dict.fromkeys(n for one in curves for n in one if n != "valid" and n not in zero_flows)
    singles: list[Key] = [(n, p) for n in names for p, one in enumerate(curves) if n in one]
    pairs: list[Key] = [(n, p, q) for n in names for p, q in itertools.combinations(range(len(curves)), 2)]
    pairs = [key for key in pairs if all(key[0] in curves[p] for p in key[1:])]
    on_device = all(isinstance(one["valid"], jax.Array) for one in curves)
    found, histogram = (_on_device if on_device else _on_host)(curves, singles, pairs)
    cells = [(key, moments.mean.shape) for key, moments in zip([*singles, *pairs], found, strict=True)]
    packed = np.concatenate([m.packed().reshape(6, -1) for m in found], axis=1) if found else np.zeros((6, 0))
    told = [{name: np.asarray(one[name]) for name in ("valid", *zero_flows)} for one in curves]
    flags = [_flags(one, np.moveaxis(one["valid"], _runs_axis(one), -1), zero_flows, first, seeds) for one in told]
    return Summary(cells, Moments.unpacked(packed), histogram, np.concatenate(flags, axis=1))


def _on_device(curves: Sequence[Curves], singles: Sequence[Key], pairs: Sequence[Key]) -> tuple[list[Moments], Histogram]:
    return reductions.reduced(curves, singles, pairs, [_runs_axis(one) for one in curves])


def _on_host(curves: Sequence[Curves], singles: Sequence[Key], pairs: Sequence[Key]) -> tuple[list[Moments], Histogram]:
    """Moments of arrays and of differences, and the histogram of the arrays' rows one after the other."""
    valid = [np.moveaxis(one["valid"], _runs_axis(one), -1) for one in curves]

    def masked(policy: int, name: str) -> np.ndarray:
        values = np.moveaxis(np.asarray(curves[policy][name], np.float64), _runs_axis(curves[policy]), -1)
        good = valid[policy]
        good = good.reshape(good.shape[:-1] + (1,) * (values.ndim - good.ndim) + good.shape[-1:])
        return np.ascontiguousarray(values) if good.all() else np.where(good, values, np.nan)

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        values = dict(zip(singles, pool.map(lambda key: masked(key[1], key[0]), singles), strict=True))

        def of_single(key):
            return Moments.of(values[key]), Histogram.of(values[key].reshape(-1, values[key].shape[-1]))

        def of_pair(key):
            with np.errstate(invalid="ignore"):
                return Moments.of(values[key[0], key[1]] - values[key[0], key[2]])

        alone, apart = list(pool.map(of_single, singles)), list(pool.map(of_pair, pairs))
    starts = np.cumsum([0, *(moments.mean.size for moments, _ in alone)])
    histograms = [histogram.moved(int(start)) for (_, histogram), start in zip(alone, starts, strict=False)]
    return [moments for moments, _ in alone] + apart, Histogram.joined(histograms)


def _expanded(shape: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    """A shape with axes of length 1 at these places."""
    rest = iter(shape)
    return tuple(1 if i in places else next(rest) for i in range(len(shape) + len(places)))


def _runs_axis(curves: Curves) -> int:
    return curves["valid"].ndim - 1


def _flags(curves: Curves, valid: np.ndarray, zero_flows: Sequence[str], first: int, seeds: np.ndarray) -> np.ndarray:
    bad = ~valid.reshape(-1, valid.shape[-1])
    some, place = bad.any(axis=1), bad.argmax(axis=1)
    counted = [(curves[name] != 0).reshape(bad.shape).sum(axis=1) for name in zero_flows]
    which = [np.where(some, first + place, _NEVER), np.where(some, seeds[place], -1)]
    return np.stack([*which, np.full(len(bad), len(seeds)), bad.sum(axis=1), *counted])


def merge_flags(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Flags of both."""
    return np.concatenate([np.where(one[0] <= other[0], one[:2], other[:2]), one[2:] + other[2:]])


@dataclasses.dataclass(eq=False)
class Part:
    """What one process knows of one tile.

    strands: moments by strand, each of all blocks of that strand so far, whoever has played them. covered: by strand the spans of
    positions in it (position `i` is block `16 i + strand`) that this process itself has merged, and whose histogram and flags it holds.
    tail: the last block of all, if it has fewer seeds than the others, with its strand and position: merged at the end only, so that the block
    may still grow.
    """

    strands: dict[int, Moments] = dataclasses.field(default_factory=dict)
    covered: dict[int, list[list[int]]] = dataclasses.field(default_factory=dict)
    cells: list[tuple[Key, tuple[int, ...]]] = dataclasses.field(default_factory=list)
    histogram: Histogram = dataclasses.field(default_factory=Histogram.empty)
    flags: np.ndarray | None = None
    tail: "tuple[int, int, Summary] | None" = None

    def add(self, strand: int, position: int, before: Moments | None, block: Summary) -> None:
        """Merges the block at a position of a strand, whose moments so far are `before`."""
        self.cells = block.cells
        self.strands[strand] = block.moments if before is None else before.merged(block.moments)
        spans = self.covered.setdefault(strand, [])
        if spans and spans[-1][1] == position:
            spans[-1][1] += 1
        else:
            spans.append([position, position + 1])
        self.histogram = self.histogram.merged(block.histogram)
        self.flags = block.flags if self.flags is None else merge_flags(self.flags, block.flags)

    def summaries(self) -> list[Summary]:
        """What it holds besides moments: of its own blocks, and of the tail."""
        own = (
            []
            if self.flags is None
            else [Summary(self.cells, Moments.unpacked(np.zeros((6, 0))), self.histogram, self.flags)]
        )
        return own if self.tail is None else [*own, self.tail[2]]

    def encoded(self, tile: int, belongs: bytes = b"") -> bytes:
        """As the content of a file, with a digest of it and of what it belongs to."""
        strands = sorted(self.strands)
        moments = [self.strands[s].packed() for s in strands]
        flags = np.zeros((0, 0), np.int64) if self.flags is None else self.flags
        arrays = [np.stack(moments) if moments else np.zeros((0, 6, 0)), self.histogram.keys, self.histogram.counts, flags]
        about: dict[str, Any] = {"tile": tile, "strands": strands, "covered": sorted(self.covered.items())}
        if self.tail is not None:
            *about["tail"], last = self.tail
            arrays += [last.moments.packed(), last.histogram.keys, last.histogram.counts, last.flags]
        about["cells"] = self.summaries()[0].cells
        about["arrays"] = [[a.dtype.str, a.shape] for a in arrays]
        head = json.dumps(about).encode()
        body = b"".join([len(head).to_bytes(8, "little"), head, *(np.ascontiguousarray(a).tobytes() for a in arrays)])
        return hashlib.blake2b(belongs + body, digest_size=16).digest() + body

    @staticmethod
    def decoded(content: bytes, tile: int, belongs: bytes = b"") -> "Part":
        """The part that `encoded` wrote; `ValueError` if it is not what was written, of another tile or of other settings."""
        body = content[16:]
        if len(content) < 24 or hashlib.blake2b(belongs + body, digest_size=16).digest() != content[:16]:
            raise ValueError("not what was written")
        size = int.from_bytes(body[:8], "little")
        about, place, arrays = json.loads(body[8 : 8 + size]), 8 + size, []
        if about["tile"] != tile:
            raise ValueError("the file of another tile")
        for dtype, shape in about["arrays"]:
            number = math.prod(shape)
            arrays.append(np.frombuffer(body, dtype, number, place).reshape(shape))
            place += arrays[-1].nbytes
        moments, keys, counts, flags, *rest = arrays
        cells = [(tuple(key), tuple(shape)) for key, shape in about["cells"]]
        strands = {s: Moments.unpacked(m) for s, m in zip(about["strands"], moments, strict=True)}
        found = Part(strands, dict(about["covered"]), cells, Histogram(keys, counts), flags if strands else None)
        if rest:
            strand, position = about["tail"]
            found.tail = strand, position, Summary(cells, Moments.unpacked(rest[0]), Histogram(*rest[1:3]), rest[3])
        return found


@dataclasses.dataclass(eq=False)
class Known:
    """What all processes together know of one tile.

    reached: by strand, how many of its blocks are merged. strands: their moments. parts: of all processes.
    """

    reached: dict[int, int]
    strands: dict[int, Moments]
    parts: list[Part]

    @staticmethod
    def of(parts: Sequence[Part]) -> "Known":
        """Puts parts together; `ValueError` if they leave out a block, or count one twice."""
        reached, strands = {}, {}
        for strand in sorted({s for part in parts for s in part.covered}):
            spans = sorted(tuple(span) for part in parts for span in part.covered.get(strand, ()))
            if [start for start, _ in spans] != [0, *(stop for _, stop in spans[:-1])]:
                raise ValueError("some blocks are missing, or counted twice")
            reached[strand] = spans[-1][1]
            last = [p for p in parts if strand in p.covered and p.covered[strand][-1][1] == reached[strand]]
            strands[strand] = last[0].strands[strand]
        for strand, position, last in (part.tail for part in parts if part.tail is not None):
            if reached.get(strand, 0) != position:
                raise ValueError("some blocks are missing, or counted twice")
            reached[strand] = position + 1
            strands[strand] = strands[strand].merged(last.moments) if strand in strands else last.moments
        return Known(reached, strands, list(parts))

    def blocks(self) -> int:
        """Number of blocks merged."""
        return sum(self.reached.values())

    def has(self, block: int) -> bool:
        return block // STRANDS < self.reached.get(block % STRANDS, 0)

    def moments(self) -> Moments | None:
        """Of all blocks, the strands merged in order."""
        total = None
        for strand in sorted(self.strands):
            total = self.strands[strand] if total is None else total.merged(self.strands[strand])
        return total

    def total(self) -> Summary | None:
        """Of all blocks; None if there are none."""
        moments, parts = self.moments(), [one for part in self.parts for one in part.summaries()]
        if moments is None or not parts:
            return None
        histogram, flags = parts[0].histogram, parts[0].flags
        for part in parts[1:]:
            histogram, flags = histogram.merged(part.histogram), merge_flags(flags, part.flags)
        return Summary(parts[0].cells, moments, histogram, flags)


def _file(folder: Place, tile: int, owner: int) -> Place:
    return folder / f"{tile}-{owner}.part"


def belonging(attributes: Mapping[str, Any]) -> bytes:
    """What the parts of a store belong to: its settings and how it is cut; nothing in format 2, whose files do not say it."""
    if attributes["settings"]["format"] == 2:
        return b""
    apart = {name: value for name, value in attributes["settings"].items() if name != "until_stderr"}
    return json.dumps([apart, attributes["layout"]], sort_keys=True).encode()


def _names(folder: Place, tile: int) -> list[str]:
    return [name for name in folder.names(f"{tile}-") if name.endswith(".part")]


def read_parts(folder: Place, tile: int, belongs: bytes) -> dict[int, Part]:
    """Parts of a tile by process; `ValueError` if one is not what was written."""
    found = {int(name.rpartition("-")[2].removesuffix(".part")): (folder / name).read() for name in _names(folder, tile)}
    return {owner: Part.decoded(content or b"", tile, belongs) for owner, content in found.items()}


class MomentSink(Sink):
    """Where finished blocks go if only their statistics are kept.

    repair: takes damaged files out of an existing store, to be played again; one process of a run does that. rank: of this process.
    """

    def __init__(
        self, path: str | os.PathLike[str] | Place | None, contents: Contents, *, repair: bool = True, rank: int = 0
    ):
        self.contents, layout = contents, contents.layout
        about = {
            name: {**m.attributes, "dims": list(m.dims), "shape": list(shape)}
            for name, (m, shape) in contents.variables.items()
        }
        self.frame = Frame(
            list(contents.policies),
            dict(contents.axes),
            {p: list(a) for p, a in contents.policy_axes.items()},
            contents.times.astype(np.int64),
            about,
            list(contents.model_names),
            list(contents.zero_flows),
            layout.block,
            dict(layout.tile),
            len(contents.seeds),
        )
        self.seeds, self.layout, self.rank, self.wanted = contents.seeds.astype(np.int64), layout, rank, self.frame.blocks
        _check_memory(self.frame, provenance.memory_limit(jax.local_devices(backend="cpu")[0]))
        self.group = self._open(path, contents.settings, repair)
        self.tiles = self.frame.tiles()
        self.curves: dict[tuple[str, Key], Curves] = {}
        self.known = [Known({}, {}, []) for _ in self.tiles]
        self.own = [Part() for _ in self.tiles]
        if self.group is not None:
            self.folder, self.belongs = self.store / DONE, belonging(self.attrs)
            if repair:
                self._describe()
            for tile in range(len(self.tiles)):
                self._restore(tile, repair)

    @writes
    def _describe(self) -> None:
        """Writes what the result will look like, twice."""
        wanted = {"frame": self.frame.plain()}
        if self._is_said(wanted):
            return
        try:
            self.group.require_group(DONE)
        except integrity.UNREADABLE:
            (self.folder / "zarr.json").delete()
            self.group.require_group(DONE)
        self._say(wanted)

    @writes
    def _restore(self, tile: int, repair: bool) -> None:
        """Reads what is known of a tile; what is damaged is forgotten, with all that belongs to it."""
        try:
            parts = read_parts(self.folder, tile, self.belongs)
            known = Known.of(list(parts.values()))
        except ValueError as error:
            if not repair:
                raise
            warnings.warn(
                f"the statistics of {self.frame.tile_name(tile)} in {str(self.store)!r} are damaged ({error}); they are played again",
                stacklevel=7,
            )
            for name in _names(self.folder, tile):
                (self.folder / name).delete()
            return
        self.known[tile] = known
        self.own[tile] = parts.get(self.rank, self.own[tile])

    def _place(self, policy: str, tile: Mapping[str, int]) -> Key:
        """What of a tile matters to a policy."""
        return tuple(tile[a] for a in self.frame.own_axes[policy])

    def is_done(self, policy: str, tile: Mapping[str, int], block: int) -> bool:
        """Whether this block has been merged wherever this policy is needed."""
        return all(
            known.has(block)
            for whole, known in zip(self.tiles, self.known, strict=True)
            if all(whole[a] == start for a, start in tile.items())
        )

    def order(self, task: Task) -> Key:
        """Tasks in this order need few curves at a time: block by block, tile by tile, the policies of a tile together."""
        policy, tile, block = task
        return block, *(tile.get(a, 0) for a in self.frame.axes), self.frame.policies.index(policy)

    def share(self, tasks: Sequence[Task], rank: int, size: int) -> list[Task]:
        """The tasks of one process: those of its strands."""
        return [task for task in tasks if task[2] % STRANDS % size == rank]

    def write(self, policy: str, tile: Mapping[str, int], block: int, values: Curves, kept: Kept | None = None) -> None:
        """Takes the curves of a block, arrays `[tiled axes..., seeds, ...]`; merges them once those of all policies are there."""
        del kept
        axes = list(self.frame.axes)
        lacking = [i for i, a in enumerate(axes) if a not in tile]
        own = {name: v.reshape(_expanded(v.shape, lacking)) for name, v in values.items()}
        self.curves[policy, self._place(policy, tile)] = own
        for number, whole in enumerate(self.tiles):
            needed = [(p, self._place(p, whole)) for p in self.frame.policies]
            if not self.known[number].has(block) and all(key in self.curves for key in needed):
                first = block * self.frame.block
                seeds = self.seeds[first : first + self.frame.block]
                summary = summarise([self.curves[key] for key in needed], self.frame.zero_flows, first, seeds)
                self._merge(number, block, summary)
        waiting = [whole for whole, known in zip(self.tiles, self.known, strict=True) if not known.has(block)]
        still = {(p, self._place(p, whole)) for p in self.frame.policies for whole in waiting}
        self.curves = {key: one for key, one in self.curves.items() if key in still}

    @writes
    def _merge(self, tile: int, block: int, summary: Summary) -> None:
        self.check_place()
        known, own, strand = self.known[tile], self.own[tile], block % STRANDS
        position = known.reached.get(strand, 0)
        if position != block // STRANDS:
            raise RuntimeError(f"block {block} came before block {position * STRANDS + strand}")
        before = known.strands.get(strand)
        if (block + 1) * self.frame.block > self.frame.seeds:
            own.tail = strand, position, summary
        else:
            own.add(strand, position, before, summary)
        if self.group is not None:
            self._write(tile, self.rank, own)
        known.reached[strand] = position + 1
        known.strands[strand] = summary.moments if before is None else before.merged(summary.moments)
        if own not in known.parts:
            known.parts.append(own)

    def _write(self, tile: int, owner: int, part: Part) -> None:
        """Writes what a process knows of a tile, in one step."""
        _file(self.folder, tile, owner).write(part.encoded(tile, self.belongs))

    @writes
    def take(self, tile: int, owner: int, part: Part) -> None:
        """Keeps a part of another store."""
        if part.summaries():
            self._write(tile, owner, part)

    def begun(self, block: int) -> bool:
        """Whether this block, or one behind it, has been merged."""
        return any(STRANDS * (n - 1) + strand >= block for known in self.known for strand, n in known.reached.items())

    def errors(self, metric: str, policies: Sequence[str], blocks: int) -> np.ndarray:
        """Standard errors of a metric at the horizon, of some policies and all settings; these first blocks are all there are."""
        del blocks
        wanted, found = {(metric, self.frame.policies.index(p)) for p in policies}, []
        for known in self._all():
            moments = known.moments()
            assert moments is not None
            for key, array, _ in Summary(
                known.parts[0].summaries()[0].cells, moments, Histogram.empty(), np.zeros(0)
            ).arrays():
                if key in wanted:
                    statistics = array.statistics()
                    time_axis = len(self.frame.axes)
                    with np.errstate(invalid="ignore", divide="ignore"):
                        error = np.sqrt(statistics["variance"] / statistics["count"])
                    found.append(np.take(error, -1, axis=time_axis).ravel())
        return np.concatenate(found)

    def stop(self, blocks: int) -> int:
        """The result will consist of these first blocks; returns their number of seeds."""
        self.wanted = blocks
        return min(blocks * self.frame.block, self.frame.seeds)

    def missing(self) -> str:
        """What has not been played, in words; empty if all has."""
        try:
            return missing(self.frame, self._all(), self.wanted)
        except ValueError as error:
            return str(error)

    def _all(self) -> list[Known]:
        if self.group is None:
            return self.known
        return [Known.of(list(read_parts(self.folder, tile, self.belongs).values())) for tile in range(len(self.tiles))]

    def finish(self, late_s: float = 0.0) -> xr.Dataset:
        """The whole result, without its provenance.

        Args:
          late_s: seconds that a shared file system may take to show what another machine has written.

        Raises:
          OSError: what is read is not what was written.
        """
        self.settle(late_s)
        return dataset(self.frame, [known.total() for known in self._all()])

    def so_far(self) -> xr.Dataset:
        """The result so far: the statistics of the blocks that all policies have played."""
        return dataset(self.frame, [known.total() for known in self._all()])


def _check_memory(frame: Frame, memory: int) -> None:
    """`ValueError` if the statistics will not fit into half of the memory (bytes)."""
    number = len(frame.policies)
    cells = sum(math.prod(v["shape"]) for v in frame.variables.values()) * len(frame.times)
    cells *= math.prod(len(v) for v in frame.axes.values())
    needed = cells * (number * _BYTES_PER_CELL + number * (number - 1) // 2 * STRANDS * 48)
    if needed > memory // 2:
        raise ValueError(
            f"the statistics would take about {needed / 2**30:.1f} GiB, more than half of the memory: record fewer points (record_every) "
            "or fewer metrics (record)"
        )


def missing(frame: Frame, known: Sequence[Known], blocks: int) -> str:
    lost = [(tile, block) for tile, one in enumerate(known) for block in range(blocks) if not one.has(block)]
    if not lost:
        return ""
    tile, block = lost[0]
    last = min((block + 1) * frame.block, frame.seeds) - 1
    where = f"{frame.tile_name(tile)}, seeds {block * frame.block} to {last} of the list"
    return f"{len(lost)} blocks are missing, the first that of {where}"


def load(store: Place, attributes: Mapping[str, Any], partial: bool) -> xr.Dataset:
    """Reads stored statistics.

    Args:
      store: the store. attributes: its own. partial: accept what is there of a run that has not finished.

    Raises:
      ValueError: the store is damaged or unfinished.
    """
    again = "run it again to play just that once more"
    if "frame" not in attributes:
        raise ValueError(f"the result in {str(store)!r} is not complete; {again}")
    frame = Frame.made_of(attributes["frame"])
    known = []
    for tile in range(len(frame.tiles())):
        try:
            known.append(Known.of(list(read_parts(store / DONE, tile, belonging(attributes)).values())))
        except ValueError as error:
            if not partial:
                where = frame.tile_name(tile)
                raise ValueError(
                    f"the result in {str(store)!r} is damaged: the statistics of {where} are not what was written ({error}); {again}, or load "
                    "the others with partial=True"
                ) from None
            known.append(Known({}, {}, []))
    lost = missing(frame, known, -(-attributes.get("seeds_played", frame.seeds) // frame.block))
    if lost and not partial:
        raise ValueError(
            f"the result in {str(store)!r} is unfinished: {lost}. Run it again to complete it, or load it with partial=True"
        )
    data = dataset(frame, [one.total() for one in known])
    data.attrs = {name: value for name, value in attributes.items() if name not in ("frame", "code", "digest", "made_with")}
    return data


def dataset(frame: Frame, totals: Sequence[Summary | None]) -> xr.Dataset:
    """The labelled result of all tiles.

    For each metric the variables `.count`, `.mean`, `.variance` (ddof=1), `.minimum` and `.maximum` of its valid runs, of dimensions
    `(policy, settings..., time, ...)`; the same of `.difference`, seed by seed, of each policy to each `baseline`; and `.histogram`,
    counts over `NAME.bin`, the numbers in the middle of the bins. Besides, the numbers of `runs`
    and of `invalid` ones, `first_invalid` (seed of the first of them, or -1), and `.runs` of each flow that must be zero, the number of
    runs in which it is not.
    """
    lead = {"policy": len(frame.policies)} | {a: len(v) for a, v in frame.axes.items()}
    coords: dict[str, Any] = {"policy": np.asarray(frame.policies), **frame.axes, "time": frame.times}
    if len(frame.policies) > 1:
        coords["baseline"] = np.asarray(frame.policies)
    variables: dict[str, Any] = {}
    for name, about in frame.variables.items():
        sizes = lead | {"time": len(frame.times)} | dict(zip(about["dims"], about["shape"], strict=True))
        if "model" in sizes and len(frame.model_names) == sizes["model"]:
            coords["model"] = np.asarray(frame.model_names)
        alone, apart = _filled(frame, name, totals, sizes)
        variables |= _labelled(name, about, tuple(sizes), alone)
        if len(frame.policies) > 1:
            label = about | {"label": f"{about['label']}, difference to the baseline", "kind": "difference"}
            variables |= _labelled(f"{name}.difference", label, ("policy", "baseline", *list(sizes)[1:]), apart)
        counts, bins = _histogram(frame, name, totals, sizes)
        attributes = {
            "label": f"runs by {about['label']}",
            "unit": "runs",
            "kind": "histogram",
            "relative_accuracy": RELATIVE_ACCURACY,
        }
        variables[f"{name}.histogram"] = ((*sizes, f"{name}.bin"), counts, attributes)
        coords[f"{name}.bin"] = middles(bins)
    variables |= _flag_variables(frame, totals, lead)
    return xr.Dataset(variables, coords={name: (name, values) for name, values in coords.items()})


def _region(frame: Frame, tile: Mapping[str, int]) -> tuple[slice, ...]:
    return tuple(slice(tile[a], tile[a] + frame.tile[a]) for a in frame.axes)


def _filled(frame: Frame, name: str, totals: Sequence[Summary | None], sizes: Mapping[str, int]):
    """Statistics of a metric, and of its differences, over all tiles."""
    shape, number = tuple(sizes.values()), len(frame.policies)
    nothing = Moments(*(np.full((), v) for v in (0.0, 0.0, 0.0, 0.0, np.inf, -np.inf))).statistics()
    alone = {s: np.full(shape, v) for s, v in nothing.items()}
    apart = {s: np.full((number, *shape), v) for s, v in nothing.items()} if number > 1 else {}
    for tile, total in zip(frame.tiles(), totals, strict=True):
        where = _region(frame, tile)
        for key, moments, _ in total.arrays() if total else ():
            if key[0] != name:
                continue
            if len(key) == 2:
                for s, values in moments.statistics().items():
                    alone[s][(key[1], *where)] = values
            else:
                for place, one in ((key[1:], moments), (key[:0:-1], moments.reversed())):
                    for s, values in one.statistics().items():
                        apart[s][(*place, *where)] = values
    return alone, apart


def _labelled(name: str, about: Mapping[str, Any], dims: tuple[str, ...], statistics: Mapping[str, np.ndarray]):
    """Variables of a metric's statistics."""
    variables = {}
    for statistic, values in statistics.items():
        label = {key: value for key, value in about.items() if key not in ("dims", "shape")}
        if statistic != "mean":
            unit = {"count": "seeds", "variance": f"({about['unit']})^2" if about["unit"] else ""}.get(
                statistic, about["unit"]
            )
            label = {"label": f"{statistic} of {about['label']}", "unit": unit, "kind": "statistic"}
        variables[f"{name}.{statistic}"] = (dims, values, label)
    return variables


def _histogram(frame: Frame, name: str, totals: Sequence[Summary | None], sizes: Mapping[str, int]):
    """Counts `[..., bins]` of a metric over all tiles, and the bins that hold something anywhere."""
    found = []
    for tile, total in zip(frame.tiles(), totals, strict=True):
        for key, moments, start in total.arrays() if total else ():
            if key[0] == name and len(key) == 2:
                rows = total.histogram.rows(start, start + moments.mean.size)  # type: ignore[union-attr]
                found.append((key[1], _region(frame, tile), moments.mean.shape, rows))
    bins = np.unique(np.concatenate([np.zeros(0, np.int64), *(rows.bins() for *_, rows in found)]))
    counts = np.zeros((*sizes.values(), len(bins)), np.uint32)
    for policy, where, shape, rows in found:
        counts[(policy, *where)] = rows.dense(math.prod(shape), bins).reshape(*shape, len(bins))
    return counts, bins


def _flag_variables(frame: Frame, totals: Sequence[Summary | None], lead: Mapping[str, int]):
    """Numbers of runs that are not valid, and why."""
    names = ["place", "first_invalid", "runs", "invalid", *(f"{name}.runs" for name in frame.zero_flows)]
    arrays = {name: np.full(tuple(lead.values()), -1 if name == "first_invalid" else 0, np.int64) for name in names}
    for tile, total in zip(frame.tiles(), totals, strict=True):
        if total is None:
            continue
        where, start = _region(frame, tile), 0
        for p, policy in enumerate(frame.policies):
            own = [min(frame.tile[a], len(v) - tile[a]) if a in frame.own_axes[policy] else 1 for a, v in frame.axes.items()]
            stop = start + math.prod(own)
            for name, values in zip(names, total.flags, strict=True):
                arrays[name][(p, *where)] = values[start:stop].reshape(own)
            start = stop
    labels = {
        "runs": ("runs", "runs"),
        "invalid": ("runs that are not valid", "runs"),
        "first_invalid": ("seed of the first run that is not valid", ""),
        **{f"{name}.runs": (f"runs in which {name} is not zero", "runs") for name in frame.zero_flows},
    }
    return {
        n: (tuple(lead), arrays[n], {"label": label, "unit": unit, "kind": "flag"}) for n, (label, unit) in labels.items()
    }
