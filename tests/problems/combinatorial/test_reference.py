"""Whole runs against float64 loops that are fed the same draws, round by round; every policy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from combinatorial_cases import RECORD
from helpers import in_double, per_round, x64
from reference import combinatorial as plain

from jaxroute import simulate
from jaxroute.data import C2MABV_TABLE_3
from jaxroute.problems import combinatorial as cb


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
    """Draws of a run from the addresses that the engine documents."""
    run = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    env, act, update = (jax.random.fold_in(run, child) for child in (2, 5, 6))
    found = {k: np.asarray(v, np.float64) for k, v in _luck(env, act, update, horizon, num_models, size, kind).items()}
    found["arrives"] = None if arrival is None else found["arrives"] < np.float32(arrival)
    return found


# Name: (task, environment options, policy, kind of draws, reference policy and options).
RUNS = {
    "suc (c)": ("suc", {}, cb.C2MABV(), "c2mabv", {}),
    "suc (b)": ("suc", {}, cb.C2MABV(1.0, 0.05), "c2mabv", {"reward_width": 1.0, "cost_width": 0.05}),
    "aic (d)": ("aic", {}, cb.C2MABV(1.0, 0.01), "c2mabv", {"reward_width": 1.0}),
    "awc (a)": ("awc", {}, cb.C2MABV(0.3, 0.05), "c2mabv", {"cost_width": 0.05}),
    "awc, by reward": ("awc", {}, cb.C2MABV(order=cb.ByReward()), "c2mabv", {"order": "ucb"}),
    "awc, greedy": (
        "awc", {}, cb.C2MABV(solver=cb.ContinuousGreedy()), "c2mabv", {"solver": "greedy"},
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
    levels = None
    if "graded" in options:
        parts = env.outcomes.successes
        levels = np.stack([np.asarray(x[0], float) for x in (parts.correct, parts.formatted, parts.empty)], axis=1)
    price, mu = np.asarray(env.price, float), np.asarray(env.outcomes.outcome_mean[0], float)
    available = float(np.float32(options["availability"])) if "availability" in options else None
    params = plain.Params(task.upper(), mu, price, 4, float(env.budget), price, levels, "costs" in options, available)
    settings = {"delta": 1e-4, "rounding": "swap" if task == "awc" else "pairwise", **choice}
    expected = plain.simulate(params, luck(seed, horizon, 9, 4, kind, options.get("arrival")), **settings)
    pulls = per_round(data["pulls"])
    different = np.flatnonzero((pulls != expected["observed"]).any(1))
    assert not different.size, f"{name}: {different.size} rounds differ, the first is {different[0]}"
    ours = {
        "reward": "reward", "realised_reward": "realised", "cost": "spent", "selected_cost": "spent_selected", "violation": "violation",
        "selected_violation": "violation_selected", "mean_violation_eq1": "violation_mean", "violation_eq1": "violation_mean",
        "regret": "regret", "alpha_regret": "alpha_regret", "lp_regret": "relaxed_regret", "num_selected": "num_selected",
        "num_asked": "num_observed", "over_budget": "over_budget",
    }  # fmt: skip
    for metric, other in ours.items():
        np.testing.assert_allclose(per_round(data[metric]), expected[other], atol=5e-6, err_msg=f"{name}: {metric}")
    for metric, other in (("ratio", "ratio_inst"), ("ratio_eq1", "ratio_eq1")):
        np.testing.assert_allclose(data[metric].values, expected[other], rtol=1e-4)


# The reference itself, by hand.


def test_exact_distributions_of_the_roundings():
    four_models = [0.3, 0.6, 0.5, 0.6]
    four = {"02": 2 / 15, "03": 1 / 6, "12": 4 / 15, "13": 1 / 3, "23": 1 / 10}
    eight = {"01": 0.05, "02": 0.35, "03": 0.1, "1": 0.05, "12": 0.2325, "13": 0.0675, "2": 0.1175, "3": 0.0325}
    for distribution, z, expected in (
        (plain.pairwise_distribution, four_models, four),
        (plain.swap_distribution, four_models, four),
        (plain.pairwise_distribution, [0.7, 0.55], {"0": 0.45, "01": 0.25, "1": 0.3}),
        (plain.swap_distribution, [0.5, 0.4, 0.7, 0.2], eight),
    ):
        found = {"".join(map(str, sorted(members))): mass for members, mass in distribution(z).items() if mass > 1e-12}
        assert found == pytest.approx(expected, abs=1e-12)


def test_two_rounds_by_hand():
    """SUC, K=3, N=2, rho=.5, fixed costs (.1, .3, .4), delta=.1, a_mu=.1, a_c=.05."""
    params = plain.Params("SUC", np.full(3, 0.5), np.array([0.1, 0.3, 0.4]), 2, 0.5, np.zeros(3), fixed_costs=True)
    draws = {"outcome": np.array([[0.9, 0.9, 0.1], [0.1] * 3]), "tie": np.array([[0.9, 0.5, 0.1], [0] * 3])}
    draws |= {"pair": np.full((2, 3), 0.5), "arrives": None}
    run = plain.simulate(params, draws, reward_width=0.1, cost_width=0.05, delta=0.1)
    # t=1: indices 1, costs 0; the two smallest tie uniforms win: {1, 2}. Outcomes 0 and 1, cost .7, excess .2.
    # t=2: ln(2 pi^2 3/.3) + 3 ln 2 = 5.285243 + 2.079442 = 7.364685; radius sqrt(7.364685/2) = 1.918943 (n=1).
    # Indices 1, .19, 1 and costs 0, .204, .304: models 0 and 2 have the largest indices and cost .304 <= .5.
    np.testing.assert_array_equal(run["observed"], [[False, True, True], [True, False, True]])
    np.testing.assert_allclose(run["realised"], [1, 2])
    np.testing.assert_allclose(run["spent"], [0.7, 0.5])
    np.testing.assert_allclose(run["violation_mean"], [0.2, 0.1])
    # S* = {0, 2} (cost .5) has the reward 1 of every pair; Z* too.
    np.testing.assert_allclose([run["regret"], run["relaxed_regret"]], 0, atol=1e-12)
