"""Returns results at the horizon as a table or as JSON values."""

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from jaxroute.core import checks
from jaxroute.metrics.averages import cells, count, final, mean, quantiles
from jaxroute.metrics.comparisons import violations, worst_violations
from jaxroute.metrics.selection import at_time, check_metrics, check_scalar, like, metric_names, own_axes, setting_axes
from jaxroute.metrics.texts import FORMATS, Table, plain, rounded, show_seeds, show_value


@checks.suggest_keywords
def table(
    data: xr.Dataset,
    metrics: str | Sequence[str] | None = None,
    *,
    time: int | None = None,
    max_rows: int = 60,
    format: Literal["text", "latex", "markdown", "frame"] = "text",
    width: int | None = None,
) -> Any:
    """Returns the results at the horizon as a table: a row per policy and setting, a mean and its standard error in each cell.

    If the results of a policy do not depend on a setting axis, it has a single row for this axis, marked "any". If a metric is NaN in some of the
    valid runs, such as the time of an event that never happens there, the cell has the median of the other runs and their share: "115 in 66 %". A
    mean that is nonzero only by rounding errors of a sum is printed as 0.

    Args:
      data: a result.
      metrics: names (default: all with a single number per run).
      time: recorded time of the values (default: the horizon).
      max_rows: largest number of rows; a last line counts the rows left out. A data frame has all rows.
      format: "text" for aligned lines with "36.0 (1.6)"; "latex" for a `tabular` with the rules of booktabs, ready for a paper, and
        "markdown" for a table with pipes, both with 36.0 ± 1.6; "frame" for a `pandas.DataFrame` of the numbers, whose columns are
        metric and "mean" or "stderr", with the notes in `attrs["notes"]`.
      width: width of the lines of text; columns that do not fit stand below the others (default: all beside each other).

    Raises:
      ValueError: a name is unknown, or a metric is no single number per run.

    Example:
      >>> import jaxroute as jr
      >>> from jaxroute.problems import stochastic
      >>> policies = {"UCB1": stochastic.UCB1(), "Oracle": stochastic.Oracle.of}
      >>> result = jr.simulate(stochastic.bernoulli([0.2, 0.8]), policies, horizon=200, seeds=16, progress=False)
      >>> print(jr.metrics.table(result, "regret", format="markdown"))
      | policy | regret (reward) |
      | :-- | --: |
      | UCB1 | 8.89 ± 0.43 |
      | Oracle | 0 |
      <BLANKLINE>
      mean ± standard error of 16 seeds after 200 rounds
    """
    checks.whole("max_rows", max_rows)
    checks.one_of("format", format, ("text", *FORMATS, "frame"))
    if width is not None:
        checks.whole("width", width)
    names = check_metrics(data, metrics)
    for name in names:
        check_scalar("metrics", like(data, name))
    values, partial = final(data, names, time), _partial(at_time(data, time), names)
    axes = list(dict.fromkeys(a for name in names for a in setting_axes(like(data, name))))
    rounding = _rounding(data, values, time)

    def own(one: xr.Dataset) -> list[str]:
        in_order = [v.transpose(*(a for a in axes if a in v.dims), "statistic") for v in one.data_vars.values()]
        return own_axes([v.rename(statistic="seed") for v in in_order])

    keys, numbers, rows = [], [], []
    for policy, place, where, cell in cells(values, axes, own):
        texts = {n: "0" if _is_rounding(cell[n], rounding[n]) else rounded(*cell[n]) for n in names}
        for name, of_some in partial.items():
            middle, share = (float(x.isel(place, missing_dims="ignore")) for x in of_some)
            if 0.0 < share < 1.0:
                texts[name] = f"{middle:,.4g} in {100 * share:.0f} %"
        settings = [plain(where.get(axis, "any")) for axis in axes]
        keys.append((policy, *settings))
        numbers.append([number for name in names for number in map(float, cell[name])])
        rows.append([policy, *map(show_value, settings), *texts.values()])
    notes = [_footnote(data, names, time)]
    warned = [text for _, text in worst_violations(violations(data, time))]
    if format == "frame":
        return _frame(keys, axes, names, numbers, [*notes, *warned])
    if len(rows) > max_rows:
        notes.append(f"{len(rows) - max_rows:,} more rows are not shown; select settings, or raise max_rows")
    heads = [("policy", ""), *((a, "") for a in axes), *((n, str(like(data, n).attrs.get("units", ""))) for n in names)]
    made = Table(heads, rows[:max_rows], 1 + len(axes), [*notes, *warned[:max_rows]])
    return made.text(width) if format == "text" else FORMATS[format](made)


