"""Off-policy estimators in float64, written from the papers with plain loops: a slow, readable reference for tests.

Data
    target      [Q, N]  probability with which the evaluated policy lets each model answer each query
    query       [A]     query of each answer (a query may have none, one or several answers)
    model       [A]     model that gave the answer
    outcome     [A]     score or cost of the answer
    propensity  [A]     probability with which the logging rule let this model answer this query
    predicted   [Q, N]  predicted outcome of each model on each query

The weight of an answer is w_j = target[query_j, model_j] / propensity_j. Estimators return the per-query
contributions psi [Q]; the value of the policy is their mean. `self_normalised` is a ratio and returns the value.

A query without answers still counts in the mean: its inverse-propensity contribution is 0, its doubly robust
contribution is the direct method's. With several answers to a query the contributions of the answers add up, which is
right where `propensity` is the probability that the model is among those that answer (Horvitz and Thompson).
"""

import math

import numpy as np

# ---------------------------------------------------------------------------------------------------------- basics


def weights(target, query, model, propensity):
    """w_j = pi(a_j | x_j) / mu(a_j | x_j): importance weight of each answer."""
    answers = len(query)
    result = np.zeros(answers, dtype=np.float64)
    for j in range(answers):
        result[j] = float(target[query[j]][model[j]]) / float(propensity[j])
    return result


def mean(values):
    """Arithmetic mean by one pass."""
    total = 0.0
    for value in values:
        total += float(value)
    return total / len(values)


def variance(values):
    """Population variance (divisor n, as numpy.var) by two passes."""
    centre = mean(values)
    total = 0.0
    for value in values:
        total += (float(value) - centre) ** 2
    return total / len(values)


# -------------------------------------------------------------------------------------------------- modified weights


def clipped_weight(weight, limit):
    """min(w, limit). Ionides 2008, truncated importance sampling; Su et al. 2020 call it pessimistic shrinkage."""
    return weight if weight <= limit else limit


def switched_weight(weight, threshold):
    """w 1{w <= threshold}. Wang, Agarwal and Dudik 2017 (SWITCH)."""
    return weight if weight <= threshold else 0.0


def shrunk_weight(weight, lam):
    """lam w / (w^2 + lam). Su et al. 2020, optimistic shrinkage. lam = inf leaves w, lam = 0 gives 0."""
    if math.isinf(lam):
        return weight
    if lam == 0.0:
        return 0.0
    return lam * weight / (weight * weight + lam)


# ------------------------------------------------------------------------------------------------------- estimators


def direct_method(target, predicted):
    """psi_i = sum_a target[i, a] predicted[i, a].

    Dudik, Langford and Li 2011, "Doubly robust policy evaluation and learning", section 2.1 (direct method), for a
    randomised policy as in Dudik, Erhan, Langford and Li 2014, "Doubly robust policy evaluation and optimization".
    """
    queries, models = len(target), len(target[0])
    psi = np.zeros(queries, dtype=np.float64)
    for i in range(queries):
        for a in range(models):
            psi[i] += float(target[i][a]) * float(predicted[i][a])
    return psi


def _weighted(target, query, model, outcome, propensity, change):
    """psi_i = sum over answers j of query i of change(w_j) r_j."""
    w = weights(target, query, model, propensity)
    psi = np.zeros(len(target), dtype=np.float64)
    for j in range(len(query)):
        psi[query[j]] += change(float(w[j])) * float(outcome[j])
    return psi


def _corrected(target, query, model, outcome, propensity, predicted, change):
    """psi_i = sum_a target predicted + sum over answers j of query i of change(w_j) (r_j - predicted_j)."""
    w = weights(target, query, model, propensity)
    psi = direct_method(target, predicted)
    for j in range(len(query)):
        i, a = query[j], model[j]
        psi[i] += change(float(w[j])) * (float(outcome[j]) - float(predicted[i][a]))
    return psi


def inverse_propensity(target, query, model, outcome, propensity):
    """psi_i = sum_j w_j r_j.

    Horvitz and Thompson 1952, "A generalization of sampling without replacement from a finite universe" (the sum of
    observed values over their inclusion probabilities); as an estimator of a policy: Dudik et al. 2011, section 2.1.
    """
    return _weighted(target, query, model, outcome, propensity, lambda w: w)


