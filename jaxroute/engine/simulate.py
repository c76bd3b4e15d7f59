"""`simulate`, the main function of jaxroute: all steps of a simulation, from checked arguments to the labelled result."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import xarray as xr

from jaxroute.core import checks, provenance
from jaxroute.core.attributes import encoded
from jaxroute.core.protocols import Probe
from jaxroute.engine import report
from jaxroute.engine.compiling import PROGRAMS
from jaxroute.engine.components import read_components, refuse_tracing
from jaxroute.engine.execution import Execution, PartWarning, Store, read_execution, resolve
from jaxroute.engine.grid import EnvironmentLike, Policies, PolicyLike, env_settings, example_of, policy_settings
from jaxroute.engine.layout import choose_layout
from jaxroute.engine.programs import Block, compile_blocks, compiler, device_needs, trace_blocks
from jaxroute.engine.progress import Callback, Monitor, print_line
from jaxroute.engine.recording import read_recording
from jaxroute.engine.request import Setup, number_of_seeds, read_sampling, request_of
from jaxroute.engine.rounds import bytes_of_run
from jaxroute.engine.running import Effort, run_schedule
from jaxroute.engine.schedule import Call, Schedule
from jaxroute.store import results
from jaxroute.store.moments import Statistics
from jaxroute.store.packs import PackStore
from jaxroute.store.places import place_of


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
    keep: Literal["runs", "moments"] = "runs",
    until_stderr: Mapping[str, float] | None = None,
    out: str | os.PathLike[str] | Store | None = None,
    execution: Execution | None = None,
    progress: bool = True,
    callback: Callback | None = None,
) -> xr.Dataset:
    """Simulates every policy on every setting for every seed, and returns the recorded curves.

    Args:
      env: an environment, a `Grid` of environments, or a sampler `key -> Environment`: each run then draws an instance, or all seeds share
        `num_instances` instances.
      policies: dict of name to policy; an entry may be a `Grid`, or a function `env -> policy` (an oracle), which builds one for each
        environment. A single policy is named after its class.
      horizon: `T`, number of counted rounds.
      seeds: number of runs, with the seeds 0, 1, ..., or a list of seeds. A seed is the same run in any batch, on any devices, resumed or not.
      root_seed: seed of all randomness; another one gives other random draws to every run.
      num_instances: number of random instances if `env` is a sampler.
      record: names of metrics to record (default: those that environment and policy mark as default); `"info.<name>"` records the running mean
        of an entry of a policy's Info.
      record_every: rounds between two points of a curve (default: that of an existing store, otherwise 100 points).
      probes: functions `(env, policy, env_state, policy_state, t) -> array or dict` by name, evaluated at record times.
      keep: "runs", every run's curves, or "moments", statistics over the runs: count, mean, variance, minimum, maximum and histogram of each
        metric at each recorded time, and of the differences between policies, run by run. Memory and store then do not grow with the number
        of runs; `metrics` and `plot` answer the same questions, except those about single runs.
      until_stderr: a standard error for each metric, for example `{"regret": 0.5}`: the simulation stops when the standard errors of all policies
        and settings at the horizon are smaller; `seeds` is then the largest number of runs. They are compared after 256, 512, 1024, ... runs.
      out: folder or URL of the stored result, or a `Store`, which has more options. Finished blocks are written every few seconds. The same call
        resumes; one with more seeds, policies, values along an axis or a smaller `until_stderr` simulates only what is missing. A folder can hold the
        results of several simulations, and several processes may write at the same time. If the code of a policy, the environment or a probe has
        changed since the result was stored, the call raises `StoreMismatchError` (see `Store.accept_changed_code`).
      execution: back end, devices, block and share of this process (default: `Execution()`, which chooses).
      progress: whether to show a progress bar, or a line now and then if standard error is a file.
      callback: function that is called with a `Progress` after each block. If it returns True the simulation ends, and the finished part is
        returned, with the attribute `stopped`; the same call resumes from the store.

    Returns:
      An `xarray.Dataset` with dimensions `(policy, settings..., seed, time, ...)`, see `jaxroute.store.runs`; with `keep="moments"` there is no
      `seed`, see `jaxroute.store.moments`. Attributes that are lists or dicts are JSON text. Runs that other processes have not simulated yet are
      NaN, and the attribute `missing` reports how many.

    Raises:
      ValueError: an argument is out of range, a name is unknown, or the result does not fit into memory.
      StoreMismatchError: `out` holds the same simulation by other code.
      ImportError: `out` is a URL, and the packages for URLs are not installed.
      OSError: the store cannot be written.
      MemoryError: not even the smallest block fits into memory.
    """
    checks.boolean("progress", progress, "; a function is given as callback" if callable(progress) else "")
    execution = read_execution(execution)
    monitor = Monitor(callback)
    refuse_tracing(env, policies)
    options = out if out is None or isinstance(out, Store) else Store(out)
    devices = execution.device_list()
    keep_states = options is not None and options.keep_states
    if keep_states and (keep != "runs" or execution.backend == "reference"):
        raise ValueError(
            f"keep_states needs keep='runs' and another backend than 'reference', got keep={keep!r} and backend={execution.backend!r}"
        )
    if execution.share is not None and options is None:
        raise ValueError("share needs out: the store is where processes meet")
    if until_stderr is not None and isinstance(execution.share, tuple):
        raise ValueError(
            "until_stderr needs share='join' where processes share the work: a part cannot tell how many seeds there will be"
        )
    store = None if options is None else PackStore(place_of(options.path), provenance.made_with(devices[0]))
    with contextlib.nullcontext() if store is None else contextlib.closing(store):
        notes = None if store is None else results.CallLog(store)
        if record_every is None and notes is not None:
            record_every = notes.settings().get("record_every")
        horizon = checks.whole("horizon", horizon, maximum=2**31 - 1)
        number = number_of_seeds(seeds)
        components = read_components(env, policies, num_instances, horizon)
        recording = read_recording(components, record, record_every, probes, keep, until_stderr, horizon, number)
        sampling = read_sampling(horizon, seeds, root_seed)
        target = resolve(execution, devices, lambda: bool(components.shared_axes))
        setup = Setup(components, recording, sampling, target, keep_states)
        return _simulate(setup, execution.share, options, store, notes, progress, monitor)


def run_bytes(env: EnvironmentLike, policy: PolicyLike) -> int:
    """Returns the bytes of the state of one run; thousands of runs at once need thousands of times as much.

    Fields of environment and policy, which runs share, are not counted. `env` may also be a sampler, and `policy` a function `env -> policy`.
    """
    return bytes_of_run(*example_of("policy", env_settings(env), policy_settings("policy", policy)))


def _simulate(
    setup: Setup,
    share: str | tuple[int, int] | None,
    options: Store | None,
    store: PackStore | None,
    notes: results.CallLog | None,
    progress: bool,
    monitor: Monitor,
) -> xr.Dataset:
    """Simulates the runs in this process's `share` that `store` lacks. `store`, its `options` and its log of calls `notes` are None without `out`."""
    components, recording, effort = setup.components, setup.recording, Effort()
    request = request_of(setup, store is not None)
    stored = [] if notes is None else [one.horizon for one in notes.requests.values()]
    horizons = components.resumable(stored, setup.sampling.horizon, recording.every)
    new = store is None or options is None or not results.prepare(store, request, options.accept_changed_code)
    if store is not None and new:
        store.check()
    layout = choose_layout(setup, device_needs(setup))
    blocks = {one.label: Block(one, setup, layout) for one in components.variants}

    def block_of(call: Call) -> Block:
        return blocks[components.variant(call.policy, call.tile).label]

    with compiler() as pool:
        with effort.compiling():
            shapes = trace_blocks(blocks, pool if new else None)  # Else missing runs alone are compiled below.
        request = recording.completed(request, shapes)
        result = results.RESULTS[request.keep](request, store)
        schedule = Schedule(result, layout, components.static_axes, share, horizons)
        calls = [call for batch in schedule.remaining(recording.goals) for call in batch.calls]
        if store is not None and calls and not new:
            store.check()
        if setup.keep_states and progress and calls:
            runs = [len(call.seeds) * math.prod(map(len, call.tile.values())) for call in calls]
            size = sum(setup.state_bytes[block_of(call).variant.label] * n for call, n in zip(calls, runs, strict=True))
            print_line(f"the states at the end, which are stored, take up to {size / 1e6:,.1f} MB")
        with effort.compiling():
            new_blocks = {block_of(call).variant.label: block_of(call) for call in calls if not call.since}
            compile_blocks(new_blocks, pool, progress)
    name = ""
    if store is not None and notes is not None and (calls or not notes.is_latest(request)):
        name = results.begin(store, request)
    ending = run_schedule(schedule, recording.goals, blocks, block_of, effort, progress, monitor)
    if store is not None and result.missing(ending.seeds) and not monitor.stopped:  # Others may have stored the rest.
        store.flush()
        result.fill()
    missing = "" if monitor.stopped else result.missing(ending.seeds)
    data = result.so_far() if monitor.stopped else result.dataset(ending.seeds)
    whole, invalid = not monitor.stopped and not missing, list[dict[str, Any]]()
    if isinstance(result, Statistics):
        result.write()
    measured = {**asdict(effort), "layout": asdict(layout)}
    attributes = report.attributes(setup, blocks, measured, ending)
    if whole:
        invalid = report.first_bad_rounds(data, setup)
        attributes |= {"invalid": invalid} if invalid else {}
    attributes |= {} if options is None else options.description
    if store is not None and name:
        results.end(store, request, name, attributes, whole)
        with contextlib.suppress(OSError):  # The result is stored; a later call can tidy up.
            store.tidy()
    reports = [attributes] if store is None else results.CallLog(store).reports(request)
    made_with = {} if store is None else results.made_with(store, result.families)
    state: dict[str, Any] = {"stopped": {"blocks": monitor.done, "of": monitor.total}} if monitor.stopped else {}
    state |= {"missing": missing} if missing else {}
    state["last_call"] = {one: attributes[one] if name or store is None else 0 for one in results.ADDED}
    data.attrs = encoded({"settings": request.settings, **results.summed(reports), **made_with, **state})
    if missing and store is not None:
        checks.warn(
            f"the result in {str(store.place)!r} is not complete: {missing}; other processes have not simulated their share yet",
            PartWarning,
        )
    if whole:
        report.warn(data, request.recorded, recording, ending, invalid)
    PROGRAMS.trim()
    return data
