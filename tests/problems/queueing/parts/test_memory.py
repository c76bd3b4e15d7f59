"""What a learner remembers fits the instance."""

import jax.numpy as jnp
import numpy as np
from queueing_cases import pool

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.estimators.factors import ByFactors
from jaxroute.estimators.gaussian import ByCholesky, ByRoot
from jaxroute.estimators.mnl import BFGS, Newton, Tracked
from jaxroute.problems import queueing as qu
from jaxroute.problems.queueing.parts.choice import choose_parts


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
