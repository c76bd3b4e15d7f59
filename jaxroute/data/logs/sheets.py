"""Sheets: logs of any kind as named columns of cells, made from data frames, parquet, Excel, JSON records and arrays."""

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, import_optional, join_names
from .names import PER_MODEL, match_level, plain_name
from .presets import Preset

_NAME_KEYS = ("name", "key", "metric", "scorer", "id", "type")
_VALUE_KEYS = ("value", "score", "mean", "result", "number_value", "float_value")
_PAGE_KEYS = ("totalpages", "pages", "numpages", "hasmore", "hasnext", "next", "nextpage", "nexturl", "nextcursor")
_MODELS = ("models", "model_names", "names")  # Names of arrays with the names of models.
# Names of arrays with the index of each query's category, and with the names of categories.
_CATEGORIES = (("groups", "group_names"), ("eval_name_idx", "eval_names"), ("task_idx", "tasks"))
_UNCHANGED = ("cost_unit", "rows", "num_rows", "prompts")  # Arrays that are no columns.


@dataclass(eq=False)
class Sheet:
    """Table of named columns of cells from a file or memory; a column is read when first used. A missing cell is None, NaN or an empty text."""

    name: str  #: Name of the file, or "the data frame".
    names: list[str]  #: Names of the columns, in order.
    read: Callable[[str], np.ndarray]  #: Function that reads the cells of a column.
    about: str  #: Kind of the file, in words.
    place_of: Callable[[int], str] | None = None  #: Function that returns the place of a row of the file, in words.
    separator: str | None = None  #: Character between columns of text.
    notes: list[str] = field(default_factory=list)  #: Lines for the user about how the file was read.
    preset: Preset = field(default_factory=Preset)  #: Known format of the file.
    given: dict[str, str] = field(default_factory=dict)  #: Columns by role that the kind of file determines.
    encodings: tuple[str, ...] = ()  #: Possible encodings, if there are several.
    decimal_comma: bool = False  #: Whether numbers in the file have a decimal comma.
    made: set[str] = field(default_factory=set)  #: Columns that were combined from others.
    rows: np.ndarray | None = None  #: Indices of the selected rows, None for all.
    records: list[dict[str, Any]] = field(
        default_factory=list
    )  #: Record of the file that each row was converted from; empty if none was.
    _cells: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name of the file; if its records were converted to other columns, also from what."""
        return f"{self.name} (converted from {self.preset.name})" if self.preset.converts else self.name

    def cells(self, name: str) -> np.ndarray:
        """Returns an array with the cells of a column, in the selected rows."""
        if name not in self._cells:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.name} has {self.names.count(name)} columns {name!r}: rename or remove all but one")
            with errors_name(self.name):
                cells = self.read(name)
            self._cells[name] = cells if self.rows is None else cells[self.rows]
        return self._cells[name]

    def restore(self, name: str) -> None:
        """Adds a column of the file that was left out when its records were converted, if there is one of this name."""
        if name not in self.names and any(name in record for record in self.records[:50]):
            self.put(name, np.array([record.get(name) for record in self.records], object))

    def put(self, name: str, cells: np.ndarray) -> None:
        self.made.add(name)
        self.names.append(name)
        self._cells[name] = cells

    def select(self, rows: np.ndarray) -> None:
        """Keeps only the rows with the indices `rows`."""
        self.rows = rows if self.rows is None else self.rows[rows]
        self._cells = {name: cells[rows] for name, cells in self._cells.items()}

    @property
    def num_rows(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return len(next(iter(self._cells.values())) if self._cells else self.read(self.names[0]))

    def place(self, row: Any, column: str | None = None) -> str:
        """Returns the name of the file and the place of a row in it, or of a cell if `column` is given, for messages."""
        row = int(row if self.rows is None else self.rows[row])
        place = f"{self.name}, {self.place_of(row) if self.place_of else f'row {row} (from 0)'}"
        return place if column is None else f"{place}, column {column!r}"

    def cell_error(self, row: Any, column: str, problem: str) -> ValueError:
        """Returns the error that a cell has a `problem`; the text starts with the place and the content of the cell."""
        return ValueError(f"{self.place(row, column)} is {checks.show(self.cells(column)[row])}{problem}")

    def single(self, names: Iterable[str]) -> list[str]:
        """Returns the `names` that belong to exactly one column."""
        counts = Counter(self.names)
        return [name for name in names if counts[name] == 1]


def sheet_of_frame(name: str, frame: pd.DataFrame, about: str, **attributes: Any) -> Sheet:
    """Converts a data frame to the `Sheet` `name`; dicts in cells become columns. `about` is its kind, `attributes` are other fields of the sheet."""
    if not frame.size:
        raise ValueError(f"{name} has no {'columns' if len(frame) else 'rows'}")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if frame.columns.is_unique and any(_first_object(column) is not None for _, column in frame.items()):
        frame = frame_of(frame.to_dict("records"))
    names = list(frame.columns)

    def read(column: str) -> np.ndarray:
        cells = frame.iloc[:, names.index(column)]
        return cells.to_numpy() if isinstance(cells.dtype, np.dtype) else cells.astype(object).to_numpy()

    return Sheet(name, list(names), read, about, **attributes)


def sheet_in_memory(data: Any) -> Sheet:
    """Converts a data frame of any library, a dict of columns or a list of records to a sheet."""
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("data must be columns by name, got an empty dict")
        lists = {str(name): list(values) for name, values in data.items() if not np.isscalar(values)}
        if len(lists) != len(data) or len({len(values) for values in lists.values()}) > 1:
            sizes = join_names(f"{name}: {len(values)}" for name, values in lists.items())
            raise ValueError(f"data must be columns of equal lengths by name, got {sizes}")
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in lists.items()})
        return sheet_of_frame("the dict", frame, "a dict of columns")
    if isinstance(data, (list, tuple)):
        if not data or not all(isinstance(record, Mapping) for record in data):
            raise ValueError(f"data must be records, as [{{'model': 'a', ...}}, ...], or files, got {checks.show(data)}")
        return sheet_of_frame("the records", frame_of(list(data)), "a list of records")
    frame = data.to_pandas() if hasattr(data, "to_pandas") else data  # polars, pyarrow, Hugging Face.
    if not isinstance(frame, pd.DataFrame):
        kinds = "the name of a file, a RoutingTable, a data frame, a dict of columns or a list of records"
        raise ValueError(f"data must be {kinds}, got {checks.show(data)}")
    if frame.columns.nlevels > 1:  # Pivoted.
        frame = frame.set_axis(["|".join(str(part) for part in column if str(part)) for column in frame.columns], axis=1)
    if None not in frame.index.names:  # Made by groupby or set_index.
        frame = frame.reset_index(level=[name for name in frame.index.names if name not in frame.columns])
    return sheet_of_frame("the data frame", frame, "a data frame")


def open_parquet(path: Path, content: Any) -> Sheet:
    """Opens a parquet file as a sheet; only columns that are used are read. `content` is its path or an open file, and `path` its name in errors."""
    parquet, arrow = import_optional("pyarrow.parquet"), import_optional("pyarrow")
    try:
        file = parquet.ParquetFile(content)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a parquet file, or is damaged: {error}") from None
    if not file.metadata.num_rows:
        raise ValueError(f"{path} has no rows")
    if any(str(getattr(column.type, "value_type", "")).startswith("struct<") for column in file.schema_arrow):
        return sheet_of_frame(str(path), pd.DataFrame(file.read().to_pylist()), "a parquet file")

    def flat(table: Any) -> Any:
        while any(arrow.types.is_struct(kind) for kind in table.schema.types):
            table = table.flatten()
        return table

    def read(name: str) -> np.ndarray:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        column = flat(file.read(columns=[name]))[name]
        if arrow.types.is_dictionary(column.type):  # Decoded first, because to_numpy would give missing values a label.
            column = column.cast(column.type.value_type)
        is_nested = arrow.types.is_nested(column.type)
        return np.fromiter(column.to_pylist(), object) if is_nested else column.to_numpy()

    return Sheet(str(path), flat(file.schema_arrow.empty_table()).column_names, read, "a parquet file")


def open_excel(path: Path, content: bytes) -> Sheet:
    """Opens the first worksheet of an Excel file that has a table; rows above the names of the columns are skipped and reported."""
    import_optional("openpyxl")
    reading = {"sheet_name": None, "header": None, "dtype": object, "keep_default_na": False, "engine": "openpyxl"}
    try:
        book = pd.read_excel(io.BytesIO(content), **reading)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not an Excel file (xlsx), or is damaged: {error}") from None
    if not (filled := {name: frame for name, frame in book.items() if frame.size}):
        raise ValueError(f"{path}, sheet {next(iter(book))!r} is empty")
    sheet_name = next((name for name, frame in filled.items() if min(frame.shape) > 2), next(iter(filled)))  # Not a cover.
    frame = filled.pop(sheet_name)
    has_content = (frame.notna() & (frame != "")).to_numpy()
    rows = np.flatnonzero(has_content.any(axis=1))
    width = Counter(has_content[rows].sum(axis=1).tolist()).most_common(1)[0][0]
    full = [row for row in rows[:20] if has_content[row].sum() >= width - 1]
    header = next((row for row in full if frame.iloc[row][has_content[row]].map(type).eq(str).all()), rows[0])
    notes = [f"file: skipped row {row + 1} before the names of the columns" for row in rows if row < header]
    rows = rows[rows > header]
    if not len(rows):
        raise ValueError(f"{path}, sheet {sheet_name!r} has a line of names, but no rows")
    columns = np.flatnonzero(has_content[rows].any(axis=0) | has_content[header])
    names = [str(frame.iat[header, column]).strip() if has_content[header, column] else "" for column in columns]
    others = f" (not read: {join_names(map(repr, filled), 4)})" if filled else ""
    frame, about = frame.iloc[rows, columns].set_axis(names, axis=1), f"an Excel file, sheet {sheet_name!r}{others}"
    return sheet_of_frame(str(path), frame, about, place_of=lambda row: f"line {rows[row] + 1}", notes=notes)


def records_of(name: str, value: Any) -> tuple[list[dict], list[str]]:
    """Finds the records in a JSON value of the file `name`. Returns them, with notes for the user on their place in the value.

    The value may be a list of objects; an object with one such list at any depth, or with several of the same fields; an object of
    equally long columns; or an object of objects by id. Anything else raises `ValueError`.
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
        raise ValueError(f"{name} has several lists of records, {join_names(map(repr, lists))}: write one to another file")
    first, second, *_ = lists.values()
    names = [field for field in first[0] if _count_matches([field], "query", "text")]
    ids = [{str(record.get(name)) for name in names for record in records} for records in (first, second)]
    # Lists of models have most of their ids in common, and lists of tasks do not.
    shared = bool(names) and 2 * len(ids[0] & ids[1]) >= min(map(len, ids))
    column = "file" if _count_matches(fields, "model") else "model" if shared else "key"
    labels = {key: key.split(".")[-1] if column == "model" else key for key in lists}
    joined = [{**record, column: labels[key]} for key, records in lists.items() for record in records]
    return joined, [f"file: the records are under {join_names(map(repr, lists), 6)}, which is the column {column!r}"]


