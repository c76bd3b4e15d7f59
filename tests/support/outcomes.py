"""Made-up results by hand: for each claim that general ones do not decide, some that confirm it and some that refute it.

A claim has a pair of lists of `put`, on results in which everything is 1: what confirms it, and what refutes it.
"""

import math

import numpy as np
import xarray as xr
from fillings import Put, put

from jaxroute.core.attributes import decoded
from jaxroute.data import (
    MESSPLUS_BENCHMARKS,
    MESSPLUS_MODELS,
    MESSPLUS_TABLE_2,
    MESSPLUS_TABLE_2_DIFFERS,
    MESSPLUS_TABLES_6_7,
)
from jaxroute.data.papers import MESSPLUS_REPLAY
from jaxroute.experiments.service import theory
from jaxroute.experiments.stochastic import INSTANCES, RARE, TABLE_1
from jaxroute.problems import queueing, service, stochastic

Outcomes = dict[str, tuple[tuple[Put, ...], tuple[Put, ...]]]
# Everything is 1, and no curve grows.
EVEN: tuple[Put, ...] = ()


def _growth(metric: str, power: float, **more) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
    """A curve that grows with this power of time, and one that does not grow."""
    return (put(metric, time=power, **more),), EVEN


def _more(metric: str, factor: float, policy: str, **more) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
    """A policy with so many times as much as the others, and one with as much."""
    return (put(metric, factor, policy=policy, **more),), EVEN


def _against(result: tuple[tuple[Put, ...], tuple[Put, ...]]) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
    """The outcomes the other way round."""
    return result[::-1]


# Staged.


def _lower_bound() -> Outcomes:
    slopes = {f"slope-M{m}-gamma{g}": ((put("regret", horizon=2 / 3),), EVEN) for m in (2, 4) for g in (0.2, 1.0)}
    others = (put("regret", 1e6), put("regret", 0, policy="Oracle")), EVEN
    return {"above": _more("regret", 1e6, "*"), "others": others, **slopes}


_TOO_MUCH = _against(_more("regret", 1e9, "StageRoute"))


_STAGED = {
    "staged/figure-4a": {"advantage": _more("conditional_regret", 3, "Greedy", case="slots-3")},
    "staged/figure-4b": {"advantage": _more("conditional_regret", 3, "Greedy", case="slots-6")},
    # All models are live, then none, and so on.
    "staged/figure-5": {"alternates": ((put("deployed", time=(1, 0)),), EVEN), "newcomers": (EVEN, (put("deployed", 0),))},
    "staged/figure-6": {f"margin-{unit}": ((put("reward", 2, case="dollars", policy="StageRoute"),), EVEN)
        for unit in ("query", "total")},
    "staged/discovery-slope": {
        "third": ((put("regret", horizon=2 / 3),), EVEN),
        "half": ((put("regret", horizon=1 / 2),), EVEN),
        "fixed": ((put("regret", horizon=1.0),), EVEN),
        "stages": (tuple(put("regret", less, case=f"{k}-*") for k, less in (("T(1-3)", 0.5), ("T(1-2)", 0.2))), EVEN)},
    "staged/lower-bound": _lower_bound(),
    "staged/theorem-1": {
        **{f"bound-N{n}-M{m}": _TOO_MUCH for n in (24, 48, 96) for m in (3, 6, 12)},
        "models": ((put("regret", N=1.0),), EVEN),
        "slots": ((put("regret", M=-1.0),), EVEN),
        "corollary": _TOO_MUCH},
}  # fmt: skip

# Combinatorial.


def _reward_per_violation() -> Outcomes:
    """Figure 4: all settings of C2MAB-V violate less than everything else."""
    better = (put("violation", 0.1, policy="C2MAB-V*"),), EVEN
    rivals = ("EpsilonGreedy", "Thompson", "CUCB", "Always ChatGPT-4", "above")
    small = "Always ChatGLM2-6B-32K"
    return {
        **{f"{rival}-{costs}": better for rival in rivals for costs in ("fixed", "scaled")},
        "settles": _growth("reward", 1.0, policy="EpsilonGreedy"),
        "small": ((put("reward", 1e-5, policy=small), put("violation", 0, policy=small)), EVEN),
    }


