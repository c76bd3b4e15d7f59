"""Completes the table of a log: assigns answers to queries, merges repeated answers, closes gaps, and converts scores and costs.

Below, `A` is the number of answers, `Q` the number of queries, and `N` the number of models.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ..features import Reader, choose_features
from ..files import join_names, option
from ..table import RoutingTable
from .answers import Answers, price_answers, ways_to_give_costs
from .cells import is_empty, key_texts, read_dates, read_numbers, read_texts, read_vectors, which_empty
from .doubts import check_models, check_same_scores, check_scores, doubt_costs, to_unit_interval
from .names import is_repeat, match_level, scale_in_name, similar_names, words
from .opening import FILE_COLUMNS
from .presets import Prices, costs_by_size

_MOST_VALUES = 20  # Largest number of different values of a column that counts as a setting.
# Roles of columns that differ between repeated answers to the same prompt. Lengths of the prompt are not among them: they tell prompts apart.
_MEASURED = ("tokens_out", "tokens_total", "tokens_reasoning", "response_chars", "latency")


@dataclass(frozen=True)
class Log:
    """Complete table of models' answers to queries, and a report on how it was read.

    Attributes:
      table: complete table, scores in [0, 1].
      latency: `[Q, N]` float32 seconds, or None.
      dates: `[Q]` datetime64[s] of the queries, or None.
      signals: `[Q, N]` float32 confidence of the models in their answers (columns `<model>_confidence`), 0 where it is unknown; or None.
      features: source of the table's features, in words.
      read: lines about roles, conversions and omissions.
      opened: line of Python that reads the file again; empty for data in memory.
      reader: object that computes features of new queries from their texts or numbers; None if there is no conversion.
    """

    table: RoutingTable
    latency: np.ndarray | None = None
    dates: np.ndarray | None = None
    signals: np.ndarray | None = None
    features: str = "none"
    read: tuple[str, ...] = ()
    opened: str = ""
    reader: Reader = None

    def __repr__(self) -> str:
        return "\n  ".join((f"Log: {self.table!r}", *self.read))


def complete_log(answers: Answers, costs: Mapping | None, prices: Prices | None, options: Mapping[str, Any]) -> Log:
    """Builds the complete log of the chosen models. `costs` and `prices` are the caller's or None, `options` the arguments of `read_log` by name."""
    notes, roles, sheet, arrays = answers.notes, answers.roles, answers.sheet, answers.arrays
    scores = unit_scores(answers, options["scale"])
    cost, unit = convert_costs(answers, costs, prices)
    keys, unit = find_keys(answers), str(options["cost_unit"] or unit)
    matrix, cost_matrix = _pivot(answers, keys, scores), _pivot(answers, keys, cost)
    keep = _close_gaps(answers, keys, matrix, cost_matrix, options["missing"])
    matrix, cost_matrix = matrix[keep], cost_matrix[keep]
    if keep.sum() < 2:
        queries = "query" if keep.sum() == 1 else "queries"
        raise ValueError(f"{sheet.name} has {keep.sum()} {queries}; at least 2 are needed to compare models")
    original = keys.first if sheet.rows is None else sheet.rows[keys.first]
    rows, total = (original, arrays["total"]) if roles.models else (keys.number, keys.total)
    if {"rows", "num_rows"} <= arrays.keys():
        rows, total = np.asarray(arrays["rows"])[rows], int(arrays["num_rows"])
    check_same_scores(answers, matrix)
    check_models(answers, matrix, cost_matrix, [*(options["models"] or ()), *(costs or ()), *(prices or ())])
    doubt_costs(answers, cost_matrix, unit, stated=costs is prices is None and "cost" in answers.values)
    known = np.asarray(arrays["prompts"])[original][keep] if "prompts" in arrays else None
    queries = describe_queries(answers, keys, keep, rows[keep], total, known, options["features"])
    latency, signals = _latency(answers, keys, keep), None
    if "confidence" in answers.values:
        signals = np.nan_to_num(_pivot(answers, keys, answers.values["confidence"], "mean")[keep]).astype(np.float32)
    fields = {"cost_unit": unit, "rows": rows[keep], "num_rows": total, "prompts": queries.prompts, **queries.categories}
    table = RoutingTable(matrix, cost_matrix, tuple(answers.models), queries.features, **fields)
    finish_report(answers)
    notes.append(f"kept: {table.num_queries:,} queries x {table.num_models} models, costs in {unit}")
    return Log(table, latency, queries.dates, signals, queries.source, tuple(notes), reader=queries.reader)


