"""What makes a run invalid, and that the first bad value is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute.problems import stochastic

BANDIT = stochastic.bernoulli([0.3, 0.5, 0.7])


@struct.dataclass
class BrokenFeedback(jr.Wrapper):
    """A bandit whose feedback is NaN in one round; what it measures stays finite."""

    when: int = struct.field(pytree_node=False, default=30)

    def step(self, key, state, action, t):
        state, feedback, flows = self.env.step(key, state, action, t)
        return state, jax.tree.map(lambda x: jnp.where(t == self.when, jnp.nan, x), feedback), flows


@struct.dataclass
class BrokenBound(stochastic.UCB1):
    """Reports a bound that is NaN in one round."""

    def act(self, key, state, obs, t):
        action, info = super().act(key, state, obs, t)
        return action, {**info, "bound": jnp.where(t == 20, jnp.nan, info["bound"])}


@struct.dataclass
class BrokenState(stochastic.UCB1):
    """Spoils its state in the last round."""

    def update(self, key, state, obs, action, feedback, t):
        state = super().update(key, state, obs, action, feedback, t)
        return state.replace(reward_sum=jnp.where(t == 49, jnp.nan, state.reward_sum))


PLAYERS = {
    "feedback": (
        BrokenFeedback(BANDIT),
        stochastic.UCB1(),
        r"feedback, state of the policy.errors\['reward_sum'\], state of the policy.reward_sum in round 31",
    ),
    "bound": (BANDIT, BrokenBound(), "info.bound in round 21"),
    "state": (BANDIT, BrokenState(), "state of the policy.reward_sum in round 50"),
}


@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize("backend", ["scan", "reference"])
@pytest.mark.parametrize("name", PLAYERS)
def test_nan_is_found_where_nothing_that_is_recorded_shows_it(name, backend, keep):
    env, policy, said = PLAYERS[name]
    options = {
        "horizon": 50,
        "seeds": 4,
        "record": ["regret"],
        "progress": False,
        "execution": jr.Execution(backend),
        "keep": keep,
    }
    with pytest.warns(UserWarning, match=f"4 of 4 runs are invalid.*{said}"):
        data = jr.simulate(env, {"UCB1": policy}, **options)
    if keep == "runs":
        assert np.isfinite(data["regret"].values).all()
        assert not data["valid"].values.any()


def test_what_is_only_recorded_may_be_infinite():
    data = jr.simulate(
        BANDIT, stochastic.UCB1(), horizon=50, seeds=8, record=["regret", "info.bound"], record_every=25, progress=False
    )
    assert data["valid"].values.all()
    assert np.isposinf(data["info.bound"].isel(time=0).values).any(), "a bound is infinite before the first pull"
