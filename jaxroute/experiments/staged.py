"""Experiments on StageRoute (arXiv 2506.17254): figures, theorems and claims of its paper, and a market of models from the user's table."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, metrics, plot
from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments import claims as cl
from jaxroute.experiments import measure as ms
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.pictures import Panel, Picture, panels_of, side_by_side
from jaxroute.problems import staged

PAPER = "StageRoute (arXiv 2506.17254)"
POLICIES = {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of}
_RECORD = ("regret", "conditional_regret", "reward", "cost", "cost_ratio", "infeasible_share")
_LEARNERS = ("StageRoute", "Greedy")
# Number of queries before each model of the synthetic market arrives.
_ARRIVAL = 1000 * np.maximum(np.arange(len(STAGEROUTE_TABLE_1.names)) - 5, 0)
INTERVAL = "infrequent updates lead to consistently higher regret across all algorithms"


def arena(interval: int, slots: int, name: str = "result", record: tuple[str, ...] = (), **settings: Any) -> Case:
    """Makes a case of the synthetic market in StageRoute's paper: `slots` models are deployed, and chosen again every `interval` queries.

    `record` names further metrics; if "deployed" is among them, metrics are recorded whenever models are chosen.
    """
    where = {"interval": interval, "slots": slots, **{k: v for k, v in settings.items() if k == "optimum"}}
    settings = {"max_deployed": slots, "stage_length": interval, **settings}
    every, metrics = interval if "deployed" in record else 250, (*_RECORD, *record) if record else None
    return Case(staged.arena_market, POLICIES, 10_000, name, settings, where, every, metrics)


# Claims. Every verdict reports the spend.


def _at_spend(data: xr.Dataset) -> str:
    ours, greedy = ms.ends(data, "cost_ratio", _LEARNERS).values()
    return f"at {ours} x the budget (Greedy {greedy} x): "


def _lead(data: xr.Dataset, metric: str) -> ms.Measured:
    """Returns by how much StageRoute is better than Greedy in a metric at the horizon, paired by seed; negative if it is worse."""
    first, second = _LEARNERS[::-1] if "regret" in metric else _LEARNERS
    return ms.paired_gap(data, metric, first, minus=second)


@cl.with_parameters
def _ahead(results: Results, case: str, metric: str = "conditional_regret") -> cl.Finding:
    """Tests if StageRoute has less regret than Greedy, or more of another `metric`. Reports spending or, for "served_reward", served queries."""
    data = results[case]
    lead, values = _lead(data, metric), ms.listed(ms.ends(data, metric, _LEARNERS))
    hard = metric == "served_reward"
    about = f"served {ms.listed(ms.ends(data, 'served', _LEARNERS))} queries: " if hard else _at_spend(data)
    return f"{about}{values}, ahead by {lead}", lead.above(0.0)


@cl.with_parameters
def _share_of_oracle(results: Results, case: str, policies: tuple[str, ...], least: float) -> cl.Finding:
    data = results[case]
    oracle = ms.end(data, "reward", "Oracle")
    if not oracle.mean:
        return "the oracle's reward is zero", cl.at_least(None, [])
    rewards = ms.ends(data, "reward", policies)
    text = ", ".join(f"{p} {ms.product(r, over=oracle).times(100.0)} %" for p, r in rewards.items())
    text = f"{_at_spend(data)}{text} of the oracle's reward (above {100 * least:g} %)"
    return text, [reward.above(oracle.times(least)) for reward in rewards.values()]


@cl.with_parameters
@cl.all_hold(between="; ")
def longer_is_worse(results: Results, short: str, long: str) -> Iterator[cl.Finding]:
    """Tests the claim that StageRoute and Greedy have more regret in the case `long`, where models are chosen less often, than in case `short`."""
    for policy in _LEARNERS:
        a, b = (ms.end(results[name], "conditional_regret", policy) for name in (short, long))
        yield f"{policy} {a} -> {b}", a.below(b)


@cl.with_parameters
def _wider(results: Results, few: str, many: str) -> cl.Finding:
    a, b = (_lead(results[name], "conditional_regret") for name in (few, many))
    return f"Greedy - StageRoute: {a} ({few}), {b} ({many})", a.above(b)


def _live(data: xr.Dataset) -> xr.DataArray:
    """Returns whether StageRoute deploys each model at each recorded time, `[seed, time, model]` booleans."""
    return metrics.pick(data, "deployed").sel(policy="StageRoute").transpose("seed", "time", "model") > 0.5


@cl.all_hold(between="; ")
def _alternates(results: Results) -> Iterator[cl.Finding]:
    live = _live(results["result"])
    costs = np.asarray(STAGEROUTE_TABLE_1.costs)
    expensive, cheap = ((live & xr.DataArray(kind, dims="model")).any("model") for kind in (costs > 2.0, costs <= 2.0))
    stages = live.sizes["time"]
    changes = ms.mean_of((live != live.shift(time=1, fill_value=False)).any("model").isel(time=slice(1, None)).sum("time"))
    yield f"the set changes {changes} times in {stages} stages (in half of them)", changes.above(stages / 2)
    mixed = ms.mean_of((expensive & cheap).mean("time")).times(100.0)
    yield f"{mixed} % of the stages mix models above and below the budget", mixed.above(0.0)


def _newcomers(results: Results) -> cl.Finding:
    live = _live(results["result"])
    stages = {model: round_ // 500 for model, round_ in enumerate(_ARRIVAL) if 0 < round_ < 500 * live.sizes["time"]}
    if not stages:
        return "no model arrives", cl.at_least(None, [])
    shares = [ms.share_of(live.isel(time=stage, model=model)) for model, stage in stages.items()]
    least = 100 * min(shares).mean
    text = f"{len(stages)} newcomers, each deployed in the stage of its arrival in at least {least:.1f} % of the runs"
    return text, [share.at_least(0.95) for share in shares]


@cl.with_parameters
@cl.all_hold()
def _wider_than_synthetic(results: Results, total: bool) -> Iterator[cl.Finding]:
    """Tests the claim that StageRoute's lead over Greedy is larger on RouterBench than on the synthetic market, per query or, if `total`, summed."""
    leads = {n: _lead(data, "reward").times(float(data["time"][-1]) if total else 1.0) for n, data in results.items()}
    real = leads["dollars"]
    yield f"{_at_spend(results['dollars'])}ahead by {real}", True
    for slots in (3, 6):
        other = leads[f"synthetic-{slots}"]
        yield f"synthetic, M = {slots}: {other}", real.above(other)


