"""Search over hyperparameters of a policy of an experiment, or over settings of its environment: `jaxroute tune`."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxroute import metrics, plot, tune
from jaxroute.core import checks
from jaxroute.core.protocols import is_policy
from jaxroute.engine.grid import Grid
from jaxroute.experiments.base import Case, Experiment
from jaxroute.tune.space import Space

_KINDS = "linear:LOW:HIGH, log:LOW:HIGH, integer:LOW:HIGH, log-integer:LOW:HIGH or choice:A,B,..."
_PLAIN = (bool, int, float, str, type(None))
_SCALES: dict[str, Callable[..., Any]] = {"linear": tune.Linear, "log": tune.Log, "integer": tune.Integer}
_SCALES["log-integer"] = functools.partial(tune.Integer, log=True)


def scales(texts: Sequence[str]) -> dict[str, Any]:
    """Parses ranges of hyperparameters: `["StageRoute.gamma=log:0.01:1"]` becomes `{"StageRoute.gamma": Log(0.01, 1.0)}`.

    Raises:
      ValueError: a text has another form, or a hyperparameter is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        target, equals, scale = text.partition("=")
        kind, colon, rest = scale.partition(":")
        wrong = ValueError(f"--param must have the form POLICY.NAME=SCALE, with a scale {_KINDS}, got {text!r}")
        if not (equals and colon and "." in target.strip(".")):
            raise wrong
        if target in found:
            raise ValueError(f"--param {target} must be given once")
        checks.one_of(f"--param {target}: the scale", kind, [*_SCALES, "choice"])
        try:
            if kind == "choice":
                found[target] = tune.Choice([_value(part) for part in rest.split(",")])
            else:
                read = int if "integer" in kind else float
                low, high = (read(part) for part in rest.split(":"))
                found[target] = _SCALES[kind](low, high)
        except ValueError:
            raise wrong from None
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def search(
    experiment: Experiment,
    parameters: Mapping[str, Any],
    *,
    metric: str,
    rounds: int | None = None,
    horizon: int | None = None,
    case: str | None = None,
    policy: str | None = None,
    out: Path | None = None,
    figures: bool = True,
    **options: Any,
) -> tune.SearchResult:
    """Searches hyperparameters of one policy of an experiment, and writes history, picture and summary. It starts from the policy's own values.

    Args:
      experiment: experiment with the environment and the policy.
      parameters: range of each hyperparameter, named `"POLICY.NAME"`, or `"environment.SETTING"`.
      metric: as for `tune.search`.
      rounds: largest number of simulated rounds of all runs together, as for `tune.search` (default: 1,000 times the horizon).
      horizon: number of rounds of a run (default: the case's).
      case: name of the case (default: the first).
      policy: name of the policy, required if all hyperparameters belong to the environment.
      out, figures: folder, from which a stopped search is resumed (None to write nothing), and whether to draw the picture.
      options: further arguments of `tune.search`.

    Raises:
      ValueError: a name is unknown, the hyperparameters belong to several policies, or the policy has none that can change.
    """
    cases = {one.name: one for one in experiment.cases}
    one = cases[checks.one_of("--case", next(iter(cases)) if case is None else case, cases)]
    if horizon is not None:
        one = one.with_horizon(checks.count("horizon", horizon))
    env = one.build(one.horizon, {})
    if isinstance(env, Grid):
        raise ValueError("the environment of this case is a grid, which cannot be searched; choose another --case")
    policies = one.policies_for(env, {})
    name, own = _target(parameters, policies, policy)
    chosen = policies[name]
    mine = {key.removeprefix(f"{name}."): scale for key, scale in parameters.items() if key not in own}
    settings = {key.removeprefix("environment."): parameters[key] for key in own}
    if mine and (isinstance(chosen, Grid) or not is_policy(chosen)):
        raise ValueError(f"--param cannot change {name}: it is a grid, or is made from the environment")
    made, start = (_environments(one, list(settings)), None) if settings else (env, _start(mine, chosen))
    options |= {"horizon": one.horizon, "rounds": 1000 * one.horizon if rounds is None else rounds}
    options |= {"metric": metric, "out": None if out is None else out / "search"}
    found = tune.search(made, chosen, {**mine, **settings}, start=start, **options)
    if out is not None:
        (out / "summary.json").write_text(json.dumps(summary(experiment, one, name, found), indent=2) + "\n")
        if figures:
            plot.save(tune.picture(found.history, title=f"{experiment.name}: {name}"), out / "search.png")
    return found


