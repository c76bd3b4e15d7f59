"""CQB-MNL and ACQB in plain float64 NumPy: the reference that the simulator is compared with.

Written from the specification `acqb.md` and the paper ("Learning to Route and Schedule LLMs from User Retrials via
Contextual Queueing Bandits"), without looking at the simulator. Loops and enumeration, no tricks (except `acqb_loop`, the
comparator for speed); section numbers are those of the specification unless "paper" is written.

Conventions. Rounds are 0-based: round t here is round t + 1 of the paper. `A[t]` is an arrival during round t, visible
from round t + 1. A query is named by the round of its arrival, so a queue is a list of such rounds, oldest first; what is
known of the query that arrives in round t lies in row t of `features` (`[T, d]`, or `[T, N, d]` with a shared parameter)
and of the true `utility` (`[T, N]`). Arms are 0..N-1, an assortment is an ascending tuple. Draws are arrays indexed by the
round in which they are used: `U` choice, `coin` exploration, `z` normals, `size` number of answers.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

# --- Constants (spec 3.1) ------------------------------------------------------------------------------------------


def num_samples(K):
    """M, Thompson samples per round. Source: paper Sec. 3, spec 3.1."""
    return math.ceil(1 - math.log(K) / math.log(1 - 1 / (4 * math.sqrt(math.e * math.pi))))


def eta(t, c1):
    """Exploration probability min{1, c1 (t+1)^(-1/2)}; t is the paper's round. Source: paper Sec. 3, spec 1.

    The coin of round t of the paper is E(t-1), so the 0-based round t uses eta(t) of this function.
    """
    return min(1.0, c1 / math.sqrt(t + 1))


def alpha_shared(l, d, K, kappa, lam0):
    """Confidence radius alpha_l with log max(l, 1). Source: paper Sec. 3, spec 3.1 and 8(3)."""
    return kappa / 2 * math.sqrt(d * math.log(1 + l * K / (d * lam0)) + 4 * math.log(max(l, 1))) + kappa * math.sqrt(lam0)


def alpha_disjoint(pulls, d, K, kappa, lam0):
    """`[N]` radii alpha_{t,j}: alpha_l with l the number of rounds served with arm j. Source: paper eq. (3), spec 3.3."""
    return np.array([alpha_shared(int(n), d, K, kappa, lam0) for n in np.atleast_1d(pulls)])


# --- Choice model (2.1 to 2.4, 4.4, 4.7) ---------------------------------------------------------------------------


def combos(N, K):
    """All K-subsets of 0..N-1 in lexicographic order. Source: spec 1, 8(11)."""
    return list(itertools.combinations(range(N), K))


def choice_probabilities(v, S):
    """`[|S|]` p_j(x, S) in the order of S from the utilities v `[N]`; the rest is the retry. Source: spec 2.1(3)."""
    v = np.asarray(v, float)[list(S)]
    top = max(v.max(), 0.0)
    weight = np.exp(v - top)
    return weight / (np.exp(-top) + weight.sum())


def departure_rate(v, S):
    """R(x, S) = sum_{j in S} p_j = sigmoid(logsumexp_{j in S} v_j). Source: spec 2.2."""
    return float(choice_probabilities(v, S).sum())


def coupled_choice(v, S, u):
    """Position chosen in the sorted S, |S| for a retry: choice = #{k: u > cum_k}. Source: paper D.1, spec 2.3, 4.4."""
    S = sorted(S)
    return int(np.sum(u > np.cumsum(choice_probabilities(v, S))))


