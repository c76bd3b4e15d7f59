"""Loaders of public per-query files: RouterBench, SPROUT, EmbedLLM, MESS+ and tables of the same shape.

Nothing is downloaded. A file is read without running any code that it may contain: npz without pickles, and
pandas pickles as plain records (see `load_routerbench`).
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks

from .files import (
    ArrayFile,
    ColumnFile,
    Columns,
    arrow_values,
    as_numbers,
    fault,
    given,
    load_arrays,
    named,
    open_arrays,
    open_columns,
    optional,
    some,
)
from .papers import STAGEROUTE_TABLE_2
from .table import RoutingTable, build, percent

Missing = Literal["error", "drop"]

SPROUT_PRICES: dict[str, tuple[float, float]] = {
    "aws-claude-3-5-sonnet-v1": (3.0, 15.0),
    "aws-titan-text-premier-v1": (0.8, 3.2),
    "openai-gpt-4o": (2.5, 10.0),
    "openai-gpt-4o-mini": (0.15, 0.6),
    "wxai-granite-3-2b-instruct-8k-max-tokens": (0.1, 0.1),
    "wxai-granite-3-8b-instruct-8k-max-tokens": (0.2, 0.2),
    "wxai-llama-3-1-70b-instruct": (0.9, 0.9),
    "wxai-llama-3-1-8b-instruct": (0.2, 0.2),
    "wxai-llama-3-2-1b-instruct": (0.06, 0.06),
    "wxai-llama-3-2-3b-instruct": (0.06, 0.06),
    "wxai-llama-3-3-70b-instruct": (0.9, 0.9),
    "wxai-mixtral-8x7b-instruct-v01": (0.6, 0.6),
    "wxai-llama-3-405b-instruct": (3.5, 3.5),
}
"""USD per 1M input and output tokens of SPROUT's models. Source: somerstep/CARROT, carrot/constants.py."""


