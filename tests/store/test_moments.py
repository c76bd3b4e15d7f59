"""Statistics in place of runs: the same numbers, in memory and in a store, whatever interrupts them, and however many play."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import engine_child
import hosts_child
import jax
import numpy as np
import pytest
import xarray as xr
from helpers import CHILDREN_PATH
from processes import together
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute import cli, experiments
from jaxroute.analysis import metrics
from jaxroute.engine import layout, programs, simulate, stopping
from jaxroute.problems import stochastic
from jaxroute.store import moments

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
POLICIES = {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3), "oracle": stochastic.Oracle.of}
STATISTICS = ("count", "mean", "variance", "minimum", "maximum")


def play(env=ENV, policies=None, **options):
    """Statistics of twenty blocks of three policies, unless said otherwise."""
    settings = {"horizon": 40, "seeds": 310, "record_every": 10, "block": 16, "progress": False, "keep": "moments"}
    settings |= {"record": ["regret", "reward", "pulls"]} if env is ENV else {}
    return jr.simulate(env, policies or POLICIES, **settings | options)


def differences(one, other):
    """Names of the variables that are not bit-equal."""
    assert set(one) == set(other)
    same = {name: one[name].identical(other[name]) for name in one}
    return sorted(str(name) for name, equal in same.items() if not equal)


def check_equal(kept, streamed, names, tolerance=1e-12):
    """Every statistic against that of the runs; those of deviations and differences in units of the spread."""
    for name in names:
        runs = metrics.pick(kept, name)
        size = np.abs(runs).max("seed").values
        for function in (metrics.mean, metrics.stderr, metrics.count, metrics.deviation):
            expected, found = function(kept, name), function(streamed, name)
            assert (found.dims, found.name, found.attrs) == (expected.dims, expected.name, expected.attrs)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            gap = np.nan_to_num(np.abs(found.values - expected.values))
            assert (gap <= tolerance * np.nan_to_num(np.maximum(np.abs(expected.values), 1e-3 * size))).all(), name
        np.testing.assert_array_equal(streamed[f"{name}.minimum"], runs.min("seed"))
        np.testing.assert_array_equal(streamed[f"{name}.maximum"], runs.max("seed"))
        np.testing.assert_array_equal(streamed[f"{name}.histogram"].sum(f"{name}.bin"), metrics.count(kept, name))
        for baseline in kept["policy"].values if kept.sizes["policy"] > 1 else ():
            expected, found = (metrics.paired(data, name, baseline) for data in (kept, streamed))
            assert list(found["policy"]) == list(expected["policy"]) and found.attrs == expected.attrs
            spread = np.nanmax(size)
            for part in ("mean", "stderr"):
                assert (found[part].dims, found[part].attrs) == (expected[part].dims, expected[part].attrs)
                np.testing.assert_allclose(found[part], expected[part], rtol=tolerance, atol=1e-3 * tolerance * spread)


# The same numbers.


def test_statistics_are_those_of_the_runs():
    """Ten thousand seeds; every statistic to 1e-12."""
    options = {"seeds": 10_000, "block": 512, "horizon": 60, "record_every": 20}
    kept, streamed_ = play(keep="runs", **options), play(**options)
    check_equal(kept, streamed_, ["regret", "reward", "pulls"])
    assert "seed" not in streamed_.dims and (streamed_["runs"] == 10_000).all() and not streamed_["invalid"].any()
    for name in ("regret", "reward", "pulls"):
        levels = [0.0, 0.05, 0.5, 0.95, 1.0]
        found, expected = metrics.quantiles(streamed_, name, levels), metrics.quantiles(kept, name, levels)
        assert found.dims == expected.dims and found.attrs == expected.attrs
        np.testing.assert_array_equal(found["quantile"], levels)
        accuracy = streamed_[f"{name}.histogram"].attrs["relative_accuracy"]
        assert (np.abs(found - expected) <= accuracy * np.abs(expected) + 1e-12).all()


def test_differences_are_taken_run_by_run():
    """The variance of a difference is not that of two independent means: both policies meet the same luck."""
    data = play(seeds=500, block=64)
    pair = data.sel(policy="narrow", baseline="oracle").isel(time=-1)
    alone = sum(float(data["reward.variance"].sel(policy=p).isel(time=-1)) for p in ("narrow", "oracle"))
    assert float(pair["reward.difference.variance"]) < 0.8 * alone
    mirror = data.sel(policy="oracle", baseline="narrow").isel(time=-1)
    assert mirror["reward.difference.mean"] == -pair["reward.difference.mean"]
    assert mirror["reward.difference.minimum"] == -pair["reward.difference.maximum"]
    assert (data.sel(policy="ucb", baseline="ucb")["reward.difference.count"] == 0).all()


GRID = {
    "grid": jr.grid(Cycle, first=[0, 1, 2, 3, 4]),
    "planner": Planner(stage_length=5),
    "delay": jr.grid(lambda late: Cycle(first=late), late=[1, 2]),
}


OF_GRID = {"record": ["reward", "luck", "pulls", "plans"], "seeds": 40}


@pytest.fixture
def small_tiles(monkeypatch):
    """Two settings of each axis at a time."""
    choose = layout.Layout.choose

    def small(axes, *args):
        return dataclasses.replace(choose(axes, *args), tile=dict.fromkeys(axes, 2))

    monkeypatch.setattr(layout.Layout, "choose", small)


def test_policies_without_an_axis_stand_beside_all_of_its_settings(small_tiles):
    """One environment axis, and two axes of one policy each; a metric that only one policy has; several tiles."""
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    kept, moments = play(env, GRID, keep="runs", **OF_GRID), play(env, GRID, **OF_GRID)
    assert moments["reward.mean"].dims == ("policy", "slope", "first", "late", "time")
    assert moments["pulls.mean"].dims == ("policy", "slope", "first", "late", "time", "model")
    check_equal(kept, moments, ["reward", "luck", "pulls", "plans"])
    assert metrics.table(moments, max_rows=1000) == metrics.table(kept, max_rows=1000)
    assert metrics.setting_axes(moments) == ["slope", "first", "late"]
    assert (moments["runs"] == 40).all()


def test_each_policy_is_played_once_per_block(monkeypatch, small_tiles):
    """Also one that stands beside many tiles of settings."""
    played = []
    run = programs.Block.play

    def counted(self, tile, seeds, *begun):
        played.append((self.name, tuple(tile.items()), int(seeds[0])))
        return run(self, tile, seeds, *begun)

    monkeypatch.setattr(programs.Block, "play", counted)
    play(jr.grid(Clock, slope=[0.5, 1.0, 2.0]), GRID, **OF_GRID)
    # Three blocks; two tiles of slopes, three of `first` and one of `late`.
    assert len(played) == len(set(played)) == 3 * 2 * (3 + 1 + 1)


def test_runs_that_are_not_valid_are_left_out_and_named():
    """`bad` differs from zero in runs with luck below one half, from round 25 on."""
    env, policies = Clock(bad_from=25), {"one": Cycle(), "two": Cycle(first=1)}
    options = {"record": ["reward", "luck"], "seeds": 100}
    with pytest.warns(UserWarning) as said:
        kept = play(env, policies, keep="runs", **options)
    with pytest.warns(UserWarning) as again:
        moments = play(env, policies, **options)
    texts = [str(next(w for w in found if w.category is UserWarning).message) for found in (said, again)]
    assert texts[0].replace("'valid'", "'invalid'") == texts[1] and "bad in round 26" in texts[1]
    assert moments.attrs["invalid"] == kept.attrs["invalid"]
    np.testing.assert_array_equal(moments["invalid"], (~kept["valid"]).sum("seed"))
    np.testing.assert_array_equal(moments["bad.runs"], (kept["bad"] != 0).sum("seed"))
    first = kept["seed"].values[np.argmax(~kept["valid"].values, axis=1)]
    np.testing.assert_array_equal(moments["first_invalid"], first)
    check_equal(kept, moments, ["reward", "luck"])
    assert metrics.table(moments) == metrics.table(kept) and "invalid and left out" in metrics.table(moments)


def test_one_seed_has_a_mean_and_no_error():
    data = play(seeds=1)
    assert np.isfinite(data["regret.mean"]).all() and data["regret.variance"].isnull().all()
    np.testing.assert_array_equal(metrics.quantiles(data, "regret", [0.5])[0], data["regret.mean"])


def test_seeds_may_be_any():
    kept, moments = (play(seeds=[7, 3, 10**9, 12], keep=keep) for keep in ("runs", "moments"))
    check_equal(kept, moments, ["regret"])


# What can be asked.


def test_questions_about_single_runs_are_refused():
    data = play()
    for question in (
        lambda: metrics.pick(data, "regret"),
        lambda: metrics.curve_slope(data, "regret", 10),
        lambda: metrics.ratio_of_means(data, "regret", "reward"),
        lambda: metrics.window_mean(data, "regret", 10),
        lambda: metrics.cumulative(data, "reward"),
    ):
        with pytest.raises(metrics.NeedsRunsError, match=r"single runs are needed.*run with keep='runs'"):
            question()
    with pytest.raises(ValueError, match="did you mean 'regret'"):
        metrics.mean(data, "regert")
    with pytest.raises(KeyError, match="regret"):
        data["regret"]  # Nothing has the name of the runs' curves, so that no statistic is taken for one.
    assert metrics.metric_names(data) == ["regret", "reward"]


@pytest.mark.parametrize("band", ["stderr", pytest.param("deviation", marks=pytest.mark.slow), "quantile"])
def test_figures_are_those_of_the_runs(band):
    plot = pytest.importorskip("jaxroute.analysis.plot")
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    for data in (play(keep="runs"), play()):
        ax = plot.curves(data, "regret", band=band)
        drawn.append(
            [*(line.get_ydata() for line in ax.lines), *(v.vertices[:, 1] for c in ax.collections for v in c.get_paths())]
        )
        texts = (ax.get_xlabel(), ax.get_ylabel(), [t.get_text() for t in ax.get_legend().get_texts()])
        drawn[-1].append(texts)
    *one, first = drawn[0]
    *two, second = drawn[1]
    assert first == second and len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.01 if band == "quantile" else 1e-10, atol=1e-12)
    plt.close("all")


def test_other_figures_are_drawn_from_statistics():
    plot = pytest.importorskip("jaxroute.analysis.plot")
    plt = pytest.importorskip("matplotlib.pyplot")
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    labels = []
    for keep in ("runs", "moments"):
        data = play(
            env, {"grid": jr.grid(Cycle, first=[0, 1]), "one": Cycle()}, record=["reward", "luck", "pulls"], keep=keep
        )
        axes = [
            plot.final(data.isel(first=0), "reward"),
            plot.final(data.isel(first=0, slope=0), "luck"),
            plot.spread(data.isel(first=0, slope=0), "luck"),
            plot.heat(data, "luck", policy="grid", x="slope", y="first"),
            plot.deployment(data.isel(first=0, slope=0), policy="one", variable="pulls"),
            plot.curves(data.isel(slope=0).sel(policy="grid"), "luck"),
        ]
        labels.append([(ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) for ax in axes])
        plt.close("all")
    assert labels[0] == labels[1]


# The store.


@pytest.fixture(scope="module")
def undisturbed():
    return play()


def parts(path):
    return sorted((Path(path) / "result.zarr" / "_done").glob("*.part"))


def test_what_is_stored_is_the_result(tmp_path, undisturbed, count_blocks):
    stored = play(out=tmp_path, description={"experiment": "a test"})
    assert differences(undisturbed, stored) == []
    loaded = jr.load(tmp_path)
    xr.testing.assert_identical(loaded, stored)
    assert loaded.attrs["experiment"] == "a test" and loaded.attrs["decisions"] == 3 * 310 * 40
    assert len(count_blocks) == 60
    again = play(out=tmp_path, block=64)  # The block of the store holds.
    assert len(count_blocks) == 60 and differences(undisturbed, again) == []
    assert again.attrs["decisions"] == stored.attrs["decisions"]


def test_a_store_does_not_grow_with_the_seeds(tmp_path):
    sizes = []
    for seeds in (16 * 64, 16 * 256):
        play(seeds=seeds, out=tmp_path / str(seeds))
        sizes.append(sum(f.stat().st_size for f in parts(tmp_path / str(seeds))))
    assert len(parts(tmp_path / "1024")) == 1
    assert sizes[1] < 1.3 * sizes[0]  # Some bins more.


def test_runs_and_moments_do_not_share_a_store(tmp_path):
    play(out=tmp_path / "moments")
    with pytest.raises(jr.StoreMismatchError, match="keep is 'moments' there and 'runs' here; choose another folder"):
        play(out=tmp_path / "moments", keep="runs")
    play(out=tmp_path / "runs", keep="runs")
    with pytest.raises(jr.StoreMismatchError, match="keep is 'runs' there and 'moments' here; choose another folder"):
        play(out=tmp_path / "runs")
    with pytest.raises(jr.StoreMismatchError, match="until_stderr is None there"):
        play(out=tmp_path / "runs", keep="runs", until_stderr={"regret": 1.0})
    with pytest.raises(ValueError, match="keep must be one of 'runs', 'moments', got 'moment'; did you mean 'moments'"):
        play(keep="moment")


class Killed(BaseException):
    """As `kill -9`: nothing that follows is executed, not even a handler of `Exception`."""


@pytest.mark.parametrize("when", ["before the file", "in the file", "before it takes its place", "after"])
@pytest.mark.parametrize("block", [0, 7])
def test_a_run_that_dies_while_it_writes_loses_one_block(tmp_path, undisturbed, monkeypatch, count_blocks, when, block):
    write, replace, calls = Path.write_bytes, Path.replace, []

    def dying_write(self, content):
        if not self.name.endswith(".part.partial"):
            return write(self, content)
        calls.append(self)
        if len(calls) > block and when == "before the file":
            raise Killed
        write(self, content[: len(content) // 2] if len(calls) > block and when == "in the file" else content)
        if len(calls) > block and when == "in the file":
            raise Killed

    def dying_replace(self, target):
        if self.name.endswith(".part.partial") and len(calls) > block:
            if when == "after":
                replace(self, target)
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", dying_write)
        patch.setattr(Path, "replace", dying_replace)
        with pytest.raises(Killed):
            play(out=tmp_path)
    kept = block + (when == "after")
    with pytest.raises(
        ValueError, match=f"unfinished: {20 - kept} blocks are missing, the first that of all policies, seeds {16 * kept} to"
    ):
        jr.load(tmp_path)
    if kept:
        partial = jr.load(tmp_path, partial=True)
        alone = play(seeds=16 * kept)
        assert differences(alone, partial) == []
    del count_blocks[:]
    assert differences(undisturbed, play(out=tmp_path)) == []
    assert len(count_blocks) == 3 * (20 - kept)
    assert differences(undisturbed, jr.load(tmp_path)) == []


CHILD = """
    import os, signal, sys
    import test_moments
    from jaxroute.store import moments

    write, done = moments.MomentSink.write, []

    def watched(self, *args):
        if len(done) == 25:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, *args)
        done.append(args)

    moments.MomentSink.write = watched
    test_moments.play(out=sys.argv[1])
