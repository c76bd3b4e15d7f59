"""The combinatorial problem: whole runs against float64 loops that are fed the same draws, laws, drift, metrics, and the theory."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_mean_close, in_double, shared_data, x64
from reference import combinatorial as plain

import jaxroute as jr
from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import C2MABV_TABLE_1, C2MABV_TABLE_3, RoutingTable
from jaxroute.engine.programs import trace_count
from jaxroute.problems import combinatorial as cb

TASKS = ("awc", "suc", "aic")
SETTINGS = {"a": (0.3, 0.05), "b": (1.0, 0.05), "c": (0.3, 0.01), "d": (1.0, 0.01)}
RECORD = [
    "reward", "realised_reward", "cost", "selected_cost", "violation", "selected_violation", "mean_violation_eq1", "violation_eq1",
    "ratio", "ratio_eq1", "regret", "alpha_regret", "lp_regret", "over_budget", "num_selected", "num_asked", "pulls",
]  # fmt: skip


def play(env, policy, horizon=2000, seeds=32, **options):
    options = {"record_every": horizon, "record": RECORD, "progress": False} | options
    return simulate(env, {"policy": policy}, horizon=horizon, seeds=seeds, **options).isel(policy=0)


def end(data, name):
    return data[name].isel(time=-1).values


# Round by round against the reference.


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _luck(env, act, update, horizon, num_models, size, kind):
    """All draws of a run: outcomes, costs, availability; then the policy's, by its own splits."""

    def one(t):
        env_key, act_key = jax.random.fold_in(env, t), jax.random.fold_in(act, t)
        outcome_key = jax.random.fold_in(env_key, 0)
        k_outcome, k_cost = (jax.random.fold_in(outcome_key, i) for i in (0, 1))
        children = [jax.random.fold_in(act_key, i) for i in range(5)]
        update_key = jax.random.fold_in(update, t)

        def uniform(key, shape=(num_models,)):
            return jax.random.uniform(key, shape)

        found = {
            "outcome": uniform(k_outcome),
            "cost": uniform(k_cost),
            "available": uniform(jax.random.fold_in(env_key, 1)),
            "arrives": uniform(jax.random.fold_in(env_key, 2), ()),
            "graded_coin": uniform(update_key),
        }
        if kind == "c2mabv":
            tie, rounding = children[0], children[1]
        elif kind == "epsilon":
            found |= {"explore": uniform(children[0], ()), "subset": uniform(children[1])}
            tie, rounding = children[2], children[3]
        else:  # CUCB breaks ties with its first child, the random set and Thompson sampling draw from it.
            found |= {"subset": uniform(children[0]), "theta": jax.random.normal(children[0], (num_models,))}
            tie, rounding = children[0], children[0]
        trades, leave = (jax.random.fold_in(rounding, i) for i in (0, 1))
        return found | {
            "tie": uniform(tie),
            "pair": uniform(rounding),
            "swap": uniform(trades, (num_models, size)),
            "leave": uniform(leave),
        }

    return jax.vmap(one)(jnp.arange(horizon))


def luck(seed, horizon, num_models, size, kind, arrival=None):
    """`Draws` of a run from the addresses that the engine documents."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    env, act, update = (jax.random.fold_in(run, child) for child in (2, 5, 6))
    found = {k: np.asarray(v, np.float64) for k, v in _luck(env, act, update, horizon, num_models, size, kind).items()}
    found["arrives"] = None if arrival is None else found["arrives"] < np.float32(arrival)
    return plain.Draws(rounds=horizon, **found)


# Name: (task, environment options, policy, kind of draws, reference policy and options).
RUNS = {
    "suc (c)": ("suc", {}, cb.C2MABV(), "c2mabv", {}),
    "suc (b)": ("suc", {}, cb.C2MABV(1.0, 0.05), "c2mabv", {"reward_width": 1.0, "cost_width": 0.05}),
    "aic (d)": ("aic", {}, cb.C2MABV(1.0, 0.01), "c2mabv", {"reward_width": 1.0}),
    "awc (a)": ("awc", {}, cb.C2MABV(0.3, 0.05), "c2mabv", {"cost_width": 0.05}),
    "awc, by reward": ("awc", {}, cb.C2MABV(order=cb.ByReward()), "c2mabv", {"order": "ucb"}),
    "awc, greedy": (
        "awc", {}, cb.C2MABV(solver=cb.ContinuousGreedy()), "c2mabv", {"solver": "cgreedy"},
    ),
    "suc, batches": ("suc", {}, cb.C2MABV(batch=10), "c2mabv", {"batch": 10}),
    "suc, held relaxation": (
        "suc", {}, cb.C2MABV(batch=7, hold=cb.HoldRelaxed()), "c2mabv", {"batch": 7, "hold": "relaxed"},
    ),
    "awc, two tiers": (
        "awc", {}, cb.C2MABV(allowed=cb.two_tier(C2MABV_TABLE_3.names)), "c2mabv", {"allowed": np.isin(np.arange(9), (4, 8))},
    ),
    "suc, all costs seen": ("awc", {"sees_all_costs": True}, cb.C2MABV(), "c2mabv", {"cost_feedback": "action"}),
    "suc, availability": ("suc", {"availability": 0.8}, cb.C2MABV(), "c2mabv", {}),
    "awc, availability": ("awc", {"availability": 0.7}, cb.C2MABV(), "c2mabv", {}),
    "suc, warm start": (
        "suc", {}, cb.C2MABV(prior_pulls=20, prior_outcome=0.4, prior_cost=0.2), "c2mabv", {"prior": (20, 0.4, 0.2)},
    ),
    "awc, by cost": ("awc", {}, cb.C2MABV(order=cb.ByCost()), "c2mabv", {"order": "lcb_cost"}),
    "awc, by index": ("awc", {}, cb.C2MABV(order=cb.ByIndex()), "c2mabv", {"order": "index"}),
    "suc, round-robin start": ("suc", {}, cb.C2MABV(start=cb.RoundRobin()), "c2mabv", {"start": "round_robin"}),
    "suc, lost feedback": ("suc", {"arrival": 0.6}, cb.C2MABV(batch=5), "c2mabv", {"batch": 5}),
    "awc, lost feedback": ("awc", {"arrival": 0.3}, cb.C2MABV(), "c2mabv", {}),
    "suc, batches, availability": (
        "suc", {"availability": 0.8, "any_size": True}, cb.C2MABV(batch=10), "c2mabv", {"batch": 10},
    ),
    "suc, fixed costs": ("suc", {"costs": cb.FixedCosts()}, cb.C2MABV(), "c2mabv", {}),
    "aic, graded": ("aic", {"graded": True}, cb.C2MABV(), "c2mabv", {}),
    "awc, Direct": ("awc", {}, cb.Direct(), "c2mabv", {"policy": "Direct"}),
    "aic, Direct": ("aic", {}, cb.Direct(), "c2mabv", {"policy": "Direct"}),
    "suc, epsilon-greedy": ("suc", {}, cb.EpsilonGreedy(), "epsilon", {"policy": "EpsGreedy"}),
    "awc, CUCB": ("awc", {}, cb.CUCB(), "plain", {"policy": "CUCB"}),
    "suc, CUCB with the other radius": (
        "suc", {}, cb.CUCB(radius=cb.UnionRadius(0.3)), "plain", {"policy": "CUCB", "cucb_radius": "c2mabv", "reward_width": 0.3},
    ),
    "suc, Thompson by coin": (
        "suc", {"graded": True}, cb.Thompson(cb.NormalPosterior(), cb.CountByCoin()), "plain",
        {"policy": "Thompson", "graded_update": "coin"},
    ),
    "suc, Thompson": ("suc", {}, cb.Thompson(cb.NormalPosterior()), "plain", {"policy": "Thompson"}),
    "aic, random": ("aic", {}, cb.RandomSet(), "plain", {"policy": "Random"}),
}  # fmt: skip


def per_round(data, name):
    """The rounds' own values of a recorded flow: averages and totals are undone."""
    values = data[name].values
    if data[name].attrs["kind"] == "gauge":
        return values
    if data[name].attrs["kind"] == "average":
        values = values * data["time"].values
    return np.diff(values, axis=0, prepend=np.zeros_like(values[:1]))


