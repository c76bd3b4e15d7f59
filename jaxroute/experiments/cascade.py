"""Experiments on COSMOS, a policy for cascades: statements of its paper, and routing of recorded queries.

The paper has no experiment, figure or table; its only example is `cascade/two-boxes`.
"""

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.core import checks
from jaxroute.engine.grid import Grid
from jaxroute.estimators.glm import FrozenGLM, fit_glm
from jaxroute.estimators.links import LOGISTIC
from jaxroute.experiments import claims as cl
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.measure import Measured, along, end, late_runs, mean_of
from jaxroute.experiments.pictures import Panel, Picture, side_by_side
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.optimum import TooManyHistoriesError
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import PracticalRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import Window
from jaxroute.problems.cascade.sources.rows import RecordedRows
from jaxroute.problems.cascade.theory import design_growth, ridge_rule

COSMOS = "COSMOS (Belloni, Chen and Wei)"
OURS = "our study; the paper has no experiment"
RECORD = ("regret", "mean_cost_regret", "queries", "utility")
# Settings of the cascade in most experiments: COSMOS observes the scores of answers (SEEN), or learns to predict them (UNSEEN).
SEEN: dict[str, Any] = {"num_models": 3, "dim": 3}
UNSEEN = SEEN | {"evaluator": 5}
STREAMING, WINDOW = StreamingNewton(), Window()


def learner(index: float = 0.10, warm: int = 0, fit: Any = STREAMING) -> ca.COSMOS:
    """Makes COSMOS for observed scores. `fit` is its estimator of indices, `index` scales its bonus, and its first `warm` rounds call all models."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, 0.0, 0.0), exploration=WarmUp(warm))


def learns_scores(index: float = 0.10, plug_in: float = 0.03, optimism: float = 0.30, fit: Any = WINDOW) -> ca.COSMOS:
    """Makes a COSMOS policy that learns to score answers. `fit` is its estimator of indices; the other arguments are those of `PracticalRadius`."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, plug_in, optimism))


def case_of(
    policies: Any, horizon: int, name: str = "result", settings: Mapping[str, Any] = SEEN, *, every: int, **options: Any
) -> Case:
    """Makes a case that records every `every` rounds. `options` are more fields of `Case`, such as `environment` (default: `uniform_cascade`)."""
    options = {"environment": ca.uniform_cascade, "record": RECORD, "record_every": every, **options}
    return Case(policies=policies, horizon=horizon, name=name, settings=settings, **options)


def claims(*rows: tuple[str, str, cl.Measure] | tuple[str, str, cl.Measure, str]) -> tuple[Claim, ...]:
    """Makes claims from rows (name, text, test) or (name, text, test, source). A test is a function of the results; the default source is `OURS`."""
    return tuple(Claim(row[0], row[1], row[3] if len(row) > 3 else OURS, row[2]) for row in rows)


def mean_and_runs(draw: Any = plot.curves, change: Any = None, **options: Any) -> Picture:
    """Makes a function that draws two panels: mean regret, by `draw`, and quantiles of regret. `change` and `options` are arguments of `Panel`."""
    runs = {name: value for name, value in options.items() if name == "policies"}
    mean = Panel("regret", draw, change=change, title="mean", **options)
    return side_by_side(mean, Panel("regret", plot.quantiles, change=change, log=True, title="runs", **runs))


# The paper's example.

