"""Studies of COSMOS: regret beside every other policy, sizes, bonuses, rare requests, learned scores, distributions, cost.

    jaxroute run scripts/studies/cascade.py:regret

The true indices are known exactly in every environment.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from flax import struct

from jaxroute import grid, metrics, plot
from jaxroute.core import draws
from jaxroute.core.quick import quick_jit
from jaxroute.engine.grid import Grid
from jaxroute.estimators.glm import ExactGLM, FrozenGLM, fit_glm
from jaxroute.experiments import cascade as c
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade import COSMOS, STREAMING, UNSEEN, case_of, claims, learner
from jaxroute.experiments.claims import (
    Finding,
    Quantity,
    all_hold,
    gap,
    growth,
    mean,
    near,
    no_more,
    quantile,
    rising,
    slope,
)
from jaxroute.experiments.measure import Measured, along, ends_along, late_runs, mean_of, runs_of
from jaxroute.experiments.pictures import Panel, side_by_side
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.window import Window
from jaxroute.problems.cascade.sources.features import reward_of


def study(
    name: str, title: str, cases: tuple[Case, ...], seeds: int, claims: tuple[Claim, ...], figures: Any, **more: Any
) -> Experiment:
    """Makes an experiment about COSMOS, with our own study as its source unless `source` is given."""
    return Experiment(name, title, cases, seeds, claims, figures, **{"source": c.OURS, **more})


def _late(policy: str, metric: str) -> Quantity:
    """Makes a quantity: the mean of a metric per request in the second half of a run."""
    return Quantity(f"{policy} {metric}, second half", lambda results: mean_of(late_runs(results["result"], metric, policy)))


_ONE = "one call"

# Regret beside all other policies.

_RULES = (_ONE, "static index", "frugal", "random cascade", "query all", "best single")
_LEARNERS = {
    "COSMOS": learner(),
    "COSMOS, window": learner(fit=c.WINDOW),
    "COSMOS, b = .03": learner(0.03),
    "greedy": learner(0.0),
    "greedy, warm 10": learner(0.0, warm=10),
    "epsilon-greedy": ca.EpsilonGreedy(fit=STREAMING),
    "explore then commit": ca.ExploreThenCommit(fit=STREAMING),
    "gradient descent": ca.OnlineGradient(),
    "bootstrap": ca.BootstrapCOSMOS(),
    "bootstrap, no warm-up": ca.BootstrapCOSMOS(exploration=WarmUp(0)),
    "Thompson sampling": ca.ThompsonSampling(),
}


def _all_policies(env: ca.CascadeEnv) -> dict[str, Any]:
    tuned = ca.Frugal.tuned(env)
    rules = [ca.ContextSingle.of, ca.StaticIndex.of, tuned, ca.RandomCascade(tuned.threshold)]
    rules += [ca.QueryAll(), ca.BestSingle.of]
    return {**_LEARNERS, "LinUCB": ca.LinUCB(), **dict(zip(_RULES, rules, strict=True)), "oracle": ca.Oracle.of}


_REGRET_CLAIMS = claims(
    ("below", "COSMOS has less than half the regret of every single call and fixed threshold",
     rising(*[(mean("COSMOS"), 0.5 * mean(p)) for p in (*_RULES, "LinUCB")])),
    ("concave", "the regret of COSMOS grows slowly: slope of the last three quarters below .5", rising((slope("COSMOS", share=0.25), 0.5))),
    ("mixture", "greedy runs are a mixture: the 5 % quantile is below COSMOS' mean, the 95 % quantile above ten times that, and the mean grows almost linearly (slope above .8)",
     rising((quantile(0.05, "greedy"), mean("COSMOS")), (10 * mean("COSMOS"), quantile(0.95, "greedy")), (0.8, slope("greedy", share=0.25)))),
    ("free", "the greedy policy after ten rounds with all boxes has less regret than COSMOS", rising((gap("greedy, warm 10", "COSMOS"), 0.0))),
    ("late", "COSMOS makes as many calls as the oracle in the second half, with equal scores, up to 10 %",
     near(*[(_late("COSMOS", m), _late("oracle", m)) for m in ("queries", "reward")], share=0.1)),
    ("bootstrap", "the bootstrap's bonus collapses without a warm-up: after ten rounds with all boxes it has less than a tenth of that regret",
     rising((mean("bootstrap"), 0.1 * mean("bootstrap, no warm-up")))),
)  # fmt: skip
_REGRET = study("cascade/regret", "Regret of COSMOS and all other policies: three models, three index features",
    (case_of(_all_policies, 2000, record=(*c.RECORD, "reward"), every=50),), 512, _REGRET_CLAIMS,
    {
        "regret": side_by_side(
            Panel("regret", policies=["COSMOS", *_RULES, "LinUCB"], title="rules that do not learn, and a router"),
            Panel("regret", policies=list(_LEARNERS), log=True, title="learners")),
        "regret-runs": side_by_side(Panel("regret", plot.quantiles, log=True, policies=[*_LEARNERS, "LinUCB", *_RULES]))},
    notes="requests are independent with full support, so that a cascade explores for free; optimism pays in cascade/two-boxes and "
        "cascade/rare-requests. The paper mentions a bootstrap after eq. (15); its details, and Thompson sampling, are ours",
    smoke_horizon=400)  # fmt: skip

# Growth of regret with the horizon and the sizes.

_LONG = {f"T, K = {k}, m = {m}": (k, m) for k, m in ((3, 3), (5, 5), (10, 5))}
_SIZES = {
    **{f"m{m}": {"num_models": 3, "dim": m} for m in (3, 5, 10, 20)},
    **{f"K{k}": {"num_models": k, "dim": 5} for k in (3, 5, 10)},
    **{f"d{d}": {"num_models": 3, "dim": 3, "evaluator": d} for d in (5, 10, 20)},
}


def _size_cases() -> Iterator[Case]:
    for name, (k, m) in _LONG.items():
        more = {"greedy": learner(0.0), "epsilon-greedy": _LEARNERS["epsilon-greedy"]} if k == 3 else {}
        policies = {"COSMOS": learner(), _ONE: ca.ContextSingle.of, **more}
        yield case_of(policies, 100_000, name, {"num_models": k, "dim": m}, every=1000)
    for name, settings in _SIZES.items():
        learned = {"COSMOS": ca.COSMOS(fit=STREAMING), "COSMOS, window": ca.COSMOS()}
        policies = learned if name[0] == "d" else {"COSMOS": learner()}
        yield case_of(policies, 10_000, name, settings, coordinates={"size": name[0], name[0]: int(name[1:])}, every=1000)


def _size_panels(results: Results):
    figure, axes = plot.panels(6)
    for ax, name in zip(axes, _LONG):
        plot.curves(results[name], "regret", log=True, ax=ax, title=name)
    titles = {"m": "index features m (K = 3)", "K": "models K (m = 5)", "d": "output features d (K = m = 3)"}
    for ax, (axis, title) in zip(axes[3:], titles.items()):
        runs = along(results, "regret", axis, size=axis)
        plot.power_laws({str(p): runs.sel(policy=p) for p in runs["policy"].values}, ax=ax, title=title)
    return figure


_GROWTH_CLAIMS = claims(
    ("T", "COSMOS' regret grows more slowly than sqrt(T): slope of the last decade below .5",
     rising(*[(slope("COSMOS", name), 0.5) for name in _LONG]), f"{COSMOS}, proposition 4.5"),
    *[(axis, f"the regret grows at most linearly in {axis}, like the bound (power at most 1)",
       no_more((growth("COSMOS", axis, {"size": axis}), 1.0)), f"{COSMOS}, {source}")
      for axis, source in (("m", "proposition 4.5"), ("K", "proposition 4.5"), ("d", "theorem 5.5"))],
    ("crossing", "with five and ten models, COSMOS has more regret than the best single call per request after 2,000 rounds, and less than half after 100,000",
     rising(*[pair for name in list(_LONG)[1:] for pair in ((mean(_ONE, name, time=2000), mean("COSMOS", name, time=2000)), (mean("COSMOS", name), 0.5 * mean(_ONE, name)))])),
)  # fmt: skip
_GROWTH = study("cascade/sizes", "Growth of regret with horizon T, models K, index features m and output features d",
    tuple(_size_cases()), 256, _GROWTH_CLAIMS, {"sizes": _size_panels},
    notes="the bounds are K m sqrt(T), and (d + K (m + sqrt(m d))) sqrt(T) with a learned evaluator, up to logarithms; a power "
        "above 1 at 10,000 rounds does not contradict a bound, whose constants are large. The radius depends on the declared horizon: a longer "
        "run has more regret at the same round",
    smoke_horizon=10_000)  # fmt: skip

# Size of the bonus.

_GRID = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3)


def _final_log(data: xr.Dataset, metric: str, **options: Any) -> None:
    plot.log_axis(plot.sweep(data, metric, **options), "y")


_BONUS_CLAIMS = claims(
    ("u-shape", "b = .06 has less than a fifth of the regret at both ends, 0 and .3",
     rising(*[(5 * mean("COSMOS", index=0.06), mean("COSMOS", index=b)) for b in (0.0, 0.3)])),
    ("cliff", "with b = .03 the 99 % quantile of the runs is more than ten times the median, with b = .1 less than three times",
     rising((10 * quantile(0.5, "COSMOS", index=0.03), quantile(0.99, "COSMOS", index=0.03)), (quantile(0.99, "COSMOS", index=0.1), 3 * quantile(0.5, "COSMOS", index=0.1)))),
    ("default", "our default b = .1 has at most 5 % more regret than any bonus of the grid",
     no_more(*[(mean("COSMOS", index=0.1), 1.05 * mean("COSMOS", index=b)) for b in _GRID if b != 0.1])),
)  # fmt: skip
_BONUS = study("cascade/bonus", "Size of the bonus: regret by b",
    (case_of({"COSMOS": grid(learner, index=list(_GRID))}, 10_000, every=250),), 512, _BONUS_CLAIMS,
    {
        "bonus": c.mean_and_runs(_final_log,
            change=lambda data: data.assign_coords(index=[f"{b:g}" for b in _GRID]).rename(index="b"))},
    smoke_horizon=400)  # fmt: skip

# Rare requests.

_WARM = {f"greedy, warm {rounds}": learner(0.0, warm=rounds) for rounds in (10, 30, 100, 300)}
_BONUSES = {"COSMOS": learner(), "COSMOS, b = .06": learner(0.06), "greedy": learner(0.0)}
_RARE_CLAIMS = claims(
    ("warm", "greedy regret is almost linear without a warm-up or after ten rounds with all boxes (slope above .8), that of COSMOS is not (below .5)",
     rising((0.8, slope("greedy", share=0.25)), (0.8, slope("greedy, warm 10", share=0.25)), (slope("COSMOS", share=0.25), 0.5))),
    ("pays", "COSMOS has less than half of the greedy regret after ten rounds with all boxes",
     rising((mean("COSMOS"), 0.5 * mean("greedy, warm 10")))),
    ("as-good", "the greedy policy after 100 rounds with all boxes has less regret than COSMOS with b = .1 and with .06",
     rising((gap("greedy, warm 100", "COSMOS"), 0.0), (gap("greedy, warm 100", "COSMOS, b = .06"), 0.0))),
)  # fmt: skip
_RARE = study("cascade/rare-requests", "Rare requests: a warm-up must contain them, a bonus need not",
    (
        case_of({**_BONUSES, **_WARM, "query all": ca.QueryAll()}, 10_000, settings={"num_models": 3},
            environment=ca.group_cascade, every=250),),
    512, _RARE_CLAIMS, {"rare-requests": c.mean_and_runs(log=True)}, smoke_horizon=400)  # fmt: skip

# Unobserved scores: learned from rewards, or fitted in advance.

_PAIRS, _SAMPLES = (300, 3000, 30_000, 300_000), 8
_TRUE = "oracle's evaluator"


def _both(fit: Any, note: str = "") -> dict[str, ca.COSMOS]:
    return {f"COSMOS{note}": c.learns_scores(fit=fit), f"greedy{note}": c.learns_scores(0.0, 0.0, 0.0, fit)}


def reward_pairs(env: ca.CascadeEnv, number: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws training data of an evaluator: features and rewards of one output per request, of a random model.

    Args:
      env: environment in which a policy does not observe scores.
      number: number of pairs in a sample.
      samples: number of independent samples.

    Returns:
      Features `[samples, number, d]` and rewards `[samples, number]`.
    """
    key = draws.key(1_000_000)

    def one(period: jax.Array) -> tuple[jax.Array, jax.Array]:
        k_period, k_start, k_box = draws.split(draws.fold_in(key, period), 3)
        drawn = env.draw(k_period, env.init(k_start), period)
        box = (draws.uniform(k_box) * drawn.score.shape[0]).astype(jnp.int32)
        assert drawn.features is not None
        return drawn.features[box], reward_of(env.spec.score_link, drawn.score[box], drawn.coin)

    drawn = quick_jit(lambda n: jax.lax.map(one, n, batch_size=8192))(jnp.arange(number * samples))
    features, rewards = (np.asarray(x) for x in drawn)
    return features.reshape(samples, number, -1), rewards.reshape(samples, number)


