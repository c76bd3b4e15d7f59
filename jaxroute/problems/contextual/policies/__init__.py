"""The policies: `linucb`, `thompson`, `logistic`, `greedy`, `squarecb`. `parameters`: each model its own, or one for all."""

from jaxroute.problems.contextual.policies.greedy import EpsilonGreedy
from jaxroute.problems.contextual.policies.linucb import OFUL, LinUCB
from jaxroute.problems.contextual.policies.logistic import LogisticThompson
from jaxroute.problems.contextual.policies.parameters import Disjoint, Shared
from jaxroute.problems.contextual.policies.squarecb import SquareCB
from jaxroute.problems.contextual.policies.thompson import LinearThompson

__all__ = ["OFUL", "Disjoint", "EpsilonGreedy", "LinUCB", "LinearThompson", "LogisticThompson", "Shared", "SquareCB"]
