"""Experiments as data: environments, policies, seeds and horizons of a figure or table, and the claims of the paper about it."""

import dataclasses
import functools
import inspect
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from jaxroute import metrics
from jaxroute.core import checks
from jaxroute.core.attributes import decoded
from jaxroute.core.protocols import is_environment
from jaxroute.engine.execution import PartWarning, Store
from jaxroute.engine.grid import Grid
from jaxroute.engine.simulate import simulate
from jaxroute.experiments.verdicts import Stated, Verdict, judge
from jaxroute.store import results
from jaxroute.store.places import Folder, is_url

Results = Mapping[str, xr.Dataset]
# Settings that choose the table of an environment.
_OF_TABLE = ("data", "embeddings", "costs", "models", "dim")


@dataclass(frozen=True)
class Claim:
    """Statement of a paper about the results of an experiment.

    Attributes:
      id: short name.
      text: the claim in words.
      source: place in the paper.
      measure: function of the results by case. It returns a text of measured values, and statements about them; the claim holds if all are true.
    """

    id: str
    text: str
    source: str
    measure: Callable[[Results], tuple[str, Stated]]


@dataclass(frozen=True)
class Case:
    """One simulation of an experiment.

    Attributes:
      environment: environment or sampler, or a function that makes one from `settings` (and `horizon`, if it has that argument).
      policies: policies by name, as for `simulate`, or a function of the environment and (if it has this argument) its `settings` that returns them.
      horizon: number of rounds of a run, after the warm-up of environments that have one.
      name: name of the case and of its folder, if the experiment has several; must not contain numbers that depend on the horizon.
      settings: arguments of `environment`.
      coordinates: values that distinguish the case, for tables.
      record_every, record, probes: as for `simulate`.
      seeds: largest number of seeds of this case.
      one_pass: function of the environment that returns how many rounds serve each row of its table once; replaces `horizon` unless a user sets it.
      rows: function of the environment that returns the number of rows of its table, shown in titles (default: the function `one_pass`).
    """

    environment: Any
    policies: Any
    horizon: int
    name: str = "result"
    settings: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Any] = field(default_factory=dict)
    record_every: int | None = None
    record: Sequence[str] | None = None
    probes: Mapping[str, Callable] | None = None
    seeds: int | None = None
    one_pass: Callable[[Any], int] | None = None
    rows: Callable[[Any], int] | None = None

    def build(self, horizon: int, changes: Mapping[str, Any]) -> Any:
        """Makes the environment for a horizon. `changes` has new values of `settings` by name; it must be empty if `environment` is no function.

        Raises:
          ValueError: a setting cannot be changed, is unknown or has a wrong value.
        """
        made = self.environment
        if inspect.isfunction(made) and not inspect.signature(made).parameters:
            made = made()  # Made only now, because some environments solve an optimisation problem.
        constructor = None if isinstance(made, Grid) or is_environment(made) else made
        parameters = {} if constructor is None else inspect.signature(constructor).parameters
        if "data" in changes and "data" not in parameters:
            raise ValueError("this experiment takes no --data: it uses no table")
        # A sampler, a function of a random key, has no settings either.
        if constructor is None or not (self.settings or "horizon" in parameters):
            for name in changes:
                raise ValueError(f"environment.{name} cannot be set: the environment of this experiment is fixed")
            return made
        settings = {**self.settings, **changes, **({"horizon": horizon} if "horizon" in parameters else {})}
        named = [name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
        for key in changes if len(named) == len(parameters) else ():
            checks.one_of("environment setting", key, parameters)
        try:
            return constructor(**settings)
        except TypeError as error:
            raise ValueError(f"environment: {error} (its settings are {', '.join(named)})") from None

    def with_horizon(self, horizon: int) -> "Case":
        """Returns the case with another horizon, which also replaces its coordinate "horizon" if it has one."""
        where = {k: horizon if k == "horizon" else v for k, v in self.coordinates.items()}
        return dataclasses.replace(self, horizon=horizon, coordinates=where)

    def policies_for(self, env: Any, changes: Mapping[str, Any]) -> Any:
        """Returns the policies for an environment that was built with the settings in `changes`."""
        if not callable(self.policies):
            return self.policies
        with_settings = "settings" in inspect.signature(self.policies).parameters
        return self.policies(env, **({"settings": {**self.settings, **changes}} if with_settings else {}))


@dataclass(frozen=True)
class Experiment:
    """A figure, table or theorem of a paper: its simulations, figures and claims.

    Attributes:
      name: `problem/figure`.
      title: title in one line.
      cases: the simulations.
      seeds: default number of seeds.
      claims: statements of the paper.
      figures: functions of the results, by file name, that return a matplotlib figure.
      smoke_seeds, smoke_horizon: sizes for a quick test of a few seconds.
      source: place in the paper.
      notes: remarks for the reader, for example why a claim cannot be reproduced.
      stand_in: name of generated data that replace the paper's or a missing table, such as "a generated stand-in for RouterBench"; empty for none.
      any_table: whether the claims should hold for any table, so that they are also judged in a run on the user's table.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    seeds: int = 1024
    claims: tuple[Claim, ...] = ()
    figures: Mapping[str, Callable[[Results], Any]] = field(default_factory=dict)
    smoke_seeds: int = 16
    smoke_horizon: int = 1000
    source: str = ""
    notes: str = ""
    stand_in: str = ""
    any_table: bool = False

    @property
    def horizon(self) -> int:
        """Longest horizon of the cases."""
        return max(case.horizon for case in self.cases)

    def scaled(self, horizon: int | None) -> tuple[Case, ...]:
        """Returns the cases with horizons multiplied so that the longest is `horizon`; unchanged if it is None."""
        if horizon is None or horizon == self.horizon:
            return self.cases
        share = checks.whole("horizon", horizon) / self.horizon
        return tuple(c.with_horizon(max(1, math.ceil(c.horizon * share))) for c in self.cases)

    def departures(self, horizon: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
        """Describes how a run at `horizon` with `changes` (as for `run`) departs from the conditions of the claims; an empty text if it does not."""
        found = [f"{horizon:,} rounds instead of {self.horizon:,}"] if horizon != self.horizon else []
        for name, values in changes.items():
            of_table = _OF_TABLE if name == "environment" and self.any_table else ()
            found += [f"{name}.{key} = {value}" for key, value in values.items() if key not in of_table]
        return ", ".join(found)

    def stands_in(self, changes: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a run with the new values `changes` (as for `run`) uses generated queries, because the user gave no table."""
        takes_table = any("data" in case.settings for case in self.cases)
        return takes_table and bool(self.stand_in) and self.table(changes) == self.stand_in

    def table(self, changes: Mapping[str, Mapping[str, Any]]) -> str:
        """Returns the name of a run's data, given new values `changes`: the user's file, or the description of the generated data; empty without data."""
        data = changes.get("environment", {}).get("data")
        return self.stand_in if data in (None, "standin") else Path(str(data)).name


def on_table(text: str, table: str) -> str:
    return f"{text}, on {table}" if table else text


def run(
    experiment: Experiment,
    out: str | os.PathLike,
    *,
    store: str | os.PathLike | None = None,
    seeds: int | range | None = None,
    horizon: int | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    keep_states: bool = False,
    accept_changed_code: bool = False,
    figures: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Runs an experiment and writes its stored results, figures and `summary.json` to a folder. An interrupted run is resumed.

    Args:
      experiment, out: the experiment, and a folder on disk for figures and summary.
      store: folder or URL of the stored results (default: `out`).
      seeds: number or range of seeds (default: the experiment's).
      horizon: horizon of the longest case; the other horizons change in proportion (default: the experiment's).
      changes: new values of hyperparameters by policy name, `{"UCB": {"width": 2.0}}`; under "environment", of settings of the environment.
      keep_states, accept_changed_code: as for `Store`.
      figures: whether to draw the figures.
      options: `root_seed`, `keep`, `until_stderr`, `execution`, `progress` and `callback` of `simulate`. With `keep="moments"`, claims and
        figures that need single runs are left out and reported. If the callback ends a case, the experiment ends without summary and figures.

    Returns:
      The summary. Its times in seconds add up all calls for this store; those under "last_call" are of this call alone. If the callback has ended the
      experiment, the summary is empty; if other processes have not simulated their share yet, it is `{"missing": text}`.
    """
    out = _on_disk(out)
    if not isinstance(seeds, range):
        seeds = checks.whole("seeds", experiment.seeds if seeds is None else seeds)
    given = changes or {}
    changes = {name: dict(values) for name, values in given.items()}
    env_changes = changes.pop("environment", {})
    built = []
    for case in experiment.scaled(horizon):
        env = case.build(case.horizon, env_changes)
        if case.one_pass and horizon is None:
            case = case.with_horizon(case.one_pass(env))
        built.append((case, env, _changed(case.policies_for(env, env_changes), changes)))
    cases = tuple(case for case, _, _ in built)
    data, missing, table = {}, "", experiment.table(given)
    departures = experiment.departures(max(c.horizon for c in cases), given)
    for case, env, policies in built:
        rows = case.rows or case.one_pass
        named = f"{table}, {rows(env):,} rows" if table and rows else table
        where = dict(case.coordinates)
        about = {"experiment": experiment.name, "case_coordinates": where, "table": named, "departures": departures}
        folder = folder_of(out if store is None else store, case, cases)
        kept = Store(folder, keep_states=keep_states, accept_changed_code=accept_changed_code, description=about)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartWarning)  # Missing blocks are returned.
            every = None if case.record_every is None else min(case.record_every, case.horizon)
            setup: dict[str, Any] = {"horizon": case.horizon, "seeds": _seeds_of(case, seeds), "record": case.record}
            data[case.name] = simulate(env, policies, out=kept, record_every=every, probes=case.probes, **setup, **options)
        if "stopped" in data[case.name].attrs:
            return {}
        missing = missing or str(data[case.name].attrs.get("missing", ""))
    return {"missing": missing} if missing else _written(experiment, data, out, store, figures)


def finish(experiment: Experiment, out: str | os.PathLike, store: str | os.PathLike | None = None) -> dict[str, Any]:
    """Writes the summary and the figures of stored results without simulating; arguments as for `run`. Returns the summary.

    Raises:
      ValueError: a result is missing or not complete.
    """
    out = _on_disk(out)
    cases = experiment.cases
    data = {case.name: results.load(folder_of(out if store is None else store, case, cases)) for case in cases}
    for one in data.values():
        checks.one_of("experiment", experiment.name, [str(one.attrs.get("experiment", ""))])
    return _written(experiment, data, out, store, True)


def _written(experiment: Experiment, data: Results, out: Path, store: Any, figures: bool) -> dict[str, Any]:
    """Writes `summary.json`, which names the `store` if given, and with `figures` the figures; failed ones give a warning. Returns the summary."""
    summary = summarise(experiment, data)
    if store is not None:
        summary["store"] = str(store)
    Folder(out).write("summary.json", [json.dumps(summary, indent=2, allow_nan=False).encode(), b"\n"])
    for name, make in experiment.figures.items() if figures else ():
        from jaxroute import plot

        try:
            figure, reason = _if_stored(functools.partial(picture, make), data)
        except ValueError as error:  # For example, no positive value on a logarithmic axis.
            figure, reason = None, str(error)
        if reason:
            warnings.warn(f"the figure {name!r} is left out: {reason}", stacklevel=3)
        else:
            plot.save(figure, out / f"{name}.png")
    return summary


def _seeds_of(case: Case, seeds: int | range) -> int | range:
    """Returns `seeds`, a number or range, limited to the largest number of seeds of a case. Raises `ValueError` if no seed of a range remains."""
    if case.seeds is None:
        return seeds
    if isinstance(seeds, int):
        return min(seeds, case.seeds)
    if not (own := range(seeds.start, min(seeds.stop, case.seeds))):
        least = f"{case.seeds:,}, the number of seeds of the case {case.name!r}"
        raise ValueError(f"seeds must begin below {least}, got {seeds.start}:{seeds.stop}")
    return own


def _on_disk(out: str | os.PathLike) -> Path:
    if is_url(out):
        raise ValueError(f"out must be a folder on disk, where figures and summary.json go, got {out!r}; store may be a URL")
    return Path(out)


def picture(make: Callable[[Results], Any], data: Results) -> Any:
    """Returns the figure that `make(data)` draws. If `data` was simulated on a user's table of recorded answers, the table's name is written above."""
    made = make(data)
    figure, table = getattr(made, "figure", made), next(iter(data.values())).attrs.get("table")
    if table:
        figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.25)
        figure.suptitle(f"on {table}", x=0.01, ha="left", fontsize=8)
    return figure


def _if_stored(make: Callable[[Results], Any], data: Results) -> tuple[Any, str]:
    """Returns `make(data)` and an empty text; or None and the reason, if `make` needs single runs but only their statistics are stored."""
    try:
        return make(data), ""
    except metrics.NeedsRunsError as error:
        return None, str(error)
    except KeyError:  # Statistics have other names than the curves of runs.
        if all(metrics.has_runs(one) for one in data.values()):
            raise
        return None, "single runs are needed, but only their statistics are stored; run with keep='runs'"


def summarise(experiment: Experiment, data: Results) -> dict[str, Any]:
    """Summarises the results `data` of a run as plain JSON: totals at the horizon, means per round, and the claims.

    The verdict on a claim is one of `Verdict`, or "not judged" if the run departs from the claim's settings (see `Experiment.departures`), or if
    the claim needs single runs and only statistics are stored.
    """
    seeds = max(one.sizes["seed"] if "seed" in one.sizes else int(one["runs"].max()) for one in data.values())
    attributes = [decoded(d.attrs) for d in data.values()]
    first, run_s = attributes[0], sum(a["run_s"] for a in attributes)
    table, departures = first.get("table", ""), first.get("departures", "")
    last = {name: sum(a.get("last_call", a)[name] for a in attributes) for name in ("compile_s", "run_s", "decisions")}
    claims = [
        {"id": c.id, "text": on_table(c.text, table), "source": c.source, **_judged(c, data, departures)}
        for c in experiment.claims
    ]
    about: dict[str, Any] = {"experiment": experiment.name, "title": on_table(experiment.title, table), "table": table}
    about |= {"problem": first["settings"]["problem"], "horizon": max(int(one["time"][-1]) for one in data.values())}
    about |= {"seeds": max((a["seeds_played"] for a in attributes if "seeds_played" in a), default=seeds)}
    about |= {"policies": _policies(data), "claims": claims, "compile_s": round(sum(a["compile_s"] for a in attributes), 3)}
    about |= {"run_s": round(run_s, 3), "last_call": {name: round(value, 3) for name, value in last.items()}}
    about |= {"decisions_per_s": round(sum(a["decisions"] for a in attributes) / run_s) if run_s else None}
    return about | {name: first[name] for name in ("device", "versions", "commit")}


def _judged(claim: Claim, data: Results, departures: str) -> dict[str, Any]:
    """Returns a claim's entries in `summary.json`: texts "measured" and "verdict" and, if the claim is judged, the numbers of its `Judgement`.

    If the claim holds, "measured" also names policies of the claim that violate a budget or target in the cases and settings that it reads. If
    `departures` is not empty, the verdict is "not judged", but the claim is evaluated: errors of its code become warnings.
    """
    found, reason, judged = ("", True), "", judge(True)
    try:
        found, reason = _if_stored(claim.measure, {name: one.assign_coords(case=name) for name, one in data.items()})
        judged = judge(found[1]) if found else judged
    except Exception as error:
        problem = f"the claim {claim.id!r} cannot be evaluated: {error}"
        if departures:
            warnings.warn(f"{problem} ({type(error).__name__})", stacklevel=2)
        elif isinstance(error, (KeyError, ValueError)):
            raise ValueError(problem) from error
        else:
            raise
    if departures or reason:
        why = f"not judged: {departures}" if departures else f"not evaluated: {reason}"
        return {"measured": why, "verdict": "not judged"}
    measured = "; ".join(filter(None, [found[0], judged.text]))
    named = []
    for case, one in data.items() if judged.verdict is Verdict.HOLDS else ():
        for line in metrics.violations(one):
            at = {"case": case, "policy": line.policy, **line.where}
            read = any(all(place.get(axis, value) == value for axis, value in at.items()) for place in judged.places)
            pattern = rf"(?<!\w){re.escape(line.policy)}(?!\w)"
            if (read or not judged.places) and re.search(pattern, f"{claim.text} {measured}"):
                named.append(line)
    measured += "".join(f"; but {line}" for _, line in metrics.worst_violations(named))
    return {"measured": measured, "verdict": str(judged.verdict), **judged.numbers}


def _policies(data: Results) -> dict[str, Any]:
    """Returns the metrics at the horizon for each policy: a dict or, with several cases or settings, a list with one dict for each."""
    if len(data) == 1:
        return metrics.summary(next(iter(data.values())))
    merged: dict[str, list[Any]] = {}
    for name, one in data.items():
        where = decoded(one.attrs)["case_coordinates"]
        for policy, values in metrics.summary(one).items():
            for entry in values if isinstance(values, list) else [values]:
                place = {"case": name, "coordinates": where | entry.pop("coordinates", {})}
                merged.setdefault(policy, []).append(place | entry)
    return merged


def folder_of(out: str | os.PathLike, case: Case, cases: Sequence[Case]) -> str | Path:
    """Returns the folder or URL in which the results of a case are stored: `out`, or a subfolder of it if there are several `cases`."""
    if is_url(out):
        return str(out) if len(cases) == 1 else f"{str(out).rstrip('/')}/{case.name}"
    return Path(out) if len(cases) == 1 else Path(out) / case.name


def _changed(policies: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the policies with new values of hyperparameters. `changes` maps names of policies to new values by name of the hyperparameter."""
    changed = dict(policies)
    for name, values in changes.items():
        policy = policies[checks.one_of("--set", name, [*policies, "environment"])]
        if isinstance(policy, Grid) or not dataclasses.is_dataclass(policy):
            raise ValueError(f"--set cannot change {name}: it is a grid, or is made from the environment")
        allowed = [f.name for f in dataclasses.fields(policy) if f.metadata.get("pytree_node", True)]
        for key, value in values.items():
            checks.one_of(f"hyperparameter of {name}", key, allowed)
            checks.numbers(f"{name}.{key}", value, ())
        changed[name] = policy.replace(**values)
    return changed
