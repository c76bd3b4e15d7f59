"""Schedule of the missing runs: batches of compiled calls, for one process or for several that share the work."""

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.layout import Layout
from jaxroute.engine.progress import print_line
from jaxroute.engine.rounds import LANE_MULTIPLE
from jaxroute.store import cells
from jaxroute.store.cells import GRANULE, Request, Seeds, Tile
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


# With fewer runs a standard error says too little about itself.
FEWEST_SEEDS = 256


@dataclass(frozen=True)
class Ending:
    """End of a simulation.

    Attributes:
      seeds: number of seeds of the result.
      met: whether the goals of `until_stderr` were reached.
      errors: largest standard errors by metric; None where one is unknown.
    """

    seeds: int = 0
    met: bool = False
    errors: dict[str, float | None] = field(default_factory=dict)


def seed_numbers(goals: Mapping[str, float], seeds: Seeds) -> list[int]:
    """Returns the numbers of seeds after which the standard errors are compared with the goals: they double, up to all seeds.

    Each is one at which whole granules of seeds are complete. Without goals there is only the last.
    """
    last = np.zeros(len(seeds.values), np.int64)
    if not goals:
        return [len(last)]
    for part in seeds.granules.values():
        last[part] = part.max()
    whole = np.flatnonzero(np.maximum.accumulate(last) <= np.arange(len(last))) + 1
    number, found = FEWEST_SEEDS, []
    while number < len(last):
        found.append(int(whole[np.searchsorted(whole, number)]))
        number *= 2
    return list(dict.fromkeys([*found, len(last)]))


def compare(goals: Mapping[str, float], result: Runs | Statistics, seeds: int) -> Ending:
    """Compares the standard errors over the first seeds, of all policies and settings, with the goals."""
    worst: dict[str, float] = {}
    for metric in goals:
        policies = [name for name, recorded in result.request.recorded.items() if metric in recorded]
        worst[metric] = float(np.max(result.errors(metric, policies, seeds), initial=0.0))
    met = bool(goals) and all(worst[name] < goal for name, goal in goals.items())
    return Ending(seeds, met, {name: error if math.isfinite(error) else None for name, error in worst.items()})


@dataclass(frozen=True)
class Call:
    """Work of one compiled call: a policy on a tile of settings and a block of seeds.

    Attributes:
      policy: name of the policy.
      tile: positions along each axis that the policy has.
      seeds: `[R]` seeds.
      since: number of rounds that were simulated before.
      summed: whether only statistics of the runs are stored.
    """

    policy: str
    tile: Tile
    seeds: np.ndarray
    since: int = 0
    summed: bool = False


