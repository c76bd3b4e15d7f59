"""Confidence bounds, and spending under a hard budget."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from reference import staged as plain
from staged_cases import EVERYTHING, end

from jaxroute import simulate
from jaxroute.problems import staged
from jaxroute.problems.staged import estimators
from jaxroute.problems.staged.types import Statistics

KNOWN_COSTS = (0.1, 50.0)


def statistics(pulls, reward_sum, cost_sum, dtype=jnp.float32):
    return Statistics.of(jnp.asarray(pulls, jnp.int32), jnp.asarray(reward_sum, dtype), jnp.asarray(cost_sum, dtype))


def test_start_values():
    policy = staged.StageRoute(gamma=0.2)
    nothing = statistics([0], [0.0], [0.0])
    # Lemma 3: mean 0 and radius gamma: U = 2 gamma. One virtual observation: 1 + 2 (sqrt(gamma) + gamma), clipped.
    for estimator, upper, lower in (
        (estimators.EmpiricalMean(), 1.0, 0.3),
        (estimators.Lemma3(), 0.4, 0.3),
        (estimators.PseudoObservation(), 1.0, 0.3),
        (estimators.Prior(reward=0.01, cost=5.0), 0.01 + 2 * (0.002**0.5 + 0.2), 5.0 - 2 * (1.0 + 0.2)),
    ):
        u, c = policy.replace(estimator=estimator).bounds(nothing, (0.3, 50.0))
        assert float(u[0]) == pytest.approx(upper, abs=1e-6), estimator
        assert float(c[0]) == pytest.approx(lower, abs=1e-6), estimator
    small = staged.StageRoute(gamma=0.7, estimator=estimators.Lemma3())
    assert float(small.bounds(nothing, KNOWN_COSTS)[0][0]) == 1.0  # min(1, 2 gamma).


@pytest.mark.parametrize("name", ["mean", "lemma3", "pseudo"])
def test_estimators_against_the_reference(name):
    """Over pulls from 0 to 10^4, means below 0 and above 1, costs at both ends of the clip, and other constants."""
    choices = {"mean": estimators.EmpiricalMean, "lemma3": estimators.Lemma3, "pseudo": estimators.PseudoObservation}
    estimator = choices[name]()
    rng = np.random.default_rng(4)
    pulls = np.concatenate([np.zeros(20, int), rng.integers(1, 40, 150), rng.integers(40, 10_000, 150)])
    reward_sum = pulls * rng.uniform(-0.3, 1.2, pulls.size)
    cost_sum = pulls * 10.0 ** rng.uniform(-2, 2, pulls.size)
    with x64():
        for gamma, factor in ((0.2, 2.0), (14.0, 2.0), (0.05, 1.0)):
            policy = staged.StageRoute(gamma, factor, estimator=estimator)
            u, c = policy.bounds(statistics(pulls, reward_sum, cost_sum, jnp.float64), KNOWN_COSTS)
            expected = plain.bounds(pulls, reward_sum, cost_sum, gamma, 0.1, 50.0, factor, name)
            np.testing.assert_allclose(u, expected[0], atol=1e-12)
            np.testing.assert_allclose(c, expected[1], atol=1e-12)
            assert np.isfinite(u).all()
    u, c = policy.bounds(statistics(pulls, reward_sum, cost_sum), KNOWN_COSTS)
    np.testing.assert_allclose(u, expected[0], atol=2e-6)
    np.testing.assert_allclose(c, expected[1], rtol=2e-6)


@pytest.mark.slow
def test_metrics_of_a_hard_budget_without_one():
    """Queries and reward before the total budget is spent are the same in a run that stops there."""
    options = {"horizon": 6000, "seeds": 24, "record_every": 250, "record": EVERYTHING, "progress": False}
    free, stopped = (  # A policy that spends too much.
        simulate(
            staged.arena_market(max_deployed=6, stage_length=250, horizon=6000, stop_at_budget=stop),
            staged.StageRoute(gamma=14.0),
            **options,
        ).isel(policy=0)
        for stop in (False, True)
    )
    served = end(free, "served")
    assert (served < 6000).mean() > 0.9
    np.testing.assert_array_equal(free["served"].values, stopped["served"].values)
    np.testing.assert_allclose(free["served_reward"].values, stopped["served_reward"].values, atol=1e-2)
    np.testing.assert_allclose(end(stopped, "reward") * 6000, end(free, "served_reward"), atol=1e-2)
    np.testing.assert_array_equal(stopped["pulls"].values.sum(-1), stopped["served"].values)
    # The query that reaches the budget is still served, and none after it.
    spend = end(stopped, "cost") * 6000
    assert (spend >= 2.0 * 6000 - 0.1).all()
    assert (spend < 2.0 * 6000 + 60).all()
    assert (end(free, "cost_ratio") > 1.0).mean() > 0.9
    np.testing.assert_allclose(end(stopped, "cost_ratio"), 1.0, atol=0.01)
