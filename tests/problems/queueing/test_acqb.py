"""ACQB as a user meets it; ready-made queues: horizons that do not fit, contexts that are kept, what is counted and flagged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from queueing_cases import play, pool, small

from jaxroute.core import draws
from jaxroute.estimators.mnl import Newton, Online
from jaxroute.problems import queueing as qu


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


@pytest.mark.slow
@pytest.mark.parametrize("make", [small, lambda **o: small(limit=50, **o), pool])
def test_another_horizon_than_the_queues_is_warned_of_and_flagged(make):
    with pytest.warns(UserWarning, match="made for a horizon of 40 rounds, the run has 60"):
        data = play(make(horizon=40), qu.Random(), horizon=60, seeds=8)
    assert not data["valid"].any() and (data["after_horizon"] == 20).all()
    with pytest.warns(UserWarning, match="made for a horizon of 40 rounds, the run has 30"):
        data = play(make(horizon=40), qu.Random(), horizon=30, seeds=8)
    assert data["valid"].all()


def test_how_many_contexts_are_kept():
    """With one feature and a parameter of 2, sigmoid(2 x) >= .7 needs x >= log(7 / 3) / 2: a share p of [-1, 1]."""
    share = (1.0 - np.log(7.0 / 3.0) / 2.0) / 2.0
    error = (share * (1.0 - share) / 100_000) ** 0.5
    one = qu.describe_contexts(qu.fixed_queue([[2.0]], arrival_rate=0.6, slack=0.1), contexts=100_000)
    assert one["accepted"] == one["least"] == pytest.approx(share, abs=5 * error)
    assert one["valid"] == pytest.approx((1 - 0.6 * (1 - one["accepted"]) ** 64) ** 1000, rel=1e-12)
    pair = qu.RandomQueues(num_models=2, dim=1, pair_features=True, spread=2.0, arrival_rate=0.6, slack=0.1).of(np.ones(1))
    two = qu.describe_contexts(pair, contexts=100_000)  # Contexts on [-2, 2], the better of two models.
    single = (1.0 - np.log(7.0 / 3.0) / 2.0) / 2.0
    assert two["accepted"] == pytest.approx(1 - (1 - single) ** 2, abs=5 * error)
    of_many = qu.describe_contexts(qu.RandomQueues(num_models=3), instances=8)
    assert 0 < of_many["least"] < of_many["accepted"] < 1
    with pytest.raises(ValueError, match="queues must be RandomQueues or a queue with random contexts, got"):
        qu.describe_contexts(pool())


def test_parameters_that_serve_hardly_any_context_are_warned_of():
    with pytest.warns(UserWarning, match=r"theta serves 0 % of the contexts .* some 100 % of runs of 1,000 rounds"):
        qu.fixed_queue([[0.1, 0.1]])


def test_what_finds_a_full_buffer_is_counted():
    """`simulate` would play the run again with more places."""
    env = small(limit=4, arrival_rate=0.9)

    def round_of(carry, t):
        state, key = carry, draws.fold_in(draws.key(0), t)
        action, _ = qu.Random().act(key, qu.Random().init(key, env.spec), env.observe(key, state, t), t)
        state, _, flows = env.step(key, state, action, t)
        return state, flows["dropped"]

    state, dropped = lax.scan(round_of, env.init(draws.key(0)), jnp.arange(60))
    assert float(dropped.sum()) > 0 and int(state.backlog.length) <= 4
    assert env.with_double_capacity().backlog.limit == 8


@pytest.mark.slow
def test_showing_one_answer_where_two_are_asked_for_is_flagged():
    policy = qu.ACQB(second_answer=0.0, solver=Online(), trigger=qu.DecayingExploration(0.0))
    key, env = draws.key(0), small(num_offered=2)
    state, own = env.init(key), policy.init(key, env.spec)
    for t in range(20):
        place = draws.fold_in(key, t)
        action, _ = policy.act(place, own, env.observe(place, state, jnp.int32(t)), jnp.int32(t))
        waits = bool(state.backlog.length > 0)
        state, _, flows = env.step(place, state, action, jnp.int32(t))
        assert bool(flows["illegal"]) == waits
