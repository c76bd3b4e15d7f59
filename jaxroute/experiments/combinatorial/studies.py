"""Studies of C2MAB-V that its paper does not contain: all policies, what is left open, its theorems, and a table of one's own."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.data import C2MABV_TABLE_3
from jaxroute.data.loading import read_experiment_log
from jaxroute.estimators.confidence import hoeffding_radius, union_log_term
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, Measure, all_hold, grows_as
from jaxroute.experiments.combinatorial.figures import (
    LAWS,
    PAPER,
    RATIO,
    RECORD,
    RIVALS,
    SETTINGS,
    STAND_IN,
    SUCCESS,
    TASKS,
    at_horizon,
    dots,
    sciq,
)
from jaxroute.experiments.measure import along, end, share_of, show
from jaxroute.experiments.pictures import panel, side_by_side
from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial.instances import SCIQ_SUCCESS

_C, _THOMPSON = SETTINGS["C2MAB-V (c)"], RIVALS["Thompson"]
_TWO = {"C2MAB-V (c)": _C, "CUCB": cb.CUCB()}
_MEANS = SCIQ_SUCCESS.astype(np.float32)
# Choices of C2MAB-V that its paper leaves open, and what of its rivals: settings of the cloud, policies.
_CHOICES = {
    "order": (
        {"reward": "awc"},
        {
            "by price": _C,
            "by reward bound": cb.C2MABV(order=cb.ByReward()),
            "by cost bound": cb.C2MABV(order=cb.ByCost()),
            "by index": cb.C2MABV(order=cb.ByIndex()),
            "at random": cb.C2MABV(order=cb.ByChance()),
        },
    ),
    "solver": (
        {"reward": "awc"},
        {
            "vertices": _C,
            "continuous greedy": cb.C2MABV(solver=cb.ContinuousGreedy()),
            "projected gradient": cb.C2MABV(solver=cb.ProjectedGradient()),
            "smoothed LP": cb.C2MABV(solver=cb.Smoothed()),
        },
    ),
    "batches": (
        {},
        {
            "B = 1": _C,
            "B = 1, round robin": cb.C2MABV(start=cb.RoundRobin()),
            "B = 50, set held": cb.C2MABV(batch=50),
            "B = 50, relaxed held": cb.C2MABV(batch=50, hold=cb.HoldRelaxed()),
        },
    ),
    "radius": ({}, {"CUCB": cb.CUCB(), "CUCB, union": cb.CUCB(radius=cb.UnionRadius(0.3))}),
    "graded": (
        {"graded": True},
        {"Thompson, in part": _THOMPSON, "Thompson, by coin": cb.Thompson(graded=cb.CountByCoin())},
    ),
}
# What a cloud can be besides: what makes it, its settings.
_NINE = {"success": tuple(_MEANS), "cost": tuple(C2MABV_TABLE_3.prices / C2MABV_TABLE_3.prices.max())}
_CLOUDS = {
    "tokens": (cb.sciq_cloud, {"costs": cb.TokenCosts()}),
    # Two tutors of the first subject and one of each other, with a budget for each subject (appendix C.1).
    "groups": (cb.sciq_cloud, {"groups": (0, 0, 0, 1, 1, 1, 2, 2, 2), "size": (2, 1, 1), "budget": (0.3, 0.15, 0.6)}),
    "availability": (partial(grid, cb.sciq_cloud), {"reward": "awc", "availability": [0.5, 0.8, 1.0]}),
    "feedback": (partial(grid, cb.sciq_cloud), {"arrival": [0.05, 0.2, 1.0]}),
    "difficulty": (
        partial(grid, cb.law_cloud),
        {**_NINE, "reward": "awc", "budget": 0.45, "size": 4, "correlation": [0.0, 0.4, 0.8]},
    ),
    # At some round the cheap models become as good as the dear ones were, and the other way round.
    "drift": (
        partial(grid, lambda switch, success, **more: cb.law_cloud([success, success[::-1]], switch=[0, switch], **more)),
        {**_NINE, "budget": 0.5, "size": 4, "switch": [1000, 5000, 9000]},
    ),
}


def _variant(name: str, policies: Any, settings: dict[str, Any], cloud: Any = cb.sciq_cloud) -> Case:
    settings, record = {"reward": "suc", "costs": LAWS["scaled"], **settings}, (*RECORD, "realised_reward")
    return Case(cloud, policies, 10_000, name, settings, {"variant": name}, record=record)


def _everyone(env: Any) -> dict[str, Any]:
    """All policies that play the cloud as it is; always one model, two tiers and offline sets are in figures 4, 12 and 13."""
    return {
        **SETTINGS,
        **RIVALS,
        "Direct": cb.Direct(),
        "ConstrainedThompson": cb.ConstrainedThompson(),
        "RandomSet": cb.RandomSet(),
        "OracleRelaxed": cb.OracleRelaxed.of(env),
        "OracleInteger": cb.OracleInteger.of(env),
    }


def _table_env(
    data: str | None = None,
    reward: str = "suc",
    size: int = 3,
    budget_share: float = 0.8,
    costs: Mapping[str, float] | None = None,
) -> cb.CloudEnv:
    """The rows of a file; the budget is a share of what `size` models cost on average."""
    table = read_experiment_log(data, costs, features="none").table
    return cb.table_cloud(table, reward=reward, size=size, budget=budget_share * size * float(table.mean_costs().mean()))


def _rows(env: cb.CloudEnv) -> int:
    return len(env.outcomes.outcomes)


def _table_case(task: str) -> Case:
    policies = {"C2MAB-V (c)": _C, "Direct": cb.Direct(), **RIVALS, "RandomSet": cb.RandomSet()}
    settings = {"data": None, "reward": task}
    return Case(_table_env, policies, 6000, task, settings, {"task": task}, record=(*RECORD, "realised_reward"), rows=_rows)


_HORIZONS = tuple(500 * 2**j for j in range(6))
_WIDE, _NARROW = "C2MAB-V (1, .01)", "C2MAB-V (.3, .01)"


def _slope_case(horizon: int) -> Case:
    policies: dict[str, Any] = {
        name: cb.C2MABV(width, 0.01, delta=1.0 / horizon) for name, width in ((_WIDE, 1.0), (_NARROW, 0.3))
    }
    policies["RandomSet"] = cb.RandomSet()
    return sciq("suc", policies, f"size{_HORIZONS.index(horizon) + 1}", "scaled", horizon, horizon=horizon)


def _below(metric: str, bound: Callable[[int], float]) -> Measure:
    """Whether the mean of setting (1, .01) is below what a theorem says, at every horizon."""

    def measure(results: Results) -> Finding:
        shares, others = (
            [end(data, metric, policy).times(1 / bound(int(data["time"][-1]))) for data in results.values()]
            for policy in (_WIDE, "RandomSet")
        )
        text = f"{show(min(shares))} to {show(max(shares))} of the bound as printed"
        return text, [a.at_most(1.0).unless("random sets", b.at_most(1.0)) for a, b in zip(shares, others, strict=True)]

    return measure


# Theorems 1 and 2 for sets of four of the nine models, sum up.
_BOUNDS = {
    "lp_regret": lambda horizon: cb.bound_regret(9, 4, horizon, 1.0, float(np.sort(_MEANS)[-4:].sum())),
    "violation_eq1": lambda horizon: cb.bound_violation(9, 4, horizon),
}


# Lemma 1: how far means are from the truth.
_DELTAS, _NARROWER = (0.1, 0.5), {"outcome": (0.3, 1.0), "cost": (0.05, 0.01)}


def _labelled(part: str) -> Callable[[xr.Dataset], xr.Dataset]:
    """Gives the distances of outcomes or costs the label of their axis."""
    name, label = f"distance.{part}", f"largest error of mean {part}s (radii)"
    return lambda data: data.assign({name: data[name].assign_attrs(long_name=label)})


def _distance(env: cb.CloudEnv, policy: cb.C2MABV, env_state: Any, state: Any, t: Any) -> dict[str, Any]:
    """The largest distance of a mean to the truth, in radii of Lemma 1."""
    log_term, found = union_log_term(state.spec.num_models, t + 1, policy.delta), {}
    for part, truth in (("outcome", env.outcomes.outcome_mean), ("cost", env.outcomes.cost_mean)):
        seen = getattr(state, part)
        radii = jnp.abs(seen.mean - jnp.asarray(truth)[0]) / hoeffding_radius(jnp.maximum(seen.count, 1), log_term)
        found[part] = jnp.max(jnp.where(seen.count > 0, radii, 0.0))
    return found


_BAND: dict[str, Any] = {"band": "quantile", "log": "x", "reference": {"the radius": 1.0}}
_COVERAGE = Case(
    cb.sciq_cloud,
    {"C2MAB-V": grid(cb.C2MABV, reward_width=1.0, cost_width=1.0, delta=list(_DELTAS))},
    2000,
    settings={"reward": "suc", "costs": LAWS["scaled"]},
    record_every=1,
    record=("reward",),
    probes={"distance": _distance},
)


def _covered(part: str, widths: Sequence[float]) -> Measure:
    """Whether radii times some widths cover the truth in all rounds as often as Lemma 1 says."""

    @all_hold()
    def measure(results: Results) -> Iterator[Finding]:
        for delta, width in itertools.product(_DELTAS, widths):
            runs = results["result"][f"distance.{part}"].sel(policy="C2MAB-V", delta=delta).max("time")
            share, least = share_of(runs < width), 1.0 - delta / 2
            text = f"{100 * share.mean:.1f} % of the runs, at least {100 * least:g} %; largest {float(runs.max()):.2f} radii"
            yield f"delta {delta:g}, width {width:g}: {text}", share.at_least(least)

    return measure


def _slope_figure(results: Results):
    figure, axes = plot.panels(2)
    for ax, (metric, bound) in zip(axes, _BOUNDS.items(), strict=True):
        series = {p: along(results, metric, "horizon").sel(policy=p) for p in (_WIDE, _NARROW)}
        horizons = series[_WIDE]["horizon"].values
        ax.plot(horizons, [bound(int(t)) for t in horizons], label="bound of the theorem", **plot.look(ax, "bound"))
        plot.power_laws(series, ax=ax)
    return figure


def _variants_figure(results: Results):
    """Two panels for each variant, side by side."""
    figure, axes = plot.panels(2 * len(results), columns=4)
    for pair, (name, data) in zip(axes.reshape(-1, 2), results.items(), strict=True):
        for ax, metric in zip(pair, ("realised_reward", "violation"), strict=True):
            dots(data, metric, ax=ax, title=name)
    return figure


def _study(name: str, title: str, cases: Any, seeds: int, draw: Any, source: str, **options: Any) -> Experiment:
    return Experiment(
        name=f"combinatorial/{name}",
        title=title,
        cases=tuple(cases),
        seeds=seeds,
        figures={name: draw},
        source=f"{PAPER}, {source}",
        **{"smoke_horizon": 200, "stand_in": SUCCESS, **options},
    )


EXPERIMENTS = (
    _study(
        "policies",
        "Every policy on every task: reward, violation and their ratio",
        [sciq(t, _everyone, f"{t}-{law}", law) for t in TASKS for law in LAWS],
        208,
        at_horizon("reward", "violation", RATIO),
        "section 6",
        notes=STAND_IN,
    ),
    _study(
        "variants",
        "What the paper leaves open, and what else a cloud can do: groups, drift, lost feedback, models that are not always there",
        [
            *(_variant(name, policies, settings) for name, (settings, policies) in _CHOICES.items()),
            *(_variant(name, _TWO, settings, cloud) for name, (cloud, settings) in _CLOUDS.items()),
        ],
        64,
        _variants_figure,
        "sections 3 and 6, appendix C.1 and E.3",
        notes=STAND_IN,
    ),
    _study(
        "table",
        "The three tasks on the rows of your own table (--data FILE)",
        [_table_case(task) for task in TASKS],
        64,
        at_horizon("reward", "violation"),
        "section 6, with logged outcomes",
        stand_in="",
        notes="each row is played once before any is repeated; models of a row are not independent, see realised_reward",
    ),
    _study(
        "coverage",
        "How often the radii of Lemma 1 cover the true means in all rounds",
        [_COVERAGE],
        1024,
        side_by_side(*(panel(f"distance.{part}", change=_labelled(part), **_BAND) for part in _NARROWER)),
        "Lemma 1",
        claims=tuple(
            Claim(f"{name}-{part}", f"{part}s {text}", f"{PAPER}, Lemma 1", _covered(part, widths))
            for part, narrower in _NARROWER.items()
            for name, text, widths in (
                ("covers", "are within their radii in a share 1 - delta / 2 of the runs", (1.0,)),
                ("settings", "still are with the widths of settings (a) to (d)", narrower),
            )
        ),
        notes="played with both widths at 1, as in the lemma; the paper's experiments multiply radii by .3 or 1 and by .05 or .01. Their delta is 1e-4, "
        "for which it takes more than 100,000 runs to show the share that the lemma promises; here it is .1 and .5",
    ),
    _study(
        "slopes",
        "Regret to the relaxed optimum, and violation, against the horizon: sum up",
        [_slope_case(horizon) for horizon in _HORIZONS],
        128,
        _slope_figure,
        "Theorems 1 and 2",
        claims=tuple(
            Claim(name, text, f"{PAPER}, Theorem {number}", measure)
            for number, name, metric, what, low in (
                (1, "regret", "lp_regret", "regret to the relaxed optimum grows as sqrt(T)", 0.43),
                (2, "violation", "violation_eq1", "violation falls as 1 / sqrt(T)", -0.63),
            )
            for name, text, measure in (
                (name, f"{what} (slope {low:.2f} to {low + 0.2:.2f})", grows_as(metric, _WIDE, low, low + 0.2)),
                (f"{name}-bound", f"the {name} is below its bound, at every horizon", _below(metric, _BOUNDS[metric])),
            )
        ),
        notes="the paper's own regret is negative on these instances: the relaxed policy beats every fixed set within the budget",
        smoke_horizon=2000,
    ),
)
