"""Stores that grow and merge: the result has the bits that it would have had at once, and only what is missing is simulated."""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import conformance_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from engine_child import differences
from flax import struct
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute.cli import stores
from jaxroute.core.attributes import decoded
from jaxroute.engine import programs
from jaxroute.problems import stochastic
from jaxroute.store import cells, results

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
WIDTHS = jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
TWO = {"ucb": WIDTHS, "thompson": stochastic.GaussianThompson()}
THREE = {**TWO, "eps": stochastic.EpsilonGreedy()}
ONES = {"ucb": stochastic.UCB1(), "thompson": stochastic.GaussianThompson()}
BOTH = ("runs", "moments")


def drawn(key):
    """A random instance."""
    return stochastic.BanditEnv(mean=jax.random.uniform(key, (3,)), scale=np.float32(0.1))


def play(out=None, **options):
    """Two policies, one of them with three settings; of 300 seeds a granule is full, and another one is not."""
    settings = {"env": ENV, "policies": TWO, "horizon": 40, "seeds": 300, "record_every": 10, "record": ["regret", "pulls"]}
    settings |= {"execution": jr.Execution(block=64), "progress": False} | options
    return jr.simulate(settings.pop("env"), settings.pop("policies"), out=out, **settings)


class Way(NamedTuple):
    """How a store grows: arguments of the larger call, the runs that it simulates if runs and if statistics are kept, arguments of both."""

    more: dict[str, Any]
    runs: int
    moments: int
    fewer: Mapping[str, Any] = MappingProxyType({})


def _some_policies(**options):
    return {"policies": TWO | options}


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
    "a policy with an axis of its own": Way(_some_policies(eps=jr.grid(stochastic.EpsilonGreedy, epsilon=[0.1, 0.2])), 2 * 300, 2 * 44 + 6 * 256),
    "policies in another order": Way({"policies": dict(reversed(TWO.items()))}, 0, 0),
    "fewer policies": Way({"policies": {"thompson": TWO["thompson"]}}, 0, 0),
    "values at the end of an axis": Way(_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0, 3.0, 4.0])), 2 * 300, 2 * 300 + 256),
    "values in between": Way(_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.25, 0.5, 0.75, 1.0, 2.0])), 2 * 300, 2 * 300 + 256),
    "a new axis": Way({"policies": TWO}, 3 * 300, 3 * 300 + 256, {"policies": ONES}),
    "values of the environment": Way({"env": jr.grid(stochastic.bernoulli, mean=[(0.2, 0.7), (0.1, 0.2), (0.6, 0.5)])}, 2 * 300, 2 * 300,
        {"env": jr.grid(stochastic.bernoulli, mean=[(0.2, 0.7), (0.6, 0.5)]), "policies": ONES}),
    "instances of a sampler": Way({"instances": 6}, 2 * 2 * 300, 2 * 2 * 300, {"env": drawn, "instances": 4, "policies": ONES}),
    "a metric that one policy has": Way({"record": ["reward", "waiting"]}, 300, 300 + 256,
        {"env": Clock(), "policies": {"cycle": Cycle(), "planner": Planner(stage_length=5)}, "record": ["reward"]}),
    "another record": Way({"record": ["reward"]}, 4 * 300, 4 * 300),
    "another key": Way({"key": 3}, 4 * 300, 4 * 300),
    "everything": Way({"policies": THREE, "seeds": 600}, 4 * 300 + 600, 5 * 600 - 4 * 44),
}  # fmt: skip


@pytest.fixture
def simulated(monkeypatch):
    """The runs that are simulated: name, setting and seed of each."""
    found, run = [], programs.Block.play

    def noted(self, tile, seeds, *begun):
        places = itertools.product(*tile.values())
        found.extend((self.name, *tile, *map(int, place), int(seed)) for place in places for seed in dict.fromkeys(seeds))
        return run(self, tile, seeds, *begun)

    monkeypatch.setattr(programs.Block, "play", noted)
    return found


