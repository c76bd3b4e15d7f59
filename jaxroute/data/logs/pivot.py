"""Answers as a table of queries and models: the query of each answer, repeated answers, and gaps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from ..files import join_names, option
from .answers import Answers
from .cells import is_empty, key_texts, read_texts
from .files import FILE_COLUMNS
from .names import is_repeat, match_level, similar_names

_MOST_VALUES = 20  # A column that tells answers apart has no more different values.


@dataclass
class Keys:
    """Queries of the answers.

    Attributes:
      query: `[A]` number of the query.
      first: `[Q]` first row of each query in the file.
      number: `[Q]` number of each query among all queries of the file.
      total: number of all queries of the file.
      is_sorted: whether the queries are in another order than that of the file.
    """

    query: np.ndarray
    first: np.ndarray
    number: np.ndarray
    total: int
    is_sorted: bool = False

    def pairs(self, answers: Answers) -> np.ndarray:
        """Returns the `[A]` number of the pair of query and model."""
        return self.query * np.int64(len(answers.models)) + answers.model


def find_keys(answers: Answers) -> Keys:
    """Numbers the queries; different questions under one id are different queries."""
    roles, sheet, notes = answers.roles, answers.sheet, answers.notes
    column, category, text = roles.column("query"), roles.column("category"), roles.column("text")
    wide, by_id = bool(roles.models), True
    if column is None or (wide and column == text and "query" not in roles.given):
        rows = np.arange(sheet.num_rows)
        return Keys(answers.row, rows, rows, len(rows))
    cells = key_texts(sheet.cells(column))
    if wide:  # A row without an id is a separate query.
        cells = np.array([f"({row})" if is_empty(cell) else cell for row, cell in enumerate(cells)], object)
    codes, ids = pd.factorize(cells)
    if category is not None and category != column:
        labels = _fill_gaps(codes, key_texts(sheet.cells(category)))
        if _have_several(codes, labels):
            codes, by_id = _pair_codes(codes, labels), False
            notes.append(f"query: the column {column!r} begins again in every {category!r}, so both together name a query")
    if text is not None and text != column:
        texts = _fill_gaps(codes, read_texts(sheet.cells(text)))
        pairs = codes[answers.row] if wide else codes[answers.row] * np.int64(len(answers.models)) + answers.model
        if _have_several(pairs, texts[answers.row]):
            codes, by_id = _pair_codes(codes, texts), False
            notes.append(f"query: the column {column!r} names different questions alike: it counts together with {text!r}")
        elif not wide:
            _check_texts(answers, codes, texts, column, text)
    if by_id and all(re.fullmatch(r"[+-]?\d{1,18}", str(name)) for name in ids):  # In the order of their numbers.
        codes = np.argsort(np.argsort([int(name) for name in ids], kind="stable"))[codes]
    first = np.unique(codes, return_index=True)[1]
    asked, query = np.unique(codes[answers.row], return_inverse=True)  # Queries that the selected models were asked.
    keys = Keys(query, first[asked], asked, len(first), bool((np.diff(first) < 0).any()))
    if wide and match_level("query", column) < 2 and "query" not in answers.given and len(first) < len(codes):
        each = f"each row is a query ({option('--column', 'query=')})"
        same = f"rows with one {column!r} are answers to one query ({option('--column', f'query={column}')})"
        raise ValueError(f"{sheet.name} has a row per query, but several rows with one {column!r}: {each}, or {same}")
    if by_id:
        _check_ids(answers, keys, column, ids[:1000].tolist())
    _check_repeats(answers, keys, column)
    return keys


def _fill_gaps(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels in which an empty one is replaced by that of the other rows with its code, if these have only one."""
    present = labels != ""
    if present.all():
        return labels
    groups = pd.Series(labels[present], dtype=object).groupby(codes[present])
    single = groups.first()[groups.nunique() == 1].to_dict()
    return np.array([label or single.get(code, "") for code, label in zip(codes.tolist(), labels, strict=True)], object)


