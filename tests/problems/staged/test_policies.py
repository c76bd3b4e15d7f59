"""Staged policies: confidence bounds by hand, and whole runs against float64 loops that are fed the same draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, in_double, x64
from reference import staged as plain

from jaxroute import instances, simulate
from jaxroute.core import draws
from jaxroute.problems import staged
from jaxroute.problems.staged.types import Statistics


def statistics(pulls, reward_sum, cost_sum, dtype=jnp.float32):
    return Statistics(jnp.asarray(pulls, jnp.int32), jnp.asarray(reward_sum, dtype), jnp.asarray(cost_sum, dtype))


# Confidence bounds.


@pytest.mark.parametrize(
    ("reward", "cost", "pulls", "upper", "lower"),
    [
        # sqrt(.2 * .5 / 10) + .2 / 10 = .12, twice; sqrt(.2 * .82 / 10) + .02 = .148062, twice.
        (0.5, 0.82, 9, 0.74, 0.523875),
        (0.846561, 0.82, 99, 0.932856, 0.735006),
        (0.1, 10.0, 24, 0.172569, 9.418315),
    ],
)
def test_bounds_of_the_notes(reward, cost, pulls, upper, lower):
    policy = staged.StageRoute(gamma=0.2)
    u, c = staged.Mean().bounds(statistics([pulls], [reward * pulls], [cost * pulls]), policy)
    assert float(u[0]) == pytest.approx(upper, abs=1e-6)
    assert float(c[0]) == pytest.approx(lower, abs=2e-6)


def test_start_values():
    policy = staged.StageRoute(gamma=0.2, cost_floor=0.3)
    nothing = statistics([0], [0.0], [0.0])
    # Lemma 3: mean 0 and radius gamma: U = 2 gamma. One virtual observation: 1 + 2 (sqrt(gamma) + gamma), clipped.
    for estimator, upper, lower in (
        (staged.Mean(), 1.0, 0.3),
        (staged.Lemma3(), 0.4, 0.3),
        (staged.Pseudo(), 1.0, 0.3),
        (staged.Prior(reward=0.01, cost=5.0), 0.01 + 2 * (0.002**0.5 + 0.2), 5.0 - 2 * (1.0 + 0.2)),
    ):
        u, c = estimator.bounds(nothing, policy)
        assert float(u[0]) == pytest.approx(upper, abs=1e-6), estimator
        assert float(c[0]) == pytest.approx(lower, abs=1e-6), estimator
    small = staged.StageRoute(gamma=0.7)
    assert float(staged.Lemma3().bounds(nothing, small)[0][0]) == 1.0  # min(1, 2 gamma).


@pytest.mark.parametrize("name", ["mean", "lemma3", "pseudo"])
def test_estimators_against_the_reference(name):
    """Over pulls from 0 to 10^4, means below 0 and above 1, costs at both ends of the clip, and other constants."""
    estimator = {"mean": staged.Mean(), "lemma3": staged.Lemma3(), "pseudo": staged.Pseudo()}[name]
    rng = np.random.default_rng(4)
    pulls = np.concatenate([np.zeros(20, int), rng.integers(1, 40, 150), rng.integers(40, 10_000, 150)])
    reward_sum = pulls * rng.uniform(-0.3, 1.2, pulls.size)
    cost_sum = pulls * 10.0 ** rng.uniform(-2, 2, pulls.size)
    with x64():
        for gamma, factor in ((0.2, 2.0), (14.0, 2.0), (0.05, 1.0)):
            policy = staged.StageRoute(gamma=gamma, radius_multiplier=factor, cost_floor=0.1, cost_ceiling=50.0)
            u, c = estimator.bounds(statistics(pulls, reward_sum, cost_sum, jnp.float64), policy)
            expected = plain.bounds(pulls, reward_sum, cost_sum, gamma, 0.1, 50.0, factor, name)
            np.testing.assert_allclose(u, expected[0], atol=1e-12)
            np.testing.assert_allclose(c, expected[1], atol=1e-12)
            assert np.isfinite(u).all()
    u, c = estimator.bounds(statistics(pulls, reward_sum, cost_sum), policy)
    np.testing.assert_allclose(u, expected[0], atol=2e-6)
    np.testing.assert_allclose(c, expected[1], rtol=2e-6)


# The first rounds by hand.


def jitted(policy):
    """plan, act and update of a policy, compiled once."""
    return (jax.jit(getattr(policy, verb)) for verb in ("plan", "act", "update"))


def two_models():
    outcomes = staged.LawOutcomes(np.array([0.5, 0.5]), np.array([1.0, 1.0]), np.float32(0), np.float32(0))
    return staged.market(outcomes, capacity=0.7, budget=2.0, max_deployed=2, stage_length=10, horizon=20)


def test_a_market_can_be_played_without_the_engine():
    """A market holds NumPy arrays as the constructor leaves them, and a policy accepts what it shows of them."""
    env, policy, key, t = two_models(), staged.StageRoute(), draws.key(0), jnp.int32(0)
    env_state, state = env.init(key), policy.init(key, env.spec)
    obs = env.observe(key, env_state, t)
    state = policy.plan(key, state, obs, t)
    action, _ = policy.act(key, state, obs, t)
    env_state, feedback, flows = env.step(key, env_state, action, t)
    state = policy.update(key, state, obs, action, feedback, t)
    assert state.slots.pulls.sum() == 1
    assert flows["illegal"] == 0


def test_two_rounds_by_hand():
    """Two models, two slots. Both are unseen: U = 1, L = .1, and p = (.7, .3) in index order.

    Model 1 is drawn, reward .5, cost .9. With N = 1: U = .5 + 2 (sqrt(.2 * .5 / 2) + .1) = 1.147 -> 1, and
    L = .9 - 2 (sqrt(.2 * .9 / 2) + .1) = .1. Again model 1, reward .1, cost 1.3: means .3 and 1.1, N = 2:
    U = .3 + 2 (sqrt(.02) + .0666667) = .716176, L = 1.1 - 2 (sqrt(.0733333) + .0666667) = .425066.
    """
    env = jax.tree.map(jnp.asarray, two_models()).replace(support=2)
    policy = staged.StageRoute()
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
    # At the next stage the book holds what the slots knew.
    later = plan(key, state, obs, jnp.int32(10))
    np.testing.assert_allclose(later.book.reward_sum, [0, 0.6], atol=1e-6)
    np.testing.assert_allclose(later.book.cost_sum, [0, 2.2], atol=1e-6)


def staged_feedback(reward, cost):
    from jaxroute.problems.staged.types import Feedback

    return Feedback(reward=jnp.float32(reward), cost=jnp.float32(cost))


@pytest.mark.parametrize(
    ("scope", "slots", "book"),
    [(staged.RunScope(), 5, 5), (staged.RoutingScope(), 0, 5), (staged.StageScope(), 0, 0)],
)
def test_scopes_at_a_stage_start(scope, slots, book):
    """Five pulls of model 1 in the first stage: what routing and deployment know of them in the second."""
    env = jax.tree.map(jnp.asarray, two_models()).replace(support=2)
    policy = staged.StageRoute(scope=scope)
    plan, act, update = jitted(policy)
    key, t = draws.key(0), jnp.int32(0)
    obs = env.observe(key, env.init(key), t)
    state = plan(key, policy.init(key, env.spec), obs, t)
    action = act(key, state, obs, t)[0].replace(model=jnp.int32(1))
    for _ in range(5):
        state = update(key, state, obs, action, staged_feedback(0.5, 1.0), t)
    seen = []

    class Spy(staged.Mean):
        def bounds(self, statistics, policy):
            seen.append(np.asarray(statistics.pulls))
            return super().bounds(statistics, policy)

    state = policy.replace(estimator=Spy()).plan(key, state, obs, jnp.int32(10))
    np.testing.assert_array_equal(seen[0], [0, 5])  # Every scope deploys with the data of the stage before.
    np.testing.assert_array_equal(state.slots.pulls, [0, slots])
    np.testing.assert_array_equal(state.book.pulls, [0, book])


# Whole runs on the same draws.

RECORD = ["pulls", "deployed", "conditional_regret", "regret", "realised_regret", "cost", "served", "fee"]


@functools.partial(jax.jit, static_argnums=2)
def _luck(env, act, horizon):
    def one(t):
        shocks = jax.random.normal(jax.random.fold_in(env, t), (2,), jnp.float32)
        return shocks[0], shocks[1], jax.random.uniform(jax.random.fold_in(act, t), (), jnp.float32)

    return jax.vmap(one)(jnp.arange(horizon))


@functools.cache
def luck(seed, horizon):
    """Reward shocks, cost shocks and routing uniforms `[T]` of a run, from the addresses that the engine documents."""
    # Run key = fold_in(root, seed); its children 2 and 5 are the environment's rounds and the policy's acts.
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    env, act = (jax.random.fold_in(run, child) for child in (2, 5))
    return tuple(np.asarray(x, np.float64) for x in _luck(env, act, horizon))


def per_round(data, name, seed):
    """The rounds' own values of a recorded flow: averages and totals are undone."""
    variable = data[name].isel(policy=0).sel(seed=seed)
    values = variable.values
    if variable.attrs["kind"] == "gauge":
        return values
    if variable.attrs["kind"] == "average":
        values = values * data["time"].values
    return np.diff(values, axis=0, prepend=np.zeros_like(values[:1]))


