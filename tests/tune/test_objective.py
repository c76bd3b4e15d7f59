"""Differentiable objectives of whole simulations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64

from jaxroute import simulate, tune
from jaxroute.problems import combinatorial as cb

PARAMETERS = {"reward_width": 0.5, "cost_width": 0.2, "solver.temperature": 0.2, "budget_share": 0.9}


class _All:
    """Rounds to the set of all models."""

    def round(self, key, z, spec):
        del key, spec
        return z > -1.0


jax.tree_util.register_static(_All)


def mean_objective(*arguments, seeds, **options):
    """The mean over seeds, as a function of hyperparameters."""
    value = tune.objective_of(*arguments, **options)
    return lambda parameters: jnp.mean(value(parameters, np.arange(seeds)))


@pytest.mark.slow
def test_gradient_of_a_run_against_differences():
    """All models are observed in every round, so the statistics do not depend on the hyperparameters and the gradient is exact."""
    with x64():
        policy = cb.C2MABV(solver=cb.Smoothed(), rounding=_All(), noise=0.0)
        env, policy = in_double(cb.sciq_cloud(reward="suc", any_size=True)), in_double(policy)
        value = jax.jit(mean_objective(env, policy, cb.relaxed_objective(3.0), horizon=40, seeds=16))
        parameters = {name: jnp.asarray(x) for name, x in PARAMETERS.items()}
        forward, reverse = jax.jit(jax.jacfwd(value))(parameters), jax.jit(jax.grad(value))(parameters)
        h = 3e-3  # The engine sums flows in float32.
        for name, x in parameters.items():
            ends = [float(value({**parameters, name: x * (1 + s * h)})) for s in (-1, 1)]
            assert float(forward[name]) == pytest.approx((ends[1] - ends[0]) / (2 * h * float(x)), rel=2e-2, abs=1e-3), name
            assert float(forward[name]) == pytest.approx(float(reverse[name]), rel=1e-4, abs=1e-5), name
        assert abs(float(forward["reward_width"])) > 1e-3


@pytest.mark.slow
def test_objective_is_that_of_a_simulation():
    """Without a price it is the mean relaxed reward, the expectation of the rounded set's reward for sums."""
    env, policy = cb.sciq_cloud(reward="suc"), cb.C2MABV(solver=cb.Smoothed(0.01))
    value = float(jax.jit(mean_objective(env, policy, cb.relaxed_objective(0.0), horizon=200, seeds=64))({}))
    data = simulate(env, policy, horizon=200, seeds=64, record=["reward"], progress=False)["reward"].isel(policy=0, time=-1)
    assert abs(value - float(data.mean())) < 5 * float(data.std()) / 8


def test_seeds_are_those_of_a_simulation():
    value = tune.objective_of(cb.sciq_cloud(), cb.C2MABV(solver=cb.Smoothed()), cb.relaxed_objective(1.0), horizon=5)
    both, late = (np.asarray(jax.jit(value)({}, np.arange(first, 4))) for first in (0, 2))
    assert both.shape == (4,) and both[2:] == pytest.approx(late, abs=1e-6)


def test_the_objective_follows_the_drift():
    means = [[0.9, 0.1], [0.2, 0.6]]
    env = cb.parametric_cloud(means, [0.5, 0.5], reward="suc", budget=0.4, size=1, switch=[0, 10])
    action = type("Action", (), {"relaxed": jnp.array([1.0, 0.0])})
    for t, reward in ((0, 0.9), (9, 0.9), (10, 0.2)):
        value = cb.relaxed_objective(2.0)(env, None, action, jnp.int32(t))
        assert float(value) == pytest.approx(reward - 2.0 * 0.1, abs=1e-6)
