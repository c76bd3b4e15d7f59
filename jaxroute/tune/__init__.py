"""Tuning of hyperparameters: searches by any metric, slopes of metrics, and differentiable objectives.

`search` finds hyperparameters of an environment and a policy for which a metric is best, without derivatives, and tests them on fresh seeds:
`space` describes the candidates and has strategies that propose them, `candidates` simulates them, `ranking` orders them, `surrogate` models their
scores, `history` stores and draws them. `slopes` estimates derivatives of metrics, and differentiates relaxed runs.
"""

from jaxroute.core.exports import public_names
from jaxroute.tune.history import load, picture
from jaxroute.tune.search import Evaluation, SearchResult, search
from jaxroute.tune.slopes import Slope, objective_of, slope
from jaxroute.tune.space import CMAES, Choice, Integer, Lattice, Linear, Log, Random

__all__ = ["CMAES", "Choice", "Evaluation", "Integer", "Lattice", "Linear", "Log", "Random"]
__all__ += ["SearchResult", "Slope", "load", "objective_of", "picture", "search", "slope"]
__dir__ = public_names(__name__)
