"""A log of answers from any file, as a complete table of queries and models, with an account of how it was read."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks
from jaxroute.data.files import named, optional, some
from jaxroute.data.logs import features as features_of
from jaxroute.data.logs.answers import Answers
from jaxroute.data.logs.arrays import array_answers
from jaxroute.data.logs.columns import KNOWN, SYNONYMS, given_roles, model_columns, plain
from jaxroute.data.logs.gaps import close
from jaxroute.data.logs.pricing import give_costs, given_numbers, priced
from jaxroute.data.logs.queries import find_roles
from jaxroute.data.logs.reading import Sheet, existing, is_frame, open_sheet
from jaxroute.data.logs.shapes import long_answers, wide_answers
from jaxroute.data.logs.values import in_unit, looks_like_numbers, read_numbers
from jaxroute.data.public import SPROUT_PRICES, costs_by_size, grouped, sprout_arrays, sprout_files, sprout_models
from jaxroute.data.table import RoutingTable


@dataclass(frozen=True)
class Log:
    """What models answered to queries, and how it was read.

    table: complete, scores in [0, 1].
    latency: `[Q, N]` float32 seconds, or None.
    dates: `[Q]` datetime64[s] of the queries, or None.
    signals: `[Q, N]` float32, what models say of their own answers (columns `<model>_confidence`), 0 for those that say nothing; or None.
    features: where the table's features come from, in words.
    read: what was taken for what, converted and left out, a line each.
    opened: the line of Python that reads it again; empty where that was no file.
    reader: makes features of further queries, from their texts or numbers; None where there are none, or they are taken as they are.
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
    costs: Mapping[str, float] | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    cost_unit: str | None = None,
    models: Sequence[str] | None = None,
    missing: Literal["drop", "zero"] = "drop",
    scale: tuple[float, float] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    features: str | np.ndarray | None = None,
) -> Log:
    """Reads a log of answers as people have it: a row per query and model, or a row per query.

    Columns are found by their names (`query_id`, `llm`, `correct`, `cost_usd`, `prompt_tokens`, `latency_ms`, `task`, `prompt`, ...), whatever
    their case and the marks between words; `columns` overrules that. Everything that was guessed, converted or left out is a line of
    `Log.read`; what cannot be told is refused, with what to do.

    Args:
      data: a csv, tsv, txt, JSON, JSON lines (each also with .gz), parquet, Excel, npz or pickle file, a folder of SPROUT's parquet files, a
        pandas data frame, or a `RoutingTable`.
      columns: names of columns by role ("query", "model", "score", "cost", "tokens_in", "tokens_out", "price_in", "price_out", "latency",
        "category", "text", "date", "embedding", ...). In a table with a row per query a name such as `"perf_*"` stands for a column per model.
      costs: cost per query of each model, instead of the file's; only the models named are kept.
      prices: USD per million input and output tokens of each model, instead of the file's; only the models named are kept. Without numbers
        of tokens in the file, four characters count as one, and an answer of unknown length as 256 tokens.
      cost_unit: what a cost counts; None for what the file says, or else "USD per query".
      models: names of models to keep, in this order; None keeps all.
      missing: "drop" leaves out queries that some model has not answered; "zero" counts no answer as score 0 and cost 0.
      scale: the lowest and the highest score there can be; None to find out, [0, 1], percent or grades from 1 to 5 or 10.
      separator: what is between columns of text; None to find out.
      encoding: of text; None to find out.
      features: None for the file's embedding, else text, else none; "text", "own" or "none"; an array or a file of `[Q, d]` numbers.

    Returns:
      The log.

    Raises:
      ValueError: the message names the file, the place in it, the value, and what to do.
      ImportError: an optional dependency reads the file: `pip install "jaxroute[data]"`.
      OSError: the file may not be read.
    """
    opened = _line(data, locals())
    if missing not in ("drop", "zero"):
        checks.one_of("missing", missing, ("drop", "zero"))
    costs, prices = given_numbers(costs, prices)
    if models is not None:
        models = [models] if isinstance(models, str) else [str(model) for model in models]
        twice = next((model for model in models if models.count(model) > 1), None)
        if twice is not None or len(models) < 2:
            raise ValueError(f"models must be at least two different names, got {', '.join(models) or 'none'}")
    columns = {} if columns is None else columns
    if isinstance(data, RoutingTable):
        answers = _of_table(data)
        header = ["a RoutingTable"]
    elif is_frame(data) or isinstance(data, (str, os.PathLike)):
        wanted = [*(models or ()), *(costs or ()), *(prices or ())]
        if not is_frame(data) and _is_sprout(Path(data)):
            answers, header = _of_sprout(Path(data), prices)
            prices = None
        else:
            answers, header = _opened(data, columns, list(dict.fromkeys(wanted)), separator, encoding)
    else:
        raise ValueError(f"data must be the name of a file, a RoutingTable or a pandas data frame, got {checks.show(data)}")
    with named(answers.name):
        answers.said[:0] = header
        return replace(_finished(answers, costs, prices, cost_unit, models, missing, scale, features), opened=opened)


