"""A log of answers from any file, as a complete table of queries and models, with an account of how it was read."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import grouped, named, open_arrays, option, some
from jaxroute.data.logs import features as features_of
from jaxroute.data.logs.answers import Answers, collect
from jaxroute.data.logs.arrays import sheet_of_arrays
from jaxroute.data.logs.cells import empty, examples, looks_like_numbers, read_dates, read_numbers, read_texts, read_vectors
from jaxroute.data.logs.files import Sheet, existing, open_log
from jaxroute.data.logs.names import given_roles, given_units, words
from jaxroute.data.logs.pivot import Keys, _key, close, find_keys, pivot, places
from jaxroute.data.logs.presets import Preset, costs_by_size
from jaxroute.data.logs.pricing import Prices, give_costs, given_numbers, implausible, price_answers
from jaxroute.data.logs.roles import assign_roles, unused
from jaxroute.data.logs.scales import in_unit
from jaxroute.data.table import RoutingTable

if TYPE_CHECKING:
    from jaxroute.data.features import Standardisation  # noqa: F401


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
      units: units by role ("latency": "ms", "cost": "cents", "price": "per_token"), instead of what the columns' names say.
      costs: cost per query of each model, instead of the file's; the others are left out.
      prices: USD per million input, output and, where cached tokens are counted, cached input tokens of each model, instead of the file's costs; only
        the others are left out; or a file with the columns model, price_in and price_out. Without numbers of tokens, four characters of prompts and
        answers count as one, and an answer of unknown length as 256.
      cost_unit: what a cost counts; None for what the file says, or else "USD per query".
      models: names of models to keep, in this order; None keeps all.
      missing: "drop" leaves out queries that some model has not answered; "zero" counts no answer as score 0 and cost 0.
      scale: the lowest and the highest score there can be; None to find out [0, 1], percent or grades from 1 to 5 or 10.
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
    opened = _line(data, locals())
    checks.one_of("missing", missing, ("drop", "zero"))
    costs, priced = given_numbers(costs, prices, given_units(units))
    models = _given_models(models)
    wanted = list(dict.fromkeys([*(models or ()), *(costs or ()), *(priced or ())]))
    sheet, kept, preset = _opened(data, columns, where, separator, encoding)
    with named(sheet.name):
        instead = "costs" if costs is not None else "prices" if priced is not None else ""
        answers = _answers(sheet, columns, units, wanted, preset, instead)
        listed = os.fspath(prices) if isinstance(prices, (str, os.PathLike)) else ""
        log = _finished(answers, kept, preset, costs, priced, cost_unit, models, missing, scale, features, listed)
    return replace(log, opened=opened)


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
    _, prices = given_numbers(None, options.pop("prices", None))
    columns, where, units = (options.pop(name, None) for name in ("columns", "where", "units"))
    separator, encoding = options.pop("separator", None), options.pop("encoding", None)
    if options:
        raise ValueError(
            f"options of read_answers are columns, where, units, prices, separator and encoding, got {some(options)}"
        )
    sheet, _, preset = _opened(data, columns, where, separator, encoding)
    with named(sheet.name):
        answers = _answers(sheet, columns, units, list(prices or ()), preset, "prices" if prices else "", scored=False)
        scores = answers.values.get("score")
        cost = price_answers(answers, None, preset.completed(sheet.name, prices, answers.models))
        nothing = np.full(len(answers.row), np.nan)
        date = answers.roles.column("date")
        query = answers.roles.column("query")
        frame = pd.DataFrame(
            {
                "query": answers.row if query is None else sheet.cells(query)[answers.row],
                "model": np.array(answers.models, object)[answers.model],
                "score": nothing
                if scores is None
                else in_unit(scores, answers.percent, answers.named_percent, None, "score", answers.place, {})[0],
                "cost": nothing if cost is None else cost,
                "seconds": answers.values.get("latency", nothing),
                "date": np.datetime64("NaT", "s") if date is None else read_dates(sheet, date)[answers.row],
            }
        )
        frame.attrs["cost_unit"] = answers.unit or "USD per query"
        frame.attrs["read"] = (*sheet.notes, *answers.notes)
    return frame


def _line(data: Any, given: Mapping[str, Any]) -> str:
    """The line of Python that reads a file with these arguments; empty for what is in memory."""
    arguments = {name: value for name, value in given.items() if name != "data"}
    if not isinstance(data, (str, os.PathLike)) or any(hasattr(value, "shape") for value in arguments.values()):
        return ""
    simple = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in arguments.items()}
    said = [f"{name}={value!r}" for name, value in simple.items() if value and value != "drop"]
    return f"log = jaxroute.data.read_log({', '.join([repr(os.fspath(data)), *said])})"


def _given_models(models: Sequence[str] | None) -> list[str] | None:
    if models is None:
        return None
    names = [models] if isinstance(models, str) else [str(model) for model in models]
    if len(set(names)) < max(len(names), 2):
        raise ValueError(f"models must be at least two different names, got {', '.join(names) or 'none'}")
    return names


def _opened(
    data: Any,
    columns: Mapping[str, str] | None,
    where: Mapping[str, Any] | None,
    separator: str | None,
    encoding: str | None,
) -> tuple[Sheet, dict[str, Any], Preset]:
    """The open file with the rows that are wanted, arrays that stay as they are, and the preset of its format."""
    kept: dict[str, Any] = {}
    preset = Preset("")
    if isinstance(data, RoutingTable):
        arrays = {
            name: np.asarray(value) for name, value in vars(data).items() if value is not None and name != "group_names"
        }
        arrays |= {"group_names": np.array(data.group_names)} if data.groups is not None else {}
        sheet, kept = sheet_of_arrays("the table", arrays, "a RoutingTable")
    elif isinstance(data, (str, os.PathLike)) and existing(data).name.lower().endswith(".npz"):
        with named(data), open_arrays(data) as file:
            sheet, kept = sheet_of_arrays(str(data), {name: file[name] for name in file.names}, "an npz file")
    else:
        sheet = open_log(data, separator, encoding)
        preset = sheet.preset or preset
    label = Path(sheet.name).name if isinstance(data, (str, os.PathLike)) else sheet.name
    sheet.notes.insert(
        0,
        f"file: {label}, {sheet.about}; {sheet.num_rows:,} rows, {len(sheet.names)} columns"
        + (f"; {preset.name}" if preset.name else ""),
    )
    kept["total"] = sheet.num_rows
    if where is not None and not isinstance(where, Mapping):
        raise ValueError(f"where must map columns to values, as {{'filter': 'strict-match'}}, got {checks.show(where)}")
    for column, value in (where or {}).items():
        column = str(column)
        if column not in sheet.names:
            raise ValueError(
                f"where names the column {column!r}, which {sheet.name} lacks; it has {some(map(repr, sheet.names), 40)}"
            )
        cells = sheet.cells(column)
        values = value if isinstance(value, (list, tuple, set)) else [value]
        rows = np.flatnonzero([any(_equal(cell, one) for one in values) for cell in cells])
        if not rows.size:
            raise ValueError(
                f"where[{column!r}] is {value!r}, which no row of {sheet.name} has; it has {some(map(repr, dict.fromkeys(cells)))}"
            )
        sheet.keep(rows)
        sheet.notes.append(f"kept: the {len(rows):,} of {len(cells):,} rows whose {column!r} is {value!r}")
        kept.setdefault("chosen", []).append(column)
    if preset.first in sheet.names and preset.first not in (where or {}):
        _choose_first(sheet, preset.first)
        kept.setdefault("chosen", []).append(preset.first)
    return sheet, kept, preset


def _choose_first(sheet: Sheet, column: str) -> None:
    """Keeps, in each category, the rows with the first value of a column, and notes the others."""
    cells = np.array([str(cell) for cell in sheet.cells(column)], object)
    labels = np.array([str(cell) for cell in sheet.cells("category")], object)
    first: dict[str, str] = {}
    for label, cell in zip(labels, cells):
        first.setdefault(label, cell)
    rows = np.array([first[label] == cell for label, cell in zip(labels, cells)])
    if not rows.all():
        left = dict.fromkeys(cells[~rows].tolist())
        sheet.keep(np.flatnonzero(rows))
        sheet.notes.append(
            f"{column}: the same answers are judged several times; {some(map(repr, dict.fromkeys(cells[rows].tolist())))} counts, the first of each task, and not "
            f"{some(map(repr, left))} ({option('--where', f'{column}={next(iter(left))}')} keeps the tasks that have it)"
        )


def _equal(cell: Any, value: Any) -> bool:
    """Whether a cell is a value: as texts, or as numbers where the cell is one."""
    if str(cell).strip().lower() == str(value).strip().lower() or (str(value) == "" and empty(cell)):
        return True
    try:
        return isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool) and float(cell) == float(value)
    except (TypeError, ValueError):
        return False


def _answers(
    sheet: Sheet,
    columns: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
    wanted: Sequence[str],
    preset: Preset,
    instead: str,
    scored: bool = True,
) -> Answers:
    query = str(columns.get("query", "")) if isinstance(columns, Mapping) else ""
    parts = query.split("+")
    if query not in sheet.names and len(parts) > 1 and all(part in sheet.names for part in parts):  # "dataset+index".
        cells = [sheet.cells(part) for part in parts]
        sheet.put(query, np.array([" + ".join(map(repr, map(_key, row))) for row in zip(*cells, strict=True)], object))
    given = given_roles(columns, sheet.names, sheet.name)
    roles = assign_roles(sheet, given, wanted, scored)
    roles.used |= set(parts) if len(parts) > 1 else set()
    answers = collect(roles, given_units(units), instead)
    answers.how, answers.asked = preset.how, given
    if sheet.doubt:
        category = roles.column("category")
        names = [
            *sheet.names,
            *answers.models,
            *([] if category is None else map(str, dict.fromkeys(sheet.cells(category)))),
        ]
        odd = next((name for name in names if not name.isascii()), None)
        if odd is not None:
            raise ValueError(
                f"{sheet.name} is not in UTF-8; its encoding may be {' or '.join(sheet.doubt)}, and names such as {odd!r} depend on it: give it "
                "(encoding=..., on the command line --encoding)"
            )
    return answers


def _finished(
    answers: Answers,
    kept: Mapping[str, Any],
    preset: Preset,
    costs: Mapping[str, float] | None,
    prices: Prices | None,
    cost_unit: str | None,
    models: list[str] | None,
    missing: str,
    scale: tuple[float, float] | None,
    features: str | np.ndarray | None,
    listed: str,
) -> Log:
    """The complete table: models chosen, scores in [0, 1], costs, gaps, features."""
    notes, name = answers.notes, answers.sheet.name
    if len(answers.models) < 2:
        raise ValueError(
            f"{name} has one model, {answers.models[0]!r}: there is nothing to choose; add the answers of another"
        )
    if costs is None:
        kept_models = [model for model in answers.models if models is None or model in models]
        prices = preset.completed(name, prices, kept_models)
    if listed and prices is not None:  # A list of prices is longer than a log.
        known = {model: price for model, price in prices.items() if model in answers.models}
        lacking = [model for model in answers.models if model not in known]
        if lacking and models is None:
            raise ValueError(
                f"{listed} has no price of {some(lacking)}: add a line for each, or keep the others (models=[...], --models A,B)"
            )
        notes += [f"prices: {len(prices) - len(known)} of {listed} are of other models"] if len(known) < len(prices) else []
        prices = known
    _choose_models(answers, models, costs, prices)
    category = answers.roles.column("category")
    groups = {"model": (answers.model, answers.models)}
    if category is not None:
        numbers, labels = pd.factorize(np.array([str(cell) for cell in answers.sheet.cells(category)], object))
        groups["category"] = (numbers[answers.row], [str(label) for label in labels])
    score_name = answers.roles.families["score"].shape if answers.roles.models else str(answers.roles.column("score"))
    answers.values["score"], said = in_unit(
        answers.values["score"], answers.percent, answers.named_percent, scale, score_name, answers.place, groups
    )
    notes += [f"score: {said}"] if said else []
    scores = answers.values["score"]
    whose = f"the price list of {preset.name}" if preset.prices else "the prices given"
    cost = price_answers(answers, costs, prices, whose)
    unit = answers.unit
    if cost is None and preset.name == "EmbedLLM":
        sizes = costs_by_size(answers.models)
        cost, unit = np.array([sizes[model] for model in answers.models])[answers.model], "1e9 parameters per query"
        notes.append(
            "cost: the file has none; the models' sizes in 1e9 parameters, read from their names, take its place (7 where a name has none)"
        )
    if cost is None and prices is not None:
        raise ValueError(
            f"{name}: prices per million tokens need to know how many tokens there are, but it has neither columns of tokens nor texts of queries: "
            f"name them (columns={{'tokens_in': ..., 'tokens_out': ...}}, on the command line --column tokens_in=NAME), or {give_costs(answers)}"
        )
    if cost is None:
        raise ValueError(f"{name} has no costs: {give_costs(answers)}")
    without = [m for number, m in enumerate(answers.models) if np.isnan(cost[answers.model == number]).all()]
    if without:
        raise ValueError(
            f"{name} has no cost of {some(without)}: keep the others (models=[...], --models A,B), or {give_costs(answers)}"
        )
    answers.roles.used |= set(kept.get("chosen", ()))
    keys = find_keys(answers)
    matrix, cost_matrix = pivot(answers, keys, scores), pivot(answers, keys, cost)
    if costs is not None:
        cost_matrix = np.tile([costs[model] for model in answers.models], (keys.size, 1))
    rows = keys.first if answers.roles.models else keys.number
    query = answers.roles.column("query")
    names = np.array(
        [str(row) for row in keys.first]
        if query is None
        else [str(cell) for cell in answers.sheet.cells(query)[keys.first]],
        object,
    )
    keep, matrix, cost_matrix = close(
        answers, answers.models, matrix, cost_matrix, places(answers, keys), missing, names.tolist()
    )
    if keep.sum() < 2:
        raise ValueError(
            f"{name} has {keep.sum()} {'query' if keep.sum() == 1 else 'queries'}; at least 2 are needed to compare models"
        )
    total = keys.total
    if answers.roles.models:
        rows = rows if answers.sheet.rows is None else answers.sheet.rows[rows]
        total = kept["total"]
    if "rows" in kept and "num_rows" in kept:
        rows, total = np.asarray(kept["rows"])[rows], int(kept["num_rows"])
    unit = str(
        cost_unit
        or ("" if costs is not None or prices is not None else kept.get("cost_unit", ""))
        or unit
        or "USD per query"
    )
    notes += implausible(cost_matrix[keep], answers.models, unit)
    return _log(answers, keys, keep, matrix, cost_matrix, rows, total, unit, kept, features)


def _choose_models(
    answers: Answers, models: list[str] | None, costs: Mapping[str, float] | None, prices: Prices | None
) -> None:
    """Keeps the models that are named, and that have a cost where costs or prices were given."""
    for argument, names in (("models", models), ("costs", costs), ("prices", prices)):
        for model in names or ():
            checks.one_of(f"a model in {argument}", model, answers.models)
    kept = [m for m in models or answers.models if all(of is None or m in of for of in (costs, prices))]
    lacking = [m for m in models or () if m not in kept]
    if lacking:
        raise ValueError(
            f"{'costs' if costs is not None else 'prices'} lacks {some(lacking)}, which models names: give it too"
        )
    if kept == answers.models:
        return
    left = [model for model in answers.models if model not in kept]
    if len(kept) < 2:
        raise ValueError(
            f"{answers.sheet.name}: only {some(kept)} would be left: there is nothing to choose; give those of the others, too"
        )
    number = np.full(len(answers.models), -1)
    number[[answers.models.index(model) for model in kept]] = np.arange(len(kept))
    there = number[answers.model] >= 0
    answers.row, answers.model, place = answers.row[there], number[answers.model][there], answers.place
    where = np.flatnonzero(there)
    answers.place = lambda answer: place(int(where[answer]))
    answers.values = {role: values[there] for role, values in answers.values.items()}
    answers.percent = None if answers.percent is None else answers.percent[there]
    answers.models = kept
    if left:
        answers.notes.append(f"left out: the models {some(left)}, which were not named")


def _log(
    answers: Answers,
    keys: Keys,
    keep: np.ndarray,
    scores: np.ndarray,
    costs: np.ndarray,
    rows: np.ndarray,
    total: int,
    unit: str,
    kept: Mapping[str, Any],
    features: Any,
) -> Log:
    notes, roles, sheet, first = answers.notes, answers.roles, answers.sheet, keys.first[keep]
    text = labels = dates = None
    text_column, category, date_column = roles.column("text"), roles.column("category"), roles.column("date")
    if text_column is not None:
        text = _of_queries(read_texts(sheet.cells(text_column)), keys)[keep]
        lacking = int((text == "").sum())
        roles.note("text", text_column, f"{lacking} empty" if lacking else "")
    if category is not None:
        labels = np.array(
            [
                "unknown" if cell is None or cell != cell or not str(cell).strip() else str(cell).strip()
                for cell in _of_queries(sheet.cells(category), keys)[keep]
            ],
            dtype=object,
        )
        roles.note("category", category, f"{len(set(labels.tolist()))} different")
    if date_column is not None:
        try:
            dates = read_dates(sheet, date_column)[first]
        except ValueError as error:
            if "date" in answers.asked:
                raise
            notes.append(f"date: not used, as {error}")
        if dates is not None and np.isnat(dates).any():
            notes.append(f"date: not used, as {int(np.isnat(dates).sum())} queries have none in {date_column!r}")
            dates = None
        elif dates is not None:
            roles.note("date", date_column)
    original = keys.first if sheet.rows is None else sheet.rows[keys.first]
    prompts = np.asarray(kept["prompts"])[original][keep] if "prompts" in kept else None
    if text is not None and prompts is None:
        prompts = pd.factorize(text)[0]
        number = int(prompts.max()) + 1
        if number < len(prompts):
            empties = text == ""
            prompts[empties] = number + np.arange(int(empties.sum()))
            copies = len(prompts) - len(np.unique(prompts))
            notes += (
                [
                    f"text: {copies:,} of {len(prompts):,} queries repeat the text of another; copies stay together wherever queries are split"
                ]
                if copies
                else []
            )
        prompts = None if len(np.unique(prompts)) == len(prompts) else prompts
    if keys.sorted and features is not None and not isinstance(features, str):
        raise ValueError(
            f"{sheet.name}: the queries are in the order of their numbers, which is not that of the file: sort the file by its queries, so that row i of the "
            "features belongs to query i"
        )
    idle = isinstance(features, str) and features.lower() in ("none", "categories")
    numbers, source, own = (None, "", False) if idle else _numbers_of(answers, first)
    made = features_of.choose(
        features, features_of.Sources(text, text_column or "", numbers, source, own, labels is not None, rows[keep], total)
    )
    points, origin, more, reader = made
    notes += [*more, f"features: {origin}"]
    latency = _latency(answers, keys, keep)
    signals = None
    if "confidence" in answers.values:
        signals = np.nan_to_num(pivot(answers, keys, answers.values["confidence"], "mean")[keep]).astype(np.float32)
    table = RoutingTable(
        scores[keep],
        costs[keep],
        tuple(answers.models),
        points,
        cost_unit=unit,
        rows=rows[keep],
        num_rows=total,
        prompts=prompts,
        **grouped(labels),
    )
    idle = next(
        (role for role, column in answers.asked.items() if column and "*" not in column and column not in roles.used), None
    )
    if idle is not None:
        why = (
            "costs are stated (--column cost= leaves them out)"
            if idle.startswith(("tokens", "price", "response", "prompt_chars"))
            else "it says nothing here"
        )
        raise ValueError(
            f"columns[{idle!r}] is {answers.asked[idle]!r}, which has no effect in this file, as {why}: leave it out"
        )
    left = unused(roles)
    notes += [left] if left else []
    notes.append(f"kept: {table.num_queries:,} queries x {table.num_models} models, costs in {unit}")
    return Log(table, latency, dates, signals, origin, (*sheet.notes, *notes), reader=reader)


def _of_queries(cells: np.ndarray, keys: Keys) -> np.ndarray:
    """`[Q]` the first cell of each query that is not empty."""
    found = cells[keys.first]
    lacking = np.array([empty(cell) for cell in found], bool)
    if lacking.any():
        filled = np.array([not empty(cell) for cell in cells], bool)[keys.rows]
        query, row = np.unique(keys.query[filled], return_index=True)
        rows = keys.rows[filled][row]
        found = found.astype(object)
        for number, at in zip(query, rows, strict=True):
            if lacking[number]:
                found[number] = cells[at]
    return found


def _numbers_of(answers: Answers, first: np.ndarray) -> tuple[np.ndarray | None, str, bool]:
    """`[Q, d]` the file's own numbers of queries or None, where they are, and whether they are separate columns."""
    roles, sheet = answers.roles, answers.sheet
    pattern = roles.given.get("embedding", "")
    names = roles.vectors
    if "*" in pattern:
        head, _, tail = pattern.partition("*")
        names = [name for name in sheet.names if name.startswith(head) and name.endswith(tail)]
    elif roles.candidates.get("embedding"):
        column = roles.column("embedding")
        assert column is not None
        kind = "array" if sheet.about in ("an npz file", "a RoutingTable") else "column"
        if kind == "column" or sheet.about == "an npz file":
            roles.note("embedding", column) if kind == "column" else None
        return read_vectors(sheet, column, first), f"{kind} {column!r}", False
    if not names:
        return None, "", False
    roles.used |= set(names)
    parts = []
    for name in names:
        if not looks_like_numbers(sheet.cells(name)):
            read_numbers(sheet, name, "feature")
        values = read_numbers(sheet, name, "feature").values[first]
        if np.isnan(values).any():
            raise ValueError(
                f"{sheet.place(int(first[np.argmax(np.isnan(values))]))}, column {name!r} is empty; a feature must be there for every query: fill it, or leave all out "
                '(features="none", on the command line --features none)'
            )
        parts.append(values)
    own = words(names[0])[0] in ("feature", "feat", "features")
    return np.stack(parts, axis=1), f"columns {names[0]} to {names[-1]}", own


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


__all__ = ["Log", "examples", "read_answers", "read_log"]
