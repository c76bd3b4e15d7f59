"""The best place and the place of a rank."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.problems.queueing.parts.backlog import Places
from jaxroute.problems.queueing.parts.scheduling import best_place, place_of_rank


def test_places_of_long_tables():
    """The best place and the place of a rank do not depend on how long a table is."""
    rng = np.random.default_rng(0)
    for size in (128, 200, 1000):

        @jax.jit
        def find(score, waits, rank, size=size):
            who = Places(waits, None, jnp.int32(size), jnp.sum(waits), jnp.bool_(False), jnp.int32(0))
            return *best_place(lambda v: v, score, who), place_of_rank(who, rank, jnp.int32(size))

        for _ in range(20):
            score, waits = rng.integers(0, 50, size).astype(np.float32), rng.random(size) < 0.6
            waiting = np.flatnonzero(waits)
            rank = rng.integers(len(waiting))
            place, best, ranked = find(score, waits, rank)
            assert (place, best) == (waiting[score[waiting].argmax()], score[waiting].max())
            assert ranked == waiting[rank]