def _offline_policies(env: ca.CascadeEnv) -> dict[str, Any]:
    assert env.evaluator is not None
    features, rewards = reward_pairs(env, max(_PAIRS), _SAMPLES)

    def given(theta: Any) -> ca.COSMOS:
        return ca.COSMOS(fit=STREAMING, evaluator=FrozenGLM(np.asarray(theta)))

    def fitted(pairs: int, sample: int) -> ca.COSMOS:
        return given(fit_glm(features[sample, :pairs], rewards[sample, :pairs], env.spec.score_link))

    before = grid(fitted, pairs=list(_PAIRS), sample=range(_SAMPLES))
    return {"COSMOS": ca.COSMOS(), "fitted before": before, _TRUE: given(env.evaluator.theta)}


def _fitted(pairs: int) -> Quantity:
    """Makes a quantity: the mean regret, over samples and seeds, of a policy fitted to `pairs` pairs before the run. Samples give its standard error."""

    def of(results: Results) -> Measured:
        data = results["offline"][["regret", "valid"]].sel(policy="fitted before", pairs=pairs).isel(time=-1)
        return mean_of(metrics.mean(data, "regret").rename(sample="seed"), "sample")

    return Quantity(f"fitted to {pairs:,} pairs", of)


_SMALL = {**_both(c.WINDOW), **_both(STREAMING, ", streaming"), "query all": ca.QueryAll()}
_SWEEP = grid(c.learns_scores, optimism=[0.0, 0.1, 0.3, 0.6, 1.0], plug_in=[0.0, 0.03, 0.06])
_SCORES_CLAIMS = claims(
    ("slope", "COSMOS' regret grows more slowly than sqrt(T): slope of the last decade below .5",
     rising(*[(slope(p, case), 0.5) for p, case in (("COSMOS", "small"), ("COSMOS, streaming", "small"), ("COSMOS", "large"))]), f"{COSMOS}, theorem 5.5"),
    ("tails", "the greedy policy has more regret than COSMOS, and more than three times its 99 % quantile",
     rising(*[pair for case in ("small", "large") for pair in ((mean("COSMOS", case), mean("greedy", case)), (3 * quantile(0.99, "COSMOS", case), quantile(0.99, "greedy", case)))])),
    ("early", "greedy and COSMOS differ by at most a tenth at round 500",
     near((mean("greedy", "small", time=500), mean("COSMOS", "small", time=500)), share=0.1)),
    ("optimism", "optimism on the scores stops earlier: c_r = .3 has less regret and fewer calls than 0",
     rising(*[(mean("COSMOS", "bonuses", m, optimism=0.3, plug_in=0.03), mean("COSMOS", "bonuses", m, optimism=0.0, plug_in=0.03)) for m in ("regret", "queries")])),
    ("offline", "an evaluator fitted to 300 pairs is worse than online learning, one fitted to 30,000 pairs is better",
     rising((_fitted(30000), mean("COSMOS", "offline"), _fitted(300)))),
    ("enough", "an evaluator fitted to 300,000 pairs is as good as the true one, within 10 %", near((_fitted(300000), mean(_TRUE, "offline")), share=0.1)),
)  # fmt: skip
_SCORES = study("cascade/learned-scores",
    "Unobserved scores: an evaluator learned from rewards of deployed outputs, or fitted in advance",
    (
        case_of(_SMALL, 10_000, "small", UNSEEN, every=250),
        case_of(_both(STREAMING), 10_000, "large", {"num_models": 5, "dim": 5, "evaluator": 8}, every=1000),
        case_of({"COSMOS": _SWEEP}, 4000, "bonuses", UNSEEN, every=4000, seeds=128),
        case_of(_offline_policies, 10_000, "offline", UNSEEN, every=1000, seeds=64)),
    256, _SCORES_CLAIMS,
    {
        "learned-scores": side_by_side(Panel("regret", case="small", log=True, title="mean, K = m = 3, d = 5"),
            Panel("regret", plot.quantiles, case="small", log=True, title="runs, K = m = 3, d = 5"),
            Panel("regret", plot.quantiles, case="large", log=True, title="runs, K = m = 5, d = 8"),
            Panel("regret", plot.quantiles, case="bonuses", change=lambda d: d.sel(plug_in=0.03),
                title="bonus c_r of scores"),
            Panel("regret", plot.quantiles, case="bonuses", change=lambda d: d.sel(optimism=0.3),
                title="bonus c_p of plugging in"),
            Panel("regret", plot.sweep, case="offline", change=lambda d: d.isel(sample=0),
                title="evaluator fitted before, to one sample"))},
    notes="noise of the evaluator's estimate explores for free: differences appear after some thousand rounds. Pairs are a request and the "
        "reward of a random model; eight samples of each size",
    smoke_horizon=2000)  # fmt: skip