def load_routerbench(path: str | os.PathLike) -> RoutingTable:
    """The scores and costs of a RouterBench file, one row per query.

    Reads `routerbench_0shot.pkl` and `routerbench_5shot.pkl` as published, a csv, csv.gz or parquet file of
    the same columns, or an npz as in `load_table`. A model is what has a column `<model>|total_cost`; its
    score is in the column `<model>`. Queries that miss a score or a cost (absent or not a number) are dropped
    with a warning.

    Nothing that a pickle names is ever called. What it would build is kept as plain records, from which the
    needed columns are read with NumPy alone; a name that is not on the short list of a data frame's parts is
    refused.

    Source: RouterBench (arXiv 2403.12031); columns as in the Hugging Face data set withmartian/routerbench.

    Args:
      path: the file.

    Returns:
      A table with the models in the file's order and `eval_name` as groups; costs in USD per query. For the
      order of release use `table.subset(models=STAGEROUTE_TABLE_2.names)`.

    Raises:
      UnsafePickleError: a pickle refers to anything but a data frame's parts.
      ValueError: the file is not of this form, or its values are impossible (see `RoutingTable`).
      ImportError: parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    return load_table(path, missing="drop")


def compare_with_table_2(table: RoutingTable) -> dict[str, dict[str, float]]:
    """How far a table's column means are from StageRoute's Table 2, for a report.

    The published 0-shot file does not match (claude-v2 scores 0.636 there, 0.5116 in the paper), so a
    difference is information and not an error.

    Args:
      table: RouterBench scores and costs, the latter in USD per query.

    Returns:
      For each model in both, in Table 2's order: `score` and `cost`, the table's means, and
      `score_difference` and `cost_difference`, those means minus the paper's.

    Raises:
      ValueError: the table has none of Table 2's models.
    """
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable, got {checks.show(table)}")
    scores, costs = table.mean_scores(), table.mean_costs()
    report = {}
    for name, paper_score, paper_cost in zip(
        STAGEROUTE_TABLE_2.names, STAGEROUTE_TABLE_2.scores, STAGEROUTE_TABLE_2.costs, strict=True
    ):
        if name in table.models:
            score, cost = scores[table.models.index(name)], costs[table.models.index(name)]
            report[name] = {
                "score": float(score),
                "score_difference": float(score - paper_score),
                "cost": float(cost),
                "cost_difference": float(cost - paper_cost),
            }
    if not report:
        raise ValueError(f"table has no model of StageRoute's Table 2; its models are {', '.join(table.models)}")
    return report


def load_table(
    path: str | os.PathLike,
    *,
    costs: Mapping[str, float] | None = None,
    cost_unit: str | None = None,
    missing: Missing | None = None,
) -> RoutingTable:
    """Any per-query table of scores and costs; its arrays or columns tell which layout it has.

    An npz holds `scores` (or `score`, `perf`, `correct`) `[Q, N]`, `costs` (or `cost`) `[Q, N]`, `models` `[N]`, and optionally `features`
    (or `feat`) `[Q, d]` and groups: `groups` into `group_names`, `eval_name_idx` into `eval_names`, `task_idx` into `tasks`, or the labels
    `eval_name`.

    A csv, tsv, jsonl, parquet or pickle file (text also compressed, as `.csv.gz`) has one of these layouts:

    - a row per query: `<model>` and `<model>|total_cost` (RouterBench, PORT), `<model>` (or `<model>_score`, `<model>_correct`) and
      `<model>_cost`, or `<model>` (or `score_<model>`, `correct_<model>`) and `cost_<model>`; optionally the label `eval_name`;
    - a row per query and model: the query (`prompt_id`, `query_id`, `sample_id`, ..., or `prompt`), `model` (or `model_name`, `llm`), `score` (or
      `label`, `correct`, ...), `cost` (or `total_cost`, ...), optionally a label (`eval_name`, `category`, ...). Queries are in the order of
      their numbers, or else of their first rows;
    - that of SPROUT (also a folder of parquet files), EmbedLLM or MESS+, see `load_sprout`, `load_embedllm` and `load_messplus`.

    Other columns are not read. A warning says so where one of them looks like a score, where the same query comes twice, and where a csv
    file has other separators than commas.

    Args:
      path: the file; its suffix says which kind.
      costs: for a file without costs, the cost per query of each model, in `cost_unit`. It also selects: only
        the models it names are kept, in its order.
      cost_unit: what a cost counts, unless the file says so itself; None for "USD per query".
      missing: `"error"` or `"drop"`, see `RoutingTable.from_arrays`; None drops from files of SPROUT, EmbedLLM and MESS+, as their loaders
        do, and from no others.

    Returns:
      The table.

    Raises:
      ValueError: the message names the file, and what it lacks or which value is impossible.
      UnsafePickleError: as in `load_routerbench`.
      ImportError: parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    if costs is not None and not isinstance(costs, Mapping):
        raise ValueError(f"costs must map models to costs per query, got {checks.show(costs)}")
    if isinstance(path, (str, os.PathLike)) and os.fspath(path) and any(Path(path).glob("*.parquet")):
        return _load_sprout(path, None, costs, missing)
    if given(path).name.lower().endswith(".npz"):
        with named(path), open_arrays(path) as file:
            return _from_arrays(file, costs, cost_unit, missing)
    file = open_columns(path, ".npz")
    if Path(path).name.lower().endswith(".parquet") and sprout_models(path):
        return _load_sprout(path, None, costs, missing)
    with named(path):
        if any(name.startswith(_ENERGY) for name in file.names):
            if costs is not None:
                raise ValueError(f"costs must be None for {path}, which has energies ({_ENERGY}<model>)")
            return _from_messplus(file, None, missing or "drop")
        roles = _roles(file.names)
        if set(_EMBEDLLM) <= set(file.names) and "cost" not in roles:
            return _from_embedllm(file, costs, cost_unit, missing or "drop")
        if _is_long(file.names, roles):
            return _from_long(file, roles, costs, cost_unit, missing or "error")
        return _from_wide(file, costs, cost_unit, missing or "error", roles)


