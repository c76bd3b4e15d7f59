"""Experiments on the theory of MESS+: its queue, violation, exploration and learning, compared with the theorems; and its figures of exploration.

In claims `alpha` is the target share of satisfied requests, `s` is 1 for a satisfied request, else 0, the violation is alpha minus the mean of `s`.
The price of satisfaction is the derivative of the least mean cost (J) in alpha; the debt is the price times the violation. The gap is the mean cost
minus that of the best policy. Means are over runs, the mean queue over time; a level "within 10 % and 3" may differ by 10 % plus 3 requests. Request
`t` is explored with probability `min(1, c t^(-1/4))`. `T` is the number of requests, `v0` a constant. Slack is how far a served model's probability
of satisfaction may be below the best model's (assumption 1). The safety margin is added to alpha. The informed oracle knows the probability that a
model satisfies a request given its features, the clairvoyant knows whether the model does.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.core.quick import quick_jit
from jaxroute.data import MESSPLUS_BENCHMARKS
from jaxroute.estimators.heads import squared_norm
from jaxroute.experiments.base import Case, Claim, Results
from jaxroute.experiments.claims import Finding, all_hold, slope_within
from jaxroute.experiments.measure import Measured, along, coordinates_of, end, ends_along, listed, mean_of, product, share_of
from jaxroute.experiments.pictures import Panel, panels_of
from jaxroute.experiments.service.paper import average_mj, claim, experiment, informed, passes, steps
from jaxroute.problems import service as sv

_ALPHA = 0.8
_DEMO = sv.typed_service(alpha=_ALPHA)
_RANGE = float(np.ptp(_DEMO.requests.cost_mean))  # Range of the mean costs, in J.
_TIMES = tuple(750 * 2**j for j in range(7))
_GAP = ("cost", "gap", "satisfaction", "violation", "virtual_queue", "mean_queue", "explored", "explore_overhead")
_MU = 0.1


def _expected_loss(head: Any, params: Any, source: Any, l2: Any) -> jax.Array:
    """Returns the expected log loss of the predictor `head` with parameters `params` over the request types of `source`, plus `l2 |params|^2 / 2`."""
    logits = jax.vmap(lambda x: head.logits(params, x))(jnp.asarray(source.vectors))
    each = jnp.mean(jnp.logaddexp(0.0, logits) - jnp.asarray(source.probability) * logits, axis=-1)
    return jnp.sum(jnp.asarray(source.weight) * each) + 0.5 * l2 * squared_norm(params)


@functools.cache
def _least_loss() -> float:
    """Computes the smallest regularised loss that a logistic predictor can reach on the demo environment, by Newton's method."""

    def loss(z: jax.Array) -> jax.Array:
        params = {"w": z[:-1], "b": z[-1]}
        return _expected_loss(sv.Logistic(), params, _DEMO.requests, _MU)

    def newton_step(_: Any, z: jax.Array) -> jax.Array:
        return z - jnp.linalg.solve(jax.hessian(loss)(z).reshape(z.size, z.size), jax.grad(loss)(z).ravel()).reshape(z.shape)

    least = quick_jit(lambda z: loss(jax.lax.fori_loop(0, 20, newton_step, z)))
    return float(least(jnp.zeros((np.shape(_DEMO.requests.vectors)[1] + 1, len(_DEMO.accuracy)))))


def _case(name: str, policies: Mapping[str, Any], horizon: int, every: int, **options: Any) -> Case:
    """Makes a case of the demo environment `typed_service` that records every `every` requests; `options` are arguments of `Case`."""
    options = {"settings": {"alpha": _ALPHA}, "record": _GAP, **options}
    return Case(sv.typed_service, policies, horizon, name, record_every=every, **options)


