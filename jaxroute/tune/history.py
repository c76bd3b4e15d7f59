"""History of a search: its evaluations in memory, in a folder from which the search can be resumed, as a Dataset, and as a picture.

Settings, seeds and earlier evaluations determine the next candidates, so evaluations are the only state to store. A resumed search proposes the same
candidates from the start; where an evaluation is stored, it uses the exact stored values and simulates nothing. A search can be resumed with more
rounds; its result equals that of a new search with as many rounds.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import plot
from jaxroute.core.attributes import decoded, encoded
from jaxroute.core.checks import show
from jaxroute.core.code import changes
from jaxroute.core.description import first_difference
from jaxroute.core.provenance import now
from jaxroute.plot import style
from jaxroute.plot.axes import grid_lines, numbers
from jaxroute.store.packs import StoreMismatchError, digest_of, plain
from jaxroute.store.places import Folder, is_url
from jaxroute.tune.candidates import Outcomes
from jaxroute.tune.ranking import Goal, moments
from jaxroute.tune.space import Choice, Integer, Log, Space

PHASES: tuple[str, ...] = ("search", "selection", "test")
_SETTINGS, _HISTORY, _BATCH = "search.json", "history.json", "batch-"
_FORMAT = 2
_GROWING = ("runs", "test_seeds", "selection")  # Fields of `Plan` that grow with the number of rounds.


@dataclass(frozen=True)
class Batch:
    """Request to simulate several candidates of one structure (combination of choices) on the same seeds.

    Attributes:
      phase: "search", "selection" or "test".
      generation: index of the structure's generation in the search, or of the round of halving in the selection; 0 in the test.
      structure: index of the structure.
      candidates: running numbers of the candidates within the search.
      points: `[n][d]` numeric hyperparameters of the candidates, scaled to [0, 1].
      first_seed: the first of consecutive seeds.
      seeds: number of seeds.
    """

    phase: str
    generation: int
    structure: int
    candidates: Sequence[int]
    points: Sequence[Sequence[float]]
    first_seed: int
    seeds: int


class History:
    """Evaluated batches of a search, in order. `folder` stores them for a resumed search, and may hold some already; None stores nothing on disk.

    Raises `StoreMismatchError` if a file is damaged.
    """

    def __init__(self, folder: Folder | None = None):
        self.folder = folder
        self.evaluated: list[tuple[Batch, Outcomes]] = []
        files = [] if folder is None else sorted(folder.path.glob(f"{_BATCH}*.json"))
        self._stored: dict[str, Outcomes] = {}
        for file in files:
            content = _read(file)
            if content is None:
                raise StoreMismatchError(f"{str(file)!r} is damaged: delete it, and the search evaluates the batch again")
            values = {name: np.asarray(runs, np.float64) for name, runs in content["values"].items()}
            self._stored[_key(content["batch"])] = values, np.asarray(content["valid"], bool)
        self._next = 1 + max((int(file.stem.removeprefix(_BATCH)) for file in files), default=-1)

    def outcomes(self, batch: Batch, simulate: Callable[[], Outcomes]) -> Outcomes:
        """Adds a batch to the history and returns its outcomes: those in the folder, or else those that `simulate` returns, which are then stored."""
        found = self._stored.get(_key(asdict(batch)))
        if found is None:
            values, valid = found = simulate()
            if self.folder is not None:
                runs = {name: array.tolist() for name, array in values.items()}
                content = {"batch": asdict(batch), "values": runs, "valid": valid.tolist()}
                self.folder.write(f"{_BATCH}{self._next:05d}.json", [json.dumps(_with_digest(content)).encode()])
                self._next += 1
        self.evaluated.append((batch, found))
        return found

    @property
    def runs(self) -> dict[str, int]:
        """Number of runs so far in each phase."""
        count: dict[str, int] = dict.fromkeys(PHASES, 0)
        for batch, _ in self.evaluated:
            count[batch.phase] += len(batch.candidates) * batch.seeds
        return count


def _key(batch: Mapping[str, Any]) -> str:
    """Returns the fields of a batch that determine its outcomes, as JSON text."""
    return json.dumps([batch[name] for name in ("phase", "structure", "points", "first_seed", "seeds")])


def _with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    content = json.loads(json.dumps({name: value for name, value in content.items() if name != "digest"}))
    return {**content, "digest": digest_of(plain(content)).hex()}


def _read(file: Path) -> dict[str, Any] | None:
    """Reads a JSON file of the history. Returns None if it is damaged."""
    try:
        content = json.loads(file.read_bytes())
    except ValueError:
        return None
    return content if content.get("digest") == _with_digest(content)["digest"] else None


def open_history(
    out: str | os.PathLike[str] | None, settings: Mapping[str, Any], code: Mapping[str, Any], accept_changed_code: bool
) -> History:
    """Opens the history in the folder `out`, which may hold an unfinished search; a history in memory if `out` is None.

    `settings` (plain JSON) determine the evaluations; only their number of rounds may have grown since the folder was made. `code` has digests of the
    code of environment, policy, strategy and metric, which must be unchanged unless `accept_changed_code`.

    Raises:
      ValueError: `out` is no folder on disk.
      StoreMismatchError: the folder holds another search, or other code made it.
    """
    if out is None:
        return History()
    if not isinstance(out, (str, os.PathLike)) or is_url(out) or not os.fspath(out):
        raise ValueError(f"out must be a folder on disk, got {show(out)}")
    folder = Folder(Path(out))
    settings, code = (json.loads(json.dumps(one)) for one in (settings, code))
    file = folder.path / _SETTINGS
    if not file.is_file():
        if folder.names(""):
            raise StoreMismatchError(f"{str(folder)!r} holds something else than a search: choose another folder")
        content = {"format": _FORMAT, "created": now(), "settings": settings, "code": code}
    else:
        content = _read(file)
        if content is None:
            raise StoreMismatchError(f"the settings of the search in {str(folder)!r} are damaged: choose another folder")
        _check(folder, content, settings, code, accept_changed_code)
        if content["settings"]["plan"] == settings["plan"]:
            return History(folder)
        folder.delete(_HISTORY)  # The stored Dataset belongs to a search with fewer rounds.
        content["settings"] = settings
    folder.write(_SETTINGS, [json.dumps(_with_digest(content), indent=1).encode()])
    return History(folder)


def _check(folder: Folder, content: Mapping[str, Any], settings: Any, code: Mapping[str, Any], accept: bool) -> None:
    """Raises StoreMismatchError if the stored search (`content`) differs in settings (except for fewer rounds) or in code (unless `accept`)."""
    there, here = content["settings"], settings
    if here["plan"]["runs"] > there["plan"]["runs"]:
        there, here = ({**one, "plan": {**one["plan"], **dict.fromkeys(_GROWING)}} for one in (there, here))
    difference = first_difference(there, here)
    if difference:
        raise StoreMismatchError(f"{str(folder)!r} holds another search: {difference}; choose another folder")
    changed = changes(content["code"], code)
    if changed and not accept:
        shown = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        advice = "choose another folder, or continue anyway with accept_changed_code=True (--accept-changed-code)"
        raise StoreMismatchError(f"{str(folder)!r} was made by other code: {shown} changed; {advice}")


def dataset(history: History, space: Space, goal: Goal, horizon: int, chosen: int) -> xr.Dataset:
    """Returns the evaluations of a search as a Dataset (one row for one candidate on one set of seeds), and stores it in the folder.

    Variables along `evaluation` are `phase`, `generation`, `structure`, `candidate`, `first_seed` and `seeds`, as in `Batch`. There are also `rounds`
    (simulated so far), `score`, its standard error `stderr`, `valid`, and `feasible`: whether the runs satisfy all bounds with the margin. Further
    ones are `parameter.<name>` for each hyperparameter (for a `Choice` the option's name), and `mean.<name>` and `stderr.<name>` for each metric.

    `horizon` is the number of rounds of a run after the warm-up, `chosen` the number of the candidate that the search chose.
    """
    rows: list[dict[str, Any]] = []
    rounds = 0
    for batch, (values, valid) in history.evaluated:
        for place, (candidate, point) in enumerate(zip(batch.candidates, batch.points, strict=True)):
            rounds += batch.seeds * horizon
            own = {name: runs[place] for name, runs in values.items()}
            estimate = goal.estimate(own, valid[place])
            row: dict[str, Any] = {name: getattr(batch, name) for name in ("phase", "generation", "structure")}
            row |= {"candidate": candidate, "first_seed": batch.first_seed, "seeds": batch.seeds, "rounds": rounds}
            row |= dict(zip(("score", "stderr"), estimate.score))
            row |= {"feasible": goal.is_feasible(estimate), "valid": estimate.valid}
            for name, value in space.values(batch.structure, point).items():
                scale = space.parameters[name]
                index = scale.index(value) if isinstance(scale, Choice) else None
                row[f"parameter.{name}"] = value if index is None else scale.names[index]
            for name, runs in own.items():
                row[f"mean.{name}"], row[f"stderr.{name}"] = moments(runs)
            rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    data = xr.Dataset({name: ("evaluation", np.array([row.get(name, np.nan) for row in rows])) for name in columns})
    data["score"].attrs = {"long_name": goal.name, "better": "max" if goal.maximise else "min"}
    for name, scale in space.parameters.items():
        if isinstance(scale, Choice):
            data[f"parameter.{name}"].attrs = encoded({"scale": "choice", "values": scale.names})
        else:
            log = isinstance(scale, Log) or (isinstance(scale, Integer) and scale.log)
            data[f"parameter.{name}"].attrs = {"scale": "log" if log else "linear", "low": scale.low, "high": scale.high}
    bounds = {f"at_most.{n}": v for n, v in goal.at_most.items()} | {f"at_least.{n}": v for n, v in goal.at_least.items()}
    data.attrs = {"horizon": horizon, "chosen": chosen, "margin": goal.margin, **bounds}
    if history.folder is not None:
        history.folder.write(_HISTORY, [json.dumps(data.to_dict()).encode()])
    return data


def load(out: str | os.PathLike[str]) -> xr.Dataset:
    """Reads the Dataset of a finished search from its folder. Raises ValueError if there is none."""
    file = Path(out) / _HISTORY
    if not file.is_file():
        raise ValueError(f"out must be the folder of a finished search, got {show(str(out))}")
    return xr.Dataset.from_dict(json.loads(file.read_bytes()))


@style.styled
def picture(history: xr.Dataset, *, title: str | None = None) -> Any:
    """Draws the scores of a search against the simulated rounds, and against each hyperparameter. Returns the figure.

    A point is a candidate on one set of seeds, hollow if it does not satisfy the bounds. Finalists and tested candidates have error bars of two
    standard errors. Points of the search phase have none, because the candidates of a generation share their noise.

    Args:
      history: history of a `SearchResult`, or from `load`.
      title: title above the figure (default: none).

    Raises:
      ValueError: `history` is not the history of a search.
    """
    if not isinstance(history, xr.Dataset) or "phase" not in history or "chosen" not in history.attrs:
        raise ValueError(f"history must be that of a search, got {show(history)}")
    names = [str(name) for name in history.data_vars if str(name).startswith("parameter.")]
    figure, axes = plot.panels(1 + len(names), columns=2 if len(names) in (1, 3) else 3)
    for ax, name in zip(axes, ["rounds", *names], strict=True):
        _panel(ax, history, name)
        ax.set_ylabel(style.wrapped(str(history["score"].attrs.get("long_name", "score")), 30))
    plot.share_legend(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    return figure


def _panel(ax: Any, history: xr.Dataset, name: str) -> None:
    """Draws the scores of a search against the variable `name` of its history: "rounds" (simulated so far), or a hyperparameter."""
    attributes, values = decoded(history[name].attrs), history[name].values
    names = list(attributes.get("values", ()))
    places = np.array([names.index(v) for v in values], float) if names else values.astype(float)
    scores, errors = history["score"].values, 2 * history["stderr"].values
    phases, feasible = history["phase"].values, history["feasible"].values.astype(bool)
    chosen = history["candidate"].values == history.attrs["chosen"]
    groups: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("candidates of the search", phases == "search", {"color": "#0072B2", "marker": "o", "markersize": 3.2, "alpha": 0.75}),
        ("finalists on fresh seeds", phases == "selection", {"color": "#E69F00", "marker": "s", "markersize": 4.2}),
        ("start, tested", (phases == "test") & ~chosen, {"color": "#000000", "marker": "X", "markersize": 6.0}),
        ("chosen candidate, tested", (phases == "test") & chosen, {"color": "#D55E00", "marker": "D", "markersize": 6.0}),
    ]  # fmt: skip
    for label, members, look in groups:
        for satisfied in (True, False):
            some = members & (feasible == satisfied)
            if some.any():
                bars = None if phases[some][0] == "search" else errors[some]
                options = look | {"linestyle": "none", "elinewidth": 1.0, "mfc": look["color"] if satisfied else "none"}
                text = label if satisfied else f"{label}: not feasible"
                ax.errorbar(places[some], scores[some], yerr=bars, label=text, **options)
    if attributes.get("scale") == "log":
        ax.set_xscale("log")
    if names:
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    else:
        numbers(ax.xaxis)
    numbers(ax.yaxis)
    ax.set_xlabel("simulated rounds" if name == "rounds" else name.removeprefix("parameter."))
    grid_lines(ax)
    _hide_extremes(ax, scores[phases == "search"], scores[phases != "search"])


def _hide_extremes(ax: Any, searched: np.ndarray, tested: np.ndarray) -> None:
    """Limits the vertical axis to all `tested` scores and to the `searched` ones without outliers. Does nothing for fewer than 20 scores."""
    shown = np.concatenate([searched, tested])
    shown = shown[np.isfinite(shown)]
    if len(shown) < 20:
        return
    low, high = np.quantile(shown, [0.1, 0.9])
    margin = 0.5 * (high - low)
    inside = shown[(shown >= low - margin) & (shown <= high + margin)]
    low, high = min(inside.min(), tested.min()), max(inside.max(), tested.max())
    margin = 0.08 * ((high - low) or 1.0)
    ax.set_ylim(low - margin, high + margin)
