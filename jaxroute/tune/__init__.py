"""Tuning: searches over leaves by any metric, and gradients of simulated objectives.

`search` finds leaves of an environment and a policy for which a metric is best, without derivatives, and judges them on fresh seeds; `space`
is where it looks, `strategies` what it plays next, `ranking` what is better, `surrogate` what all that was played says of a candidate,
`playing` how candidates become one grid, `history` what is kept and `picture` what it looks like. `slopes` says how a metric moves with
leaves, by differences on common luck, and `climbing` follows that; `gradient` differentiates runs whose decisions are relaxed.
"""

from jaxroute.tune.climbing import climb
from jaxroute.tune.gradient import Objective, Tuned, improve, objective_of, replace
from jaxroute.tune.history import load
from jaxroute.tune.picture import picture
from jaxroute.tune.search import Found, Judged, search
from jaxroute.tune.slopes import Slope, slope
from jaxroute.tune.space import Choice, Integer, Linear, Log
from jaxroute.tune.strategies import CMAES, Lattice, Random

__all__ = [
    "CMAES",
    "Choice",
    "Found",
    "Integer",
    "Judged",
    "Lattice",
    "Linear",
    "Log",
    "Objective",
    "Random",
    "Slope",
    "Tuned",
    "climb",
    "improve",
    "load",
    "objective_of",
    "picture",
    "replace",
    "search",
    "slope",
]
