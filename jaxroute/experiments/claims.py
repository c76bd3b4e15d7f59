"""Parts of claims: functions of the results that return a text and the statements that decide the verdict."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr

from jaxroute import metrics
from jaxroute.experiments.base import Results
from jaxroute.experiments.measure import along, end, power, show, show_slope
from jaxroute.experiments.quantities import Quantity
from jaxroute.experiments.verdicts import Measured, Stated, Statement, at_least

# Measured values in words, and statements about them: a claim holds if all are true.
Finding = tuple[str, Stated]
Measure = Callable[[Results], Finding]


def all_hold(before: str = "", between: str = "; ") -> Callable[[Callable[[Results], Iterator[Finding]]], Measure]:
    """Joins the findings that a function yields: their texts in one line, and the statement that all are true, at least one.

        @all_hold("regret of COSMOS, ")
        def _small(results: Results) -> Iterator[Finding]:
            for name, data in results.items():
                value = end(data, "regret", "COSMOS")
                yield f"{name}: {show(value)}", value.below(10.0)

    Args:
      before: beginning of the text.
      between: separator of the findings' texts.
    """

    def of(findings: Callable[[Results], Iterator[Finding]]) -> Measure:
        @functools.wraps(findings)
        def measure(results: Results) -> Finding:
            found = list(findings(results))
            text = before + between.join(text for text, _ in found) if found else "nothing to judge"
            return text, at_least(None, [stated for _, stated in found])

        return measure

    return of


def slope_within(runs: xr.DataArray, axis: str, low: float, high: float, is_: float | None = None) -> Finding:
    """States that the mean over seeds follows a power law along an axis, with a power between two numbers, optionally a given one."""
    fit = power(runs, axis)
    if math.isnan(fit.mean):
        return "no slope: too few times, or a mean that is not positive", fit.within(low, high, is_)
    return f"slope {show_slope(fit)}", fit.within(low, high, is_)


def grows_as(
    metric: str, policy: str, low: float, high: float, cases: Mapping[str, Any] | None = None, **where: Any
) -> Measure:
    """States that a policy's metric is a power law of the cases' horizons, with a power between two numbers.

    Args:
      metric: its name.
      policy: its name.
      low, high: bounds of the power.
      cases: coordinates of the cases to use (default: all).
      where: setting.
    """

    def measure(results: Results) -> Finding:
        runs = along(results, metric, "horizon", **(cases or {})).sel(policy=policy, **where)
        return slope_within(runs, "horizon", low, high)

    return measure


class Number(NamedTuple):
    """Mean from a publication.

    Attributes:
      policy: its name.
      horizon: number of rounds.
      value: the mean.
      runs: number of runs, whose standard deviation is taken to be that of the compared runs.
      where: setting as pairs of axis and value.
      metric, case: their names.
    """

    policy: str
    horizon: int
    value: float
    runs: int
    where: tuple[tuple[str, Any], ...] = ()
    metric: str = "regret"
    case: str = "result"

    def measured(self, deviation: float) -> Measured:
        """The mean with its standard error, for a standard deviation of the runs."""
        error = deviation / math.sqrt(self.runs)
        return Measured(self.value, error, dof=self.runs - 1, number=math.inf, floor=error)


def agrees(numbers: Sequence[Number], share: float) -> Measure:
    """States that means are within a share of the given ones, at the horizon of these."""

    def measure(results: Results) -> Finding:
        parts, stated = [], []
        for number in numbers:
            data = results[number.case]
            if int(data["time"][-1]) != number.horizon:
                horizons = f"{number.horizon:,} rounds, not {int(data['time'][-1]):,}"
                return f"the numbers are for {horizons}", at_least(None, [])
            where = dict(number.where)
            here = end(data, number.metric, number.policy, **where)
            other = number.measured(here.error * math.sqrt(here.number))
            label = [number.case] if len(results) > 1 else []
            label += [number.policy, *(f"{axis} {metrics.show_value(value)}" for axis, value in where.items())]
            label += [number.metric] if number.metric != "regret" else []
            parts.append(f"{' '.join(label)}: {show(here)} against {show(other)}")
            stated.append(here.near(other, share * abs(number.value)))
        return "; ".join(parts), stated

    return measure


def _found(value: Quantity | float, results: Results) -> tuple[str, Measured]:
    if not isinstance(value, Quantity):
        return f"{value:,g}", Measured(value)
    found = value.of(results)
    return f"{value.name} {value.show(found)}", found


def _compared(chains: Sequence[Sequence[Quantity | float]], state: Callable[[Measured, Measured], Statement]) -> Measure:
    def measure(results: Results) -> Finding:
        found = [[_found(value, results) for value in chain] for chain in chains]
        stated = [state(a, b) for chain in found for (_, a), (_, b) in itertools.pairwise(chain)]
        return "; ".join(" against ".join(text for text, _ in chain) for chain in found), stated

    return measure


def rising(*chains: tuple[Quantity | float, ...]) -> Measure:
    """States that every quantity of a chain is below the next."""
    return _compared(chains, Measured.below)


def no_more(*chains: tuple[Quantity | float, ...]) -> Measure:
    """States that no quantity of a chain is above the next; margins are numbers, or factors of a quantity."""
    return _compared(chains, Measured.at_most)


def near(*pairs: tuple[Quantity, Quantity | float], share: float = 0.0, margin: float = 0.0) -> Measure:
    """States that the quantities of each pair differ by at most a share of the second, or by a margin from a number (equivalence)."""
    ends = [((1 - share) * b, (1 + share) * b) if share else (b - margin, b + margin) for _, b in pairs]  # type: ignore[operator]
    return no_more(*((low, a, high) for (a, _), (low, high) in zip(pairs, ends, strict=True)))


def bounded(*rows: tuple[Quantity, Quantity, Quantity]) -> Measure:
    """States that the first quantity of each row is at most the second, a bound; vacuous if the third, of uniform choice, is as well."""

    def measure(results: Results) -> Finding:
        texts, stated = [], []
        for value, bound, trivial in rows:
            (a, x), (b, y), (_, z) = (_found(one, results) for one in (value, bound, trivial))
            texts.append(f"{a} against {b}")
            stated.append(x.at_most(y).unless(trivial.name, z.at_most(y)))
        return "; ".join(texts), stated

    return measure
