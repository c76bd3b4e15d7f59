"""Reads the `A` answers of models to queries: for each answer one number per role (score, cost, latency, tokens), in common units."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import join_names, option
from .cells import Numbers, first_cells, is_empty, read_numbers, read_texts, which_empty
from .names import PER_MODEL, PRICING_ROLES, has_role, has_unknown_unit, match_level, read_unit, similar_names, title, words
from .opening import open_log
from .presets import Prices
from .roles import Roles, best_match, differing_columns, likely_column
from .sheets import Sheet

_LONGEST_LATENCY = 300.0  # Seconds; a longer median is doubted if no unit is known.
_CHARACTERS_PER_TOKEN = 4.0
_ANSWER_TOKENS = 256.0  # Assumed for an answer of which neither tokens, characters nor text are known.
_PRICES = ("price_in", "price_out", "price_cached")
_LOWEST_PRICE = 0.02  # USD per million tokens; if no price is higher, they are doubted.
# Columns of a file of prices, and short names of them.
_PRICE_COLUMNS = {"model": (), "price_in": ("in", "input"), "price_out": ("out", "output"), "price_cached": ("cached",)}


@dataclass
class Answers:
    """Numbers read from the `A` answers of a log, such as scores, costs in USD and seconds. An answer belongs to one model and one query."""

    roles: Roles  #: Roles of the columns.
    models: list[str]  #: Names of the models.
    row: np.ndarray  #: `[A]` row of the file.
    model: np.ndarray  #: `[A]` index of the model.
    values: dict[str, np.ndarray] = field(default_factory=dict)  #: `[A]` numbers by role, NaN for gaps.
    percent: np.ndarray | None = None  #: `[A]` whether the cell of a score had a % sign, or None.
    named_percent: bool = False  #: Whether the name of the scores has percent in it.
    unit: str | None = None  #: Unit of costs, if the file has another than USD.
    beside: set[str] = field(default_factory=set)  #: Roles of tokens that are not part of the input or output tokens.
    given: dict[str, str] = field(default_factory=dict)  #: Columns by role that the caller named.
    arrays: dict[str, Any] = field(default_factory=dict)  #: Arrays of the file that are not converted.

    @property
    def sheet(self) -> Sheet:
        return self.roles.sheet

    @property
    def notes(self) -> list[str]:
        return self.sheet.notes

    def place(self, answer: int) -> str:
        """Returns the place of an answer in the file, for messages."""
        row, model = int(self.row[answer]), self.models[self.model[answer]]
        if self.roles.models:
            return self.sheet.place(row, self.roles.families["score"].columns[model])
        query = self.sheet.cells(str(self.roles.column("query")))[row]
        return f"{self.sheet.place(row)}, query {str(query)!r} and model {model!r}"


def collect_answers(roles: Roles, units: Mapping[str, str], instead: str = "") -> Answers:
    """Reads a log's answers. `units` by role replace those of the file. If the caller gave "costs" or "prices" `instead`, its costs are ignored."""
    family = roles.families.get("cost")
    costs = [*roles.candidates.get("cost", ()), *(family.columns.values() if family else ())]
    if instead or not any(first_cells(roles.sheet.cells(column), 1) for column in costs):
        for role in ("cost", "response", *PRICING_ROLES) if instead == "costs" else ("cost",):
            roles.candidates.pop(role, None)
            roles.families.pop(role, None)
    units = {**_units_in_columns(roles, units), **units}
    answers = _wide_answers(roles) if roles.models else _long_answers(roles)
    for role in sorted(PER_MODEL, key=lambda role: role not in roles.families):
        if _is_needed(roles, role):
            _add_role(answers, role, units)
    return answers


