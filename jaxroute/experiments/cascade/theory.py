"""What the theory of COSMOS says, measured: its radius and bound, the ridges, and the growth of the design matrix."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxroute import grid
from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import (
    LEARNED,
    OURS,
    PAPER,
    RECORD,
    SEEN,
    STREAMING,
    TABLE,
    horizon_of,
    learner,
    learns_scores,
    uniform_case,
)
from jaxroute.experiments.claims import Number, Verdict, agrees, all_hold
from jaxroute.experiments.measure import Measured, end, ends, ends_along, listed, mean_of, power, quotient, show, show_slope
from jaxroute.problems import cascade as ca

# S11: the radius of the proofs.


def _bound(horizon: int) -> float:
    return ca.regret_bound(ca.uniform_cascade(**SEEN).spec, horizon)


def _opens_everything(results: Results) -> Verdict:
    data = results["result"]
    same = all((data[m].sel(policy="theory") == data[m].sel(policy="query all")).all() for m in RECORD)
    queries = end(data, "queries", "theory")
    return f"{show(queries)} calls per request; the same in every run and metric: {'yes' if same else 'no'}", bool(same)


def _vacuous(results: Results) -> Verdict:
    horizon = horizon_of(results)
    bound, trivial = _bound(horizon), 7.0 * horizon
    regret = ends(results["result"], "regret", ("theory", "COSMOS"))
    text = f"bound {bound:.2g}, trivial bound {trivial:,.0f}; measured: {listed(regret)}"
    return text, bound > trivial > regret["theory"].mean > regret["COSMOS"].mean


def _covered(results: Results) -> Verdict:
    shares = ends(results["result"], "optimistic", ("theory", "COSMOS", "b = .03"))
    text = ", ".join(f"{p} {100 * s.mean:.2f} %" for p, s in shares.items())
    return f"rounds in which all indices are at least the true ones: {text}", shares["theory"].mean == 1.0


def _radius_panels(results: Results):
    figure, axes = plot.panels(2)
    data = results["result"]
    times = data["time"].values
    bounds = np.array([_bound(int(t)) for t in times])
    lines = {"bound of proposition 4.5": (times, bounds), "trivial bound (2 K + 1) t": (times, 7.0 * times)}
    plot.curves(data, "regret", log=True, ax=axes[0], reference=lines, title="regret and its bounds")
    plot.curves(data, "optimistic", ax=axes[1], policies=["theory", "COSMOS", "b = .03"])
    return figure


# S13: the ridges.

_ETA1, _ETA0 = (0.01, 0.1, 1.0, 2.0, 10.0), (0.1, 1.0, 10.0)
_RULE = ca.ridge_rule(3, 3, 5)
_S13 = (
    *(
        Number("COSMOS", 10_000, v, None, where=(("eta1", eta),), case="known")
        for eta, v in zip(_ETA1, (17.0, 17.0, 16.8, 16.7, 37.0), strict=True)
    ),
    *(
        Number("COSMOS", 10_000, v, None, where=(("eta0", eta),), case="learned")
        for eta, v in zip(_ETA0, (31.7, 30.4, 43.0), strict=True)
    ),
)


def _known_ridge(eta1: float) -> ca.COSMOS:
    return learner().replace(eta1=eta1)


def _learned_ridge(eta0: float, eta1: float = 1.0) -> ca.COSMOS:
    return learns_scores(fit=STREAMING).replace(eta0=eta0, eta1=eta1)


def _ridge_cases() -> tuple[Case, ...]:
    seen = {"COSMOS": grid(_known_ridge, eta1=list(_ETA1)), "rule": _known_ridge(_RULE.eta1)}
    learned = {"COSMOS": grid(_learned_ridge, eta0=list(_ETA0)), "rule": _learned_ridge(_RULE.eta0, _RULE.eta1)}
    return uniform_case(seen, 10_000, "known", every=1000), uniform_case(learned, 10_000, "learned", LEARNED, every=1000)


def _ridge_matters_little(results: Results) -> Verdict:
    first = ends_along(results["known"], "regret", "COSMOS", "eta1", _ETA1)
    second = ends_along(results["learned"], "regret", "COSMOS", "eta0", _ETA0)
    small = [first[eta].mean for eta in _ETA1 if eta <= 2.0]
    near = max(small) < 1.05 * min(small) and abs(quotient(second[0.1], second[1.0]).mean - 1.0) < 0.15
    more = first[10.0].mean > max(small) and second[10.0].mean > second[1.0].mean
    return f"eta_1: {listed(first, '{:g}:')}; eta_0: {listed(second, '{:g}:')}", near and more


@all_hold(f"eta_1 = {_RULE.eta1:.3f}, eta_0 = {_RULE.eta0:.3f}, against 1 and 1, ")
def _rule_is_no_better(results: Results) -> Iterator[Verdict]:
    for case, axis in (("known", "eta1"), ("learned", "eta0")):
        rule, plain = end(results[case], "regret", "rule"), end(results[case], "regret", "COSMOS", **{axis: 1.0})
        yield f"{case}: {show(rule)} against {show(plain)}", abs(quotient(rule, plain).mean - 1.0) < 0.1


def _ridge_panels(results: Results):
    figure, axes = plot.panels(2)
    for ax, (name, axis, scores) in zip(axes, (("known", "eta1", "seen"), ("learned", "eta0", "learned")), strict=True):
        data = results[name]
        title = f"scores {scores}; dashed: mean by the rule, {axis} = {getattr(_RULE, axis):.2f}"
        plot.spread(data.sel(policy=["COSMOS"]), "regret", ax=ax, x=axis)
        ax.set_title(title, loc="left", fontsize=9)
        ax.axhline(end(data, "regret", "rule").mean, color="#D55E00", linestyle="--", linewidth=1)
    return figure


# S14: the design matrix of deployed outputs.


def _growth(env, policy, env_state, state, t) -> dict[str, Any]:
    """Least eigenvalue of the design matrix, and the context where it is the same for the whole run."""
    least = ca.design_growth(env, policy, env_state, state, t)
    return {"least": least} | ({} if isinstance(env_state, tuple) else {"context": env_state})


def _growth_cases() -> tuple[Case, ...]:
    probes = {"design": _growth}
    return (
        uniform_case(
            {"COSMOS": learns_scores(fit=STREAMING), "greedy": learns_scores(0.0, 0.0, 0.0, fit=STREAMING)},
            4000,
            "random",
            LEARNED,
            probes=probes,
            every=100,
        ),
        Case(
            ca.frozen_cascade(),
            {"COSMOS": learns_scores(fit=STREAMING)},
            4000,
            "frozen",
            record_every=100,
            record=RECORD,
            probes=probes,
        ),
    )


def _growth_table(results: Results) -> Verdict:
    """497 (3) at 4,000 rounds for COSMOS; .103 per round for greedy."""
    data = results["random"]
    horizon = float(data["time"][-1])
    last = {p: mean_of(data["design.least"].sel(policy=p).isel(time=-1)) for p in ("COSMOS", "greedy")}
    text = ", ".join(f"{p} {show(v)}, {v.mean / horizon:.3f} per round" for p, v in last.items())
    if horizon != 4000:
        return f"{text}; the numbers are for 4,000 rounds", False
    near = last["COSMOS"].near(Measured(497.0, 3.0), by=4.0)
    return text, near and abs(last["greedy"].mean / horizon - 0.103) < 0.005


def _grows_linearly(results: Results) -> Verdict:
    least = results["random"]["design.least"]
    late = least.isel(time=least["time"].values >= 0.1 * float(least["time"][-1]))
    slopes = {p: power(late.sel(policy=p), "time") for p in ("COSMOS", "greedy")}
    text = ", ".join(f"{p} {show_slope(slope)}" for p, slope in slopes.items())
    return f"log-log slope over the last nine tenths, {text}", all(abs(slope.mean - 1.0) < 0.1 for slope in slopes.values())


def _never_grows(results: Results) -> Verdict:
    data = results["frozen"].isel(policy=0)
    zero = data["design.context"].isel(time=-1) == 0.0
    least = data["design.least"].isel(time=-1)
    stuck, others = least.values[zero.values], least.values[~zero.values]
    if not len(stuck) or not len(others):
        return f"{len(stuck)} runs with x = 0, {len(others)} others: some of both are needed", False
    text = f"{len(stuck)} runs with x = 0: between {stuck.min():g} and {stuck.max():g}; {len(others)} others: at least {others.min():.3g}"
    return text, bool((stuck == 1.0).all() and (others > 1.0).all())


def _growth_panels(results: Results):
    figure, axes = plot.panels(2)
    data = results["random"]
    for policy in ("COSMOS", "greedy"):
        least = data["design.least"].sel(policy=policy)
        (line,) = axes[0].plot(data["time"], least.mean("seed"), label=policy)
        low, high = (least.quantile(q, "seed") for q in (0.05, 0.95))
        axes[0].fill_between(data["time"], low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    axes[0].set_title("random contexts", loc="left", fontsize=9)
    frozen = results["frozen"].isel(policy=0)
    zero = (frozen["design.context"].isel(time=-1) == 0.0).values
    for place, (mask, label) in enumerate(((zero, "x = 0 for the whole run"), (~zero, "x = 1"))):
        for seed in np.flatnonzero(mask)[:20]:
            curve = frozen["design.least"].isel(seed=seed)
            axes[1].plot(
                frozen["time"],
                curve,
                color=f"C{place}",
                linewidth=0.7,
                label=label if seed == np.flatnonzero(mask)[0] else None,
            )
    plot.log_axis(axes[1], "y")
    axes[1].set_title("one context for the whole run", loc="left", fontsize=9)
    for ax, note in zip(axes, (f"mean and 5–95 % of {data.sizes['seed']} seeds", "up to 20 runs of each kind"), strict=True):
        ax.set_xlabel(f"round\n{note}")
        ax.set_ylabel("least eigenvalue of the design matrix")
        ax.legend(fontsize=8, frameon=False)
    return figure


THEORY = (
    Experiment(
        "cascade/S11",
        "The radius of the proofs opens every box",
        (
            uniform_case(
                {
                    "theory": ca.COSMOS(fit=ca.Streaming(), radius=ca.Theoretical()),
                    "query all": ca.QueryAll(),
                    "COSMOS": learner(),
                    "b = .03": learner(0.03),
                },
                10_000,
                record=(*RECORD, "optimistic"),
                every=250,
            ),
        ),
        256,
        (
            Claim("same", "COSMOS with the radius of the proofs is query-all, run by run", OURS, _opens_everything),
            Claim("vacuous", "the bound is far above the trivial one", f"{PAPER}, proposition 4.5; eq. (58)", _vacuous),
            Claim("coverage", "that radius covers the true indices in every round", f"{PAPER}, proposition 4.4", _covered),
        ),
        {"S11": _radius_panels},
        source=f"{PAPER}, propositions 4.4 and 4.5",
        notes="its bonus falls below .1 after some 26 million calls of a model only",
        smoke_horizon=300,
    ),
    Experiment(
        "cascade/S13",
        "The ridges eta_1 and eta_0, and the rule for them",
        _ridge_cases(),
        256,
        (
            Claim(
                "flat",
                "regret does not depend on small ridges; large ones make the first bonuses too small",
                OURS,
                _ridge_matters_little,
            ),
            Claim("rule", "the paper's rule is within 10 % of 1 and 1", f"{PAPER}, theorem 5.5", _rule_is_no_better),
            Claim("table", TABLE, OURS, agrees(_S13)),
        ),
        {"S13": _ridge_panels},
        source=f"{PAPER}, theorem 5.5",
        smoke_horizon=400,
    ),
    Experiment(
        "cascade/S14",
        "The design matrix of deployed outputs grows, unless contexts stand still",
        _growth_cases(),
        256,
        (
            Claim("linear", "its least eigenvalue grows linearly", f"{PAPER}, proposition 10.10", _grows_linearly),
            Claim("frozen", "with one context for ever and x = 0 it stays at eta_0", f"{PAPER}, remark 5.2", _never_grows),
            Claim("table", "it is that of an independent simulation", OURS, _growth_table),
        ),
        {"S14": _growth_panels},
        source=f"{PAPER}, proposition 10.10 and remark 5.2",
        smoke_horizon=400,
    ),
)
