"""Loaders of public per-query files: RouterBench, SPROUT, EmbedLLM, MESS+ and tables of the same shape.

Nothing is downloaded. A file is read without running any code that it may contain: npz without pickles, and
pandas pickles as plain records (see `load_routerbench`).
"""

import contextlib
import importlib
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks

from .papers import STAGEROUTE_TABLE_2
from .table import RoutingTable

Columns = dict[str, np.ndarray]
Reader = Callable[[list[str]], Columns]

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


class UnsafePickleError(ValueError):
    """A pickle names something that a data frame does not need; it was refused before anything ran."""


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
      ImportError: csv needs pandas and parquet needs pyarrow: `pip install "jaxroute[data]"`.
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
    cost_unit: str = "USD per query",
    missing: Literal["error", "drop"] = "error",
) -> RoutingTable:
    """Any per-query table of scores and costs.

    Two layouts are understood. An npz holds `scores` (or `score`, `perf`, `correct`) `[Q, N]`, `costs` (or
    `cost`) `[Q, N]`, `models` `[N]`, and optionally `features` (or `feat`) `[Q, d]` and groups: `groups` into
    `group_names`, `eval_name_idx` into `eval_names`, `task_idx` into `tasks`, or the labels `eval_name`. A
    csv, csv.gz, parquet or pickle file holds one row per query with the columns `<model>` and
    `<model>|total_cost`, and optionally `eval_name` (the RouterBench and PORT schema); other columns are not
    read.

    Args:
      path: the file; its suffix says which layout.
      costs: for a file without costs, the cost per query of each model, in `cost_unit`. It also selects: only
        the models it names are kept, in its order.
      cost_unit: what a cost counts, unless the file says so itself.
      missing: `"error"` or `"drop"`, see `RoutingTable.from_arrays`.

    Returns:
      The table.

    Raises:
      ValueError: the message names what the file lacks or which value is impossible.
      UnsafePickleError: as in `load_routerbench`.
      ImportError: csv needs pandas and parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    if Path(path).name.lower().endswith(".npz"):
        return _load_npz(path, costs, cost_unit, missing)
    names, read = _open_columns(path, ".npz")
    return _from_wide(path, names, read, costs, cost_unit, missing)


def load_columns(path: str | os.PathLike, numbers: Sequence[str], labels: Sequence[str] = ()) -> Columns:
    """Some columns of a file of any schema, for tables that `load_table` does not know.

    Args:
      path: a csv, csv.gz, parquet or pickle file (see `load_routerbench` for the latter).
      numbers: names of columns that are read as float64, NaN for what is not a number.
      labels: names of columns that are read as text.

    Returns:
      `[Q]` arrays by name.

    Raises:
      ValueError: the file lacks a column.
      ImportError: csv needs pandas and parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    names, read = _open_columns(path)
    wanted = list(dict.fromkeys((*numbers, *labels)))
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise ValueError(f"{path} lacks the column {', '.join(lacking)}; it has {_some(names)}")
    data = read(wanted)
    found = {name: _numbers(data[name]) for name in numbers}
    for name in labels:
        group = _grouped(data[name])
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
    parquet = _optional("pyarrow.parquet")
    compute = _optional("pyarrow.compute")
    prices = SPROUT_PRICES if prices is None else prices
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise ValueError(f"path is {str(path)!r}, a folder without *.parquet files")

    fields = ("score", "num_input_tokens", "num_output_tokens")
    schema = parquet.read_schema(files[0])
    models = [
        column.name
        for column in schema
        if hasattr(column.type, "get_field_index") and all(column.type.get_field_index(field) >= 0 for field in fields)
    ]
    if not models:
        raise ValueError(f"{files[0]} has no struct column with {', '.join(fields)}; it has {_some(schema.names)}")
    unpriced = [model for model in models if model not in prices]
    if unpriced:
        raise ValueError(f"prices lacks {', '.join(unpriced)}; give (USD per 1M input tokens, USD per 1M output tokens)")

    wanted = [f"{model}.{field}" for model in models for field in fields]
    wanted += ["dataset"] if "dataset" in schema.names else []
    parts = [parquet.ParquetFile(file).read(columns=wanted) for file in files]

    def numbers(model: str, field: str) -> np.ndarray:
        return np.concatenate([_numbers(compute.struct_field(part[model], field).to_numpy()) for part in parts])

    scores = np.stack([numbers(model, "score") for model in models], axis=1)
    tokens = np.stack([[numbers(model, field) for field in fields[1:]] for model in models])  # [N, 2, Q]
    price = np.array([prices[model] for model in models], dtype=np.float64)  # [N, 2]
    costs = np.einsum("nkq,nk->qn", tokens, price) / 1e6
    labels = np.concatenate([_arrow_values(part["dataset"]) for part in parts]) if "dataset" in schema.names else None
    return RoutingTable.from_arrays(scores, costs, models, **_grouped(labels), missing="drop")


