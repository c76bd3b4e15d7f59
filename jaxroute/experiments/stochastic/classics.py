"""All policies of the plain bandit: on fixed means beside bounds, and on changing means."""

import math

import numpy as np

from jaxroute import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import Measure, all_hold, bounded, rising
from jaxroute.experiments.measure import end, mean_of, runs_of, show
from jaxroute.experiments.quantities import known, mean, uniform
from jaxroute.problems import stochastic

# Garivier and Cappe (2011), section 6.2: rare successes, as of advertisements.
RARE = stochastic.bernoulli([0.1, 0.05, 0.05, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01])
_OPTIMAL = ("KL-UCB", "IMED", "Bayes-UCB", "Thompson sampling")
_POLICIES = {
    "KL-UCB": stochastic.KLUCB(),
    "IMED": stochastic.IMED(),
    "Bayes-UCB": stochastic.BayesUCB(),
    "Thompson sampling": stochastic.BetaThompson(),
    "MOSS": stochastic.MOSS(),
    "MOSS-anytime": stochastic.AnytimeMOSS(),
    "UCB1": stochastic.UCB1(),
    "UCB-V": stochastic.UCBV(),
    "epsilon-greedy": stochastic.EpsilonGreedy(epsilon=0.1),
    "Exp3": stochastic.Exp3(),
    "Exp3++": stochastic.Exp3PlusPlus(),
}
_HORIZON = 20_000
# Allowed ratio of the regret's growth to the line's, for optimal policies after a tenth of the rounds: the line is for late rounds.
_NEAR = (0.5, 2.0)
_LINE, _MOST_MOSS, _MOST_EXP3, _LEAST = "Lai-Robbins", "bound of MOSS", "bound of Exp3", "minimax lower bound"


@all_hold("growth over that of the Lai-Robbins line: ", between=", ")
def _parallel_to_the_line(results: Results):
    data = results["result"]
    times = data["time"].values
    start = times[np.abs(times - 0.1 * times[-1]).argmin()]
    line = stochastic.lai_robbins(RARE, [start, times[-1]])
    for name in _OPTIMAL:
        grown = mean_of(
            runs_of(data, "regret", name).drop_vars("time") - runs_of(data, "regret", name, start).drop_vars("time")
        )
        ratio = grown.times(1.0 / float(line[1] - line[0]))
        yield f"{name} {show(ratio)}", ratio.within(*_NEAR)


def _bound(policy: str, name: str, bound) -> Measure:
    return bounded((mean(policy), known(name, lambda rounds: bound(RARE.mean.size, rounds)), uniform(RARE.mean)))


_REGRET_CLAIMS = (
    ("lai-robbins", "in the last nine tenths of the rounds the regret of optimal policies grows .5 to 2 times as much as the Lai-Robbins line",
     "Garivier and Cappe (2011), Fig. 2; Honda and Takemura (2015); Kaufmann et al. (2012)", _parallel_to_the_line),
    ("optimal-first", "the optimal policies have less regret than UCB1, UCB-V and MOSS",
     "Garivier and Cappe (2011), Fig. 2", rising(*((mean(a), mean(b)) for a in _OPTIMAL for b in ("MOSS", "UCB1", "UCB-V")))),
    ("moss-bound", "the regret of MOSS is at most 49 sqrt(K T)", "Audibert and Bubeck (2009)",
     _bound("MOSS", _MOST_MOSS, stochastic.minimax_bound)),
    ("moss", "MOSS, which knows the horizon, beats UCB1", "Audibert and Bubeck (2009)",
     rising((mean("MOSS"), mean("UCB1")))),
    ("exp3-bound", "the regret of Exp3 is at most its bound", "Auer et al. (2002b), Corollary 3.2",
     _bound("Exp3", _MOST_EXP3, stochastic.exp3_bound)),
)  # fmt: skip


