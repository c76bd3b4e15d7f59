"""Where requests come from: finite types, calibrated cells, a probit model, or a table of recorded ones.

Each has `draw(key, state, t) -> Request` and the chance `success(features)` that each model satisfies; and for the benchmarks
`average()`, the contexts that a policy tells apart by features, with or without costs, and those of one that sees who satisfies.
Costs are in J, models in rising order of cost.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.scipy.special import ndtr

from jaxroute.core import checks, draws, numerics
from jaxroute.core.types import Leaf
from jaxroute.problems.service.types import Request

# Requests drawn for a benchmark that has no closed form.
_SAMPLE = 1 << 16


class Contexts(NamedTuple):
    """Weighted kinds of requests on the host, float64: weight `[W]`, success `[W, M]`, cost `[W, M]`."""

    weight: np.ndarray
    success: np.ndarray
    cost: np.ndarray

    def mean(self) -> "Contexts":
        """All requests as one context: marginal chances and mean costs."""
        return Contexts(np.ones(1), *((self.weight @ x)[None] for x in (self.success, self.cost)))

    def at_cost(self, cost) -> "Contexts":
        """The same with mean costs `[M]`, for one who does not see what a request would cost."""
        return self._replace(cost=np.broadcast_to(np.asarray(cost, np.float64), self.cost.shape))


def all_labels(num_models: int) -> np.ndarray:
    """Who satisfies in each of the `2 ** M` cells, float32 `[2 ** M, M]`; the first model is the highest bit."""
    cells = np.arange(2**num_models)
    return ((cells[:, None] >> np.arange(num_models)[::-1]) & 1).astype(np.float32)


@functools.partial(jax.jit, static_argnums=2)
def draw_requests(source, key, number: int) -> Request:
    """The first `number` requests of a run of its own, leaves `[number, ...]`."""
    k_init, k_draw = draws.split(key)
    state = source.init(k_init)
    return jax.vmap(lambda i: source.draw(draws.fold_in(k_draw, i), state, i))(jnp.arange(number, dtype=jnp.int32))


def _sampled(source) -> Request:
    """Requests for a benchmark that has no closed form; always the same ones."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64), draw_requests(source, draws.key(0), _SAMPLE))


def _labelled(source) -> Contexts:
    found = _sampled(source)
    return _equally(found.satisfied, found.cost)


def _equally(success, cost) -> Contexts:
    return Contexts(np.full(len(cost), 1.0 / len(cost)), success, cost)