def load_columns(path: str | os.PathLike, numbers: Sequence[str], labels: Sequence[str] = ()) -> Columns:
    """Some columns of a file of any schema, for tables that `load_table` does not know.

    Args:
      path: a csv, tsv, jsonl, parquet or pickle file (see `load_routerbench` for the latter).
      numbers: names of columns that are read as float64, NaN for what is not a number.
      labels: names of columns that are read as text.

    Returns:
      `[Q]` arrays by name.

    Raises:
      ValueError: the file lacks a column.
      ImportError: parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    numbers, labels = ((names,) if isinstance(names, str) else tuple(names) for names in (numbers, labels))
    data = open_columns(path).read((*numbers, *labels))
    found = {name: as_numbers(data[name]) for name in numbers}
    for name in labels:
        group = grouped(data[name])
        found[name] = np.asarray(group["group_names"])[group["groups"]]
    return found


def load_sprout(path: str | os.PathLike, prices: Mapping[str, tuple[float, float]] | None = None) -> RoutingTable:
    """The scores of a SPROUT file, with costs from its token counts and a price list.

    The cost of a query is `(input tokens * input price + output tokens * output price) / 1e6`. A model is a
    struct column with the fields `score`, `num_input_tokens` and `num_output_tokens`; only these are read.
    Queries that miss one of them for any model are dropped with a warning.

    Source: CARROT (arXiv 2502.03261); columns as in the Hugging Face data set CARROT-LLM-Routing/SPROUT.

    Args:
      path: a parquet file, or a folder whose `*.parquet` files are read in the order of their names.
      prices: USD per 1M input and output tokens of each model in the file; None takes `SPROUT_PRICES`.

    Returns:
      A table with the models in the file's order and `dataset` as groups; costs in USD per query.

    Raises:
      ValueError: no parquet file or no model column is there, or `prices` lacks a model.
      ImportError: `pip install "jaxroute[data]"` provides pyarrow.
    """
    return _load_sprout(path, prices, None, "drop")


def _load_sprout(
    path: str | os.PathLike, prices: Any, costs: Mapping[str, float] | None, missing: Missing | None
) -> RoutingTable:
    if costs is not None:
        raise ValueError(
            f"costs must be None for {path}: SPROUT's are made of its token counts; change prices in load_sprout"
        )
    models, scores, costs_of, labels = sprout_arrays(path, prices)

    def gap(row: int, column: int) -> str:
        return f"{path}, row {row} (from 0), model {models[column]!r}"

    with named(path):
        return build(scores, costs_of, models, missing or "drop", gap, **grouped(labels))


def sprout_files(path: str | os.PathLike) -> list[Path]:
    """The parquet files that a path names: itself, or those in a folder in the order of their names."""
    return sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]


def sprout_arrays(
    path: str | os.PathLike, prices: Mapping[str, tuple[float, float]] | None
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray | None]:
    """Models, scores `[Q, N]` and costs `[Q, N]` with NaN for what is missing, and labels `[Q]` of a SPROUT file, see `load_sprout`."""
    parquet = optional("pyarrow.parquet")
    compute = optional("pyarrow.compute")
    prices = SPROUT_PRICES if prices is None else prices
    files = sprout_files(path)
    if not files:
        raise ValueError(f"path is {str(path)!r}, a folder without *.parquet files")

    models = sprout_models(files[0])
    names = parquet.read_schema(files[0]).names
    if not models:
        raise ValueError(f"{files[0]} has no struct column with {', '.join(_SPROUT_FIELDS)}; it has {some(names)}")
    unpriced = [model for model in models if model not in prices]
    if unpriced:
        raise ValueError(
            f"prices lacks {', '.join(unpriced)}; give (USD per 1M input tokens, USD per 1M output tokens) in load_sprout(path, prices)"
        )

    wanted = [f"{model}.{field}" for model in models for field in _SPROUT_FIELDS]
    wanted += ["dataset"] if "dataset" in names else []
    with named(path):
        parts = [parquet.ParquetFile(file).read(columns=wanted) for file in files]

    def numbers(model: str, field: str) -> np.ndarray:
        return np.concatenate([as_numbers(compute.struct_field(part[model], field).to_numpy()) for part in parts])

    scores = np.stack([numbers(model, "score") for model in models], axis=1)
    tokens = np.stack([[numbers(model, field) for field in _SPROUT_FIELDS[1:]] for model in models])  # [N, 2, Q]
    price = np.array([prices[model] for model in models], dtype=np.float64)  # [N, 2]
    costs_of = np.einsum("nkq,nk->qn", tokens, price) / 1e6
    labels = np.concatenate([arrow_values(part["dataset"]) for part in parts]) if "dataset" in names else None
    return models, scores, costs_of, labels


_SPROUT_FIELDS = ("score", "num_input_tokens", "num_output_tokens")


def sprout_models(path: str | os.PathLike) -> list[str]:
    """Names of the columns of a parquet file that are structs with scores and tokens."""
    with named(path):
        schema = optional("pyarrow.parquet").read_schema(path)
    fields = [column.type for column in schema]
    return [
        name
        for name, type_ in zip(schema.names, fields, strict=True)
        if hasattr(type_, "get_field_index") and all(type_.get_field_index(field) >= 0 for field in _SPROUT_FIELDS)
    ]


def load_embedllm(
    path: str | os.PathLike, costs: Mapping[str, float] | None = None, *, cost_unit: str | None = None
) -> RoutingTable:
    """The correctness labels of an EmbedLLM file, with the models' sizes as costs, or what the caller gives.

    The file is long (one row per model and question) and is turned into one row per question. A pair that
    occurs twice counts as correct if it ever was, as the authors do; questions that some model has not
    answered are dropped with a warning.

    Source: EmbedLLM (arXiv 2410.02223); columns as in the Hugging Face data set RZ412/EmbedLLM.

    Args:
      path: `train.csv`, `val.csv` or `test.csv`.
      costs: cost per query of each model, in `cost_unit`, because the file has none. Only the models it names are kept, in its order.
        None takes the models' sizes, as papers do (`costs_by_size`), of all models in alphabetical order; a warning says which models have
        none in their names.
      cost_unit: what a cost counts; None for "USD per query" of given costs, and "1e9 parameters per query" of sizes.

    Returns:
      A table with one row per question, by `prompt_id`, and `category` as groups.

    Raises:
      ValueError: a column is missing, or `costs` names a model that the file lacks.
    """
    with named(path):
        return _from_embedllm(open_columns(path), costs, cost_unit, "drop")


_EMBEDLLM = ("prompt_id", "model_name", "label")


def _from_embedllm(
    file: ColumnFile, costs: Mapping[str, float] | None, cost_unit: str | None, missing: Missing
) -> RoutingTable:
    roles: dict[str, str] = dict(zip(("query", "model", "score"), _EMBEDLLM, strict=True))
    if "category" in file.names:
        roles["group"] = "category"
    if costs is not None:
        return _from_long(file, roles, costs, cost_unit, missing, repeated=True)

    def sizes(models: list[str]) -> dict[str, float]:
        unsized = [model for model in sorted(models) if not _SIZE.search(model.lower())]
        also = f"; {len(unsized)} whose names have none count as {_TYPICAL_SIZE:g}: {some(unsized, 6)}" if unsized else ""
        warnings.warn(f"{file.path} has no costs: the models' sizes in 1e9 parameters take their place{also}", stacklevel=5)
        return costs_by_size(sorted(models))

    return _from_long(file, roles, sizes, cost_unit or "1e9 parameters per query", missing, repeated=True)


# "7b", "1.5B", "350m", "8x7b"; also "7b1" for 7.1 and "13bv2". Not "4bit", "8k" or the "11b" of "11bx2".
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(\d)?(?=v\d|[^a-z0-9]|$)")


# 1e9 parameters, where a name does not say.
_TYPICAL_SIZE = 7.0


def costs_by_size(models: Iterable[str], default: float = _TYPICAL_SIZE) -> dict[str, float]:
    """Costs in 1e9 parameters, read from the models' names; for `load_embedllm`, whose files have no costs.

    The first size in a name counts: 13 for "vicuna-13b-v1.5", 56 for "Mixtral-8x7B", 0.35 for "opt-350m", 7.1 for
    "bloom-7b1". Experts are multiplied out, although they share parameters (a Mixtral-8x7B has 47, not 56).

    Source: stands in for the cost map of ACQB's EmbedLLM experiment, which is taken from another paper and not printed.

    Args:
      models: the names.
      default: the size of a model whose name has none.

    Returns:
      Cost of each model, in the order given.
    """
    if not isinstance(models, Iterable):
        raise ValueError(f"models must be names, got {checks.show(models)}")
    models = [models] if isinstance(models, str) else [str(model) for model in models]
    default = float(checks.positive("default", default, ()))
    costs = {}
    for model in models:
        size = _SIZE.search(model.lower())
        costs[model] = default
        if size:
            experts, number, unit, decimal = size.groups()
            number = f"{number}.{decimal}" if decimal and "." not in number else number
            costs[model] = int(experts or 1) * float(number) / (1.0 if unit == "b" else 1000.0) or default
    return costs


def load_embeddings(path: str | os.PathLike, num_queries: int | None = None) -> np.ndarray:
    """Features of queries that an encoder has computed, for `RoutingTable.with_features`.

    Args:
      path: an npy file, or an npz with one array or with one called `embeddings`.
      num_queries: how many rows there must be; None accepts any number.

    Returns:
      `[Q, d]` float32.

    Raises:
      ValueError: not such a file, not a matrix of finite numbers, or not `num_queries` rows. Pickled arrays are refused.
    """
    content = load_arrays(path)
    if isinstance(content, np.lib.npyio.NpzFile):
        with content:
            file = ArrayFile(path, content)
            names = file.names
            name = "embeddings" if "embeddings" in names else names[0] if len(names) == 1 else None
            array = None if name is None else file[name]
    else:
        names, array = [], content
    if array is None:
        raise ValueError(f"{path} has no array embeddings, and not exactly one array; it has {some(names)}")
    if array.dtype.kind not in "fiu" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{path} has shape {array.shape} and dtype {array.dtype}; expected [Q, d] numbers")
    if num_queries is not None and len(array) != checks.count("num_queries", num_queries):
        raise ValueError(f"{path} has {len(array)} rows; expected {num_queries}, one per query")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{path} is {array[row, column]} at [{row}, {column}]; embeddings must be finite")
    return array


def load_messplus(path: str | os.PathLike, benchmark: str | None = None) -> RoutingTable:
    """The labels and energies of a file in the schema of the MESS+ authors, one row per request.

    A model is what has a column `energy_consumption_<model>`. Its score is in `label_<model>`, or in `acc_<model>` if the
    file has no such labels at all; other columns (`doc_id`, `input_text`, `inference_time_<model>`, ...) are not read.
    Requests that miss a score or an energy are dropped with a warning.

    Source: MESS+ (Woisetschläger et al.); columns as in the public repository laminair/mess-plus.

    Args:
      path: a csv, csv.gz, parquet or pickle file (see `load_routerbench` for the latter).
      benchmark: the `benchmark_name` of the requests to keep; None keeps all.

    Returns:
      A table with the models from small to large mean energy and `benchmark_name`, if there, as groups; costs in J per
      request.

    Raises:
      ValueError: a column or the benchmark is missing, or a value is impossible (see `RoutingTable`).
      UnsafePickleError: as in `load_routerbench`.
      ImportError: parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    with named(path):
        return _from_messplus(open_columns(path), benchmark, "drop")


