"""Random keys and bits: Threefry."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxroute.kernels.rules.elementwise import element
from jaxroute.kernels.rules.moving import stacked
from jaxroute.kernels.rules.registry import aval_of, rule
from jaxroute.kernels.values import (
    Place,
    Unsupported,
    Value,
    flat,
)
from jaxroute.kernels.writer import Writer


@rule("threefry_2x32")
def _threefry(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)

    def make(place: Place, names: Sequence[str]) -> list[str]:
        k0, k1, x0, x1 = (element(w, place) for w in words)
        return [f"{names[0]} = {x0};", f"{names[1]} = {x1};", f"threefry({k0}, {k1}, &{names[0]}, &{names[1]});"]

    return writer.elementwise([(shape, dtype)] * 2, make)


@rule("child_words")
def _child_words(writer: Writer, eqn: Any, *words: Value) -> list[Value]:
    shape, dtype = aval_of(eqn)

    def make(place: Place, names: Sequence[str]) -> list[str]:
        k0, k1, address = (element(w, place) for w in words)
        return [f"{names[0]} = 0u;", f"{names[1]} = {address};", f"threefry({k0}, {k1}, &{names[0]}, &{names[1]});"]

    return [stacked(writer, writer.elementwise([(shape[1:], dtype)] * 2, make), 0)]


def _encrypted(writer: Writer, shape: tuple[int, ...], key: Callable[[Place], tuple[str, str]], low: Callable[[Place], str]):
    """Threefry of the block `(0, low)` under a key of two words, at each place of a shape."""

    def make(place: Place, names: Sequence[str]) -> list[str]:
        k0, k1 = key(place)
        return [f"{names[0]} = 0u;", f"{names[1]} = {low(place)};", f"threefry({k0}, {k1}, &{names[0]}, &{names[1]});"]

    return writer.elementwise([(shape, np.dtype(np.uint32))] * 2, make)


def _as_words(writer: Writer, first: Value, second: Value) -> Value:
    """Keys `[..., 2]` from their words."""
    return stacked(writer, [first, second], len(first.shape))


@rule("random_seed")
def _random_seed(writer: Writer, eqn: Any, seeds: Value) -> list[Value]:
    if seeds.dtype.itemsize > 4:
        raise Unsupported("jax.random.key of 64 bits")
    low = writer.view(seeds, seeds.shape, lambda place: writer.converted(np.uint32, seeds.at(place)))
    low.dtype = np.dtype(np.uint32)
    return [_as_words(writer, writer.constant(np.zeros(seeds.shape, np.uint32)), low)]


def _blocks(writer: Writer, keys: Value, shape: tuple[int, ...]) -> list[Value]:
    """Both words of Threefry for every key at the addresses `0, 1, ...` of a shape."""
    lead = len(keys.shape) - 1
    return _encrypted(
        writer,
        (*keys.shape[:-1], *shape),
        lambda place: (keys.at((*place[:lead], 0)), keys.at((*place[:lead], 1))),
        lambda place: writer.converted(np.uint32, str(flat(place[lead:], shape))),
    )


@rule("random_bits")
def _random_bits(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    if eqn.params["bit_width"] != 32:
        raise Unsupported(f"jax.random.bits of {eqn.params['bit_width']} bits")
    first, second = _blocks(writer, keys, tuple(eqn.params["shape"]))
    shape, dtype = aval_of(eqn)
    return writer.elementwise(
        [(shape, dtype)], lambda place, names: [f"{names[0]} = {first.at(place)} ^ {second.at(place)};"]
    )


@rule("random_split")
def _random_split(writer: Writer, eqn: Any, keys: Value) -> list[Value]:
    return [_as_words(writer, *_blocks(writer, keys, tuple(eqn.params["shape"])))]


@rule("random_fold_in")
def _random_fold_in(writer: Writer, eqn: Any, keys: Value, data: Value) -> list[Value]:
    shape = tuple(np.broadcast_shapes(keys.shape[:-1], data.shape))
    words = _encrypted(
        writer,
        shape,
        lambda place: (
            (keys.at((*place, 0)), keys.at((*place, 1))) if len(keys.shape) > 1 else (keys.at((0,)), keys.at((1,)))
        ),
        lambda place: writer.converted(np.uint32, data.at(place if data.shape else ())),
    )
    return [_as_words(writer, *words)]
