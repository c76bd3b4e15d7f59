"""How a simulation is computed: what may be asked for and is refused, expensive rounds one by one, quick compilation."""

import dataclasses
from types import MappingProxyType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from flax import struct
from helpers import backends

import jaxroute as jr
from jaxroute import simulate
from jaxroute.core import provenance
from jaxroute.core.attributes import decoded
from jaxroute.engine import layout, programs, rounds
from jaxroute.engine.execution import resolve
from jaxroute.kernels import host
from jaxroute.problems import queueing, stochastic

CPU = jax.devices("cpu")


def test_by_default_everything_is_chosen_and_nothing_changes():
    assert jr.Execution() == jr.Execution("auto", None, None, None)
    assert jr.Execution().device_list() == jax.local_devices()
    assert jr.Execution(devices=tuple(CPU)).device_list() == CPU
    given: Any = np.int64(16)
    assert type(jr.Execution(block=given).block) is int


@pytest.mark.skipif(host.compiler(wide=True) is None, reason="there is no C++ compiler")
def test_a_policy_that_prefers_the_scan_leaves_kernels_to_the_others():
    @struct.dataclass
    class Scanned(stochastic.UCB1):
        def cost_hint(self, spec):
            return jr.CostHint(product_bytes=2**20)

    policies = {"scanned": Scanned(), "usual": stochastic.UCB1()}

    def backends(**options):
        result = jr.simulate(stochastic.bernoulli([0.4, 0.6]), policies, horizon=20, seeds=2, progress=False, **options)
        return decoded(result.attrs)["backend"]

    assert backends() == {"scanned": "scan", "usual": "kernel"}
    assert backends(execution=jr.Execution("kernel")) == {"scanned": "kernel", "usual": "kernel"}


@pytest.mark.skipif(host.compiler(wide=True) is None, reason="there is no C++ compiler")
def test_settings_that_share_most_of_a_run_are_for_the_scan():
    assert [resolve(jr.Execution(), CPU, lambda shares=x: shares).backend for x in (False, True)] == ["kernel", "scan"]


@pytest.mark.parametrize(
    ("share", "read"), [(None, None), ("0/1", (0, 1)), ("2/3", (2, 3)), ("join", "join"), ((0, 1), (0, 1)), ((2, 3), (2, 3))]
)
def test_a_share_is_a_pair_or_a_word(share, read):
    assert jr.Execution(share=share).share == read


