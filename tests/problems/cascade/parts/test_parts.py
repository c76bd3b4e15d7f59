"""Links, exploration, and the inverse that a streaming estimator stores."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import f32, fed, random_samples, slow

from jaxroute.core import draws
from jaxroute.estimators import links
from jaxroute.problems.cascade.parts.exploration import BlockExploration, DecayingExploration, ExplorationPhase, WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton


@pytest.mark.parametrize("link", [links.IDENTITY, links.TANH, links.FLAT, links.LOGISTIC, slow(links.PROBIT)], ids=str)
def test_links(link):
    s = f32(np.linspace(-1.6, 1.6, 65))
    value, slope = link.value(s), link.slope(s)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(link.value))(s), atol=2e-6)
    np.testing.assert_allclose(value, jax.vmap(jax.grad(link.integral))(s), atol=2e-6)
    np.testing.assert_allclose((link.inverse(value) - s) * slope, 0.0, atol=1e-6)  # Values are rounded.
    assert float(link.integral(f32(0.0))) == pytest.approx(0, abs=1e-7)
    assert (np.diff(value) > 0).all() and (slope > 0).all()
    assert link is links.IDENTITY or (np.abs(value) < 1).all()


def test_flat_link_is_smooth_and_below_one():
    u = f32([0.3, 0.9 - 1e-4, 0.9, 0.9 + 1e-4, 1.3, 30.0])
    value = links.FLAT.value(u)
    np.testing.assert_allclose(value[:4], u[:4], atol=1e-6)
    assert 0.99 < value[4] < 1.0 and value[5] == 1.0
    np.testing.assert_allclose(links.FLAT.value(-u), -value)


@functools.partial(jax.jit, static_argnums=2)
def forced_rounds(exploration, horizon, rounds):
    """Which of the periods 0 to `rounds` are forced, and which are learned from, `[256, rounds + 1]`."""

    def run(number):
        key = draws.fold_in(draws.key(2), number)
        state = exploration.init(key)

        def one(t):
            forced = exploration.forced(draws.fold_in(key, t), state, t, horizon)
            return forced, exploration.learns(forced, t, horizon)

        return jax.vmap(one)(jnp.arange(rounds + 1))

    return jax.vmap(run)(jnp.arange(256))


def test_when_boxes_are_opened_to_learn():
    t = np.arange(65)
    forced, learns = (np.asarray(x) for x in forced_rounds(WarmUp(7), 64.0, 64))
    assert (forced == (t <= 7)).all() and learns.all()
    # epsilon: min(1, t^(-1/3)).
    forced, learns = (np.asarray(x) for x in forced_rounds(DecayingExploration(), 64.0, 64))
    probability = np.minimum(1, np.maximum(t, 1) ** (-1 / 3))
    assert forced[:, :2].all() and learns.all()
    assert (np.abs(forced.mean(axis=0) - probability) <= 4 * np.sqrt(probability * (1 - probability) / 256) + 1e-9).all()
    assert not np.asarray(forced_rounds(DecayingExploration(0.0), 64.0, 64)[0]).any()
    # Then commit: T^(2/3) periods, rounded up, and not one more where it is whole.
    for horizon, rounds in ((64, 16), (1000, 100), (2000, 159), (100, 22)):
        forced, learns = (np.asarray(x) for x in forced_rounds(ExplorationPhase(), float(horizon), 200))
        assert (forced == (np.arange(201) <= rounds)).all() and (learns == forced).all()
    assert np.asarray(forced_rounds(ExplorationPhase(3), 64.0, 64)[0]).sum() == 256 * 4


@pytest.mark.parametrize(("horizon", "length"), [(64, 2), (729, 3), (730, 4), (2000, 4), (4096, 4), (1, 1)])
def test_once_per_block(horizon, length):
    """Exactly one forced period in each block of `T^(1/6)`; it is learned from, the others are not, nor is the free one."""
    rounds = 60 * length
    forced, learns = (np.asarray(x) for x in forced_rounds(BlockExploration(), float(horizon), rounds))
    blocks = forced[:, 1:].reshape(256, 60, length)
    assert (blocks.sum(axis=-1) == 1).all()
    places = blocks.mean(axis=(0, 1))
    assert (np.abs(places - 1 / length) < 4 * math.sqrt(1 / (length * 256 * 60)) + 1e-9).all()
    np.testing.assert_array_equal(learns[:, 1:], forced[:, 1:])
    assert not learns[:, 0].any()
    assert (
        np.asarray(forced_rounds(BlockExploration(5), float(horizon), 60)[0])[:, 1:].reshape(256, 12, 5).sum(-1) == 1
    ).all()


def test_inverse_is_symmetric_to_the_last_bit():
    """What differs from that would stay while the rest shrinks."""
    psi, score, cost = random_samples(2000)
    state, _ = fed(StreamingNewton(), psi, score, cost)
    inverse = np.asarray(state.inverse.total[:, :, 0])
    assert inverse.max() < 0.1
    np.testing.assert_array_equal(inverse, inverse.T)
