"""The call of a kernel that a program has, with its operands: what XLA hands to a compiler's function."""

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.kernels.rollout import kernel_rollout, rounds_p


def call_of(env, policy, horizon=23, every=7, runs=5, **resumed):
    """Operands of the call, NumPy arrays, its parameters and the names of its results: the default flows, and the states."""
    if hasattr(env, "step"):
        policy = build_policy(policy, env)
    root, names = np.asarray(jax.random.key_data(draws.key(0))), []

    def simulated():
        streams = run_streams(root, np.arange(runs, dtype=np.uint32))
        example = env if hasattr(env, "step") else env(draws.key(0))
        flows = tuple(m for m in example.spec.metrics if m.kind != "gauge" and m.default)
        values = kernel_rollout(env, policy, streams, horizon, Record(every=every, flows=flows), keep_states=True, **resumed)
        names.extend(values)
        return values

    closed = jax.make_jaxpr(simulated)()
    place, call = next((i, one) for i, one in enumerate(closed.jaxpr.eqns) if one.primitive is rounds_p)
    before = closed.jaxpr.replace(eqns=closed.jaxpr.eqns[:place], outvars=call.invars)
    return [np.asarray(x) for x in jax.jit(jaxpr_as_fun(closed.replace(jaxpr=before)))()], call.params, names
