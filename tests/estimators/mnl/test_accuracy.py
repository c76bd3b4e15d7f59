"""Estimates in single precision, as runs make them, against exact ones in float64, round by round: errors that the docstrings state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import queueing as ref

from jaxroute.estimators import mnl
from jaxroute.estimators.mnl.newton import inverted

N = 5


def stream(seed, rounds, shown, d, spread, rare=0.0, missing=0.0):
    """Features `[T, d]`, items `[T, K]`, -1 for some that are missing, accepted places `[T]` of the logit model; the last item is rarely shown."""
    rng = np.random.default_rng(seed)
    theta, x = rng.uniform(-1, 1, (N, d)), np.float32(spread * rng.uniform(-1, 1, (rounds, d))).astype(float)
    probability = np.array([1.0] * (N - 1) + [1.0 - rare])
    items = np.sort(
        np.stack([rng.choice(N, shown, replace=False, p=probability / probability.sum()) for _ in range(rounds)]), axis=1
    )
    if shown > 1:
        items[rng.random(rounds) < missing, -1] = -1
    weights = np.where(items >= 0, np.exp(np.einsum("td,tkd->tk", x, theta[items])), 0.0)
    below = np.cumsum(weights, axis=1) / (1 + weights.sum(axis=1, keepdims=True))
    return x, items, (rng.random((rounds, 1)) > below).sum(axis=1)


def followed(solver, x, items, accepted, ridge):
    """Estimates `[runs, T, N, d]` and residuals `[runs]`, as the policy makes them: the runs are played together."""
    _, rounds, shown = items.shape
    d = x.shape[-1]

    def run(x, items, accepted):
        def add(carry, t):
            theta, fit, data = carry
            new = mnl.new_row(theta @ x[t], x[t], items[t], accepted[t], items[t])
            data = data.write(t, x[t], items[t], accepted[t], True)

            def sums(theta, **wanted):
                return data.sums(theta, items[t], t + 1, **wanted)

            theta, fit = solver.fit(fit, sums, theta, items[t], ridge, new)
            return (theta, fit, data), theta

        start = jnp.zeros((N, d)), solver.init(N, d, ridge), mnl.Rows.empty(rounds, N, shown, d)
        (_, fit, _), thetas = jax.lax.scan(add, start, jnp.arange(rounds, dtype=jnp.int32))
        return thetas, solver.residual(fit)

    types = (jnp.float32, jnp.int32, jnp.int32)
    given = (jnp.asarray(a, t) for a, t in zip((x, items, accepted), types, strict=True))
    return [np.asarray(a) for a in jax.jit(jax.vmap(run))(*given)]


def exact(x, items, accepted, ridge):
    """Estimates `[T, N, d]`: in every round the parameters of the items shown, the others as they are (Algorithm 2, lines 17 and 18)."""
    estimates, theta = [], np.zeros((N, x.shape[1]))
    offered = (items[:, :, None] == np.arange(N)).any(axis=1)
    chosen = np.where(
        accepted < items.shape[1], np.take_along_axis(items, np.minimum(accepted, items.shape[1] - 1)[:, None], 1)[:, 0], -1
    )
    for t in range(1, len(x) + 1):
        block = items[t - 1][items[t - 1] >= 0]
        rows = offered[:t, block].any(axis=1)

        def loss(w, block=block, rows=rows, t=t):
            trial = theta.copy()
            trial[block] = w
            return ref.disjoint_loss(trial, x[:t][rows], offered[:t][rows], chosen[:t][rows], ridge, block)

        value, gradient, hessian = loss(theta[block])
        for _ in range(200):  # Damped Newton steps.
            step, length = np.linalg.solve(hessian, gradient), 1.0
            decrement = gradient @ step
            while True:
                trial = theta[block] - length * step.reshape(len(block), -1)
                new = loss(trial)
                if new[0] <= value - 1e-4 * length * decrement + 1e-12 * abs(value) or length < 1e-9:
                    break
                length /= 2
            theta[block] = trial
            value, gradient, hessian = new
            if decrement < 1e-22:
                break
        estimates.append(theta.copy())
    return np.array(estimates)


# Rounds, items shown, dimension, spread of features, ridge, how much rarer the last item is shown, probability that the second item is missing.
CASES = {
    "one": (200, 1, 5, 1.0, 1.0, 0.0, 0.0),
    "one, small ridge": (200, 1, 8, 1.0, 0.01, 0.0, 0.0),
    "one, long features": (200, 1, 5, 3.0, 1.0, 0.0, 0.0),
    "one, long features, small ridge": (300, 1, 5, 3.0, 0.01, 0.9, 0.0),
    "two, some alone": (150, 2, 3, 1.0, 0.05, 0.9, 0.3),
    "two, long features": (150, 2, 3, 3.0, 0.1, 0.9, 0.0),
}
SLOW = {
    "one, many rounds": (1500, 1, 5, 3.0, 0.01, 0.9, 0.0),
    "one, twelve features": (300, 1, 12, 1.0, 0.1, 0.9, 0.0),
    "two, five features": (500, 2, 5, 1.0, 0.05, 0.9, 0.0),
    "three": (300, 3, 3, 2.0, 0.1, 0.9, 0.2),
}
SOLVERS = {"Tracked": mnl.Tracked(), "Newton": mnl.Newton(), "BFGS": mnl.BFGS()}


PAIRS = [(s, n) for n, case in (CASES | SLOW).items() for s in SOLVERS if s != "Tracked" or case[1] == 1]


@pytest.mark.parametrize(("solver", "name"), [pytest.param(*p, marks=[pytest.mark.slow] * (p[1] in SLOW)) for p in PAIRS])
def test_errors_are_within_the_tolerance(solver, name):
    """Of every logit in every round, 1e-3 of what is the larger, 1 or the logit; and the residual bounds them."""
    rounds, shown, d, spread, ridge, rare, missing = (CASES | SLOW)[name]
    given = [stream(seed, rounds, shown, d, spread, rare, missing) for seed in range(2)]
    found, residual = followed(SOLVERS[solver], *(np.stack(values) for values in zip(*given, strict=True)), ridge)
    for ours, left, data in zip(found, residual, given, strict=True):
        best = exact(*data, float(np.float32(ridge)))
        logits = best @ data[0].T
        error = np.abs((ours - best) @ data[0].T)
        assert (error / np.maximum(1.0, np.abs(logits))).max() < 1e-3
        # BFGS's is an estimate. A float32 number has 7 digits.
        assert solver == "BFGS" or (error - 3e-6 * np.abs(logits)).max() < left < 0.1, (error.max(), left)


@pytest.mark.parametrize(("solver", "shown"), [("Tracked", 1), ("Newton", 2), ("BFGS", 1), ("BFGS", 2)])
def test_a_run_does_not_depend_on_its_neighbours(solver, shown):
    """The number of steps is that of the slowest run; others stand still meanwhile."""
    easy, hard = stream(0, 80, shown, 4, 0.2), stream(1, 80, shown, 4, 6.0)
    together, _ = followed(SOLVERS[solver], *(np.stack(values) for values in zip(easy, hard, strict=True)), 0.1)
    twice, _ = followed(SOLVERS[solver], *(np.stack(values) for values in zip(easy, easy, strict=True)), 0.1)
    np.testing.assert_allclose(together[0], twice[0], rtol=0, atol=2e-6)


def test_without_need_the_data_are_not_read():
    """Where second derivatives are large an observation of `Tracked` costs no pass over the data."""
    x, items, accepted = stream(0, 12, 1, 2, 1.0)

    def sums(theta, **wanted):
        raise AssertionError("a pass over the data")

    solver = mnl.Tracked()
    state = solver.init(N, 2, 1.0).replace(inverse=jnp.broadcast_to(1e-4 * jnp.eye(2), (N, 2, 2)))
    new = mnl.new_row(
        jnp.zeros(N), jnp.asarray(x[0]), jnp.asarray(items[0]), jnp.asarray(accepted[0]), jnp.asarray(items[0])
    )
    with jax.disable_jit():
        theta, after = solver.fit(state, sums, jnp.zeros((N, 2)), jnp.asarray(items[0]), 1.0, new)
    assert 0 < float(after.residual) < solver.tolerance and jnp.any(theta != 0)


def test_surprises_do_not_lead_astray():
    """With long features and a small ridge the model's own step may move a logit by hundreds; passes from there would run out."""
    given = [stream(seed, 80, 1, 5, 6.0, 0.9) for seed in range(32)]
    _, residual = followed(mnl.Tracked(), *(np.stack(values) for values in zip(*given, strict=True)), 0.01)
    assert residual.max() <= mnl.Tracked().tolerance


def test_inverses_by_sweeps(double_precision):
    a = np.random.default_rng(0).standard_normal((7, 20))
    np.testing.assert_allclose(
        inverted(jnp.asarray(a @ a.T + 0.1 * np.eye(7))), np.linalg.inv(a @ a.T + 0.1 * np.eye(7)), rtol=1e-9
    )


def test_tracked_takes_one_item():
    new = mnl.NewestObservation(jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.zeros((2,)))
    with pytest.raises(TypeError, match="one row of one item"):
        mnl.Tracked().fit(mnl.Tracked().init(N, 3, 1.0), None, jnp.zeros((N, 3)), jnp.zeros((2,), jnp.int32), 1.0, new)
    for bad in (mnl.Newton(passes=0), mnl.BFGS(tolerance=-1.0)):
        with pytest.raises(ValueError, match="must be at least"):
            bad.check()
