"""Settings that share most of a run's state are played in one call, in which the common part is computed once."""

import jax
import numpy as np
import pytest
from helpers import setup_of

import jaxroute as jr
from jaxroute.core import provenance
from jaxroute.data import RoutingTable
from jaxroute.engine import components, grid, layout
from jaxroute.engine.components import leaf_dependence
from jaxroute.problems import service, staged, stochastic

ALPHAS, VS, CS = [0.65, 0.7, 0.75], [1e-4, 1e-3, 1e-2, 3e-2], [0.1, 0.5]
RECORD = ["cost", "satisfaction", "virtual_queue", "training_loss", "served_share"]


def grids(vs=VS, **options):
    env = jr.grid(service.benchmark_service, benchmark="winogrande", signal=0.3, alpha=ALPHAS)
    return env, jr.grid(service.MessPlus, V=vs, c=CS, **options)


def swept_leaves(grid, axis):
    place = list(grid.axes).index(axis)
    return [place in varies for varies in grid.leaf_axes]


def test_what_a_sweep_changes():
    """V and alpha move the queue and what is counted of the answers, c moves everything that is learned."""
    env, policy = grids()
    still = [False] * len(env.leaves)
    states = (env.example.init(jax.random.key(0)), policy.example.init(jax.random.key(0), env.example.spec))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.flatten_with_path(states)[0]]

    def changed(swept):
        found = leaf_dependence(env.example, policy.example, swept)
        assert [size for size, _ in found] == [x.size * x.dtype.itemsize for x in jax.tree.leaves(states)]
        return {name for name, (_, flag) in zip(names, found, strict=True) if flag}

    learned = {name for name in names if "params" in name or "optimiser" in name}
    learned |= {"[1].num_steps", "[1].loss.total", "[1].loss.error"}
    by_v = changed(still + swept_leaves(policy, "V"))
    by_alpha = changed(swept_leaves(env, "alpha") + [False] * len(policy.leaves))
    by_c = changed(still + swept_leaves(policy, "c"))
    queues = {f"[{i}].queue.{part}" for i in (0, 1) for part in ("length", "error")}
    assert by_v == {"[0].satisfied", "[0].first_compliance", "[0].last_violation", *queues} == by_alpha
    assert by_c == by_v | learned


def test_axes_that_share_the_state_get_a_wide_tile():
    env, policy = grids()
    assert components.shared_axes([(env, policy)]) == ("alpha", "V")
    width = jr.grid(stochastic.UCB1, width=list(np.linspace(0.5, 2.0, 6)))
    plain = grid.env_settings(stochastic.bernoulli([0.5, 0.4]))
    assert components.shared_axes([(plain, width)]) == ()
    budgets = jr.grid(staged.arena_market, budget=[1.0, 2.0, 3.0])
    gammas = jr.grid(staged.StageRoute, gamma=[0.1, 0.2])
    assert components.shared_axes([(budgets, gammas)]) == ()
    axes = {"alpha": np.arange(20), "V": np.arange(5), "c": np.arange(3)}
    chosen = layout.Layout.choose(setup_of(1000, axes=axes, shared=("alpha", "V")), 1 << 30)
    assert chosen.tile == {"alpha": 16, "V": 8, "c": 1}
    assert chosen.block * 16 * 8 <= 16 * 1024 * max(1, provenance.cores())


def test_a_function_of_the_environment_is_looked_at_too():
    env, _ = grids()
    knows = lambda env: service.MessPlus(predictor=service.TrueProbabilities(env.requests))  # noqa: E731
    learns = lambda env: service.MessPlus(V=1e-3)  # noqa: E731
    bigger = jr.grid(service.benchmark_service, benchmark="winogrande", alpha=list(np.linspace(0.6, 0.8, 6)))
    assert components.shared_axes([(bigger, grid.policy_settings("p", learns))]) == ("alpha",)
    assert components.shared_axes([(bigger, grid.policy_settings("p", knows))]) == ()  # Little is left but the queue.
    assert components.shared_axes([(env, grid.policy_settings("p", learns))]) == ()  # Three settings: not worth the look.


