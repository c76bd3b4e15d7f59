"""Statistics in place of runs: the same numbers, in memory and in a store, whatever interrupts them."""

import dataclasses

import jax
import numpy as np
import pytest
from store_cases import assert_same
from store_cases import run_three as run
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core.attributes import decoded
from jaxroute.engine import layout
from jaxroute.store import runs


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
        np.testing.assert_array_equal(streamed[f"{name}_minimum"], runs.min("seed"))
        np.testing.assert_array_equal(streamed[f"{name}_maximum"], runs.max("seed"))
        np.testing.assert_array_equal(streamed[f"{name}_histogram"].sum(f"{name}_bin"), metrics.count(kept, name))
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
    options = {"seeds": 10_000, "execution": jr.Execution(block=512), "horizon": 60, "record_every": 20}
    kept, streamed = run(keep="runs", **options), run(**options)
    check_equal(kept, streamed, ["regret", "reward", "pulls"])
    assert "seed" not in streamed.dims and (streamed["runs"] == 10_000).all() and not streamed["invalid"].any()
    for name in ("regret", "reward", "pulls"):
        levels = [0.0, 0.05, 0.5, 0.95, 1.0]
        found, expected = metrics.quantiles(streamed, name, levels), metrics.quantiles(kept, name, levels)
        assert found.dims == expected.dims and found.attrs == expected.attrs
        np.testing.assert_array_equal(found["quantile"], levels)
        accuracy = streamed[f"{name}_histogram"].attrs["relative_accuracy"]
        assert (np.abs(found - expected) <= accuracy * np.abs(expected) + 1e-12).all()


def test_differences_are_taken_run_by_run():
    """The variance of a difference is not that of two independent means: both policies meet the same luck."""
    data = run(seeds=500, execution=jr.Execution(block=64))
    pair = data.sel(policy="narrow", baseline="oracle").isel(time=-1)
    alone = sum(float(data["reward_variance"].sel(policy=p).isel(time=-1)) for p in ("narrow", "oracle"))
    assert float(pair["reward_difference_variance"]) < 0.8 * alone
    mirror = data.sel(policy="oracle", baseline="narrow").isel(time=-1)
    assert mirror["reward_difference_mean"] == -pair["reward_difference_mean"]
    assert mirror["reward_difference_minimum"] == -pair["reward_difference_maximum"]
    assert (data.sel(policy="ucb", baseline="ucb")["reward_difference_count"] == 0).all()


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

    def small(setup, *args):
        return dataclasses.replace(choose(setup, *args), tile=dict.fromkeys(setup.components.axes, 2))

    monkeypatch.setattr(layout.Layout, "choose", small)


def test_policies_without_an_axis_stand_beside_all_of_its_settings(small_tiles):
    """One environment axis, and two axes of one policy each; a metric that only one policy has; several tiles."""
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    kept, moments = run(env, GRID, keep="runs", **OF_GRID), run(env, GRID, **OF_GRID)
    assert moments["reward_mean"].dims == ("policy", "slope", "first", "late", "time")
    assert moments["pulls_mean"].dims == ("policy", "slope", "first", "late", "time", "model")
    check_equal(kept, moments, ["reward", "luck", "pulls", "plans"])
    assert metrics.table(moments, max_rows=1000) == metrics.table(kept, max_rows=1000)
    assert metrics.setting_axes(moments) == ["slope", "first", "late"]
    assert (moments["runs"] == 40).all()


