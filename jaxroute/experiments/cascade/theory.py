"""What the theory of COSMOS says, measured: its radius and bound, the ridges, and the growth of the design matrix."""

import math
from typing import Any

import numpy as np

from jaxroute import grid
from jaxroute.analysis import metrics
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.cascade.common import OURS, PAPER, RECORD, STREAMING, TABLE, learner, learns_scores
from jaxroute.experiments.measure import Number, agrees, end, panels, show
from jaxroute.problems import cascade as ca

_REF: dict[str, Any] = {"num_models": 3, "dim": 3}


def _horizon(results: Results, case: str = "result") -> int:
    return int(results[case]["time"][-1])


# S11: the radius of the proofs.


def _bound(horizon: int) -> float:
    return ca.regret_bound(ca.uniform_cascade(**_REF).spec, horizon)


def _opens_everything(results: Results) -> tuple[str, bool]:
    data = results["result"]
    same = all((data[m].sel(policy="theory") == data[m].sel(policy="query all")).all() for m in RECORD)
    queries = end(data, "queries", "theory")
    return f"{show(queries)} calls per request; the same in every run and metric: {'yes' if same else 'no'}", bool(same)


def _vacuous(results: Results) -> tuple[str, bool]:
    horizon = _horizon(results)
    bound, trivial = _bound(horizon), 7.0 * horizon
    own, worst = (end(results["result"], "regret", p) for p in ("COSMOS", "theory"))
    text = f"bound {bound:.2g}, trivial bound {trivial:,.0f}; measured: theory {show(worst)}, COSMOS {show(own)}"
    return text, bound > trivial > worst[0] > own[0]


def _covered(results: Results) -> tuple[str, bool]:
    data = results["result"]
    shares = {p: end(data, "optimistic", p)[0] for p in ("theory", "COSMOS", "b = .03")}
    text = ", ".join(f"{p} {100 * s:.2f} %" for p, s in shares.items())
    return f"rounds in which all indices are at least the true ones: {text}", shares["theory"] == 1.0


def _radius_panels(results: Results):
    plot, figure, axes = panels(2)
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
    return (
        Case(
            ca.uniform_cascade,
            {"COSMOS": grid(_known_ridge, eta1=list(_ETA1)), "rule": _known_ridge(_RULE.eta1)},
            10_000,
            "known",
            _REF,
            record_every=1000,
            record=RECORD,
        ),
        Case(
            ca.uniform_cascade,
            {"COSMOS": grid(_learned_ridge, eta0=list(_ETA0)), "rule": _learned_ridge(_RULE.eta0, _RULE.eta1)},
            10_000,
            "learned",
            _REF | {"evaluator": 5},
            record_every=1000,
            record=RECORD,
        ),
    )


def _ridge_matters_little(results: Results) -> tuple[str, bool]:
    known, learned = results["known"], results["learned"]
    first = {eta: end(known, "regret", "COSMOS", eta1=eta) for eta in _ETA1}
    second = {eta: end(learned, "regret", "COSMOS", eta0=eta) for eta in _ETA0}
    text = f"eta_1: {', '.join(f'{k:g}: {show(v)}' for k, v in first.items())}; eta_0: {', '.join(f'{k:g}: {show(v)}' for k, v in second.items())}"
    small = [first[eta][0] for eta in _ETA1 if eta <= 2.0]
    near = max(small) < 1.05 * min(small) and abs(second[0.1][0] / second[1.0][0] - 1.0) < 0.15
    return text, near and first[10.0][0] > max(small) and second[10.0][0] > second[1.0][0]


def _rule_is_no_better(results: Results) -> tuple[str, bool]:
    parts, holds = [], True
    for case, axis in (("known", "eta1"), ("learned", "eta0")):
        data = results[case]
        rule, plain = end(data, "regret", "rule"), end(data, "regret", "COSMOS", **{axis: 1.0})
        parts.append(f"{case}: {show(rule)} against {show(plain)}")
        holds &= abs(rule[0] / plain[0] - 1.0) < 0.1
    return f"eta_1 = {_RULE.eta1:.3f}, eta_0 = {_RULE.eta0:.3f}, against 1 and 1, {'; '.join(parts)}", bool(holds)


