"""Experiments of COSMOS, continued: evaluators that are learned, other laws, other estimators and radii, and the price of quality."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import metrics, plot
from jaxroute.core import draws
from jaxroute.estimators.glm import fit_glm
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import (
    LEARNED,
    OURS,
    PAPER,
    RECORD,
    SEEN,
    STREAMING,
    TABLE,
    WINDOW,
    horizon_of,
    learner,
    learns_scores,
    uniform_case,
)
from jaxroute.experiments.claims import Number, Verdict, agrees, all_hold
from jaxroute.experiments.measure import (
    Measured,
    end,
    ends,
    ends_along,
    late_slope,
    listed,
    lowest,
    mean_of,
    paired_gap,
    quotient,
    runs_of,
    show,
)
from jaxroute.experiments.pictures import one_case, panel_per_case
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.sources.features import reward_of

# S7: an evaluator that is learned from rewards.

_OPTIMISM, _PLUG_IN = (0.0, 0.1, 0.3, 0.6, 1.0), (0.0, 0.03, 0.06)
_S7 = (
    Number("COSMOS", 20_000, 25.9, 1.5, case="long"),
    Number("greedy", 20_000, 74.0, 41.0, case="long"),
    Number("COSMOS, streaming", 20_000, 35.2, 2.3, case="long"),
    *(Number("COSMOS", 4000, v, 1.9, t, case="streaming") for t, v in ((1000, 18.2), (2000, 21.2), (4000, 24.3))),
    Number("greedy", 4000, 73.0, 5.0, case="streaming"),
    Number("COSMOS", 20_000, 86.2, 3.4, case="large"),
    Number("greedy", 20_000, 307.0, 77.0, case="large"),
    *(
        Number("COSMOS", 4000, v, 1.6, where=(("optimism", c), ("plug_in", 0.03)), case="sweep")
        for c, v in zip(_OPTIMISM, (29.6, 24.9, 18.6, 16.8, 21.6), strict=True)
    ),
    *(
        Number("COSMOS", 4000, v, 1.6, where=(("optimism", 0.3), ("plug_in", c)), case="sweep")
        for c, v in zip(_PLUG_IN, (17.5, 18.6, 22.3), strict=True)
    ),
    Number("COSMOS", 600, 14.1, 0.8, case="exact"),
    Number("greedy", 600, 14.9, 1.1, case="exact"),
)


def _greedy_scores(fit: Any = WINDOW) -> ca.COSMOS:
    return learns_scores(0.0, 0.0, 0.0, fit)


def _learned_cases() -> tuple[Case, ...]:
    exact = {"fit": ca.Window.exact(600), "evaluator": ca.ExactGLM(600)}
    streaming = {"COSMOS": learns_scores(fit=STREAMING), "greedy": _greedy_scores(STREAMING)}
    long = {
        "COSMOS": learns_scores(),
        "greedy": _greedy_scores(),
        **{f"{p}, streaming": v for p, v in streaming.items()},
        "query all": ca.QueryAll(),
    }
    slow = {"COSMOS": ca.COSMOS(**exact), "greedy": ca.COSMOS(radius=ca.Practical(0.0, 0.0, 0.0), **exact)}
    sweep = {"COSMOS": grid(learns_scores, optimism=list(_OPTIMISM), plug_in=list(_PLUG_IN))}
    return (
        uniform_case(long, 20_000, "long", LEARNED, every=500),
        uniform_case(streaming, 4000, "streaming", LEARNED, every=1000),
        uniform_case(streaming, 20_000, "large", {"num_models": 5, "dim": 5, "evaluator": 8}, every=1000),
        uniform_case(slow, 600, "exact", LEARNED, seeds=64, every=150),
        uniform_case(sweep, 4000, "sweep", LEARNED, seeds=256, every=1000),
    )


@all_hold("log-log slope of the last decade, ")
def _learned_slopes(results: Results) -> Iterator[Verdict]:
    for case, policies in (("long", ("COSMOS", "greedy", "COSMOS, streaming")), ("large", ("COSMOS", "greedy"))):
        for policy in policies:
            slope = late_slope(results[case], "regret", policy, 0.1 * horizon_of(results, case))
            yield f"{case} {policy} {show(slope)}", policy == "greedy" or slope.mean + 2.0 * slope.error <= 0.55


def _not_separable(results: Results) -> Verdict:
    gap = paired_gap(results["exact"], "regret", "greedy", minus="COSMOS")
    return f"greedy minus COSMOS {show(gap)}", gap.near(0.0, by=3.0)


@all_hold("COSMOS and greedy, ")
def _greedy_tails(results: Results) -> Iterator[Verdict]:
    for case in ("long", "large"):
        runs = [runs_of(results[case], "regret", p) for p in ("COSMOS", "greedy")]
        cosmos, greedy = map(mean_of, runs)
        middle, high = ([float(r.quantile(q)) for r in runs] for q in (0.5, 0.99))
        text = (
            f"{case}: means {show(cosmos)} and {show(greedy)}, medians {middle[0]:.1f} and {middle[1]:.1f}, "
            f"99 % of runs below {high[0]:.0f} and {high[1]:.0f}"
        )
        yield text, greedy.mean > cosmos.mean and high[1] > 3.0 * high[0]


def _optimism_helps(results: Results) -> Verdict:
    regret, calls = (
        ends_along(results["sweep"], m, "COSMOS", "optimism", _OPTIMISM, plug_in=0.03) for m in ("regret", "queries")
    )
    text = ", ".join(f"c_r = {c:g}: {show(v)} with {calls[c].mean:.2f} calls" for c, v in regret.items())
    best = lowest(regret)
    costs_more = regret[0.0].mean > 1.3 * regret[best].mean
    return text, 0.0 < best < 1.0 and costs_more and calls[0.0].mean > calls[1.0].mean


def _learned_spread(results: Results):
    figure, axes = plot.panels(2)
    plot.spread(results["long"], "regret", log=True, ax=axes[0], title="K = m = 3, d = 5")
    plot.spread(results["large"], "regret", log=True, ax=axes[1], title="K = m = 5, d = 8")
    return figure


def _learned_bonuses(results: Results):
    figure, axes = plot.panels(2)
    sweep = results["sweep"].rename(optimism="c_r", plug_in="c_p")
    plot.spread(sweep.sel(c_p=0.03), "regret", ax=axes[0], title="bonus of the evaluator, c_p = .03")
    plot.spread(sweep.sel(c_r=0.3), "regret", ax=axes[1], title="bonus for plugging it in, c_r = .3")
    return figure


# S8: an evaluator that was fitted before.

_OFFLINE, _SAMPLES = (300, 3000, 30_000, 300_000), 8


def offline_pairs(env: ca.CascadeEnv, number: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Features `[samples, n, d]` and rewards `[samples, n]` of outputs of boxes that are picked at random."""
    key = draws.key(1_000_000)

    def one(period):
        k_period, k_start, k_box = draws.split(draws.fold_in(key, period), 3)
        drawn = env.draw(k_period, env.init(k_start), period)
        box = (draws.uniform(k_box) * drawn.score.shape[0]).astype(jnp.int32)
        assert drawn.features is not None
        return drawn.features[box], reward_of(env.spec.score_link, drawn.score[box], drawn.coin)

    drawn = jax.jit(lambda n: jax.lax.map(one, n, batch_size=8192))(jnp.arange(number * samples))
    features, rewards = (np.asarray(x) for x in drawn)
    return features.reshape(samples, number, -1), rewards.reshape(samples, number)


