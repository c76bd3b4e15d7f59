"""Policies of the plain bandit against float64 loops on the same random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from reference import stochastic as plain
from stochastic_cases import MEANS, SEEDS, bandit, random_numbers, run_all_rounds, tie_order

from jaxroute.estimators import families
from jaxroute.problems import stochastic as st
from jaxroute.problems.stochastic.policies.track_and_stop import optimal_shares

LONG, SHORT = 3000, 300
WIDE = {"window": 90, "xi": 0.6, "upper": 1.5}
PRIOR = {"scale": 0.8, "prior_mean": 0.7, "prior_weight": 2.5}


# Policy, and the reference for random numbers and the order of ties.
LONG_CASES = {
    "ucb1": (st.UCB1(), lambda z, order: plain.ucb1(2.0**0.5)),
    "ucb1, narrow": (st.UCB1(width=0.3), lambda z, order: plain.ucb1(0.3)),
    "thompson": (st.GaussianThompson(scale=0.5), lambda z, order: plain.gaussian_thompson(z.normals[:, order], scale=0.5)),
    "thompson, other prior": (st.GaussianThompson(**PRIOR), lambda z, order: plain.gaussian_thompson(z.normals[:, order], **PRIOR)),
    "epsilon": (
        st.EpsilonGreedy(epsilon=0.1),
        lambda z, order: plain.epsilon_greedy(z.coin, (np.argsort(order)[(z.place * len(MEANS)).astype(int)] + 0.5) / len(MEANS), 0.1),
    ),
}  # fmt: skip
# Loops that compute every round from the whole history.
SHORT_CASES = {
    "KL-UCB": (st.KLUCB(), lambda z, _: plain.kl_ucb()),
    "KL-UCB of the proofs": (st.KLUCB(loglog=3.0), lambda z, _: plain.kl_ucb(3.0)),
    "KL-UCB, normal": (st.KLUCB(family=families.Gaussian(scale=0.4)), lambda z, _: plain.kl_ucb_gaussian(0.4)),
    # Not with rewards of 0 and 1: models with equal counts tie, and rounding decides.
    "UCB-V, normal": (st.UCBV(zeta=0.5), lambda z, _: plain.ucb_v(0.5, 1.0, 1.0)),
    "UCB-V, wide, normal": (st.UCBV(c=0.2, upper=2.0), lambda z, _: plain.ucb_v(1.2, 0.2, 2.0)),
    "MOSS": (st.MOSS(), lambda z, _: plain.moss(SHORT)),
    "MOSS, any time": (st.AnytimeMOSS(), lambda z, _: plain.moss_anytime(1.35)),
    "IMED": (st.IMED(), lambda z, _: plain.imed),
    # With the uniform prior quantiles of different counts may be equal: those of Beta(1, 2) and Beta(2, 3) at 8/9 are both 2/3.
    "Bayes-UCB": (st.BayesUCB(successes=1.3, failures=1.1), lambda z, _: plain.bayes_ucb(1.3, 1.1)),
    "Exp3": (st.Exp3(gamma=0.2), lambda z, _: plain.exp3(z.coin, 0.2, len(MEANS))),
    "Exp3++": (st.Exp3PlusPlus(alpha=1.0, beta=0.5), lambda z, _: plain.exp3_plus_plus(z.coin, 1.0, 0.5, len(MEANS))),
    "SW-UCB": (st.SlidingWindowUCB(**WIDE), lambda z, _: plain.sliding_window_ucb(**WIDE)),
    "D-UCB": (st.DiscountedUCB(discount=0.98, xi=0.2), lambda z, _: plain.discounted_ucb(0.98, 0.2, 1.0)),
}


def expected_runs(name, distribution, seeds=SEEDS):
    """Chosen models, rewards and regret of the reference for every seed; its models are numbered in the order of the run's ties."""
    _, reference = (LONG_CASES | SHORT_CASES)[name]
    horizon = LONG if name in LONG_CASES else SHORT
    for seed in seeds:
        z = random_numbers(seed)
        # Draws from a distribution over models have no ties.
        order = np.arange(len(MEANS)) if "Exp3" in name else tie_order(seed)
        # Means and noise as the environment holds them, in single precision.
        means = [float(x) for x in np.float32(MEANS)[order]]
        rewards = (z.uniform if distribution == "bernoulli" else z.normal)[:horizon]
        chosen, earned, regret = plain.simulate(means, rewards, reference(z, order), distribution, float(np.float32(0.4)))
        yield order[chosen], earned, regret


