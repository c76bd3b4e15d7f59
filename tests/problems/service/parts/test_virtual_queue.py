"""The virtual queue of a policy."""

import jax.numpy as jnp
import numpy as np
from service_cases import SPEC, observed

from jaxroute.core import draws
from jaxroute.problems import service as sv
from jaxroute.problems.service.parts.virtual_queue import VirtualQueue


def test_queue_of_section_4_2():
    policy = sv.MessPlus(predictor=sv.Labels())
    state, obs = policy.init(draws.key(0), SPEC), observed((1, 2, 3), (0, 0, 0), 0.7)
    action = sv.baselines.serve_with(0)
    path = []
    for served in (0, 1, 0, 0, 1, 1, 1, 1):
        feedback = sv.types.Feedback(jnp.bool_(True), jnp.float32(served), jnp.float32(1), jnp.zeros(3), jnp.zeros(3))
        state = policy.update(draws.key(0), state, obs, action, feedback, jnp.int32(1))
        path.append(float(state.queue.length))
        silent = policy.update(draws.key(0), state, obs, action, feedback.replace(arrived=jnp.bool_(False)), jnp.int32(1))
        assert float(silent.queue.length) == path[-1]
    np.testing.assert_allclose(path, [0.7, 0.4, 1.1, 1.8, 1.5, 1.2, 0.9, 0.6], atol=1e-6)
    full = policy.update(
        draws.key(0),
        state.replace(queue=VirtualQueue(jnp.float32(0.1), jnp.float32(0.0))),
        obs,
        action,
        feedback,
        jnp.int32(1),
    )
    assert float(full.queue.length) == 0.0
