"""Costs of answers: the file's own, given ones, or tokens times prices."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import join_names, option
from .answers import Answers, query_characters
from .cells import first_cells, read_numbers
from .files import open_log
from .names import has_role, has_unknown_unit, match_level, similar_names, words
from .presets import Prices

CHARACTERS_PER_TOKEN = 4.0
ANSWER_TOKENS = 256.0  # Of an answer of which neither tokens, characters nor text are known.
PRICES = ("price_in", "price_out", "price_cached")
_LOWEST_PRICE = 0.02  # USD per million tokens; if none is higher, prices are doubted.
# Columns of a file of prices, and short names of them.
_COLUMNS = {"model": (), "price_in": ("in", "input"), "price_out": ("out", "output"), "price_cached": ("cached",)}


def check_costs(
    costs: Any, prices: Any, units: Mapping[str, str] | None = None
) -> tuple[dict[str, float] | None, Prices | None]:
    """Returns the caller's costs and prices by model, checked; prices may be in a file, whose units are `units`."""
    if costs is not None and prices is not None:
        raise ValueError("costs and prices mean the same: give one of them")
    if isinstance(prices, (str, os.PathLike)):
        return None, _read_prices(prices, units)
    for name, value, example in (("costs", costs, "0.01"), ("prices", prices, "(0.5, 1.5)")):
        if value is not None and (not isinstance(value, Mapping) or not value):
            raise ValueError(f"{name} must map models to numbers, as {{'MODEL': {example}}}, got {checks.show(value)}")
    if costs is not None:
        return {str(m): float(checks.non_negative(f"costs[{m!r}]", cost, ())) for m, cost in costs.items()}, None
    return None, None if prices is None else {str(m): _price(f"prices[{m!r}]", price) for m, price in prices.items()}


def _price(name: str, price: Any) -> tuple[float, ...]:
    numbers = checks.non_negative(name, price)
    if numbers.shape not in ((), (2,), (3,)):
        got = checks.show(price)
        raise ValueError(f"{name} must be USD per million tokens, as (IN, OUT) or (IN, OUT, CACHED), got {got}")
    return tuple(map(float, numbers if numbers.ndim else (numbers, numbers)))


def _read_prices(path: str | os.PathLike, units: Mapping[str, str] | None) -> Prices:
    """Prices by model from a file with a row per model; names of columns say per how many tokens, else per million."""
    sheet = open_log(path)
    columns: dict[str, str] = {}
    for role, short in _COLUMNS.items():
        best = max((match_level(role, name) for name in sheet.names), default=0)
        names = [n for n in sheet.names if match_level(role, n) == best > 0] or [
            n for n in sheet.names if n.lower() in short
        ]
        if len(names) > 1 or (not names and role != "price_cached"):
            problem = f"{' and '.join(map(repr, names))} could both be" if names else "it lacks"
            expected = "a file of prices has the columns model, price_in and price_out (USD per million tokens)"
            has = join_names(map(repr, sheet.names))
            raise ValueError(f"{path}: {problem} the column {role}; {expected}; it has {has}")
        columns |= {role: names[0]} if names else {}
    models = [str(cell).strip() for cell in sheet.cells(columns.pop("model"))]
    repeated = next((model for model in models if models.count(model) > 1), None)
    if repeated is not None:
        raise ValueError(f"{path} has two prices of the model {repeated!r}: keep one")
    numbers = {role: read_numbers(sheet, column, role, units).values for role, column in columns.items()}
    for role, values in numbers.items():
        if np.isnan(values).any() and role != "price_cached":
            place = sheet.place(int(np.argmax(np.isnan(values))))
            raise ValueError(f"{place}, column {columns[role]!r} is empty: give a price, or 0")
    return {model: tuple(map(float, row)) for model, *row in zip(models, *numbers.values(), strict=True)}


