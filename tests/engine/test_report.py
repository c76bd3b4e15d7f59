"""What makes a run invalid: the run is marked, the first bad value is named, and the rest is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_child import differences
from flax import struct
from toys import Clock, Coin, Cycle, Idle, Planner

import jaxroute as jr
from jaxroute.core.attributes import decoded
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
    options = {"horizon": 50, "seeds": 4, "record": ["regret"], "progress": False, "keep": keep}
    with pytest.warns(UserWarning, match=f"4 of 4 runs are invalid.*{said}"):
        data = jr.simulate(env, {"UCB1": policy}, execution=jr.Execution(backend), **options)
    if keep == "runs":
        assert np.isfinite(data["regret"].values).all()
        assert not data["valid"].values.any()


def test_what_is_only_recorded_may_be_infinite():
    options = {"horizon": 50, "seeds": 8, "record": ["regret", "info.bound"], "record_every": 25, "progress": False}
    data = jr.simulate(BANDIT, stochastic.UCB1(), **options)
    assert data["valid"].values.all()
    assert np.isposinf(data["info.bound"].isel(time=0).values).any(), "a bound is infinite before the first pull"


@struct.dataclass
class Gift(Coin):
    """An environment whose reward is what the policy gives, in one round or another; `luck` is seen by the policy."""

    def observe(self, key, state, t):
        return jax.random.uniform(key)

    def step(self, key, state, action, t):
        return state, action, {"reward": action}


@struct.dataclass
class Root(Idle):
    """Gives the root of `luck - danger`: a number only as long as luck lasts."""

    danger: jax.Array | float = 0.0

    def act(self, key, state, obs, t):
        return jnp.sqrt(obs - self.danger), {"gift": jnp.sqrt(obs - self.danger)}


def luck_of(seed, horizon):
    run = jax.random.fold_in(jax.random.key(0), seed)
    stream = jax.random.fold_in(run, 2)
    return jax.vmap(lambda t: jax.random.uniform(jax.random.fold_in(stream, t)))(jnp.arange(horizon))


@pytest.mark.parametrize("record", [["reward"], ["info.gift"]])
def test_a_policy_that_computes_nan_is_named_with_setting_seed_and_round(tmp_path, record):
    """The rest is kept, and equal to what it is without that policy."""
    policies = {"safe": Root(), "root": jr.grid(Root, danger=[0.0, 0.0005])}
    options = {"horizon": 200, "seeds": 40, "record_every": 50, "record": record, "progress": False}
    fails = np.asarray([np.flatnonzero(luck_of(seed, 200) < 0.0005)[:1].sum() for seed in range(40)])
    seed = int(np.flatnonzero(fails)[0])
    values = ["feedback", "info.gift", *(["reward"] if record == ["reward"] else [])]
    expected = f"'root', danger 0.0005, seed {seed}: {', '.join(values)} in round {fails[seed] + 1}"
    with pytest.warns(
        UserWarning, match=f"{(fails > 0).sum()} of 160 runs are invalid.*first bad value of policy {expected}"
    ) as said:
        data = jr.simulate(Gift(), policies, out=tmp_path, **options)
    assert len([w for w in said if w.category is UserWarning]) == 1
    np.testing.assert_array_equal(data["valid"].sel(policy="root", danger=0.0005), fails == 0)
    assert data["valid"].sel(policy="safe").all() and data["valid"].sel(danger=0.0).all()
    assert decoded(data.attrs)["invalid"] == [
        {"policy": "root", "setting": {"danger": 0.0005}, "seed": seed, "round": int(fails[seed]) + 1, "values": values}
    ]
    assert decoded(jr.load(tmp_path).attrs)["invalid"] == decoded(data.attrs)["invalid"]
    alone = jr.simulate(Gift(), {"safe": Root()}, **options)
    assert differences(data.isel(danger=0), alone) == []
    kept = np.isfinite(data[record[0]].sel(policy="root", danger=0.0005).isel(time=-1))
    np.testing.assert_array_equal(kept, fails == 0)


BROKEN = Clock(broken_at=17, broken=np.nan)
FIRST_BAD = {
    "a flow": (BROKEN, Cycle(), "reward in round 18"),
    "a flow that is infinite": (Clock(broken_at=17, broken=-np.inf), Cycle(), "reward in round 18"),
    "in the last round": (Clock(broken_at=36, broken=np.nan), Cycle(), "reward in round 37"),
    "after free rounds": (Clock(broken_at=17, broken=np.nan, free_rounds=7), Cycle(), "reward in round 11"),
    "a policy with plans": (Clock(broken_at=17, broken=np.nan, stage_length=5), Planner(), "reward in round 18"),
    "plans of its own": (BROKEN, Planner(stage_length=4), "reward in round 18"),
    "a function of the environment": (BROKEN, lambda env: Cycle(first=1), "reward in round 18"),
    "a sampler": (lambda key: BROKEN, Cycle(), "reward in round 18"),
    "a flow that must be zero": (Clock(bad_from=25), Cycle(), "bad in round 26"),
    "both": (Clock(bad_from=25, broken_at=17, broken=np.nan), Cycle(), "reward in round 18"),
    "a sum": (Clock(slope=1e38), Cycle(), "in no single round"),
}


RARE = ("a flow that is infinite", "in the last round", "plans of its own", "a function of the environment", "both")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in RARE else n for n in FIRST_BAD])
def test_the_first_bad_round_is_found(name):
    env, policy, where = FIRST_BAD[name]
    record = ["reward", "rounds"]
    with pytest.warns(UserWarning, match=f"first bad value of policy 'one', seed [0-9]+: .*{where}$"):
        data = jr.simulate(env, {"one": policy}, horizon=37, seeds=20, record_every=10, record=record, progress=False)
    assert not data["valid"].all()
    assert (data["rounds"].isel(time=-1) == 37).all()


@struct.dataclass
class Asks(Root):
    """Asks outside what to give."""

    def act(self, key, state, obs, t):
        def answer(t):
            raise RuntimeError("the service does not answer")

        return jax.pure_callback(answer, jax.ShapeDtypeStruct((), jnp.float32), t), {}


def test_a_callback_that_fails_is_placed():
    with pytest.raises(jax.errors.JaxRuntimeError, match="does not answer") as error:
        jr.simulate(Gift(), {"asks": Asks()}, horizon=5, seeds=3, progress=False)
    assert error.value.__notes__ == ["while policy 'asks', seeds 0 to 2 was simulated"]
