"""The complete table of a log: scores in [0, 1], costs, and features, categories, dates and latencies of its queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..files import join_names
from ..table import RoutingTable
from .answers import Answers
from .cells import cell_place, read_dates, read_numbers, read_texts, read_vectors, which_empty
from .doubts import check_models, check_same_scores, check_scores, doubtful_costs
from .features import Reader, choose_features
from .names import scale_in_name, words
from .pivot import Keys, close_gaps, find_keys, pivot
from .presets import Prices, costs_by_size
from .pricing import price_answers, ways_to_give_costs
from .scales import Groups, to_unit_interval


@dataclass(frozen=True)
class Log:
    """Answers of models to queries, and how they were read.

    Attributes:
      table: complete table, scores in [0, 1].
      latency: `[Q, N]` float32 seconds, or None.
      dates: `[Q]` datetime64[s] of the queries, or None.
      signals: `[Q, N]` float32 confidence of the models in their answers (columns `<model>_confidence`), 0 where it is unknown; or None.
      features: source of the table's features, in words.
      read: lines about roles, conversions and omissions.
      opened: line of Python that reads the file again; empty for data in memory.
      reader: maker of features of further queries, from their texts or numbers; None without one, or if numbers are not converted.
    """

    table: RoutingTable
    latency: np.ndarray | None = None
    dates: np.ndarray | None = None
    signals: np.ndarray | None = None
    features: str = "none"
    read: tuple[str, ...] = ()
    opened: str = ""
    reader: Reader = None


def complete_log(
    answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None, options: Mapping[str, Any]
) -> Log:
    """Returns the complete log of the answers of the chosen models; `options` are the arguments of `read_log`."""
    notes, roles, sheet, arrays = answers.notes, answers.roles, answers.sheet, answers.arrays
    score_name = roles.families["score"].pattern if roles.models else str(roles.column("score"))
    groups = _groups(answers)
    if options["scale"] is None:
        check_scores(answers, scale_in_name(score_name) is not None)
    scores = convert_scores(answers, options["scale"], score_name, groups)
    cost, unit = _convert_costs(answers, costs, prices)
    keys, unit = find_keys(answers), str(options["cost_unit"] or unit)
    matrix, cost_matrix = pivot(answers, keys, scores), pivot(answers, keys, cost)
    keep, matrix, cost_matrix = close_gaps(answers, keys, matrix, cost_matrix, options["missing"])
    matrix, cost_matrix = matrix[keep], cost_matrix[keep]
    if keep.sum() < 2:
        queries = "query" if keep.sum() == 1 else "queries"
        raise ValueError(f"{sheet.name} has {keep.sum()} {queries}; at least 2 are needed to compare models")
    original = keys.first if sheet.rows is None else sheet.rows[keys.first]
    rows, total = (original, arrays["total"]) if roles.models else (keys.number, keys.total)
    if {"rows", "num_rows"} <= arrays.keys():
        rows, total = np.asarray(arrays["rows"])[rows], int(arrays["num_rows"])
    notes += check_same_scores(answers, matrix)
    check_models(answers, matrix, cost_matrix, [*(options["models"] or ()), *(costs or ()), *(prices or ())])
    notes += doubtful_costs(answers, cost_matrix, unit, stated=costs is prices is None and "cost" in answers.values)
    text, category = _texts(answers, keys, keep), _categories(answers, keys, keep)
    dates = _dates(answers, keys.first[keep])
    if "prompts" in arrays:
        prompts = np.asarray(arrays["prompts"])[original][keep]
    else:
        prompts = None if text is None else _number_prompts(answers, text)
    points, source, reader = _features(answers, keys, keep, options["features"], text, rows[keep], total)
    source = source or ("none" if category is None else "categories only")
    notes.append(f"features: {source}")
    latency = _latency(answers, keys, keep)
    signals = None
    if "confidence" in answers.values:
        signals = np.nan_to_num(pivot(answers, keys, answers.values["confidence"], "mean")[keep]).astype(np.float32)
    fields: dict[str, Any] = {"cost_unit": unit, "rows": rows[keep], "num_rows": total, "prompts": prompts}
    if category is not None:
        names, fields["groups"] = np.unique(category, return_inverse=True)
        fields["group_names"] = names.tolist()
    table = RoutingTable(matrix, cost_matrix, tuple(answers.models), points, **fields)
    _refuse_without_effect(answers)
    unused = roles.unused()
    notes += [unused] if unused else []
    notes.append(f"kept: {table.num_queries:,} queries x {table.num_models} models, costs in {unit}")
    return Log(table, latency, dates, signals, source, (*sheet.notes, *notes), reader=reader)


def _groups(answers: Answers) -> Groups:
    groups = {"model": (answers.model, answers.models)}
    category = answers.roles.column("category")
    if category is not None:
        numbers, labels = pd.factorize(np.array([str(cell) for cell in answers.sheet.cells(category)], object))
        groups["category"] = (numbers[answers.row], labels.tolist())
    return groups


def convert_scores(answers: Answers, scale: tuple[float, float] | None, name: str, groups: Groups) -> np.ndarray:
    """Returns `[A]` scores in [0, 1]."""
    percent, named_percent, named_scale = answers.percent, answers.named_percent, scale_in_name(name)
    if scale is None and named_scale is not None:
        low, high = scale = named_scale
        answers.notes.append(f"score: from {low:g} to {high:g}, as its name says (--scale decides)")
    scores = answers.values["score"]
    scores, note = to_unit_interval(scores, percent, named_percent, scale, name, answers.place, groups)
    answers.notes.extend([f"score: {note}"] if note else [])
    return scores


def _convert_costs(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> tuple[np.ndarray, str]:
    name, cost = answers.sheet.name, price_answers(answers, costs, prices)
    unit = answers.unit or "USD per query"
    if cost is None and answers.preset.name == "EmbedLLM":
        cost, unit = np.array([*costs_by_size(answers.models).values()])[answers.model], "1e9 parameters per query"
        sizes = "the models' sizes in 1e9 parameters, from their names (7 without one), as the file has none"
        answers.notes.append(f"cost: {sizes}")
    if cost is None and prices is not None:
        tokens = "prices per million tokens need to know how many tokens there are, but it has neither columns of tokens nor texts of queries"
        give = "name them (columns={'tokens_in': ..., 'tokens_out': ...}, on the command line --column tokens_in=NAME)"
        raise ValueError(f"{name}: {tokens}: {give}, or {ways_to_give_costs(answers)}")
    if cost is None:
        raise ValueError(f"{name} has no costs: {ways_to_give_costs(answers)}")
    without = [model for number, model in enumerate(answers.models) if np.isnan(cost[answers.model == number]).all()]
    if without:
        others = "keep the others (models=[...], --models A,B)"
        raise ValueError(f"{name} has no cost of {join_names(without)}: {others}, or {ways_to_give_costs(answers)}")
    stated = "" if costs is not None or prices is not None else str(answers.arrays.get("cost_unit", ""))
    return cost, stated or unit


def _latency(answers: Answers, keys: Keys, keep: np.ndarray) -> np.ndarray | None:
    """`[Q, N]` seconds with the model's median for gaps, None if a model has none."""
    if "latency" not in answers.values:
        return None
    latency = pivot(answers, keys, answers.values["latency"], "mean")[keep]
    gaps = np.isnan(latency)
    if gaps.all(axis=0).any():
        answers.notes.append(f"latency: not used, as {answers.models[int(np.argmax(gaps.all(axis=0)))]} has none")
        return None
    if gaps.any():
        answers.notes.append(f"latency: {int(gaps.sum()):,} missing, replaced by the model's median")
        latency = np.where(gaps, np.nanmedian(latency, axis=0), latency)
    return latency.astype(np.float32)


