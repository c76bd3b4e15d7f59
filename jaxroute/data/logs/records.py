"""JSON values as records, and records as a frame of plain columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jaxroute.core import checks
from jaxroute.data.files import some
from jaxroute.data.logs.names import level

_NAMES = ("name", "key", "metric", "scorer", "id", "type")
_VALUES = ("value", "score", "mean", "result", "number_value", "float_value")


def records_of(name: str, value: Any) -> tuple[list[dict], list[str]]:
    """Returns the records that a JSON value holds, and notes on where they were.

    Args:
      name: name of the file, for messages.
      value: a list of objects; an object with one such list at any depth, or with several of the same fields; an object of equally long
        columns; or an object of objects by id.

    Raises:
      ValueError: it holds none, or several lists that differ.
    """
    if isinstance(value, list):
        return _checked(name, value), []
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a list of records [{{...}}, ...], got {checks.show(value)}")
    columns = list(value.values())
    lists = dict(_lists(value, ""))
    if not lists and columns and all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)], ["file: an object of columns"]
    if not lists and len(value) > 1 and all(isinstance(part, Mapping) for part in columns):
        return _of_objects(value)
    if not lists and any(level(role, str(key)) for role in ("score", "cost") for key in value):
        return [dict(value)], ["file: one record"]
    if len(lists) > 1:
        most = max(map(_roles, lists.values()))
        lists = {key: records for key, records in lists.items() if _roles(records) == most}
    if len(lists) == 1:
        key, records = next(iter(lists.items()))
        return records, [f"file: the records are under {key!r}"]
    fields = [frozenset(field for record in records for field in record) for records in lists.values()]
    if lists and len(set(fields)) == 1:
        where = "file" if any(level("model", field) for field in fields[0]) else "model" if _same_queries(lists) else "key"
        records = [
            {**record, where: key.split(".")[-1] if where == "model" else key} for key, of in lists.items() for record in of
        ]
        return records, [f"file: the records are under {some(map(repr, lists), 6)}, which is the column {where!r}"]
    if lists:
        raise ValueError(
            f"{name} has several lists of records, {some(map(repr, lists))}: keep one of them in a file of its own"
        )
    raise ValueError(
        f"{name} must be a list of records [{{...}}, ...] or hold one, got an object with {some(map(repr, value))}"
    )


def _checked(name: str, records: list) -> list[dict]:
    if not records:
        raise ValueError(f"{name} is empty: a list without records")
    wrong = next((number for number, record in enumerate(records) if not isinstance(record, dict)), None)
    if wrong is not None:
        raise ValueError(f"{name}, record {wrong} (from 0) must be an object {{...}}, got {checks.show(records[wrong])}")
    return records


def _lists(value: Mapping, before: str) -> list[tuple[str, list]]:
    """Lists of records inside an object, by their keys joined by dots; objects by number ("0", "1", ...) are a list, too."""
    found = []
    for key, part in value.items():
        if isinstance(part, list) and part and all(isinstance(record, dict) for record in part):
            found.append((f"{before}{key}", part))
        elif isinstance(part, Mapping):
            records = {name: record for name, record in part.items() if isinstance(record, Mapping) and str(name).isdigit()}
            if len(records) > 1:
                found.append((f"{before}{key}", [{"index": name, **record} for name, record in records.items()]))
            else:
                found += _lists(part, f"{before}{key}.")
    return found


def _same_queries(lists: Mapping[str, Sequence[Mapping]]) -> bool:
    """Whether the first two lists have most of their ids in common, as lists of models have, and those of tasks have not."""
    first, second, *_ = lists.values()
    names = [name for name in first[0] if level("query", str(name)) or level("text", str(name))]
    ids = [{str(record.get(name)) for name in names for record in records} for records in (first, second)]
    return bool(names) and 2 * len(ids[0] & ids[1]) >= min(len(ids[0]), len(ids[1]))


def _roles(records: Sequence[Mapping]) -> float:
    """How far the fields of records say the roles that a log needs."""
    names = list(map(str, pd.json_normalize([dict(record) for record in records[:20]], sep=".").columns))
    wide = 3.0 if any(name.split(".")[0] == "scores" for name in names) else 0.0
    levels = {
        role: max((level(role, name) for name in names), default=0.0) for role in ("query", "text", "model", "score", "cost")
    }
    return sum(levels.values()) + max(levels["score"], wide)


def _of_objects(value: Mapping[str, Mapping]) -> tuple[list[dict], list[str]]:
    """Objects by id, or columns that are objects by id."""
    inner = list(next(iter(value.values())))
    deep = [part for one in value.values() for part in one.values()]
    if deep and all(isinstance(part, Mapping) for part in deep):  # By model and query, or by query and model.
        names = {"outer": len(value), "inner": len({key for one in value.values() for key in one})}
        if max(names.values()) < 3 * min(names.values()):
            raise ValueError(
                f"an object of {len(value)} objects of {names['inner']} objects does not say which of them are the models: write a list of records"
            )
        models = "inner" if names["outer"] > names["inner"] else "outer"
        rows = [
            {"query_id": a if models == "inner" else b, "model": b if models == "inner" else a, **record}
            for a, one in value.items()
            for b, record in one.items()
        ]
        return rows, [f"file: objects by query and model; the {models} names are taken for the {min(names.values())} models"]
    outer_known = sum(any(level(role, str(key)) for role in ("query", "model", "score", "cost")) for key in value)
    inner_known = sum(any(level(role, str(key)) for role in ("query", "model", "score", "cost")) for key in inner)
    if outer_known > inner_known:
        return [{name: column.get(key) for name, column in value.items()} for key in inner], ["file: an object of columns"]
    return [{"key": key, **record} for key, record in value.items()], [
        "file: an object of records, whose keys are the column 'key'"
    ]


def frame_of(records: Sequence[Mapping]) -> pd.DataFrame:
    """Returns records as columns without objects inside.

    An object `{"usage": {"in": 3}}` becomes the column `usage.in`. A list of named values `[{"name": "f1", "value": 1}]` becomes `scores.f1`,
    and a list of objects with models becomes a row for each.
    """
    flat = any(isinstance(cell, Mapping) for record in records for cell in record.values())
    frame = (
        pd.json_normalize([dict(record) for record in records], sep=".")
        if flat
        else pd.DataFrame(list(records), dtype=object)
    )
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    for column in list(frame.columns):
        cells = frame[column]
        if cells.dtype != object:
            continue
        first = next((cell for cell in cells if isinstance(cell, list) and cell), None)
        if first is None or not isinstance(first[0], Mapping):
            continue
        if any(level("model", str(key)) == 3 or str(key) in ("model_name", "generator") for key in first[0]):
            return frame_of(_exploded(frame, column))
        named = [_named(cell) if isinstance(cell, list) else {} for cell in cells]
        if any(named):
            wide = pd.DataFrame(named, index=frame.index).add_prefix(f"{column}.")
            frame = pd.concat([frame.drop(columns=column), wide.astype(object)], axis=1)
    return frame


def _named(cell: list) -> dict[str, Any]:
    """`[{"name": "f1", "value": 1}]` as `{"f1": 1}`; empty if it is something else."""
    found = {}
    for item in cell:
        if not isinstance(item, Mapping):
            return {}
        name = next((item[key] for key in _NAMES if key in item), None)
        while isinstance(name, Mapping):
            name = next((name[key] for key in _NAMES if key in name), None)
        value = next((item[key] for key in _VALUES if key in item), None)
        if isinstance(name, str) and not isinstance(value, (Mapping, list)):
            found[name] = value
    return found


def _exploded(frame: pd.DataFrame, column: str) -> list[dict]:
    """A record for each object in the lists of a column, with the other columns repeated."""
    rows = []
    for record in frame.to_dict("records"):
        items = record.pop(column)
        for item in items if isinstance(items, list) else []:
            rows.append({**{str(key): value for key, value in record.items() if key not in item}, **item})
    return rows
