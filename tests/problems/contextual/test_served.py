"""Replays of served requests with contexts: by hand, against a float64 loop, against the full table, limits, and errors."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conformance_cases import small_routing
from helpers import assert_mean_close, assert_means_agree, in_double, x64
from reference import contextual as plain
from reference import served as reference
from replayed_logs import (
    ROWS,
    D,
    K,
    drawn_log,
    full_table,
    random_numbers,
    recorded,
    replay_env,
    rewards_of,
    run_key,
    served_log,
)  # fmt: skip

from jaxroute import SimulationError, draws, simulate
from jaxroute.problems import contextual as co

SEEDS = (0, 5, 12)


def replay(env, policy, seeds, record=("accepted", "reward", "pulls", "complete")):
    """All rounds of a replay, in double precision."""
    options = {"horizon": env.num_rounds, "record_every": 1, "record": list(record), "progress": False}
    with x64():
        return simulate(in_double(env), in_double(co.ReplayedPolicy(policy)), seeds=seeds, **options).isel(policy=0)


def test_rounds_by_hand():
    """Four events, propensities 1/2: all are retained. The policy always uses model 1; of its two events one counts."""
    log = {"chosen": [0, 1, 1, 0], "scores": [0.1, 0.2, 0.4, 0.8], "costs": [1, 2, 4, 8], "propensities": [0.5] * 4}
    env = replay_env(np.eye(4), **log, num_models=2, cost_weight=0.01, rounds=1)
    policy = co.ReplayedPolicy(co.EpsilonGreedy(epsilon=0.0))
    state, inner = env.init(draws.key(0)), policy.init(draws.key(1), env.spec)
    order = [int(i) for i in state.order]
    assert sorted(order) == [0, 1, 2, 3] and int(state.retained) == 4
    counted = []
    for t, event in enumerate(order):
        obs = env.observe(draws.key(9), state, jnp.int32(t))
        np.testing.assert_array_equal(obs.context, np.eye(4)[[event]])
        assert int(obs.round) == len(counted), "the policy's own round"
        state, feedback, flows = env.step(draws.key(9), state, jnp.int32(1), jnp.int32(t))
        learned = policy.update(draws.key(9), inner, obs, jnp.int32(1), feedback, jnp.int32(t))
        if event in (1, 2) and not counted:
            counted.append(event)
            reward = log["scores"][event] - 0.01 * log["costs"][event]
            assert float(feedback.reward) == pytest.approx(reward) == float(flows["reward"])
            np.testing.assert_allclose(learned.theta[event], [0.0, reward / 2], rtol=1e-6)  # x x' + I has 2 there.
            np.testing.assert_array_equal(flows["pulls"], [0, 1])
        else:
            assert not feedback.accepted and float(feedback.reward) == 0.0
            assert all(not np.any(x) for x in flows.values())
            jax.tree.map(np.testing.assert_array_equal, learned, inner)
        inner = learned
    assert len(counted) == 1 and float(env.gauges(state)["complete"]) == 1.0


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("name", ["LinUCB", "SquareCB"])
def test_equals_the_loop_of_the_paper(name, bootstrap):
    """The horizon of SquareCB is the number of counted events."""
    log = recorded()
    env = replay_env(**log, cost_weight=0.5, floor=0.2, rounds=45, bootstrap=bootstrap)
    data = replay(env, getattr(co, name)(), SEEDS)
    assert (data["complete"][:, -1] == 1.0).all()
    for i, seed in enumerate(SEEDS):
        events, uniforms = random_numbers(seed, 400, bootstrap)
        acts = [jax.random.fold_in(jax.random.fold_in(run_key(seed), 5), t) for t in range(400)]
        coins = np.array([jax.random.uniform(k, (), jnp.float32) for k in acts], float)
        orders = np.array([draws.order(k, K) for k in acts])
        policy = plain.linucb(K, D, 1.0, orders) if name == "LinUCB" else plain.squarecb(K, D, 45, 0.01, coins)
        expected = reference.rejection(events, uniforms, rewards_of(log), 0.2, policy, 45)
        run = data.isel(seed=i)
        counted = np.diff(run["accepted"].values, prepend=0) > 0
        np.testing.assert_array_equal(
            np.diff(run["pulls"].values, axis=0, prepend=0)[counted].argmax(1), log["chosen"][expected]
        )
        rewards = np.diff(run["reward"].values, prepend=0)[counted]
        np.testing.assert_allclose(rewards, rewards_of(log)["rewards"][expected], atol=1e-5)


def test_a_log_of_the_policy_itself_is_accepted_completely():
    """LinUCB serves the queries in the order in which a run replays them, and chooses with probability 1."""
    number, (seed, *_) = 80, SEEDS
    x, scores = (full_table()[i][np.arange(number) % ROWS].astype(float) for i in (0, 1))
    orders = np.array([draws.order(jax.random.fold_in(jax.random.fold_in(run_key(seed), 5), t), K) for t in range(number)])
    pick, learn = plain.linucb(K, D, 1.0, orders)
    chosen = np.zeros(number, int)
    for t, query in enumerate(random_numbers(seed, number)[0]):
        rows = x[query][None].repeat(K, axis=0)
        chosen[query] = pick(t, rows)
        learn(chosen[query], rows, scores[query, chosen[query]])
    own = scores[np.arange(number), chosen]
    own_log = served_log(chosen, own, np.zeros(number), np.ones(number))
    assert co.served_routing(own_log).rounds == number
    env = replay_env(x, number, chosen=chosen, scores=own, costs=np.zeros(number), propensities=np.ones(number))
    assert env.num_rounds == number
    run = replay(env, co.LinUCB(), [seed]).isel(seed=0, time=-1)
    assert run["accepted"] == number and run["complete"] == 1.0
    assert float(run["reward"]) == pytest.approx(own.sum(), rel=1e-6)


HORIZON, RUNS = 40, 4096


def value_on_the_table():
    x, scores, _ = full_table()
    env = co.TableEnv(
        x, scores, np.zeros_like(scores), np.float32(0), np.zeros((D, K), np.float32), scores.mean(0), one_pass=False
    )
    options = {"horizon": HORIZON, "seeds": RUNS, "record": ["reward"], "record_every": HORIZON, "progress": False}
    return simulate(env, co.LinUCB(alpha=0.3), **options)["reward"].values.ravel()


def value_by_replay(probability, floor, number):
    """Mean reward of the accepted events, each run on a separate log, and thereby independent."""

    def sampler(key):
        return co.ServedEnv(*drawn_log(key, probability, floor, number), rounds=HORIZON)

    options = {"horizon": number, "seeds": range(RUNS, 2 * RUNS), "record_every": number, "progress": False}
    data = simulate(sampler, co.ReplayedPolicy(co.LinUCB(alpha=0.3)), **options).isel(time=-1)
    assert (data["complete"] == 1.0).all() and (data["accepted"] == HORIZON).all()
    return data["reward"].values.ravel() / HORIZON


def test_the_value_is_that_on_the_full_table():
    """Uniform and other propensities; a replay that ignores the latter finds another value."""
    expected = value_on_the_table()
    uniform = np.full((ROWS, K), np.float32(1 / K))
    assert_means_agree(value_by_replay(uniform, 1 / K, 240), expected)
    prefers = full_table()[2]
    assert_means_agree(value_by_replay(prefers, 0.1, 1000), expected)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_means_agree(value_by_replay(prefers, None, 240), expected)


def test_about_q_times_the_floor_are_accepted():
    """Whatever the policy does; the default of `rounds` is what almost every log allows."""
    events = {
        "chosen": np.arange(900) % 3,
        "scores": np.ones(900),
        "costs": np.ones(900),
        "propensities": np.full(900, 1 / 3),
    }
    uniform = co.served_routing(served_log(**events))
    assert uniform.num_rounds == 900 and uniform.rounds == int(300 - 5 * np.sqrt(200))
    lower = co.served_routing(served_log(**events), floor=0.1, rounds=900)
    assert lower.num_rounds < 400  # A run retains 0.3 of the events; the others need no round.
    data = replay(lower, co.EpsilonGreedy(epsilon=0.5), 256, ["accepted", "complete"]).isel(time=-1)
    assert_mean_close(data["accepted"].values, 90.0)
    assert (data["complete"] == 0.0).all()


class Planner(co.LinUCB):
    def plan(self, key, state, obs, t):
        return state


EVENTS = {name: x for name, x in recorded(40).items() if name != "contexts"}
REFUSED = {
    "a table": (np.zeros(3), {}, "log must be a ServedLog"),
    "unknown propensities": (replace(served_log(**EVENTS), propensity=None), {}, "log must have propensities; offpolicy.estimate"),
    "a model without requests": (
        served_log(**EVENTS | {"chosen": np.arange(40) % 2}), {}, "log must have answers of each model, got none of model 2",
    ),
    "a floor above a propensity": (served_log(**EVENTS), {"floor": 0.5}, "propensity must be at least floor, 0.5, got"),
    "no floor": (served_log(**EVENTS), {"floor": 0.0}, r"floor must be in \(0, 1\]"),
    "more rounds than events": (served_log(**EVENTS), {"rounds": 41}, "rounds must be from 1 to 40, got 41"),
    "a short log": (served_log(**EVENTS), {}, "rounds must be given: with propensities from 0.255, about 10.2 of 40"),
    "another bootstrap": (served_log(**EVENTS), {"bootstrap": 2}, "bootstrap must be True or False"),
    "no directions": (served_log(**EVENTS), {"directions": 0, "rounds": 5}, "directions must be at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_logs_are_refused(name):
    log, options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        co.served_routing(log, **options)


POLICIES = {
    "not wrapped": (co.LinUCB(), SimulationError, r"policies of a replay must be wrapped: contextual.ReplayedPolicy\(policy\)"),
    "with a plan": (co.ReplayedPolicy(Planner()), ValueError, "policy must have no method plan"),
    "a class": (co.ReplayedPolicy(co.LinUCB), ValueError, "policy must be an object such as"),
    "its own check": (co.ReplayedPolicy(co.LinUCB(alpha=-1.0)), ValueError, "alpha must be at least 0"),
    "its own check of the environment": (
        co.ReplayedPolicy(co.LinUCB(parameters=co.SharedParameters())), ValueError, "descriptors of the models must be given",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_unsuitable_policies_are_refused(name):
    policy, kind, message = POLICIES[name]
    with pytest.raises(kind, match=message):
        simulate(co.served_routing(served_log(**EVENTS), rounds=5), {"p": policy}, horizon=4, seeds=2, progress=False)


def test_elsewhere_the_wrapper_is_refused():
    with pytest.raises(ValueError, match="ReplayedPolicy needs a replay"):
        simulate(small_routing(), co.ReplayedPolicy(co.LinUCB()), horizon=4, seeds=2, progress=False)
