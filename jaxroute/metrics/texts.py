"""Numbers and labels as text."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def rounded(middle: float, error: float) -> str:
    """Returns a mean and its standard error as "36.0 (1.6)", rounded to two significant digits of the error.

    Without an error (one seed) the mean has four digits; a NaN is "-". An error within the rounding of float64 counts as none.
    """
    middle, error = float(middle), float(error)
    error = 0.0 if error < 1e-13 * abs(middle) else error
    if not math.isfinite(middle):
        return "-" if math.isnan(middle) else f"{middle:g}"
    if middle == 0 and error == 0:
        return "0"
    if not math.isfinite(error) or error == 0:
        return f"{middle:,.4g}" + (" (0)" if error == 0 else "")
    decimals = 1 - int(f"{error:.1e}".split("e")[1])
    if decimals > 6:
        leading = int(f"{max(abs(middle), error):e}".split("e")[1])
        return f"{round(middle, decimals) + 0.0:.{max(decimals + leading, 0)}e} ({error:.1e})"
    digits = max(decimals, 0)
    return f"{round(middle, decimals) + 0.0:,.{digits}f} ({round(error, decimals):,.{digits}f})"


def plain(value: Any) -> Any:
    """Returns a NumPy number as one of Python; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def show_value(value: Any) -> str:
    """Returns a coordinate as text."""
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,g}" if isinstance(value, float) else str(value)


def show_seeds(counts: Any) -> str:
    """Returns numbers of seeds as "50 seeds", or "48 to 50 seeds" if runs are invalid; zeros (of missing metrics) are left out."""
    counts = np.asarray(counts).ravel()
    counts = counts[counts > 0]
    low, high = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    return f"{high:,} seed{'s' * (high != 1)}" if low == high else f"{low:,} to {high:,} seeds"


def axis_label(attrs: Mapping[str, Any], name: str = "") -> str:
    """Returns label and unit of a variable, for an axis: "cumulative regret (reward)"."""
    label, unit = attrs.get("long_name", name), attrs.get("units", "")
    return f"{label} ({unit})" if unit else str(label)
