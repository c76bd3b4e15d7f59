"""COSMOS on recorded scores and costs of real queries, on a plane of cost and quality."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.cluster.vq import kmeans2

from jaxroute.analysis import metrics, plot
from jaxroute.core import checks
from jaxroute.data import RoutingTable, load_columns, load_table, standin
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import OURS, PAPER, STREAMING, WINDOW, learner, learns_scores
from jaxroute.experiments.claims import Measure, Verdict, all_hold
from jaxroute.experiments.measure import Measured, end, ends, highest, listed, mean_of, show
from jaxroute.problems import cascade as ca

# What a mean call of the dearest model counts, in units of the score.
_WEIGHTS = (0.02, 0.075, 0.2, 0.5)
_BONUSES = {"b = .1": 0.1, "b = .3": 0.3, "b = 1": 1.0}
_FRUGAL, _ONE = "frugal (tuned)", "one call"
_STAND_IN_COST = 0.075  # Mean cost of the dearest model of the stand-in.
_RESTARTS = 10


@dataclass(frozen=True)
class _Recorded:
    """scores, costs: `[N, K]`. groups: `[N]`. names: of the models. confidence: `[N, K]` or None. sure: models that have one."""

    scores: np.ndarray
    costs: np.ndarray
    groups: np.ndarray
    names: tuple[str, ...]
    confidence: np.ndarray | None = None
    sure: tuple[bool, ...] = ()


def clusters(features: np.ndarray, number: int) -> np.ndarray:
    """Groups `[N]` of rows by k-means: the best of ten starts from rows that are drawn once and for all."""
    points = np.unique(np.asarray(features, np.float64), axis=0)
    number, rng = min(number, len(points)), np.random.default_rng(0)
    best, least = np.zeros(len(features), int), np.inf
    for _ in range(_RESTARTS):
        start = points[rng.choice(len(points), number, replace=False)]
        centres, label = kmeans2(np.asarray(features, np.float64), start, minit="matrix", iter=50, missing="warn")
        spread = float(np.square(features - centres[label]).sum())
        if spread < least:
            best, least = label, spread
    return best


def _numbered(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _grouped(table: RoutingTable, by: str, number: int) -> np.ndarray:
    checks.one_of("by", by, ("features", "groups"))
    if by == "features" and table.features is not None:
        return _numbered(clusters(np.asarray(table.features), number))
    if by == "groups" and table.groups is None:
        raise ValueError("by must be 'features' where the file has no groups, got 'groups'")
    return np.zeros(table.num_queries, int) if table.groups is None else _numbered(table.groups)


def _pairs(name: str, value: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...] | None:
    if value is not None and not (isinstance(value, Mapping) and value):
        raise ValueError(f"{name} must map names of models to values, got {checks.show(value)}")
    return None if value is None else tuple(value.items())


@functools.lru_cache(maxsize=4)
def _recorded(data: str, by: str | None, number: int, models: Any, costs: Any, columns: Any) -> _Recorded:
    """The rows of a file, with costs in mean calls of the dearest model. columns: of scores, sizes and confidences, as pairs."""
    if columns[0] is not None:
        found = _from_columns(data, by, costs, *columns)
    else:
        if data == "standin":
            table = standin("routerbench", queries=2000)[0]
        else:
            table = load_table(data, costs=None if costs is None else dict(costs), missing="drop")
        table = table if models is None else table.subset(models=models)
        scores, groups = np.asarray(table.scores, float), _grouped(table, by or "features", number)
        found = _Recorded(scores, np.asarray(table.costs, float), groups, table.models)
    dearest = found.costs.mean(axis=0).max()
    if not dearest > 0:
        raise ValueError(f"costs must not all be zero, got {data} where they are")
    return replace(found, costs=found.costs / dearest)


def _from_columns(data: str, by: str | None, costs: Any, scores: Any, sizes: Any, confidence: Any) -> _Recorded:
    score_of, size_of, trust_of, price = (dict(x or ()) for x in (scores, sizes, confidence, costs))
    names = tuple(score_of)
    for name, given in (("costs", price), ("sizes", size_of), ("confidence", trust_of)):
        for model in given:
            checks.one_of(name, model, names)
    if set(price) != set(names):
        raise ValueError(f"costs must have a number for each model of scores ({', '.join(names)}), got {checks.show(price)}")
    numbers = [*score_of.values(), *size_of.values(), *trust_of.values()]
    read = load_columns(data, numbers, [by] if by else [])
    rows = len(read[numbers[0]])

    def matrix(columns: Mapping[str, str], otherwise: float) -> np.ndarray:
        return np.stack([read[columns[n]] if n in columns else np.full(rows, otherwise) for n in names], axis=1)

    score, trust = matrix(score_of, 0.0), matrix(trust_of, 0.0)
    cost = matrix(size_of, 1.0) * np.array([float(price[n]) for n in names])
    whole = np.isfinite(score).all(axis=1) & np.isfinite(cost).all(axis=1) & np.isfinite(trust).all(axis=1)
    if not whole.any():
        raise ValueError(f"{data} has no row with a number in each of {', '.join(numbers)}")
    groups = _numbered(read[by][whole]) if by else np.zeros(int(whole.sum()), int)
    sure = tuple(n in trust_of for n in names)
    return _Recorded(score[whole], cost[whole], groups, names, trust[whole] if trust_of else None, sure)


def _output_features(found: _Recorded) -> np.ndarray | None:
    """Features `[N, K, d]` of outputs where models say how sure they are: group, model, and what each that does so says."""
    if found.confidence is None:
        return None
    rows, number = found.scores.shape
    in_group = np.eye(found.groups.max() + 1)[found.groups]
    group = np.broadcast_to(in_group[:, None], (rows, number, in_group.shape[1]))
    model = np.broadcast_to(np.eye(number), (rows, number, number))
    own = model[..., list(found.sure)] * found.confidence[:, :, None]
    return np.concatenate([group, model[..., 1:], own], axis=-1)


def replay(
    data: str | None = None,
    cost_weight: float = 0.2,
    joint: bool = False,
    by: str | None = None,
    groups: int = 6,
    models: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
    scores: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
    confidence: Mapping[str, str] | None = None,
) -> ca.CascadeEnv:
    """A cascade of recorded queries; without a file, the cascade with six groups.

    Args:
      data: file of a table (`load_table`), or of columns that `scores` names; "standin" for generated prompts. cost_weight: what a mean
        call of the dearest model counts in units of the score. joint: all models answer the same query.
      by: "features" (k-means, default where there are some) or "groups" of a table; with `scores`, the name of a column.
      groups: of k-means. models: those to use, of a table. costs: per query of each model where a table has none; with `scores` per unit
        of `sizes`. scores, sizes, confidence: columns by model: of scores in [0, 1], of what is paid for, and of what an output says
        about its own score. With `confidence` scores are not seen but learned from rewards.

    Raises:
      ValueError: arguments do not fit each other or the file.
    """
    weight = float(checks.positive("cost_weight", cost_weight, ()))
    more = {"by": by, "models": models, "costs": costs, "scores": scores, "sizes": sizes, "confidence": confidence}
    if data is None:
        for name, value in more.items():
            if value is not None:
                raise ValueError(f"{name} must be None without data, got {checks.show(value)}")
        return ca.group_cascade(cost_weight=weight / _STAND_IN_COST)
    columns = tuple(_pairs(name, more[name]) for name in ("scores", "sizes", "confidence"))
    if scores is None and (sizes is not None or confidence is not None):
        raise ValueError("scores must name the columns of scores where sizes or confidence name columns, got None")
    count = checks.count("groups", groups)
    found = _recorded(str(data), by, count, None if models is None else tuple(models), _pairs("costs", costs), columns)
    return ca.replay_cascade(
        found.scores,
        found.costs,
        found.groups,
        cost_weight=weight,
        joint=joint,
        features=_output_features(found),
        names=found.names,
    )


def _policies(env: ca.CascadeEnv) -> dict[str, Any]:
    learned = env.evaluator is not None
    return {
        **{f"COSMOS, {name}": learns_scores(b, fit=WINDOW) if learned else learner(b) for name, b in _BONUSES.items()},
        "greedy, warm 30": ca.COSMOS(
            fit=WINDOW if learned else STREAMING, radius=ca.Practical(0.0, 0.0, 0.0), exploration=ca.WarmUp(30)
        ),
        _FRUGAL: ca.Frugal.tuned(env),
        "query all": ca.QueryAll(),
        "best single": ca.BestSingle.of,
        _ONE: ca.ContextSingle.of,
        "oracle": ca.Oracle.of,
    }


_SETTINGS: dict[str, Any] = {
    "data": None,
    "by": None,
    "groups": 6,
    "models": None,
    "costs": None,
    "scores": None,
    "sizes": None,
    "confidence": None,
}


def _case(weight: float, joint: bool) -> Case:
    return Case(
        replay,
        _policies,
        10_000,
        f"{'joint' if joint else 'independent'}-{weight:g}",
        {**_SETTINGS, "cost_weight": weight, "joint": joint},
        {"rows": "joint" if joint else "independent", "cost_weight": weight},
        record_every=500,
        record=("regret", "realised_regret", "reward", "cost", "utility", "queries"),
    )


def _rows(results: Results, kind: str) -> dict[float, xr.Dataset]:
    """The results of one mode, by cost weight."""
    where = [(d.attrs["coordinates"], d) for d in results.values()]
    return {c["cost_weight"]: d for c, d in where if c["rows"] == kind}


def _late(data: xr.Dataset, metric: str, policy: str) -> Measured:
    """Mean per request in the second half, with its standard error."""
    total = metrics.cumulative(data[[metric, "valid"]].sel(policy=policy), metric)
    times = data["time"].values
    half = int(np.argmin(np.abs(times - times[-1] / 2)))
    if half == len(times) - 1:
        return end(data, metric, policy)
    return mean_of((total.isel(time=-1) - total.isel(time=half)) / float(times[-1] - times[half]))


@all_hold("utility by cost weight, ")
def _oracle_is_best(results: Results) -> Iterator[Verdict]:
    for weight, data in _rows(results, "independent").items():
        pairs = metrics.paired(data, "utility", "oracle").isel(time=-1)
        gap = float((pairs["mean"] - 3.0 * pairs["stderr"]).max())
        best = str(pairs["policy"].values[int(np.argmax(pairs["mean"].values))])
        oracle, other = ends(data, "utility", ("oracle", best)).values()
        yield f"{weight:g}: {show(oracle)}, next {best} {show(other)}", gap <= 0.0


def _against(rivals: Sequence[str], kind: str, slack: float) -> Measure:
    """Whether COSMOS with the best of its bonuses earns as much as each rival, up to a slack, at every cost weight, late in a run."""

    @all_hold("utility in the second half by cost weight, ")
    def measure(results: Results) -> Iterator[Verdict]:
        for weight, data in _rows(results, kind).items():
            bonuses = {f"COSMOS, {b}": _late(data, "utility", f"COSMOS, {b}") for b in _BONUSES}
            others = {p: _late(data, "utility", p) for p in rivals}
            best = highest(bonuses)
            with_slack = Measured(bonuses[best].mean + slack, bonuses[best].error)
            text = f"{weight:g}: {best} {show(bonuses[best])}, {listed(others)}"
            yield text, all(with_slack.above(v, by=-2.0) for v in others.values())

    return measure


def _plane(results: Results):
    kinds = [k for k in ("independent", "joint") if _rows(results, k)]
    figure, axes = plot.panels(2 * len(kinds), columns=2)
    for row, kind in zip(axes.reshape(-1, 2), kinds, strict=True):
        data = _rows(results, kind)
        for place, policy in enumerate(next(iter(data.values()))["policy"].values):
            points = [(_late(d, "cost", policy).mean, _late(d, "reward", policy).mean) for d in data.values()]
            style = {"marker": "osD^vP*X"[place % 8], "color": f"C{place}", "markersize": 4, "linewidth": 1}
            row[0].plot(*zip(*points, strict=True), label=policy, **style)
            row[1].plot(
                list(data),
                [_late(d, "utility", policy).mean - _late(d, "utility", "oracle").mean for d in data.values()],
                **style,
            )
        row[0].set_xlabel("mean cost per request")
        row[0].set_ylabel("mean score of what is deployed")
        row[0].set_title(
            f"{kind} rows, second half of {int(next(iter(data.values()))['time'][-1]):,} rounds", loc="left", fontsize=9
        )
        row[1].set_xlabel("cost weight")
        row[1].set_ylabel("utility minus the oracle's")
        plot.log_axis(row[1], "x")
        row[1].axhline(0.0, color="#555555", linewidth=0.8)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


REPLAY = Experiment(
    "cascade/replay",
    "Recorded scores and costs of real queries, on a plane of cost and quality (--data FILE)",
    tuple(_case(weight, joint) for joint in (False, True) for weight in _WEIGHTS),
    64,
    (
        Claim(
            "oracle",
            "with independent rows no policy beats Weitzman's rule with the true indices",
            f"{PAPER}, proposition 3.1",
            _oracle_is_best,
        ),
        Claim(
            "single",
            "late in a run COSMOS earns at least as much as the best model alone",
            OURS,
            _against(("best single",), "independent", 0.0),
        ),
        Claim("frugal", "and as the cascade with a tuned threshold", OURS, _against((_FRUGAL,), "independent", 0.0)),
        Claim(
            "joint",
            "also where all models answer the same query, up to .01",
            OURS,
            _against(("best single", _FRUGAL), "joint", 0.01),
        ),
    ),
    {"replay": _plane},
    source=OURS,
    notes="joint rows: outputs depend on each other, so that indices are not optimal, and only reward, cost and realised regret mean what they "
    "say; a table's queries are grouped by k-means on their features (--set environment.by=groups for its own groups), other columns as in "
    '--set environment.scores=\'{"small": "perf_small", "large": "perf_large"}\' --set environment.costs=\'{"small": 1, "large": 20}\' '
    "--set environment.by=dataset. Without a file, the cascade with six groups, whose outputs are always independent",
    smoke_horizon=200,
)
