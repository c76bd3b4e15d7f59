"""What the theory of MESS+ says, measured: queue, violation, exploration and learning."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import metrics
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.measure import along, end, panels, show
from jaxroute.problems import service as sv

_PAPER = "MESS+"
_DEMO_ALPHA = 0.8
_TIMES = tuple(750 * 2**j for j in range(7))
_V_LAW = [1e-2, 2e-2, 4e-2, 8e-2]


def informed(**settings: Any) -> Callable:
    """A function `environment -> MESS+` that knows the true chances."""

    def policy(env: sv.ServiceEnv) -> sv.MessPlus:
        return sv.MessPlus(predictor=sv.TrueChances(env.requests), **settings)

    return policy


_DEMO = sv.typed_service(alpha=_DEMO_ALPHA)
_KNOWS = sv.TrueChances(_DEMO.requests)
_GAP = ("cost", "gap", "satisfaction", "violation", "virtual_queue", "mean_queue", "explored", "explore_overhead")
_SIGNALS = [0.0, 0.15, 0.37, 0.6, 1.0, 2.0]
_MU = 0.1
_MARGIN = {"alpha": 0.75, "horizon": 8000, "V": 1e-2, "slack": 0.05}


def _exact_loss(env, policy, env_state, policy_state, t):
    """Expected loss at the present parameters, regularised, over the types of an environment."""
    del env_state, t
    source = env.requests
    logits = jax.vmap(lambda x: policy.predictor.head.logits(policy_state.params, x))(jnp.asarray(source.vectors))
    chance = jnp.asarray(source.chance)
    each = jnp.mean(jnp.logaddexp(0.0, logits) - chance * logits, axis=-1)
    norm = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(policy_state.params))
    return jnp.sum(jnp.asarray(source.weight) * each) + 0.5 * policy.l2 * norm


@functools.lru_cache(maxsize=1)
def _least_loss() -> float:
    """The minimum of that loss on the demo instance, by Newton's method in float64."""
    source = _DEMO.requests
    x = np.concatenate([source.vectors, np.ones((len(source.weight), 1))], axis=1).astype(np.float64)
    weight, chance = np.asarray(source.weight, np.float64), np.asarray(source.chance, np.float64)
    models, total = chance.shape[1], 0.0
    for m in range(models):
        z = np.zeros(x.shape[1])
        for _ in range(50):
            p = 1.0 / (1.0 + np.exp(-x @ z))
            gradient = x.T @ (weight * (p - chance[:, m])) / models + _MU * z
            hessian = (x * (weight * p * (1 - p))[:, None]).T @ x / models + _MU * np.eye(len(z))
            z -= np.linalg.solve(hessian, gradient)
        logits = x @ z
        total += float(weight @ (np.logaddexp(0.0, logits) - chance[:, m] * logits)) / models + 0.5 * _MU * float(z @ z)
    return total


def _with_signals(benchmark: str):
    return grid(sv.benchmark_service, benchmark=benchmark, signal=_SIGNALS)