def unit_scores(answers: Answers, scale: tuple[float, float] | None) -> np.ndarray:
    """Returns the score of each answer in [0, 1], `[A]`, NaN for none; `scale` is the lowest and the highest possible score, or None."""
    roles, sheet = answers.roles, answers.sheet
    name = roles.families["score"].pattern if roles.models else str(roles.column("score"))
    groups: dict[str, Any] = {"model": (answers.model, answers.models)}
    if (column := roles.column("category")) is not None:
        numbers, labels = pd.factorize(np.array([str(cell) for cell in sheet.cells(column)], object))
        groups["category"] = (numbers[answers.row], labels.tolist())
    if scale is None:
        check_scores(answers, scale_in_name(name) is not None)
    return to_unit_interval(answers, scale, name, groups)


@dataclass(frozen=True)
class Queries:
    """Descriptions of the `Q` queries of a log: categories, features, prompts and dates."""

    categories: dict[
        str, Any
    ]  #: `groups` and `group_names`: index of each query's category, and the names; empty without categories.
    features: np.ndarray | None  #: `[Q, d]` features, or None.
    source: str  #: Source of the features, in words.
    reader: Reader  #: Object that computes features of new queries.
    prompts: np.ndarray | None  #: `[Q]` index of each query's prompt, or None.
    dates: np.ndarray | None  #: `[Q]` dates, or None.


def describe_queries(
    answers: Answers,
    keys: "Keys",
    keep: np.ndarray,
    rows: np.ndarray,
    total: int,
    prompts: np.ndarray | None,
    requested: Any,
) -> Queries:
    """Reads categories, features, prompts and dates of the queries in the mask `keep`, and adds lines about them to the report.

    Args:
      answers: answers of the log.
      keys: assignment of answers to queries.
      keep: `[all queries]` mask of the `Q` queries.
      rows: `[Q]` row of each query in the file.
      total: number of rows of the file.
      prompts: `[Q]` index of each query's prompt, if the file states it; None otherwise.
      requested: argument `features` of `read_log`.
    """
    notes, roles, sheet = answers.notes, answers.roles, answers.sheet
    text, column_of_text, empty = None, None, np.zeros(0, int)
    if (column := roles.column("text")) is not None:
        text = _first_of_queries(answers, keys, read_texts(sheet.cells(column)))[keep]
        column_of_text, empty = (text, column), np.flatnonzero(text == "")
        roles.note("text", column, f"{empty.size} empty" if empty.size else "")
    categories: dict[str, Any] = {}
    if (column := roles.column("category")) is not None:
        cells = _first_of_queries(answers, keys, sheet.cells(column))[keep]
        labels = ["unknown" if cell is None or cell != cell else str(cell).strip() or "unknown" for cell in cells]
        roles.note("category", column, f"{len(set(labels))} different")
        names, categories["groups"] = np.unique(labels, return_inverse=True)
        categories["group_names"] = names.tolist()
    dates = _dates(answers, keys.first[keep])
    if text is not None and prompts is None:
        numbers, different = pd.factorize(text)
        numbers[empty] = len(different) + np.arange(empty.size)  # Empty texts are different prompts.
        if copies := len(numbers) - len(np.unique(numbers)):
            prompts = numbers
            notes.append(f"text: {copies:,} of {len(numbers):,} queries repeat the text of another; they are split together")
    if keys.is_sorted and requested is not None and not isinstance(requested, str):
        order = "the queries are in the order of their numbers, which is not that of the file"
        raise ValueError(f"{sheet.name}: {order}: sort the file by its queries, as row i of the features is query i")
    no_numbers = isinstance(requested, str) and requested.lower() in ("none", "categories")
    own = None if no_numbers else _own_numbers(answers, keys.first[keep])
    points, source, reader = choose_features(requested, column_of_text, own, rows, total, notes)
    source = source or ("categories only" if categories else "none")
    notes.append(f"features: {source}")
    return Queries(categories, points, source, reader, prompts, dates)


