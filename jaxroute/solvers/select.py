"""Best relaxed selection of models under a budget and a size, with derivatives; `annealed` and `perturbed` help where the derivatives are zero."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxroute.core import checks
from jaxroute.solvers import boundary
from jaxroute.solvers.boundary import Number
from jaxroute.solvers.projection import Projection, priced, project
from jaxroute.solvers.selection import any_win_weight, exact_any_win, linear_selection

Reward = Literal["sum", "any", "all"]
REWARDS = ("sum", "any", "all")


def select(
    reward: Reward,
    weight: Array,
    cost: Array,
    budget: Number,
    size: Number,
    *,
    temperature: Number = 0.1,
    allowed: Array | None = None,
    at_most: bool | None = None,
) -> Projection:
    """Returns the best relaxed selection `z` `[K]` of models under a budget and a size, differentiable in all arguments.

    Maximises `f(z) - temperature / 2 * |z|^2` over `{0 <= z <= 1, sum z = size (or <=), cost . z <= budget}`, where `f` is

        "sum"   weight . z                     wins add up
        "all"   sum z_k log(weight_k)          logarithm of the probability that all selected models win
        "any"   -sum z_k log(1 - weight_k)     minus the logarithm of the probability that no selected model wins

    It is one projection (`project`), with the derivative of the optimality conditions in forward and reverse mode. Where the derivatives for a
    growing and for a falling size differ, the latter is returned.

    A temperature of 0 (a plain number) selects the exact solvers `linear_selection` and `exact_any_win`. They have no derivative: differentiating
    them is an error. `sum_multiplier` is then NaN.

    At a positive temperature the derivative in the weights is still zero wherever the selection is a vertex. Each entry of the table is the share of
    instances where it is zero, and the mean loss of `f` by smoothing, for 6 of 25 models and a binding budget:

        temperature   .01          .03          .1           .3          1
        "sum"         21 %, .00 %  14 %, .02 %   6 %, .17 %  0 %, 1.5 %  0 %, 10 %
        "any"         22 %, .00 %  20 %, .00 %  11 %, .00 %  4 %, .00 %  0 %, .00 %
        "all"         20 %, .01 %  15 %, .06 %   9 %, .58 %  0 %, 4.9 %  0 %, 37 %

    With fewer models the derivative is zero more often. For weights of the order of one use .1 to .3 for "sum" and "all", 1 for "any", or `annealed`.
    At the same share of zero derivatives `perturbed` loses less of `f`, with more work and noise.

    Differs from the paper: its relaxed probability of any win is `1 - prod (1 - weight_k z_k)`, which is not concave; `exact_any_win` maximises it,
    and the losses of "any" are relative to it. For integral selections both are equal.

    Arguments may be lists. Computes in float32, or in float64 if `weight` is float64.

    Source: C2MAB-V, eqs. (3) to (5), for the rewards; quadratic smoothing, Mangasarian and Meyer (1979); derivatives as in Amos and Kolter (2017).

    Args:
      reward: "sum", "any" or "all" (static).
      weight: `[K]` value of each model; for "any" a probability in [0, 1], for "all" in (0, 1].
      cost: `[K]` cost of each model, non-negative.
      budget: `[]` largest cost, in the unit of `cost`.
      size: `[]` number of models.
      temperature: `[]` weight of the quadratic term, in the unit of `f`.
      allowed: `[K]` bool, models that may be selected (default: all).
      at_most: whether the sum may be smaller than `size` (static; by default only for "any").

    Returns:
      A `Projection` with multipliers in units of `f` per unit of size and budget.

    Raises:
      ValueError: outside of `jit`, an argument is NaN, infinite (except the budget), negative or of the wrong shape, no selection is within the
        budget, or fewer models are allowed than must be selected. Under `jit` the flags `feasible` and `converged` report it.
    """
    checks.one_of("reward", reward, REWARDS)
    exact = boundary.known(temperature) and np.ndim(temperature) == 0 and bool(np.asarray(temperature) == 0.0)
    given = {"weight": weight, "cost": cost, "budget": budget, "size": size, "temperature": temperature}
    weight, cost, budget, size, temperature = boundary.inputs(allowed, **given)
    upper = boundary.bounds("allowed", allowed, weight)
    weight = jnp.where(upper > 0.0, weight, 0.5)
    if reward != "sum" and boundary.known(weight):
        values = np.asarray(weight)
        wrong = values[~((values > 0.0 if reward == "all" else values >= 0.0) & (values <= 1.0))]
        if wrong.size:
            raise ValueError(f"weight must be in {'(' if reward == 'all' else '['}0, 1] for {reward!r}, got {wrong[0]:g}")
    at_most = reward == "any" if at_most is None else at_most
    if exact:
        found = _exact(weight, cost, budget, size, upper, reward, at_most)
    else:
        gain = jnp.where(upper > 0.0, _additive(reward, weight), 0.0)
        found = priced(project(gain / temperature, cost, budget, size, upper=upper, at_most=at_most), temperature)
        sound = found.feasible & boundary.finite(weight)
        found = found._replace(feasible=sound, converged=found.converged & sound)
    boundary.require_feasible(found.feasible, budget, "size", size, upper)
    return found


def _additive(reward: str, weight: Array) -> Array:
    """Returns each model's gain in the objective of `select` for `reward`: `weight` ("sum"), `log(weight)` ("all") or `-log(1 - weight)` ("any")."""
    return {"sum": lambda w: w, "all": jnp.log, "any": any_win_weight}[reward](weight)


