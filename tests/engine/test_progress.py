"""A callback hears of each block, sees what there is, and ends a run that goes on later."""

import itertools

import numpy as np
import pytest
import xarray as xr
from engine_child import differences
from toys import Clock, Cycle

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core.attributes import decoded

POLICIES = {"one": Cycle(), "two": jr.grid(Cycle, first=[0, 1])}


def play(**options):
    settings = {
        "horizon": 20,
        "seeds": 40,
        "record_every": 10,
        "progress": False,
        "execution": jr.Execution(block=16),
        "record": ["reward", "pulls"],
    }
    return jr.simulate(Clock(), POLICIES, **(settings | options))


@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_callback_hears_of_every_block_and_sees_what_there_is(keep, stored, tmp_path):
    told, results = [], []

    def listen(progress):
        told.append(progress)
        results.append(progress.result())
        return "what a tracker returns"

    data = play(callback=listen, keep=keep, out=tmp_path if stored else None)
    assert [p.done for p in told] == list(range(1, 1 + told[0].total))
    assert told[-1].done == told[-1].total == 6  # Three blocks of seeds; both values of `first` in one call.
    assert {(p.policy, str(p.setting)) for p in told} == {("one", "{}"), ("two", "{'first': [0, 1]}")}
    assert [p.seeds for p in told] == [16, 16, 32, 32, 40, 40]
    assert all(a.seconds < b.seconds for a, b in itertools.pairwise(told))
    last, half = results[-1], results[1]
    if keep == "runs":
        assert differences(last, data) == []
        assert differences(half, data.isel(seed=slice(16))) == []
        assert not results[0]["valid"].sel(policy="two").any() and results[0]["reward"].sel(policy="two").isnull().all()
    else:
        np.testing.assert_array_equal(last["reward_mean"], data["reward_mean"])
        assert set(np.unique(half["reward_count"])) == {16}
    np.testing.assert_array_equal(
        metrics.mean(half, "reward"), metrics.mean(data, "reward")
    )  # Without luck all runs are one.


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_true_ends_a_run_that_goes_on_later(keep, tmp_path):
    data = play(callback=lambda progress: progress.done == 4, keep=keep, out=tmp_path)
    assert decoded(data.attrs)["stopped"] == {"blocks": 4, "of": 6}
    assert int(metrics.count(data, "reward").min()) == 32
    with pytest.raises(ValueError, match="is not complete"):
        jr.load(tmp_path)
    whole = play(keep=keep, out=tmp_path)
    assert "stopped" not in whole.attrs
    assert decoded(whole.attrs)["last_call"]["decisions"] == 3 * 8 * 20
    xr.testing.assert_equal(whole, play(keep=keep))


def test_a_table_says_what_was_not_played_yet():
    data = play(callback=lambda progress: progress.done == 3)
    missing = int((~data["valid"]).sum())
    assert missing > 0 and f"not simulated yet, or invalid: {missing} of {data['valid'].size} runs" in metrics.table(
        data, "reward"
    )


def test_an_error_in_a_callback_ends_the_run_and_keeps_what_is_done(tmp_path):
    def fails(progress):
        if progress.done == 3:
            raise OverflowError("the tracker is full")

    with pytest.raises(OverflowError, match="the tracker is full") as caught:
        play(callback=fails, out=tmp_path)
    assert caught.value.__notes__ == ["in the callback, after 3 of 6 blocks; what is stored is kept"]
    left = []
    play(callback=left.append, out=tmp_path)
    assert left[0].total == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callback": 5}, "callback must be a function of the progress, got 5"),
        ({"callback": lambda: None}, r"callback must take \(progress\), got one that takes \(\)"),
        ({"progress": print}, "progress must be True or False, got .*print.*; a function is given as callback"),
    ],
)
@pytest.mark.fast
def test_what_is_no_callback_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        play(**options)
