"""`simulate`: maps over policies, settings, instances and seeds; the story of a run."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import xarray as xr

from jaxroute.core import checks, provenance
from jaxroute.core.attributes import decoded, encoded
from jaxroute.core.protocols import Probe
from jaxroute.engine import diagnose, inputs, memory, recording, stopping
from jaxroute.engine.errors import explained
from jaxroute.engine.execution import Execution, PartWarning, Store, read_execution, read_store
from jaxroute.engine.inputs import EnvironmentLike, Inputs, Policies, PolicyLike, read_inputs
from jaxroute.engine.layout import Layout
from jaxroute.engine.plan import Step, Task, Unit, Work
from jaxroute.engine.programs import PROGRAMS, Block, compile_blocks, compiler, stays_on_device
from jaxroute.engine.progress import Callback, Follower
from jaxroute.engine.rounds import is_expensive, spec_for
from jaxroute.engine.tasks import Effort, Played, play_task, played_ahead
from jaxroute.engine.waiting import bar, tqdm
from jaxroute.store import cells, results
from jaxroute.store.cells import Request
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import PackStore
from jaxroute.store.places import place_of
from jaxroute.store.runs import Checkpoint, Runs

# Bytes of the curves of a block, where they are not kept.
_CURVES = 1 << 30
# Runs of a block of a GPU at most, where a run may stop early.
_LOOK = 1 << 17


@checks.suggest_keywords
def simulate(
    env: EnvironmentLike,
    policies: Policies,
    *,
    horizon: int,
    seeds: int | Sequence[int],
    root_seed: int = 0,
    num_instances: int | None = None,
    record: Sequence[str] | None = None,
    record_every: int | None = None,
    probes: Mapping[str, Probe] | None = None,
    keep: str = "runs",
    until_stderr: Mapping[str, float] | None = None,
    out: str | os.PathLike[str] | Store | None = None,
    execution: Execution | None = None,
    progress: bool = True,
    callback: Callback | None = None,
) -> xr.Dataset:
    """Simulates every policy on every setting for every seed, and returns the recorded curves.

    Args:
      env: an environment, a `Grid` of environments, or a sampler `key -> Environment` (a random instance per run, or `num_instances` of them
        that all seeds share).
      policies: dict of name to policy; an entry may be a `Grid`, or a function `env -> policy` (an oracle), which follows a swept environment.
        A single policy is named after its class.
      horizon: `T`, counted rounds.
      seeds: number of runs (0, 1, ...), or a list of their numbers. Run `i` is the same in any batch, on any number of devices, resumed or not.
      root_seed: seed of all randomness; another one gives other random draws to every run.
      num_instances: number of random instances if `env` is a sampler.
      record: names of metrics to record (default: those that environment and policy mark as default); `"info.<name>"` records the running mean
        of an entry of a policy's Info.
      record_every: rounds between two points of a curve (default: that of an existing store, otherwise 100 points).
      probes: functions `(env, policy, env_state, policy_state, t) -> array or dict` by name, evaluated at record times.
      keep: "runs", every run's curves, or "moments", statistics over the runs: count, mean, variance, minimum, maximum and histogram of each
        metric at each recorded time, and of the differences between policies, run by run. Memory and store then do not grow with the number
        of runs; `metrics` and `plot` answer the same questions, except those about single runs.
      until_stderr: standard errors by metric, for example `{"regret": 0.5}`: the simulation stops when those of all policies and settings at the
        horizon are smaller; `seeds` is then the largest number of runs. They are compared after 256 runs, and each time the number has doubled.
      out: folder or URL of the stored result, or a `Store`, which has more options. Finished blocks are written every few seconds. The same call
        resumes; one with more seeds, policies, values along an axis or a smaller `until_stderr` simulates only what is missing. Other
        settings are stored beside the earlier ones, and several processes may write at the same time. The same simulation by changed code of
        a policy, the environment or a probe is refused.
      execution: back end, devices, block and share of this process (default: `Execution()`, which chooses).
      progress: shows a progress bar, or a line now and then where standard error is a file.
      callback: function that is called with a `Progress` after each block. If it returns True the simulation ends, and the finished part is
        returned, with the attribute `stopped`; the same call resumes from the store.

    Returns:
      An `xarray.Dataset` with dimensions `(policy, settings..., seed, time, ...)`, see `jaxroute.store.runs`; of moments without seeds, see
      `jaxroute.store.moments`. Attributes that are lists or dicts are JSON text. Runs that other processes have not simulated yet are NaN, and
      the attribute `missing` says how many.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or the result does not fit into memory.
      StoreMismatchError: `out` holds the same simulation by other code.
      ImportError: `out` is a URL, and the packages for URLs are not installed.
      OSError: the store cannot be written.
      MemoryError: not even the smallest block fits into memory.
    """
    checks.boolean("progress", progress, "; a function is given as callback" if callable(progress) else "")
    execution = read_execution(execution)
    follower = Follower(callback)
    inputs.refuse_tracing(env, policies)
    options = read_store(out)
    if execution.share is not None and options is None:
        raise ValueError("share needs out: the store is where processes meet")
    if until_stderr is not None and isinstance(execution.share, tuple):
        raise ValueError(
            "until_stderr needs share='join' where processes share the work: a part cannot tell how many seeds there will be"
        )
    devices = execution.device_list()
    store = None if options is None else PackStore(place_of(options.path), provenance.made_with(devices[0]))
    with contextlib.nullcontext() if store is None else contextlib.closing(store):
        notes = None if store is None else results.Notes(store)
        before = {} if notes is None else notes.settings()
        if record_every is None and "record_every" in before:
            record_every = int(before["record_every"])
        asked = read_inputs(
            env,
            policies,
            horizon=horizon,
            seeds=seeds,
            record_every=record_every,
            record=record,
            probes=probes,
            num_instances=num_instances,
            root_seed=root_seed,
            block=execution.block,
            backend=execution.backend,
            quick=execution.compile == "quick",
            arithmetic=execution.arithmetic,
            platform=devices[0].platform,
            keep=keep,
            until_stderr=until_stderr,
            keep_states=options is not None and options.keep_states,
            accept_changed_code=options is not None and options.accept_changed_code,
            description={} if options is None else options.description,
        )
        return _simulate(asked, devices, store, notes, execution, progress, follower)


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
    asked: Inputs,
    devices: Sequence[Any],
    store: PackStore | None,
    notes: results.Notes | None,
    execution: Execution,
    progress: bool,
    follower: Follower,
) -> xr.Dataset:
    """The story of a run."""
    effort = Effort()
    request = asked.request(store is not None)
    new = store is None or notes is None or not _prepared(asked, store, notes, request)
    if store is not None and new:
        store.check()
    layout = Layout(**_cut(asked, devices))
    blocks = _blocks(asked, layout, devices)
    with compiler() as pool:
        with effort.compiling():
            shapes = _traced(asked, blocks, pool if new else None)  # Of a store, what is to be played is not known yet.
        variables = recording.variables(asked.records, shapes)
        recording.check_names(variables, asked.spec.zero_flows, asked.axes, asked.keep == "moments")
        request = replace(
            request,
            variables=variables,
            recorded={name: recording.names_of(shapes[name]) for name in request.policies},
        )
        result = results.collect(request, store)
        work = Work(result, layout, asked.static_axes, execution.share, store, _horizons(asked, notes))
        units = _left(asked, blocks, result, work)
        if store is not None and units and not new:
            store.check()
        _say_size(asked, units, progress)
        with effort.compiling():
            labels = dict.fromkeys(asked.part(t.policy, t.tile).label for unit in units for t in unit.tasks if not t.begun)
            compile_blocks({label: blocks[label] for label in labels}, pool, progress)
    call = ""
    if store is not None and notes is not None and (units or not notes.is_latest(request)):
        call = results.begin(store, request)
    try:
        ending = _play(asked, layout, blocks, result, work, effort, progress, follower)
    except KeyboardInterrupt as error:
        kept = (
            "what is finished is kept, and the same call goes on from there"
            if store
            else "nothing is kept, as no folder (out) was given"
        )
        error.add_note(f"stopped; {kept}")
        raise
    finally:
        if isinstance(result, Statistics):
            result.write()
    if store is not None and result.missing(ending.seeds) and not follower.stopped:  # Others may have simulated it.
        store.flush()
        result.fill()
    missing = "" if follower.stopped else result.missing(ending.seeds)
    whole = not follower.stopped and not missing
    data = result.so_far() if follower.stopped else result.dataset(ending.seeds)
    if isinstance(result, Statistics):
        result.write()
    report = _report(asked, devices, blocks, data if whole else None, effort.measured(), ending)
    report["layout"] = asdict(layout)
    if store is not None and call:
        results.end(store, request, call, report, whole)
        with contextlib.suppress(OSError):  # The result is stored; a later call tidies.
            store.tidy()
    reports = [report] if store is None else results.Notes(store).reports(request)
    made_with = {} if store is None else results.made_with(store, result.families)
    state = {"stopped": {"blocks": follower.done, "of": follower.total}} if follower.stopped else {}
    state |= {"missing": missing} if missing else {}
    state["last_call"] = {name: report[name] if call or store is None else 0 for name in results.ADDED}
    data.attrs = encoded({"settings": request.settings, **results.summed(reports), **made_with, **state})
    if missing and store is not None:
        checks.warn(
            f"the result in {str(store.place)!r} is not complete: {missing}; other processes have not simulated their share yet",
            PartWarning,
        )
    if whole:
        _warn_invalid(data)
        _warn_probes(data, asked, blocks)
        _warn_goals(asked, ending)
    PROGRAMS.trim()
    return data


def _prepared(asked: Inputs, store: PackStore, notes: results.Notes, request: Request) -> bool:
    """Checks a store before anything is computed; returns whether some of the cells may be there.

    Raises:
      StoreMismatchError: it holds the same simulation by other code.
    """
    kinds = (cells.CURVES, cells.STATISTICS) if request.keep == "moments" else (cells.CURVES,)
    families = [family for policy in request.policies for kind in kinds for family in request.families(kind, policy)]
    results.check_code(store, request, families, asked.accept_changed_code)
    if store.damaged:
        checks.warn(
            f"{len(store.damaged)} files in {str(store.place)!r} are damaged ({results.damage_of(store)}); what was in them is simulated again"
        )
    own, other = dict(store.session), results.sessions(store, families)
    for there in other:
        different = [
            f"{name} {there.get(name)!r} there and {value!r} here" for name, value in own.items() if there.get(name) != value
        ]
        if different:
            checks.warn(
                f"{str(store.place)!r} was begun with something else: {', '.join(different)}; what is simulated now may differ from it in the last "
                "bits. Each cell says with what it was made"
            )
            break
    return bool(other) or bool(notes.requests)


def _horizons(asked: Inputs, notes: results.Notes | None) -> Callable[[str], list[int]]:
    """Rounds from which runs of a policy may be continued, the most first."""
    if notes is None:
        return lambda policy: []
    there = {one.horizon for one in notes.requests.values()}
    found = sorted((h for h in there if h < asked.horizon and h % asked.record_every == 0), reverse=True)
    knowing = {horizon: asked.knowing_horizon(horizon) for horizon in found}
    return lambda policy: [horizon for horizon in found if policy not in knowing[horizon]]


@dataclass
class _Ending:
    """How a run ended.

    seeds: of which the result consists.
    met: whether the goals of `until_stderr` were reached.
    errors: largest standard errors by metric, as far as they are known.
    """

    seeds: int = 0
    met: bool = False
    errors: dict[str, float | None] = field(default_factory=dict)


def _cut(asked: Inputs, devices: Sequence[Any]) -> dict[str, Any]:
    """The layout of a run."""
    static = asked.static_axes
    examples = {part.label: part.example for part in asked.every_part}
    numbers = {part.label: recording.numbers_per_record(asked.records[part.policy], asked.spec) for part in asked.every_part}
    alone = _alone(asked, devices)
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
    return asdict(
        Layout.choose(
            asked.axes,
            asked.shared,
            len(asked.seeds),
            asked.block,
            most,
            devices,
            held,
            bool(alone),
            static,
            [at_once for _, at_once in needs.values()],
        )
    )


def _device_needs(asked: Inputs, devices: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Bytes of scratch memory of a run, and runs that the devices hold at the same time, of each part that has a kernel."""
    smallest = Layout(memory.LANE_MULTIPLE * len(devices), dict.fromkeys(asked.axes, 1))
    blocks = _blocks(asked, smallest, devices, quiet=True)
    _traced(asked, blocks, None)  # All kernels are compiled at the same time.
    needs = {label: block.needs() for label, block in blocks.items()}
    return {label: found for label, found in needs.items() if found is not None}


