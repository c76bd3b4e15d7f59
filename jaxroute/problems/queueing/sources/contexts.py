"""Sources of queries: random contexts, recorded arrivals, or a pool of prompts with given probabilities of acceptance.

The environment stores each query as a `Query`, which has its features, or only the index of its prompt if the source has a pool of prompts: the
source then stores the features of all prompts.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from jaxroute.core import checks, draws, numerics, xla
from jaxroute.core.types import Leaf
from jaxroute.problems.queueing.sources.choice import best_rate, utilities_of
from jaxroute.problems.queueing.types import QueueSpec

# Number of candidates for a context that are tried at once, until some assortment serves one well enough.
_CANDIDATES = 8


@struct.dataclass
class Query:
    """Data of a query that the buffer of waiting queries stores; the optimal policy's queue stores only `best_rate`.

    Attributes:
      best_rate: `[]` departure rate (acceptance probability) of its best assortment.
      features: `[d]` features, or `[N, d]` of the pairs of the query and each model; None with a pool of prompts.
      prompt: `[]` int32, index of its prompt in the pool; None without a pool.
    """

    best_rate: Array
    features: Any = None
    prompt: Any = None

    def for_optimum(self) -> "Query":
        """Returns the query with its best departure rate alone, the only data that the optimal policy's queue needs."""
        return self.replace(features=None, prompt=None)


@struct.dataclass
class Round:
    """Random draws of a round, which a source makes for `QueueEnv`.

    Attributes:
      arrived: `[]` bool, whether a query arrives.
      row: query that arrives (or would arrive).
      infeasible: `[]` bool, whether no context was found that some assortment serves well enough.
      uniform: `[]` number on [0, 1) that decides the user's choice.
      rejected: `[]` int32, number of contexts drawn in this round and rejected before `row`, since no assortment serves them well enough.
    """

    arrived: Array
    row: Query
    infeasible: Array
    uniform: Array
    rejected: Array | int = 0


@struct.dataclass
class _LinearUtility:
    """Base class of sources with linear utilities: `x' theta_j` of model `j` with `theta` `[N, d]`; for pair features `x_j' theta`, `theta` `[d]`."""

    theta: Leaf

    @property
    def pool_size(self) -> int:
        """Returns the number of prompts `P` in the pool; 0 without a pool."""
        return 0

    def utility(self, features: Array, pair_features: bool) -> Array:
        return utilities_of(self.theta, features, pair_features)

    def features_of(self, rows: Query) -> Array:
        """Returns features that policies see: of queries `rows` at `B` places, `[d, B]` (pairs: `[N, d, B]`), or of a pool's prompts, `[d, P]`."""
        return rows.features

    def serve(self, row: Query, spec: QueueSpec) -> tuple[Array, Array]:
        """Returns features `[d]` (of query-model pairs `[N, d]`) of the served query `row`, and true utilities `[N]` of the models' answers."""
        return row.features, self.utility(row.features, spec.pair_features)


@struct.dataclass
class RandomContexts(_LinearUtility):
    """Source of contexts uniform on the part of `[-scale, scale]^d` where some assortment's departure rate is at least `arrival_rate + slack`.

    Source: ACQB, section 6.1 and assumption 4.

    Differs from the paper: a context is the first of `candidates` random ones that fulfils the condition. If none does in a round with an arrival,
    the last one is used, the metric `infeasible` counts it, and the run is invalid. If hardly any context fulfils the condition, most runs are thus
    invalid; `describe_contexts` computes the share of contexts that do.

    Attributes:
      theta: `[N, d]` parameters of the utilities, or `[d]` for features of query-model pairs.
      arrival_rate: `[]` probability that a round brings a query.
      slack, scale: `[]` least amount by which the best departure rate exceeds `arrival_rate`, and largest absolute entry of a context.
      candidates: largest number of contexts tried per round (static).
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
            raise ValueError(f"arrival_rate + slack must be below 1, got {rate:g} + {slack:g}")
        checks.positive("scale", self.scale, ())
        checks.count("candidates", self.candidates)

    def draw(self, key: Array, t: Array, spec: QueueSpec) -> Round:
        """Returns the random draws of round `t`: its query, whether it arrives, and the number that decides the user's choice."""
        del t
        k_arrival, k_context, k_choice = draws.split(key, 3)
        lead = (spec.num_models, spec.dim) if spec.pair_features else (spec.dim,)
        scale = jnp.asarray(self.scale, jnp.float32)
        words = jax.random.key_data(k_context)
        starts = self.candidates * np.arange(np.prod(lead), dtype=np.uint32).reshape(*lead, 1)

        def search(first: Array, number: int) -> tuple[Array, Array, Array]:
            # The first good one of `number` candidates from index `first`: its features, departure rate and index. If none is good, the last
            # candidate's features and rate, and the index after it.
            numbers = jnp.minimum(lax.iota(jnp.uint32, number) + first.astype(jnp.uint32), np.uint32(self.candidates - 1))
            key = jax.random.wrap_key_data(words, impl=draws.KEY_IMPL)
            x = scale * (2.0 * draws.uniform_at(key, jnp.asarray(starts) + numbers) - 1.0)
            rate = best_rate(self.utility(x, spec.pair_features), spec.num_offered)
            good = rate >= self.arrival_rate + self.slack
            place = numerics.argmax(good.astype(jnp.float32), good)
            chosen = numerics.one_hot(jnp.minimum(place, number - 1), number)
            rejected = jnp.minimum(first + place, self.candidates)
            return numerics.pick(chosen, x), numerics.pick(chosen, rate), rejected

        def in_blocks() -> tuple[Array, Array, Array]:
            # The state is the result of the latest search, and the number of candidates seen so far.
            def unfinished(state: tuple[Array, ...]) -> Array:
                _, _, rejected, seen = state
                return (rejected == seen) & (seen < self.candidates)

            def more(state: tuple[Array, ...]) -> tuple[Array, ...]:
                return *search(state[3], _CANDIDATES), state[3] + _CANDIDATES

            start = (jnp.zeros(lead), jnp.zeros(()), jnp.int32(0), jnp.int32(0))
            x, rate, rejected, _ = lax.while_loop(unfinished, more, start)
            return x, rate, rejected

        x, rate, rejected = xla.on_a_gpu(lambda: search(jnp.int32(0), self.candidates), in_blocks)
        return Round(
            arrived=draws.uniform(k_arrival) < self.arrival_rate,
            row=Query(features=x, best_rate=rate),
            infeasible=rejected == self.candidates,
            uniform=draws.uniform(k_choice),
            rejected=rejected,
        )


