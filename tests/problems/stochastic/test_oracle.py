"""The oracle of the plain bandit."""

import numpy as np
from stochastic_cases import bandit

from jaxroute import simulate
from jaxroute.problems import stochastic

# Oracle and theory.


def test_oracle_has_no_regret():
    for env in (bandit("bernoulli"), bandit("gaussian")):
        data = simulate(env, stochastic.Oracle.of, horizon=500, seeds=8, record=["regret", "pulls"], progress=False)
        assert np.abs(data["regret"].values).max() == 0.0
        assert (data["pulls"].isel(policy=0, time=-1).values == np.array([0, 500, 0, 0, 0])).all()
