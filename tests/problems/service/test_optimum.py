"""The cheapest policies against exact solvers and worked examples."""

import math

import numpy as np
import pytest
from reference import service as ref
from service_cases import cells, small_table, table

from jaxroute.core import draws
from jaxroute.data import MESSPLUS_BENCHMARKS
from jaxroute.problems import service as sv
from jaxroute.problems.service.sources import Contexts, draw_requests

TWO_TYPES = Contexts(
    np.array([0.5, 0.5]), np.array([[0.9, 0.95, 0.97], [0.3, 0.6, 0.9]]), np.array([[1.0, 4, 20], [2, 8, 40]])
)


def test_oracle_of_section_4_4():
    printed = {
        0.55: (1.5, 0.0, [[1, 0, 0], [1, 0, 0]]),
        0.70: (3.5, 20.0, [[1, 0, 0], [1 / 3, 2 / 3, 0]]),
        0.85: (14.0, 320 / 3, [[0, 1, 0], [0, 0.5, 0.5]]),
    }
    for alpha, (value, price, choice) in printed.items():
        best = sv.cheapest_choice(TWO_TYPES, alpha)
        assert (
            best.feasible and best.value == pytest.approx(value, rel=1e-12) and best.price == pytest.approx(price, rel=1e-9)
        )
        np.testing.assert_allclose(best.choice, choice, atol=1e-12)
    blind = sv.cheapest_choice(TWO_TYPES.mean(), 0.70)
    assert blind.value == pytest.approx(4.0714286, abs=1e-7) and blind.price == pytest.approx(25.7142857, abs=1e-6)
    np.testing.assert_allclose(blind.choice, [[3 / 7, 4 / 7, 0]], atol=1e-9)


def test_demo_instance_of_section_2_7():
    printed = {  # Blind, informed, clairvoyant: J per request and shadow price.
        0.70: ((125.3548, 1122.58), (101.2, 720.0), (67.39, 180.0)),
        0.75: ((181.4839, 1122.58), (138.25, 750.0), (76.39, 180.0)),
        0.80: ((270.3471, 7669.42), (252.0, 4000.0), (85.4125, 225.0)),
    }
    for alpha, values in printed.items():
        env = sv.typed_service(alpha=alpha)
        for best, (value, price) in zip((sv.best_blind, sv.best_informed, sv.best_clairvoyant), values, strict=True):
            optimum = best(env.requests, alpha)
            assert (optimum.value, optimum.price) == (pytest.approx(value, rel=1e-5), pytest.approx(price, rel=1e-5))
        stored = ((env.best.cost, env.best.price), (env.clairvoyant.cost, env.clairvoyant.price))
        for (cost, price), (value, other) in zip(stored, values[1:], strict=True):
            assert (cost, price) == (pytest.approx(value, rel=1e-5), pytest.approx(other, rel=1e-5))
        assert env.blind_cost == pytest.approx(values[0][0], rel=1e-5)
    env = sv.typed_service()
    np.testing.assert_allclose(env.accuracy, (0.64, 0.795, 0.916), rtol=1e-6)
    np.testing.assert_allclose(env.mean_cost, (58, 232, 1160), rtol=1e-6)
    np.testing.assert_allclose(env.blind_choice, (0.2903, 0.7097, 0), atol=5e-5)
    choice = sv.best_informed(env.requests, 0.75).choice
    np.testing.assert_allclose(choice, [[1, 0, 0], [0, 1, 0], [5 / 12, 7 / 12, 0]], atol=1e-5)
    for slack, q in ((0.03, 0.906), (0.05, 0.906), (0.1, 0.886), (1.0, 0.64)):
        assert sv.admissible_probability(env.requests.contexts(), slack) == pytest.approx(q, abs=1e-6)
        expected = ref.q_of_beta(ref.DEMO_WEIGHTS, ref.DEMO_SATISFACTION, ref.DEMO_SATISFACTION, slack)
        assert expected == pytest.approx(q, abs=1e-12)


