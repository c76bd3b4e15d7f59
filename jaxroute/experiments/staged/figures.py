"""Figures of StageRoute (arXiv 2506.17254), what the paper says of them, and its last market on a table of one's own."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from jaxroute.analysis import metrics, plot
from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2, load_routerbench, load_table
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure, Verdict, all_hold
from jaxroute.experiments.measure import Measured, end, ends, listed, mean_of, paired_gap, quotient, show
from jaxroute.experiments.pictures import panel_per_case
from jaxroute.problems import staged

PAPER = "StageRoute (arXiv 2506.17254)"
POLICIES = {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of}
_RECORD = ("regret", "conditional_regret", "reward", "cost", "cost_ratio", "infeasible_share")
_LEARNERS = ("StageRoute", "Greedy")
INTERVAL = "infrequent updates lead to consistently higher regret across all algorithms"


def arena(interval: int, slots: int, name: str = "result", record: tuple[str, ...] = (), **settings: Any) -> Case:
    """A run of the paper's synthetic market; `record` is recorded besides the usual, at every maintenance window if deployments are."""
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


# What is claimed. Where a policy spends more than its budget, every verdict says so first.


def _at_spend(data: xr.Dataset) -> str:
    """What the two learners spend, and whether StageRoute spends more than it may."""
    spend = ends(data, "cost_ratio", _LEARNERS)
    above = "ABOVE the budget, " if spend["StageRoute"].above(1.0, by=2.0) else ""
    return f"{above}at {show(spend['StageRoute'])} x the budget (Greedy {show(spend['Greedy'])} x): "


def _lead(data: xr.Dataset, metric: str) -> Measured:
    """By how much StageRoute is ahead of Greedy at the horizon, paired by seed."""
    first, second = ("Greedy", "StageRoute") if "regret" in metric else ("StageRoute", "Greedy")
    return paired_gap(data, metric, first, minus=second)


def _ahead(case: str, metric: str = "conditional_regret") -> Measure:
    """Whether StageRoute is ahead of Greedy; what is served under a hard budget is judged beside the queries that are."""

    def measure(results: Results) -> Verdict:
        data = results[case]
        lead, values = _lead(data, metric), listed(ends(data, metric, _LEARNERS))
        served = (
            f"served {listed(ends(data, 'served', _LEARNERS))} queries: " if metric == "served_reward" else _at_spend(data)
        )
        return f"{served}{values}, ahead by {show(lead)} (above 0 by 4 s.e.)", lead.above(0.0, by=4.0)

    return measure


def _share_of_oracle(case: str, policies: tuple[str, ...], least: float) -> Measure:
    def measure(results: Results) -> Verdict:
        data = results[case]
        oracle = end(data, "reward", "Oracle")
        if not oracle.mean:
            return "the oracle's reward is zero", False
        shares = {p: quotient(end(data, "reward", p), oracle).times(100.0) for p in policies}
        text = ", ".join(f"{p} {show(s)} %" for p, s in shares.items())
        return f"{_at_spend(data)}{text} of the oracle's reward (above {100 * least:g} % by 2 s.e.)", all(
            s.above(100 * least, by=2.0) for s in shares.values()
        )

    return measure


def longer_is_worse(short: str, long: str) -> Measure:
    """Whether both learners have more regret in the case with the longer interval."""

    @all_hold(between="; ")
    def measure(results: Results) -> Iterator[Verdict]:
        for policy in _LEARNERS:
            a, b = (end(results[name], "conditional_regret", policy) for name in (short, long))
            yield f"{policy} {show(a)} -> {show(b)} (more by 4 s.e.)", a.below(b, by=4.0)

    return measure


def _wider(few: str, many: str) -> Measure:
    def measure(results: Results) -> Verdict:
        a, b = (_lead(results[name], "conditional_regret") for name in (few, many))
        return f"Greedy - StageRoute: {show(a)} ({few}), {show(b)} ({many}) (less by 4 s.e.)", a.above(b, by=4.0)

    return measure


def _live(data: xr.Dataset) -> xr.DataArray:
    """Which models StageRoute has live at each maintenance window, bool `[seed, time, model]`."""
    return metrics.pick(data, "deployed").sel(policy="StageRoute").transpose("seed", "time", "model") > 0.5


@all_hold(between="; ")
def _alternates(results: Results) -> Iterator[Verdict]:
    live = _live(results["result"])
    costs = np.asarray(STAGEROUTE_TABLE_1.costs)
    dear, cheap = ((live & xr.DataArray(kind, dims="model")).any("model") for kind in (costs > 2.0, costs <= 2.0))
    stages = live.sizes["time"]
    changes = mean_of((live != live.shift(time=1, fill_value=False)).any("model").isel(time=slice(1, None)).sum("time"))
    yield f"the set changes {show(changes)} times in {stages} stages (in half of them)", changes.above(stages / 2, by=2.0)
    mixed = mean_of((dear & cheap).mean("time")).times(100.0)
    yield (
        f"{show(mixed)} % of the stages mix models above and below the budget (above 0 by 4 s.e.)",
        mixed.above(0.0, by=4.0),
    )


