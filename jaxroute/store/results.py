"""Results by what is kept of them: every run, or statistics over the runs. `load` reads one, `open_sink` is where a new one goes."""

import os
import warnings

import xarray as xr

from jaxroute.core import checks
from jaxroute.store import moments, runs
from jaxroute.store.description import FORMAT, READABLE, STORE_NAME, Contents, own_attributes, place_of
from jaxroute.store.growth import grow
from jaxroute.store.sink import Sink


def open_sink(
    keep: str, path: str | os.PathLike[str] | None, contents: Contents, *, repair: bool = True, rank: int = 0
) -> Sink:
    """Where the blocks of a run go.

    Args:
      keep: "runs" or "moments".
      path: folder or URL of the store, None to keep the result in memory.
      contents: what the result will hold.
      repair: has an existing store grow to what the run asks for, checks what it holds, and takes out what is damaged; one process of a run
        does that.
      rank: of this process.

    Raises:
      ValueError: the result does not fit into memory.
      OSError: the store cannot be written.
    """
    checks.one_of("keep", keep, ("runs", "moments"))
    if path is not None and repair:
        grow(path, contents)
    if keep == "moments":
        return moments.MomentSink(path, contents, repair=repair, rank=rank)
    return runs.RunSink(path, contents, repair=repair)


def load(path: str | os.PathLike[str], *, partial: bool = False) -> xr.Dataset:
    """Reads a stored result.

    Args:
      path: the folder or URL given as `out`, or the store inside it.
      partial: accept a store whose run has not finished; blocks that are missing are NaN.

    Raises:
      ValueError: there is no store, or it is unfinished.
      ImportError, OSError: a URL cannot be read.
    """
    store = place_of(path)
    if store.is_interrupted():
        raise ValueError(f"the run that made the result in {str(path)!r} larger has not ended; run it again to complete it")
    if not store.is_folder():
        raise ValueError(f"path must be a folder with a stored result, got {str(path)!r}, which has no {STORE_NAME}")
    attributes = own_attributes(path)
    if attributes is None:
        raise ValueError(f"path must hold a jaxroute result, got {str(path)!r}, which holds something else")
    if attributes["settings"].get("format") not in READABLE:
        raise ValueError(f"the result in {str(path)!r} is laid out as another version of jaxroute does it; run it again")
    if attributes["settings"]["format"] != FORMAT:
        warnings.warn(
            f"the result in {str(path)!r} was written by an earlier version of jaxroute: whether its description is what was written, and whether "
            "its blocks are its own, cannot be told",
            stacklevel=2,
        )
    if attributes["settings"].get("keep", "runs") == "moments":
        return moments.load(store, attributes, partial)
    return runs.load(str(path), store, attributes, partial)