def _units_in_columns(roles: Roles, units: Mapping[str, str]) -> dict[str, str]:
    """Returns units by role from columns such as `currency`, for roles not in the caller's `units`; `ValueError` if a column has several units."""
    sheet, found = roles.sheet, {}
    columns = {role: names[0] for role, names in roles.candidates.items() if names}
    columns |= {role: family.shown("") for role, family in roles.families.items()}
    for role, name in product(columns.keys() - units, {*sheet.single(sheet.names)} - roles.taken()):
        if "unit" in name.lower() or "currency" in name.lower():
            texts = [*dict.fromkeys(str(cell).strip() for cell in sheet.cells(name) if not is_empty(cell))]
            unit, note = read_unit(name, role, texts, columns[role])
            found |= {role: unit} if unit else {}
            if note:
                roles.used.add(name)
                sheet.notes.append(note)
    return found


def _long_answers(roles: Roles) -> Answers:
    """Returns the answers of a long table, which has a row for each query and model; their numbers are added later."""
    sheet = roles.sheet
    sheet.notes.append("layout: a row per query and model")
    for role in ("query", "model"):
        column = str(roles.column(role))
        cells = sheet.cells(column)
        rows = np.flatnonzero(which_empty(cells)).tolist()  # Words such as "none" may be names.
        if gaps := [row for row in rows if not (isinstance(cells[row], str) and cells[row].strip())]:
            more = f"{len(gaps) - 1} more rows name no {role}"
            raise ValueError(f"{sheet.place(gaps[0], column)} is empty, and {more}: fill it, or delete the rows")
        roles.note(role, column)
    codes, models = pd.factorize(np.array([str(cell).strip() for cell in cells], object))
    return Answers(roles, list(map(str, models)), np.arange(sheet.num_rows), codes.astype(np.int64))


def _wide_answers(roles: Roles) -> Answers:
    """Returns the answers of a wide table, which has a row for each query and a column for each model; their numbers are added later."""
    sheet, models = roles.sheet, roles.models
    scores, number, size = roles.families["score"], len(models), sheet.num_rows
    which = "columns called like the models" if scores.pattern == "{}" else f"columns {scores.shown()}"
    sheet.notes.append(f"layout: a row per query, {which} of {number} models ({join_names(models, 6)})")
    if roles.candidates.get("query") and roles.candidates["query"] != roles.candidates.get("text"):
        roles.note("query", str(roles.column("query")))
    return Answers(roles, list(models), np.repeat(np.arange(size), number), np.tile(np.arange(number), size))


def _add_role(answers: Answers, role: str, units: Mapping[str, str]) -> None:
    """Reads the numbers of a role into `answers.values`, if the log has them. `units` by role replace the units found in the file."""
    roles, sheet, family = answers.roles, answers.sheet, answers.roles.families.get(role)
    column = roles.column(role) if family is None else family.shown("")
    if column is None:
        return
    columns = [column] if family is None else [family.columns.get(model) for model in answers.models]
    absent = Numbers(np.full(sheet.num_rows, np.nan))
    parts = [absent if name is None else _read_role(sheet, name, role, units, column) for name in columns]
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    currencies = sorted({part.currency for part in parts if part.currency})
    if len(currencies) > 1:
        raise ValueError(f"{sheet.name}: costs are in {' and in '.join(currencies)}: convert all to one currency")
    if family is not None:
        roles.used |= set(family.columns.values())
        sheet.notes.append(f"{title(role)}: columns {family.shown()}" + (f" ({'; '.join(notes)})" if notes else ""))
    else:
        doubt = "the same for all models" if roles.models else ""
        if role in ("score", "cost") and role not in roles.given and (others := differing_columns(roles, role, column)):
            hint = option("--column", f"{role}={others[0]}")
            doubt = f"{join_names(map(repr, others), 3)} could be it, too, with other values: {hint}"
        roles.note(role, column, *notes, doubt)
    place = answers.row, 0 if family is None else answers.model
    values = np.stack([part.values for part in parts], axis=1)[place]
    name_words = words(column)
    # Anthropic's usage counts cached tokens beside the input, and Google's counts thoughts beside the output.
    cache = role in ("tokens_cached", "tokens_written") and name_words[-2:] == ("input", "tokens") and "cache" in name_words
    if cache or (role == "tokens_reasoning" and "thoughts" in name_words):
        answers.beside.add(role)
    if role == "score":
        answers.named_percent = any(part.named_percent for part in parts)
        if any(part.percent is not None for part in parts):
            signs = [np.zeros(sheet.num_rows, bool) if part.percent is None else part.percent for part in parts]
            answers.percent = np.stack(signs, axis=1)[place]
    if role == "cost" and currencies:
        answers.unit = "J per request" if currencies[0] == "J" else f"{currencies[0]} per query"
    if role == "latency" and role not in units and not any(part.unit_known for part in parts) and not np.isnan(values).all():
        # Whole numbers are more likely to be milliseconds, so a lower limit applies.
        median, longest = float(np.nanmedian(values)), _LONGEST_LATENCY if np.nansum(values % 1) else _LONGEST_LATENCY / 5
        if median > longest:
            about = f"its median is {median:,.0f} and no unit is known: give it (--unit latency=ms; s for seconds)"
            answers.notes.append(f"latency: not used, as {about}")
            return
    answers.values["response_chars" if role == "response" else role] = values