@pytest.mark.parametrize("head", [service.Logistic(), pytest.param(service.Mlp(width=4), marks=pytest.mark.slow)])
def test_the_grid_equals_the_plain_runs_bit_for_bit(head):
    env, policy = grids(predictor=service.Learned(head))
    options = {"horizon": 300, "seeds": 32, "record_every": 100, "record": RECORD, "progress": False}
    options |= {"execution": jr.Execution("scan")}
    before = jr.trace_count()
    whole = jr.simulate(env, {"MESS+": policy}, **options)
    assert jr.trace_count() == before + 1
    assert bool(whole["valid"].all())
    for alpha, v, c in ((0.65, 1e-4, 0.1), (0.7, 1e-2, 0.5), (0.75, 3e-2, 0.5)):
        one = service.MessPlus(V=v, c=c, predictor=service.Learned(head))
        alone = jr.simulate(service.benchmark_service("winogrande", signal=0.3, alpha=alpha), {"MESS+": one}, **options)
        for name in RECORD:
            np.testing.assert_array_equal(whole[name].sel(alpha=alpha, V=v, c=c).values, alone[name].values, err_msg=name)


def test_more_settings_need_no_further_trace():
    options = {"horizon": 20, "seeds": 16, "record": ["cost"], "progress": False}
    env, policy = grids(vs=list(np.geomspace(1e-4, 1e-2, 16)))
    jr.simulate(env, {"MESS+": policy}, **options)
    before = jr.trace_count()
    env, more = grids(vs=list(np.geomspace(1e-4, 1e-2, 40)))
    jr.simulate(env, {"MESS+": more}, **options)
    assert jr.trace_count() == before


def test_numbers_of_the_predictor_and_of_the_environment_sweep_in_one_trace():
    def policy(learning_rate, momentum):
        return service.MessPlus(optimiser=service.SGD(learning_rate, momentum))

    env = jr.grid(service.benchmark_service, signal=[0.0, 0.3, 1.0])
    grid = jr.grid(policy, learning_rate=[0.01, 0.06], momentum=[0.0, 0.9])
    before = jr.trace_count()
    data = jr.simulate(env, {"MESS+": grid}, horizon=60, seeds=16, record=["training_loss", "cost"], progress=False)
    assert jr.trace_count() == before + 1
    last = data["training_loss"].isel(policy=0, time=-1).mean("seed")
    assert len(np.unique(last.values)) == 12, "every setting learns something else"


def test_a_sampler_with_many_settings():
    """Every run has an environment of its own: nothing is known of what they share."""
    widths = jr.grid(stochastic.UCB1, width=list(np.linspace(0.5, 2.0, 6)))
    sampler = lambda key: stochastic.BanditEnv(mean=jax.random.uniform(key, (3,)), scale=None)  # noqa: E731
    data = jr.simulate(sampler, widths, horizon=20, seeds=16, num_instances=3, record=["reward"], progress=False)
    assert data["reward"].sizes["instance"] == 3 and data["reward"].sizes["width"] == 6 and bool(data["valid"].all())


def test_tiles_stay_within_memory():
    axes = {name: np.arange(16) for name in ("V", "alpha", "margin")}
    for most in (16, 1000, 100_000):
        chosen = layout.Layout.choose(setup_of(64, axes=axes, shared=tuple(axes)), most)
        assert chosen.block * np.prod(list(chosen.tile.values())) <= max(most, 16)


def test_state_that_no_round_writes_does_not_count():
    """The order of a table's rows is thousands of numbers, but nothing is computed from round to round."""
    rng = np.random.default_rng(0)
    env = service.table_service(RoutingTable(rng.random((400, 2)), [[1.0, 5.0]] * 400, ("a", "b")), alpha=0.5)
    policy = service.MessPlus()
    found = leaf_dependence(env, policy, [False] * len(jax.tree.leaves((env, policy))))
    assert max(size for size, _ in found) < 100
