"""A store knows by which code it was made: what counts as a change, what does not, and what is said."""

import importlib
import sys
import warnings

import jax
import numpy as np
import pytest
import xarray as xr

import jaxroute as jr
from jaxroute.core import code, provenance
from jaxroute.core.attributes import decoded
from jaxroute.engine import components
from jaxroute.problems import stochastic
from jaxroute.store import results

MODULE = '''
import jax.numpy as jnp
from flax import struct

_SCALE = 2.0


def _bonus(x):
    return x * 1.0


class Parent:
    def update(self, key, state, obs, action, feedback, t):
        pulls, total = state
        one = jnp.arange(pulls.shape[0]) == action
        return pulls + one, total + jnp.where(one, feedback, 0.0)


@struct.dataclass
class Mine(Parent):
    width: float = 1.0

    def check(self):
        pass

    def init(self, key, spec):
        return jnp.zeros(spec.num_models), jnp.zeros(spec.num_models)

    def act(self, key, state, obs, t):
        """Picks a model."""
        pulls, total = state
        bonus = _bonus(_SCALE) * self.width
        return jnp.argmax(total + bonus / (pulls + 1.0)), {}


@struct.dataclass
class Distribution:
    """One number decides."""
    level: float = 0.5

    def mean(self):
        return jnp.array([self.level, 0.4])


def pulled(scale):
    def probe(env, policy, env_state, policy_state, t):
        return policy_state[0][0] * scale

    return probe
'''
# What is replaced by what, and what the refusal names; nothing where it is the same code.
EDITS = {
    "a constant of the module": (("_SCALE = 2.0", "_SCALE = 2.5"), "mine._SCALE changed"),
    "a helper in the module": (("x * 1.0", "x * 1.1"), "mine._bonus changed"),
    "a helper with another name": (("_bonus", "_other"), "mine.Mine.act, mine._bonus, mine._other changed"),
    "an inherited method": (("pulls + one", "pulls + 2 * one"), "mine.Parent.update changed"),
    "the method itself": (("pulls + 1.0", "pulls + 1.5"), "mine.Mine.act changed"),
    "a probe": (("[0][0] * scale", "[0][1] * scale"), "mine.pulled.<locals>.probe changed"),
    "a comment": (("        bonus =", "        # A bonus.\n        bonus ="), None),
    "a docstring": (("Picks a model.", "Picks one."), None),
    "no docstring": (('        """Picks a model."""\n', ""), None),
    "a local variable": (("bonus = _bonus(_SCALE)", "extra = _bonus(_SCALE)"), None),
    "lines": (("return pulls + one, total", "return (\n            pulls + one, total"), None),
    "what only checks": (("        pass", "        assert self.width > 0"), None),
}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A function that plays a policy of a module with some text, in one folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def play(text=MODULE, scale=2.0, **options):
        (tmp_path / "mine.py").write_text(text)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        module = importlib.import_module("mine")
        settings = {"horizon": 20, "seeds": 4, "out": tmp_path / "out", "progress": False}
        settings |= {"probes": {"pulled": module.pulled(scale)}}
        return jr.simulate(stochastic.bernoulli([0.5, 0.4]), {"m": module.Mine()}, **settings | options)

    return play


def edited(edit):
    (before, after), _ = EDITS[edit]
    text = MODULE.replace(before, after)
    if edit == "a local variable":
        text = text.replace("total + bonus /", "total + extra /")
    if edit == "lines":
        text = text.replace("jnp.where(one, feedback, 0.0)", "jnp.where(one, feedback, 0.0)\n        )")
    assert text != MODULE
    return text


def test_edits_that_decide_numbers_are_refused_by_name(mine, count_blocks):
    before = mine()
    del count_blocks[:]
    for edit, (_, reason) in EDITS.items():
        if reason is None:
            np.testing.assert_array_equal(mine(edited(edit))["regret"], before["regret"])
            continue
        words = "the same simulation by other code: .*choose another folder"
        with pytest.raises(jr.StoreMismatchError, match=words) as refusal:
            mine(edited(edit))
        assert reason in str(refusal.value), edit
    assert not count_blocks
    mine(scale=3.0)  # That is another setting, and so is another default.
    mine(MODULE.replace("width: float = 1.0", "width: float = 2.0"))
    assert len(count_blocks) == 2


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_changed_code_that_is_accepted_is_simulated_beside_the_other(keep, mine, tmp_path, count_blocks):
    """Never are both in one result, and each goes on by itself."""
    text, options = edited("an inherited method"), {"keep": keep, "seeds": 300}
    old, new = (mine(one, out=None, **options) for one in (MODULE, text))
    assert not old.equals(new)
    mine(keep=keep, seeds=260)
    words = "mine.Parent.update changed; undo the change, choose .*accept_changed_code=True"
    with pytest.raises(jr.StoreMismatchError, match=words):
        mine(text, **options)
    del count_blocks[:]
    found = mine(text, **options, out=jr.Store(tmp_path / "out", accept_changed_code=True))
    assert found.attrs["decisions"] == 300 * 20
    for data in (found, jr.load(tmp_path / "out"), mine(text, **options)):
        xr.testing.assert_equal(data, new)
    again = mine(**options)
    assert decoded(again.attrs)["last_call"]["decisions"] == 40 * 20
    for data in (again, jr.load(tmp_path / "out")):
        xr.testing.assert_equal(data, old)
    mine(text, **options), mine(**options)
    assert results.inspect(tmp_path / "out").others == 1


