"""Studies of the plain bandit: changing means.

jaxroute run scripts/studies/stochastic.py:changes
"""

import math

from jaxroute import plot
from jaxroute.experiments.base import Case, Claim, Experiment, Results
from jaxroute.experiments.claims import all_hold
from jaxroute.experiments.measure import end
from jaxroute.problems import stochastic

# The simulations of Garivier and Moulines (2011) have xi = 1/2, window 4 sqrt(T log T), discount 1 - 1 / (4 sqrt(T)).

_ROUNDS, _PERIOD = 10_000, 5000
_XI, _WINDOW, _DISCOUNT = 0.5, math.floor(4.0 * math.sqrt(_ROUNDS * math.log(_ROUNDS))), 1.0 - 0.25 / math.sqrt(_ROUNDS)
_CHANGING_POLICIES = {
    "SW-UCB": stochastic.SlidingWindowUCB(xi=_XI, window=_WINDOW),
    "D-UCB": stochastic.DiscountedUCB(xi=_XI, discount=_DISCOUNT),
    "SW-TS": stochastic.SlidingWindowThompson(window=_WINDOW),
    "discounted TS": stochastic.DiscountedThompson(discount=_DISCOUNT),
    "UCB1": stochastic.UCB1(),
    "KL-UCB": stochastic.KLUCB(),
    "Thompson sampling": stochastic.BetaThompson(),
    "Exp3": stochastic.Exp3(),
}
_CHANGING = {
    "abrupt": stochastic.garivier_moulines(),
    "smooth": stochastic.sinusoidal([0.5, 0.5, 0.5], amplitude=0.4, period=_PERIOD),
}


@all_hold()
def _gains_from_forgetting(results: Results):
    pairs = [(name, forgets, "Thompson sampling") for name in _CHANGING for forgets in ("SW-TS", "discounted TS")]
    for name, forgets, other in (("abrupt", "SW-UCB", "UCB1"), *pairs):
        a, b = (end(results[name], "regret", policy) for policy in (forgets, other))
        yield f"{name}: {forgets} {a} against {other} {b}", a.below(b)


def _changing_figure(results: Results):
    figure, axes = plot.panels(len(results), columns=2)
    titles = {"abrupt": "one model is the best for 2,000 rounds", "smooth": f"means rise and fall in {_PERIOD:,} rounds"}
    for ax, (name, data) in zip(axes, results.items(), strict=True):
        plot.curves(data, "regret", ax=ax, title=titles[name])
    return figure


EXPERIMENTS = (
    Experiment("stochastic/changes",
        "Regret with abrupt and slow changes of the means: policies that forget against policies that do not",
        tuple(Case(env, _CHANGING_POLICIES, _ROUNDS, name, coordinates={"change": name}) for name, env in _CHANGING.items()),
        claims=(Claim("forgetting",
            "Thompson sampling has less regret with a window or a discount than without, UCB with a window if means change abruptly",
            "ours, after Garivier and Moulines (2011), Trovo et al. (2020), and Raj and Kalyani (2017)", _gains_from_forgetting),),
        figures={"regret": _changing_figure},
        source="Garivier and Moulines (2011), their simulations with abrupt changes; slow changes: ours",
        notes="xi, window and discount are those of the paper's simulations with abrupt changes, also for slow changes and for Thompson sampling. With slow changes "
            "UCB with a window or a discount has more regret than UCB1, whose bonus is wide enough to follow them."),
)  # fmt: skip
