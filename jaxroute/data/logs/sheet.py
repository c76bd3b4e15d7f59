"""Named columns of cells: the form in which every log is opened, and data frames, parquet and Excel files in that form."""

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jaxroute.core import checks

from ..files import errors_name, import_optional, join_names
from .presets import Preset
from .records import first_object, frame_of


@dataclass(eq=False)
class Sheet:
    """Named columns of cells, each read when it is first used."""

    name: str  # Name of the file, or "the data frame".
    names: list[str]  # Names of the columns, in order.
    read: Callable[[str], np.ndarray]  # Reads the cells of a column.
    about: str  # Kind of the file, in words.
    place_of: Callable[[int], str] | None = None  # Names the place of a row of the file.
    separator: str | None = None  # Mark between columns of text.
    notes: list[str] = field(default_factory=list)  # Lines about what was skipped or assumed.
    preset: Preset | None = None  # Known format of the file.
    given: dict[str, str] = field(default_factory=dict)  # Columns by role that the kind of file determines.
    encodings: tuple[str, ...] = ()  # Possible encodings, if there are several.
    decimal_comma: bool = False  # Whether numbers in the file have one.
    made: set[str] = field(default_factory=set)  # Columns that were made of others.
    rows: np.ndarray | None = None  # Numbers of the selected rows, None for all.
    _cells: dict[str, np.ndarray] = field(default_factory=dict)

    def cells(self, name: str) -> np.ndarray:
        """Returns the `[R]` cells of a column; an absent one is None, NaN or an empty text."""
        if name not in self._cells:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.name} has {self.names.count(name)} columns {name!r}: rename or remove all but one")
            with errors_name(self.name):
                cells = self.read(name)
            self._cells[name] = cells if self.rows is None else cells[self.rows]
        return self._cells[name]

    def put(self, name: str, cells: np.ndarray) -> None:
        """Adds or replaces a column."""
        self.made.add(name)
        if name not in self.names:
            self.names.append(name)
        self._cells[name] = cells

    def select(self, rows: np.ndarray) -> None:
        """Drops all rows except these, `[R]` numbers."""
        self.rows = rows if self.rows is None else self.rows[rows]
        self._cells = {name: cells[rows] for name, cells in self._cells.items()}

    @property
    def num_rows(self) -> int:
        """Number of rows, `R`."""
        if self.rows is not None:
            return len(self.rows)
        return len(next(iter(self._cells.values())) if self._cells else self.read(self.names[0]))

    def place(self, row: int) -> str:
        """Returns the name of the file and the place of a row in it."""
        row = int(row if self.rows is None else self.rows[row])
        return f"{self.name}, {self.place_of(row) if self.place_of else f'row {row} (from 0)'}"

    def single(self, names: Sequence[str]) -> list[str]:
        """Returns the names that only one column has."""
        counts = Counter(self.names)
        return [name for name in names if counts[name] == 1]


def sheet_of_frame(name: str, frame: pd.DataFrame, about: str, **attributes: Any) -> Sheet:
    """Returns a data frame as a sheet."""
    if not frame.size:
        raise ValueError(f"{name} has no {'columns' if len(frame) else 'rows'}")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if frame.columns.is_unique and any(first_object(column) is not None for _, column in frame.items()):
        frame = frame_of(frame.to_dict("records"))
    names = list(frame.columns)

    def read(column: str) -> np.ndarray:
        cells = frame.iloc[:, names.index(column)]
        return cells.to_numpy() if isinstance(cells.dtype, np.dtype) else cells.astype(object).to_numpy()

    return Sheet(name, list(names), read, about, **attributes)


def sheet_in_memory(data: Any) -> Sheet:
    """Returns a data frame of any library, a dict of columns or a list of records as a sheet."""
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
    frame = data
    if not isinstance(data, pd.DataFrame) and not np.isscalar(data) and data is not None:  # polars, pyarrow, Hugging Face.
        if not hasattr(data, "to_pandas"):
            data = import_optional("narwhals").from_native(data, eager_only=True, pass_through=True)
        frame = data.to_pandas() if hasattr(data, "to_pandas") else data
    if not isinstance(frame, pd.DataFrame):
        kinds = "the name of a file, a RoutingTable, a data frame, a dict of columns or a list of records"
        raise ValueError(f"data must be {kinds}, got {checks.show(data)}")
    if frame.columns.nlevels > 1:  # Pivoted.
        frame = frame.set_axis(["|".join(str(part) for part in column if str(part)) for column in frame.columns], axis=1)
    if all(name is not None for name in frame.index.names):  # Made by groupby or set_index.
        new = [name for name in frame.index.names if name not in frame.columns]
        frame = frame.reset_index(level=new).reset_index(drop=True)
    return sheet_of_frame("the data frame", frame, "a data frame")


def open_parquet(path: Path, content: Any) -> Sheet:
    """Opens a parquet file, of which only the columns that are used are read."""
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
        """Table with a column for each field of a struct."""
        while any(arrow.types.is_struct(kind) for kind in table.schema.types):
            table = table.flatten()
        return table

    def read(name: str) -> np.ndarray:
        # Not read_table, to which a dot in a name (as in Wizard-V1.2) can mean a field of a struct.
        column = flat(file.read(columns=[name]))[name]
        if arrow.types.is_dictionary(column.type):  # Plain first: to_numpy gives a missing value a label.
            column = column.cast(column.type.value_type)
        if arrow.types.is_nested(column.type):
            cells = np.empty(len(column), object)
            cells[:] = column.to_pylist()
            return cells
        return column.to_numpy()

    return Sheet(str(path), flat(file.schema_arrow.empty_table()).column_names, read, "a parquet file")


def open_excel(path: Path, content: bytes) -> Sheet:
    """Opens the first sheet with a table of an Excel file; rows before the names of the columns are skipped and noted."""
    import_optional("openpyxl")
    reading = {"sheet_name": None, "header": None, "dtype": object, "keep_default_na": False, "engine": "openpyxl"}
    try:
        book: dict[str, pd.DataFrame] = pd.read_excel(io.BytesIO(content), **reading)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not an Excel file (xlsx), or is damaged: {error}") from None
    filled = {name: frame for name, frame in book.items() if frame.size}
    if not filled:
        raise ValueError(f"{path}, sheet {next(iter(book))!r} is empty")
    sheet_name = next((name for name, frame in filled.items() if min(frame.shape) > 2), next(iter(filled)))  # No cover.
    frame = filled.pop(sheet_name)
    has_content = frame.map(lambda cell: cell is not None and cell == cell and cell != "").to_numpy()
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

    def read(name: str) -> np.ndarray:
        return frame.iloc[rows, columns[names.index(name)]].to_numpy(dtype=object)

    about = f"an Excel file, sheet {sheet_name!r}{others}"
    return Sheet(str(path), list(names), read, about, lambda row: f"line {rows[row] + 1}", notes=notes)
