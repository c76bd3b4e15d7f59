"""Solvers of optimisation problems that several papers share: exact, without data-dependent control flow, batched by `jax.vmap`.

A model wins if it succeeds. "Any win" is the probability that at least one selected model wins, "all wins" the probability that all of them do.

- `select`: best relaxed selection, by the number of wins or the probability of any win or all wins; has derivatives; start here.
- `annealed`, `perturbed`: for training, falling temperatures for `select`, and the average of any solver over noise, which has useful derivatives.
- `budgeted_fill`: linear program with bounds, a sum and a budget (fractional knapsack); returns a `FillSolution`.
- `linear_selection`: the same linear program for sets of models, optionally with a size for each group of models; returns a `Selection`.
- `exact_any_win`: relaxed probability of any win under a budget, by enumeration of vertices, or by branch and bound for many models.
- `branching_any_win`: the same by branch and bound alone; returns a `BranchingSolution`.
- `sparse_fill`: `budgeted_fill` with a bound on the number of models, by branch and bound; returns a `BranchingSolution`.
- `log_any_win`, `continuous_greedy_any_win`, `polish_any_win`, `best_any_win`: approximations of any win for many models.
- `best_subset`: best set within a budget, by enumeration.
- `project`: Euclidean projection onto bounds, a sum and a budget, with exact derivatives; returns a `Projection`.
- `differentiable_lp`: best mix of models under a budget, with exact derivatives in rewards, costs and budget.
- `smoothed_lp`: linear program with a quadratic term that makes it differentiable, on which `differentiable_lp` is based.
- `projected_gradient`: projected gradient ascent with an optax step, differentiable at its fixed point; returns an `Ascent`.
- `pairwise`, `swap`: random rounding to a set that contains each model with the probability given by a fractional selection.
- `best_models`, `best_pair`, `log_weight_of_best`: assortments under a multinomial-logit choice.
- `uniform_index`, `two_point_index`, `discrete_index`, `linear_index`, `index_by_bisection`: reservation values in Weitzman's search problem.
"""

from jaxroute.core.exports import public_names
from jaxroute.solvers.assortment import best_models, best_pair, log_weight_of_best
from jaxroute.solvers.branching import BranchingSolution, branching_any_win, sparse_fill
from jaxroute.solvers.budgeted_fill import FillSolution, budgeted_fill
from jaxroute.solvers.projection import Ascent, Projection, differentiable_lp, project, projected_gradient, smoothed_lp
from jaxroute.solvers.reservation import discrete_index, index_by_bisection, linear_index, two_point_index, uniform_index
from jaxroute.solvers.rounding import pairwise, swap
from jaxroute.solvers.select import annealed, perturbed, select
from jaxroute.solvers.selection import (
    Selection,
    best_any_win,
    best_subset,
    continuous_greedy_any_win,
    exact_any_win,
    linear_selection,
    log_any_win,
    polish_any_win,
)

__all__ = [
    "Ascent", "BranchingSolution", "FillSolution", "Projection", "Selection", "annealed", "best_any_win", "best_models",
    "best_pair", "best_subset", "branching_any_win", "budgeted_fill", "continuous_greedy_any_win", "differentiable_lp",
    "discrete_index", "exact_any_win", "index_by_bisection", "linear_index", "linear_selection", "log_any_win",
    "log_weight_of_best", "pairwise", "perturbed", "polish_any_win", "project", "projected_gradient", "select",
    "smoothed_lp", "sparse_fill", "swap", "two_point_index", "uniform_index",
]  # fmt: skip
__dir__ = public_names(__name__)