_ENERGY = "energy_consumption_"


def _from_messplus(file: ColumnFile, benchmark: str | None, missing: Missing) -> RoutingTable:
    group = "benchmark_name"
    models = [name.removeprefix(_ENERGY) for name in file.names if name.startswith(_ENERGY)]
    labelled = [name.removeprefix("label_") for name in file.names if name.startswith("label_")]
    if not models:
        raise ValueError(f"{file.path} has no column {_ENERGY}<model>; it has {some(file.names)}")
    score = "label_" if labelled else "acc_"  # Never both: they differ where the label is a normalised accuracy.
    wanted = [f"{prefix}{model}" for model in dict.fromkeys((*models, *labelled)) for prefix in (score, _ENERGY)]
    data = file.read(wanted + ([group] if group in file.names or benchmark is not None else []))
    columns = [f"{score}{model}" for model in models], [f"{_ENERGY}{model}" for model in models]
    scores, costs = _values(file, data, columns[0], "scores", missing), _values(file, data, columns[1], "costs", missing)
    table = build(
        scores, costs, models, missing, _gap_in(file, data, *columns), cost_unit="J per request", **grouped(data.get(group))
    )
    if benchmark is not None:
        if benchmark not in table.group_names:
            raise ValueError(f"{file.path} has no benchmark {benchmark!r}; it has {some(table.group_names)}")
        table = table.subset(rows=table.groups == table.group_names.index(benchmark))
        table = replace(table, groups=np.zeros_like(table.groups), group_names=(benchmark,))
    return table.order_by_cost()