def _newcomers(results: Results) -> Verdict:
    live = _live(results["result"])
    arrival = np.asarray(2 * np.arange(1, 10))  # stage of arrival of models 6 to 14
    shares = [
        float(live.isel(time=stage, model=5 + n).mean()) for n, stage in enumerate(arrival, 1) if stage < live.sizes["time"]
    ]
    if not shares:
        return "nobody arrives", False
    return (
        f"{len(shares)} newcomers, live in the stage of their arrival in {100 * min(shares):.1f} % of the runs or more (95 %)",
        min(shares) >= 0.95,
    )


def _wider_than_synthetic(total: bool) -> Measure:
    """Whether StageRoute's lead in score on RouterBench is larger than on the synthetic market, with 3 and with 6 slots."""

    @all_hold()
    def measure(results: Results) -> Iterator[Verdict]:
        def lead(case: str) -> Measured:
            return _lead(results[case], "reward").times(float(results[case]["time"][-1]) if total else 1.0)

        real = lead("dollars")
        yield f"{_at_spend(results['dollars'])}ahead by {show(real)}", True
        for slots in (3, 6):
            other = lead(f"synthetic-{slots}")
            yield f"synthetic, M = {slots}: {show(other)} (less by 2 s.e.)", real.above(other, by=2.0)

    return measure


# Figures.


def _performance(results: Results):
    figure, (left, right) = plot.panels(2)
    data = results["result"]
    window = 250 if int(data["time"][-1]) >= 2500 else int(data["time"][0])
    moving = data.assign(mean_reward=metrics.window_mean(data, "mean_reward", window))
    moving = moving.sel(time=moving["mean_reward"]["time"])
    plot.curves(moving, "mean_reward", ax=left, title=f"expected reward, last {window} queries")
    plot.curves(data, "regret", ax=right, title="regret against the best feasible routing")
    return figure


def _regret(titles: Mapping[str, str]):
    def draw(results: Results):
        figure, axes = plot.panels(len(titles))
        for ax, (name, title) in zip(axes, titles.items(), strict=True):
            plot.curves(results[name], "regret", ax=ax, title=title)
        return figure

    return draw


def _deployment(results: Results):
    figure, axes = plot.panels(3)
    for ax, policy in zip(axes, ("StageRoute", "Greedy", "Oracle"), strict=True):
        plot.deployment(results["result"], policy=policy, ax=ax)
    return figure


@panel_per_case
def _scores(data: xr.Dataset, ax: Any, case: str) -> None:
    total = data.assign(score=metrics.cumulative(data, "reward"))
    plot.curves(total, "score", ax=ax, title=case)


# Cases of RouterBench, and of one's own table.


def _real(name: str, environment: Any, scale: float, pace: bool = False, **settings: Any) -> Case:
    mode = staged.Pace() if pace else staged.FixedBudget()
    return Case(
        environment,
        {
            "StageRoute": staged.StageRoute(budget_mode=mode),
            "Greedy": staged.Greedy(budget_mode=mode),
            "Oracle": staged.Oracle.of,
        },
        horizon=36_497,
        name=name,
        settings={"cost_scale": scale, **settings},
        coordinates={"cost_scale": scale, "budget_mode": "pace" if pace else "lp"},
        record_every=500,
        record=(*_RECORD, "served", "served_reward"),
    )


def _table_env(
    data: str | None = None,
    horizon: int = 36_497,
    max_deployed: int = 3,
    stage_length: int = 500,
    budget: float = 0.0002,
    cost_scale: float = 1.0,
) -> staged.MarketEnv:
    """The paper's RouterBench market on the rows of a file, its models in the paper's order of release where it names them."""
    if not data:
        raise ValueError("this experiment plays the user's own table: give its file with --data FILE")
    table = load_table(data) if str(data).endswith(".npz") else load_routerbench(data)
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


def _figure(
    number: str, title: str, cases: tuple[Case, ...], claims: Any, draw: Any, *, says: str = "", **options: Any
) -> Experiment:
    """A figure of the paper, with claims `(id, text, measure)`; `says` is what its text calls it."""
    where = f"{PAPER}, Fig. {number[0]}"
    return Experiment(
        name=f"staged/figure-{number}",
        title=title,
        cases=cases,
        claims=tuple(Claim(name, text, where, measure) for name, text, measure in claims),
        figures={f"figure-{number}": draw},
        source=where + (f' ("{says}" in its text)' if says else ""),
        **options,
    )


def _beside(
    number: str, says: str, titles: Mapping[str, str], cases: tuple[Case, Case], claims: Any, **options: Any
) -> Experiment:
    """A figure next to another one; `titles` by case."""
    first, second = titles.values()
    return _figure(number, f"Regret with {first}, next to {second}", cases, claims, _regret(titles), says=says, **options)


