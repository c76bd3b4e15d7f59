"""The plain K-armed bandit in float64 loops: UCB1, Gaussian Thompson sampling, epsilon-greedy and the oracle.

Every policy has the same reward draws, one per round and shared by all arms: a uniform for Bernoulli rewards
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


def simulate(means, reward_draws, pick, distribution="bernoulli", noise_scale=1.0):
    """Runs `pick(t, pulls, reward_sums) -> arm` for t = 0, 1, ... over the given reward draws."""
    if distribution not in ("bernoulli", "gaussian"):
        raise ValueError(distribution)
    means = [float(x) for x in means]
    pulls, reward_sums = [0] * len(means), [0.0] * len(means)
    actions, rewards, gaps = [], [], []
    for t, draw in enumerate(reward_draws):
        arm = pick(t, pulls, reward_sums)
        reward = float(draw < means[arm]) if distribution == "bernoulli" else means[arm] + noise_scale * float(draw)
        pulls[arm] += 1
        reward_sums[arm] += reward
        actions.append(arm)
        rewards.append(reward)
        gaps.append(max(means) - means[arm])
    return np.array(actions), np.array(rewards), np.cumsum(gaps)


def ucb1(means, reward_draws, width, distribution="bernoulli", noise_scale=1.0):
    """Largest mean + width * sqrt(log(t + 2) / pulls), t from 0; an unused arm has an infinite bound.

    Source: Auer, Cesa-Bianchi and Fischer (2002), Figure 1, with a free multiplier.
    """

    def pick(t, pulls, reward_sums):
        index = []
        for n, total in zip(pulls, reward_sums, strict=True):
            index.append(total / n + width * math.sqrt(math.log(t + 2) / n) if n else math.inf)
        return first_best(index)

    return simulate(means, reward_draws, pick, distribution, noise_scale)


def gaussian_thompson(
    means,
    reward_draws,
    policy_normals,
    scale=1.0,
    prior_mean=0.0,
    prior_weight=1.0,
    distribution="bernoulli",
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

    return simulate(means, reward_draws, pick, distribution, noise_scale)


def epsilon_greedy(means, reward_draws, explore_uniforms, arm_uniforms, epsilon, distribution="bernoulli", noise_scale=1.0):
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

    return simulate(means, reward_draws, pick, distribution, noise_scale)


def oracle(means, reward_draws, distribution="bernoulli", noise_scale=1.0):
    """The arm of largest true mean in every round."""
    best = first_best([float(x) for x in means])
    return simulate(means, reward_draws, lambda t, pulls, reward_sums: best, distribution, noise_scale)


# Policies that compute every round from the whole history.


def simulate_from_history(means, reward_draws, pick, distribution="bernoulli", noise_scale=1.0):
    """Runs `pick(t, arms, rewards) -> arm` for t = 1, 2, ... on the history so far, two lists."""
    means = [float(x) for x in means]
    arms, rewards, gaps = [], [], []
    for t, draw in enumerate(reward_draws, start=1):
        arm = pick(t, arms, rewards)
        rewards.append(float(draw < means[arm]) if distribution == "bernoulli" else means[arm] + noise_scale * float(draw))
        arms.append(arm)
        gaps.append(max(means) - means[arm])
    return np.array(arms), np.array(rewards), np.cumsum(gaps)


def by_index(size, index):
    """`pick` for the largest `index(t, n, total, rewards of the arm)`; an arm that was never used comes first.

    Sums are carried from round to round for speed.
    """
    seen = [[] for _ in range(size)]

    def pick(t, arms, rewards):
        if arms:
            seen[arms[-1]].append(rewards[-1])
        return first_best([index(t, len(own), sum(own), own) if own else math.inf for own in seen])

    return pick


def kl_bernoulli(x, y):
    """Divergence of Bernoulli distributions, infinite if y gives probability 0 to a possible reward of x."""
    total = 0.0
    for p, q in ((x, y), (1.0 - x, 1.0 - y)):
        if p > 0.0:
            total += p * math.log(p / q) if q > 0.0 else math.inf
    return total


def kl_gaussian(x, y, scale):
    return (x - y) ** 2 / (2.0 * scale**2)


def kl_poisson(x, y):
    return y - x + (x * math.log(x / y) if x > 0.0 else 0.0)


def kl_exponential(x, y):
    return x / y - 1.0 - math.log(x / y)


def largest_within(kl, x, level, high):
    """The largest y in [x, high] with kl(x, y) <= level, by bisection."""
    low = x
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if kl(x, middle) <= level else (low, middle)
    return low


def kl_ucb(means, reward_draws, loglog=0.0, **distribution):
    """Garivier and Cappe (2011), Algorithm 1, for rewards in [0, 1]."""

    def index(t, n, total, _):
        level = math.log(t) + loglog * math.log(max(math.log(t), 1.0))
        return largest_within(kl_bernoulli, total / n, level / n, 1.0)

    return simulate_from_history(means, reward_draws, by_index(len(means), index), **distribution)


def kl_ucb_gaussian(means, reward_draws, scale, **distribution):
    """The same for normal rewards: the bound in closed form, which is UCB's."""

    def index(t, n, total, _):
        return total / n + scale * math.sqrt(2.0 * math.log(t) / n)

    return simulate_from_history(means, reward_draws, by_index(len(means), index), **distribution)


