"""Policies that learn, on recorded queries, in plain float64 NumPy: the reference that `jaxroute.comparison.learning` is compared with.

Written from the papers, their specifications and docstrings, without looking at the simulator. One run is one loop over the rows of a
table in a random order, from a cold start; pieces of algorithms come from the other references of this folder. What is random is drawn
here from a NumPy generator, so that only distributions agree with the simulator, not single runs.

A run returns `[quality, cost, calls, latency]`, means per query that was answered (latency NaN where the table has none). Costs are paid
in the unit of the table; what policies see is in mean calls of the dearest model, at least 1e-6.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from . import cascade, combinatorial, queueing, service, staged

MEASURES = ("quality", "cost", "calls", "latency")
LEAST_COST = 1e-6
DIRECTIONS, GROUPS = 8, 8
ASKED, SLOTS = 3, 6


@dataclass(frozen=True)
class Table:
    """A user's table in float64.

    scores, costs: `[Q, N]`. features: `[Q, d]` or None. latency: `[Q, N]` or None.
    """

    scores: np.ndarray
    costs: np.ndarray
    features: np.ndarray | None = None
    latency: np.ndarray | None = None

    @property
    def unit(self):
        """`[Q, N]` costs in mean calls of the dearest model."""
        return np.maximum(self.costs / self.costs.mean(axis=0).max(), LEAST_COST)

    @property
    def contexts(self):
        """`[Q, m]`: 1, and the main directions of the features, the longest row of these of length 1."""
        ones = np.ones((len(self.scores), 1))
        return ones if self.features is None else np.hstack([ones, main_directions(self.features)])


def main_directions(features):
    """`[Q, min(d, 8)]` principal components, by the eigenvectors of the covariance."""
    centred = features - features.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    components = centred @ vectors[:, np.argsort(-values)[: min(DIRECTIONS, features.shape[1])]]
    return components / np.sqrt((components**2).sum(axis=1).max())


def indicators(groups):
    """`[Q, G]` which of the 8 largest groups a query belongs to, equal sizes by number."""
    sizes = {g: int((groups == g).sum()) for g in np.unique(groups)}
    largest = sorted(sizes, key=lambda g: (-sizes[g], g))[:GROUPS]
    return np.array([[float(g == of) for of in largest] for g in groups])


class Meter:
    """Adds up what the users receive and what is paid."""

    def __init__(self, table):
        self.table = table
        self.totals, self.answered = np.zeros(4), 0

    def add(self, row, called, answer, in_turn=False):
        """A query's calls, of models `called` `[N]` bool; `answer` is the model whose answer counts."""
        called = np.flatnonzero(called)
        latency = math.nan
        if self.table.latency is not None:
            of_calls = self.table.latency[row, called]
            latency = (of_calls.sum() if in_turn else of_calls.max()) if len(called) else 0.0
        quality = 0.0 if answer is None else self.table.scores[row, answer]
        self.totals += [quality, self.table.costs[row, called].sum(), len(called), latency]
        self.answered += 1

    def means(self):
        """`[4]`."""
        return self.totals / self.answered


def runs(play, table, number, seed, **setting):
    """`[number, 4]` of independent runs."""
    return np.array([play(table, rng, **setting) for rng in np.random.default_rng(seed).spawn(number)])


def _best(scores, called):
    """Returns the called model with the best score, the first of equals; None if none is called."""
    return None if not called.any() else int(np.argmax(np.where(called, scores, -1.0)))


def linucb(table, rng, *, weight, width, ridge=1.0):
    """The largest upper bound on score less weighted cost; the first row of the order is free, and shows all models."""
    psi, cost, meter = table.contexts, weight * table.unit, Meter(table)
    (_, models), m = table.scores.shape, psi.shape[1]
    inverse, target = np.tile(np.eye(m) / ridge, (models, 1, 1)), np.zeros((models, m))
    for t, row in enumerate(rng.permutation(len(psi))):
        x = psi[row]
        if t:
            norms = np.sqrt([x @ inverse[a] @ x for a in range(models)])
            arms = [int(np.argmax([inverse[a] @ target[a] @ x + width * norms[a] for a in range(models)]))]
            meter.add(row, np.arange(models) == arms[0], arms[0])
        else:
            arms = range(models)
        for a in arms:
            z = inverse[a] @ x
            inverse[a] -= np.outer(z, z) / (1 + x @ z)
            target[a] += (table.scores[row, a] - cost[row, a]) * x
    return meter.means()


