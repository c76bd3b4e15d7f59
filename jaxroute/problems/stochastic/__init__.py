"""The K-armed stochastic bandit without contexts, for a quick start, and for comparisons with other simulators.

`env` simulates the bandit, `instances` builds ready-made ones, and `sources` has means that change. `policies` holds the methods, `oracle` the policy
that knows the best model. `theory` has bounds of the regret, such as that of Lai and Robbins, and the characteristic time of best-arm identification.
"""

from jaxroute.core.exports import public_names as _public_names
from jaxroute.estimators import families as families
from jaxroute.sources import distributions as distributions

from .env import BanditEnv as BanditEnv
from .env import ChangingEnv as ChangingEnv
from .env import ServedEnv as ServedEnv
from .instances import bernoulli as bernoulli
from .instances import beta as beta
from .instances import drifting as drifting
from .instances import exponential as exponential
from .instances import garivier_moulines as garivier_moulines
from .instances import gaussian as gaussian
from .instances import piecewise as piecewise
from .instances import poisson as poisson
from .instances import restless as restless
from .instances import served_routing as served_routing
from .instances import sinusoidal as sinusoidal
from .oracle import Oracle as Oracle
from .policies.changing import DiscountedThompson as DiscountedThompson
from .policies.changing import DiscountedUCB as DiscountedUCB
from .policies.changing import SlidingWindowThompson as SlidingWindowThompson
from .policies.changing import SlidingWindowUCB as SlidingWindowUCB
from .policies.exp3 import Exp3 as Exp3
from .policies.exp3 import Exp3PlusPlus as Exp3PlusPlus
from .policies.kl_ucb import IMED as IMED
from .policies.kl_ucb import KLUCB as KLUCB
from .policies.posterior import BayesUCB as BayesUCB
from .policies.posterior import BetaThompson as BetaThompson
from .policies.posterior import GaussianThompson as GaussianThompson
from .policies.track_and_stop import TrackAndStop as TrackAndStop
from .policies.track_and_stop import UniformAndStop as UniformAndStop
from .policies.track_and_stop import practical_threshold as practical_threshold
from .policies.track_and_stop import proven_threshold as proven_threshold
from .policies.ucb import MOSS as MOSS
from .policies.ucb import UCB1 as UCB1
from .policies.ucb import UCBV as UCBV
from .policies.ucb import AnytimeMOSS as AnytimeMOSS
from .policies.ucb import EpsilonGreedy as EpsilonGreedy
from .theory import auer_bound as auer_bound
from .theory import characteristic_time as characteristic_time
from .theory import exp3_bound as exp3_bound
from .theory import lai_robbins as lai_robbins
from .theory import minimax_bound as minimax_bound
from .theory import minimax_lower_bound as minimax_lower_bound
from .theory import optimal_weights as optimal_weights

_FIXED = (UCB1, GaussianThompson, BetaThompson, EpsilonGreedy, KLUCB, UCBV, MOSS, AnytimeMOSS, IMED, BayesUCB)
_ADVERSARIAL = (Exp3, Exp3PlusPlus)
_CHANGING = (SlidingWindowUCB, DiscountedUCB, SlidingWindowThompson, DiscountedThompson)
POLICIES = (*_FIXED, *_ADVERSARIAL, *_CHANGING, TrackAndStop, UniformAndStop, Oracle)
_CHANGING_MEANS = (piecewise, garivier_moulines, drifting, sinusoidal, restless)
ENVIRONMENTS = (bernoulli, gaussian, beta, poisson, exponential, *_CHANGING_MEANS, served_routing)
__dir__ = _public_names(__name__)