def _line(data: Any, given: Mapping[str, Any]) -> str:
    """The line of Python that reads a file with these arguments; empty for what is in memory."""
    arguments = {name: value for name, value in given.items() if name != "data"}
    if not isinstance(data, (str, os.PathLike)) or any(hasattr(value, "shape") for value in arguments.values()):
        return ""
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in arguments.items()}
    said = [f"{name}={value!r}" for name, value in plain.items() if value and value != "drop"]
    return f"log = jaxroute.data.read_log({', '.join([repr(os.fspath(data)), *said])})"


def _of_table(table: RoutingTable) -> Answers:
    def place(query: int, model: int) -> str:
        return f"the table, query {query} and model {table.models[model]!r}"

    answers = Answers(
        "the table", list(table.models), table.scores.astype(np.float64), place, costs=table.costs.astype(np.float64)
    )
    answers.unit, answers.rows, answers.num_rows = table.cost_unit, table.rows, table.num_rows
    if table.groups is not None:
        answers.labels = np.asarray(table.group_names, dtype=object)[table.groups]
    if table.features is not None:
        answers.numbers, answers.numbers_from = table.features, "of the table"
    return answers


def _opened(
    data: Any, columns: Mapping[str, str], wanted: Sequence[str], separator: str | None, encoding: str | None
) -> tuple[Answers, list[str]]:
    """What a file says, and the lines about the file."""
    if not is_frame(data):
        path = existing(data)
        if path.name.lower().endswith(".npz"):
            if columns:
                raise ValueError(
                    f"columns must be empty for {path}, whose arrays have names of their own; got {', '.join(columns)}"
                )
            answers = array_answers(path)
            return answers, [
                f"file: {path.name}, an npz file, {len(answers.scores):,} queries x {len(answers.models)} models"
            ]
    sheet = open_sheet(data, separator, encoding)
    header = [f"file: {Path(sheet.name).name if not is_frame(data) else sheet.name}, {sheet.about}"]
    with named(sheet.name):
        given = given_roles(columns, sheet.names, sheet.name)
        _check_header(sheet, given)
        answers = _by_layout(sheet, given, wanted)
        header[0] += f"; {sheet.num_rows:,} rows, {len(sheet.names)} columns"
        left = [name for name in sheet.names if name and name not in answers.used]
        if left:
            answers.said.append(f"not used: {some(map(repr, left))}")
    return answers, header


def _check_header(sheet: Sheet, given: Mapping[str, str]) -> None:
    """Refuses a first line that is data."""
    numbers = [name for name in sheet.names if name.replace(".", "", 1).replace("-", "", 1).replace(",", "", 1).isdigit()]
    known = given or any(plain(name) in KNOWN for name in sheet.names)
    if numbers and not known and len(numbers) >= len(sheet.names) / 3:
        raise ValueError(
            f"{sheet.name}, line 1 looks like data and not like names of columns ({some(map(repr, sheet.names), 6)}): add a line of names above it, such "
            "as query_id,model,score,cost"
        )


