"""Costs per query: the file's own, given ones, or tokens times prices."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.logs.answers import Answers

CHARACTERS_PER_TOKEN = 4.0
ANSWER_TOKENS = 256.0
"""Tokens of an answer of which neither tokens nor characters are known."""


def given_numbers(costs: Any, prices: Any) -> tuple[dict[str, float] | None, dict[str, tuple[float, float]] | None]:
    """Costs and prices as a person gave them, checked.

    Raises:
      ValueError: something is no mapping, negative or not finite; or both were given.
    """
    if costs is not None and prices is not None:
        raise ValueError("costs and prices mean the same: give one of them")
    for name, value in (("costs", costs), ("prices", prices)):
        if value is not None and (not isinstance(value, Mapping) or not value):
            example = "{'MODEL': 0.01}" if name == "costs" else "{'MODEL': (0.5, 1.5)}"
            raise ValueError(f"{name} must map models to numbers, as {example}, got {checks.show(value)}")
    if costs is not None:
        return {str(m): float(checks.non_negative(f"costs[{m!r}]", cost, ())) for m, cost in costs.items()}, None
    if prices is None:
        return None, None
    return None, {str(m): _pair(f"prices[{m!r}]", price) for m, price in prices.items()}


def _pair(name: str, price: Any) -> tuple[float, float]:
    pair = checks.non_negative(name, price)
    if pair.shape not in ((), (2,)):
        raise ValueError(f"{name} must be USD per million input and output tokens, as (0.5, 1.5), got {checks.show(price)}")
    low, high = np.broadcast_to(pair, (2,))
    return float(low), float(high)


def priced(
    answers: Answers, costs: Mapping[str, float] | None, prices: Mapping[str, tuple[float, float]] | None
) -> tuple[np.ndarray | None, str | None]:
    """`[Q, N]` costs with NaN for gaps, or None if they cannot be had; and their unit, if the file says it. Tells `answers.said` how."""
    shape = answers.scores.shape
    if costs is not None:
        answers.said.append("cost: as given, the same for every query")
        return np.tile([costs[model] for model in answers.models], (shape[0], 1)), None
    if prices is None and answers.costs is not None and not np.isnan(answers.costs).all():
        return answers.costs, answers.unit
    if prices is not None:
        per_million = np.array([prices[model] for model in answers.models])  # [N, 2]
        price_in, price_out, whose = per_million[:, 0], per_million[:, 1], "the prices given"
    elif answers.prices:
        price_in = answers.prices.get("price_in", np.zeros(1))
        price_out = answers.prices.get("price_out", np.zeros(1))
        whose = "the file's prices"
        for role, of in (("price_in", "input"), ("price_out", "output")):
            if role not in answers.prices:
                answers.said.append(f"cost: the file has no price of {of} tokens, which count as free")
    else:
        return None, None
    tokens_in, from_in = _tokens(answers, "tokens_in", "prompt_chars")
    tokens_out, from_out = _tokens(answers, "tokens_out", "response_chars")
    if tokens_in is None and answers.tokens.keys().isdisjoint(("tokens_out", "response_chars")):
        return None, None
    if tokens_in is None:
        tokens_in, from_in = np.zeros(1), "no input tokens, of which nothing is known,"
    answers.said.append(f"cost: {whose} in USD per million tokens x {from_in} and {from_out}")
    found = (tokens_in * price_in + tokens_out * price_out) / 1e6
    return np.broadcast_to(found, shape).copy(), None


def _tokens(answers: Answers, role: str, characters: str) -> tuple[np.ndarray | None, str]:
    """Tokens `[Q, N]` or `[Q, 1]`, and where they are from."""
    words = "input" if role == "tokens_in" else "output"
    if role in answers.tokens:
        return answers.tokens[role], f"{words} tokens"
    chars = answers.tokens.get(characters)
    if chars is None and role == "tokens_in" and answers.text is not None:
        chars = np.array([len(text) for text in answers.text], dtype=np.float64)[:, None]
    if chars is None and role == "tokens_in":
        return None, ""
    assumed = f"an assumed {ANSWER_TOKENS:g} {words} tokens"
    if chars is None:
        return np.full((len(answers.scores), 1), ANSWER_TOKENS), assumed
    unknown = np.isnan(chars)
    some = f" ({assumed} for {unknown.mean():.0%} whose length is unknown)" if unknown.any() else ""
    tokens = np.where(unknown, ANSWER_TOKENS, chars / CHARACTERS_PER_TOKEN)
    return tokens, f"{words} tokens, assumed to be characters / {CHARACTERS_PER_TOKEN:g}{some}"


def give_costs(answers: Answers) -> str:
    """How a person gives what is lacking."""
    first = answers.models[0]
    price = f"prices={{{first!r}: (IN, OUT), ...}}, on the command line --price {first}=IN:OUT, in USD per million tokens"
    cost = f"costs={{{first!r}: VALUE, ...}}, on the command line --cost {first}=VALUE, per query"
    models = f"; models: {', '.join(answers.models)}" if len(answers.models) <= 20 else ""
    can = bool(answers.tokens) or answers.text is not None
    return (
        f"give the price of each model ({price}), or its cost ({cost})" if can else f"give the cost of each model ({cost})"
    ) + models
