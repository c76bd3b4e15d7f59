"""Where queries come from: random instances, recorded arrivals, or a pool of prompts with known chances."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.queueing.choice import departure_rate
from jaxroute.solvers.assortment import log_weight_of_best

# Candidates for a context that are looked at in any case; three in a thousand rounds need more of them.
_USUAL_CANDIDATES = 16


@struct.dataclass
class Round:
    """What chance decides in a round.

    arrived: `[]` bool. row: the query that came (or would have come). unslack: `[]` bool, no context was found that can be served well
    enough. uniform: `[]`, drives the user's choice.
    """

    arrived: jax.Array
    row: Any
    unslack: jax.Array
    uniform: jax.Array


@struct.dataclass
class Query:
    """features: `[d]`, with pair features `[N, d]`. best_rate: `[]`, departure rate of its best assortment."""

    features: jax.Array
    best_rate: jax.Array


def utilities_of(theta, features, pair_features: bool) -> jax.Array:
    """Utilities `[N, ...]` of features `[d, ...]` under `theta` `[N, d]`, or of pair features `[N, d, ...]` under `theta` `[d]`."""
    theta = jnp.asarray(theta)
    if pair_features:
        return numerics.combine(theta, jnp.swapaxes(features, 0, 1))
    return jnp.stack([numerics.combine(theta[j], features) for j in range(theta.shape[0])])


def best_rate(utility, size: int) -> jax.Array:
    """Largest departure rate `[...]` of `size` models with utilities `[N, ...]`."""
    return departure_rate(log_weight_of_best(list(utility), size))


@struct.dataclass
class _Linear:
    """Utilities that are linear in the features: `x' theta_j`, or with pair features `x_j' theta`.

    theta: `[N, d]`, with pair features `[d]`.
    """

    theta: Leaf

    def utility(self, features, pair_features: bool) -> jax.Array:
        """Utilities `[N]` of a query's features."""
        return utilities_of(self.theta, features, pair_features)


@struct.dataclass
class RandomContexts(_Linear):
    """Contexts uniform on `[-scale, scale]^d`, conditioned on some assortment's departure rate being at least `arrival_rate + slack`.

    Source: ACQB, section 6.1 and assumption 4.

    Differs from the paper: a context is the first of a number of candidates that fulfils the condition. If a query comes in a round
    without one it is the last candidate, and `unslack` is counted, which makes the run invalid: parameters that serve hardly any context
    well are left out.

    arrival_rate: `[]` chance that a round brings a query. slack: `[]`. scale: `[]`. candidates: per round (static).
    """

    arrival_rate: Leaf
    slack: Leaf
    scale: Leaf = 1.0
    candidates: int = struct.field(pytree_node=False, default=64)

    def check(self) -> None:
        checks.numbers("theta", self.theta)
        rate = float(checks.probability("arrival_rate", self.arrival_rate, ()))
        slack = float(checks.non_negative("slack", self.slack, ()))
        if rate + slack >= 1.0:
            raise ValueError(
                f"arrival_rate + slack must be below 1, got {rate:g} + {slack:g}: no departure rate is that large"
            )
        checks.positive("scale", self.scale, ())
        checks.count("candidates", self.candidates)

    def draw(self, key, t, spec) -> Round:
        del t
        k_arrival, k_context, k_choice = draws.split(key, 3)
        lead = (spec.num_models, spec.dim) if spec.pair_features else (spec.dim,)
        scale = jnp.asarray(self.scale, jnp.float32)
        words = jax.random.key_data(k_context)
        starts = self.candidates * np.arange(np.prod(lead), dtype=np.uint32).reshape(*lead, 1)

        def search(first: int, number: int):
            """The first good one of some candidates, or the last of them, with its departure rate and whether it is good."""
            places = jnp.asarray(starts) + (lax.iota(jnp.uint32, number) + np.uint32(first))
            x = scale * (2.0 * draws.uniform_at(jax.random.wrap_key_data(words, impl=draws.KEY_IMPL), places) - 1.0)
            rate = best_rate(self.utility(x, spec.pair_features), spec.num_offered)
            good = rate >= self.arrival_rate + self.slack
            place = numerics.argmax(good.astype(jnp.float32), good)
            chosen = numerics.one_hot(jnp.minimum(place, number - 1), number)
            return numerics.pick(chosen, x), numerics.pick(chosen, rate), place < number

        def for_few():
            found = search(0, _USUAL_CANDIDATES)
            more = functools.partial(search, _USUAL_CANDIDATES, self.candidates - _USUAL_CANDIDATES)
            return lax.cond(~found[2], more, lambda: found)

        at_once = functools.partial(search, 0, self.candidates)
        x, rate, good = numerics.on_a_gpu(at_once, for_few) if self.candidates > _USUAL_CANDIDATES else at_once()
        return Round(
            arrived=draws.uniform(k_arrival) < self.arrival_rate,
            row=Query(features=x, best_rate=rate),
            unslack=~good,
            uniform=draws.uniform(k_choice),
        )


