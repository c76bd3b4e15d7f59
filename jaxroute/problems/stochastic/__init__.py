"""The plain K-armed bandit: the quickstart, and the yardstick against other simulators.

`env` is the bandit, `sources` its distributions of rewards and how means change, `instances` the ready-made ones, `types` the state of the policies
and what is measured. `policies` has a file for each method, `oracle` the policy that knows the best model, `theory` the Lai-Robbins line,
bounds of proofs, and the characteristic time of best-arm identification.
"""

from jaxroute.estimators import families
from jaxroute.problems.stochastic.env import BanditEnv, ChangingEnv
from jaxroute.problems.stochastic.instances import (
    bernoulli,
    beta,
    drifting,
    exponential,
    garivier_moulines,
    gaussian,
    piecewise,
    poisson,
    restless,
    sinusoidal,
)
from jaxroute.problems.stochastic.oracle import Oracle
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
from jaxroute.problems.stochastic.sources import Brownian, Chains, Pieces, Sinusoid
from jaxroute.problems.stochastic.theory import (
    auer_bound,
    characteristic_time,
    exp3_bound,
    lai_robbins,
    minimax_bound,
    minimax_lower_bound,
    optimal_weights,
)
from jaxroute.sources import distributions

POLICIES = (
    UCB1,
    GaussianThompson,
    BetaThompson,
    EpsilonGreedy,
    KLUCB,
    UCBV,
    MOSS,
    AnytimeMOSS,
    IMED,
    BayesUCB,
    Exp3,
    Exp3PlusPlus,
    SlidingWindowUCB,
    DiscountedUCB,
    SlidingWindowThompson,
    DiscountedThompson,
    TrackAndStop,
    UniformAndStop,
    Oracle,
)
ENVIRONMENTS = (
    bernoulli,
    gaussian,
    beta,
    poisson,
    exponential,
    piecewise,
    garivier_moulines,
    drifting,
    sinusoidal,
    restless,
)

__all__ = [
    "ENVIRONMENTS",
    "IMED",
    "KLUCB",
    "MOSS",
    "POLICIES",
    "UCB1",
    "UCBV",
    "AnytimeMOSS",
    "BanditEnv",
    "BayesUCB",
    "BetaThompson",
    "Brownian",
    "Chains",
    "ChangingEnv",
    "DiscountedThompson",
    "DiscountedUCB",
    "EpsilonGreedy",
    "Exp3",
    "Exp3PlusPlus",
    "GaussianThompson",
    "Oracle",
    "Pieces",
    "Sinusoid",
    "SlidingWindowThompson",
    "SlidingWindowUCB",
    "TrackAndStop",
    "UniformAndStop",
    "auer_bound",
    "bernoulli",
    "beta",
    "characteristic_time",
    "distributions",
    "drifting",
    "exp3_bound",
    "exponential",
    "families",
    "garivier_moulines",
    "gaussian",
    "lai_robbins",
    "minimax_bound",
    "minimax_lower_bound",
    "optimal_weights",
    "piecewise",
    "poisson",
    "practical_threshold",
    "proven_threshold",
    "restless",
    "sinusoidal",
]