QUICK = ("suc (c)", "awc (a)", "suc, lost feedback")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RUNS])
def test_equals_the_reference_round_by_round(name):
    task, options, policy, kind, choice = RUNS[name]
    horizon, seed = 600, 3
    with x64():
        env = in_double(cb.sciq_cloud(reward=task, **options))
        data = simulate(
            env, {"policy": in_double(policy)}, horizon=horizon, seeds=[seed], record_every=1, record=RECORD, progress=False
        ).isel(policy=0, seed=0)
    assert bool(data["valid"])
    price = np.asarray(env.price, float)
    changes = {"cost": list(price), "price": list(price), "mu": list(np.asarray(env.outcomes.outcome_mean[0], float))}
    changes["budget"] = float(env.budget)
    if "costs" in options:
        changes["cost_law"] = "fixed"
    if "graded" in options:
        levels = (env.outcomes.successes.correct, env.outcomes.successes.formatted, env.outcomes.successes.empty)
        changes |= {"outcome": "graded", "levels": np.stack([np.asarray(x[0], float) for x in levels], 1)}
    if "availability" in options:
        changes["available_chance"] = float(np.float32(options["availability"]))
    params = plain.sciq9(task.upper(), **changes)
    lottery = luck(seed, horizon, 9, 4, kind, options.get("arrival"))
    settings = {"delta": 1e-4, "rounding": "swap" if task == "awc" else "pairwise", **choice}
    if "prior" in settings:
        settings["prior"] = tuple(np.full(9, x) for x in settings["prior"])
    if settings.get("policy") == "Thompson":
        settings["thompson"] = "normal"
    expected = plain.simulate(params, lottery, **settings)
    pulls = per_round(data, "pulls")
    different = np.flatnonzero((pulls != expected["observed"]).any(1))
    assert not different.size, f"{name}: {different.size} rounds differ, the first is {different[0]}"
    ours = {
        "reward": "reward", "realised_reward": "realised", "cost": "spent", "selected_cost": "spent_selected", "violation": "violation",
        "selected_violation": "violation_selected", "mean_violation_eq1": "violation_mean", "violation_eq1": "violation_mean",
        "regret": "regret", "alpha_regret": "alpha_regret", "lp_regret": "relaxed_regret", "num_selected": "num_selected",
        "num_asked": "num_observed", "over_budget": "over_budget",
    }  # fmt: skip
    for metric, other in ours.items():
        np.testing.assert_allclose(per_round(data, metric), expected[other], atol=5e-6, err_msg=f"{name}: {metric}")
    totals = plain.metrics(expected, params.budget)
    for metric, other in (("ratio", "ratio_inst"), ("ratio_eq1", "ratio_eq1")):
        finite = np.isfinite(totals[other])
        np.testing.assert_allclose(data[metric].values[finite], totals[other][finite], rtol=1e-4)
        assert np.isinf(data[metric].values[~finite]).all()


# Statistics of whole runs, from the notes: T = 10,000, cost scaled.


@pytest.mark.parametrize(
    ("task", "policy", "reward", "violation"),
    [
        ("suc", cb.OracleRelaxed.of, 1.0442667, 0.0744),
        ("suc", cb.OracleInteger.of, 1.0, None),
        ("suc", cb.CUCB(), 1.392, None),
        ("suc", cb.Thompson(), 1.4142, None),
        ("suc", cb.Thompson(cb.NormalPosterior()), 1.4151, None),
        ("awc", cb.CUCB(), 0.821, None),
        ("awc", cb.Direct(), 0.687, 0.0041),
    ],
)
def test_figures_of_the_notes(task, policy, reward, violation):
    data = play(cb.sciq_cloud(reward=task), policy, horizon=10_000, seeds=32)
    assert data["valid"].all()
    assert abs(end(data, "reward").mean() - reward) < 2e-3
    if violation is not None:
        assert abs(end(data, "violation").mean() - violation) < 1e-3


