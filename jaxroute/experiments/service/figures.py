"""Experiments for figures of MESS+: satisfaction and cost over a pass (2, C.2 and C.3), and the amount of exploration (3 and C.1).

In the claims, alpha is the target share of satisfied requests, and the violation is alpha minus their share at the end of a pass. `c` scales the
probability `p_t = min(1, c t^(-1/4))` to explore request `t`. The loss is the predictor's mean log loss on the explored requests.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_FIGURE_2
from jaxroute.experiments.base import Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, with_parameters
from jaxroute.experiments.measure import Measured, coordinates_of, ends_along, highest, listed, mean_of, product, quantile_of
from jaxroute.experiments.pictures import Panel, panels_of
from jaxroute.experiments.service import common
from jaxroute.experiments.service.common import claim, experiment
from jaxroute.problems import service as sv

# Satisfaction and cost over a pass, for three targets and three V.


def _V_policies(env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    benchmark = settings["benchmark"]
    V = list(MESSPLUS_BENCHMARKS[benchmark].V_range)
    return {"MESS+": grid(sv.paper_policy, benchmark=benchmark, V=V), **common.baselines(benchmark)}


def _panels(results: Results) -> Iterator[tuple[str, xr.Dataset, dict[str, Any]]]:
    """Yields a label, a benchmark's result, and the selection `{"alpha": target}`, for each benchmark and each of its satisfaction targets."""
    for name in common.benchmarks_of(results):
        for alpha in results[name]["alpha"].values:
            yield f"{name} alpha {alpha:g}", results[name], {"alpha": alpha}


@all_hold("violation by falling V: ")
def _approaches(results: Results) -> Iterator[Finding]:
    """Tests the claim: The violation is below .05 for every V."""
    for name, data, where in _panels(results):
        values = ends_along(data, "violation", "MESS+", "V", **where).values()
        yield f"{name}: {', '.join(map(str, values))}", [v.below(0.05) for v in values]


@with_parameters
@all_hold()
def _falls_with_V(results: Results, metric: str) -> Iterator[Finding]:
    for name, data, where in _panels(results):
        values = ends_along(data, metric, "MESS+", "V", sorted(data["V"].values), **where).values()
        falls = common.moves(common.steps(data, metric, "MESS+", "V", **where), -1)
        yield f"{name}: {', '.join(map(str, values))}", falls


@all_hold()
def _cheaper_for_every_V(results: Results) -> Iterator[Finding]:
    """Tests the claim: MESS+ costs less than RouteLLM and RouterDC for every V."""
    for name, data, where in _panels(results):
        costs = ends_along(data, "cost", "MESS+", "V", **where)
        most = costs[highest(costs)]
        benchmark = coordinates_of(data)["benchmark"]
        others = {p: common.reached(results, benchmark, "cost", p, **where) for p in ("RouteLLM", "RouterDC")}
        cheaper = [cost.below(c) for cost in costs.values() for c in others.values()]
        yield f"{name}: MESS+ at most {most} J, {listed(others)}", cheaper


def _first(data: xr.Dataset, **where: Any) -> np.ndarray:
    """Returns the index of the first request after which MESS+ meets the target, `[seed]`; infinite for runs in which it never does."""
    runs = data[["first_compliance", "complied", "valid"]].sel(policy="MESS+", **where).isel(time=-1)
    return np.where(runs["complied"] > 0, runs["first_compliance"], np.inf)[runs["valid"].values]


def _mean(runs: np.ndarray) -> Measured:
    return mean_of(xr.DataArray(runs, dims="seed"))


@all_hold()
def _first_steps(results: Results) -> Iterator[Finding]:
    """Tests the claim: Alpha is first met at request 740, 803, 994 with the largest V: between the quartiles of the runs, with "never" as the latest.

    These are the paper's numbers for Winogrande's three targets. Each must lie between the quartiles, over runs, of the first request after which
    MESS+ meets the target. Runs that never meet it count as later than all others.
    """
    for _, data, where in _panels(results):
        paper = MESSPLUS_FIGURE_2.get(round(where["alpha"], 6), np.nan)
        for V in data["V"].values:
            runs = _first(data, V=V, **where)
            never, met = _mean(np.isinf(runs)).times(100.0), runs[np.isfinite(runs)]
            low, high = (quantile_of(xr.DataArray(runs, dims="seed"), level) for level in (0.25, 0.75))
            median = f"{np.median(met):.0f}" if len(met) else "-"
            text = f"alpha {where['alpha']:g} V {V:g}: median {median} of those that comply, {never} % never do"
            largest = max(data["V"].values) == V
            yield (f"{text} (paper {paper:g})", [low.at_most(paper), high.at_least(paper)]) if largest else (text, True)


