"""MESS+ with the settings of the paper, of the authors' later code, and of its theory."""

from typing import Any

from jaxroute.core import checks
from jaxroute.data import MESSPLUS_BENCHMARKS, MESSPLUS_WEIGHT_DECAY
from jaxroute.estimators.sgd import SGD, TheorySteps
from jaxroute.problems.service.costs import LastCost
from jaxroute.problems.service.messplus import MessPlus


def paper_policy(benchmark: str = "winogrande", **changes: Any) -> MessPlus:
    """V = 1e-3, c = .1 and the SGD of Table 4 for a benchmark, with a logistic head. changes: other leaves of `MessPlus`."""
    data = MESSPLUS_BENCHMARKS[checks.one_of("benchmark", benchmark, MESSPLUS_BENCHMARKS)]
    optimiser = SGD(data.learning_rate, data.momentum, MESSPLUS_WEIGHT_DECAY)
    return MessPlus(**{"optimiser": optimiser, **changes})


def code_policy(benchmark: str = "winogrande", **changes: Any) -> MessPlus:
    """As the authors' later public code has it: gradients cut at length 1, several steps per explored request on some benchmarks, costs
    as last measured, and a first request that is explored only by chance."""
    data = MESSPLUS_BENCHMARKS[checks.one_of("benchmark", benchmark, MESSPLUS_BENCHMARKS)]
    optimiser = SGD(data.learning_rate, data.momentum, MESSPLUS_WEIGHT_DECAY, clip=1.0)
    options = {"optimiser": optimiser, "costs": LastCost(), "explores_first": False, "repeats": data.passes}
    return MessPlus(**{**options, **changes})


def theory_policy(mu: float = 0.1, smoothness: float = 1.0, **changes: Any) -> MessPlus:
    """The setting of Lemma A.1: squared norm with weight `mu`, steps `min(2 / (mu (k + 1)), 1 / smoothness)`, no momentum."""
    optimiser = SGD(TheorySteps(mu, smoothness), momentum=0.0, weight_decay=0.0)
    return MessPlus(**{"optimiser": optimiser, "l2": mu, **changes})