@pytest.mark.slow
def test_steady_state_of_the_relaxed_oracle():
    """Closed form: two sets mixed by one coin. Cost at the budget, violation of a round above zero for ever."""
    for costs, law in ((cb.ScaledCosts(), "scaled"), (cb.FixedCosts(), "fixed")):
        data = play(cb.sciq_cloud(reward="suc", costs=costs), cb.OracleRelaxed.of, horizon=4000, seeds=64)
        expected = plain.steady_state("SUC", plain.SCIQ9_MU, [p / 0.12 for p in plain.SCIQ9_PRICE], 4, 0.5, law)
        for name in ("reward", "cost", "violation"):
            assert_mean_close(end(data, name), float(expected[name]), what=f"{law} {name}")


@pytest.mark.slow
def test_regret_and_violation_fall_as_the_notes_say():
    """SUC at (1, .01), T = 500 and 2,000: lp regret 32.7 +- .3 and 66.8 +- 1.2, violation .0211 +- .0005 at 500."""
    data = play(cb.sciq_cloud(reward="suc"), cb.C2MABV(1.0, 0.01, delta=1 / 500), horizon=500, seeds=256)
    assert abs(end(data, "lp_regret").mean() - 32.7) < 2.0
    assert abs(end(data, "violation_eq1").mean() - 0.0211) < 0.003
    long = play(cb.sciq_cloud(reward="suc"), cb.C2MABV(1.0, 0.01, delta=1 / 2000), horizon=2000, seeds=256)
    assert abs(end(long, "lp_regret").mean() - 66.8) < 6.0


def test_bounds_hold_with_high_probability():
    """Lemma 1: with both widths 1 and delta = .1, means leave their radius in at most 5 % of runs."""
    env = cb.sciq_cloud(reward="suc")
    policy = cb.C2MABV(1.0, 1.0, delta=0.1)
    truth = np.asarray(env.outcomes.outcome_mean[0]), np.asarray(env.outcomes.cost_mean[0])

    def outside(env, policy, env_state, state, t):
        value, cost = policy.bounds(state, t)
        return {"reward": jnp.any(value < truth[0] - 1e-6), "cost": jnp.any(cost > truth[1] + 1e-6)}

    data = simulate(
        env, policy, horizon=400, seeds=2000, record_every=1, record=[], probes={"outside": outside}, progress=False
    ).isel(policy=0)
    for name in ("outside.reward", "outside.cost"):
        assert float(data[name].any("time").mean()) <= 0.05


def test_theorem_bounds():
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.426) == pytest.approx(6201, abs=1)
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.0) == pytest.approx(6197, abs=1)
    assert cb.bound_violation(9, 4, 10_000) == pytest.approx(0.6223, abs=1e-4)
    assert cb.bound_violation(9, 4, 10_000, power=4) > cb.bound_violation(9, 4, 10_000)
    data = play(cb.sciq_cloud(reward="suc"), cb.C2MABV(1.0, 1.0, delta=1 / 2000), horizon=2000, seeds=32)
    assert (end(data, "violation_eq1") <= cb.bound_violation(9, 4, 2000)).all()
    assert (end(data, "regret") <= cb.bound_regret(9, 4, 2000, 1.0, 1.426)).all()


def test_chance_that_a_cascade_observes_everything():
    env = cb.sciq_cloud(reward="awc")
    success = np.asarray(env.outcomes.outcome_mean[0])
    assert cb.least_observed(success, env.price, 4) == pytest.approx(0.28374, abs=1e-5)
    rng = np.random.default_rng(2)
    for _ in range(20):
        success, order = rng.random(6), rng.integers(0, 4, 6)
        ranked = success[np.argsort(order, kind="stable")]
        every = [np.prod(1 - ranked[list(c[:-1])]) for c in itertools.combinations(range(6), 3)]
        assert cb.least_observed(success, order, 3) == pytest.approx(min(every))


# Environments.


def test_tables_of_the_paper():
    assert len(C2MABV_TABLE_1.names) == 12
    assert C2MABV_TABLE_1.prices[C2MABV_TABLE_1.names.index("J1-Jumbo")] == 250
    assert len(C2MABV_TABLE_3.names) == 9
    env = cb.sciq_cloud()
    np.testing.assert_allclose(env.outcomes.outcome_mean[0], plain.SCIQ9_MU, atol=1e-6)
    np.testing.assert_allclose(env.price[[0, 1, 8]], [0.0416667, 0.1666667, 1.0], atol=1e-6)
    graded = cb.sciq_cloud(graded=True)
    np.testing.assert_allclose(graded.outcomes.outcome_mean, env.outcomes.outcome_mean, atol=1e-6)


def test_benchmarks():
    values = {"awc": (0.6879891, 0.6938281), "suc": (1.0, 1.0442667), "aic": (2.518992e-4, 4.244515e-4)}
    for task, (best, relaxed) in values.items():
        env = cb.sciq_cloud(reward=task)
        assert float(env.best[0, 0]) == pytest.approx(best, rel=1e-6)
        assert float(env.best_relaxed[0, 0]) == pytest.approx(relaxed, rel=1e-6)
    assert tuple(np.flatnonzero(cb.sciq_cloud(reward="aic").best_selection[0])) == (0, 3, 4, 5)


