"""Primitives that are lowered differently for CPUs and GPUs.

On a CPU a value that several loops over the runs read should be computed once and stored. On a GPU each stored value ends a kernel, and the
compiler decides better between storing and recomputing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

Array = jax.Array | np.ndarray

GPUS = ("cuda", "rocm")
# Number of unrolled steps of a loop.
_MOST_STEPS = 8


def bind(eqn: JaxprEqn, arrays: Sequence[Any], **others: Any) -> list[Any]:
    """Applies an operation to other operands, with other parameters where some are given."""
    found = eqn.primitive.get_bind_params(eqn.params)  # a pair in jax 0.9, the parameters alone since 0.10
    functions, params = found if isinstance(found, tuple) else ((), found)
    outs = eqn.primitive.bind(*functions, *arrays, **{**params, **others})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def compute_once(value: Any) -> Any:
    """Returns an array or pytree behind an optimisation barrier, except on a GPU: each consumer reads it instead of recomputing it.

    For speed alone: a value that is compared with itself needs `xla.barrier`.
    """
    leaves, treedef = jax.tree.flatten(value)
    return jax.tree.unflatten(treedef, compute_once_p.bind(*map(jnp.asarray, leaves))) if leaves else value


def first_best(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Returns the index of the largest allowed `score` `[..., K]`, int32 `[...]`; `K` if nothing is allowed, or with NaN.

    Ties go to the lowest index, or with an `order` (`draws.order`) to the least number in it, whose last bits are the index. On a GPU this is one
    reduction of pairs, fused with the score; elsewhere comparisons with the maximum, which are vectorised over runs.
    """
    given = [jnp.broadcast_to(x, score.shape) for x in (score, allowed, order) if x is not None]
    return first_best_p.bind(*given, axis=score.ndim - 1, ordered=order is not None)


def place_mask(size: int) -> int:
    """Returns the mask of the last bits of a number in an order (`draws.order`): they hold an index, or `size` for none."""
    return (1 << size.bit_length()) - 1


def first_places(shape: Sequence[int], axis: int, given: Sequence[Any], ordered: bool) -> tuple[Any, Any, int, int]:
    """Returns parts of `first_best`: allowed mask or None, tie-breaking numbers (least first), a number above all, and the mask of its index bits."""
    size = shape[axis]
    if not ordered:
        return next(iter(given), None), lax.broadcasted_iota(jnp.int32, shape, axis), size, -1
    mask = place_mask(size)
    return next(iter(given[:-1]), None), given[-1], (2**31 - 1) & ~mask | size, mask


def largest_over_runs(number: Array | int) -> jax.Array:
    """Returns the maximum of an integer `[]` over the runs of a batch, which may bound a loop that all runs share.

    Results must not depend on it: mask everything beyond the run's own number, because a run that is simulated alone has a smaller maximum.
    """
    return largest_over_runs_p.bind(jnp.asarray(number))


def on_a_gpu(on_gpu: Callable[[], Any], elsewhere: Callable[[], Any]) -> Any:
    """Returns `on_gpu()` if a GPU runs the program, else `elsewhere()`: two computations of one result."""
    return lax.platform_dependent(**dict.fromkeys(GPUS, on_gpu), default=elsewhere)


