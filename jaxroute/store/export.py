"""Exports stored results to formats of other programs: Zarr, netCDF and tables in Parquet."""

import itertools
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from jaxroute.core.checks import show
from jaxroute.store.results import load

# Largest number of rows of a table that are in memory at the same time.
_ROWS = 1 << 20
# Limits of the classic format of netCDF: bytes of a variable, and range of integers.
_CLASSIC_BYTES, _CLASSIC_WHOLE = 1 << 31, np.iinfo(np.int32)


def export(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> list[Path]:
    """Writes a stored result to files in the format that the ending of their name specifies.

    - `.zarr`: a folder of Zarr, which `xarray.open_zarr` reads.
    - `.nc`: a file of netCDF, which `xarray.open_dataset` reads. A result that the classic format cannot hold needs h5netcdf or netCDF4.
    - `.parquet`: a table, which pandas, polars, R and DuckDB read: a row for each policy, setting, seed and time (statistics have no seeds), and a
      column for each of these and for each variable. Variables with one number per model, baseline or bin of a histogram are in separate tables,
      `NAME.model.parquet`, `NAME.baseline.parquet`, `NAME.regret_bin.parquet`; bins without runs are left out. Attributes are in the schema's
      metadata, under "jaxroute".

    Args:
      path: folder or URL of the store.
      to: name of the new file or folder.

    Returns:
      The new files and folders.

    Raises:
      ValueError: there is no complete result, or the name has another ending.
      FileExistsError: a file with the new name exists.
      ImportError: a package for this format is not installed.
    """
    to = Path(to)
    if to.suffix not in _WRITERS:
        raise ValueError(f"what is exported must be named *{', *'.join(_WRITERS)}, got {show(str(to))}")
    data = load(path)
    to.parent.mkdir(parents=True, exist_ok=True)
    made = _WRITERS[to.suffix](data, to)
    for target in made:
        if target.exists():
            raise FileExistsError(f"{str(target)!r} exists: remove it first, or choose another name")
    for target, write in made.items():
        partial = target.with_name(f"{target.name}.partial")
        try:
            write(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
    return list(made)


# Functions that write a file under a temporary name, by the final path of the file.
_Writers = Mapping[Path, Callable[[Path], Any]]


def _zarr(data: xr.Dataset, to: Path) -> _Writers:
    def write(partial: Path) -> None:
        with warnings.catch_warnings(action="ignore"):  # About texts and consolidated metadata, which programs can read.
            data.to_zarr(partial, mode="w", consolidated=True)

    return {to: write}


def _netcdf(data: xr.Dataset, to: Path) -> _Writers:
    engine: Any = "scipy"
    if not all(map(_is_classic, data.variables.values())):
        engine = next((one for one, name in (("h5netcdf", "h5netcdf"), ("netcdf4", "netCDF4")) if find_spec(name)), "")
        if not engine:
            raise ImportError(
                "the result is too large for the classic format of netCDF: pip install h5netcdf, or export it as .zarr"
            )
    return {to: lambda partial: data.to_netcdf(partial, engine=engine)}


def _is_classic(variable: xr.Variable) -> bool:
    if variable.nbytes >= _CLASSIC_BYTES:
        return False
    whole = variable.dtype.kind in "iu" and variable.dtype.itemsize >= 4 and variable.size > 0
    return not whole or bool(_CLASSIC_WHOLE.min <= variable.values.min() and variable.values.max() <= _CLASSIC_WHOLE.max)


def _parquet(data: xr.Dataset, to: Path) -> _Writers:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError(f'{to.name!r} needs pyarrow: pip install "jaxroute[data]"') from None
    # `baseline` and all dimensions after `time` (models, bins) put a variable into a separate table.
    tables: dict[tuple[str, ...], list[str]] = {}
    for name, variable in data.data_vars.items():
        vector = variable.dims[variable.dims.index("time") + 1 :] if "time" in variable.dims else ()
        beside = tuple(str(one) for one in variable.dims if one == "baseline" or one in vector)
        tables.setdefault(beside, []).append(str(name))

    def writer(names: Sequence[str]) -> Callable[[Path], None]:
        def write(partial: Path) -> None:
            about = {"attributes": data.attrs, "variables": {name: data[name].attrs for name in names}}
            rows = (pyarrow.Table.from_pandas(part, preserve_index=False) for part in _rows(data, names))
            schema = (first := next(rows)).schema.with_metadata({"jaxroute": json.dumps(about)})
            with pyarrow.parquet.ParquetWriter(partial, schema) as file:
                for table in itertools.chain([first], rows):
                    file.write_table(table.replace_schema_metadata(schema.metadata))

        return write

    return {to.with_name(".".join([to.stem, *dims, "parquet"])): writer(names) for dims, names in tables.items()}


def _rows(data: xr.Dataset, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yields the rows of the table of these variables in parts that fit into memory: some seeds of one policy each."""
    dims = [str(dim) for dim in max((data[name].dims for name in names), key=len)]
    step = max(1, _ROWS // math.prod(data.sizes[d] for d in dims if d not in ("policy", "seed")))
    seeds = data.sizes["seed"] if "seed" in dims else 1
    for policy, first in itertools.product(range(data.sizes["policy"]), range(0, seeds, step)):
        part = {"policy": slice(policy, policy + 1), "seed": slice(first, first + step)}
        some = data[list(names)].isel({d: part[d] for d in dims if d in part})
        rows = some.to_dataframe(dim_order=dims).reset_index()
        if names[0].endswith("_histogram") and dims[-1] == f"{names[0].removesuffix('_histogram')}_bin":
            rows = rows.loc[rows[names[0]] > 0]
        yield rows


_WRITERS: dict[str, Callable[[xr.Dataset, Path], _Writers]] = {".zarr": _zarr, ".nc": _netcdf, ".parquet": _parquet}
