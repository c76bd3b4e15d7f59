"""Fixtures of all tests, and what they leave behind."""

import itertools
import os
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # Tests leave nothing in the user's folders.

import jax
import pytest
from helpers import x64

from jaxroute.engine import programs

_ended = itertools.count(1)


@pytest.fixture(autouse=True)
def few_mappings():
    """Drops what has been compiled before the process runs out of memory mappings, which ends it: Linux allows it 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if next(_ended) % 20 == 0 and maps.exists() and len(maps.read_bytes().splitlines()) > 30_000:
        programs.PROGRAMS.clear()
        jax.clear_caches()


@pytest.fixture
def double_precision():
    """Runs the test in double precision."""
    with x64():
        yield


@pytest.fixture
def count_blocks(monkeypatch):
    """The first seeds of the blocks that were played."""
    played = []
    run = programs.Block.play

    def counted(self, tile, seeds):
        played.append(int(seeds[0]))
        return run(self, tile, seeds)

    monkeypatch.setattr(programs.Block, "play", counted)
    return played
