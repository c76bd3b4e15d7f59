"""Bounds of contextual bandits, by hand."""

import numpy as np
import pytest

from jaxroute.problems import contextual

pytestmark = pytest.mark.fast


def test_the_bound_of_oful_by_hand():
    """T = 100, d = 2, R = S = lambda = L = 1, delta = .1: 4 sqrt(200 log 51) (1 + sqrt(2 log 10 + 2 log 51)) = 503.4"""
    by_hand = 4 * np.sqrt(200 * np.log(51)) * (1 + np.sqrt(2 * np.log(10) + 2 * np.log(51)))
    assert contextual.oful_bound(100, 2, noise=1.0, delta=0.1) == pytest.approx(by_hand)
    two = contextual.oful_bound(200, 2, noise=1.0, delta=0.2, number=2)
    assert two == pytest.approx(2 * by_hand), "two parameters with half of the rounds and of the probability each"


def test_the_bound_of_squarecb_by_hand():
    """K T = 400, square regret 9, delta = 2 / e: 4 sqrt(3600) + 8 sqrt(400) = 400."""
    assert contextual.squarecb_bound(100, 4, 9.0, delta=2 / np.e) == pytest.approx(400.0)
    assert float(contextual.square_regret(100.0, 2, 5, 0.5)) == pytest.approx(5 * (0.5 + 2 * np.log(1 + 100 / 5)))
