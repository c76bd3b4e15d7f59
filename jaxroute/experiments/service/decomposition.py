"""What Table 2 of MESS+ is made of: the debt of V, learning, and exploration; at the exploration that the paper states and at ten times it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxroute.analysis import plot
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_TABLE_2
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict, all_hold
from jaxroute.experiments.measure import Measured, end, show
from jaxroute.problems import service as sv

_V = 1e-3
# With the true base rates nothing is left to learn; without exploration nothing but the debt of V is left.
_LEARNED = ("learned, c = .01", "learned, c = .1", "learned, c = 1")
_KNOWN = ("base rates, c = .1", "base rates, c = 1")
_ALONE = "base rates, no exploration"


def _policies(env: sv.ServiceEnv, settings: dict[str, Any]) -> dict[str, Any]:
    paper = sv.paper_policy(settings["benchmark"], V=_V)
    known = paper.replace(predictor=sv.TrueChances(env.requests))
    return {
        **{name: paper.replace(c=c) for name, c in zip(_LEARNED, (0.01, 0.1, 1.0), strict=True)},
        **{name: known.replace(c=c) for name, c in zip(_KNOWN, (0.1, 1.0), strict=True)},
        _ALONE: known.replace(c=0.0),
    }


def _case(benchmark: str) -> Case:
    data = MESSPLUS_BENCHMARKS[benchmark]
    where = {"benchmark": benchmark, "alpha": data.alpha}
    record = ("cost", "satisfaction", "violation", "virtual_queue", "explored", "explore_overhead")
    return Case(sv.benchmark_service, _policies, data.num_requests, benchmark, where, where, record=record)


def _mj(results: Results, benchmark: str, policy: str) -> Measured:
    """MJ of a pass."""
    return end(results[benchmark], "cost", policy).times(MESSPLUS_BENCHMARKS[benchmark].num_requests / 1e6)


def _points(results: Results, benchmark: str, policy: str) -> Measured:
    """Points of satisfaction short of alpha; negative above it."""
    return end(results[benchmark], "violation", policy).times(100.0)


def _deviation(results: Results, policy: str) -> float:
    """Mean distance of a pass's cost to the paper's, relative to it."""
    paper = MESSPLUS_TABLE_2["MESS+"]
    return float(np.mean([abs(_mj(results, b, policy).mean / paper[b].cost_mj - 1.0) for b in results]))


def _costs_fit(results: Results) -> Verdict:
    found = {policy: _deviation(results, policy) for policy in _LEARNED}
    text = ", ".join(f"{policy}: {100 * share:.0f} %" for policy, share in found.items())
    return f"mean deviation from the paper's MJ per pass, {text}", found["learned, c = 1"] < 0.5 * found["learned, c = .1"]


@all_hold("points short of alpha (debt V x price / T): ", between=", ")
def _debt(results: Results) -> Iterator[Verdict]:
    """A queue at rest stands at V times the price of satisfaction, and what stands in it was not served."""
    for name, data in results.items():
        env = sv.benchmark_service(name, alpha=data.attrs["coordinates"]["alpha"])
        debt = 100.0 * _V * float(env.best.price) / MESSPLUS_BENCHMARKS[name].num_requests
        short = _points(results, name, _ALONE)
        yield f"{name} {show(short)} ({debt:.2f})", short.near(debt, by=4.0, slack=0.25)


def _learning(results: Results) -> Verdict:
    gaps = {
        name: (_points(results, name, "learned, c = .1"), _points(results, name, "base rates, c = .1")) for name in results
    }
    text = ", ".join(f"{name} {show(a)} with learning, {show(b)} without" for name, (a, b) in gaps.items())
    mean = float(np.mean([a.mean - b.mean for a, b in gaps.values()]))
    error = float(np.sqrt(sum(a.error**2 + b.error**2 for a, b in gaps.values()))) / len(gaps)
    return f"on average {show(Measured(mean, error))} points; points short of alpha: {text}", mean > 4.0 * error


def _exploring(results: Results) -> Verdict:
    parts = {
        name: [_mj(results, name, p).mean for p in (_ALONE, "base rates, c = .1", "base rates, c = 1")] for name in results
    }
    text = ", ".join(f"{name} {a:.2f}, {b:.2f}, {c:.2f}" for name, (a, b, c) in parts.items())
    return f"MJ per pass without exploration, c = .1, c = 1: {text}", all(a < b < c for a, b, c in parts.values())


def _picture(results: Results):
    """Cost of a pass and points short of alpha, by benchmark."""
    figure, (left, right) = plot.panels(2)
    names = list(results)
    place = np.arange(len(names))
    policies = (*_LEARNED, *_KNOWN, _ALONE)
    for i, policy in enumerate(policies):
        style = {"fmt": "osD^vP"[i], "markersize": 4, "capsize": 2, "linewidth": 1, "label": policy}
        for ax, measure in ((left, _mj), (right, _points)):
            values = [measure(results, name, policy) for name in names]
            ax.errorbar(place + 0.1 * (i - 2.5), [v.mean for v in values], [2 * v.error for v in values], **style)
    paper = MESSPLUS_TABLE_2["MESS+"]
    alphas = [100 * results[name].attrs["coordinates"]["alpha"] for name in names]
    left.plot(place, [paper[b].cost_mj for b in names], "k_", markersize=22, label="paper, Table 2")
    right.plot(place, [a - paper[b].satisfaction for a, b in zip(alphas, names, strict=True)], "k_", markersize=22)
    right.axhline(0.0, color="#888888", linewidth=0.8)
    for ax, label in ((left, "MJ per pass"), (right, "points short of alpha")):
        ax.set_xticks(place, [MESSPLUS_BENCHMARKS[name].title for name in names], rotation=30, ha="right")
        ax.set_ylabel(label)
    left.set_ylim(bottom=0.0)
    left.legend(fontsize=6)
    return figure


DECOMPOSITION = Experiment(
    "service/table-2-parts",
    "Table 2 taken apart: the debt of V, learning, and exploration as stated (c = .1) and as its costs suggest (c = 1)",
    tuple(_case(benchmark) for benchmark in MESSPLUS_BENCHMARKS),
    192,
    (
        Claim(
            "costs", "the paper's costs fit c = 1, not its stated c = .1 (half the deviation or less)", "ours", _costs_fit
        ),
        Claim("debt", "with true base rates and no exploration the shortfall is the debt V x price / T", "ours", _debt),
        Claim("learning", "learning adds to the shortfall", "ours", _learning),
        Claim("exploring", "exploration adds to the cost on every benchmark", "ours", _exploring),
    ),
    {"table-2-parts": _picture},
    source="MESS+, Table 2 and section 4",
    notes="the features tell nothing here, so that the best of what can be learned are the base rates; error bars are two standard errors",
    smoke_horizon=200,
)
