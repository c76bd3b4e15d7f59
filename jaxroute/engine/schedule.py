"""Divides the missing runs of a result into batches of compiled calls, for one process or for several that share the work.

A call simulates a block of seeds and a tile of settings (see `programs`). A store addresses runs by granule, a group of 256 consecutive seeds, and by
mask, an integer with a bit for each seed of the granule (see `jaxroute.store.cells`).
"""

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
from jaxroute.store.cells import GRANULE, Claims, Seeds, Tile
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import PackStore
from jaxroute.store.runs import Checkpoint, Runs

# Seconds after which a silent process that shares the work counts as dead, and seconds of work that such a process claims at once.
EXPIRES_S, _CLAIM_S = 30.0, 1.0
# Fewest seeds at which goals are checked, because the standard error of fewer runs is too uncertain.
FEWEST_SEEDS = 256
# Index of a process, and number of all that share the work.
Share = tuple[int, int]


@dataclass(frozen=True)
class Ending:
    """Outcome of a simulation that may stop before all seeds are simulated.

    Attributes:
      seeds: number of seeds of the result.
      met: whether the goals of `until_stderr` were reached.
      errors: for each metric with a goal, the largest standard error over policies and settings at the horizon; None for one that is unknown.
    """

    seeds: int = 0
    met: bool = False
    errors: dict[str, float | None] = field(default_factory=dict)


