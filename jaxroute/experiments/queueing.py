"""Experiments on ACQB, a policy for queues of prompts: random queues, theory, and stand-ins for the data of its paper or the user's table."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, metrics, plot
from jaxroute.core import checks
from jaxroute.data import RoutingTable, standin
from jaxroute.data.logs.log import read_experiment_log
from jaxroute.estimators.contrastive import CONTRASTIVE_PRESETS, fit_projection
from jaxroute.estimators.running import mnl_radius
from jaxroute.experiments import measure as ms
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least, less
from jaxroute.experiments.pictures import Panel, panels_of, side_by_side
from jaxroute.plot import style
from jaxroute.plot.axes import grid_lines, marker_places, numbers
from jaxroute.problems import queueing as qu

PAPER = "ACQB"
RECORD = ("queue_length", "queue_regret", "routing_regret", "joint_regret", "departures", "retrials")
RECORD += ("mean_queue", "arrivals", "explored", "sojourn", "peak")


def not_learning(num_offered: int) -> dict[str, Any]:
    """Makes the policies of appendix B.3 of the paper on ACQB, which do not learn how users choose among `num_offered` answers."""
    single = {"Q-UCB": qu.QUCB(), "Q-ThS": qu.QThS()} if num_offered == 1 else {}
    return {"Optimal": qu.Optimal.of, "Random": qu.Random(), **single}


def _policies(env: Any) -> dict[str, Any]:
    return {**not_learning(env.num_offered), "CQB-eps": qu.CQBEpsilon.of, "ACQB": qu.ACQB()}


def _case(num_offered: int, num_models: int = 5, slack: float = 0.03) -> Case:
    where = {"K": num_offered, "N": num_models, "slack": slack}
    settings: dict[str, Any] = {"num_offered": num_offered, "num_models": num_models, "slack": slack}
    name = "-".join(f"{axis}{value:g}" for axis, value in where.items())
    return Case(qu.RandomQueues, _policies, 1000, name, settings, where, record=RECORD)


@all_hold("regret, ACQB's below that of the policies without contexts: ")
def _least_regret(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        values = ms.ends(data, "routing_regret", [p for p in data["policy"].values if p != "Optimal"])
        others = [value for policy, value in values.items() if policy not in ("ACQB", "CQB-eps")]
        yield f"{name} {ms.listed(values)}", [values["ACQB"].below(value) for value in others]


@all_hold("final queues: ")
def _final_queue(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        queues = ms.ends(data, "queue_length", data["policy"].values)
        ours, others = queues["ACQB"], [queue for policy, queue in queues.items() if policy not in ("ACQB", "Optimal")]
        yield f"{name} {ms.listed(queues)}", [other.at_least(ours, margin=0.1 * abs(ours.mean)) for other in others]


@all_hold("queue above the optimal policy's: maximum, and fall after it: ")
def _hump(results: Results) -> Iterator[Finding]:
    for name, data in ms.with_coordinates(results, K=1).items():
        runs = metrics.pick(data, "queue_regret").sel(policy="ACQB")
        # The maximum is located on every other run and measured on the other runs, because the largest of several means is biased.
        top = int(runs[::2].mean("seed").argmax("time"))
        runs = runs[1::2]
        fall = ms.mean_of(runs.isel(time=top, drop=True) - runs.isel(time=-1, drop=True))
        text = f"{name} {ms.mean_of(runs.isel(time=top))} at round {int(data['time'][top])}, {fall}"
        yield text, fall.changed(number=data.sizes["seed"]).above(0.0)


@all_hold("log-log slope of the regret: ")
def _linear(results: Results) -> Iterator[Finding]:
    for name, data in ms.with_coordinates(results, K=1).items():
        for policy in ("Random", "Q-UCB", "Q-ThS"):
            slope = ms.late_slope(data, "routing_regret", policy, 0.1 * float(data["time"][-1]), every_time=True)
            yield f"{name} {policy} {slope}", slope.within(0.95, 1.05)


_ROWS = (
    Panel("queue_length", band="deviation"),
    Panel("queue_regret", policies=["CQB-eps", "ACQB"]),
    Panel("routing_regret", band="deviation"),
    Panel("routing_regret", plot.difference, minus="ACQB", policies=["CQB-eps"]),
)
_NOTES = "kappa, lambda_0 and c1 are not in the paper; here they are .3, 1 and 1; the paper's 10 runs cannot distinguish ACQB and CQB-eps; "
_NOTES += "with 3, 5 and 10 models and one answer, assumption 4 accepts 25, 37 and 57 % of the drawn contexts (6, 14 and 40 % in the worst of 256 "
_NOTES += "instances), so that some 2 % of the runs with 3 models find none, are invalid and left out; Q-UCB and Q-ThS explore in each of the "
_NOTES += "first 289, 621 and 1,646 rounds with 3, 5 and 10 models: until then they are the same policy, which is the random one except for the order"
_WHERE = f"{PAPER}, section 6.1 and appendix C.1"
_CLAIMS = (
    Claim("best", "ACQB has less regret than the policies that ignore contexts", _WHERE, _least_regret),
    Claim("beats-cqb", "ACQB has less regret than CQB-eps", _WHERE, less("ACQB", "CQB-eps")),
    Claim("hump-lower", "the queue of ACQB is shorter than that of CQB-eps early in the run (one answer)", _WHERE,
          less("ACQB", "CQB-eps", "queue_length", 0.25, K=1)),
    Claim("queue", "at the end no learner's queue is shorter by more than a tenth", _WHERE, _final_queue),
    Claim("returns", "the queue of ACQB first grows and then returns towards the optimal one (one answer)", f"{PAPER}, theorem 5", _hump),
    Claim("linear", "the regret of policies without contexts grows linearly (slope .95 to 1.05; one answer)", _WHERE, _linear),
)  # fmt: skip


def _figure(number: int, title: str, seeds: int, **swept: tuple) -> Experiment:
    """Makes the experiment for figure `number`. `swept` lists values of arguments of `_case`; each combination runs with one and with two answers."""
    settings = [dict(zip(swept, values)) for values in itertools.product(*swept.values())]
    of_k = {k: [_case(k, **one) for one in settings] for k in (1, 2)}
    names = {f"figure-{number}-K{k}": [case.name for case in some] for k, some in of_k.items()}
    names = names if swept else {f"figure-{number}": None}
    figures = {name: panels_of(rows=_ROWS, columns="case", cases=some) for name, some in names.items()}
    more = {"source": f"{PAPER}, figure {number}", "notes": _NOTES, "smoke_horizon": 60}
    return Experiment(f"queueing/figure-{number}", title, (*of_k[1], *of_k[2]), seeds, _CLAIMS, figures, **more)


_FIGURES = (
    _figure(2, "Queue length and regret on random instances, one and two answers", 1024),
    _figure(4, "Queue length and regret on random instances with 3, 5 and 10 models", 512, num_models=(3, 5, 10)),
    _figure(5, "Queue length and regret on random instances with a slack of .05, .03 and .01", 512, slack=(0.05, 0.03, 0.01)),
)  # fmt: skip


# Theory of random queues.

_THETA = (
    (0.9, -0.5, 0.4, 0.1, -0.8),
    (-0.6, 0.8, 0.3, -0.9, 0.2),
    (0.1, 0.6, -0.9, 0.5, 0.7),
    (-0.4, -0.7, 0.2, 0.9, 0.5),
    (0.5, 0.2, 0.8, -0.3, 0.6),
)
_COUNTS = (*RECORD, "mean_queue_regret")
# Metrics from which the loss of each round is computed (`_gaps`), and shares of rounds with two offered answers.
_LOST, _SECOND = ("joint_regret", "explored"), [0.0, 0.1, 0.25, 0.5, 1.0]
# With |x| <= 1 and |theta| <= 1, as in the theory, a valid kappa has 1 / kappa <= p_j p_0.
_VALID_CURVATURE = (1.0 + math.e) ** 2 / math.e
# Queue in which all models share parameters, under these assumptions. Departure rates hardly exceed the arrival rate. Features on
# [-1, 1]^5 / sqrt(5) have a second moment of 1 / 15.
_shared_queue = functools.partial(qu.RandomQueues, pair_features=True, slack=0.0, arrival_rate=0.45)
_BOUNDS = qu.Theory(dim=5, num_offered=1, arrival_rate=0.45, slack=0.01, curvature=_VALID_CURVATURE, spread=1.0 / 15.0)


def _estimate(env, policy, env_state, policy_state, t):
    """Records the error of the estimated parameters in units of their confidence radius, and the least eigenvalue of the design matrix."""
    del env_state
    error = policy_state.theta[0] - jnp.asarray(env.contexts.theta)
    design = policy_state.spread.total[0]
    distance = jnp.sqrt(jnp.maximum(jnp.sum(error * (design @ error)), 0.0))
    radius = mnl_radius(t, env.dim, env.num_offered, policy.curvature, policy.ridge)
    return {"distance": distance / radius, "least": jnp.linalg.eigvalsh(design)[0]}


def _switching(env: qu.QueueEnv) -> dict[str, Any]:
    first, second = qu.ACQB(), qu.Optimal.of(env)
    switch = grid(qu.PolicySwitch, first=first, second=second, at=list(range(env.spec.rounds + 1)))
    return {"switch": switch, "ACQB": first, "Optimal": second}


_ACQB, _SHARED = {"ACQB": qu.ACQB()}, {"ACQB": qu.ACQB(curvature=_VALID_CURVATURE)}
_CASES = (
    Case(qu.RandomQueues, {**_ACQB, "Random": qu.Random(), "Optimal": qu.Optimal.of}, 5000, "regret", record_every=50, record=_COUNTS, seeds=256),
    Case(functools.partial(qu.fixed_queue, _THETA, limit=512), _ACQB, 20_000, "long", record_every=50, record=_COUNTS, seeds=256),
    Case(qu.RandomQueues, {"ACQB": grid(qu.ACQB, c1=[1.0, 2.0])}, 1000, "exploring", record_every=100, record=_COUNTS),
    Case(_shared_queue, _SHARED, 1000, "shared", record_every=50, record=_COUNTS, probes={"estimate": _estimate}),
    Case(qu.RandomQueues, _ACQB, 4000, "rounds", record_every=1, record=_LOST, seeds=256),
    Case(_shared_queue, _SHARED, 1000, "rounds-shared", record_every=1, record=_LOST, probes={"estimate": _estimate}, seeds=64),
    Case(qu.RandomQueues, {"ACQB": grid(qu.ACQB, second_answer=_SECOND), "Optimal": qu.Optimal.of}, 1000, "mixed",
        {"num_offered": 2, "mixed": True}, record_every=50, record=_COUNTS, seeds=256),
    Case(functools.partial(qu.fixed_queue, _THETA), _switching, 100, "switching", record_every=1, record=("queue_length",), seeds=64),
)  # fmt: skip


def _regret_slope(results: Results) -> Finding:
    data, start = results["regret"], 0.1 * float(results["regret"]["time"][-1])
    kinds = itertools.product(("joint_regret", "routing_regret"), ("ACQB", "Random"))
    slopes = {f"{m.split('_')[0]} regret, {p}": ms.late_slope(data, m, p, start, every_time=True) for m, p in kinds}
    joint, _, routing, random = slopes.values()
    text = "; ".join(f"{name} {slope}" for name, slope in slopes.items())
    rule = "log-log slope over the last nine tenths, ACQB's below .55 and Random's routing within .02 of 1: "
    return rule + text, [joint.below(0.55), routing.below(0.55), random.within(0.98, 1.02)]


def _decay(results: Results) -> Finding:
    runs = ms.windows(results["long"])
    # The maximum is located on every other run and measured on the other runs.
    hump = int(runs["first"][int(runs.isel(seed=slice(0, None, 2)).mean("seed").argmax("first"))])
    found = {int(first): ms.mean_of(runs.isel(seed=slice(1, None, 2)).sel(first=first)) for first in runs["first"].values}
    text = f"windows of doubling length, {ms.listed(found, 'from {}:')}; the maximum is that from {hump}"
    later = [first for first in found if first > hump]
    if len(later) < 2:
        return f"{text}, with fewer than two windows after it", at_least(None, [])
    return text, [found[t].below(found[hump].times((hump / t) ** 0.25)) for t in later]


@all_hold()
def _explorations(results: Results) -> Iterator[Finding]:
    data = results["exploring"]
    for c1, explored in ms.ends_along(data, "explored", "ACQB", "c1").items():
        expected = qu.expected_explorations(int(data["time"][-1]), float(qu.RandomQueues().arrival_rate), float(c1))
        yield f"c1 = {c1:g}: {explored} against {expected:.2f}", explored.near(expected, margin=0.02 * expected)


def _coverage(results: Results) -> Finding:
    distance = results["shared"]["estimate.distance"].isel(policy=0)
    left = ms.share_of((~(distance <= 1.0)).any("time"))  # Also for NaN.
    text = f"largest distance over the radius {float(distance.max()):.3f}; above 1 in {100 * left.mean:.1f} % of the runs"
    return text, left.below(0.01)


@all_hold()
def _least_eigenvalue(results: Results) -> Iterator[Finding]:
    data = results["shared"]
    for time in data["time"].values[[4, 9, 19] if len(data["time"]) > 19 else [-1]]:
        bound, probability = _BOUNDS.least_eigenvalue(float(time))
        above = ms.share_of(data["estimate.least"].isel(policy=0).sel(time=time) >= bound)
        text = f"round {time}: above {bound:.2f} in {100 * above.mean:.1f} % (lemma: at least {100 * probability:.1f} %)"
        never = "a matrix that never grows", ms.Measured(0.0).at_least(probability)
        yield text, above.at_least(max(probability, 0.99)).unless(*never)


def _gaps(data: xr.Dataset) -> xr.DataArray:
    """Returns expected departures under the best decision minus those under the policy in each round, `[seed, time]`; NaN in exploration rounds."""
    data = data.isel(policy=0).where(data["valid"].isel(policy=0))
    lost, explored = (data[name].diff("time").transpose("seed", "time") for name in _LOST)
    return lost.where(explored == 0)


def _round_bound(results: Results) -> Finding:
    data = results["rounds-shared"]
    gaps, least = _gaps(data), data["estimate.least"].isel(policy=0)
    reach = xr.DataArray([_BOUNDS.reach(float(t)) for t in gaps["time"].values], {"time": gaps["time"]})
    bound = reach / np.sqrt(least.sel(time=gaps["time"]))
    share, whole = ms.mean_of((gaps / bound).max("time")), ms.mean_of((1.0 / bound).max("time"))
    text = f"largest gap over its bound, mean of the runs, {share}; smallest bound {float(bound.min()):,.0f}"
    return text, share.at_most(1.0).unless("a gap of 1, the largest possible one,", whole.at_most(1.0))


def _round_decay(results: Results) -> Finding:
    gaps = _gaps(results["rounds"])
    firsts = [int(gaps["time"][-1]) // 2**j for j in range(5, 0, -1)]
    means = [gaps.where((gaps["time"] > first) & (gaps["time"] <= 2 * first)).mean("time") for first in firsts]
    runs = xr.concat(means, xr.IndexVariable("first", firsts))
    found = {first: ms.mean_of(runs.sel(first=first)) for first in firsts}
    slope = ms.power(runs, "first")
    return f"in windows of doubling length, {ms.listed(found, 'from {}:')}; power {slope}", slope.at_most(-0.25)


def _good_rounds(results: Results) -> Finding:
    gaps, most = _gaps(results["rounds"]), float(qu.RandomQueues().slack) / 2
    late = gaps.where(gaps["time"] > 0.9 * float(gaps["time"][-1]))
    share = ms.mean_of((late <= most).where(late.notnull()).mean("time"))
    tau = _BOUNDS.bad_rounds(float(gaps["time"][-1]))
    text = f"{100 * share.mean:.1f} % of the last tenth of the rounds lose at most {most:g}; tau(t) is {tau:.1g} rounds"
    return text, share.at_least(0.99)


def _second_answers(results: Results) -> Finding:
    found = ms.ends_along(results["mixed"], "queue_length", "ACQB", "second_answer")
    text = f"final queue by the share of rounds with two answers, {ms.listed(found, '{:g}:')}"
    return text, found[0.25].below(found[0.0].times(0.5))


def _effects(results: Results) -> xr.DataArray:
    """Returns how much longer the queue is if the optimal policy replaces ACQB after round `at` instead of before it, `[at, time, seed]`."""
    return results["switching"]["queue_length"].sel(policy="switch").diff("at", label="lower")


def _switch_signs(results: Results) -> Finding:
    queue = results["switching"]["queue_length"]
    effect = _effects(results).transpose("at", "time", "seed").values
    number = np.arange(effect.shape[0])
    split = effect[number, number]  # [at, seed], just after the round in which the decisions differ.
    before = number[:, None] > number[None, :]
    small = bool(np.isin(effect, (-1.0, 0.0, 1.0)).all() and np.isin(split, (0.0, 1.0)).all() and not effect[before].any())
    later = np.where(split[:, None, :] > 0, effect >= 0, effect <= 0).all()
    gap = (queue.sel(policy="ACQB") - queue.sel(policy="Optimal")).isel(at=0, drop=True).transpose("time", "seed").values
    adds_up = np.array_equal(effect.sum(axis=0), gap)
    return (
        f"{int((effect != 0).sum()):,} of {effect.size:,} effects are not zero, {'all' if small else 'not all'} of size one; the sign rule "
        f"{'always' if later else 'not always'} holds; their sum is {'' if adds_up else 'not '}the difference of learner and optimal policy",
        bool(small and later and adds_up),
    )


def _little(results: Results) -> Finding:
    data = results["regret"]
    queue = ms.end(data, "mean_queue", "ACQB")
    sojourn, departures, arrivals = (ms.end(data, name, "ACQB") for name in ("sojourn", "departures", "arrivals"))
    if not departures.mean:
        return "no query departs", at_least(None, [])
    other = ms.product(arrivals.times(1.0 / float(data["time"][-1])), sojourn, over=departures)
    text = f"mean queue {queue} against arrival rate x mean sojourn {other}"
    return text, queue.near(other, margin=0.1 * queue.mean)


def _draw_windows(data: xr.Dataset, metric: str, ax: Any, title: str | None) -> None:
    runs = ms.windows(data)
    places = [(float(first), ms.mean_of(runs.sel(first=first))) for first in runs["first"].values]
    x = f"first round of a window of doubling length\nmean ± 2 s.e. of {runs.sizes['seed']} seeds"
    plot.points({"ACQB": places}, x=x, y="mean queue above the optimal one (queries)", ax=ax, title=title)
    plot.log_axis(ax, "x")


@style.styled
def _draw_effects(data: xr.Dataset, metric: str, ax: Any, title: str | None) -> None:
    effect = _effects({"switching": data}).mean("seed").transpose("at", "time")
    rounds, most = float(effect["time"][-1]), float(abs(effect).max()) or 1.0
    look = {"aspect": "auto", "origin": "lower", "cmap": "RdBu_r", "vmin": -most, "vmax": most}
    image = ax.imshow(effect.values, extent=(0, rounds, 0, rounds), **look)
    ax.set_xlabel("round t")
    ax.set_ylabel("round i of the decision")
    style.title(ax, title)
    ax.figure.colorbar(image, ax=ax).set_label(f"queries, mean of {data.sizes['seed']} seeds")


_THEORY = Experiment("queueing/theory", "Theory of ACQB: regret, queue, exploration and coverage", _CASES, 512,
    (
        *(Claim(name, text, f"{PAPER}, {where}", measure) for name, where, text, measure in (
        ("theorem-6", "theorem 6", "joint and routing regret grow no faster than the square root of time", _regret_slope),
        ("theorem-5", "theorem 5", "the queue above the optimal one finally falls at least as fast as t^-1/4", _decay),
        ("explorations", "appendix G.1", "the number of explorations is lambda times the sum of eta, within 2 %", _explorations),
        ("coverage", "lemma 33", "the radius covers the truth in 99 % of the runs (shared model, valid kappa)", _coverage),
        ("eigenvalue", "lemma 25", "the design matrix grows as in the lemma in 99 % of the runs (shared model)", _least_eigenvalue),
        ("round-bound", "proposition 10", "a round without exploration loses at most (alpha + 48 beta) / sqrt(least eigenvalue)", _round_bound),
        ("round-decay", "lemma 11", "the loss of such a round falls at least as fast as t^-1/4, like the bound", _round_decay),
        ("good-rounds", "proposition 14; ours", "99 % of such rounds lose at most half the slack, long before tau(t)", _good_rounds),
        ("mixed", "ours", "with two answers in a quarter of the rounds the queue is less than half of that with one answer", _second_answers),
        ("switching", "lemma 8",
            "a decision changes the queue by one query or none, with a fixed sign; the changes sum to the difference of the policies",
            _switch_signs))),
        Claim("little", "mean queue = arrival rate x mean sojourn, within a tenth", "Little (1961)", _little)),
    {"theory": side_by_side(
        Panel("routing_regret", case="regret", log=True, policies=["ACQB", "Random"], title="theorem 6: regret"),
        Panel("mean_queue_regret", _draw_windows, case="long", title="theorem 5: the hump and the decay"),
        Panel("estimate.distance", case="shared", title="coverage of the radius", label="distance to the truth", band="quantile",
            reference={"the radius": 1.0}),
        Panel("joint_regret", case="rounds", log=True, title="regret with the best query and assortment"),
        Panel("queue_length", case="mixed", policies=["ACQB"], title="two answers in a share of the rounds"),
        Panel("queue_length", _draw_effects, case="switching", title="queue added by the decision of round i"), columns=2)},
    source=f"{PAPER}, theorems 5 and 6 and their proofs",
    notes="theorem 5 requires astronomic horizons (10^32 rounds with these numbers): only its shape is visible; the explicit bound of theorem "
        "6 is 5,500 times the largest possible regret of 1,000 rounds", smoke_horizon=400)  # fmt: skip


# Queues of prompts: figures 3, 6 and 7 on stand-ins for the data of the paper, and on the user's table.

LOADS = {1: (0.7, 0.8, 0.9), 2: (0.75, 0.85, 0.95)}
_CONSTANTS: dict[str, Any] = {"c1": 2.0, "curvature": 0.05, "ridge": 0.1}
NOTES = "kappa .05, lambda_0 .1, c1 2 and rho .1 are ours; ACQB-CL has four heads, trained by the paper's preset for the data, and in our variant "
NOTES += "'longer' by 60 prompts per model in 100 epochs; standard errors include heads and seeds; the logits of ACQB's estimate differ from those of "
NOTES += "eq. (4) by at most .001 (by estimate; the stored run of figure 6 has an older solver and a difference of .012); Q-UCB and Q-ThS "
NOTES += "explore in each of the first 1,875 rounds with 11 models, 2,596 with 14, 37,218 with 112: until then they are the same policy"
# Trainings of ACQB-CL's head (a projection of the features): changes of the paper's preset for the data.
TRAININGS: dict[str, Any] = {"ACQB-CL": {}, "ACQB-CL, longer": {"per_model": 60, "epochs": 100, "batch": None}}
# Seeds of the training, for the choice of prompts and the initial parameters.
_HEADS = (0, 1, 2, 3)


@functools.lru_cache(maxsize=4)
def _tables(
    models: str, data: str | None, embeddings: str | None, costs: tuple[tuple[str, float], ...] | None, dim: int
) -> tuple[RoutingTable, RoutingTable]:
    """Returns two tables: prompts that arrive in the queue, and others for training feature projections. Arguments as for `data_queue`."""
    checks.one_of("models", models, CONTRASTIVE_PRESETS)
    if data in (None, "standin"):
        for name, value in (("embeddings", embeddings), ("costs", costs)):
            if value is not None:
                raise ValueError(f"{name} must be None without a file of data, got {checks.show(value)}")
        return standin(models, preset="semantic-noise", dim=dim)
    table = read_experiment_log(data, None if costs is None else dict(costs), features=embeddings).table
    if table.features is None:
        advice = "give embeddings, a file of them (--set environment.embeddings=FILE)"
        raise ValueError(f"{data} has no features, of text or otherwise: {advice}")
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
      models: "sprout", "embedllm" or "routerbench": selects the stand-in, if used, and the training settings (`CONTRASTIVE_PRESETS`).
      data: file of a log (see `read_log`), of which 1,000 random rows (at most two thirds) are the prompts; None or "standin" for the stand-in.
      embeddings: file of features; None for those in the log or, if it has none, features of its text.
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
    """Trains a projection of features for each seed in `_HEADS`; returns for each the projected features `[d, P]` of the `P` prompts that arrive.

    `training` is a key of `TRAININGS`, `about` are the arguments of `_tables` after `models`, and `cost_weight` is that of `data_queue`.
    """
    pool, offline = _tables(models, *about)
    probability, _ = qu.departure_probability(offline.scores, qu.divide_costs(offline.costs), cost_weight=cost_weight)
    features = np.asarray(offline.features)
    size = features.shape[1]
    preset: dict[str, Any] = {**CONTRASTIVE_PRESETS[models], **TRAININGS[training]}
    heads = (fit_projection(features, probability, width=2 * size, out=size, seed=seed, **preset) for seed in _HEADS)
    return [np.ascontiguousarray(np.asarray(head(np.asarray(pool.features))).T) for head in heads]


def learners(env: qu.QueueEnv, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Makes policies for `data_queue(**settings)`: CQB-eps, ACQB and, by training method, a grid of ACQB over trained projections (axis `head`)."""
    about = (settings["models"], settings["data"], settings["embeddings"], _pairs(settings["costs"]), settings["dim"])

    def with_head(head: int, training: str) -> qu.ACQB:
        return qu.ACQB(features=_projected(training, settings["cost_weight"], *about)[head], **_CONSTANTS)

    others = {name: value for name, value in _CONSTANTS.items() if name != "c1"}
    return {
        "CQB-eps": qu.CQBEpsilon(trigger=qu.PhaseThenCoin.for_data(env.spec.rounds, _CONSTANTS["c1"]), **others),
        "ACQB": qu.ACQB(**_CONSTANTS),
        **{name: grid(with_head, head=list(_HEADS), training=name) for name in TRAININGS},
    }


