"""Studies of StageRoute that its paper does not contain: two ways to count, what the paper leaves open, and what its theorems say."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import xarray as xr

from jaxroute import grid, plot
from jaxroute.core.attributes import decoded
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, Measure, all_hold, bounded, grows_as, rising
from jaxroute.experiments.measure import (
    Measured,
    along,
    end,
    ends,
    ends_along,
    listed,
    lowest,
    paired_gap,
    show,
    with_coordinates,
)
from jaxroute.experiments.pictures import panel, side_by_side
from jaxroute.experiments.quantities import growth, known, mean
from jaxroute.experiments.staged.figures import INTERVAL, PAPER, alike, arena, longer_is_worse, symlog
from jaxroute.problems import staged

_INTERVALS = (250, 500, 1000)
_MODES = {
    "stage": "pool at stage starts, the paper's definition",
    "continuous": "pool at every query, newcomers miss their window",
}
# What the paper leaves open: StageRoute and Greedy with each choice that was not taken.
_OPEN_CHOICES = {
    "StageRoute": staged.StageRoute(),
    "NoFiller": staged.StageRoute(filler=staged.NoFiller()),
    "RandomFiller": staged.StageRoute(filler=staged.RandomFiller()),
    "IndexFiller": staged.StageRoute(filler=staged.IndexFiller()),
    "RandomTie": staged.StageRoute(tie=staged.RandomTie()),
    "Lemma3": staged.StageRoute(estimator=staged.Lemma3()),
    "RoutingScope": staged.StageRoute(scope=staged.RoutingScope()),
    "StageScope": staged.StageRoute(scope=staged.StageScope()),
    "Greedy": staged.Greedy(),
    "GreedyByRatio": staged.Greedy(routing=staged.RouteByRatio()),
    "GreedyToBest": staged.Greedy(routing=staged.RouteToBest()),
}
_GROUPS = {
    "free slots and ties": ("StageRoute", "NoFiller", "RandomFiller", "IndexFiller", "RandomTie"),
    "start values and past data": ("StageRoute", "Lemma3", "RoutingScope", "StageScope"),
    "routing inside a stage": ("Greedy", "GreedyByRatio", "GreedyToBest"),
}
# Stages of a horizon, in words and as a function of it.
_STAGES = {
    "10": lambda horizon: 10,
    "T^(1/3)": lambda horizon: round(horizon ** (1 / 3)),
    "T^(1/2)": lambda horizon: round(horizon**0.5),
}
_HORIZONS = tuple(n**3 for n in (10, 16, 24, 32, 44))
# Theorem 1 in its models and slots: sizes, those with N^(2/3) slots, T and its third root.
_MODELS, _FEW, _LONG, _WINDOWS, _DELTA = (24, 48, 96), (3, 6, 12), 2**18, 2**6, 0.1
_SQUARE, _CORNER = tuple(itertools.product(_MODELS, _FEW)), ((24, 8), (48, 13), (96, 21))
_GAMMAS, _SLOTS, _LONGER = (0.2, 1.0), (2, 4), (2000, 8000, 32_000, 128_000)


def _more_regret(policies: Sequence[str], than: str = "StageRoute") -> Measure:
    """Whether each of some policies has more regret than another, paired by seed."""

    def measure(results: Results) -> Finding:
        data = results["result"]
        gaps = {p: paired_gap(data, "conditional_regret", p, minus=than) for p in policies}
        spend = listed(ends(data, "cost_ratio", (than, *policies)))
        text = f"above {than} by {listed(gaps)}; spend / budget: {spend}"
        return text, [gap.above(0.0) for gap in gaps.values()]

    return measure


def _played(results: Results) -> list[int]:
    """The horizons of the cases."""
    return sorted({decoded(data.attrs)["case_coordinates"]["horizon"] for data in results.values()})


def _by_stages(results: Results, horizon: int) -> dict[int, Measured]:
    """StageRoute's regret by the number of stages, at a horizon."""
    cases = with_coordinates(results, horizon=horizon).values()
    return {_STAGES[decoded(d.attrs)["case_coordinates"]["stages"]](horizon): end(d, "regret", "StageRoute") for d in cases}


@all_hold(before="less with more stages; ")
def _more_stages_help(results: Results) -> Iterator[Finding]:
    for horizon in _played(results):
        regret = _by_stages(results, horizon)
        falls = [regret[many].below(regret[few]) for few, many in itertools.pairwise(sorted(regret))]
        yield f"T = {horizon:,}: {listed(regret, 'K = {}:')}", falls


