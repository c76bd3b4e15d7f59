"""Competitors of `bench.py`: the same simulations, written for other tools.

    from comparators import COMPARATORS
    COMPARATORS["river", "stochastic", "UCB1"].run(rounds=1000, runs=20, seed=1)

- loop: one run at a time in Python and NumPy, as most papers' code is written; linear programs by SciPy's HiGHS;
- vectorised: all runs at once in NumPy, as an expert would write it: float32, cached terms, preallocated buffers, threads;
- numba_lanes: compiled by numba, with blocks of runs in the innermost loops, which become vector instructions;
- river, smpybandits: the policies of these packages, one run at a time.

Nothing here imports jax or jaxroute; some loops use parts of the tests' references. Ties go to the lowest index unless stated otherwise.
"""

import contextlib
import functools
import importlib
import io
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

try:
    import numba
except ImportError:
    numba = None

Regrets = np.ndarray  # `[R]` cumulative pseudo-regret of each run.


# Success probabilities of the arms of the Bernoulli bandit; multiplier of UCB1's bound, `mean + width * sqrt(log(t + 2) / pulls)` with
# `t` from 0; probability of exploration in epsilon-greedy.
MEANS = tuple(max(0.9 - 0.1 * arm, 0.0) for arm in range(10))
WIDTH, EPSILON = math.sqrt(2.0), 0.1


# One run at a time


