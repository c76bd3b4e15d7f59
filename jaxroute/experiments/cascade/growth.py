"""Experiments of COSMOS, continued: how regret grows with the horizon, the bonus, the sizes, and with rare requests."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import metrics, plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import OURS, PAPER, RECORD, STREAMING, TABLE, horizon_of, learner, uniform_case
from jaxroute.experiments.claims import Measure, Number, Verdict, agrees, all_hold
from jaxroute.experiments.measure import ends, ends_along, late_slope, listed, lowest, mean_of, power, runs_of, show
from jaxroute.experiments.pictures import one_case, panel_per_case
from jaxroute.problems import cascade as ca

_ONE, _ALL = "one call", "query all"


# S2: long horizons.

_SIZES = ((3, 3), (5, 5), (10, 5))
_LONG = {  # Regret after 1e5 rounds with its standard error, and the log-log slope of the last decade.
    ("K3-m3", "COSMOS"): (32.5, 0.7, 0.22),
    ("K3-m3", "greedy"): (4311.0, 741.0, 0.98),
    ("K3-m3", "epsilon-greedy"): (188.0, 0.9, 0.66),
    ("K5-m5", "COSMOS"): (146.0, 1.2, 0.27),
    ("K10-m5", "COSMOS"): (312.0, 2.3, 0.28),
}


def _long_case(num_models: int, dim: int) -> Case:
    more = {"greedy": learner(0.0), "epsilon-greedy": ca.EpsilonGreedy(fit=ca.Streaming())} if num_models == 3 else {}
    policies, settings = {"COSMOS": learner(), _ONE: ca.ContextSingle.of, **more}, {"num_models": num_models, "dim": dim}
    name, coordinates = f"K{num_models}-m{dim}", {"K": num_models, "m": dim}
    return uniform_case(policies, 100_000, name, settings, coordinates=coordinates, every=1000)


@all_hold("log-log slope of the last decade, ")
def _last_decade(results: Results) -> Iterator[Verdict]:
    """Slopes next to those of the independent simulation."""
    for (case, policy), (*_, expected) in _LONG.items():
        slope = late_slope(results[case], "regret", policy, 0.1 * horizon_of(results, case))
        yield f"{case} {policy} {show(slope)} against {expected:g}", slope.near(expected, by=2.0, slack=0.04)


def _no_faster_than_root(results: Results) -> Verdict:
    slopes = {n: late_slope(d, "regret", "COSMOS", 0.1 * horizon_of(results, n)) for n, d in results.items()}
    holds = all(s.mean + 2.0 * s.error <= 0.55 for s in slopes.values())
    return f"log-log slope of the last decade, {listed(slopes)}", holds


@all_hold()
def _overtakes(results: Results) -> Iterator[Verdict]:
    for name, data in results.items():
        regret = ends(data, "regret", ("COSMOS", _ONE))
        yield f"{name}: {listed(regret)}", regret["COSMOS"].mean < 0.5 * regret[_ONE].mean


@panel_per_case
def _long_panels(data: xr.Dataset, ax: Any, case: str) -> None:
    title = case.replace("-", ", ").replace("K", "K = ").replace("m", "m = ")
    plot.curves(data, "regret", log=True, ax=ax, title=title)


# S3: the square root of the horizon.

_STEPS = (0.5, 1.0, 2.0)
_HORIZONS = (1000, 3000, 10_000, 30_000, 100_000)
_ROOTS = {  # R(T) / sqrt(T) by s, at the horizons.
    0.5: (0.097, 0.092, 0.092, 0.088, 0.086),
    1.0: (0.078, 0.085, 0.090, 0.085, 0.084),
    2.0: (0.039, 0.053, 0.068, 0.072, 0.073),
}


def _hard(s: float, horizon: int) -> ca.CascadeEnv:
    """Two boxes whose indices differ by `s / sqrt(T)`."""
    return ca.safe_and_risky(s / math.sqrt(horizon))


def _hard_env(steps: Sequence[float] = _STEPS, horizon: int = 1000) -> Any:
    return grid(_hard, s=list(steps), horizon=horizon)


def _by_horizon(results: Results, policy: str, s: float) -> xr.DataArray:
    """Regret at the horizon, `[horizon, seed]`."""
    ends = [d[["regret", "valid"]].sel(policy=policy, s=s).isel(time=-1) for d in results.values()]
    runs = [metrics.pick(e, "regret").drop_vars("time") for e in ends]
    return xr.concat(runs, xr.IndexVariable("horizon", [int(e["time"]) for e in ends]))


@all_hold("R(T) / sqrt(T), ")
def _flat(results: Results) -> Iterator[Verdict]:
    for s in _STEPS:
        runs = _by_horizon(results, "COSMOS", s)
        slope = power(runs, "horizon")
        roots = ", ".join(f"{v:.3f}" for v in (runs.mean("seed") / np.sqrt(runs["horizon"])).values)
        yield f"s = {s:g}: {roots}, slope {show(slope)}", s > 1.0 or slope.near(0.5, by=2.0, slack=0.05)


def _roots_agree(results: Results) -> Verdict:
    if [horizon_of(results, n) for n in results] != list(_HORIZONS):
        return f"the numbers are for horizons {', '.join(f'{t:,}' for t in _HORIZONS)}", False
    gaps = []
    for s, values in _ROOTS.items():
        runs = _by_horizon(results, "COSMOS", s)
        gaps.append(np.abs(runs.mean("seed").values / np.sqrt(_HORIZONS) / np.asarray(values) - 1.0).max())
    return f"largest difference {100 * max(gaps):.0f} % of the value", max(gaps) < 0.2


@all_hold("regret at the longest horizon, greedy and COSMOS, ")
def _greedy_on_hard(results: Results) -> Iterator[Verdict]:
    longest = list(results.values())[-1]
    for s in _STEPS:
        greedy, cosmos = ends(longest, "regret", ("greedy", "COSMOS"), s=s).values()
        yield f"s = {s:g}: {show(greedy)} against {show(cosmos)}", greedy.mean < 0.1 * cosmos.mean


def _root_panels(results: Results):
    figure, axes = plot.panels(2)
    for policy, line in (("COSMOS", "-"), ("greedy", "--")):
        for s, marker, colour in zip(_STEPS, "os^", ("#0072B2", "#D55E00", "#009E73"), strict=True):
            runs = _by_horizon(results, policy, s)
            root = np.sqrt(runs["horizon"].values)
            mean, error = (f(runs).values / root for f in (metrics.mean, metrics.stderr))
            style = {"marker": marker, "linestyle": line, "color": colour, "capsize": 2, "label": f"{policy}, s = {s:g}"}
            axes[0].errorbar(runs["horizon"], mean, 2 * error, **style)
    axes[0].set_xlabel(f"horizon T\nmean ± 2 s.e. of {next(iter(results.values())).sizes['seed']} seeds")
    axes[0].set_ylabel("regret / sqrt(T)")
    plot.log_axis(axes[0], "x")
    plot.log_axis(axes[0], "y")
    axes[0].legend(fontsize=7, frameon=False)
    plot.power_laws({f"COSMOS, s = {s:g}": _by_horizon(results, "COSMOS", s) for s in _STEPS}, ax=axes[1])
    axes[1].set_ylabel("regret at the horizon")
    axes[1].set_xlabel("horizon T")
    return figure


# S4: how large a bonus.

_GRID = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3)
_S4 = tuple(
    Number("COSMOS", 10_000, v, e, where=(("index", b),))
    for b, v, e in ((0.0, 447.0, 72.0), (0.03, 64.0, 19.0), (0.06, 7.4, 0.2), (0.1, 16.5, 0.4), (0.2, 46.3, 0.6))
)


def _u_shape(results: Results) -> Verdict:
    regret = ends_along(results["result"], "regret", "COSMOS", "index", _GRID)
    best = lowest(regret)
    none, some, much = (regret[b].mean for b in (0.0, best, 0.3))
    return f"{listed(regret, '{:g}:')}; best {best:g}", 0.03 < best < 0.2 and none > 10.0 * some < 10.0 * much / 2.0


def _cliff(results: Results) -> Verdict:
    data, parts, wide = results["result"], [], {}
    for b in _GRID:
        runs = runs_of(data, "regret", "COSMOS", index=b)
        middle, high = float(runs.quantile(0.5)), float(runs.quantile(0.99))
        wide[b] = high / max(middle, 1e-9)
        parts.append(f"{b:g}: {middle:.1f} and {high:.1f}")
    text = f"median and 99 % quantile by b, {'; '.join(parts)}"
    return text, wide[0.03] > 10.0 and wide[0.1] < 3.0


def _bonus_panels(results: Results):
    figure, axes = plot.panels(2)
    data = results["result"].rename(index="b")
    plot.spread(data, "regret", ax=axes[0], log=True, title="quantiles of the runs")
    plot.curves(data, "regret", ax=axes[1], log=True, band=None, title="mean")
    return figure


# S5: how regret grows with the sizes.

_DIMS, _MODELS, _FEATURES = (3, 5, 10, 20), (3, 5, 10), (5, 10, 20)
_S5 = (
    *(Number("COSMOS", 10_000, v, None, case=f"m{m}") for m, v in zip(_DIMS, (16.8, 32.1, 80.5, 189.0), strict=True)),
    *(Number("COSMOS", 10_000, v, None, case=f"K{k}") for k, v in zip(_MODELS[1:], (67.0, 140.9), strict=True)),
    *(Number("COSMOS", 10_000, v, None, case=f"d{d}") for d, v in zip(_FEATURES, (30.4, 46.8, 78.4), strict=True)),
    *(Number("COSMOS, window", 10_000, v, None, case=f"d{d}") for d, v in zip(_FEATURES, (23.5, 31.2, 50.5), strict=True)),
)


def _size_case(name: str, **settings: Any) -> Case:
    both = {"COSMOS": ca.COSMOS(fit=STREAMING), "COSMOS, window": ca.COSMOS()}
    policies = both if "evaluator" in settings else {"COSMOS": learner()}
    return uniform_case(policies, 10_000, name, settings, coordinates={name[0]: int(name[1:])}, every=1000)


def _size_cases() -> tuple[Case, ...]:
    return (
        *(_size_case(f"m{m}", num_models=3, dim=m) for m in _DIMS),
        *(_size_case(f"K{k}", num_models=k, dim=5) for k in _MODELS[1:]),
        *(_size_case(f"d{d}", num_models=3, dim=3, evaluator=d) for d in _FEATURES),
    )


def _by_size(results: Results, axis: str, policy: str = "COSMOS") -> xr.DataArray:
    """Regret at the horizon, `[size, seed]`."""
    names = {"m": [f"m{m}" for m in _DIMS], "K": ["m5", *(f"K{k}" for k in _MODELS[1:])], "d": [f"d{d}" for d in _FEATURES]}[
        axis
    ]
    sizes = {"m": _DIMS, "K": _MODELS, "d": _FEATURES}[axis]
    runs = [
        metrics.pick(results[n][["regret", "valid"]].sel(policy=policy), "regret").isel(time=-1, drop=True) for n in names
    ]
    return xr.concat(runs, xr.IndexVariable(axis, list(sizes)))


def _power_of(axis: str, low: float, high: float) -> Measure:
    def measure(results: Results) -> Verdict:
        runs = _by_size(results, axis)
        slope = power(runs, axis)
        regret = {int(size): mean_of(one) for size, one in zip(runs[axis], runs)}
        return f"{axis} {listed(regret, '{}:')}; power {show(slope)}", low <= slope.mean <= high

    return measure


def _size_panels(results: Results):
    figure, axes = plot.panels(3)
    plot.power_laws({"COSMOS": _by_size(results, "m")}, ax=axes[0], title="index features m (K = 3)")
    plot.power_laws({"COSMOS": _by_size(results, "K")}, ax=axes[1], title="models K (m = 5)")
    both = {p: _by_size(results, "d", p) for p in ("COSMOS", "COSMOS, window")}
    plot.power_laws(both, ax=axes[2], title="output features d (K = m = 3)")
    for ax in axes:
        ax.set_ylabel(f"regret at round {horizon_of(results, 'm3'):,}")
        ax.set_xlabel(f"{ax.get_xlabel()}\nmean ± 2 s.e. of {results['m3'].sizes['seed']} seeds")
    return figure


# S6: rare requests.

_WARM = (10, 30, 100, 300)
_S6 = (
    Number("greedy", 10_000, 803.0, 45.0, case="long"),
    *(
        Number(f"greedy, warm {w}", 10_000, v, e, case="long")
        for w, v, e in zip(_WARM, (209.0, 25.1, 12.9, 21.7), (47.0, 2.9, 0.6, 0.4), strict=True)
    ),
    Number("COSMOS, b = .06", 10_000, 28.0, 0.5, case="long"),
    Number("COSMOS", 10_000, 42.8, 0.5, case="long"),
    Number("COSMOS", 2000, 20.5, 0.2, case="short"),
    Number("greedy", 2000, 152.8, 3.1, case="short"),
    Number("greedy, warm 10", 2000, 17.4, 8.3, case="short"),
    Number(_ALL, 2000, 124.3, 0.3, case="short"),
)


def _rare_case(name: str, horizon: int) -> Case:
    policies = {
        "COSMOS": learner(),
        "COSMOS, b = .06": learner(0.06),
        "COSMOS, b = .03": learner(0.03),
        "greedy": learner(0.0),
        **{f"greedy, warm {w}": learner(0.0, warm=w) for w in _WARM},
        _ALL: ca.QueryAll(),
    }
    return Case(ca.group_cascade, policies, horizon, name, {"num_models": 3}, record_every=horizon // 40, record=RECORD)


def _warm_slopes(results: Results) -> Verdict:
    policies = ("COSMOS", "COSMOS, b = .06", "greedy", *(f"greedy, warm {w}" for w in _WARM))
    start = 0.25 * horizon_of(results, "long")
    slopes = {p: late_slope(results["long"], "regret", p, start) for p in policies}
    linear = slopes["greedy, warm 10"].mean > 0.85 and slopes["greedy, warm 30"].mean > 0.5
    return f"log-log slope of the last three quarters, {listed(slopes)}", linear and slopes["COSMOS"].mean < 0.5


def _optimism_pays(results: Results) -> Verdict:
    data = results["long"]
    regret = ends(data, "regret", ("COSMOS, b = .06", "COSMOS", "greedy", "greedy, warm 10"))
    high = {p: float(runs_of(data, "regret", p).quantile(0.95)) for p in regret}
    text = ", ".join(f"{p} {show(v)} (95 % of runs below {high[p]:.0f})" for p, v in regret.items())
    less = regret["COSMOS"].mean < 0.5 * regret["greedy, warm 10"].mean
    return text, less and high["COSMOS"] < 0.2 * high["greedy, warm 10"]


GROWTH = (
    Experiment(
        "cascade/S2",
        "Long horizons: regret over 100,000 rounds",
        tuple(_long_case(*size) for size in _SIZES),
        256,
        (
            Claim(
                "table",
                TABLE,
                OURS,
                agrees([Number(p, 100_000, v, e, case=c) for (c, p), (v, e, _) in _LONG.items()]),
            ),
            Claim(
                "slopes", "slopes of the last decade are those of an independent simulation, within .04", OURS, _last_decade
            ),
            Claim("root", "COSMOS' regret grows no faster than sqrt(T)", f"{PAPER}, proposition 4.5", _no_faster_than_root),
            Claim("overtakes", "it falls far below the best single call per request, with ten models too", OURS, _overtakes),
        ),
        {"S2": _long_panels},
        source=OURS,
        notes="the radius depends on the declared horizon: the same round has more regret in a longer run",
        smoke_horizon=10_000,
    ),
    Experiment(
        "cascade/S3",
        "The signature of sqrt(T): two boxes whose indices differ by s / sqrt(T)",
        tuple(
            Case(
                _hard_env,
                {"COSMOS": learner(), "greedy": learner(0.0)},
                horizon,
                f"T{horizon}",
                {"steps": _STEPS},
                {"horizon": horizon},
                record_every=horizon,
                record=RECORD,
            )
            for horizon in _HORIZONS
        ),
        512,
        (
            Claim("flat", "R(T) / sqrt(T) is constant over two decades for s <= 1", f"{PAPER}, proposition 4.5", _flat),
            Claim("table", "R(T) / sqrt(T) is that of an independent simulation, within 20 %", OURS, _roots_agree),
            Claim(
                "greedy",
                "a greedy policy has less than a tenth of that: the narrow box, which is better, starts ahead",
                OURS,
                _greedy_on_hard,
            ),
        ),
        {"S3": _root_panels},
        source=OURS,
        notes="a pair of boxes that are both opened half of the time anyway does not show sqrt(T): exploration is free there",
        smoke_horizon=4000,
    ),
    Experiment(
        "cascade/S4",
        "How large a bonus: regret by b",
        (uniform_case({"COSMOS": grid(learner, index=list(_GRID))}, 10_000, every=250),),
        512,
        (
            Claim("u-shape", "regret is least at a bonus in between, and far larger at both ends", OURS, _u_shape),
            Claim("cliff", "with too small a bonus some runs have ten times the median; with b = .1 none", OURS, _cliff),
            Claim("table", TABLE, OURS, agrees(_S4)),
        ),
        {"S4": _bonus_panels},
        source=OURS,
        smoke_horizon=400,
    ),
    Experiment(
        "cascade/S5",
        "How regret grows with m, K and d",
        _size_cases(),
        256,
        (
            Claim("m", "about as m^1.3 (the bound: m)", f"{PAPER}, proposition 4.5", _power_of("m", 1.1, 1.45)),
            Claim("K", "about as K^1.2 (the bound: K)", f"{PAPER}, proposition 4.5", _power_of("K", 1.05, 1.4)),
            Claim("d", "slower than d (the bound: d)", f"{PAPER}, theorem 5.5", _power_of("d", 0.2, 0.95)),
            Claim("table", TABLE, OURS, agrees(_S5)),
        ),
        {"S5": _size_panels},
        source=OURS,
        notes="the bounds are K m sqrt(T), and (d + K (m + sqrt(m d))) sqrt(T) with an evaluator that is learned; standard errors of the "
        "independent simulation are estimates where it gives none",
        smoke_horizon=200,
    ),
    Experiment(
        "cascade/S6",
        "Rare requests: a warm-up must meet them, a bonus need not",
        (_rare_case("long", 10_000), _rare_case("short", 2000)),
        512,
        (
            Claim("table", TABLE, OURS, agrees(_S6)),
            Claim("warm", "after a short warm-up greedy stays linear, COSMOS does not", OURS, _warm_slopes),
            Claim("pays", "COSMOS has less than half of greedy's regret after ten rounds of all", OURS, _optimism_pays),
        ),
        {
            "S6": one_case(plot.curves, "regret", "long", log=True, band=None),
            "S6-runs": one_case(plot.spread, "regret", "long", log=True),
        },
        source=OURS,
        smoke_horizon=400,
    ),
)
