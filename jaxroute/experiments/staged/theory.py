"""Theorems of StageRoute: growth of regret with horizon, models and slots, and the lower bound."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import xarray as xr

from jaxroute import grid, plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, Measure, all_hold, bounded, grows_as, growth, known, mean, rising
from jaxroute.experiments.measure import along, coordinates_of, end, ends_along, listed, lowest, show, with_coordinates
from jaxroute.experiments.staged.figures import PAPER
from jaxroute.experiments.verdicts import Measured
from jaxroute.problems import staged

# Rules for the number of stages: in words, and as functions of the horizon T.
_STAGES = {
    "10": lambda horizon: 10,
    "T^(1/3)": lambda horizon: round(horizon ** (1 / 3)),
    "T^(1/2)": lambda horizon: round(horizon**0.5),
}
_HORIZONS = tuple(n**3 for n in (10, 16, 24, 32, 44))
# Sizes for Theorem 1: numbers N of models and of slots, horizon T, T^(1/3) stages, delta; then all pairs, and pairs with N^(2/3) slots.
_MODELS, _FEW, _LONG, _WINDOWS, _DELTA = (24, 48, 96), (3, 6, 12), 2**18, 2**6, 0.1
_SQUARE, _CORNER = tuple(itertools.product(_MODELS, _FEW)), ((24, 8), (48, 13), (96, 21))
_GAMMAS, _SLOTS, _LONGER = (0.2, 1.0), (2, 4), (2000, 8000, 32_000, 128_000)


def _by_stages(results: Results) -> dict[int, dict[int, Measured]]:
    """Returns StageRoute's mean regret as `{horizon: {number of stages: regret}}`."""
    found: dict[int, dict[int, Measured]] = {}
    for horizon in sorted({coordinates_of(data)["horizon"] for data in results.values()}):
        cases = with_coordinates(results, horizon=horizon).values()
        stages = [_STAGES[coordinates_of(data)["stages"]](horizon) for data in cases]
        found[horizon] = {number: end(data, "regret", "StageRoute") for number, data in zip(stages, cases, strict=True)}
    return found


@all_hold(before="less with more stages; ")
def _more_stages_help(results: Results) -> Iterator[Finding]:
    for horizon, regret in _by_stages(results).items():
        falls = [regret[many].below(regret[few]) for few, many in itertools.pairwise(sorted(regret))]
        yield f"T = {horizon:,}: {listed(regret, 'K = {}:')}", falls


def _lower_bound_of(data: xr.Dataset) -> tuple[str, float]:
    """Returns a label of a case (number of deployed models and horizon), and the paper's lower bound on the regret in this case."""
    slots, horizon = (coordinates_of(data)[name] for name in ("slots", "horizon"))
    return f"M = {slots}, T = {horizon:,}", staged.lower_bound(slots, horizon)


def _above_bound(results: Results) -> Finding:
    ratios = {}
    for data in results.values():
        name, bound = _lower_bound_of(data)
        for gamma, regret in ends_along(data, "regret", "StageRoute", "gamma").items():
            ratios[f"{name}, gamma = {gamma:g}"] = regret.times(1 / bound)
    least = lowest(ratios)
    text = f"{show(ratios[least])} times the bound or more, least with {least}"
    return text, [ratio.at_least(1.0) for ratio in ratios.values()]


def _others_above_bound(results: Results) -> Finding:
    parts, stated = [], []
    for policy in ("Greedy", "RandomDeploy", "Oracle"):
        ratios = [end(data, "regret", policy).times(1 / _lower_bound_of(data)[1]) for data in results.values()]
        parts.append(f"{policy} {show(min(ratios))} to {show(max(ratios))}")
        stated += [one.below(1.0) if policy == "Oracle" else one.at_least(1.0) for one in ratios]
    return f"times the bound: {', '.join(parts)}", stated


def _discovery(rule: str, horizon: int) -> Case:
    def market(horizon: int) -> staged.MarketEnv:
        return staged.discovery_market(horizon=horizon, stages=min(horizon, _STAGES[rule](horizon)))

    name = f"{rule.replace('^', '').replace('/', '-')}-size{_HORIZONS.index(horizon) + 1}"
    where = {"stages": rule, "horizon": horizon}
    return Case(market, {"StageRoute": staged.StageRoute()}, horizon, name, coordinates=where, record_every=horizon)


