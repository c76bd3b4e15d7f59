"""Baselines, and policies that know the environment: what they open, earn and learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import assert_near, f32, play

import jaxroute as jr
from jaxroute import metrics
from jaxroute.core import draws
from jaxroute.core.protocols import build_policy
from jaxroute.engine.rounds import spec_for
from jaxroute.estimators.glm import FrozenGLM
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.optimum import cost_order, single_values
from jaxroute.problems.cascade.types import Observation, Outputs


def test_baselines_open_what_they_say():
    env = ca.uniform_cascade()
    psi = f32([1.0, 0.2, -0.4])
    obs, key, t = Observation(psi), draws.key(0), jnp.int32(4)

    def action(policy, on=env):
        policy = build_policy(policy, on)
        return policy.act(key, policy.init(key, spec_for(on, 100)), obs, t)[0]

    score, cost = f32([0.5, 0.6, 0.7]), f32([0.02, 0.03, 0.07])
    outputs = Outputs(score, None, cost)

    def opened(policy):
        found = action(policy).run(outputs)
        return np.flatnonzero(found.opened).tolist(), np.flatnonzero(found.deployed).tolist()

    assert opened(ca.QueryAll()) == ([0, 1, 2], [2])
    assert opened(ca.Frugal(0.55)) == ([0, 1], [1])
    assert opened(ca.Frugal(0.5)) == ([0], [0])  # A score at the threshold ends the cascade.
    assert opened(ca.Frugal(np.float32([9.0, 0.55, 0.65]))) == ([0, 1, 2], [2])  # A level for each box.
    assert opened(ca.Frugal(np.float32([0.0, 0.55, 0.60]))) == ([0, 1], [1])
    assert opened(ca.Frugal(0.65, order=np.float32([2, 0, 1]))) == ([1, 2], [2])
    assert opened(ca.BestSingle(env, 1)) == ([1], [1])
    values = env.boxes.mean_score(psi, env.base_index(psi)) - env.boxes.mean_cost(psi, env.base_index(psi))
    assert opened(ca.ContextSingle.of) == ([int(np.argmax(values))],) * 2
    sigma, w, q = (np.asarray(x, float) for x in (env.true_index(psi), env.boxes.width(psi, psi), env.boxes.quantile))
    np.testing.assert_allclose(values, sigma + w * (0.5 - q) - np.asarray(env.boxes.base_cost), atol=1e-6)
    np.testing.assert_allclose(action(ca.Oracle.of).priority, sigma, atol=1e-6)
    np.testing.assert_allclose(action(ca.StaticIndex.of).priority, np.asarray(env.index)[:, 0], atol=1e-6)
    assert build_policy(ca.BestSingle.of, env).model == int(np.argmax(single_values(env))) == 2
    np.testing.assert_array_equal(cost_order(env), [0, 1, 2])
    np.testing.assert_array_equal(cost_order(ca.two_boxes()), [1, 0])
    assert len({tuple(np.argsort(action_of)) for action_of in random_priorities()}) == 6


def random_priorities():
    policy = ca.RandomCascade()
    state = policy.init(draws.key(0), spec_for(ca.uniform_cascade(), 10))
    obs = Observation(f32([1.0, 0.0, 0.0]))
    return np.asarray(
        jax.jit(jax.vmap(lambda n: policy.act(draws.fold_in(draws.key(1), n), state, obs, n)[0].priority))(jnp.arange(100))
    )


def test_frugal_of_an_environment_goes_from_the_cheapest_to_the_dearest():
    """The dear model comes first in the columns; the rule is the same as with the cheap one first."""
    score = np.random.default_rng(0).random((200, 2)).astype(np.float32)
    cost = np.tile(np.float32([[0.3, 0.05]]), (200, 1))
    env = ca.replay_cascade(score, cost, np.zeros(200, int), joint=True)
    turned = ca.replay_cascade(score[:, ::-1], cost[:, ::-1], np.zeros(200, int), joint=True)
    np.testing.assert_array_equal(ca.Frugal.of(env, 0.5).order, [1, 0])
    found = [
        jr.simulate(one, ca.Frugal.of(one, 0.5), horizon=400, seeds=8, record=["cost", "reward"], progress=False)
        for one in (env, turned)
    ]
    for name in ("cost", "reward"):
        np.testing.assert_allclose(found[0][name].values, found[1][name].values, rtol=1e-6)
    assert float(found[0]["cost"].isel(time=-1).mean()) < 0.3


def test_a_threshold_is_tuned_on_what_is_seen():
    """With an evaluator that tells little, the threshold is not that of the true scores, and the policy plays with the evaluator."""
    seen = ca.Frugal.tuned(ca.uniform_cascade(), 4000)
    unseen = ca.Frugal.tuned(ca.uniform_cascade(evaluator=5), 4000)
    assert isinstance(unseen.evaluator, FrozenGLM) and not isinstance(seen.evaluator, FrozenGLM)
    env = ca.uniform_cascade(evaluator=5)
    value = ca.tuned_threshold(env, 4000)[1]
    options = {"horizon": 4000, "seeds": 16, "record": ["utility"], "progress": False}
    data = jr.simulate(env, {"tuned": unseen}, **options)["utility"].isel(policy=0, time=-1)
    assert float(data.mean()) == pytest.approx(value, abs=5 * 0.3 / np.sqrt(4000))


def both_right(rows=50):
    """Two models that are right on the same half of the queries: if the cheap one is wrong the dear one is wrong, too."""
    score = np.tile([[1.0, 1.0], [0.0, 0.0]], (rows, 1))
    return ca.replay_cascade(score, np.tile([[0.05, 0.3]], (2 * rows, 1)), np.zeros(2 * rows, int), joint=True)


def test_the_search_by_true_indices_is_not_the_best_where_models_fail_on_the_same_queries():
    """One call earns .45. The indices know nothing of that: after a failure of the cheap model they call the dear one as well, and
    earn .5 - .05 - .5 * .3 = .3.
    """
    env = both_right()
    policies = {"indices": ca.TrueIndexSearch.of, "joint": ca.JointOracle.of(env)}
    data = play(env, policies, horizon=1000, seeds=16, record=["utility"], record_every=1000).isel(time=-1)
    assert data["valid"].all()
    utility = {name: data["utility"].sel(policy=name) for name in policies}
    assert_near(utility["indices"], 0.30, 0.0, "search by the true indices")
    assert ca.joint_plan(env).value == pytest.approx(0.45, abs=1e-6)
    assert_near(utility["joint"], 0.45, 0.0, "joint optimum")
    with pytest.warns(UserWarning, match="Oracle is not the best policy where all models answer the same query"):
        ca.Oracle.of(env)


@pytest.mark.slow
@pytest.mark.parametrize("scored", [False, True])
def test_the_joint_optimum_earns_what_its_plan_says(scored):
    """On rows that do not depend on each other in any simple way, by scores and by features."""
    rng = np.random.default_rng(3)
    hard = rng.random(60)
    score = (rng.random((60, 3)) > hard[:, None] * [1.2, 0.9, 0.6]).astype(float)
    cost, group = rng.uniform(0.5, 1.0, (60, 3)) * [0.03, 0.1, 0.3], (hard > rng.random(60)).astype(int)
    sure = np.round(2 * (0.5 * score + 0.5 * rng.random((60, 3)))) / 2
    features = np.stack([np.ones((60, 3)), sure], axis=-1) if scored else None
    env = ca.replay_cascade(score, cost, group, joint=True, features=features)
    plan = ca.joint_plan(env)
    policies = {
        "joint": ca.JointOracle(plan),
        "indices": ca.TrueIndexSearch.of,
        "one": ca.BestSingle.of,
        "all": ca.QueryAll(),
    }
    data = play(env, policies, horizon=2000, seeds=64, record=["utility"])
    assert data["valid"].all()
    joint = data["utility"].sel(policy="joint").isel(time=-1)
    assert_near(joint, plan.value, 0.0, "joint optimum")
    gap = metrics.paired(data, "utility", "joint").isel(time=-1)
    assert (gap["mean"] - 3 * gap["stderr"]).max() <= 0, "nobody earns more"


@pytest.mark.slow
def test_the_learned_list_earns_what_it_earned_on_its_rows():
    """Played on the rows that it was fitted on; a model that is left out is never called."""
    rng = np.random.default_rng(4)
    score = (rng.random((80, 4)) < [0.3, 0.6, 0.6, 0.9]).astype(float)
    score[:, 2] = score[:, 1]  # The same answers for more money.
    cost = np.tile([[0.02, 0.05, 0.15, 0.3]], (80, 1))
    env = ca.replay_cascade(score, cost, np.zeros(80, int), joint=True)
    found = ca.best_list(score, cost)
    assert 2 not in found.models
    data = play(env, {"list": ca.Frugal.fit(score, cost)}, horizon=2000, seeds=32, record=["utility", "opened"])
    assert_near(data["utility"].isel(policy=0, time=-1), found.utility, 0.0, "list")
    assert float(data["opened"].isel(policy=0, time=-1, model=2).max()) == 0.0