def _theory_cases() -> tuple[Case, ...]:
    demo = {"alpha": _DEMO_ALPHA}
    still: dict[str, Any] = {"predictor": _KNOWS, "c": 0.0, "explores_first": False}
    margin = sv.safety_margin(_MARGIN["V"], 1450.0, _MARGIN["slack"], int(_MARGIN["horizon"]))
    learned = sv.MessPlus(V=1e-2, c=0.1)
    return (
        Case(
            sv.typed_service,
            {"MESS+": grid(sv.MessPlus, V=_V_LAW, **still)},
            _TIMES[-1],
            "law",
            demo,
            record_every=750,
            record=_GAP,
        ),
        Case(
            sv.typed_service,
            {"MESS+": grid(sv.MessPlus, V=[1e-5, 1e-4, 1e-3, 1e-2], **still)},
            12_000,
            "gap",
            demo,
            record_every=12_000,
            record=_GAP,
        ),
        *(
            Case(
                sv.typed_service,
                {"MESS+": sv.MessPlus(V=1e-4 * math.sqrt(horizon), **still)},
                horizon,
                f"root-{horizon}",
                demo,
                {"horizon": horizon},
                record_every=horizon,
                record=_GAP,
            )
            for horizon in _TIMES[2:]
        ),
        Case(
            sv.typed_service,
            {"MESS+": grid(sv.MessPlus, c=[0.05, 0.1, 0.2], predictor=_KNOWS)},
            48_000,
            "exploring",
            demo,
            record_every=750,
            record=_GAP,
        ),
        Case(
            sv.typed_service,
            {"MESS+": sv.theory_policy(_MU, 1.0, c=1e9)},
            1600,
            "learning",
            demo,
            record_every=50,
            record=("training_loss",),
            probes={"exact_loss": _exact_loss},
        ),
        Case(
            _with_signals,
            {"MESS+": informed(c=0.0, explores_first=False, V=1e-2)},
            20_000,
            "signal",
            {"benchmark": "winogrande"},
            record_every=20_000,
            record=_GAP,
        ),
        Case(
            sv.typed_service,
            {
                "MESS+ with a margin": sv.MessPlus(V=_MARGIN["V"], margin=margin, **still),
                "MESS+": sv.MessPlus(V=_MARGIN["V"], **still),
            },
            int(_MARGIN["horizon"]),
            "margin",
            {"alpha": _MARGIN["alpha"]},
            record_every=int(_MARGIN["horizon"]),
            record=_GAP,
        ),
        Case(
            sv.typed_service,
            {"MESS+": learned, "MESS+ (c = .01)": learned.replace(c=0.01)},
            96_000,
            "learned",
            demo,
            record_every=750,
            record=(*_GAP, "training_steps", "training_loss"),
            seeds=256,
        ),
    )


def _at_times(data: xr.Dataset, metric: str, times: Sequence[int], **where: Any) -> xr.DataArray:
    """Values `[time, seed]` at some of the recorded times."""
    have = [t for t in times if t in data["time"].values]
    return data[metric].sel(policy="MESS+", time=have, **where).transpose("time", "seed")


def _fit(x, values: xr.DataArray) -> tuple[str, metrics.Slope | None]:
    """Slope of a power law in words, or why there is none."""
    if len(x) < 2 or not (values.mean("seed").values > 0).all():
        return "no slope: too few times, or a mean that is not positive", None
    fit = metrics.slope(x, values.values)
    return f"slope {fit.slope:.3f} (95 %: {fit.low:.3f} to {fit.high:.3f})", fit


def _within(fit: metrics.Slope | None, low: float, high: float) -> bool:
    return fit is not None and low <= fit.slope <= high


def _queue_bounds(results: Results) -> tuple[str, bool]:
    """Theorem 1 and Corollary 1 on the demo instance, for every V and several slacks."""
    contexts, worst, worst_mean, worst_violation = _DEMO.requests.contexts(), 0.0, 0.0, 0.0
    data = results["law"]
    times = data["time"].values
    for V in data["V"].values:
        queue = data["virtual_queue"].sel(policy="MESS+", V=V).mean("seed").values
        running = data["mean_queue"].sel(policy="MESS+", V=V).mean("seed").values
        violation = data["violation"].sel(policy="MESS+", V=V).mean("seed").values
        for slack in (0.03, 0.05, 0.1):
            q = sv.admissible_chance(contexts, slack)
            bounds = [sv.bound_queue(V, 1450.0, slack, int(t)) for t in times]
            worst = max(worst, float(np.max(queue / bounds)))
            violations = [sv.bound_violation(V, 1450.0, slack, int(t)) for t in times]
            worst_violation = max(worst_violation, float(np.max(violation / violations)))
            worst_mean = max(worst_mean, float(np.max(running / sv.bound_mean_queue(V, 1450.0, slack, q - _DEMO_ALPHA))))
    text = (
        f"at most {worst:.3f} of the first bound, {worst_mean:.3f} of the second and {worst_violation:.3f} of Corollary 1's"
    )
    return text, max(worst, worst_mean, worst_violation) <= 1.0