# Layouts.


def _from_arrays(
    file: ArrayFile, costs: Mapping[str, float] | None, cost_unit: str | None, missing: Missing | None
) -> RoutingTable:
    def first(*names: str, required: bool = True) -> Any:
        found = next((name for name in names if name in file), None)
        if found is None and required:
            raise ValueError(f"{file.path} has no array {' or '.join(names)}; it has {some(file.names)}")
        return None if found is None else file[found]

    models = np.atleast_1d(first("models")).astype(str).tolist()
    scores = first("scores", "score", "perf", "correct")
    if costs is not None:
        _check_priced(file.path, costs, models)
        if scores.ndim != 2 or scores.shape[1] != len(models):
            raise ValueError(f"scores has shape {scores.shape}; expected [Q, {len(models)}], a column for each of models")
        scores = scores[:, [models.index(model) for model in costs]]
        models, cost_matrix = list(costs), _same_every_query(costs, len(scores))
    elif "costs" in file or "cost" in file:
        cost_matrix = first("costs", "cost")
    else:
        raise ValueError(f"{file.path} has no array costs or cost; {_GIVE_COSTS}")

    unit = str(file["cost_unit"]) if "cost_unit" in file and costs is None else cost_unit or _USD
    return build(
        scores,
        cost_matrix,
        models,
        missing or "error",
        features=first("features", "feat", required=False),
        **array_groups(file),
        cost_unit=unit,
        rows=file.get("rows"),
        num_rows=file.get("num_rows"),
    )


