"""Experiments on ACQB with random queues: figures 2, 4 and 5 of its paper, and measurements for its theory."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, metrics, plot
from jaxroute.estimators.running import mnl_radius
from jaxroute.experiments import measure as ms
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least, with_parameters
from jaxroute.experiments.pictures import Panel, panels_of, side_by_side
from jaxroute.plot import style
from jaxroute.problems import queueing as qu

PAPER = "ACQB"
RECORD = (
    *("queue_length", "queue_regret", "routing_regret", "joint_regret", "departures", "retrials", "mean_queue", "arrivals"),
    *("explored", "sojourn", "peak"),
)


def not_learning(num_offered: int) -> dict[str, Any]:
    """Makes the policies of appendix B.3 of the paper on ACQB, which do not learn how users choose among `num_offered` answers."""
    single = {"Q-UCB": qu.QUCB(), "Q-ThS": qu.QThS()} if num_offered == 1 else {}
    return {"Optimal": qu.Optimal.of, "Random": qu.Random(), **single}


def over_heads(runs: xr.DataArray, measure: Callable[[xr.DataArray], ms.Measured] = ms.mean_of) -> ms.Measured:
    """Returns `measure` (default: the mean) of runs over seeds and heads, with a standard error that covers both. Runs may lack the dimension `head`.

    A head is a trained projection of the features; every head runs with every seed. The squared error is that of the mean over heads, across seeds,
    plus that of the mean over seeds, across heads. Interactions are counted twice, so the error is slightly too large. The degrees of freedom are
    Welch's, which are three if the error of four heads dominates. More seeds do not reduce the error due to heads.
    """
    if "head" not in runs.dims:
        return measure(runs)
    runs = runs.dropna("seed")
    of_seeds, of_heads = measure(runs.mean("head")), measure(runs.mean("seed").rename(head="seed"))
    both = of_seeds.minus(ms.Measured(0.0, of_heads.error, dof=of_heads.dof, number=math.inf, floor=of_heads.error))
    return both.changed(places=of_seeds.places)


def gap(data: xr.Dataset, metric: str, policy: str, minus: str, share: float = 1.0) -> ms.Measured:
    """Returns the mean difference in a metric between `policy` and `minus`, paired by seed and head, after the fraction `share` of the rounds."""
    times = data["time"].values
    runs = metrics.pick(data, metric).isel(time=int(np.argmin(np.abs(times - share * times[-1]))))
    return over_heads(runs.sel(policy=policy) - runs.sel(policy=minus))


@with_parameters
def less(results: Results, policy: str, than: str, metric: str = "routing_regret", share: float = 1.0) -> Finding:
    """Tests whether a metric's mean is less for `policy` than for `than` in every case, paired by seed, at the fraction `share` of the horizon."""
    gaps = {name: gap(data, metric, policy, than, share) for name, data in results.items()}
    when = "" if share == 1.0 else f" at {share:g} of the horizon"
    return f"{policy} minus {than}{when}: {ms.listed(gaps, between='; ')}", [value.below(0.0) for value in gaps.values()]


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


def _early_queue(results: Results) -> Finding:
    return less("ACQB", "CQB-eps", "queue_length", share=0.25)(ms.with_coordinates(results, K=1))


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
_NOTES = (
    "kappa, lambda_0 and c1 are not in the paper; here they are .3, 1 and 1; the paper's 10 runs cannot distinguish ACQB and CQB-eps; "
    "with 3, 5 and 10 models and one answer, assumption 4 accepts 25, 37 and 57 % of the drawn contexts (6, 14 and 40 % in the worst of 256 "
    "instances), so that some 2 % of the runs with 3 models find none, are invalid and left out; Q-UCB and Q-ThS explore in each of the "
    "first 289, 621 and 1,646 rounds with 3, 5 and 10 models: until then they are the same policy, which is the random one except for the order"
)
_WHERE = f"{PAPER}, section 6.1 and appendix C.1"
_CLAIMS = (
    Claim("best", "ACQB has less regret than the policies that ignore contexts", _WHERE, _least_regret),
    Claim("beats-cqb", "ACQB has less regret than CQB-eps", _WHERE, less("ACQB", "CQB-eps")),
    Claim("hump-lower", "the queue of ACQB is shorter than that of CQB-eps early in the run (one answer)", _WHERE, _early_queue),
    Claim("queue", "at the end no learner's queue is shorter by more than a tenth", _WHERE, _final_queue),
    Claim("returns", "the queue of ACQB first grows and then returns towards the optimal one (one answer)", f"{PAPER}, theorem 5", _hump),
    Claim("linear", "the regret of policies without contexts grows linearly (slope .95 to 1.05; one answer)", _WHERE, _linear),
)  # fmt: skip


