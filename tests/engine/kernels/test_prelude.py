"""What the prelude does in another way on a GPU, computed on the host."""

import ctypes

import numpy as np
import pytest
from scipy import special

from jaxroute.engine.kernels import host
from jaxroute.engine.kernels.source import PRELUDE

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")

# The special unit's logarithm of base 2 is off by 2^-22 near 1, and by two units in the last place elsewhere.
AS_ON_A_GPU = """
#define LOG_1P_OF_MINUS_SQUARE(x) (0.693147181f * (log2f(fmaf(-(x), (x), 1.0f)) + 2.4e-7f))
#define TERM(c, p, w) fmaf(p, w, c)
"""
EACH = """
void rounds(long long first, long long last, long long R, const void **in, void **out) {
    for (long long r = first; r < last; ++r) ((float *)out[0])[r] = erf_inv_f(((const float *)in[0])[r]);
}
"""


def inverse(x, before=""):
    """`erf_inv_f` of the prelude."""
    function, made = host.compiled(before + PRELUDE.read_text() + EACH), np.empty_like(x)
    pointers = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, made)]
    function(0, len(x), len(x), *pointers)
    return made


@pytest.mark.parametrize("before", ["", AS_ON_A_GPU], ids=["host", "GPU"])
def test_the_inverse_error_function(before):
    """At some hundred thousand of the numbers that a normal draw begins with, which are multiples of 2^-22, and all near the ends."""
    steps = np.concatenate([np.arange(1, 1 << 23, 97), np.arange(1, 3000), (1 << 23) - np.arange(1, 3000)])
    x = np.float32(2.0) * (steps.astype(np.float32) / np.float32(1 << 23)) - np.float32(1.0)
    x = x[x != 0]
    error = np.abs(inverse(x, before).astype(np.float64) / special.erfinv(x.astype(np.float64)) - 1.0)
    # The approximation itself is off by 6e-6 near the ends, also XLA's.
    assert error.max() < 7e-6
    assert np.mean(error) < 2e-7


@pytest.mark.parametrize("before", ["", AS_ON_A_GPU], ids=["host", "GPU"])
def test_its_ends(before):
    x = np.float32([-1.0, 1.0, np.nan, 1.5])
    found = inverse(x, before)
    assert found[0] == -np.inf and found[1] == np.inf and np.isnan(found[2:]).all()