def _record_lists(value: Mapping, before: str) -> list[tuple[str, list]]:
    """Returns (path, list) of each list of records in `value`, at any depth; objects with keys "0", "1", ... are lists. Paths begin with `before`."""
    found = []
    for key, part in value.items():
        if isinstance(part, list) and part and all(isinstance(record, dict) for record in part):
            found.append((f"{before}{key}", part))
        elif isinstance(part, Mapping):
            records = [{"index": n, **one} for n, one in part.items() if isinstance(one, Mapping) and str(n).isdigit()]
            found += [(f"{before}{key}", records)] if len(records) > 1 else _record_lists(part, f"{before}{key}.")
    return found


def _count_matches(names: Iterable[Any], *roles: str) -> int:
    return sum(any(match_level(role, str(name)) for role in roles) for name in names)


def _role_evidence(records: Sequence[Mapping]) -> float:
    """Returns how much records look like answers: the sum of the best fields' match levels for query, text, model, cost and, counted twice, score."""
    names = list(map(str, pd.json_normalize([dict(record) for record in records[:20]], sep=".").columns))
    wide = 3.0 if any(name.split(".")[0] == "scores" for name in names) else 0.0
    roles = ("query", "text", "model", "cost", "score")
    *others, score = (max((match_level(role, name) for name in names), default=0.0) for role in roles)
    return sum(others) + score + max(score, wide)


