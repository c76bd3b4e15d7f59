"""Figures of StageRoute (arXiv 2506.17254), the paper's claims about them, and its last market on the user's table."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import metrics, plot
from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least, with_parameters
from jaxroute.experiments.measure import Measured, end, ends, listed, mean_of, paired_gap, product, share_of, show
from jaxroute.experiments.pictures import Picture, panel, panels_of, side_by_side
from jaxroute.problems import staged

PAPER = "StageRoute (arXiv 2506.17254)"
POLICIES = {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of}
_RECORD = ("regret", "conditional_regret", "reward", "cost", "cost_ratio", "infeasible_share")
_LEARNERS = ("StageRoute", "Greedy")
# Number of queries before each model of the synthetic market arrives.
_ARRIVAL = 1000 * np.maximum(np.arange(len(STAGEROUTE_TABLE_1.names)) - 5, 0)
INTERVAL = "infrequent updates lead to consistently higher regret across all algorithms"


def arena(interval: int, slots: int, name: str = "result", record: tuple[str, ...] = (), **settings: Any) -> Case:
    """Makes a case of the paper's synthetic market: `slots` models are deployed, and chosen again at a maintenance window every `interval` queries.

    `record` names further metrics; if "deployed" is among them, metrics are recorded at every maintenance window.
    """
    return Case(
        staged.arena_market,
        POLICIES,
        horizon=10_000,
        name=name,
        settings={"max_deployed": slots, "stage_length": interval, **settings},
        coordinates={"interval": interval, "slots": slots, **{k: v for k, v in settings.items() if k == "optimum"}},
        record_every=interval if "deployed" in record else 250,
        record=(*_RECORD, *record) if record else None,
    )


# Claims. Every verdict reports the spend.


def _at_spend(data: xr.Dataset) -> str:
    ours, greedy = ends(data, "cost_ratio", _LEARNERS).values()
    return f"at {show(ours)} x the budget (Greedy {show(greedy)} x): "


def _lead(data: xr.Dataset, metric: str) -> Measured:
    """Returns by how much a metric at the horizon is better for StageRoute than for Greedy, paired by seed; negative if it is worse."""
    first, second = _LEARNERS[::-1] if "regret" in metric else _LEARNERS
    return paired_gap(data, metric, first, minus=second)


@with_parameters
def _ahead(results: Results, case: str, metric: str = "conditional_regret") -> Finding:
    """Tests the claim that a metric of StageRoute is better than Greedy's. The text also reports spending, or the number of served queries."""
    data = results[case]
    lead, values = _lead(data, metric), listed(ends(data, metric, _LEARNERS))
    hard = metric == "served_reward"
    about = f"served {listed(ends(data, 'served', _LEARNERS))} queries: " if hard else _at_spend(data)
    return f"{about}{values}, ahead by {show(lead)}", lead.above(0.0)


@with_parameters
def _share_of_oracle(results: Results, case: str, policies: tuple[str, ...], least: float) -> Finding:
    data = results[case]
    oracle = end(data, "reward", "Oracle")
    if not oracle.mean:
        return "the oracle's reward is zero", at_least(None, [])
    rewards = ends(data, "reward", policies)
    text = ", ".join(f"{p} {show(product(r, over=oracle).times(100.0))} %" for p, r in rewards.items())
    text = f"{_at_spend(data)}{text} of the oracle's reward (above {100 * least:g} %)"
    return text, [reward.above(oracle.times(least)) for reward in rewards.values()]


@with_parameters
@all_hold(between="; ")
def longer_is_worse(results: Results, short: str, long: str) -> Iterator[Finding]:
    """Tests the claim that StageRoute and Greedy have more regret in the case `long`, where models are chosen less often, than in the case `short`."""
    for policy in _LEARNERS:
        a, b = (end(results[name], "conditional_regret", policy) for name in (short, long))
        yield f"{policy} {show(a)} -> {show(b)}", a.below(b)


@with_parameters
def _wider(results: Results, few: str, many: str) -> Finding:
    a, b = (_lead(results[name], "conditional_regret") for name in (few, many))
    return f"Greedy - StageRoute: {show(a)} ({few}), {show(b)} ({many})", a.above(b)


