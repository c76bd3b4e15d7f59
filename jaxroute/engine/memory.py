"""What a run takes: bytes of its state, shapes of what its functions return, and how many runs fit into memory."""

import os
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import draws
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, first_state
from jaxroute.core.provenance import memory_limit
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import once, spec_for, state_bytes

# Runs of one device come in multiples of this, so that a run's arithmetic does not depend on its neighbours' number.
LANE_MULTIPLE = 16

_measured: dict[Any, Any] = {}  # What `traced_once` has found, by what it was found for.


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def traced_once(what: Hashable, trace: Callable[[Any, Any], Any], env: AnyEnvironment, policy: AnyPolicy) -> Any:
    """Returns what `trace(env, policy)` finds, which gets shapes instead of arrays; from memory, if it was found for an equal pair before.

    Args:
      what: what is looked for.
      trace: traces functions of them.
      env: first argument.
      policy: second argument.
    """
    leaves, structure = jax.tree.flatten((env, policy))
    types = tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
    key = (what, structure, types, jax.config.read("jax_enable_x64"))
    if key not in _measured:
        shapes = [jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
        with jax.default_device(jax.local_devices()[0]):  # As programs are traced, so that what they share is traced once.
            _measured[key] = trace(*jax.tree.unflatten(structure, shapes))
    return _measured[key]


def bytes_of_run(env: AnyEnvironment, policy: AnyPolicy) -> int:
    """Bytes of the states of one run."""

    def start(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array) -> tuple[Any, Any]:
        return once("init", env, key), once(first_state, env, policy, key, spec=spec_for(env, 1))

    def trace(env: AnyEnvironment, policy: AnyPolicy) -> int:
        return sum(map(state_bytes, jax.tree.leaves(jax.eval_shape(widened(start), env, policy, draws.key(0)))))

    return traced_once("state", trace, env, policy)


def runs_that_fit(
    examples: Mapping[str, tuple[AnyEnvironment, AnyPolicy]],
    numbers: Mapping[str, int],
    num_records: int,
    devices: Sequence[Any],
    alone: Container[str] = (),
    scratch: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Runs whose states and curves fit into a quarter of the devices' memory: a guess that a halved block can correct.

    Args:
      examples: environment and policy by name of the policy.
      numbers: how many numbers a run of each policy writes at a record time.
      num_records: record times.
      devices: of one kind.
      alone: policies whose runs are played one by one, as many at a time as there are cores.
      scratch: bytes of scratch memory that a run takes on a GPU, by policy.

    Raises:
      ValueError: not even the fewest runs that are played together fit into memory.
    """
    worst, memory = 1, memory_limit(devices[0])
    for name, (env, policy) in examples.items():
        held, together = bytes_of_run(env, policy), cores() if name in alone else LANE_MULTIPLE
        if held * together > memory:
            raise ValueError(
                f"policy {name!r} needs {held / 1e9:.3g} GB for the state of one run, and {together} runs are played together: more "
                f"than the {memory / 1e9:.3g} GB of {devices[0].platform} memory; make the instance smaller"
            )
        states = 0 if name in alone else 8 * held
        worst = max(worst, 4 * num_records * numbers[name] + states + scratch.get(name, 0))
    return max(1, memory * len(devices) // 4 // worst)