def _without_lists(name: str, value: Mapping) -> tuple[list[dict], list[str]]:
    """Converts a JSON object of columns, or of records by id, to a list of records, and says how in notes. `name` is the file, for errors."""
    columns = list(value.values())
    if columns and all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)], ["file: an object of columns"]
    if len(columns) < 2 or not all(isinstance(column, Mapping) for column in columns):
        raise ValueError(f"{name} must be a list of records or hold one, got an object with {join_names(map(repr, value))}")
    parts = [part for column in columns for part in column.values()]
    if parts and all(isinstance(part, Mapping) for part in parts):  # By model and query, or by query and model.
        outer, inner = len(value), len({key for column in columns for key in column})
        if max(outer, inner) < 3 * min(outer, inner):
            sizes = f"an object of {outer} objects of {inner} objects"
            raise ValueError(f"{sizes} does not show which of them are the models: write a list of records")
        rows = []
        for outer_key, column in value.items():
            for inner_key, record in column.items():
                query, model = (outer_key, inner_key) if outer > inner else (inner_key, outer_key)
                rows.append({"query_id": query, "model": model, **record})
        which = "inner" if outer > inner else "outer"
        return rows, [f"file: objects by query and model; the {which} names are taken for the {min(outer, inner)} models"]
    keys, roles = list(columns[0]), ("query", "model", "score", "cost")
    if _count_matches(value, *roles) > _count_matches(keys, *roles):
        return [{name: column.get(key) for name, column in value.items()} for key in keys], ["file: an object of columns"]
    records = [{"key": key, **record} for key, record in value.items()]
    return records, ["file: an object of records, whose keys are the column 'key'"]


