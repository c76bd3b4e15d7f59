"""Order of exploration, triggers, places in a queue, and what a learner stores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from queueing_cases import pool
from reference import queueing as ref

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.estimators.gaussian import ByCholesky, ByFactors, ByRoot
from jaxroute.estimators.mnl import BFGS, Newton, Tracked
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing.acqb import next_combination
from jaxroute.problems.queueing.parts.choice import choose_parts
from jaxroute.problems.queueing.parts.scheduling import best_place, place_of_rank
from jaxroute.problems.queueing.types import QueueView


def test_round_robin_is_lexicographic():
    following = jax.jit(next_combination)
    for N, K in ((1, 1), (3, 1), (5, 2), (6, 3), (4, 4)):
        items = jnp.arange(K, dtype=jnp.int32)
        for S in [*ref.combos(N, K), tuple(range(K))]:
            assert tuple(int(j) for j in items) == S
            items = following(items, N)


@pytest.mark.parametrize("c1", [0.5, 1.0, 3.0])
def test_triggers_fire_as_the_reference_does(c1):
    t = np.repeat(np.arange(400), 3)
    probability = np.array([ref.eta(s, c1) for s in t])
    coin = (probability * np.tile([1 - 1e-5, 1 + 1e-5, 0.72], 400)).astype(np.float32)  # On both sides of eta.
    for ours, theirs in (
        (qu.DecayingExploration(c1), ref.decaying(c1)),
        (qu.PhaseThenCoin.for_horizon(400), ref.phase_then_coin(40, 400)),
    ):
        fires = jax.vmap(lambda t, u: ours.fires(t, u))(jnp.asarray(t), jnp.asarray(coin))  # noqa: B023
        np.testing.assert_array_equal(fires, [theirs(s, float(u)) for s, u in zip(t, coin)])


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


def test_what_is_remembered_fits_the_instance():
    """Container and estimator follow the sizes: 384 features and 112 models are a matrix each and rows of observations, not two matrices."""
    rng = np.random.default_rng(0)
    features, probability = rng.normal(size=(1000, 384)) / 20, rng.uniform(0.1, 0.9, (1000, 112))
    env = qu.pool_queue(features, probability, arrival_rate=0.8, horizon=5000)
    policy = qu.ACQB()
    parts = choose_parts(policy, env.spec)
    assert isinstance(parts.solver, BFGS) and isinstance(parts.sampler, ByFactors)
    size = jr.run_bytes(env, policy)
    matrices = 112 * 384**2 * 4
    assert matrices < size < 1.2 * matrices
    few = qu.pool_queue(features[:, :64], probability[:, :14], arrival_rate=0.8, horizon=5000)
    assert isinstance(choose_parts(policy, few.spec).sampler, ByRoot) and policy.cost_hint(few.spec).matrix_bytes >= 2**17
    assert policy.cost_hint(qu.RandomQueues().of(np.zeros((5, 5))).spec).matrix_bytes < 2**17
    parts = choose_parts(policy, qu.RandomQueues(num_offered=2).of(np.zeros((5, 5))).spec)
    assert isinstance(parts.solver, Newton) and isinstance(parts.sampler, ByCholesky) and parts.num_samples == 9
    kinds = {
        Tracked: ({"num_offered": 1}, {"num_offered": 1, "pair_features": True, "arrival_rate": 0.4}),
        Newton: ({"num_offered": 2}, {"num_offered": 2, "pair_features": True, "arrival_rate": 0.4}),
        BFGS: ({"num_offered": 1, "dim": 9},),
    }
    for kind, all_settings in kinds.items():
        for settings in all_settings:
            queues = qu.RandomQueues(**settings)
            shape = (5,) if "pair_features" in settings else (queues.num_models, queues.dim)
            assert type(choose_parts(qu.ACQB(), queues.of(np.zeros(shape)).spec).solver) is kind, settings


def test_counts_hold_a_long_run():
    policy = qu.ACQB()
    for horizon, kind in ((1000, jnp.int16), (40_000, jnp.int32)):
        assert policy.init(draws.key(0), pool(horizon=horizon).spec).data.tried.dtype == kind
