"""Answers as a table of queries and models: which answers are of one query, repeated answers, and gaps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from jaxroute.data.files import option, some
from jaxroute.data.logs.answers import Answers
from jaxroute.data.logs.cells import empty, read_texts
from jaxroute.data.logs.files import FILE_COLUMNS
from jaxroute.data.logs.names import level
from jaxroute.data.logs.roles import is_repeat

_MOST_VALUES = 20  # A column that tells answers apart has no more different values.


@dataclass
class Keys:
    """Which query each answer is of.

    Attributes:
      query: `[A]` number of the query.
      first: `[Q]` row of the file where each query is first.
      rows: `[A]` row of the file of each answer.
      number: `[Q]` number of each query among all of the file.
      total: number of all queries of the file.
      sorted: whether the queries are in another order than that of the file.
    """

    query: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    number: np.ndarray
    total: int
    sorted: bool = False

    @property
    def size(self) -> int:
        """Number of queries."""
        return len(self.first)


def find_keys(answers: Answers) -> Keys:
    """Numbers the queries; different questions under one id are different queries.

    Raises:
      ValueError: the answers of a pair differ in a column that tells them apart.
    """
    roles, sheet, notes = answers.roles, answers.sheet, answers.notes
    column = roles.column("query")
    rows = np.arange(sheet.num_rows)
    wide = bool(roles.models)
    if column is None or (wide and column == roles.column("text") and "query" not in roles.given):
        return Keys(rows[answers.row], rows, answers.row, rows, len(rows))
    cells = _plain(sheet.cells(column))
    if wide:  # A row without an id is a query of its own.
        cells = np.array([f"({row})" if empty(cell) else cell for row, cell in enumerate(cells)], object)
    codes, ids = pd.factorize(cells)
    category, text = roles.column("category"), roles.column("text")
    if category is not None and category != column:
        labels = _filled(codes, _plain(sheet.cells(category)))
        if _several(codes, labels):
            codes, ids = _together(codes, labels), None
            notes.append(f"query: the column {column!r} begins again in every {category!r}, so both together name a query")
    if text is not None and text != column:
        texts = _filled(codes, read_texts(sheet.cells(text)))
        pairs = codes[answers.row] if wide else codes[answers.row] * np.int64(len(answers.models)) + answers.model
        if _several(pairs, texts[answers.row]):
            codes, ids = _together(codes, texts), None
            notes.append(
                f"query: the column {column!r} names different questions alike, so it counts together with {text!r}"
            )
        elif not wide and _several(codes, texts):
            _check_texts(answers, codes, texts, column, text)
    order = _by_number(np.asarray(ids)) if ids is not None else None
    codes, first = _ranked(codes, order)
    asked, query = np.unique(codes[answers.row], return_inverse=True)  # Those that a model kept was asked.
    keys = Keys(query, first[asked], answers.row, asked, len(first), bool((np.diff(first) < 0).any()))
    if wide and level("query", column) < 2 and "query" not in answers.asked and len(np.unique(codes)) < len(codes):
        raise ValueError(
            f"{sheet.name} has a row per query, but several rows with one {column!r}: each row is a query ({option('--column', 'query=')}), or rows with one "
            f"{column!r} are answers to one query ({option('--column', f'query={column}')})"
        )
    _check_repeats(answers, keys, column)
    return keys


def _plain(cells: np.ndarray) -> np.ndarray:
    """Cells as texts; whole numbers of a column with gaps have no point."""
    if cells.dtype.kind in "iub":
        return cells.astype(str).astype(object)
    return np.array([_key(cell) for cell in cells], object)


def _key(cell: object) -> str:
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if empty(cell) else str(cell)


def _filled(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels in which an empty one is that of the other rows with its code, if these have only one."""
    if (labels != "").all():
        return labels
    of: dict[int, set[str]] = {}
    for code, label in zip(codes.tolist(), labels, strict=True):
        if label != "":
            of.setdefault(code, set()).add(label)
    one = {code: next(iter(found)) for code, found in of.items() if len(found) == 1}
    return np.array(
        [one.get(code, "") if label == "" else label for code, label in zip(codes.tolist(), labels, strict=True)], object
    )


