"""The plain K-armed bandit in float64 loops.

A policy is a function `pick(t, history) -> arm` of the round t = 1, 2, .. and the whole history before it. All policies have the same reward draws,
one per round and shared by all arms: a uniform for Bernoulli rewards (reward = uniform < mean) or a standard normal for Gaussian rewards (reward =
mean + noise_scale * normal). Ties go to the lower index.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainccinv


class History:
    """Holds the arms and rewards of all rounds so far, and the rewards of each arm."""

    def __init__(self, size):
        self.size, self.arms, self.rewards, self.own = size, [], [], [[] for _ in range(size)]

    def add(self, arm, reward):
        self.arms.append(arm)
        self.rewards.append(reward)
        self.own[arm].append(reward)


def simulate(means, reward_draws, pick, distribution="bernoulli", noise_scale=1.0):
    """(actions, rewards, cumulative pseudo-regret), `[T]` each."""
    history = History(len(means))
    for t, draw in enumerate(reward_draws, start=1):
        arm = pick(t, history)
        history.add(arm, float(draw < means[arm]) if distribution == "bernoulli" else means[arm] + noise_scale * float(draw))
    actions = np.array(history.arms)
    return actions, np.array(history.rewards), np.cumsum(max(means) - np.array(means)[actions])


def first_best(values):
    """Index of the largest value, the lowest one if several are equal."""
    return max(range(len(values)), key=lambda m: (values[m], -m))


def by_index(index):
    """`pick` for the largest `index(t, size, n, mean, rewards of the arm)`; an arm that was never used comes first."""

    def pick(t, history):
        return first_best(
            [index(t, history.size, len(own), sum(own) / len(own), own) if own else math.inf for own in history.own]
        )

    return pick


def ucb1(width):
    """Auer, Cesa-Bianchi and Fischer (2002), Figure 1, with a free multiplier."""
    return by_index(lambda t, size, n, mean, own: mean + width * math.sqrt(math.log(t + 1) / n))


def gaussian_thompson(policy_normals, scale=1.0, prior_mean=0.0, prior_weight=1.0):
    """Largest draw from the normal posteriors; `policy_normals` is `[T, K]`.

    Posterior mean (prior_mean * prior_weight + sum) / (prior_weight + n), standard deviation
    scale / sqrt(prior_weight + n): a normal prior worth `prior_weight` observations.

    Source: Agrawal and Goyal (2013), Algorithm 2, with a free prior and scale.
    """

    def pick(t, history):
        weight = np.array([prior_weight + len(own) for own in history.own])
        total = np.array([prior_mean * prior_weight + sum(own) for own in history.own])
        return first_best(total / weight + scale / np.sqrt(weight) * policy_normals[t - 1])

    return pick


def epsilon_greedy(explore_uniforms, arm_uniforms, epsilon):
    """Arm floor(K * arm_uniform) if explore_uniform < epsilon, else the best mean. Source: Auer et al. (2002), Figure 3."""
    greedy = by_index(lambda t, size, n, mean, own: mean)

    def pick(t, history):
        explores = explore_uniforms[t - 1] < epsilon
        return math.floor(history.size * arm_uniforms[t - 1]) if explores else greedy(t, history)

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


def kl_ucb(loglog=0.0):
    """Garivier and Cappe (2011), Algorithm 1, for rewards in [0, 1]."""

    def index(t, size, n, mean, own):
        level = math.log(t) + loglog * math.log(max(math.log(t), 1.0))
        return largest_within(kl_bernoulli, mean, level / n, 1.0)

    return by_index(index)


def kl_ucb_gaussian(scale):
    """The same for normal rewards: the bound in closed form, which is UCB's."""
    return by_index(lambda t, size, n, mean, own: mean + scale * math.sqrt(2.0 * math.log(t) / n))


def ucb_v(zeta, c, upper):
    """Audibert, Munos and Szepesvari (2009), UCB-V with E = zeta log t."""

    def index(t, size, n, mean, own):
        variance, e = max(sum(x * x for x in own) / n - mean**2, 0.0), zeta * math.log(t)
        return mean + math.sqrt(2.0 * variance * e / n) + 3.0 * c * upper * e / n

    return by_index(index)


def moss(horizon):
    """Audibert and Bubeck (2009), MOSS."""
    return by_index(lambda t, size, n, mean, own: mean + math.sqrt(max(math.log(horizon / (size * n)), 0.0) / n))


def moss_anytime(alpha):
    """Degenne and Perchet (2016), MOSS-anytime."""
    return by_index(
        lambda t, size, n, mean, own: mean + math.sqrt((1.0 + alpha) / 2.0 * max(math.log(t / (size * n)), 0.0) / n)
    )


def imed(t, history):
    """Honda and Takemura (2015), IMED, with the Bernoulli divergence."""
    if not all(history.own):
        return history.own.index([])
    mean, n = [sum(own) / len(own) for own in history.own], [len(own) for own in history.own]
    best = max(mean)
    return first_best([-k * (kl_bernoulli(x, best) if x < best else 0.0) - math.log(k) for k, x in zip(n, mean)])


