"""Reports on a finished simulation: attributes of its result, warnings, and the round in which an invalid run became invalid.

A run is identified by its seed, so that it can be simulated again alone, with every round checked.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax

from jaxroute.core import checks, draws, provenance, rounding
from jaxroute.core.batching.lanes import exactly
from jaxroute.core.protocols import stage_length_of
from jaxroute.engine import reference
from jaxroute.engine.grid import Grid, larger_settings
from jaxroute.engine.precision import widened
from jaxroute.engine.programs import Block
from jaxroute.engine.recording import Recording
from jaxroute.engine.request import Sampling, Setup
from jaxroute.engine.rounds import Record, any_nan, run_streams
from jaxroute.engine.schedule import Ending


def attributes(setup: Setup, blocks: Mapping[str, Block], measured: Mapping[str, Any], ending: Ending) -> dict[str, Any]:
    """Collects the attributes of the result of `setup`: versions, devices, back ends, measurements, and how the simulation ended (`ending`).

    `blocks` has the compiled blocks by label of the variant; `measured` the seconds and decisions of the simulation, and its layout, by name.
    """
    target, goals = setup.target, setup.recording.goals
    about: dict[str, Any] = {
        "backend": {name: block.backend for name, block in blocks.items()},
        "arithmetic": target.arithmetic,
        "fell_back": {name: block.ran.reason for name, block in blocks.items() if block.ran.reason},
        **measured,
    }
    about |= {"inexact": setup.inexact} if setup.inexact else {}
    if goals and ending.seeds:
        about["seeds_played"] = ending.seeds
        about["until_stderr"] = {"goal": goals, "reached": ending.met, "stderr": ending.errors}
    return provenance.provenance(target.devices, **about)


def warn(
    data: xr.Dataset,
    recorded: Mapping[str, Sequence[str]],
    recording: Recording,
    ending: Ending,
    invalid: Sequence[Mapping[str, Any]],
) -> None:
    """Warns about `invalid` runs, NaN in probes and missed goals of standard errors. `recorded` has the names of recorded quantities by policy."""
    if "invalid" in data:
        number, runs, where = int(data["invalid"].sum()), int(data["runs"].sum()), "'invalid'"
    else:
        number, runs, where = int((~data["valid"]).sum()), data["valid"].size, "'valid'"
    if number:
        firsts = "".join(f"; first bad value of {text}" for text in map(_in_words, invalid))
        checks.warn(
            f"{number} of {runs} runs are invalid (something is NaN, or a flow is not finite, or must be zero and is not): "
            f"see the variable {where} and the counters beside it{firsts}"
        )
    for name, number in _nan_probes(data, recorded, recording).items():
        checks.warn(f"the probe {name!r} is NaN at some time in {number} runs that are valid")
    if recording.goals and not ending.met:
        checks.warn(
            f"the standard errors after {ending.seeds:,} seeds are not below the goal, until_stderr={recording.goals}: the largest are "
            f"{ending.errors}"
        )


def _in_words(bad: Mapping[str, Any]) -> str:
    setting = "".join(f", {name} {value}" for name, value in bad["setting"].items())
    what = "in no single round" if bad["round"] is None else f"{', '.join(bad['values'])} in round {bad['round']}"
    return f"policy {bad['policy']!r}{setting}, seed {bad['seed']}: {what}"


def _nan_probes(data: xr.Dataset, recorded: Mapping[str, Sequence[str]], recording: Recording) -> dict[str, int]:
    """Counts for each probe the valid runs of the result `data` in which it is NaN at some time. `recorded` has the recorded names by policy."""
    found: dict[str, int] = {}
    for policy, record in recording.records.items():
        probes = dict(record.probes)
        for name in (one for one in recorded[policy] if one.partition(".")[0] in probes):
            if "seed" in data.dims:
                values, valid = data[name].sel(policy=policy), data["valid"].sel(policy=policy)
                number = int((values.isnull().any([d for d in values.dims if d not in valid.dims]) & valid).sum())
            else:
                counts, valid = data[f"{name}_count"].sel(policy=policy), (data["runs"] - data["invalid"]).sel(policy=policy)
                number = int((valid - counts.min([d for d in counts.dims if d not in valid.dims])).sum())
            if number:
                found[name] = found.get(name, 0) + number
    return found


def first_bad_rounds(data: xr.Dataset, setup: Setup) -> list[dict[str, Any]]:
    """Simulates the first invalid run of each policy of a result (`data`) again on one device, and finds its first bad value.

    Returns:
      A dict for each policy with an invalid run: its name (`policy`), the run (`setting`, `seed`), the names of the first bad quantities
      (`values`), and their counted round, from 1 (`round`; None if a sum has overflowed, for which no single round is to blame).
    """
    components, sampling, found = setup.components, setup.sampling, []
    for name, record in setup.recording.records.items():
        run = _first_of_statistics(data, name) if "invalid" in data else _first_of_runs(data, name, record)
        if run is None:
            continue
        setting, seed, rounds = run
        own = {axis: setting[axis] for axis in components.policy_axes[name]}
        variant = components.variant(name, own)
        (env, policy), overflow = variant.grids, [variant.spec.overflow_flow]
        start, values = None, list[str]()
        # The run may have been simulated with more capacity.
        for larger in itertools.chain([env], larger_settings(env, variant.example[0])):
            with jax.default_device(setup.target.devices[0]):
                grids = (larger, policy)
                leaves = [grid.leaves_at(own) for grid in grids]
                bad = _replay(grids, leaves, seed, record, rounds or sampling.horizon, sampling)
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


# An invalid run: its setting (index by axis), its seed, and a round by which it was invalid (None if the curves do not show one).
_Bad = tuple[dict[str, int], int, int | None]


def _first_of_runs(data: xr.Dataset, policy: str, record: Record) -> _Bad | None:
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
    first = data["first_invalid"].sel(policy=policy)
    invalid = np.argwhere(first.values >= 0)
    if not len(invalid):
        return None
    place = dict(zip(map(str, first.dims), map(int, invalid[0]), strict=True))
    return place, first.isel(place).item(), None


def _replay(
    grids: tuple[Grid, Grid], leaves: Any, seed: int, record: Record, rounds: int, sampling: Sampling
) -> dict[str, np.ndarray]:
    """Repeats the first `rounds` counted rounds of a run. Returns for each quantity in `_bad` the first of them, from 0, in which it is bad; else -1.

    From `leaves`, arrays at the run's setting, `grids` build environment and policy; `sampling` has the root seed and the horizon.
    """

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

    def protected(leaves: Any, words: Any) -> Any:
        with rounding.protected(words["env"]):
            return exactly(widened(run))(leaves, words)

    streams = run_streams(jax.random.key_data(draws.key(sampling.root_seed)), np.asarray([seed], np.uint32))
    words = {name: pair[:, 0] for name, pair in streams.items()}
    return jax.device_get(jax.jit(protected)(leaves, words))


def _bad(record: Record, states: tuple[Any, Any], values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns by name whether a quantity of a round is bad. Flows must be finite and zero flows 0; feedback, Info and states must not be NaN."""
    flows = values["flows"]
    bad = {m.name: ~jnp.isfinite(jnp.asarray(flows[m.name], jnp.float32)).all() for m in record.flows}
    bad |= {name: jnp.any(jnp.asarray(flows[name]) != 0) for name in record.zero_flows}
    bad["feedback"] = any_nan(values["feedback"])
    bad |= {f"info.{name}": any_nan(value) for name, value in values["info"].items()}
    for name, state in zip(("state", "state of the policy"), states, strict=True):
        leaves, _ = jax.tree_util.tree_flatten_with_path(state)
        bad |= {f"{name}{jax.tree_util.keystr(path)}": any_nan(leaf) for path, leaf in leaves}
    return bad
