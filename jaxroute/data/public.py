"""Public per-query files by their names: each is `read_log` with what its authors decided.

Nothing is downloaded, and nothing in a file is ever executed.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks

from .files import grouped, named
from .logs import Log, read_log
from .logs.cells import empty, read_numbers
from .logs.files import open_log
from .papers import STAGEROUTE_TABLE_2
from .table import RoutingTable


def load_table(
    path: Any,
    *,
    costs: Mapping[str, float] | None = None,
    cost_unit: str | None = None,
    missing: Literal["error", "drop"] = "error",
    **reading: Any,
) -> RoutingTable:
    """Reads a table of scores and costs: `read_log(path).table`, complete unless the caller says otherwise.

    Args:
      path: as in `read_log`.
      costs: as in `read_log`.
      cost_unit: as in `read_log`.
      missing: "error" refuses a table in which some model has not answered a query, "drop" leaves such queries out and warns.
      reading: further arguments of `read_log`.

    Returns:
      The table.

    Raises:
      ValueError: as in `read_log`, or queries are missing.
      UnsafePickleError: a pickle refers to anything but a data frame's parts.
      ImportError: as in `read_log`.
    """
    checks.one_of("missing", missing, ("error", "drop"))
    log = read_log(path, costs=costs, cost_unit=cost_unit, **reading)
    lost = next((line for line in log.read if line.startswith("left out: ") and "lack an answer" in line), None)
    if lost and missing == "error":
        raise ValueError(f"{path}: {lost.removeprefix('left out: ')}; in Python missing='drop' leaves them out")
    if lost:
        warnings.warn(f"dropped {lost.removeprefix('left out: ')}", UserWarning, stacklevel=2)
    return log.table


def read_played(
    data: str | os.PathLike | None, costs: Mapping[str, float] | None = None, *, features: str | os.PathLike | None = None
) -> Log:
    """Reads a file that an experiment plays, its complete queries: `read_log` with what is left out, and text that became features, as warnings.

    Args:
      data: the file.
      costs: as in `read_log`.
      features: as in `read_log`.

    Raises:
      ValueError: there is no file; or as in `read_log`, with how an experiment is given what is lacking.
      UnsafePickleError, ImportError, OSError: as in `read_log`.
    """
    if not data:
        raise ValueError("this experiment plays the user's own table: give its file with --data FILE")
    try:
        log = read_log(data, costs=costs, features=None if features is None else os.fspath(features))
    except ValueError as error:
        if " --" not in str(error) and "(--" not in str(error):
            raise
        raise ValueError(
            f"{error}. An experiment has none of these options: --set environment.costs='{{\"MODEL\": 0.01, ...}}' gives costs, and whatever else is read with "
            "options is played as jaxroute.data.read_log(FILE, ...).table.save('table.npz'), --data table.npz"
        ) from None
    for line in log.read:
        if line.startswith(
            ("left out", "fewer than half", "cost: implausible", "cost: the file has none", "features: text")
        ):
            warnings.warn(f"{os.fspath(data)}: {line}", UserWarning, stacklevel=3)
    return log


def load_routerbench(path: str | os.PathLike) -> RoutingTable:
    """Reads the scores and costs of a RouterBench file, a row per query.

    Source: RouterBench (arXiv 2403.12031); columns as in the Hugging Face data set withmartian/routerbench.

    Args:
      path: `routerbench_0shot.pkl` or `routerbench_5shot.pkl` as published (nothing in them is executed), or csv, parquet or npz.

    Returns:
      The table with the models in the file's order and `eval_name` as groups; costs in USD per query. Queries that lack a score or a cost are left
      out with a warning. For the order of release use `table.subset(models=STAGEROUTE_TABLE_2.names)`.

    Raises:
      UnsafePickleError, ValueError, ImportError: as in `load_table`.
    """
    return load_table(path, missing="drop", features="own" if str(path).endswith(".npz") else "none")


def load_sprout(path: str | os.PathLike, prices: Mapping[str, tuple[float, float]] | None = None) -> RoutingTable:
    """Reads the scores of a SPROUT file, with costs from its numbers of tokens and a price list.

    Source: CARROT (arXiv 2502.03261); columns as in the Hugging Face data set CARROT-LLM-Routing/SPROUT.

    Args:
      path: a parquet file, or a folder of them.
      prices: USD per 1M input and output tokens of each model in the file; None takes `SPROUT_PRICES`.

    Returns:
      The table with `dataset` as groups; costs in USD per query. Incomplete queries are left out with a warning.

    Raises:
      ValueError: as in `load_table`, or a model has no price.
      ImportError: `pip install "jaxroute[data]"` provides pyarrow.
    """
    return load_table(path, missing="drop", prices=prices, features="none")


def load_embedllm(
    path: str | os.PathLike, costs: Mapping[str, float] | None = None, *, cost_unit: str | None = None
) -> RoutingTable:
    """Reads the correctness labels of an EmbedLLM file, with the models' sizes as costs, or given ones.

    A pair that occurs twice counts as correct if it ever was, as the authors do.

    Source: EmbedLLM (arXiv 2410.02223); columns as in the Hugging Face data set RZ412/EmbedLLM.

    Args:
      path: `train.csv`, `val.csv` or `test.csv`.
      costs: cost per query of each model, in `cost_unit`, because the file has none; other models are left out, and its order counts. None takes
        the models' sizes (`costs_by_size`).
      cost_unit: what a cost counts; None for "USD per query" of given costs, and "1e9 parameters per query" of sizes.

    Returns:
      The table with a row per question, by `prompt_id`, and `category` as groups. Incomplete questions are left out with a warning.

    Raises:
      ValueError: as in `load_table`.
    """
    models = None if costs is None else list(costs)
    return load_table(path, costs=costs, cost_unit=cost_unit, models=models, missing="drop", features="none")


def load_messplus(path: str | os.PathLike, benchmark: str | None = None) -> RoutingTable:
    """Reads the labels and energies of a file in the schema of the MESS+ authors, a row per request.

    A model is what has a column `energy_consumption_<model>`; its score is in `label_<model>`, or in `acc_<model>` if the file has no labels.

    Source: MESS+ (Woisetschläger et al.); columns as in the public repository laminair/mess-plus.

    Args:
      path: a csv, parquet or pickle file.
      benchmark: the `benchmark_name` of the requests to keep; None keeps all.

    Returns:
      The table with the models from small to large mean energy and `benchmark_name` as groups; costs in J per request. Incomplete requests are left
      out with a warning.

    Raises:
      ValueError: as in `load_table`, or there is no such benchmark.
    """
    where = None if benchmark is None else {"benchmark_name": benchmark}
    table = load_table(path, missing="drop", where=where, features="none").order_by_cost()
    return (
        table
        if table.groups is not None or benchmark is None
        else replace(table, groups=np.zeros(table.num_queries, int), group_names=(benchmark,))
    )


def load_columns(path: str | os.PathLike, numbers: Sequence[str], labels: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Reads some columns of a file of any schema.

    Args:
      path: a file as in `read_log`.
      numbers: names of columns that are read as float64, NaN for empty cells.
      labels: names of columns that are read as text.

    Returns:
      `[Q]` arrays by name.

    Raises:
      ValueError: the file lacks a column, or a cell is no number.
    """
    numbers, labels = ((names,) if isinstance(names, str) else tuple(names) for names in (numbers, labels))
    sheet = open_log(path)
    for name in (*numbers, *labels):
        if name not in sheet.names:
            raise ValueError(f"{path} lacks the column {name}; it has {', '.join(sheet.names)}")
    with named(path):
        found = {name: read_numbers(sheet, name, "score").values for name in numbers}
        for name in labels:
            group = grouped(np.array([None if empty(cell) else cell for cell in sheet.cells(name)], object))
            found[name] = np.asarray(group["group_names"])[group["groups"]]
    return found


