"""Programs that are compiled for a short time to compile."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import quick
from jaxroute.core.quick import quick_jit


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
