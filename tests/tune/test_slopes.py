"""Slopes of simulated metrics: against closed forms and the distribution of their noise, and errors for wrong arguments."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from helpers import assert_mean_close, assert_means_agree
from toys import Coin, Idle, small_market

from jaxroute import tune
from jaxroute.core import draws
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.problems import staged
from jaxroute.tune import slopes


@struct.dataclass
class Valley(Coin):
    """Loss `(x - noise)^2 + 2 (log y - noise)^2 + x log y` per round with common noise of mean 0; a jump of `won`; and an invalid flow."""

    invalid_above: Leaf = 1e9

    @property
    def spec(self):
        metrics = (Metric("loss", "mean loss", "1", "average"), Metric("won", "rounds won", "rounds", "total"))
        return Spec(num_models=2, metrics=metrics, zero_flows=("bad",))

    def step(self, key, state, action, t):
        (x, y), noise = action, draws.normal(key)
        slow = jnp.log(y)
        loss = (x - noise) ** 2 + 2.0 * (slow - noise) ** 2 + x * slow
        won = draws.uniform(draws.fold_in(key, 1)) < jnp.clip(x, 0.0, 1.0)
        return state, noise, {"loss": loss, "won": won, "bad": jnp.where(x > self.invalid_above, 1.0, 0.0)}


@struct.dataclass
class Pair(Idle):
    """Chooses two numbers in every round."""

    x: Leaf = 0.3
    y: Leaf = 2.0

    def act(self, key, state, obs, t):
        return (self.x, self.y), {}


PARAMETERS = {"x": tune.Linear(-1.0, 2.0), "y": tune.Log(0.1, 10.0)}
AT = {"x": 0.4, "y": 1.5}
# Derivatives of the mean loss: `2 x + log y` and, per unit of the logarithm, `4 log y + x`.
EXACT = {"x": 2 * AT["x"] + np.log(AT["y"]), "y": 4 * np.log(AT["y"]) + AT["x"]}


def slope_of(env=None, parameters=None, **options):
    settings = {"metric": "loss", "horizon": 10, "at": AT, "seeds": 256} | options
    return tune.slope(env or Valley(), Pair(), PARAMETERS if parameters is None else parameters, **settings)


def test_seeds_are_the_specified_ones():
    both, late = slope_of(seeds=20).runs, slope_of(seeds=10, first_seed=10).runs
    np.testing.assert_array_equal(both[10:], late)
    assert not np.array_equal(slope_of(seeds=10, root_seed=1).runs, late)


@pytest.mark.parametrize("options", [{}, {"pairs": 2}, {"pairs": 6, "seeds": 100}])
def test_a_quadratic_has_no_bias(options):
    """Central differences of a quadratic are exact, and so are whole blocks of orthogonal directions."""
    one = slope_of(**options)
    for place, (name, exact) in enumerate(EXACT.items()):
        assert_mean_close(one.runs[:, place], exact, what=name)
        assert one.values[name] == pytest.approx(one.runs[:, place].mean())
        assert one.errors[name] == pytest.approx(one.runs[:, place].std(ddof=1) / np.sqrt(len(one.runs)))
    assert one.at == pytest.approx(AT, rel=1e-6)


def test_the_noise_is_that_of_common_random_numbers():
    """The difference of both ends has the noise of `-2 noise` and of `-4 noise`, and none of the noise of the loss itself."""
    one, rounds = slope_of(seeds=2000), 10
    for name, size in (("x", 2.0), ("y", 4.0)):
        error = size / np.sqrt(rounds * 2000)
        assert one.errors[name] == pytest.approx(error, rel=5 / np.sqrt(2 * 2000)), name


def test_decisions_that_jump_count():
    """A round is won or not: every path is flat in `x` almost everywhere, its mean is not."""
    one = slope_of(metric="won", seeds=1000)
    assert_mean_close(one.runs[:, 0], 10.0)
    assert one.values["y"] == 0.0 == one.errors["y"]


def test_a_function_of_metrics_and_the_score():
    one = slope_of(metric=lambda m: 3.0 * m["loss"] - m["won"], seeds=500)
    assert_mean_close(one.runs[:, 0], 3.0 * EXACT["x"] - 10.0)
    x, slow = AT["x"], np.log(AT["y"])
    # Four candidates; the ends lie step * width from the middle.
    spread = ((0.05 * 3.0) ** 2 + 2.0 * (0.05 * np.log(100.0)) ** 2) / 2
    mean = 3.0 * (x**2 + 1 + 2 * slow**2 + 2 + x * slow + spread) - 10 * x
    assert abs(one.score[0] - mean) < 5 * one.score[1]
    assert one.rounds == 4 * 500 * 10


def test_at_a_bound_it_is_that_of_a_step_away():
    one = slope_of(at={"x": 2.0, "y": 0.1}, seeds=100, step=0.1)
    assert one.at == pytest.approx({"x": 1.7, "y": 10**-0.8}, rel=1e-6)
    assert one.values["x"] == pytest.approx(2 * 1.7 + np.log(10**-0.8), abs=5 * one.errors["x"])


@pytest.mark.slow
def test_both_kinds_of_directions_agree_on_a_policy_that_learns():
    """On other seeds, by the errors of both; and the slope is not nothing."""
    parameters = {"gamma": tune.Log(0.01, 10.0), "radius_multiplier": tune.Log(0.1, 5.0)}
    task = {"metric": "regret", "horizon": 100, "seeds": 1500, "at": {"gamma": 1.0, "radius_multiplier": 1.0}}
    axes = tune.slope(small_market(), staged.StageRoute(), parameters, **task)
    random = {"pairs": 2, "step": 0.05 / np.sqrt(2), "first_seed": 1500}
    rotated = tune.slope(small_market(), staged.StageRoute(), parameters, **random, **task)
    for place, name in enumerate(parameters):
        assert_means_agree(axes.runs[:, place], rotated.runs[:, place], what=name)
    assert abs(axes.values["gamma"]) > 5 * axes.errors["gamma"]


@pytest.mark.parametrize(("number", "pairs"), [(1, 1), (3, 3), (5, 15), (4, 2)])
def test_orthogonal_directions(number, pairs):
    directions = slopes.orthogonal_directions(number, pairs, np.random.default_rng(0))
    assert directions.shape == (pairs, number)
    np.testing.assert_allclose(np.sum(directions**2, axis=1), number, rtol=1e-12)
    if pairs % number == 0:
        np.testing.assert_allclose(directions.T @ directions, pairs * np.eye(number), atol=1e-12)


def test_some_of_many_directions_have_the_right_mean():
    directions = slopes.orthogonal_directions(3, 3 * 4000, np.random.default_rng(1)).reshape(4000, 3, 3)[:, 0]
    products = directions[:, :, None] * directions[:, None, :]
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - np.eye(3)) < 5 * error).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {}}, "parameters must be a dict of name to scale"),
        ({"parameters": {"x": tune.Integer(1, 9)}}, "'x'.* must be Linear or Log"),
        ({"parameters": {"z": tune.Linear(0.0, 1.0)}, "at": None}, "'z'"),
        ({"metric": "los"}, "metric must be .*loss"),
        ({"at": {"x": 0.4}}, "'y' has none"),
        ({"seeds": 1}, "seeds must be .*2"),
        ({"step": 0.0}, "step must be above 0"),
        ({"step": 0.36}, "step must be below 0.354 for 2 hyperparameters"),
        ({"pairs": 0}, "pairs must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"first_seed": -1}, "first_seed must be"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        slope_of(**options)


def test_runs_that_are_not_valid_are_named():
    with pytest.warns(UserWarning, match="invalid"), pytest.raises(FloatingPointError, match="'x': 0.55"):
        slope_of(Valley(invalid_above=0.5), seeds=2)
