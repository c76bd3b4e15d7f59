"""The rows that count, and a column of queries made of two."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..files import join_names, option
from .cells import is_empty, key_text
from .sheet import Sheet


def choose_rows(sheet: Sheet, where: Mapping[str, Any]) -> list[str]:
    """Selects the rows that the caller wants, or that the format counts; returns the columns that decide."""
    for name, value in where.items():
        column = str(name)
        if column not in sheet.names:
            has = join_names(map(repr, sheet.names), 40)
            raise ValueError(f"where names the column {column!r}, which {sheet.name} lacks; it has {has}")
        cells = sheet.cells(column)
        values = value if isinstance(value, (list, tuple, set)) else [value]
        rows = np.flatnonzero([any(_equals(cell, one) for one in values) for cell in cells])
        if not rows.size:
            has = join_names(map(repr, dict.fromkeys(cells)))
            raise ValueError(f"where[{column!r}] is {value!r}, which no row of {sheet.name} has; it has {has}")
        sheet.select(rows)
        sheet.notes.append(f"kept: the {len(rows):,} of {len(cells):,} rows whose {column!r} is {value!r}")
    first = sheet.preset.first if sheet.preset else None
    if first not in sheet.names or first in where:
        return [*map(str, where)]
    cells, labels = (pd.Series([str(cell) for cell in sheet.cells(name)], dtype=object) for name in (first, "category"))
    rows = cells == cells.groupby(labels).transform("first")
    if not rows.all():
        sheet.select(np.flatnonzero(rows))
        used, left = (join_names(map(repr, cells[chosen].unique())) for chosen in (rows, ~rows))
        other = f"({option('--where', f'{first}={cells[~rows].iloc[0]}')} keeps the tasks that have it)"
        counts = f"{used} counts, the first of each task, and not {left}"
        sheet.notes.append(f"{first}: the same answers are judged several times; {counts} {other}")
    return [*map(str, where), first]


def _equals(cell: Any, value: Any) -> bool:
    """Whether a cell is a value: as texts, or as numbers if the cell is one."""
    if str(cell).strip().lower() == str(value).strip().lower() or (str(value) == "" and is_empty(cell)):
        return True
    try:
        return isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool) and float(cell) == float(value)
    except (TypeError, ValueError):
        return False


def join_query_columns(sheet: Sheet, columns: Any) -> list[str]:
    """Adds the column of queries that the caller made of two, as "dataset+index"; returns these."""
    query = str(columns.get("query", "")) if isinstance(columns, Mapping) else ""
    parts = query.split("+") if "+" in query and query not in sheet.names else []
    if parts and all(part in sheet.names for part in parts):
        rows = zip(*map(sheet.cells, parts), strict=True)
        sheet.put(query, np.array([" + ".join(map(repr, map(key_text, row))) for row in rows], object))
    return parts