@struct.dataclass
class RecordedContexts(_Linear):
    """Arrivals, contexts and choice uniforms given in advance: round `t` reads column `t`.

    arrivals: `[T]` bool. contexts: `[d, T]`, with pair features `[N, d, T]`. uniforms: `[T]` on [0, 1).
    """

    arrivals: Leaf
    contexts: Leaf
    uniforms: Leaf

    def check(self) -> None:
        checks.numbers("theta", self.theta)
        rounds = np.shape(checks.numbers("contexts", self.contexts))[-1:]
        checks.probability("uniforms", self.uniforms, rounds)
        checks.booleans("arrivals", self.arrivals, rounds)

    def draw(self, key, t, spec) -> Round:
        del key

        def at(table):
            table = jnp.asarray(table)
            return lax.dynamic_index_in_dim(table, t, table.ndim - 1, keepdims=False)

        x = at(self.contexts)
        rate = best_rate(self.utility(x, spec.pair_features), spec.num_offered)
        return Round(
            arrived=at(self.arrivals),
            row=Query(features=x, best_rate=rate),
            unslack=jnp.zeros((), bool),
            uniform=at(self.uniforms),
        )


@struct.dataclass
class PoolContexts:
    """Prompts drawn from a pool, uniformly and with replacement.

    Source: ACQB, section 6.2 and appendix B.4.

    features: `[d, P]`. log_odds: `[N, P]`, `log(u / (1 - u))` of the chance `u` that a model's answer alone is accepted.
    best_rate: `[P]`. arrival_rate: `[]`.
    """

    features: Leaf
    log_odds: Leaf
    best_rate: Leaf
    arrival_rate: Leaf

    def check(self) -> None:
        checks.numbers("features", self.features)
        checks.numbers("log_odds", self.log_odds)
        checks.probability("arrival_rate", self.arrival_rate, ())

    def draw(self, key, t, spec) -> Round:
        del t
        k_arrival, k_context, k_choice = draws.split(key, 3)
        return Round(
            arrived=draws.uniform(k_arrival) < self.arrival_rate,
            row=draws.randint(k_context, spec.capacity),
            unslack=jnp.zeros((), bool),
            uniform=draws.uniform(k_choice),
        )


@struct.dataclass
class RecordedPrompts(PoolContexts):
    """A pool whose arrivals, prompts and choice uniforms are given in advance; `arrival_rate` is not used.

    arrivals: `[T]` bool. prompts: `[T]` int32. uniforms: `[T]` on [0, 1).
    """

    arrivals: Leaf = struct.field(kw_only=True)
    prompts: Leaf = struct.field(kw_only=True)
    uniforms: Leaf = struct.field(kw_only=True)

    def check(self) -> None:
        PoolContexts.check(self)
        rounds = np.shape(checks.probability("uniforms", self.uniforms))
        if len(rounds) != 1:
            raise ValueError(f"uniforms must have shape [T], got {rounds}")
        checks.booleans("arrivals", self.arrivals, rounds)
        prompts = checks.non_negative("prompts", self.prompts, rounds)
        size = np.shape(self.best_rate)[-1]
        if (prompts != np.floor(prompts)).any() or (prompts >= size).any():
            raise ValueError(
                f"prompts must be whole numbers below {size}, got {checks.show(prompts[np.argmax(prompts % 1 + prompts // size)])}"
            )

    def draw(self, key, t, spec) -> Round:
        del key, spec
        arrived, prompt, uniform = (jnp.asarray(x)[t] for x in (self.arrivals, self.prompts, self.uniforms))
        return Round(arrived=arrived, row=prompt, unslack=jnp.zeros((), bool), uniform=uniform)
