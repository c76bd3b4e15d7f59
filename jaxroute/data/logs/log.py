"""Reading a log of answers from any file as a complete table of queries and models, with an account of how it was read.

A log takes these steps: `open_log` gives a sheet of named columns, `choose_rows` the rows that count, `assign_roles` the role of each column,
`collect_answers` one number per answer and role, `choose_models` the models, and `complete_log` the table, in which nothing is missing.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, join_names, read_arrays
from ..table import RoutingTable
from .answers import Answers, collect_answers
from .arrays import sheet_of_arrays
from .cells import read_dates
from .complete import Log, complete_log, convert_scores
from .files import existing_path, open_log
from .models import choose_models
from .names import check_columns, check_units
from .pricing import check_costs, price_answers
from .roles import assign_roles
from .rows import choose_rows, join_query_columns
from .sheet import Sheet
from .summaries import refuse_summary


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
    content; an exact name beats a synonym, and two that are equal are refused. Units are read from names. `Log.read` reports the role of each
    column, conversions and omissions. Whatever is ambiguous is refused, with the option that decides. Logs of lm-evaluation-harness, HELM,
    Inspect, MMLU-Pro, MixInstruct, RouterBench, RouterEval, SPROUT, EmbedLLM and MESS+ need no options.

    Args:
      data: a csv, tsv, txt, JSON, JSON lines, parquet, feather, Excel, npz or pickle file, also compressed or in a zip archive; a folder or list of
        files, with a model in each or parts of one table; a data frame of pandas, polars, pyarrow or Hugging Face; a dict of columns; a list of
        records; or a `RoutingTable`.
      columns: names of columns by role ("query", also two of them as "dataset+index", "model", "score", "cost", "tokens_in", "tokens_out", "tokens_cached", "price_in", "latency",
        "category", "text", "response", "date", "embedding", ...), empty for a role that no column has. In a table with a row per query a name such
        as `"perf_*"` stands for a column per model.
      where: values by column; other rows are left out.
      units: units by role ("latency": "ms", "cost": "cents", "price": "per_token"), instead of those in names and in columns such as `currency`.
      costs: cost per query of each model, instead of the file's; the others are left out.
      prices: USD per million input, output and, where cached tokens are counted, cached input tokens of each model, instead of the file's costs; only
        the others are left out; or a file with the columns model, price_in and price_out. Without numbers of tokens, four characters of prompts and
        answers count as one, and an answer of unknown length as 256.
      cost_unit: unit of a cost; None for that of the file, or else "USD per query".
      models: names of models to keep, in this order; None keeps all.
      missing: "drop" leaves out queries that some model has not answered; "zero" counts no answer as score 0 and cost 0.
      scale: the lowest and the highest possible score; None for that in the column's name ("Score (0-10)"), else to find out [0, 1], percent or
        grades from 1 to 5 or 10.
      separator: mark between columns of text; None to find it.
      encoding: encoding of text; None to find it.
      features: None for the file's embedding, else text, else none; "text", "own" or "none"; an array or a file of `[Q, d]` numbers.

    Raises:
      ValueError: the message names the file, the place in it, the value, and the remedy.
      ImportError: an optional dependency reads the file: `pip install "jaxroute[data]"`.
      OSError: the file may not be read.
    """
    options = dict(locals())  # The arguments by name.
    checks.one_of("missing", missing, ("drop", "zero"))
    if models is not None:
        models = [models] if isinstance(models, str) else [str(model) for model in models]
        if len(set(models)) < max(len(models), 2):
            raise ValueError(f"models must be at least two different names, got {', '.join(models) or 'none'}")
    costs, price_list = check_costs(costs, prices, check_units(units))
    wanted = list(dict.fromkeys([*(models or ()), *(costs or ()), *(price_list or ())]))
    instead = "costs" if costs is not None else "prices" if price_list is not None else ""
    answers = _open_answers(options, wanted, instead)
    with errors_name(answers.sheet.name):
        if costs is None:
            kept = [model for model in answers.models if models is None or model in models]
            price_list = answers.preset.complete_prices(answers.sheet.name, price_list, kept)
        price_file = os.fspath(prices) if isinstance(prices, (str, os.PathLike)) else ""
        choose_models(answers, models, costs, price_list, price_file)
        log = complete_log(answers, costs, price_list, options)
    return replace(log, opened=_python_line(options))


