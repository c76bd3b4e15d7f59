"""Stores that grow: whatever a run asks for more, the result has the bits that it would have had at once, and only what is missing is played."""

import contextlib
import functools
import json
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
from helpers import retell
from toys import Clock, Cycle, Planner

import jaxroute as jr
from jaxroute import cli
from jaxroute.engine import programs
from jaxroute.problems import stochastic
from jaxroute.store import code, difference, inspection, merging, places, states

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
WIDTHS = jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0])
TWO = {"ucb": WIDTHS, "thompson": stochastic.GaussianThompson()}
THREE = {**TWO, "eps": stochastic.EpsilonGreedy()}


def drawn(key):
    """A random instance."""
    return stochastic.BanditEnv(mean=jax.random.uniform(key, (3,)), scale=np.float32(0.1))


def play(out=None, **options):
    """Some blocks of two policies, one of them with three settings."""
    settings = {"env": ENV, "policies": TWO, "horizon": 40, "seeds": 70, "record_every": 10, "record": ["regret", "pulls"]}
    settings |= {"block": 16, "progress": False} | options
    return jr.simulate(settings.pop("env"), settings.pop("policies"), out=out, **settings)


class Way(NamedTuple):
    """How a store grows.

    more: arguments of the larger run. blocks: that it plays. fewer: arguments of both.
    """

    more: dict[str, Any]
    blocks: int
    fewer: Mapping[str, Any] = MappingProxyType({})


def _some_policies(**options):
    return {"policies": TWO | options}


LONGER = {"keep_states": True}
WAYS = {
    "seeds": Way({"seeds": 100}, 6),
    "seeds in another order": Way({"seeds": [*range(200, 230), *range(69, -1, -1)]}, 4),
    "a policy": Way({"policies": THREE}, 5),
    "a policy with an axis of its own": Way(_some_policies(eps=jr.grid(stochastic.EpsilonGreedy, epsilon=[0.1, 0.2])), 5),
    "policies in another order": Way({"policies": dict(reversed(TWO.items()))}, 0),
    "values at the end of an axis": Way(_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0, 3.0, 4.0])), 10),
    "values in between": Way(_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.25, 0.5, 0.75, 1.0, 2.0])), 10),
    "values of the environment": Way(
        {"env": jr.grid(stochastic.bernoulli, mean=[(0.2, 0.7), (0.1, 0.2), (0.6, 0.5)])},
        10,
        {"env": jr.grid(stochastic.bernoulli, mean=[(0.2, 0.7), (0.6, 0.5)]), "policies": TWO | {"ucb": stochastic.UCB1()}},
    ),
    "instances of a sampler": Way(
        {"instances": 6}, 10, {"env": drawn, "instances": 4, "policies": TWO | {"ucb": stochastic.UCB1()}}
    ),
    "a metric that one policy has": Way(
        {"record": ["reward", "waiting"]},
        5,
        {"env": Clock(), "policies": {"cycle": Cycle(), "planner": Planner(stage_length=5)}, "record": ["reward"]},
    ),
    "rounds": Way({"horizon": 90}, 10, LONGER),
    "rounds, not a multiple of what is recorded": Way({"horizon": 75}, 10, LONGER),
    "rounds and seeds": Way({"horizon": 80, "seeds": 100}, 14, LONGER),
    "seeds, with their states": Way({"seeds": 100}, 6, LONGER),
    "everything": Way({"policies": THREE, "seeds": 90, "horizon": 60}, 18, LONGER),
}
OF_MOMENTS = ("seeds", "values at the end of an axis", "values of the environment", "instances of a sampler")


@pytest.fixture
def stopped(monkeypatch):
    """A context in which the block of this number is interrupted."""

    @contextlib.contextmanager
    def at(number):
        run, played = programs.Block.play, []

        def interrupted(self, *args):
            played.append(args)
            if len(played) == number:
                raise KeyboardInterrupt
            return run(self, *args)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(programs.Block, "play", interrupted)
            yield

    return at


