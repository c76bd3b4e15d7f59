"""Experiments on the K-armed bandit."""

import numpy as np

from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict
from jaxroute.experiments.measure import end, late_slope, paired_gap, show, show_slope
from jaxroute.problems import stochastic

_ENV = stochastic.bernoulli(np.linspace(0.9, 0.1, 10).tolist())


def _auer_bound(results: Results) -> Verdict:
    data = results["result"]
    regret, bound = end(data, "regret", "UCB1"), float(stochastic.auer_bound(_ENV, int(data["time"][-1])))
    return f"{show(regret)}, the bound is {bound:.0f} (below it by 3 s.e.)", regret.below(bound, by=3.0)


def _thompson_below_ucb(results: Results) -> Verdict:
    gap = paired_gap(results["result"], "regret", "BetaThompson", minus="UCB1")
    return f"BetaThompson - UCB1 = {show(gap)} (below 0 by 3 s.e.)", gap.below(0.0, by=3.0)


def _greedy_is_linear(results: Results) -> Verdict:
    data = results["result"]
    slope = late_slope(data, "regret", "EpsilonGreedy", int(data["time"][-1]) // 2, every_time=True)
    return f"log-log slope over the second half: {show_slope(slope)} (above 0.8 by 2 s.e.)", slope.above(0.8, by=2.0)


def _figure(results: Results):
    data = results["result"]
    times = data["time"].values
    lines = {
        "Lai and Robbins (1985)": stochastic.lai_robbins(_ENV, times),
        "bound of UCB1": stochastic.auer_bound(_ENV, times),
    }
    shown = [p for p in data["policy"].values if p != "Oracle"]
    return plot.curves(data, "regret", log=True, reference={n: (times, y) for n, y in lines.items()}, policies=shown)


EXPERIMENTS = (
    Experiment(
        name="stochastic/regret",
        title="Regret of UCB1, Thompson sampling and epsilon-greedy on a ten-armed Bernoulli bandit",
        cases=(
            Case(
                _ENV,
                {
                    "UCB1": stochastic.UCB1(),
                    "GaussianThompson": stochastic.GaussianThompson(scale=0.5, prior_mean=0.5),
                    "BetaThompson": stochastic.BetaThompson(),
                    "EpsilonGreedy": stochastic.EpsilonGreedy(epsilon=0.1),
                    "Oracle": stochastic.Oracle.of,
                },
                horizon=10_000,
            ),
        ),
        claims=tuple(
            Claim(*claim)
            for claim in (
                ("ucb1-bound", "the regret of UCB1 is at most its bound", "Auer et al. (2002), Theorem 1", _auer_bound),
                ("thompson", "Thompson sampling beats UCB1", "Chapelle and Li (2011), Fig. 1", _thompson_below_ucb),
                (
                    "greedy-linear",
                    "fixed epsilon-greedy has linear regret",
                    "Auer et al. (2002), section 2",
                    _greedy_is_linear,
                ),
            )
        ),
        figures={"regret": _figure},
        source="Auer, Cesa-Bianchi and Fischer (2002); Chapelle and Li (2011)",
    ),
)