def _above_bound(results: Results) -> Finding:
    """The least regret, in units of the bound."""
    ratios = {}
    for data in results.values():
        slots, horizon = (decoded(data.attrs)["case_coordinates"][name] for name in ("slots", "horizon"))
        for gamma, regret in ends_along(data, "regret", "StageRoute", "gamma").items():
            ratios[f"M = {slots}, T = {horizon:,}, gamma = {gamma:g}"] = regret.times(1 / staged.lower_bound(slots, horizon))
    least = lowest(ratios)
    text = f"{show(ratios[least])} times the bound or more, least with {least}"
    return text, [ratio.at_least(1.0) for ratio in ratios.values()]


def _discovery(rule: str, horizon: int) -> Case:
    def market(horizon: int) -> staged.MarketEnv:
        return staged.discovery_market(horizon=horizon, stages=min(horizon, _STAGES[rule](horizon)))

    name = f"{rule.replace('^', '').replace('/', '-')}-size{_HORIZONS.index(horizon) + 1}"
    where = {"stages": rule, "horizon": horizon}
    return Case(market, {"StageRoute": staged.StageRoute()}, horizon, name, coordinates=where, record_every=horizon)


def _waiting(models: int, slots: int) -> Case:
    """So many models wait for so many slots, and the confidence parameter is that of Theorem 1."""

    def market(horizon: int) -> staged.MarketEnv:
        stages = min(horizon, _WINDOWS)
        return staged.discovery_market(horizon=horizon, stages=stages, max_deployed=slots, num_models=models)

    def policies(env: staged.MarketEnv) -> dict[str, Any]:
        return {"StageRoute": staged.StageRoute(gamma=math.log(models * env.horizon / _DELTA)), "Uniform": staged.Uniform()}

    where = {"N": models, "M": slots, "horizon": _LONG}
    return Case(market, policies, _LONG, f"N{models}-M{slots}", coordinates=where, record_every=_LONG)


def _upper_bound(models: int, slots: int, horizon: int) -> float:
    """Theorem 1's bound with its open constants at 1."""
    learning = math.sqrt(slots * _WINDOWS * horizon * math.log(models * horizon / _DELTA))
    return learning + models * horizon / (slots * _WINDOWS)


def _within(bound: Callable[[int, int, int], float], *sizes: tuple[int, int]) -> Measure:
    """Whether regret is within a bound for some numbers of models and slots."""
    rows = []
    for n, m in sizes:
        name = f"N{n}-M{m}"
        rows.append((mean("StageRoute", name), known("the bound", partial(bound, n, m), name), mean("Uniform", name)))
    return bounded(*rows)


def _others_above_bound(results: Results) -> Finding:
    """Regret of other policies in units of the bound; the oracle, which knows the instance, has less."""
    parts, stated = [], []
    sizes = [
        (data, *(decoded(data.attrs)["case_coordinates"][name] for name in ("slots", "horizon")))
        for data in results.values()
    ]
    for policy in ("Greedy", "RandomDeploy", "Oracle"):
        ratios = [end(data, "regret", policy).times(1 / staged.lower_bound(m, T)) for data, m, T in sizes]
        parts.append(f"{policy} {show(min(ratios))} to {show(max(ratios))}")
        stated += [one.below(1.0) if policy == "Oracle" else one.at_least(1.0) for one in ratios]
    return f"times the bound: {', '.join(parts)}", stated


def _hard_instances(slots: int, horizon: int) -> Case:
    def sampler(horizon: int) -> Any:
        return staged.lower_bound_market(horizon=max(horizon, 8 * slots), max_deployed=slots)

    own = {"StageRoute": grid(staged.StageRoute, gamma=list(_GAMMAS)), "Oracle": staged.Oracle.of}
    policies = {**own, "Greedy": staged.Greedy(gamma=1.0), "RandomDeploy": staged.RandomDeploy(gamma=1.0)}
    where = {"slots": slots, "horizon": horizon}
    return Case(
        sampler, policies, horizon, f"M{slots}-size{_LONGER.index(horizon) + 1}", coordinates=where, record_every=horizon
    )


# Figures.


@alike
def _intervals(results: Results):
    figure, axes = plot.panels(4, columns=2)
    for column, (mode, words) in enumerate(_MODES.items()):
        cases = [results[f"{mode}-{interval}"] for interval in _INTERVALS]
        data = xr.concat(cases, xr.IndexVariable("interval", list(_INTERVALS)))
        symlog(data, "conditional_regret", plot.final, ax=axes[column], title=words)
        plot.final(data, "cost_ratio", ax=axes[2 + column])
        plot.level(axes[2 + column], "budget", 1.0)
    return figure


