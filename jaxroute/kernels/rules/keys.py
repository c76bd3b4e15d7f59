"""Rules of random keys and bits by Threefry."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels import ir
from jaxroute.kernels.rules.elementwise import element
from jaxroute.kernels.rules.moving import stacked
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import Value, flat
from jaxroute.kernels.writer import Writer

WORD = np.dtype(np.uint32)


def _encrypted(writer: Writer, shape: tuple[int, ...], words: Callable[[ir.Place], Sequence[ir.Expr]]) -> list[Value]:
    """Computes Threefry at each index of a shape, from the words of a key and of a block."""

    def make(place: ir.Place, results: Sequence[ir.Storage]) -> list[ir.Statement]:
        k0, k1, *block = words(place)
        declared = [ir.Declare(result, word) for result, word in zip(results, block, strict=True)]
        return [*declared, ir.Call("threefry", (k0, k1, *map(ir.variable, results)), tuple(results))]

    return writer.elementwise(shape, [WORD] * 2, make)


@rule("threefry_2x32")
def _threefry(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    return _encrypted(writer, aval_of(eqn)[0], lambda place: [element(w, place) for w in words])


@rule("child_words")
def _child_words(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    def at(place: ir.Place) -> list[ir.Expr]:
        k0, k1, address = (element(w, place) for w in words)
        return [k0, k1, ir.literal(0, WORD), address]

    return [stacked(writer, _encrypted(writer, aval_of(eqn)[0][1:], at), 0)]


@rule("random_seed")
def _random_seed(writer: Writer, eqn: Any, seeds: Value) -> list[Value]:
    if seeds.dtype.itemsize > 4:
        raise ir.Unsupported("jax.random.key of 64 bits")
    low = Value(seeds.shape, WORD, lambda place: ir.convert(seeds.at(place), WORD), seeds.storages)
    return [stacked(writer, [writer.constant(np.zeros(seeds.shape, WORD)), low], -1)]


def _blocks(
    writer: Writer, keys: Value, shape: tuple[int, ...], address: Callable[[ir.Place], ir.Index] | None = None
) -> list[Value]:
    """Computes both words of Threefry at each index of a shape that begins with that of the keys; the default address is the index within a key."""
    lead = len(keys.shape) - 1

    def words(place: ir.Place) -> list[ir.Expr]:
        at = flat(place[lead:], shape[lead:]) if address is None else address(place)
        return [*(keys.at((*place[:lead], i)) for i in (0, 1)), ir.literal(0, WORD), ir.convert(at, WORD)]

    return _encrypted(writer, shape, words)


@rule("random_bits")
def _random_bits(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    if eqn.params["bit_width"] != 32:
        raise ir.Unsupported(f"jax.random.bits of {eqn.params['bit_width']} bits")
    first, second = _blocks(writer, keys, (*keys.shape[:-1], *eqn.params["shape"]))
    return [writer.pointwise(*aval_of(eqn), lambda place: first.at(place) ^ second.at(place))]


@rule("random_split")
def _random_split(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    return [stacked(writer, _blocks(writer, keys, (*keys.shape[:-1], *eqn.params["shape"])), -1)]


@rule("random_fold_in")
def _random_fold_in(writer: Writer, eqn: Any, keys: Value, data: Value) -> list[Value]:
    shape = tuple(np.broadcast_shapes(keys.shape[:-1], data.shape))
    return [stacked(writer, _blocks(writer, keys, shape, lambda place: data.at(place if data.shape else ())), -1)]