"""


@pytest.mark.slow
def test_a_run_that_was_killed_continues_to_the_same_bits(tmp_path, undisturbed, count_blocks):
    env = os.environ | {"PYTHONPATH": CHILDREN_PATH}
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)], env=env, capture_output=True, timeout=300
    )
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    continued = play(out=tmp_path)
    assert len(count_blocks) == 60 - 24  # Eight whole blocks of three policies.
    assert differences(undisturbed, continued) == []


def test_grids_continue_too(tmp_path, monkeypatch, small_tiles, count_blocks):
    """Interrupted in the middle of a block of seeds: some tiles have it, others not."""
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    whole = play(env, GRID, **OF_GRID)
    number, merge = len(count_blocks), moments.MomentSink._merge
    del count_blocks[:]
    calls = []

    def dying(self, *args):
        calls.append(args)
        if len(calls) == 9:
            raise KeyboardInterrupt
        merge(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(moments.MomentSink, "_merge", dying)
        with pytest.raises(KeyboardInterrupt):
            play(env, GRID, out=tmp_path, **OF_GRID)
    first = len(count_blocks)
    continued = play(env, GRID, out=tmp_path, **OF_GRID)
    assert differences(whole, continued) == []
    assert first > 0 and number <= len(count_blocks) < 1.3 * number
    assert len(parts(tmp_path)) == 6
    xr.testing.assert_identical(jr.load(tmp_path), continued)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("how", [flip, cut, empty])
def test_a_damaged_file_is_noticed_named_and_made_again(tmp_path, undisturbed, count_blocks, how):
    play(out=tmp_path)
    del count_blocks[:]
    how(parts(tmp_path)[0])
    with pytest.raises(ValueError, match="damaged: the statistics of all policies are not what was written"):
        jr.load(tmp_path)
    with pytest.warns(UserWarning, match="the statistics of all policies in .* are damaged .*; they are played again"):
        again = play(out=tmp_path)
    assert len(count_blocks) == 60 and differences(undisturbed, again) == []
    assert differences(undisturbed, jr.load(tmp_path)) == []


def test_the_file_of_another_tile_is_no_substitute(tmp_path, small_tiles):
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    whole = play(env, {"one": Cycle()}, record=["reward"], seeds=40, out=tmp_path)
    first, second = parts(tmp_path)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match="the statistics of slope 2.0 are not what was written .the file of another tile"):
        jr.load(tmp_path)
    partial = jr.load(tmp_path, partial=True)
    assert (partial["runs"].isel(slope=2) == 0).all() and (partial["runs"].isel(slope=1) == 40).all()
    with pytest.warns(UserWarning, match="slope 2.0 .* are played again"):
        again = play(env, {"one": Cycle()}, record=["reward"], seeds=40, out=tmp_path)
    assert differences(whole, again) == []


@pytest.mark.parametrize("file", ["zarr.json", "_done/zarr.json"])
@pytest.mark.parametrize("how", [cut, empty, Path.unlink])
def test_a_damaged_description_is_made_again_and_the_statistics_are_kept(tmp_path, undisturbed, count_blocks, file, how):
    before = play(out=tmp_path)
    del count_blocks[:]
    how(tmp_path / "result.zarr" / file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = play(out=tmp_path)
    assert count_blocks == [] and differences(undisturbed, again) == []
    assert again.attrs["decisions"] == before.attrs["decisions"]
    xr.testing.assert_identical(jr.load(tmp_path), again)


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path, undisturbed, monkeypatch, count_blocks):
    write, calls = Path.write_bytes, []

    def full(self, content):
        if self.name.endswith(".part.partial"):
            calls.append(self)
            if len(calls) > 5:
                raise OSError(28, "No space left on device")
        return write(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(
            OSError, match="No space left on device; finished blocks are kept, and the same command continues"
        ):
            play(out=tmp_path)
    del count_blocks[:]
    assert differences(undisturbed, play(out=tmp_path)) == []
    assert len(count_blocks) == 60 - 15


def test_statistics_that_do_not_fit_into_memory_are_refused(monkeypatch):
    from jaxroute.store import provenance

    monkeypatch.setattr(provenance, "memory_limit", lambda device: 10**6)
    with pytest.raises(ValueError, match="the statistics would take about .* GiB, more than half of the memory"):
        play(horizon=1000, record_every=1)


def test_a_block_is_small_enough_for_the_curves_of_all_policies(monkeypatch):
    """Five numbers at each of four times, of each of three policies: 480 bytes a run."""
    monkeypatch.setattr(simulate, "_CURVES", 480 * 100)
    assert play(block=None).attrs["layout"]["block"] == 64
    assert play(block=None, keep="runs").attrs["layout"]["block"] > 64


# Several processes.


def saved(out, index, like):
    with np.load(out / f"{index}.npz") as arrays:
        return {name: arrays[name] for name in like}


@pytest.fixture(scope="module")
def alone():
    return engine_child.play("bandit", seeds=100, block=16, keep="moments")


def check_processes(out, number, alone):
    for i in range(number):
        for name, values in saved(out, i, alone).items():
            np.testing.assert_array_equal(values, alone[name].values, err_msg=f"process {i}, {name}")
    assert differences(alone, jr.load(out)) == []


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_give_the_bits_of_one(tmp_path, alone, number):
    found = together(number, tmp_path, "moments")
    assert [status for status, *_ in found] == [0] * number, found
    sizes = [len(report["played"]) for _, report, _ in found]
    assert sum(sizes) == 14 and max(sizes) - min(sizes) <= 2  # Two policies of a block belong together.
    assert len(parts(tmp_path)) == number
    check_processes(tmp_path, number, alone)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 4])
def test_any_number_of_processes_continues_what_two_have_begun(tmp_path, alone, number):
    (status, report, _), (killed, _, _) = together(2, tmp_path, "moments killed")
    assert killed == -signal.SIGKILL and status == 0
    assert "process 1 died: 3 blocks are missing, the first that of all policies, seeds" in report["error"]
    if number == 1:
        assert differences(alone, engine_child.play("bandit", seeds=100, out=tmp_path, keep="moments")) == []
        return
    found = together(number, tmp_path, "moments")
    assert [status for status, *_ in found] == [0] * number, found
    check_processes(tmp_path, number, alone)


def test_a_strand_goes_on_with_another_process(tmp_path, undisturbed, monkeypatch):
    """Three owners in turn: each holds what it has merged itself, and the strands go from hand to hand."""
    sink, merge, calls = moments.MomentSink, moments.MomentSink._merge, []
    init = sink.__init__
    for rank, stop in ((0, 6), (3, 13), (0, 19), (1, 99)):

        def dying(self, *args, stop=stop):
            if len(calls) == stop:
                raise KeyboardInterrupt
            calls.append(args)
            merge(self, *args)

        def owned(self, *args, owner=rank, **options):
            init(self, *args, **options | {"rank": owner})

        with monkeypatch.context() as patch:
            patch.setattr(sink, "_merge", dying)
            patch.setattr(sink, "__init__", owned)
            try:
                data = play(out=tmp_path)
            except KeyboardInterrupt:
                continue
    assert [f.name for f in parts(tmp_path)] == ["0-0.part", "0-1.part", "0-3.part"]
    assert differences(undisturbed, data) == []
    parts(tmp_path)[0].unlink()  # Without it, a strand of another owner has no beginning.
    with pytest.raises(ValueError, match="some blocks are missing, or counted twice"):
        jr.load(tmp_path)
    with pytest.warns(UserWarning, match="played again"):
        assert differences(undisturbed, play(out=tmp_path)) == []


# Until the standard error is small enough.


def test_looks_double():
    assert stopping.looks(10_000, 100) == [3, 6, 12, 24, 48, 96, 100]
    assert stopping.looks(10_000, 2048) == [1, 2, 4, 5]
    assert stopping.looks(200, 16) == [13]
    assert stopping.looks(256, 256) == [1]


UNTIL = {"seeds": 5000, "block": 64, "until_stderr": {"regret": 0.12}}


def test_a_run_stops_when_it_knows_enough():
    kept, moments = play(keep="runs", **UNTIL), play(**UNTIL)
    number = kept.attrs["seeds_played"]
    assert number in (512, 1024, 2048) and kept.sizes["seed"] == number and kept["valid"].all()
    assert moments.attrs["seeds_played"] == number and (moments["runs"] == number).all()
    check_equal(kept, moments, ["regret", "reward", "pulls"])
    assert differences(play(seeds=number, block=64), moments) == []
    errors = metrics.stderr(kept, "regret").isel(time=-1)
    assert (errors < 0.12).all()
    half = metrics.stderr(kept.isel(seed=slice(number // 2)), "regret").isel(time=-1)
    assert not (half < 0.12).all()
    for data in (kept, moments):
        ended = data.attrs["until_stderr"]
        assert ended["reached"] is True and ended["goal"] == {"regret": 0.12}
        assert ended["stderr"]["regret"] == pytest.approx(float(errors.max()), rel=1e-12)
        assert data.attrs["decisions"] == 3 * number * 40


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_goal_that_is_not_reached_is_said(keep):
    with pytest.warns(
        UserWarning, match=r"the standard errors after 310 seeds are not below the goal, until_stderr=.*0.001"
    ):
        data = play(keep=keep, until_stderr={"regret": 0.001, "reward": 1.0})
    assert data.attrs["until_stderr"]["reached"] is False and data.attrs["seeds_played"] == 310
    assert differences(play(keep=keep), data) == []


@pytest.mark.parametrize("keep", ["runs", "moments"])
@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 13, pytest.param(47, marks=pytest.mark.slow)])
def test_a_run_with_a_goal_continues_to_the_same_bits(tmp_path, monkeypatch, keep, stop):
    whole = play(keep=keep, **UNTIL)
    run, calls = programs.Block.play, []

    def dying(self, *args):
        calls.append(args)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return run(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(programs.Block, "play", dying)
        try:
            play(keep=keep, out=tmp_path, **UNTIL)
        except KeyboardInterrupt:
            with pytest.raises(ValueError, match=r"unfinished|not complete"):
                jr.load(tmp_path)
    for data in (play(keep=keep, out=tmp_path, **UNTIL), play(keep=keep, out=tmp_path, **UNTIL), jr.load(tmp_path)):
        assert differences(whole, data) == []
        assert data.attrs["until_stderr"] == whole.attrs["until_stderr"]
        assert data.attrs["seeds_played"] == whole.attrs["seeds_played"]


def test_a_policy_whose_runs_are_all_invalid_has_no_mean_and_reaches_no_goal():
    with pytest.warns(UserWarning, match="not below the goal") as said:
        data = play(
            Clock(broken_at=3, broken=np.nan), {"one": Cycle()}, record=["reward"], until_stderr={"reward": 1.0}, seeds=20
        )
    assert any("20 of 20 runs are invalid" in str(w.message) for w in said)
    assert data.attrs["until_stderr"] == {"goal": {"reward": 1.0}, "reached": False, "stderr": {"reward": None}}
    assert data["reward.mean"].isnull().all() and (data["reward.count"] == 0).all() and (data["invalid"] == 20).all()
    assert metrics.quantiles(data, "reward").isnull().all()
    assert "-" in metrics.table(data).splitlines()[3]


def test_a_metric_of_one_policy_is_enough(small_tiles):
    """`plans` is only the planner's; it has no variance at all."""
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    for keep in ("runs", "moments"):
        data = play(env, GRID, until_stderr={"plans": 0.1}, keep=keep, **OF_GRID | {"seeds": 1000})
        assert data.attrs["seeds_played"] == 256 and data.attrs["until_stderr"]["reached"]