@contextlib.contextmanager
def stopped(number):
    """A context that is interrupted in the block of this number."""
    run, played = programs.Block.play, []

    def interrupted(self, *args):
        played.append(args)
        if len(played) >= number:
            raise KeyboardInterrupt
        return run(self, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(programs.Block, "play", interrupted)
        yield


@functools.cache
def at_once(name=None, keep="runs", seeds=300, **options):
    """The result of one simulation, without a store."""
    way = WAYS[name] if name else Way({}, 0, 0)
    return play(**{**way.fewer, **way.more, "seeds": seeds, "keep": keep} | options)


def assert_equal(found, expected):
    xr.testing.assert_identical(found.drop_attrs(deep=False), expected.drop_attrs(deep=False))


def check(path, found, name=None, seeds=300, keep="runs", **options):
    """The result, what is loaded (with the seeds of calls before), and that all is sound."""
    loaded = jr.load(path)
    every = cells.described_seeds(decoded(loaded.attrs)["settings"]["seeds"])
    for data, expected in ((found, seeds), (loaded, tuple(every.tolist()))):
        assert_equal(data, at_once(name, keep, expected, **options))
    about = results.inspect(path, verify=True)
    assert (about.damage, about.missing, about.conflicts) == ("", "", 0)


def rounds(data):
    """Rounds of all runs that the last call simulated."""
    return decoded(data.attrs)["last_call"]["decisions"]


def contents(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}


# Growth.


@pytest.mark.parametrize("keep", BOTH)
@pytest.mark.parametrize("name", WAYS)
def test_a_store_that_grows_has_the_bits_of_a_run_at_once(name, keep, tmp_path, simulated):
    way = WAYS[name]
    smaller, larger = {**way.fewer, "keep": keep}, {**way.fewer, **way.more, "keep": keep}
    play(tmp_path, **smaller)
    simulated.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = play(tmp_path, **larger)
    assert len(set(simulated)) == len(simulated) == getattr(way, keep)
    assert rounds(found) == 40 * len(simulated)
    check(tmp_path, found, name, larger.get("seeds", 300), keep)
    simulated.clear()
    for options in (larger, smaller, larger):
        play(tmp_path, **options)
    assert not simulated


@pytest.mark.parametrize(("before", "after", "number"), [("runs", "moments", 0), ("moments", "runs", 4 * 256)])
def test_runs_and_statistics_of_them_may_be_in_one_store(before, after, number, tmp_path, simulated):
    play(tmp_path, keep=before)
    simulated.clear()
    found = play(tmp_path, keep=after)
    assert len(simulated) == number
    check(tmp_path, found, keep=after)


@pytest.mark.parametrize("keep", BOTH)
def test_a_smaller_error_goes_on_and_a_larger_one_stops_where_it_would_have(keep, tmp_path, simulated):
    options = {"seeds": 4000, "policies": ONES, "keep": keep}
    played = []
    for goal in (0.2, 0.1, 0.2):
        whole = play(**options, until_stderr={"regret": goal})
        simulated.clear()
        found = play(tmp_path, **options, until_stderr={"regret": goal})
        for data in (found, jr.load(tmp_path)):
            assert_equal(data, whole)
            assert all(data.attrs[n] == whole.attrs[n] for n in ("seeds_played", "until_stderr"))
        assert len(simulated) == 2 * max(0, whole.attrs["seeds_played"] - max(played, default=0))
        played.append(whole.attrs["seeds_played"])
        files = contents(tmp_path)
        play(tmp_path, **options, until_stderr={"regret": goal})
        assert contents(tmp_path) == files
    assert played[0] == played[2] < played[1] < 4000
    simulated.clear()
    found = play(tmp_path, **options | {"seeds": 2000})
    assert len(simulated) == 2 * (2000 - played[1])
    assert_equal(found, play(**options | {"seeds": 2000}))


@pytest.mark.parametrize("keep", BOTH)
@pytest.mark.parametrize("name", ["seeds across granules", "a policy"])
def test_a_call_that_is_stopped_goes_on(name, keep, tmp_path, simulated):
    larger = WAYS[name].more | {"keep": keep}
    seeds = larger.get("seeds", 300)
    for fewer in ({}, larger):  # While the store is made, and while it grows.
        with stopped(4):
            play(tmp_path, **fewer)
        with pytest.raises(ValueError, match="is not complete: .*missing.* the same call, or command, simulates just that"):
            jr.load(tmp_path)
        jr.load(tmp_path, partial=True)
        assert results.inspect(tmp_path).missing
    found = play(tmp_path, **larger)
    per_seed = 5 if name == "a policy" else 4
    assert len(set(simulated)) == per_seed * seeds
    assert len(simulated) <= per_seed * seeds + 3 * 64 * 3  # What had been simulated of whole granules, for statistics.
    assert keep == "moments" or len(simulated) == len(set(simulated))
    check(tmp_path, found, name, seeds, keep)


@pytest.mark.parametrize("keep", BOTH)
def test_no_seed_is_simulated_twice_when_a_partial_granule_grows(keep, tmp_path, simulated):
    for seeds in (range(10), [7, 200, 3], range(100), range(50, 256), 700):
        found = play(tmp_path, seeds=seeds, keep=keep)
    assert len(set(simulated)) == len(simulated) == 4 * 700
    check(tmp_path, found, seeds=700, keep=keep)


# Longer horizons.


@struct.dataclass
class Impatient:
    """Explores for a tenth of the horizon."""

    def init(self, key, spec):
        del key
        return jnp.float32(0.1 * spec.horizon)

    def act(self, key, state, obs, t):
        del key, obs
        return jnp.where(t < state, t % 3, 0).astype(jnp.int32), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state


def test_a_longer_horizon_goes_on_from_the_states_that_were_kept(tmp_path):
    play(tmp_path, keep_states=True)
    for horizon, seeds, number in (
        (75, 300, 300 * 35),  # No multiple of what is recorded.
        (90, 320, 300 * 50 + 20 * 90),
        (120, 330, 320 * 30 + 10 * 120),
        (40, 330, 30 * 40),
    ):
        found = play(tmp_path, keep_states=True, horizon=horizon, seeds=seeds)
        assert rounds(found) == 4 * number
        check(tmp_path, found, horizon=horizon, seeds=seeds)


def test_runs_are_simulated_from_the_first_round_where_they_cannot_go_on(tmp_path):
    """Without states, with a policy that knows the horizon, or with damaged states."""
    policies = {"impatient": Impatient(), "eps": stochastic.EpsilonGreedy()}
    play(tmp_path / "none", policies=policies)
    longer = play(tmp_path / "none", policies=policies, horizon=80)
    assert rounds(longer) == 2 * 300 * 80
    play(tmp_path / "states", policies=policies, keep_states=True)
    for file in (tmp_path / "states" / "store").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    again = play(tmp_path / "states", policies=policies, keep_states=True, horizon=80)
    assert 300 * (40 + 80) <= rounds(again) <= 2 * 300 * 80
    assert differences(longer, again) == [] == differences(play(policies=policies, horizon=80), longer)


def test_the_size_of_states_is_said_first(tmp_path, capsys):
    play(tmp_path, keep_states=True, progress=True, seeds=10)
    assert "the states at the end, which are kept, take up to" in capsys.readouterr().err
    assert rounds(play(tmp_path, keep_states=True, seeds=10, record_every=None, horizon=50)) == 4 * 10 * 10


@pytest.mark.parametrize("options", [{"keep": "moments"}, {"execution": jr.Execution("reference")}, {"out": None}])
def test_states_can_be_kept_of_single_runs_in_a_store(options, tmp_path):
    with pytest.raises(ValueError, match="keep_states needs"):
        play(**{"out": tmp_path, "keep_states": True} | options)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.POLICIES)
