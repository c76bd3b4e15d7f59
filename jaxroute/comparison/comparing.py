"""The comparison: reads a log, measures every way of routing on it, and says which one to take."""

import contextlib
import hashlib
import json
import math
import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

import jaxroute as jr
from jaxroute.core import checks
from jaxroute.data import Log, RoutingTable, read_log

from . import choice, learning, serving
from .offline import offline
from .page import plain, write
from .page.numbers import share
from .page.write import put
from .planning import Plan, plan
from .points import Estimate, Measures, Point
from .summary import Pair, PointSummary, SensitivitySummary, Summary

# With fewer queries nothing can be fitted to some and judged on others.
_FEWEST = 40
# Other targets that are looked at, from the one asked for.
_AROUND = (-0.1, -0.05, -0.025, 0.0, 0.025, 0.05, 0.1)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What was found.

    Attributes:
      log: what was compared on.
      name: of the log.
      target: quality asked for.
      points: every way of routing at every setting.
      orders: random orders of the queries that learning policies met.
      targets: other qualities that were looked at.
      warm: share of each order that learning policies met first, and that is not counted.
      seconds: how long each part took.
      command: that makes the report again; empty for a table of Python's.
      opened: the line of Python that reads the log.
    """

    log: Log
    name: str
    target: float
    points: tuple[Point, ...]
    orders: int
    targets: tuple[float, ...]
    warm: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""
    opened: str = ""

    @property
    def answer(self) -> choice.Answer:
        """The cheapest ways to reach the target."""
        return choice.answer(self.points, self.target)

    @property
    def sentences(self) -> list[str]:
        """The answer in words, and what is to be said besides."""
        return choice.sentences(self.points, self.answer, self.log.table.cost_unit)

    @property
    def sentence(self) -> str:
        """All of them as one text."""
        return " ".join(self.sentences)

    @property
    def summary(self) -> Summary:
        """All that the page shows, as plain JSON."""
        table = self.log.table
        found = self.answer
        order = np.argsort(table.mean_costs(), kind="stable")
        singles = {p.approach: p for p in self.points if p.kind == "single"}
        first, *besides = self.sentences
        return {
            "jaxroute": jr.__version__,
            "target": self.target,
            "sentence": first,
            "besides": besides,
            "best": next((i for i, p in enumerate(self.points) if p is found.best), None),
            "answered": found.saves,
            "data": {
                "file": self.name,
                "queries": table.num_queries,
                "unit": table.cost_unit,
                "currency": table.currency,
                "latency": self.log.latency is not None,
                "features": self.log.features,
                "read": list(self.log.read),
                "models": [
                    {
                        "name": table.models[k],
                        "quality": singles[table.models[k]].judged.quality.pair,
                        "cost": singles[table.models[k]].judged.cost.pair,
                    }
                    for k in order
                ],
            },
            "points": self._points(found),
            "sensitivity": [_sensitivity(choice.answer(self.points, target)) for target in self.targets],
            "assumptions": assumptions(self),
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "orders": self.orders,
            "command": self.command,
            "to_route": self.to_route(),
        }

    def _points(self, found: choice.Answer) -> list[PointSummary]:
        chosen = {id(p) for p in choice.answers(self.points, self.target)}
        return [
            _point(p, self.target, found.single if id(p) in chosen else None, id(p) in chosen, self.opened)
            for p in self.points
        ]

    def table(self, width: int | None = None) -> str:
        """The chosen setting of each approach as text: those that meet the target, those that do not, and those that are out of reach.

        Args:
          width: of a line; longer settings are cut.
        """
        return plain.text(self.summary, width)

    def shares(self, width: int | None = None) -> str:
        """How often each chosen way asks each model, as text, in the order of `table`.

        Args:
          width: of a line.
        """
        return plain.shares(self.summary, width)

    @property
    def kept(self) -> Point | None:
        """The way that `way` makes and `report` saves: the answer if it is a rule fitted to the log, else the cheapest such rule that meets the target."""
        return choice.saved(self.points, self.target, serving.can_be_saved)

    def way(self, point: Point | None = None) -> serving.Way:
        """A way of routing for queries that are new, fitted to the whole log; takes seconds.

        Args:
          point: one of `points` that is a single model or fitted to the log; None for `kept`.

        Raises:
          ValueError: the point is no such rule, or no such rule reaches the target.
        """
        point = self.kept if point is None else point
        if point is None:
            raise ValueError(
                f"no rule that is fitted to the log reaches {share(self.target)}: give a point, or a lower target"
            )
        return serving.way_of(self.log, point)

    def to_route(self, file: str = serving.FILE) -> tuple[str, str]:
        """How to route a new query: a sentence, and Python that does it.

        Args:
          file: where the way is saved.
        """
        found, kept = self.answer, self.kept
        best = found.best
        learns = ""
        if best is not None and best is not kept and found.single is not kept:
            learns = f"{choice.named(best)} learns while it serves and is no rule that can be saved: how to play it is under “To go on”, or in the `further` of its point."
        if kept is None:
            lacking = f"No rule that is fitted to the log reaches {share(self.target)}, so none is saved."
            return f"{learns} {lacking}".strip(), ""
        first = "Of the rules that can be, the cheapest is saved" if learns else "saved"
        first = first if learns else first.capitalize()
        code = serving.snippet(self.log, kept, file)
        needs = "jaxroute, scikit-learn" if "(text" in code else "jaxroute"
        text = f"{first}: {choice.named(kept)}, fitted to all queries of the log. It needs {needs} and {file}, and no log."
        if kept.kind == "single":
            text = f"{first}: {kept.approach} for every query, as the cheapest choice does not clearly save money."
        return f"{learns} {text}".strip(), code

    @property
    def dataset(self) -> xr.Dataset:
        """All points as a Dataset with the dimension `point`: judged means, and their standard errors as `<name>_error`."""
        columns = {
            f"{name}{suffix}": ("point", [_value(getattr(p.judged, name), part) for p in self.points])
            for name in ("quality", "cost", "calls", "latency")
            for suffix, part in (("", "value"), ("_error", "error"))
        }
        texts = {
            name: ("point", [getattr(p, name) or "" for p in self.points])
            for name in ("approach", "kind", "setting", "without", "further")
        }
        chosen = {id(p) for p in choice.answers(self.points, self.target)}
        flags = {
            "meets": ("point", [p.meets(self.target) for p in self.points]),
            "answer": ("point", [id(p) in chosen for p in self.points]),
        }
        about = {
            "sentence": self.sentence,
            "target": self.target,
            "cost_unit": self.log.table.cost_unit,
            "orders": self.orders,
        }
        return xr.Dataset({**columns, **flags}, coords=texts, attrs=about)

    def report(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes the page, its summary, tables and pictures, and the way that `kept` names; the files' paths.

        Args:
          folder: is made if it is not there.
        """
        folder = Path(folder)
        made = None if self.kept is None else self.way()
        files = write(self.summary, folder)
        if made is None:
            (folder / serving.FILE).unlink(missing_ok=True)  # Of an earlier comparison.
            return files
        return [*files, made.save(folder / serving.FILE)]

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.table()}"

    def _repr_html_(self) -> str:
        """The answer and the table, as a notebook shows them."""
        return plain.html(self.summary)


