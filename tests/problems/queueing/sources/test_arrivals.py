"""Arrivals in bursts, at rates that change, and to several servers: distributions, plays, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from queueing_cases import play, pool, small

from jaxroute.core import draws
from jaxroute.problems import queueing as qu


def coins(process, rounds, runs, seed=0):
    """Arrivals `[runs, T]`."""

    def run(key):
        def one(state, t):
            arrived, state = process.draw(draws.fold_in(key, t), state, t)
            return state, arrived

        return jax.lax.scan(one, process.init(key), jnp.arange(rounds))[1]

    return np.asarray(jax.jit(jax.vmap(run))(jax.vmap(lambda i: draws.fold_in(draws.key(seed), i))(jnp.arange(runs))))


def test_each_round_has_its_rate_and_later_ones_the_last():
    rates = np.array([0.0, 1.0, 0.25, 0.75])
    share = coins(qu.Rates(rates), 6, 4000).mean(axis=0)
    expected = np.append(rates, [0.75, 0.75])
    assert (np.abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_bursts_have_the_distribution_of_the_chain():
    """Rate, and covariance of neighbours: with two phases it falls by `1 - a - b` a round."""
    process = qu.Bursts.on_off(0.9, mean_on=5.0, mean_off=10.0)
    assert process.mean_rate == pytest.approx(0.3, abs=1e-5)
    came = coins(process, 40, 6000).astype(float)
    error = came.mean(axis=1).std(ddof=1) / np.sqrt(6000)
    assert abs(came.mean() - 0.3) < 4 * error
    assert abs(came[:, 0].mean() - 0.3) < 4 * np.sqrt(0.21 / 6000)  # Stationary from the first round on.
    for lag in (1, 3):
        products = (came[:, lag:] * came[:, :-lag]).mean(axis=1)
        both = 0.9**2 * (1 / 3) * (1 / 3 + 2 / 3 * (1 - 0.2 - 0.1) ** lag)
        assert abs(products.mean() - both) < 4 * products.std(ddof=1) / np.sqrt(6000)


def test_spells_that_alternate_have_a_mean_rate():
    process = qu.Bursts(np.array([0.8, 0.2]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    process.check()
    assert process.mean_rate == pytest.approx(0.5)
    came = coins(process, 20, 4000)
    first = came[:, 0::2].mean(axis=1)
    assert np.abs(came.mean() - 0.5) < 0.01 and first.std() > 0.25  # Half of the runs start with each phase.


def test_a_chain_may_have_many_phases_and_move_slowly():
    process = qu.Bursts(np.linspace(0, 1, 3), np.array([[0.999, 0.001, 0], [0, 0.998, 0.002], [0.004, 0, 0.996]]))
    distribution = np.array([1 / 0.001, 1 / 0.002, 1 / 0.004])
    assert process.mean_rate == pytest.approx((distribution / distribution.sum()) @ np.linspace(0, 1, 3), abs=1e-3)


def test_slots_bring_queries_in_their_first_rounds():
    came = coins(qu.Slots(0.7, servers=3), 12, 3000)
    assert not came[:, np.arange(12) % 3 > 0].any()
    assert abs(came[:, ::3].mean() - 0.7) < 4 * np.sqrt(0.21 / 12000)


@pytest.mark.parametrize("make", [small, pool])
def test_two_servers_keep_up_where_one_does_not(make):
    one = play(make(arrivals=qu.Slots(0.9, servers=1)), qu.Random(), horizon=120)["queue_length"].isel(time=-1)
    two = play(make(arrivals=qu.Slots(0.9, servers=2)), qu.Random(), horizon=120)["queue_length"].isel(time=-1)
    assert float(two.mean()) < 0.5 * float(one.mean())


def test_a_process_of_one_rate_is_the_coin_of_the_source():
    """Not the same inst, but the same distribution; and contexts are what they were."""
    seeds, env = 512, small()
    data = [play(e, qu.Random(), seeds=seeds) for e in (env, small(arrivals=qu.Rates(np.full(120, 0.6))))]
    for name in ("arrivals", "queue_length", "routing_regret"):
        a, b = (d[name].isel(time=-1, policy=0) for d in data)
        error = np.hypot(float(a.std("seed")), float(b.std("seed"))) / np.sqrt(seeds)
        assert abs(float(a.mean()) - float(b.mean())) < 4 * error, name
