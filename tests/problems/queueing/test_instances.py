"""Ready-made queues: what is refused, and horizons that do not fit."""

import numpy as np
import pytest
from queueing_cases import play, pool, small

from jaxroute.problems import queueing as qu


@pytest.mark.slow
@pytest.mark.parametrize("make", [small, lambda **o: small(limit=50, **o), pool])
def test_another_horizon_than_the_queues_is_warned_of_and_flagged(make):
    with pytest.warns(UserWarning, match="made for a horizon of 40 rounds, the run has 60"):
        data = play(make(horizon=40), qu.Random(), horizon=60, seeds=8)
    assert not data["valid"].any() and (data["after_horizon"] == 20).all()
    with pytest.warns(UserWarning, match="made for a horizon of 40 rounds, the run has 30"):
        data = play(make(horizon=40), qu.Random(), horizon=30, seeds=8)
    assert data["valid"].all()


def test_how_many_contexts_are_kept():
    """With one feature and a parameter of 2, sigmoid(2 x) >= .7 needs x >= log(7 / 3) / 2: a share p of [-1, 1]."""
    share = (1.0 - np.log(7.0 / 3.0) / 2.0) / 2.0
    error = (share * (1.0 - share) / 100_000) ** 0.5
    one = qu.describe_contexts(qu.fixed_queue([[2.0]], arrival_rate=0.6, slack=0.1), contexts=100_000)
    assert one["accepted"] == one["least"] == pytest.approx(share, abs=5 * error)
    assert one["valid"] == pytest.approx((1 - 0.6 * (1 - one["accepted"]) ** 64) ** 1000, rel=1e-12)
    pair = qu.RandomQueues(num_models=2, dim=1, pair_features=True, spread=2.0, arrival_rate=0.6, slack=0.1).of(np.ones(1))
    two = qu.describe_contexts(pair, contexts=100_000)  # Contexts on [-2, 2], the better of two models.
    single = (1.0 - np.log(7.0 / 3.0) / 2.0) / 2.0
    assert two["accepted"] == pytest.approx(1 - (1 - single) ** 2, abs=5 * error)
    of_many = qu.describe_contexts(qu.RandomQueues(num_models=3), instances=8)
    assert 0 < of_many["least"] < of_many["accepted"] < 1
    with pytest.raises(ValueError, match="queues must be RandomQueues or a queue with random contexts, got"):
        qu.describe_contexts(pool())


def test_parameters_that_serve_hardly_any_context_are_warned_of():
    with pytest.warns(UserWarning, match=r"theta serves 0 % of the contexts .* some 100 % of runs of 1,000 rounds"):
        qu.fixed_queue([[0.1, 0.1]])