def _waiting(models: int, slots: int) -> Case:
    """Makes a case in which `models` models compete to be among the `slots` deployed ones, with the confidence parameter of Theorem 1."""

    def market(horizon: int) -> staged.MarketEnv:
        stages = min(horizon, _WINDOWS)
        return staged.discovery_market(horizon=horizon, stages=stages, max_deployed=slots, num_models=models)

    def policies(env: staged.MarketEnv) -> dict[str, Any]:
        return {"StageRoute": staged.StageRoute(gamma=math.log(models * env.horizon / _DELTA)), "Uniform": staged.Uniform()}

    where = {"N": models, "M": slots, "horizon": _LONG}
    return Case(market, policies, _LONG, f"N{models}-M{slots}", coordinates=where, record_every=_LONG)


def _upper_bound(models: int, slots: int, horizon: int) -> float:
    """Returns the bound of Theorem 1 on the regret, with its unspecified constants set to 1."""
    learning = math.sqrt(slots * _WINDOWS * horizon * math.log(models * horizon / _DELTA))
    return learning + models * horizon / (slots * _WINDOWS)


def _within(bound: Callable[[int, int, int], float], *sizes: tuple[int, int]) -> Measure:
    """Makes the test of a claim: StageRoute's regret is at most `bound(models, slots, horizon)`, for each pair `(models, slots)` in `sizes`."""
    rows = []
    for n, m in sizes:
        name = f"N{n}-M{m}"
        rows.append((mean("StageRoute", name), known("the bound", partial(bound, n, m), name), mean("Uniform", name)))
    return bounded(*rows)


def _hard_instances(slots: int, horizon: int) -> Case:
    def sampler(horizon: int) -> Any:
        return staged.lower_bound_market(horizon=max(horizon, 8 * slots), max_deployed=slots)

    own = {"StageRoute": grid(staged.StageRoute, gamma=list(_GAMMAS)), "Oracle": staged.Oracle.of}
    policies = {**own, "Greedy": staged.Greedy(gamma=1.0), "RandomDeploy": staged.RandomDeploy(gamma=1.0)}
    name, where = f"M{slots}-size{_LONGER.index(horizon) + 1}", {"slots": slots, "horizon": horizon}
    return Case(sampler, policies, horizon, name, coordinates=where, record_every=horizon)


def _discovery_figure(results: Results):
    figure, (left, right) = plot.panels(2)
    rules = {f"K = {rule}": along(results, "regret", "horizon", stages=rule).sel(policy="StageRoute") for rule in _STAGES}
    plot.power_laws(rules, ax=left, title="against the horizon")
    by_stages = {f"T = {horizon:,}": list(regret.items()) for horizon, regret in _by_stages(results).items()}
    label = f"stages K\nmean ± 2 s.e. of {next(iter(results.values())).sizes['seed']} seeds"
    plot.points(by_stages, x=label, y="cumulative regret (reward)", ax=right, title="against the stages")
    for which in ("x", "y"):
        plot.log_axis(right, which)
    return figure


def _lower_bound_figure(results: Results):
    figure, axes = plot.panels(len(_SLOTS))
    for ax, slots in zip(axes, _SLOTS, strict=True):
        regret = along(results, "regret", "horizon", slots=slots).sel(policy="StageRoute")
        bound = [staged.lower_bound(slots, horizon) for horizon in regret["horizon"].values]
        ax.plot(regret["horizon"], bound, label="lower bound of Theorem 2", **plot.line_style(ax, "bound"))
        plot.power_laws({f"gamma = {gamma}": regret.sel(gamma=gamma) for gamma in _GAMMAS}, ax=ax, title=f"M = {slots}")
    return figure


def _theorem_1_figure(results: Results):
    figure, axes = plot.panels(len(_FEW))
    for ax, slots in zip(axes, _FEW, strict=True):
        regret, horizon = along(results, "regret", "N", M=slots), int(next(iter(results.values()))["time"][-1])
        bound = [_upper_bound(n, slots, horizon) for n in _MODELS]
        ax.plot(_MODELS, bound, label="bound of Theorem 1", **plot.line_style(ax, "bound"))
        plot.power_laws({name: regret.sel(policy=name) for name in ("StageRoute", "Uniform")}, ax=ax, title=f"M = {slots}")
        ax.set_xlabel(ax.get_xlabel().replace("N", "models, N", 1))
    return figure


