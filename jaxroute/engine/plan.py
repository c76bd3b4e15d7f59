"""Plan of the work: units of tasks that are missing, for one process or for several that share it."""

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.layout import Layout
from jaxroute.engine.memory import LANE_MULTIPLE
from jaxroute.engine.waiting import tell
from jaxroute.store import cells
from jaxroute.store.cells import GRANULE, Request, Tile
from jaxroute.store.claims import Claims
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import PackStore
from jaxroute.store.runs import Checkpoint, Runs

# Seconds after which a process that shares the work and says nothing counts as dead.
EXPIRES_S = 30.0
# Seconds of work that such a process claims at once.
_CLAIM_S = 1.0

# Number of this process, and of all that share the work.
Share = tuple[int, int]
ALONE = (0, 1)


@dataclass(frozen=True)
class Task:
    """Work of one compiled call.

    Attributes:
      policy: name.
      tile: positions along each axis that the policy has.
      seeds: `[R]`.
      begun: rounds that have been played before.
      summed: it is for statistics, and single runs are dropped.
    """

    policy: str
    tile: Tile
    seeds: np.ndarray
    begun: int = 0
    summed: bool = False


@dataclass
class Unit:
    """Tasks that belong together: one of single runs, or for statistics those of all policies on the same settings and seeds.

    Attributes:
      result: that it is a part of.
      tile: positions along each axis; for statistics along all.
      seeds: positions in the seeds of the result.
      tasks: in order.
      policies: whose curves statistics are made of; those without a task have been simulated for the unit before.
      curves: of the tasks that have been simulated, by policy, for statistics; units share them.
    """

    result: Runs | Statistics
    tile: Tile
    seeds: np.ndarray
    tasks: list[Task] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    curves: dict[str, list[Any]] = field(default_factory=dict)

    def take(self, task: Task, curves: Mapping[str, Any], kept: Checkpoint | None) -> None:
        """Gives what a task has made to the result, once that is complete."""
        if isinstance(self.result, Runs):
            self.result.take(task.policy, self.tile, self.seeds, curves, kept)
            return
        if task is next(one for one in self.tasks if one.policy == task.policy):
            self.curves[task.policy] = []
        self.curves[task.policy].append(curves)
        if task is self.tasks[-1]:
            axes = self.result.request.policy_axes
            whole = {policy: _joined(self.curves[policy], len(axes[policy])) for policy in self.policies}
            self.result.add(self.tile, self.seeds, whole)
            self.curves |= {policy: [one] for policy, one in whole.items()}


def _joined(parts: Sequence[Mapping[str, Any]], axis: int) -> Mapping[str, Any]:
    """Curves of consecutive seeds as one."""
    if len(parts) == 1:
        return parts[0]
    on_device = isinstance(parts[0]["valid"], jax.Array)
    with jax.enable_x64(True):
        return {n: (jnp if on_device else np).concatenate([part[n] for part in parts], axis=axis) for n in parts[0]}