def ucb_v(means, reward_draws, zeta, c, upper, **distribution):
    """Audibert, Munos and Szepesvari (2009), UCB-V with E = zeta log t."""

    def index(t, n, total, own):
        variance = max(sum(x * x for x in own) / n - (total / n) ** 2, 0.0)
        e = zeta * math.log(t)
        return total / n + math.sqrt(2.0 * variance * e / n) + 3.0 * c * upper * e / n

    return simulate_from_history(means, reward_draws, by_index(len(means), index), **distribution)


def moss(means, reward_draws, horizon, **distribution):
    """Audibert and Bubeck (2009), MOSS."""

    def index(_, n, total, __):
        return total / n + math.sqrt(max(math.log(horizon / (len(means) * n)), 0.0) / n)

    return simulate_from_history(means, reward_draws, by_index(len(means), index), **distribution)


def moss_anytime(means, reward_draws, alpha, **distribution):
    """Degenne and Perchet (2016), MOSS-anytime."""

    def index(t, n, total, _):
        return total / n + math.sqrt((1.0 + alpha) / 2.0 * max(math.log(t / (len(means) * n)), 0.0) / n)

    return simulate_from_history(means, reward_draws, by_index(len(means), index), **distribution)


def imed(means, reward_draws, **distribution):
    """Honda and Takemura (2015), IMED, with the Bernoulli divergence."""
    size = len(means)

    def pick(t, arms, rewards):
        del t
        n = [arms.count(m) for m in range(size)]
        mean = [sum(x for a, x in zip(arms, rewards, strict=True) if a == m) / max(n[m], 1) for m in range(size)]
        if min(n) == 0:
            return n.index(0)
        best = max(mean)
        cost = [n[m] * (kl_bernoulli(mean[m], best) if mean[m] < best else 0.0) + math.log(n[m]) for m in range(size)]
        return first_best([-x for x in cost])

    return simulate_from_history(means, reward_draws, pick, **distribution)


def bayes_ucb(means, reward_draws, successes=1.0, failures=1.0, **distribution):
    """Kaufmann, Cappe and Garivier (2012), Algorithm 1 with c = 0; the first round's t is 2. The quantile is SciPy's."""
    from scipy.special import betainccinv

    size = len(means)
    wins, losses = np.full(size, successes), np.full(size, failures)

    def pick(t, arms, rewards):
        if arms:
            wins[arms[-1]] += rewards[-1]
            losses[arms[-1]] += 1.0 - rewards[-1]
        return first_best(betainccinv(wins, losses, 1.0 / (t + 1.0)))

    return simulate_from_history(means, reward_draws, pick, **distribution)


def drawn(probability, u):
    """The arm on which `u` falls when the unit interval is cut by the probabilities."""
    total, threshold = 0.0, u * sum(probability)
    for m, p in enumerate(probability):
        total += p
        if threshold < total:
            return m
    return len(probability) - 1


def exp3(means, reward_draws, policy_uniforms, gamma, **distribution):
    """Auer, Cesa-Bianchi, Freund and Schapire (2002), Fig. 1: the weights are products of exponentials."""
    size = len(means)
    weight = [1.0] * size
    last = [0.0] * size

    def pick(t, arms, rewards):
        if arms:
            weight[arms[-1]] *= math.exp(gamma * rewards[-1] / (size * last[arms[-1]]))
        last[:] = [(1.0 - gamma) * w / sum(weight) + gamma / size for w in weight]
        return drawn(last, policy_uniforms[t - 1])

    return simulate_from_history(means, reward_draws, pick, **distribution)


def exp3_plus_plus(means, reward_draws, policy_uniforms, alpha, beta, **distribution):
    """Seldin and Slivkins (2014), Algorithm 1; gaps by Seldin and Lugosi (2017)."""
    size = len(means)
    estimate, loss, n, last = [0.0] * size, [0.0] * size, [0] * size, [0.0] * size

    def pick(t, arms, rewards):
        if arms:
            arm = arms[-1]
            n[arm] += 1
            loss[arm] += 1.0 - rewards[-1]
            estimate[arm] += (1.0 - rewards[-1]) / last[arm]
        upper, lower = [1.0] * size, [0.0] * size
        for m in range(size):
            if n[m]:
                radius = math.sqrt(alpha * math.log(t * size ** (1.0 / alpha)) / (2.0 * n[m]))
                upper[m], lower[m] = min(1.0, loss[m] / n[m] + radius), max(0.0, loss[m] / n[m] - radius)
        eta = 0.5 * math.sqrt(math.log(size) / (t * size))
        epsilon = []
        for m in range(size):
            gap = max(0.0, lower[m] - min(upper))
            xi = beta * math.log(t) / (t * gap * gap) if gap > 0.0 else math.inf
            epsilon.append(min(0.5 / size, eta, xi))
        rho = [math.exp(-eta * (x - min(estimate))) for x in estimate]
        last[:] = [(1.0 - sum(epsilon)) * r / sum(rho) + e for r, e in zip(rho, epsilon, strict=True)]
        return drawn(last, policy_uniforms[t - 1])

    return simulate_from_history(means, reward_draws, pick, **distribution)


