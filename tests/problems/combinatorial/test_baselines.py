"""Baselines, and policies for which all means are known, over whole runs."""

import numpy as np
import pytest
from combinatorial_cases import RECORD, SUBJECTS, TASKS, end, play
from helpers import assert_mean_close

from jaxroute import simulate
from jaxroute.data import C2MABV_TABLE_3
from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial.instances import BUDGETS


@pytest.mark.parametrize(
    ("task", "policy", "reward", "violation"),
    [
        ("suc", cb.OracleRelaxed.of, 1.0442667, 0.0744),
        ("suc", cb.OracleInteger.of, 1.0, None),
        ("suc", cb.CUCB(), 1.392, None),
        ("suc", cb.Thompson(), 1.4142, None),
        ("suc", cb.Thompson(cb.NormalPosterior()), 1.4151, None),
        ("awc", cb.CUCB(), 0.821, None),
        ("awc", cb.Direct(), 0.687, 0.0041),
    ],
)
def test_figures_of_the_notes(task, policy, reward, violation):
    data = play(cb.sciq_cloud(reward=task), policy, horizon=10_000, seeds=32)
    assert data["valid"].all()
    assert abs(end(data, "reward").mean() - reward) < 2e-3
    if violation is not None:
        assert abs(end(data, "violation").mean() - violation) < 1e-3


@pytest.mark.slow
def test_offline_set_follows_the_shift():
    """With the shifted means of the notes the offline optimum at a budget of .45 is Mixtral alone, online it is not."""
    shifted = [0.02, 0.15, 0.40, 0.12, 0.08, 0.10, 0.30, 0.62, 0.70]
    mask, _ = cb.best_set(cb.AnyWin(), shifted, C2MABV_TABLE_3.prices / 0.12, 0.45, 4)
    assert tuple(np.flatnonzero(mask)) == (7,)
    env = cb.sciq_cloud(reward="awc", costs=cb.FixedCosts())
    offline = play(env, cb.OfflineFixed.of(env, np.asarray(shifted), sample_size=4000), horizon=200, seeds=8)
    assert (end(offline, "pulls")[:, 7] == 200).all()


@pytest.mark.parametrize("models", [9, pytest.param(13, marks=pytest.mark.slow)])
def test_direct_without_a_bound_on_the_size(models):
    env = cb.uniform_cloud(num_models=models, reward="aic", size=3, budget=1.0, any_size=True)
    data = play(env, cb.Direct(solver=cb.BestSet(any_size=True)), horizon=300, seeds=4, record=["num_selected"])
    assert data["valid"].all()
    assert ((end(data, "num_selected") >= 1) & (end(data, "num_selected") < 2)).all()  # All in: the best set is one model.


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_one_group_is_none(task):
    """The same draws without rounding: one group of all models, and one budget for it, change nothing."""
    made = [
        cb.sciq_cloud(reward=task, **more)
        for more in ({}, {"groups": [0] * 9, "size": [4]}, {"groups": [0] * 9, "size": [4], "budget": [BUDGETS[task]]})
    ]
    plays = [
        simulate(env, {"CUCB": cb.CUCB(), "Direct": cb.Direct()}, horizon=200, seeds=8, record=RECORD, progress=False)
        for env in made
    ]
    assert all(p["valid"].all() for p in plays)
    for other in plays[1:]:
        for name in RECORD:
            np.testing.assert_allclose(plays[0][name], other[name], rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("budget", [0.9, [0.3, 0.15, 0.6]])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_groups_are_learned(task, budget):
    """Every policy keeps the groups; C2MAB-V comes near the relaxed optimum within its budgets."""
    env = cb.sciq_cloud(reward=task, budget=budget, **SUBJECTS)
    policies = {
        "C2MABV": cb.C2MABV(), "Direct": cb.Direct(), "CUCB": cb.CUCB(), "Thompson": cb.Thompson(cb.NormalPosterior()),
        "EpsilonGreedy": cb.EpsilonGreedy(), "RandomSet": cb.RandomSet(), "RoundRobin": cb.C2MABV(start=cb.RoundRobin()),
        "OfflineFixed": cb.OfflineFixed.of, "OracleInteger": cb.OracleInteger.of,
    }  # fmt: skip
    data = simulate(env, policies, horizon=3000, seeds=32, record_every=3000, record=RECORD, progress=False).isel(time=-1)
    assert data["valid"].all()
    mean = data.mean("seed")
    own = mean.sel(policy="C2MABV")
    assert float(own["violation_eq1"]) < 0.05
    if task != "aic":  # The relaxed reward of all in is below what rounding earns.
        assert abs(float(own["lp_regret"])) < 0.03 * 3000 * float(env.best_relaxed[0, 0])
    assert float(own["violation"]) < float(mean["violation"].sel(policy="RandomSet"))
    np.testing.assert_allclose(mean["regret"].sel(policy="OracleInteger"), 0, atol=0.05)


@pytest.mark.parametrize(
    ("task", "budget"),
    [
        pytest.param(task, budget, marks=() if (task, budget) in (("suc", "common"), ("awc", "own")) else pytest.mark.slow)
        for task in TASKS
        for budget in ("common", "own")
    ],
)
def test_oracle_of_groups(task, budget):
    """Its mean cost meets every budget, sum up earns the relaxed optimum, and its sets take as many of each group as they may."""
    budget = {"common": 0.9, "own": [0.3, 0.15, 0.6]}[budget]
    env = cb.sciq_cloud(reward=task, costs=cb.FixedCosts(), budget=budget, **SUBJECTS)
    data = play(env, cb.OracleRelaxed.of, horizon=500, seeds=64)
    assert data["valid"].all()
    relaxed = float(env.best_relaxed[0, 0])
    if task == "suc":
        assert_mean_close(end(data, "reward"), relaxed, what="reward")
    else:
        assert end(data, "reward").mean() >= relaxed - 5e-3 * relaxed
    assert end(data, "violation_eq1").mean() < 0.02