def _violation_in_time(results: Results) -> tuple[str, bool]:
    values = _at_times(results["law"], "violation", _TIMES[2:], V=1e-2)
    text, fit = _fit(values["time"].values, values)
    means = ", ".join(f"{float(m):.4f}" for m in values.mean("seed"))
    return f"{text}; violation {means} at {values['time'].values.tolist()}", _within(fit, -1.1, -0.9)


def _violation_in_V(results: Results) -> tuple[str, bool]:
    last = results["law"]["violation"].sel(policy="MESS+").isel(time=-1, drop=True).transpose("V", "seed")
    text, fit = _fit(last["V"].values, last)
    constant = float((last.mean("seed") * results["law"]["time"].values[-1] / last["V"]).mean())
    return f"{text}; violation x T / V = {constant:.0f} J (price of satisfaction 4000 J)", _within(fit, 0.9, 1.1)


def _queue_level(results: Results) -> tuple[str, bool]:
    """Mean queue over the second half of the run against V x price."""
    data, parts, holds = results["law"], [], True
    late = data["virtual_queue"].sel(policy="MESS+", time=data["time"] > data["time"][-1] / 2).mean(("time", "seed"))
    for V in data["V"].values:
        level, expected = float(late.sel(V=V)), float(V) * float(_DEMO.best.price)
        parts.append(f"V {V:g}: {level:.2f} (V x price {expected:.1f})")
        holds &= abs(level - expected) < 0.1 * expected + 3.0
    return ", ".join(parts), holds


def _gap_in_V(results: Results) -> tuple[str, bool]:
    """Gap plus price times violation: what is left once the debt is counted, against the bound 1 / (2 V)."""
    data, parts, holds = results["gap"], [], True
    values = []
    for V in data["V"].values:
        gap, debt = end(data, "gap", "MESS+", V=V), end(data, "violation", "MESS+", V=V)
        value = gap[0] + float(_DEMO.best.price) * debt[0]
        error = math.hypot(gap[1], float(_DEMO.best.price) * debt[1])
        values.append(value)
        parts.append(f"V {V:g}: {show((value, error))} J (bound {0.5 / V:g})")
        holds &= value - 3 * error <= 0.5 / V
    return ", ".join(parts), holds and values[0] > values[1] > values[2] > values[3]


def _root_slope(results: Results) -> tuple[str, bool]:
    roots = {n: d for n, d in results.items() if n.startswith("root-")}
    values = along(roots, "violation", "horizon").sel(policy="MESS+").transpose("horizon", "seed")
    text, fit = _fit(values["horizon"].values, values)
    gaps = along(roots, "gap", "horizon").sel(policy="MESS+").mean("seed").values
    shown = ", ".join(f"{g:.1f}" for g in gaps)
    return f"{text}; gap {shown} J at {values['horizon'].values.tolist()}", _within(fit, -0.6, -0.4) and abs(gaps[-1]) < abs(
        gaps[0]
    )


def _overhead_in_time(results: Results) -> tuple[str, bool]:
    values = _at_times(results["exploring"], "explore_overhead", _TIMES, c=0.1)
    text, fit = _fit(values["time"].values, values)
    return text, _within(fit, -0.3, -0.2)


def _overhead_in_c(results: Results) -> tuple[str, bool]:
    last = results["exploring"]["explore_overhead"].sel(policy="MESS+").isel(time=-1, drop=True).transpose("c", "seed")
    text, fit = _fit(last["c"].values, last)
    return text, _within(fit, 0.95, 1.05)