def _target(parameters: Mapping[str, Any], policies: Mapping[str, Any], policy: str | None) -> tuple[str, list[str]]:
    """Returns the name of the searched policy, from `policy` or "POLICY.NAME" in `parameters`, and those of `parameters` for the environment."""
    own = [name for name in parameters if name.startswith("environment.")]
    found = [] if policy is None else [checks.one_of("--policy", policy, policies)]
    names = [*policies, "environment"]
    for name in (name for name in parameters if name not in own):
        known = [one for one in policies if name.startswith(f"{one}.")]  # A name may begin with another.
        found.append(max(known, key=len, default="") or checks.one_of("--param", name.partition(".")[0], names))
    if len(found := list(dict.fromkeys(found))) > 1:
        raise ValueError(f"--param must name hyperparameters of one policy, got those of {' and '.join(found)}")
    if not found:
        given = ", ".join(map(repr, policies))
        raise ValueError(f"--policy must name the policy if all hyperparameters are the environment's: one of {given}")
    return found[0], own


def _environments(case: Case, names: Sequence[str]) -> Callable[..., Any]:
    """Returns a function that makes the environment of a case; it takes new values of the settings `names` as keyword arguments."""
    if not callable(case.environment):
        raise ValueError(f"environment.{names[0]} cannot be set: the environment of this experiment is fixed")

    def make(**settings: Any) -> Any:
        return case.build(case.horizon, settings)

    # The signature lists the settings, which `tune.search` then passes to this function instead of to the policy.
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    setattr(make, "__signature__", inspect.Signature(parameters))  # noqa: B010
    return make


def _start(parameters: Mapping[str, Any], policy: Any) -> dict[str, Any] | None:
    """Returns the current values in `policy` of the searched hyperparameters; None if one is outside its search range."""
    found = {}
    for name in parameters:
        value = functools.reduce(lambda owner, part: getattr(owner, part, None), name.split("."), policy)
        found[name] = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    try:
        Space.of(parameters).locate("start", found)
    except ValueError:
        return None
    return found


def summary(experiment: Experiment, case: Case, policy: str, found: tune.SearchResult) -> dict[str, Any]:
    """Returns the result of a search over hyperparameters of `policy` in `case` as plain JSON values."""

    def evaluation(one: tune.Evaluation) -> dict[str, Any]:
        shown = {name: value if isinstance(value, _PLAIN) else checks.show(value) for name, value in one.values.items()}
        return {**one._asdict(), "values": shown}

    about: dict[str, Any] = {"experiment": experiment.name, "case": case.name, "policy": policy, "horizon": case.horizon}
    score, start = found.history["score"].attrs, found.start
    about |= {"score": score["long_name"], "better": score["better"], "best": evaluation(found.best)}
    about |= {"start": None if start is None else evaluation(start), "gain": found.gain}
    return about | {"feasible": found.feasible, "rounds": found.rounds}


def report(found: tune.SearchResult) -> str:
    """Formats the best values, their score, and its comparison with the start, for the terminal."""
    label, seeds = found.history["score"].attrs["long_name"], int(found.history["seeds"].values[-1])
    values = {name: f"{v:.6g}" if isinstance(v, float) else checks.show(v) for name, v in found.values.items()}
    lines = ["Found", *(f"  {name} = {shown}" for name, shown in values.items())]
    lines += ["", f"On {seeds:,} seeds that the search did not use"]
    for name, one in [("best", found.best), *([("start", found.start)] if found.start else [])]:
        parts = [f"  {name:<5} {label} {metrics.rounded(*one.score)}"]
        bounded = {bound.split(" ")[0] for bound in one.bounds} - {label}
        parts += [f"{other} {metrics.rounded(*value)}" for other, value in one.metrics.items() if other in bounded]
        lines.append("; ".join([*parts, *(f"{bound}: {verdict}" for bound, verdict in one.bounds.items())]))
    if found.gain is not None:
        lines.append(f"  the best is better than the start by {metrics.rounded(*found.gain)}, paired by seed")
    if not found.feasible:
        lines.append("  no candidate satisfies the bounds with the margin: the one with the least violation was chosen")
    phases = ", ".join(f"{rounds:,} of the {phase}" for phase, rounds in found.rounds.items())
    return "\n".join([*lines, "", f"{sum(found.rounds.values()):,} rounds: {phases}"])
