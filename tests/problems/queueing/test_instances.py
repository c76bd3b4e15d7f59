"""Ready-made queues: what is refused, and horizons that do not fit."""

import numpy as np
import pytest
from queueing_cases import THETA, play, pool, small

from jaxroute.data import RoutingTable
from jaxroute.problems import queueing as qu

WRONG = {
    "arrivals too many": (lambda: small(arrival_rate=1.2), r"arrival_rate must be in \[0, 1\], got 1.2"),
    "no room for slack": (lambda: small(arrival_rate=0.9, slack=0.2), r"arrival_rate \+ slack must be below 1, got 0.9 \+ 0.2"),
    "negative slack": (lambda: small(slack=-0.1), "slack must be at least 0, got -0.1"),
    "too many answers": (lambda: small(num_offered=4), "num_offered must be from 1 to 3, got 4"),
    "parameters of one model": (lambda: qu.fixed_queue([1.0, 2.0]), r"theta must have shape \[N, d\], one row per model, got \(2,\)"),
    "NaN parameters": (lambda: qu.fixed_queue([[1.0, float("nan")]]), r"theta must be finite, got nan at index \(0, 1\)"),
    "no horizon": (lambda: small(horizon=0), "horizon must be at least 1, got 0"),
    "no room": (lambda: small(limit=0), "limit must be at least 1, got 0"),
    "certain acceptance": (lambda: qu.pool_queue(np.ones((2, 1)), [[0.5], [1.0]], arrival_rate=0.5), r"probability must be above 0 and below 1, got 1 at index \(1, 0\)"),
    "tables of other lengths": (lambda: qu.pool_queue(np.ones((3, 1)), [[0.5], [0.4]], arrival_rate=0.5), r"same P, got \(3, 1\) and \(2, 1\)"),
    "features of a pool by column": (lambda: pool().contexts.replace(features=np.ones((2, 12))).check(), r"features must have shape \[P, d\] with P = 12, a row per prompt, got \(2, 12\)"),
    "recorded contexts of another size": (lambda: qu.recorded_queue(THETA, [1, 0], np.ones((2, 3)), [0.1, 0.2]), r"contexts must have shape \[T, d\] with d = 2, got \(2, 3\)"),
    "a uniform of 2": (lambda: qu.recorded_queue(THETA, [1, 0], np.ones((2, 2)), [0.1, 2.0]), r"uniforms must be in \[0, 1\], got 2 at index \(1,\)"),
    "sizes of a fixed queue": (lambda: small(num_models=3), "setting must be one of"),
    "half a model": (lambda: qu.RandomQueues(num_models=2.5).check(), "num_models must be a whole number at least 1, got 2.5"),
    "other parameters": (lambda: qu.RandomQueues().of(np.ones((3, 5))), r"theta must have shape \(5, 5\), got \(3, 5\)"),
    "half an arrival": (lambda: qu.recorded_queue(THETA, [0.5, 1], np.ones((2, 2)), [0.1, 0.2]), "arrivals must be True or False, got 0.5"),
    "one parameter": (lambda: qu.recorded_queue(1.0, [1, 1], np.ones((2, 2)), [0.1, 0.2]), "theta must have shape"),
    "too few arrivals": (lambda: pool(recorded=([1, 0], [0, 1, 2], [0.1, 0.2, 0.3])), r"arrivals must have shape \(3,\), got \(2,\)"),
    "a prompt too many": (lambda: pool(recorded=([1, 0], [0, 12], [0.1, 0.2])), "prompts must be whole numbers below 12, got 12"),
    "two recorded arrays": (lambda: pool(recorded=([1, 0], [0, 1])), "recorded must be three arrays"),
    "names as one word": (lambda: pool(names="abc"), "names must be a list of names, got 'abc'"),
    "an array as a table": (lambda: qu.table_queue(np.ones((2, 2))), "table must be a RoutingTable"),
    "a table without features": (lambda: qu.table_queue(RoutingTable(np.ones((2, 2)), np.ones((2, 2)), ("a", "b"))), "table must have features"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()


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
