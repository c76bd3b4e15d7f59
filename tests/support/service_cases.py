"""Services, runs and comparisons that the tests of the service problem share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers import shared_data
from reference import service as ref

from jaxroute import simulate
from jaxroute.core import draws
from jaxroute.data import RoutingTable
from jaxroute.engine.grid import canonical
from jaxroute.engine.rounds import draws_key, run_streams
from jaxroute.problems import service as sv
from jaxroute.problems.service.types import VirtualQueue

WINOGRANDE = (ref.CELLS["winogrande"], *ref.ENERGY["winogrande"])


def small_table(rows=150, models=3, seed=0):
    """Makes a table of recorded requests whose first features tell which models satisfy."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((rows, models)) < np.linspace(0.5, 0.9, models)).astype(float)
    costs = np.geomspace(50.0, 900.0, models) * rng.uniform(0.7, 1.3, (rows, models))
    features = np.concatenate([scores + rng.normal(size=scores.shape), rng.normal(size=(rows, 2))], axis=1)
    return RoutingTable(scores, costs, tuple("abcdef"[:models]), features=features)


@functools.partial(jax.jit, static_argnums=3, compiler_options={"xla_backend_optimization_level": 0})
def _played(env, policy, words, horizon):
    """Plays a run in one scan. Also returns each round's request, exploration uniform and dropout factors."""

    def at(name, t):
        return draws.fold_in(draws_key(words[name]), t)

    def one(states, t):
        env_state, state = states
        request = env.requests.draw(draws.fold_in(at("env", t), 0), env_state.source, t)
        obs = env.observe(at("env", t), env_state, t)
        action, info = policy.act(at("act", t), state, obs, t)
        env_state, feedback, flows = env.step(at("env", t), env_state, action, t)
        new = policy.update(at("update", t), state, obs, action, feedback, t)
        seen = {"request": request, "obs": obs, "action": action, "info": info, "flows": flows, "feedback": feedback}
        seen |= {"gauges": env.gauges(env_state), "u": draws.uniform(at("act", t))}
        if hasattr(new, "queue"):
            seen |= {"queue": new.queue.length, "loss": new.loss.total, "steps": new.num_steps}
            head = getattr(policy.predictor, "head", None)
            if isinstance(head, sv.Mlp):
                k_update = at("update", t)
                keys = [k_update] if policy.repeats == 1 else [draws.fold_in(k_update, i) for i in range(policy.repeats)]
                kept = [head.keep(k, env.spec.num_features, head.width) for k in keys]
                seen |= {"keep": tuple(jnp.stack(x) for x in zip(*kept, strict=True))}
        return (env_state, new), seen

    states = env.init(draws_key(words["env_init"])), policy.init(draws_key(words["policy_init"]), env.spec)
    (_, last), seen = jax.lax.scan(one, states, jnp.arange(horizon, dtype=jnp.int32))
    return seen | {"first": states[1], "last": last}


def played(env, policy, horizon=300, seed=3):
    """Plays one run. Returns everything that happened in every round; floating-point numbers become float64."""
    streams = run_streams(jax.random.key_data(draws.key(0)), np.asarray([seed], np.uint32))
    words = {name: value[:, 0] for name, value in streams.items()}
    found = _played(canonical(env), canonical(policy), words, horizon)
    return jax.tree.map(lambda x: np.asarray(x, float) if jnp.issubdtype(x.dtype, jnp.floating) else np.asarray(x), found)


def typed(**options):
    return sv.typed_service(cost_noise=0.2, **options)


def cells(**options):
    return sv.cell_service(*WINOGRANDE, **{"alpha": 0.7, "signal": 0.6, "num_noise": 2} | options)


def probit(**options):
    options = {"alpha": 0.7, "length_spread": 0.4, "num_features": 4} | options
    return sv.probit_service([0.6, 0.65, 0.8, 0.9], [40.0, 60.0, 200.0, 900.0], **options)


def table(**options):
    return sv.table_service(small_table(), **{"alpha": 0.75} | options)


LOGISTIC = sv.Learned(sv.Logistic(init_spread=0.1))


def learner(cls=sv.MessPlus, **options):
    return cls(**{"c": 0.6, "predictor": LOGISTIC} | options)


def observed(cost, probability, alpha):
    """Builds what a policy with the predictor `Labels` observes, with probabilities in place of labels."""
    cost, probability = jnp.asarray(cost, jnp.float32), jnp.asarray(probability, jnp.float32)
    return sv.types.Observation(features=jnp.ones(1), cost=cost, labels=probability, alpha=jnp.float32(alpha))


SPEC = sv.types.ServiceSpec(num_models=3, num_features=1, reveals_labels=True)


def decision(policy, obs, queue=0.0, seed=1):
    """Returns the model and the scores that the policy gives to a request that it does not explore."""
    policy = policy.replace(predictor=sv.Labels(), c=0.0)
    state = policy.init(draws.key(0), SPEC).replace(queue=VirtualQueue.empty().replace(length=jnp.float32(queue)))
    action, info = policy.act(draws.key(seed), state, obs, jnp.int32(7))
    assert not bool(action.explore)
    return int(action.serve), np.asarray(info["score"])


def assert_columns_close(samples, expected, what, num_sigma=5.0):
    """Checks that the mean of each column is within `num_sigma` standard errors of the expected value."""
    samples, expected = np.asarray(samples, float), np.asarray(expected, float)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    gap = np.abs(samples.mean(axis=0) - expected)
    assert (gap <= num_sigma * error + 1e-6 * (1 + np.abs(expected))).all(), (what, gap / np.maximum(error, 1e-12))
    assert (error > 0).any(), what


def end(data, name):
    return data[name].isel(time=-1).values


def first_observation(env):
    return env.observe(draws.key(5), env.init(draws.key(0)), jnp.int32(0))


def run(policy=None, env=None):
    env, policy = sv.typed_service() if env is None else env, sv.MessPlus() if policy is None else policy
    return simulate(env, policy, horizon=3, seeds=1, progress=False)


PRICES = np.array([[0.6, 0.6], [10.0, 30.0]])  # USD per million tokens in and out, of Mixtral and GPT-4 Turbo.


@functools.cache
def recorded_table():
    """Costs in 1e-3 USD: four characters a token; answers of unknown length are one token."""
    with np.load(shared_data("routellm_mmlu_gsm8k.npz")) as file:
        tokens_in = file["prompt_chars"][:, None] / 4.0
        tokens_out = np.where(file["resp_chars"] > 0, file["resp_chars"], 4) / 4.0
        costs = (tokens_in * PRICES[:, 0] + tokens_out * PRICES[:, 1]) * 1e-3
        features = file["feat"].astype(np.float32)
        return RoutingTable(file["correct"], costs, tuple(file["models"]), features, cost_unit="1e-3 USD per request")
