"""Ready-made clouds, and what constructors and policies refuse."""

import numpy as np
import pytest
from combinatorial_cases import SUBJECTS, end, play
from reference import combinatorial as plain

from jaxroute.data import C2MABV_TABLE_1, C2MABV_TABLE_3, RoutingTable
from jaxroute.problems import combinatorial as cb


def test_tables_of_the_paper():
    assert len(C2MABV_TABLE_1.names) == 12
    assert C2MABV_TABLE_1.prices[C2MABV_TABLE_1.names.index("J1-Jumbo")] == 250
    assert len(C2MABV_TABLE_3.names) == 9
    env = cb.sciq_cloud()
    np.testing.assert_allclose(env.outcomes.outcome_mean[0], plain.SCIQ9_MU, atol=1e-6)
    np.testing.assert_allclose(env.price[[0, 1, 8]], [0.0416667, 0.1666667, 1.0], atol=1e-6)
    graded = cb.sciq_cloud(graded=True)
    np.testing.assert_allclose(graded.outcomes.outcome_mean, env.outcomes.outcome_mean, atol=1e-6)


def test_copies_of_one_model():
    """Four independent copies of the cheapest model satisfy the paper's bounds on always asking ChatGLM2."""
    for task, bound, exact in (("awc", 0.18, 1 - 0.976**4), ("suc", 0.10, 0.096), ("aic", 1e-4, 0.024**4)):
        env = cb.copies_of(cb.sciq_cloud(reward=task), "ChatGLM2-6B-32K")
        data = play(env, cb.Everything(), horizon=500, seeds=8)
        assert end(data, "reward").mean() == pytest.approx(exact, rel=1e-4)
        assert end(data, "reward").mean() < bound
        assert end(data, "violation").max() == 0


@pytest.mark.parametrize("task", ["awc", "suc", "aic"])
def test_regret_of_copies_is_against_the_best_set_of_the_cloud(task):
    """What always asking GPT-4 loses, per round: the best set within the budget, or the relaxed one, minus what copies earn."""
    env = cb.sciq_cloud(reward=task)
    copies = cb.copies_of(env, "ChatGPT-4")
    data = play(copies, cb.Everything(), horizon=100, seeds=4)
    earned = end(data, "reward").mean()
    best, relaxed = float(env.best[0, 0]), float(env.best_relaxed[0, 0])
    assert end(data, "lp_regret").mean() == pytest.approx(100 * (relaxed - earned), abs=1e-3)
    share = 1 - np.exp(-1) if task == "awc" else 1.0
    assert end(data, "alpha_regret").mean() == pytest.approx(100 * (share * best - earned), abs=1e-3)
    own = cb.best_set(copies.reward, copies.outcomes.outcome_mean[0], copies.outcomes.cost_mean[0], copies.budget, 4)[1]
    assert abs(best - own) > 0.01 * best  # The copies' own best set is another one.


def test_copies_keep_the_other_conditions():
    env = cb.copies_of(cb.sciq_cloud(reward="awc", arrival=0.5), "ChatGPT-4", copies=1)
    assert float(env.arrival) == 0.5
    assert end(play(env, cb.Everything(), horizon=20, seeds=2), "reward") == pytest.approx(0.398, rel=1e-5)


def plays(policy, **options):
    return lambda: play(cb.sciq_cloud(**options), policy, horizon=5, seeds=1)


def pair(success=(0.5, 0.2), cost=(0.1, 0.2), **options):
    return lambda: cb.parametric_cloud(success, cost, reward="suc", budget=1.0, size=1, **options)


def cloud(**options):
    return lambda: cb.sciq_cloud(**options)


TWO_ROWS = RoutingTable(np.ones((2, 2)), np.ones((2, 2)), ("a", "b"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cloud(groups=[0, 1], size=[1, 1]), "groups must be 9 whole numbers"),
        (cloud(groups=SUBJECTS["groups"], size=4), "size must have shape"),
        (cloud(groups=SUBJECTS["groups"], size=[4, 1, 1]), "size must be whole numbers from 1"),
        (cloud(budget=[0.1, 0.2], **SUBJECTS), "budget must have shape"),
        (cloud(sizes=(1, 4), **SUBJECTS), "sizes must be None"),
        (cloud(arrival=0.0), "arrival must be in"),
        (cloud(costs=cb.ScaledCosts), "costs must be an object"),
        (cloud(reward="any"), "reward must be one of"),
        (cloud(budget=-1.0), "budget must be above 0"),
        (cloud(size=10), "size must be from 1 to 9"),
        (cloud(availability=1.5), "availability must be in"),
        (lambda: cb.uniform_cloud(num_models=14, availability=0.5), "availability needs at most 12 models"),
        (lambda: cb.cloud(None, reward="suc", budget=1.0, size=1), "outcomes must be"),
        (lambda: cb.table_cloud([[0.1]], reward="suc", budget=1.0, size=1), "table must be a RoutingTable"),
        (pair((0.5, 1.2)), "success must be in"),
        (pair(cost=(0.1, -0.2)), "cost must be at least 0"),
        (pair(cost=(0.1,)), "cost must have one column"),
        (pair([[0.5, 0.2]] * 2), "switch must give"),
        (pair([[0.5, 0.2]] * 2, switch=[0, 2.5]), "whole numbers"),
        (pair(correlation=1.0), "correlation"),
        (lambda: cb.copies_of(cb.sciq_cloud(), "GPT-9"), "model must be one of"),
        (lambda: cb.copies_of(cb.sciq_cloud(**SUBJECTS), 0), "env must not have groups"),
        (lambda: cb.copies_of(cb.sciq_cloud(availability=0.5), 0), "env must have no availability"),
        (lambda: cb.copies_of(cb.table_cloud(TWO_ROWS, budget=1.0, size=1), 0), "no independent copies"),
        (plays(cb.CUCB(radius=cb.UnionRadius(-1.0))), "width must be at least 0"),
        (plays(cb.C2MABV(solver=cb.Vertices())), "Vertices is for AnyWin"),
        (plays(cb.C2MABV(solver=cb.Smoothed(-1.0))), "temperature must be above 0"),
        (plays(cb.C2MABV(solver=cb.ProjectedGradient(0.0))), "learning_rate must be"),
        (plays(cb.C2MABV(solver=cb.BestOf(0)), reward="awc"), "steps must be at least 1"),
        (plays(cb.C2MABV(solver=cb.Smoothed)), r"solver must be an object such as BestOf\(\), got"),
        (plays(cb.C2MABV(order="price")), "order must be an object"),
        (plays(cb.C2MABV(prior_pulls=0.5)), "prior_pulls must be whole numbers"),
        (plays(cb.C2MABV(batch=0.5)), "batch must be a whole number"),
        (plays(cb.C2MABV(-1.0)), "reward_width must be at least 0"),
        (plays(cb.C2MABV(delta=2.0)), "delta must be in"),
        (plays(cb.C2MABV(allowed=np.ones(4, bool))), "allowed must have one entry"),
        (plays(cb.C2MABV(allowed=np.zeros(9, bool))), "allowed must leave at least"),
        (plays(cb.OfflineFixed(np.array([0.5]), np.array([0.1]), 0.5, 4)), "one entry per model"),
        (plays(cb.OracleRelaxed.of, availability=0.5), "availability must be None"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