def _count_law(results: Results) -> tuple[str, bool]:
    explored = _at_times(results["exploring"], "explored", _TIMES[2:], c=0.1)
    count = (explored * explored["time"]).round().clip(min=1.0)
    (text, fit), (inverse_text, inverse) = (_fit(explored["time"].values, x) for x in (count, 1.0 / count))
    return f"E[K] {text}; E[1/K] {inverse_text}", _within(fit, 0.72, 0.78) and _within(inverse, -0.79, -0.71)


def _loss_law(results: Results) -> tuple[str, bool]:
    data = results["learning"]
    excess = (data["exact_loss"] - _least_loss()).sel(policy="MESS+").transpose("time", "seed")
    text, fit = _fit(data["time"].values, excess)
    means = excess.mean("seed").values
    return f"{text}; {means[0]:.4f} after {int(data['time'][0])} steps, {means[-1]:.5f} at the end", _within(
        fit, -1.25, -0.75
    )


def _knowledge(results: Results) -> tuple[str, bool]:
    data, parts = results["signal"], []
    clairvoyant, informed = [], []
    for signal in data["signal"].values:
        env = sv.benchmark_service("winogrande", signal=float(signal))
        cost, debt = end(data, "cost", "MESS+", signal=signal), end(data, "violation", "MESS+", signal=signal)
        clairvoyant.append(cost[0] - float(env.clairvoyant.cost))
        informed.append(cost[0] + float(env.best.price) * debt[0] - float(env.best.cost))
        parts.append(f"{signal:g}: {clairvoyant[-1]:.1f} and {informed[-1]:.1f}")
    falls = all(b < a for a, b in itertools.pairwise(clairvoyant))
    close = max(map(abs, informed)) < 0.1 * clairvoyant[0]
    return f"gap to the clairvoyant and to the informed, J, by signal {', '.join(parts)}", falls and close


def _margin_holds(results: Results) -> tuple[str, bool]:
    violation = results["margin"]["violation"].isel(time=-1)
    with_margin, without = (float((violation.sel(policy=p) <= 1e-6).mean()) for p in ("MESS+ with a margin", "MESS+"))
    return f"met in {100 * with_margin:.1f} % of the runs, without margin in {100 * without:.1f} %", with_margin >= 0.99


def _pathwise(results: Results) -> tuple[str, bool]:
    """`Q >= sum of (alpha - s)` in every run at every recorded time."""
    least, number = np.inf, 0
    for data in results.values():
        if "virtual_queue" in data:
            debt = data["violation"] * data["time"]
            slack = (data["virtual_queue"] - debt).values / np.sqrt(np.maximum(data["time"].values, 1.0))
            least, number = min(least, float(np.nanmin(slack))), number + int(np.isfinite(slack).sum())
    return f"least (Q - sum) / sqrt(t) {least:.2g} over {number:,} records", least > -0.01


def _learned_in_time(results: Results) -> tuple[str, bool]:
    values = _at_times(results["learned"], "violation", [3000 * 2**j for j in range(6)])
    text, fit = _fit(values["time"].values, values)
    means = ", ".join(f"{float(m):.4f}" for m in values.mean("seed"))
    return f"{text}; violation {means}", _within(fit, -1.1, -0.75)


def _few_steps_miss(results: Results) -> tuple[str, bool]:
    data = results["learned"]
    one = data.sel(policy="MESS+ (c = .01)", time=data["time"].values[data["time"].values >= 750][0])
    missed, steps = float((one["violation"] > 1e-6).mean()), float(one["training_steps"].mean())
    return (
        f"after {int(one['time'])} requests and {steps:.1f} steps missed in {100 * missed:.0f} % of the runs",
        missed > 0.5,
    )