def play(market, policy, horizon, seeds, double):
    """Runs with a record of every round."""
    record = [*RECORD, "infeasible_share", "multiplier"]
    if not double:
        return simulate(market, policy, horizon=horizon, seeds=seeds, record_every=1, record=record, progress=False)
    with x64():
        market = in_double(market)
        policy = in_double(policy(market) if not hasattr(policy, "act") else policy)
        return simulate(market, policy, horizon=horizon, seeds=seeds, record_every=1, record=record, progress=False)


# Name: (slots, stage, environment options, policy, reference options, reference parameters).
NOISE = {"reward_noise": 0.8, "cost_noise": 0.5}
BOUNDS = {"gamma": 8.0, "radius_multiplier": 1.5, "cost_floor": 0.05, "cost_ceiling": 8.0}
RUNS = {
    "M=6": (6, 250, {}, staged.StageRoute(), {}, {}),
    "M=3": (3, 500, {}, staged.StageRoute(), {}, {}),
    "routing scope, fees, ragged stages": (
        3,
        300,
        {"deploy_fee": 1.5},
        staged.StageRoute(scope=staged.RoutingScope()),
        {"scope": "routing"},
        {"deploy_fee": [1.5] * 15},
    ),
    "stage scope, pseudo": (
        6,
        300,
        {},
        staged.StageRoute(scope=staged.StageScope(), estimator=staged.Pseudo()),
        {"scope": "stage", "estimator": "pseudo"},
        {},
    ),
    "lemma3, index filler": (
        6,
        250,
        {},
        staged.StageRoute(estimator=staged.Lemma3(), filler=staged.IndexFiller()),
        {"estimator": "lemma3", "filler": "index"},
        {},
    ),
    "pace, no filler": (
        6,
        250,
        {"normalisation": "max"},
        staged.StageRoute(gamma=5.0, budget_mode=staged.Pace(), filler=staged.NoFiller()),
        {"budget_mode": "pace", "filler": "none"},
        {"gamma": 5.0},
    ),
    "stop, much noise, other bounds": (
        6,
        250,
        {"stop_at_budget": True} | NOISE,
        staged.StageRoute(**BOUNDS),
        {"budget_mode": "stop"},
        NOISE | BOUNDS,
    ),
    "Greedy": (6, 250, {}, staged.Greedy(), {"policy": "Greedy"}, {}),
    "Greedy ratio": (
        3,
        500,
        {},
        staged.Greedy(routing=staged.RouteByRatio()),
        {"policy": "Greedy", "greedy_route": "ratio"},
        {},
    ),
    "Greedy ratio, too little capacity": (
        2,
        250,
        {},
        staged.Greedy(routing=staged.RouteByRatio()),
        {"policy": "Greedy", "greedy_route": "ratio"},
        {},
    ),
    "Greedy argmax": (
        6,
        250,
        {},
        staged.Greedy(routing=staged.RouteToBest()),
        {"policy": "Greedy", "greedy_route": "argmax"},
        {},
    ),
    "Oracle, M=3": (3, 500, {}, staged.Oracle.of, {"policy": "Oracle"}, {}),
}
MORE_RUNS = {
    "M=10, theory's gamma": (10, 400, {}, staged.StageRoute(gamma=14.0), {}, {"gamma": 14.0}),
    "two slots with too little capacity": (2, 250, {}, staged.StageRoute(), {}, {}),
    "stage scope": (6, 300, {}, staged.StageRoute(scope=staged.StageScope()), {"scope": "stage"}, {}),
    "stage scope, M=3": (3, 500, {}, staged.StageRoute(scope=staged.StageScope()), {"scope": "stage"}, {}),
    "routing scope, M=6": (6, 250, {}, staged.StageRoute(scope=staged.RoutingScope()), {"scope": "routing"}, {}),
    "lemma3": (6, 250, {}, staged.StageRoute(estimator=staged.Lemma3()), {"estimator": "lemma3"}, {}),
    "pseudo, M=3": (3, 400, {}, staged.StageRoute(estimator=staged.Pseudo()), {"estimator": "pseudo"}, {}),
    "no filler": (6, 250, {}, staged.StageRoute(filler=staged.NoFiller()), {"filler": "none"}, {}),
    "index filler": (6, 250, {}, staged.StageRoute(filler=staged.IndexFiller()), {"filler": "index"}, {}),
    "pace, M=3": (3, 250, {}, staged.StageRoute(budget_mode=staged.Pace()), {"budget_mode": "pace"}, {}),
    "stop": (6, 250, {"stop_at_budget": True}, staged.StageRoute(gamma=14.0), {"budget_mode": "stop"}, {"gamma": 14.0}),
    "Greedy, M=3": (3, 500, {}, staged.Greedy(), {"policy": "Greedy"}, {}),
    "Greedy ratio, M=6": (
        6,
        250,
        {},
        staged.Greedy(routing=staged.RouteByRatio()),
        {"policy": "Greedy", "greedy_route": "ratio"},
        {},
    ),
}


