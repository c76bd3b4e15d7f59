"""Statements of the paper on COSMOS: its example, regret of order sqrt(T), confidence radius, ridges (regularisation) and assumptions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxroute import grid, plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Finding, Measure, at_least, gap, growth, known, mean, near, quantile, rising, slope
from jaxroute.experiments.measure import along, end, mean_of
from jaxroute.experiments.pictures import Picture, panel, side_by_side
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import PracticalRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import Window
from jaxroute.problems.cascade.theory import design_growth, ridge_rule

COSMOS = "COSMOS (Belloni, Chen and Wei)"
OURS = "our study; the paper has no experiment"
RECORD = ("regret", "mean_cost_regret", "queries", "utility")
# Settings of the cascade in most experiments: COSMOS observes the scores of answers (SEEN), or learns to predict them (UNSEEN).
SEEN: dict[str, Any] = {"num_models": 3, "dim": 3}
UNSEEN = SEEN | {"evaluator": 5}
STREAMING, WINDOW = StreamingNewton(), Window()


def learner(index: float = 0.10, warm: int = 0, fit: Any = STREAMING) -> ca.COSMOS:
    """Makes COSMOS for scores that are observed. `index` scales its exploration bonus (0: greedy); it calls all models for `warm` rounds."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, 0.0, 0.0), exploration=WarmUp(warm))


def learns_scores(index: float = 0.10, plug_in: float = 0.03, optimism: float = 0.30, fit: Any = WINDOW) -> ca.COSMOS:
    """Makes COSMOS that learns to score answers. The first three arguments scale its exploration bonuses (all 0: greedy); `fit` is its regression."""
    return ca.COSMOS(fit=fit, radius=PracticalRadius(index, plug_in, optimism))


def case_of(
    policies: Any, horizon: int, name: str = "result", settings: Mapping[str, Any] = SEEN, *, every: int, **options: Any
) -> Case:
    """Makes a case that records metrics every `every` rounds. Its environment is a cascade with uniform noise unless `options` has an `environment`."""
    options = {"environment": ca.uniform_cascade, "record": RECORD, "record_every": every, **options}
    return Case(policies=policies, horizon=horizon, name=name, settings=settings, **options)


def claims(*rows: tuple[str, str, Measure] | tuple[str, str, Measure, str]) -> tuple[Claim, ...]:
    """Makes claims from rows of name, text, measure and optionally source (default: our own study)."""
    return tuple(Claim(row[0], row[1], row[3] if len(row) > 3 else OURS, row[2]) for row in rows)


def study(
    name: str, title: str, cases: tuple[Case, ...], seeds: int, claims: tuple[Claim, ...], figures: Any, **more: Any
) -> Experiment:
    """Makes an experiment about COSMOS, with our own study as its source unless `source` is given."""
    return Experiment(name, title, cases, seeds, claims, figures, **{"source": OURS, **more})


def mean_and_runs(draw: Any = plot.curves, change: Any = None, **options: Any) -> Picture:
    """Makes a figure of two panels of regret: means, drawn by `draw`, and quantiles over runs. The function `change` is applied to the result before."""
    runs = {name: value for name, value in options.items() if name == "policies"}
    mean = panel("regret", draw, change=change, title="mean", **options)
    return side_by_side(mean, panel("regret", plot.quantiles, change=change, log=True, title="runs", **runs))


# The paper's example.