_STILL = {"c": 0.0, "explores_first": False}  # Settings of MESS+ without exploration.
_KNOWN = {"predictor": sv.TrueProbabilities(_DEMO.requests)}
_V, _HORIZON = 1e-2, 8000  # Of the case "margin".
_LEARNED = sv.MessPlus(V=1e-2, c=0.1)
_CASES = (
    _case("by-V", {"MESS+": grid(sv.MessPlus, V=[1e-2, 2e-2, 4e-2, 8e-2], **_KNOWN, **_STILL)}, _TIMES[-1], 750),
    _case("gap", {"MESS+": grid(sv.MessPlus, V=[1e-5, 1e-4, 1e-3, 1e-2], **_KNOWN, **_STILL)}, 12_000, 12_000),
    *(_case(f"root-{n}", {"MESS+": sv.MessPlus(V=1e-4 * math.sqrt(T), **_KNOWN, **_STILL)}, T, T, coordinates={"horizon": T})
        for n, T in enumerate(_TIMES[2:], 1)),
    _case("exploring", {"MESS+": grid(sv.MessPlus, c=[0.05, 0.1, 0.2], **_KNOWN)}, 48_000, 750),
    _case("learning", {"MESS+": sv.theory_policy(_MU, 1.0, c=1e9)}, 1600, 50, record=("training_loss",),
        probes={"exact_loss": lambda env, policy, _, state, t: _expected_loss(policy.predictor.head, state.params, env.requests, policy.l2)}),
    Case(lambda benchmark: grid(sv.benchmark_service, benchmark=benchmark, signal=[0.0, 0.15, 0.37, 0.6, 1.0, 2.0]),
        {"MESS+": informed(V=1e-2, **_STILL)}, 20_000, "signal", {"benchmark": "winogrande"}, record_every=20_000, record=_GAP),
    _case("margin", {
        "MESS+ with a margin": sv.MessPlus(V=_V, margin=sv.safety_margin(_V, _RANGE, slack=0.05, horizon=_HORIZON), **_KNOWN,
            **_STILL),
        "MESS+": sv.MessPlus(V=_V, **_KNOWN, **_STILL)}, _HORIZON, _HORIZON, settings={"alpha": 0.75}),
    _case("learned", {"MESS+": _LEARNED, "MESS+ (c = .01)": _LEARNED.replace(c=0.01)}, 96_000, 750,
        record=(*_GAP, "training_steps", "training_loss"), seeds=256),
)  # fmt: skip


# Power laws: claims, and panels of the figure.

Series = Callable[[Results], xr.DataArray]


def _in_time(case: str, metric: str, first: int = 0, start: int = 750, **where: Any) -> Series:
    """Returns a function of the results that selects a metric of MESS+, `[time, seed]`, after `start * 2**j` requests for `j` from `first` to 7."""

    def series(results: Results) -> xr.DataArray:
        data = results[case]
        times = [start * 2**j for j in range(first, 8) if start * 2**j in data["time"].values]
        return data[metric].sel(policy="MESS+", time=times, **where).transpose("time", "seed")

    return series


def _at_end(case: str, metric: str, axis: str) -> Series:
    """Returns a function of the results that selects a metric of MESS+ at the end of runs, `[axis, seed]`, for all values of the setting `axis`."""
    return lambda results: results[case][metric].sel(policy="MESS+").isel(time=-1, drop=True).transpose(axis, "seed")


def _roots(results: Results) -> Results:
    """Selects the cases in which the parameter V grows with the root of the horizon."""
    return {name: data for name, data in results.items() if name.startswith("root-")}


def _count(results: Results) -> xr.DataArray:
    share = _in_time("exploring", "explored", 2, c=0.1)(results)
    return (share * share["time"]).round().clip(min=1.0)


def _law_claims(
    name: str, text: str, source: str, series: Series, power: float, low: float, high: float, *_: Any
) -> list[Claim]:
    """Makes two claims about the exponent of `series` along its first axis: it is from `low` to `high`, and its confidence interval includes `power`.

    The ids are `name` and `name-power`; both texts begin with `text`. The arguments are an entry of `POWER_LAWS`.
    """

    def measure(results: Results, stated: float | None = None) -> Finding:
        runs = series(results)
        axis = str(runs.dims[0])
        found, statement = slope_within(runs, axis, low, high, stated)
        means = ", ".join(f"{mean_of(one)} at {axis} {one[axis].item():,g}" for one in runs)
        return f"{found}; {means}", statement

    exactly, includes = functools.partial(measure, stated=power), f"{text}: the interval of the power includes {power:.4g}"
    within = claim(name, source, measure, f"{text} (power from {low:g} to {high:g})")
    return [within, claim(f"{name}-power", source, exactly, includes)]