def _run_times() -> Outcomes:
    def seconds(case: str, confirm: float, refute: float) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
        return (put("run_s", confirm, case=case),), (put("run_s", refute, case=case),)

    tasks = ("awc", "suc", "aic")
    outcomes = {f"time-{task}": seconds(f"{task}-C2MAB-V", 1e-3, 1e6) for task in tasks}
    return outcomes | {f"direct-{task}": seconds(f"{task}-Direct", 1e3, 1e-6) for task in tasks}


_COMBINATORIAL = {
    **{f"combinatorial/figure-4{letter}": _reward_per_violation() for letter in "abc"},
    "combinatorial/figure-6": {"cucb": _more("reward", 2, "CUCB"), "falls": _growth("reward", -0.5)},
    "combinatorial/figure-7": {"cucb": _more("violation", 5, "CUCB")},
    **{f"combinatorial/figure-{number}": {rival: _more("violation", 0.1, "C2MAB-V*") for rival in ("CUCB", "EpsilonGreedy")}
        for number in (8, 10)},
    "combinatorial/figure-11": {
        "violation": _more("violation", 0.01, "Direct"),
        # Direct violates nothing: its ratio is infinite.
        "ratio": (_more("violation", 2, "Direct")[0], (put("violation", 0, policy="Direct"),)),
    },
    "combinatorial/figure-13": {f"ratio_of_means-{distribution}": (_more("violation", 0.1, "C2MAB-V*")[0],
        (put("violation", 0, policy="offline"),)) for distribution in ("fixed", "scaled")},
    "combinatorial/figure-14": {
        "large": ((put("reward", batch=(2, 2, 2, 2, 1)), put("violation", batch=(1, 1, 1, 1, 2))), EVEN),
        # Runs differ from batch to batch, and not on average.
        "small": (
            tuple(put(m, runs=(0.99, 1.01), where={"batch": b}) for m in ("reward", "violation") for b in (10, 50, 100)),
            (put("reward", batch=(1, 2, 2, 2, 2)),)),
    },
    "combinatorial/table-4": _run_times(),
    "combinatorial/coverage": {f"{name}-{part}": ((put(f"distance.{part}", near),), (put(f"distance.{part}", 2.0),))
        for part in ("outcome", "cost") for name, near in (("covers", 0.9), ("settings", 0.001))},
    "combinatorial/slopes": {
        "regret": ((put("lp_regret", horizon=0.5),), EVEN),
        "violation": ((put("violation_eq1", horizon=-0.5),), EVEN),
        "regret-bound": _against(_more("lp_regret", 1e9, "*")),
        "violation-bound": _more("violation_eq1", 1e-6, "*")},
}  # fmt: skip

# Service.


def _joules(megajoules: dict[str, float]):
    """Cost per request on a benchmark, from that of a pass over it."""

    def level(data: xr.Dataset) -> float:
        benchmark = decoded(data.attrs)["case_coordinates"]["benchmark"]
        return 1e6 * megajoules[benchmark] / MESSPLUS_BENCHMARKS[benchmark].num_requests

    return level


def _as_in_the_paper(method: str, policy: str) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
    table = MESSPLUS_TABLE_2[method]
    printed = {b: table[b].cost_mj for b in MESSPLUS_BENCHMARKS}
    printed["arc_easy"] = MESSPLUS_TABLE_2_DIFFERS.get((method, "arc_easy"), (table["arc_easy"].cost_mj,))[0]
    cost = _joules(printed)

    def satisfaction(data: xr.Dataset) -> float:
        return table[decoded(data.attrs)["case_coordinates"]["benchmark"]].satisfaction / 100

    return (put("cost", cost, policy=policy), put("satisfaction", satisfaction, policy=policy)), EVEN


def _shares(method: str, policy: str) -> tuple[tuple[Put, ...], tuple[Put, ...]]:
    """The model call ratio of the paper's Table 2."""

    def level(data: xr.Dataset) -> xr.DataArray:
        return xr.DataArray(
            np.array(MESSPLUS_TABLE_2[method][decoded(data.attrs)["case_coordinates"]["benchmark"]].ratio) / 100,
            dims="model",
        )

    return (put("served_share", level, policy=policy),), EVEN


