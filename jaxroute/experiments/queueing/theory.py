"""Measurements for the theory of ACQB: regret, queue, exploration, coverage, and the effect of one decision."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, metrics, plot
from jaxroute.estimators.confidence import mnl_radius
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, all_hold, at_least
from jaxroute.experiments.measure import (
    Measured,
    end,
    ends_along,
    late_slope,
    listed,
    mean_of,
    power,
    product,
    share_of,
    show,
    show_slope,
)
from jaxroute.experiments.pictures import panel, side_by_side
from jaxroute.experiments.queueing.figures import PAPER, RECORD
from jaxroute.plot import style
from jaxroute.problems import queueing as qu

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
    """Records the error of the estimated parameters over their confidence radius, and the least eigenvalue of the design matrix."""
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


def _case(name: str, env: Any, policies: Any, horizon: int, every: int, record: Any = _COUNTS, **options: Any) -> Case:
    return Case(env, policies, horizon, name, record_every=every, record=record, **options)


_ACQB, _SHARED = {"ACQB": qu.ACQB()}, {"ACQB": qu.ACQB(curvature=_VALID_CURVATURE)}
_CASES = (
    _case("regret", qu.RandomQueues, {**_ACQB, "Random": qu.Random(), "Optimal": qu.Optimal.of}, 5000, 50, seeds=256),
    _case("long", functools.partial(qu.fixed_queue, _THETA, limit=512), _ACQB, 20_000, 50, seeds=256),
    _case("exploring", qu.RandomQueues, {"ACQB": grid(qu.ACQB, c1=[1.0, 2.0])}, 1000, 100),
    _case("shared", _shared_queue, _SHARED, 1000, 50, probes={"estimate": _estimate}),
    _case("rounds", qu.RandomQueues, _ACQB, 4000, 1, _LOST, seeds=256),
    _case("rounds-shared", _shared_queue, _SHARED, 1000, 1, _LOST, probes={"estimate": _estimate}, seeds=64),
    _case("mixed", qu.RandomQueues, {"ACQB": grid(qu.ACQB, second_answer=_SECOND), "Optimal": qu.Optimal.of}, 1000, 50,
        settings={"num_offered": 2, "mixed": True}, seeds=256),
    _case("switching", functools.partial(qu.fixed_queue, _THETA), _switching, 100, 1, ("queue_length",), seeds=64),
)  # fmt: skip


def _regret_slope(results: Results) -> Finding:
    data, start = results["regret"], 0.1 * float(results["regret"]["time"][-1])
    slopes = {
        f"{metric.split('_')[0]} regret, {policy}": late_slope(data, metric, policy, start, every_time=True)
        for metric in ("joint_regret", "routing_regret")
        for policy in ("ACQB", "Random")
    }
    joint, _, routing, random = slopes.values()
    text = "; ".join(f"{name} {show_slope(slope)}" for name, slope in slopes.items())
    rule = "log-log slope over the last nine tenths, ACQB's below .55 and Random's routing within .02 of 1: "
    return rule + text, [joint.below(0.55), routing.below(0.55), random.within(0.98, 1.02)]


def windows(data: xr.Dataset, policy: str = "ACQB") -> xr.DataArray:
    """Returns the mean queue length minus the optimal policy's, `[first, seed]`, in successive windows of rounds; `first` is the round before each.

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
    found = {int(first): mean_of(runs.isel(seed=slice(1, None, 2)).sel(first=first)) for first in runs["first"].values}
    text = f"windows of doubling length, {listed(found, 'from {}:')}; the maximum is that from {hump}"
    later = [first for first in found if first > hump]
    if len(later) < 2:
        return f"{text}, with fewer than two windows after it", at_least(None, [])
    return text, [found[t].below(found[hump].times((hump / t) ** 0.25)) for t in later]


@all_hold()
def _explorations(results: Results) -> Iterator[Finding]:
    data = results["exploring"]
    for c1, explored in ends_along(data, "explored", "ACQB", "c1").items():
        expected = qu.expected_explorations(int(data["time"][-1]), _ARRIVAL_RATE, float(c1))
        yield f"c1 = {c1:g}: {show(explored)} against {expected:.2f}", explored.near(expected, margin=0.02 * expected)


def _coverage(results: Results) -> Finding:
    distance = results["shared"]["estimate.distance"].isel(policy=0)
    left = share_of((~(distance <= 1.0)).any("time"))  # Also for NaN.
    text = f"largest distance over the radius {float(distance.max()):.3f}; above 1 in {100 * left.mean:.1f} % of the runs"
    return text, left.below(0.01)


@all_hold()
def _least_eigenvalue(results: Results) -> Iterator[Finding]:
    data = results["shared"]
    for time in data["time"].values[[4, 9, 19] if len(data["time"]) > 19 else [-1]]:
        bound, probability = _SHARED_THEORY.least_eigenvalue(float(time))
        above = share_of(data["estimate.least"].isel(policy=0).sel(time=time) >= bound)
        text = f"round {time}: above {bound:.2f} in {100 * above.mean:.1f} % (lemma: at least {100 * probability:.1f} %)"
        never = "a matrix that never grows", Measured(0.0).at_least(probability)
        yield text, above.at_least(max(probability, 0.99)).unless(*never)


