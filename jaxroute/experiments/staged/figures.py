"""Experiments of StageRoute (arXiv 2506.17254): its figures, and what its theory says."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import metrics, plot
from jaxroute.data import STAGEROUTE_TABLE_1, STAGEROUTE_TABLE_2, load_routerbench, load_table
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure, Verdict, all_hold, grows_as
from jaxroute.experiments.measure import Measured, along, end, listed, paired_gap, show
from jaxroute.experiments.pictures import panel_per_case
from jaxroute.problems import staged

_POLICIES = {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of}
_PAPER = "StageRoute (arXiv 2506.17254)"
_DEFAULT = ("regret", "conditional_regret", "reward", "cost", "cost_ratio", "infeasible_share")


def _advantage(data: xr.Dataset, metric: str = "conditional_regret") -> Measured:
    """Greedy minus StageRoute at the horizon, paired by seed."""
    return paired_gap(data, metric, "Greedy", minus="StageRoute")


def _less_regret(name: str) -> Measure:
    def measure(results: Results) -> Verdict:
        advantage, route = _advantage(results[name]), end(results[name], "conditional_regret", "StageRoute")
        return f"Greedy - StageRoute = {show(advantage)}; StageRoute {show(route)}", advantage.above(0.0, by=4.0)

    return measure


def _near_oracle(results: Results) -> Verdict:
    route, oracle = (end(results["result"], "reward", p).mean for p in ("StageRoute", "Oracle"))
    if not oracle:
        return "the oracle's reward is zero", False
    return f"{100 * route / oracle:.2f} % of the oracle's reward", route > 0.99 * oracle


def _longer_is_worse(short: str, long: str) -> Measure:
    @all_hold()
    def measure(results: Results) -> Iterator[Verdict]:
        for policy in ("StageRoute", "Greedy"):
            a, b = (end(results[name], "conditional_regret", policy) for name in (short, long))
            yield f"{policy} {show(a)} -> {show(b)}", a.below(b, by=4.0)

    return measure


def _wider_gap(few: str, many: str) -> Measure:
    def measure(results: Results) -> Verdict:
        a, b = _advantage(results[few]), _advantage(results[many])
        return f"Greedy - StageRoute: {show(a)} ({few}), {show(b)} ({many})", a.above(b, by=4.0)

    return measure


def _both_strong(results: Results) -> Verdict:
    data = results["slots-10"]
    oracle = end(data, "reward", "Oracle").mean
    if not oracle:
        return "the oracle's reward is zero", False
    shares = {p: end(data, "reward", p).mean / oracle for p in ("StageRoute", "Greedy")}
    return ", ".join(f"{p} {100 * s:.2f} % of the oracle" for p, s in shares.items()), min(shares.values()) > 0.95


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


def _more_regret(policies: Sequence[str], than: str) -> Measure:
    """Whether each of some policies has more regret than another, paired by seed."""

    def measure(results: Results) -> Verdict:
        gaps = {p: paired_gap(results["result"], "conditional_regret", p, minus=than) for p in policies}
        return f"above {than}: {listed(gaps)}", all(g.above(0.0, by=4.0) for g in gaps.values())

    return measure


def modal_sets(data: xr.Dataset, policy: str) -> list[tuple[tuple[int, ...], float]]:
    """The most frequent deployed set at each record time, as model indices, and the share of seeds that have it."""
    deployed = metrics.pick(data, "deployed").sel(policy=policy).transpose("time", "seed", "model").values > 0.5
    sets = []
    for runs in deployed:
        counts = Counter(tuple(np.flatnonzero(run).tolist()) for run in runs)
        best, number = counts.most_common(1)[0]
        sets.append((best, number / len(runs)))
    return sets


def _alternates(results: Results) -> Verdict:
    costs = np.asarray(STAGEROUTE_TABLE_1.costs)
    sets = [s for s, _ in modal_sets(results["result"], "StageRoute")]
    dear = [bool((costs[list(s)] > 2.0).any()) for s in sets]
    changes = sum(a != b for a, b in itertools.pairwise(sets))
    mixed = sum(bool(d and (costs[list(s)] <= 2.0).any()) for d, s in zip(dear, sets, strict=True))
    switches = sum(a != b for a, b in itertools.pairwise(dear))
    text = f"{changes} changes of the modal set in {len(sets)} stages, {mixed} stages mix models above and below the budget"
    return text + f", {switches} switches between with and without dear models", changes >= len(sets) // 2 and mixed > 0


def _newcomers(results: Results) -> Verdict:
    data = results["result"]
    sets = [set(s) for s, _ in modal_sets(data, "StageRoute")]
    arrival = 2 * np.maximum(np.arange(15) - 5, 0)
    tried = [m for m in range(6, 15) if arrival[m] < len(sets) and m in sets[arrival[m]]]
    due = [m for m in range(6, 15) if arrival[m] < len(sets)]
    return f"{len(tried)} of {len(due)} newcomers are live in the stage of their arrival", len(tried) == len(due)


def _spend(data: xr.Dataset) -> str:
    shown = []
    for policy in data["policy"].values:
        reward, ratio = end(data, "reward", policy).mean, end(data, "cost_ratio", policy).mean
        shown.append(f"{policy} {reward * int(data['time'][-1]):.0f} at {ratio:.2f} x budget")
    return "; ".join(shown)


def _routerbench_claim(name: str) -> Measure:
    def measure(results: Results) -> Verdict:
        return _spend(results[name]), _advantage(results[name], "reward").below(0.0, by=4.0)

    return measure


def _hard_budget(results: Results) -> Verdict:
    data = results["dollars"]
    served = {p: [end(data, m, p).mean for m in ("served_reward", "served")] for p in data["policy"].values}
    text = "; ".join(f"{p} {reward:.0f} in {queries:.0f} queries" for p, (reward, queries) in served.items())
    return text, _advantage(data, "served_reward").below(0.0, by=4.0)


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


def _choices(results: Results):
    figure, axes = plot.panels(3)
    groups = {
        "free slots and ties": ("StageRoute", "NoFiller", "RandomFiller", "IndexFiller", "RandomTie"),
        "start values and past data": ("StageRoute", "Lemma3", "RoutingScope", "StageScope"),
        "routing inside a stage": ("Greedy", "GreedyByRatio", "GreedyToBest"),
    }
    for ax, (title, policies) in zip(axes, groups.items(), strict=True):
        plot.curves(results["result"], "regret", ax=ax, policies=list(policies), title=title)
    return figure


def _deployment(results: Results):
    figure, axes = plot.panels(3)
    for ax, policy in zip(axes, ("StageRoute", "Greedy", "Oracle"), strict=True):
        plot.deployment(results["result"], policy=policy, ax=ax)
    return figure


@panel_per_case
def _scores(data: xr.Dataset, ax: Any, case: str) -> None:
    total = data.assign(score=metrics.cumulative(data, "reward"))
    ratios = ", ".join(f"{p} {end(data, 'cost_ratio', p).mean:.2f}" for p in data["policy"].values)
    plot.curves(total, "score", ax=ax, title=f"{case}; spend / budget: {ratios}")


def _intervals(results: Results):
    figure, axes = plot.panels(2)
    for ax, mode in zip(axes, ("stage", "continuous"), strict=True):
        data = along(results, "conditional_regret", "interval", optimum=mode)
        plot.final(data.expand_dims(time=[1], axis=-1).to_dataset(name="conditional_regret"), "conditional_regret", ax=ax)
        ax.set_title(f"optimum: {mode}")
    return figure


def _discovery_figure(results: Results):
    figure, (ax,) = plot.panels(1)
    rules = {f"K = {r}": along(results, "regret", "horizon", stages=r).sel(policy="StageRoute") for r in _STAGE_RULES}
    plot.power_laws(rules, ax=ax)
    return figure


def _above_bound(results: Results) -> Verdict:
    ratios = []
    for data in results.values():
        where = data.attrs["coordinates"]
        bound = where["slots"] ** (1 / 3) * where["horizon"] ** (2 / 3) / 16
        ratios.append(float(data["regret"].isel(time=-1).mean("seed").min()) / bound)
    return f"{min(ratios):.1f} to {max(ratios):.1f} times the bound", min(ratios) >= 1.0


def _arena(interval: int, slots: int, name: str = "result", record=(), **settings: Any) -> Case:
    return Case(
        staged.arena_market,
        _POLICIES,
        horizon=10_000,
        name=name,
        settings={"max_deployed": slots, "stage_length": interval, **settings},
        coordinates={"interval": interval, "slots": slots, **{k: v for k, v in settings.items() if k == "optimum"}},
        record_every=250 if "deployed" not in record else interval,
        record=(*_DEFAULT, *record) if record else None,
    )


def _interval_cases() -> tuple[Case, ...]:
    return tuple(
        _arena(interval, 6, f"{mode}-{interval}", optimum=mode, arrival_lag=int(mode == "continuous"))
        for mode in ("stage", "continuous")
        for interval in (250, 500, 1000)
    )


_HORIZONS = tuple(n**3 for n in (10, 16, 24, 32, 44))
_STAGE_RULES = {
    "T^(1/3)": lambda t: round(t ** (1 / 3)),
    "T^(1/2)": lambda t: round(t**0.5),
    "10": lambda t: 10,
}


def _discovery_env(rule: str):
    def make(horizon: int) -> staged.MarketEnv:
        return staged.discovery_market(horizon=horizon, stages=min(horizon, _STAGE_RULES[rule](horizon)))

    return make


def _discovery_cases() -> tuple[Case, ...]:
    flat = {"StageRoute": staged.StageRoute()}
    return tuple(
        Case(
            _discovery_env(rule),
            flat,
            horizon=horizon,
            name=f"{rule.replace('^', '').replace('/', '-')}-{horizon}",
            coordinates={"stages": rule, "horizon": horizon},
            record_every=horizon,
        )
        for rule in _STAGE_RULES
        for horizon in _HORIZONS
    )


def _lower_bound_env(slots: int):
    def make(horizon: int):
        return staged.lower_bound_market(horizon=max(horizon, 8 * slots), max_deployed=slots)

    return make


def _lower_bound_cases() -> tuple[Case, ...]:
    return tuple(
        Case(
            _lower_bound_env(slots),
            {"StageRoute": grid(staged.StageRoute, gamma=[0.2, 1.0])},
            horizon=horizon,
            name=f"M{slots}-{horizon}",
            coordinates={"slots": slots, "horizon": horizon},
            record_every=horizon,
        )
        for slots in (2, 4)
        for horizon in (2000, 8000, 32_000, 128_000)
    )


def _lower_bound_figure(results: Results):
    figure, (ax,) = plot.panels(1)
    series = {
        f"M = {slots}, gamma = {gamma}": along(results, "regret", "horizon", slots=slots).sel(
            policy="StageRoute", gamma=gamma
        )
        for slots in (2, 4)
        for gamma in (0.2, 1.0)
    }
    plot.power_laws(series, ax=ax)
    return figure


def _routerbench(name: str, scale: float, pace: bool = False) -> Case:
    mode = staged.Pace() if pace else staged.FixedBudget()
    return Case(
        staged.routerbench_market,
        {
            "StageRoute": staged.StageRoute(budget_mode=mode),
            "Greedy": staged.Greedy(budget_mode=mode),
            "Oracle": staged.Oracle.of,
        },
        horizon=36_497,
        name=name,
        settings={"cost_scale": scale},
        coordinates={"cost_scale": scale, "budget_mode": "pace" if pace else "lp"},
        record_every=500,
        record=(*_DEFAULT, "served", "served_reward"),
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


def _table_case(name: str, scale: float) -> Case:
    return Case(
        _table_env,
        {"StageRoute": staged.StageRoute(), "Greedy": staged.Greedy(), "Oracle": staged.Oracle.of},
        horizon=36_497,
        name=name,
        settings={"data": None, "cost_scale": scale},
        coordinates={"cost_scale": scale},
        record_every=500,
        record=(*_DEFAULT, "served", "served_reward"),
    )


_INTERVAL_CLAIM = "infrequent updates lead to consistently higher regret across all algorithms"

EXPERIMENTS = (
    Experiment(
        name="staged/figure-2",
        title="Performance and regret over time: 6 slots, a maintenance window every 250 queries",
        cases=(_arena(250, 6, record=("mean_reward",)),),
        claims=(
            Claim(
                "near-oracle",
                "StageRoute closely matches the optimal oracle",
                f"{_PAPER}, Fig. 2(a)",
                _near_oracle,
            ),
            Claim(
                "below-greedy",
                "StageRoute incurs substantially lower regret than Greedy",
                f"{_PAPER}, Fig. 2(b)",
                _less_regret("result"),
            ),
        ),
        figures={"figure-2": _performance},
        source=f"{_PAPER}, Fig. 2",
    ),
    Experiment(
        name="staged/figure-3b",
        title="Regret with a maintenance window every 500 queries, next to 250",
        cases=(_arena(250, 6, "interval-250"), _arena(500, 6, "interval-500")),
        claims=(
            Claim(
                "below-greedy", "StageRoute has lower regret than Greedy", f"{_PAPER}, Fig. 3", _less_regret("interval-500")
            ),
            Claim("interval", _INTERVAL_CLAIM, f"{_PAPER}, Fig. 3", _longer_is_worse("interval-250", "interval-500")),
        ),
        figures={"figure-3b": _regret({"interval-500": "every 500 queries", "interval-250": "every 250 queries"})},
        source=f'{_PAPER}, Fig. 3 ("2(c)" in its text)',
        notes="with the paper's own definition of regret the interval hardly matters: see staged/interval-effect",
    ),
    Experiment(
        name="staged/figure-3c",
        title="Regret with a maintenance window every 1,000 queries, next to 250",
        cases=(_arena(250, 6, "interval-250"), _arena(1000, 6, "interval-1000")),
        claims=(
            Claim(
                "below-greedy", "StageRoute has lower regret than Greedy", f"{_PAPER}, Fig. 3", _less_regret("interval-1000")
            ),
            Claim("interval", _INTERVAL_CLAIM, f"{_PAPER}, Fig. 3", _longer_is_worse("interval-250", "interval-1000")),
        ),
        figures={"figure-3c": _regret({"interval-1000": "every 1,000 queries", "interval-250": "every 250 queries"})},
        source=f'{_PAPER}, Fig. 3 ("2(d)" in its text)',
        notes="with the paper's own definition of regret the interval hardly matters: see staged/interval-effect",
    ),
    Experiment(
        name="staged/figure-4a",
        title="Regret with 3 slots, next to 6",
        cases=(_arena(500, 3, "slots-3"), _arena(500, 6, "slots-6")),
        claims=(
            Claim("below-greedy", "StageRoute has lower regret than Greedy", f"{_PAPER}, Fig. 4", _less_regret("slots-3")),
            Claim(
                "advantage",
                "the advantage is largest when deployment capacity is limited",
                f"{_PAPER}, Fig. 4",
                _wider_gap("slots-3", "slots-6"),
            ),
        ),
        figures={"figure-4a": _regret({"slots-3": "3 slots", "slots-6": "6 slots"})},
        source=f'{_PAPER}, Fig. 4 ("3(a)" in its text)',
    ),
    Experiment(
        name="staged/figure-4b",
        title="Regret with 10 slots, next to 6",
        cases=(_arena(500, 10, "slots-10"), _arena(500, 6, "slots-6")),
        claims=(
            Claim(
                "both-strong",
                "with 10 slots both StageRoute and Greedy perform strongly",
                f"{_PAPER}, Fig. 4",
                _both_strong,
            ),
            Claim(
                "competitive", "StageRoute stays competitive with 10 slots", f"{_PAPER}, Fig. 4", _less_regret("slots-10")
            ),
            Claim(
                "advantage", "the advantage shrinks with more slots", f"{_PAPER}, Fig. 4", _wider_gap("slots-6", "slots-10")
            ),
        ),
        figures={"figure-4b": _regret({"slots-10": "10 slots", "slots-6": "6 slots"})},
        source=f'{_PAPER}, Fig. 4 ("3(b)" in its text)',
    ),
    Experiment(
        name="staged/figure-5",
        title="Which models are live: 3 slots, a maintenance window every 500 queries",
        cases=(_arena(500, 3, record=("deployed",)),),
        seeds=256,
        claims=(
            Claim(
                "alternates",
                "it alternates between expensive proprietary models and cheaper open ones",
                f"{_PAPER}, Fig. 5",
                _alternates,
            ),
            Claim(
                "newcomers",
                "it adapts to the evolving landscape: every newcomer is tried when it arrives",
                f"{_PAPER}, Fig. 5",
                _newcomers,
            ),
        ),
        figures={"figure-5": _deployment},
        source=f"{_PAPER}, Fig. 5",
    ),
    Experiment(
        name="staged/figure-6",
        title="Cumulative score on RouterBench's published means, with the spend beside it",
        cases=(
            _routerbench("dollars", 1.0),
            _routerbench("scaled", 1e4),
            _routerbench("scaled-pace", 1e4, pace=True),
        ),
        seeds=256,
        claims=(
            Claim("dollars", "StageRoute scores above Greedy", f"{_PAPER}, Fig. 6", _routerbench_claim("dollars")),
            Claim("scaled", "the same with costs in units of 1e-4 USD", f"{_PAPER}, Fig. 6", _routerbench_claim("scaled")),
            Claim(
                "pace",
                "the same when the spend is paced to the budget",
                f"{_PAPER}, Fig. 6",
                _routerbench_claim("scaled-pace"),
            ),
            Claim(
                "hard-budget",
                "the same under a hard budget: nothing is served once it is spent",
                f"{_PAPER}, sec. 6.1",
                _hard_budget,
            ),
        ),
        figures={"figure-6": _scores},
        smoke_horizon=4000,
        source=f"{_PAPER}, Fig. 6",
        notes="in dollars the radius gamma / n swamps costs of 1e-3, so costs look like their floor and the budget is overspent "
        "several times; always read the spend next to the score",
    ),
    Experiment(
        name="staged/table",
        title="The market of figure 6 on the rows of your own table (--data FILE), with the spend beside the score",
        cases=(_table_case("dollars", 1.0), _table_case("scaled", 1e4)),
        seeds=256,
        figures={"table": _scores},
        smoke_horizon=4000,
        source=f"{_PAPER}, sec. 6.2; any table of scores and costs",
    ),
    Experiment(
        name="staged/interval-effect",
        title="Does a longer interval between maintenance windows hurt? Two ways to keep the books",
        cases=_interval_cases(),
        seeds=512,
        claims=(
            Claim(
                "stage",
                _INTERVAL_CLAIM + " (optimum: pool at stage starts, the paper's definition)",
                f"{_PAPER}, sec. 6.1",
                _longer_is_worse("stage-250", "stage-1000"),
            ),
            Claim(
                "continuous",
                _INTERVAL_CLAIM + " (optimum: pool at every query, newcomers miss their window)",
                f"{_PAPER}, sec. 6.1",
                _longer_is_worse("continuous-250", "continuous-1000"),
            ),
        ),
        figures={"interval-effect": _intervals},
        source=f"{_PAPER}, sec. 6.1; the second bookkeeping is ours",
        notes="arrivals coincide with maintenance windows and the optimum follows the windows, so with the paper's definition "
        "StageRoute's regret does not depend on the interval and Greedy's falls",
    ),
    Experiment(
        name="staged/open-choices",
        title="What the paper leaves open: fillers, ties, start values, past data, and Greedy's routing",
        cases=(
            Case(
                staged.arena_market,
                _OPEN_CHOICES,
                horizon=10_000,
                settings={"max_deployed": 6, "stage_length": 500},
                record_every=500,
            ),
        ),
        seeds=512,
        claims=(
            Claim(
                "fillers",
                "free slots left empty, filled at random or by index cost regret",
                f"{_PAPER}, eq. (3); the choice is ours",
                _more_regret(("NoFiller", "RandomFiller", "IndexFiller"), "StageRoute"),
            ),
            Claim(
                "start",
                "a start at mean 0 is hardly optimistic and costs regret",
                f"{_PAPER}, Lemma 3; the choice is ours",
                _more_regret(("Lemma3",), "StageRoute"),
            ),
            Claim(
                "scope",
                "to forget the stages before costs regret",
                f"{_PAPER}, Lemma 3; the choice is ours",
                _more_regret(("RoutingScope", "StageScope"), "StageRoute"),
            ),
            Claim(
                "routing",
                "Greedy has more regret if it routes by ratio than by the linear program",
                f"{_PAPER}, sec. 6.1; the choice is ours",
                _more_regret(("GreedyByRatio", "GreedyToBest"), "Greedy"),
            ),
        ),
        figures={"open-choices": _choices},
        source=f"{_PAPER}, sec. 4 and 6.1; the variants are ours",
    ),
    Experiment(
        name="staged/discovery-slope",
        title="How regret grows with the horizon when 30 models wait for 3 slots",
        cases=_discovery_cases(),
        seeds=200,
        claims=(
            Claim(
                "third",
                "K = T^(1/3) stages give regret of order T^(2/3) (slope 0.62 to 0.70)",
                f"{_PAPER}, Theorem 1",
                grows_as("regret", "StageRoute", 0.62, 0.70, {"stages": "T^(1/3)"}),
            ),
            Claim(
                "half",
                "the discovery term N T / (M K) rules: K = T^(1/2) gives slope 0.5 (0.45 to 0.55)",
                f"{_PAPER}, Lemma 7",
                grows_as("regret", "StageRoute", 0.45, 0.55, {"stages": "T^(1/2)"}),
            ),
            Claim(
                "fixed",
                "with K fixed the regret is linear (slope above 0.95)",
                f"{_PAPER}, Lemma 7",
                grows_as("regret", "StageRoute", 0.95, 1.05, {"stages": "10"}),
            ),
        ),
        figures={"discovery-slope": _discovery_figure},
        smoke_horizon=4000,
        source=f"{_PAPER}, Theorem 1; the instance is ours",
        notes="regret falls in K throughout: statistics persist over stages, so the sqrt(M K T) term of the bound is not seen",
    ),
    Experiment(
        name="staged/lower-bound",
        title="Regret on the paper's hard instances, next to its lower bound",
        cases=_lower_bound_cases(),
        seeds=200,
        claims=(
            Claim(
                "above",
                "every policy's regret is at least C M^(1/3) T^(2/3), C = c^(1/3) / 16 (here c = 1)",
                f"{_PAPER}, Theorem 2",
                _above_bound,
            ),
            *(
                Claim(
                    f"slope-M{m}-gamma{g}",
                    f"regret grows as T^(2/3) with M = {m}, gamma = {g} (slope 0.60 to 0.75)",
                    f"{_PAPER}, Theorem 2",
                    grows_as("regret", "StageRoute", 0.60, 0.75, {"slots": m}, gamma=g),
                )
                for m in (2, 4)
                for g in (0.2, 1.0)
            ),
        ),
        figures={"lower-bound": _lower_bound_figure},
        smoke_horizon=8000,
        source=f"{_PAPER}, Theorem 2 and appendix C",
    ),
)