def assert_equal_runs(chosen, data, expected, seeds):
    for i, (models, rewards, regret) in enumerate(expected):
        different = np.flatnonzero(chosen[i] != models)
        assert not different.size, f"seed {seeds[i]}: {different.size} rounds differ, the first is {different[0]}"
        earned = np.diff(data["reward"].values[i] * data["time"].values, prepend=0)
        np.testing.assert_allclose(earned, rewards, atol=1e-5)
        np.testing.assert_allclose(data["regret"].values[i], regret, atol=1e-3)


@pytest.mark.parametrize("distribution", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", LONG_CASES)
def test_equals_the_reference_round_by_round(name, distribution):
    chosen, data = run_all_rounds(bandit(distribution), LONG_CASES[name][0], LONG)
    assert_equal_runs(chosen, data, expected_runs(name, distribution), SEEDS)


@pytest.mark.parametrize("name", SHORT_CASES)
def test_equals_a_loop_over_the_history(name):
    distribution, seeds = "gaussian" if "normal" in name else "bernoulli", SEEDS[:2]
    chosen, data = run_all_rounds(bandit(distribution), SHORT_CASES[name][0], SHORT, seeds)
    assert_equal_runs(chosen, data, expected_runs(name, distribution, seeds), seeds)
    assert all(len(set(run)) == len(MEANS) for run in chosen)


@pytest.mark.parametrize("name", ["ucb1", "thompson", "epsilon"])
def test_single_precision_has_the_same_runs(name):
    """Sums of 0/1 rewards are exact in float32, so runs differ only after two scores that agree to seven digits."""
    chosen, _ = run_all_rounds(bandit("bernoulli"), LONG_CASES[name][0], LONG, double=False)
    shares = [np.mean(chosen[i] == e[0]) for i, e in enumerate(expected_runs(name, "bernoulli"))]
    assert np.mean(np.equal(shares, 1.0)) > 0.5, shares
    assert min(shares) > 0.8, shares


@pytest.mark.parametrize("uniform", [False, True])
def test_track_and_stop_equals_the_reference(uniform):
    """Choices, the round of the decision, and the recommendation in all later rounds."""
    means, delta, seeds = [0.15, 0.7, 0.3], 0.2, SEEDS[:2]
    policy = (st.UniformAndStop if uniform else st.TrackAndStop)(delta=delta)
    chosen, data = run_all_rounds(st.bernoulli(means), policy, SHORT, seeds, record=("pulls", "samples", "decided"))
    for i, seed in enumerate(seeds):
        rewards, order = random_numbers(seed).uniform[:SHORT], tie_order(seed, len(means))
        track = plain.TrackAndStop(delta, uniform)
        arms, _, _ = plain.simulate([float(x) for x in np.float32(means)[order]], rewards, track)
        stopped = track.decided
        np.testing.assert_array_equal(chosen[i], order[arms])
        assert 10 < stopped < SHORT
        assert data["samples"].values[i, -1] == stopped
        assert (data["decided"].values[i] == (data["time"].values >= stopped)).all()


@pytest.mark.parametrize(
    ("family", "kl", "low", "high"),
    [
        (families.Bernoulli(), plain.kl_bernoulli, 0.0001, 0.9999),
        (families.Gaussian(0.5), lambda x, y: plain.kl_gaussian(x, y, 0.5), -2.0, 2.0),
        pytest.param(families.Poisson(), plain.kl_poisson, 0.05, 8.0, marks=pytest.mark.slow),
        pytest.param(families.Exponential(), plain.kl_exponential, 0.05, 8.0, marks=pytest.mark.slow),
    ],
)
def test_optimal_shares(family, kl, low, high):
    """Shares of 2 and 10 models, with arbitrary means, close means, and several best models."""
    rng = np.random.default_rng(0)
    shares = jax.jit(jax.vmap(lambda mean: optimal_shares(mean, family)))
    for size in (2, 10):
        means = np.concatenate([rng.uniform(low, high, (6, size)), (low + high) / 2 + 0.02 * rng.random((3, size))])
        means[-1, :2] = means[-1].max() + 0.01
        with x64():
            found = np.asarray(shares(jnp.asarray(means)))
        for mean, share in zip(means, found, strict=True):
            np.testing.assert_allclose(share, plain.best_shares(mean.tolist(), kl), atol=1e-4)
