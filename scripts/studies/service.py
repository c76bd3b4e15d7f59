"""Studies of MESS+: Table 2 taken apart, informative features, frontiers and ablations.

jaxroute run scripts/studies/service.py:signal
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.core.attributes import decoded
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_MODELS, MESSPLUS_TABLE_2
from jaxroute.data.papers import MESSPLUS_REPLAY
from jaxroute.experiments.base import Case, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least
from jaxroute.experiments.measure import Measured, average, ends_along, listed, mean_of, published
from jaxroute.experiments.pictures import Panel, panels_of, side_by_side
from jaxroute.experiments.service import paper as common
from jaxroute.experiments.service.paper import claim, experiment, mj, points_short, reached
from jaxroute.experiments.service.theory import C, base_rate_loss
from jaxroute.experiments.verdicts import Verdict, judge
from jaxroute.problems import service as sv

# Table 2 taken apart: the debt of V, learning and exploration, with as much exploration as the paper states and ten times as much.

_V = 1e-3
_SPENT = ("cost", "satisfaction", "violation")
# With the true base rates nothing is left to learn; without exploration nothing but the debt of V is left.
_LEARNED = {"MESS+, c = 0.01": 0.01, "MESS+": 0.1, "MESS+, c = 1": 1.0}
_KNOWN = {"base rates, c = 0.1": 0.1, "base rates, c = 1": 1.0}
_ALONE, _MIDDLE = "base rates, no exploration", MESSPLUS_MODELS[1]


def _parts(env: sv.ServiceEnv, settings: dict[str, Any]) -> dict[str, Any]:
    paper = sv.paper_policy(settings["benchmark"], V=_V)
    known = paper.replace(predictor=sv.TrueProbabilities(env.requests))
    return {
        _MIDDLE: sv.Single(1),
        **{name: paper.replace(c=c) for name, c in _LEARNED.items()},
        **{name: known.replace(c=c) for name, c in _KNOWN.items()},
        _ALONE: known.replace(c=0.0),
    }


def _debt_of(benchmark: str) -> float:
    """Returns the shortfall of satisfaction, in percentage points, that the virtual queue causes: its stationary length `V price`, over `T`."""
    return 100.0 * _V * float(common.at_its_target(benchmark).best.price) / MESSPLUS_BENCHMARKS[benchmark].num_requests


def _costs_fit(results: Results) -> Finding:
    """The paper's costs fit c = 1 better than its stated c = .1: the mean deviation is at most half as large."""
    paper, found, texts = MESSPLUS_TABLE_2["MESS+"], {}, []
    for policy in (*_LEARNED, *_KNOWN):
        apart = [mj(results, name, policy).times(1.0 / paper[name].cost_mj) for name in results]
        off = [a.minus(1.0).times(math.copysign(100.0, a.mean - 1.0)) for a in apart]
        found[policy] = average(off)
        near = sum(abs(a.mean - 1.0) < 0.15 for a in apart)
        texts.append(f"{policy}: {found[policy]} %, {near} of {len(apart)} within 15 %")
    stated = found["MESS+, c = 1"].below(found["MESS+"].times(0.5))
    return f"mean deviation from the paper's MJ per pass, {'; '.join(texts)}", stated


@all_hold("points short of alpha (V x price / T, V x price in requests): ", between=", ")
def _debt(results: Results) -> Iterator[Finding]:
    """Without learning and exploration the shortfall is at most V x price / T, up to a tenth of a point."""
    for name in results:
        short, debt = points_short(results, name, _ALONE), _debt_of(name)
        owed = debt * MESSPLUS_BENCHMARKS[name].num_requests / 100.0
        yield f"{name} {short} ({debt:.2f}, {owed:.1f})", short.at_most(debt, margin=0.1)


def _learning(results: Results) -> Finding:
    """Learning increases the shortfall, in the mean over the benchmarks."""
    parts, differences = [], {}
    for name in results:
        ways = ("MESS+", "base rates, c = 0.1")
        with_learning, without = (common.runs(results, name, "violation", way) for way in ways)
        differences[name] = 100.0 * (with_learning - without)
        shown = [str(points_short(results, name, way)) for way in ways]
        parts.append(f"{name} {shown[0]}, of these {_debt_of(name):.2f} are V x price / T, with base rates {shown[1]}")
    mean = common.averaged(differences)
    return f"{mean} points in the mean; points short of alpha: {'; '.join(parts)}", mean.above(0.0)


