"""A store knows by which code it was made: what counts as a change, what does not, and what is said."""

import importlib
import sys
import warnings

import jax
import numpy as np
import pytest
import xarray as xr
from helpers import retell

import jaxroute as jr
from jaxroute.problems import stochastic
from jaxroute.store import code, description, provenance, runs

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
class Law:
    """One number decides."""
    level: float = 0.5

    def mean(self):
        return jnp.array([self.level, 0.4])


def pulled(scale):
    def probe(env, policy, env_state, policy_state, t):
        return policy_state[0][0] * scale

    return probe
'''
# What is replaced by what, and what the refusal names; nothing where the store goes on.
EDITS = {
    "a constant of the module": (("_SCALE = 2.0", "_SCALE = 2.5"), "mine._SCALE changed"),
    "a helper in the module": (("x * 1.0", "x * 1.1"), "mine._bonus changed"),
    "a helper with another name": (("_bonus", "_other"), "mine.Mine.act, mine._bonus, mine._other changed"),
    "an inherited method": (("pulls + one", "pulls + 2 * one"), "mine.Parent.update changed"),
    "the method itself": (("pulls + 1.0", "pulls + 1.5"), "mine.Mine.act changed"),
    "a probe": (("[0][0] * scale", "[0][1] * scale"), "mine.pulled.<locals>.probe changed"),
    "a changed default": (("width: float = 1.0", "width: float = 2.0"), "policies.m.width is 1.0 there and 2.0 here"),
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
        env, probes = stochastic.bernoulli([0.5, 0.4]), {"pulled": module.pulled(scale)}
        return jr.simulate(
            env, {"m": module.Mine()}, horizon=20, seeds=4, out=tmp_path / "out", progress=False, probes=probes, **options
        )

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


def test_edits_that_decide_numbers_are_refused_by_name(mine):
    before = mine()
    for edit, (_, reason) in EDITS.items():
        if reason is None:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                np.testing.assert_array_equal(mine(edited(edit))["regret"], before["regret"])
            continue
        with pytest.raises(ValueError) as refusal:
            mine(edited(edit))
        assert reason in str(refusal.value), edit
    with pytest.raises(ValueError, match=r"made_with\[0\] is 2.0 there and 3.0 here"):
        mine(scale=3.0)


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_who_insists_goes_on_and_the_result_says_so(mine, tmp_path, keep):
    assert "accepted_code" not in mine(keep=keep).attrs
    text = edited("a constant of the module")
    with pytest.warns(UserWarning, match="mine._SCALE changed"):
        data = mine(text, keep=keep, accept_changed_code=True)
    (one,) = data.attrs["accepted_code"]
    assert one["what"] == "mine._SCALE changed" and "code" not in data.attrs
    assert mine(text, keep=keep).attrs["accepted_code"] == [one] == jr.load(tmp_path / "out").attrs["accepted_code"]
    with pytest.raises(ValueError, match="mine._SCALE changed.*accept_changed_code=True"):
        mine(keep=keep)


def test_what_cannot_be_told_is_said(mine, tmp_path):
    mine()
    kept = retell(tmp_path / "out")["code"]
    retell(tmp_path / "out", code={"python": "3.8", "digests": {}})
    with pytest.warns(UserWarning, match=r"made with Python 3.8, .* cannot be told"):
        assert len(mine().attrs["accepted_code"]) == 1
    assert retell(tmp_path / "out")["code"] == kept
    retell(tmp_path / "out", code=None)
    with pytest.warns(UserWarning, match="was not kept"):
        assert len(mine().attrs["accepted_code"]) == 2
    assert retell(tmp_path / "out")["code"] == kept


def test_an_argument_that_is_no_flag(mine):
    with pytest.raises(ValueError, match="accept_changed_code must be True or False, got 'yes'"):
        mine(accept_changed_code="yes")


def test_the_code_of_every_policy_is_followed_quickly():
    from conformance_cases import POLICIES

    for name, pair in POLICIES.items():
        found = code.code_of([pair.policy, pair.env])
        assert any(".act" in one for one in found), name
        assert not any(one.startswith(("jax.", "numpy.", "flax.")) for one in found)
        assert found == code.code_of([pair.policy, pair.env])


def test_names_of_changes_put_what_is_in_both_first():
    assert code.changes({"a": "1", "b": "2", "c": "3"}, {"b": "4", "c": "3", "d": "5"}) == ["b", "a", "d"]


def test_a_run_that_goes_on_with_another_processor_says_so_of_each_block(tmp_path, monkeypatch):
    env, options = stochastic.bernoulli([0.5, 0.4]), {"horizon": 20, "block": 16, "progress": False}
    policies = {"ucb": stochastic.UCB1()}
    whole = jr.simulate(env, policies, seeds=70, **options)
    write, played = runs.RunSink.write, []

    def stopped(self, *args):
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(write(self, *args))

    with monkeypatch.context() as patch:
        patch.setattr(runs.RunSink, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            jr.simulate(env, policies, seeds=70, out=tmp_path, **options)
    own = provenance.made_with(jax.devices()[0])
    assert own["processor"] and set(own) == {"processor", "device", "flags", "jaxroute", "python", "jaxlib", "numpy"}
    other = own | {"processor": "another one"}
    monkeypatch.setattr(provenance, "made_with", lambda device: other)
    with pytest.warns(
        UserWarning, match="was begun with something else: processor .* there and 'another one' here; what is played now may"
    ):
        data = jr.simulate(env, policies, seeds=70, out=tmp_path, **options)
    assert data.attrs["made_with"] == [own | {"blocks": 3}, other | {"blocks": 2}] == jr.load(tmp_path).attrs["made_with"]
    np.testing.assert_array_equal(data["regret"], whole["regret"])
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It is one of those that are known.
        assert jr.simulate(env, policies, seeds=70, out=tmp_path, **options).attrs["made_with"] == data.attrs["made_with"]


def test_a_store_of_another_version_is_continued_and_says_so(tmp_path, monkeypatch):
    """As one of 0.1.0 is, whose sessions did not name the version."""
    env, policies, options = stochastic.bernoulli([0.5, 0.4]), {"ucb": stochastic.UCB1()}, {"horizon": 20, "progress": False}
    now, made_with = description.versions(), provenance.made_with(jax.devices()[0])
    with monkeypatch.context() as patch:
        patch.setattr(description, "versions", lambda: now | {"jaxroute": "0.1.0"})
        patch.setattr(provenance, "made_with", lambda device: {n: v for n, v in made_with.items() if n != "jaxroute"})
        old = jr.simulate(env, policies, seeds=4, out=tmp_path, **options)
    assert old.attrs["settings"]["jaxroute"] == "0.1.0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It is read without a word.
        xr.testing.assert_equal(jr.load(tmp_path), old)
    with pytest.warns(
        UserWarning, match=f"was begun with something else: jaxroute an earlier one there and '{jr.__version__}' here"
    ):
        more = jr.simulate(env, policies, seeds=8, out=tmp_path, **options)
    xr.testing.assert_equal(more.isel(seed=slice(4)), old)
    assert more.attrs["settings"]["jaxroute"] == jr.__version__
    assert [one.get("jaxroute") for one in more.attrs["made_with"]] == [None, jr.__version__]


def test_other_luck_of_jax_is_refused(tmp_path):
    env, options = stochastic.bernoulli([0.5, 0.4]), {"horizon": 20, "seeds": 4, "progress": False, "out": tmp_path}
    jr.simulate(env, {"ucb": stochastic.UCB1()}, **options)
    before = jax.config.jax_threefry_partitionable
    jax.config.update("jax_threefry_partitionable", not before)
    try:
        with pytest.raises(ValueError, match="threefry_partitionable is (True|False) there and (True|False) here"):
            jr.simulate(env, {"ucb": stochastic.UCB1()}, **options)
    finally:
        jax.config.update("jax_threefry_partitionable", before)
