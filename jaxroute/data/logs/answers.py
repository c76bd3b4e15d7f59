"""What a file says about queries and models, before gaps are closed and scores scaled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Answers:
    """What a file says about `Q` queries and `N` models, with NaN where it says nothing.

    name: of the file.
    models: `N` names.
    scores: `[Q, N]` as they are written.
    place: names the place of a query's and a model's entry.
    score_name: of the column or array of scores.
    percent: `[Q, N]` which scores had a % sign, or None.
    costs: `[Q, N]`, or None.
    unit: what a cost counts, if the file says so.
    tokens: `[Q, N]` by "tokens_in" and "tokens_out"; also "prompt_chars" and "response_chars".
    prices: `[Q, N]` USD per million by "price_in" and "price_out".
    latency: `[Q, N]` seconds, or None.
    signals: `[Q, N]` what models say of their own answers, 0 for those that say nothing, or None.
    dates: `[Q]` datetime64, or None.
    text: `[Q]` words, or None.
    text_from: the column that they are from.
    labels: `[Q]` categories, or None.
    numbers: `[Q, d]` the file's own features, or None.
    numbers_from: where they are from.
    rows: `[Q]` row of each query, or None for 0, 1, ...
    num_rows: how many rows `rows` counts.
    said: what was taken for what.
    used: columns that were read.
    """

    name: str
    models: list[str]
    scores: np.ndarray
    place: Callable[[int, int], str]
    score_name: str = "score"
    percent: np.ndarray | None = None
    costs: np.ndarray | None = None
    unit: str | None = None
    tokens: dict[str, np.ndarray] = field(default_factory=dict)
    prices: dict[str, np.ndarray] = field(default_factory=dict)
    latency: np.ndarray | None = None
    signals: np.ndarray | None = None
    dates: np.ndarray | None = None
    text: np.ndarray | None = None
    text_from: str = "text"
    labels: np.ndarray | None = None
    numbers: np.ndarray | None = None
    numbers_from: str = ""
    rows: np.ndarray | None = None
    num_rows: int | None = None
    said: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def take(self, columns: Sequence[int]) -> None:
        """Keeps these models, in this order."""

        def of(array: np.ndarray | None) -> Any:
            return None if array is None else array if array.shape[1] == 1 else array[:, list(columns)]

        place = self.place
        self.place = lambda row, column: place(row, columns[column])
        self.models = [self.models[column] for column in columns]
        self.scores, self.percent, self.costs, self.latency = map(of, (self.scores, self.percent, self.costs, self.latency))
        self.signals = of(self.signals)
        self.tokens = {role: of(array) for role, array in self.tokens.items()}
        self.prices = {role: of(array) for role, array in self.prices.items()}


CALLED = {
    "tokens_in": "input tokens",
    "tokens_out": "output tokens",
    "price_in": "price of input",
    "price_out": "price of output",
    "prompt_chars": "characters of prompts",
    "response_chars": "characters of answers",
}


def say(said: list[str], role: str, column: str, *more: str) -> None:
    """Adds the line about the column of a role."""
    details = "; ".join(part for part in more if part)
    said.append(f"{CALLED.get(role, role)}: column {column!r}" + (f" ({details})" if details else ""))


def say_shape(said: list[str], role: str, shape: str, details: Sequence[str]) -> None:
    """Adds the line about columns of models, called like `shape`."""
    words = "; ".join(dict.fromkeys(details))
    said.append(f"{CALLED.get(role, role)}: columns {shape.replace('{}', '<model>')}" + (f" ({words})" if words else ""))
