"""Experiments as data: which environments, policies, seeds and horizons make a figure or table, and what the paper claims of it."""

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
from jaxroute.engine.execution import Execution, PartWarning
from jaxroute.engine.grid import Grid
from jaxroute.engine.progress import Callback
from jaxroute.engine.simulate import simulate
from jaxroute.experiments.verdicts import Stated, Verdict, judge
from jaxroute.store import results
from jaxroute.store.places import is_url

Results = Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class Claim:
    """Something that a paper says about an experiment.

    id: short name. text: the claim in words. source: where the paper says it.
    measure: function of the results by case, returns what was measured (a short text) and the statements of which the claim is made.
    """

    id: str
    text: str
    source: str
    measure: Callable[[Results], tuple[str, Stated]]


@dataclass(frozen=True)
class Case:
    """One simulation of an experiment.

    name: of the case, part of its folder if the experiment has several; without numbers that another horizon would change.
    environment: an environment or sampler, or a function that makes one: from `settings` (and `horizon`, if it takes that), or of no arguments.
    policies: policies by name, as for `simulate`, or a function `environment -> policies`; one with an argument `settings` also gets
    those of the environment.
    horizon: counted rounds. settings: arguments of `environment`. coordinates: what distinguishes the case, for tables.
    record_every, record, probes: as for `simulate`. seeds: at most so many for this case (default: the experiment's).
    one_pass: counted rounds from the environment, as the rows of a user's table, in place of `horizon` unless another one is asked for.
    rows: number of rows of the table that the environment plays (default: as `one_pass`).
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
        """The environment for a horizon, with changed settings."""
        made = self.environment
        if inspect.isfunction(made) and not inspect.signature(made).parameters:
            made = made()  # Not before it is played: benchmarks are solved for some.
        no_table = "this experiment takes no --data: it plays no table"
        if isinstance(made, Grid) or is_environment(made) or not _takes_settings(made, self.settings):
            fixed = "cannot be set: the environment of this experiment is fixed"
            for name in changes:
                raise ValueError(no_table if name == "data" else f"environment.{name} {fixed}")
            return made
        parameters = inspect.signature(made).parameters
        if "data" in changes and "data" not in parameters:
            raise ValueError(no_table)
        settings = {**self.settings, **changes}
        if "horizon" in parameters:
            settings["horizon"] = horizon
        takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for key in changes:
            if not takes_more:
                checks.one_of("environment setting", key, parameters)
        try:
            return made(**settings)
        except TypeError as error:
            known = ", ".join(name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD)
            raise ValueError(f"environment: {error} (its own are {known})") from None

    def with_horizon(self, horizon: int) -> "Case":
        """The case with another horizon, also in its coordinates."""
        where = {k: horizon if k == "horizon" else v for k, v in self.coordinates.items()}
        return dataclasses.replace(self, horizon=horizon, coordinates=where)

    def players(self, env: Any, changes: Mapping[str, Any]) -> Any:
        """The policies for an environment that was built with changed settings."""
        policies: Any = self.policies
        if not callable(policies):
            return policies
        if "settings" in inspect.signature(policies).parameters:
            return policies(env, settings={**self.settings, **changes})
        return policies(env)


def _takes_settings(function: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a case's `environment` is a constructor (and not a sampler `key -> Environment`)."""
    return bool(settings) or "horizon" in inspect.signature(function).parameters


