"""Reservation indices of known distributions, values of the optimal search, of recorded rows and of simple rules."""

import itertools

import numpy as np
import pytest

from jaxroute.problems import cascade as ca


@pytest.mark.parametrize(("x", "value"), [((0, 0), 0.5356009), ((0.5, -0.5), 0.6113105), ((-0.9, 0.8), 0.6207554)])
def test_oracle_value_of_a_request(x, value):
    assert ca.oracle_value(ca.uniform_cascade(), (1, *x)) == pytest.approx(value, abs=2e-6)


def test_tuned_threshold_of_ref():
    threshold, value = ca.tuned_threshold(ca.uniform_cascade(), number=50_000)
    assert threshold == pytest.approx(0.53, abs=0.021)
    assert value == pytest.approx(0.5599, abs=0.003)


def few_rows(seed, models=3, rows=8, levels=2, groups=2):
    """Scores with few values, costs and groups of a few queries, and the environment in which models share them."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.integers(0, levels, (rows, models)) / (levels - 1), 6)
    cost, group = rng.uniform(0.02, 0.4, (rows, models)), rng.permutation(np.arange(rows) % groups)
    return score, cost, group, ca.replay_cascade(score, cost, group, joint=True)


def best_plan(score, cost, group):
    """Mean utility of the best plan, every plan tried: what to do after each history, by itself and all at once."""
    number = score.shape[1]

    def histories(called):
        """What is seen of these models, for each row."""
        return [(g, *((a, row[a]) for a in called)) for g, row in zip(group, score, strict=True)]

    def plans(called, rows):
        """Utilities `[rows]` of every plan for rows that are alike in what was seen of the called models."""
        found = [score[rows, a] for a in called]
        for a in (a for a in range(number) if a not in called):
            seen = [histories((*called, a))[row] for row in rows]
            parts = [[i for i, one in enumerate(seen) if one == value] for value in dict.fromkeys(seen)]
            options = [plans((*called, a), [rows[i] for i in part]) for part in parts]
            for chosen in itertools.product(*options):
                utility = np.empty(len(rows))
                for part, values in zip(parts, chosen, strict=True):
                    utility[part] = values
                found.append(utility - cost[rows, a])
        return found

    total = 0.0
    for g in set(group):
        rows = [i for i, other in enumerate(group) if other == g]
        total += max(float(values.sum()) for values in plans((), rows))
    return total / len(score)


@pytest.mark.parametrize(("models", "levels", "groups"), [(2, 2, 1), (2, 3, 2), (3, 2, 2)])
def test_the_optimum_of_joint_rows_is_the_best_of_all_plans(models, levels, groups):
    for seed in range(5):
        score, cost, group, env = few_rows(seed, models, rows=6, levels=levels, groups=groups)
        assert ca.joint_plan(env).value == pytest.approx(best_plan(score, cost, group), abs=1e-6)


def test_the_optimum_by_features_does_not_know_the_scores():
    """Two models; what the first says tells which one is right, and its own score is not seen."""
    score = np.tile([[1.0, 0.0], [0.0, 1.0]], (10, 1))
    says = np.tile([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 1.0]]], (10, 1, 1))
    silent = np.tile([[[1.0, 0.0], [0.0, 1.0]]] * 2, (10, 1, 1))
    cost, group = np.tile([[0.1, 0.2]], (20, 1)), np.zeros(20, int)
    value = {
        name: ca.joint_plan(ca.replay_cascade(score, cost, group, joint=True, features=table)).value
        for name, table in (("says", says), ("silent", silent))
    }
    # Half of the queries need the second call; where nothing is said, one call is right on half of them.
    assert value["says"] == pytest.approx(1.0 - 0.1 - 0.5 * 0.2, abs=1e-6)
    assert value["silent"] == pytest.approx(0.5 - 0.1, abs=1e-6)


def best_of_all_lists(score, cost):
    """The best list, every subset, order and choice of thresholds tried."""
    levels, best = [-np.inf, *(np.unique(score) + 1e-6)], -np.inf
    for length in range(1, score.shape[1] + 1):
        for models in itertools.permutations(range(score.shape[1]), length):
            for thresholds in itertools.product(levels, repeat=length - 1):
                top, utility, on = score[:, models[0]], -cost[:, models[0]], np.ones(len(score), bool)
                for a, threshold in zip(models[1:], thresholds, strict=True):
                    on = on & (top < threshold)
                    utility = utility - np.where(on, cost[:, a], 0.0)
                    top = np.where(on, np.maximum(top, score[:, a]), top)
                best = max(best, float((top + utility).mean()))
    return best


def test_the_learned_list_is_the_best_list():
    """On small tables the local search ends at the best of all lists, nearly always; it is never worse than simple rules."""
    found = []
    for seed in range(30):
        score, cost, *_ = few_rows(seed, models=3, rows=25, levels=3)
        models, thresholds, utility = ca.best_list(score, cost)
        found.append(utility >= best_of_all_lists(score, cost) - 1e-9)
        assert utility >= max((score - cost).mean(axis=0).max(), ca.best_threshold(score, cost)[1]) - 1e-9
        assert len(models) == len(thresholds) == len(set(models))
    assert np.mean(found) >= 0.9


def test_a_list_is_set_on_what_is_seen():
    """A scorer that is always wrong: whoever trusts it calls the second model where the first is right."""
    score = np.tile([[1.0, 1.0], [0.0, 1.0]], (20, 1))
    cost = np.tile([[0.05, 0.2]], (40, 1))
    seen = np.column_stack([1.0 - score[:, 0], np.full(40, 2.0)])
    assert ca.best_list(score, cost).utility == pytest.approx(1.0 - 0.05 - 0.5 * 0.2)
    # Calling the second one only is best: what the first says has the wrong sign, and a threshold cannot be turned round.
    assert ca.best_list(score, cost, seen).utility == pytest.approx(0.8)
    assert ca.best_list(score, cost, seen).models.tolist() == [1]
