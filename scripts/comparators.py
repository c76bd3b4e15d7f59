"""Honest competitors for the throughput benchmark: the same simulations, written for other tools.

Seven problems are covered. `stochastic` is the K-armed Bernoulli bandit under UCB1, Gaussian and Beta Thompson
sampling, epsilon-greedy and the policies of the shelf; `staged` is StageRoute in the setting of Table 1 of arXiv 2506.17254; `combinatorial` is C2MAB-V on its nine models;
`service` is MESS+ on Winogrande; `queueing` is ACQB in the setting of its figure 2 (the plain NumPy loop of `tests/reference`, and a
compiled one);
`cascade` is COSMOS on three boxes; `contextual` (see `contextual_comparators.py`) is LinUCB and linear Thompson sampling. The tools:

  loop         one run at a time in plain Python and NumPy, as most papers' code is written
  textbook     all runs at once in NumPy, the formulas written as they stand
  vectorised   the same as an expert would: single precision, cached terms, preallocated buffers, in place, threads
  numba        one compiled run per `prange` iteration
  numba_lanes  the same with blocks of runs in the innermost loops, which fill the SIMD lanes
  river        the bandit policies of the `river` package
  smpybandits  the policies of the `SMPyBandits` package
  mabwiser     the policies of the `MABWiser` package, linear ones too
  contextualbandits  the linear policies of that package

Every comparator is `run(rounds, runs, seed) -> dict` with `decisions` (`rounds * runs`), `mean_regret` (mean
over runs of the cumulative pseudo-regret, in units of reward) and `standard_error` of that mean. Timing is
the caller's; `warm_up()` pays compilation and imports beforehand. Where `same_law` is false the tool's policy
differs in law from the others (`note` says how), so that only its speed can be compared. Nothing here imports
jax or jaxroute.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import io
import math
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import contextual_comparators

try:
    import numba
except Exception as error:  # A missing or broken numba makes its comparators unavailable, nothing else.
    numba, _NUMBA_PROBLEM = None, f"{type(error).__name__}: {error}"


# ----------------------------------------------------------------------------------------------------------
# Settings and results


@dataclass(frozen=True)
class BanditSetting:
    """The K-armed Bernoulli bandit and the constants of its policies.

    means: K success probabilities.
    width: UCB1's multiplier, in units of reward: `mean + width * sqrt(log(t + 2) / pulls)`, `t` from 0.
    prior_mean, prior_weight, scale: Gaussian Thompson sampling draws from a normal of mean
      `(reward_sum + prior_mean * prior_weight) / (prior_weight + pulls)` and standard deviation
      `scale / sqrt(prior_weight + pulls)`; the defaults are those of Agrawal and Goyal (2013).
    epsilon: probability of a uniformly drawn arm; otherwise the largest mean, infinite for an unused arm.

    Beta Thompson sampling starts from Beta(1, 1). Ties go to the lowest index.
    """

    means: tuple[float, ...] = tuple(max(0.9 - 0.1 * arm, 0.0) for arm in range(10))
    width: float = math.sqrt(2.0)
    prior_mean: float = 0.0
    prior_weight: float = 1.0
    scale: float = 1.0
    epsilon: float = 0.1


# Table 1: Chatbot-Arena score and output price in $ per 1M tokens, in release order.
_SCORE = np.array([1336.0, 1302, 1287, 1304, 1257, 1358, 1380, 1300, 1296, 1373, 1417, 1366, 1403, 1413, 1446])
_PRICE = np.array([10.0, 5, 0.14, 0.6, 0.4, 0.55, 1.5, 15, 0.28, 0.28, 0.82, 8, 15, 40, 10])


@dataclass(frozen=True)
class StagedSetting:
    """StageRoute's synthetic experiment (Section 6.1 of the paper) and the constants of the policy.

    max_deployed: deployment slots `M`, at least 4 (see `_deploy_highs`).
    stage_length: rounds `I` between two deployments.
    budget: mean cost per query, in $. gamma: parameter of the confidence radius.
    cost_floor, cost_ceiling: known bounds of a cost, in $.
    reward_noise: standard deviation of a reward; cost_noise: relative standard deviation of a cost.
    """

    max_deployed: int = 6
    stage_length: int = 250
    budget: float = 2.0
    gamma: float = 0.2
    cost_floor: float = 0.1
    cost_ceiling: float = 50.0
    reward_noise: float = 0.1
    cost_noise: float = 0.1

    @property
    def reward_mean(self) -> np.ndarray:
        """`[N]` scores scaled to [0, 1]."""
        return (_SCORE - _SCORE.min()) / (_SCORE.max() - _SCORE.min())

    @property
    def cost_mean(self) -> np.ndarray:
        """`[N]` cost per query, in $."""
        return _PRICE

    @property
    def capacity(self) -> np.ndarray:
        """`[N]` largest routing probability; Yi-Lightning (2) may carry everything."""
        capacity = np.full(_PRICE.size, 0.4)
        capacity[2] = 1.0
        return capacity

    def pool_size(self, start: int) -> int:
        """Models available at round `start` (from 0): six, then one more every 1,000 rounds."""
        return min(6 + start // 1000, _PRICE.size)


@dataclass(frozen=True)
class SelectionSetting:
    """C2MAB-V's sum-up task on its nine models (Table 3; the success rates are jaxroute's stand-in), setting (c).

    budget: cost per round. size: models per set `N`. delta, reward_width, cost_width: constants of the confidence bounds.
    """

    budget: float = 0.5
    size: int = 4
    delta: float = 1e-4
    reward_width: float = 0.3
    cost_width: float = 0.01
    success: tuple[float, ...] = (0.024, 0.326, 0.366, 0.294, 0.170, 0.210, 0.282, 0.336, 0.398)
    price: tuple[float, ...] = (0.005, 0.02, 0.08, 0.015, 0.005, 0.008, 0.05, 0.05, 0.12)

    @property
    def cost(self) -> np.ndarray:
        """`[K]` mean costs: prices over the largest."""
        return np.asarray(self.price) / max(self.price)


@dataclass(frozen=True)
class ServiceSetting:
    """MESS+ on Winogrande with a logistic head: who satisfies (counts of the eight cells) and what a request costs in J.

    signal: what a feature tells about its model. noise: features that tell nothing. The others are the constants of MESS+ and of
    its SGD.
    """

    cells: tuple[float, ...] = (119, 108, 53, 231, 44, 63, 49, 600)
    cost_mean: tuple[float, ...] = (48.976, 200.450, 1018.423)
    cost_spread: tuple[float, ...] = (11.95, 7.62, 22.44)
    signal: float = 0.15
    noise: int = 4
    alpha: float = 0.7
    V: float = 1e-3
    c: float = 0.1
    learning_rate: float = 0.06
    momentum: float = 0.9
    weight_decay: float = 0.01


@dataclass(frozen=True)
class QueueSetting:
    """ACQB on random instances: models, features, answers, arrival rate, slack, kappa, lambda_0, c1, contexts tried."""

    num_models: int = 5
    dim: int = 5
    num_offered: int = 1
    arrival_rate: float = 0.7
    slack: float = 0.03
    curvature: float = 0.3
    ridge: float = 1.0
    c1: float = 1.0
    candidates: int = 64


@dataclass(frozen=True)
class CascadeSetting:
    """COSMOS with its streaming estimator on three uniform boxes: index coefficients, costs, quantiles, constants."""

    index: tuple[tuple[float, ...], ...] = (
        (0.57, -0.101466, -0.098534),
        (0.483130, -0.082676, 0.117324),
        (0.524375, 0.099928, -0.100072),
    )
    cost: tuple[float, ...] = (0.015, 0.033541, 0.075)
    quantile: tuple[float, ...] = (0.7, 0.5, 0.3)
    spread: float = 0.5
    bonus: float = 0.1
    floor: float = 0.1
    start: float = 0.1
    bound: float = 2.0


def _queue_reference():
    """The NumPy reference of the queueing problem, of the same checkout."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module("tests.reference.queueing")