def _theory_figure(results: Results):
    plot, figure, axes = panels(6)
    data = results["law"].sel(policy="MESS+")
    late = [t for t in _TIMES[2:] if t in data["time"].values]
    laws = {f"V = {V:g}": data["violation"].sel(V=V, time=late).rename(time="requests") for V in data["V"].values[:2]}
    plot.power_laws(laws, ax=axes[0], title="violation, V fixed")
    plot.curves(results["law"], "virtual_queue", ax=axes[1], title="virtual queue")
    roots = {n: d for n, d in results.items() if n.startswith("root-")}
    plot.power_laws(
        {"V = 1e-4 sqrt(T)": along(roots, "violation", "horizon").sel(policy="MESS+")}, ax=axes[2], title="V = v0 sqrt(T)"
    )
    exploring = results["exploring"].sel(policy="MESS+")
    times = [t for t in _TIMES if t in exploring["time"].values]
    series = {
        f"c = {c:g}": exploring["explore_overhead"].sel(c=c, time=times).rename(time="requests")
        for c in exploring["c"].values
    }
    plot.power_laws(series, ax=axes[3], title="overhead of exploring")
    loss = results["learning"]
    excess = (
        (loss["exact_loss"] - _least_loss())
        .sel(policy="MESS+")
        .rename(time="steps")
        .assign_attrs(label="loss above its minimum")
    )
    plot.power_laws({"logistic head": excess.rename("loss")}, ax=axes[4], title="Lemma A.1")
    learned = results["learned"].sel(policy="MESS+")
    times = [t for t in _TIMES[2:] if t in learned["time"].values]
    plot.power_laws(
        {"learned predictor": learned["violation"].sel(time=times).rename(time="requests")},
        ax=axes[5],
        title="violation, V = .01",
    )
    return figure


THEORY = Experiment(
    "service/theory",
    "What the theory says: queue, violation, exploration, learning",
    _theory_cases(),
    1024,
    (
        Claim(
            "theorem-1",
            "mean queue, mean of the mean queue and violation stay within their bounds",
            f"{_PAPER}, Theorem 1 and Corollary 1",
            _queue_bounds,
        ),
        Claim("violation-T", "violation falls as 1 / T with V fixed", f"{_PAPER}, Corollary 1", _violation_in_time),
        Claim("violation-V", "violation grows in proportion to V", f"{_PAPER}, Corollary 1", _violation_in_V),
        Claim("queue-level", "the queue settles at V times the price of satisfaction", "ours", _queue_level),
        Claim("gap", "cost above the best policy falls with V, below 1 / (2 V)", f"{_PAPER}, Theorem 2", _gap_in_V),
        Claim("overhead-T", "overhead of exploring falls as T^(-1/4)", f"{_PAPER}, Theorem 2", _overhead_in_time),
        Claim("overhead-c", "and grows in proportion to c", f"{_PAPER}, Theorem 2", _overhead_in_c),
        Claim("count", "E[K] grows as T^(3/4), E[1/K] falls as T^(-3/4)", f"{_PAPER}, Lemma A.3", _count_law),
        Claim("loss", "expected loss falls to its minimum as 1 / k", f"{_PAPER}, Lemma A.1", _loss_law),
        Claim(
            "root",
            "with V = v0 sqrt(T) violation falls as T^(-1/2), and the gap vanishes",
            f"{_PAPER}, section 3.2",
            _root_slope,
        ),
        Claim(
            "knowledge",
            "the more a request tells, the closer to the clairvoyant",
            f"{_PAPER}, Theorem 2, F_min",
            _knowledge,
        ),
        Claim("margin", "with the safety margin the target is met", f"{_PAPER}, after Corollary 1", _margin_holds),
        Claim("pathwise", "the queue is at least the sum of the shortfalls", f"{_PAPER}, eq. (2)", _pathwise),
        Claim(
            "learned",
            "with a learned predictor violation falls roughly as 1 / T",
            f"{_PAPER}, Corollary 1",
            _learned_in_time,
        ),
        Claim("few-steps", "with c = .01 a thousand requests are too few", "ours", _few_steps_miss),
    ),
    {"theory": _theory_figure},
    source=f"{_PAPER}, section 3.2 and appendix A",
    notes="three types of requests and three models of ours, on which every benchmark is exact",
    smoke_horizon=9600,
)
