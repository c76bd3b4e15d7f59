"""Distributions of the requests of every source."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import service as ref
from service_cases import assert_columns_close, cells, probit, small_table, table, typed

from jaxroute.core import draws
from jaxroute.data import RoutingTable
from jaxroute.problems import service as sv
from jaxroute.problems.service.sources import draw_requests


def test_posterior_of_section_4_5():
    for signal, printed in ((0.15, (0.62433, 0.70882, 0.82337)), (1.0, (0.72424, 0.45049, 0.93703))):
        requests = cells(signal=signal).requests
        np.testing.assert_allclose(requests.success(jnp.array([0.5, -1, 1, 0.3, -2.0, 1])), printed, atol=6e-6)
        rng = np.random.default_rng(0)
        for x in rng.normal(size=(20, 6)).astype(np.float32):
            expected = ref.cell_probabilities(np.asarray(x, float), ref.CELLS["winogrande"], float(np.float32(signal)))[1]
            np.testing.assert_allclose(requests.success(x), expected, rtol=2e-6)


def drawn(env, number=40_000, seed=11):
    requests = draw_requests(env.requests, draws.key(seed), number)
    return [np.asarray(x, np.float64) for x in (requests.features, requests.satisfied, requests.cost, requests.success)]


def assert_calibrated(features, satisfied, success, what):
    """The error of the probability is uncorrelated with every feature and with the probability itself."""
    given = np.concatenate([features, np.ones((len(features), 1)), success], axis=1)
    products = ((satisfied - success)[:, :, None] * given[:, None, :]).reshape(len(features), -1)
    assert_columns_close(products, np.zeros(products.shape[1]), what)


@pytest.mark.parametrize("comonotone", [False, True])
def test_distribution_of_types(comonotone):
    env = typed(comonotone=comonotone)
    features, satisfied, cost, success = drawn(env)
    assert_columns_close(features, ref.DEMO_WEIGHTS, "types")
    for k in range(3):
        here = features[:, k] == 1
        assert_columns_close(satisfied[here], ref.DEMO_SATISFACTION[k], f"type {k}")
        assert_columns_close(cost[here], ref.DEMO_COST[k], f"cost of type {k}")
        assert_columns_close(np.log(cost[here]), np.log(ref.DEMO_COST[k]) - 0.2**2 / 2, f"logarithm of the cost of type {k}")
        np.testing.assert_allclose(np.log(cost[here]).std(axis=0), 0.2, rtol=0.05)
        np.testing.assert_allclose(success[here], np.tile(ref.DEMO_SATISFACTION[k], (here.sum(), 1)), rtol=1e-6)
        distribution = ref.label_distribution(ref.DEMO_SATISFACTION[k], "comonotone" if comonotone else "independent")
        hits = np.stack([(satisfied[here] == labels).all(1) for labels, _ in distribution], axis=1)
        assert_columns_close(hits, [p for _, p in distribution], f"joint distribution of type {k}")
        assert hits.sum() == here.sum()
    assert_calibrated(features, satisfied, success, "types")
    np.testing.assert_allclose(env.requests.success(jnp.asarray(features[0])), success[0], rtol=1e-6)


def test_requests_from_their_draws():
    """One request of the reference from the same normal draws, of the cells and of the probit model."""
    env, env2 = cells(), probit(from_features=0.5, shared=0.6)
    source, source2 = env.requests, env2.requests
    numbers = range(200)
    k_draw = draws.split(draws.key(17))[1]
    keys = jax.vmap(lambda i: draws.fold_in(k_draw, i))(jnp.arange(200))

    def of_cells(key):
        k_cell, k_feature, k_cost = draws.split(key, 3)
        return draws.uniform(k_cell), draws.normal(k_feature, (5,)), draws.normal(k_cost, (3,))

    def of_probit(key):
        k_x, k_shared, k_noise, k_length = draws.split(key, 4)
        return draws.normal(k_x, (4,)), draws.normal(k_shared), draws.normal(k_noise, (4,)), draws.normal(k_length)

    lots, lots2 = ([np.asarray(x, float) for x in jax.jit(jax.vmap(f))(keys)] for f in (of_cells, of_probit))
    got, got2 = drawn(env, seed=17), drawn(env2, seed=17)
    for i in numbers:
        u, z, z_cost = (x[i] for x in lots)
        features, labels, cost = ref.cell_request(u, z, z_cost, ref.CELLS["winogrande"], 0.6, *ref.ENERGY["winogrande"])
        np.testing.assert_allclose(got[0][i], features, atol=1e-5)
        np.testing.assert_array_equal(got[1][i], labels)
        np.testing.assert_allclose(got[2][i], cost, rtol=1e-5)
        x, shared, noise, length = (v[i] for v in lots2)
        accuracy, direction = [0.6, 0.65, 0.8, 0.9], np.asarray(source2.direction, float)
        np.testing.assert_array_equal(got2[1][i], ref.probit_satisfied(x, shared, noise, accuracy, direction, 0.5, 0.6))
        np.testing.assert_allclose(got2[3][i], ref.probit_probability(x, accuracy, direction, 0.5), rtol=1e-4)
        np.testing.assert_allclose(got2[2][i], ref.lognormal_cost([40, 60, 200, 900], 0.4, length), rtol=1e-5)
    assert source.num_features == 6 and source2.num_features == 4


def test_a_table_is_played_row_by_row():
    env, rows = table(), small_table()
    orders = []
    for seed in range(3):
        state = env.requests.init(draws.key(seed))
        order = np.asarray(state)
        np.testing.assert_array_equal(np.sort(order), np.arange(rows.num_queries))
        for t in (0, 1, 149, 150, 299, 301):
            request = env.requests.draw(draws.key(9), state, jnp.int32(t))
            row = order[t % 150]
            np.testing.assert_array_equal(request.satisfied, rows.scores[row] > 0.5)
            np.testing.assert_allclose(request.cost, rows.costs[row], rtol=1e-6)
            np.testing.assert_allclose(request.features, np.append(rows.features[row], 1.0), rtol=1e-6)
        orders.append(order)
    assert not np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[1], orders[2])
    np.testing.assert_allclose(env.accuracy, rows.scores.mean(0), rtol=1e-6)
    np.testing.assert_allclose(env.mean_cost, rows.costs.mean(0), rtol=1e-5)
    swapped = RoutingTable(rows.scores[:, ::-1], rows.costs[:, ::-1], rows.models[::-1], features=rows.features)
    other = sv.table_service(swapped, alpha=0.75)
    assert other.names == rows.models == env.names
    np.testing.assert_array_equal(other.requests.labels, env.requests.labels)
    graded = RoutingTable(rows.scores * 0.6, rows.costs, rows.models)
    assert np.asarray(sv.table_service(graded, alpha=0.75, threshold=0.6).requests.labels).sum() == rows.scores.sum()
    assert np.asarray(sv.table_service(graded, alpha=0.75, threshold=0.61).requests.labels).sum() == 0