@dataclass(frozen=True)
class Experiment:
    """A figure or table: its simulations, its pictures and the claims about it.

    name: `problem/figure`. title: one line. cases: the simulations. seeds: default number of seeds.
    claims: what the paper says. figures: functions of the results by name, each returns a matplotlib figure.
    smoke_seeds, smoke_horizon: sizes that take seconds.
    source: where in the paper. notes: what a reader should know, for example where a claim cannot be reproduced.
    stand_in: what stands for the paper's data, or for a table that the user did not give, for example "a generated stand-in for
    RouterBench"; empty for none.
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

    @property
    def horizon(self) -> int:
        """The longest horizon of the cases."""
        return max(case.horizon for case in self.cases)

    def scaled(self, horizon: int | None) -> tuple[Case, ...]:
        """The cases with another longest horizon; record intervals that no longer fit shrink with it."""
        if horizon is None or horizon == self.horizon:
            return self.cases
        share = checks.count("horizon", horizon) / self.horizon
        return tuple(c.with_horizon(max(1, math.ceil(c.horizon * share))) for c in self.cases)

    def departures(self, horizon: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
        """In what a run differs from what the claims are about, in words; empty if it does not."""
        found = [f"{horizon:,} rounds in place of {self.horizon:,}"] if horizon != self.horizon else []
        found += [f"{who}.{leaf} = {value}" for who, values in changes.items() for leaf, value in values.items()]
        return ", ".join(found)

    def stands_in(self, changes: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether generated queries are played in place of a user's: a table's experiment that was given no table."""
        takes_table = any("data" in case.settings for case in self.cases)
        return takes_table and bool(self.stand_in) and self.table(changes) == self.stand_in

    def table(self, changes: Mapping[str, Mapping[str, Any]]) -> str:
        """The table that a run plays: the name of its file, or the stand-in; empty for none."""
        data = changes.get("environment", {}).get("data")
        return self.stand_in if data in (None, "standin") else Path(str(data)).name


def on_table(text: str, table: str) -> str:
    """A title or a claim with the table that it is about."""
    return f"{text}, on {table}" if table else text