def outcomes_of(env, count=20_000, seed=0):
    """Outcomes, successes and costs `[count, K]` of many rounds."""
    keys = jax.vmap(lambda i: jax.random.fold_in(draws.key(seed), i))(jnp.arange(count))
    return [np.asarray(x) for x in jax.jit(jax.vmap(lambda k: env.outcomes.draw(k, (), jnp.int32(0))))(keys)]


def test_laws_have_their_means():
    for env in (
        cb.sciq_cloud(),
        cb.sciq_cloud(graded=True, costs=cb.TokenCosts()),
        cb.law_cloud([0.3, 0.4, 0.732], [0.1, 0.3, 1.0], reward="awc", budget=0.5, size=2, correlation=0.35),
    ):
        outcome, _, cost = outcomes_of(env)
        for k in range(outcome.shape[1]):
            assert_mean_close(outcome[:, k], float(env.outcomes.outcome_mean[0, k]), what=f"outcome {k}")
            assert_mean_close(cost[:, k], float(env.outcomes.cost_mean[0, k]), what=f"cost {k}")
    tokens = outcomes_of(cb.sciq_cloud(costs=cb.TokenCosts()))[2]
    assert np.corrcoef(tokens.T)[0, 1] > 0.1  # The query is the same for all models.
    levels = outcomes_of(cb.sciq_cloud(graded=True))
    np.testing.assert_allclose(np.unique(levels[0]), [0.0, 0.1, 0.3, 0.5], atol=1e-6)
    np.testing.assert_array_equal(levels[1], levels[0] > 0.4)


def test_correlated_successes_are_calibrated_on_figure_2():
    """Cascade of three models with the printed accuracies: .82 and 59 % of the dearest one's cost with a shared difficulty."""
    price = np.array([5.8, 2.0, 60.0]) / 60.0
    for correlation, accuracy, share in ((0.35, 0.8216, 0.589), (0.0, 0.8874, 0.540)):
        env = cb.law_cloud(
            [0.30, 0.40, 0.732], price, reward="awc", budget=1.0, size=3, correlation=correlation, costs=cb.FixedCosts(),
            price=[0.0, 0.1, 1.0],
        )  # fmt: skip
        data = play(env, cb.Everything(), horizon=2000, seeds=64)
        assert abs(end(data, "realised_reward").mean() - accuracy) < 5e-3
        assert abs(end(data, "cost").mean() - share) < 1e-2


def test_cascade_asks_until_the_first_success():
    env = cb.law_cloud([1.0, 0.0, 0.5], [0.2, 0.1, 0.4], reward="awc", budget=1.0, size=3, costs=cb.FixedCosts())
    state, key = env.init(draws.key(0)), draws.key(1)
    obs = env.observe(key, state, jnp.int32(0))
    for order, asked, spent in (([1.0, 0.0, 2.0], [1, 1, 0], 0.3), ([0.0, 0.0, 0.0], [1, 0, 0], 0.2)):
        action, _ = cb.Everything().act(key, None, obs, jnp.int32(0))
        _, feedback, flows = env.step(key, state, action.replace(order=jnp.asarray(order)), jnp.int32(0))
        np.testing.assert_array_equal(feedback.observed, asked)
        assert float(flows["cost"]) == pytest.approx(spent)
        np.testing.assert_array_equal(feedback.cost > 0, asked)
        assert float(flows["reward"]) == 1.0
    _, _, flows = env.step(key, state, action.replace(selected=jnp.zeros(3, bool)), jnp.int32(0))
    assert float(flows["reward"]) == 0.0
    assert float(flows["illegal"]) == 0.0


def test_sets_of_the_wrong_size_and_unavailable_models_are_illegal():
    env = cb.sciq_cloud(reward="suc", availability=0.5)
    key, t = draws.key(2), jnp.int32(0)
    state = env.init(key)
    obs = env.observe(key, state, t)
    for selected, illegal in (
        (obs.available, obs.available.sum() > 4),
        (~obs.available, True),
        (obs.available & False, True),
    ):
        action = cb.Everything().act(key, None, obs, t)[0].replace(selected=selected)
        assert bool(env.step(key, state, action, t)[2]["illegal"]) == bool(illegal)


def test_drift_moves_means_and_benchmarks():
    env = cb.law_cloud(
        [[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]],
        [0.2, 0.2, 0.9],
        reward="suc",
        budget=0.5,
        size=1,
        switch=[0, 50],
        costs=cb.FixedCosts(),
    )
    data = simulate(
        env,
        {"oracle": cb.OracleInteger.of},
        horizon=100,
        seeds=4,
        record_every=50,
        record=["reward", "regret", "pulls"],
        progress=False,
    ).isel(policy=0)
    np.testing.assert_allclose(data["regret"], 0, atol=1e-5)
    np.testing.assert_array_equal(data["pulls"].isel(time=-1), [[50, 50, 0]] * 4)


def test_copies_of_one_model():
    """Four independent copies of the cheapest model satisfy the paper's bounds on always asking ChatGLM2."""
    for task, bound, exact in (("awc", 0.18, 1 - 0.976**4), ("suc", 0.10, 0.096), ("aic", 1e-4, 0.024**4)):
        env = cb.copies_of(cb.sciq_cloud(reward=task), "ChatGLM2-6B-32K")
        data = play(env, cb.Everything(), horizon=500, seeds=8)
        assert end(data, "reward").mean() == pytest.approx(exact, rel=1e-4)
        assert end(data, "reward").mean() < bound
        assert end(data, "violation").max() == 0


def test_copies_keep_the_other_conditions():
    env = cb.copies_of(cb.sciq_cloud(reward="awc", arrival=0.5), "ChatGPT-4", copies=1)
    assert float(env.arrival) == 0.5
    assert end(play(env, cb.Everything(), horizon=20, seeds=2), "reward") == pytest.approx(0.398, rel=1e-5)