def array_groups(file: ArrayFile) -> dict:
    """Group numbers and names of an npz file, empty if it has none."""
    for index, names in (
        ("groups", "group_names"),
        ("eval_name_idx", "eval_names"),
        ("task_idx", "tasks"),
    ):
        if index in file and names in file:
            return {"groups": file[index], "group_names": file[names].tolist()}
    return grouped(file.get("eval_name"))


_USD = "USD per query"
_DROP = "delete such queries (in Python missing='drop' leaves them out)"
_GIVE_COSTS = "give the cost per query of each model: costs={'MODEL': 0.01, ...}, on the command line --set environment.costs='{\"MODEL\": 0.01, ...}'"

# What columns of a file with a row per query and model may be called, the best name first.
_ROLES = {
    "query": (
        *("prompt_id", "query_id", "sample_id", "question_id", "request_id", "doc_id", "example_id", "id", "index"),
        *("prompt", "query", "question"),
    ),
    "model": ("model", "model_name", "llm", "model_id"),
    "score": ("score", "label", "correct", "is_correct", "accuracy", "acc", "quality", "performance", "perf"),
    "cost": ("cost", "total_cost", "cost_usd", "usd"),
    "group": ("eval_name", "category", "benchmark", "benchmark_name", "dataset", "task"),
}
# How the columns of a file with a row per query are called: costs, and scores to go with them.
_WIDE = (
    ("{}|total_cost", ("{}",)),
    ("{}_cost", ("{}", "{}_score", "{}_correct")),
    ("cost_{}", ("{}", "score_{}", "correct_{}")),
)


