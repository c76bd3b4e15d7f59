"""Gradients through whole simulations, and what they are good for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64

from jaxroute import simulate, tune
from jaxroute.problems import combinatorial as cb

LEAVES = {"reward_width": 0.5, "cost_width": 0.2, "solver.temperature": 0.2, "budget_share": 0.9}


def relaxed_runs():
    """A cloud and a policy whose statistics do not depend on the leaves: everything is seen in every round.

    Then the gradient is exact, and differences of the simulated objective must agree with it.
    """
    env = cb.sciq_cloud(reward="suc", any_size=True)
    policy = cb.C2MABV(solver=cb.Smoothed(), rounding=_All(), noise=0.0)
    return env, policy


class _All:
    """Rounds to everything."""

    def round(self, key, z, spec):
        del key, spec
        return z > -1.0


jax.tree_util.register_static(_All)


@pytest.mark.slow
def test_gradient_of_a_run_against_differences():
    """In float64, forward and reverse, in four leaves, one of which is inside the solver."""
    with x64():
        env, policy = (in_double(x) for x in relaxed_runs())
        value = jax.jit(tune.objective_of(env, policy, cb.relaxed_objective(3.0), horizon=40, seeds=16))
        leaves = {name: jnp.asarray(x) for name, x in LEAVES.items()}
        forward, reverse = jax.jit(jax.jacfwd(value))(leaves), jax.jit(jax.grad(value))(leaves)
        h = 3e-3  # The engine sums flows in float32.
        for name, x in leaves.items():
            ends = [float(value({**leaves, name: x * (1 + s * h)})) for s in (-1, 1)]
            assert float(forward[name]) == pytest.approx((ends[1] - ends[0]) / (2 * h * float(x)), rel=2e-2, abs=1e-3), name
            assert float(forward[name]) == pytest.approx(float(reverse[name]), rel=1e-4, abs=1e-5), name
        assert abs(float(forward["reward_width"])) > 1e-3


@pytest.mark.slow
def test_objective_is_that_of_a_simulation():
    """Without a price it is the mean relaxed reward, whose expectation the rounded set keeps for sums."""
    env, policy = cb.sciq_cloud(reward="suc"), cb.C2MABV(solver=cb.Smoothed(0.01))
    value = float(jax.jit(tune.objective_of(env, policy, cb.relaxed_objective(0.0), horizon=200, seeds=64))({}))
    data = simulate(env, policy, horizon=200, seeds=64, record=["reward"], progress=False)["reward"].isel(policy=0, time=-1)
    assert abs(value - float(data.mean())) < 5 * float(data.std()) / 8


@pytest.mark.slow
def test_fresh_seeds_are_seeds_that_no_step_played():
    """Start and result are scored on the seeds after those of the steps, as `objective_of` scores them."""
    env, policy = relaxed_runs()
    task = {"objective": cb.relaxed_objective(3.0), "horizon": 5, "seeds": 4}
    found = tune.improve(env, policy, {"reward_width": (0.05, 3.0)}, steps=2, fresh=8, **task)
    later = {**task, "seeds": 8, "first_seed": 2 * 4}
    for name, leaves in (("start", {}), ("tuned", found.values)):
        assert found.fresh[name][0] == pytest.approx(float(tune.objective_of(env, policy, **later)(leaves)), abs=1e-6), name
    assert set(found.fresh) == {"start", "tuned", "gain"} and all(error >= 0 for _, error in found.fresh.values())


def test_the_objective_follows_the_drift():
    means = [[0.9, 0.1], [0.2, 0.6]]
    env = cb.parametric_cloud(means, [0.5, 0.5], reward="suc", budget=0.4, size=1, switch=[0, 10])
    action = type("Action", (), {"relaxed": jnp.array([1.0, 0.0])})
    for t, reward in ((0, 0.9), (9, 0.9), (10, 0.2)):
        value = cb.relaxed_objective(2.0)(env, None, action, jnp.int32(t))
        assert float(value) == pytest.approx(reward - 2.0 * 0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({}, "at least one leaf"),
        ({"width": (0.1, 1.0)}, "must name leaves of C2MABV, got 'width'"),
        ({"solver.heat": (0.1, 1.0)}, "must name leaves of Smoothed, got 'solver.heat'"),
        ({"solver": (0.1, 1.0)}, "must name single numbers, but 'solver' is"),
        ({"allowed": (0.1, 1.0)}, "must name single numbers, but 'allowed' is None"),
        ({"reward_width": (1.0, 0.1)}, "0 < lowest < highest"),
        ({"reward_width": (0.0, 0.1)}, "0 < lowest < highest"),
    ],
)
def test_bad_input(leaves, message):
    with pytest.raises(ValueError, match=message):
        tune.improve(cb.sciq_cloud(), cb.C2MABV(solver=cb.Smoothed()), leaves, cb.relaxed_objective(1.0), horizon=10)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "price"), [("suc", 4.0), ("awc", 2.0)])
def test_improves_a_poor_setting_on_held_out_seeds(task, price):
    """By more than 4 standard errors, in what the rounded sets really earn and spend."""
    env = cb.sciq_cloud(reward=task)
    poor = cb.C2MABV(1.0, 1.0, solver=cb.Smoothed(0.03))
    bounds = {"reward_width": (0.02, 5.0), "cost_width": (0.001, 2.0), "budget_share": (0.6, 1.5)}
    found = tune.improve(env, poor, bounds, cb.relaxed_objective(price), horizon=500, seeds=32, steps=25)
    assert np.isfinite(found.history).all()
    assert found.fresh["gain"][0] > 4 * found.fresh["gain"][1] > 0
    start, end = (found.fresh[name][0] for name in ("start", "tuned"))
    assert end - start == pytest.approx(found.fresh["gain"][0], abs=1e-6)
    assert all(low <= found.values[n] * 1.0001 and found.values[n] <= high * 1.0001 for n, (low, high) in bounds.items())
    tuned = tune.replace(poor, {n: np.float32(v) for n, v in found.values.items()})
    data = simulate(
        env,
        {"poor": poor, "tuned": tuned},
        horizon=500,
        seeds=range(10_000, 10_256),
        record=["reward", "violation"],
        progress=False,
    ).isel(time=-1)
    score = data["reward"] - price * data["violation"]
    gain = score.sel(policy="tuned") - score.sel(policy="poor")
    assert float(gain.mean()) > 4 * float(gain.std(ddof=1)) / np.sqrt(gain.size)
