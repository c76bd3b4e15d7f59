"""Faults, injected: what goes wrong is said, what was finished is kept, and nothing is silently wrong.

Every fault ends in the same way: the same call again gives the bits of an undisturbed one.
"""

import contextlib
import errno
import functools
import importlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import store_cases
import xarray as xr
from store_cases import ENV, KEEPS, assert_same, flip

import jaxroute as jr
from jaxroute import cli
from jaxroute.core.attributes import decoded
from jaxroute.engine import layout, programs
from jaxroute.problems import stochastic
from jaxroute.store import packs, places

chaos = importlib.import_module("chaos")  # Of the scripts.

# Five blocks of two policies: "regret", "pulls" and "valid" of 70 seeds.
run = functools.partial(store_cases.run, record=["regret", "pulls"])


def small_packs(monkeypatch):
    """Every cell gets a pack of its own."""
    monkeypatch.setattr(packs, "_PACK_BYTES", 1)


@pytest.fixture(scope="module")
def undisturbed():
    return run()


def check_repaired(out, expected):
    """The same call gives the bits of an undisturbed one, and so does what is loaded then."""
    assert_same(run(out=out), expected)
    assert_same(jr.load(out), expected)


def packs_in(folder):
    return sorted((folder / "store").glob("*.pack"))


# Everything, at random: small doses of the scripts.


TIMES = pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])


@KEEPS
@TIMES
@pytest.mark.parametrize(("inflict", "kinds"), [(chaos.damage, chaos.DAMAGES), (chaos.disturb, chaos.EVENTS)])
def test_no_damage_and_no_disturbance_gives_a_wrong_number_or_a_riddle(tmp_path, keep, times, inflict, kinds):
    table = chaos.Table()
    inflict(times * len(kinds), 3, keep, tmp_path, table)
    assert table.wrong == [] and set(table.counts) == set(kinds)


@KEEPS
@TIMES
def test_processes_that_are_killed_at_random_moments_leave_what_can_be_continued(tmp_path, keep, times):
    table = chaos.Table()
    chaos.kill(2 * times, 5, keep, tmp_path, table)
    assert table.wrong == [] and sum(row["number"] for row in table.counts.values()) == 2 * times


@KEEPS
@pytest.mark.parametrize("points", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_call_that_ends_between_any_two_changes_is_whole_or_continued(tmp_path, keep, points):
    table = chaos.Table()
    numbers = chaos.power(keep, tmp_path, table, points=points, seed=4)
    assert table.wrong == [] and set(numbers) == {"new", "continued", "joined", "mended"}
    assert sum(row["number"] for row in table.counts.values()) > 12 and {"killed", "flushed"} <= set(table.counts)


def test_a_store_that_flushes_nothing_would_be_noticed(tmp_path, monkeypatch):
    table = chaos.Table()
    monkeypatch.setattr(places, "_flush", lambda folder: None)
    chaos.power("runs", tmp_path, table, points=2, seed=4)
    assert sum(row["lost"] for row in table.counts.values()) > 0


# Damage to a finished store, word by word.


def test_a_damaged_cell_is_named_and_simulated_again_alone(tmp_path, monkeypatch, undisturbed, count_blocks):
    with monkeypatch.context() as patch:
        small_packs(patch)
        run(out=tmp_path)
    del count_blocks[:]
    file = max(packs_in(tmp_path), key=lambda file: packs.read_index(*_read(file)).frames["raw"].sum())
    flip(file, 5)
    with pytest.raises(ValueError, match=r"is not complete: 16 of 140 runs are missing, the first that of policy") as error:
        jr.load(tmp_path)
    assert "1 cells are not what was written" in str(error.value) and str(tmp_path) in str(error.value)
    assert "the same call, or command, simulates just that again, or load the rest with partial=True" in str(error.value)
    part = jr.load(tmp_path, partial=True)
    there = np.isfinite(part["regret"].isel(time=-1).values)
    assert there.sum() == 124 and not part["valid"].values[~there].any()
    for name in part:
        np.testing.assert_array_equal(part[name].values[there], undisturbed[name].values[there])
    check_repaired(tmp_path, undisturbed)
    assert len(count_blocks) == 1
    assert not file.exists()  # It has been replaced by one without the damaged cell.


def _read(file):
    about = file.stat()
    return places.Folder(file.parent), file.name, places.FileState(about.st_size, about.st_mtime)


def test_damaged_statistics_are_named_and_simulated_again(tmp_path, monkeypatch, count_blocks):
    """They are not left out of a mean without a word."""
    options = {"keep": "moments", "seeds": 512, "execution": jr.Execution(block=256)}
    expected = run(**options)
    with monkeypatch.context() as patch:
        small_packs(patch)
        run(out=tmp_path, **options)
    flip(next(file for file in packs_in(tmp_path) if packs.read_index(*_read(file)).rows.size), 5)
    with pytest.raises(ValueError, match="of [0-9,]+ seeds are missing, of some policies .*, the first of them [0-9]+"):
        jr.load(tmp_path)
    del count_blocks[:]
    xr.testing.assert_equal(run(out=tmp_path, **options), expected)
    assert count_blocks != []
    xr.testing.assert_equal(jr.load(tmp_path), expected)


def test_a_later_result_that_cannot_be_read_is_not_passed_over_in_silence(tmp_path, undisturbed):
    run(out=tmp_path)
    before = packs_in(tmp_path)
    run(out=tmp_path, root_seed=5)
    (file,) = set(packs_in(tmp_path)) - set(before)
    flip(file, -50)
    with pytest.warns(UserWarning, match=f"1 files of the result .* cannot be read .{file.name}: .*; the same call"):
        assert_same(jr.load(tmp_path), undisturbed)
    with pytest.warns(UserWarning, match="1 files in .* are damaged .* their content is simulated again"):
        assert decoded(run(out=tmp_path, root_seed=5).attrs)["settings"]["root_seed"] == 5


def test_a_store_in_which_nothing_can_be_read_says_so_and_is_made_again(tmp_path, undisturbed):
    run(out=tmp_path)
    for file in packs_in(tmp_path):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="does not say what it consists of: .*it is cut, or was never a pack; the same"):
        jr.load(tmp_path)
    with pytest.warns(UserWarning, match="are damaged"):
        assert_same(run(out=tmp_path), undisturbed)


