"""Where a run went wrong: the round of its first flow that is not finite, or must be zero and is not, or of its first NaN anywhere.

Runs are addressed by seed, so that one of them can be played again alone, with every round watched.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from flax import struct

from jaxroute.core import draws
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, build_policy, has_plan, is_environment, is_policy
from jaxroute.core.types import Metric, PyTree, Spec, planned_state
from jaxroute.engine.batching.compiling import compile_lanes
from jaxroute.engine.grid import Grid
from jaxroute.engine.inputs import Inputs
from jaxroute.engine.recording import shapes_of_round
from jaxroute.engine.rollout import rollout
from jaxroute.engine.room import roomier
from jaxroute.engine.rounds import Record, any_nan, run_streams

# Runs that are played together, as in any block of the engine.
_RUNS = 16
_FIRST_OF_ENV = Metric("first bad round of the environment", "", "rounds", "gauge")
_FIRST_OF_POLICY = Metric("first bad round of the policy", "", "rounds", "gauge")

# The first round with a bad value, by name of what is watched; -1 where there is none.
_Firsts = dict[str, Any]


def _none(names: Iterable[str]) -> _Firsts:
    return {name: jnp.int32(-1) for name in names}


def _mark(firsts: _Firsts, bad: Mapping[str, Any], t: jax.Array, free_rounds: int) -> _Firsts:
    """The first bad rounds after round `t`; `bad` tells of each name whether it is bad in this round."""
    counted = t >= free_rounds
    return {name: jnp.where(bad[name] & counted & (first < 0), t, first) for name, first in firsts.items()}


def _nan_leaves(what: str, tree: PyTree) -> dict[str, jax.Array]:
    """Whether each leaf of a tree has a NaN, by its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{what}{jax.tree_util.keystr(path)}": any_nan(leaf) for path, leaf in leaves}


@struct.dataclass
class _WatchedEnvironment:
    """An environment that remembers the first round with a bad value of each watched quantity.

    env: the environment.
    record: whose flows are watched (static).
    """

    env: Any
    record: Record = struct.field(pytree_node=False)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def init(self, key: jax.Array) -> PyTree:
        state = self.env.init(key)
        flows = [*(m.name for m in self.record.flows), *self.record.zero_flows]
        return state, _none([*flows, "feedback", *_nan_leaves("state", state)])

    def observe(self, key: jax.Array, state: PyTree, t: jax.Array) -> PyTree:
        return self.env.observe(key, state[0], t)

    def step(self, key: jax.Array, state: PyTree, action: PyTree, t: jax.Array) -> tuple[PyTree, PyTree, Mapping[str, Any]]:
        (inner, firsts), (decision, _) = state, action
        inner, feedback, flows = self.env.step(key, inner, decision, t)
        bad = {m.name: ~jnp.isfinite(jnp.asarray(flows[m.name], jnp.float32)).all() for m in self.record.flows}
        bad |= {name: jnp.any(jnp.asarray(flows[name]) != 0) for name in self.record.zero_flows}
        bad |= {"feedback": any_nan(feedback), **_nan_leaves("state", inner)}
        return (inner, _mark(firsts, bad, t, self.spec.free_rounds)), feedback, flows

    def gauges(self, state: PyTree) -> dict[str, Any]:
        return {_FIRST_OF_ENV.name: state[1]}


@struct.dataclass
class _WatchedPolicy:
    """A policy that remembers the first round in which its Info or its state had a NaN.

    policy: the policy.
    horizon: counted rounds of the whole run (static).
    free_rounds: of the environment (static).
    entries: of its Info (static).
    """

    policy: Any
    horizon: int = struct.field(pytree_node=False)
    free_rounds: int = struct.field(pytree_node=False)
    entries: tuple[str, ...] = struct.field(pytree_node=False)

    def init(self, key: jax.Array, spec: Spec) -> PyTree:
        state = planned_state(self.policy.init(key, dataclasses.replace(spec, horizon=self.horizon)))
        return state, _none([*(f"info.{name}" for name in self.entries), *_nan_leaves("state of the policy", state)])

    def act(self, key: jax.Array, state: PyTree, obs: PyTree, t: jax.Array) -> tuple[PyTree, dict[str, Any]]:
        action, info = self.policy.act(key, state[0], obs, t)
        bad = {f"info.{name}": any_nan(info[name]) for name in self.entries}
        return (action, bad), {}  # Info is not known to `update`: what is wrong with it travels in the action.

    def update(self, key: jax.Array, state: PyTree, obs: PyTree, action: PyTree, feedback: PyTree, t: jax.Array) -> PyTree:
        (inner, firsts), (decision, bad_info) = state, action
        inner = self.policy.update(key, inner, obs, decision, feedback, t)
        bad = {**bad_info, **_nan_leaves("state of the policy", inner)}
        return inner, _mark(firsts, bad, t, self.free_rounds)

    def gauges(self, state: PyTree) -> dict[str, Any]:
        return {_FIRST_OF_POLICY.name: state[1]}


@struct.dataclass
class _WatchedPlanner(_WatchedPolicy):
    """The same of a policy with plans."""

    @property
    def stage_length(self) -> int | None:
        return getattr(self.policy, "stage_length", None)

    def plan(self, key: jax.Array, state: PyTree, obs: PyTree, t: jax.Array) -> PyTree:
        return self.policy.plan(key, state[0], obs, t), state[1]