@dataclass
class Batch:
    """Cells whose curves are stored together: one cell of single runs, or all policies on the same settings and seeds for statistics.

    Attributes:
      result: result that the batch belongs to.
      tile: positions along each axis; for statistics along all.
      seeds: positions in the seeds of the result.
      calls: calls in order.
      policies: policies whose curves the statistics need; those without a call have been simulated for the batch before.
      curves: curves of the finished calls by policy, for statistics; batches share them.
    """

    result: Runs | Statistics
    tile: Tile
    seeds: np.ndarray
    calls: list[Call] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    curves: dict[str, list[Any]] = field(default_factory=dict)

    def checkpoint(self, call: Call) -> Checkpoint | None:
        """Returns the first rounds of a call, if they have been simulated and can be read."""
        if not call.since or not isinstance(self.result, Runs):
            return None
        return self.result.checkpoint(call.policy, self.tile, self.seeds, call.since)

    def take(self, call: Call, curves: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        """Passes the curves of a call to the result, once those of the batch are complete."""
        if isinstance(self.result, Runs):
            self.result.take(call.policy, self.tile, self.seeds, curves, checkpoint)
            return
        if call is next(one for one in self.calls if one.policy == call.policy):
            self.curves[call.policy] = []
        self.curves[call.policy].append(curves)
        if call is self.calls[-1]:
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


def batches_of_runs(
    runs: Runs,
    layout: Layout,
    static: set[str],
    share: Share,
    limit: int,
    horizons: Callable[[str], Sequence[int]],
    steady: bool = False,
) -> Iterator[Batch]:
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
                        yield Batch(runs, tile, block, [Call(policy, tile, request.seeds[block], rounds)])


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


def batches_of_statistics(
    found: Statistics, layout: Layout, static: set[str], share: Share, limit: int, steady: bool = False
) -> Iterator[Batch]:
    """Yields what is missing of the statistics of full granules; arguments as for `batches_of_runs`, `steady`: batches do not need each other."""
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
                batch = Batch(found, tile, seeds, policies=needed, curves={} if steady else curves)
                for policy in needed:
                    part = {axis: tile[axis] for axis in request.policy_axes[policy]}
                    numbers = [at.tolist() for at in part.values()]
                    alone = len(needed) > 1 and policy == needed[-1] and not batch.calls  # Two that have not met yet.
                    if steady or alone or there.get(policy) != numbers:
                        blocks = _blocks(seeds, layout.block, False)
                        batch.calls += [Call(policy, part, request.seeds[block], summed=True) for block in blocks]
                    there[policy] = numbers
                if batch.calls:
                    yield batch


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


class Schedule:
    """Missing runs of a result that this process simulates.

    Args:
      result: result with the stored cells.
      layout: seeds and settings of a call.
      static: axes along which programs differ.
      share: part of the work, as in `Execution`.
      store: store of the result.
      horizons: rounds from which runs of a policy can be continued, largest first.
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

    def batches(self, limit: int) -> list[Batch]:
        """Returns the missing batches of the first seeds."""
        result, rest = self.result, (self.layout, self.static, self._share)
        if isinstance(result, Runs):
            return list(batches_of_runs(result, *rest, limit, self.horizons, self.joins))
        result.find(limit)
        batches: list[Batch] = []
        if result.runs is not None:
            inside = int(np.searchsorted(result.rest, limit))
            batches += batches_of_runs(result.runs, *rest, inside, self.horizons, self.joins)
        return [*batches, *batches_of_statistics(result, *rest, limit, self.joins)]

    def remaining(self, goals: Mapping[str, float]) -> list[Batch]:
        """Returns all batches that may have to be simulated; none if the stored runs reach the goals."""
        for seeds in seed_numbers(goals, self.result.request.cut):
            if self.batches(seeds):
                return self.batches(len(self.result.request.seeds))
            if compare(goals, self.result, seeds).met:
                break
        return []

    def calls(self, limit: int, in_order: bool) -> Generator[tuple[Batch, Call] | None, None, None]:
        """Yields the missing calls of the first seeds with their batches; None while there is no free one.

        With `in_order` block by block of seeds, so that policies can be compared.
        """
        batches = self.batches(limit)
        if in_order:
            batches.sort(key=lambda batch: int(batch.seeds.max()) // self.layout.block)
        with contextlib.closing(self._free(batches) if self.joins else (batch for batch in batches)) as free:
            for batch in free:
                yield from [None] if batch is None else [(batch, call) for call in batch.calls]

    def _free(self, batches: list[Batch]) -> Generator[Batch | None, None, None]:
        """Yields batches in random order that no other process has simulated or simulates, until all are there; None before it waits.

        What takes about `_CLAIM_S` is claimed at once.
        """
        assert self.store is not None
        store, mine, said, number = self.store, [], False, 1
        left = [(batch, list(_addresses_of(batch))) for batch in batches]
        with Claims(store.place, EXPIRES_S) as claims:
            random.Random(claims.name).shuffle(left)
            while left:
                store.refresh()
                mine = [group for group in mine if group not in store.groups]
                others, free, rest = claims.others(), dict[int, Batch](), []
                new: dict[bytes, int] = {}
                for place, (batch, made) in enumerate(left):
                    if len(free) == number:
                        rest += left[place:]
                        break
                    if not _are_there(store, batch, made):
                        groups = [cells.group(family, granule) for family, granule, _ in made]
                        if others.isdisjoint(groups):
                            free[place] = batch
                            new |= dict.fromkeys(groups, place)
                        else:
                            rest.append((batch, made))
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
                        print_line(
                            f"waiting for other processes, which simulate {len(left)} blocks; one that has died is noticed after {EXPIRES_S:.0f} s"
                        )
                    yield None  # What this process has simulated is written first: others may wait for it.
                    if isinstance(self.result, Statistics):
                        self.result.write()
                    store.flush()
                    claims.drop()
                    time.sleep(EXPIRES_S / 20)


def _addresses_of(batch: Batch) -> Iterator[tuple[bytes, int, int]]:
    """Family, first granule and extent of the cells that a batch makes."""
    request = batch.result.request
    if isinstance(batch.result, Statistics):
        granules = (request.cut.values[batch.seeds][::GRANULE] // GRANULE).tolist()
        for family in batch.result.families_in(batch.tile, [call.policy for call in batch.calls]):
            yield from ((family, first, size) for first, size in cells.ranges(granules))
        return
    for policy, tile in {call.policy: call.tile for call in batch.calls}.items():
        families = request.families(cells.CURVES, policy)
        for number in request.numbers_in(policy, tile):
            yield from ((families[number], granule, mask) for granule, mask, _ in request.cut.cut(batch.seeds))


def _are_there(store: PackStore, batch: Batch, made: Sequence[tuple[bytes, int, int]]) -> bool:
    """Says whether all cells of a batch are there."""
    if isinstance(batch.result, Statistics):
        return not any(cells.cover(cells.stored(store, family), (first, size))[1] for family, first, size in made)
    return all(cells.held(store, family, granule) & mask == mask for family, granule, mask in made)