def compare(
    data: Any,
    *,
    target_quality: float,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    minutes: float | None = None,
    orders: int | None = None,
    warm: float = 0.0,
    command: str | None = None,
    progress: bool = True,
    begun: Callable[[list[str]], None] | None = None,
    callback: Callable[[str], None] | None = None,
    **reading: Any,
) -> Comparison:
    """Compares all ways of routing on a log, and says which one reaches a quality for the least money.

    Args:
      data: a file, a data frame, a `RoutingTable` or a `Log`; see `jaxroute.data.read_log`.
      target_quality: mean score that is to be reached, above 0 and below 1.
      out: folder for the report; None for none. A comparison that was stopped goes on from what is there.
      name: of the log, for the report; None for that of the file.
      minutes: of all: what is left of them after the comparison goes into more random orders of the queries; None stops at once.
      orders: random orders of the queries that learning policies meet, at least 4; None for 8 to 32, by the number of queries.
      warm: share of the queries that learning policies meet first and that is not counted, at most .5: a warm start.
      command: that makes the report again, for its page; None for the one that a file alone asks for.
      progress: shows what is going on, on one line.
      begun: is told once what is about to be done, a few lines, as soon as the log is read.
      callback: is told each step in words as it begins, for example "step 14 of 30: LinUCB".
      reading: further arguments of `read_log`.

    Raises:
      ValueError: an argument is out of range, the log cannot be read or says too little, or the folder holds another comparison; the message
        says what and where.
    """
    target = _target(target_quality)
    if minutes is not None:
        minutes = float(checks.positive("minutes", minutes, ()))
    if orders is not None:
        orders = checks.count("orders", orders, minimum=4)
    if not 0.0 <= float(checks.numbers("warm", warm, ())) <= 0.5:
        raise ValueError(f"warm must be a share of at most .5 of the queries, got {warm!r}")
    start = time.perf_counter()
    if isinstance(data, Log) and reading:
        raise ValueError(f"{next(iter(reading))} must be left out where data is a Log, which has been read already")
    seconds: dict[str, float] = {}
    with _Progress(progress, callback) as told:
        told.show("reading")
        log = data if isinstance(data, Log) else read_log(data, **reading)
        table = log.table
        if table.num_queries < _FEWEST:
            raise ValueError(f"data must have at least {_FEWEST} queries that all models answered, got {table.num_queries}")
        targets = _targets(table, target)
        planned = plan(log, target, targets, orders=orders, warm=float(warm), minutes=minutes)
        folder, name = None if out is None else Path(out), name or _name(data)
        if folder is not None:
            _claim(folder, log, name, {"target_quality": target, "warm": float(warm)})
        seconds["reading"] = time.perf_counter() - start
        if begun is not None:
            told.aside(lambda: begun(planned.lines))
        told.total = planned.steps

        mark = time.perf_counter()
        fixed = offline(table, targets, latency=log.latency, progress=told)
        seconds["rules that are fitted"] = time.perf_counter() - mark

        number = planned.orders
        with _runs_in(folder) as runs:
            learned = _learned(planned, targets, number, runs, told, seconds)
            while minutes is not None and _fits(start, seconds, minutes):
                number *= 2
                told.total += sum(planned.looks)
                learned = _learned(planned, targets, number, runs, told, seconds)
        found = Comparison(
            log,
            name,
            target,
            (*fixed, *learned),
            number,
            targets,
            float(warm),
            seconds,
            _command(data, target, out, reading) if command is None else command,
            log.opened,
        )
        if folder is not None:
            told("the report")
            mark = time.perf_counter()
            found.report(folder)
            seconds["report"] = time.perf_counter() - mark
    return found


