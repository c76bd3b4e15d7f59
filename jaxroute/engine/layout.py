"""Chooses how many runs one compiled call simulates: a number of seeds (a block) and a number of settings along each axis (a tile)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxroute.core.provenance import cores, memory_limit
from jaxroute.engine.request import Setup
from jaxroute.engine.rounds import LANE_MULTIPLE

# Runs x settings of one compiled call on a CPU core: enough to fill the vector units, few enough to stay in cache.
_CPU_LANES = 1024
# If states are large (a history, a long queue), as many runs as fit into the first number of bytes, but at least the second number of runs.
_CPU_CACHE, _FEWEST_CPU_LANES = 8 << 20, 128
# Runs x settings of one compiled call on a GPU: many waves of the threads that it holds at the same time, since the last one may be nearly empty.
_GPU_LANES = 1 << 20
# Settings of a compiled call along an axis that shares most of a run's state, and the factor by which more runs then fit in cache.
_SHARED_TILE = 16
_LIGHT_LANES = 16
# Largest number of bytes of the curves of a block if only statistics are stored.
_CURVE_BYTES = 1 << 30
# Largest number of runs of a block on a GPU if the simulation may stop early.
_MOST_COMPARED = 1 << 17


@dataclass(frozen=True)
class Layout:
    """Number of runs that one compiled call simulates.

    Attributes:
      block: number of seeds of a call.
      tile: number of settings of a call along each axis.
    """

    block: int
    tile: dict[str, int]

    @staticmethod
    def choose(
        setup: Setup, most: int, state_bytes: int = 0, one_by_one: bool = False, waves: Sequence[int] = ()
    ) -> "Layout":
        """Chooses the numbers of seeds and settings of a call, rounded so that simulations of similar size reuse compiled programs.

        Args:
          setup: environment, policies, seeds and devices.
          most: number of runs that fit into the memory of all devices together.
          state_bytes: bytes of the state of a run. A CPU core simulates at once only as many runs as fit into its cache (0: no such limit).
          one_by_one: whether a CPU core simulates the runs of some policy one after the other (`Target.one_by_one`); a call then has one setting.
          waves: for each policy the number of runs that all GPUs together simulate at the same time; empty if it is unknown.
        """
        axes, shared, static = setup.components.axes, setup.components.shared_axes, setup.components.static_axes
        block, devices, on_cpu = setup.target.block, setup.target.devices, setup.target.on_cpu
        multiple = LANE_MULTIPLE * len(devices)
        per_core = min(_CPU_LANES, max(_FEWEST_CPU_LANES, 1 << (max(1, _CPU_CACHE // max(state_bytes, 1)).bit_length() - 1)))
        lanes = per_core * max(len(devices), 1 << (cores().bit_length() - 1)) if on_cpu else _GPU_LANES * len(devices)
        if one_by_one:  # Small blocks, because a block is stored only when it is complete.
            lanes = min(lanes, 2 * multiple)
        # A fixed tile: a grid with more settings meets the same shapes. The price is a last tile that is partly padding.
        # If some axes share state, a call has one setting along the other axes, as the shared state would be computed for each of theirs.
        widest = (4 if on_cpu else 16) if len(axes) <= 2 else 2

        def width(axis: str, most_settings: int) -> int:
            return 1 if one_by_one or axis in static else min(most_settings, 1 << (len(axes[axis]) - 1).bit_length())

        tile = {a: width(a, _SHARED_TILE if a in shared else 1 if shared else widest) for a in axes}
        while shared and math.prod(tile.values()) > max(1, most // multiple):
            tile[max(tile, key=lambda a: tile[a])] //= 2
        # Settings that share most of their state need little memory.
        light = min(_LIGHT_LANES, math.prod(tile[a] for a in shared))
        cap = min(lanes * light, 1 << (most.bit_length() - 1) if on_cpu else most)
        if block is None:
            seeds, settings = len(setup.sampling.seeds), math.prod(tile.values())
            # On a CPU, where padding takes time, a power of two.
            whole = 1 << (seeds.bit_length() - 1) if on_cpu else _whole_waves(seeds, cap // settings, settings, waves)
            block = min(cap // settings, whole)
        for axis in [one for one in axes if shared and one not in shared]:
            # With few seeds the other settings fit in, too.
            while tile[axis] < width(axis, widest) and 2 * block * math.prod(tile.values()) <= cap:
                tile[axis] *= 2
        return Layout(max(1, -(-block // multiple)) * multiple, tile)


def choose_layout(setup: Setup, needs: Mapping[str, tuple[int, int]]) -> Layout:
    """Chooses the layout of the simulation `setup`, so that states and curves of a call take about a quarter of the devices' memory.

    `needs` has for each variant, by label, the bytes of scratch memory of one run, and how many runs the GPUs simulate at once (`device_needs`).

    Raises:
      ValueError: not even the smallest group of runs fits into memory.
    """
    components, recording, target = setup.components, setup.recording, setup.target
    one_by_one = {one.label for one in components.variants if target.one_by_one(one.hint)}
    worst, memory, records = 1, memory_limit(target.devices[0]), len(recording.times)
    for variant in components.variants:
        name, size = variant.label, setup.state_bytes[variant.label]
        together = cores() if name in one_by_one else LANE_MULTIPLE  # As many as there are cores are simulated one by one.
        if size * together > memory:
            raise ValueError(
                f"policy {name!r} needs {size / 1e9:.3g} GB for the state of one run, and {together} runs are simulated together: more "
                f"than the {memory / 1e9:.3g} GB of {target.platform} memory; make the instance smaller"
            )
        states, (scratch, _) = 0 if name in one_by_one else 8 * size, needs.get(name, (0, 0))
        worst = max(worst, 4 * records * recording.numbers[variant.policy] + states + scratch)
    most = max(1, memory * len(target.devices) // 4 // worst)
    if recording.goals and not target.on_cpu:
        most = min(most, _MOST_COMPARED)
    if recording.keep == "moments":  # Curves of all policies of a block are in memory together, for their differences.
        most = min(most, max(1, _CURVE_BYTES // (8 * records * sum(recording.numbers.values()))))
    largest = max((size for label, size in setup.state_bytes.items() if label not in one_by_one), default=0)
    return Layout.choose(setup, most, largest, bool(one_by_one), [at_once for _, at_once in needs.values()])


def _whole_waves(num_seeds: int, most: int, settings: int, waves: Sequence[int]) -> int:
    """Returns how many seeds, at most `most`, a block on a GPU should have, so that all policies together simulate `num_seeds` seeds fastest.

    A wave is a group of runs that the GPUs simulate at the same time; `waves` has its size for each policy. If `waves` is empty, there are
    as few blocks as possible. A block has `settings` runs for each seed.
    """
    step = 1 << max(0, most.bit_length() - 4)
    most = max(1, most // step * step)  # A block that does not fit into memory can be halved.

    def size(number: int) -> int:
        seeds = -(-num_seeds // number)
        unit = 1 << max(0, seeds.bit_length() - 3)  # Three binary digits, so that few sizes are compiled.
        return min(most, -(-seeds // unit) * unit)

    def cost(number: int) -> float:
        blocks = -(-num_seeds // size(number))
        return sum(blocks * -(-size(number) * settings // wave) * wave for wave in waves)

    fewest = -(-num_seeds // most)
    return size(min(range(fewest, min(2 * fewest, fewest + 64) + 1), key=cost)) if waves else size(fewest)
