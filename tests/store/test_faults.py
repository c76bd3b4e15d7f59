"""Faults, injected: what goes wrong is said, what was finished is kept, and nothing is silently wrong.

Every fault ends in the same way: the same call again gives the bits of an undisturbed run.
"""

import dataclasses
import errno
import importlib
import os
import re
import runpy
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
import zarr
from engine_child import differences
from flax import struct
from helpers import CHILDREN_PATH, ROOT, retell
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute import cli
from jaxroute.core.types import Metric, Spec
from jaxroute.engine import layout, programs
from jaxroute.problems import stochastic
from jaxroute.store import description, integrity, locks, moments, runs

disk, power = (importlib.import_module(name) for name in ("disk", "power"))  # Of the scripts.

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
BLOCKS = 10


def play(**options):
    """Five blocks of two policies: "regret", "pulls" and "valid" of 70 seeds."""
    policies = {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3)}
    settings = {"horizon": 40, "seeds": 70, "record_every": 10, "block": 16, "progress": False} | options
    return jr.simulate(ENV, policies, record=["regret", "pulls"], **settings)


@pytest.fixture(scope="module")
def undisturbed():
    return play()


# Damage to a finished store.


def flip(file):
    """One bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


def exchange(file):
    """Another block's chunk in its place: sound in itself, but not what was written."""
    file.write_bytes((file.parents[2] / "0" / "1" / file.name).read_bytes())


@dataclasses.dataclass(frozen=True)
class Damage:
    """What happens to a file of a store, and what comes of it.

    load: what loading says. again: blocks that the next run plays. warning: what it says.
    """

    file: str
    how: Callable
    load: str
    again: int
    warning: str = ""


BLOCK = "1 of 10 blocks are not what was written, the first that of policy narrow, seed 16 to 31"
AGAIN = "1 blocks in .* are not what was written, the first that of policy narrow, seed 16 to 31; they are played again"
MADE = "was damaged and is made again"
COPY = "is damaged .*, its second copy is read; run it again to repair it"


def another_number(file):
    """A description that can be read, and is not true: fewer seeds."""
    text = file.read_text()
    assert '"block": 16' in text
    file.write_text(text.replace('"block": 16', '"block": 48'))


def no_kind(file):
    """A description that no longer says what it describes, though its attributes are sound."""
    text = file.read_text()
    assert text.count('"node_type"') == 1
    file.write_text(text.replace('"node_type"', '"node_tyqe"'))


