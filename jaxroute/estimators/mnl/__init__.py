"""Regularised maximum likelihood of the multinomial-logit model, with one parameter vector per item or one for all.

A round shows `K` of `N` items, and at most one is accepted: item `j` with probability `p_j = exp(v_j) / (1 + sum_k exp(v_k))`, where `k` runs over
the shown items. Its utility (logit) is `v_j = x' theta_j` with a vector `theta_j` per item and features `x` of the query, or `v_j = x_j' theta` with
one vector for all items and features `x_j` of query and item.

`likelihood` defines the loss, whose derivatives are computed from all observations. The observations are stored one by one (`Rows`; `PairRows` if all
items share one parameter vector), or as counts for a fixed set of queries (`Counts` for one shown item, `PairCounts` for two). `NewestObservation` is
the contribution of the last observation.

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
