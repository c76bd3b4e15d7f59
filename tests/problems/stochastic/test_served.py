"""Replays of served requests by queues: by hand, against a float64 loop, and against the full table."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_means_agree, in_double, x64
from reference import served as reference
from reference import stochastic as plain
from replayed_logs import ROWS, K, drawn_log, full_table, random_numbers, recorded, rewards_of, served_log
from stochastic_cases import tie_order

from jaxroute import draws, simulate
from jaxroute.problems import stochastic as st

SEEDS = (0, 5, 12)


def log_of(number=400):
    return {name: x for name, x in recorded(number).items() if name != "contexts"}


def test_rounds_by_hand():
    """Model 0 has two events, model 1 has one: the third choice of model 0 ends the run, and no later round counts."""
    env = st.served_routing(served_log([0, 1, 0], [0.2, 0.4, 0.8], [1, 2, 3], [0.5, 0.25, 0.5], 2), cost_weight=0.1)
    np.testing.assert_array_equal(env.log.retained, 1.0)  # A floor for each model.
    state, rewards, counted = env.init(draws.key(0)), [], []
    for t, model in enumerate([0, 1, 0, 0, 1]):
        state, reward, flows = env.step(draws.key(9), state, jnp.int32(model), jnp.int32(t))
        rewards.append(float(reward))
        counted.append([float(flows[name]) for name in ("accepted", "score", "cost")])
    np.testing.assert_allclose(sorted(rewards[::2][:2]), [0.1, 0.5], atol=1e-6)  # 0.2 - 0.1, 0.8 - 0.3
    assert rewards[1] == pytest.approx(0.2) and rewards[3] == rewards[0], "an empty queue starts again"
    assert counted[1] == [1.0, pytest.approx(0.4), 2.0] and counted[3:] == [[0.0] * 3] * 2


@pytest.mark.parametrize("bootstrap", [False, True])
def test_equals_the_loop_of_the_paper(bootstrap):
    log, horizon = log_of(), 250
    floors = [log["propensities"][log["chosen"] == k].min() for k in range(K)]
    env = st.served_routing(served_log(**log), cost_weight=0.5, bootstrap=bootstrap)
    options = {"record": ["accepted", "reward", "pulls"], "record_every": 1, "progress": False}
    with x64():
        data = simulate(in_double(env), in_double(st.UCB1(width=0.5)), horizon=horizon, seeds=SEEDS, **options).isel(
            policy=0
        )
    for i, seed in enumerate(SEEDS):
        events, uniforms = random_numbers(seed, 400, bootstrap)
        order = tie_order(seed, K)
        renumbered = {**rewards_of(log), "chosen": np.argsort(order)[log["chosen"]]}
        expected = reference.queues(events, uniforms, renumbered, np.array(floors)[order], plain.ucb1(0.5), horizon)
        run, number = data.isel(seed=i), len(expected)
        assert 100 < number < horizon, "a queue is empty before the horizon"
        np.testing.assert_array_equal(run["accepted"], np.minimum(np.arange(1, horizon + 1), number))
        pulls, rewards = (np.diff(run[name].values, axis=0, prepend=0) for name in ("pulls", "reward"))
        np.testing.assert_array_equal(pulls[:number].argmax(1), log["chosen"][expected])
        np.testing.assert_allclose(rewards[:number], rewards_of(log)["rewards"][expected], atol=1e-5)
        assert not pulls[number:].any() and not rewards[number:].any()


HORIZON, RUNS = 50, 2048


def test_the_value_is_that_on_the_full_table():
    """Uniform and other propensities; queues that ignore the latter have other rewards, those of the queries that the log gave to a model."""
    _, scores, prefers = full_table()
    policy, options = st.UCB1(width=0.3), {"horizon": HORIZON, "record_every": HORIZON, "progress": False}

    def row(key, mean, scale):
        return jnp.asarray(scores)[draws.randint(key, ROWS)]

    def replay(probability, floor, number):
        def sampler(key):
            return st.ServedEnv(drawn_log(key, probability, floor, number)[0])

        data = simulate(sampler, policy, seeds=range(RUNS, 2 * RUNS), **options).isel(time=-1)
        assert (data["accepted"] == HORIZON).all()
        return data["reward"].values.ravel() / HORIZON

    table = st.BanditEnv(jnp.asarray(scores.mean(0)), np.float32(0), distribution=row)
    expected = simulate(table, policy, seeds=RUNS, **options)["reward"].values.ravel()
    assert_means_agree(replay(np.full((ROWS, K), np.float32(1 / K)), 1 / K, 300), expected)
    assert_means_agree(replay(prefers, 0.1, 800), expected)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_means_agree(replay(prefers, None, 800), expected)


def test_bad_logs_are_refused():
    for events, options, message in (
        ({"chosen": np.zeros(40, int)}, {}, "log must have answers of each model, got none of model 1"),
        ({}, {"floor": 0.5}, "propensity must be at least floor, 0.5, got"),
    ):
        with pytest.raises(ValueError, match=message):
            st.served_routing(served_log(**log_of(40) | events), **options)
