"""The best place and the place of a rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.problems.queueing.parts.scheduling import best_place, place_of_rank
from jaxroute.problems.queueing.types import QueueView


@pytest.mark.parametrize("size", [128, 200, 1000])
def test_places_in_long_tables(size):
    """Neither depends on the length of the table: the best score of the earliest arrival, and the place of a rank in order of arrival."""
    rng = np.random.default_rng(0)

    @jax.jit
    def search(score, arrival, length, rank):
        queue = QueueView(jnp.arange(size) < length, arrival, length, length, jnp.bool_(False), jnp.int32(0))
        return *best_place(lambda v: v, score, queue), place_of_rank(queue, rank, jnp.int32(size))

    for _ in range(20):
        score, arrival = rng.integers(0, 50, size).astype(np.float32), rng.permutation(size).astype(np.int32)
        length = int(rng.integers(size // 2, size))
        rank = rng.integers(length)
        order = np.argsort(arrival[:length])
        place, best, ranked = search(score, arrival, jnp.int32(length), rank)
        assert (place, best) == (order[score[order].argmax()], score[:length].max())
        assert ranked == order[rank]
