"""Several steps of a loop at a time: the same bits, and only where the order of the steps does not matter."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from c_functions import by_c, source_of_function
from jax import lax

from jaxroute.kernels import interleaving

RUNS = 21  # More than one vector.


def upper(x):
    """A long chain for each number."""
    return jnp.log(1.0 + jnp.exp(x) * jnp.log1p(x * x))


def with_carry(x):
    """A chain, and a sum in the order of the elements: one statement that changes what is there before the loop."""
    y = upper(x)
    return y, jnp.sum(y), jnp.max(y), jnp.argmax(y)


def in_turn(x):
    """Each step needs the one before."""
    return lax.scan(lambda a, b: (jnp.log1p(jnp.exp(a) + b), a), jnp.float32(0.1), x)


def given(size, seed=0):
    return np.random.default_rng(seed).normal(size=(size, RUNS)).astype(np.float32)


def both(function, x, monkeypatch):
    """Results with one step at a time, and with several."""
    ours = by_c(function, x, wide=True)
    with monkeypatch.context() as patched:
        patched.setattr(interleaving, "LEAST_CALLS", 10**6)
        theirs = by_c(function, x, wide=True)
    chex.assert_trees_all_equal(ours, theirs)
    return source_of_function(function, x, wide=True)[0].body


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10, 11, 12, 23])
@pytest.mark.parametrize("function", [upper, with_carry])
def test_the_numbers_stay_the_same(function, size, monkeypatch):
    text = both(function, given(size), monkeypatch)
    together = {1: None, 2: 2, 3: 3, 5: 5, 7: 6, 10: 5, 11: 5, 12: 6, 23: 5}[size]
    assert (f" += {together})" in text) == (size > 1)


def test_steps_that_need_the_one_before_come_one_after_the_other(monkeypatch):
    assert " += " not in both(in_turn, given(10), monkeypatch)


def test_one_run_after_the_other_is_as_it_was():
    assert " += " not in source_of_function(upper, given(10), wide=False)[0].body


def test_long_steps_come_fewer_at_a_time(monkeypatch):
    monkeypatch.setattr(interleaving, "MOST_STATEMENTS", 30)
    text = source_of_function(upper, given(12), wide=True)[0].body
    steps = [n for n in range(2, 7) if f" += {n})" in text]
    assert len(steps) == 1 and steps[0] < 6
