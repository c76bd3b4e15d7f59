"""Contextual environments: contexts, tables, benchmarks, and errors."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxroute import draws, simulate
from jaxroute.data import RoutingTable
from jaxroute.problems import contextual

KEY = draws.key(3)


def table(features=True, groups=False, queries=40):
    rng = np.random.default_rng(0)
    about = {"features": rng.normal(size=(queries, 3))} if features else {}
    if groups:
        about |= {"groups": np.arange(queries) % 2, "group_names": ("a", "b")}
    return RoutingTable(rng.random((queries, 3)), rng.random((queries, 3)), ("s", "m", "l"), **about)


def test_contexts_are_at_most_one_long():
    for env, rows in ((contextual.linear(np.eye(3)), 1), (contextual.linear(np.ones(3), num_models=5), 5)):
        x = np.stack([env.observe(draws.fold_in(KEY, t), (), jnp.int32(t)) for t in range(50)])
        assert x.shape == (50, rows, 3) and np.linalg.norm(x, axis=-1).max() <= 1.0
        assert env.spec.rows == rows and env.spec.dim == 3


def test_averages_are_those_of_the_contexts():
    """With an intercept the mean of a linear model is its first number over sqrt(d); logistic probabilities around zero are one half."""
    env = contextual.linear([[0.6, 1.0], [0.2, -1.0]], intercept=True)
    np.testing.assert_allclose(env.average, np.array([0.6, 0.2]) / np.sqrt(2), atol=0.01)
    np.testing.assert_allclose(contextual.logistic([[3.0, 1.0], [0.0, -2.0]]).average, [0.5, 0.5], atol=0.01)
    assert contextual.BestSingle.of(env).best == 0


def test_every_row_of_a_table_is_used_once():
    env = contextual.table_routing(table(), cost_weight=0.5)
    state = env.init(KEY)
    rows = [int(env.row(draws.fold_in(KEY, t), state, jnp.int32(t))) for t in range(40)]
    assert sorted(rows) == list(range(40)) != rows
    again = contextual.table_routing(table(), one_pass=False)
    drawn = [int(again.row(draws.fold_in(KEY, t), again.init(KEY), jnp.int32(t))) for t in range(40)]
    assert len(set(drawn)) < 40


def test_benchmarks_of_a_table():
    """Each regret is the reward of its benchmark on the row minus that of the chosen model."""
    given = table()
    env = contextual.table_routing(given, cost_weight=0.5, directions=3)
    rewards = given.scores - 0.5 * given.costs
    parts = given.features - given.features.mean(axis=0)
    design = np.column_stack([np.ones(40), parts])
    rule = np.argmax(design @ np.linalg.lstsq(design, rewards)[0], axis=1)  # Directions of all features span the same.
    state = env.init(KEY)
    for t in range(40):
        row = int(env.row(KEY, state, jnp.int32(t)))
        _, reward, flows = env.step(KEY, state, jnp.int32(1), jnp.int32(t))
        assert float(reward) == pytest.approx(rewards[row, 1], abs=1e-6)
        assert float(flows["score"]) == given.scores[row, 1] and float(flows["cost"]) == given.costs[row, 1]
        assert float(flows["regret"]) == pytest.approx(rewards[row].max() - rewards[row, 1], abs=1e-6)
        best = rewards.mean(axis=0).argmax()
        assert float(flows["single_regret"]) == pytest.approx(rewards[row, best] - rewards[row, 1], abs=1e-6)
        assert float(flows["linear_regret"]) == pytest.approx(rewards[row, rule[row]] - rewards[row, 1], abs=1e-6)
        chosen = contextual.Oracle.of(env).act(KEY, (), env.observe(KEY, state, jnp.int32(t)), jnp.int32(t))[0]
        assert int(chosen) == rule[row]


def test_contexts_and_units_of_a_table():
    assert contextual.table_routing(table(groups=True)).features.shape == (40, 4)
    by_group = contextual.table_routing(table(features=False, groups=True)).features
    np.testing.assert_array_equal(by_group, np.eye(2)[np.arange(40) % 2])
    env = contextual.table_routing(table(features=False))
    np.testing.assert_array_equal(env.features, np.ones((40, 1)))
    assert {m.name: m.unit for m in env.spec.metrics}["cost"] == "USD per query" and env.spec.model_names == ("s", "m", "l")


REFUSED = {
    "a parameter of three axes": (lambda: contextual.linear(np.ones((2, 2, 2))), r"theta must have shape \[K, d\]"),
    "one parameter for all": (lambda: contextual.linear(np.ones(3)), "num_models must be given with one theta"),
    "num_models with many": (lambda: contextual.linear(np.eye(2), num_models=2), "num_models must be given with one theta"),
    "negative noise": (lambda: contextual.linear(np.eye(2), -0.1), "scale must be at least 0"),
    "no table": (lambda: contextual.table_routing(np.eye(3)), "table must be a RoutingTable"),
    "a negative weight": (lambda: contextual.table_routing(table(), cost_weight=-1.0), "cost_weight must be at least 0"),
    "no directions": (lambda: contextual.table_routing(table(), directions=0), "directions must be at least 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_only_the_oracle_has_no_regret():
    env = contextual.logistic([[1.0, -2.0], [0.5, 2.0], [0.0, 0.5]], intercept=True)
    policies = {"Oracle": contextual.Oracle.of, "BestSingle": contextual.BestSingle.of, "Uniform": contextual.Uniform()}
    data = simulate(env, policies, horizon=200, seeds=32, record=["regret", "pulls"], progress=False)
    regret = data["regret"].isel(time=-1).mean("seed")
    assert regret.sel(policy="Oracle") == 0.0
    assert 1.0 < float(regret.sel(policy="BestSingle")) < float(regret.sel(policy="Uniform"))
    pulls = data["pulls"].isel(time=-1).sel(policy="Uniform").mean("seed").values
    assert (np.abs(pulls - 200 / 3) < 5 * np.sqrt(200 * 2 / 9 / 32)).all()
