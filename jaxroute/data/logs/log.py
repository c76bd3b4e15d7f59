"""Reads a log of answers from any file as a complete table of queries and models, with a report on how it was read.

A log takes these steps: `open_log` returns a sheet of named columns, `_choose_rows` selects rows, `assign_roles` finds the role of each column,
`collect_answers` reads a number per answer and role, `choose_models` selects models, and `complete_log` builds a table without gaps.
"""

import inspect
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, join_names, option, read_arrays
from ..served import ServedLog
from ..table import RoutingTable
from .answers import Answers, check_costs, choose_models, collect_answers, price_answers
from .cells import is_empty, key_text, read_dates, read_numbers
from .complete import Log, complete_log
from .doubts import to_unit_interval
from .names import check_columns, check_units
from .opening import existing_path, open_log
from .roles import assign_roles, refuse_summary
from .served import LOGGING, complete_served, is_served
from .sheets import Sheet, sheet_of_arrays


@checks.suggest_keywords
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

    Columns are found by their names (`query_id`, `llm`, `correct`, `cost_usd`, `prompt_tokens`, `latency_ms`, `task`, `prompt`, ...) and by their
    content; an exact name beats a synonym, and columns that match equally are refused. Units are read from names. `Log.read` reports the role of each
    column, conversions and omissions. An ambiguous file is refused, and the error names the option that decides. Logs of lm-evaluation-harness,
    HELM, Inspect, MMLU-Pro, MixInstruct, RouterBench, RouterEval, SPROUT, EmbedLLM and MESS+ need at most prices or costs.

    Args:
      data: a csv, tsv, txt, JSON, JSON lines, parquet, feather, Excel, npz or pickle file, also compressed or in a zip archive; a folder or list of
        files, with a model in each or parts of one table; a data frame of pandas, polars, pyarrow or Hugging Face; a dict of columns; a list of
        records; or a `RoutingTable`.
      columns: names of columns by role ("query", also two of them as "dataset+index", "model", "score", "cost", "tokens_in", "tokens_out",
        "tokens_cached", "price_in", "latency", "category", "text", "response", "date", "embedding", ...), empty for a role that no column has. In a
        table with a row per query a name such as `"perf_*"` stands for a column per model.
      where: values by column; other rows are left out.
      units: units by role ("latency": "ms", "cost": "cents", "price": "per_token"), instead of those in names and in columns such as `currency`.
      costs: cost per query by model, in `cost_unit`, instead of the file's costs; models without one are left out.
      prices: USD per million input, output and, where cached tokens are counted, cached input tokens of each model, instead of the file's costs; or
        a file with the columns model, price_in and price_out. Models without a price are left out. Without counts of tokens, four characters of
        prompts and answers count as one token, and an answer of unknown length as 256 tokens.
      cost_unit: name of the unit of costs, which are not converted; None for that of the file, or else "USD per query".
      models: names of models to keep, in this order; None keeps all.
      missing: "drop" leaves out queries that some model has not answered; "zero" counts no answer as score 0 and cost 0.
      scale: the lowest and the highest possible score. None uses the scale in the column's name ("Score (0-10)"), or else the one that fits the
        scores: [0, 1], percent, or grades up to 5 or 10.
      separator: character between the columns of a text file; None to detect it.
      encoding: encoding of a text file; None to detect it.
      features: None for the file's embedding, or else its texts, if any; "text", "own" (the embedding), "none"; an array or file of `[Q, d]` numbers.

    Raises:
      ValueError: the message names the file, the place in it, the value, and the remedy, often as an option of the command line:
        `--column score=NAME` is `columns={"score": "NAME"}` here.
      ImportError: an optional dependency reads the file: `pip install "jaxroute[data]"`.
      OSError: the file may not be read.
    """
    return _complete({**locals(), "logging": None}, False)  # The arguments by name.


def read_served(data: Any, *, logging: Literal["uniform", "estimated"] | None = None, **reading: Any) -> ServedLog:
    """Reads a log of served queries, in which a rule chose the model of each answer, usually one for each query.

    Args:
      data: a file, folder or data in memory that `read_log` can read, with a row per answer.
      logging: how models were chosen: "uniform", all with equal probability; "estimated", with probabilities that are later estimated from features,
        category and time; None for those in a column of propensities, or else unknown. Rows without ids of queries are separate queries.
      reading: further arguments of `read_log`.

    Raises `ValueError` as `read_log` does, and if a propensity is not in (0, 1].
    """
    return _complete(_options(data, logging, reading), True)


def read_recorded(data: Any, *, logging: Literal["uniform", "estimated"] | None = None, **reading: Any) -> Log | ServedLog:
    """Reads a log of either kind: all models answered every query (`Log`), or a rule chose the model of each answer (`ServedLog`).

    A log is served if `logging` is given, a column has propensities, or at least nine of ten queries have the answer of one model alone. Arguments
    and errors are those of `read_served`.
    """
    return _complete(_options(data, logging, reading), None)


def _options(data: Any, logging: str | None, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `read_log` by name, with the defaults of those that are not in `reading`, and `logging`."""
    if logging is not None:
        checks.one_of("logging", logging, LOGGING)
    checks.keywords("read_log", inspect.unwrap(read_log), reading)
    parameters = inspect.signature(read_log).parameters
    return {**{name: p.default for name, p in parameters.items()}, **reading, "data": data, "logging": logging}