def clipped(target, query, model, outcome, propensity, limit=None):
    """psi_i = sum_j min(w_j, limit) r_j, with limit = sqrt(Q) by default.

    Ionides 2008, "Truncated importance sampling", which recommends the truncation point sqrt(n) times the normalising
    constant (1 here, as the weights are ratios of normalised probabilities).
    """
    if limit is None:
        limit = math.sqrt(len(target))
    return _weighted(target, query, model, outcome, propensity, lambda w: clipped_weight(w, limit))


def self_normalised(target, query, model, outcome, propensity):
    """sum_j w_j r_j / sum_j w_j (nan where all weights are 0).

    Swaminathan and Joachims 2015, "The self-normalized estimator for counterfactual learning".
    """
    w = weights(target, query, model, propensity)
    above, below = 0.0, 0.0
    for j in range(len(query)):
        above += float(w[j]) * float(outcome[j])
        below += float(w[j])
    return above / below if below != 0.0 else math.nan


def doubly_robust(target, query, model, outcome, propensity, predicted):
    """psi_i = sum_a target predicted + sum_j w_j (r_j - predicted_j).

    Dudik, Langford and Li 2011, section 2.2; Dudik, Erhan, Langford and Li 2014, section 3.
    """
    return _corrected(target, query, model, outcome, propensity, predicted, lambda w: w)


def switch_dr(target, query, model, outcome, propensity, predicted, threshold):
    """psi_i = sum_a target predicted + sum_j w_j 1{w_j <= threshold} (r_j - predicted_j).

    Wang, Agarwal and Dudik 2017, "Optimal and adaptive off-policy evaluation in contextual bandits", section 3
    (SWITCH-DR: doubly robust where the weight is small, the model of outcomes where it is large; the terms of the
    model add up to the direct method, so only the residual is switched off).
    """
    return _corrected(target, query, model, outcome, propensity, predicted, lambda w: switched_weight(w, threshold))


def dr_shrinkage(target, query, model, outcome, propensity, predicted, lam):
    """psi_i = sum_a target predicted + sum_j lam w_j / (w_j^2 + lam) (r_j - predicted_j).

    Su, Dimakopoulou, Krishnamurthy and Dudik 2020, "Doubly robust off-policy evaluation with shrinkage", section 3
    (DR with optimistic shrinkage, DRos).
    """
    return _corrected(target, query, model, outcome, propensity, predicted, lambda w: shrunk_weight(w, lam))


# --------------------------------------------------------------------------------------------------------- precision


def effective_sample_size(w):
    """(sum w)^2 / sum w^2. Kish 1965, "Survey sampling". nan where all weights are 0."""
    total, squares = 0.0, 0.0
    for weight in w:
        total += float(weight)
        squares += float(weight) ** 2
    return total * total / squares if squares != 0.0 else math.nan


def cluster_error(psi, clusters):
    """Standard error of mean(psi) when queries come in clusters (users).

    S_c = sum over the queries of cluster c of (psi_i - mean psi);  se = sqrt(C / (C - 1) sum_c S_c^2) / Q.
    Liang and Zeger 1986 sandwich for an intercept alone, with the factor C / (C - 1). nan with one cluster.
    """
    centre = mean(psi)
    sums = {}
    for i in range(len(psi)):
        label = clusters[i]
        sums[label] = sums.get(label, 0.0) + (float(psi[i]) - centre)
    count = len(sums)
    if count < 2:
        return math.nan
    total = 0.0
    for label in sums:
        total += sums[label] ** 2
    return math.sqrt(count / (count - 1) * total) / len(psi)