def read_answers(data: Any, **options: Any) -> pd.DataFrame:
    """Reads a log as a list of answers, also where each query has the answer of one model alone.

    Args:
      data: as in `read_log`.
      options: `columns`, `where`, `units`, `prices`, `separator` and `encoding` of `read_log`. The scores may be missing.

    Returns:
      A row per answer with the columns `query`, `model`, `score`, `cost` (in `attrs["cost_unit"]`), `seconds` and `date`, NaN for unknown values.

    Raises:
      ValueError: as in `read_log`.
    """
    others = options.keys() - {"columns", "where", "units", "prices", "separator", "encoding"}
    if others:
        have = "it has those of read_log that say how to read a file"
        raise ValueError(f"read_answers has no option {join_names(others)}; {have}")
    _, prices = check_costs(None, options.get("prices"))
    answers = _open_answers({"data": data, **options}, list(prices or ()), "prices" if prices else "", scored=False)
    sheet, values = answers.sheet, answers.values
    with errors_name(sheet.name):
        cost = price_answers(answers, None, answers.preset.complete_prices(sheet.name, prices, answers.models))
        query, date = answers.roles.column("query"), answers.roles.column("date")
        frame = pd.DataFrame({"query": answers.row if query is None else sheet.cells(query)[answers.row]})
        frame["model"] = np.array(answers.models, object)[answers.model]
        frame["score"] = convert_scores(answers, None, "score", {}) if "score" in values else np.nan
        frame["cost"] = np.nan if cost is None else cost
        frame["seconds"] = values.get("latency", np.nan)
        frame["date"] = np.datetime64("NaT", "s") if date is None else read_dates(sheet, date)[answers.row]
        frame.attrs["cost_unit"] = answers.unit or "USD per query"
        frame.attrs["read"] = (*sheet.notes, *answers.notes)
    return frame


def _open_answers(options: Mapping[str, Any], wanted: Sequence[str], instead: str, scored: bool = True) -> Answers:
    """Reads the answers of a file with the arguments of `read_log`, the models that these name, and what replaces the file's costs."""
    sheet, arrays = _open_sheet(options)
    with errors_name(sheet.name):
        chosen = choose_rows(sheet, options.get("where") or {})
        parts = join_query_columns(sheet, options.get("columns"))
        given = check_columns(options.get("columns"), sheet.names, sheet.name)
        roles = assign_roles(sheet, given, wanted, scored)
        refuse_summary(roles)
        roles.used |= {*parts, *chosen}
        answers = collect_answers(roles, check_units(options.get("units")), instead)
        answers.given, answers.arrays = given, arrays
        _refuse_unclear_encoding(answers)
    return answers


def _open_sheet(options: Mapping[str, Any]) -> tuple[Sheet, dict[str, Any]]:
    """Sheet of any data, and arrays of the file that are not converted."""
    data, where = options["data"], options.get("where")
    if where is not None and not isinstance(where, Mapping):
        raise ValueError(f"where must map columns to values, as {{'filter': 'strict-match'}}, got {checks.show(where)}")
    is_path, arrays = isinstance(data, (str, os.PathLike)), {}
    if isinstance(data, RoutingTable):
        fields = {name: np.asarray(value) for name, value in vars(data).items() if value is not None and np.size(value)}
        sheet, arrays = sheet_of_arrays("the table", fields, "a RoutingTable")
    elif is_path and existing_path(data).name.lower().endswith(".npz"):
        with errors_name(data):
            sheet, arrays = sheet_of_arrays(str(data), read_arrays(data), "an npz file")
    else:
        sheet = open_log(data, options.get("separator"), options.get("encoding"))
    label, form = Path(sheet.name).name if is_path else sheet.name, f"; {sheet.preset.name}" if sheet.preset else ""
    sheet.notes.insert(0, f"file: {label}, {sheet.about}; {sheet.num_rows:,} rows, {len(sheet.names)} columns{form}")
    arrays["total"] = sheet.num_rows
    return sheet, arrays


def _refuse_unclear_encoding(answers: Answers) -> None:
    """Refuses a file with several possible encodings if a name depends on them."""
    sheet = answers.sheet
    category = answers.roles.column("category") if sheet.encodings else None
    labels = [] if category is None else map(str, dict.fromkeys(sheet.cells(category)))
    names = (*sheet.names, *answers.models, *labels) if sheet.encodings else ()
    name = next((name for name in names if not name.isascii()), None)
    if name is not None:
        either = f"its encoding may be {' or '.join(sheet.encodings)}, and names such as {name!r} depend on it"
        raise ValueError(f"{sheet.name} is not in UTF-8; {either}: give it (encoding=..., on the command line --encoding)")


def _python_line(options: Mapping[str, Any]) -> str:
    """Line of Python that reads a file with these arguments of `read_log`; empty for data in memory."""
    data, *values = options.values()
    if not isinstance(data, (str, os.PathLike)) or any(hasattr(value, "shape") for value in values):
        return ""
    simple = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    given = [f"{name}={value!r}" for name, value in simple.items() if name != "data" and value and value != "drop"]
    return f"log = jaxroute.data.read_log({', '.join([repr(simple['data']), *given])})"