def test_a_longer_horizon_of_every_policy(name, tmp_path):
    pair = cases.POLICIES[name]
    options = {"env": pair.env(), "policies": {"one": pair.policy}, "record": None, "seeds": 20, "record_every": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That it was made for another horizon.
        whole = play(**options, horizon=30)
        play(tmp_path, **options, horizon=18, keep_states=True)
        longer = play(tmp_path, **options, horizon=30, keep_states=True)
    assert differences(whole, longer) == []


# Stores put together.

PARTS = {
    "halves": [range(150), range(150, 300)],
    "overlapping": [range(200), range(100, 300)],
    "interleaved": [range(0, 300, 2), range(1, 300, 2)],
    "granules": [range(256, 300), range(256)],
    "three": [range(100, 200), range(100), range(200, 300)],
}


@pytest.mark.parametrize("keep", BOTH)
@pytest.mark.parametrize("name", PARTS)
def test_stores_that_are_put_together_are_one(name, keep, tmp_path, simulated):
    parts = [tmp_path / str(number) for number in range(len(PARTS[name]))]
    for part, seeds in zip(parts, PARTS[name], strict=True):
        play(part, seeds=seeds, keep=keep)
    before = [contents(part) for part in parts]
    results.merge(parts, tmp_path / "all")
    assert [contents(part) for part in parts] == before
    simulated.clear()
    assert_equal(jr.load(tmp_path / "all"), at_once(keep=keep))
    check(tmp_path / "all", play(tmp_path / "all", keep=keep), keep=keep)
    simulated.clear()
    found = play(tmp_path / "all", seeds=400, keep=keep)
    assert len(simulated) == 4 * 100
    check(tmp_path / "all", found, seeds=400, keep=keep)
    results.merge([parts[0]], tmp_path / "all")  # What is there already.
    check(tmp_path / "all", found, seeds=400, keep=keep)


@pytest.mark.parametrize("keep", BOTH)
def test_unfinished_stores_are_put_together(keep, tmp_path, simulated):
    for number, seeds in enumerate([range(150), range(150, 300)]):
        with stopped(4):
            play(tmp_path / str(number), seeds=seeds, keep=keep)
    results.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    with pytest.raises(ValueError, match="is not complete"):
        jr.load(tmp_path / "all")
    found = play(tmp_path / "all", keep=keep)
    assert len(set(simulated)) == len(simulated) == 4 * 300
    check(tmp_path / "all", found, keep=keep)


def test_a_merged_result_says_what_made_it(tmp_path, monkeypatch):
    play(tmp_path / "0", seeds=range(150))
    with monkeypatch.context() as patch:
        patch.setattr("jaxroute.store.provenance.processor", lambda: "another one")
        play(tmp_path / "1", seeds=range(150, 300))
    results.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    about = decoded(jr.load(tmp_path / "all").attrs)
    assert about["decisions"] == 4 * 300 * 40
    assert [call["decisions"] for call in about["calls"]] == [4 * 150 * 40, 4 * 150 * 40, 0]
    assert {one["processor"] == "another one": one["cells"] for one in about["made_with"]} == {False: 12, True: 16}


DIFFERENT = {
    "key": ({"key": 1}, "key is 0 there and 1 here"),
    "policies": ({"policies": THREE}, "policies.eps is only in this run"),
    "setting": (_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.5, 1.0, 3.0])), r"ucb.*width.* 2\.0.* there and .*3\.0"),
    "horizon": ({"horizon": 50}, "horizon is 40 there and 50 here"),
    "statistics": ({"keep": "moments"}, "keep is only in this run"),
    "record": ({"record": ["regret"]}, "record.ucb.flows"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_stores_of_other_settings_are_not_put_together_and_the_difference_is_named(name, tmp_path):
    options, reason = DIFFERENT[name]
    play(tmp_path / "0", seeds=5)
    play(tmp_path / "1", **{"seeds": range(5, 10)} | options)
    with pytest.raises(ValueError, match=f"0' and .*1' hold the results of different settings: .*{reason}"):
        results.merge([tmp_path / "0", tmp_path / "1"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_folders_without_results_or_with_others_are_not_put_together(tmp_path):
    play(tmp_path / "0" / "a", seeds=5)
    play(tmp_path / "1" / "a", seeds=range(5, 10))
    play(tmp_path / "2" / "b", seeds=5)
    with pytest.raises(ValueError, match="path must be a folder with a stored result, got .*nothing"):
        results.merge([tmp_path / "0" / "a", tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(ValueError, match="folder must hold a stored result, got .*nothing"):
        stores.merge_folders([tmp_path / "0", tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(ValueError, match="folders must hold the same stores, got a in .* and b in"):
        stores.merge_folders([tmp_path / "0", tmp_path / "2"], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    assert stores.merge_folders([tmp_path / "0", tmp_path / "1"], tmp_path / "all") == [tmp_path / "all" / "a"]
    assert differences(play(seeds=10), jr.load(tmp_path / "all" / "a")) == []


@pytest.mark.parametrize("number", range(3))
def test_whatever_was_asked_for_before_every_result_is_the_one_at_once(number, tmp_path, monkeypatch):
    """Calls at random: other seeds, policies, settings, goals, statistics or runs, some interrupted."""
    rng, run, played = np.random.default_rng(number), programs.Block.play, []
    stop = [0]

    def maybe(self, *args):
        played.append(args)
        if len(played) == stop[0]:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(programs.Block, "play", maybe)
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
            stop[0] = len(played) + int(rng.integers(1, 20))
            with contextlib.suppress(KeyboardInterrupt):
                play(tmp_path, **options)
            stop[0] = 0
            found, whole = play(tmp_path, **options), play(**options | {"execution": jr.Execution(block=128)})
        assert_equal(found, whole)
    about = results.inspect(tmp_path, verify=True)
    assert (about.damage, about.missing, about.conflicts) == ("", "", 0)
