"""Slopes of simulated metrics, and ascents on them: against closed forms and the distribution of their noise, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from helpers import assert_mean_close, assert_means_agree
from toys import small_market

from jaxroute import tune
from jaxroute.core import draws
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.problems import staged
from jaxroute.tune import gradient, slopes

# At most so many rounds are won: a decision that is too large loses all of them.
LIMIT = 0.7


@struct.dataclass
class Valley:
    """Loses `(x - luck)^2 + 2 (log y - luck)^2 + x log y` a round, with a luck of mean 0 that all candidates meet; also a step and a broken flow."""

    broken_above: Leaf = 1e9

    @property
    def spec(self):
        metrics = (Metric("loss", "mean loss", "1", "average"), Metric("won", "rounds won", "rounds", "total"))
        return Spec(num_models=2, metrics=metrics, zero_flows=("bad",))

    def init(self, key):
        return draws.normal(key)

    def observe(self, key, state, t):
        del key, t
        return state

    def step(self, key, state, action, t):
        del t
        (x, y), luck = action, draws.normal(key)
        slow = jnp.log(y)
        loss = (x - luck) ** 2 + 2.0 * (slow - luck) ** 2 + x * slow
        won = draws.uniform(draws.fold_in(key, 1)) < jnp.clip(x, 0.0, 1.0)
        return state, luck, {"loss": loss, "won": won, "bad": jnp.where(x > self.broken_above, 1.0, 0.0)}


@struct.dataclass
class Pair:
    """Says two numbers in every round."""

    x: Leaf = 0.3
    y: Leaf = 2.0

    def init(self, key, spec):
        del key, spec
        return ()

    def act(self, key, state, obs, t):
        del key, state, obs, t
        return (self.x, self.y), {}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, action, feedback, t
        return state


LEAVES = {"x": tune.Linear(-1.0, 2.0), "y": tune.Log(0.1, 10.0)}
AT = {"x": 0.4, "y": 1.5}


def found(**options):
    settings = {"metric": "loss", "horizon": 10, "at": AT, "seeds": 256} | options
    return tune.slope(settings.pop("env", Valley()), Pair(), settings.pop("leaves", LEAVES), **settings)


def truth():
    """Derivatives of the mean loss: `2 x + log y` and, per unit of the logarithm, `4 log y + x`."""
    slow = np.log(AT["y"])
    return {"x": 2 * AT["x"] + slow, "y": 4 * slow + AT["x"]}


@pytest.mark.parametrize("options", [{}, {"pairs": 2}, {"pairs": 6, "seeds": 100}])
def test_a_quadratic_has_no_bias(options):
    """Central differences of a quadratic are exact, and so are whole blocks of orthogonal ways."""
    one = found(**options)
    for place, (name, slope) in enumerate(truth().items()):
        assert_mean_close(one.runs[:, place], slope, what=name)
        assert one.values[name] == pytest.approx(one.runs[:, place].mean())
        assert one.errors[name] == pytest.approx(one.runs[:, place].std(ddof=1) / np.sqrt(len(one.runs)))
    assert one.at == pytest.approx(AT, rel=1e-6)


def test_the_noise_is_that_of_common_luck():
    """The difference of both ends has the noise of `-2 luck` and of `-4 luck`, and none of the noise of the loss itself."""
    one, rounds = found(seeds=2000), 10
    for name, size in (("x", 2.0), ("y", 4.0)):
        error = size / np.sqrt(rounds * 2000)
        assert one.errors[name] == pytest.approx(error, rel=5 / np.sqrt(2 * 2000)), name


def test_decisions_that_jump_count():
    """A round is won or not: every path is flat in `x` almost everywhere, its mean is not."""
    one = found(metric="won", seeds=1000)
    assert_mean_close(one.runs[:, 0], 10.0)
    assert one.values["y"] == 0.0 == one.errors["y"]


def test_a_function_of_metrics_and_the_score():
    one = found(metric=lambda m: 3.0 * m["loss"] - m["won"], seeds=500)
    assert_mean_close(one.runs[:, 0], 3.0 * truth()["x"] - 10.0)
    x, slow = AT["x"], np.log(AT["y"])
    # Four candidates; the ends lie step * width from the middle.
    spread = ((0.05 * 3.0) ** 2 + 2.0 * (0.05 * np.log(100.0)) ** 2) / 2
    mean = 3.0 * (x**2 + 1 + 2 * slow**2 + 2 + x * slow + spread) - 10 * x
    assert abs(one.score[0] - mean) < 5 * one.score[1]
    assert one.rounds == 4 * 500 * 10


def test_at_a_bound_it_is_that_of_a_step_away():
    one = found(at={"x": 2.0, "y": 0.1}, seeds=100, step=0.1)
    assert one.at == pytest.approx({"x": 1.7, "y": 10**-0.8}, rel=1e-6)
    assert one.values["x"] == pytest.approx(2 * 1.7 + np.log(10**-0.8), abs=5 * one.errors["x"])


def test_seeds_are_those_that_are_asked_for():
    both, late = found(seeds=20).runs, found(seeds=10, first_seed=10).runs
    np.testing.assert_array_equal(both[10:], late)
    assert not np.array_equal(found(seeds=10, root_seed=1).runs, late)


@pytest.mark.slow
def test_both_kinds_of_ways_agree_on_a_policy_that_learns():
    """On other seeds, by the errors of both; and the slope is not nothing."""
    leaves = {"gamma": tune.Log(0.01, 10.0), "radius_multiplier": tune.Log(0.1, 5.0)}
    task = {"metric": "regret", "horizon": 100, "seeds": 1500, "at": {"gamma": 1.0, "radius_multiplier": 1.0}}
    axes = tune.slope(small_market(), staged.StageRoute(), leaves, **task)
    turned = tune.slope(
        small_market(), staged.StageRoute(), leaves, pairs=2, step=0.05 / np.sqrt(2), first_seed=1500, **task
    )
    for place, name in enumerate(leaves):
        assert_means_agree(axes.runs[:, place], turned.runs[:, place], what=name)
    assert abs(axes.values["gamma"]) > 5 * axes.errors["gamma"]


@pytest.mark.parametrize(("number", "pairs"), [(1, 1), (3, 3), (5, 15), (4, 2)])
def test_orthogonal_ways(number, pairs):
    ways = slopes.orthogonal(number, pairs, np.random.default_rng(0))
    assert ways.shape == (pairs, number)
    np.testing.assert_allclose(np.sum(ways**2, axis=1), number, rtol=1e-12)
    if pairs % number == 0:
        np.testing.assert_allclose(ways.T @ ways, pairs * np.eye(number), atol=1e-12)


def test_some_ways_of_many_have_the_right_mean():
    ways = slopes.orthogonal(3, 3 * 4000, np.random.default_rng(1)).reshape(4000, 3, 3)[:, 0]
    products = ways[:, :, None] * ways[:, None, :]
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - np.eye(3)) < 5 * error).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaves": {}}, "leaves must be a dict of name to scale"),
        ({"leaves": {"x": tune.Integer(1, 9)}}, "'x'.* must be Linear or Log"),
        ({"leaves": {"x": (0.0, 1.0)}}, "'x'.* must be Linear"),
        ({"leaves": {"z": tune.Linear(0.0, 1.0)}, "at": None}, "'z'"),
        ({"metric": "los"}, "metric must be .*loss"),
        ({"metric": lambda m: m["loss"].mean()}, "one number per run"),
        ({"at": {"x": 0.4}}, "'y' has none"),
        ({"at": {"x": 3.0, "y": 1.0}}, "from -1 to 2"),
        ({"seeds": 1}, "seeds must be .*2"),
        ({"step": 0.0}, "step must be above 0"),
        ({"step": 0.36}, "step must be below 0.354 for 2 leaves"),
        ({"pairs": 0}, "pairs must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"first_seed": -1}, "first_seed must be"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        found(**options)


def test_runs_that_are_not_valid_are_named():
    with pytest.warns(UserWarning, match="invalid"), pytest.raises(FloatingPointError, match="'x': 0.55"):
        found(env=Valley(broken_above=0.5), seeds=2)


def test_improve_is_the_same_forward_and_in_reverse(monkeypatch):
    def objective(env, state, action, t):
        del env, state, t
        return -((action[0] - 0.5) ** 2) - jnp.log(action[1]) ** 2 - 0.1 * action[0] * action[1]

    def improved():
        bounds = {"x": (0.1, 2.0), "y": (0.1, 10.0)}
        return tune.improve(Valley(), Pair(), bounds, objective, horizon=5, seeds=2, steps=30, fresh=2)

    forward = improved()
    monkeypatch.setattr(gradient, "_MOST_FORWARD", 1)
    np.testing.assert_allclose(forward.history, improved().history, rtol=1e-4)
    # Where both derivatives vanish: `2 (x - .5) + .1 y` and `2 log y + .1 x y`.
    x, y = forward.values["x"], forward.values["y"]
    assert abs(2 * (x - 0.5) + 0.1 * y) < 0.05 and abs(2 * np.log(y) + 0.1 * x * y) < 0.05


# The least mean loss `x^2 + 2 log^2 y + x log y + 3` is at the start of both axes.
LEAST = 3.0


def climbed(**options):
    settings = {"metric": "loss", "maximise": False, "horizon": 10, "steps": 60, "seeds": 4, "fresh": 500} | options
    return tune.climb(settings.pop("env", Valley()), Pair(), settings.pop("leaves", LEAVES), **settings)


@pytest.mark.parametrize("options", [{}, {"start": {"x": 1.8, "y": 8.0}}, {"pairs": 1, "steps": 100}])
def test_ends_at_the_known_optimum(options):
    """Where its noise is: steps of Adam fall to nothing, so that the end is a mean over many."""
    one = climbed(**options)
    assert one.values == pytest.approx({"x": 0.0, "y": 1.0}, abs=0.25)
    for name, values in (("start", options.get("start", {"x": 0.5, "y": 1.0})), ("tuned", one.values)):
        x, slow = values["x"], np.log(values["y"])
        mean, error = one.fresh[name]
        assert abs(mean - (LEAST + x**2 + 2 * slow**2 + x * slow)) < 5 * error, name
    gain, error = one.fresh["gain"]
    assert gain == pytest.approx(one.fresh["start"][0] - one.fresh["tuned"][0])
    assert gain > 5 * error > 0


def test_maximises_and_keeps_to_the_box():
    one = climbed(maximise=True, start=AT)
    assert one.fresh["gain"][0] > 0
    low, high = (np.array([getattr(scale, end) for scale in LEAVES.values()]) for end in ("low", "high"))
    assert (one.history >= low * (1 - 1e-6) - 1e-6).all() and (one.history <= high * (1 + 1e-6)).all()
    assert min(abs(one.history[-1] - low).min(), abs(one.history[-1] - high).min()) < 1e-6


def test_sees_what_jumps():
    """`won` is flat along every path; its mean grows with `x` up to 1."""
    assert climbed(metric="won", maximise=True, leaves={"x": tune.Linear(0.0, 0.9)}).values["x"] > 0.8


def test_counts_its_rounds_and_plays_new_seeds_in_each_step():
    one = climbed(steps=3, seeds=2, fresh=2)
    assert one.rounds == 3 * 2 * 10 * 4 and one.history.shape == (3, 2) and one.objective.shape == (3,)
    assert climbed(steps=3, seeds=2, fresh=2, pairs=3).rounds == 3 * 2 * 10 * 6
    again = climbed(steps=3, seeds=2, fresh=2)
    np.testing.assert_array_equal(one.history, again.history)
    assert not np.array_equal(one.history, climbed(steps=3, seeds=2, fresh=2, root_seed=1).history)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximise": None, "metric": lambda m: m["loss"]}, "maximise must be True or False"),
        ({"steps": 0}, "steps must be"),
        ({"fresh": 1}, "fresh must be .*2"),
        ({"step": 0.5}, "step must be below"),
        ({"start": {"x": 0.4}}, "'y' has none"),
        ({"leaves": {"x": tune.Choice([0.1, 0.2])}}, "must be Linear or Log"),
    ],
)
def test_bad_input_of_an_ascent(options, message):
    with pytest.raises(ValueError, match=message):
        climbed(**options)
