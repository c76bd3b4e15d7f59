"""Policies of the stochastic bandit, a file for each method."""

from jaxroute.problems.stochastic.policies.bayes_ucb import BayesUCB
from jaxroute.problems.stochastic.policies.discounted import DiscountedThompson, DiscountedUCB
from jaxroute.problems.stochastic.policies.epsilon_greedy import EpsilonGreedy
from jaxroute.problems.stochastic.policies.exp3 import Exp3
from jaxroute.problems.stochastic.policies.exp3_plus_plus import Exp3PlusPlus
from jaxroute.problems.stochastic.policies.imed import IMED
from jaxroute.problems.stochastic.policies.kl_ucb import KLUCB
from jaxroute.problems.stochastic.policies.moss import MOSS, AnytimeMOSS
from jaxroute.problems.stochastic.policies.sliding_window import SlidingWindowThompson, SlidingWindowUCB
from jaxroute.problems.stochastic.policies.thompson import BetaThompson, GaussianThompson
from jaxroute.problems.stochastic.policies.track_and_stop import (
    TrackAndStop,
    UniformAndStop,
    practical_threshold,
    proven_threshold,
)
from jaxroute.problems.stochastic.policies.ucb1 import UCB1
from jaxroute.problems.stochastic.policies.ucb_v import UCBV

__all__ = [
    "IMED",
    "KLUCB",
    "MOSS",
    "UCB1",
    "UCBV",
    "AnytimeMOSS",
    "BayesUCB",
    "BetaThompson",
    "DiscountedThompson",
    "DiscountedUCB",
    "EpsilonGreedy",
    "Exp3",
    "Exp3PlusPlus",
    "GaussianThompson",
    "SlidingWindowThompson",
    "SlidingWindowUCB",
    "TrackAndStop",
    "UniformAndStop",
    "practical_threshold",
    "proven_threshold",
]