@with_parameters
@all_hold("share of the runs in which it is later minus that in which it is earlier, ")
def _is_later(results: Results, axis: str, other: str) -> Iterator[Finding]:
    """Tests the claim that the target is met later for the largest value of the setting `axis` than for the smallest, in more runs than earlier.

    Runs are paired by seed and counted over all values of the setting `other`. At any one of these, it may be earlier in 5 % more of the runs than
    later.
    """
    for name in common.benchmarks_of(results):
        data, signs = results[name], {}
        for value in data[other].values:
            less, more = (_first(data, **{axis: f(data[axis].values), other: value}) for f in (np.min, np.max))
            signs[f"{other} {value:g}"] = (more > less) * 1.0 - (more < less)
        found, whole = {k: _mean(v) for k, v in signs.items()}, _mean(np.mean(list(signs.values()), axis=0))
        yield f"{name}: {listed(found)}", [whole.above(0.0), *(v.at_least(0.0, margin=0.05) for v in found.values())]


def _figure(name: str, number: str, benchmarks: Sequence[str], seeds: int) -> Experiment:
    where = f"Fig. {number}"
    claims = [
        claim("approaches", where, _approaches),
        claim("satisfaction", where, _falls_with_V("satisfaction"), "satisfaction falls with V, paired by seed"),
        claim("cost", where, _falls_with_V("cost"), "cost falls with V, paired by seed"),
        claim("earlier", f"{where} and section 4.2", _is_later("V", "alpha"), "a smaller V meets alpha earlier"),
        claim("later", "appendix C.2", _is_later("alpha", "V"), "a higher alpha is met later"),
        claim("cheaper", where, _cheaper_for_every_V),
        *([claim("first", f"{where} and appendix C.2", _first_steps)] if "winogrande" in benchmarks else []),
    ]
    cases = common.passes(_V_policies, benchmarks, every=10, all_alphas=True)
    routers = common.router_passes(benchmarks, every=10, record=("cost", "satisfaction"))
    pages = {name if len(benchmarks) == 1 else f"{name}-{b}": functools.partial(_page, benchmark=b) for b in benchmarks}
    title = f"Satisfaction and cost over a pass: {', '.join(MESSPLUS_BENCHMARKS[b].title for b in benchmarks)}"
    return experiment(
        name, title, (*cases, *routers), seeds, claims, pages, where, notes=f"{common.STAND_IN}; {common.TRAINED}"
    )


def _page(results: Results, benchmark: str) -> Any:
    """Draws a column per target alpha: mean satisfaction and cost up to each request, and the share of MESS+'s runs that have met alpha so far."""
    data = common.with_router(results, benchmark).assign(complied=results[benchmark]["complied"])
    data = data.sel(time=data["time"] > 10)  # From request 11 on, as in the paper.
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


# The amount of exploration.

C = [0.01, 0.1, 1.0]
_EXPLORED = ("cost", "satisfaction", "violation", "explored", "explore_cost", "training_loss", "training_steps")


def _c_policies(env: sv.ServiceEnv, settings: dict[str, Any]) -> dict[str, Any]:
    return {"MESS+": grid(sv.paper_policy, benchmark=settings["benchmark"], c=C)}


def averaged(results: Results, *names: str, **where: Any) -> xr.Dataset:
    """Averages the metrics `names` over the benchmarks, for each seed and time up to the end of the shortest benchmark; `where` selects a setting."""
    parts = [data[[*names, "valid"]].sel(**where).drop_attrs(deep=False) for data in results.values()]
    together = xr.concat(parts, "benchmark", join="inner", combine_attrs="override")
    mean = together[list(names)].mean("benchmark", keep_attrs=True)
    time = mean["time"].assign_attrs(long_name="request")
    return mean.assign(valid=together["valid"].all("benchmark")).assign_coords(time=time)


def with_paper_loss(data: xr.Dataset) -> xr.Dataset:
    """Adds the metric `paper_loss`: the sum of losses up to request `t` over `t * c` (`c`: amount of exploration). It falls even without learning."""
    loss = data["training_loss"] * data["explored"] / data["c"]
    return data.assign(
        paper_loss=loss.assign_attrs(kind="gauge", long_name="sum of losses / (t c), as in the paper", units="nats")
    )


