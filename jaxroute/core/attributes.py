"""Conversion of a result's attributes to text, integers and floats, the only types that every file format can store."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

# The classic netCDF format has 32-bit integers.
_WHOLE = np.iinfo(np.int32)


def encoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Encodes nested attributes as JSON text, booleans as 0 or 1, and integers of more than 32 bits as floats. Drops attributes that are None."""
    return {name: _encoded(value) for name, value in attributes.items() if value is not None}


def decoded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `attributes` with nested ones restored from the JSON text that `encoded` wrote. All other values, such as 1 for True, stay the same."""
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
    except ValueError:  # Text that only looks like JSON.
        return value