# Other distributions, and other estimators.

_DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "uniform": (ca.uniform_cascade, {}),
    "tilted": (ca.uniform_cascade, {"tilt": 0.25}),
    "spike": (ca.spike_cascade, {}),
    "tanh link": (ca.uniform_cascade, {"link": "tanh"}),
    "pass or fail": (ca.pass_fail_cascade, {}),
    "not linear": (ca.uniform_cascade, {"bend": 0.05}),
}


@struct.dataclass
class ConstantCurvature(StreamingNewton):
    """Textbook's online Newton step, which assumes the curvature `floor` for every sample: slow, for comparison."""

    def _curvature(self, link, u, score):
        del link, u
        return jnp.full_like(score, self.floor)


_FITS = {
    "exact": Window.exact(2000),
    "window 64": Window(size=64),
    "window 32": Window(),
    "window 8": Window(size=8),
    "streaming": STREAMING,
    "constant curvature": ConstantCurvature(floor=0.3),
}
_ONLINE = {
    "exact": ca.COSMOS(fit=Window.exact(1000), evaluator=ExactGLM(1000)),
    "window 64": ca.COSMOS(fit=_FITS["window 64"], evaluator=ExactGLM(1000)),
    "window 64, online evaluator": ca.COSMOS(fit=_FITS["window 64"]),
    "streaming, online evaluator": ca.COSMOS(fit=STREAMING),
}


