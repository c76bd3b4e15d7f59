"""The NumPy reference of C2MAB-V against the worked examples of `spec/c2mabv.md` and against brute force.

Section numbers are those of the specification. No simulator code is used here.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from reference import combinatorial as ref
from scipy.special import ndtr, ndtri

MU, COST = np.array(ref.SCIQ9_MU), np.array(ref.SCIQ9_PRICE) / 0.12
TIED = {"w": [0.9, 0.5, 0.8, 0.3, 0.6], "c": [0.7, 0.2, 0.6, 0.1, 0.4], "size": 3, "budget": 1.1, "exact_size": True}
FRACTIONS, FRACTIONS_MU = np.array([0.3, 0.6, 0.5, 0.6]), np.array([0.5, 0.2, 0.8, 0.4])


def distribution_of(**masses):
    """{frozenset: probability} from keys like s02 for the set {0, 2}."""
    return {frozenset(int(d) for d in name[1:]): mass for name, mass in masses.items()}


def assert_same_distribution(distribution, expected, tolerance=1e-12):
    assert abs(sum(distribution.values()) - 1) < 1e-12
    for members in set(distribution) | set(expected):
        assert distribution.get(members, 0.0) == pytest.approx(expected.get(members, 0.0), abs=tolerance), members


def random_instance(generator, kind, K):
    """Weights and costs of one of the four kinds of section 4.1, with a budget that may be infeasible."""
    w, c = generator.random(K), generator.random(K)
    if kind == "duplicated":
        w, c = np.round(w * 4) / 4, np.round(c * 4) / 4
    elif kind == "half-zero":
        c[::2] = 0.0
    elif kind == "tiny":
        c *= 1e-4
    return w, c, generator.uniform(0.1, 1.0) * c.sum()


# --- Rewards -----------------------------------------------------------------------------------------------------


def test_set_rewards_and_the_empty_set():
    picked = ref.mask_of([0, 2], 3)
    mu = [0.5, 0.9, 0.4]
    assert ref.set_reward("AWC", picked, mu) == pytest.approx(0.7)  # 1 - .5 * .6
    assert ref.set_reward("SUC", picked, mu) == pytest.approx(0.9)
    assert ref.set_reward("AIC", picked, mu) == pytest.approx(0.2)
    none = ref.mask_of([], 3)
    assert [ref.set_reward(r, none, mu) for r in ref.REWARDS] == [0.0, 0.0, 1.0]
    assert [ref.realised_reward(r, none, mu) for r in ref.REWARDS] == [0.0, 0.0, 1.0]
    assert [ref.realised_reward(r, picked, [1.0, 1.0, 0.0]) for r in ref.REWARDS] == [1.0, 1.0, 0.0]


def test_relaxed_reward_is_the_multilinear_extension_for_any_win_and_sum_up():
    generator = np.random.default_rng(0)
    for _ in range(5):
        z, mu = generator.random(5), generator.random(5)
        for reward in ("AWC", "SUC"):
            assert ref.relaxed_reward(reward, z, mu) == pytest.approx(ref.multilinear(reward, z, mu), abs=1e-12)
        assert ref.relaxed_reward("AIC", z, mu) <= ref.multilinear("AIC", z, mu) + 1e-12
        for reward, bits in itertools.product(ref.REWARDS, itertools.product([0.0, 1.0], repeat=5)):
            at_set = ref.set_reward(reward, np.array(bits, bool), mu)
            assert ref.relaxed_reward(reward, bits, mu) == pytest.approx(at_set, abs=1e-12)


def test_graded_means_are_the_stand_in_means():
    np.testing.assert_allclose(ref.graded_means(ref.SCIQ9_LEVELS), MU, atol=1e-12)


def test_four_cheapest_copies_satisfy_the_reported_bounds():
    everything = np.ones(4, bool)  # Section 6.2: .0926 < .18, .096 < .10, 3.3e-7 < 1e-4.
    values = [ref.set_reward(r, everything, [0.024] * 4) for r in ref.REWARDS]
    np.testing.assert_allclose(values, [0.0926, 0.096, 3.3e-7], rtol=6e-3)


# --- Confidence bounds -------------------------------------------------------------------------------------------


def test_radius_by_hand():
    # K=9, t=1, delta=1e-4, n=1: ln(2 pi^2 9 / 3e-4) = ln 592176.264 = 13.291560; sqrt(13.291560 / 2) = 2.577941.
    assert ref.confidence_radius(1, 1, 9, 1e-4) == pytest.approx(2.577941, abs=1e-6)
    # K=2, t=10, delta=.1, n=50: ln(2 pi^2 2000 / .3) = ln 131594.725 = 11.787482; sqrt(. / 100) = .343329.
    assert ref.confidence_radius(50, 10, 2, 0.1) == pytest.approx(0.343329, abs=1e-6)
    assert ref.reward_ucb(0.4, 50, 10, 2, 0.1, 0.3) == pytest.approx(0.4 + 0.3 * 0.343329, abs=1e-6)
    assert ref.cost_lcb(0.4, 50, 10, 2, 0.1, 1.0) == pytest.approx(0.4 - 0.343329, abs=1e-6)
    assert ref.reward_ucb(0.9, 50, 10, 2, 0.1, 1.0) == 1.0 and ref.cost_lcb(0.1, 50, 10, 2, 0.1, 1.0) == 0.0


def test_unseen_models_start_at_one_and_zero():
    ucb, lcb = ref.bounds(ref.initial_statistics(3), 1, 3, 0.1, 0.3, 0.01)
    assert ucb.tolist() == [1.0, 1.0, 1.0] and lcb.tolist() == [0.0, 0.0, 0.0]
    warm = ref.initial_statistics(2, prior=([4, 0], [0.5, 0.5], [0.2, 0.2]))
    ucb, lcb = ref.bounds(warm, 1, 2, 1.0, 0.1, 0.1)
    radius = math.sqrt(math.log(4 * math.pi**2 / 3) / 8)
    np.testing.assert_allclose(ucb, [0.5 + 0.1 * radius, 1.0])
    np.testing.assert_allclose(lcb, [0.2 - 0.1 * radius, 0.0])


def test_index_conditioning():
    w = ref.conditioned(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(w, [0.999, 0.49995, 1e-6])
    assert ref.conditioned(np.array([1.0]), np.array([0.7]), cap=1.0, noise=0.0).tolist() == [1.0]


# --- Section 4.1: the LP -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["highs", "vertices", "fill"])
def test_lp_worked_examples(solver):
    sum_up = ref.relaxed_optimum("SUC", MU, COST, 4, 0.5, solver=solver)
    np.testing.assert_allclose(sum_up.z, [0, 1, 0, 1, 0.733333, 1, 0, 0.266667, 0], atol=1e-6)
    assert ref.relaxed_reward("SUC", sum_up.z, MU) == pytest.approx(1.0442667, abs=1e-7)
    assert sum_up.theta == pytest.approx(0.266667, abs=1e-6) and sum_up.feasible
    assert np.flatnonzero(sum_up.dear).tolist() == [1, 3, 5, 7] and COST[sum_up.dear].sum() == pytest.approx(0.775)
    assert np.flatnonzero(sum_up.cheap).tolist() == [1, 3, 4, 5] and COST[sum_up.cheap].sum() == pytest.approx(0.4)

    all_in = ref.relaxed_optimum("AIC", MU, COST, 4, 0.3, solver=solver)
    np.testing.assert_allclose(all_in.z, [0.8, 0.2, 0, 1, 1, 1, 0, 0, 0], atol=1e-6)
    assert all_in.z @ np.log(MU) == pytest.approx(-7.7647128, abs=1e-7)
    assert ref.relaxed_reward("AIC", all_in.z, MU) == pytest.approx(4.244515e-4, abs=1e-10)
    if solver != "vertices":
        assert sum_up.shadow_price == pytest.approx(0.4426667, abs=1e-7)
        assert all_in.shadow_price == pytest.approx(20.870748, abs=1e-6)
        lam = sum_up.shadow_price  # nu* = .151556, where Llama2-7B and Mixtral tie.
        np.testing.assert_allclose((MU - lam * COST)[[4, 7]], 0.151556, atol=1e-6)


@pytest.mark.parametrize("solver", ["highs", "vertices", "fill"])
def test_degenerate_lp(solver):
    found = ref.linear_program(**TIED, method=solver)
    assert found.z @ np.array(TIED["w"]) == pytest.approx(1.8, abs=1e-9)
    for z in ([1, 1, 0.2, 0.8, 0], [0.5, 1, 0.5, 0.5, 0.5]):
        assert np.dot(z, TIED["w"]) == pytest.approx(1.8) and np.dot(z, TIED["c"]) == pytest.approx(1.1)
    if solver == "fill":  # The fills mix two sets that differ in two models.
        np.testing.assert_allclose(found.z, [0.5, 1, 0.5, 0.5, 0.5], atol=1e-12)
        np.testing.assert_allclose(found.theta * found.dear + (1 - found.theta) * found.cheap, found.z)


@pytest.mark.parametrize("kind", ["uniform", "duplicated", "half-zero", "tiny"])
@pytest.mark.parametrize("exact_size", [True, False])
def test_three_lp_solvers_agree(kind, exact_size):
    generator = np.random.default_rng(1)
    infeasible = 0
    for _ in range(40):
        w, c, budget = random_instance(generator, kind, 9)
        available = generator.random(9) < 0.9
        found = {m: ref.linear_program(w, c, 4, budget, exact_size, available, m) for m in ("highs", "vertices", "fill")}
        size = min(4, available.sum())
        for answer in found.values():
            assert answer.feasible == found["highs"].feasible
            assert answer.z @ w == pytest.approx(found["highs"].z @ w, abs=1e-8)
            assert np.all(answer.z[~available] == 0) and np.all((answer.z >= 0) & (answer.z <= 1))
            total = answer.z.sum()
            assert total == pytest.approx(size, abs=1e-8) if exact_size else total <= size + 1e-8
            if answer.feasible:
                assert answer.z @ c <= budget + 1e-8
            else:
                assert answer.z.tolist() == ref.cheapest(w, c, size, available).astype(float).tolist()
            if answer.dear is not None and answer.feasible:
                mixed = answer.theta * answer.dear + (1 - answer.theta) * answer.cheap
                np.testing.assert_allclose(mixed, answer.z, atol=1e-9)
                assert c[answer.cheap].sum() <= budget + 1e-8
        infeasible += not found["highs"].feasible
        if kind == "uniform" and found["highs"].feasible:
            assert found["fill"].shadow_price == pytest.approx(found["highs"].shadow_price, abs=1e-7)
    assert (infeasible > 0) == (exact_size and kind != "half-zero")


def test_infeasible_lp_takes_the_cheapest_with_ties_to_the_larger_weight():
    found = ref.linear_program([0.1, 0.5, 0.9, 0.5], [0.3, 0.4, 0.4, 0.4], 2, 0.5, True)
    assert not found.feasible and found.z.tolist() == [1, 0, 1, 0]
    found = ref.linear_program([0.1, 0.5, 0.5, 0.5], [0.3, 0.4, 0.4, 0.4], 2, 0.5, True)
    assert found.z.tolist() == [1, 1, 0, 0]


def test_shadow_price_is_the_derivative_in_the_budget():
    values = [ref.relaxed_optimum("SUC", MU, COST, 4, 0.5 + h).z @ MU for h in (-1e-3, 1e-3)]
    assert (values[1] - values[0]) / 2e-3 == pytest.approx(0.4426667, abs=1e-6)


def test_partition_lp_with_one_group_is_the_plain_lp():
    one = ref.partition_linear_program(MU, COST, np.ones((1, 9)), [4], 0.5, True)
    np.testing.assert_allclose(one, ref.relaxed_optimum("SUC", MU, COST, 4, 0.5).z, atol=1e-9)
    groups = np.array([[1, 1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1]])
    split = ref.partition_linear_program(MU, COST, groups, [2, 1], 10.0, True)
    assert np.flatnonzero(split).tolist() == [1, 2, 8]  # Without a budget: the best of each group.


# --- Section 4.2: any win ----------------------------------------------------------------------------------------


def test_number_of_vertex_patterns():
    sizes = [
        sum(len(ref.subsets(9, n)) for n in range(5)),
        len(ref.one_fractional(9, 4)[1]),
        len(ref.two_fractional(9, 4)[1]),
    ]
    assert sizes == [256, 837, 1260] and sum(sizes) == 2353
    assert [math.comb(9, 4), sum(math.comb(16, n) for n in range(9)), math.comb(25, 8)] == [126, 39_203, 1_081_575]
    assert sum(math.comb(16, n) * (16 - n) for n in range(8)) == 262_144
    assert math.comb(16, 7) * math.comb(9, 2) == 411_840


def test_any_win_worked_example():
    exact = ref.relaxed_optimum("AWC", MU, COST, 4, 0.45)
    np.testing.assert_allclose(exact.z, [0, 1, 0, 1, 0.866667, 1, 0, 0.133333, 0], atol=1e-6)
    assert ref.relaxed_reward("AWC", exact.z, MU) == pytest.approx(0.6938281, abs=1e-7)
    greedy = ref.any_win_greedy(MU, COST, 4, 0.45, steps=20)
    np.testing.assert_allclose(greedy.z, exact.z, atol=1e-9)


def test_log_lp_has_no_ratio_guarantee():
    w, c = [0.999, 0.49], [1.0, 0.1]
    log_lp, exact = ref.any_win_log(w, c, 2, 0.1), ref.any_win_exact(w, c, 2, 0.1)
    np.testing.assert_allclose(log_lp.z, [0.1, 0], atol=1e-12)
    assert ref.relaxed_reward("AWC", log_lp.z, w) == pytest.approx(0.0999)
    assert ref.relaxed_reward("AWC", exact.z, w) == pytest.approx(0.49)
    ratio = ref.relaxed_reward("AWC", log_lp.z, w) / 0.49
    assert ratio == pytest.approx(0.204, abs=5e-4)
    # Here one polish step does reach the optimum.
    np.testing.assert_allclose(ref.any_win_polish(log_lp.z, w, c, 2, 0.1, steps=1).z, [0, 1], atol=1e-12)


def test_any_win_solvers_bracket_the_exact_value():
    generator, ratios = np.random.default_rng(2), []
    for _ in range(25):
        w, c = 0.998 * generator.random(9), generator.random(9)
        budget = generator.uniform(0.1, 2.0)

        def value(z, w=w):
            return ref.relaxed_reward("AWC", z, w)

        exact = value(ref.any_win_exact(w, c, 4, budget).z)
        log_lp = ref.any_win_log(w, c, 4, budget)
        bound = 1 - math.exp(np.log1p(-w) @ log_lp.z)
        greedy = ref.any_win_greedy(w, c, 4, budget)
        polished = ref.any_win_polish(greedy.z, w, c, 4, budget)
        best = value(ref.any_win_best(w, c, 4, budget).z)
        integer, _ = ref.integer_optimum("AWC", w, c, 4, budget)
        assert ref.set_reward("AWC", integer, w) <= exact + 1e-12 <= bound + 1e-9
        assert value(log_lp.z) <= best + 1e-12 and value(greedy.z) <= best + 1e-12 <= exact + 1e-9
        assert value(polished.z) >= value(greedy.z) - 1e-9
        assert min(value(greedy.z), best) >= (1 - 1 / math.e) * exact
        ratios.append(best / exact)
    assert np.mean(ratios) > 0.995  # Section 4.2: .9996 on average.


def test_any_win_exact_beats_random_points_and_local_search():
    generator = np.random.default_rng(3)
    for _ in range(4):
        w, c, budget = 0.998 * generator.random(6), generator.random(6), generator.uniform(0.2, 1.5)
        exact = ref.relaxed_reward("AWC", ref.any_win_exact(w, c, 3, budget).z, w)
        points = generator.random((4000, 6)) ** generator.uniform(0.2, 3, (4000, 1))
        points /= np.maximum(1, np.maximum(points.sum(axis=1) / 3, points @ c / budget))[:, None]
        assert (1 - np.prod(1 - w * points, axis=1)).max() <= exact + 1e-12
        climbed = ref.gradient_any_win(w, c, 3, budget, steps=20)
        assert exact / 2 <= ref.relaxed_reward("AWC", climbed, w) <= exact + 1e-9


def test_any_win_keeps_its_digits_when_all_indices_are_saturated():
    tie = np.array([0.3, 0.1, 0.9, 0.2, 0.5, 0.4, 0.8, 0.7, 0.6])
    w = ref.conditioned(np.ones(9), tie)
    z = ref.any_win_exact(w, np.zeros(9), 4, 0.45).z
    assert np.flatnonzero(z).tolist() == [0, 1, 3, 5]  # The four smallest uniforms.


# --- Section 4.3: integer program ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reward,members,value,cost",
    [("AWC", [1, 3, 4, 5], 0.6879891, 0.4), ("SUC", [1, 3, 4, 5], 1.0, 0.4), ("AIC", [0, 3, 4, 5], 2.518992e-4, 0.275)],
)
def test_integer_optima(reward, members, value, cost):
    best, feasible = ref.integer_optimum(reward, MU, COST, 4, ref.SCIQ9_BUDGET[reward])
    assert feasible and np.flatnonzero(best).tolist() == members
    assert ref.set_reward(reward, best, MU) == pytest.approx(value, rel=1e-6)
    assert COST[best].sum() == pytest.approx(cost)
    if reward == "AIC":
        assert np.sum(ref.subsets(9, 4) @ COST <= 0.3) == 1


def test_integer_optimum_without_cardinality_and_infeasible():
    best, _ = ref.integer_optimum("SUC", MU, COST, 4, 1.0, cardinality=False)
    assert best.sum() > 4
    best, _ = ref.integer_optimum("AIC", MU, COST, 4, 1.0, cardinality=False)
    assert np.flatnonzero(best).tolist() == [8]  # A single model: every other factor would lower the product.
    best, feasible = ref.integer_optimum("SUC", MU, COST, 4, 0.1)
    assert not feasible and np.flatnonzero(best).tolist() == [0, 3, 4, 5]


def test_offline_shift_selects_one_model():
    best, _ = ref.integer_optimum("AWC", ref.SCIQ9_MU_OFFLINE, COST, 4, 0.45)
    assert np.flatnonzero(best).tolist() == [7]  # Section 6.2.
    assert np.flatnonzero(ref.offline_set("AWC", np.array([ref.SCIQ9_MU_OFFLINE] * 3), COST, 4, 0.45)).tolist() == [7]


# --- Section 4.4: projection -------------------------------------------------------------------------------------


def brute_projection(y, c, size, budget, exact_size):
    """Nearest of all points that are stationary on some choice of bounds and tight rows and feasible."""
    K, best, distance = len(y), None, math.inf
    for sides in itertools.product([0, 1, 2], repeat=K):
        free = np.array(sides) == 2
        base = np.where(np.array(sides) == 1, 1.0, 0.0)
        for use_size, use_budget in itertools.product([True] if exact_size else [True, False], [True, False]):
            rows = [np.ones(K)] * use_size + [c] * use_budget
            targets = [size] * use_size + [budget] * use_budget
            z = base + free * y
            if rows:
                A = np.array(rows)
                gram = A[:, free] @ A[:, free].T
                if abs(np.linalg.det(gram)) < 1e-12:
                    continue
                z = z - free * (A.T @ np.linalg.solve(gram, A @ z - targets))
            inside = np.all((z > -1e-9) & (z < 1 + 1e-9)) and c @ z < budget + 1e-9 and z.sum() < size + 1e-9
            if inside and (not exact_size or abs(z.sum() - size) < 1e-9) and np.sum((z - y) ** 2) < distance:
                best, distance = z, np.sum((z - y) ** 2)
    return best


@pytest.mark.parametrize("exact_size", [True, False])
def test_projection_against_all_active_sets(exact_size):
    generator = np.random.default_rng(4)
    for _ in range(8):
        y, c = generator.standard_normal(5), generator.random(5)
        budget = generator.uniform(np.sort(c)[:2].sum(), c.sum() * 0.6)
        z, nu, lam, feasible = ref.project(y, c, 2, budget, exact_size)
        assert feasible and ref.kkt_residual(z, nu, lam, y, c, 2, budget, exact_size) < 1e-12
        np.testing.assert_allclose(z, brute_projection(y, c, 2, budget, exact_size), atol=1e-9)


@pytest.mark.parametrize("exact_size", [True, False])
def test_projection_residual(exact_size):
    generator = np.random.default_rng(5)
    for scale in (1.0, 10.0, 100.0):
        for _ in range(30):
            y, c = scale * generator.standard_normal(9), generator.random(9)
            budget = generator.uniform(np.sort(c)[:4].sum(), 3.0)
            z, nu, lam, feasible = ref.project(y, c, 4, budget, exact_size)
            assert feasible and ref.kkt_residual(z, nu, lam, y, c, 4, budget, exact_size) < 1e-9


def test_projection_of_a_feasible_point_and_an_infeasible_polytope():
    z, _, lam, _ = ref.project([0.5, 0.2, 0.3], [0.1, 0.1, 0.1], 1, 1.0, True)
    np.testing.assert_allclose(z, [0.5, 0.2, 0.3], atol=1e-12)
    assert lam == 0
    z, nu, lam, feasible = ref.project([0.0, 0.0, 5.0], [0.1, 0.2, 0.9], 2, 0.2, True)
    assert not feasible and z.tolist() == [1, 1, 0] and math.isnan(nu) and math.isnan(lam)
    z, nu, lam, _ = ref.project([2.0, 0.4, -1.0], [0.1, 0.1, 0.1], 2, 1.0, False)
    assert z.tolist() == [1.0, 0.4, 0.0] and nu == lam == 0


def test_worked_jacobian():
    y, c = np.array([0.9, 0.1, 1.4, -0.3, 0.6]), np.array(TIED["c"])
    z, nu, lam, _ = ref.project(y, c, 2, 0.8, True)
    np.testing.assert_allclose(z, [0.0446154, 0.4369231, 0.7830769, 0.2753846, 0.46], atol=1e-7)
    assert nu == pytest.approx(-0.8138462, abs=1e-7) and lam == pytest.approx(2.3846154, abs=1e-7)
    by_budget = [ref.project_vjp(z, nu, lam, c, e, True)[2] for e in np.eye(5)]
    np.testing.assert_allclose(by_budget, [1.1538462, -0.7692308, 0.7692308, -1.1538462, 0], atol=1e-7)


@pytest.mark.parametrize("exact_size", [True, False])
def test_projection_gradient_against_finite_differences(exact_size):
    generator, h = np.random.default_rng(6), 1e-6
    for _ in range(6):
        y, c, g = generator.standard_normal(6), generator.random(6), generator.standard_normal(6)
        budget = generator.uniform(np.sort(c)[:3].sum() * 1.05, np.sort(c)[-3:].sum())
        problem = [y, c, budget, 3.0]
        z, nu, lam, _ = ref.project(y, c, 3, budget, exact_size)
        gradients = ref.project_vjp(z, nu, lam, c, g, exact_size)

        def loss(y, c, budget, size, g=g):
            return g @ ref.project(y, c, size, budget, exact_size)[0]

        for which, gradient in enumerate(gradients):
            for k in range(np.size(gradient)):
                ends = []
                for sign in (-1, 1):
                    moved = list(problem)
                    moved[which] = problem[which] + sign * h * (np.eye(6)[k] if which < 2 else 1.0)
                    ends.append(loss(*moved))
                assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(np.atleast_1d(gradient)[k], abs=1e-5)


@pytest.mark.parametrize("tau,value", [(1.0, 1.774154), (0.3, 1.789231), (0.1, 1.8), (0.01, 1.8)])
def test_differentiable_lp_on_the_degenerate_example(tau, value):
    z = ref.smoothed_lp(**TIED, tau=tau)
    assert z @ np.array(TIED["w"]) == pytest.approx(value, abs=1e-6)
    if tau <= 0.1:
        np.testing.assert_allclose(z, [0.5, 1, 0.5, 0.5, 0.5], atol=1e-9)


def test_smoothing_and_gradient_gaps_shrink():
    generator, taus = np.random.default_rng(7), (1.0, 0.3, 0.1, 0.03, 0.01)
    smoothed, climbed = [], []
    for _ in range(30):
        w, c = generator.random(9), generator.random(9)
        budget = generator.uniform(np.sort(c)[:4].sum(), np.sort(c)[-4:].sum())
        best = ref.linear_program(w, c, 4, budget, True, method="fill").z @ w
        smoothed.append([1 - w @ ref.smoothed_lp(w, c, 4, budget, True, tau) / best for tau in taus])
        climbed.append([1 - w @ ref.gradient_lp(w, c, 4, budget, True, 10.0, steps) / best for steps in (1, 10)])
    gaps, steps = np.mean(smoothed, axis=0), np.mean(climbed, axis=0)
    # Section 4.4 gives means 8.7e-2, 1.0e-2, 1.4e-3, 1.3e-4, 3e-5 and 1.3e-3, 1.1e-5 on instances of its own.
    assert np.all(gaps < [0.2, 0.03, 6e-3, 1e-3, 2e-4]) and np.all(np.diff(gaps) < 0)
    assert np.all(steps < [6e-3, 1e-4]) and np.min(smoothed) > -1e-9 and np.max(climbed) < 5e-2


# --- Section 4.5: rounding ---------------------------------------------------------------------------------------


def test_decomposition_examples():
    weights, sets = ref.decompose(FRACTIONS)
    assert len(weights) == 5
    np.testing.assert_allclose(weights, [0, 0.3, 0.1, 0.5, 0.1], atol=1e-12)  # The empty interval comes first.
    assert [np.flatnonzero(s).tolist() for s in sets[1:]] == [[0, 2], [1, 2], [1, 3], [2, 3]]
    weights, sets = ref.decompose([0.5, 0.4, 0.7, 0.2])
    np.testing.assert_allclose(weights, [0.5, 0.1, 0.2, 0.1, 0.1], atol=1e-12)
    assert [np.flatnonzero(s).tolist() for s in sets] == [[0, 2], [1, 2], [1, 3], [1], [2]]


def test_exact_distributions_of_the_specification():
    four = distribution_of(s02=2 / 15, s03=1 / 6, s12=4 / 15, s13=1 / 3, s23=1 / 10)
    assert_same_distribution(ref.pairwise_distribution(FRACTIONS), four)
    assert_same_distribution(ref.swap_distribution(FRACTIONS), four)
    assert_same_distribution(ref.pairwise_distribution([0.7, 0.55]), distribution_of(s0=0.45, s01=0.25, s1=0.3))
    eight = distribution_of(s01=0.05, s02=0.35, s03=0.1, s1=0.05, s12=0.2325, s13=0.0675, s2=0.1175, s3=0.0325)
    assert_same_distribution(ref.swap_distribution([0.5, 0.4, 0.7, 0.2]), eight)


def test_convexity_gain():
    distribution = ref.pairwise_distribution(FRACTIONS)
    gains = {
        r: (ref.expected_reward(distribution, r, FRACTIONS_MU), ref.relaxed_reward(r, FRACTIONS, FRACTIONS_MU))
        for r in ref.REWARDS
    }
    np.testing.assert_allclose(gains["AWC"], [0.722, 0.658912], atol=1e-9)
    np.testing.assert_allclose(gains["SUC"], [0.91, 0.91], atol=1e-9)
    np.testing.assert_allclose(gains["AIC"], [0.188, 0.159621], atol=1e-6)


def random_points(whole):
    """Points of [0, 1]^5, with an integer sum if `whole`, some coordinates integral."""
    generator = np.random.default_rng(8)
    for _ in range(6):
        z = np.clip(generator.uniform(-0.2, 1.2, 5), 0, 1)
        yield ref.project(z, np.zeros(5), 2, 1.0, True)[0] if whole else z


@pytest.mark.parametrize("distribution_of_rounding", [ref.pairwise_distribution, ref.swap_distribution])
@pytest.mark.parametrize("whole", [True, False])
def test_rounding_properties(distribution_of_rounding, whole):
    """Section 3.3, (i) to (v)."""
    generator = np.random.default_rng(9)
    for z in random_points(whole):
        distribution, mu = distribution_of_rounding(z), generator.random(5)
        np.testing.assert_allclose(ref.marginals(distribution, 5), z, atol=1e-9)
        sizes = {math.floor(z.sum() + 1e-9), math.ceil(z.sum() - 1e-9)}
        assert {len(members) for members, mass in distribution.items() if mass > 1e-9} <= sizes
        for n in range(1, 6):
            for group in itertools.combinations(range(5), n):
                inside = sum(mass for members, mass in distribution.items() if members >= set(group))
                outside = sum(mass for members, mass in distribution.items() if not members & set(group))
                assert inside <= np.prod(z[list(group)]) + 1e-9
                assert outside <= np.prod(1 - z[list(group)]) + 1e-9
        for reward in ref.REWARDS if whole else ("AWC", "SUC"):
            assert ref.expected_reward(distribution, reward, mu) >= ref.relaxed_reward(reward, z, mu) - 1e-9
        assert ref.expected_reward(distribution, "SUC", mu) == pytest.approx(z @ mu)


def test_at_a_vertex_all_roundings_have_one_distribution():
    for reward in ref.REWARDS:
        found = ref.relaxed_optimum(reward, MU, COST, 4, ref.SCIQ9_BUDGET[reward])
        coin = ref.coin_distribution(found.dear, found.cheap, found.theta)
        assert_same_distribution(ref.pairwise_distribution(found.z), coin, 1e-9)
        assert_same_distribution(ref.swap_distribution(found.z), coin, 1e-9)


@pytest.mark.parametrize("z", [FRACTIONS, np.array([0.5, 0.4, 0.7, 0.2]), np.array([1.0, 0.25, 0.5, 0.0])])
def test_sequential_roundings_follow_their_distributions(z):
    generator, n = np.random.default_rng(10), 8000
    for rounded, distribution in (
        (lambda: ref.round_pairwise(z, generator.random(4)), ref.pairwise_distribution(z)),
        (lambda: ref.round_swap(z, generator.random((4, 3)), generator.random(4)), ref.swap_distribution(z)),
    ):
        counts = {}
        for _ in range(n):
            members = frozenset(np.flatnonzero(rounded()).tolist())
            counts[members] = counts.get(members, 0) + 1
        assert set(counts) <= set(distribution)
        for members, mass in distribution.items():
            assert abs(counts.get(members, 0) / n - mass) < 5 * math.sqrt(mass * (1 - mass) / n) + 1e-12


def test_pairwise_rounding_by_hand():
    # (.3, .6): p = min(.7, .6) = .6, q = min(.3, .4) = .3; uniforms[0] = .2 < .3/.9: (.9, 0).
    # (.9, .5): p = min(.1, .5) = .1, q = min(.9, .5) = .5; uniforms[1] = .9 > .5/.6: (.4, 1).
    # (.4, .6): p = min(.6, .6) = .6, q = min(.4, .4) = .4; uniforms[2] = .3 < .4: (1, 0).
    assert ref.round_pairwise(FRACTIONS, [0.2, 0.9, 0.3, 0.0]).tolist() == [True, False, True, False]
    assert ref.round_pairwise([0.0, 0.4, 1.0], [0.0, 0.0, 0.39]).tolist() == [False, True, True]


def test_swap_rounding_by_hand():
    # v = (0, .3, .1, .5, .1), sets {0,2} twice, {1,2}, {1,3}, {2,3}. Merge 1 changes nothing. Merge 2: swap 0 for 1 with
    # probability .1/.4, coin .2: {1,2}. Merge 3: swap 2 for 3 with probability .5/.9, coin .9: stays. Merge 4: 1 for 3
    # with probability .1, coin .05: {2,3}.
    coins = np.array([[0.5, 0.5], [0.2, 0.5], [0.9, 0.5], [0.05, 0.5]])
    assert ref.round_swap(FRACTIONS, coins, np.zeros(4)).tolist() == [False, False, True, True]


# --- Section 4.6 and 7: closed forms -----------------------------------------------------------------------------


def test_steady_state():
    scaled, fixed = (ref.steady_state("SUC", MU, COST, 4, 0.5, distribution) for distribution in ("scaled", "fixed"))
    assert scaled["reward"] == pytest.approx(1.0442667, abs=1e-7) and scaled["cost"] == pytest.approx(0.5)
    assert scaled["violation"] == pytest.approx(0.0744, abs=5e-5) and fixed["violation"] == pytest.approx(0.0733, abs=5e-5)
    uniforms = np.random.default_rng(11).random((200_000, 3))
    cost = np.array([0.2, 0.5, 0.4])
    excess = np.maximum(ref.scaled_cost(cost, uniforms).sum(axis=1) - 1.0, 0)
    assert abs(excess.mean() - ref.expected_excess(cost, 1.0)) < 5 * excess.std() / math.sqrt(len(excess))


def test_oracle_reproduces_the_steady_state():
    params = ref.sciq9("SUC")
    run = ref.simulate(params, ref.random_draws(np.random.default_rng(12), 3000, params), "OracleRelaxed")
    expected = ref.steady_state("SUC", MU, COST, 4, 0.5)
    for name, column in (("reward", "reward"), ("cost", "spent"), ("violation", "violation")):
        samples = run[column]
        assert abs(samples.mean() - expected[name]) < 5 * samples.std() / math.sqrt(len(samples))


def test_theory_numbers():
    assert ref.observation_probability(MU, COST, 4) == pytest.approx(0.28374, abs=5e-6)
    able = 1 - MU[[1, 7, 2]]  # The four most able models in price order are 1, 7, 2, 8; the last need not fail.
    assert np.prod(able) == pytest.approx(0.28374, abs=5e-6)
    assert ref.set_reward("SUC", ref.top(MU, 4), MU) == pytest.approx(1.426)
    assert round(ref.theorem1_bound(9, 4, 10_000, 1.0, 1.426)) == 6201
    assert round(ref.theorem1_bound(9, 4, 10_000, 1.0, 1.0)) == 6197
    assert ref.theorem1_bound(9, 4, 10_000, 1.0, 1.0, power=4) > 6197
    bounds = [ref.theorem2_bound(9, 4, T) for T in (10_000, 500, 2000, 8000)]
    np.testing.assert_allclose(bounds, [0.6223, 2.51, 1.32, 0.69], atol=5.1e-3)


# --- Environment -------------------------------------------------------------------------------------------------


def test_outcomes_on_given_draws():
    assert ref.bernoulli_outcome([0.3, 0.3], [0.29, 0.3]).tolist() == [1, 0]
    levels = [[0.5, 0.2, 0.1]] * 4
    assert ref.graded_outcome(levels, [0.49, 0.5, 0.7, 0.8]).tolist() == [0.5, 0.3, 0.1, 0.0]
    assert ref.copula_outcome([0.5, 0.5], 0.36, [1.0, -0.7, -0.8]).tolist() == [0, 1]  # .6 d + .8 e = .04, -.04.
    np.testing.assert_allclose(ref.scaled_cost([0.2, 1.0], [0.0, 1.0]), [0.1, 1.5])
    generator = np.random.default_rng(13)
    graded = np.array([ref.graded_outcome(ref.SCIQ9_LEVELS, u) for u in generator.random((4000, 9))])
    assert np.all(np.abs(graded.mean(axis=0) - MU) < 5 * graded.std(axis=0) / math.sqrt(4000))


def test_token_costs():
    # The clipped mean is 179.7389 by quadrature; the specification prints 179.72.
    sigma = math.sqrt(math.log(1.25))
    x = np.linspace(-9, 9, 200_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    output = np.clip(180 * np.exp(sigma * x - sigma**2 / 2), 10, 600)
    assert ref.reference_length() == pytest.approx(130 + np.sum(output * density) * (x[1] - x[0]), abs=1e-6)
    assert ref.reference_length() == pytest.approx(309.72, abs=0.03)
    generator = np.random.default_rng(14)
    cost = np.array([0.5, 0.5])
    paid = np.array([ref.token_cost(cost, generator.random(), generator.standard_normal(2)) for _ in range(20_000)])
    assert abs(paid.mean() - 0.5) < 5 * paid.std() / math.sqrt(20_000)
    assert np.corrcoef(paid.T)[0, 1] > 0.1  # One query for all models.
    low, high = (ref.token_cost(cost, u, [x, x])[0] / 0.5 for u, x in ((0.0, -50.0), (0.999, 50.0)))
    assert high - low == pytest.approx(2.42, abs=5e-3)


def test_copula_is_calibrated_on_figure_2():
    mu, price = np.array([0.30, 0.40, 0.732]), np.array([5.8, 2.0, 60.0])  # ForeFrontAI, ChatGPT, GPT-4 of Table 1.
    for q, accuracy, share, late in ((0.35, 0.82, 0.59, 0.62), (0.0, 0.887, 0.54, 0.732)):
        # Gauss-Hermite over the common difficulty.
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        fails = 1 - ndtr((ndtri(mu)[:, None] - math.sqrt(q) * nodes) / math.sqrt(1 - q))
        first, both, all_three = (fails[:n].prod(axis=0) @ weights / weights.sum() for n in (1, 2, 3))
        assert 1 - all_three == pytest.approx(accuracy, abs=2e-3)
        assert price @ [1, first, both] / 60 == pytest.approx(share, abs=2e-3)
        assert 1 - all_three / both == pytest.approx(late, abs=1e-3)
        # The same by the sampled outcomes and the cascade.
        generator, n = np.random.default_rng(15), 4000
        outcome = np.array([ref.copula_outcome(mu, q, generator.standard_normal(4)) for _ in range(n)])
        called = np.array([ref.queried("AWC", np.ones(3, bool), x > 0, np.arange(3)) for x in outcome])
        assert abs(outcome.max(axis=1).mean() - (1 - all_three)) < 5 * math.sqrt(all_three / n)
        assert abs((called @ price).mean() / 60 - price @ [1, first, both] / 60) < 5 * (
            called @ price
        ).std() / 60 / math.sqrt(n)


def test_cascade_queries_a_prefix():
    selected = np.array([True, True, False, True])
    price = np.array([0.3, 0.1, 0.05, 0.1])  # Order of the members: 1, 3, 0.
    cases = {(0, 0, 0, 0): [0, 1, 3], (0, 0, 1, 1): [1, 3], (1, 1, 0, 0): [1], (1, 0, 0, 0): [0, 1, 3]}
    for success, expected in cases.items():
        called = ref.queried("AWC", selected, np.array(success, bool), price)
        assert np.flatnonzero(called).tolist() == expected
        assert ref.queried("SUC", selected, np.array(success, bool), price).tolist() == selected.tolist()
    order = sorted(range(9), key=lambda k: (ref.SCIQ9_PRICE[k], k))
    assert order == [0, 4, 5, 3, 1, 6, 7, 2, 8]  # Section 6.2.


# --- Simulation --------------------------------------------------------------------------------------------------


def test_two_rounds_by_hand():
    """SUC, K=3, N=2, rho=.5, fixed costs (.1, .3, .4), delta=.1, a_mu=.1, a_c=.05."""
    params = ref.Params("SUC", [0.5, 0.5, 0.5], [0.1, 0.3, 0.4], 2, 0.5, cost_distribution="fixed")
    draws = ref.Draws(2, outcome=[[0.9, 0.9, 0.1], [0.1, 0.1, 0.1]], tie=[[0.9, 0.5, 0.1], [0, 0, 0]], coin=[0.5, 0.5])
    run = ref.simulate(params, draws, reward_width=0.1, cost_width=0.05, delta=0.1)
    # t=1: indices 1, costs 0; the two smallest tie uniforms win: {1, 2}. Outcomes 0 and 1, cost .7, excess .2.
    assert run["selected"][0].tolist() == [False, True, True]
    assert run["realised"][0] == 1 and run["spent"][0] == pytest.approx(0.7) and run["violation"][0] == pytest.approx(0.2)
    # t=2: ln(2 pi^2 3/.3) + 3 ln 2 = 5.285243 + 2.079442 = 7.364685; radius sqrt(7.364685/2) = 1.918943 (n=1).
    np.testing.assert_allclose(run["ucb"][1], [1.0, 0.1918943, 1.0], atol=1e-6)
    np.testing.assert_allclose(run["lcb"][1], [0.0, 0.3 - 0.0959471, 0.4 - 0.0959471], atol=1e-6)
    # Models 0 and 2 have the largest indices and cost .304 <= .5.
    assert run["selected"][1].tolist() == [True, False, True] and run["shadow_price"][1] == 0
    assert run["violation_mean"][1] == pytest.approx((0.7 + 0.5) / 2 - 0.5)
    # S* = {0, 2} (cost .5) has the reward 1 of every pair; Z* too.
    np.testing.assert_allclose(run["regret"], [0, 0], atol=1e-12)


@pytest.mark.parametrize("reward", ref.REWARDS)
@pytest.mark.parametrize("policy", ref.POLICIES)
def test_every_policy_obeys_the_rules(reward, policy):
    params, T = ref.sciq9(reward), 40
    draws = ref.random_draws(np.random.default_rng(16), T, params)
    run = ref.simulate(params, draws, policy, solver=None if reward == "AWC" else "fill", fixed=ref.mask_of([0, 1, 4, 5], 9))
    sizes = run["num_selected"]
    assert np.all(sizes <= 4) if reward == "AWC" else np.all(sizes == 4)
    assert np.all(run["observed"] <= run["selected"])
    if reward == "AWC":
        order = sorted(range(9), key=lambda k: (ref.SCIQ9_PRICE[k], k))
        for t in range(T):
            stopped = False
            for k in order:
                if run["selected"][t, k]:
                    assert run["observed"][t, k] == (not stopped)
                    stopped = stopped or run["outcome"][t, k] == 1
    else:
        assert np.array_equal(run["observed"], run["selected"])
    np.testing.assert_allclose(run["spent"], (run["observed"] * run["cost"]).sum(axis=1))
    np.testing.assert_allclose(run["violation"], np.maximum(run["spent"] - params.budget, 0))
    np.testing.assert_allclose(run["reward"] + run["regret"], run["best"])
    if policy == "C2MAB-V":  # Indices, recomputed from the history.
        for t in range(1, T):
            seen = run["observed"][:t]
            n = seen.sum(axis=0)
            with np.errstate(divide="ignore", invalid="ignore"):
                radius = np.sqrt(np.log(2 * np.pi**2 * 9 * (t + 1) ** 3 / (3 / T)) / (2 * n))
                ucb = np.minimum((seen * run["outcome"][:t]).sum(axis=0) / n + 0.3 * radius, 1)
                lcb = np.maximum((seen * run["cost"][:t]).sum(axis=0) / n - 0.01 * radius, 0)
            np.testing.assert_allclose(run["ucb"][t], np.where(n > 0, ucb, 1), atol=1e-12)
            np.testing.assert_allclose(run["lcb"][t], np.where(n > 0, lcb, 0), atol=1e-12)
            assert run["relaxed"][t] @ run["lcb"][t] <= params.budget + 1e-9


def test_lp_solvers_and_roundings_inside_a_run():
    params = ref.sciq9("SUC")
    draws = ref.random_draws(np.random.default_rng(17), 120, params)
    runs = [ref.simulate(params, draws, reward_width=1.0, solver=s) for s in ("highs", "vertices", "fill")]
    for other in runs[1:]:
        assert np.array_equal(runs[0]["selected"], other["selected"])
        np.testing.assert_allclose(runs[0]["relaxed"], other["relaxed"], atol=1e-9)
    for rounding in ("pairwise", "swap"):
        run = ref.simulate(params, draws, rounding=rounding, solver="fill")
        assert np.all(run["num_selected"] == 4)


def test_asynchronous_mode():
    params = ref.sciq9("SUC")
    draws = ref.random_draws(np.random.default_rng(18), 50, params)
    held = ref.simulate(params, draws, batch=10, solver="fill")
    again = ref.simulate(params, draws, batch=10, hold="relaxed", solver="fill")
    for start in range(0, 50, 10):
        block = slice(start, start + 10)
        assert np.all(held["selected"][block] == held["selected"][start])
        assert np.all(again["relaxed"][block] == again["relaxed"][start])
    assert any(np.any(np.diff(again["selected"][s : s + 10].astype(int), axis=0)) for s in range(10, 50, 10))
    # The first decision after a batch uses all of its feedback, at t = 1 + B.
    sync = ref.simulate(params, draws, solver="fill")
    assert np.array_equal(held["selected"][0], sync["selected"][0])
    assert np.array_equal(ref.simulate(params, draws, batch=1, hold="relaxed", solver="fill")["selected"], sync["selected"])
    lost = replace(draws, arrives=np.arange(50) % 2 == 1)  # Every second feedback arrives: a batch lasts twice as long.
    slow = ref.simulate(params, lost, batch=10, solver="fill")
    assert np.all(slow["selected"][:20] == slow["selected"][0])
    assert slow["ucb"][1].tolist() == [1.0] * 9


def test_availability_and_two_tier():
    params = ref.sciq9("SUC", available_probability=0.5)
    draws = ref.random_draws(np.random.default_rng(19), 40, params)
    usable = draws.available < 0.5
    for policy in ref.POLICIES:
        run = ref.simulate(params, draws, policy, solver="fill", fixed=ref.mask_of([0, 1, 4, 5], 9))
        assert not np.any(run["selected"] & ~usable)
        if policy != "Fixed":
            assert np.array_equal(run["num_selected"], np.minimum(usable.sum(axis=1), 4))
    pair = ref.mask_of([4, 8], 9)
    run = ref.simulate(ref.sciq9("AWC"), draws, allowed=pair)
    assert not np.any(run["selected"] & ~pair)
    first = int(np.flatnonzero(run["observed"][:, 4])[0])
    n, t = run["observed"][: first + 1, 4].sum(), first + 2
    radius = ref.confidence_radius(n, t, 2, 1 / 40)  # K = 2 in the radius.
    assert run["ucb"][first + 1, 4] == pytest.approx(min(run["outcome"][first, 4] + 0.3 * radius, 1))


@pytest.mark.parametrize("outcome,cost_distribution", [("graded", "tokens"), ("copula", "fixed"), ("bernoulli", "scaled")])
@pytest.mark.parametrize("order", ["index", "random", "ucb", "lcb_cost"])
def test_other_distributions_and_orders(outcome, cost_distribution, order):
    params = ref.sciq9("AWC", outcome=outcome, cost_distribution=cost_distribution, correlation=0.35)
    draws = ref.random_draws(np.random.default_rng(25), 30, params)
    run = ref.simulate(params, draws, order=order, cost_feedback="action", start="round_robin", reward_width=1.0)
    assert [np.flatnonzero(s).tolist() for s in run["selected"][:3]] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 8]]
    level = 0.5 if outcome == "graded" else 1.0
    assert np.all(((run["outcome"] >= level) & run["observed"]).sum(axis=1) <= 1)
    for t in range(30):
        keys = {"index": np.arange(9), "random": draws.order[t], "ucb": -run["ucb"][t], "lcb_cost": run["lcb"][t]}
        chain = sorted(np.flatnonzero(run["selected"][t]), key=lambda k: (keys[order][k], k))
        won = [k for k in chain if run["outcome"][t, k] >= level]
        called = chain[: chain.index(won[0]) + 1] if won else chain
        assert np.flatnonzero(run["observed"][t]).tolist() == sorted(called)
    # With the costs of all of S_t seen, the bound counts every selection.
    n = run["selected"][:29].sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.sqrt(np.log(2 * np.pi**2 * 9 * 30**3 / (3 / 30)) / (2 * n))
        lcb = (run["selected"][:29] * run["cost"][:29]).sum(axis=0) / n - 0.01 * radius
    np.testing.assert_allclose(run["lcb"][29], np.where(n > 0, np.maximum(lcb, 0), 0), atol=1e-12)


def test_graded_thompson_and_cucb_with_the_paper_radius():
    params = ref.sciq9("SUC", outcome="graded")
    draws = ref.random_draws(np.random.default_rng(26), 40, params)
    for update in ("fraction", "coin"):
        assert np.all(ref.simulate(params, draws, "Thompson", graded_update=update)["num_selected"] == 4)
    unlimited = ref.sciq9("SUC", outcome="graded", budget=100.0)
    paper = ref.simulate(unlimited, draws, "CUCB", cucb_radius="c2mabv", noise=1e-4)
    run = ref.simulate(unlimited, draws, solver="fill")  # Without a budget C2MAB-V is this CUCB, up to the cap at .999.
    assert np.array_equal(paper["selected"], run["selected"])


def test_drift_moves_the_benchmark():
    mu = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
    params = ref.Params("SUC", mu, [0.1, 0.1, 0.1], 1, 1.0, starts=[1, 4], cost_distribution="fixed")
    run = ref.simulate(params, ref.random_draws(np.random.default_rng(20), 6, params), "OracleInteger")
    assert np.argmax(run["selected"], axis=1).tolist() == [0, 0, 0, 1, 1, 1]


def test_replay_and_copies():
    params = ref.replay("SUC", [[1, 0], [0, 1], [1, 1]], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], 1, 1.0)
    draws = ref.Draws(5, offset=2)
    run = ref.simulate(params, draws, "Fixed", fixed=[True, False])
    assert run["realised"].tolist() == [1, 1, 0, 1, 1] and run["spent"].tolist() == [0.5, 0.1, 0.3, 0.5, 0.1]
    np.testing.assert_allclose(run["reward"], 2 / 3)
    copies = ref.copies_of(ref.sciq9("AWC"), 8)
    run = ref.simulate(copies, ref.random_draws(np.random.default_rng(21), 2000, copies), "Fixed", fixed=np.ones(4, bool))
    assert run["reward"][0] == pytest.approx(1 - (1 - 0.398) ** 4)
    calls = run["num_observed"]  # 1 + .602 + .602^2 + .602^3 calls on average.
    assert abs(calls.mean() - sum(0.602**i for i in range(4))) < 5 * calls.std() / math.sqrt(2000)


def test_epsilon_schedule():
    found = [round(ref.epsilon(t, 9), 5) for t in (1, 36, 37, 100, 1000, 10_000)]
    assert found == [1, 1, 0.98639, 0.6, 0.18974, 0.06]  # Section 10, item 20.


def test_baselines_on_given_draws():
    params = ref.Params("SUC", [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], 1, 1.0, cost_distribution="fixed")
    subset = np.array([[0.4, 0.2, 0.9]] * 3)
    outcome, tie = np.array([[0.1] * 3, [0.9] * 3, [0.1] * 3]), np.array([[0.9, 0.8, 0.7]] * 3)
    draws = ref.Draws(3, outcome=outcome, tie=tie, subset=subset, explore=np.zeros(3), theta=np.array([[0.0, 0.1, 0.2]] * 3))
    assert np.argmax(ref.simulate(params, draws, "Random")["selected"], axis=1).tolist() == [1, 1, 1]
    assert np.argmax(ref.simulate(params, draws, "EpsGreedy")["selected"], axis=1).tolist() == [1, 1, 1]
    # CUCB: t=1 the smallest uniform, model 2, wins and succeeds; at t=2 its index is again 1, at t=3 its mean is .5 and
    # its index .5 + sqrt(3 ln 3 / 4) = 1.41, capped: model 2 for ever.
    assert np.argmax(ref.simulate(params, draws, "CUCB")["selected"], axis=1).tolist() == [2, 2, 2]
    # Thompson: t=1 equal distributions, the largest normal is model 2, which wins: Beta(2, 1), mean .667, and stays; after a
    # failure Beta(2, 2), mean .5, sd .224 against .5 + .1 * .289 of model 1: .5447 against .5289.
    assert np.argmax(ref.simulate(params, draws, "Thompson")["selected"], axis=1).tolist() == [2, 2, 2]


def test_thompson_samples_have_the_moments_of_the_beta_distribution():
    generator, n = np.random.default_rng(22), 40_000
    for distribution, draw in (("normal", generator.standard_normal(n)), ("beta", generator.random(n))):
        theta = ref.thompson_sample(
            np.full(n, 3.0), np.full(n, 5.0), draw, distribution
        )  # Beta(4, 6): mean .4, variance .24/11.
        assert abs(theta.mean() - 0.4) < 5 * math.sqrt(0.24 / 11 / n)
        assert theta.var() == pytest.approx(0.24 / 11, rel=0.05)


def test_limits():
    """An unlimited budget gives the N largest indices; cost widths do not matter then."""
    params = ref.sciq9("SUC", budget=100.0)
    draws = ref.random_draws(np.random.default_rng(23), 60, params)
    run = ref.simulate(params, draws, solver="fill")
    for t in range(60):
        w = ref.conditioned(run["ucb"][t], draws.tie[t])
        assert np.array_equal(run["selected"][t], ref.top(w, 4))
    assert np.array_equal(ref.simulate(params, draws, cost_width=1.0, solver="fill")["selected"], run["selected"])
    assert np.array_equal(ref.simulate(params, draws, "Direct")["selected"], run["selected"])


def test_metrics():
    params = ref.sciq9("SUC")
    run = ref.simulate(params, ref.random_draws(np.random.default_rng(24), 50, params), solver="fill")
    found = ref.metrics(run, params.budget)
    hinges = [max(run["spent"][:t].mean() - 0.5, 0) for t in range(1, 51)]
    assert found["V_eq1"] == pytest.approx(hinges[-1]) and found["V_inst"] == pytest.approx(run["violation"].mean())
    assert found["ratio_inst"][-1] == pytest.approx(run["reward"].sum() / run["violation"].sum())
    assert found["ratio_eq1"][-1] == pytest.approx(run["reward"].sum() / sum(hinges))
    np.testing.assert_allclose(run["violation_mean"], hinges)
    assert found["pulls"].sum() == 200
