"""What the theory of ACQB says, measured: regret, queue, exploration, coverage, and how long one decision is felt."""

import functools
import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, metrics
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.measure import end, panels, show
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
    "explored",
    "departures",
    "arrivals",
    "mean_queue",
    "sojourn",
)
_SWITCH_HORIZON = 200
# The shared model under the assumptions of the theory: |x| <= 1, |theta| <= 1, and 1 / kappa <= p_j p_0 for such utilities.
_SHARED = {"pair_features": True, "num_models": 5, "dim": 5, "slack": 0.0, "arrival_rate": 0.45, "horizon": 1000}
_VALID_CURVATURE = (1.0 + math.e) ** 2 / math.e


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


def _long_queue(horizon: int = 20_000) -> qu.RetrialQueue:
    return qu.fixed_queue(_THETA, horizon=horizon, limit=512)


def _switching(env: qu.RetrialQueue) -> dict[str, Any]:
    at = np.unique(np.linspace(0, env.spec.rounds, 41).astype(int)).tolist()
    first = qu.ACQB()
    return {"switch": grid(qu.SwitchAt, first=first, second=qu.Optimal.of(env), at=at)}


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
            {"ACQB": grid(qu.acqb, c1=[1.0, 2.0])},
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
            seeds=256,
        ),
    )


def _regret_slope(results: Results) -> tuple[str, bool]:
    data = results["regret"].sel(policy=["ACQB", "Random"])
    slopes = metrics.curve_slope(data, "routing_regret", 0.1 * float(data["time"][-1]))
    values = [(float(s), float(e)) for s, e in zip(slopes["slope"], slopes["stderr"], strict=True)]
    holds = values[0][0] + 2.0 * values[0][1] < 0.55 and abs(values[1][0] - 1.0) < 0.02
    return f"log-log slope over the last nine tenths: ACQB {show(values[0])}, Random {show(values[1])}", bool(holds)


def windows(data: xr.Dataset, policy: str = "ACQB") -> list[tuple[int, float, float]]:
    """Mean queue above the optimal one in the rounds from `2^k` to `2^(k+1)`: first round, mean and standard error."""
    runs = metrics.cumulative(data[["mean_queue_regret", "valid"]].sel(policy=policy), "mean_queue_regret")
    times, found = runs["time"].values, []
    start = int(times[0])
    while 2 * start <= times[-1]:
        first, last = (int(np.argmin(np.abs(times - t))) for t in (start, 2 * start))
        mean = (runs.isel(time=last) - runs.isel(time=first)) / float(times[last] - times[first])
        found.append((int(times[first]), float(mean.mean()), float(mean.std(ddof=1) / math.sqrt(mean.sizes["seed"]))))
        start *= 2
    return found


def _decay(results: Results) -> tuple[str, bool]:
    found = windows(results["long"])
    text = ", ".join(f"from {t}: {show((m, e))}" for t, m, e in found)
    top = int(np.argmax([m for _, m, _ in found]))
    after = found[top:]
    falls = all(b[1] < a[1] + 2.0 * math.hypot(a[2], b[2]) for a, b in itertools.pairwise(after))
    positive = [(t, m) for t, m, _ in after if m > 0]
    slope = (
        float(np.polyfit(np.log([t for t, _ in positive]), np.log([m for _, m in positive]), 1)[0])
        if len(positive) > 1
        else 0.0
    )
    return f"{text}; log-log slope after the hump {slope:.2f}", bool(falls and slope < -0.15)


def _explorations(results: Results) -> tuple[str, bool]:
    data, parts, holds = results["exploring"], [], True
    horizon = int(data["time"][-1])
    for c1 in data["c1"].values:
        value, error = end(data, "explored", "ACQB", c1=c1)
        expected = qu.expected_explorations(horizon, 0.7, float(c1))
        parts.append(f"c1 = {c1:g}: {show((value, error))} against {expected:.2f}")
        holds &= abs(value - expected) < 4.0 * error
    return "; ".join(parts), bool(holds)


def _coverage(results: Results) -> tuple[str, bool]:
    distance = results["shared"]["estimate.distance"].isel(policy=0)
    share = float((distance > 1.0).any("time").mean())
    return (
        f"largest distance over the radius {float(distance.max()):.3f}; it was left in {100 * share:.1f} % of runs",
        share < 0.01,
    )