def _offline_policies(env: ca.CascadeEnv) -> dict[str, Any]:
    assert env.evaluator is not None
    theta = env.evaluator.theta
    features, rewards = offline_pairs(env, max(_OFFLINE), _SAMPLES)
    link = env.spec.score_link
    fitted = {(n, s): fit_glm(features[s, :n], rewards[s, :n], link) for n in _OFFLINE for s in range(_SAMPLES)}

    def frozen(pairs: int, sample: int) -> ca.COSMOS:
        return ca.COSMOS(fit=STREAMING, evaluator=ca.FrozenGLM(fitted[pairs, sample]))

    return {
        "offline": grid(frozen, pairs=list(_OFFLINE), sample=range(_SAMPLES)),
        "true evaluator": ca.COSMOS(fit=STREAMING, evaluator=ca.FrozenGLM(np.asarray(theta))),
        "online": ca.COSMOS(),
    }


def _offline_end(data: xr.Dataset, number: int) -> Measured:
    """Mean over samples and seeds; its error is that between samples."""
    by_sample = metrics.mean(data[["regret", "valid"]].sel(policy="offline", pairs=number).isel(time=-1), "regret")
    return Measured(float(by_sample.mean()), float(by_sample.std(ddof=1) / np.sqrt(by_sample.size)))