_BONUSES = [0.1, 0.3, 0.6, 1.0, 2.0]
_LEARNERS = {
    "COSMOS": grid(learner, index=_BONUSES, fit=WINDOW),
    "COSMOS, streaming": grid(learner, index=_BONUSES),
    "COSMOS, b = .1, 60 rounds of all": learner(warm=60, fit=WINDOW),
    "one call": ca.ContextSingle.of,
    "oracle": ca.Oracle.of,
}
_TWO_BOXES = Experiment("cascade/two-boxes",
    "The paper's two boxes: single calls lose .04 per request, and too small a bonus loses as much",
    (case_of(_LEARNERS, 2000, settings={}, environment=lambda: ca.two_boxes(), every=50),), 512, claims(
        ("oracle", "the optimal cascade of the two boxes earns .54 per request, within 5 %",
         cl.near((cl.mean("oracle", metric="utility"), 0.54), share=0.05), f"{COSMOS}, section 2.1"),
        ("single", "a single call loses .04 per request, within 5 %", cl.near((cl.mean("one call"), 80.0), share=0.05), f"{COSMOS}, section 2.1"),
        ("linear", "the regret of COSMOS grows almost linearly with b = .1 (slope above .9), and slowly with b = 1 (slope below .5)",
         cl.rising((0.9, cl.slope("COSMOS", share=0.25, index=0.1)), (cl.slope("COSMOS", share=0.25, index=1.0), 0.5))),
        ("bonus", "b = .1 has more than twenty times the regret of b = 1",
         cl.rising((20 * cl.mean("COSMOS", index=1.0), cl.mean("COSMOS", index=0.1)))),
        ("stuck", "with b = .1 more than half of the runs lose .02 per request or more", cl.rising((40.0, cl.quantile(0.5, "COSMOS", index=0.1)))),
        ("warm", "a warm-up helps: after 60 rounds with all boxes, b = .1 has less than a tenth of its regret without",
         cl.rising((cl.mean("COSMOS, b = .1, 60 rounds of all"), 0.1 * cl.mean("COSMOS", index=0.1))))),
    {"two-boxes": mean_and_runs(change=lambda data: data.rename(index="b"), policies=["COSMOS", "one call"])},
    source=f"{COSMOS}, section 2.1; the learners are ours",
    notes="the second box pays once in ten calls: after a few failures a small bonus does not raise its index above .5 again. The bonus .1 "
        "for the other cascades is a calibration", smoke_horizon=200)  # fmt: skip

# The square root of the horizon.

_STEPS, _HORIZONS = (0.5, 1.0, 2.0), (1000, 3000, 10_000, 30_000, 100_000)


def _hard(steps: Sequence[float] = _STEPS, horizon: int = 1000) -> Grid:
    """Makes a grid over `s` in `steps` of cascades of a safe and a risky model, whose reservation indices differ by `s / sqrt(horizon)`."""
    return grid(lambda s: ca.safe_and_risky(s / math.sqrt(horizon)), s=list(steps))


def _root_panels(results: Results):
    figure, axes = plot.panels(2)
    regret = along(results, "regret", "horizon")
    runs = {f"{p}, s = {s:g}": regret.sel(policy=p, s=s, drop=True) for p in ("COSMOS", "greedy") for s in _STEPS}
    roots = {n: [(int(r["horizon"]), mean_of(r).times(int(r["horizon"]) ** -0.5)) for r in one] for n, one in runs.items()}
    seeds = next(iter(results.values())).sizes["seed"]
    plot.points(roots, x=f"horizon T\nmean ± 2 s.e. of {seeds:,} seeds", y="regret / sqrt(T)", ax=axes[0])
    plot.log_axis(axes[0], "x")
    plot.log_axis(axes[0], "y")
    plot.power_laws({name: r for name, r in runs.items() if name.startswith("COSMOS")}, ax=axes[1])
    return figure


_ROOT = Experiment("cascade/square-root", "Regret of order sqrt(T): two boxes whose indices differ by s / sqrt(T)",
    tuple(case_of({"COSMOS": learner(), "greedy": learner(0.0)}, T, f"T{T}", {"steps": _STEPS}, environment=_hard,
        coordinates={"horizon": T}, every=T) for T in _HORIZONS),
    512, claims(
        ("flat", "R(T) / sqrt(T) is constant: the slope of R is within .05 of .5",
         cl.near(*[(cl.growth("COSMOS", "horizon", s=s), 0.5) for s in _STEPS], margin=0.05), f"{COSMOS}, proposition 4.5"),
        ("greedy", "at the longest horizon the greedy policy has less than a tenth of COSMOS' regret: the narrow box, which is better, starts ahead",
         cl.rising(*[(cl.mean("greedy", "T100000", s=s), 0.1 * cl.mean("COSMOS", "T100000", s=s)) for s in _STEPS]))), {"square-root": _root_panels},
    notes="with s = 2 the difference of the indices is visible at short horizons, and R(T) / sqrt(T) still rises. Two boxes that are both opened "
        "half of the time anyway do not show sqrt(T): exploration is free there", source=OURS, smoke_horizon=20_000)  # fmt: skip