def one_by_one(make_policy: Callable, rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates a policy of the Bernoulli bandit, whose `make_policy(seed)` returns `choose(t)` and `learn(arm, reward)`.

    The environment is as light as Python allows (`random.random`), so that the time is the policy's.
    """
    best, regret = max(MEANS), np.zeros(runs)
    for run in range(runs):
        draw = random.Random(f"environment {seed} {run}").random
        choose, learn = make_policy(int(np.random.SeedSequence([seed, run]).generate_state(1)[0]))
        with np.errstate(divide="ignore", invalid="ignore"):  # SMPyBandits divides by the pulls of unused arms.
            for t in range(rounds):
                arm = choose(t)
                learn(arm, 1.0 if draw() < MEANS[arm] else 0.0)
                regret[run] += best - MEANS[arm]
    return regret


def loop_ucb1(seed: int) -> tuple[Callable, Callable]:
    del seed  # UCB1 is deterministic given the rewards.
    pulls, reward_sum = np.zeros((2, len(MEANS)))

    def choose(t):
        if t < len(MEANS):  # An unused arm has an infinite bound.
            return t
        return int(np.argmax(reward_sum / pulls + WIDTH * np.sqrt(np.log(t + 2) / pulls)))

    def learn(arm, reward):
        pulls[arm] += 1
        reward_sum[arm] += reward

    return choose, learn


@functools.cache
def _reference(name: str) -> Any:
    """Imports a module of `tests/reference`: plain NumPy, written from a paper."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module(f"tests.reference.{name}")


def _program(value, cost, budget, total, most) -> np.ndarray | None:
    """Maximises `value . x` with `cost . x <= budget`, `sum x = total` and `0 <= x <= most` by HiGHS; None if infeasible."""
    from scipy.optimize import linprog

    bounds = np.column_stack([np.zeros_like(most), most])
    solution = linprog(-value, cost[None], [budget], np.ones((1, value.size)), [total], bounds, method="highs")
    return solution.x if solution.status == 0 else None


def loop_stageroute(rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates StageRoute (Algorithm 1) with one linear program per query in its synthetic experiment (arXiv 2506.17254, Section 6.1 and Table 1).

    The rewards are Chatbot-Arena scores of the models in release order, scaled to [0, 1]; the costs are output prices in $ per 1M tokens.
    """
    staged = _reference("staged")
    setting, slots, stage_length = staged.table1_params(6, 250), 6, 250
    reward_mean, cost_mean, capacity, budget = setting.mu, setting.cost, setting.capacity, setting.budget
    constants = (setting.gamma, setting.cost_floor, setting.cost_ceiling)

    def route(reward_ucb, cost_lcb, capacity):  # RouteOPT (eq. 7), or the cheapest distribution.
        found = _program(reward_ucb, cost_lcb, budget, 1.0, capacity)
        return staged.fill(-cost_lcb, -reward_ucb, capacity) if found is None else np.clip(found, 0.0, capacity)

    @functools.cache
    def best(size):  # Eq. 1, with the true values.
        return route(reward_mean[:size], cost_mean[:size], capacity[:size]) @ reward_mean[:size]

    regret = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        book = np.zeros((3, reward_mean.size))  # Pulls, sums of rewards and of costs.
        ucb, lcb = staged.bounds(*book, *constants)  # Eqs. (4) and (5).
        for t in range(rounds):
            if t % stage_length == 0:
                pool = setting.arrival <= t + 1
                deployed = np.flatnonzero(staged.deploy(ucb, lcb, capacity, pool, budget, slots)[0])
            probability = route(ucb[deployed], lcb[deployed], capacity[deployed])
            model = rng.choice(deployed, p=probability / probability.sum())
            reward_noise, cost_noise = rng.standard_normal(2)
            book[:, model] += 1, reward_mean[model] + 0.1 * reward_noise, cost_mean[model] * (1 + 0.1 * cost_noise)
            ucb[model], lcb[model] = staged.bounds(*book[:, model], *constants)
            regret[run] += best(pool.sum()) - reward_mean[model]
    return regret


def loop_c2mabv(rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates C2MAB-V for sums of 4 among the nine models of its Table 3; returns the regret relative to the relaxed optimum.

    Success rates are those of `sciq_cloud`. Each round solves a linear program and rounds its solution pairwise.
    """
    reference, budget, size, delta = _reference("combinatorial"), 0.5, 4, 1e-4
    mean, cost = np.array(reference.SCIQ9_MU), np.array(reference.SCIQ9_PRICE) / 0.12
    count = len(mean)

    def relaxed(weight, price):  # Or the cheapest models.
        found = _program(weight, price, budget, size, np.ones(count))
        return reference.first((price,), size, np.ones(count, bool)) if found is None else found

    best, regret = mean @ relaxed(mean, cost), np.zeros(runs)
    for run in range(runs):
        rng, statistics = np.random.default_rng((seed, run)), reference.Statistics(count)
        for t in range(1, rounds + 1):
            upper, lower = statistics.bounds(t, count, delta, 0.3, 0.01)
            z = relaxed(reference.conditioned(upper, rng.random(count)), lower)
            chosen = reference.round_pairwise(z, rng.random(count))
            outcome, paid = rng.random(count) < mean, cost * rng.uniform(0.5, 1.5, count)
            statistics.learn(chosen, chosen, outcome, paid)
            regret[run] += best - mean[chosen].sum()
    return regret


def loop_messplus(rounds: int, runs: int, seed: int) -> np.ndarray:
    """Simulates MESS+ on Winogrande with a logistic head; returns the mean cost per request in J `[R]` instead of the regret."""
    cells = np.array([119.0, 108, 53, 231, 44, 63, 49, 600])  # Requests by the set of models that satisfy them.
    mean, spread = np.array([48.976, 200.450, 1018.423]), np.array([11.95, 7.62, 22.44])
    signal, noise, alpha, V, c, learning_rate, momentum, weight_decay = 0.15, 4, 0.7, 1e-3, 0.1, 0.06, 0.9, 0.01
    models, cdf = len(mean), np.cumsum(cells) / np.sum(cells)
    labels = (np.arange(2**models)[:, None] >> np.arange(models)[::-1]) & 1
    total = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        w, v, queue = np.zeros((models, models + noise + 1)), 0.0, 0.0
        for t in range(1, rounds + 1):
            satisfied = labels[np.searchsorted(cdf, rng.random(), side="right")]
            x = np.append(rng.normal(size=models + noise), 1.0)
            x[:models] += signal * (2 * satisfied - 1)
            cost = np.maximum(0.05 * mean, mean + spread * rng.normal(size=models))
            probability = 1.0 / (1.0 + np.exp(-w @ x))
            if t == 1 or rng.random() < c * t**-0.25:
                served = models - 1
                total[run] += cost.sum()
                v = momentum * v + np.outer(probability - satisfied, x) / models + weight_decay * w
                w = w - learning_rate * v
            else:
                served = np.argmin(V * cost + queue * (alpha - probability))
                total[run] += cost[served]
            queue = max(0.0, queue + alpha - satisfied[served])
    return total / rounds


def loop_acqb(num_offered: int, rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates ACQB of `tests/reference` on the instances of its figure 2, with new estimates after every round; returns the regret of routing."""
    acqb, sizes = _reference("queueing").acqb_loop, (rounds, 5, 5, num_offered, 0.7, 0.03, 0.3, 1.0, 1.0)
    return np.asarray([acqb(np.random.default_rng((seed, run)), *sizes)["routing_gap"].sum() for run in range(runs)])


def loop_cosmos(rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates COSMOS with its streaming estimator on three models (boxes) with uniform rewards; returns the amortised regret."""
    index = np.array([[0.57, -0.101466, -0.098534], [0.483130, -0.082676, 0.117324], [0.524375, 0.099928, -0.100072]])
    cost, quantile = np.array([0.015, 0.033541, 0.075]), np.array([0.7, 0.5, 0.3])
    spread, bonus, floor, start, bound = 0.5, 0.1, 0.1, 0.1, 2.0
    number, dim = index.shape
    width, log_horizon = 2.0 * cost / (1.0 - quantile) ** 2, math.log(rounds)
    radius = bonus * math.sqrt(dim * log_horizon + math.log(number) + 2.0 * log_horizon)
    regret = np.zeros(runs)
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        x = rng.uniform(-1.0, 1.0, (rounds + 1, dim - 1))
        u, length = rng.random((rounds + 1, number)), rng.uniform(-1.0, 1.0, (rounds + 1, number))
        rho, design = np.zeros((number, dim)), np.tile(np.eye(dim), (number, 1, 1))
        inverse = np.tile(np.eye(dim) / start, (number, 1, 1))
        for t in range(rounds + 1):
            psi = np.concatenate(([1.0], x[t]))
            true = index @ psi
            score = true + width * (u[t] - quantile)
            paid = cost * (1.0 + spread * (0.5 * (2.0 * u[t] - 1.0) + 0.5 * length[t]))
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
                regret[run] += np.minimum(score, true).max() - best + np.maximum(score - true, 0.0)[opened].sum()
            for a in opened:
                level = rho[a] @ psi
                bend = max(float(score[a] > level), floor)
                moved = inverse[a] @ psi
                shrink = 1.0 / (1.0 + bend * (psi @ moved))
                rho[a] -= shrink * (paid[a] - max(score[a] - level, 0.0)) * moved
                rho[a] *= min(1.0, bound / max(math.sqrt(rho[a] @ rho[a]), 1e-30))
                inverse[a] -= bend * shrink * np.outer(moved, moved)
                design[a] -= np.outer(image[a], image[a]) / (1.0 + psi @ image[a])
    return regret


# All runs at once in NumPy
#
# Statistics are [K, n] with the n runs last, so that every ufunc streams over contiguous runs. Only the chosen arm of a run
# changes, so the terms of its index are cached and rewritten there (one gather and a few scatters of n).


def in_blocks(simulate: Callable, rounds: int, runs: int, seed: int) -> Regrets:
    """Simulates blocks of 4,096 to 8,192 runs on all cores; `simulate(rounds, n, rng)` returns the regrets of a block of `n` runs.

    NumPy's loops release the interpreter lock, which pays off if a call works long enough.
    """
    threads = os.cpu_count() or 1
    block = min(max(-(-runs // threads), 4096), 8192)
    sizes = [min(block, runs - start) for start in range(0, runs, block)]
    rngs = [np.random.Generator(np.random.SFC64(child)) for child in np.random.SeedSequence(seed).spawn(len(sizes))]
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(lambda n, rng: simulate(rounds, n, rng), sizes, rngs)))


def _first_argmax(num_arms: int, n: int) -> Callable[[np.ndarray], np.ndarray]:
    """Makes a function that returns the index of the first maximum over the first axis of `[K, n]` scores, in a buffer that it overwrites.

    `argmax(axis=0)` walks the short axis of every run. Here all passes stream over runs (maximum, equality, and the largest of the
    weights K..1 among the equal arms), which takes about half the time.
    """
    weight = np.arange(num_arms, 0, -1, dtype=np.uint8)[:, None]
    top, winner, arm = np.empty(n, np.float32), np.empty(n, np.uint8), np.empty(n, np.intp)
    equal, rank = np.empty((num_arms, n), bool), np.empty((num_arms, n), np.uint8)

    def first_argmax(score):
        np.maximum.reduce(score, axis=0, out=top)
        np.equal(score, top, out=equal)
        np.multiply(equal.view(np.uint8), weight, out=rank)
        np.maximum.reduce(rank, axis=0, out=winner)
        return np.subtract(num_arms, winner, out=arm, dtype=np.intp)

    return first_argmax


def _uniforms(rng: np.random.Generator, n: int) -> Iterator[np.ndarray]:
    """Yields `[n]` float32 uniforms of one round, drawn for 64 rounds at a time."""
    buffer = np.empty((64, n), np.float32)
    while True:
        rng.random(out=buffer, dtype=np.float32)
        yield from buffer


def vectorised_ucb1(rounds: int, n: int, rng: np.random.Generator) -> Regrets:
    means, lane, cell = np.array(MEANS, np.float32), np.arange(n), np.empty(n, np.intp)
    shape = (means.size, n)
    pulls, reward_sum, inverse_root = np.zeros((3, *shape), np.float32)
    mean, bound = np.full(shape, np.inf, np.float32), np.empty(shape, np.float32)
    first_argmax, uniforms = _first_argmax(*shape), _uniforms(rng, n)
    pulls_at, sum_at, root_at, mean_at = (x.reshape(-1) for x in (pulls, reward_sum, inverse_root, mean))
    for t in range(rounds):
        np.multiply(inverse_root, np.float32(WIDTH * math.sqrt(math.log(t + 2))), out=bound)
        np.add(bound, mean, out=bound)
        arm = first_argmax(bound)
        np.multiply(arm, n, out=cell)
        np.add(cell, lane, out=cell)
        used = pulls_at[cell]
        used += 1
        total = sum_at[cell]
        total += next(uniforms) < means[arm]
        pulls_at[cell], sum_at[cell] = used, total
        mean_at[cell] = np.divide(total, used, out=total)
        root_at[cell] = np.reciprocal(np.sqrt(used, out=used), out=used)
    return (max(MEANS) - np.array(MEANS)) @ pulls


# Compiled by numba

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LANES = 128  # Runs that share the vector registers of one thread.
_jit = numba.njit if numba else lambda **_: lambda function: function
_prange = numba.prange if numba else range


@_jit(inline="always")
def _mix(x):
    """Applies the output function of the random generator splitmix64 to integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_jit(parallel=True)
def _ucb1_lanes(means, width, rounds, runs, seed):
    num_arms, best, one = means.size, means.max(), np.float32(1)
    means32, num_blocks = means.astype(np.float32), (runs + _LANES - 1) // _LANES
    regret = np.zeros(num_blocks * _LANES)
    for block in _prange(num_blocks):
        shape = (num_arms, _LANES)
        pulls, reward_sum = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        mean, inverse_root = np.full(shape, np.float32(np.inf)), np.zeros(shape, np.float32)
        counter, uniform = np.empty(_LANES, np.uint64), np.empty(_LANES, np.float32)
        arm, top = np.empty(_LANES, np.int32), np.empty(_LANES, np.float32)
        for i in range(_LANES):
            counter[i] = _mix(_mix(np.uint64(seed) + _GOLDEN) + np.uint64(block * _LANES + i) * _GOLDEN)
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


def numba_lanes_ucb1(rounds: int, runs: int, seed: int) -> Regrets:
    return _ucb1_lanes(np.array(MEANS), WIDTH, rounds, runs, seed)


# Packages


def river_policy(name: str, seed: int) -> tuple[Callable, Callable]:
    """Makes UCB1 (random ties), Beta Thompson sampling or epsilon-greedy of river."""
    from river import bandit, proba, stats

    made = {
        "UCB1": lambda: bandit.UCB(delta=WIDTH / math.sqrt(2.0), seed=seed),
        "BetaThompson": lambda: bandit.ThompsonSampling(proba.Beta(1, 1), seed=seed),
        "EpsilonGreedy": lambda: bandit.EpsilonGreedy(EPSILON, reward_obj=stats.Mean(), burn_in=1, seed=seed),
    }
    policy, arms = made[name](), list(range(len(MEANS)))
    return lambda t: policy.pull(arms), policy.update


@functools.cache
def _smpybandits() -> Any:
    """Imports and returns the policies of SMPyBandits.

    Version 0.9.7 (2020) imports `scipy.special.btdtri`, which SciPy 1.14 removed; its documented successor `betaincinv` has that name during the
    import.
    """
    import scipy.special

    errors, missing = np.geterr(), not hasattr(scipy.special, "btdtri")
    if missing:
        setattr(scipy.special, "btdtri", scipy.special.betaincinv)  # noqa: B010 (unknown to type checkers)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Warnings about numba and tqdm.
            return importlib.import_module("SMPyBandits.Policies")
    finally:
        np.seterr(**errors)  # The package changes NumPy's error handling when imported.
        if missing:
            delattr(scipy.special, "btdtri")


# Class of SMPyBandits and arguments that make it the same policy, by policy; a comment says what differs nevertheless.
SMPYBANDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "KLUCB": ("klUCB", {}),
    "UCBV": ("UCBV", {}),  # Its bound has fixed constants: 2 log t instead of 2.4 log t, 3 log t instead of 3.6 log t.
    "MOSS": ("MOSS", {}),  # t instead of the horizon.
    "AnytimeMOSS": ("MOSSAnytime", {"alpha": 1.35}),
    "BayesUCB": ("BayesUCB", {}),
    "Exp3": ("Exp3WithHorizon", {"horizon": 2000}),  # Another learning rate.
    "Exp3PlusPlus": ("Exp3PlusPlus", {"alpha": 3.0, "beta": 256.0}),  # Explores by the learning rate instead of the gaps.
    "SlidingWindowUCB": ("SWUCB", {"tau": 607, "alpha": 0.6}),
    "DiscountedUCB": ("DiscountedUCB", {"alpha": 4.8, "gamma": 0.9975}),  # Its discounted pulls are whole numbers.
    "DiscountedThompson": ("DiscountedThompson", {"gamma": 0.9975}),  # Discounts a model only when it is used.
}


def smpybandits_policy(name: str, seed: int) -> tuple[Callable, Callable]:
    """Makes a policy of SMPyBandits, which draws from the global generators of NumPy and Python."""
    cls, options = SMPYBANDITS[name]
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    policy = getattr(_smpybandits(), cls)(len(MEANS), **options)
    policy.startGame()
    return lambda t: policy.choice(), policy.getReward


# Registry


@dataclass(frozen=True)
class Comparator:
    """Simulation of a policy by one tool, whose speed is compared with jaxroute's.

    Attributes:
      tool: way of writing or package, as listed at the beginning of this file.
      problem: a key of `bench.PROBLEMS`.
      policy: name of the policy in that problem.
      regrets: function of rounds, runs and a seed that returns the regret of each run.
    """

    tool: str
    problem: str
    policy: str
    regrets: Callable[[int, int, int], Regrets]

    def run(self, rounds: int, runs: int, seed: int) -> dict[str, float]:
        """Simulates `runs` runs; returns the number of decisions, the mean regret of the runs and its standard error."""
        regret = self.regrets(rounds, runs, seed)
        error = regret.std(ddof=1) / math.sqrt(runs) if runs > 1 else math.nan
        return {"decisions": rounds * runs, "mean_regret": float(regret.mean()), "standard_error": float(error)}

    def warm_up(self) -> str:
        """Imports and compiles the tool by a small run. Returns the reason if that is impossible, otherwise nothing."""
        if self.tool == "numba_lanes" and not numba:
            return "numba is not installed"
        try:
            self.run(3, 2, 0)
        except Exception as error:  # Whatever prevents a package from working makes it unavailable.
            return f"{type(error).__name__}: {error}"
        return ""


def _found() -> Iterator[Comparator]:
    part = functools.partial
    yield Comparator("loop", "stochastic", "UCB1", part(one_by_one, loop_ucb1))
    yield Comparator("vectorised", "stochastic", "UCB1", part(in_blocks, vectorised_ucb1))
    yield Comparator("numba_lanes", "stochastic", "UCB1", numba_lanes_ucb1)
    for policy in ("UCB1", "BetaThompson", "EpsilonGreedy"):
        yield Comparator("river", "stochastic", policy, part(one_by_one, part(river_policy, policy)))
    for policy in SMPYBANDITS:
        yield Comparator("smpybandits", "stochastic", policy, part(one_by_one, part(smpybandits_policy, policy)))
    yield Comparator("loop", "staged", "StageRoute", loop_stageroute)
    yield Comparator("loop", "combinatorial", "C2MABV", loop_c2mabv)
    yield Comparator("loop", "service", "MessPlus", loop_messplus)
    yield Comparator("loop", "queueing", "ACQB", part(loop_acqb, 1))
    yield Comparator("loop", "queueing, two answers", "ACQB", part(loop_acqb, 2))
    yield Comparator("loop", "cascade", "COSMOS, streaming", loop_cosmos)


COMPARATORS = {(one.tool, one.problem, one.policy): one for one in _found()}