# Requests; blind J, mix, price; clairvoyant J, price.
DERIVED = {
    "arc_challenge": (1172, 309.6, (0.268, 0.732, 0), 1896, 117.9, 314),
    "arc_easy": (2500, 303.9, (0.278, 0.722, 0), 1814, 119.5, 308),
    "boolq": (3270, 106.5, (0.278, 0.722, 0), 582, 53.0, 87),
    "logiqa": (1953, 1255.1, (0.421, 0, 0.579), 9112, 129.6, 327),
    "piqa": (1838, 158.2, (0.251, 0.749, 0), 3025, 44.9, 160),
    "sciq": (1000, 335.7, (0.313, 0.687, 0), 10831, 105.1, 347),
    "socialiqa": (1954, 148.9, (0.653, 0.347, 0), 3546, 73.1, 234),
    "winogrande": (1267, 161.0, (0.260, 0.740, 0), 1084, 64.6, 151),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_quantities_of_section_2_8(name):
    number, blind, mix, price, label, label_price = DERIVED[name]
    requests, alpha = sv.benchmark_service(name).requests, MESSPLUS_BENCHMARKS[name].alpha
    assert MESSPLUS_BENCHMARKS[name].num_requests == number
    best = sv.best_blind(requests, alpha)
    assert best.value == pytest.approx(blind, abs=0.0501) and best.price == pytest.approx(price, abs=0.501)
    np.testing.assert_allclose(best.choice[0], mix, atol=5.01e-4)
    best = sv.best_clairvoyant(requests, alpha)
    assert best.value == pytest.approx(label, abs=0.0501) and best.price == pytest.approx(label_price, abs=0.501)
    expected = ref.opt_lp(*ref.cell_contexts(name), alpha)
    assert best.value == pytest.approx(expected.value, rel=1e-6)


def instances(number, seed=0):
    """Random contexts of all sizes, some with ties, equal costs, probabilities that do not differ; and a target, not always possible."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        contexts, models = rng.choice([1, 1, 2, 3, 6, 12]), rng.integers(1, 6)
        weight = rng.dirichlet(np.ones(contexts))
        success, cost = rng.random((contexts, models)), 10 * rng.random((contexts, models))
        kind = rng.integers(0, 5)
        if kind == 1:  # Ties and points on one line.
            success, cost = np.round(success, 1), np.round(cost / 2)
        elif kind == 2:
            cost[:] = cost[:, :1]
        elif kind == 3:
            success[:] = success[:, :1]
        elif kind == 4:
            success = np.round(success)
        top, low = weight @ success.max(1), weight @ success.min(1)
        alpha = rng.choice([rng.uniform(low, top), rng.uniform(low, top), rng.random(), 0.999 * top])
        if top - low < 1e-9:
            alpha = top + rng.choice([-0.1, 0.1])
        yield Contexts(weight, success, cost), float(alpha)


def assert_optimal(contexts, alpha):
    best, expected = sv.cheapest_choice(contexts, alpha), ref.opt_lp(*contexts, alpha)
    assert best.feasible == expected.feasible
    np.testing.assert_allclose(best.choice.sum(1), 1, atol=1e-12)
    assert (best.choice >= 0).all()
    assert best.satisfaction == pytest.approx(np.sum(contexts.weight[:, None] * best.choice * contexts.success), abs=1e-12)
    if not best.feasible:
        assert math.isnan(best.value) and best.price == math.inf
        assert best.satisfaction == pytest.approx(float(contexts.weight @ contexts.success.max(1)), abs=1e-12)
        return False
    assert abs(best.value - expected.value) <= 1e-6 * max(1.0, expected.value)
    assert best.satisfaction >= alpha - 1e-9
    assert 0 <= best.part <= 1 and best.price >= 0
    return True


def test_cheapest_choice_is_optimal():
    """Against HiGHS: value, constraint and feasibility of 2,000 random linear programs."""
    feasible = [assert_optimal(*one) for one in instances(2000)]
    assert 100 < len(feasible) - sum(feasible) < 1000


def test_four_points_on_one_line():
    """3 J per unit all the way, and the target is the last point: rounding puts its step before the one that leads to it."""
    success = np.array([[0.05, 0.15, 0.45, 0.5]])
    best = sv.cheapest_choice(Contexts(np.ones(1), success, 3 * success), 0.5)
    assert best.satisfaction == pytest.approx(0.5) and best.value == pytest.approx(1.5)


def test_points_on_one_line_are_climbed_in_order():
    """Many equal slopes: the constraint is met, and the dual value at the price is the primal one."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        models, contexts = rng.integers(3, 7), rng.integers(1, 4)
        success = rng.permuted(np.tile(np.arange(1, 10), (contexts, 1)), axis=1)[:, :models] / 10
        cost = 7 * success + 0.3 * rng.integers(0, 2, (contexts, models))
        weight = rng.dirichlet(np.ones(contexts))
        alpha = rng.uniform(weight @ success.min(1), weight @ success.max(1))
        best = sv.cheapest_choice(Contexts(weight, success, cost), alpha)
        assert best.feasible and best.satisfaction >= alpha - 1e-9
        dual = weight @ (cost - best.price * success).min(1) + best.price * alpha
        assert best.value == pytest.approx(dual, abs=1e-9)


def test_one_model_that_just_reaches_the_target():
    for seed in range(20):
        weight = np.random.default_rng(seed).dirichlet(np.ones(3))
        best = sv.cheapest_choice(Contexts(weight, np.full((3, 1), 0.33), np.ones((3, 1))), 0.33)
        assert best.feasible and best.value == pytest.approx(1.0)


def test_the_best_accuracy_can_be_the_target():
    for accuracy in (0.3, 0.7, 0.9, 0.64):
        env = sv.typed_service([[0.1, accuracy]], [[1.0, 2.0]], alpha=accuracy)
        assert float(env.best.cost) == pytest.approx(2.0), accuracy


def test_more_knowledge_is_never_dearer():
    rng = np.random.default_rng(7)
    for _ in range(100):
        kinds, models = rng.integers(1, 5), rng.integers(1, 5)
        success = rng.random((kinds, models))
        cost = np.sort(rng.random(models)) * rng.uniform(0.5, 2.0, (kinds, 1))
        for comonotone in (False, True):
            env = sv.typed_service(success, cost, rng.dirichlet(np.ones(kinds)), alpha=0.6, comonotone=comonotone)
            values = [best(env.requests, 0.6).value for best in (sv.best_clairvoyant, sv.best_informed, sv.best_blind)]
            finite = [v for v in values if not math.isnan(v)]
            assert finite == sorted(finite) or np.diff(finite).min() > -1e-9
            distribution = "comonotone" if comonotone else "independent"
            w, P, E = (np.asarray(x, float) for x in (env.requests.weight, env.requests.probability, env.requests.cost_mean))
            w = w / w.sum()
            expected = [
                ref.opt_label(w, P, E, 0.6, distribution).value,
                ref.opt_context(w, P, E, 0.6).value,
                ref.opt_stat(w, P, E, 0.6).value,
            ]
            np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_hindsight_is_the_optimum_of_the_realised_requests():
    requests = draw_requests(cells().requests, draws.key(3), 300)
    satisfied, cost = np.asarray(requests.satisfied, float), np.asarray(requests.cost, float)
    for alpha in (0.5, 0.7, 0.9):
        expected = ref.opt_hindsight(satisfied, cost, alpha).value
        assert sv.best_in_hindsight(satisfied, cost, alpha).value == pytest.approx(expected, nan_ok=True)
    rows = small_table()
    assert sv.best_clairvoyant(table().requests, 0.75).value == pytest.approx(
        sv.best_in_hindsight(rows.scores, rows.costs, 0.75).value
    )
    assert not sv.best_in_hindsight(np.zeros((4, 2)), np.ones((4, 2)), 0.1).feasible
