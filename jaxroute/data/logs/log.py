"""A log of answers from any file, as a complete table of queries and models, with an account of how it was read."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import grouped, named, option, read_arrays, some
from jaxroute.data.logs import features as features_of
from jaxroute.data.logs.answers import Answers, collect
from jaxroute.data.logs.arrays import sheet_of_arrays
from jaxroute.data.logs.cells import empty, read_dates, read_numbers, read_texts, read_vectors, which_empty
from jaxroute.data.logs.doubts import check_models, check_same_scores, check_scores, doubtful_costs
from jaxroute.data.logs.files import Sheet, existing, open_log
from jaxroute.data.logs.names import given_roles, given_units, similar, stated_scale, words
from jaxroute.data.logs.pivot import Keys, close, find_keys, key_text, pivot, refuse_summary
from jaxroute.data.logs.presets import Prices, costs_by_size
from jaxroute.data.logs.pricing import give_costs, given_numbers, price_answers
from jaxroute.data.logs.roles import assign_roles, unused
from jaxroute.data.logs.scales import in_unit
from jaxroute.data.table import RoutingTable


@dataclass(frozen=True)
class Log:
    """What models answered to queries, and how it was read.

    Attributes:
      table: complete table, scores in [0, 1].
      latency: `[Q, N]` float32 seconds, or None.
      dates: `[Q]` datetime64[s] of the queries, or None.
      signals: `[Q, N]` float32, the models' confidence in their answers (columns `<model>_confidence`), 0 for those that say nothing; or None.
      features: origin of the table's features, in words.
      read: lines about roles, conversions and what was left out.
      opened: line of Python that reads the file again; empty where that was no file.
      reader: maker of features of further queries, from their texts or numbers; None where there are none, or they are taken as they are.
    """

    table: RoutingTable
    latency: np.ndarray | None = None
    dates: np.ndarray | None = None
    signals: np.ndarray | None = None
    features: str = "none"
    read: tuple[str, ...] = ()
    opened: str = ""
    reader: features_of.Reader = None


def read_log(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    units: Mapping[str, str] | None = None,
    costs: Mapping[str, float] | None = None,
    prices: Mapping[str, Any] | str | os.PathLike | None = None,
    cost_unit: str | None = None,
    models: Sequence[str] | None = None,
    missing: Literal["drop", "zero"] = "drop",
    scale: tuple[float, float] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    features: str | np.ndarray | None = None,
) -> Log:
    """Reads a log of answers: a row per query and model, or a row per query.

    Columns are found by their names (`query_id`, `llm`, `correct`, `cost_usd`, `prompt_tokens`, `latency_ms`, `task`, `prompt`, ...) and by what
    is in them; an exact name beats a synonym, and two that are equal are refused. Units are read from names. `Log.read` says which column was
    used for what, what was converted and what was left out. Whatever is ambiguous is refused, with the option that decides. Logs of
    lm-evaluation-harness, HELM, Inspect, MMLU-Pro, MixInstruct, RouterBench, RouterEval, SPROUT, EmbedLLM and MESS+ are read as they are.

    Args:
      data: a csv, tsv, txt, JSON, JSON lines, parquet, feather, Excel, npz or pickle file, also compressed or in a zip archive; a folder or list of
        files, with a model in each or parts of one table; a data frame of pandas, polars, pyarrow or Hugging Face; a dict of columns; a list of
        records; or a `RoutingTable`.
      columns: names of columns by role ("query", also two of them as "dataset+index", "model", "score", "cost", "tokens_in", "tokens_out", "tokens_cached", "price_in", "latency",
        "category", "text", "response", "date", "embedding", ...), empty for a role that no column has. In a table with a row per query a name such
        as `"perf_*"` stands for a column per model.
      where: values by column; other rows are left out.
      units: units by role ("latency": "ms", "cost": "cents", "price": "per_token"), instead of what names, and columns such as `currency`, say.
      costs: cost per query of each model, instead of the file's; the others are left out.
      prices: USD per million input, output and, where cached tokens are counted, cached input tokens of each model, instead of the file's costs; only
        the others are left out; or a file with the columns model, price_in and price_out. Without numbers of tokens, four characters of prompts and
        answers count as one, and an answer of unknown length as 256.
      cost_unit: what a cost counts; None for what the file says, or else "USD per query".
      models: names of models to keep, in this order; None keeps all.
      missing: "drop" leaves out queries that some model has not answered; "zero" counts no answer as score 0 and cost 0.
      scale: the lowest and the highest score there can be; None for what the column's name says ("Score (0-10)"), else to find out [0, 1], percent or
        grades from 1 to 5 or 10.
      separator: mark between columns of text; None to find it.
      encoding: encoding of text; None to find it.
      features: None for the file's embedding, else text, else none; "text", "own" or "none"; an array or a file of `[Q, d]` numbers.

    Returns:
      The log.

    Raises:
      ValueError: the message names the file, the place in it, the value, and what to do.
      ImportError: an optional dependency reads the file: `pip install "jaxroute[data]"`.
      OSError: the file may not be read.
    """
    options = dict(locals())  # The arguments by name.
    checks.one_of("missing", missing, ("drop", "zero"))
    if models is not None:
        models = [models] if isinstance(models, str) else [str(model) for model in models]
        if len(set(models)) < max(len(models), 2):
            raise ValueError(f"models must be at least two different names, got {', '.join(models) or 'none'}")
    costs, priced = given_numbers(costs, prices, given_units(units))
    wanted = list(dict.fromkeys([*(models or ()), *(costs or ()), *(priced or ())]))
    answers = _answers(options, wanted, "costs" if costs is not None else "prices" if priced is not None else "")
    with named(answers.sheet.name):
        if costs is None:
            there = [model for model in answers.models if models is None or model in models]
            priced = answers.preset.completed(answers.sheet.name, priced, there)
        file = os.fspath(prices) if isinstance(prices, (str, os.PathLike)) else ""
        _choose_models(answers, models, costs, priced, file)
        log = _log(answers, costs, priced, options)
    return replace(log, opened=_line(options))


def read_answers(data: Any, **options: Any) -> pd.DataFrame:
    """Reads a log as a list of answers, also where each query has the answer of one model alone.

    Args:
      data: as in `read_log`.
      options: `columns`, `where`, `units`, `prices`, `separator` and `encoding` of `read_log`. A role of "score" may be missing.

    Returns:
      A row per answer with the columns `query`, `model`, `score`, `cost` (in `attrs["cost_unit"]`), `seconds` and `date`, NaN for what the log does not say.

    Raises:
      ValueError: as in `read_log`.
    """
    others = options.keys() - {"columns", "where", "units", "prices", "separator", "encoding"}
    if others:
        raise ValueError(f"read_answers has no option {some(others)}; it has those of read_log that say how to read a file")
    _, prices = given_numbers(None, options.get("prices"))
    answers = _answers({"data": data, **options}, list(prices or ()), "prices" if prices else "", scored=False)
    sheet, values = answers.sheet, answers.values
    with named(sheet.name):
        cost = price_answers(answers, None, answers.preset.completed(sheet.name, prices, answers.models))
        query, date = answers.roles.column("query"), answers.roles.column("date")
        frame = pd.DataFrame({"query": answers.row if query is None else sheet.cells(query)[answers.row]})
        frame["model"] = np.array(answers.models, object)[answers.model]
        frame["score"] = _scores(answers, None, "score", {}) if "score" in values else np.nan
        frame["cost"] = np.nan if cost is None else cost
        frame["seconds"] = values.get("latency", np.nan)
        frame["date"] = np.datetime64("NaT", "s") if date is None else read_dates(sheet, date)[answers.row]
        frame.attrs["cost_unit"] = answers.unit or "USD per query"
        frame.attrs["read"] = (*sheet.notes, *answers.notes)
    return frame


def _line(options: Mapping[str, Any]) -> str:
    """The line of Python that reads a file with these arguments of `read_log`; empty for what is in memory."""
    data, *values = options.values()
    if not isinstance(data, (str, os.PathLike)) or any(hasattr(value, "shape") for value in values):
        return ""
    simple = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    said = [f"{name}={value!r}" for name, value in simple.items() if name != "data" and value and value != "drop"]
    return f"log = jaxroute.data.read_log({', '.join([repr(simple['data']), *said])})"


def _answers(options: Mapping[str, Any], wanted: Sequence[str], instead: str, scored: bool = True) -> Answers:
    """Reads the answers of a file with the arguments of `read_log`, the models that these name, and what they give instead of costs."""
    data, columns, where = options["data"], options.get("columns"), options.get("where")
    if where is not None and not isinstance(where, Mapping):
        raise ValueError(f"where must map columns to values, as {{'filter': 'strict-match'}}, got {checks.show(where)}")
    on_disk, arrays = isinstance(data, (str, os.PathLike)), {}
    if isinstance(data, RoutingTable):
        whole = {name: np.asarray(of) for name, of in vars(data).items() if of is not None and np.size(of)}
        sheet, arrays = sheet_of_arrays("the table", whole, "a RoutingTable")
    elif on_disk and existing(data).name.lower().endswith(".npz"):
        with named(data):
            sheet, arrays = sheet_of_arrays(str(data), read_arrays(data), "an npz file")
    else:
        sheet = open_log(data, options.get("separator"), options.get("encoding"))
    label, form = Path(sheet.name).name if on_disk else sheet.name, f"; {sheet.preset.name}" if sheet.preset else ""
    sheet.notes.insert(0, f"file: {label}, {sheet.about}; {sheet.num_rows:,} rows, {len(sheet.names)} columns{form}")
    arrays["total"] = sheet.num_rows
    with named(sheet.name):
        chosen = _choose_rows(sheet, where or {})
        query = str(columns.get("query", "")) if isinstance(columns, Mapping) else ""
        parts = query.split("+") if "+" in query and query not in sheet.names else []
        if parts and all(part in sheet.names for part in parts):  # "dataset+index".
            rows = zip(*map(sheet.cells, parts), strict=True)
            sheet.put(query, np.array([" + ".join(map(repr, map(key_text, row))) for row in rows], object))
        given = given_roles(columns, sheet.names, sheet.name)
        roles = assign_roles(sheet, given, wanted, scored)
        refuse_summary(roles)
        roles.used |= {*parts, *chosen}
        answers = collect(roles, given_units(options.get("units")), instead)
        answers.asked, answers.arrays = given, arrays
        category = roles.column("category") if sheet.doubt else None
        labels = [] if category is None else map(str, dict.fromkeys(sheet.cells(category)))
        odd = next((name for name in (*sheet.names, *answers.models, *labels) if sheet.doubt and not name.isascii()), None)
        if odd is not None:
            raise ValueError(
                f"{sheet.name} is not in UTF-8; its encoding may be {' or '.join(sheet.doubt)}, and names such as {odd!r} depend on it: give it "
                "(encoding=..., on the command line --encoding)"
            )
    return answers


def _choose_rows(sheet: Sheet, where: Mapping[str, Any]) -> list[str]:
    """Keeps the rows that are wanted, or that the format counts, and returns the columns that say which."""
    for name, value in where.items():
        column = str(name)
        if column not in sheet.names:
            has = some(map(repr, sheet.names), 40)
            raise ValueError(f"where names the column {column!r}, which {sheet.name} lacks; it has {has}")
        cells = sheet.cells(column)
        values = value if isinstance(value, (list, tuple, set)) else [value]
        rows = np.flatnonzero([any(_equal(cell, one) for one in values) for cell in cells])
        if not rows.size:
            has = some(map(repr, dict.fromkeys(cells)))
            raise ValueError(f"where[{column!r}] is {value!r}, which no row of {sheet.name} has; it has {has}")
        sheet.keep(rows)
        sheet.notes.append(f"kept: the {len(rows):,} of {len(cells):,} rows whose {column!r} is {value!r}")
    first = sheet.preset.first if sheet.preset else None
    if first not in sheet.names or first in where:
        return [*map(str, where)]
    cells, labels = (pd.Series([str(cell) for cell in sheet.cells(name)], dtype=object) for name in (first, "category"))
    rows = cells == cells.groupby(labels).transform("first")
    if not rows.all():
        sheet.keep(np.flatnonzero(rows))
        used, left = (some(map(repr, cells[of].unique())) for of in (rows, ~rows))
        sheet.notes.append(
            f"{first}: the same answers are judged several times; {used} counts, the first of each task, and not {left} "
            f"({option('--where', f'{first}={cells[~rows].iloc[0]}')} keeps the tasks that have it)"
        )
    return [*map(str, where), first]


def _equal(cell: Any, value: Any) -> bool:
    """Whether a cell is a value: as texts, or as numbers where the cell is one."""
    if str(cell).strip().lower() == str(value).strip().lower() or (str(value) == "" and empty(cell)):
        return True
    try:
        return isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool) and float(cell) == float(value)
    except (TypeError, ValueError):
        return False


def _choose_models(
    answers: Answers, models: Sequence[str] | None, costs: Mapping[str, float] | None, prices: Prices | None, file: str
) -> None:
    """Keeps the models that are named, and that have a cost where costs or prices were given; a file of prices may be longer than a log."""
    name, there = answers.sheet.name, set(answers.models)
    if len(there) < 2:
        others = [column for column in similar("model", answers.sheet.names) if answers.roles.different(column) > 1]
        more = f", or name their column ({option('--column', f'model={others[0]}')})" if others else ""
        raise ValueError(
            f"{name} has one model, {answers.models[0]!r}: there is nothing to choose; add answers of another{more}"
        )
    if file and prices is not None and not prices.keys() <= there:
        answers.notes.append(
            f"prices: {file} also has those of {some(sorted(prices.keys() - there), 4)}, which the log lacks"
        )
        prices = {model: price for model, price in prices.items() if model in there}
    for argument, names in (("models", models), ("costs", costs), ("prices", prices)):
        for model in names or ():
            checks.one_of(f"a model in {argument}", model, answers.models)
    kept = [m for m in models or answers.models if all(of is None or m in of for of in (costs, prices))]
    places = {model: number for number, model in enumerate(kept)}
    lacking = [m for m in models or answers.models if m not in places]
    if lacking and models is not None:
        raise ValueError(f"{'prices' if costs is None else 'costs'} lacks {some(lacking)}, which models names: give it too")
    if lacking and file:
        raise ValueError(f"{file} has no price of {some(lacking)}: add a line for each, or keep the others (--models A,B)")
    if len(kept) < 2:
        raise ValueError(f"{name}: only {some(kept)} would be left: there is nothing to choose; give those of others, too")
    left = [model for model in answers.models if model not in places]
    number = np.array([places.get(model, -1) for model in answers.models])[answers.model]
    chosen, place = np.flatnonzero(number >= 0), answers.place
    answers.row, answers.model, answers.models = answers.row[chosen], number[chosen], kept
    answers.place = lambda answer: place(int(chosen[answer]))
    answers.values = {role: values[chosen] for role, values in answers.values.items()}
    answers.percent = None if answers.percent is None else answers.percent[chosen]
    answers.notes.extend([f"left out: the models {some(left)}, which were not named"] if left else [])


def _scores(answers: Answers, scale: tuple[float, float] | None, name: str, groups: Mapping[str, Any]) -> np.ndarray:
    """`[A]` scores in [0, 1]."""
    percent, named_percent, said_scale = answers.percent, answers.named_percent, stated_scale(name)
    if scale is None and said_scale is not None:
        answers.notes.append(f"score: from {said_scale[0]:g} to {said_scale[1]:g}, as its name says (--scale decides)")
        scale = said_scale
    scores, said = in_unit(answers.values["score"], percent, named_percent, scale, name, answers.place, groups)
    answers.notes.extend([f"score: {said}"] if said else [])
    return scores


def _costs(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None) -> tuple[np.ndarray, str]:
    """`[A]` costs, and their unit."""
    name, cost = answers.sheet.name, price_answers(answers, costs, prices)
    unit = answers.unit or "USD per query"
    if cost is None and answers.preset.name == "EmbedLLM":
        cost, unit = np.array([*costs_by_size(answers.models).values()])[answers.model], "1e9 parameters per query"
        answers.notes.append(
            "cost: the models' sizes in 1e9 parameters, from their names (7 without one), as the file has none"
        )
    if cost is None and prices is not None:
        raise ValueError(
            f"{name}: prices per million tokens need to know how many tokens there are, but it has neither columns of tokens nor texts of queries: "
            f"name them (columns={{'tokens_in': ..., 'tokens_out': ...}}, on the command line --column tokens_in=NAME), or {give_costs(answers)}"
        )
    if cost is None:
        raise ValueError(f"{name} has no costs: {give_costs(answers)}")
    without = [model for number, model in enumerate(answers.models) if np.isnan(cost[answers.model == number]).all()]
    if without:
        others = "keep the others (models=[...], --models A,B)"
        raise ValueError(f"{name} has no cost of {some(without)}: {others}, or {give_costs(answers)}")
    stated = "" if costs is not None or prices is not None else str(answers.arrays.get("cost_unit", ""))
    return cost, stated or unit


def _log(answers: Answers, costs: Mapping[str, float] | None, prices: Prices | None, options: Mapping[str, Any]) -> Log:
    """The complete table, with the arguments of `read_log`: scores in [0, 1], costs, gaps, features."""
    notes, roles, sheet, arrays, features = answers.notes, answers.roles, answers.sheet, answers.arrays, options["features"]
    category, groups = roles.column("category"), {"model": (answers.model, answers.models)}
    if category is not None:
        numbers, labels = pd.factorize(np.array([str(cell) for cell in sheet.cells(category)], object))
        groups["category"] = (numbers[answers.row], labels.tolist())
    score_name = roles.families["score"].shape if roles.models else str(roles.column("score"))
    if options["scale"] is None:
        check_scores(answers, stated_scale(score_name) is not None)
    scores = _scores(answers, options["scale"], score_name, groups)
    cost, unit = _costs(answers, costs, prices)
    keys, unit = find_keys(answers), str(options["cost_unit"] or unit)
    matrix, cost_matrix = pivot(answers, keys, scores), pivot(answers, keys, cost)
    keep, matrix, cost_matrix = close(answers, keys, matrix, cost_matrix, options["missing"])
    if keep.sum() < 2:
        queries = "query" if keep.sum() == 1 else "queries"
        raise ValueError(f"{sheet.name} has {keep.sum()} {queries}; at least 2 are needed to compare models")
    original = keys.first if sheet.rows is None else sheet.rows[keys.first]
    rows, total = (original, arrays["total"]) if roles.models else (keys.number, keys.total)
    if {"rows", "num_rows"} <= arrays.keys():
        rows, total = np.asarray(arrays["rows"])[rows], int(arrays["num_rows"])
    notes += check_same_scores(answers, matrix[keep])
    check_models(answers, matrix[keep], cost_matrix[keep], [*(options["models"] or ()), *(costs or ()), *(prices or ())])
    notes += doubtful_costs(answers, cost_matrix[keep], unit, stated=costs is prices is None and "cost" in answers.values)
    text = labels = prompts = signals = None
    text_column = roles.column("text")
    if text_column is not None:
        text = _of_queries(answers, keys, read_texts(sheet.cells(text_column)))[keep]
        lacking = int((text == "").sum())
        roles.note("text", text_column, f"{lacking} empty" if lacking else "")
    if category is not None:
        found = _of_queries(answers, keys, sheet.cells(category))[keep]
        labels = ["unknown" if cell is None or cell != cell else str(cell).strip() or "unknown" for cell in found]
        roles.note("category", category, f"{len(set(labels))} different")
    dates = _dates(answers, keys.first[keep])
    if "prompts" in arrays:
        prompts = np.asarray(arrays["prompts"])[original][keep]
    elif text is not None:
        prompts = _prompts(answers, text)
    if keys.sorted and features is not None and not isinstance(features, str):
        raise ValueError(
            f"{sheet.name}: the queries are in the order of their numbers, which is not that of the file: sort the file by its queries, so that row i of the "
            "features belongs to query i"
        )
    idle = isinstance(features, str) and features.lower() in ("none", "categories")
    own = None if idle else _numbers_of(answers, keys.first[keep])
    texts = None if text is None else (text, str(text_column))
    points, origin, more, reader = features_of.choose(features, texts, own, rows[keep], total)
    origin = origin or ("none" if labels is None else "categories only")
    notes += [*more, f"features: {origin}"]
    latency = _latency(answers, keys, keep)
    if "confidence" in answers.values:
        signals = np.nan_to_num(pivot(answers, keys, answers.values["confidence"], "mean")[keep]).astype(np.float32)
    about = {"cost_unit": unit, "rows": rows[keep], "num_rows": total, "prompts": prompts, **grouped(labels)}
    table = RoutingTable(matrix[keep], cost_matrix[keep], tuple(answers.models), points, **about)
    _refuse_idle(answers)
    left = unused(roles)
    notes += [left] if left else []
    notes.append(f"kept: {table.num_queries:,} queries x {table.num_models} models, costs in {unit}")
    return Log(table, latency, dates, signals, origin, (*sheet.notes, *notes), reader=reader)


def _of_queries(answers: Answers, keys: Keys, cells: np.ndarray) -> np.ndarray:
    """`[Q]` the first cell of each query that is not empty."""
    rows, query = np.append(keys.first, answers.row), np.append(np.arange(len(keys.first)), keys.query)
    order = np.argsort(which_empty(cells)[rows], kind="stable")
    return cells[rows[order][np.unique(query[order], return_index=True)[1]]]


def _dates(answers: Answers, rows: np.ndarray) -> np.ndarray | None:
    """`[Q]` dates in some rows, None unless all have one."""
    column = answers.roles.column("date")
    if column is None:
        return None
    try:
        dates = read_dates(answers.sheet, column)[rows]
    except ValueError as error:
        if "date" in answers.asked:
            raise
        answers.notes.append(f"date: not used, as {error}")
        return None
    if np.isnat(dates).any():
        answers.notes.append(f"date: not used, as {int(np.isnat(dates).sum())} queries have none in {column!r}")
        return None
    answers.roles.note("date", column)
    return dates


def _prompts(answers: Answers, text: np.ndarray) -> np.ndarray | None:
    """`[Q]` numbers of the texts, of which an empty one is like no other; None where all are different."""
    prompts, different = pd.factorize(text)
    prompts[text == ""] = len(different) + np.arange((text == "").sum())
    copies = len(prompts) - len(np.unique(prompts))
    if not copies:
        return None
    repeated = f"{copies:,} of {len(prompts):,} queries repeat the text of another"
    answers.notes.append(f"text: {repeated}; copies stay together wherever queries are split")
    return prompts


def _numbers_of(answers: Answers, first: np.ndarray) -> tuple[np.ndarray, str, bool] | None:
    """`[Q, d]` the file's own numbers of queries, where they are, and whether they are separate columns; None without them."""
    roles, sheet = answers.roles, answers.sheet
    names, (head, star, tail) = roles.vectors, roles.given.get("embedding", "").partition("*")
    if star:
        names = [name for name in sheet.names if name.startswith(head) and name.endswith(tail)]
    elif roles.candidates.get("embedding"):
        column = str(roles.column("embedding"))
        array = sheet.about in ("an npz file", "a RoutingTable")
        if not array:
            roles.note("embedding", column)
        return read_vectors(sheet, column, first), f"{'array' if array else 'column'} {column!r}", False
    if not names:
        return None
    roles.used |= set(names)
    numbers = np.stack([read_numbers(sheet, name, "feature").values[first] for name in names], axis=1)
    if np.isnan(numbers).any():
        column, row = np.argwhere(np.isnan(numbers.T))[0]
        raise ValueError(
            f"{sheet.place(int(first[row]))}, column {names[column]!r} is empty; a feature must be there for every query: fill it, or leave all out "
            '(features="none", on the command line --features none)'
        )
    return numbers, f"columns {names[0]} to {names[-1]}", words(names[0])[0] in ("feature", "feat", "features")


def _latency(answers: Answers, keys: Keys, keep: np.ndarray) -> np.ndarray | None:
    """`[Q, N]` seconds with the model's median for gaps, None where a model has none."""
    if "latency" not in answers.values:
        return None
    latency = pivot(answers, keys, answers.values["latency"], "mean")[keep]
    lacking = np.isnan(latency)
    if lacking.all(axis=0).any():
        answers.notes.append(f"latency: not used, as {answers.models[int(np.argmax(lacking.all(axis=0)))]} has none")
        return None
    if lacking.any():
        answers.notes.append(f"latency: {int(lacking.sum()):,} missing, the median of the model takes their place")
        latency = np.where(lacking, np.nanmedian(latency, axis=0), latency)
    return latency.astype(np.float32)


def _refuse_idle(answers: Answers) -> None:
    """Refuses a column that the caller named and that has no effect."""
    for role, column in answers.asked.items():
        if column and "*" not in column and column not in answers.roles.used:
            why = "it says nothing here"
            if role.startswith(("tokens", "price", "response", "prompt_chars")):
                why = "costs are stated (--column cost= leaves them out)"
            raise ValueError(f"columns[{role!r}] is {column!r}, which has no effect in this file, as {why}: leave it out")