def _rounding(data: xr.Dataset, values: xr.Dataset, time: int | None) -> dict[str, float]:
    """Returns a limit for each metric in `values`. A mean below it may be only the rounding error of a float32 sum whose terms cancel.

    The limit is float32's epsilon times the largest absolute mean at `time` of any metric in `data` with the same unit. Totals are divided by the
    number of rounds before this comparison, and their limits multiplied by it.
    """
    now = at_time(data, time)
    rounds = float(now["time"]) if "time" in now.coords else 1.0
    if not any(_is_rounding(pair, math.inf) for v in values.values() for pair in v.values.reshape(-1, 2)):
        return dict.fromkeys(map(str, values), 0.0)
    about = {name: like(data, name).attrs for name in {*map(str, values), *metric_names(data)}}
    number = {name: rounds if attrs.get("kind") == "total" else 1.0 for name, attrs in about.items()}
    units = {name: str(attrs.get("units", "")).partition(" per ")[0] for name, attrs in about.items()}
    scale: dict[str, float] = {}
    for name, unit in units.items():
        size = float(np.nan_to_num(np.abs(mean(now, name).values), posinf=0.0).max(initial=0.0))
        scale[unit] = max(scale.get(unit, 0.0), size / number[name])
    return {str(name): float(np.finfo(np.float32).eps) * scale[units[str(name)]] * number[str(name)] for name in values}


def _is_rounding(pair: Any, most: float) -> bool:
    """Whether `pair`, a mean and its standard error, may be a rounding error: all runs are equal, the mean is not 0 and its size at most `most`."""
    middle, error = abs(float(pair[0])), float(pair[1])
    return 0 < middle <= most and error <= 1e-13 * middle


def _frame(keys: Sequence[tuple[Any, ...]], axes: Sequence[str], names: Sequence[str], numbers: Any, notes: Any) -> Any:
    import pandas

    index = pandas.MultiIndex.from_tuples(keys, names=["policy", *axes])
    if not axes:
        index = pandas.Index([policy for (policy,) in keys], name="policy")
    columns = pandas.MultiIndex.from_product([names, ["mean", "stderr"]], names=["metric", "statistic"])
    frame = pandas.DataFrame(np.asarray(numbers, np.float64).reshape(len(keys), 2 * len(names)), index, columns)
    frame.attrs["notes"] = notes
    return frame


def _partial(now: xr.Dataset, names: Sequence[str]) -> dict[str, tuple[xr.DataArray, xr.DataArray]]:
    """Returns median and share of the runs without NaN, for those of the metrics `names` that are NaN in some but not all valid runs of `now`."""
    number = {name: count(now, name) for name in {*names, *metric_names(now)}}
    whole = functools.reduce(np.maximum, number.values(), 1)
    some = [name for name in names if ((number[name] > 0) & (number[name] < whole)).any()]
    return {name: (quantiles(now, name, [0.5]).isel(quantile=0), number[name] / whole) for name in some}


def _footnote(data: xr.Dataset, names: Sequence[str], time: int | None) -> str:
    now = at_time(data, time)
    counts = np.concatenate([np.ravel(count(now, n).values) for n in names]) if names else np.zeros(0, int)
    when = f" after {int(now['time']):,} rounds" if "time" in now.coords else ""
    text = f"mean (standard error) of {show_seeds(counts)}{when}"
    if "valid" in data:
        invalid, runs = int((~data["valid"]).sum()), data["valid"].size
    else:
        invalid, runs = (int(data[name].sum()) if name in data else 0 for name in ("invalid", "runs"))
    why = "not simulated yet, or invalid" if "stopped" in data.attrs else "invalid and left out"
    return f"{text}; {why}: {invalid:,} of {runs:,} runs" if invalid else text


def summary(data: xr.Dataset) -> dict[str, Any]:
    """Returns the results at the horizon as plain JSON values; None for NaN. Vector metrics are left out.

    The structure is `{policy: {metric: {"mean": float, "stderr": float}}}`. With setting axes, each policy has a list with one entry per setting:
    `{policy: [{"coordinates": {axis: value}, metric: {"mean": ..., "stderr": ...}, ...}, ...]}`.
    """
    values, answer = final(data), dict[str, Any]()
    axes = list(dict.fromkeys(a for name in values.data_vars for a in setting_axes(like(data, str(name)))))
    for policy, _, where, cell in cells(values, axes, lambda one: axes):
        entry = {name: {"mean": _finite(middle), "stderr": _finite(error)} for name, (middle, error) in cell.items()}
        if axes:
            coordinates = {axis: _finite(value) for axis, value in where.items()}
            answer.setdefault(policy, []).append({"coordinates": coordinates, **entry})
        else:
            answer[policy] = entry
    return answer


def _finite(value: Any) -> Any:
    value = plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
