"""Answers of models to queries, as one number per answer and role, in common units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from ..files import join_names, option
from .cells import Numbers, first_cells, is_empty, read_numbers, read_texts, which_empty
from .names import (
    PER_MODEL,
    PRICING_ROLES,
    UNIT_COLUMN,
    UNIT_KINDS,
    UNITS,
    is_unit_column,
    parse_units,
    plain_name,
    split_unit,
    title,
    unit_of,
    words,
)
from .presets import Preset
from .roles import Roles, differing_columns
from .sheet import Sheet

_LONGEST_LATENCY = 300.0  # Seconds; a longer median is doubted where no unit is known.
_SHARED = ("tokens_in", "tokens_cached", "price_in", "price_out", "price_cached")  # By all models: a prompt, or a price.


@dataclass
class Answers:
    """One entry per answer.

    Attributes:
      roles: roles of the columns.
      models: names of the models.
      row: `[A]` row of the file.
      model: `[A]` number of the model.
      values: `[A]` numbers by role: score, cost, tokens, prices, latency in seconds, confidence, characters; NaN for gaps.
      percent: `[A]` whether the cell of a score had a % sign, or None.
      named_percent: whether the name of the scores says percent.
      unit: unit of costs, if the file says it, or None.
      place: function that returns the place of an answer.
      beside: roles of tokens that are counted beside the input or output tokens, and not as a part of them.
      given: columns by role that the caller named.
      arrays: arrays of the file that are not converted.
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
    given: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    @property
    def sheet(self) -> Sheet:
        """The open file."""
        return self.roles.sheet

    @property
    def preset(self) -> Preset:
        """Known format of the file, without a name if it has none."""
        return self.sheet.preset or Preset("")

    @property
    def notes(self) -> list[str]:
        """Lines for the user about how the file was read."""
        return self.roles.notes


def collect_answers(roles: Roles, units: Mapping[str, str], instead: str = "") -> Answers:
    """Reads the answers of a log, in seconds, USD and tokens.

    The caller may have given "costs" `instead` of the file's, or "prices", so that costs are made of tokens.
    """
    costs = [*roles.candidates.get("cost", ())]
    if "cost" in roles.families:
        costs += roles.families["cost"].columns.values()
    if instead or not any(first_cells(roles.sheet.cells(column), 1) for column in costs):
        for role in ("cost", "response", *PRICING_ROLES) if instead == "costs" else ("cost",):
            roles.candidates.pop(role, None)
            roles.families.pop(role, None)
    units = {**_units_in_columns(roles, units), **units}
    answers = _collect_wide(roles, units) if roles.models else _collect_long(roles, units)
    first: dict[str, str] = {}
    for model in answers.models:
        other = first.setdefault(" ".join(model.lower().split()), model)
        if other != model:
            answers.notes.append(f"models {other!r} and {model!r} differ only in case: they count as two")
    return answers


def _units_in_columns(roles: Roles, units: Mapping[str, str]) -> dict[str, str]:
    """Units by role in columns such as `currency` and `latency_unit`, if all rows have the same."""
    sheet, found = roles.sheet, {}
    columns = {role: names[0] for role, names in roles.candidates.items() if role in UNIT_KINDS and names}
    columns |= {role: family.pattern for role, family in roles.families.items() if role in UNIT_KINDS}
    taken = {column for names in roles.candidates.values() for column in names}
    names = [name for name in sheet.single(sheet.names) if UNIT_COLUMN.fullmatch(plain_name(name))]
    for role, name in product(columns.keys() - units, {*names} - taken):
        texts = [*dict.fromkeys(str(cell).strip() for cell in sheet.cells(name) if not is_empty(cell))]
        matches = [is_unit_column(name, role, text) for text in texts]
        if False in matches or not texts:
            continue
        kind, give, has = UNIT_KINDS[role], option("--unit", f"{role}=UNIT"), f"column {name!r} says"
        own = split_unit(kind, columns[role].replace("{}", ""))[1]
        others = [unit for text in texts for unit in parse_units(kind, text)]
        differ = [unit for unit in own for other in others if _contradict(kind, unit, other)]
        if differ and "currency" in plain_name(name):
            unit = f"{differ[0]!r}, as in its name, and not as in the column {name!r}"
            roles.notes.append(f"unit of the {title(role)}: {unit}")
            continue
        if differ:
            two = f"the name {columns[role]!r} says {differ[0]!r}, but {has} {texts[0]!r}"
            raise ValueError(f"{sheet.name}: {two}: give the unit ({give})")
        if None in matches:
            unknown = f"{texts[matches.index(None)]!r}, which is not a known unit of the {title(role)}"
            known = ", ".join([*UNITS[kind]][:8])
            convert = f"give the unit ({give}), or convert the {title(role)} and leave the column out"
            raise ValueError(f"{sheet.name}: {has} {unknown} ({known}, ...): {convert}")
        if len(texts) > 1:
            several = f"the {title(role)} is in {join_names(map(repr, texts), 4)} (column {name!r})"
            keep = f"keep one ({option('--where', f'{name}={texts[0]}')}), or give it ({give})"
            raise ValueError(f"{sheet.name}: {several}: convert all to one unit, {keep}")
        roles.used.add(name)
        roles.notes.append(f"unit of the {title(role)}: column {name!r} ({texts[0]!r} in every row)")
        if unit_of(role, "", {role: texts[0]})[:2] != (1.0, None):
            found[role] = " ".join([texts[0], *own])
    return found


