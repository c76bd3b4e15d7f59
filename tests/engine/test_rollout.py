"""One copy of the rounds for intervals of several lengths, and recorded quantities as one array for each type."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute.core import draws
from jaxroute.core.batching.lanes import lanes
from jaxroute.engine.rollout import PackedRecords, packed_rollout, rollout, spans_of
from jaxroute.engine.rounds import Record, any_nan, run_streams
from jaxroute.problems import staged, stochastic

ROOT = np.asarray(jax.random.key_data(draws.key(0)))
SEEDS = np.arange(16, dtype=np.uint32)


def players(name):
    if name == "bandit":
        return stochastic.bernoulli([0.2, 0.5, 0.9]), stochastic.GaussianThompson()
    rng = np.random.default_rng(0)
    distribution = staged.ParametricOutcomes(
        reward_mean=rng.random(5), cost_mean=rng.random(5) + 0.1, reward_noise=0.1, cost_noise=0.1
    )
    env = staged.market(distribution, capacity=0.5, budget=0.8, max_deployed=3, stage_length=7, horizon=60)
    return env, staged.StageRoute()


@pytest.mark.parametrize("every", [10, 14, 23, 60, 70])
@pytest.mark.parametrize("name", ["bandit", "stages"])
def test_one_copy_of_the_rounds_plays_what_several_do(name, every):
    env, policy = players(name)
    record = Record(every=every, flows=tuple(m for m in env.spec.metrics if m.kind != "gauge"))

    def play(reversible):
        streams = run_streams(ROOT, SEEDS)
        return jax.jit(lambda: rollout(env, policy, streams, 60, record, keep_states=True, reversible=reversible))()

    ours, theirs = play(False), play(True)
    assert ours.keys() == theirs.keys()
    for quantity in ours:
        np.testing.assert_array_equal(ours[quantity], theirs[quantity], err_msg=quantity)


def test_other_horizons_with_as_many_records_are_the_same_program():
    env, policy = players("bandit")

    def text(horizon, every):
        def play(spans, seeds):
            packed, _ = packed_rollout(env, policy, run_streams(ROOT, seeds), horizon, Record(every=every), spans=spans)
            return packed.by_name()

        return jax.jit(play).lower(spans_of(horizon, every, 0, 0), SEEDS).as_text()

    assert text(100, 10) == text(1000, 100) == text(991, 100)
    assert text(100, 10) != text(100, 20)


def test_spans_follow_each_other():
    np.testing.assert_array_equal(spans_of(10, 4, 0, 6), [[6, 4], [10, 4], [14, 2]])
    np.testing.assert_array_equal(spans_of(8, 4, 6, 6), [[0, 6], [6, 4], [10, 4]])


def test_any_nan_sees_a_nan_among_infinities_and_of_each_run():
    """Leaves of other types, without elements, or without a NaN do not count."""
    table = jnp.asarray([[1.0, jnp.inf, -jnp.inf], [0.0, jnp.nan, 2.0], [-jnp.inf, -jnp.inf, -jnp.inf]])
    tree = lambda x: {"a": x, "n": jnp.arange(3), "flag": jnp.bool_(True), "none": jnp.zeros((0,)), "zero": jnp.float32(0.0)}  # noqa: E731
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x: any_nan(tree(x))))(table), [False, True, False])
    np.testing.assert_array_equal(jax.jit(lanes(lambda x: any_nan(tree(x)), 3))(table.T), [False, True, False])
    assert any_nan((jnp.float32(jnp.nan), jnp.zeros(2))) and not any_nan((jnp.arange(3), jnp.zeros((2, 0))))


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
    shapes = {kind: array.shape for kind, array in packed.arrays.items()}
    assert shapes == {"float32": (4, 7, R), "int32": (4, 4, R), "bool": (4, 1, R)}
    expected = jax.tree.map(lambda *arrays: np.stack(arrays), *records)
    chex.assert_trees_all_equal(packed.by_name(), expected)
    chex.assert_trees_all_equal(PackedRecords.of_separate(expected).by_name(), expected)

    returned = jax.device_get(jax.tree.map(lambda array: jnp.moveaxis(array, -1, 0), packed)).returned()
    chex.assert_trees_all_equal(returned, jax.tree.map(lambda theirs: np.moveaxis(theirs, -1, 0), expected))
    assert np.shares_memory(returned["share"], returned["regret"].base)


def test_shapes_are_those_of_one_run():
    shapes = PackedRecords.of(record(0)).shapes()
    assert shapes == {"regret": (), "share": (2, 3), "count": (3,), "ended": (), "first": {"a": (0,), "b": ()}}