def _watched(
    env: Any, policy: Any, record: Record, horizon: int, free_rounds: int, entries: tuple[str, ...]
) -> tuple[Any, Any]:
    """Environment and policy, or the functions that make them, with every round watched."""

    def watch(policy: Any) -> Any:
        return (_WatchedPlanner if has_plan(policy) else _WatchedPolicy)(policy, horizon, free_rounds, entries)

    watched_policy = watch(policy) if is_policy(policy) else lambda seen: watch(build_policy(policy, seen.env))
    watched_env = (
        _WatchedEnvironment(env, record) if is_environment(env) else lambda key: _WatchedEnvironment(env(key), record)
    )
    return watched_env, watched_policy


def _replay(
    env: Grid,
    policy: Grid,
    setting: Mapping[str, int],
    seed: int,
    record: Record,
    example: tuple[AnyEnvironment, AnyPolicy],
    rounds: int,
    horizon: int,
    key: int,
    device: Any,
) -> dict[str, int]:
    """First bad round of one run by name of what is watched, -1 where there is none, within its first `rounds` of `horizon`."""
    free_rounds = example[0].spec.free_rounds
    entries = tuple(shapes_of_round("", *example)["info"])
    leaves = []
    for grid in (env, policy):
        tiles = grid.tile({name: np.asarray([setting[name]]) for name in grid.axes})
        leaves.append([leaf.reshape(leaf.shape[len(varies) :]) for leaf, varies in zip(tiles, grid.leaf_axes, strict=True)])

    def play(leaves: Any, root: Any, seeds: Any) -> dict[str, Any]:
        players = _watched(env.build(leaves[0]), policy.build(leaves[1]), record, horizon, free_rounds, entries)
        firsts = Record(every=rounds, env_gauges=(_FIRST_OF_ENV,), policy_gauges=(_FIRST_OF_POLICY,))
        played = rollout(*players, run_streams(root, seeds), rounds, firsts)
        return played[_FIRST_OF_ENV.name] | played[_FIRST_OF_POLICY.name]

    root = np.asarray(jax.random.key_data(draws.key(key)))
    arguments = (leaves, root, np.full(_RUNS, seed, np.uint32))
    with jax.default_device(device):
        played = compile_lanes(jax.jit(play).lower(*arguments), device.platform)(*arguments)
    return {name: int(first[0, 0]) for name, first in played.items()}


_Bad = tuple[dict[str, int], int, int | None]


def _first_of_runs(data: xr.Dataset, policy: str, record: Record) -> _Bad | None:
    """The first invalid run of a policy: setting by axis, seed, and by which round it went wrong, if its curves tell."""
    invalid = np.argwhere(~data["valid"].sel(policy=policy).values)
    if not len(invalid):
        return None
    *setting, seed = map(int, invalid[0])
    place = dict(zip(map(str, data["valid"].dims[1:-1]), setting, strict=True))
    run = data.sel(policy=policy).isel({**place, "seed": seed})
    finite = np.ones(run.sizes["time"], bool)
    for metric in record.flows:
        curve = np.isfinite(run[metric.name].values)
        finite &= curve.reshape(len(curve), -1).all(axis=1)
    counted = any(run[zero].item() != 0 for zero in record.zero_flows)
    rounds = None if counted or finite.all() else int(run["time"].values[np.argmin(finite)])
    return place, run["seed"].item(), rounds


def _first_of_statistics(data: xr.Dataset, policy: str) -> _Bad | None:
    """The same where only statistics were kept."""
    first = data["first_invalid"].sel(policy=policy)
    invalid = np.argwhere(first.values >= 0)
    if not len(invalid):
        return None
    place = dict(zip(map(str, first.dims), map(int, invalid[0]), strict=True))
    return place, first.isel(place).item(), None


def first_bad_rounds(data: xr.Dataset, asked: Inputs, device: Any) -> list[dict[str, Any]]:
    """Plays the first invalid run of each policy once more, up to its first bad value.

    Args:
      data: a result.
      asked: what it was made with.
      device: where to play.

    Returns:
      For each policy with an invalid run its name (`policy`), the run (`setting`, `seed`), the names of the quantities that went wrong
      first (`values`), and in which counted round, from 1 (`round`; None if no single round is to blame: a sum has overflowed).
    """
    found = []
    for name, record in asked.records.items():
        bad = _first_of_statistics(data, name) if "invalid" in data else _first_of_runs(data, name, record)
        if bad is None:
            continue
        setting, seed, rounds = bad
        own = {axis: setting[axis] for axis in asked.axes_of(name)}
        part = asked.part(name, own)
        spec = part.example[0].spec
        start, values = None, list[str]()
        # The run may have been played with more room.
        for played in itertools.chain([part.env], roomier(part.env, part.example[0])):
            firsts = _replay(
                played,
                part.settings,
                own,
                seed,
                record,
                part.example,
                rounds or asked.horizon,
                asked.horizon,
                asked.key,
                device,
            )
            first = min((first for first in firsts.values() if first >= 0), default=None)
            if first is not None:
                start, values = first, [watched for watched, when in firsts.items() if when == first]
            if first is None or values != [spec.room_flow]:
                break
        found.append(
            {
                "policy": name,
                "setting": {a: data[a].values[i].item() for a, i in own.items()},
                "seed": seed,
                "round": None if start is None else start - spec.free_rounds + 1,
                "values": values,
            }
        )
    return found


def text(found: Mapping[str, Any]) -> str:
    """What `first_bad_rounds` says of one policy, in words."""
    setting = "".join(f", {name} {value}" for name, value in found["setting"].items())
    where = f"policy {found['policy']!r}{setting}, seed {found['seed']}"
    if found["round"] is None:
        return f"{where}: in no single round"
    return f"{where}: {', '.join(found['values'])} in round {found['round']}"
