"""Diagnosis of invalid runs: the round of the first NaN, of the first flow that is not finite, or of the first non-zero one that must be zero.

Runs are addressed by seed, so that a single one can be simulated again, with every round checked.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax

from jaxroute.core import draws, rounding
from jaxroute.core.batching.lanes import exactly
from jaxroute.core.protocols import stage_length_of
from jaxroute.core.types import PyTree
from jaxroute.engine import reference
from jaxroute.engine.capacity import larger_settings
from jaxroute.engine.components import Variant
from jaxroute.engine.grid import Grid
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import Record, any_nan, run_streams
from jaxroute.engine.sampling import Sampling


def _nans(name: str, tree: PyTree) -> dict[str, jax.Array]:
    """Whether each leaf of a tree has a NaN, by its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{name}{jax.tree_util.keystr(path)}": any_nan(leaf) for path, leaf in leaves}


def _bad(record: Record, states: tuple[PyTree, PyTree], values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Whether each quantity is bad in a round, by name."""
    flows = values["flows"]
    bad = {m.name: ~jnp.isfinite(jnp.asarray(flows[m.name], jnp.float32)).all() for m in record.flows}
    bad |= {name: jnp.any(jnp.asarray(flows[name]) != 0) for name in record.zero_flows}
    bad |= {"feedback": any_nan(values["feedback"])} | {
        f"info.{name}": any_nan(value) for name, value in values["info"].items()
    }
    return bad | _nans("state", states[0]) | _nans("state of the policy", states[1])


def _replay(
    grids: tuple[Grid, Grid],
    setting: Mapping[str, int],
    seed: int,
    record: Record,
    rounds: int,
    sampling: Sampling,
    device: Any,
) -> dict[str, np.ndarray]:
    """First of the first `rounds` counted rounds, from 0, of one run in which each quantity is bad, by name; -1 for none."""

    def leaves_of(grid: Grid) -> list[Any]:
        tiles = grid.tile({name: np.asarray([setting[name]]) for name in grid.axes})
        return [leaf.reshape(leaf.shape[len(varies) :]) for leaf, varies in zip(tiles, grid.leaf_axes, strict=True)]

    def run(leaves: Any, words: Any) -> dict[str, Any]:
        env, policy = (grid.build(own) for grid, own in zip(grids, leaves, strict=True))
        keys = reference.keys_of(words)
        env, policy, states = reference.first_states(env, policy, keys, sampling.horizon)
        stage_length, free_rounds = stage_length_of(env, policy), env.spec.free_rounds

        def one(t: Any, states: Any) -> tuple[Any, dict[str, jax.Array]]:
            states, values = reference.one_round(env, policy, keys, states, t, stage_length and t % stage_length == 0)
            return states, _bad(record, states, values)

        def add(t: Any, carry: Any) -> Any:
            (states, bad), firsts = one(t, carry[0]), carry[1]
            new = {name: bad[name] & (t >= free_rounds) & (first < 0) for name, first in firsts.items()}
            return states, {name: jnp.where(new[name], t - free_rounds, first) for name, first in firsts.items()}

        none = dict.fromkeys(jax.eval_shape(one, jnp.int32(0), states)[1], jnp.int32(-1))
        return lax.fori_loop(jnp.int32(0), jnp.int32(free_rounds + rounds), add, (states, none))[1]

    with jax.default_device(device):
        streams = run_streams(jax.random.key_data(draws.key(sampling.root_seed)), np.asarray([seed], np.uint32))
        words = {name: pair[:, 0] for name, pair in streams.items()}

        def protected(leaves: Any, words: Any) -> Any:
            with rounding.protected(words["env"]):
                return exactly(widened(run))(leaves, words)

        return jax.device_get(jax.jit(protected)([leaves_of(grid) for grid in grids], words))


_Bad = tuple[dict[str, int], int, int | None]


def _first_of_runs(data: xr.Dataset, policy: str, record: Record) -> _Bad | None:
    """The first invalid run of a policy: setting by axis, seed, and a round before which it went wrong, if the curves show one."""
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
    """The first invalid run of a policy of which only statistics are stored."""
    first = data["first_invalid"].sel(policy=policy)
    invalid = np.argwhere(first.values >= 0)
    if not len(invalid):
        return None
    place = dict(zip(map(str, first.dims), map(int, invalid[0]), strict=True))
    return place, first.isel(place).item(), None


def first_bad_rounds(
    data: xr.Dataset,
    records: Mapping[str, Record],
    axes: Mapping[str, Sequence[str]],
    variant_of: Callable[[str, Mapping[str, int]], Variant],
    sampling: Sampling,
    device: Any,
) -> list[dict[str, Any]]:
    """Simulates the first invalid run of each policy again, up to its first bad value.

    Args:
      data: a result.
      records: recorded quantities by policy.
      axes: axes along which the runs of a policy differ, by policy.
      variant_of: variant of a policy at a position.
      sampling: horizon and root seed.
      device: device that simulates.

    Returns:
      For each policy with an invalid run its name (`policy`), the run (`setting`, `seed`), the names of the quantities that went wrong
      first (`values`), and the counted round, from 1 (`round`; None if there is no single round: a sum has overflowed).
    """
    found = []
    for name, record in records.items():
        bad = _first_of_statistics(data, name) if "invalid" in data else _first_of_runs(data, name, record)
        if bad is None:
            continue
        setting, seed, rounds = bad
        own = {axis: setting[axis] for axis in axes[name]}
        variant = variant_of(name, own)
        (env, policy), overflow = variant.grids, [variant.spec.overflow_flow]
        start, values = None, list[str]()
        # The run may have been simulated with more capacity.
        for larger in itertools.chain([env], larger_settings(env, variant.example[0])):
            bad = _replay((larger, policy), own, seed, record, rounds or sampling.horizon, sampling, device)
            firsts = {name: int(first) for name, first in bad.items() if first >= 0}
            if firsts:
                start = min(firsts.values())
                values = [name for name, first in firsts.items() if first == start]
            if not firsts or values != overflow:
                break
        place = {axis: data[axis].values[i].item() for axis, i in own.items()}
        number = None if start is None else start + 1
        found.append({"policy": name, "setting": place, "seed": seed, "round": number, "values": values})
    return found


def text(found: Mapping[str, Any]) -> str:
    """Formats an entry of `first_bad_rounds` as words."""
    setting = "".join(f", {name} {value}" for name, value in found["setting"].items())
    where = f"policy {found['policy']!r}{setting}, seed {found['seed']}"
    if found["round"] is None:
        return f"{where}: in no single round"
    return f"{where}: {', '.join(found['values'])} in round {found['round']}"
