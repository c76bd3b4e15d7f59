"""The environment of cascades: what is drawn, opened, shown and counted, and that unopened boxes change nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cascade_cases import DISTRIBUTIONS, FEW, NUMBER, as_numpy, f32, slow

from jaxroute.core import draws
from jaxroute.core.protocols import build_policy
from jaxroute.engine.rounds import spec_for
from jaxroute.estimators.glm import ExactGLM
from jaxroute.problems import cascade as ca
from jaxroute.problems import default_policies
from jaxroute.problems.cascade.parts.exploration import BlockExploration, DecayingExploration, ExplorationPhase, WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import PracticalRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.search import IndexSearch, LoopSearch
from jaxroute.problems.cascade.parts.window import MomentEquations, Window
from jaxroute.problems.cascade.types import Outputs, SearchResult


class Replaced:
    """Stands for an environment in which a period holds what the test gives it."""

    def __init__(self, env, period):
        self.env, self.period = env, period

    def __getattr__(self, name):
        return getattr(self.env, name)

    def draw(self, key, state, t):
        del key, state, t
        return self.period


@jax.jit
def both_worlds(env, key, state, action, t, rubbish):
    """Returns the feedback of a period, and of the same period with rubbish in all boxes that the search leaves closed."""
    period = env.draw(key, state, t)
    known = env.evaluator is None
    opened = action.run(Outputs(period.score if known else None, period.features, period.cost)).opened | (t < 1)

    def spoiled(x):
        return None if x is None else jnp.where(opened.reshape(-1, *(1,) * (x.ndim - 1)), x, rubbish)

    other = period.replace(**{name: spoiled(getattr(period, name)) for name in ("score", "cost", "features")})
    return env.step(key, state, action, t)[1], ca.CascadeEnv.step(Replaced(env, other), key, state, action, t)[1]  # type: ignore


def assert_same_bits(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        a, b = (np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in (a, b))
        assert a.tobytes() == b.tobytes()


# With settings of their own where they would open everything for a while.
POLICIES = default_policies(ca) | {
    "EpsilonGreedy": ca.EpsilonGreedy(exploration=DecayingExploration(0.3)),
    "ExploreThenCommit": ca.ExploreThenCommit(exploration=ExplorationPhase(1)),
    "OnlineGradient": ca.OnlineGradient(exploration=BlockExploration(4)),
    "DistributionLearner": ca.DistributionLearner(radius=PracticalRadius(0.0, 0.0, 0.0)),
    "BootstrapCOSMOS": ca.BootstrapCOSMOS(exploration=WarmUp(1)),
    "streaming": ca.COSMOS(fit=StreamingNewton()),
    "window": ca.COSMOS(fit=Window(size=4)),
    "exact evaluator": ca.COSMOS(fit=StreamingNewton(), evaluator=ExactGLM(capacity=20)),
    "moments": ca.COSMOS(fit=MomentEquations(size=4, iterations=1)),
    "theory": ca.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()),
}
SEEN = dict.fromkeys(POLICIES, (True, False)) | {"exact evaluator": (False,)}
OFTEN = {("streaming", True), ("LinUCB", False)}


@pytest.mark.parametrize(("name", "scored"), [(n, k) if (n, k) in OFTEN else slow(n, k) for n in POLICIES for k in SEEN[n]])
def test_closed_boxes_change_nothing(name, scored):
    """NaN, or numbers that would matter, in boxes that stay closed: same feedback, same next state, bit for bit."""
    env = jax.tree.map(jnp.asarray, ca.uniform_cascade(evaluator=None if scored else 2))
    policy = build_policy(POLICIES[name], env)
    state, closed = policy.init(draws.key(1), spec_for(env, 20)), 0
    for t in range(8):
        key, k_act, k_update = draws.split(draws.fold_in(draws.key(11), t), 3)
        t = jnp.int32(t)
        obs = env.observe(key, (), t)
        action, _ = policy.act(k_act, state, obs, t)
        for rubbish in (float("nan"), 50.0):
            feedback, other = both_worlds(env, key, (), action, t, rubbish)
            assert_same_bits(feedback, other)
        new = policy.update(k_update, state, obs, action, feedback, t)
        assert_same_bits(new, policy.update(k_update, state, obs, action, other, t))
        closed += int((~feedback.opened).sum())
        state = new
    assert (closed > 0) == (name not in ("QueryAll", "theory"))


def test_theorem_3_3_allows_every_index_its_rounding():
    """Two opened boxes whose indices are too low by less than what counts as rounding do not break the bound; real losses do."""
    env = ca.custom_cascade([[0.7], [0.6]], [0.05, 0.05], [0.5, 0.5])
    key, low = draws.key(0), f32([0.9e-5, 0.9e-5])

    def violations(short, number):
        one = draws.fold_in(key, number)
        index = env.true_index(f32([1.0])) - short
        return env.step(one, (), IndexSearch(index, index, None, index, jnp.ones((), bool)), jnp.int32(1))[2]

    flows = jax.jit(jax.vmap(violations, in_axes=(None, 0)))(low, jnp.arange(2000))
    assert flows["violations"].sum() == 0 and (flows["queries"] == 2).any() and (flows["regret"] < 1e-6).any()


@functools.partial(jax.jit, static_argnums=1)
def searched_periods(env, search):
    """Returns the flows of 20,000 periods of one run with a search that knows the environment."""
    start, now = draws.split(draws.key(0))
    state = env.init(start)

    def one(t):
        key = draws.fold_in(now, t)
        return env.step(key, state, search(env, env.observe(key, state, t)), t)[2]

    return jax.vmap(one)(jnp.arange(1, NUMBER + 1))


def optimal(env, obs):
    return ca.Oracle.of(env).act(None, (), obs, 0)[0]


def everything(env, obs, bounded):
    """Returns a search that opens all boxes, whatever their indices."""
    index = env.true_index(obs.context)
    return IndexSearch(index, jnp.full_like(index, jnp.inf), index=index, bounded=jnp.asarray(bounded))


@pytest.mark.parametrize("name", [name if name in FEW else slow(name) for name in DISTRIBUTIONS])
def test_the_optimal_search_has_no_regret_whatever_the_distribution(name):
    """Period by period, outputs that depend on each other included."""
    flows = as_numpy(searched_periods(DISTRIBUTIONS[name](), optimal))
    assert np.abs(flows["regret"]).max() < 2e-6 and np.abs(flows["realised_regret"]).max() < 2e-6
    assert not flows["violations"].any() and not flows["empty"].any()


@pytest.mark.slow
def test_violations_of_the_decomposition_are_counted():
    """Theorem 3.3 needs a search that follows its indices: one that opens everything breaks it where two boxes are above
    theirs.
    """
    for bounded in (True, False):
        flows = as_numpy(searched_periods(ca.uniform_cascade(), functools.partial(everything, bounded=bounded)))
        assert flows["optimistic"].all() and flows["regret"].min() > -2e-6 and (flows["regret"] > 1e-3).mean() > 0.1
        np.testing.assert_array_equal(flows["violations"], bounded & (flows["regret"] > 1e-5))


class DeploysUnseen:
    """Deploys a box that it has not opened, or opens none."""

    def __init__(self, opened):
        self.opened = jnp.asarray(opened)

    def run(self, outputs):
        return SearchResult(opened=self.opened, deployed=jnp.array([False, False, True]), score=outputs.score)


@pytest.mark.parametrize("opened", [[False, False, False], [True, False, False]])
def test_a_search_that_deploys_what_it_has_not_opened_is_counted(opened):
    env = ca.uniform_cascade()
    step = jax.jit(jax.vmap(lambda t: env.step(draws.fold_in(draws.key(0), t), (), DeploysUnseen(opened), t)[2]))
    flows = step(jnp.arange(1, 200))
    assert (flows["empty"] == 1).all()
    negative = np.asarray(flows["regret"]) < -1e-5  # Nothing was paid for the box.
    assert negative.any() and (np.asarray(flows["violations"])[negative] == 1).all()


def test_a_search_that_deploys_nothing_is_counted_but_in_the_free_period():
    nothing = LoopSearch((), lambda *a: (jnp.int32(2), True), lambda *a: jnp.int32(0))
    step = jax.jit(lambda t: ca.uniform_cascade().step(draws.key(0), (), nothing, t)[2]["empty"])
    assert (step(jnp.int32(1)), step(jnp.int32(0))) == (1, 0)