def _crossing(results: Results) -> Verdict:
    data = results["result"]
    offline = {n: _offline_end(data, n) for n in _OFFLINE}
    online, true = (end(data, "regret", p) for p in ("online", "true evaluator"))
    text = f"offline by pairs {listed(offline, '{:,}:')}; online {show(online)}, true evaluator {show(true)}"
    crosses = offline[300].mean > online.mean > offline[30_000].mean
    return text, crosses and abs(quotient(offline[300_000], true).mean - 1.0) < 0.1


def _offline_slopes(results: Results) -> Verdict:
    data, start = results["result"], 0.1 * horizon_of(results)
    few, many = (
        [late_slope(data, "regret", "offline", start, pairs=n, sample=s).mean for s in range(_SAMPLES)]
        for n in (300, 300_000)
    )
    text = f"log-log slope of the last decade with 300 pairs {min(few):.2f} to {max(few):.2f}, with 300,000 {min(many):.2f} to {max(many):.2f}"
    return text, float(np.mean(few)) > 0.4 > float(np.mean(many))


def _offline_panels(results: Results):
    figure, axes = plot.panels(2)
    data = results["result"]
    by_sample = metrics.mean(data[["regret", "valid"]].sel(policy="offline").isel(time=-1), "regret")
    for sample in by_sample["sample"].values:
        axes[0].plot(_OFFLINE, by_sample.sel(sample=sample), "o-", color="#0072B2", alpha=0.4, markersize=3, linewidth=0.8)
    axes[0].plot(_OFFLINE, by_sample.mean("sample"), "o-", color="#0072B2", label="offline, and its samples")
    for policy, colour, line in (("online", "#D55E00", "--"), ("true evaluator", "#009E73", ":")):
        value = end(data, "regret", policy).mean
        axes[0].axhline(value, color=colour, linestyle=line, label=policy)
    axes[0].set_xlabel(f"pairs of the offline sample\nmean of {data.sizes['seed']} seeds at round {horizon_of(results):,}")
    axes[0].set_ylabel("regret")
    for which in ("x", "y"):
        plot.log_axis(axes[0], which)
    axes[0].legend(fontsize=8, frameon=False)
    first = data[["regret", "valid"]].isel(sample=0)
    plot.curves(first, "regret", log=True, ax=axes[1], band=None, title="one sample of each size")
    return figure


# S9: other laws.

_LAWS: dict[str, tuple[Callable[..., Any], dict[str, Any], float, float]] = {
    # Environment, settings, regret of a greedy policy and of COSMOS.
    "LOC": (ca.uniform_cascade, {}, 415.0, 16.8),
    "HET": (ca.uniform_cascade, {"tilt": 0.25}, 451.0, 16.8),
    "SPIKE": (ca.spike_cascade, {}, 436.0, 17.8),
    "PASSFAIL": (ca.pass_fail_cascade, {}, 746.0, 17.4),
    "TANH": (ca.uniform_cascade, {"link": "tanh"}, 360.0, 11.6),
    "MISSPEC": (ca.uniform_cascade, {"bend": 0.05}, 433.0, 29.4),
}
_S9 = tuple(
    Number("COSMOS", 10_000, value, None, where=(("index", b),), case=name)
    for name, (_, _, greedy, cosmos) in _LAWS.items()
    for b, value in ((0.0, greedy), (0.1, cosmos))
)


