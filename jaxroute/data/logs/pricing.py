"""Costs of answers: the file's own, given ones, or tokens times prices."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import option, some
from jaxroute.data.logs.answers import CHARACTERS_PER_TOKEN, Answers, query_characters
from jaxroute.data.logs.names import similar

ANSWER_TOKENS = 256.0
"""Tokens of an answer of which neither tokens, characters nor text are known."""
_CHEAPEST, _MOST_EXPENSIVE = 1e-7, 10.0  # USD per query; mean costs outside are doubted.

Prices = dict[str, tuple[float, ...]]
PRICES: tuple[str, ...] = ("price_in", "price_out", "price_cached")


def given_numbers(
    costs: Any, prices: Any, units: Mapping[str, str] | None = None
) -> tuple[dict[str, float] | None, Prices | None]:
    """Returns costs and prices as a caller gave them, checked.

    Args:
      costs: cost per query by model, or None.
      prices: USD per million input, output and, if known, cached input tokens by model; a file of prices (see `read_prices`); or None.

    Raises:
      ValueError: something is no mapping, negative or not finite; or both were given.
    """
    if costs is not None and prices is not None:
        raise ValueError("costs and prices mean the same: give one of them")
    if isinstance(prices, (str, os.PathLike)):
        return None, read_prices(prices, units)
    for name, value in (("costs", costs), ("prices", prices)):
        if value is not None and (not isinstance(value, Mapping) or not value):
            example = "{'MODEL': 0.01}" if name == "costs" else "{'MODEL': (0.5, 1.5)}"
            raise ValueError(f"{name} must map models to numbers, as {example}, got {checks.show(value)}")
    if costs is not None:
        return {str(m): float(checks.non_negative(f"costs[{m!r}]", cost, ())) for m, cost in costs.items()}, None
    if prices is None:
        return None, None
    return None, {str(m): _price(f"prices[{m!r}]", price) for m, price in prices.items()}


def _price(name: str, price: Any) -> tuple[float, ...]:
    numbers = checks.non_negative(name, price)
    if numbers.shape not in ((), (2,), (3,)):
        raise ValueError(
            f"{name} must be USD per million input and output tokens, as (0.5, 1.5), or also cached ones, got {checks.show(price)}"
        )
    return tuple(float(value) for value in (np.broadcast_to(numbers, (2,)) if numbers.ndim == 0 else numbers))


def read_prices(path: str | os.PathLike, units: Mapping[str, str] | None = None) -> Prices:
    """Returns prices by model from a table with a row per model.

    Args:
      path: a file with columns for the model, the price of input and of output, and optionally of cached input; their names say per how many
        tokens, a million if they say nothing.
      units: units by role, instead of what the names say.

    Raises:
      ValueError: a column is missing or ambiguous, a model has two prices, or a price is no number.
    """
    from jaxroute.data.logs.cells import read_numbers
    from jaxroute.data.logs.files import open_log
    from jaxroute.data.logs.names import level

    sheet = open_log(path)
    columns: dict[str, str] = {}
    for role in ("model", "price_in", "price_out", "price_cached"):
        best = max((level(role, name) for name in sheet.names), default=0)
        simple = {"price_in": ("in", "input"), "price_out": ("out", "output"), "price_cached": ("cached",)}.get(role, ())
        names = [n for n in sheet.names if level(role, n) == best > 0] or [n for n in sheet.names if n.lower() in simple]
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
    numbers = [read_numbers(sheet, column, role, units).values for role, column in columns.items()]
    for values, (role, column) in zip(numbers, columns.items(), strict=True):
        if np.isnan(values).any() and role != "price_cached":
            raise ValueError(
                f"{sheet.place(int(np.argmax(np.isnan(values))))}, column {column!r} is empty: give a price, or 0"
            )
    return {model: tuple(float(values[row]) for values in numbers) for row, model in enumerate(models)}


def price_answers(
    answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None, whose: str = "the prices given"
) -> np.ndarray | None:
    """Returns `[A]` costs in USD with NaN for gaps, or None if nothing says them; notes how.

    Args:
      answers: from `collect`.
      costs: cost per query by model, instead of the file's.
      prices: USD per million tokens by model, instead of the file's.
      whose: the prices, in words.

    Raises:
      ValueError: cached tokens have no price.
    """
    notes, values = answers.notes, answers.values
    if costs is not None:
        notes.append("cost: as given, the same for every query")
        answers.unit = None
        return np.array([costs[model] for model in answers.models])[answers.model]
    if prices is None and "cost" in values and not np.isnan(values["cost"]).all():
        return values["cost"]
    if prices is not None:
        width = max(map(len, prices.values()))
        table = np.array(
            [[*prices.get(m, ()), *[np.nan] * (width - len(prices.get(m, ())))] for m in answers.models]
        )  # [N, 2 or 3]
        of: dict[str, np.ndarray] = dict(zip(PRICES, table[answers.model].T))
    else:
        of = {role: values[role] for role in PRICES if role in values}
        whose = "the file's prices"
        if not of:
            return None
    tokens_in, tokens_out, words_in, words_out = _tokens(answers)
    if tokens_in is None and tokens_out is None:
        return None
    for role, of_what in (("price_in", "input"), ("price_out", "output")):
        if role not in of:
            raise ValueError(
                f"{answers.sheet.name} has a price of one kind of tokens and none of {of_what} tokens: name its column (columns={{{role!r}: ...}}, on the "
                f"command line --column {role}=NAME), or {give_costs(answers)}"
            )
    nothing = np.zeros(len(answers.row))
    tokens_in = nothing if tokens_in is None else tokens_in
    tokens_out = nothing + ANSWER_TOKENS if tokens_out is None else tokens_out
    cost = tokens_in * of.get("price_in", nothing) + tokens_out * of.get("price_out", nothing)
    cost = cost + _cached(answers, tokens_in, of)
    notes.append(f"cost: {whose} in USD per million tokens x {words_in} and {words_out}")
    answers.unit = None
    return cost / 1e6


def _tokens(answers: Answers) -> tuple[np.ndarray | None, np.ndarray | None, str, str]:
    """Input and output tokens `[A]` and where they are from, in words; None where nothing says them."""
    values, notes = answers.values, answers.notes
    tokens_in, tokens_out = values.get("tokens_in"), values.get("tokens_out")
    if tokens_out is not None and "tokens_reasoning" in values:
        beside = _beside(answers, "tokens_reasoning", tokens_out)
        tokens_out = tokens_out + np.nan_to_num(values["tokens_reasoning"]) if beside else tokens_out
        notes.append(
            "reasoning tokens: "
            + ("counted beside the output tokens" if beside else "part of the output tokens, counted once")
        )
    if tokens_in is not None and "tokens_written" in values and (values["tokens_written"] > 0).any():
        beside = _beside(answers, "tokens_written", tokens_in)
        tokens_in = tokens_in + np.nan_to_num(values["tokens_written"]) if beside else tokens_in
        notes.append(
            "tokens written to a cache: "
            + ("added to" if beside else "part of")
            + " the input tokens, at their price (providers may charge more)"
        )
    if tokens_in is not None or tokens_out is not None:
        lost = _lost(values, tokens_in, tokens_out)
        if lost.any():
            notes.append(
                f"tokens: {int(lost.sum()):,} answers have 0 tokens, which counts as not known (first: {answers.place(int(np.argmax(lost)))})"
            )
            tokens_in = None if tokens_in is None else np.where(lost, np.nan, tokens_in)
            tokens_out = None if tokens_out is None else np.where(lost, np.nan, tokens_out)
    words_in, words_out = "input tokens", "output tokens"
    by = f"characters / {CHARACTERS_PER_TOKEN:g}"
    if tokens_in is None:
        characters, column = query_characters(answers)
        words_in = (
            f"input tokens, assumed to be {by} of {column!r}"
            if characters is not None
            else "no input tokens, of which nothing is known,"
        )
        tokens_in = None if characters is None else characters / CHARACTERS_PER_TOKEN
    if tokens_out is None:
        characters = values.get("response_chars")
        words_out = f"an assumed {ANSWER_TOKENS:g} output tokens"
        if characters is not None:
            unknown = np.isnan(characters)
            of = f" ({words_out} for the {unknown.mean():.1%} whose length is unknown)" if unknown.any() else ""
            tokens_out, words_out = (
                np.where(unknown, ANSWER_TOKENS, characters / CHARACTERS_PER_TOKEN),
                f"output tokens, assumed to be {by}{of}",
            )
    return tokens_in, tokens_out, words_in, words_out


def _lost(values: Mapping[str, np.ndarray], *tokens: np.ndarray | None) -> np.ndarray:
    """`[A]` answers of which all tokens are 0: their usage was lost."""
    answered = ~np.isnan(values["score"]) if "score" in values else np.ones(len(next(iter(values.values()))), bool)
    return answered & np.logical_and.reduce([of == 0 for of in tokens if of is not None])


def _cached(answers: Answers, tokens_in: np.ndarray, of: Mapping[str, np.ndarray]) -> np.ndarray:
    """`[A]` what cached input adds to the cost, in 1e-6 USD; it is negative where cached tokens are part of the input tokens."""
    tokens = answers.values.get("tokens_cached")
    if tokens is None or not (tokens > 0).any():
        return np.zeros(len(answers.row))
    tokens = np.nan_to_num(tokens)
    price = of.get("price_cached")
    unpriced = (tokens > 0) if price is None else (tokens > 0) & np.isnan(price)
    if price is None or unpriced.any():
        first = answers.models[int(answers.model[int(np.argmax(unpriced))])]
        raise ValueError(
            f"{answers.sheet.name} has cached tokens, and nothing says what they cost: give their price as the third number (prices={{{first!r}: "
            f"(IN, OUT, CACHED)}}, on the command line {option('--price', f'{first}=IN:OUT:CACHED')}), or count them as others (columns={{'tokens_cached': ''}}, "
            "--column tokens_cached=)"
        )
    price = np.nan_to_num(price)  # Of models without cached tokens.
    beside = _beside(answers, "tokens_cached", tokens_in)
    answers.notes.append(
        "cached tokens: " + ("counted beside the input tokens" if beside else "part of the input tokens, at their own price")
    )
    return tokens * price if beside else tokens * (price - of.get("price_in", np.zeros(len(price))))


def _beside(answers: Answers, role: str, whole: np.ndarray) -> bool:
    """Whether cached or reasoning tokens are counted beside `whole`: as they exceed it, else by the sum of all tokens, else by their name."""
    part, values = np.nan_to_num(answers.values[role]), answers.values
    if (part > np.nan_to_num(whole, nan=np.inf)).any():
        return True
    if {"tokens_total", "tokens_in", "tokens_out"} <= values.keys():
        left = np.nan_to_num(values["tokens_total"] - values["tokens_in"] - values["tokens_out"])
        return bool(np.abs(left - part).sum() < np.abs(left).sum())
    return role in answers.beside


def implausible(costs: np.ndarray, models: list[str], unit: str) -> list[str]:
    """Lines about mean costs that are hardly those of a query.

    Args:
      costs: `[Q, N]`.
      models: names of the models.
      unit: what costs count; other units than USD are not judged.
    """
    if not unit.startswith("USD per query"):
        return []
    means = costs.mean(axis=0)
    odd = [
        f"{m} {mean:.3g}" for m, mean in zip(models, means, strict=True) if 0 < mean < _CHEAPEST or mean > _MOST_EXPENSIVE
    ]
    return (
        [
            f"cost: implausible means in USD per query: {', '.join(odd[:4])}; is the unit another (--unit cost=cents; --price counts USD per million tokens)?"
        ]
        if odd
        else []
    )


def give_costs(answers: Answers) -> str:
    """The ways to give the costs that are lacking, in words."""
    first = answers.models[0]
    price = f"{option('--price', f'{first}=IN:OUT')} ... in USD per million tokens, or --prices FILE with the columns model, price_in, price_out"
    cost = f"{option('--cost', f'{first}=VALUE')} ... in USD per query"
    models = f"; models: {', '.join(answers.models)}" if len(answers.models) <= 20 else ""
    roles = answers.roles
    used = {name for names in roles.candidates.values() for name in names}
    likely = similar("cost", [name for name in roles.sheet.names if name not in used])
    hint = ""
    if likely and not roles.models:
        hint = f"{' or '.join(map(repr, likely[:3]))} looks like the cost: {option('--column', f'cost={likely[0]}')}; or "
    return f"{hint}give the cost of each model ({cost}), or its price ({price}); in Python costs={{...}}, prices={{...}}{models}"
