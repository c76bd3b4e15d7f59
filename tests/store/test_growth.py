"""Stores that grow and merge: the result has the bits of one simulation, and only what is missing is simulated."""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import conformance_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import store_cases
from engine_child import differences
from flax import struct
from store_cases import BOTH, KEEPS, assert_same, flip, interrupted, stored_files
from toys import Clock, Cycle, Idle, Planner

import jaxroute as jr
from jaxroute.cli.store import merge_folders
from jaxroute.core.attributes import decoded
from jaxroute.problems import stochastic
from jaxroute.store import cells, results

WIDTHS = jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
TWO = {"ucb": WIDTHS, "thompson": stochastic.GaussianThompson()}
THREE = {**TWO, "eps": stochastic.EpsilonGreedy()}
ONES = {"ucb": stochastic.UCB1(), "thompson": stochastic.GaussianThompson()}
# Two policies, one of them with three settings; of 300 seeds a granule is full, and another one is not.
run = functools.partial(
    store_cases.run, policies=TWO, seeds=300, record=["regret", "pulls"], execution=jr.Execution(block=64)
)


def drawn(key):
    """A random instance."""
    return stochastic.BanditEnv(mean=jax.random.uniform(key, (3,)), scale=np.float32(0.1))


class Way(NamedTuple):
    """How a store grows.

    Attributes:
      more: arguments of the larger call.
      runs: number of runs that it simulates if runs are kept.
      moments: number of runs that it simulates if statistics are kept.
      fewer: arguments of both calls.
    """

    more: dict[str, Any]
    runs: int
    moments: int
    fewer: Mapping[str, Any] = MappingProxyType({})


def _some_policies(**options):
    return {"policies": TWO | options}


def _widths(*values):
    return _some_policies(ucb=jr.grid(stochastic.UCB1, width=list(values)))


def _means(*values):
    return {"env": jr.grid(stochastic.bernoulli, mean=list(values))}


EPS = jr.grid(stochastic.EpsilonGreedy, epsilon=[0.1, 0.2])
CLOCKS = {"env": Clock(), "policies": {"cycle": Cycle(), "planner": Planner(stage_length=5)}, "record": ["reward"]}
SCATTERED = (2000, 3, *range(299, 260, -1), *range(500, 1000, 7))
NEW = len(set(SCATTERED) - set(range(300)))
# The differences of policies need all of them to be simulated on full granules; on others, single runs are kept.
WAYS = {
    "seeds within a granule": Way({"seeds": 340}, 4 * 40, 4 * 40),
    "seeds across granules": Way({"seeds": 600}, 4 * 300, 4 * 300),
    "scattered seeds": Way({"seeds": SCATTERED}, 4 * NEW, 4 * len(set(SCATTERED) - set(range(256, 300)))),
    "seeds in another order": Way({"seeds": range(299, -1, -1)}, 0, 0),
    "fewer seeds": Way({"seeds": 290}, 0, 0),
    "a policy": Way({"policies": THREE}, 300, 44 + 5 * 256),
    "a policy with an axis of its own": Way(_some_policies(eps=EPS), 2 * 300, 2 * 44 + 6 * 256),
    "policies in another order": Way({"policies": dict(reversed(TWO.items()))}, 0, 0),
    "fewer policies": Way({"policies": {"thompson": TWO["thompson"]}}, 0, 0),
    "values at the end of an axis": Way(_widths(0.5, 1.0, 2.0, 3.0, 4.0), 2 * 300, 2 * 300 + 256),
    "values in between": Way(_widths(0.25, 0.5, 0.75, 1.0, 2.0), 2 * 300, 2 * 300 + 256),
    "a new axis": Way({"policies": TWO}, 3 * 300, 3 * 300 + 256, {"policies": ONES}),
    "values of the environment": Way(
        _means((0.2, 0.7), (0.1, 0.2), (0.6, 0.5)), 600, 600, _means((0.2, 0.7), (0.6, 0.5)) | {"policies": ONES}
    ),
    "instances of a sampler": Way({"num_instances": 6}, 1200, 1200, {"env": drawn, "num_instances": 4, "policies": ONES}),
    "a metric that one policy has": Way({"record": ["reward", "waiting"]}, 300, 300 + 256, CLOCKS),
    "another record": Way({"record": ["reward"]}, 4 * 300, 4 * 300),
    "another root seed": Way({"root_seed": 3}, 4 * 300, 4 * 300),
    "another horizon": Way({"horizon": 50}, 4 * 300, 4 * 300),
    "everything": Way({"policies": THREE, "seeds": 600}, 4 * 300 + 600, 5 * 600 - 4 * 44),
}


