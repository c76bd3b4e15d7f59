"""StageRoute: the first rounds by hand, limits, and the paper's experiments against NumPy loops."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from staged_cases import arena, jitted, staged_feedback, two_models

from jaxroute.core import draws
from jaxroute.problems import staged
from jaxroute.problems.staged.types import Statistics

# Models in hexadecimal, a set a stage; 56+13 is {5, 6} with 1 or 3.
SETS = {
    "StageRoute": "012 345 156 56+13 567 56+13 568 56+13 569 569 69a 69a 6ab 69a 6ac 69a 6ad 69a 6ae 69a",
    "Greedy": "012 345 256 25+36 257 25+36 258 258 259 259 29a 29a 29b 29a 29c 29a 29d 29a 29e 29a",
    "Oracle": "135 " * 2 + "356 " * 6 + "569 " * 2 + "69a " * 10,
}


@pytest.mark.parametrize("policy", SETS)
def test_deployed_sets_of_figure_5(policy):
    """The most frequent set of each stage."""
    deployed = arena(3, 500, policy)["deployed"].values > 0.5
    assert deployed.shape[1] == 20
    for stage, (rows, sets) in enumerate(zip(np.moveaxis(deployed, 1, 0), SETS[policy].split(), strict=True), start=1):
        base, _, others = sets.partition("+")
        allowed = [{int(m, 16) for m in base + other} for other in others or [""]]
        ((found, number),) = Counter(frozenset(np.flatnonzero(row).tolist()) for row in rows).most_common(1)
        assert found in allowed, f"stage {stage}: {set(found)} in {number} of {len(rows)} runs"
        if len(allowed) == 1 and policy != "Greedy":
            assert number > 0.8 * len(rows), f"stage {stage}: {set(found)} in only {number} of {len(rows)} runs"


def test_units_of_cost_change_the_bounds_and_not_the_program():
    """The radius is not scale-free: with costs (and floor and ceiling) times 1,000 the lower bounds are not 1,000 times as large.

    The solver's tests check that the program itself is scale-free.
    """
    policy = staged.StageRoute(gamma=0.2)
    pulls = jnp.asarray([10, 1000])
    reward_sum, cost_sum = pulls * 0.5, pulls * 0.01
    _, low = policy.bounds(Statistics.of(pulls, reward_sum, cost_sum), (1e-6, 1.0))
    _, high = policy.bounds(Statistics.of(pulls, reward_sum, 1e3 * cost_sum), (1e-3, 1e3))
    # .01 - 2 (sqrt(.2 * .01 / 11) + .2 / 11) < 0, so the floor; 10 - 2 (sqrt(.2 * 10 / 11) + .2 / 11) = 9.1108.
    assert float(low[0]) == pytest.approx(1e-6)
    assert float(high[0]) == pytest.approx(9.1108, abs=1e-3)
    assert float(high[1]) > 1.05e3 * float(low[1])
    assert "not scale-free" in staged.routerbench_market.__doc__


def test_a_market_can_be_simulated_without_the_engine():
    """A market holds NumPy arrays, and a policy accepts them in observations."""
    env, policy, key, t = two_models(), staged.StageRoute(), draws.key(0), jnp.int32(0)
    env_state, state = env.init(key), policy.init(key, env.spec)
    obs = env.observe(key, env_state, t)
    state = policy.plan(key, state, obs, t)
    action, _ = policy.act(key, state, obs, t)
    env_state, feedback, flows = env.step(key, env_state, action, t)
    state = policy.update(key, state, obs, action, feedback, t)
    assert state.slots.pulls.sum() == 1
    assert flows["illegal"] == 0


@pytest.mark.parametrize("make", [lambda env: staged.StageRoute(), lambda env: staged.Uniform(), staged.Oracle.of])
def test_a_loop_without_a_plan_is_refused_in_tracing(make):
    """In a user's own scan a forgotten `plan` is an error."""
    env, key = jax.tree.map(jnp.asarray, two_models()), draws.key(0)
    policy = make(env)

    def one(states, t):
        env_state, state = states
        obs = env.observe(key, env_state, t)
        action, _ = policy.act(key, state, obs, t)
        env_state, feedback, _ = env.step(key, env_state, action, t)
        return (env_state, policy.update(key, state, obs, action, feedback, t)), action.model

    def run(state):
        return jax.eval_shape(lambda states: jax.lax.scan(one, states, jnp.arange(3)), (env.init(key), state))

    state = policy.init(key, env.spec)
    message = r"^this state has no plan yet: call plan\(key, state, obs, t\) before the first act"
    with pytest.raises(AttributeError, match=message):
        run(state)
    _, models = run(policy.plan(key, state, env.observe(key, env.init(key), jnp.int32(0)), jnp.int32(0)))
    assert models.shape == (3,)


def test_two_rounds_by_hand():
    """Two models, two slots. Both are unseen: U = 1, L = .1, and p = (.7, .3) in index order.

    Model 1 is drawn, reward .5, cost .9. With N = 1: U = .5 + 2 (sqrt(.2 * .5 / 2) + .1) = 1.147 -> 1, and
    L = .9 - 2 (sqrt(.2 * .9 / 2) + .1) = .1. Again model 1, reward .1, cost 1.3: means .3 and 1.1, N = 2:
    U = .3 + 2 (sqrt(.02) + .0666667) = .716176, L = 1.1 - 2 (sqrt(.0733333) + .0666667) = .425066.
    """
    env = jax.tree.map(jnp.asarray, two_models()).replace(support=2)
    policy = staged.StageRoute(tie=staged.ties.IndexTie())
    plan, act, update = jitted(policy)
    key, t = draws.key(0), jnp.int32(0)
    obs = env.observe(key, env.init(key), t)
    state = plan(key, policy.init(key, env.spec), obs, t)
    np.testing.assert_array_equal(state.slot_model, [0, 1])
    action, info = act(key, state, obs, t)
    np.testing.assert_allclose(action.probabilities, [0.7, 0.3], atol=1e-6)
    np.testing.assert_allclose(info["reward_ucb"], [1, 1])
    np.testing.assert_allclose(info["cost_lcb"], [0.1, 0.1])
    action = action.replace(model=jnp.int32(1))
    for reward, cost, upper, lower in ((0.5, 0.9, 1.0, 0.1), (0.1, 1.3, 0.716176, 0.425066)):
        state = update(key, state, obs, action, staged_feedback(reward, cost), t)
        _, info = act(key, state, obs, t)
        np.testing.assert_allclose(info["reward_ucb"], [1.0, upper], atol=1e-5)
        np.testing.assert_allclose(info["cost_lcb"], [0.1, lower], atol=1e-5)
    np.testing.assert_array_equal(state.slots.pulls, [0, 2])
    np.testing.assert_array_equal(state.book.pulls, [0, 0])
    # At the next stage the book has the statistics of the slots.
    later = plan(key, state, obs, jnp.int32(10))
    np.testing.assert_allclose(later.book.reward_sum, [0, 0.6], atol=1e-6)
    np.testing.assert_allclose(later.book.cost_sum, [0, 2.2], atol=1e-6)
