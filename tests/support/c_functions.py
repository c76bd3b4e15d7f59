"""Functions of one run by the C that kernels are made of, for `R` runs."""

import ctypes

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core.batching.dependence import is_key
from jaxroute.kernels import host, ir
from jaxroute.kernels.emitter import Emitter
from jaxroute.kernels.ir import flat
from jaxroute.kernels.source import Array, source_from


def emitted(fn, *args, wide=False, **options):
    """What an emitter writes for `fn` on one run, or on several at once; its inputs, outputs, and shapes of its results. The runs are last."""
    leaves, treedef = jax.tree.flatten(args)
    shapes = [jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype) for leaf in leaves]
    closed, out = jax.make_jaxpr(lambda *a: fn(*jax.tree.unflatten(treedef, a)), return_shape=True)(*shapes)
    emitter, inputs, values = Emitter(wide, **options), [], []
    for number, leaf in enumerate(map(words, leaves)):
        array = Array(leaf.shape[:-1], leaf.dtype)
        inputs.append(array)
        memory = emitter.given(number, array.dtype, int(np.prod(array.shape)))
        values.append(emitter.copied(emitter.value_of(memory, array.shape)))
    outputs = []
    for number, value in enumerate(emitter.call(closed, values)):
        outputs.append(Array(value.shape, value.dtype))
        if value.size:
            emitter.ready(value)
            with emitter.loops(value.shape) as place:
                emitter.put(number, flat(place, value.shape), value.at(place))
    return emitter, inputs, outputs, out


def source_of_function(fn, *args, wide=False, **options):
    """The C of `fn`, and the shapes of its results."""
    emitter, inputs, outputs, out = emitted(fn, *args, wide=wide, **options)
    return source_from(emitter, inputs, outputs), out


def statements_of(block):
    """Statements of a block, also inside others, that are printed."""
    needed = ir.live(block)
    return [one for one in ir.walk(block) if not one.written() or any(s.current in needed for s in one.written())]


def operations_of(block):
    """Names of the operations in them, as often as they are there."""

    def names(e):
        return [e.op, *(name for operand in e.operands for name in names(operand))]

    return [name for one in statements_of(block) for e in one.expressions() for name in names(e)]


def words(leaf):
    """A leaf as NumPy's; a key as its words, before the runs."""
    if is_key(leaf):
        leaf = jnp.moveaxis(jax.random.key_data(leaf), -1, -2)
    return np.ascontiguousarray(np.asarray(leaf))


def by_c(fn, *args, wide=False, **options):
    """`fn` of `R` runs, the last axis of the arguments and results."""
    source, out = source_of_function(fn, *args, wide=wide, **options)
    given = [words(leaf) for leaf in jax.tree.leaves(args)]
    size = given[0].shape[-1]
    made = [np.zeros((*a.shape, size), a.dtype) for a in source.outputs]
    pointers = [(ctypes.c_void_p * max(1, len(some)))(*(x.ctypes.data for x in some)) for some in (given, made)]
    host.compiled(source.for_host(), wide)(0, size, size, *pointers)

    def back(value, like):
        return jax.random.wrap_key_data(jnp.moveaxis(jnp.asarray(value), -2, -1)) if is_key(like) else value

    leaves, structure = jax.tree.flatten(out)
    return jax.tree.unflatten(structure, [back(v, like) for v, like in zip(made, leaves, strict=True)])
