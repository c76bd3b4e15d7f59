"""StageRoute: the sets of the paper's experiment against NumPy loops, and simulation without the engine."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from staged_cases import arena, two_models

from jaxroute.core import draws
from jaxroute.problems import staged

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
