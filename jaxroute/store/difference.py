"""The first difference of two descriptions, in words."""

import json
from typing import Any

from jaxroute.core.checks import show


def first_difference(stored: Any, wanted: Any, where: str = "") -> str:
    """The first difference of two JSON values, in words; empty if there is none."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in [*stored, *(k for k in wanted if k not in stored)]:
            place = f"{where}.{key}" if where else key
            if key not in stored or key not in wanted:
                return f"{place} is only in {'the store' if key in stored else 'this run'}"
            found = first_difference(stored[key], wanted[key], place)
            if found:
                return found
        return ""
    if isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        return next(
            (
                d
                for i, (a, b) in enumerate(zip(stored, wanted, strict=True))
                if (d := first_difference(a, b, f"{where}[{i}]"))
            ),
            "",
        )
    return "" if json.dumps(stored) == json.dumps(wanted) else f"{where} is {show(stored)} there and {show(wanted)} here"
