"""Estimates that follow a quadratic model, against exact ones in float64, round by round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mnl_cases import rows_of
from reference import queueing as ref

from jaxroute.estimators import mnl
from jaxroute.estimators.mnl.tracked import inverted

N, D = 5, 5


def stream(seed, rounds, shown, scale, missing=0.0):
    """Features `[T, d]`, items `[T, K]`, -1 for some that are missing, accepted places `[T]` of the logit model."""
    rng = np.random.default_rng(seed)
    theta, x = 3 * rng.uniform(-1, 1, (N, D)), scale * rng.uniform(-1, 1, (rounds, D)) / np.sqrt(D)
    items = np.sort(np.stack([rng.choice(N, shown, replace=False) for _ in range(rounds)]), axis=1)
    if shown > 1:
        items[rng.random(rounds) < missing, -1] = -1
    weights = np.where(items >= 0, np.exp(np.einsum("td,tkd->tk", x, theta[items])), 0.0)
    below = np.cumsum(weights, axis=1) / (1 + weights.sum(axis=1, keepdims=True))
    return x, items, (rng.random((rounds, 1)) > below).sum(axis=1)


def followed(solver, x, items, accepted, ridge):
    """Estimates `[runs, T, N, d]`, as the policy makes them: the runs are played together."""
    rounds, shown = items.shape[1:]

    def run(x, items, accepted):
        def add(carry, t):
            theta, fit, data = carry
            new = mnl.new_row(theta @ x[t], x[t], items[t], accepted[t], items[t])
            data = data.write(t, x[t], items[t], accepted[t], True)

            def sums(theta, everyone=False, **wanted):
                return data.sums_of_all(theta, t + 1) if everyone else data.sums(theta, items[t], t + 1, **wanted)

            theta, fit = solver.fit(fit, sums, theta, items[t], ridge, new)
            return (theta, fit, data), theta

        start = jnp.zeros((N, D)), solver.init(N, D, ridge), mnl.Rows.empty(rounds, N, shown, D)
        return jax.lax.scan(add, start, jnp.arange(rounds, dtype=jnp.int32))[1]

    types = (jnp.float32, jnp.int32, jnp.int32)
    return np.asarray(jax.jit(jax.vmap(run))(*(jnp.asarray(a, t) for a, t in zip((x, items, accepted), types, strict=True))))


def exact(x, items, accepted, ridge):
    """Estimates `[T, N, d]`: in every round the parameters of the items shown, the others as they are (Algorithm 2, lines 17 and 18)."""
    shown, estimates, theta = items.shape[1], [], np.zeros((N, D))
    took = np.zeros((len(x), N))
    some = accepted < shown
    took[some, items[some, accepted[some]]] = 1.0
    present = (items[:, :, None] == np.arange(N)).any(axis=1)
    for t in range(1, len(x) + 1):
        block = items[t - 1][items[t - 1] >= 0]
        for _ in range(100):
            utility = np.where(present[:t], x[:t] @ theta.T, -np.inf)
            top = np.maximum(utility.max(axis=1, keepdims=True), 0.0)
            weight = np.exp(utility - top)
            chance = weight / (np.exp(-top) + weight.sum(axis=1, keepdims=True))
            gradient = (chance - took[:t])[:, block].T @ x[:t] + ridge * theta[block]
            p = chance[:, block]
            second = np.einsum("ta,ab->tab", p, np.eye(len(block))) - p[:, :, None] * p[:, None]
            size = len(block) * D
            hessian = np.einsum("tab,ti,tj->aibj", second, x[:t], x[:t]).reshape(size, size) + ridge * np.eye(size)
            step = np.linalg.solve(hessian, gradient.ravel())
            theta[block] -= min(1.0, 1.0 / max(np.abs(step).max(), 1e-9)) * step.reshape(len(block), D)
            if np.abs(step).max() < 1e-9:
                break
        estimates.append(theta.copy())
    return np.array(estimates)


def test_the_exact_one_is_the_reference():
    x, items, accepted = stream(0, 60, 1, 1.0)
    mine = exact(x, items, accepted, 1.0)[-1]
    for j in range(N):
        of_item = items[:, 0] == j
        np.testing.assert_allclose(mine[j], ref.fit_logistic(x[of_item], accepted[of_item] == 0, 1.0), atol=1e-7)


# Rounds, items shown, norm of features, ridge, chance that the second item is missing; errors of a logit: the median and the largest,
# where the model has just been made anew, and between.
CASES = {
    "one": (300, 1, 1.0, 1.0, 0.0, (2e-7, 1e-6), (1e-3, 6e-3)),
    "one, small ridge": (300, 1, 1.0, 0.1, 0.0, (1e-4, 1e-3), (2e-2, 0.2)),
    "one, long features": (300, 1, 3.0, 1.0, 0.0, (1e-4, 1e-3), (2e-2, 0.2)),
    "two": (300, 2, 1.0, 1.0, 0.0, (2e-7, 2e-6), (1e-3, 6e-3)),
    "two, some alone": (300, 2, 1.0, 1.0, 0.3, (2e-7, 2e-6), (1e-3, 6e-3)),
    "two, small ridge": (200, 2, 1.0, 0.1, 0.0, (1e-4, 1e-3), (2e-2, 0.2)),
}


@pytest.mark.parametrize("name", CASES)
def test_estimates_stay_near_the_exact_ones(name):
    rounds, shown, scale, ridge, missing, at_steps, between = CASES[name]
    given = [stream(seed, rounds, shown, scale, missing) for seed in range(3)]
    solver = mnl.Tracked() if shown == 1 else mnl.TrackedBlocks()
    found = followed(solver, *(np.stack(values) for values in zip(*given, strict=True)), ridge)
    probes = scale * np.random.default_rng(9).uniform(-1, 1, (100, D)) / np.sqrt(D)
    errors = []
    for ours, data in zip(found, given, strict=True):
        errors.append(np.abs((ours - exact(*data, ridge)) @ probes.T).max(axis=(1, 2)))
    errors = np.array(errors)
    first = errors[:, : solver.first]  # All of these rounds end with steps on all of the data.
    assert np.median(first) < at_steps[0] and first.max() < at_steps[1], (np.median(first), first.max())
    later = errors[:, solver.first :]
    assert np.median(later) < between[0] and later.max() < between[1], (np.median(later), later.max())
    assert np.median(later) > np.median(first)  # Or rounds without such steps would not be what is tested.


@pytest.mark.parametrize("shown", [1, 2])
def test_a_run_does_not_depend_on_its_neighbours(shown):
    """The number of steps is that of the slowest run; others stand still meanwhile."""
    easy, hard = stream(0, 80, shown, 0.2), stream(1, 80, shown, 6.0)
    solver = mnl.Tracked() if shown == 1 else mnl.TrackedBlocks()
    together = followed(solver, *(np.stack(values) for values in zip(easy, hard, strict=True)), 0.1)
    twice = followed(solver, *(np.stack(values) for values in zip(easy, easy, strict=True)), 0.1)
    np.testing.assert_allclose(together[0], twice[0], rtol=0, atol=2e-6)


def test_sums_of_all_are_the_sums_of_each(double_precision):
    rng = np.random.default_rng(0)
    theta = jnp.asarray(rng.standard_normal((N, D)))
    for shown in (1, 2):
        x, items, accepted = stream(2, 100, shown, 2.0, 0.3)
        rows = rows_of(x, items, accepted, N)
        one, all_ = rows.sums(theta, jnp.arange(N), 100), rows.sums_of_all(theta, 100)
        np.testing.assert_allclose(all_.gradient, one.gradient, atol=1e-12)
        blocks = np.asarray(one.hessian).reshape(N, D, N, D)
        if shown == 1:
            np.testing.assert_allclose(all_.hessian, [blocks[j, :, j] for j in range(N)], atol=1e-12)
        else:
            np.testing.assert_allclose(all_.hessian[0], np.asarray(one.hessian), atol=1e-12)


def test_inverses_by_sweeps(double_precision):
    a = np.random.default_rng(0).standard_normal((4, 7, 20))
    matrices = a @ a.swapaxes(1, 2) + 0.1 * np.eye(7)
    np.testing.assert_allclose(inverted(jnp.asarray(matrices)), np.linalg.inv(matrices), rtol=1e-9, atol=1e-11)


def test_the_newest_observation_must_say_what_was_shown():
    new = mnl.New(jnp.zeros((1, D)), jnp.zeros((1, D)), jnp.zeros((1,)), jnp.zeros((1, D, D)))
    for solver in (mnl.Tracked(), mnl.TrackedBlocks()):
        with pytest.raises(TypeError, match="new must be as new_row and new_pair make it"):
            solver.fit(solver.init(N, D, 1.0), None, jnp.zeros((N, D)), jnp.zeros((1,), jnp.int32), 1.0, new)
    for bad in (mnl.Tracked(first=0), mnl.TrackedBlocks(share=0)):
        with pytest.raises(ValueError, match="must be"):
            bad.check()
