"""Answers of models to queries, as one number per answer and role, in common units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.data.files import option, some
from jaxroute.data.logs.cells import Numbers, empty, read_numbers, read_texts, some_cells, which_empty
from jaxroute.data.logs.files import Sheet
from jaxroute.data.logs.names import (
    KINDS,
    PER_MODEL,
    UNIT_COLUMN,
    UNITS,
    plain,
    says_unit,
    split_unit,
    unit_of,
    units_in,
    words,
)
from jaxroute.data.logs.presets import Preset
from jaxroute.data.logs.roles import CALLED, Roles, differing

CHARACTERS_PER_TOKEN = 4.0
_LONGEST_LATENCY = 300.0  # Seconds; a median above is doubted where no unit is said.
_SHARED = ("tokens_in", "tokens_cached", "price_in", "price_out", "price_cached")  # By all models: a prompt, or a price.


@dataclass
class Answers:
    """One entry per answer.

    Attributes:
      roles: roles of the columns, and the lines about them.
      models: names of the models.
      row: `[A]` row of the file.
      model: `[A]` number of the model.
      values: `[A]` numbers by role: score, cost, tokens, prices, latency in seconds, confidence, characters; NaN for gaps.
      percent: `[A]` whether the cell of a score had a % sign, or None.
      named_percent: whether the name of the scores says percent.
      unit: what costs count, if the file says it, or None.
      place: returns the place of an answer in words.
      asked: columns by role that the caller named.
      beside: roles of tokens whose column counts them beside the input or output tokens, and not as a part of them.
      arrays: arrays of the file that stay as they are.
    """

    roles: Roles
    models: list[str]
    row: np.ndarray
    model: np.ndarray
    values: dict[str, np.ndarray] = field(default_factory=dict)
    percent: np.ndarray | None = None
    named_percent: bool = False
    unit: str | None = None
    place: Callable[[int], str] = str
    beside: set[str] = field(default_factory=set)
    asked: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    @property
    def sheet(self) -> Sheet:
        """The open file."""
        return self.roles.sheet

    @property
    def preset(self) -> Preset:
        """The known format of the file, without a name if it has none."""
        return self.sheet.preset or Preset("")

    @property
    def notes(self) -> list[str]:
        """Lines about how the file was read."""
        return self.roles.notes


def collect(roles: Roles, units: Mapping[str, str], instead: str = "") -> Answers:
    """Reads the answers of a log, in seconds, USD and tokens.

    Args:
      roles: from `assign_roles`.
      units: units by role as the caller gave them.
      instead: what the caller gave instead of the file's costs: "costs", or "prices", so that costs are made of tokens.

    Raises:
      ValueError: a cell cannot be read, or two columns could have a role.
    """
    stated = [*roles.candidates.get("cost", ())]
    if "cost" in roles.families:
        stated += roles.families["cost"].columns.values()
    if instead or not any(some_cells(roles.sheet.cells(column), 1) for column in stated):
        for role in ("cost", "response", *CALLED) if instead == "costs" else ("cost",):
            roles.candidates.pop(role, None)
            roles.families.pop(role, None)
    units = {**_stated_units(roles, units), **units}
    answers = _wide(roles, units) if roles.models else _long(roles, units)
    twice: dict[str, str] = {}
    for model in answers.models:
        other = twice.setdefault(" ".join(model.lower().split()), model)
        if other != model:
            answers.notes.append(f"models {other!r} and {model!r} differ only in case: they count as two")
    return answers


def _stated_units(roles: Roles, units: Mapping[str, str]) -> dict[str, str]:
    """The units by role that columns such as `currency` and `latency_unit` say, the same in every row."""
    sheet, found = roles.sheet, {}
    there = {role: names[0] for role, names in roles.candidates.items() if role in KINDS and names}
    there |= {role: of.shape for role, of in roles.families.items() if role in KINDS}
    taken = {column for names in roles.candidates.values() for column in names}
    names = [name for name in sheet.names if UNIT_COLUMN.fullmatch(plain(name)) and sheet.names.count(name) == 1]
    for role, name in product(there.keys() - units, {*names} - taken):
        said = [*dict.fromkeys(str(cell).strip() for cell in sheet.cells(name) if not empty(cell))]
        known = [says_unit(name, role, unit) for unit in said]
        if False in known or not said:
            continue
        called, kind = CALLED.get(role, role), KINDS[role]
        own = split_unit(kind, there[role].replace("{}", ""))[1]
        give = option("--unit", f"{role}=UNIT")
        differ = [unit for unit in own for one in said for other in units_in(kind, one) if _contradict(kind, unit, other)]
        if differ and "currency" in plain(name):
            roles.notes.append(f"unit of the {called}: {differ[0]!r}, as in its name, and not as in the column {name!r}")
            continue
        if differ:
            raise ValueError(
                f"{sheet.name}: the name {there[role]!r} says {differ[0]!r}, but column {name!r} says {said[0]!r}: give the unit ({give})"
            )
        if None in known:
            some_units = ", ".join([*UNITS[kind]][:8])
            raise ValueError(
                f"{sheet.name}: column {name!r} says {said[known.index(None)]!r}, which is no known unit of the {called} ({some_units}, ...): give the unit "
                f"({give}), or convert the {called} and leave the column out"
            )
        if len(said) > 1:
            keep = option("--where", f"{name}={said[0]}")
            raise ValueError(
                f"{sheet.name}: the {called} is in {some(map(repr, said), 4)} (column {name!r}): convert all to one unit, keep one ({keep}), or give it ({give})"
            )
        roles.used.add(name)
        roles.notes.append(f"unit of the {called}: column {name!r} ({said[0]!r} in every row)")
        if unit_of(role, "", {role: said[0]})[:2] != (1.0, None):
            found[role] = " ".join([said[0], *own])
    return found


def _contradict(kind: str, unit: str, other: str) -> bool:
    """Whether two units cannot be those of the same numbers: two currencies, or two factors."""
    values = [UNITS[kind][of] for of in (unit, other)]
    currencies = [
        isinstance(value, str) or of[:3] == "usd" or "dollar" in of for value, of in zip(values, (unit, other), strict=True)
    ]
    return values[0] != values[1] and currencies[0] == currencies[1]


def _long(roles: Roles, units: Mapping[str, str]) -> Answers:
    """The answers of a table with a row per query and model."""
    sheet = roles.sheet
    roles.notes.append("layout: a row per query and model")
    model_column, query_column = str(roles.column("model")), str(roles.column("query"))
    for role, column in (("query", query_column), ("model", model_column)):
        cells = sheet.cells(column)
        gaps = [
            row
            for row in np.flatnonzero(which_empty(cells)).tolist()
            if not (isinstance(cells[row], str) and cells[row].strip())
        ]
        if gaps:
            where = f"{sheet.place(gaps[0])}, column {column!r}"
            raise ValueError(
                f"{where} is empty, and {len(gaps) - 1} more rows name no {role}: fill it (of cells merged in Excel, only the first is filled), or delete the rows"
            )
        roles.note(role, column)
    codes, models = pd.factorize(np.array([str(cell).strip() for cell in sheet.cells(model_column)], object))
    answers = Answers(roles, list(map(str, models)), np.arange(sheet.num_rows), codes.astype(np.int64))
    answers.place = lambda answer: (
        f"{sheet.place(answer)}, query {str(sheet.cells(query_column)[answer])!r} and model {models[codes[answer]]!r}"
    )
    for role in PER_MODEL:
        _put_column(answers, role, units)
    return answers


def _wide(roles: Roles, units: Mapping[str, str]) -> Answers:
    """The answers of a table with a row per query."""
    sheet, models = roles.sheet, roles.models
    shape = roles.families["score"].shape.replace("{}", "<model>")
    which = "columns called like the models" if shape == "<model>" else f"columns {shape}"
    roles.notes.append(f"layout: a row per query, {which} of {len(models)} models ({some(models, 6)})")
    if roles.candidates.get("query") and roles.candidates["query"] != roles.candidates.get("text"):
        roles.note("query", str(roles.column("query")))
    size, number = sheet.num_rows, len(models)
    answers = Answers(roles, list(models), np.repeat(np.arange(size), number), np.tile(np.arange(number), size))
    scores = [roles.families["score"].columns[model] for model in models]
    answers.place = lambda answer: f"{sheet.place(answer // number)}, column {scores[answer % number]!r}"
    nothing = Numbers(np.full(size, np.nan))
    for role in PER_MODEL:
        family = roles.families.get(role)
        if family is None or not _needed(roles, role):
            continue
        called, columns = family.shape.replace("{}", ""), family.columns
        parts = [_numbers(sheet, columns[m], role, units, called) if m in columns else nothing for m in models]
        roles.used |= set(columns.values())
        currencies = sorted({part.currency for part in parts if part.currency})
        if len(currencies) > 1:
            raise ValueError(f"{sheet.name}: costs are in {' and in '.join(currencies)}: convert all to one currency")
        joined = Numbers(np.stack([part.values for part in parts], axis=1).ravel(), currency=next(iter(currencies), None))
        joined.unit, joined.named_percent = any(part.unit for part in parts), any(part.named_percent for part in parts)
        if any(part.percent is not None for part in parts):
            signs = [np.zeros(size, bool) if part.percent is None else part.percent for part in parts]
            joined.percent = np.stack(signs, axis=1).ravel()
        more = "; ".join(dict.fromkeys(note for part in parts for note in part.notes))
        line = f"{CALLED.get(role, role)}: columns {family.shape.replace('{}', '<model>')}"
        roles.notes.append(f"{line} ({more})" if more else line)
        _put(answers, role, joined, called, units)
    for role in _SHARED:
        if role not in roles.families:
            _put_column(answers, role, units, "the same for all models")
    return answers


def _needed(roles: Roles, role: str) -> bool:
    """Whether a role has an effect: texts of answers only without their tokens, and tokens only without costs."""
    there = {of for of, names in roles.candidates.items() if names} | roles.families.keys()
    if role.startswith(("tokens", "price")) and "cost" in there:
        return False
    return not (role in ("response", "response_chars") and ("tokens_out" in there or "cost" in there))


def _numbers(sheet: Sheet, column: str, role: str, units: Mapping[str, str], called: str | None = None) -> Numbers:
    """Reads the numbers of a column; of texts of answers, their lengths."""
    if role == "response":
        lengths = [len(text) or np.nan for text in read_texts(sheet.cells(column))]
        return Numbers(np.array(lengths), notes=["its length counts"])
    numbers = read_numbers(sheet, column, role, units, called)
    if role == "confidence":
        numbers.notes.append("what a model says of its answer, known once that is there; no feature of the query")
    if role.endswith("_chars"):
        numbers.values = np.where(numbers.values < 0, np.nan, numbers.values)  # -1 where it is not known.
    return numbers


def _put_column(answers: Answers, role: str, units: Mapping[str, str], *more: str) -> None:
    """Adds the numbers that a role has in each row, if it has an effect."""
    roles = answers.roles
    column = roles.column(role) if _needed(roles, role) else None
    if column is not None:
        numbers = _numbers(roles.sheet, column, role, units)
        others = differing(roles, role, column) if role in ("score", "cost") and role not in roles.given else []
        doubt = (
            f"{some(map(repr, others), 3)} could be it, too, with other values: {option('--column', f'{role}={others[0]}')}"
            if others
            else ""
        )
        roles.note(role, column, *more, *numbers.notes, doubt)
        numbers.values = numbers.values[answers.row]
        _put(answers, role, numbers, column, units)


def _put(answers: Answers, role: str, numbers: Numbers, column: str, units: Mapping[str, str]) -> None:
    """Adds the numbers of a role, and what their column says."""
    parts = words(column)
    # Anthropic's usage counts cached tokens beside the input, and Google's counts thoughts beside the output.
    cache = role in ("tokens_cached", "tokens_written") and parts[-2:] == ("input", "tokens") and "cache" in parts
    if cache or (role == "tokens_reasoning" and "thoughts" in parts):
        answers.beside.add(role)
    answers.values["response_chars" if role == "response" else role] = np.asarray(numbers.values, np.float64)
    if role == "score":
        answers.percent, answers.named_percent = numbers.percent, numbers.named_percent
    if role == "cost" and numbers.currency:
        answers.unit = "J per request" if numbers.currency == "J" else f"{numbers.currency} per query"
    if role == "latency" and not np.isnan(numbers.values).all():
        _doubt_latency(answers, np.asarray(numbers.values), numbers.unit or role in units)


def _doubt_latency(answers: Answers, seconds: np.ndarray, stated: bool) -> None:
    """Leaves out a latency without a unit that would be implausibly long in seconds; whole numbers may be milliseconds sooner."""
    median, whole = float(np.nanmedian(seconds)), not np.nansum(seconds % 1)
    if median > _LONGEST_LATENCY and stated:
        answers.notes.append(f"latency: implausible, a median of {median:,.0f} seconds")
    elif not stated and median > (_LONGEST_LATENCY / 5 if whole else _LONGEST_LATENCY):
        del answers.values["latency"]
        answers.notes.append(
            f"latency: not used, as its median is {median:,.0f} and no unit is said: give it (units={{'latency': 'ms'}}, on the command line --unit "
            "latency=ms; s for seconds)"
        )


def query_characters(answers: Answers) -> tuple[np.ndarray | None, str]:
    """`[A]` characters of the prompts, None where they are not known, and the column that they are from."""
    roles = answers.roles
    column = roles.column("prompt_chars")
    if column is not None:
        roles.note("prompt_chars", column)
        return _numbers(answers.sheet, column, "prompt_chars", {}).values[answers.row], column
    column = roles.column("text")
    if column is None:
        return None, ""
    return np.array([len(text) for text in read_texts(answers.sheet.cells(column))], np.float64)[answers.row], column