def price_answers(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> np.ndarray | None:
    """Returns `[A]` costs with NaN for gaps, from the caller's costs or prices, or the file's; None without any of these."""
    name, values, preset = answers.sheet.name, answers.values, answers.preset
    if costs is not None:
        answers.notes.append("cost: as given, the same for every query")
        answers.unit = None
        return np.array([costs[model] for model in answers.models])[answers.model]
    if prices is None and "cost" in values and not np.isnan(values["cost"]).all():
        return values["cost"]
    source, price = "the file's prices", {role: values[role] for role in PRICES if role in values}
    if prices is not None:
        source = f"the price list of {preset.name}" if preset.prices else "the prices given"
        table = pd.DataFrame([prices.get(model, ()) for model in answers.models]).to_numpy(np.float64)  # [N, 2 or 3]
        price = dict(zip(PRICES, table[answers.model].T))
    tokens_in, tokens_out, counted = _count_tokens(answers) if price else (None, None, "")
    if tokens_in is None and tokens_out is None:
        return None
    for role, kind in (("price_in", "input"), ("price_out", "output")):
        if role not in price:
            one = f"{name} has a price of one kind of tokens and none of {kind} tokens"
            give = f"name its column (columns={{{role!r}: ...}}, on the command line --column {role}=NAME)"
            raise ValueError(f"{one}: {give}, or {ways_to_give_costs(answers)}")
    if tokens_in is None and (price["price_in"] > 0).any():
        give = "name the column (columns={'tokens_in': ...}, on the command line --column tokens_in=NAME)"
        neither = f"{name} has neither input tokens nor texts of queries, so nothing says what the input costs"
        raise ValueError(f"{neither}: {give}, or give prices of input of 0")
    tokens_in = np.zeros(len(answers.row)) if tokens_in is None else tokens_in
    cost = tokens_in * price["price_in"] + (ANSWER_TOKENS if tokens_out is None else tokens_out) * price["price_out"]
    cost = cost + _cached_cost(answers, tokens_in, price)
    answers.notes.append(f"cost: {source} in USD per million tokens x {counted}")
    most = np.nan_to_num([price["price_in"], price["price_out"]]).max()
    if prices is None and 0 < most < _LOWEST_PRICE:
        low = f"cost: implausible prices of at most {most:g} USD per million tokens"
        answers.notes.append(f"{low}; are they per 1k (--unit price=per_1k)?")
    answers.unit = None
    return cost / 1e6


def _count_tokens(answers: Answers) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """Input and output tokens `[A]`, None where they are unknown, and both in words."""
    values, by = answers.values, f"characters / {CHARACTERS_PER_TOKEN:g}"
    tokens_in, tokens_out = values.get("tokens_in"), values.get("tokens_out")
    if tokens_out is not None and "tokens_reasoning" in values:
        beside = _are_beside(answers, "tokens_reasoning", tokens_out, "reasoning tokens: {} the output tokens")
        tokens_out = tokens_out + beside * np.nan_to_num(values["tokens_reasoning"])
    if tokens_in is not None and "tokens_written" in values and (values["tokens_written"] > 0).any():
        note = "tokens written to a cache: {} the input tokens, at their price (providers may charge more)"
        tokens_in = tokens_in + _are_beside(answers, "tokens_written", tokens_in, note) * np.nan_to_num(
            values["tokens_written"]
        )
    if tokens_in is not None or tokens_out is not None:
        lost = _lost_usage(values, tokens_in, tokens_out)
        if lost.any():
            first = answers.place(int(np.argmax(lost)))
            zeros = f"{int(lost.sum()):,} answers have 0 tokens, which counts as not known"
            answers.notes.append(f"tokens: {zeros} (first: {first})")
            tokens_in, tokens_out = (None if t is None else np.where(lost, np.nan, t) for t in (tokens_in, tokens_out))
    counted_in, counted_out = "input tokens", "output tokens"
    if tokens_in is None:
        characters, column = query_characters(answers)
        counted_in = "no input tokens"
        if characters is not None:
            tokens_in, counted_in = characters / CHARACTERS_PER_TOKEN, f"input tokens, assumed to be {by} of {column!r}"
    if tokens_out is None:
        counted_out = f"an assumed {ANSWER_TOKENS:g} output tokens"
        if "response_chars" in values:
            unknown = np.isnan(values["response_chars"])
            rest = f" ({counted_out} for the {unknown.mean():.1%} whose length is unknown)" if unknown.any() else ""
            counted_out = f"output tokens, assumed to be {by}{rest}"
            tokens_out = np.where(unknown, ANSWER_TOKENS, values["response_chars"] / CHARACTERS_PER_TOKEN)
    return tokens_in, tokens_out, f"{counted_in} and {counted_out}"


def _lost_usage(values: Mapping[str, np.ndarray], *tokens: np.ndarray | None) -> np.ndarray:
    """`[A]` answers with 0 tokens in all counts."""
    answered = ~np.isnan(values["score"]) if "score" in values else np.ones(len(next(iter(values.values()))), bool)
    return answered & np.logical_and.reduce([counts == 0 for counts in tokens if counts is not None])


def _cached_cost(answers: Answers, tokens_in: np.ndarray, prices: Mapping[Any, np.ndarray]) -> np.ndarray:
    """`[A]` further cost of cached input in 1e-6 USD; negative where cached tokens are part of the input tokens."""
    tokens = np.nan_to_num(answers.values.get("tokens_cached", np.zeros(len(answers.row))))
    if not (tokens > 0).any():
        return tokens
    price = prices.get("price_cached", np.full(len(tokens), np.nan))
    unpriced = (tokens > 0) & np.isnan(price)
    if unpriced.any():
        model = answers.models[int(answers.model[int(np.argmax(unpriced))])]
        cached = f"{answers.sheet.name} has cached tokens, and nothing says what they cost"
        give = (
            f"(prices={{{model!r}: (IN, OUT, CACHED)}}, on the command line {option('--price', f'{model}=IN:OUT:CACHED')})"
        )
        others = "count them as others (columns={'tokens_cached': ''}, --column tokens_cached=)"
        raise ValueError(f"{cached}: give their price as the third number {give}, or {others}")
    beside = _are_beside(answers, "tokens_cached", tokens_in, "cached tokens: {} the input tokens, at their own price")
    return tokens * (np.nan_to_num(price) - (0.0 if beside else prices["price_in"]))


def _are_beside(answers: Answers, role: str, total: np.ndarray, note: str) -> bool:
    """Whether tokens of a role are counted beside `total`: if they exceed it, else by the sum of all, else by their name; notes it."""
    part, values, beside = np.nan_to_num(answers.values[role]), answers.values, role in answers.beside
    if (part > np.nan_to_num(total, nan=np.inf)).any():
        beside = True
    elif {"tokens_total", "tokens_in", "tokens_out"} <= values.keys():
        rest = np.nan_to_num(values["tokens_total"] - values["tokens_in"] - values["tokens_out"])
        beside = bool(np.abs(rest - part).sum() < np.abs(rest).sum())
    answers.notes.append(note.format("counted beside" if beside else "part of"))
    return beside


def ways_to_give_costs(answers: Answers) -> str:
    """Returns the ways to specify the costs that are lacking, in words."""
    model, roles, sheet = answers.models[0], answers.roles, answers.sheet
    file = "--prices FILE with the columns model, price_in, price_out"
    price = f"{option('--price', f'{model}=IN:OUT')} ... in USD per million tokens, or {file}"
    cost = f"{option('--cost', f'{model}=VALUE')} ... in USD per query"
    models = f"; models: {', '.join(answers.models)}" if len(answers.models) <= 20 else ""
    used = {name for names in roles.candidates.values() for name in names}
    free = [name for name in sheet.single(sheet.names) if name not in used]
    likely, hint = similar_names("cost", free), ""
    strange = [name for name in free if "cost" in words(name) and has_unknown_unit("cost", name)]
    strange += [name for name in free if "(" in name and "tokens" in words(name.split("(")[0]) and not has_role(name)]
    blank = [name for name in free if match_level("cost", name) > 0 and not first_cells(sheet.cells(name), 1)]
    if blank:
        hint = f"the cells of {blank[0]!r} are empty (formulas that were not computed?); "
    elif strange:
        write = "write USD per query, or single tokens, without a remark"
        hint = f"what {strange[0]!r} counts is not known: {write}; or "
    if likely and not roles.models:
        hint = f"{' or '.join(map(repr, likely[:3]))} looks like the cost: {option('--column', f'cost={likely[0]}')}; or "
    return f"{hint}give the cost of each model ({cost}), or its price ({price}); in Python costs={{...}}, prices={{...}}{models}"
