"""The NumPy reference of MESS+ against the worked examples of `spec/messplus.md` and against brute force.

Section numbers are those of the specification. No simulator code is used here.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, logit

from reference import service as ref

DEMO = (ref.DEMO_WEIGHTS, ref.DEMO_SATISFACTION, ref.DEMO_COST)
TWO_TYPES = ([0.5, 0.5], [[0.9, 0.95, 0.97], [0.3, 0.6, 0.9]], [[1, 4, 20], [2, 8, 40]])  # Section 4.4.
ALPHA = {"arc_challenge": 0.50, "arc_easy": 0.75, "boolq": 0.80, "logiqa": 0.40}
ALPHA |= {"piqa": 0.78, "sciq": 0.96, "socialiqa": 0.44, "winogrande": 0.70}

# Section 2.8: requests; opt_stat J, MJ, mix, multiplier; opt_label J, MJ, multiplier.
DERIVED = {
    "arc_challenge": (1172, 309.6, 0.363, (0.268, 0.732, 0), 1896, 117.9, 0.138, 314),
    "arc_easy": (2500, 303.9, 0.760, (0.278, 0.722, 0), 1814, 119.5, 0.299, 308),
    "boolq": (3270, 106.5, 0.348, (0.278, 0.722, 0), 582, 53.0, 0.173, 87),
    "logiqa": (1953, 1255.1, 2.451, (0.421, 0, 0.579), 9112, 129.6, 0.253, 327),
    "piqa": (1838, 158.2, 0.291, (0.251, 0.749, 0), 3025, 44.9, 0.083, 160),
    "sciq": (1000, 335.7, 0.336, (0.313, 0.687, 0), 10831, 105.1, 0.105, 347),
    "socialiqa": (1954, 148.9, 0.291, (0.653, 0.347, 0), 3546, 73.1, 0.143, 234),
    "winogrande": (1267, 161.0, 0.204, (0.260, 0.740, 0), 1084, 64.6, 0.082, 151),
}
# Table 2, satisfaction of the single models, %; section 5(3) and Table 5: offset, threshold, strong share.
SINGLE = {
    "arc_challenge": (37.88, 54.44, 60.84),
    "arc_easy": (62.76, 79.72, 83.12),
    "boolq": (69.17, 84.16, 88.78),
    "logiqa": (27.19, 29.03, 49.31),
    "piqa": (74.05, 79.33, 82.70),
    "sciq": (93.80, 97.00, 97.10),
    "socialiqa": (41.71, 48.31, 48.67),
    "winogrande": (59.67, 73.64, 79.08),
}
ROUTELLM = {
    "arc_challenge": (0.847, 0.7, 0.50),
    "arc_easy": (1.693, 0.6, 1.00),
    "boolq": (0.563, 0.5, 0.87),
    "logiqa": (1.027, 0.5, 0.98),
    "piqa": (0.612, 0.6, 0.66),
    "sciq": (0.822, 0.5, 0.95),
    "socialiqa": (1.040, 0.7, 0.65),
    "winogrande": (0.940, 0.5, 0.97),
}


def assert_half_unit(value, printed, unit):
    """`value` rounds to `printed` in the last printed digit `unit`."""
    assert abs(value - printed) <= 0.5001 * unit + 1e-12, (value, printed)


def demo_draws(T, seed=0):
    """(one-hot features, labels, costs, uniforms, P(s|x)) of the demo instance with independent labels."""
    generator = np.random.default_rng(seed)
    kind = generator.choice(3, size=T, p=ref.DEMO_WEIGHTS)
    truth = ref.DEMO_SATISFACTION[kind]
    labels = (generator.random((T, 3)) < truth).astype(float)
    return np.eye(3)[kind], labels, ref.DEMO_COST[kind], generator.random(T), truth


def zeros(M=3, d=3):
    return {"w": np.zeros((M, d)), "b": np.zeros(M)}


def mlp_params(generator, M=3, d=4, h=5):
    shapes = {"w1": (h, d), "b1": h, "gain": h, "bias": h, "w2": (M, h), "b2": M}
    return {name: generator.normal(size=shape) for name, shape in shapes.items()}


def run(draws, predictor=None, **settings):
    features, labels, cost, u, truth = draws
    predictor = ("given", truth) if predictor is None else predictor
    return ref.messplus(features, labels, cost, u, predictor=predictor, **({"V": 1e-3, "alpha": 0.75, "c": 0.1} | settings))


# --- Decision and queue (4.1, 4.2, 2.3) --------------------------------------------------------------------------


def test_decision_worked_example():
    cost, sat_hat = (10, 40, 200), (0.5, 0.7, 0.8)
    printed = {0: (0.1, 0.4, 2), 1: (0.35, 0.45, 1.95), 2: (0.6, 0.5, 1.9), 8: (2.1, 0.8, 1.6), 32: (8.1, 2, 0.4)}
    for queue, values in printed.items():
        np.testing.assert_allclose(ref.scores(cost, sat_hat, queue, 0.01, 0.75), values, atol=1e-12)
    assert [ref.decide(cost, sat_hat, q, 0.01, 0.75) for q in printed] == [0, 0, 1, 1, 2]
    # Switch points 0.01 * 30 / 0.2 = 1.5 and 0.01 * 160 / 0.1 = 16.
    assert [ref.decide(cost, sat_hat, q, 0.01, 0.75) for q in (1.49, 1.51, 15.9, 16.1)] == [0, 1, 1, 2]


def test_decision_is_the_best_one_hot_vector():
    generator = np.random.default_rng(0)
    for _ in range(200):
        M = generator.integers(1, 6)
        cost, sat_hat = generator.random(M), generator.random(M)
        queue, V, alpha = generator.random(3) * (5, 3, 1)
        y = min(np.eye(M), key=lambda y: V * (y @ cost) + queue * (alpha - y @ sat_hat))
        assert y[ref.decide(cost, sat_hat, queue, V, alpha)] == 1
        assert ref.decide(cost, sat_hat, queue, V, 0.0) == ref.decide(cost, sat_hat, queue, V, alpha)
        assert ref.decide(cost, sat_hat, 0.0, V, alpha) == np.argmin(cost)
        assert ref.decide(cost, sat_hat, queue, 0.0, alpha) == np.argmax(sat_hat)


def test_ties_go_to_the_first_index():
    assert ref.decide([3, 1, 1], [0.2, 0.5, 0.5], 2.0, 1.0, 0.5) == 1
    assert ref.decide([3, 2, 1], [0.2, 0.5, 0.5], 0.0, 0.0, 0.5) == 0
    assert ref.cheapest_sufficient([1, 2, 3], [0.2, 0.5, 0.9], 0.4) == 1
    assert ref.cheapest_sufficient([1, 2, 3], [0.2, 0.9, 0.9], 0.95) == 1


def test_queue_worked_example():
    np.testing.assert_allclose(ref.queue_path([0, 1, 0, 0, 1, 1, 1, 1], 0.7), [0.7, 0.4, 1.1, 1.8, 1.5, 1.2, 0.9, 0.6])
    assert ref.queue_step(0.1, 1, 0.7) == 0.0


def test_queue_dominates_the_debt_on_every_path():
    for bits in itertools.product([0, 1], repeat=9):
        path, debt = ref.queue_path(bits, 0.7), np.cumsum(0.7 - np.array(bits))
        assert (path >= debt - 1e-12).all() and (path >= 0).all()
        # Closed form of the recursion: the largest debt accumulated since some round.
        since = [max(0.0, *(debt[t] - ([0, *debt])[k] for k in range(t + 1))) for t in range(9)]
        np.testing.assert_allclose(path, since, atol=1e-12)


# --- Exploration (4.9, 8.24) -------------------------------------------------------------------------------------


def test_expected_exploration_counts():
    for c, printed, unit in ((0.1, (23.64, 133.3, 749.7), (0.01, 0.1, 0.1)), (1.0, (236.4, 1332.6, 7497.1), (0.1,) * 3)):
        for T, value, digit in zip((1_000, 10_000, 100_000), printed, unit, strict=True):
            assert_half_unit(ref.expected_explorations(T, c), value, digit)
            assert ref.expected_explorations(T, c) == pytest.approx(4 * c / 3 * T**0.75, rel=5e-3)
    for c, printed, unit in ((0.01, 3.7, 0.1), (0.1, 28, 1), (1.0, 266, 1)):
        assert_half_unit(ref.expected_explorations(1172, c, force_first=True), printed, unit)


def test_exploration_probability_and_flags():
    assert ref.explore_probability(16, 0.1) == pytest.approx(0.05)
    assert [ref.explore_probability(t, 2.0) for t in (1, 16, 81)] == pytest.approx([1.0, 1.0, 2 / 3])  # 1 up to c^4.
    u = np.random.default_rng(0).random(200)
    assert ref.explored(u, 0.0).tolist() == [True] + [False] * 199
    assert not ref.explored(u, 0.0, force_first=False).any() and ref.explored(u, math.inf).all()
    assert (ref.explored(u, 0.1, force_first=False) <= ref.explored(u, 0.5, force_first=False)).all()
    assert ref.explored(u, 0.3, power=0.0, force_first=False).tolist() == (u < 0.3).tolist()


def test_distribution_of_the_number_of_explorations():
    distribution = ref.exploration_distribution(4, 0.5)
    p = [ref.explore_probability(t, 0.5) for t in range(1, 5)]
    p[0] = 1.0
    brute = np.zeros(5)
    for bits in itertools.product([0, 1], repeat=4):
        brute[sum(bits)] += math.prod(q if b else 1 - q for q, b in zip(p, bits, strict=True))
    np.testing.assert_allclose(distribution, brute, atol=1e-15)
    distribution = ref.exploration_distribution(1000, 0.1)
    mean = distribution @ np.arange(1001)
    assert mean == pytest.approx(ref.expected_explorations(1000, 0.1, force_first=True)) == pytest.approx(24.538, abs=1e-3)
    assert ref.most_explorations(mean) == 65 and distribution[66:].sum() < 1e-8
    assert distribution[: int(mean / 2) + 1].sum() <= math.exp(-mean / 8)  # Chernoff, Lemma A.3.


# --- Predictor and training (3.2, 4.6) ---------------------------------------------------------------------------


def test_two_sgd_steps_worked_example():
    # First step: logits (.2, -.8), (sigma - s) / 2 = (-.225083, .155013); W + .5 (.225083 x - .1 W), etc.
    params, velocity = {"w": np.array([[0.2, 0.0], [0.0, -0.4]])}, {"w": np.zeros((2, 2))}
    printed = [
        ((1, 2), (1, 0), 0.4846198, [[0.3025415, 0.2250830], [-0.0775064, -0.5350128]]),
        ((1, -1), (0, 1), 0.6114796, [[0.2498630, 0.5462423], [-0.0464924, -0.7266680]]),
    ]
    for x, s, loss, w in printed:
        full = params | {"b": np.zeros(2)}
        value, grads = ref.loss_and_grads("logistic", full, np.array(x, float), s)
        params, velocity = ref.sgd_step(params, velocity, {"w": grads["w"]}, 0.5, 0.9, 0.1)
        assert value == pytest.approx(loss, abs=5e-8)
        np.testing.assert_allclose(params["w"], w, atol=5.01e-8)


def test_two_sgd_steps_unrolled_by_hand():
    w, v = np.array([[0.2, 0.0], [0.0, -0.4]]), np.zeros((2, 2))
    params, velocity = {"w": w, "b": np.zeros(2)}, {"w": v, "b": np.zeros(2)}
    b, vb = np.zeros(2), np.zeros(2)
    for x, s in (((1.0, 2.0), (1, 0)), ((1.0, -1.0), (0, 1))):
        error = [(1 / (1 + math.exp(-(w[m, 0] * x[0] + w[m, 1] * x[1] + b[m]))) - s[m]) / 2 for m in range(2)]
        v = np.array([[0.9 * v[m, i] + error[m] * x[i] + 0.1 * w[m, i] for i in range(2)] for m in range(2)])
        vb = np.array([0.9 * vb[m] + error[m] + 0.1 * b[m] for m in range(2)])
        w, b = w - 0.5 * v, b - 0.5 * vb
        _, grads = ref.loss_and_grads("logistic", params, np.array(x), s)
        params, velocity = ref.sgd_step(params, velocity, grads, 0.5, 0.9, 0.1)
        np.testing.assert_allclose(params["w"], w, atol=1e-15)
        np.testing.assert_allclose(params["b"], b, atol=1e-15)
        np.testing.assert_allclose(velocity["w"], v, atol=1e-15)


def test_clipping_comes_before_decay_and_is_global():
    params, velocity = {"a": np.array([1.0]), "b": np.array([2.0])}, {"a": np.array([0.5]), "b": np.array([0.0])}
    grads = {"a": np.array([3.0]), "b": np.array([4.0])}
    # Norm 5 -> 1: gradients (.6, .8); v = .9 (.5, 0) + (.6, .8) + .1 (1, 2) = (1.15, 1.0).
    new, v = ref.sgd_step(params, velocity, grads, 0.1, 0.9, 0.1, clip=1.0)
    assert [v["a"][0], v["b"][0], new["a"][0], new["b"][0]] == pytest.approx([1.15, 1.0, 0.885, 1.9])
    same, _ = ref.sgd_step(params, velocity, grads, 0.1, 0.9, 0.1, clip=5.0)
    free, _ = ref.sgd_step(params, velocity, grads, 0.1, 0.9, 0.1)
    assert same == free


@pytest.mark.parametrize("kind", ["logistic", "mlp", "mlp-dropout"])
def test_gradients_against_finite_differences(kind):
    generator = np.random.default_rng(1)
    M, d, h = 3, 4, 5
    params = {"w": generator.normal(size=(M, d)), "b": generator.normal(size=M)}
    extra = {"l2": 0.3, "mask": np.array([1.0, 0.0, 1.0])}
    if kind != "logistic":
        params = mlp_params(generator, M, d, h)
    if kind == "mlp-dropout":
        extra |= {"keep_input": np.array([1, 0, 1, 1]), "keep_hidden": np.array([1, 1, 0, 1, 1]), "rate": 0.2}
    x, s, kind = generator.normal(size=d), np.array([1.0, 0.0, 0.0]), kind[:8].split("-")[0]
    _, grads = ref.loss_and_grads(kind, params, x, s, **extra)
    assert set(grads) == set(params)
    for name, value in params.items():
        for index in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = {n: p.copy() for n, p in params.items()}
                moved[name][index] += sign * 1e-6
                sides.append(ref.loss_and_grads(kind, moved, x, s, **extra)[0])
            assert grads[name][index] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=2e-8), (name, index)


def test_loss_is_stable_and_is_the_mean_cross_entropy():
    z, s = np.array([0.3, -2.0, 1.0]), np.array([1.0, 0.0, 1.0])
    p = expit(z)
    assert ref.loss(z, s) == pytest.approx(-np.mean(s * np.log(p) + (1 - s) * np.log(1 - p)), abs=1e-15)
    assert ref.loss([900.0, -900.0], [0, 1]) == 900.0 and ref.loss([900.0, -900.0], [1, 0]) == 0.0
    assert ref.loss(z, s, {"a": np.array([3.0, 4.0])}, l2=0.1) == pytest.approx(ref.loss(z, s) + 1.25)
    assert ref.loss(z, s, mask=np.array([1, 0, 0])) == pytest.approx(-math.log(p[0]) / 3)


def test_mlp_by_hand():
    # a = (1, 3): mean 2, deviation 1, so normal = (-1, 1); gain 2, bias .5 -> (-1.5, 2.5) -> ReLU (0, 2.5).
    params = {"w1": np.array([[1.0], [2.0]]), "b1": np.array([0.0, 1.0]), "gain": np.full(2, 2.0), "bias": np.full(2, 0.5)}
    params |= {"w2": np.array([[7.0, 2.0]]), "b2": np.array([-1.0])}
    logits, _ = ref.mlp_forward(params, np.array([1.0]), epsilon=0.0)
    assert logits == pytest.approx([4.0])
    logits, _ = ref.mlp_forward(params, np.array([1.0]))
    assert logits == pytest.approx([2 * (0.5 + 2 / math.sqrt(1 + 1e-5)) - 1])
    logits, _ = ref.mlp_forward(params, np.array([0.5]), np.array([1]), np.array([1, 1]), rate=0.5, epsilon=0.0)
    assert logits == pytest.approx([9.0])  # Input .5 / .5 = 1, hidden 2.5 / .5 = 5.
    logits, _ = ref.mlp_forward(params, np.array([1.0]), np.array([1]), np.array([1, 0]), rate=0.5)
    assert logits == pytest.approx([-1.0])


def test_theory_step_sizes_and_closed_forms_of_lemma_a1():
    assert [ref.theory_step_size(k, 0.5, 2.0) for k in (1, 7, 9, 19)] == pytest.approx([0.5, 0.5, 0.4, 0.2])
    for mu, L in ((0.1, 0.55), (1.0, 1.0), (0.3, 1.0), (0.01, 0.25)):
        k0 = math.floor(2 * L / mu - 1) + 1
        for k in (k0 + 1, k0 + 2, k0 + 10, 10 * k0 + 3):
            H, bound = ref.lemma_closed_forms(k, mu, L)
            assert ref.lemma_H(k, mu, L) == pytest.approx(H, rel=1e-9, abs=1e-300)
            assert ref.lemma_G(k, mu, L) <= bound
        for k in range(2, k0 + 1):  # Geometric sum; exponent k - 1 as in 8(14).
            assert ref.lemma_G(k, mu, L) == pytest.approx((1 - (1 - mu / L) ** (k - 1)) / (L * mu))
            assert ref.lemma_G(k, mu, L) <= 1 / (L * mu) + 1e-12
        assert ref.lemma_A1(1, 3.0, mu, L, 1.0) == 3.0


def test_lemma_a1_on_a_noisy_quadratic():
    # F(z) = (L z1^2 + mu z2^2) / 2 with gradient noise of variance sigma^2: the mean of z^2 has an exact recursion.
    mu, L, variance = 0.2, 1.0, 0.6
    second = np.array([4.0, 9.0])
    first_gap = (L * second[0] + mu * second[1]) / 2
    for k in range(1, 200):
        gap = (L * second[0] + mu * second[1]) / 2
        assert gap <= ref.lemma_A1(k, first_gap, mu, L, variance) + 1e-12
        eta = ref.theory_step_size(k, mu, L)
        second = (1 - eta * np.array([L, mu])) ** 2 * second + eta**2 * variance / 2


# --- The whole algorithm -----------------------------------------------------------------------------------------


def test_four_rounds_by_hand():
    labels = np.array([[0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
    cost = np.array([[1.0, 2, 9], [1, 3, 9], [2, 3, 8], [1, 2, 7]])
    sat_hat = np.tile([0.5, 0.7, 0.9], (4, 1))
    u = [0.9, 0.5, 0.9, 0.001]
    path = ref.messplus(np.zeros((4, 1)), labels, cost, u, predictor=("given", sat_hat), V=0.1, alpha=0.75, c=0.1)
    # t=1 forced, model 2 fails, Q .75. t=2: .1 E - .75 s_hat = (-.275, -.225, .225) -> model 0 fails, Q 1.5.
    # t=3: (.2, .3, .8) - 1.5 s_hat = (-.55, -.75, -.55) -> model 1 fails, Q 2.25. t=4: .001 < .1 / sqrt 2, Q 2.
    assert path["explored"].tolist() == [True, False, False, True] and path["choice"].tolist() == [2, 0, 1, 2]
    assert path["cost"].tolist() == [12, 1, 3, 10] and path["cost_served"].tolist() == [9, 1, 3, 7]
    assert path["queue"].tolist() == path["true_queue"].tolist() == [0.75, 1.5, 2.25, 2.0]
    assert path["margin"][1:3] == pytest.approx([0.05, 0.2])
    best = ref.messplus(
        np.zeros((4, 1)), labels, cost, u, predictor=("given", sat_hat), V=0.1, alpha=0.75, c=0.1, serve="best"
    )
    # t=1 served by model 1, Q 0; t=2 cheapest, fails, Q .75; t=3 (-.175, -.225, .125) -> 1 fails, Q 1.5; t=4 model 2.
    assert best["choice"].tolist() == [1, 0, 1, 2] and best["queue"].tolist() == [0.0, 0.75, 1.5, 1.25]
    numbers = ref.metrics(path, cost, 0.75, 0.1, t_burn=2)
    assert numbers["cost_total"] == 26 and numbers["sat_mean"] == 0.25 and numbers["violation"] == 0.5
    assert numbers["served_ratio"].tolist() == [0.25, 0.25, 0.5] and numbers["call_count"].tolist() == [3, 3, 2]
    assert numbers["n_explore"] == 2 and numbers["explore_cost"] == 22 and numbers["explore_overhead"] == (3 + 3) / 4
    assert numbers["first_ok"] == 5 and numbers["last_bad"] == 4 and numbers["queue_per_round"] == 0.5
    assert numbers["tavg_sat"] == 0.25 / 4 and numbers["run_cost"].tolist() == [12, 6.5, 16 / 3, 6.5]
    assert math.isnan(numbers["train_loss_mean"])


def test_training_happens_on_explored_rounds_only():
    draws = demo_draws(60, 3)
    settings = {"c": 0.5, "lr": 0.3, "momentum": 0.9, "weight_decay": 0.01, "l2": 0.02}
    path = run(draws, ("logistic", zeros()), **settings)
    features, labels, _, u, _ = draws
    params, velocity, steps = zeros(), zeros(), 0
    for i in range(60):
        np.testing.assert_allclose(path["sat_hat"][i], expit(params["w"] @ features[i] + params["b"]), atol=1e-14)
        if u[i] < 0.5 * (i + 1) ** -0.25 or i == 0:
            value, grads = ref.loss_and_grads("logistic", params, features[i], labels[i], 0.02)
            params, velocity = ref.sgd_step(params, velocity, grads, 0.3, 0.9, 0.01)
            steps += 1
            assert path["loss"][i] == value and path["explored"][i]
        else:
            assert math.isnan(path["loss"][i]) and not path["explored"][i]
        assert path["steps"][i] == steps
    np.testing.assert_array_equal(path["params"]["w"], params["w"])
    np.testing.assert_array_equal(path["velocity"]["b"], velocity["b"])
    numbers = ref.metrics(path, draws[2], 0.75, 0.5)
    total = path["loss"][path["explored"]].sum()
    assert numbers["train_loss_paper"] == pytest.approx(total / (60 * 0.5))
    assert numbers["train_loss_mean"] == pytest.approx(total / numbers["n_explore"])


def test_predictor_trajectory_does_not_depend_on_the_queue():
    draws = demo_draws(150, 4)
    first = run(draws, ("logistic", zeros()), c=0.3)
    changes = ({"V": 0.1}, {"alpha": 0.9}, {"serve": "best"}, {"cost_mode": "last"}, {"cost_mode": "running_mean"})
    for change in changes:
        other = run(draws, ("logistic", zeros()), c=0.3, **change)
        np.testing.assert_array_equal(first["sat_hat"], other["sat_hat"])  # Section 3.6.
        np.testing.assert_array_equal(first["explored"], other["explored"])
        given = run(draws, ("given", first["sat_hat"]), c=0.3, **change)
        for name in ("choice", "cost", "sat", "queue", "cost_hat"):
            np.testing.assert_array_equal(given[name], other[name])


def test_repeated_steps_and_theory_steps():
    draws = demo_draws(30, 5)
    x, s = draws[0][0], draws[1][0]
    path = run(draws, ("logistic", zeros()), c=0.0, sgd_repeats=3, step_rule=("theory", 0.5, 0.9), l2=0.5)
    params, velocity = zeros(), zeros()
    for k in (1, 2, 3):  # min{4 / (k + 1), 1 / .9} = 1.111, 1.111, 1.
        _, grads = ref.loss_and_grads("logistic", params, x, s, 0.5)
        params, velocity = ref.sgd_step(params, velocity, grads, min(4 / (k + 1), 1 / 0.9))
    np.testing.assert_array_equal(path["params"]["w"], params["w"])
    assert path["steps"].tolist() == [3] * 30 and path["loss"][0] == pytest.approx(math.log(2))


def test_unknown_labels_do_not_train():
    draws = demo_draws(40, 18)
    mask = np.random.default_rng(19).integers(0, 2, size=(40, 3))
    mask[:, 1] = 0
    path = run(draws, ("logistic", zeros()), c=1.0, label_mask=mask)
    flipped = (draws[0], np.where(mask, draws[1], 1 - draws[1]), *draws[2:])
    np.testing.assert_array_equal(path["sat_hat"], run(flipped, ("logistic", zeros()), c=1.0, label_mask=mask)["sat_hat"])
    assert (path["sat_hat"][:, 1] == 0.5).all() and path["loss"][0] == pytest.approx(mask[0].sum() * math.log(2) / 3)
    assert path["cost"][0] == draws[2][0].sum()  # Only the loss is masked, not the bill.


def test_mlp_training_uses_the_masks_and_prediction_does_not():
    generator = np.random.default_rng(6)
    draws = demo_draws(40, 6)
    params = mlp_params(generator, d=3)
    masks = {"rate": 0.4, "input": generator.random((40, 3)) < 0.6, "hidden": generator.random((40, 5)) < 0.6}
    path = run(draws, ("mlp", params, masks), c=1.0, lr=0.05, momentum=0.9)
    plain = run(draws, ("mlp", params, None), c=1.0, lr=0.05, momentum=0.9)
    np.testing.assert_array_equal(path["sat_hat"][0], plain["sat_hat"][0])
    assert not np.allclose(path["sat_hat"][1], plain["sat_hat"][1])
    value, _ = ref.loss_and_grads(
        "mlp", params, draws[0][0], draws[1][0], keep_input=masks["input"][0], keep_hidden=masks["hidden"][0], rate=0.4
    )
    assert path["loss"][0] == value
    everything = {"rate": 0.0, "input": np.ones((40, 2, 3)), "hidden": np.ones((40, 2, 5))}
    twice = run(draws, ("mlp", params, everything), c=1.0, lr=0.05, momentum=0.9, sgd_repeats=2)
    also = run(draws, ("mlp", params, None), c=1.0, lr=0.05, momentum=0.9, sgd_repeats=2)
    np.testing.assert_array_equal(twice["sat_hat"], also["sat_hat"])


def test_cost_modes():
    features, labels, cost, u, truth = demo_draws(80, 7)
    cost = cost * np.random.default_rng(8).random((80, 3))
    draws = (features, labels, cost, u, truth)
    for mode in ("last", "running_mean"):
        path = run(draws, cost_mode=mode, c=0.3, force_first=False)
        seen = [[] for _ in range(3)]
        last = np.ones(3)
        for i in range(80):
            mean = [np.mean(values) if values else 1e-6 for values in seen]
            np.testing.assert_allclose(path["cost_hat"][i], last if mode == "last" else mean)
            for m in range(3):
                if path["explored"][i] or path["choice"][i] == m:
                    seen[m].append(cost[i, m])
            last = cost[i] if path["explored"][i] else last
    np.testing.assert_array_equal(run(draws)["cost_hat"], cost)


def test_sparse_feedback_keeps_two_queues():
    draws = demo_draws(300, 9)
    observed = np.random.default_rng(10).random(300) < 0.4
    observed[0] = False
    path = run(draws, ("logistic", zeros()), c=0.5, observed=observed)
    assert not path["explored"][~observed].any()
    np.testing.assert_array_equal(path["explored"], ref.explored(draws[3], 0.5) & observed)
    np.testing.assert_allclose(path["queue"][observed], ref.queue_path(path["sat"][observed], 0.75))
    np.testing.assert_allclose(path["true_queue"], ref.queue_path(path["sat"], 0.75))
    still = np.flatnonzero(~observed)[1:]
    np.testing.assert_array_equal(path["queue"][still], path["queue"][still - 1])
    everything = run(draws, ("logistic", zeros()), c=0.5, observed=np.ones(300, bool))
    np.testing.assert_array_equal(everything["queue"], run(draws, ("logistic", zeros()), c=0.5)["true_queue"])


def test_limits_of_the_settings():
    draws = demo_draws(400, 11)
    labels, cost, truth = draws[1], draws[2], draws[4]
    path = run(draws, c=1e9)
    assert path["explored"].all() and (path["choice"] == 2).all()
    np.testing.assert_allclose(path["cost"], cost.sum(1))
    best = run(draws, c=1e9, serve="best")
    np.testing.assert_array_equal(best["sat"], labels.max(1))
    np.testing.assert_array_equal(best["choice"], [max(m for m in range(3) if row[m] == row.max()) for row in labels])
    path = run(draws, c=0.0, force_first=False, alpha=0.0)
    assert (path["queue"] == 0).all() and (path["choice"] == 0).all()  # Q = 0: the cheapest model.
    path = run(draws, c=0.0, V=0.0)
    before = np.append(0.0, path["queue"][:-1])
    greedy = np.where(before > 0, truth.argmax(1), 0)
    np.testing.assert_array_equal(path["choice"][1:], greedy[1:])
    assert path["explored"].sum() == 1 and (path["steps"] == 0).all()
    path = run(draws, c=0.0, alpha=1.0)
    assert (np.diff(path["queue"]) >= 0).all() and path["queue"][-1] > 30  # Infeasible: linear growth.
    path = run(draws, pred_energy=16.43)
    np.testing.assert_allclose(path["cost"], run(draws)["cost"] + 16.43)
    # A held queue V lambda is the fixed shadow price: argmin E - lambda s_hat.
    path = run(draws, c=0.0, force_first=False, held_queue=1e-3 * 600.0)
    np.testing.assert_array_equal(path["choice"], (cost - 600.0 * truth).argmin(1))


def test_one_model_and_pathwise_inequality():
    draws = tuple(a[:, :1] if a.ndim == 2 else a for a in demo_draws(50, 12))
    path = run(draws)
    assert (path["choice"] == 0).all()
    np.testing.assert_allclose(path["cost"], draws[2][:, 0])
    for seed in range(3):
        path = run(demo_draws(200, seed), alpha=0.8)
        steps = np.diff(np.append(0.0, path["queue"]))
        assert (path["queue"] >= np.cumsum(0.8 - path["sat"]) - 1e-9).all()
        free = np.abs(steps - (0.8 - path["sat"])) < 1e-9
        assert (free | (path["queue"] == 0)).all()


def test_violation_of_a_perfectly_informed_run():
    # Section 7, test 2: alpha = .80, V = 1e-2, T = 750 -> .0350 in the mean (V lambda* / T would be .0533).
    violations = []
    for seed in range(40):
        path = run(demo_draws(750, seed), V=1e-2, alpha=0.8)
        violations.append(0.8 - path["sat"].mean())
    error = np.std(violations, ddof=1) / math.sqrt(40)
    assert abs(np.mean(violations) - 0.0350) < 4 * error and error < 0.003


def test_sla_times_use_integers():
    served = [0, 1, 1, 1, 1, 1, 1, 0, 1, 1]
    brute = [t for t in range(1, 11) if sum(served[:t]) * 1000 >= 800 * t]
    assert brute == [5, 6, 7, 10]  # 4/5 and 8/10 are met exactly, 7/9 is not.
    assert ref.sla_times(served, 800, t_burn=1) == (5, 9) and ref.sla_times(served, 800, t_burn=8) == (10, 9)
    assert ref.sla_times(served, 800) == (11, 9) and ref.sla_times([1, 1], 800, t_burn=1) == (1, 0)
    assert ref.sla_times([1] * 7 + [0] * 3, 700, t_burn=10) == (10, 0)


# --- Oracles (2.5, 4.4, 2.7, 2.8) --------------------------------------------------------------------------------


def test_oracle_worked_examples():
    for alpha, value, multiplier in ((0.55, 1.5, 0.0), (0.70, 3.5, 20.0), (0.85, 14.0, 106.667)):
        result = ref.opt_lp(*TWO_TYPES, alpha)
        assert result.value == pytest.approx(value) and result.multiplier == pytest.approx(multiplier, abs=5e-4)
    np.testing.assert_allclose(ref.opt_lp(*TWO_TYPES, 0.70).y[1], [1 / 3, 2 / 3, 0], atol=1e-9)
    np.testing.assert_allclose(ref.opt_lp(*TWO_TYPES, 0.85).y, [[0, 1, 0], [0, 0.5, 0.5]], atol=1e-9)
    single = ref.opt_stat(*TWO_TYPES, 0.70)
    assert single.value == pytest.approx(4.0714, abs=5e-5) and single.multiplier == pytest.approx(25.714, abs=5e-4)
    np.testing.assert_allclose(single.y[0], [0.4286, 0.5714, 0], atol=5e-5)


@pytest.mark.parametrize(
    ("alpha", "stat", "context", "label"),
    [
        (0.75, (181.4839, 1122.58), (138.25, 750), (76.39, 180)),
        (0.70, (125.3548, 1122.58), (101.2, 720), (67.39, 180)),
        (0.80, (270.3471, 7669.42), (252.0, 4000), (85.4125, 225)),
    ],
)
def test_demo_instance(alpha, stat, context, label):
    results = (ref.opt_stat(*DEMO, alpha), ref.opt_context(*DEMO, alpha), ref.opt_label(*DEMO, alpha))
    for result, (value, multiplier) in zip(results, (stat, context, label), strict=True):
        assert result.value == pytest.approx(value, abs=5e-5) and result.multiplier == pytest.approx(multiplier, abs=5e-3)
    assert results[2].value <= results[1].value <= results[0].value
    together = ref.opt_label(*DEMO, alpha, coupling="comonotone")
    assert together.feasible and results[2].value <= together.value <= results[1].value


def test_demo_marginals_and_policies():
    w, P, E = DEMO
    np.testing.assert_allclose(w @ P, [0.64, 0.795, 0.916])
    np.testing.assert_allclose(w @ E, [58, 232, 1160])
    assert E.max() - E.min() == 1450
    np.testing.assert_allclose(ref.opt_stat(*DEMO, 0.75).y[0], [0.2903, 0.7097, 0], atol=5e-5)
    expected = [[1, 0, 0], [0, 1, 0], [0.41667, 0.58333, 0]]
    np.testing.assert_allclose(ref.opt_context(*DEMO, 0.75).y, expected, atol=5e-6)
    assert [ref.q_of_beta(w, P, P, beta) for beta in (0.03, 0.05, 0.1)] == pytest.approx([0.906, 0.906, 0.886])


def test_oracle_is_the_maximum_of_its_dual():
    # Section 4.4: max over lambda >= 0 of Sum w min_m(E - lambda P) + lambda alpha, attained at a breakpoint.
    generator = np.random.default_rng(13)
    for _ in range(20):
        n, M = generator.integers(1, 5), generator.integers(2, 5)
        w, P, E = generator.dirichlet(np.ones(n)), generator.random((n, M)), generator.random((n, M)) * 10
        alpha = generator.uniform(0.0, (w * P.max(1)).sum())
        lambdas = [0.0]
        for k, i, j in itertools.product(range(n), range(M), range(M)):
            if P[k, i] > P[k, j]:
                lambdas.append(max(0.0, (E[k, i] - E[k, j]) / (P[k, i] - P[k, j])))
        dual = max((w * (E - x * P).min(1)).sum() + x * alpha for x in lambdas)
        result = ref.opt_lp(w, P, E, alpha)
        assert result.value == pytest.approx(dual, abs=1e-8)
        assert (w * (E - result.multiplier * P).min(1)).sum() + result.multiplier * alpha == pytest.approx(dual, abs=1e-6)
        np.testing.assert_allclose(result.y.sum(1), 1, atol=1e-9)


def test_infeasible_oracles_are_flagged():
    assert not ref.opt_stat(*DEMO, 0.93).feasible and math.isnan(ref.opt_stat(*DEMO, 0.93).value)
    assert ref.opt_label(*DEMO, 0.93).feasible and not ref.opt_label(*DEMO, 0.93, coupling="comonotone").feasible
    assert ref.opt_stat(*DEMO, 0.916).value == pytest.approx(1160)


def test_hindsight_by_enumeration():
    _, labels, cost, _, _ = demo_draws(6, 14)
    result = ref.opt_hindsight(labels, cost, 0.5)
    rows = range(6)
    plans = itertools.product(range(3), repeat=6)
    best = min(sum(cost[i, m[i]] for i in rows) / 6 for m in plans if sum(labels[i, m[i]] for i in rows) >= 3)
    assert result.value == pytest.approx(best)  # 0/1 labels and an integer target: a deterministic plan is optimal.


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_derived_quantities_of_the_benchmarks(name):
    N, stat, stat_mj, mix, stat_price, label, label_mj, label_price = DERIVED[name]
    contexts = ref.cell_contexts(name)
    assert sum(ref.CELLS[name]) == N
    for value, printed in zip(100 * contexts[0] @ contexts[1], SINGLE[name], strict=True):
        assert_half_unit(value, printed, 0.01)
    blind, seeing = ref.opt_stat(*contexts, ALPHA[name]), ref.opt_lp(*contexts, ALPHA[name])
    assert_half_unit(blind.value, stat, 0.1)
    assert_half_unit(blind.value * N / 1e6, stat_mj, 0.001)
    assert_half_unit(blind.multiplier, stat_price, 1)
    assert_half_unit(seeing.value, label, 0.1)
    assert_half_unit(seeing.value * N / 1e6, label_mj, 0.001)
    assert_half_unit(seeing.multiplier, label_price, 1)
    for value, printed in zip(blind.y[0], mix, strict=True):
        assert_half_unit(value, printed, 0.001)


# --- Environments (2.7, 4.5) -------------------------------------------------------------------------------------


def test_cell_posterior_worked_examples():
    assert [ref.cell_labels(j).tolist() for j in (0, 1, 4, 6)] == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]]
    x = np.array([0.5, -1.0, 1.0])
    for kappa, printed in ((0.15, (0.62433, 0.70882, 0.82337)), (1.0, (0.72424, 0.45049, 0.93703))):
        posterior, labels = ref.cell_probabilities(x, ref.CELLS["winogrande"], kappa)
        np.testing.assert_allclose(labels, printed, atol=5.01e-6)
        assert posterior.sum() == pytest.approx(1)
        normal = [math.exp(-0.5 * sum((x - kappa * (2 * ref.cell_labels(j) - 1)) ** 2)) for j in range(8)]
        bayes = np.array(normal) * ref.CELLS["winogrande"]  # Bayes' rule with the full normal densities.
        np.testing.assert_allclose(posterior, bayes / bayes.sum(), atol=1e-14)
    _, labels = ref.cell_probabilities(x, ref.CELLS["winogrande"], 0.0)
    np.testing.assert_allclose(labels, ref.cell_contexts("winogrande")[0] @ ref.cell_contexts("winogrande")[1])
    assert [ref.feature_auc(k) for k in (0.143, 0.371, 0.595, 1.0)] == pytest.approx([0.58, 0.70, 0.80, 0.92], abs=2e-3)


def test_cell_request_from_its_draws():
    counts, mean, sd = [1, 0, 1, 2], [10.0, 100.0], [3.0, 4.0]  # M = 2, edges .25, .25, .5.
    cells = [ref.cell_request(u, np.zeros(3), np.zeros(2), counts, 1.0, mean, sd)[1].tolist() for u in (0, 0.25, 0.5, 0.99)]
    assert cells == [[0, 0], [1, 0], [1, 1], [1, 1]]
    x, _, cost = ref.cell_request(0.3, np.array([0.1, 0.2, 0.3]), np.array([-9.0, 2.0]), counts, 0.5, mean, sd)
    np.testing.assert_allclose(x, [0.6, -0.3, 0.3, 1.0])
    np.testing.assert_allclose(cost, [0.5, 108.0])  # 10 - 27 < .05 * 10.


def test_oracle_with_features_lies_between_blind_and_clairvoyant():
    generator = np.random.default_rng(15)
    blind, seeing = (f(*ref.cell_contexts("winogrande"), 0.7).value for f in (ref.opt_stat, ref.opt_lp))
    counts, mean, sd = ref.CELLS["winogrande"], [1] * 3, [0] * 3
    values = []
    for kappa in (0.0, 0.6, 1.2):
        z = generator.normal(size=(400, 3))
        x = [ref.cell_request((i + 0.5) / 400, z[i], np.zeros(3), counts, kappa, mean, sd)[0] for i in range(400)]
        values.append(ref.opt_lp(*ref.cell_contexts("winogrande", kappa, np.array(x)), 0.7).value)
    assert values[0] == pytest.approx(blind) and seeing < values[2] < values[1] < values[0]


def test_probit_conditional_probability():
    generator = np.random.default_rng(16)
    accuracy, w, rho_f, rho_c = [0.3, 0.8], np.array([[0.6, 0.8], [1.0, 0.0]]), 0.5, 0.6
    x = np.array([0.7, -0.4])
    n = 20_000
    labels = [
        ref.probit_satisfied(x, generator.normal(), generator.normal(size=2), accuracy, w, rho_f, rho_c) for _ in range(n)
    ]
    p = ref.probit_probability(x, accuracy, w, rho_f)
    assert (abs(np.mean(labels, 0) - p) < 5 * np.sqrt(p * (1 - p) / n)).all()
    nodes, weight = np.polynomial.hermite_e.hermegauss(60)  # The mean over x is the accuracy, exactly.
    marginal = sum(
        weight[i] * ref.probit_probability(np.array([nodes[i], 0.0]), [0.8], np.array([[1.0, 0.0]]), rho_f)[0]
        for i in range(60)
    )
    assert marginal / weight.sum() == pytest.approx(0.8, abs=1e-9)
    np.testing.assert_allclose(ref.probit_probability(x, accuracy, w, 0.0), accuracy)
    cost = sum(weight[i] * ref.lognormal_cost(3.0, 0.4, nodes[i]) for i in range(60)) / weight.sum()
    assert cost == pytest.approx(3.0)


@pytest.mark.parametrize("coupling", ["independent", "comonotone"])
def test_label_distributions(coupling):
    p = [0.5, 0.2, 0.5, 1.0]
    distribution = ref.label_distribution(p, coupling)
    assert sum(q for _, q in distribution) == pytest.approx(1)
    np.testing.assert_allclose(sum(q * s for s, q in distribution), p)
    if coupling == "comonotone":
        u = np.linspace(0.0005, 0.9995, 1000)
        for s, q in distribution:
            assert np.mean([all(s == (v < np.array(p))) for v in u]) == pytest.approx(q, abs=1e-9)


# --- Baselines (4.3, 4.7, 4.8) -----------------------------------------------------------------------------------


def test_educated_guessing_worked_examples():
    p, sweeps = ref.educated_guessing((0.4, 0.6, 0.7), 0.55)
    assert sweeps == 0 and p == pytest.approx([1 / 3] * 3)
    p, sweeps = ref.educated_guessing((0.4, 0.6, 0.7), 0.62)
    assert sweeps == 59 and p == pytest.approx([0.15953, 0.32127, 0.51920], abs=5.01e-6)
    uniform = []
    for name, accuracy in SINGLE.items():
        p, sweeps = ref.educated_guessing(np.array(accuracy) / 100, ALPHA[name])
        uniform += [name] if sweeps == 0 else []
        if name == "logiqa":
            assert sweeps == 47 and p == pytest.approx([0.22, 0.22, 0.56], abs=5e-3)
    assert len(uniform) == 6 and {"logiqa", "sciq"}.isdisjoint(uniform)
    p, sweeps = ref.educated_guessing((0.4, 0.6, 0.7), 0.7)
    assert 600 < sweeps < 700 and p @ [0.4, 0.6, 0.7] >= 0.7 - 1e-6
    with pytest.raises(ValueError, match="best"):
        ref.educated_guessing((0.4, 0.6), 0.61)


def test_educated_guessing_fallback():
    # Best .7: .8 of all; .6: .8 * (2/3) of the rest; .4: what is left.
    p, _ = ref.educated_guessing((0.4, 0.6, 0.7), 0.65, num_sweeps=0)
    np.testing.assert_allclose(p, [0.2 * (1 - 1.6 / 3), 0.2 * 1.6 / 3, 0.8], atol=1e-9)
    assert ref.educated_guessing((0.5, 0.5), 0.5, num_sweeps=0)[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", sorted(ROUTELLM))
def test_routellm_offsets_give_the_printed_strong_shares(name):
    offset, threshold, share = ROUTELLM[name]
    assert ref.routellm_strong_share(threshold, offset, 0.5) == pytest.approx(share, abs=5.1e-3)


def test_routellm_threshold_rule():
    def satisfaction(threshold):
        share = ref.routellm_strong_share(threshold, 0.5, 0.5)
        return 0.6 + 0.2 * share

    for alpha in (0.55, 0.65, 0.7, 0.75, 0.799, 0.81):
        grid = [k / 10 for k in range(1, 10) if satisfaction(k / 10) >= alpha]
        assert ref.routellm_threshold(satisfaction, alpha) == (max(grid) if grid else 0.0)
    assert ref.routellm_strong_share(expit(0.5), 0.5, 0.5) == pytest.approx(0.5)
    generator = np.random.default_rng(17)
    strong = np.mean(expit(0.847 + 0.5 * generator.normal(size=100_000)) >= 0.6)
    assert strong == pytest.approx(ref.routellm_strong_share(0.6, 0.847, 0.5), abs=0.01)
    assert logit(0.6) == pytest.approx(0.405465, abs=1e-6)


def test_routerdc_losses():
    assert ref.routerdc_sample_llm((0.2, 0.5, -0.1), (0, 1, 1)) == pytest.approx(1.408710, abs=5e-7)
    # By hand: ln(1 + e^-.3) + ln(1 + e^.3) = .554355 + .854355.
    assert ref.routerdc_sample_llm((0.2, 0.5, -0.1), (1, 1, 1)) == ref.routerdc_sample_llm((0.2, 0.5, -0.1), (0, 0, 0)) == 0
    # Five models, two positives, one negative: models 4 and 1 against the worst, model 0 (lower index first).
    cos, score = (0.1, 0.4, -0.3, 0.8, 0.2), (0.0, 0.8, 0.0, 0.7, 0.9)
    by_hand = math.log(1 + math.exp(0.1 - 0.2)) + math.log(1 + math.exp(0.1 - 0.4))
    assert ref.routerdc_sample_llm(cos, score, 2, 1) == pytest.approx(by_hand)
    h = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    by_hand = (2 * math.log(1 + math.exp(-1)) + math.log((1 + 2) / 1)) / 3  # sim: rows 0 and 1 equal, 2 orthogonal.
    assert ref.routerdc_sample_sample(h, [1, 0, 0], [[2], [2], [1, 0]]) == pytest.approx(by_hand)


# --- Theory (7, 3.7) ---------------------------------------------------------------------------------------------


def test_bounds_and_safety_margin():
    gamma = ref.queue_floor(0.8, 5.0, 1e-3, 1450, 0.05)
    assert gamma == pytest.approx(29.0) and ref.queue_floor(0.8, 50.0, 1e-3, 1450, 0.05) == pytest.approx(40.0)
    assert ref.theorem1(100, gamma, 0.906, 0.8) == pytest.approx((39.0, 29 + 1 / 0.212))
    assert ref.corollary1(10_000, gamma) == pytest.approx(0.0129)
    assert ref.safety_margin(0.7, 1e-3, 1450, 0.05, 10_000) == pytest.approx(0.7 + 0.0029 + 0.01)
    for psi in (0.0, 10.0, 200.0):
        raised = ref.safety_margin(0.7, 1e-3, 1450, 0.05, 2_500, psi)
        gamma = ref.queue_floor(raised, psi, 1e-3, 1450, 0.05)
        assert raised - ref.corollary1(2_500, gamma) == pytest.approx(0.7)


def test_theorem_1_on_the_demo_instance():
    # True probabilities as predictions, psi = 0. Largest model: .916 >= q(.05) = .906, so exploration is covered, 8(33).
    V, alpha, T = 1e-3, 0.8, 400
    queues = np.array([run(demo_draws(T, seed), V=V, alpha=alpha, c=0.3)["queue"] for seed in range(15)]).mean(0)
    for beta in (0.03, 0.05, 0.1):
        q = ref.q_of_beta(*DEMO[:2], DEMO[1], beta)
        gamma = ref.queue_floor(alpha, 0.0, V, 1450, beta)
        assert all(queues[t - 1] <= ref.theorem1(t, gamma, q, alpha)[0] for t in range(1, T + 1))
        assert queues.mean() <= ref.theorem1(T, gamma, q, alpha)[1]