def _first_cells(answers: Answers, keys: Keys, cells: np.ndarray) -> np.ndarray:
    """`[Q]` first cell of each query that is not empty."""
    rows, query = np.append(keys.first, answers.row), np.append(np.arange(len(keys.first)), keys.query)
    order = np.argsort(which_empty(cells)[rows], kind="stable")
    return cells[rows[order][np.unique(query[order], return_index=True)[1]]]


def _texts(answers: Answers, keys: Keys, keep: np.ndarray) -> np.ndarray | None:
    """`[Q]` texts of the queries, None without them."""
    column = answers.roles.column("text")
    if column is None:
        return None
    text = _first_cells(answers, keys, read_texts(answers.sheet.cells(column)))[keep]
    num_empty = int((text == "").sum())
    answers.roles.note("text", column, f"{num_empty} empty" if num_empty else "")
    return text


def _categories(answers: Answers, keys: Keys, keep: np.ndarray) -> list[str] | None:
    """`[Q]` categories of the queries, None without them."""
    column = answers.roles.column("category")
    if column is None:
        return None
    cells = _first_cells(answers, keys, answers.sheet.cells(column))[keep]
    labels = ["unknown" if cell is None or cell != cell else str(cell).strip() or "unknown" for cell in cells]
    answers.roles.note("category", column, f"{len(set(labels))} different")
    return labels


