"""Virtual queue, predictors, pretraining and the losses of RouterDC."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import service as ref
from service_cases import cells, first_observation

from jaxroute.core import draws
from jaxroute.estimators.heads import SGD, binary_cross_entropy
from jaxroute.problems import service as sv
from jaxroute.problems.service.parts.contrastive import Clusters
from jaxroute.problems.service.sources import draw_requests


@pytest.mark.slow
def test_pretraining_and_given_parameters():
    env = cells(signal=1.0)
    head = sv.Logistic(init_spread=0.1)
    params = sv.pretrain(env, head, steps=1500, optimiser=SGD(0.02, 0.9, 1e-3))
    requests = draw_requests(env.requests, draws.key(23), 4000)
    labels = requests.satisfied.astype(jnp.float32)

    def losses(params):
        logits = jax.vmap(lambda x: head.logits(params, x))(requests.features)
        return np.asarray(jax.vmap(binary_cross_entropy)(logits, labels))

    fresh = head.init(draws.key(1), env.spec.num_features, 3)
    gain = losses(fresh) - losses(params)
    assert gain.mean() > 0.1 and gain.mean() > 5 * gain.std() / math.sqrt(4000)
    fixed = sv.Learned(head, params=params, trains=False)
    policy, obs = sv.MessPlus(c=1e6, predictor=fixed), first_observation(env)
    state = policy.init(draws.key(0), env.spec)
    action, info = policy.act(draws.key(1), state, obs, jnp.int32(3))
    feedback = sv.types.Feedback(jnp.bool_(True), jnp.float32(0), jnp.float32(1), jnp.ones(3), jnp.ones(3))
    after = jax.jit(policy.update)(draws.key(2), state, obs, action, feedback, jnp.int32(3))
    assert bool(action.explore) and int(after.num_steps) == 0 and float(after.queue.length) > 0
    chex.assert_trees_all_equal(after.params, params)
    np.testing.assert_allclose(info["probability"], jax.nn.sigmoid(head.logits(params, obs.features)), rtol=1e-5)
    trained = policy.replace(predictor=fixed.replace(trains=True))
    state = trained.init(draws.key(0), env.spec)
    chex.assert_trees_all_equal(state.params, params)
    after = jax.jit(trained.update)(draws.key(2), state, obs, action, feedback, jnp.int32(3))
    assert int(after.num_steps) == 1 and not np.array_equal(after.params["b"], params["b"])


def test_contrastive_loss_of_section_4_8():
    loss = sv.contrastive_loss(jnp.array([0.2, 0.5, -0.1]), jnp.array([False, True, True]))
    assert float(loss) == pytest.approx(1.408710, abs=1e-6)
    rng = np.random.default_rng(5)
    for models, plus, minus in ((3, 3, 3), (5, 3, 3), (6, 2, 1)):
        logits, score = rng.normal(size=(40, models)), rng.integers(0, 2, (40, models))
        both = jax.vmap(lambda l, s, plus=plus, minus=minus: sv.contrastive_loss(l, s, plus, minus))
        got = jax.jit(both)(jnp.asarray(logits, jnp.float32), jnp.asarray(score, bool))
        expected = [ref.routerdc_sample_llm(l, s, plus, minus) for l, s in zip(logits, score, strict=True)]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_cluster_loss_equals_the_reference():
    rng = np.random.default_rng(6)
    h, inside, outside = rng.normal(size=(12, 4)), rng.integers(0, 12, 12), rng.integers(0, 12, (12, 3))
    x = jnp.asarray(h, jnp.float32)
    got = jax.vmap(lambda i, j, others: sv.cluster_loss(x[i], x[j], x[others]))(jnp.arange(12), inside, outside)
    assert float(jnp.mean(got)) == pytest.approx(ref.routerdc_sample_sample(h, inside, outside), rel=1e-5)


def test_requests_inside_and_outside_a_cluster_are_drawn_uniformly():
    cluster = jnp.asarray([2, 0, 2, 1, 0, 2, 2, 1])
    clusters = Clusters.of(cluster, 4)
    assert clusters.number.tolist() == [2, 2, 4, 0]
    uniforms = jnp.asarray(np.random.default_rng(0).random((20_000, 3)), jnp.float32)
    for c in (0, 2):
        members = np.flatnonzero(np.asarray(cluster) == c)
        inside = np.asarray(jax.vmap(lambda u, c=c: clusters.inside(jnp.int32(c), u))(uniforms[:, 0]))
        assert set(inside) == set(members)
        assert np.abs(np.bincount(inside, minlength=8)[members] / 20_000 - 1 / len(members)).max() < 0.015
        outside = np.asarray(jax.vmap(lambda u, c=c: clusters.outside(jnp.int32(c), u))(uniforms))
        others = np.flatnonzero(np.asarray(cluster) != c)
        assert set(outside.ravel()) == set(others)
        assert all(len(set(row)) == 3 for row in outside[:2000])
        # Which three, in whatever order.
        sets, number = np.unique(np.sort(outside, axis=1), axis=0, return_counts=True)
        all_sets = math.comb(len(others), 3)
        assert len(sets) == all_sets
        assert np.abs(number / 20_000 - 1 / all_sets).max() < 5 * np.sqrt(1 / all_sets / 20_000)


def test_a_cluster_with_nearly_everybody_has_too_few_outside():
    clusters = Clusters.of(jnp.asarray([0, 0, 0, 1]), 2)
    found = np.asarray(clusters.outside(jnp.int32(0), jnp.asarray([0.3, 0.9, 0.5])))
    assert found[0] == 3 and ((found >= 0) & (found < 4)).all()