_BONUSES = [0.1, 0.3, 0.6, 1.0, 2.0]
_LEARNERS = {
    "COSMOS": grid(learner, index=_BONUSES, fit=WINDOW),
    "COSMOS, streaming": grid(learner, index=_BONUSES),
    "COSMOS, b = .1, 60 rounds of all": learner(warm=60, fit=WINDOW),
    "one call": ca.ContextSingle.of,
    "oracle": ca.Oracle.of,
}
_TWO_BOXES_CLAIMS = claims(
    ("oracle", "the optimal cascade of the two boxes earns .54 per request, within 5 %",
     near((mean("oracle", metric="utility"), 0.54), share=0.05), f"{COSMOS}, section 2.1"),
    ("single", "a single call loses .04 per request, within 5 %", near((mean("one call"), 80.0), share=0.05), f"{COSMOS}, section 2.1"),
    ("linear", "the regret of COSMOS grows almost linearly with b = .1 (slope above .9), and slowly with b = 1 (slope below .5)",
     rising((0.9, slope("COSMOS", share=0.25, index=0.1)), (slope("COSMOS", share=0.25, index=1.0), 0.5))),
    ("bonus", "b = .1 has more than twenty times the regret of b = 1",
     rising((20 * mean("COSMOS", index=1.0), mean("COSMOS", index=0.1)))),
    ("stuck", "with b = .1 more than half of the runs lose .02 per request or more", rising((40.0, quantile(0.5, "COSMOS", index=0.1)))),
    ("warm", "a warm-up helps: after 60 rounds with all boxes, b = .1 has less than a tenth of its regret without",
     rising((mean("COSMOS, b = .1, 60 rounds of all"), 0.1 * mean("COSMOS", index=0.1)))),
)  # fmt: skip
_TWO_BOXES = study("cascade/two-boxes",
    "The paper's two boxes: single calls lose .04 per request, and too small a bonus loses as much",
    (case_of(_LEARNERS, 2000, settings={}, environment=lambda: ca.two_boxes(), every=50),), 512, _TWO_BOXES_CLAIMS,
    {"two-boxes": mean_and_runs(change=lambda data: data.rename(index="b"), policies=["COSMOS", "one call"])},
    source=f"{COSMOS}, section 2.1; the learners are ours",
    notes="the second box pays once in ten calls: after a few failures a small bonus does not raise its index above .5 again. The bonus .1 "
        "for the other cascades is a calibration",
    smoke_horizon=200)  # fmt: skip

# The square root of the horizon.

_STEPS, _HORIZONS = (0.5, 1.0, 2.0), (1000, 3000, 10_000, 30_000, 100_000)


def _hard(steps: Sequence[float] = _STEPS, horizon: int = 1000) -> Any:
    """Makes a grid of environments with a safe and a risky model. Their indices in the optimal policy differ by `s / sqrt(horizon)`, `s` in `steps`."""
    return grid(lambda s: ca.safe_and_risky(s / math.sqrt(horizon)), s=list(steps))


def _root_case(horizon: int) -> Case:
    policies, where = {"COSMOS": learner(), "greedy": learner(0.0)}, {"horizon": horizon}
    return case_of(policies, horizon, f"T{horizon}", {"steps": _STEPS}, environment=_hard, coordinates=where, every=horizon)


def _root_panels(results: Results):
    figure, axes = plot.panels(2)
    regret = along(results, "regret", "horizon")
    runs = {f"{p}, s = {s:g}": regret.sel(policy=p, s=s, drop=True) for p in ("COSMOS", "greedy") for s in _STEPS}
    roots = {
        name: [(int(r["horizon"]), mean_of(r).times(int(r["horizon"]) ** -0.5)) for r in one] for name, one in runs.items()
    }
    seeds = next(iter(results.values())).sizes["seed"]
    plot.points(roots, x=f"horizon T\nmean ± 2 s.e. of {seeds} seeds", y="regret / sqrt(T)", ax=axes[0])
    plot.log_axis(axes[0], "x")
    plot.log_axis(axes[0], "y")
    plot.power_laws({name: r for name, r in runs.items() if name.startswith("COSMOS")}, ax=axes[1])
    return figure


_ROOT_CLAIMS = claims(
    ("flat", "R(T) / sqrt(T) is constant: the slope of R is within .05 of .5",
     near(*[(growth("COSMOS", "horizon", s=s), 0.5) for s in _STEPS], margin=0.05), f"{COSMOS}, proposition 4.5"),
    ("greedy", "at the longest horizon the greedy policy has less than a tenth of COSMOS' regret: the narrow box, which is better, starts ahead",
     rising(*[(mean("greedy", "T100000", s=s), 0.1 * mean("COSMOS", "T100000", s=s)) for s in _STEPS])),
)  # fmt: skip
_ROOT = study("cascade/square-root", "Regret of order sqrt(T): two boxes whose indices differ by s / sqrt(T)",
    tuple(_root_case(horizon) for horizon in _HORIZONS), 512, _ROOT_CLAIMS, {"square-root": _root_panels},
    notes="with s = 2 the difference of the indices is visible at short horizons, and R(T) / sqrt(T) still rises. Two boxes that are both opened "
        "half of the time anyway do not show sqrt(T): exploration is free there",
    smoke_horizon=4000)  # fmt: skip

