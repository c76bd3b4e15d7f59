"""Where a run went wrong: the round of its first value that is not finite, or of its first flow that must be zero and is not.

Runs are addressed by seed, so that one of them can be played again alone, with somebody watching every round.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from flax import struct

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy, has_plan, is_environment, is_policy
from jaxroute.core.types import Metric, PyTree, Spec
from jaxroute.engine.batching.compiling import compile_lanes
from jaxroute.engine.grid import Grid
from jaxroute.engine.rollout import rollout
from jaxroute.engine.rounds import Record, run_streams

# Runs that are played together, as in any block of the engine.
_RUNS = 16
_FIRST = Metric("first", "first bad round", "rounds", "gauge", ("watched",))


def _names(record: Record) -> list[str]:
    """What is watched, in order: flows, entries of Info, flows that must be zero."""
    return [m.name for m in (*record.flows, *record.info)] + list(record.zero_flows)


@struct.dataclass
class _WatchedEnvironment:
    """An environment that remembers the first round with a bad value of each watched quantity.

    record: what is watched (static).
    """

    env: Any
    record: Record = struct.field(pytree_node=False)

    @property
    def spec(self) -> Spec:
        return self.env.spec

    def init(self, key: jax.Array) -> PyTree:
        return self.env.init(key), jnp.full((len(_names(self.record)),), -1, jnp.int32)

    def observe(self, key: jax.Array, state: PyTree, t: jax.Array) -> PyTree:
        return self.env.observe(key, state[0], t)

    def step(self, key: jax.Array, state: PyTree, action: PyTree, t: jax.Array) -> tuple[PyTree, PyTree, Mapping[str, Any]]:
        inner, first = state
        decision, bad_info = action
        inner, feedback, flows = self.env.step(key, inner, decision, t)
        bad = [_not_finite(flows[m.name]) for m in self.record.flows]
        bad += [bad_info[m.name] for m in self.record.info]
        bad += [jnp.any(jnp.asarray(flows[name]) != 0) for name in self.record.zero_flows]
        seen = jnp.stack([jnp.asarray(b) for b in bad]) & (first < 0) & (t >= self.spec.free_rounds)
        return (inner, jnp.where(seen, t, first)), feedback, flows

    def gauges(self, state: PyTree) -> dict[str, jax.Array]:
        return {_FIRST.name: state[1]}


@struct.dataclass
class _WatchedPolicy:
    """A policy whose Info is checked in every round; the environment learns of it with the action.

    horizon: counted rounds of the whole run (static). record: what is watched (static).
    """

    policy: Any
    horizon: int = struct.field(pytree_node=False)
    record: Record = struct.field(pytree_node=False)

    def init(self, key: jax.Array, spec: Spec) -> PyTree:
        return self.policy.init(key, dataclasses.replace(spec, horizon=self.horizon))

    def act(self, key: jax.Array, state: PyTree, obs: PyTree, t: jax.Array) -> tuple[PyTree, dict[str, Any]]:
        action, info = self.policy.act(key, state, obs, t)
        return (action, {m.name: _not_finite(info[m.name.removeprefix("info.")]) for m in self.record.info}), {}

    def update(self, key: jax.Array, state: PyTree, obs: PyTree, action: PyTree, feedback: PyTree, t: jax.Array) -> PyTree:
        return self.policy.update(key, state, obs, action[0], feedback, t)


class _WatchedPlanner(_WatchedPolicy):
    """The same of a policy with plans."""

    @property
    def stage_length(self) -> int | None:
        return getattr(self.policy, "stage_length", None)

    def plan(self, key: jax.Array, state: PyTree, obs: PyTree, t: jax.Array) -> PyTree:
        return self.policy.plan(key, state, obs, t)


def _not_finite(value: Any) -> jax.Array:
    return ~jnp.isfinite(jnp.asarray(value, jnp.float32)).all()


def _watched(env: Any, policy: Any, record: Record, horizon: int) -> tuple[Any, Any]:
    """Environment and policy, or the functions that make them, with somebody watching."""

    def watch(policy: Any) -> Any:
        return (_WatchedPlanner if has_plan(policy) else _WatchedPolicy)(policy, horizon, record)

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
    rounds: int,
    horizon: int,
    key: int,
    device: Any,
) -> np.ndarray:
    """First bad round `[watched]` of one run, -1 where there is none, within its first `rounds` of `horizon`."""
    leaves = []
    for grid in (env, policy):
        tiles = grid.tile({name: np.asarray([setting[name]]) for name in grid.axes})
        leaves.append([leaf.reshape(leaf.shape[len(varies) :]) for leaf, varies in zip(tiles, grid.leaf_axes, strict=True)])

    def play(leaves: Any, root: Any, seeds: Any) -> dict[str, Any]:
        players = _watched(env.build(leaves[0]), policy.build(leaves[1]), record, horizon)
        return rollout(*players, run_streams(root, seeds), rounds, Record(every=rounds, env_gauges=(_FIRST,)))

    root = np.asarray(jax.random.key_data(draws.key(key)))
    arguments = (leaves, root, np.full(_RUNS, seed, np.uint32))
    with jax.default_device(device):
        played = compile_lanes(jax.jit(play).lower(*arguments), device.platform)(*arguments)
    return np.asarray(played[_FIRST.name])[0, :, 0]


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
    for metric in (*record.flows, *record.info):
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


def first_bad_rounds(
    data: xr.Dataset,
    env: Grid,
    policies: Mapping[str, Grid],
    records: Mapping[str, Record],
    horizon: int,
    key: int,
    device: Any,
) -> list[dict[str, Any]]:
    """Plays the first invalid run of each policy once more, up to its first bad value.

    Args:
      data: a result. env, policies, records, horizon, key: what it was made with. device: where to play.

    Returns:
      For each policy with an invalid run its name (`policy`), the run (`setting`, `seed`), the names of the quantities that went wrong
      first (`values`), and in which counted round, from 1 (`round`; None if no single round is to blame: a sum has overflowed).
    """
    found = []
    for name, policy in policies.items():
        record, free = records[name], _free_rounds(env)
        bad = _first_of_statistics(data, name) if "invalid" in data else _first_of_runs(data, name, record)
        if bad is None:
            continue
        setting, seed, rounds = bad
        own = {a: i for a, i in setting.items() if a in env.axes or a in policy.axes}
        first = _replay(env, policy, own, seed, record, rounds or horizon, horizon, key, device)
        start = first[first >= 0].min(initial=2**31 - 1)
        watched = _names(record)
        found.append(
            {
                "policy": name,
                "setting": {a: data[a].values[i].item() for a, i in own.items()},
                "seed": seed,
                "round": int(start) - free + 1 if (first >= 0).any() else None,
                "values": [watched[i] for i in np.flatnonzero(first == start)],
            }
        )
    return found


def _free_rounds(env: Grid) -> int:
    example = env.example if is_environment(env.example) else env.example(draws.key(0))
    return example.spec.free_rounds


def text(found: Mapping[str, Any]) -> str:
    """What `first_bad_rounds` says of one policy, in words."""
    setting = "".join(f", {name} {value}" for name, value in found["setting"].items())
    where = f"policy {found['policy']!r}{setting}, seed {found['seed']}"
    if found["round"] is None:
        return f"{where}: in no single round"
    return f"{where}: {', '.join(found['values'])} in round {found['round']}"