def _is_needed(roles: Roles, role: str) -> bool:
    """Whether a role affects the result: tokens and prices do only if the log has no costs, and texts of answers only if it has no output tokens."""
    present = {name for name, columns in roles.candidates.items() if columns} | roles.families.keys()
    if role.startswith(("tokens", "price")) and "cost" in present:
        return False
    return not (role in ("response", "response_chars") and ("tokens_out" in present or "cost" in present))


def _read_role(sheet: Sheet, column: str, role: str, units: Mapping[str, str], name: str) -> Numbers:
    """Reads a column as numbers of a role: for "response" lengths of texts, else numbers in the unit that `units[role]` or `name` states."""
    if role == "response":
        lengths = [len(text) or np.nan for text in read_texts(sheet.cells(column))]
        return Numbers(np.array(lengths), notes=["its length counts"])
    numbers = read_numbers(sheet, column, role, units, name)
    if role == "confidence":
        numbers.notes.append("a model's statement about its answer, known only after the answer; not a feature of the query")
    if role.endswith("_chars"):
        numbers.values = np.where(numbers.values < 0, np.nan, numbers.values)  # -1 for an unknown length.
    return numbers


def choose_models(answers: Answers, models: list | None, costs: dict | None, prices: Prices | None, file: str) -> None:
    """Drops from `answers` the models that are not in `models`, `costs` or `prices`, where these are given.

    Raises `ValueError` for a model in these that the log lacks; only prices from a file (`file` is its path, or empty) may have others. If `models`
    or `file` is given, also raises `ValueError` for a model without an entry in the given `costs` or `prices`.
    """
    name, present = answers.sheet.name, set(answers.models)
    if len(present) < 2:
        others = [c for c in similar_names("model", answers.sheet.names) if answers.roles.num_different(c) > 1]
        more = f", or name their column ({option('--column', f'model={others[0]}')})" if others else ""
        raise ValueError(f"{name} has one model, {answers.models[0]!r}: there is nothing to choose; add another{more}")
    if file and prices is not None and not prices.keys() <= present:
        others = join_names(sorted(prices.keys() - present), 4)
        answers.notes.append(f"prices: {file} also has those of {others}, which the log lacks")
        prices = {model: price for model, price in prices.items() if model in present}
    for argument, names in (("models", models), ("costs", costs), ("prices", prices)):
        for model in names or ():
            checks.one_of(f"a model in {argument}", model, answers.models)
    requested = models or answers.models
    kept = [model for model in requested if all(given is None or model in given for given in (costs, prices))]
    if len(kept) < len(requested) and (file or models is not None):
        lacking = join_names(model for model in requested if model not in kept)
        source = file or ("prices" if costs is None else "costs")
        raise ValueError(f"{source} lacks {lacking}: add an entry for each, or name the other models (--models A,B)")
    if len(kept) < 2:
        raise ValueError(f"{name}: only {join_names(kept)} would be left: there is nothing to choose; give more")
    omitted = [model for model in answers.models if model not in kept]
    number = np.array([kept.index(model) if model in kept else -1 for model in answers.models])[answers.model]
    chosen = number >= 0
    answers.row, answers.model, answers.models = answers.row[chosen], number[chosen], kept
    answers.values = {role: values[chosen] for role, values in answers.values.items()}
    answers.percent = None if answers.percent is None else answers.percent[chosen]
    answers.notes.extend([f"left out: the models {join_names(omitted)}, which were not named"] if omitted else [])


