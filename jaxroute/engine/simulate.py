"""`simulate`: maps over policies, settings, instances and seeds; the story of a run."""

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import xarray as xr

from jaxroute.core import checks
from jaxroute.core.protocols import Probe, has_long_rounds
from jaxroute.engine import diagnose, hosts, inputs, memory, recording, stopping
from jaxroute.engine.errors import explained
from jaxroute.engine.inputs import EnvironmentLike, Inputs, Policies, PolicyLike, read_inputs
from jaxroute.engine.kernels import host
from jaxroute.engine.layout import Layout
from jaxroute.engine.programs import PROGRAMS, Block, compile_blocks, compiler, stays_on_device
from jaxroute.engine.progress import Callback, Follower
from jaxroute.engine.rounds import spec_for
from jaxroute.engine.tasks import Effort, Played, play_task, played_ahead
from jaxroute.engine.waiting import tqdm
from jaxroute.store import provenance
from jaxroute.store.description import Contents, fingerprint, place_of, stored_layout, stored_settings
from jaxroute.store.results import open_sink
from jaxroute.store.sink import Sink, Task
from jaxroute.store.states import Kept

# Bytes of the curves of a block, where they are not kept.
_CURVES = 1 << 30
# Runs of a block of a GPU at most, where a run may stop early.
_LOOK = 1 << 17


