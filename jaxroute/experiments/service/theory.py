"""What the theory of MESS+ says, measured: queue, violation, exploration and learning."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict, all_hold, slope_within
from jaxroute.experiments.measure import Measured, along, end, ends_along, show
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


def _demo_case(name: str, policies: Mapping[str, Any], horizon: int, *, every: int, **options: Any) -> Case:
    """A case of the demo instance, recorded `every` so many requests."""
    options = {"settings": {"alpha": _DEMO_ALPHA}, "record": _GAP, **options}
    return Case(sv.typed_service, policies, horizon, name, record_every=every, **options)


def _theory_cases() -> tuple[Case, ...]:
    still: dict[str, Any] = {"predictor": _KNOWS, "c": 0.0, "explores_first": False}
    margin_V, margin_horizon = _MARGIN["V"], int(_MARGIN["horizon"])
    margin = sv.safety_margin(margin_V, 1450.0, _MARGIN["slack"], margin_horizon)
    with_and_without = {
        "MESS+ with a margin": sv.MessPlus(V=margin_V, margin=margin, **still),
        "MESS+": sv.MessPlus(V=margin_V, **still),
    }
    learned = sv.MessPlus(V=1e-2, c=0.1)
    return (
        _demo_case("law", {"MESS+": grid(sv.MessPlus, V=_V_LAW, **still)}, _TIMES[-1], every=750),
        _demo_case("gap", {"MESS+": grid(sv.MessPlus, V=[1e-5, 1e-4, 1e-3, 1e-2], **still)}, 12_000, every=12_000),
        *(
            _demo_case(
                f"root-{horizon}",
                {"MESS+": sv.MessPlus(V=1e-4 * math.sqrt(horizon), **still)},
                horizon,
                every=horizon,
                coordinates={"horizon": horizon},
            )
            for horizon in _TIMES[2:]
        ),
        _demo_case("exploring", {"MESS+": grid(sv.MessPlus, c=[0.05, 0.1, 0.2], predictor=_KNOWS)}, 48_000, every=750),
        _demo_case(
            "learning",
            {"MESS+": sv.theory_policy(_MU, 1.0, c=1e9)},
            1600,
            every=50,
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
        _demo_case("margin", with_and_without, margin_horizon, every=margin_horizon, settings={"alpha": _MARGIN["alpha"]}),
        _demo_case(
            "learned",
            {"MESS+": learned, "MESS+ (c = .01)": learned.replace(c=0.01)},
            96_000,
            every=750,
            record=(*_GAP, "training_steps", "training_loss"),
            seeds=256,
        ),
    )


def _at_times(data: xr.Dataset, metric: str, times: Sequence[int], **where: Any) -> xr.DataArray:
    """Values `[time, seed]` at some of the recorded times."""
    have = [t for t in times if t in data["time"].values]
    return data[metric].sel(policy="MESS+", time=have, **where).transpose("time", "seed")


def _queue_bounds(results: Results) -> Verdict:
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


def _violation_in_time(results: Results) -> Verdict:
    values = _at_times(results["law"], "violation", _TIMES[2:], V=1e-2)
    text, holds = slope_within(values, "time", -1.1, -0.9)
    means = ", ".join(f"{float(m):.4f}" for m in values.mean("seed"))
    return f"{text}; violation {means} at {values['time'].values.tolist()}", holds


def _violation_in_V(results: Results) -> Verdict:
    last = results["law"]["violation"].sel(policy="MESS+").isel(time=-1, drop=True)
    text, holds = slope_within(last, "V", 0.9, 1.1)
    constant = float((last.mean("seed") * results["law"]["time"].values[-1] / last["V"]).mean())
    return f"{text}; violation x T / V = {constant:.0f} J (price of satisfaction 4000 J)", holds


@all_hold(between=", ")
def _queue_level(results: Results) -> Iterator[Verdict]:
    """Mean queue over the second half of the run against V x price."""
    data = results["law"]
    late = data["virtual_queue"].sel(policy="MESS+", time=data["time"] > data["time"][-1] / 2).mean(("time", "seed"))
    for V in data["V"].values:
        level, expected = float(late.sel(V=V)), float(V) * float(_DEMO.best.price)
        yield f"V {V:g}: {level:.2f} (V x price {expected:.1f})", abs(level - expected) < 0.1 * expected + 3.0


def _gap_in_V(results: Results) -> Verdict:
    """Gap plus price times violation: what is left once the debt is counted, against the bound 1 / (2 V)."""
    gaps, debts = (ends_along(results["gap"], metric, "MESS+", "V") for metric in ("gap", "violation"))
    price, values = float(_DEMO.best.price), {}
    for V, gap in gaps.items():
        debt = debts[V].times(price)
        values[V] = Measured(gap.mean + debt.mean, math.hypot(gap.error, debt.error))
    text = ", ".join(f"V {V:g}: {show(value)} J (bound {0.5 / V:g})" for V, value in values.items())
    bounded = all(value.mean - 3 * value.error <= 0.5 / V for V, value in values.items())
    return text, bounded and all(a.mean > b.mean for a, b in itertools.pairwise(values.values()))


def _root_slope(results: Results) -> Verdict:
    roots = {n: d for n, d in results.items() if n.startswith("root-")}
    values = along(roots, "violation", "horizon").sel(policy="MESS+")
    text, holds = slope_within(values, "horizon", -0.6, -0.4)
    gaps = along(roots, "gap", "horizon").sel(policy="MESS+").mean("seed").values
    shown = ", ".join(f"{g:.1f}" for g in gaps)
    return f"{text}; gap {shown} J at {values['horizon'].values.tolist()}", holds and abs(gaps[-1]) < abs(gaps[0])


def _overhead_in_time(results: Results) -> Verdict:
    return slope_within(_at_times(results["exploring"], "explore_overhead", _TIMES, c=0.1), "time", -0.3, -0.2)


def _overhead_in_c(results: Results) -> Verdict:
    last = results["exploring"]["explore_overhead"].sel(policy="MESS+").isel(time=-1, drop=True)
    return slope_within(last, "c", 0.95, 1.05)


def _count_law(results: Results) -> Verdict:
    explored = _at_times(results["exploring"], "explored", _TIMES[2:], c=0.1)
    count = (explored * explored["time"]).round().clip(min=1.0)
    text, holds = slope_within(count, "time", 0.72, 0.78)
    inverse_text, inverse_holds = slope_within(1.0 / count, "time", -0.79, -0.71)
    return f"E[K] {text}; E[1/K] {inverse_text}", holds and inverse_holds


def _loss_law(results: Results) -> Verdict:
    data = results["learning"]
    excess = (data["exact_loss"] - _least_loss()).sel(policy="MESS+")
    text, holds = slope_within(excess, "time", -1.25, -0.75)
    means = excess.transpose("time", "seed").mean("seed").values
    return f"{text}; {means[0]:.4f} after {int(data['time'][0])} steps, {means[-1]:.5f} at the end", holds


def _knowledge(results: Results) -> Verdict:
    data, parts = results["signal"], []
    clairvoyant, informed = [], []
    for signal in data["signal"].values:
        env = sv.benchmark_service("winogrande", signal=float(signal))
        cost, debt = (end(data, metric, "MESS+", signal=signal).mean for metric in ("cost", "violation"))
        clairvoyant.append(cost - float(env.clairvoyant.cost))
        informed.append(cost + float(env.best.price) * debt - float(env.best.cost))
        parts.append(f"{signal:g}: {clairvoyant[-1]:.1f} and {informed[-1]:.1f}")
    falls = all(b < a for a, b in itertools.pairwise(clairvoyant))
    close = max(map(abs, informed)) < 0.1 * clairvoyant[0]
    return f"gap to the clairvoyant and to the informed, J, by signal {', '.join(parts)}", falls and close


def _margin_holds(results: Results) -> Verdict:
    violation = results["margin"]["violation"].isel(time=-1)
    with_margin, without = (float((violation.sel(policy=p) <= 1e-6).mean()) for p in ("MESS+ with a margin", "MESS+"))
    return f"met in {100 * with_margin:.1f} % of the runs, without margin in {100 * without:.1f} %", with_margin >= 0.99


def _pathwise(results: Results) -> Verdict:
    """`Q >= sum of (alpha - s)` in every run at every recorded time."""
    least, number = np.inf, 0
    for data in results.values():
        if "virtual_queue" in data:
            debt = data["violation"] * data["time"]
            slack = (data["virtual_queue"] - debt).values / np.sqrt(np.maximum(data["time"].values, 1.0))
            least, number = min(least, float(np.nanmin(slack))), number + int(np.isfinite(slack).sum())
    return f"least (Q - sum) / sqrt(t) {least:.2g} over {number:,} records", least > -0.01


def _learned_in_time(results: Results) -> Verdict:
    values = _at_times(results["learned"], "violation", [3000 * 2**j for j in range(6)])
    text, holds = slope_within(values, "time", -1.1, -0.75)
    means = ", ".join(f"{float(m):.4f}" for m in values.mean("seed"))
    return f"{text}; violation {means}", holds


def _few_steps_miss(results: Results) -> Verdict:
    data = results["learned"]
    one = data.sel(policy="MESS+ (c = .01)", time=data["time"].values[data["time"].values >= 750][0])
    missed, steps = float((one["violation"] > 1e-6).mean()), float(one["training_steps"].mean())
    return (
        f"after {int(one['time'])} requests and {steps:.1f} steps missed in {100 * missed:.0f} % of the runs",
        missed > 0.5,
    )


def _theory_figure(results: Results):
    figure, axes = plot.panels(6)
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
