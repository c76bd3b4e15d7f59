"""The plain K-armed bandit: the quickstart, and the yardstick against other simulators."""

from jaxroute.problems.stochastic.env import Bandit, bernoulli, gaussian
from jaxroute.problems.stochastic.oracle import Oracle, lai_robbins
from jaxroute.problems.stochastic.policies import UCB1, BetaThompson, EpsilonGreedy, GaussianThompson

POLICIES = (UCB1, GaussianThompson, BetaThompson, EpsilonGreedy, Oracle)
ENVIRONMENTS = (bernoulli, gaussian)

__all__ = [
    "ENVIRONMENTS",
    "POLICIES",
    "UCB1",
    "Bandit",
    "BetaThompson",
    "EpsilonGreedy",
    "GaussianThompson",
    "Oracle",
    "bernoulli",
    "gaussian",
    "lai_robbins",
]
