"""Grids: which leaves are stacked, what the axes are, and that a cell is the run of that setting alone."""

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from engine_child import RECORD, differences
from toys import Clock, Cycle, small_market

import jaxroute as jr
from jaxroute.core.attributes import decoded
from jaxroute.engine.grid import canonical
from jaxroute.problems import staged, stochastic


def play(env, policies, **options):
    settings = {"horizon": 30, "seeds": 3, "record_every": 10, "progress": False} | options
    return jr.simulate(env, policies, **settings)


def stacked(grid):
    """Axes along which each leaf of a grid varies, for the leaves that vary."""
    return [axes for axes in grid.leaf_axes if axes]


# Construction.


def test_only_swept_leaves_are_stacked():
    grid = jr.grid(staged.StageRoute, gamma=[0.1, 0.2, 0.4])
    assert grid.shape == (3,) and list(grid.axes) == ["gamma"] and stacked(grid) == [(0,)]
    np.testing.assert_array_equal(grid.axes["gamma"], [0.1, 0.2, 0.4])
    (gamma,) = (leaf for leaf, axes in zip(grid.leaves, grid.leaf_axes, strict=True) if axes)
    np.testing.assert_array_equal(gamma, np.float32([0.1, 0.2, 0.4]))
    assert [leaf.shape for leaf, axes in zip(grid.leaves, grid.leaf_axes, strict=True) if not axes] == [()]


