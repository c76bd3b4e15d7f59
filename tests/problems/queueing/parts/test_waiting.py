"""Waiting times and what else a queue's user asks: percentiles, the oldest query, contexts that were not kept, recorded coins."""

import numpy as np
import pytest
import xarray as xr
from queueing_cases import THETA, play, pool, small

import jaxroute as jr
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing.parts.waiting import WAITS, class_of


def test_classes_are_exact_at_first_and_narrow_later():
    assert WAITS[:64].tolist() == list(range(1, 65)) and (np.diff(WAITS) > 0).all()
    above = WAITS[63:].astype(float)
    assert ((above[1:] - 1) / above[:-1] < 1.091).all()
    for waited in (1, 63, 64, 65, 1000, 10**7):
        place = np.flatnonzero(np.asarray(class_of(np.int32(waited))))
        assert place.size == 1 and WAITS[place[0]] <= waited and (place[0] + 1 == len(WAITS) or waited < WAITS[place[0] + 1])


def fifo(env, horizon, **options):
    """Runs whose queries leave in the order of their arrival, so that waiting times follow from two counts."""
    names = ["waiting_times", "oldest_wait", "sojourn", "departures", "arrivals"]
    return jr.simulate(
        env, qu.ACQB(fifo=True, c1=0.0), horizon=horizon, record=names, record_every=1, progress=False, **options
    )


def test_waiting_times_and_the_oldest_query_follow_from_arrivals_and_departures():
    data = fifo(small(), 120, seeds=8).isel(policy=0)
    for run in range(8):
        came, left = (
            np.diff(data[name].isel(seed=run).values, prepend=0.0).astype(int) for name in ("arrivals", "departures")
        )
        arrivals, waited, oldest = [], [], []
        for t in range(120):
            oldest.append(t - arrivals[0] if arrivals else 0)
            if left[t]:
                waited.append(t - arrivals.pop(0))
            if came[t]:
                arrivals.append(t)
        counts = data["waiting_times"].isel(seed=run, time=-1).values
        expected = np.zeros(len(WAITS))
        np.add.at(expected, np.searchsorted(WAITS, waited, side="right") - 1, 1)
        np.testing.assert_array_equal(counts, expected)
        np.testing.assert_allclose(data["oldest_wait"].isel(seed=run, time=-1), np.mean(oldest), rtol=1e-5)
        assert float(data["sojourn"].isel(seed=run, time=-1)) == sum(waited)
        if max(waited) < 64:
            found = qu.waiting_percentiles(data.isel(seed=run, time=-1), (50, 95, 100)).values
            np.testing.assert_array_equal(found, [np.percentile(waited, p, method="inverted_cdf") for p in (50, 95, 100)])


def test_a_pool_has_waiting_times_too():
    data = fifo(pool(), 120, seeds=4)
    assert float(data["waiting_times"].sum("wait").isel(time=-1).sum()) == float(data["departures"].isel(time=-1).sum())
    assert (data["oldest_wait"] >= 0).all() and float(data["oldest_wait"].isel(time=-1).max()) > 0


def test_percentiles_of_long_waits_are_near():
    rng = np.random.default_rng(0)
    waited = rng.integers(1, 5000, 2000)
    counts = np.zeros(len(WAITS))
    np.add.at(counts, np.searchsorted(WAITS, waited, side="right") - 1, 1)
    data = xr.Dataset({"waiting_times": (("seed", "wait"), np.stack([counts, 0 * counts]))})
    found = qu.waiting_percentiles(data)
    assert found.dims == ("seed", "percent") and found["percent"].values.tolist() == [50.0, 95.0, 99.0]
    exact = np.percentile(waited, [50, 95, 99], method="inverted_cdf")
    assert (found[0] >= exact).all() and (found[0] <= 1.091 * exact).all() and np.isnan(found[1]).all()
    with pytest.raises(ValueError, match=r'data must have the metric "waiting_times"'):
        qu.waiting_percentiles(data.rename(waiting_times="other"))
    with pytest.raises(ValueError, match="percents must be numbers above 0 and up to 100"):
        qu.waiting_percentiles(data, (0.0, 50.0))


def test_contexts_that_are_not_kept_are_counted():
    """Their number follows from the share that is kept."""
    env = small(slack=0.1)
    data = play(env, qu.Random(), seeds=256, record=["rejected_contexts", "arrivals"]).isel(time=-1)
    rejected, arrived = float(data["rejected_contexts"].sum()), float(data["arrivals"].sum())
    kept = qu.describe_contexts(env, contexts=200_000)["accepted"]
    error = np.sqrt(kept * (1 - kept) / (arrived + rejected))
    assert 0.2 < kept < 0.95 and abs(arrived / (arrived + rejected) - kept) < 4 * error


def test_recorded_coins_are_played():
    rounds, rng = 60, np.random.default_rng(1)
    recorded = qu.recorded_queue(THETA, np.ones(rounds, bool), rng.uniform(-1, 1, (rounds, 2)), rng.random(rounds))
    coins = rng.random(rounds) < 0.3
    names = ["explored", "idle"]
    data = jr.simulate(
        recorded,
        qu.ACQB(trigger=qu.RecordedCoins(coins)),
        horizon=rounds,
        seeds=2,
        record=names,
        record_every=1,
        progress=False,
    )
    explored = np.diff(data["explored"].isel(policy=0, seed=0).values, prepend=0.0)
    np.testing.assert_array_equal(explored[1:], coins[1:])  # Nobody waits in the first round; then one has just come.
    for wrong in ([[True]], []):
        with pytest.raises(ValueError, match=r"coins must have shape \[T\]"):
            qu.RecordedCoins(wrong).check()
