"""Small tables for online policies, for the simulator and for the reference."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from reference import cascade, combinatorial, replay

import jaxroute as jr
from jaxroute.comparison.learning import Traffic, setting_of
from jaxroute.core.protocols import build_policy, first_state, stage_length_of
from jaxroute.data import RoutingTable
from jaxroute.engine.rounds import spec_for
from jaxroute.testing.behaviour import on_device

QUALITY = np.array([0.45, 0.55, 0.65, 0.80])
COST = np.array([0.3, 1.0, 3.0, 8.0])


@dataclass(frozen=True)
class Case:
    """Holds a recorded table for the simulator, its latencies, and the same table for the NumPy reference."""

    table: RoutingTable
    latency: np.ndarray
    plain: replay.Table


def case(kind="binary", queries=300, features="vectors", seed=7):
    """Makes a table of four models whose quality depends on features. Its first column is the second dearest model.

    Args:
      kind: "binary" scores or "fractional" ones.
      queries: rows.
      features: "vectors", "groups" or "none".
      seed: of everything.
    """
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(queries, 6)), rng.normal(size=(6, 4))
    groups = rng.choice(10, queries, p=np.arange(1, 11) / 55.0)
    tilt = 0.4 * x @ w + 0.5 * rng.normal(size=(10, 4))[groups]
    probability = 1 / (1 + np.exp(-np.log(QUALITY / (1 - QUALITY)) - tilt))
    if kind == "binary":
        scores = (rng.random((queries, 4)) < probability) * 1.0
    else:
        scores = rng.beta(4 * probability, 4 * (1 - probability))
    costs = COST * rng.gamma(5.0, 0.2, (queries, 4))
    latency = np.array([0.3, 0.5, 0.8, 2.0]) * rng.gamma(5.0, 0.2, (queries, 4))
    order = [2, 0, 1, 3]
    scores, costs, latency = (a[:, order].astype(np.float32) for a in (scores, costs, latency))
    shown = {"vectors": {"features": x}, "groups": {"groups": groups, "group_names": tuple("abcdefghij")}}
    table = RoutingTable(scores, costs, ("c", "a", "b", "d"), **shown.get(features, {}))
    seen = {"vectors": x, "groups": replay.indicators(groups), "none": None}[features]
    plain = replay.Table(*(np.asarray(a, float) for a in (table.scores, table.costs)), seen, latency.astype(float))
    return Case(table, latency, plain)


def totals(of, name, orders, record_every=None, **setting):
    """Simulates one strategy at one setting. Returns its recorded curves and the number of rounds."""
    env, policy, rounds = setting_of(of.table, name, latency=of.latency, **setting)
    sizes = {"horizon": rounds, "seeds": orders, "record_every": record_every or rounds}
    data = jr.simulate(env, {name: policy}, progress=False, **sizes)
    return data.sel(policy=name), rounds


def means(of, name, orders, **setting):
    """Simulates one strategy. Returns `[orders, 4]`: quality, cost, calls and latency per answered query."""
    data, _ = totals(of, name, orders, **setting)
    names = ("quality", "spent", "calls", "latency", "answered")
    *flows, answered = (np.asarray(data[name].isel(time=-1).values, float).reshape(orders) for name in names)
    return np.stack([flow / answered for flow in flows], axis=1)


def decisions(env, policy, rounds, seed=0):
    """Plays one run round by round. Returns observation, action, feedback and flows of each counted round, `[T, ...]`."""
    env, policy = on_device(env), build_policy(on_device(policy), on_device(env))
    names = ("env_init", "policy_init", "env", "plan", "act", "update")
    keys = dict(zip(names, jax.random.split(jax.random.key(seed), len(names)), strict=True))
    stage, free = stage_length_of(env, policy), env.spec.free_rounds

    def one_round(states, t):
        env_state, policy_state = states
        key = {name: jax.random.fold_in(stream, t) for name, stream in keys.items()}
        obs = env.observe(key["env"], env_state, t)
        if stage:
            planned = policy.plan(key["plan"], policy_state, obs, t)
            policy_state = jax.tree.map(lambda new, old: jnp.where(t % stage == 0, new, old), planned, policy_state)
        action, _ = policy.act(key["act"], policy_state, obs, t)
        env_state, feedback, flows = env.step(key["env"], env_state, action, t)
        policy_state = policy.update(key["update"], policy_state, obs, action, feedback, t)
        return (env_state, policy_state), {"obs": obs, "action": action, "feedback": feedback, "flows": flows}

    @jax.jit
    def run():
        states = env.init(keys["env_init"]), first_state(env, policy, keys["policy_init"], spec_for(env, rounds))
        return jax.lax.scan(one_round, states, jnp.arange(free + rounds, dtype=jnp.int32))[1]

    return jax.tree.map(lambda x: np.asarray(x)[free:], run())


def scripted(env, policy, rounds, fill, seed=0):
    """Plays random actions in place of a policy's. Returns the same as `decisions`; the first state fixes the rows' order.

    Args:
      fill: `(rng, T, N) -> leaves of the action by name`; the others are 0.
    """
    env, policy = on_device(env), build_policy(on_device(policy), on_device(env))
    key, free = jax.random.key(seed), env.spec.free_rounds

    def act():
        state = first_state(env, policy, key, spec_for(env, rounds))
        return policy.act(key, state, env.observe(key, env.init(key), jnp.int32(0)), jnp.int32(0))[0]

    shape = jax.eval_shape(act)
    filled = fill(np.random.default_rng(seed), rounds, env.scores.shape[1])
    blank = jax.tree.map(lambda leaf: np.zeros((rounds, *leaf.shape), leaf.dtype), shape)
    action = blank.replace(**{name: value.astype(getattr(blank, name).dtype) for name, value in filled.items()})

    @jax.jit
    def run(action):
        state = env.init(key)

        def one_round(t, action):
            _, feedback, flows = env.step(key, state, action, t)
            return {"obs": env.observe(key, state, t), "action": action, "feedback": feedback, "flows": flows}

        return jax.vmap(one_round)(jnp.arange(free, free + rounds, dtype=jnp.int32), action)

    return jax.tree.map(np.asarray, run(action))


@dataclass(frozen=True)
class Read:
    """Holds which row, models and answer each round of a run had; models are numbered as in the table.

    Attributes:
      rows: `[T]` rows of the table, from the policy's observations or costs.
      called: `[T, N]` mask of the called models.
      answer: `[T]` model of the served answer, -1 for none in this round.
      in_turn: whether calls are successive.
    """

    rows: np.ndarray
    called: np.ndarray
    answer: np.ndarray
    in_turn: bool


def _row_of(unit, shown, which):
    """Finds the rows of `unit` `[Q, N]` that equal the costs `shown` `[T, N]` at the models in the mask `which` `[T, N]`."""
    return np.array([np.abs(np.where(w, unit - s, 0.0)).max(axis=1).argmin() for s, w in zip(shown, which, strict=True)])


def _first_best(scores, called):
    return np.where(called.any(axis=1), np.where(called, scores, -1.0).argmax(axis=1), -1)


def _searched(of, data, weight):
    unit, action = of.plain.unit, data["action"]
    opened = np.asarray(data["feedback"].opened, bool)
    rows = _row_of(unit, data["feedback"].cost / weight, opened)
    found = [
        cascade.search(p, t, of.plain.scores[row]) for p, t, row in zip(action.priority, action.threshold, rows, strict=True)
    ]
    return Read(rows, np.array([o for o, _, _ in found]), np.array([d for _, d, _ in found]), True)


def _explored(of, data, names):
    places = [names.index(name) for name in of.table.models]
    number = len(places)
    rows = _row_of(of.plain.unit, data["obs"].cost[:, places], np.ones((1, number), bool).repeat(len(data["obs"].cost), 0))
    explored = np.asarray(data["action"].explore, bool)
    answer = np.array([of.table.models.index(names[int(k)]) for k in data["action"].serve])
    return Read(rows, explored[:, None] | (np.arange(number) == answer[:, None]), answer, False)


def _selected(of, data, in_turn):
    seen = np.asarray(data["feedback"].observed, bool)
    rows = _row_of(of.plain.unit, data["feedback"].cost, seen)
    scores, selected = of.plain.scores[rows], np.asarray(data["action"].selected, bool)
    called = selected
    if in_turn:
        pairs = zip(selected, scores >= 0.5, data["action"].order, strict=True)
        called = np.array([combinatorial.queried("AWC", s, success, order) for s, success, order in pairs])
    return Read(rows, called, _first_best(scores, called), in_turn)


def _routed(of, data):
    model = data["action"].model.astype(int)
    called = np.arange(of.table.num_models) == model[:, None]
    return Read(_row_of(of.plain.unit, data["feedback"].cost[:, None] * called, called), called, model, True)


def _retried(of, data):
    contexts = Traffic.of(of.table).contexts
    rows = np.array([np.abs(contexts - x).max(axis=1).argmin() for x in data["feedback"].features])
    busy = data["obs"].queue_length > 0
    called = np.asarray(data["action"].offered, bool) & busy[:, None]
    accepted = np.asarray(data["feedback"].chosen, bool).any(axis=1) & busy
    return Read(rows, called, np.where(accepted, called.argmax(axis=1), -1), True)


def read(of, name, env, data, setting):
    """Recovers a run's decisions from its actions and from observed costs, independently of `Metered`."""
    if name in ("COSMOS", "LinUCB"):
        return _searched(of, data, setting["weight"])
    if name == "MESS+":
        return _explored(of, data, list(env.env.names))
    if name.startswith("C2MAB-V"):
        return _selected(of, data, name.endswith("in turn"))
    return _routed(of, data) if name == "StageRoute" else _retried(of, data)
