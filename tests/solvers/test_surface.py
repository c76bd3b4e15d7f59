"""Every public solver under `jit` and `vmap`, and the derivatives of those that have them."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxroute import solvers

W = np.array([0.9, 0.55, 0.8, 0.3, 0.62, 0.71])
COST = np.array([0.7, 0.21, 0.6, 0.13, 0.4, 0.52])
CAPACITY = np.array([0.4, 0.3, 0.5, 0.6, 0.35, 0.45])
KEY = jax.random.key(0)
UNIFORMS = np.random.default_rng(0).random((6, 6))


def selection(w, c, b):
    return solvers.Selection(solvers.log_any_win(w, c, b, 2.5).z, jnp.zeros_like(b), jnp.asarray(True))


# Name -> a function of float arrays, and where it is looked at. These have no derivative but that of a vertex, or zero.
CASES = {
    "best_any_win": (
        lambda w, c, b: solvers.best_any_win([selection(w, c, b), selection(w, c, 0.9 * b)], w).z,
        (W, COST, 1.1),
    ),
    "best_models": (lambda w: solvers.best_models(w, 3), (W,)),
    "best_pair": (lambda w: solvers.best_pair(jnp.stack([w, w[::-1] + 0.1]), 2), (W,)),
    "best_subset": (lambda w, c, b: solvers.best_subset(w, c, b, 3, exact_size=True, sizes=(3, 3)).z, (W, COST, 1.3)),
    "branching_any_win": (lambda w, c, b: solvers.branching_any_win(w, c, b, 3.0).x, (W, COST, 1.3)),
    "budgeted_fill": (lambda w, c, a, b: solvers.budgeted_fill(w, c, a, b).amount, (W, COST, CAPACITY, 0.45)),
    "continuous_greedy_any_win": (lambda w, c, b: solvers.continuous_greedy_any_win(w, c, b, 3.0).z, (W, COST, 1.3)),
    "exact_any_win": (lambda w, c, b: solvers.exact_any_win(w, c, b, 3.0).z, (W, COST, 1.3)),
    "index_by_bisection": (
        lambda h, c: solvers.index_by_bisection(lambda s: 0.5 * jnp.maximum(h - s, 0.0) ** 2, c),
        (0.9, 0.2),
    ),
    "linear_selection": (lambda w, c, b: solvers.linear_selection(w, c, b, 3.0).z, (W, COST, 1.3)),
    "log_any_win": (lambda w, c, b: solvers.log_any_win(w, c, b, 3.0).z, (W, COST, 1.3)),
    "pairwise": (lambda z, u: solvers.pairwise(z, u, whole_sum=False), (CAPACITY, UNIFORMS[0])),
    "polish_any_win": (lambda w, c, b: solvers.polish_any_win(selection(w, c, b), w, c, b, 2.5).z, (W, COST, 1.1)),
    "sparse_fill": (lambda w, c, a, b: solvers.sparse_fill(w, c, a, b, 3).x, (W, COST, CAPACITY, 0.45)),
    "swap": (lambda z, u, v: solvers.swap(z, u, v), (CAPACITY, UNIFORMS, UNIFORMS[1])),
}
DIFFERENTIABLE = {
    "differentiable_lp": (lambda w, c, b, a: solvers.differentiable_lp(w, c, b, capacity=a).z, (W, COST, 0.45, CAPACITY)),
    "log_weight_of_best": (lambda w: solvers.log_weight_of_best(list(w), 2), (W,)),
    "project": (lambda y, c, b, n, a: solvers.project(y, c, b, n, upper=a).z, (W, COST, 0.45, 1.0, CAPACITY)),
    "projected_gradient": (
        lambda w, c, b: solvers.projected_gradient(lambda z: w - z, c, b, 2.0, optimizer=optax.sgd(1.0), steps=200).z,
        (W, COST, 0.8),
    ),
    "select, all": (lambda w, c, b, n, t: solvers.select("all", w, c, b, n, temperature=t).z, (W, COST, 1.3, 3.0, 0.3)),
    "select, any": (lambda w, c, b, n, t: solvers.select("any", w, c, b, n, temperature=t).z, (W, COST, 0.8, 3.0, 0.3)),
    "select, sum": (lambda w, c, b, n, t: solvers.select("sum", w, c, b, n, temperature=t).z, (W, COST, 1.3, 3.0, 0.3)),
    "smoothed_lp": (lambda w, c, b, t: solvers.smoothed_lp(w, c, b, 3.0, t).z, (W, COST, 1.3, 0.3)),
    "two_point_index": (solvers.two_point_index, (0.1, 0.9, 0.4, 0.2)),
    "uniform_index": (solvers.uniform_index, (0.1, 0.9, 0.2)),
}
# Its derivative is an estimate, which has tests of its own.
ESTIMATED = {
    "perturbed": (
        lambda w: solvers.perturbed(lambda x: solvers.linear_selection(x, jnp.asarray(COST), 1.3, 3.0).z, 8, 0.2)(w, KEY),
        (W,),
    )
}
# On the host, in NumPy, or no function of arrays.
ON_THE_HOST = ("annealed", "discrete_index", "linear_index")
ALL = CASES | DIFFERENTIABLE | ESTIMATED


def test_no_solver_is_forgotten():
    functions = {name for name in solvers.__all__ if not inspect.isclass(getattr(solvers, name))}
    assert {name.split(",")[0] for name in ALL} | set(ON_THE_HOST) == functions


def flat(found):
    return np.concatenate([np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(found)])


@pytest.mark.parametrize("name", ALL)
def test_jit_and_vmap_change_nothing(name, double_precision):
    """A batch through `vmap` and `jit` has what its members have alone."""
    fn, at = ALL[name]
    at = [np.asarray(x, float) for x in at]
    factors = np.array([1.0, 0.97, 1.02])
    batch = [np.stack([x * f for f in factors]) for x in at]
    together = jax.jit(jax.vmap(fn))(*batch)
    for i in range(len(factors)):
        alone = flat(fn(*(x[i] for x in batch)))
        assert np.isfinite(alone).all()
        np.testing.assert_allclose(flat(jax.tree.map(lambda x, i=i: x[i], together)), alone, atol=1e-9)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_differences(name, double_precision):
    """Forward and reverse, in every argument; at these points no derivative is all zero."""
    fn, at = DIFFERENTIABLE[name]
    at = tuple(jnp.asarray(x, float) for x in at)
    number, step = len(at), 1e-6
    forward = jax.jit(jax.jacfwd(fn, argnums=tuple(range(number))))(*at)
    reverse = jax.jit(jax.jacrev(fn, argnums=tuple(range(number))))(*at)
    played = jax.jit(fn)
    for i in range(number):
        ways = np.eye(at[i].size).reshape(at[i].size, *at[i].shape)
        ends = [[np.asarray(played(*at[:i], at[i] + s * step * way, *at[i + 1 :])) for way in ways] for s in (1, -1)]
        slopes = np.stack([(up - down) / (2 * step) for up, down in zip(*ends, strict=True)], axis=-1)
        for found in (forward[i], reverse[i]):
            np.testing.assert_allclose(np.asarray(found).reshape(slopes.shape), slopes, atol=2e-5)
    assert max(np.abs(np.asarray(x)).max() for x in forward) > 1e-3
