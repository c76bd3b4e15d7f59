"""The shelf's policies against float64 loops on the same draws, which work everything out anew in each round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64
from reference import stochastic as plain
from stochastic_cases import MEANS, bandit, luck, tie_order

from jaxroute import Execution, simulate
from jaxroute.estimators import families
from jaxroute.problems import stochastic
from jaxroute.problems.stochastic.parts.allocation import optimal_shares

SEEDS, HORIZON = (0, 5), 300
SINGLE = [float(x) for x in np.float32(MEANS)]  # As the environment holds them.
Gaussian = families.Gaussian(scale=0.4)
WIDE = {"window": 90, "xi": 0.6, "upper": 1.5}

# Policy, distribution, and the reference of the means, of the draws of the rewards, and of the uniforms of the policy.
CASES = {
    "KL-UCB": (stochastic.KLUCB(), "bernoulli", lambda m, r, u: plain.kl_ucb(m, r)),
    "KL-UCB of the proofs": (stochastic.KLUCB(loglog=3.0), "bernoulli", lambda m, r, u: plain.kl_ucb(m, r, 3.0)),
    "KL-UCB, normal": (
        stochastic.KLUCB(family=Gaussian),
        "gaussian",
        lambda m, r, u: plain.kl_ucb_gaussian(m, r, 0.4, distribution="gaussian", noise_scale=float(np.float32(0.4))),
    ),
    # Not with rewards of 0 and 1: models with equal counts tie, and rounding decides.
    "UCB-V": (
        stochastic.UCBV(zeta=0.5),
        "gaussian",
        lambda m, r, u: plain.ucb_v(m, r, 0.5, 1.0, 1.0, distribution="gaussian", noise_scale=float(np.float32(0.4))),
    ),
    "UCB-V, normal": (
        stochastic.UCBV(c=0.2, upper=2.0),
        "gaussian",
        lambda m, r, u: plain.ucb_v(m, r, 1.2, 0.2, 2.0, distribution="gaussian", noise_scale=float(np.float32(0.4))),
    ),
    "MOSS": (stochastic.MOSS(), "bernoulli", lambda m, r, u: plain.moss(m, r, HORIZON)),
    "MOSS, any time": (stochastic.AnytimeMOSS(), "bernoulli", lambda m, r, u: plain.moss_anytime(m, r, 1.35)),
    "IMED": (stochastic.IMED(), "bernoulli", lambda m, r, u: plain.imed(m, r)),
    # With the uniform prior quantiles of different counts may be equal: those of Beta(1, 2) and Beta(2, 3) at 8/9 are both 2/3.
    "Bayes-UCB": (
        stochastic.BayesUCB(successes=1.3, failures=1.1),
        "bernoulli",
        lambda m, r, u: plain.bayes_ucb(m, r, 1.3, 1.1),
    ),
    "Exp3": (stochastic.Exp3(gamma=0.2), "bernoulli", lambda m, r, u: plain.exp3(m, r, u, 0.2)),
    "Exp3++": (
        stochastic.Exp3PlusPlus(alpha=1.0, beta=0.5),
        "bernoulli",
        lambda m, r, u: plain.exp3_plus_plus(m, r, u, 1.0, 0.5),
    ),
    "SW-UCB": (stochastic.SlidingWindowUCB(**WIDE), "bernoulli", lambda m, r, u: plain.sliding_window_ucb(m, r, **WIDE)),
    "D-UCB": (
        stochastic.DiscountedUCB(discount=0.98, xi=0.2),
        "bernoulli",
        lambda m, r, u: plain.discounted_ucb(m, r, 0.98, 0.2, 1.0),
    ),
}


def draws_of(seed, distribution):
    """Draws of the rewards, and the first uniform of the policy, of each round."""
    uniform, normal, _, coin, _ = luck(seed)
    return (uniform if distribution == "bernoulli" else normal)[:HORIZON], coin[:HORIZON]


def played(env, policy, **options):
    """Chosen models `[seed, T]`, and the result, computed in double precision."""
    options = {"record": ["pulls", "regret"], "horizon": HORIZON, "seeds": SEEDS, "record_every": 1} | options
    with x64():
        data = simulate(
            in_double(env), in_double(policy), progress=False, execution=Execution(compile="quick"), **options
        ).isel(policy=0)
    return np.diff(data["pulls"].values, axis=1, prepend=0).argmax(-1), data


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference_round_by_round(name):
    policy, distribution, reference = CASES[name]
    chosen, data = played(bandit(distribution), policy)
    for i, seed in enumerate(SEEDS):
        # The reference gives ties to the lowest number: its models are numbered in the order of the run's ties. Draws from a distribution have none.
        order = np.arange(len(MEANS)) if "Exp3" in name else tie_order(seed)
        expected = reference([SINGLE[k] for k in order], *draws_of(seed, distribution))
        different = np.flatnonzero(chosen[i] != order[expected[0]])
        assert not different.size, f"seed {seed}: {different.size} rounds differ, the first is {different[0]}"
        np.testing.assert_allclose(data["regret"].values[i], expected[2], atol=1e-3)
        assert len(set(chosen[i])) == len(MEANS)


@pytest.mark.parametrize("uniform", [False, True])
def test_track_and_stop_equals_the_reference(uniform):
    """Choices, the round of the decision, and what is recommended ever after."""
    means, delta = [0.15, 0.7, 0.3], 0.2
    policy = (stochastic.UniformAndStop if uniform else stochastic.TrackAndStop)(delta=delta)
    chosen, data = played(stochastic.bernoulli(means), policy, record=["pulls", "samples", "decided"])
    for i, seed in enumerate(SEEDS):
        rewards, _ = draws_of(seed, "bernoulli")
        order = tie_order(seed, len(means))
        arms, _, _, stopped = plain.track_and_stop([float(x) for x in np.float32(means)[order]], rewards, delta, uniform)
        np.testing.assert_array_equal(chosen[i], order[arms])
        assert 10 < stopped < HORIZON
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
    """Of 2 and 10 models with means anywhere and with close ones; several best ones share alike."""
    rng = np.random.default_rng(0)
    shares = jax.jit(jax.vmap(lambda mean: optimal_shares(mean, family)))
    for size in (2, 10):
        means = np.concatenate([rng.uniform(low, high, (6, size)), (low + high) / 2 + 0.02 * rng.random((3, size))])
        means[-1, :2] = means[-1].max() + 0.01
        with x64():
            found = np.asarray(shares(jnp.asarray(means)))
        for mean, got in zip(means, found, strict=True):
            np.testing.assert_allclose(got, plain.best_shares(mean.tolist(), kl), atol=1e-4)
