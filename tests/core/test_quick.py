"""Programs that are compiled for a short time to compile, and classes of trees, which JAX's comparison of structures leaves out from 0.10 on."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import quick
from jaxroute.core.quick import quick_jit
from jaxroute.core.types import classes_of
from jaxroute.engine.rounds import once


def power(x, n):
    return jnp.sum(jnp.sin(x) ** n) + x[0]


def test_results_are_those_of_jit_up_to_rounding():
    x = jnp.asarray(np.random.default_rng(0).random(100), jnp.float32)
    ours, theirs = (compiled(power, static_argnums=1) for compiled in (quick_jit, jax.jit))
    for n in (2, 3):
        np.testing.assert_allclose(ours(x, n), theirs(x, n), rtol=1e-6)


def test_a_program_is_traced_once():
    traces = []

    def counted(x):
        traces.append(x)
        return x + 1

    played = quick_jit(counted)
    assert [int(played(i)) for i in range(3)] == [1, 2, 3] and len(traces) == 1


def test_it_may_be_a_part_of_another_program():
    whole = jax.jit(lambda x: quick_jit(power, static_argnums=1)(2 * x, 2))
    x = jnp.ones(3)
    np.testing.assert_allclose(whole(x), power(2 * x, 2), rtol=1e-6)
    assert "pjit" not in str(jax.make_jaxpr(lambda x: quick_jit(lambda y: y + 1)(x))(x))


def test_options_that_xla_does_not_have_are_left_out(monkeypatch):
    monkeypatch.setattr(quick, "_OPTIONS", {"no_such_option": "0", "xla_backend_optimization_level": "0"})
    quick.quick_options.cache_clear()
    try:
        assert quick.quick_options() == {"xla_backend_optimization_level": "0"}
    finally:
        monkeypatch.undo()
        quick.quick_options.cache_clear()


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
