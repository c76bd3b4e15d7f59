"""Grids over static fields: each value is a program of its own, under one axis of the result."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from engine_child import differences
from flax import struct
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute.core.types import Leaf, Metric
from jaxroute.engine import programs


@struct.dataclass
class Ring:
    """Uses the model after the one that it used `window` rounds ago.

    first: `[]` model that is used at first. window: rounds that are remembered (static).
    """

    first: Leaf = 0
    window: int = struct.field(pytree_node=False, default=2)

    def init(self, key, spec):
        return jnp.full((self.window,), self.first, jnp.int32)

    def act(self, key, state, obs, t):
        return (state[t % self.window], -1, 0), {}

    def update(self, key, state, obs, action, feedback, t):
        return state.at[t % self.window].set((action[0] + 1) % 3)


@struct.dataclass
class First:
    def choose(self, t):
        return 0 * t


@struct.dataclass
class Last(First):
    def choose(self, t):
        return 0 * t + 2


@struct.dataclass
class Chooser(Ring):
    """Uses the model that a part of its own names; parts have no leaves. rule: the part."""

    rule: Any = First()

    def act(self, key, state, obs, t):
        return (self.rule.choose(t), -1, 0), {}


def play(policies, env: Any = None, **options):
    settings: dict[str, Any] = {"horizon": 40, "seeds": 20, "record_every": 10, "progress": False} | options
    return jr.simulate(Clock() if env is None else env, policies, execution=jr.Execution(block=16), **settings)


def rings(windows, **more):
    return jr.grid(Ring, window=windows, **more)


@pytest.mark.fast
def test_a_part_has_the_settings_of_one_program():
    swept = rings([2, 5], first=[0, 1, 2])
    assert (swept.static, swept.shape) == (("window",), (2, 3))
    part = swept.part({"window": 1, "first": 2})
    assert (part.static, part.shape, part.example) == ((), (1, 3), Ring(first=0, window=5))
    assert part.leaf_axes == [(1,)]
    np.testing.assert_array_equal(part.leaves[0], [0, 1, 2])
    assert part is swept.part({"window": 1}) and part.part({}) is part
    shapes = jr.grid(lambda size: Cycle(first=np.zeros(size, np.int32)), size=[1, 2])
    assert shapes.static == ("size",)


def test_each_value_is_the_run_of_its_own_and_a_program_of_its_own():
    programs.PROGRAMS.clear()
    before = jr.trace_count()
    options = {"record": ["pulls", "reward"]}
    data = play({"ring": rings([2, 5, 7], first=[0, 1]), "cycle": Cycle()}, **options)
    assert jr.trace_count() == before + 4
    assert dict(data["pulls"].sizes) == {"policy": 2, "window": 3, "first": 2, "seed": 20, "time": 4, "model": 3}
    for window in (2, 7):
        alone = play({"ring": jr.grid(lambda first, window=window: Ring(first, window), first=[0, 1])}, **options)
        assert differences(data.sel(policy=["ring"], window=window, drop=True), alone) == []
    cycle = data.sel(policy="cycle")
    assert bool((cycle == cycle.isel(window=0, first=0)).to_array().all())
    # Remembering 5 rounds, the first 5 rounds of 10 use model 0, the next model 1.
    np.testing.assert_array_equal(data["pulls"].sel(policy="ring", window=5, first=0, time=10).isel(seed=0), [5, 5, 0])


def test_parts_of_other_classes_are_programs_of_their_own():
    """Even where they have the same leaves, or none: to JAX from 0.10 on, their structures are equal."""
    swept = jr.grid(Chooser, rule=[First(), Last()], first=[0, 1])
    assert swept.static == ("rule",) and swept.part({"rule": 1}).example.rule == Last()
    data = play({"chooser": swept}, record=["pulls"])
    last = data["pulls"].isel(time=-1)
    assert (last.isel(rule=0) == [40, 0, 0]).all() and (last.isel(rule=1) == [0, 0, 40]).all()


def test_an_environment_may_have_static_settings_and_an_axis_of_its_own():
    env = jr.grid(lambda length, slope: Clock(slope=slope, stage_length=length), length=[2, 5], slope=[0.1, 0.2])
    data = play({"planner": Planner()}, env=env)
    assert data["plans"].dims == ("policy", "length", "slope", "seed", "time")
    assert data["plans"].sel(length=2).isel(time=-1).values.max() == 20
    assert data["plans"].sel(length=5).isel(time=-1).values.max() == 8
    assert data["misplanned"].values.max() == 0


def test_statistics_and_single_runs_agree():
    policies = {"ring": rings([2, 5]), "cycle": Cycle()}
    runs, moments = play(policies), play(policies, keep="moments")
    np.testing.assert_allclose(moments["reward_mean"], runs["reward"].mean("seed"))


def test_a_run_that_stopped_goes_on_and_a_store_takes_more_values(tmp_path, monkeypatch):
    policies = {"ring": rings([2, 5], first=[0, 1])}
    undisturbed = play(policies)
    whole, played = programs.Block.run, []

    def dies(self, tile, *more):
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(tile)
        return whole(self, tile, *more)

    monkeypatch.setattr(programs.Block, "run", dies)
    with pytest.raises(KeyboardInterrupt):
        play(policies, out=tmp_path)
    monkeypatch.undo()
    again = play(policies, out=tmp_path)
    assert differences(again, undisturbed) == []
    assert again.attrs["decisions"] == 4 * 80  # What was left of it: four seeds of one value.
    more = play({"ring": rings([2, 3, 5], first=[0, 1])}, out=tmp_path)
    assert differences(more.sel(window=[2, 5]), undisturbed) == []
    assert more.attrs["decisions"] - again.attrs["decisions"] == 20 * 80  # Those of the new value.
    assert differences(jr.load(tmp_path), more) == []


def test_an_axis_becomes_one_of_programs_when_a_store_grows(tmp_path):
    def ring(number):
        values = list(range(number))
        return {"ring": jr.grid(lambda value: Ring(first=value % 3, window=2 if value < 4 else 3), value=values)}

    play(ring(4), out=tmp_path)
    more = play(ring(5), out=tmp_path)
    assert differences(more, play(ring(5))) == []
    assert more.attrs["decisions"] == 5 * 20 * 40


def test_a_bad_value_of_one_program_is_found():
    env = jr.grid(lambda length: Clock(stage_length=length, bad_from=11 * (length == 5) or 2**30), length=[2, 5])
    with pytest.warns(UserWarning, match="policy 'planner', length 5, seed .*: bad in round 12"):
        data = play({"planner": Planner()}, env=env)
    assert data["valid"].sel(length=2).all()


@struct.dataclass
class Named(Cycle):
    """Measures something that has a name of its own. what: the name (static)."""

    what: str = struct.field(pytree_node=False, default="one")

    @property
    def metrics(self):
        return (Metric(self.what, self.what, "", "gauge"),)

    def gauges(self, state):
        return {self.what: jnp.zeros(())}


@pytest.mark.parametrize(
    ("policies", "options", "message"),
    [
        (rings([2, 5]), {"probes": {"ring": lambda env, policy, env_state, policy_state, t: policy_state}},
         r"'ring' has \(5,\) at 'Ring, window=5', and \(2,\) at 'Ring, window=2'"),
        (jr.grid(Named, what=["one", "other"]), {}, "policy 'Named' has other metrics at Named, what='?other'? than at"),
        (Cycle(), {"env": jr.grid(lambda free: Clock(free_rounds=free), free=[0, 3])}, "env of 'Cycle, free=3' has spec.free_rounds 3, the first setting 0"),
    ],
    ids=["shapes", "metrics", "environments"],
)  # fmt: skip
def test_what_one_result_cannot_hold_is_refused(policies, options, message):
    with pytest.raises(ValueError, match=message):
        play(policies, **options)