@pytest.fixture
def place(request, tmp_path):
    """An empty folder, or the URL of an empty bucket."""
    return request.getfixturevalue("bucket") if request.param == "S3" else tmp_path


def everywhere(names, quick):
    """Cases by name, for runs and for statistics, in a folder and on S3; on S3 all but the `quick` ones are slow."""
    cases = [
        pytest.param(name, keep, where, marks=pytest.mark.slow if where == "S3" and (name, keep) not in quick else ())
        for name, keep, where in itertools.product(names, BOTH, ("folder", "S3"))
    ]
    return pytest.mark.parametrize(("name", "keep", "place"), cases, indirect=["place"])


@functools.cache
def at_once(name=None, keep="runs", seeds=300, **options):
    """The result of one simulation, without a store."""
    way = WAYS[name] if name else Way({}, 0, 0)
    return run(**{**way.fewer, **way.more, "seeds": seeds, "keep": keep} | options)


def check(path, found, name=None, seeds=300, keep="runs", **options):
    """The result, what is loaded (with the seeds of calls before), and that all is sound."""
    loaded = jr.load(path)
    every = cells.seeds_from_plain(decoded(loaded.attrs)["settings"]["seeds"])
    for data, expected in ((found, seeds), (loaded, tuple(every.tolist()))):
        assert_same(data, at_once(name, keep, expected, **options))
    about = results.inspect(path, verify=True)
    assert (about.damage, about.missing, about.conflicts) == ("", "", 0)


def rounds(data):
    """Rounds of all runs that the last call simulated."""
    return decoded(data.attrs)["last_call"]["decisions"]


# Growth.


@everywhere(WAYS, quick=[("a policy", "runs"), ("seeds across granules", "moments")])
def test_a_store_that_grows_has_the_bits_of_a_run_at_once(name, keep, place, simulated):
    way = WAYS[name]
    smaller, larger = {**way.fewer, "keep": keep}, {**way.fewer, **way.more, "keep": keep}
    run(out=place, **smaller)
    simulated.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = run(out=place, **larger)
    assert len(set(simulated)) == len(simulated) == getattr(way, keep)
    assert rounds(found) == larger.get("horizon", 40) * len(simulated)
    check(place, found, name, larger.get("seeds", 300), keep)
    simulated.clear()
    for options in (larger, smaller, larger):
        run(out=place, **options)
    assert not simulated


