"""The numbers of a processor without AVX and fused multiplication are those of this one: environments, policies and runs."""

import json
import os
import platform
import subprocess
import sys

import pytest
from conformance_cases import OPTIONS, POLICIES
from helpers import CHILDREN_PATH, SUPPORT

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="XLA's name of an older processor is one of x86"
)

CASES = sorted({**POLICIES, **OPTIONS})
# The optimum of the second one's requests is computed once, before any run.
FEW = ["stochastic/KLUCB", "service/options 0"]
# What a library fits on the host before any round.
FITTED = ["cascade/optimum of joint rows"]


def digests(names, **settings):
    env = {**os.environ, "PYTHONPATH": CHILDREN_PATH, "JAX_ENABLE_COMPILATION_CACHE": "0", **settings}
    done = subprocess.run([sys.executable, SUPPORT / "digests.py", "scan", *names], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "names",
    [FEW, pytest.param([n for n in CASES if n not in FITTED], marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
    ids=["few", "all"],
)
def test_an_older_processor_has_the_same_numbers(names):
    ours = digests(names)
    assert all(len(found) > 5 for found in ours.values())
    assert ours == digests(names, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=SSE4_2")
