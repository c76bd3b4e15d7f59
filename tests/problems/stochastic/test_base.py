"""State and parameters that several policies share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute.problems import stochastic
from jaxroute.problems.stochastic.types import ArmStatistics

BETA_POLICIES = ("BayesUCB", "BetaThompson")


@pytest.mark.fast
@pytest.mark.parametrize(
    "name", ["UCB1", "KLUCB", "IMED", "EpsilonGreedy", "GaussianThompson", "AnytimeMOSS", *BETA_POLICIES]
)
def test_the_state_is_pulls_and_rewards(name):
    policy = getattr(stochastic, name)()
    key, spec = jax.random.key(0), stochastic.bernoulli([0.5, 0.5, 0.5]).spec
    state = policy.init(key, spec)
    for action, reward in ((1, 1.0), (1, 0.5), (2, -0.25)):
        state = policy.update(key, state, (), jnp.int32(action), jnp.float32(reward), 0)
    assert state.pulls.tolist() == [0, 2, 1] and state.pulls.dtype == jnp.int32
    # A beta posterior has no negative successes.
    assert state.reward_sum.tolist() == [0.0, 1.5, 0.0 if name in BETA_POLICIES else -0.25]


@pytest.mark.fast
def test_the_parameters_of_a_posterior_by_hand():
    policy = stochastic.BetaThompson(successes=2.0, failures=3.0)
    state = ArmStatistics.empty(jax.random.key(0), 2).add(1, 1.0).add(1, 0.25)
    wins, losses = policy.posterior(state)
    assert wins.tolist() == [2.0, 3.25] and losses.tolist() == [3.0, 3.75]


@pytest.mark.fast
def test_order_of_positional_arguments():
    assert stochastic.SlidingWindowUCB(0.7, 2.0, 50) == stochastic.SlidingWindowUCB(xi=0.7, upper=2.0, window=50)
    assert stochastic.SlidingWindowThompson(2.0, 3.0, 50).window == 50
    assert stochastic.DiscountedUCB(0.9, 0.7, 2.0) == stochastic.DiscountedUCB(discount=0.9, xi=0.7, upper=2.0)
    assert stochastic.DiscountedThompson(0.9, 2.0, 3.0).failures == 3.0
    assert stochastic.BetaThompson(2.0, 3.0).failures == 3.0


@struct.dataclass
class UserUCB:
    """UCB1 in one class without a base, as a user writes it."""

    width: float = 2.0**0.5

    def init(self, key, spec):
        return ArmStatistics.empty(key, spec.num_models)

    def act(self, key, state, obs, t):
        return stochastic.UCB1(self.width).act(key, state, obs, t)

    def update(self, key, state, obs, action, feedback, t):
        return state.add(action, feedback)


def test_a_policy_without_the_base_has_the_same_runs():
    env = stochastic.bernoulli([0.8, 0.5, 0.2])
    data = jr.simulate(env, {"user": UserUCB(), "UCB1": stochastic.UCB1()}, horizon=60, seeds=4, progress=False)
    np.testing.assert_array_equal(data["regret"].sel(policy="user"), data["regret"].sel(policy="UCB1"))
