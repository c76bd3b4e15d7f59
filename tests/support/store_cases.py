"""Short runs of a small bandit, and helpers for tests of what is stored of them."""

import contextlib

import pytest
import xarray as xr

import jaxroute as jr
from jaxroute.engine import programs
from jaxroute.problems import stochastic
from jaxroute.store import places

ENV = stochastic.bernoulli([0.2, 0.7, 0.5])
TWO = {"ucb": stochastic.UCB1(), "narrow": stochastic.UCB1(width=0.3)}
THREE = TWO | {"oracle": stochastic.Oracle.of}
BOTH = ("runs", "moments")
KEEPS = pytest.mark.parametrize("keep", BOTH)


def run(env=ENV, policies=TWO, **options):
    """Five blocks of 16 seeds of each of two policies, unless the options specify others."""
    settings = {"horizon": 40, "seeds": 70, "record_every": 10, "execution": jr.Execution(block=16), "progress": False}
    return jr.simulate(env, policies, **settings | options)


def run_three(env=ENV, policies=THREE, **options):
    """Twenty blocks of each of three policies, kept as statistics, unless the options specify others."""
    record = {"record": ["regret", "reward", "pulls"]} if env is ENV else {}
    return run(env, policies, **{"seeds": 310, "keep": "moments"} | record | options)


@contextlib.contextmanager
def interrupted(number):
    """Interrupts the simulation inside in the block of this number, if it has so many."""
    simulate_block, begun = programs.Block.run, []

    def counted(self, *args):
        begun.append(args)
        if len(begun) >= number:
            raise KeyboardInterrupt
        return simulate_block(self, *args)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(programs.Block, "run", counted)
        yield


def assert_same(found, expected):
    """Fails unless two results have the same coordinates, labels and values, bit for bit."""
    xr.testing.assert_identical(found.drop_attrs(deep=False), expected.drop_attrs(deep=False))
    assert all(found[name].dtype == expected[name].dtype for name in found)
    assert all(found[name].values.tobytes() == expected[name].values.tobytes() for name in found)


def stored_files(path):
    """Bytes of the files of a store in a folder or at a URL, by name."""
    place = places.place_of(path)
    return {name: place.read(name, 0, about.size) for name, about in place.names("").items()}


def flip(file, position=None):
    """Changes one bit of a file, in the middle by default."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 4
    file.write_bytes(content)