def _alone(asked: Inputs, devices: Sequence[Any]) -> set[str]:
    """Labels of the parts whose runs are played one by one: their rounds are long by themselves, and there is but a CPU, without kernels."""
    if len(devices) > 1 or devices[0].platform != "cpu":
        return set()
    by_scan = (part for part in asked.every_part if asked.quick or asked.backend_of(part) == "scan")
    players = {part.label: part.example for part in by_scan}
    return {label for label, (env, policy) in players.items() if is_expensive(policy, spec_for(env, asked.horizon))}


def _blocks(asked: Inputs, layout: Layout, devices: Sequence[Any], quiet: bool = False) -> dict[str, Block]:
    """Blocks by the label of each part. `quiet`: without a warning about a policy that has no kernel."""
    alone = _alone(asked, devices)
    return {
        part.label: Block(
            f"policy {part.label!r} on {type(part.example[0]).__name__}",
            part.env,
            part.settings,
            asked.records[part.policy],
            asked.horizon,
            asked.spec.free_rounds,
            asked.root_seed,
            layout,
            devices,
            "scan" if part.label in alone else asked.backend_of(part),
            asked.quick and part.label not in alone,  # Long rounds would take longer than compiling saves.
            asked.keep_states,
            stays_on_device(asked.keep, asked.platform),
            part.label in alone,
            quiet=quiet or asked.quick or (asked.chosen and asked.platform == "cpu"),
            reason=asked.reason,
            arithmetic=asked.arithmetic,
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


def _play(
    asked: Inputs,
    layout: Layout,
    blocks: Mapping[str, Block],
    result: Runs | Statistics,
    work: Work,
    effort: Effort,
    progress: bool,
    follower: Follower,
) -> _Ending:
    """Simulates what is missing, up to the look at which the goals are reached."""
    ending = _Ending()

    def block_of(task: Task) -> Block:
        return blocks[asked.part(task.policy, task.tile).label]

    def play(task: Task, begun: Checkpoint | None) -> Played:
        return play_task(asked, layout, block_of(task), task, effort, begun)

    def interrupt(stopped: bool) -> None:
        for block in blocks.values():
            block.ran.interrupt(stopped)

    follower.total = sum(len(unit.tasks) for unit in work.units(len(asked.seeds)))
    finished = 0
    with bar(follower.total, progress) as shown:

        def waiting(step: Step) -> None:
            """Shows the share of a block that a GPU has simulated."""
            shown.update(round(finished + 0.99 * block_of(step.task).ran.done, 2) - shown.n)

        for goal in _looks(asked, result):
            steps = contextlib.closing(work.steps(goal, follower.callback is not None))
            with steps as some, contextlib.closing(played_ahead(some, play, waiting, interrupt)) as played:
                for step, curves, kept in played:
                    task = step.task
                    shown.set_description(task.policy)
                    step.unit.take(task, curves, kept)
                    finished += 1
                    shown.update(finished - shown.n)
                    if follower.tell(
                        result.so_far,
                        policy=task.policy,
                        setting={axis: asked.axes[axis][places].tolist() for axis, places in task.tile.items()},
                        seeds=int(step.unit.seeds.max()) + 1,
                    ):
                        return ending
            ending.seeds = goal
            if asked.goals:
                ending.met, ending.errors = _reached(asked, blocks, result, goal)
            if ending.met:
                break
    return ending


def _looks(asked: Inputs, result: Runs | Statistics) -> list[int]:
    """Numbers of seeds after which the run may end."""
    return stopping.looks(result.request.cut) if asked.goals else [len(asked.seeds)]


def _reached(
    asked: Inputs, blocks: Mapping[str, Block], result: Runs | Statistics, seeds: int
) -> tuple[bool, dict[str, float | None]]:
    """Whether the first seeds reach the goals, and the largest standard errors."""
    measured = {name: blocks[parts[0].label].shapes() for name, parts in asked.parts.items()}
    owners = {metric: [name for name, shapes in measured.items() if metric in shapes] for metric in asked.goals}
    return stopping.reached(asked.goals, {metric: result.errors(metric, owners[metric], seeds) for metric in asked.goals})


def _left(asked: Inputs, blocks: Mapping[str, Block], result: Runs | Statistics, work: Work) -> list[Unit]:
    """Units that are to be simulated, at most; nothing if what is there reaches the goals."""
    for seeds in _looks(asked, result):
        if work.units(seeds):
            return work.units(len(asked.seeds))
        if asked.goals and _reached(asked, blocks, result, seeds)[0]:
            break
    return []


def _say_size(asked: Inputs, units: Sequence[Unit], aloud: bool) -> None:
    """Says how much the states that are to be kept will take."""
    if not (asked.keep_states and aloud and units):
        return
    held = {part.label: memory.bytes_of_run(*part.example) for part in asked.every_part}
    tasks = [task for unit in units for task in unit.tasks]
    runs = [len(task.seeds) * math.prod(len(places) for places in task.tile.values()) for task in tasks]
    size = sum(held[asked.part(task.policy, task.tile).label] * number for task, number in zip(tasks, runs, strict=True))
    tqdm.write(f"the states at the end, which are kept, take up to {size / 1e6:,.1f} MB", file=sys.stderr)


def _report(
    asked: Inputs,
    devices: Sequence[Any],
    blocks: Mapping[str, Block],
    data: xr.Dataset | None,
    measured: Mapping[str, float],
    ending: _Ending,
) -> dict[str, Any]:
    """Attributes of the result: where and how it was made, and what went wrong, if it is whole (`data`)."""
    about: dict[str, Any] = {
        "backend": {name: block.backend for name, block in blocks.items()},
        "arithmetic": asked.arithmetic,
        **({"inexact": asked.inexact} if asked.inexact else {}),
        "fell_back": {name: block.ran.reason for name, block in blocks.items() if block.ran.reason},
        **measured,
    }
    if data is not None and (invalid := diagnose.first_bad_rounds(data, asked, devices[0])):
        about["invalid"] = invalid
    if asked.goals and ending.seeds:
        about["seeds_played"] = ending.seeds
        about["until_stderr"] = {"goal": asked.goals, "reached": ending.met, "stderr": ending.errors}
    return {**provenance.provenance(devices, **about), **asked.description}


def _warn_invalid(data: xr.Dataset) -> None:
    if "invalid" in data:
        invalid, runs, where = int(data["invalid"].sum()), int(data["runs"].sum()), "'invalid'"
    else:
        invalid, runs, where = int((~data["valid"]).sum()), data["valid"].size, "'valid'"
    if invalid:
        firsts = "".join(f"; first bad value of {text}" for text in map(diagnose.text, decoded(data.attrs)["invalid"]))
        checks.warn(
            f"{invalid} of {runs} runs are invalid (something is NaN, or a flow is not finite, or must be zero and is not): "
            f"see the variable {where} and the counters beside it{firsts}"
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
                counts, valid = data[f"{name}_count"].sel(policy=policy), (data["runs"] - data["invalid"]).sel(policy=policy)
                number = int((valid - counts.min([d for d in counts.dims if d not in valid.dims])).sum())
            if number:
                found[name] = found.get(name, 0) + number
    for name, number in found.items():
        checks.warn(f"the probe {name!r} is NaN at some time in {number} runs that are valid")


def _warn_goals(asked: Inputs, ending: _Ending) -> None:
    if asked.goals and not ending.met:
        checks.warn(
            f"the standard errors after {ending.seeds} seeds are not below the goal, until_stderr={asked.goals}: the largest are "
            f"{ending.errors}"
        )
