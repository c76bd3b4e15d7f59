"""Bounds and rules of the paper, and probes."""

import math

import numpy as np
import pytest
from cascade_cases import as_numpy, moment_of, play, runs, unknown

from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts.radii import TheoreticalRadius
from jaxroute.problems.cascade.parts.streaming import StreamingNewton
from jaxroute.problems.cascade.theory import design_growth, evaluator_error, index_error, potential_bound, ridge_rule


def test_elliptical_potentials_stay_below_their_bound():
    data = runs()
    for policy in ("COSMOS", "theory"):
        number, potential = (data[name].sel(policy=policy).values for name in ("samples", "potential"))
        assert (potential <= potential_bound(number, 3, math.sqrt(3), 1.0)).all()
    assert (data["samples"].sel(policy="theory").isel(time=-1) == 121).all()
    # The bound is not idle: it is within a factor of eight where all is opened.
    assert (potential.max() * 8) > potential_bound(121, 3, math.sqrt(3), 1.0)
    state = as_numpy(unknown())[-1]
    deployed = np.arange(81) - 1
    bound = potential_bound(np.maximum(deployed, 0), 2, math.sqrt(5), 1.0)
    assert (state.score_potential <= bound + 1e-6).all()


def test_probes_measure_the_estimates():
    """In the frozen cascade the design matrix does not grow in the direction of a request that is always zero."""
    env = ca.frozen_cascade()
    probes = {
        "growth": design_growth,
        "index_error": index_error,
        "evaluator_error": evaluator_error,
        "x": lambda env, policy, env_state, state, t: env_state,
        "rho": lambda env, policy, env_state, state, t: state.rho,
        "theta": lambda env, policy, env_state, state, t: state.evaluation.state.theta,
    }
    data = play(env, ca.COSMOS(fit=StreamingNewton(), eta0=2.0), horizon=100, seeds=32, record_every=50, probes=probes)
    data = data.isel(policy=0)
    x = data["x"].values
    assert (x == x[:, :1]).all() and 4 < x[:, 0].sum() < 28
    np.testing.assert_allclose(data["growth"].values[x == 0], 2.0, rtol=1e-5)
    assert (data["growth"].values[x == 1] > 2.1).all()
    assert (data["theta"].values[x == 0][:, 0] == 0).all()  # And nothing is learned there.
    error = np.linalg.norm(data["rho"].values - np.asarray(env.index).T, axis=-2)
    np.testing.assert_allclose(data["index_error"].values, error, atol=1e-5)
    error = np.linalg.norm(data["theta"].values - [0.1, 1.0], axis=-1)
    np.testing.assert_allclose(data["evaluator_error"].values, error, atol=1e-5)
    assert data["valid"].all()


def test_rule_of_the_ridges():
    rule = ridge_rule
    np.testing.assert_allclose(rule(num_models=3, dim=3, feature_dim=5), [1.968, 0.9623], atol=5e-4)
    np.testing.assert_allclose(rule(num_models=3, dim=5, feature_dim=16), [2.991, 1.785], atol=5e-4)
    assert rule(3, 3, 5, corrected=True).eta0 == pytest.approx(0.673, abs=5e-4)
    assert rule(3, 5, 16, corrected=True).eta0 == pytest.approx(1.307, abs=5e-4)
    assert rule(3, 3, 5, corrected=True).eta1 == rule(3, 3, 5).eta1


def test_bound_of_the_regret():
    """Far above the trivial bound `(2 K + 1) T`."""
    known = ca.regret_bound(ca.uniform_cascade().spec, 10_000)
    assert known == pytest.approx(3.2e6, rel=0.02)
    potential = 4 * 3 * math.log(1 + 10_000)
    assert float(potential_bound(10_000, 3, math.sqrt(3), 1.0)) == pytest.approx(potential)
    B = float(TheoreticalRadius().index_radius(moment_of(n=10_000))[0])
    assert known == pytest.approx(2 * B * 3 * math.sqrt(10_000 * potential), rel=1e-5)
