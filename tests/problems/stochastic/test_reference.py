"""Policies of the plain bandit against float64 loops on the same draws."""

import numpy as np
import pytest
from reference import stochastic as plain
from stochastic_cases import MEANS, SEEDS, bandit, luck, play, tie_order

from jaxroute.problems import stochastic


def references(distribution, policy, parameters):
    """The float64 loop of one policy on the draws of every seed, with the models in the order of the run's ties."""
    for seed in SEEDS:
        uniform, normal, normals, coin, arm = luck(seed)
        reward_draws = uniform if distribution == "bernoulli" else normal
        # Means and noise as the environment holds them, in single precision.
        order = tie_order(seed)
        means = [float(x) for x in np.float32(MEANS)[order]]
        common = {"distribution": distribution, "noise_scale": float(np.float32(0.4))}
        if policy == "ucb1":
            found = plain.ucb1(means, reward_draws, **parameters, **common)
        elif policy == "thompson":
            found = plain.gaussian_thompson(means, reward_draws, normals[:, order], **parameters, **common)
        else:
            anyone = (np.argsort(order)[(arm * len(MEANS)).astype(int)] + 0.5) / len(MEANS)
            found = plain.epsilon_greedy(means, reward_draws, coin, anyone, **parameters, **common)
        yield order[found[0]], *found[1:]


CASES = {
    "ucb1": (stochastic.UCB1(), {"width": 2.0**0.5}),
    "ucb1, narrow": (stochastic.UCB1(width=0.3), {"width": 0.3}),
    "thompson": (stochastic.GaussianThompson(scale=0.5), {"scale": 0.5}),
    "thompson, other prior": (
        stochastic.GaussianThompson(scale=0.8, prior_mean=0.7, prior_weight=2.5),
        {"scale": 0.8, "prior_mean": 0.7, "prior_weight": 2.5},
    ),
    "epsilon": (stochastic.EpsilonGreedy(epsilon=0.1), {"epsilon": 0.1}),
}


@pytest.mark.parametrize("distribution", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference_round_by_round(name, distribution):
    policy, parameters = CASES[name]
    chosen, rewards, regret = play(bandit(distribution), policy, double=True)
    for i, expected in enumerate(references(distribution, name.split(",")[0], parameters)):
        different = np.flatnonzero(chosen[i] != expected[0])
        assert not different.size, f"seed {SEEDS[i]}: {different.size} rounds differ, the first is {different[0]}"
        np.testing.assert_allclose(rewards[i], expected[1], atol=1e-5)
        np.testing.assert_allclose(regret[i], expected[2], atol=1e-3)


@pytest.mark.parametrize("name", ["ucb1", "thompson", "epsilon"])
def test_single_precision_is_the_same_run(name):
    """Sums of 0/1 rewards are exact in float32, so that runs part only where two scores agree to seven digits."""
    policy, parameters = CASES[name]
    chosen, _, _ = play(bandit("bernoulli"), policy, double=False)
    shares = [np.mean(chosen[i] == e[0]) for i, e in enumerate(references("bernoulli", name, parameters))]
    assert np.mean(np.equal(shares, 1.0)) > 0.5, shares
    assert min(shares) > 0.8, shares
