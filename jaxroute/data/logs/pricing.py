"""Costs of answers: the file's own, given ones, or tokens times prices."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import option, some
from jaxroute.data.logs.answers import CHARACTERS_PER_TOKEN, Answers, query_characters
from jaxroute.data.logs.cells import read_numbers, some_cells
from jaxroute.data.logs.files import open_log
from jaxroute.data.logs.names import known, level, similar, unknown_unit, words
from jaxroute.data.logs.presets import Prices

_LOWEST_PRICE = 0.02  # USD per million tokens; if none is higher, they are doubted.
ANSWER_TOKENS = 256.0
"""Tokens of an answer of which neither tokens, characters nor text are known."""

PRICES: tuple[str, ...] = ("price_in", "price_out", "price_cached")
# Columns of a file of prices, and short names of them.
_COLUMNS = {"model": (), "price_in": ("in", "input"), "price_out": ("out", "output"), "price_cached": ("cached",)}


def given_numbers(
    costs: Any, prices: Any, units: Mapping[str, str] | None = None
) -> tuple[dict[str, float] | None, Prices | None]:
    """Returns costs and prices as a caller gave them, checked.

    Args:
      costs: cost per query by model, or None.
      prices: USD per million input, output and, if known, cached input tokens by model; a file with the columns model, price_in and price_out; or None.
      units: units by role, of a file.

    Raises:
      ValueError: something is no mapping, negative or not finite; or both were given.
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
    return None, None if prices is None else {str(m): _price(f"prices[{m!r}]", price) for m, price in prices.items()}


def _price(name: str, price: Any) -> tuple[float, ...]:
    numbers = checks.non_negative(name, price)
    if numbers.shape not in ((), (2,), (3,)):
        got = checks.show(price)
        raise ValueError(f"{name} must be USD per million tokens, as (IN, OUT) or (IN, OUT, CACHED), got {got}")
    return tuple(map(float, numbers if numbers.ndim else (numbers, numbers)))


