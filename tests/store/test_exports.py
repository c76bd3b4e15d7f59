"""Results in the files of other programs: written by xarray and read again, they are the same."""

import importlib.util
import json
import pickle
import sys

import numpy as np
import pandas
import pytest
import xarray as xr
from flax import struct
from toys import Clock, Cycle

import jaxroute as jr
from jaxroute import cli, metrics
from jaxroute.core.attributes import decoded, encoded
from jaxroute.core.types import Metric
from jaxroute.problems import stochastic
from jaxroute.store import export, packs, runs
from jaxroute.store import results as stores

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
POLICIES = {"ucb": jr.grid(stochastic.UCB1, width=[0.3, 1.0]), "größer": stochastic.UCB1(), "oracle": stochastic.Oracle.of}
DESCRIPTION = {"experiment": "a test", "nothing": None, "flag": True, "case_coordinates": {"load": 0.7}, "many": 2**40}
ENGINES = ["scipy", *(["h5netcdf"] if importlib.util.find_spec("h5netcdf") else [])]


def spread(env, policy, env_state, policy_state, t):
    return {"now": t, "of each": env.mean}


def play(env=ENV, policies=None, **options):
    settings = {"horizon": 40, "seeds": 24, "record_every": 10, "execution": jr.Execution(block=8), "progress": False}
    return jr.simulate(env, policies or POLICIES, **settings | options)


@pytest.fixture(scope="module", params=["runs", "moments"])
def results(request, tmp_path_factory):
    """A result with settings, vectors, probes and a long description, as it was made and as it is loaded."""
    out = tmp_path_factory.mktemp("store")
    options = {"record": ["regret", "pulls"], "probes": {"spread": spread}, "keep": request.param}
    return {"fresh": play(out=jr.Store(out, description=DESCRIPTION), **options), "loaded": jr.load(out)}


def check_same(found, expected):
    """Variables, coordinates and attributes are equal, also those of variables."""
    xr.testing.assert_identical(found, expected)
    assert set(found.coords) == set(expected.coords) and found.sizes == expected.sizes
    assert decoded(found.attrs) == decoded(expected.attrs)


def reopened(data, folder, engine="scipy"):
    """What is read of a result that was written to netCDF."""
    data.to_netcdf(folder / "result.nc", engine=engine)
    return xr.load_dataset(folder / "result.nc", engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_files_of_xarray(results, engine, tmp_path):
    """Of a fresh result, and of differences; an exported one is compared below."""
    data = results["fresh"]
    for one in (data, metrics.paired(data, "regret", "oracle")):
        check_same(reopened(one, tmp_path, engine), one)


def test_attributes_are_text_and_numbers(results):
    for data in results.values():
        assert {type(value) for value in data.attrs.values()} <= {str, int, float}
        assert json.loads(data.attrs["settings"])["horizon"] == 40
        assert "nothing" not in data.attrs and data.attrs["flag"] == 1 and data.attrs["many"] == 2**40
        assert decoded(data.attrs)["case_coordinates"] == {"load": 0.7}
        for variable in data.variables.values():
            assert {type(value) for value in variable.attrs.values()} <= {str, int, float}
        assert not any({"label", "unit"} & set(variable.attrs) for variable in data.variables.values())


def test_names_can_be_written_as_attributes():
    data = play(keep="moments")
    assert data.regret_mean.attrs["long_name"] == "cumulative regret" and data.regret_mean.attrs["units"] == "reward"
    assert data.regret_variance.attrs["units"] == "(reward)^2"
    assert data.regret_difference_mean.dims == ("policy", "baseline", "width", "time")
    assert data.regret_histogram.dims[-1] == "regret_bin"
    assert (data.illegal_runs == 0).all()


def test_stopped_runs_and_a_histogram_without_valid_runs_are_written_as_well(tmp_path):
    for keep in ("runs", "moments"):
        data = play(keep=keep, callback=lambda done: True)
        assert decoded(data.attrs)["stopped"]["blocks"] == 1
        check_same(reopened(data, tmp_path), data)
    env = Clock(broken_at=3, broken=np.nan)
    with pytest.warns(UserWarning, match="are invalid"):
        data = play(env, {"one": Cycle(), "two": Cycle(first=1)}, record=["reward"], keep="moments")
    assert list(data["reward_bin"]) == [0.0] and not data.reward_histogram.any()
    check_same(reopened(data, tmp_path), data)


# Names.


@struct.dataclass
class Odd(stochastic.UCB1):
    """UCB1 with a metric of any name (static)."""

    name: str = struct.field(pytree_node=False, default="")

    @property
    def metrics(self):
        return (Metric(self.name, "pulls of the first model", "rounds", "gauge"),)

    def gauges(self, state):
        return {self.name: state.pulls[0]}


@pytest.mark.parametrize("name", ["regret_mean", "a.b_mean", "x_histogram", "regret_bin_mean", "_count"])
def test_names_of_metrics_may_look_like_statistics(name, tmp_path):
    policies = {"odd": Odd(name=name), "oracle": stochastic.Oracle.of}
    kept, statistics = (play(policies=policies, record=["regret", name], keep=keep) for keep in ("runs", "moments"))
    assert metrics.has_runs(kept) and not metrics.has_runs(statistics)
    assert metrics.metric_names(kept) == metrics.metric_names(statistics) == ["regret", name]
    np.testing.assert_allclose(metrics.mean(statistics, name), metrics.mean(kept, name))
    for data in (kept, statistics):
        check_same(reopened(data, tmp_path), data)


@pytest.mark.parametrize("name", ["a/b", "", " a", "a ", "-a", "it's", "a\nb"])
def test_names_that_files_cannot_hold_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="must begin with a letter"):
        play(policies={"odd": Odd(name=name)}, record=[name], out=tmp_path)
    with pytest.raises(ValueError, match="must begin with a letter"):
        play(probes={"probe": lambda env, policy, env_state, policy_state, t: {f"{name}/": t}}, out=tmp_path)
    assert not list(tmp_path.glob("*.zarr"))