def _contradict(kind: str, unit: str, other: str) -> bool:
    """Whether two units cannot be those of the same numbers: two currencies, or two factors."""
    first, second = UNITS[kind][unit], UNITS[kind][other]

    def is_currency(value: float | str, name: str) -> bool:
        return isinstance(value, str) or name[:3] == "usd" or "dollar" in name

    return first != second and is_currency(first, unit) == is_currency(second, other)


def _collect_long(roles: Roles, units: Mapping[str, str]) -> Answers:
    sheet = roles.sheet
    roles.notes.append("layout: a row per query and model")
    model_column, query_column = str(roles.column("model")), str(roles.column("query"))
    for role, column in (("query", query_column), ("model", model_column)):
        cells = sheet.cells(column)
        rows = np.flatnonzero(which_empty(cells)).tolist()  # Words such as "none" may be names.
        gaps = [row for row in rows if not (isinstance(cells[row], str) and cells[row].strip())]
        if gaps:
            empty = f"{sheet.place(gaps[0])}, column {column!r} is empty, and {len(gaps) - 1} more rows name no {role}"
            raise ValueError(f"{empty}: fill it (of cells merged in Excel, only the first is filled), or delete the rows")
        roles.note(role, column)
    codes, models = pd.factorize(np.array([str(cell).strip() for cell in sheet.cells(model_column)], object))
    answers = Answers(roles, list(map(str, models)), np.arange(sheet.num_rows), codes.astype(np.int64))
    answers.place = lambda answer: (
        f"{sheet.place(answer)}, query {str(sheet.cells(query_column)[answer])!r} and model {models[codes[answer]]!r}"
    )
    for role in PER_MODEL:
        _add_column(answers, role, units)
    return answers


def _collect_wide(roles: Roles, units: Mapping[str, str]) -> Answers:
    sheet, models = roles.sheet, roles.models
    scores, number, size = roles.families["score"], len(models), sheet.num_rows
    which = "columns called like the models" if scores.pattern == "{}" else f"columns {scores.shown()}"
    roles.notes.append(f"layout: a row per query, {which} of {number} models ({join_names(models, 6)})")
    if roles.candidates.get("query") and roles.candidates["query"] != roles.candidates.get("text"):
        roles.note("query", str(roles.column("query")))
    answers = Answers(roles, list(models), np.repeat(np.arange(size), number), np.tile(np.arange(number), size))
    columns = [scores.columns[model] for model in models]
    answers.place = lambda answer: f"{sheet.place(answer // number)}, column {columns[answer % number]!r}"
    for role in PER_MODEL:
        if role in roles.families and _is_needed(roles, role):
            _add_family(answers, role, units)
    for role in _SHARED:
        if role not in roles.families:
            _add_column(answers, role, units, "the same for all models")
    return answers