def _law_case(name: str) -> Case:
    env, settings, *_ = _LAWS[name]
    learns_laws = {"location family": ca.DistributionLearner()} if name in ("LOC", "PASSFAIL") else {}
    return Case(
        env,
        {"COSMOS": grid(learner, index=[0.0, 0.1, 0.2]), **learns_laws},
        10_000,
        name,
        SEEN | settings,
        {"law": name},
        record_every=250,
        record=RECORD,
    )


@all_hold("COSMOS against greedy, ")
def _every_law(results: Results) -> Iterator[Verdict]:
    for name, data in results.items():
        greedy, cosmos = (end(data, "regret", "COSMOS", index=b) for b in (0.0, 0.1))
        yield f"{name}: {show(cosmos)} against {show(greedy)}", cosmos.mean < 0.1 * greedy.mean


def _law_slopes(results: Results) -> Verdict:
    slopes = {n: late_slope(d, "regret", "COSMOS", 0.1 * horizon_of(results, n), index=0.1) for n, d in results.items()}
    bent, straight = slopes["MISSPEC"].mean, max(slopes[n].mean for n in ("LOC", "HET", "SPIKE", "TANH"))
    return f"log-log slope of the last decade with b = .1, {listed(slopes)}", bent > straight + 0.1 and straight < 0.5


def _wrong_family(results: Results) -> Verdict:
    parts, factor = [], {}
    for law in ("LOC", "PASSFAIL"):
        family, cosmos = (end(results[law], "regret", p, index=0.1) for p in ("location family", "COSMOS"))
        parts.append(f"{law}: {show(family)}, COSMOS {show(cosmos)}")
        factor[law] = quotient(family, cosmos).mean
    return "; ".join(parts), factor["PASSFAIL"] > 5.0 and factor["LOC"] < 2.0


@panel_per_case
def _law_panels(data: xr.Dataset, ax: Any, case: str) -> None:
    plot.curves(data.rename(index="b"), "regret", log=True, ax=ax, title=case, band="quantile")


# S10: how good the estimators are.

_FITS = {
    "exact": ca.Window.exact(2000),
    "window 64": ca.Window(size=64, iterations=3),
    "window 32": ca.Window(),
    "window 8": ca.Window(size=8),
    "streaming": ca.Streaming(),
    "constant": ca.ConstantCurvature(),
}
# Mean absolute difference of the regret to that with the exact estimator, by bonus.
_FIDELITY = {"window 64": (0.031, 0.059), "window 32": (0.108, 0.140), "window 8": (0.157, 0.243), "streaming": (9.3, 0.644)}
_FIDELITY_LEARNED = {"window 64": 0.89, "window 64, online evaluator": 1.6, "streaming, online evaluator": 4.4}


def _estimate(env, policy, env_state, state, t) -> jax.Array:
    """The index estimates."""
    del env, policy, env_state, t
    return state.rho


def _fit_cases() -> tuple[Case, ...]:
    exact = ca.ExactGLM(1000)
    learned = {
        "exact": ca.COSMOS(fit=ca.Window.exact(1000), evaluator=exact),
        "window 64": ca.COSMOS(fit=_FITS["window 64"], evaluator=exact),
        "window 64, online evaluator": ca.COSMOS(fit=_FITS["window 64"]),
        "streaming, online evaluator": ca.COSMOS(fit=STREAMING),
    }
    seen = {name: grid(learner, index=[0.03, 0.1], fit=fit) for name, fit in _FITS.items()}
    probes = {"estimate": _estimate, "index_error": ca.index_error}
    return (
        uniform_case(seen, 2000, "known", probes=probes, every=500),
        uniform_case(learned, 1000, "learned", LEARNED, every=250),
    )


def _differences(data: xr.Dataset, policy: str, **where: Any) -> xr.DataArray:
    """Regret minus that with the exact estimator, seed by seed."""
    return runs_of(data, "regret", policy, **where) - runs_of(data, "regret", "exact", **where)