def _have_several(codes: np.ndarray, labels: np.ndarray) -> bool:
    """Whether rows of one code have different labels."""
    return bool(_pair_codes(codes, labels).max(initial=-1) > pd.factorize(codes)[0].max(initial=-1))


def _pair_codes(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Number of each pair of code and label."""
    numbers, different = pd.factorize(labels)
    return pd.factorize(codes * np.int64(len(different) + 1) + numbers)[0]


def _check_texts(answers: Answers, codes: np.ndarray, texts: np.ndarray, column: str, text: str) -> None:
    """Refuses ids whose texts differ from one model to another: other questions, or other words for the same ones."""
    if not _have_several(codes, texts):
        return
    normal = pd.Series([" ".join(words.lower().split()) for words in texts], dtype=object)
    other = (normal != normal.groupby(codes).transform("first")).to_numpy()
    if not other.any():
        return
    row = int(np.argmax(other))
    sheet, first = answers.sheet, int(np.argmax(codes == codes[row]))
    here, there = (sheet.place(place).removeprefix(f"{sheet.name}, ") for place in (row, first))
    same = "if these are the same questions in other words, leave the texts out (columns={'text': ''}, on the command line"
    differ = f"{here} has the {column} of {there} but another {text!r}"
    raise ValueError(f"{sheet.name}: {differ}: {same} --column text=); if not, give each question an id of its own")


def _check_ids(answers: Answers, keys: Keys, column: str, ids: Sequence[object]) -> None:
    """Refuses ids that Excel has rounded, if answers are repeated."""
    rounded = [name for name in map(str, ids) if re.fullmatch(r"\d\.\d*E\+\d+|[1-9]\d{5,}0{6,}", name, re.IGNORECASE)]
    likely = len(rounded) > len(ids) / 2 and "query" not in answers.given
    if likely and len(np.unique(keys.pairs(answers))) < len(answers.row):
        zeros = f"ids such as {rounded[0]!r} in {column!r} end in zeros, as Excel leaves long numbers"
        give = f"write them as text, or say that they are whole ({option('--column', f'query={column}')})"
        raise ValueError(f"{answers.sheet.name}: {zeros}, so that different queries may have one: {give}")


def _check_repeats(answers: Answers, keys: Keys, column: str) -> None:
    """Notes repeated answers; refuses those that another column tells apart."""
    pairs = keys.pairs(answers)
    count = np.bincount(pairs)
    is_repeated = count[pairs] > 1
    if not is_repeated.any():
        return
    sheet, rows = answers.sheet, answers.row[is_repeated]
    several = f"{int((count > 1).sum()):,} pairs of query and model have several answers"
    free = [name for name in sheet.single(sheet.names) if name and name not in answers.roles.used]
    repeats, run = [name for name in free if is_repeat(name)], np.zeros(len(rows), np.int64)
    for name in repeats:
        run = _pair_codes(run, key_texts(sheet.cells(name)[rows]))
    for name in [name for name in free if name not in repeats] if answers.preset.how == "mean" else ():
        cells, is_path = sheet.cells(name), name in FILE_COLUMNS
        numbered = is_path and all(is_repeat(str(stem)) for stem in set(cells))
        if numbered or any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells[rows][:50]):
            continue
        values, different = pd.factorize(key_texts(cells[rows]))
        if (
            len(different) < 2
            or (len(different) > _MOST_VALUES and not is_path)
            or (repeats and not _have_several(run, values))
        ):
            continue  # Few values are a setting; one value for each run is the run.
        if len(set(key_texts(cells))) < len(cells) and _tells_apart(pairs[is_repeated], values):
            first = different[0]
            where = f"(where={{{name!r}: {first!r}}}, on the command line {option('--where', f'{name}={first}')})"
            differ = f"{several}, which differ in the column {name!r} ({join_names(map(repr, different), 6)})"
            each = f"count each as a query ({option('--column', f'query={column}+{name}')})"
            same = "if all are answers to the same query, call the column run or seed"
            raise ValueError(f"{sheet.name}: {differ}: keep one of them {where}, or {each}; {same}")
    joined = "the best one counts, as in the authors' code" if answers.preset.how == "max" else "their means count"
    answers.notes.append(f"repeats: {several} ({len(rows):,} rows): {joined}")


def _tells_apart(pairs: np.ndarray, values: np.ndarray) -> bool:
    """Whether most pairs have each value once, or all values equally often, as a setting has and an outcome has not."""
    codes, number = pd.factorize(pairs)[0], int(values.max()) + 1
    table = np.bincount(codes * np.int64(number) + values, minlength=(codes.max() + 1) * number).reshape(-1, number)
    once = (table.max(axis=1) == 1) & (table.sum(axis=1) > 1)
    typical = np.median(table, axis=0)
    balanced = (table == typical).all(axis=1) & ((typical > 0).sum() > 1)
    return bool(once.mean() >= 0.8 or (balanced.mean() >= 0.8 and len(table) > 2))


def pivot(answers: Answers, keys: Keys, values: np.ndarray, how: str = "") -> np.ndarray:
    """Returns `[Q, N]` means (or maxima) of `[A]` values over the answers of each pair, NaN where there is none."""
    found = pd.Series(values).groupby(keys.pairs(answers)).agg(how or answers.preset.how)
    matrix = np.full((len(keys.first), len(answers.models)), np.nan)
    matrix.flat[found.index] = found
    return matrix


def close_gaps(
    answers: Answers, keys: Keys, scores: np.ndarray, costs: np.ndarray, missing: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns which queries stay, `[Q]`, and scores and costs `[Q, N]` without gaps; if none stays, proposes models to keep."""
    gaps, notes, name, models = np.isnan(scores) | np.isnan(costs), answers.notes, answers.sheet.name, answers.models
    keep = np.logical_not(gaps.any(axis=1))
    if keep.all():
        return keep, scores, costs
    counts, total = gaps.sum(axis=0), len(gaps)
    order = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i]]
    gaps_of, first = join_names((f"{models[i]} {counts[i]:,}" for i in order), 5), _first_gap(answers, keys, gaps)
    unpriced = [m for m, column in zip(models, (gaps & np.isnan(costs)).T, strict=True) if column.all()]
    if unpriced and len(unpriced) < len(models) - 1:
        others = option("--models", ",".join(m for m in models if m not in unpriced))
        no_cost = f"{join_names(unpriced)} have scores and no cost at all"
        raise ValueError(f"{name}: {no_cost}: if they are not models, keep the others ({others})")
    if missing == "zero":
        notes.append(f"missing: {int(gaps.sum()):,} answers count as score 0 and cost 0 (of {gaps_of}; first: {first})")
        return np.ones(total, bool), np.where(gaps, 0.0, scores), np.where(gaps, 0.0, costs)
    fewer = _propose_models(models, gaps, int(keep.sum()))
    if not keep.any():
        hint = _equal_ids(answers) or _aliases(models, scores)
        if (np.isfinite(scores).sum(axis=1) <= 1).all() and not hint:
            shared = _shared_column(answers)
            give = option("--column", f"query={shared}")
            likely = f"; several models have the values of {shared!r}: {give}" if shared else ""
            one = "every query has the answer of one model alone: a log of what a router chose does not tell what the others"
            same = "have every model answer the same queries, or name the column by which their answers belong together"
            raise ValueError(f"{name}: {one} would have answered; {same} (--column query=NAME){likely}")
        zero = "" if hint else ', or count them as 0 (missing="zero", --missing zero)'
        lack = f"no query has an answer and a cost of every model ({gaps_of} missing of {total:,}; first: {first})"
        raise ValueError(f"{name}: {lack}; {hint}{fewer}{zero}")
    left = f"{int((~keep).sum()):,} of {total:,} queries that lack an answer or a cost"
    notes.append(f"left out: {left} (of {gaps_of}; first: {first})")
    notes += [f"fewer than half of the queries are left: {fewer}"] if keep.mean() < 0.5 else []
    notes += _unlike_rest(models, scores, keep)
    return keep, scores, costs


