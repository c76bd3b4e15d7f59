"""MESS+ in plain float64 NumPy: the reference that the simulator is compared with.

Written from the specification `messplus.md` and the paper ("Dynamically Learned Test-Time Model Routing in Language
Model Zoos with Service Level Guarantees"), without looking at the simulator. Loops and enumeration, no tricks;
section and equation numbers are those of the two texts. Models are `0..M-1` by ascending cost, requests `1..T`; arrays
over requests are indexed from 0. Costs are in joule, the penalty weight V in 1/J.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix
from scipy.special import expit, logit, ndtr, ndtri

# --- The three-model zoo and the demo instance (spec 2.7, 2.8) ---------------------------------------------------

# Recorded requests per label cell; cell = 4 s_L1B + 2 s_L8B + s_L70B.
CELLS = {
    "arc_challenge": [362, 118, 50, 198, 30, 24, 17, 373],
    "arc_easy": [287, 154, 64, 426, 28, 38, 43, 1460],
    "boolq": [186, 159, 70, 593, 61, 112, 50, 2039],
    "logiqa": [642, 456, 132, 192, 144, 144, 72, 171],
    "piqa": [248, 65, 19, 145, 25, 42, 26, 1268],
    "sciq": [18, 4, 5, 35, 1, 7, 5, 925],
    "socialiqa": [825, 100, 82, 132, 46, 39, 50, 680],
    "winogrande": [119, 108, 53, 231, 44, 63, 49, 600],
}
# Mean and standard deviation of the energy per request, J, models L1B, L8B, L70B.
ENERGY = {
    "arc_challenge": ([79.866, 393.662, 2002.591], [18.63, 10.29, 63.09]),
    "arc_easy": ([81.833, 389.570, 2021.236], [18.73, 15.73, 71.23]),
    "boolq": ([43.565, 130.736, 1040.777], [17.70, 8.61, 30.02]),
    "logiqa": ([87.738, 414.385, 2103.261], [20.41, 11.52, 172.36]),
    "piqa": ([38.624, 198.286, 1000.306], [17.01, 9.29, 58.53]),
    "sciq": ([97.461, 444.055, 2230.167], [15.46, 21.03, 152.44]),
    "socialiqa": ([67.690, 301.792, 1534.331], [11.09, 9.37, 15.58]),
    "winogrande": ([48.976, 200.450, 1018.423], [11.95, 7.62, 22.44]),
}
DEMO_WEIGHTS = np.array([0.5, 0.3, 0.2])
DEMO_SATISFACTION = np.array([[0.90, 0.94, 0.96], [0.50, 0.75, 0.92], [0.20, 0.50, 0.80]])
DEMO_COST = np.outer([1.0, 1.2, 1.5], [50.0, 200.0, 1000.0])


def cell_labels(j, M=3):
    """`[M]` labels of cell j: the binary digits of j, the cheapest model first."""
    return np.array([(j >> (M - 1 - m)) & 1 for m in range(M)], float)


def cell_probabilities(x, counts, kappa):
    """(P(cell | x) `[2^M]`, P(s_m = 1 | x) `[M]`) of CellsEnv; only the first M features matter. Source: 2.7(2)."""
    M = (len(counts) - 1).bit_length()
    labels = np.array([cell_labels(j, M) for j in range(len(counts))])
    weight = counts * np.exp(kappa * (2 * labels - 1) @ x[:M])
    return weight / weight.sum(), weight / weight.sum() @ labels


def cell_request(u, z_feature, z_cost, counts, kappa, mean, sd):
    """(features, labels, costs) of one CellsEnv request from its draws. Source: 2.7(2), 11 "Layout".

    u: cell by inverse distribution function. z_feature: `[M + d_noise]` normal. z_cost: `[M]` normal.
    """
    M = (len(counts) - 1).bit_length()
    j = sum(u >= edge for edge in np.cumsum(counts)[:-1] / np.sum(counts))
    labels = cell_labels(int(j), M)
    signal = np.concatenate([kappa * (2 * labels - 1), np.zeros(len(z_feature) - M)])
    cost = np.array([max(0.05 * mean[m], mean[m] + sd[m] * z_cost[m]) for m in range(M)])
    return np.append(signal + z_feature, 1.0), labels, cost


def probit_satisfied(x, g, epsilon, accuracy, w, rho_f, rho_c):
    """`[M]` labels of one ProbitEnv request from its normal draws x `[d]`, g `[]`, epsilon `[M]`. Source: 2.7(3)."""
    return (ndtri(accuracy) + rho_f * (w @ x) + rho_c * g + math.sqrt(1 - rho_f**2 - rho_c**2) * epsilon > 0).astype(float)


def probit_probability(x, accuracy, w, rho_f):
    """`[M]` P(s_m = 1 | x) = Phi((Phi^-1(acc_m) + rho_f w_m.x) / sqrt(1 - rho_f^2)). Source: 2.7(3)."""
    return ndtr((ndtri(accuracy) + rho_f * (w @ x)) / math.sqrt(1 - rho_f**2))


def lognormal_cost(mean, sigma, z):
    """mean exp(sigma z - sigma^2 / 2): a cost with the given mean. Source: 2.7(3)."""
    return np.asarray(mean) * np.exp(sigma * np.asarray(z) - sigma**2 / 2)


def label_distribution(p, coupling):
    """[(labels `[M]`, probability)] given P(s_m = 1) = p_m. Source: TypesEnv of 2.7(1).

    "independent": all 2^M vectors. "comonotone": s_m = 1[u < p_m] with one uniform u, so at most M + 1 vectors.
    """
    p = np.asarray(p, float)
    if coupling == "independent":
        vectors = np.array(list(itertools.product([0.0, 1.0], repeat=len(p))))
        return list(zip(vectors, np.prod(np.where(vectors, p, 1 - p), axis=1)))
    return [((low < p).astype(float), high - low) for low, high in itertools.pairwise(np.unique([0.0, 1.0, *p]))]


# --- Exploration, decision, queue (2.3, 3.1, 4.1, 4.2) -----------------------------------------------------------


def explore_probability(t, c, power=0.25):
    """p_t = min(1, c t^-power), t from 1. Source: Algorithm 1."""
    return min(1.0, c * t**-power)


def expected_explorations(T, c, power=0.25, force_first=False):
    """E[K_T], the exact sum of 4.9."""
    return sum(1.0 if force_first and t == 1 else explore_probability(t, c, power) for t in range(1, T + 1))


def scores(cost, sat_hat, queue, V, alpha):
    """`[M]` V E_m + Q (alpha - s_hat_m). Source: eq. 3."""
    return V * cost + queue * (alpha - sat_hat)


def queue_path(served, alpha):
    """`[T]` Q_2 .. Q_{T+1} from Q_1 = 0 by Q_{t+1} = max{0, Q_t + alpha - s_t}. Source: eq. 2."""
    return np.array(list(itertools.accumulate(served, lambda queue, s: max(0.0, queue + alpha - s), initial=0.0))[1:])


# --- Predictor and its training (3.2) ----------------------------------------------------------------------------


def forward(kind, params, x, keep=(1, 1), rate=0.0):
    """(logits, intermediate values) of W x + b ("logistic"), or of dropout -> Dense(h) -> LayerNorm -> ReLU -> dropout -> Dense(M) ("mlp").

    params: w `[M, d]`, b `[M]`, or w1 `[h, d]`, b1, gain, bias `[h]` (LayerNorm), w2 `[M, h]`, b2 `[M]`. keep: (`[d]`, `[h]`) of 0 and 1 for dropout.
    """
    if kind == "logistic":
        return params["w"] @ x + params["b"], None
    x, scale_hidden = x * keep[0] / (1 - rate), keep[1] / (1 - rate)
    a = params["w1"] @ x + params["b1"]
    deviation = math.sqrt(np.mean((a - a.mean()) ** 2) + 1e-5)
    normal = (a - a.mean()) / deviation
    before = params["gain"] * normal + params["bias"]
    hidden = np.maximum(before, 0.0) * scale_hidden
    return params["w2"] @ hidden + params["b2"], (x, deviation, normal, before, scale_hidden, hidden)


def loss_and_grads(kind, params, x, s, l2=0.0, **dropout):
    """(loss, gradients like params) of one request: mean over m of the cross-entropy with logits, plus (l2/2) |params|^2. Source: eq. 4."""
    logits, values = forward(kind, params, x, **dropout)
    error = (expit(logits) - s) / len(s)
    if kind == "logistic":
        grads = {"w": np.outer(error, x), "b": error}
    else:
        x, deviation, normal, before, scale_hidden, hidden = values
        d_before = params["w2"].T @ error * scale_hidden * (before > 0)
        d_normal = d_before * params["gain"]
        d_a = (d_normal - d_normal.mean() - normal * (d_normal * normal).mean()) / deviation
        grads = {"w1": np.outer(d_a, x), "b1": d_a, "gain": d_before * normal, "bias": d_before}
        grads |= {"w2": np.outer(error, hidden), "b2": error}
    loss = np.mean(np.logaddexp(0, logits) - logits * s) + l2 / 2 * sum((p**2).sum() for p in params.values())
    return loss, {name: grads[name] + l2 * params[name] for name in params}


def sgd_step(params, velocity, grads, lr, momentum=0.0, weight_decay=0.0, clip=math.inf):
    """(params, velocity) after v <- momentum v + (g + weight_decay z), z <- z - lr v. Source: 3.2.

    torch.optim.SGD without dampening and Nesterov; decay on all parameters. A finite `clip` first scales the
    gradients to global norm min(clip, norm) (torch divides by norm + 1e-6 instead of norm).
    """
    norm = math.sqrt(sum((g**2).sum() for g in grads.values()))
    scale = clip / norm if norm > clip else 1.0
    velocity = {n: momentum * velocity[n] + scale * grads[n] + weight_decay * params[n] for n in params}
    return {n: params[n] - lr * velocity[n] for n in params}, velocity


def theory_step_size(k, mu, L):
    """eta_k = min{2 / (mu (k + 1)), 1 / L}, k = 1 at the first step. Source: proof of Lemma A.1."""
    return min(2 / (mu * (k + 1)), 1 / L)


# --- The algorithm (3.1) -----------------------------------------------------------------------------------------


def messplus(
    features,
    satisfied,
    cost,
    u_explore,
    *,
    predictor,
    V,
    alpha,
    c,
    lr=0.1,
    momentum=0.0,
    weight_decay=0.0,
    explore_power=0.25,
    force_first=True,
    serve="largest",
    cost_mode="known",
    l2=0.0,
    clip=math.inf,
    sgd_repeats=1,
    step_rule=None,
    observed=None,
    pred_energy=0.0,
    drawn=None,
):
    """MESS+, Algorithm 1, on given draws; a dictionary of arrays whose row i is request i + 1.

    Args:
      features: `[T, d]`. satisfied: `[T, M]` of 0 and 1. cost: `[T, M]` J. u_explore: `[T]` uniform.
      predictor: ("logistic", {w, b}) | ("mlp", params, masks) | ("given", `[T, M]` probabilities, no training). masks: {"rate", "input" `[T, d]`,
        "hidden" `[T, h]`} of 0 and 1; a further axis `[T, sgd_repeats, .]` gives every step its own.
      serve: who answers an explored request, "largest" (M-1) or "best" (the largest satisfied index, else M-1).
      cost_mode: "known", "last" (costs of the last explored request, ones before) or "running_mean" (of the costs paid, 1e-6 before the first).
      step_rule: (mu, L) of the theory's step sizes instead of lr.
      observed: `[T]` bool, None = always. A round without feedback may explore, but trains nothing and does not move the queue.
      drawn: `[T]`, model that serves if it is as good and as cheap as the best; None = the lowest index.
    """
    (T, M), kind = cost.shape, predictor[0]
    params = {} if kind == "given" else {name: np.array(value, float) for name, value in predictor[1].items()}
    velocity = {name: np.zeros_like(value) for name, value in params.items()}
    queue, steps = 0.0, 0
    cost_last, cost_sum, cost_count = np.ones(M), np.zeros(M), np.zeros(M)
    rows = []
    for i in range(T):
        feedback = observed is None or observed[i]
        probability = explore_probability(i + 1, c, explore_power)
        explore = u_explore[i] < probability or (force_first and i == 0)
        sat_hat = predictor[1][i] if kind == "given" else expit(forward(kind, params, features[i])[0])
        mean = np.where(cost_count > 0, cost_sum / np.maximum(cost_count, 1), 1e-6)
        cost_hat = {"known": cost[i], "last": cost_last, "running_mean": mean}[cost_mode]
        score = scores(cost_hat, sat_hat, queue, V, alpha)
        if not explore:
            choice = int(np.argmin(score))
            if drawn is not None and score[drawn[i]] == score[choice] and cost_hat[drawn[i]] == cost_hat[choice]:
                choice = drawn[i]
        else:
            choice = M - 1 if serve == "largest" else max(range(M), key=lambda m: (satisfied[i, m], m))
        first_loss = math.nan
        if explore and feedback and kind != "given":
            for r in range(sgd_repeats):
                extra = {}
                if kind == "mlp":
                    keep = [
                        mask[i] if mask[i].ndim == 1 else mask[i][r]
                        for mask in (predictor[2]["input"], predictor[2]["hidden"])
                    ]
                    extra = {"keep": keep, "rate": predictor[2]["rate"]}
                value, grads = loss_and_grads(kind, params, features[i], satisfied[i], l2, **extra)
                first_loss = value if r == 0 else first_loss
                steps += 1
                rate = theory_step_size(steps, *step_rule) if step_rule else lr
                params, velocity = sgd_step(params, velocity, grads, rate, momentum, weight_decay, clip)
        called = np.ones(M, bool) if explore else np.arange(M) == choice
        cost_last = cost[i] if explore else cost_last
        cost_sum, cost_count = cost_sum + np.where(called, cost[i], 0.0), cost_count + called
        queue = max(0.0, queue + alpha - satisfied[i, choice]) if feedback else queue
        ranked = np.append(np.sort(score), math.inf)
        rows.append((
            probability, explore, choice, cost[i][called].sum() + pred_energy, cost[i, choice], satisfied[i, choice], queue, sat_hat,
            first_loss, ranked[1] - ranked[0],
        ))  # fmt: skip
    names = "probability explored choice cost cost_served sat queue sat_hat loss margin"
    path = {name: np.array(column) for name, column in zip(names.split(), zip(*rows))}
    return path | {"params": params}


# --- Metrics (2.6) -----------------------------------------------------------------------------------------------


def sla_times(served, alpha_level, t_burn=50):
    """(first_ok, last_bad): first t >= t_burn with 1000 n_sat >= alpha_level t, else T + 1; last t with <, else 0."""
    count, first_ok, last_bad = 0, len(served) + 1, 0
    for t, s in enumerate(served, 1):
        count += int(s)
        met = 1000 * count >= alpha_level * t
        if met and t >= t_burn and first_ok > len(served):
            first_ok = t
        last_bad = last_bad if met else t
    return first_ok, last_bad


def metrics(path, cost, alpha):
    """Numbers of 2.6 from a path of `messplus`; cost `[T, M]` of all models."""
    sat, choice, explore = path["sat"], path["choice"], path["explored"]
    T, M = cost.shape
    t = np.arange(1, T + 1)
    served = choice[:, None] == np.arange(M)
    return {
        "cost_served_mean": path["cost_served"].mean(),
        "violation": alpha - sat.mean(),
        "served_ratio": served.mean(0),
        "call_count": (served | explore[:, None]).sum(0),
        "explore_cost": cost[explore].sum(),
        "explore_overhead": (cost.sum(1) - cost[t - 1, choice])[explore].sum() / T,
        "train_loss_mean": np.nanmean(path["loss"]),
        "tavg_sat": (np.cumsum(sat) / t).mean(),
    }


# --- Oracles (2.5) -----------------------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """value: J per request. multiplier: lambda*, J per unit of satisfaction. y: `[Omega, M]` policy."""

    value: float
    multiplier: float
    y: np.ndarray
    feasible: bool


def opt_lp(w, P, E, alpha):
    """min Sum_w w y.E subject to Sum_w w y.P >= alpha, y in simplices; NaN if infeasible. Source: 2.5.

    w: `[Omega]` weights. P, E: `[Omega, M]`. The multiplier is d value / d alpha, not unique at a vertex.
    """
    w, P, E = (np.asarray(a, float) for a in (w, P, E))
    n, M = P.shape
    if alpha > (w * P.max(1)).sum() + 1e-12:
        return Optimum(math.nan, math.nan, np.full((n, M), math.nan), False)
    one_model_each = csr_matrix((np.ones(n * M), (np.repeat(np.arange(n), M), np.arange(n * M))), shape=(n, n * M))
    satisfaction = (w[:, None] * P).reshape(1, -1)
    result = linprog(
        (w[:, None] * E).ravel(), csr_matrix(-satisfaction), [-alpha], one_model_each, np.ones(n), (0, None), method="highs"
    )
    assert result.status == 0, result.message
    return Optimum(result.fun, -result.ineqlin.marginals[0], result.x.reshape(n, M), True)


def opt_stat(w, P, E, alpha):
    """Best mixture that does not see the request: one context with the marginal accuracies and mean costs."""
    return opt_lp([1.0], [np.asarray(w) @ P], [np.asarray(w) @ E], alpha)


def opt_context(w, P, E, alpha):
    """Best stationary policy that sees the type; the default E^OPT of Theorem 2."""
    return opt_lp(w, P, E, alpha)


def opt_label(w, P, E, alpha, coupling="independent"):
    """Clairvoyant: every pair (type, labels) is a context of its own, rows of y in the order of `label_distribution`."""
    contexts = [(w_k * q, s, E_k) for w_k, P_k, E_k in zip(w, P, E) for s, q in label_distribution(P_k, coupling)]
    return opt_lp(*(np.array(part) for part in zip(*contexts)), alpha)


def opt_hindsight(satisfied, cost, alpha):
    """The realised requests, each its own context."""
    return opt_lp(np.full(len(cost), 1 / len(cost)), satisfied, cost, alpha)


def cell_contexts(name, kappa=None, x=None):
    """(w, P, E) of a benchmark for `opt_lp`. Source: 2.8.

    Without features: the eight cells themselves (opt_label; `opt_stat` of it is the request-blind oracle). With kappa
    and a sample x `[n, d]`: the posteriors at these points (Monte-Carlo opt_context).
    """
    counts, mean = CELLS[name], ENERGY[name][0]
    if x is None:
        w, P = np.array(counts) / sum(counts), np.array([cell_labels(j) for j in range(8)])
    else:
        w, P = np.full(len(x), 1 / len(x)), np.array([cell_probabilities(row, counts, kappa)[1] for row in x])
    return w, P, np.tile(mean, (len(w), 1))


def q_of_beta(w, P, sat_hat, beta):
    """Sum_w w min{P_m : max s_hat - s_hat_m <= beta}, Assumption 1 averaged over requests. Source: 2.4."""
    return sum(w_k * P_k[hat >= hat.max() - beta].min() for w_k, P_k, hat in zip(w, P, sat_hat))


# --- Baselines (4.3, 4.7, 4.8) -----------------------------------------------------------------------------------


def educated_guessing(accuracy, alpha, num_sweeps=5000):
    """(probabilities `[n]`, sweeps done). Source: listing of Appendix B, spec 4.3.

    Differs from the paper: the fallback with equal accuracies (0/0 there) returns the uniform distribution.
    """
    accuracy = np.asarray(accuracy, float)
    n = len(accuracy)
    if alpha > accuracy.max():
        raise ValueError("alpha is above the best accuracy")
    p = np.full(n, 1 / n)
    for sweep in range(num_sweeps):
        current = float(p @ accuracy)
        if current >= alpha - 1e-6:
            return p, sweep
        for i in range(n):
            p[i] *= 1.01 if accuracy[i] > current else 0.99
        p /= p.sum()
    order = np.argsort(accuracy, kind="stable")[::-1]
    best, worst = accuracy[order[0]], accuracy[order[-1]]
    if best == worst:
        return np.full(n, 1 / n), num_sweeps
    p, remaining = np.full(n, 1e-10), 1 - n * 1e-10
    for i in order[:-1]:
        share = remaining * 0.8 * (accuracy[i] - worst) / (best - worst)
        p[i] += share
        remaining -= share
    p[order[-1]] += remaining
    return p / p.sum(), num_sweeps


def routellm_strong_share(threshold, offset, sigma):
    """P(sigmoid(offset + sigma xi) >= threshold) = 1 - Phi((logit threshold - offset) / sigma). Source: 4.7."""
    return 1 - ndtr((logit(threshold) - offset) / sigma)


def routellm_threshold(satisfaction, alpha):
    """The largest of .9, .8, ... .1 with satisfaction(threshold) >= alpha, else 0 (always strong). Source: 4.7."""
    for k in range(9, 0, -1):
        if satisfaction(k / 10) >= alpha:
            return k / 10
    return 0.0


def routerdc_sample_llm(logits, score, k_plus=3, k_minus=3):
    """Sum over the k_plus best models with positive score of -log softmax against the k_minus worst with score <= .5.

    logits: `[M]` cosines, temperature 1. Equal scores: lower index first. Source: 4.8, 5(4).
    """
    models = range(len(score))
    positive = [m for m in sorted(models, key=lambda m: (-score[m], m)) if score[m] > 0][:k_plus]
    negative = [m for m in sorted(models, key=lambda m: (score[m], m)) if score[m] <= 0.5][:k_minus]
    total = 0.0
    for p in positive:
        against = sum(math.exp(logits[n]) for n in negative if n != p)
        total -= math.log(math.exp(logits[p]) / (math.exp(logits[p]) + against))
    return total


def cosines(a, b):
    """`[n, k]` cosine similarities of the rows of a `[n, d]` and b `[k, d]`."""
    return a @ b.T / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))


def routerdc_sample_sample(h, inside, outside):
    """Mean over i of -log[e^sim(i, i+) / (e^sim(i, i+) + Sum over outside e^sim)]. Source: 5(4).

    h: `[n, d]` encodings. inside: `[n]` one index of the same cluster. outside: `[n, H]` indices of other clusters.
    """
    sim, total = cosines(h, h), 0.0
    for i in range(len(h)):
        own = math.exp(sim[i, inside[i]])
        total -= math.log(own / (own + sum(math.exp(sim[i, j]) for j in outside[i])))
    return total / len(h)
