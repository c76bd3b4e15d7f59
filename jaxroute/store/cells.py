"""Addresses of the cells of a result, and the request that names them.

An address is 64 bytes: a family (24), the first granule of seeds (8) and the extent (32). A family is a digest of all that the numbers depend
on besides the seeds (16), and one of the code (8). A granule is 256 consecutive seeds, whatever block is simulated at once. The extent says
which of them a cell holds: of curves and states one bit each, of statistics the number of granules.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute.core.types import Metric
from jaxroute.store.packs import PackStore, digest_of, plain

GRANULE = 256
ALL = (1 << GRANULE) - 1
# Kinds of cells.
CURVES, STATES, STATISTICS = "curves", "states", "statistics"

# First granule and number of granules of a cell of statistics.
Range = tuple[int, int]
# Positions along axes of settings.
Tile = Mapping[str, np.ndarray]


def address(family: bytes, granule: int, extent: int) -> bytes:
    """Returns the address of a cell."""
    return family + granule.to_bytes(8, "big") + extent.to_bytes(32, "little")


def group(family: bytes, granule: int) -> bytes:
    """Returns the first bytes of the addresses of all cells of a family that begin with a granule."""
    return family + granule.to_bytes(8, "big")


def extent_of(address: bytes) -> int:
    """Returns the extent of a cell."""
    return int.from_bytes(address[32:], "little")


def numbers(shape: Sequence[int], spans: Sequence[np.ndarray]) -> list[int]:
    """Returns the numbers of the settings at some positions along each axis, the last axis fastest."""
    return np.ravel(np.arange(math.prod(shape)).reshape(shape)[np.ix_(*spans)]).tolist()


def bits(mask: int) -> np.ndarray:
    """Returns the seeds of a mask, counted from the first of the granule, in order."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask.to_bytes(32, "little"), np.uint8), bitorder="little"))


