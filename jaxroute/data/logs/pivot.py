"""Answers as a table of queries and models: which answers are of one query, repeated answers, and gaps."""

import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from jaxroute.data.files import option, some
from jaxroute.data.logs.answers import Answers
from jaxroute.data.logs.cells import empty, number_of, read_texts
from jaxroute.data.logs.files import FILE_COLUMNS
from jaxroute.data.logs.names import SUMMARIES, level, similar, words
from jaxroute.data.logs.roles import Roles, is_repeat

_MOST_VALUES = 20  # A column that tells answers apart has no more different values.


@dataclass
class Keys:
    """The query of each answer.

    Attributes:
      query: `[A]` number of the query.
      first: `[Q]` row of the file where each query is first.
      number: `[Q]` number of each query among all of the file.
      total: number of all queries of the file.
      sorted: whether the queries are in another order than that of the file.
    """

    query: np.ndarray
    first: np.ndarray
    number: np.ndarray
    total: int
    sorted: bool = False

    def pairs(self, answers: Answers) -> np.ndarray:
        """`[A]` number of the pair of query and model."""
        return self.query * np.int64(len(answers.models)) + answers.model


def refuse_summary(roles: Roles) -> None:
    """Refuses rows of means or sums.

    They have a word such as "Total" as a query among ids with digits, or in one of the first columns of the last rows, which no row above has. Where ids are
    words, the numbers decide.

    Raises:
      ValueError: there is such a row.
    """
    sheet, size, queries = roles.sheet, roles.sheet.num_rows, roles.candidates.get("query", [])
    texts = {*roles.candidates.get("text", ())} - {*queries} if queries else set()
    not_them = {roles.given.get("query"), *roles.candidates.get("model", ()), *texts}
    for column in dict.fromkeys([*sheet.names[:3], *queries, *roles.candidates.get("category", ())]):
        if sheet.names.count(column) > 1 or column in not_them:
            continue
        cells = sheet.cells(column)
        rows = [row for row in range(max(0, size - 3), size) if _summary(cells[row])]
        rows = [row for row in rows if not any(cell == cells[row] for cell in cells[: size - 3])]
        if column in queries:
            first = np.unique(roles.codes(column), return_index=True)[1]
            rows = [row for row in first if _summary(cells[row])]
            numbered = sum(any(letter.isdigit() for letter in str(cell)) for cell in cells[first]) if rows else 0
            if numbered <= (len(first) - len(rows)) / 2:
                rows = [row for row in rows if _is_mean(roles, column, row)]
        if rows:
            raise ValueError(
                f"{sheet.place(rows[0])}, column {column!r} is {cells[rows[0]]!r}: is the row a summary of the others? delete such rows, or rename what they name"
            )


def _is_mean(roles: Roles, column: str, row: int) -> bool:
    """Whether the scores and costs of a row are the mean or the sum of the others', of the same model where there is one."""
    sheet, model = roles.sheet, roles.candidates.get("model", [])
    others = roles.codes(column) != roles.codes(column)[row]
    if len(model) == 1 and not empty(sheet.cells(model[0])[row]):
        others &= roles.codes(model[0]) == roles.codes(model[0])[row]
    names = [*roles.candidates.get("score", ()), *roles.candidates.get("cost", ())]
    names += [name for role in ("score", "cost") if role in roles.families for name in roles.families[role].columns.values()]
    for name in names if others.any() else ():
        numbers = np.array([number_of(str(cell).strip("$€£")) for cell in sheet.cells(name)])
        if not any(
            np.isclose(numbers[row], by(numbers[others]), rtol=0.01, atol=0.006 * numbers[others].max())
            for by in (np.nanmean, np.nansum)
        ):
            return False
    return bool(others.any())


_SUMMARY = re.compile(rf"[\W_]*({'|'.join(sorted(SUMMARIES))}|all|grand)", re.IGNORECASE)


def _summary(cell: object) -> bool:
    """Whether a cell is a word such as "Total (n=20)"."""
    if not isinstance(cell, str) or not _SUMMARY.match(cell):
        return False
    said = set(words(cell.split("(")[0]))
    return bool(said & (SUMMARIES | {"all"})) and said <= SUMMARIES | {
        "all",
        "grand",
        "of",
        "queries",
        "questions",
        "models",
        "rows",
    }


