"""Draws log files at random, with the contents that a reader must find, and judges its result.

A draw begins with the truth (queries, models, scores, costs), writes it as people write logs, and knows whether the file has one interpretation
(`determined`) or must be refused. No code of the reader is used: names, units and rules are repeated here independently.
"""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import math
import random
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

_WORDS = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
# By role: exact names, synonyms, generic names.
NAMES = {role: tuple(tuple(names.split()) for names in levels) for role, levels in _WORDS["names"].items()}
# Names that say something of their own (a unit, another role) and are drawn only where that is meant.
NOT_DRAWN = set(_WORDS["not drawn"].split())
TOKENS, PRICES, VERDICTS = (_WORDS[key] for key in ("tokens", "prices", "verdicts"))  # A price: names, units per million.
COST_UNITS, TIME_UNITS = _WORDS["cost units"], _WORDS["time units"]
OPTIONS, STATISTICS, PLAIN_MODELS, RUNS, WORDS = (
    _WORDS[key].split() for key in ("options", "statistics", "plain models", "runs", "words")
)
FILE_MODELS = [*PLAIN_MODELS, *_WORDS["file models"]]
ODD_MODELS = [*FILE_MODELS, *_WORDS["odd models"]]
SCRIPTS, THEMES, CHOICES = (_WORDS[key] for key in ("scripts", "themes", "choices"))
VERDICT_SCALES = ("binary", "floats", "booleans", "verdicts", "letters")
WITHOUT_GAPS = ("two", "mixed", "restart", "twins", "alike", "apart", "unit", "vectors")
IN_MEMORY = ("pandas", "arrow", "dict", "records")


class Unfit(Exception):
    """Signals that the choices made so far contradict each other; the draw starts again."""


class Column(NamedTuple):
    """A written column: its header, its cells, its true role (empty: none), and its keys in nested JSON."""

    name: str
    cells: list
    role: str = ""
    path: tuple = ()


@dataclass(frozen=True, eq=False)
class Drawn:
    """A drawn log: its truth, and how it is written."""

    seed: int  # Of the draw.
    options: Mapping[str, Any]  # Arguments of `read_log`.
    determined: bool  # Whether there is one reading; if not, the reader must refuse.
    kinds: frozenset[str]  # Properties, with the numbers of the findings that it exercises.
    why: str  # Reason why it is ambiguous, or empty.
    models: tuple[str, ...]
    queries: tuple  # Keys of the queries that have an answer of every model.
    scores: Mapping[tuple, float]  # Mean score by (key, model), of `queries`.
    costs: Mapping[tuple, float]  # Mean cost likewise, in `currency`.
    categories: Mapping[Any, str] | None  # Category by key, or None where nothing is promised.
    latency: Mapping[tuple, float] | None  # Mean seconds by (key, model), or None where the log must have none.
    features: bool  # Whether the table must have features.
    vectors: Mapping[Any, list] | None  # Expected numbers among the features by key, or None.
    prompts: tuple[int, ...] | None  # Sorted counts of the different prompts of `queries`, or None for no promise.
    lines: tuple[str, ...]  # Patterns, each of which must match a line of `Log.read`.
    says: tuple[tuple[str, ...], ...]  # Alternatives, one of each must be in the refusal.
    may_refuse: str  # Word of a refusal that is right, too.
    currency: str  # Of the costs.
    columns: tuple[Column, ...]  # As written.
    keys: tuple[str, ...]  # Columns that together tell queries apart.
    form: Mapping[str, Any]  # How the columns are written.

    def write(self, folder: str | Path) -> Any:
        return written(self.columns, self.form, Path(folder))


@dataclass
class Answer:
    """An answer: its score in [0, 1] and its cost (None if missing), the cells written for them, and further cells by role."""

    cell: Any
    score: float | None
    cost: float | None = None
    cost_cell: Any = None
    more: dict = field(default_factory=dict)
    kept: bool = True


@dataclass
class Query:
    """A question: its true key, the id that is written, and its category, text and features."""

    key: Any
    id: Any
    category: str | None = None
    text: str | None = None
    vector: list | None = None


def log_tables() -> st.SearchStrategy[Drawn]:
    return st.integers(0, 2**40).map(draw_table)


def draw_table(seed: int) -> Drawn:
    rng = random.Random(seed)
    while True:
        theme = rng.choices(list(THEMES), list(THEMES.values()))[0]
        for _ in range(20):
            try:
                return _Making(rng, theme, seed).drawn()
            except Unfit:
                pass


def plain_name(name: str) -> str:
    return re.sub(r"[\s_.\-]", "", name).lower()


KNOWN = {plain_name(name) for levels in NAMES.values() for level in levels for name in level}


def spelled(rng: random.Random, name: str) -> str:
    """Writes a name in a random style: camel case, title case, with blanks, hyphens or capitals."""
    way = rng.choice(["as it is"] * 5 + ["camel", "pascal", "title", "blanks", "hyphens", "upper"])
    if "." in name and way not in ("camel", "as it is"):
        return name
    parts = name.split("_")
    if way == "camel":
        return ".".join(re.sub(r"_(\w)", lambda match: match[1].upper(), part) for part in name.split("."))
    if way == "pascal":
        return "".join(part.capitalize() for part in parts)
    if way == "title":
        return " ".join(part.capitalize() for part in parts)
    joined = {"blanks": " ", "hyphens": "-"}.get(way, "_").join(parts)
    return joined.upper() if way == "upper" else joined


def sentence(rng: random.Random, kind: str, number: int) -> str:
    if kind in SCRIPTS:
        parts = SCRIPTS[kind].split()
        text = "".join(rng.choice(parts) for _ in range(rng.randint(5, 12)))
        return text + f"{number}？" * (kind == "Chinese") + str(number)
    if kind == "formulas":
        integral, total = rf"\int_0^{{{number}}}x^{{2}}dx=?", rf"\sum_{{k=1}}^{{{number}}}k^2"
        return rng.choice([integral, total, f"x^2+{number}x-7=0", f"{number}*17+4=?"])
    if kind == "code":
        return rng.choice(["f(x)=x**{}+1;print(f(2))", "for(i=0;i<{};i++){{a[i]=i;}}", "SELECT(a,{})"]).format(number)
    if kind == "addresses":
        return f"https://example.org/item/{number}?q={rng.randint(10, 99)}"
    words = " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 14)))
    more = {"quotes": f' "so{number}", they say', "lines": f"\nand line {number}", "umlauts": f" für Größe {number}é"}
    return words.capitalize() + more.get(kind, f" {number}")


class Scale(NamedTuple):
    """A way to write scores: functions from a skill to a value, and from a value to its cell and its score in [0, 1]."""

    name: str
    value: Any  # Function from a skill in (0, 1) to a value.
    cell: Any  # Function from a value to its cell.
    unit: Any  # Function from a value to a score in [0, 1].
    suffix: str = ""  # Unit in the header.
    option: tuple | None = None  # Argument `scale` of `read_log`.
    top: Any = None  # Values of the first answers that make the scale unambiguous.


def _number(rng: random.Random, skill: float) -> float:
    return min(1.0, max(0.0, rng.gauss(skill, 0.25)))