@pytest.mark.parametrize("place", ["folder", pytest.param("S3", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(("before", "after", "number"), [("runs", "moments", 0), ("moments", "runs", 4 * 256)])
def test_runs_and_statistics_of_them_may_be_in_one_store(before, after, number, place, simulated):
    run(out=place, keep=before)
    simulated.clear()
    found = run(out=place, keep=after)
    assert len(simulated) == number
    check(place, found, keep=after)


@KEEPS
def test_a_smaller_error_goes_on_and_a_larger_one_stops_where_it_would_have(keep, tmp_path, simulated):
    options = {"seeds": 4000, "policies": ONES, "keep": keep}
    played = []
    for goal in (0.2, 0.1, 0.2):
        whole = run(**options, until_stderr={"regret": goal})
        simulated.clear()
        found = run(out=tmp_path, **options, until_stderr={"regret": goal})
        for data in (found, jr.load(tmp_path)):
            assert_same(data, whole)
            assert all(data.attrs[n] == whole.attrs[n] for n in ("seeds_played", "until_stderr"))
        assert len(simulated) == 2 * max(0, whole.attrs["seeds_played"] - max(played, default=0))
        played.append(whole.attrs["seeds_played"])
        files = stored_files(tmp_path)
        run(out=tmp_path, **options, until_stderr={"regret": goal})
        assert stored_files(tmp_path) == files
    assert played[0] == played[2] < played[1] < 4000
    simulated.clear()
    found = run(out=tmp_path, **options | {"seeds": 2000})
    assert len(simulated) == 2 * (2000 - played[1])
    assert_same(found, run(**options | {"seeds": 2000}))


@everywhere(["seeds across granules", "a policy"], quick=[("seeds across granules", "runs")])
def test_a_call_that_is_interrupted_is_continued(name, keep, place, simulated):
    larger = WAYS[name].more | {"keep": keep}
    seeds = larger.get("seeds", 300)
    wholes = [at_once(), at_once(name, keep, seeds)]
    simulated.clear()
    for options, whole in zip(({}, larger), wholes, strict=True):  # While the store is made, and while it grows.
        with interrupted(4):
            run(out=place, **options)
        with pytest.raises(ValueError, match=f"'{place}' is not complete: .*missing.* the same call, or command, simulates"):
            jr.load(place)
        part = jr.load(place, partial=True)
        if "seed" in part.dims:
            there = part["valid"]
            assert there.any() and not there.all() and part["regret"].equals(whole["regret"].where(there))
        assert results.inspect(place).missing
    found = run(out=place, **larger)
    per_seed = 5 if name == "a policy" else 4
    assert len(set(simulated)) == per_seed * seeds
    assert len(simulated) <= per_seed * seeds + 3 * 64 * 3  # What had been simulated of whole granules, for statistics.
    assert keep == "moments" or len(simulated) == len(set(simulated))
    check(place, found, name, seeds, keep)


@KEEPS
def test_no_seed_is_simulated_twice_when_a_partial_granule_grows(keep, tmp_path, simulated):
    for seeds in (range(10), [7, 200, 3], range(100), range(50, 256), 700):
        found = run(out=tmp_path, seeds=seeds, keep=keep)
    assert len(set(simulated)) == len(simulated) == 4 * 700
    check(tmp_path, found, seeds=700, keep=keep)


# Longer horizons.


@struct.dataclass
class Impatient(Idle):
    """Explores for a tenth of the horizon."""

    def init(self, key, spec):
        return jnp.float32(0.1 * spec.horizon)

    def act(self, key, state, obs, t):
        return jnp.where(t < state, t % 3, 0).astype(jnp.int32), {}


def test_a_longer_horizon_goes_on_from_the_states_that_were_kept(tmp_path):
    run(out=jr.Store(tmp_path, keep_states=True))
    for horizon, seeds, number in (
        (75, 300, 300 * 35),  # No multiple of what is recorded.
        (90, 320, 300 * 50 + 20 * 90),
        (120, 330, 320 * 30 + 10 * 120),
        (40, 330, 30 * 40),
    ):
        found = run(out=jr.Store(tmp_path, keep_states=True), horizon=horizon, seeds=seeds)
        assert rounds(found) == 4 * number
        check(tmp_path, found, horizon=horizon, seeds=seeds)


def test_runs_are_simulated_from_the_first_round_where_they_cannot_go_on(tmp_path):
    """Without states, with a policy that knows the horizon, or with damaged states."""
    policies = {"impatient": Impatient(), "eps": stochastic.EpsilonGreedy()}
    run(out=tmp_path / "none", policies=policies)
    longer = run(out=tmp_path / "none", policies=policies, horizon=80)
    assert rounds(longer) == 2 * 300 * 80
    run(out=jr.Store(tmp_path / "states", keep_states=True), policies=policies)
    for file in (tmp_path / "states" / "store").iterdir():
        flip(file)
    again = run(out=jr.Store(tmp_path / "states", keep_states=True), policies=policies, horizon=80)
    assert 300 * (40 + 80) <= rounds(again) <= 2 * 300 * 80
    assert differences(longer, again) == [] == differences(run(policies=policies, horizon=80), longer)


def test_the_size_of_states_is_said_first(tmp_path, capsys):
    run(out=jr.Store(tmp_path, keep_states=True), progress=True, seeds=10)
    assert "the states at the end, which are stored, take up to" in capsys.readouterr().err
    assert rounds(run(out=jr.Store(tmp_path, keep_states=True), seeds=10, record_every=None, horizon=50)) == 4 * 10 * 10


@pytest.mark.parametrize("options", [{"keep": "moments"}, {"execution": jr.Execution("reference")}])
def test_states_can_be_kept_of_single_runs_in_a_store(options, tmp_path):
    with pytest.raises(ValueError, match="keep_states needs"):
        run(out=jr.Store(tmp_path, keep_states=True), **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.POLICIES)
def test_a_longer_horizon_of_every_policy(name, tmp_path):
    pair = cases.POLICIES[name]
    options = {"env": pair.env(), "policies": {"one": pair.policy}, "record": None, "seeds": 20, "record_every": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That it was made for another horizon.
        whole = run(**options, horizon=30)
        run(out=jr.Store(tmp_path, keep_states=True), **options, horizon=18)
        longer = run(out=jr.Store(tmp_path, keep_states=True), **options, horizon=30)
    assert differences(whole, longer) == []


# Stores put together.


class Merge(NamedTuple):
    """How stores are merged.

    Attributes:
      seeds: of each store.
      left: runs that are simulated by a call after the merge.
      block: the block in which the simulation of each store is interrupted, if any.
      into_last: whether the others are merged into the last store.
    """

    seeds: list[range]
    left: int = 0
    block: int | None = None
    into_last: bool = False


MERGES = {
    "halves": Merge([range(150), range(150, 300)]),
    "overlapping": Merge([range(200), range(100, 300)]),
    "interleaved": Merge([range(0, 300, 2), range(1, 300, 2)]),
    "granules": Merge([range(256, 300), range(256)]),
    "three": Merge([range(100, 200), range(100), range(200, 300)]),
    "into one of them": Merge([range(150, 300), range(150)], into_last=True),
    "unfinished": Merge([range(150), range(150, 300)], left=3 * 2 * 22 + 300, block=3),
}


@everywhere(MERGES, quick=[("overlapping", "moments")])
def test_stores_that_are_merged_are_one(name, keep, place, simulated):
    way = MERGES[name]
    parts = [f"{place}/{number}" for number in range(len(way.seeds))]
    for part, seeds in zip(parts, way.seeds, strict=True):
        with interrupted(way.block) if way.block else contextlib.nullcontext():
            run(out=part, seeds=seeds, keep=keep)
    merged = parts.pop() if way.into_last else f"{place}/merged"
    before = [stored_files(part) for part in parts]
    results.merge(parts, merged)
    assert [stored_files(part) for part in parts] == before
    with pytest.raises(ValueError, match="is not complete") if way.left else contextlib.nullcontext():
        assert_same(jr.load(merged), at_once(keep=keep))
    for seeds, number in ((300, way.left), (400, 4 * 100)):
        simulated.clear()
        found = run(out=merged, seeds=seeds, keep=keep)
        assert len(set(simulated)) == len(simulated) == number
        check(merged, found, seeds=seeds, keep=keep)
    results.merge(parts[:1], merged)  # What is there already.
    check(merged, found, seeds=400, keep=keep)


def test_a_merged_result_says_what_made_it(tmp_path, monkeypatch):
    run(out=tmp_path / "0", seeds=range(150))
    with monkeypatch.context() as patch:
        patch.setattr("jaxroute.core.provenance.processor", lambda: "another one")
        run(out=tmp_path / "1", seeds=range(150, 300))
    results.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    about = decoded(jr.load(tmp_path / "all").attrs)
    assert about["decisions"] == 4 * 300 * 40
    assert [call["decisions"] for call in about["calls"]] == [4 * 150 * 40, 4 * 150 * 40, 0]
    assert {one["processor"] == "another one": one["cells"] for one in about["made_with"]} == {False: 12, True: 16}


DIFFERENT = {
    "root_seed": ({"root_seed": 1}, "root_seed is 0 there and 1 here"),
    "policies": ({"policies": THREE}, "policies.eps is only in this run"),
    "setting": (_widths(0.5, 1.0, 3.0), r"ucb.*width.* 2\.0.* there and .*3\.0"),
    "horizon": ({"horizon": 50}, "horizon is 40 there and 50 here"),
    "statistics": ({"keep": "moments"}, "keep is only in this run"),
    "record": ({"record": ["regret"]}, "record.ucb.flows"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_stores_of_other_settings_are_not_put_together_and_the_difference_is_named(name, tmp_path):
    options, reason = DIFFERENT[name]
    run(out=tmp_path / "0", seeds=5)
    run(out=tmp_path / "1", **{"seeds": range(5, 10)} | options)
    with pytest.raises(ValueError, match=f"0' and .*1' hold the results of different settings: .*{reason}"):
        results.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_folders_without_results_or_with_others_are_not_put_together(tmp_path):
    run(out=tmp_path / "0" / "a", seeds=5)
    run(out=tmp_path / "1" / "a", seeds=range(5, 10))
    run(out=tmp_path / "2" / "b", seeds=5)
    with pytest.raises(ValueError, match="path must be a folder with a stored result, got .*nothing"):
        results.merge([tmp_path / "0" / "a", tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(ValueError, match="folder must hold a stored result, got .*nothing"):
        merge_folders([tmp_path / "0", tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(ValueError, match="folders must hold the same stores, got a in .* and b in"):
        merge_folders([tmp_path / "0", tmp_path / "2"], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    assert merge_folders([tmp_path / "0", tmp_path / "1"], tmp_path / "all") == [tmp_path / "all" / "a"]
    assert differences(run(seeds=10), jr.load(tmp_path / "all" / "a")) == []


@pytest.mark.parametrize("number", range(3))
def test_whatever_was_asked_for_before_every_result_is_the_one_at_once(number, tmp_path):
    """Calls at random: other seeds, policies, settings, goals, statistics or runs, some interrupted."""
    rng = np.random.default_rng(number)
    for _ in range(10):
        first, size = int(rng.integers(0, 1000)), int(rng.integers(1, 1500))
        seeds = np.arange(first, first + size)[:: int(rng.choice([1, 1, -1, 3]))]
        widths = sorted(rng.choice([0.5, 1.0, 2.0], int(rng.integers(1, 4)), replace=False))
        some = THREE | {"ucb": jr.grid(stochastic.UCB1, width=widths)}
        names = rng.permutation(list(some))[: int(rng.integers(1, 4))]
        options = {
            "seeds": rng.permutation(seeds) if rng.random() < 0.2 else seeds,
            "policies": {name: some[name] for name in names},
            "keep": str(rng.choice(BOTH)),
            "horizon": int(rng.choice([10, 20])),
            "execution": jr.Execution(block=int(rng.choice([64, 512]))),
        }
        if rng.random() < 0.4:
            options["until_stderr"] = {"regret": float(rng.choice([0.03, 0.05, 0.1]))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That a goal was not reached.
            with interrupted(int(rng.integers(1, 20))):
                run(out=tmp_path, **options)
            found, whole = run(out=tmp_path, **options), run(**options | {"execution": jr.Execution(block=128)})
        assert_same(found, whole)
    about = results.inspect(tmp_path, verify=True)
    assert (about.damage, about.missing, about.conflicts) == ("", "", 0)


@pytest.mark.parametrize(("first", "second"), [(4096, 256), (256, 4096), (512, 1024)])
def test_what_is_there_does_not_depend_on_the_block(first, second, tmp_path, simulated):
    options = {"seeds": 13 * 256 + 40, "keep": "moments", "out": tmp_path}
    run(**options, execution=jr.Execution(block=first))
    simulated.clear()
    for more in ({}, {"seeds": 8 * 256}, {"until_stderr": {"regret": 1e-9}}):
        run(**options | more, execution=jr.Execution(block=second))
    assert not simulated