def _propose_models(models: list[str], gaps: np.ndarray, num_complete: int) -> str:
    """Proposal of models of which more queries than now are complete."""
    left = list(range(len(models)))
    while len(left) > 2 and (~gaps[:, left].any(axis=1)).mean() < 0.5:
        left.remove(max(left, key=lambda i: gaps[:, i].sum()))
    names = [models[i] for i in left]
    complete = int((~gaps[:, left].any(axis=1)).sum())
    if complete <= num_complete:
        return "add the answers that are missing"
    return f"with models={names!r} ({option('--models', ','.join(names))}) {complete:,} queries are complete"


def _shared_column(answers: Answers) -> str:
    """Column whose values several models have, each about once, as ids of queries would be; empty without one."""
    roles, sheet = answers.roles, answers.sheet
    others = {*FILE_COLUMNS, *roles.candidates.get("query", ()), *roles.candidates.get("model", ())}
    columns = [name for name in sheet.single(sheet.names) if name not in others]
    for column in (*similar_names("query", columns), *columns):
        frame = pd.DataFrame({"value": key_texts(sheet.cells(column))[answers.row], "model": answers.model})
        pairs = frame.drop_duplicates()
        if len(pairs) > 0.9 * len(frame) and np.mean(pairs["value"].value_counts().to_numpy() > 1) > 0.5:
            return column
    return ""