# By name: the power law in words, its place in the paper, the simulated numbers `[x, seed]` as a function of the results, the stated exponent of
# `x`, the smallest and the largest exponent that count as agreement; and title and legend of the panel that shows it, if there is one.
POWER_LAWS = {
    "violation-T": ("violation falls as 1 / T with V fixed", "Corollary 1", _in_time("by-V", "violation", 2, V=1e-2),
        -1.0, -1.1, -0.9, ("violation, V fixed", "MESS+ that knows, V = 0.01")),
    "violation-V": ("violation grows in proportion to V", "Corollary 1", _at_end("by-V", "violation", "V"), 1.0, 0.9,
        1.1, ("violation after 48,000 requests", "MESS+ that knows")),
    "overhead-T": ("overhead of exploration falls as T^(-1/4)", "Theorem 2",
        _in_time("exploring", "explore_overhead", c=0.1), -0.25, -0.3, -0.2, ("overhead of exploring", "MESS+, c = 0.1")),
    "overhead-c": ("overhead of exploration grows in proportion to c", "Theorem 2",
        _at_end("exploring", "explore_overhead", "c"), 1.0, 0.95, 1.05),
    "count": ("E[K] grows as T^(3/4)", "Lemma A.3", _count, 0.75, 0.72, 0.78),
    "inverse-count": ("E[1/K] falls as T^(-3/4)", "Lemma A.3", lambda results: 1.0 / _count(results), -0.75, -0.79, -0.71),
    "loss": ("expected loss falls to its minimum as 1 / k", "Lemma A.1",
        lambda results: (results["learning"]["exact_loss"].sel(policy="MESS+").transpose("time", "seed") - _least_loss())
            .assign_attrs(long_name="loss above its minimum"),
        -1.0, -1.25, -0.75, ("loss of Lemma A.1 by steps", "MESS+")),
    "root": ("with V = v0 sqrt(T) violation falls as T^(-1/2)", "section 3.2",
        lambda results: along(_roots(results), "violation", "horizon").sel(policy="MESS+").transpose("horizon", "seed"),
        -0.5, -0.6, -0.4, ("violation, V = v0 sqrt(T)", "MESS+ that knows")),
    "learned": ("with a learned predictor violation falls roughly as 1 / T", "Corollary 1",
        _in_time("learned", "violation", 0, 3000), -1.0, -1.1, -0.75, ("violation, learned predictor", "MESS+, V = 0.01")),
}  # fmt: skip

# Other claims.


def _queue_bounds(results: Results) -> Finding:
    """Tests the claim: Mean queue, mean of the mean queue and violation are within their bounds for every V and slack.

    All three are means over runs at each recorded time; the second averages the queue also over the requests so far. Bounds: Theorem 1, Corollary 1.
    """
    data, stated = results["by-V"], []
    worst = {"mean queue": 0.0, "mean of the mean queue": 0.0, "violation": 0.0}
    contexts, times = _DEMO.requests.contexts(), data["time"].values
    # Under uniform choice, the shortfall is the same at all times, and the queue grows by it in each round.
    short = max(_ALPHA - float(_DEMO.accuracy.mean()), 0.0)
    trivial = {"virtual_queue": short * times, "mean_queue": short * (times + 1) / 2, "violation": short + 0.0 * times}
    for V, slack in itertools.product(data["V"].values, (0.03, 0.05, 0.1)):
        excess = sv.admissible_probability(contexts, slack) - _ALPHA
        bounds = {
            "virtual_queue": [sv.bound_queue(V, _RANGE, slack, int(t)) for t in times],
            "mean_queue": [sv.bound_mean_queue(V, _RANGE, slack, excess)] * len(times),
            "violation": [sv.bound_violation(V, _RANGE, slack, int(t)) for t in times],
        }
        for name, metric in zip(worst, bounds, strict=True):
            runs = data[metric].sel(policy="MESS+", V=V)
            means, errors = runs.mean("seed").values, (runs.std("seed", ddof=1) / math.sqrt(runs.sizes["seed"])).values
            for *row, bound in zip(means, errors, trivial[metric], bounds[metric]):
                mean, error, other = (x / bound for x in row)
                worst[name] = max(worst[name], mean)
                share = Measured(mean, error, dof=runs.sizes["seed"] - 1).at_most(1.0)
                stated.append(share.unless("uniform choice", Measured(other).at_most(1.0)))
    text = ", ".join(f"{name} {share:.3f}" for name, share in worst.items())
    return f"largest share of its bound: {text}", stated


