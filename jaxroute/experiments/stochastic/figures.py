"""Experiments on the K-armed bandit."""

import numpy as np

from jaxroute.analysis import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Verdict
from jaxroute.experiments.measure import end, late_slope, paired_gap
from jaxroute.problems import stochastic

_MEANS = tuple(np.linspace(0.9, 0.1, 10).tolist())


def _env() -> stochastic.BanditEnv:
    return stochastic.bernoulli(_MEANS)


def _auer_bound(results: Results) -> Verdict:
    horizon = int(results["result"]["time"][-1])
    gaps = max(_MEANS) - np.asarray(_MEANS)
    bound = float(np.sum(8 * np.log(horizon) / gaps[gaps > 0]) + (1 + np.pi**2 / 3) * gaps.sum())
    mean, error = end(results["result"], "regret", "UCB1")
    return f"{mean:.1f} ({error:.1f}) <= {bound:.0f}", mean + 3 * error <= bound


def _thompson_below_ucb(results: Results) -> Verdict:
    gap = paired_gap(results["result"], "regret", "BetaThompson", minus="UCB1")
    return f"BetaThompson - UCB1 = {gap.mean:.1f} ({gap.error:.1f})", gap.below(0.0, by=3.0)


def _greedy_is_linear(results: Results) -> Verdict:
    data = results["result"]
    slope = late_slope(data, "regret", "EpsilonGreedy", int(data["time"][-1]) // 2, every_time=True).mean
    if np.isnan(slope):
        return "no log-log slope: the regret is not positive", False
    return f"log-log slope {slope:.2f} over the second half", slope > 0.8


def _figure(results: Results):
    data = results["result"]
    line = {"Lai-Robbins": (data["time"].values, stochastic.lai_robbins(_env(), data["time"].values))}
    return plot.curves(data, "regret", reference=line, policies=[p for p in data["policy"].values if p != "Oracle"])


EXPERIMENTS = (
    Experiment(
        name="stochastic/regret",
        title="Regret of UCB1, Thompson sampling and epsilon-greedy on a ten-armed Bernoulli bandit",
        cases=(
            Case(
                _env(),
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
        claims=(
            Claim(
                "ucb1-bound",
                "the regret of UCB1 is at most its logarithmic bound",
                "Auer et al. (2002), Theorem 1",
                _auer_bound,
            ),
            Claim("thompson", "Thompson sampling beats UCB1", "Chapelle and Li (2011), Fig. 1", _thompson_below_ucb),
            Claim(
                "greedy-linear", "fixed epsilon-greedy has linear regret", "Auer et al. (2002), section 2", _greedy_is_linear
            ),
        ),
        figures={"regret": _figure},
        source="Auer, Cesa-Bianchi and Fischer (2002); Chapelle and Li (2011)",
    ),
)