@all_hold("MJ per pass without exploration, c = .1, c = 1: ", between=", ")
def _exploring(results: Results) -> Iterator[Finding]:
    """Exploration increases the cost on every benchmark, paired by seed."""
    for name in results:
        costs = [common.runs(results, name, "cost", policy) for policy in (_ALONE, *_KNOWN)]
        shown = ", ".join(str(mj(results, name, policy)) for policy in (_ALONE, *_KNOWN))
        yield f"{name} {shown}", [mean_of(b - a).above(0.0) for a, b in itertools.pairwise(costs)]


@all_hold("MJ (replay): ", between=", ")
def _as_replayed(results: Results) -> Iterator[Finding]:
    """MESS+ costs as much as in a replay of the recorded outcomes, within .05 MJ.

    The replay had 4 to 6 runs; its standard error is assumed to be that of 4 of the simulated runs.
    """
    for name in results:
        cost, replay = mj(results, name, "MESS+"), MESSPLUS_REPLAY[0.1][name]
        yield f"{name} {cost} ({replay})", cost.near(published(replay, 4, cost), margin=0.05)


def _single_is_cheaper(results: Results) -> Finding:
    """The model of middle size alone meets seven of eight targets, at less cost than the paper's MESS+."""
    parts, fits, ours, cheaper, mixtures = [], 0, 0, [], 0

    def holds(statement: Any) -> bool:
        return judge(statement).verdict is Verdict.HOLDS

    for name in results:
        data = MESSPLUS_BENCHMARKS[name]
        single, cost = (mj(results, name, policy) for policy in (_MIDDLE, "MESS+"))
        share = reached(results, name, "satisfaction", "MESS+")
        requests = common.at_its_target(name).requests
        blind = sv.best_blind(requests, min(share.mean, data.accuracy.max())).value * data.num_requests / 1e6
        mixtures += holds(cost.above(blind))
        text = f"MESS+ {cost}, best mixture at its share {blind:.3f}"
        if data.accuracy[1] >= data.alpha:
            fits, ours = fits + 1, ours + holds(single.below(cost))
            cheaper.append(single.below(MESSPLUS_TABLE_2["MESS+"][name].cost_mj))
            text += f", {_MIDDLE} {single}"
        parts.append(f"{name} {text}")
    less = f"for less than the paper's MESS+ on {sum(map(holds, cheaper))}, than ours on {ours}"
    counts = f"{_MIDDLE} meets alpha on {fits} of {len(results)}, {less}"
    mixed = f"the best mixture at the share that MESS+ reached costs less on {mixtures}"
    return f"{counts}; {mixed}; MJ: {'; '.join(parts)}", at_least(7, cheaper) if len(cheaper) >= 7 else False


def _parts_picture(results: Results) -> Any:
    """Draws for each benchmark the cost of a pass relative to the paper's cost, and the percentage points that satisfaction lacks to alpha."""
    figure, axes = plot.panels(2, size=(6.6, 3.6))
    names, paper = list(results), MESSPLUS_TABLE_2["MESS+"]
    labels, policies = [MESSPLUS_BENCHMARKS[name].title for name in names], (*_LEARNED, *_KNOWN, _ALONE)
    spent: dict[str, Any] = {p: [] for p in policies}
    short: dict[str, Any] = {p: [] for p in policies}
    for place, policy in enumerate(policies):
        for x, name in enumerate(names):
            at = x + 0.12 * (place - (len(policies) - 1) / 2)
            spent[policy].append((at, mj(results, name, policy).times(1.0 / paper[name].cost_mj)))
            short[policy].append((at, points_short(results, name, policy)))
    runs = f"mean ± 2 s.e. of {next(iter(results.values())).sizes['seed']:,} runs"
    plot.points(spent, x=runs, y="MJ per pass, in those of the paper", ax=axes[0], join=False)
    plot.level(axes[0], "the paper's", 1.0)
    plot.points(short, x=runs, y="points short of alpha", ax=axes[1], join=False)
    at_paper = [100 * MESSPLUS_BENCHMARKS[name].alpha - paper[name].satisfaction for name in names]
    axes[1].plot(range(len(names)), at_paper, "kx", markersize=7, label="MESS+ in the paper")
    debts = [_debt_of(name) for name in names]
    axes[1].hlines(debts, np.arange(len(names)) - 0.42, np.arange(len(names)) + 0.42, color="#333333", label="V x price / T")
    axes[1].axhline(0.0, color="#888888", linewidth=0.8)
    for ax in axes:
        ax.set_xticks(range(len(names)), labels, rotation=30, ha="right")
    plot.share_legend(figure)
    return figure