def test_replay_plays_every_row_once():
    rng = np.random.default_rng(4)
    scores, costs = rng.random((40, 5)), rng.random((40, 5))
    env = cb.table_cloud(RoutingTable(scores, costs, tuple("abcde")), reward="suc", budget=1.5, size=5)
    data = play(env, cb.Everything(), horizon=80, seeds=3, record_every=40)
    for stop in (0, 1):
        np.testing.assert_allclose(data["realised_reward"].isel(time=stop), scores.sum(1).mean(), rtol=1e-5)
        np.testing.assert_allclose(data["cost"].isel(time=stop), costs.sum(1).mean(), rtol=1e-5)


@pytest.mark.slow
def test_offline_set_follows_the_shift():
    """With the shifted means of the notes the offline optimum at a budget of .45 is Mixtral alone, online it is not."""
    shifted = [0.02, 0.15, 0.40, 0.12, 0.08, 0.10, 0.30, 0.62, 0.70]
    mask, _ = cb.best_set(cb.AnyWin(), shifted, C2MABV_TABLE_3.prices / 0.12, 0.45, 4)
    assert tuple(np.flatnonzero(mask)) == (7,)
    env = cb.sciq_cloud(reward="awc", costs=cb.FixedCosts())
    offline = play(env, cb.OfflineFixed.of(env, np.asarray(shifted), sample_size=4000), horizon=200, seeds=8)
    assert (end(offline, "pulls")[:, 7] == 200).all()


# Policies.


@pytest.mark.slow
def test_one_round_batches_are_the_synchronous_policy():
    env = cb.sciq_cloud(reward="suc")
    data = simulate(
        env,
        {"plain": cb.C2MABV(), "held": cb.C2MABV(batch=1, hold=cb.HoldRelaxed())},
        horizon=300, seeds=4, record_every=100, record=["pulls", "reward", "cost"], progress=False,
    )  # fmt: skip
    for name in ("pulls", "reward", "cost"):
        np.testing.assert_array_equal(data[name].sel(policy="plain"), data[name].sel(policy="held"))


@pytest.mark.slow
def test_longer_batches_lose_at_the_start():
    env = cb.sciq_cloud(reward="suc")
    data = simulate(
        env,
        jr.grid(cb.C2MABV, batch=[1, 50, 200]),
        horizon=3000,
        seeds=64,
        record_every=3000,
        record=["reward", "violation"],
        progress=False,
    ).isel(policy=0, time=-1)
    ratio = (data["reward"].mean("seed") / data["violation"].mean("seed")).values
    np.testing.assert_allclose(ratio, [12.6, 9.2, 5.5], rtol=0.06)


@pytest.mark.slow
def test_exploration_schedule():
    """Always up to round 36, then by the printed chances: .98639 in round 37, .6 in round 100, .18974 in round 1,000."""
    env = cb.sciq_cloud(reward="suc")
    data = simulate(
        env, cb.EpsilonGreedy(), horizon=1000, seeds=2048, record_every=1, record=["info.explored"], progress=False
    )
    mean = data["info.explored"].isel(policy=0).transpose("seed", "time").values
    explored = np.diff(mean * np.arange(1, 1001), axis=1, prepend=0)
    assert (explored[:, :36] > 0.99).all()
    for t, share in ((37, 0.98639), (100, 0.6), (1000, 0.18974)):
        assert_mean_close(explored[:, t - 1], share, what=f"round {t}")


@pytest.mark.slow
def test_beta_and_normal_posteriors_agree():
    env = cb.sciq_cloud(reward="suc")
    beta, normal = (play(env, cb.Thompson(p), horizon=3000, seeds=64) for p in (cb.BetaPosterior(), cb.NormalPosterior()))
    assert abs(end(beta, "reward").mean() - end(normal, "reward").mean()) < 5e-3


@pytest.mark.slow
def test_sizes_in_one_compile():
    before = trace_count()
    env = jr.grid(cb.sciq_cloud, reward="suc", size=[2, 3, 4], sizes=(2, 4))
    data = simulate(
        env, cb.C2MABV(), horizon=300, seeds=8, record_every=300, record=["num_selected", "reward"], progress=False
    )
    assert trace_count() == before + 1
    assert data["valid"].all()
    assert (data["num_selected"].isel(policy=0, time=-1).mean("seed").diff("size") > 0).all()
    single = play(cb.sciq_cloud(reward="suc", size=3, sizes=(2, 4)), cb.C2MABV(), horizon=300, seeds=8, record=["reward"])
    np.testing.assert_array_equal(end(single, "reward"), data["reward"].sel(size=3).isel(policy=0, time=-1))


@pytest.mark.parametrize("models", [9, pytest.param(13, marks=pytest.mark.slow)])
def test_direct_without_a_bound_on_the_size(models):
    env = cb.uniform_cloud(num_models=models, reward="aic", size=3, budget=1.0, any_size=True)
    data = play(env, cb.Direct(any_size=True), horizon=300, seeds=4, record=["num_selected"])
    assert data["valid"].all()
    assert ((end(data, "num_selected") >= 1) & (end(data, "num_selected") < 2)).all()  # All in: the best set is one model.


def test_a_set_that_costs_just_the_budget_is_within_it():
    """Costs that are rounded to float32 may add up to a hair more than the budget."""
    for reward, success, cost, budget, best in (
        ("awc", [0.5, 0.6], [0.1, 0.2], 0.3, 0.8),
        ("suc", [0.5, 0.6, 0.1], [0.1, 0.2, 0.05], 0.3, 1.1),
        ("suc", [0.9, 0.8, 0.7, 0.1], [0.7, 0.2, 0.1, 0.05], 0.9, 1.7),
    ):
        env = cb.law_cloud(success, cost, reward=reward, budget=budget, size=2, costs=cb.FixedCosts())
        assert float(env.best[0, 0]) == pytest.approx(best, rel=1e-6)
        data = play(env, cb.Direct(), horizon=1500, seeds=8, record=["regret"])
        assert (end(data, "regret") > -1e-3).all() and (end(data, "regret") < 150).all()