def _fidelity(results: Results) -> Verdict:
    data = results["known"]
    estimates = data["estimate"].sel(index=0.1).isel(time=-1)
    parts, gaps = [], {}
    for name in _FIDELITY:
        gaps[name] = float(np.abs(_differences(data, name, index=0.1)).mean())
        off = np.abs(estimates.sel(policy=name) - estimates.sel(policy="exact"))
        off = float(off.max([d for d in off.dims if d != "seed"]).mean())
        parts.append(f"{name} {gaps[name]:.2g} (estimates {off:.1g})")
    exact = end(data, "regret", "exact", index=0.1)
    text = f"exact {show(exact)}; mean absolute difference to it, b = .1: {', '.join(parts)}"
    in_order = gaps["window 64"] < gaps["window 32"] < gaps["window 8"] < gaps["streaming"]
    return text, in_order and gaps["window 32"] < 0.05 * exact.mean and gaps["streaming"] < 0.15 * exact.mean


def _fidelity_table(results: Results) -> Verdict:
    """Within a factor of 2.5, and mean regret of the exact estimator within four joint standard errors."""
    data, learned = results["known"], results["learned"]
    if horizon_of(results, "known") != 2000 or horizon_of(results, "learned") != 1000:
        return "the numbers are for 2,000 and 1,000 rounds", False
    factors = {}
    for name, values in _FIDELITY.items():
        factors[name] = float(np.abs(_differences(data, name, index=0.1)).mean()) / values[1]
    for name, value in _FIDELITY_LEARNED.items():
        factors[f"learned {name}"] = float(np.abs(_differences(learned, name)).mean()) / value
    exact = [Number("exact", 2000, 9.71, 0.26, where=(("index", 0.1),), case="known")]
    exact += [Number("exact", 1000, 15.7, 1.3, case="learned")]
    text, near = agrees(exact)(results)
    close = all(0.4 < f < 2.5 for f in factors.values())
    return f"differences over the table's: {', '.join(f'{n} {f:.2f}' for n, f in factors.items())}; {text}", close and near


def _constant_is_wrong(results: Results) -> Verdict:
    data = results["known"]
    wrong, exact = (end(data, "regret", p, index=0.1) for p in ("constant", "exact"))
    errors = data["index_error"].sel(index=0.1).isel(time=-1)
    far, near = (float(errors.sel(policy=p).mean()) for p in ("constant", "exact"))
    text = f"constant {show(wrong)}, exact {show(exact)}; mean distance from the true index {far:.2f} and {near:.2f}"
    return text, wrong.mean > 2.0 * exact.mean


def _frozen_scores(results: Results) -> Verdict:
    data = results["learned"]
    regret = ends(data, "regret", ("exact", *_FIDELITY_LEARNED))
    gap = mean_of(_differences(data, "streaming, online evaluator"))
    return f"{listed(regret)}; streaming minus exact {show(gap)}", gap.above(0.0, by=2.0)


def _fit_panels(results: Results):
    figure, axes = plot.panels(3)
    known, learned = results["known"], results["learned"]
    for place, b in enumerate((0.1, 0.03)):
        names = [n for n in _FITS if n != "exact"]
        gaps = [np.abs(_differences(known, n, index=b)).values for n in names]
        axes[place].boxplot(gaps, orientation="horizontal", showfliers=False, whis=(5, 95), tick_labels=names)
        axes[place].set_title(f"scores seen, b = {b:g}", loc="left", fontsize=9)
    names = list(_FIDELITY_LEARNED)
    gaps = [np.abs(_differences(learned, n)).values for n in names]
    axes[2].boxplot(
        gaps, orientation="horizontal", showfliers=False, whis=(5, 95), tick_labels=[n.replace(", ", ",\n") for n in names]
    )
    axes[2].set_title("evaluator learned", loc="left", fontsize=9)
    for ax in axes:
        ax.set_xlabel(f"|regret minus that of the exact estimator|\n5, 25, 50, 75, 95 % of {known.sizes['seed']} seeds")
        plot.log_axis(ax, "x")
        ax.invert_yaxis()
    return figure


