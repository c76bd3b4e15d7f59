"""Studies of StageRoute that its paper does not contain: two ways to count, what the paper leaves open, and what its theorems say."""

import itertools
from collections.abc import Iterator, Sequence

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure, Verdict, all_hold, grows_as
from jaxroute.experiments.measure import along, end, ends, listed, paired_gap, show
from jaxroute.experiments.staged.figures import INTERVAL, PAPER, arena, longer_is_worse
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
_GAMMAS = (0.2, 1.0)


def _more_regret(policies: Sequence[str], than: str) -> Measure:
    """Whether each of some policies has more regret than another, paired by seed."""

    def measure(results: Results) -> Verdict:
        data = results["result"]
        gaps = {p: paired_gap(data, "conditional_regret", p, minus=than) for p in policies}
        spend = listed(ends(data, "cost_ratio", (than, *policies)))
        text = f"above {than} by {listed(gaps)} (above 0 by 4 s.e.); spend / budget: {spend}"
        return text, all(g.above(0.0, by=4.0) for g in gaps.values())

    return measure


@all_hold()
def _more_stages_help(results: Results) -> Iterator[Verdict]:
    """At every horizon, the rules with more stages have less regret."""
    for horizon in sorted({data.attrs["coordinates"]["horizon"] for data in results.values()}):
        regret = {}
        for data in results.values():
            if data.attrs["coordinates"]["horizon"] == horizon:
                regret[_STAGES[data.attrs["coordinates"]["stages"]](horizon)] = end(data, "regret", "StageRoute")
        pairs = itertools.pairwise(sorted(regret))
        text = f"T = {horizon:,}: {listed({k: regret[k] for k in sorted(regret)}, 'K = {}:')}"
        yield f"{text} (less by 4 s.e.)", all(regret[many].below(regret[few], by=4.0) for few, many in pairs)


def _above_bound(results: Results) -> Verdict:
    """The least regret, in units of the bound."""
    ratios = {}
    for data in results.values():
        slots, horizon = (data.attrs["coordinates"][name] for name in ("slots", "horizon"))
        for gamma in _GAMMAS:
            found = end(data, "regret", "StageRoute", gamma=gamma).times(1 / staged.lower_bound(slots, horizon))
            ratios[f"M = {slots}, T = {horizon:,}, gamma = {gamma}"] = found
    least = min(ratios, key=lambda name: ratios[name].mean)
    text = f"{show(ratios[least])} times the bound or more (above 1 by 2 s.e.), least with {least}"
    return text, all(r.above(1.0, by=2.0) for r in ratios.values())


def _discovery(rule: str):
    def make(horizon: int) -> staged.MarketEnv:
        return staged.discovery_market(horizon=horizon, stages=min(horizon, _STAGES[rule](horizon)))

    return make


def _hard_instances(slots: int):
    def make(horizon: int):
        return staged.lower_bound_market(horizon=max(horizon, 8 * slots), max_deployed=slots)

    return make


# Figures.


def _intervals(results: Results):
    figure, axes = plot.panels(2)
    for ax, mode in zip(axes, _MODES, strict=True):
        data = along(results, "conditional_regret", "interval", optimum=mode)
        plot.final(data.to_dataset(name="conditional_regret"), "conditional_regret", ax=ax, title=_MODES[mode])
    return figure


def _choices(results: Results):
    figure, axes = plot.panels(3)
    for ax, (title, policies) in zip(axes, _GROUPS.items(), strict=True):
        plot.curves(results["result"], "regret", ax=ax, policies=list(policies), title=title)
    return figure


def _discovery_figure(results: Results):
    figure, (ax,) = plot.panels(1)
    rules = {f"K = {r}": along(results, "regret", "horizon", stages=r).sel(policy="StageRoute") for r in _STAGES}
    plot.power_laws(rules, ax=ax)
    return figure


def _lower_bound_figure(results: Results):
    figure, (ax,) = plot.panels(1)
    series = {
        f"M = {slots}, gamma = {gamma}": along(results, "regret", "horizon", slots=slots).sel(
            policy="StageRoute", gamma=gamma
        )
        for slots in (2, 4)
        for gamma in _GAMMAS
    }
    plot.power_laws(series, ax=ax)
    return figure


def _study(name: str, title: str, cases: tuple[Case, ...], claims, draw, source: str, **options) -> Experiment:
    """A study with claims `(id, text, what of the paper, measure)`."""
    return Experiment(
        name=f"staged/{name}",
        title=title,
        cases=cases,
        claims=tuple(Claim(i, text, f"{PAPER}, {where}", measure) for i, text, where, measure in claims),
        figures={name: draw},
        source=f"{PAPER}, {source}",
        **options,
    )