def _add_family(answers: Answers, role: str, units: Mapping[str, str]) -> None:
    """Adds the numbers of a role from the columns of each model."""
    roles, sheet, family = answers.roles, answers.sheet, answers.roles.families[role]
    name, size = family.shown(""), sheet.num_rows
    parts = [
        _read_role(sheet, family.columns[model], role, units, name)
        if model in family.columns
        else Numbers(np.full(size, np.nan))
        for model in answers.models
    ]
    roles.used |= set(family.columns.values())
    currencies = sorted({part.currency for part in parts if part.currency})
    if len(currencies) > 1:
        raise ValueError(f"{sheet.name}: costs are in {' and in '.join(currencies)}: convert all to one currency")
    joined = Numbers(np.stack([part.values for part in parts], axis=1).ravel(), currency=next(iter(currencies), None))
    joined.unit_known = any(part.unit_known for part in parts)
    joined.named_percent = any(part.named_percent for part in parts)
    if any(part.percent is not None for part in parts):
        signs = [np.zeros(size, bool) if part.percent is None else part.percent for part in parts]
        joined.percent = np.stack(signs, axis=1).ravel()
    notes = "; ".join(dict.fromkeys(note for part in parts for note in part.notes))
    roles.notes.append(f"{title(role)}: columns {family.shown()}" + (f" ({notes})" if notes else ""))
    _add_numbers(answers, role, joined, name, units)


def _add_column(answers: Answers, role: str, units: Mapping[str, str], *more: str) -> None:
    """Adds the numbers of a role from one column, if it has an effect."""
    roles = answers.roles
    column = roles.column(role) if _is_needed(roles, role) else None
    if column is not None:
        numbers = _read_role(roles.sheet, column, role, units)
        doubt = ""
        if role in ("score", "cost") and role not in roles.given and (others := differing_columns(roles, role, column)):
            give = option("--column", f"{role}={others[0]}")
            doubt = f"{join_names(map(repr, others), 3)} could be it, too, with other values: {give}"
        roles.note(role, column, *more, *numbers.notes, doubt)
        numbers.values = numbers.values[answers.row]
        _add_numbers(answers, role, numbers, column, units)


def _is_needed(roles: Roles, role: str) -> bool:
    """Whether a role has an effect: texts of answers only without their tokens, and tokens only without costs."""
    present = {name for name, columns in roles.candidates.items() if columns} | roles.families.keys()
    if role.startswith(("tokens", "price")) and "cost" in present:
        return False
    return not (role in ("response", "response_chars") and ("tokens_out" in present or "cost" in present))


def _read_role(sheet: Sheet, column: str, role: str, units: Mapping[str, str], name: str | None = None) -> Numbers:
    """Numbers of a column; of texts of answers, their lengths."""
    if role == "response":
        lengths = [len(text) or np.nan for text in read_texts(sheet.cells(column))]
        return Numbers(np.array(lengths), notes=["its length counts"])
    numbers = read_numbers(sheet, column, role, units, name)
    if role == "confidence":
        numbers.notes.append("a model's statement about its answer, known only after the answer; not a feature of the query")
    if role.endswith("_chars"):
        numbers.values = np.where(numbers.values < 0, np.nan, numbers.values)  # -1 for an unknown length.
    return numbers


def _add_numbers(answers: Answers, role: str, numbers: Numbers, column: str, units: Mapping[str, str]) -> None:
    """Adds the numbers of a role, and properties that their column determines."""
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
        _doubt_latency(answers, np.asarray(numbers.values), numbers.unit_known or role in units)


def _doubt_latency(answers: Answers, seconds: np.ndarray, unit_known: bool) -> None:
    """Drops a latency without a unit that would be implausibly long in seconds; whole numbers may be milliseconds sooner."""
    median, is_whole = float(np.nanmedian(seconds)), not np.nansum(seconds % 1)
    if median > _LONGEST_LATENCY and unit_known:
        answers.notes.append(f"latency: implausible, a median of {median:,.0f} seconds")
    elif not unit_known and median > (_LONGEST_LATENCY / 5 if is_whole else _LONGEST_LATENCY):
        del answers.values["latency"]
        give = "give it (units={'latency': 'ms'}, on the command line --unit latency=ms; s for seconds)"
        answers.notes.append(f"latency: not used, as its median is {median:,.0f} and no unit is known: {give}")


def query_characters(answers: Answers) -> tuple[np.ndarray | None, str]:
    """Returns `[A]` characters of the prompts, None where they are unknown, and their column."""
    roles = answers.roles
    column = roles.column("prompt_chars")
    if column is not None:
        roles.note("prompt_chars", column)
        return _read_role(answers.sheet, column, "prompt_chars", {}).values[answers.row], column
    column = roles.column("text")
    if column is None:
        return None, ""
    return np.array([len(text) for text in read_texts(answers.sheet.cells(column))], np.float64)[answers.row], column