def _first_object(cells: pd.Series) -> Mapping | None:
    """Returns the first object in a column of objects, or of lists of objects; None for other columns."""
    for cell in cells if cells.dtype == object else ():
        if isinstance(cell, dict):
            return cell
        if isinstance(cell, (list, np.ndarray)) and len(cell):
            return cell[0] if isinstance(cell[0], Mapping) else None
    return None


def frame_of(records: Sequence[Mapping]) -> pd.DataFrame:
    """Converts records to a data frame without objects in its cells.

    An object `{"usage": {"in": 3}}` becomes the column `usage.in`. In a column `scores`, a list of named values `[{"name": "f1", "value": 1}]`
    becomes `scores.f1`. A list of objects that name models becomes a row for each object.
    """
    if any(isinstance(cell, Mapping) for record in records for cell in record.values()):
        frame = pd.json_normalize([dict(record) for record in records], sep=".")
    else:
        frame = pd.DataFrame(list(records), dtype=object)
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    for column, cells in frame.items():
        first = _first_object(cells)
        if first is None:
            continue
        if any(match_level("model", str(key)) == 3 or str(key) in ("model_name", "generator") for key in first):
            rows = []
            for record in frame.to_dict("records"):
                items = record.pop(column)
                for item in items if isinstance(items, (list, np.ndarray)) else ():
                    rows.append({**{str(key): value for key, value in record.items() if key not in item}, **item})
            return frame_of(rows)
        named = [_named_values(cell) for cell in cells]
        if any(named):
            wide = pd.DataFrame(named, index=frame.index).add_prefix(f"{column}.")
            frame = pd.concat([frame.drop(columns=column), wide.astype(object)], axis=1)
    return frame


def _named_values(cell: Any) -> dict[str, Any]:
    """Converts a list such as `[{"name": "f1", "value": 1}]` to the dict `{"f1": 1}`; another cell gives an empty dict."""
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