def _ridge_panels(results: Results):
    plot, figure, axes = panels(2)
    for ax, (name, axis, scores) in zip(axes, (("known", "eta1", "seen"), ("learned", "eta0", "learned")), strict=True):
        data = results[name]
        title = f"scores {scores}; dashed: mean by the rule, {axis} = {getattr(_RULE, axis):.2f}"
        plot.spread(data.sel(policy=["COSMOS"]), "regret", ax=ax, x=axis)
        ax.set_title(title, loc="left", fontsize=9)
        ax.get_legend().remove()
        ax.axhline(end(data, "regret", "rule")[0], color="#D55E00", linestyle="--", linewidth=1)
    return figure


# S14: the design matrix of deployed outputs.


def _growth(env, policy, env_state, state, t) -> dict[str, Any]:
    """Least eigenvalue of the design matrix, and the context where it is the same for the whole run."""
    least = ca.design_growth(env, policy, env_state, state, t)
    return {"least": least} | ({} if isinstance(env_state, tuple) else {"context": env_state})


def _growth_cases() -> tuple[Case, ...]:
    probes = {"design": _growth}
    return (
        Case(
            ca.uniform_cascade,
            {"COSMOS": learns_scores(fit=STREAMING), "greedy": learns_scores(0.0, 0.0, 0.0, fit=STREAMING)},
            4000,
            "random",
            _REF | {"evaluator": 5},
            record_every=100,
            record=RECORD,
            probes=probes,
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


def _growth_table(results: Results) -> tuple[str, bool]:
    """497 (3) at 4,000 rounds for COSMOS; .103 per round for greedy."""
    data = results["random"]
    times = data["time"].values.astype(float)
    least = {p: data["design.least"].sel(policy=p) for p in ("COSMOS", "greedy")}
    last = {
        p: (float(v.isel(time=-1).mean()), float(v.isel(time=-1).std(ddof=1)) / math.sqrt(v.sizes["seed"]))
        for p, v in least.items()
    }
    text = ", ".join(f"{p} {show(v)}, {v[0] / times[-1]:.3f} per round" for p, v in last.items())
    if times[-1] != 4000:
        return f"{text}; the numbers are for 4,000 rounds", False
    near = abs(last["COSMOS"][0] - 497.0) < 4.0 * math.hypot(last["COSMOS"][1], 3.0)
    return text, near and abs(last["greedy"][0] / times[-1] - 0.103) < 0.005


def _grows_linearly(results: Results) -> tuple[str, bool]:
    data = results["random"]
    times = data["time"].values
    late = times >= 0.1 * times[-1]
    slopes = {}
    for policy in ("COSMOS", "greedy"):
        curve = data["design.least"].sel(policy=policy).transpose("time", "seed").values
        slopes[policy] = metrics.slope(times[late], curve[late])
    text = ", ".join(f"{p} {show((s.slope, s.stderr))}" for p, s in slopes.items())
    return f"log-log slope over the last nine tenths, {text}", all(abs(s.slope - 1.0) < 0.1 for s in slopes.values())


def _never_grows(results: Results) -> tuple[str, bool]:
    data = results["frozen"].isel(policy=0)
    zero = data["design.context"].isel(time=-1) == 0.0
    least = data["design.least"].isel(time=-1)
    stuck, others = least.values[zero.values], least.values[~zero.values]
    if not len(stuck) or not len(others):
        return f"{len(stuck)} runs with x = 0, {len(others)} others: some of both are needed", False
    text = f"{len(stuck)} runs with x = 0: between {stuck.min():g} and {stuck.max():g}; {len(others)} others: at least {others.min():.3g}"
    return text, bool((stuck == 1.0).all() and (others > 1.0).all())


def _growth_panels(results: Results):
    plot, figure, axes = panels(2)
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
            Case(
                ca.uniform_cascade,
                {
                    "theory": ca.COSMOS(fit=ca.Streaming(), radius=ca.Theoretical()),
                    "query all": ca.QueryAll(),
                    "COSMOS": learner(),
                    "b = .03": learner(0.03),
                },
                10_000,
                settings=_REF,
                record_every=250,
                record=(*RECORD, "optimistic"),
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
