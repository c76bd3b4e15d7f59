"""Rows of a table in random order."""

import jax
import numpy as np

from jaxroute.core import draws
from jaxroute.sources.rows import random_order, row_in_order


def test_every_row_once_before_any_is_repeated():
    orders = [random_order(draws.key(seed), 40) for seed in (0, 1)]
    for order in orders:
        rows = np.asarray(jax.vmap(lambda t, order=order: row_in_order(order, t))(np.arange(80)))
        assert sorted(rows[:40]) == list(range(40))
        np.testing.assert_array_equal(rows[40:], rows[:40])
    assert (orders[0] != orders[1]).any()