def sheet_of_arrays(name: str, arrays: Mapping[str, np.ndarray], about: str) -> tuple[Sheet, dict[str, Any]]:
    """Converts `arrays`, whose names are roles, to a sheet. Also returns by name `cost_unit`, `rows`, `num_rows` and `prompts`, which are no columns.

    For `Q` queries and `N` models, numbers are `[Q, N]`, `[Q]`, or `[N]` if equal for all queries; `models` is `[N]`, features `[Q, d]`. An array
    `score_a` `[Q]` has the scores of model "a". Scores of another shape raise `ValueError`; other arrays that do not fit are left out, with a
    note. `name` is the name of the file for messages, and `about` its kind in words.
    """
    models: list[str] = next((np.atleast_1d(arrays[key]).astype(str).tolist() for key in _MODELS if key in arrays), [])
    if repeated := [model for model in models if models.count(model) > 1]:
        raise ValueError(f"{name} has the model {repeated[0]!r} twice in the array models: rename or remove one")
    scores = [array for key, array in arrays.items() if match_level("score", key)]
    size = next((len(array) for array in scores if array.ndim == 2), 0)
    if size and not models:
        raise ValueError(f"{name} has no array models; it has {join_names(arrays)}")
    size = size or max((len(array) for array in arrays.values() if array.ndim), default=0)
    if models and not any(array.ndim == 2 or array.shape == (size,) for array in scores):
        expected = f"scores [Q, {len(models)}], costs of the same shape and models, or score_a [Q] and cost_a [Q] for each"
        raise ValueError(f"{name} has no array of scores; expected {expected}; it has {join_names(arrays)}")
    columns: dict[str, np.ndarray] = {}
    given: dict[str, str] = {}  # Pattern of the names of columns by role.
    unused, used = [], {*_MODELS, *_UNCHANGED}
    for index, names in _CATEGORIES:
        if index in arrays and names in arrays and "category" not in given:
            numbers, labels = arrays[index], arrays[names].astype(str)
            is_index = numbers.shape == (size,) and numbers.dtype.kind in "iu"
            if not is_index or numbers.min() < 0 or numbers.max() >= len(labels):
                expected = f"[{size}] integers from 0 to {len(labels) - 1}"
                raise ValueError(f"{name}: {index} must be {expected}, got {checks.show(numbers)}")
            columns[index], given["category"] = labels[numbers].astype(object), index
            used |= {index, names}
    for key, array in arrays.items():
        role, is_embedding = max(PER_MODEL, key=lambda role: match_level(role, key)), match_level("embedding", key) > 0
        fits = bool(models) and array.shape in ((size, len(models)), (len(models),)) and not is_embedding
        if key in used:
            continue
        if match_level(role, key) and (fits or (array.ndim == 2 and role == "score")):
            is_unclear = array.ndim == 1 and size == len(models)  # A number of each query, or of each model.
            if not fits or is_unclear or array.dtype.kind not in "biuf":
                expected = f"expected [Q, {len(models)}] numbers, a column for each of models"
                raise ValueError(f"{name}: the array {key!r} has shape {array.shape} and dtype {array.dtype}; {expected}")
            if role in given:
                raise ValueError(f"{name}: {given[role][:-2]!r} and {key!r} could both be the {role}: leave one out")
            given[role] = f"{key}.*"
            wide = np.broadcast_to(array, (size, len(models)))
            columns |= {f"{key}.{model}": wide[:, place] for place, model in enumerate(models)}
        elif array.shape == (size,):
            columns[key] = array.astype(object) if array.dtype.kind in "US" else array
        elif array.ndim == 2 and len(array) == size and is_embedding:
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{name}, array {key!r} must be finite numbers, got {checks.show(array)}")
            columns[key] = np.fromiter(array, object)
        else:
            unused.append(key)
    notes = [f"not used: the arrays {join_names(unused)}"] if unused else []
    sheet = Sheet(name, list(columns), columns.__getitem__, about, notes=notes, given=given)
    return sheet, {key: arrays[key] for key in _UNCHANGED if key in arrays}
