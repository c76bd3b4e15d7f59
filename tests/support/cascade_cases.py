"""Makes environments, runs and worked samples that several test files of the cascade problem share."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_double, x64

import jaxroute as jr
from jaxroute.core import draws
from jaxroute.core.protocols import build_policy
from jaxroute.engine.rounds import spec_for
from jaxroute.estimators import links
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.parts import indices as index_loss
from jaxroute.problems.cascade.parts.exploration import WarmUp
from jaxroute.problems.cascade.parts.indices import StreamingNewton
from jaxroute.problems.cascade.parts.radii import PracticalRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import Window
from jaxroute.problems.cascade.sources.features import CubeNoise, RadialNoise


def f32(x):
    return jnp.asarray(x, jnp.float32)


def slow(*values, **options):
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def play(env, policies, horizon=200, seeds=64, **options):
    return jr.simulate(env, policies, **{"horizon": horizon, "seeds": seeds, "progress": False} | options)


@functools.cache
def table(number=40, groups=3):
    """Makes scores, costs, groups and features of queries in random order."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.arange(number) % groups)
    score = np.round(rng.random((number, 3)) ** (1 + group[:, None] * [0.0, 0.5, 1.0]), 2)
    return score, rng.uniform(0.01, 0.2, (number, 3)), group, rng.normal(size=(number, 3, 2))


NUMBER = 20_000


@jax.jit
def drawn(env, key=0):
    """Draws 20,000 periods of one run."""
    start, now = draws.split(draws.key(key))
    state = env.init(start)
    return jax.vmap(lambda t: env.draw(draws.fold_in(now, t), state, t))(jnp.arange(NUMBER))


DISTRIBUTIONS = {
    "LOC": lambda: ca.uniform_cascade(3, 3),
    "HET": lambda: ca.uniform_cascade(3, 3, tilt=0.25),
    "HET 10": lambda: ca.uniform_cascade(10, 5, tilt=0.20),
    "SPIKE": lambda: ca.spike_cascade(),
    "PASSFAIL": lambda: ca.pass_fail_cascade(),
    "TANH": lambda: ca.uniform_cascade(link="tanh"),
    "FLAT": lambda: ca.uniform_cascade(link="flat"),
    "GROUP": lambda: ca.group_cascade(),
    "SAFE_RISKY": lambda: ca.safe_and_risky(0.1),
    "TWOBOX": ca.two_boxes,
    "FROZEN_X": ca.frozen_cascade,
    "MISSPEC": lambda: ca.uniform_cascade(bend=0.05),
    "cheap": lambda: ca.uniform_cascade(cost_weight=0.25),
    "expensive": lambda: ca.uniform_cascade(cost_weight=4.0),
    "expensive SPIKE": lambda: ca.spike_cascade(cost_weight=2.0),
    "expensive PASSFAIL": lambda: ca.pass_fail_cascade(cost_weight=2.0),
    "replay": lambda: rows(),
    "expensive replay": lambda: rows(cost_weight=3.0),
    "joint replay": lambda: rows(joint=True),
}
FEW = ("LOC", "SPIKE", "PASSFAIL", "TWOBOX", "expensive", "replay")


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def history(env, policy, kind, horizon, runs):
    """Plays some runs. Returns what happens in the periods 0 to `horizon`, `[runs, horizon + 1, ...]`."""
    del kind
    spec = spec_for(env, horizon)

    def run(number):
        k_env, k_policy, k_start, k_first = draws.split(draws.fold_in(draws.key(7), number), 4)
        own = build_policy(policy, env)

        def period(states, t):
            env_state, state = states
            key, k_act, k_update = (draws.fold_in(k, 2 * t + i) for k, i in ((k_env, 0), (k_policy, 0), (k_policy, 1)))
            obs = env.observe(key, env_state, t)
            action, info = own.act(k_act, state, obs, t)
            period = env.draw(key, env_state, t)
            env_state, feedback, flows = env.step(key, env_state, action, t)
            new = own.update(k_update, state, obs, action, feedback, t)
            return (env_state, new), (vars(period), action, info, feedback, flows, state)

        start = env.init(k_start), own.init(k_first, spec)
        return jax.lax.scan(period, start, jnp.arange(horizon + 1))[1]

    return jax.vmap(run)(jnp.arange(runs))


def as_numpy(tree):
    def leaf(x):
        x = np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        return x.astype(float) if x.dtype == np.float32 else x

    return jax.tree.map(leaf, tree)