def wilson(value, error, z):
    """Wilson score interval (Wilson 1927) for a proportion `value` with standard error `error`.

    n = value (1 - value) / error^2 is the size of the simple random sample with this error;
    centre = (value + z^2 / 2n) / (1 + z^2 / n);
    half = z sqrt(value (1 - value) / n + z^2 / 4n^2) / (1 + z^2 / n).
    error = 0 gives (value, value). value 0 or 1 with an error > 0 has n = 0, whose limit is (0, 1).
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError("a Wilson interval needs a value in [0, 1]")
    if error == 0.0:
        return value, value
    spread = value * (1.0 - value)
    if spread == 0.0:
        return 0.0, 1.0
    n = spread / error**2
    below = 1.0 + z * z / n
    centre = (value + z * z / (2.0 * n)) / below
    half = z * math.sqrt(spread / n + z * z / (4.0 * n * n)) / below
    return centre - half, centre + half


# --------------------------------------------------------------------- choice of the parameter, Open Bandit Pipeline
#
# Formulas of obp 0.5.7: obp/ope/helper.py (bias and bounds), obp/ope/estimators.py (`_estimate_mse_score`) and
# obp/ope/estimators_tuning.py (rules "mse" and "slope"). n is the number of rounds there; here n = Q. With one answer
# per query, which is all that obp knows, both agree; sums over answers divided by Q extend them to other counts.


METHODS = {
    # name: (change of the weight, uses predictions, order in which obp goes through the candidates)
    "clipped": (clipped_weight, False, "descending"),
    "clipped_doubly_robust": (clipped_weight, True, "descending"),
    "switch_dr": (switched_weight, True, "descending"),
    "dr_shrinkage": (shrunk_weight, True, "ascending"),
}


def contributions(method, parameter, target, query, model, outcome, propensity, predicted):
    """psi of one of METHODS at a parameter."""
    change, uses_predictions, _ = METHODS[method]
    if uses_predictions:
        return _corrected(target, query, model, outcome, propensity, predicted, lambda w: change(w, parameter))
    return _weighted(target, query, model, outcome, propensity, lambda w: change(w, parameter))


def bias_estimate(method, parameter, target, query, model, outcome, propensity, predicted):
    """|1/n sum_j (w_j - w'_j) (r_j - q_j)|, w' the modified weight, q_j the prediction (0 for `clipped`).

    obp `estimate_bias_in_ope`; Su et al. 2020, direct estimate of the bias (appendix on model selection).
    """
    change, uses_predictions, _ = METHODS[method]
    w = weights(target, query, model, propensity)
    total = 0.0
    for j in range(len(query)):
        q = float(predicted[query[j]][model[j]]) if uses_predictions else 0.0
        total += (float(w[j]) - change(float(w[j]), parameter)) * (float(outcome[j]) - q)
    return abs(total / len(target))


def bias_upper_bound(method, parameter, target, query, model, outcome, propensity, predicted, delta=0.05):
    """bias_estimate + sqrt(2 m log(2/delta) / n) + 2 max_j w_j log(2/delta) / (3 n), with m = 1/n sum_j w_j^2.

    obp `estimate_high_probability_upper_bound_bias` (Bernstein). Both added terms hold the unmodified weights and so
    do not depend on the parameter.
    """
    w = weights(target, query, model, propensity)
    n = len(target)
    squares, largest = 0.0, 0.0
    for weight in w:
        squares += float(weight) ** 2
        largest = max(largest, float(weight))
    log_term = math.log(2.0 / delta)
    bound = bias_estimate(method, parameter, target, query, model, outcome, propensity, predicted)
    bound += math.sqrt(2.0 * (squares / n) * log_term / n)
    bound += 2.0 * largest * log_term / (3.0 * n)
    return bound


def mse_score(
    method, parameter, target, query, model, outcome, propensity, predicted, use_bias_upper_bound=True, delta=0.05
):
    """var(psi) / n + bias^2 (var with divisor n; bias is the upper bound or the direct estimate).

    obp `_estimate_mse_score`.
    """
    data = (target, query, model, outcome, propensity, predicted)
    psi = contributions(method, parameter, *data)
    if use_bias_upper_bound:
        bias = bias_upper_bound(method, parameter, *data, delta=delta)
    else:
        bias = bias_estimate(method, parameter, *data)
    return variance(psi) / len(target) + bias**2


def in_order(method, candidates):
    """Candidates in obp's order: largest first for clipping and switching, smallest first for shrinkage."""
    return sorted(candidates, reverse=METHODS[method][2] == "descending")


def choose_by_mse(
    method, candidates, target, query, model, outcome, propensity, predicted, use_bias_upper_bound=True, delta=0.1
):
    """The candidate of least mse_score; of equal ones the first in obp's order. obp `_tune_hyperparam_with_mse`."""
    best, best_score = None, math.inf
    for candidate in in_order(method, candidates):
        score = mse_score(
            method, candidate, target, query, model, outcome, propensity, predicted, use_bias_upper_bound, delta
        )
        if best is None or score < best_score:
            best, best_score = candidate, score
    return best