def test_statistics_of_two_metrics_do_not_share_a_name():
    policies = {"odd": Odd(name="regret_difference")}
    play(policies=policies, record=["regret", "regret_difference"])
    with pytest.raises(ValueError, match="two variables of the result would be called 'regret_difference_count'"):
        play(policies=policies, record=["regret", "regret_difference"], keep="moments")


def test_descriptions_are_plain_and_leave_xarrays_own_attribute_alone():
    with pytest.raises(ValueError, match="description must not have the entry 'coordinates'"):
        jr.Store("out", description={"coordinates": "here"})
    with pytest.raises(ValueError, match="description must be a dict of plain JSON values"):
        jr.Store("out", description={"made": np.float32(1)})


# Attributes alone.


def test_encoded_attributes_are_decoded():
    nested = {"dict": {"a": [1, None, True]}, "list": [], "tuple": (1, "x"), "text": "[not JSON", "whole": 3, "share": 0.5}
    plain = encoded(nested | {"no": False, "none": None, "large": 2**31, "small": -(2**31)})
    assert plain["dict"] == '{"a": [1, null, true]}' and plain["no"] == 0 and "none" not in plain
    assert {type(value) for value in plain.values()} == {str, int, float}
    assert type(plain["large"]) is float and type(plain["small"]) is int
    found = decoded(plain)
    assert found == {**nested, "tuple": [1, "x"], "no": 0, "large": 2**31, "small": -(2**31)}
    assert encoded(found) == plain and decoded(nested) == nested


# `jaxroute store --export`.


def exported(folder, to):
    assert cli.main(["store", str(folder), "--export", str(to)]) == 0
    return to


def of_tables(to, like):
    """The result of tables, put together again; what they cannot say (attributes, types of flags) is taken from `like`."""
    found = {}
    for file in sorted(to.parent.glob(f"{to.stem}*.parquet")):
        table = pandas.read_parquet(file)
        names = [name for name in table if name in like.data_vars]
        dims = [name for name in table if name not in names]
        array = table.set_index(dims)[names].to_xarray()
        for name in names:
            own = like[name]
            rest = {d: 0 for d in dims if d not in own.dims}
            filled = array[name].isel(rest, drop=True).reindex({d: own[d] for d in own.dims if d in own.coords})
            filled = filled.fillna(0) if name.endswith("_histogram") else filled
            filled = filled.drop_vars(set(filled.coords) - set(own.coords))  # Numbers of what has no labels.
            found[name] = filled.transpose(*own.dims).astype(own.dtype).assign_attrs(own.attrs)
    return xr.Dataset({name: found[name] for name in like}, {d: like[d] for d in like.coords}, like.attrs)