def _sizes(v: float) -> Outcomes:
    """What Tables 6 and 7 print for the mean of the benchmarks."""
    paper = MESSPLUS_TABLES_6_7[v]["average"]
    cost = _joules(dict.fromkeys(MESSPLUS_BENCHMARKS, paper.cost_mj))
    return {"cost-size": ((put("cost", cost),), EVEN), "large-size": ((put("served_share", paper.ratio[2] / 100),), EVEN)}


def _explored(data: xr.Dataset) -> xr.DataArray:
    """Share of the requests that are explored, by c."""
    horizon = int(data["time"][-1])
    return xr.DataArray([service.expected_explorations(c, horizon) / horizon for c in data["c"].values], dims="c")


_PRINTED = {b: MESSPLUS_TABLE_2["MESS+"][b].cost_mj for b in MESSPLUS_BENCHMARKS}
_PASSES: Outcomes = {"approaches": ((put("violation", 0.01),), EVEN), "cheaper": _more("cost", 0.5, "MESS+")}
_EXPLORATION: Outcomes = {"counts": ((put("explored", _explored),), EVEN), "tenfold": ((put("explore_cost", c=0.5),), EVEN)}
_NO_VIOLATION = put("violation", 0)
# Least cost of a request on Winogrande, in J, for a policy that knows the probabilities, by how much features tell of them (0 to 2).
_INFORMED = (156.4, 133.9, 100.1, 81.4, 68.4, 63.8)

_SERVICE = {
    "service/figure-2": {**_PASSES, "first": ((put("first_compliance", 850, runs=(0.5, 1.5)),), EVEN)},
    "service/figure-C2": _PASSES,
    "service/figure-C3": _PASSES,
    "service/figure-3": _EXPLORATION,
    "service/figure-C1": _EXPLORATION,
    "service/table-2": {
        **{name.split("-")[-1]: _as_in_the_paper(name, name) for name in MESSPLUS_MODELS},
        "guessing": _as_in_the_paper("Educated guessing", "EducatedGuessing"),
        "routellm": _as_in_the_paper("RouteLLM", "RouteLLM"),
        "routerdc": _as_in_the_paper("RouterDC", "RouterDC"),
        "messplus": _as_in_the_paper("MESS+", "MESS+"),
        "ratio-guessing": _shares("Educated guessing", "EducatedGuessing"),
        "ratio-routellm": _shares("RouteLLM", "RouteLLM"),
        "ratio-routerdc": _shares("RouterDC", "RouterDC"),
        "ratio-messplus": _shares("MESS+", "MESS+"),
        "twice": _more("cost", 0.1, "MESS+")},
    "service/table-2-parts": {
        "replay": ((put("cost", _joules(MESSPLUS_REPLAY[0.1]), policy="MESS+"),), EVEN),
        "single": (EVEN, (put("cost", 1e9, policy=MESSPLUS_MODELS[1]),)),
        "costs": ((put("cost", _joules(_PRINTED), policy="MESS+, c = 1"),), EVEN),
        "debt": ((put("violation", 0, policy="base rates, no exploration"),), EVEN),
        "exploring": (
            (put("cost", 2, policy="base rates, c = 0.1"), put("cost", 3, policy="base rates, c = 1")),
            (put("cost", 2, policy="base rates, no exploration"),))},
    "service/table-6": _sizes(1e-4),
    "service/table-7": _sizes(1e-5),
    "service/table-3": {"small": ((put("decision_cost", 0.0465 / 1.0465),), (put("decision_cost", 0.5),))},
    "service/theory": {
        "theorem-1": ((_NO_VIOLATION,), (put("virtual_queue", 1e9),)),
        "violation-T": _growth("violation", -1.0),
        "violation-V": ((put("violation", case="by-V", V=1.0),), EVEN),
        "queue-level": ((put("virtual_queue", 4000 * 0.08, case="by-V", V=1.0),), EVEN),
        "gap": ((put("gap", case="gap", V=-0.1), _NO_VIOLATION), EVEN),
        "overhead-T": _growth("explore_overhead", -0.25),
        "overhead-c": ((put("explore_overhead", case="exploring", c=1.0),), EVEN),
        "count": ((put("explored", 0.1, time=-0.25),), EVEN),
        "inverse-count": ((put("explored", 0.1, time=-0.25),), EVEN),
        # So large that the minimum of the loss does not matter.
        "loss": ((put("exact_loss", 1e9, time=-1.0),), EVEN),
        "root": ((put("violation", case="root-*", horizon=-0.5),), EVEN),
        "knowledge": ((put("cost", case="signal", signal=_INFORMED), _NO_VIOLATION), EVEN),
        "margin": ((_NO_VIOLATION,), EVEN),
        "pathwise": ((_NO_VIOLATION,), EVEN),
        "learned": _growth("violation", -1.0),
        "few-steps": (EVEN, (_NO_VIOLATION,)),
    },
}  # fmt: skip
_THEORY = _SERVICE["service/theory"]
_THEORY |= {f"{name}-power": _THEORY[name] for name in theory.POWER_LAWS}