def _several(codes: np.ndarray, labels: np.ndarray) -> bool:
    """Whether rows of one code have different labels."""
    numbers = pd.factorize(labels)[0]
    order = np.lexsort((numbers, codes))
    return bool(((np.diff(codes[order]) == 0) & (np.diff(numbers[order]) != 0)).any())


def _together(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    numbers, different = pd.factorize(labels)
    return pd.factorize(codes * np.int64(len(different) + 1) + numbers)[0]


def _by_number(ids: np.ndarray) -> np.ndarray | None:
    """Rank of each id by its number, None if some is no whole number."""
    if not all(re.fullmatch(r"[+-]?\d{1,18}", str(name)) for name in ids):
        return None
    rank = np.empty(len(ids), np.int64)
    rank[np.argsort([int(name) for name in ids], kind="stable")] = np.arange(len(ids))
    return rank


def _ranked(codes: np.ndarray, order: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Codes in order, and the first row of each."""
    codes = pd.factorize(codes)[0] if order is None else order[codes]
    return codes, np.unique(codes, return_index=True)[1]


def _check_texts(answers: Answers, codes: np.ndarray, texts: np.ndarray, column: str, text: str) -> None:
    """Refuses ids whose texts differ from one model to another: other questions, or other words for the same ones."""
    normal = np.array([" ".join(t.lower().split()) for t in texts], object)
    if not _several(codes, normal):
        return
    numbers = pd.factorize(normal)[0]
    order = np.lexsort((numbers, codes))
    place = int(np.flatnonzero((np.diff(codes[order]) == 0) & (np.diff(numbers[order]) != 0))[0])
    a, b = sorted(order[place : place + 2].tolist())
    sheet = answers.sheet
    raise ValueError(
        f"{sheet.name}: {sheet.place(b).removeprefix(f'{sheet.name}, ')} has the {column} of {sheet.place(a).removeprefix(f'{sheet.name}, ')} but another "
        f"{text!r}: if these are the same questions in other words, leave the texts out (columns={{'text': ''}}, on the command line --column text=); if "
        "not, give each question an id of its own"
    )


def _check_repeats(answers: Answers, keys: Keys, column: str) -> None:
    """Notes repeated answers; refuses those that another column tells apart."""
    pairs = keys.query * np.int64(len(answers.models)) + answers.model
    count = np.bincount(pairs)
    again = count[pairs] > 1
    if not again.any():
        return
    roles, sheet = answers.roles, answers.sheet
    rows, of = answers.row[again], pairs[again]
    repeats = [name for name in sheet.names if is_repeat(name) and name not in roles.used and sheet.names.count(name) == 1]
    runs = (
        np.array(
            [" ".join(map(_key, row)) for row in zip(*(sheet.cells(name)[rows] for name in repeats), strict=True)], object
        )
        if repeats
        else None
    )
    for name in sheet.names if answers.how == "mean" else ():
        if name in roles.used or not name or sheet.names.count(name) > 1 or is_repeat(name):
            continue
        if name in FILE_COLUMNS and all(is_repeat(str(stem)) for stem in set(sheet.cells(name))):
            continue
        cells = sheet.cells(name)[rows]
        values = (
            pd.factorize(_plain(cells))[0]
            if not any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells[:50])
            else np.zeros(0)
        )
        number = int(values.max(initial=-1)) + 1
        if runs is not None and values.size and len(set(zip(runs, values, strict=True))) == len(set(runs)):
            continue  # One value for each run.
        files = name in FILE_COLUMNS and number > 1
        if (files or 2 <= number <= _MOST_VALUES) and not _unique(sheet.cells(name)) and _tells_apart(of, values):
            shown = some((repr(value) for value in dict.fromkeys(_plain(cells).tolist())), 6)
            value = next(iter(_plain(cells).tolist()))
            raise ValueError(
                f"{sheet.name}: {int((count > 1).sum()):,} pairs of query and model have several answers, which differ in the column {name!r} ({shown}): keep one "
                f"of them (where={{{name!r}: {value!r}}}, on the command line {option('--where', f'{name}={value}')}), or count each as a query ("
                f"{option('--column', f'query={column}+{name}')}); if all are answers to the same query, call the column run or seed"
            )
    joined = "the best counts, as the authors have it" if answers.how == "max" else "their means count"
    answers.notes.append(
        f"repeats: {int((count > 1).sum()):,} pairs of query and model have several answers ({int(again.sum()):,} rows): {joined}"
    )


def _unique(cells: np.ndarray) -> bool:
    """Whether every row has a value of its own."""
    return len(set(_plain(cells).tolist())) == len(cells)


def _tells_apart(pairs: np.ndarray, values: np.ndarray) -> bool:
    """Whether most pairs have each value once, or all values equally often, as a setting has and an outcome has not."""
    number = int(values.max()) + 1
    codes, _ = pd.factorize(pairs)
    table = np.zeros((codes.max() + 1, number), np.int64)
    np.add.at(table, (codes, values), 1)
    once = (table.max(axis=1) == 1) & (table.sum(axis=1) > 1)
    typical = np.median(table, axis=0)
    balanced = (table == typical).all(axis=1) & ((typical > 0).sum() > 1)
    return bool(once.mean() >= 0.8 or (balanced.mean() >= 0.8 and len(table) > 2))


def pivot(answers: Answers, keys: Keys, values: np.ndarray, how: str = "") -> np.ndarray:
    """Returns `[Q, N]` means (or maxima) of `[A]` values over the answers of each pair, NaN where there is none."""
    pairs, size = keys.query * np.int64(len(answers.models)) + answers.model, keys.size * len(answers.models)
    there = ~np.isnan(values)
    if (how or answers.how) == "max":
        matrix = np.full(size, np.nan)
        np.fmax.at(matrix, pairs[there], values[there])
        return matrix.reshape(keys.size, -1)
    count = np.bincount(pairs[there], minlength=size)
    total = np.bincount(pairs[there], values[there], size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(keys.size, -1)


def places(answers: Answers, keys: Keys) -> np.ndarray:
    """`[Q, N]` the first answer of each pair, -1 where there is none."""
    pairs = keys.query * np.int64(len(answers.models)) + answers.model
    first = np.full(keys.size * len(answers.models), -1)
    first[pairs[::-1]] = np.arange(len(pairs))[::-1]
    return first.reshape(keys.size, -1)


# Gaps.


def close(
    answers: Answers,
    models: Sequence[str],
    scores: np.ndarray,
    costs: np.ndarray,
    first: np.ndarray,
    missing: str,
    query: Sequence[str],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns which queries are kept, `[Q]`, and scores and costs `[Q, N]` without gaps, and notes it.

    Args:
      answers: from `collect`.
      models: `N` models that are kept.
      scores: `[Q, N]` in [0, 1], NaN for gaps.
      costs: `[Q, N]`, NaN for gaps.
      first: `[Q, N]` from `places`.
      missing: "drop" or "zero".
      query: `[Q]` names of the queries, for messages.

    Raises:
      ValueError: no query is complete; the message proposes models to keep.
    """
    gaps, notes, name = np.isnan(scores) | np.isnan(costs), answers.notes, answers.sheet.name
    if not gaps.any():
        return np.ones(len(gaps), bool), scores, costs
    lacking, total = gaps.sum(axis=0), len(gaps)
    order = [int(i) for i in np.argsort(-lacking, kind="stable") if lacking[i]]
    most = some((f"{models[i]} {lacking[i]:,}" for i in order), 5)
    q, m = map(int, np.argwhere(gaps)[0])
    where = answers.place(int(first[q, m])) if first[q, m] >= 0 else f"query {query[q]!r} and model {models[m]!r}"
    never = [m for m, of, cost in zip(models, gaps.T, costs.T, strict=True) if of.all() and np.isnan(cost).all()]
    if never and len(never) < len(models) - 1:
        others = ",".join(m for m in models if m not in never)
        raise ValueError(
            f"{name}: {some(never)} have scores and no cost at all: if these are no models, keep the others ({option('--models', others)})"
        )
    if missing == "zero":
        notes.append(f"missing: {int(gaps.sum()):,} answers count as score 0 and cost 0 (of {most}; first: {where})")
        return np.ones(total, bool), np.where(gaps, 0.0, scores), np.where(gaps, 0.0, costs)
    keep = np.logical_not(gaps.any(axis=1))
    left = list(range(len(models)))
    while len(left) > 2 and (~gaps[:, left].any(axis=1)).mean() < 0.5:
        left.remove(max(left, key=lambda i: gaps[:, i].sum()))
    names = [models[i] for i in left]
    whole = int((~gaps[:, left].any(axis=1)).sum())
    fewer = (
        f"with models={names!r} ({option('--models', ','.join(names))}) {whole:,} queries are complete"
        if whole > keep.sum()
        else "add the answers that are missing"
    )
    if not keep.any():
        if (np.isfinite(scores).sum(axis=1) <= 1).all() and not (hint := _aliases(models, scores)):
            raise ValueError(
                f"{name}: every query has the answer of one model alone: a log of what a router chose does not tell what the others would have "
                "answered; have every model answer the same queries, or name the column by which their answers belong together (--column query=NAME)"
            )
        hint = _aliases(models, scores)
        raise ValueError(
            f"{name}: no query has an answer and a cost of every model ({most} missing of {total:,}; first: {where}); {hint}{fewer}, or count them as 0 "
            '(missing="zero", --missing zero)'
        )
    notes.append(
        f"left out: {int((~keep).sum()):,} of {total:,} queries that lack an answer or a cost (of {most}; first: {where})"
    )
    if keep.mean() < 0.5:
        notes.append(f"fewer than half of the queries are left: {fewer}")
    notes += _unlike(models, scores, keep)
    return keep, scores, costs


def _unlike(models: Sequence[str], scores: np.ndarray, keep: np.ndarray) -> list[str]:
    """Lines about models whose scores on the queries left out differ by more than three standard errors from those on the kept ones."""
    found = []
    for model, of in zip(models, scores.T, strict=True):
        out, kept = of[~keep & ~np.isnan(of)], of[keep]
        if len(out) < 2 or len(kept) < 2:
            continue
        pooled = np.var(of[~np.isnan(of)]) * (1 / len(out) + 1 / len(kept))
        if abs(out.mean() - kept.mean()) > 3 * np.sqrt(pooled):
            found.append(f"{model} has {out.mean():.3g} on them and {kept.mean():.3g} on those kept")
    return (
        [f"left out: these queries are not like the others: {some(found, 3)}; means are those of the kept queries alone"]
        if found
        else []
    )


def _aliases(models: Sequence[str], scores: np.ndarray) -> str:
    """A hint at two names of one model that never answer the same query, empty if there is none."""
    short = {m: re.sub(r"[-_@:]?(\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview)$", "", m.lower().split("/")[-1]) for m in models}
    there = np.isfinite(scores)
    for i, a in enumerate(models):
        for j, b in enumerate(models[:i]):
            if short[a] == short[b] and not (there[:, i] & there[:, j]).any():
                return f"{b!r} and {a!r} never answer the same query: are they two names of one model? write one name, or leave it out; "
    return ""
