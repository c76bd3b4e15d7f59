"""The order in which assortments are explored."""

import jax
import jax.numpy as jnp
from reference import queueing as ref

from jaxroute.problems.queueing.parts.assortments import next_combination


def test_round_robin_is_lexicographic():
    following = jax.jit(next_combination)
    for N, K in ((1, 1), (3, 1), (5, 2), (6, 3), (4, 4)):
        items = jnp.arange(K, dtype=jnp.int32)
        for S in [*ref.combos(N, K), tuple(range(K))]:
            assert tuple(int(j) for j in items) == S
            items = following(items, N)