@pytest.mark.parametrize("seeds", [40, 512])
def test_each_policy_is_simulated_once_per_block(seeds, simulated, count_blocks, small_tiles):
    """Also one that stands beside many tiles of settings."""
    run(jr.grid(Clock, slope=[0.5, 1.0, 2.0]), GRID, **OF_GRID | {"seeds": seeds, "execution": jr.Execution(block=256)})
    assert len(simulated) == len(set(simulated)) == seeds * 3 * (5 + 1 + 2)
    # Two tiles of slopes, three of `first` and one of `late`.
    assert len(count_blocks) == -(-seeds // 256) * 2 * (3 + 1 + 1)


def test_runs_that_are_not_valid_are_left_out_and_named():
    """`bad` differs from zero in runs with luck below one half, from round 25 on."""
    env, policies = Clock(bad_from=25), {"one": Cycle(), "two": Cycle(first=1)}
    options = {"record": ["reward", "luck"], "seeds": 100}
    with pytest.warns(UserWarning) as said:
        kept = run(env, policies, keep="runs", **options)
    with pytest.warns(UserWarning) as again:
        moments = run(env, policies, **options)
    texts = [str(next(w for w in found if w.category is UserWarning).message) for found in (said, again)]
    assert texts[0].replace("'valid'", "'invalid'") == texts[1] and "bad in round 26" in texts[1]
    assert moments.attrs["invalid"] == kept.attrs["invalid"]
    np.testing.assert_array_equal(moments["invalid"], (~kept["valid"]).sum("seed"))
    np.testing.assert_array_equal(moments["bad_runs"], (kept["bad"] != 0).sum("seed"))
    first = kept["seed"].values[np.argmax(~kept["valid"].values, axis=1)]
    np.testing.assert_array_equal(moments["first_invalid"], first)
    check_equal(kept, moments, ["reward", "luck"])
    assert metrics.table(moments) == metrics.table(kept) and "invalid and left out" in metrics.table(moments)


def test_one_seed_has_a_mean_and_no_error_and_seeds_may_be_any():
    data = run(seeds=1)
    assert np.isfinite(data["regret_mean"]).all() and data["regret_variance"].isnull().all()
    np.testing.assert_array_equal(metrics.quantiles(data, "regret", [0.5])[0], data["regret_mean"])
    kept, moments = (run(seeds=[7, 3, 10**9, 12], keep=keep) for keep in ("runs", "moments"))
    check_equal(kept, moments, ["regret"])


# What can be asked.


def test_questions_about_single_runs_are_refused():
    data = run()
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
    plot = pytest.importorskip("jaxroute.plot")
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    for data in (run(keep="runs"), run()):
        ax = plot.curves(data, "regret", band=band)
        lines = [line.get_ydata() for line in ax.lines]
        bands = [path.vertices[:, 1] for band in ax.collections for path in band.get_paths()]
        texts = (ax.get_xlabel(), ax.get_ylabel(), [t.get_text() for t in ax.get_legend().get_texts()])
        drawn.append([*lines, *bands, texts])
    *one, first = drawn[0]
    *two, second = drawn[1]
    assert first == second and len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.01 if band == "quantile" else 1e-10, atol=1e-12)
    plt.close("all")


def test_other_figures_are_drawn_from_statistics():
    plot = pytest.importorskip("jaxroute.plot")
    plt = pytest.importorskip("matplotlib.pyplot")
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    labels = []
    for keep in ("runs", "moments"):
        policies = {"grid": jr.grid(Cycle, first=[0, 1]), "one": Cycle()}
        data = run(env, policies, record=["reward", "luck", "pulls"], keep=keep)
        axes = [
            plot.sweep(data.isel(first=0), "reward"),
            plot.sweep(data.isel(first=0, slope=0), "luck"),
            plot.quantiles(data.isel(first=0, slope=0), "luck"),
            plot.heat(data, "luck", policy="grid", x="slope", y="first"),
            plot.deployment(data.isel(first=0, slope=0), policy="one", variable="pulls"),
            plot.curves(data.isel(slope=0).sel(policy="grid"), "luck"),
        ]
        labels.append([(ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) for ax in axes])
        plt.close("all")
    assert labels[0] == labels[1]


# The store.


def test_a_store_does_not_grow_with_the_seeds(tmp_path):
    sizes = []
    for seeds in (256 * 8, 256 * 32):
        run(seeds=seeds, out=tmp_path / str(seeds), execution=jr.Execution(block=512))
        sizes.append(sum(f.stat().st_size for f in (tmp_path / str(seeds) / "store").iterdir()))
    assert sizes[1] < 1.7 * sizes[0]  # Two ranges of seeds more, and some bins.


def test_another_number_of_devices_or_what_is_kept_is_told_apart():
    assert_same(run(), run(execution=jr.Execution(devices=jax.local_devices(), block=16)))
    with pytest.raises(ValueError, match="keep must be one of 'runs', 'moments', got 'moment'; did you mean 'moments'"):
        run(keep="moment")


def test_what_does_not_fit_into_memory_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(runs, "memory_limit", lambda device: 10**6)
    with pytest.raises(ValueError, match="the statistics would take about .* GiB, more than half of the memory"):
        run(horizon=1000, record_every=1)
    before = jr.trace_count()
    with pytest.raises(ValueError, match="the result would take .* GiB.*: keep statistics .*keep='moments', --keep moments"):
        run(seeds=10_000, keep="runs")
    assert jr.trace_count() == before
    assert run(seeds=10_000, record=["regret"], execution=None).sizes["policy"] == 3


def test_a_block_is_small_enough_for_the_curves_of_all_policies(monkeypatch):
    """Five numbers at each of four times, of each of three policies: 480 bytes a run."""
    monkeypatch.setattr(layout, "_CURVE_BYTES", 480 * 100)
    assert decoded(run(execution=None).attrs)["layout"]["block"] == 64
    assert decoded(run(execution=None, keep="runs").attrs)["layout"]["block"] > 64