def run(
    experiment: Experiment,
    out: str | os.PathLike,
    *,
    store: str | os.PathLike | None = None,
    seeds: int | range | None = None,
    horizon: int | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    key: int = 0,
    progress: bool = True,
    keep: str = "runs",
    until_stderr: Mapping[str, float] | None = None,
    keep_states: bool = False,
    accept_changed_code: bool = False,
    figures: bool = True,
    execution: Execution | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Runs an experiment and writes its stores, figures and `summary.json` into a folder; a killed run is continued.

    Args:
      experiment: what to run.
      out: the folder, on disk, for figures and summary.
      store: folder or URL of the stored results (default: `out`).
      seeds: number, or a range of them (default: the experiment's).
      horizon: likewise; it is that of the longest case, the others keep their ratio.
      changes: new values by policy name and leaf, or `"environment"` and setting.
      key: root of all randomness.
      figures: draw them.
      keep_states, accept_changed_code, execution: as for `simulate`.
      callback: likewise, for every case; if it ends one, the experiment ends there, without summary and figures.
      keep, until_stderr: likewise. Of "moments", claims and figures that need single runs are left out, and said to be.

    Returns:
      The summary; of an experiment that its callback has ended, or of which other processes have not played their share yet, an empty one, or
      `{"missing": text}`. Its seconds are those of all calls that played into the store, and under "last_call" those of this one.
    """
    out = _on_disk(out)
    if not isinstance(seeds, range):
        seeds = checks.count("seeds", experiment.seeds if seeds is None else seeds)
    asked = changes or {}
    changes = {who: dict(values) for who, values in asked.items()}
    cases = experiment.scaled(horizon)
    env_changes = changes.pop("environment", {})
    built = []
    for case in cases:
        env = case.build(case.horizon, env_changes)
        if case.one_pass and horizon is None:
            case = case.with_horizon(case.one_pass(env))
        built.append((case, env, _changed(case.players(env, env_changes), changes)))
    cases = tuple(case for case, _, _ in built)
    data, missing = {}, ""
    longest = max(c.horizon for c in cases)
    for case, env, policies in built:
        table, rows = experiment.table(asked), case.rows or case.one_pass
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartWarning)  # What is missing is returned.
            data[case.name] = simulate(
                env,
                policies,
                horizon=case.horizon,
                seeds=_seeds_of(case, seeds),
                record_every=None if case.record_every is None else min(case.record_every, case.horizon),
                record=case.record,
                probes=case.probes,
                out=folder_of(out if store is None else store, case, cases),
                key=key,
                execution=execution,
                progress=progress,
                callback=callback,
                keep=keep,
                until_stderr=until_stderr,
                keep_states=keep_states,
                accept_changed_code=accept_changed_code,
                description={
                    "experiment": experiment.name,
                    "case_coordinates": dict(case.coordinates),
                    "table": f"{table}, {rows(env):,} rows" if table and rows else table,
                    "departures": experiment.departures(longest, asked),
                },
            )
        if "stopped" in data[case.name].attrs:
            return {}
        missing = missing or str(data[case.name].attrs.get("missing", ""))
    if missing:
        return {"missing": missing}
    return _written(experiment, data, out, store, figures)


def finish(experiment: Experiment, out: str | os.PathLike, store: str | os.PathLike | None = None) -> dict[str, Any]:
    """Writes the summary of stored results and draws their figures; arguments as for `run`. Returns the summary.

    Raises:
      ValueError: a result is not there, or not complete.
    """
    out = _on_disk(out)
    cases = experiment.cases
    data = {case.name: results.load(folder_of(out if store is None else store, case, cases)) for case in cases}
    for one in data.values():
        checks.one_of("experiment", experiment.name, [str(one.attrs.get("experiment", ""))])
    return _written(experiment, data, out, store, True)


def _written(experiment: Experiment, data: Results, out: Path, store: Any, figures: bool) -> dict[str, Any]:
    """Writes the summary and draws the figures."""
    first = next(iter(data.values()))
    longest = max(int(one["time"][-1]) for one in data.values())
    seeds = max(one.sizes["seed"] if "seed" in one.sizes else int(one["runs"].max()) for one in data.values())
    summary = summarise(experiment, data, seeds, longest, str(first.attrs.get("departures", "")))
    if store is not None:
        summary["store"] = str(store)
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / "summary.json.part"
    temporary.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    temporary.replace(out / "summary.json")
    if figures:
        draw(experiment, data, out)
    return summary


def _seeds_of(case: Case, seeds: int | range) -> int | range:
    """The seeds of a case, which may have few."""
    if case.seeds is None:
        return seeds
    if isinstance(seeds, int):
        return min(seeds, case.seeds)
    if not (own := range(seeds.start, min(seeds.stop, case.seeds))):
        raise ValueError(
            f"seeds must begin below {case.seeds}, all that the case {case.name!r} has, got {seeds.start}:{seeds.stop}"
        )
    return own


def _on_disk(out: str | os.PathLike) -> Path:
    if is_url(out):
        raise ValueError(f"out must be a folder on disk, where figures and summary.json go, got {out!r}; store may be a URL")
    return Path(out)


def draw(experiment: Experiment, data: Results, out: Path) -> list[Path]:
    """Draws every figure of an experiment into a folder, as far as the results can be drawn; returns the files."""
    if not experiment.figures:
        return []
    from jaxroute import plot

    files = []
    for name, make in experiment.figures.items():
        try:
            figure, reason = _from_what_is_kept(functools.partial(picture, make), data)
        except ValueError as error:  # Nothing is positive where an axis is logarithmic, for example.
            figure, reason = None, str(error)
        if reason:
            warnings.warn(f"the figure {name!r} is left out: {reason}", stacklevel=2)
            continue
        files.append(out / f"{name}.png")
        plot.save(figure, files[-1])
    return files


def picture(make: Callable[[Results], Any], data: Results) -> Any:
    """The figure that a function makes of results, headed by the table that they are about if there is one."""
    made = make(data)
    figure, table = getattr(made, "figure", made), next(iter(data.values())).attrs.get("table")
    if table:
        figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.25)
        figure.suptitle(f"on {table}", x=0.01, ha="left", fontsize=8)
    return figure


def _from_what_is_kept(make: Callable[[Results], Any], data: Results) -> tuple[Any, str]:
    """What a function makes of results; and why it does not, if it reads single runs and only their statistics were kept.

    Statistics have other names than the runs' curves, so that nothing takes one for the other.
    """
    if all(metrics.has_runs(one) for one in data.values()):
        return make(data), ""
    try:
        return make(data), ""
    except metrics.NeedsRunsError as error:
        return None, str(error)
    except KeyError:
        return None, "single runs are needed, and only their statistics were kept; run with keep='runs'"


def summarise(experiment: Experiment, data: Results, seeds: int, horizon: int, departures: str = "") -> dict[str, Any]:
    """What a run measured, as plain JSON: totals at the horizon, per-round means, and the claims.

    The verdict on a claim is one of `Verdict`, or "not judged" where the run differs from what it is about, and where it needs single runs
    of which only statistics were kept.

    Args:
      experiment: what was run.
      data: results by case.
      seeds: that were asked for.
      horizon: counted rounds of the longest case.
      departures: in what the run differs from the experiment, from `Experiment.departures`.
    """
    attributes = [decoded(d.attrs) for d in data.values()]
    run_s = sum(a["run_s"] for a in attributes)
    table = attributes[0].get("table", "")
    claims = [
        {"id": c.id, "text": on_table(c.text, table), "source": c.source, **_judged(c, data, departures)}
        for c in experiment.claims
    ]
    first = attributes[0]
    return {
        "experiment": experiment.name,
        "title": on_table(experiment.title, table),
        "table": table,
        "problem": first["settings"]["problem"],
        "horizon": horizon,
        "seeds": max((a["seeds_played"] for a in attributes if "seeds_played" in a), default=seeds),
        "policies": _policies(data),
        "claims": claims,
        "compile_s": round(sum(a["compile_s"] for a in attributes), 3),
        "run_s": round(run_s, 3),
        "last_call": {
            name: round(sum(a.get("last_call", a)[name] for a in attributes), 3)
            for name in ("compile_s", "run_s", "decisions")
        },
        "decisions_per_s": round(sum(a["decisions"] for a in attributes) / run_s) if run_s else None,
        "device": first["device"],
        "versions": first["versions"],
        "commit": first["commit"],
    }


def _judged(claim: Claim, data: Results, departures: str) -> dict[str, Any]:
    """The measured text of a claim and its verdict, as in `summary.json`."""
    if departures:
        return {"measured": f"not judged: {departures}", "verdict": "not judged"}
    named = {name: one.assign_coords(case=name) for name, one in data.items()}
    found, reason = _from_what_is_kept(claim.measure, named)
    if reason:
        return {"measured": f"not evaluated: {reason}", "verdict": "not judged"}
    judged = judge(found[1])
    measured = "; ".join(filter(None, [found[0], judged.text]))
    if judged.verdict is Verdict.HOLDS:
        measured += _but(f"{claim.text} {measured}", data, judged.places)
    return {"measured": measured, "verdict": str(judged.verdict), **judged.numbers}


def _but(text: str, data: Results, places: Sequence[Mapping[str, Any]]) -> str:
    """The end of a claim that holds: which of the policies that it names keep neither budget nor target, in the cases and settings that it read."""
    found = []
    for case, one in data.items():
        for line in metrics.violations(one):
            at = {"case": case, "policy": line.policy, **line.where}
            read = not places or any(all(place.get(axis, value) == value for axis, value in at.items()) for place in places)
            if read and re.search(rf"(?<!\w){re.escape(line.policy)}(?!\w)", text):
                found.append(line)
    return "".join(f"; but {line}" for _, line in metrics.worst_violations(found))


def _policies(data: Results) -> dict[str, Any]:
    """Metrics by policy; where the experiment has several cases or settings a list, with an entry for each that names its case."""
    if len(data) == 1:
        return metrics.summary(next(iter(data.values())))
    merged: dict[str, list[Any]] = {}
    for name, one in data.items():
        where = decoded(one.attrs)["case_coordinates"]
        for policy, values in metrics.summary(one).items():
            for entry in values if isinstance(values, list) else [values]:
                inner = entry.get("coordinates", {})
                rest = {k: v for k, v in entry.items() if k != "coordinates"}
                merged.setdefault(policy, []).append({"case": name, "coordinates": {**where, **inner}, **rest})
    return merged


def folder_of(out: str | os.PathLike, case: Case, cases: Sequence[Case]) -> str | Path:
    """Returns the folder or URL of the store of a case."""
    if is_url(out):
        return str(out) if len(cases) == 1 else f"{str(out).rstrip('/')}/{case.name}"
    return Path(out) if len(cases) == 1 else Path(out) / case.name


def _changed(policies: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Policies with new values of their leaves."""
    for who in changes:
        checks.one_of("--set", who, [*policies, "environment"])
    changed = dict(policies)
    for who, values in changes.items():
        policy = policies[who]
        if isinstance(policy, Grid) or not dataclasses.is_dataclass(policy):
            raise ValueError(f"--set cannot change {who}: it is a grid, or is made from the environment")
        swept = [f.name for f in dataclasses.fields(policy) if f.metadata.get("pytree_node", True)]
        for leaf, value in values.items():
            checks.one_of(f"leaf of {who}", leaf, swept)
            checks.numbers(f"{who}.{leaf}", value, ())
        changed[who] = policy.replace(**values)
    return changed
