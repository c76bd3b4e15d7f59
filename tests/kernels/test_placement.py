"""Which arrays of the states kernels keep run by run."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxroute.core import numerics, xla
from jaxroute.kernels.placement import by_rows

TABLE, ONES = (4, 50), jnp.ones(50)


def put(table, place, row):
    return numerics.put(table, (place,), row)


def at(table, place):
    return numerics.at(table, (place,))


def in_a_loop(table, place, t):
    return lax.fori_loop(0, 3, lambda i, now: put(now, (place + i) % 4, 2 * at(now, place)), table)


def until_it_is_large(table, place, t):
    def step(carry):
        count, table = carry
        return count + 1, put(table, count, at(table, place))

    return lax.while_loop(lambda carry: carry[0] < place, step, (jnp.int32(0), table))[1]


def in_a_scan(table, place, t):
    def step(now, x):
        return put(now, place, x * at(now, place)), at(now, place)[0]

    return lax.scan(step, table, jnp.ones((3, 50)))[0]


def in_a_branch(table, place, t):
    return lax.cond(place > 2, lambda x: put(x, place, jnp.zeros(50)), lambda x: x, table)


def swapped(table, place, t):
    other = jnp.zeros(TABLE)
    return lax.fori_loop(0, 2, lambda i, both: (both[1], put(both[0], place, at(both[0], place))), (table, other))[0]


ROWS = {
    "a row is read": lambda table, place, t: (table, at(table, place)),
    "a row is written": lambda table, place, t: put(table, place, jnp.ones(50)),
    "a number, too": lambda x, place, t: numerics.put(put(x, place, at(x, t)), (place, t), numerics.at(x, (t, place))),
    "behind a barrier": lambda table, place, t: put(xla.compute_once(table), place, at(xla.compute_once(table), 1)),
    "in a function": lambda table, place, t: jax.jit(put)(table, place, jnp.ones(50)),
    "in a loop": in_a_loop,
    "until it is large": until_it_is_large,
    "in a scan": in_a_scan,
    "in a branch": in_a_branch,
}
OTHERS = {
    "the same row in all runs": lambda table, place, t: put(table, t % 4, at(table, 2)),
    "the largest place": lambda table, place, t: put(table, xla.largest_over_runs(place), jnp.ones(50)),
    "all of it": lambda table, place, t: put(table, place, jnp.sum(table, axis=0)),
    "a part of rows": lambda table, place, t: lax.dynamic_update_slice(table, at(table, place)[None, :9], (place, 3)),
    "columns": lambda table, place, t: (at(table, place), lax.dynamic_slice(table, (jnp.int32(0), place), (4, 1))),
    "written into another one": lambda x, place, t: put(jnp.zeros((2, *TABLE)), place // 2, put(x, place, at(x, 1))),
    "swapped in a loop": swapped,
    "rows of a scan": lambda x, place, t: (put(x, place, ONES), lax.scan(lambda c, row: (c + row, None), ONES, x)),
    "one of two tables": lambda x, place, t: lax.cond(t > 2, lambda x: put(x, place, x[0, :]), lambda x: jnp.ones(TABLE), x),
    "nothing": lambda table, place, t: table,
}


def found(function, shape=TABLE, dtype=jnp.float32):
    args = jnp.zeros(shape, dtype), jnp.int32(1), jnp.int32(0)
    return by_rows(jax.make_jaxpr(function)(*args), [True, True, False], [0, None, None])


@pytest.mark.parametrize("name", ROWS)
def test_rows_at_places_of_the_runs_own_are_found(name):
    assert found(ROWS[name]) == {0}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_used_in_another_way_stays_as_it_is(name):
    assert found(OTHERS[name]) == set()


def test_short_rows_and_odd_types_stay_as_they_are():
    def double(table, place, t):
        return put(table, place, 2 * at(table, place))

    assert found(double, (4, 32)) == found(double, (4, 2, 16)) == found(double, (4, 40), jnp.int16) == {0}
    assert found(double, (4, 31)) == found(double, (1, 50)) == found(double, (50,)) == set()
    assert found(lambda table, place, t: put(table, place, ~at(table, place)), (4, 50), jnp.bool_) == set()
