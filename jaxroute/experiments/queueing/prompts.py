"""Queues of prompts: figures 3, 6 and 7 of ACQB on stand-ins for its data, and on the user's table."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, metrics, plot
from jaxroute.core import checks
from jaxroute.data import RoutingTable, standin
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.estimators.contrastive import CONTRASTIVE_PRESETS, fit_projection
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least
from jaxroute.experiments.measure import Measured, listed, power
from jaxroute.experiments.pictures import Panel, panels_of
from jaxroute.experiments.queueing.random_queues import PAPER, RECORD, gap, less, not_learning, over_heads
from jaxroute.plot import style
from jaxroute.plot.axes import grid_lines, marker_places, numbers
from jaxroute.problems import queueing as qu

LOADS = {1: (0.7, 0.8, 0.9), 2: (0.75, 0.85, 0.95)}
_CONSTANTS: dict[str, Any] = {"c1": 2.0, "curvature": 0.05, "ridge": 0.1}
NOTES = (
    "kappa .05, lambda_0 .1, c1 2 and rho .1 are ours; ACQB-CL has four heads, trained by the paper's preset for the data, and in our variant "
    "'longer' by 60 prompts per model in 100 epochs; standard errors include heads and seeds; ACQB's estimate follows eq. (4) by five "
    "first-order steps per round, with an error of its logits of .012 (root mean square) in the worst of 11 models after 1,000 rounds of figure 7; Q-UCB and Q-ThS "
    "explore in each of the first 1,875 rounds with 11 models, 2,596 with 14, 37,218 with 112: until then they are the same policy"
)
# Trainings of ACQB-CL's head (a projection of the features): changes of the paper's preset for the data.
TRAININGS: dict[str, Any] = {"ACQB-CL": {}, "ACQB-CL, longer": {"per_model": 60, "epochs": 100, "batch": None}}
# Seeds of the training, for the choice of prompts and the initial parameters.
_HEADS = (0, 1, 2, 3)


@functools.lru_cache(maxsize=4)
def _tables(
    models: str, data: str | None, embeddings: str | None, costs: tuple[tuple[str, float], ...] | None, dim: int
) -> tuple[RoutingTable, RoutingTable]:
    """Returns two tables: the prompts that arrive in the queue, and other prompts for training projections of the features. Arguments as for `data_queue`."""
    checks.one_of("models", models, CONTRASTIVE_PRESETS)
    if data in (None, "standin"):
        for name, value in (("embeddings", embeddings), ("costs", costs)):
            if value is not None:
                raise ValueError(f"{name} must be None without a file of data, got {checks.show(value)}")
        return standin(models, preset="semantic-noise", dim=dim)
    table = read_experiment_log(data, None if costs is None else dict(costs), features=embeddings).table
    if table.features is None:
        raise ValueError(
            f"{data} has no features, of text or otherwise: give embeddings, a file of them (--set environment.embeddings=FILE)"
        )
    order = np.random.default_rng(0).permutation(table.num_queries)
    pool = min(1000, (2 * table.num_queries) // 3)
    prompts = np.arange(table.num_queries) if table.prompts is None else table.prompts
    in_pool = np.isin(prompts, prompts[order[:pool]])[order]  # Copies of a prompt stay together.
    return table.subset(rows=order[in_pool]), table.subset(rows=order[~in_pool])


def _pairs(costs: Mapping[str, float] | None) -> tuple[tuple[str, float], ...] | None:
    if costs is not None and not isinstance(costs, Mapping):
        raise ValueError(f"costs must map names of models to costs, got {checks.show(costs)}")
    return None if costs is None else tuple(costs.items())


def data_queue(
    models: str = "sprout",
    data: str | None = None,
    embeddings: str | None = None,
    costs: Mapping[str, float] | None = None,
    load: float = 0.8,
    num_offered: int = 1,
    dim: int = 64,
    cost_weight: float = 0.1,
    horizon: int = 5000,
) -> qu.QueueEnv:
    """Makes a queue of prompts from a file, or from the stand-in for a public data set.

    Args:
      models: "sprout", "embedllm" or "routerbench": data set that the stand-in replaces, and key of the training's settings (`CONTRASTIVE_PRESETS`).
      data: file of a log (`jaxroute.data.read_log`), of which at most 1,000 rows, and at most two thirds, become the pool; None or "standin" for the
        stand-in.
      embeddings: file of features; None for the features of the log, or of its text.
      costs: costs per query of each model, if the file has none.
      load: arrival rate, in queries per round.
      num_offered: number of answers offered to the user of a prompt, `K` in the paper.
      dim: number of the stand-in's features.
      cost_weight: weight of costs, rho in the paper.
      horizon: number of rounds.
    """
    pool, _ = _tables(models, data, embeddings, _pairs(costs), dim)
    return qu.table_queue(pool, arrival_rate=load, num_offered=num_offered, horizon=horizon, cost_weight=cost_weight)


@functools.lru_cache(maxsize=8)
def _projected(training: str, cost_weight: float, models: str, *about: Any) -> list[np.ndarray]:
    """Trains projections ("heads") as `TRAININGS[training]`, `about` as in `_tables`. Returns for each the projected prompts, features `[d, P]`."""
    pool, offline = _tables(models, *about)
    probability, _ = qu.departure_probability(offline.scores, qu.divide_costs(offline.costs), cost_weight=cost_weight)
    features = np.asarray(offline.features)
    size = features.shape[1]
    preset: dict[str, Any] = {**CONTRASTIVE_PRESETS[models], **TRAININGS[training]}
    heads = (fit_projection(features, probability, width=2 * size, out=size, seed=seed, **preset) for seed in _HEADS)
    return [np.ascontiguousarray(np.asarray(head(np.asarray(pool.features))).T) for head in heads]


def learners(env: qu.QueueEnv, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the learning policies by name: CQB-eps, ACQB, and an ACQB-CL for each training, with an axis `head` of trained feature projections."""
    about = (settings["models"], settings["data"], settings["embeddings"], _pairs(settings["costs"]), settings["dim"])

    def with_head(head: int, training: str) -> qu.ACQB:
        return qu.ACQB(features=_projected(training, settings["cost_weight"], *about)[head], **_CONSTANTS)

    others = {name: value for name, value in _CONSTANTS.items() if name != "c1"}
    return {
        "CQB-eps": qu.CQBEpsilon(trigger=qu.PhaseThenCoin.for_data(env.spec.rounds, _CONSTANTS["c1"]), **others),
        "ACQB": qu.ACQB(**_CONSTANTS),
        **{name: grid(with_head, head=list(_HEADS), training=name) for name in TRAININGS},
    }


