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


WRONG = {
    "a switch in the past": (lambda: play(small(), qu.PolicySwitch(qu.ACQB(), qu.Random(), at=-5)), "at must be at least 0, got -5"),
    "a switch from what does not suit": (lambda: play(small(num_offered=2), qu.PolicySwitch(qu.QUCB(), qu.Random(), at=5)), "QUCB shows one answer at a time"),
    "the optimum of another queue": (lambda: play(small(), qu.Optimal(np.ones((2, 2)))), r"theta must have shape \(3, 2\), got theta of shape \(2, 2\)"),
    "the optimum of a sampler": (lambda: qu.Optimal.of(qu.RandomQueues()), "env must be a QueueEnv, got RandomQueues"),
    "an optimum of nothing": (lambda: play(small(), qu.Optimal()), r"use Optimal.of\(environment\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()