def bayes_ucb(successes=1.0, failures=1.0):
    """Kaufmann, Cappe and Garivier (2012), Algorithm 1 with c = 0; the first round's t is 2. The quantile is SciPy's."""

    def pick(t, history):
        wins = np.array([successes + sum(own) for own in history.own])
        losses = np.array([failures + sum(1.0 - x for x in own) for own in history.own])
        return first_best(betainccinv(wins, losses, 1.0 / (t + 1.0)))

    return pick


def drawn(probability, u):
    """Returns the arm on which `u` falls when the unit interval is cut by the probabilities."""
    cuts = np.cumsum(probability)
    return min(int(np.sum(u * cuts[-1] >= cuts)), len(probability) - 1)


def exp3(policy_uniforms, gamma, size):
    """Auer, Cesa-Bianchi, Freund and Schapire (2002), Fig. 1: the weights are products of exponentials."""
    weight, last = np.ones(size), np.zeros(size)

    def pick(t, history):
        if t > 1:
            arm = history.arms[-1]
            weight[arm] *= math.exp(gamma * history.rewards[-1] / (size * last[arm]))
        last[:] = (1.0 - gamma) * weight / weight.sum() + gamma / size
        return drawn(last, policy_uniforms[t - 1])

    return pick


def exp3_plus_plus(policy_uniforms, alpha, beta, size):
    """Seldin and Slivkins (2014), Algorithm 1; gaps by Seldin and Lugosi (2017)."""
    estimate, last = np.zeros(size), np.zeros(size)

    def pick(t, history):
        if t > 1:
            arm = history.arms[-1]
            estimate[arm] += (1.0 - history.rewards[-1]) / last[arm]
        upper, lower = np.ones(size), np.zeros(size)
        for m, own in enumerate(history.own):
            if own:
                loss = 1.0 - sum(own) / len(own)
                radius = math.sqrt(alpha * math.log(t * size ** (1.0 / alpha)) / (2.0 * len(own)))
                upper[m], lower[m] = min(1.0, loss + radius), max(0.0, loss - radius)
        eta, gap = 0.5 * math.sqrt(math.log(size) / (t * size)), np.maximum(0.0, lower - upper.min())
        xi = np.array([beta * math.log(t) / (t * g * g) if g > 0.0 else math.inf for g in gap])
        epsilon = np.minimum(min(0.5 / size, eta), xi)
        rho = np.exp(-eta * (estimate - estimate.min()))
        last[:] = (1.0 - epsilon.sum()) * rho / rho.sum() + epsilon
        return drawn(last, policy_uniforms[t - 1])

    return pick


def sliding_window_ucb(window, xi, upper):
    """Garivier and Moulines (2011), SW-UCB; sums of the last rounds, computed from scratch in each."""

    def pick(t, history):
        recent = History(history.size)
        for arm, reward in zip(history.arms[-window:], history.rewards[-window:]):
            recent.add(arm, reward)
        level = xi * math.log(min(t, window))
        return by_index(lambda t, size, n, mean, own: mean + upper * math.sqrt(level / n))(t, recent)

    return pick


def discounted_ucb(discount, xi, upper):
    """Garivier and Moulines (2011), D-UCB; sums weighted by powers of the discount, computed from scratch in each round."""

    def pick(t, history):
        if not all(history.own):
            return history.own.index([])
        weight = discount ** np.arange(t - 2, -1, -1, dtype=float)
        n, total = (np.bincount(history.arms, x, history.size) for x in (weight, weight * history.rewards))
        return first_best(total / n + 2.0 * upper * np.sqrt(xi * max(math.log(n.sum()), 0.0) / n))

    return pick


def best_shares(mean, kl):
    """The shares of Garivier and Kaufmann (2016), Theorem 5, by two nested searches for roots."""
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


class TrackAndStop:
    """`pick` of Garivier and Kaufmann (2016), D-tracking with the threshold log(2 t (K - 1) / delta); `decided` is the round of the decision."""

    def __init__(self, delta, uniform=False, margin=1e-4):
        self.delta, self.uniform, self.margin, self.decided = delta, uniform, margin, None

    def sure(self, t, n, total):
        mean = total / n
        best, ratio = first_best(mean), math.inf
        for m in range(len(n)):
            if m != best:
                both = (total[m] + total[best]) / (n[m] + n[best])
                cost = n[best] * kl_bernoulli(mean[best], both) + n[m] * kl_bernoulli(mean[m], both)
                ratio = min(ratio, cost if mean[m] < mean[best] else 0.0)
        return ratio > math.log(2.0 * t * (len(n) - 1) / self.delta)

    def __call__(self, t, history):
        if self.decided:
            return self.best
        n, total = (np.array([f(own) for own in history.own]) for f in (len, sum))
        if n.min() > 0 and self.sure(t - 1, n, total):
            self.decided, self.best = t - 1, first_best(total / n)
            return self.best
        if self.uniform:
            return (t - 1) % history.size
        if n.min() == 0 or n.min() < math.sqrt(t - 1) - history.size / 2.0:
            return int(n.argmin())
        shares = best_shares(np.clip(total / n, self.margin, 1.0 - self.margin).tolist(), kl_bernoulli)
        return first_best((t - 1) * np.array(shares) - n)
