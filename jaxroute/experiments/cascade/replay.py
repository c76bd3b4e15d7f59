"""COSMOS on recorded scores and costs of queries, compared with rules fitted to other rows and with the best rule in sample."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import plot
from jaxroute.core import checks
from jaxroute.engine.grid import Grid, grid
from jaxroute.estimators.glm import FrozenGLM, fit_glm
from jaxroute.estimators.links import LOGISTIC
from jaxroute.experiments.base import Case, Results
from jaxroute.experiments.cascade import paper as c
from jaxroute.experiments.cascade.paper import COSMOS, claims, study
from jaxroute.experiments.claims import Finding, Measure, Quantity, all_hold, no_more, rising, with_parameters
from jaxroute.experiments.measure import Measured, highest, late_runs, mean_of, show
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.optimum import TooManyHistoriesError
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.sources.rows import RecordedRows

# Cost weights: price of a mean call of the most expensive model in units of the score. Exploration bonuses of COSMOS, of which the best is used.
_WEIGHTS, _BONUSES = [0.02, 0.075, 0.2, 0.5], [0.1, 0.3, 1.0]
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
      weights: cost weights: the loss of score that a mean call of the most expensive model counts as.
      joint: whether all models answer the same query; otherwise each model answers an independent one of the same group.
      data, by, groups, models, costs, scores, sizes, confidence: as in `cascade.recorded_rows`.
    """
    rows = _halves(locals())[1]

    def weighted(weight: float) -> ca.CascadeEnv:
        options = {"joint": joint, "features": rows.features, "names": rows.names, "cost_unit": rows.unit}
        return ca.replay_cascade(rows.scores, rows.costs, rows.groups, cost_weight=weight / rows.highest_cost, **options)

    return grid(weighted, weight=checks.positive("weights", np.asarray(list(weights))).tolist())


def _by_weight(envs: Grid, policies: Iterable[Any]) -> Callable[[ca.CascadeEnv], Any]:
    """Returns a function that maps an environment of the grid `envs` to the policy for its cost weight; `policies` has one per environment."""
    scale = np.asarray([one.cost_weight for one in envs.objects], np.float32)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *policies)

    def of(env: ca.CascadeEnv) -> Any:
        place = jnp.argmin(jnp.abs(jnp.asarray(scale) - env.cost_weight))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[place], stacked)

    return of


def _tuned(rows: RecordedRows, weights: Sequence[float], score: Any = None, **more: Any) -> list[ca.Frugal]:
    """Makes a cascade for each cost weight that calls models by increasing cost and stops at the score threshold that is best on `rows`."""
    order = np.argsort(np.argsort(rows.costs.mean(axis=0), kind="stable")).astype(np.float32)
    return [ca.Frugal(ca.best_threshold(rows.scores, w * rows.costs, score)[0], order, **more) for w in weights]


def _baselines(envs: Grid, tuned: Iterable[ca.Frugal], lists: Iterable[ca.Frugal]) -> dict[str, Any]:
    policies = (ca.BestSingle.of, _by_weight(envs, tuned), _by_weight(envs, lists))
    return {**dict(zip(_BASELINES, policies, strict=True)), "one call": ca.ContextSingle.of}