def _by_layout(sheet: Sheet, given: Mapping[str, str], wanted: Sequence[str]) -> Answers:
    wide = model_columns(sheet.names, given, wanted)
    of_models = (
        {column for of in wide.columns.values() for column in of.values()} if wide and len(wide.models) > 1 else set()
    )
    roles = find_roles(sheet, given)
    starred = any("*" in column for column in given.values())
    is_long = {"query", "model", "score"} <= roles.keys() and not starred
    per_model = wide is not None and len(wide.models) > 1 and "cost" in wide.columns and len(wide.columns["cost"]) > 1
    if is_long and (not per_model or "model" in given):
        largest = {"prompt_id", "model_name", "label"} <= set(sheet.names) and "cost" not in roles
        return long_answers(sheet, roles, largest)
    summary = "model" in roles and not per_model and not starred and not {"query", "score"} <= roles.keys()
    if wide is not None and len(wide.models) > 1 and not summary:
        twice = next((name for name in of_models if sheet.names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{sheet.name} has {sheet.names.count(twice)} columns {twice!r}: rename or remove all but one")
        return wide_answers(sheet, {role: name for role, name in roles.items() if name not in of_models}, wide)
    raise ValueError(_no_layout(sheet, roles, wide.models if wide else []))


def _no_layout(sheet: Sheet, roles: Mapping[str, str], models: Sequence[str]) -> str:
    """Why a file is no log."""
    has = f"It has {some(map(repr, sheet.names))}."
    name = "columns={'ROLE': 'COLUMN'}, on the command line --column ROLE=COLUMN"
    if "model" in roles:
        lacking = [role for role in ("query", "score") if role not in roles]
        different = len({str(cell) for cell in sheet.cells(roles["model"])})
        if lacking == ["query"] or ("query" in lacking and different == sheet.num_rows):
            return (
                f"{sheet.name} has models (column {roles['model']!r}, {different} different in {sheet.num_rows} rows) but no column of queries: a summary of "
                f"models is no log of their answers to single queries; if there is one, name it ({name.replace('ROLE', 'query')}). {has}"
            )
        words = " and ".join(f"a column for the {role} ({', '.join(SYNONYMS[role][:5])}, ...)" for role in lacking)
        return f"{sheet.name} has a column of models, {roles['model']!r}, but lacks {words}: name it ({name}). {has}"
    if len(models) == 1:
        return f"{sheet.name} has scores of one model, {models[0]!r}: there is nothing to choose; add the answers of another. {has}"
    fractions = [
        n for n in sheet.names if n and n not in roles.values() and sheet.names.count(n) == 1 and _in_unit(sheet, n)
    ]
    if len(fractions) > 1:
        example = " ".join(f"--cost {n}=VALUE" for n in fractions[:3])
        return (
            f"{sheet.name} has no columns of costs; {some(map(repr, fractions), 6)} could be scores of models: give the cost per query of each "
            f"(costs={{...}}, on the command line {example}). {has}"
        )
    shapes = "score_<model> and cost_<model>, <model> and <model>|total_cost, or <model>_score and <model>_cost"
    return (
        f"{sheet.name} has neither a column of models (model, llm, ...) nor columns of scores per model ({shapes}): name the columns "
        f"({name}). {has}"
    )


def _in_unit(sheet: Sheet, name: str) -> bool:
    """Whether a column could be the scores of a model that it is called like."""
    words = {plain(word) for word in re.split(r"[\s_|]+", name)}
    if words & KNOWN or not looks_like_numbers(sheet.cells(name)):
        return False
    try:
        values = read_numbers(sheet, name, "score").values
    except ValueError:
        return False
    return bool(np.nanmin(values) >= 0 and np.nanmax(values) <= 1)


def _is_sprout(path: Path) -> bool:
    files = sprout_files(path) if path.is_dir() or path.name.lower().endswith(".parquet") else []
    if not files:
        return False
    try:
        return bool(sprout_models(files[0]))
    except ImportError:
        raise
    except Exception as error:  # Arrow's own kinds.
        raise ValueError(f"{files[0]} is no parquet file, or damaged: {error}") from None


def _of_sprout(path: Path, prices: Mapping[str, tuple[float, float]] | None) -> tuple[Answers, list[str]]:
    price_list = {**SPROUT_PRICES, **(prices or {})}
    unpriced = [model for model in sprout_models(sprout_files(path)[0]) if model not in price_list]
    if unpriced:
        raise ValueError(
            f"{path} has models without a price, {some(unpriced)}: give it in USD per million tokens (prices={{{unpriced[0]!r}: (IN, OUT)}}, on the "
            f"command line --price {unpriced[0]}=IN:OUT)"
        )
    with named(path):
        models, scores, costs, labels = sprout_arrays(path, price_list)
        parts = [optional("pyarrow.parquet").ParquetFile(file) for file in sprout_files(path)]
        text = None
        if "prompt" in parts[0].schema_arrow.names:
            cells = [cell for part in parts for cell in part.read(columns=["prompt"])["prompt"].to_pylist()]
            text = np.array(["" if cell is None else str(cell) for cell in cells], dtype=object)

    def place(query: int, model: int) -> str:
        return f"{path}, row {query} (from 0), model {models[model]!r}"

    answers = Answers(str(path), models, scores, place, costs=costs, text=text, text_from="prompt")
    answers.labels = (
        None if labels is None else np.array(["unknown" if cell is None else str(cell) for cell in labels], object)
    )
    answers.said = [
        "layout: SPROUT, a struct of score and tokens per model",
        "cost: tokens x the price list of SPROUT's authors" + (", but for the prices given" if prices else ""),
    ]
    answers.rows, answers.num_rows = np.arange(len(scores)), len(scores)
    return answers, [f"file: {path.name}, parquet, {len(scores):,} queries x {len(models)} models"]


def _finished(
    answers: Answers,
    costs: Mapping[str, float] | None,
    prices: Mapping[str, tuple[float, float]] | None,
    cost_unit: str | None,
    models: Sequence[str] | None,
    missing: str,
    scale: tuple[float, float] | None,
    features: str | np.ndarray | None,
) -> Log:
    """The complete table: models chosen, scores in [0, 1], costs, gaps, features."""
    said = answers.said
    for argument, names in (("models", models), ("costs", costs), ("prices", prices)):
        if names is not None:
            for model in names:
                checks.one_of(f"a model in {argument}", model, answers.models)
    kept = [m for m in models or answers.models if all(of is None or m in of for of in (costs, prices))]
    lacking = [m for m in models or () if m not in kept]
    if lacking:
        raise ValueError(
            f"{'costs' if costs is not None else 'prices'} lacks {some(lacking)}, which models names: give it too"
        )
    if kept != answers.models:
        left = [model for model in answers.models if model not in kept]
        if len(kept) < 2:
            raise ValueError(
                f"{answers.name}: only {some(kept)} would be left: there is nothing to choose; name more models"
            )
        answers.take([answers.models.index(model) for model in kept])
        if left:
            said.append(f"left out: the models {some(left)}, which were not named")
    scores, words = in_unit(answers.scores, answers.percent, scale, answers.score_name, answers.place)
    if words:
        said.append(f"score: {words}")
    costs_of, unit = priced(answers, costs, prices)
    if costs_of is None and _is_embedllm(answers):
        sizes = costs_by_size(answers.models)
        costs_of, unit = np.tile(list(sizes.values()), (len(scores), 1)), "1e9 parameters per query"
        said.append(
            "cost: the file has none; the models' sizes in 1e9 parameters, read from their names, take its place (7 where a name has none)"
        )
    if costs_of is None and prices is not None:
        raise ValueError(
            f"{answers.name}: prices per million tokens need to know how many tokens there are, but it has neither columns of tokens nor texts of queries: "
            f"name them (columns={{'tokens_in': ..., 'tokens_out': ...}}, on the command line --column tokens_in=NAME), or {give_costs(answers)}"
        )
    if costs_of is None:
        raise ValueError(f"{answers.name} has no costs: {give_costs(answers)}")
    gaps = np.isnan(scores) | np.isnan(costs_of)
    keep = np.ones(len(scores), bool)
    if gaps.any():
        keep, scores, costs_of = close(answers, scores, costs_of, gaps, missing)
    if keep.sum() < 2:
        raise ValueError(
            f"{answers.name} has {keep.sum()} {'query' if keep.sum() == 1 else 'queries'}; at least 2 are needed to compare models"
        )
    return _log(answers, scores, costs_of, keep, cost_unit or unit or "USD per query", features)


def _is_embedllm(answers: Answers) -> bool:
    return {"prompt_id", "model_name", "label"} <= answers.used


def _log(answers: Answers, scores: np.ndarray, costs: np.ndarray, keep: np.ndarray, unit: str, features: Any) -> Log:
    said = answers.said
    rows = np.arange(len(scores)) if answers.rows is None else answers.rows
    total = len(scores) if answers.num_rows is None else answers.num_rows
    points, source, more, reader = features_of.choose(
        features,
        None if answers.text is None else answers.text[keep],
        answers.text_from,
        None if answers.numbers is None else answers.numbers[keep],
        answers.numbers_from,
        answers.labels is not None,
        rows[keep],
        total,
    )
    said += more
    said.append(f"features: {source}")
    table = RoutingTable(
        scores[keep],
        costs[keep],
        tuple(answers.models),
        points,
        cost_unit=unit,
        rows=rows[keep],
        num_rows=total,
        **grouped(None if answers.labels is None else answers.labels[keep]),
    )
    latency = None
    if answers.latency is not None:
        latency = answers.latency[keep]
        lacking = np.isnan(latency)
        if lacking.all(axis=0).any():
            said.append(f"latency: not used, as {answers.models[int(np.argmax(lacking.all(axis=0)))]} has none")
            latency = None
        elif lacking.any():
            said.append(f"latency: {int(lacking.sum()):,} missing, the median of the model takes their place")
            latency = np.where(lacking, np.nanmedian(latency, axis=0), latency)
    dates = None if answers.dates is None else answers.dates[keep]
    if dates is not None and np.isnat(dates).any():
        said.append(f"date: not used, as {int(np.isnat(dates).sum())} queries have none")
        dates = None
    said.append(f"kept: {table.num_queries:,} queries x {table.num_models} models, costs in {unit}")
    latency = None if latency is None else latency.astype(np.float32)
    signals = None if answers.signals is None else answers.signals[keep].astype(np.float32)
    return Log(table, latency, dates, signals, source, tuple(said), reader=reader)