@partial(jax.custom_jvp, nondiff_argnums=(5, 6))
def _exact(weight: Array, cost: Array, budget: Array, size: Array, upper: Array, reward: str, at_most: bool) -> Projection:
    """Computes `select` at temperature zero by the exact solvers, which have no derivative; `upper` `[K]` is 1 for allowed models, else 0."""
    allowed = upper > 0.0
    if reward == "any":
        if not at_most:
            raise ValueError("at_most must be True for 'any' at a temperature of 0, got False")
        found = exact_any_win(weight, cost, budget, size, allowed=allowed)
    else:
        gain = jnp.where(allowed, _additive(reward, weight), 0.0)
        found = linear_selection(gain, cost, budget, size, allowed=allowed, exact_size=not at_most)
    unknown, residual = jnp.full((), jnp.nan, weight.dtype), jnp.asarray(found.residual, weight.dtype)
    converged = found.feasible & jnp.asarray(found.converged)
    return Projection(found.z, unknown, found.multiplier, found.feasible, residual, converged)


@_exact.defjvp
def _exact_jvp(reward: str, at_most: bool, primals: Any, tangents: Any) -> Any:
    del reward, at_most, primals, tangents
    raise TypeError("select has no derivative at a temperature of 0: give a positive temperature, or use perturbed")


def annealed(first: float = 1.0, last: float = 0.01, *, steps: int) -> optax.Schedule:
    """Returns a temperature schedule that falls geometrically from `first` to `last` in `steps` steps and then stays constant.

    It is `optax.exponential_decay`: call it with the index of the step. At early (high) temperatures the derivative is almost never zero; at late
    ones the objective is almost that of the linear program. See the table of `smoothed_lp`.

    Raises:
      ValueError: a temperature is not above 0, `last` is above `first`, or `steps` is below 1.
    """
    checks.positive("first", first, ())
    checks.positive("last", last, ())
    checks.count("steps", steps)
    if last > first:
        raise ValueError(f"last must be at most first = {first}, got {last}")
    return optax.exponential_decay(first, steps, last / first, end_value=last)


def perturbed(
    solver: Callable[[Array], Array], samples: int, sigma: float, *, antithetic: bool = True
) -> Callable[[Array, Array], Array]:
    """Returns a function that averages `solver(weight + sigma * noise)` over normal noise and has a derivative in the weights.

    The derivative is `E[z noise^T] / sigma`, from the same samples of the solution `z`; the solver is never differentiated. Average and derivative
    are unbiased estimates for the expected solution over the noise, which differs the more from `solver(weight)` the larger `sigma`. Antithetic
    pairs, `(z(+) - z(-)) noise^T / (2 sigma)`, remove the variance that a constant part of `z` causes.

    There are first derivatives in the weights alone, in forward and reverse mode. Differentiating a value that the solver closes over (a cost, a
    budget) is an error, because this estimator lacks those derivatives.

        best = perturbed(lambda w: select("sum", w, cost, budget, 4, temperature=0).z, 64, 0.1)
        slope = jax.grad(lambda w: best(w, key) @ true_reward)(weight)

    It is for solvers without a smooth form, such as sets; otherwise try `select` first, which has no noise and takes a fifteenth of the time of 32
    samples. A sample costs one call of the solver. Works under `jax.jit`, `jax.vmap`, `jax.grad` and `jax.jvp`.

    Source: Berthet et al. (2020), "Learning with differentiable perturbed optimizers", propositions 2.2 and 3.1.

    Args:
      solver: function from weights `[K]` to a solution `z` `[K]`.
      samples: number of calls of the solver (static), antithetic ones included.
      sigma: standard deviation of the noise, above 0, in the unit of the weights.
      antithetic: whether each noise is also used with the opposite sign (static).

    Returns:
      A function `(weight [K], key) -> z [K]`; do not use the `key` again.

    Raises:
      ValueError: `samples` is below 1, or odd if antithetic; `sigma` is not above 0.
    """
    checks.count("samples", samples, minimum=2 if antithetic else 1)
    if antithetic and samples % 2:
        raise ValueError(f"samples must be even if antithetic, got {samples}")
    if boundary.known(sigma):
        checks.positive("sigma", sigma, ())

    @jax.custom_jvp
    def mean(weight: Array, noise: Array) -> Array:
        return jnp.mean(jax.vmap(solver)(weight + sigma * noise), axis=0)

    @mean.defjvp
    def _(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        weight, noise = primals
        z = jax.vmap(solver)(weight + sigma * noise)
        along = jnp.sum(noise * tangents[0], axis=1) / sigma
        return jnp.mean(z, axis=0), jnp.mean(z * along[:, None], axis=0)

    def smooth(weight: Array, key: Array) -> Array:
        weight = boundary.vector("weight", weight)
        number = samples // 2 if antithetic else samples
        noise = jax.random.normal(key, (number, weight.shape[0]), weight.dtype)
        return mean(weight, jnp.concatenate([noise, -noise]) if antithetic else noise)

    return smooth