def _policies(envs: Grid, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the learners, the baselines fitted to the other half of the rows, and a reference fitted to the very rows that are served."""
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
    made, fit = (c.learns_scores, c.WINDOW) if more else (c.learner, c.STREAMING)
    return {
        "COSMOS": grid(made, index=_BONUSES, fit=fit),
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
    """Returns the name of the reference policy, which was fitted to the very rows that are served."""
    return next(str(p) for p in data["policy"].values if p in (_ORACLE, _PLAN, _LIST, _HINDSIGHT))


def _judged(data: xr.Dataset, metric: str, policy: str) -> xr.DataArray:
    """Returns a metric's mean per request in the second half of each run, for seeds of odd index. COSMOS has the exploration bonus that is best on the other seeds."""
    runs, place = late_runs(data, metric, policy), 0
    if policy == "COSMOS":
        place = int(late_runs(data, "utility", policy).isel(seed=slice(0, None, 2)).mean("seed").argmax("index"))
    return (runs.isel(index=place) if "index" in runs.dims else runs).isel(seed=slice(1, None, 2))


def _ahead(data: xr.Dataset, policy: str, other: str) -> Measured:
    """Returns the utility per request of `policy` minus that of `other` in the second half of the runs, paired by seed."""
    return mean_of(_judged(data, "utility", policy) - _judged(data, "utility", other))


def _lead(kind: str, weight: float, baseline: str) -> Quantity:
    """Makes a quantity: the utility of COSMOS minus that of a baseline in the case `kind`, at one cost weight."""
    return Quantity(f"weight {weight:g}:", lambda results: _ahead(results[kind].sel(weight=weight), "COSMOS", baseline))


@with_parameters
@all_hold("nearest policy: ")
def _unbeaten(results: Results, kind: str) -> Iterator[Finding]:
    """Tests the claim that no policy has noticeably more utility than the reference, which was fitted to the very rows that are served."""
    for weight in _WEIGHTS:
        data = results[kind].sel(weight=weight)
        best = _zero(data)
        leads = {str(p): _ahead(data, str(p), best) for p in data["policy"].values if p != best}
        first = highest(leads)
        yield f"weight {weight:g}: {first} {show(leads[first])}", [v.at_most(_LITTLE) for v in leads.values()]


def _as_much(kind: str, baseline: str) -> Measure:
    """Makes the test of the claim that COSMOS has at least the utility of a baseline, up to a small margin, in the case `kind` at every cost weight."""
    return no_more(*[(-_LITTLE, _lead(kind, weight, baseline)) for weight in _WEIGHTS])


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


_CLAIMS = claims(
    ("oracle", "with independent rows no policy beats the oracle by more than .005",
     _unbeaten("independent"), f"{COSMOS}, proposition 3.1"),
    ("plan", "with joint rows no policy beats the optimal plan by more than .005",
     _unbeaten("joint")),
    *[(f"{name}-{kind}", f"{kind} rows: late in a run COSMOS earns at most .005 less than the {name}",
       _as_much(kind, name)) for kind in _KINDS for name in _BASELINES],
)  # fmt: skip
REPLAY = study("cascade/replay", "Cost and quality on recorded scores and costs of a table (--data FILE)",
    tuple(_case(kind) for kind in _KINDS), 64, _CLAIMS, {"replay": _plane},
    notes="half of the rows of each group are used; threshold and list are fitted to the other half, the best in sample knows the used rows. "
        "The bonus of COSMOS (.1, .3 or 1) is chosen on every other seed, and all is judged on the others. With joint rows outputs are dependent, "
        "indices are not optimal, and a realised regret against them may be negative. Queries are grouped by k-means on their features "
        "(--set environment.by=groups for the categories of the table, which are the default without embedding); for other columns, use "
        '--set environment.scores=\'{"small": "perf_small", "large": "perf_large"}\' --set environment.costs=\'{"small": 1, "large": 20}\' '
        "--set environment.by=dataset",
    smoke_horizon=200, stand_in=_STAND_IN)  # fmt: skip

# Each query once, with its features instead of groups.


def queries(
    data: str = "standin",
    weights: Sequence[float] = _WEIGHTS,
    directions: int = 8,
    models: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
) -> Grid:
    """Makes a grid of environments, one per cost weight, that serve each query once. Half of the rows are used; the other half is for fitting baselines.

    Args:
      weights: cost weights: the loss of score that a mean call of the most expensive model counts as.
      data, directions, models, costs: as in `cascade.recorded_rows`.
    """
    return _queries(_halves(locals())[1], checks.positive("weights", np.asarray(list(weights))).tolist())


def _queries(rows: RecordedRows, weights: Sequence[float]) -> Grid:
    """Makes a grid of environments, one per cost weight, that serve each of the rows once."""

    def weighted(weight: float) -> ca.CascadeEnv:
        options = {"names": rows.names, "cost_unit": rows.unit, "cost_weight": weight / rows.highest_cost}
        return ca.query_cascade(rows.scores, rows.costs, rows.contexts, **options)

    return grid(weighted, weight=list(weights))


def _policies_for_queries(envs: Grid, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the learners, the baselines fitted to the other half of the rows, and a reference that knows the served rows."""
    train, _ = _halves(settings)
    weights = [float(one.cost_weight) for one in envs.objects]
    fitted = _queries(train, [w * train.highest_cost for w in weights]).objects
    return {
        "COSMOS": grid(c.learner, index=_BONUSES, fit=c.STREAMING),
        "greedy, warm 30": ca.Greedy(fit=c.STREAMING, exploration=WarmUp(30)),
        _FITTED: _by_weight(envs, map(ca.TrueIndexSearch, fitted)),
        **_baselines(envs, _tuned(train, weights), [ca.Frugal.fit(train.scores, w * train.costs) for w in weights]),
        _HINDSIGHT: ca.TrueIndexSearch.of,
    }


_SETTINGS_OF_QUERIES = {"data": "standin", "weights": _WEIGHTS, "directions": 8, "models": None, "costs": None}
QUERIES = study("cascade/queries", "Linear indices on the queries of a table with features, each once (--data FILE)",
    (Case(queries, _policies_for_queries, 1001, "queries", _SETTINGS_OF_QUERIES, record_every=50, record=_RECORD,
        one_pass=lambda envs: len(envs.objects[0].boxes.score) - 1),),
    64,
    claims(
        ("learns", "late in the pass COSMOS earns at most .005 less than a search by the linear indices of the other half",
         _as_much("queries", _FITTED)),
        *[(name.split()[0], f"COSMOS earns more than the {name}", rising(*[(0.0, _lead("queries", w, name)) for w in _WEIGHTS]))
          for name in _BASELINES]),
    {"queries": _plane},
    notes="half of the rows are used, one of them for a first period in which all models are called and nothing counts; indices, threshold and "
        "list are fitted to the other half. The best single model, the one call and the indices in sample know the used rows. Contexts are 1 and "
        "the principal directions of the features (--set environment.directions=8). COSMOS' bonus is chosen and judged as in cascade/replay",
    smoke_horizon=200, stand_in=_STAND_IN)  # fmt: skip
