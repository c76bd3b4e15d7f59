"""Runs the simulator and the float64 reference of the queueing problem on the same draws.

The simulator runs in double precision here (`helpers.in_double`), so that decisions can be compared exactly; its draws keep their float32
bits, and are handed to the reference as float64 numbers.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from helpers import in_double, x64
from reference import queueing as ref
from scipy.special import expit

from jaxroute.core import draws
from jaxroute.core.types import classes_of
from jaxroute.problems import queueing as rq

FLOWS = {"routing_regret": "routing_gap", "joint_regret": "joint_gap", "departures": "departure", "retrials": "retrial"}
FLOWS |= {name: name for name in ("idle", "explored", "sojourn")}
KEY = draws.key(7)


RIDGE01 = np.float32(0.1)  # The number that both sides take for a ridge of 0.1.


# Compiling takes most of the time here: less care saves a quarter of it.
@functools.partial(jax.jit, static_argnames=("horizon", "classes"), compiler_options={"xla_backend_optimization_level": 0})
def _play(env, policy, key, horizon, classes):
    del classes  # Of policies that differ in nothing else JAX would now and then take what it has traced for the other.

    def one(carry, t):
        env_state, policy_state = carry
        k_round = draws.fold_in(key, t)
        obs = env.observe(k_round, env_state, t)
        action, info = policy.act(k_round, policy_state, obs, t)
        env_state, feedback, flows = env.step(k_round, env_state, action, t)
        policy_state = policy.update(k_round, policy_state, obs, action, feedback, t)
        place = action.query if obs.arrival is None else obs.arrival[jnp.minimum(action.query, obs.arrival.shape[0] - 1)]
        seen = {"query": place, "offered": action.offered, "chosen": feedback.chosen, "queue": obs.queue_length}
        seen |= {"flows": flows, "gauges": env.gauges(env_state)}
        if hasattr(policy_state, "theta"):
            seen |= {"theta": policy_state.theta, "radius": info["radius"]}
        return (env_state, policy_state), seen

    start = env.init(key), policy.init(key, env.spec)
    (_, policy_state), seen = jax.lax.scan(one, start, jnp.arange(horizon, dtype=jnp.int32))
    return seen | {"state": policy_state}


def play(env, policy, double=True):
    """Returns what happened in each round and the policy's last state. The policy's key in round t is child t of `KEY`."""
    if not double:
        return jax.tree.map(np.asarray, _play(env, policy, KEY, env.spec.rounds, classes_of((env, policy))))
    with x64():
        env, policy = in_double(env), in_double(policy)
        return jax.tree.map(np.asarray, _play(env, policy, KEY, env.spec.rounds, classes_of((env, policy))))


@functools.partial(jax.jit, static_argnames=("horizon", "children", "size"))
def _uniforms_and_normals(key, horizon, children, size):
    def at(t):
        keys = draws.split(draws.fold_in(key, t), children)
        return [jnp.stack([draws.uniform(k, (size,)) for k in keys]), jnp.stack([draws.normal(k, (size,)) for k in keys])]

    return jax.vmap(at)(jnp.arange(horizon))


def noise_of(key, horizon, children=3, size=64):
    """Draws uniforms and normals `[T, children, size]` that a policy may draw from the children of its key in each round.

    A draw of fewer elements holds the first ones of a draw of more, so that one compiled function serves all shapes.
    """
    return [np.asarray(x, float) for x in _uniforms_and_normals(key, horizon, children, size)]


def learner_noise(horizon, parameters, d, M, key=KEY):
    """Returns the draws of `ACQB.act`: coin `[T]`, normals `[T, parameters, d, M]`, and the uniform of the size `[T]`."""
    number = parameters * d * M
    uniform, normal = noise_of(key, horizon, size=64 * -(-number // 64))
    return uniform[:, 0, 0], normal[:, 1, :number].reshape(horizon, parameters, d, M), uniform[:, 2, 0]


@dataclass(frozen=True)
class Instance:
    """Holds a queue: theta `[N, d]` or `[d]`, contexts `[T, d]` or `[T, N, d]`, arrivals `[T]`, uniforms `[T]`."""

    theta: np.ndarray
    contexts: np.ndarray
    A: np.ndarray
    U: np.ndarray

    @property
    def utility(self):
        of = ref.shared_utilities if self.theta.ndim == 1 else ref.disjoint_utilities
        return of(self.theta, self.contexts)

    def env(self, K, limit=None, mixed=False):
        with x64():
            return rq.recorded_queue(self.theta, self.A, self.contexts, self.U, num_offered=K, limit=limit, mixed=mixed)


def instance(seed, T, N, d, K, pair=False, arrival_rate=0.7):
    rng = np.random.default_rng(seed)
    if pair:
        theta, contexts = rng.uniform(-1, 1, d), rng.uniform(-1, 1, (T, N, d))
    else:
        theta, contexts = ref.draw_instance(rng, T, N, d, K, arrival_rate, 0.03)
    return Instance(theta, contexts, rng.random(T) < arrival_rate, rng.random(T))


def assert_same_run(seen, inst, K, want):
    """Checks decisions, choices, queues, flows and gauges of every round, and that flows of errors are zero."""
    optimal = ref.simulate(inst.A, inst.U, inst.utility, K, ref.Optimal(inst.utility, K))
    busy = ~want["idle"]

    def equal(ours, theirs, what, rounds=slice(None)):
        different = np.flatnonzero((ours != theirs)[rounds].reshape(len(ours[rounds]), -1).any(axis=1))
        assert not different.size, f"{what} differs in {different.size} rounds, the first is {different[0]}"

    equal(seen["queue"], want["queue"], "queue length")
    equal(seen["query"], want["query"], "query", busy)
    equal(seen["offered"], want["offered"], "assortment", busy)
    chosen = np.where(seen["chosen"].any(1), seen["chosen"].argmax(1), -1)
    equal(chosen, want["chosen"], "choice")
    for ours, theirs in FLOWS.items():
        expected = want[theirs].astype(float)
        np.testing.assert_allclose(seen["flows"][ours], expected, atol=1e-12 if "regret" in ours else 0, err_msg=ours)
    for name in ("dropped", "infeasible", "illegal"):
        assert not seen["flows"][name].any(), name
    equal(seen["flows"]["mean_queue"], want["queue"], "mean_queue")
    equal(seen["flows"]["mean_queue_regret"], want["queue"] - optimal["queue"], "mean_queue_regret")
    equal(seen["flows"]["arrivals"], inst.A, "arrivals")
    np.testing.assert_array_equal(seen["flows"]["offered_share"], want["offered"])
    # Gauges are read after the round.
    equal(seen["gauges"]["queue_length"], want["queue_after"], "queue_length")
    equal(seen["gauges"]["peak"], np.maximum.accumulate(want["queue_after"]), "peak")
    equal(seen["gauges"]["queue_regret"], want["queue_after"] - optimal["queue_after"], "queue regret")
    assert (want["joint_gap"] >= want["routing_gap"] - 1e-15).all()


@dataclass(frozen=True)
class Pool:
    """Holds a queue on a pool of prompts: features `[P, d]`, log odds `[P, N]`, prompts, arrivals and uniforms, `[T]` each."""

    features: np.ndarray
    log_odds: np.ndarray
    prompt: np.ndarray
    A: np.ndarray
    U: np.ndarray

    @property
    def utility(self):
        return self.log_odds[self.prompt]

    def env(self, K):
        env = rq.pool_queue(
            self.features, expit(self.log_odds), arrival_rate=0.7, num_offered=K, recorded=(self.A, self.prompt, self.U)
        )
        # The constructor rounds to float32; the reference and the double run shall see the same numbers.
        top = np.exp(np.sort(self.log_odds, axis=1)[:, -K:]).sum(axis=1)
        numbers = {"features": self.features, "log_odds": self.log_odds.T, "best_rate": top / (1 + top)}
        return env.replace(contexts=env.contexts.replace(uniforms=self.U, **{k: np.array(v) for k, v in numbers.items()}))


def pool(seed, T, P, N, d, arrival_rate=0.7):
    rng = np.random.default_rng(seed)
    features, odds = rng.uniform(-1, 1, (P, d)), rng.normal(size=(P, N))
    return Pool(features, odds, rng.integers(P, size=T), rng.random(T) < arrival_rate, rng.random(T))