WRONG = {
    "no dict": (0.5, r"until_stderr must be a dict of metric and standard error, as \{'regret': 0.5\}, got 0.5"),
    "nothing": ({}, "until_stderr must be a dict"),
    "an unknown metric": ({"regert": 0.5}, "until_stderr must be one of .*did you mean 'regret'"),
    "a metric that is not recorded": ({"luck": 0.5}, "until_stderr must be one of 'regret', 'reward', 'pulls', got 'luck'"),
    "zero": ({"regret": 0.0}, r"until_stderr\['regret'\] must be above 0, got 0"),
    "nan": ({"regret": float("nan")}, r"until_stderr\['regret'\] must be finite"),
    "a word": ({"regret": "small"}, r"until_stderr\['regret'\] must be a number"),
    "by policy": ({"regret": {"ucb": 0.5}}, r"until_stderr\['regret'\] must be a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_goals_are_refused(name):
    goal, message = WRONG[name]
    before = jr.trace_count()
    with pytest.raises(ValueError, match=message):
        play(until_stderr=goal)
    assert jr.trace_count() == before


@pytest.mark.parametrize(
    ("keep", "number"),
    [("moments", 2), pytest.param("runs", 2, marks=pytest.mark.slow), pytest.param("moments", 4, marks=pytest.mark.slow)],
)
def test_several_processes_stop_where_one_does(tmp_path, keep, number):
    single = engine_child.play("bandit", block=16, keep=keep, **hosts_child.UNTIL)
    assert single.attrs["seeds_played"] == 1024
    found = together(number, tmp_path, f"{keep} until")
    assert [status for status, *_ in found] == [0] * number, found
    sizes = [len(report["played"]) for _, report, _ in found]
    assert sum(sizes) == 2 * 64 and max(sizes) - min(sizes) <= 4 * 2  # Two policies; at each look as equal as blocks allow.
    for _, report, _ in found:
        assert report["attributes"]["until_stderr"] == single.attrs["until_stderr"]
        assert report["attributes"]["seeds_played"] == 1024
    if keep == "moments":
        check_processes(tmp_path, number, single)
    else:
        assert engine_child.differences(single, jr.load(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_goal_is_reached_after_a_process_has_died(tmp_path, keep):
    """The other one stops at the look, and says so; the next run ends as if nothing had been."""
    (status, report, _), (killed, _, _) = together(2, tmp_path, f"{keep} until killed")
    assert killed == -signal.SIGKILL and status == 0
    assert "process 1 died: " in report["error"] and "the same command continues from here" in report["error"]
    continued = engine_child.play("bandit", block=16, keep=keep, out=tmp_path, **hosts_child.UNTIL)
    whole = engine_child.play("bandit", block=16, keep=keep, **hosts_child.UNTIL)
    same = differences if keep == "moments" else engine_child.differences
    assert same(whole, continued) == [] and continued.attrs["seeds_played"] == 1024


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "skewed"])
def test_stopping_does_not_bias_the_mean(law):
    """Two thousand repetitions of a run whose goal lies just where a look is made: the worst place.

    Of symmetric rewards the mean is unbiased. Of skewed ones it is too small by at most 0.2 r standard errors, where r is the
    correlation of the mean and the variance of a sample: skewness / sqrt(excess kurtosis + 2), for exponential rewards 0.71.
    """
    rng, number = np.random.default_rng(0), 2000
    draw = rng.standard_normal if law == "normal" else rng.standard_exponential
    truth, goal = (0.0, 1.0 / np.sqrt(512)) if law == "normal" else (1.0, 1.0 / np.sqrt(512))
    gaps, stopped = [], []
    for _ in range(number):
        sample = draw(4096)
        for blocks in stopping.looks(4096, 256):
            seen = sample[: 256 * blocks]
            error = np.asarray([seen.std(ddof=1) / np.sqrt(len(seen))])
            if stopping.reached({"x": goal}, {"x": error})[0]:
                break
        gaps.append((seen.mean() - truth) / goal)
        stopped.append(len(seen))
    assert 0.3 < np.mean(np.asarray(stopped) == 512) < 0.7
    bias, error = np.mean(gaps), np.std(gaps, ddof=1) / np.sqrt(number)
    low = 0.0 if law == "normal" else -0.2 * 2.0 / np.sqrt(8.0)
    assert low - 4.0 * error < bias < 4.0 * error, (bias, error)
    if law == "skewed":
        assert bias < -4.0 * error  # As the docstring warns.


@pytest.mark.slow
def test_stopping_does_not_bias_a_simulation():
    """Thompson sampling, a goal just at a look, one hundred roots of randomness, against eight times as many seeds without a goal."""
    policies = {"th": stochastic.GaussianThompson()}
    options = {"seeds": 2048, "block": 256, "record": ["regret"], "record_every": 40}
    truth = play(ENV, policies, key=10**6, **options | {"seeds": 100_000, "block": 1024})
    goal = float(np.sqrt(truth["regret.variance"].isel(time=-1).item() / 512))
    found, played = [], []
    for key in range(100):
        data = play(ENV, policies, key=key, until_stderr={"regret": goal}, **options)
        found.append(data["regret.mean"].isel(time=-1).item())
        played.append(data.attrs["seeds_played"])
    assert 20 < np.sum(np.asarray(played) == 512) < 80 and max(played) == 1024
    error = np.hypot(np.std(found, ddof=1) / 10.0, metrics.stderr(truth, "regret").isel(time=-1).item())
    assert abs(np.mean(found) - truth["regret.mean"].isel(time=-1).item()) < 4.0 * error


# Experiments and the command.

EXPERIMENT = """
from jaxroute import metrics, plot
from jaxroute.experiments import Case, Claim, Experiment
from jaxroute.experiments.measure import end, late_slope
from jaxroute.problems import stochastic

def best(results):
    a, b = (end(results["result"], "regret", p) for p in ("UCB1", "Thompson"))
    return f"{a[0]:.3f} against {b[0]:.3f}", b[0] < a[0]

def pairs(results):
    pair = metrics.paired(results["result"], "regret", "UCB1").isel(time=-1)
    return f"{float(pair['mean'].sel(policy='Thompson')):.3f}", bool(pair["z"] < -2.0)

def slope(results):
    fit = late_slope(results["result"], "regret", "UCB1", 50)
    return f"{fit[0]:.2f}", fit[0] < 1.0

def own(results):
    regret = results["result"]["regret"].sel(policy="UCB1").isel(time=-1)
    return f"{float(regret.mean()):.3f}", True

experiment = Experiment(
    name="mine/two",
    title="two policies",
    cases=(
        Case(
            environment=stochastic.bernoulli([0.2, 0.7, 0.5]),
            policies={"UCB1": stochastic.UCB1(), "Thompson": stochastic.GaussianThompson()},
            horizon=200,
            record_every=20,
        ),
    ),
    claims=tuple(Claim(f.__name__, f.__name__, "here", f) for f in (best, pairs, slope, own)),
    figures={
        "curves": lambda results: plot.curves(results["result"], "regret").figure,
        "runs": lambda results: plot.power_laws({"x": metrics.pick(results["result"], "regret")}).figure,
    },
)
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(EXPERIMENT)
    return file


def test_the_command_keeps_moments_and_says_what_it_cannot_tell(mine, tmp_path, capsys):
    out, command = tmp_path / "out", ["run", str(mine), "--seeds", "3000", "--keep", "moments"]
    with pytest.warns(UserWarning, match="the figure 'runs' is left out: regret: single runs are needed.*keep='runs'"):
        assert cli.main([*command, "--out", str(out), "--until-stderr", "regret=0.5"]) == 0
    shown = capsys.readouterr().out
    words = " ".join(shown.split())
    assert "not judged slope" in words and "not evaluated: regret: single runs are needed" in words
    summary = json.loads((out / "summary.json").read_text())
    holds = {claim["id"]: claim["verdict"] for claim in summary["claims"]}
    assert holds == {"best": "holds", "pairs": "holds", "slope": "not judged", "own": "not judged"}
    data = jr.load(out)
    assert summary["seeds"] == data.attrs["seeds_played"] < 3000 and data.attrs["until_stderr"]["reached"]
    assert (out / "curves.png").exists() and not (out / "runs.png").exists()
    assert f"of {data.attrs['seeds_played']} seeds" in shown


def test_claims_from_moments_say_what_claims_from_runs_say(mine, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        experiment = cli._experiment(str(mine))
        experiment = experiments.Experiment(**{**vars(experiment), "figures": {}})
        one, two = (
            experiments.run(experiment, tmp_path / keep, seeds=64, keep=keep, progress=False) for keep in ("runs", "moments")
        )
    for a, b in zip(one["claims"][:2], two["claims"][:2], strict=True):
        assert a == b
    for policy, values in one["policies"].items():
        for metric, numbers in values.items():
            assert two["policies"][policy][metric] == pytest.approx(numbers, rel=1e-10)


@pytest.mark.parametrize("text", ["regret", "regret=", "=0.5", "regret=small"])
def test_wrong_goals_on_the_command_line(mine, text, tmp_path, capsys):
    assert cli.main(["run", str(mine), "--until-stderr", text, "--out", str(tmp_path / "out")]) == 2
    assert "--until-stderr must have the form METRIC=ERROR" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_devices_of_one_process_change_nothing():
    assert differences(play(), play(mesh=jax.sharding.Mesh(np.asarray(jax.local_devices()), ("seed",)))) == []
