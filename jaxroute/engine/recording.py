"""Chooses and checks the quantities that a simulation records: metrics, entries of a policy's Info, and probes, with their shapes and names."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks, draws
from jaxroute.core.protocols import AnyEnvironment, AnyPolicy, Probe, first_state, metrics_of, optional
from jaxroute.core.types import Metric, Spec
from jaxroute.engine.components import Components
from jaxroute.engine.precision import widened
from jaxroute.engine.rounds import NAN_ROUNDS, NAN_STATES, Record, explained, once, spec_for, traced_once
from jaxroute.store.cells import Request
from jaxroute.store.runs import check_runs

# Names of a result that no metric may have.
RESERVED = ("policy", "baseline", "seed", "time", "model", "valid", "runs", "invalid", "first_invalid")

# Names that all formats of netCDF allow.
_LEGAL = re.compile(r"\w([^/'\x00-\x1f\x7f]*[^/' \x00-\x1f\x7f])?")
# Statistics of a metric that are stored instead of its runs.
_STATISTICS = ("count", "mean", "variance", "minimum", "maximum")

# Shapes of the values of a round by kind (`flows`, `info`, `env_gauges`, `policy_gauges`) and name.
Shapes = dict[str, dict[str, list[int]]]


@dataclass(frozen=True)
class Recording:
    """Quantities that a simulation records, and when it records them.

    Attributes:
      records: recorded quantities, a `Record` for each policy, by name.
      times: `[records]` counted rounds after which quantities are recorded; the environment's `free_rounds` at the start do not count.
      every: rounds between two records.
      keep: "runs" to store the curves of every run, "moments" to store statistics over runs.
      goals: for each metric, the standard error at which the simulation stops; empty to simulate all seeds.
      numbers: for each policy, how many numbers one run writes at a record time.
    """

    records: dict[str, Record]
    times: np.ndarray
    every: int
    keep: str
    goals: dict[str, float]
    numbers: dict[str, int]

    def completed(self, request: Request, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Request:
        """Returns a copy of `request` with the recorded quantities; `shapes` has their shapes in one run at one time, by policy and name."""
        recorded: dict[str, list[str]] = {}
        found: dict[str, tuple[Metric, tuple[int, ...]]] = {}
        for policy, record in self.records.items():
            own, metrics = shapes[policy], {m.name: m for m in record.metrics}
            # Counters that serve as checks (of NaN, and of flows that must be zero) are no quantities of the result.
            recorded[policy] = [n for n in own if not n.startswith("zero/") and n not in (NAN_ROUNDS, NAN_STATES)]
            for name in dict.fromkeys([*metrics, *recorded[policy]]):
                probe = Metric(name, name, "", "gauge", tuple(f"{name}_{i}" for i in range(len(own[name]))))
                found.setdefault(name, (metrics.get(name, probe), own[name]))
        check_names(found, request.zero_flows, request.axes, self.keep == "moments")
        return replace(request, variables=found, recorded=recorded)


def read_recording(
    components: Components,
    names: Sequence[str] | None,
    every: int | None,
    probes: Mapping[str, Probe] | None,
    keep: str,
    until_stderr: Mapping[str, float] | None,
    horizon: int,
    num_seeds: int,
) -> Recording:
    """Checks the arguments of `simulate` that choose the recorded quantities, and converts them to a `Recording`.

    Args:
      components: environment and policies.
      names: argument `record` of `simulate`; None for the default metrics of environment and policies.
      every: argument `record_every`.
      probes, keep, until_stderr, horizon: arguments of `simulate` with these names.
      num_seeds: number of seeds, whose runs must fit into memory.

    Raises:
      ValueError: an argument is out of range, a name is unknown or taken, no method returns a declared metric, or a policy does not suit the
        environment.
    """
    checks.one_of("keep", keep, ("runs", "moments"))
    every = min(checks.whole("record_every", max(1, horizon // 100) if every is None else every), horizon)
    examples = {one.label: one.example for one in components.variants}
    made = make_records(examples, names, every, {} if probes is None else probes)
    records: dict[str, Record] = {}
    for one in components.variants:
        if records.setdefault(one.policy, made[one.label]) != made[one.label]:
            raise ValueError(
                f"policy {one.policy!r} has other metrics at {one.label} than at its first setting; record those that all have"
            )
    taken = {*RESERVED, *(name for one in records.values() for name in (*one.names, *one.zero_flows, *dict(one.probes)))}
    for axis in components.axes:
        if axis in taken:
            raise ValueError(f"a grid axis may not be called {axis!r}: the result has a dimension or variable of that name")
    times = np.unique(np.append(np.arange(every, horizon + 1, every), horizon))
    spec = components.spec
    dims = {"model": spec.num_models}
    numbers = {
        policy: sum(math.prod(dims.get(dim, 1) for dim in metric.dims) for metric in one.metrics) + len(one.zero_flows)
        for policy, one in records.items()
    }
    if keep == "runs":
        settings = len(records) * math.prod(len(values) for values in components.axes.values())
        check_runs((max(numbers.values()) - len(spec.zero_flows)) * len(times) * settings, num_seeds)
    goals: dict[str, float] = {}
    if until_stderr is not None:
        if not isinstance(until_stderr, Mapping) or not until_stderr:
            raise ValueError(
                f"until_stderr must be a dict of metric and standard error, as {{'regret': 0.5}}, got {checks.show(until_stderr)}"
            )
        for name, goal in until_stderr.items():
            checks.one_of("until_stderr", name, list(dict.fromkeys(n for one in records.values() for n in one.names)))
            goals[name] = float(checks.positive(f"until_stderr[{name!r}]", goal, ()))
    return Recording(records, times, every, keep, goals, numbers)


def make_records(
    examples: Mapping[str, tuple[AnyEnvironment, AnyPolicy]],
    names: Sequence[str] | None,
    every: int,
    probes: Mapping[str, Probe],
) -> dict[str, Record]:
    """Checks the metrics `names` (None: the defaults) and `probes`. Returns for each of `examples`, by label, their `Record` every `every` rounds."""
    spec = next(iter(examples.values()))[0].spec
    declared = {name: metrics_of(policy) for name, (_, policy) in examples.items()}
    everything = {m.name: m for m in (*spec.metrics, *(m for metrics in declared.values() for m in metrics))}
    measured = {name: shapes_of_round(name, env, policy) for name, (env, policy) in examples.items()}
    _check_metrics(spec, declared, measured)
    infos = {name: shapes["info"] for name, shapes in measured.items()}
    if names is None:
        chosen = [m.name for m in everything.values() if m.default]
    elif not isinstance(names, Sequence):
        raise ValueError(f"record must be a list of names, got {checks.show(names)}")
    else:
        chosen = [names] if isinstance(names, str) else list(names)
        possible = [*sorted(everything), *sorted({f"info.{entry}" for shapes in infos.values() for entry in shapes})]
        for name in chosen:
            checks.one_of("record", name, possible)
    if not isinstance(probes, Mapping):
        raise ValueError(f"probes must be a dict of name to function, got {checks.show(probes)}")
    for name, probe in probes.items():
        if not callable(probe):
            raise ValueError(f"probes[{name!r}] must be a function, got {checks.show(probe)}")
        checks.takes(f"probes[{name!r}]", probe, "env", "policy", "env_state", "policy_state", "t")
        if name in {*everything, *RESERVED, *spec.zero_flows}:
            raise ValueError(f"probes must not have the name of a metric, got {name!r}")

    def pick(metrics: Sequence[Metric], gauge: bool) -> tuple[Metric, ...]:
        return tuple(m for m in metrics if m.name in chosen and (m.kind == "gauge") == gauge)

    def entries(shapes: Mapping[str, Sequence[int]]) -> tuple[Metric, ...]:
        selected = [n for n in chosen if n.startswith("info.") and n.removeprefix("info.") in shapes]
        ranks = {n: len(shapes[n.removeprefix("info.")]) for n in selected}
        return tuple(
            Metric(n, n.removeprefix("info."), "", "average", tuple(f"{n}_{i}" for i in range(ranks[n]))) for n in selected
        )

    return {
        name: Record(
            every=every,
            flows=pick(spec.metrics, False),
            info=pick(metrics, False) + entries(infos[name]),
            env_gauges=pick(spec.metrics, True),
            policy_gauges=pick(metrics, True),
            zero_flows=spec.zero_flows,
            probes=tuple(probes.items()),
        )
        for name, metrics in declared.items()
    }


def shapes_of_round(name: str, env: AnyEnvironment, policy: AnyPolicy) -> Shapes:
    """Traces one round of `policy` in `env`. Returns the shapes of flows, gauges and Info by kind and name. `name`: the policy's name in errors."""

    def first_round(env: AnyEnvironment, policy: AnyPolicy, key: jax.Array) -> dict[str, Mapping[str, Any]]:
        t, env_state = jnp.int32(0), once("init", env, key)
        policy_state = once(first_state, env, policy, key, spec=spec_for(env, 1))
        obs = once("observe", env, key, env_state, t)
        action, info = once("act", policy, key, policy_state, obs, t)
        env_state, _, flows = once("step", env, key, env_state, action, t)
        return {
            "flows": flows,
            "info": info if isinstance(info, dict) else {},
            "env_gauges": optional(env, "gauges", env_state, default={}),
            "policy_gauges": optional(policy, "gauges", policy_state, default={}),
        }

    def trace(env: AnyEnvironment, policy: AnyPolicy) -> Shapes:
        shapes = jax.eval_shape(widened(first_round), env, policy, draws.key(0))
        return {kind: {entry: list(value.shape) for entry, value in entries.items()} for kind, entries in shapes.items()}

    with explained(name, env, policy):
        return traced_once("measured", trace, env, policy)


