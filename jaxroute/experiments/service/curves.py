"""Figures 2, C.2 and C.3 of MESS+: satisfaction and cost over a pass, for three targets and three V."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_FIGURE_2
from jaxroute.experiments.base import Experiment, Results
from jaxroute.experiments.claims import Finding, Measure, all_hold
from jaxroute.experiments.measure import Measured, ends_along, highest, listed, mean_of, quantile_of, show
from jaxroute.experiments.service import common
from jaxroute.experiments.service.common import claim, experiment
from jaxroute.problems import service as sv


def _policies(env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    benchmark = settings["benchmark"]
    V = list(MESSPLUS_BENCHMARKS[benchmark].V_range)
    return {"MESS+": grid(sv.paper_policy, benchmark=benchmark, V=V), **common.baselines(benchmark)}


def _panels(results: Results) -> Iterator[tuple[str, xr.Dataset, dict[str, Any]]]:
    """Name of benchmark and target, results of the benchmark, and coordinates of the target."""
    for name in common.benchmarks_of(results):
        for alpha in results[name]["alpha"].values:
            yield f"{name} alpha {alpha:g}", results[name], {"alpha": alpha}


@all_hold("violation by falling V: ")
def _approaches(results: Results) -> Iterator[Finding]:
    """The violation is below .05 for every V."""
    for name, data, where in _panels(results):
        values = ends_along(data, "violation", "MESS+", "V", **where).values()
        yield f"{name}: {', '.join(map(show, values))}", [v.below(0.05) for v in values]


def _falls_with_V(metric: str) -> Measure:
    @all_hold()
    def measure(results: Results) -> Iterator[Finding]:
        for name, data, where in _panels(results):
            values = ends_along(data, metric, "MESS+", "V", sorted(data["V"].values), **where).values()
            falls = common.moves(common.steps(data, metric, "MESS+", "V", **where), -1)
            yield f"{name}: {', '.join(map(show, values))}", falls

    return measure


@all_hold()
def _cheaper_for_every_V(results: Results) -> Iterator[Finding]:
    """MESS+ costs less than RouteLLM and RouterDC for every V."""
    for name, data, where in _panels(results):
        costs = ends_along(data, "cost", "MESS+", "V", **where)
        most = costs[highest(costs)]
        others = {
            p: common.reached(results, common.benchmark_of(data), "cost", p, **where) for p in ("RouteLLM", "RouterDC")
        }
        yield (
            f"{name}: MESS+ at most {show(most)} J, {listed(others)}",
            [cost.below(c) for cost in costs.values() for c in others.values()],
        )


def _first(data: xr.Dataset, **where: Any) -> np.ndarray:
    """First request at which the target was met, by run; infinite if it was not."""
    runs = data[["first_compliance", "complied", "valid"]].sel(policy="MESS+", **where).isel(time=-1)
    return np.where(runs["complied"] > 0, runs["first_compliance"], np.inf)[runs["valid"].values]


def _mean(runs: np.ndarray) -> Measured:
    return mean_of(xr.DataArray(runs, dims="seed"))


@all_hold()
def _first_steps(results: Results) -> Iterator[Finding]:
    """Alpha is first met at request 740, 803, 994 with the largest V: between the quartiles of the runs, with "never" as the latest."""
    for _, data, where in _panels(results):
        paper = MESSPLUS_FIGURE_2.get(round(where["alpha"], 6), np.nan)
        for V in data["V"].values:
            runs = _first(data, V=V, **where)
            never, met = _mean(np.isinf(runs)).times(100.0), runs[np.isfinite(runs)]
            low, high = (quantile_of(xr.DataArray(runs, dims="seed"), level) for level in (0.25, 0.75))
            median = f"{np.median(met):.0f}" if len(met) else "-"
            text = f"alpha {where['alpha']:g} V {V:g}: median {median} of those that comply, {show(never)} % never do"
            largest = max(data["V"].values) == V
            yield (f"{text} (paper {paper:g})", [low.at_most(paper), high.at_least(paper)]) if largest else (text, True)


def _is_later(axis: str, other: str) -> Measure:
    """States that the target is met later for the largest than for the smallest value of a setting: in more runs later than earlier.

    This holds in total; for each value of the other setting the share of the opposite is at most a twentieth of the runs larger.
    """

    @all_hold("share of the runs in which it is later minus that in which it is earlier, ")
    def measure(results: Results) -> Iterator[Finding]:
        for name in common.benchmarks_of(results):
            data, signs = results[name], {}
            for value in data[other].values:
                less, more = (_first(data, **{axis: f(data[axis].values), other: value}) for f in (np.min, np.max))
                signs[f"{other} {value:g}"] = (more > less) * 1.0 - (more < less)
            found, whole = {k: _mean(v) for k, v in signs.items()}, _mean(np.mean(list(signs.values()), axis=0))
            yield f"{name}: {listed(found)}", [whole.above(0.0), *(v.at_least(0.0, margin=0.05) for v in found.values())]

    return measure


def _figure(name: str, number: str, benchmarks: Sequence[str], seeds: int) -> Experiment:
    where = f"Fig. {number}"
    claims = [
        claim("approaches", where, _approaches),
        claim("satisfaction", where, _falls_with_V("satisfaction"), "satisfaction falls with V, paired by seed"),
        claim("cost", where, _falls_with_V("cost"), "cost falls with V, paired by seed"),
        claim("earlier", f"{where} and section 4.2", _is_later("V", "alpha"), "a smaller V meets alpha earlier"),
        claim("later", "appendix C.2", _is_later("alpha", "V"), "a higher alpha is met later"),
        claim("cheaper", where, _cheaper_for_every_V),
    ]
    if "winogrande" in benchmarks:
        claims.append(claim("first", f"{where} and appendix C.2", _first_steps))
    cases = common.passes(_policies, benchmarks, every=10, all_alphas=True)
    routers = common.router_passes(benchmarks, every=10, record=("cost", "satisfaction"))
    pages = {name if len(benchmarks) == 1 else f"{name}-{b}": functools.partial(_page, benchmark=b) for b in benchmarks}
    titles = ", ".join(MESSPLUS_BENCHMARKS[b].title for b in benchmarks)
    notes = f"{common.STAND_IN}; {common.TRAINED}"
    return experiment(
        name, f"Satisfaction and cost over a pass: {titles}", (*cases, *routers), seeds, claims, pages, where, notes
    )


def _page(results: Results, benchmark: str) -> Any:
    """Running satisfaction, running cost and the share of runs that have met the target; a column for each target."""
    data = common.with_router(results, benchmark)
    data = data.assign(complied=results[benchmark]["complied"]).sel(
        time=data["time"] > 10
    )  # From request 11 on, as in the paper.
    alphas = data["alpha"].values
    figure, axes = plot.panels(3 * len(alphas), columns=len(alphas))
    bounds = {"best blind mixture": sv.best_blind, "clairvoyant": sv.best_clairvoyant}
    requests = common.at_its_target(benchmark).requests
    runs = f"request\nmean ± 2 s.e. of {data.sizes['seed']:,} runs"
    for column, alpha in zip(axes.reshape(3, -1).T, alphas, strict=True):
        one, (top, middle, bottom) = data.sel(alpha=alpha), column
        alpha = round(float(alpha), 6)
        plot.curves(one, "satisfaction", reference={"target": alpha}, ax=top, title=f"alpha = {alpha:g}")
        lines = {name: best(requests, alpha).value for name, best in bounds.items()}
        plot.curves(one, "cost", reference=lines, ax=middle)
        plot.curves(one, "complied", policies=["MESS+"], ax=bottom)
        if benchmark == "winogrande":
            plot.level(bottom, "the paper's first request, largest V", MESSPLUS_FIGURE_2[alpha], along="x")
        middle.set_ylim(bottom=0.0)
        for ax in (top, middle):
            ax.set_xlabel(f"{runs}, RouterDC of 8 trainings")
        bottom.set_xlabel(runs)
        bottom.set_ylim(0.0, 1.03)
    return figure


EXPERIMENTS = (
    _figure("figure-2", "2", ["winogrande"], 1024),
    _figure("figure-C2", "C.2", ["arc_challenge", "arc_easy", "boolq", "logiqa"], 512),
    _figure("figure-C3", "C.3", ["piqa", "sciq", "socialiqa"], 512),
)