def _distribution_cases() -> Iterator[Case]:
    for name, (env, settings) in _DISTRIBUTIONS.items():
        more = {"location family": ca.DistributionLearner()} if name in ("uniform", "pass or fail") else {}
        policies, where = {"COSMOS": learner(), "greedy": learner(0.0), **more}, {"distribution": name}
        yield case_of(policies, 10_000, name, c.SEEN | settings, environment=env, coordinates=where, every=250)
    yield case_of({name: learner(fit=fit) for name, fit in _FITS.items()}, 2000, "estimators", every=500, seeds=64)
    yield case_of(_ONLINE, 1000, "estimators-unseen", UNSEEN, every=250, seeds=64)


def _off(policy: str, case: str = "estimators") -> Quantity:
    """Makes a quantity: the mean absolute difference, over seeds, between a policy's regret and the regret with the exact estimator."""

    def of(results: Results) -> Measured:
        runs, exact = (runs_of(results[case], "regret", p) for p in (policy, "exact"))
        return mean_of(abs(runs - exact))

    return Quantity(f"off by {policy}", of)


def _off_exact(data: xr.Dataset) -> xr.Dataset:
    about = data["regret"].attrs | {"long_name": "|regret minus that of the exact estimator|"}
    off = np.abs(data["regret"] - data["regret"].sel(policy="exact", drop=True)).assign_attrs(about)
    return data.assign(regret=off).sel(policy=[p for p in data["policy"].values if p != "exact"])


