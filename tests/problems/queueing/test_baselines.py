"""Baselines as a user meets them."""

import functools
import math

import pytest
from queueing_cases import play, small

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


WRONG = {
    "CQB-eps without a horizon": (lambda: play(small(), qu.CQBEpsilon()), r"use CQBEpsilon.of\(environment\)"),
    "one at a time with two": (lambda: play(small(num_offered=2), qu.QUCB()), "QUCB shows one answer at a time, got an environment with 2"),
    "a policy that is built wrongly": (lambda: play(small(), functools.partial(qu.CQBEpsilon.of, curvature=-1.0)), "curvature must be at least 0, got -1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()