def seed_numbers(goals: Mapping[str, float], seeds: Seeds) -> list[int]:
    """Returns the numbers of seeds after which standard errors are compared with goals: about 256, 512, 1024, ..., and all. Without goals only all.

    If the seeds are not 0, 1, 2, ..., a number is increased where it would split a granule, a group of 256 consecutive seeds.
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
    """Compares standard errors over the first `seeds` seeds of `result` with `goals` by metric; `Ending.met` is True if all are below their goals."""
    worst: dict[str, float] = {}
    for metric in goals:
        policies = [name for name, recorded in result.request.recorded.items() if metric in recorded]
        worst[metric] = float(np.max(result.errors(metric, policies, seeds), initial=0.0))
    met = bool(goals) and all(worst[name] < goal for name, goal in goals.items())
    return Ending(seeds, met, {name: error if math.isfinite(error) else None for name, error in worst.items()})


@dataclass(frozen=True)
class Call:
    """Work of one compiled call: the runs of a policy on a tile (a rectangle of settings) for a block of seeds.

    Attributes:
      policy: name of the policy.
      tile: array of indices of the settings, for each axis on which the policy depends.
      seeds: `[R]` seeds, one for each run.
      since: number of counted rounds that are stored already, from which the runs continue.
      summed: whether only statistics of the runs are stored.
    """

    policy: str
    tile: Tile
    seeds: np.ndarray
    since: int = 0
    summed: bool = False


@dataclass
class Batch:
    """Calls whose results are stored together. A batch of single runs has one call; for statistics it has the calls of all policies on the same runs.

    Attributes:
      result: result that the batch belongs to.
      tile: indices of the settings along each axis of the policy; for statistics along each axis of the result.
      seeds: indices into the seeds of the result.
      calls: calls in order.
      policies: for statistics, names of all policies whose curves are needed; those without a call in this batch were simulated for an earlier one.
      curves: for statistics, curves of finished calls by policy. Batches share this dict, so that a later batch can use the curves again.
    """

    result: Runs | Statistics
    tile: Tile
    seeds: np.ndarray
    calls: list[Call] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    curves: dict[str, list[Any]] = field(default_factory=dict)

    def checkpoint(self, call: Call) -> Checkpoint | None:
        """Returns the stored state from which a call continues; None if the call starts in the first round or the state cannot be read."""
        if not call.since or not isinstance(self.result, Runs):
            return None
        return self.result.checkpoint(call.policy, self.tile, self.seeds, call.since)

    def take(self, call: Call, curves: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        """Accepts curves and checkpoint (None if not stored) of a finished call, and passes them to the result once the batch has all curves."""
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

    def addresses(self) -> Iterator[tuple[bytes, int, int]]:
        """Yields where the batch is stored: (digest of policy and setting, granule, mask) or, for statistics, (digest, first granule, number)."""
        request = self.result.request
        if isinstance(self.result, Statistics):
            granules = (request.cut.values[self.seeds][::GRANULE] // GRANULE).tolist()
            for family in self.result.families_in(self.tile, [call.policy for call in self.calls]):
                yield from ((family, first, size) for first, size in cells.ranges(granules))
            return
        for policy, tile in {call.policy: call.tile for call in self.calls}.items():
            families = request.families(cells.CURVES, policy)
            for number in request.numbers_in(policy, tile):
                yield from ((families[number], granule, mask) for granule, mask, _ in request.cut.cut(self.seeds))

    def is_stored(self, store: PackStore, made: Sequence[tuple[bytes, int, int]]) -> bool:
        """Whether a store already has all storage units of the batch; `made` lists their `addresses`."""
        if isinstance(self.result, Statistics):
            return not any(cells.cover(cells.stored(store, family), (first, size))[1] for family, first, size in made)
        return all(cells.held(store, family, granule) & mask == mask for family, granule, mask in made)


def _joined(parts: Sequence[Mapping[str, Any]], axis: int) -> Mapping[str, Any]:
    if len(parts) == 1:
        return parts[0]
    on_device = isinstance(parts[0]["valid"], jax.Array)
    with jax.enable_x64(True):
        return {n: (jnp if on_device else np).concatenate([part[n] for part in parts], axis=axis) for n in parts[0]}


def parts_of(share: Share, setting: int, settings: int, parts: int) -> range:
    """Returns the indices, among `parts` groups of seeds, of those that a process simulates at the setting with index `setting` of `settings`.

    `share` is (index of the process, number of processes). All pairs (group, setting), in the order of groups, are divided evenly among processes.
    """
    first, last = (-(-number * parts * settings // share[1]) for number in (share[0], share[0] + 1))
    begin, end = (-(-(number - setting) // settings) for number in (first, last))
    return range(max(0, begin), min(parts, end))


class Schedule:
    """Missing runs of a result that this process has to simulate.

    Args:
      result: result with the runs that are stored already.
      layout: number of seeds and settings of a call.
      static: axes whose settings need separate programs.
      share: (index, number of processes), "join", or None for all. With "join", stored runs do not affect how seeds are divided into batches.
      horizons: function of a policy's name; returns the rounds from which its runs can continue, the largest first.
    """

    def __init__(
        self,
        result: Runs | Statistics,
        layout: Layout,
        static: set[str],
        share: str | Share | None,
        horizons: Callable[[str], Sequence[int]],
    ):
        self.result, self.layout, self.static, self.store, self.horizons = result, layout, static, result.store, horizons
        self.joins = share == "join"
        self._share = share if isinstance(share, tuple) else (0, 1)

    def batches(self, limit: int) -> list[Batch]:
        """Returns the batches (calls whose results are stored together) that simulate the missing runs of the first `limit` seeds."""
        result, batches = self.result, list[Batch]()
        if isinstance(result, Runs):
            return list(self._batches_of_runs(result, limit))
        result.find(limit)
        if result.runs is not None:
            batches += self._batches_of_runs(result.runs, int(np.searchsorted(result.rest, limit)))
        return [*batches, *self._batches_of_statistics(result, limit)]

    def remaining(self, goals: Mapping[str, float]) -> list[Batch]:
        """Returns the batches of all missing runs, though fewer may suffice for `goals`; an empty list if the stored runs already reach the goals."""
        for seeds in seed_numbers(goals, self.result.request.cut):
            if self.batches(seeds):
                return self.batches(len(self.result.request.seeds))
            if compare(goals, self.result, seeds).met:
                break
        return []

    def calls(self, limit: int, in_order: bool) -> Generator[tuple[Batch, Call] | None, None, None]:
        """Yields the missing calls of the first `limit` seeds with their batches; None while other processes have claimed all missing calls.

        With `in_order` the calls are sorted by block of seeds, so that all policies progress together and can be compared.
        """
        batches = self.batches(limit)
        if in_order:
            batches.sort(key=lambda batch: int(batch.seeds.max()) // self.layout.block)
        with contextlib.closing(self._free(batches) if self.joins else (batch for batch in batches)) as free:
            for batch in free:
                yield from [None] if batch is None else [(batch, call) for call in batch.calls]

    def _free(self, batches: list[Batch]) -> Generator[Batch | None, None, None]:
        """Yields batches in random order that no other process has stored or claimed, until all are stored. Yields None before it waits for others.

        It claims as many batches at once as this process simulates in about `_CLAIM_S` seconds.
        """
        assert self.store is not None
        store, mine, reported, number = self.store, [], False, 1
        left = [(batch, list(batch.addresses())) for batch in batches]
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
                    if not batch.is_stored(store, made):
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
                    if not reported:
                        reported = True
                        print_line(
                            f"waiting for other processes, which simulate {len(left)} blocks; one that has died is noticed after {EXPIRES_S:.0f} s"
                        )
                    yield None  # The blocks of this process are written first: others may wait for them.
                    if isinstance(self.result, Statistics):
                        self.result.write()
                    store.flush()
                    claims.drop()
                    time.sleep(EXPIRES_S / 20)

    def _batches_of_runs(self, runs: Runs, limit: int) -> Iterator[Batch]:
        request = runs.request
        inside = {g: mask for g, mask, _ in request.cut.cut(np.arange(min(limit, len(request.seeds))))}
        for policy in request.policies:
            lacking = [_both(one, inside) for one in runs.lacking(policy)]
            if self._share[1] > 1:
                lacking = [_both(one, own) for one, own in zip(lacking, self._own_seeds(runs, len(lacking)), strict=True)]
            alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
            for number, one in enumerate(lacking):
                alike.setdefault(tuple(one.items()), []).append(number)
            for masks, numbers in alike.items():
                left = np.zeros(len(lacking), bool)
                left[numbers] = bool(masks)
                for tile in self._tiles(left.reshape(request.shape(policy)), request.policy_axes[policy]):
                    settings = request.numbers_in(policy, tile)
                    for rounds, some in self._continued(runs, policy, settings, dict(masks)):
                        for block in self._blocks(request.cut.of(some)):
                            yield Batch(runs, tile, block, [Call(policy, tile, request.seeds[block], rounds)])

    def _own_seeds(self, runs: Runs, settings: int) -> list[dict[int, int]]:
        """Returns the seeds that this process simulates: for each of `settings` settings a dict from granule (256 seeds) to a mask of its seeds."""
        group = (1 << LANE_MULTIPLE) - 1
        parts = [
            (granule, mask & (group << i))
            for granule, mask in runs.request.cut.masks.items()
            for i in range(0, GRANULE, LANE_MULTIPLE)
            if mask & (group << i)
        ]
        spans = [parts_of(self._share, setting, settings, len(parts)) for setting in range(settings)]
        found: dict[range, dict[int, int]] = {span: {} for span in spans}
        for span, masks in found.items():
            for granule, mask in parts[span.start : span.stop]:
                masks[granule] = masks.get(granule, 0) | mask
        return [found[span] for span in spans]

    def _tiles(self, left: np.ndarray, axes: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Yields tiles, as indices by axis, that together cover all True entries of `left`, a mask of settings whose axes are `axes`."""
        spans = []
        for place, axis in enumerate(axes):
            counts = left.sum(axis=tuple(i for i in range(left.ndim) if i != place))
            order = np.argsort(-counts, kind="stable")
            order = order[counts[order] > 0]
            width = 1 if axis in self.static else self.layout.tile[axis]
            spans.append([order[i : i + width] for i in range(0, len(order), width)])
        for parts in itertools.product(*spans):
            if left[np.ix_(*parts)].any() if parts else left.any():
                yield dict(zip(axes, parts, strict=True))

    def _continued(
        self, runs: Runs, policy: str, settings: Sequence[int], masks: dict[int, int]
    ) -> Iterator[tuple[int, dict[int, int]]]:
        """Divides seeds, given as `masks` by granule, by the stored horizon from which their runs continue. Yields pairs (horizon, masks).

        It is the longest horizon that is stored for these seeds at all `settings`; 0 if there is none.
        """
        store, request = runs.store, runs.request
        for rounds in self.horizons(policy):
            if store is None or not masks:
                break
            families = [request.families(kind, policy, rounds) for kind in (cells.STATES, cells.CURVES)]
            some = {}
            for granule, mask in masks.items():
                for family, number in itertools.product(families, settings):
                    mask &= cells.held(store, family[number], granule)
                if mask:
                    some[granule] = mask
            if some:
                masks = {g: left for g, mask in masks.items() if (left := mask & ~some.get(g, 0))}
                yield rounds, some
        if masks:
            yield 0, masks

    def _blocks(self, seeds: np.ndarray) -> list[np.ndarray]:
        block = self.layout.block
        cuts = np.flatnonzero(np.diff(seeds // block)) + 1 if self.joins else np.arange(block, len(seeds), block)
        return [one for one in np.split(seeds, cuts) if len(one)]

    def _batches_of_statistics(self, found: Statistics, limit: int) -> Iterator[Batch]:
        """Yields the batches that complete the statistics `found` for whole granules (groups of 256 seeds) among the first `limit` seeds."""
        request = found.request
        shape, axes = tuple(len(v) for v in request.axes.values()), list(request.axes)
        granules = np.asarray([g for g in sorted(found.full) if request.cut.granules[g].max() < limit], np.int64)
        size = 1 << (max(1, self.layout.block // GRANULE).bit_length() - 1)
        chunks = np.split(granules, np.flatnonzero(np.diff(granules // size)) + 1) if len(granules) else []
        curves: dict[str, list[Any]] = {}
        for chunk in chunks:
            for left, some in self._left(found, chunk, shape, granules):
                seeds = np.concatenate([request.cut.granules[granule] for granule in some])
                blocks = [seeds[i : i + self.layout.block] for i in range(0, len(seeds), self.layout.block)]
                last: dict[str, list[list[int]]] = {}  # The settings of each policy that were simulated last.
                for tile in self._tiles(left, axes):
                    needed = [policy for policy in request.policies if found.needed(policy, tile, some)]
                    batch = Batch(found, tile, seeds, policies=needed, curves={} if self.joins else curves)
                    for policy in needed:
                        part = {axis: tile[axis] for axis in request.policy_axes[policy]}
                        numbers = [at.tolist() for at in part.values()]
                        paired = len(needed) > 1 and policy == needed[-1] and not batch.calls  # Their difference is missing.
                        if self.joins or paired or last.get(policy) != numbers:
                            batch.calls += [Call(policy, part, request.seeds[block], summed=True) for block in blocks]
                        last[policy] = numbers
                    if batch.calls:
                        yield batch

    def _left(
        self, found: Statistics, chunk: np.ndarray, shape: tuple[int, ...], granules: np.ndarray
    ) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Yields pairs (mask of settings, list of granules): statistics that `found` lacks and that this process has to simulate.

        The processes divide `granules`, the numbers of all granules, among themselves. Only granules in `chunk` are yielded. Masks have this `shape`.
        """
        settings, alike = math.prod(shape), dict[bytes, list[int]]()
        spans = [parts_of(self._share, setting, settings, len(granules)) for setting in range(settings)]
        begin, end = (np.asarray([getattr(span, name) for span in spans]) for name in ("start", "stop"))
        for place, granule in zip(np.searchsorted(granules, chunk).tolist(), chunk.tolist(), strict=True):
            left = ((begin <= place) & (place < end)).reshape(shape) & found.left(granule)
            alike.setdefault(left.tobytes(), []).append(granule)
        for key, some in alike.items():
            if (left := np.frombuffer(key, bool).reshape(shape)).any():
                yield left, some


def _both(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Returns the seeds that are in `one` and in `other`, each a dict from granule (a group of 256 seeds) to a bit mask of its seeds."""
    return {granule: both for granule, mask in one.items() if (both := mask & other.get(granule, 0))}