_choices = side_by_side(
    *(panel("conditional_regret", policies=list(policies), title=title) for title, policies in _GROUPS.items()),
    *(
        panel("cost_ratio", policies=list(policies), reference={"budget": 1.0}, title="spend")
        for policies in _GROUPS.values()
    ),
)


def _discovery_figure(results: Results):
    figure, (left, right) = plot.panels(2)
    rules = {f"K = {rule}": along(results, "regret", "horizon", stages=rule).sel(policy="StageRoute") for rule in _STAGES}
    plot.power_laws(rules, ax=left, title="against the horizon")
    by_stages = {f"T = {horizon:,}": list(_by_stages(results, horizon).items()) for horizon in _played(results)}
    seeds = next(iter(results.values())).sizes["seed"]
    plot.points(
        by_stages,
        x=f"stages K\nmean ± 2 s.e. of {seeds} seeds",
        y="cumulative regret (reward)",
        ax=right,
        title="against the stages",
    )
    for which in ("x", "y"):
        plot.log_axis(right, which)
    return figure


def _lower_bound_figure(results: Results):
    figure, axes = plot.panels(len(_SLOTS))
    for ax, slots in zip(axes, _SLOTS, strict=True):
        regret = along(results, "regret", "horizon", slots=slots).sel(policy="StageRoute")
        bound = [staged.lower_bound(slots, horizon) for horizon in regret["horizon"].values]
        ax.plot(regret["horizon"], bound, label="lower bound of Theorem 2", **plot.look(ax, "bound"))
        plot.power_laws({f"gamma = {gamma}": regret.sel(gamma=gamma) for gamma in _GAMMAS}, ax=ax, title=f"M = {slots}")
    return figure


def _theorem_1_figure(results: Results):
    figure, axes = plot.panels(len(_FEW))
    for ax, slots in zip(axes, _FEW, strict=True):
        regret, horizon = along(results, "regret", "N", M=slots), int(next(iter(results.values()))["time"][-1])
        bound = [_upper_bound(n, slots, horizon) for n in _MODELS]
        ax.plot(_MODELS, bound, label="bound of Theorem 1", **plot.look(ax, "bound"))
        plot.power_laws({name: regret.sel(policy=name) for name in ("StageRoute", "Uniform")}, ax=ax, title=f"M = {slots}")
        ax.set_xlabel(ax.get_xlabel().replace("N", "models, N", 1))
    return figure


# Experiments: a study is its cases, its claims (id -> text, part of the paper, measure) and its panels.


def _study(name: str, title: str, cases: Any, draw: Any, source: str, seeds: int = 200, **options: Any) -> Experiment:
    return Experiment(
        name=f"staged/{name}",
        title=title,
        cases=tuple(cases),
        seeds=seeds,
        claims=tuple(
            Claim(key, text, f"{PAPER}, {where}", measure) for key, (text, where, measure) in _CLAIMS[name].items()
        ),
        figures={name: draw},
        source=f"{PAPER}, {source}",
        **options,
    )


def _slope(rule: str, low: float, high: float) -> Measure:
    return grows_as("regret", "StageRoute", low, high, {"stages": rule})


