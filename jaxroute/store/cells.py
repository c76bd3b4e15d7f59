"""Addresses of the cells of a result, the request from which they follow, and claims of processes that share the work.

A cell holds numbers of one policy at one setting, for some seeds. A granule is 256 consecutive seeds; granule `g` begins with seed `256 g`.
Granules do not depend on the blocks that are simulated at once. An address is 64 bytes:

- the family (24): a digest of everything except seeds and code on which the numbers depend (16), and one of the code (8);
- the index of the first granule of the cell (8);
- the extent (32): for curves and states a mask with a bit for each seed of the granule, for statistics the number of granules.
"""

import contextlib
import dataclasses
import functools
import json
import math
import operator
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute.core.types import Metric
from jaxroute.store.packs import GROUP, PackStore, digest_of, plain
from jaxroute.store.places import Location

GRANULE = 256
ALL = (1 << GRANULE) - 1
_CLAIM = ".claim"
# Kinds of cells.
CURVES, STATES, STATISTICS = "curves", "states", "statistics"

# First granule and number of granules of a cell with statistics.
Range = tuple[int, int]
# Block of settings: positions along each axis of settings, by the name of the axis.
Tile = Mapping[str, np.ndarray]


def address(family: bytes, granule: int, extent: int) -> bytes:
    return family + granule.to_bytes(8, "big") + extent.to_bytes(32, "little")


def group(family: bytes, granule: int) -> bytes:
    """Returns the first 32 bytes of addresses with this family and first granule, by which stores look up cells and processes claim them."""
    return family + granule.to_bytes(8, "big")


def extent_of(address: bytes) -> int:
    return int.from_bytes(address[32:], "little")


def numbers(shape: Sequence[int], spans: Sequence[np.ndarray]) -> list[int]:
    """Returns the flat (row-major) indices of a part of an array of this `shape`: all combinations of the indices `spans`, one array per axis."""
    return np.ravel(np.arange(math.prod(shape)).reshape(shape)[np.ix_(*spans)]).tolist()