def make_scale(name: str, rng: random.Random) -> Scale:
    if name == "fractions":
        digits = rng.choice([1, 2, 3])
        return Scale(name, lambda skill: round(_number(rng, skill), digits), float, float)
    if name in VERDICT_SCALES:
        if name == "verdicts":
            case = rng.choice([str.lower, str.title, str.upper])
            good, bad = map(case, rng.choice(VERDICTS))
        else:
            good, bad = {"binary": (1, 0), "floats": (1.0, 0.0), "booleans": (True, False), "letters": ("C", "I")}[name]
        return Scale(name, lambda skill: int(rng.random() < skill), lambda v: good if v else bad, float)
    if name in ("sign", "named", "percent"):
        digits = None if rng.random() < 0.6 else 1
        mark = rng.choice(["%", "%", " %"])

        def percent(skill):
            value = round(100 * _number(rng, skill), digits)
            return value if value > 1 else rng.choice([0, 2, 7])

        suffix = rng.choice(["_pct", "_percent", "pct_"]) if name == "named" else ""
        kind = float if digits else int
        return Scale(name, percent, (lambda v: f"{v}{mark}") if name == "sign" else kind, lambda v: v / 100, suffix, top=88)
    if name.startswith("grade"):
        high = int(name[5:])
        low, halves = rng.choice([0, 1, 1]), rng.random() < 0.3

        def grade(skill):
            value = low + round((high - low) * _number(rng, skill) * (1 + halves)) / (1 + halves)
            return 0 if value < low + 0.4 else max(value, 2) if low == 0 else value

        value = grade if low == 0 else lambda skill: max(grade(skill), 1)
        return Scale(name, value, float if halves else int, lambda v: (v - low) / (high - low), top=(high, low))
    low, high, top = rng.choice(CHOICES["other scales"])

    def other(skill):
        value = round(low + (top - low) * _number(rng, skill), 2 if high == 1 else None)
        return value if high == 1 or low == 1 or value > 1 else 2 if high == 100 or value == 1 else 0

    kind = float if high in (1, 100) else int
    first = (top, -0.5 if high == 1 else 0.5) if high in (1, 100) else top
    return Scale(name, other, kind, lambda v: (v - low) / (high - low), option=(low, high), top=first)


