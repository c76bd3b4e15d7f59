"""Contextual bandits in float64 loops, written from the papers: design matrices are summed up and solved afresh in every round.

A run is given by its contexts `[T, R, d]` (R = 1: all models see the same), the true parameters `[K or 1, d]` and one shock per round
for the rewards of all models. A policy is a pair of functions, `pick(t, x) -> model` and `learn(model, x, reward)`, where `x` is `[K, d]`, a
row for each model. `simulate` returns (actions, rewards, cumulative pseudo-regret). Ties go to the lower index.
"""

import math

import numpy as np


def sigmoid(s):
    return 0.5 * (1.0 + np.tanh(0.5 * s))


def simulate(contexts, theta, shocks, policy, link="identity", noise=0.0):
    """The loop over rounds: normal rewards around the linear predictor, or coins of its logistic function."""
    pick, learn = policy
    models = max(contexts.shape[1], len(theta))
    actions, rewards, gaps = [], [], []
    for t, (rows, shock) in enumerate(zip(contexts, shocks, strict=True)):
        x = np.broadcast_to(rows, (models, rows.shape[1]))
        means = np.array([x[k] @ theta[k if len(theta) > 1 else 0] for k in range(models)])
        means = sigmoid(means) if link == "logistic" else means
        k = pick(t, x)
        reward = float(shock < means[k]) if link == "logistic" else means[k] + noise * shock
        learn(k, x, reward)
        actions.append(k)
        rewards.append(reward)
        gaps.append(means.max() - means[k])
    return np.array(actions), np.array(rewards), np.cumsum(gaps)


class Ridges:
    """`A = ridge I + sum x x'` and `b = sum r x` of each model, or of all models together."""

    def __init__(self, models, dim, ridge, shared):
        self.ridge, self.shared = ridge, shared
        number = 1 if shared else models
        self.A = [ridge * np.eye(dim) for _ in range(number)]
        self.b = [np.zeros(dim) for _ in range(number)]

    def of(self, k):
        return 0 if self.shared else k

    def theta(self, k):
        return np.linalg.solve(self.A[self.of(k)], self.b[self.of(k)])

    def width(self, k, x):
        """`sqrt(x' A^-1 x)`."""
        return math.sqrt(x @ np.linalg.solve(self.A[self.of(k)], x))

    def learn(self, k, x, reward):
        self.A[self.of(k)] += np.outer(x[k], x[k])
        self.b[self.of(k)] += reward * x[k]


def first_best(scores, order):
    """The largest score; of equal ones the first in an order `[K]`, the least number."""
    return min(np.flatnonzero(np.array(scores) == max(scores)), key=lambda k: order[k])


def linucb(models, dim, alpha, order, ridge=1.0, shared=False):
    """Li et al. (2010), Algorithm 1; Chu et al. (2011), Algorithm 1. `order` `[T, K]`: of ties."""
    r = Ridges(models, dim, ridge, shared)

    def pick(t, x):
        return first_best([r.theta(k) @ x[k] + alpha * r.width(k, x[k]) for k in range(models)], order[t])

    return pick, r.learn


def oful(models, dim, noise, norm, delta, order, ridge=1.0, shared=True):
    """Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 2; disjoint parameters share the probability of failure. `order` `[T, K]`: of ties."""
    r = Ridges(models, dim, ridge, shared)
    part = delta / len(r.A)

    def radius(k):
        root = math.sqrt(np.linalg.det(r.A[r.of(k)])) / math.sqrt(ridge**dim)
        return noise * math.sqrt(2.0 * math.log(root / part)) + math.sqrt(ridge) * norm

    def pick(t, x):
        return first_best([r.theta(k) @ x[k] + radius(k) * r.width(k, x[k]) for k in range(models)], order[t])

    return pick, r.learn


def disjoint_thompson(models, dim, scale, normals, ridge=1.0):
    """Agrawal and Goyal (2013b), a posterior for each model, sampled along its context; `normals` `[T, K]`."""
    r = Ridges(models, dim, ridge, shared=False)

    def pick(t, x):
        sample = [r.theta(k) @ x[k] + scale * r.width(k, x[k]) * normals[t, k] for k in range(models)]
        return int(np.argmax(sample))

    return pick, r.learn


def shared_thompson(models, dim, scale, normals, ridge=1.0):
    """Agrawal and Goyal (2013b), Algorithm 1; `normals` `[T, d]`, times the Cholesky factor of `B^-1`."""
    r = Ridges(models, dim, ridge, shared=True)

    def pick(t, x):
        sample = r.theta(0) + scale * np.linalg.cholesky(np.linalg.inv(r.A[0])) @ normals[t]
        return int(np.argmax(x @ sample))

    return pick, r.learn


def epsilon_greedy(models, dim, epsilon, coins, places, order, ridge=1.0, shared=False):
    """A random model if the coin is below epsilon, otherwise the best by ridge regression. `order` `[T, K]`: of ties."""
    r = Ridges(models, dim, ridge, shared)

    def pick(t, x):
        if coins[t] < epsilon:
            return min(math.floor(models * places[t]), models - 1)
        return first_best([r.theta(k) @ x[k] for k in range(models)], order[t])

    return pick, r.learn


def squarecb(models, dim, horizon, delta, uniforms, ridge=1.0, shared=False):
    """Foster and Rakhlin (2020), Algorithm 1 on losses, with the forecaster of Vovk, Azoury and Warmuth."""
    r = Ridges(models, dim, ridge, shared)
    number = len(r.A)
    square = number * (ridge + dim * math.log(1.0 + horizon / (number * ridge * dim)))
    gamma = math.sqrt(models * horizon / (square + math.log(2.0 / delta)))

    def pick(t, x):
        # The new context counts before its loss is seen: (A + x x')^-1 b.
        loss = np.array([-x[k] @ np.linalg.solve(r.A[r.of(k)] + np.outer(x[k], x[k]), r.b[r.of(k)]) for k in range(models)])
        best = int(np.argmin(loss))
        probability = 1.0 / (models + gamma * (loss - loss[best]))
        probability[best] = 0.0
        probability[best] = 1.0 - probability.sum()
        return min(int(np.searchsorted(np.cumsum(probability), uniforms[t] * probability.sum(), side="right")), models - 1)

    return pick, r.learn


def logistic_thompson(models, dim, scale, normals, ridge=1.0, shared=False):
    """Chapelle and Li (2011), Algorithm 3 with batches of one; the weights by Newton's method in all dimensions.

    `normals`: `[T, K]` along the context of each model, or `[T, d]` of all weights where these are shared.
    """
    number = 1 if shared else models
    m, q = np.zeros((number, dim)), np.full((number, dim), float(ridge))

    def pick(t, x):
        if shared:
            return int(np.argmax(x @ (m[0] + scale * normals[t] / np.sqrt(q[0]))))
        spread = np.sqrt((x**2 / q).sum(axis=1))
        return int(np.argmax((x * m).sum(axis=1) + scale * spread * normals[t]))

    def learn(k, x, reward):
        g, label = (0 if shared else k), 2.0 * reward - 1.0
        w = m[g].copy()
        for _ in range(50):
            slope = q[g] * (w - m[g]) - label * x[k] * sigmoid(-label * (w @ x[k]))
            p = sigmoid(w @ x[k])
            w -= np.linalg.solve(np.diag(q[g]) + p * (1.0 - p) * np.outer(x[k], x[k]), slope)
        p = sigmoid(w @ x[k])
        m[g] = w
        q[g] += x[k] ** 2 * p * (1.0 - p)

    return pick, learn