# Queueing.

_QUEUES: Outcomes = {"returns": _growth("queue_regret", -0.5), "linear": _growth("routing_regret", 1.0)}
_CONTRASTIVE: Outcomes = {
    "contrastive": _more("routing_regret", 0.5, "ACQB-CL"),
    "longer": _more("routing_regret", 0.5, "ACQB-CL, longer"),
}
_LOADED: Outcomes = {
    "stable": _growth("queue_length", 1.0, level=1000, policy="Random"),
    "shorter": _more("queue_length", 0.5, "ACQB*"),
    "sublinear": _against(_growth("routing_regret", 1.0)),
    **_CONTRASTIVE,
}


def _explorations(data: xr.Dataset) -> xr.DataArray:
    """Number of explored rounds by c1."""
    rate, horizon = float(queueing.RandomQueues().arrival_rate), int(data["time"][-1])
    numbers = [queueing.expected_explorations(horizon, rate, float(c1)) for c1 in data["c1"].values]
    return xr.DataArray(numbers, dims="c1")


_QUEUEING = {
    **{f"queueing/figure-{number}": _QUEUES for number in (2, 4, 5)},
    **{f"queueing/{name}": _LOADED for name in ("figure-3", "figure-6", "figure-7", "table")},
    "queueing/contrastive": _CONTRASTIVE,
    "queueing/kappa-sensitivity": {
        "theory-kappa": ((put("routing_regret", curvature=1.0),), EVEN),
        "exploring": ((put("routing_regret", c1=1.0),), EVEN)},
    "queueing/theory": {
        "theorem-6": _growth("routing_regret", 1.0, policy="Random"),
        "theorem-5": _growth("mean_queue_regret", -0.5),
        "explorations": ((put("explored", _explorations, case="exploring"),), EVEN),
        "coverage": ((put("estimate.distance", 0.5),), (put("estimate.distance", 2.0),)),
        "eigenvalue": ((put("estimate.least", 1e6),), (put("estimate.least", 0),)),
        # A decision changes nothing, or a hundredth of a query.
        "switching": (EVEN, (put("queue_length", policy="switch", at=1.0),)),
        "round-bound": (EVEN, (put("joint_regret", 1e9, case="rounds-shared", time=1.0),)),
        "round-decay": ((put("joint_regret", case="rounds", time=0.5),), (put("joint_regret", case="rounds", time=1.0),)),
        "good-rounds": (EVEN, (put("joint_regret", 1e6, case="rounds", time=1.0),)),
        "mixed": ((put("queue_length", case="mixed", second_answer=(1, 1, 0.1, 0.1, 0.1)),), EVEN),
        "little": ((put("arrivals", 5000, case="regret"),), EVEN),
    },
}  # fmt: skip

# Cascade.

_ALMOST_ALL = (1,) * 7
_SLOW, _FLAT = put("regret", time=1.0), put("regret", policy="COSMOS*", time=0.1)

