"""The NumPy reference of C2MAB-V against examples worked by hand; solvers and bounds of the package have their own."""

import numpy as np
import pytest
from reference import combinatorial as ref

FRACTIONS = np.array([0.3, 0.6, 0.5, 0.6])


def test_exact_distributions_of_the_roundings():
    four = {"02": 2 / 15, "03": 1 / 6, "12": 4 / 15, "13": 1 / 3, "23": 1 / 10}
    eight = {"01": 0.05, "02": 0.35, "03": 0.1, "1": 0.05, "12": 0.2325, "13": 0.0675, "2": 0.1175, "3": 0.0325}
    for distribution, z, expected in (
        (ref.pairwise_distribution, FRACTIONS, four),
        (ref.swap_distribution, FRACTIONS, four),
        (ref.pairwise_distribution, [0.7, 0.55], {"0": 0.45, "01": 0.25, "1": 0.3}),
        (ref.swap_distribution, [0.5, 0.4, 0.7, 0.2], eight),
    ):
        found = {"".join(map(str, sorted(members))): mass for members, mass in distribution(z).items() if mass > 1e-12}
        assert found == pytest.approx(expected, abs=1e-12)


def test_pairwise_rounding_by_hand():
    # (.3, .6): p = min(.7, .6) = .6, q = min(.3, .4) = .3; uniforms[0] = .2 < .3/.9: (.9, 0).
    # (.9, .5): p = min(.1, .5) = .1, q = min(.9, .5) = .5; uniforms[1] = .9 > .5/.6: (.4, 1).
    # (.4, .6): p = min(.6, .6) = .6, q = min(.4, .4) = .4; uniforms[2] = .3 < .4: (1, 0).
    assert ref.round_pairwise(FRACTIONS, [0.2, 0.9, 0.3, 0.0]).tolist() == [True, False, True, False]
    assert ref.round_pairwise([0.0, 0.4, 1.0], [0.0, 0.0, 0.39]).tolist() == [False, True, True]


def test_swap_rounding_by_hand():
    # v = (0, .3, .1, .5, .1), sets {0,2} twice, {1,2}, {1,3}, {2,3}. Merge 1 changes nothing. Merge 2: swap 0 for 1 with
    # probability .1/.4, coin .2: {1,2}. Merge 3: swap 2 for 3 with probability .5/.9, coin .9: stays. Merge 4: 1 for 3
    # with probability .1, coin .05: {2,3}.
    coins = np.array([[0.5, 0.5], [0.2, 0.5], [0.9, 0.5], [0.05, 0.5]])
    assert ref.round_swap(FRACTIONS, coins, np.zeros(4)).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("reward", "budget", "z", "value", "members"),
    [
        ("SUC", 0.5, [0, 1, 0, 1, 0.733333, 1, 0, 0.266667, 0], 1.0442667, [1, 3, 4, 5]),
        ("AIC", 0.3, [0.8, 0.2, 0, 1, 1, 1, 0, 0, 0], 4.244515e-4, [0, 3, 4, 5]),
        ("AWC", 0.45, [0, 1, 0, 1, 0.866667, 1, 0, 0.133333, 0], 0.6938281, [1, 3, 4, 5]),
    ],
)
def test_relaxed_and_integer_optima(reward, budget, z, value, members):
    mu, cost = np.array(ref.SCIQ9_MU), np.array(ref.SCIQ9_PRICE) / 0.12
    found = ref.relaxed_optimum(reward, mu, cost, 4, budget)
    np.testing.assert_allclose(found, z, atol=1e-6)
    assert ref.relaxed_reward(reward, found, mu) == pytest.approx(value, rel=1e-6)
    assert np.flatnonzero(ref.integer_optimum(reward, mu, cost, 4, budget, np.ones(9, bool))).tolist() == members


def test_two_rounds_by_hand():
    """SUC, K=3, N=2, rho=.5, fixed costs (.1, .3, .4), delta=.1, a_mu=.1, a_c=.05."""
    params = ref.Params("SUC", np.full(3, 0.5), np.array([0.1, 0.3, 0.4]), 2, 0.5, np.zeros(3), fixed_costs=True)
    draws = {"outcome": np.array([[0.9, 0.9, 0.1], [0.1] * 3]), "tie": np.array([[0.9, 0.5, 0.1], [0] * 3])}
    draws |= {"pair": np.full((2, 3), 0.5), "arrives": None}
    run = ref.simulate(params, draws, reward_width=0.1, cost_width=0.05, delta=0.1)
    # t=1: indices 1, costs 0; the two smallest tie uniforms win: {1, 2}. Outcomes 0 and 1, cost .7, excess .2.
    # t=2: ln(2 pi^2 3/.3) + 3 ln 2 = 5.285243 + 2.079442 = 7.364685; radius sqrt(7.364685/2) = 1.918943 (n=1).
    # Indices 1, .19, 1 and costs 0, .204, .304: models 0 and 2 have the largest indices and cost .304 <= .5.
    np.testing.assert_array_equal(run["observed"], [[False, True, True], [True, False, True]])
    np.testing.assert_allclose(run["realised"], [1, 2])
    np.testing.assert_allclose(run["spent"], [0.7, 0.5])
    np.testing.assert_allclose(run["violation_mean"], [0.2, 0.1])
    # S* = {0, 2} (cost .5) has the reward 1 of every pair; Z* too.
    np.testing.assert_allclose([run["regret"], run["relaxed_regret"]], 0, atol=1e-12)


def test_bounds_by_hand():
    """K=2, t=10, delta=.1, n=50: ln(2 pi^2 2000 / .3) = 11.787482, sqrt(11.787482 / 100) = .343329; an unseen model has 1 and 0."""
    statistics = ref.Statistics(2, ([50, 0], [0.4, 0.0], [0.4, 0.0]))
    np.testing.assert_allclose(statistics.bounds(10, 2, 0.1, 0.3, 1.0), [[0.502999, 1.0], [0.056671, 0.0]], atol=1e-6)
