"""C2MAB-V: its bounds, its solvers, and sets over whole runs; the bounds of the paper."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from combinatorial_cases import SUBJECTS, end, play
from helpers import shared_data
from selection_cases import COST, MU

import jaxroute as jr
from jaxroute import simulate
from jaxroute.data import RoutingTable
from jaxroute.engine.compiling import trace_count
from jaxroute.problems import combinatorial as cb
from jaxroute.problems.combinatorial.parts import relaxation
from jaxroute.problems.combinatorial.parts.rewards import REWARDS
from jaxroute.problems.combinatorial.types import CombinatorialSpec, Observation


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


@pytest.mark.parametrize(
    "policy",
    [
        cb.Direct(1.0),
        *(pytest.param(p, marks=pytest.mark.slow) for p in (cb.C2MABV(1.0), cb.C2MABV(1.0, solver=cb.Linear()))),
    ],
)
def test_bounds_as_they_are(policy):
    """Without a cap and random ties, probabilities of one are no infinite weights."""
    data = play(cb.sciq_cloud(reward="awc"), policy.replace(cap=1.0, noise=0.0), horizon=2000, seeds=8)
    assert data["valid"].all()
    assert (end(data, "reward") > 0.6).all() and (end(data, "num_selected") > 2).all()


@pytest.mark.slow
def test_infeasible_rounds_are_counted():
    env = cb.parametric_cloud([0.5, 0.6, 0.7], [0.5, 0.6, 0.7], reward="suc", budget=0.2, size=2, costs=cb.FixedCosts())
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


def test_all_in_with_a_model_that_always_fails():
    env = cb.parametric_cloud([0.0, 0.5, 0.6], [0.1, 0.2, 0.3], reward="aic", budget=0.5, size=2)
    assert float(env.best_relaxed[0, 0]) == pytest.approx(0.3, rel=1e-5)
    assert play(env, cb.C2MABV(), horizon=50, seeds=4, record=["lp_regret"])["valid"].all()


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


def test_too_few_allowed_models_are_refused():
    """A set of exactly four cannot be made of two models; for any win two are enough, and where every size is allowed."""
    two = cb.C2MABV(allowed=cb.two_tier(cb.sciq_cloud().names))
    with pytest.raises(
        ValueError, match=r"allowed must leave at least 4 models, for a set of SumUp has exactly so many, got 2"
    ):
        play(cb.sciq_cloud(reward="suc"), two, horizon=5, seeds=1)
    for env in (cb.sciq_cloud(reward="awc"), cb.sciq_cloud(reward="suc", any_size=True)):
        two.check_spec(env.spec)


def test_theorem_bounds():
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.426) == pytest.approx(6201, abs=1)
    assert cb.bound_regret(9, 4, 10_000, 1.0, 1.0) == pytest.approx(6197, abs=1)
    assert cb.bound_violation(9, 4, 10_000) == pytest.approx(0.6223, abs=1e-4)
    assert cb.bound_violation(9, 4, 10_000, power=4) > cb.bound_violation(9, 4, 10_000)
    data = play(cb.sciq_cloud(reward="suc"), cb.C2MABV(1.0, 1.0, delta=1 / 2000), horizon=2000, seeds=32)
    assert (end(data, "violation_eq1") <= cb.bound_violation(9, 4, 2000)).all()
    assert (end(data, "regret") <= cb.bound_regret(9, 4, 2000, 1.0, 1.426)).all()


def test_probability_that_a_cascade_observes_everything():
    env = cb.sciq_cloud(reward="awc")
    success = np.asarray(env.outcomes.outcome_mean[0])
    assert cb.least_observed(success, env.price, 4) == pytest.approx(0.28374, abs=1e-5)
    rng = np.random.default_rng(2)
    for _ in range(20):
        success, order = rng.random(6), rng.integers(0, 4, 6)
        ranked = success[np.argsort(order, kind="stable")]
        every = [np.prod(1 - ranked[list(c[:-1])]) for c in itertools.combinations(range(6), 3)]
        assert cb.least_observed(success, order, 3) == pytest.approx(min(every))


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


def test_per_group_budgets_need_no_common_solver():
    env = cb.sciq_cloud(reward="suc", budget=[0.3, 0.15, 0.6], **SUBJECTS)
    data = play(env, cb.C2MABV(solver=cb.Smoothed()), horizon=200, seeds=8)
    assert data["valid"].all()
    common = cb.sciq_cloud(reward="suc", budget=0.9, **SUBJECTS)
    with pytest.raises(ValueError, match="each must have its own budget"):
        play(common, cb.C2MABV(solver=cb.Smoothed()), horizon=5, seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "log", "smoothed", "sum", "all in"])
def test_shadow_prices_against_differences(name, double_precision):
    """The multiplier is the derivative of the solver's objective in the budget."""
    w, c = MU.astype(float), COST.astype(float)
    task = {"sum": "suc", "smoothed": "suc", "all in": "aic"}.get(name, "awc")
    reward, budget = REWARDS[task], 0.3 if name == "all in" else 0.45
    spec = CombinatorialSpec(num_models=9, reward=reward, min_size=4, max_size=4)
    solver = {"exact": relaxation.Vertices(), "smoothed": relaxation.Smoothed(1e-4)}.get(name, relaxation.Linear())

    def solve(budget):
        obs = Observation(c, jnp.ones(9, bool), jnp.asarray(budget), jnp.asarray(4.0))
        return solver.solve(spec, jnp.asarray(w), jnp.asarray(c), obs, obs.available)

    def objective(z):
        return -np.log1p(-reward.relaxed(z, w, np)) if name == "exact" else reward.weight(w, np) @ np.asarray(z)

    ends = [objective(solve(budget + d).z) for d in (-1e-4, 1e-4)]
    assert float(solve(budget).multiplier) == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-3)
    if name == "all in":
        assert float(solve(budget).multiplier) == pytest.approx(20.870748, rel=1e-5)
    if name == "sum":
        assert float(solve(0.5).multiplier) == pytest.approx(0.4426667, rel=1e-5)