_OTHER_DISTRIBUTIONS_CLAIMS = claims(
    ("distributions", "COSMOS has less than a tenth of the greedy regret for every distribution",
     rising(*[(mean("COSMOS", distribution), 0.1 * mean("greedy", distribution)) for distribution in _DISTRIBUTIONS])),
    ("misfit", "regret grows faster with nonlinear indices than with the other smooth distributions (slopes of the last decade)",
     rising(*[(slope("COSMOS", distribution), slope("COSMOS", "not linear")) for distribution in list(_DISTRIBUTIONS)[:4]])),
    ("family", "learning a location family has less than twice COSMOS' regret if the family is right, and more than five times if scores pass or fail",
     rising((mean("location family", "uniform"), 2 * mean("COSMOS", "uniform")), (5 * mean("COSMOS", "pass or fail"), mean("location family", "pass or fail")))),
    ("order", "longer windows are closer to the exact estimator, streaming is farther, constant curvature farthest",
     rising(tuple(_off(name) for name in list(_FITS)[1:]))),
    ("window", "a window of 32 has the exact estimator's regret within 5 %",
     rising((_off("window 32"), 0.05 * mean("exact", "estimators")))),
    ("frozen", "streaming has more regret with learned scores, since early scores are never corrected",
     rising((0.0, gap("streaming, online evaluator", "exact", "estimators-unseen")))),
)  # fmt: skip
_OTHER_DISTRIBUTIONS = study("cascade/distributions",
    "Other distributions of scores and costs, nonlinear indices, and estimators beside the exact one",
    tuple(_distribution_cases()), 256, _OTHER_DISTRIBUTIONS_CLAIMS,
    {
        "distributions": side_by_side(
            *[Panel("regret", case=distribution, title=distribution, log=True, band="quantile")
                for distribution in _DISTRIBUTIONS]),
        "distributions-estimators": side_by_side(
            Panel("regret", plot.quantiles, case="estimators", change=_off_exact, log=True, title="scores seen"),
            Panel("regret", plot.quantiles, case="estimators-unseen", change=_off_exact, log=True, title="scores learned"))},
    smoke_horizon=400)  # fmt: skip