@functools.cache
def at_once(name, keep="runs"):
    way = WAYS[name]
    return play(**{k: v for k, v in {**way.fewer, **way.more}.items() if k != "keep_states"}, keep=keep)


def check(path, found, name, keep="runs"):
    """The result, what is loaded, and nothing beside the store."""
    for data in (found, jr.load(path)):
        xr.testing.assert_identical(data.drop_attrs(deep=False), at_once(name, keep).drop_attrs(deep=False))
    assert [p.name for p in path.iterdir()] == ["result.zarr"]
    assert not list((path / "result.zarr" / states.FOLDER).glob(f"*.{states.BEGUN}"))
    assert inspection.inspect(path / "result.zarr", verify=True).damage == []


@pytest.mark.parametrize("name", WAYS)
def test_a_store_that_grows_has_the_bits_of_a_run_at_once(name, tmp_path, count_blocks):
    way = WAYS[name]
    play(tmp_path, **way.fewer)
    count_blocks.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = play(tmp_path, **{**way.fewer, **way.more})
    assert len(count_blocks) == way.blocks
    check(tmp_path, found, name)
    (part,) = found.attrs["grown"]
    assert part["more"] and part["decisions"] == play(**{**way.fewer, "keep_states": False}).attrs["decisions"]
    count_blocks.clear()
    again = play(tmp_path, **{**way.fewer, **way.more})
    assert not count_blocks and again.attrs["grown"] == [part]


@pytest.mark.parametrize("name", OF_MOMENTS)
def test_a_store_of_statistics_grows(name, tmp_path, count_blocks):
    way = WAYS[name]
    play(tmp_path, **way.fewer, keep="moments")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check(tmp_path, play(tmp_path, **{**way.fewer, **way.more}, keep="moments"), name, "moments")


QUICK = (("runs", "seeds"), ("runs", "rounds"), ("moments", "seeds"))


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        pytest.param(keep, name, marks=() if (keep, name) in QUICK else pytest.mark.slow)
        for keep, names in (("runs", WAYS), ("moments", OF_MOMENTS))
        for name in names
    ],
)
def test_a_run_that_is_stopped_while_it_grows_goes_on(name, keep, tmp_path, stopped):
    way = WAYS[name]
    play(tmp_path, **way.fewer, keep=keep)
    if way.blocks > 2:
        with stopped(3):
            play(tmp_path, **{**way.fewer, **way.more}, keep=keep)
        with pytest.raises(ValueError, match="unfinished"):
            jr.load(tmp_path)
        assert inspection.inspect(tmp_path / "result.zarr").missing
    check(tmp_path, play(tmp_path, **{**way.fewer, **way.more}, keep=keep), name, keep)


class Killed(BaseException):
    """A process that ends at once."""


@pytest.mark.parametrize(
    "moment", ["while it is copied", "before it moves", "between the moves", "before the old one is removed"]
)
def test_a_process_that_dies_while_one_store_takes_the_place_of_another(moment, tmp_path, monkeypatch):
    whole = play(tmp_path)
    rename, renamed = Path.rename, []

    def dying(*_, **__):
        raise Killed

    def dying_rename(self, target):
        renamed.append(target)
        if len(renamed) == 2:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        if moment == "while it is copied":
            patch.setattr(places.Folder, "replace", dying)
        elif moment == "before it moves":
            patch.setattr(Path, "rename", dying)
        elif moment == "between the moves":
            patch.setattr(Path, "rename", dying_rename)
        else:
            patch.setattr(places.shutil, "rmtree", lambda place, **_: place.exists() and dying())
        with pytest.raises(Killed):
            play(tmp_path, seeds=100)
    if moment == "between the moves":
        with pytest.raises(ValueError, match="has not ended; run it again to complete it"):
            jr.load(tmp_path)
    elif moment == "before the old one is removed":
        with pytest.raises(ValueError, match="unfinished"):
            jr.load(tmp_path)
    else:
        xr.testing.assert_identical(jr.load(tmp_path).drop_attrs(deep=False), whole.drop_attrs(deep=False))
    check(tmp_path, play(tmp_path, seeds=100), "seeds")


