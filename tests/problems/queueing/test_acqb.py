"""ACQB as a user meets it: exploration, sizes of assortments, solvers, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from queueing_cases import play, small

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.estimators.mnl import Newton
from jaxroute.problems import queueing as qu


@pytest.mark.slow
def test_grid_of_kappa_c1_ridge_and_arrival_rate_in_one_trace():
    env = jr.grid(qu.RandomQueues, arrival_rate=[0.4, 0.5], slack=0.0, horizon=40, num_models=3, dim=2)
    policy = jr.grid(qu.ACQB, curvature=[0.1, 1.0], c1=[0.0, 2.0], ridge=[1.0, 5.0], solver=Newton())
    before = jr.trace_count()
    data = play(env, {"ACQB": policy}, horizon=40, seeds=16)
    assert jr.trace_count() == before + 1
    where = {"arrival_rate": 0.5, "curvature": 1.0, "c1": 2.0, "ridge": 5.0}
    alone = play(
        qu.RandomQueues(arrival_rate=0.5, slack=0.0, horizon=40, num_models=3, dim=2),
        {"ACQB": qu.ACQB(curvature=1.0, c1=2.0, ridge=5.0, solver=Newton())},
        horizon=40,
        seeds=16,
    )
    np.testing.assert_array_equal(data["queue_length"].sel(where), alone["queue_length"])
    np.testing.assert_allclose(data["routing_regret"].sel(where), alone["routing_regret"], atol=1e-5)
    assert (data["explored"].sel(c1=0.0) == 0).all()


def test_cuda_code_is_made_without_a_gpu():
    env, policy = small(horizon=40), qu.ACQB()
    state, env_state = policy.init(draws.key(0), env.spec), env.init(draws.key(0))

    def one(key, state, env_state, t):
        obs = env.observe(key, env_state, t)
        action, _ = policy.act(key, state, obs, t)
        env_state, feedback, flows = env.step(key, env_state, action, t)
        return policy.update(key, state, obs, action, feedback, t), env_state, flows

    lowered = jax.jit(one).trace(draws.key(0), state, env_state, jnp.int32(3)).lower(lowering_platforms=("cuda",))
    assert "func" in lowered.as_text()


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_newton_steps_hold_for_long_features_and_small_ridges(spread):
    """Full steps would diverge from a ridge of about a twentieth of the squared length on."""
    env = qu.RandomQueues(spread=spread, num_models=3, dim=3, horizon=200)
    policies = {"loose": qu.ACQB(), "tight": qu.ACQB(solver=Newton(tolerance=1e-4)), "small ridge": qu.ACQB(ridge=0.05)}
    data = play(env, policies, horizon=200, seeds=64)
    data = data.sel(seed=data["valid"].all("policy"))
    end = data["routing_regret"].isel(time=-1).mean("seed")
    assert abs(float(end.sel(policy="loose") - end.sel(policy="tight"))) < 0.05 * float(end.sel(policy="tight"))
    assert float(end.sel(policy="small ridge")) < 1.3 * float(end.sel(policy="tight"))