DAMAGES = {
    "a flipped bit in a chunk": Damage("regret/c/1/1/0", flip, BLOCK, 1, AGAIN),
    "a flipped bit in a vector's chunk": Damage("pulls/c/1/1/0/0", flip, BLOCK, 1, AGAIN),
    "a chunk that was cut": Damage("regret/c/1/1/0", cut, BLOCK, 1, AGAIN),
    "a chunk of no bytes": Damage("regret/c/1/1/0", empty, BLOCK, 1, AGAIN),
    "a chunk that is missing": Damage("regret/c/1/1/0", Path.unlink, BLOCK, 1, AGAIN),
    "a flag's chunk that is missing": Damage("valid/c/1/1", Path.unlink, BLOCK, 1, AGAIN),
    "another block's chunk": Damage("regret/c/1/1/0", exchange, BLOCK, 1, AGAIN),
    "a mark that was cut": Damage("_done/c/1/1", cut, "1 blocks are missing", 1),
    "a mark of no bytes": Damage("_done/c/1/1", empty, "1 blocks are missing", 1),
    "a mark that is missing": Damage("_done/c/1/1", Path.unlink, "1 blocks are missing", 1),
    "the store's description, cut": Damage("zarr.json", cut, COPY, 0, MADE),
    "the store's description, empty": Damage("zarr.json", empty, COPY, 0, MADE),
    "the store's description, another number": Damage("zarr.json", another_number, COPY, 0, MADE),
    "the store's description, missing": Damage("zarr.json", Path.unlink, COPY, 0, MADE),
    "the store's description, of no kind": Damage("zarr.json", no_kind, COPY, 0, MADE),
    "the marks' description, of no kind": Damage("_done/zarr.json", no_kind, "is damaged|not complete", 0, MADE),
    "the second description, another number": Damage("_done/zarr.json", another_number, "", 0),
    "a variable's description, cut": Damage("regret/zarr.json", cut, "is damaged", 0, MADE),
    "a variable's description, missing": Damage("regret/zarr.json", Path.unlink, "is not complete", 0),
    "the marks' description, cut": Damage("_done/zarr.json", cut, "is damaged", 0, MADE),
    "coordinates, cut": Damage("seed/c/0", cut, "is damaged|coordinates .* are damaged", 0),
    "coordinates, missing": Damage("seed/c/0", Path.unlink, "the coordinates .* are damaged", 0),
    "the coordinates' description, cut": Damage("time/zarr.json", cut, "is damaged", 0),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_noticed_named_and_repaired(name, tmp_path, undisturbed, count_blocks):
    damage = DAMAGES[name]
    before = play(out=tmp_path)
    del count_blocks[:]
    damage.how(tmp_path / "result.zarr" / damage.file)
    if damage.load == COPY:
        with pytest.warns(UserWarning, match=COPY):
            xr.testing.assert_identical(jr.load(tmp_path), before)
    elif damage.load:
        with pytest.raises(ValueError, match=damage.load) as error:
            jr.load(tmp_path)
        assert str(tmp_path) in str(error.value)
    else:
        xr.testing.assert_identical(jr.load(tmp_path), before)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again = play(out=tmp_path)
    said = [str(w.message) for w in said if w.category is UserWarning]
    assert len(said) == (1 if damage.warning else 0), said
    if damage.warning:
        assert re.search(damage.warning, said[0])
    assert len(count_blocks) == damage.again
    assert differences(undisturbed, again) == []
    loaded = jr.load(tmp_path)
    xr.testing.assert_identical(loaded, again)
    assert loaded.attrs["decisions"] == before.attrs["decisions"] + 40 * 16 * damage.again  # Nothing is forgotten.


def test_damage_everywhere_is_repaired(tmp_path, undisturbed, count_blocks):
    """A third of all chunks, of every kind, at random."""
    play(out=tmp_path)
    del count_blocks[:]
    rng = np.random.default_rng(0)
    chunks = [p for p in sorted((tmp_path / "result.zarr").rglob("*")) if p.is_file() and p.name != "zarr.json"]
    for file in rng.choice(chunks, len(chunks) // 3, replace=False):
        [flip, cut, empty, Path.unlink][rng.integers(4)](file)
    with pytest.raises(ValueError, match="damaged|missing"):
        jr.load(tmp_path)
    with pytest.warns(UserWarning, match="are played again"):
        again = play(out=tmp_path)
    assert 3 < len(count_blocks) <= BLOCKS
    assert differences(undisturbed, again) == []
    assert differences(undisturbed, jr.load(tmp_path)) == []


def test_what_is_sound_beside_damage_can_be_loaded(tmp_path, undisturbed):
    play(out=tmp_path)
    cut(tmp_path / "result.zarr" / "regret" / "c" / "1" / "1" / "0")
    partial = jr.load(tmp_path, partial=True)
    lost = partial.sel(policy="narrow", seed=slice(16, 31))
    assert lost["regret"].isnull().all() and lost["pulls"].isnull().all() and not lost["valid"].any()
    assert differences(undisturbed.sel(policy=["ucb"]), partial.sel(policy=["ucb"])) == []
    assert int(partial["regret"].isel(time=-1).notnull().sum()) == 2 * 70 - 16


def test_two_damaged_descriptions_are_written_again_and_the_blocks_are_kept(tmp_path, undisturbed, count_blocks):
    play(out=tmp_path)
    del count_blocks[:]
    store = tmp_path / "result.zarr"
    cut(store / "zarr.json")
    cut(store / "_done" / "zarr.json")
    with pytest.raises(ValueError, match="is damaged .*, and so is its second copy; run it again to write both again"):
        jr.load(tmp_path)
    with pytest.warns(UserWarning, match="both descriptions .* are written again from the settings of this run"):
        assert differences(undisturbed, play(out=tmp_path)) == []
    assert count_blocks == [] and differences(undisturbed, jr.load(tmp_path)) == []


def test_where_both_descriptions_are_lost_other_settings_find_nothing_of_their_own(tmp_path, undisturbed, count_blocks):
    play(out=tmp_path, key=5)
    del count_blocks[:]
    for file in ("zarr.json", "_done/zarr.json"):
        cut(tmp_path / "result.zarr" / file)
    with pytest.warns(UserWarning, match="10 blocks .* are not what was written"):
        assert differences(undisturbed, play(out=tmp_path)) == []
    assert len(count_blocks) == 10


def test_cells_of_elsewhere_are_noticed(tmp_path, undisturbed):
    """Whole cells with their marks: of another key, of another policy, of other seeds."""
    play(out=tmp_path / "own")
    play(out=tmp_path / "other", key=5)
    own, other = (zarr.open_group(tmp_path / name / "result.zarr", mode="a") for name in ("own", "other"))
    names = [name for name, array in own.arrays() if array.ndim > 1]

    def copied(source, cell, to):
        for name in names:
            own[name][integrity.region(own[name], to)] = source[name][integrity.region(source[name], cell)]

    for source, cell, to in ((other, (1, 1), (1, 1)), (own, (0, 1), (1, 1)), (own, (1, 2), (1, 1))):
        copied(source, cell, to)
        with pytest.raises(ValueError, match=BLOCK):
            jr.load(tmp_path / "own")
        with pytest.warns(UserWarning, match=AGAIN):
            assert differences(undisturbed, play(out=tmp_path / "own")) == []


def test_a_store_of_another_layout_is_refused(tmp_path):
    play(out=tmp_path)
    settings = zarr.open_group(tmp_path / "result.zarr", mode="r").attrs["settings"]
    retell(tmp_path, settings={**settings, "format": 1})
    with pytest.raises(ValueError, match="laid out as another version of jaxroute does it; run it again"):
        jr.load(tmp_path)
    with pytest.raises(
        jr.StoreMismatchError, match="earlier version of jaxroute: it can be read, but not continued; choose another"
    ):
        play(out=tmp_path)


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_store_of_the_format_before_is_read_but_not_continued(tmp_path, monkeypatch, keep):
    with monkeypatch.context() as patch:
        patch.setattr(description, "FORMAT", 2)  # Marks then do not say what they belong to.
        expected = play(out=tmp_path, keep=keep)
    names = zarr.open_group(tmp_path / "result.zarr", mode="r").attrs.asdict().get("variables")
    retell(tmp_path, seal=False, code=None, **({"variables": list(names)} if keep == "runs" else {}))
    with pytest.warns(UserWarning, match="earlier version of jaxroute: whether its description .* cannot be told"):
        xr.testing.assert_equal(jr.load(tmp_path), expected)
    with pytest.raises(jr.StoreMismatchError, match="it can be read, but not continued"):
        play(out=tmp_path, keep=keep)


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_folder_that_goes_away_in_the_middle_is_said_and_not_made_again(tmp_path, monkeypatch, keep, undisturbed):
    sink = {"runs": runs.RunSink, "moments": moments.MomentSink}[keep]
    write, calls = sink.write, []

    def moved(self, *args):
        write(self, *args)
        calls.append(args)
        if len(calls) == 3:
            (tmp_path / "out").rename(tmp_path / "elsewhere")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "write", moved)
        with pytest.raises(
            OSError, match="it was moved or removed while the run was writing to it; finished blocks are kept"
        ):
            play(out=tmp_path / "out", keep=keep)
    assert not (tmp_path / "out" / "result.zarr").exists()
    if keep == "runs":
        assert differences(undisturbed, play(out=tmp_path / "elsewhere")) == []


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize(("part", "number"), [("chaos", 40), ("disturb", 45), ("kill", 3), ("others", 1)])
def test_no_fault_gives_a_wrong_number_or_a_riddle(tmp_path, keep, part, number):
    """A small dose of `scripts/chaos.py`, which says what it counts."""
    outcomes, wrong = runpy.run_path(str(ROOT / "scripts" / "chaos.py"))[part](number, 3, keep, tmp_path)
    assert wrong == [] and sum(outcomes.values()) >= 0.75 * number
    assert len(outcomes) > {"chaos": 10, "disturb": 15, "kill": 1, "others": 2}[part]


# Power.


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_run_that_ends_between_any_two_writes_is_whole_or_continued(tmp_path, keep):
    """A small dose of `scripts/power.py`: a few moments of each run, and all at its end, by death and by power cut."""
    tally, numbers = power.power(keep, tmp_path, points=5, chains=3, links=3, children=2, seed=4)
    assert tally.wrong == []
    assert set(numbers) == {"new", "flushed often", "continued", "grown", "mended", "described again", "described twice"}
    assert min(numbers.values()) >= 10 and sum(tally.outcomes.values()) > 80
    assert {kind for kind, _ in tally.outcomes} == {*power.KILLS, *power.POWER, "chain", "a child killed"}


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_what_is_finished_is_on_the_disk_itself(tmp_path, keep):
    """All that a run has written has been flushed at its end; of statistics, whatever takes the place of others before it does."""
    with disk.Watch(tmp_path) as watch:
        play(out=tmp_path / "out", keep=keep)
    assert watch.missed == []
    files = disk.Journal({}, watch.changes).after(len(watch.changes))
    assert files.tree() == disk.read_tree(tmp_path)
    assert files.lost().items() >= {(name, content) for name, content in files.tree().items() if content != b""}
    flushed = set()
    for change in watch.changes:
        if change.kind == "fsync":
            flushed.add(change.path)
        elif change.kind == "write":
            flushed.discard(change.path)
        elif change.kind == "rename" and change.to.endswith(".part"):
            assert change.path in flushed


# The disk.


def watch_writes(monkeypatch, then):
    """Calls `then(number, path, content, write)` in place of each write of a file (but for those that only make what is missing)."""
    module = zarr.storage._local
    write, calls = module._put, []

    def put(path, value, exclusive=False):
        if exclusive:
            return write(path, value, exclusive=True)
        calls.append(path)
        return then(len(calls), path, value, lambda: write(path, value))

    monkeypatch.setattr(module, "_put", put)
    return calls


@pytest.fixture(scope="module")
def writes(tmp_path_factory):
    """Files in the order in which an undisturbed run writes them."""
    with pytest.MonkeyPatch.context() as patch:
        calls = watch_writes(patch, lambda number, path, value, write: write())
        play(out=tmp_path_factory.mktemp("writes"))
    return calls


@pytest.mark.parametrize("share", [0.0, 0.15, 0.35, 0.6, 0.75, 0.97, 1.0])
def test_a_full_disk_ends_the_run_and_loses_nothing(share, tmp_path, undisturbed, monkeypatch, count_blocks, writes):
    """The disk is full from some write on: of the store itself, of coordinates, of a chunk, of a mark, of the provenance."""
    last = max(1, round(share * len(writes)))

    def full(number, path, value, write):
        if number >= last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write()

    with monkeypatch.context() as patch:
        watch_writes(patch, full)
        with pytest.raises(OSError, match="No space left on device") as error:
            play(out=tmp_path)
    assert error.value.errno == errno.ENOSPC
    assert "finished blocks are kept, and the same command continues from there" in str(error.value) or share == 0
    if 0.3 <= share <= 0.75:
        partial = jr.load(tmp_path, partial=True)
        sound = np.isfinite(partial["regret"].isel(time=-1).values)
        assert sound.sum() < 140
        for name in partial:
            np.testing.assert_array_equal(partial[name].values[sound], undisturbed[name].values[sound])
        kept = sum(np.ceil(row.sum() / 16) for row in sound)
        del count_blocks[:]
    assert differences(undisturbed, play(out=tmp_path)) == []
    if 0.3 <= share <= 0.75:
        assert len(count_blocks) == BLOCKS - kept  # Every block that was finished is kept.


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_computed(tmp_path, monkeypatch, count_blocks):
    traces = jr.trace_count()
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(OSError, match="out must be a folder that can be written to, got .*file"):
        play(out=file / "out")
    opened = os.open

    def read_only(path, flags, *args, **options):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *args, **options)

    monkeypatch.setattr(locks.os, "open", read_only)
    with pytest.raises(OSError, match="out must be a folder that can be written to.*Read-only file system"):
        play(out=tmp_path / "out")
    monkeypatch.undo()
    assert count_blocks == [] and jr.trace_count() == traces
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


