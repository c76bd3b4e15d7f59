"""Compares routing strategies: reads a log, measures all strategies on it, and recommends one."""

import hashlib
import json
import math
import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

import jaxroute as jr
from jaxroute.core import checks
from jaxroute.data import Log, RoutingTable, read_log

from . import choice, learning, offline, serving
from .learning import OnlineStrategy
from .page import plain
from .page.numbers import share
from .page.write import put
from .points import Pair, Point, PointSummary, Summary, checked_target

_SERVED = 160_000  # Online policies serve about this many queries in all random orders together.
_FEWEST = 40  # Smallest number of queries that can be divided into queries for fitting and held-out queries.
# Further targets are examined, at these distances from the requested one.
_AROUND = (-0.1, -0.05, -0.025, 0.0, 0.025, 0.05, 0.1)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Result of comparing routing strategies on a log of recorded queries.

    Attributes:
      log: log of the queries.
      name: name of the log.
      target: requested quality.
      points: all routing strategies at all settings.
      orders: number of random orders in which online policies serve the queries.
      targets: all target qualities for which strategies are compared, including the requested one.
      warm: share of the queries at the beginning of each order that online policies serve uncounted, to learn.
      seconds: wall-clock time of each step: "reading", "fitted rules", "report", and the name of each online policy.
      command: shell command that reproduces the report; empty if the data are no file, or were read with options.
      opened: line of Python code that reads the log, for the report.
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
        """Recommendation: the cheapest deployable strategy, the cheapest with a perfect judge, and the cheapest single model that meet the target."""
        return choice.answer(self.points, self.target)

    @property
    def sentences(self) -> list[str]:
        """Recommendation in words: a headline and further sentences."""
        return choice.sentences(self.points, self.answer, self.log.table.cost_unit)

    @property
    def sentence(self) -> str:
        """Headline and further sentences as one text."""
        return " ".join(self.sentences)

    @property
    def summary(self) -> Summary:
        """Content of the report as plain JSON: `summary.json`, from which the page, its pictures and the tables are made.

        A pair is a mean and its standard error; NaN and infinity are null. Keys that are not obvious:

        - `sentence`, `besides`: headline and further sentences.
        - `best`: index of the point of the headline, null if no deployable strategy meets the target.
        - `answered`: whether the point of the headline is clearly cheaper than the cheapest single model that meets the target.
        - `data`: `file`, `queries` (their number), `unit` and `currency` of costs, `latency` (whether it is recorded), `features` (their source),
          `read` (remarks from reading the log), and `models` from the cheapest to the most expensive (`name`, `quality`, `cost`).
        - `points`: fields of `points.Point` with the measures of `judged`, in no particular order; `without` names what prevents deployment, or is
          null, `answer` marks the chosen setting of a strategy, and `saving` is relative to the cheapest single model that meets the target.
        - `sensitivity`: the cheapest deployable `strategy` and the cheapest `single` model that meet each examined target.
        - `seconds`: wall-clock time of each step; `orders`: number of random orders of the queries for online policies.
        - `to_route`: explanation and Python code for routing a new query; the code may be empty.
        """
        log, table, target = self.log, self.log.table, self.target
        singles, names = {p.strategy: p.judged for p in self.points if p.kind == "single"}, table.order_by_cost().models
        answer, chosen = self.answer, {id(p) for p in choice.answers(self.points, target)}
        first, *besides = self.sentences
        return {
            "jaxroute": jr.__version__,
            "target": target,
            "sentence": first,
            "besides": besides,
            "best": next((i for i, p in enumerate(self.points) if p is answer.best), None),
            "answered": answer.saves,
            "data": {
                "file": self.name,
                "queries": table.num_queries,
                "unit": table.cost_unit,
                "currency": table.currency,
                "latency": log.latency is not None,
                "features": log.features,
                "read": list(log.read),
                "models": [{"name": n, "quality": singles[n].quality.pair, "cost": singles[n].cost.pair} for n in names],
            },
            "points": [_point(p, target, answer.single, id(p) in chosen, self.opened) for p in self.points],
            "sensitivity": [_sensitivity(choice.answer(self.points, other)) for other in self.targets],
            "assumptions": assumptions(self),
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "orders": self.orders,
            "command": self.command,
            "to_route": self.to_route(),
        }

    def table(self, width: int | None = None) -> str:
        """Returns a table of strategies at their chosen settings as text, first those that meet the target. `width` limits its lines if not None."""
        return plain.text(self.summary, width)

    def shares(self, width: int | None = None) -> str:
        """Lists the shares of the queries for which each strategy of `table` calls each model, in lines of at most `width` letters (None: any)."""
        return plain.shares(self.summary, width)

    @property
    def exported(self) -> Point | None:
        """Point whose rule `report` saves for new queries, as chosen by `choice.saved`; None if no point qualifies."""
        return choice.saved(self.points, self.target, serving.can_be_saved)

    def strategy(self, point: Point | None = None) -> serving.Strategy:
        """Returns a routing strategy for new queries, fitted to the whole log in a few seconds.

        `point` (None: `exported`) is one of `points`: a single model, or a rule fitted without a perfect judge. Raises `ValueError` otherwise.
        """
        point = self.exported if point is None else point
        if point is None:
            raise ValueError(f"no fitted rule reaches {share(self.target)}: specify a point, or a lower target")
        return serving.strategy_of(self.log, point)

    def to_route(self, file: str = serving.FILE) -> tuple[str, str]:
        """Returns an explanation and Python code for routing a new query with the strategy saved in `file`."""
        best, point = self.answer.best, self.exported
        learns = ""
        if best is not None and best is not point and self.answer.single is not point:
            learns = f"{choice.named(best)} learns online and cannot be saved as a rule; see the `further` field of its point for how to run it."
        if point is None:
            return f"{learns} No fitted rule reaches {share(self.target)}, so none is saved.".strip(), ""
        first = "The cheapest rule that can be saved is saved" if learns else "Saved"
        code = serving.snippet(self.log, point, file)
        needs = "jaxroute, scikit-learn" if "(text" in code else "jaxroute"
        text = f"{first}: {choice.named(point)}, fitted to all queries of the log. It needs {needs} and {file}, but not the log."
        if point.kind == "single":
            text = f"{first}: {point.strategy} for every query, because no deployable strategy is clearly cheaper."
        return f"{learns} {text}".strip(), code

    @property
    def dataset(self) -> xr.Dataset:
        """All strategies at all settings as a Dataset over `point`: means of `Point.judged`, such as `quality`, and errors as `<name>_error`."""
        columns = {
            f"{name}{suffix}": ("point", [float(getattr(getattr(p.judged, name), part, math.nan)) for p in self.points])
            for name in ("quality", "cost", "calls", "latency")
            for suffix, part in (("", "value"), ("_error", "error"))
        }
        names = ("strategy", "kind", "setting", "without", "further")
        texts = {name: ("point", [getattr(p, name) or "" for p in self.points]) for name in names}
        chosen = {id(p) for p in choice.answers(self.points, self.target)}
        meets, answers = [p.meets(self.target) for p in self.points], [id(p) in chosen for p in self.points]
        flags = {"meets": ("point", meets), "answer": ("point", answers)}
        unit = self.log.table.cost_unit
        about = {"sentence": self.sentence, "target": self.target, "cost_unit": unit, "orders": self.orders}
        return xr.Dataset({**columns, **flags}, coords=texts, attrs=about)

    def report(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes the page, its numbers and pictures, and the strategy of `exported` to a folder. Returns the paths of the files."""
        return serving.write_report(self.summary, None if self.exported is None else self.strategy(), Path(folder))

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.table()}"

    def _repr_html_(self) -> str:
        return plain.html(self.summary)


def _point(point: Point, target: float, single: Point | None, chosen: bool, opened: str) -> PointSummary:
    judged, late, learned = point.judged, point.late, point.learning
    return {
        **{name: getattr(point, name) for name in ("strategy", "kind", "setting")},
        **{name: getattr(judged, name).pair for name in ("quality", "cost", "calls")},
        "latency": judged.latency and judged.latency.pair,
        "late_quality": late and late.quality.pair,
        "late_cost": late and late.cost.pair,
        "without": point.without,
        "meets": point.meets(target),
        "answer": chosen,
        "saving": _saving(point, single) if chosen else None,
        "needs": list(point.needs),
        "shares": dict(point.shares),
        "further": "\n".join(line for line in (opened, point.further) if line) if point.further else "",
        "learning": learned and {name: list(getattr(learned, name)) for name in ("queries", "quality", "cost")},
    }


def _sensitivity(found: choice.Answer) -> Summary:
    best, single = found.best, found.single
    return {
        "target": found.target,
        "strategy": best and best.strategy,
        "setting": best and best.setting,
        "quality": best and best.judged.quality.pair,
        "cost": best and best.judged.cost.pair,
        "single": single and single.strategy,
        "saving": best and _saving(best, single),
    }


def _saving(point: Point, single: Point | None) -> Pair | None:
    return None if single is None or single is point else choice.saving(point, single).pair


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
    on_start: Callable[[list[str]], None] | None = None,
    callback: Callable[[str], None] | None = None,
    **reading: Any,
) -> Comparison:
    """Compares routing strategies on a log: finds the strategy that reaches a quality at the least cost.

    Args:
      data: a file, a data frame, a `RoutingTable` or a `Log`; see `jaxroute.data.read_log`.
      target_quality: requested mean score, above 0 and below 1.
      out: folder for the report, from which an interrupted comparison resumes; None for no report.
      name: name of the log in the report (default: the name of the file).
      minutes: time limit; the number of random orders of the queries is doubled as long as it allows. None never doubles it.
      orders: number of random orders of the queries for online policies, at least 4; None for 8 to 32, by the number of queries.
      warm: share of the queries, at most .5, at the beginning of each order that online policies serve uncounted: a warm start.
      command: command that reproduces the report (default: the command for a file without further options).
      progress: whether to show a line with the current step.
      on_start: is called once with a description of the steps, as soon as the log is read.
      callback: is called with each step in words as it begins, for example "step 14 of 30: LinUCB".
      reading: further arguments of `read_log`.

    Raises:
      ValueError: an argument is out of range, the log cannot be read or is too small, or the folder holds another comparison.
    """
    target = checked_target(target_quality)
    if minutes is not None:
        minutes = float(checks.positive("minutes", minutes, ()))
    if orders is not None:
        orders = checks.count("orders", orders, minimum=4)
    if not 0.0 <= float(checks.numbers("warm", warm, ())) <= 0.5:
        raise ValueError(f"warm must be a share of at most .5 of the queries, got {warm!r}")
    start = time.perf_counter()
    if isinstance(data, Log) and reading:
        raise ValueError(f"{next(iter(reading))} must be left out if data is a Log, which has already been read")
    seconds: dict[str, float] = {}
    with _Progress(progress, callback) as tracker:
        tracker.set_description_str("reading")
        log = data if isinstance(data, Log) else read_log(data, **reading)
        table = log.table
        if table.num_queries < _FEWEST:
            raise ValueError(f"data must have at least {_FEWEST} queries that all models answered, got {table.num_queries}")
        targets = _targets(table, target)
        traffic = learning.Traffic.of(table, log.latency, log.signals)
        online = learning.strategies_for(traffic, targets)
        number = orders or int(np.clip(_SERVED // table.num_queries, 8, 32))
        # A fit for each fold and for the whole table, the simulations, and the report.
        steps = math.prod(offline.partitions(table.num_queries)) + 1 + sum(one.num_grids for one in online) + 1
        lines = _description(log, target, online, orders=number, steps=steps, warm=float(warm), minutes=minutes)
        folder, file = None if out is None else Path(out), data if isinstance(data, (str, os.PathLike)) else None
        name = name or ("a table" if file is None else Path(file).name)
        if folder is not None:
            _claim(folder, log, name, {"target_quality": target, "warm": float(warm)})
        seconds["reading"] = time.perf_counter() - start
        if on_start is not None:
            with tqdm.external_write_mode():  # The text appears above the progress line.
                on_start(lines)
        tracker.total = steps

        mark = time.perf_counter()
        fixed = offline.offline(table, targets, latency=log.latency, progress=tracker)
        seconds["fitted rules"] = time.perf_counter() - mark

        with tempfile.TemporaryDirectory() as temporary:
            runs = Path(temporary) if folder is None else folder / "runs"
            options = {"warm": float(warm), "folder": runs, "progress": tracker}
            learned = _learned(traffic, online, target, targets, seconds, orders=number, **options)
            while minutes is not None and _fits(start, seconds, minutes):
                number *= 2
                tracker.total += sum(one.num_grids for one in online)
                learned = _learned(traffic, online, target, targets, seconds, orders=number, **options)
        if command is None:
            words = ["jaxroute", "compare", os.fspath(file or ""), "--target-quality", f"{target:g}"]
            words += [] if out is None else ["--out", os.fspath(out)]
            command = "" if file is None or any(reading.values()) else shlex.join(words)
        points = (*fixed, *learned)
        found = Comparison(log, name, target, points, number, targets, float(warm), seconds, command, log.opened)
        if folder is not None:
            tracker("the report")
            mark = time.perf_counter()
            found.report(folder)
            seconds["report"] = time.perf_counter() - mark
    return found


def _description(
    log: Log, target: float, online: Sequence[OnlineStrategy], *, orders: int, steps: int, warm: float, minutes: float | None
) -> list[str]:
    """Describes a comparison in lines of text before it begins; `steps` is the number of its steps, the other arguments are as in `compare`."""
    table = log.table
    fitted = offline.strategies(offline.sample_of(table, log.latency))
    times, folds = offline.partitions(table.num_queries)
    uncounted = f" (the first {100 * warm:g} % of each are not counted)" if warm else ""
    more = "" if minutes is None else f", doubled as long as it fits into {minutes:g} min"
    number, models = len(fitted) + len(online), table.num_models
    return [
        f"{number} routing strategies between {models} models: which reaches {share(target)} at the least cost?",
        f"{models} single models, each for all queries, as a reference",
        f"{len(fitted)} fitted to a part of the queries and evaluated on the others, in {times} random partitions into {folds} folds: "
        f"{'; '.join(strategy.name for strategy in fitted)}",
        f"{len(online)} learning online, in {orders} random orders of the queries{uncounted}{more}: "
        f"{'; '.join(strategy.name for strategy in online)}",
        f"At most {steps} steps. Takes a few minutes (the first time mostly compilation); can be interrupted and resumed.",
    ]


def _learned(
    traffic: learning.Traffic,
    online: Sequence[OnlineStrategy],
    target: float,
    targets: Sequence[float],
    seconds: dict[str, float],
    progress: "_Progress",
    **options: Any,
) -> list[Point]:
    """Simulates the `online` policies by `learning.simulate` and returns their points. Adds the time that each policy took to `seconds`."""
    points: list[Point] = []
    done, simulated = progress.n, learning.simulate(traffic, target, targets, progress=progress, **options)
    for strategy in online:
        mark = time.perf_counter()
        points += next(simulated)
        done += strategy.num_grids
        progress.n = done  # A second simulation that was not needed counts as done.
        seconds[strategy.name] = seconds.get(strategy.name, 0.0) + time.perf_counter() - mark
    return points


def _fits(start: float, seconds: dict[str, float], minutes: float) -> bool:
    """Whether a simulation as long as all previous ones together (in `seconds`, by step) would end within `minutes` of `start` (`perf_counter`)."""
    simulated = sum(value for name, value in seconds.items() if name not in ("reading", "fitted rules", "report"))
    return time.perf_counter() - start + simulated < 60.0 * minutes


def _claim(folder: Path, log: Log, name: str, settings: dict[str, float]) -> None:
    """Creates the folder of a report; records its log (called `name`) and settings. Raises ValueError if the folder holds another comparison."""
    table = log.table
    digest = hashlib.sha256(json.dumps([table.models, table.cost_unit, table.features is not None]).encode())
    for array in (table.scores, table.costs, table.groups):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    size = f"{table.num_queries:,} queries, {table.num_models} models"
    about = {"log": name, "size": size, "digest": digest.hexdigest(), **settings}
    file = folder / "comparison.json"
    recorded = json.loads(file.read_text("utf-8")) if file.exists() else about
    holds = f"{folder} holds the comparison of {recorded['log']}"
    if recorded["digest"] != about["digest"]:
        raise ValueError(f"{holds} ({recorded['size']}), and this is another log: {name} ({size}); choose another folder")
    for setting, value in settings.items():
        if recorded[setting] != value:
            there, here = f"{setting}={recorded[setting]:g}", f"{value:g}"
            raise ValueError(f"{holds} at {there}, and this one is at {here}; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    put(file, json.dumps(about, ensure_ascii=False).encode("utf-8", "replace"))


def _targets(table: RoutingTable, target: float) -> tuple[float, ...]:
    """Returns the requested target and up to six others nearby, between the worst model's mean score and the mean of each query's best score."""
    low, high = float(table.mean_scores().min()), float(table.scores.max(axis=1).mean())
    around = [round(target + step, 6) for step in _AROUND]
    return tuple(t for t in around if t == round(target, 6) or (low < t < high and 0.0 < t < 1.0))


def assumptions(found: Comparison) -> list[str]:
    """Lists the assumptions behind the numbers of a comparison, as sentences for the report."""
    table, traffic = found.log.table, learning.Traffic.of(found.log.table, found.log.latency)
    mistakes = "their mistakes while learning are counted"
    if found.warm:
        mistakes = f"the first {100 * found.warm:g} % of each order are not counted"
    lines = [
        "Quality is the mean score of the answer that the user gets; cost is that of all calls made for a query.",
        "All models answered the same queries, so answers to one query are dependent. Cascades are evaluated with this dependence.",
        "Rules are fitted to one part of the queries and evaluated on the others, in several random partitions. Settings are chosen on some "
        "partitions and evaluated on the others.",
        f"Online policies start untrained and serve each query once, in {found.orders} random orders, the same for all policies; {mistakes}. "
        "Settings are chosen on every other order and evaluated on the rest.",
        "Settings are chosen and evaluated on the same queries, in different orders or partitions: the chosen setting looks better than it is "
        "by up to .7 of its standard error with some hundred queries, and by almost nothing with thousands.",
        "Numbers in parentheses are standard errors, over orders (or partitions) and over queries together. Errors of savings are those of two "
        "independent means, which is conservative, since both were measured on the same queries.",
        "A strategy meets the target if its quality is at most half a standard error below it, on the data that its setting was chosen on and on "
        "the data that it is evaluated on. A saving is clear from two standard errors above 0.",
        "A perfect judge sees the recorded score of each answer immediately and for free. COSMOS, C2MAB-V with several models, and the cascades "
        "that mention it have one: their results are upper bounds for a real judge.",
        "Policies do not know the cost of a call in advance; MESS+, whose paper assumes it known, uses the mean of past calls.",
    ]
    if any(p.strategy.startswith("ACQB") for p in found.points):
        lines.append(
            "ACQB serves queries of the log as users who accept an answer or try again, with probabilities from scores and costs as in its paper; "
            "its pool has at most 1,000 of the queries, drawn with replacement. Its cost includes every answer that was not accepted. "
            "Users who reject wrong answers act as judges, so ACQB cannot be deployed where users do not try again."
        )
    if not traffic.binary:
        lines.append("MESS+ guarantees a share of scores of at least .5, which is not the requested mean score.")
    if traffic.table.num_models < table.num_models:
        lines.append(
            f"Online policies choose among {traffic.table.num_models} of the {table.num_models} models: those on the Pareto frontier of mean "
            "score and cost, then the best of the others."
        )
    return lines


class _Progress(tqdm):
    """Shows the current step, such as "step 3 of 9: report", and the elapsed time on stderr, if `shown`. `callback` gets each step's text."""

    def __init__(self, shown: bool, callback: Callable[[str], None] | None = None):
        super().__init__(total=0, bar_format="{desc} [{elapsed}]", disable=not shown, file=sys.stderr, leave=False)
        self._callback, self._ended = callback, threading.Event()
        self._beat = threading.Thread(target=self._refresh, daemon=True)
        if shown:
            self._beat.start()

    def _refresh(self) -> None:
        while not self._ended.wait(1.0):
            self.refresh()

    def __call__(self, text: str) -> None:
        """Begins the next step, which `text` describes."""
        self.n += 1
        text = f"step {self.n} of {self.total}: {text}"
        self.set_description_str(text)
        if self._callback is not None:
            self._callback(text)

    def close(self) -> None:
        self._ended.set()
        if self._beat.is_alive():
            self._beat.join()
        super().close()
