"""Fixtures of all tests, and what they leave behind."""

import contextlib
import ctypes
import gc
import itertools
import os
import resource
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# NumPy's and SciPy's products on one thread: two workers have two cores, and threads that wait for each other there took three times as
# long over the small matrices of references and searches (beside other work: 153 CPU s in place of 49). Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # Processes that tests start leave nothing in the user's folders.

from unittest import mock

import jax
import pytest
import tiers
from helpers import ROOT, x64

from jaxroute.engine import programs

# What is compiled is kept in this folder of the checkout, for the other workers and the next time; `pytest --cache-clear` does not
# clear it, deleting the folder does. Measured on the tests of projections, rounding and bandits: 100 CPU s without,
# 75 in a first run, 27 in the next.
COMPILED = ROOT / ".pytest_cache" / "compiled"
jax.config.update("jax_enable_compilation_cache", True)
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# A worker holds about so many bytes at most; what it cannot get rid of comes on top.
_MOST_BYTES = 1 << 30
_limit = _MOST_BYTES
_ended = itertools.count(1)
# Files and folders of the fast tier: what takes no compiler, without the random logs, which take long.
FAST = (
    "metrics/test_metrics.py",
    "core/test_types.py",
    "data/",
    "engine/test_bad_input.py",
    "core/test_statistics.py",
    "test_bad_inputs.py",
    "test_layers.py",
    "test_names.py",
    "test_terminal.py",
    "test_tiers.py",
    "testing/test_planted_faults.py",
    "testing/test_structure.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    long_ones = tiers.listed()
    for item in items:
        if item.nodeid.removeprefix("tests/") in long_ones:
            item.add_marker("slow")
        place = item.path.relative_to(ROOT / "tests").as_posix()
        fast = place.startswith(FAST) and place != "data/test_generated_logs.py"
        if fast and not item.get_closest_marker("slow"):
            item.add_marker("fast")


@pytest.fixture(autouse=True)
def accelerator(request):
    """Skips a test that needs a GPU where there is none."""
    if request.node.get_closest_marker("gpu") and jax.default_backend() != "gpu":
        pytest.skip("there is no GPU here")


@pytest.fixture(autouse=True)
def little_memory():
    """Drops what has been compiled where a process holds more than it should: a laptop runs two workers beside other things.

    Also before it runs out of memory mappings, which ends it: Linux allows 65,530.
    """
    yield
    global _limit
    status = Path("/proc/self/statm")
    if not status.exists() or next(_ended) % 5:
        return
    mappings = len(Path("/proc/self/maps").read_bytes().splitlines())
    if _resident(status) > _limit or mappings > 30_000:
        programs.PROGRAMS.clear()
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        _limit = max(_MOST_BYTES, _resident(status) + _MOST_BYTES // 4)


def _resident(status):
    """Bytes of this process in memory."""
    return int(status.read_text().split()[1]) * resource.getpagesize()


@pytest.fixture
def double_precision():
    """Runs the test in double precision."""
    with x64():
        yield


@pytest.fixture
def count_blocks(monkeypatch):
    """The first seeds of the blocks that were played."""
    played = []
    run = programs.Block.run

    def counted(self, tile, seeds, *resumed):
        played.append(int(seeds[0]))
        return run(self, tile, seeds, *resumed)

    monkeypatch.setattr(programs.Block, "run", counted)
    return played


@pytest.fixture
def fresh_programs():
    """What the test compiles stays its own."""
    with mock.patch.dict(programs.PROGRAMS, clear=True):
        yield
