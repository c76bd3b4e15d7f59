"""Baselines as a user meets them."""

import math

import pytest
from queueing_cases import play

from jaxroute.problems import queueing as qu


@pytest.mark.slow
def test_acqb_ends_below_cqb_with_three_models_and_with_pairs():
    """Paired over seeds: with three models and with pairs the difference is many standard errors."""
    for options in ({"num_models": 3}, {"num_models": 3, "num_offered": 2}):
        env = qu.RandomQueues(limit=400, **options)
        data = play(env, {"CQB": qu.CQBEpsilon.of, "ACQB": qu.ACQB()}, horizon=1000, seeds=256)
        difference = data["routing_regret"].isel(time=-1).sel(policy="CQB") - data["routing_regret"].isel(time=-1).sel(
            policy="ACQB"
        )
        difference = difference.where(data["valid"].all("policy"), drop=True)
        assert float(difference.mean()) > 3 * float(difference.std(ddof=1)) / math.sqrt(difference.size)