def _complete(options: dict[str, Any], served: bool | None) -> Any:
    """Reads a log of the kind `served`, or of either kind if it is None; `options` are the arguments of `read_log` by name, and `logging`."""
    data, logging = options["data"], options["logging"]
    checks.one_of("missing", options["missing"], ("drop", "zero"))
    models, prices = options["models"], options["prices"]
    if models is not None:
        models = [models] if isinstance(models, str) else [str(model) for model in models]
        if len(set(models)) < max(len(models), 2):
            raise ValueError(f"models must be at least two different names, got {', '.join(models) or 'none'}")
    costs, price_list = check_costs(options["costs"], prices, check_units(options["units"]))
    named = list(dict.fromkeys([*(models or ()), *(costs or ()), *(price_list or ())]))
    instead = "costs" if costs is not None else "prices" if price_list is not None else ""
    answers = _open_answers(options, named, instead)
    with errors_name(answers.sheet.name):
        if costs is None:
            kept = [model for model in answers.models if models is None or model in models]
            price_list = answers.sheet.preset.complete_prices(answers.sheet.name, price_list, kept)
        price_file = os.fspath(prices) if isinstance(prices, (str, os.PathLike)) else ""
        served = is_served(answers, logging) if served is None else served
        present = set(answers.models)
        choose_models(answers, models, costs, price_list, price_file)
        if served and (lost := present - set(answers.models)):
            why = "their answers are part of what the logging rule chose"
            raise ValueError(
                f"{answers.sheet.name} has one model per query, and {join_names(sorted(lost))} would be left out: {why}; name all models"
            )
        if served:
            log = complete_served(answers, costs, price_list, options, logging)
        else:
            log = complete_log(answers, costs, price_list, options)
    if not isinstance(data, (str, os.PathLike)) or any(hasattr(value, "shape") for value in options.values()):
        return log
    simple = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    given = [f"{name}={value!r}" for name, value in simple.items() if name != "data" and value and value != "drop"]
    function = "read_served" if isinstance(log, ServedLog) else "read_log"
    return replace(log, opened=f"log = jaxroute.data.{function}({', '.join([repr(simple['data']), *given])})")


def read_answers(data: Any, **options: Any) -> pd.DataFrame:
    """Reads a log as a list of answers, even if only one model has answered each query.

    Args:
      data: a file, folder or data in memory that `read_log` can read.
      options: `columns`, `where`, `units`, `prices`, `separator` and `encoding` of `read_log`. The scores may be missing.

    Returns:
      A row per answer: `query`, `model`, `score` in [0, 1], `cost` (unit in `attrs["cost_unit"]`), latency in `seconds`, `date`; NaN if unknown.

    Raises:
      ValueError: the data are no log; the message names the place and the remedy.
    """
    if others := options.keys() - {"columns", "where", "units", "prices", "separator", "encoding"}:
        raise ValueError(f"read_answers has no option {join_names(others)}; it has those of read_log for reading a file")
    _, prices = check_costs(None, options.get("prices"))
    answers = _open_answers({"data": data, **options}, list(prices or ()), "prices" if prices else "", scored=False)
    sheet, values = answers.sheet, answers.values
    with errors_name(sheet.name):
        cost = price_answers(answers, None, sheet.preset.complete_prices(sheet.name, prices, answers.models))
        query, date = answers.roles.column("query"), answers.roles.column("date")
        frame = pd.DataFrame({"query": answers.row if query is None else sheet.cells(query)[answers.row]})
        frame["model"] = np.array(answers.models, object)[answers.model]
        frame["score"] = to_unit_interval(answers, None, "score", {}) if "score" in values else np.nan
        frame["cost"] = np.nan if cost is None else cost
        frame["seconds"] = values.get("latency", np.nan)
        frame["date"] = np.datetime64("NaT", "s") if date is None else read_dates(sheet, date)[answers.row]
        frame.attrs["cost_unit"] = answers.unit or "USD per query"
        frame.attrs["read"] = tuple(answers.notes)
    return frame


