"""Every constructor of an environment with 64 models: nothing of size 2^M is allocated, or it is refused in words."""

import tracemalloc

import jax
import numpy as np
import pytest

from jaxroute.data import RoutingTable
from jaxroute.problems import cascade, combinatorial, contextual, queueing, service, staged, stochastic

M = 64
RNG = np.random.default_rng(0)
MEANS = np.sort(RNG.uniform(0.2, 0.9, M))
COSTS = np.linspace(0.1, 1.0, M)
TABLE = RoutingTable(
    scores=RNG.uniform(size=(100, M)).astype(np.float32),
    costs=(COSTS * RNG.uniform(0.9, 1.1, (100, M))).astype(np.float32),
    features=RNG.normal(size=(100, 4)).astype(np.float32),
    models=tuple(f"m{k}" for k in range(M)),
)

CLOUD = combinatorial.parametric_cloud
CASES = {
    "bernoulli": lambda: stochastic.bernoulli(MEANS),
    "gaussian": lambda: stochastic.gaussian(MEANS),
    "beta": lambda: stochastic.beta(MEANS),
    "poisson": lambda: stochastic.poisson(MEANS),
    "exponential": lambda: stochastic.exponential(MEANS),
    "piecewise": lambda: stochastic.piecewise([MEANS, MEANS[::-1]], [0, 10]),
    "drifting": lambda: stochastic.drifting(MEANS),
    "sinusoidal": lambda: stochastic.sinusoidal(MEANS, 0.1),
    "restless": lambda: stochastic.restless(0 * MEANS, MEANS, 0.1 + 0 * MEANS, 0.1 + 0 * MEANS),
    "linear": lambda: contextual.linear(RNG.normal(size=(M, 3)) / 4),
    "linear, one parameter": lambda: contextual.linear([0.3, 0.4], num_models=M),
    "logistic": lambda: contextual.logistic(RNG.normal(size=(M, 3))),
    "table_routing": lambda: contextual.table_routing(TABLE),
    "market": lambda: staged.table_market(TABLE, max_deployed=8, stage_length=10, horizon=100, budget=0.5),
    "market, one slot": lambda: staged.table_market(
        TABLE, max_deployed=1, stage_length=10, horizon=100, budget=0.5, require_feasible=False
    ),
    "discovery_market": lambda: staged.discovery_market(horizon=100, stages=5, num_models=M),
    "lower_bound_market": lambda: staged.lower_bound_market(horizon=4096, max_deployed=M)(jax.random.key(0)),
    "parametric_cloud, any": lambda: CLOUD(MEANS, COSTS, reward="awc", budget=2.0, size=8),
    "parametric_cloud, sum": lambda: CLOUD(MEANS, COSTS, reward="suc", budget=4.0, size=8),
    "parametric_cloud, all": lambda: CLOUD(MEANS, COSTS, reward="aic", budget=4.0, size=8),
    "parametric_cloud, any size": lambda: CLOUD(MEANS, COSTS, reward="awc", budget=4.0, size=8, any_size=True),
    "uniform_cloud": lambda: combinatorial.uniform_cloud(num_models=M),
    "table_cloud": lambda: combinatorial.table_cloud(TABLE, budget=4.0, size=8),
    "random queues": lambda: queueing.RandomQueues(num_models=M)(jax.random.key(0)),
    "random queues, mixed": lambda: queueing.RandomQueues(num_models=M, num_offered=8, mixed=True)(jax.random.key(0)),
    "fixed_queue": lambda: queueing.fixed_queue(RNG.normal(size=(M, 3)), num_offered=8),
    "table_queue": lambda: queueing.table_queue(TABLE, num_offered=8),
    "typed_service": lambda: service.typed_service([MEANS, MEANS / 2], [COSTS, 2 * COSTS], alpha=0.6),
    "typed_service, comonotone": lambda: service.typed_service([MEANS], [COSTS], alpha=0.6, comonotone=True),
    "typed_service, noisy": lambda: service.typed_service([MEANS], [COSTS], alpha=0.6, cost_noise=0.2),
    "cell_service": lambda: service.cell_service(np.ones(8), COSTS, 0.1 * COSTS, alpha=0.6),
    "probit_service": lambda: service.probit_service(MEANS, COSTS, alpha=0.6),
    "table_service": lambda: service.table_service(TABLE, alpha=0.5),
    "uniform_cascade": lambda: cascade.uniform_cascade(M),
    "spike_cascade": lambda: cascade.spike_cascade(M),
    "pass_fail_cascade": lambda: cascade.pass_fail_cascade(M),
    "custom_cascade": lambda: cascade.custom_cascade(0.3 * RNG.uniform(size=(M, 2)), 0.01 * COSTS, 0.5 + 0 * COSTS),
    "replay_cascade": lambda: cascade.replay_cascade(TABLE.scores, 0.01 * TABLE.costs, np.arange(100) % 4),
    "query_cascade": lambda: cascade.query_cascade(TABLE.scores, 0.01 * TABLE.costs, np.ones((100, 1))),
}
SLOW = ("probit_service", "typed_service, noisy")  # A sample of 65,536 requests, in which each climbs over 64 models.


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
@pytest.mark.filterwarnings("ignore:alpha is", "ignore:.*runs.*:UserWarning")
def test_no_constructor_enumerates(name):
    tracemalloc.start()
    try:
        if name == "cell_service":
            with pytest.raises(ValueError, match="cells must have shape"):
                CASES[name]()
        else:
            CASES[name]()
        assert tracemalloc.get_traced_memory()[1] < 1 << 29
    finally:
        tracemalloc.stop()


def test_a_sample_of_answers_is_near_all_of_them():
    """At the limit of 12 models the optimum of the sample is that of all 4,096 sets, to a percent; comonotone answers need no list."""
    probability, cost = np.linspace(0.3, 0.9, 12)[None], np.linspace(1, 10, 12)[None]
    listed = service.typed_service(probability, cost, alpha=0.95)
    more = service.typed_service(
        np.c_[probability, [[0.95]]], np.c_[cost, [[1e6]]], alpha=0.95
    )  # One that is never worth its cost.
    assert float(more.clairvoyant.cost) == pytest.approx(float(listed.clairvoyant.cost), rel=0.01)
    assert float(more.best.cost) >= float(listed.clairvoyant.cost)
    np.testing.assert_allclose(listed.accuracy, probability[0], rtol=1e-6)
