"""Compares routing rules on a served log: estimates their values, decides what the log proves, and describes it."""

import math
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import jaxroute as jr
from jaxroute.data import ServedLog
from jaxroute.offpolicy import Calibration, Evaluator, Verdict, balance, estimate, verdicts
from jaxroute.offpolicy import support as supported
from jaxroute.offpolicy.evaluation import LEAST_SIZE, LOGGED, Evaluated, Value

from .. import serving
from ..page import plain
from ..page.numbers import measured, percent, share, within
from ..points import Pair, PointSummary, Summary, checked_target
from .candidates import Candidate, fitted_rules, single_models

FEWEST = 40  # Smallest number of queries of a comparison.
_AFFORDABLE = 20.0  # Largest multiple of the log's queries that would be collected to decide.


@dataclass(frozen=True, eq=False, repr=False)
class ServedComparison:
    """Result of comparing routing rules on a served log.

    Attributes:
      log: the log, with the propensities that were used.
      name: name of the log.
      target: requested quality.
      logged: the log's own rule.
      base: rule to which savings are relative: the log's own, or, if that misses the target, the cheapest single model that is proven to meet it.
      candidates: all other rules.
      verdicts: simultaneous intervals of the rules that the log supports, in the order of `candidates`.
      problem: reason why no other rule can be evaluated, in a sentence; None if there is none.
      answerable: what the log can answer, in sentences.
      calibration: calibration of estimated propensities, or None.
      seconds: wall-clock time of each step.
      command: shell command that reproduces the report.
    """

    log: ServedLog
    name: str
    target: float
    logged: Evaluated
    base: Evaluated
    candidates: tuple[Candidate, ...]
    verdicts: tuple[Verdict, ...]
    problem: str | None
    answerable: tuple[str, ...]
    calibration: Calibration | None
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""

    def verdict(self, candidate: Candidate) -> Verdict | None:
        """Returns the simultaneous intervals of a candidate, None if the log does not support it."""
        return next((v for v in self.verdicts if v.rule is candidate.evaluated), None)

    def meets(self, candidate: Candidate) -> bool | None:
        """Whether a candidate's quality is at least the target: True or False if the log proves it, None if it is open."""
        verdict = self.verdict(candidate)
        if verdict is None or verdict.quality.low < self.target <= verdict.quality.high:
            return None
        return verdict.quality.low >= self.target

    @property
    def best(self) -> Candidate | None:
        """Recommended rule: the cheapest that is proven to meet the target and to be cheaper than `base`, or is `base`; None if there is none.

        If the log's own rule misses the target and no single model is proven to meet it, any rule that is proven to meet it qualifies.
        """
        any_saving = self.base is self.logged and self._logged_meets is False
        proven = [c for c in self.candidates if self.meets(c) and (any_saving or self._saves(c) or c.evaluated is self.base)]
        return min(proven, key=lambda c: c.evaluated.cost.value, default=None)

    @property
    def likely(self) -> Candidate | None:
        """Cheapest rule that seems to meet the target and to save, of those that an affordable number of queries would decide; None if none seems to."""
        cheaper = [
            c for c in self.candidates if self.verdict(c) is not None and c.evaluated.cost.value < self.base.cost.value
        ]
        fits = sorted((c for c in cheaper if c.evaluated.quality.value >= self.target), key=lambda c: c.evaluated.cost.value)
        return next((c for c in fits if self._needed(c) <= _AFFORDABLE), fits[0] if fits else None)

    def _needed(self, candidate: Candidate) -> float:
        """Returns how many times as many queries would prove that a candidate meets the target and saves, if the estimates are right."""
        verdict, quality = self.verdict(candidate), candidate.evaluated.quality.value
        assert verdict is not None
        above, saving = quality - self.target, verdict.saving
        times = ((quality - verdict.quality.low) / above) ** 2 if above > 0 else math.inf
        return max(times, ((saving.high - saving.low) / 2 / verdict.saved) ** 2 if verdict.saved > 0 else math.inf)

    @property
    def chosen(self) -> list[Candidate]:
        """The candidates to show: all single models, and of each kind of rule the cheapest that is proven to meet the target, else the likeliest to."""
        by_strategy: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            by_strategy.setdefault(candidate.strategy, []).append(candidate)

        def rank(candidate: Candidate) -> tuple[bool, bool, float]:
            quality = candidate.evaluated.quality.value
            fits = quality >= self.target
            return self.meets(candidate) is True, fits, -candidate.evaluated.cost.value if fits else quality

        found = [max(of, key=rank) for of in by_strategy.values()]
        return [*found, *(c for c in (self.best, self.likely) if c is not None and not any(c is f for f in found))]

    def _saves(self, candidate: Candidate) -> bool:
        verdict = self.verdict(candidate)
        return verdict is not None and verdict.saving.low > 0

    @property
    def sentences(self) -> list[str]:
        """Answer in words: a headline and further sentences."""
        goal, logged, best = share(self.target), self.logged, self.best
        now = f"The log's own rule reached {percent(_pair(logged.quality))} at {measured(_pair(logged.cost))} {self.log.cost_unit}."
        if self.problem is not None:
            return [f"This log cannot tell what another rule would cost. {self.problem}", now]
        if best is not None:
            return [f"{self._described(best)}{self._assuming}.", now, *self._unproven(best)]
        supported = [c for c in self.candidates if self.verdict(c) is not None]
        if all(self.meets(c) is False for c in supported) and self._logged_meets is not True:
            most = max(supported, key=lambda c: c.evaluated.quality.value, default=None)
            known = "" if most is None else f"; the best rule that it supports is {_named(most)}, at {self._interval(most)}"
            return [f"The log shows no rule that reaches {goal}{known}{self._assuming}.", now]
        return [f"The log proves no saving at {goal}{self._assuming}.", now, *self._unproven(None)]

    def _described(self, candidate: Candidate) -> str:
        verdict, cost, name = self.verdict(candidate), candidate.evaluated.cost, _named(candidate)
        assert verdict is not None
        about = f"at {measured((cost.value, None))} {self.log.cost_unit}"
        if candidate.evaluated is not self.base:
            about += f", {_saved(verdict)} than {self._compared_with}"
        ratio = cost.value / self.logged.cost.value if self.logged.cost.value > 0 else 1.0
        if self.base is not self.logged:
            about += f", and {share(round(abs(1 - ratio), 2))} {'less' if ratio < 1 else 'more'} than now"
        return (
            f"{name[0].upper()}{name[1:]} reaches {share(self.target)}: its quality is {self._interval(candidate)} {about}"
        )

    @property
    def _compared_with(self) -> str:
        return (
            "now"
            if self.base is self.logged
            else f"always using {self.base.name}, the cheapest single model that is proven to"
        )

    def _interval(self, candidate: Candidate) -> str:
        verdict = self.verdict(candidate)
        assert verdict is not None
        return within((candidate.evaluated.quality.value, None), (verdict.quality.low, verdict.quality.high))

    @property
    def _assuming(self) -> str:
        return (
            ""
            if self.calibration is None
            else f", if the choice of models depended only on {self.log.source.removeprefix('estimated from ')}"
        )

    def _unproven(self, best: Candidate | None) -> list[str]:
        """Returns a sentence about a cheaper rule that may meet the target, and how many queries would decide; nothing if there is none."""
        likely = self.likely
        if likely is None or (best is not None and likely.evaluated.cost.value >= 0.98 * best.evaluated.cost.value):
            return []
        verdict = self.verdict(likely)
        assert verdict is not None
        named = f"Still cheaper may be {_named(likely)}" if best else f"Most likely {_named(likely)} would do"
        alone = likely.evaluated.quality.interval
        single = (
            "" if alone is None else f"; {100 * alone.low:.1f} to {100 * alone.high:.1f} if only this rule were asked about"
        )
        text = f"{named}: {self._interval(likely)}{single}, {_saved(verdict)} than {self._compared_with}."
        times = self._needed(likely)
        if 1 < times <= _AFFORDABLE:
            text += f" If the estimate is right, about {_round((times - 1) * self.log.num_queries):,} more queries like these would prove it."
        elif times > _AFFORDABLE:
            text += f" Its estimate is too close to {share(self.target)} for any affordable number of queries; choose a lower target to leave it a margin."
        return [text]

    @property
    def sentence(self) -> str:
        """Headline and further sentences as one text."""
        return " ".join(self.sentences)

    @property
    def exported(self) -> Candidate | None:
        """Rule that `report` saves for new queries: the recommended one; None if there is none."""
        return self.best if self.problem is None else None

    def strategy(self, candidate: Candidate | None = None) -> serving.Strategy:
        """Returns a routing strategy for new queries, of `candidate`, or else of the recommended rule.

        Raises `ValueError` if no rule is recommended and none is given.
        """
        chosen = self.exported if candidate is None else candidate
        if chosen is None or chosen.rule is None:
            raise ValueError(f"the log proves no rule at {share(self.target)}: specify a candidate, one of `candidates`")
        log = self.log
        width = 0 if log.features is None else log.features.shape[1]
        if isinstance(chosen.rule, serving.Mixture):
            return serving.Strategy(chosen.strategy, str(chosen.rule), chosen.rule, unit=log.cost_unit)
        return serving.Strategy(
            chosen.strategy, str(chosen.rule), chosen.rule, log.reader, width, log.group_names, log.cost_unit
        )

    @property
    def summary(self) -> Summary:
        """Content of the report as plain JSON, with the keys of `Comparison.summary` and these further ones.

        - `problem`: reason why no other rule can be evaluated, or null; `answerable`: what the log can answer, in sentences.
        - `least_size`: least effective sample size of a rule with an interval.
        - `base`: rule to which savings are relative, in words.
        - `overlap`: for each model the number of its answers, its share, and the effective sample size of "always this model".
        - `points`: also `evidence` (how the values are known), `size` (effective sample size), and simultaneous intervals `quality_interval` and
          `saving_interval`, null if the log does not support them. `meets` is true, false, or null if the log leaves it open.
        """
        log, first = self.log, self.sentences
        singles = [c for c in self.candidates if c.strategy in log.models]
        models = [
            {"name": c.strategy, "quality": _pair(c.evaluated.quality), "cost": _pair(c.evaluated.cost)} for c in singles
        ]
        points = [self._point(None), *map(self._point, self.candidates)]
        place = next((i + 1 for i, c in enumerate(self.candidates) if c is self.best), None)
        number = np.bincount(log.model, minlength=log.num_models)
        sizes = {c.strategy: c.evaluated.size for c in singles}
        return {
            "jaxroute": jr.__version__,
            "target": self.target,
            "sentence": first[0],
            "besides": first[1:],
            "best": place,
            "answered": place is not None,
            "problem": self.problem,
            "answerable": list(self.answerable),
            "least_size": LEAST_SIZE,
            "base": "the log's own rule" if self.base is self.logged else f"always using {self.base.name}",
            "overlap": [
                {"name": m, "answers": int(n), "share": float(n / log.num_answers), "size": sizes.get(m, 0.0)}
                for m, n in zip(log.models, number, strict=True)
            ],
            "data": {
                "file": self.name,
                "queries": log.num_queries,
                "unit": log.cost_unit,
                "currency": log.currency,
                "latency": log.latency is not None,
                "features": log.described,
                "read": list(log.read),
                "models": sorted(models, key=lambda m: m["cost"][0]),
            },
            "points": points,
            "sensitivity": [],
            "assumptions": _assumptions(log, self.calibration is not None),
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "orders": 0,
            "command": self.command,
            "to_route": self.to_route(),
        }

    def _point(self, candidate: Candidate | None) -> PointSummary:
        found = self.logged if candidate is None else candidate.evaluated
        verdict = None if candidate is None else self.verdict(candidate)
        is_single = candidate is not None and candidate.strategy in self.log.models
        chosen = candidate is None or any(candidate is c for c in self.chosen)
        latency = found.latency and _pair(found.latency)
        return {
            "strategy": LOGGED if candidate is None else candidate.strategy,
            "kind": "logged" if candidate is None else "single" if is_single else "offline",
            "setting": "" if candidate is None else candidate.setting,
            "quality": _pair(found.quality),
            "cost": _pair(found.cost),
            "calls": (1.0, None),
            "latency": latency,
            "late_quality": None,
            "late_cost": None,
            "without": None,
            "meets": self._logged_meets if candidate is None else self.meets(candidate),
            "answer": chosen,
            "saving": None if verdict is None or found is self.base else (verdict.saved, None),
            "needs": [] if candidate is None else list(candidate.needs),
            "shares": {name: float(part) for name, part in zip(self.log.models, found.shares, strict=True) if part > 1e-12},
            "further": "",
            "learning": None,
            "evidence": found.known,
            "size": found.size,
            "quality_interval": None if verdict is None else (verdict.quality.low, verdict.quality.high),
            "saving_interval": None if verdict is None or found is self.base else (verdict.saving.low, verdict.saving.high),
        }

    @property
    def _logged_meets(self) -> bool | None:
        interval = self.logged.quality.interval
        if interval is None or interval.low < self.target <= interval.high:
            return None
        return interval.low >= self.target

    def to_route(self, file: str = serving.FILE) -> tuple[str, str]:
        """Returns an explanation and Python code for routing a new query with the strategy saved in `file`."""
        chosen = self.exported
        if chosen is None:
            return "No rule is recommended, so none is stored.", ""
        text = f"Saved: {_named(chosen)}. It needs jaxroute and {file}, but not the log."
        is_blind, log = isinstance(chosen.rule, serving.Mixture), self.log
        inputs = [] if is_blind else serving.inputs_of(log.reader, log.features is not None, log.groups is not None)
        return text, serving.code_for(inputs, file)

    def table(self, width: int | None = None) -> str:
        """Returns a table of the rules as text, from the cheapest; `width` limits its lines if not None."""
        return plain.text(self.summary, width)

    def report(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes the page, its numbers and pictures, and the recommended strategy to a folder. Returns the paths of the files."""
        return serving.write_report(self.summary, None if self.exported is None else self.strategy(), Path(folder))

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.table()}"


class _Inspected:
    """Served log with propensities, estimated if necessary, and what it can answer."""

    def __init__(self, log: ServedLog, progress: Callable[[str], None]) -> None:
        self.calibration: Calibration | None = None
        if log.propensity is None:
            progress("propensities")
            log, self.calibration = estimate(log)
        is_estimated = self.calibration is not None
        test = balance(log)
        self.problem = supported.unfit(log, test, is_estimated)
        self.evaluator = Evaluator(log)
        progress("single models")
        self.singles = single_models(self.evaluator)
        self.answerable = supported.sentences(log, [c.evaluated for c in self.singles], self.calibration, test, self.problem)


def answerable(log: ServedLog) -> list[str]:
    """Returns what a served log can answer, in sentences; the last one says why it cannot answer anything, if it cannot."""
    seen = _Inspected(log, lambda text: None)
    return [*seen.answerable, *([] if seen.problem is None else [seen.problem])]


def compare_served(
    log: ServedLog,
    *,
    target_quality: float,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    command: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> ServedComparison:
    """Compares routing rules on a served log: which is proven to reach a quality at less cost than the log's own rule?

    Args:
      log: a log from `jaxroute.data.read_served`; unknown propensities are estimated.
      target_quality: requested mean score, above 0 and below 1.
      out: folder for the report; None for no report.
      name: name of the log in the report.
      command: command that reproduces the report.
      progress: is called with each step in words.

    Raises `ValueError` if an argument is out of range or the log has fewer than 40 queries.
    """
    target = checked_target(target_quality)
    name = name or "a served log"
    if log.num_queries < FEWEST:
        raise ValueError(f"{name} must have at least {FEWEST} queries with a scored answer, got {log.num_queries}")
    seconds = {}
    start = time.perf_counter()
    seen = _Inspected(log, progress)
    seconds["propensities"] = time.perf_counter() - start
    mark = time.perf_counter()
    evaluator, singles, problem = seen.evaluator, seen.singles, seen.problem
    logged = evaluator.logged()
    progress("fitted rules")
    rules = [] if problem else fitted_rules(evaluator, singles)
    candidates = (*singles, *rules)
    base, rated = logged, [c.evaluated for c in candidates]
    found = () if problem else tuple(verdicts(rated, base, log.clusters))
    if logged.quality.interval is not None and logged.quality.interval.high < target:
        models = [v.rule for v in found if v.quality.low >= target and v.rule.name in log.models]
        base = min(models, key=lambda e: e.cost.value, default=logged)
        found = tuple(verdicts(rated, base, log.clusters)) if found else ()
    seconds["rules"] = time.perf_counter() - mark
    command = shlex.join(["jaxroute", "compare", name, "--target-quality", f"{target:g}"]) if command is None else command
    about = (tuple(seen.answerable), seen.calibration, seconds, command)
    result = ServedComparison(evaluator.log, name, target, logged, base, candidates, found, problem, *about)
    if out is not None:
        progress("the report")
        result.report(out)
    return result


def _named(candidate: Candidate) -> str:
    if not candidate.setting:
        return f"always using {candidate.strategy}"
    return f"{candidate.strategy} ({candidate.setting})"


def _saved(verdict: Verdict) -> str:
    """Returns a saving with its interval, as in "12.0 % (8.1 to 15.3) less" or "5.0 % (2.0 to 8.1) more"."""
    saved, low, high = verdict.saved, verdict.saving.low, verdict.saving.high
    if saved < 0:
        return f"{within((-saved, None), (-high, -low))} more"
    return f"{within((saved, None), (low, high))} less"


def _pair(value: Value) -> Pair:
    return value.value, None if math.isnan(value.error) else value.error


def _round(number: float) -> int:
    digits = 10 ** max(len(str(int(number))) - 2, 0)
    return int(math.ceil(number / digits) * digits)


def _assumptions(log: ServedLog, estimated: bool) -> list[str]:
    lines = [
        "Each query was answered by a model that the log's rule chose. Answers are reweighted by the probability of their model under the compared rule, "
        "divided by their propensity; values are doubly robust estimates with cross-fitted ridge regressions (Dudik et al., 2011).",
        "Intervals in the answer hold for all compared rules together with probability 95 %, so that the best of many rules does not look better than it is.",
        "A rule is recommended only if the whole interval of its quality is at least the target and the whole interval of its saving is above 0.",
        "Savings are relative to the log's own rule or, if that misses the target, to the cheapest single model that is proven to meet it. A router is five routers, each fitted to four fifths of the queries and evaluated on the others; a new query is sent to one of them at random.",
        "Future queries are like those of the log, and the models answer as they did.",
        f"Propensities: {log.source}.",
    ]
    if estimated:
        lines.append(
            "Estimated propensities are right only if the choice of a model depended on nothing else than the inputs above."
        )
    return lines
