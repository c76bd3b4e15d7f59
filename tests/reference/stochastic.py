"""The plain K-armed bandit in float64 loops: UCB1, Gaussian Thompson sampling, epsilon-greedy and the oracle.

Every policy is fed the same reward draws, one per round and shared by all arms: a uniform for Bernoulli rewards
(reward = uniform < mean) or a standard normal for Gaussian rewards (reward = mean + noise_scale * normal). All return
(actions, rewards, regret), `[T]` each; regret is the cumulative pseudo-regret. Ties go to the lower index.
"""

import math

import numpy as np


def first_best(values):
    """Index of the largest value, the lowest one if several are equal."""
    best = 0
    for m in range(1, len(values)):
        if values[m] > values[best]:
            best = m
    return best


def play(means, reward_draws, pick, law="bernoulli", noise_scale=1.0):
    """Runs `pick(t, pulls, reward_sums) -> arm` for t = 0, 1, ... over the given reward draws."""
    if law not in ("bernoulli", "gaussian"):
        raise ValueError(law)
    means = [float(x) for x in means]
    pulls, reward_sums = [0] * len(means), [0.0] * len(means)
    actions, rewards, gaps = [], [], []
    for t, draw in enumerate(reward_draws):
        arm = pick(t, pulls, reward_sums)
        reward = float(draw < means[arm]) if law == "bernoulli" else means[arm] + noise_scale * float(draw)
        pulls[arm] += 1
        reward_sums[arm] += reward
        actions.append(arm)
        rewards.append(reward)
        gaps.append(max(means) - means[arm])
    return np.array(actions), np.array(rewards), np.cumsum(gaps)


def ucb1(means, reward_draws, width, law="bernoulli", noise_scale=1.0):
    """Largest mean + width * sqrt(log(t + 2) / pulls), t from 0; an unused arm has an infinite bound.

    Source: Auer, Cesa-Bianchi and Fischer (2002), Figure 1, with a free multiplier.
    """

    def pick(t, pulls, reward_sums):
        index = []
        for n, total in zip(pulls, reward_sums, strict=True):
            index.append(total / n + width * math.sqrt(math.log(t + 2) / n) if n else math.inf)
        return first_best(index)

    return play(means, reward_draws, pick, law, noise_scale)


def gaussian_thompson(
    means,
    reward_draws,
    policy_normals,
    scale=1.0,
    prior_mean=0.0,
    prior_weight=1.0,
    law="bernoulli",
    noise_scale=1.0,
):
    """Largest draw from the normal posteriors; `policy_normals` is `[T, K]`.

    Posterior mean (prior_mean * prior_weight + sum) / (prior_weight + n), standard deviation
    scale / sqrt(prior_weight + n): a normal prior worth `prior_weight` observations.

    Source: Agrawal and Goyal (2013), Algorithm 2, with a free prior and scale.
    """

    def pick(t, pulls, reward_sums):
        index = []
        for n, total, normal in zip(pulls, reward_sums, policy_normals[t], strict=True):
            mean = (prior_mean * prior_weight + total) / (prior_weight + n)
            index.append(mean + scale / math.sqrt(prior_weight + n) * float(normal))
        return first_best(index)

    return play(means, reward_draws, pick, law, noise_scale)


def epsilon_greedy(means, reward_draws, explore_uniforms, arm_uniforms, epsilon, law="bernoulli", noise_scale=1.0):
    """Arm floor(K * arm_uniform) if explore_uniform < min(1, epsilon), else the best mean; unused arms first.

    `epsilon` is a number, or one number per round.

    Source: Auer, Cesa-Bianchi and Fischer (2002), Figure 3, with any schedule.
    """
    epsilons = np.broadcast_to(np.asarray(epsilon, float), (len(reward_draws),))

    def pick(t, pulls, reward_sums):
        if explore_uniforms[t] < min(1.0, epsilons[t]):
            return min(math.floor(len(pulls) * arm_uniforms[t]), len(pulls) - 1)
        index = [total / n if n else math.inf for n, total in zip(pulls, reward_sums, strict=True)]
        return first_best(index)

    return play(means, reward_draws, pick, law, noise_scale)


def oracle(means, reward_draws, law="bernoulli", noise_scale=1.0):
    """The arm of largest true mean in every round."""
    best = first_best([float(x) for x in means])
    return play(means, reward_draws, lambda t, pulls, reward_sums: best, law, noise_scale)
