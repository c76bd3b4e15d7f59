"""States as they are after 1e9 rounds: the next rounds change every statistic as in float64, and no sum stops."""

import dataclasses
import re

import conformance_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import x64
from jax import lax

from jaxroute import Execution, simulate
from jaxroute.core import draws, numerics
from jaxroute.core.types import Spec
from jaxroute.engine.precision import widened
from jaxroute.problems import stochastic

ROUNDS, NEXT = 10**9, 400


def recorded_rounds(case):
    """Returns how many rounds are repeated. Cascades need enough for regular Hessians of samples that left a window."""
    return 200 if case.startswith("cascade") else 40


# How a leaf grows with the rounds, by the end of its path: the power of the number of rounds.
SUM, INVERSE, ROOT, MEAN = 1.0, -1.0, -0.5, 0.0
ERROR = r".*(errors\['\w+'\]|\.error|\.fit\[1\])"
GROWTH = {
    r"\.(pulls|wins|count|number|num_steps|rounds|satisfied|in_use)": SUM,
    r"\.(reward_sum|cost_sum|square_sum|loss_sum|loss_estimate|precision|overspend|target|hessian|gradient|cross|opened)": SUM,
    r"\.state\.target\.total": SUM,
    r"\.(triangle|inverse|design)": INVERSE,
    r"\.(inverse|design|fit|fit\[0\])\.total": INVERSE,
    r"\.(log_weight|theta|mean|cost|log_det|potential|score_potential|rho|length|spent|reward|violation|violation_eq1)": MEAN,
    r"\.loss\.total|\.params.*": MEAN,
}
# `V` of `ByCholesky`, and a square root of its inverse of `ByRoot`.
SPREADS = {"queueing/on line": ROOT}

# What has no state of 1e9 rounds, and why.
FIXED = "it is set in `init`, and stays"
NEWEST = "it is of the latest rounds"
FOLLOWS = "it is computed anew from other leaves in every round"
MEMORY = "it is made of all rows of a run, which fill the memory long before"
NONE = {
    r"\.(gamma|rounds|slot_model|slot_filled|slot_capacity|unfinished|exploration|selected)": FIXED,
    r"\.(actions|rewards|residual|psi|score|features|held|held_relaxed|arrived|decided|next_offer|alive|deployed)": NEWEST,
    r"\.fit\.(cost|score)|\.optimiser.*trace.*|\.cost|\.source|": NEWEST,
    r"\.evaluation\.state\.(theta|rewards|number|features)|\.worst_overspend|\.first_compliance|\.last_violation": FOLLOWS,
    r"\.data\..*|\.fit\.(inverse|hessian|gradient|curvature|longest|schedule\.\w+)|\.(theta|rho)": MEMORY,
    r"\.(backlog|optimal)\..*|\.peak|\.arrivals.*": MEMORY,
    r"\.optimiser.*count": "optax counts no further than 2^31 - 1",
    r"\.fit": "steps of gradient descent fall as 1 / sqrt(n): after 1e9 samples one is a thousand roundings long",
}
# Largest error of a leaf's change in the next rounds, in units of its largest change, where it is more than that of float32 numbers.
ROUNDING = 1e-5
TOLERANCES = {
    r"^\.params": 5e-3,  # A gradient's own rounding; such parameters have no long memory.
    r"\.fit\.(hessian|gradient|cross)$": 0.1,  # Samples that leave a window count by a sign, which rounding may turn.
}
# Where no leaf that grows changes in the next rounds, and why.
STILL = {
    r"cascade/ExploreThenCommit": "it has stopped learning",
    r"staged/Oracle": "it learns nothing",
    r"staged/(discovery|lower_bound)_market": "every query costs the budget, so that no spend is above or below it",
}


