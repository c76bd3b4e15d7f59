"""What ACQB loses in a single round, and queues in which a second answer is shown only sometimes."""

from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold
from jaxroute.experiments.measure import ends_along, listed, mean_of, power, show, show_slope
from jaxroute.experiments.pictures import panel, side_by_side
from jaxroute.experiments.queueing.common import PAPER, RECORD, gap
from jaxroute.experiments.queueing.theory import SHARED_ACQB, SHARED_THEORY, estimate, shared_queue
from jaxroute.problems import queueing as qu

_SHARES = [0.0, 0.1, 0.25, 0.5, 1.0]
_SLACK = float(qu.RandomQueues().slack)
_GAPS = ("joint_regret", "explored")


def _gaps(data: xr.Dataset) -> xr.DataArray:
    """The gap of each round to the best query and assortment, `[seed, time]`; NaN where the round explored."""
    data = data.isel(policy=0)
    lost, explored = (data[name].diff("time", label="upper").transpose("seed", "time") for name in _GAPS)
    return lost.where(explored == 0).where(data["valid"])


def _windows(results: Results) -> xr.DataArray:
    """Mean gap in windows of doubling length, `[first, seed]`."""
    gaps = _gaps(results["gaps"])
    rounds = int(gaps["time"][-1])
    firsts = [rounds // 2**j for j in range(5, 0, -1)]
    means = [gaps.where((gaps["time"] > first) & (gaps["time"] <= 2 * first)).mean("time") for first in firsts]
    return xr.concat(means, xr.IndexVariable("first", firsts))


def _per_round(results: Results) -> Finding:
    data = results["shared"]
    gaps, least = _gaps(data), data["estimate.least"].isel(policy=0).transpose("seed", "time")
    reach = xr.DataArray([SHARED_THEORY.reach(float(t)) for t in gaps["time"].values], {"time": gaps["time"]})
    bound = reach / np.sqrt(least.sel(time=gaps["time"]))
    share = mean_of((gaps / bound).max("time"))
    # The departure rate is at most 1, and so is any gap.
    anyone = mean_of((1.0 / bound).max("time"))
    text = f"largest gap over its bound, mean of the runs: {show(share)}; bounds from {float(bound.min()):,.0f} on"
    return text, share.at_most(1.0).unless("a gap of 1, the largest that is possible,", anyone.at_most(1.0))


def _small_later(results: Results) -> Finding:
    gaps = _gaps(results["gaps"])
    late = gaps.where(gaps["time"] > 0.9 * float(gaps["time"][-1]))
    most = _SLACK / 2
    small = mean_of((late <= most).where(late.notnull()).mean("time"))
    tau = SHARED_THEORY.bad_rounds(float(gaps["time"][-1]))
    text = f"{100 * small.mean:.1f} % of the last tenth of the rounds have gaps below {most:g}; tau(t) is {tau:.1g} rounds"
    return text, small.at_least(0.99)


def _decay(results: Results) -> Finding:
    windows = _windows(results)
    found = {int(first): mean_of(windows.sel(first=first)) for first in windows["first"].values}
    slope = power(windows, "first")
    return f"by first round {listed(found, '{}:')}; power of the round {show_slope(slope)}", slope.at_most(-0.25)


@all_hold()
def _second_answers(results: Results) -> Any:
    found = ends_along(results["mixed"], "queue_length", "ACQB", "second_answer")
    text = ", ".join(f"{share:g}: {show(queue)}" for share, queue in found.items())
    yield f"final queue by the share of rounds with two answers, {text}", [found[0.25].below(found[0.0].times(0.5))]


def _as_always(results: Results) -> Finding:
    data = results["mixed"].sel(second_answer=0.5, drop=True)
    difference = gap(data, "queue_length", "ACQB", "Optimal")
    return f"half of the rounds with two answers: final queue minus the optimal {show(difference)}", difference.at_most(1.0)


def _draw_gaps(data: xr.Dataset, metric: str, ax: Any, title: str | None) -> None:
    del metric
    runs = _windows({"gaps": data})
    places = [(float(first), mean_of(runs.sel(first=first))) for first in runs["first"].values]
    x = f"first round of a window of doubling length\nmean ± 2 s.e. of {runs.sizes['seed']} seeds"
    plot.points({"ACQB": places}, x=x, y="gap of a round (departures)", ax=ax, title=title)
    for which in ("x", "y"):
        plot.log_axis(ax, which)
    plot.level(ax, "half the slack", _SLACK / 2)


_CLAIMS = (
    ("per-round", "proposition 10", "a round that does not explore loses at most (alpha + 48 beta) / sqrt(least eigenvalue)", _per_round),
    ("good-rounds", "ours, after proposition 14", "long before tau(t) 99 % of such rounds lose less than half the slack", _small_later),
    ("decay", "lemma 11", "the loss of such a round falls at least as t^(-1/4), as the bound does", _decay),
    ("mixed", "ours", "with two answers in a quarter of the rounds the queue is less than half of that with one", _second_answers),
    ("half", "ours", "with two answers in half of the rounds it ends within one query of the optimal one", _as_always),
)  # fmt: skip
GAPS = Experiment(
    "queueing/gaps",
    "What a round loses that does not explore, and queues that show a second answer only sometimes",
    (
        Case(
            shared_queue, {"ACQB": SHARED_ACQB}, 1000, "shared", record_every=1, record=_GAPS, probes={"estimate": estimate}
        ),
        Case(qu.RandomQueues, {"ACQB": qu.ACQB()}, 4000, "gaps", record_every=1, record=_GAPS),
        Case(
            qu.RandomQueues,
            {"ACQB": grid(qu.ACQB, second_answer=_SHARES), "Optimal": qu.Optimal.of},
            1000,
            "mixed",
            {"num_offered": 2, "mixed": True},
            record=RECORD,
        ),
    ),
    256,
    tuple(
        Claim(name, text, where if where.startswith("ours") else f"{PAPER}, {where}", measure)
        for name, where, text, measure in _CLAIMS
    ),
    {
        "gaps": side_by_side(
            panel("joint_regret", _draw_gaps, case="gaps", title="a round without exploring"),
            panel("queue_length", case="mixed", title="two answers in a share of the rounds"),
            columns=2,
        )
    },
    source=f"{PAPER}, propositions 10 and 14, lemma 11; mixed numbers of answers are ours",
    notes="the optimal policy always shows two answers; tau(t), from which proposition 14 speaks, is beyond all horizons, so that its bound is judged "
    "on the last tenth of a run, with the slack of the instances and without eta",
    smoke_horizon=400,
)
