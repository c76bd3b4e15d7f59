"""Reads pickles of data frames, and of dicts of arrays, without running their code.

A pickle is a program that calls functions by name. Here each name becomes a record type that only stores its arguments, so the program
runs without effect. NumPy's own types are replaced as well, because a forged dtype can make them read other memory.
"""

import contextlib
import functools
import io
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np


class UnsafePickleError(ValueError):
    """Error about a pickle that names a function which no data frame needs; it is raised before anything runs."""


def open_pickle(path: str | os.PathLike, content: bytes) -> dict | tuple[list[str], Callable[[str], np.ndarray]]:
    """Opens the bytes of a pickle (pandas 1.5 to 3, protocol 4 or 5) without running its code; `path` is for messages.

    Returns a dict with decoded arrays or, for a data frame, its columns' names and a function that reads a column. Raises `ValueError` for others.
    """
    with _explain_damage(path):
        frame = _RecordUnpickler(io.BytesIO(content)).load()
        if isinstance(frame, dict):
            return _decode_tree(frame)
        blocks, (columns, index) = frame.state["_mgr"].args  # BlockManager(blocks, (columns, rows))
        names = [str(name) for name in _decode(columns)]
        places = {}
        for block in blocks:
            values, where, *_ = block.args  # _unpickle_block(values, placement, ndim)
            if isinstance(where, slice):
                numbers = range(len(names))[slice(*map(_decode_object, (where.start, where.stop, where.step)))]
            else:
                numbers = _decode(where).tolist()
            places |= {names[column]: (values, i) for i, column in enumerate(numbers)}
        named = index.args[1].get("name") if type(index).__name__ == "_new_Index" else None
        if isinstance(named, str) and named not in names:  # Made by set_index or groupby.
            names, places = [named, *names], {named: (index, 0), **places}
    decode = functools.cache(_decode)  # A block holds many columns, and is decoded once.

    def read(name: str) -> np.ndarray:
        with _explain_damage(path):
            values, i = places[name]
            block = decode(values)
            return block[i] if block.ndim == 2 else block

    return names, read


@contextlib.contextmanager
def _explain_damage(path: str | os.PathLike) -> Iterator[None]:
    """Context manager for reading a pickle: if it is damaged or of an unknown kind, the error becomes a `ValueError` that suggests other formats."""
    try:
        yield
    except UnsafePickleError as error:
        raise UnsafePickleError(f"{path}: {error}") from None
    except Exception as error:  # A damaged stream can fail in any operation.
        raise ValueError(f"{path} is not a pickled data frame that can be read ({error!r}); use csv or parquet") from error


_FRAME_PARTS = {  # Modules within a package moved between versions, so names are listed by package.
    "builtins": "bytearray getattr slice",
    "numpy": "_frombuffer _reconstruct dtype ndarray scalar",
    "pandas": "DataFrame BlockManager _unpickle_block new_block Index RangeIndex Int64Index _new_Index ArrowStringArray StringArray "
    "StringDtype NA __pyx_unpickle_NDArrayBacked Categorical CategoricalDtype DatetimeArray TimedeltaArray PeriodArray DatetimeTZDtype "
    "PeriodDtype IntegerArray FloatingArray BooleanArray BooleanDtype Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype "
    "UInt32Dtype UInt64Dtype Float32Dtype Float64Dtype",
    "datetime": "timezone timedelta",
    "zoneinfo": "ZoneInfo",
    "pyarrow": "_restore_array py_buffer type_for_alias",
}


class _Record:
    """Replacement of an object in a pickle: stores the arguments and the state from which the object would be made."""

    __slots__ = ("args", "state")

    def __new__(cls, *args: Any) -> "_Record":
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _RecordUnpickler(pickle.Unpickler):
    """Reads a pickle into `_Record`s; each has a type with the name of the original class or function."""

    def find_class(self, module: str, name: str) -> Any:
        parts = _FRAME_PARTS.get(module.partition(".")[0], "").split()
        if name not in parts and module != "pandas._libs.tslibs.offsets":
            reason = "which is not a known part of a data frame; nothing was run: save it as parquet or csv"
            raise UnsafePickleError(f"refused {module}.{name}, {reason}")

        def record_type(owner: Any, name: str) -> type:
            return type(str(name), (_Record,), {"__slots__": ()})

        # An attribute, as `ZoneInfo._unpickle`, is a record type, too. Its getter is new each time: a pickle can give it attributes.
        builtins = {"bytearray": bytearray, "slice": slice, "getattr": record_type}
        return builtins[name] if module == "builtins" else record_type(module, name)