EXPERIMENTS = (
    _study(
        "interval-effect",
        "Does a longer interval between maintenance windows hurt? Two ways to keep the books",
        tuple(
            arena(interval, 6, f"{mode}-{interval}", optimum=mode, arrival_lag=int(mode == "continuous"))
            for mode in _MODES
            for interval in _INTERVALS
        ),
        [
            (mode, f"{INTERVAL} (optimum: {words})", "sec. 6.1", longer_is_worse(f"{mode}-250", f"{mode}-1000"))
            for mode, words in _MODES.items()
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
        (
            Case(
                staged.arena_market,
                _OPEN_CHOICES,
                10_000,
                settings={"max_deployed": 6, "stage_length": 500},
                record_every=500,
            ),
        ),
        [
            (name, text, f"{where}; the choice is ours", _more_regret(policies, than))
            for name, text, where, policies, than in (
                (
                    "fillers",
                    "free slots left empty, filled at random or by index cost regret",
                    "eq. (3)",
                    ("NoFiller", "RandomFiller", "IndexFiller"),
                    "StageRoute",
                ),
                ("start", "a start at mean 0 is hardly optimistic and costs regret", "Lemma 3", ("Lemma3",), "StageRoute"),
                (
                    "scope",
                    "to forget the stages before costs regret",
                    "Lemma 3",
                    ("RoutingScope", "StageScope"),
                    "StageRoute",
                ),
                (
                    "routing",
                    "Greedy has more regret if it routes by ratio than by the linear program",
                    "sec. 6.1",
                    ("GreedyByRatio", "GreedyToBest"),
                    "Greedy",
                ),
            )
        ],
        _choices,
        "sec. 4 and 6.1; the variants are ours",
        seeds=512,
    ),
    _study(
        "discovery-slope",
        "How regret grows with the horizon, and falls with the stages, when 30 models wait for 3 slots",
        tuple(
            Case(
                _discovery(rule),
                {"StageRoute": staged.StageRoute()},
                horizon,
                f"{rule.replace('^', '').replace('/', '-')}-{horizon}",
                coordinates={"stages": rule, "horizon": horizon},
                record_every=horizon,
            )
            for rule in _STAGES
            for horizon in _HORIZONS
        ),
        [
            *(
                (name, text, where, grows_as("regret", "StageRoute", low, high, {"stages": rule}))
                for name, rule, text, where, low, high in (
                    (
                        "third",
                        "T^(1/3)",
                        "K = T^(1/3) stages give regret of order T^(2/3) (slope 0.62 to 0.70)",
                        "Theorem 1",
                        0.62,
                        0.70,
                    ),
                    (
                        "half",
                        "T^(1/2)",
                        "the discovery term N T / (M K) rules: K = T^(1/2) gives slope 0.5 (0.45 to 0.55)",
                        "Lemma 7",
                        0.45,
                        0.55,
                    ),
                    ("fixed", "10", "with K fixed the regret is linear (slope above 0.95)", "Lemma 7", 0.95, 1.05),
                )
            ),
            (
                "stages",
                "regret falls with the number of stages K at every horizon: the term sqrt(M K T) of the bound, which grows, is not seen",
                "Theorem 1",
                _more_stages_help,
            ),
        ],
        _discovery_figure,
        "Theorem 1; the instance is ours",
        seeds=200,
        smoke_horizon=4000,
        notes="statistics persist over stages, so that nothing is learned anew",
    ),
    _study(
        "lower-bound",
        "Regret on the paper's hard instances, next to its lower bound",
        tuple(
            Case(
                _hard_instances(slots),
                {"StageRoute": grid(staged.StageRoute, gamma=list(_GAMMAS))},
                horizon,
                f"M{slots}-{horizon}",
                coordinates={"slots": slots, "horizon": horizon},
                record_every=horizon,
            )
            for slots in (2, 4)
            for horizon in (2000, 8000, 32_000, 128_000)
        ),
        [
            (
                "above",
                "every policy's regret is at least C M^(1/3) T^(2/3), C = c^(1/3) / 16 (here c = 1)",
                "Theorem 2",
                _above_bound,
            ),
            *(
                (
                    f"slope-M{slots}-gamma{gamma}",
                    f"regret grows as T^(2/3) with M = {slots}, gamma = {gamma} (slope 0.60 to 0.75)",
                    "Theorem 2",
                    grows_as("regret", "StageRoute", 0.60, 0.75, {"slots": slots}, gamma=gamma),
                )
                for slots in (2, 4)
                for gamma in _GAMMAS
            ),
        ],
        _lower_bound_figure,
        "Theorem 2 and appendix C",
        seeds=200,
        smoke_horizon=8000,
    ),
)
