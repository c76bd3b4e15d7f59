"""What claims are made of: verdicts, each a text and whether it holds, and functions of the results that give one."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr

from jaxroute.analysis import metrics
from jaxroute.experiments.base import Results
from jaxroute.experiments.measure import Measured, along, end, power_law, runs_of, show
from jaxroute.experiments.quantities import Quantity

# What was measured, in words, and whether the claim holds.
Verdict = tuple[str, bool]
Measure = Callable[[Results], Verdict]
# Runs behind a number whose standard error is not known.
_FEW_RUNS = 24


def all_hold(before: str = "", between: str = "; ") -> Callable[[Callable[[Results], Iterator[Verdict]]], Measure]:
    """Makes one verdict of those that a function yields: their texts in one line, and whether all of them hold, at least one.

        @all_hold("regret of COSMOS, ")
        def _small(results: Results) -> Iterator[Verdict]:
            for name, data in results.items():
                value = end(data, "regret", "COSMOS")
                yield f"{name}: {show(value)}", value.below(10.0, by=3.0)

    Args:
      before: begins the text.
      between: separates the texts of the verdicts.
    """

    def of(verdicts: Callable[[Results], Iterator[Verdict]]) -> Measure:
        @functools.wraps(verdicts)
        def measure(results: Results) -> Verdict:
            found = list(verdicts(results))
            if not found:
                return "nothing to judge", False
            return before + between.join(text for text, _ in found), all(bool(holds) for _, holds in found)

        return measure

    return of


def slope_within(runs: xr.DataArray, axis: str, low: float, high: float) -> Verdict:
    """Whether the mean over seeds follows a power law along an axis, with a power between two numbers."""
    fit = power_law(runs, axis)
    if fit is None:
        return "no slope: too few times, or a mean that is not positive", False
    return f"slope {fit.slope:.3f} (95 %: {fit.low:.3f} to {fit.high:.3f})", low <= fit.slope <= high


def grows_as(
    metric: str, policy: str, low: float, high: float, cases: Mapping[str, Any] | None = None, **where: Any
) -> Measure:
    """Whether a policy's metric follows a power law in the horizons of the cases, with a power between two numbers.

    Args:
      metric: what grows (or falls).
      policy: whose metric.
      low, high: the band of powers.
      cases: coordinates of the cases that count.
      where: setting.
    """

    def measure(results: Results) -> Verdict:
        runs = along(results, metric, "horizon", **(cases or {})).sel(policy=policy, **where)
        return slope_within(runs, "horizon", low, high)

    return measure


class Number(NamedTuple):
    """What somebody else measured.

    policy: name. horizon: of the run. value, error: mean and its standard error; None where it is not known, for that of 24 runs like
    those it is compared with. time: round (default: the horizon). where: setting, as pairs of axis and value. metric, case: names.
    """

    policy: str
    horizon: int
    value: float
    error: float | None
    time: int | None = None
    where: tuple[tuple[str, Any], ...] = ()
    metric: str = "regret"
    case: str = "result"


def agrees(numbers: Sequence[Number], num_sigma: float = 4.0) -> Measure:
    """Whether means are within so many joint standard errors of the given ones, at the horizon for which these were measured."""

    def measure(results: Results) -> Verdict:
        parts, worst = [], 0.0
        for number in numbers:
            data = results[number.case]
            if int(data["time"][-1]) != number.horizon:
                return f"the numbers are for {number.horizon:,} rounds, not {int(data['time'][-1]):,}", False
            where = dict(number.where)
            here = end(data, number.metric, number.policy, number.time, **where)
            error = number.error
            if error is None:
                runs = runs_of(data, number.metric, number.policy, number.time, **where)
                error = float(runs.std(ddof=1)) / math.sqrt(_FEW_RUNS)
            worst = max(worst, abs(here.mean - number.value) / max(math.hypot(here.error, error), 1e-12))
            label = [number.case] if len(results) > 1 else []
            label += [number.policy, *(f"{axis} {metrics.show_value(value)}" for axis, value in where.items())]
            label += [f"at {number.time:,}"] if number.time else []
            label += [number.metric] if number.metric != "regret" else []
            parts.append(f"{' '.join(label)}: {show(here)} against {number.value:g} ({error:.2g})")
        return f"largest gap {worst:.1f} joint standard errors; " + "; ".join(parts), worst <= num_sigma

    return measure


def _found(value: Quantity | float, results: Results) -> tuple[str, Measured]:
    if not isinstance(value, Quantity):
        return f"{value:,g}", Measured(value, 0.0)
    found = value.of(results)
    return f"{value.name} {value.show(found)}", found


def _compared(chains: Sequence[Sequence[Quantity | float]], ordered: Callable[[Measured, Measured], bool]) -> Measure:
    def judge(results: Results) -> Verdict:
        found = [[_found(value, results) for value in chain] for chain in chains]
        holds = all(ordered(a, b) for chain in found for (_, a), (_, b) in itertools.pairwise(chain))
        return "; ".join(" against ".join(text for text, _ in chain) for chain in found), holds

    return judge


def rising(*chains: tuple[Quantity | float, ...], by: float = 3.0) -> Measure:
    """Whether in each chain every quantity is below the next by so many joint standard errors."""
    return _compared(chains, lambda a, b: a.below(b, by=by))


def near(*pairs: tuple[Quantity, Quantity | float], by: float = 2.0, slack: float = 0.0) -> Measure:
    """Whether the two of each pair differ by less than so many joint standard errors and a share of the second."""
    return _compared(pairs, lambda a, b: a.near(b, by=by, slack=slack * abs(b.mean)))
