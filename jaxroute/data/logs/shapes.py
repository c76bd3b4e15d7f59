"""A table with a row per query and model, or with a row per query, as arrays of queries and models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import some
from jaxroute.data.logs.answers import Answers, say, say_shape
from jaxroute.data.logs.columns import ModelColumns, plain
from jaxroute.data.logs.queries import of_queries
from jaxroute.data.logs.reading import Sheet
from jaxroute.data.logs.values import (
    Numbers,
    empty,
    read_latency,
    read_numbers,
)
from jaxroute.data.public import numbered


def long_answers(sheet: Sheet, roles: Mapping[str, str], largest: bool = False) -> Answers:
    """A table with a row per query and model; `largest` joins several answers of a pair by their maximum and not their mean."""
    said: list[str] = ["layout: a row per query and model"]
    model_cells = sheet.cells(roles["model"])
    keys = [_key(cell) for cell in sheet.cells(roles["query"])]
    for role, cells in (("query", sheet.cells(roles["query"])), ("model", model_cells)):
        gaps = [row for row, cell in enumerate(cells) if empty(cell)]
        if gaps:
            raise ValueError(
                f"{sheet.place(gaps[0])}, column {roles[role]!r} is empty, and {len(gaps) - 1} more rows name no {role}: fill it, or delete the rows"
            )
    column, models = numbered(str(cell).strip() for cell in model_cells)
    _check_models(sheet.name, models, said)
    keep = np.ones(len(keys), bool)
    row, queries = numbered(keys, by_number=True)
    pairs = row * len(models) + column
    if len(np.unique(pairs)) < len(pairs):
        keep = _first_of_equal(sheet)
        if not keep.all():
            said.append(f"left out: {int((~keep).sum())} rows that are exact copies of earlier ones")
        for role in ("category", "text"):  # Numbers of queries may begin anew in every benchmark.
            again = len(np.unique(pairs[keep])) < keep.sum()
            if again and role in roles and roles[role] != roles["query"]:
                wider, different = numbered(zip(keys, map(str, sheet.cells(roles[role])), strict=True))
                if len(different) > len(queries) and len(np.unique((wider * len(models) + column)[keep])) > 1.5 * len(
                    np.unique(pairs[keep])
                ):
                    row, queries, pairs = wider, different, wider * len(models) + column
                    said.append(
                        f"query: the column {roles['query']!r} names different queries alike, so it counts together with {roles[role]!r}"
                    )
    count = np.bincount(pairs[keep], minlength=len(queries) * len(models)).reshape(len(queries), len(models))
    if (count > 1).any():
        several = (
            f"{int((count > 1).sum())} pairs of query and model have several answers ({int(count[count > 1].sum())} rows)"
        )
        said.append(f"{several}: " + ("the best counts, as the authors have it" if largest else "their means count"))
    first = np.full(count.size, -1)
    first[pairs[keep][::-1]] = np.nonzero(keep)[0][::-1]
    first = first.reshape(count.shape)
    start = np.unique(row, return_index=True)[1]

    def pivot(numbers: Numbers, joined: str = "mean") -> np.ndarray:
        if joined == "max":
            matrix = np.full(count.size, np.nan)
            np.fmax.at(matrix, pairs[keep], numbers.values[keep])
            return matrix.reshape(count.shape)
        there = keep & ~np.isnan(numbers.values)
        total = np.bincount(pairs[there], numbers.values[there], count.size)
        how_many = np.bincount(pairs[there], minlength=count.size)
        return np.where(how_many > 0, total / np.maximum(how_many, 1), np.nan).reshape(count.shape)

    def place(query: int, model: int) -> str:
        at = int(first[query, model])
        who = f"query {checks.show(queries[query])} and model {models[model]!r}"
        return f"{sheet.name}, {who}" if at < 0 else f"{sheet.place(at)}, {who}"

    scores = read_numbers(sheet, roles["score"], "score")
    answers = Answers(sheet.name, models, pivot(scores, "max" if largest else "mean"), place, roles["score"], said=said)
    answers.used = set(roles.values())
    if scores.percent is not None:
        answers.percent = pivot(Numbers(scores.percent.astype(float))) > 0
    say(said, "query", roles["query"], f"{len(queries):,} different")
    say(said, "model", roles["model"], some(models, 6))
    say(said, "score", roles["score"], *scores.said)
    for role in ("cost", "tokens_in", "tokens_out", "prompt_chars", "response_chars", "price_in", "price_out", "latency"):
        if role in roles:
            numbers = _of_role(sheet, role, roles[role])
            say(said, role, roles[role], *numbers.said)
            _put(answers, role, pivot(numbers), numbers.currency, roles[role])
    of_queries(sheet, roles, start, answers)
    answers.rows, answers.num_rows = np.arange(len(queries)), len(queries)
    return answers


def wide_answers(sheet: Sheet, roles: Mapping[str, str], columns: ModelColumns) -> Answers:
    """A table with a row per query."""
    said = [
        f"layout: a row per query, the columns {columns.shapes['score'].replace('{}', '<model>')} of {len(columns.models)} models"
    ]
    said[0] = said[0].replace("the columns <model>", "columns named like the models,")
    models = columns.models
    _check_models(sheet.name, models, said)
    num_rows = sheet.num_rows
    keep = np.ones(num_rows, bool)
    if "query" in roles and roles["query"] != roles.get("text"):
        say(said, "query", roles["query"])
        _, queries = numbered(_key(cell) for cell in sheet.cells(roles["query"]))
        if len(queries) < num_rows:
            keep = _first_of_equal(sheet)
            if not keep.all():
                said.append(f"left out: {int((~keep).sum())} rows that are exact copies of earlier ones")
            again = int(keep.sum()) - len(queries)
            if again:
                said.append(
                    f"query: {again} rows repeat the {roles['query']} of an earlier one with other contents; each counts as a query"
                )
    places = np.nonzero(keep)[0]

    def matrix(role: str) -> tuple[np.ndarray, list[Numbers]]:
        of = columns.columns[role]
        parts = [_of_role(sheet, role, of[model]) if model in of else Numbers(np.full(num_rows, np.nan)) for model in models]
        return np.stack([part.values[places] for part in parts], axis=1), parts

    def place(query: int, model: int) -> str:
        return f"{sheet.place(int(places[query]))}, column {columns.columns['score'][models[model]]!r}"

    scores, parts = matrix("score")
    shape = columns.shapes["score"]
    answers = Answers(sheet.name, models, scores, place, shape.replace("{}", "") or "score", said=said)
    answers.used = {column for of in columns.columns.values() for column in of.values()}
    say_shape(said, "score", shape, [text for part in parts for text in part.said])
    if any(part.percent is not None for part in parts):
        signs = [np.zeros(num_rows, bool) if part.percent is None else part.percent for part in parts]
        answers.percent = np.stack([sign[places] for sign in signs], axis=1)
    for role in ("cost", "tokens_in", "tokens_out", "response_chars", "latency"):
        if role in columns.columns:
            values, parts = matrix(role)
            say_shape(said, role, columns.shapes[role], [text for part in parts for text in part.said])
            currencies = {part.currency for part in parts if part.currency}
            if len(currencies) > 1:
                raise ValueError(
                    f"{sheet.name}: costs are in {' and in '.join(sorted(currencies))}: convert all to one currency"
                )
            _put(answers, role, values, next(iter(currencies), None), columns.shapes[role])
        elif role == "latency" and role in roles:
            said.append(f"latency: the column {roles[role]!r} is that of a query and not of a model, and not used")
    for role in ("tokens_in", "prompt_chars"):  # The same prompt for all models.
        if role in roles and role not in columns.columns:
            numbers = _of_role(sheet, role, roles[role])
            say(said, role, roles[role], "the same for all models")
            answers.tokens[role] = numbers.values[places][:, None]
            answers.used.add(roles[role])
    of_queries(sheet, roles, places, answers)
    answers.rows, answers.num_rows = places, num_rows
    return answers


def _check_models(name: str, models: Sequence[str], said: list[str]) -> None:
    alike: dict[str, str] = {}
    for model in models:
        other = alike.setdefault(" ".join(model.lower().split()), model)
        if other != model:
            said.append(f"models {other!r} and {model!r} differ only in case: they count as two")
    if len(models) < 2:
        raise ValueError(f"{name} has one model, {models[0]!r}: there is nothing to choose; add the answers of another")


def _key(cell: Any) -> Any:
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return int(cell)  # Numbers of a column with gaps.
    return str(cell).strip() if not isinstance(cell, (int, np.integer)) else int(cell)


def _first_of_equal(sheet: Sheet) -> np.ndarray:
    """`[R]` whether a row is not the copy, in all columns, of an earlier one."""
    unique = [name for name in sheet.names if name and sheet.names.count(name) == 1]
    seen: set[int] = set()
    keep = np.ones(sheet.num_rows, bool)
    for number, cells in enumerate(zip(*(sheet.cells(name) for name in unique), strict=True)):
        key = hash(tuple(map(str, cells)))
        keep[number] = key not in seen
        seen.add(key)
    return keep


def _of_role(sheet: Sheet, role: str, column: str) -> Numbers:
    if role == "latency":
        return read_latency(sheet, column)
    kinds = {"score": "score", "cost": "cost", "price_in": "price", "price_out": "price"}
    if role == "response_chars" or role == "prompt_chars":
        numbers = read_numbers(sheet, column, "feature")
        numbers.values = np.where(numbers.values < 0, np.nan, numbers.values)  # -1 where it is not known.
        return numbers
    numbers = read_numbers(sheet, column, kinds.get(role, "tokens"))
    if role in ("price_in", "price_out") and ("1k" in plain(column) or "ktok" in plain(column)):
        numbers.values *= 1000.0
        numbers.said.append("per thousand tokens, times 1,000")
    return numbers


def _put(answers: Answers, role: str, values: np.ndarray, currency: str | None, column: str) -> None:
    if role == "cost":
        answers.costs = values
        currency = currency or next((code.upper() for code in ("eur", "gbp") if code in plain(column)), None)
        answers.unit = f"{currency} per query" if currency else None
        if "energy" in column.lower():
            answers.unit = "J per request"
    elif role == "latency":
        answers.latency = values
    elif role in ("price_in", "price_out"):
        answers.prices[role] = values
    else:
        answers.tokens[role] = values