def base_rate_loss(benchmark: str) -> float:
    """Returns the mean log loss (nats) of a constant prediction: each model's accuracy on the whole benchmark."""
    p = MESSPLUS_BENCHMARKS[benchmark].accuracy
    return float(-np.mean(p * np.log(p) + (1 - p) * np.log(1 - p)))


def _explore_mj(results: Results) -> dict[float, Measured]:
    """Returns the energy in MJ that exploration takes in a whole benchmark, averaged over the benchmarks, by the amount of exploration `c`."""
    return {c: common.average_mj(results, results, "MESS+", "explore_cost", c=c) for c in C}


@all_hold()
def _counts(results: Results):
    """Tests the claim: The number of explored requests is the sum of p_t, within 2 %."""
    for name, data in results.items():
        horizon, parts, stated = int(data["time"][-1]), [], []
        for c, share in ends_along(data, "explored", "MESS+", "c", C).items():
            explored, expected = share.times(horizon), sv.expected_explorations(c, horizon)
            stated.append(explored.near(expected, margin=0.02 * expected))
            parts.append(f"c {c:g} {explored} ({expected:.1f})")
        yield f"{name}: {', '.join(parts)}", stated


def _ten_times(results: Results) -> Finding:
    """Tests the claim: Exploration costs about ten (5 to 15) times as much with c = 1 as with c = .01."""
    cost = _explore_mj(results)
    ratio = product(cost[1.0], over=cost[0.01])
    text = f"{listed(cost, 'c {:g}:')} MJ per pass; c = 1 costs {ratio} times c = .01"
    return text, [cost[1.0].at_least(cost[0.01].times(5.0)), cost[1.0].at_most(cost[0.01].times(15.0))]


def _loss_falls(results: Results) -> Finding:
    """Tests the claim: A larger c gives a lower loss."""
    mean = averaged(results, "training_loss")
    losses, changes = ends_along(mean, "training_loss", "MESS+", "c", C), common.steps(mean, "training_loss", "MESS+", "c")
    base = np.mean([base_rate_loss(name) for name in results])
    text = f"mean loss of explored requests, {listed(losses, 'c {:g}:')} nats; with known base rates {base:.3f}"
    return text, [change.below(0.0) for change in changes]


def _exploration_figure(results: Results) -> Any:
    """Draws the loss of explored requests, the loss as defined in the paper, and the cost of exploration; means over the benchmarks."""
    figure, axes = plot.panels(3)
    data = averaged({name: with_paper_loss(one) for name, one in results.items()}, "training_loss", "paper_loss")
    base = {"who knows the base rates": np.mean([base_rate_loss(name) for name in results])}
    plot.curves(data, "training_loss", reference=base, ax=axes[0], title="mean loss of explored requests so far")
    plot.curves(data, "paper_loss", ax=axes[1], log="y", title="as in the paper: sum of losses / (t c)")
    label = f"c\nmean ± 2 s.e. of {data.sizes['seed']:,} runs"
    cost = {"MESS+": [(c, cost) for c, cost in _explore_mj(results).items()]}
    plot.points(cost, x=label, y="MJ per pass spent on exploring", ax=axes[2], title="cost of exploring")
    plot.log_axis(axes[2], "x")
    plot.log_axis(axes[2], "y")
    return figure


_BY_BENCHMARK = panels_of(rows="case",
    columns=(
        Panel("explored", log="y", title="share explored"),
        Panel("training_loss", title="mean loss so far"),
        Panel("explore_cost", log="y", title="cost of exploring")),
    titles=lambda data: MESSPLUS_BENCHMARKS[coordinates_of(data)["benchmark"]].title)  # fmt: skip
_EXPLORATION = (
    claim("counts", "Lemma A.3", _counts),
    claim("tenfold", "appendix C.3", _ten_times),
    claim("lower", "Fig. 3", _loss_falls),
)
_CASES = common.passes(_c_policies, every=25, record=_EXPLORED)
EXPERIMENTS = (
    _figure("figure-2", "2", ["winogrande"], 1024),
    _figure("figure-C2", "C.2", ["arc_challenge", "arc_easy", "boolq", "logiqa"], 512),
    _figure("figure-C3", "C.3", ["piqa", "sciq", "socialiqa"], 512),
    experiment("figure-3", "Amount of exploration: loss and cost, mean of eight benchmarks", _CASES, 512, _EXPLORATION,
        {"figure-3": _exploration_figure}, "Fig. 3"),
    experiment("figure-C1", "Amount of exploration, by benchmark", _CASES, 512, _EXPLORATION[:2], {"figure-C1": _BY_BENCHMARK}, "Fig. C.1"),
)  # fmt: skip