# Informative features.

_SIGNALS = [0.0, 0.15, 0.37, 0.6, 1.0]
_INFORMATIVE = 0.6  # From here on a feature's area under the curve is at least .80.


def _by_signal(env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    learning = grid(sv.paper_policy, benchmark=settings["benchmark"], V=_V, c=C)
    return {"MESS+": learning, "MESS+ that knows": common.informed(V=_V)}


def _above_blind(results: Results, name: str, policy: str, **where: Any) -> xr.DataArray:
    """Returns for each run by how many percent its cost exceeds the cost of the best blind mixture that satisfies the same share of requests."""
    cost, share = (common.runs(results, name, metric, policy, **where) for metric in ("cost", "satisfaction"))
    middle, accuracy = float(share.mean()), MESSPLUS_BENCHMARKS[name].accuracy.max()
    blind = sv.best_blind(common.at_its_target(name).requests, min(middle, accuracy))
    return 100.0 * ((cost - blind.price * (share - middle)) / blind.value - 1.0)


def _at_signals(results: Results, measure: Callable[..., xr.DataArray], policy: str, **where: Any) -> dict[float, Measured]:
    """Returns the mean over the benchmarks of a function `measure` of the runs, for each strength of the features' signal."""
    return {s: common.averaged({n: measure(results, n, policy, signal=s, **where) for n in results}) for s in _SIGNALS}


def _short(results: Results, name: str, policy: str, **where: Any) -> xr.DataArray:
    return 100.0 * common.runs(results, name, "violation", policy, **where)


def _loss(results: Results, name: str, policy: str, **where: Any) -> xr.DataArray:
    return common.runs(results, name, "training_loss", policy, **where)


def _beats_the_mixture(results: Results) -> Finding:
    """MESS+ with informative features costs less than the best blind mixture at its share, mean over the benchmarks."""
    found = {c: _at_signals(results, _above_blind, "MESS+", c=c) for c in C}
    text = "; ".join(f"c {c:g}: {listed(values, '{:g}:')}" for c, values in found.items())
    stated = [v.below(0.0) for s, v in found[0.1].items() if s >= _INFORMATIVE]
    return f"percent above the best blind mixture at the share reached, mean of the benchmarks, by signal, {text}", stated


def _shortfall_shrinks(results: Results) -> Finding:
    """The shortfall is smaller with the most informative features."""
    short = _at_signals(results, _short, "MESS+", c=0.1)
    known = _at_signals(results, _short, "MESS+ that knows")
    text = f"points short of alpha by signal, {listed(short, '{:g}:')}; with the true probabilities {listed(known, '{:g}:')}"
    return text, short[_SIGNALS[-1]].below(short[0.0])


def _more_exploring_learns(results: Results) -> Finding:
    """A larger c gives a lower loss with informative features (those of Fig. 3 are uninformative)."""
    found = {c: _at_signals(results, _loss, "MESS+", c=c) for c in C}
    text = "; ".join(f"c {c:g}: {listed(values, '{:g}:')}" for c, values in found.items())
    informative = [s for s in _SIGNALS if s >= _INFORMATIVE]
    stated = [found[b][s].below(found[a][s]) for a, b in itertools.pairwise(C) for s in informative]
    return f"mean loss of explored requests in nats, by signal, {text}", stated


def _signal_picture(results: Results) -> Any:
    """Draws, by strength of signal, means over the benchmarks: cost relative to the best mixture, percentage points short of alpha, and loss."""
    figure, axes = plot.panels(3)
    labels = {"MESS+": 0.1, "MESS+, c = 0.01": 0.01, "MESS+, c = 1": 1.0, "MESS+ that knows": None}
    runs = f"signal of the features\nmean ± 2 s.e. of {next(iter(results.values())).sizes['seed']:,} runs"
    for ax, measure, label in (
        (axes[0], _above_blind, "percent above the best blind mixture at the share reached"),
        (axes[1], _short, "points short of alpha"),
        (axes[2], _loss, "mean loss of explored requests (nats)"),
    ):
        series = {}
        for name, c in labels.items():
            if c is not None or measure is not _loss:
                policy, where = ("MESS+", {"c": c}) if c else (name, {})
                series[name] = list(_at_signals(results, measure, policy, **where).items())
        plot.points(series, x=runs, y=label, ax=ax)
    plot.level(axes[0], "best blind mixture", 0.0)
    plot.level(axes[1], "target", 0.0)
    plot.level(axes[2], "who knows the base rates", float(np.mean([base_rate_loss(name) for name in results])))
    return figure


# Cost against satisfaction.

_TARGETS = [0.62, 0.65, 0.68, 0.70, 0.72, 0.74, 0.76, 0.78]


def _frontier_env(signal: float) -> Any:
    return grid(sv.benchmark_service, benchmark="winogrande", signal=signal, alpha=_TARGETS, reveals_labels=True)


def _frontier_case(signal: float) -> Case:
    policies = {
        "MESS+": grid(sv.paper_policy, benchmark="winogrande", V=[1e-4, 1e-3, 1e-2]),
        "MESS+ that knows": common.informed(V=1e-3),
        "EducatedGuessing": sv.EducatedGuessing.of,
        "RouteLLM": sv.RouteLLM.of,
        "OracleBlind": sv.OracleBlind.of,
        "OracleInformed": sv.OracleInformed.of,
        "OracleClairvoyant": sv.OracleClairvoyant.of,
    }
    where = {"signal": signal}
    return Case(_frontier_env, policies, 5000, f"signal-{signal:g}", where, where, record_every=5000, record=common.RECORD)


@all_hold("J at a target of .70, clairvoyant, informed, blind; ")
def _between_oracles(results: Results) -> Iterator[Finding]:
    """Oracles with more knowledge (clairvoyant, informed, blind) cost no more, at every target up to 1 %."""
    for name, data in results.items():
        costs = [ends_along(data, "cost", f"Oracle{kind}", "alpha") for kind in ("Clairvoyant", "Informed", "Blind")]
        pairs = [(a[alpha], b[alpha]) for a, b in itertools.pairwise(costs) for alpha in a]
        shown = ", ".join(str(list(c.values())[_TARGETS.index(0.70)]) for c in costs)
        yield f"{name}: {shown}", [a.at_most(b.times(1.01)) for a, b in pairs]


def _frontier(results: Results) -> Any:
    """Draws mean cost against satisfaction, one point per target."""
    data = MESSPLUS_BENCHMARKS["winogrande"]
    figure, axes = plot.panels(len(results), size=(5.6, 3.8))
    for ax, one in zip(axes, results.values(), strict=True):
        series = {}
        for policy in map(str, one["policy"].values):
            for V in one["V"].values if policy == "MESS+" else [None]:
                where = {} if V is None else {"V": V}
                name = policy if V in (None, _V) else f"{policy}, V = {V:g}"
                at = (ends_along(one, metric, policy, "alpha", **where) for metric in ("satisfaction", "cost"))
                series[name] = list(zip(*(values.values() for values in at), strict=True))
        for m, name in enumerate(MESSPLUS_MODELS):
            series[f"always {name}"] = [(data.accuracy[m], data.energy_mean[m])]
        title = f"Winogrande, signal {decoded(one.attrs)['case_coordinates']['signal']:g}"
        label = f"satisfaction\nmean ± 2 s.e. of {one.sizes['seed']:,} runs, targets {_TARGETS[0]:g} to {_TARGETS[-1]:g}"
        plot.points(series, x=label, y="J per request", ax=ax, title=title)
        plot.log_axis(ax, "y")
    return figure


# One part changed.


def _ablations(env: sv.ServiceEnv) -> dict[str, Any]:
    paper = sv.paper_policy("winogrande")
    optimiser = paper.optimiser
    return {
        "MESS+": paper,
        "authors' code": sv.code_policy("winogrande"),
        "MLP head": paper.replace(predictor=sv.Learned(sv.Mlp(width=16))),
        "no momentum": paper.replace(optimiser=optimiser.replace(momentum=0.0)),
        "running mean of costs": paper.replace(costs=sv.RunningMeanCost()),
        "costs as last measured": paper.replace(costs=sv.LastCost()),
        "first request at random": paper.replace(explores_first=False),
        "knows the probabilities": paper.replace(predictor=sv.TrueProbabilities(env.requests)),
        "knows who satisfies": paper.replace(predictor=sv.Labels()),
        "explores only the first": paper.replace(c=0.0),
        "explores always": paper.replace(c=1e9),
        **{f"explores as t^-{p:g}": paper.replace(explore_power=p) for p in (0.0, 0.125, 0.5, 1.0)},
        "most satisfying": sv.MostSatisfying(optimiser=optimiser),
        "cheapest above alpha": sv.CheapestAbove(optimiser=optimiser),
        "queue held at V x price": sv.ShadowPrice(optimiser=optimiser, price=env.best.price),
        "safety margin": paper.replace(margin=0.05),
    }


_ABLATIONS = (
    *(dataclasses.replace(case, name=name) for name, best in (("largest-answers", False), ("best-answers", True))
        for case in common.passes(_ablations, ["winogrande"], signal=0.15, serve_best=best, reveals_labels=True)),
    *(dataclasses.replace(case, name="sparse-feedback")
        for case in common.passes({"MESS+": sv.paper_policy()}, ["winogrande"], signal=0.15, arrival=[0.1, 0.2, 0.5, 1.0])),
)  # fmt: skip


_PARTS_CLAIMS = tuple(
    claim(name, "ours", measure)
    for name, measure in (
        ("costs", _costs_fit),
        ("debt", _debt),
        ("learning", _learning),
        ("exploring", _exploring),
        ("replay", _as_replayed),
        ("single", _single_is_cheaper),
    )
)
_SIGNAL_CLAIMS = (
    claim("mixture", "ours", _beats_the_mixture),
    claim("short", "ours", _shortfall_shrinks),
    claim("loss", "Fig. 3", _more_exploring_learns),
)
_PLANES = panels_of(
    rows=(Panel("cost", plot.sweep), Panel("violation", plot.sweep)),
    columns="case",
    cases=("largest-answers", "best-answers"),
    titles={"largest-answers": "the largest model answers explored requests", "best-answers": "one that satisfies does"},
)
_FEEDBACK = side_by_side(
    *(Panel(metric, plot.sweep, case="sparse-feedback") for metric in ("cost", "violation", "explored"))
)
_NOTES = {
    "parts": "the features are uninformative, so that only the base rates can be learned",
    "signal": "stand-in features: that of a model is signal x (2 s - 1) plus normal noise; area under the curve .5, .58, .70, .80, .92; "
    "those from .80 on are informative",
    "ablations": "in Algorithm 1 a satisfying model answers an explored request; arrival is the probability of feedback",
}
_PARTS_TITLE = "Parts of Table 2: debt of V, learning, and exploration as stated (c = .1) and as its costs suggest (c = 1)"
_SIGNAL_CASES = common.passes(_by_signal, signal=_SIGNALS, record=(*_SPENT, "explored", "training_loss", "training_steps"))
_FRONTIERS = tuple(_frontier_case(signal) for signal in (0.0, 0.6))
_ORDER = claim("order", "ours", _between_oracles)
EXPERIMENTS = (
    experiment("table-2-parts", _PARTS_TITLE,
        common.passes(_parts, record=(*_SPENT, "virtual_queue", "explored", "explore_overhead")), 256, _PARTS_CLAIMS,
        {"table-2-parts": _parts_picture}, "Table 2 and section 4", notes=_NOTES["parts"]),
    experiment("signal", "MESS+ with informative features", _SIGNAL_CASES, 128, _SIGNAL_CLAIMS, {"signal": _signal_picture},
        notes=_NOTES["signal"]),
    experiment("frontier", "Cost against satisfaction: MESS+, baselines and oracles", _FRONTIERS, 256, (_ORDER,),
        {"frontier": _frontier}),
    experiment("ablations", "MESS+ with one part changed: Winogrande", _ABLATIONS, 512, (),
        {"ablations": _PLANES, "sparse-feedback": _FEEDBACK}, notes=_NOTES["ablations"]),
)  # fmt: skip