WRONG = {
    "an unknown backend": ({"backend": "scann"}, "backend must be one of .*got 'scann'; did you mean 'scan'"),
    "a backend that is no name": ({"backend": 3}, "backend must be one of .*got 3"),
    "an unknown way to compile": ({"compile": "soon"}, "compile must be one of 'full', 'quick', got 'soon'"),
    "an unknown arithmetic": ({"arithmetic": "slow"}, "arithmetic must be one of 'auto', 'exact', 'fast', got 'slow'"),
    "no devices": ({"devices": []}, r"devices must be a non-empty list of jax devices, got \[\]"),
    "devices by name": ({"devices": "cpu"}, "devices must be .*, got 'cpu'; jax.devices"),
    "devices of something else": ({"devices": ["cpu"]}, "devices must be .*, got"),
    "one device": ({"devices": CPU[0]}, "devices must be a non-empty list"),
    "no block": ({"block": 0}, "block must be at least 1, got 0"),
    "half a block": ({"block": 0.5}, "block must be a whole number at least 1, got 0.5"),
    "a block that is true": ({"block": True}, "block must be a whole number"),
    **{
        f"a share as {share!r}": ({"share": share}, "share must be None, 'join', 'auto', a text 'I/N' or a pair")
        for share in ("", "1", "1/1", "2/1", "-1/2", "1/2/3", " 0/1", "0/1\n", "joins", (1, 1), (-1, 2), (0, 2, 3), (0, 2.0), (False, 2), [0, 2], 0.5)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_and_named(name):
    given, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        jr.Execution(**given)


def test_a_cpu_has_the_exact_arithmetic_only():
    env, options = stochastic.bernoulli([0.5]), {"horizon": 3, "seeds": 3, "progress": False}
    with pytest.raises(ValueError, match="arithmetic='fast' is for GPUs"):
        jr.simulate(env, stochastic.UCB1(), execution=jr.Execution(arithmetic="fast"), **options)
    result = jr.simulate(env, stochastic.UCB1(), **options)
    assert decoded(result.attrs)["arithmetic"] == "exact" and "inexact" not in decoded(result.attrs)


def test_the_back_end_is_no_part_of_a_stored_result(tmp_path):
    env, options = stochastic.bernoulli([0.5, 0.6]), {"horizon": 30, "seeds": 8, "progress": False, "out": tmp_path}
    first = jr.simulate(env, stochastic.UCB1(), execution=jr.Execution("scan"), **options)
    for other in (jr.Execution("reference"), jr.Execution("scan", compile="quick"), jr.Execution()):
        again = jr.simulate(env, stochastic.UCB1(), execution=other, **options)
        assert decoded(again.attrs)["last_call"]["decisions"] == 0
        np.testing.assert_array_equal(again["regret"], first["regret"])


@struct.dataclass
class Wide(stochastic.UCB1):
    """Multiplies matrices so large that a library does."""

    def act(self, key, state, obs, t):
        action, info = super().act(key, state, obs, t)
        return action, {**info, "sum": jnp.dot(jnp.ones(100), jnp.arange(100.0) * t)}


def test_what_a_library_rounds_is_named_and_stays_apart(tmp_path):
    env, options = stochastic.bernoulli([0.5, 0.6]), {"horizon": 30, "seeds": 8, "progress": False, "out": tmp_path}
    first = jr.simulate(env, {"Wide": Wide()}, execution=jr.Execution("scan"), **options)
    assert decoded(first.attrs)["inexact"] == {"Wide": ["products of matrices with sums of 100 terms"]}
    again = jr.simulate(env, {"Wide": Wide()}, execution=jr.Execution("reference"), **options)
    assert decoded(again.attrs)["last_call"]["decisions"] > 0


# Runs of policies whose rounds are long by themselves, which a CPU plays one by one.


ENV = stochastic.bernoulli([0.3, 0.5, 0.7])


@struct.dataclass
class Long(stochastic.UCB1):
    def cost_hint(self, spec):
        return jr.CostHint(matrix_bytes=2**20 if spec.num_models == 3 else 0)


@struct.dataclass
class Short(stochastic.UCB1):
    def cost_hint(self, spec):
        return jr.CostHint(matrix_bytes=2**20 if spec.num_models > 3 else 0)


def played(policy, **options):
    return simulate(ENV, policy, **{"horizon": 60, "seeds": 3, "progress": False} | options)


def assert_equal(one, other):
    xr.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"keep": "moments"}, {"record_every": 7, "execution": jr.Execution(block=2)}])
def test_the_same_runs(options):
    assert_equal(
        played({"a": Long(), "b": stochastic.UCB1()}, **options), played({"a": Short(), "b": stochastic.UCB1()}, **options)
    )


def test_in_a_grid():
    def made(kind):
        return jr.grid(lambda width, times: kind(width=width * times), width=[0.5, 1.0, 2.0], times=[1.0, 3.0])

    assert_equal(played({"a": made(Long)}), played({"a": made(Short)}))


def test_goes_on(tmp_path):
    played(Long(), horizon=30, out=jr.Store(tmp_path / "runs", keep_states=True))
    longer = played(Long(), horizon=60, out=jr.Store(tmp_path / "runs", keep_states=True))
    assert_equal(longer, played(Long()))


