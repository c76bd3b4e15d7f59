"""Experiments of COSMOS on cascades: the paper's example, and regret next to everything else.

The paper has no experiment, figure or table. Its one example is S0; the others are a study of ours. Numbers called ours are means and
standard errors of independent NumPy simulations of the same settings; claims compare with them.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.core import numerics
from jaxroute.core.types import Metric
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import OURS, PAPER, RECORD, TABLE, WINDOW, horizon_of, learner, uniform_case
from jaxroute.experiments.cascade.growth import GROWTH
from jaxroute.experiments.cascade.replay import REPLAY
from jaxroute.experiments.cascade.study import STUDY
from jaxroute.experiments.cascade.theory import THEORY
from jaxroute.experiments.claims import Number, Verdict, agrees
from jaxroute.experiments.measure import end, ends, ends_along, late_slope, listed, lowest, paired_gap, runs_of, show
from jaxroute.problems import cascade as ca

# S0: the paper's example.

_BONUSES = (0.1, 0.3, 0.6, 1.0, 2.0)
_S0 = (
    *(Number("COSMOS", 2000, v, 1.3, t, (("index", 0.1),)) for t, v in ((250, 9.1), (500, 18.0), (1000, 35.9), (2000, 71.7))),
    Number("COSMOS", 2000, 1.47, 0.29, where=(("index", 1.0),)),
    Number("COSMOS, streaming", 2000, 9.7, 1.0, where=(("index", 1.0),)),
    Number("COSMOS, streaming", 2000, 2.5, 0.3, where=(("index", 2.0),)),
    Number("b = .1, 60 rounds of all", 2000, 3.8, 0.4),
    *(
        Number("COSMOS", 2000, v, e, where=(("index", b),), case="exact")
        for b, v, e in ((0.1, 71.7, 1.3), (0.3, 44.0, 2.0), (0.6, 9.0, 1.1), (1.0, 1.17, 0.17), (2.0, 0.28, 0.03))
    ),
)  # fmt: skip


def _oracle_earns(results: Results) -> Verdict:
    value = end(results["result"], "utility", "Oracle")
    return f"{show(value)} per request against .54", value.near(0.54, by=4.0)


def _single_calls_lose(results: Results) -> Verdict:
    expected = 0.04 * horizon_of(results)
    regret = ends(results["result"], "regret", ("ContextSingle", "BestSingle"))
    return f"{listed(regret)} against {expected:g}", all(v.near(expected, by=4.0) for v in regret.values())


def _small_bonus_is_linear(results: Results) -> Verdict:
    start = 0.25 * horizon_of(results)
    slopes = {b: late_slope(results["result"], "regret", "COSMOS", start, index=b) for b in _BONUSES}
    text = f"log-log slope of the last three quarters, {listed(slopes, 'b = {:g}:')}"
    return text, abs(slopes[0.1].mean - 1.0) < 0.05 and slopes[1.0].below(0.5, by=2.0)


def _best_bonus(results: Results) -> Verdict:
    data = results["result"]
    regret = ends_along(data, "regret", "COSMOS", "index", _BONUSES)
    stuck = float((runs_of(data, "regret", "COSMOS", index=0.1) > 0.02 * horizon_of(results)).mean())
    text = f"{listed(regret, 'b = {:g}:')}; {100 * stuck:.0f} % of runs stuck with .1"
    return text, regret[0.1].mean > 20.0 * regret[1.0].mean


def _two_boxes_panels(results: Results):
    figure, axes = plot.panels(2)
    data = results["result"].rename(index="b")
    times = data["time"].values
    single = {"one call: .04 per request": (times, 0.04 * times)}
    plot.curves(data, "regret", policies=["COSMOS"], reference=single, ax=axes[0], band="stderr")
    plot.spread(data, "regret", policies=["COSMOS", "COSMOS, streaming"], ax=axes[1], log=True)
    return figure


# S1: regret curves.

_SINGLE, _STATIC, _ALL, _RANDOM, _FRUGAL = "one call", "static index", "query all", "random cascade", "frugal"
_REFERENCE = {  # Regret after 500, 1000 and 2000 rounds, and the standard error.
    "COSMOS": ((5.46, 7.04, 8.88), 0.05),
    "COSMOS, window": ((None, None, 9.43), 0.11),
    "COSMOS, b = .03": ((None, None, 16.0), 1.4),
    "greedy": ((None, None, 95.7), 5.2),
    "greedy, warm 10": ((1.24, 1.42, 1.61), 0.04),
    "epsilon-greedy": ((5.86, 9.18, 14.39), 0.07),
    "explore then commit": ((9.32, 9.49, 9.82), 0.04),
    "LinUCB": ((7.89, 13.26, 23.61), 0.07),
    _SINGLE: ((5.02, 9.94, 19.87), 0.1),
    _STATIC: ((None, None, 47.3), 0.1),
    _FRUGAL: ((None, None, 41.9), 0.1),
    _RANDOM: ((None, None, 61.4), 0.1),
    _ALL: ((None, None, 115.7), 0.2),
    "best single": ((None, None, 139.5), 0.2),
}  # fmt: skip
_REFERENCE_5 = {
    "COSMOS": ((20.5, 27.4, 35.2), 0.23),
    "greedy": ((None, None, 76.0), 14.0),
    _SINGLE: ((None, None, 30.5), 0.14),
    _STATIC: ((None, None, 35.5), 0.2),
    _RANDOM: ((None, None, 96.0), 0.3),
    _ALL: ((None, None, 251.2), 0.4),
}
_TUNED = {3: 0.53, 5: 0.54, 10: 0.54}


def _numbers(table: dict[str, Any]) -> tuple[Number, ...]:
    return tuple(
        Number(policy, 2000, value, error, time if time < 2000 else None)
        for policy, (values, error) in table.items()
        for time, value in zip((500, 1000, 2000), values, strict=True)
        if value is not None
    )


def _rules(threshold: float) -> dict[str, Any]:
    """Policies that do not learn."""
    return {
        "oracle": ca.Oracle.of,
        _SINGLE: ca.ContextSingle.of,
        _STATIC: ca.StaticIndex.of,
        _FRUGAL: ca.Frugal(threshold=threshold),
        _RANDOM: ca.RandomCascade(threshold=threshold),
        _ALL: ca.QueryAll(),
        "best single": ca.BestSingle.of,
    }


def _learners() -> dict[str, Any]:
    stream = ca.Streaming()
    return {
        "COSMOS": learner(),
        "COSMOS, window": learner(fit=WINDOW),
        "COSMOS, b = .03": learner(0.03),
        "greedy": learner(0.0),
        "greedy, warm 10": learner(0.0, warm=10),
        "epsilon-greedy": ca.EpsilonGreedy(fit=stream),
        "explore then commit": ca.ExploreThenCommit(fit=stream),
        "gradient descent": ca.OnlineGradient(),
        "LinUCB": ca.LinUCB(),
    }


@struct.dataclass
class Counted:
    """A policy that also counts which model it calls first, and after how many calls it stops.

    policy: one whose actions have priorities.
    """

    policy: Any

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("first", "requests on which a model was called first", "requests", "gauge", ("model",)),
            Metric("stops", "requests with so many calls", "requests", "gauge", ("calls",)),
        )

    def init(self, key, spec):
        zeros = jnp.zeros((spec.num_models,), jnp.float32)
        return {"policy": self.policy.init(key, spec), "first": zeros, "stops": zeros}

    def gauges(self, state):
        return {name: state[name] for name in ("first", "stops")}

    def act(self, key, state, obs, t):
        return self.policy.act(key, state["policy"], obs, t)

    def update(self, key, state, obs, action, feedback, t):
        size = feedback.opened.shape[0]
        first = numerics.one_hot(numerics.argmax(action.priority), size).astype(jnp.float32)
        calls = numerics.one_hot(jnp.sum(feedback.opened.astype(jnp.int32)) - 1, size).astype(jnp.float32)
        return {
            "policy": self.policy.update(key, state["policy"], obs, action, feedback, t),
            "first": state["first"] + first,
            "stops": state["stops"] + calls,
        }


def _counted_oracle(env: ca.CascadeEnv) -> Counted:
    return Counted(ca.Oracle.of(env))


def _share_late(results: Results, metric: str, policy: str) -> np.ndarray:
    """Share of the requests in the second half, by model or number of calls."""
    data = results["search"][metric].sel(policy=policy)
    half = data.isel(time=-1) - data.isel(time=len(data["time"]) // 2 - 1)
    share = half / half.sum(str(half.dims[-1]))
    return share.mean("seed").values


def _search_panels(results: Results):
    figure, axes = plot.panels(2)
    for ax, metric, label in zip(
        axes, ("first", "stops"), ("model that is called first (0 is the cheapest)", "calls before the search stops")
    ):
        for place, policy in enumerate(("Oracle", "COSMOS", "greedy, warm 10")):
            share = _share_late(results, metric, policy)
            start = 0 if metric == "first" else 1
            ax.bar(start + np.arange(len(share)) + 0.27 * (place - 1), share, width=0.25, label=policy)
            ax.set_xticks(start + np.arange(len(share)))
        ax.set_xlabel(
            f"{label}\nmean of {results['search'].sizes['seed']} seeds, second half of {horizon_of(results, 'search'):,}"
        )
        ax.set_ylabel("share of requests")
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def _like_the_oracle(results: Results) -> Verdict:
    gaps = {}
    for metric in ("first", "stops"):
        shares = {p: _share_late(results, metric, p) for p in ("Oracle", "COSMOS")}
        gaps[metric] = 0.5 * float(np.abs(shares["COSMOS"] - shares["Oracle"]).sum())
    calls = [f"{p} {', '.join(f'{100 * v:.1f}' for v in _share_late(results, 'stops', p))} %" for p in ("Oracle", "COSMOS")]
    return (
        f"requests that would have to change: first call {100 * gaps['first']:.1f} %, number of calls {100 * gaps['stops']:.1f} %; "
        f"one, two, ... calls: {'; '.join(calls)}",
        max(gaps.values()) < 0.2,
    )


def _far_below(results: Results) -> Verdict:
    data = results["result"]
    cosmos = end(data, "regret", "COSMOS")
    others = ends(data, "regret", [p for p in (*_rules(0.0), "LinUCB") if p != "oracle"])
    least = lowest(others)
    text = f"COSMOS {show(cosmos)}, the least of them {least} with {show(others[least])}"
    return text, cosmos.mean < 0.5 * others[least].mean


def _concave(results: Results) -> Verdict:
    slope = late_slope(results["result"], "regret", "COSMOS", 0.25 * horizon_of(results))
    return f"log-log slope of the last three quarters {show(slope)}", slope.below(0.5, by=2.0)


def _mixture(results: Results) -> Verdict:
    data = results["result"]
    cosmos, runs = end(data, "regret", "COSMOS").mean, runs_of(data, "regret", "greedy")
    good, bad = float((runs < cosmos).mean()), float((runs > 10.0 * cosmos).mean())
    slope = late_slope(data, "regret", "greedy", 0.25 * horizon_of(results))
    low, middle, high = (float(runs.quantile(q)) for q in (0.05, 0.5, 0.95))
    text = (
        f"5, 50 and 95 % of runs below {low:.1f}, {middle:.1f} and {high:.0f}; less than COSMOS' mean in {100 * good:.0f} % of runs, "
        f"ten times as much in {100 * bad:.0f} %; log-log slope of the mean {show(slope)}"
    )
    return text, min(good, bad) > 0.05 and slope.mean > 0.85


def _free_exploration(results: Results) -> Verdict:
    gap = paired_gap(results["result"], "regret", "greedy, warm 10", minus="COSMOS")
    return f"greedy after ten rounds of all, minus COSMOS: {show(gap)}", gap.below(0.0, by=3.0)


def _crowded(results: Results) -> Verdict:
    regret = ends(results["result"], "regret", ("COSMOS", _SINGLE, _ALL))
    return listed(regret), regret[_SINGLE].mean < regret["COSMOS"].mean < 0.5 * regret[_ALL].mean


def _policies_of(results: Results, learners: bool) -> list[str]:
    names = [str(p) for p in results["result"]["policy"].values]
    rules = [p for p in names if p in (*_rules(0.0), "LinUCB") and p != "oracle"]
    return [p for p in names if p not in (*rules, "oracle")] if learners else ["COSMOS", *rules]


def _rule_curves(results: Results):
    return plot.curves(results["result"], "regret", policies=_policies_of(results, learners=False))


def _learner_curves(results: Results):
    return plot.curves(results["result"], "regret", policies=_policies_of(results, learners=True), log=True)


def _learner_spread(results: Results):
    return plot.spread(results["result"], "regret", policies=_policies_of(results, learners=True), log=True)


_S1_NOTE = (
    "with independent requests of full support, a greedy policy that has opened everything in ten rounds beats COSMOS: the cascade "
    "explores for free. Optimism pays in S0 and S6"
)


def _curves(name: str, size: tuple[int, int], policies: dict[str, Any], claims: Sequence[Claim], seeds: int, **more: Any):
    case = uniform_case(policies, 2000, settings={"num_models": size[0], "dim": size[1]}, every=50)
    return Experiment(
        f"cascade/{name}",
        f"Regret of COSMOS and of everything else: {size[0]} models, {size[1]} index features",
        (case, *more.pop("cases", ())),
        seeds,
        tuple(claims),
        {
            name: _rule_curves,
            f"{name}-learners": _learner_curves,
            f"{name}-runs": _learner_spread,
            **more.pop("figures", {}),
        },
        source=OURS,
        notes=_S1_NOTE,
        smoke_horizon=400,
    )


_S1_CASES = (
    uniform_case(
        {"COSMOS": learner(fit=ca.Window.exact(2000)), "greedy": learner(0.0, fit=ca.Window.exact(2000))},
        2000,
        "exact",
        seeds=32,
        every=500,
    ),
    uniform_case(
        {
            "Oracle": _counted_oracle,
            "COSMOS": Counted(learner()),
            "greedy, warm 10": Counted(learner(0.0, warm=10)),
        },
        2000,
        "search",
        record=("regret", "queries", "first", "stops"),
        seeds=256,
        every=100,
    ),
)


def _others(threshold: float) -> dict[str, Any]:
    """Policies for more models."""
    rules = {p: v for p, v in _rules(threshold).items() if p != "best single"}
    learners = {"COSMOS": learner(), "greedy": learner(0.0), "greedy, warm 10": learner(0.0, warm=10)}
    return {**learners, **rules}


_S1 = (
    _curves(
        "S1",
        (3, 3),
        {**_learners(), **_rules(_TUNED[3])},
        (
            Claim(
                "table",
                TABLE,
                OURS,
                agrees(
                    (
                        *_numbers(_REFERENCE),
                        Number("COSMOS", 2000, 8.89, 0.40, case="exact"),
                        Number("greedy", 2000, 61.1, 19.1, case="exact"),
                        Number("COSMOS", 2000, 1.572, 0.002, metric="queries"),
                        Number("oracle", 2000, 1.312, 0.001, metric="queries"),
                    )
                ),
            ),
            Claim(
                "below", "COSMOS has less than half the regret of every single call and fixed threshold", OURS, _far_below
            ),
            Claim("concave", "its regret flattens", OURS, _concave),
            Claim("mixture", "greedy is a mixture of good and of linear runs", OURS, _mixture),
            Claim("free", "after a warm-up greedy has less regret than COSMOS", OURS, _free_exploration),
            Claim(
                "late",
                "late in a run COSMOS searches as the oracle does, on 80 % of requests at least",
                OURS,
                _like_the_oracle,
            ),
        ),
        1024,
        cases=_S1_CASES,
        figures={"S1-search": _search_panels},
    ),
    _curves(
        "S1-K5",
        (5, 5),
        _others(_TUNED[5]),
        (
            Claim("table", "regret is that of an independent simulation", OURS, agrees(_numbers(_REFERENCE_5))),
            Claim("crowded", "2,000 rounds are too few to beat the best single call per request", OURS, _crowded),
        ),
        512,
    ),
    _curves(
        "S1-K10",
        (10, 5),
        _others(_TUNED[10]),
        (Claim("crowded", "2,000 rounds are too few to beat the best single call per request", OURS, _crowded),),
        512,
    ),
)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "cascade/S0",
        "The paper's two boxes: single calls lose .04 a request, and too small a bonus loses more",
        (
            Case(
                ca.two_boxes(),
                {
                    "COSMOS": grid(learner, index=list(_BONUSES), fit=WINDOW),
                    "COSMOS, streaming": grid(learner, index=list(_BONUSES)),
                    "b = .1, 60 rounds of all": learner(warm=60, fit=WINDOW),
                    "LinUCB": ca.LinUCB(),
                    "ContextSingle": ca.ContextSingle.of,
                    "BestSingle": ca.BestSingle.of,
                    "Oracle": ca.Oracle.of,
                },
                2000,
                record_every=50,
                record=RECORD,
            ),
            Case(
                ca.two_boxes(),
                {"COSMOS": grid(learner, index=list(_BONUSES), fit=ca.Window.exact(2000))},
                2000,
                "exact",
                record_every=500,
                record=RECORD,
                seeds=64,
            ),
        ),
        1024,
        (
            Claim("oracle", "the cascade of the two earns .54 per request", f"{PAPER}, section 2.1", _oracle_earns),
            Claim("single", "the best single call loses .04 per request", f"{PAPER}, section 2.1", _single_calls_lose),
            Claim("linear", "with b = .1 COSMOS' regret is linear, with b = 1 it is flat", OURS, _small_bonus_is_linear),
            Claim("optimism", "b = .1 has more than twenty times the regret of b = 1", OURS, _best_bonus),
            Claim("table", TABLE, OURS, agrees(_S0)),
        ),
        {"S0": _two_boxes_panels},
        source=f"{PAPER}, section 2.1; the learners are ours",
        notes="the second box pays once in ten calls: after a few misses a small bonus does not lift its index above .5 again. The bonus .1 "
        "that suits the other cascades is a calibration, no constant of nature",
        smoke_horizon=200,
    ),
    *_S1,
    *GROWTH,
    *STUDY,
    *THEORY,
    REPLAY,
)
