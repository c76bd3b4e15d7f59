"""What a search has played: in memory, in a folder from which a killed search goes on, and as a Dataset.

A search asks its strategy for candidates, plays them and tells the strategy what came out; all three follow from the settings and the
seeds. So what was played is the only state: a search that goes on asks again from the start, and finds the answers here, to the last bit.
One with more rounds asks for the same generations first, and then for others: what it finds is what it would have found in an empty folder.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.core.attributes import encoded
from jaxroute.core.checks import show
from jaxroute.core.code import changes
from jaxroute.core.description import first_difference
from jaxroute.core.provenance import now
from jaxroute.store.packs import StoreMismatchError, digest_of, plain
from jaxroute.store.places import Folder, is_url
from jaxroute.tune.playing import Played
from jaxroute.tune.ranking import Goal, moments
from jaxroute.tune.space import Choice, Integer, Log, Space

PHASES: tuple[str, ...] = ("search", "choice", "judgement")
_ABOUT, _HISTORY, _BATCH = "search.json", "history.json", "batch-"
_FORMAT = 1
# Parts of the plan that are others in a search with more rounds.
_GROWING = ("runs", "judged", "choice")


@dataclass(frozen=True)
class Batch:
    """Candidates of one structure that were, or are to be, played on the same seeds.

    phase: "search", "choice" or "judgement".
    generation: of the structure's search, or rung of the choice.
    structure: number of the choices.
    candidates: numbers of the candidates.
    points: `[n][d]` where they lie in the unit cube.
    first_seed: the first of consecutive seeds.
    seeds: their number.
    """

    phase: str
    generation: int
    structure: int
    candidates: Sequence[int]
    points: Sequence[Sequence[float]]
    first_seed: int
    seeds: int

    @property
    def span(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)


class History:
    """The batches that a search has asked for, in order.

    folder: where they are kept, with those of earlier processes.
    played: batches and what came out.

    Raises:
      StoreMismatchError: a file is damaged.
    """

    def __init__(self, folder: Folder | None = None):
        self.folder = folder
        self.played: list[tuple[Batch, Played]] = []
        files = [] if folder is None else sorted(folder.path.glob(f"{_BATCH}*.json"))
        self._kept = dict(map(_read, files))
        self._next = 1 + max((int(file.stem.removeprefix(_BATCH)) for file in files), default=-1)

    def stored(self, batch: Batch) -> Played | None:
        """What came out of a batch, if it was played before; it is then part of the history."""
        played = self._kept.get(_asked(asdict(batch)))
        if played is not None:
            self.played.append((batch, played))
        return played

    def add(self, batch: Batch, played: Played) -> None:
        """Keeps what came out of a batch."""
        values, valid = played
        if self.folder is not None:
            said = {"batch": asdict(batch), "values": {n: v.tolist() for n, v in values.items()}, "valid": valid.tolist()}
            self.folder.write(f"{_BATCH}{self._next:05d}.json", [json.dumps(_sealed(said)).encode()])
            self._next += 1
        self.played.append((batch, played))

    @property
    def rounds(self) -> dict[str, int]:
        """Runs so far by phase."""
        count: dict[str, int] = dict.fromkeys(PHASES, 0)
        for batch, _ in self.played:
            count[batch.phase] += len(batch.candidates) * batch.seeds
        return count


def _asked(batch: Mapping[str, Any]) -> str:
    """What decides what comes out of a batch."""
    return json.dumps([batch[name] for name in ("phase", "structure", "points", "first_seed", "seeds")])


def _sealed(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a file says, with a digest of it."""
    found = json.loads(json.dumps({name: value for name, value in said.items() if name != "digest"}))
    return {**found, "digest": digest_of(plain(found)).hex()}


def _is_sound(said: Mapping[str, Any]) -> bool:
    return said.get("digest") == _sealed(said)["digest"]


def _read(file: Path) -> tuple[str, Played]:
    """A batch by what was asked, and what came out."""
    try:
        found = json.loads(file.read_bytes())
    except ValueError:
        found = {}
    if not _is_sound(found):
        raise StoreMismatchError(f"{str(file)!r} is damaged: delete it to have it played again")
    values = {name: np.asarray(runs, np.float64) for name, runs in found["values"].items()}
    return _asked(found["batch"]), (values, np.asarray(found["valid"], bool))


