"""What experiments of MESS+ share."""

import numpy as np

from jaxroute import grid
from jaxroute.experiments.service import paper as common
from jaxroute.problems import service


def test_routers_trained_at_the_same_time_are_those_of_a_grid():
    env = service.benchmark_service("winogrande")
    alone, together = grid(service.RouterDC.of, env=env, training=range(3)), common.trained_routers(env, 3)
    assert (together.name, together.structure, together.leaf_axes) == (alone.name, alone.structure, alone.leaf_axes)
    np.testing.assert_array_equal(together.axes["training"], alone.axes["training"])
    for leaf, other in zip(together.leaves, alone.leaves, strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert not np.array_equal(together.leaves[0][0], together.leaves[0][1])