def test_all_in_with_a_model_that_always_fails():
    env = cb.law_cloud([0.0, 0.5, 0.6], [0.1, 0.2, 0.3], reward="aic", budget=0.5, size=2)
    assert float(env.best_relaxed[0, 0]) == pytest.approx(0.3, rel=1e-5)
    assert play(env, cb.C2MABV(), horizon=50, seeds=4, record=["lp_regret"])["valid"].all()


def test_a_group_without_a_set_within_its_budget_does_not_change_the_others():
    mean, cost = [0.5, 0.4, 0.6, 0.7], [0.1, 0.2, 0.3, 0.4]
    for task in TASKS:
        reward = cb.rewards.REWARDS[task]
        mask, _ = cb.best_set(reward, mean, cost, [0.05, 1.0], [1, 1], groups=[0, 0, 1, 1])
        np.testing.assert_array_equal(mask, [not reward.cascade, False, False, True])


@pytest.mark.parametrize(
    "policy",
    [
        cb.Direct(1.0),
        *(pytest.param(p, marks=pytest.mark.slow) for p in (cb.C2MABV(1.0), cb.C2MABV(1.0, solver=cb.Linear()))),
    ],
)
def test_bounds_as_they_are(policy):
    """Without a cap and random ties, chances of one are no infinite weights."""
    data = play(cb.sciq_cloud(reward="awc"), policy.replace(cap=1.0, noise=0.0), horizon=2000, seeds=8)
    assert data["valid"].all()
    assert (end(data, "reward") > 0.6).all() and (end(data, "num_selected") > 2).all()


@pytest.mark.slow
def test_infeasible_rounds_are_counted():
    env = cb.law_cloud([0.5, 0.6, 0.7], [0.5, 0.6, 0.7], reward="suc", budget=0.2, size=2, costs=cb.FixedCosts())
    policies = {"C2MABV": cb.C2MABV(cost_width=0.0), "EpsilonGreedy": cb.EpsilonGreedy()}
    data = simulate(env, policies, horizon=100, seeds=4, record=["infeasible_share", "shadow_price"], progress=False)
    assert (data["infeasible_share"].isel(time=-1) > 0.9).all()


def test_optimism_covers_the_regret():
    """The proof's over-estimation regret: bounds exceed true rewards by more than what is lost to the relaxed optimum."""
    env = cb.sciq_cloud(reward="suc")
    data = play(env, cb.C2MABV(1.0, 0.01, delta=1 / 2000), seeds=32, record=["optimistic_reward", "reward", "lp_regret"])
    excess = 2000 * (end(data, "optimistic_reward") - end(data, "reward"))
    assert (excess > end(data, "lp_regret")).all()
    assert (excess < cb.bound_regret(9, 4, 2000, 1.0, 1.426, power=4)).all()


@pytest.mark.parametrize(
    ("task", "solver"),
    [
        ("suc", cb.Smoothed()),
        pytest.param("aic", cb.ProjectedGradient(), marks=pytest.mark.slow),
        *(
            pytest.param("awc", solver, marks=pytest.mark.slow)
            for solver in (cb.Smoothed(), cb.ProjectedGradient(), cb.BestOf(), cb.Linear())
        ),
    ],
)
def test_every_solver_plays_its_tasks(task, solver):
    exact = play(cb.sciq_cloud(reward=task), cb.C2MABV(), horizon=400, seeds=16)
    other = play(cb.sciq_cloud(reward=task), cb.C2MABV(solver=solver), horizon=400, seeds=16)
    assert other["valid"].all()
    assert end(other, "reward").mean() == pytest.approx(end(exact, "reward").mean(), rel=0.15)
    assert abs(end(other, "cost").mean() - end(exact, "cost").mean()) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("policy", [cb.C2MABV(1.0), cb.EpsilonGreedy(), cb.ConstrainedThompson(), cb.RandomSet(), cb.CUCB()])
def test_sets_have_their_size_in_every_round(policy):
    data = play(cb.sciq_cloud(reward="suc"), policy, horizon=1000, seeds=16, record_every=1, record=["num_selected"])
    np.testing.assert_allclose(per_seed_rounds(data, "num_selected"), 4, atol=1e-6)


def per_seed_rounds(data, name):
    values = data[name].values * data["time"].values
    return np.diff(values, axis=1, prepend=0)


# Groups: a partition matroid.

SUBJECTS = {"groups": [0, 0, 0, 1, 1, 1, 2, 2, 2], "size": [2, 1, 1]}