_OURS = "sec. 4 and 6.1; the choice is ours"
_UNFILLED, _FORGETFUL, _BY_RATIO = (
    ("NoFiller", "RandomFiller", "IndexFiller"),
    ("RoutingScope", "StageScope"),
    ("GreedyByRatio", "GreedyToBest"),
)
_ARENA = {"max_deployed": 6, "stage_length": 500}
_CLAIMS = {
    "interval-effect": {mode: (f"{INTERVAL} (optimum: {words})", "sec. 6.1", longer_is_worse(f"{mode}-250", f"{mode}-1000"))
                        for mode, words in _MODES.items()},
    "open-choices": {
        "fillers": ("free slots left empty, filled at random or by index cost regret", _OURS, _more_regret(_UNFILLED)),
        "start": ("a start at mean 0 is hardly optimistic and costs regret", _OURS, _more_regret(("Lemma3",))),
        "scope": ("to forget the stages before costs regret", _OURS, _more_regret(_FORGETFUL)),
        "routing": ("Greedy has more regret if it routes by ratio than by the linear program", _OURS, _more_regret(_BY_RATIO, "Greedy")),
    },
    "discovery-slope": {
        "third": ("K = T^(1/3) stages give regret of order T^(2/3) (slope 0.62 to 0.70)", "Theorem 1", _slope("T^(1/3)", 0.62, 0.70)),
        "half": ("N T / (M K) rules: K = T^(1/2) gives slope 0.5 (0.45 to 0.55)", "Lemma 7", _slope("T^(1/2)", 0.45, 0.55)),
        "fixed": ("with K fixed the regret is linear (slope 0.95 to 1.05)", "Lemma 7", _slope("10", 0.95, 1.05)),
        "stages": ("more stages mean less regret: the bound's sqrt(M K T) is not seen", "Theorem 1; ours", _more_stages_help),
    },
    "theorem-1": {
        **{f"bound-N{n}-M{m}": (f"with {n} models and {m} slots regret is below sqrt(M K T log(N T / delta)) + N T / (M K)", "Theorem 1",
                                _within(_upper_bound, (n, m))) for n, m in _SQUARE},
        "models": ("it grows with the models as N T / (M K) does (power from .9 to 1.1)", "Theorem 1",
                   rising(*((0.9, growth("StageRoute", "N", {"M": m}), 1.1) for m in _FEW))),
        "slots": ("it falls with the slots as N T / (M K) does (power from -1.1 to -.9)", "Theorem 1",
                  rising(*((-1.1, growth("StageRoute", "M", {"N": n}), -0.9) for n in _MODELS))),
        "corollary": ("with N^(2/3) slots and T^(1/3) stages it is below N^(1/3) T^(2/3)", "Theorem 1", _within(lambda n, m, T: n ** (1 / 3) * T ** (2 / 3), *_CORNER)),
    },
    "lower-bound": {
        "above": ("the regret of StageRoute, with either gamma, is at least C M^(1/3) T^(2/3), C = c^(1/3) / 16 (here c = 1)", "Theorem 2", _above_bound),
        "others": ("so is that of Greedy and RandomDeploy (gamma = 1); the oracle, which knows the instance, has less", "Theorem 2", _others_above_bound),
        **{f"slope-M{m}-gamma{gamma}": (f"regret grows as T^(2/3) with M = {m}, gamma = {gamma} (slope 0.60 to 0.75)", "Theorem 2",
                                        grows_as("regret", "StageRoute", 0.60, 0.75, {"slots": m}, gamma=gamma)) for m in _SLOTS for gamma in _GAMMAS},
    },
}  # fmt: skip

EXPERIMENTS = (
    _study(
        "interval-effect",
        "Does a longer interval between maintenance windows hurt? Two ways to keep the books",
        [
            arena(interval, 6, f"{mode}-{interval}", optimum=mode, arrival_lag=int(mode == "continuous"))
            for mode in _MODES
            for interval in _INTERVALS
        ],
        _intervals,
        "sec. 6.1; the second bookkeeping is ours",
        seeds=512,
        notes="arrivals coincide with maintenance windows and the optimum follows the windows, so with the paper's definition "
        "StageRoute's regret does not depend on the interval and Greedy's falls",
    ),
    _study(
        "open-choices",
        "What the paper leaves open: fillers, ties, start values, past data, and Greedy's routing",
        [Case(staged.arena_market, _OPEN_CHOICES, 10_000, settings=_ARENA, record_every=500)],
        _choices,
        "sec. 4 and 6.1; the variants are ours",
        seeds=512,
    ),
    _study(
        "discovery-slope",
        "How regret grows with the horizon, and falls with the stages, when 30 models wait for 3 slots",
        [_discovery(rule, horizon) for rule in _STAGES for horizon in _HORIZONS],
        _discovery_figure,
        "Theorem 1; the instance is ours",
        smoke_horizon=4000,
        notes="statistics persist over stages, so that nothing is learned anew",
    ),
    _study(
        "theorem-1",
        "How regret grows with the models that wait and falls with the slots, beside the bound of Theorem 1",
        [_waiting(*size) for size in (*_SQUARE, *_CORNER)],
        _theorem_1_figure,
        "Theorem 1; the instance is ours",
        seeds=16,
        smoke_horizon=4096,
        notes="gamma = log(N T / delta) with delta = .1; the theorem leaves its constants open, here they are 1",
    ),
    _study(
        "lower-bound",
        "Regret on the paper's hard instances, next to its lower bound",
        [_hard_instances(slots, horizon) for slots in _SLOTS for horizon in _LONGER],
        _lower_bound_figure,
        "Theorem 2 and appendix C",
        smoke_horizon=8000,
        notes="all costs are 1 and newcomers look best, so that Greedy deploys what StageRoute does",
    ),
)
