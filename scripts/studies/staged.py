"""Studies of StageRoute: two ways to count regret, and what its paper leaves open.

jaxroute run scripts/studies/staged.py:open-choices
"""

from collections.abc import Sequence

import xarray as xr

from jaxroute import plot
from jaxroute.experiments.base import Case, Results
from jaxroute.experiments.claims import Finding, with_parameters
from jaxroute.experiments.measure import ends, listed, paired_gap
from jaxroute.experiments.pictures import Panel, side_by_side
from jaxroute.experiments.staged import INTERVAL, alike, arena, experiment, longer_is_worse, symlog
from jaxroute.problems import staged

_INTERVALS = (250, 500, 1000)
_MODES = {
    "stage": "pool at stage starts, the paper's definition",
    "continuous": "pool at every query, newcomers miss their window",
}
# Choices that the paper leaves open: StageRoute and Greedy with each alternative.
_OPEN_CHOICES = {
    "StageRoute": staged.StageRoute(),
    "NoFiller": staged.StageRoute(filler=staged.fillers.NoFiller()),
    "RandomFiller": staged.StageRoute(filler=staged.fillers.RandomFiller()),
    "IndexFiller": staged.StageRoute(filler=staged.fillers.IndexFiller()),
    "RandomTie": staged.StageRoute(tie=staged.ties.RandomTie()),
    "Lemma3": staged.StageRoute(estimator=staged.estimators.Lemma3()),
    "RoutingScope": staged.StageRoute(scope=staged.scopes.RoutingScope()),
    "StageScope": staged.StageRoute(scope=staged.scopes.StageScope()),
    "Greedy": staged.Greedy(),
    "GreedyByRatio": staged.Greedy(routing=staged.routing.RatioRouting()),
    "GreedyToBest": staged.Greedy(routing=staged.routing.BestRatioRouting()),
}
_GROUPS = {
    "free slots and ties": ("StageRoute", "NoFiller", "RandomFiller", "IndexFiller", "RandomTie"),
    "start values and past data": ("StageRoute", "Lemma3", "RoutingScope", "StageScope"),
    "routing inside a stage": ("Greedy", "GreedyByRatio", "GreedyToBest"),
}


@with_parameters
def _more_regret(results: Results, policies: Sequence[str], than: str = "StageRoute") -> Finding:
    """Tests whether each of some policies has more regret than the policy `than`, paired by seed."""
    data = results["result"]
    gaps = {p: paired_gap(data, "conditional_regret", p, minus=than) for p in policies}
    spend = listed(ends(data, "cost_ratio", (than, *policies)))
    text = f"above {than} by {listed(gaps)}; spend / budget: {spend}"
    return text, [gap.above(0.0) for gap in gaps.values()]


# Figures.


@alike
def _intervals(results: Results):
    figure, axes = plot.panels(4, columns=2)
    for column, (mode, words) in enumerate(_MODES.items()):
        cases = [results[f"{mode}-{interval}"] for interval in _INTERVALS]
        data = xr.concat(cases, xr.IndexVariable("interval", list(_INTERVALS)))
        symlog(data, "conditional_regret", plot.sweep, ax=axes[column], title=words)
        plot.sweep(data, "cost_ratio", ax=axes[2 + column])
        plot.level(axes[2 + column], "budget", 1.0)
    return figure


_choices = side_by_side(
    *(Panel("conditional_regret", policies=list(policies), title=title) for title, policies in _GROUPS.items()),
    *(Panel("cost_ratio", policies=list(policies), reference={"budget": 1.0}, title="spend")
        for policies in _GROUPS.values()))  # fmt: skip


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
        "fillers": ("free slots that are left empty, or filled at random or by index, increase regret", _OURS, _more_regret(_UNFILLED)),
        "start": ("a start at mean 0 is hardly optimistic and increases regret", _OURS, _more_regret(("Lemma3",))),
        "scope": ("forgetting earlier stages increases regret", _OURS, _more_regret(_FORGETFUL)),
        "routing": ("Greedy has more regret if it routes by ratio than by the linear program", _OURS, _more_regret(_BY_RATIO, "Greedy")),
    },
}  # fmt: skip

EXPERIMENTS = (
    experiment("interval-effect", "Effect of the interval between maintenance windows, with two definitions of regret",
        [arena(interval, 6, f"{mode}-{interval}", optimum=mode, arrival_lag=int(mode == "continuous")) for mode in _MODES
            for interval in _INTERVALS],
        _CLAIMS["interval-effect"], _intervals, "sec. 6.1; the second definition is ours", seeds=512,
        notes="arrivals coincide with maintenance windows and the optimum follows the windows, so with the paper's definition "
            "StageRoute's regret does not depend on the interval and Greedy's falls"),
    experiment("open-choices",
        "Choices that the paper leaves open: fillers, ties, start values, past data, and Greedy's routing",
        [Case(staged.arena_market, _OPEN_CHOICES, 10_000, settings=_ARENA, record_every=500)], _CLAIMS["open-choices"],
        _choices, "sec. 4 and 6.1; the variants are ours", seeds=512),
)  # fmt: skip