@all_hold(between=", ")
def _queue_level(results: Results) -> Iterator[Finding]:
    """Tests the claim: The queue converges to V times the price of satisfaction (within 10 % and 3)."""
    data = results["by-V"]
    late = data["virtual_queue"].sel(policy="MESS+", time=data["time"] > data["time"][-1] / 2).mean("time")
    for V in data["V"].values:
        level, expected = mean_of(late.sel(V=V)), float(V) * float(_DEMO.best.price)
        yield f"V {V:g}: {level} (V x price {expected:.1f})", level.near(expected, margin=0.1 * expected + 3.0)


def _gap_in_V(results: Results) -> Finding:
    """Tests the claim: Cost above the best policy's, including debt (gap + price x violation), falls with V, and is below 1 / (2 V)."""
    data, price = results["gap"].sel(policy="MESS+").isel(time=-1), float(_DEMO.best.price)
    values = {V: mean_of((data["gap"] + price * data["violation"]).sel(V=V)) for V in data["V"].values}
    text = ", ".join(f"V {V:g}: {value} J (bound {0.5 / V:g})" for V, value in values.items())
    contexts = _DEMO.requests.contexts()
    paid = float(contexts.weight @ contexts.cost.mean(axis=1)) - float(_DEMO.best.cost)
    uniform = Measured(paid + price * max(_ALPHA - float(_DEMO.accuracy.mean()), 0.0))
    bounded = [v.at_most(0.5 / V).unless("uniform choice", uniform.at_most(0.5 / V)) for V, v in values.items()]
    return text, [*bounded, *(b.below(a) for a, b in itertools.pairwise(values.values()))]


def _gap_vanishes(results: Results) -> Finding:
    """Tests the claim: The distance of the cost to the best vanishes with V = v0 sqrt(T): it is less at the largest T than at the smallest."""
    gaps, short = ({int(d["time"][-1]): end(d, m, "MESS+") for d in _roots(results).values()} for m in ("gap", "violation"))
    text = ", ".join(f"{gaps[T]} J at T {T:,}, short by {short[T]}" for T in sorted(gaps))
    first, last = (gaps[T].times(math.copysign(1.0, gaps[T].mean)) for T in (min(gaps), max(gaps)))
    return text, last.below(first)


def _knowledge(results: Results) -> Finding:
    """Tests the claim: The more informative requests are, the closer is MESS+ to the clairvoyant; its distance to the informed oracle is below a tenth of the gap without information.

    All are distances between mean costs. To the informed oracle, the cost includes debt. The gap is the distance to the clairvoyant at `signal` 0.
    """
    data, parts, clairvoyant, closest = results["signal"], [], [], []
    for signal in data["signal"].values:
        env = sv.benchmark_service("winogrande", signal=float(signal))
        cost = end(data, "cost", "MESS+", signal=signal)
        one = data.sel(policy="MESS+", signal=signal).isel(time=-1)
        paid = mean_of(one["cost"] + float(env.best.price) * one["violation"])
        clairvoyant.append(cost.minus(float(env.clairvoyant.cost)))
        closest.append(paid.minus(float(env.best.cost)))
        parts.append(f"{signal:g}: {clairvoyant[-1]}, {closest[-1]}")
    falls = [b.below(a) for a, b in itertools.pairwise(clairvoyant)]
    text = f"gap to the clairvoyant and (including debt) to the informed oracle, J, by signal {'; '.join(parts)}"
    return text, [*falls, *(one.near(0.0, margin=0.1 * abs(clairvoyant[0].mean)) for one in closest)]


def _margin_holds(results: Results) -> Finding:
    """Tests the claim: The target is met in 99 % of the runs with the safety margin."""
    violation = results["margin"]["violation"].isel(time=-1)
    met = {p: share_of(violation.sel(policy=p) <= 1e-6).times(100.0) for p in ("MESS+ with a margin", "MESS+")}
    text = f"met in {met['MESS+ with a margin']} % of the runs, without margin in {met['MESS+']} %"
    return text, met["MESS+ with a margin"].at_least(99.0)