def _gaps(data: xr.Dataset) -> xr.DataArray:
    """Returns how many fewer departures than under the best decision are expected in each round, `[seed, time]`; NaN in exploration rounds."""
    data = data.isel(policy=0).where(data["valid"].isel(policy=0))
    lost, explored = (data[name].diff("time").transpose("seed", "time") for name in _LOST)
    return lost.where(explored == 0)


def _round_bound(results: Results) -> Finding:
    data = results["rounds-shared"]
    gaps, least = _gaps(data), data["estimate.least"].isel(policy=0)
    reach = xr.DataArray([_SHARED_THEORY.reach(float(t)) for t in gaps["time"].values], {"time": gaps["time"]})
    bound = reach / np.sqrt(least.sel(time=gaps["time"]))
    share, whole = mean_of((gaps / bound).max("time")), mean_of((1.0 / bound).max("time"))
    text = f"largest gap over its bound, mean of the runs, {show(share)}; smallest bound {float(bound.min()):,.0f}"
    return text, share.at_most(1.0).unless("a gap of 1, the largest possible one,", whole.at_most(1.0))


def _round_decay(results: Results) -> Finding:
    gaps = _gaps(results["rounds"])
    firsts = [int(gaps["time"][-1]) // 2**j for j in range(5, 0, -1)]
    means = [gaps.where((gaps["time"] > first) & (gaps["time"] <= 2 * first)).mean("time") for first in firsts]
    runs = xr.concat(means, xr.IndexVariable("first", firsts))
    found = {first: mean_of(runs.sel(first=first)) for first in firsts}
    slope = power(runs, "first")
    return f"in windows of doubling length, {listed(found, 'from {}:')}; power {show_slope(slope)}", slope.at_most(-0.25)


def _good_rounds(results: Results) -> Finding:
    gaps, most = _gaps(results["rounds"]), float(qu.RandomQueues().slack) / 2
    late = gaps.where(gaps["time"] > 0.9 * float(gaps["time"][-1]))
    share = mean_of((late <= most).where(late.notnull()).mean("time"))
    tau = _SHARED_THEORY.bad_rounds(float(gaps["time"][-1]))
    text = f"{100 * share.mean:.1f} % of the last tenth of the rounds lose at most {most:g}; tau(t) is {tau:.1g} rounds"
    return text, share.at_least(0.99)


def _second_answers(results: Results) -> Finding:
    found = ends_along(results["mixed"], "queue_length", "ACQB", "second_answer")
    text = f"final queue by the share of rounds with two answers, {listed(found, '{:g}:')}"
    return text, found[0.25].below(found[0.0].times(0.5))


def _effects(results: Results) -> xr.DataArray:
    """Returns the effect of the learner's decision in round `at`: the queue if the optimal policy takes over after it, minus that if it does before."""
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
    queue = end(data, "mean_queue", "ACQB")
    sojourn, departures, arrivals = (end(data, name, "ACQB") for name in ("sojourn", "departures", "arrivals"))
    if not departures.mean:
        return "no query departs", at_least(None, [])
    other = product(arrivals.times(1.0 / float(data["time"][-1])), sojourn, over=departures)
    text = f"mean queue {show(queue)} against arrival rate x mean sojourn {show(other)}"
    return text, queue.near(other, margin=0.1 * queue.mean)


def _draw_windows(data: xr.Dataset, metric: str, ax: Any, title: str | None) -> None:
    runs = windows(data)
    places = [(float(first), mean_of(runs.sel(first=first))) for first in runs["first"].values]
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
    panel("routing_regret", case="regret", log=True, policies=["ACQB", "Random"], title="theorem 6: regret"),
    panel("mean_queue_regret", _draw_windows, case="long", title="theorem 5: the hump and the decay"),
    panel("estimate.distance", case="shared", title="coverage of the radius", **_COVERAGE),
    panel("joint_regret", case="rounds", log=True, title="regret with the best query and assortment"),
    panel("queue_length", case="mixed", policies=["ACQB"], title="two answers in a share of the rounds"),
    panel("queue_length", _draw_effects, case="switching", title="queue added by the decision of round i"),
    columns=2,
)
_CLAIMS = (
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
        *(Claim(name, text, f"{PAPER}, {where}", measure) for name, where, text, measure in _CLAIMS),
        Claim("little", "mean queue = arrival rate x mean sojourn, within a tenth", "Little (1961)", _little)),
    {"theory": _PICTURE}, source=f"{PAPER}, theorems 5 and 6 and their proofs",
    notes="theorem 5 requires astronomic horizons (10^32 rounds with these numbers): only its shape is visible; the explicit bound of theorem "
        "6 is 5,500 times the largest possible regret of 1,000 rounds",
    smoke_horizon=400)  # fmt: skip