def sliding_window_ucb(means, reward_draws, window, xi, upper, **distribution):
    """Garivier and Moulines (2011), SW-UCB; sums of the last rounds, computed from scratch in each."""
    size = len(means)

    def pick(t, arms, rewards):
        recent = list(zip(arms, rewards, strict=True))[-window:]
        index = []
        for m in range(size):
            own = [x for a, x in recent if a == m]
            radius = upper * math.sqrt(xi * math.log(min(t, window)) / len(own)) if own else math.inf
            index.append(sum(own) / len(own) + radius if own else math.inf)
        return first_best(index)

    return simulate_from_history(means, reward_draws, pick, **distribution)


def discounted_ucb(means, reward_draws, discount, xi, upper, **distribution):
    """Garivier and Moulines (2011), D-UCB; sums weighted by powers of the discount, computed from scratch in each round."""
    size = len(means)

    def pick(t, arms, rewards):
        del t
        weight = discount ** np.arange(len(arms) - 1, -1, -1, dtype=float)
        n = [float(weight[np.equal(arms, m)].sum()) for m in range(size)]
        if min(n) == 0.0:
            return n.index(0.0)
        total = [float((weight * rewards)[np.equal(arms, m)].sum()) for m in range(size)]
        radius = [2.0 * upper * math.sqrt(xi * max(math.log(sum(n)), 0.0) / x) for x in n]
        return first_best([x / y + r for x, y, r in zip(total, n, radius, strict=True)])

    return simulate_from_history(means, reward_draws, pick, **distribution)


def best_shares(mean, kl):
    """The shares of Garivier and Kaufmann (2016), Theorem 5, by two nested searches for roots."""
    from scipy.optimize import brentq

    best = max(mean)
    first = [m for m, x in enumerate(mean) if x == best]
    if len(first) > 1:
        return [1.0 / len(first) if m in first else 0.0 for m in range(len(mean))]

    def middle(part, other):
        return (1.0 - part) * best + part * other

    def part_of(y, other):
        def short(part):
            at = middle(part, other)
            return max(kl(best, at), 0.0) + part / (1.0 - part) * max(kl(other, at), 0.0) - y

        return top if short(top) <= 0.0 else brentq(short, 0.0, top, xtol=1e-15, rtol=1e-14)

    others = [x for m, x in enumerate(mean) if m not in first]

    def excess(y):
        middles = [(middle(part_of(y, x), x), x) for x in others]
        return sum(max(kl(best, m), 0.0) / max(kl(x, m), 1e-300) for m, x in middles) - 1.0

    top = 1.0 - 1e-9
    most = min(kl(best, x) for x in others) * (1.0 - 1e-9)
    y = most if excess(most) <= 0.0 else brentq(excess, 0.0, most, xtol=1e-16, rtol=1e-13)
    ratio = [1.0 if m in first else (p := part_of(y, x)) / (1.0 - p) for m, x in enumerate(mean)]
    return [r / sum(ratio) for r in ratio]


def track_and_stop(means, reward_draws, delta, uniform=False, margin=1e-4, kl=kl_bernoulli, **distribution):
    """Garivier and Kaufmann (2016), D-tracking with the threshold log(2 t (K - 1) / delta); returns also the round of the decision."""
    size = len(means)
    n, total, decided = [0] * size, [0.0] * size, []

    def mean_of(m):
        return total[m] / n[m] if n[m] else 0.0

    def sure(t):
        best = first_best([mean_of(m) for m in range(size)])
        ratio = math.inf
        for m in range(size):
            if m != best:
                both = (total[m] + total[best]) / (n[m] + n[best])
                cost = n[best] * kl(mean_of(best), both) + n[m] * kl(mean_of(m), both)
                ratio = min(ratio, cost if mean_of(m) < mean_of(best) else 0.0)
        return ratio > math.log(2.0 * t * (size - 1) / delta)

    def pick(t, arms, rewards):
        if arms and not decided:
            n[arms[-1]] += 1
            total[arms[-1]] += rewards[-1]
            if min(n) > 0 and sure(t - 1):
                decided.append(t - 1)
        if decided:
            return first_best([mean_of(m) for m in range(size)])
        if uniform:
            return (t - 1) % size
        if min(n) == 0 or min(n) < math.sqrt(t - 1) - size / 2.0:
            return n.index(min(n))
        shares = best_shares([min(max(mean_of(m), margin), 1.0 - margin) for m in range(size)], kl)
        return first_best([(t - 1) * w - x for w, x in zip(shares, n, strict=True)])

    runs = simulate_from_history(means, reward_draws, pick, **distribution)
    return *runs, decided[0] if decided else len(reward_draws)
