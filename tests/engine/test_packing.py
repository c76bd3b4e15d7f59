"""Recorded quantities as one array for each type, and back."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.engine.rollout import PackedRecords

R = 5


def record(seed):
    rng = np.random.default_rng(seed)
    return {
        "regret": jnp.asarray(rng.random(R), jnp.float32),
        "share": jnp.asarray(rng.random((2, 3, R)), jnp.float32),
        "count": jnp.asarray(rng.integers(0, 9, (3, R)), jnp.int32),
        "ended": jnp.asarray(rng.random(R) < 0.5),
        "first": {"b": jnp.arange(R, dtype=jnp.int32), "a": jnp.zeros((0, R), jnp.float32)},
    }


def test_records_come_back_in_both_orders():
    records = [record(seed) for seed in range(4)]
    packed = jax.tree.map(lambda *arrays: jnp.stack(arrays), *map(PackedRecords.of, records))
    assert {kind: array.shape for kind, array in packed.arrays.items()} == {
        "float32": (4, 7, R),
        "int32": (4, 4, R),
        "bool": (4, 1, R),
    }
    expected = jax.tree.map(lambda *arrays: np.stack(arrays), *records)
    jax.tree.map(np.testing.assert_array_equal, packed.by_name(), expected)
    jax.tree.map(np.testing.assert_array_equal, PackedRecords.unpacked(expected).by_name(), expected)

    returned = jax.device_get(jax.tree.map(lambda array: jnp.moveaxis(array, -1, 0), packed)).returned()
    jax.tree.map(lambda ours, theirs: np.testing.assert_array_equal(ours, np.moveaxis(theirs, -1, 0)), returned, expected)
    assert np.shares_memory(returned["share"], returned["regret"].base)


def test_shapes_are_those_of_one_run():
    shapes = PackedRecords.of(record(0)).shapes()
    assert shapes == {"regret": (), "share": (2, 3), "count": (3,), "ended": (), "first": {"a": (0,), "b": ()}}
