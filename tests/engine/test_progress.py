"""A callback hears of each block, sees what there is, and ends a run that continues later; what a terminal shows."""

import itertools
import json
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np
import pytest
import xarray as xr
from engine_child import differences
from toys import Clock, Cycle

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core.attributes import decoded
from jaxroute.engine import progress as shown

POLICIES = {"one": Cycle(), "two": jr.grid(Cycle, first=[0, 1])}


def play(**options):
    settings = {"horizon": 20, "seeds": 40, "record_every": 10, "progress": False, "record": ["reward", "pulls"]}
    return jr.simulate(Clock(), POLICIES, **settings | {"execution": jr.Execution(block=16)} | options)


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
    # All runs are equal here.
    np.testing.assert_array_equal(metrics.mean(half, "reward"), metrics.mean(data, "reward"))


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
    said = f"not simulated yet, or invalid: {missing} of {data['valid'].size} runs"
    assert missing > 0 and said in metrics.table(data, "reward")


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


@pytest.fixture
def terminal(capsys, monkeypatch):
    del capsys  # Which takes the place of standard error first.
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def wait(seconds, progress=True, kind="kind of a"):
    """Waits for a program that takes so long."""
    with ThreadPoolExecutor(1) as pool:
        shown.wait_for_compilations({"a": pool.submit(time.sleep, seconds)}, {"a": kind}, progress)


def test_it_says_what_is_compiled_and_how_long_it_took_last_time(folder, terminal, capsys):
    wait(0.01)
    assert not list(folder.iterdir())  # Programs from the cache are not remembered.
    capsys.readouterr()
    wait(1.1)
    first = capsys.readouterr().err
    assert "compiling a [" in first and "last time" not in first
    assert json.loads((folder / "jaxroute-seconds.json").read_text()) == {"kind of a": pytest.approx(1.1, abs=0.5)}
    wait(0.05)
    assert "compiling a (1 s last time) [" in capsys.readouterr().err
    wait(0.05, kind="another")
    assert "last time" not in capsys.readouterr().err


def test_it_counts_the_compilations(folder, terminal, capsys):
    with ThreadPoolExecutor(1) as pool:
        programs = {name: pool.submit(time.sleep, 0.3) for name in "ab"}
        shown.wait_for_compilations(programs, {"a": "a", "b": "b"}, True)
    found = capsys.readouterr().err
    assert "compiling a, b, 0 of 2 done" in found and "compiling b, 1 of 2 done" in found


def test_where_there_is_no_terminal_lines_are_told_less_and_less_often(capsys, monkeypatch):
    passed = [0.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: passed[0])
    with shown.bar(100, True) as lines:
        lines.set_description("UCB1")
        for block in range(100):
            passed[0] = block
            lines.update(1)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == ["10", "20", "40", "80"]
    assert told[0] == "jaxroute: 10 s, block 11 of 100 (UCB1)"
    wait(1.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "[1]", '{"kind of a": "long"}', "\x00"])
def test_a_damaged_memory_is_no_memory(folder, text, terminal, capsys):
    (folder / "jaxroute-seconds.json").write_text(text)
    wait(0.05)
    assert "compiling a [" in capsys.readouterr().err


def test_what_fails_is_waited_for_like_the_rest():
    failing, ready = Future(), Future()
    ready.set_result(1)
    threading.Timer(0.05, failing.set_exception, [ValueError("no")]).start()
    shown.wait_for_compilations({"a": failing, "b": ready}, {"a": "a", "b": "b"}, False)
    assert failing.done()
