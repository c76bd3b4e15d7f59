"""Contrastive representations: the pairs and the loss by hand and against plain loops, and the training."""

import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxroute.core import draws
from jaxroute.estimators.contrastive import (
    CONTRASTIVE_PRESETS,
    Pairs,
    Projection,
    ProjectionHead,
    balanced_rows,
    cosine_pairs,
    fit_projection,
    info_nce,
    train_projection,
    utility_cosine,
)


def utility_pairs(utility, *settings):
    return cosine_pairs(utility_cosine(utility), *settings)


def plain_loss(z, utility, above, below, most, temperature):
    """Algorithm 3, lines 2 to 10, in float64 loops; cosines to 9 decimals, so that ties are ties. Also the sets it used."""
    n = len(utility)
    total, chosen = 0.0, []
    centred = [u - u.mean() for u in utility]

    def cosine(i, j):
        lengths = np.linalg.norm(centred[i]) * np.linalg.norm(centred[j])
        return round(float(centred[i] @ centred[j] / lengths), 9) if lengths > 1e-12 else 0.0

    for i in range(n):
        c = {j: cosine(i, j) for j in range(n) if j != i}
        positives = [j for j in c if c[j] > above]
        negatives = sorted((j for j in c if c[j] < below), key=lambda j: (c[j], j))[:most]
        if not positives or not negatives:
            chosen.append(None)
            continue
        best = min(positives, key=lambda j: (-c[j], j))
        chosen.append((best, negatives))
        similarity = [z[i] @ z[j] / temperature for j in [best, *negatives]]
        total += -np.log(np.exp(similarity[0]) / np.sum(np.exp(similarity)))
    return total, chosen


def sets_of(pairs: Pairs):
    """(positive, negatives) of each anchor, None where it is left out."""
    positive, negatives, is_negative, valid = map(np.asarray, pairs)
    return [(int(positive[i]), negatives[i][is_negative[i]].tolist()) if valid[i] else None for i in range(len(valid))]


@pytest.mark.parametrize("kind", ["binary", "coarse", "continuous"])
@pytest.mark.parametrize(("above", "below", "most"), [(0.6, 0.3, 64), (0.5, 0.5, 3), (0.4, -0.2, 1)])
def test_pairs_and_loss_against_plain_loops(kind, above, below, most):
    rng = np.random.default_rng(len(kind) + most)
    utility = {
        "binary": rng.integers(0, 2, (25, 4)).astype(float),  # many ties, constant rows
        "coarse": rng.integers(0, 3, (25, 3)) / 2 - 0.1 * rng.integers(0, 2, (25, 3)),
        "continuous": rng.random((25, 4)),
    }[kind]
    utility[3] = 0.7  # A constant row, whose mean is off by a rounding error.
    z = rng.normal(size=(25, 6))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    expected, chosen = plain_loss(z, utility, above, below, most, 0.3)
    pairs = utility_pairs(utility, above, below, most)
    assert sets_of(pairs) == chosen
    assert pairs.negatives.shape == (25, min(most, 25))
    np.testing.assert_allclose(info_nce(jnp.asarray(z, jnp.float32), pairs, 0.3), expected, rtol=2e-5)


def test_thresholds_are_strict():
    # Centred rows (1, -1, 0) and (1, 0, -1): cosine exactly 1/2 (rounded: 1 / (sqrt 2 sqrt 2)).
    utility = np.array([[2, 0, 1], [2, 1, 0], [0, 2, 1]]) / 2
    np.testing.assert_array_equal(utility_cosine(utility)[0], np.float32([1, 0.5, -1]))
    assert sets_of(utility_pairs(utility, 0.5, 0.3)) == [None, None, None]
    assert sets_of(utility_pairs(utility, 0.49, 0.3)) == [(1, [2]), (0, [2]), None]
    assert sets_of(utility_pairs(utility, 0.49, -1.0)) == [None, None, None]
    assert sets_of(utility_pairs(utility, 0.49, -0.99)) == [(1, [2]), None, None]