def load_embedllm(path: str | os.PathLike, costs: Mapping[str, float], *, cost_unit: str = "USD per query") -> RoutingTable:
    """The correctness labels of an EmbedLLM file, with costs that the caller supplies.

    The file is long (one row per model and question) and is turned into one row per question. A pair that
    occurs twice counts as correct if it ever was, as the authors do; questions that some model has not
    answered are dropped with a warning.

    Source: EmbedLLM (arXiv 2410.02223); columns as in the Hugging Face data set RZ412/EmbedLLM.

    Args:
      path: `train.csv`, `val.csv` or `test.csv`.
      costs: cost per query of each model, in `cost_unit`, because the file has none (papers use the model's
        size, see `costs_by_size`). Only the models it names are kept, in its order.
      cost_unit: what a cost counts.

    Returns:
      A table with one row per question, by `prompt_id`, and `category` as groups.

    Raises:
      ValueError: a column is missing, or `costs` names a model that the file lacks.
      ImportError: `pip install "jaxroute[data]"` provides pandas.
    """
    names, read = _open_csv(path)
    columns = ["prompt_id", "model_name", "label"]
    lacking = [column for column in columns if column not in names]
    if lacking:
        raise ValueError(f"{path} lacks the column {', '.join(lacking)}; it has {_some(names)}")
    columns += ["category"] if "category" in names else []
    data = read(columns)

    prompts, first, row = np.unique(data["prompt_id"], return_index=True, return_inverse=True)
    models, column = np.unique(data["model_name"].astype(str), return_inverse=True)
    scores = np.full((len(prompts), len(models)), np.nan)
    np.fmax.at(scores, (row, column), _numbers(data["label"]))  # fmax ignores the NaN it starts from.

    models = models.tolist()
    _check_priced(path, costs, models)
    labels = data["category"][first] if "category" in data else None
    return RoutingTable.from_arrays(
        scores[:, [models.index(model) for model in costs]],
        _same_every_query(costs, len(prompts)),
        list(costs),
        **_grouped(labels),
        cost_unit=cost_unit,
        missing="drop",
    )


# "7b", "1.5B", "350m", "8x7b"; also "7b1" for 7.1 and "13bv2". Not "4bit", "8k" or the "11b" of "11bx2".
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(\d)?(?=v\d|[^a-z0-9]|$)")


