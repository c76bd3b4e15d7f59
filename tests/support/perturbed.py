"""Kernels on the host whose arithmetic is off as a GPU's may be, round by round beside exact ones.

Source of the errors: NVIDIA, CUDA C++ Programming Guide, appendix "Mathematical Functions": largest errors of the functions of single precision and
of `__logf`, with `-prec-div=false -prec-sqrt=false`.
"""

import ctypes
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from c_functions import words
from flax import struct

from jaxroute.core import draws
from jaxroute.core.batching.lanes import lanes
from jaxroute.core.protocols import build_policy, is_policy
from jaxroute.core.types import Metric
from jaxroute.engine.grid import canonical
from jaxroute.engine.rounds import NAN_ROUNDS, NAN_STATES, Record, one_run, run_streams
from jaxroute.kernels import host
from jaxroute.kernels.source import RoundsWriter

# Units in the last place that a function may be off.
ULPS = {
    **{"expf": 2, "exp2f": 2, "expm1f": 1, "logf": 1, "log1pf": 1, "cbrtf": 1, "erff": 2, "erfcf": 4, "lgammaf": 6},
    **{"sinf": 2, "cosf": 2, "tanf": 4, "asinf": 4, "acosf": 3, "atanf": 2, "atan2f": 3, "sinhf": 3, "coshf": 2, "tanhf": 2},
    **{"powf": 8, "asinhf": 3, "acoshf": 4, "atanhf": 3, "rsqrtf": 2, "sqrtf": 1},
}
# Results are off: not at all, up, down, up or down by their bits, or by -1, 0 or 1 unit at random. Infinite numbers, 0 and NaN are right.
WAYS = {"exact": 0, "up": 1, "down": 2, "mixed": 3, "noisy": 4}

HEADER = """
#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h> /* Numbers below 2^-126 are 0, as with -ftz=true. */
#define FLUSH(on) _mm_setcsr((on) ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040)
#else
#define FLUSH(on) (void)0
#endif
static int way;
static unsigned noise;
static int direction(unsigned bits) {
    if (way == 4) return (int)((noise = noise * 1664525u + 1013904223u) >> 16) % 3 - 1;
    return way == 0 ? 0 : way == 1 || (way == 3 && (bits * 2654435769u) >> 31) ? 1 : -1;
}
static float off(float x, int units) {
    int bits;
    memcpy(&bits, &x, 4);
    if (x == 0.0f || !isfinite(x)) return x;
    bits += (x > 0.0f ? 1 : -1) * direction(bits) * (way == 4 ? 1 : units);
    memcpy(&x, &bits, 4);
    return x;
}
static float near_reciprocal(float x) { return off(1.0f / x, 1 * MORE); }
static float near_log_f(float x) { /* __logf */
    const float y = logf(x);
    return way == 4 || x < 0.5f || x > 2.0f ? off(y, 3 * MORE) : y + (off(y, 1) > y ? 1 : -1) * 0x1.816p-22f * MORE;
}
static float exact_log_1p(float x) { return log1pf(-x * x); }
#define RECIPROCAL near_reciprocal
#define DIVIDE(a, b) (way ? CORRECTED((a), (b)) : (a) / (b))
#define LOG_1P_OF_MINUS_SQUARE(x) (way ? near_log_f(fmaf(-x, x, 1.0f)) : exact_log_1p(x))
#define TERM(c, p, w) (way ? fmaf(p, w, c) : (c) + (p) * (w))
"""
ENTRY = """
void rounds(long long first, long long last, long long R, const void **in, void **out) {
    way = *(const int *)in[INPUTS], noise = 0;
    FLUSH(1);
    rounds_flushed(first, last, R, in, out);
    FLUSH(0);
}
"""


def perturbed(text, inputs, corrected=True, more=1):
    """The text of a narrow kernel, whose last input besides its own `inputs` is one of `WAYS`.

    Args:
      text: of the prelude and a kernel.
      inputs: number of the kernel's inputs.
      corrected: division is that of a GPU; else it is the product with the reciprocal.
      more: factor of all errors.
    """
    lines = [f"#define MORE {more}\n#define INPUTS {inputs}\n", HEADER]
    for name, units in ULPS.items():
        taken, given = ("float x, float y", "x, y") if name in ("powf", "atan2f") else ("float x", "x")
        value = "1.0f / sqrtf(x)" if name == "rsqrtf" else f"{name}({given})"
        lines.append(f"static float near_{name}({taken}) {{ return off({value}, {units} * MORE); }}\n")
    lines += [f"#define {name} near_{name}\n" for name in ULPS]
    lines.append(f"#define CORRECTED(a, b) {'corrected_f(a, b)' if corrected else '((a) * RECIPROCAL(b))'}\n")
    return "".join([*lines, text.replace("void rounds(", "static void rounds_flushed("), ENTRY])


def _watched(policy):
    """Wraps the policy so that its Info also records the integers of its action."""
    kind = type(policy)

    def act(self, *args):
        action, info = kind.act(self, *args)
        whole = [leaf for leaf in map(jnp.asarray, jax.tree.leaves(action)) if leaf.dtype.kind in "biu"]
        whole = [jnp.ravel(x).astype(jnp.float32) for x in whole] or [jnp.zeros(1)]
        return action, {**info, "action": jnp.concatenate(whole)}

    watched = struct.dataclass(type(kind.__name__, (kind,), {"act": act}))
    return watched(**{field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)})