def _learned(
    planned: Plan, targets: Sequence[float], orders: int, runs: Path, told: "_Progress", seconds: dict[str, float]
) -> list[Point]:
    points: list[Point] = []
    mark = time.perf_counter()
    looks = iter(planned.looks)
    done = told.done
    options = {"orders": orders, "warm": planned.warm, "folder": runs, "say": told}
    for of_one in learning.play(planned.traffic, planned.target, targets, **options):
        points += of_one
        done += next(looks)
        told.done = done  # A second look that was not needed is done.
        now = time.perf_counter()
        part = of_one[0].approach
        seconds[part] = seconds.get(part, 0.0) + now - mark
        mark = now
    return points


def _fits(start: float, seconds: dict[str, float], minutes: float) -> bool:
    """Whether as many orders again can be played in what is left of the time."""
    played = sum(value for name, value in seconds.items() if name not in ("reading", "rules that are fitted", "report"))
    return time.perf_counter() - start + played < 60.0 * minutes


def _claim(folder: Path, log: Log, name: str, settings: dict[str, float]) -> None:
    """Makes the folder of a report and writes whose it is; refuses one that holds another comparison."""
    table = log.table
    said = hashlib.sha256(json.dumps([table.models, table.cost_unit, table.features is not None]).encode())
    for array in (table.scores, table.costs, table.groups):
        said.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    size = f"{table.num_queries:,} queries, {table.num_models} models"
    about = {"log": name, "size": size, "digest": said.hexdigest(), **settings}
    file = folder / "comparison.json"
    there = json.loads(file.read_text("utf-8")) if file.exists() else about
    holds = f"{folder} holds the comparison of {there['log']}"
    if there["digest"] != about["digest"]:
        raise ValueError(f"{holds} ({there['size']}), and this is another log: {name} ({size}); choose another folder")
    for setting, value in settings.items():
        if there[setting] != value:
            raise ValueError(f"{holds} at {setting}={there[setting]:g}, and this one is at {value:g}; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    put(file, json.dumps(about, ensure_ascii=False).encode("utf-8", "replace"))


@contextlib.contextmanager
def _runs_in(folder: Path | None) -> Iterator[Path]:
    """Where runs are kept: in the folder of the report, or only as long as they are needed."""
    if folder is not None:
        yield folder / "runs"
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _target(value: Any) -> float:
    target = float(checks.numbers("target_quality", value, ()))
    if not 0.0 < target < 1.0:
        hint = f"; for {target:g} % give {target / 100:g}" if 1.0 < target <= 100.0 else ""
        raise ValueError(f"target_quality must be above 0 and below 1, got {target:g}{hint}")
    return target


def _targets(table: RoutingTable, target: float) -> tuple[float, ...]:
    """Targets around the one asked for, that a model misses and the best answers reach."""
    low, high = float(table.mean_scores().min()), float(table.scores.max(axis=1).mean())
    around = [round(target + step, 6) for step in _AROUND]
    return tuple(t for t in around if t == round(target, 6) or (low < t < high and 0.0 < t < 1.0))


def assumptions(found: Comparison) -> list[str]:
    """What a reader must know to believe the page."""
    table, traffic = found.log.table, learning.Traffic.of(found.log.table, found.log.latency)
    mistakes = "their mistakes while learning are in the numbers"
    if found.warm:
        mistakes = f"what they do in the first {100 * found.warm:g} % is not counted"
    lines = [
        "Quality is the mean score of the answer that the user gets, cost that of all calls made for a query.",
        "All models answered the same queries (joint rows): answers to one query depend on each other, and what is said of a cascade "
        "takes that as it is.",
        "Rules that are fitted see one part of the queries and are judged on another; which parts is drawn several times. Settings are "
        "chosen by some of the drawings, and judged by others.",
        f"Policies that learn start cold and meet each query once, in {found.orders} random orders, the same for all; {mistakes}. Settings "
        "are chosen by every other order, and judged by the others.",
        "Chosen and judged are not drawn from different queries, but from different orders, or partings, of the same ones: what is chosen "
        "looks better than it is by up to .7 of its standard error with some hundred queries, by next to nothing with thousands.",
        "Errors in brackets are one standard error: over orders (or ways to part the queries) and over queries together. Savings are "
        "given the error of two means that are independent, which is more than it is, as both were measured on the same queries.",
        "A way meets the target if its quality does not miss it by more than half of its standard error, where the setting is chosen and again where "
        "it is judged. A saving is one if it is two standard errors above 0.",
        "A perfect judge sees the recorded score of an answer as soon as it is there, for nothing: COSMOS, C2MAB-V with several models, "
        "and the cascades that say so have one. That is an upper bound of what a judge can do, and no answer to what to do without one.",
        "Policies are not told what a call will cost before it is made; MESS+, whose paper lets it know, goes by the mean of past calls.",
    ]
    if any(p.approach.startswith("ACQB") for p in found.points):
        lines.append(
            "ACQB plays queries of the log as users who accept an answer or try again, with probabilities made of scores and costs as in its paper; "
            "its pool has at most 1,000 of the queries, drawn with replacement. Its costs count every answer that was not accepted. "
            "Users who reject wrong answers are judges: it is no answer for those whose users do not try again."
        )
    if not traffic.binary:
        lines.append("MESS+ promises a share of scores of at least .5, which is not the mean score that is asked for here.")
    if traffic.table.num_models < table.num_models:
        lines.append(
            f"Policies that learn choose among {traffic.table.num_models} of the {table.num_models} models, from the cheapest to the best of "
            "those that no cheaper one beats in mean score, then the best of the others."
        )
    return lines


def _value(estimate: Estimate | None, part: str) -> float:
    return math.nan if estimate is None else float(getattr(estimate, part))


def _measure(measures: Measures | None, name: str) -> Pair | None:
    found = None if measures is None else getattr(measures, name)
    return None if found is None else found.pair


def _point(point: Point, target: float, single: Point | None, chosen: bool, opened: str) -> PointSummary:
    judged, learned = point.judged, point.learning
    return {
        "approach": point.approach,
        "kind": point.kind,
        "setting": point.setting,
        "quality": judged.quality.pair,
        "cost": judged.cost.pair,
        "calls": judged.calls.pair,
        "latency": _measure(judged, "latency"),
        "late_quality": _measure(point.late, "quality"),
        "late_cost": _measure(point.late, "cost"),
        "without": point.without,
        "meets": point.meets(target),
        "answer": chosen,
        "saving": None if single is None or single is point else choice.saving(point, single).pair,
        "needs": list(point.needs),
        "shares": dict(point.shares),
        "further": "\n".join(line for line in (opened, point.further) if line) if point.further else "",
        "learning": None
        if learned is None
        else {"queries": list(learned.queries), "quality": list(learned.quality), "cost": list(learned.cost)},
    }


def _sensitivity(found: choice.Answer) -> SensitivitySummary:
    best, single = found.best, found.single
    return {
        "target": found.target,
        "approach": None if best is None else best.approach,
        "setting": None if best is None else best.setting,
        "quality": None if best is None else best.judged.quality.pair,
        "cost": None if best is None else best.judged.cost.pair,
        "single": None if single is None else single.approach,
        "saving": None if best is None or single is None or best is single else choice.saving(best, single).pair,
    }


def _name(data: Any) -> str:
    return Path(data).name if isinstance(data, (str, os.PathLike)) else "a table"


def _command(data: Any, target: float, out: Any, reading: dict[str, Any]) -> str:
    """The command that makes the report again, for a file that was read without further ado."""
    if not isinstance(data, (str, os.PathLike)) or any(reading.values()):
        return ""
    words = ["jaxroute", "compare", os.fspath(data), "--target-quality", f"{target:g}"]
    return shlex.join([*words, *([] if out is None else ["--out", os.fspath(out)])])


class _Progress:
    """A line that says which step is going on and for how long, also while something compiles.

    Args:
      shown: whether there is a line.
      callback: is told each step in words.

    Attributes:
      done: steps that have begun.
      total: steps in all.
    """

    def __init__(self, shown: bool, callback: Callable[[str], None] | None = None):
        self.done, self.total, self._callback = 0, 0, callback
        self._bar: Any = tqdm(total=0, bar_format="{desc} [{elapsed}]", disable=not shown, file=sys.stderr, leave=False)
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._keep_beating, daemon=True)

    def _keep_beating(self) -> None:
        while not self._ended.wait(1.0):
            self._bar.refresh()

    def __enter__(self) -> "_Progress":
        if not self._bar.disable:
            self._beat.start()
        return self

    def __call__(self, text: str) -> None:
        """The next step."""
        self.done += 1
        text = f"step {self.done} of {self.total}: {text}"
        self.show(text)
        if self._callback is not None:
            self._callback(text)

    def show(self, text: str) -> None:
        """What is going on."""
        self._bar.set_description_str(text)

    def aside(self, write: Callable[[], None]) -> None:
        """Lets something write where the line is."""
        with self._bar.external_write_mode():
            write()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._beat.is_alive():
            self._beat.join()
        self._bar.close()