def compare(name, horizon, seeds):
    """Equal models, sets, flags, multipliers, flows and regrets in every round of every seed; returns the rounds compared."""
    slots, stage, options, policy, choice, constants = (RUNS | MORE_RUNS)[name]
    market = staged.arena_market(max_deployed=slots, stage_length=stage, horizon=horizon, **options)
    data = play(market, policy, horizon, seeds, double=True)
    assert data["valid"].all()
    constants = dict(constants)
    normalisation = "max" if options.get("normalisation") == "max" else "minmax"
    params = plain.table1_params(slots, stage, horizon, normalisation, **constants)
    if choice.get("policy") == "Oracle":  # It keeps the truth in single precision.
        params.mu, params.cost = (list(map(float, np.float32(x))) for x in (params.mu, params.cost))
    for seed in seeds:
        expected = plain.simulate(params, *luck(seed, horizon), **choice)
        served = expected["served"]
        pulls = per_round(data, "pulls", seed)
        where = f"{name}, seed {seed}"
        np.testing.assert_array_equal(pulls.sum(1), served, err_msg=where)
        different = np.flatnonzero(pulls[served].argmax(1) != expected["model"][served])
        assert not different.size, f"{where}: {different.size} rounds differ, the first is {different[0]}"
        stages = np.arange(horizon) // stage
        last = np.flatnonzero(served)[-1] + 1
        deployed = per_round(data, "deployed", seed) > 0.5
        np.testing.assert_array_equal(deployed[:last], expected["deployed"][stages][:last], err_msg=where)
        fee = np.zeros(horizon)
        fee[::stage] = expected["fee"]
        # What a hard budget would have served can be read off any run: all queries before the spend reaches the total.
        spent = np.cumsum(expected["cost"] + fee)
        before = np.concatenate([[0.0], spent[:-1]]) < params.budget * horizon
        np.testing.assert_array_equal(per_round(data, "served", seed) > 0.5, before, err_msg=where)
        np.testing.assert_allclose(per_round(data, "fee", seed), fee, atol=1e-6)
        feasible = expected["feasible"]
        np.testing.assert_array_equal(per_round(data, "infeasible_share", seed)[:last] > 0.5, ~feasible[:last])
        lam = per_round(data, "multiplier", seed)[served & feasible]
        np.testing.assert_allclose(lam, expected["multiplier"][served & feasible], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(per_round(data, "cost", seed), expected["cost"], rtol=1e-5, atol=1e-5)
        for regret in ("regret", "conditional_regret", "realised_regret"):
            curve = data[regret].isel(policy=0).sel(seed=seed).values
            np.testing.assert_allclose(curve, expected[regret], atol=2e-7 * horizon, err_msg=f"{where}: {regret}")
    return expected


QUICK = ("M=6", "stop, much noise, other bounds", "Greedy", "routing scope, fees, ragged stages")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RUNS])
def test_equals_the_reference_round_by_round(name):
    expected = compare(name, horizon=2600, seeds=[0, 11])
    if "stop" in name:
        assert 0.3 < expected["served"].mean() < 1.0
    if name == "M=3":
        assert 0.05 < 1 - expected["feasible"].mean() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_RUNS)
