"""Whatever decides a number is in the address of its cell: no call gets the numbers of another one."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import store_cases
from flax import struct
from store_cases import assert_same
from toys import Coin, Idle

import jaxroute as jr
from jaxroute.core.types import Metric


@struct.dataclass
class Spends(Idle):
    """Measures what a static object or function says, and a number of any type."""

    what: Any = struct.field(pytree_node=False, default=None)
    scale: Any = 1.0
    metrics = (Metric("spent", "spent", "", "average"),)

    def act(self, key, state, obs, t):
        value = self.what if isinstance(self.what, (int, float)) else self.what() if callable(self.what) else self.what.value
        return (), {"spent": jnp.asarray(value * self.scale, jnp.float32)}


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


def run(policies, **options):
    """A few seeds of a short run."""
    options = {"horizon": 20, "seeds": 8, "execution": jr.Execution("scan")} | options
    return store_cases.run(Coin(), policies, **options)


def spent(data):
    return data["spent"].isel(seed=0, time=-1).values.ravel().tolist()


@pytest.mark.parametrize("name", STATIC)
def test_static_settings_are_told_apart(name, tmp_path):
    one, other = STATIC[name]
    for out in (None, tmp_path / "grid"):
        assert spent(run({"p": jr.grid(Spends, what=[one, other])}, out=out)) == [1.0, 7.0]
    for order in ((one, other), (other, one)):
        for what in order:
            value = 1.0 if what is one else 7.0
            assert spent(run({"p": Spends(what)}, out=jr.Store(tmp_path / "alone", accept_changed_code=True))) == [value]


def test_a_static_setting_that_brings_new_code_is_simulated_beside_the_others(tmp_path, count_blocks):
    """It changes the code of its own cells alone: nothing is refused, and nothing simulated again."""
    ways = [made(1.0), lambda: 7.0, Settings(3.0)]
    for number in (1, 2, 3):
        del count_blocks[:]
        found = run({"p": jr.grid(Spends, what=ways[:number]), "plain": Idle()}, out=tmp_path, record=["spent"])
        assert spent(found.sel(policy="p")) == [1.0, 7.0, 3.0][:number]
        assert len(count_blocks) == (2 if number == 1 else 1)


def test_types_of_numbers_are_told_apart(tmp_path):
    for scale, result in ((jnp.float16(300.0), np.inf), (jnp.float32(300.0), 90_000.0), (jnp.float16(300.0), np.inf)):
        assert spent(run({"p": Spends(np.float16(300.0).item(), scale)}, out=tmp_path, record=["spent"])) == [result]


@pytest.mark.parametrize("names", [*itertools.permutations("abc", 2)])
def test_statistics_of_a_policy_do_not_depend_on_the_others(names, tmp_path):
    """What they measure besides stands in other columns of the result, not of the cells."""
    everybody, options = {"a": Idle(), "b": Spends(3.0), "c": Idle()}, {"seeds": 600, "keep": "moments"}
    for some in (names, *names, "abc"):
        policies = {name: everybody[name] for name in some}
        assert_same(run(policies, out=tmp_path, **options), run(policies, **options))


def test_a_request_that_was_given_up_does_not_hide_a_later_one(tmp_path):
    run({"p": Idle()}, seeds=5000, out=tmp_path, execution=jr.Execution("scan", block=256), callback=lambda progress: True)
    whole = run({"p": Idle()}, seeds=64, out=tmp_path)
    assert_same(jr.load(tmp_path), whole)
    run({"p": Idle()}, seeds=range(100, 120), out=tmp_path)
    assert jr.load(tmp_path).sizes["seed"] == 84