def test_whether_code_is_the_same_cannot_be_told_by_another_python(mine, monkeypatch, tmp_path):
    before = mine()
    monkeypatch.setattr(components, "python", lambda: "3.99")
    with pytest.raises(jr.StoreMismatchError, match=r"made with Python 3\.\d+, and whether the code .* be told with 3\.99"):
        mine()
    xr.testing.assert_equal(mine(out=jr.Store(tmp_path / "out", accept_changed_code=True)), before)


def test_an_argument_that_is_no_flag():
    with pytest.raises(ValueError, match="accept_changed_code must be True or False, got 'yes'"):
        jr.Store("out", accept_changed_code="yes")


def test_the_code_of_every_policy_is_followed():
    from conformance_cases import POLICIES

    for name, pair in POLICIES.items():
        found = code.code_of([pair.policy, pair.env])
        assert any(".act" in one for one in found), name
        assert not any(one.startswith(("jax.", "numpy.", "flax.")) for one in found)
        assert found == code.code_of([pair.policy, pair.env])


def test_names_of_changes_put_what_is_in_both_first():
    assert code.changes({"a": "1", "b": "2", "c": "3"}, {"b": "4", "c": "3", "d": "5"}) == ["b", "a", "d"]


# Other machines and versions.

ENV, UCB = stochastic.bernoulli([0.5, 0.4]), {"ucb": stochastic.UCB1()}
OPTIONS = {"horizon": 20, "execution": jr.Execution(block=16), "progress": False}


def test_a_store_that_goes_on_with_another_processor_or_version_says_so_of_each_cell(tmp_path, monkeypatch):
    whole = jr.simulate(ENV, UCB, seeds=70, **OPTIONS)
    own = provenance.made_with(jax.devices()[0])
    assert own["processor"] and set(own) == {"processor", "device", "flags", "jaxroute", "python", "jaxlib", "numpy"}
    jr.simulate(ENV, UCB, seeds=48, out=tmp_path, **OPTIONS)
    other = own | {"processor": "another one", "jaxroute": "9.9"}
    monkeypatch.setattr(provenance, "made_with", lambda device: other)
    words = "made with something else: processor .* there and 'another one' here, jaxroute .*'9.9'"
    with pytest.warns(UserWarning, match=words):
        data = jr.simulate(ENV, UCB, seeds=70, out=tmp_path, **OPTIONS)
    monkeypatch.undo()
    for attributes in (data.attrs, jr.load(tmp_path).attrs):
        assert decoded(attributes)["made_with"] == [own | {"cells": 3}, other | {"cells": 2}]
    np.testing.assert_array_equal(data["regret"], whole["regret"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It is one of those that are known.
        xr.testing.assert_equal(jr.load(tmp_path), data)


def test_what_another_version_of_jax_or_other_luck_has_given_is_simulated_beside_it(tmp_path, monkeypatch, count_blocks):
    known = provenance.versions()
    jr.simulate(ENV, UCB, seeds=4, out=tmp_path, **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "versions", lambda: known | {"jax": "0.0.1"})
        found = jr.simulate(ENV, UCB, seeds=4, out=tmp_path, **OPTIONS)
    assert decoded(found.attrs)["settings"]["jax"] == "0.0.1" and len(count_blocks) == 2
    before = jax.config.jax_threefry_partitionable
    jax.config.update("jax_threefry_partitionable", not before)
    try:
        jr.simulate(ENV, UCB, seeds=4, out=tmp_path, **OPTIONS)
    finally:
        jax.config.update("jax_threefry_partitionable", before)
    assert len(count_blocks) == 3
    jr.simulate(ENV, UCB, seeds=4, out=tmp_path, **OPTIONS)
    assert len(count_blocks) == 3


VALUES = {
    "a constant": "held = {0}",
    "an array of jax": "held = jnp.asarray([{0}])",
    "a bound argument": "held = functools.partial(max, {0})",
    "a function that was made with it": "def make(c):\n    return lambda: c\nheld = make({0})",
    "a dataclass": "held = Conf({0})",
    "a plain object": "held = Plain({0})",
    "a namespace": "held = types.SimpleNamespace(w={0})",
    "an attribute of a class": "class Holder:\n    table = jnp.asarray([{0}])\nheld = Holder",
}
HOLDS = """import dataclasses, functools, types
import jax.numpy as jnp

@dataclasses.dataclass
class Conf:
    w: int

class Plain:
    def __init__(self, w):
        self.w = w

{0}

def act():
    return held
"""


@pytest.mark.parametrize("name", VALUES)
def test_values_that_functions_name_count(name):
    def digests(value):
        space = {"__name__": "somebodys"}
        exec(compile(HOLDS.format(VALUES[name].format(value)), "somebodys.py", "exec"), space)
        return code.code_of([space["act"]])

    assert digests(2) == digests(2) != digests(5)
