"""Lists what conformance tests run: small environments, all policies, and the options that change a policy's program.

Each environment is built when it is first asked for, and once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxroute.data import RoutingTable, ServedLog
from jaxroute.estimators.gaussian import ByRoot
from jaxroute.estimators.glm import ExactGLM, FrozenGLM
from jaxroute.estimators.mnl import Newton, Online
from jaxroute.problems import (
    cascade,
    combinatorial,
    contextual,
    default_policies,
    problems,
    queueing,
    service,
    staged,
    stochastic,
)
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import TheoreticalRadius
from jaxroute.problems.cascade.parts.window import MomentEquations, Window


class Pair(NamedTuple):
    """Joins a policy, or a function `env -> policy`, with a function that builds an environment for it."""

    policy: Any
    env: Callable[[], Any]


def bernoulli():
    return stochastic.bernoulli([0.9, 0.5, 0.1])


def small_bandit(**options):
    """Makes a bandit with three models and two context features."""
    return contextual.logistic([[1.0, -0.5], [-0.8, 0.9], [0.2, 1.0]], **options)


def small_routing(**options):
    table = small_table(features=np.random.default_rng(0).normal(size=(30, 4)))
    return contextual.table_routing(table, directions=2, **options)


def small_log(problem=contextual, **options):
    """Makes a replay of thirty served queries with three models and two context features."""
    rng = np.random.default_rng(0)
    answers = np.arange(30), np.arange(30) % 3, rng.random(30), rng.random(30), 30, rng.uniform(0.3, 0.6, 30)
    log = ServedLog(("a", "b", "c"), *answers, features=rng.normal(size=(30, 2)))
    return problem.served_routing(log, **({"rounds": 5} if problem is contextual else {}) | options)


def small_cloud(**options):
    """Makes a cloud with four models and sets of two."""
    success, cost = [0.2, 0.5, 0.4, 0.9], [0.1, 0.4, 0.3, 1.0]
    return combinatorial.parametric_cloud(success, cost, **{"reward": "suc", "budget": 0.6, "size": 2} | options)


def small_market(**options):
    """Makes a market with five models, two slots and three stages. It has all branches of the deployment and is quick."""
    means = np.array([0.2, 0.5, 0.4, 0.9, 0.7]), np.array([0.2, 1.0, 0.5, 4.0, 2.0])
    limits = {"capacity": [1.0, 0.6, 0.6, 0.6, 0.6], "arrival": [1, 1, 1, 8, 15], "budget": 1.5}
    sizes = {"max_deployed": 2, "stage_length": 7, "horizon": 40}
    outcomes = staged.ParametricOutcomes(*means, np.float32(0.1), np.float32(0.1))
    return staged.market(outcomes, **limits | sizes | options)


def small_table(**options):
    """Makes a table of thirty queries and three models."""
    rng = np.random.default_rng(0)
    return RoutingTable(rng.random((30, 3)), rng.random((30, 3)), ("a", "b", "c"), **options)


def table_market():
    return staged.table_market(small_table(), max_deployed=2, stage_length=5, horizon=40, budget=0.9, one_pass=True)


def small_service():
    return service.benchmark_service(reveals_labels=True)


def small_queue(**options):
    """Makes a queue with three models and two features, which compiles quickly."""
    theta = [[1.0, -0.5], [-0.8, 0.9], [0.2, 1.0]]
    return queueing.fixed_queue(theta, **{"horizon": 40, "slack": 0.0, "arrival_rate": 0.6} | options)


def small_pool(**options):
    rng = np.random.default_rng(0)
    probability = rng.uniform(0.1, 0.9, (12, 3))
    return queueing.pool_queue(rng.normal(size=(12, 2)), probability, **{"arrival_rate": 0.6, "horizon": 40} | options)


def small_recorded():
    rng = np.random.default_rng(0)
    contexts = rng.uniform(-1, 1, (40, 2))
    return queueing.recorded_queue(rng.uniform(-1, 1, (3, 2)), rng.random(40) < 0.6, contexts, rng.random(40))


def small_cascade(**options):
    """Makes a cascade with two boxes and two features."""
    return cascade.custom_cascade([[0.5, 0.1], [0.6, -0.1]], [0.02, 0.06], [0.6, 0.3], **options)


def small_replay(**options):
    rng = np.random.default_rng(0)
    options |= {"features": rng.normal(size=(12, 2, 2))} if options else {}
    return cascade.replay_cascade(rng.random((12, 2)), rng.uniform(0.01, 0.1, (12, 2)), np.arange(12) % 2, **options)


def small_queries(**options):
    rng = np.random.default_rng(0)
    contexts = np.column_stack([np.ones(12), rng.random(12)])
    return cascade.query_cascade(rng.random((12, 2)), rng.uniform(0.01, 0.1, (12, 2)), contexts, **options)


def at_horizon(policy, horizon=24):
    """Fixes the constants that policies derive from the horizon, so that they do not change with the rounds that follow."""
    return policy.replace(horizon=horizon) if hasattr(policy, "horizon") else policy


def _lazy(function, *arguments, **options):
    return functools.cache(functools.partial(function, *arguments, **options))


# The environment on which the policies of a problem are checked.
USUAL = {
    "stochastic": _lazy(bernoulli),
    "contextual": _lazy(small_bandit),
    "staged": _lazy(small_market),
    "combinatorial": _lazy(small_cloud),
    "service": _lazy(small_service),
    "queueing": _lazy(small_queue),
    "cascade": _lazy(small_cascade),
}
_NOT_USUAL = {"combinatorial/Everything": _lazy(small_cloud, any_size=True)}

# Every policy with its default settings: by problem and class.
POLICIES = {
    f"{problem}/{name}": Pair(at_horizon(policy), _NOT_USUAL.get(f"{problem}/{name}", USUAL[problem]))
    for problem, module in problems().items()
    for name, policy in default_policies(module).items()
}

_SCORED = {"evaluator": 2}
_OPTIONS_OF_COSMOS = {
    "tanh": (cascade.COSMOS(), {"link": "tanh", **_SCORED}),
    "window of 4": (cascade.COSMOS(fit=Window(size=4)), _SCORED),
    "window, sometimes": (cascade.COSMOS(fit=Window(size=3, every=4)), {}),
    "moments": (cascade.COSMOS(fit=MomentEquations(size=4, iterations=1)), {}),
    "flat link": (cascade.COSMOS(fit=StreamingNewton()), {"link": "flat", "shows_all": True}),
    "exact evaluator": (cascade.COSMOS(fit=StreamingNewton(), evaluator=ExactGLM(capacity=25)), _SCORED),
    "frozen evaluator": (cascade.COSMOS(fit=StreamingNewton(), evaluator=FrozenGLM(np.array([0.5, 1.0]))), _SCORED),
    "radius of the proofs": (cascade.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()), _SCORED),
    "Thompson sampling, scored": (cascade.ThompsonSampling(), _SCORED),
    "bootstrap, scored": (cascade.BootstrapCOSMOS(), _SCORED),
    "LinUCB, scored": (cascade.LinUCB(), _SCORED),
    "Frugal, scored": (cascade.Frugal(), _SCORED),
    "oracle, scored": (cascade.Oracle.of, _SCORED),
}
_OPTIONS_OF_ACQB = {
    "second answer": (queueing.ACQB(second_answer=0.3), {"num_offered": 2, "mixed": True}),
    "joint": (queueing.ACQB(joint=True, fifo=True), {"num_offered": 2, "limit": 20}),
    "Newton": (queueing.ACQB(solver=Newton(tolerance=1e-4), ridge=0.2), {}),
    "on line": (queueing.ACQB(solver=Online(), sampler=ByRoot(), num_samples=3), {}),
}
_SHARED = tuple(
    at_horizon(made(parameters=contextual.SharedParameters()))
    for made in (contextual.OFUL, contextual.LinearThompson, contextual.LogisticThompson, contextual.SquareCB)
)
_CONTEXT_OF_EACH = _lazy(contextual.linear, [0.5, -0.5], num_models=3, intercept=True)
_POOL = (queueing.ACQB(), queueing.Random(), queueing.QUCB(), queueing.Optimal.of)
_PROBIT = _lazy(service.probit_service, [0.4, 0.6, 0.7, 0.8], [1.0, 2.0, 5.0, 9.0], alpha=0.6, arrival=0.6, knows_cost=False)
_OPTIONS_OF_MESSPLUS = (
    service.MessPlus(predictor=service.Learned(service.Mlp(width=5)), costs=service.RunningMeanCost(), repeats=2),
    service.MessPlus(optimiser=service.SGD(service.TheorySteps(0.1, 1.0), clip=1.0), costs=service.LastCost()),
)


def _options_of_c2mabv(budget):
    """Groups, lost feedback, batches that hold the relaxed selection, a start of its own, a random order."""
    env = _lazy(small_cloud, reward="awc", groups=[0, 0, 1, 1], size=[1, 1], budget=budget, arrival=0.7)
    start, order = combinatorial.RoundRobin(), combinatorial.ByProbability()
    return Pair(combinatorial.C2MABV(batch=3, hold=combinatorial.HoldRelaxed(), start=start, order=order), env)


# Policies with other settings than the default ones, in environments that need them.
OPTIONS = {
    **{
        f"cascade/{name}": Pair(at_horizon(policy), _lazy(small_cascade, **options))
        for name, (policy, options) in _OPTIONS_OF_COSMOS.items()
    },
    **{f"queueing/{name}": Pair(policy, _lazy(small_queue, **more)) for name, (policy, more) in _OPTIONS_OF_ACQB.items()},
    **{f"queueing/pool {i}": Pair(policy, _lazy(small_pool)) for i, policy in enumerate(_POOL)},
    **{f"service/options {i}": Pair(policy, _PROBIT) for i, policy in enumerate(_OPTIONS_OF_MESSPLUS)},
    **{f"contextual/shared {type(policy).__name__}": Pair(policy, _CONTEXT_OF_EACH) for policy in _SHARED},
    "contextual/descriptors": Pair(
        contextual.LinearThompson(parameters=contextual.SharedParameters(np.float32([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]]))),
        _lazy(small_routing),
    ),
    "cascade/optimum of joint rows": Pair(cascade.JointOracle.of(small_replay(joint=True)), _lazy(small_replay, joint=True)),
    "combinatorial/groups": _options_of_c2mabv(0.6),
    "combinatorial/groups with budgets": _options_of_c2mabv([0.2, 0.5]),
}

# Every environment that a problem names, by problem and constructor.
_PLAYERS = {
    "stochastic": stochastic.UCB1(),
    "contextual": contextual.Uniform(),
    "staged": staged.Uniform(),
    "combinatorial": combinatorial.CUCB(),
    "service": service.MessPlus(),
    "queueing": queueing.Random(),
    "cascade": cascade.Frugal(),
}
_CONSTRUCTED = {
    "stochastic/bernoulli": bernoulli,
    "stochastic/gaussian": lambda: stochastic.gaussian([0.3, 0.1], scale=0.5),
    "stochastic/beta": lambda: stochastic.beta([0.3, 0.6]),
    "stochastic/poisson": lambda: stochastic.poisson([0.5, 2.0]),
    "stochastic/exponential": lambda: stochastic.exponential([0.5, 2.0]),
    "stochastic/piecewise": lambda: stochastic.piecewise([[0.3, 0.6], [0.7, 0.2]], [0, 9]),
    "stochastic/garivier_moulines": stochastic.garivier_moulines,
    "stochastic/drifting": lambda: stochastic.drifting([0.3, 0.6], step=0.1),
    "stochastic/sinusoidal": lambda: stochastic.sinusoidal([0.5, 0.4], period=12.0),
    "stochastic/restless": lambda: stochastic.restless([0.2, 0.3], [0.9, 0.6], [0.2, 0.1], [0.3, 0.1]),
    "stochastic/served_routing": lambda: small_log(stochastic),
    "contextual/linear": lambda: contextual.linear([[0.5, -0.5], [0.1, 0.3]], 0.2),
    "contextual/logistic": small_bandit,
    "contextual/table_routing": lambda: small_routing(cost_weight=0.2),
    "contextual/served_routing": lambda: small_log(cost_weight=0.2),
    "staged/arena_market": lambda: staged.arena_market(stage_length=10, horizon=40),
    "staged/routerbench_market": lambda: staged.routerbench_market(stage_length=10, horizon=40),
    "staged/table_market": table_market,
    "staged/discovery_market": lambda: staged.discovery_market(horizon=40, stages=4, num_models=21),
    "staged/lower_bound_market": lambda: staged.lower_bound_market(horizon=64),
    "combinatorial/sciq_cloud": lambda: combinatorial.sciq_cloud(reward="awc"),
    "combinatorial/uniform_cloud": lambda: combinatorial.uniform_cloud(num_models=5, size=2),
    "combinatorial/parametric_cloud": small_cloud,
    "combinatorial/table_cloud": lambda: combinatorial.table_cloud(small_table(), reward="aic", budget=1.0, size=2),
    "service/benchmark_service": small_service,
    "service/typed_service": service.typed_service,
    "service/cell_service": lambda: service.cell_service([1, 2, 1, 4], [1.0, 2.0], [0.1, 0.2], alpha=0.6, signal=0.6),
    "service/probit_service": _PROBIT,
    "service/table_service": lambda: service.table_service(
        RoutingTable(small_table().scores, np.tile([1.0, 2.0, 5.0], (30, 1)), ("a", "b", "c")), alpha=0.5
    ),
    "queueing/RandomQueues": lambda: queueing.RandomQueues(num_models=3, dim=2, horizon=40),
    "queueing/fixed_queue": small_queue,
    "queueing/recorded_queue": small_recorded,
    "queueing/pool_queue": small_pool,
    "queueing/table_queue": lambda: queueing.table_queue(
        small_table(features=np.random.default_rng(0).normal(size=(30, 2))), horizon=40
    ),
    "queueing/standin_queue": lambda: queueing.standin_queue(queries=30, dim=16, horizon=40),
    "cascade/uniform_cascade": cascade.uniform_cascade,
    "cascade/spike_cascade": cascade.spike_cascade,
    "cascade/pass_fail_cascade": lambda: cascade.pass_fail_cascade(cost_weight=2.0),
    "cascade/group_cascade": lambda: cascade.group_cascade(evaluator=2),
    "cascade/safe_and_risky": lambda: cascade.safe_and_risky(0.1),
    "cascade/two_boxes": cascade.two_boxes,
    "cascade/frozen_cascade": cascade.frozen_cascade,
    "cascade/custom_cascade": small_cascade,
    "cascade/replay_cascade": small_replay,
    "cascade/query_cascade": small_queries,
}
_OTHER_PLAYERS = {
    "contextual/served_routing": contextual.ReplayedPolicy(contextual.LinUCB()),
    "service/probit_service": _OPTIONS_OF_MESSPLUS[1],
}
ENVIRONMENTS = {
    name: Pair(_OTHER_PLAYERS.get(name, _PLAYERS[name.split("/")[0]]), _lazy(make)) for name, make in _CONSTRUCTED.items()
}

# Environments with other settings than the default ones.
VARIANTS = {
    "contextual/a context for each model": Pair(
        contextual.Uniform(), _lazy(contextual.logistic, [0.5, -0.5], num_models=3, intercept=True)
    ),
    "contextual/bootstrap samples": Pair(
        contextual.ReplayedPolicy(contextual.LinearThompson()), _lazy(small_log, bootstrap=True)
    ),
    "stochastic/bootstrap samples": Pair(stochastic.UCB1(), _lazy(small_log, stochastic, bootstrap=True)),
    "contextual/rows with replacement": Pair(contextual.Uniform(), _lazy(small_routing, one_pass=False)),
    "staged/small market": Pair(staged.Uniform(), _lazy(small_market)),
    "staged/hard budget": Pair(staged.Uniform(), _lazy(small_market, deploy_fee=0.1, stop_at_budget=True)),
    "combinatorial/lost answers": Pair(
        combinatorial.CUCB(), _lazy(small_cloud, reward="awc", availability=0.8, costs=combinatorial.TokenCosts())
    ),
    "service/serves the best": Pair(service.MessPlus(), _lazy(service.typed_service, cost_noise=0.2, serve_best=True)),
    "queueing/compact queue": Pair(queueing.Random(), _lazy(small_queue, limit=10)),
    "queueing/two answers of a pool": Pair(queueing.Random(), _lazy(small_pool, num_offered=2)),
    "cascade/misfit": Pair(cascade.Frugal(), _lazy(cascade.uniform_cascade, tilt=0.25, bend=0.05, link="tanh")),
    "cascade/queries in order": Pair(cascade.Frugal(), _lazy(small_queries, shuffled=False)),
    "cascade/joint replay": Pair(cascade.Frugal(), _lazy(small_replay, joint=True)),
}
