"""Policies as each kind of pytree, and the errors for classes that are none."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute import testing
from jaxroute.problems import stochastic

ENV = stochastic.bernoulli([0.8, 0.3, 0.5])


class Rule:
    """Greedy choice with a bonus for unused models."""

    def init(self, key, spec):
        return jnp.zeros(spec.num_models), jnp.zeros(spec.num_models)

    def act(self, key, state, obs, t):
        pulls, total = state
        return jnp.argmax(total / (pulls + 1.0) + self.bonus * self.scale / (pulls + 1.0)), {}

    def update(self, key, state, obs, action, feedback, t):
        chosen = jnp.arange(state[0].shape[0]) == action
        return state[0] + chosen, state[1] + chosen * feedback


@struct.dataclass
class Flax(Rule):
    bonus: float = 1.0
    scale: int = struct.field(pytree_node=False, default=2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Registered(Rule):
    bonus: float = 1.0
    scale: int = dataclasses.field(metadata={"static": True}, default=2)


def of_equinox():
    eqx = pytest.importorskip("equinox")

    class Equinox(eqx.Module, Rule):
        bonus: float = 1.0
        scale: int = eqx.field(static=True, default=2)

    return Equinox


@pytest.mark.parametrize("made", [lambda: Flax, lambda: Registered, of_equinox], ids=["flax", "jax", "equinox"])
def test_every_kind_of_pytree_is_a_policy(made):
    kind = made()
    testing.check_policy(kind(), ENV, horizon=12, seeds=16)
    grid = jr.grid(kind, bonus=[0.5, 1.0], scale=[1, 2])
    found, expected = (
        jr.simulate(ENV, {"rule": one}, horizon=20, seeds=4, progress=False)
        for one in (grid, jr.grid(Flax, bonus=[0.5, 1.0], scale=[1, 2]))
    )
    np.testing.assert_array_equal(found["regret"], expected["regret"])


class Functions(NamedTuple):
    init: object
    act: object
    update: object


@dataclasses.dataclass(frozen=True)
class Plain(Rule):
    bonus: float = 1.0


@struct.dataclass
class Text(Flax):
    mode: str = "ucb"


RULE = Flax()
WANTED = (
    "decorate the class with flax.struct.dataclass or jax.tree_util.register_dataclass, or derive it from equinox.Module"
)
OTHERS = {
    "a named tuple of functions": (Functions(RULE.init, RULE.act, RULE.update), f"got Functions, a named tuple of functions: write a class, and {WANTED}"),
    "a plain dataclass": (Plain(), f"must be a pytree, got the plain dataclass Plain: {WANTED}"),
    "a plain class": (Rule(), f"must be a pytree, got the plain class Rule: {WANTED}"),
    "a text": (Text(), r"the field mode of Text must be a number or an array, or static, as flax.struct.field\(pytree_node=False\), got 'ucb'"),
    "a number as text": (stochastic.UCB1(width="1"), "the field width of UCB1 must be a number or an array, .*, got '1'"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_an_error_states_what_is_given_and_what_is_wanted(name):
    policy, message = OTHERS[name]
    with pytest.raises(ValueError, match=f"^policy 'mine'.*{message}"):
        jr.simulate(ENV, {"mine": policy}, horizon=5, seeds=2, progress=False)
    with pytest.raises(AssertionError, match=f"^policy.*{message}"):
        testing.check_structure(policy, ENV)