def _decode(record: _Record) -> np.ndarray:
    """Decodes the array that a record replaces: numbers keep their dtype, strings and mixtures become an object array."""
    kind = type(record).__name__
    if kind == "_frombuffer":
        data, dtype, shape, order = record.args
        return np.frombuffer(data, _decode_dtype(dtype)).reshape(shape, order=order)
    if kind == "_reconstruct":  # An ndarray; its content is in the state.
        _, shape, dtype, fortran, data = record.state
        dtype = _decode_dtype(dtype)
        flat = np.fromiter(map(_decode_object, data), object) if dtype.kind == "O" else np.frombuffer(data, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    if kind == "_new_Index":
        return _decode(record.args[1]["data"])
    if kind == "ArrowStringArray":
        return _decode_strings(record.state["_pa_array"].args[0])
    if kind in ("IntegerArray", "FloatingArray", "BooleanArray"):  # Nullable columns.
        values = _decode(record.state["_data"]).astype(object)
        values[_decode(record.state["_mask"])] = None
        return values
    if kind == "__pyx_unpickle_NDArrayBacked":
        dtype, values, *_ = record.state
        if "PeriodArray" in str(record.args[0]):
            raise ValueError("a column of periods: save it as parquet or csv")
        if type(dtype).__name__ == "CategoricalDtype":
            categories = np.append(_decode(dtype.state["categories"]).astype(object), np.array([None]))
            return categories[_decode(values)]  # Code -1 is a missing value and meets the None at the end.
        return _decode(values)
    raise ValueError(f"a column is stored as {kind}")


def _decode_dtype(record: _Record) -> np.dtype:
    """Returns the dtype of a record from its code, such as "f8", and byte order, not from the rest of the pickle, which may be forged."""
    name, byte_order = record.args[0], record.state[1]
    if name in ("M8", "m8"):
        unit = record.state[-1][1][0]
        name = f"{name}[{unit.decode() if isinstance(unit, bytes) else unit}]"
    if not re.fullmatch(r"b1|[iu][1248]|f[248]|O8|U\d{1,6}|[Mm]8\[(s|ms|us|ns|D|h|m)\]", name):
        raise ValueError(f"a column has dtype {name!r}")
    return np.dtype(name).newbyteorder(byte_order)


def _decode_object(value: Any) -> Any:
    """Decodes an entry of an object array: Python values and NumPy scalars stay, anything else (such as pandas' NA) becomes None."""
    if type(value).__name__ == "scalar" and isinstance(value, _Record):
        dtype, data = value.args
        return np.frombuffer(data, _decode_dtype(dtype))[0].item()
    return None if isinstance(value, (_Record, type)) else value  # NA is a name, hence a record type.


def _decode_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_tree(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_decode_tree(part) for part in value]
    return _decode(value) if isinstance(value, _Record) else value


def _decode_strings(arguments: Sequence[Any]) -> np.ndarray:
    """Decodes the strings of an Arrow array from `arguments`, which include its validity bits, offsets and characters; missing ones are None."""
    kind, length, _, start, buffers, *_ = arguments
    # Arrow leaves out the buffer of an array without missing values or without characters.
    valid, offsets, characters = (b"" if buffer is None else bytes(buffer.args[0]) for buffer in buffers)
    dtype = {"large_string": "<i8", "string": "<i4"}[kind.args[0]]
    ends = np.frombuffer(offsets, dtype)[start : start + length + 1].tolist()
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[start : start + length]
    present = bits if valid else np.ones(length, bool)
    parts = zip(ends[:-1], ends[1:], present, strict=True)
    return np.array([characters[begin:end].decode() if there else None for begin, end, there in parts], object)