def _all_policies(env: qu.QueueEnv, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**not_learning(env.num_offered), **learners(env, settings)}


def case_name(num_offered: int, load: float) -> str:
    return f"K{num_offered}-load{load:g}"


def data_case(
    models: str,
    num_offered: int,
    load: float,
    horizon: int = 5000,
    dim: int = 64,
    policies: Any = _all_policies,
    data: Any = None,
) -> Case:
    """Makes a case of a queue of prompts at one load (arrival rate); arguments as for `data_queue`."""
    settings: dict[str, Any] = {"models": models, "data": data, "embeddings": None, "costs": None, "cost_weight": 0.1}
    settings |= {"load": load, "num_offered": num_offered, "dim": dim}
    where = {"K": num_offered, "load": load}
    name, rows = case_name(num_offered, load), lambda env: env.spec.prompts
    return Case(data_queue, policies, horizon, name, settings, where, record=RECORD, rows=rows)


def _growth(data: xr.Dataset, policy: str) -> Measured:
    """Returns the queue length at the end of the run minus the length halfway, in queries."""
    runs = metrics.pick(data, "queue_length").sel(policy=policy)
    return over_heads(runs.isel(time=-1) - runs.isel(time=len(data["time"]) // 2 - 1))


# A queue counts as no longer growing if it grows by at most this number of queries in half of the rounds.
_STILL = 1.0


def _stable(results: Results) -> Finding:
    """Tests the claim that queues of learning policies hardly grow in the second half of the run, while the queue of the policy Random grows."""
    parts, grows, stops = [], [], []
    for name, data in results.items():
        growth = {policy: _growth(data, policy) for policy in ("Random", "ACQB", "ACQB-CL")}
        parts.append(f"{name} {listed(growth)}")
        grows.append(growth.pop("Random").above(_STILL))
        stops += [value.at_most(_STILL) for value in growth.values()]
    rule = f"growth in the second half, above {_STILL:g} for Random at some load, and for the others at none: "
    return rule + "; ".join(parts), [at_least(1, grows), *stops]


@all_hold("final queues, ACQB's and ACQB-CL's below the others': ")
def _shorter(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        runs, shown = metrics.pick(data, "queue_length").isel(time=-1), ("ACQB", "ACQB-CL", *not_learning(1))
        ends = {str(p): over_heads(runs.sel(policy=p)) for p in runs["policy"].values if p in shown}
        others = [policy for policy in ends if policy not in ("Optimal", "ACQB", "ACQB-CL")]
        gaps = [gap(data, "queue_length", policy, other) for policy in ("ACQB", "ACQB-CL") for other in others]
        yield f"{name} {listed(ends)}", [one.below(0.0) for one in gaps]


@all_hold("log-log slope of the regret, that of ACQB and ACQB-CL below .95: ")
def _sublinear(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        late = metrics.pick(data, "routing_regret").isel(time=data["time"].values >= 0.2 * float(data["time"][-1]))
        slopes = {p: over_heads(late.sel(policy=p), lambda runs: power(runs, "time")) for p in ("ACQB", "ACQB-CL", "Random")}
        shown = ", ".join(f"{policy} {value}" for policy, value in slopes.items())
        yield f"{name} {shown}", [slopes[p].below(0.95) for p in ("ACQB", "ACQB-CL")]


_CLAIMS = (
    ("stable", "the queues of ACQB and ACQB-CL stop growing (by at most one query in the second half), while that of Random still grows", _stable),
    ("shorter", "their final queues are shorter than those of policies that do not learn from contexts", _shorter),
    ("sublinear", "their regret is sublinear", _sublinear),
    ("beats-cqb", "ACQB has less regret than CQB-eps at every load", less("ACQB", "CQB-eps")),
    ("contrastive", "ACQB-CL, trained as in the paper, has less regret than ACQB at every load", less("ACQB-CL", "ACQB")),
    ("longer", "ACQB-CL, trained longer than in the paper, has less regret than ACQB at every load", less("ACQB-CL, longer", "ACQB")),
)  # fmt: skip

# Figures.


@style.styled
def _draw_means(data: xr.Dataset, metric: str, ax: Any, title: str | None, minus: str | None = None) -> None:
    """Draws mean curves of the policies that learn from contexts, or differences to the policy `minus`; errors are over seeds and trained heads."""
    runs, about = metrics.pick(data, metric), data[metric].attrs
    runs = runs if minus is None else runs - runs.sel(policy=minus)
    times, paired = runs["time"].values, "" if minus is None else f"\nminus that of {minus}"
    for policy in ("CQB-eps", *TRAININGS, "ACQB"):
        middle, error = _curve(runs.sel(policy=policy))
        look = plot.line_style(ax, policy)
        ax.plot(times, middle, label=policy, markevery=marker_places(times, False, 0), **look)
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.18, "linewidth": 0, "zorder": 2}
        ax.fill_between(times, middle - 2 * error, middle + 2 * error, **band)
    numbers(ax.xaxis)
    grid_lines(ax)
    ax.set_xlim(0, 1.02 * times[-1])
    if runs.min() >= 0:
        ax.set_ylim(bottom=0.0)
    ax.set_xlabel(f"round\nmean ± 2 s.e. of {runs.sizes['seed']} seeds and {runs.sizes.get('head', 1)} heads")
    ax.set_ylabel(f"{style.wrapped(about.get('long_name', metric), 34)}{paired} ({about.get('units', '')})")
    style.legend(ax, title, own=False)


def _curve(runs: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Returns mean and standard error at each time, `[time]` each, over seeds and, if there are any, trained heads (errors as in `over_heads`)."""
    axes = [axis for axis in ("seed", "head") if axis in runs.dims]
    means = {axis: runs.mean([a for a in axes if a != axis]) for axis in axes}
    squares = sum(one.var(axis, ddof=1) / one.count(axis) for axis, one in means.items())
    return runs.mean(axes), squares**0.5


_ROWS = (
    Panel("queue_length", band="deviation", policies=lambda data: [p for p in data["policy"].values if p not in TRAININGS]),
    Panel("queue_length", _draw_means),
    Panel("routing_regret", _draw_means),
    Panel("routing_regret", _draw_means, minus="ACQB"),
)


def pictures(name: str, loads: Mapping[int, Sequence[float]], baselines: bool = True) -> dict[str, Any]:
    """Makes a figure for each number of offered answers, with a column for each load (arrival rate). Returns drawing functions by name.

    The rows are: queues of all policies except ACQB-CL; queues and regret of the policies that learn from contexts.

    Args:
      name: name of the figure.
      loads: loads for each number of offered answers.
      baselines: whether to draw the first row, which needs policies that do not learn.
    """
    rows = _ROWS[0 if baselines else 1 :]
    cases = {f"-K{k}" * (len(loads) > 1): [case_name(k, load) for load in of_k] for k, of_k in loads.items()}
    return {name + which: panels_of(rows=rows, columns="case", cases=some) for which, some in cases.items()}


def claims(only: Sequence[str] = (), source: str = f"{PAPER}, section 6.2") -> tuple[Claim, ...]:
    """Makes the claims about queues of prompts: those with ids in `only` (default: all); `source` is their place in the paper."""
    chosen = [claim for claim in _CLAIMS if not only or claim[0] in only]
    return tuple(Claim(name, text, "ours" if name == "longer" else source, measure) for name, text, measure in chosen)


def _figure(number: int, models: str, name: str, size: int, seeds: int, horizon: int, dim: int) -> Experiment:
    where = f"{PAPER}, figure {number}, section 6.2 and appendix C.2"
    return Experiment(
        f"queueing/figure-{number}",
        f"Queue length and regret with {size} models",
        tuple(data_case(models, k, load, horizon, dim) for k, loads in LOADS.items() for load in loads),
        seeds,
        claims(source=where),
        pictures(f"figure-{number}", LOADS),
        # A round with many models and features takes milliseconds.
        smoke_seeds=2 if size > 100 else 4,
        smoke_horizon=12 if size > 100 else 60,
        source=where,
        stand_in=f"a generated stand-in for {name}",
        notes=f"not the paper's data: without --data, a stand-in of 1,000 generated prompts (semantic noise, soft scores) with {dim} features (paper: 384) "
        f"over {horizon:,} rounds (paper: 5,000); --data FILE uses your log, with its embeddings or features of its text unless --set environment.embeddings=FILE specifies others; "
        + NOTES,
    )


# The same questions about any table, rather than the paper's statements about its data.

ASKED = "ours: about the table of the run"
FIGURES = (
    _figure(3, "sprout", "SPROUT-o3mini", 14, 16, 5000, 64),
    _figure(6, "embedllm", "EmbedLLM", 112, 4, 5000, 384),
    _figure(7, "routerbench", "RouterBench", 11, 16, 5000, 64),
)
TABLE = Experiment("queueing/table", "ACQB on the rows of a table, at three loads (--data FILE)",
    tuple(data_case("routerbench", 1, load, data="standin") for load in LOADS[1]), 32, claims(source=ASKED),
    pictures("table", {1: LOADS[1]}), source=f"{PAPER}, section 6.2", stand_in="a generated stand-in for RouterBench",
    notes="at most 1,000 rows, and at most two thirds, are the pool, and the heads of ACQB-CL learn from the others; if the file has no "
        "costs, specify the cost per query of each model by --set environment.costs='{\"model\": 0.1, ...}'; " + NOTES,
    smoke_horizon=60, any_table=True)  # fmt: skip