def costs_by_size(models: Iterable[str], default: float = 7.0) -> dict[str, float]:
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
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.lib.npyio.NpzFile):
            with content:
                names = content.files
                name = "embeddings" if "embeddings" in names else names[0] if len(names) == 1 else None
                array = None if name is None else content[name]
        else:
            names, array = [], content
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an npy or npz file of plain arrays: {error}") from error
    if array is None:
        raise ValueError(f"{path} has no array embeddings, and not exactly one array; it has {_some(names)}")
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
      ImportError: csv needs pandas and parquet needs pyarrow: `pip install "jaxroute[data]"`.
    """
    names, read = _open_columns(path)
    energy, group = "energy_consumption_", "benchmark_name"
    models = [name.removeprefix(energy) for name in names if name.startswith(energy)]
    labelled = [name.removeprefix("label_") for name in names if name.startswith("label_")]
    if not models:
        raise ValueError(f"{path} has no column {energy}<model>; it has {_some(names)}")
    score = "label_" if labelled else "acc_"  # Never both: they differ where the label is a normalised accuracy.
    wanted = [f"{prefix}{model}" for model in dict.fromkeys((*models, *labelled)) for prefix in (score, energy)]
    wanted += [group] if group in names or benchmark is not None else []
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise ValueError(f"{path} lacks the column {', '.join(lacking)}; it has {_some(names)}")

    data = read(wanted)
    if benchmark is not None:
        rows = data[group].astype(str) == benchmark
        if not rows.any():
            raise ValueError(f"{path} has no benchmark {benchmark!r}; it has {_some(_grouped(data[group])['group_names'])}")
        data = {name: values[rows] for name, values in data.items()}
    return RoutingTable.from_arrays(
        np.stack([_numbers(data[f"{score}{model}"]) for model in models], axis=1),
        np.stack([_numbers(data[f"{energy}{model}"]) for model in models], axis=1),
        models,
        **_grouped(data.get(group)),
        cost_unit="J per request",
        missing="drop",
    ).order_by_cost()


# Layouts.


def _load_npz(
    path: str | os.PathLike, costs: Mapping[str, float] | None, cost_unit: str, missing: Literal["error", "drop"]
) -> RoutingTable:
    with np.load(path, allow_pickle=False) as file:

        def first(*names: str, required: bool = True) -> Any:
            found = next((name for name in names if name in file), None)
            if found is None and required:
                raise ValueError(f"{path} has no array {' or '.join(names)}; it has {_some(file.files)}")
            return None if found is None else file[found]

        models = first("models").tolist()
        scores = first("scores", "score", "perf", "correct")
        if costs is not None:
            _check_priced(path, costs, models)
            scores = scores[:, [models.index(model) for model in costs]]
            models, cost_matrix = list(costs), _same_every_query(costs, len(scores))
        elif "costs" in file or "cost" in file:
            cost_matrix = first("costs", "cost")
        else:
            raise ValueError(f"{path} has no array costs or cost; pass costs, the cost per query of each model")

        grouped = {}
        for index, names in (
            ("groups", "group_names"),
            ("eval_name_idx", "eval_names"),
            ("task_idx", "tasks"),
        ):
            if index in file and names in file:
                grouped = {"groups": file[index], "group_names": file[names].tolist()}
                break
        return RoutingTable.from_arrays(
            scores,
            cost_matrix,
            models,
            features=first("features", "feat", required=False),
            **(grouped or _grouped(first("eval_name", required=False))),
            cost_unit=str(file["cost_unit"]) if "cost_unit" in file and costs is None else cost_unit,
            missing=missing,
        )


def _from_wide(
    path: str | os.PathLike,
    names: Sequence[str],
    read: Reader,
    costs: Mapping[str, float] | None,
    cost_unit: str,
    missing: Literal["error", "drop"],
) -> RoutingTable:
    """A table from the columns `<model>` and `<model>|total_cost`."""
    suffix = "|total_cost"
    if costs is not None:
        _check_priced(path, costs, names)
        models, cost_columns = list(costs), []
    else:
        cost_columns = [name for name in names if name.endswith(suffix)]
        models = [name.removesuffix(suffix) for name in cost_columns]
    if not models:
        raise ValueError(
            f"{path} has no column <model>{suffix}; pass costs, the cost per query of each model, or give "
            f"the file such columns. It has {_some(names)}"
        )
    unscored = [model for model in models if model not in names]
    if unscored:
        raise ValueError(f"{path} has costs but no score column for {', '.join(unscored)}; it has {_some(names)}")

    labels = ["eval_name"] if "eval_name" in names else []
    data = read([*models, *cost_columns, *labels])
    scores = np.stack([_numbers(data[model]) for model in models], axis=1)
    if costs is None:
        cost_matrix = np.stack([_numbers(data[column]) for column in cost_columns], axis=1)
    else:
        cost_matrix = _same_every_query(costs, len(scores))
    return RoutingTable.from_arrays(
        scores, cost_matrix, models, **_grouped(data.get("eval_name")), cost_unit=cost_unit, missing=missing
    )


def _check_priced(path: str | os.PathLike, costs: Mapping[str, float], available: Sequence[str]) -> None:
    unknown = [model for model in costs if model not in available]
    if unknown or not costs:
        problem = f"names {', '.join(unknown)}, which {path} lacks" if unknown else "is empty"
        raise ValueError(f"costs {problem}; the file has {_some(available)}")


def _same_every_query(costs: Mapping[str, float], num_queries: int) -> np.ndarray:
    """`[num_queries, N]` costs, one row repeated."""
    return np.tile(list(costs.values()), (num_queries, 1))


def _grouped(labels: Iterable | None) -> dict:
    """Group numbers and names, in alphabetical order, of one label per query."""
    if labels is None:
        return {}

    def text(label: object) -> str:
        return "unknown" if label is None or (isinstance(label, float) and np.isnan(label)) else str(label)

    names, groups = np.unique([text(label) for label in labels], return_inverse=True)
    return {"groups": groups, "group_names": names.tolist()}


def _numbers(values: np.ndarray) -> np.ndarray:
    """`values` as float64, with NaN for whatever is not a number."""

    def number(value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return np.nan

    try:
        return np.asarray(values).astype(np.float64)
    except (TypeError, ValueError):
        return np.array([number(value) for value in values], dtype=np.float64)


def _some(names: Iterable[str], limit: int = 12) -> str:
    """The names for an error message, cut short when there are many."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "nothing"


