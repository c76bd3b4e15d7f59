"""The model of all that was played: against formulas in the plain, and what it is for, finding the best of many noisy candidates."""

import numpy as np
import pytest
from scipy import optimize

from jaxroute.tune import ranking, surrogate


def made(generations=6, size=8, seeds=4, luck=1.0, noise=0.5, key=0):
    """Batches of candidates of a bowl in a plane, whose seeds are common to a batch."""
    rng = np.random.default_rng(key)
    batches = []
    for _ in range(generations):
        points = rng.random((size, 2))
        common = luck * rng.normal(size=seeds)
        batches.append((points, truth(points)[:, None] + common + noise * rng.normal(size=(size, seeds))))
    return batches


def truth(points):
    return 5.0 - 4.0 * ((points[:, 0] - 0.3) ** 2 + 0.2 * (points[:, 1] - 0.6) ** 2)


def test_variances_of_common_and_own_luck():
    seen = surrogate.evaluations(made(generations=400, seeds=4, luck=2.0, noise=0.5))
    error = np.sqrt(2 / 1200)  # Relative, of a variance with 400 x 3 degrees of freedom.
    assert len(set(seen.luck)) == 1 and abs(seen.luck[0] / (2.0**2 / 4) - 1) < 4 * error
    assert abs(seen.noise.mean() / (0.5**2 / 4) - 1) < 4 * error / np.sqrt(7)
    alone = surrogate.evaluations([(np.zeros((1, 2)), np.array([[1.0, 2.0, 3.0, 6.0]]))])
    assert alone.noise == pytest.approx([14 / 3 / 4]) and alone.luck == [0.0]  # Squares 4 + 1 + 0 + 9 over 3 and 4 seeds.


def test_prediction_is_that_of_a_normal_distribution_in_the_plain():
    """The joint distribution of all evaluations and of new points, with a level of next to no prior, conditioned by plain inverses."""
    seen = surrogate.evaluations(made())
    model = surrogate.Model(seen)
    new = np.random.default_rng(1).random((5, 2))
    means, deviations = model.predict(new)
    scale, (lengths, size) = np.std(seen.values), (np.exp(model.logs[:2]), np.exp(model.logs[2]))
    every = np.concatenate([seen.points, new])
    distribution = np.empty((len(every), len(every)))
    for i, a in enumerate(every):
        for j, b in enumerate(every):
            r = np.sqrt(5.0 * sum(((a - b) / lengths) ** 2))
            distribution[i, j] = scale**2 * (size * (1 + r + r**2 / 3) * np.exp(-r) + 1e4)
    n = len(seen.values)
    for i in range(n):
        distribution[i, i] += seen.noise[i] + 1e-6 * scale**2
        for j in range(n):
            distribution[i, j] += seen.luck[i] * (seen.batch[i] == seen.batch[j])
    gain = distribution[n:, :n] @ np.linalg.inv(distribution[:n, :n])
    middle = seen.values.mean()
    assert means == pytest.approx(middle + gain @ (seen.values - middle), abs=1e-3 * scale)
    assert deviations**2 == pytest.approx(np.diag(distribution[n:, n:] - gain @ distribution[:n, n:]), rel=1e-2)


def test_lengths_are_the_most_likely():
    model = surrogate.Model(surrogate.evaluations(made()))
    assert model.logs[0] < model.logs[1] - 0.3  # The second leaf matters less.
    for logs in (model.logs, np.array([-1.0, 0.5, 1.0])):
        apart = optimize.check_grad(lambda x: model._unlikely(x)[0], lambda x: model._unlikely(x)[1], logs)
        assert apart < 1e-4 * (1.0 + np.abs(model._unlikely(logs)[1]).max())
    around = [model._unlikely(model.logs + step)[0] for step in 0.05 * np.concatenate([np.eye(3), -np.eye(3)])]
    assert min(around) > model._unlikely(model.logs)[0] - 1e-6


def test_it_finds_better_candidates_than_their_own_means():
    """Of 48 candidates with much common luck: what the choices lose, paired by 60 repeats."""
    gains, inside = [], []
    for key in range(60):
        batches = made(luck=2.0, key=key)
        points = np.concatenate([points for points, _ in batches])
        means, deviations = surrogate.Model(surrogate.evaluations(batches)).predict(points)
        own = np.concatenate([runs.mean(axis=1) for _, runs in batches])
        gains.append(truth(points[[np.argmax(means)]])[0] - truth(points[[np.argmax(own)]])[0])
        inside.append(np.mean(np.abs(means - truth(points)) < 2 * deviations))
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert 0.85 < np.mean(inside) < 1.0


def test_how_bad_the_bad_ones_are_does_not_count():
    points = np.linspace(0, 1, 100)[:, None]
    values = np.where(points[:, 0] < 0.1, -1e6, points[:, 0])
    seen = surrogate.Evaluations(points, values, np.ones(100), np.zeros(100, int), np.zeros(100))
    level = surrogate.without_depths(seen, np.arange(50, 100), 1.0).values
    assert level[:10] == pytest.approx(level[0]) and -2.0 < level[0] < 0.0 and (level[10:] == values[10:]).all()
    least = surrogate.without_depths(seen._replace(values=-values), np.arange(50, 100), -1.0).values
    assert least == pytest.approx(-level)


@pytest.mark.parametrize("bound", [None, 0.5])
def test_more_evaluations_than_a_model_takes(bound):
    """Of 1,600 candidates those count that are best, and keep the bound: less of both is better, and the best by score all break it."""
    goal = ranking.Goal("loss", False, {} if bound is None else {"spend": bound}, {}, 1.0)
    known, rng = surrogate.Knowledge(goal), np.random.default_rng(0)
    for _ in range(100):
        points = rng.random((16, 1))
        values = {
            "loss": (points - 0.2) ** 2 + 0.01 * rng.normal(size=(16, 4)),
            "spend": 1.0 - points + 0.01 * rng.normal(size=(16, 4)),
        }
        known.add(points, values, np.ones((16, 4), bool))
    axis = np.linspace(0, 1, 101)[:, None]
    said = known.at(axis)
    assert said is not None and axis[goal.order(said)[0], 0] == pytest.approx(0.2 if bound is None else 0.51, abs=0.02)
    assert known.at(np.zeros((3, 0))) is None and surrogate.Knowledge(goal).at(axis) is None


def test_invalid_runs_and_those_that_are_no_numbers_teach_nothing():
    goal = ranking.Goal("loss", False, {"spend": 1.0}, {}, 1.0)
    known, rng = surrogate.Knowledge(goal), np.random.default_rng(0)
    points = rng.random((40, 1))
    loss, spend, valid = points + np.zeros((40, 4)), np.zeros((40, 4)), np.ones((40, 4), bool)
    loss[0], spend[1], valid[2] = np.nan, np.inf, False
    known.add(points, {"loss": loss, "spend": spend}, valid)
    said = known.at(points)
    assert said is not None
    assert [one.score[0] for one in said] == pytest.approx(points[:, 0].tolist(), abs=0.1)