def mask_of(places: np.ndarray) -> int:
    """Returns the mask of some seeds, counted from the first of the granule."""
    if len(places) == GRANULE:
        return ALL
    flags = np.zeros(GRANULE, bool)
    flags[places] = True
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class Seeds:
    """Seeds of a result, cut into granules.

    Args:
      values: `[R]`, all different.

    Attributes:
      values: int64.
      granules: by number, positions in `values` in the order of the seeds.
      masks: by number.
    """

    def __init__(self, values: np.ndarray):
        self.values = np.asarray(values, np.int64)
        order = np.argsort(self.values, kind="stable")
        numbers = self.values[order] // GRANULE
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        parts = np.split(order, cuts) if len(order) else []
        self.granules = {int(self.values[part[0]] // GRANULE): part for part in parts}
        self.masks = {number: mask_of(self.values[part] % GRANULE) for number, part in self.granules.items()}

    @property
    def full(self) -> list[int]:
        """Granules all of whose seeds are there."""
        return [number for number, mask in self.masks.items() if mask == ALL]

    def of(self, masks: Mapping[int, int]) -> np.ndarray:
        """Returns the positions of the seeds of some masks, in the order of `values`."""
        found = []
        for number, mask in masks.items():
            part = self.granules[number]
            if mask == self.masks[number]:
                found.append(part)
            else:
                found.append(part[np.isin(self.values[part] % GRANULE, bits(mask))])
        return np.sort(np.concatenate([np.zeros(0, np.int64), *found]))

    def cut(self, positions: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields granule, mask and places in `positions` of the seeds at some positions, granule by granule."""
        values = self.values[positions]
        order = np.argsort(values, kind="stable")
        numbers = values[order] // GRANULE
        for part in np.split(order, np.flatnonzero(np.diff(numbers)) + 1) if len(order) else []:
            yield int(values[part[0]] // GRANULE), mask_of(values[part] % GRANULE), part


@dataclasses.dataclass(frozen=True)
class Request:
    """Request of a call of `simulate`: all that decides the numbers of its result.

    Attributes:
      policies: names.
      axes: coordinates of the settings by axis.
      policy_axes: the axes along which the runs of each policy differ, in the order of `axes`.
      seeds: `[R]` uint32.
      times: `[records]` counted rounds.
      variables: metric and shape of each recorded quantity, by name.
      recorded: names of the quantities that are recorded of each policy.
      model_names: names of the models, or none.
      zero_flows: names of the flows that must be zero.
      keep: "runs" or "moments".
      settings: all that decides the numbers, as plain JSON, for readers.
      identities: of each policy, for each of its settings, the last axis fastest: digests in hexadecimal digits of environment, policy, record
        and everything else but the horizon, the seeds and the code (32), and of the code (16).
      code: digests of the code (`code.code_of`) and the version of Python, by their digest.
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
        """Number of what is recorded of a seed, over all policies, settings and times."""
        settings = len(self.policies) * math.prod(len(v) for v in self.axes.values())
        return sum(math.prod(shape) for _, shape in self.variables.values()) * len(self.times) * settings

    @functools.cached_property
    def _families(self) -> dict[Any, list[bytes]]:
        return {}

    @functools.cached_property
    def digest(self) -> str:
        """Digest by which calls name it."""
        return digest_of(plain(self.plain())).hex()

    @functools.cached_property
    def cut(self) -> Seeds:
        """The seeds by granules."""
        return Seeds(self.seeds)

    def shape(self, policy: str) -> tuple[int, ...]:
        """Number of settings along each axis of a policy."""
        return tuple(len(self.axes[axis]) for axis in self.policy_axes[policy])

    def families(self, kind: str, policy: str, horizon: int | None = None) -> list[bytes]:
        """Returns the families of the cells of a policy, for each of its settings."""
        what = kind, policy, self.horizon if horizon is None else horizon
        if what not in self._families:
            end, own = plain([kind, what[2]]), map(bytes.fromhex, self.identities[policy])
            self._families[what] = [digest_of(one[:16], end) + one[16:] for one in own]
        return self._families[what]

    def numbers_in(self, policy: str, tile: Tile) -> list[int]:
        """Returns the numbers of the settings of a tile among those of a policy."""
        return numbers(self.shape(policy), [tile[axis] for axis in self.policy_axes[policy]])

    def with_seeds(self, seeds: np.ndarray) -> "Request":
        """Returns the same request for other seeds."""
        settings = {**self.settings, "seeds": describe_seeds(seeds)}
        return dataclasses.replace(self, seeds=seeds.astype(np.uint32), settings=settings)

    def plain(self) -> dict[str, Any]:
        """Returns the request as plain JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["axes"] = {name: {"dtype": v.dtype.str, "values": v.tolist()} for name, v in self.axes.items()}
        fields["variables"] = {
            name: {**dataclasses.asdict(metric), "shape": list(shape)} for name, (metric, shape) in self.variables.items()
        }
        fields |= {"times": self.times.tolist(), "seeds": describe_seeds(self.seeds)}
        return json.loads(json.dumps({"note": "request", **fields}))

    @staticmethod
    def from_plain(content: Mapping[str, Any]) -> "Request":
        """Returns the request that `plain` describes."""
        fields = {name: value for name, value in content.items() if name != "note"}
        fields["axes"] = {name: np.asarray(v["values"], v["dtype"]) for name, v in content["axes"].items()}
        fields["variables"] = {name: _variable(**about) for name, about in content["variables"].items()}
        fields |= {
            "times": np.asarray(content["times"], np.int64),
            "seeds": seeds_from_plain(content["seeds"]).astype(np.uint32),
        }
        return Request(**fields)


def _variable(shape: Sequence[int], dims: Sequence[str], **about: Any) -> tuple[Metric, tuple[int, ...]]:
    return Metric(dims=tuple(dims), **about), tuple(shape)


def describe_seeds(seeds: np.ndarray) -> Any:
    """Returns seeds as plain JSON: the list, or spans of consecutive ones `[first, number]`."""
    if len(seeds) <= 32:
        return [int(seed) for seed in seeds]
    breaks = np.flatnonzero(np.diff(seeds.astype(np.int64)) != 1) + 1
    firsts = np.concatenate([[0], breaks])
    lengths = np.diff(np.append(firsts, len(seeds)))
    return {"spans": np.stack([seeds[firsts].astype(np.int64), lengths], axis=1).tolist()}


def seeds_from_plain(content: Any) -> np.ndarray:
    """Returns the seeds that `describe_seeds` describes."""
    if isinstance(content, list):
        return np.asarray(content, np.int64)
    return np.concatenate([first + np.arange(number, dtype=np.int64) for first, number in content["spans"]])


def held(store: PackStore, family: bytes, granule: int) -> int:
    """Returns a mask of the seeds of a granule that are there."""
    mask = 0
    for one in store.groups.get(group(family, granule), ()):
        mask |= extent_of(one)
    return mask


def chosen(store: PackStore, family: bytes, granule: int, mask: int) -> list[bytes]:
    """Returns few cells that hold some seeds of a granule, as far as they are there."""
    found = []
    there = sorted(store.groups.get(group(family, granule), ()), key=lambda one: -extent_of(one).bit_count())
    for one in there:
        if extent_of(one) & mask:
            found.append(one)
            mask &= ~extent_of(one)
    return found


# Statistics: a binary counter. Two neighbours of 2**k granules merge to one of 2**(k + 1), so that the bits depend on the seeds alone.
# The first granules do not merge with what follows, so that the statistics of the first 2**k granules stay known.


def ranges(granules: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the ranges `(first, size)` of the counter that make up some granules, in order; size is a power of two that divides first."""
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
    """Returns whether a cell of statistics is in a store, as a function of its range."""
    return lambda one: address(family, *one) in store.where


def cover(there: Callable[[Range], bool], one: Range) -> tuple[list[Range], list[Range]]:
    """Returns the ranges that are there of which a range of the counter is made, and the granules that are missing."""
    first, size = one
    if there(one):
        return [one], []
    if size == 1:
        return [], [one]
    left, right = (cover(there, (start, size // 2)) for start in (first, first + size // 2))
    return left[0] + right[0], left[1] + right[1]
