"""A stored result: what is written can be read, says what it is, and nobody else's data is touched."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr
from engine_child import differences
from store_cases import KEEPS, run
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute.core.attributes import decoded


def lasting(data):
    """A result without what it says of the call that gave it."""
    return data.drop_attrs(deep=False).assign_attrs({n: v for n, v in data.attrs.items() if n != "last_call"})


def contents(path):
    """Every file below a folder, with its bytes."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(Path(path).rglob("*")) if p.is_file()}


# Round trip.


@KEEPS
def test_a_stored_result_is_the_result_and_the_same_call_again_changes_nothing(keep, tmp_path, count_blocks):
    fresh = run(keep=keep)
    del count_blocks[:]
    stored = run(keep=keep, out=jr.Store(tmp_path / "out", description={"experiment": "a test"}))
    xr.testing.assert_identical(stored.drop_attrs(deep=False), fresh.drop_attrs(deep=False))
    assert len(count_blocks) == 10
    before = contents(tmp_path)
    for path in (tmp_path / "out", str(tmp_path / "out"), tmp_path / "out" / "store"):
        loaded = jr.load(path)
        xr.testing.assert_identical(loaded, lasting(stored))
        assert list(loaded) == list(stored)
        assert {name: v.dtype for name, v in loaded.items()} == {name: v.dtype for name, v in stored.items()}
    again = run(keep=keep, out=tmp_path / "out", execution=jr.Execution(block=64))
    xr.testing.assert_identical(lasting(again), loaded)
    assert len(count_blocks) == 10 and contents(tmp_path) == before
    assert set(decoded(again.attrs)["last_call"].values()) == {0}
    assert again.attrs["experiment"] == "a test"


def test_grids_vectors_gauges_and_names_survive(tmp_path):
    env = jr.grid(Clock, slope=[0.5, 1.0, 2.0])
    policies = {"grid": jr.grid(lambda shape: Cycle(first=len(shape)), shape=["a", "bb"]), "single": Planner(stage_length=5)}
    options = {"record": ["reward", "pulls", "clock", "plans"], "probes": {"probe": lambda *a: {"t": a[-1]}}, "seeds": 20}
    fresh = run(env, policies, **options)
    stored = run(env, policies, out=tmp_path, **options)
    loaded = jr.load(tmp_path)
    xr.testing.assert_identical(loaded, lasting(stored))
    assert differences(fresh, loaded) == []
    assert loaded["pulls"].dims == ("policy", "slope", "shape", "seed", "time", "model")
    named = {"model": ["a", "b", "c"], "policy": ["grid", "single"], "shape": ["a", "bb"]}
    assert {name: list(loaded[name].values) for name in named} == named
    (probe,) = [name for name in loaded if name.startswith("probe")]
    np.testing.assert_array_equal(loaded[probe].isel(policy=0, slope=0, shape=0, seed=0), [10, 20, 30, 40])


def test_numbers_that_are_not_finite_are_settings_too(tmp_path, count_blocks):
    """NaN differs from itself, but a setting that is NaN is still the same setting."""
    for broken, blocks in ((np.nan, 1), (np.nan, 1), (1.0, 2)):
        run(Clock(broken=broken, slope=np.inf), Cycle(), record=["rounds"], seeds=3, out=tmp_path)
        assert len(count_blocks) == blocks


def test_provenance(tmp_path):
    run(out=tmp_path, seeds=20)
    attributes = decoded(jr.load(tmp_path).attrs)
    assert attributes["versions"]["jax"] == jax.__version__ and attributes["versions"]["jaxroute"] == jr.__version__
    assert {"python", "jaxlib", "numpy"} <= set(attributes["versions"])
    assert attributes["device"].startswith(f"{jax.local_device_count()} x ")
    assert attributes["decisions"] == 2 * 20 * 40 and attributes["compile_s"] >= 0 and attributes["run_s"] > 0
    assert attributes["created"].startswith("20") and isinstance(attributes["commit"], str)
    settings = attributes["settings"]
    assert [settings[n] for n in ("problem", "horizon", "record_every", "root_seed")] == ["stochastic", 40, 10, 0]
    assert settings["seeds"] == list(range(20))
    assert "1.41421" in json.dumps(settings["policies"]["ucb"]) and "0.69999" in json.dumps(settings["environment"])
    assert attributes["layout"] == {"block": 16, "tile": {}}
    assert not {"calls", "made_with", "missing"} & set(attributes)


@KEEPS
def test_seconds_and_decisions_of_several_calls_are_added(keep, tmp_path):
    measured = ("compile_s", "run_s", "decisions", "played_again")
    first = decoded(run(out=tmp_path, seeds=32, keep=keep).attrs)
    assert first["last_call"] == {name: first[name] for name in measured} and first["last_call"]["decisions"] == 2 * 32 * 40
    more = decoded(run(out=tmp_path, seeds=48, keep=keep).attrs)
    assert more["last_call"]["decisions"] == 2 * 16 * 40 and more["last_call"]["run_s"] > 0
    for name in measured:
        assert more[name] == pytest.approx(first[name] + more["last_call"][name])
    assert [call["decisions"] for call in more["calls"]] == [2 * 32 * 40, 2 * 16 * 40]


# Other people's data, and wrong paths.


def test_files_beside_a_store_are_left_alone(tmp_path):
    (tmp_path / "store").mkdir(parents=True)
    for name in ("notes.txt", "store/notes.txt", "store/zarr.json"):
        (tmp_path / name).write_text("precious")
    before = contents(tmp_path)
    run(Clock(), Cycle(), out=tmp_path, record=["rounds"], seeds=3)
    assert before.items() <= contents(tmp_path).items() and len(contents(tmp_path)) == len(before) + 1
    assert (jr.load(tmp_path)["rounds"].isel(time=-1) == 40).all()


@pytest.mark.parametrize("path", ["file", "file/deep", "folder"])
def test_a_file_is_no_folder(path, tmp_path, count_blocks):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "store").write_text("precious")
    before, traces = contents(tmp_path), jr.trace_count()
    with pytest.raises(OSError, match="out must be a folder or URL that can be written to, got .*store"):
        run(Clock(), Cycle(), out=tmp_path / path, seeds=3)
    assert contents(tmp_path) == before and count_blocks == [] and jr.trace_count() == traces


def test_where_there_is_no_result(tmp_path):
    (tmp_path / "empty" / "store").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"must be that of a stored result, got .*empty.*, where no file ends in '\.pack'"):
        jr.load(tmp_path / "empty")
    with pytest.raises(ValueError, match="path must be a folder with a stored result, got .*none.*no folder 'store'"):
        jr.load(tmp_path / "none")
    run(Clock(), Cycle(), out=tmp_path / "empty", record=["rounds"], seeds=3)
    assert jr.load(tmp_path / "empty")["valid"].all()