def _least_eigenvalue(results: Results) -> tuple[str, bool]:
    data = results["shared"]
    theory = qu.Theory(dim=5, num_offered=1, arrival_rate=0.45, slack=0.01, curvature=_VALID_CURVATURE, spread=1.0 / 15.0)
    parts, holds = [], True
    for time in data["time"].values[[4, 9, 19] if len(data["time"]) > 19 else [-1]]:
        bound, chance = theory.least_eigenvalue(float(time))
        above = float((data["estimate.least"].isel(policy=0).sel(time=time) >= bound).mean())
        parts.append(f"round {time}: above {bound:.2f} in {100 * above:.1f} % (at least {100 * chance:.1f} %)")
        holds &= above >= chance
    return "; ".join(parts), bool(holds)


def _theorem_6(results: Results) -> tuple[str, bool]:
    data = results["shared"]
    theory = qu.Theory(dim=5, num_offered=1, arrival_rate=0.45, slack=0.01, curvature=_VALID_CURVATURE, spread=1.0 / 15.0)
    horizon = int(data["time"][-1])
    value = end(data, "routing_regret", "ACQB")
    bound = theory.routing_regret(horizon)
    return f"{show(value)} against {bound:.3g}", value[0] < bound


def _effects(results: Results) -> xr.DataArray:
    """`psi(i, t)`: what the learner's decisions between two switching rounds change in the queue."""
    data = results["switching"]["queue_length"].isel(policy=0)
    return data.diff("at")


def _switch_signs(results: Results) -> tuple[str, bool]:
    data = results["switching"]["queue_length"].isel(policy=0)
    steps = np.diff(data["at"].values)
    effect = _effects(results).values
    within = np.abs(effect) <= steps[:, None, None]
    total = effect.sum(axis=0)
    ends = data.isel(at=-1).values - data.isel(at=0).values
    telescopes = np.array_equal(total, ends)
    return (
        f"{effect.size:,} differences of queues that switch {steps[0]} rounds apart: at most {np.abs(effect).max():.0f}; their sum is "
        f"{'always' if telescopes else 'not always'} the difference of learner and optimal policy",
        bool(within.all() and telescopes),
    )


def _little(results: Results) -> tuple[str, bool]:
    data = results["regret"]
    queue = end(data, "mean_queue", "ACQB")
    sojourn, departures, arrivals = (end(data, name, "ACQB")[0] for name in ("sojourn", "departures", "arrivals"))
    horizon = float(data["time"][-1])
    other = arrivals / horizon * sojourn / departures
    return f"mean queue {show(queue)} against arrival rate x mean sojourn {other:.3f}", abs(queue[0] - other) < 0.1 * queue[
        0
    ]


def _theory_panels(results: Results):
    plot, figure, axes = panels(4, columns=2)
    first, second, third, fourth = axes.reshape(-1)
    plot.curves(results["regret"].sel(policy=["ACQB", "Random"]), "routing_regret", log=True, ax=first, title="regret")
    found = [w for w in windows(results["long"]) if w[1] > 0]
    second.errorbar([t for t, _, _ in found], [m for _, m, _ in found], [2 * e for _, _, e in found], marker="o", capsize=2)
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
    fourth.set_ylabel("switch to the optimal policy at i")
    fourth.set_title("queue added by the decisions before i", loc="left", fontsize=9)
    figure.colorbar(image, ax=fourth)
    return figure


THEORY = Experiment(
    "queueing/theory",
    "What the theory of ACQB says, measured",
    _cases(),
    512,
    (
        Claim("theorem-6", "regret grows no faster than the square root of time", f"{_PAPER}, theorem 6", _regret_slope),
        Claim("theorem-6-bound", "and stays below the explicit bound (shared model)", f"{_PAPER}, theorem 6", _theorem_6),
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
            "eigenvalue", "the design matrix grows as lemma 25 says (shared model)", f"{_PAPER}, lemma 25", _least_eigenvalue
        ),
        Claim(
            "switching",
            "a decision is felt as one query or none, and the effects add up",
            f"{_PAPER}, lemma 8",
            _switch_signs,
        ),
        Claim("little", "mean queue = arrival rate x mean sojourn", "Little (1961)", _little),
    ),
    {"theory": _theory_panels},
    source=f"{_PAPER}, theorems 5 and 6 and their proofs",
    notes="theorem 5 asks for astronomic horizons (10^32 rounds at these numbers): only its shape can be seen",
    smoke_horizon=400,
)
