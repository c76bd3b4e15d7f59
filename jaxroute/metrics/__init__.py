"""Statistics of results: means with standard errors, paired differences, tables, windows and log-log slopes.

Every function takes the `xarray.Dataset` of a simulation, or one of its variables (a `DataArray`, with `metric=None`), and returns labelled values.
Runs that are not `valid` are left out; a `DataArray` does not say which runs are valid, so set the values of invalid runs to NaN first. Dimensions
keep their order: those before `seed`, except `policy`, are settings, and those after `seed`, except `time`, index the numbers of a vector metric,
such as one for each model. A result of `keep="moments"` has moments and histograms instead of single runs; functions that need single runs raise
`NeedsRunsError`.
"""

from jaxroute.core.exports import public_names
from jaxroute.metrics.averages import count, deviation, final, mean, quantile_intervals, quantiles, stderr, tail
from jaxroute.metrics.comparisons import Violation, direction, paired, ratio_of_means, violations, worst_violations
from jaxroute.metrics.selection import (
    NeedsRunsError,
    has_runs,
    metric_names,
    own_axes,
    own_axes_of,
    pick,
    setting_axes,
    vector_dims,
)
from jaxroute.metrics.slopes import Slope, cumulative, curve_slope, slope, window_mean
from jaxroute.metrics.tables import summary, table
from jaxroute.metrics.texts import rounded, show_seeds, show_value

__all__ = ["NeedsRunsError", "Slope", "Violation", "count", "cumulative", "curve_slope", "deviation", "direction"]
__all__ += ["final", "has_runs", "mean", "metric_names", "own_axes", "own_axes_of", "paired", "pick"]
__all__ += ["quantile_intervals", "quantiles", "ratio_of_means", "rounded", "setting_axes", "show_seeds", "show_value"]
__all__ += ["slope", "stderr", "summary", "table", "tail", "vector_dims", "violations", "window_mean"]
__all__ += ["worst_violations"]
__dir__ = public_names(__name__)
