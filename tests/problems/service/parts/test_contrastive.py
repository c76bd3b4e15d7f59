"""The losses of RouterDC."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import service as ref

from jaxroute.problems import service as sv


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
