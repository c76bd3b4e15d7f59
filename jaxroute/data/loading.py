"""Tables from files: complete ones, those of experiments, and single columns of any schema."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from jaxroute.core import checks

from .files import errors_name
from .logs import Log, read_log
from .logs.cells import is_empty, read_numbers
from .logs.files import open_log
from .table import RoutingTable


def load_table(path: Any, *, missing: Literal["error", "drop"] = "error", **reading: Any) -> RoutingTable:
    """Reads a complete table of scores and costs: `read_log(path).table`.

    Args:
      path: as in `read_log`.
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
    """Reads the log of an experiment, whose options are in the errors; warns of omitted queries and of text that became features."""
    if not data:
        raise ValueError("this experiment runs on the user's own table: give its file with --data FILE")
    try:
        log = read_log(data, costs=costs, features=None if features is None else os.fspath(features))
    except ValueError as error:
        if not any(before in str(error) for before in (" --", "(--")):
            raise
        raise ValueError(
            f"{error}. An experiment has none of these options: --set environment.costs='{{\"MODEL\": 0.01, ...}}' gives "
            "costs, and whatever else is read with options is played as "
            "jaxroute.data.read_log(FILE, ...).table.save('table.npz'), --data table.npz"
        ) from None
    warned = ("left out", "fewer than half", "cost: implausible", "cost: the file has none", "features: text")
    for line in log.read:
        if line.startswith(warned):
            warnings.warn(f"{os.fspath(data)}: {line}", UserWarning, stacklevel=3)
    return log


def load_columns(path: str | os.PathLike, numbers: Sequence[str], labels: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Reads some columns of a file of any schema.

    Args:
      path: a file as in `read_log`.
      numbers: names of columns to read as float64, NaN for empty cells.
      labels: names of columns to read as text.

    Returns:
      `[Q]` arrays by name.

    Raises:
      ValueError: the file lacks a column, or a cell is not a number.
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