@struct.dataclass
class TypeRequests:
    """Requests of `K` types. Given the type, models satisfy independently, or all by one uniform (`comonotone`, static).

    weight: `[K]` shares of the types. chance: `[K, M]` chance that a model satisfies. cost_mean: `[K, M]` mean cost.
    cost_noise: `[]` standard deviation of the logarithm of a cost, around a mean that stays. vectors: `[K, d]` features of a type.
    """

    weight: Leaf
    chance: Leaf
    cost_mean: Leaf
    cost_noise: Leaf
    vectors: Leaf
    comonotone: bool = struct.field(pytree_node=False, default=False)

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("success", self.chance))
        if len(shape) != 2:
            raise ValueError(f"success must have shape [types, models], got {shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        weight = checks.non_negative("weight", self.weight, shape[:1])
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"weight must sum to 1, got {weight.sum():g}")
        checks.non_negative("cost_noise", self.cost_noise, ())
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0] or len(np.unique(vectors, axis=0)) < shape[0]:
            raise ValueError(f"features must be {shape[0]} different rows, one for each type, got shape {vectors.shape}")

    def init(self, key):
        del key
        return ()

    def draw(self, key, state, t) -> Request:
        del state, t
        k_type, k_label, k_cost = draws.split(key, 3)
        which = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_type))
        chance, cost, vector = (
            _row(numerics.one_hot(which, np.shape(self.weight)[0]), x) for x in (self.chance, self.cost_mean, self.vectors)
        )
        u = draws.uniform(k_label, () if self.comonotone else chance.shape)
        sigma = jnp.asarray(self.cost_noise, jnp.float32)
        noise = jnp.exp(sigma * draws.normal(k_cost, cost.shape) - sigma * sigma / 2)
        return Request(features=vector, satisfied=u < chance, cost=cost * noise, success=chance)

    def success(self, features) -> jax.Array:
        """The chances `[M]` of the type with these features."""
        distance = jnp.sum(jnp.square(jnp.asarray(self.vectors) - features), axis=-1)
        return _row(numerics.one_hot(numerics.argmin(distance), distance.shape[0]), self.chance)

    def average(self) -> Contexts:
        """All requests as one context."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """The types, with a sample of costs if these are noisy and known."""
        weight, chance, cost = (np.asarray(x, np.float64) for x in (self.weight, self.chance, self.cost_mean))
        if not (self.cost_noise and knows_cost):
            return Contexts(weight / weight.sum(), chance, cost)
        found = _sampled(self)
        return _equally(found.success, found.cost)

    def label_contexts(self) -> Contexts:
        """One context for each type and each set of models that satisfy, at mean costs."""
        weight, chance, cost = (np.asarray(x, np.float64) for x in (self.weight, self.chance, self.cost_mean))
        labels = all_labels(chance.shape[1]).astype(np.float64)
        if self.comonotone:  # All models above a uniform: between two neighbouring chances the labels stay.
            edges = np.sort(np.concatenate([np.zeros((len(chance), 1)), chance, np.ones((len(chance), 1))], axis=1))
            share = np.diff(edges)[:, :, None]
            rows = (edges[:, :-1, None] + edges[:, 1:, None]) / 2 < chance[:, None, :]
            success = rows.astype(np.float64)
            law = share[..., 0]
        else:
            success = np.broadcast_to(labels, (len(chance), *labels.shape))
            law = np.prod(np.where(labels > 0, chance[:, None], 1.0 - chance[:, None]), axis=-1)
        full = weight[:, None] / weight.sum() * law
        costs = np.broadcast_to(cost[:, None], success.shape)
        return Contexts(full.ravel(), success.reshape(-1, chance.shape[1]), costs.reshape(-1, chance.shape[1]))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """What a policy that sees who satisfies tells apart, with a sample of costs if these are noisy and known."""
        return _labelled(self) if self.cost_noise and knows_cost else self.label_contexts()


@struct.dataclass
class CellRequests:
    """Requests with the joint law of who satisfies from a table, and features that tell about it as much as `signal` says.

    The feature of model `m` is `signal * (2 s_m - 1)` plus standard normal noise; then come `num_noise` coordinates of pure noise
    and a constant 1. The chance of each cell given the features is in closed form. A feature's area under the curve is
    `Phi(sqrt(2) * signal)`: .15 is weak (.58), .6 good (.80).

    weight: `[2 ** M]` share of each cell, in the order of `all_labels`. cost_mean, cost_spread: `[M]` mean and standard
    deviation of a normal law that is cut off at 5 % of the mean. signal: `[]`. num_noise: static.
    """

    weight: Leaf
    cost_mean: Leaf
    cost_spread: Leaf
    signal: Leaf
    num_noise: int = struct.field(pytree_node=False, default=4)

    @property
    def num_features(self) -> int:
        return self.cost_mean.shape[-1] + self.num_noise + 1

    def check(self) -> None:
        shape = np.shape(checks.non_negative("cost", self.cost_mean))
        if len(shape) != 1:
            raise ValueError(f"cost must have shape [models], got {shape}")
        checks.non_negative("cost_spread", self.cost_spread, shape)
        weight = checks.non_negative("cells", self.weight, (2 ** shape[0],))
        if abs(weight.sum() - 1.0) > 1e-5:
            raise ValueError(f"cells must sum to 1, got {weight.sum():g}")
        checks.numbers("signal", self.signal, ())
        checks.count("num_noise", self.num_noise, minimum=0)

    def init(self, key):
        del key
        return ()

    def draw(self, key, state, t) -> Request:
        del state, t
        k_cell, k_feature, k_cost = draws.split(key, 3)
        models = np.shape(self.cost_mean)[0]
        cell = numerics.inverse_cdf(jnp.asarray(self.weight, jnp.float32), draws.uniform(k_cell))
        bits = (cell >> np.arange(models)[::-1]) & 1
        noise = draws.normal(k_feature, (models + self.num_noise,))
        lean = jnp.asarray(self.signal, jnp.float32) * (2 * bits - 1).astype(jnp.float32)
        features = jnp.concatenate([noise[:models] + lean, noise[models:], jnp.ones(1, jnp.float32)])
        mean, spread = jnp.asarray(self.cost_mean, jnp.float32), jnp.asarray(self.cost_spread, jnp.float32)
        cost = jnp.maximum(0.05 * mean, mean + spread * draws.normal(k_cost, (models,)))
        return Request(features=features, satisfied=bits == 1, cost=cost, success=self.success(features))

    def success(self, features) -> jax.Array:
        """The chances `[M]` given features `[d]`: `P(j | x)` is proportional to `w_j exp(signal * sum_m (2 s_m(j) - 1) x_m)`."""
        labels = all_labels(np.shape(self.cost_mean)[0])
        lean = self.signal * jnp.sum((2.0 * labels - 1.0) * features[: labels.shape[1]], axis=-1)
        mass = jnp.asarray(self.weight, jnp.float32) * jnp.exp(lean - jnp.max(lean))
        return jnp.sum(mass[:, None] * labels, axis=0) / jnp.sum(mass)

    def average(self) -> Contexts:
        """All requests as one context."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """A sample of requests: their features, and their costs if known."""
        found = _sampled(self)
        contexts = _equally(found.success, found.cost)
        return contexts if knows_cost else contexts.at_cost(self.cost_mean)

    def label_contexts(self) -> Contexts:
        """The cells, at mean costs."""
        labels = all_labels(np.shape(self.cost_mean)[0]).astype(np.float64)
        weight = np.asarray(self.weight, np.float64)
        return Contexts(weight / weight.sum(), labels, np.broadcast_to(np.asarray(self.cost_mean, np.float64), labels.shape))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """A sample of requests, who satisfied and their costs; the cells if these are not known."""
        return _labelled(self) if knows_cost else self.label_contexts()


@struct.dataclass
class ProbitRequests:
    """Requests with normal features; a model satisfies if its threshold is met by features, shared and own difficulty.

    `s_m = 1[threshold_m + r_f w_m . x + r_c g + sqrt(1 - r_f^2 - r_c^2) e_m > 0]` with standard normal `x [d]`, `g` and `e_m`: the
    marginal chance is exactly `Phi(threshold_m)`.

    threshold: `[M]`. direction: `[M, d]` rows of length 1. from_features, shared: `[]`, `r_f` and `r_c`. cost_mean: `[M]`.
    length_spread: `[]` standard deviation of the logarithm of a factor common to all models, the length of a request.
    """

    threshold: Leaf
    direction: Leaf
    from_features: Leaf
    shared: Leaf
    cost_mean: Leaf
    length_spread: Leaf

    @property
    def num_features(self) -> int:
        return self.direction.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.numbers("threshold", self.threshold))
        rows = checks.numbers("direction", self.direction)
        if rows.ndim != 2 or rows.shape[:1] != shape or np.any(np.abs(np.sum(rows**2, axis=1) - 1.0) > 1e-4):
            raise ValueError(f"direction must be {shape[0]} rows of length 1, got shape {rows.shape}")
        checks.non_negative("cost", self.cost_mean, shape)
        checks.non_negative("length_spread", self.length_spread, ())
        parts = [checks.numbers(name, getattr(self, name), ()) for name in ("from_features", "shared")]
        if sum(p**2 for p in parts) > 1.0 + 1e-6:
            raise ValueError(f"from_features^2 + shared^2 must be at most 1, got {sum(p**2 for p in parts):g}")

    def init(self, key):
        del key
        return ()

    def draw(self, key, state, t) -> Request:
        del state, t
        k_x, k_shared, k_own, k_length = draws.split(key, 4)
        models, size = np.shape(self.direction)
        x = draws.normal(k_x, (size,))
        lean = self.threshold + self.from_features * jnp.sum(self.direction * x, axis=-1)
        rest = jnp.sqrt(jnp.maximum(0.0, 1.0 - jnp.square(self.from_features) - jnp.square(self.shared)))
        latent = lean + self.shared * draws.normal(k_shared) + rest * draws.normal(k_own, (models,))
        spread = jnp.asarray(self.length_spread, jnp.float32)
        length = jnp.exp(spread * draws.normal(k_length) - spread * spread / 2)
        cost = jnp.asarray(self.cost_mean, jnp.float32) * length
        return Request(features=x, satisfied=latent > 0, cost=cost, success=self._given(lean))

    def _given(self, lean):
        return ndtr(lean / jnp.sqrt(jnp.maximum(1e-12, 1.0 - jnp.square(self.from_features))))

    def success(self, features) -> jax.Array:
        """The chances `[M]` given features `[d]`."""
        return self._given(self.threshold + self.from_features * jnp.sum(self.direction * features, axis=-1))

    def average(self) -> Contexts:
        """All requests as one context: `Phi(threshold)` and the mean costs."""
        return Contexts(np.ones(1), *(np.asarray(x, np.float64)[None] for x in (ndtr(self.threshold), self.cost_mean)))

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """A sample of requests: their features, and their lengths if known."""
        found = _sampled(self)
        contexts = _equally(found.success, found.cost)
        return contexts if knows_cost else contexts.at_cost(self.cost_mean)

    def label_contexts(self) -> Contexts:
        """A sample of requests and who satisfied each of them."""
        return _labelled(self)

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """The same, at mean costs if those of a request are not known."""
        return self.label_contexts() if knows_cost else self.label_contexts().at_cost(self.cost_mean)


@struct.dataclass
class TableRequests:
    """Recorded requests, in an order of its own for each run, each once before any is repeated.

    labels: `[N, M]` float32, who satisfied. cost_table: `[N, M]`, J. vectors: `[N, d]` features.
    """

    labels: Leaf
    cost_table: Leaf
    vectors: Leaf

    @property
    def num_features(self) -> int:
        return self.vectors.shape[-1]

    def check(self) -> None:
        shape = np.shape(checks.probability("labels", self.labels))
        checks.non_negative("costs", self.cost_table, shape)
        vectors = checks.numbers("features", self.vectors)
        if vectors.ndim != 2 or len(vectors) != shape[0]:
            raise ValueError(f"features must be {shape[0]} rows, one for each request, got shape {vectors.shape}")

    def init(self, key):
        return jax.random.permutation(key, self.labels.shape[0]).astype(jnp.int32)

    def draw(self, key, state, t) -> Request:
        del key
        row = state[t % self.labels.shape[0]]
        labels, cost, vector = (jnp.asarray(x)[row] for x in (self.labels, self.cost_table, self.vectors))
        return Request(features=vector, satisfied=labels > 0.5, cost=cost, success=labels)

    def success(self, features) -> jax.Array:
        """Unknown: a table tells only what happened."""
        raise ValueError("a table of recorded requests has no true chances; use a predictor that learns, or labels")

    def average(self) -> Contexts:
        """All requests as one context."""
        return self.label_contexts().mean()

    def contexts(self, knows_cost: bool = True) -> Contexts:
        """All requests as one: nothing better is known without a model of the features."""
        del knows_cost
        return self.average()

    def label_contexts(self) -> Contexts:
        """Each request as a context of its own."""
        return _equally(*(np.asarray(x, np.float64) for x in (self.labels, self.cost_table)))

    def clairvoyant_contexts(self, knows_cost: bool = True) -> Contexts:
        """The same, at mean costs if those of a request are not known."""
        return self.label_contexts() if knows_cost else self.label_contexts().at_cost(self.average().cost[0])


def _row(mask, table) -> jax.Array:
    """The row `[...]` of a table `[K, ...]` where the one-hot mask `[K]` is True."""
    table = jnp.asarray(table, jnp.float32)
    return jnp.sum(jnp.where(mask[:, None], table, 0.0), axis=0)
