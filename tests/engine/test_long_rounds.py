"""Runs of policies whose rounds are long by themselves, which a CPU plays one by one."""

from types import MappingProxyType

import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute import simulate
from jaxroute.engine import memory, programs
from jaxroute.problems import stochastic as st

ENV = st.bernoulli([0.3, 0.5, 0.7])


@struct.dataclass
class Long(st.UCB1):
    def has_long_rounds(self, spec):
        return spec.num_models == 3


@struct.dataclass
class Short(st.UCB1):
    def has_long_rounds(self, spec):
        return spec.num_models > 3


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
    played(Long(), horizon=30, out=tmp_path / "runs", keep_states=True)
    longer = played(Long(), horizon=60, out=tmp_path / "runs", keep_states=True)
    assert_equal(longer, played(Long()))


def test_a_store_with_several_settings_a_call_goes_on(tmp_path, monkeypatch):
    grid = jr.grid(Long, width=[0.5, 1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr(Long, "has_long_rounds", lambda self, spec: False)
        played({"a": grid}, out=tmp_path / "runs")
    longer = played({"a": grid}, seeds=5, out=tmp_path / "runs", accept_changed_code=True)
    assert_equal(longer, played({"a": jr.grid(Short, width=[0.5, 1.0, 2.0])}, seeds=5))


def test_nobody_is_played_that_was_not_asked_for(monkeypatch):
    """Side by side runs come in sixteens; one by one as many as were asked for."""
    seen, play = [], programs.Block.play

    def noting(self, tile, seeds, begun=MappingProxyType({})):
        seen.append(len(seeds))
        return play(self, tile, seeds, begun)

    monkeypatch.setattr(programs.Block, "play", noting)
    played(Long())
    played(Short())
    assert seen == [3, 16]


def test_memory_is_that_of_the_runs_at_a_time(monkeypatch):
    one = memory.bytes_of_run(ENV, Long())
    monkeypatch.setattr(memory, "memory_limit", lambda device: memory.cores() * one)
    played(Long())
    with pytest.raises(ValueError, match="16 runs are played together"):
        played(Short())