def experiment(
    name: str, title: str, cases: Sequence[Case], claims: Mapping[str, Any], draw: Any, source: str, **options: Any
) -> Experiment:
    """Makes an experiment other than the paper's figures. `claims` map ids to text, place in the paper and measure."""
    made = tuple(Claim(key, text, f"{PAPER}, {where}", measure) for key, (text, where, measure) in claims.items())
    source, options = f"{PAPER}, {source}", {"seeds": 200, **options}
    return Experiment(f"staged/{name}", title, tuple(cases), claims=made, figures={name: draw}, source=source, **options)


def _slope(rule: str, low: float, high: float) -> Measure:
    return grows_as("regret", "StageRoute", low, high, {"stages": rule})


_CLAIMS = {
    "discovery-slope": {
        "third": ("K = T^(1/3) stages give regret of order T^(2/3) (slope 0.62 to 0.70)", "Theorem 1", _slope("T^(1/3)", 0.62, 0.70)),
        "half": ("N T / (M K) dominates: K = T^(1/2) gives slope 0.5 (0.45 to 0.55)", "Lemma 7", _slope("T^(1/2)", 0.45, 0.55)),
        "fixed": ("with K fixed the regret is linear (slope 0.95 to 1.05)", "Lemma 7", _slope("10", 0.95, 1.05)),
        "stages": ("more stages mean less regret: the term sqrt(M K T) of the bound is not visible", "Theorem 1; ours", _more_stages_help),
    },
    "theorem-1": {
        **{f"bound-N{n}-M{m}": (f"with {n} models and {m} slots regret is below sqrt(M K T log(N T / delta)) + N T / (M K)", "Theorem 1",
                                _within(_upper_bound, (n, m))) for n, m in _SQUARE},
        "models": ("regret grows with the models like N T / (M K) (power from .9 to 1.1)", "Theorem 1",
                   rising(*((0.9, growth("StageRoute", "N", {"M": m}), 1.1) for m in _FEW))),
        "slots": ("regret falls with the slots like N T / (M K) (power from -1.1 to -.9)", "Theorem 1",
                  rising(*((-1.1, growth("StageRoute", "M", {"N": n}), -0.9) for n in _MODELS))),
        "corollary": ("regret with N^(2/3) slots and T^(1/3) stages is below N^(1/3) T^(2/3)", "Theorem 1", _within(lambda n, m, T: n ** (1 / 3) * T ** (2 / 3), *_CORNER)),
    },
    "lower-bound": {
        "above": ("the regret of StageRoute, with either gamma, is at least C M^(1/3) T^(2/3), C = c^(1/3) / 16 (here c = 1)", "Theorem 2", _above_bound),
        "others": ("the regret of Greedy and RandomDeploy (gamma = 1) is also at least the bound; that of the oracle, which knows the instance, is less", "Theorem 2", _others_above_bound),
        **{f"slope-M{m}-gamma{gamma}": (f"regret grows as T^(2/3) with M = {m}, gamma = {gamma} (slope 0.60 to 0.75)", "Theorem 2",
                                        grows_as("regret", "StageRoute", 0.60, 0.75, {"slots": m}, gamma=gamma)) for m in _SLOTS for gamma in _GAMMAS},
    },
}  # fmt: skip

EXPERIMENTS = (
    experiment("discovery-slope", "Regret by horizon and number of stages, with 30 models for 3 slots",
        [_discovery(rule, horizon) for rule in _STAGES for horizon in _HORIZONS], _CLAIMS["discovery-slope"],
        _discovery_figure, "Theorem 1; the instance is ours", smoke_horizon=4000,
        notes="statistics persist over stages, so that nothing is learned again"),
    experiment("theorem-1", "Regret by numbers of models and slots, beside the bound of Theorem 1",
        [_waiting(*size) for size in (*_SQUARE, *_CORNER)], _CLAIMS["theorem-1"], _theorem_1_figure,
        "Theorem 1; the instance is ours", seeds=16, smoke_horizon=4096,
        notes="gamma = log(N T / delta) with delta = .1; the unspecified constants of the theorem are set to 1"),
    experiment("lower-bound", "Regret on the paper's hard instances, beside its lower bound",
        [_hard_instances(slots, horizon) for slots in _SLOTS for horizon in _LONGER], _CLAIMS["lower-bound"],
        _lower_bound_figure, "Theorem 2 and appendix C", smoke_horizon=8000,
        notes="all costs are 1 and newcomers look best, so that Greedy deploys what StageRoute does"),
)  # fmt: skip