# The radius of the proofs, the ridges, and the design matrix of deployed outputs.

_ETA1, _ETA0, _RULE = (0.01, 0.1, 1.0, 2.0, 10.0), (0.1, 1.0, 10.0), ridge_rule(3, 3, 5)


def _bound(horizon: int) -> float:
    return ca.regret_bound(ca.uniform_cascade(**SEEN).spec, horizon)


def _growth(env, policy, env_state, state, t) -> dict[str, Any]:
    """Returns "least", the least eigenvalue of the policy's design matrix, and "context" (0 or 1) in environments whose context is fixed in a run."""
    least = design_growth(env, policy, env_state, state, t)
    return {"least": least} | ({} if isinstance(env_state, tuple) else {"context": env_state})


def _by_context(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Splits the runs of the first policy by their context, which is 0 or 1 in all rounds of a run: returns `{"x = 0": runs, "x = 1": runs}`."""
    data = data.isel(policy=[0])
    one = (data["design.context"].isel(policy=0, time=-1) > 0).values
    return {f"x = {x}": data.isel(seed=np.flatnonzero(one == x)).assign_coords(policy=[f"x = {x}"]) for x in (0, 1)}


def _never_grows(results: Results) -> cl.Finding:
    last = {name: d["design.least"].isel(time=-1).values for name, d in _by_context(results["design-frozen"]).items()}
    if not all(values.size for values in last.values()):
        return "runs with x = 0 and with x = 1 are needed: use more seeds", cl.at_least(None, [])
    text = ", ".join(f"{v.size} runs with {name}: {v.min():.3g} to {v.max():.3g}" for name, v in last.items())
    return text, bool((last["x = 0"] == 1.0).all() and (last["x = 1"] > 1.0).all())


def _theory_panels(results: Results):
    data = results["radius"]
    times = data["time"].values
    bound = np.array([_bound(int(t)) for t in times])
    lines = {"bound of proposition 4.5": (times, bound), "trivial bound (2 K + 1) t": (times, 7.0 * times)}
    figure, axes = plot.panels(6)
    plot.curves(data, "regret", log=True, ax=axes[0], reference=lines, title="regret and its bounds")
    plot.curves(data, "optimistic", ax=axes[1], policies=["theory", "COSMOS", "COSMOS, b = .03"], title="optimism")
    for ax, (case, axis, scores) in zip(axes[2:], (("ridge", "eta1", "seen"), ("ridge-unseen", "eta0", "learned"))):
        plot.quantiles(results[case].sel(policy=["COSMOS"]), "regret", ax=ax, x=axis, title=f"ridge {axis}, scores {scores}")
        plot.level(ax, "mean with the paper's rule", end(results[case], "regret", "rule").mean)
    plot.curves(results["design"], "design.least", band="quantile", ax=axes[4], title="design matrix, random contexts")
    for one in (one for one in _by_context(results["design-frozen"]).values() if one.sizes["seed"]):
        plot.curves(one, "design.least", band="quantile", log="y", ax=axes[5], title="design matrix, one context for ever")
    for ax in axes[4:]:
        ax.set_ylabel("least eigenvalue")
    return figure


def _ridges(eta1: float = 1.0, eta0: float = 1.0, unseen: bool = False) -> ca.COSMOS:
    policy = learns_scores(fit=STREAMING) if unseen else learner()
    return policy.replace(eta1=eta1, eta0=eta0)


_RADII = {
    "theory": ca.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()),
    "query all": ca.QueryAll(),
    "COSMOS": learner(),
    "COSMOS, b = .03": learner(0.03),
}
_ONLINE = {"COSMOS": learns_scores(fit=STREAMING), "greedy": learns_scores(0.0, 0.0, 0.0, STREAMING)}
_THEORY = Experiment("cascade/theory", "The radius of the proofs, the rule for the ridges, and the growth of the design matrix",
    (
        case_of(_RADII, 10_000, "radius", record=(*RECORD, "optimistic"), every=250),
        case_of({"COSMOS": grid(_ridges, eta1=list(_ETA1)), "rule": _ridges(_RULE.eta1)}, 10_000, "ridge", every=1000),
        case_of({"COSMOS": grid(_ridges, eta0=list(_ETA0), unseen=True), "rule": _ridges(*_RULE, unseen=True)}, 10_000, "ridge-unseen",
            UNSEEN, every=1000),
        case_of(_ONLINE, 4000, "design", UNSEEN, probes={"design": _growth}, every=100),
        case_of(_ONLINE, 4000, "design-frozen", {}, environment=lambda: ca.frozen_cascade(), probes={"design": _growth},
            every=100)),
    256, claims(
        ("same", "COSMOS with the radius of the proofs equals query-all, up to rounding of sums",
         cl.near(*[(cl.gap("theory", "query all", "radius", metric), 0.0) for metric in RECORD], margin=0.01)),
        ("vacuous", "its regret is below the trivial bound, which is below the bound of the theory",
         cl.rising((cl.mean("theory", "radius"), 70000.0, cl.known("bound", _bound, "radius"))), f"{COSMOS}, proposition 4.5; eq. (58)"),
        ("coverage", "the radius of the proofs covers the true indices in every round",
         cl.near((cl.mean("theory", "radius", "optimistic"), 1.0)), f"{COSMOS}, proposition 4.4"),
        ("practical", "the practical radius has less than a tenth of that regret, and covers the true indices in fewer rounds",
         cl.rising((cl.mean("COSMOS", "radius"), 0.1 * cl.mean("theory", "radius")), (cl.mean("COSMOS, b = .03", "radius", "optimistic"), cl.mean("COSMOS", "radius", "optimistic"), 1.0))),
        ("small", "ridges eta_1 up to 2 change regret by at most 5 %",
         cl.near(*[(cl.mean("COSMOS", "ridge", eta1=eta), cl.mean("COSMOS", "ridge", eta1=1.0)) for eta in (0.01, 0.1, 2.0)], share=0.05)),
        ("small-unseen", "a ridge eta_0 of .1 changes regret by at most 15 %",
         cl.near((cl.mean("COSMOS", "ridge-unseen", eta0=0.1), cl.mean("COSMOS", "ridge-unseen", eta0=1.0)), share=0.15)),
        ("large", "a ridge eta_1 of 10 makes the first bonuses too small: it has more regret than 1",
         cl.rising((cl.mean("COSMOS", "ridge", eta1=1.0), cl.mean("COSMOS", "ridge", eta1=10.0)))),
        ("large-unseen", "a ridge eta_0 of 10 has more regret than 1",
         cl.rising((cl.mean("COSMOS", "ridge-unseen", eta0=1.0), cl.mean("COSMOS", "ridge-unseen", eta0=10.0)))),
        ("rule", f"the paper's rule, eta_1 = {_RULE.eta1:.2f} and eta_0 = {_RULE.eta0:.2f}, has the regret of 1 and 1 within 10 %",
         cl.near((cl.mean("rule", "ridge"), cl.mean("COSMOS", "ridge", eta1=1.0)),
             (cl.mean("rule", "ridge-unseen"), cl.mean("COSMOS", "ridge-unseen", eta0=1.0)), share=0.1), f"{COSMOS}, theorem 5.5"),
        ("linear", "the least eigenvalue of the design matrix grows linearly: slope within .1 of 1",
         cl.near(*[(cl.slope(p, "design", metric="design.least"), 1.0) for p in ("COSMOS", "greedy")], margin=0.1), f"{COSMOS}, proposition 10.10"),
        ("frozen", "with a fixed context of 0 the least eigenvalue stays at eta_0 = 1", _never_grows, f"{COSMOS}, remark 5.2")),
    {"theory": _theory_panels},
    source=f"{COSMOS}, propositions 4.4, 4.5 and 10.10, theorem 5.5, remark 5.2",
    notes="the bonus of the proofs falls below .1 only after about 26 million calls of a model", smoke_horizon=400)  # fmt: skip

# Recorded queries.

# Cost weights: price of a mean call of the most expensive model in units of the score. Exploration bonuses of COSMOS, of which the best is used.
_WEIGHTS, _REPLAY_BONUSES = [0.02, 0.075, 0.2, 0.5], [0.1, 0.3, 1.0]
_ORACLE, _INDICES, _PLAN, _LIST = "oracle", "search by true indices", "optimal plan (in sample)", "optimal list (in sample)"
_BASELINES = ("best single", "frugal (tuned)", "learned list")
_FITTED, _HINDSIGHT = "linear indices (other half)", "linear indices (in sample)"
_KINDS = ("independent", "joint")
_LITTLE = 0.005  # Largest difference in utility per request that counts as equal.
_RECORD = ("realised_regret", "reward", "cost", "utility", "queries")
_TITLES = {"independent": "independent rows", "joint": "joint rows", "queries": "each query once"}
_STAND_IN = "a generated stand-in for RouterBench"
_SETTINGS = ("data", "by", "groups", "models", "costs", "scores", "sizes", "confidence")


@functools.lru_cache(maxsize=4)
def _read(settings: str) -> tuple[RecordedRows, RecordedRows]:
    return ca.recorded_rows(**json.loads(settings)).halves()


def _halves(settings: Mapping[str, Any]) -> tuple[RecordedRows, RecordedRows]:
    """Reads the table in `settings` and splits its rows at random: returns the half for fitting baselines, and the half on which policies run."""
    return _read(json.dumps({name: settings[name] for name in (*_SETTINGS, "directions") if settings.get(name) is not None}))


def replay(
    data: str = "standin",
    weights: Sequence[float] = _WEIGHTS,
    joint: bool = False,
    by: str | None = None,
    groups: int = 6,
    models: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
    scores: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
    confidence: Mapping[str, str] | None = None,
) -> Grid:
    """Makes a grid of cascades, one per cost weight, that serve recorded queries. Half of the rows are used; the other half is for fitting baselines.

    Args:
      weights: cost weights `w`, one per environment: the utility of a request is `score - w * cost / C`, `C` the highest mean cost of a model.
      joint: whether all models answer the same query; otherwise each model answers an independent one of the same group.
      data, by, groups, models, costs, scores, sizes, confidence: as in `cascade.recorded_rows`.
    """
    rows = _halves(locals())[1]

    def weighted(weight: float) -> ca.CascadeEnv:
        options = {"joint": joint, "features": rows.features, "names": rows.names, "cost_unit": rows.unit}
        return ca.replay_cascade(rows.scores, rows.costs, rows.groups, cost_weight=weight / rows.highest_cost, **options)

    return grid(weighted, weight=checks.positive("weights", np.asarray(list(weights))).tolist())


def _by_weight(envs: Grid, policies: Iterable[Any]) -> Callable[[ca.CascadeEnv], Any]:
    """Returns a function from an environment to the policy for its cost weight; `policies` has one per environment of the grid `envs`, in order."""
    scale = np.asarray([one.cost_weight for one in envs.objects], np.float32)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *policies)

    def of(env: ca.CascadeEnv) -> Any:
        place = jnp.argmin(jnp.abs(jnp.asarray(scale) - env.cost_weight))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[place], stacked)

    return of


def _tuned(rows: RecordedRows, weights: Sequence[float], score: Any = None, **more: Any) -> list[ca.Frugal]:
    """Makes a policy for each cost weight. It calls models, the cheapest first, until a score reaches the threshold that is best for `rows`.

    `score` `[N, K]`, of `N` rows and `K` models, is compared with the threshold (None: the recorded scores); `more` are arguments of `Frugal`.
    """
    order = np.argsort(np.argsort(rows.costs.mean(axis=0), kind="stable")).astype(np.float32)
    return [ca.Frugal(ca.best_threshold(rows.scores, w * rows.costs, score)[0], order, **more) for w in weights]


def _baselines(envs: Grid, tuned: Iterable[ca.Frugal], lists: Iterable[ca.Frugal]) -> dict[str, Any]:
    policies = (ca.BestSingle.of, _by_weight(envs, tuned), _by_weight(envs, lists))
    return {**dict(zip(_BASELINES, policies, strict=True)), "one call": ca.ContextSingle.of}


def _policies(envs: Grid, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the policies for `envs = replay(**settings)`: learners, rules fitted to rows not served, and references fitted to the served rows."""
    joint, weights = settings["joint"], [float(one.cost_weight) for one in envs.objects]
    train, judged = (rows if joint else rows.unpaired() for rows in _halves(settings))
    more, scorer = {}, lambda rows: None
    if train.features is not None:
        theta = fit_glm(train.features.reshape(-1, train.features.shape[-1]), train.scores.reshape(-1), LOGISTIC)
        more, scorer = {"evaluator": FrozenGLM(theta)}, lambda rows: np.asarray(LOGISTIC.value(rows.features @ theta))

    def lists(rows: RecordedRows) -> list[ca.Frugal]:
        return [ca.Frugal.fit(rows.scores, w * rows.costs, scorer(rows), **more) for w in weights]

    best: dict[str, Any] = {_ORACLE: ca.Oracle.of}
    if joint:
        try:
            best = {_PLAN: _by_weight(envs, [ca.JointOracle.of(one) for one in envs.objects])}
        except TooManyHistoriesError:
            best = {_LIST: _by_weight(envs, lists(judged))}
        best[_INDICES] = ca.TrueIndexSearch.of
    made, fit = (learns_scores, WINDOW) if more else (learner, STREAMING)
    return {
        "COSMOS": grid(made, index=_REPLAY_BONUSES, fit=fit),
        "greedy, warm 30": ca.Greedy(fit=fit, exploration=WarmUp(30)),
        **_baselines(envs, _tuned(train, weights, scorer(train), **more), lists(train)),
        "query all": ca.QueryAll(),
        **best,
    }


def _case(kind: str) -> Case:
    settings = dict.fromkeys(_SETTINGS) | {"data": "standin", "groups": 6, "weights": _WEIGHTS, "joint": kind == "joint"}
    options = {"record_every": 500, "record": _RECORD, "rows": lambda envs: len(envs.objects[0].boxes.score)}
    return Case(replay, _policies, 10_000, kind, settings, {"rows": kind}, **options)


def _zero(data: xr.Dataset) -> str:
    """Returns the name of the reference policy with which the others are compared; it was fitted to the very rows that are served."""
    return next(str(p) for p in data["policy"].values if p in (_ORACLE, _PLAN, _LIST, _HINDSIGHT))


def _judged(data: xr.Dataset, metric: str, policy: str) -> xr.DataArray:
    """Returns a policy's metric per request in the later half of runs of odd seeds, `[seed]`. COSMOS has the bonus that is best for even seeds."""
    runs, place = late_runs(data, metric, policy), 0
    if policy == "COSMOS":
        place = int(late_runs(data, "utility", policy).isel(seed=slice(0, None, 2)).mean("seed").argmax("index"))
    return (runs.isel(index=place) if "index" in runs.dims else runs).isel(seed=slice(1, None, 2))


def _ahead(data: xr.Dataset, policy: str, other: str) -> Measured:
    """Returns the mean difference in utility per request between `policy` and `other`, paired by seed, in the rounds and seeds of `_judged`."""
    return mean_of(_judged(data, "utility", policy) - _judged(data, "utility", other))


def _lead(kind: str, weight: float, baseline: str) -> cl.Quantity:
    """Makes a quantity: the utility per request of COSMOS minus that of the policy `baseline`, in the case `kind` at one cost weight."""
    return cl.Quantity(f"weight {weight:g}:", lambda results: _ahead(results[kind].sel(weight=weight), "COSMOS", baseline))


@cl.with_parameters
@cl.all_hold("nearest policy: ")
def _unbeaten(results: Results, kind: str) -> Iterator[cl.Finding]:
    """Tests the claim that in the case `kind` no policy beats the reference, fitted to the very rows that are served, by more than `_LITTLE`."""
    for weight in _WEIGHTS:
        data = results[kind].sel(weight=weight)
        best = _zero(data)
        leads = {str(p): _ahead(data, str(p), best) for p in data["policy"].values if p != best}
        first = max(leads, key=lambda name: leads[name].mean)
        yield f"weight {weight:g}: {first} {leads[first]}", [v.at_most(_LITTLE) for v in leads.values()]


def _as_much(kind: str, baseline: str) -> cl.Measure:
    """Makes the test that COSMOS's utility per request is at most .005 below that of `baseline`, in the case `kind` at every cost weight."""
    return cl.no_more(*[(-_LITTLE, _lead(kind, weight, baseline)) for weight in _WEIGHTS])


def _plane(results: Results):
    figure, axes = plot.panels(2 * len(results), columns=2)
    for row, (kind, data) in zip(axes.reshape(-1, 2), results.items(), strict=True):
        zero, weights = _zero(data), [float(w) for w in data["weight"].values]
        by_weight = {w: data.sel(weight=w) for w in weights}
        names = [str(p) for p in data["policy"].values]
        seeds = f"mean ± 2 s.e. of {data.sizes['seed'] // 2} seeds, second half of {int(data['time'][-1]):,} rounds"
        both = {(p, m): [mean_of(_judged(d, m, p)) for d in by_weight.values()] for p in names for m in ("cost", "reward")}
        plane = {p: list(zip(both[p, "cost"], both[p, "reward"], strict=True)) for p in names}
        # Nearly all scores are within a hundredth of the highest and a few far below: hence distances, on an axis linear up to a thousandth.
        best = max(score[0] for places in plane.values() for _, score in places)
        below = {p: [(cost, (score[0] - best, score[1])) for cost, score in places] for p, places in plane.items()}
        label = f"mean cost ({data['cost'].attrs['units']})\n{seeds}"
        plot.points(below, x=label, y=f"mean score deployed minus the highest, {best:.4f}", ax=row[0], title=_TITLES[kind])
        plot.log_axis(row[0], "y", linear=1e-3)
        ahead = {p: [(w, tuple(_ahead(d, p, zero))) for w, d in by_weight.items()] for p in names if p != zero}
        label = "cost weight of a mean call of the dearest model"
        plot.points(ahead, x=label, y=f"utility minus that of the {zero}", ax=row[1], title=f"ahead of the {zero}")
        plot.log_axis(row[1], "y", linear=1e-3)
        for ax in row:
            plot.log_axis(ax, "x")
    return figure


REPLAY = Experiment("cascade/replay", "Cost and quality on recorded scores and costs of a table (--data FILE)",
    tuple(_case(kind) for kind in _KINDS), 64, claims(
        ("oracle", "with independent rows no policy beats the oracle by more than .005",
         _unbeaten("independent"), f"{COSMOS}, proposition 3.1"),
        ("plan", "with joint rows no policy beats the optimal plan by more than .005",
         _unbeaten("joint")),
        *[(f"{name}-{kind}", f"{kind} rows: late in a run COSMOS earns at most .005 less than the {name}",
           _as_much(kind, name)) for kind in _KINDS for name in _BASELINES]), {"replay": _plane},
    notes="half of the rows of each group are used; threshold and list are fitted to the other half, the best in sample knows the used rows. "
        "The bonus of COSMOS (.1, .3 or 1) is chosen on every other seed, and all is judged on the others. With joint rows outputs are dependent, "
        "indices are not optimal, and a realised regret against them may be negative. Queries are grouped by k-means on their features "
        "(--set environment.by=groups for the categories of the table, which are the default without embedding); for other columns, use "
        '--set environment.scores=\'{"small": "perf_small", "large": "perf_large"}\' --set environment.costs=\'{"small": 1, "large": 20}\' '
        "--set environment.by=dataset", source=OURS, smoke_horizon=200, stand_in=_STAND_IN)  # fmt: skip

# Each query once, with its features instead of groups.


def queries(
    data: str = "standin",
    weights: Sequence[float] = _WEIGHTS,
    directions: int = 8,
    models: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
) -> Grid:
    """Makes a grid of environments, one per cost weight, that serve half of a table's rows; arguments as for `replay` and `recorded_rows`."""
    return _queries(_halves(locals())[1], checks.positive("weights", np.asarray(list(weights))).tolist())


def _queries(rows: RecordedRows, weights: Sequence[float]) -> Grid:
    """Makes a grid of environments, one per cost weight, that serve each of the rows once."""

    def weighted(weight: float) -> ca.CascadeEnv:
        options = {"names": rows.names, "cost_unit": rows.unit, "cost_weight": weight / rows.highest_cost}
        return ca.query_cascade(rows.scores, rows.costs, rows.contexts, **options)

    return grid(weighted, weight=list(weights))


def _policies_for_queries(envs: Grid, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the policies for `envs = queries(**settings)`: learners, rules fitted to rows not served, and references fitted to the served rows."""
    train, _ = _halves(settings)
    weights = [float(one.cost_weight) for one in envs.objects]
    fitted = _queries(train, [w * train.highest_cost for w in weights]).objects
    return {
        "COSMOS": grid(learner, index=_REPLAY_BONUSES, fit=STREAMING),
        "greedy, warm 30": ca.Greedy(fit=STREAMING, exploration=WarmUp(30)),
        _FITTED: _by_weight(envs, map(ca.TrueIndexSearch, fitted)),
        **_baselines(envs, _tuned(train, weights), [ca.Frugal.fit(train.scores, w * train.costs) for w in weights]),
        _HINDSIGHT: ca.TrueIndexSearch.of,
    }


_SETTINGS_OF_QUERIES = {"data": "standin", "weights": _WEIGHTS, "directions": 8, "models": None, "costs": None}
QUERIES = Experiment("cascade/queries", "Linear indices on the queries of a table with features, each once (--data FILE)",
    (Case(queries, _policies_for_queries, 1001, "queries", _SETTINGS_OF_QUERIES, record_every=50, record=_RECORD,
        one_pass=lambda envs: len(envs.objects[0].boxes.score) - 1),),
    64,
    claims(
        ("learns", "late in the pass COSMOS earns at most .005 less than a search by the linear indices of the other half",
         _as_much("queries", _FITTED)),
        *[(name.split()[0], f"COSMOS earns more than the {name}", cl.rising(*[(0.0, _lead("queries", w, name)) for w in _WEIGHTS]))
          for name in _BASELINES]),
    {"queries": _plane},
    notes="half of the rows are used, one of them for a first period in which all models are called and nothing counts; indices, threshold and "
        "list are fitted to the other half. The best single model, the one call and the indices in sample know the used rows. Contexts are 1 and "
        "the principal directions of the features (--set environment.directions=8). COSMOS' bonus is chosen and judged as in cascade/replay",
    source=OURS, smoke_horizon=200, stand_in=_STAND_IN)  # fmt: skip

EXPERIMENTS = (_TWO_BOXES, _ROOT, _THEORY, REPLAY, QUERIES)