_CASCADE = {
    "cascade/two-boxes": {
        "oracle": ((put("utility", 0.54, policy="oracle"),), EVEN),
        "single": ((put("regret", 80, policy="one call"),), EVEN),
        "linear": ((_SLOW, put("regret", policy="COSMOS", where={"index": 1.0}, time=0.1)), EVEN),
        "bonus": _more("regret", 30, "COSMOS", where={"index": 0.1}),
        "stuck": _more("regret", 60, "COSMOS", where={"index": 0.1}),
        "warm": _more("regret", 30, "COSMOS", where={"index": 0.1})},
    "cascade/square-root": {"flat": ((put("regret", horizon=0.5),), EVEN), "greedy": _more("regret", 0.05, "greedy")},
    "cascade/theory": {
        "same": (EVEN, (put("regret", 2, policy="theory"),)),
        "vacuous": (EVEN, (put("regret", 1e5, policy="theory"),)),
        "coverage": ((put("optimistic", runs=(1,)),), (put("optimistic", 0.9),)),
        "practical": (
            (put("regret", 20, policy="theory"), put("optimistic", 0.5), put("optimistic", 0.2, policy="COSMOS, b = .03")),
            EVEN),
        "small": (EVEN, (put("regret", 2, case="ridge", where={"eta1": 2.0}),)),
        "small-unseen": (EVEN, (put("regret", 2, case="ridge-unseen", where={"eta0": 0.1}),)),
        "large": (
            (
                put("regret", 2, case="ridge", where={"eta1": 10.0}),
                put("regret", 2, case="ridge-unseen", where={"eta0": 10.0})),
            EVEN),
        "rule": _against(_more("regret", 2, "rule")),
        "linear": _growth("design.least", 1.0),
        # Half of the runs have a context of zero.
        "frozen": (
            (
                put("design.context", case="design-frozen", runs=(0, 1)),
                put("design.least", case="design-frozen", runs=(1, 2)),
            ),
            (put("design.context", case="design-frozen", runs=(0, 1)), put("design.least", case="design-frozen", runs=(1,))),
        ),
    },
    "cascade/regret": {
        "below": _more("regret", 0.1, "COSMOS"),
        "concave": ((_FLAT,), (_SLOW,)),
        "mixture": ((put("regret", policy="greedy", runs=(0.1, 100), time=1.0),), EVEN),
        "free": _more("regret", 0.5, "greedy, warm 10"),
        "late": (EVEN, (put("queries", 2, policy="COSMOS"),)),
        "bootstrap": _more("regret", 20, "bootstrap, no warm-up")},
    "cascade/sizes": {
        "T": ((_FLAT,), (_SLOW,)),
        **{axis: ((put("regret", case=f"{axis}*", **{axis: 0.9}),), (put("regret", case=f"{axis}*", **{axis: 1.3}),))
            for axis in "mKd"},
        "crossing": ((put("regret", 5, policy="one call", time=1.0), put("regret", policy="COSMOS", time=0.1)), EVEN)},
    "cascade/bonus": {
        "u-shape": ((put("regret", index=(20, 10, 5, 1, 2, 3, 10)),), EVEN),
        "cliff": ((put("regret", where={"index": 0.03}, runs=(*_ALMOST_ALL, 100)),), EVEN),
        "default": ((put("regret", index=(20, 10, 5, 2, 1, 3, 4)),), (put("regret", index=(20, 10, 5, 1, 2, 3, 4)),))},
    "cascade/rare-requests": {
        "warm": ((_SLOW, _FLAT), EVEN),
        "pays": _more("regret", 10, "greedy, warm 10"),
        "as-good": _more("regret", 0.5, "greedy, warm 100")},
    "cascade/learned-scores": {
        "slope": ((_FLAT,), (_SLOW,)),
        "tails": ((put("regret", policy="greedy", runs=(50, 100)),), EVEN),
        "early": ((put("regret", policy="greedy", runs=(0.99, 1.01)),), (put("regret", 2, policy="greedy"),)),
        "optimism": (
            (
                put("regret", case="bonuses", optimism=(3, 2, 1, 2, 2)),
                put("queries", case="bonuses", optimism=(5, 4, 3, 2, 1))),
            EVEN),
        "offline": ((put("regret", policy="fitted before", pairs=(4, 2, 0.5, 1)),), EVEN),
        "enough": (EVEN, (put("regret", policy="fitted before", pairs=(4, 2, 1, 1.5)),))},
    "cascade/distributions": {
        "distributions": _more("regret", 100, "greedy"),
        "misfit": (
            (put("regret", policy="COSMOS", time=0.1), put("regret", case="not linear", policy="COSMOS", time=0.5)),
            EVEN),
        "family": _more("regret", 10, "location family", case="pass or fail"),
        "order": (
            tuple(put("regret", 1 + gap, case="estimators", policy=policy)
                for gap, policy in enumerate(("window 64", "window 32", "window 8", "streaming", "constant curvature"), 1)),
            EVEN),
        "window": ((put("regret", 1.01, case="estimators", policy="window 32"),), (put("regret", 2, policy="window 32"),)),
        "frozen": _more("regret", 2, "streaming, online evaluator")},
    "cascade/cost-quality": {
        "dominates": (
            (
                put("cost", case="weights", cost_weight=(7, 6, 5, 4, 3, 2, 1)),
                put("reward", 2, case="weights"),
                put("cost", 3.5, case="thresholds")),
            EVEN),
        "single": _more("utility", 2, "COSMOS")},
    "cascade/replay": {
        "oracle": _against(_more("utility", 2, "query all")),
        "plan": _against(_more("utility", 2, "query all")),
        **{f"{rival}-{kind}": _against(_more("utility", 2, rival, case=kind))
            for rival in ("best single", "frugal (tuned)", "learned list") for kind in ("independent", "joint")}},
    "cascade/queries": {"learns": _against(_more("utility", 2, "linear indices (other half)"))},
}  # fmt: skip

