"""The NumPy reference of CQB-MNL and ACQB against the worked examples of `spec/acqb.md` and against brute force.

Section numbers are those of the specification. No simulator code is used here.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from reference import queueing as ref

FAST = {"kappa": 0.3, "lam0": 1.0, "c1": 1.0}


def fig2(seed, T=120, N=4, d=3, K=1, lam=0.7, eps=0.03):
    """(Theta*, contexts, A, U, coin, z, utility) of a small random instance."""
    draws = ref.draw_fig2(np.random.default_rng(seed), T, N, d, K, lam, eps)
    return (*draws, ref.disjoint_utilities(draws[0], draws[1]))


def learner(contexts, coin, z, N, K, kappa=0.3, lam0=1.0, c1=1.0, **options):
    return ref.acqb(contexts, N, K, kappa, lam0, c1, coin, z, **options)


# --- 3.1 Constants -------------------------------------------------------------------------------------------------


def test_number_of_samples():
    assert [ref.num_samples(K) for K in (1, 2, 3, 4, 5)] == [1, 9, 14, 17, 19]
    for K in range(1, 30):  # What M is for: K (1 - p)^M <= 1 - p with p of Lemma 31, and M is the least such number.
        p, M = 1 / (4 * math.sqrt(math.e * math.pi)), ref.num_samples(K)
        assert K * (1 - p) ** M <= (1 - p) * (1 + 1e-12)
        assert K == 1 or K * (1 - p) ** (M - 1) > 1 - p


def test_exploration_probability():
    assert ref.eta(0, 1) == 1
    np.testing.assert_allclose([ref.eta(1, 1), ref.eta(24, 1)], [0.70711, 0.2], atol=5e-6)
    np.testing.assert_allclose([ref.eta(8, 3), ref.eta(35, 3)], [1.0, 0.5], atol=1e-12)


@pytest.mark.parametrize(
    "l, K, d, kappa, lam0, expected",
    [
        (0, 1, 5, 1, 1, 1.0),
        (10, 1, 5, 1, 1, 2.91725),
        (100, 2, 5, 0.5, 1, 2.02046),
        (1000, 1, 384, 0.1, 0.5, 1.42050),
    ],
)
def test_radius(l, K, d, kappa, lam0, expected):
    assert ref.alpha_shared(l, d, K, kappa, lam0) == pytest.approx(expected, abs=6e-6)
    np.testing.assert_allclose(ref.alpha_disjoint([l, 0], d, K, kappa, lam0), [expected, kappa * lam0**0.5], atol=6e-6)


def test_exploration_of_the_bandits():
    """Section 5(4): the first round of the paper after the first one that may exploit; the value at T = 1000."""
    for N, last in [(3, 289), (5, 621), (10, 1646), (11, 1875), (14, 2596), (112, 37218)]:
        probability = [ref.bandit_exploration(t, N) for t in range(1, 40000)]  # Rounds 2, 3, ... of the paper.
        assert 2 + next(k for k, p in enumerate(probability) if p < 1) == last
    assert ref.bandit_exploration(0, 5) == 0
    assert ref.bandit_exploration(999, 5) == pytest.approx(0.716, abs=5e-4)


def test_real_data_phase():
    for c1 in (0.5, 1.0, 1.3, 2.0, 3.0, 10.0):
        assert ref.real_data_tau(c1) == next(t for t in range(1000) if c1 * (t + 1) ** -0.5 <= 1)


# --- 3.2, 4.9 Round robin ------------------------------------------------------------------------------------------


def test_round_robin_order():
    assert ref.combos(4, 2) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert [S[0] for S in ref.combos(3, 1)] == [0, 1, 2]
    for N, K in [(1, 1), (5, 1), (5, 2), (6, 3), (4, 4)]:
        order = ref.combos(N, K)
        assert order == [ref.unrank(c, N, K) for c in range(len(order))] and len(order) == math.comb(N, K)
        assert [ref.successor(S, N) for S in order] == order[1:] + order[:1]
    table = ref.combos(112, 2)
    assert len(table) == 6216 and all(0 in S for S in table[:111]) and 0 not in table[111]


# --- 4.1 Joint scheduling ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "K, query, S, rate", [(1, 1, (0,), 0.8175745), (2, 1, (0, 1), 0.8481826), (3, 0, (0, 2, 3), 0.8733458)]
)
def test_schedule_example(K, query, S, rate):
    u = [[0.3, -0.2, 1.2, 0.8], [1.5, 0.1, -0.4, 0], [0.7, 0.7, 0.6, 0.65]]
    assert ref.schedule(u, K) == (query, S) == ref.schedule_top(u, K)
    assert ref.departure_rate(u[query], S) == pytest.approx(rate, abs=5e-8)


def test_schedule_ties():
    assert ref.schedule([[0.7, 0.7, 0.6]], 1) == (0, (0,))
    assert ref.schedule(np.zeros((3, 4)), 2) == (0, (0, 1))
    assert ref.schedule([[0, 1, 2], [2, 0, 1]], 2) == (0, (1, 2))
    assert ref.best_assortment([100.0, 0.0, 1.0], 2)[1] == (0, 2)  # The score alone cannot tell e^0 from e^1 here.


def test_schedule_is_top_k_and_maximises_the_rate():
    rng = np.random.default_rng(0)
    for _ in range(300):
        N = int(rng.integers(1, 7))
        K, u = int(rng.integers(1, N + 1)), rng.normal(size=(int(rng.integers(1, 6)), N)) * 2
        if rng.random() < 0.5:
            u = np.round(u)  # Many exact ties.
        query, S = ref.schedule(u, K)
        assert (query, S) == ref.schedule_top(u, K)
        rates = {(q, s): ref.departure_rate(u[q], s) for q in range(len(u)) for s in ref.combos(N, K)}
        best = max(rates.values())
        assert rates[query, S] == pytest.approx(best, abs=1e-14)
        assert (query, S) == min(pair for pair, rate in rates.items() if rate > best - 1e-12)


def test_rate_is_monotone_and_lipschitz():
    """Lemmas 30 and 32 of the paper; 1/4 is the true constant (section 7)."""
    rng = np.random.default_rng(1)
    for _ in range(500):
        N = int(rng.integers(1, 6))
        S, u, up = tuple(range(N)), rng.normal(size=N) * 2, rng.exponential(size=N)
        v = rng.normal(size=N) * 2
        assert ref.departure_rate(u + up, S) >= ref.departure_rate(u, S)
        assert abs(ref.departure_rate(u, S) - ref.departure_rate(v, S)) <= np.abs(u - v).max() / 4 + 1e-15
        assert ref.departure_rate(u, S) == pytest.approx(expit(logsumexp(u)), abs=1e-14)


# --- 4.2 Maximum likelihood ----------------------------------------------------------------------------------------

X2 = np.array([[1, 0], [0, 1], [0.6, -0.8], [0.6, 0.8]])
OFFERED3 = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
X3, CHOSEN3 = np.array([[1.0], [0.5], [-1.0]]), np.array([0, 2, -1])


def test_logistic_examples():
    np.testing.assert_allclose(ref.fit_logistic([[1.0], [1.0], [-1.0]], [1, 0, 0], 1.0), [0.2865477], atol=5e-8)
    theta = ref.fit_logistic(X2, [1, 0, 1, 0], 1.0)
    np.testing.assert_allclose(theta, [0.3551224, -0.8433650], atol=5e-8)
    loss = 0.5 * theta @ theta + np.log1p(np.exp(X2 @ theta)).sum() - (X2 @ theta)[[0, 2]].sum()
    assert loss == pytest.approx(2.1412593, abs=5e-8)
    newton = [[0.3496503, -0.8280255], [0.3551183, -0.8433518], [0.3551224, -0.8433650]]
    np.testing.assert_allclose(ref.newton_iterates(X2, [1, 0, 1, 0], 1.0, 3), newton, atol=6e-8)
    majorise = [[0.3496503, -0.8280255], [0.3548617, -0.8425869], [0.3551093, -0.8433251]]
    np.testing.assert_allclose(ref.majorise_iterates(X2, [1, 0, 1, 0], 1.0, 3), majorise, atol=6e-8)


def test_joint_and_block_example():
    joint = ref.fit_disjoint(X3, OFFERED3, CHOSEN3, 1.0)
    np.testing.assert_allclose(joint[:, 0], [0.7009860, -0.3266978, 0.5661644], atol=5e-8)
    assert ref.disjoint_loss(joint, X3, OFFERED3, CHOSEN3, 1.0, range(3))[0] == pytest.approx(2.6738826, abs=1e-7)
    block = np.zeros((3, 1))
    for h in range(1, 4):
        arms = np.flatnonzero(OFFERED3[h - 1])
        block = ref.fit_disjoint(X3[:h], OFFERED3[:h], CHOSEN3[:h], 1.0, block, arms)
    np.testing.assert_allclose(block[:, 0], [0.6993909, -0.3484076, 0.5656008], atol=5e-8)


def random_history(seed, H=40, N=4, d=3, K=2):
    rng = np.random.default_rng(seed)
    X, offered, chosen = rng.normal(size=(H, d)), np.zeros((H, N), bool), np.full(H, -1)
    for h in range(H):
        S = rng.permutation(N)[:K]
        offered[h, S] = True
        chosen[h] = rng.choice([-1, *S])
    return X, offered, chosen


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("lam0", [0.1, 1.0])
def test_estimates_agree_with_a_plain_optimiser(K, lam0):
    X, offered, chosen = random_history(K, K=K)
    N, d = offered.shape[1], X.shape[1]

    def loss(w):  # Written out from eq. (1) with a term per round.
        theta, total = w.reshape(N, d), lam0 / 2 * w @ w
        for x, mask, y in zip(X, offered, chosen):
            v = theta[mask] @ x
            total += math.log(1 + np.exp(v).sum()) - (theta[y] @ x if y >= 0 else 0)
        return total

    joint = ref.fit_disjoint(X, offered, chosen, lam0)
    plain = minimize(loss, np.zeros(N * d), method="BFGS", options={"gtol": 1e-7}).x
    np.testing.assert_allclose(joint.ravel(), plain, atol=2e-6)
    assert np.abs(ref.disjoint_loss(joint, X, offered, chosen, lam0, range(N))[1]).max() < 1e-10
    # Remark 7: the shared model with features x (x) e_j is the same estimate.
    F = np.einsum("hd,jn->hjnd", X, np.eye(N)).reshape(len(X), N, N * d)
    np.testing.assert_allclose(ref.fit_shared(F, offered, chosen, lam0), joint.ravel(), atol=1e-9)
    # A block solve: stationary in its arms, the others untouched.
    start = np.random.default_rng(9).normal(size=(N, d))
    arms = [1, 3]
    block = ref.fit_disjoint(X, offered, chosen, lam0, start, arms)
    np.testing.assert_array_equal(block[[0, 2]], start[[0, 2]])
    assert np.abs(ref.disjoint_loss(block, X, offered, chosen, lam0, arms)[1]).max() < 1e-10
    if K == 1:  # N separate logistic regressions.
        for j in range(N):
            rows = offered[:, j]
            np.testing.assert_allclose(ref.fit_logistic(X[rows], chosen[rows] == j, lam0), joint[j], atol=1e-9)


def test_gradient_and_hessian_by_differences():
    X, offered, chosen = random_history(5, H=15, K=2)
    arms, step = [0, 2], 1e-5
    Theta = np.random.default_rng(3).normal(size=(4, 3))
    _, gradient, hessian = ref.disjoint_loss(Theta, X, offered, chosen, 0.7, arms)
    for i in range(6):
        move = np.zeros((4, 3))
        move[arms[i // 3], i % 3] = step
        up = ref.disjoint_loss(Theta + move, X, offered, chosen, 0.7, arms)
        down = ref.disjoint_loss(Theta - move, X, offered, chosen, 0.7, arms)
        assert (up[0] - down[0]) / (2 * step) == pytest.approx(gradient[i], abs=1e-7)
        np.testing.assert_allclose((up[1] - down[1]) / (2 * step), hessian[i], atol=1e-7)


# --- 4.3 Samples ---------------------------------------------------------------------------------------------------


def test_samples_have_covariance_alpha2_v_inverse():
    rng = np.random.default_rng(2)
    contexts, counts, lam0, alpha, theta = rng.normal(size=(6, 3)), np.array([0, 3, 1, 2, 0, 5]), 0.7, 1.3, np.ones(3)
    V = lam0 * np.eye(3) + sum(n * np.outer(x, x) for n, x in zip(counts, contexts))
    linear = ref.thompson_sample(theta, alpha, V, np.eye(3)) - theta[:, None]
    np.testing.assert_allclose(linear @ linear.T, alpha**2 * np.linalg.inv(V), atol=1e-12)


# --- 4.4 Coupled choice --------------------------------------------------------------------------------------------


def test_coupled_choice_example():
    p = ref.choice_probabilities([0.2, -0.5], (0, 1))
    np.testing.assert_allclose(p, [0.4319065, 0.2144784], atol=5e-8)
    assert np.cumsum(p)[1] == pytest.approx(0.6463849, abs=6e-8)
    assert [ref.coupled_choice([0.2, -0.5], (0, 1), u) for u in (0.3, 0.5, 0.7)] == [0, 1, 2]
    assert [ref.coupled_choice([0.2, -0.5], (1, 0), u) for u in (0.3, 0.5, 0.7)] == [0, 1, 2]


def test_coupling():
    """The marginals are right, and a larger rate departs whenever a smaller one does (section 2.3)."""
    rng = np.random.default_rng(4)
    grid = (np.arange(20000) + 0.5) / 20000
    for _ in range(5):
        u, v, S, R = rng.normal(size=5), rng.normal(size=5), (0, 2, 3), (1, 4)
        choice = np.array([ref.coupled_choice(u, S, x) for x in grid[::20]])
        counts = np.bincount(choice, minlength=4) / len(choice)
        np.testing.assert_allclose(counts[:3], ref.choice_probabilities(u, S), atol=2.1e-3)
        small, large = sorted([(u, S), (v, R)], key=lambda pair: ref.departure_rate(*pair))
        for x in rng.random(300):
            if ref.coupled_choice(*small, x) < len(small[1]):
                assert ref.coupled_choice(*large, x) < len(large[1])
    assert ref.choice_probabilities([800.0, 799.0], (0, 1)).sum() == pytest.approx(1.0)
    assert ref.departure_rate([-800.0, -900.0], (0, 1)) == 0.0


# --- 4.7, 4.8 Real data and contrastive learning -------------------------------------------------------------------


def test_utility_transform_example():
    u, degenerate = ref.depart_utility([1, 0, 0.5], [0.8, 0.1, 0.3], 0.25)
    np.testing.assert_allclose(u, [[0.99, 0.1, 0.5854545]], atol=5e-8)
    assert degenerate == 0
    v = ref.log_odds(u[0])
    np.testing.assert_allclose(np.exp(v), [99, 0.1111, 1.41228], atol=2e-5)
    np.testing.assert_allclose(ref.choice_probabilities(v, (0, 2)), [0.9762131, 0.0139261], atol=5e-8)
    assert ref.departure_rate(v, (0, 2)) == pytest.approx(0.9901393, abs=5e-8)
    np.testing.assert_allclose([ref.departure_rate(v, (j,)) for j in range(3)], u[0], atol=1e-14)
    u, degenerate = ref.depart_utility([[0.5, 0.5], [1, 0]], [[0.2, 0.2], [0, 0]], 1.0)
    np.testing.assert_allclose(u, [[0.99, 0.99], [0.99, 0.1]], atol=1e-14)
    assert degenerate == 1


Z8 = np.array([[1, 0], [0.6, 0.8], [-0.8, 0.6]])
UTILITY8 = np.array([[1, 0.2, 0.1], [0.9, 0.3, 0], [0.1, 0.2, 1]])


def test_info_nce_example():
    c = ref.utility_similarity(UTILITY8)
    np.testing.assert_allclose([c[0, 1], c[0, 2], c[1, 2]], [0.97322, -0.66438, -0.81839], atol=6e-6)
    pairs = ref.contrastive_pairs(c, 0.6, 0.3, 64)
    assert pairs == [(0, 1, [2]), (1, 0, [2])]
    assert ref.info_nce(Z8, pairs, 0.5) == pytest.approx(0.3223153, abs=5e-8)
    explicit = sum(
        -math.log(math.exp(Z8[i] @ Z8[j] / 0.5) / sum(math.exp(Z8[i] @ Z8[k] / 0.5) for k in (j, *negative)))
        for i, j, negative in pairs
    )
    assert ref.info_nce(Z8, pairs, 0.5) == pytest.approx(explicit, abs=1e-12)


def test_contrastive_ties_and_edges():
    c = np.array(
        [
            [1.0, 0.9, 0.9, -0.5, -0.5, 0.2],
            [0.9, 1.0, 0.6, 0.3, 0.3, 0.3],
            [0.9, 0.6, 1.0, -0.1, -0.2, -0.3],
            [-0.5, 0.3, -0.1, 1.0, 0.5, 0.0],
            [-0.5, 0.3, -0.2, 0.5, 1.0, 0.0],
            [0.2, 0.3, -0.3, 0.0, 0.0, 1.0],
        ]
    )
    pairs = ref.contrastive_pairs(c, 0.6, 0.3, 2)
    # Anchor 0: positive 1 before 2, the lower of two equal negatives first. Anchor 1: no negative, thresholds are strict.
    assert pairs == [(0, 1, [3, 4]), (2, 0, [5, 4])]
    assert ref.contrastive_pairs(c, 0.6, 0.3, 1) == [(0, 1, [3]), (2, 0, [5])]
    assert ref.utility_similarity([[0.5, 0.5], [1, 0]]).tolist()[0] == [0, 0]


def test_similarity_does_not_depend_on_the_transform():
    """Section 3.6: the map of 4.7 is increasing and affine per prompt."""
    rng = np.random.default_rng(6)
    perf, cost = rng.random((20, 5)), rng.random((20, 5))
    u, degenerate = ref.depart_utility(perf, cost, 0.3)
    assert degenerate == 0
    raw = perf - 0.3 * cost
    np.testing.assert_allclose(ref.utility_similarity(u), ref.utility_similarity(raw), atol=1e-13)
    np.testing.assert_array_equal(ref.balanced_groups(u), ref.balanced_groups(raw))


# --- 2.1 to 2.5 The environment ------------------------------------------------------------------------------------


def policies(contexts, coin, z, utility, N, K, T, seed):
    rng = np.random.default_rng(seed)
    out = {
        "acqb": learner(contexts, coin, z, N, K),
        "joint": learner(contexts, coin, z, N, K, mle="joint"),
        "fifo": learner(contexts, coin, z, N, K, fifo=True),
        "eps": ref.cqb_eps(contexts, N, K, 0.3, 1.0, T // 10, T, coin, z),
        "optimal": ref.Optimal(utility, K),
        "optimal_fifo": ref.Optimal(utility, K, fifo=True),
        "random": ref.Random(K, rng.random(T), rng.random((T, N))),
    }
    if K == 1:
        beta = lambda t, a, b: np.random.default_rng([seed, t]).beta(a, b)  # noqa: E731
        out["ucb"] = ref.QueueBandit(N, rng.random(T), rng.random(T))
        out["ths"] = ref.QueueBandit(N, rng.random(T), rng.random(T), beta)
    return out


@pytest.mark.parametrize("K", [1, 2])
def test_queue_recursion_and_records(K):
    T, N = 150, 4
    _, contexts, A, U, coin, z, utility = fig2(10 + K, T=T, N=N, K=K)
    _, best, _ = ref.oracle_table(utility, K)
    for name, policy in policies(contexts, coin, z, utility, N, K, T, 3).items():
        run = ref.simulate(A, U, utility, K, policy)
        assert run["queue"][0] == 0
        departure, queue = run["departure"], run["queue"]
        np.testing.assert_array_equal(run["queue_after"], queue + A - departure, err_msg=name)
        np.testing.assert_array_equal(run["queue_after"][:-1], queue[1:])
        np.testing.assert_array_equal(departure.astype(int) + run["retrial"] + run["idle"], 1)
        np.testing.assert_array_equal(run["idle"], queue == 0)
        np.testing.assert_array_equal(run["offered"].sum(1), np.where(run["idle"], 0, K))
        np.testing.assert_array_equal(run["chosen"] >= 0, departure)
        assert np.all(run["routing_gap"] >= -1e-12) and np.all(run["joint_gap"] >= run["routing_gap"] - 1e-12)
        assert np.all(run["routing_gap"][run["idle"]] == 0) and np.all(run["sojourn"][departure] >= 1)
        assert run["peak"][-1] == queue.max()
        for t in np.flatnonzero(~run["idle"]):
            query, S = run["query"][t], np.flatnonzero(run["offered"][t])
            assert query in run["states"][t] and query < t
            assert departure[t] == (ref.departure_rate(utility[query], S) >= U[t])
            assert best[query] - ref.departure_rate(utility[query], S) == pytest.approx(run["routing_gap"][t])
        # Little's distribution without an error term: every query waits its sojourn, the pending ones until the end.
        pending = sum(T - 1 - q for q in run["states"][-1])
        assert queue.sum() == run["sojourn"].sum() + pending
        if name in ("optimal_fifo", "ucb", "ths"):
            assert all(run["query"][t] == run["states"][t][0] for t in np.flatnonzero(~run["idle"]))
        if name == "optimal":
            np.testing.assert_allclose(run["joint_gap"], 0, atol=1e-12)
        if name in ("acqb", "joint", "eps"):
            pulls = run["offered"].cumsum(0)
            before = np.vstack([np.zeros((1, N), int), pulls[:-1]])
            np.testing.assert_allclose(run["radius"], [ref.alpha_disjoint(n, 3, K, 0.3, 1.0) for n in before])
            assert run["theta"].shape == (T, N, 3) and np.all(run["min_eig"] >= 1 - 1e-12)
            V = np.eye(3) + sum(np.outer(x, x) for x in contexts[run["query"][run["offered"][:, 1]]])
            assert run["min_eig"][-1, 1] == pytest.approx(np.linalg.eigvalsh(V)[0])


def test_empty_queue_does_not_swallow_an_arrival():
    """Section 2.5: with U = 0 a dummy would depart; the set recursion keeps the arrival."""
    A, U, utility = np.array([1, 1, 0, 0, 1, 0], bool), np.zeros(6), np.zeros((6, 2))
    run = ref.simulate(A, U, utility, 1, ref.Optimal(utility, 1))
    assert run["queue"].tolist() == [0, 1, 1, 0, 0, 1] and run["idle"].tolist() == [True, False, False, True, True, False]
    assert run["sojourn"].tolist() == [0, 1, 1, 0, 0, 1] and run["query"].tolist() == [-1, 0, 1, -1, -1, 4]


@pytest.mark.parametrize("K", [1, 2])
def test_forced_exploration(K):
    """Only after an arrival with coin <= eta; the newest query; round robin; the pointer moves nowhere else."""
    T, N = 200, 4
    _, contexts, A, U, coin, z, utility = fig2(20 + K, T=T, N=N, K=K)
    for policy, threshold in [
        (learner(contexts, coin, z, N, K, c1=2.0), lambda t: min(1, 2 / math.sqrt(t + 1))),
        (ref.cqb_eps(contexts, N, K, 0.3, 1.0, 20, T, coin, z), lambda t: 1 if t < 20 else T**-0.5),
    ]:
        run = ref.simulate(A, U, utility, K, policy)
        order, count = ref.combos(N, K), 0
        for t in range(T):
            explore = t > 0 and A[t - 1] and coin[t] <= threshold(t)
            assert run["explored"][t] == explore
            if explore:
                assert run["query"][t] == t - 1
                assert tuple(np.flatnonzero(run["offered"][t])) == order[count % len(order)]
                count += 1
        assert count > 10
    never = ref.simulate(A, U, utility, K, learner(contexts, coin, z, N, K, c1=0.0))
    assert not never["explored"].any()


def test_first_thompson_rounds_with_kappa_zero():
    """Section 3.4: all estimates are 0 at the start, so the oldest query and the lowest arms are served."""
    T, N, K = 6, 3, 2
    contexts = np.random.default_rng(0).normal(size=(T, 2))
    utility = np.full((T, N), -50.0)  # Nobody leaves, so theta moves only by retrials.
    coin, z = np.ones(T), np.zeros((T, N, 2, 9))
    run = ref.simulate(np.ones(T, bool), np.full(T, 0.5), utility, K, learner(contexts, coin, z, N, K, kappa=0.0, c1=0.0))
    assert run["query"][1] == 0 and tuple(np.flatnonzero(run["offered"][1])) == (0, 1)
    assert run["retrial"].sum() == T - 1 and run["queue"].tolist() == list(range(T))


def test_disjoint_is_the_shared_model_on_kronecker_features():
    """Remark 7 for greedy policies (kappa = 0) with the joint estimate: the same trajectory."""
    T, N, K = 80, 3, 2
    Theta, contexts, A, U, coin, z, _ = fig2(31, T=T, N=N, K=K)
    F = np.einsum("td,jn->tjnd", contexts, np.eye(N)).reshape(T, N, N * 3)
    disjoint = ref.run_disjoint(A, contexts, U, Theta, K, learner(contexts, coin, z, N, K, kappa=0.0, mle="joint"))
    flat = np.zeros((T, N * 3, 9))
    shared = ref.run_shared(A, F, U, Theta.ravel(), K, ref.acqb(F, N, K, 0.0, 1.0, 1.0, coin, flat))
    np.testing.assert_array_equal(disjoint["query"], shared["query"])
    np.testing.assert_array_equal(disjoint["offered"], shared["offered"])
    np.testing.assert_allclose(disjoint["theta"].reshape(T, -1), shared["theta"], atol=1e-8)
    assert shared["radius"].tolist() == [0.0] * T


def test_shared_radius_counts_rounds():
    T, N, d = 40, 3, 2
    rng = np.random.default_rng(8)
    F, theta = rng.uniform(-1, 1, (T, N, d)) / math.sqrt(d), np.array([0.5, -0.5])
    A, U, coin, z = rng.random(T) < 0.4, rng.random(T), rng.random(T), rng.standard_normal((T, d, 1))
    run = ref.run_shared(A, F, U, theta, 1, ref.acqb(F, N, 1, 1.0, 1.0, 1.0, coin, z))
    np.testing.assert_allclose(run["radius"], [ref.alpha_shared(t, d, 1, 1.0, 1.0) for t in range(T)])
    assert run["theta"].shape == (T, d) and run["min_eig"].shape == (T,)
    # Lemma 34: |x| <= 1, lam0 >= 1.
    V, total = np.eye(d), 0.0
    for t in np.flatnonzero(~run["idle"]):
        x = F[run["query"][t], np.flatnonzero(run["offered"][t])[0]]
        total += math.sqrt(x @ np.linalg.solve(V, x))
        V += np.outer(x, x)
        assert total <= ref.elliptic_bound(t + 1, d, 1, 1.0)


def test_joint_and_block_estimates_differ_a_little():
    """Section 3.3: about .03 on average, a tenth at most; the last arms served are stationary in both."""
    _, contexts, A, U, coin, z, utility = fig2(41, T=120, N=4, K=2)
    block = ref.simulate(A, U, utility, 2, learner(contexts, coin, z, 4, 2))
    served = ~block["idle"]
    X, offered, chosen = contexts[block["query"][served]], block["offered"][served], block["chosen"][served]
    joint = ref.fit_disjoint(X, offered, chosen, 1.0)
    gap = np.abs(block["theta"][-1] - joint).max()
    assert 1e-6 < gap < 0.2


def test_mixed_number_of_answers():
    T, N = 100, 4
    _, contexts, A, U, coin, z, utility = fig2(51, T=T, N=N, K=2)
    size = np.random.default_rng(1).random(T)
    run = {}
    for explore_size in ("full", "own", "first"):
        policy = learner(contexts, coin, z, N, 2, p_k2=0.3, size=size, explore_size=explore_size)
        run = ref.simulate(A, U, utility, 2, policy)
        count = run["offered"].sum(1)
        free = ~run["idle"] & ~run["explored"] if explore_size == "full" else ~run["idle"]
        np.testing.assert_array_equal(count[free], np.where(size < 0.3, 2, 1)[free])
        assert np.all(count[run["explored"]] == 2) or explore_size != "full"
        pulls = np.vstack([np.zeros((1, N)), run["offered"].cumsum(0)[:-1]])
        np.testing.assert_allclose(run["radius"], [ref.alpha_disjoint(n, 3, 2, 0.3, 1.0) for n in pulls])
    for p, K in [(0.0, 1), (1.0, 2)]:
        policy = learner(contexts, coin, z, N, 2, p_k2=p, size=size, explore_size="own", c1=0.0)
        assert set(ref.simulate(A, U, utility, 2, policy)["offered"].sum(1)) <= {0, K}


def test_pool_environment():
    rng = np.random.default_rng(12)
    P, N, T, d = 6, 4, 120, 3
    accept, _ = ref.depart_utility(rng.random((P, N)), rng.random((P, N)), 0.1)
    features = rng.normal(size=(P, d)) / 2
    prompt, A, U, coin = rng.integers(P, size=T), rng.random(T) < 0.6, rng.random(T), rng.random(T)
    queries, utility = ref.pool_queries(prompt, features, accept)
    np.testing.assert_allclose(expit(utility), accept[prompt], atol=1e-14)
    z = rng.standard_normal((T, N, d, 1))
    runs = [ref.run_pool(A, prompt, U, accept, 1, learner(queries, coin, z, N, 1), clear) for clear in (False, True)]
    # Prompts are all that a context-based policy sees: which copy leaves matters to the sojourn alone.
    np.testing.assert_array_equal(runs[0]["queue"], runs[1]["queue"])
    np.testing.assert_array_equal(runs[0]["offered"], runs[1]["offered"])
    served = ~runs[0]["idle"]
    np.testing.assert_array_equal(prompt[runs[0]["query"][served]], prompt[runs[1]["query"][served]])
    assert runs[0]["sojourn"].sum() <= runs[1]["sojourn"].sum()
    # Section 4.7: pi* sees only ties at K = 1, so it serves the oldest query at rate .99.
    best = ref.run_pool(A, prompt, U, accept, 1, ref.Optimal(utility, 1))
    assert all(best["query"][t] == best["states"][t][0] for t in np.flatnonzero(~best["idle"]))
    np.testing.assert_array_equal(best["departure"][~best["idle"]], (U <= 0.99)[~best["idle"]])


def test_bandits_by_hand():
    policy = ref.QueueBandit(3, np.ones(5), np.array([0.0, 0.34, 0.99, 1.0, 0.5]))
    assert policy.act(1, [0, 1], True) == (0, (1,), True)  # 9 ln(2)^2 / 2 > 1: explores whatever the uniform.
    assert policy.act(3, [0, 1], True) == (0, (2,), True)
    policy.explore = np.full(5000, 1.0)
    assert policy.act(4999, [7, 9], True) == (0, (0,), False)  # Unpulled arms first, lowest index.
    for S, position in [((0,), 0), ((0,), 1), ((1,), 0), ((2,), 1)]:
        policy.update(0, 7, S, position, False)
    width = math.log(5000) / math.sqrt(2)
    np.testing.assert_allclose(policy.index(4999), [0.5 + width / math.sqrt(2), 1 + width, width])
    seen = []
    sampler = ref.QueueBandit(3, np.ones(5), np.zeros(5), lambda t, a, b: seen.append((a, b)) or np.array([0, 1, 1]))
    sampler.pulls, sampler.wins = np.array([2, 1, 1]), np.array([1, 1, 0])
    assert np.argmax(sampler.index(0)) == 1
    np.testing.assert_array_equal(seen[0], [[2, 2, 1], [2, 1, 2]])


# --- 2.4 Policy-switching queues -----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2])
def test_policy_switching_queues(K):
    nonzero = 0
    for seed in range(4):
        T, N = 110, 4
        _, contexts, A, U, coin, z, utility = fig2(60 + seed, T=T, N=N, K=K)
        rng = np.random.default_rng(seed)
        policy = (
            ref.Random(K, rng.random(T), rng.random((T, N))) if seed % 2 else learner(contexts, coin, z, N, K, kappa=1.0)
        )
        Q, D, run = ref.switching_queues(A, U, utility, K, policy)
        psi = ref.switching_effects(Q)
        assert set(np.unique(psi)) <= {-1, 0, 1}
        assert ref.sign_rule_violations(Q, D) == []
        optimal = ref.simulate(A, U, utility, K, ref.Optimal(utility, K))
        for row, reference in ((0, optimal), (T, run)):
            np.testing.assert_array_equal(Q[row], [*reference["queue"], reference["queue_after"][-1]])
            np.testing.assert_array_equal(D[row], reference["departure"])
        for t in range(T + 1):  # Telescoping: only the first t switches matter to the length before round t.
            assert psi[:t, t].sum() == Q[T, t] - Q[0, t]
            assert not psi[t:, t].any()
        nonzero += np.count_nonzero(psi)
    assert nonzero > 30


def test_sign_rule_check_finds_violations():
    Q, D = np.zeros((3, 3), int), np.zeros((3, 2), int)
    assert ref.sign_rule_violations(Q, D) == []
    Q[1, 2] = 1  # psi(1, 3) = 1 although both failed in round 1; psi(2, 3) = -1 is allowed.
    assert ref.sign_rule_violations(Q, D) == [(1, 2, 1)]
    D[0, 0] = 1
    assert ref.sign_rule_violations(Q, D) == []
    D[0, 0], D[1, 0] = 0, 1
    assert (1, 0, "departure") in ref.sign_rule_violations(Q, D)


# --- 7 Theory ------------------------------------------------------------------------------------------------------

SMALL = ref.Theory(d=5, K=1, lam=0.7, eps=0.03, kappa=5.09)


def test_expected_explorations():
    for T, lam, c1, expected, unit in [
        (1000, 0.7, 1, 42.56, 0.01),
        (5000, 0.7, 1, 97.28, 0.01),
        (1000, 0.7, 2, 84.7, 0.1),
        (5000, 0.9, 10, 1181.5, 0.1),
    ]:
        assert ref.expected_explorations(T, lam, c1) == pytest.approx(expected, abs=0.51 * unit)
    assert ref.expected_explorations_phase(1000, 0.7, 100) == pytest.approx(89, abs=0.5)


def test_exploration_count_of_runs():
    """Its mean over runs is sum lam eta, the conditional mean given the arrivals is sum A(t-1) eta(t-1)."""
    rng, counts, T = np.random.default_rng(13), [], 400
    for _ in range(400):
        A, coin = rng.random(T) < 0.7, rng.random(T)
        counts.append(sum(A[t - 1] and coin[t] <= ref.eta(t, 1.0) for t in range(1, T)))
    expected = ref.expected_explorations(T, 0.7, 1.0)
    assert abs(np.mean(counts) - expected) < 5 * np.std(counts) / math.sqrt(len(counts))


def test_bad_round_phase():
    """Section 7 [M]: t = 1e6 gives M ~ 1e13, tau ~ 1e27, omega ~ 2e29; Condition 20 first holds near 1e32."""
    t = 10**6
    tau = ref.bad_rounds(t, SMALL)
    M = ref.explorations_needed(tau, t, SMALL)
    assert 12.5 < math.log10(M) < 13.6 and 26.5 < math.log10(tau) < 27.6 and 28.5 < math.log10(ref.omega(t, SMALL)) < 29.8
    assert tau >= ref.rounds_needed(M, t, SMALL)
    below = int(tau * (1 - 1e-9))
    assert below < ref.rounds_needed(ref.explorations_needed(below, t, SMALL), t, SMALL)
    assert ref.omega(t, SMALL) == 4 * tau / 0.03
    assert not ref.condition_20(10**30, SMALL) and ref.condition_20(10**33, SMALL)
    easy = ref.Theory(d=1, K=1, lam=1.0, eps=0.9, kappa=1e-4, lam0=1e-6, c1=10.0, c2=1e-3)
    tau = ref.bad_rounds(100, easy)  # A case in the reach of enumeration.

    def holds(u):
        return 2 * ref.eta(u, 10.0) < 0.9 and u >= ref.rounds_needed(ref.explorations_needed(u, 100, easy), 100, easy)

    assert tau == next(u for u in itertools.count() if holds(u))


def test_bound_sequences():
    """E_i falls, P_i rises, both are in (0, 1]; nu falls; the product bounds the sum of products (Lemma 27)."""
    p = ref.Theory(d=2, K=2, lam=0.5, eps=0.9, kappa=1e-4, lam0=4.0, sigma2=0.5)
    t, w = 600, 100.0
    E = [ref.gap_bound(i, t, p) for i in range(1, t)]
    P = [ref.survival_bound(i, t, w, p) for i in range(1, t)]
    assert np.all(np.diff(E) <= 1e-15) and np.all(np.diff(P) >= -1e-15) and min(E + P) > 0 and max(E + P) <= 1
    assert E[-1] < 1 and P[0] < 1 and P[-1] == 1
    assert np.dot(E, P) <= ref.queue_regret_bound(t, p, w) == pytest.approx(sum(E) * sum(P) / (t - 1))
    assert np.all(np.diff([ref.nu(l, p) for l in range(1, 300)]) < 0)
    assert ref.nu(1, p) == pytest.approx(1 / 4 + 3 / 4)  # m = 0: 1/lam0 + (1 + d)/lam0.
    level, probability = ref.min_eig_bound(400, p)
    assert level == pytest.approx(4 + 0.5 * 0.5 * 20 / 4) and probability < 1


def test_remaining_bounds():
    assert ref.queue_tail_bound(0, 0.1) == pytest.approx(1700) and ref.queue_tail_bound(40, 0.1) < 1700 * 0.14
    assert ref.extra_job_bound(5, 100, 0.03) == 1 and ref.extra_job_bound(1, 0, 0.03) == 1
    assert ref.extra_job_bound(1, 1000, 0.2) == pytest.approx(2 * math.exp(-(200**2) / 8000))
    assert 1 / (4 * math.sqrt(math.e * math.pi)) == pytest.approx(0.0855, abs=5e-5)
    assert 16 * math.sqrt(math.e * math.pi) < 47
    values = [ref.routing_regret_bound(t, SMALL) / math.sqrt(t) for t in (10**4, 10**8)]
    assert 1 < values[1] / values[0] < 8  # sqrt(t) up to logarithms.
    M = ref.num_samples(2)
    p = SMALL._replace(K=2)
    expected = ref.alpha_shared(50, 5, 2, 5.09, 1.0) * min(
        math.sqrt(30 * math.log(M * 99)), math.sqrt(2 * math.log(2 * M)) + math.sqrt(6 * math.log(2 * 50 * 99))
    )
    assert ref.beta_radius(50, 99, p) == pytest.approx(expected)
    assert ref.round_gap_bound(51, 99, 4.0, p) == pytest.approx((ref.alpha_shared(50, 5, 2, 5.09, 1.0) + 48 * expected) / 2)


# --- The fast loop and section 6.1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("K, N, lam0", [(1, 5, 1.0), (2, 5, 1.0), (2, 4, 0.1), (3, 5, 1.0), (1, 3, 0.1)])
def test_fast_loop_follows_the_reference(K, N, lam0):
    T = 150
    Theta, contexts, A, U, coin, z, utility = fig2(70 + K, T=T, N=N, d=5, K=K)
    fast = ref.acqb_fast(Theta, contexts, A, U, coin, z, K, 0.3, lam0, 1.0)
    slow = ref.simulate(A, U, utility, K, learner(contexts, coin, z, N, K, lam0=lam0))
    for name in ("queue", "departure", "explored", "query"):
        np.testing.assert_array_equal(fast[name], slow[name], err_msg=name)
    np.testing.assert_allclose(fast["routing_gap"], slow["routing_gap"], atol=1e-10)
    np.testing.assert_allclose(fast["joint_gap"], slow["joint_gap"], atol=1e-10)
    np.testing.assert_allclose(fast["theta"], slow["theta"][-1], atol=1e-6)
    for t in np.flatnonzero(~slow["idle"]):
        assert tuple(fast["offered"][t]) == tuple(np.flatnonzero(slow["offered"][t]))


def test_instances_have_slack():
    Theta, contexts = ref.draw_instance(np.random.default_rng(5), 500, 5, 5, 1, 0.7, 0.03)
    _, rate, _ = ref.oracle_table(ref.disjoint_utilities(Theta, contexts), 1)
    assert rate.min() >= 0.73 and np.abs(contexts).max() <= 1 and np.abs(Theta).max() <= 1
    with pytest.raises(ValueError, match="slackness"):
        ref.draw_instance(np.random.default_rng(5), 10, 3, 2, 1, 0.9, 0.09, tries=2)


def check_table(K, N, runs, regret, queues, seed, spread):
    """Final routing regret and queue at rounds 250, 500 and 1000 of the paper against a row of the table of 6.1."""
    result = [ref.acqb_loop(np.random.default_rng([seed, r]), 1000, N, 5, K, 0.7, 0.03, **FAST) for r in range(runs)]
    final = np.array([r["routing_gap"].sum() for r in result])
    assert abs(final.mean() - regret) < 4 * math.hypot(final.std(ddof=1) / math.sqrt(runs), spread)
    for t, expected in zip((249, 499, 999), queues):
        q = np.array([r["queue"][t] for r in result])
        assert abs(q.mean() - expected) < 4 * math.hypot(q.std(ddof=1) / math.sqrt(runs), 0.15 * expected)


def test_table_two_answers():
    check_table(2, 5, 8, 15.2, (2.5, 2.4, 1.9), 0, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "K, N, regret, queues", [(1, 5, 55.7, (10.0, 8.0, 4.3)), (1, 3, 29.9, (4.8, 4.0, 2.9)), (2, 10, 37.7, (3.2, 2.4, 1.9))]
)
def test_table(K, N, regret, queues):
    check_table(K, N, 48, regret, queues, 1, 1.0)


def test_table_random_and_optimal():
    """Section 6.1, K = 1, N = 5, eps = .03: the queue of Random grows, that of Optimal stays near 2."""
    final, random_queue, optimal_queue = [], [], []
    for r in range(12):
        rng = np.random.default_rng([2, r])
        Theta, contexts, A, U, _, _ = ref.draw_fig2(rng, 1000, 5, 5, 1, 0.7, 0.03)
        utility = ref.disjoint_utilities(Theta, contexts)
        run = ref.simulate(A, U, utility, 1, ref.Random(1, rng.random(1000), rng.random((1000, 5))))
        final.append(run["routing_gap"].sum())
        random_queue.append(run["queue"][-1])
        optimal_queue.append(ref.simulate(A, U, utility, 1, ref.Optimal(utility, 1))["queue"][100:].mean())
    assert abs(np.mean(final) - 250) < 5 * np.std(final, ddof=1) / math.sqrt(12)
    assert abs(np.mean(random_queue) - 162) < 5 * np.std(random_queue, ddof=1) / math.sqrt(12)
    assert 1.5 < np.mean(optimal_queue) < 3.5