def depart_utility(perf, cost, rho, r_lo=0.1, r_hi=0.99):
    """`[P, N]` departure probabilities of a data set; equal raw utilities of a prompt are 1 on every arm. Source: paper B.4, spec 4.7."""
    raw = perf - rho * cost
    spread = np.ptp(raw, axis=1, keepdims=True)
    norm = np.where(spread > 0, (raw - raw.min(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1), 1.0)
    return r_lo + (r_hi - r_lo) * norm


# --- Joint scheduling and assortment (3.4, 4.1) --------------------------------------------------------------------


def best_assortment(v, K):
    """(score, S) of one query by enumeration of all K-subsets; score = logsumexp_{j in S} v_j, R = sigmoid(score).

    Ties go to the smaller server index: subsets come in lexicographic order and only a better one replaces. Each subset's
    terms are added in descending order, so that equal multisets have equal scores; where rounding swallows the smaller
    terms (utilities of very different size) the descending utilities decide. Source: spec 3.4, 4.1.
    """
    best = None
    for S in combos(len(v), K):
        terms = tuple(sorted((float(v[j]) for j in S), reverse=True))
        score = terms[0] + math.log(sum(math.exp(x - terms[0]) for x in terms))
        if best is None or (score, terms) > best[:2]:
            best = (score, terms, S)
    return best[0], best[2]


def schedule(u, K):
    """(row, S) maximising the rate over rows of u `[Q, N]` and all K-subsets by enumeration. Source: spec 4.1, 3.4.

    Rows are in arrival order; equal scores go to the oldest query.
    """
    best = None
    for q, row in enumerate(u):
        score, S = best_assortment(row, K)
        if best is None or score > best[0]:
            best = (score, q, S)
    return best[1], best[2]


# --- Regularised MNL maximum likelihood (4.2) ----------------------------------------------------------------------
# A history is X `[H, d]` (disjoint) or F `[H, N, d]` (shared), offered bool `[H, N]`, chosen int `[H]` (arm, -1 = retry).


def _likelihood(v, offered, chosen):
    """(negative log likelihood, P `[H, N]`, Y `[H, N]`) of the utilities v `[H, N]`."""
    masked = np.where(offered, v, -np.inf)
    total = np.logaddexp(0.0, np.logaddexp.reduce(masked, axis=1))
    Y = np.zeros(v.shape)
    Y[np.flatnonzero(chosen >= 0), chosen[chosen >= 0]] = 1.0
    return float(total.sum() - v[Y > 0].sum()), np.exp(masked - total[:, None]), Y


def shared_loss(theta, F, offered, chosen, lam0, curvature=True):
    """(loss, gradient `[d]`, Hessian `[d, d]` if asked for) of eq. (1). Source: paper eq. (1), spec 4.2."""
    loss, P, Y = _likelihood(F @ theta, offered, chosen)
    gradient = lam0 * theta - np.einsum("hn,hnd->d", Y - P, F)
    loss = lam0 / 2 * theta @ theta + loss
    if not curvature:
        return loss, gradient
    mean = np.einsum("hn,hnd->hd", P, F)
    return loss, gradient, lam0 * np.eye(len(theta)) + np.einsum("hn,hnd,hne->de", P, F, F) - mean.T @ mean


def disjoint_loss(Theta, X, offered, chosen, lam0, arms, curvature=True):
    """(loss, gradient `[len(arms) d]`, Hessian if asked for) in the rows `arms` of Theta `[N, d]`. Source: eq. (4)."""
    d = Theta.shape[1]
    loss, P, Y = _likelihood(X @ Theta.T, offered, chosen)
    gradient = np.concatenate([lam0 * Theta[j] - X.T @ (Y[:, j] - P[:, j]) for j in arms])
    loss = lam0 / 2 * np.sum(Theta**2) + loss
    if not curvature:
        return loss, gradient
    hessian = lam0 * np.eye(len(arms) * d)
    for a, j in enumerate(arms):
        for b, k in enumerate(arms):
            weight = P[:, j] * ((j == k) - P[:, k])
            hessian[a * d : a * d + d, b * d : b * d + d] += X.T @ (weight[:, None] * X)
    return loss, gradient, hessian


def _minimise(loss, start, tolerance=1e-10):
    """argmin of a strictly convex `loss(w, curvature)`: scipy's L-BFGS-B, then Newton's method to the tolerance."""
    w = np.array(start, float)
    if np.abs(loss(w, False)[1]).max() > tolerance:
        w = minimize(loss, w, (False,), "L-BFGS-B", jac=True, options={"ftol": 1e-12, "gtol": 1e-4}).x
    for _ in range(30):
        _, gradient, hessian = loss(w, True)
        if np.abs(gradient).max() <= tolerance:
            return w
        w = w - np.linalg.solve(hessian, gradient)
    raise ArithmeticError("the maximum likelihood estimate did not converge")


def fit_shared(F, offered, chosen, lam0, start=None):
    """theta `[d]`, the minimiser of eq. (1). Source: paper eq. (1)."""
    start = np.zeros(F.shape[2]) if start is None else start
    return _minimise(lambda w, curvature: shared_loss(w, F, offered, chosen, lam0, curvature), start)


def fit_disjoint(X, offered, chosen, lam0, start=None, arms=None):
    """Theta `[N, d]`: rows `arms` minimise the loss, the others stay as in `start`. Source: eq. (4), spec 3.3.

    arms None: all (the joint estimate). arms = S_t: the block update of Algorithm 2, lines 15 to 18.
    """
    N, d = offered.shape[1], X.shape[1]
    Theta = np.zeros((N, d)) if start is None else np.array(start, float)
    arms = range(N) if arms is None else list(arms)

    def loss(w, curvature):
        trial = Theta.copy()
        trial[list(arms)] = w.reshape(-1, d)
        return disjoint_loss(trial, X, offered, chosen, lam0, arms, curvature)

    solution = _minimise(loss, Theta[list(arms)].ravel())
    Theta[list(arms)] = solution.reshape(-1, d)
    return Theta


def newton_iterates(X, accepted, lam0, steps):
    """Undamped Newton from 0, K = 1. Source: spec 4.2 example (ii)."""
    X, y = np.asarray(X, float), np.asarray(accepted, float)
    theta, path = np.zeros(X.shape[1]), []
    for _ in range(steps):
        p = 1 / (1 + np.exp(-X @ theta))
        hessian = lam0 * np.eye(X.shape[1]) + X.T @ ((p * (1 - p))[:, None] * X)
        theta = theta - np.linalg.solve(hessian, lam0 * theta - X.T @ (y - p))
        path.append(theta)
    return np.array(path)


# --- Gaussian samples (4.3) ----------------------------------------------------------------------------------------


def thompson_sample(theta, alpha, V, z):
    """`[d, M]` theta~ = theta + alpha L^-T z with V = L L', column by column of z `[d, M]`. Source: spec 4.3(a)."""
    L = np.linalg.cholesky(V)
    return np.column_stack([theta + alpha * np.linalg.solve(L.T, z[:, m]) for m in range(z.shape[1])])


# --- Environments (2, 3.6) -----------------------------------------------------------------------------------------


def disjoint_utilities(Theta, contexts):
    """`[T, N]` true utilities x' theta*_j. Source: spec 2.7."""
    return np.asarray(contexts, float) @ np.asarray(Theta, float).T


def shared_utilities(theta, contexts):
    """`[T, N]` true utilities x_{-j}' theta* of contexts `[T, N, d]`. Source: spec 2.7."""
    return np.asarray(contexts, float) @ np.asarray(theta, float)


def slack(utility, K, lam, eps):
    """bool `[...]`: max_S R >= lam + eps for utilities `[..., N]`. Source: Assumption 4, paper 6.1, spec 4.6."""
    top = np.sort(np.asarray(utility, float), axis=-1)[..., -K:]
    z = np.exp(logsumexp(top, axis=-1))
    return z / (1 + z) >= lam + eps


def draw_instance(rng, T, N, d, K, lam, eps):
    """(Theta* `[N, d]`, contexts `[T, d]`): Unif(-1, 1), contexts conditioned on slackness. Source: spec 6.1."""
    Theta, contexts = rng.uniform(-1, 1, (N, d)), np.zeros((0, d))
    while len(contexts) < T:
        x = rng.uniform(-1, 1, (4096, d))
        contexts = np.concatenate([contexts, x[slack(x @ Theta.T, K, lam, eps)]])
    return Theta, contexts[:T]


def oracle_table(utility, K):
    """(score `[T]`, rate `[T]`, list of S): the best assortment of every query. Source: spec 2.4."""
    pairs = [best_assortment(v, K) for v in utility]
    rate = np.array([departure_rate(v, S) for v, (_, S) in zip(utility, pairs)])
    return np.array([score for score, _ in pairs]), rate, [S for _, S in pairs]


def simulate(A, U, utility, K, policy):
    """One run with the set recursion of spec 2.1 and 2.5. Returns a dict of arrays over rounds.

    A: bool `[T]`. U: `[T]`. utility: `[T, N]` of the arrivals. K: the largest assortment; the best rate of the regrets is
    over assortments of this size. policy: an object with `act(t, queue, arrived) -> (place in the queue, S, explored)` and
    `update(t, query, S, position, explored)`, both called in rounds with a query only; `radius(t)` and `theta` are recorded where it has them.

    queue: length before the decision. queue_after: length after the round. departure, retrial, idle, explored: bool. routing_gap, joint_gap: spec
    2.4, zero when idle. sojourn: departure round minus arrival round, 0 without departure. query: arrival round of the query served, -1 when idle.
    offered: bool `[T, N]`. chosen: arm or -1. radius: before the decision. theta: after the round. states: the queue as a tuple before each decision,
    and after the last round.
    """
    T, N = utility.shape
    _, best, _ = oracle_table(utility, K)
    out = {name: np.zeros(T, bool) for name in ("departure", "retrial", "idle", "explored")}
    out |= {name: np.zeros(T, int) for name in ("queue", "queue_after", "sojourn")}
    out |= {name: np.zeros(T) for name in ("routing_gap", "joint_gap")}
    out |= {"query": np.full(T, -1), "offered": np.zeros((T, N), bool), "chosen": np.full(T, -1)}
    radius, theta, states, queue = [], [], [], []
    for t in range(T):
        states.append(tuple(queue))
        out["queue"][t] = len(queue)
        if hasattr(policy, "radius"):
            radius.append(policy.radius(t))
        if not queue:
            out["idle"][t] = True
        else:
            place, S, explored = policy.act(t, queue, t > 0 and bool(A[t - 1]))
            query, S = queue[place], tuple(sorted(S))
            position, rate = coupled_choice(utility[query], S, U[t]), departure_rate(utility[query], S)
            out["query"][t], out["explored"][t] = query, explored
            out["offered"][t, list(S)] = True
            out["routing_gap"][t] = best[query] - rate
            out["joint_gap"][t] = max(best[q] for q in queue) - rate
            policy.update(t, query, S, position, explored)
            if position < len(S):
                queue.remove(query)
                out["departure"][t], out["sojourn"][t], out["chosen"][t] = True, t - query, S[position]
            else:
                out["retrial"][t] = True
        if A[t]:
            queue.append(t)
        out["queue_after"][t] = len(queue)
        if hasattr(policy, "theta"):
            theta.append(np.array(policy.theta))
    return out | {"states": [*states, tuple(queue)], "radius": np.array(radius), "theta": np.array(theta)}


# --- Policies (3.2, 3.3, 5) ----------------------------------------------------------------------------------------


def decaying(c1):
    """Trigger of ACQB, (t, coin) -> bool: coin <= eta, eta = min(1, c1/sqrt(t+1)) in round t. Source: spec 3.2, 11."""
    return lambda t, coin: coin <= eta(t, c1)


def phase_then_coin(tau, T):
    """Trigger of CQB-eps: t < tau, or coin <= T^(-1/2). Source: paper B.3, spec 5(5), 11."""
    return lambda t, coin: t < tau or coin <= T**-0.5


def real_data_tau(c1):
    """min{t: c1 (t+1)^(-1/2) <= 1} = max(0, ceil(c1^2 - 1)). Source: paper B.3, spec 5(5)."""
    return max(0, math.ceil(c1**2 - 1))


class Acqb:
    """ACQB, Algorithm 1 (features `[T, N, d]`) and Algorithm 2 (features `[T, d]`), and CQB-eps by its trigger.

    z: normals, `[T, d, M]` shared or `[T, N, d, M]` disjoint. coin `[T]`. trigger: `decaying(c1)` or `phase_then_coin`.
    mle: "block" or "joint" (disjoint only). fifo: the Thompson branch serves the oldest query with its own best assortment.
    p_k2, size `[T]`: with K = 2, two answers iff size[t] < p_k2, else one; M and the K of the radius stay those of K = 2, and a forced exploration
    offers the whole pair. Source: spec 3.2 to 3.5.
    """

    def __init__(self, features, N, K, kappa, lam0, coin, z, trigger, mle="block", fifo=False, p_k2=None, size=None):
        self.features, self.N, self.K, self.kappa, self.lam0 = features, N, K, kappa, lam0
        self.coin, self.z, self.trigger, self.mle, self.fifo, self.p_k2, self.size = coin, z, trigger, mle, fifo, p_k2, size
        self.shared, self.d = features.ndim == 3, features.shape[-1]
        self.order, self.pointer = combos(N, K), 0
        shape = () if self.shared else (N,)
        self.theta = np.zeros((*shape, self.d))
        self.V = np.broadcast_to(lam0 * np.eye(self.d), (*shape, self.d, self.d)).copy()
        self.pulls = np.zeros(N, int)
        self.history = [], [], []

    def radius(self, t):
        """alpha_l with l = t (the paper's t - 1), or `[N]` alpha_{t,j}."""
        if self.shared:
            return alpha_shared(t, self.d, self.K, self.kappa, self.lam0)
        return alpha_disjoint(self.pulls, self.d, self.K, self.kappa, self.lam0)

    def optimistic(self, t, queue):
        """`[Q, N]` u~: the maximum over ONE set of samples, per query and arm. Source: paper Sec. 3, spec 3.2."""
        alpha = self.radius(t)
        if self.shared:
            sample = thompson_sample(self.theta, alpha, self.V, self.z[t])
            return np.array([(self.features[q] @ sample).max(axis=1) for q in queue])
        samples = [thompson_sample(self.theta[j], alpha[j], self.V[j], self.z[t][j]) for j in range(self.N)]
        return np.array([[(self.features[q] @ s).max() for s in samples] for q in queue])

    def act(self, t, queue, arrived):
        if arrived and self.trigger(t, self.coin[t]):
            return len(queue) - 1, self.order[self.pointer], True
        k = self.K if self.p_k2 is None or self.size[t] < self.p_k2 else 1
        u = self.optimistic(t, queue)
        if self.fifo:
            return 0, best_assortment(u[0], k)[1], False
        return *schedule(u, k), False

    def update(self, t, query, S, position, explored):
        if explored:
            self.pointer = (self.pointer + 1) % len(self.order)
        row = query, [j in S for j in range(self.N)], S[position] if position < len(S) else -1
        for column, value in zip(self.history, row):
            column.append(value)
        X, offered, chosen = self.features[self.history[0]], np.array(self.history[1]), np.array(self.history[2])
        if self.shared:
            self.theta = fit_shared(X, offered, chosen, self.lam0, self.theta)
        else:
            arms = S if self.mle == "block" else None
            self.theta = fit_disjoint(X, offered, chosen, self.lam0, self.theta, arms)
        for j in S:
            x, V = (self.features[query, j], self.V) if self.shared else (self.features[query], self.V[j])
            V += np.outer(x, x)
            self.pulls[j] += 1


def acqb(features, N, K, kappa, lam0, c1, coin, z, **options):
    """ACQB, shared or disjoint according to `features`."""
    return Acqb(features, N, K, kappa, lam0, coin, z, decaying(c1), **options)


def cqb_eps(features, N, K, kappa, lam0, tau, T, coin, z, **options):
    """CQB-eps. Source: spec 5(5)."""
    return Acqb(features, N, K, kappa, lam0, coin, z, phase_then_coin(tau, T), **options)


class Optimal:
    """pi*: greedy on the true rate in its own queue; fifo: the oldest query with its best assortment. Source: 2.4, 5(1)."""

    def __init__(self, utility, K, fifo=False):
        self.score, _, self.best = oracle_table(utility, K)
        self.fifo = fifo

    def act(self, t, queue, arrived):
        place = 0 if self.fifo else max(range(len(queue)), key=lambda i: self.score[queue[i]])  # The first maximum.
        return place, self.best[queue[place]], False

    def update(self, t, query, S, position, explored):
        pass


class Random:
    """Query of rank floor(u Q) in arrival order, the K arms with the largest uniforms `arms [T, N]`. Source: 5(2), 11.

    fifo: the oldest query instead.
    """

    def __init__(self, K, rank, arms, fifo=False):
        self.K, self.rank, self.arms, self.fifo = K, rank, arms, fifo

    def act(self, t, queue, arrived):
        place = 0 if self.fifo else min(int(self.rank[t] * len(queue)), len(queue) - 1)
        return place, tuple(np.argsort(-np.asarray(self.arms[t]), kind="stable")[: self.K]), False

    def update(self, t, query, S, position, explored):
        pass


def bandit_exploration(t, N):
    """min{1, 3 N ln(t+1)^2 / (t+1)}, exploration probability of round t (0-based). Source: paper B.3, spec 5(3), 11."""
    return min(1.0, 3 * N * math.log(t + 1) ** 2 / (t + 1))


class QueueBandit:
    """Q-UCB, or Q-ThS where `beta(t, a, b) -> [N]` is given; K = 1, first in first out. Source: paper B.3, spec 5(3, 4).

    explore, server: uniforms `[T]`; exploration (explore <= probability) pulls arm floor(server N). `beta` must be a
    function of its arguments only; it is called in every round served, also in those of exploration.
    """

    def __init__(self, N, explore, server, beta=None):
        self.N, self.explore, self.server, self.beta = N, explore, server, beta
        self.pulls, self.wins = np.zeros(N, int), np.zeros(N, int)

    def index(self, t):
        """`[N]`: mean + sqrt(ln(t+1)^2 / (2 pulls)) with +inf for an arm not yet pulled, or Beta(wins+1, losses+1)."""
        if self.beta is not None:
            return np.asarray(self.beta(t, self.wins + 1, self.pulls - self.wins + 1))
        return np.array(
            [w / n + math.sqrt(math.log(t + 1) ** 2 / (2 * n)) if n else np.inf for w, n in zip(self.wins, self.pulls)]
        )

    def act(self, t, queue, arrived):
        greedy = int(np.argmax(self.index(t)))
        if self.explore[t] <= bandit_exploration(t, self.N):
            return 0, (min(int(self.server[t] * self.N), self.N - 1),), True
        return 0, (greedy,), False

    def update(self, t, query, S, position, explored):
        self.pulls[S[0]] += 1
        self.wins[S[0]] += position == 0


# --- Policy-switching queues (2.4) ---------------------------------------------------------------------------------


def switching_queues(A, U, utility, K, policy):
    """(Q `[T+1, T+1]`, D `[T+1, T]`, run): queues that follow `policy` in the first i rounds and pi* afterwards.

    Q[i, t] is the length before round t (0-based), the paper's Q(i, t+1); D[i, t] the departure of round t, the paper's
    D(i, t+1). Q[T] is the learner's, Q[0] that of pi*. Source: paper D.1, spec 2.4.
    """
    T = len(A)
    run = simulate(A, U, utility, K, policy)
    score, _, best = oracle_table(utility, K)
    total = [np.cumsum(choice_probabilities(v, S))[-1] for v, S in zip(utility, best)]
    Q, D = np.zeros((T + 1, T + 1), int), np.zeros((T + 1, T), int)
    for i in range(T + 1):
        Q[i, :i], D[i, :i] = run["queue"][:i], run["departure"][:i]
        queue = list(run["states"][i])
        for t in range(i, T):
            Q[i, t] = len(queue)
            if queue:
                query = max(queue, key=lambda q: score[q])
                if total[query] >= U[t]:
                    D[i, t] = 1
                    queue.remove(query)
            if A[t]:
                queue.append(t)
        Q[i, T] = len(queue)
    return Q, D, run


def switching_effects(Q):
    """psi `[T, T+1]`: psi[i-1, t] = Q[i, t] - Q[i-1, t], i = 1..T, the paper's psi(i, t+1). Source: spec 2.4."""
    return np.diff(Q, axis=0)


def sign_rule_violations(Q, D):
    """List of (i, t, what) that break Lemma 8, i = 1..T and t the 0-based column; empty if it holds.

    D(i,i) <= D(i-1,i); if equal then psi(i,t) in {-1, 0} for t > i; if D(i,i) = 0 < D(i-1,i) then psi(i,t) in {0, 1}.
    Before the split psi is 0. Source: paper Lemma 8 and E.1, spec 2.4 (the lemma's D(i,t) is read as D(i,i)).
    """
    psi, wrong = switching_effects(Q), []
    for i in range(1, len(Q)):
        own, optimal = D[i, i - 1], D[i - 1, i - 1]
        if own > optimal:
            wrong.append((i, i - 1, "departure"))
        allowed = (-1, 0) if own == optimal else (0, 1)
        for t in range(Q.shape[1]):
            if psi[i - 1, t] not in ((0,) if t < i else allowed):
                wrong.append((i, t, int(psi[i - 1, t])))
    return wrong


# --- Theory (7; checklist 41) --------------------------------------------------------------------------------------


class Theory(NamedTuple):
    """Constants of the bounds; sigma2 is sigma0^2, c0 and c2 are the unnamed absolute constants."""

    d: int
    K: int
    lam: float
    eps: float
    kappa: float
    lam0: float = 1.0
    sigma2: float = 1 / 3
    c0: float = 1.0
    c1: float = 1.0
    c2: float = 1.0


def beta_radius(l, t, p: Theory):
    """beta_l = alpha_l min{sqrt(6 d log(M t)), sqrt(2 log 2M) + sqrt(6 log(K l t))}. Source: paper D.3, spec 3.1."""
    M = num_samples(p.K)
    first = math.sqrt(6 * p.d * math.log(M * t))
    second = math.sqrt(2 * math.log(2 * M)) + math.sqrt(6 * math.log(p.K * max(l, 1) * t))
    return alpha_shared(l, p.d, p.K, p.kappa, p.lam0) * min(first, second)


def gap_scale(t, p: Theory):
    """alpha_{t-1} + 48 beta_{t-1}. Source: Proposition 10, Lemma 11."""
    return alpha_shared(t - 1, p.d, p.K, p.kappa, p.lam0) + 48 * beta_radius(t - 1, t, p)


def explorations_needed(u, t, p: Theory):
    """M~(u) = c2 ((d + log t)/sigma0^4 + 8 (alpha + 48 beta)^2 / (sigma0^2 (eps - 2 eta(u))^2)). Source: eq. (7)."""
    margin = p.eps - 2 * eta(u, p.c1)
    return p.c2 * ((p.d + math.log(t)) / p.sigma2**2 + 8 * gap_scale(t, p) ** 2 / (p.sigma2 * margin**2))


def rounds_needed(M, t, p: Theory):
    """tau~(M) = max(2M/lam, 16 log t/lam, 4M^2/(c1 lam)^2, 256 log^2 t/(c1 lam)^2). Source: Lemma 12, eq. (7)."""
    scale = (p.c1 * p.lam) ** 2
    return max(2 * M / p.lam, 16 * math.log(t) / p.lam, 4 * M**2 / scale, 256 * math.log(t) ** 2 / scale)


def bad_rounds(t, p: Theory):
    """tau(t) = min{u integer: eps > 2 eta(u), u >= tau~(M~(u))}. Source: eq. (7), spec 7 (the search starts at the pole)."""

    def holds(u):
        return p.eps > 2 * eta(u, p.c1) and u >= rounds_needed(explorations_needed(u, t, p), t, p)

    low = max(0, math.floor((2 * p.c1 / p.eps) ** 2 - 1) - 2)
    if holds(low):
        return low
    high = low + 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def omega(t, p: Theory):
    """4 tau(t) / eps. Source: Lemma 19."""
    return 4 * bad_rounds(t, p) / p.eps


def condition_20(t, p: Theory):
    """t >= tau(t), t >= omega, eps > 2 eta(tau(t)). Source: paper Condition 20."""
    tau = bad_rounds(t, p)
    return t >= tau and t >= 4 * tau / p.eps and p.eps > 2 * eta(tau, p.c1)


def exploration_floor(m, c1):
    """min{m, c1 sqrt m}. Source: Lemma 25."""
    return min(m, c1 * math.sqrt(m))


def nu(l, p: Theory):
    """Bound on E[1/lambda_min(V_{l-1})]. Source: Lemma 11, spec 7."""
    m = p.lam * exploration_floor(l - 1, p.c1)
    return 1 / (p.lam0 + p.sigma2 * m / 4) + (math.exp(-m / 8) + p.d * math.exp(-p.sigma2 * m / 16)) / p.lam0


def min_eig_bound(l, p: Theory):
    """(level, probability): lambda_min(V_l) >= level with at least this probability. Source: Lemma 25."""
    m = p.lam * exploration_floor(l, p.c1)
    return p.lam0 + p.sigma2 * m / 4, 1 - math.exp(-m / 8) - p.d * math.exp(-p.sigma2 * m / 16)


def gap_bound(i, t, p: Theory):
    """E_i = min{1, sqrt(c0 t^-2 + 2 lam eta(i-1) + (alpha + 48 beta)^2 nu(i))}. Source: Lemma 11, spec 7."""
    return min(1.0, math.sqrt(p.c0 / t**2 + 2 * p.lam * eta(i - 1, p.c1) + gap_scale(t, p) ** 2 * nu(i, p)))


def survival_bound(i, t, w, p: Theory):
    """P_i with omega = w: min{1, sqrt(c0 t^-2 + 19 eps^-2 exp(-eps^2 (t-i-1-w)/32))} if i <= t-w-1, else 1. Lemma 19."""
    if i > t - w - 1:
        return 1.0
    return min(1.0, math.sqrt(p.c0 / t**2 + 19 / p.eps**2 * math.exp(-(p.eps**2) / 32 * (t - i - 1 - w))))


def queue_regret_bound(t, p: Theory, w=None):
    """(sum E_i)(sum P_i)/(t-1) over i = 1..t-1. Source: paper eq. (12)."""
    w = omega(t, p) if w is None else w
    first = sum(gap_bound(i, t, p) for i in range(1, t))
    return first * sum(survival_bound(i, t, w, p) for i in range(1, t)) / (t - 1)


def elliptic_bound(t, d, K, lam0):
    """G = sqrt(2 d t log(1 + tK/(d lam0))), bound on sum_i max_{j in S_i} |x_ij|_{V_{i-1}^-1}. Source: Lemma 34."""
    return math.sqrt(2 * d * t * math.log(1 + t * K / (d * lam0)))


def routing_regret_bound(t, p: Theory):
    """Explicit bound of Theorem 6. Source: paper D.8, spec 7."""
    G, beta = elliptic_bound(t, p.d, p.K, p.lam0), beta_radius(t - 1, t, p)
    middle = G + math.sqrt(8 * t / p.lam0 * math.log(2 * t)) + 2 / math.sqrt(p.lam0)
    return (
        p.c0 / t
        + 2 * p.c1 * math.sqrt(t)
        + 16 * math.sqrt(math.e * math.pi) * beta * middle
        + (alpha_shared(t - 1, p.d, p.K, p.kappa, p.lam0) + beta) * G
    )


def expected_explorations(T, lam, c1):
    """sum_{i=1}^{T-1} lam eta(i) of ACQB. Source: paper G.1, spec 7."""
    return sum(lam * eta(i, c1) for i in range(1, T))


# --- The comparator for speed --------------------------------------------------------------------------------------


def draw_fig2(rng, T, N, d, K, lam, eps):
    """(Theta*, contexts, A, U, coin, z `[T, N, d, M]`): everything random in one run of Figure 2."""
    Theta, contexts = draw_instance(rng, T, N, d, K, lam, eps)
    A, U, coin = rng.random(T) < lam, rng.random(T), rng.random(T)
    return Theta, contexts, A, U, coin, rng.standard_normal((T, N, d, num_samples(K)))


def acqb_loop(rng, T, N, d, K, lam, eps, kappa, lam0, c1):
    """One run of ACQB (Algorithm 2, block update) in the setting of Figure 2, instance included, as fast as NumPy goes.

    Returns a dict: queue `[T]` before the decision, routing_gap `[T]`, joint_gap `[T]`, query, offered `[T, K]`, departure,
    explored, theta. Source: spec 3.3, 6.1.
    """
    return acqb_fast(*draw_fig2(rng, T, N, d, K, lam, eps), K, kappa, lam0, c1)


def acqb_fast(Theta, contexts, A, U, coin, z, K, kappa, lam0, c1, tolerance=1e-7):
    """`acqb_loop` on given draws."""
    T, d = contexts.shape
    N = len(Theta)
    exp_true = np.exp(contexts @ Theta.T)
    top = np.sort(exp_true, axis=1)[:, -K:].sum(axis=1)
    best = top / (1 + top)
    offers, pointer = np.array(combos(N, K)), 0
    force = coin <= np.minimum(1.0, c1 / np.sqrt(np.arange(T) + 1.0))
    force[1:] &= A[:-1]
    force[0] = False
    n = np.arange(T + 1)
    radius = kappa / 2 * np.sqrt(d * np.log(1 + K * n / (d * lam0)) + 4 * np.log(np.maximum(n, 1))) + kappa * math.sqrt(lam0)

    theta, V = np.zeros((N, d)), np.tile(lam0 * np.eye(d), (N, 1, 1))
    factor = np.tile(np.eye(d) / math.sqrt(lam0), (N, 1, 1))  # L^-T, V = L L'
    pulls, alpha = np.zeros(N, int), np.full(N, radius[0])
    waiting, x_waiting, q_len = np.zeros(T, int), np.zeros((T, d)), 0  # The queue is a prefix in arrival order.
    x_history, in_history, y_history, h = np.zeros((T, d)), np.zeros((T, N)), np.zeros((T, N)), 0
    x_arm, accepted = np.zeros((N, T if K == 1 else 0, d)), np.zeros((N, d))
    queue, query_of, offered = np.zeros(T, int), np.full(T, -1), np.full((T, K), -1)
    routing_gap, joint_gap, departure, explored = np.zeros(T), np.zeros(T), np.zeros(T, bool), np.zeros(T, bool)

    for t in range(T):
        queue[t] = q_len
        if q_len:
            if force[t]:
                place, S = q_len - 1, offers[pointer]
                pointer = (pointer + 1) % len(offers)
                explored[t] = True
            else:
                sample = theta[:, :, None] + alpha[:, None, None] * (factor @ z[t])  # [N, d, M]
                u = x_waiting[:q_len] @ sample  # [N, Q, M]
                u = u.max(axis=2) if u.shape[2] > 1 else u[:, :, 0]
                if K == 1:
                    score = u.max(axis=0)
                    place = score.argmax()
                    S = u[:, place].argmax(keepdims=True)
                else:
                    high = np.partition(u, N - K, axis=0)[N - K :] if K < N else u
                    place = np.logaddexp.reduce(high, axis=0).argmax()
                    S = np.sort(np.argsort(-u[:, place], kind="stable")[:K])
            query, x = waiting[place], x_waiting[place].copy()
            weight = exp_true[query, S]
            cum = (weight / (1 + weight.sum())).cumsum()
            position = int((U[t] > cum).sum())
            query_of[t], offered[t] = query, S
            routing_gap[t] = best[query] - cum[-1]
            joint_gap[t] = best[waiting[:q_len]].max() - cum[-1]

            x_history[h], in_history[h, S] = x, 1.0
            if position < K:
                departure[t] = True
                y_history[h, S[position]] = 1.0
                waiting[place : q_len - 1] = waiting[place + 1 : q_len]
                x_waiting[place : q_len - 1] = x_waiting[place + 1 : q_len]
                q_len -= 1
            h += 1
            pulls[S] += 1
            alpha[S] = radius[pulls[S]]
            V[S] += np.multiply.outer(x, x)
            factor[S] = np.linalg.inv(np.linalg.cholesky(V[S])).transpose(0, 2, 1)
            if K == 1:  # The data of one arm side by side.
                arm = int(S[0])
                x_arm[arm, pulls[arm] - 1] = x
                if departure[t]:
                    accepted[arm] += x
                theta[arm] = _logistic_newton(theta[arm], x_arm[arm, : pulls[arm]], accepted[arm], lam0, tolerance)
            else:
                theta[S] = _block_newton(theta, S, x_history[:h], in_history[:h], y_history[:h], lam0, tolerance)
        if A[t]:
            waiting[q_len], x_waiting[q_len] = t, contexts[t]
            q_len += 1
    out = {"queue": queue, "routing_gap": routing_gap, "joint_gap": joint_gap, "query": query_of, "offered": offered}
    return out | {"departure": departure, "explored": explored, "theta": theta, "final_queue": q_len}


def _logistic_newton(w, X, accepted, lam0, tolerance):
    """`[d]` ridge logistic regression, warm-started at w; accepted = sum of the accepted rows of X. As `_block_newton`."""
    old, step, ridge = math.inf, 0.0, lam0 * np.eye(len(w))
    for _ in range(50):
        e = np.exp(X @ w)
        total = 1.0 + e
        loss = lam0 / 2 * (w @ w) + np.log(total).sum() - w @ accepted
        if loss > old + 1e-10 * abs(old):
            step = 0.5 * step
            w = w + step
            continue
        old = loss
        p = e / total
        gradient = lam0 * w - accepted + p @ X
        if np.abs(gradient).max() < tolerance:
            break
        step = np.linalg.solve(X.T @ (X * (p / total)[:, None]) + ridge, gradient)
        w = w - step
    return w


def _block_newton(theta, S, X, inside, chosen, lam0, tolerance):
    """`[K, d]` block estimate of the arms S, K >= 2, warm-started: Newton's method, halving the step if the loss grows."""
    K, d = len(S), X.shape[1]
    rows = np.flatnonzero(inside[:, S].any(axis=1))
    X, inside, y = X[rows], inside[rows], chosen[rows][:, S]
    member = inside[:, S]
    inside[:, S] = 0.0  # What is left are the frozen arms of these rounds.
    base = 1.0 + (np.exp(X @ theta.T) * inside).sum(axis=1)
    w, step, old, xy, ones = theta[S], np.zeros((K, d)), math.inf, y.T @ X, np.ones(K)
    for _ in range(50):
        e = np.exp(X @ w.T) * member
        total = base + e @ ones
        loss = lam0 / 2 * (w * w).sum() + np.log(total).sum() - (w * xy).sum()
        if loss > old + 1e-10 * abs(old):
            step = 0.5 * step
            w = w + step
            continue
        old = loss
        P = e / total[:, None]
        gradient = lam0 * w - xy + P.T @ X
        if np.abs(gradient).max() < tolerance:
            break
        PX = (P[:, :, None] * X[:, None, :]).reshape(len(X), K * d)
        hessian = -PX.T @ PX
        for k in range(K):
            hessian[k * d : k * d + d, k * d : k * d + d] += X.T @ PX[:, k * d : k * d + d]
        hessian[np.diag_indices(K * d)] += lam0
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(K, d)
        w = w - step
    return w