def parts_of(share: Share, setting: int, settings: int, parts: int) -> range:
    """Returns which of some parts of the seeds a process simulates of a setting: all parts of all settings, in order, are cut evenly."""
    first, last = (-(-number * parts * settings // share[1]) for number in (share[0], share[0] + 1))
    begin, end = (-(-(number - setting) // settings) for number in (first, last))
    return range(max(0, begin), min(parts, end))


def units_of_runs(
    runs: Runs,
    layout: Layout,
    static: set[str],
    share: Share,
    limit: int,
    horizons: Callable[[str], Sequence[int]],
    steady: bool = False,
) -> Iterator[Unit]:
    """Yields what is missing of the first seeds of single runs.

    Args:
      runs: the result.
      layout: seeds and settings of a call.
      static: axes along which programs differ.
      share: number of this process, and of all.
      limit: number of seeds.
      horizons: rounds from which runs of a policy may be continued, the most first.
      steady: cuts the seeds in the same way whatever is there.
    """
    request = runs.request
    inside = {
        number: cells.mask_of(request.cut.values[part[part < limit]] % GRANULE)
        for number, part in request.cut.granules.items()
    }
    for policy in request.policies:
        shape, axes = request.shape(policy), request.policy_axes[policy]
        lacking = [{g: m & inside[g] for g, m in one.items() if m & inside[g]} for one in runs.lacking(policy)]
        if share != ALONE:
            mine = _owned(request, len(lacking), share)
            lacking = [
                {g: m & have[g] for g, m in one.items() if m & have.get(g, 0)}
                for one, have in zip(lacking, mine, strict=True)
            ]
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for number, one in enumerate(lacking):
            alike.setdefault(tuple(one.items()), []).append(number)
        for masks, numbers in alike.items():
            left = np.zeros(len(lacking), bool)
            left[numbers] = bool(masks)
            for tile in _tiles(left.reshape(shape), axes, layout, static):
                for rounds, some in _continued(
                    runs, policy, request.numbers_in(policy, tile), dict(masks), horizons(policy)
                ):
                    for block in _blocks(request.cut.of(some), layout.block, steady):
                        yield Unit(runs, tile, block, [Task(policy, tile, request.seeds[block], rounds)])


def _owned(request: Request, settings: int, share: Share) -> list[dict[int, int]]:
    """The seeds that a process simulates, by granule, for each setting; as many at least as are computed together."""
    group = (1 << LANE_MULTIPLE) - 1
    parts = [
        (granule, mask & (group << i))
        for granule, mask in request.cut.masks.items()
        for i in range(0, GRANULE, LANE_MULTIPLE)
        if mask & (group << i)
    ]
    spans = [parts_of(share, setting, settings, len(parts)) for setting in range(settings)]
    found: dict[range, dict[int, int]] = {span: {} for span in spans}
    for span, masks in found.items():
        for granule, mask in parts[span.start : span.stop]:
            masks[granule] = masks.get(granule, 0) | mask
    return [found[span] for span in spans]


def _tiles(left: np.ndarray, axes: Sequence[str], layout: Layout, static: set[str]) -> Iterator[dict[str, np.ndarray]]:
    """Yields tiles of the settings that are left, those with most of them first along each axis."""
    spans = []
    for place, axis in enumerate(axes):
        counts = left.sum(axis=tuple(i for i in range(left.ndim) if i != place))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
        width = 1 if axis in static else layout.tile[axis]
        spans.append([order[i : i + width] for i in range(0, len(order), width)])
    for parts in itertools.product(*spans):
        if left[np.ix_(*parts)].any() if parts else left.any():
            yield dict(zip(axes, parts, strict=True))


def _continued(
    runs: Runs, policy: str, numbers: Sequence[int], masks: dict[int, int], horizons: Sequence[int]
) -> Iterator[tuple[int, dict[int, int]]]:
    """Yields rounds that have been played before, and the seeds of which that is so in all settings."""
    store, request = runs.store, runs.request
    for rounds in horizons:
        if store is None or not masks:
            break
        families = [request.families(kind, policy, rounds) for kind in (cells.STATES, cells.CURVES)]
        some = {}
        for granule, mask in masks.items():
            for family in families:
                for number in numbers:
                    mask &= cells.held(store, family[number], granule)
            if mask:
                some[granule] = mask
        if some:
            masks = {g: left for g, mask in masks.items() if (left := mask & ~some.get(g, 0))}
            yield rounds, some
    if masks:
        yield 0, masks


def _blocks(seeds: np.ndarray, block: int, steady: bool) -> Iterator[np.ndarray]:
    if steady:
        cuts = np.flatnonzero(np.diff(seeds // block)) + 1
        yield from (one for one in np.split(seeds, cuts) if len(one))
        return
    yield from (seeds[i : i + block] for i in range(0, len(seeds), block))


def units_of_statistics(
    found: Statistics, layout: Layout, static: set[str], share: Share, limit: int, steady: bool = False
) -> Iterator[Unit]:
    """Yields what is missing of the statistics of full granules; arguments as for `units_of_runs`, `steady`: units do not need each other."""
    request = found.request
    shape, axes = tuple(len(v) for v in request.axes.values()), list(request.axes)
    granules = np.asarray([g for g in sorted(found.full) if request.cut.granules[g].max() < limit], np.int64)
    size = 1 << (max(1, layout.block // GRANULE).bit_length() - 1)
    chunks = np.split(granules, np.flatnonzero(np.diff(granules // size)) + 1) if len(granules) else []
    curves: dict[str, list[Any]] = {}
    for chunk in chunks:
        for left, some in _left(found, chunk, shape, granules, share):
            seeds = np.concatenate([request.cut.granules[granule] for granule in some])
            there: dict[str, list[list[int]]] = {}  # The settings of each policy that were simulated last.
            for tile in _tiles(left, axes, layout, static):
                needed = [policy for policy in request.policies if found.needed(policy, tile, some)]
                unit = Unit(found, tile, seeds, policies=needed, curves={} if steady else curves)
                for policy in needed:
                    part = {axis: tile[axis] for axis in request.policy_axes[policy]}
                    numbers = [at.tolist() for at in part.values()]
                    alone = len(needed) > 1 and policy == needed[-1] and not unit.tasks  # Two that have not met yet.
                    if steady or alone or there.get(policy) != numbers:
                        blocks = _blocks(seeds, layout.block, False)
                        unit.tasks += [Task(policy, part, request.seeds[block], summed=True) for block in blocks]
                    there[policy] = numbers
                if unit.tasks:
                    yield unit


def _left(
    found: Statistics, chunk: np.ndarray, shape: tuple[int, ...], granules: np.ndarray, share: Share
) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Yields settings that a process simulates, and the granules of a chunk of which they lack something."""
    settings, alike = math.prod(shape), dict[bytes, list[int]]()
    spans = [parts_of(share, setting, settings, len(granules)) for setting in range(settings)]
    begin, end = (np.asarray([getattr(span, name) for span in spans]) for name in ("start", "stop"))
    for place, granule in zip(np.searchsorted(granules, chunk).tolist(), chunk.tolist(), strict=True):
        left = ((begin <= place) & (place < end)).reshape(shape) & found.left(granule)
        alike.setdefault(left.tobytes(), []).append(granule)
    for key, some in alike.items():
        if (left := np.frombuffer(key, bool).reshape(shape)).any():
            yield left, some


class Step(NamedTuple):
    """A task of a unit."""

    unit: Unit
    task: Task

    def begun(self) -> Checkpoint | None:
        """The first rounds of the task, if they have been played and can be read."""
        if not self.task.begun or not isinstance(self.unit.result, Runs):
            return None
        return self.unit.result.begun(self.task.policy, self.unit.tile, self.unit.seeds, self.task.begun)


class Work:
    """Part of a result that this process simulates.

    Args:
      result: with the cells that are there.
      layout: seeds and settings of a call.
      static: axes along which programs differ.
      share: part of the work, as in `Execution`.
      store: of the result.
      horizons: rounds from which runs of a policy may be continued, the most first.
    """

    def __init__(
        self,
        result: Runs | Statistics,
        layout: Layout,
        static: set[str],
        share: str | tuple[int, int] | None,
        store: PackStore | None,
        horizons: Callable[[str], Sequence[int]],
    ):
        self.result, self.layout, self.static, self.store, self.horizons = result, layout, static, store, horizons
        self.joins = share == "join"
        self._share = share if isinstance(share, tuple) else ALONE

    def units(self, limit: int) -> list[Unit]:
        """Returns what is missing of the first seeds."""
        found, share = self.result, self._share
        if isinstance(found, Runs):
            return list(units_of_runs(found, self.layout, self.static, share, limit, self.horizons, self.joins))
        found.find(limit)
        units: list[Unit] = []
        if found.runs is not None:
            inside = int(np.searchsorted(found.rest, limit))
            units += units_of_runs(found.runs, self.layout, self.static, share, inside, self.horizons, self.joins)
        return [*units, *units_of_statistics(found, self.layout, self.static, share, limit, self.joins)]

    def steps(self, limit: int, in_order: bool) -> Generator["Step | None", None, None]:
        """Yields the tasks that are missing of the first seeds; `in_order`: block by block of seeds, so that policies can be compared.

        None stands for a step that there is not yet.
        """
        units = self.units(limit)
        if in_order:
            units.sort(key=lambda unit: int(unit.seeds.max()) // self.layout.block)
        with contextlib.closing(self._free(units) if self.joins else (unit for unit in units)) as free:
            for unit in free:
                yield from [None] if unit is None else [Step(unit, task) for task in unit.tasks]

    def _free(self, units: list[Unit]) -> Generator[Unit | None, None, None]:
        """Yields units in random order that no other process has simulated or simulates, until all are there; None before it waits.

        What takes about `_CLAIM_S` is claimed at once.
        """
        assert self.store is not None
        store, mine, said, number = self.store, [], False, 1
        left = [(unit, list(_cells_of(unit))) for unit in units]
        with Claims(store.place, EXPIRES_S) as claims:
            random.Random(claims.name).shuffle(left)
            while left:
                store.refresh()
                mine = [group for group in mine if group not in store.groups]
                others, free, rest = claims.others(), dict[int, Unit](), []
                new: dict[bytes, int] = {}
                for place, (unit, made) in enumerate(left):
                    if len(free) == number:
                        rest += left[place:]
                        break
                    if not _are_there(store, unit, made):
                        groups = [cells.group(family, granule) for family, granule, _ in made]
                        if others.isdisjoint(groups):
                            free[place] = unit
                            new |= dict.fromkeys(groups, place)
                        else:
                            rest.append((unit, made))
                for place in {new[group] for group in (claims.keep(mine, new) if new else ())}:
                    del free[place]
                    rest.append(left[place])
                mine += [group for group, place in new.items() if place in free]
                left, begin = rest, time.monotonic()
                yield from free.values()
                if free:
                    number = max(1, min(4 * number, int(number * _CLAIM_S / max(1e-9, time.monotonic() - begin))))
                elif left:
                    if not said:
                        said = True
                        tell(
                            f"waiting for other processes, which simulate {len(left)} blocks; one that has died is noticed after {EXPIRES_S:.0f} s"
                        )
                    yield None  # What this process has simulated is written first: others may wait for it.
                    if isinstance(self.result, Statistics):
                        self.result.write()
                    store.flush()
                    claims.drop()
                    time.sleep(EXPIRES_S / 20)


def _cells_of(unit: Unit) -> Iterator[tuple[bytes, int, int]]:
    """Family, first granule and extent of the cells that a unit makes."""
    request = unit.result.request
    if isinstance(unit.result, Statistics):
        granules = (request.cut.values[unit.seeds][::GRANULE] // GRANULE).tolist()
        for family in unit.result.families_in(unit.tile, [task.policy for task in unit.tasks]):
            yield from ((family, first, size) for first, size in cells.ranges(granules))
        return
    for policy, tile in {task.policy: task.tile for task in unit.tasks}.items():
        families = request.families(cells.CURVES, policy)
        for number in request.numbers_in(policy, tile):
            yield from ((families[number], granule, mask) for granule, mask, _ in request.cut.cut(unit.seeds))


def _are_there(store: PackStore, unit: Unit, made: Sequence[tuple[bytes, int, int]]) -> bool:
    """Says whether all cells of a unit are there."""
    if isinstance(unit.result, Statistics):
        return not any(cells.cover(cells.stored(store, family), (first, size))[1] for family, first, size in made)
    return all(cells.held(store, family, granule) & mask == mask for family, granule, mask in made)
