"""Attributes of a result in the types that every file format takes: text, whole numbers and floats."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

# What an attribute of the classic format of netCDF can hold.
_WHOLE = np.iinfo(np.int32)


def encoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Writes nested attributes as JSON text and flags as 0 or 1, and leaves out those that are None.

    Text and numbers stay as they are, except whole numbers of more than 32 bits, which become floats: the classic
    format of netCDF has no larger ones.

    Args:
      attributes: plain JSON values by name.
    """
    return {name: _encoded(value) for name, value in attributes.items() if value is not None}


def decoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the JSON texts among attributes, as `encoded` wrote them; all others stay as they are.

    Args:
      attributes: of a result, for example `result.attrs`.
    """
    return {name: _decoded(value) for name, value in attributes.items()}


def _encoded(value: Any) -> Any:
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value)
    if isinstance(value, (bool, int)):
        return int(value) if _WHOLE.min <= value <= _WHOLE.max else float(value)
    return value


def _decoded(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except ValueError:  # Text that merely begins so.
        return value
