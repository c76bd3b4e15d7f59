"""Off-policy evaluation: the quality and the cost of routing rules from a log in which another rule chose one model for each query.

`estimators` has the estimators of a rule's value, `propensities` the probabilities of the log's choices, `evaluation` evaluates rules on a log with
confidence intervals, and says which of them the log supports.

    log = jaxroute.data.serve(table, probabilities)
    found = offpolicy.Evaluator(log).rule("always the first model", target)  # target [Q, N]
"""

from jaxroute.core.exports import public_names

from .estimators import ESTIMATORS, Evidence, effective_size
from .evaluation import Evaluated, Evaluator, Value, Verdict, verdicts
from .intervals import Interval, degrees_of_freedom, quantile, score_interval, standard_error
from .propensities import Balance, Calibration, balance, estimate

__all__ = [
    "ESTIMATORS", "Balance", "Calibration", "Evaluated", "Evaluator", "Evidence", "Interval", "Value", "Verdict", "balance", "degrees_of_freedom",
    "effective_size", "estimate", "quantile", "score_interval", "standard_error", "verdicts",
]  # fmt: skip
__dir__ = public_names(__name__)
