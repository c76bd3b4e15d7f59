"""The paper's bounds."""

import itertools

import numpy as np
import pytest
from combinatorial_cases import end, play

from jaxroute.problems import combinatorial as cb


def test_theorem_bounds():
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.426) == pytest.approx(6201, abs=1)
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.0) == pytest.approx(6197, abs=1)
    assert cb.bound_violation(9, 4, 10_000) == pytest.approx(0.6223, abs=1e-4)
    assert cb.bound_violation(9, 4, 10_000, power=4) > cb.bound_violation(9, 4, 10_000)
    data = play(cb.sciq_cloud(reward="suc"), cb.C2MABV(1.0, 1.0, delta=1 / 2000), horizon=2000, seeds=32)
    assert (end(data, "violation_eq1") <= cb.bound_violation(9, 4, 2000)).all()
    assert (end(data, "regret") <= cb.bound_regret(9, 4, 2000, 1.0, 1.426)).all()


def test_probability_that_a_cascade_observes_everything():
    env = cb.sciq_cloud(reward="awc")
    success = np.asarray(env.outcomes.outcome_mean[0])
    assert cb.least_observed(success, env.price, 4) == pytest.approx(0.28374, abs=1e-5)
    rng = np.random.default_rng(2)
    for _ in range(20):
        success, order = rng.random(6), rng.integers(0, 4, 6)
        ranked = success[np.argsort(order, kind="stable")]
        every = [np.prod(1 - ranked[list(c[:-1])]) for c in itertools.combinations(range(6), 3)]
        assert cb.least_observed(success, order, 3) == pytest.approx(min(every))