def bits(mask: int) -> np.ndarray:
    """Returns the positions of the bits that are set in a mask, ascending, from 0 to 255. Bit i stands for the i-th seed of a granule."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask.to_bytes(32, "little"), np.uint8), bitorder="little"))


def mask_of(places: np.ndarray) -> int:
    """Returns a granule's mask, an integer with a bit for each of its 256 seeds, in which the bits `places` (seed minus first seed) are set."""
    flags = np.bincount(places, minlength=GRANULE) > 0
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class Seeds:
    """Seeds of a result, grouped into granules of 256 consecutive seeds.

    Attributes:
      values: `[R]` int64 seeds, all different.
      granules: dict from the index `g` of each granule to the positions in `values` of its seeds, in ascending order of the seeds.
      masks: dict from the index `g` of each granule to an integer whose bit `i` is set if `values` has the seed `256 g + i`.
    """

    def __init__(self, values: np.ndarray):
        self.values = np.asarray(values, np.int64)
        cut = list(self.cut(np.arange(len(self.values))))
        self.granules = {granule: part for granule, _, part in cut}
        self.masks = {granule: mask for granule, mask, _ in cut}

    @property
    def full(self) -> list[int]:
        """Indices of the granules of which `values` has all 256 seeds."""
        return [number for number, mask in self.masks.items() if mask == ALL]

    def of(self, masks: Mapping[int, int]) -> np.ndarray:
        """Returns the ascending positions in `values` of the seeds in `masks`, a dict from granule (256 seeds) to a bit mask of its seeds."""
        found = [np.zeros(0, np.int64)]
        for number, mask in masks.items():
            part = self.granules[number]
            found.append(part if mask == self.masks[number] else part[np.isin(self.values[part] % GRANULE, bits(mask))])
        return np.sort(np.concatenate(found))

    def cut(self, positions: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """Groups the seeds `values[positions]` by granule. Yields the granule, the bit mask of its seeds, and their indices into `positions`."""
        values = self.values[positions]
        order = np.argsort(values, kind="stable")
        numbers = values[order] // GRANULE
        for part in np.split(order, np.flatnonzero(np.diff(numbers)) + 1) if len(order) else []:
            yield int(values[part[0]] // GRANULE), mask_of(values[part] % GRANULE), part


@dataclasses.dataclass(frozen=True)
class Request:
    """Request of a call of `simulate`: everything that decides the numbers of its result.

    Attributes:
      policies: names of the policies.
      axes: coordinates of the settings along each axis, by the name of the axis.
      policy_axes: names of the axes along which the runs of each policy differ, in the order of `axes`.
      seeds: `[R]` uint32 seeds.
      times: `[records]` numbers of counted rounds after which quantities are recorded.
      variables: for each recorded quantity, by name, its `Metric` (label, unit, kind) and the shape of its value at one time, `()` for a number.
      recorded: names of the quantities that are recorded for each policy.
      model_names: names of the models; empty if they have none.
      zero_flows: names of counts of errors, such as illegal actions, which are zero in every valid run.
      keep: whether single "runs" are stored, or their "moments" (statistics over the seeds).
      settings: everything that decides the numbers, as plain JSON, for people.
      identities: for each policy and each of its settings, the last axis fastest, 32 hexadecimal digits of a digest of everything that decides
        the numbers except horizon, seeds and code, and 16 digits of a digest of the code.
      code: digests of all parts of the code (`code.code_of`) and the version of Python, by the digest of the code in `identities`.
    """

    policies: list[str]
    axes: dict[str, np.ndarray]
    policy_axes: dict[str, list[str]]
    seeds: np.ndarray
    times: np.ndarray
    variables: dict[str, tuple[Metric, tuple[int, ...]]]
    recorded: dict[str, list[str]]
    model_names: list[str]
    zero_flows: list[str]
    keep: str
    settings: dict[str, Any]
    identities: dict[str, list[str]]
    code: dict[str, dict[str, Any]]

    @property
    def horizon(self) -> int:
        return int(self.times[-1])

    @property
    def numbers(self) -> int:
        """Count of the numbers that are recorded for each seed, over all policies, settings and times."""
        settings = len(self.policies) * math.prod(len(v) for v in self.axes.values())
        return sum(math.prod(shape) for _, shape in self.variables.values()) * len(self.times) * settings

    @functools.cached_property
    def _families(self) -> dict[Any, list[bytes]]:
        return {}

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the request, which identifies it in the notes of a store."""
        return digest_of(plain(self.plain())).hex()

    @functools.cached_property
    def cut(self) -> Seeds:
        return Seeds(self.seeds)

    def shape(self, policy: str) -> tuple[int, ...]:
        """Returns the number of settings along each axis on which the runs of a policy depend."""
        return tuple(len(self.axes[axis]) for axis in self.policy_axes[policy])

    def families(self, kind: str, policy: str, horizon: int | None = None) -> list[bytes]:
        """Returns each setting's family (24 bytes) for a policy, a `kind` of cells (such as `CURVES`) and a `horizon` (None: that of the request)."""
        what = kind, policy, self.horizon if horizon is None else horizon
        if what not in self._families:
            end, own = plain([kind, what[2]]), map(bytes.fromhex, self.identities[policy])
            self._families[what] = [digest_of(one[:16], end) + one[16:] for one in own]
        return self._families[what]

    def numbers_in(self, policy: str, tile: Tile) -> list[int]:
        """Returns the flat indices, among all settings of a policy, of the settings in a tile (a block of settings)."""
        return numbers(self.shape(policy), [tile[axis] for axis in self.policy_axes[policy]])

    def with_seeds(self, seeds: np.ndarray) -> "Request":
        settings = {**self.settings, "seeds": describe_seeds(seeds)}
        return dataclasses.replace(self, seeds=seeds.astype(np.uint32), settings=settings)

    def plain(self) -> dict[str, Any]:
        """Converts the request to plain JSON, which `from_plain` reads."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["axes"] = {name: {"dtype": v.dtype.str, "values": v.tolist()} for name, v in self.axes.items()}
        fields["variables"] = {
            name: {**dataclasses.asdict(metric), "shape": list(shape)} for name, (metric, shape) in self.variables.items()
        }
        fields |= {"times": self.times.tolist(), "seeds": describe_seeds(self.seeds)}
        return json.loads(json.dumps({"note": "request", **fields}))

    @staticmethod
    def from_plain(content: Mapping[str, Any]) -> "Request":
        fields = {name: value for name, value in content.items() if name != "note"}
        fields["axes"] = {name: np.asarray(v["values"], v["dtype"]) for name, v in content["axes"].items()}
        fields["variables"] = {name: _variable(**about) for name, about in content["variables"].items()}
        fields["times"] = np.asarray(content["times"], np.int64)
        fields["seeds"] = seeds_from_plain(content["seeds"]).astype(np.uint32)
        return Request(**fields)


def _variable(shape: Sequence[int], dims: Sequence[str], **about: Any) -> tuple[Metric, tuple[int, ...]]:
    return Metric(dims=tuple(dims), **about), tuple(shape)


def describe_seeds(seeds: np.ndarray) -> Any:
    """Converts seeds to plain JSON: up to 32 to a list; more to `{"spans": [[first, length], ...]}`, where a span has consecutive integers."""
    if len(seeds) <= 32:
        return [int(seed) for seed in seeds]
    breaks = np.flatnonzero(np.diff(seeds.astype(np.int64)) != 1) + 1
    firsts = np.concatenate([[0], breaks])
    lengths = np.diff(np.append(firsts, len(seeds)))
    return {"spans": np.stack([seeds[firsts].astype(np.int64), lengths], axis=1).tolist()}


def seeds_from_plain(content: Any) -> np.ndarray:
    if isinstance(content, list):
        return np.asarray(content, np.int64)
    return np.concatenate([first + np.arange(number, dtype=np.int64) for first, number in content["spans"]])


def held(store: PackStore, family: bytes, granule: int) -> int:
    """Returns a mask of the seeds of a granule (256 seeds) whose runs are stored in cells with this `family` (24 bytes of their address)."""
    return functools.reduce(operator.or_, map(extent_of, store.groups.get(group(family, granule), ())), 0)


def chosen(store: PackStore, family: bytes, granule: int, mask: int) -> list[bytes]:
    """Returns addresses of cells that together have all stored runs of the seeds in a bit `mask` of a granule. Larger cells are preferred."""
    found = []
    for one in sorted(store.groups.get(group(family, granule), ()), key=lambda one: -extent_of(one).bit_count()):
        if extent_of(one) & mask:
            found.append(one)
            mask &= ~extent_of(one)
    return found


# Statistics are merged as in a binary counter: two neighbouring ranges of 2**k granules merge to one of 2**(k + 1), so that the bits depend on the
# seeds alone. A range that begins with granule 0 does not merge, so that the statistics of the first 2**k granules remain available.


def ranges(granules: Iterable[int]) -> list[tuple[int, int]]:
    """Merges granules to ranges (first, number). `number` is a power of 2 that divides `first`; 0 stays alone. 0 to 3 give (0, 1), (1, 1), (2, 2)."""
    found: list[tuple[int, int]] = []
    for number in sorted(granules):
        found.append((number, 1))
        while len(found) > 1:
            (first, size), (second, other) = found[-2:]
            if not first or size != other or first + size != second or first % (2 * size):
                break
            found[-2:] = [(first, 2 * size)]
    return found


def stored(store: PackStore, family: bytes) -> Callable[[Range], bool]:
    """Returns a function that tests whether a store has a cell of this family with the statistics of a range `(first, size)` of granules."""
    return lambda one: address(family, *one) in store.where


def cover(there: Callable[[Range], bool], one: Range) -> tuple[list[Range], list[Range]]:
    """Halves the range `one` until `there(part)` is True or a part is one granule. Returns the parts where it is True, and those where it is not."""
    first, size = one
    if there(one):
        return [one], []
    if size == 1:
        return [], [one]
    left, right = (cover(there, (start, size // 2)) for start in (first, first + size // 2))
    return left[0] + right[0], left[1] + right[1]


class Claims:
    """Context manager in which this process claims cells (stored arrays of runs), so that processes that share the work do not simulate them too.

    Each process has a small file, rewritten as long as it lives, with the `group` (start of an address) of each cell that it is simulating. If two
    claim the same cell, or a claim expires, two processes may simulate the cell, which is harmless: both write the same bytes.

    Args:
      place: location of the store.
      expires: seconds, as measured by the disk or server, after which a process that has not rewritten its file counts as dead.
    """

    def __init__(self, place: Location, expires: float = 60.0):
        self._place, self.expires = place, expires
        self.name = f"{uuid.uuid4().hex}{_CLAIM}"
        self._mine: list[bytes] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Claims":
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._place.delete(self.name)

    def _beat(self) -> None:
        while not self._over.wait(self.expires / 4):
            try:
                self._write()
                self._failed = None
            except OSError as error:  # Raised by `others`: the times of claims no longer show which processes are alive.
                self._failed = error

    def _write(self) -> None:
        with self._lock:  # The file is never empty: some servers refuse ranges of empty objects.
            self._place.write(self.name, [*self._mine, b"."], False)

    def keep(self, groups: Iterable[bytes], new: Iterable[bytes]) -> set[bytes]:
        """Renews the claims of the cells `groups`, and claims cells in `new`. Returns the cells in `new` that another process has claimed already.

        Cells are given by their `group`. If two processes claim a cell at once, the one whose file name sorts first simulates it; rarely both do.
        """
        groups, new = list(groups), set(new)
        self._mine = [*groups, *new]
        self._write()
        if lost := self.others(self.name) & new:
            self._mine = [*groups, *(new - lost)]
            self._write()
        return lost

    def drop(self) -> None:
        """Withdraws all claims of this process once their cells are written; otherwise two processes could wait for each other."""
        if self._mine:
            self._mine = []
            self._write()

    def others(self, below: str = "~") -> set[bytes]:
        """Returns the groups of cells that other living processes claim. With `below`, only files of claims whose names sort before it count.

        Raises `OSError` if the last attempt to renew the claim of this process in the background failed.
        """
        if self._failed is not None:
            raise self._failed
        there = self._place.names(_CLAIM)
        now = there[self.name].changed if self.name in there else max((one.changed for one in there.values()), default=0.0)
        found: set[bytes] = set()
        for name, file in there.items():
            if name != self.name and name < below and now - file.changed < self.expires:
                with contextlib.suppress(OSError):
                    content = self._place.read(name, 0, file.size)
                    found.update(content[i : i + GROUP] for i in range(0, len(content) - GROUP + 1, GROUP))
        return found