def _roles(names: Sequence[str]) -> dict[str, str]:
    """Names of columns by what they are in a file with a row per query and model, as far as they are there."""
    exact = {name.lower(): name for name in reversed(names)}
    found = {role: next((exact[name] for name in known if name in exact), None) for role, known in _ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def _is_long(names: Sequence[str], roles: Mapping[str, str]) -> bool:
    return {"query", "model", "score"} <= set(roles) and not any(name.endswith("|total_cost") for name in names)


def _from_long(
    file: ColumnFile,
    roles: Mapping[str, str],
    costs: Mapping[str, float] | Callable[[list[str]], Mapping[str, float]] | None,
    cost_unit: str | None,
    missing: Missing,
    repeated: bool = False,
) -> RoutingTable:
    """A table from a row per query and model.

    Args:
      file: the open file.
      roles: names of its columns by what they are.
      costs: as for `load_table`, or what makes them of the models' names.
      cost_unit: as for `load_table`.
      missing: as for `load_table`.
      repeated: a pair of query and model may come several times, and has its largest score.
    """
    if costs is None and "cost" not in roles:
        raise ValueError(f"{file.path} has no column {' or '.join(_ROLES['cost'])}; {_GIVE_COSTS}")
    data = file.read(roles[role] for role in _ROLES if role in roles and (role != "cost" or costs is None))
    for role in ("query", "model"):
        absent = np.flatnonzero([cell is None or cell != cell for cell in data[roles[role]]])
        if absent.size:
            raise ValueError(f"{file.place(absent[0])}, column {roles[role]!r} is empty")
    row, queries = numbered(data[roles["query"]], by_number=True)
    column, models = numbered([str(model) for model in data[roles["model"]]])

    pairs = row * len(models) + column
    if not repeated and len(np.unique(pairs)) < len(pairs):
        order = np.argsort(pairs, kind="stable")
        second = order[1:][np.diff(pairs[order]) == 0].min()
        first = int(np.flatnonzero(pairs == pairs[second])[0])
        raise ValueError(
            f"{file.place(second)} has the query {checks.show(queries[row[second]])} and the model {models[column[second]]!r}, as "
            f"{file.place(first).removeprefix(f'{file.path}, ')} has: keep one of them"
        )

    def pivot(role: str, name: str) -> np.ndarray:
        matrix = np.full((len(queries), len(models)), np.nan)
        # fmax ignores the NaN it starts from. A cell of a row is wrong in itself; what is absent is a gap of the table.
        np.fmax.at(matrix, (row, column), _values(file, data, [roles[role]], name, missing)[:, 0])
        return matrix

    scores = pivot("score", "scores")
    if costs is None:
        cost_matrix = pivot("cost", "costs")
    else:
        given_costs = costs(models) if callable(costs) else costs
        _check_priced(file.path, given_costs, models)
        scores = scores[:, [models.index(model) for model in given_costs]]
        models, cost_matrix = list(given_costs), _same_every_query(given_costs, len(queries))

    def gap(query: int, model: int) -> str:
        return f"{file.path}, query {checks.show(queries[query])} and model {models[model]!r}"

    gaps = np.argwhere(np.isnan(scores) | np.isnan(cost_matrix))
    if missing == "error" and len(gaps):
        log = "; a log of what one router chose does not tell what the others would have" if len(row) == len(queries) else ""
        raise ValueError(
            f"{gap(*gaps[0])} have no row, and {len(gaps) - 1} other pairs have none; every model must have answered every query: add them, or "
            f"{_DROP}{log}"
        )
    firsts = np.unique(row, return_index=True)[1]
    labels = data[roles["group"]][firsts] if "group" in roles else None
    return build(scores, cost_matrix, models, missing, gap, cost_unit=cost_unit or _USD, **grouped(labels))


def numbered(values: Iterable[Any], by_number: bool = False) -> tuple[np.ndarray, list[Any]]:
    """`[R]` numbers of values, and the different values: in the order of their first places, or by size if they all are whole numbers."""
    numbers: dict[Any, int] = {}
    places = np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)
    different = list(numbers)
    if by_number:
        try:
            order = np.argsort([int(value) for value in different], kind="stable")
        except (TypeError, ValueError):
            return places, different
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank[places], [different[i] for i in order]
    return places, different


def _from_wide(
    file: ColumnFile,
    costs: Mapping[str, float] | None,
    cost_unit: str | None,
    missing: Missing,
    roles: Mapping[str, str],
) -> RoutingTable:
    """A table from a row per query."""
    if costs is not None:
        _check_priced(file.path, costs, file.names)
        models, score_columns, cost_columns = list(costs), list(costs), []
    else:
        models, score_columns, cost_columns = _wide_columns(file, roles)
        _warn_unpriced(file, {*score_columns, *cost_columns})
    _warn_repeated(file, roles)
    labels = ["eval_name"] if "eval_name" in file.names else []
    data = file.read([*score_columns, *cost_columns, *labels])
    scores = _values(file, data, score_columns, "scores", missing)
    if costs is None:
        cost_matrix = _values(file, data, cost_columns, "costs", missing)
    else:
        cost_matrix = _same_every_query(costs, len(scores))
    gap = _gap_in(file, data, score_columns, cost_columns)
    return build(scores, cost_matrix, models, missing, gap, cost_unit=cost_unit or _USD, **grouped(data.get("eval_name")))


def _wide_columns(file: ColumnFile, roles: Mapping[str, str]) -> tuple[list[str], list[str], list[str]]:
    """Models, their columns of scores, and those of costs."""
    for cost, scores in _WIDE:
        head, tail = cost.split("{}")
        columns = [name for name in file.names if name.startswith(head) and name.endswith(tail) and name != head + tail]
        models = [name.removeprefix(head).removesuffix(tail) for name in columns]
        if models:
            options = [[score.replace("{}", model) for score in scores] for model in models]
            found = [next((name for name in names if name in file.names), None) for names in options]
            unscored = [model for model, name in zip(models, found, strict=True) if name is None]
            if unscored:
                raise ValueError(
                    f"{file.path} has costs but no score column for {some(unscored)}; it has {some(file.names)}"
                )
            return models, [str(name) for name in found], columns
    shape = ", ".join(cost.replace("{}", "<model>") for cost, _ in _WIDE)
    lacking = [role for role in ("query", "model", "score") if role not in roles]
    long = (
        ""
        if "model" not in roles
        else (
            f" For a table with a row per query and model it lacks a column for the {' and the '.join(lacking)} "
            f"({'; '.join(some(_ROLES[role], 4) for role in lacking)})."
        )
    )
    raise ValueError(
        f"{file.path} has no column {shape}; add them, or {_GIVE_COSTS}. It has {some(file.names)}.{long} A log with other "
        "names or shapes is read by `jaxroute data`; jaxroute.data.read_log(...).table.save('table.npz') makes a table of it."
    )


