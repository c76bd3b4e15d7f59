"""Building blocks of claims: quantities, and measures that compare them.

A `Quantity` is a named number that is computed from the results. A measure returns a text and the statements that decide the verdict.

    rising((mean("COSMOS"), 0.5 * mean("greedy")))    # COSMOS has less than half the regret of the greedy policy
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.experiments import measure
from jaxroute.experiments.base import Results
from jaxroute.experiments.measure import along, end, power
from jaxroute.experiments.verdicts import Measured, Stated, Statement, at_least

# Measured values in words, and statements about them. A claim holds if all statements are true.
Finding = tuple[str, Stated]
Measure = Callable[[Results], Finding]


@dataclass(frozen=True)
class Quantity:
    """Number that is computed from an experiment's results, such as a mean regret, with its name. It can be multiplied by a float.

    Attributes:
      name: name in words.
      of: function that computes the number from the results, as a `Measured`: the value with its standard error.
    """

    name: str
    of: Callable[[Results], Measured]

    def __rmul__(self, factor: float) -> "Quantity":
        return Quantity(f"{factor:g} x {self.name}", lambda results: self.of(results).times(factor))


def _name(policy: str, case: str, about: str, where: Mapping[str, Any]) -> str:
    places = [f"{axis} {value:g}" for axis, value in where.items()]
    return " ".join([*([case] if case != "result" else []), policy, *places, *([about] if about else [])])


def mean(policy: str, case: str = "result", metric: str = "regret", time: Any = None, **where: Any) -> Quantity:
    """Makes a quantity: a metric's mean over seeds after round `time` (None: the horizon). `where` has a value for each setting axis, by its name."""
    about = " ".join([*([metric] if metric != "regret" else []), *([f"at {time:,}"] if time else [])])
    return Quantity(_name(policy, case, about, where), lambda results: end(results[case], metric, policy, time, **where))


def known(name: str, value: Callable[[int], Any], case: str = "result") -> Quantity:
    """Makes a quantity without error, such as a theoretical bound: the function `value` computes it from the horizon of the case."""
    return Quantity(name, lambda results: Measured(float(value(int(results[case]["time"][-1])))))


def uniform(means: Any, case: str = "result") -> Quantity:
    """Makes a quantity: the expected regret, at the horizon of a case, of choosing uniformly among models with mean rewards `means`."""
    gap = float(np.max(means) - np.mean(means))
    return known("uniform choice", lambda rounds: rounds * gap, case)


def slope(policy: str, case: str = "result", share: float = 0.1, metric: str = "regret", **where: Any) -> Quantity:
    """Makes a quantity: the log-log slope of a metric's mean over time, without the first fraction `share` of the rounds; `where` selects a setting."""
    name, last = _name(policy, case, "slope", where), lambda data: float(data["time"][-1])
    return Quantity(name, lambda found: measure.late_slope(found[case], metric, policy, share * last(found[case]), **where))


def growth(policy: str, axis: str, cases: Mapping[str, Any] | None = None, **where: Any) -> Quantity:
    """Makes a quantity: the log-log slope of final regret over `axis`, a coordinate of cases. `cases` fixes other coordinates, `where` a setting."""
    name, fixed = _name(policy, "result", f"power of {axis}", where), cases or {}
    return Quantity(name, lambda results: power(along(results, "regret", axis, **fixed).sel(policy=policy, **where), axis))


def quantile(level: float, policy: str, case: str = "result", **where: Any) -> Quantity:
    """Makes a quantity: the quantile of the final regret over runs at `level`, in (0, 1); `where` selects a setting."""
    name = _name(policy, case, f"{100 * level:g} % quantile", where)
    return Quantity(name, lambda found: measure.quantile_of(measure.runs_of(found[case], "regret", policy, **where), level))


def gap(policy: str, minus: str, case: str = "result", metric: str = "regret", time: Any = None, **where: Any) -> Quantity:
    """Makes a quantity: the mean difference in a metric between `policy` and `minus`, paired by seed, at the round `time` (default: the horizon)."""

    def of(results: Results) -> Measured:
        data = results[case].sel(**where)
        place = -1 if time is None else int(np.argmin(np.abs(data["time"].values - time)))
        return measure.paired_gap(data, metric, policy, minus=minus, place=place)

    return Quantity(_name(f"{policy} minus {minus}", case, metric if metric != "regret" else "", where), of)


def with_parameters(function: Callable[..., Finding]) -> Callable[..., Measure]:
    """Decorator: turns a test `f(results, *parameters)` into a maker of tests: `f(*parameters)` returns a function of the results.

    Example:
      The decorated `_small(results, policy)` is the measure of a claim: `Claim("small", "COSMOS has little regret", "ours", _small("COSMOS"))`.
    """

    @functools.wraps(function)
    def measure_of(*args: Any, **options: Any) -> Measure:
        return lambda results: function(results, *args, **options)

    return measure_of