def _regret_figure(results: Results):
    data = results["result"]
    times = data["time"].values.astype(float)
    size = RARE.mean.size
    lines = {
        _LINE: stochastic.lai_robbins(RARE, times),
        _LEAST: stochastic.minimax_lower_bound(size, times),
        _MOST_EXP3: stochastic.exp3_bound(size, times),
        _MOST_MOSS: stochastic.minimax_bound(size, times),
    }
    figure, axes = plot.panels(2, columns=2)
    others = [name for name in _POLICIES if name not in _OPTIMAL]
    for ax, names, shown, title in (
        (axes[0], [*_OPTIMAL, "UCB1"], (_LINE,), "optimal for each instance, and UCB1"),
        (axes[1], others, (_LEAST, _MOST_EXP3, _MOST_MOSS), "the others, and bounds for any instance"),
    ):
        reference = {name: (times, lines[name]) for name in shown}
        plot.curves(data, "regret", log=True, ax=ax, policies=names, reference=reference, title=title)
    return figure


# Changing means.

_ROUNDS, _PERIOD = 10_000, 5000
# Of the simulations of Garivier and Moulines (2011): xi = 1/2, window 4 sqrt(T log T), discount 1 - 1 / (4 sqrt(T)).
_XI, _WINDOW, _DISCOUNT = 0.5, math.floor(4.0 * math.sqrt(_ROUNDS * math.log(_ROUNDS))), 1.0 - 0.25 / math.sqrt(_ROUNDS)
_CHANGES = {
    "SW-UCB": stochastic.SlidingWindowUCB(xi=_XI, window=_WINDOW),
    "D-UCB": stochastic.DiscountedUCB(xi=_XI, discount=_DISCOUNT),
    "SW-TS": stochastic.SlidingWindowThompson(window=_WINDOW),
    "discounted TS": stochastic.DiscountedThompson(discount=_DISCOUNT),
    "UCB1": stochastic.UCB1(),
    "KL-UCB": stochastic.KLUCB(),
    "Thompson sampling": stochastic.BetaThompson(),
    "Exp3": stochastic.Exp3(),
}
_CASES = {
    "abrupt": stochastic.garivier_moulines(),
    "smooth": stochastic.sinusoidal([0.5, 0.5, 0.5], amplitude=0.4, period=_PERIOD),
}


@all_hold()
def _gains_from_forgetting(results: Results):
    """Policies that forget have less regret than the same kind of policy that does not."""
    pairs = [(name, forgets, "Thompson sampling") for name in _CASES for forgets in ("SW-TS", "discounted TS")]
    for name, forgets, other in (("abrupt", "SW-UCB", "UCB1"), *pairs):
        a, b = (end(results[name], "regret", policy) for policy in (forgets, other))
        yield f"{name}: {forgets} {show(a)} against {other} {show(b)}", a.below(b)


def _changes_figure(results: Results):
    figure, axes = plot.panels(len(results), columns=2)
    titles = {"abrupt": "one model is the best for 2,000 rounds", "smooth": f"means rise and fall in {_PERIOD:,} rounds"}
    for ax, (name, data) in zip(axes, results.items(), strict=True):
        plot.curves(data, "regret", ax=ax, title=titles[name])
    return figure


EXPERIMENTS = (
    Experiment(
        name="stochastic/classics",
        title="Regret of all policies on a ten-armed Bernoulli bandit with rare successes, beside lower and upper bounds",
        cases=(Case(RARE, _POLICIES, horizon=_HORIZON),),
        claims=tuple(Claim(*claim) for claim in _REGRET_CLAIMS),
        figures={"regret": _regret_figure},
        source="Garivier and Cappe (2011), section 6.2; Lai and Robbins (1985); Audibert and Bubeck (2009); Auer et al. (2002)",
    ),
    Experiment(
        name="stochastic/changes",
        title="Regret with abrupt and slow changes of the means: policies that forget against policies that do not",
        cases=tuple(
            Case(env, _CHANGES, horizon=_ROUNDS, name=name, coordinates={"change": name}) for name, env in _CASES.items()
        ),
        claims=(
            Claim(
                "forgetting",
                "Thompson sampling has less regret with a window or a discount than without, UCB with a window if means change abruptly",
                "ours, after Garivier and Moulines (2011), Trovo et al. (2020), and Raj and Kalyani (2017)",
                _gains_from_forgetting,
            ),
        ),
        figures={"regret": _changes_figure},
        source="Garivier and Moulines (2011), their simulations with abrupt changes; slow changes: ours",
        notes="xi, window and discount are those of the paper's simulations with abrupt changes, also for slow changes and for Thompson sampling. With slow changes "
        "UCB with a window or a discount has more regret than UCB1, whose bonus is wide enough to follow them.",
    ),
)
