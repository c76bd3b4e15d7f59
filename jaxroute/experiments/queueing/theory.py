"""What the theory of ACQB says, measured: regret, queue, exploration, coverage, and how long one decision is felt."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import metrics, plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict, all_hold
from jaxroute.experiments.measure import Measured, end, ends_along, highest, late_slope, listed, mean_of, show, show_slope
from jaxroute.problems import queueing as qu

_PAPER = "ACQB"
_THETA = (
    (0.9, -0.5, 0.4, 0.1, -0.8),
    (-0.6, 0.8, 0.3, -0.9, 0.2),
    (0.1, 0.6, -0.9, 0.5, 0.7),
    (-0.4, -0.7, 0.2, 0.9, 0.5),
    (0.5, 0.2, 0.8, -0.3, 0.6),
)
_COUNTS = (
    "queue_length",
    "queue_regret",
    "mean_queue_regret",
    "routing_regret",
    "joint_regret",
    "explored",
    "departures",
    "arrivals",
    "mean_queue",
    "sojourn",
)
_SWITCH_HORIZON = 100
_ARRIVAL_RATE = float(qu.RandomQueues().arrival_rate)
# The shared model under the assumptions of the theory: |x| <= 1, |theta| <= 1, and 1 / kappa <= p_j p_0 for such utilities.
_SHARED: dict[str, Any] = {
    "pair_features": True,
    "num_models": 5,
    "dim": 5,
    "slack": 0.0,
    "arrival_rate": 0.45,
    "horizon": 1000,
}
_VALID_CURVATURE = (1.0 + math.e) ** 2 / math.e


# Departure rates of the shared model exceed the arrival rate by little; features on [-1, 1]^5 / sqrt(5) have a second moment of 1 / 15.
_SHARED_THEORY = qu.Theory(
    dim=_SHARED["dim"],
    num_offered=1,
    arrival_rate=_SHARED["arrival_rate"],
    slack=0.01,
    curvature=_VALID_CURVATURE,
    spread=1.0 / 15.0,
)


def _shared_queue(horizon: int = 1000) -> qu.RandomQueues:
    return qu.RandomQueues(**{**_SHARED, "horizon": horizon})


def _estimate(env, policy, env_state, policy_state, t):
    """Distance of the estimate to the truth over the confidence radius, and the design matrix' least eigenvalue."""
    del env_state
    error = policy_state.theta[0] - jnp.asarray(env.contexts.theta)
    design = policy_state.spread[0]
    distance = jnp.sqrt(jnp.maximum(jnp.sum(error * (design @ error)), 0.0))
    radius = qu.mnl_radius(t, env.dim, env.num_offered, policy.curvature, policy.ridge)
    return {"distance": distance / radius, "least": jnp.linalg.eigvalsh(design)[0]}


def _long_queue(horizon: int = 20_000) -> qu.QueueEnv:
    return qu.fixed_queue(_THETA, horizon=horizon, limit=512)


def _switching(env: qu.QueueEnv) -> dict[str, Any]:
    first, second = qu.ACQB(), qu.Optimal.of(env)
    switch = grid(qu.SwitchAt, first=first, second=second, at=list(range(env.spec.rounds + 1)))
    return {"switch": switch, "ACQB": first, "Optimal": second}


def _cases() -> tuple[Case, ...]:
    return (
        Case(
            qu.RandomQueues,
            {"ACQB": qu.ACQB(), "Random": qu.Random(), "Optimal": qu.Optimal.of},
            5000,
            "regret",
            {"num_models": 5},
            record_every=50,
            record=_COUNTS,
            seeds=256,
        ),
        Case(_long_queue, {"ACQB": qu.ACQB()}, 20_000, "long", {}, record_every=50, record=_COUNTS, seeds=256),
        Case(
            qu.RandomQueues,
            {"ACQB": grid(qu.ACQB, c1=[1.0, 2.0])},
            1000,
            "exploring",
            {"num_models": 5},
            record_every=100,
            record=_COUNTS,
        ),
        Case(
            _shared_queue,
            {"ACQB": qu.ACQB(curvature=_VALID_CURVATURE)},
            1000,
            "shared",
            {},
            record_every=50,
            record=_COUNTS,
            probes={"estimate": _estimate},
        ),
        Case(
            functools.partial(qu.fixed_queue, _THETA),
            _switching,
            _SWITCH_HORIZON,
            "switching",
            {"num_offered": 1},
            record_every=1,
            record=("queue_length",),
            seeds=64,
        ),
    )


