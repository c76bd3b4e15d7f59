"""JSON values as records, and records as a frame of plain columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import join_names
from .names import match_level, plain_name

_NAME_KEYS = ("name", "key", "metric", "scorer", "id", "type")
_VALUE_KEYS = ("value", "score", "mean", "result", "number_value", "float_value")
_PAGE_KEYS = ("totalpages", "pages", "numpages", "hasmore", "hasnext", "next", "nextpage", "nexturl", "nextcursor")


def records_of(name: str, value: Any) -> tuple[list[dict], list[str]]:
    """Returns the records in a JSON value, and notes on where they were.

    The value is a list of objects; an object with one such list at any depth, or with several of the same fields; an object of
    equally long columns; or an object of objects by id. Anything else is refused.
    """
    if isinstance(value, list):
        if not value:
            raise ValueError(f"{name} is empty: a list without records")
        for number, record in enumerate(value):
            if not isinstance(record, dict):
                raise ValueError(f"{name}, record {number} (from 0) must be an object {{...}}, got {checks.show(record)}")
        return value, []
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a list of records [{{...}}, ...], got {checks.show(value)}")
    lists = dict(_record_lists(value, ""))
    if not lists:
        return _without_lists(name, value)
    best = max(map(_role_evidence, lists.values()))
    lists = {key: records for key, records in lists.items() if _role_evidence(records) == best}
    if len(lists) == 1:
        key, records = next(iter(lists.items()))
        pages = {k: v for k, v in value.items() if plain_name(k) in _PAGE_KEYS and isinstance(v, (int, str))}
        notes = [f"; it is one page of several ({k}: {v})" for k, v in pages.items() if v is True or v not in ("", 0, 1)]
        return records, [f"file: the records are under {key!r}{''.join(notes[:1])}"]
    fields, *others = ({field for record in records for field in record} for records in lists.values())
    if any(fields != other for other in others):
        has = join_names(map(repr, lists))
        raise ValueError(f"{name} has several lists of records, {has}: write one to a file of its own")
    has_model = any(match_level("model", field) for field in fields)
    column = "file" if has_model else "model" if _have_same_queries(lists) else "key"
    labels = {key: key.split(".")[-1] if column == "model" else key for key in lists}
    joined = [{**record, column: labels[key]} for key, records in lists.items() for record in records]
    return joined, [f"file: the records are under {join_names(map(repr, lists), 6)}, which is the column {column!r}"]


def _record_lists(value: Mapping, before: str) -> list[tuple[str, list]]:
    """Lists of records inside an object, by their keys joined by dots; objects by number ("0", "1", ...) are a list, too."""
    found = []
    for key, part in value.items():
        if isinstance(part, list) and part and all(isinstance(record, dict) for record in part):
            found.append((f"{before}{key}", part))
        elif isinstance(part, Mapping):
            records = [{"index": n, **one} for n, one in part.items() if isinstance(one, Mapping) and str(n).isdigit()]
            found += [(f"{before}{key}", records)] if len(records) > 1 else _record_lists(part, f"{before}{key}.")
    return found


def _without_lists(name: str, value: Mapping) -> tuple[list[dict], list[str]]:
    """Records of an object of columns, of objects by id, or of one record."""
    columns = list(value.values())
    if columns and all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)], ["file: an object of columns"]
    if len(columns) > 1 and all(isinstance(column, Mapping) for column in columns):
        return _from_objects(value)
    if _count_matches(value, "score", "cost"):
        return [dict(value)], ["file: one record"]
    has = join_names(map(repr, value))
    raise ValueError(f"{name} must be a list of records or hold one, got an object with {has}")


def _count_matches(names: Iterable[Any], *roles: str) -> int:
    """Number of names that match one of the roles."""
    return sum(any(match_level(role, str(name)) for role in roles) for name in names)


def _have_same_queries(lists: Mapping[str, Sequence[Mapping]]) -> bool:
    """Whether the first two lists have most of their ids in common, as lists of models have; lists of tasks have not."""
    first, second, *_ = lists.values()
    names = [name for name in first[0] if _count_matches([name], "query", "text")]
    ids = [{str(record.get(name)) for name in names for record in records} for records in (first, second)]
    return bool(names) and 2 * len(ids[0] & ids[1]) >= min(map(len, ids))


def _role_evidence(records: Sequence[Mapping]) -> float:
    """Measure of how well the fields of records match the roles of a log; a score counts twice."""
    names = list(map(str, pd.json_normalize([dict(record) for record in records[:20]], sep=".").columns))
    wide = 3.0 if any(name.split(".")[0] == "scores" for name in names) else 0.0
    roles = ("query", "text", "model", "cost", "score")
    *others, score = (max((match_level(role, name) for name in names), default=0.0) for role in roles)
    return sum(others) + score + max(score, wide)


def _from_objects(value: Mapping[str, Mapping]) -> tuple[list[dict], list[str]]:
    """Records of objects by id, or of columns that are objects by id."""
    cells = [part for one in value.values() for part in one.values()]
    if cells and all(isinstance(part, Mapping) for part in cells):  # By model and query, or by query and model.
        outer, inner = len(value), len({key for one in value.values() for key in one})
        if max(outer, inner) < 3 * min(outer, inner):
            kind = f"an object of {outer} objects of {inner} objects"
            raise ValueError(f"{kind} does not say which of them are the models: write a list of records")
        models = "inner" if outer > inner else "outer"
        rows = []
        for outer_key, one in value.items():
            for inner_key, record in one.items():
                query, model = (outer_key, inner_key) if models == "inner" else (inner_key, outer_key)
                rows.append({"query_id": query, "model": model, **record})
        return rows, [f"file: objects by query and model; the {models} names are taken for the {min(outer, inner)} models"]
    keys, roles = list(next(iter(value.values()))), ("query", "model", "score", "cost")
    if _count_matches(value, *roles) > _count_matches(keys, *roles):
        return [{name: column.get(key) for name, column in value.items()} for key in keys], ["file: an object of columns"]
    records = [{"key": key, **record} for key, record in value.items()]
    return records, ["file: an object of records, whose keys are the column 'key'"]


def first_object(cells: pd.Series) -> Mapping | None:
    """Returns the first object in a column of objects, or of lists of objects."""
    for cell in cells if cells.dtype == object else ():
        if isinstance(cell, dict):
            return cell
        if isinstance(cell, (list, np.ndarray)) and len(cell):
            return cell[0] if isinstance(cell[0], Mapping) else None
    return None


def frame_of(records: Sequence[Mapping]) -> pd.DataFrame:
    """Returns records as columns without objects inside.

    An object `{"usage": {"in": 3}}` becomes the column `usage.in`. A list of named values `[{"name": "f1", "value": 1}]` becomes `scores.f1`,
    and a list of objects with models becomes a row for each.
    """
    if any(isinstance(cell, Mapping) for record in records for cell in record.values()):
        frame = pd.json_normalize([dict(record) for record in records], sep=".")
    else:
        frame = pd.DataFrame(list(records), dtype=object)
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    for column, cells in frame.items():
        first = first_object(cells)
        if first is None:
            continue
        if any(match_level("model", str(key)) == 3 or str(key) in ("model_name", "generator") for key in first):
            return frame_of(_exploded(frame, str(column)))
        named = [_named_values(cell) for cell in cells]
        if any(named):
            wide = pd.DataFrame(named, index=frame.index).add_prefix(f"{column}.")
            frame = pd.concat([frame.drop(columns=column), wide.astype(object)], axis=1)
    return frame


def _named_values(cell: Any) -> dict[str, Any]:
    """`[{"name": "f1", "value": 1}]` as `{"f1": 1}`; empty for another cell."""
    if not isinstance(cell, (list, np.ndarray)) or not all(isinstance(item, Mapping) for item in cell):
        return {}
    values = {}
    for item in cell:
        name = item
        while isinstance(name, Mapping):
            name = next((name[key] for key in _NAME_KEYS if key in name), None)
        value = next((item[key] for key in _VALUE_KEYS if key in item), None)
        if isinstance(name, str) and not isinstance(value, (Mapping, list)):
            values[name] = value
    return values


def _exploded(frame: pd.DataFrame, column: str) -> list[dict]:
    """Record for each object in the lists of a column, with the other columns repeated."""
    rows = []
    for record in frame.to_dict("records"):
        items = record.pop(column)
        for item in items if isinstance(items, (list, np.ndarray)) else ():
            rows.append({**{str(key): value for key, value in record.items() if key not in item}, **item})
    return rows
