"""Reads a log in which each query was answered by one model: recognises it, and converts its answers to a `ServedLog`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..files import option
from ..served import UNIFORM, ServedLog
from .answers import Answers
from .cells import key_texts, read_numbers, which_empty
from .complete import (
    convert_costs,
    describe_queries,
    find_keys,
    find_shared_column,
    finish_report,
    hint_at_names,
    unit_scores,
)
from .doubts import doubt_means
from .opening import FILE_COLUMNS
from .presets import Prices
from .roles import ROW

_ONE_ANSWER = 0.9  # Least share of queries with the answer of one model in a log that counts as served.
_DISTINCT = 0.5  # A column with more different cells than this share of the rows shows which rows are copies of others.
LOGGING = ("uniform", "estimated")


def is_served(answers: Answers, logging: str | None) -> bool:
    """Whether a log has the answer of one model to nearly every query, so that another rule chose the models. `logging` is as in `read_served`."""
    if logging is not None or answers.roles.candidates.get("propensity"):
        return True
    scored = np.isfinite(answers.values["score"])
    column = answers.roles.column("query")
    if column is None and not answers.roles.models:
        return False
    if column == answers.roles.column("text") and column not in answers.roles.given.values():
        return False  # Rows with one text may be answers to one query.
    query = answers.row if column is None else pd.factorize(key_texts(answers.roles.sheet.cells(column)))[0][answers.row]
    pairs = pd.DataFrame({"query": query[scored], "model": answers.model[scored]}).drop_duplicates()
    number = pairs.groupby("query").size().to_numpy()
    if not number.size or (number == 1).mean() < _ONE_ANSWER:
        return False
    return not (hint_at_names(answers) or find_shared_column(answers))


def complete_served(
    answers: Answers, costs: Mapping | None, prices: Prices | None, options: Mapping[str, Any], logging: str | None
) -> ServedLog:
    """Builds a served log. `costs` and `prices` are the caller's or None, `options` the arguments of `read_log` by name."""
    notes, roles, sheet = answers.notes, answers.roles, answers.sheet
    scores = unit_scores(answers, options["scale"])
    cost, unit = convert_costs(answers, costs, prices)
    unit, keys = str(options["cost_unit"] or unit), find_keys(answers)
    propensity = _propensities(answers, logging)
    columns = {"score": scores, "cost": cost}
    if propensity is not None:
        columns["propensity"] = propensity[answers.row]
    if "latency" in answers.values:
        columns["latency"] = answers.values["latency"]
    # Answers that cannot be used: no score was given, or the cost is unknown.
    unscored, unpriced = np.isnan(scores), np.isfinite(scores) & np.isnan(cost)
    if unpriced.any():
        notes.append(
            f"left out: {unpriced.sum():,} of {len(cost):,} answers without a cost (first: {answers.place(int(np.argmax(unpriced)))})"
        )
    without: np.ndarray | None = np.bincount(answers.model[unscored], minlength=len(answers.models))
    if roles.models or not unscored.any():  # In a table with a row per query, models that were not asked have no score.
        without = None
    else:
        notes.append(
            f"score: {unscored.sum():,} of {len(scores):,} answers have none; they tell nothing about quality and are left out"
        )
    usable = np.isfinite(scores) & np.isfinite(cost)
    if usable.sum() < 2:
        raise ValueError(f"{sheet.name} has {usable.sum()} answers with score and cost; at least 2 are needed")
    pairs, place = np.unique(keys.pairs(answers)[usable], return_inverse=True)
    # Repeated answers of one model to a query count by their means.
    means = {name: np.bincount(place, values[usable]) / np.bincount(place) for name, values in columns.items()}
    kept, query = np.unique(pairs // len(answers.models), return_inverse=True)
    keep = np.isin(np.arange(len(keys.first)), kept)
    original = keys.first if sheet.rows is None else sheet.rows[keys.first]
    rows, total = (original, answers.arrays["total"]) if roles.models else (keys.number, keys.total)
    known = None if roles.column("text") is not None else _copies(answers, keys.first[keep])
    queries = describe_queries(answers, keys, keep, rows[keep], total, known, options["features"])
    model = pairs % len(answers.models)
    number = np.bincount(model, minlength=len(answers.models))
    doubt_means(answers, np.bincount(model, means["cost"], len(number)) / np.maximum(number, 1), unit)
    latency = means.get("latency")
    if latency is not None and (gaps := int(np.isnan(latency).sum())):
        notes.append(f"latency: not used, as {gaps:,} answers have none")
        latency = None
    users = _users(answers, keys.first[keep])
    layout = "layout: one model answered each query; what others would have answered is estimated"
    notes[:] = [layout if note == "layout: a row per query and model" else note for note in notes if ROW not in note]
    finish_report(answers)
    notes.append(f"kept: {len(pairs):,} answers to {len(kept):,} queries, {len(answers.models)} models, costs in {unit}")
    source, chosen_with = "unknown", None
    if propensity is not None:
        source, chosen_with = f"column {roles.column('propensity')!r}", means["propensity"]
    elif logging == "uniform":  # A query with several answers had as many draws of a model.
        source, chosen_with = UNIFORM, np.minimum(np.bincount(query)[query] / len(answers.models), 1.0)
    return ServedLog(
        tuple(answers.models),
        query,
        model,
        np.clip(means["score"], 0.0, 1.0),
        means["cost"],
        len(kept),
        propensity=chosen_with,
        latency=latency,
        features=queries.features,
        users=users,
        dates=queries.dates,
        prompts=queries.prompts,
        cost_unit=unit,
        unscored=without,
        source=source,
        described=queries.source,
        read=tuple(notes),
        reader=queries.reader,
        **queries.categories,
    )


def _propensities(answers: Answers, logging: str | None) -> np.ndarray | None:
    """Returns the propensity of each row from its column, or None without one. Raises `ValueError` if a cell is not in (0, 1]."""
    roles, sheet = answers.roles, answers.sheet
    column = roles.column("propensity")
    if column is None:
        return None
    if logging is not None:
        hint = f"leave --logging out, or leave the column out ({option('--column', 'propensity=')})"
        raise ValueError(f"{sheet.name} has propensities in {column!r}, and logging is {logging!r}: {hint}")
    values = read_numbers(sheet, column, "feature").values
    wrong = ~((values > 0) & (values <= 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        more = "a propensity is the probability, in (0, 1], with which the logging rule let this model answer"
        hint = (
            "is it percent, or one divided by the probability?"
            if values[row] > 1
            else "a model that answered had a probability above 0"
        )
        raise sheet.cell_error(row, column, f": {more}; {hint}")
    roles.note("propensity", column)
    return values


def _users(answers: Answers, rows: np.ndarray) -> np.ndarray | None:
    """Returns the index of the user of each query, from the `rows` of the file; a query without a user counts as one of a separate user."""
    column = answers.roles.column("user")
    if column is None:
        return None
    cells = answers.sheet.cells(column)[rows]
    codes, different = pd.factorize(key_texts(cells))
    empty = which_empty(cells)
    codes[empty] = len(different) + np.arange(empty.sum())
    number = len(np.unique(codes))
    if number == 1:
        answers.notes.append(f"user: not used, as all cells of {column!r} are {str(cells[0])!r}")
        return None
    answers.roles.note("user", column, f"{number:,} different; queries of one user may be dependent")
    return codes if number < len(rows) else None


def _copies(answers: Answers, rows: np.ndarray) -> np.ndarray | None:
    """Returns an index of each query, equal for rows of the file that are exact copies of another, with a note; None if there are none.

    Rows are compared only if some column has many different cells, such as a time or an exact cost.
    """
    sheet = answers.sheet
    column = answers.roles.column("query")
    names = [
        name for name in sheet.single(sheet.names) if name and name != column and name not in (*FILE_COLUMNS, *sheet.made)
    ]
    cells = {name: key_texts(sheet.cells(name)[rows]) for name in names}
    if not any(len(set(texts)) > _DISTINCT * len(rows) for texts in cells.values()):
        return None
    codes = pd.DataFrame(cells).groupby(names, sort=False, dropna=False).ngroup().to_numpy()
    copies = len(codes) - len(np.unique(codes))
    if not copies:
        return None
    answers.notes.append(f"copies: {copies:,} of {len(rows):,} rows are exact copies of others; copies count once in errors")
    return codes