class Kernel:
    """Runs the rounds of one environment and policy one at a time, in the arithmetic that the caller names.

    Attributes:
      inputs: of the first round, `[..., R]` where they differ from run to run.
      own: of each input, whether it differs from run to run.
      first: place of the first array of the states; they are the last inputs, and the last outputs in the same order.
    """

    def __init__(self, env, policy, horizon, seeds, **options):
        builds = not is_policy(policy)
        leaves, treedef = jax.tree.flatten(canonical((env, () if builds else _watched(policy))))
        record = Record(every=1, info=(Metric("info.action", "", "", "total"),))
        root, made = np.asarray(jax.random.key_data(draws.key(0))), []

        def begin(leaves, seeds):
            env, own = jax.tree.unflatten(treedef, leaves)
            own = (lambda env: _watched(build_policy(policy, env))) if builds else own
            run = one_run(env, own, run_streams(root, seeds), horizon, record)
            states = lanes(run.start, run.size)(run.instance, run.words)
            writer = RoundsWriter(run, states, jnp.zeros((1, 2), jnp.int32), run.chunk, fast=True)
            source = writer.source()
            made.append((source, writer.names, len(jax.tree.leaves(states))))
            each, common = iter(jax.tree.leaves((run.instance, run.words, states))), iter(writer.shared)
            return [next(common) if array.shared else next(each) for array in source.inputs]

        self.inputs = [words(x) for x in jax.jit(begin)(leaves, jnp.arange(seeds, dtype=jnp.uint32))]
        self._source, self._names, number = made[0]
        self.own = [not array.shared for array in self._source.inputs]
        self.first = len(self.own) - number
        self._call = host.compiled(perturbed(self._source.for_host(), len(self.inputs), **options))

    def simulate(self, inputs, t, way):
        """Simulates a round of all runs. Returns the inputs of the next round, and what was recorded, by name."""
        given = [np.array([[t, 1]], np.int32), *inputs[1:], np.array([WAYS[way]], np.int32)]
        size = inputs[self.own.index(True)].shape[-1]
        made = [np.zeros((*array.shape, size), array.dtype) for array in self._source.outputs]
        pointers = [(ctypes.c_void_p * len(some))(*(x.ctypes.data for x in some)) for some in (given, made)]
        self._call(0, size, size, *pointers)
        return [*inputs[: self.first], *made[len(self._names) :]], dict(zip(self._names, made, strict=False))

    def decisions(self, inputs, recorded):
        """Returns all integers of a round, `[n, R]`: those of the action and of the states after it."""
        whole = [recorded["info.action"], *(x for x in inputs[self.first :] if x.dtype.kind in "biu")]
        return np.concatenate([np.reshape(x, (-1, x.shape[-1])).astype(np.float64) for x in whole])


@dataclasses.dataclass
class Compared:
    """Holds how runs in perturbed arithmetic differ from exact runs of the same seeds.

    Attributes:
      nan: runs with a NaN that the exact run does not have.
      apart: by run with another decision, the round of the first one.
      unexplained: runs of these whose decision no copy of the exact run takes, see `explained`.
      drift: largest error of the floating-point state of one of these runs before that round, as a share of the leaf's largest number, or
        of .01 where that is larger: rounding errors of sums are leaves, too.
    """

    nan: set = dataclasses.field(default_factory=set)
    apart: dict = dataclasses.field(default_factory=dict)
    unexplained: list = dataclasses.field(default_factory=list)
    drift: float = 0.0


def compare(kernel, horizon, ways=("up", "down", "mixed")):
    """Runs of each way beside exact ones until the first decision that is another: a `Compared` by way."""

    def invalid(recorded):
        return set(np.flatnonzero(recorded[NAN_ROUNDS] + recorded[NAN_STATES]))

    exact, others, found = kernel.inputs, dict.fromkeys(ways, kernel.inputs), {way: Compared() for way in ways}
    for t in range(horizon):
        later, recorded = kernel.simulate(exact, t, "exact")
        right = kernel.decisions(later, recorded)
        for way, one in found.items():
            theirs, noted = kernel.simulate(others[way], t, way)
            one.nan |= invalid(noted) - invalid(recorded)
            taken = kernel.decisions(theirs, noted)
            for run in set(np.flatnonzero((taken != right).any(0))) - set(one.apart):
                one.apart[run] = t
                ties, drift = explained(kernel, exact, others[way], run, t, taken[:, run])
                one.drift = max(one.drift, drift)
                one.unexplained += [] if ties else [run]
            others[way] = theirs
        exact = later
    return found


def explained(kernel, exact, other, run, t, taken, copies=3000, eps=1e-6):
    """Whether ties allow a decision, that is whether one of many copies of the exact run takes it in round `t`; and the `drift` before it.

    Before the round the floating-point state of a copy is moved towards the perturbed run's, and as far beyond, by a factor from [0, 2] for the
    whole state, and each number by a relative error of up to `eps` of its own, some ten units in the last place. In the round the arithmetic
    of a copy is "noisy". Where the best choice is ahead by more than all that, all copies take it.
    """
    rng, inputs, drift = np.random.default_rng(t), [], 0.0
    far = rng.uniform(0, 2, copies).astype(np.float32)
    for place, (x, y) in enumerate(zip(exact, other, strict=True)):
        if kernel.own[place]:
            x, y = x[..., run : run + 1], y[..., run : run + 1]
            moves = place >= kernel.first and x.dtype.kind == "f" and x.size
            error = np.where(np.isfinite(x) & np.isfinite(y), y - x, 0) if moves else 0
            if np.any(error):
                drift = max(drift, float(np.abs(error).max() / np.abs(x).max(where=np.isfinite(x), initial=1e-2)))
            x = np.repeat(x, copies, axis=-1)
            if moves:
                x = (x + far * error) * (1 + rng.uniform(-eps, eps, x.shape)).astype(np.float32)
        inputs.append(np.ascontiguousarray(x))
    return bool((kernel.decisions(*kernel.simulate(inputs, t, "noisy")) == taken[:, None]).all(0).any()), drift