def _optional(module: str) -> Any:
    """Imports an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'this file needs {package}: pip install "jaxroute[data]"') from error


# Files of columns. Each function returns the column names and a reader of some of them.


def _open_columns(path: str | os.PathLike, *other_suffixes: str) -> tuple[list[str], Reader]:
    """Opens a file by its suffix; `other_suffixes` are what the caller reads itself, for the error message."""
    name = Path(path).name.lower()
    for suffixes, open_columns in _READERS:
        if name.endswith(suffixes):
            return open_columns(path)
    accepted = ", ".join((*other_suffixes, *(suffix for suffixes, _ in _READERS for suffix in suffixes)))
    raise ValueError(f"path is {str(path)!r}, of an unknown kind; expected a name that ends in {accepted}")


def _open_csv(path: str | os.PathLike) -> tuple[list[str], Reader]:
    pandas = _optional("pandas")

    def read(wanted: list[str]) -> Columns:
        # Low-memory mode guesses a type per chunk and warns where the guesses differ.
        frame = pandas.read_csv(path, usecols=wanted, low_memory=False)
        return {name: frame[name].to_numpy() for name in wanted}

    return pandas.read_csv(path, nrows=0).columns.tolist(), read


def _open_parquet(path: str | os.PathLike) -> tuple[list[str], Reader]:
    parquet = _optional("pyarrow.parquet")

    def read(wanted: list[str]) -> Columns:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        table = parquet.ParquetFile(path).read(columns=wanted)
        return {name: _arrow_values(table[name]) for name in wanted}

    return parquet.read_schema(path).names, read


def _arrow_values(column: Any) -> np.ndarray:
    """An Arrow column as an array, missing values as NaN or None."""
    values = getattr(column.type, "value_type", None)
    # A dictionary (category) column must become plain first: its to_numpy gives a missing value a label.
    return (column if values is None else column.cast(values)).to_numpy()


def _open_pickle(path: str | os.PathLike) -> tuple[list[str], Reader]:
    """Columns of a pickled data frame (pandas 1.5 to 3, pickle protocol 4 or 5), without unpickling it."""
    with open(path, "rb") as file, _explain_damage(path):
        frame = _RecordUnpickler(file).load()
    with _explain_damage(path):
        blocks, (columns, _) = frame.state["_mgr"].args  # BlockManager(blocks, (columns, rows))
        names = [str(name) for name in _decode(columns)]
        places = {}
        for block in blocks:
            values, where, *_ = block.args  # _unpickle_block(values, placement, ndim)
            where = range(len(names))[where] if isinstance(where, slice) else _decode(where).tolist()
            places |= {names[column]: (values, i) for i, column in enumerate(where)}

    def read(wanted: list[str]) -> Columns:
        decoded = {}  # A block holds many columns; each block is decoded once.

        def column(name: str) -> np.ndarray:
            values, i = places[name]
            if values not in decoded:
                decoded[values] = _decode(values)
            block = decoded[values]
            return block[i] if block.ndim == 2 else block

        with _explain_damage(path):
            return {name: column(name) for name in wanted}

    return names, read


@contextlib.contextmanager
def _explain_damage(path: str | os.PathLike) -> Iterator[None]:
    """Turns whatever a damaged or unknown pickle causes into a ValueError that says what to do."""
    try:
        yield
    except UnsafePickleError as error:
        raise UnsafePickleError(f"{path}: {error}") from None
    except Exception as error:  # A damaged stream can fail in any operation.
        raise ValueError(f"{path} is not a pickled data frame that can be read ({error!r}); use csv or parquet") from error


_READERS = (
    ((".csv", ".csv.gz"), _open_csv),
    ((".parquet",), _open_parquet),
    ((".pkl", ".pickle"), _open_pickle),
)


# Pickles of data frames.
#
# A pickle is a program that calls whatever it names. Here a name becomes a record type that only remembers
# what it was called with, so the program runs without effect, whatever it says; NumPy's own types are
# replaced as well, because a forged dtype can make them read memory they should not.

_FRAME_PARTS = {  # Modules within a package moved between versions, so names are listed by package.
    "builtins": {"bytearray", "slice"},
    "numpy": {"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"},
    "pandas": {
        *("DataFrame", "BlockManager", "_unpickle_block", "new_block"),
        *("Index", "RangeIndex", "Int64Index", "_new_Index"),
        *("ArrowStringArray", "StringArray", "StringDtype", "NA", "__pyx_unpickle_NDArrayBacked"),
        *("Categorical", "CategoricalDtype"),
    },
    "pyarrow": {"_restore_array", "py_buffer", "type_for_alias"},
}


class _Record:
    """What a pickle said about one object: the arguments it is made from and the state it is given."""

    __slots__ = ("args", "state")

    def __new__(cls, *args: Any) -> "_Record":
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _RecordUnpickler(pickle.Unpickler):
    """Reads a pickle into `_Record`s, each of a type named like what it stands for."""

    def find_class(self, module: str, name: str) -> type:
        if name not in _FRAME_PARTS.get(module.partition(".")[0], ()):
            raise UnsafePickleError(f"refused {module}.{name}, which is not a known part of a data frame; nothing was run")
        if module == "builtins":
            return {"bytearray": bytearray, "slice": slice}[name]
        return type(name, (_Record,), {"__slots__": ()})


def _decode(record: _Record) -> np.ndarray:
    """The array that a record stands for: numbers as they are, strings and mixtures as objects."""
    kind = type(record).__name__
    if kind == "_frombuffer":
        data, dtype, shape, order = record.args
        return np.frombuffer(data, _decode_dtype(dtype)).reshape(shape, order=order)
    if kind == "_reconstruct":  # An ndarray; its content is in the state.
        _, shape, dtype, fortran, data = record.state
        dtype = _decode_dtype(dtype)
        if dtype.kind == "O":
            flat = np.empty(len(data), dtype=object)
            flat[:] = [_decode_object(value) for value in data]
        else:
            flat = np.frombuffer(data, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    if kind == "_new_Index":
        return _decode(record.args[1]["data"])
    if kind == "ArrowStringArray":
        return _decode_strings(*record.state["_pa_array"].args[0])
    if kind == "__pyx_unpickle_NDArrayBacked":
        dtype, values, *_ = record.state
        if type(dtype).__name__ == "CategoricalDtype":
            missing = np.asarray([None], object)
            categories = np.concatenate([_decode(dtype.state["categories"]).astype(object), missing])
            return categories[_decode(values)]  # Code -1 is a missing value and meets the None at the end.
        return _decode(values)
    raise ValueError(f"a column is stored as {kind}")


def _decode_dtype(record: _Record) -> np.dtype:
    """A dtype of numbers or objects; built anew from its letter and size, not from the pickled state."""
    name, byte_order = record.args[0], record.state[1]
    if not re.fullmatch(r"b1|[iu][1248]|f[248]|O8", name):
        raise ValueError(f"a column has dtype {name!r}")
    return np.dtype(name).newbyteorder(byte_order)


def _decode_object(value: Any) -> Any:
    """An entry of an object array: a Python value or NumPy scalar as itself, anything else (NA) as None."""
    if type(value).__name__ == "scalar" and isinstance(value, _Record):
        dtype, data = value.args
        return np.frombuffer(data, _decode_dtype(dtype))[0].item()
    return None if isinstance(value, (_Record, type)) else value  # NA is a name, hence a record type.


def _decode_strings(
    kind: _Record, length: int, num_missing: int, start: int, buffers: Sequence[_Record | None], *_: Any
) -> np.ndarray:
    """`[length]` strings of an Arrow array, from its validity bits, offsets and characters."""
    del num_missing  # The validity bits say it too.
    # Arrow leaves out the buffer of an array without missing values or without characters.
    valid, offsets, characters = (b"" if buffer is None else bytes(buffer.args[0]) for buffer in buffers)
    offset_dtype = {"large_string": "<i8", "string": "<i4"}[kind.args[0]]
    ends = np.frombuffer(offsets, offset_dtype)[start : start + length + 1].tolist()
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[start : start + length]
    present = bits.astype(bool) if valid else np.ones(length, bool)
    texts = np.empty(length, dtype=object)
    for i in range(length):
        texts[i] = characters[ends[i] : ends[i + 1]].decode() if present[i] else None
    return texts