def simulate(
    env: EnvironmentLike,
    policies: Policies,
    *,
    horizon: int,
    seeds: int | Sequence[int],
    record_every: int | None = None,
    record: Sequence[str] | None = None,
    probes: Mapping[str, Probe] | None = None,
    instances: int | None = None,
    out: str | os.PathLike[str] | None = None,
    key: int = 0,
    block: int | None = None,
    devices: Sequence[Any] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = True,
    callback: Callback | None = None,
    backend: str = "auto",
    keep: str = "runs",
    until_stderr: Mapping[str, float] | None = None,
    keep_states: bool = False,
    accept_changed_code: bool = False,
    description: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Plays every policy on every setting for every seed, and returns the recorded curves.

    Args:
      env: an environment, a `Grid` of environments, or a sampler `key -> Environment` (a random instance per run, or
        `instances` of them shared by all seeds).
      policies: dict of name to policy; an entry may be a `Grid`, or a function `env -> policy` (an oracle), which follows a
        swept environment. A single policy is named after its class.
      horizon: `T`, counted rounds.
      seeds: number of seeds (0, 1, ...), or the seeds themselves. Seed `i` is the same run in any batch, on any number of
        devices, resumed or not.
      record_every: rounds between two points of a curve (default: that of an existing store, otherwise 100 points).
      record: names of metrics to record (default: those that environment and policy mark as default); `"info.<name>"` records
        the running mean of an entry of a policy's Info.
      probes: functions `(env, policy, env_state, policy_state, t) -> array or dict`, read at record times.
      instances: number of random instances if `env` is a sampler.
      out: folder of a store, or a URL such as "s3://bucket/folder", as text (see `jaxroute.store.objects`; `pip install
        "jaxroute[objects]"`). Every finished block is written there; a run that was killed continues where it stopped. A store in a folder
        grows: a run that asks for more seeds, policies, values along an axis, metrics that only some policies have, a smaller `until_stderr`,
        or (with `keep_states`) a longer horizon plays what is missing, and ends with the numbers that it would have had alone. A store of
        other settings is refused, and so is one that was made by other code: of a policy, the environment, a probe, and of what these call
        outside of libraries (comments, formatting, docstrings and names of local variables do not matter).
      key: the root of all randomness; another key gives other luck to the same seeds.
      block: seeds per compiled call (default: by device and memory).
      devices: seeds are sharded over these (default: all local devices).
      mesh: in place of `devices`, a mesh of one axis over devices of this process or of several, after
        `jax.distributed.initialize`. All processes make the same call with the same `out`, which they share; each plays its share of
        the blocks, the first writes the provenance, and all return the whole result.
      progress: shows a progress bar.
      callback: a function that is called after each block, once it is stored, with a `Progress`: what is done, seconds, and the result so
        far when asked for (`progress.result()`). If it returns True the run ends there, and what is done is returned, with the attribute
        `stopped`; an error that it raises ends the run, too. In both cases the same call goes on from the store. For a tracker
        (TensorBoard, Weights & Biases) or a rule of your own; a smaller `block` calls it more often. Of one process only.
      backend: "scan" is a compiled scan over rounds with the runs on the last axis. "kernel" is one function of C made from the same
        functions of one run, with a thread for each run on a GPU, and on a CPU in C++ for as many runs at once as a vector has numbers.
        "reference" is the textbook's `vmap` of a scan, slower, to compare with. "auto" is that of an existing
        store, otherwise the kernel; the scan where no kernel can be used (a trial says why, in one warning), in double precision, and if
        the rounds of a policy are long for products of large matrices. The streams are the same bits; what is computed from them is equal
        except for the rounding of logarithms, exponentials and sums. A kernel needs a C++ compiler (`c++`, `g++`, `clang++` or `CXX`), on a
        GPU NVRTC, which comes with jax (`JAXROUTE_NVRTC` is the path of another one). The scan also runs a policy that has an operation
        without C, a kernel that a compiler or driver refuses, a block in which a GPU fails, and on a GPU a policy with more than 3 KiB of arrays on
        a thread's stack, with which it is faster than the kernel (COSMOS, ACQB, hundreds of models). The attribute `backend` says by policy what
        ran, `fell_back` why it was not the kernel; a warning says so, too, except where the scan is faster, and on a CPU where the user did not
        ask for the kernel and the policy has none. "brief", for a first look on a CPU, is compiled with few optimisations: in a third of the time, but it takes five
        to ten times as long to run; the kernel, of one run after the other, or the scan where there is no C compiler (`cc`, `gcc`, `clang`
        or `CC`); policies whose rounds are long by themselves are compiled as for "scan".
      keep: "runs", every run's curves, or "moments", only their statistics over the seeds: count, mean, variance, minimum, maximum and
        histogram of each metric at each recorded time, and of the differences between policies, seed by seed. Memory and store then do
        not grow with the number of seeds; `metrics` and `plot` answer the same questions, but for those about single runs.
      until_stderr: standard errors by metric, for example `{"regret": 0.5}`: the run stops when that of every policy and setting at the
        horizon is smaller; `seeds` is then the most that are played. It is looked at after 256 seeds (or the first block) and then each
        time their number has doubled. Whether to stop depends on the sample variance alone, which says nothing about the error of the
        mean where the two are independent (normal) or uncorrelated (symmetric distributions): the mean stays unbiased. Elsewhere their
        correlation is `r = skewness / sqrt(excess kurtosis + 2)`, and stopping prefers samples with too small a mean (for `r > 0`) by
        up to 0.2 r of a standard error, reached if the goal lies just at a look; mostly it lies between two, which are so far apart
        that luck hardly decides. None of this holds where events that matter are too rare to be seen at the first looks (a disaster
        in one run of a thousand): there give a fixed number of seeds. Several processes wait for each other at every look.
      keep_states: keeps the states of environment and policy after the last round in the store, from which a longer horizon is played
        later; how much they take is printed first (see also `run_bytes`).
      accept_changed_code: goes on with a store where the code has changed; the result says so in its attribute `accepted_code`.
      description: more attributes for the result.

    Returns:
      An `xarray.Dataset` with dimensions `(policy, settings..., seed, time, ...)`, see `jaxroute.store`; of moments without seeds, see
      `jaxroute.store.moments.dataset`. With `until_stderr` the attributes say how many seeds were played (`seeds_played`), whether the goal
      was reached, and the largest standard errors.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or the store belongs to other settings or to a run that is still
        going on.
      ImportError: `out` is a URL, and what reads and writes URLs is not installed.
      OSError: the store cannot be written. MemoryError: not even the smallest block fits into memory.
      HostsError: another process of the mesh did not finish its blocks.
    """
    for name, value in (
        ("progress", progress),
        ("keep_states", keep_states),
        ("accept_changed_code", accept_changed_code),
    ):
        if not isinstance(value, bool):
            hint = "; a function is given as callback" if name == "progress" and callable(value) else ""
            raise ValueError(f"{name} must be True or False, got {checks.show(value)}{hint}")
    follower = Follower(callback)
    inputs.refuse_tracing(env, policies)
    if mesh is not None and devices is not None:
        raise ValueError("mesh takes the place of devices; give one of them")
    if keep_states and out is None:
        raise ValueError("keep_states needs out: the states are kept in the store")
    stored = stored_settings(out)
    if record_every is None and "record_every" in stored:
        record_every = int(stored["record_every"])
    if stored and backend == "auto":
        backend = stored.get("backend", "scan")
    with hosts.Processes(mesh, _device_list(devices), out) as processes:
        if callback is not None and processes.size > 1:
            raise ValueError(f"callback is for a run of one process, got {processes.size} of them")
        asked = read_inputs(
            env,
            policies,
            horizon=horizon,
            seeds=seeds,
            record_every=record_every,
            record=record,
            probes=probes,
            instances=instances,
            key=key,
            block=block,
            backend=backend,
            platform=processes.devices[0].platform,
            trial=lambda platform: processes.agree(lambda: inputs.no_kernels(platform)),
            keep=keep,
            until_stderr=until_stderr,
            keep_states=keep_states,
            accept_changed_code=accept_changed_code,
            description=description,
        )
        return _simulate(asked, processes, out, progress, follower)


def run_bytes(env: EnvironmentLike, policy: PolicyLike) -> int:
    """Bytes of the state of one run: what thousands of runs at once take that many times.

    Leaves of environment and policy, which runs share, are not counted.

    Args:
      env: an environment, or a sampler.
      policy: a policy, or a function `env -> policy`.
    """
    players = inputs.example("policy", inputs.env_settings(env), inputs.policy_settings("policy", policy))
    return memory.bytes_of_run(*players)


def _simulate(
    asked: Inputs, processes: hosts.Processes, out: str | os.PathLike[str] | None, progress: bool, follower: Follower
) -> xr.Dataset:
    """The story of a run, as one of the processes that share it tells it."""
    effort = Effort()
    settings, code = asked.settings(), None if out is None else asked.code()
    if out is not None:
        processes.hold(lambda: place_of(out).lock())
    processes.check_same([fingerprint(settings), code])
    accept = asked.accept_changed_code
    layout = Layout(**processes.agree(lambda: _cut(asked, processes, stored_layout(out, settings, code, accept))))
    blocks = _blocks(asked, layout, processes.devices)
    stored, first = stored_settings(out), processes.rank == 0
    with compiler() as pool:
        everything = not stored and processes.size == 1  # Else what is to be played is not known yet.
        with effort.compiling():
            shapes = _traced(asked, blocks, pool if everything else None)
        contents = _contents(asked, settings, code, layout, shapes, processes.devices[0], stored)
        sink = processes.in_turn(lambda: open_sink(asked.keep, out, contents, repair=first, rank=processes.rank))
        tasks = follower.in_order(_tasks(asked, layout, sink, processes))
        _say_size(asked, layout, tasks, progress and first)
        with effort.compiling():
            labels = dict.fromkeys(asked.part(*task[:2]).label for task in tasks if not sink.is_begun(*task))
            compile_blocks({label: blocks[label] for label in labels}, pool, progress and first)
    ending = _play(asked, processes, layout, blocks, sink, tasks, effort, progress, follower)
    if follower.stopped:
        return _stopped(asked, processes, blocks, sink, effort, follower)
    measured = processes.gather(effort.measured(), sink.missing)
    data = sink.finish(processes.late_s)
    data.attrs = processes.agree(lambda: sink.sign(_report(asked, processes, blocks, data, measured, ending)))
    _warn_invalid(data)
    _warn_probes(data, asked, blocks)
    _warn_goals(asked, ending)
    PROGRAMS.trim()
    return data


def _stopped(
    asked: Inputs,
    processes: hosts.Processes,
    blocks: Mapping[str, Block],
    sink: Sink,
    effort: Effort,
    follower: Follower,
) -> xr.Dataset:
    """What is done of a run that its callback has ended. Its provenance is not stored: that is for results that are whole."""
    data = sink.so_far()
    data.attrs = {
        **sink.attrs,
        **_report(asked, processes, blocks, None, effort.measured(), _Ending()),
        "stopped": {"blocks": follower.done, "of": follower.total},
    }
    PROGRAMS.trim()
    return data


@dataclass
class _Ending:
    """How a run ended.

    blocks: of seeds that were played.
    seeds: that were played.
    met: whether the goals of `until_stderr` were reached.
    errors: largest standard errors by metric, as far as they are known.
    """

    blocks: int = 0
    seeds: int = 0
    met: bool = False
    errors: dict[str, float | None] = field(default_factory=dict)


def _cut(asked: Inputs, processes: hosts.Processes, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The layout of a run; that of its store, as far as there is one."""
    static = asked.static_axes
    if stored and set(asked.axes) == set(stored["tile"]):
        return {**stored, "tile": {a: 1 if a in static else size for a, size in stored["tile"].items()}}
    examples = {part.label: part.example for part in asked.every_part}
    numbers = {part.label: recording.numbers_per_record(asked.records[part.policy], asked.spec) for part in asked.every_part}
    alone, devices = _alone(asked, processes.devices), processes.devices
    on_gpu = devices[0].platform != "cpu"
    needs = _device_needs(asked, devices) if on_gpu and asked.backend == "kernel" and not asked.reason else {}
    scratch = {label: own for label, (own, _) in needs.items()}
    most = memory.runs_that_fit(examples, numbers, len(asked.times), devices, alone, scratch)
    if asked.goals and on_gpu:
        most = min(most, _LOOK)
    if (
        asked.keep == "moments"
    ):  # The curves of all policies of a block are in memory at the same time, for their differences.
        together = sum(numbers[parts[0].label] for parts in asked.parts.values())
        most = min(most, max(1, _CURVES // (8 * len(asked.times) * together)))
    held = max((memory.bytes_of_run(*players) for label, players in examples.items() if label not in alone), default=0)
    each = -(-len(asked.seeds) // processes.size)  # Every process gets some blocks of seeds.
    chosen = asdict(
        Layout.choose(
            asked.axes,
            asked.shared,
            each,
            asked.block,
            most,
            devices,
            held,
            bool(alone),
            static,
            [at_once for _, at_once in needs.values()],
        )
    )
    return {"block": stored["block"], "tile": chosen["tile"] | stored["tile"]} if stored else chosen


def _device_needs(asked: Inputs, devices: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Bytes of scratch memory of a run, and runs that the devices hold at the same time, of each part that has a kernel."""
    smallest = Layout(memory.LANE_MULTIPLE * len(devices), dict.fromkeys(asked.axes, 1))
    blocks = _blocks(asked, smallest, devices, quiet=True)
    _traced(asked, blocks, None)  # All kernels are compiled at the same time.
    needs = {label: block.needs() for label, block in blocks.items()}
    return {label: found for label, found in needs.items() if found is not None}


def _alone(asked: Inputs, devices: Sequence[Any]) -> set[str]:
    """Labels of the parts whose runs are played one by one: their rounds are long by themselves, and there is but a CPU, without kernels."""
    if len(devices) > 1 or devices[0].platform != "cpu" or asked.backend not in ("scan", "brief"):
        return set()
    players = {part.label: part.example for part in asked.every_part}
    return {label for label, (env, policy) in players.items() if has_long_rounds(policy, spec_for(env, asked.horizon))}


def _blocks(asked: Inputs, layout: Layout, devices: Sequence[Any], quiet: bool = False) -> dict[str, Block]:
    """Blocks by the label of each part. `quiet`: without a warning about a policy that has no kernel."""
    # A store may have been begun with several settings a call.
    alone = _alone(asked, devices) if set(layout.tile.values()) <= {1} else set()
    brief = asked.backend == "brief"
    # What settings share a kernel would compute for each.
    backend = ("scan" if asked.shared or host.compiler() is None else "kernel") if brief else asked.backend
    backend = "scan" if asked.reason else backend
    return {
        part.label: Block(
            f"policy {part.label!r} on {type(part.example[0]).__name__}",
            part.env,
            part.settings,
            asked.records[part.policy],
            asked.horizon,
            asked.spec.free_rounds,
            asked.key,
            layout,
            devices,
            "scan" if part.label in alone else backend,
            brief and part.label not in alone,  # Where rounds are long, playing them would take more than compiling saves.
            asked.keep_states,
            stays_on_device(asked.keep, asked.platform),
            part.label in alone,
            quiet=quiet or brief or (asked.chosen and asked.platform == "cpu"),
            reason=asked.reason,
        )
        for part in asked.every_part
    }


_Shapes = dict[str, dict[str, tuple[int, ...]]]


def _traced(asked: Inputs, blocks: Mapping[str, Block], pool: ThreadPoolExecutor | None) -> _Shapes:
    """Traces every program: shapes of what is recorded, by policy and name. With a pool, each is compiled while the next is traced.

    Raises:
      ValueError: what is recorded has not the same shape in all programs of a policy.
    """
    shapes: _Shapes = {}
    for part in asked.every_part:
        block = blocks[part.label]
        with explained(part.label, *part.example):
            own = block.shapes()
            if pool is not None:
                block.compile_in(pool)
        first = shapes.setdefault(part.policy, own)
        for name in (*first, *own):
            if first.get(name) != own.get(name):
                raise ValueError(
                    f"what is recorded must have one shape: {name!r} has {own.get(name)} at {part.label!r}, and {first.get(name)} at "
                    f"{asked.parts[part.policy][0].label!r}; leave it out (record), or sweep in runs of its own"
                )
    return shapes


def _contents(
    asked: Inputs,
    settings: Mapping[str, Any],
    code: Mapping[str, Any] | None,
    layout: Layout,
    shapes: _Shapes,
    device: Any,
    stored: Mapping[str, Any],
) -> Contents:
    """What the result will hold. `stored`: settings of the store, if there is one."""
    return Contents(
        policies=list(asked.policies),
        axes=asked.axes,
        policy_axes={name: asked.axes_of(name) for name in asked.policies},
        seeds=asked.seeds,
        times=asked.times,
        variables=recording.variables(asked.records, shapes),
        model_names=asked.spec.model_names,
        zero_flows=asked.spec.zero_flows,
        settings=settings,
        layout=layout,
        code=code,
        made_with=provenance.made_with(device),
        from_start=() if stored.get("horizon", asked.horizon) == asked.horizon else asked.knowing_horizon(stored["horizon"]),
    )


def _tasks(asked: Inputs, layout: Layout, sink: Sink, processes: hosts.Processes) -> list[Task]:
    """The tasks of this process that are not done yet, in the order of the sink."""
    tasks: list[Task] = [
        (name, tile, block)
        for name in asked.policies
        for tile in layout.tiles({axis: asked.axes[axis] for axis in asked.axes_of(name)})
        for block in range(layout.blocks(len(asked.seeds)))
    ]
    tasks.sort(key=sink.order)
    undone = processes.agree(lambda: [i for i, task in enumerate(tasks) if not sink.is_done(*task)])
    return sink.share([tasks[i] for i in undone], processes.rank, processes.size)


def _play(
    asked: Inputs,
    processes: hosts.Processes,
    layout: Layout,
    blocks: Mapping[str, Block],
    sink: Sink,
    tasks: Sequence[Task],
    effort: Effort,
    progress: bool,
    follower: Follower,
) -> _Ending:
    """Plays the tasks, up to the look at which the goals are reached."""
    ending = _Ending()
    measured = {name: blocks[parts[0].label].shapes() for name, parts in asked.parts.items()}
    owners = {metric: [name for name, shapes in measured.items() if metric in shapes] for metric in asked.goals}

    def look() -> tuple[bool, dict[str, float | None]]:
        """Whether the goals are reached, and the largest standard errors, by all that has been played."""
        if sink.begun(ending.blocks):  # A run that has gone on before goes on.
            return False, {}
        sink.settle(processes.late_s)
        return stopping.reached(asked.goals, {m: sink.errors(m, owners[m], ending.blocks) for m in asked.goals})

    def play(task: Task, begun: Kept | None) -> Played:
        return play_task(asked, layout, blocks[asked.part(*task[:2]).label], task, effort, begun)

    def interrupt(stopped: bool) -> None:
        for block in blocks.values():
            block.ran.interrupt(stopped)

    everything = layout.blocks(len(asked.seeds))
    looks = stopping.looks(len(asked.seeds), layout.block) if asked.goals else [everything]
    follower.total = len(tasks)
    finished = 0
    with tqdm(total=len(tasks), disable=not progress or not tasks or processes.rank > 0, unit="block", leave=False) as bar:

        def waiting(task: Task) -> None:
            """Shows the share of a block that a GPU has simulated."""
            share = blocks[asked.part(*task[:2]).label].ran.done
            bar.update(round(finished + 0.99 * share, 2) - bar.n)

        for goal in looks:
            now = [task for task in tasks if ending.blocks <= task[2] < goal]
            with contextlib.closing(played_ahead(now, play, sink.first_rounds, waiting, interrupt)) as played:
                for task, curves, kept in played:
                    bar.set_description(task[0])
                    sink.write(*task, curves, kept)
                    finished += 1
                    bar.update(finished - bar.n)
                    name, tile, number = task
                    if follower.tell(
                        sink.so_far,
                        policy=name,
                        setting={a: asked.axes[a][at : at + layout.tile[a]].tolist() for a, at in tile.items()},
                        seeds=min((number + 1) * layout.block, len(asked.seeds)),
                    ):
                        return ending
            ending.blocks, ending.seeds = goal, sink.stop(goal)
            if asked.goals:
                processes.gather({}, sink.missing)
                ending.met, ending.errors = processes.agree(look)
            if ending.met:
                break
    return ending


def _say_size(asked: Inputs, layout: Layout, tasks: Sequence[Task], aloud: bool) -> None:
    """Says how much the states that are to be kept will take."""
    if not (asked.keep_states and aloud and tasks):
        return
    held = {part.label: memory.bytes_of_run(*part.example) for part in asked.every_part}
    settings = {name: math.prod(layout.tile[a] for a in asked.axes_of(name)) for name in asked.policies}
    size = sum(held[asked.part(name, tile).label] * settings[name] for name, tile, _ in tasks) * layout.block
    tqdm.write(f"the states at the end, which are kept, take up to {size / 1e6:,.1f} MB", file=sys.stderr)


def _report(
    asked: Inputs,
    processes: hosts.Processes,
    blocks: Mapping[str, Block],
    data: xr.Dataset | None,
    measured: Mapping[str, float],
    ending: _Ending,
) -> dict[str, Any]:
    """Attributes of the result: where and how it was made, and what went wrong, if it is whole (`data`)."""
    about: dict[str, Any] = {
        "processes": processes.size,
        "backend": {name: "brief" if block.brief else block.backend for name, block in blocks.items()},
        "fell_back": {name: block.ran.reason for name, block in blocks.items() if block.ran.reason},
        **measured,
    }
    if data is not None and (invalid := diagnose.first_bad_rounds(data, asked, processes.devices[0])):
        about["invalid"] = invalid
    if data is not None and asked.goals:
        about["seeds_played"] = ending.seeds
        about["until_stderr"] = {"goal": asked.goals, "reached": ending.met, "stderr": ending.errors}
    return {**provenance.provenance(processes.everyone, **about), **asked.description}


def _device_list(devices: Any) -> list[Any]:
    if devices is None:
        return list(jax.local_devices())
    given = list(devices) if isinstance(devices, (list, tuple)) else []
    if not given or not all(isinstance(d, jax.Device) for d in given):
        raise ValueError(
            f"devices must be a non-empty list of jax devices, got {checks.show(devices)}; jax.devices('cpu') is one"
        )
    return given


def _warn_invalid(data: xr.Dataset) -> None:
    if "invalid" in data:
        invalid, runs, where = int(data["invalid"].sum()), int(data["runs"].sum()), "'invalid'"
    else:
        invalid, runs, where = int((~data["valid"]).sum()), data["valid"].size, "'valid'"
    if invalid:
        firsts = "".join(f"; first bad value of {text}" for text in map(diagnose.text, data.attrs["invalid"]))
        warnings.warn(
            f"{invalid} of {runs} runs are invalid (something is NaN, or a flow is not finite, or must be zero and is not): "
            f"see the variable {where} and the counters beside it{firsts}",
            stacklevel=4,
        )


def _warn_probes(data: xr.Dataset, asked: Inputs, blocks: Mapping[str, Block]) -> None:
    """What a probe shows does not make a run invalid, but NaN is rarely what it should show."""
    found: dict[str, int] = {}
    for policy, parts in asked.parts.items():
        probes = dict(asked.records[policy].probes)
        for name in (one for one in blocks[parts[0].label].shapes() if one.partition(".")[0] in probes):
            if "seed" in data.dims:
                values, valid = data[name].sel(policy=policy), data["valid"].sel(policy=policy)
                number = int((values.isnull().any([d for d in values.dims if d not in valid.dims]) & valid).sum())
            else:
                counts, valid = data[f"{name}.count"].sel(policy=policy), (data["runs"] - data["invalid"]).sel(policy=policy)
                number = int((valid - counts.min([d for d in counts.dims if d not in valid.dims])).sum())
            if number:
                found[name] = found.get(name, 0) + number
    for name, number in found.items():
        warnings.warn(f"the probe {name!r} is NaN at some time in {number} runs that are valid", stacklevel=4)


def _warn_goals(asked: Inputs, ending: _Ending) -> None:
    if asked.goals and not ending.met:
        warnings.warn(
            f"the standard errors after {ending.seeds} seeds are not below the goal, until_stderr={asked.goals}: the largest are "
            f"{ending.errors}",
            stacklevel=4,
        )