def all_hold(before: str = "", between: str = "; ") -> Callable[[Callable[..., Iterator[Finding]]], Callable[..., Finding]]:
    """Decorator of a generator of findings: joins them into one with the text `before + between.join(texts)`, true if there is any and all are true.

    For example:

        @all_hold("regret of COSMOS, ")
        def _small(results: Results) -> Iterator[Finding]:
            for name, data in results.items():
                value = end(data, "regret", "COSMOS")
                yield f"{name}: {value}", value.below(10.0)
    """

    def of(findings: Callable[..., Iterator[Finding]]) -> Callable[..., Finding]:
        @functools.wraps(findings)
        def measure(results: Results, *args: Any, **options: Any) -> Finding:
            found = list(findings(results, *args, **options))
            text = before + between.join(text for text, _ in found) if found else "nothing to judge"
            return text, at_least(None, [stated for _, stated in found])

        return measure

    return of


def slope_within(runs: xr.DataArray, axis: str, low: float, high: float, is_: float | None = None) -> Finding:
    """Tests if the mean of `runs` is a power of `axis`: the exponent's confidence interval must lie in `[low, high]` and contain `is_`, if given."""
    fit = power(runs, axis)
    return f"slope {fit}", fit.within(low, high, is_)


@with_parameters
def grows_as(
    results: Results, metric: str, policy: str, low: float, high: float, cases: Mapping[str, Any] | None = None, **where: Any
) -> Finding:
    """Tests if a metric is a power of the horizon with exponent in `[low, high]`. `cases` selects cases by coordinates, `where` a setting."""
    runs = along(results, metric, "horizon", **(cases or {})).sel(policy=policy, **where)
    return slope_within(runs, "horizon", low, high)


def _found(value: Quantity | float, results: Results) -> tuple[str, Measured]:
    if not isinstance(value, Quantity):
        return f"{value:,g}", Measured(value)
    found = value.of(results)
    return f"{value.name} {found}", found


@with_parameters
def _compared(
    results: Results, chains: Sequence[Sequence[Quantity | float]], state: Callable[[Measured, Measured], Statement]
) -> Finding:
    found = [[_found(value, results) for value in chain] for chain in chains]
    stated = [state(a, b) for chain in found for (_, a), (_, b) in itertools.pairwise(chain)]
    return "; ".join(" against ".join(text for text, _ in chain) for chain in found), stated


def rising(*chains: tuple[Quantity | float, ...]) -> Measure:
    """Makes the test of a claim that in each of `chains`, a tuple, every quantity is less than the next one."""
    return _compared(chains, Measured.below)


def no_more(*chains: tuple[Quantity | float, ...]) -> Measure:
    """Makes the test of a claim that in each of `chains`, a tuple, no quantity exceeds the next one; write `1.1 * bound` for a margin."""
    return _compared(chains, Measured.at_most)


def near(*pairs: tuple[Quantity, Quantity | float], share: float = 0.0, margin: float = 0.0) -> Measure:
    """Makes the test that quantities of each pair differ by at most the fraction `share` of the second or, if `share` is 0, by at most `margin`."""
    ends = [((1 - share) * b, (1 + share) * b) if share else (b - margin, b + margin) for _, b in pairs]  # type: ignore[operator]
    return no_more(*((low, a, high) for (a, _), (low, high) in zip(pairs, ends, strict=True)))


@with_parameters
def bounded(results: Results, *rows: tuple[Quantity, Quantity, Quantity]) -> Finding:
    """Tests if in each row, (value, bound, trivial policy's value), the value is at most the bound. It is vacuous if the last value is so, too."""
    texts, stated = [], []
    for value, bound, trivial in rows:
        (a, x), (b, y), (_, z) = (_found(one, results) for one in (value, bound, trivial))
        texts.append(f"{a} against {b}")
        stated.append(x.at_most(y).unless(trivial.name, z.at_most(y)))
    return "; ".join(texts), stated


@with_parameters
def less(
    results: Results, policy: str, than: str, metric: str = "routing_regret", share: float = 1.0, **fixed: Any
) -> Finding:
    """Tests in all cases with coordinates `fixed` if `policy` has a smaller metric than the policy `than` after a fraction `share` of the rounds."""
    cases = measure.with_coordinates(results, **fixed) if fixed else results
    gaps = {name: measure.head_gap(data, metric, policy, than, share) for name, data in cases.items()}
    when = "" if share == 1.0 else f" at {share:g} of the horizon"
    text = f"{policy} minus {than}{when}: {measure.listed(gaps, between='; ')}"
    return text, [value.below(0.0) for value in gaps.values()]