def test_equals_the_reference_in_more_settings(name):
    compare(name, horizon=2600, seeds=[1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_equals_the_reference_over_the_whole_horizon(name):
    compare(name, horizon=10_000, seeds=[0, 1, 2, 3])


@pytest.mark.parametrize("name", ["M=6", pytest.param("M=3", marks=pytest.mark.slow)])
def test_single_precision_is_the_same_run(name):
    """In float32 a run follows the float64 reference until a uniform falls between the two precisions' probabilities.

    These differ by about 1e-7, so that a run of a few thousand rounds parts with its reference with a probability of about
    0.1 %. Measured over 16 seeds and 10,000 rounds, for M = 6 and M = 3: all rounds are equal.
    """
    slots, stage, options, policy, _, _ = RUNS[name]
    horizon, seeds = 2600, range(8)
    market = staged.arena_market(max_deployed=slots, stage_length=stage, horizon=horizon, **options)
    data = play(market, policy, horizon, seeds, double=False)
    shares = []
    for seed in seeds:
        expected = plain.simulate(plain.table1_params(slots, stage, horizon), *luck(seed, horizon))
        shares.append(np.mean(per_round(data, "pulls", seed).argmax(1) == expected["model"]))
    assert np.mean(np.equal(shares, 1.0)) > 0.8, shares
    assert min(shares) > 0.5, shares


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "stage"), [(6, 250), (3, 500)])
def test_precision_does_not_change_the_regret(slots, stage):
    """Paired by seed, float32 and float64 have the same mean regret, and nearly all runs are the same."""
    market = staged.arena_market(max_deployed=slots, stage_length=stage)
    kwargs = {"horizon": 10_000, "seeds": 256, "record": ["regret"], "progress": False}
    single = simulate(market, staged.StageRoute(), **kwargs)["regret"].values[0, :, -1]
    with x64():
        double = simulate(in_double(market), in_double(staged.StageRoute()), **kwargs)["regret"].values[0, :, -1]
    difference = single - double
    assert np.mean(np.abs(difference) < 0.01) > 0.9
    assert abs(difference.mean()) <= 5 * difference.std(ddof=1) / 16 + 1e-3