@pytest.fixture(scope="module", params=["runs", "moments"])
def grown(request, tmp_path_factory):
    """Folders of a result that was made at once, one that has grown, and one that was merged; and the result."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("whole", "grown", "one", "other", "merged")}
    options = {"record": ["regret", "pulls"], "probes": {"spread": spread}, "keep": request.param}
    whole = play(seeds=300, out=folders["whole"], **options)
    for name, seeds in (("grown", range(100)), ("grown", 300), ("one", range(200)), ("other", range(200, 300))):
        play(seeds=seeds, out=folders[name], **options)
    stores.merge([folders["one"], folders["other"]], folders["merged"])
    return whole, {name: folders[name] for name in ("whole", "grown", "merged")}


@pytest.mark.parametrize("ending", [".nc", ".zarr", ".parquet"])
@pytest.mark.parametrize("how", ["whole", "grown", "merged"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # Zarr's, of consolidated descriptions.
def test_an_exported_result_is_the_one_that_was_made(grown, how, ending, tmp_path, monkeypatch):
    whole, folders = grown
    monkeypatch.setattr(export, "_ROWS", 500)  # Of a table, many parts.
    to = exported(folders[how], tmp_path / f"a{ending}")
    loaded = jr.load(folders[how])
    engines = {".nc": "scipy", ".zarr": "zarr"}
    found = of_tables(to, loaded) if ending == ".parquet" else xr.load_dataset(to, engine=engines[ending])
    check_same(found, loaded)
    xr.testing.assert_identical(found.drop_attrs(deep=False), whole.drop_attrs(deep=False))
    if ending == ".parquet":
        said = json.loads(__import__("pyarrow.parquet").parquet.read_schema(to).metadata[b"jaxroute"])
        assert said["attributes"]["settings"] == loaded.attrs["settings"]
        if not metrics.has_runs(whole):  # Bins without runs are left out.
            assert (pandas.read_parquet(to.with_suffix(".regret_bin.parquet"))["regret_histogram"] > 0).all()


def test_what_cannot_be_exported_is_said(grown, tmp_path, monkeypatch, capsys):
    _, folders = grown
    folder = str(folders["whole"])

    def refused(*arguments, message):
        assert cli.main(["store", *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err

    refused(folder, "--export", tmp_path / "a.csv", message="must be named *.zarr, *.nc, *.parquet, got")
    (tmp_path / "a.model.parquet").write_text("mine")
    refused(folder, "--export", tmp_path / "a.parquet", message="a.model.parquet' exists: remove it first")
    assert [file.name for file in tmp_path.iterdir()] == ["a.model.parquet"]
    for name in ("one", "two"):
        play(seeds=2, out=tmp_path / "cases" / name)
    refused(tmp_path / "cases", "--export", tmp_path / "b.nc", message="one result, got")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(folder, "--export", tmp_path / "b.parquet", message='needs pyarrow: pip install "jaxroute[data]"')
    monkeypatch.setattr(export, "_CLASSIC_BYTES", 1000)
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    refused(
        folder, "--export", tmp_path / "b.nc", message="too large for the classic format of netCDF: pip install h5netcdf"
    )
    assert not list(tmp_path.glob("b.*")) and not list(tmp_path.glob("*.partial"))


# Results that are large beside the memory.


def test_a_large_result_is_read_when_it_is_indexed(tmp_path, monkeypatch):
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.3, 1.0]), "plain": stochastic.UCB1()}
    options = {"policies": policies, "record": ["regret", "pulls"], "execution": jr.Execution(block=512)}
    for seeds in (range(300), range(300, 600)):
        whole = play(seeds=seeds, out=tmp_path, **options)
    whole = play(seeds=600, **options)
    limit = whole["pulls"].nbytes * 2 + 1000  # Half of the memory holds a variable, but not the whole.
    monkeypatch.setattr(runs, "memory_limit", lambda device: limit)
    with pytest.raises(ValueError, match="more than half of the memory"):
        play(seeds=600, out=tmp_path, **options)
    read, cells = packs.PackStore.read, []

    def counted(self, wanted):
        cells.append(len(wanted := list(wanted)))
        return read(self, wanted)

    monkeypatch.setattr(packs.PackStore, "read", counted)
    found = jr.load(tmp_path)
    assert found.sizes == whole.sizes and cells == []
    places = [
        {"policy": "plain", "seed": slice(0, 99), "width": 1.0},
        {"policy": ["plain", "ucb"], "seed": [599, 3, 3, 257], "time": 40},
        {"policy": "ucb", "width": slice(0.5, None), "seed": 300},
    ]
    for place in places:
        for name in whole:
            own = {d: v for d, v in place.items() if d in whole[name].dims}
            xr.testing.assert_identical(found[name].sel(own).load(), whole[name].sel(own))
    assert cells[0] == 1 and max(cells) == 9  # The seeds of three granules, of three settings.
    for name in whole:
        xr.testing.assert_identical(found[name].copy(deep=True).load(), whole[name])
    xr.testing.assert_identical(metrics.mean(found, "regret"), metrics.mean(whole, "regret"))


def test_a_large_result_that_is_damaged_or_not_complete_is_not_taken_for_whole(tmp_path, monkeypatch):
    whole = play(seeds=range(20), out=tmp_path)
    (file,) = (tmp_path / "store").glob("*.pack")
    monkeypatch.setattr(runs, "is_large", lambda request: True)
    found, partial = jr.load(tmp_path), jr.load(tmp_path, partial=True)
    copied = pickle.loads(pickle.dumps(found.sel(seed=slice(3, 5))))
    xr.testing.assert_equal(copied, whole.sel(seed=slice(3, 5)))
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="is not complete any more: .* runs are missing"):
        found["regret"].load()
    lost = partial["regret"].isnull().all("time")
    assert lost.any() and (partial["valid"] == ~lost).all() and not whole["regret"].isnull().any()
    file.unlink()
    play(seeds=range(20), out=tmp_path, callback=lambda done: True)
    with pytest.raises(ValueError, match="is not complete: .* runs are missing"):
        jr.load(tmp_path)


def test_statistics_are_loaded_where_they_would_not_be_simulated(tmp_path, monkeypatch):
    whole = play(seeds=256, keep="moments", out=tmp_path)
    monkeypatch.setattr(runs, "memory_limit", lambda device: 1000)
    with pytest.raises(ValueError, match="more than half of the memory"):
        play(seeds=256, keep="moments", out=tmp_path)
    xr.testing.assert_identical(jr.load(tmp_path).drop_attrs(deep=False), whole.drop_attrs(deep=False))
