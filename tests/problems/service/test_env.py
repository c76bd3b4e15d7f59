"""The service: what is charged."""

import jax.numpy as jnp
import pytest

from jaxroute.core import draws
from jaxroute.problems import service as sv


def test_decision_energy_is_charged():
    env = sv.typed_service()
    key, t = draws.key(1), jnp.int32(0)
    state = env.init(key)
    free, dear = (env.step(key, state, sv.baselines.serve_with(1, energy), t)[2] for energy in (0.0, 7.0))
    assert float(dear["cost"]) == pytest.approx(float(free["cost"]) + 7.0)
    assert float(dear["decision_cost"]) == 7.0 and float(dear["served_cost"]) == float(free["served_cost"])