@struct.dataclass
class RecordedContexts(_LinearUtility):
    """Source with given arrivals, contexts and random numbers of the choices; round `t` reads entry `t` of each.

    Attributes:
      theta: `[N, d]` parameters of the utilities, or `[d]` for features of query-model pairs.
      arrivals: `[T]` bool, whether a query arrives in each round.
      contexts: `[d, T]` features of the queries, or `[N, d, T]` of query-model pairs.
      uniforms: `[T]` numbers on [0, 1) that decide the users' choices.
    """

    arrivals: Leaf
    contexts: Leaf
    uniforms: Leaf

    def check(self) -> None:
        checks.numbers("theta", self.theta)
        rounds = np.shape(checks.numbers("contexts", self.contexts))[-1:]
        checks.probability("uniforms", self.uniforms, rounds)
        checks.booleans("arrivals", self.arrivals, rounds)

    def draw(self, key: Array, t: Array, spec: QueueSpec) -> Round:
        del key

        def at(table: Leaf) -> Array:
            table = jnp.asarray(table)
            return lax.dynamic_index_in_dim(table, t, table.ndim - 1, keepdims=False)

        x = at(self.contexts)
        rate = best_rate(self.utility(x, spec.pair_features), spec.num_offered)
        return Round(
            arrived=at(self.arrivals),
            row=Query(features=x, best_rate=rate),
            infeasible=jnp.zeros((), bool),
            uniform=at(self.uniforms),
        )


@struct.dataclass
class PoolContexts:
    """Source that draws prompts from a pool, uniformly and with replacement. Source: ACQB, section 6.2 and appendix B.4.

    Attributes:
      features: `[P, d]` features of the prompts; those of one prompt are contiguous in memory, since a round reads few prompts.
      log_odds: `[N, P]` utilities, `log(u / (1 - u))` for the probability `u` that a model's answer shown alone is accepted.
      best_rate: `[P]` departure rate of each prompt's best assortment.
      arrival_rate: `[]` probability that a round brings a query.
    """

    features: Leaf
    log_odds: Leaf
    best_rate: Leaf
    arrival_rate: Leaf

    def check(self) -> None:
        checks.numbers("features", self.features, (self.pool_size, "d"))
        checks.numbers("log_odds", self.log_odds)
        checks.probability("arrival_rate", self.arrival_rate, ())

    @property
    def pool_size(self) -> int:
        return np.shape(self.best_rate)[-1]

    def draw(self, key: Array, t: Array, spec: QueueSpec) -> Round:
        del t, spec
        k_arrival, k_context, k_choice = draws.split(key, 3)
        return Round(
            arrived=draws.uniform(k_arrival) < self.arrival_rate,
            row=self._query(draws.randint(k_context, self.pool_size)),
            infeasible=jnp.zeros((), bool),
            uniform=draws.uniform(k_choice),
        )

    def _query(self, prompt: Array) -> Query:
        return Query(best_rate=numerics.take(jnp.asarray(self.best_rate), prompt), prompt=prompt)

    def features_of(self, rows: Query) -> Array:
        del rows
        return jnp.asarray(self.features).T

    def serve(self, row: Query, spec: QueueSpec) -> tuple[Array, Array]:
        del spec
        features = numerics.at(jnp.asarray(self.features), (row.prompt,))
        utility = numerics.take(jnp.asarray(self.log_odds), row.prompt)
        return features, utility


@struct.dataclass
class RecordedPrompts(PoolContexts):
    """Pool whose round `t` reads entry `t` of `arrivals`, `prompts` (indices) and `uniforms` (for choices), each `[T]`; ignores `arrival_rate`."""

    arrivals: Leaf = struct.field(kw_only=True)
    prompts: Leaf = struct.field(kw_only=True)
    uniforms: Leaf = struct.field(kw_only=True)

    def check(self) -> None:
        super().check()
        rounds, size = checks.probability("uniforms", self.uniforms, ("T",)).shape, self.pool_size
        checks.booleans("arrivals", self.arrivals, rounds)
        allowed = f"whole numbers from 0 to {size - 1}"
        checks.bounded("prompts", self.prompts, rounds, allowed, lambda p: (p >= 0) & (p < size) & (p % 1 == 0))

    def draw(self, key: Array, t: Array, spec: QueueSpec) -> Round:
        del key, spec
        arrived, prompt, uniform = (jnp.asarray(x)[t] for x in (self.arrivals, self.prompts, self.uniforms))
        return Round(arrived=arrived, row=self._query(prompt), infeasible=jnp.zeros((), bool), uniform=uniform)


Source = RandomContexts | RecordedContexts | PoolContexts