def repeat(count: int, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """Runs `lax.fori_loop(0, count, body, start)` with a static count; unrolled on a GPU, so that steps are fused."""

    def loop(carry: Any, **options: Any) -> Any:
        return lax.fori_loop(0, count, body, carry, **options)

    written_out = partial(loop, unroll=max(1, min(count, _MOST_STEPS)))
    return lax.platform_dependent(start, **dict.fromkeys(GPUS, written_out), default=loop)


def sums(values: Sequence[jax.Array]) -> jax.Array:
    """Returns the sums `[n, ...]` of several arrays `[..., C]` over their last axis; on a GPU by one reduction."""

    def one_by_one(values: Sequence[jax.Array]) -> jax.Array:
        return jnp.stack([jnp.sum(x, axis=-1) for x in values])

    def together(values: Sequence[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.stack(values), axis=-1)

    return lax.platform_dependent(list(values), **dict.fromkeys(GPUS, together), default=one_by_one)


def by_comparison(score: Array, *given: Array, axis: int, ordered: bool = False) -> jax.Array:
    """Computes `first_best` along an axis by comparison with the maximum; `given`: allowed mask and order."""
    allowed, place, last, mask = first_places(score.shape, axis, given, ordered)
    if allowed is not None:
        score = jnp.where(allowed, score, -jnp.inf)
    score = lax.optimization_barrier(score)
    best = lax.optimization_barrier(jnp.max(score, axis=axis))
    is_best = score == lax.expand_dims(best, (axis,))
    if allowed is not None:
        is_best &= allowed
    first = jnp.min(jnp.where(is_best, place, last), axis=axis)
    first = first & mask if ordered else first
    # XLA drops barriers on a CPU before it fuses: a score of two products may be rounded differently in the maximum and in the comparison.
    lost = jnp.any((first == score.shape[axis]) & (best > -jnp.inf))
    return lax.cond(lost, lambda: _by_pairs(score, *given, axis=axis, ordered=ordered), lambda: first)


def _by_pairs(score: Array, *given: Array, axis: int, ordered: bool = False) -> jax.Array:
    """Computes `first_best` along an axis by one reduction of pairs of score and index."""
    allowed, place, last, mask = first_places(score.shape, axis, given, ordered)
    lowest = -np.inf if jnp.issubdtype(score.dtype, jnp.floating) else jnp.iinfo(score.dtype).min
    counts = score == score
    if allowed is not None:
        score, counts = jnp.where(allowed, score, -jnp.inf), counts & allowed
    place = jnp.where(counts, place, last)

    def better(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
        (x, i), (y, j) = a, b
        first = (x != x) | (x > y) | ((x == y) & (i <= j))  # NaN, which has no index, wins.
        return jnp.where(first, x, y), jnp.where(first, i, j)

    first = lax.reduce((score, place), (np.asarray(lowest, score.dtype), np.int32(last)), better, (axis,))[1]
    return first & mask if ordered else first


compute_once_p = Primitive("computed_once")
compute_once_p.multiple_results = True
compute_once_p.def_impl(lambda *xs: list(xs))
compute_once_p.def_abstract_eval(lambda *avals: list(avals))
batching.primitive_batchers[compute_once_p] = lambda xs, dims: (compute_once_p.bind(*xs), dims)
ad.primitive_jvps[compute_once_p] = lambda xs, tangents: (compute_once_p.bind(*xs), list(tangents))
mlir.register_lowering(compute_once_p, mlir.lower_fun(lambda *xs: lax.optimization_barrier(xs), multiple_results=True))

first_best_p = Primitive("first_best")
first_best_p.def_impl(by_comparison)


@first_best_p.def_abstract_eval
def _(score: Any, *given: Any, axis: int, ordered: bool) -> Any:
    del given, ordered
    return score.update(shape=(*score.shape[:axis], *score.shape[axis + 1 :]), dtype=jnp.dtype("int32"), weak_type=False)


def _batch_first_best(args: Sequence[Any], dims: Sequence[int | None], *, axis: int, ordered: bool) -> tuple[Any, int]:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [batching.bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True)]
    return first_best_p.bind(*moved, axis=axis + 1, ordered=ordered), 0


def _jvp_first_best(args: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    del tangents
    out = first_best_p.bind(*args, **params)
    return out, ad.Zero(jax.typeof(out).to_tangent_aval())


def _jvp_largest_over_runs(args: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    del tangents
    out = largest_over_runs_p.bind(*args)
    return out, ad.Zero(jax.typeof(out).to_tangent_aval())


largest_over_runs_p = Primitive("largest_over_runs")
largest_over_runs_p.def_impl(lambda number: number)
largest_over_runs_p.def_abstract_eval(lambda number: number)
batching.primitive_batchers[largest_over_runs_p] = lambda args, dims: (
    largest_over_runs_p.bind(jnp.max(args[0], axis=dims[0])),
    None,
)
ad.primitive_jvps[largest_over_runs_p] = _jvp_largest_over_runs
mlir.register_lowering(largest_over_runs_p, lambda ctx, number: [number])

batching.primitive_batchers[first_best_p] = _batch_first_best
ad.primitive_jvps[first_best_p] = _jvp_first_best
mlir.register_lowering(first_best_p, mlir.lower_fun(by_comparison, multiple_results=False))
for _platform in GPUS:
    mlir.register_lowering(compute_once_p, lambda ctx, *xs: xs, platform=_platform)
    mlir.register_lowering(first_best_p, mlir.lower_fun(_by_pairs, multiple_results=False), platform=_platform)