def find_keys(answers: Answers) -> Keys:
    """Numbers the queries; different questions under one id are different queries.

    Raises:
      ValueError: the answers of a pair differ in a column that tells them apart.
    """
    roles, sheet, notes = answers.roles, answers.sheet, answers.notes
    column, category, text = roles.column("query"), roles.column("category"), roles.column("text")
    wide, whole = bool(roles.models), True
    if column is None or (wide and column == text and "query" not in roles.given):
        rows = np.arange(sheet.num_rows)
        return Keys(answers.row, rows, rows, len(rows))
    cells = key_texts(sheet.cells(column))
    if wide:  # A row without an id is a query of its own.
        cells = np.array([f"({row})" if empty(cell) else cell for row, cell in enumerate(cells)], object)
    codes, ids = pd.factorize(cells)
    if category is not None and category != column:
        labels = _filled(codes, key_texts(sheet.cells(category)))
        if _several(codes, labels):
            codes, whole = _together(codes, labels), False
            notes.append(f"query: the column {column!r} begins again in every {category!r}, so both together name a query")
    if text is not None and text != column:
        texts = _filled(codes, read_texts(sheet.cells(text)))
        pairs = codes[answers.row] if wide else codes[answers.row] * np.int64(len(answers.models)) + answers.model
        if _several(pairs, texts[answers.row]):
            codes, whole = _together(codes, texts), False
            notes.append(f"query: the column {column!r} names different questions alike: it counts together with {text!r}")
        elif not wide:
            _check_texts(answers, codes, texts, column, text)
    if whole and all(re.fullmatch(r"[+-]?\d{1,18}", str(name)) for name in ids):  # In the order of their numbers.
        codes = np.argsort(np.argsort([int(name) for name in ids], kind="stable"))[codes]
    first = np.unique(codes, return_index=True)[1]
    asked, query = np.unique(codes[answers.row], return_inverse=True)  # Those that a model kept was asked.
    keys = Keys(query, first[asked], asked, len(first), bool((np.diff(first) < 0).any()))
    if wide and level("query", column) < 2 and "query" not in answers.asked and len(first) < len(codes):
        raise ValueError(
            f"{sheet.name} has a row per query, but several rows with one {column!r}: each row is a query ({option('--column', 'query=')}), or rows with one "
            f"{column!r} are answers to one query ({option('--column', f'query={column}')})"
        )
    cut = [name for name in map(str, ids[:1000]) if re.fullmatch(r"\d\.\d*E\+\d+|[1-9]\d{5,}0{6,}", name, re.IGNORECASE)]
    likely = whole and len(cut) > len(ids[:1000]) / 2 and "query" not in answers.asked
    if likely and len(np.unique(keys.pairs(answers))) < len(answers.row):
        raise ValueError(
            f"{sheet.name}: ids such as {cut[0]!r} in {column!r} end in zeros, as Excel leaves long numbers, so that different queries may have one: write them "
            f"as text, or say that they are whole ({option('--column', f'query={column}')})"
        )
    _check_repeats(answers, keys, column)
    return keys


def key_text(cell: object) -> str:
    """A cell as a text; whole numbers of a column with gaps have no point."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if empty(cell) else str(cell)


def key_texts(cells: np.ndarray) -> np.ndarray:
    """Cells as texts."""
    if cells.dtype.kind in "iub":
        return cells.astype(str).astype(object)
    return np.array([key_text(cell) for cell in cells], object)


def _filled(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels in which an empty one is that of the other rows with its code, if these have only one."""
    there = labels != ""
    if there.all():
        return labels
    of = pd.Series(labels[there], dtype=object).groupby(codes[there])
    one = of.first()[of.nunique() == 1].to_dict()
    return np.array([label or one.get(code, "") for code, label in zip(codes.tolist(), labels, strict=True)], object)


def _several(codes: np.ndarray, labels: np.ndarray) -> bool:
    """Whether rows of one code have different labels."""
    return bool(_together(codes, labels).max(initial=-1) > pd.factorize(codes)[0].max(initial=-1))