def finish_report(answers: Answers) -> None:
    """Adds a line about unused columns to the report. Raises `ValueError` if a column that the caller named has no effect."""
    notes, roles, sheet = answers.notes, answers.roles, answers.sheet
    for role, column in answers.given.items():
        if column and "*" not in column and column not in roles.used:
            stated = role.startswith(("tokens", "price", "response", "prompt_chars"))
            why = "costs are stated (--column cost= leaves them out)" if stated else "nothing depends on it"
            raise ValueError(f"columns[{role!r}] is {column!r}, which has no effect in this file, as {why}: leave it out")
    left = [name for name in sheet.names if name and name not in roles.used and name not in FILE_COLUMNS]
    notes += [f"not used: {join_names(map(repr, left), 30)}"] if left else []


def convert_costs(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> tuple[np.ndarray, str]:
    """Returns the cost of each answer, `[A]`, by `price_answers`, and its unit in words. Raises ValueError if a model's costs are unknown."""
    file, cost = answers.sheet.name, price_answers(answers, costs, prices)
    unit = answers.unit or "USD per query"
    if cost is None and answers.sheet.preset.name == "EmbedLLM":
        cost, unit = np.array([*costs_by_size(answers.models).values()])[answers.model], "1e9 parameters per query"
        sizes = "the models' sizes in 1e9 parameters, from their names (7 without one)"
        answers.notes.append(f"cost: the file has none; {sizes}")
    if cost is None:
        lacks = "has no costs: "
        if prices:
            lacks = "has neither tokens nor texts of queries, and prices per million tokens need to know how many tokens there are: "
            lacks += "name the columns (--column tokens_in=NAME --column tokens_out=NAME), or "
        raise ValueError(f"{file} {lacks}{ways_to_give_costs(answers)}")
    if without := [model for number, model in enumerate(answers.models) if np.isnan(cost[answers.model == number]).all()]:
        hint = f"keep the others (models=[...], --models A,B), or {ways_to_give_costs(answers)}"
        raise ValueError(f"{file} has no cost of {join_names(without)}: {hint}")
    stated = "" if costs is not None or prices is not None else str(answers.arrays.get("cost_unit", ""))
    return cost, stated or unit


@dataclass
class Keys:
    """Assignment of answers to queries: the index of the query of each answer, and the first row of each query in the file."""

    query: np.ndarray  #: `[A]` index of the query.
    first: np.ndarray  #: `[Q]` first row of each query in the file.
    number: np.ndarray  #: `[Q]` index of each query among all queries of the file.
    total: int  #: Number of all queries of the file.
    is_sorted: bool = False  #: Whether the queries are in another order than that of the file.

    def pairs(self, answers: Answers) -> np.ndarray:
        """Returns an integer for each of `A` answers, `[A]`, which is equal for answers of the same model to the same query."""
        return self.query * np.int64(len(answers.models)) + answers.model


def find_keys(answers: Answers) -> Keys:
    """Assigns each answer to a query. Rows with the same id but different questions or categories belong to different queries."""
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
            normal = pd.Series([" ".join(words.lower().split()) for words in texts], dtype=object)
            for row in np.flatnonzero(normal != normal.groupby(codes).transform("first"))[:1]:
                rows = (row, np.argmax(codes == codes[row]))
                here, there = (sheet.place(place).removeprefix(f"{sheet.name}, ") for place in rows)
                problem = f"{here} has the {column} of {there} but another {text!r}"
                hint = "if these are the same questions in other words, leave the texts out (--column text=)"
                raise ValueError(f"{sheet.name}: {problem}: {hint}; if not, give each question a separate id")
    if by_id and all(re.fullmatch(r"[+-]?\d{1,18}", str(name)) for name in ids):  # In the order of their numbers.
        codes = np.argsort(np.argsort([int(name) for name in ids], kind="stable"))[codes]
    first = np.unique(codes, return_index=True)[1]
    answered, query = np.unique(codes[answers.row], return_inverse=True)  # Queries that the selected models were asked.
    confirm = option("--column", f"query={column}")
    keys = Keys(query, first[answered], answered, len(first), bool((np.diff(first) < 0).any()))
    if wide and match_level("query", column) < 2 and "query" not in answers.given and len(first) < len(codes):
        problem = f"{sheet.name} has a row per query, but several rows with one {column!r}"
        same = f"rows with one {column!r} are answers to one query ({confirm})"
        raise ValueError(f"{problem}: each row is a query (--column query=), or {same}")
    rounded = [n for n in map(str, ids[:1000]) if re.fullmatch(r"\d\.\d*E\+\d+|[1-9]\d{5,}0{6,}", n, re.IGNORECASE)]
    likely = by_id and len(rounded) > len(ids[:1000]) / 2 and "query" not in answers.given
    if likely and len(np.unique(keys.pairs(answers))) < len(answers.row):
        problem = f"ids such as {rounded[0]!r} in {column!r} end in zeros, as Excel leaves long numbers, and may be those of several queries"
        raise ValueError(f"{sheet.name}: {problem}: write them as text, or confirm that they are whole ({confirm})")
    _check_repeats(answers, keys, column)
    return keys


def _fill_gaps(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Replaces each empty label, such as a category, by the label of other rows with the same code (query), if these have only one label."""
    present = labels != ""
    if present.all():
        return labels
    groups = pd.Series(labels[present], dtype=object).groupby(codes[present])
    single = groups.first()[groups.nunique() == 1].to_dict()
    return np.array([label or single.get(code, "") for code, label in zip(codes.tolist(), labels, strict=True)], object)


def _have_several(codes: np.ndarray, labels: np.ndarray) -> bool:
    return bool(_pair_codes(codes, labels).max(initial=-1) > pd.factorize(codes)[0].max(initial=-1))


def _pair_codes(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns an integer for each row; rows with equal codes and equal labels have equal integers."""
    numbers, different = pd.factorize(labels)
    return pd.factorize(codes * np.int64(len(different) + 1) + numbers)[0]


def _check_repeats(answers: Answers, keys: Keys, column: str) -> None:
    """Notes repeated answers of a model to a query (id in `column`); raises `ValueError` if another column, say of temperatures, tells them apart."""
    pairs, how = keys.pairs(answers), answers.sheet.preset.how
    count = np.bincount(pairs)
    is_repeated = count[pairs] > 1
    if not is_repeated.any():
        return
    sheet, rows = answers.sheet, answers.row[is_repeated]
    several = f"{int((count > 1).sum()):,} pairs of query and model have several answers"
    free = [name for name in sheet.single(sheet.names) if name and name not in answers.roles.used]
    free = [name for name in free if not any(match_level(role, name) >= 2 for role in _MEASURED)]
    repeats, run = list(filter(is_repeat, free)), np.zeros(len(rows), np.int64)
    for name in repeats:
        run = _pair_codes(run, key_texts(sheet.cells(name)[rows]))
    for name in free if how == "mean" else ():
        cells, is_path = sheet.cells(name), name in FILE_COLUMNS
        numbers = name in repeats or (is_path and all(is_repeat(str(stem)) for stem in set(cells)))
        if numbers or any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells[rows][:50]):
            continue
        values, different = pd.factorize(key_texts(cells[rows]))
        few = 1 < len(different) <= (len(rows) if is_path else _MOST_VALUES)
        several_in_run = not repeats or _have_several(run, values)  # Other columns only number the runs.
        if few and several_in_run and len(set(key_texts(cells))) < len(cells) and _distinguishes(pairs[is_repeated], values):
            keep, each = option("--where", f"{name}={different[0]}"), option("--column", f"query={column}+{name}")
            values = join_names(map(repr, different), 6)
            hint = f"keep one of them ({keep}), count each as a query ({each}), or call the column run or seed"
            raise ValueError(f"{sheet.name}: {several}, which differ in the column {name!r} ({values}): {hint}")
    joined = "the best one counts, as in the authors' code" if how == "max" else "their means count"
    answers.notes.append(f"repeats: {several} ({len(rows):,} rows): {joined}")


def _distinguishes(pairs: np.ndarray, values: np.ndarray) -> bool:
    """Whether the values of a column tell repeated answers to the same query by the same model apart.

    `pairs` `[n]` is the index of the query and model of each answer, and `values` `[n]` the index of its value. The result is True if in at least
    80 % of the pairs no value occurs twice, or each value occurs as often as in the median pair.
    """
    table = pd.crosstab(pairs, values).to_numpy()
    once = (table.max(axis=1) == 1) & (table.sum(axis=1) > 1)
    typical = np.median(table, axis=0)
    balanced = (table == typical).all(axis=1) & ((typical > 0).sum() > 1)
    return bool(once.mean() >= 0.8 or (balanced.mean() >= 0.8 and len(table) > 2))


def _pivot(answers: Answers, keys: Keys, values: np.ndarray, how: str = "") -> np.ndarray:
    """Arranges values of answers, `[A]`, as `[Q, N]`, NaN for none. Repeated answers are merged by `how` ("": by the rule of the format)."""
    found = pd.Series(values).groupby(keys.pairs(answers)).agg(how or answers.sheet.preset.how)
    matrix = np.full((len(keys.first), len(answers.models)), np.nan)
    matrix.flat[found.index] = found
    return matrix


def _close_gaps(answers: Answers, keys: Keys, scores: np.ndarray, costs: np.ndarray, missing: str) -> np.ndarray:
    """Returns a mask `[Q]` of queries to keep: those without gaps or, if `missing` is "zero", all, with 0 in gaps. `ValueError` if none is left."""
    gaps, notes, file, models = np.isnan(scores) | np.isnan(costs), answers.notes, answers.sheet.name, answers.models
    keep = np.logical_not(gaps.any(axis=1))
    if keep.all():
        return keep
    counts, total = gaps.sum(axis=0), len(gaps)
    query, model = map(int, np.argwhere(gaps)[0])
    rows = np.flatnonzero((keys.query == query) & (answers.model == model))
    if rows.size:
        first = answers.place(rows[0])
    else:
        column, row = answers.roles.column("query"), keys.first[query]
        name = row if column is None else answers.sheet.cells(column)[row]
        first = f"query {str(name)!r} and model {models[model]!r}"
    lacking = join_names((f"{models[i]} {counts[i]:,}" for i in np.argsort(-counts, kind="stable") if counts[i]), 5)
    unpriced = [m for m, column in zip(models, (gaps & np.isnan(costs)).T, strict=True) if column.all()]
    if unpriced and len(unpriced) < len(models) - 1:
        others = option("--models", ",".join(model for model in models if model not in unpriced))
        problem = f"{join_names(unpriced)} have scores and no cost at all"
        raise ValueError(f"{file}: {problem}: if they are not models, keep the others ({others})")
    if missing == "zero":
        notes.append(f"missing: {gaps.sum():,} answers count as score 0 and cost 0 (of {lacking}; first: {first})")
        scores[gaps] = costs[gaps] = 0.0
        return np.ones(total, bool)
    fewer = _propose_models(models, gaps, int(keep.sum()))
    if not keep.any():
        hint = hint_at_names(answers, scores)
        if (np.isfinite(scores).sum(axis=1) <= 1).all() and not hint:
            shared = find_shared_column(answers)
            likely = f"several models have the values of {shared!r}: {option('--column', f'query={shared}')}"
            problem = f"{file}: every query has the answer of one model alone, which does not tell what the others would have answered"
            hint = (
                "name the column by which answers belong together (--column query=NAME), or have all answer the same queries"
            )
            served = "if a rule chose the models, say how (--logging uniform, --logging estimated, in Python read_served)"
            raise ValueError(f"{problem}: {hint}; {served}" + (f"; {likely}" if shared else ""))
        zero = "" if hint else ', or count them as 0 (missing="zero", --missing zero)'
        problem = f"no query has an answer and a cost of every model ({lacking} missing of {total}; first: {first})"
        raise ValueError(f"{file}: {problem}; {hint}{fewer}{zero}")
    left = f"{(~keep).sum():,} of {total:,} queries that lack an answer or a cost"
    notes.append(f"left out: {left} (of {lacking}; first: {first})")
    notes += [f"fewer than half of the queries are left: {fewer}"] if keep.mean() < 0.5 else []
    notes += _unlike_rest(models, scores, keep)
    return keep


def _propose_models(models: list[str], gaps: np.ndarray, num_complete: int) -> str:
    """Proposes, in words, models that all answered more than `num_complete` queries; `gaps` marks missing answers, query by model."""
    left = list(range(len(models)))
    while len(left) > 2 and (~gaps[:, left].any(axis=1)).mean() < 0.5:
        left.remove(max(left, key=lambda i: gaps[:, i].sum()))
    names = [models[i] for i in left]
    complete = int((~gaps[:, left].any(axis=1)).sum())
    if complete <= num_complete:
        return "add the answers that are missing"
    return f"with models={names!r} ({option('--models', ','.join(names))}) {complete:,} queries are complete"


def find_shared_column(answers: Answers) -> str:
    """Returns a column that may hold query ids, or "". Most of its values occur with several models, and few of them twice with the same model."""
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
    """Returns a hint if two ids are the same number in different notation, such as "7" and "07"; otherwise an empty text."""
    column = answers.roles.column("query")
    first: dict[str, str] = {}
    for name in [] if column is None else dict.fromkeys(key_texts(answers.sheet.cells(column))):
        if (other := first.setdefault(re.sub(r"^0+(?=\d)|\.0+$", "", name), name)) != name:
            return f"ids such as {other!r} and {name!r} are equal as numbers: write them in the same way; "
    return ""


def hint_at_names(answers: Answers, scores: np.ndarray | None = None) -> str:
    """Returns a hint if ids or models that seem different are probably the same; `scores` are `[Q, N]`, or None if no query has two answers."""
    return _equal_ids(answers) or _aliases(
        answers.models, np.full((1, len(answers.models)), np.nan) if scores is None else scores
    )


def _aliases(models: list[str], scores: np.ndarray) -> str:
    """Returns a hint if two models that never answer the same query (by `scores` `[Q, N]`) differ only in their version; otherwise an empty text."""
    version = r"[-_@:]?(\d{4}-?\d{2}-?\d{2}|\d{4}|latest|preview)$"
    short = [re.sub(version, "", model.lower().split("/")[-1]) for model in models]
    for (i, a), (j, b) in combinations(enumerate(short), 2):
        if a == b and not np.isfinite(scores[:, [i, j]]).all(axis=1).any():
            problem = f"{models[i]!r} and {models[j]!r} never answer the same query: are they two names of one model?"
            return f"{problem} write one name, or leave it out; "
    return ""


def _unlike_rest(models: list[str], scores: np.ndarray, keep: np.ndarray) -> list[str]:
    """Returns a list: a warning if a model's mean scores on queries in the mask `keep` and on others differ by over 3 standard errors, or nothing."""
    found = []
    for model, column in zip(models, scores.T, strict=True):
        left, kept = column[~keep & ~np.isnan(column)], column[keep]
        if len(left) < 2 or len(kept) < 2:
            continue
        pooled = np.var(column[~np.isnan(column)]) * (1 / len(left) + 1 / len(kept))
        if abs(left.mean() - kept.mean()) > 3 * np.sqrt(pooled):
            found.append(f"{model} has {left.mean():.3g} on them and {kept.mean():.3g} on those kept")
    unlike = f"left out: these queries are not like the others: {join_names(found, 3)}"
    return [f"{unlike}; means are those of the kept queries alone"] if found else []


def _latency(answers: Answers, keys: Keys, keep: np.ndarray) -> np.ndarray | None:
    """Returns latencies in seconds, by query and model, of queries in the mask `keep`; a model's median fills its gaps. None if a model has none."""
    if "latency" not in answers.values:
        return None
    latency = _pivot(answers, keys, answers.values["latency"], "mean")[keep]
    gaps = np.isnan(latency)
    if gaps.all(axis=0).any():
        answers.notes.append(f"latency: not used, as {answers.models[int(np.argmax(gaps.all(axis=0)))]} has none")
        return None
    if gaps.any():
        answers.notes.append(f"latency: {int(gaps.sum()):,} missing, replaced by the model's median")
        latency = np.where(gaps, np.nanmedian(latency, axis=0), latency)
    return latency.astype(np.float32)


def _first_of_queries(answers: Answers, keys: Keys, cells: np.ndarray) -> np.ndarray:
    """Returns, for each of `Q` queries, the first cell of a column that is not empty in the rows of this query, `[Q]`."""
    rows, query = np.append(keys.first, answers.row), np.append(np.arange(len(keys.first)), keys.query)
    order = np.argsort(which_empty(cells)[rows], kind="stable")
    return cells[rows[order][np.unique(query[order], return_index=True)[1]]]


def _dates(answers: Answers, rows: np.ndarray) -> np.ndarray | None:
    """Returns the dates in the given rows of the file; None without a column of dates or, with a note, if a date is missing or cannot be read."""
    column = answers.roles.column("date")
    if column is None:
        return None
    try:
        dates = read_dates(answers.sheet, column)[rows]
    except ValueError as error:
        if "date" in answers.given:
            raise
        answers.notes.append(f"date: not used, as {error}")
        return None
    if np.isnat(dates).any():
        answers.notes.append(f"date: not used, as {int(np.isnat(dates).sum())} queries have none in {column!r}")
        return None
    answers.roles.note("date", column)
    return dates


def _own_numbers(answers: Answers, first: np.ndarray) -> tuple[np.ndarray, str, bool] | None:
    """Returns features from the rows `first` (one per query), their source in words, and False if they are an embedding. None without features."""
    roles, sheet = answers.roles, answers.sheet
    names, (head, star, tail) = roles.vectors, roles.given.get("embedding", "").partition("*")
    if star:
        names = [name for name in sheet.names if name.startswith(head) and name.endswith(tail)]
    elif roles.candidates.get("embedding"):
        column = str(roles.column("embedding"))
        is_array = sheet.about in ("an npz file", "a RoutingTable")
        if not is_array:
            roles.note("embedding", column)
        return read_vectors(sheet, column, first), f"{'array' if is_array else 'column'} {column!r}", False
    if not names:
        return None
    roles.used |= set(names)
    numbers = np.stack([read_numbers(sheet, name, "feature").values[first] for name in names], axis=1)
    if np.isnan(numbers).any():
        column, row = np.argwhere(np.isnan(numbers.T))[0]
        hint = "fill it, or leave all features out (--features none)"
        raise ValueError(f"{sheet.place(first[row], names[column])} is empty; every query needs all features: {hint}")
    return numbers, f"columns {names[0]} to {names[-1]}", words(names[0])[0] in ("feature", "feat", "features")
