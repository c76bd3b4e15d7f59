"""Bytes of the state of a run, and cores of the process."""

import os
from typing import Any

import jax

from jaxroute.core import draws
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, first_state
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import once, spec_for, state_bytes, traced_once

# Runs of one device come in multiples of this, so that a run's arithmetic does not depend on its neighbours' number.
LANE_MULTIPLE = 16


def cores() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bytes_of_run(env: AnyEnvironment, policy: AnyPolicy) -> int:
    """Bytes of the states of one run."""

    def start(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array) -> tuple[Any, Any]:
        return once("init", env, key), once(first_state, env, policy, key, spec=spec_for(env, 1))

    def trace(env: AnyEnvironment, policy: AnyPolicy) -> int:
        return sum(map(state_bytes, jax.tree.leaves(jax.eval_shape(widened(start), env, policy, draws.key(0)))))

    return traced_once("state", trace, env, policy)