def _figure(number: int, title: str, seeds: int, **swept: tuple) -> Experiment:
    """Makes the experiment for figure `number`: one and two offered answers, for all combinations of the values of `_case`'s arguments in `swept`."""
    settings = [dict(zip(swept, values)) for values in itertools.product(*swept.values())]
    of_k = {k: [_case(k, **one) for one in settings] for k in (1, 2)}
    names = {f"figure-{number}-K{k}": [case.name for case in some] for k, some in of_k.items()}
    names = names if swept else {f"figure-{number}": None}
    figures = {name: panels_of(rows=_ROWS, columns="case", cases=some) for name, some in names.items()}
    more = {"source": f"{PAPER}, figure {number}", "notes": _NOTES, "smoke_horizon": 60}
    return Experiment(f"queueing/figure-{number}", title, (*of_k[1], *of_k[2]), seeds, _CLAIMS, figures, **more)


FIGURES = (
    _figure(2, "Queue length and regret on random instances, one and two answers", 1024),
    _figure(4, "Queue length and regret on random instances with 3, 5 and 10 models", 512, num_models=(3, 5, 10)),
    _figure(5, "Queue length and regret on random instances with a slack of .05, .03 and .01", 512, slack=(0.05, 0.03, 0.01)),
)  # fmt: skip


# Theory.

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
_ARRIVAL_RATE = float(qu.RandomQueues().arrival_rate)
# With |x| <= 1 and |theta| <= 1, as in the theory, a valid kappa has 1 / kappa <= p_j p_0.
_VALID_CURVATURE = (1.0 + math.e) ** 2 / math.e
# Queue in which all models share parameters, under these assumptions. Departure rates hardly exceed the arrival rate. Features on
# [-1, 1]^5 / sqrt(5) have a second moment of 1 / 15.
_shared_queue = functools.partial(qu.RandomQueues, pair_features=True, slack=0.0, arrival_rate=0.45)
_SHARED_THEORY = qu.Theory(
    dim=5, num_offered=1, arrival_rate=0.45, slack=0.01, curvature=_VALID_CURVATURE, spread=1.0 / 15.0
)


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


def _theory_case(
    name: str, env: Any, policies: Any, horizon: int, every: int, record: Any = _COUNTS, **options: Any
) -> Case:
    return Case(env, policies, horizon, name, record_every=every, record=record, **options)


_ACQB, _SHARED = {"ACQB": qu.ACQB()}, {"ACQB": qu.ACQB(curvature=_VALID_CURVATURE)}
_CASES = (
    _theory_case("regret", qu.RandomQueues, {**_ACQB, "Random": qu.Random(), "Optimal": qu.Optimal.of}, 5000, 50, seeds=256),
    _theory_case("long", functools.partial(qu.fixed_queue, _THETA, limit=512), _ACQB, 20_000, 50, seeds=256),
    _theory_case("exploring", qu.RandomQueues, {"ACQB": grid(qu.ACQB, c1=[1.0, 2.0])}, 1000, 100),
    _theory_case("shared", _shared_queue, _SHARED, 1000, 50, probes={"estimate": _estimate}),
    _theory_case("rounds", qu.RandomQueues, _ACQB, 4000, 1, _LOST, seeds=256),
    _theory_case("rounds-shared", _shared_queue, _SHARED, 1000, 1, _LOST, probes={"estimate": _estimate}, seeds=64),
    _theory_case("mixed", qu.RandomQueues, {"ACQB": grid(qu.ACQB, second_answer=_SECOND), "Optimal": qu.Optimal.of}, 1000, 50,
        settings={"num_offered": 2, "mixed": True}, seeds=256),
    _theory_case("switching", functools.partial(qu.fixed_queue, _THETA), _switching, 100, 1, ("queue_length",), seeds=64),
)  # fmt: skip