def _open_answers(options: Mapping[str, Any], named: Sequence[str], instead: str, scored: bool = True) -> Answers:
    """Opens the file in `options`, the arguments of `read_log`, assigns roles to its columns and reads the answers.

    `named` are models that the caller named; they help to find the columns of models. If `instead` is "costs" or "prices", costs in the file are
    ignored. If `scored` is False, the log need not have scores.
    """
    data: Any = options.get("data")
    where, columns = options.get("where"), options.get("columns")
    if where is not None and not isinstance(where, Mapping):
        raise ValueError(f"where must map columns to values, as {{'filter': 'strict-match'}}, got {checks.show(where)}")
    is_path, arrays = isinstance(data, (str, os.PathLike)), {}  # Arrays that do not become columns.
    if isinstance(data, RoutingTable):
        fields = {name: np.asarray(value) for name, value in vars(data).items() if value is not None and np.size(value)}
        sheet, arrays = sheet_of_arrays("the table", fields, "a RoutingTable")
    elif is_path and existing_path(data).name.lower().endswith(".npz"):
        with errors_name(data):
            sheet, arrays = sheet_of_arrays(str(data), read_arrays(data), "an npz file")
    else:
        sheet = open_log(data, options.get("separator"), options.get("encoding"))
    label = Path(sheet.name).name if is_path else sheet.name
    form = f"; {sheet.preset.name}" if sheet.preset.name else ""
    sheet.notes.insert(0, f"file: {label}, {sheet.about}; {sheet.num_rows:,} rows, {len(sheet.names)} columns{form}")
    arrays["total"] = sheet.num_rows
    with errors_name(sheet.name):
        for column in (*(columns.values() if isinstance(columns, Mapping) else ()), *(where or ())):
            sheet.restore(str(column))
        chosen = _choose_rows(sheet, where or {})
        query = str(columns.get("query", "")) if isinstance(columns, Mapping) else ""
        parts = query.split("+") if "+" in query and query not in sheet.names else []
        if parts and all(part in sheet.names for part in parts):  # A column of queries made of two, as "dataset+index".
            rows = zip(*map(sheet.cells, parts), strict=True)
            sheet.put(query, np.array([" + ".join(map(repr, map(key_text, row))) for row in rows], object))
        given = check_columns(columns, sheet.names, sheet.label)
        roles = assign_roles(sheet, given, named, scored, options.get("logging") is not None)
        refuse_summary(roles)
        roles.used |= {*parts, *chosen}
        answers = collect_answers(roles, check_units(options.get("units")), instead)
        answers.given, answers.arrays = given, arrays
        if sheet.encodings:
            category = roles.column("category")
            labels = [] if category is None else map(str, dict.fromkeys(sheet.cells(category)))
            name = next((name for name in (*sheet.names, *answers.models, *labels) if not name.isascii()), None)
            if name is not None:
                problem = f"its encoding may be {' or '.join(sheet.encodings)}, and names such as {name!r} depend on it"
                raise ValueError(f"{sheet.name} is not in UTF-8; {problem}: give it (--encoding)")
    return answers


