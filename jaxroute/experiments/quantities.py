"""Quantities that claims compare: named functions of the results with standard errors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxroute.experiments import measure
from jaxroute.experiments.base import Results
from jaxroute.experiments.measure import (
    Measured,
    end,
    late_runs,
    late_slope,
    mean_of,
    paired_gap,
    quantile_of,
    runs_of,
    show,
    show_slope,
)


@dataclass(frozen=True)
class Quantity:
    """A named function of the results with a standard error; a number times a quantity is a quantity.

    Attributes:
      name: name in words.
      of: function of the results.
      show: function that makes a text of the measured number.
    """

    name: str
    of: Callable[[Results], Measured]
    show: Callable[[Measured], str] = show

    def __rmul__(self, factor: float) -> "Quantity":
        return Quantity(f"{factor:g} x {self.name}", lambda results: self.of(results).times(factor), self.show)


def _name(policy: str, case: str, about: str, where: Mapping[str, Any]) -> str:
    places = [f"{axis} {value:g}" for axis, value in where.items()]
    return " ".join([*([case] if case != "result" else []), policy, *places, *([about] if about else [])])


def mean(policy: str, case: str = "result", metric: str = "regret", time: Any = None, **where: Any) -> Quantity:
    """Mean at a recorded round (default: the horizon)."""
    about = " ".join([*([metric] if metric != "regret" else []), *([f"at {time:,}"] if time else [])])
    return Quantity(_name(policy, case, about, where), lambda results: end(results[case], metric, policy, time, **where))


def known(name: str, value: Callable[[int], Any], case: str = "result") -> Quantity:
    """A known number, such as a bound, as a function of the horizon of a case."""
    return Quantity(name, lambda results: Measured(float(value(int(results[case]["time"][-1])))))


def uniform(means: Any, case: str = "result") -> Quantity:
    """Regret of uniform choice among models with fixed mean rewards."""
    gap = float(np.max(means) - np.mean(means))
    return known("uniform choice", lambda rounds: rounds * gap, case)


def late(policy: str, case: str = "result", metric: str = "utility", **where: Any) -> Quantity:
    """Mean per request in the second half of a run."""
    name = _name(policy, case, f"{metric}, second half", where)
    return Quantity(name, lambda results: mean_of(late_runs(results[case], metric, policy, **where)))


def slope(policy: str, case: str = "result", share: float = 0.1, metric: str = "regret", **where: Any) -> Quantity:
    """Log-log slope of the mean regret (or another metric) after a share of the rounds."""

    def of(results: Results) -> Measured:
        return late_slope(results[case], metric, policy, share * float(results[case]["time"][-1]), **where)

    return Quantity(_name(policy, case, "slope", where), of, show_slope)


def growth(policy: str, axis: str, cases: Mapping[str, Any] | None = None, **where: Any) -> Quantity:
    """Power of a coordinate with which the regret at the horizon grows, over the cases with the given coordinates."""

    def of(results: Results) -> Measured:
        return measure.power(measure.along(results, "regret", axis, **(cases or {})).sel(policy=policy, **where), axis)

    return Quantity(_name(policy, "result", f"power of {axis}", where), of, show_slope)


def quantile(level: float, policy: str, case: str = "result", **where: Any) -> Quantity:
    """Quantile of the runs' regret."""
    name = _name(policy, case, f"{100 * level:g} % quantile", where)
    return Quantity(name, lambda results: quantile_of(runs_of(results[case], "regret", policy, **where), level))


def gap(policy: str, minus: str, case: str = "result", metric: str = "regret", time: Any = None, **where: Any) -> Quantity:
    """Mean of a policy minus another, paired by seed."""

    def of(results: Results) -> Measured:
        data = results[case].sel(**where)
        place = -1 if time is None else int(np.argmin(np.abs(data["time"].values - time)))
        return paired_gap(data, metric, policy, minus=minus, place=place)

    return Quantity(_name(f"{policy} minus {minus}", case, metric if metric != "regret" else "", where), of)
