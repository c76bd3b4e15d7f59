"""What a run takes: bytes of its state, shapes of what its functions return, and how many runs fit into memory."""

import os
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax

from jaxroute.core import draws
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, first_state
from jaxroute.core.provenance import memory_limit
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import once, spec_for, state_bytes, traced_once

# Runs of one device come in multiples of this, so that a run's arithmetic does not depend on its neighbours' number.
LANE_MULTIPLE = 16


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bytes_of_run(env: AnyEnvironment, policy: AnyPolicy) -> int:
    """Bytes of the states of one run."""

    def start(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array) -> tuple[Any, Any]:
        return once("init", env, key), once(first_state, env, policy, key, spec=spec_for(env, 1))

    def trace(env: AnyEnvironment, policy: AnyPolicy) -> int:
        return sum(map(state_bytes, jax.tree.leaves(jax.eval_shape(widened(start), env, policy, draws.key(0)))))

    return traced_once("state", trace, env, policy)


def runs_that_fit(
    state_bytes: Mapping[str, int],
    numbers: Mapping[str, int],
    num_records: int,
    devices: Sequence[Any],
    one_by_one: Container[str] = (),
    scratch: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Returns the number of runs whose states and curves fit into a quarter of the devices' memory: a guess that a halved block can correct.

    Args:
      state_bytes: bytes of the states of one run, by label.
      numbers: how many numbers a run writes at a record time, by label.
      num_records: number of record times.
      devices: devices of one kind.
      one_by_one: labels of runs that are simulated one by one, as many at a time as there are cores.
      scratch: bytes of scratch memory of a run on a GPU, by label.

    Raises:
      ValueError: not even the smallest group of runs fits into memory.
    """
    worst, memory = 1, memory_limit(devices[0])
    for name, size in state_bytes.items():
        together = cores() if name in one_by_one else LANE_MULTIPLE
        if size * together > memory:
            raise ValueError(
                f"policy {name!r} needs {size / 1e9:.3g} GB for the state of one run, and {together} runs are simulated together: more "
                f"than the {memory / 1e9:.3g} GB of {devices[0].platform} memory; make the instance smaller"
            )
        states = 0 if name in one_by_one else 8 * size
        worst = max(worst, 4 * num_records * numbers[name] + states + scratch.get(name, 0))
    return max(1, memory * len(devices) // 4 // worst)