def opened(
    out: str | os.PathLike[str] | None, settings: Mapping[str, Any], code: Mapping[str, Any], accept: bool
) -> History:
    """Returns the history in a folder; an empty one in memory without. With more rounds its search continues.

    Args:
      out: the folder, or None.
      settings: all that decides what is played, as plain JSON.
      code: what those who play do.
      accept: the code may have changed.

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
    found = _described(folder)
    if found is None:
        _describe(folder, {"created": now(), "settings": settings, "code": code})
    else:
        _check(folder, found, settings, code, accept)
        if found["settings"]["plan"] != settings["plan"]:
            folder.delete(_HISTORY)  # That of fewer rounds.
            _describe(folder, {**found, "settings": settings})
    return History(folder)


def _describe(folder: Folder, about: Mapping[str, Any]) -> None:
    """Says what the search in a folder is."""
    folder.write(_ABOUT, [json.dumps(_sealed({"format": _FORMAT, **about}), indent=1).encode()])


def _described(folder: Folder) -> dict[str, Any] | None:
    """What the search in a folder is; None for an empty one."""
    file = folder.path / _ABOUT
    if not file.is_file():
        if folder.names(""):
            raise StoreMismatchError(f"{str(folder)!r} holds something else than a search: choose another folder")
        return None
    try:
        found = json.loads(file.read_bytes())
    except ValueError:
        found = {}
    if not _is_sound(found):
        raise StoreMismatchError(f"the description of the search in {str(folder)!r} is damaged: choose another folder")
    return found


def _check(
    folder: Folder, found: Mapping[str, Any], settings: Mapping[str, Any], code: Mapping[str, Any], accept: bool
) -> None:
    """Refuses another search, unless it differs by more rounds alone, and other code."""
    there, here = found["settings"], settings
    if here["plan"]["runs"] > there["plan"]["runs"]:
        there, here = ({**one, "plan": {**one["plan"], **dict.fromkeys(_GROWING)}} for one in (there, here))
    what = first_difference(there, here)
    if what:
        raise StoreMismatchError(f"{str(folder)!r} holds another search: {what}; choose another folder")
    changed = changes(found["code"], code)
    if changed and not accept:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise StoreMismatchError(
            f"{str(folder)!r} was made by other code: {', '.join(changed[:4])}{more} changed; choose another folder, or go on nevertheless "
            "with accept_changed_code=True (--accept-changed-code)"
        )


def dataset(history: History, space: Space, goal: Goal, horizon: int, chosen: int, **attributes: Any) -> xr.Dataset:
    """Every evaluation of a search: one candidate on one set of seeds.

    Args:
      history: what was played.
      space: its leaves.
      goal: what was searched for.
      horizon: counted rounds of a run.
      chosen: number of the candidate that was chosen.
      attributes: more of them.

    Returns:
      Variables along `evaluation`: `phase`, `generation` (in the choice: the rung), `structure`, `candidate`, `first_seed`, `seeds`, `rounds`
      (played until then), `score` and its standard error `stderr`, `keeps` (whether all bounds are kept with the margin), `valid`,
      `leaf.<name>` for each leaf (of a choice its name), and for each metric `mean.<name>` and `stderr.<name>`.
    """
    rows: list[dict[str, Any]] = []
    rounds = 0
    for batch, (values, valid) in history.played:
        names = space.structure_names[batch.structure]
        for place, (candidate, point) in enumerate(zip(batch.candidates, batch.points, strict=True)):
            rounds += batch.seeds * horizon
            own = {name: runs[place] for name, runs in values.items()}
            known = goal.estimate(own, valid[place])
            row: dict[str, Any] = {
                "phase": batch.phase,
                "generation": batch.generation,
                "structure": batch.structure,
                "candidate": candidate,
                "first_seed": batch.first_seed,
                "seeds": batch.seeds,
                "rounds": rounds,
                "score": known.score[0],
                "stderr": known.score[1],
                "keeps": goal.keeps(known),
                "valid": known.valid,
            }
            row |= {f"leaf.{n}": names.get(n, v) for n, v in space.values(batch.structure, point).items()}
            for name, runs in own.items():
                row[f"mean.{name}"], row[f"stderr.{name}"] = moments(runs)
            rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    data = xr.Dataset({name: ("evaluation", np.array([row.get(name, np.nan) for row in rows])) for name in names})
    data["score"].attrs = {"long_name": goal.name, "better": "max" if goal.maximise else "min"}
    for name, scale in space.leaves.items():
        data[f"leaf.{name}"].attrs = _scale(scale)
    bounds = {f"at_most.{n}": v for n, v in goal.at_most.items()} | {f"at_least.{n}": v for n, v in goal.at_least.items()}
    data.attrs = {"horizon": horizon, "chosen": chosen, "margin": goal.margin, **bounds, **attributes}
    if history.folder is not None:
        history.folder.write(_HISTORY, [json.dumps(data.to_dict()).encode()])
    return data


def load(out: str | os.PathLike[str]) -> xr.Dataset:
    """The history of a finished search from its folder.

    Raises:
      ValueError: there is none.
    """
    file = Path(out) / _HISTORY
    if not file.is_file():
        raise ValueError(f"out must be the folder of a finished search, got {show(str(out))}")
    return xr.Dataset.from_dict(json.loads(file.read_bytes()))


def _scale(scale: Any) -> dict[str, Any]:
    if isinstance(scale, Choice):
        return encoded({"scale": "choice", "values": scale.names})
    log = isinstance(scale, Log) or (isinstance(scale, Integer) and scale.log)
    return {"scale": "log" if log else "linear", "low": scale.low, "high": scale.high}