# The radius of the proofs, the ridges, and the design matrix of deployed outputs.

_ETA1, _ETA0 = (0.01, 0.1, 1.0, 2.0, 10.0), (0.1, 1.0, 10.0)
_RULE = ridge_rule(3, 3, 5)


def _bound(horizon: int) -> float:
    return ca.regret_bound(ca.uniform_cascade(**SEEN).spec, horizon)


def _growth(env, policy, env_state, state, t) -> dict[str, Any]:
    """Records the least eigenvalue of the policy's design matrix, and the context if it stays the same during the run."""
    least = design_growth(env, policy, env_state, state, t)
    return {"least": least} | ({} if isinstance(env_state, tuple) else {"context": env_state})


def _by_context(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Splits a result by the context that is fixed for each run: returns the runs with context 0 and the runs with context 1."""
    data = data.isel(policy=[0])
    one = (data["design.context"].isel(policy=0, time=-1) > 0).values
    return {f"x = {x}": data.isel(seed=np.flatnonzero(one == x)).assign_coords(policy=[f"x = {x}"]) for x in (0, 1)}


def _never_grows(results: Results) -> Finding:
    last = {name: d["design.least"].isel(time=-1).values for name, d in _by_context(results["design-frozen"]).items()}
    if not all(values.size for values in last.values()):
        return "runs with x = 0 and with x = 1 are needed: use more seeds", at_least(None, [])
    text = ", ".join(f"{v.size} runs with {name}: {v.min():.3g} to {v.max():.3g}" for name, v in last.items())
    return text, bool((last["x = 0"] == 1.0).all() and (last["x = 1"] > 1.0).all())


def _theory_panels(results: Results):
    data = results["radius"]
    times = data["time"].values
    bound = np.array([_bound(int(t)) for t in times])
    lines = {"bound of proposition 4.5": (times, bound), "trivial bound (2 K + 1) t": (times, 7.0 * times)}
    figure, axes = plot.panels(6)
    plot.curves(data, "regret", log=True, ax=axes[0], reference=lines, title="regret and its bounds")
    plot.curves(data, "optimistic", ax=axes[1], policies=["theory", "COSMOS", "COSMOS, b = .03"], title="optimism")
    for ax, (case, axis, scores) in zip(axes[2:], (("ridge", "eta1", "seen"), ("ridge-unseen", "eta0", "learned"))):
        plot.quantiles(results[case].sel(policy=["COSMOS"]), "regret", ax=ax, x=axis, title=f"ridge {axis}, scores {scores}")
        plot.level(ax, "mean with the paper's rule", end(results[case], "regret", "rule").mean)
    plot.curves(results["design"], "design.least", band="quantile", ax=axes[4], title="design matrix, random contexts")
    for one in (one for one in _by_context(results["design-frozen"]).values() if one.sizes["seed"]):
        plot.curves(one, "design.least", band="quantile", log="y", ax=axes[5], title="design matrix, one context for ever")
    for ax in axes[4:]:
        ax.set_ylabel("least eigenvalue")
    return figure


def _ridges(eta1: float = 1.0, eta0: float = 1.0, unseen: bool = False) -> ca.COSMOS:
    policy = learns_scores(fit=STREAMING) if unseen else learner()
    return policy.replace(eta1=eta1, eta0=eta0)


_RADII = {
    "theory": ca.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()),
    "query all": ca.QueryAll(),
    "COSMOS": learner(),
    "COSMOS, b = .03": learner(0.03),
}
_ONLINE = {"COSMOS": learns_scores(fit=STREAMING), "greedy": learns_scores(0.0, 0.0, 0.0, STREAMING)}
_RIDGE = {"COSMOS": grid(_ridges, eta1=list(_ETA1)), "rule": _ridges(_RULE.eta1)}
_RIDGES = {"COSMOS": grid(_ridges, eta0=list(_ETA0), unseen=True), "rule": _ridges(*_RULE, unseen=True)}
_THEORY_CLAIMS = claims(
    ("same", "COSMOS with the radius of the proofs equals query-all, up to rounding of sums",
     near(*[(gap("theory", "query all", "radius", metric), 0.0) for metric in RECORD], margin=0.01)),
    ("vacuous", "its regret is below the trivial bound, which is below the bound of the theory",
     rising((mean("theory", "radius"), 70000.0, known("bound", _bound, "radius"))), f"{COSMOS}, proposition 4.5; eq. (58)"),
    ("coverage", "the radius of the proofs covers the true indices in every round",
     near((mean("theory", "radius", "optimistic"), 1.0)), f"{COSMOS}, proposition 4.4"),
    ("practical", "the practical radius has less than a tenth of that regret, and covers the true indices in fewer rounds",
     rising((mean("COSMOS", "radius"), 0.1 * mean("theory", "radius")), (mean("COSMOS, b = .03", "radius", "optimistic"), mean("COSMOS", "radius", "optimistic"), 1.0))),
    ("small", "ridges eta_1 up to 2 change regret by at most 5 %",
     near(*[(mean("COSMOS", "ridge", eta1=eta), mean("COSMOS", "ridge", eta1=1.0)) for eta in (0.01, 0.1, 2.0)], share=0.05)),
    ("small-unseen", "a ridge eta_0 of .1 changes regret by at most 15 %",
     near((mean("COSMOS", "ridge-unseen", eta0=0.1), mean("COSMOS", "ridge-unseen", eta0=1.0)), share=0.15)),
    ("large", "a ridge eta_1 of 10 makes the first bonuses too small: it has more regret than 1",
     rising((mean("COSMOS", "ridge", eta1=1.0), mean("COSMOS", "ridge", eta1=10.0)))),
    ("large-unseen", "a ridge eta_0 of 10 has more regret than 1", rising((mean("COSMOS", "ridge-unseen", eta0=1.0), mean("COSMOS", "ridge-unseen", eta0=10.0)))),
    ("rule", f"the paper's rule, eta_1 = {_RULE.eta1:.2f} and eta_0 = {_RULE.eta0:.2f}, has the regret of 1 and 1 within 10 %",
     near((mean("rule", "ridge"), mean("COSMOS", "ridge", eta1=1.0)), (mean("rule", "ridge-unseen"), mean("COSMOS", "ridge-unseen", eta0=1.0)), share=0.1), f"{COSMOS}, theorem 5.5"),
    ("linear", "the least eigenvalue of the design matrix grows linearly: slope within .1 of 1",
     near(*[(slope(p, "design", metric="design.least"), 1.0) for p in ("COSMOS", "greedy")], margin=0.1), f"{COSMOS}, proposition 10.10"),
    ("frozen", "with a fixed context of 0 the least eigenvalue stays at eta_0 = 1", _never_grows, f"{COSMOS}, remark 5.2"),
)  # fmt: skip
_THEORY = study("cascade/theory", "The radius of the proofs, the rule for the ridges, and the growth of the design matrix",
    (
        case_of(_RADII, 10_000, "radius", record=(*RECORD, "optimistic"), every=250),
        case_of(_RIDGE, 10_000, "ridge", every=1000),
        case_of(_RIDGES, 10_000, "ridge-unseen", UNSEEN, every=1000),
        case_of(_ONLINE, 4000, "design", UNSEEN, probes={"design": _growth}, every=100),
        case_of(_ONLINE, 4000, "design-frozen", {}, environment=lambda: ca.frozen_cascade(), probes={"design": _growth},
            every=100)),
    256, _THEORY_CLAIMS, {"theory": _theory_panels},
    source=f"{COSMOS}, propositions 4.4, 4.5 and 10.10, theorem 5.5, remark 5.2",
    notes="the bonus of the proofs falls below .1 only after about 26 million calls of a model",
    smoke_horizon=400)  # fmt: skip

PAPER = (_TWO_BOXES, _ROOT, _THEORY)