# S12: cost and quality.

_ONE = "one call"
_WEIGHTS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PLANE = ("regret", "reward", "cost", "utility", "queries")
_LEVELS = (0.40, 0.45, 0.50, 0.55, 0.60, 0.65)
_ORACLE = ((0.6456, 0.0784), (0.6444, 0.0715), (0.6416, 0.0639), (0.6343, 0.0540), (0.6170, 0.0421), (0.5691, 0.0260), (0.5236, 0.0172))  # fmt: skip
_THRESHOLDS = ((0.5540, 0.0258), (0.5814, 0.0360), (0.6080, 0.0509), (0.6282, 0.0693), (0.6397, 0.0879), (0.6445, 0.1040))
# Standard errors of 200,000 draws.
_DRAW_ERRORS = {"reward": 0.0003, "cost": 0.0001}
_S12 = tuple(
    Number(policy, 10_000, point[place], error, where=((axis, value),), metric=metric, case=case)
    for policy, case, axis, values, points in (
        ("oracle", "weights", "cost_weight", _WEIGHTS, _ORACLE),
        ("frugal", "thresholds", "threshold", _LEVELS, _THRESHOLDS),
    )
    for value, point in zip(values, points, strict=True)
    for place, (metric, error) in enumerate(_DRAW_ERRORS.items())
)


def _weights_env(weights: Any = _WEIGHTS) -> Any:
    return grid(ca.uniform_cascade, cost_weight=list(weights))