def test_constant_utilities_have_no_direction():
    utility = np.array([[0.7, 0.7, 0.7], [1, 0, 0], [1e-30, 0, 0], [0, 0, 0]])
    cosine = utility_cosine(utility)
    np.testing.assert_array_equal(cosine[[0, 3]], np.zeros((2, 4)))
    np.testing.assert_allclose(cosine[1, 2], 1)  # However small the scale.
    assert utility_pairs(utility).valid.tolist() == [False, True, True, False]
    # With a lower threshold above 0 a constant row is a negative of others.
    assert sets_of(utility_pairs(utility))[1] == (2, [0, 3])


def test_nothing_to_compare():
    pairs = utility_pairs([[1.0, 0.0]])
    assert not pairs.valid.any()
    loss, gradient = jax.jit(jax.value_and_grad(lambda z: info_nce(z, pairs)))(jnp.ones((1, 2)))
    assert loss == 0
    np.testing.assert_array_equal(gradient, 0)


def test_balanced_rows():
    best = np.repeat([0, 1, 3], [20, 4, 9])
    utility = np.eye(4)[best]
    rows = balanced_rows(utility, 6, seed=1)
    assert np.bincount(best[rows], minlength=4).tolist() == [6, 4, 0, 6]  # All of a smaller group; none of an empty one.
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(rows, balanced_rows(utility, 6, seed=1))
    assert not np.array_equal(rows, balanced_rows(utility, 6, seed=2))
    assert balanced_rows([[1, 1], [0.5, 0.5]], 1).size == 1  # Of equally good models the first is best.
    seen = np.bincount(np.concatenate([balanced_rows(utility, 6, seed) for seed in range(300)]), minlength=33)
    # Each of 20 is drawn with probability .3: 90 of 300, with standard deviation 8.
    assert np.all(np.abs(seen[:20] - 90) < 5 * 8)
    assert np.all(seen[20:24] == 300)


# Training.