def cosmos(table, rng, *, weight, bonus, floor=0.1, start=0.1, bound=2.0, eta1=1.0):
    """Optimistic linear indices, one Newton step per sample, and Weitzman's search with scores that are seen.

    The first row of the order is free and opens all. A small bonus (below .1) opens all in the next ten, too.
    """
    psi, cost, meter = table.contexts, weight * table.unit, Meter(table)
    (queries, models), m = table.scores.shape, psi.shape[1]
    warm, rounds, link = 10 if bonus < 0.1 else 0, queries - 1, cascade.index_link("identity")
    design = np.tile(eta1 * np.eye(m), (models, 1, 1))
    curvature, rho = np.tile(start * np.eye(m), (models, 1, 1)), np.zeros((models, m))
    radius = cascade.practical_radius(bonus, 0.0, 1, rounds, m, models, 0, math.log(rounds), 0.0)
    for t, row in enumerate(rng.permutation(queries)):
        x, score = psi[row], table.scores[row]
        opened = np.ones(models, bool)
        if t:
            norms = np.sqrt([x @ np.linalg.solve(design[a], x) for a in range(models)])
            index = rho @ x + radius * norms
            threshold = np.full(models, np.inf) if t <= warm else np.minimum(index, 1.0)
            opened, deployed, _ = cascade.search(index, threshold, score)
            meter.add(row, opened, deployed, in_turn=True)
        for a in np.flatnonzero(opened):
            curvature[a], rho[a] = cascade.stream_update(curvature[a], rho[a], x, score[a], cost[row, a], link, floor, bound)
            design[a] += np.outer(x, x)
    return meter.means()


def messplus(table, rng, *, alpha, V, c=0.1, lr=0.06, momentum=0.9, weight_decay=0.01):
    """MESS+ with a logistic head on the features and a constant; an explored query is answered by the dearest model."""
    order = np.argsort(table.unit.mean(axis=0), kind="stable")
    rows = rng.permutation(len(table.scores))
    models = len(order)
    features = np.ones((len(rows), 1))
    if table.features is not None:  # Of mean 0 and mean square length 1.
        around = table.features - table.features.mean(axis=0)
        features = np.hstack([around / np.sqrt((around**2).sum(axis=1).mean()), features])
    head = {"w": np.zeros((models, features.shape[1])), "b": np.zeros(models)}
    path = service.messplus(
        features[rows],
        (table.scores[rows][:, order] >= 0.5).astype(float),
        table.unit[rows][:, order],
        rng.random(len(rows)),
        predictor=("logistic", head),
        **{
            "V": V,
            "alpha": alpha,
            "c": c,
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "cost_mode": "running_mean",
        },
    )
    meter = Meter(table)
    for t, row in enumerate(rows):
        answer = int(order[path["choice"][t]])
        meter.add(row, (np.arange(models) == answer) | path["explored"][t], answer)
    return meter.means()


def _c2mabv(table, rng, *, budget, size, reward, in_turn=False):
    """C2MAB-V in the setting (c) of its widths, delta 1/T: bounds, relaxed problem, rounding of the paper.

    Any win, all at once: the relaxed reward is that of a cascade, but all of the set are called and seen.
    """
    queries, models = table.scores.shape
    meter, unit, statistics = Meter(table), table.unit, combinatorial.Statistics(models)
    price = unit.mean(axis=0)
    for t, row in enumerate(rng.permutation(queries), 1):
        reward_bound, cost_bound = statistics.bounds(t, models, 1.0 / queries, 0.3, 0.01)
        w = combinatorial.conditioned(reward_bound, rng.random(models))
        z = combinatorial.relaxed_optimum(reward, w, cost_bound, min(size, models), budget)
        if reward == "SUC":
            selected = combinatorial.round_pairwise(z, rng.random(models))
        else:
            selected = combinatorial.round_swap(z, rng.random((models, models)), rng.random((models, models)))
        outcome = table.scores[row]
        called = combinatorial.queried("AWC" if in_turn else "SUC", selected, outcome >= 0.5, price)
        meter.add(row, called, _best(outcome, called), in_turn)
        statistics.learn(called, called, outcome, unit[row])
    return meter.means()