def _read_prices(path: str | os.PathLike, units: Mapping[str, str] | None) -> Prices:
    """Prices by model from a table with a row per model; the columns' names say per how many tokens, a million if they say nothing."""
    sheet = open_log(path)
    columns: dict[str, str] = {}
    for role, short in _COLUMNS.items():
        best = max((level(role, name) for name in sheet.names), default=0)
        names = [n for n in sheet.names if level(role, n) == best > 0] or [n for n in sheet.names if n.lower() in short]
        if len(names) > 1 or (not names and role != "price_cached"):
            problem = f"{' and '.join(map(repr, names))} could both be" if names else "it lacks"
            raise ValueError(
                f"{path}: {problem} the column {role}; a file of prices has the columns model, price_in and price_out (USD per million tokens); it has {some(map(repr, sheet.names))}"
            )
        columns |= {role: names[0]} if names else {}
    models = [str(cell).strip() for cell in sheet.cells(columns.pop("model"))]
    twice = next((model for model in models if models.count(model) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} has two prices of the model {twice!r}: keep one")
    numbers = {role: read_numbers(sheet, column, role, units).values for role, column in columns.items()}
    for role, values in numbers.items():
        if np.isnan(values).any() and role != "price_cached":
            place = sheet.place(int(np.argmax(np.isnan(values))))
            raise ValueError(f"{place}, column {columns[role]!r} is empty: give a price, or 0")
    return {model: tuple(map(float, row)) for model, *row in zip(models, *numbers.values(), strict=True)}


def price_answers(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> np.ndarray | None:
    """Returns `[A]` costs in USD with NaN for gaps, or None if nothing says them; notes how.

    Args:
      answers: from `collect`.
      costs: cost per query by model, instead of the file's.
      prices: USD per million tokens by model, instead of the file's.

    Raises:
      ValueError: cached tokens have no price.
    """
    values, preset = answers.values, answers.preset
    if costs is not None:
        answers.notes.append("cost: as given, the same for every query")
        answers.unit = None
        return np.array([costs[model] for model in answers.models])[answers.model]
    if prices is None and "cost" in values and not np.isnan(values["cost"]).all():
        return values["cost"]
    whose, of = "the file's prices", {role: values[role] for role in PRICES if role in values}
    if prices is not None:
        whose = f"the price list of {preset.name}" if preset.prices else "the prices given"
        table = pd.DataFrame([prices.get(model, ()) for model in answers.models]).to_numpy(np.float64)  # [N, 2 or 3]
        of = dict(zip(PRICES, table[answers.model].T))
    tokens_in, tokens_out, called = _tokens(answers) if of else (None, None, "")
    if tokens_in is None and tokens_out is None:
        return None
    for role, kind in (("price_in", "input"), ("price_out", "output")):
        if role not in of:
            raise ValueError(
                f"{answers.sheet.name} has a price of one kind of tokens and none of {kind} tokens: name its column (columns={{{role!r}: ...}}, on the "
                f"command line --column {role}=NAME), or {give_costs(answers)}"
            )
    if tokens_in is None and (of["price_in"] > 0).any():
        raise ValueError(
            f"{answers.sheet.name} has neither input tokens nor texts of queries, so nothing says what the input costs: name the column "
            "(columns={'tokens_in': ...}, on the command line --column tokens_in=NAME), or give prices of input of 0"
        )
    tokens_in = np.zeros(len(answers.row)) if tokens_in is None else tokens_in
    cost = tokens_in * of["price_in"] + (ANSWER_TOKENS if tokens_out is None else tokens_out) * of["price_out"]
    cost = cost + _cached(answers, tokens_in, of)
    answers.notes.append(f"cost: {whose} in USD per million tokens x {called}")
    most = np.nan_to_num([of["price_in"], of["price_out"]]).max()
    if prices is None and 0 < most < _LOWEST_PRICE:
        answers.notes.append(
            f"cost: implausible prices of at most {most:g} USD per million tokens; are they per 1k (--unit price=per_1k)?"
        )
    answers.unit = None
    return cost / 1e6


def _tokens(answers: Answers) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """Input and output tokens `[A]`, None where nothing says them, and both in words."""
    values, by = answers.values, f"characters / {CHARACTERS_PER_TOKEN:g}"
    tokens_in, tokens_out = values.get("tokens_in"), values.get("tokens_out")
    if tokens_out is not None and "tokens_reasoning" in values:
        beside = _beside(answers, "tokens_reasoning", tokens_out, "reasoning tokens: {} the output tokens")
        tokens_out = tokens_out + beside * np.nan_to_num(values["tokens_reasoning"])
    if tokens_in is not None and "tokens_written" in values and (values["tokens_written"] > 0).any():
        said = "tokens written to a cache: {} the input tokens, at their price (providers may charge more)"
        beside = _beside(answers, "tokens_written", tokens_in, said)
        tokens_in = tokens_in + beside * np.nan_to_num(values["tokens_written"])
    if tokens_in is not None or tokens_out is not None:
        lost = _lost(values, tokens_in, tokens_out)
        if lost.any():
            first = answers.place(int(np.argmax(lost)))
            answers.notes.append(
                f"tokens: {int(lost.sum()):,} answers have 0 tokens, which counts as not known (first: {first})"
            )
            tokens_in, tokens_out = (None if of is None else np.where(lost, np.nan, of) for of in (tokens_in, tokens_out))
    words_in, words_out = "input tokens", "output tokens"
    if tokens_in is None:
        characters, column = query_characters(answers)
        words_in = "no input tokens"
        if characters is not None:
            tokens_in, words_in = characters / CHARACTERS_PER_TOKEN, f"input tokens, assumed to be {by} of {column!r}"
    if tokens_out is None:
        words_out = f"an assumed {ANSWER_TOKENS:g} output tokens"
        if "response_chars" in values:
            unknown = np.isnan(values["response_chars"])
            of = f" ({words_out} for the {unknown.mean():.1%} whose length is unknown)" if unknown.any() else ""
            words_out = f"output tokens, assumed to be {by}{of}"
            tokens_out = np.where(unknown, ANSWER_TOKENS, values["response_chars"] / CHARACTERS_PER_TOKEN)
    return tokens_in, tokens_out, f"{words_in} and {words_out}"


def _lost(values: Mapping[str, np.ndarray], *tokens: np.ndarray | None) -> np.ndarray:
    """`[A]` answers of which all tokens are 0: their usage was lost."""
    answered = ~np.isnan(values["score"]) if "score" in values else np.ones(len(next(iter(values.values()))), bool)
    return answered & np.logical_and.reduce([of == 0 for of in tokens if of is not None])


def _cached(answers: Answers, tokens_in: np.ndarray, of: Mapping[str, np.ndarray]) -> np.ndarray:
    """`[A]` what cached input adds to the cost, in 1e-6 USD; it is negative where cached tokens are part of the input tokens."""
    tokens = np.nan_to_num(answers.values.get("tokens_cached", np.zeros(len(answers.row))))
    if not (tokens > 0).any():
        return tokens
    price = of.get("price_cached", np.full(len(tokens), np.nan))
    unpriced = (tokens > 0) & np.isnan(price)
    if unpriced.any():
        first = answers.models[int(answers.model[int(np.argmax(unpriced))])]
        raise ValueError(
            f"{answers.sheet.name} has cached tokens, and nothing says what they cost: give their price as the third number (prices={{{first!r}: "
            f"(IN, OUT, CACHED)}}, on the command line {option('--price', f'{first}=IN:OUT:CACHED')}), or count them as others (columns={{'tokens_cached': ''}}, "
            "--column tokens_cached=)"
        )
    beside = _beside(answers, "tokens_cached", tokens_in, "cached tokens: {} the input tokens, at their own price")
    return tokens * (np.nan_to_num(price) - (0.0 if beside else of["price_in"]))


def _beside(answers: Answers, role: str, whole: np.ndarray, said: str) -> bool:
    """Whether tokens of a role are counted beside `whole`: as they exceed it, else by the sum of all, else by their name; notes which."""
    part, values, beside = np.nan_to_num(answers.values[role]), answers.values, role in answers.beside
    if (part > np.nan_to_num(whole, nan=np.inf)).any():
        beside = True
    elif {"tokens_total", "tokens_in", "tokens_out"} <= values.keys():
        left = np.nan_to_num(values["tokens_total"] - values["tokens_in"] - values["tokens_out"])
        beside = bool(np.abs(left - part).sum() < np.abs(left).sum())
    answers.notes.append(said.format("counted beside" if beside else "part of"))
    return beside


def give_costs(answers: Answers) -> str:
    """The ways to give the costs that are lacking, in words."""
    first, roles = answers.models[0], answers.roles
    price = f"{option('--price', f'{first}=IN:OUT')} ... in USD per million tokens, or --prices FILE with the columns model, price_in, price_out"
    cost = f"{option('--cost', f'{first}=VALUE')} ... in USD per query"
    models = f"; models: {', '.join(answers.models)}" if len(answers.models) <= 20 else ""
    used = {name for names in roles.candidates.values() for name in names}
    free = [name for name in roles.sheet.names if name not in used and roles.sheet.names.count(name) == 1]
    likely, hint = similar("cost", free), ""
    strange = [name for name in free if "cost" in words(name) and unknown_unit("cost", name)]
    strange += [name for name in free if "(" in name and "tokens" in words(name.split("(")[0]) and not known(name)]
    blank = [name for name in free if level("cost", name) > 0 and not some_cells(roles.sheet.cells(name), 1)]
    if blank:
        hint = f"the cells of {blank[0]!r} are empty (formulas that were not computed?); "
    elif strange:
        hint = f"what {strange[0]!r} counts is not known: write USD per query, or single tokens, without a remark; or "
    if likely and not roles.models:
        hint = f"{' or '.join(map(repr, likely[:3]))} looks like the cost: {option('--column', f'cost={likely[0]}')}; or "
    return f"{hint}give the cost of each model ({cost}), or its price ({price}); in Python costs={{...}}, prices={{...}}{models}"
