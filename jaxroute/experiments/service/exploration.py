"""Figures 3 and C.1 of MESS+: the amount of exploration."""

from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.data import MESSPLUS_BENCHMARKS
from jaxroute.experiments.base import Results
from jaxroute.experiments.claims import Finding, all_hold
from jaxroute.experiments.measure import Measured, ends_along, listed, product, show
from jaxroute.experiments.pictures import panel, panels_of
from jaxroute.experiments.service import common
from jaxroute.experiments.service.common import claim, experiment
from jaxroute.problems import service as sv

C = [0.01, 0.1, 1.0]
_RECORD = ("cost", "satisfaction", "violation", "explored", "explore_cost", "training_loss", "training_steps")


def _policies(env: sv.ServiceEnv, settings: dict[str, Any]) -> dict[str, Any]:
    return {"MESS+": grid(sv.paper_policy, benchmark=settings["benchmark"], c=C)}


def averaged(results: Results, *names: str, **where: Any) -> xr.Dataset:
    """Means of metrics over the benchmarks by seed, up to the end of the shortest pass."""
    parts = [data[[*names, "valid"]].sel(**where).drop_attrs(deep=False) for data in results.values()]
    together = xr.concat(parts, "benchmark", join="inner", combine_attrs="override")
    mean = together[list(names)].mean("benchmark", keep_attrs=True)
    time = mean["time"].assign_attrs(long_name="request")
    return mean.assign(valid=together["valid"].all("benchmark")).assign_coords(time=time)


def with_paper_loss(data: xr.Dataset) -> xr.Dataset:
    """Adds the loss of the paper's figures, the sum of the losses over `t c`, which falls even without learning."""
    loss = data["training_loss"] * data["explored"] / data["c"]
    return data.assign(
        paper_loss=loss.assign_attrs(kind="gauge", long_name="sum of losses / (t c), as in the paper", units="nats")
    )


def base_rate_loss(benchmark: str) -> float:
    """Loss in nats of predicting each model's accuracy for every request."""
    p = MESSPLUS_BENCHMARKS[benchmark].accuracy
    return float(-np.mean(p * np.log(p) + (1 - p) * np.log(1 - p)))


def _explore_mj(results: Results) -> dict[float, Measured]:
    """MJ of explored requests in a pass by c, mean over the benchmarks."""
    return {c: common.average_mj(results, results, "MESS+", "explore_cost", c=c) for c in C}


@all_hold()
def _counts(results: Results):
    """The number of explored requests is the sum of p_t, within 2 %."""
    for name, data in results.items():
        horizon, parts, stated = int(data["time"][-1]), [], []
        for c, share in ends_along(data, "explored", "MESS+", "c", C).items():
            explored, expected = share.times(horizon), sv.expected_explorations(c, horizon)
            stated.append(explored.near(expected, margin=0.02 * expected))
            parts.append(f"c {c:g} {show(explored)} ({expected:.1f})")
        yield f"{name}: {', '.join(parts)}", stated


def _ten_times(results: Results) -> Finding:
    """Exploration costs about ten (5 to 15) times as much with c = 1 as with c = .01."""
    cost = _explore_mj(results)
    ratio = product(cost[1.0], over=cost[0.01])
    text = f"{listed(cost, 'c {:g}:')} MJ per pass; c = 1 costs {show(ratio)} times c = .01"
    return text, [cost[1.0].at_least(cost[0.01].times(5.0)), cost[1.0].at_most(cost[0.01].times(15.0))]


def _loss_falls(results: Results) -> Finding:
    """A larger c gives a lower loss."""
    mean = averaged(results, "training_loss")
    losses, changes = ends_along(mean, "training_loss", "MESS+", "c", C), common.steps(mean, "training_loss", "MESS+", "c")
    base = np.mean([base_rate_loss(name) for name in results])
    text = f"mean loss of explored requests, {listed(losses, 'c {:g}:')} nats; with known base rates {base:.3f}"
    return text, [change.below(0.0) for change in changes]


def _picture(results: Results) -> Any:
    """Loss of explored requests, the same as in the paper, and the cost of exploration; means over the benchmarks."""
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


_BY_BENCHMARK = panels_of(
    rows="case",
    columns=(
        panel("explored", log="y", title="share explored"),
        panel("training_loss", title="mean loss so far"),
        panel("explore_cost", log="y", title="cost of exploring"),
    ),
    titles=lambda data: MESSPLUS_BENCHMARKS[common.benchmark_of(data)].title,
)
_CLAIMS = (
    claim("counts", "Lemma A.3", _counts),
    claim("tenfold", "appendix C.3", _ten_times),
    claim("lower", "Fig. 3", _loss_falls),
)
_CASES = common.passes(_policies, every=25, record=_RECORD)
_TITLE = "Amount of exploration"
EXPERIMENTS = (
    experiment(
        "figure-3",
        f"{_TITLE}: loss and cost, mean of eight benchmarks",
        _CASES,
        512,
        _CLAIMS,
        {"figure-3": _picture},
        "Fig. 3",
    ),
    experiment("figure-C1", f"{_TITLE}, by benchmark", _CASES, 512, _CLAIMS[:2], {"figure-C1": _BY_BENCHMARK}, "Fig. C.1"),
)
