"""What is compiled with few optimisations, for a first look."""

from types import SimpleNamespace

import numpy as np
import pytest
from flax import struct
from helpers import backends

import jaxroute as jr
from jaxroute.engine import programs
from jaxroute.engine.execution import resolve
from jaxroute.problems import service, stochastic

ENV = stochastic.bernoulli([0.9, 0.5, 0.1])
OPTIONS = {"horizon": 40, "seeds": 16, "progress": False}


@struct.dataclass
class Long(stochastic.UCB1):
    """Its rounds are long by themselves: playing them would take more than compiling saves."""

    def cost_hint(self, spec):
        return jr.CostHint(matrix_bytes=2**20)


def both(env, policy, **options):
    ways = jr.Execution(compile="quick"), jr.Execution("scan")
    return [jr.simulate(env, policy, execution=way, **OPTIONS | options) for way in ways]


@pytest.mark.parametrize("policy", [stochastic.UCB1(), stochastic.BetaThompson()], ids=["UCB1", "BetaThompson"])
def test_it_is_the_scan_but_for_rounding(policy):
    ours, theirs = both(ENV, policy)
    assert (backends(ours), backends(theirs)) == ({"kernel"}, {"scan"})
    np.testing.assert_allclose(ours["regret"], theirs["regret"], rtol=1e-5, atol=1e-5)


def test_virtual_queues_are_those_of_the_scan():
    ours, theirs = both(service.benchmark_service(), service.paper_policy(), horizon=30)
    np.testing.assert_allclose(ours["cost"], theirs["cost"], rtol=1e-4)


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