def test_what_killed_processes_left_is_removed_after_an_hour(tmp_path, undisturbed):
    """Not before: others may be writing it, or copying it into the folder."""
    run(out=tmp_path, seeds=16)
    old, new = ([tmp_path / "store" / f"{age}{end}" for end in (".pack", ".claim", ".partial")] for age in ("old", "new"))
    for file in (*old, *new):
        file.write_bytes(b"a part")
    for file in old:
        os.utime(file, (time.time() - 7200,) * 2)
    with pytest.warns(UserWarning, match="2 files in .* are damaged"):
        assert_same(run(out=tmp_path), undisturbed)
    assert all(file.exists() for file in new) and not any(file.exists() for file in old)


def test_the_order_of_calls_does_not_depend_on_clocks(tmp_path, undisturbed):
    """The files of the first call are of the future, those of the last are old."""
    run(out=tmp_path, root_seed=5)
    before = packs_in(tmp_path)
    run(out=tmp_path)
    for file in packs_in(tmp_path):
        os.utime(file, (4e9 if file in before else 0,) * 2)
    assert_same(jr.load(tmp_path), undisturbed)
    run(out=tmp_path, root_seed=5)
    assert decoded(jr.load(tmp_path).attrs)["settings"]["root_seed"] == 5


# The disk.


def failing(monkeypatch, name, number, error=errno.ENOSPC):
    """Lets a function of the operating system fail from some call on."""
    call, calls = getattr(os, name), []

    def fails(*args, **options):
        calls.append(args)
        if len(calls) >= number:
            raise OSError(error, os.strerror(error))
        return call(*args, **options)

    monkeypatch.setattr(os, name, fails)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_ends_the_call_says_so_and_loses_nothing(tmp_path, monkeypatch, undisturbed, count_blocks, name):
    with monkeypatch.context() as patch:
        small_packs(patch)
        failing(patch, name, 6)
        with pytest.raises(OSError, match="written to: No space left on device; finished blocks are stored, and the same"):
            run(out=tmp_path, execution=jr.Execution(block=16))
    kept = int(np.isfinite(jr.load(tmp_path, partial=True)["regret"].isel(time=-1)).sum())
    assert 0 < kept < 140 and not list((tmp_path / "store").glob("*.partial"))
    del count_blocks[:]
    assert_same(run(out=tmp_path), undisturbed)
    assert len(count_blocks) < 10


def test_a_call_does_not_go_on_for_long_after_a_write_has_failed(tmp_path, monkeypatch, count_blocks):
    small_packs(monkeypatch)
    failing(monkeypatch, "fsync", 1)
    simulate_block = programs.Block.run

    def slowly(self, *args):
        time.sleep(0.1)  # The write before has failed meanwhile.
        return simulate_block(self, *args)

    monkeypatch.setattr(programs.Block, "run", slowly)
    with pytest.raises(OSError, match="No space left"):
        run(out=tmp_path)
    assert len(count_blocks) < 6


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_computed(tmp_path, monkeypatch, count_blocks):
    traces = jr.trace_count()
    failing(monkeypatch, "mkdir", 1, errno.EROFS)
    with pytest.raises(OSError, match="out must be a folder or URL that can be written to.*Read-only file system"):
        run(out=tmp_path / "out")
    assert count_blocks == [] and jr.trace_count() == traces
    assert list(tmp_path.iterdir()) == []


