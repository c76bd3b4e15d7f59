"""Policies that know the environment."""

import numpy as np
import pytest
from cascade_cases import assert_near, play

from jaxroute import metrics
from jaxroute.problems import cascade as ca


def both_right(rows=50):
    """Two models that are right on the same half of the queries: if the cheap one is wrong the dear one is wrong, too."""
    score = np.tile([[1.0, 1.0], [0.0, 0.0]], (rows, 1))
    return ca.replay_cascade(score, np.tile([[0.05, 0.3]], (2 * rows, 1)), np.zeros(2 * rows, int), joint=True)


def test_the_search_by_true_indices_is_not_the_best_where_models_fail_on_the_same_queries():
    """One call earns .45. The indices know nothing of that: after a failure of the cheap model they call the dear one as well, and
    earn .5 - .05 - .5 * .3 = .3.
    """
    env = both_right()
    policies = {"indices": ca.TrueIndexSearch.of, "joint": ca.JointOracle.of(env)}
    data = play(env, policies, horizon=1000, seeds=16, record=["utility"], record_every=1000).isel(time=-1)
    assert data["valid"].all()
    utility = {name: data["utility"].sel(policy=name) for name in policies}
    assert_near(utility["indices"], 0.30, 0.0, "search by the true indices")
    assert ca.joint_plan(env).value == pytest.approx(0.45, abs=1e-6)
    assert_near(utility["joint"], 0.45, 0.0, "joint optimum")
    with pytest.warns(UserWarning, match="Oracle is not the best policy where all models answer the same query"):
        ca.Oracle.of(env)


@pytest.mark.slow
@pytest.mark.parametrize("scored", [False, True])
def test_the_joint_optimum_earns_what_its_plan_says(scored):
    """On rows that do not depend on each other in any simple way, by scores and by features."""
    rng = np.random.default_rng(3)
    hard = rng.random(60)
    score = (rng.random((60, 3)) > hard[:, None] * [1.2, 0.9, 0.6]).astype(float)
    cost, group = rng.uniform(0.5, 1.0, (60, 3)) * [0.03, 0.1, 0.3], (hard > rng.random(60)).astype(int)
    sure = np.round(2 * (0.5 * score + 0.5 * rng.random((60, 3)))) / 2
    features = np.stack([np.ones((60, 3)), sure], axis=-1) if scored else None
    env = ca.replay_cascade(score, cost, group, joint=True, features=features)
    plan = ca.joint_plan(env)
    policies = {
        "joint": ca.JointOracle(plan),
        "indices": ca.TrueIndexSearch.of,
        "one": ca.BestSingle.of,
        "all": ca.QueryAll(),
    }
    data = play(env, policies, horizon=2000, seeds=64, record=["utility"])
    assert data["valid"].all()
    joint = data["utility"].sel(policy="joint").isel(time=-1)
    assert_near(joint, plan.value, 0.0, "joint optimum")
    gap = metrics.paired(data, "utility", "joint").isel(time=-1)
    assert (gap["mean"] - 3 * gap["stderr"]).max() <= 0, "nobody earns more"


@pytest.mark.slow
def test_the_learned_list_earns_what_it_earned_on_its_rows():
    """Played on the rows that it was fitted on; a model that is left out is never called."""
    rng = np.random.default_rng(4)
    score = (rng.random((80, 4)) < [0.3, 0.6, 0.6, 0.9]).astype(float)
    score[:, 2] = score[:, 1]  # The same answers for more money.
    cost = np.tile([[0.02, 0.05, 0.15, 0.3]], (80, 1))
    env = ca.replay_cascade(score, cost, np.zeros(80, int), joint=True)
    found = ca.best_list(score, cost)
    assert 2 not in found.models
    data = play(env, {"list": ca.Frugal.fit(score, cost)}, horizon=2000, seeds=32, record=["utility", "opened"])
    assert_near(data["utility"].isel(policy=0, time=-1), found.utility, 0.0, "list")
    assert float(data["opened"].isel(policy=0, time=-1, model=2).max()) == 0.0
