"""Ways of routing that do not learn, in plain Python and float64, query by query: the reference of `jaxroute.comparison.offline`.

Written from the definitions (FrugalGPT, Section 3; cascade routing, Section 4; the linear program of one choice per query), without looking at
the package. Loops, no tricks. Arrays are `[query, model]`; models go from the lowest mean cost on, and of equal choices the first is taken.
"""

import itertools
import math

import numpy as np
from scipy.optimize import linprog, minimize


def mixture(scores, costs, first, second, weight):
    """Returns the expected score and cost of each query under shares of the models."""
    return tuple((1 - weight) * x[:, first] + weight * x[:, second] for x in map(np.asarray, (scores, costs)))


def best_mixture(quality, cost, target):
    """Least cost of a mixture of models that reaches a target: a linear program over their probabilities."""
    n = len(quality)
    solved = linprog(cost, A_ub=[-np.asarray(quality)], b_ub=[-target], A_eq=[np.ones(n)], b_eq=[1.0], bounds=[(0, 1)] * n)
    return solved.fun if solved.status == 0 else None


def router(predicted, mean_costs, price):
    """Returns the chosen model of each query."""
    return np.argmax(np.asarray(predicted) - price * np.asarray(mean_costs), axis=1).tolist()


def cascade(scores, costs, values, stages, thresholds):
    """Returns the served score, the cost and the called models of each query."""
    quality, cost, called = [], [], []
    for q in range(len(scores)):
        spent, asked = 0.0, []
        for place, model in enumerate(stages):
            asked.append(model)
            spent += costs[q][model]
            if place == len(stages) - 1 or values[q][model] >= thresholds[place]:
                quality.append(scores[q][model])
                break
        cost.append(spent)
        called.append(asked)
    return np.array(quality), np.array(cost), called


def cuts(values):
    """Returns all thresholds that separate the values differently."""
    seen = sorted(set(values))
    return [(a + b) / 2 for a, b in itertools.pairwise(seen)]


def all_cascades(scores, costs, values):
    """Every cascade of one to three models at every threshold: stages, thresholds, mean score, mean cost."""
    n = len(scores[0])
    found = []
    for length in (1, 2, 3):
        for stages in itertools.permutations(range(n), length):
            for thresholds in itertools.product(*[cuts([v[m] for v in values]) for m in stages[:-1]]):
                quality, cost, _ = cascade(scores, costs, values, stages, thresholds)
                found.append((stages, thresholds, quality.mean(), cost.mean()))
    return found


def cheapest(found, target):
    """Quality and cost of the best of `all_cascades`: least cost that reaches the target, or else the highest quality."""
    reaching = [f for f in found if f[2] >= target - 1e-12]
    if reaching:
        cost = min(f[3] for f in reaching)
        return max(f[2] for f in reaching if f[3] <= cost + 1e-12), cost
    quality = max(f[2] for f in found)
    return quality, min(f[3] for f in found if f[2] >= quality - 1e-12)


def conditional_mean(before, covariance, seen, model):
    """Mean of a model's score given those seen, `{model: score}`, under a normal distribution, kept in [0, 1]."""
    mean = before[model]
    if seen:
        s = sorted(seen)
        inside = np.array([[covariance[a][b] for b in s] for a in s])
        across = np.array([covariance[model][a] for a in s])
        mean = mean + across @ np.linalg.solve(inside, np.array([seen[a] - before[a] for a in s]))
    return min(max(mean, 0.0), 1.0)


def cascade_routing(before, scores, covariance, mean_costs, price):
    """Models asked for one query, in their order: the best set of one or two further models, its cheapest asked, until none is worth it."""
    n, seen, asked = len(before), {}, []
    while len(asked) < n:
        free = [m for m in range(n) if m not in seen]
        best = max(seen.values(), default=0.0)
        p = {m: conditional_mean(before, covariance, seen, m) for m in free}
        worth = {}
        for size in (1, 2):
            for group in itertools.combinations(free, size):
                wrong = math.prod(1 - p[m] for m in group)
                worth[group] = (1 - best) * (1 - wrong) - price * sum(mean_costs[m] for m in group)
        top = max(worth.values())
        if seen and top <= 1e-12:
            break
        group = next(g for g, w in worth.items() if w >= top - 1e-12)
        asked.append(group[0])
        seen[group[0]] = scores[group[0]]
    return asked


def cheapest_right(scores, costs, target):
    """Least mean cost at which a mean score is reached, when every score is known: a linear program with a share of each model per query."""
    q, n = np.shape(scores)
    each = {"A_eq": np.kron(np.eye(q), np.ones(n)), "b_eq": np.ones(q), "bounds": (0, 1)}
    solved = linprog(np.ravel(costs) / q, A_ub=[-np.ravel(scores) / q], b_ub=[-target], **each)
    assert solved.status == 0
    return solved.fun


def neighbours(columns, recorded, scores, size):
    """Returns the mean scores of the nearest recorded queries."""
    order = [np.argsort(((recorded - row) ** 2).sum(axis=1), kind="stable") for row in columns]
    return np.array([scores[nearest[:size]].mean(axis=0) for nearest in order])


def logistic(columns, scores, penalty):
    """Intercept and weights that minimise cross-entropy plus `penalty / 2` times the squared weights."""

    def loss(w):
        z = w[0] + columns @ w[1:]
        return np.sum(np.logaddexp(0, z) - scores * z) + penalty / 2 * np.sum(w[1:] ** 2)

    return minimize(loss, np.zeros(columns.shape[1] + 1), method="BFGS", options={"gtol": 1e-8, "maxiter": 5000}).x