@pytest.mark.parametrize("keep", ["runs", "moments"])
def test_a_smaller_error_goes_on(keep, tmp_path, count_blocks):
    """The looks at which the larger goal was missed cannot have met the smaller one."""
    options = {"seeds": 4000, "block": 64, "policies": {"ucb": stochastic.UCB1(), "eps": stochastic.EpsilonGreedy()}}
    for goal in (0.14, 0.07):
        at_once = play(**options, keep=keep, until_stderr={"regret": goal})
        grown = play(tmp_path, **options, keep=keep, until_stderr={"regret": goal})
        xr.testing.assert_identical(at_once.drop_attrs(deep=False), grown.drop_attrs(deep=False))
        assert grown.attrs["seeds_played"] == at_once.attrs["seeds_played"]
        assert grown.attrs["until_stderr"] == at_once.attrs["until_stderr"]
    assert grown.attrs["grown"][0]["more"] == ["smaller standard errors"]
    with pytest.raises(jr.StoreMismatchError, match=r"until_stderr.regret is 0.07 there and 0.2 here"):
        play(tmp_path, **options, keep=keep, until_stderr={"regret": 0.2})
    count_blocks.clear()
    everything = play(tmp_path, **options, keep=keep)
    assert everything.attrs["grown"][1]["more"] == ["all seeds"]
    assert len(count_blocks) == 2 * (4000 // 64 + 1) - 2 * -(-grown.attrs["seeds_played"] // 64)


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


def test_a_policy_that_knows_the_horizon_is_played_from_its_first_round(tmp_path, count_blocks):
    policies = {"impatient": Impatient(), "eps": stochastic.EpsilonGreedy()}
    play(tmp_path, policies=policies, keep_states=True)
    count_blocks.clear()
    longer = play(tmp_path, policies=policies, keep_states=True, horizon=80)
    assert differences(play(policies=policies, horizon=80), longer) == []
    runs = 70 * (40 + 80)  # The other one goes on.
    assert longer.attrs["decisions"] - longer.attrs["grown"][0]["decisions"] == runs


def test_states_that_are_lost_are_played_again(tmp_path):
    play(tmp_path, keep_states=True)
    folder = tmp_path / "result.zarr" / states.FOLDER
    files = sorted(folder.iterdir())
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    files[2].write_bytes(files[3].read_bytes())
    longer = play(tmp_path, keep_states=True, horizon=90)
    check(tmp_path, longer, "rounds")
    before = longer.attrs["grown"][0]["decisions"]
    settings = {"0": 3, "1": 1}
    again = sum(16 * settings[file.name[0]] * 40 for file in files[:3])
    assert longer.attrs["decisions"] - before == 4 * 70 * 50 + again


def test_the_size_of_states_is_said_first(tmp_path, capsys):
    play(tmp_path, keep_states=True, progress=True)
    said = capsys.readouterr().err
    size = sum(n * jr.run_bytes(ENV, p) for n, p in ((3, stochastic.UCB1()), (1, stochastic.GaussianThompson())))
    assert "the states at the end, which are kept, take up to" in said
    assert size > 0


def test_what_was_recorded_is_the_default(tmp_path):
    play(tmp_path, keep_states=True)
    longer = play(tmp_path, keep_states=True, horizon=90, record_every=None)
    check(tmp_path, longer, "rounds")


REFUSED = {
    "fewer seeds": ({"seeds": 60}, "seeds 60 to 69 are only in the store"),
    "other seeds": ({"seeds": range(1, 71)}, "seeds 0 is only in the store"),
    "fewer policies": ({"policies": {"ucb": WIDTHS}}, "policies.thompson is only in the store"),
    "fewer values": (_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.5, 1.0])), "policies.ucb.width 2.0 is only in the store"),
    "no grid any more": (_some_policies(ucb=stochastic.UCB1(width=0.5)), "policies.ucb"),
    "another axis": (_some_policies(ucb=jr.grid(stochastic.EpsilonGreedy, epsilon=[0.1, 0.2])), "policies.ucb"),
    "a value twice": (_some_policies(ucb=jr.grid(stochastic.UCB1, width=[0.5, 1.0, 2.0, 2.0])), "where a value stands twice"),
    "another setting at a value": (
        _some_policies(ucb=jr.grid(lambda width: stochastic.UCB1(width=width + 1), width=[0.5, 1.0, 2.0, 3.0])),
        "policies.ucb at width=0.5 is something else there than here",
    ),
    "a metric of all policies": ({"record": ["regret", "pulls", "reward"]}, "'reward' of policy 'ucb', .*all of it would have to be played again"),
    "fewer metrics": ({"record": ["regret"]}, "record.ucb.flows"),
    "rounds without states": ({"horizon": 80}, r"horizon is 40 there and 80 here, and the states at the end were not kept \(keep_states=True\)"),
    "fewer rounds": ({"horizon": 20}, "horizon is 40 there and 20 here"),
    "states of what has been played": ({"keep_states": True}, "keep_states is False there and True here"),
    "a goal": ({"until_stderr": {"regret": 1.0}}, "until_stderr"),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished")
    play(path)
    return path


