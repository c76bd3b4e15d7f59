"""Measures policies that a newcomer writes in ordinary JAX, in the engine and in a plain `jax.jit(jax.vmap(scan))`.

    python scripts/newcomers.py                  # a table of CPU seconds and their ratios
    python scripts/newcomers.py --only KLUCB --seeds 256 --repeats 9

Ring buffers with `.at[i].set`, a bisection with `lax.fori_loop`, linear algebra with `jnp.linalg` and `jnp.outer`: nothing of
`jaxroute.core` is used. Calls of the engine and of the plain scan alternate; the figures are medians of processor time.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

import jaxroute
from jaxroute.core import draws
from jaxroute.core.types import Metric, Spec
from jaxroute.engine import reference
from jaxroute.engine.grid import canonical
from jaxroute.engine.rounds import Record, run_streams
from jaxroute.problems import staged, stochastic

MEANS = tuple(np.round(np.linspace(0.9, 0.0, 10), 6).tolist())


@struct.dataclass
class Window:
    """The last rewards, and what they add up to.

    actions: `[W]` int32, models used.
    rewards: `[W]` float32, what they earned.
    pulls: `[K]` float32, how often each model was used in the window.
    reward_sum: `[K]` float32, what each earned in the window.
    """

    actions: jax.Array
    rewards: jax.Array
    pulls: jax.Array
    reward_sum: jax.Array


@struct.dataclass
class SlidingWindowUCB:
    """UCB1 on the last rounds, in a ring buffer.

    Source: Garivier and Moulines (2011), SW-UCB.

    width: `[]` multiplier of the radius.
    window: rounds that are remembered (static).
    """

    width: float = 1.0
    window: int = struct.field(pytree_node=False, default=1000)

    def init(self, key, spec):
        del key
        return Window(
            actions=jnp.zeros(self.window, jnp.int32),
            rewards=jnp.zeros(self.window),
            pulls=jnp.zeros(spec.num_models),
            reward_sum=jnp.zeros(spec.num_models),
        )

    def act(self, key, state, obs, t):
        del key, obs
        pulls = jnp.maximum(state.pulls, 1.0)
        radius = self.width * jnp.sqrt(jnp.log(jnp.minimum(t + 2.0, self.window)) / pulls)
        bound = jnp.where(state.pulls > 0, state.reward_sum / pulls + radius, jnp.inf)
        return jnp.argmax(bound), {"bound": bound}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs
        i = t % self.window
        old_action, old_reward = state.actions[i], state.rewards[i]
        full = jnp.where(t >= self.window, 1.0, 0.0)
        return Window(
            actions=state.actions.at[i].set(action),
            rewards=state.rewards.at[i].set(feedback),
            pulls=state.pulls.at[old_action].add(-full).at[action].add(1.0),
            reward_sum=state.reward_sum.at[old_action].add(-full * old_reward).at[action].add(feedback),
        )


@struct.dataclass
class RecomputedWindowUCB(SlidingWindowUCB):
    """The same, with a window of 50 rounds whose sums are computed afresh in every round."""

    def update(self, key, state, obs, action, feedback, t):
        del key, obs
        i = t % self.window
        actions, rewards = state.actions.at[i].set(action), state.rewards.at[i].set(feedback)
        used = jnp.arange(self.window) <= t
        return Window(
            actions=actions,
            rewards=rewards,
            pulls=jnp.zeros_like(state.pulls).at[actions].add(jnp.where(used, 1.0, 0.0)),
            reward_sum=jnp.zeros_like(state.pulls).at[actions].add(rewards),
        )


@struct.dataclass
class Counts:
    """Sufficient statistics.

    pulls: `[K]` float32.
    reward_sum: `[K]` float32.
    """

    pulls: jax.Array
    reward_sum: jax.Array


@struct.dataclass
class KLUCB:
    """The largest mean whose Kullback-Leibler divergence from the empirical one is below `log(t) / pulls`, by bisection.

    Source: Garivier and Cappé (2011), KL-UCB for Bernoulli rewards.

    halvings: steps of the bisection (static).
    """

    halvings: int = struct.field(pytree_node=False, default=20)

    def init(self, key, spec):
        del key
        return Counts(pulls=jnp.zeros(spec.num_models), reward_sum=jnp.zeros(spec.num_models))

    def act(self, key, state, obs, t):
        del key, obs
        mean = state.reward_sum / jnp.maximum(state.pulls, 1.0)
        level = jnp.log(t + 2.0) / jnp.maximum(state.pulls, 1.0)

        def divergence(p, q):
            p, q = jnp.clip(p, 1e-6, 1 - 1e-6), jnp.clip(q, 1e-6, 1 - 1e-6)
            return p * jnp.log(p / q) + (1 - p) * jnp.log((1 - p) / (1 - q))

        def halve(_, bracket):
            low, high = bracket
            middle = (low + high) / 2
            inside = divergence(mean, middle) <= level
            return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

        low, _ = jax.lax.fori_loop(0, self.halvings, halve, (mean, jnp.ones_like(mean)))
        bound = jnp.where(state.pulls > 0, low, jnp.inf)
        return jnp.argmax(bound), {"bound": bound}

    def update(self, key, state, obs, action, feedback, t):
        del key, obs, t
        return Counts(pulls=state.pulls.at[action].add(1.0), reward_sum=state.reward_sum.at[action].add(feedback))


@struct.dataclass
class LinearBandit:
    """Every round each model has a context `x` `[d]`, and earns `theta . x` and noise.

    theta: `[d]` parameter.
    num_models: `K` (static).
    """

    theta: jax.Array
    num_models: int = struct.field(pytree_node=False, default=5)

    @property
    def spec(self):
        regret = Metric("regret", "cumulative regret", "reward", "total")
        return Spec(num_models=self.num_models, metrics=(regret, Metric("reward", "mean reward", "reward", "average")))

    def init(self, key):
        del key
        return ()

    def observe(self, key, state, t):
        del state, t
        return jax.random.uniform(jax.random.fold_in(key, 0), (self.num_models, self.theta.shape[0]), minval=-1.0)

    def step(self, key, state, action, t):
        mean = self.observe(key, state, t) @ self.theta
        reward = mean[action] + 0.1 * jax.random.normal(jax.random.fold_in(key, 1))
        return state, reward, {"regret": jnp.max(mean) - mean[action], "reward": reward}


@struct.dataclass
class Ridge:
    """Ridge regression of each model.

    inverse: `[K, d, d]` inverse of the regularised matrix of second moments.
    moment: `[K, d]` sum of contexts times rewards.
    """

    inverse: jax.Array
    moment: jax.Array


@struct.dataclass
class LinUCB:
    """One ridge regression per model, its inverse updated by the formula of Sherman and Morrison.

    Source: Li et al. (2010), Algorithm 1 (disjoint models).

    width: `[]` multiplier of the radius.
    size: `d` (static).
    """

    width: float = 0.5
    size: int = struct.field(pytree_node=False, default=6)

    def init(self, key, spec):
        del key
        return Ridge(
            inverse=jnp.stack([jnp.eye(self.size)] * spec.num_models), moment=jnp.zeros((spec.num_models, self.size))
        )

    def act(self, key, state, obs, t):
        del key, t
        theta = jnp.einsum("kij,kj->ki", state.inverse, state.moment)
        radius = jnp.sqrt(jnp.einsum("ki,kij,kj->k", obs, state.inverse, obs))
        bound = jnp.sum(theta * obs, axis=1) + self.width * radius
        return jnp.argmax(bound), {"bound": bound}

    def update(self, key, state, obs, action, feedback, t):
        del key, t
        x, inverse = obs[action], state.inverse[action]
        step = inverse @ x
        new = inverse - jnp.outer(step, step) / (1.0 + x @ step)
        return Ridge(inverse=state.inverse.at[action].set(new), moment=state.moment.at[action].add(feedback * x))


@struct.dataclass
class Shared:
    """Ridge regression of all models together.

    gram: `[d, d]` regularised matrix of second moments.
    moment: `[d]` sum of contexts times rewards.
    """

    gram: jax.Array
    moment: jax.Array


@struct.dataclass
class SharedLinUCB(LinUCB):
    """One ridge regression for all models, solved afresh in every round.

    Source: Abbasi-Yadkori, Pal and Szepesvari (2011), OFUL, with a constant radius.
    """

    def init(self, key, spec):
        del key, spec
        return Shared(gram=jnp.eye(self.size), moment=jnp.zeros(self.size))

    def act(self, key, state, obs, t):
        del key, t
        theta = jnp.linalg.solve(state.gram, state.moment)
        radius = jnp.sqrt(jnp.sum(obs.T * jnp.linalg.solve(state.gram, obs.T), axis=0))
        bound = obs @ theta + self.width * radius
        return jnp.argmax(bound), {"bound": bound}

    def update(self, key, state, obs, action, feedback, t):
        del key, t
        x = obs[action]
        return Shared(gram=state.gram + jnp.outer(x, x), moment=state.moment + feedback * x)


def _bandit() -> Any:
    return stochastic.bernoulli(MEANS)


def _linear() -> Any:
    return LinearBandit(theta=np.linspace(-0.5, 0.5, 6).astype(np.float32))


# Environment and policy of each comparison; the last three are the package's own.
PAIRS: dict[str, tuple[Callable[[], Any], Any]] = {
    "SlidingWindowUCB": (_bandit, SlidingWindowUCB()),
    "RecomputedWindowUCB": (_bandit, RecomputedWindowUCB(window=50)),
    "KLUCB": (_bandit, KLUCB()),
    "LinUCB": (_linear, LinUCB()),
    "SharedLinUCB": (_linear, SharedLinUCB()),
    "UCB1": (_bandit, stochastic.UCB1()),
    "GaussianThompson": (_bandit, stochastic.GaussianThompson()),
    "StageRoute": (lambda: staged.arena_market(max_deployed=6, stage_length=250), staged.StageRoute()),
}


def plain(env: Any, policy: Any, horizon: int, seeds: int) -> Callable[[], Any]:
    """The vectorised scan that one writes oneself, compiled as `jax.jit` does: a call plays all runs."""
    leaves, structure = jax.tree.flatten(canonical((env, policy)))
    flows = tuple(m for m in env.spec.metrics if m.kind != "gauge" and m.default)
    record = Record(every=horizon, flows=flows, zero_flows=env.spec.zero_flows)

    @jax.jit
    def play(leaves, root, numbers):
        env, policy = jax.tree.unflatten(structure, leaves)
        return reference.rollout(env, policy, run_streams(root, numbers), horizon, record)

    root, numbers = jax.random.key_data(draws.key(0)), np.arange(seeds, dtype=np.uint32)
    return lambda: jax.block_until_ready(play(leaves, root, numbers))


def engine(env: Any, policy: Any, horizon: int, seeds: int) -> Callable[[], Any]:
    """The same by `simulate`."""
    return lambda: jaxroute.simulate(
        env, {"policy": policy}, horizon=horizon, seeds=seeds, record_every=horizon, progress=False
    )


def compare(name: str, horizon: int, seeds: int, repeats: int) -> tuple[float, float]:
    """Median CPU seconds of the engine and of the plain scan, from alternating calls after a warm-up."""
    make, policy = PAIRS[name]
    env = make()
    rivals = engine(env, policy, horizon, seeds), plain(env, policy, horizon, seeds)
    times: tuple[list[float], ...] = ([], [])
    for repeat in range(repeats + 1):
        for play, spent in zip(rivals, times, strict=True):
            start = time.process_time()
            play()
            if repeat:
                spent.append(time.process_time() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints; returns 0."""
    parser = argparse.ArgumentParser(
        prog="newcomers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PAIRS, metavar="POLICY", default=list(PAIRS), help="these policies only"
    )
    parser.add_argument("--seeds", type=int, default=1024, help="runs (default 1024)")
    parser.add_argument("--horizon", type=int, default=2000, help="rounds (default 2,000)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of which the median is taken (default 5)")
    options = parser.parse_args(arguments)
    print(f"{'CPU seconds':<22}{'engine':>10}{'vmap(scan)':>12}{'ratio':>8}")
    for name in options.only:
        ours, theirs = compare(name, options.horizon, options.seeds, options.repeats)
        print(f"{name:<22}{ours:>10.3f}{theirs:>12.3f}{theirs / ours:>8.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