def _live(data: xr.Dataset) -> xr.DataArray:
    """Returns whether StageRoute deploys each model at each recorded time, `[seed, time, model]` booleans."""
    return metrics.pick(data, "deployed").sel(policy="StageRoute").transpose("seed", "time", "model") > 0.5


@all_hold(between="; ")
def _alternates(results: Results) -> Iterator[Finding]:
    live = _live(results["result"])
    costs = np.asarray(STAGEROUTE_TABLE_1.costs)
    expensive, cheap = ((live & xr.DataArray(kind, dims="model")).any("model") for kind in (costs > 2.0, costs <= 2.0))
    stages = live.sizes["time"]
    changes = mean_of((live != live.shift(time=1, fill_value=False)).any("model").isel(time=slice(1, None)).sum("time"))
    yield f"the set changes {show(changes)} times in {stages} stages (in half of them)", changes.above(stages / 2)
    mixed = mean_of((expensive & cheap).mean("time")).times(100.0)
    yield f"{show(mixed)} % of the stages mix models above and below the budget", mixed.above(0.0)


def _newcomers(results: Results) -> Finding:
    live = _live(results["result"])
    stages = {model: round_ // 500 for model, round_ in enumerate(_ARRIVAL) if 0 < round_ < 500 * live.sizes["time"]}
    if not stages:
        return "no model arrives", at_least(None, [])
    shares = [share_of(live.isel(time=stage, model=model)) for model, stage in stages.items()]
    least = 100 * min(shares).mean
    text = f"{len(stages)} newcomers, each deployed in the stage of its arrival in at least {least:.1f} % of the runs"
    return text, [share.at_least(0.95) for share in shares]


@with_parameters
@all_hold()
def _wider_than_synthetic(results: Results, total: bool) -> Iterator[Finding]:
    """Tests the claim that StageRoute's score exceeds Greedy's by more on RouterBench than on the synthetic market, per query or (`total`) over all."""
    queries = {case: float(data["time"][-1]) if total else 1.0 for case, data in results.items()}
    leads = {case: _lead(results[case], "reward").times(number) for case, number in queries.items()}
    real = leads["dollars"]
    yield f"{_at_spend(results['dollars'])}ahead by {show(real)}", True
    for slots in (3, 6):
        other = leads[f"synthetic-{slots}"]
        yield f"synthetic, M = {slots}: {show(other)}", real.above(other)


# Figures.

SPEND = panel("cost_ratio", reference={"budget": 1.0}, title="spend")


def symlog(data: xr.Dataset, metric: str, draw: Any = plot.curves, **options: Any) -> Any:
    """Draws curves on a vertical axis that is linear in [-1, 1] and logarithmic outside, since StageRoute has a hundredth of Greedy's regret."""
    ax = draw(data, metric, **options)
    plot.log_axis(ax, "y", linear=1.0)
    return ax


REGRET = panel("conditional_regret", symlog, title="regret")


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
    """Replaces the metric `mean_reward` by its moving average over 250 queries, and adds `best`, the same for the best feasible routing."""
    window = 250 if int(data["time"][-1]) >= 2500 else int(data["time"][0])
    best = (data["mean_reward"] + data["regret"] / data["time"]).assign_attrs(data["mean_reward"].attrs)
    data = data.assign(best=best)
    means = {name: metrics.window_mean(data, name, window) for name in ("mean_reward", "best")}
    data = data.assign({name: mean.assign_attrs(long_name="expected reward") for name, mean in means.items()})
    return data.sel(time=data["mean_reward"]["time"])


def _best_feasible(data: xr.Dataset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns a reference line for `plot.curves`: `best`, the expected reward of the best feasible routing, as a step function over time."""
    ends, best = data["time"].values, data["best"].isel(policy=0).mean("seed").values
    starts = np.concatenate([[ends[0] - np.diff(ends[:2], prepend=0)[-1]], ends[:-1]])
    return {"best feasible": (np.ravel([starts, ends], "F"), np.repeat(best, 2))}


def _with_score(data: xr.Dataset) -> xr.Dataset:
    return data.assign(score=metrics.cumulative(data, "reward"))


_SCORE = panel("score", plot.difference, minus="Oracle", change=_with_score, title="score against the oracle's")
_REWARD = panel("mean_reward", change=_moving, reference=_best_feasible, title="expected reward, last 250 queries")
_SERVED = panel("served_reward", title="score under a hard budget")
_SCORES = (_SCORE, panel("cost_ratio", reference={"budget": 1.0}, log="y", title="spend"), _SERVED)


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
    return Case(
        environment,
        {**learners, "Oracle": staged.Oracle.of},
        36_497,
        name,
        {"cost_scale": scale, **settings},
        {"cost_scale": scale, "budget_mode": "pace" if pace else "lp"},
        record_every=500,
        record=(*_RECORD, "served", "served_reward"),
        rows=lambda env: len(env.outcomes.scores),
    )


def _table_env(
    data: str | None = None,
    horizon: int = 36_497,
    max_deployed: int = 3,
    stage_length: int = 500,
    budget: float = 0.0002,
    cost_scale: float = 1.0,
    costs: Mapping[str, float] | None = None,
) -> staged.MarketEnv:
    """Makes a market like the paper's on RouterBench from the table `data`: models that the paper names, in its order of release, then other models."""
    table = read_experiment_log(data, costs, features="none").table
    released = [m for m in STAGEROUTE_TABLE_2.names if m in table.models]
    table = table.subset(models=[*released, *(m for m in table.models if m not in released)])
    cheapest_first = int(np.argmin(table.mean_costs()[:5]))
    capacity = np.where(np.arange(table.num_models) == cheapest_first, 1.0, 0.4)
    newcomers = np.maximum(np.arange(table.num_models) - 4, 0)
    return staged.table_market(
        table,
        max_deployed=max_deployed,
        stage_length=stage_length,
        horizon=horizon,
        budget=budget,
        capacity=capacity,
        arrival=1 + newcomers * (5000 * horizon // 36_497),
        cost_scale=cost_scale,
    )


# Experiments.


def _figure(
    number: str, title: str, cases: tuple[Case, ...], claims: Any, draw: Any, says: str = "", **options: Any
) -> Experiment:
    """Makes an experiment for a figure of the paper. `claims` map ids to text and measure; `says` is the figure's number in the text, if different."""
    where = f"{PAPER}, Fig. {number[0]}"
    made = tuple(Claim(name, text, where, measure) for name, (text, measure) in claims.items())
    source = where + (f' ("{says}" in its text)' if says else "")
    return Experiment(
        f"staged/figure-{number}", title, cases, claims=made, figures={f"figure-{number}": draw}, source=source, **options
    )


def _beside(
    number: str, says: str, title: str, cases: dict[str, Case], claims: Any, rows: Any = (REGRET, SPEND), **options: Any
) -> Experiment:
    """Makes an experiment for a figure with a column for each case: `cases` maps column titles to cases, and `rows` lists the panels of a column."""
    draw = alike(panels_of(rows=rows, columns="case", titles={case.name: words for words, case in cases.items()}))
    return _figure(number, title, tuple(cases.values()), claims, draw, says, **options)


def _intervals(letter: str, says: str, interval: int) -> Experiment:
    name, every = f"interval-{interval}", f"a window every {interval:,} queries"
    cases = {every: arena(interval, 6, name), "every 250": arena(250, 6, "interval-250")}
    claims = {"below-greedy": (_LOWER, _ahead(name)), "interval": (INTERVAL, longer_is_worse("interval-250", name))}
    notes = "with the paper's own definition of regret the interval hardly matters: see staged/interval-effect"
    return _beside(f"3{letter}", f"2({says})", f"Regret with {every}, beside 250", cases, claims, notes=notes)


_SLOTS = (REGRET, SPEND, panel("infeasible_share", title="no feasible routing"))
_PACED = ", costs in 1e-4 USD and the spend paced to the budget"
_UNITS = {"dollars": "", "scaled": ", costs in 1e-4 USD", "scaled-pace": _PACED}
_UNIT_TITLES = {"dollars": "dollars", "scaled": "1e-4 dollars", "scaled-pace": "1e-4 dollars, paced"}
_LOWER, _MARGIN = "StageRoute has lower regret than Greedy", "by an even larger margin than on the synthetic dataset"
_SYNTHETIC = {slots: arena(500, slots, f"synthetic-{slots}") for slots in (3, 6)}
_CLAIMS = {
    "2": {
        "near-oracle": ("StageRoute closely matches the optimal oracle", _share_of_oracle("result", ("StageRoute",), 0.99)),
        "below-greedy": ("StageRoute incurs substantially lower regret than Greedy", _ahead("result"))},
    "4a": {
        "below-greedy": (_LOWER, _ahead("slots-3")),
        "advantage": ("the advantage is largest when deployment capacity is limited", _wider("slots-3", "slots-6"))},
    "4b": {
        "both-strong": ("with 10 slots both learners perform strongly", _share_of_oracle("slots-10", _LEARNERS, 0.95)),
        "competitive": ("StageRoute stays competitive with 10 slots", _ahead("slots-10")),
        "advantage": ("the advantage shrinks with more slots", _wider("slots-6", "slots-10"))},
    "5": {
        "alternates": ("it alternates between expensive proprietary models and cheaper open ones", _alternates),
        "newcomers": ("it adapts to the evolving landscape: every newcomer is tried when it arrives", _newcomers)},
    "6": {
        **{name: (f"StageRoute scores above Greedy{unit}", _ahead(name, "reward")) for name, unit in _UNITS.items()},
        **{f"hard-{name}": (f"StageRoute scores above Greedy under a hard budget{unit}", _ahead(name, "served_reward")) for name, unit in _UNITS.items()},
        "margin-query": (f"{_MARGIN}, per query", _wider_than_synthetic(False)),
        "margin-total": (f"{_MARGIN}, in total", _wider_than_synthetic(True)),
    },
}  # fmt: skip

EXPERIMENTS = (
    _figure("2", "Performance and regret over time: 6 slots, a maintenance window every 250 queries",
        (arena(250, 6, record=("mean_reward",)),), _CLAIMS["2"], side_by_side(_REWARD, _SCORE, REGRET, SPEND, columns=2)),
    _intervals("b", "c", 500),
    _intervals("c", "d", 1000),
    _beside("4a", "3(a)", "Regret with 3 slots, beside 6",
        {"3 slots": arena(500, 3, "slots-3"), "6 slots": arena(500, 6, "slots-6")}, _CLAIMS["4a"], _SLOTS,
        notes="with 3 slots a set is deployed for its optimistic costs; once a newcomer's true cost is known, no routing over the set may fit "
            "the budget, and the cheapest is used"),
    _beside("4b", "3(b)", "Regret with 10 slots, beside 6",
        {"10 slots": arena(500, 10, "slots-10"), "6 slots": arena(500, 6, "slots-6")}, _CLAIMS["4b"], _SLOTS),
    _figure("5", "Deployed models: 3 slots, a maintenance window every 500 queries", (arena(500, 3, record=("deployed",)),),
        _CLAIMS["5"], _deployment, seeds=256),
    _figure("6", "Cumulative score on RouterBench's published means, with the spend beside it",
        (*(_real(n, staged.routerbench_market, 1.0 if n == "dollars" else 1e4, n == "scaled-pace") for n in _UNITS), *_SYNTHETIC.values()),
        _CLAIMS["6"], panels_of(rows=_SCORES, columns="case", titles=_UNIT_TITLES, cases=tuple(_UNITS)), seeds=256,
        smoke_horizon=4000,
        notes="in dollars the radius gamma / n exceeds costs of 1e-3 by far, so that estimated costs are at their floor and the spend is several "
            "times the budget, which section 6.1 calls hard. The paper does not specify the synthetic market of its comparison, nor whether it is "
            "per query (of 36,497 and 10,000); ours are the markets with 3 and with 6 slots"),
    Experiment("staged/table", "The market of figure 6 on the rows of your own table (--data FILE), with spend and score",
        (_real("dollars", _table_env, 1.0, data=None), _real("scaled", _table_env, 1e4, data=None)), seeds=256,
        figures={"table": panels_of(rows=_SCORES, columns="case", titles={"dollars": "table's unit", "scaled": "1e-4 of it"})},
        smoke_horizon=4000, source=f"{PAPER}, sec. 6.2; any table of scores and costs"),
)  # fmt: skip