def test_axes_are_in_the_order_of_the_arguments_and_settings_in_row_major_order():
    grid = jr.grid(stochastic.GaussianThompson, scale=[1.0, 2.0], prior_weight=[3.0, 4.0, 5.0])
    assert list(grid.axes) == ["scale", "prior_weight"] and grid.shape == (2, 3) and stacked(grid) == [(0,), (1,)]
    pairs = [(o.scale, o.prior_weight) for o in grid.objects]
    assert pairs == [(1.0, 3.0), (1.0, 4.0), (1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (2.0, 5.0)]
    assert grid.example == stochastic.GaussianThompson(scale=1.0, prior_weight=3.0)
    assert repr(grid) == "Grid(GaussianThompson; scale: 2, prior_weight: 3)"
    assert "<th>prior_weight</th>" in grid._repr_html_()


def test_the_constructor_runs_for_each_setting():
    """What it derives is swept too, along the axes on which it depends: the optimum depends on budget and capacity."""
    made = []

    def market(budget, capacity):
        made.append((budget, capacity))
        return small_market(budget=budget, capacity=capacity)

    grid = jr.grid(market, budget=[1.5, 1.6, 1.7], capacity=[0.6, 0.7])
    assert len(made) == 6
    by_axes = {axes: len(leaf.shape) for leaf, axes in zip(grid.leaves, grid.leaf_axes, strict=True)}
    assert set(by_axes) == {(), (0,), (1,), (0, 1)}
    optimum = grid.objects[0].optimum_value
    both = next(leaf for leaf, axes in zip(grid.leaves, grid.leaf_axes, strict=True) if axes == (0, 1))
    assert both.shape == (3, 2, *optimum.shape)
    for i, budget in enumerate([1.5, 1.6, 1.7]):
        for j, capacity in enumerate([0.6, 0.7]):
            np.testing.assert_array_equal(both[i, j], small_market(budget=budget, capacity=capacity).optimum_value)


@pytest.mark.parametrize("values", [[1.0, 2.0], np.array([1.0, 2.0]), jnp.array([1.0, 2.0]), range(1, 3)], ids=lambda v: type(v).__name__)  # fmt: skip
def test_lists_arrays_and_ranges_are_swept(values):
    grid = jr.grid(stochastic.UCB1, width=values)
    np.testing.assert_array_equal(grid.axes["width"], [1, 2])
    assert [float(o.width) for o in grid.objects] == [1.0, 2.0]


@pytest.mark.parametrize("made", [list, np.array, jnp.array], ids=["list", "NumPy", "jax"])
def test_rows_of_a_matrix_are_swept(made):
    rows = [[0.25, 0.5], [0.75, 0.125], [1.0, 0.0]]
    grid = jr.grid(stochastic.bernoulli, mean=made(rows))
    assert [str(c) for c in grid.axes["mean"]] == ["[0.25, 0.5]", "[0.75, 0.125]", "[1.0, 0.0]"]
    np.testing.assert_array_equal([one.mean for one in grid.objects], rows)


def test_a_tuple_is_one_value_and_a_list_of_tuples_an_axis():
    def bandit(mean, scale):
        return stochastic.gaussian(mean, scale)

    grid = jr.grid(bandit, mean=(0.1, 0.2), scale=[1.0, 2.0])
    assert list(grid.axes) == ["scale"]
    np.testing.assert_array_equal(grid.example.mean, np.float32([0.1, 0.2]))
    grid = jr.grid(bandit, mean=[(0.1, 0.2), (0.3, 0.4)], scale=1.0)
    assert grid.shape == (2,)
    assert [str(c) for c in grid.axes["mean"]] == ["(0.1, 0.2)", "(0.3, 0.4)"]


def test_strings_and_functions_are_named_in_the_coordinates():
    grid = jr.grid(lambda shape: stochastic.UCB1(width=shape(2.0)), shape=[math.sqrt, math.exp])
    assert list(grid.axes["shape"]) == ["sqrt", "exp"]
    grid = jr.grid(lambda mode: stochastic.UCB1(width=float(len(mode))), mode=["a", "bb"])
    assert list(grid.axes["mode"]) == ["a", "bb"]
    bandit = functools.partial(stochastic.gaussian, np.array([0.1, 0.9]))  # An array that is one value.
    grid = jr.grid(bandit, scale=[0.5, 1.0])
    assert list(grid.axes) == ["scale"] and grid.name == "gaussian"


def test_values_of_mixed_types_are_one_axis():
    grid = jr.grid(stochastic.UCB1, width=[1, 2.5])
    assert canonical(stochastic.UCB1(width=1)).width.dtype == np.int32
    data = play(stochastic.bernoulli([0.2, 0.7]), grid, record=["pulls"])
    for width in (1.0, 2.5):
        alone = play(stochastic.bernoulli([0.2, 0.7]), stochastic.UCB1(width=width), record=["pulls"])
        np.testing.assert_array_equal(data["pulls"].sel(width=width), alone["pulls"])


# Running: a cell is the run of that setting alone.


def test_every_cell_of_an_environment_grid_and_a_policy_grid_is_the_single_run():
    def bandit(best):
        return stochastic.bernoulli([0.5, best, 0.3])

    env = jr.grid(bandit, best=[0.6, 0.75, 0.9])
    policies = {"ucb": jr.grid(stochastic.UCB1, width=[0.5, 1.5]), "oracle": stochastic.Oracle.of}
    data = play(env, policies, record=["regret", "reward", "pulls"])
    assert dict(data["pulls"].sizes) == {"policy": 2, "best": 3, "width": 2, "seed": 3, "time": 3, "model": 3}
    np.testing.assert_array_equal(data["best"], [0.6, 0.75, 0.9])
    np.testing.assert_array_equal(data["width"], [0.5, 1.5])
    oracle = data.sel(policy="oracle")
    assert oracle.isel(width=0).drop_vars("width").identical(oracle.isel(width=1).drop_vars("width"))  # Broadcast.
    assert (oracle["regret"] == 0).all()
    np.testing.assert_array_equal(oracle["pulls"].isel(time=-1, width=0, seed=0).argmax("model"), [1, 1, 1])
    assert not data["pulls"].sel(policy="ucb", width=0.5).equals(data["pulls"].sel(policy="ucb", width=1.5))
    for best, width in [(0.6, 0.5), (0.6, 1.5), (0.9, 1.5)]:
        single = play(bandit(best), {"ucb": stochastic.UCB1(width=width)}, record=["regret", "reward", "pulls"])
        assert differences(data.sel(best=best, width=width), single) == []


@pytest.mark.slow
def test_a_grid_over_several_leaves_of_a_staged_market():
    """With the settings of `engine_child`, whose compiled single run is used again."""
    options = {"horizon": 100, "record_every": 20, "record": RECORD["staged"], "seeds": 4}
    data = play(jr.grid(small_market, budget=[1.5, 1.7]), jr.grid(staged.StageRoute, gamma=[0.05, 0.5, 2.0]), **options)
    assert data["regret"].dims == ("policy", "budget", "gamma", "seed", "time")
    assert data["valid"].all()
    assert len(np.unique(data["regret"].isel(time=-1))) > 15  # The settings are different runs.
    single = play(small_market(budget=1.7), staged.StageRoute(gamma=0.5), **options)
    assert differences(data.sel(budget=1.7, gamma=0.5), single) == []


def test_policies_may_share_an_axis():
    clocks = jr.grid(Clock, slope=[1.0, 2.0])
    policies = {"one": jr.grid(Cycle, first=[0, 1, 2]), "two": jr.grid(Cycle, first=[0, 1, 2])}
    data = play(clocks, policies, record=["reward", "pulls"])
    assert data["pulls"].sizes == {"policy": 2, "slope": 2, "first": 3, "seed": 3, "time": 3, "model": 3}
    assert differences(data.sel(policy=["one"]), data.sel(policy=["two"]).assign_coords(policy=["one"])) == []
    np.testing.assert_array_equal(data["reward"].sel(slope=2.0).isel(policy=0, seed=0, first=0), [20, 40, 60])
    used = data["pulls"].isel(policy=0, slope=0, seed=0).sel(time=10)
    np.testing.assert_array_equal(used, [[4, 3, 3], [3, 4, 3], [3, 3, 4]])


def test_settings_that_are_equal_are_allowed():
    with pytest.warns(UserWarning, match="grid: slope has 1.0 more than once; equal settings are equal runs"):
        clocks = jr.grid(Clock, slope=[1.0, 1.0])
    reward = play(clocks, Cycle(), record=["reward"])["reward"]
    assert reward.sizes["slope"] == 2 and (reward.isel(slope=0) == reward.isel(slope=1)).all()


def test_tiles_that_do_not_divide_the_grid(monkeypatch):
    monkeypatch.setattr("jaxroute.engine.layout._CPU_LANES", 16)
    widths = np.linspace(0.1, 2.0, 7)
    env, options = stochastic.bernoulli([0.2, 0.7]), {"seeds": 20, "record": ["pulls", "reward"]}
    data = play(env, jr.grid(stochastic.UCB1, width=widths), execution=jr.Execution(block=16), **options)
    assert decoded(data.attrs)["layout"]["tile"] == {"width": 4}
    assert data.attrs["decisions"] == 7 * 20 * 30
    single = play(env, {"UCB1": stochastic.UCB1(width=widths[6])}, **options)
    assert differences(data.isel(width=6), single) == []


# Instances.


def test_instances_of_one_structure():
    means = [[0.1, 0.9], [0.5, 0.6], [0.8, 0.3]]
    grid = jr.instances([stochastic.bernoulli(m) for m in means])
    assert list(grid.axes) == ["instance"]
    assert stacked(grid) == [(0,)]
    data = play(grid, {"oracle": stochastic.Oracle.of, "ucb": stochastic.UCB1()}, record=["regret", "pulls"])
    assert data["pulls"].dims == ("policy", "instance", "seed", "time", "model")
    best = data["pulls"].sel(policy="oracle").isel(time=-1, seed=0).argmax("model")
    np.testing.assert_array_equal(best, np.argmax(means, axis=1))
    single = play(stochastic.bernoulli(means[2]), {"ucb": stochastic.UCB1()}, record=["regret", "pulls"])
    assert differences(data.sel(instance=2), single) == []


# Errors.


ERRORS = {
    "no values": (lambda: jr.grid(stochastic.UCB1, width=[]), "width must have at least one value, got an empty list"),
    "nothing swept": (lambda: jr.grid(stochastic.UCB1, width=1.0), r"grid\(UCB1, ...\) needs at least one argument with several values, got \{'width': 1.0\}"),
    "no instances": (lambda: jr.instances([]), "instances needs at least one environment, got an empty list"),
    "a value out of range": (lambda: jr.grid(small_market, budget=[1.6, -1.0]), "budget must be above 0, got -1"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_wrong_grid_is_refused(name):
    make, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("env", "policies", "message"),
    [
        (jr.grid(Clock, slope=[1.0]), jr.grid(lambda slope: Cycle(slope), slope=[0, 1]), "axis 'slope' is swept by env and by a policy"),
        (Clock(), {"a": jr.grid(Cycle, first=[0, 1]), "b": jr.grid(Cycle, first=[0, 2])}, "two policies sweep 'first' over different values"),
        *(
            (Clock(), jr.grid(lambda **values: Cycle(*values.values()), **{name: [0, 1]}), rf"axis.*{name!r}")
            for name in ("policy", "seed", "time", "model", "reward", "pulls", "valid", "bad")
        ),
    ],
)  # fmt: skip
def test_names_that_clash_are_refused_before_anything_is_played(env, policies, message, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxroute.engine.programs.Block.run", lambda *_: pytest.fail("a block was played"))
    with pytest.raises(ValueError, match=message):
        play(env, policies, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
