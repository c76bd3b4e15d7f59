"""Experiments on the K-armed bandit."""

import numpy as np

from jaxroute import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import bounded, rising
from jaxroute.experiments.quantities import gap, known, mean, slope, uniform
from jaxroute.problems import stochastic

_ENV = stochastic.bernoulli(np.linspace(0.9, 0.1, 10).tolist())


_CLAIMS = (
    ("ucb1-bound", "the regret of UCB1 is at most its bound", "Auer et al. (2002), Theorem 1",
     bounded((mean("UCB1"), known("the bound", lambda t: stochastic.auer_bound(_ENV, t)), uniform(_ENV.mean)))),
    ("thompson", "Thompson sampling beats UCB1", "Chapelle and Li (2011), Fig. 1",
     rising((gap("BetaThompson", "UCB1"), 0.0))),
    ("greedy-linear", "epsilon-greedy with a fixed epsilon has linear regret: slope of the second half above .8", "Auer et al. (2002), section 2",
     rising((0.8, slope("EpsilonGreedy", share=0.5)))),
)  # fmt: skip


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
        claims=tuple(Claim(*claim) for claim in _CLAIMS),
        figures={"regret": _figure},
        source="Auer, Cesa-Bianchi and Fischer (2002); Chapelle and Li (2011)",
    ),
)