def data_case(
    models: str, num_offered: int, load: float, horizon: int = 5000, dim: int = 64, policies: Any = None, data: Any = None
) -> Case:
    """Makes a case of a queue of prompts; arguments as for `data_queue`, `policies` as for `Case` (None: those of `not_learning` and `learners`)."""
    settings: dict[str, Any] = {"models": models, "data": data, "embeddings": None, "costs": None, "cost_weight": 0.1}
    settings |= {"load": load, "num_offered": num_offered, "dim": dim}
    where, name = {"K": num_offered, "load": load}, f"K{num_offered}-load{load:g}"
    policies = policies or (lambda env, settings: {**not_learning(env.num_offered), **learners(env, settings)})
    return Case(data_queue, policies, horizon, name, settings, where, record=RECORD, rows=lambda env: env.spec.prompts)


def _stable(results: Results) -> Finding:
    """Tests the claim that queues of learning policies hardly grow in the second half of the run, while the queue of the policy Random grows."""
    parts, grows, stops = [], [], []
    still = 1.0  # A queue counts as no longer growing if it grows by at most this number of queries in half of the rounds.
    for name, data in results.items():
        runs = metrics.pick(data, "queue_length")
        grown = runs.isel(time=-1) - runs.isel(time=len(data["time"]) // 2 - 1)
        growth = {policy: ms.over_heads(grown.sel(policy=policy)) for policy in ("Random", "ACQB", "ACQB-CL")}
        parts.append(f"{name} {ms.listed(growth)}")
        grows.append(growth.pop("Random").above(still))
        stops += [value.at_most(still) for value in growth.values()]
    rule = f"growth in the second half, above {still:g} for Random at some load, and for the others at none: "
    return rule + "; ".join(parts), [at_least(1, grows), *stops]


@all_hold("final queues, ACQB's and ACQB-CL's below the others': ")
def _shorter(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        runs, shown = metrics.pick(data, "queue_length").isel(time=-1), ("ACQB", "ACQB-CL", *not_learning(1))
        ends = {str(p): ms.over_heads(runs.sel(policy=p)) for p in runs["policy"].values if p in shown}
        others = [policy for policy in ends if policy not in ("Optimal", "ACQB", "ACQB-CL")]
        gaps = [ms.head_gap(data, "queue_length", policy, other) for policy in ("ACQB", "ACQB-CL") for other in others]
        yield f"{name} {ms.listed(ends)}", [one.below(0.0) for one in gaps]


@all_hold("log-log slope of the regret, that of ACQB and ACQB-CL below .95: ")
def _sublinear(results: Results) -> Iterator[Finding]:
    for name, data in results.items():
        late = metrics.pick(data, "routing_regret").isel(time=data["time"].values >= 0.2 * float(data["time"][-1]))
        slopes = {p: ms.over_heads(late.sel(policy=p), lambda r: ms.power(r, "time")) for p in ("ACQB", "ACQB-CL", "Random")}
        shown = ", ".join(f"{policy} {value}" for policy, value in slopes.items())
        yield f"{name} {shown}", [slopes[p].below(0.95) for p in ("ACQB", "ACQB-CL")]


_PROMPT_CLAIMS = (
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
    """Draws mean curves of policies that learn from contexts, with the errors of `over_heads`; `minus`: policy subtracted from each, if any."""
    runs, about = metrics.pick(data, metric), data[metric].attrs
    runs = runs if minus is None else runs - runs.sel(policy=minus)
    times, paired = runs["time"].values, "" if minus is None else f"\nminus that of {minus}"
    for policy in ("CQB-eps", *TRAININGS, "ACQB"):
        one = runs.sel(policy=policy)
        axes = [axis for axis in ("seed", "head") if axis in one.dims]
        means = {axis: one.mean([a for a in axes if a != axis]) for axis in axes}
        middle, error = one.mean(axes), sum(m.var(axis, ddof=1) / m.count(axis) for axis, m in means.items()) ** 0.5
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


_PROMPT_ROWS = (
    Panel("queue_length", band="deviation", policies=lambda data: [p for p in data["policy"].values if p not in TRAININGS]),
    Panel("queue_length", _draw_means),
    Panel("routing_regret", _draw_means),
    Panel("routing_regret", _draw_means, minus="ACQB"),
)


def pictures(name: str, loads: Mapping[int, Sequence[float]], baselines: bool = True) -> dict[str, Any]:
    """Returns functions by name that draw one figure for each number of offered answers, with a column for each arrival rate.

    `loads` maps each number of answers to its arrival rates. A figure's name is `name`, with "-K" and the number if there are several. If policies
    that do not learn ran (`baselines`), a first row shows the queue of all policies except ACQB-CL. The other rows show queue and regret of learners.
    """
    rows = _PROMPT_ROWS[0 if baselines else 1 :]
    cases = {f"-K{k}" * (len(loads) > 1): [f"K{k}-load{load:g}" for load in of_k] for k, of_k in loads.items()}
    return {name + which: panels_of(rows=rows, columns="case", cases=some) for which, some in cases.items()}


def claims(only: Sequence[str] = (), source: str = f"{PAPER}, section 6.2") -> tuple[Claim, ...]:
    """Makes the claims about queues of prompts: those with ids in `only` (default: all); `source` is their place in the paper."""
    chosen = [claim for claim in _PROMPT_CLAIMS if not only or claim[0] in only]
    return tuple(Claim(name, text, "ours" if name == "longer" else source, measure) for name, text, measure in chosen)


def _prompt_figure(number: int, models: str, name: str, size: int, seeds: int, horizon: int, dim: int) -> Experiment:
    where = f"{PAPER}, figure {number}, section 6.2 and appendix C.2"
    title, stand_in = f"Queue length and regret with {size} models", f"a generated stand-in for {name}"
    cases = tuple(data_case(models, k, load, horizon, dim) for k, loads in LOADS.items() for load in loads)
    # A round with many models and features takes milliseconds.
    sizes: dict[str, Any] = {"smoke_seeds": 2 if size > 100 else 4, "smoke_horizon": 12 if size > 100 else 60}
    notes = (
        f"not the paper's data: without --data, a stand-in of 1,000 generated prompts (semantic noise, soft scores) with {dim} features (paper: 384) "
        f"over {horizon:,} rounds (paper: 5,000); --data FILE uses your log, with its embeddings or features of its text unless --set environment.embeddings=FILE specifies others; "
    )
    options: dict[str, Any] = {"source": where, "stand_in": stand_in, "notes": notes + NOTES, **sizes}
    drawn = pictures(f"figure-{number}", LOADS)
    return Experiment(f"queueing/figure-{number}", title, cases, seeds, claims(source=where), drawn, **options)


# The same questions about any table, rather than the paper's statements about its data.

OURS = "ours: about the table of the run"
_TABLE = Experiment("queueing/table", "ACQB on the rows of a table, at three loads (--data FILE)",
    tuple(data_case("routerbench", 1, load, data="standin") for load in LOADS[1]), 32, claims(source=OURS),
    pictures("table", {1: LOADS[1]}), source=f"{PAPER}, section 6.2", stand_in="a generated stand-in for RouterBench",
    notes="at most 1,000 rows, and at most two thirds, are the pool, and the heads of ACQB-CL learn from the others; if the file has no "
        "costs, specify the cost per query of each model by --set environment.costs='{\"model\": 0.1, ...}'; " + NOTES,
    smoke_horizon=60, any_table=True)  # fmt: skip

EXPERIMENTS = (
    *_FIGURES,
    _prompt_figure(3, "sprout", "SPROUT-o3mini", 14, 16, 5000, 64),
    _prompt_figure(6, "embedllm", "EmbedLLM", 112, 4, 5000, 384),
    _prompt_figure(7, "routerbench", "RouterBench", 11, 16, 5000, 64),
    _TABLE,
    _THEORY,
)