# Limits and other comparators.


def four_models(**options):
    outcomes = staged.LawOutcomes(
        np.array([0.2, 0.8, 0.5, 0.4]), np.array([0.5, 3.0, 1.0, 0.7]), np.float32(0.1), np.float32(0.1)
    )
    given = {"capacity": 1.0, "budget": 1.0, "max_deployed": 4, "stage_length": 50, "horizon": 400}
    return staged.market(outcomes, **given | options)


def test_without_constraints_it_is_plain_optimism():
    """Capacity 1 and a budget that never binds: every query goes to the largest bound, ties to the cheaper and the first."""
    horizon, policy = 400, staged.StageRoute()
    data = play(four_models(budget=1e4, max_deployed=4), policy, horizon, [3], double=True)
    chosen = per_round(data, "pulls", 3).argmax(1)
    reward_shock, cost_shock, _ = luck(3, horizon)
    pulls, rewards, costs = np.zeros(4, int), np.zeros(4), np.zeros(4)
    for t in range(horizon):
        u, c = plain.bounds(pulls, rewards, costs, 0.2, 0.1, 50.0)
        best = min(range(4), key=lambda m: (-u[m], c[m], m))
        assert chosen[t] == best, t
        pulls[best] += 1
        rewards[best] += [0.2, 0.8, 0.5, 0.4][best] + np.float32(0.1) * reward_shock[t]
        costs[best] += [0.5, 3.0, 1.0, 0.7][best] * (1 + np.float32(0.1) * cost_shock[t])
    assert (pulls > 0).all()


