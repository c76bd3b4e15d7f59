"""Ways to keep waiting queries, with the same decisions.

Section numbers are those of `spec/acqb.md`.
"""

import numpy as np
import pytest
from queueing_cases import play as simulated
from queueing_cases import small
from queueing_reference_cases import instance, play

from jaxroute.estimators import mnl
from jaxroute.problems import queueing as rq

slow = pytest.mark.slow

CONTAINERS = {
    "ACQB, K1": (1, lambda env: rq.ACQB(solver=mnl.Newton())),
    "Optimal": (1, rq.Optimal.of),
    "Optimal, fifo": (2, lambda env: rq.Optimal.of(env, fifo=True)),
    "Q-UCB": (1, lambda env: rq.QUCB()),
    "Q-ThS": (1, lambda env: rq.QThS()),
    "ACQB, K2": (2, lambda env: rq.ACQB()),
    "ACQB, fifo": (1, lambda env: rq.ACQB(fifo=True)),
    "CQB-eps": (2, rq.CQBEpsilon.of),
}


@slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_agree_path_by_path(name):
    """4.5: a slot per round and a compact buffer, with the same decisions."""
    K, build = CONTAINERS[name]
    inst = instance(0, 300, 3, 3, K)
    runs = []
    for limit in (None, 60):  # Slots by round, a buffer of two chunks.
        env = inst.env(K, limit)
        runs.append(play(env, build(env)))
    for other in runs[1:]:
        busy = other["queue"] > 0
        for what in ("query", "offered", "chosen", "queue"):
            np.testing.assert_array_equal(other[what][busy], runs[0][what][busy], err_msg=what)
        for what, values in runs[0]["flows"].items():
            np.testing.assert_allclose(other["flows"][what], values, atol=1e-6, err_msg=what)
        for what, values in runs[0]["gauges"].items():
            np.testing.assert_array_equal(other["gauges"][what], values, err_msg=what)
    assert not any(run["flows"]["dropped"].any() for run in runs)


@pytest.mark.slow
def test_a_compact_buffer_plays_the_same_runs():
    policies = {"ACQB": rq.ACQB(solver=mnl.Online()), "Q-UCB": rq.QUCB(), "Optimal": rq.Optimal.of}
    with_slots, compact = (simulated(small(limit=limit), policies) for limit in (None, 100))
    for name in ("queue_length", "routing_regret", "departures"):
        np.testing.assert_allclose(with_slots[name], compact[name], atol=1e-4, err_msg=name)