@pytest.mark.parametrize("task", TASKS)
def test_best_of_groups_by_brute_force(task):
    """The best set over all choices of the groups; the relaxed optimum is between it and what any point of a grid reaches."""
    rng = np.random.default_rng(8)
    reward, groups, size = cb.rewards.REWARDS[task], np.array(SUBJECTS["groups"]), SUBJECTS["size"]
    for _ in range(20):
        mean, cost = rng.random((2, 9))
        for budget in (rng.uniform(0.5, 3.0), rng.uniform(0.2, 1.0, 3)):
            choices = []
            for g, n in enumerate(size):
                inside = np.flatnonzero(groups == g)
                numbers = [n] if reward.exact_size else range(n + 1)
                choices.append([c for m in numbers for c in itertools.combinations(inside, m)])
            values = []
            for parts in itertools.product(*choices):
                chosen = np.isin(np.arange(9), np.concatenate([np.array(p, int) for p in parts]))
                spend = cost[chosen].sum() if np.ndim(budget) == 0 else np.bincount(groups, cost * chosen, 3)
                if np.all(spend <= budget + 1e-9):
                    values.append(float(reward.value(chosen, mean, np)))
            mask, value = cb.best_set(reward, mean, cost, budget, size, groups=groups)
            z, relaxed = cb.best_relaxed(reward, mean, cost, budget, size, groups=groups)
            if not values:
                assert (np.bincount(groups[mask], minlength=3) == size).all()
                continue
            assert value == pytest.approx(max(values), rel=1e-9)
            assert task == "aic" or relaxed >= value - 1e-9  # The relaxed reward of a set is its reward, but not for all in.
            spend = cost @ z if np.ndim(budget) == 0 else np.bincount(groups, cost * z, 3)
            assert (spend <= np.asarray(budget) + 1e-7).all()
            filled = np.bincount(groups, z, 3)
            assert (np.abs(filled - size) < 1e-7).all() if reward.exact_size else (filled <= np.array(size) + 1e-7).all()
            if np.ndim(budget) == 0 and reward.exact_size:
                weight = reward.weight(mean, np)
                best = plain.partition_linear_program(weight, cost, [groups == g for g in range(3)], size, budget, True)
                assert weight @ z == pytest.approx(weight @ best, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_one_group_is_none(task):
    """The same draws without rounding: one group of all models, and one budget for it, change nothing."""
    made = [
        cb.sciq_cloud(reward=task, **more)
        for more in (
            {},
            {"groups": [0] * 9, "size": [4]},
            {"groups": [0] * 9, "size": [4], "budget": [cb.clouds.BUDGETS[task]]},
        )
    ]
    plays = [
        simulate(env, {"CUCB": cb.CUCB(), "Direct": cb.Direct()}, horizon=200, seeds=8, record=RECORD, progress=False)
        for env in made
    ]
    assert all(p["valid"].all() for p in plays)
    for other in plays[1:]:
        for name in RECORD:
            np.testing.assert_allclose(plays[0][name], other[name], rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("task", "budget"),
    [
        pytest.param(task, budget, marks=() if (task, budget) in (("suc", "common"), ("awc", "own")) else pytest.mark.slow)
        for task in TASKS
        for budget in ("common", "own")
    ],
)
def test_oracle_of_groups(task, budget):
    """Its mean cost meets every budget, sum up earns the relaxed optimum, and its sets take as many of each group as they may."""
    budget = {"common": 0.9, "own": [0.3, 0.15, 0.6]}[budget]
    env = cb.sciq_cloud(reward=task, costs=cb.FixedCosts(), budget=budget, **SUBJECTS)
    data = play(env, cb.OracleRelaxed.of, horizon=500, seeds=64)
    assert data["valid"].all()
    relaxed = float(env.best_relaxed[0, 0])
    if task == "suc":
        assert_mean_close(end(data, "reward"), relaxed, what="reward")
    else:
        assert end(data, "reward").mean() >= relaxed - 5e-3 * relaxed
    assert end(data, "violation_eq1").mean() < 0.02


@pytest.mark.parametrize("budget", [0.9, [0.3, 0.15, 0.6]])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_groups_are_learned(task, budget):
    """Every policy keeps the groups; C2MAB-V comes near the relaxed optimum within its budgets."""
    env = cb.sciq_cloud(reward=task, budget=budget, **SUBJECTS)
    policies = {
        "C2MABV": cb.C2MABV(), "Direct": cb.Direct(), "CUCB": cb.CUCB(), "Thompson": cb.Thompson(cb.NormalPosterior()),
        "EpsilonGreedy": cb.EpsilonGreedy(), "RandomSet": cb.RandomSet(), "RoundRobin": cb.C2MABV(start=cb.RoundRobin()),
        "OfflineFixed": cb.OfflineFixed.of, "OracleInteger": cb.OracleInteger.of,
    }  # fmt: skip
    data = simulate(env, policies, horizon=3000, seeds=32, record_every=3000, record=RECORD, progress=False).isel(time=-1)
    assert data["valid"].all()
    mean = data.mean("seed")
    own = mean.sel(policy="C2MABV")
    assert float(own["violation_eq1"]) < 0.05
    if task != "aic":  # The relaxed reward of all in is below what rounding earns.
        assert abs(float(own["lp_regret"])) < 0.03 * 3000 * float(env.best_relaxed[0, 0])
    assert float(own["violation"]) < float(mean["violation"].sel(policy="RandomSet"))
    np.testing.assert_allclose(mean["regret"].sel(policy="OracleInteger"), 0, atol=0.05)


def test_per_group_budgets_need_no_common_solver():
    env = cb.sciq_cloud(reward="suc", budget=[0.3, 0.15, 0.6], **SUBJECTS)
    data = play(env, cb.C2MABV(solver=cb.Smoothed()), horizon=200, seeds=8)
    assert data["valid"].all()
    common = cb.sciq_cloud(reward="suc", budget=0.9, **SUBJECTS)
    with pytest.raises(ValueError, match="each must have its own budget"):
        play(common, cb.C2MABV(solver=cb.Smoothed()), horizon=5, seeds=1)


@pytest.mark.slow
def test_round_robin_sees_every_model_first():
    for task in TASKS:
        env = cb.sciq_cloud(reward=task, sees_all_costs=True)
        data = play(env, cb.C2MABV(start=cb.RoundRobin()), horizon=60, seeds=16, record_every=1)
        pulls = data["pulls"].values  # [seed, time, K]
        seen = (pulls > 0).all(-1)
        assert seen[:, -1].all()
        if task != "awc":
            assert (np.argmax(seen, axis=1) == 2).all()  # ceil(9 / 4) rounds.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cb.sciq_cloud(groups=[0, 1], size=[1, 1]), "groups must be 9 whole numbers"),
        (lambda: cb.sciq_cloud(groups=[0] * 8 + [2], size=[1, 1]), "groups must be 9 whole numbers"),
        (lambda: cb.sciq_cloud(groups=SUBJECTS["groups"], size=4), "size must have shape"),
        (lambda: cb.sciq_cloud(groups=SUBJECTS["groups"], size=[4, 1, 1]), "size must be whole numbers from 1"),
        (lambda: cb.sciq_cloud(budget=[0.1, 0.2], **SUBJECTS), "budget must have shape"),
        (lambda: cb.sciq_cloud(sizes=(1, 4), **SUBJECTS), "sizes must be None"),
        (lambda: cb.sciq_cloud(arrival=0.0), "arrival must be in"),
        (lambda: cb.copies_of(cb.sciq_cloud(**SUBJECTS), 0), "env must not have groups"),
        (lambda: play(cb.sciq_cloud(), cb.CUCB(radius=cb.UnionRadius(-1.0)), horizon=5, seeds=1), "width must be above 0"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(solver=cb.Vertices()), horizon=5, seeds=1), "Vertices is for AnyWin"),
        (
            lambda: play(cb.sciq_cloud(), cb.C2MABV(solver=cb.Smoothed(-1.0)), horizon=5, seeds=1),
            "temperature must be above 0",
        ),
        (
            lambda: play(cb.sciq_cloud(), cb.C2MABV(solver=cb.ProjectedGradient(0.0)), horizon=5, seeds=1),
            "learning_rate must be",
        ),
        (
            lambda: play(cb.sciq_cloud(reward="awc"), cb.C2MABV(solver=cb.BestOf(0)), horizon=5, seeds=1),
            "steps must be at least 1",
        ),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(order="price"), horizon=5, seeds=1), "order must be an object"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(prior_pulls=0.5), horizon=5, seeds=1), "prior_pulls must be whole numbers"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(batch=np.nan), horizon=5, seeds=1), "batch must be finite"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(allowed=True), horizon=5, seeds=1), "allowed must have one entry"),
        (
            lambda: play(cb.sciq_cloud(), cb.C2MABV(allowed=np.zeros(9, bool)), horizon=5, seeds=1),
            "allowed must leave at least",
        ),
        (
            lambda: play(cb.sciq_cloud(), cb.OfflineFixed(np.array([0.5]), np.array([0.1]), 0.5, 4), horizon=5, seeds=1),
            "one entry per model",
        ),
        (lambda: cb.sciq_cloud(costs=cb.ScaledCosts), "costs must be an object"),
        (
            lambda: cb.law_cloud([[0.5, 0.2]] * 2, [0.1, 0.2], reward="suc", budget=1.0, size=1, switch=[0, 2.5]),
            "whole numbers",
        ),
        (lambda: cb.uniform_cloud(num_models=30, size=15), "at most 5,000,000 sets"),
        (lambda: cb.copies_of(cb.sciq_cloud(availability=0.5), 0), "env must have no availability"),
        (lambda: cb.sciq_cloud(reward="any"), "reward must be one of"),
        (lambda: cb.sciq_cloud(budget=-1.0), "budget must be above 0"),
        (lambda: cb.sciq_cloud(size=10), "size must be from 1 to 9"),
        (lambda: cb.sciq_cloud(availability=1.5), "availability must be in"),
        (lambda: cb.law_cloud([0.5, 1.2], [0.1, 0.2], reward="suc", budget=1.0, size=1), "success must be in"),
        (lambda: cb.law_cloud([0.5, np.nan], [0.1, 0.2], reward="suc", budget=1.0, size=1), "success must be finite"),
        (lambda: cb.law_cloud([0.5, 0.2], [0.1, -0.2], reward="suc", budget=1.0, size=1), "cost must be at least 0"),
        (lambda: cb.law_cloud([0.5, 0.2], [0.1], reward="suc", budget=1.0, size=1), "cost must have one column"),
        (lambda: cb.law_cloud([[0.5, 0.2]] * 2, [0.1, 0.2], reward="suc", budget=1.0, size=1), "switch must give"),
        (lambda: cb.law_cloud([0.5, 0.2], [0.1, 0.2], reward="suc", budget=1.0, size=1, correlation=1.0), "correlation"),
        (lambda: cb.table_cloud([[0.1]], reward="suc", budget=1.0, size=1), "table must be a RoutingTable"),
        (lambda: cb.copies_of(cb.sciq_cloud(), "GPT-9"), "model must be one of"),
        (lambda: cb.cloud(None, reward="suc", budget=1.0, size=1), "outcomes must be"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(-1.0), horizon=5, seeds=1), "reward_width must be above 0"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(delta=2.0), horizon=5, seeds=1), "delta must be in"),
        (lambda: play(cb.sciq_cloud(), cb.C2MABV(batch=0.5), horizon=5, seeds=1), "batch must be a whole number"),
        (
            lambda: play(cb.sciq_cloud(), cb.C2MABV(allowed=np.ones(4, bool)), horizon=5, seeds=1),
            "allowed must have one entry",
        ),
        (
            lambda: play(cb.sciq_cloud(availability=0.5), cb.OracleRelaxed.of, horizon=5, seeds=1),
            "availability must be None",
        ),
        (lambda: cb.uniform_cloud(num_models=14, availability=0.5), "availability needs at most 12 models"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_real_replay():
    """Nine open models on 6,108 queries of 14 tasks, costs by their prices: every reward runs, and stays near its budget."""
    with np.load(shared_data("llmrouter_9models.npz"), allow_pickle=False) as file:
        scores, price = file["score"], file["usd_per_mtok_out"] / file["usd_per_mtok_out"].max()
        names = tuple(str(m) for m in file["models"])
    table = RoutingTable(scores, np.broadcast_to(price, scores.shape), names, cost_unit="price over the dearest")
    for task, budget in (("awc", 0.6), ("suc", 1.2), ("aic", 1.2)):
        env = cb.table_cloud(table, reward=task, budget=budget, size=3)
        data = play(env, cb.C2MABV(), horizon=len(scores), seeds=8)
        random = play(env, cb.RandomSet(), horizon=len(scores), seeds=8)
        assert data["valid"].all()
        assert end(data, "cost").mean() <= budget * 1.03
        assert end(data, "ratio").mean() > end(random, "ratio").mean()