def _regret_slope(results: Results) -> Finding:
    data, start = results["regret"], 0.1 * float(results["regret"]["time"][-1])
    slopes = {
        f"{metric.split('_')[0]} regret, {policy}": ms.late_slope(data, metric, policy, start, every_time=True)
        for metric in ("joint_regret", "routing_regret")
        for policy in ("ACQB", "Random")
    }
    joint, _, routing, random = slopes.values()
    text = "; ".join(f"{name} {slope}" for name, slope in slopes.items())
    rule = "log-log slope over the last nine tenths, ACQB's below .55 and Random's routing within .02 of 1: "
    return rule + text, [joint.below(0.55), routing.below(0.55), random.within(0.98, 1.02)]


def windows(data: xr.Dataset, policy: str = "ACQB") -> xr.DataArray:
    """Returns the mean queue length of `policy` minus the optimal policy's, `[first, seed]`, in windows of rounds that begin after the round `first`.

    Windows double in length: the last one is the second half of the run, the one before it is the second quarter, and so on.
    """
    runs = metrics.cumulative(data[["mean_queue_regret", "valid"]].sel(policy=policy), "mean_queue_regret")
    times, last = runs["time"].values, runs.sizes["time"] - 1
    found: dict[int, xr.DataArray] = {}
    while last > 0:
        first = int(np.argmin(np.abs(times - times[last] / 2)))
        if first == last:
            break
        found[int(times[first])] = (runs.isel(time=last) - runs.isel(time=first)) / float(times[last] - times[first])
        last = first
    in_order = [found[first].drop_vars("time", errors="ignore") for first in sorted(found)]
    return xr.concat(in_order, xr.IndexVariable("first", sorted(found)))


def _decay(results: Results) -> Finding:
    runs = windows(results["long"])
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
        expected = qu.expected_explorations(int(data["time"][-1]), _ARRIVAL_RATE, float(c1))
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
        bound, probability = _SHARED_THEORY.least_eigenvalue(float(time))
        above = ms.share_of(data["estimate.least"].isel(policy=0).sel(time=time) >= bound)
        text = f"round {time}: above {bound:.2f} in {100 * above.mean:.1f} % (lemma: at least {100 * probability:.1f} %)"
        never = "a matrix that never grows", ms.Measured(0.0).at_least(probability)
        yield text, above.at_least(max(probability, 0.99)).unless(*never)


def _gaps(data: xr.Dataset) -> xr.DataArray:
    """Returns the expected departures under the best decision minus those under the policy in each round, `[seed, time]`; NaN in exploration rounds."""
    data = data.isel(policy=0).where(data["valid"].isel(policy=0))
    lost, explored = (data[name].diff("time").transpose("seed", "time") for name in _LOST)
    return lost.where(explored == 0)


def _round_bound(results: Results) -> Finding:
    data = results["rounds-shared"]
    gaps, least = _gaps(data), data["estimate.least"].isel(policy=0)
    reach = xr.DataArray([_SHARED_THEORY.reach(float(t)) for t in gaps["time"].values], {"time": gaps["time"]})
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
    tau = _SHARED_THEORY.bad_rounds(float(gaps["time"][-1]))
    text = f"{100 * share.mean:.1f} % of the last tenth of the rounds lose at most {most:g}; tau(t) is {tau:.1g} rounds"
    return text, share.at_least(0.99)


def _second_answers(results: Results) -> Finding:
    found = ms.ends_along(results["mixed"], "queue_length", "ACQB", "second_answer")
    text = f"final queue by the share of rounds with two answers, {ms.listed(found, '{:g}:')}"
    return text, found[0.25].below(found[0.0].times(0.5))


