"""Distributions and tables: where rewards and costs come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, assert_means_agree
from scipy import stats

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import STAGEROUTE_TABLE_2, RoutingTable
from jaxroute.problems import staged

# Distributions and tables.


def draw_many(outcomes, number, seed=0):
    keys = jax.random.split(draws.key(seed), number)
    state = outcomes.init(draws.key(seed + 1))
    reward, cost = jax.jit(jax.vmap(lambda k: outcomes.draw(k, state, jnp.int32(0))))(keys)
    return np.asarray(reward, np.float64), np.asarray(cost, np.float64)


def outcomes_of(
    reward_distribution=staged.distributions.Gaussian(),
    cost_distribution=staged.distributions.Gaussian(relative=True),
    noise=0.1,
):
    return staged.ParametricOutcomes(
        np.array([0.02, 0.4, 0.97]),
        np.array([0.3, 2.0, 15.0]),
        np.float32(noise),
        np.float32(noise),
        reward_distribution,
        cost_distribution,
    )


def test_gaussian_distribution():
    reward, cost = draw_many(outcomes_of(), 200_000)
    for m, (mu, c) in enumerate(((0.02, 0.3), (0.4, 2.0), (0.97, 15.0))):
        assert_mean_close(reward[:, m], mu)
        assert_mean_close(cost[:, m], c)
        assert reward[:, m].std() == pytest.approx(0.1, rel=0.01)  # 6 standard errors of a deviation.
        assert cost[:, m].std() == pytest.approx(0.1 * c, rel=0.01)
        assert stats.kstest((reward[:, m] - mu) / 0.1, "norm").pvalue > 1e-4
    # Rewards and costs are independent, models share the shock of a round.
    assert abs(np.corrcoef(reward[:, 0], cost[:, 0])[0, 1]) < 5 / np.sqrt(200_000)
    np.testing.assert_allclose(reward[:, 0] - 0.02, reward[:, 2] - 0.97, atol=1e-6)
    assert reward.min() < 0 < 1 < reward.max()  # Not clipped.


def test_clipped_gaussian_distribution():
    reward, _ = draw_many(outcomes_of(staged.distributions.Gaussian(clip=(0.0, 1.0))), 200_000)
    assert reward.min() == 0.0
    assert reward.max() == 1.0
    for m, mu in enumerate((0.02, 0.4, 0.97)):
        low, high = (0.0 - mu) / 0.1, (1.0 - mu) / 0.1
        inside = stats.norm.cdf(high) - stats.norm.cdf(low)
        expected = mu * inside + 0.1 * (stats.norm.pdf(low) - stats.norm.pdf(high)) + stats.norm.sf(high)
        assert_mean_close(reward[:, m], expected)


def test_bernoulli_and_fixed_distributions():
    reward, cost = draw_many(outcomes_of(staged.distributions.Bernoulli(), staged.distributions.Constant()), 200_000)
    assert set(np.unique(reward)) == {0.0, 1.0}
    for m, mu in enumerate((0.02, 0.4, 0.97)):
        assert_mean_close(reward[:, m], mu)
    np.testing.assert_array_equal(cost, np.broadcast_to(np.float32([0.3, 2.0, 15.0]), cost.shape))


def test_lognormal_distribution():
    _, cost = draw_many(outcomes_of(cost_distribution=staged.distributions.LogNormal(), noise=1.0), 200_000)
    for m, c in enumerate((0.3, 2.0, 15.0)):
        assert_mean_close(cost[:, m], c)
        logs = np.log(cost[:, m] / c)  # Coefficient of variation 1: sigma^2 = ln 2.
        assert stats.kstest((logs + np.log(2) / 2) / np.sqrt(np.log(2)), "norm").pvalue > 1e-4
    assert cost.min() > 0


@pytest.mark.parametrize(
    "distribution",
    [staged.distributions.TokenCost(), staged.distributions.TokenCost(mean_input=50.0, mean_output=800.0, cap_output=900.0)],
)
def test_token_costs(distribution):
    """The cap is accounted for: the mean stays that of the table, and costs are proportional across models."""
    _, cost = draw_many(outcomes_of(cost_distribution=distribution, noise=1.0), 400_000)
    for m, c in enumerate((0.3, 2.0, 15.0)):
        assert_mean_close(cost[:, m], c)
    np.testing.assert_allclose(cost[:, 2] / cost[:, 0], 50.0, rtol=1e-4)
    assert cost[:, 1].std() > 0.2


def test_stand_in_for_routerbench():
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


def test_table_rows_in_a_permutation():
    """Every query once, in an order that differs from seed to seed, and then all over again."""
    table = small_table()
    market = staged.table_market(table, max_deployed=2, stage_length=10, horizon=100, budget=0.9, one_pass=True)
    outcomes = jax.tree.map(jnp.asarray, market.outcomes)
    orders = []
    for seed in (0, 1):
        state = outcomes.init(draws.key(seed))
        reward = jax.vmap(lambda t, state=state: outcomes.draw(draws.key(9), state, t)[0])(jnp.arange(80))
        row = np.argmin(np.abs(np.asarray(reward)[:, :1] - np.asarray(table.scores)[None, :, 0]), axis=1)
        assert sorted(row[:40]) == list(range(40))
        np.testing.assert_array_equal(row[40:], row[:40])
        orders.append(row[:40])
    assert (orders[0] != orders[1]).any()


def test_runs_over_a_table():
    """With all rows played once the mean reward of a fixed model is the column's mean exactly; its regret is 0."""
    table = small_table()
    market = staged.table_market(table, max_deployed=1, stage_length=40, horizon=40, budget=10.0, one_pass=True)
    data = simulate(market, staged.Oracle.of, horizon=40, seeds=64, record=["reward", "regret"], progress=False)
    assert data["valid"].all()
    best = np.asarray(table.scores).mean(0).max()
    np.testing.assert_allclose(data["reward"].isel(policy=0, time=-1).values, best, rtol=1e-5)
    np.testing.assert_allclose(data["regret"].isel(time=-1).values, 0.0, atol=1e-4)
    assert data["reward"].isel(policy=0, time=10).values.std() > 0.01


@pytest.mark.slow
def test_independent_shocks_give_the_same_distribution():
    """One shock drives all models. A market whose models have shocks of their own has the same mean regret and spread."""

    class Independent(staged.ParametricOutcomes):
        def draw(self, key, state, t):
            del state, t
            size = self.reward_mean.shape[-1]
            shock = draws.normal(key, (2, size))
            return self.reward_mean + self.reward_noise * shock[0], self.cost_mean * (1 + self.cost_noise * shock[1])

    from flax import struct

    Independent = struct.dataclass(Independent)
    shared = staged.arena_market(max_deployed=3, stage_length=500)
    fields = {name: getattr(shared.outcomes, name) for name in ("reward_mean", "cost_mean", "reward_noise", "cost_noise")}
    own = shared.replace(outcomes=Independent(**fields))
    regrets = []
    for env in (shared, own):
        data = simulate(env, staged.StageRoute(), horizon=10_000, seeds=256, record=["conditional_regret"], progress=False)
        regrets.append(data["conditional_regret"].isel(policy=0, time=-1).values)
    assert_means_agree(*regrets)
    assert stats.ks_2samp(*regrets).pvalue > 1e-3
