"""Regularised maximum likelihood of the multinomial-logit model, with one parameter vector per item or one for all.

A round shows `K` of `N` items for a query, and one item or none is accepted: item `j` with probability `p_j = exp(v_j) / (1 + sum_k exp(v_k))`,
summed over the shown items. With a parameter vector for each item, the utility (logit) is `v_j = x' theta_j` with features `x` of the query. With one
for all items it is `v_j = x_j' theta` with features `x_j` of the query and item `j`.

`likelihood` defines the loss. Four classes store observations and compute the derivatives of the loss. `Rows` (a parameter vector per item) and
`PairRows` (one for all) store each observation. `Counts` (one shown item) and `PairCounts` (up to two), both with a parameter vector per item, count
observations for each query of a fixed set. `NewestObservation` is the contribution of the last observation.

After a new observation the fit starts at the previous solution, so that a few steps suffice. `Newton`, `Tracked` (for rounds that show one item) and
`BFGS` (for large dimensions, without second derivatives) stop when the error of every logit is within a tolerance; their states report the largest
error. `Online` (one step on the new observation alone) is a fast approximation.

Source: ACQB, eqs. (1) and (4).
"""

from jaxroute.estimators.mnl.likelihood import (
    Derivatives,
    NewestObservation,
    Solver,
    Sums,
    negative_log_likelihood,
    new_pair,
    new_row,
)  # fmt: skip
from jaxroute.estimators.mnl.newton import Newton, NewtonState, Tracked, TrackedState
from jaxroute.estimators.mnl.quasi_newton import BFGS, BFGSState, Online
from jaxroute.estimators.mnl.rows import Counts, PairCounts, PairRows, Rows

__all__ = [
    "BFGS", "BFGSState", "Counts", "Derivatives", "NewestObservation", "Newton", "NewtonState", "Online", "PairCounts", "PairRows", "Rows",
    "Solver", "Sums", "Tracked", "TrackedState", "negative_log_likelihood", "new_pair", "new_row",
]  # fmt: skip
