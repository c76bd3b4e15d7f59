"""A state without a plan: what it refuses, and what it lets pass."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.core.types import UnplannedState, planned_state


def test_it_has_nothing_of_its_state():
    state = UnplannedState({"pulls": jnp.zeros(3)})
    words = r"this state has no plan yet: call plan\(key, state, obs, t\) before the first act"
    for name in ("pulls", "spec", "shape", "slots"):
        with pytest.raises(AttributeError, match=words):
            getattr(state, name)
    assert not hasattr(state, "slots")
    with pytest.raises(AttributeError, match="has no attribute '__array__'"):
        getattr(state, "__array__")  # noqa: B009


def test_it_is_a_pytree_that_can_be_copied():
    state = UnplannedState({"pulls": jnp.arange(3.0)})
    doubled = jax.jit(lambda s: jax.tree.map(lambda x: 2 * x, s))(state)
    assert isinstance(doubled, UnplannedState)
    pickled, replaced = pickle.loads(pickle.dumps(state)), state.replace(state=state.state)
    for other in (copy.copy(state), copy.deepcopy(state), pickled, replaced):
        assert isinstance(other, UnplannedState)
        np.testing.assert_array_equal(other.state["pulls"], [0.0, 1.0, 2.0])


def test_a_planned_state_is_what_it_is():
    state = {"pulls": 1}
    assert planned_state(state) is state
    assert planned_state(UnplannedState(state)) is state