def _equal_ids(answers: Answers) -> str:
    """Hint at ids that are the same number in other digits, empty without any."""
    column = answers.roles.column("query")
    first: dict[str, str] = {}
    for name in [] if column is None else dict.fromkeys(key_texts(answers.sheet.cells(column))):
        other = first.setdefault(re.sub(r"^0+(?=\d)|\.0+$", "", name), name)
        if other != name:
            return f"ids such as {other!r} and {name!r} are equal as numbers: write them in the same way; "
    return ""


def _aliases(models: list[str], scores: np.ndarray) -> str:
    """Hint at two names of one model that never answer the same query, empty without any."""
    version = r"[-_@:]?(\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview)$"
    short = [re.sub(version, "", model.lower().split("/")[-1]) for model in models]
    for (i, a), (j, b) in combinations(enumerate(short), 2):
        if a == b and not np.isfinite(scores[:, [i, j]]).all(axis=1).any():
            never = f"{models[i]!r} and {models[j]!r} never answer the same query"
            return f"{never}: are they two names of one model? write one name, or leave it out; "
    return ""


def _first_gap(answers: Answers, keys: Keys, gaps: np.ndarray) -> str:
    """Place of the first gap; the pair if that has no row."""
    query, model = map(int, np.argwhere(gaps)[0])
    rows = np.flatnonzero((keys.query == query) & (answers.model == model))
    if rows.size:
        return answers.place(int(rows[0]))
    column, row = answers.roles.column("query"), keys.first[query]
    name = row if column is None else answers.sheet.cells(column)[row]
    return f"query {str(name)!r} and model {answers.models[model]!r}"


def _unlike_rest(models: list[str], scores: np.ndarray, keep: np.ndarray) -> list[str]:
    """Line about models whose scores on the other queries differ by more than three standard errors."""
    found = []
    for model, column in zip(models, scores.T, strict=True):
        left, kept = column[~keep & ~np.isnan(column)], column[keep]
        if len(left) < 2 or len(kept) < 2:
            continue
        pooled = np.var(column[~np.isnan(column)]) * (1 / len(left) + 1 / len(kept))
        if abs(left.mean() - kept.mean()) > 3 * np.sqrt(pooled):
            found.append(f"{model} has {left.mean():.3g} on them and {kept.mean():.3g} on those kept")
    line = (
        f"left out: these queries are not like the others: {join_names(found, 3)}; means are those of the kept queries alone"
    )
    return [line] if found else []