SPEND = Panel("cost_ratio", reference={"budget": 1.0}, title="spend")


def symlog(data: xr.Dataset, metric: str, draw: Any = plot.curves, **options: Any) -> Any:
    """Draws a metric by `draw(data, metric, **options)`, then makes the vertical axis linear in [-1, 1] and logarithmic outside. Returns the axes."""
    ax = draw(data, metric, **options)
    plot.log_axis(ax, "y", linear=1.0)
    return ax


REGRET = Panel("conditional_regret", symlog, title="regret")


def alike(picture: Picture) -> Picture:
    """Wraps a function that draws a figure: panels with the same label on their vertical axis get the same limits."""

    def draw(results: Results) -> Any:
        figure = picture(results)
        for label in {ax.get_ylabel() for ax in figure.axes}:
            same = [ax for ax in figure.axes if ax.get_ylabel() == label]
            limits = np.array([ax.get_ylim() for ax in same])
            for ax in same:
                ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())
        return figure

    return draw


def _moving(data: xr.Dataset) -> xr.Dataset:
    """Replaces `mean_reward` by its mean over the last 250 queries, and adds `best`, the same mean for the best feasible routing."""
    window = 250 if int(data["time"][-1]) >= 2500 else int(data["time"][0])
    best = (data["mean_reward"] + data["regret"] / data["time"]).assign_attrs(data["mean_reward"].attrs)
    data = data.assign(best=best)
    means = {name: metrics.window_mean(data, name, window) for name in ("mean_reward", "best")}
    data = data.assign({name: mean.assign_attrs(long_name="expected reward") for name, mean in means.items()})
    return data.sel(time=data["mean_reward"]["time"])