def check_costs(costs: Any, prices: Any, units: Mapping | None = None) -> tuple[dict[str, float] | None, Prices | None]:
    """Checks the caller's costs per query, or prices in USD per million tokens, by model. Returns both; None stands for the one not given.

    If `prices` is the path of a file, `units` are its units by role (None: those in its column names). `ValueError` for invalid values or for both.
    """
    if costs is not None and prices is not None:
        raise ValueError("costs and prices mean the same: give one of them")
    if isinstance(prices, (str, os.PathLike)):
        return None, _read_prices(prices, units)
    for name, value, example in (("costs", costs, "0.01"), ("prices", prices, "(0.5, 1.5)")):
        if value is not None and (not isinstance(value, Mapping) or not value):
            raise ValueError(f"{name} must map models to numbers, as {{'MODEL': {example}}}, got {checks.show(value)}")
    if costs is not None:
        return {str(m): float(checks.non_negative(f"costs[{m!r}]", cost, ())) for m, cost in costs.items()}, None
    checked: Prices = {}
    for model, price in (prices or {}).items():
        numbers = checks.non_negative(f"prices[{model!r}]", price)
        if numbers.shape not in ((), (2,), (3,)):
            expected = "USD per million tokens, as (IN, OUT) or (IN, OUT, CACHED)"
            raise ValueError(f"prices[{model!r}] must be {expected}, got {checks.show(price)}")
        checked[str(model)] = tuple(map(float, numbers if numbers.ndim else (numbers, numbers)))
    return None, None if prices is None else checked


def _read_prices(path: str | os.PathLike, units: Mapping[str, str] | None) -> Prices:
    """Reads prices by model, in USD per million tokens or other `units`, from the columns model, price_in, price_out (and price_cached) of a file."""
    sheet = open_log(path)
    columns: dict[str, str] = {}
    for role, short in _PRICE_COLUMNS.items():
        names = best_match(role, sheet.names) or [name for name in sheet.names if name.lower() in short]
        if len(names) > 1 or (not names and role != "price_cached"):
            problem = f"{' and '.join(map(repr, names))} could both be" if names else "it lacks"
            expected = "expected model, price_in and price_out (USD per million tokens)"
            raise ValueError(f"{path}: {problem} the column {role}; {expected}, got {join_names(map(repr, sheet.names))}")
        columns |= {role: names[0]} if names else {}
    models = [str(cell).strip() for cell in sheet.cells(columns.pop("model"))]
    if repeated := [model for model in models if models.count(model) > 1]:
        raise ValueError(f"{path} has two prices of the model {repeated[0]!r}: keep one")
    numbers = {role: read_numbers(sheet, column, role, units).values for role, column in columns.items()}
    for role, values in numbers.items():
        if np.isnan(values).any() and role != "price_cached":
            raise ValueError(f"{sheet.place(np.argmax(np.isnan(values)), columns[role])} is empty: give a price, or 0")
    return {model: tuple(map(float, row)) for model, *row in zip(models, *numbers.values(), strict=True)}


