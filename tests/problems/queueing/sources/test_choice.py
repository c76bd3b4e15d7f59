"""The user's choice: by hand, against the reference, and its frequencies.

Section numbers are those of `spec/acqb.md`.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import queueing as ref

from jaxroute.core import draws
from jaxroute.problems.queueing.sources.choice import best_rate, choose, shortfall


def test_coupled_choice_by_hand(double_precision):
    utility, both = jnp.array([0.2, -0.5]), jnp.array([True, True])
    for u, expected in (
        (0.0, [1, 0]),
        (0.30, [1, 0]),
        (0.431906, [1, 0]),
        (0.431907, [0, 1]),
        (0.50, [0, 1]),
        (0.70, [0, 0]),
    ):
        chosen, rate = jax.jit(choose)(utility, both, u)
        assert chosen.tolist() == [bool(x) for x in expected]
        assert float(rate) == pytest.approx(0.6463849, abs=5e-8)
    # Only what is offered can be chosen, in the order of the models.
    chosen, rate = jax.jit(choose)(jnp.array([9.0, 0.2, 9.0, -0.5]), jnp.array([False, True, False, True]), 0.5)
    assert chosen.tolist() == [False, False, False, True] and float(rate) == pytest.approx(0.6463849, abs=5e-8)


def test_choices_equal_the_reference_and_are_coupled(double_precision):
    """A larger rate departs whenever a smaller one does; with utilities beyond the range of exp as well."""
    rng, N, n = np.random.default_rng(0), 5, 4000
    v = rng.normal(size=(n, 2, N)) * rng.choice([1.0, 3.0, 400.0], size=(n, 1, 1))
    offered = rng.random((n, 2, N)) < 0.5
    offered[..., 0] |= ~offered.any(-1)
    u = rng.random(n)
    chosen, rate = jax.jit(jax.vmap(jax.vmap(choose, (0, 0, None))))(v, offered, u)
    chosen, rate = np.asarray(chosen), np.asarray(rate)
    for i in range(n):
        for side in range(2):
            S = np.flatnonzero(offered[i, side])
            place = ref.coupled_choice(v[i, side], S, u[i])
            assert np.flatnonzero(chosen[i, side]).tolist() == S[place : place + 1].tolist()
            assert rate[i, side] == pytest.approx(ref.departure_rate(v[i, side], S), abs=1e-14)
    left = chosen.any(-1)
    np.testing.assert_array_equal(left, u[:, None] <= rate)
    first, second = np.argsort(rate, axis=1).T
    rows = np.arange(n)
    assert (left[rows, first] <= left[rows, second]).all() and (left[:, 0] != left[:, 1]).any()


def test_choice_frequencies():
    utility, offered, n = jnp.array([0.2, 1.0, -0.5, 0.7]), jnp.array([True, False, True, True]), 200_000
    uniforms = draws.uniform(draws.key(3), (n,))
    chosen = np.asarray(jax.jit(jax.vmap(lambda u: choose(utility, offered, u)[0]))(uniforms))
    p = np.zeros(4)
    p[[0, 2, 3]] = ref.choice_probabilities(np.asarray(utility), (0, 2, 3))
    assert (np.abs(chosen.mean(0) - p) <= 4 * np.sqrt(p * (1 - p) / n)).all() and (chosen.sum(1) <= 1).all()
    assert 1 - p.sum() == pytest.approx((~chosen.any(1)).mean(), abs=4 * math.sqrt(0.25 / n))


@pytest.mark.fast
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_best_assortment_loses_nothing_and_others_what_they_lack(size):
    """The best rate is a sum in order of size, a shown answer's one in the order of the models: their rounding is no regret."""
    utility = np.random.default_rng(size).normal(0.0, 3.0, (4000, 7)).astype(np.float32)
    offered = np.argsort(np.argsort(-utility, axis=1), axis=1) < size
    best = best_rate(utility.T, size)
    rate = jax.vmap(choose)(utility, offered, np.zeros(4000, np.float32))[1]
    weight = np.exp(utility.astype(np.float64))
    true = (np.where(offered, weight, 0.0).sum(1) / (1.0 + np.where(offered, weight, 0.0).sum(1))).astype(np.float32)
    assert size == 1 or (np.asarray(best) != np.asarray(rate)).any()
    for largest in (best, true):  # Of drawn contexts, and of pools, whose rates are summed in double precision.
        np.testing.assert_array_equal(shortfall(largest, rate), 0.0)
    np.testing.assert_allclose(shortfall(best, rate - 0.01), 0.01, atol=1e-6)


def test_less_is_rounding_in_double_precision(double_precision):
    assert float(shortfall(jnp.float64(0.5), jnp.float64(0.5) - 1e-9)) == pytest.approx(1e-9)
    assert float(shortfall(jnp.float64(0.5), jnp.float64(0.5) - 1e-16)) == 0.0