def _check_metrics(spec: Spec, declared: Mapping[str, tuple[Metric, ...]], measured: Mapping[str, Shapes]) -> None:
    """Raises `ValueError` if two declared metrics clash in name, or if one is missing in `measured` (shapes by policy) or has another rank there."""
    of_env = Counter(m.name for m in spec.metrics)
    if twice := [name for name, number in of_env.items() if number > 1]:
        raise ValueError(f"the environment declares the metric {twice[0]!r} twice: give one of them another name")
    meanings = {m.name: m for m in spec.metrics}
    of_env_kinds = {False: ("flows", "flows of step"), True: ("env_gauges", "gauges")}
    of_policy_kinds = {False: ("info", "Info of act"), True: ("policy_gauges", "gauges")}
    for name, metrics in declared.items():
        for metric in metrics:
            if metric.name in of_env or meanings.setdefault(metric.name, metric) != metric:
                raise ValueError(
                    f"policy {name!r} declares the metric {metric.name!r}, which means something else elsewhere"
                )
        for owned, kinds in ((spec.metrics, of_env_kinds), (metrics, of_policy_kinds)):
            for metric in owned:
                kind, place = kinds[metric.kind == "gauge"]
                shapes = measured[name][kind]
                if metric.name not in shapes:
                    raise ValueError(
                        f"the metric {metric.name!r} is declared, but the {place} do not have it (policy {name!r})"
                    )
                if len(shapes[metric.name]) != len(metric.dims):
                    raise ValueError(
                        f"the metric {metric.name!r} must have the dimensions {metric.dims}, got shape {tuple(shapes[metric.name])} in the {place}"
                    )


def check_names(names: Iterable[str], zero_flows: Sequence[str], axes: Iterable[str], statistics: bool) -> None:
    """Raises `ValueError` if a file cannot hold one of these names. With `statistics`, the names of statistics made from them must also differ."""
    names, axes = list(names), list(axes)
    for name in (*names, *zero_flows, *axes):
        if not _LEGAL.fullmatch(name):
            raise ValueError(
                "names of metrics, probes and axes must begin with a letter, a digit or '_', have neither '/' nor \"'\", "
                f"and end with no space, as files demand; got {name!r}"
            )
    if statistics:
        parts = [*_STATISTICS, *(f"difference_{part}" for part in _STATISTICS), "histogram", "bin"]
        made = [*RESERVED, *axes, *(f"{n}_{part}" for n in names for part in parts), *(f"{n}_runs" for n in zero_flows)]
        if twice := [name for name, number in Counter(made).items() if number > 1]:
            raise ValueError(
                f"two variables of the result would be called {twice[0]!r}: give a metric or an axis another name"
            )