def price_answers(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> np.ndarray | None:
    """Returns each answer's cost, `[A]`, NaN if missing: from `costs`, else `prices` (in USD), else the file's costs or prices. None if unknown."""
    name, values, preset = answers.sheet.name, answers.values, answers.sheet.preset
    if costs is not None:
        answers.notes.append("cost: as given, the same for every query")
        answers.unit = None
        return np.array([costs[model] for model in answers.models])[answers.model]
    if prices is None and "cost" in values and not np.isnan(values["cost"]).all():
        return values["cost"]
    source, price = "the file's prices", {role: values[role] for role in _PRICES if role in values}
    if prices is not None:
        source = f"the price list of {preset.name}" if preset.prices else "the prices given"
        table = pd.DataFrame([prices.get(model, ()) for model in answers.models]).to_numpy(np.float64)  # [N, 2 or 3]
        price = dict(zip(_PRICES, table[answers.model].T))
    tokens_in, tokens_out, counted = _count_tokens(answers) if price else (None, None, "")
    if tokens_in is None and tokens_out is None:
        return None
    for role, kind in (("price_in", "input"), ("price_out", "output")):
        if role not in price:
            hint = f"name its column (--column {role}=NAME), or {ways_to_give_costs(answers)}"
            raise ValueError(f"{name} has a price of one kind of tokens and none of {kind} tokens: {hint}")
    if tokens_in is None and (price["price_in"] > 0).any():
        hint = "name the column (--column tokens_in=NAME), or give prices of input of 0"
        raise ValueError(f"{name} has neither input tokens nor texts of queries to compute the cost of the input: {hint}")
    tokens_in = np.zeros(len(answers.row)) if tokens_in is None else tokens_in
    cost = tokens_in * price["price_in"] + (_ANSWER_TOKENS if tokens_out is None else tokens_out) * price["price_out"]
    cost = cost + _cached_cost(answers, tokens_in, price)
    answers.notes.append(f"cost: {source} in USD per million tokens x {counted}")
    most = np.nan_to_num([price["price_in"], price["price_out"]]).max()
    if prices is None and 0 < most < _LOWEST_PRICE:
        about = f"implausible prices of at most {most:g} USD per million tokens"
        answers.notes.append(f"cost: {about}; are they per 1k (--unit price=per_1k)?")
    answers.unit = None
    return cost / 1e6


def _count_tokens(answers: Answers) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """Returns input tokens and output tokens of each of `A` answers, `[A]` each (None if unknown), and a text about how they were counted."""
    values, by = answers.values, f"characters / {_CHARACTERS_PER_TOKEN:g}"
    tokens_in, tokens_out = values.get("tokens_in"), values.get("tokens_out")
    if tokens_out is not None and "tokens_reasoning" in values:
        beside = _are_beside(answers, "tokens_reasoning", tokens_out, "reasoning tokens: {} the output tokens")
        tokens_out = tokens_out + beside * np.nan_to_num(values["tokens_reasoning"])
    if tokens_in is not None and "tokens_written" in values and (values["tokens_written"] > 0).any():
        note = "tokens written to a cache: {} the input tokens, at their price (providers may charge more)"
        beside = _are_beside(answers, "tokens_written", tokens_in, note)
        tokens_in = tokens_in + beside * np.nan_to_num(values["tokens_written"])
    if tokens_in is not None or tokens_out is not None:
        lost = _lost_usage(values, tokens_in, tokens_out)
        if lost.any():
            first = answers.place(int(np.argmax(lost)))
            answers.notes.append(f"tokens: {lost.sum():,} answers have 0 tokens, which counts as not known (first: {first})")
            tokens_in, tokens_out = (None if t is None else np.where(lost, np.nan, t) for t in (tokens_in, tokens_out))
    counted_in, counted_out = "input tokens", "output tokens"
    if tokens_in is None:
        roles, sheet, counted_in, characters = answers.roles, answers.sheet, "no input tokens", None
        if (column := roles.column("prompt_chars")) is not None:
            roles.note("prompt_chars", column)
            characters = _read_role(sheet, column, "prompt_chars", {}, column).values
        elif (column := roles.column("text")) is not None:
            characters = np.array([len(text) for text in read_texts(sheet.cells(column))], np.float64)
        if characters is not None:
            tokens_in = characters[answers.row] / _CHARACTERS_PER_TOKEN
            counted_in = f"input tokens, assumed to be {by} of {column!r}"
    if tokens_out is None:
        counted_out = f"an assumed {_ANSWER_TOKENS:g} output tokens"
        if "response_chars" in values:
            unknown = np.isnan(values["response_chars"])
            rest = f" ({counted_out} for the {unknown.mean():.1%} whose length is unknown)" if unknown.any() else ""
            counted_out = f"output tokens, assumed to be {by}{rest}"
            tokens_out = np.where(unknown, _ANSWER_TOKENS, values["response_chars"] / _CHARACTERS_PER_TOKEN)
    return tokens_in, tokens_out, f"{counted_in} and {counted_out}"


def _lost_usage(values: Mapping[str, np.ndarray], *tokens: np.ndarray | None) -> np.ndarray:
    """Returns a mask, `[A]`, of answers whose usage was not recorded: they have a score (`values` are by role), but 0 in every array of `tokens`."""
    answered = ~np.isnan(values["score"]) if "score" in values else np.ones(len(next(iter(values.values()))), bool)
    return answered & np.logical_and.reduce([counts == 0 for counts in tokens if counts is not None])


def _cached_cost(answers: Answers, tokens_in: np.ndarray, prices: Mapping[Any, np.ndarray]) -> np.ndarray:
    """Returns what cached tokens add to the cost of each answer, `[A]` in 1e-6 USD, negative for a discount. `ValueError` if they lack a price."""
    tokens = np.nan_to_num(answers.values.get("tokens_cached", np.zeros(len(answers.row))))
    if not (tokens > 0).any():
        return tokens
    price = prices.get("price_cached", np.full(len(tokens), np.nan))
    unpriced = (tokens > 0) & np.isnan(price)
    if unpriced.any():
        model = answers.models[int(answers.model[int(np.argmax(unpriced))])]
        hint = f"give it ({option('--price', model)}=IN:OUT:CACHED), or count them as others (--column tokens_cached=)"
        raise ValueError(f"{answers.sheet.name} has cached tokens, and their price is unknown: {hint}")
    beside = _are_beside(answers, "tokens_cached", tokens_in, "cached tokens: {} the input tokens, at their own price")
    return tokens * (np.nan_to_num(price) - (0.0 if beside else prices["price_in"]))


def _are_beside(answers: Answers, role: str, total: np.ndarray, note: str) -> bool:
    """Whether the tokens of a role, such as cached ones, come on top of the tokens `total` `[A]` of each answer, rather than being part of them.

    The counts decide where they can. `note` has a gap for "counted beside" or "part of" and is added to the notes of `answers`.
    """
    part, values, beside = np.nan_to_num(answers.values[role]), answers.values, role in answers.beside
    if (part > np.nan_to_num(total, nan=np.inf)).any():
        beside = True
    elif {"tokens_total", "tokens_in", "tokens_out"} <= values.keys():
        rest = np.nan_to_num(values["tokens_total"] - values["tokens_in"] - values["tokens_out"])
        beside = bool(np.abs(rest - part).sum() < np.abs(rest).sum())
    answers.notes.append(note.format("counted beside" if beside else "part of"))
    return beside


def ways_to_give_costs(answers: Answers) -> str:
    roles, sheet, taken, hint = answers.roles, answers.sheet, answers.roles.taken(), ""
    free = [name for name in sheet.single(sheet.names) if name not in taken]
    strange = [name for name in free if "cost" in words(name) and has_unknown_unit("cost", name)]
    strange += [name for name in free if "(" in name and "tokens" in words(name.split("(")[0]) and not has_role(name)]
    blank = [name for name in free if match_level("cost", name) > 0 and not first_cells(sheet.cells(name), 1)]
    if not roles.models and (likely := similar_names("cost", free)):
        hint = f"{likely_column('cost', likely)}; or "
    elif blank:
        hint = f"the cells of {blank[0]!r} are empty (formulas that were not computed?); "
    elif strange:
        hint = f"what {strange[0]!r} counts is not known: write USD per query, or single tokens, without a remark; or "
    models = f"; models: {', '.join(answers.models)}" if len(answers.models) <= 20 else ""
    cost, price = (option(name, answers.models[0]) for name in ("--cost", "--price"))
    ways = f"give the cost of each model ({cost}=VALUE ... in USD per query), or its price ({price}=IN:OUT ... in USD per million"
    return f"{hint}{ways} tokens, or --prices FILE); in Python costs={{...}}, prices={{...}}{models}"