# Cost and quality.

_WEIGHTS, _LEVELS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.40, 0.45, 0.50, 0.55, 0.60, 0.65)
_PRICED = {"oracle": ca.Oracle.of, "COSMOS": learner(), _ONE: ca.ContextSingle.of, "query all": ca.QueryAll()}
_PLANE = ("regret", "reward", "cost", "utility", "queries")


def _by_weight() -> Grid:
    return grid(ca.uniform_cascade, cost_weight=list(_WEIGHTS))


def _points(data: xr.Dataset, policy: str, axis: str) -> list[tuple[Measured, Measured]]:
    """Returns the pairs (mean cost, mean score) of a policy at the horizon, one for each value along `axis`."""
    return list(zip(*(ends_along(data, m, policy, axis).values() for m in ("cost", "reward")), strict=True))


@all_hold("score above that of a fixed threshold at equal cost, ")
def _dominates(results: Results) -> Iterator[Finding]:
    levels = _points(results["thresholds"], "frugal", "threshold")
    for policy in ("oracle", "COSMOS"):
        cost, score = zip(*sorted(_points(results["weights"], policy, "cost_weight")), strict=True)
        above = []
        for at, reached in levels:
            if cost[0].mean <= at.mean < cost[-1].mean:
                i = int(np.searchsorted([x.mean for x in cost], at.mean, side="right")) - 1
                steep = (score[i + 1].mean - score[i].mean) / (cost[i + 1].mean - cost[i].mean)
                part = (at.mean - cost[i].mean) / (cost[i + 1].mean - cost[i].mean)
                # Scores minus the cost at the slope of the line, so that the errors of both count.
                first, last, own = (
                    y.minus(x.times(steep)) for x, y in ((cost[i], score[i]), (cost[i + 1], score[i + 1]), (at, reached))
                )
                above.append(first.times(1 - part).plus(last.times(part)).minus(own))
        yield f"{policy} {', '.join(map(str, above))}", [one.above(0.0) for one in above]