def compare_with_table_2(table: RoutingTable) -> dict[str, dict[str, float]]:
    """Returns how far a table's column means are from StageRoute's Table 2.

    The published 0-shot file does not match (claude-v2 scores 0.636 there, 0.5116 in the paper), so a difference is information and not an error.

    Args:
      table: RouterBench scores and costs, the latter in USD per query.

    Returns:
      For each model in both, in Table 2's order: `score` and `cost`, the table's means, and `score_difference` and `cost_difference`, those means
      minus the paper's.

    Raises:
      ValueError: the table has none of Table 2's models.
    """
    if not isinstance(table, RoutingTable):
        raise ValueError(f"table must be a RoutingTable, got {checks.show(table)}")
    means = zip(table.models, table.mean_scores().tolist(), table.mean_costs().tolist(), strict=True)
    ours = {name: (score, cost) for name, score, cost in means}
    paper = zip(STAGEROUTE_TABLE_2.names, STAGEROUTE_TABLE_2.scores, STAGEROUTE_TABLE_2.costs, strict=True)
    report = {
        name: {
            "score": ours[name][0],
            "score_difference": ours[name][0] - score,
            "cost": ours[name][1],
            "cost_difference": ours[name][1] - cost,
        }
        for name, score, cost in paper
        if name in ours
    }
    if not report:
        raise ValueError(f"table has no model of StageRoute's Table 2; its models are {', '.join(table.models)}")
    return report