# One model a query (a sum of one); up to three at once, of which the best score counts; up to three by rising mean cost, until one succeeds.
one_answer = functools.partial(_c2mabv, size=1, reward="SUC")
best_of_several = functools.partial(_c2mabv, size=ASKED, reward="AWC")
asked_in_turn = functools.partial(_c2mabv, size=ASKED, reward="AWC", in_turn=True)


def stageroute(table, rng, *, budget, gamma=0.2, multiplier=2.0):
    """StageRoute: deployment by stages of T/20 queries, at least 10; routing by the same program, for every query."""
    queries, models = table.scores.shape
    slots, length = min(SLOTS, max(2, models - 1), models), max(10, queries // 20)
    meter, unit = Meter(table), table.unit
    limits = (gamma, unit[unit > 0].min(), unit.max(), multiplier)
    book, live, capacity = np.zeros((models, 3)), [], np.ones(models)
    for t, row in enumerate(rng.permutation(queries)):
        upper, lower = market_bounds(book, limits)
        if t % length == 0:
            deployed, _ = staged.deploy(upper, lower, capacity, np.ones(models, bool), budget, slots)
            live = np.flatnonzero(deployed)
        share, _, _ = staged.route_lp(upper[live], lower[live], capacity[live], budget)
        choice = live[staged.choose(share, rng.random())]
        meter.add(row, np.arange(models) == choice, choice)
        book[choice] += [1, table.scores[row, choice], unit[row, choice]]
    return meter.means()


def market_bounds(book, limits):
    """(upper bounds of rewards, lower bounds of costs) `[N]` of StageRoute, of `book` `[N, 3]`: pulls, rewards, costs."""
    return staged.bounds(book[:, 0], book[:, 1], book[:, 2], *limits)


def acqb(table, rng, *, weight, rounds, kappa=0.05, ridge=0.1, c1=2.0, arrival=0.5):
    """ACQB with one answer: a user who does not accept it tries again, until one is accepted.

    Quality, calls and latency are those of answered queries: the score of the answer that was accepted, all calls and seconds until
    then; totals are over all rounds played, over the number of answered ones. The pool is the whole table (at most 1,000 rows).
    """
    queries, models = table.scores.shape
    psi = table.contexts
    accept = queueing.depart_utility(table.scores, table.unit / table.unit.max(), weight)
    inverse = np.tile(np.eye(psi.shape[1]) / ridge, (models, 1, 1))
    theta, seen = np.zeros((models, psi.shape[1])), [([], []) for _ in range(models)]
    samples, m = queueing.num_samples(1), psi.shape[1]
    queue, arrived, turn = [], False, 0
    totals, answered = np.zeros(4), 0
    for t in range(rounds):
        if queue:
            if arrived and rng.random() <= queueing.eta(t, c1):
                row, model, turn = queue[-1], turn, (turn + 1) % models
            else:
                radius = queueing.alpha_disjoint([len(y) for _, y in seen], m, 1, kappa, ridge)
                utility = np.empty((len(queue), models))
                for j in range(models):
                    root = np.linalg.cholesky(inverse[j])
                    draws = theta[j][:, None] + radius[j] * root @ rng.normal(size=(m, samples))
                    utility[:, j] = (psi[queue] @ draws).max(axis=1)
                row, model = queue[int(utility.max(axis=1).argmax())], int(utility.max(axis=0).argmax())
            accepted = rng.random() < accept[row, model]
            totals[1:3] += [table.costs[row, model], 1.0]
            totals[3] += math.nan if table.latency is None else table.latency[row, model]
            if accepted:
                queue.remove(row)
                totals[0] += table.scores[row, model]
                answered += 1
            x = psi[row]
            seen[model][0].append(x)
            seen[model][1].append(float(accepted))
            theta[model] = _logistic(np.array(seen[model][0]), np.array(seen[model][1]), ridge, theta[model])
            z = inverse[model] @ x
            inverse[model] -= np.outer(z, z) / (1 + x @ z)
        arrived = bool(rng.random() < arrival)
        if arrived:
            queue.append(int(rng.integers(queries)))
    return totals / answered


def _logistic(X, y, ridge, theta, tolerance=1e-8):
    """Fits ridge logistic regression by Newton's method, from the given start."""
    for _ in range(50):
        p = expit(X @ theta)
        gradient = ridge * theta - X.T @ (y - p)
        if np.abs(gradient).max() < tolerance:
            break
        theta = theta - np.linalg.solve(ridge * np.eye(len(theta)) + X.T @ ((p * (1 - p))[:, None] * X), gradient)
    return theta