# Death.


class Killed(BaseException):
    """As `kill -9`: nothing that follows is executed, not even a handler of `Exception`."""


@pytest.mark.parametrize("moment", [pytest.param(i, marks=pytest.mark.slow) if i > 4 else i for i in range(40)])
def test_a_run_that_dies_in_the_middle_of_a_write_is_continued(moment, tmp_path, undisturbed, monkeypatch, writes):
    """Half of a file is written, in place, as where writing is not atomic; the moments are spread over the run."""
    last = 1 + np.random.default_rng(moment).integers(len(writes))

    def half(number, path, value, write):
        if number == last:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = value.to_bytes()
            path.write_bytes(content[: len(content) // 2])
        if number >= last:
            raise Killed
        return write()

    with monkeypatch.context() as patch:
        watch_writes(patch, half)
        with pytest.raises(Killed):
            play(out=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert differences(undisturbed, play(out=tmp_path)) == []


CHILD = """
    import os, sys
    import test_faults
    from jaxroute.engine import layout, programs

    run = programs.Block.play

    def slowly(self, tile, seeds, *begun):
        import time
        found = run(self, tile, seeds, *begun)
        print("block", flush=True)
        time.sleep(0.05)
        return found

    programs.Block.play = slowly
    test_faults.play(out=sys.argv[1])
"""


def child(*command):
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": CHILDREN_PATH}
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path, undisturbed):
    """The same command, killed again and again: after the first block, or at any time before."""
    rng = np.random.default_rng(1)
    for attempt in range(6):
        with child("-c", textwrap.dedent(CHILD), tmp_path) as process:
            if attempt != 2:
                process.stdout.readline()
                time.sleep(rng.uniform(0, 0.15))
            else:
                time.sleep(rng.uniform(1, 4))  # Perhaps while it compiles, perhaps while it looks at the store.
            process.kill()
            process.communicate()
    missing = int((~np.isfinite(jr.load(tmp_path, partial=True)["regret"].isel(time=-1))).sum())
    assert 0 < missing < 140
    assert differences(undisturbed, play(out=tmp_path)) == []
    assert not list(tmp_path.glob("*.lock"))


EXPERIMENT = """
from jaxroute.experiments import Case, Experiment
from jaxroute.problems import stochastic

experiment = Experiment(
    name="mine/two",
    title="two policies",
    cases=(
        Case(
            environment=stochastic.bernoulli([0.2, 0.7, 0.5]),
            policies={"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3)},
            horizon=40,
            record_every=10,
            record=["regret", "pulls"],
        ),
    ),
)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupt_is_said_and_loses_nothing(tmp_path, monkeypatch, capsys, count_blocks, undisturbed, number):
    """Ctrl-C at the terminal, what a scheduler sends, or a terminal that goes away, after the first of four blocks."""
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    command = ["run", str(file), "--seeds", "70", "--out", str(tmp_path / "out")]
    write = runs.RunSink.write

    def interrupted(self, *args):
        write(self, *args)
        signal.raise_signal(number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    others = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with monkeypatch.context() as patch:
            patch.setattr(runs.RunSink, "write", interrupted)
            assert cli.main(command) == 128 + number
        assert {signal.getsignal(one) for one in others} == {signal.SIG_DFL}
    finally:
        signal.signal(signal.SIGINT, before)
        for one, handler in others.items():
            signal.signal(one, handler)
    assert "stopped; the same command continues from the last finished block" in capsys.readouterr().err
    played = len(count_blocks)  # The first, and perhaps the next, which is played while that is written.
    assert played in (1, 2) and not list((tmp_path / "out").glob("*.lock"))
    assert cli.main(command) == 0
    assert len(count_blocks) == played + 3
    assert differences(undisturbed, jr.load(tmp_path / "out")) == []


# Memory.


def test_out_of_memory_halves_the_block_and_keeps_the_store(tmp_path, monkeypatch, fresh_programs):
    """An accelerator that holds 16 runs: a block of 64 is halved twice, and the bits stay."""
    options = {"horizon": 37, "seeds": 64, "out": tmp_path, "block": 64}
    expected = play(**options | {"out": None})
    compile_ = programs.compile_lanes

    def small(*lowered):
        compiled = compile_(*lowered)

        def call(*args):
            if args[4].shape[0] > 16:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.")
            return compiled(*args)

        return call

    monkeypatch.setattr(programs, "compile_lanes", small)
    monkeypatch.setattr(layout, "cores", lambda: 1)
    monkeypatch.setattr(programs, "cores", lambda: 1)
    with pytest.warns(UserWarning, match="does not fit into memory; halving it"):
        halved = play(**options)
    assert halved.attrs["layout"]["block"] == 64
    assert differences(expected, halved) == []
    assert differences(expected, jr.load(tmp_path)) == []


def test_memory_that_does_not_even_hold_the_smallest_block_is_said(tmp_path, monkeypatch, undisturbed):
    def none(*lowered):
        def call(*args):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.")

        return call

    with monkeypatch.context() as patch, programs.PROGRAMS.fresh():
        patch.setattr(programs, "compile_lanes", none)
        with pytest.raises(MemoryError, match="a block of 16 seeds does not fit into memory, and is too small to be halved"):
            play(out=tmp_path)
    assert differences(undisturbed, play(out=tmp_path)) == []


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
        patch.setattr(programs, "wait_aloud", interrupted)
        with pytest.raises(KeyboardInterrupt):
            jr.simulate(ENV, policies, horizon=20, seeds=16, progress=False)
    assert len(begun) < 3
    again = jr.simulate(ENV, policies, horizon=20, seeds=16, progress=False)
    assert len(begun) == 3 and list(again["policy"].values) == list(policies)
    assert again["valid"].all()


# Two runs on one store.


def test_a_second_run_on_a_store_is_refused_and_the_first_goes_on(tmp_path, monkeypatch, undisturbed):
    started, go_on, found = threading.Event(), threading.Event(), []
    write = runs.RunSink.write

    def waits(self, *args):
        started.set()
        assert go_on.wait(60)
        write(self, *args)

    monkeypatch.setattr(runs.RunSink, "write", waits)
    first = threading.Thread(target=lambda: found.append(play(out=tmp_path)))
    first.start()
    assert started.wait(60)
    monkeypatch.setattr(runs.RunSink, "write", write)
    with pytest.raises(jr.StoreInUseError, match=f"is being written to by process {os.getpid()} on .*choose another folder"):
        play(out=tmp_path)
    with pytest.raises(ValueError, match="unfinished|not complete"):
        jr.load(tmp_path)  # Reading needs no lock.
    go_on.set()
    first.join()
    assert differences(undisturbed, found[0]) == []
    assert differences(undisturbed, play(out=tmp_path)) == []


def test_the_lock_of_a_dead_process_is_taken_over_at_once(tmp_path, undisturbed):
    """It died by `kill -9` and left its file."""
    code = """
        import os, pathlib, signal, sys
        from jaxroute.store import locks
        locks.StoreLock(pathlib.Path(sys.argv[1])).__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with child("-c", textwrap.dedent(code), tmp_path / "result.zarr") as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "result.zarr.lock").is_file()
    start = time.monotonic()
    assert differences(undisturbed, play(out=tmp_path)) == []
    assert time.monotonic() - start < locks._PATIENCE_S
    assert not (tmp_path / "result.zarr.lock").exists()


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("passed_on", [True, False])
def test_the_lock_of_another_machine_holds_as_long_as_it_beats(tmp_path, monkeypatch, alive, passed_on):
    """Where the file system does not pass locks on, or has none."""
    monkeypatch.setattr(locks, "_BEAT_S", 0.05)
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.5)
    if not passed_on:
        monkeypatch.setattr(locks, "_locked", lambda file: False)
    file, over = tmp_path / "result.zarr.lock", threading.Event()

    def beat():
        number = 0
        while not over.wait(0.05):
            number += 1
            file.write_text(f'{{"host": "far", "pid": 7, "beat": {number}}}')

    file.write_text('{"host": "far", "pid": 7, "beat": 0}')
    other = threading.Thread(target=beat)
    if alive:
        other.start()
    try:
        if alive:
            with pytest.raises(jr.StoreInUseError, match="is being written to by process 7 on far"), _lock(tmp_path):
                pass
        else:
            with _lock(tmp_path):
                assert str(os.getpid()) in file.read_text()
    finally:
        over.set()
        if alive:
            other.join()