def _effects(results: Results) -> xr.DataArray:
    """Returns by how much the learner's decision in round `at` lengthens the queue, `[at, time, seed]`, if the optimal policy decides afterwards."""
    return results["switching"]["queue_length"].sel(policy="switch").diff("at", label="lower")


def _switch_signs(results: Results) -> Finding:
    queue = results["switching"]["queue_length"]
    effect = _effects(results).transpose("at", "time", "seed").values
    number = np.arange(effect.shape[0])
    split = effect[number, number]  # [at, seed], just after the round in which the decisions differ.
    before = number[:, None] > number[None, :]
    small = bool(np.isin(effect, (-1.0, 0.0, 1.0)).all() and np.isin(split, (0.0, 1.0)).all() and not effect[before].any())
    later = np.where(split[:, None, :] > 0, effect >= 0, effect <= 0).all()
    apart = (queue.sel(policy="ACQB") - queue.sel(policy="Optimal")).isel(at=0, drop=True).transpose("time", "seed").values
    adds_up = np.array_equal(effect.sum(axis=0), apart)
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
    runs = windows(data)
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


def _labelled(data: xr.Dataset) -> xr.Dataset:
    return data.assign({"estimate.distance": data["estimate.distance"].assign_attrs(long_name="distance to the truth")})


_COVERAGE: dict[str, Any] = {"change": _labelled, "band": "quantile", "reference": {"the radius": 1.0}}
_PICTURE = side_by_side(
    Panel("routing_regret", case="regret", log=True, policies=["ACQB", "Random"], title="theorem 6: regret"),
    Panel("mean_queue_regret", _draw_windows, case="long", title="theorem 5: the hump and the decay"),
    Panel("estimate.distance", case="shared", title="coverage of the radius", **_COVERAGE),
    Panel("joint_regret", case="rounds", log=True, title="regret with the best query and assortment"),
    Panel("queue_length", case="mixed", policies=["ACQB"], title="two answers in a share of the rounds"),
    Panel("queue_length", _draw_effects, case="switching", title="queue added by the decision of round i"),
    columns=2,
)
_THEORY_CLAIMS = (
    ("theorem-6", "theorem 6", "joint and routing regret grow no faster than the square root of time", _regret_slope),
    ("theorem-5", "theorem 5", "the queue above the optimal one finally falls at least as fast as t^-1/4", _decay),
    ("explorations", "appendix G.1", "the number of explorations is lambda times the sum of eta, within 2 %", _explorations),
    ("coverage", "lemma 33", "the radius covers the truth in 99 % of the runs (shared model, valid kappa)", _coverage),
    ("eigenvalue", "lemma 25", "the design matrix grows as in the lemma in 99 % of the runs (shared model)", _least_eigenvalue),
    ("round-bound", "proposition 10", "a round without exploration loses at most (alpha + 48 beta) / sqrt(least eigenvalue)", _round_bound),
    ("round-decay", "lemma 11", "the loss of such a round falls at least as fast as t^-1/4, like the bound", _round_decay),
    ("good-rounds", "proposition 14; ours", "99 % of such rounds lose at most half the slack, long before tau(t)", _good_rounds),
    ("mixed", "ours", "with two answers in a quarter of the rounds the queue is less than half of that with one answer", _second_answers),
    ("switching", "lemma 8", "a decision changes the queue by one query or none, with a fixed sign; the changes sum to the difference of the policies", _switch_signs),
)  # fmt: skip
THEORY = Experiment("queueing/theory", "Theory of ACQB: regret, queue, exploration and coverage", _CASES, 512,
    (
        *(Claim(name, text, f"{PAPER}, {where}", measure) for name, where, text, measure in _THEORY_CLAIMS),
        Claim("little", "mean queue = arrival rate x mean sojourn, within a tenth", "Little (1961)", _little)),
    {"theory": _PICTURE}, source=f"{PAPER}, theorems 5 and 6 and their proofs",
    notes="theorem 5 requires astronomic horizons (10^32 rounds with these numbers): only its shape is visible; the explicit bound of theorem "
        "6 is 5,500 times the largest possible regret of 1,000 rounds",
    smoke_horizon=400)  # fmt: skip