def _regret_slope(results: Results) -> Verdict:
    start = 0.1 * float(results["regret"]["time"][-1])
    (joint, random_joint), (routing, random_routing) = (
        [late_slope(results["regret"], metric, policy, start, every_time=True) for policy in ("ACQB", "Random")]
        for metric in ("joint_regret", "routing_regret")
    )
    text = (
        f"log-log slope over the last nine tenths, joint regret: ACQB {show_slope(joint)}, Random {show_slope(random_joint)}; "
        f"routing regret: ACQB {show_slope(routing)}, Random {show_slope(random_routing)}"
    )
    root = joint.below(0.55, by=2.0) and routing.below(0.55, by=2.0)
    return text, root and abs(random_routing.mean - 1.0) < 0.02


def windows(data: xr.Dataset, policy: str = "ACQB") -> dict[int, Measured]:
    """Mean queue above the optimal one in the last half of the run, the half before that, and so on, by first round.

    In the order of time.
    """
    runs = metrics.cumulative(data[["mean_queue_regret", "valid"]].sel(policy=policy), "mean_queue_regret")
    times, found, last = runs["time"].values, {}, runs.sizes["time"] - 1
    while last > 0:
        first = int(np.argmin(np.abs(times - times[last] / 2)))
        if first == last:
            break
        rounds = float(times[last] - times[first])
        found[int(times[first])] = mean_of((runs.isel(time=last) - runs.isel(time=first)) / rounds)
        last = first
    return dict(reversed(found.items()))


def _decay(results: Results) -> Verdict:
    found = windows(results["long"])
    text, times = listed(found, "from {}:"), list(found)
    after = {t: found[t] for t in times[times.index(highest(found)) :]}
    falls = len(after) > 2 and all(b.below(a, by=-2.0) for a, b in itertools.pairwise(after.values()))
    # From the hump to the first window that cannot be told from zero.
    clear = dict(itertools.takewhile(lambda window: window[1].above(0.0, by=2.0), after.items()))
    if len(clear) < 2:
        return f"{text}; gone right after the hump", falls
    slope = float(np.polyfit(np.log(list(clear)), np.log([value.mean for value in clear.values()]), 1)[0])
    return f"{text}; log-log slope after the hump {slope:.2f}", falls and slope <= -0.25


@all_hold()
def _explorations(results: Results) -> Iterator[Verdict]:
    data = results["exploring"]
    for c1, explored in ends_along(data, "explored", "ACQB", "c1").items():
        expected = qu.expected_explorations(int(data["time"][-1]), _ARRIVAL_RATE, float(c1))
        yield f"c1 = {c1:g}: {show(explored)} against {expected:.2f}", explored.near(expected, by=4.0)


def _coverage(results: Results) -> Verdict:
    data = results["shared"]
    distance = data["estimate.distance"].isel(policy=0)
    left = (~(distance <= 1.0)).any("time")  # Also where it is not a number.
    share = float(left.mean())
    return (
        f"largest distance over the radius {float(distance.max()):.3f}; it was left in {100 * share:.1f} % of runs",
        share < 0.01,
    )


@all_hold()
def _least_eigenvalue(results: Results) -> Iterator[Verdict]:
    data = results["shared"]
    for time in data["time"].values[[4, 9, 19] if len(data["time"]) > 19 else [-1]]:
        bound, chance = _SHARED_THEORY.least_eigenvalue(float(time))
        above = float((data["estimate.least"].isel(policy=0).sel(time=time) >= bound).mean())
        text = f"round {time}: above {bound:.2f} in {100 * above:.1f} % (the lemma says at least {100 * chance:.1f} %)"
        yield text, above >= max(chance, 0.99)


def _effects(results: Results) -> xr.DataArray:
    """`psi(i, t)`: what the learner's decision in round `i` changes in the queue, if the optimal policy follows."""
    data = results["switching"]["queue_length"].sel(policy="switch")
    return data.diff("at", label="lower")