# The plain bandit.


def _best_arm() -> Outcomes:
    """Samples that fall towards T* log(1 / delta), and such that do not."""
    falling = tuple(
        put("samples", factor * stochastic.characteristic_time(env) * math.log(1 / delta), case=case, where={"delta": delta})
        for case, env in INSTANCES.items()
        for delta, factor in ((0.001, 1.2), (0.01, 1.3), (0.1, 1.6))
    )
    table = tuple(put("samples", number, case=case, where={"delta": 0.1}) for case, number in TABLE_1.items())
    return {"table-1": (table, EVEN), "mistakes": ((put("mistaken", 0.0),), EVEN), "characteristic-time": (falling, EVEN)}


OUTCOMES: dict[str, Outcomes] = {
    "stochastic/classics": {
        "lai-robbins": ((put("regret", float(np.diff(stochastic.lai_robbins(RARE, [2000, 20_000]))[0]), time=1.0),), EVEN),
        "moss-bound": _against(_more("regret", 1e6, "MOSS")),
        "exp3-bound": _against(_more("regret", 1e6, "Exp3"))},
    "stochastic/best-arm": _best_arm(),
    "stochastic/regret": {
        "ucb1-bound": _against(_more("regret", 1e6, "UCB1")),
        "greedy-linear": _growth("regret", 1.0, policy="EpsilonGreedy")},
    "contextual/regret": {
        "oful-bound": _against(_more("regret", 1e6, "OFUL")),
        "oful-sublinear": _against(_growth("regret", 1.0, policy="OFUL")),
        "squarecb-bound": _against(_more("regret", 1e6, "SquareCB"))},
    **_STAGED,
    **_COMBINATORIAL,
    **_SERVICE,
    **_QUEUEING,
    **_CASCADE,
}  # fmt: skip

# Runs with which a claim can hold, where a few are not enough: shares near 0 or 1, and extreme quantiles.
RUNS: dict[tuple[str, str], int] = {
    ("stochastic/best-arm", "mistakes"): 5600,
    ("queueing/theory", "coverage"): 800,
    ("queueing/theory", "eigenvalue"): 800,
    ("cascade/bonus", "cliff"): 800,
    ("cascade/learned-scores", "tails"): 800,
    ("service/figure-2", "first"): 64,
    ("service/theory", "margin"): 800,
    ("staged/figure-5", "newcomers"): 160,
    **{("combinatorial/coverage", f"{name}-{part}"): 800 for name in ("covers", "settings") for part in ("outcome", "cost")},
}
