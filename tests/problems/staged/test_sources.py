"""Rewards and costs: parametric distributions and tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close
from scipy import stats

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import STAGEROUTE_TABLE_2, RoutingTable
from jaxroute.problems import staged


def draw_many(outcomes, number, seed=0):
    keys = jax.random.split(draws.key(seed), number)
    state = outcomes.init(draws.key(seed + 1))
    reward, cost = jax.jit(jax.vmap(lambda k: outcomes.draw(k, state, jnp.int32(0))))(keys)
    return np.asarray(reward, np.float64), np.asarray(cost, np.float64)


def test_rewards_and_costs_are_independent():
    outcomes = staged.ParametricOutcomes(
        np.array([0.02, 0.4, 0.97]), np.array([0.3, 2.0, 15.0]), np.float32(0.1), np.float32(0.1)
    )
    reward, cost = draw_many(outcomes, 200_000)
    for m, (mean, price) in enumerate(((0.02, 0.3), (0.4, 2.0), (0.97, 15.0))):
        assert_mean_close(reward[:, m], mean)
        assert_mean_close(cost[:, m], price)
        assert reward[:, m].std() == pytest.approx(0.1, rel=0.01)  # 6 standard errors of a deviation.
        assert cost[:, m].std() == pytest.approx(0.1 * price, rel=0.01)
    assert abs(np.corrcoef(reward[:, 0], cost[:, 0])[0, 1]) < 5 / np.sqrt(200_000)


def test_routerbench_market():
    """Means of the published table, within five standard errors for each of 22 columns; coefficient of variation 1."""
    reward, cost = draw_many(staged.routerbench_market().outcomes, 300_000)
    for m, (score, price) in enumerate(zip(STAGEROUTE_TABLE_2.scores, STAGEROUTE_TABLE_2.costs, strict=True)):
        assert_mean_close(reward[:, m], score)
        assert_mean_close(cost[:, m] * 1e4, price * 1e4)
        assert cost[:, m].std() / price == pytest.approx(1.0, abs=0.1)


def small_table(rows=40):
    rng = np.random.default_rng(3)
    return RoutingTable(rng.random((rows, 3)), rng.random((rows, 3)), ("a", "b", "c"))


def test_table_rows_with_replacement():
    table = small_table()
    market = staged.table_market(table, max_deployed=2, stage_length=10, horizon=100, budget=0.9)
    outcomes = jax.tree.map(jnp.asarray, market.outcomes)
    reward, cost = draw_many(outcomes, 40_000)
    np.testing.assert_allclose(outcomes.reward_mean, np.asarray(table.scores).mean(0), rtol=1e-6)
    row = np.argmin(np.abs(reward[:, :1] - np.asarray(table.scores)[None, :, 0]), axis=1)
    np.testing.assert_allclose(reward, np.asarray(table.scores)[row], atol=1e-7)
    np.testing.assert_allclose(cost, np.asarray(table.costs)[row], atol=1e-7)  # Both of the same query.
    counts = np.bincount(row, minlength=40)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_runs_over_a_table():
    """With every row once the mean reward of a fixed model is exactly the column's mean; its regret is 0."""
    table = small_table()
    market = staged.table_market(table, max_deployed=1, stage_length=40, horizon=40, budget=10.0, one_pass=True)
    data = simulate(market, staged.Oracle.of, horizon=40, seeds=64, record=["reward", "regret"], progress=False)
    assert data["valid"].all()
    best = np.asarray(table.scores).mean(0).max()
    np.testing.assert_allclose(data["reward"].isel(policy=0, time=-1).values, best, rtol=1e-5)
    np.testing.assert_allclose(data["regret"].isel(time=-1).values, 0.0, atol=1e-4)
    assert data["reward"].isel(policy=0, time=10).values.std() > 0.01
