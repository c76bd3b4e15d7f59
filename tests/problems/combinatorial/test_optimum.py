"""The best set and the best relaxed selection."""

import itertools

import numpy as np
import pytest
from combinatorial_cases import SUBJECTS, TASKS, end, play
from reference import combinatorial as plain

from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial import optimum
from jaxroute.problems.combinatorial.parts.rewards import REWARDS


def test_benchmarks():
    values = {"awc": (0.6879891, 0.6938281), "suc": (1.0, 1.0442667), "aic": (2.518992e-4, 4.244515e-4)}
    for task, (best, relaxed) in values.items():
        env = cb.sciq_cloud(reward=task)
        assert float(env.best[0, 0]) == pytest.approx(best, rel=1e-6)
        assert float(env.best_relaxed[0, 0]) == pytest.approx(relaxed, rel=1e-6)
    assert tuple(np.flatnonzero(cb.sciq_cloud(reward="aic").best_selection[0])) == (0, 3, 4, 5)


def test_a_set_that_costs_just_the_budget_is_within_it():
    """Costs that are rounded to float32 may add up to a hair more than the budget."""
    for reward, success, cost, budget, best in (
        ("awc", [0.5, 0.6], [0.1, 0.2], 0.3, 0.8),
        ("suc", [0.5, 0.6, 0.1], [0.1, 0.2, 0.05], 0.3, 1.1),
        ("suc", [0.9, 0.8, 0.7, 0.1], [0.7, 0.2, 0.1, 0.05], 0.9, 1.7),
    ):
        env = cb.parametric_cloud(success, cost, reward=reward, budget=budget, size=2, costs=cb.FixedCosts())
        assert float(env.best[0, 0]) == pytest.approx(best, rel=1e-6)
        data = play(env, cb.Direct(), horizon=1500, seeds=8, record=["regret"])
        assert (end(data, "regret") > -1e-3).all() and (end(data, "regret") < 150).all()


def test_a_group_without_a_set_within_its_budget_does_not_change_the_others():
    mean, cost = [0.5, 0.4, 0.6, 0.7], [0.1, 0.2, 0.3, 0.4]
    for task in TASKS:
        reward = REWARDS[task]
        mask, _ = cb.best_set(reward, mean, cost, [0.05, 1.0], [1, 1], groups=[0, 0, 1, 1])
        np.testing.assert_array_equal(mask, [not reward.cascade, False, False, True])


@pytest.mark.parametrize("task", TASKS)
def test_best_of_groups_by_brute_force(task):
    """The best set over all choices of the groups; the relaxed optimum is between it and what any point of a grid reaches."""
    rng = np.random.default_rng(8)
    reward, groups, size = REWARDS[task], np.array(SUBJECTS["groups"]), SUBJECTS["size"]
    for _ in range(20):
        mean, cost = rng.random((2, 9))
        for budget in (rng.uniform(0.5, 3.0), rng.uniform(0.2, 1.0, 3)):
            choices = []
            for g, n in enumerate(size):
                inside = np.flatnonzero(groups == g)
                numbers = [n] if reward.exact_size else range(n + 1)
                choices.append([c for m in numbers for c in itertools.combinations(inside, m)])
            values = []
            for parts in itertools.product(*choices):
                chosen = np.isin(np.arange(9), np.concatenate([np.array(p, int) for p in parts]))
                spend = cost[chosen].sum() if np.ndim(budget) == 0 else np.bincount(groups, cost * chosen, 3)
                if np.all(spend <= budget + 1e-9):
                    values.append(float(reward.value(chosen, mean, np)))
            mask, value = cb.best_set(reward, mean, cost, budget, size, groups=groups)
            z, relaxed = cb.best_relaxed(reward, mean, cost, budget, size, groups=groups)
            if not values:
                assert (np.bincount(groups[mask], minlength=3) == size).all()
                continue
            assert value == pytest.approx(max(values), rel=1e-9)
            assert task == "aic" or relaxed >= value - 1e-9  # The relaxed reward of a set is its reward, but not for all in.
            spend = cost @ z if np.ndim(budget) == 0 else np.bincount(groups, cost * z, 3)
            assert (spend <= np.asarray(budget) + 1e-7).all()
            filled = np.bincount(groups, z, 3)
            assert (np.abs(filled - size) < 1e-7).all() if reward.exact_size else (filled <= np.array(size) + 1e-7).all()
            if np.ndim(budget) == 0 and reward.exact_size:
                weight = reward.weight(mean, np)
                best = plain.partition_linear_program(weight, cost, [groups == g for g in range(3)], size, budget, True)
                assert weight @ z == pytest.approx(weight @ best, abs=1e-7)


@pytest.mark.parametrize("task", TASKS)
def test_search_and_comparison_agree(task, monkeypatch):
    """40 instances, half of them with two groups, a third with prices in quarters."""
    rng = np.random.default_rng(2)
    for row in range(40):
        mean, cost = rng.random((2, 9))
        if row % 3 == 0:
            cost = np.round(cost * 4) / 4
        groups, size = ([0, 1, 0, 1, 0, 1, 0, 1, 0], [2, 2]) if row % 2 else (None, 4)
        budget, values = rng.random() * 2, []
        for most in (0, 10**9):
            monkeypatch.setattr(optimum, "_MOST_SETS", most)
            monkeypatch.setattr(optimum, "_MOST_CELLS", most)
            values.append(
                [find(REWARDS[task], mean, cost, budget, size, groups=groups)[1] for find in (cb.best_set, cb.best_relaxed)]
            )
        assert values[0] == pytest.approx(values[1], rel=1e-9), row


def test_benchmarks_of_forty_models():
    rng = np.random.default_rng(3)
    mean, cost = rng.random((2, 40))
    mean *= 0.3
    mask, value = cb.best_set(cb.AnyWin(), mean, cost, 2.0, 10)
    z, relaxed = cb.best_relaxed(cb.AnyWin(), mean, cost, 2.0, 10)
    assert cost @ mask <= 2.0 and mask.sum() <= 10 and cost @ z <= 2.0 + 1e-9 and z.sum() <= 10 + 1e-9
    assert value < relaxed < value + 0.02
    assert ((z > 0) & (z < 1)).sum() <= 2
