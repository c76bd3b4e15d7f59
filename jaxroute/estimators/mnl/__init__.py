"""Regularised maximum likelihood of the multinomial-logit model, with one parameter vector per item or one for all.

In each round a set of items is shown, and one item or none is accepted: item `j` with probability `exp(v_j) / (1 + sum_k exp(v_k))`. With a
parameter for each item `v_j = x' theta_j`, otherwise `v_j = x_j' theta`.

`likelihood` defines the loss, and the contribution of the last observation (`NewestObservation`). Observations are stored as rows (`rows`: `Rows`, `PairRows`) or as counts over a table of queries (`counts`: `Counts`,
`PairCounts`), which provide the derivatives of the loss.

After a new observation the fit starts at the previous solution, so that a few steps suffice. `Newton`, `Tracked` (rounds that show one item) and
`BFGS` (large dimensions, gradients alone) stop when the error of every logit is within a tolerance; their states report the largest error.
`Online` (one step on the new observation alone) is a fast approximation.

Source: ACQB, eqs. (1) and (4).
"""

from jaxroute.estimators.mnl.counts import Counts, PairCounts
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
from jaxroute.estimators.mnl.rows import PairRows, Rows

__all__ = [
    "BFGS", "BFGSState", "Counts", "Derivatives", "NewestObservation", "Newton", "NewtonState", "Online", "PairCounts", "PairRows", "Rows",
    "Solver", "Sums", "Tracked", "TrackedState", "negative_log_likelihood", "new_pair", "new_row",
]  # fmt: skip