@pytest.mark.slow
def test_relabelling_models_relabels_the_run():
    """With other labels for the models the oracle deploys the same models, and uses them as often."""
    order = np.array([2, 0, 3, 1])
    market = four_models(max_deployed=2, capacity=0.9)
    means = {name: getattr(market.outcomes, name)[order] for name in ("reward_mean", "cost_mean")}
    moved = market.replace(outcomes=market.outcomes.replace(**means))
    data = simulate(
        instances([market, moved]), staged.Oracle.of, horizon=400, seeds=40, record=["pulls", "deployed"], progress=False
    )
    first, second = (data.isel(policy=0, instance=i, time=-1) for i in (0, 1))
    np.testing.assert_array_equal(first["deployed"].values[:, order], second["deployed"].values)
    assert (first["deployed"].values.sum(-1) == 2).all()
    difference = first["pulls"].values[:, order] - second["pulls"].values
    used = second["deployed"].values[0] > 0.5
    assert (difference[:, ~used] == 0).all()
    error = difference[:, used].std(0, ddof=1) / np.sqrt(40)
    assert (np.abs(difference[:, used].mean(0)) <= 5 * error).all()


def run_sets(policy, seeds=12, slots=3, **options):
    """Deployed sets per stage `[seed, stage, N]` and probabilities' flows of a run over Table 1."""
    market = staged.arena_market(max_deployed=slots, stage_length=500, horizon=3000, **options)
    record = ["deployed", "pulls", "capacity_excess", "conditional_regret"]
    return simulate(market, policy, horizon=3000, seeds=seeds, record_every=500, record=record, progress=False)


def test_static_keeps_its_first_set():
    data = run_sets(staged.Static(), slots=5)
    expected = np.arange(15) < 5
    assert (data["deployed"].values[0] == expected).all()


def test_cheapest_takes_the_lowest_cost_bounds():
    """With much noise removed, the cheapest three of Table 1 are found: .14, .28, .28 once those have arrived."""
    market = staged.arena_market(max_deployed=3, stage_length=500, horizon=10_000, cost_noise=0.0)
    data = simulate(
        market, staged.Cheapest(gamma=1e-4), horizon=10_000, seeds=6, record_every=500, record=["deployed"], progress=False
    )
    final = data["deployed"].isel(policy=0, time=-1).values
    assert (final == np.isin(np.arange(15), [2, 8, 9])).all()


def test_random_deployments_are_uniform():
    data = run_sets(staged.RandomDeploy(), seeds=200)
    deployed = data["deployed"].values[0]
    assert (deployed.sum(-1) == 3).all()
    first = deployed[:, 0]  # Six models are there, each live with probability 1/2.
    assert not first[:, 6:].any()
    for m in range(6):
        assert_mean_close(first[:, m], 0.5, what=f"model {m}")
    assert len({tuple(row) for row in first}) == 20  # All C(6, 3) sets occur.
    assert np.mean((deployed[:, 0] == deployed[:, 1]).all(-1)) < 0.2


def test_uniform_ignores_capacities():
    data = run_sets(staged.Uniform(), seeds=50, slots=2)
    pulls = data["pulls"].isel(policy=0, time=0).values
    live = data["deployed"].isel(policy=0, time=0).values > 0.5
    assert_mean_close(
        np.where(live, pulls, np.nan)[:, :6].max(1, initial=0, where=live[:, :6]) / 500, 0.5 + 0.4 / 500**0.5, 8
    )
    assert (pulls[~live] == 0).all()
    excess = data["capacity_excess"].isel(policy=0, time=0).values
    # Two models at 1/2 each: .1 above the capacity .4 of each, except Yi-Lightning (2).
    np.testing.assert_allclose(excess, 500 * 0.1 * (2 - live[:, 2]), rtol=1e-3)