def problem(n=60, d=10, models=4, seed=0):
    """Prompts whose best models depend on the sign pattern of two features among others."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    utility = 1 / (1 + np.exp(-8 * features[:, :2] @ rng.normal(size=(2, models))))
    return features, utility


SMALL = {"width": 16, "out": 8}


def test_training_lowers_the_loss_and_returns_unit_rows():
    features, utility = problem()
    projection = fit_projection(features, utility, per_model=None, epochs=60)
    assert isinstance(projection, Projection)
    assert projection.losses.shape == (60,)
    assert projection.losses[-1] < 0.7 * projection.losses[0]
    z = projection(features)
    assert z.shape == (60, 384)
    np.testing.assert_allclose(np.linalg.norm(z, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(projection(features[3]), z[3], atol=1e-6)  # Any leading shape, also none.
    # The recorded losses are those before each step.
    assert info_nce(z, utility_pairs(utility)) < projection.losses[-1] * 1.05


def test_settings_of_the_paper():
    sprout = {"per_model": 5, "epochs": 10, "positive_above": 0.6, "negative_below": 0.3}
    defaults = {name: parameter.default for name, parameter in inspect.signature(fit_projection).parameters.items()}
    assert CONTRASTIVE_PRESETS["sprout"] == sprout
    assert defaults | sprout | {"temperature": 0.07, "num_negatives": 64, "out": 384} == defaults
    features, utility = problem()
    projection = fit_projection(features, utility, **CONTRASTIVE_PRESETS["embedllm"], **SMALL)
    assert projection.losses.shape == (50,)
    assert np.isfinite(projection.losses).all()


def test_one_step_is_the_literal_rule():
    features, utility = problem()
    rate = 0.05
    stepped = fit_projection(features, utility, epochs=1, optimiser=optax.sgd(rate), seed=7, **SMALL)
    rows = balanced_rows(utility, 5, seed=7)
    pairs = utility_pairs(utility[rows])
    x = jnp.asarray(features[rows], jnp.float32)

    def loss(params):
        hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        z = hidden @ params["output"]["kernel"] + params["output"]["bias"]
        return info_nce(z / jnp.linalg.norm(z, axis=1, keepdims=True), pairs, 0.07)

    k_init, _ = draws.split(draws.fold_in(draws.key(0), 7))
    begun = ProjectionHead(**SMALL).init(k_init, x)["params"]
    value, gradient = jax.jit(jax.value_and_grad(loss))(begun)
    np.testing.assert_allclose(stepped.losses, [value], rtol=1e-4)
    expected = jax.tree.map(lambda p, g: p - rate * g, begun, gradient)
    chex.assert_trees_all_close(stepped.params, expected, rtol=1e-3, atol=1e-4)


def test_batches_have_their_own_pairs():
    features, utility = problem(n=20)
    key, module, batch = draws.key(3), ProjectionHead(width=8, out=4), 7
    projection = train_projection(
        key, features, utility_cosine(utility), module=module, optimiser=optax.sgd(0.0), epochs=6, batch=batch
    )
    z = np.asarray(projection(features), np.float64)  # Without learning it is the same in every epoch.
    _, k_batches = draws.split(key)
    for epoch, loss in enumerate(projection.losses):
        rows = np.sort(np.argsort(draws.uniform(draws.fold_in(k_batches, epoch), (20,)))[:batch])
        expected, _ = plain_loss(z[rows], utility[rows], 0.6, 0.3, 64, 0.07)
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
    assert len(set(projection.losses.tolist())) > 3


@pytest.mark.slow
def test_many_heads_at_once():
    features, utility = problem(n=30)
    cosine, optimiser = utility_cosine(utility), optax.adam(1e-2)

    def train(key, above):
        module = ProjectionHead(**SMALL)
        options = {"module": module, "optimiser": optimiser, "epochs": 5, "batch": 12, "positive_above": above}
        return train_projection(key, features, cosine, **options)

    keys = jax.vmap(draws.fold_in, (None, 0))(draws.key(0), jnp.arange(3))
    above = jnp.array([0.6, 0.6, 0.4])
    together = jax.vmap(train)(keys, above)
    assert together.losses.shape == (3, 5)
    every = jax.jit(jax.vmap(lambda projection: projection(features)))(together)
    assert every.shape == (3, 30, 8)
    for i in range(3):
        alone = train(keys[i], above[i])
        np.testing.assert_allclose(together.losses[i], alone.losses, rtol=1e-4)
        np.testing.assert_allclose(every[i], alone(features), atol=1e-3)


def test_a_head_that_is_off_has_a_finite_derivative():
    module = ProjectionHead(width=4, out=3)
    x = jnp.ones((2, 5))
    params = jax.tree.map(jnp.zeros_like, jax.eval_shape(module.init, draws.key(0), x)["params"])
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(module.apply({"params": p}, x))))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    plain = ProjectionHead(width=4, out=3, normalize=False)
    params = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape), params)
    z = plain.apply({"params": params}, x)
    np.testing.assert_allclose(module.apply({"params": params}, x), z / jnp.linalg.norm(z, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.ones((3, 2))}, r"features must have shape \[60, d\]"),
        ({"features": np.full((60, 2), np.nan)}, "features must be finite"),
        ({"utility": np.ones(60)}, r"utility must have shape \[n, N\]"),
        ({"utility": np.ones((60, 3))}, "utility must give at least one of the 5 chosen prompts a positive"),
        ({"per_model": 0}, "per_model must be at least 1, got 0"),
        ({"num_negatives": 0}, "num_negatives must be at least 1"),
        ({"batch": 61, "per_model": None}, "batch must be from 2 to 60, got 61"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"positive_above": 0.2}, "negative_below <= positive_above .* negative_below=0.3 and positive_above=0.2"),
        ({"optimiser": 1e-3}, "optimiser must be an optax.GradientTransformation, got 0.001"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    features, utility = problem()
    arguments = {"features": features, "utility": utility} | change
    with pytest.raises(ValueError, match=message):
        fit_projection(**arguments)