def _switch_signs(results: Results) -> Verdict:
    queue = results["switching"]["queue_length"]
    effect = _effects(results).transpose("at", "time", "seed").values
    rounds = effect.shape[0]
    number = np.arange(rounds)
    split = effect[number, number]  # [at, seed]: right after the round in which the decisions differ.
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


def _little(results: Results) -> Verdict:
    data = results["regret"]
    queue = end(data, "mean_queue", "ACQB")
    sojourn, departures, arrivals = (end(data, name, "ACQB").mean for name in ("sojourn", "departures", "arrivals"))
    if not departures:
        return "no query departs", False
    other = arrivals / float(data["time"][-1]) * sojourn / departures
    text = f"mean queue {show(queue)} against arrival rate x mean sojourn {other:.3f}"
    return text, abs(queue.mean - other) < 0.1 * queue.mean


def _theory_panels(results: Results):
    figure, axes = plot.panels(4, columns=2)
    first, second, third, fourth = axes.reshape(-1)
    plot.curves(results["regret"].sel(policy=["ACQB", "Random"]), "routing_regret", log=True, ax=first, title="regret")
    found = {first: value for first, value in windows(results["long"]).items() if value.mean > 0}
    errors = [2 * value.error for value in found.values()]
    second.errorbar(list(found), [value.mean for value in found.values()], errors, marker="o", capsize=2)
    plot.log_axis(second, "x")
    second.set_xlabel("first round of a window of doubling length")
    second.set_ylabel("mean queue above the optimal one")
    second.set_title("theorem 5: the hump and the decay", loc="left", fontsize=9)
    data = results["shared"]
    third.plot(data["time"], data["estimate.distance"].isel(policy=0).quantile(0.95, "seed"), label="95 % of runs")
    third.plot(data["time"], data["estimate.distance"].isel(policy=0).median("seed"), label="median")
    third.axhline(1.0, color="#555555", linestyle="--", linewidth=0.8)
    third.set_xlabel("round")
    third.set_ylabel("distance to the truth / radius")
    third.set_title("coverage of the radius", loc="left", fontsize=9)
    third.legend(fontsize=7)
    effect = _effects(results).mean("seed")
    image = fourth.imshow(
        effect.transpose("at", "time").values,
        aspect="auto",
        origin="lower",
        cmap="RdBu_r",
        extent=(0, float(effect["time"][-1]), 0, float(effect["at"][-1])),
        vmin=-float(abs(effect).max()),
        vmax=float(abs(effect).max()),
    )
    fourth.set_xlabel("round t")
    fourth.set_ylabel("round i of the decision")
    fourth.set_title("queue added by the decision of round i", loc="left", fontsize=9)
    figure.colorbar(image, ax=fourth)
    return figure


THEORY = Experiment(
    "queueing/theory",
    "What the theory of ACQB says, measured",
    _cases(),
    512,
    (
        Claim(
            "theorem-6",
            "regret, joint and of routing, grows no faster than the square root of time",
            f"{_PAPER}, theorem 6",
            _regret_slope,
        ),
        Claim(
            "theorem-5",
            "the queue above the optimal one falls at least as t^-1/4 in the end",
            f"{_PAPER}, theorem 5",
            _decay,
        ),
        Claim(
            "explorations", "as many explorations as lambda times the sum of eta", f"{_PAPER}, appendix G.1", _explorations
        ),
        Claim("coverage", "the radius covers the truth (shared model, valid kappa)", f"{_PAPER}, lemma 33", _coverage),
        Claim(
            "eigenvalue",
            "the design matrix grows as lemma 25 says, in 99 % of runs (shared model)",
            f"{_PAPER}, lemma 25",
            _least_eigenvalue,
        ),
        Claim(
            "switching",
            "a decision is felt as one query or none, with one sign, and the effects add up",
            f"{_PAPER}, lemma 8",
            _switch_signs,
        ),
        Claim("little", "mean queue = arrival rate x mean sojourn", "Little (1961)", _little),
    ),
    {"theory": _theory_panels},
    source=f"{_PAPER}, theorems 5 and 6 and their proofs",
    notes="theorem 5 asks for astronomic horizons (10^32 rounds at these numbers): only its shape can be seen; the explicit bound of theorem "
    "6 is 5,500 times the largest regret that is possible in 1,000 rounds",
    smoke_horizon=400,
)
