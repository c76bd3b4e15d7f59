"""Model of all evaluations: against plain formulas, and in its use, finding the best of many noisy candidates."""

import numpy as np
import pytest
from scipy import optimize

from jaxroute.tune import ranking, surrogate


def batches_of(generations=6, size=8, seeds=4, common=1.0, noise=0.5, key=0):
    """Batches of candidates in a plane with common seeds within a batch."""
    rng = np.random.default_rng(key)
    batches = []
    for _ in range(generations):
        points = rng.random((size, 2))
        shared = common * rng.normal(size=seeds)
        batches.append((points, truth(points)[:, None] + shared + noise * rng.normal(size=(size, seeds))))
    return batches


def truth(points):
    return 5.0 - 4.0 * ((points[:, 0] - 0.3) ** 2 + 0.2 * (points[:, 1] - 0.6) ** 2)


def test_variances_of_common_and_own_noise():
    seen = surrogate.observations_of(batches_of(generations=400, seeds=4, common=2.0, noise=0.5))
    error = np.sqrt(2 / 1200)  # Relative, of a variance with 400 x 3 degrees of freedom.
    assert len(set(seen.common)) == 1 and abs(seen.common[0] / (2.0**2 / 4) - 1) < 4 * error
    assert abs(seen.noise.mean() / (0.5**2 / 4) - 1) < 4 * error / np.sqrt(7)
    alone = surrogate.observations_of([(np.zeros((1, 2)), np.array([[1.0, 2.0, 3.0, 6.0]]))])
    assert alone.noise == pytest.approx([14 / 3 / 4]) and alone.common == [0.0]  # Squares 4 + 1 + 0 + 9 over 3 and 4 seeds.


def test_prediction_is_that_of_the_joint_normal_distribution():
    """The joint distribution of all evaluations and of new points, with a nearly flat prior of the level, conditioned by plain inverses."""
    seen = surrogate.observations_of(batches_of())
    model = surrogate.GaussianProcess(seen)
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
            distribution[i, j] += seen.common[i] * (seen.batch[i] == seen.batch[j])
    gain = distribution[n:, :n] @ np.linalg.inv(distribution[:n, :n])
    middle = seen.values.mean()
    assert means == pytest.approx(middle + gain @ (seen.values - middle), abs=1e-3 * scale)
    assert deviations**2 == pytest.approx(np.diag(distribution[n:, n:] - gain @ distribution[:n, n:]), rel=1e-2)


def test_lengths_are_the_most_likely():
    model = surrogate.GaussianProcess(surrogate.observations_of(batches_of()))
    assert model.logs[0] < model.logs[1] - 0.3  # The second hyperparameter matters less.
    for logs in (model.logs, np.array([-1.0, 0.5, 1.0])):
        value, slope = (lambda x, i=i: model._negative_log_posterior(x)[i] for i in (0, 1))
        apart = optimize.check_grad(value, slope, logs)
        assert apart < 1e-4 * (1.0 + np.abs(model._negative_log_posterior(logs)[1]).max())
    around = [model._negative_log_posterior(model.logs + step)[0] for step in 0.05 * np.concatenate([np.eye(3), -np.eye(3)])]
    assert min(around) > model._negative_log_posterior(model.logs)[0] - 1e-6


def test_it_finds_better_candidates_than_their_own_means():
    """Of 48 candidates with much common noise: the losses of the choices, paired, in 60 repeats."""
    gains, inside = [], []
    for key in range(60):
        batches = batches_of(common=2.0, key=key)
        points = np.concatenate([points for points, _ in batches])
        means, deviations = surrogate.GaussianProcess(surrogate.observations_of(batches)).predict(points)
        own = np.concatenate([runs.mean(axis=1) for _, runs in batches])
        gains.append(truth(points[[np.argmax(means)]])[0] - truth(points[[np.argmax(own)]])[0])
        inside.append(np.mean(np.abs(means - truth(points)) < 2 * deviations))
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(len(gains))
    assert 0.85 < np.mean(inside) < 1.0


def test_differences_among_poor_candidates_do_not_count():
    points = np.linspace(0, 1, 100)[:, None]
    values = np.where(points[:, 0] < 0.1, -1e6, points[:, 0])
    seen = surrogate.Observations(points, values, np.ones(100), np.zeros(100, int), np.zeros(100))
    level = surrogate.without_outliers(seen, np.arange(50, 100), 1.0).values
    assert level[:10] == pytest.approx(level[0]) and -2.0 < level[0] < 0.0 and (level[10:] == values[10:]).all()
    least = surrogate.without_outliers(seen._replace(values=-values), np.arange(50, 100), -1.0).values
    assert least == pytest.approx(-level)


@pytest.mark.parametrize("bound", [None, 0.5])
def test_more_evaluations_than_a_model_uses(bound):
    """The best of 1,600 candidates count that satisfy the bound; less of both is better, and the best by score all violate it."""
    goal = ranking.Goal("loss", False, {} if bound is None else {"spend": bound}, {}, 1.0)
    model, rng = surrogate.Surrogate(goal), np.random.default_rng(0)
    for _ in range(100):
        points = rng.random((16, 1))
        noise = 0.01 * rng.normal(size=(2, 16, 4))
        values = {"loss": (points - 0.2) ** 2 + noise[0], "spend": 1.0 - points + noise[1]}
        model.add(points, values, np.ones((16, 4), bool))
    axis = np.linspace(0, 1, 101)[:, None]
    estimates = model.at(axis)
    expected = 0.2 if bound is None else 0.51
    assert estimates is not None and axis[goal.order(estimates)[0], 0] == pytest.approx(expected, abs=0.02)
    assert model.at(np.zeros((3, 0))) is None and surrogate.Surrogate(goal).at(axis) is None


def test_invalid_and_infinite_runs_are_ignored():
    goal = ranking.Goal("loss", False, {"spend": 1.0}, {}, 1.0)
    model, rng = surrogate.Surrogate(goal), np.random.default_rng(0)
    points = rng.random((40, 1))
    loss, spend, valid = points + np.zeros((40, 4)), np.zeros((40, 4)), np.ones((40, 4), bool)
    loss[0], spend[1], valid[2] = np.nan, np.inf, False
    model.add(points, {"loss": loss, "spend": spend}, valid)
    estimates = model.at(points)
    assert estimates is not None
    assert [one.score[0] for one in estimates] == pytest.approx(points[:, 0].tolist(), abs=0.1)
