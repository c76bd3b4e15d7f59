"""The best place and the place of a rank."""

import jax
import numpy as np

from jaxroute.problems.queueing.parts.scheduling import best_place, place_of_rank


def test_places_of_long_tables():
    """The best place and the place of a rank do not depend on how long a table is."""
    rng = np.random.default_rng(0)
    for size in (128, 200, 1000):
        find = jax.jit(lambda s, w, r: (*best_place(lambda v: v, s, w, None, s.size), place_of_rank(w, r, s.size)))
        for _ in range(20):
            score, count = rng.integers(0, 50, size).astype(np.float32), rng.integers(0, 3, size)
            rank = rng.integers(count.sum())
            place, best, ranked = find(score, count, rank)
            waiting = np.flatnonzero(count)
            assert (place, best) == (waiting[score[waiting].argmax()], score[waiting].max())
            assert ranked == np.repeat(np.arange(size), count)[rank]
