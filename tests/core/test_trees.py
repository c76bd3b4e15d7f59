"""Classes of trees, which JAX's comparison of structures leaves out from version 0.10 on."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxroute.core.quick import quick_jit
from jaxroute.core.types import classes_of
from jaxroute.engine.rounds import once


def one_of_many(number):
    """An object of a class of its own; all have one leaf, and differ in what they do with it."""

    @struct.dataclass
    class Part:
        width: float = 2.0

        def act(self, x):
            return self.width * number + x

    return Part


def test_classes_come_in_order_and_nothing_else_does():
    first, second = one_of_many(1), one_of_many(2)
    assert classes_of((first(), [second(jnp.ones(3)), None, 1.0])) == (tuple, first, list, second, type(None))
    assert classes_of(first()) != classes_of(second())
    assert classes_of(1.0) == ()


# With 300 classes JAX 0.10.2 gave forty of them the program of another one.


def test_a_part_of_a_round_is_never_that_of_another_class():
    for number in range(300):
        part = one_of_many(number)
        closed = jax.make_jaxpr(lambda width, x, part=part: once("act", part(width), x))(2.0, 1.0)
        assert float(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 2.0, 1.0)[0]) == 2.0 * number + 1.0


def test_a_program_that_runs_once_is_never_that_of_another_class():
    @quick_jit
    def act(part, x):
        return part.act(x)

    for number in range(300):
        assert float(act(one_of_many(number)(), 1.0)) == 2.0 * number + 1.0