@pytest.mark.filterwarnings("ignore:grid. width has 2.0 more than once")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_growth_is_refused_with_a_reason(name, finished):
    options, reason = REFUSED[name]
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    with pytest.raises(
        jr.StoreMismatchError, match=f"holds the result of other settings: .*{reason}.*; choose another folder"
    ):
        play(finished, **options)
    assert {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()} == before


STATISTICS = {
    "a policy": ({"policies": THREE}, "policy 'eps': statistics of differences need all policies to be played together"),
    "the order of policies": ({"policies": dict(reversed(TWO.items()))}, "policies are ucb, thompson there and thompson, ucb here"),
    "the order of seeds": ({"seeds": range(100, -1, -1)}, "seeds do not begin with those of the store, and statistics are merged in their order"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATISTICS)
def test_what_statistics_cannot_grow_by(name, tmp_path):
    options, reason = STATISTICS[name]
    play(tmp_path, keep="moments")
    with pytest.raises(jr.StoreMismatchError, match=f"{reason}; choose another folder"):
        play(tmp_path, keep="moments", **options)


@pytest.mark.parametrize("options", [{"keep": "moments"}, {"backend": "reference"}, {"out": None}])
def test_states_can_be_kept_of_single_runs_in_a_store(options, tmp_path):
    with pytest.raises(ValueError, match="keep_states needs"):
        play(**{"out": tmp_path, "keep_states": True} | options)


def test_rounds_after_a_short_interval_are_refused(tmp_path):
    play(tmp_path, keep_states=True, horizon=45)
    with pytest.raises(jr.StoreMismatchError, match="the last record interval there is not a whole one of 10 rounds"):
        play(tmp_path, keep_states=True, horizon=90)


def test_damaged_blocks_of_a_smaller_store_are_played_again(tmp_path, count_blocks):
    play(tmp_path)
    chunk = next(
        p for p in sorted((tmp_path / "result.zarr" / "regret").rglob("*")) if p.is_file() and p.name != "zarr.json"
    )
    chunk.write_bytes(chunk.read_bytes()[:-3])
    count_blocks.clear()
    grown = play(tmp_path, seeds=100)
    assert len(count_blocks) == 7
    check(tmp_path, grown, "seeds")


def test_a_store_that_does_not_say_what_it_holds_is_mended_before_it_grows(tmp_path):
    play(tmp_path)
    file = tmp_path / "result.zarr" / "seed" / "c" / "0"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ValueError, match="damaged .*; run it again .* with the settings that it has, before it grows"):
        play(tmp_path, seeds=100)
    play(tmp_path)
    check(tmp_path, play(tmp_path, seeds=100), "seeds")


def test_an_unfinished_store_grows(tmp_path, stopped, count_blocks):
    with stopped(4):
        play(tmp_path)
    count_blocks.clear()
    grown = play(tmp_path, seeds=100)
    assert len(count_blocks) == 14 - 3
    check(tmp_path, grown, "seeds")