SETTINGS = {"horizon": 120, "seeds": 128, "record_every": 1}
SETTINGS["record"] = ("regret", "realised_regret", "queries", "opened", "deployed", "potential", "samples")


@functools.cache
def runs():
    """Simulates three policies on the main cascade, with a record of every round."""
    policies = {
        "COSMOS": ca.COSMOS(fit=StreamingNewton(), exploration=WarmUp(5)),
        "theory": ca.COSMOS(fit=StreamingNewton(), radius=TheoreticalRadius()),
        "all": ca.QueryAll(),
    }
    return play(ca.uniform_cascade(), policies, **SETTINGS)


GOOD = {"index": [[0.5, 0.1], [0.6, 0.0]], "mean_cost": [0.02, 0.06], "quantile": [0.6, 0.3]}


def custom(**options):
    return ca.custom_cascade(**(GOOD | options))


def rows(**options):
    score, cost, group, features = table()
    if options.get("features") is True:
        options["features"] = features
    return ca.replay_cascade(**({"scores": score, "costs": cost, "groups": group} | options))


def queries(**options):
    score, cost, _, features = table()
    contexts = np.column_stack([np.ones(len(score)), features[:, 0, 0]])
    return ca.query_cascade(**({"scores": score, "costs": cost, "contexts": contexts} | options))


def run(policy, env=None, **options):
    return play(custom() if env is None else env, policy, **{"horizon": 10, "seeds": 2} | options)


X = np.array([-0.9, -0.6, -0.3, 0.0, 0.2, 0.5, 0.7, 0.95])
PSI = np.column_stack([np.ones(8), X])
SCORE = np.array([0.35, 0.62, 0.41, 0.70, 0.33, 0.81, 0.55, 0.90])
COST = np.array([0.05, 0.07, 0.04, 0.06, 0.05, 0.08, 0.05, 0.06])


@functools.cache
def feeder(estimator, link):
    """A compiled function of samples: the state in the end, and the estimates `[n, m]` of one box after each of them."""

    double = in_double(estimator)

    def run(psi, score, cost):
        fit = double.init(index_loss.Sizes(1, psi.shape[1], 0))

        def one(carry, sample):
            t, x, m, c = sample
            new = index_loss.Sample(t, x, jnp.ones(1, bool), c[None], m[None], None)
            fit, rho = double.update(carry[0], carry[1], new, None, link)
            return (fit, rho), rho[:, 0]

        start = (fit, jnp.zeros((psi.shape[1], 1)))
        (fit, _), rho = jax.lax.scan(one, start, (jnp.arange(psi.shape[0]), psi, score, cost))
        return fit, rho

    return jax.jit(run)


def fed(estimator, psi=PSI, score=SCORE, cost=COST, link=links.IDENTITY):
    """In double precision: only the sizes of a few last steps differ in single precision, and the estimates by about 1e-4."""
    with x64():
        fit, rho = feeder(estimator, link)(psi, score, cost)
    return fit, np.asarray(rho)


def random_samples(n, seed=0, m=3):
    """Requests, scores and costs of a box with a linear index of which it is not always above."""
    rng = np.random.default_rng(seed)
    psi = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, m - 1))])
    return psi, psi @ [0.5, 0.1, -0.1][:m] + 0.3 * (rng.random(n) - 0.6), rng.uniform(0.02, 0.08, n)


def study(env, policies, horizon=2000, seeds=256, **options):
    return jr.simulate(
        env, policies, **{"horizon": horizon, "seeds": seeds, "record_every": horizon // 4, "progress": False} | options
    )


def assert_near(values, expected, error, what, num_sigma=4.0, slack=0.0):
    """The mean over seeds is what somebody else measured with the given standard error."""
    own = float(values.std(ddof=1)) / math.sqrt(values.size)
    gap, width = abs(float(values.mean()) - expected), math.hypot(own, error)
    assert gap < num_sigma * width + slack, f"{what}: {float(values.mean()):.5g} is {gap / width:.1f} errors from {expected}"


NOISES = {"cube": CubeNoise(), "normal": RadialNoise.normal(5), "student": RadialNoise.student(5)}


def to_minimum(**options):
    """`Window` that ends where rounding does, in double precision."""
    return Window(tolerance=1e-11, **options)


def with_constants(index=0.10, plug_in=0.03, optimism=0.30, warm=0, **options):
    """COSMOS with constants of its parts as arguments, for grids."""
    return ca.COSMOS(radius=PracticalRadius(index, plug_in, optimism), exploration=WarmUp(warm), **options)