def named(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def error_of(name, state):
    """Finds the leaf that holds the rounding error of another leaf."""
    before, _, last = name.rpartition(".")
    others = {"total": ".error", "length": ".error", "rho": ".fit.error", "theta": ".fit[1]"}
    found = [f"{before}.errors['{last}']", before + others.get(last, "?")]
    return next((state[one] for one in found if one in state and state[one].shape == state[name].shape), None)


def growth(case, name, state):
    """Returns the power of the rounds with which a leaf grows, or a text if it has no such state."""
    value = state[name]
    if re.fullmatch(r"\.spread\.total", name):
        return SPREADS.get(case, SUM)
    if re.fullmatch(ERROR, name):
        return None
    compensated = error_of(name, state) is not None
    whole = jnp.issubdtype(value.dtype, jnp.integer)
    if compensated or whole or re.fullmatch(r"\.params.*", name):
        for pattern, power in GROWTH.items():
            found = re.search(rf"(?:{pattern})$", name)
            if found and (compensated or power == SUM or name.startswith(".params")) and ".data." not in name:
                return power
    reason = next((reason for pattern, reason in NONE.items() if re.search(rf"(?:{pattern})$", name)), None)
    assert reason is not None, f"{case}: {name} neither grows with the rounds nor says why not"
    return reason


def players(pair):
    env = pair.env()
    env = jax.tree.map(jnp.asarray, env if hasattr(env, "spec") else env(draws.key(5)))
    policy = pair.policy if hasattr(pair.policy, "update") else pair.policy(env)
    return env, policy.replace(horizon=float(ROUNDS)) if hasattr(policy, "horizon") else policy


def recorded(case):
    """Plays some rounds. Returns environment, policy, both states after them, and what came in each round."""
    env, policy = players(CASES[case])
    number = recorded_rounds(case)
    spec = dataclasses.replace(env.spec, horizon=number)

    def one(states, t):
        env_state, state = states
        k_env, k_act, k_update = draws.split(draws.fold_in(draws.key(3), t), 3)
        obs = env.observe(k_env, env_state, t)
        action, _ = policy.act(k_act, state, obs, t)
        env_state, feedback, _ = env.step(k_env, env_state, action, t)
        new = policy.update(k_update, state, obs, action, feedback, t)
        return (env_state, new), (k_env, k_update, obs, action, feedback, t)

    def run():
        env_state, state = env.init(draws.key(1)), policy.init(draws.key(2), spec)
        if hasattr(policy, "plan"):
            state = policy.plan(draws.key(4), state, env.observe(draws.key(1), env_state, jnp.int32(0)), jnp.int32(0))
        return lax.scan(one, (env_state, state), jnp.arange(number, dtype=jnp.int32))

    return env, policy, *jax.jit(run)()


def aged(case, state):
    """Returns the state as if the recorded rounds had come again and again."""
    leaves = named(state)

    def old(name, x):
        power = growth(case, name, leaves)
        if isinstance(power, str):
            return x
        if power is None:
            return jnp.zeros_like(x)
        value = np.asarray(x, np.float64) * (ROUNDS / recorded_rounds(case)) ** power
        if power == MEAN:  # Not where the same rounds would leave it; and much is owed.
            far = {"length": 12345.6, "log_weight": np.where(value < 0.0, -12.3, 0.0)}.get(name.rpartition(".")[2])
            value = 0.9 * value if far is None else value + far
        return jnp.asarray(np.round(value) if jnp.issubdtype(x.dtype, jnp.integer) else value, x.dtype)

    return jax.tree.unflatten(jax.tree.structure(state), [old(*one) for one in leaves.items()])


def check_next_rounds(case, update, state, inputs):
    """Checks that each growing leaf changes in float32 as in float64 under `update(state, input, t)`."""
    start, number = aged(case, state), recorded_rounds(case)

    def later(start, inputs):
        def one(state, i):
            t = i % number if case.startswith("queueing") else ROUNDS + i
            return update(state, jax.tree.map(lambda x: x[i % number], inputs), t), None

        return lax.scan(one, start, jnp.arange(NEXT, dtype=jnp.int32))[0]

    ours = named(jax.jit(later)(start, inputs))
    with x64():
        exact = {
            name: np.asarray(x)
            for name, x in named(jax.jit(widened(later))(start, inputs)).items()
            if "key" not in str(x.dtype)
        }
    first, moved = named(start), 0
    for name in first:
        power = growth(case, name, first)
        if power is None or isinstance(power, str):
            continue

        def total(leaves, name=name):
            error = error_of(name, leaves)
            return np.asarray(leaves[name], np.float64) + (0.0 if error is None else np.asarray(error, np.float64))

        change, theirs = total(ours) - total(first), total(exact) - total(first)
        tolerance = next((limit for pattern, limit in TOLERANCES.items() if re.search(pattern, name)), ROUNDING)
        # What is owed to a queue cancels over the repeated rounds: a round's step is its unit.
        scale = np.abs(theirs).max(initial=1.0 if name.endswith(".length") else 0.0)
        np.testing.assert_allclose(change, theirs, rtol=0, atol=tolerance * scale, err_msg=f"{case}: {name}")
        moved += np.any(theirs != 0)
    return moved


POLICIES = {**cases.POLICIES, **cases.OPTIONS}
POLICIES["stochastic/no discount"] = cases.Pair(stochastic.DiscountedThompson(discount=1.0), cases.bernoulli)
ENVIRONMENTS = {**cases.ENVIRONMENTS, **cases.VARIANTS}
CASES = {**POLICIES, **ENVIRONMENTS}

# One for each kind of sum, in the quick tier.
QUICK = [
    *("stochastic/UCB1", "stochastic/BetaThompson", "stochastic/DiscountedUCB", "stochastic/Exp3", "contextual/LinUCB"),
    *("staged/StageRoute", "combinatorial/C2MABV", "queueing/QUCB", "cascade/OnlineGradient"),
    *("staged/small market", "combinatorial/parametric_cloud", "service/probit_service"),
]


def marked(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def check_policy_moves(case):
    """Checks that the growing leaves of a policy's state change as in float64. Returns their names."""
    _, policy, (_, state), inputs = recorded(case)

    def update(state, given, t):
        _, key, obs, action, feedback, _ = given
        return policy.update(key, state, obs, action, feedback, t)

    return check_moves(case, update, state, inputs)


def check_environment_moves(case):
    env, _, (state, _), inputs = recorded(case)
    return check_moves(case, lambda state, given, t: env.step(given[0], state, given[3], t)[0], state, inputs)


def check_moves(case, update, state, inputs):
    leaves = named(state)
    grow = [name for name in leaves if isinstance(growth(case, name, leaves), float)]
    if grow:
        moved = check_next_rounds(case, update, state, inputs)
        assert bool(moved) != any(re.fullmatch(still, case) for still in STILL), (case, moved)
    return grow


@pytest.mark.parametrize("case", marked(POLICIES))
def test_policies(case):
    check_policy_moves(case)


@pytest.mark.parametrize("case", marked(ENVIRONMENTS))
def test_environments(case):
    check_environment_moves(case)


# Cases of every problem whose sums are added up by `numerics.add_up`.
COMPENSATED = [
    *("stochastic/UCB1", "contextual/LinUCB", "staged/StageRoute", "combinatorial/C2MABV", "service/MessPlus"),
    *("queueing/on line", "cascade/COSMOS", "cascade/OnlineGradient", "stochastic/no discount", "stochastic/Exp3PlusPlus"),
]


@pytest.mark.parametrize("case", marked(COMPENSATED))
def test_plain_sums_are_noticed(case, monkeypatch):
    """With additions that drop what rounding leaves out, the same check fails."""

    def plain(total, error, value, seen=None):
        return total + (value if seen is None else jnp.where(seen, value, 0.0)), error

    monkeypatch.setattr(numerics, "add_up", plain)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_policy_moves(case)


def pulled(policy, reward, number, state=None):
    """Returns the state after so many rewards of the only model."""
    first = policy.init(draws.key(0), Spec(num_models=1)) if state is None else state

    def one(i, state):
        return policy.update(None, state, (), jnp.int32(0), jnp.float32(reward), i)

    return jax.jit(lambda state: lax.fori_loop(0, number, one, state))(first)


def test_the_mean_of_equal_rewards():
    """A plain sum of .7 has the mean .7202."""
    state = pulled(stochastic.UCB1(), 0.7, 3 * 10**6)
    assert float(state.reward_sum[0]) / 3e6 == pytest.approx(0.7, abs=1e-6)


def test_few_losses_among_many_pulls():
    """1e9 pulls with 1,000 losses, and 1,000 wins and a loss more: 1,002 failures with the prior's, where float32 pulls are multiples of 64."""
    policy, first = stochastic.BetaThompson(), stochastic.UCB1().init(draws.key(0), Spec(num_models=1))
    total, error = numerics.add_up(jnp.float32([999_998_976.0]), jnp.zeros(1), jnp.float32([24.0]))
    state = first.replace(pulls=jnp.int32([10**9]), reward_sum=total, errors={"reward_sum": error})
    after = pulled(policy, 0.0, 1, pulled(policy, 1.0, 1000, state))
    np.testing.assert_array_equal(policy.posterior(after)[1], [1002.0])


def test_sums_of_long_intervals():
    """Rewards of .7 in a record interval of 3 million rounds, and in one of a prime number: they are summed by some thousand rounds."""
    env = stochastic.gaussian([0.7], scale=0.0)
    for backend in ("scan", "kernel"):
        for rounds in (3 * 10**6, 1_000_003):
            data = simulate(
                env,
                stochastic.UCB1(),
                horizon=rounds,
                seeds=1,
                record_every=rounds,
                progress=False,
                execution=Execution(backend),
            )
            reward = float(data["reward"].values.reshape(-1)[-1])
            assert reward == pytest.approx(float(np.float32(0.7)), rel=1e-4), (backend, rounds)