def _frontier(results: Results):
    figure, axes = plot.panels(2)
    data, seeds = results["weights"], f"mean ± 2 s.e. of {results['weights'].sizes['seed']} seeds"
    lines = {p: _points(data, p, "cost_weight") for p in ("COSMOS", _ONE, "oracle")}
    lines["frugal"] = _points(results["thresholds"], "frugal", "threshold")
    swept = f"right to left: cost weights {_WEIGHTS[0]:g} to {_WEIGHTS[-1]:g}, thresholds {_LEVELS[-1]:g} to {_LEVELS[0]:g}"
    plot.points(lines, x=f"mean cost per request (utility at weight 1)\n{seeds}\n{swept}", y="mean score", ax=axes[0])
    loss = {p: list(ends_along(data, "regret", p, "cost_weight").items()) for p in ("COSMOS", _ONE, "query all")}
    plot.points(loss, x=f"cost weight\n{seeds}", y=f"regret at round {int(data['time'][-1]):,}", ax=axes[1])
    plot.log_axis(axes[1], "x")
    plot.log_axis(axes[1], "y")
    return figure


_COST_CLAIMS = claims(
    ("dominates", "the oracle and COSMOS, including its learning phase, score higher than fixed thresholds at equal cost", _dominates),
    ("single", "COSMOS has more utility than the best single call per request at every cost weight",
     rising(*[(0.0, gap("COSMOS", _ONE, "weights", "utility", cost_weight=w)) for w in _WEIGHTS])),
)  # fmt: skip
_COST = study("cascade/cost-quality", "Cost and quality: mean score against mean cost, by cost weight",
    (
        case_of(_PRICED, 10_000, "weights", {}, environment=_by_weight, every=500, record=_PLANE),
        case_of({"frugal": grid(ca.Frugal, threshold=list(_LEVELS))}, 10_000, "thresholds", record=_PLANE, every=500)),
    256, _COST_CLAIMS, {"cost-quality": _frontier}, smoke_horizon=1000)  # fmt: skip

EXPERIMENTS = (_REGRET, _GROWTH, _BONUS, _RARE, _SCORES, _OTHER_DISTRIBUTIONS, _COST)
