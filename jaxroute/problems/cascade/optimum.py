"""The optimum that regret is measured against, `U*` of eq. (3), and values of simpler rules: single calls, the best single
threshold.

On the host in float64, up to the float32 of the environment's laws.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxroute.core import checks, draws
from jaxroute.core.types import Leaf
from jaxroute.problems.cascade.env import CascadeEnv, as_cascade

# Thresholds that are tried, and draws on which they are compared.
_THRESHOLDS = np.arange(1, 100) / 100
# Requests that averages are taken over.
_REQUESTS = 20_000
_DRAWS = 200_000


def _average(env: CascadeEnv, function: Callable) -> jax.Array:
    """Mean `[K]` of a function of the request over many requests; may be traced."""
    key = draws.key(0)

    def of(number: jax.Array) -> jax.Array:
        start, now = draws.split(draws.fold_in(key, number))
        return function(env.contexts.draw(now, env.contexts.init(start), number))

    return jnp.mean(jax.vmap(of)(jnp.arange(_REQUESTS)), axis=0)


def single_values(env: CascadeEnv) -> jax.Array:
    """Mean score less weighted cost `[K]` of each model called alone, over the requests of the first 20,000 periods."""
    return _average(env, as_cascade(env).single_value)


def mean_costs(env: CascadeEnv) -> jax.Array:
    """Mean cost `[K]` of each model, over the requests of the first 20,000 periods."""
    as_cascade(env)
    return _average(env, lambda psi: env.boxes.mean_cost(psi, env.base_index(psi)))


def cost_order(env: CascadeEnv) -> jax.Array:
    """Place `[K]` of each model from the cheapest (0) to the dearest; equals, to six digits, by their number. May be traced."""
    cost = jnp.round(mean_costs(env), 6)
    return jnp.argsort(jnp.argsort(cost, stable=True), stable=True).astype(jnp.float32)


def oracle_value(env: CascadeEnv, psi: Leaf, points: int = 4000) -> float:
    """`U*(x) = E max_a min(M_a, index_a)` of a request, by numerical integration.

    Source: Belloni, Chen and Wei (2026), eq. (3).

    Args:
      env: the environment.
      psi: `[m]`, the request.
      points: of the integration between two indices.
    """
    boxes: Any = as_cascade(env).boxes
    if not hasattr(boxes, "above"):
        raise ValueError("oracle_value needs a law of scores, got recorded ones")
    checks.count("points", points)
    psi = jnp.asarray(checks.numbers("psi", psi, (env.spec.context_dim,)), jnp.float32)
    base, index = env.base_index(psi), np.asarray(env.true_index(psi), np.float64)
    edges = np.unique(np.concatenate([[min(-1.0, index.min())], index]))
    total = edges[-1]
    for low, high in itertools.pairwise(edges):  # A law of min(M, index) jumps at indices; other jumps cost accuracy.
        levels = low + (high - low) * (np.arange(points) + 0.5) / points
        above = jax.vmap(lambda level: boxes.above(psi, base, level))(jnp.asarray(levels, jnp.float32))
        below = np.where(levels[:, None] >= index, 1.0, 1.0 - np.asarray(above, np.float64))
        total -= (high - low) * float(below.prod(axis=1).mean())
    return float(total)


def tuned_threshold(env: CascadeEnv, number: int = _DRAWS, seed: int = 0) -> tuple[float, float]:
    """The best single threshold of the cascade from the cheapest model to the dearest, and its mean utility, on other draws
    than those of a run.

    The threshold is set on what a policy sees: scores, or where they are not seen those of an evaluator with the true coefficients, as
    somebody has who trained it beforehand. Thresholds from .01 to .99 in steps of .01. Ties: the smallest. The draws are the requests of
    the first `number` periods, which matters where requests change over time.
    """
    env, number = as_cascade(env), checks.count("number", number)
    order = np.argsort(cost_order(env), kind="stable")
    key = draws.key(checks.count("seed", seed, minimum=0))
    theta = None if env.evaluator is None else jnp.asarray(env.evaluator.theta)

    @jax.jit
    def played(period: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        one = draws.fold_in(key, period)
        drawn = env.draw(one, env.init(draws.fold_in(one, 0)), jnp.int32(period))
        if theta is None or drawn.features is None:
            return drawn.score, drawn.score, drawn.cost
        return env.spec.score_link.value(drawn.features @ theta), drawn.score, drawn.cost

    drawn = jax.lax.map(played, jnp.arange(number), batch_size=4096)
    seen, score, cost = (np.asarray(x, np.float64)[:, order] for x in drawn)
    values = []
    for threshold in _THRESHOLDS:
        running, best, earned, utility = np.ones(number, bool), np.full(number, -np.inf), np.zeros(number), np.zeros(number)
        for k in range(seen.shape[1]):
            running &= best < threshold
            better = running & (seen[:, k] > best)
            utility -= np.where(running, cost[:, k], 0.0)
            best, earned = np.where(better, seen[:, k], best), np.where(better, score[:, k], earned)
        values.append(float(np.mean(utility + earned)))
    place = int(np.argmax(values))
    return float(_THRESHOLDS[place]), values[place]
