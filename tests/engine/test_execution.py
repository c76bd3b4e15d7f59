"""How a simulation is computed: what may be asked for, and what is refused."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.kernels import host
from jaxroute.problems import stochastic

CPU = jax.devices("cpu")


def test_by_default_everything_is_chosen():
    assert jr.Execution() == jr.Execution("auto", None, None, None)
    assert jr.Execution().device_list() == jax.local_devices()
    assert jr.Execution(devices=tuple(CPU)).device_list() == CPU


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
    env, options = (
        stochastic.bernoulli([0.5, 0.6]),
        {"horizon": 30, "seeds": 8, "progress": False, "out": tmp_path / "store"},
    )
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
    env, options = (
        stochastic.bernoulli([0.5, 0.6]),
        {"horizon": 30, "seeds": 8, "progress": False, "out": tmp_path / "store"},
    )
    first = jr.simulate(env, {"Wide": Wide()}, execution=jr.Execution("scan"), **options)
    assert decoded(first.attrs)["inexact"] == {"Wide": ["products of matrices with sums of 100 terms"]}
    again = jr.simulate(env, {"Wide": Wide()}, execution=jr.Execution("reference"), **options)
    assert decoded(again.attrs)["last_call"]["decisions"] > 0


def test_a_share_needs_a_store():
    env, options = stochastic.bernoulli([0.5]), {"horizon": 3, "seeds": 3, "execution": jr.Execution(share="0/2")}
    with pytest.raises(ValueError, match="share needs out"):
        jr.simulate(env, stochastic.UCB1(), **options)