_UNITS = {
    "dollars": "",
    "scaled": " with costs in units of 1e-4 USD",
    "scaled-pace": " when the spend is paced to the budget",
}

EXPERIMENTS = (
    _figure(
        "2",
        "Performance and regret over time: 6 slots, a maintenance window every 250 queries",
        (arena(250, 6, record=("mean_reward",)),),
        (
            (
                "near-oracle",
                "StageRoute closely matches the optimal oracle",
                _share_of_oracle("result", ("StageRoute",), 0.99),
            ),
            ("below-greedy", "StageRoute incurs substantially lower regret than Greedy", _ahead("result")),
        ),
        _performance,
    ),
    *(
        _beside(
            f"3{letter}",
            f"2({says})",
            {long: f"a window every {interval:,} queries", "interval-250": "every 250"},
            (arena(250, 6, "interval-250"), arena(interval, 6, long)),
            (
                ("below-greedy", "StageRoute has lower regret than Greedy", _ahead(long)),
                ("interval", INTERVAL, longer_is_worse("interval-250", long)),
            ),
            notes="with the paper's own definition of regret the interval hardly matters: see staged/interval-effect",
        )
        for letter, says, interval in (("b", "c", 500), ("c", "d", 1000))
        for long in (f"interval-{interval}",)
    ),
    _beside(
        "4a",
        "3(a)",
        {"slots-3": "3 slots", "slots-6": "6"},
        (arena(500, 3, "slots-3"), arena(500, 6, "slots-6")),
        (
            ("below-greedy", "StageRoute has lower regret than Greedy", _ahead("slots-3")),
            ("advantage", "the advantage is largest when deployment capacity is limited", _wider("slots-3", "slots-6")),
        ),
        notes="with 3 slots a set is deployed for its optimistic costs; once a newcomer's true cost shows, no routing over the set may fit "
        "the budget, and the cheapest is taken",
    ),
    _beside(
        "4b",
        "3(b)",
        {"slots-10": "10 slots", "slots-6": "6"},
        (arena(500, 10, "slots-10"), arena(500, 6, "slots-6")),
        (
            (
                "both-strong",
                "with 10 slots both StageRoute and Greedy perform strongly",
                _share_of_oracle("slots-10", _LEARNERS, 0.95),
            ),
            ("competitive", "StageRoute stays competitive with 10 slots", _ahead("slots-10")),
            ("advantage", "the advantage shrinks with more slots", _wider("slots-6", "slots-10")),
        ),
    ),
    _figure(
        "5",
        "Which models are live: 3 slots, a maintenance window every 500 queries",
        (arena(500, 3, record=("deployed",)),),
        (
            ("alternates", "it alternates between expensive proprietary models and cheaper open ones", _alternates),
            ("newcomers", "it adapts to the evolving landscape: every newcomer is tried when it arrives", _newcomers),
        ),
        _deployment,
        seeds=256,
    ),
    _figure(
        "6",
        "Cumulative score on RouterBench's published means, with the spend beside it",
        (
            *(_real(n, staged.routerbench_market, 1.0 if n == "dollars" else 1e4, n == "scaled-pace") for n in _UNITS),
            *(arena(500, slots, f"synthetic-{slots}") for slots in (3, 6)),
        ),
        (
            *((name, f"StageRoute scores above Greedy{unit}", _ahead(name, "reward")) for name, unit in _UNITS.items()),
            *(
                (
                    f"hard-{name}",
                    f"the same{unit} under a hard budget: nothing is served once it is spent",
                    _ahead(name, "served_reward"),
                )
                for name, unit in _UNITS.items()
            ),
            (
                "margin-query",
                "by an even larger margin than on the synthetic dataset, per query",
                _wider_than_synthetic(False),
            ),
            (
                "margin-total",
                "by an even larger margin than on the synthetic dataset, in total",
                _wider_than_synthetic(True),
            ),
        ),
        _scores,
        seeds=256,
        smoke_horizon=4000,
        notes="in dollars the radius gamma / n swamps costs of 1e-3, so costs look like their floor and the budget is overspent "
        "several times; section 6.1 calls the budget hard. The paper does not say which of its synthetic markets it compares with, nor whether "
        "per query (of 36,497 and 10,000); ours are those with 3 slots, as here, and with 6",
    ),
    Experiment(
        name="staged/table",
        title="The market of figure 6 on the rows of your own table (--data FILE), with the spend beside the score",
        cases=(_real("dollars", _table_env, 1.0, data=None), _real("scaled", _table_env, 1e4, data=None)),
        seeds=256,
        figures={"table": _scores},
        smoke_horizon=4000,
        source=f"{PAPER}, sec. 6.2; any table of scores and costs",
    ),
)
