"""How a simulation is computed: what may be asked for, and what is refused."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import jaxroute as jr
from jaxroute.problems import stochastic

CPU = jax.devices("cpu")


def test_by_default_everything_is_chosen():
    assert jr.Execution() == jr.Execution("auto", None, None, None)
    assert jr.Execution().device_list() == jax.local_devices()
    assert jr.Execution(devices=tuple(CPU)).device_list() == CPU


def test_a_block_is_a_plain_number():
    given: Any = np.int64(16)
    assert type(jr.Execution(block=given).block) is int


def test_it_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        jr.Execution().block = 16  # type: ignore[misc]
    assert dataclasses.replace(jr.Execution("scan"), block=16) == jr.Execution("scan", block=16)


@pytest.mark.parametrize(
    ("share", "read"), [(None, None), ("0/1", (0, 1)), ("2/3", (2, 3)), ("join", "join"), ((0, 1), (0, 1)), ((2, 3), (2, 3))]
)
def test_a_share_is_a_pair_or_a_word(share, read):
    assert jr.Execution(share=share).share == read


WRONG = {
    "an unknown backend": ({"backend": "scann"}, "backend must be one of .*got 'scann'; did you mean 'scan'"),
    "a backend that is no name": ({"backend": 3}, "backend must be one of .*got 3"),
    "an unknown way to compile": ({"compile": "soon"}, "compile must be one of 'full', 'quick', got 'soon'"),
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


def test_a_share_needs_a_store():
    env, options = stochastic.bernoulli([0.5]), {"horizon": 3, "seeds": 3, "execution": jr.Execution(share="0/2")}
    with pytest.raises(ValueError, match="share needs out"):
        jr.simulate(env, stochastic.UCB1(), **options)


def test_old_arguments_are_gone():
    with pytest.raises(TypeError, match="unexpected keyword argument 'backend'"):
        jr.simulate(stochastic.bernoulli([0.5]), stochastic.UCB1(), horizon=3, seeds=3, backend="scan")  # type: ignore[call-arg]