def _best_feasible(data: xr.Dataset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns a reference line for `plot.curves`, by label: the expected reward `best` of the best feasible routing, as a step function of time."""
    ends, best = data["time"].values, data["best"].isel(policy=0).mean("seed").values
    starts = np.concatenate([[ends[0] - np.diff(ends[:2], prepend=0)[-1]], ends[:-1]])
    return {"best feasible": (np.ravel([starts, ends], "F"), np.repeat(best, 2))}


_TOTAL: dict[str, Any] = {"change": lambda data: data.assign(score=metrics.cumulative(data, "reward"))}
_SCORE = Panel("score", plot.difference, minus="Oracle", title="score against the oracle's", **_TOTAL)
_REWARD = Panel("mean_reward", change=_moving, reference=_best_feasible, title="expected reward, last 250 queries")
_SERVED = Panel("served_reward", title="score under a hard budget")
_SCORES = (_SCORE, Panel("cost_ratio", reference={"budget": 1.0}, log="y", title="spend"), _SERVED)


def _deployment(results: Results):
    figure, axes = plot.panels(3)
    there = _ARRIVAL > 0
    for ax, policy in zip(axes, POLICIES, strict=True):
        plot.deployment(results["result"], policy=policy, ax=ax)
        ax.plot(_ARRIVAL[there], np.flatnonzero(there), "|", color="#D55E00", markersize=9, label="arrival")
    plot.share_legend(figure)
    return figure


# Cases of RouterBench, and of the user's table.


def _real(name: str, environment: Any, scale: float, pace: bool = False, **settings: Any) -> Case:
    mode = staged.budgets.Pace() if pace else staged.budgets.FixedBudget()
    learners = {kind.__name__: kind(budget_mode=mode) for kind in (staged.StageRoute, staged.Greedy)}
    settings, where = {"cost_scale": scale, **settings}, {"cost_scale": scale, "budget_mode": "pace" if pace else "lp"}
    policies, record = {**learners, "Oracle": staged.Oracle.of}, (*_RECORD, "served", "served_reward")
    return Case(environment, policies, 36_497, name, settings, where, 500, record, rows=lambda env: len(env.outcomes.scores))


def _table_env(
    data: str | None = None,
    horizon: int = 36_497,
    max_deployed: int = 3,
    stage_length: int = 500,
    budget: float = 0.0002,
    cost_scale: float = 1.0,
    costs: Mapping[str, float] | None = None,
) -> staged.MarketEnv:
    """Makes a market of a table's models. Those in the paper's Table 2 come first, by date. Arguments as for `table_market` and `read_log`."""
    table = read_experiment_log(data, costs, features="none").table
    released = [m for m in STAGEROUTE_TABLE_2.names if m in table.models]
    table = table.subset(models=[*released, *(m for m in table.models if m not in released)])
    cheapest_first = int(np.argmin(table.mean_costs()[:5]))
    capacity = np.where(np.arange(table.num_models) == cheapest_first, 1.0, 0.4)
    newcomers = np.maximum(np.arange(table.num_models) - 4, 0)
    options: dict[str, Any] = {"max_deployed": max_deployed, "stage_length": stage_length, "horizon": horizon}
    options |= {"budget": budget, "capacity": capacity, "cost_scale": cost_scale}
    return staged.table_market(table, arrival=1 + newcomers * (5000 * horizon // 36_497), **options)


def experiment(
    name: str, title: str, cases: Iterable[Case], claims: Any, draw: Any, source: str, **options: Any
) -> Experiment:
    """Makes an experiment on StageRoute, at `source` in the paper, with a figure by `draw`. `claims` maps ids to (text, place in the paper, test)."""
    made = tuple(Claim(key, text, f"{PAPER}, {where}", measure) for key, (text, where, measure) in claims.items())
    options |= {"source": f"{PAPER}, {source}"}
    return Experiment(f"staged/{name}", title, tuple(cases), claims=made, figures={name: draw}, **options)


def _figure(number: str, title: str, cases: Any, claims: Any, draw: Any, says: str = "", **options: Any) -> Experiment:
    """Makes the experiment for figure `number`, drawn by `draw`. `claims` maps ids to (text, test). `says` is its number in the text, if wrong."""
    where = f"Fig. {number[0]}"
    made = {key: (text, where, measure) for key, (text, measure) in claims.items()}
    source = where + (f' ("{says}" in its text)' if says else "")
    return experiment(f"figure-{number}", title, cases, made, draw, source, **options)


def _beside(
    number: str, says: str, title: str, cases: dict[str, Case], claims: Any, rows: Any = (REGRET, SPEND), **options: Any
) -> Experiment:
    """Makes the experiment for a figure, as `_figure` does, with a row for each of `rows` and a column for each of `cases`: `{title: case}`."""
    draw = alike(panels_of(rows=rows, columns="case", titles={case.name: words for words, case in cases.items()}))
    return _figure(number, title, cases.values(), claims, draw, says, **options)


def _intervals(letter: str, says: str, interval: int) -> Experiment:
    name, every = f"interval-{interval}", f"a window every {interval:,} queries"
    cases = {every: arena(interval, 6, name), "every 250": arena(250, 6, "interval-250")}
    claims = {"below-greedy": (_LOWER, _ahead(name)), "interval": (INTERVAL, longer_is_worse("interval-250", name))}
    notes = "with the paper's own definition of regret the interval hardly matters: see staged/interval-effect"
    return _beside(f"3{letter}", f"2({says})", f"Regret with {every}, beside 250", cases, claims, notes=notes)


_SLOTS = (REGRET, SPEND, Panel("infeasible_share", title="no feasible routing"))
_SCALED = ", costs in 1e-4 USD"
_UNITS = {"dollars": "", "scaled": _SCALED, "scaled-pace": f"{_SCALED} and the spend paced to the budget"}
_UNIT_TITLES = {"dollars": "dollars", "scaled": "1e-4 dollars", "scaled-pace": "1e-4 dollars, paced"}
_LOWER, _MARGIN = "StageRoute has lower regret than Greedy", "by an even larger margin than on the synthetic dataset"

_FIGURES = (
    _figure("2", "Performance and regret over time: 6 slots, a maintenance window every 250 queries",
        (arena(250, 6, record=("mean_reward",)),), {
            "near-oracle": ("StageRoute closely matches the optimal oracle", _share_of_oracle("result", ("StageRoute",), 0.99)),
            "below-greedy": ("StageRoute incurs substantially lower regret than Greedy", _ahead("result"))},
        side_by_side(_REWARD, _SCORE, REGRET, SPEND, columns=2)),
    _intervals("b", "c", 500),
    _intervals("c", "d", 1000),
    _beside("4a", "3(a)", "Regret with 3 slots, beside 6",
        {"3 slots": arena(500, 3, "slots-3"), "6 slots": arena(500, 6, "slots-6")}, {
            "below-greedy": (_LOWER, _ahead("slots-3")),
            "advantage": ("the advantage is largest when deployment capacity is limited", _wider("slots-3", "slots-6"))}, _SLOTS,
        notes="with 3 slots a set is deployed for its optimistic costs; once a newcomer's true cost is known, no routing over the set may fit "
            "the budget, and the cheapest is used"),
    _beside("4b", "3(b)", "Regret with 10 slots, beside 6",
        {"10 slots": arena(500, 10, "slots-10"), "6 slots": arena(500, 6, "slots-6")}, {
            "both-strong": ("with 10 slots both learners perform strongly", _share_of_oracle("slots-10", _LEARNERS, 0.95)),
            "competitive": ("StageRoute stays competitive with 10 slots", _ahead("slots-10")),
            "advantage": ("the advantage shrinks with more slots", _wider("slots-6", "slots-10"))}, _SLOTS),
    _figure("5", "Deployed models: 3 slots, a maintenance window every 500 queries", (arena(500, 3, record=("deployed",)),), {
            "alternates": ("it alternates between expensive proprietary models and cheaper open ones", _alternates),
            "newcomers": ("it adapts to the evolving landscape: every newcomer is tried when it arrives", _newcomers)},
        _deployment, seeds=256),
    _figure("6", "Cumulative score on RouterBench's published means, with the spend beside it",
        (*(_real(n, staged.routerbench_market, 1.0 if n == "dollars" else 1e4, n == "scaled-pace") for n in _UNITS),
            *(arena(500, slots, f"synthetic-{slots}") for slots in (3, 6))), {
            **{name: (f"StageRoute scores above Greedy{unit}", _ahead(name, "reward")) for name, unit in _UNITS.items()},
            **{f"hard-{name}": (f"StageRoute scores above Greedy under a hard budget{unit}", _ahead(name, "served_reward"))
                for name, unit in _UNITS.items()},
            "margin-query": (f"{_MARGIN}, per query", _wider_than_synthetic(False)),
            "margin-total": (f"{_MARGIN}, in total", _wider_than_synthetic(True))},
        panels_of(rows=_SCORES, columns="case", titles=_UNIT_TITLES, cases=tuple(_UNITS)), seeds=256,
        smoke_horizon=4000,
        notes="in dollars the radius gamma / n exceeds costs of 1e-3 by far, so that estimated costs are at their floor and the spend is several "
            "times the budget, which section 6.1 calls hard. The paper does not specify the synthetic market of its comparison, nor whether it is "
            "per query (of 36,497 and 10,000); ours are the markets with 3 and with 6 slots"),
    experiment("table", "The market of figure 6 on the rows of your own table (--data FILE), with spend and score",
        [_real("dollars", _table_env, 1.0, data=None), _real("scaled", _table_env, 1e4, data=None)], {},
        panels_of(rows=_SCORES, columns="case", titles={"dollars": "table's unit", "scaled": "1e-4 of it"}),
        "sec. 6.2; any table of scores and costs", seeds=256, smoke_horizon=4000),
)  # fmt: skip


# Theorems.

# Rules for the number of stages: in words, and as functions of the horizon T.
_STAGES = {"10": lambda T: 10, "T^(1/3)": lambda T: round(T ** (1 / 3)), "T^(1/2)": lambda T: round(T**0.5)}
_HORIZONS = tuple(n**3 for n in (10, 16, 24, 32, 44))
# Sizes for Theorem 1: numbers N of models and of slots, horizon T, T^(1/3) stages, delta; then all pairs, and pairs with N^(2/3) slots.
_MODELS, _FEW, _LONG, _WINDOWS, _DELTA = (24, 48, 96), (3, 6, 12), 2**18, 2**6, 0.1
_SQUARE, _CORNER = tuple(itertools.product(_MODELS, _FEW)), ((24, 8), (48, 13), (96, 21))
_GAMMAS, _MOST_SLOTS, _LONGER = (0.2, 1.0), (2, 4), (2000, 8000, 32_000, 128_000)


def _by_stages(results: Results) -> dict[int, dict[int, ms.Measured]]:
    """Returns StageRoute's mean regret as `{horizon: {number of stages: regret}}`."""
    found: dict[int, dict[int, ms.Measured]] = {}
    for data in results.values():
        rule, horizon = (ms.coordinates_of(data)[name] for name in ("stages", "horizon"))
        found.setdefault(horizon, {})[_STAGES[rule](horizon)] = ms.end(data, "regret", "StageRoute")
    return dict(sorted(found.items()))


@cl.all_hold(before="less with more stages; ")
def _more_stages_help(results: Results) -> Iterator[cl.Finding]:
    for horizon, regret in _by_stages(results).items():
        falls = [regret[many].below(regret[few]) for few, many in itertools.pairwise(sorted(regret))]
        yield f"T = {horizon:,}: {ms.listed(regret, 'K = {}:')}", falls


def _lower_bound_of(data: xr.Dataset) -> tuple[str, float]:
    """Returns a case's label (number of deployed models and horizon), and the lower bound on its regret from the paper."""
    slots, horizon = (ms.coordinates_of(data)[name] for name in ("slots", "horizon"))
    return f"M = {slots}, T = {horizon:,}", staged.lower_bound(slots, horizon)


def _above_bound(results: Results) -> cl.Finding:
    ratios = {}
    for data in results.values():
        name, bound = _lower_bound_of(data)
        for gamma, regret in ms.ends_along(data, "regret", "StageRoute", "gamma").items():
            ratios[f"{name}, gamma = {gamma:g}"] = regret.times(1 / bound)
    least = min(ratios, key=lambda name: ratios[name].mean)
    text = f"{ratios[least]} times the bound or more, least with {least}"
    return text, [ratio.at_least(1.0) for ratio in ratios.values()]


def _others_above_bound(results: Results) -> cl.Finding:
    parts, stated = [], []
    for policy in ("Greedy", "RandomDeploy", "Oracle"):
        ratios = [ms.end(data, "regret", policy).times(1 / _lower_bound_of(data)[1]) for data in results.values()]
        parts.append(f"{policy} {min(ratios)} to {max(ratios)}")
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


def _within(bound: Callable[[int, int, int], float], *sizes: tuple[int, int]) -> cl.Measure:
    """Makes the test of a claim: StageRoute's regret is at most `bound(models, slots, horizon)`, for each pair `(models, slots)` in `sizes`."""
    named = [(f"N{n}-M{m}", partial(bound, n, m)) for n, m in sizes]
    return cl.bounded(*((cl.mean("StageRoute", n), cl.known("the bound", b, n), cl.mean("Uniform", n)) for n, b in named))


def _hard_instances(slots: int, horizon: int) -> Case:
    def sampler(horizon: int) -> Any:
        return staged.lower_bound_market(horizon=max(horizon, 8 * slots), max_deployed=slots)

    own = {"StageRoute": grid(staged.StageRoute, gamma=list(_GAMMAS)), "Oracle": staged.Oracle.of}
    policies = {**own, "Greedy": staged.Greedy(gamma=1.0), "RandomDeploy": staged.RandomDeploy(gamma=1.0)}
    name, where = f"M{slots}-size{_LONGER.index(horizon) + 1}", {"slots": slots, "horizon": horizon}
    return Case(sampler, policies, horizon, name, coordinates=where, record_every=horizon)


def _discovery_figure(results: Results):
    figure, (left, right) = plot.panels(2)
    rules = {f"K = {rule}": ms.along(results, "regret", "horizon", stages=rule).sel(policy="StageRoute") for rule in _STAGES}
    plot.power_laws(rules, ax=left, title="against the horizon")
    by_stages = {f"T = {horizon:,}": list(regret.items()) for horizon, regret in _by_stages(results).items()}
    label = f"stages K\nmean ± 2 s.e. of {next(iter(results.values())).sizes['seed']} seeds"
    plot.points(by_stages, x=label, y="cumulative regret (reward)", ax=right, title="against the stages")
    for which in ("x", "y"):
        plot.log_axis(right, which)
    return figure


def _lower_bound_figure(results: Results):
    figure, axes = plot.panels(len(_MOST_SLOTS))
    for ax, slots in zip(axes, _MOST_SLOTS, strict=True):
        regret = ms.along(results, "regret", "horizon", slots=slots).sel(policy="StageRoute")
        bound = [staged.lower_bound(slots, horizon) for horizon in regret["horizon"].values]
        ax.plot(regret["horizon"], bound, label="lower bound of Theorem 2", **plot.line_style(ax, "bound"))
        plot.power_laws({f"gamma = {gamma}": regret.sel(gamma=gamma) for gamma in _GAMMAS}, ax=ax, title=f"M = {slots}")
    return figure


def _theorem_1_figure(results: Results):
    figure, axes = plot.panels(len(_FEW))
    for ax, slots in zip(axes, _FEW, strict=True):
        regret, horizon = ms.along(results, "regret", "N", M=slots), int(next(iter(results.values()))["time"][-1])
        bound = [_upper_bound(n, slots, horizon) for n in _MODELS]
        ax.plot(_MODELS, bound, label="bound of Theorem 1", **plot.line_style(ax, "bound"))
        plot.power_laws({name: regret.sel(policy=name) for name in ("StageRoute", "Uniform")}, ax=ax, title=f"M = {slots}")
        ax.set_xlabel(ax.get_xlabel().replace("N", "models, N", 1))
    return figure


_grows = partial(cl.grows_as, "regret", "StageRoute")
EXPERIMENTS = (
    *_FIGURES,
    experiment("discovery-slope", "Regret by horizon and number of stages, with 30 models for 3 slots",
        [_discovery(rule, horizon) for rule in _STAGES for horizon in _HORIZONS], {
            "third": ("K = T^(1/3) stages give regret of order T^(2/3) (slope 0.62 to 0.70)", "Theorem 1", _grows(0.62, 0.70, {"stages": "T^(1/3)"})),
            "half": ("N T / (M K) dominates: K = T^(1/2) gives slope 0.5 (0.45 to 0.55)", "Lemma 7", _grows(0.45, 0.55, {"stages": "T^(1/2)"})),
            "fixed": ("with K fixed the regret is linear (slope 0.95 to 1.05)", "Lemma 7", _grows(0.95, 1.05, {"stages": "10"})),
            "stages": ("more stages mean less regret: the term sqrt(M K T) of the bound is not visible", "Theorem 1; ours", _more_stages_help)},
        _discovery_figure, "Theorem 1; the instance is ours", seeds=200, smoke_horizon=4000,
        notes="statistics persist over stages, so that nothing is learned again"),
    experiment("theorem-1", "Regret by numbers of models and slots, beside the bound of Theorem 1",
        [_waiting(*size) for size in (*_SQUARE, *_CORNER)], {
            **{f"bound-N{n}-M{m}": (f"with {n} models and {m} slots regret is below sqrt(M K T log(N T / delta)) + N T / (M K)", "Theorem 1",
                                    _within(_upper_bound, (n, m))) for n, m in _SQUARE},
            "models": ("regret grows with the models like N T / (M K) (power from .9 to 1.1)", "Theorem 1",
                       cl.rising(*((0.9, cl.growth("StageRoute", "N", {"M": m}), 1.1) for m in _FEW))),
            "slots": ("regret falls with the slots like N T / (M K) (power from -1.1 to -.9)", "Theorem 1",
                      cl.rising(*((-1.1, cl.growth("StageRoute", "M", {"N": n}), -0.9) for n in _MODELS))),
            "corollary": ("regret with N^(2/3) slots and T^(1/3) stages is below N^(1/3) T^(2/3)", "Theorem 1",
                          _within(lambda n, m, T: n ** (1 / 3) * T ** (2 / 3), *_CORNER))},
        _theorem_1_figure, "Theorem 1; the instance is ours", seeds=16, smoke_horizon=4096,
        notes="gamma = log(N T / delta) with delta = .1; the unspecified constants of the theorem are set to 1"),
    experiment("lower-bound", "Regret on the paper's hard instances, beside its lower bound",
        [_hard_instances(slots, horizon) for slots in _MOST_SLOTS for horizon in _LONGER], {
            "above": ("the regret of StageRoute, with either gamma, is at least C M^(1/3) T^(2/3), C = c^(1/3) / 16 (here c = 1)", "Theorem 2",
                      _above_bound),
            "others": ("the regret of Greedy and RandomDeploy (gamma = 1) is also at least the bound; "
                       "that of the oracle, which knows the instance, is less", "Theorem 2", _others_above_bound),
            **{f"slope-M{m}-gamma{gamma}": (f"regret grows as T^(2/3) with M = {m}, gamma = {gamma} (slope 0.60 to 0.75)", "Theorem 2",
                                            _grows(0.60, 0.75, {"slots": m}, gamma=gamma)) for m in _MOST_SLOTS for gamma in _GAMMAS}},
        _lower_bound_figure, "Theorem 2 and appendix C", seeds=200, smoke_horizon=8000,
        notes="all costs are 1 and newcomers look best, so that Greedy deploys what StageRoute does"),
)  # fmt: skip
