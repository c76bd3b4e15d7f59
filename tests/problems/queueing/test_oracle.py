"""The optimal policy and switches to it."""

import numpy as np
import pytest
from queueing_cases import play, small

import jaxroute as jr
from jaxroute.problems import queueing as qu


@pytest.mark.slow
def test_switching_policies_in_one_trace():
    env = small(horizon=40)
    grid = jr.grid(qu.PolicySwitch, first=qu.QUCB(), second=qu.Optimal.of(env), at=[0, 10, 20, 40])
    before = jr.trace_count()
    data = play(env, {"switch": grid}, horizon=40, record_every=1)
    assert jr.trace_count() == before + 1
    assert (data["queue_regret"].sel(at=0) == 0).all()
    learner = play(env, {"switch": qu.QUCB()}, horizon=40, record_every=1)
    np.testing.assert_array_equal(data["queue_length"].sel(at=40), learner["queue_length"])
    early = data["queue_length"].sel(time=slice(None, 10))
    assert (early.sel(at=10) == early.sel(at=20)).all()