def test_code_of_a_new_policy_is_no_change_but_that_of_an_old_one_is(tmp_path, monkeypatch):
    play(tmp_path)
    assert "accepted_code" not in play(tmp_path, policies=THREE).attrs
    known = retell(tmp_path)["code"]
    assert any("EpsilonGreedy" in name for name in known["digests"])
    changed = dict(known["digests"]) | {name: "0" for name in known["digests"] if name.endswith("UCB1.act")}
    retell(tmp_path, code={**known, "digests": changed})
    with pytest.raises(jr.StoreMismatchError, match="UCB1.act changed"):
        play(tmp_path, policies=THREE, seeds=100)
    with pytest.warns(UserWarning, match="UCB1.act changed"):
        data = play(tmp_path, policies=THREE, seeds=100, accept_changed_code=True)
    assert len(data.attrs["accepted_code"]) == 1 and len(data.attrs["grown"]) == 2
    assert code.changes(retell(tmp_path)["code"]["digests"], known["digests"]) == []


# Every problem.


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


def test_stores_of_other_seeds_are_put_together(tmp_path, count_blocks):
    parts = [range(40), range(40, 100), range(90, 120)]
    for number, seeds in enumerate(parts):
        play(tmp_path / str(number), seeds=seeds)
    merging.merge([tmp_path / str(number) for number in range(3)], tmp_path / "all")
    count_blocks.clear()
    found = jr.load(tmp_path / "all")
    assert differences(play(seeds=120), found) == []
    assert found.attrs["decisions"] == 4 * 40 * (40 + 60 + 30)
    assert [part["decisions"] for part in found.attrs["merged"]] == [4 * 40 * n for n in (40, 60, 30)]
    count_blocks.clear()
    assert differences(play(seeds=130), play(tmp_path / "all", seeds=130)) == []
    assert len(count_blocks) == 2 * -(-130 // 16) + 2 * 2
    assert differences(play(seeds=range(90, 120)), jr.load(tmp_path / "2")) == []


def test_blocks_of_several_machines_say_so(tmp_path, monkeypatch):
    play(tmp_path / "a", seeds=range(40))
    with monkeypatch.context() as patch:
        patch.setattr("jaxroute.store.provenance.processor", lambda: "another one")
        play(tmp_path / "b", seeds=range(40, 80))
    merging.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    found = jr.load(tmp_path / "all")
    assert differences(play(seeds=80), found) == []
    assert [one["blocks"] for one in found.attrs["made_with"]] == [4, 4, 2]
    assert found.attrs["made_with"][2]["processor"].endswith(" and another one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert differences(play(seeds=80), play(tmp_path / "all", seeds=80)) == []


NOT_TOGETHER = {
    "one": ([{}], ValueError, "at least two stores, got 1"),
    "statistics": ([{}, {"keep": "moments"}], ValueError, "only single runs .*, got .* with statistics over the seeds"),
    "a goal": ([{"until_stderr": {"regret": 9.0}}, {}], ValueError, "with until_stderr"),
    "other settings": ([{}, {"key": 1}], jr.StoreMismatchError, "different settings: key is 0 there and 1 here"),
    "other policies": ([{}, {"policies": THREE}], jr.StoreMismatchError, "different settings: policy 'eps'"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TOGETHER)
def test_what_cannot_be_put_together(name, tmp_path):
    runs, kind, reason = NOT_TOGETHER[name]
    for number, options in enumerate(runs):
        play(tmp_path / str(number), **options)
    with pytest.raises(kind, match=reason):
        merging.merge([tmp_path / str(number) for number in range(len(runs))], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    with pytest.raises(ValueError, match="out must be a new folder"):
        merging.merge([tmp_path / "0", tmp_path / "0"], tmp_path / "0")


def test_a_folder_without_a_result_cannot_be_put_together(tmp_path):
    play(tmp_path / "0")
    with pytest.raises(ValueError, match="paths must be folders with a stored result, got .*nothing"):
        merging.merge([tmp_path / "0", tmp_path / "nothing"], tmp_path / "all")


# The command.


def command(*arguments, capsys):
    status = cli.main(["store", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_shows_verifies_and_merges(tmp_path, capsys):
    play(tmp_path / "a" / "case", seeds=range(40))
    play(tmp_path / "b" / "case", seeds=range(40, 70))
    play(tmp_path / "b" / "case", seeds=range(40, 80))
    status, out, _ = command(tmp_path / "all", "--merge", tmp_path / "a", tmp_path / "b", "--verify", capsys=capsys)
    assert status == 0
    assert "every run: 2 policies x 3 width x 80 seeds x 40 rounds of stochastic, recorded every 10, key 0" in out
    assert "to play   nothing" in out and "sound     all 10 blocks are what was written" in out
    status, out, _ = command(tmp_path / "b", capsys=capsys)
    assert status == 0 and "it had fewer: 10 seeds" in out and "not looked at (--verify)" in out
    chunk = next(p for p in sorted((tmp_path / "a").rglob("regret/c/**/*")) if p.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-3])
    assert command(tmp_path / "a", capsys=capsys)[0] == 0
    status, out, _ = command(tmp_path / "a", "--verify", capsys=capsys)
    assert status == 1 and "DAMAGED   policy " in out
    status, _, err = command(tmp_path / "none", capsys=capsys)
    assert status == 2 and "folder must hold a stored result" in err


def test_the_command_tells_what_is_missing(tmp_path, stopped, capsys):
    for keep, words in (
        ("runs", "7 of 10 blocks: 2 of ucb, 5 of thompson"),
        ("moments", "4 blocks are missing, the first that of"),
    ):
        with stopped(4):
            play(tmp_path / keep, keep=keep)
        status, out, _ = command(tmp_path / keep, capsys=capsys)
        assert status == 0 and words in out, out


def test_an_experiment_grows_by_the_command(tmp_path, capsys):
    arguments = ["run", "stochastic/regret", "--out", str(tmp_path), "--no-figures", "--horizon", "200"]
    assert cli.main([*arguments, "--seeds", "16"]) == 0
    assert cli.main([*arguments, "--seeds", "24"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["seeds"] == 24
    capsys.readouterr()


# Words for what is different.


def test_seeds_are_described_and_read_back():
    rng = np.random.default_rng(0)
    for seeds in (range(5), range(100), [*range(40), *range(60, 100)], rng.permutation(500)):
        array = np.asarray(list(seeds), np.uint32)
        np.testing.assert_array_equal(
            difference.described_seeds(json.loads(json.dumps(difference.describe_seeds(array)))), array
        )
    assert difference.described_seeds(difference.describe_seeds(rng.permutation(5000).astype(np.uint32))) is None


@pytest.mark.parametrize(
    ("stored", "added", "size"),
    [(4, [3, 4], 1), (4, [4, 5], 2), (4, [4, 5, 6, 7], 4), (4, [0, 2, 5], 1), (2, [1], 1), (1, [0], 1)],
)
def test_known_settings_are_played_again_only_where_that_costs_nothing(stored, added, size):
    assert difference.size_beside(stored, added) == size


@pytest.mark.parametrize(
    ("stored", "added", "size"),
    [
        (2048, range(2048, 2560), 512),
        (2048, range(2000, 2100), 128),
        (2048, [], 2048),
        (16, [17], 16),
        (256, range(256, 266), 128),
    ],
)
def test_blocks_are_cut_finer_for_few_seeds(stored, added, size):
    assert difference.layout_beside({"block": stored, "tile": {"a": 4}}, {"seed": added}) == {
        "block": size,
        "tile": {"a": 4},
    }


def test_blocks_that_are_cut_finer_have_the_same_bits(tmp_path):
    play(tmp_path, seeds=500, block=512)
    grown = play(tmp_path, seeds=600)
    assert grown.attrs["layout"]["block"] == 128
    assert differences(play(seeds=600, block=512), grown) == [] == differences(grown, jr.load(tmp_path))