def points_of(data: xr.Dataset, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost and mean reward at the horizon, by setting."""
    cost, reward = (metrics.mean(data[[m, "valid"]].sel(policy=policy).isel(time=-1), m).values for m in ("cost", "reward"))
    return np.atleast_1d(cost), np.atleast_1d(reward)


def _above_the_line(results: Results, policy: str) -> np.ndarray:
    """How much more reward a policy's frontier has than each fixed threshold, at the same cost."""
    cost, reward = points_of(results["weights"], policy)
    order = np.argsort(cost)
    level_cost, level_reward = points_of(results["thresholds"], "frugal")
    inside = (level_cost >= cost.min()) & (level_cost <= cost.max())
    return (np.interp(level_cost, cost[order], reward[order]) - level_reward)[inside]


def _dominates(results: Results) -> Verdict:
    gaps = {p: _above_the_line(results, p) for p in ("oracle", "COSMOS", _ONE)}
    text = "; ".join(f"{p} {', '.join(f'{g:+.3f}' for g in v)}" for p, v in gaps.items())
    holds = gaps["oracle"].size and (gaps["oracle"] > 0).all() and gaps["COSMOS"].size and (gaps["COSMOS"] > 0).all()
    return f"reward above a fixed threshold of equal cost: {text}", bool(holds)


@all_hold(f"utility of COSMOS, {_ONE} and oracle by cost weight, ")
def _cascades_pay(results: Results) -> Iterator[Verdict]:
    for weight in _WEIGHTS:
        utility = ends(results["weights"], "utility", ("COSMOS", _ONE, "oracle"), cost_weight=weight)
        text = f"{weight:g}: {', '.join(f'{v.mean:.4f}' for v in utility.values())}"
        yield text, utility["COSMOS"].mean > utility[_ONE].mean or weight > 1.0


def _late_points(data: xr.Dataset, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost and mean reward of the second half, by setting."""
    times = data["time"].values
    half = max(len(times) // 2 - 1, 0)
    if half == len(times) - 1:
        return points_of(data, policy)
    cost, reward = (
        metrics.cumulative(data[[m, "valid"]].sel(policy=policy), m).isel(time=[half, -1]) for m in ("cost", "reward")
    )
    rounds = float(times[-1] - times[half])
    late = (np.atleast_1d((metrics.mean(x).diff("time") / rounds).isel(time=0).values) for x in (cost, reward))
    return tuple(late)  # type: ignore[return-value]


def _frontier(results: Results):
    figure, axes = plot.panels(2)
    data = results["weights"]
    lines = {"oracle": "o-k", "COSMOS": "s-C1", _ONE: "^-.C2", "query all": "v:C3"}
    for policy, line in list(lines.items())[:3]:
        cost, reward = _late_points(data, policy)
        axes[0].plot(cost, reward, line, label=policy, markersize=4, linewidth=1)
        if policy == "oracle":
            for x, y, weight in zip(cost, reward, _WEIGHTS, strict=True):
                axes[0].annotate(f"{weight:g}", (x, y), textcoords="offset points", xytext=(4, -9), fontsize=7)
    cost, reward = points_of(results["thresholds"], "frugal")
    axes[0].plot(cost, reward, "D:C0", label="frugal, thresholds .40 to .65", markersize=4)
    seeds, rounds = data.sizes["seed"], horizon_of(results, "weights")
    axes[0].set_xlabel(
        f"mean cost per request\nmean of {seeds} seeds, second half of {rounds:,} rounds; numbers: cost weight"
    )
    axes[0].set_ylabel("mean score of what is deployed")
    for policy in ("COSMOS", _ONE, "query all"):
        loss = ends_along(data, "regret", policy, "cost_weight", _WEIGHTS).values()
        axes[1].plot(_WEIGHTS, [v.mean for v in loss], lines[policy], label=policy, markersize=4)
    axes[1].set_xlabel("cost weight")
    axes[1].set_ylabel(f"regret at round {rounds:,}")
    for which in ("x", "y"):
        plot.log_axis(axes[1], which)
    for ax in axes:
        ax.legend(fontsize=8, frameon=False)
    return figure


# S15: other radii.

_S15 = (
    Number("bootstrap", 10_000, 239.0, 58.0),
    Number("bootstrap, warm 10", 10_000, 2.44, 0.12),
    Number("bootstrap, warm 30", 10_000, 3.23, 0.16),
)


def _bootstraps() -> dict[str, Any]:
    floor = ca.Bootstrap(floor=ca.Practical(index=0.06, plug_in=0.0))
    return {
        "bootstrap": ca.BootstrapCOSMOS(exploration=ca.WarmUp(0)),
        "bootstrap, warm 10": ca.BootstrapCOSMOS(exploration=ca.WarmUp(10)),
        "bootstrap, warm 30": ca.BootstrapCOSMOS(exploration=ca.WarmUp(30)),
        "bootstrap, floor .06": ca.BootstrapCOSMOS(radius=floor, exploration=ca.WarmUp(0)),
        "Thompson sampling": ca.ThompsonSampling(),
        "COSMOS": learner(),
        "COSMOS, b = .06": learner(0.06),
        "greedy, warm 10": learner(0.0, warm=10),
    }


def _bootstrap_collapses(results: Results) -> Verdict:
    data = results["result"]
    regret = ends(data, "regret", _bootstraps())
    slope = late_slope(data, "regret", "bootstrap", 0.1 * horizon_of(results))
    helped = max(regret[f"bootstrap, {w}"].mean for w in ("warm 10", "warm 30", "floor .06"))
    text = f"{listed(regret)}; slope without a warm-up {show(slope)}"
    return text, slope.mean > 0.8 and regret["bootstrap"].mean > 10.0 * helped


S7 = Experiment(
    "cascade/S7",
    "An evaluator that is learned from the rewards of deployed outputs",
    _learned_cases(),
    512,
    (
        Claim("slope", "COSMOS' regret grows no faster than sqrt(T)", f"{PAPER}, theorem 5.5", _learned_slopes),
        Claim("tails", "greedy has runs with several times the regret, and more on average", OURS, _greedy_tails),
        Claim("early", "up to 600 rounds the two cannot be told apart", OURS, _not_separable),
        Claim("optimism", "optimism on the scores helps by itself: it stops earlier", OURS, _optimism_helps),
        Claim("table", TABLE, OURS, agrees(_S7)),
    ),
    {
        "S7": one_case(plot.curves, "regret", "long", log=True, band=None),
        "S7-runs": _learned_spread,
        "S7-bonuses": _learned_bonuses,
    },
    source=OURS,
    notes="noise of the evaluator's estimate explores for free: differences show after some thousand rounds",
    smoke_horizon=2000,
)
S8 = Experiment(
    "cascade/S8",
    "An evaluator that was fitted offline: how much data it takes",
    (uniform_case(_offline_policies, 10_000, settings=LEARNED, every=250),),
    256,
    (
        Claim(
            "crossing",
            "it takes more than 300 and at most 30,000 pairs, about T, to do better than learning online",
            OURS,
            _crossing,
        ),
        Claim("slope", "an evaluator that is off makes regret grow faster", OURS, _offline_slopes),
    ),
    {"S8": _offline_panels},
    source=OURS,
    notes="pairs of a request and the reward of a model that was picked at random; eight samples of each size",
    smoke_horizon=1000,
)
S9 = Experiment(
    "cascade/S9",
    "Other laws of scores and costs, and indices that are not linear",
    tuple(_law_case(name) for name in _LAWS),
    512,
    (
        Claim("laws", "COSMOS has less than a tenth of greedy's regret whatever the law", OURS, _every_law),
        Claim("misfit", "where the index is not linear, regret grows faster", OURS, _law_slopes),
        Claim("family", "learning a location family works where it is right, not where it is wrong", OURS, _wrong_family),
        Claim("table", TABLE, OURS, agrees(_S9)),
    ),
    {"S9": _law_panels},
    source=OURS,
    smoke_horizon=400,
)
S10 = Experiment(
    "cascade/S10",
    "Estimators of the index next to the exact one, seed by seed",
    _fit_cases(),
    64,
    (
        Claim("order", "a longer window is closer; 32 samples are within 5 % of the exact regret", OURS, _fidelity),
        Claim("constant", "Newton steps of constant curvature more than double the regret", OURS, _constant_is_wrong),
        Claim("frozen", "streaming loses where scores are learned: early ones stay as they were", OURS, _frozen_scores),
        Claim("table", "differences are those of an independent simulation, within a factor of 2.5", OURS, _fidelity_table),
    ),
    {"S10": _fit_panels},
    source=OURS,
    smoke_horizon=200,
)
S12 = Experiment(
    "cascade/S12",
    "Cost and quality: mean score against mean cost, by cost weight",
    (
        Case(
            _weights_env,
            {"oracle": ca.Oracle.of, "COSMOS": learner(), _ONE: ca.ContextSingle.of, "query all": ca.QueryAll()},
            10_000,
            "weights",
            {"weights": _WEIGHTS},
            record_every=500,
            record=_PLANE,
        ),
        uniform_case({"frugal": grid(ca.Frugal, threshold=list(_LEVELS))}, 10_000, "thresholds", record=_PLANE, every=500),
    ),
    256,
    (
        Claim("dominates", "oracle and COSMOS score higher than fixed thresholds at equal cost", OURS, _dominates),
        Claim(
            "single",
            "COSMOS has more utility than the best single call per request, up to cost weight 1",
            OURS,
            _cascades_pay,
        ),
        Claim("table", "scores and costs are those of an independent simulation", OURS, agrees(_S12)),
    ),
    {"S12": _frontier},
    source=OURS,
    smoke_horizon=1000,
)
S15 = Experiment(
    "cascade/S15",
    "Bonuses from a bootstrap, and Thompson sampling",
    (uniform_case(lambda env: _bootstraps(), 10_000, every=250),),
    256,
    (
        Claim("collapse", "without a warm-up or a floor the bootstrap stops learning", OURS, _bootstrap_collapses),
        Claim("table", TABLE, OURS, agrees(_S15)),
    ),
    {
        "S15": one_case(plot.curves, "regret", log=True, band=None),
        "S15-runs": one_case(plot.spread, "regret", log=True),
    },
    source=f"{PAPER} mentions the idea after eq. (15); the details are ours",
    smoke_horizon=300,
)
STUDY = (S7, S8, S9, S10, S12, S15)
