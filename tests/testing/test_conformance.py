"""Every policy and environment keeps the protocol; the conformance kit finds those that do not."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxroute import testing
from jaxroute.estimators.mnl import Newton, Online
from jaxroute.problems import cascade, combinatorial, default_policies, problems, queueing, service, staged, stochastic

BERNOULLI = stochastic.bernoulli([0.9, 0.5, 0.1])
GAUSSIAN = stochastic.gaussian([0.3, 0.1], scale=0.5)
STOCHASTIC, STAGED, COMBINATORIAL, SERVICE, QUEUEING, CASCADE = (
    default_policies(problem) for problem in (stochastic, staged, combinatorial, service, queueing, cascade)
)
# Here these differ little from their neighbours; the default suite plays them in whole runs against a reference.
SLOW = (
    *("Greedy", "Oracle"),
    *("GaussianThompson", "BetaThompson", "Cheapest", "RandomDeploy", "Uniform", "Static", "Direct", "CUCB", "Thompson"),
    *("ConstrainedThompson", "EpsilonGreedy", "RandomSet", "Everything", "OracleRelaxed", "OracleInteger", "OfflineFixed"),
    *("ShadowPrice", "MostSatisfying", "CheapestAbove", "Single", "RandomMix", "RouteLLM", "RouterDC", "OracleBlind"),
    *("OracleInformed", "OracleClairvoyant", "C2MABV", "ACQB", "CQBEpsilon", "QThS", "Optimal", "QUCB", "Random"),
    *("EducatedGuessing", "COSMOS", "ExploreThenCommit", "OnlineGradient", "DistributionLearner", "BootstrapCOSMOS"),
    *(
        "MessPlus",
        "ThompsonSampling",
        "LinUCB",
        "QueryAll",
        "Frugal",
        "RandomCascade",
        "ContextSingle",
        "StaticIndex",
        "BestSingle",
    ),
)


def rows(policies):
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in policies]


def small_cloud(**options):
    """Four models, sets of two."""
    success, cost = [0.2, 0.5, 0.4, 0.9], [0.1, 0.4, 0.3, 1.0]
    return combinatorial.law_cloud(success, cost, **{"reward": "suc", "budget": 0.6, "size": 2} | options)


def small_market(**options):
    """Five models, two slots, three stages: every branch of the deployment is compiled and quick."""
    outcomes = staged.LawOutcomes(
        reward_mean=np.array([0.2, 0.5, 0.4, 0.9, 0.7]),
        cost_mean=np.array([0.2, 1.0, 0.5, 4.0, 2.0]),
        reward_noise=np.float32(0.1),
        cost_noise=np.float32(0.1),
    )
    return staged.market(
        outcomes,
        **{
            "capacity": [1.0, 0.6, 0.6, 0.6, 0.6],
            "arrival": [1, 1, 1, 8, 15],
            "budget": 1.5,
            "max_deployed": 2,
            "stage_length": 7,
            "horizon": 40,
        }
        | options,
    )


def table_market():
    from jaxroute.data import RoutingTable

    rng = np.random.default_rng(0)
    table = RoutingTable(rng.random((30, 3)), rng.random((30, 3)), ("a", "b", "c"))
    return staged.table_market(table, max_deployed=2, stage_length=5, horizon=40, budget=0.9, permute=True)


def test_every_problem_has_its_rows_below():
    assert set(problems()) == {"stochastic", "staged", "combinatorial", "service", "queueing", "cascade"}


@pytest.mark.parametrize("name", rows(STOCHASTIC))
def test_stochastic_policies_conform(name):
    testing.check_policy(STOCHASTIC[name], BERNOULLI)


@pytest.mark.parametrize("name", rows(STAGED))
def test_staged_policies_conform(name):
    testing.check_policy(STAGED[name], small_market(), horizon=24)


@pytest.mark.parametrize("name", rows(COMBINATORIAL))
def test_combinatorial_policies_conform(name):
    env = small_cloud(any_size=True) if name == "Everything" else small_cloud()
    testing.check_policy(COMBINATORIAL[name], env, horizon=24)


@pytest.mark.parametrize("name", rows(SERVICE))
def test_service_policies_conform(name):
    testing.check_policy(SERVICE[name], service.benchmark_service(reveals_labels=True), horizon=24)


def small_queue(**options):
    """Three models, two features: quick to compile."""
    theta = [[1.0, -0.5], [-0.8, 0.9], [0.2, 1.0]]
    return queueing.fixed_queue(theta, **{"horizon": 40, "slack": 0.0, "arrival_rate": 0.6} | options)


def small_replay(**options):
    rng = np.random.default_rng(0)
    options |= {"features": rng.normal(size=(12, 2, 2))} if options else {}
    return cascade.replay_cascade(rng.random((12, 2)), rng.uniform(0.01, 0.1, (12, 2)), np.arange(12) % 2, **options)


def small_pool(**options):
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.1, 0.9, (12, 3))
    return queueing.pool_queue(rng.normal(size=(12, 2)), chance, **{"arrival_rate": 0.6, "horizon": 40} | options)


@pytest.mark.parametrize("name", rows(QUEUEING))
def test_queueing_policies_conform(name):
    testing.check_policy(QUEUEING[name], small_queue(), horizon=24)


def small_cascade(**options):
    """Two boxes, two features."""
    return cascade.custom_cascade([[0.5, 0.1], [0.6, -0.1]], [0.02, 0.06], [0.6, 0.3], **options)


def at_horizon(policy, horizon=24):
    """With constants that do not change with the number of rounds that follow."""
    return policy.replace(horizon=horizon) if hasattr(policy, "horizon") else policy


@pytest.mark.filterwarnings("ignore:.*horizon")
@pytest.mark.parametrize("name", rows(CASCADE))
def test_cascade_policies_conform(name):
    testing.check_policy(at_horizon(CASCADE[name]), small_cascade(), horizon=24)


SCORED_BY_FEATURES = {"evaluator": 2}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*horizon")
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (cascade.COSMOS(), {"link": "tanh", **SCORED_BY_FEATURES}),
        (cascade.COSMOS(fit=cascade.Window(size=4, iterations=1)), SCORED_BY_FEATURES),
        (cascade.COSMOS(fit=cascade.Window(size=3, every=4)), {}),
        (cascade.COSMOS(fit=cascade.MomentEquations(size=4, iterations=1)), {}),
        (cascade.cosmos(fit="streaming"), {"link": "flat", "shows_all": True}),
        (cascade.cosmos(fit="streaming", evaluator=cascade.ExactGLM(capacity=25)), SCORED_BY_FEATURES),
        (cascade.cosmos(fit="streaming", evaluator=cascade.FrozenGLM([0.5, 1.0])), SCORED_BY_FEATURES),
        (cascade.COSMOS(fit=cascade.Streaming(), radius=cascade.Theoretical()), SCORED_BY_FEATURES),
        (cascade.ThompsonSampling(), SCORED_BY_FEATURES),
        (cascade.BootstrapCOSMOS(), SCORED_BY_FEATURES),
        (cascade.LinUCB(), SCORED_BY_FEATURES),
        (cascade.Frugal(), SCORED_BY_FEATURES),
        (cascade.Oracle.of, SCORED_BY_FEATURES),
    ],
)
def test_options_of_cosmos_conform(policy, options):
    testing.check_policy(at_horizon(policy), small_cascade(**options), horizon=24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (queueing.ACQB(second_answer=0.3), {"num_offered": 2, "mixed": True}),
        (queueing.ACQB(joint=True, fifo=True), {"num_offered": 2, "limit": 20}),
        (queueing.ACQB(solver=Newton(passes=3, search=True), ridge=0.2), {}),
        (queueing.ACQB(solver=Online(), sampler=queueing.ByRoot(), num_samples=3), {}),
    ],
)
def test_options_of_acqb_conform(policy, options):
    testing.check_policy(policy, small_queue(**options), horizon=24)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [queueing.ACQB(), queueing.Random(), queueing.QUCB(), queueing.Optimal.of])
def test_policies_of_a_pool_conform(policy):
    testing.check_policy(policy, small_pool(), horizon=24)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        service.MessPlus(predictor=service.Learned(service.Mlp(width=5)), costs=service.RunningMeanCost(), repeats=2),
        service.MessPlus(optimiser=service.SGD(service.TheorySteps(0.1, 1.0), clip=1.0), costs=service.LastCost()),
    ],
)
def test_options_of_messplus_conform(policy):
    env = service.probit_service([0.4, 0.6, 0.7, 0.8], [1.0, 2.0, 5.0, 9.0], alpha=0.6, arrival=0.6, knows_cost=False)
    testing.check_policy(policy, env, horizon=24)
    testing.check_environment(env, policy, horizon=20)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0.6, [0.2, 0.5]])
def test_options_of_c2mabv_conform(budget):
    """Groups, lost feedback, batches that hold the relaxed selection, a start of its own, a random order."""
    env = small_cloud(reward="awc", groups=[0, 0, 1, 1], size=[1, 1], budget=budget, arrival=0.7)
    policy = combinatorial.C2MABV(
        batch=3, hold=combinatorial.HoldRelaxed(), start=combinatorial.RoundRobin(), order=combinatorial.ByChance()
    )
    testing.check_policy(policy, env, horizon=24)
    testing.check_environment(env, policy, horizon=20)


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        (GAUSSIAN, stochastic.UCB1()),
        pytest.param(
            small_market(deploy_fee=0.1, stop_at_budget=True), staged.Uniform(), marks=pytest.mark.slow, id="hard budget"
        ),
        pytest.param(table_market(), staged.Cheapest(), marks=pytest.mark.slow, id="table"),
        pytest.param(
            small_cloud(reward="awc", availability=0.8, costs=combinatorial.TokenCosts()),
            combinatorial.CUCB(),
            marks=pytest.mark.slow,
            id="cloud",
        ),
        pytest.param(
            service.typed_service(cost_noise=0.2, serve_best=True), service.MessPlus(), marks=pytest.mark.slow, id="service"
        ),
        (small_queue(), queueing.QUCB()),
        pytest.param(small_queue(limit=10), queueing.Random(), marks=pytest.mark.slow, id="compact queue"),
        pytest.param(small_pool(num_offered=2), queueing.Random(), marks=pytest.mark.slow, id="pool"),
        *(
            pytest.param(env, cascade.Frugal(), marks=pytest.mark.slow, id=name)
            for name, env in (
                ("cascade", small_cascade()),
                ("cascade of groups", cascade.group_cascade(evaluator=2)),
                ("spikes", cascade.spike_cascade()),
                ("pass or fail", cascade.pass_fail_cascade(cost_weight=2.0)),
                ("frozen cascade", cascade.frozen_cascade()),
                ("two boxes", cascade.two_boxes()),
                ("risky cascade", cascade.safe_and_risky(0.1)),
                ("misfit", cascade.uniform_cascade(tilt=0.25, bend=0.05, link="tanh")),
                ("replay", small_replay()),
                ("joint replay", small_replay(joint=True)),
            )
        ),
    ],
)
def test_environments_conform(env, policy):
    testing.check_environment(env, policy, horizon=20)


@struct.dataclass
class Follower:
    """A policy that keeps the protocol: the next model in turn. The classes below break it in one place each."""

    step: float = 1.0

    def init(self, key, spec):
        return jnp.zeros((), jnp.float32)

    def act(self, key, state, obs, t):
        return (t % 3).astype(jnp.int32), {}

    def update(self, key, state, obs, action, feedback, t):
        return state + self.step * feedback


@struct.dataclass
class NewShape(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return jnp.stack([state, feedback])


@struct.dataclass
class NewType(Follower):
    def update(self, key, state, obs, action, feedback, t):
        return state.astype(jnp.int32)


@struct.dataclass
class NoInfo(Follower):
    def act(self, key, state, obs, t):
        return jnp.int32(0), None


@struct.dataclass
class StaticLeaf(Follower):
    """Reads a swept number on the host, so that every value of it is another program."""

    size: int = struct.field(pytree_node=False, default=1)

    def act(self, key, state, obs, t):
        return jnp.int32(int(self.step) % 3), {}


CALLS = []


@struct.dataclass
class Remembers(Follower):
    """Keeps a count outside its state: eager and compiled runs differ."""

    def act(self, key, state, obs, t):
        CALLS.append(t)
        return jnp.int32(len(CALLS) % 3), {}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (NewShape(), r"update changes the state's leaf"),
        (NewType(), r"update changes the state's leaf"),
        (NoInfo(), r"info a dict"),
        (Remembers(), r"differs from"),
    ],
)
def test_broken_policies_are_found(policy, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_policy(policy, BERNOULLI)


def test_a_policy_that_reads_its_leaf_on_the_host_is_found():
    with pytest.raises((AssertionError, TypeError), match=r"trace|Concrete|concrete"):
        testing.check_policy(StaticLeaf(), BERNOULLI)


def test_a_good_policy_passes():
    testing.check_policy(Follower(), BERNOULLI)


def test_the_plain_loop_equals_the_compiled_run():
    import jaxroute as jr

    env = small_market()
    rounds = testing.play(env, staged.StageRoute(), horizon=20, seed=4)
    data = jr.simulate(env, staged.StageRoute(), horizon=20, seeds=[4], record_every=1, progress=False)
    regret = np.cumsum([float(r["flows"]["regret"]) for r in rounds])
    np.testing.assert_allclose(data["regret"].values[0, 0], regret, atol=1e-5)


def test_broken_environments_are_found():
    @struct.dataclass
    class Undeclared(stochastic.BanditEnv):
        def step(self, key, state, action, t):
            state, feedback, flows = super().step(key, state, action, t)
            return state, feedback, {"reward": flows["reward"]}

    with pytest.raises(AssertionError, match="flows of step.. lack 'regret'"):
        testing.check_environment(Undeclared(BERNOULLI.mean, BERNOULLI.scale), stochastic.UCB1())
