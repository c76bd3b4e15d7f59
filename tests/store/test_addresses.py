"""Whatever decides a number is in the address of its cell: no call gets the numbers of another one."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from flax import struct

import jaxroute as jr
from jaxroute.core.types import Metric, Spec


@struct.dataclass
class Walk:
    """Adds uniform numbers; a gauge says where it is."""

    @property
    def spec(self):
        return Spec(num_models=2, metrics=(Metric("regret", "regret", "", "total"), Metric("level", "level", "", "gauge")))

    def init(self, key):
        return jnp.float32(0)

    def observe(self, key, state, t):
        return state

    def step(self, key, state, action, t):
        size = jax.random.uniform(key)
        return state + size, size, {"regret": size}

    def gauges(self, state):
        return {"level": state}


@struct.dataclass
class Plain:
    """Measures nothing."""

    def init(self, key, spec):
        return jnp.float32(0)

    def act(self, key, state, obs, t):
        return jnp.int32(0), {}

    def update(self, key, state, obs, action, feedback, t):
        return state + feedback


@struct.dataclass
class Spends(Plain):
    """Measures what a static object or function says, and a number of any type."""

    what: Any = struct.field(pytree_node=False, default=None)
    scale: Any = 1.0
    metrics = (Metric("spent", "spent", "", "average"),)

    def act(self, key, state, obs, t):
        value = self.what if isinstance(self.what, (int, float)) else self.what() if callable(self.what) else self.what.value
        return jnp.int32(0), {"spent": jnp.asarray(value * self.scale, jnp.float32)}


class Settings:
    """A plain object, without a text of its own."""

    def __init__(self, value):
        self.value = value


class Named(Settings):
    """A plain object, whose text leaves out its value."""

    def __repr__(self):
        return "Named()"


def made(value):
    """A function that all have the name of."""

    def function():
        return value

    return function


STATIC = {
    "lambdas": [lambda: 1.0, lambda: 7.0],
    "functions of one maker": [made(1.0), made(7.0)],
    "objects": [Settings(1.0), Settings(7.0)],
    "objects of the same text": [Named(1.0), Named(7.0)],
    "numbers": [1.0, 7.0],
}


def play(policies, **options):
    """A few seeds of a short walk."""
    settings = {"horizon": 20, "seeds": 8, "record_every": 10, "progress": False, "execution": jr.Execution("scan")}
    return jr.simulate(Walk(), policies, **settings | options)


def spent(data):
    return data["spent"].isel(seed=0, time=-1).values.ravel().tolist()


@pytest.mark.parametrize("name", STATIC)
def test_static_settings_are_told_apart(name, tmp_path):
    one, other = STATIC[name]
    for out in (None, tmp_path / "grid"):
        assert spent(play({"p": jr.grid(Spends, what=[one, other])}, out=out)) == [1.0, 7.0]
    for order in ((one, other), (other, one)):
        for what in order:
            value = 1.0 if what is one else 7.0
            assert spent(play({"p": Spends(what)}, out=tmp_path / "alone", accept_changed_code=True)) == [value]


def test_a_static_setting_that_brings_new_code_is_simulated_beside_the_others(tmp_path, count_blocks):
    """It changes the code of its own cells alone: nothing is refused, and nothing simulated again."""
    ways = [made(1.0), lambda: 7.0, Settings(3.0)]
    for number in (1, 2, 3):
        del count_blocks[:]
        found = play({"p": jr.grid(Spends, what=ways[:number]), "plain": Plain()}, out=tmp_path, record=["spent"])
        assert spent(found.sel(policy="p")) == [1.0, 7.0, 3.0][:number]
        assert len(count_blocks) == (2 if number == 1 else 1)


def test_types_of_numbers_are_told_apart(tmp_path):
    for scale, result in ((jnp.float16(300.0), np.inf), (jnp.float32(300.0), 90_000.0), (jnp.float16(300.0), np.inf)):
        assert spent(play({"p": Spends(np.float16(300.0).item(), scale)}, out=tmp_path, record=["spent"])) == [result]


@pytest.mark.parametrize("names", [*itertools.permutations("abc", 2)])
def test_statistics_of_a_policy_do_not_depend_on_the_others(names, tmp_path):
    """What they measure besides stands in other columns of the result, not of the cells."""
    everybody = {"a": Plain(), "b": Spends(3.0), "c": Plain()}
    some = {name: everybody[name] for name in names}
    play(some, seeds=600, keep="moments", out=tmp_path)
    for name in names:
        alone = {name: everybody[name]}
        xr.testing.assert_identical(
            play(alone, seeds=600, keep="moments", out=tmp_path).drop_attrs(),
            play(alone, seeds=600, keep="moments").drop_attrs(),
        )
    xr.testing.assert_identical(
        play(everybody, seeds=600, keep="moments", out=tmp_path).drop_attrs(),
        play(everybody, seeds=600, keep="moments").drop_attrs(),
    )


def test_a_request_that_was_given_up_does_not_hide_a_later_one(tmp_path):
    play({"p": Plain()}, seeds=5000, out=tmp_path, execution=jr.Execution("scan", block=256), callback=lambda progress: True)
    whole = play({"p": Plain()}, seeds=64, out=tmp_path)
    xr.testing.assert_identical(jr.load(tmp_path).drop_attrs(), whole.drop_attrs())
    play({"p": Plain()}, seeds=range(100, 120), out=tmp_path)
    assert jr.load(tmp_path).sizes["seed"] == 84