def loop_acqb(setting: QueueSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """ACQB, one run at a time, estimates solved again after every round; regret of routing `[R]`."""
    acqb = _queue_reference().acqb_loop
    s = setting
    sizes = (rounds, s.num_models, s.dim, s.num_offered, s.arrival_rate, s.slack, s.curvature, s.ridge, s.c1)
    return np.asarray([acqb(np.random.default_rng((seed, run)), *sizes)["routing_gap"].sum() for run in range(runs)])


def loop_cosmos(setting: CascadeSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """COSMOS on line, one run at a time, boxes in vectors; amortised regret `[R]`."""
    index, cost, quantile = (np.asarray(x) for x in (setting.index, setting.cost, setting.quantile))
    number, dim = index.shape
    width = 2.0 * cost / (1.0 - quantile) ** 2
    log_horizon = math.log(rounds)
    radius = setting.bonus * math.sqrt(dim * log_horizon + math.log(number) + 2.0 * log_horizon)
    totals = []
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        x = rng.uniform(-1.0, 1.0, (rounds + 1, dim - 1))
        u, length = rng.random((rounds + 1, number)), rng.uniform(-1.0, 1.0, (rounds + 1, number))
        rho, design = np.zeros((number, dim)), np.tile(np.eye(dim), (number, 1, 1))
        inverse = np.tile(np.eye(dim) / setting.start, (number, 1, 1))
        total = 0.0
        for t in range(rounds + 1):
            psi = np.concatenate(([1.0], x[t]))
            true = index @ psi
            score = true + width * (u[t] - quantile)
            paid = cost * (1.0 + setting.spread * (0.5 * (2.0 * u[t] - 1.0) + 0.5 * length[t]))
            image = design @ psi
            guess = rho @ psi + radius * np.sqrt(np.maximum(image @ psi, 0.0))
            if t == 0:
                opened = list(range(number))
            else:
                opened, best = [], -math.inf
                for a in np.argsort(-guess, kind="stable"):
                    if best >= min(guess[a], 1.0):
                        break
                    opened.append(a)
                    best = max(best, score[a])
                total += np.minimum(score, true).max() - best + np.maximum(score - true, 0.0)[opened].sum()
            for a in opened:
                level = rho[a] @ psi
                bend = max(float(score[a] > level), setting.floor)
                moved = inverse[a] @ psi
                shrink = 1.0 / (1.0 + bend * (psi @ moved))
                rho[a] -= shrink * (paid[a] - max(score[a] - level, 0.0)) * moved
                size = math.sqrt(rho[a] @ rho[a])
                if size > setting.bound:
                    rho[a] *= setting.bound / size
                inverse[a] -= bend * shrink * np.outer(moved, moved)
                design[a] -= np.outer(image[a], image[a]) / (1.0 + psi @ image[a])
        totals.append(total)
    return np.asarray(totals)


def _result(regret: np.ndarray, rounds: int) -> dict:
    """Summarises `regret` `[R]`, the cumulative pseudo-regret of every run."""
    spread = regret.std(ddof=1) / math.sqrt(regret.size) if regret.size > 1 else math.nan
    return {
        "decisions": rounds * regret.size,
        "mean_regret": float(regret.mean()),
        "standard_error": float(spread),
    }


# ----------------------------------------------------------------------------------------------------------
# (a) One run at a time in plain Python and NumPy


def _loop(make_policy: Callable, setting: BanditSetting, rounds: int, runs: int, seed: int) -> dict:
    """Runs a textbook's loop; `make_policy(setting, rng)` returns `choose(t)` and `learn(arm, reward)`."""
    means = np.array(setting.means)
    best = means.max()
    regret = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        choose, learn = make_policy(setting, rng)
        for t in range(rounds):
            arm = choose(t)
            learn(arm, 1.0 if rng.random() < means[arm] else 0.0)
            regret[run] += best - means[arm]
    return _result(regret, rounds)


def loop_ucb1(setting: BanditSetting, rng: np.random.Generator):
    """UCB1 of one run: returns `choose` and `learn`."""
    del rng  # UCB1 is deterministic given the rewards.
    num_arms = len(setting.means)
    pulls, reward_sum = np.zeros(num_arms), np.zeros(num_arms)

    def choose(t):
        if t < num_arms:  # An unused arm has an infinite bound; the lowest index comes first.
            return t
        return int(np.argmax(reward_sum / pulls + setting.width * np.sqrt(np.log(t + 2) / pulls)))

    def learn(arm, reward):
        pulls[arm] += 1
        reward_sum[arm] += reward

    return choose, learn


def loop_gaussian_thompson(setting: BanditSetting, rng: np.random.Generator):
    """Gaussian Thompson sampling of one run: returns `choose` and `learn`."""
    weight = np.full(len(setting.means), setting.prior_weight)
    total = weight * setting.prior_mean

    def choose(t):
        del t
        return int(np.argmax(rng.normal(total / weight, setting.scale / np.sqrt(weight))))

    def learn(arm, reward):
        weight[arm] += 1
        total[arm] += reward

    return choose, learn


def loop_beta_thompson(setting: BanditSetting, rng: np.random.Generator):
    """Beta Thompson sampling of one run: returns `choose` and `learn`."""
    success, failure = np.ones(len(setting.means)), np.ones(len(setting.means))

    def choose(t):
        del t
        return int(np.argmax(rng.beta(success, failure)))

    def learn(arm, reward):
        success[arm] += reward
        failure[arm] += 1 - reward

    return choose, learn


def loop_epsilon_greedy(setting: BanditSetting, rng: np.random.Generator):
    """Epsilon-greedy of one run: returns `choose` and `learn`."""
    num_arms = len(setting.means)
    pulls, reward_sum = np.zeros(num_arms), np.zeros(num_arms)
    mean = np.full(num_arms, np.inf)

    def choose(t):
        del t
        if rng.random() < setting.epsilon:
            return int(rng.integers(num_arms))
        return int(np.argmax(mean))

    def learn(arm, reward):
        pulls[arm] += 1
        reward_sum[arm] += reward
        mean[arm] = reward_sum[arm] / pulls[arm]

    return choose, learn


# ----------------------------------------------------------------------------------------------------------
# (b) All runs at once in NumPy
#
# Statistics are [K, n] with the n runs last, so that every ufunc streams over contiguous runs. Only the
# chosen arm of a run changes, so the terms of its index are cached and rewritten there (one gather and a few
# scatters of n).

_CHUNK = 64  # Rounds whose uniforms are drawn by one call.


def _in_blocks(
    play: Callable, setting, rounds: int, runs: int, seed: int, threads: int, fewest: int, most: int
) -> np.ndarray:
    """Plays `runs` in blocks of `fewest` to `most` runs, shared among threads.

    NumPy's loops release the interpreter lock, which pays once a call works long enough: at once where random
    draws dominate, above some 4,000 runs a block where every call takes microseconds.

    `play(setting, rounds, n, rng)` returns the regret `[n]` of one block; the result is the regret `[R]`.
    """
    block = min(max(-(-runs // threads), fewest), most)
    sizes = [min(block, runs - start) for start in range(0, runs, block)]
    rngs = [np.random.Generator(np.random.SFC64(s)) for s in np.random.SeedSequence(seed).spawn(len(sizes))]
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(lambda n, rng: play(setting, rounds, n, rng), sizes, rngs)))


class _FirstArgmax:
    """Index of the first maximum over the first axis of `[K, n]` scores.

    `argmax(axis=0)` walks the short axis of every run; here all passes stream over runs (maximum, equality,
    and the largest of the weights K..1 among the equal arms), which takes about half the time.
    """

    def __init__(self, num_arms: int, n: int):
        assert num_arms < 256
        self.weight = np.arange(num_arms, 0, -1, dtype=np.uint8)[:, None]
        self.top = np.empty(n, np.float32)
        self.equal = np.empty((num_arms, n), bool)
        self.rank = np.empty((num_arms, n), np.uint8)
        self.winner = np.empty(n, np.uint8)
        self.arm = np.empty(n, np.intp)
        self.num_arms = num_arms

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """Returns `[n]` arms; the buffer is overwritten by the next call."""
        np.maximum.reduce(score, axis=0, out=self.top)
        np.equal(score, self.top, out=self.equal)
        np.multiply(self.equal.view(np.uint8), self.weight, out=self.rank)
        np.maximum.reduce(self.rank, axis=0, out=self.winner)
        return np.subtract(self.num_arms, self.winner, out=self.arm, dtype=np.intp)


def _uniforms(rng: np.random.Generator, n: int):
    """Yields `[n]` float32 uniforms, one row per round."""
    buffer = np.empty((_CHUNK, n), np.float32)
    while True:
        rng.random(out=buffer, dtype=np.float32)
        yield from buffer


def _regret(setting: BanditSetting, pulls: np.ndarray) -> np.ndarray:
    """Cumulative pseudo-regret `[n]` of `pulls` `[K, n]`."""
    means = np.array(setting.means)
    return (means.max() - means) @ pulls


def _textbook(choose: Callable, setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """All runs at once, straight from the formulas; `choose(t, pulls, reward_sum, rng)` returns arms `[n]`."""
    means, rng, lane = np.array(setting.means), np.random.default_rng(seed), np.arange(runs)
    pulls, reward_sum = np.zeros((2, means.size, runs))
    for t in range(rounds):
        arm = choose(t, pulls, reward_sum, rng)
        reward_sum[arm, lane] += rng.random(runs) < means[arm]
        pulls[arm, lane] += 1
    return _regret(setting, pulls)


def textbook_ucb1(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """UCB1 over `runs` runs; returns the regret `[runs]`."""

    def choose(t, pulls, reward_sum, rng):
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = reward_sum / pulls + setting.width * np.sqrt(math.log(t + 2) / pulls)
        return np.where(pulls > 0, bound, np.inf).argmax(axis=0)

    return _textbook(choose, setting, rounds, runs, seed)


def textbook_gaussian_thompson(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """Gaussian Thompson sampling over `runs` runs; returns the regret `[runs]`."""

    def choose(t, pulls, reward_sum, rng):
        weight = setting.prior_weight + pulls
        mean = (reward_sum + setting.prior_mean * setting.prior_weight) / weight
        return (mean + setting.scale / np.sqrt(weight) * rng.standard_normal(pulls.shape)).argmax(axis=0)

    return _textbook(choose, setting, rounds, runs, seed)


def vectorised_ucb1(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """UCB1 over `n` runs; returns the regret `[n]`."""
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    shape = (means.size, n)
    pulls, reward_sum, inverse_root = np.zeros((3, *shape), np.float32)
    mean, bound = np.full(shape, np.inf, np.float32), np.empty(shape, np.float32)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    pulls_at, sum_at, root_at, mean_at = (x.reshape(-1) for x in (pulls, reward_sum, inverse_root, mean))
    cell = np.empty(n, np.intp)
    for t in range(rounds):
        np.multiply(inverse_root, np.float32(setting.width * math.sqrt(math.log(t + 2))), out=bound)
        np.add(bound, mean, out=bound)
        arm = first_argmax(bound)
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        used = pulls_at[cell]
        used += 1
        total = sum_at[cell]
        total += next(uniforms) < means[arm]
        pulls_at[cell] = used
        sum_at[cell] = total
        mean_at[cell] = np.divide(total, used, out=total)
        root_at[cell] = np.reciprocal(np.sqrt(used, out=used), out=used)
    return _regret(setting, pulls)


def vectorised_gaussian_thompson(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Gaussian Thompson sampling over `n` runs; returns the regret `[n]`."""
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    shape = (means.size, n)
    weight = np.full(shape, setting.prior_weight, np.float32)
    total = weight * np.float32(setting.prior_mean)
    mean, deviation = total / weight, np.float32(setting.scale) / np.sqrt(weight)
    sample = np.empty(shape, np.float32)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    weight_at, total_at, mean_at, deviation_at = (x.reshape(-1) for x in (weight, total, mean, deviation))
    cell, scale = np.empty(n, np.intp), np.float32(setting.scale)
    for _ in range(rounds):
        rng.standard_normal(out=sample, dtype=np.float32)
        np.multiply(sample, deviation, out=sample)
        np.add(sample, mean, out=sample)
        arm = first_argmax(sample)
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        w = weight_at[cell]
        w += 1
        s = total_at[cell]
        s += next(uniforms) < means[arm]
        weight_at[cell] = w
        total_at[cell] = s
        mean_at[cell] = np.divide(s, w, out=s)
        deviation_at[cell] = np.divide(scale, np.sqrt(w, out=w), out=w)
    return _regret(setting, weight - np.float32(setting.prior_weight))


def vectorised_beta_thompson(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Beta Thompson sampling over `n` runs; returns the regret `[n]`.

    A beta draw is `x / (x + y)` with gamma draws of shapes successes + 1 and failures + 1; `standard_gamma`
    fills a float32 buffer in place and takes two thirds of the time of `Generator.beta`.
    """
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    shape = (means.size, n)
    counts = np.ones((2, *shape), np.float32)  # Successes + 1, failures + 1.
    gamma = np.empty_like(counts)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    counts_at, cell = counts.reshape(-1), np.empty(n, np.intp)
    for _ in range(rounds):
        rng.standard_gamma(counts, dtype=np.float32, out=gamma)
        np.add(gamma[1], gamma[0], out=gamma[1])
        np.divide(gamma[0], gamma[1], out=gamma[0])
        arm = first_argmax(gamma[0])
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        np.add(cell, means.size * n, out=cell, where=next(uniforms) >= means[arm])  # To the failures.
        counts_at[cell] += 1
    return _regret(setting, counts.sum(axis=0) - 2)


def vectorised_epsilon_greedy(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Epsilon-greedy over `n` runs; returns the regret `[n]`."""
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    shape = (means.size, n)
    pulls, reward_sum = np.zeros((2, *shape), np.float32)
    mean = np.full(shape, np.inf, np.float32)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    pulls_at, sum_at, mean_at = (x.reshape(-1) for x in (pulls, reward_sum, mean))
    cell, epsilon = np.empty(n, np.intp), np.float32(setting.epsilon)
    for _ in range(rounds):
        arm = first_argmax(mean)
        coin = next(uniforms)
        explore = np.flatnonzero(coin < epsilon)
        # Below epsilon, coin / epsilon is again uniform: one draw decides both whether and where to explore.
        random_arm = (coin[explore] / epsilon * means.size).astype(np.intp)
        arm[explore] = np.minimum(random_arm, means.size - 1)
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        used = pulls_at[cell]
        used += 1
        total = sum_at[cell]
        total += next(uniforms) < means[arm]
        pulls_at[cell] = used
        sum_at[cell] = total
        mean_at[cell] = np.divide(total, used, out=total)
    return _regret(setting, pulls)


# ----------------------------------------------------------------------------------------------------------
# (b2) The shelf, all runs at once in NumPy
#
# As above: [K, n] statistics in single precision, runs last, buffers in place. What an index needs of the counts alone is cached.


def _vectorised_index(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator, index: Callable) -> np.ndarray:
    """Plays the arm of the largest `index(t, mean, share)` (`[K, n]`, `t` from 1, `share = 1 / pulls`); an unused arm comes first."""
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    shape = (means.size, n)
    pulls, reward_sum, mean = np.zeros((3, *shape), np.float32)
    share = np.ones(shape, np.float32)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    pulls_at, sum_at, mean_at, share_at = (x.reshape(-1) for x in (pulls, reward_sum, mean, share))
    cell = np.empty(n, np.intp)
    for t in range(1, rounds + 1):
        arm = np.full(n, t - 1) if t <= means.size else first_argmax(index(t, mean, share))
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        used = pulls_at[cell]
        used += 1
        total = sum_at[cell]
        total += next(uniforms) < means[arm]
        pulls_at[cell] = used
        sum_at[cell] = total
        np.reciprocal(used, out=used)
        share_at[cell] = used
        mean_at[cell] = np.multiply(total, used, out=total)
    return _regret(setting, pulls)


def _kl_upper(mean: np.ndarray, level: np.ndarray) -> np.ndarray:
    """KL-UCB's bound by Newton's method in `-log(1 - q)`, the same steps as an expert would take; overwrites `level`."""
    rest = 1 - mean
    tiny = np.float32(1e-12)
    least = mean * np.log(mean + tiny) + rest * np.log(rest + tiny)
    spread = np.sqrt(2 * mean * rest * level)
    near = np.maximum(spread + np.float32(2 / 3) * (1 - 2 * mean) * level, np.float32(0.7) * spread)
    left = rest - np.minimum(near, np.sqrt(level * np.float32(0.5)))
    high = np.minimum((level - least) / (rest + tiny), np.float32(16.6))
    np.minimum(high, -np.log(np.maximum(left, tiny)), out=high)
    for _ in range(3):
        bound = np.maximum(1 - np.exp(-high), tiny)
        excess = least - mean * np.log(bound) + rest * high - level
        high -= excess * bound / np.maximum(bound - mean, np.float32(1e-6))
        np.clip(high, 0, np.float32(16.6), out=high)
    return np.maximum(1 - np.exp(-high), mean)


def vectorised_kl_ucb(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """KL-UCB with `c = 0` over `n` runs; returns the regret `[n]`."""

    def index(t, mean, share):
        return _kl_upper(mean, share * np.float32(math.log(t)))

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_ucb_v(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """UCB-V with `zeta = 1.2` and `c = 1` over `n` runs of 0/1 rewards, whose squares are themselves; returns the regret `[n]`."""

    def index(t, mean, share):
        weight = share * np.float32(1.2 * math.log(t))
        bound = mean * (1 - mean)
        bound *= weight
        bound *= 2
        np.sqrt(bound, out=bound)
        weight *= 3
        bound += weight
        bound += mean
        return bound

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_moss(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """MOSS over `n` runs; returns the regret `[n]`."""
    part = np.float32(rounds / len(setting.means))

    def index(_, mean, share):
        bound = share * part
        np.log(bound, out=bound)
        np.maximum(bound, 0, out=bound)
        bound *= share
        np.sqrt(bound, out=bound)
        bound += mean
        return bound

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_moss_anytime(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """MOSS-anytime with `alpha = 1.35` over `n` runs; returns the regret `[n]`."""
    size = len(setting.means)

    def index(t, mean, share):
        bound = share * np.float32(t / size)
        np.log(bound, out=bound)
        np.maximum(bound, 0, out=bound)
        bound *= share
        bound *= np.float32(1.175)
        np.sqrt(bound, out=bound)
        bound += mean
        return bound

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_imed(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """IMED over `n` runs; returns the regret `[n]`."""
    tiny = np.float32(1e-12)

    def index(_, mean, share):
        best, rest = mean.max(axis=0), 1 - mean
        cost = mean * np.log((mean + tiny) / (best + tiny))
        cost += rest * np.log((rest + tiny) / (1 - best + tiny))
        np.maximum(cost, 0, out=cost)
        cost /= share
        cost -= np.log(share)
        return np.negative(cost, out=cost)

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_bayes_ucb(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Bayes-UCB with `c = 0` over `n` runs, by SciPy's quantile of the beta law; returns the regret `[n]`."""
    from scipy.special import betainccinv

    def index(t, mean, share):
        pulls = 1 / share
        return betainccinv(1 + mean * pulls, 1 + pulls * (1 - mean), np.float32(1 / (t + 1))).astype(np.float32)

    return _vectorised_index(setting, rounds, n, rng, index)


def vectorised_sliding_window_ucb(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sliding-window UCB (607 rounds, `xi = .6`) over `n` runs, with a ring of choices and rewards; returns the regret `[n]`."""
    window, lane = 607, np.arange(n)
    means = np.array(setting.means, np.float32)
    shape = (means.size, n)
    pulls, reward_sum, bound, share = np.zeros((4, *shape), np.float32)
    regret, gaps = np.zeros(n), (means.max() - means).astype(np.float64)
    arms, rewards = np.zeros((window, n), np.intp), np.zeros((window, n), np.float32)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    for t in range(rounds):
        with np.errstate(divide="ignore", invalid="ignore"):
            np.reciprocal(pulls, out=share)
            np.multiply(share, np.float32(0.6 * math.log(min(t + 1, window) or 1)), out=bound)
            np.sqrt(bound, out=bound)
            bound += reward_sum * share
        np.copyto(bound, np.inf, where=pulls == 0)
        arm = first_argmax(bound)
        reward = (next(uniforms) < means[arm]).astype(np.float32)
        place = t % window
        if t >= window:
            pulls[arms[place], lane] -= 1
            reward_sum[arms[place], lane] -= rewards[place]
        pulls[arm, lane] += 1
        reward_sum[arm, lane] += reward
        arms[place], rewards[place] = arm, reward
        regret += gaps[arm]
    return regret


def vectorised_discounted_ucb(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Discounted UCB (`.9975`, `xi = .6`) over `n` runs; returns the regret `[n]`."""
    means, lane, discount = np.array(setting.means, np.float32), np.arange(n), np.float32(0.9975)
    shape = (means.size, n)
    pulls, reward_sum, bound, share = np.zeros((4, *shape), np.float32)
    regret, gaps = np.zeros(n), (means.max() - means).astype(np.float64)
    first_argmax, uniforms = _FirstArgmax(*shape), _uniforms(rng, n)
    total = 0.0
    for _ in range(rounds):
        with np.errstate(divide="ignore", invalid="ignore"):
            np.reciprocal(pulls, out=share)
            np.multiply(share, np.float32(2.4 * math.log(max(total, 1.0))), out=bound)
            np.sqrt(bound, out=bound)
            bound += reward_sum * share
        np.copyto(bound, np.inf, where=pulls == 0)
        arm = first_argmax(bound)
        pulls *= discount
        reward_sum *= discount
        total = total * 0.9975 + 1.0
        pulls[arm, lane] += 1
        reward_sum[arm, lane] += next(uniforms) < means[arm]
        regret += gaps[arm]
    return regret


def vectorised_exp3(setting: BanditSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Exp3 made for these rounds, over `n` runs; returns the regret `[n]`."""
    means, lane = np.array(setting.means, np.float32), np.arange(n)
    size = means.size
    gamma = np.float32(min(1.0, math.sqrt(size * math.log(size) / ((math.e - 1) * rounds))))
    weight = np.ones((size, n), np.float32)
    regret, gaps, uniforms = np.zeros(n), (means.max() - means).astype(np.float64), _uniforms(rng, n)
    for _ in range(rounds):
        probability = weight * ((1 - gamma) / weight.sum(axis=0))
        probability += gamma / size
        below = np.cumsum(probability, axis=0)
        arm = np.minimum((below <= next(uniforms)).sum(axis=0), size - 1)
        reward = next(uniforms) < means[arm]
        weight[arm, lane] *= np.exp(gamma / size * reward / probability[arm, lane])
        weight /= weight.max(axis=0)
        regret += gaps[arm]
    return regret


# ----------------------------------------------------------------------------------------------------------
# (c) Compiled by numba, runs in parallel
#
# Numba's own generator is a Mersenne twister whose normals (polar method) take twice as long as the ziggurat
# below; a splitmix64 counter per run also makes a run independent of the thread that plays it.

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _jit(**options):
    """`numba.njit(**options)`, or no decoration where numba is missing."""
    return numba.njit(**options) if numba else lambda function: function


_prange = numba.prange if numba else range


def _ziggurat_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tables of the normal ziggurat with 256 layers (Marsaglia and Tsang, 2000), for 52-bit integers."""
    radius, area, scale = 3.6541528853610088, 0.00492867323399, 2.0**52
    inside, width, height = np.zeros(256, np.uint64), np.zeros(256), np.zeros(256)
    edge = outer = radius
    base = area / math.exp(-0.5 * edge * edge)
    inside[0], width[0], height[0] = int(edge / base * scale), base / scale, 1.0
    width[255], height[255] = edge / scale, math.exp(-0.5 * edge * edge)
    for layer in range(254, 0, -1):
        edge = math.sqrt(-2.0 * math.log(area / edge + math.exp(-0.5 * edge * edge)))
        inside[layer + 1] = int(edge / outer * scale)
        width[layer], height[layer] = edge / scale, math.exp(-0.5 * edge * edge)
        outer = edge
    return inside, width, height


_ZIG_INSIDE, _ZIG_WIDTH, _ZIG_HEIGHT = _ziggurat_tables()


@_jit(inline="always")
def _mix(x):
    """Output function of splitmix64: scrambles the counter `x`."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_jit(inline="always")
def _bits(stream):
    """Next 64 random bits of `stream` `[1]` uint64."""
    stream[0] += _GOLDEN
    return _mix(stream[0])


@_jit(inline="always")
def _uniform(stream):
    """Uniform on [0, 1) with 53 bits."""
    return (_bits(stream) >> np.uint64(11)) * 2.0**-53


@_jit()
def _normal(stream):
    """Standard normal by the ziggurat; 98.8 % of the draws end at the first return."""
    while True:
        bits = _bits(stream)
        layer = bits & np.uint64(255)
        sign = 1.0 - 2.0 * ((bits >> np.uint64(8)) & np.uint64(1))
        offset = (bits >> np.uint64(9)) & np.uint64(0xFFFFFFFFFFFFF)
        x = sign * offset * _ZIG_WIDTH[layer]
        if offset < _ZIG_INSIDE[layer]:
            return x
        if layer == 0:
            while True:
                tail = -math.log1p(-_uniform(stream)) / 3.6541528853610088
                if -2.0 * math.log1p(-_uniform(stream)) > tail * tail:
                    return sign * (3.6541528853610088 + tail)
        step = _ZIG_HEIGHT[layer - np.uint64(1)] - _ZIG_HEIGHT[layer]
        if step * _uniform(stream) + _ZIG_HEIGHT[layer] < math.exp(-0.5 * x * x):
            return x


@_jit()
def _gamma(stream, d, c):
    """Standard gamma draw of shape `d + 1/3 >= 1`, with `c = 1 / sqrt(9 d)` (Marsaglia and Tsang, 2000)."""
    while True:
        x = _normal(stream)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = 1.0 - _uniform(stream)  # Positive, for the logarithm.
        if u < 1.0 - 0.0331 * x * x * x * x or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return d * v


@_jit(inline="always")
def _stream(seed, run):
    """Random stream `[1]` of one run."""
    stream = np.empty(1, np.uint64)
    stream[0] = _mix(_mix(np.uint64(seed) + _GOLDEN) + np.uint64(run) * _GOLDEN)
    return stream


@_jit(parallel=True)
def _numba_ucb1(means, width, rounds, runs, seed):
    num_arms, best = means.size, means.max()
    regret = np.zeros(runs)
    for run in _prange(runs):
        stream = _stream(seed, run)
        pulls, reward_sum = np.zeros(num_arms), np.zeros(num_arms)
        mean, inverse_root = np.full(num_arms, np.inf), np.zeros(num_arms)
        lost = 0.0
        for t in range(rounds):
            spread = width * math.sqrt(math.log(t + 2.0))
            arm, top = 0, -1.0
            for k in range(num_arms):
                bound = mean[k] + spread * inverse_root[k]
                if bound > top:
                    arm, top = k, bound
            pulls[arm] += 1.0
            if _uniform(stream) < means[arm]:
                reward_sum[arm] += 1.0
            mean[arm] = reward_sum[arm] / pulls[arm]
            inverse_root[arm] = 1.0 / math.sqrt(pulls[arm])
            lost += best - means[arm]
        regret[run] = lost
    return regret


@_jit(parallel=True)
def _numba_gaussian_thompson(means, prior_mean, prior_weight, scale, rounds, runs, seed):
    num_arms, best = means.size, means.max()
    regret = np.zeros(runs)
    for run in _prange(runs):
        stream = _stream(seed, run)
        weight, total = np.full(num_arms, prior_weight), np.full(num_arms, prior_weight * prior_mean)
        mean, deviation = total / weight, scale / np.sqrt(weight)
        lost = 0.0
        for _ in range(rounds):
            arm, top = 0, -np.inf
            for k in range(num_arms):
                sample = mean[k] + deviation[k] * _normal(stream)
                if sample > top:
                    arm, top = k, sample
            weight[arm] += 1.0
            if _uniform(stream) < means[arm]:
                total[arm] += 1.0
            mean[arm] = total[arm] / weight[arm]
            deviation[arm] = scale / math.sqrt(weight[arm])
            lost += best - means[arm]
        regret[run] = lost
    return regret


@_jit(parallel=True)
def _numba_beta_thompson(means, rounds, runs, seed):
    num_arms, best = means.size, means.max()
    regret = np.zeros(runs)
    for run in _prange(runs):
        stream = _stream(seed, run)
        # The gamma generator's constants of the counts, rows failures + 1 and successes + 1.
        d = np.full((2, num_arms), 2.0 / 3.0)
        c = 1.0 / np.sqrt(9.0 * d)
        lost = 0.0
        for _ in range(rounds):
            arm, top = 0, -1.0
            for k in range(num_arms):
                x = _gamma(stream, d[1, k], c[1, k])
                sample = x / (x + _gamma(stream, d[0, k], c[0, k]))
                if sample > top:
                    arm, top = k, sample
            row = 1 if _uniform(stream) < means[arm] else 0
            d[row, arm] += 1.0
            c[row, arm] = 1.0 / math.sqrt(9.0 * d[row, arm])
            lost += best - means[arm]
        regret[run] = lost
    return regret


@_jit(parallel=True)
def _numba_epsilon_greedy(means, epsilon, rounds, runs, seed):
    num_arms, best = means.size, means.max()
    regret = np.zeros(runs)
    for run in _prange(runs):
        stream = _stream(seed, run)
        pulls, reward_sum = np.zeros(num_arms), np.zeros(num_arms)
        mean = np.full(num_arms, np.inf)
        lost = 0.0
        for _ in range(rounds):
            if _uniform(stream) < epsilon:
                arm = int(_uniform(stream) * num_arms)
            else:
                arm, top = 0, -1.0
                for k in range(num_arms):
                    if mean[k] > top:
                        arm, top = k, mean[k]
            pulls[arm] += 1.0
            if _uniform(stream) < means[arm]:
                reward_sum[arm] += 1.0
            mean[arm] = reward_sum[arm] / pulls[arm]
            lost += best - means[arm]
        regret[run] = lost
    return regret


_LANES = 128  # Runs that share the vector registers of one thread.


@_jit(parallel=True)
def _numba_lanes_ucb1(means, width, rounds, runs, seed):
    """UCB1 with the runs of a block in the innermost loops, which become vector instructions."""
    num_arms, best, one = means.size, means.max(), np.float32(1)
    means32 = means.astype(np.float32)
    num_blocks = (runs + _LANES - 1) // _LANES
    regret = np.zeros(num_blocks * _LANES)
    for block in _prange(num_blocks):
        shape = (num_arms, _LANES)
        pulls, reward_sum = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        mean, inverse_root = np.full(shape, np.float32(np.inf)), np.zeros(shape, np.float32)
        counter, uniform = np.empty(_LANES, np.uint64), np.empty(_LANES, np.float32)
        arm, top = np.empty(_LANES, np.int32), np.empty(_LANES, np.float32)
        for i in range(_LANES):
            counter[i] = _stream(seed, block * _LANES + i)[0]
        for t in range(rounds):
            spread = np.float32(width * math.sqrt(math.log(t + 2.0)))
            for i in range(_LANES):
                counter[i] += _GOLDEN
                uniform[i] = np.float32(np.int32(_mix(counter[i]) >> np.uint64(40))) * np.float32(2.0**-24)
                top[i], arm[i] = mean[0, i] + spread * inverse_root[0, i], 0
            for k in range(1, num_arms):
                for i in range(_LANES):
                    bound = mean[k, i] + spread * inverse_root[k, i]
                    better = bound > top[i]
                    top[i] = bound if better else top[i]
                    arm[i] = np.int32(k) if better else arm[i]
            for i in range(_LANES):
                k = arm[i]
                used = pulls[k, i] + one
                total = reward_sum[k, i] + (one if uniform[i] < means32[k] else np.float32(0))
                pulls[k, i], reward_sum[k, i] = used, total
                mean[k, i], inverse_root[k, i] = total / used, one / np.sqrt(used)
        for i in range(_LANES):
            for k in range(num_arms):
                regret[block * _LANES + i] += pulls[k, i] * (best - means[k])
    return regret[:runs]


@_jit(parallel=True)
def _numba_lanes_epsilon_greedy(means, epsilon, rounds, runs, seed):
    """Epsilon-greedy with the runs of a block in the innermost loops (see `_numba_lanes_ucb1`)."""
    num_arms, best, one = means.size, means.max(), np.float32(1)
    means32 = means.astype(np.float32)
    num_blocks = (runs + _LANES - 1) // _LANES
    regret = np.zeros(num_blocks * _LANES)
    for block in _prange(num_blocks):
        shape = (num_arms, _LANES)
        pulls, reward_sum = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        mean = np.full(shape, np.float32(np.inf))
        counter, bits = np.empty(_LANES, np.uint64), np.empty(_LANES, np.uint64)
        arm, top = np.empty(_LANES, np.int32), np.empty(_LANES, np.float32)
        for i in range(_LANES):
            counter[i] = _stream(seed, block * _LANES + i)[0]
        for _ in range(rounds):
            for i in range(_LANES):
                counter[i] += _GOLDEN
                bits[i] = _mix(counter[i])  # 24 bits for the reward, 40 for the coin.
                top[i], arm[i] = mean[0, i], 0
            for k in range(1, num_arms):
                for i in range(_LANES):
                    better = mean[k, i] > top[i]
                    top[i] = mean[k, i] if better else top[i]
                    arm[i] = np.int32(k) if better else arm[i]
            for i in range(_LANES):
                uniform = np.float32(np.int32(bits[i] >> np.uint64(40))) * np.float32(2.0**-24)
                coin = np.float64(np.int64(bits[i] & np.uint64(0xFFFFFFFFFF))) * 2.0**-40
                if coin < epsilon:  # Below epsilon, coin / epsilon is again uniform.
                    arm[i] = min(np.int32(coin / epsilon * num_arms), num_arms - 1)
                k = arm[i]
                used = pulls[k, i] + one
                total = reward_sum[k, i] + (one if uniform < means32[k] else np.float32(0))
                pulls[k, i], reward_sum[k, i], mean[k, i] = used, total, total / used
        for i in range(_LANES):
            for k in range(num_arms):
                regret[block * _LANES + i] += pulls[k, i] * (best - means[k])
    return regret[:runs]


def numba_ucb1(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """UCB1; returns the regret `[R]`."""
    return _numba_ucb1(np.array(setting.means), setting.width, rounds, runs, seed)


def numba_lanes_ucb1(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """UCB1 in blocks of runs; returns the regret `[R]`."""
    return _numba_lanes_ucb1(np.array(setting.means), setting.width, rounds, runs, seed)


def numba_gaussian_thompson(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """Gaussian Thompson sampling; returns the regret `[R]`."""
    prior = (setting.prior_mean, setting.prior_weight, setting.scale)
    return _numba_gaussian_thompson(np.array(setting.means), *prior, rounds, runs, seed)


def numba_beta_thompson(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """Beta Thompson sampling; returns the regret `[R]`."""
    return _numba_beta_thompson(np.array(setting.means), rounds, runs, seed)


def numba_epsilon_greedy(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """Epsilon-greedy; returns the regret `[R]`."""
    return _numba_epsilon_greedy(np.array(setting.means), setting.epsilon, rounds, runs, seed)


def numba_lanes_epsilon_greedy(setting: BanditSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """Epsilon-greedy in blocks of runs; returns the regret `[R]`."""
    return _numba_lanes_epsilon_greedy(np.array(setting.means), setting.epsilon, rounds, runs, seed)


# ----------------------------------------------------------------------------------------------------------
# (d) Packages


def _package_loop(make_policy: Callable, setting: BanditSetting, rounds: int, runs: int, seed: int) -> dict:
    """Plays a package's policies; `make_policy(setting, seed)` returns `pull()` and `update(arm, reward)`.

    The environment is kept as light as Python allows (`random.random`), so that the time is the package's.
    """
    means = setting.means
    best = max(means)
    regret = np.zeros(runs)
    for run in range(runs):
        draw = random.Random(f"environment {seed} {run}").random
        pull, update = make_policy(setting, int(np.random.SeedSequence([seed, run]).generate_state(1)[0]))
        lost = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):  # SMPyBandits divides by the pulls of unused arms.
            for _ in range(rounds):
                arm = pull()
                update(arm, 1.0 if draw() < means[arm] else 0.0)
                lost += best - means[arm]
        regret[run] = lost
    return _result(regret, rounds)


@functools.cache
def _river():
    """Imports river's bandits and defines the posterior that its Gaussian distribution is not.

    `river.proba.Gaussian` samples with the standard deviation of the rewards, which is zero after one reward
    and does not shrink with the number of pulls; a posterior of the mean is a small subclass of its
    distribution interface.
    """
    from river import bandit, proba, stats

    class MeanPosterior(proba.base.ContinuousDistribution):
        """Normal posterior of an arm's mean."""

        def __init__(self, prior_mean=0.0, prior_weight=1.0, scale=1.0, seed=None):
            super().__init__(seed)
            self.prior_mean, self.prior_weight, self.scale = prior_mean, prior_weight, scale
            self._weight, self._total = prior_weight, prior_mean * prior_weight

        @property
        def n_samples(self):
            return self._weight - self.prior_weight

        def update(self, x):
            self._weight += 1
            self._total += x

        def revert(self, x):
            self._weight -= 1
            self._total -= x

        def sample(self):
            return self._rng.gauss(self.mode, self.scale / math.sqrt(self._weight))

        @property
        def mode(self):
            return self._total / self._weight

        def cdf(self, x):
            return 0.5 * math.erfc((self.mode - x) * math.sqrt(0.5 * self._weight) / self.scale)

        def __call__(self, x):
            z = (x - self.mode) * math.sqrt(self._weight) / self.scale
            return math.exp(-0.5 * z * z) * math.sqrt(self._weight / math.tau) / self.scale

        def __repr__(self):
            return f"MeanPosterior({self.mode:.3f}, weight={self._weight:g})"

    return bandit, proba, stats, MeanPosterior


def _river_policy(policy, num_arms: int):
    arms = list(range(num_arms))
    return functools.partial(policy.pull, arms), policy.update


def river_ucb1(setting: BanditSetting, seed: int):
    """`river.bandit.UCB`: `mean + delta sqrt(2 log(t) / pulls)`; `delta = width / sqrt(2)`, random ties."""
    bandit, *_ = _river()
    return _river_policy(bandit.UCB(delta=setting.width / math.sqrt(2.0), seed=seed), len(setting.means))


def river_gaussian_thompson(setting: BanditSetting, seed: int):
    """`river.bandit.ThompsonSampling` with a Gaussian posterior of the mean (see `_river`)."""
    bandit, _, _, mean_posterior = _river()
    posterior = mean_posterior(setting.prior_mean, setting.prior_weight, setting.scale)
    return _river_policy(bandit.ThompsonSampling(posterior, seed=seed), len(setting.means))


def river_beta_thompson(setting: BanditSetting, seed: int):
    """`river.bandit.ThompsonSampling` with `proba.Beta(1, 1)`."""
    bandit, proba, *_ = _river()
    return _river_policy(bandit.ThompsonSampling(proba.Beta(1, 1), seed=seed), len(setting.means))


def river_epsilon_greedy(setting: BanditSetting, seed: int):
    """`river.bandit.EpsilonGreedy`; `burn_in=1` uses every arm once before the coin is thrown."""
    bandit, _, stats, _ = _river()
    policy = bandit.EpsilonGreedy(setting.epsilon, reward_obj=stats.Mean(), burn_in=1, seed=seed)
    return _river_policy(policy, len(setting.means))


@functools.cache
def _smpybandits():
    """Imports SMPyBandits' policies and gives its Gaussian posterior the law of the other tools.

    Version 0.9.7 (2020) imports `scipy.special.btdtri`, which SciPy 1.14 removed; its documented successor
    `betaincinv` is put under that name while the import runs (only BayesUCB's quantiles would call it). The
    shipped `Posterior.Gauss` passes 1 / pulls as the *standard deviation* and keeps its counts over `reset`,
    hence the subclass.
    """
    import scipy.special

    errors, missing = np.geterr(), not hasattr(scipy.special, "btdtri")
    if missing:
        setattr(scipy.special, "btdtri", scipy.special.betaincinv)  # noqa: B010 (unknown to type checkers)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Warnings about numba and tqdm.
            policies = importlib.import_module("SMPyBandits.Policies")
            posteriors = importlib.import_module("SMPyBandits.Policies.Posterior")
    finally:
        np.seterr(**errors)  # The package changes NumPy's error handling when imported.
        if missing:
            delattr(scipy.special, "btdtri")

    class MeanPosterior(posteriors.Gauss):
        """Normal posterior of an arm's mean."""

        def __init__(self, prior_mean, prior_weight, scale):
            self.prior_mean, self.prior_weight, self.scale = prior_mean, prior_weight, scale
            self.reset()

        def reset(self, mu=None):
            del mu
            self._nb_data, self._sum_data = self.prior_weight, self.prior_mean * self.prior_weight
            self.mu, self.sigma = self.prior_mean, self.scale / math.sqrt(self.prior_weight)

        def update(self, obs):
            self._nb_data += 1
            self._sum_data += obs
            self.mu, self.sigma = self._sum_data / self._nb_data, self.scale / math.sqrt(self._nb_data)

    return policies, MeanPosterior


def _smpybandits_policy(policy, seed: int):
    # The package draws from the global generators of NumPy and of Python.
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    policy.startGame()
    return policy.choice, policy.getReward


def smpybandits_ucb1(setting: BanditSetting, seed: int):
    """`UCBalpha`: `mean + sqrt(alpha log(t) / (2 pulls))`, `alpha = 2 width^2`, random ties."""
    policies, _ = _smpybandits()
    return _smpybandits_policy(policies.UCBalpha(len(setting.means), alpha=2.0 * setting.width**2), seed)


def smpybandits_gaussian_thompson(setting: BanditSetting, seed: int):
    """`Thompson` with a Gaussian posterior of the mean (see `_smpybandits`)."""
    policies, mean_posterior = _smpybandits()
    prior = {k: getattr(setting, k) for k in ("prior_mean", "prior_weight", "scale")}
    return _smpybandits_policy(policies.Thompson(len(setting.means), posterior=mean_posterior, **prior), seed)


def smpybandits_beta_thompson(setting: BanditSetting, seed: int):
    """`Thompson` with its default Beta(1, 1) posterior."""
    policies, _ = _smpybandits()
    return _smpybandits_policy(policies.Thompson(len(setting.means)), seed)


def smpybandits_epsilon_greedy(setting: BanditSetting, seed: int):
    """`EpsilonGreedy` as shipped: exploits the largest reward *sum* and never explores the last arm."""
    policies, _ = _smpybandits()
    return _smpybandits_policy(policies.EpsilonGreedy(len(setting.means), epsilon=setting.epsilon), seed)


# What SMPyBandits calls the shelf's policies, with arguments that make them the same; and where it departs, in what.
_SMPYBANDITS = {
    "kl_ucb": ("klUCB", {}, ""),
    "ucb_v": ("UCBV", {}, "the constants of its bound are fixed: 2 log t for 2.4 log t, 3 log t for 3.6 log t"),
    "moss": ("MOSS", {}, "t in place of the horizon"),
    "moss_anytime": ("MOSSAnytime", {"alpha": 1.35}, ""),
    "imed": ("IMED", {}, ""),
    "bayes_ucb": ("BayesUCB", {}, ""),
    "exp3": ("Exp3WithHorizon", {"horizon": 2000}, "its learning rate is another one"),
    "exp3_plus_plus": ("Exp3PlusPlus", {"alpha": 3.0, "beta": 256.0}, "explores by the learning rate in place of the gaps"),
    "sliding_window_ucb": ("SWUCB", {"tau": 607, "alpha": 0.6}, ""),
    "discounted_ucb": ("DiscountedUCB", {"alpha": 4.8, "gamma": 0.9975}, "its discounted pulls are whole numbers"),
    "discounted_thompson": ("DiscountedThompson", {"gamma": 0.9975}, "discounts a model only when it is used"),
}


def smpybandits_of(policy: str) -> Callable:
    """The maker of one of the shelf's policies in SMPyBandits: a function of setting and seed."""
    name, options, _ = _SMPYBANDITS[policy]

    def make(setting: BanditSetting, seed: int):
        policies, _ = _smpybandits()
        return _smpybandits_policy(getattr(policies, name)(len(setting.means), **options), seed)

    return make


def _mabwiser_policy(policy, num_arms: int, seed: int):
    """A policy of MABWiser, which learns by `partial_fit` after a first `fit`; that is of one reward of 0 for each arm."""
    from mabwiser.mab import MAB

    mab = MAB(arms=list(range(num_arms)), learning_policy=policy, seed=seed)
    mab.fit(decisions=list(range(num_arms)), rewards=[0.0] * num_arms)
    return mab.predict, lambda arm, reward: mab.partial_fit([arm], [reward])


def mabwiser_ucb1(setting: BanditSetting, seed: int):
    """`UCB1`: `mean + alpha sqrt(2 log(t) / pulls)`, `alpha = width / sqrt(2)`."""
    from mabwiser.mab import LearningPolicy

    return _mabwiser_policy(LearningPolicy.UCB1(alpha=setting.width / math.sqrt(2.0)), len(setting.means), seed)


def mabwiser_beta_thompson(setting: BanditSetting, seed: int):
    """`ThompsonSampling`, from Beta(1, 1)."""
    from mabwiser.mab import LearningPolicy

    return _mabwiser_policy(LearningPolicy.ThompsonSampling(), len(setting.means), seed)


def mabwiser_epsilon_greedy(setting: BanditSetting, seed: int):
    """`EpsilonGreedy` of the means."""
    from mabwiser.mab import LearningPolicy

    return _mabwiser_policy(LearningPolicy.EpsilonGreedy(epsilon=setting.epsilon), len(setting.means), seed)


# ----------------------------------------------------------------------------------------------------------
# (e) StageRoute, one run at a time, linear programs by HiGHS


def _route_highs(reward_ucb, cost_lcb, capacity, budget) -> tuple[np.ndarray, float, bool]:
    """RouteOPT (eq. 7): `max reward_ucb . p`, `cost_lcb . p <= budget`, `sum p = 1`, `0 <= p <= capacity`.

    Returns probabilities `[n]`, the multiplier of the budget row and whether the program is feasible; if
    not, the cheapest distribution is returned.
    """
    from scipy.optimize import linprog

    ones, bounds = np.ones((1, reward_ucb.size)), np.column_stack([np.zeros_like(capacity), capacity])
    solution = linprog(-reward_ucb, cost_lcb[None], [budget], ones, [1.0], bounds, method="highs")
    if solution.status == 0:
        return np.clip(solution.x, 0.0, capacity), -solution.ineqlin.marginals[0], True
    probability, left = np.zeros_like(capacity), 1.0
    for model in np.lexsort((-reward_ucb, cost_lcb)):
        probability[model] = min(capacity[model], left)
        left -= probability[model]
    return probability / probability.sum(), 0.0, False


def _deploy_highs(reward_ucb, cost_lcb, capacity, setting: StagedSetting) -> np.ndarray:
    """DeployOPT (eq. 3): returns the deployed models `[M]`, ascending.

    With four or more slots and capacities of at least 0.4 the relaxed solution fits the slots (Proposition 2
    of the specification); the free slots take the models of largest reduced cost, the limit of eq. (3)'s
    equality.
    """
    if reward_ucb.size <= setting.max_deployed:
        return np.arange(reward_ucb.size)
    probability, multiplier, feasible = _route_highs(reward_ucb, cost_lcb, capacity, setting.budget)
    outside, reduced = probability <= 1e-9, reward_ucb - multiplier * cost_lcb
    order = np.lexsort((cost_lcb, -reduced, outside)) if feasible else np.argsort(cost_lcb, kind="stable")
    return np.sort(order[: setting.max_deployed])


def _stage_values(setting: StagedSetting, rounds: int) -> np.ndarray:
    """`[stages]` optimal expected reward per query for the pool of every stage (eq. 1, true values)."""

    @functools.cache
    def value(size):
        mean, cost, capacity = setting.reward_mean[:size], setting.cost_mean[:size], setting.capacity[:size]
        return _route_highs(mean, cost, capacity, setting.budget)[0] @ mean

    return np.array([value(setting.pool_size(start)) for start in range(0, rounds, setting.stage_length)])


def _reward_ucb(mean, n, setting: StagedSetting):
    """Eq. (4): `clip(mean + 2 f_rad(mean, n + 1), 0, 1)`."""
    ratio = setting.gamma / (n + 1)
    return np.clip(mean + 2 * (np.sqrt(ratio * np.maximum(mean, 0.0)) + ratio), 0.0, 1.0)


def _cost_lcb(mean, n, setting: StagedSetting):
    """Eq. (5): `clip(mean - 2 f_rad(mean, n + 1), cost_floor, cost_ceiling)`."""
    ratio = setting.gamma / (n + 1)
    spread = 2 * (np.sqrt(ratio * np.maximum(mean, 0.0)) + ratio)
    return np.clip(mean - spread, setting.cost_floor, setting.cost_ceiling)


def loop_stageroute_highs(setting: StagedSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """StageRoute (Algorithm 1) as a plain loop with one LP per query; returns the regret `[R]`."""
    reward_mean, cost_mean, capacity = setting.reward_mean, setting.cost_mean, setting.capacity
    values = _stage_values(setting, rounds)
    regret = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        pulls, reward_sum, cost_sum = np.zeros((3, reward_mean.size))
        ucb, lcb = np.ones(reward_mean.size), np.full(reward_mean.size, setting.cost_floor)
        deployed = np.arange(0)
        for t in range(rounds):
            if t % setting.stage_length == 0:
                pool = setting.pool_size(t)
                deployed = _deploy_highs(ucb[:pool], lcb[:pool], capacity[:pool], setting)
            probability, *_ = _route_highs(ucb[deployed], lcb[deployed], capacity[deployed], setting.budget)
            model = rng.choice(deployed, p=probability / probability.sum())
            reward_noise, cost_noise = rng.standard_normal(2)
            pulls[model] += 1
            reward_sum[model] += reward_mean[model] + setting.reward_noise * reward_noise
            cost_sum[model] += cost_mean[model] * (1 + setting.cost_noise * cost_noise)
            ucb[model] = _reward_ucb(reward_sum[model] / pulls[model], pulls[model], setting)
            lcb[model] = _cost_lcb(cost_sum[model] / pulls[model], pulls[model], setting)
            regret[run] += values[t // setting.stage_length] - reward_mean[model]
    return regret


# ----------------------------------------------------------------------------------------------------------
# (f) StageRoute, all runs at once in NumPy


class _Router:
    """Solves RouteOPT for `n` runs by the secant on the dual, started from the previous round's solution.

    For a multiplier `lam` the fill of the scores `reward_ucb - lam * cost_lcb` (best model first, each up to
    its capacity) maximises the Lagrangian. The optimum mixes two fills, `dear` above the budget and `cheap`
    within it, and their slope is the multiplier. A fill at that slope either gains nothing, which proves the
    pair optimal, or replaces one end of it. As one statistic of a run changes per round, the last pair is
    mostly still optimal: one fill over all runs confirms it, and the few other runs are gathered and
    iterated. Where the budget is slack, or no distribution meets it, both ends hold the same fill.

    capacity: `[size, n]`, float32 or float64. dear, cheap: `[size, n]` probabilities of the two ends.
    """

    _MAX_STEPS = 40  # A guard: every step finds a new vertex, and whole experiments needed at most 6.

    def __init__(self, capacity: np.ndarray, budget: float):
        size, dtype = capacity.shape[0], capacity.dtype
        first, second = np.triu_indices(size, 1)
        pair = np.arange(first.size)
        # [P, size] forms score_j - score_i of the pairs i < j; [size, 2 P] adds the capacities ahead of each.
        self.difference = np.zeros((pair.size, size), dtype)
        self.difference[pair, second], self.difference[pair, first] = 1, -1
        self.ahead = np.zeros((size, 2 * pair.size), dtype)
        self.ahead[first, pair], self.ahead[second, pair.size + pair] = 1, 1
        single = dtype == np.float32
        self.budget, self.tolerance = budget * (1 + (1e-6 if single else 1e-9)), 2e-6 if single else 1e-12
        self.capacity, self.blockers = capacity, np.concatenate([capacity[second], capacity[first]])
        self.dear, self.cheap = np.zeros((2, *capacity.shape), dtype)  # No pair: the first call starts cold.

    def _fill(self, second_leads: np.ndarray, capacity: np.ndarray, blockers: np.ndarray) -> np.ndarray:
        """Fill `[size, m]` of a ranking: `second_leads` `[P, m]` says which pairs have j ahead of i."""
        leads, half = second_leads.astype(capacity.dtype), second_leads.shape[0]
        load = np.empty_like(blockers)
        np.multiply(blockers[:half], leads, out=load[:half])
        np.subtract(1, leads, out=leads)
        np.multiply(blockers[half:], leads, out=load[half:])
        left = self.ahead @ load
        np.subtract(1, left, out=left)
        np.maximum(left, 0, out=left)
        return np.minimum(left, capacity, out=left)

    def _start(self, bounds, capacity, blockers):
        """Starting ends `[size, m]`: the best and the cheapest fill, or one of them twice if that decides."""
        reward_gap, cost_gap = self.difference @ bounds
        dear = self._fill((reward_gap > 0) | ((reward_gap == 0) & (cost_gap < 0)), capacity, blockers)
        cheap = self._fill((cost_gap < 0) | ((cost_gap == 0) & (reward_gap > 0)), capacity, blockers)
        slack = (bounds[1] * dear).sum(0) <= self.budget
        infeasible = (bounds[1] * cheap).sum(0) > self.budget
        return np.where(infeasible, cheap, dear), np.where(slack, dear, cheap)

    def _step(self, bounds, capacity, blockers, dear, cheap):
        """One secant step, in place on the ends `dear` and `cheap` `[size, m]`.

        Returns masks `[m]` of the runs that had a pair and of those whose ends are final; for the latter also
        the share `[m]` of the dear end in the solution and the budget's multiplier `[m]`.
        """
        reward_dear, cost_dear = (bounds * dear).sum(1)
        reward_cheap, cost_cheap = (bounds * cheap).sum(1)
        paired = (cost_dear > self.budget) & (cost_cheap <= self.budget)
        span = np.where(paired, cost_dear - cost_cheap, np.inf)  # No pair: no share and no multiplier.
        slope = np.maximum((reward_dear - reward_cheap) / span, 0)
        share = (self.budget - cost_cheap) / span
        reward_gap, cost_gap = self.difference @ bounds
        np.multiply(cost_gap, slope, out=cost_gap)
        fill = self._fill(reward_gap > cost_gap, capacity, blockers)
        reward, cost = (bounds * fill).sum(1)
        best = np.maximum(reward_dear - slope * cost_dear, reward_cheap - slope * cost_cheap)
        moved = paired & (reward - slope * cost > best + self.tolerance)
        over = cost > self.budget
        where = (moved & over).nonzero()[0]
        dear[:, where] = fill[:, where]
        where = (moved & ~over).nonzero()[0]
        cheap[:, where] = fill[:, where]
        # At slope zero the budget is slack if the fill, or an old cheap end as good as it, meets the budget.
        flat = (paired & (slope == 0) & ~(moved & over)).nonzero()[0]
        if flat.size:
            cheap[:, flat] = np.where(over[flat], cheap[:, flat], fill[:, flat])
            dear[:, flat] = cheap[:, flat]
            moved[flat] = False
        return paired, ~moved, share, slope

    def __call__(self, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Solves for `bounds` `[2, size, n]`: reward upper and cost lower bounds.

        Returns probabilities `[size, n]` and the multiplier of the budget `[n]`.
        """
        paired, final, share, slope = self._step(bounds, self.capacity, self.blockers, self.dear, self.cheap)
        todo = (~(paired & final)).nonzero()[0]
        if todo.size:
            dear, cheap = self.dear.take(todo, 1), self.cheap.take(todo, 1)
            some = (bounds.take(todo, 2), self.capacity.take(todo, 1), self.blockers.take(todo, 1))
            cold = (~paired[todo]).nonzero()[0]
            if cold.size:
                dear[:, cold], cheap[:, cold] = self._start(*(x.take(cold, -1) for x in some))
            for _ in range(self._MAX_STEPS):
                paired, final, share[todo], slope[todo] = self._step(some[0], some[1], some[2], dear, cheap)
                self.dear[:, todo], self.cheap[:, todo] = dear, cheap
                left = (~final).nonzero()[0]
                if not left.size:
                    break
                todo, dear, cheap = todo[left], dear.take(left, 1), cheap.take(left, 1)
                some = tuple(x.take(left, -1) for x in some)
        mixture = self.dear - self.cheap
        np.multiply(mixture, share, out=mixture)
        return np.add(mixture, self.cheap, out=mixture), slope


def _deploy_vectorised(bounds: np.ndarray, capacity: np.ndarray, setting: StagedSetting) -> np.ndarray:
    """DeployOPT for all runs (see `_deploy_highs`).

    bounds: `[2, pool, n]` float64 reward upper and cost lower bounds. capacity: `[pool]`.
    Returns the deployed models `[M, n]`, ascending.
    """
    _, pool, n = bounds.shape
    if pool <= setting.max_deployed:
        return np.tile(np.arange(pool)[:, None], (1, n))
    router = _Router(np.tile(capacity[:, None], (1, n)), setting.budget)
    probability, multiplier = router(bounds)
    feasible = (bounds[1] * probability).sum(0) <= router.budget * (1 + 1e-9)
    outside = (probability <= 1e-9) & feasible
    reduced = np.where(feasible, bounds[0] - multiplier * bounds[1], 0.0)
    order = np.lexsort((bounds[1], -reduced, outside), axis=0)  # Infeasible: by cost alone.
    return np.sort(order[: setting.max_deployed], axis=0)


def vectorised_stageroute(setting: StagedSetting, rounds: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """StageRoute (Algorithm 1) over `n` runs; returns the regret `[n]`.

    A run's statistics live in a book of all models; a stage works on the `M` slots copied from it. A round
    changes the bounds of one slot, so that bounds are recomputed for the chosen slots only.
    """
    reward_mean, cost_mean, capacity = setting.reward_mean, setting.cost_mean, setting.capacity
    values = _stage_values(setting, rounds)
    book = np.zeros((3, reward_mean.size, n), np.float32)  # Pulls, reward sum, cost sum.
    lane, earned = np.arange(n), np.zeros(n)
    cell, noise, uniform = np.empty(n, np.intp), np.empty((2, n), np.float32), np.empty(n, np.float32)
    gamma, floor, ceiling = (np.float32(x) for x in (setting.gamma, setting.cost_floor, setting.cost_ceiling))
    noise_scale = np.array([[setting.reward_noise], [setting.cost_noise]], np.float32)
    for start in range(0, rounds, setting.stage_length):
        pulls, *sums = book[:, : setting.pool_size(start)].astype(float)
        means = np.stack(sums) / np.maximum(pulls, 1)
        ucb = np.where(pulls > 0, _reward_ucb(means[0], pulls, setting), 1.0)
        lcb = np.where(pulls > 0, _cost_lcb(means[1], pulls, setting), setting.cost_floor)
        bounds = np.stack([ucb, lcb])
        deployed = _deploy_vectorised(bounds, capacity[: pulls.shape[0]], setting)

        bounds = np.take_along_axis(bounds, deployed[None], axis=1).astype(np.float32)
        slots = np.take_along_axis(book, deployed[None], axis=1)
        truth = np.stack([reward_mean[deployed], cost_mean[deployed]]).astype(np.float32)
        deviation = np.stack([np.ones_like(truth[0]), truth[1]]) * noise_scale[:, None]
        route = _Router(capacity[deployed].astype(np.float32), setting.budget)
        pulls_at, sums_at, bounds_at = slots[0].reshape(-1), slots[1:].reshape(2, -1), bounds.reshape(2, -1)
        truth_at, deviation_at = truth.reshape(2, -1), deviation.reshape(2, -1)
        for _ in range(min(setting.stage_length, rounds - start)):
            cumulative, _ = route(bounds)
            for slot in range(1, len(cumulative)):
                np.add(cumulative[slot - 1], cumulative[slot], out=cumulative[slot])
            rng.random(out=uniform, dtype=np.float32)
            np.multiply(uniform, cumulative[-1], out=uniform)
            below = (cumulative[:-1] <= uniform).view(np.uint8)
            np.multiply(np.add.reduce(below, axis=0, dtype=np.uint8), n, out=cell, dtype=np.intp)
            np.add(cell, lane, out=cell)

            rng.standard_normal(out=noise, dtype=np.float32)
            chosen = truth_at.take(cell, 1)
            earned += chosen[0]
            np.multiply(noise, deviation_at.take(cell, 1), out=noise)
            np.add(chosen, noise, out=chosen)
            used = pulls_at[cell]
            used += 1
            total = sums_at.take(cell, 1)
            total += chosen
            pulls_at[cell], sums_at[0, cell], sums_at[1, cell] = used, total[0], total[1]
            mean = np.divide(total, used, out=total)
            ratio = gamma / (used + 1)
            spread = np.maximum(mean, 0)
            np.multiply(spread, ratio, out=spread)
            np.sqrt(spread, out=spread)
            np.add(spread, ratio, out=spread)
            np.add(spread, spread, out=spread)
            bounds_at[0, cell] = np.minimum(np.maximum(mean[0] + spread[0], 0), 1)
            bounds_at[1, cell] = np.minimum(np.maximum(mean[1] - spread[1], floor), ceiling)
        np.put_along_axis(book, deployed[None], slots, axis=1)
    lengths = np.minimum(setting.stage_length, rounds - np.arange(0, rounds, setting.stage_length))
    return values @ lengths - earned


# ----------------------------------------------------------------------------------------------------------
# (g) ACQB with one answer, and with two, compiled by numba, runs in parallel


@functools.cache
def _of_size(dim: int) -> tuple[Callable, Callable, Callable, Callable]:
    """Compiled functions of vectors and matrices of this size, which is a constant of the code: short loops are unrolled."""

    @_jit()
    def shortened(move, longest):
        """Newton's step `[d]` in place, cut where it may move a logit by more than 1.79 (Sun and Tran-Dinh, 2019)."""
        total = 0.0
        for i in range(dim):
            total += move[i] * move[i]
        reach = longest * math.sqrt(total)
        if reach > 1.79:
            for i in range(dim):
                move[i] *= math.log1p(reach) / reach

    @_jit()
    def solve(matrix, move):
        """Solves `matrix @ move = move` in place; of `matrix` `[d, d]` the lower half is read, and overwritten by its root."""
        for i in range(dim):
            for j in range(i):
                total = matrix[i, j]
                for k in range(j):
                    total -= matrix[i, k] * matrix[j, k]
                matrix[i, j] = total / matrix[j, j]
            total = matrix[i, i]
            for k in range(i):
                total -= matrix[i, k] * matrix[i, k]
            matrix[i, i] = math.sqrt(total)
        for i in range(dim):
            total = move[i]
            for k in range(i):
                total -= matrix[i, k] * move[k]
            move[i] = total / matrix[i, i]
        for i in range(dim - 1, -1, -1):
            total = move[i]
            for k in range(i + 1, dim):
                total -= matrix[k, i] * move[k]
            move[i] = total / matrix[i, i]

    @_jit()
    def grow(root, x, work):
        """Adds `x x'` to `V = L L'` in place of its lower root `L` `[d, d]`."""
        for i in range(dim):
            work[i] = x[i]
        for k in range(dim):
            new = math.sqrt(root[k, k] * root[k, k] + work[k] * work[k])
            cosine, sine = new / root[k, k], work[k] / root[k, k]
            root[k, k] = new
            for i in range(k + 1, dim):
                root[i, k] = (root[i, k] + sine * work[i]) / cosine
                work[i] = cosine * work[i] - sine * root[i, k]

    @_jit()
    def drawn(stream, root, move):
        """Writes a sample of `N(0, V^-1)` into `move`, with `V = L L'` by its lower root `L`."""
        for i in range(dim - 1, -1, -1):
            total = _normal(stream)
            for k in range(i + 1, dim):
                total -= root[k, i] * move[k]
            move[i] = total / root[i, i]

    return shortened, solve, grow, drawn


@functools.cache
def _queue_loops(num_models: int, dim: int) -> tuple[Callable, Callable]:
    """The compiled estimate and the compiled runs for these sizes; see `_of_size`."""
    shortened, solve, grow, drawn = _of_size(dim)

    @_jit()
    def fit(theta, curvature, rows, count, accepted, took, ridge, longest, matrix, move):
        """The ridge logistic regression of one model, warm: a step on the newest row, then at most two Newton steps on all.

        After a step that moved nothing by more than 1e-3 the next would be of the order of its square, below what single precision
        resolves: that one is left out.

        theta: `[d]`, in place. curvature: `[d, d]`, that of the rows at the last fit, in place. rows: `[>= count, d]`, the newest
        last. accepted: `[d]`, sum of the accepted rows. took: whether the newest was. longest: of the norms of rows. matrix
        `[d, d]` and move `[d]`: room.
        """
        x = rows[count - 1]
        logit = 0.0
        for i in range(dim):
            logit += x[i] * theta[i]
        chance = 1.0 / (1.0 + math.exp(-logit))
        weight = chance * (1.0 - chance)
        for i in range(dim):
            move[i] = (chance - took) * x[i]
            for j in range(i + 1):
                matrix[i, j] = curvature[i, j] + weight * x[i] * x[j]
            matrix[i, i] += ridge
        solve(matrix, move)
        shortened(move, longest)
        for i in range(dim):
            theta[i] -= move[i]
        passes = 0
        for _ in range(2):
            passes += 1
            for i in range(dim):
                move[i] = ridge * theta[i] - accepted[i]
                for j in range(i + 1):
                    curvature[i, j] = 0.0
            for h in range(count):
                logit = 0.0
                for i in range(dim):
                    logit += rows[h, i] * theta[i]
                chance = 1.0 / (1.0 + math.exp(-logit))
                weight = chance * (1.0 - chance)
                for i in range(dim):
                    move[i] += chance * rows[h, i]
                    scaled = weight * rows[h, i]
                    for j in range(i + 1):
                        curvature[i, j] += scaled * rows[h, j]
            for i in range(dim):
                for j in range(i + 1):
                    matrix[i, j] = curvature[i, j]
                matrix[i, i] += ridge
            solve(matrix, move)
            shortened(move, longest)
            largest = 0.0
            for i in range(dim):
                theta[i] -= move[i]
                largest = max(largest, abs(move[i]))
            if largest < 1e-3:
                break
        return passes

    @_jit(parallel=True)
    def play(arrival_rate, least_rate, candidates, curvature_scale, ridge, c1, rounds, runs, seed):
        """Regret of routing `[R]`; NaN of a run in which no candidate could be served well enough."""
        regret = np.zeros(runs)
        radius = np.empty(rounds + 1)
        for n in range(rounds + 1):
            growth = dim * math.log1p(n / (dim * ridge)) + 4.0 * math.log(max(n, 1))
            radius[n] = 0.5 * curvature_scale * math.sqrt(growth) + curvature_scale * math.sqrt(ridge)
        for run in _prange(runs):
            stream = _stream(seed, run)
            truth = np.empty((num_models, dim))
            for j in range(num_models):
                for i in range(dim):
                    truth[j, i] = 2.0 * _uniform(stream) - 1.0
            theta, root = np.zeros((num_models, dim)), np.zeros((num_models, dim, dim))
            for j in range(num_models):
                for i in range(dim):
                    root[j, i, i] = math.sqrt(ridge)
            curvature, accepted = np.zeros((num_models, dim, dim)), np.zeros((num_models, dim))
            rows, pulls = np.empty((num_models, rounds, dim)), np.zeros(num_models, np.int64)
            waiting, rates = np.empty((rounds, dim)), np.empty(rounds)  # A prefix; the newest is the last.
            matrix, move, sample = np.empty((dim, dim)), np.empty(dim), np.empty((num_models, dim))
            length, pointer, arrived, lost, longest = 0, 0, False, 0.0, 0.0
            for t in range(rounds):
                if length > 0:
                    place, arm = length - 1, pointer
                    if arrived and _uniform(stream) <= c1 / math.sqrt(t + 1.0):
                        pointer = (pointer + 1) % num_models
                    else:
                        for j in range(num_models):
                            drawn(stream, root[j], move)
                            for i in range(dim):
                                sample[j, i] = theta[j, i] + radius[pulls[j]] * move[i]
                        top = -np.inf
                        for q in range(length):
                            for j in range(num_models):
                                utility = 0.0
                                for i in range(dim):
                                    utility += waiting[q, i] * sample[j, i]
                                if utility > top:
                                    place, arm, top = q, j, utility
                    utility, size = 0.0, 0.0
                    n = pulls[arm]
                    x = rows[arm, n]
                    for i in range(dim):
                        x[i] = waiting[place, i]
                        utility += x[i] * truth[arm, i]
                        size += x[i] * x[i]
                    longest = max(longest, math.sqrt(size))
                    rate = 1.0 / (1.0 + math.exp(-utility))
                    lost += rates[place] - rate
                    took = 0.0
                    if _uniform(stream) <= rate:
                        took = 1.0
                        length -= 1
                        rates[place] = rates[length]
                        for i in range(dim):
                            waiting[place, i] = waiting[length, i]
                            accepted[arm, i] += x[i]
                    pulls[arm] = n + 1
                    fit(theta[arm], curvature[arm], rows[arm], n + 1, accepted[arm], took, ridge, longest, matrix, move)
                    grow(root[arm], x, move)
                arrived = _uniform(stream) < arrival_rate
                if arrived:
                    rate = 0.0
                    for _ in range(candidates):
                        for i in range(dim):
                            waiting[length, i] = 2.0 * _uniform(stream) - 1.0
                        top = -np.inf
                        for j in range(num_models):
                            utility = 0.0
                            for i in range(dim):
                                utility += waiting[length, i] * truth[j, i]
                            top = max(top, utility)
                        rate = 1.0 / (1.0 + math.exp(-top))
                        if rate >= least_rate:
                            break
                    if rate < least_rate:
                        lost = np.nan
                    rates[length] = rate
                    length += 1
            regret[run] = lost
        return regret

    return fit, play


def numba_acqb(setting: QueueSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """ACQB with one answer over `runs` runs, compiled; regret of routing `[<= runs]`.

    The work of a round is what its hand-writer would do, in double precision: a context is drawn where a query comes, the
    queries that wait are scored, the rows of the model that was shown are passed over once or twice, and one Cholesky root
    grows by a row. Nothing but this regret is counted. A run (one in two thousand) in which no candidate could be served
    well enough is left out, as by jaxroute.
    """
    s = setting
    if s.num_offered != 1:
        raise ValueError(f"num_offered must be 1, got {s.num_offered}")
    play = _queue_loops(s.num_models, s.dim)[1]
    least = s.arrival_rate + s.slack
    regret = play(s.arrival_rate, least, s.candidates, s.curvature, s.ridge, s.c1, rounds, runs, seed)
    return regret[~np.isnan(regret)]


@functools.cache
def _pair_loops(num_models: int, dim: int, num_samples: int) -> tuple[Callable, Callable]:
    """The compiled estimate of two models and the compiled runs with two answers; see `_of_size`."""
    block, (_, _, grow, drawn) = 2 * dim, _of_size(dim)
    shortened, solve, *_ = _of_size(block)

    @_jit()
    def fit(theta, rows, shown, took, about, counts, first, second, ridge, longest, matrix, move):
        """The regularised estimate of two models together, warm: at most two Newton steps on all rows in which one of them was shown.

        After a step that moved nothing by more than 1e-3 the next is left out, as in `_queue_loops`.

        theta: `[N, d]`, of which two are written. rows: `[H, d]`. shown: `[H, 2]` models. took: `[H]` place of the accepted one, 2 for none.
        about: `[N, H]`, the rows in which a model was shown, the first `counts[model]` of them. matrix `[2 d, 2 d]` and move `[2 d]`: room.
        """
        passes = 0
        for _ in range(2):
            passes += 1
            for i in range(dim):
                move[i], move[dim + i] = ridge * theta[first, i], ridge * theta[second, i]
            for i in range(block):
                for j in range(i + 1):
                    matrix[i, j] = 0.0
                matrix[i, i] = ridge
            for side in range(2):
                model = second if side else first
                for n in range(counts[model]):
                    h = about[model, n]
                    place = 1 if shown[h, 1] == model else 0
                    other = shown[h, 1 - place]
                    own, rival = 0.0, 0.0
                    for i in range(dim):
                        own += rows[h, i] * theta[model, i]
                        rival += rows[h, i] * theta[other, i]
                    mine, theirs = math.exp(own), math.exp(rival)
                    total = 1.0 + mine + theirs
                    chance = mine / total
                    missed, weight = chance - (1.0 if took[h] == place else 0.0), chance * (1.0 - chance)
                    for i in range(dim):
                        move[side * dim + i] += missed * rows[h, i]
                        scaled = weight * rows[h, i]
                        for j in range(i + 1):
                            matrix[side * dim + i, side * dim + j] += scaled * rows[h, j]
                    if side and other == first:
                        for i in range(dim):
                            scaled = chance * theirs / total * rows[h, i]
                            for j in range(dim):
                                matrix[dim + i, j] -= scaled * rows[h, j]
            solve(matrix, move)
            shortened(move, longest)
            largest = 0.0
            for i in range(dim):
                theta[first, i] -= move[i]
                theta[second, i] -= move[dim + i]
                largest = max(largest, abs(move[i]), abs(move[dim + i]))
            if largest < 1e-3:
                break
        return passes

    @_jit()
    def best_two(utilities):
        """The two largest of `[N]`: their places, and the sum of their exponentials."""
        first, second = (0, 1) if utilities[0] >= utilities[1] else (1, 0)
        for j in range(2, num_models):
            if utilities[j] > utilities[first]:
                first, second = j, first
            elif utilities[j] > utilities[second]:
                second = j
        return first, second, math.exp(utilities[first]) + math.exp(utilities[second])

    @_jit(parallel=True)
    def play(arrival_rate, least_rate, candidates, curvature_scale, ridge, c1, rounds, runs, seed):
        """Regret of routing `[R]`; NaN of a run in which no candidate could be served well enough."""
        regret = np.zeros(runs)
        radius = np.empty(rounds + 1)
        for n in range(rounds + 1):
            growth = dim * math.log1p(2.0 * n / (dim * ridge)) + 4.0 * math.log(max(n, 1))
            radius[n] = 0.5 * curvature_scale * math.sqrt(growth) + curvature_scale * math.sqrt(ridge)
        for run in _prange(runs):
            stream = _stream(seed, run)
            truth = np.empty((num_models, dim))
            for j in range(num_models):
                for i in range(dim):
                    truth[j, i] = 2.0 * _uniform(stream) - 1.0
            theta, root = np.zeros((num_models, dim)), np.zeros((num_models, dim, dim))
            for j in range(num_models):
                for i in range(dim):
                    root[j, i, i] = math.sqrt(ridge)
            rows, shown, took = np.empty((rounds, dim)), np.empty((rounds, 2), np.int64), np.empty(rounds, np.int64)
            about, pulls, count = np.empty((num_models, rounds), np.int64), np.zeros(num_models, np.int64), 0
            waiting, rates = np.empty((rounds, dim)), np.empty(rounds)  # A prefix; the newest is the last.
            matrix, move, utilities = np.empty((block, block)), np.empty(block), np.empty(num_models)
            sample = np.empty((num_models, num_samples, dim))
            length, arrived, lost, longest, turn_first, turn_second = 0, False, 0.0, 0.0, 0, 1
            for t in range(rounds):
                if length > 0:
                    place, first, second = length - 1, turn_first, turn_second
                    if arrived and _uniform(stream) <= c1 / math.sqrt(t + 1.0):
                        turn_second += 1
                        if turn_second == num_models:
                            turn_first += 1
                            if turn_first == num_models - 1:
                                turn_first = 0
                            turn_second = turn_first + 1
                    else:
                        for j in range(num_models):
                            for m in range(num_samples):
                                drawn(stream, root[j], move)
                                for i in range(dim):
                                    sample[j, m, i] = theta[j, i] + radius[pulls[j]] * move[i]
                        top = -1.0
                        for q in range(length):
                            for j in range(num_models):
                                largest = -np.inf
                                for m in range(num_samples):
                                    utility = 0.0
                                    for i in range(dim):
                                        utility += waiting[q, i] * sample[j, m, i]
                                    largest = max(largest, utility)
                                utilities[j] = largest
                            high, low, weight = best_two(utilities)
                            if weight > top:
                                place, first, second, top = q, min(high, low), max(high, low), weight
                    x, size, one, two = rows[count], 0.0, 0.0, 0.0
                    for i in range(dim):
                        x[i] = waiting[place, i]
                        one += x[i] * truth[first, i]
                        two += x[i] * truth[second, i]
                        size += x[i] * x[i]
                    longest = max(longest, math.sqrt(size))
                    one, two = math.exp(one), math.exp(two)
                    lost += rates[place] - (one + two) / (1.0 + one + two)
                    left = _uniform(stream) * (1.0 + one + two)
                    took[count] = 0 if left < one else 1 if left < one + two else 2
                    shown[count, 0], shown[count, 1] = first, second
                    if took[count] < 2:
                        length -= 1
                        rates[place] = rates[length]
                        for i in range(dim):
                            waiting[place, i] = waiting[length, i]
                    for model in (first, second):
                        about[model, pulls[model]] = count
                        pulls[model] += 1
                        grow(root[model], x, move)
                    count += 1
                    fit(theta, rows, shown, took, about, pulls, first, second, ridge, longest, matrix, move)
                arrived = _uniform(stream) < arrival_rate
                if arrived:
                    rate = 0.0
                    for _ in range(candidates):
                        for i in range(dim):
                            waiting[length, i] = 2.0 * _uniform(stream) - 1.0
                        for j in range(num_models):
                            utilities[j] = 0.0
                            for i in range(dim):
                                utilities[j] += waiting[length, i] * truth[j, i]
                        weight = best_two(utilities)[2]
                        rate = weight / (1.0 + weight)
                        if rate >= least_rate:
                            break
                    if rate < least_rate:
                        lost = np.nan
                    rates[length] = rate
                    length += 1
            regret[run] = lost
        return regret

    return fit, play


def numba_acqb_pairs(setting: QueueSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """ACQB with two answers, as `numba_acqb`; the rows of the two models that were shown are passed over once or twice, nine samples of each."""
    s = setting
    if s.num_offered != 2:
        raise ValueError(f"num_offered must be 2, got {s.num_offered}")
    play = _pair_loops(s.num_models, s.dim, 9)[1]
    least = s.arrival_rate + s.slack
    regret = play(s.arrival_rate, least, s.candidates, s.curvature, s.ridge, s.c1, rounds, runs, seed)
    return regret[~np.isnan(regret)]


# ----------------------------------------------------------------------------------------------------------
# Registry


@dataclass(frozen=True)
class Comparator:
    """One competitor.

    problem: as in `bench.PROBLEMS`.
    policy: the same name for all tools.
    tool: see the module's first lines.
    run: `run(rounds, runs, seed)` does the work once; without the tool it returns no decisions and a reason.
    threads: how many threads the tool uses.
    same_law: whether its regret is comparable with the other tools'; if not, `note` says why.
    """

    name: str
    problem: str
    policy: str
    tool: str
    run: Callable[[int, int, int], dict]
    threads: int = 1
    same_law: bool = True
    note: str = ""

    def warm_up(self) -> None:
        """Pays imports and compilation: a tiny run with the argument types of a real one."""
        self.run(3, 2, 0)


@functools.cache
def _status(tool: str, problem: str) -> tuple[bool, str]:
    """Whether a tool can be used for a problem, and its version or what is wrong."""
    try:
        if problem == "staged":  # HiGHS solves the loop's programs and gives all tools the benchmark.
            importlib.import_module("scipy.optimize")
            return True, f"NumPy {np.__version__}, SciPy {importlib.metadata.version('scipy')}"
        if problem.startswith("queueing") and tool == "loop":
            _queue_reference()
        if tool.startswith("numba"):
            return (True, f"numba {numba.__version__}") if numba else (False, f"numba: {_NUMBA_PROBLEM}")
        if tool == "river":
            _river()
            return True, f"river {importlib.metadata.version('river')}"
        if tool in contextual_comparators.PACKAGES:
            return True, contextual_comparators.version(tool)
        if tool == "smpybandits":
            _smpybandits()
            return True, f"SMPyBandits {importlib.metadata.version('SMPyBandits')}"
        return True, f"NumPy {np.__version__}"
    except Exception as error:  # Whatever keeps a package from importing makes it unavailable.
        return False, f"{tool}: {type(error).__name__}: {error}"


def loop_c2mabv_highs(setting: SelectionSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """C2MAB-V for sums, one run at a time: the relaxed problem by HiGHS, pairwise rounding. Regret to the relaxed optimum `[R]`."""
    from scipy.optimize import linprog

    mean, cost = np.asarray(setting.success), setting.cost
    count = len(mean)

    def relaxed(weight, price):
        found = linprog(
            -weight,
            A_ub=price[None],
            b_ub=[setting.budget],
            A_eq=np.ones((1, count)),
            b_eq=[setting.size],
            bounds=(0, 1),
            method="highs",
        )
        if found.status == 0:
            return found.x
        z = np.zeros(count)
        z[np.argsort(price, kind="stable")[: setting.size]] = 1.0
        return z

    best = mean @ relaxed(mean, cost)
    regret = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        pulls, outcome_mean, cost_mean = np.zeros(count), np.zeros(count), np.zeros(count)
        for t in range(1, rounds + 1):
            log_term = math.log(2 * math.pi**2 * count / (3 * setting.delta)) + 3 * math.log(t)
            with np.errstate(divide="ignore"):
                radius = np.sqrt(log_term / (2 * pulls))
            upper = np.where(pulls > 0, np.minimum(outcome_mean + setting.reward_width * radius, 1), 1)
            lower = np.where(pulls > 0, np.maximum(cost_mean - setting.cost_width * np.where(pulls > 0, radius, 0), 0), 0)
            z = relaxed(np.minimum(upper, 0.999) - 1e-4 * rng.random(count), lower)
            while len(loose := np.flatnonzero((z > 1e-9) & (z < 1 - 1e-9))) > 1:
                i, j = loose[:2]
                up, down = min(1 - z[i], z[j]), min(z[i], 1 - z[j])
                shift = up if rng.random() < down / (up + down) else -down
                z[i], z[j] = z[i] + shift, z[j] - shift
            chosen = z > 0.5
            outcome, paid = rng.random(count) < mean, cost * rng.uniform(0.5, 1.5, count)
            pulls += chosen
            step = chosen / np.maximum(pulls, 1)
            outcome_mean += step * (outcome - outcome_mean)
            cost_mean += step * (paid - cost_mean)
            regret[run] += best - mean[chosen].sum()
    return regret


def loop_messplus(setting: ServiceSetting, rounds: int, runs: int, seed: int) -> np.ndarray:
    """MESS+ with a logistic head, one run at a time. In place of regret the mean cost `[R]`, J per request."""
    mean, spread = np.asarray(setting.cost_mean), np.asarray(setting.cost_spread)
    models = len(mean)
    cdf = np.cumsum(setting.cells) / np.sum(setting.cells)
    labels = (np.arange(2**models)[:, None] >> np.arange(models)[::-1]) & 1
    total = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        w, v, queue = np.zeros((models, models + setting.noise + 1)), 0.0, 0.0
        for t in range(1, rounds + 1):
            satisfied = labels[np.searchsorted(cdf, rng.random(), side="right")]
            x = np.append(rng.normal(size=models + setting.noise), 1.0)
            x[:models] += setting.signal * (2 * satisfied - 1)
            cost = np.maximum(0.05 * mean, mean + spread * rng.normal(size=models))
            chance = 1.0 / (1.0 + np.exp(-w @ x))
            if t == 1 or rng.random() < setting.c * t**-0.25:
                served = models - 1
                total[run] += cost.sum()
                v = setting.momentum * v + np.outer(chance - satisfied, x) / models + setting.weight_decay * w
                w = w - setting.learning_rate * v
            else:
                served = np.argmin(setting.V * cost + queue * (setting.alpha - chance))
                total[run] += cost[served]
            queue = max(0.0, queue + setting.alpha - satisfied[served])
    return total / rounds


def comparators(
    bandit: BanditSetting | None = None, staged: StagedSetting | None = None, selection: SelectionSetting | None = None
) -> dict[str, Comparator]:
    """All comparators for given settings, by name `<tool>_<policy>`."""
    bandit, staged, selection = bandit or BanditSetting(), staged or StagedSetting(), selection or SelectionSetting()
    if staged.max_deployed < 4:
        raise ValueError("fewer than 4 slots need DeployOPT's enumeration, which the comparators do not have")
    cores = os.cpu_count() or 1
    found = {}

    def add(tool, policy, problem, run, **facts):
        def guarded(rounds, runs, seed):
            usable, reason = _status(tool, problem)
            if not usable:
                return {"decisions": 0, "mean_regret": math.nan, "standard_error": math.nan, "reason": reason}
            return run(rounds, runs, seed)

        name = f"{tool}_{policy}"
        found[name] = Comparator(name, problem, policy.removesuffix("_highs"), tool, guarded, **facts)

    def bind(function, setting):
        return lambda rounds, runs, seed: _result(function(setting, rounds, runs, seed), rounds)

    def bind_blocks(function, setting, threads, fewest, most):
        def run(rounds, runs, seed):
            regret = _in_blocks(function, setting, rounds, runs, seed, threads, fewest, most)
            return _result(regret, rounds)

        return run

    def bind_policy(player, make_policy):
        return lambda rounds, runs, seed: player(make_policy, bandit, rounds, runs, seed)

    for policy in ("ucb1", "gaussian_thompson", "beta_thompson", "epsilon_greedy"):
        facts = {}
        add("loop", policy, "stochastic", bind_policy(_loop, globals()[f"loop_{policy}"]))
        if textbook := globals().get(f"textbook_{policy}"):
            add("textbook", policy, "stochastic", bind(textbook, bandit))
        fewest = 512 if "thompson" in policy else 4096
        blocks = bind_blocks(globals()[f"vectorised_{policy}"], bandit, cores, fewest, 8192)
        add("vectorised", policy, "stochastic", blocks, threads=cores)
        add("numba", policy, "stochastic", bind(globals()[f"numba_{policy}"], bandit), threads=cores)
        if lanes := globals().get(f"numba_lanes_{policy}"):
            add("numba_lanes", policy, "stochastic", bind(lanes, bandit), threads=cores)
        add("river", policy, "stochastic", bind_policy(_package_loop, globals()[f"river_{policy}"]))
        if policy == "epsilon_greedy":
            note = "exploits reward sums, not means; never explores the last arm"
            facts = {"same_law": False, "note": note}
        maker = globals()[f"smpybandits_{policy}"]
        add("smpybandits", policy, "stochastic", bind_policy(_package_loop, maker), **facts)
        if maker := globals().get(f"mabwiser_{policy}"):
            first = {"same_law": False, "note": "begins with a reward of 0 for each arm, without which it cannot"}
            add("mabwiser", policy, "stochastic", bind_policy(_package_loop, maker), **first)
    for policy, (_, _, note) in _SMPYBANDITS.items():
        if vectorised := globals().get(f"vectorised_{policy}"):
            blocks = bind_blocks(vectorised, bandit, cores, 512, 8192)
            add("vectorised", policy, "stochastic", blocks, threads=cores)
        facts = {"same_law": False, "note": note} if note else {}
        add("smpybandits", policy, "stochastic", bind_policy(_package_loop, smpybandits_of(policy)), **facts)
    add("loop", "stageroute_highs", "staged", bind(loop_stageroute_highs, staged))
    add("loop", "c2mabv_highs", "combinatorial", bind(loop_c2mabv_highs, selection))
    add("loop", "messplus", "service", bind(loop_messplus, ServiceSetting()))
    add("loop", "acqb", "queueing", bind(loop_acqb, QueueSetting()))
    add("numba", "acqb", "queueing", bind(numba_acqb, QueueSetting()), threads=cores)
    add("loop", "acqb_pairs", "queueing, two answers", bind(loop_acqb, QueueSetting(num_offered=2)))
    add("numba", "acqb_pairs", "queueing, two answers", bind(numba_acqb_pairs, QueueSetting(num_offered=2)), threads=cores)
    add("loop", "cosmos", "cascade", bind(loop_cosmos, CascadeSetting()))
    setting = contextual_comparators.ContextualSetting()
    for (tool, policy), (play, in_blocks, note) in contextual_comparators.PLAYERS.items():
        run = bind_blocks(play, setting, cores, 256, 256) if in_blocks else bind(play, setting)
        add(tool, policy, "contextual", run, threads=cores if in_blocks else 1, same_law=not note, note=note)
    # Its many short calls gain nothing from threads; beyond 4,096 runs OpenBLAS starts its own, at a loss.
    add("vectorised", "stageroute", "staged", bind_blocks(vectorised_stageroute, staged, 1, 1, 4096))
    return found


COMPARATORS = comparators()


def available(name: str) -> tuple[bool, str]:
    """Whether the comparator can run here, and its tool's version or the reason why not; never raises."""
    if name not in COMPARATORS:
        return False, f"no comparator named {name!r}"
    return _status(COMPARATORS[name].tool, COMPARATORS[name].problem)


def warm_up(name: str) -> None:
    """Imports and compiles what the comparator needs, outside the caller's timing."""
    COMPARATORS[name].warm_up()


# Rounds and runs of the table that the script prints: about a second each.
_SIZES = {
    "loop": (1000, 20),
    "river": (1000, 20),
    "smpybandits": (1000, 20),
    "mabwiser": (200, 5),
    "vectorised": (1000, 16384),
}


def main() -> None:
    """Prints decisions per second of every comparator at modest sizes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="comparators (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of runs")
    arguments = parser.parse_args()
    print(f"{'comparator':32s}{'decisions/s':>14s}{'per CPU s':>14s}{'rounds':>8s}{'runs':>8s}  mean regret")
    for name in arguments.names or COMPARATORS:
        usable, reason = available(name)
        if not usable:
            print(f"{name:32s}  unavailable: {reason}")
            continue
        comparator = COMPARATORS[name]
        rounds, runs = _SIZES.get(comparator.tool, (1000, 16384))
        if comparator.problem != "stochastic":
            rounds, runs = (1000, 2 if comparator.tool == "loop" else 256 if comparator.tool == "numba" else 4096)
        comparator.warm_up()
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = comparator.run(rounds, max(2, round(runs * arguments.scale)), 1)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        speeds = f"{outcome['decisions'] / wall:14,.0f}{outcome['decisions'] / cpu:14,.0f}"
        sizes = f"{rounds:8d}{outcome['decisions'] // rounds:8d}"
        regret = f"{outcome['mean_regret']:9.2f} +- {outcome['standard_error']:.2f}"
        print(f"{name:32s}{speeds}{sizes}  {regret}{'' if comparator.same_law else '  (another law)'}")


if __name__ == "__main__":
    main()
