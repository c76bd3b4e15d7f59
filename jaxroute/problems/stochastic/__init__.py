"""The plain K-armed bandit: the quickstart, and the yardstick against other simulators.

`env` is the bandit, `sources` its laws of rewards, `instances` the ready-made ones, `types` the state of the policies and what is
measured. `policies` holds UCB1, Thompson sampling and epsilon-greedy, `oracle` the policy that knows the best model, `theory` the
Lai-Robbins line.
"""

from jaxroute.problems.stochastic.env import BanditEnv
from jaxroute.problems.stochastic.instances import bernoulli, gaussian
from jaxroute.problems.stochastic.oracle import Oracle
from jaxroute.problems.stochastic.policies import UCB1, BetaThompson, EpsilonGreedy, GaussianThompson
from jaxroute.problems.stochastic.theory import auer_bound, lai_robbins

POLICIES = (UCB1, GaussianThompson, BetaThompson, EpsilonGreedy, Oracle)
ENVIRONMENTS = (bernoulli, gaussian)

__all__ = [
    "ENVIRONMENTS",
    "POLICIES",
    "UCB1",
    "BanditEnv",
    "BetaThompson",
    "EpsilonGreedy",
    "GaussianThompson",
    "Oracle",
    "auer_bound",
    "bernoulli",
    "gaussian",
    "lai_robbins",
]