def _dates(answers: Answers, rows: np.ndarray) -> np.ndarray | None:
    """`[Q]` dates in some rows, None unless all have one."""
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


def _number_prompts(answers: Answers, text: np.ndarray) -> np.ndarray | None:
    """`[Q]` numbers of the texts, each empty one different; None if all are different."""
    prompts, different = pd.factorize(text)
    prompts[text == ""] = len(different) + np.arange((text == "").sum())
    copies = len(prompts) - len(np.unique(prompts))
    if not copies:
        return None
    repeated = f"{copies:,} of {len(prompts):,} queries repeat the text of another"
    answers.notes.append(f"text: {repeated}; copies stay together wherever queries are split")
    return prompts


def _features(
    answers: Answers, keys: Keys, keep: np.ndarray, wanted: Any, text: np.ndarray | None, rows: np.ndarray, total: int
) -> tuple[np.ndarray | None, str, Reader]:
    """`[Q, d]` features, their source, and the maker of those of new queries."""
    if keys.is_sorted and wanted is not None and not isinstance(wanted, str):
        order = "the queries are in the order of their numbers, which is not that of the file"
        sort = "sort the file by its queries, so that row i of the features belongs to query i"
        raise ValueError(f"{answers.sheet.name}: {order}: {sort}")
    no_numbers = isinstance(wanted, str) and wanted.lower() in ("none", "categories")
    own = None if no_numbers else _own_numbers(answers, keys.first[keep])
    texts = None if text is None else (text, str(answers.roles.column("text")))
    points, source, notes, reader = choose_features(wanted, texts, own, rows, total)
    answers.notes.extend(notes)
    return points, source, reader


def _own_numbers(answers: Answers, first: np.ndarray) -> tuple[np.ndarray, str, bool] | None:
    """`[Q, d]` numbers of queries in the file, their source, and whether they are separate columns; None without them."""
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
        fill = 'fill it, or leave all out (features="none", on the command line --features none)'
        place = cell_place(sheet, first[row], names[column])
        raise ValueError(f"{place} is empty; a feature must be there for every query: {fill}")
    return numbers, f"columns {names[0]} to {names[-1]}", words(names[0])[0] in ("feature", "feat", "features")


def _refuse_without_effect(answers: Answers) -> None:
    """Refuses a column that the caller named and that has no effect."""
    for role, column in answers.given.items():
        if column and "*" not in column and column not in answers.roles.used:
            why = "it says nothing here"
            if role.startswith(("tokens", "price", "response", "prompt_chars")):
                why = "costs are stated (--column cost= leaves them out)"
            raise ValueError(f"columns[{role!r}] is {column!r}, which has no effect in this file, as {why}: leave it out")
