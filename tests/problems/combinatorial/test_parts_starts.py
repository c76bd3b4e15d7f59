"""How a policy begins."""

import numpy as np
import pytest
from combinatorial_cases import TASKS, play

from jaxroute.problems import combinatorial as cb


@pytest.mark.slow
def test_round_robin_sees_every_model_first():
    for task in TASKS:
        env = cb.sciq_cloud(reward=task, sees_all_costs=True)
        data = play(env, cb.C2MABV(start=cb.RoundRobin()), horizon=60, seeds=16, record_every=1)
        pulls = data["pulls"].values  # [seed, time, K]
        seen = (pulls > 0).all(-1)
        assert seen[:, -1].all()
        if task != "awc":
            assert (np.argmax(seen, axis=1) == 2).all()  # ceil(9 / 4) rounds.
