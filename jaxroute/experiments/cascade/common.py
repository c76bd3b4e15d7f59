"""What the experiments of COSMOS share: learners of one compile, cases, and claims made of quantities that are compared."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.analysis import metrics, plot
from jaxroute.experiments import measure
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure, Verdict
from jaxroute.experiments.measure import Measured, end, late_slope, mean_of, paired_gap, runs_of, show, show_slope
from jaxroute.experiments.pictures import Picture, panel, side_by_side
from jaxroute.problems import cascade as ca

COSMOS = "COSMOS (Belloni, Chen and Wei)"
OURS = "our study; the paper has no experiment"
RECORD = ("regret", "mean_cost_regret", "queries", "utility")
# Settings of the cascade that most experiments play, where scores are seen and where they are learned.
SEEN: dict[str, Any] = {"num_models": 3, "dim": 3}
UNSEEN = SEEN | {"evaluator": 5}
STREAMING, WINDOW = ca.Streaming(), ca.Window()


def learner(index: float = 0.10, warm: int = 0, fit: Any = STREAMING) -> ca.COSMOS:
    """COSMOS for scores that are seen, with a bonus; a greedy policy with 0. All with one estimator are served by one compile."""
    return ca.COSMOS(fit=fit, radius=ca.Practical(index, 0.0, 0.0), exploration=ca.WarmUp(warm))


def learns_scores(index: float = 0.10, plug_in: float = 0.03, optimism: float = 0.30, fit: Any = WINDOW) -> ca.COSMOS:
    """COSMOS with an evaluator that is learned; a greedy policy with 0, 0, 0."""
    return ca.COSMOS(fit=fit, radius=ca.Practical(index, plug_in, optimism))


def case_of(
    policies: Any, horizon: int, name: str = "result", settings: Mapping[str, Any] = SEEN, *, every: int, **options: Any
) -> Case:
    """A case of a cascade with uniform noise (or another `environment`), recorded `every` so many rounds."""
    options = {"environment": ca.uniform_cascade, "record": RECORD, "record_every": every, **options}
    return Case(policies=policies, horizon=horizon, name=name, settings=settings, **options)


def claims(*rows: tuple[str, str, Measure] | tuple[str, str, Measure, str]) -> tuple[Claim, ...]:
    """Claims as a table of name, text, measure and, where it is not our study, source."""
    return tuple(Claim(row[0], row[1], row[3] if len(row) > 3 else OURS, row[2]) for row in rows)


def study(
    name: str, title: str, cases: tuple[Case, ...], seeds: int, claims: tuple[Claim, ...], figures: Any, **more: Any
) -> Experiment:
    """An experiment, of our study unless it has another source."""
    return Experiment(name, title, cases, seeds, claims, figures, **{"source": OURS, **more})


def mean_and_runs(draw: Any = plot.curves, change: Any = None, **options: Any) -> Picture:
    """A figure of the mean regret, drawn by a function of `plot`, and of how runs differ."""
    runs = {name: value for name, value in options.items() if name == "policies"}
    mean = panel("regret", draw, change=change, title="mean", **options)
    return side_by_side(mean, panel("regret", plot.spread, change=change, log=True, title="runs", **runs))


@dataclass(frozen=True)
class Quantity:
    """Something that is measured of results, with its standard error. A number times it is another one.

    name: in words. of: function of the results. show: of what it gives.
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
    """The mean at the horizon, or at another recorded round."""
    about = " ".join([*([metric] if metric != "regret" else []), *([f"at {time:,}"] if time else [])])
    return Quantity(_name(policy, case, about, where), lambda results: end(results[case], metric, policy, time, **where))


def late(policy: str, case: str = "result", metric: str = "utility", **where: Any) -> Quantity:
    """The mean per request in the second half of a run."""
    name = _name(policy, case, f"{metric}, second half", where)
    return Quantity(name, lambda results: mean_of(late_runs(results[case], metric, policy, **where)))


def late_runs(data: xr.Dataset, metric: str, policy: str, **where: Any) -> xr.DataArray:
    """The mean per request in the second half of each run, `[seed]`; of a run that was read only once, of the whole."""
    total = metrics.cumulative(data.sel(policy=policy, **where)[[metric, "valid"]], metric)
    times, half = data["time"].values, len(data["time"]) // 2 - 1
    first, start = (0.0, 0) if half < 0 else (total.isel(time=half, drop=True), times[half])
    return (total.isel(time=-1, drop=True) - first) / float(times[-1] - start)


def slope(policy: str, case: str = "result", share: float = 0.1, metric: str = "regret", **where: Any) -> Quantity:
    """Log-log slope of the mean regret (or another metric) after a share of the rounds."""

    def of(results: Results) -> Measured:
        return late_slope(results[case], metric, policy, share * float(results[case]["time"][-1]), **where)

    return Quantity(_name(policy, case, "slope", where), of, show_slope)


def growth(policy: str, axis: str, cases: Mapping[str, Any] | None = None, **where: Any) -> Quantity:
    """Power of a size with which the regret at the horizon grows, over cases with such coordinates."""

    def of(results: Results) -> Measured:
        return measure.power(measure.along(results, "regret", axis, **(cases or {})).sel(policy=policy, **where), axis)

    return Quantity(_name(policy, "result", f"power of {axis}", where), of, show_slope)


def quantile(level: float, policy: str, case: str = "result", **where: Any) -> Quantity:
    """Quantile of the runs' regret; its error is half the distance of the quantiles an error of the level away."""

    def of(results: Results) -> Measured:
        runs = runs_of(results[case], "regret", policy, **where).values
        step = np.sqrt(level * (1.0 - level) / len(runs))
        low, middle, high = np.quantile(runs, np.clip([level - step, level, level + step], 0.0, 1.0))
        return Measured(float(middle), float(high - low) / 2)

    return Quantity(_name(policy, case, f"{100 * level:g} % quantile", where), of)


def gap(policy: str, minus: str, case: str = "result", metric: str = "regret", time: Any = None, **where: Any) -> Quantity:
    """Mean of a policy minus another, seed by seed."""

    def of(results: Results) -> Measured:
        data = results[case].sel(**where)
        place = -1 if time is None else int(np.argmin(np.abs(data["time"].values - time)))
        return paired_gap(data, metric, policy, minus=minus, place=place)

    return Quantity(_name(f"{policy} minus {minus}", case, metric if metric != "regret" else "", where), of)


def _measured(value: Quantity | float, results: Results) -> tuple[str, Measured]:
    if not isinstance(value, Quantity):
        return f"{value:,g}", Measured(value, 0.0)
    found = value.of(results)
    return f"{value.name} {value.show(found)}", found


def _compared(chains: Sequence[Sequence[Quantity | float]], ordered: Callable[[Measured, Measured], bool]) -> Measure:
    def judge(results: Results) -> Verdict:
        found = [[_measured(value, results) for value in chain] for chain in chains]
        holds = all(ordered(a, b) for chain in found for (_, a), (_, b) in itertools.pairwise(chain))
        return "; ".join(" against ".join(text for text, _ in chain) for chain in found), holds

    return judge


def rising(*chains: tuple[Quantity | float, ...], by: float = 3.0) -> Measure:
    """Whether in each chain every quantity is below the next by so many joint standard errors."""
    return _compared(chains, lambda a, b: a.below(b, by=by))


def near(*pairs: tuple[Quantity, Quantity | float], by: float = 2.0, slack: float = 0.0) -> Measure:
    """Whether the two of each pair differ by less than so many joint standard errors and a share of the second."""
    return _compared(pairs, lambda a, b: a.near(b, by=by, slack=slack * abs(b.mean)))
