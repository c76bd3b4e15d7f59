"""Small environments and policies for the tests of the engine; what they measure can be worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxroute.core import draws, numerics
from jaxroute.core.types import Leaf, Metric, Spec
from jaxroute.problems import staged


@struct.dataclass
class Clock:
    """Measures time, and whether plans came when they should; has no luck but `luck`, drawn once per run.

    slope: `[]` reward per round. bad_from: `[]` from this round on "bad" alternates between 1 and -1 in runs with luck < 0.5.
    broken_at: `[]` round in which "reward" is `broken` instead of `slope`.
    """

    slope: Leaf = 0.1
    bad_from: Leaf = 2**30
    broken_at: Leaf = -1
    broken: Leaf = 0.0
    stage_length: int | None = struct.field(pytree_node=False, default=None)
    free_rounds: int = struct.field(pytree_node=False, default=0)

    @property
    def spec(self):
        metrics = (
            Metric("reward", "reward", "reward", "total"),
            Metric("rounds", "rounds", "rounds", "total"),
            Metric("rounds_sum", "sum of t", "rounds", "total"),
            Metric("rounds_mean", "mean of t", "rounds", "average"),
            Metric("misplanned", "rounds whose plan is not that of their stage", "rounds", "total"),
            Metric("pulls", "times used", "rounds", "total", ("model",)),
            Metric("ages", "mean of t times the model's number", "rounds", "average", ("model",), default=False),
            Metric("clock", "rounds played", "rounds", "gauge"),
            Metric("luck", "luck", "1", "gauge", default=False),
            Metric("hands", "rounds modulo 2, 3 and 5", "rounds", "gauge", ("model",), default=False),
        )
        stages = {"stage_length": self.stage_length, "free_rounds": self.free_rounds}
        return Spec(num_models=3, model_names=("a", "b", "c"), metrics=metrics, zero_flows=("bad",), **stages)

    def init(self, key):
        return {"clock": jnp.zeros((), jnp.int32), "luck": draws.uniform(key)}

    def observe(self, key, state, t):
        return state["clock"]

    def step(self, key, state, action, t):
        model, last_plan, plans = action
        length = self.stage_length or 1
        chosen = numerics.one_hot(model, 3)
        bad = (t >= self.bad_from) & (state["luck"] < 0.5)
        flows = {
            "reward": jnp.where(t == self.broken_at, self.broken, self.slope),
            "rounds": 1,
            "rounds_sum": t,
            "rounds_mean": t,
            "misplanned": (last_plan != t - t % length) | (plans != t // length + 1) if self.stage_length else False,
            "pulls": chosen,
            "ages": t * jnp.arange(3),
            "bad": jnp.where(bad, 1 - 2 * (t % 2), 0),
        }
        return {**state, "clock": state["clock"] + 1}, model, flows

    def gauges(self, state):
        return {**state, "hands": state["clock"] % jnp.asarray([2, 3, 5])}


@struct.dataclass
class Cycle:
    """Uses the models in turn, from `first` on; never plans."""

    first: Leaf = 0

    def init(self, key, spec):
        return ()

    def act(self, key, state, obs, t):
        return ((t + self.first) % 3, -1, 0), {"twice": 2.0 * t, "both": jnp.stack([1.0 * t, -1.0 * t])}

    def update(self, key, state, obs, action, feedback, t):
        return state


@struct.dataclass
class Planner(Cycle):
    """Remembers when it planned, and how often. stage_length: its own, for environments without stages (static)."""

    stage_length: int | None = struct.field(pytree_node=False, default=None)

    @property
    def metrics(self):
        return (
            Metric("waiting", "rounds since the plan", "rounds", "total"),
            Metric("plans", "plans", "plans", "gauge"),
            Metric("marks", "t by model", "rounds", "average", ("model",), default=False),
        )

    def init(self, key, spec):
        return {"last": jnp.full((), -1, jnp.int32), "plans": jnp.zeros((), jnp.int32)}

    def plan(self, key, state, obs, t):
        return {"last": t, "plans": state["plans"] + 1}

    def act(self, key, state, obs, t):
        (model, _, _), info = Cycle.act(self, key, state, obs, t)
        marks = jnp.where(numerics.one_hot(model, 3), t, 0)
        return (model, state["last"], state["plans"]), {**info, "waiting": t - state["last"], "marks": marks}

    def gauges(self, state):
        return {"plans": state["plans"]}


@struct.dataclass
class Coin:
    """The smallest environment with noise: one number per round and no state."""

    @property
    def spec(self):
        return Spec(num_models=1, metrics=(Metric("reward", "reward", "reward", "total"),))

    def init(self, key):
        return ()

    def observe(self, key, state, t):
        return ()

    def step(self, key, state, action, t):
        return state, (), {"reward": draws.uniform(key)}


@struct.dataclass
class Idle:
    """The smallest policy."""

    def init(self, key, spec):
        return ()

    def act(self, key, state, obs, t):
        return (), {}

    def update(self, key, state, obs, action, feedback, t):
        return state


def small_market(**options):
    """A staged market of five models and three slots that compiles fast; two models arrive late."""
    noise = np.float32(0.1)
    outcomes = staged.ParametricOutcomes(np.linspace(0.3, 0.8, 5), np.linspace(1.0, 2.0, 5), noise, noise)
    settings = {"capacity": 0.6, "budget": 1.6, "max_deployed": 3, "stage_length": 10, "horizon": 100} | options
    return staged.market(outcomes, arrival=[1, 1, 1, 11, 31], known_costs=(0.1, 50.0), **settings)


def play_by_hand(env, policy, seed, horizon, key=0, verbs=lambda verb: verb):
    """One run as the protocol describes it: a plain loop over rounds, keys by `jax.random`, nothing compiled.

    Args:
      verbs: applied to each method of the protocol; `jax.jit` compiles them one by one.

    Returns:
      The flows, the info and the action of each round, and both states at the end.
    """
    run = jax.random.fold_in(jax.random.key(key), seed)
    names = ("instance", "env_init", "env", "policy_init", "plan", "act", "update")
    stream = {name: jax.random.fold_in(run, i) for i, name in enumerate(names)}
    length = env.spec.stage_length or policy.stage_length if hasattr(policy, "plan") else None
    observe, step, act, update = (verbs(verb) for verb in (env.observe, env.step, policy.act, policy.update))
    plan = verbs(policy.plan) if length else None
    env_state = env.init(stream["env_init"])
    policy_state = policy.init(stream["policy_init"], env.spec)
    history = []
    for t in range(env.spec.free_rounds + horizon):
        t = jnp.int32(t)
        k_env, k_plan, k_act, k_update = (jax.random.fold_in(stream[name], t) for name in ("env", "plan", "act", "update"))
        if plan and t % length == 0:
            policy_state = plan(k_plan, policy_state, observe(k_env, env_state, t), t)
        obs = observe(k_env, env_state, t)
        action, info = act(k_act, policy_state, obs, t)
        env_state, feedback, flows = step(k_env, env_state, action, t)
        policy_state = update(k_update, policy_state, obs, action, feedback, t)
        history.append((flows, info, action))
    return history[env.spec.free_rounds :], env_state, policy_state