def _pathwise(results: Results) -> Finding:
    """Tests the claim: The queue is at least the sum of the shortfalls, `Q >= sum of (alpha - s)`, in every run at every recorded time."""
    least, number = np.inf, 0
    for data in results.values():
        if "virtual_queue" in data:
            slack = (data["virtual_queue"] - data["violation"] * data["time"]) / np.sqrt(np.maximum(data["time"], 1.0))
            least, number = min(least, float(slack.min())), number + int(slack.count())
    return f"least (Q - sum) / sqrt(t) {least:.2g} over {number:,} records (rule: above -.01, float32)", least > -0.01


def _few_steps_miss(results: Results) -> Finding:
    """Tests the claim: A thousand requests are too few with c = .01: more than half of the runs miss the target."""
    data = results["learned"]
    one = data.sel(policy="MESS+ (c = .01)", time=data["time"].values[data["time"].values >= 750][0])
    missed, trained = share_of(one["violation"] > 1e-6).times(100.0), mean_of(one["training_steps"])
    text = f"after {int(one['time'])} requests and {trained} steps missed in {missed} % of the runs"
    return text, missed.above(50.0)


def _figure(results: Results) -> Any:
    """Draws a panel for each power law, and one for the queue of MESS+ with its expected level."""
    shown = {panel: law[2](results) for law in POWER_LAWS.values() for panel in law[6:]}
    figure, axes = plot.panels(len(shown) + 1, columns=4)
    for ax, ((title, name), series) in zip(axes, shown.items(), strict=False):
        plot.power_laws({name: series.rename(time="requests") if "time" in series.dims else series}, ax=ax, title=title)
    data = results["by-V"].assign_coords(time=results["by-V"]["time"].assign_attrs(long_name="request"))
    levels = {f"V x price at V = {V:g}": float(V) * float(_DEMO.best.price) for V in data["V"].values[[0, -1]]}
    plot.curves(data, "virtual_queue", reference=levels, ax=axes[-1], title="virtual queue, and V x price")
    return figure


# The amount of exploration.

C = [0.01, 0.1, 1.0]


def _over_benchmarks(results: Results, *names: str, **where: Any) -> xr.Dataset:
    """Averages the metrics `names` over the benchmarks, for each seed and time up to the end of the shortest benchmark; `where` selects a setting."""
    parts = [data[[*names, "valid"]].sel(**where).drop_attrs(deep=False) for data in results.values()]
    together = xr.concat(parts, "benchmark", join="inner", combine_attrs="override")
    mean = together[list(names)].mean("benchmark", keep_attrs=True)
    time = mean["time"].assign_attrs(long_name="request")
    return mean.assign(valid=together["valid"].all("benchmark")).assign_coords(time=time)


def base_rate_loss(benchmark: str) -> float:
    """Returns the mean log loss (nats) of a constant prediction: each model's accuracy on the whole benchmark."""
    p = MESSPLUS_BENCHMARKS[benchmark].accuracy
    return float(-np.mean(p * np.log(p) + (1 - p) * np.log(1 - p)))


def _explore_mj(results: Results) -> dict[float, Measured]:
    """Returns, by the amount of exploration `c`, the energy in MJ that exploration takes in a whole benchmark, averaged over the benchmarks."""
    return {c: average_mj(results, results, "MESS+", "explore_cost", c=c) for c in C}


@all_hold()
def _counts(results: Results):
    """Tests the claim: The number of explored requests is the sum of p_t, within 2 %."""
    for name, data in results.items():
        horizon, parts, stated = int(data["time"][-1]), [], []
        for c, share in ends_along(data, "explored", "MESS+", "c", C).items():
            explored, expected = share.times(horizon), sv.expected_explorations(c, horizon)
            stated.append(explored.near(expected, margin=0.02 * expected))
            parts.append(f"c {c:g} {explored} ({expected:.1f})")
        yield f"{name}: {', '.join(parts)}", stated


def _ten_times(results: Results) -> Finding:
    """Tests the claim: Exploration costs about ten (5 to 15) times as much with c = 1 as with c = .01."""
    cost = _explore_mj(results)
    ratio = product(cost[1.0], over=cost[0.01])
    text = f"{listed(cost, 'c {:g}:')} MJ per pass; c = 1 costs {ratio} times c = .01"
    return text, [cost[1.0].at_least(cost[0.01].times(5.0)), cost[1.0].at_most(cost[0.01].times(15.0))]