# Columns that are no models although they may hold numbers.
_NO_MODELS = {"oracle_model_to_route_to", *(name for role in ("query", "group") for name in _ROLES[role])}


def _warn_unpriced(file: ColumnFile, used: set[str]) -> None:
    """Says which columns look like scores of models without costs."""
    others = [
        n for n in file.names if n not in used and "|" not in n and n.lower() not in _NO_MODELS and file.names.count(n) == 1
    ]
    for name, cells in file.read(others).items() if others else ():
        values = as_numbers(cells)
        if np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1:
            warnings.warn(
                f"{file.path}: the column {name!r} could be a score, but has no cost: it is left out", stacklevel=5
            )


def _warn_repeated(file: ColumnFile, roles: Mapping[str, str]) -> None:
    """Says how many rows are of a query that an earlier row has."""
    if "query" not in roles:
        return
    places, _ = numbered(str(cell) for cell in file.read([roles["query"]])[roles["query"]])
    first = np.unique(places, return_index=True)[1]
    again = np.setdiff1d(np.arange(len(places)), first)
    if again.size:
        where = file.place(again[0]).removeprefix(f"{file.path}, ")
        warnings.warn(
            f"{file.path}: {again.size} of {len(places)} rows repeat the {roles['query']} of an earlier one (first: {where}); each counts as a "
            "query of its own",
            stacklevel=5,
        )


def _values(file: ColumnFile, data: Columns, columns: Sequence[str], name: str, missing: Missing) -> np.ndarray:
    """`[Q, N]` scores or costs; what is impossible is refused by its place, and gaps too unless they are dropped."""
    values = np.stack([as_numbers(data[column]) for column in columns], axis=1)
    wrong = np.isinf(values) | (values < 0) | ((values > 1) if name == "scores" else False)
    wrong |= np.isnan(values) if missing == "error" else False
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        cell, where = data[columns[column]][row], f"{file.place(row)}, column {columns[column]!r}"
        if np.isnan(values[row, column]):
            reason = fault(cell)
            raise ValueError(f"{where} {reason}" + ("" if ": " in reason else f"; mend it, or {_DROP}"))
        rule = f"must lie in [0, 1]{percent(values)}" if name == "scores" else "must be finite and at least 0"
        raise ValueError(f"{where} is {checks.show(cell)}; {name} {rule}")
    return values


def _gap_in(file: ColumnFile, data: Columns, scores: Sequence[str], costs: Sequence[str]) -> Callable[[int, int], str]:
    """Says where and why a score or a cost is missing."""

    def gap(row: int, column: int) -> str:
        names = [columns[column] for columns in (scores, costs) if columns]
        name = next((name for name in names if np.isnan(as_numbers(data[name][row : row + 1]))[0]), names[0])
        return f"{file.place(row)}, column {name!r} {fault(data[name][row])}"

    return gap


def _check_priced(path: str | os.PathLike, costs: Mapping[str, float], available: Sequence[str]) -> None:
    unknown = [model for model in costs if model not in available]
    if unknown or not costs:
        problem = f"names {', '.join(unknown)}, which {path} lacks" if unknown else "is empty"
        raise ValueError(f"costs {problem}; the file has {some(available)}")
    for model, cost in costs.items():
        checks.non_negative(f"costs[{model!r}]", cost, ())


def _same_every_query(costs: Mapping[str, float], num_queries: int) -> np.ndarray:
    """`[num_queries, N]` costs, one row repeated."""
    return np.tile(list(costs.values()), (num_queries, 1))


def grouped(labels: Iterable | None) -> dict:
    """Group numbers and names, in alphabetical order, of one label per query."""
    if labels is None:
        return {}

    def text(label: object) -> str:
        return "unknown" if label is None or (isinstance(label, float) and np.isnan(label)) else str(label)

    names, groups = np.unique([text(label) for label in labels], return_inverse=True)
    return {"groups": groups, "group_names": names.tolist()}
