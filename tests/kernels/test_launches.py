"""Several launches of a GPU's kernel, one after the other, give the bits of a single one: its text, compiled for the host."""

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import fake_gpu
import numpy as np
import pytest
from conformance_cases import POLICIES
from kernel_calls import call_of

from jaxroute.kernels.rollout import rounds_p
from jaxroute.problems import queueing

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
KERNEL = Path(fake_gpu.__file__).with_name("kernel.h")
RUNS = 5
CASES = {name: lambda one=case: (one.env(), one.policy) for name, case in POLICIES.items()}
# Arrays in scratch memory; stages that cut through record intervals; sums in chunks.
FAST = ("stochastic/UCB1", "staged/StageRoute", "long queues")
CASES["long queues"] = lambda: (queueing.RandomQueues(limit=512), queueing.ACQB())


def launched(library, source, operands, ends):
    """Outputs of launches that end before these rounds."""
    outputs = [np.zeros((*array.shape, RUNS), array.dtype) for array in source.outputs]
    scratch = np.full(source.scratch * RUNS, 0xA5, np.uint8)  # Nothing may depend on what was there.
    arrays = [np.ascontiguousarray(x) for x in (*operands, *outputs, scratch)]
    outputs, start = arrays[len(operands) : -1], int(operands[0][0, 0])
    for stop in ends:
        numbers = ctypes.c_longlong(RUNS), ctypes.c_int(start), ctypes.c_int(stop)
        values = [*(ctypes.c_void_p(x.ctypes.data) for x in arrays), *numbers]
        library.fake_launch((ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values)), 1, 1, 8)
        start = stop
    return [x.tobytes() for x in outputs]


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_launches_one_after_the_other_give_the_bits_of_one(name, tmp_path):
    operands, params, _ = call_of(*CASES[name](), runs=RUNS)
    source = params["source"]
    text, made = tmp_path / "rounds.cpp", tmp_path / "rounds.so"
    text.write_text(f'#include "{KERNEL}"\n{source.for_device()}\nKERNEL(rounds)\n')
    flags = ["-std=gnu++17", "-Og", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-w", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", made, text], check=True)
    library = ctypes.CDLL(str(made))
    spans = operands[0]
    last = int(spans[-1].sum())
    whole = launched(library, source, operands, [last])
    expected = rounds_p.bind(*operands, **params)
    assert whole == [np.asarray(x).tobytes() for x in expected]
    assert source.scratch >= 2048 or name != "long queues"
    first = int(spans[0, 0])
    cuts = sorted({first + math.ceil(share * (last - first)) for share in (0.05, 0.3, 0.35, 0.6, 0.95, 1.0)})
    for ends in (cuts, range(first + 1, last + 1)):
        assert launched(library, source, operands, ends) == whole