def _loss_falls(results: Results) -> Finding:
    """Tests the claim: A larger c gives a lower loss."""
    mean = _over_benchmarks(results, "training_loss")
    losses, changes = ends_along(mean, "training_loss", "MESS+", "c", C), steps(mean, "training_loss", "MESS+", "c")
    base = np.mean([base_rate_loss(name) for name in results])
    text = f"mean loss of explored requests, {listed(losses, 'c {:g}:')} nats; with known base rates {base:.3f}"
    return text, [change.below(0.0) for change in changes]


def _exploration_figure(results: Results) -> Any:
    """Draws the loss of explored requests, the loss as defined in the paper, and the cost of exploration; means over the benchmarks."""
    figure, axes = plot.panels(3)
    about, paper = {"kind": "gauge", "long_name": "sum of losses / (t c), as in the paper", "units": "nats"}, {}
    for name, one in results.items():  # The paper's sum of losses up to request t over t c falls even without learning.
        loss = one["training_loss"] * one["explored"] / one["c"]
        paper[name] = one.assign(paper_loss=loss.assign_attrs(about))
    data = _over_benchmarks(paper, "training_loss", "paper_loss")
    base = {"who knows the base rates": np.mean([base_rate_loss(name) for name in results])}
    plot.curves(data, "training_loss", reference=base, ax=axes[0], title="mean loss of explored requests so far")
    plot.curves(data, "paper_loss", ax=axes[1], log="y", title="as in the paper: sum of losses / (t c)")
    label = f"c\nmean ± 2 s.e. of {data.sizes['seed']:,} runs"
    cost = {"MESS+": [(c, cost) for c, cost in _explore_mj(results).items()]}
    plot.points(cost, x=label, y="MJ per pass spent on exploring", ax=axes[2], title="cost of exploring")
    plot.log_axis(axes[2], "x")
    plot.log_axis(axes[2], "y")
    return figure


_EXPLORATION = (
    claim("counts", "Lemma A.3", _counts),
    claim("tenfold", "appendix C.3", _ten_times),
    claim("lower", "Fig. 3", _loss_falls),
)
_EXPLORED = passes(
    lambda env, settings: {"MESS+": grid(sv.paper_policy, benchmark=settings["benchmark"], c=C)},
    every=25,
    record=("cost", "satisfaction", "violation", "explored", "explore_cost", "training_loss", "training_steps"),
)
EXPLORATION = (
    experiment("figure-3", "Amount of exploration: loss and cost, mean of eight benchmarks", _EXPLORED, 512, _EXPLORATION,
        {"figure-3": _exploration_figure}, "Fig. 3"),
    experiment("figure-C1", "Amount of exploration, by benchmark", _EXPLORED, 512, _EXPLORATION[:2],
        {"figure-C1": panels_of(rows="case",
            columns=(
                Panel("explored", log="y", title="share explored"),
                Panel("training_loss", title="mean loss so far"),
                Panel("explore_cost", log="y", title="cost of exploring")),
            titles=lambda data: MESSPLUS_BENCHMARKS[coordinates_of(data)["benchmark"]].title)}, "Fig. C.1"),
)  # fmt: skip
EXPERIMENTS = (
    experiment("theory", "Theory: queue, violation, exploration, learning", _CASES, 1024, (
        claim("theorem-1", "Theorem 1 and Corollary 1", _queue_bounds),
        *(one for name, law in POWER_LAWS.items() for one in _law_claims(name, *law)),
        claim("queue-level", "ours", _queue_level),
        claim("gap", "Theorem 2", _gap_in_V),
        claim("root-gap", "section 3.2", _gap_vanishes),
        claim("knowledge", "Theorem 2, F_min", _knowledge),
        claim("margin", "after Corollary 1", _margin_holds),
        claim("pathwise", "eq. (2)", _pathwise),
        claim("few-steps", "ours", _few_steps_miss)), {"theory": _figure},
        "section 3.2 and appendix A", notes="our instance of three types of requests and three models, whose optima are exact",
        smoke_horizon=9600, stand_in=""),
)  # fmt: skip