class _Making:
    """Makes one draw, step by step."""

    def __init__(self, rng: random.Random, theme: str, seed: int):
        self.rng, self.theme, self.seed = rng, theme, seed
        self.options: dict[str, Any] = {}
        self.kinds: set[str] = {theme}
        self.why, self.lines, self.says, self.currency = "", [], [], "USD"
        self.levels: dict[str, int] = {}
        self.headers: dict[str, str] = {}
        self.columns: list[Column] = []
        self.used: set[str] = set()
        self.features, self.where_category, self.per_model = False, "", None

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def option(self, name: str, **entries: Any) -> None:
        self.options.setdefault(name, {}).update(entries)

    def ambiguous(self, why: str, *says: tuple[str, ...]) -> None:
        self.why = self.why or why
        self.says += says

    def drawn(self) -> Drawn:
        self.choose()
        self.make_queries()
        self.make_answers()
        self.make_gaps()
        if self.wide:
            self.wide_columns()
        else:
            self.long_columns()
        form, may_refuse = self.make_form()
        return self.truth(form, may_refuse)

    # The plan.

    def choose(self) -> None:
        rng, theme = self.rng, self.theme
        only_long = ("two", "lower", "vectors", "apart", "alike", "similar", "lists")
        self.wide = theme == "statistic" or (theme not in only_long and self.chance(0.35))
        self.part = rng.choice(CHOICES["part"])
        self.wide &= not (theme == "unit" and self.part in ("cost named", "latency named", "price"))
        self.repeats = theme if theme in ("alike", "apart") else ""
        may_repeat = not self.repeats and not self.wide and theme in ("plain", "lower", "script", "scale", "answers")
        if may_repeat and self.chance(0.35):
            self.repeats = rng.choice(["run", "run", "unnumbered"])
        self.per_model_files = not self.wide and theme not in ("lists", "two", "similar") and self.chance(0.12)
        self.pattern = rng.choice(["prefix", "suffix", "bare"])
        self.mode = rng.choice(["stated"] * 6 + ["prices", "price columns", "costs", "characters"])
        if theme in ("zero", "tokens"):
            self.mode = rng.choice(["prices", "prices", "price columns"]) if theme == "zero" else "prices"
        elif theme == "answers":
            self.mode = "texts"
        elif theme == "costless":
            self.mode = rng.choice(["none", "none", "costs", "prices"])
        elif theme in ("statistic", "alike", "lower", "two", "unit", "lists", "similar"):
            self.mode = "stated" if theme != "statistic" or self.chance(0.8) else "prices"
        if theme == "unit" and self.part == "price":
            self.mode = "price columns"
        if self.mode == "price columns" and self.wide:
            self.mode = "prices"
        units = ["fractions"] * 4 + ["binary", "binary", "floats", "booleans", "verdicts", "letters"]
        names = [*units, "sign", "named", "percent", "percent", "grade5", "grade10"]
        names = units if theme in ("mixed", "two") else names
        self.scale = make_scale("other" if theme == "scale" else rng.choice(names), rng)
        if self.scale.name == "named" and self.pattern == "bare":
            self.pattern = "prefix"
        if theme == "harder" and self.scale.name not in ("fractions", "percent", "sign"):
            self.scale = make_scale("fractions", rng)
        if self.scale.option:
            self.options["scale"] = self.scale.option
            if self.chance(0.6):
                del self.options["scale"]
                self.ambiguous(f"the scale {self.scale.option} of the scores cannot be told from them")
        self.kinds |= {f"scale {self.scale.name}", "wide" if self.wide else "long"}
        if self.repeats:
            self.kinds.add(f"repeats {self.repeats}")
        number = rng.randint(2, 4)
        pool = FILE_MODELS if self.per_model_files else rng.choice([PLAIN_MODELS, ODD_MODELS])
        self.models = rng.sample(pool, number)
        if theme == "statistic":
            words = rng.sample(STATISTICS, rng.randint(1, 2))
            self.models = [*words, *rng.sample(PLAIN_MODELS, max(1, number - len(words)))]
            rng.shuffle(self.models)
            self.kinds.add("L5")
        self.big = theme in ("plain", "restart") and self.chance(0.04)

    def make_queries(self) -> None:
        rng, theme = self.rng, self.theme
        least, most = (24, 36) if theme == "harder" else (80, 160) if self.big else (3, rng.choice([8, 16, 30]))
        at_least_4 = theme in ("mixed", "restart", "alike", "statistic", "incomplete", "twins", "zero")
        number = max(rng.randint(least, most), 4 if at_least_4 else 0)
        script = theme == "script"
        kind = rng.choice([*SCRIPTS, "formulas", "code", "addresses"] if script else ["plain", "quotes", "lines", "umlauts"])
        if theme in ("plain", "answers", "tokens") and self.chance(0.1):
            kind = rng.choice(list(SCRIPTS))
        way = rng.choice(["number", "number", "letter", "path", "hash"])
        start = rng.choice([0, 0, 1, 100])
        named = {
            "number": lambda n: start + n,
            "letter": lambda n: f"q{n}",
            "path": lambda n: f"set/{n:04d}",
            "hash": lambda n: f"{rng.getrandbits(40):010x}x",
        }[way]
        may_have_text = theme not in ("vectors", "similar")
        self.with_text = script or theme in ("twins", "answers") or (may_have_text and self.chance(0.35))
        if self.mode == "characters" and (self.with_text or theme == "restart"):
            self.mode = "costs"  # Lengths beside texts would be said twice.
        by_model = theme == "mixed" and self.chance(0.5)
        with_category = (theme == "mixed" and not by_model) or self.chance(0.4)
        categories = rng.sample(CHOICES["category"], rng.randint(2, 3)) if with_category else []
        self.mixed_by_model = by_model
        self.queries = []
        if theme == "restart":
            by_text = self.chance(0.3)
            self.with_text = by_text or self.chance(0.3)
            sets = ["one", "two"] if by_text else categories or ["law", "maths"]
            sizes = [number, *(max(1, rng.randint(number // 8, number // 2)) for _ in sets[1:])]
            if self.chance(0.25):
                sizes = [max(1, number // 2)] * len(sets)
            for name, size in zip(sets, sizes):
                for n in range(size):
                    text = sentence(rng, "plain", len(self.queries))
                    self.queries.append(Query((name, n), n, None if by_text else name, text if self.with_text else None))
            self.keys = ("query", "text" if by_text else "category")
            self.kinds |= {"L4"} if sum(sizes) <= 1.5 * max(sizes) else set()
            return
        self.keys = ("query",)
        for n in range(number):
            category = categories[n % len(categories) if n < 2 else rng.randrange(len(categories))] if categories else None
            key = named(n)
            self.queries.append(Query(key, key, category, sentence(rng, kind, n) if self.with_text else None))
        if theme == "twins":
            for query in rng.sample(self.queries[1:], rng.randint(1, (number - 1) // 2)):
                others = [other for other in self.queries if other is not query]
                query.text = rng.choice(others).text
            self.kinds.add("L20")
        if theme == "vectors":
            for query in self.queries:
                query.vector = [rng.randint(0, 1), 1_700_000_000 + rng.randrange(10**6) * 1000, round(rng.random(), 3)]
            for n, query in enumerate(self.queries[:2]):
                query.vector[0] = n
            self.features = True
            self.kinds.add("L6")
        if script:
            self.features = True
            self.kinds |= {"L12", f"text {kind}"}
        elif self.with_text and theme != "restart" and len({q.text for q in self.queries}) > 2:
            self.features = True

    def make_answers(self) -> None:
        rng, theme = self.rng, self.theme
        self.skill = {model: rng.uniform(0.35, 0.8) for model in self.models}
        low = rng.uniform(1e-5, 1e-3)
        self.usual = {model: low * rng.uniform(1, 300) for model in self.models}
        if theme == "unit" and self.part in ("small", "large"):
            factor, low, high = (1e-9, 0.1, 1) if self.part == "small" else (30, 1, 5)
            self.usual = {model: factor * rng.uniform(low, high) for model in self.models}
            self.lines.append("implausible")
            self.kinds |= {"L9", "implausible"}
        free = rng.choice(self.models) if self.mode == "stated" and theme != "unit" and self.chance(0.06) else None
        self.cost_unit = ""
        if self.mode == "stated":
            if theme == "unit" and self.part in ("cost", "cost option", "cost named"):
                self.cost_unit = rng.choice(["cents", "ct", "milli", "musd", "micro", "uusd", "per_1k"])
                self.kinds |= {"cost unit"} if self.part == "cost" else {"L9", "cost unit"}
            elif self.chance(0.25) and not (theme == "unit" and self.part in ("small", "large")):
                self.cost_unit = rng.choice(list(COST_UNITS))
                self.kinds.add("cost unit")
            self.currency = self.cost_unit.upper() if self.cost_unit in ("eur", "gbp") else "USD"
        factor = COST_UNITS.get(self.cost_unit, 1)
        self.prices = {
            m: (round(rng.uniform(0.1, 15), 2), round(rng.uniform(0.4, 60), 2), round(rng.uniform(0.01, 0.09), 3))
            for m in self.models
        }
        self.costs = {model: float(f"{rng.uniform(1e-4, 0.2):.4g}") for model in self.models}
        self.price_names = rng.choice([p for p in PRICES if theme != "unit" or p[2] != 1])
        if self.mode == "price columns":
            unit = self.price_names[2]
            self.prices = {m: tuple(float(f"{p / unit:.6g}") * unit for p in three) for m, three in self.prices.items()}
            self.kinds |= {"L9", "price unit"} if theme == "unit" else set()
        self.plan_tokens()
        self.answers: dict[tuple[int, str], list[Answer]] = {}
        in_unit = theme == "unit" and self.part.startswith("latency")
        self.plan_latency(theme != "tokens" and (self.chance(0.3) or in_unit))
        apart = rng.choice(CHOICES["apart"])
        values = [1, 2] if apart == "turn" else rng.sample(CHOICES["setting"], rng.randint(2, 3))
        low_scale = make_scale(rng.choice(["binary", "fractions", "floats"]), rng)
        high_scale = make_scale("percent", rng)
        groups = self.models if self.mixed_by_model else sorted({q.category for q in self.queries if q.category})
        small = set(rng.sample(list(groups), rng.randint(1, len(groups) - 1))) if theme == "mixed" else set()
        seen = Counter()
        for number, query in enumerate(self.queries):
            for model in self.models:
                group = model if self.mixed_by_model else query.category
                scale = self.scale if theme != "mixed" else low_scale if group in small else high_scale
                copies = {"run": 3, "unnumbered": 3, "alike": 4}.get(self.repeats, 1)
                copies = rng.randint(1, copies) if copies > 1 and self.chance(0.5) else copies
                rows = values if self.repeats == "apart" else range(copies)
                made = []
                for n, value in enumerate(rows):
                    skill = 0.95 if value == values[0] and self.repeats == "apart" else self.skill[model]
                    if theme == "mixed":
                        seen[group] += 1
                    v = scale.value(skill)
                    if theme == "mixed" and seen[group] <= 2:
                        v = [0, 1][seen[group] - 1] if scale is low_scale else [88, 35][seen[group] - 1]
                    if self.repeats == "apart" and number == 0 and scale.name in VERDICT_SCALES:
                        v = int(n == 0)
                    v = self.forced(scale, number, model, v, n)
                    made.append(self.answer(scale, query, model, v, factor, free))
                    if self.repeats == "run":
                        made[-1].more["run"] = n
                    if self.repeats == "apart":
                        made[-1].more["apart"] = value
                self.answers[number, model] = made
        if self.repeats == "alike":
            self.make_alike()
        if self.repeats == "apart":
            self.set_apart(apart, values)
        if theme == "mixed":
            self.set_mixed(small, groups)
        if theme == "harder":
            self.set_harder()
        plain = self.scale.name == "percent" and theme != "mixed"
        shares = [a.cell > 1 for rows in self.answers.values() for a in rows] if plain else []
        if shares and sum(shares) < 0.8 * len(shares):
            raise Unfit

    def forced(self, scale: Scale, number: int, model: str, v: Any, n: int) -> Any:
        first = number == 0 and n == 0
        if scale.top is None or self.theme == "mixed" or not first:
            if first and scale.name == "letters":
                return int(model == self.models[0])
            return v
        if isinstance(scale.top, tuple):
            high, low = scale.top
            return high if model == self.models[0] else low if model == self.models[1] else v
        return scale.top

    def plan_tokens(self) -> None:
        rng, self.cached, self.reasoning, self.cached_name, self.reasoning_name = self.rng, "", "", "", ""
        self.token_names = rng.choice(TOKENS)
        self.ignore_cached = self.no_third = False
        if self.theme != "tokens":
            return
        which = rng.choice(["cached", "cached", "reasoning", "both"])
        if which != "reasoning":
            self.cached = rng.choice(["inside", "beside"])
            self.cached_name = rng.choice(CHOICES[f"cached {self.cached}"])
            self.kinds.add(f"cached {self.cached}")
        if which != "cached":
            self.reasoning = rng.choice(["inside", "beside", "thoughts"])
            thoughts = self.reasoning == "thoughts"
            self.reasoning_name = "thoughts_token_count" if thoughts else rng.choice(CHOICES["reasoning"])
            self.kinds.add(f"reasoning {self.reasoning}")
        if self.cached or self.reasoning != "inside":
            self.kinds.add("L19")
        self.ignore_cached = self.cached != "" and self.chance(0.15)
        self.no_third = self.cached != "" and not self.ignore_cached and self.chance(0.3)
        if self.no_third:
            self.ambiguous("the price of cached tokens is not known", (self.cached_name, "cached"))

    def plan_latency(self, present: bool) -> None:
        self.latency_unit, self.latency_way = "", ""
        if not present:
            return
        rng = self.rng
        self.latency_way = rng.choice(["named", "named", "named", "seconds", "cells"])
        if self.theme == "unit" and self.part.startswith("latency"):
            self.latency_way = {"latency none": "none", "latency option": "option", "latency named": "named"}[self.part]
            self.kinds.add("L9")
        elif self.chance(0.05):
            self.latency_way = "none"
            self.kinds.add("L9")
        self.latency_unit = rng.choice([unit for unit in TIME_UNITS if unit != "min" or not self.wide])
        if self.latency_way in ("cells", "none", "option"):
            self.latency_unit = rng.choice(["ms", "ms", "us"]) if self.latency_way != "cells" else rng.choice(["ms", "s"])
        if self.latency_way == "seconds":
            self.latency_unit = "s"
        if self.latency_way == "none":
            self.lines.append("unit")
        self.kinds.add(f"latency {self.latency_way}")

    def answer(self, scale: Scale, query: Query, model: str, v: Any, factor: float, free: str | None) -> Answer:
        rng, mode = self.rng, self.mode
        made = Answer(scale.cell(v), scale.unit(v))
        if mode == "stated":
            made.cost_cell = 0.0 if model == free else float(f"{self.usual[model] * rng.uniform(0.5, 2) * factor:.5g}")
            made.cost = made.cost_cell / factor
        elif mode in ("prices", "price columns", "none"):
            tokens_in, tokens_out = rng.randint(20, 3000), rng.randint(5, 1500)
            cached = rng.randint(1, tokens_in) if self.cached else 0
            reasoning = rng.randint(1, tokens_out) if self.reasoning else 0
            first = query is self.queries[0]
            if self.cached == "beside" and (first or self.chance(0.4)):
                cached = tokens_in + rng.randint(1, 4000)
            if self.reasoning == "beside" and (first or self.chance(0.3)):
                reasoning = tokens_out + rng.randint(1, 900)
            made.more |= {"tokens_in": tokens_in, "tokens_out": tokens_out}
            made.more |= {"tokens_cached": cached, "tokens_reasoning": reasoning}
            price_in, price_out, price_cached = self.prices[model]
            full = tokens_in - cached if self.cached == "inside" else tokens_in
            if self.ignore_cached:
                full, cached = tokens_in, 0
            out = tokens_out + (reasoning if self.reasoning in ("beside", "thoughts") else 0)
            made.cost = (full * price_in + cached * price_cached + out * price_out) / 1e6
        elif mode == "costs":
            made.cost = self.costs[model]
        else:
            price_in, price_out, _ = self.prices[model]
            if mode == "texts":
                kind = rng.choice(["plain", "plain", "quotes", "Chinese"])
                size = 1 + 12 * (self.models.index(model) % 2)
                made.more["response"] = " ".join(sentence(rng, kind, n) for n in range(rng.randint(size, size + 2)))
                lengths = len(query.text), len(made.more["response"])
            else:
                lengths = 40 + len(str(query.key)) * 7, rng.randint(5, 4000)
                made.more |= {"prompt_chars": lengths[0], "response_chars": lengths[1]}
            made.cost = (lengths[0] / 4 * price_in + lengths[1] / 4 * price_out) / 1e6
        if self.latency_way:
            per_second = TIME_UNITS[self.latency_unit]
            cell = float(f"{rng.uniform(0.5, 60) * per_second:.5g}")
            made.more["latency_seconds"] = cell / per_second
            made.more["latency"] = f"{cell:g} {self.latency_unit}" if self.latency_way == "cells" else cell
        return made

    def make_alike(self) -> None:
        """Makes repeated answers that are equal, or differ in the score alone; each of them counts."""
        self.kinds.add("L22")
        pattern = [(1, 1, 1, 0), (0, 0, 0, 1), (1, 1, 0), (0, 0, 1)]
        uneven = False
        for (number, model), rows in self.answers.items():
            first = rows[0]
            cells = {(a.cell, a.score) for a in rows}
            if len(cells) < 2 or len(rows) < 3 or number < 2:
                two = first, self.answer(self.scale, self.queries[number], model, self.scale.value(0.5), 1, None)
                counts = self.rng.choice(pattern)
                rows = [two[c] for c in counts]
                uneven |= two[0].score != two[1].score
            self.answers[number, model] = [Answer(a.cell, a.score, first.cost, first.cost_cell, first.more) for a in rows]
        if not uneven:
            raise Unfit

    def set_apart(self, apart: str, values: list) -> None:
        """Adds a column that distinguishes the answers of one model to one query; half of the draws select one of its values."""
        self.apart = apart
        self.kinds.add("L8")
        if all(len({a.score for a in rows}) == 1 for rows in self.answers.values()):
            raise Unfit
        if self.chance(0.5):
            self.option("where", **{apart: values[0]})
            for rows in self.answers.values():
                for answer in rows:
                    answer.kept = answer.more["apart"] == values[0]
        else:
            self.ambiguous(f"answers of a pair differ in {apart}", (apart,), *((str(value),) for value in values))

    def set_mixed(self, small: set, groups: Any) -> None:
        self.kinds |= {"L3", "scale mixed by model" if self.mixed_by_model else "scale mixed by category"}
        for group in groups:
            pairs = [(n, m) for n, m in self.answers if (m if self.mixed_by_model else self.queries[n].category) == group]
            if len({answer.cell for pair in pairs for answer in self.answers[pair]}) < 2:
                raise Unfit
        if not self.mixed_by_model and self.chance(0.25):
            self.where_category = min(small)
            if sum(query.category == self.where_category for query in self.queries) < 2:
                raise Unfit
            for (number, _), rows in self.answers.items():
                for answer in rows:
                    answer.kept = self.queries[number].category == self.where_category
        else:
            why = "scores of some are fractions and of others percent"
            self.ambiguous(why, tuple(sorted(small)), tuple(sorted(set(groups) - small)))

    def set_harder(self) -> None:
        """Makes the last third of the queries hard, and leaves one model without scores there."""
        self.kinds.add("L18")
        self.lines.append(r"harder|easier|differ|unlike|not like|worse|better|lower|higher")
        lost = self.rng.choice(self.models)
        hard = range(2 * len(self.queries) // 3, len(self.queries))
        self.hard_gaps = [(number, lost) for number in hard]
        for (number, model), rows in self.answers.items():
            if number:
                percent = self.rng.randint(3, 20) if number in hard else self.rng.randint(80, 97)
                value = percent / 100 if self.scale.name == "fractions" else percent
                unit = COST_UNITS.get(self.cost_unit, 1)
                rows[0] = self.answer(self.scale, self.queries[number], model, value, unit, None)

    def make_gaps(self) -> None:
        """Removes scores, costs, tokens or rows of some answers."""
        rng, theme = self.rng, self.theme
        self.missing_rows: set[tuple[int, str]] = set()
        pairs: list[tuple[int, str]] = []
        number = len(self.queries)
        if theme == "harder":
            pairs = self.hard_gaps
        elif theme == "incomplete":
            pairs = [(n, self.models[n % len(self.models)]) for n in range(number)]
            self.ambiguous("no query has an answer of every model")
        elif theme == "zero":
            pairs = [(n, rng.choice(self.models)) for n in rng.sample(range(1, number), rng.randint(1, max(1, number // 3)))]
            self.kinds.add("L7")
        elif theme not in WITHOUT_GAPS and number > 4 and self.chance(0.3):
            pairs = [(n, rng.choice(self.models)) for n in rng.sample(range(2, number), rng.randint(1, number // 4))]
            self.kinds.add("gaps")
        ways = ["score", "score", "cost"] if self.mode == "stated" else ["score"]
        ways += [] if self.wide else ["row", "row"]
        for pair in pairs:
            rows = self.answers[pair]
            way = "zero" if theme == "zero" else rng.choice(ways)
            if way == "row":
                self.missing_rows.add(pair)
            for answer in rows:
                if way == "cost":
                    answer.cost = answer.cost_cell = None
                elif way == "zero":
                    answer.more |= {"tokens_in": 0, "tokens_out": 0}
                    answer.cost = None
                else:
                    answer.score = answer.cell = None

    # The columns.

    def header(self, role: str, unit: str = "", level: int | None = None) -> tuple[str, int]:
        rng = self.rng
        level = rng.choices([0, 1, 2], [0.4, 0.45, 0.15])[0] if level is None else level
        names = [n for n in NAMES[role][level] if n not in NOT_DRAWN]
        names = [n for n in names if not unit or not ("per" in n.split("_") or n == "usd")]
        names = [n for n in names if n != "price" or unit != "per_1k"]  # Per thousand tokens, or queries?
        if not names:
            raise Unfit
        name = rng.choice(names)
        if unit:
            first = unit.endswith("_") or (unit in ("usd", "eur", "cents") and self.chance(0.25))
            name = f"{unit.strip('_')}_{name}" if first else f"{name}_{unit.strip('_')}"
        return spelled(rng, name), level

    def add(self, name: str, cells: list, role: str = "", path: tuple = ()) -> None:
        if plain_name(name) in self.used:
            raise Unfit
        self.used.add(plain_name(name))
        if role:
            self.headers.setdefault(role, name)
        self.columns.append(Column(name, cells, role, path))

    def text_header(self) -> str:
        level = self.levels.get("query", 2)
        names = [*NAMES["text"][0], *NAMES["text"][1], *NAMES["text"][2]]
        return spelled(self.rng, self.rng.choice([n for n in names if level < 2 or n not in NAMES["query"][2]]))

    def long_columns(self) -> None:
        rng, theme = self.rng, self.theme
        pairs = [(n, m) for n in range(len(self.queries)) for m in self.models if (n, m) not in self.missing_rows]
        rows = [(n, m, answer) for n, m in pairs for answer in self.answers[n, m]]
        order = rng.choice(["query", "model", "mixed"])
        if order == "model" or self.per_model_files:
            rows.sort(key=lambda row: self.models.index(row[1]))
        elif order == "mixed":
            rng.shuffle(rows)
        self.rows = rows
        queries = self.queries
        similar = rng.choice(["model", "score", "query", "cost"]) if theme == "similar" else ""
        names = CHOICES.get(f"similar to {similar}", ())
        level = {"two": rng.choice([0, 1, 1, 2]), "lower": rng.choice([0, 0, 1])}.get(theme)
        suffix = self.scale.suffix
        named_cost = theme == "unit" and self.part == "cost named"
        made = {"query": [queries[n].id for n, _, _ in rows], "model": [m for _, m, _ in rows]}
        made["score"] = [a.cell for _, _, a in rows]
        if self.mode == "stated":
            made["cost"] = [a.cost_cell for _, _, a in rows]
        two = rng.choice(["score", "score", "cost", "cost", "latency", "model", "query"]) if theme == "two" else ""
        if two == "latency" and not self.latency_way:
            two = "cost"
        for role, cells in made.items():
            if role == "model" and self.per_model_files:
                self.per_model = cells
                continue
            if role == similar:
                name = spelled(rng, rng.choice(names)) + (f"_{suffix}" if role == "score" and suffix else "")
                if role == "cost" and self.cost_unit:
                    self.option("units", cost=self.cost_unit)
                self.kinds.add("L16")
                if self.chance(0.5):
                    self.option("columns", **{role: name})
                else:
                    self.ambiguous(f"no column is called like the {role}, {name!r} only looks like it", (name,))
                self.add(name, cells, role)
                self.levels[role] = 3
                continue
            unit = suffix if role == "score" else ""
            if role == "cost":
                unit = "" if theme == "unit" and self.part == "cost option" else self.cost_unit
                if not unit and self.cost_unit:
                    self.option("units", cost=self.cost_unit)
                if named_cost:
                    name = f"{rng.choice(['bill', 'paid', 'toll'])}_{self.cost_unit}"
                    self.option("columns", cost=name)
                    self.add(name, cells, role)
                    self.levels[role] = 3
                    continue
            fixed = level if theme != "two" or role == two else None
            if role == "model" and fixed == 2 and theme != "two":
                fixed = 1
            if role == "query" and fixed is not None and (role != two):
                fixed = None
            name, self.levels[role] = self.header(role, unit, self.two_level(role, fixed) if role == two else fixed)
            self.add(name, cells, role)
        self.optional_columns()
        if two:
            self.second_column(two)
        if theme == "lower" or (not two and theme not in ("similar", "scale") and self.chance(0.15)):
            self.lower_columns()
        if self.repeats == "run":
            self.add(spelled(rng, rng.choice(RUNS)), [a.more["run"] for _, _, a in rows])
        if self.repeats == "apart":
            self.add(self.apart, [a.more["apart"] for _, _, a in rows])
        self.decoys()

    def two_level(self, role: str, level: int | None) -> int:
        return 1 if level == 0 or len(set(NAMES[role][level or 1]) - NOT_DRAWN) < 2 else level or 1

    def optional_columns(self) -> None:
        rng, rows, queries, theme = self.rng, self.rows, self.queries, self.theme
        self.shared_columns()
        if queries[0].vector:
            name = self.header("embedding", level=rng.choice([0, 1]))[0]
            self.add(name, [list(queries[n].vector) for n, _, _ in rows], "embedding")
        for role, name in self.more_names().items():
            self.add(spelled(rng, name) if role != "latency" else name, [a.more[role] for _, _, a in rows], role)
        if self.mode == "price columns":
            for place, name in enumerate(self.price_names[:2]):
                cells = [float(f"{self.prices[m][place] / self.price_names[2]:.6g}") for _, m, _ in rows]
                self.add(spelled(rng, name), cells, ("price_in", "price_out")[place])
        self.price_options()
        if theme == "unit" and self.part == "latency named":
            self.option("columns", latency=self.headers["latency"])

    def shared_columns(self) -> None:
        if self.queries[0].category:
            self.add(self.header("category")[0], [self.queries[n].category for n, _, _ in self.rows], "category")
        if self.where_category:
            self.option("where", **{self.headers["category"]: self.where_category})
        if self.with_text:
            self.add(self.text_header(), [self.queries[n].text for n, _, _ in self.rows], "text")

    def price_options(self) -> None:
        if self.mode == "costs":
            self.options["costs"] = dict(self.costs)
        elif self.mode in ("prices", "texts", "characters"):
            third = self.cached and not self.no_third and not self.ignore_cached
            self.options["prices"] = {m: p if third else p[:2] for m, p in self.prices.items()}
            if self.ignore_cached:
                self.option("columns", tokens_cached="")
            if self.mode == "texts":
                self.kinds.add("L21")
        elif self.mode == "none":
            self.ambiguous("there are neither costs nor prices", ("--cost",), ("--price",))

    def more_names(self) -> dict[str, str]:
        rng, names = self.rng, {}
        if self.mode in ("prices", "price columns") or (self.mode == "none" and self.chance(0.5)):
            names |= {"tokens_in": self.token_names[0], "tokens_out": self.token_names[1]}
        if self.cached:
            names["tokens_cached"] = self.cached_name
        if self.reasoning:
            names["tokens_reasoning"] = self.reasoning_name
        if self.mode == "texts":
            names["response"] = rng.choice(CHOICES["response"])
        if self.mode == "characters":
            names |= {role: rng.choice([*NAMES[role][0], *NAMES[role][1]]) for role in ("prompt_chars", "response_chars")}
        if self.latency_way:
            unit = self.latency_unit if self.latency_way == "named" else ""
            if self.theme == "unit" and self.part == "latency named":
                names["latency"] = f"{rng.choice(['delay', 'wait', 'took'])}_{unit}"
            elif unit in ("s", "ms") and not self.wide and self.chance(0.15):
                names["latency"] = {"s": "seconds", "ms": rng.choice(["ms", "milliseconds"])}[unit]
            else:
                names["latency"], self.levels["latency"] = self.header("latency", unit, rng.choice([0, 1]))
            if self.latency_way == "option":
                self.option("units", latency=self.latency_unit)
        return names

    def second_column(self, role: str) -> None:
        """Adds a column whose name fits a role equally well, with other cells, equal cells, or cells that cannot have the role."""
        rng = self.rng
        column = next(column for column in self.columns if column.role == role)
        level = self.levels.get(role, 0)
        if role == "latency" and (level == 0 or self.latency_way in ("none", "cells")):
            raise Unfit
        latency_unit = self.latency_unit if self.latency_way == "named" else ""
        unit = {"score": self.scale.suffix, "cost": self.cost_unit, "latency": latency_unit}
        name = self.header(role, unit.get(role, ""), level)[0]
        models = self.models
        if role == "score":
            scale = self.scale
            other = [scale.cell(self.forced(scale, n, m, scale.value(0.5), 0)) for n, m, _ in self.rows]
        elif role == "query":
            turned = {m: rng.sample(range(len(self.queries)), len(self.queries)) for m in models}
            if len(set(map(tuple, turned.values()))) == 1:  # It would put the same answers together.
                raise Unfit
            other = [self.queries[turned[m][n]].id for n, m, _ in self.rows]
        elif role == "model":
            other = [models[(models.index(m) + n) % len(models)] for n, m, _ in self.rows]
        else:
            other = [float(f"{cell * rng.uniform(1.2, 3):.5g}") for cell in column.cells]
        differ = sum(a != b for a, b in zip(other, column.cells))
        if differ < 3 or len(set(map(str, other))) < 2:
            raise Unfit
        way = rng.choice(["ambiguous", "ambiguous", "named", "named", "equal", "texts"])
        if way == "texts" and role in ("score", "cost"):
            other = [rng.choice(["good answer", "a bit short", "see the other file", "nothing to say"]) for _ in other]
        elif way == "equal":
            other = list(column.cells)
        elif way == "named":
            self.option("columns", **{role: column.name})
        else:
            self.ambiguous(f"{column.name!r} and {name!r} could both be the {role}", (column.name,), (name,))
        self.add(name, other)
        self.kinds |= {"L1", f"two of {role}", f"two {way}"}

    def lower_columns(self) -> None:
        """Adds columns whose names fit a role less well than that of the true column, with other cells."""
        rng = self.rng
        roles = [role for role in ("score", "cost", "model") if self.levels.get(role, 3) < 2]
        chosen = [role for role in roles if self.chance(0.6)] or roles[:1]
        for role in chosen:
            low = self.levels[role] + 1 if role == "model" or self.chance(0.6) else 2
            if role == "score" and low == 2 and self.chance(0.5):
                letter = self.chance(0.5)
                gold = [rng.choice("ABDE") if letter else rng.randint(0, 1) for _ in self.queries]
                self.add(spelled(rng, "label"), [gold[n] for n, _, _ in self.rows])
            elif role == "score":
                other = {(n, m): round(rng.random(), 2) for n, m, _ in self.rows}
                self.add(self.header(role, "", low)[0], [other[n, m] for n, m, _ in self.rows])
            elif role == "cost":
                cells = [float(10 + 5 * self.models.index(m) + n % 3) for n, m, _ in self.rows]
                self.add(self.header(role, "", low)[0], cells)
            elif self.per_model_files:
                continue
            else:
                exact = self.levels[role] == 0
                names = ["model_version", "engine", "deployment", "endpoint"] if exact else ["engine", "endpoint", "agent"]
                name = rng.choice(names)
                self.add(name, [f"v{self.models.index(m) // 2}" for _, m, _ in self.rows])
            self.kinds |= {"lower", "L1"} if role != "model" else {"lower"}

    def decoys(self) -> None:
        """Adds columns without a role. If answers are repeated, their cells are equal for repeated answers, or different in every row."""
        rng, rows, queries = self.rng, self.rows, self.queries
        numbers, by_row = range(len(rows)), self.repeats == "" and self.theme != "restart"
        alike = self.repeats == "alike"

        def some(*values):
            once = {(n, m): rng.choice(values) for n, m, _ in rows}
            return [rng.choice(values) if by_row else once[n, m] for n, m, _ in rows]

        several = {
            "comment": lambda: some(*CHOICES["comment"]),
            "annotator": lambda: some("ann", "bo", "Çem"),
            "finish_reason": lambda: some("stop", "length"),
            "version": lambda: [rng.choice(["1.0.2", "2026-03", "v7"])] * len(rows),
            "temperature": lambda: [(0.7, 1.0, 0.2, 0.5)[self.models.index(m)] for _, m, _ in rows],
            "max_tokens": lambda: [512] * len(rows),
            "gold": lambda: [f"answer {n}" for n, _, _ in rows],
            "region": lambda: [("eu-west", "us-1")[len(str(queries[n].key)) % 2] for n, _, _ in rows],
            "difficulty_guess": lambda: [(n * 7) % 5 for n, _, _ in rows],
        }
        unique = {
            "row_hash": lambda: [f"{rng.getrandbits(48):012x}a" for _ in rows],
            "timestamp": lambda: [f"2026-01-{1 + i // 1440 % 28:02d}T{i // 60 % 24:02d}:{i % 60:02d}:00" for i in numbers],
            "uuid": lambda: [f"u{rng.getrandbits(64):016x}" for _ in rows],
        }
        if self.levels.get("query", 0) >= 2:
            del unique["uuid"]
        if self.wide:
            several = {k: several[k] for k in CHOICES["several of wide"]}
            if self.pattern == "bare" and self.mode in ("costs", "none"):
                del several["difficulty_guess"]
            elif "max" not in self.models:
                several |= {"max_tokens": lambda: [512] * len(rows), "temperature": lambda: [0.7] * len(rows)}
        several |= {} if alike else unique
        for name in rng.sample(list(several), rng.choice([0, 0, 1, 1, 2, 3])):
            cells = several[name]()
            nested = self.chance(0.15) and name not in ("timestamp", "uuid")
            self.add(f"meta.{name}" if nested else spelled(rng, name), cells, "date" if name == "timestamp" else "")
            self.kinds.add("decoys")

    def wide_columns(self) -> None:
        rng, theme, queries = self.rng, self.theme, self.queries
        self.rows = [(number, "", None) for number in range(len(queries))]
        if theme == "restart" or self.chance(0.85):
            name, self.levels["query"] = self.header("query", level=rng.choice([0, 1, 1, 2]))
            self.add(name, [query.id for query in queries], "query")
        else:
            self.keys = ()
        self.shared_columns()
        sep = rng.choice(["_", "_", ".", "|", " "])
        unit = "" if theme == "unit" and self.part == "cost option" else self.cost_unit
        if not unit and self.cost_unit:
            self.option("units", cost=self.cost_unit)
        suffix = self.scale.suffix.strip("_")
        score = rng.choice(["score", "score", "accuracy", "correct", "quality"])
        words = {"score": score + (f"_{suffix}" if suffix else "")}
        if self.mode == "stated":
            words["cost"] = rng.choice(["cost", "cost", "total_cost"]) + (f"_{unit}" if unit else "")
        more = self.more_names()
        if more.get("latency"):
            shown = self.latency_unit if self.latency_way == "named" else ""
            more["latency"] = rng.choice(["latency", "latency", "duration"]) + (f"_{shown}" if shown else "")
        shared = {role: more.pop(role) for role in ("prompt_chars",) if role in more}
        for role, name in shared.items():
            self.add(spelled(rng, name), [self.answers[n, self.models[0]][0].more[role] for n in range(len(queries))], role)
        words |= more
        prefix = self.pattern == "prefix" or (self.pattern == "bare" and self.chance(0.5))
        self.kinds.add(f"wide {self.pattern}")
        if any("." in word for word in words.values()):
            raise Unfit
        order = [(role, model) for role in words for model in self.models]
        if self.chance(0.3):
            order.sort(key=lambda pair: self.models.index(pair[1]))
        for role, model in order:
            word = words[role]
            bare = self.pattern == "bare" and role == "score"
            name = model if bare else f"{word}{sep}{model}" if prefix else f"{model}{sep}{word}"
            if not bare and plain_name(name) in KNOWN:
                raise Unfit
            path = (word, model) if sep == "." and prefix and not bare else ()
            cells = [self.wide_cell(role, self.answers[n, model][0]) for n in range(len(queries))]
            self.add(name, cells, f"{role} {model}", path)
        self.price_options()
        numeric = self.scale.name in ("fractions", "binary", "floats")
        if theme == "statistic" and numeric and self.pattern != "bare" and "mean" not in self.models and self.chance(0.3):
            word = "mean" if not {"avg", "average"} & set(self.models) else "median"
            if word not in self.models:
                sums = (sum(self.answers[n, m][0].score or 0 for m in self.models) for n in range(len(queries)))
                cells = [round(total / 9, 3) for total in sums]
                self.add(f"{words['score']}{sep}{word}" if prefix else f"{word}{sep}{words['score']}", cells)
                self.kinds.add("statistic without sibling")
        self.decoys()

    @staticmethod
    def wide_cell(role: str, answer: Answer) -> Any:
        return answer.cell if role == "score" else answer.cost_cell if role == "cost" else answer.more[role]

    # How it is written.

    def make_form(self) -> tuple[dict, str]:
        rng = self.rng
        kinds = CHOICES["file"]
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        if self.theme == "vectors":
            kind = rng.choice(CHOICES["file of vectors"])
        if self.theme == "lists":
            kind = "two"
            self.ambiguous("two lists of records stand in the file")
        parts = "models" if self.per_model else ""
        if not parts and len(self.rows) > 5 and self.theme != "lists" and self.chance(0.04):
            parts = "parts"
        if parts and kind not in ("csv", "json", "jsonl", "parquet", "key"):
            kind = rng.choice(["csv", "jsonl"])
        form: dict[str, Any] = {"kind": kind, "parts": parts, "listed": self.chance(0.4), "per_model": self.per_model}
        form["stem"] = rng.choice(["calls", "calls", "results 2026", "größe", "run.v2"])
        form["gap"] = rng.choice(["", "", "", "NaN", "nan", "NA", "null", "None", "N/A"])
        form["json gap"] = rng.choice(["null", "null", "nan"] if parts else ["null", "null", "absent", "nan"])
        form["nested"] = rng.choice(["", "dots", "dots", "named"])
        form["ascii"] = self.chance(0.5)
        form["style"] = rng.choice(["plain", "plain", "strings", "nullable", "category"])
        form["booleans"] = rng.choice([("false", "true"), ("False", "True"), ("FALSE", "TRUE")])
        may_pack = kind in ("csv", "json", "jsonl", "key")
        form["pack"] = rng.choice(["gz", "bz2", "xz", "zip"]) if may_pack and self.chance(0.12) else ""
        form["encoding"] = "utf-8-sig" if self.chance(0.1) else "utf-8"
        may_refuse = self.text_form(form) if kind == "csv" else ""
        names = {"csv": form.get("suffix"), "jsonl": rng.choice(["jsonl", "ndjson"])}
        names |= dict.fromkeys(("two", "key", "columns"), "json")
        form["suffix"] = names.get(kind, kind)
        if kind == "parquet":
            self.kinds.add("L10")
        if kind == "pkl":
            self.kinds.add("L11")
        self.kinds |= {f"as {kind}", *([f"L15 {parts}"] if parts else []), *(["packed"] if form["pack"] else [])}
        return form, may_refuse

    def text_form(self, form: dict) -> str:
        rng = self.rng
        form["suffix"] = rng.choice(["csv", "csv", "csv", "tsv", "txt"])
        form["separator"] = "\t" if form["suffix"] == "tsv" else rng.choice([",", ",", ",", ";", ";", "\t", "|"])
        form["comma"] = form["separator"] in (";", "\t") and self.chance(0.5)
        form["newline"] = rng.choice(["\n", "\n", "\r\n"])
        form["quoting"] = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
        form["leading"] = []
        if self.chance(0.1):
            types = "#TYPE System.Management.Automation.PSCustomObject"
            form["leading"] = [rng.choice(["# exported 2026-11-01", types, f"sep={form['separator']}"])]
            self.lines.append(r"(?i)skip|leading|header|first line|comment|exported|#TYPE|sep=")
            self.kinds.add("leading line")
        shown = [column.name for column in self.columns]
        shown += [c for column in self.columns if column.role for c in column.cells if isinstance(c, str)]
        important = "".join(map(str, [*shown, *(self.per_model or [])]))
        everything = "".join(map(str, (c for column in self.columns for c in column.cells)))
        fits = ["utf-8"] * 10 + ["utf-8-sig"] * 3 + ["utf-16-le", "utf-16-le", "utf-16-be"]
        for name in ("cp1252", "cp1252", "cp1252", "shift_jis"):
            try:
                (important + everything).encode(name)
                fits += [name] * (3 if not everything.isascii() or not important.isascii() else 1)
            except UnicodeEncodeError:
                pass
        form["encoding"] = rng.choice(fits)
        self.kinds |= {f"encoding {form['encoding']}", f"separator {form['separator']!r}"}
        self.kinds |= {"decimal commas"} if form["comma"] else set()
        if self.chance(0.08):
            self.options["separator"] = form["separator"]
        if form["encoding"] not in ("cp1252", "shift_jis") or (important + everything).isascii():
            return ""
        if form["encoding"] == "shift_jis" or (not important.isascii() and self.chance(0.5)):
            self.options["encoding"] = form["encoding"]
            return ""
        return "" if important.isascii() else "encoding"

    def truth(self, form: dict, may_refuse: str) -> Drawn:
        scores, costs, latency, kept = {}, {}, {}, []
        for number, query in enumerate(self.queries):
            found = {}
            for model in self.models:
                rows = [] if (number, model) in self.missing_rows else self.answers[number, model]
                found[model] = [a for a in rows if a.kept and a.score is not None and a.cost is not None]
            if not all(found.values()):
                continue
            kept.append(query)
            for model, rows in found.items():
                scores[query.key, model] = math.fsum(a.score for a in rows) / len(rows)
                costs[query.key, model] = math.fsum(a.cost for a in rows) / len(rows)
                if self.latency_way not in ("", "none"):
                    latency[query.key, model] = math.fsum(a.more["latency_seconds"] for a in rows) / len(rows)
        if not self.why and not kept:
            raise Unfit
        categories = {query.key: query.category for query in kept}
        copies, vectors = Counter(query.text for query in kept), {query.key: query.vector for query in kept}
        has_vectors, keys = bool(self.queries[0].vector), (self.headers[role] for role in self.keys if role in self.headers)
        about = (self.seed, self.options, not self.why, frozenset(self.kinds), self.why, tuple(self.models))
        categories = categories if len(set(categories.values())) > 1 else None
        found = (tuple(query.key for query in kept), scores, costs, categories)
        features = ((self.features and len(copies) > 2) or has_vectors, vectors if has_vectors else None)
        prompts = tuple(sorted(copies.values())) if self.theme == "twins" else None
        said = (tuple(self.lines), tuple(self.says), may_refuse, self.currency, tuple(self.columns), tuple(keys), form)
        return Drawn(*about, *found, latency or None, *features, prompts, *said)


# Writing.


def text_cell(cell: Any, form: Mapping[str, Any]) -> str:
    if cell is None:
        return form["gap"]
    if isinstance(cell, bool):
        return form["booleans"][cell]
    if not form.get("comma") or not (isinstance(cell, float) or re.fullmatch(r"-?\d+\.\d+ ?(%|ms|s)", str(cell))):
        return str(cell)
    shown = repr(cell) if isinstance(cell, float) else cell
    return re.sub(r"^(-?\d+\.\d{3})(?!\d)", r"\g<1>0", shown).replace(".", ",")  # Three digits could be thousands.


def nested_record(columns: tuple[Column, ...], row: int, form: Mapping[str, Any]) -> dict:
    record: dict[str, Any] = {}
    for name, cells, role, path in columns:
        cell = cells[row]
        if cell is None and form["json gap"] == "absent":
            continue
        cell = math.nan if cell is None and form["json gap"] == "nan" else cell
        parts = path or (name.split(".") if name.startswith("meta.") or (role and " " not in role) else [name])
        if not form["nested"]:
            parts = [name]
        if path and form["nested"] == "named":
            record.setdefault(path[0], []).append({"name": path[1], "value": cell})
            continue
        place = record
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        place[parts[-1]] = cell
    return record


def written(columns: tuple[Column, ...], form: Mapping[str, Any], folder: Path) -> Any:
    number = len(columns[0].cells)
    if not form["parts"]:
        return written_file(columns, form, folder, form["stem"])
    if form["parts"] == "models":
        rows: dict[str, list[int]] = {}
        for row, model in enumerate(form["per_model"]):
            rows.setdefault(model, []).append(row)
    else:
        rows = {"part-0": list(range(number // 2)), "part-1": list(range(number // 2, number))}
    inside = folder / form["stem"]
    inside.mkdir()
    paths = []
    for stem, chosen in rows.items():
        part = tuple(column._replace(cells=[column.cells[row] for row in chosen]) for column in columns)
        paths.append(written_file(part, form, inside, stem))
    return paths if form["listed"] else inside


def written_file(columns: tuple[Column, ...], form: Mapping[str, Any], folder: Path, stem: str) -> Any:
    kind, number = form["kind"], len(columns[0].cells)
    if kind in IN_MEMORY or kind in ("parquet", "pkl"):
        return in_memory(columns, form, folder / f"{stem}.{form['suffix']}")
    path = folder / f"{stem}.{form['suffix']}"
    if kind == "xlsx":
        import openpyxl

        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet()
        for row in [[column.name for column in columns], *map(list, zip(*(column.cells for column in columns)))]:
            sheet.append(row)
        book.save(path)
        return path
    if kind == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, delimiter=form["separator"], quoting=form["quoting"], lineterminator=form["newline"])
        for line in form["leading"]:
            buffer.write(line + form["newline"])
        writer.writerow([column.name for column in columns])
        numbers = (int, float) if form["quoting"] == csv.QUOTE_NONNUMERIC and not form["comma"] else ()
        for row in range(number):
            cells = (column.cells[row] for column in columns)
            writer.writerow([c if type(c) in numbers else text_cell(c, form) for c in cells])
        text = buffer.getvalue()
    else:
        records = [nested_record(columns, row, form) for row in range(number)]
        rest = {"indent": 1 if form["ascii"] and kind != "jsonl" else None, "ensure_ascii": form["ascii"]}
        if kind == "jsonl":
            text = "".join(json.dumps(record, **rest) + "\n" for record in records)
        elif kind == "columns":
            gap = math.nan if form["json gap"] == "nan" else None
            text = json.dumps({c.name: [gap if x is None else x for x in c.cells] for c in columns}, **rest)
        else:
            two = {"answers": records, "earlier": records[::-1]}
            text = json.dumps({"key": {"version": 2, "answers": records}, "two": two}.get(kind, records), **rest)
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    content = marks.get(form["encoding"], b"") + text.encode(form["encoding"])
    if form["pack"]:
        inner, path = path.name, path.with_name(f"{path.name}.{form['pack']}")
        if form["pack"] == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr(inner, content)
            return path
        content = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[form["pack"]](content)
    path.write_bytes(content)
    return path


def in_memory(columns: tuple[Column, ...], form: Mapping[str, Any], path: Path) -> Any:
    kind, cells = form["kind"], {column.name: list(column.cells) for column in columns}
    if kind == "dict":
        return cells
    if kind == "records":
        return [nested_record(columns, row, form) for row in range(len(columns[0].cells))]
    if kind in ("arrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: pa.array(column) for name, column in cells.items()})
        if kind == "arrow":
            return table
        number = table.num_rows
        if form["style"] != "plain":  # Columns of kinds that are no numbers or texts, and have no role.
            table = table.append_column("tags", pa.array([["a", "b"]] * number))
            table = table.append_column("chat", pa.array([[{"who": "me", "said": "hello"}]] * number))
        if form["style"] == "category":
            for n, column in enumerate(columns):
                if column.role in ("model", "category"):
                    table = table.set_column(n, column.name, table.column(n).dictionary_encode())
        pq.write_table(table, path)
        return path
    import pandas as pd

    frame = pd.DataFrame(cells)
    if form["style"] == "strings":
        texts = {}
        for name, column in cells.items():
            texts[name] = [None if c is None or isinstance(c, list) else text_cell(c, form) for c in column]
        frame = pd.DataFrame(texts)
        for column in columns:
            if column.role == "embedding":
                frame[column.name] = column.cells
    elif form["style"] == "nullable":
        frame = frame.convert_dtypes()
    for column in columns:
        if form["style"] == "category" and column.role in ("model", "category"):
            frame[column.name] = frame[column.name].astype("category")
        if form["style"] != "strings" and column.role == "date":
            frame[column.name] = pd.to_datetime(frame[column.name])
    if kind == "pkl":
        frame.to_pickle(path)
        return path
    return frame


# The judge.


def alike(column, other):
    """Whether two columns have the same values in different units, in any order, as rows with equal scores cannot be distinguished."""
    first, second = (np.sort((of - of.mean()) / (of.std() or 1.0)) for of in (column, other))
    return np.allclose(first, second, atol=1e-3)


def judge(drawn: Drawn, outcome: Any) -> str:
    """Judges the result of a reader.

    Args:
      drawn: the draw.
      outcome: the Log, or the ValueError raised.

    Returns:
      "right", "refused determined", "answered ambiguous", "refused ambiguous" (as it should be), or "silently wrong: " and what is wrong (of a
      refusal of what is ambiguous: what its message lacks).
    """
    if isinstance(outcome, ValueError):
        text = str(outcome)
        if drawn.determined:
            return "right" if drawn.may_refuse and drawn.may_refuse in text else "refused determined"
        lacks = lacking(drawn, text)
        return f"silently wrong: the message lacks {lacks}" if lacks else "refused ambiguous"
    if not drawn.determined:
        return "answered ambiguous"
    wrong = wrong_in(drawn, outcome)
    return f"silently wrong: {wrong}" if wrong else "right"


def lacking(drawn: Drawn, text: str) -> str:
    form = drawn.form
    if "its encoding may be" in text and not form["encoding"].startswith("utf"):
        return ""  # Unclear as well, and asked first.
    if form["kind"] in IN_MEMORY:
        if not re.search(r"(?i)\b(data ?frame|records?|columns|table|dict|list)\b", text):
            return "what it is about"
    elif form["stem"] not in text and not (form["parts"] and any(name in text for name in (*drawn.models, "part-"))):
        return "the file"
    names = [column.name for column in drawn.columns]
    names_option = any(re.search(rf"\b{option}\b", text) for option in OPTIONS)
    if "--" not in text and not names_option and not any(repr(name) in text for name in names):
        return "a remedy"
    missing = [alternatives for alternatives in drawn.says if not any(word in text for word in alternatives)]
    return " or ".join(missing[0]) if missing else ""


def wrong_in(drawn: Drawn, log: Any) -> str:
    table = log.table
    if set(table.models) != set(drawn.models) or len(table.models) != len(drawn.models):
        return "models"
    order = [table.models.index(model) for model in drawn.models]
    if len(table.scores) != len(drawn.queries):
        return "queries"
    if table.costs is not None and table.currency.upper() != drawn.currency:
        return "currency"

    def close(found, expected, relative, absolute):
        found = np.asarray(found, np.float64)[:, order]
        wanted = np.array([[expected[key, model] for model in drawn.models] for key in drawn.queries])
        return (np.abs(found[None] - wanted[:, None]) <= absolute + relative * np.abs(wanted[:, None])).all(2)

    parts = {"scores": close(table.scores, drawn.scores, 0, 1e-5), "costs": close(table.costs, drawn.costs, 1e-6, 1e-15)}
    if (log.latency is None) != (drawn.latency is None):
        return "latency"
    if drawn.latency:
        parts["latency"] = close(log.latency, drawn.latency, 1e-5, 0)
    if drawn.categories:
        if table.groups is None:
            return "categories"
        found = [table.group_names[group] for group in table.groups]
        parts["categories"] = np.array([[drawn.categories[key] == name for name in found] for key in drawn.queries])
    for name, part in parts.items():
        if matched(part) is None:
            return name
    rows = matched(np.logical_and.reduce(list(parts.values())))
    if rows is None:
        return "what belongs together"
    if drawn.features and table.features is None:
        return "features"
    if drawn.vectors and len(rows) > 3:
        found = np.asarray(table.features, np.float64).T
        spread = [of.std() for of in found if np.ptp(of) > 0]
        if spread and max(spread) > 100 * min(spread):
            return "features of unlike sizes"
        for column in np.array([drawn.vectors[key] for key in drawn.queries], np.float64).T:
            if np.ptp(column) > 0 and not any(alike(column, other) or alike(column, -other) for other in found):
                return "features of unlike sizes"
    prompts = getattr(table, "prompts", None)
    if drawn.prompts and (prompts is None or tuple(sorted(Counter(np.asarray(prompts).tolist()).values())) != drawn.prompts):
        return "prompts"
    missing = [pattern for pattern in drawn.lines if not any(re.search(pattern, str(line)) for line in log.read)]
    return f"no line about {missing[0]}" if missing else ""


def matched(fits: np.ndarray) -> list[int] | None:
    """Assigns to each row of the truth a different row of the table that fits; returns None if that is impossible."""
    free, rows = np.ones(fits.shape[1], bool), []
    for fit in fits:
        left = np.flatnonzero(fit & free)
        if not left.size:
            return None
        free[left[0]] = False
        rows.append(int(left[0]))
    return rows
