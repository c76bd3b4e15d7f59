"""Competitors of the contextual bandit: disjoint LinUCB and linear Thompson sampling, written for other tools.

The bandit is linear: ten models with a parameter each, contexts of ten numbers, uniform in a cube, normal rewards. As for `comparators.py`, where
these are listed. A player is `(setting, rounds, runs, seed) -> regret [R]`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ContextualSetting:
    """A linear bandit: models, numbers of a context, noise; LinUCB's alpha and Thompson sampling's scale; ridge is 1."""

    num_models: int = 10
    dim: int = 10
    noise: float = 0.1
    alpha: float = 0.5
    scale: float = 0.5

    @property
    def theta(self) -> np.ndarray:
        """`[K, d]`, rows of length 1, always the same."""
        rows = np.random.default_rng(0).normal(size=(self.num_models, self.dim))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def vectorised(optimistic: bool) -> Callable[..., np.ndarray]:
    """All runs at once in single precision. Inverses `[n, K, d d]` times the products of a context's numbers give all widths in one call."""

    def play(s: ContextualSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
        number, dim = s.num_models, s.dim
        true = s.theta.astype(np.float32)
        inverse = np.tile(np.eye(dim, dtype=np.float32).reshape(-1), (n, number, 1))
        square = inverse.reshape(n, number, dim, dim)
        theta, regret, every = np.zeros((n, number, dim), np.float32), np.zeros(n), np.arange(n)
        for _ in range(rounds):
            x = rng.random((n, dim), np.float32)
            x *= 2.0
            x -= 1.0
            x *= np.float32(1.0 / math.sqrt(dim))
            means = x @ true.T
            products = (x[:, :, None] * x[:, None, :]).reshape(n, dim * dim, 1)
            width = np.sqrt(np.maximum((inverse @ products)[:, :, 0], 0.0))
            guess = (theta @ x[:, :, None])[:, :, 0]
            if optimistic:
                score = guess + np.float32(s.alpha) * width
            else:
                score = guess + np.float32(s.scale) * width * rng.standard_normal((n, number), np.float32)
            arm = score.argmax(axis=1)
            reward = means[every, arm] + np.float32(s.noise) * rng.standard_normal(n, np.float32)
            moved = (square[every, arm] @ x[:, :, None])[:, :, 0]
            gain = 1.0 / (1.0 + width[every, arm] ** 2)
            theta[every, arm] += (gain * (reward - guess[every, arm]))[:, None] * moved
            square[every, arm] -= (gain[:, None] * moved)[:, :, None] * moved[:, None, :]
            regret += means.max(axis=1) - means[every, arm]
        return regret

    return play


def one_by_one(make_policy: Callable[..., tuple[Callable, Callable]]) -> Callable[..., np.ndarray]:
    """Plays a package's policy, run by run; `make_policy(setting, seed)` returns `choose(x)` and `learn(x, arm, reward)`."""

    def play(s: ContextualSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
        theta, regret = s.theta, np.zeros(runs)
        for run in range(runs):
            rng = np.random.default_rng([seed, run])
            choose, learn = make_policy(s, int(rng.integers(2**31)))
            contexts = rng.uniform(-1.0, 1.0, (rounds, s.dim)) / math.sqrt(s.dim)
            noise = s.noise * rng.standard_normal(rounds)
            means = contexts @ theta.T
            for t in range(rounds):
                arm = choose(contexts[t])
                learn(contexts[t], arm, means[t, arm] + noise[t])
                regret[run] += means[t].max() - means[t, arm]
        return regret

    return play


def loop_linucb(s: ContextualSetting, seed: int) -> tuple[Callable, Callable]:
    """Li et al. (2010), Algorithm 1, as most code has it: all inverses afresh in each round."""
    del seed
    A, b = np.tile(np.eye(s.dim), (s.num_models, 1, 1)), np.zeros((s.num_models, s.dim))

    def choose(x):
        inverse = np.linalg.inv(A)
        theta = (inverse @ b[:, :, None])[:, :, 0]
        return int(np.argmax(theta @ x + s.alpha * np.sqrt(x @ inverse @ x)))

    def learn(x, arm, reward):
        A[arm] += np.outer(x, x)
        b[arm] += reward * x

    return choose, learn


def _mabwiser(policy: Callable[..., Any]) -> Callable[..., tuple[Callable, Callable]]:
    def make(s: ContextualSetting, seed: int) -> tuple[Callable, Callable]:
        from mabwiser.mab import MAB

        bandit = MAB(list(range(s.num_models)), policy(s), seed=seed)
        # It cannot choose before it has seen something: each model without reward at a context of zeros, which tells nothing.
        bandit.fit(list(range(s.num_models)), [0.0] * s.num_models, np.zeros((s.num_models, s.dim)))
        return (
            lambda x: bandit.predict(x[None]),
            lambda x, arm, reward: bandit.partial_fit([arm], [reward], x[None]),
        )

    return make


def mabwiser_linucb(s: ContextualSetting) -> Any:
    """MABWiser's LinUCB."""
    from mabwiser.mab import LearningPolicy

    return LearningPolicy.LinUCB(alpha=s.alpha, l2_lambda=1.0)


def mabwiser_thompson(s: ContextualSetting) -> Any:
    """MABWiser's LinTS, whose `alpha` is the factor of the deviation."""
    from mabwiser.mab import LearningPolicy

    return LearningPolicy.LinTS(alpha=s.scale, l2_lambda=1.0)


def _river_linucb(s: ContextualSetting, seed: int) -> tuple[Callable, Callable]:
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=1.0, beta=1.0, seed=seed)
    arms: list[Any] = list(range(s.num_models))

    def choose(x):
        return policy.pull(arms, context=dict(enumerate(x.tolist())))

    def learn(x, arm, reward):
        policy.update(arm, dict(enumerate(x.tolist())), reward)

    return choose, learn


def _contextualbandits(name: str, **options: Any) -> Callable[..., tuple[Callable, Callable]]:
    def make(s: ContextualSetting, seed: int) -> tuple[Callable, Callable]:
        from contextualbandits import online

        factor = {"alpha": s.alpha} if name == "LinUCB" else {"v_sq": s.scale**2}
        policy = getattr(online, name)(
            nchoices=s.num_models, lambda_=1.0, fit_intercept=False, random_state=seed, njobs=1, **factor, **options
        )
        policy.fit(np.zeros((s.num_models, s.dim)), np.arange(s.num_models), np.zeros(s.num_models))

        def choose(x):
            return int(policy.predict(x[None])[0])

        def learn(x, arm, reward):
            policy.partial_fit(x[None], np.array([arm]), np.array([reward]))

        return choose, learn

    return make


# Package of a tool, for its version.
PACKAGES = {"mabwiser": "mabwiser", "contextualbandits": "contextualbandits"}
# Tool and policy -> player, whether it takes all runs of a block with their generator, and what differs in law.
PLAYERS: dict[tuple[str, str], tuple[Callable[..., np.ndarray], bool, str]] = {
    ("loop", "linucb"): (one_by_one(loop_linucb), False, ""),
    ("vectorised", "linucb"): (vectorised(optimistic=True), True, ""),
    ("vectorised", "linear_thompson"): (vectorised(optimistic=False), True, ""),
    ("mabwiser", "linucb"): (one_by_one(_mabwiser(mabwiser_linucb)), False, ""),
    ("mabwiser", "linear_thompson"): (
        one_by_one(_mabwiser(mabwiser_thompson)),
        False,
        "explores less than the other tools' at the same scale; why was not looked into",
    ),
    ("river", "linucb"): (
        one_by_one(_river_linucb),
        False,
        "its bound is one deviation of the next reward above, with noise of variance 1",
    ),
    ("contextualbandits", "linucb"): (one_by_one(_contextualbandits("LinUCB")), False, ""),
    ("contextualbandits", "linear_thompson"): (one_by_one(_contextualbandits("LinTS")), False, ""),
}


def version(tool: str) -> str:
    """Of a package, which is imported.

    Raises:
      ImportError: it is not there.
    """
    importlib.import_module(PACKAGES[tool])
    return f"{PACKAGES[tool]} {importlib.metadata.version(PACKAGES[tool])}"
