"""What the preludes do in their own ways: on a GPU, computed on the host, and for several runs at once."""

import ctypes

import numpy as np
import pytest
from perturbed import WAYS, perturbed
from scipy import special

from jaxroute.kernels import cuda, host
from jaxroute.kernels.ir import Unsupported
from jaxroute.kernels.source import LANES, PRELUDE, WIDE_ENTRY

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


DIVISIONS = """
void rounds(long long first, long long last, long long R, const void **in, void **out) {
    for (long long r = first; r < last; ++r) ((float *)out[0])[r] = div_f(((const float *)in[0])[r], ((const float *)in[1])[r]);
}
"""


def divided(a, b, way, corrected=True):
    """`div_f` of the prelude as a GPU has it, with a reciprocal that is one unit too large or too small."""
    made = np.empty_like(a)
    given = (ctypes.c_void_p * 3)(*(x.ctypes.data for x in (a, b, np.array([WAYS[way]], np.int32))))
    function = host.compiled(perturbed(PRELUDE.read_text() + DIVISIONS, 2, corrected))
    function(0, a.size, a.size, given, (ctypes.c_void_p * 1)(made.ctypes.data))
    return made


@pytest.mark.parametrize("way", ["up", "down", "mixed"])
def test_corrected_divisions_are_those_of_ieee(way):
    """All n / n up to four million, of which none or a fifth is 1 without the correction, and some hundred thousand others."""
    n = np.arange(1, 4_000_001, dtype=np.float32)
    assert np.mean(divided(n, n, way, corrected=False) == 1) < 0.25
    assert (divided(n, n, way) == 1).all()
    rng = np.random.default_rng(0)
    a, b = (np.float32(rng.choice([-1, 1], 300_000) * np.exp(rng.uniform(-43, 43, 300_000))) for _ in range(2))
    np.testing.assert_array_equal(divided(a, b, way), a / b)


@pytest.mark.parametrize("way", ["up", "down"])
def test_the_ends_of_divisions(way):
    """Infinite, zero and NaN as IEEE has them, also for the smallest divisors; above 2^126 the quotient is 0, and NaN of an infinite dividend."""
    ends = np.float32([0.0, -0.0, 3.0, -3.0, 1e-30, np.inf, -np.inf, np.nan])
    a, b = (x.ravel().copy() for x in np.meshgrid(ends, np.append(ends, np.float32([1.2e-38, 8.5e37]))))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(divided(a, b, way), np.where(np.abs(a / b) < 1.2e-38, 0 * a, a / b))
    huge = divided(np.float32([1.0, 1e38, np.inf]), np.float32([1e38, 2e38, 1e38]), "up")
    assert (huge[:2] == 0).all() and np.isnan(huge[2])


@pytest.mark.parametrize(
    ("option", "written", "instead"),
    [
        ("-DDIVIDE=__fdiv_rn", "return DIVIDE(a, b);", "return __fdiv_rn(a, b);"),
        ("-DTERM(c,p,w)=((c)+(p)*(w))", "#define TERM(c, p, w) fmaf(p, w, c)", "#define TERM(c, p, w) ((c) + (p) * (w))"),
    ],
)
def test_options_of_nvrtc_replace_the_arithmetic(option, written, instead):
    """The machine code is that of a prelude in which it is written so, and another one than the usual."""
    entry = """
extern "C" __global__ void rounds(const float *a, const float *b, float *c) {
    c[threadIdx.x] = div_f(a[threadIdx.x], erf_inv_f(b[threadIdx.x]));
}
"""
    text = PRELUDE.read_text() + entry
    assert text.count(written) == 1
    try:
        usual, replaced = (cuda.compile_text(text, "sm_90", (*cuda.OPTIONS, *more)) for more in ((), (option,)))
    except Unsupported as error:
        pytest.skip(str(error))
    assert replaced != usual
    assert replaced == cuda.compile_text(text.replace(written, instead), "sm_90", cuda.OPTIONS)


def at_once(name, *arrays):
    """A function of `lanes.h` of several numbers at once."""
    given = [np.ascontiguousarray(x, np.float32) for x in np.broadcast_arrays(*arrays)]
    reads = ", ".join(f"Given<float>{{(const float *)in[{i}] + r, R, last - r}}[0]" for i in range(len(given)))
    body = f"Made<float>{{(float *)out[0] + r, R, last - r}}.put(0, {name}({reads}));"
    entry = f"{WIDE_ENTRY}(long long first, long long last, long long R, const void **in, void **out)"
    text = (
        PRELUDE.read_text()
        + LANES.read_text()
        + f"{entry} {{ for (long long r = first; r < last; r += LANES) {{ {body} }} }}"
    )
    made = np.empty_like(given[0])
    pointers = [(ctypes.c_void_p * len(some))(*(x.ctypes.data for x in some)) for some in (given, [made])]
    host.compiled(text, wide=True)(0, made.size, made.size, *pointers)
    return made


wide = pytest.mark.skipif(host.compiler(wide=True) is None, reason="there is no C++ compiler")
SPAN = np.float32(np.concatenate([np.geomspace(1e-37, 3e38, 200_003), np.linspace(0.2, 5, 100_001)]))
ENDS = np.float32([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 3e38, -2.0])


@wide
def test_exact_functions_of_several_numbers_at_once():
    np.testing.assert_array_equal(at_once("sqrtf", SPAN), np.sqrt(SPAN))
    np.testing.assert_array_equal(at_once("floorf", SPAN), np.floor(SPAN))
    a, b = (x.ravel() for x in np.meshgrid(ENDS, ENDS))
    np.testing.assert_array_equal(at_once("max_f", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(at_once("min_f", a, b), np.minimum(a, b))