def test_a_store_behind_a_link_has_one_lock(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with _lock(tmp_path / "there"), pytest.raises(jr.StoreInUseError, match="link.*is being written to by"):
        _lock(tmp_path / "link").__enter__()
    with _lock(tmp_path / "link"):
        assert (tmp_path / "there" / "result.zarr.lock").is_file()


def test_a_link_that_leads_nowhere_yet_is_followed(tmp_path, undisturbed):
    (tmp_path / "link").symlink_to(tmp_path / "later")
    assert differences(undisturbed, play(out=tmp_path / "link")) == []
    assert differences(undisturbed, jr.load(tmp_path / "later")) == []


def test_a_lock_whose_thread_cannot_start_is_given_back(tmp_path, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            _lock(tmp_path).__enter__()
    assert not (tmp_path / "result.zarr.lock").exists()
    with _lock(tmp_path):
        pass


def _lock(folder):
    return locks.StoreLock(folder / "result.zarr")


# Values that are not finite.


@struct.dataclass
class Gift:
    """An environment whose reward is what the policy gives, in one round or another; `luck` is seen by the policy."""

    @property
    def spec(self):
        return Spec(num_models=1, metrics=(Metric("reward", "reward", "reward", "total"),))

    def init(self, key):
        del key
        return ()

    def observe(self, key, state, t):
        del state, t
        return jax.random.uniform(key)

    def step(self, key, state, action, t):
        del key, t
        return state, action, {"reward": action}


@struct.dataclass
class Root:
    """Gives the root of `luck - danger`: a number only as long as luck lasts."""

    danger: jax.Array | float = 0.0

    def init(self, key, spec):
        del key, spec
        return ()

    def act(self, key, state, obs, t):
        del key, state, t
        return jnp.sqrt(obs - self.danger), {"gift": jnp.sqrt(obs - self.danger)}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state


def luck_of(seed, horizon):
    run = jax.random.fold_in(jax.random.key(0), seed)
    stream = jax.random.fold_in(run, 2)
    return jax.vmap(lambda t: jax.random.uniform(jax.random.fold_in(stream, t)))(jnp.arange(horizon))


@pytest.mark.parametrize("record", [["reward"], ["info.gift"]])
def test_a_policy_that_computes_nan_is_named_with_setting_seed_and_round(tmp_path, record):
    """The rest is kept, and equal to what it is without that policy."""
    policies = {"safe": Root(), "root": jr.grid(Root, danger=[0.0, 0.0005])}
    options = {"horizon": 200, "seeds": 40, "record_every": 50, "record": record, "progress": False}
    fails = np.asarray([np.flatnonzero(luck_of(seed, 200) < 0.0005)[:1].sum() for seed in range(40)])
    seed = int(np.flatnonzero(fails)[0])
    values = ["feedback", "info.gift", *(["reward"] if record == ["reward"] else [])]
    expected = (
        f"first bad value of policy 'root', danger 0.0005, seed {seed}: {', '.join(values)} in round {fails[seed] + 1}"
    )
    with pytest.warns(UserWarning, match=f"{(fails > 0).sum()} of 160 runs are invalid.*{expected}") as said:
        data = jr.simulate(Gift(), policies, out=tmp_path, **options)
    assert len([w for w in said if w.category is UserWarning]) == 1
    np.testing.assert_array_equal(data["valid"].sel(policy="root", danger=0.0005), fails == 0)
    assert data["valid"].sel(policy="safe").all() and data["valid"].sel(danger=0.0).all()
    assert data.attrs["invalid"] == [
        {"policy": "root", "setting": {"danger": 0.0005}, "seed": seed, "round": int(fails[seed]) + 1, "values": values}
    ]
    assert jr.load(tmp_path).attrs["invalid"] == data.attrs["invalid"]
    alone = jr.simulate(Gift(), {"safe": Root()}, **options)
    assert differences(data.isel(danger=0), alone) == []
    kept = np.isfinite(data[record[0]].sel(policy="root", danger=0.0005).isel(time=-1))
    np.testing.assert_array_equal(kept, fails == 0)


PLAYERS = {
    "a flow": (Clock(broken_at=17, broken=np.nan), Cycle(), "reward in round 18"),
    "a flow that is infinite": (Clock(broken_at=17, broken=-np.inf), Cycle(), "reward in round 18"),
    "in the last round": (Clock(broken_at=36, broken=np.nan), Cycle(), "reward in round 37"),
    "after free rounds": (Clock(broken_at=17, broken=np.nan, free_rounds=7), Cycle(), "reward in round 11"),
    "a policy with plans": (Clock(broken_at=17, broken=np.nan, stage_length=5), Planner(), "reward in round 18"),
    "plans of its own": (Clock(broken_at=17, broken=np.nan), Planner(stage_length=4), "reward in round 18"),
    "a function of the environment": (Clock(broken_at=17, broken=np.nan), lambda env: Cycle(first=1), "reward in round 18"),
    "a sampler": (lambda key: Clock(broken_at=17, broken=np.nan), Cycle(), "reward in round 18"),
    "a flow that must be zero": (Clock(bad_from=25), Cycle(), "bad in round 26"),
    "both": (Clock(bad_from=25, broken_at=17, broken=np.nan), Cycle(), "reward in round 18"),
    "a sum": (Clock(slope=1e38), Cycle(), "in no single round"),
}


OFTEN = ("a flow", "after free rounds", "a policy with plans", "a sampler", "a flow that must be zero", "a sum")


@pytest.mark.parametrize("name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in PLAYERS])
def test_the_first_bad_round_is_found(name):
    env, policy, where = PLAYERS[name]
    record = ["reward", "rounds"]
    with pytest.warns(
        UserWarning, match=f"first bad value of policy 'one', seed [0-9]+: .*{where}$".replace("seed [0-9]+: .*seed", "seed")
    ):
        data = jr.simulate(env, {"one": policy}, horizon=37, seeds=20, record_every=10, record=record, progress=False)
    assert not data["valid"].all()
    assert (data["rounds"].isel(time=-1) == 37).all()


@struct.dataclass
class Asks(Root):
    """Asks outside what to give."""

    def act(self, key, state, obs, t):
        def answer(t):
            raise RuntimeError("the service does not answer")

        return jax.pure_callback(answer, jax.ShapeDtypeStruct((), jnp.float32), t), {}


def test_a_callback_that_fails_is_placed():
    with pytest.raises(jax.errors.JaxRuntimeError, match="does not answer") as error:
        jr.simulate(Gift(), {"asks": Asks()}, horizon=5, seeds=3, progress=False)
    assert error.value.__notes__ == ["while policy 'asks', seeds 0 to 2 was played"]
