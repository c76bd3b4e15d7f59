"""Control of how XLA computes: barriers, values that are computed once, choices by device, and loops over chunks of long axes.

On a CPU a value that several loops over the runs read should be computed once and stored. On a GPU each stored value ends a kernel, and the
compiler decides better between storing and recomputing. So some functions are primitives with one translation for each device.
This module is for authors of large policies. Most policies need only `jaxroute.numerics`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir

Array = jax.Array | np.ndarray
Index = jax.Array | np.ndarray | int

GPUS = ("cuda", "rocm")
# Number of unrolled steps of `repeat` on a GPU.
_MOST_STEPS = 8
# A sum over better elements is unrolled up to this size; longer sums are a loop over chunks of this many terms.
_MOST_AHEAD, _TERMS_AHEAD = 16, 8
# Long axes are processed in chunks of this many elements.
CHUNK = 32


def bind(eqn: JaxprEqn, arrays: Sequence[Any], **others: Any) -> list[Any]:
    """Returns the results of the operation of `eqn`, an equation of a jaxpr, for other operands, `arrays`. `others` replaces some parameters."""
    found = eqn.primitive.get_bind_params(eqn.params)  # A pair in jax 0.9, the parameters alone since 0.10.
    functions, params = found if isinstance(found, tuple) else ((), found)
    outs = eqn.primitive.bind(*functions, *arrays, **{**params, **others})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def compute_once(value: Any) -> Any:
    """Returns an array or pytree, marked so that XLA stores it instead of recomputing it for each use. On a GPU the mark has no effect.

    It only makes programs faster. A value that is compared with itself needs `barrier`.
    """
    leaves, treedef = jax.tree.flatten(value)
    return jax.tree.unflatten(treedef, compute_once_p.bind(*map(jnp.asarray, leaves))) if leaves else value


def first_best(score: Array, allowed: Array | None = None, order: Array | None = None) -> jax.Array:
    """Returns the index, int32 `[...]`, of the largest allowed element of `score` `[..., K]`; `K` if nothing is allowed or an element is NaN.

    Ties go to the lowest index, or to the smallest number in `order` (see `draws.order`), if given. On a GPU this is one reduction of pairs, fused
    with the computation of the score; elsewhere it compares with the maximum, which is vectorised over runs.
    """
    given = [jnp.broadcast_to(x, score.shape) for x in (score, allowed, order) if x is not None]
    return first_best_p.bind(*given, axis=score.ndim - 1, ordered=order is not None)


def place_mask(size: int) -> int:
    """Returns a bit mask for numbers of `draws.order(key, size)`: their low bits hold the index of a model, or `size` for no model."""
    return (1 << size.bit_length()) - 1


def first_places(shape: Sequence[int], axis: int, given: Sequence[Any], ordered: bool) -> tuple[Any, Any, int, int]:
    """Prepares `first_best` along an `axis` of an array of this `shape`. Of equal elements, the one with the smallest tie-breaker is chosen.

    `given` has the mask of allowed elements, if any, and then the tie-breakers (`draws.order`) if `ordered`; otherwise indices break ties. Returns
    the mask or None, the tie-breakers, a larger number for elements that must not be chosen, and a bit mask. The bit mask extracts an element's index
    from its tie-breaker, and the length of the axis from the larger number.
    """
    size = shape[axis]
    if not ordered:
        return next(iter(given), None), lax.broadcasted_iota(jnp.int32, shape, axis), size, -1
    mask = place_mask(size)
    return next(iter(given[:-1]), None), given[-1], (2**31 - 1) & ~mask | size, mask


def largest_over_runs(number: Array | int) -> jax.Array:
    """Returns the maximum of an integer scalar over the runs of a batch, for example to bound a loop that all runs share.

    Results must not depend on it, because a run that is simulated alone has a smaller maximum: mask the steps beyond the run's own `number`.
    """
    return largest_over_runs_p.bind(jnp.asarray(number))


def on_a_gpu(on_gpu: Callable[[], Any], elsewhere: Callable[[], Any]) -> Any:
    """Returns `on_gpu()` if a GPU runs the program, else `elsewhere()`. Both must compute the same result."""
    return lax.platform_dependent(**dict.fromkeys(GPUS, on_gpu), default=elsewhere)


def repeat(count: int, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """Runs `lax.fori_loop(0, count, body, start)` for a static `count`. On a GPU the loop is unrolled, so that its steps are fused."""
    loop = functools.partial(lax.fori_loop, 0, count, body, start)
    return on_a_gpu(functools.partial(loop, unroll=max(1, min(count, _MOST_STEPS))), loop)


def sums(values: Sequence[jax.Array]) -> jax.Array:
    """Returns the sums of `n` arrays of one shape over their last axis, stacked as `[n, ...]`; on a GPU by a single reduction."""
    return on_a_gpu(lambda: jnp.sum(jnp.stack(values), axis=-1), lambda: jnp.stack([jnp.sum(x, axis=-1) for x in values]))


def by_comparison(score: Array, *given: Array, axis: int, ordered: bool = False) -> jax.Array:
    """Computes `first_best` along `axis` by comparison with the maximum. `given` has the mask `allowed`, if any, and then `order`, if `ordered`."""
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
    """Computes the same as `by_comparison`, by a reduction of pairs (score, tie-breaker)."""
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


def barrier(value: Any) -> Any:
    """Returns an array or pytree behind an optimisation barrier on every device, so that it is computed and rounded once.

    It is for a value that is compared with itself (a score and its maximum), and for one that is read from a table before the table is updated in
    place. To make programs faster `compute_once` is better. In a scan on a CPU XLA drops barriers before it fuses, so that a sum of two products may
    be computed twice and rounded differently; `first_best` handles this.
    """
    return lax.optimization_barrier(value)


def chunked_size(size: int) -> int:
    """Rounds the length of an axis up to a multiple of 32 if it is larger than 32, as `chunked_fold` requires."""
    return size if size <= CHUNK else -(-size // CHUNK) * CHUNK


def chunked_fold(leaves: Any, in_use: Index, start: Any, step: Callable[[Any, Any, jax.Array], Any]) -> Any:
    """Folds `step` over chunks of 32 elements along the last axis of arrays. Chunks beyond the first `in_use` elements cost nothing.

    Args:
      leaves: pytree of arrays `[..., B]`, with `B` from `chunked_size`.
      in_use: number of used elements, an int32 scalar that is the same in all runs (`largest_over_runs`). Later elements may be visited or not.
      start: initial value of the fold.
      step: function of the value so far, a chunk `[..., 32]` of the leaves, and the index of the chunk's first element; returns the new value.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= CHUNK:
        return step(start, leaves, jnp.int32(0))

    kinds = [(x.shape, x.dtype) for x in jax.tree.leaves(jax.eval_shape(lambda: start))]
    alike = {kind: [i for i, other in enumerate(kinds) if other == kind] for kind in dict.fromkeys(kinds)}
    structure = jax.tree.structure(start)

    # Arrays of equal shape and type are stacked, because a loop copies and updates each carried array separately.
    def pack(carry: Any) -> list[jax.Array]:
        values = jax.tree.leaves(carry)
        return [jnp.stack([values[i] for i in places]) for places in alike.values()]

    def unpack(packed: list[jax.Array]) -> Any:
        values = {i: x[n] for x, places in zip(packed, alike.values(), strict=True) for n, i in enumerate(places)}
        return jax.tree.unflatten(structure, [values[i] for i in range(len(values))])

    def body(number: jax.Array, packed: list[jax.Array]) -> list[jax.Array]:
        first = number * CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, CHUNK, axis=x.ndim - 1), leaves)
        return compute_once(pack(step(unpack(packed), compute_once(part), first)))

    return unpack(lax.fori_loop(0, (jnp.minimum(in_use, size) + CHUNK - 1) // CHUNK, body, pack(start)))


def chunked_map_inplace(leaves: Any, in_use: Index, step: Callable[[Any, jax.Array], Any]) -> Any:
    """Replaces each chunk (32 elements of the last axis) that begins before element `in_use` by `step(chunk, index of the chunk's first element)`.

    It works in place if the `leaves`, arrays with a last axis of length `chunked_size`, are not used afterwards. Other chunks stay as they are.
    """
    size = jax.tree.leaves(leaves)[0].shape[-1]
    if size <= CHUNK:
        return step(leaves, jnp.int32(0))

    def body(number: jax.Array, leaves: Any) -> Any:
        first = number * CHUNK
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, CHUNK, axis=x.ndim - 1), leaves)
        new = compute_once(step(compute_once(part), first))
        return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, first, axis=x.ndim - 1), leaves, new)

    return lax.fori_loop(0, (jnp.minimum(in_use, size) + CHUNK - 1) // CHUNK, body, leaves)


def sum_over_better(
    values: Array,
    keys: Sequence[Array],
    ahead: Callable[[Sequence[Any], Sequence[Any]], Any],
    *,
    together: np.ndarray | None = None,
    start: Array | None = None,
) -> jax.Array:
    """Returns for each of `K` elements the sum of `values` over the elements that are better than it.

    The sum is unrolled (eight terms at a time for more than 16). A reduction over one axis of a `[K, K]` comparison would take two to three times as
    long, because XLA does not vectorise it over runs.

    Args:
      values: `[K]` terms.
      keys: arrays `[K]` by which elements are compared.
      ahead: elementwise function `(keys of another element, keys of this one) -> bool`: whether the other element is better.
      together: `[K, K]` static bool, pairs of elements that are compared (default: all).
      start: `[K]` initial sums (default: zero).
    """
    zero = jnp.zeros_like(values)
    total = zero if start is None else start
    size = values.shape[-1]
    if size <= _MOST_AHEAD:
        for j in range(size):
            mask = ahead([k[j] for k in keys], keys)
            total += jnp.where(mask if together is None else mask & together[j], values[j], zero)
        return compute_once(total)  # Otherwise each consumer would recompute it.

    # The same terms in the same order, in chunks: the size of the program does not grow with K.
    pad = -size % _TERMS_AHEAD
    others = [jnp.pad(x, (0, pad)) for x in (jnp.asarray(values), *map(jnp.asarray, keys))]
    counts = None if together is None else jnp.asarray(np.pad(together, ((0, pad), (0, 0))))

    def add(chunk: jax.Array, total: jax.Array) -> jax.Array:
        first = chunk * _TERMS_AHEAD
        amounts, *others_keys = compute_once([lax.dynamic_slice_in_dim(x, first, _TERMS_AHEAD) for x in others])
        rows = None if counts is None else lax.dynamic_slice_in_dim(counts, first, _TERMS_AHEAD)
        for j in range(_TERMS_AHEAD):
            mask = ahead([k[j] for k in others_keys], keys)
            total += jnp.where(mask if rows is None else mask & rows[j], amounts[j], zero)
        return total

    return compute_once(lax.fori_loop(0, (size + pad) // _TERMS_AHEAD, add, total))


def weighted_sum_over_better(values: Array, *keys: Array, together: np.ndarray | None = None) -> jax.Array:
    """Returns for each of `K` elements the sum of `values` over the elements that rank higher by lexicographic keys.

    The keys are numbers or booleans `[K]`, the most significant first. Larger keys rank higher (pass `-x` to prefer small `x`); remaining ties go to
    the lower index. `together`, a static mask `[K, K]`, restricts the comparisons to some pairs (default: all).
    """
    ranked = [k.astype(jnp.int32) if k.dtype == jnp.bool_ else k for k in keys]
    ranked = [lax.optimization_barrier(k) if jnp.issubdtype(k.dtype, jnp.floating) else compute_once(k) for k in ranked]

    def ahead(others: Sequence[Any], these: Sequence[Any]) -> Any:
        result = others[-1] < these[-1]
        for other, key in zip(others[-2::-1], these[-2::-1], strict=True):
            result = (other > key) | ((other == key) & result)
        return result

    return sum_over_better(values, [*ranked, np.arange(values.shape[-1], dtype=np.int32)], ahead, together=together)


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


def _has_no_derivative(primitive: Primitive) -> None:
    def jvp(args: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        del tangents
        out = primitive.bind(*args, **params)
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())

    ad.primitive_jvps[primitive] = jvp


largest_over_runs_p = Primitive("largest_over_runs")
largest_over_runs_p.def_impl(lambda number: number)
largest_over_runs_p.def_abstract_eval(lambda number: number)
batching.primitive_batchers[largest_over_runs_p] = lambda x, dims: (largest_over_runs(jnp.max(x[0], axis=dims[0])), None)
_has_no_derivative(largest_over_runs_p)
mlir.register_lowering(largest_over_runs_p, lambda ctx, number: [number])

batching.primitive_batchers[first_best_p] = _batch_first_best
_has_no_derivative(first_best_p)
mlir.register_lowering(first_best_p, mlir.lower_fun(by_comparison, multiple_results=False))
for _platform in GPUS:
    mlir.register_lowering(compute_once_p, lambda ctx, *xs: xs, platform=_platform)
    mlir.register_lowering(first_best_p, mlir.lower_fun(_by_pairs, multiple_results=False), platform=_platform)