def _choose_rows(sheet: Sheet, where: Mapping[str, Any]) -> list[str]:
    """Keeps the rows that have the values `where` (by column), and returns the columns by which rows were chosen.

    Some formats record an answer several times, once per filter (way of extracting the result); of these rows, only each task's first filter is used.
    """
    for name, value in where.items():
        column = str(name)
        if column not in sheet.names:
            names = join_names(map(repr, sheet.names), 40)
            raise ValueError(f"where names the column {column!r}, which {sheet.label} lacks; it has {names}")
        cells = sheet.cells(column)
        values = value if isinstance(value, (list, tuple, set)) else [value]
        allowed = {text.lower() for one in values for text in (key_text(one), str(one).strip())}
        forms = ({"" if is_empty(cell) else key_text(cell).lower(), str(cell).strip().lower()} for cell in cells)
        rows = np.flatnonzero([not allowed.isdisjoint(texts) for texts in forms])
        if not rows.size:
            values = join_names(map(repr, dict.fromkeys(cells)))
            raise ValueError(f"where[{column!r}] is {value!r}, which no row of {sheet.name} has; it has {values}")
        sheet.select(rows)
        sheet.notes.append(f"kept: the {len(rows):,} of {len(cells):,} rows whose {column!r} is {value!r}")
    first = sheet.preset.first
    if first not in sheet.names or first in where:
        return [*map(str, where)]
    cells, labels = (pd.Series([str(cell) for cell in sheet.cells(name)], dtype=object) for name in (first, "category"))
    rows = cells == cells.groupby(labels).transform("first")
    if not rows.all():
        sheet.select(np.flatnonzero(rows))
        left = cells[~rows].unique()
        used, others = (join_names(map(repr, names)) for names in (cells[rows].unique(), left))
        counts = f"judged several times; {used} counts, the first of each task, and not {others}"
        keep = option("--where", f"{first}={left[0]}")
        sheet.notes.append(f"{first}: the same answers are {counts} ({keep} keeps the tasks that have it)")
    return [*map(str, where), first]


def load_table(path: Any, *, missing: Literal["error", "drop"] = "error", **reading: Any) -> RoutingTable:
    """Reads a complete table of scores and costs; unlike `read_log`, it refuses gaps unless `missing` is "drop", and returns no report.

    Args:
      path: a file, folder or data in memory that `read_log` can read.
      missing: "error" refuses a table in which some model has not answered a query; "drop" leaves such queries out and warns.
      reading: further arguments of `read_log`, such as `costs` and `cost_unit`.
    """
    checks.one_of("missing", missing, ("error", "drop"))
    log = read_log(path, **reading)
    for line in log.read:
        if line.startswith("left out: ") and "lack an answer" in line:
            lost = line.removeprefix("left out: ")
            if missing == "error":
                raise ValueError(f"{path}: {lost}; in Python missing='drop' leaves them out")
            warnings.warn(f"dropped {lost}", UserWarning, stacklevel=2)
    return log.table


def read_experiment_log(
    data: str | os.PathLike | None, costs: Mapping[str, float] | None = None, *, features: str | os.PathLike | None = None
) -> Log:
    """Reads an experiment's log by `read_log` and warns of its doubts. If `data` is no log or None, `ValueError` names options of `jaxroute run`."""
    if not data:
        raise ValueError("this experiment runs on the user's own table: give its file with --data FILE")
    try:
        log = read_log(data, costs=costs, features=None if features is None else os.fspath(features))
    except ValueError as error:
        if not any(before in str(error) for before in (" --", "(--")):
            raise
        costs_option = """--set environment.costs='{"MODEL": 0.01, ...}'"""
        table = "jaxroute.data.read_log(FILE, ...).table.save('table.npz'), for --data table.npz"
        hint = f"{costs_option} gives costs; a file that needs other options becomes a table by {table}"
        raise ValueError(f"{error}. An experiment has none of these options: {hint}") from None
    warned = ("left out", "fewer than half", "cost: implausible", "cost: the file has none", "features: text")
    for line in log.read:
        if line.startswith(warned):
            warnings.warn(f"{os.fspath(data)}: {line}", UserWarning, stacklevel=3)
    return log


def load_columns(path: str | os.PathLike, numbers: Sequence[str], labels: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Reads some columns of a file, of any kind that `read_log` can read, whatever other columns it has.

    Returns arrays by name, with an entry for each row: columns in `numbers` as float64, NaN for empty cells, and those in `labels` as text, "unknown"
    for empty cells. Raises `ValueError` if the file lacks a column, or a number cannot be read.
    """
    numbers, labels = ((names,) if isinstance(names, str) else tuple(names) for names in (numbers, labels))
    sheet = open_log(path)
    for name in (*numbers, *labels):
        if name not in sheet.names:
            raise ValueError(f"{path} lacks the column {name}; it has {', '.join(sheet.names)}")
    with errors_name(path):
        arrays = {name: read_numbers(sheet, name, "score").values for name in numbers}
        for name in labels:
            arrays[name] = np.array(["unknown" if is_empty(cell) else str(cell) for cell in sheet.cells(name)])
    return arrays