def test_a_finished_result_is_read_from_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch, undisturbed):
    run(out=tmp_path)
    for name in ("fsync", "replace", "unlink", "mkdir"):
        failing(monkeypatch, name, 1, errno.EROFS)
    check_repaired(tmp_path, undisturbed)


def test_packs_that_cannot_be_joined_or_removed_do_not_end_a_call(tmp_path, monkeypatch, undisturbed):
    small_packs(monkeypatch)
    monkeypatch.setattr(packs.PackStore, "tidy", functools.partialmethod(packs.PackStore.tidy, 1))
    failing(monkeypatch, "unlink", 2, errno.EPERM)
    assert_same(run(out=tmp_path), undisturbed)
    monkeypatch.undo()
    assert len(packs_in(tmp_path)) > 1
    assert_same(jr.load(tmp_path), undisturbed)


def test_a_folder_that_goes_away_is_said_and_not_made_again(tmp_path, monkeypatch, undisturbed):
    """Of threads that write at the same time one moves it."""
    write = places.Folder.write

    def moved(self, name, *args):
        if len(packs_in(tmp_path / "out")) >= 3:
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / "out").rename(tmp_path / "elsewhere")
        write(self, name, *args)

    with monkeypatch.context() as patch:
        small_packs(patch)
        patch.setattr(places.Folder, "write", moved)
        with pytest.raises(OSError, match="cannot be written to: .*; finished blocks are stored, and the same call"):
            run(out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert_same(run(out=tmp_path / "elsewhere"), undisturbed)


def test_two_calls_at_the_same_time_both_end_with_the_right_numbers(tmp_path, undisturbed):
    """In a folder that does not exist yet, to which a link leads."""
    (tmp_path / "link").symlink_to(tmp_path / "later")
    tmp_path = tmp_path / "link"
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: run(out=tmp_path), range(2)))
    for data in (*found, jr.load(tmp_path)):
        assert_same(data, undisturbed)


# Death.


EXPERIMENT = """
from store_cases import ENV, TWO
from jaxroute.experiments import Case, Experiment

case = Case(environment=ENV, policies=TWO, horizon=40, record_every=10, record=["regret", "pulls"])
experiment = Experiment(name="mine/two", title="two policies", cases=(case,))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupt_is_said_and_loses_nothing(tmp_path, monkeypatch, capsys, count_blocks, undisturbed, number):
    """Ctrl-C at the terminal, what a scheduler sends, or a terminal that goes away, after the first of four blocks."""
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    command = ["run", str(file), "--seeds", "70", "--out", str(tmp_path / "out")]
    put, wait = packs.PackStore.put, threading.Event()

    def interrupted(self, *args):
        put(self, *args)
        if not wait.is_set():
            wait.set()
            signal.raise_signal(number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    others = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        monkeypatch.setattr(packs.PackStore, "put", interrupted)
        assert cli.main(command) == 128 + number
        assert {signal.getsignal(one) for one in others} == {signal.SIG_DFL}
    finally:
        signal.signal(signal.SIGINT, before)
        for one, handler in others.items():
            signal.signal(one, handler)
    assert "stopped; the same command continues" in capsys.readouterr().err
    kept = int(np.isfinite(jr.load(tmp_path / "out", partial=True)["regret"].isel(time=-1)).sum())
    assert 0 < kept < 140
    del count_blocks[:]
    assert cli.main(command) == 0
    assert len(count_blocks) == 3
    assert_same(jr.load(tmp_path / "out"), undisturbed)


def test_an_interrupt_while_policies_are_compiled(monkeypatch, fresh_programs):
    """Those that wait for their turn are not compiled; the next call in the same process compiles them."""
    compile_, begun = programs.compile_lanes, []

    def slow(*lowered):
        begun.append(lowered)
        time.sleep(1.0)
        return compile_(*lowered)

    def interrupted(*compiling):
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "compile_lanes", slow)
    policies = {"ucb": stochastic.UCB1(), "thompson": stochastic.GaussianThompson(), "greedy": stochastic.EpsilonGreedy()}
    with monkeypatch.context() as patch:
        patch.setattr(layout, "cores", lambda: 1)
        patch.setattr(programs, "cores", lambda: 1)
        patch.setattr(programs, "wait_for_compilations", interrupted)
        with pytest.raises(KeyboardInterrupt):
            jr.simulate(ENV, policies, horizon=20, seeds=16, progress=False)
    assert len(begun) < 3
    again = jr.simulate(ENV, policies, horizon=20, seeds=16, progress=False)
    assert len(begun) == 3 and list(again["policy"].values) == list(policies)
    assert again["valid"].all()
