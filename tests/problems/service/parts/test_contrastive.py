"""The losses of RouterDC."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import service as ref

from jaxroute.problems import service as sv
from jaxroute.problems.service.parts.contrastive import Clusters


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