def _together(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A number for each pair of code and label."""
    numbers, different = pd.factorize(labels)
    return pd.factorize(codes * np.int64(len(different) + 1) + numbers)[0]


def _check_texts(answers: Answers, codes: np.ndarray, texts: np.ndarray, column: str, text: str) -> None:
    """Refuses ids whose texts differ from one model to another: other questions, or other words for the same ones."""
    if not _several(codes, texts):
        return
    normal = pd.Series([" ".join(of.lower().split()) for of in texts], dtype=object)
    other = (normal != normal.groupby(codes).transform("first")).to_numpy()
    if not other.any():
        return
    b = int(np.argmax(other))
    a = int(np.argmax(codes == codes[b]))
    sheet = answers.sheet
    there, here = (sheet.place(row).removeprefix(f"{sheet.name}, ") for row in (a, b))
    raise ValueError(
        f"{sheet.name}: {here} has the {column} of {there} but another {text!r}: if these are the same questions in other words, leave the texts out "
        "(columns={'text': ''}, on the command line --column text=); if not, give each question an id of its own"
    )


def _check_repeats(answers: Answers, keys: Keys, column: str) -> None:
    """Notes repeated answers; refuses those that another column tells apart."""
    pairs = keys.pairs(answers)
    count = np.bincount(pairs)
    again = count[pairs] > 1
    if not again.any():
        return
    sheet, rows = answers.sheet, answers.row[again]
    several = f"{int((count > 1).sum()):,} pairs of query and model have several answers"
    free = [name for name in sheet.names if name and name not in answers.roles.used and sheet.names.count(name) == 1]
    repeats, run = [name for name in free if is_repeat(name)], np.zeros(len(rows), np.int64)
    for name in repeats:
        run = _together(run, key_texts(sheet.cells(name)[rows]))
    for name in [name for name in free if name not in repeats] if answers.preset.how == "mean" else ():
        cells, file = sheet.cells(name), name in FILE_COLUMNS
        numbered = file and all(is_repeat(str(stem)) for stem in set(cells))
        if numbered or any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells[rows][:50]):
            continue
        values, different = pd.factorize(key_texts(cells[rows]))
        if len(different) < 2 or (len(different) > _MOST_VALUES and not file) or (repeats and not _several(run, values)):
            continue  # Few values are a setting; one value for each run is the run.
        if len(set(key_texts(cells))) < len(cells) and _tells_apart(pairs[again], values):
            raise ValueError(
                f"{sheet.name}: {several}, which differ in the column {name!r} ({some(map(repr, different), 6)}): keep one "
                f"of them (where={{{name!r}: {different[0]!r}}}, on the command line {option('--where', f'{name}={different[0]}')}), or count each as a query ("
                f"{option('--column', f'query={column}+{name}')}); if all are answers to the same query, call the column run or seed"
            )
    joined = "the best counts, as the authors have it" if answers.preset.how == "max" else "their means count"
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


def close(
    answers: Answers, keys: Keys, scores: np.ndarray, costs: np.ndarray, missing: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns which queries stay, `[Q]`, and scores and costs `[Q, N]` without gaps, and notes it.

    Args:
      answers: from `collect`.
      keys: from `find_keys`.
      scores: `[Q, N]` in [0, 1], NaN for gaps.
      costs: `[Q, N]`, NaN for gaps.
      missing: "drop" or "zero".

    Raises:
      ValueError: no query is complete; the message proposes models to keep.
    """
    gaps, notes, name, models = np.isnan(scores) | np.isnan(costs), answers.notes, answers.sheet.name, answers.models
    keep = np.logical_not(gaps.any(axis=1))
    if keep.all():
        return keep, scores, costs
    lacking, total = gaps.sum(axis=0), len(gaps)
    order = [int(i) for i in np.argsort(-lacking, kind="stable") if lacking[i]]
    most, where = some((f"{models[i]} {lacking[i]:,}" for i in order), 5), _first_gap(answers, keys, gaps)
    never = [m for m, of in zip(models, (gaps & np.isnan(costs)).T, strict=True) if of.all()]
    if never and len(never) < len(models) - 1:
        others = option("--models", ",".join(m for m in models if m not in never))
        raise ValueError(
            f"{name}: {some(never)} have scores and no cost at all: if they are no models, keep the others ({others})"
        )
    if missing == "zero":
        notes.append(f"missing: {int(gaps.sum()):,} answers count as score 0 and cost 0 (of {most}; first: {where})")
        return np.ones(total, bool), np.where(gaps, 0.0, scores), np.where(gaps, 0.0, costs)
    left = list(range(len(models)))
    while len(left) > 2 and (~gaps[:, left].any(axis=1)).mean() < 0.5:
        left.remove(max(left, key=lambda i: gaps[:, i].sum()))
    names = [models[i] for i in left]
    whole = int((~gaps[:, left].any(axis=1)).sum())
    fewer = "add the answers that are missing"
    if whole > keep.sum():
        fewer = f"with models={names!r} ({option('--models', ','.join(names))}) {whole:,} queries are complete"
    if not keep.any():
        hint = _equal_ids(answers) or _aliases(models, scores)
        if (np.isfinite(scores).sum(axis=1) <= 1).all() and not hint:
            shared = _shared_column(answers)
            likely = (
                f"; several models have the values of {shared!r}: {option('--column', f'query={shared}')}" if shared else ""
            )
            raise ValueError(
                f"{name}: every query has the answer of one model alone: a log of what a router chose does not tell what the others would have "
                f"answered; have every model answer the same queries, or name the column by which their answers belong together (--column query=NAME){likely}"
            )
        zero = "" if hint else ', or count them as 0 (missing="zero", --missing zero)'
        raise ValueError(
            f"{name}: no query has an answer and a cost of every model ({most} missing of {total:,}; first: {where}); {hint}{fewer}{zero}"
        )
    out = f"{int((~keep).sum()):,} of {total:,} queries"
    notes.append(f"left out: {out} that lack an answer or a cost (of {most}; first: {where})")
    notes += [f"fewer than half of the queries are left: {fewer}"] if keep.mean() < 0.5 else []
    notes += _unlike(models, scores, keep)
    return keep, scores, costs


def _shared_column(answers: Answers) -> str:
    """A column whose values several models have, each about once, as ids of queries would be; empty if there is none."""
    roles, sheet = answers.roles, answers.sheet
    others = {*FILE_COLUMNS, *roles.candidates.get("query", ()), *roles.candidates.get("model", ())}
    columns = [name for name in sheet.names if name not in others and sheet.names.count(name) == 1]
    likely = similar("query", columns)
    for column in (*likely, *columns):
        frame = pd.DataFrame({"value": key_texts(sheet.cells(column))[answers.row], "model": answers.model})
        pairs = frame.drop_duplicates()
        if len(pairs) > 0.9 * len(frame) and np.mean(pairs["value"].value_counts().to_numpy() > 1) > 0.5:
            return column
    return ""


def _equal_ids(answers: Answers) -> str:
    """A hint at ids that are the same number in other digits, empty if there is none."""
    column = answers.roles.column("query")
    first: dict[str, str] = {}
    for name in [] if column is None else dict.fromkeys(key_texts(answers.sheet.cells(column))):
        other = first.setdefault(re.sub(r"^0+(?=\d)|\.0+$", "", name), name)
        if other != name:
            return f"ids such as {other!r} and {name!r} are equal as numbers: write them in one way; "
    return ""


def _aliases(models: list[str], scores: np.ndarray) -> str:
    """A hint at two names of one model that never answer the same query, empty if there is none."""
    short = [re.sub(r"[-_@:]?(\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview)$", "", m.lower().split("/")[-1]) for m in models]
    for (i, a), (j, b) in combinations(enumerate(short), 2):
        if a == b and not np.isfinite(scores[:, [i, j]]).all(axis=1).any():
            return f"{models[i]!r} and {models[j]!r} never answer the same query: are they two names of one model? write one name, or leave it out; "
    return ""


def _first_gap(answers: Answers, keys: Keys, gaps: np.ndarray) -> str:
    """The place of the first gap; the pair where that has no row."""
    query, model = map(int, np.argwhere(gaps)[0])
    there = np.flatnonzero((keys.query == query) & (answers.model == model))
    if there.size:
        return answers.place(int(there[0]))
    column, row = answers.roles.column("query"), keys.first[query]
    name = row if column is None else answers.sheet.cells(column)[row]
    return f"query {str(name)!r} and model {answers.models[model]!r}"


def _unlike(models: list[str], scores: np.ndarray, keep: np.ndarray) -> list[str]:
    """Lines about models whose scores on the queries left out differ by more than three standard errors from those on the kept ones."""
    found = []
    for model, of in zip(models, scores.T, strict=True):
        out, kept = of[~keep & ~np.isnan(of)], of[keep]
        if len(out) < 2 or len(kept) < 2:
            continue
        pooled = np.var(of[~np.isnan(of)]) * (1 / len(out) + 1 / len(kept))
        if abs(out.mean() - kept.mean()) > 3 * np.sqrt(pooled):
            found.append(f"{model} has {out.mean():.3g} on them and {kept.mean():.3g} on those kept")
    line = f"left out: these queries are not like the others: {some(found, 3)}; means are those of the kept queries alone"
    return [line] if found else []
