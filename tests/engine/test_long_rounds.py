"""Runs of policies whose rounds are long by themselves, which a CPU plays one by one."""

import dataclasses
from types import MappingProxyType

import jax
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute import simulate
from jaxroute.core import provenance
from jaxroute.engine import layout, programs, rounds
from jaxroute.engine.execution import resolve
from jaxroute.problems import queueing
from jaxroute.problems import stochastic as st

ENV = st.bernoulli([0.3, 0.5, 0.7])


@struct.dataclass
class Long(st.UCB1):
    def cost_hint(self, spec):
        return jr.CostHint(matrix_bytes=2**20 if spec.num_models == 3 else 0)


@struct.dataclass
class Short(st.UCB1):
    def cost_hint(self, spec):
        return jr.CostHint(matrix_bytes=2**20 if spec.num_models > 3 else 0)


def played(policy, **options):
    return simulate(ENV, policy, **{"horizon": 60, "seeds": 3, "progress": False} | options)


def values(data):
    return {name: data[name].values for name in data.data_vars}


def assert_equal(one, other):
    for name, numbers in values(one).items():
        np.testing.assert_allclose(numbers, values(other)[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"keep": "moments"}, {"record_every": 7, "execution": jr.Execution(block=2)}])
def test_the_same_runs(options):
    assert_equal(played({"a": Long(), "b": st.UCB1()}, **options), played({"a": Short(), "b": st.UCB1()}, **options))


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

    def noting(self, tile, seeds, begun=MappingProxyType({})):
        seen.append(len(seeds))
        return play(self, tile, seeds, begun)

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