def test_a_store_with_several_settings_a_call_goes_on(tmp_path, monkeypatch):
    grid = jr.grid(Long, width=[0.5, 1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr(Long, "cost_hint", lambda self, spec: jr.CostHint())
        played({"a": grid}, out=tmp_path / "runs")
    longer = played({"a": grid}, seeds=5, out=jr.Store(tmp_path / "runs", accept_changed_code=True))
    assert_equal(longer, played({"a": jr.grid(Short, width=[0.5, 1.0, 2.0])}, seeds=5))


def test_nobody_is_played_that_was_not_asked_for(monkeypatch):
    """Side by side runs come in sixteens; one by one as many as were asked for."""
    seen, play = [], programs.Block.run

    def noting(self, tile, seeds, resumed=MappingProxyType({})):
        seen.append(len(seeds))
        return play(self, tile, seeds, resumed)

    monkeypatch.setattr(programs.Block, "run", noting)
    played(Long())
    played(Short())
    assert seen == [3, 16]


def test_memory_is_that_of_the_runs_at_a_time(monkeypatch):
    one = rounds.bytes_of_run(ENV, Long())
    monkeypatch.setattr(layout, "memory_limit", lambda device: provenance.cores() * one)
    played(Long())
    with pytest.raises(ValueError, match="16 runs are simulated together"):
        played(Short())


@pytest.mark.parametrize(
    ("dim", "models", "offered", "decisions"),
    [
        *((34, 14, 3, (False, False)), (64, 5, 3, (False, False)), (34, 30, 2, (True, False)), (34, 30, 3, (True, True))),
        *((64, 14, 1, (True, False)), (64, 112, 1, (True, True)), (128, 5, 2, (True, False)), (128, 14, 2, (True, True))),
    ],
)
def test_sizes_of_pools_decide(dim, models, offered, decisions):
    env = queueing.pool_queue(
        np.ones((60, dim)), np.full((60, models), 0.5), arrival_rate=0.8, horizon=50, num_offered=offered
    )
    for policy in (queueing.ACQB(), queueing.PolicySwitch(queueing.Random(), queueing.ACQB(), 5)):
        target = resolve(jr.Execution(), jax.devices("cpu")[:1], lambda: False)
        hint = policy.cost_hint(rounds.spec_for(env, 50))
        scan = target.backend_of(hint) == "scan"
        assert (dataclasses.replace(target, backend="scan").one_by_one(hint), scan) == decisions


# Quick compilation, with few optimisations, for a first look.


OPTIONS = {"horizon": 40, "seeds": 16, "progress": False}


def test_it_is_played_by_a_kernel():
    quick = jr.simulate(ENV, stochastic.BetaThompson(), execution=jr.Execution(compile="quick"), **OPTIONS)
    scan = jr.simulate(ENV, stochastic.BetaThompson(), execution=jr.Execution("scan"), **OPTIONS)
    assert (backends(quick), backends(scan)) == ({"kernel"}, {"scan"})
    assert_equal(quick, scan)


def test_it_is_compiled_with_fewer_optimisations():
    """By what XLA was told: the program itself says nothing about it."""
    told = []
    compile_ = programs.compile_lanes

    def watched(lowered, platform, quick=False):
        told.append(quick)
        return compile_(lowered, platform, quick)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(programs, "compile_lanes", watched)
        quick, full = jr.Execution(compile="quick"), jr.Execution("scan")
        for policy, way in ((stochastic.UCB1(), quick), (stochastic.UCB1(), full), (Long(), quick)):
            jr.simulate(ENV, policy, execution=way, horizon=33, seeds=16, progress=False)
    assert told == [True, False, False]


def test_a_store_goes_on_as_it_was_begun(tmp_path):
    jr.simulate(ENV, stochastic.UCB1(), execution=jr.Execution(compile="quick"), out=tmp_path / "store", **OPTIONS)
    longer = jr.simulate(ENV, stochastic.UCB1(), out=tmp_path / "store", **OPTIONS | {"seeds": 48})
    assert backends(longer) == {"kernel"} and longer.sizes["seed"] == 48
    first = jr.simulate(ENV, stochastic.UCB1(), execution=jr.Execution(compile="quick"), **OPTIONS)
    np.testing.assert_array_equal(longer["regret"].values[..., :16, :], first["regret"].values)
    scan = jr.simulate(ENV, stochastic.UCB1(), execution=jr.Execution("scan"), out=tmp_path / "store", **OPTIONS)
    assert backends(scan) == {"scan"} == backends(jr.load(tmp_path / "store")) and scan.sizes["seed"] < 48


def test_it_is_refused_on_a_gpu():
    gpu = SimpleNamespace(platform="cuda")
    with pytest.raises(ValueError, match="compile='quick' is for CPUs, got devices of the platform 'cuda'"):
        resolve(jr.Execution(compile="quick"), [gpu], lambda: False)
